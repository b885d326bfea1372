// SPDX-License-Identifier: MIT
/*
 * No room in /dev/shm is an error when the card is opened, with a line that says so; never a SIGBUS later. What was
 * opened before goes on working.
 */
#include "../programs/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/statvfs.h>

static int opener(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	char answer;

	check(list && list[0], "no device");
	errno = 0;
	ctx = ibv_open_device(list[0]);
	check(ctx || errno, "refused without errno");
	answer = ctx ? 'y' : 'n';
	msg_send(ROLE_FD, &answer, 1);
	if (ctx)
		check_eq(ibv_close_device(ctx), 0);
	ibv_free_device_list(list);
	return 0;
}

static char try_open(void)
{
	char answer;
	int fd;
	pid_t pid = spawn_self("opener", &fd);

	msg_recv(fd, &answer, 1);
	spawn_wait(pid);
	close(fd);
	return answer;
}

static void ping(struct node *a, struct node *b)
{
	for (uint64_t i = 0; i < 100; i++) {
		check_eq(node_recv(b, i, 0, 65536), 0);
		check_eq(node_send(a, i, 0, (uint32_t)(i * 600), IBV_SEND_SIGNALED), 0);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	}
}

int main(int argc, char **argv)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "opener"))
		return opener();
	enter_small_shm("size=16m,mode=1777");
	node_pair(&a, &b, &attr);
	ping(&a, &b);
	fd = open("/dev/shm/filler", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	check(fd >= 0, "%s", strerror(errno));
	for (off_t at = 0; posix_fallocate(fd, at, 4096) == 0; at += 4096)
		;
	check_eq(try_open(), 'n');
	ping(&a, &b);
	check_eq(ftruncate(fd, 0), 0);
	close(fd);
	check_eq(try_open(), 'y');
	node_close(&a);
	node_close(&b);
	return 0;
}
