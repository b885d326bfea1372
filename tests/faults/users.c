// SPDX-License-Identifier: MIT
/*
 * Two users of one machine do not meet: a second user reaches no QP of the first, can open none of its files, and
 * works by itself all the same.
 */
#include "../programs/common.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

enum { OTHER_UID = 65533 };

/* Everything in verbatim-* of the registries' directory that is not ours must be closed to us. */
static void check_files(void)
{
	DIR *shm = opendir(shm_path());
	struct dirent *entry;
	char path[512];
	struct stat st;
	int foreign = 0;

	check(shm, "%s", strerror(errno));
	while ((entry = readdir(shm))) {
		if (strncmp(entry->d_name, "verbatim-", 9))
			continue;
		snprintf(path, sizeof(path), "%s/%s", shm_path(), entry->d_name);
		if (stat(path, &st) || st.st_uid == geteuid())
			continue;
		foreign++;
		check(open(path, O_RDONLY) < 0 && errno == EACCES, "%s is open to others", path);
	}
	closedir(shm);
	check(foreign > 0, "the first user has no registry");
}

static struct node_attr impatient(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = 10;
	attr.retry_cnt = 2;
	return attr;
}

/* As the other user: aim at the first user's QP, then talk to oneself. */
static int other(void)
{
	struct node_attr attr = impatient();
	struct address peer;
	struct node a, b;

	check_eq(setgroups(0, NULL), 0);
	check_eq(setresgid(OTHER_UID, OTHER_UID, OTHER_UID), 0);
	check_eq(setresuid(OTHER_UID, OTHER_UID, OTHER_UID), 0);
	msg_recv(ROLE_FD, &peer, sizeof(peer));
	check_files();
	node_open(&a, &attr);
	/* Numbers are unique per user only: with the same one we would aim at ourselves. */
	if (a.qp->qp_num == peer.qpn) {
		struct ibv_qp *twin = a.qp;

		a.qp = node_create_qp(&a);
		check(a.qp, "%s", strerror(errno));
		check_eq(ibv_destroy_qp(twin), 0);
	}
	node_connect(&a, &peer);
	check_eq(node_rdma(&a, 1, IBV_WR_RDMA_WRITE, 0, 8, &peer, 0), 0);
	cq_expect(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	node_close(&a);
	attr = node_attr(IBV_QPT_RC);
	node_pair(&a, &b, &attr);
	check_eq(node_recv(&b, 2, 0, 8), 0);
	check_eq(node_send(&a, 3, 0, 8, IBV_SEND_SIGNALED), 0);
	cq_expect(a.send_cq, 3, IBV_WC_SUCCESS);
	cq_expect(b.recv_cq, 2, IBV_WC_SUCCESS);
	node_close(&a);
	node_close(&b);
	return 0;
}

int main(int argc, char **argv)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;
	struct node node;
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "other"))
		return other();
	if (geteuid() != 0)
		test_skip("becoming another user needs root");
	pid = spawn_self("other", &fd);
	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	memset(node.buf, 0x5a, 8);
	msg_send(fd, &self, sizeof(self));
	spawn_wait(pid);
	close(fd);
	for (int i = 0; i < 8; i++)
		check_eq(node.buf[i], 0x5a);
	check_eq(qp_get_state(node.qp), IBV_QPS_RTS);
	node_close(&node);
	return 0;
}
