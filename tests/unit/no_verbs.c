// SPDX-License-Identifier: MIT
/* What ../programs/common.c needs of libibverbs and of nodes, for tests of the fabric alone: nothing of it is called. */
#include "../programs/common.h"

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
