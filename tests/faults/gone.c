// SPDX-License-Identifier: MIT
/*
 * A process that has ended is not there, from the moment on in which its parent hears of it: a WRITE, a READ or an atomic to
 * its memory fails, also where that memory is still mapped here and could be stored to. However it ended (killed, by an exit,
 * by executing another program), whatever children it leaves behind, and also where this process has no descriptor left to
 * ask with, or no /proc.
 */
#include "../programs/common.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ALL = 3 * 5 * 3 * 3 }; /* of what is below */

enum end { KILLED, EXITS, EXECUTES, ENDS };
enum child { NO_CHILD, FORKED, FORKED_BARE, CLONED, VFORKED, CHILDREN };
enum lack { NOTHING, DESCRIPTORS, PROC, LACKS };

static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
					      IBV_WR_ATOMIC_FETCH_AND_ADD };

struct round {
	enum end end;
	enum child child;
	enum lack lack;
	enum ibv_wr_opcode opcode;
};

static bool may_hide_proc;

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = 12;
	attr.retry_cnt = 1;
	node_open(node, &attr);
}

/* ---- the target ---- */

static volatile pid_t vforked;

static void *vfork_and_wait(void *arg)
{
	pid_t pid = vfork();

	if (!pid) {
		vforked = (pid_t)syscall(SYS_getpid);
		for (;;)
			syscall(SYS_pause);
	}
	return arg;
}

static pid_t leave_child(enum child child)
{
	pthread_t thread;
	pid_t pid = 0;

	switch (child) {
	case FORKED:
		pid = fork();
		break;
	case FORKED_BARE:
		pid = _Fork();
		break;
	case CLONED:
		pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		break;
	case VFORKED:
		check_eq(pthread_create(&thread, NULL, vfork_and_wait, NULL), 0);
		while (!vforked)
			sched_yield();
		return vforked;
	default:
		return 0;
	}
	if (!pid)
		for (;;)
			syscall(SYS_pause);
	check(pid > 0, "%s", strerror(errno));
	return pid;
}

static int target(void)
{
	struct address peer;
	struct round round;
	struct node node;
	pid_t child;

	open_node(&node);
	node_meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &round, sizeof(round));
	child = leave_child(round.child);
	msg_send(ROLE_FD, &child, sizeof(child));
	msg_recv(ROLE_FD, &child, sizeof(child));
	if (round.end == EXITS)
		_exit(0);
	if (round.end == EXECUTES)
		execl("/proc/self/exe", "gone", "executed", NULL);
	for (;;)
		pause();
}

/* ---- and the one that writes to it ---- */

static void ask(struct node *node, enum ibv_wr_opcode opcode, const struct address *peer,
		enum ibv_wc_status status)
{
	check_eq(node_rdma(node, 1, opcode, 0, 8, peer, 0), 0);
	cq_expect(node->send_cq, 1, status);
}

static void end(pid_t pid, int fd, enum end end)
{
	pid_t go = 0;
	char started;

	if (end == KILLED)
		check_eq(kill(pid, SIGKILL), 0);
	else
		msg_send(fd, &go, sizeof(go));
	if (end == EXECUTES)
		msg_recv(fd, &started, 1);
	else
		check_eq(waitpid(pid, NULL, 0), pid);
}

/* The completion of what was asked of a process that is gone, while this one lacks something. */
static void ask_in_vain(struct node *node, const struct round *round, const struct address *peer)
{
	struct rlimit limit, none;

	check_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	if (round->lack == DESCRIPTORS)
		check_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	if (round->lack == PROC && may_hide_proc)
		check_eq(mount("none", "/proc", "tmpfs", 0, NULL), 0);
	ask(node, round->opcode, peer, IBV_WC_RETRY_EXC_ERR);
	if (round->lack == PROC && may_hide_proc)
		check_eq(umount("/proc"), 0);
	check_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void end_and_ask(const struct round *round)
{
	struct address peer;
	struct node node;
	int fd;
	pid_t pid = spawn_self("target", &fd), child;

	open_node(&node);
	node_meet(&node, fd, &peer);
	msg_send(fd, round, sizeof(*round));
	msg_recv(fd, &child, sizeof(child));
	ask(&node, round->opcode, &peer, IBV_WC_SUCCESS);
	end(pid, fd, round->end);
	ask_in_vain(&node, round, &peer);
	if (round->end == EXECUTES) {
		check_eq(kill(pid, SIGKILL), 0);
		check_eq(waitpid(pid, NULL, 0), pid);
	}
	if (child) {
		check_eq(kill(child, SIGKILL), 0);
		check_eq(waitpid(child, NULL, 0), child);
	}
	close(fd);
	node_close(&node);
}

static struct round round_of(int i)
{
	struct round round = { .opcode = opcodes[i % 3] };

	i /= 3;
	round.lack = (enum lack)(i % LACKS);
	i /= LACKS;
	round.child = (enum child)(i % CHILDREN);
	i /= CHILDREN;
	round.end = (enum end)(i % ENDS);
	return round;
}

int main(int argc, char **argv)
{
	int rounds = campaign(ALL, 10000);

	if (argc > 1 && !strcmp(argv[1], "executed")) {
		msg_send(ROLE_FD, "x", 1);
		for (;;)
			pause();
	}
	if (argc > 1)
		return target();
	check_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	may_hide_proc = enter_namespaces(CLONE_NEWNS) &&
			!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	if (!may_hide_proc)
		printf("no right to make a mount namespace: /proc stays\n");
	for (int i = 0; i < rounds; i++) {
		struct round round = round_of(i % ALL);

		end_and_ask(&round);
	}
	return 0;
}
