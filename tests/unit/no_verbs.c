// SPDX-License-Identifier: MIT
/*
 * What ../programs/common.c needs of libibverbs, of nodes and of second hosts, for tests of the fabric alone: nothing of it
 * is called.
 */
#include "../programs/common.h"
#include "../programs/hosts.h"

#include <unistd.h>

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	(void)status;
	return "";
}

void node_address(const struct node *node, struct address *address)
{
	(void)node;
	(void)address;
}

void node_connect(struct node *node, const struct address *peer)
{
	(void)node;
	(void)peer;
}

bool hosts_wanted(void)
{
	return false;
}

bool hosts_is_side(void)
{
	return false;
}

pid_t hosts_spawn(const char *role, int *fd)
{
	(void)role;
	(void)fd;
	return -1;
}

bool hosts_wait(pid_t side)
{
	(void)side;
	return false;
}

void hosts_exit(int status)
{
	_exit(status);
}
