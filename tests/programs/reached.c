// SPDX-License-Identifier: MIT
/*
 * Shared memory of a process whose descriptors are not what they were: its first thread has ended, so that /proc shows
 * none of them there; it has closed all of them before anybody mapped one; or it has other files under their numbers. Data
 * arrives in any case, and no file of the program is touched.
 */
#include "common.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEN = 9000, FIRST = ROLE_PROCESS_FD + 1, LAST = 256 };

static struct node node;
static bool replaced;

static void *finish(void *arg)
{
	char end;

	(void)arg;
	msg_recv(ROLE_FD, &end, 1);
	check_eq(pattern_check(node.buf, LEN, 5), LEN);
	if (replaced) {
		struct stat st;

		check_eq(fstat(FIRST, &st), 0);
		check_eq(st.st_size, 0);
	}
	exit(0);
}

static int target(const char *role)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address peer;
	pthread_t thread;

	node_open(&node, &attr);
	if (!strcmp(role, "closed"))
		close_range(FIRST, LAST, 0);
	if (!strcmp(role, "replaced")) {
		int fd = memfd_create("program", MFD_CLOEXEC);

		replaced = true;
		for (int i = FIRST; i < LAST; i++)
			if (i != fd)
				check_eq(dup2(fd, i), i);
	}
	node_meet(&node, ROLE_FD, &peer);
	check_eq(pthread_create(&thread, NULL, finish, NULL), 0);
	if (!strcmp(role, "threadless"))
		pthread_exit(NULL);
	pthread_join(thread, NULL);
	return 1;
}

static void run(const char *role)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address peer;
	struct node own;
	pid_t pid;
	int fd;

	pid = spawn_self(role, &fd);
	node_open(&own, &attr);
	node_meet(&own, fd, &peer);
	sleep_ms(20); /* its first thread ends, if it does */
	pattern_fill(own.buf, LEN, 5);
	check_eq(node_rdma(&own, 1, IBV_WR_RDMA_WRITE, 0, LEN, &peer, 0), 0);
	cq_expect(own.send_cq, 1, IBV_WC_SUCCESS);
	memset(own.buf, 0, LEN);
	check_eq(node_rdma(&own, 2, IBV_WR_RDMA_READ, 0, LEN, &peer, 0), 0);
	cq_expect(own.send_cq, 2, IBV_WC_SUCCESS);
	check_eq(pattern_check(own.buf, LEN, 5), LEN);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	node_close(&own);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return target(argv[1]);
	run("threadless");
	run("closed");
	run("replaced");
	return 0;
}
