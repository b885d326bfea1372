// SPDX-License-Identifier: MIT
/*
 * Little address space (ulimit -v). A peer costs less than a MiB of it. Where there is none left the peer cannot be
 * reached, which the program sees as a peer that does not answer; the log says why. With more room it works again.
 */
#include "../programs/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PEERS = 16, LAST = PEERS, ROOM = PEERS << 20 };

static struct node_attr impatient(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = 10;
	attr.retry_cnt = 2;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
	return attr;
}

static int peer(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address other;
	struct node node;
	char word;

	node_open(&node, &attr);
	memset(node.buf, 0, 64);
	for (;;) {
		struct address self;

		node_address(&node, &self);
		msg_send(ROLE_FD, &self, sizeof(self));
		if (!msg_try_recv(ROLE_FD, &other, sizeof(other)))
			break;
		node_connect(&node, &other);
		check_eq(node_recv(&node, 1, 0, 64), 0);
		msg_send(ROLE_FD, "r", 1);
		/* The next connection is to another queue pair. */
		msg_recv(ROLE_FD, &word, 1);
		check_eq(qp_set_state(node.qp, IBV_QPS_RESET), 0);
	}
	node_close(&node);
	return 0;
}

static rlim_t address_space(void)
{
	unsigned long long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	check(f && fscanf(f, "%llu", &pages) == 1, "/proc/self/statm");
	fclose(f);
	return pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void set_room(rlim_t room)
{
	struct rlimit limit;

	check_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = room == RLIM_INFINITY ? limit.rlim_max : address_space() + room;
	check_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

/* No mapping that exists has room for what comes. */
static void use_up(void)
{
	while (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		;
}

/* Connect to a peer and send it a message; the status of that. */
static enum ibv_wc_status talk(struct node *node, int fd)
{
	struct address self, other;
	struct ibv_wc wc;
	char word;

	node_address(node, &self);
	msg_recv(fd, &other, sizeof(other));
	msg_send(fd, &self, sizeof(self));
	msg_recv(fd, &word, 1);
	node_connect(node, &other);
	check_eq(node_send(node, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	check(cq_wait(node->send_cq, &wc, PATIENCE_MS), "no completion");
	msg_send(fd, "n", 1);
	return wc.status;
}

static void check_log(int pid)
{
	const char *path = getenv("VERBATIM_LOG_FILE");
	char text[4096] = "", want[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	check(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0, "%s: %s", path, strerror(errno));
	close(fd);
	unlink(path);
	snprintf(want, sizeof(want), "process %d cannot be reached", pid);
	check(strstr(text, want) && strstr(text, "ulimit -v"), "the log has: %s", text);
	check(strchr(text, '\n') == strrchr(text, '\n'), "more than one line: %s", text);
}

static void start_with_log(char **argv)
{
	static char path[] = "/tmp/verbatim-log-XXXXXX";
	int fd = mkstemp(path);

	check(fd >= 0, "%s: %s", path, strerror(errno));
	close(fd);
	setenv("VERBATIM_LOG_FILE", path, 1);
	execv("/proc/self/exe", argv);
	check(false, "%s", strerror(errno));
}

int main(int argc, char **argv)
{
	struct node_attr attr = impatient();
	struct node node, side[PEERS + 2];
	pid_t pid[PEERS + 1];
	int fd[PEERS + 1];

	if (argc > 1 && !strcmp(argv[1], "peer"))
		return peer();
	if (!getenv("VERBATIM_LOG_FILE"))
		start_with_log(argv);
	node_open(&node, &attr);
	for (int i = 0; i < PEERS + 2; i++) {
		side[i] = node;
		side[i].qp = node_create_qp(&node);
		check(side[i].qp, "%s", strerror(errno));
	}
	for (int i = 0; i < PEERS + 1; i++)
		pid[i] = spawn_self("peer", &fd[i]);
	set_room(ROOM);
	for (int i = 0; i < PEERS; i++)
		check_eq(talk(&side[i], fd[i]), IBV_WC_SUCCESS);

	set_room(0);
	use_up();
	check_eq(talk(&side[LAST], fd[LAST]), IBV_WC_RETRY_EXC_ERR);
	check_log(pid[LAST]);
	set_room(RLIM_INFINITY);
	side[LAST + 1].attr = node_attr(IBV_QPT_RC); /* with patience */
	check_eq(talk(&side[LAST + 1], fd[LAST]), IBV_WC_SUCCESS);
	for (int i = 0; i < PEERS + 1; i++) {
		struct address last;

		msg_recv(fd[i], &last, sizeof(last));
		close(fd[i]);
		spawn_wait(pid[i]);
	}
	for (int i = 0; i < PEERS + 2; i++)
		check_eq(ibv_destroy_qp(side[i].qp), 0);
	node_close(&node);
	return 0;
}
