// SPDX-License-Identifier: MIT
/*
 * A process that has ended is not there, from the moment on in which its parent hears of it: a WRITE, a READ or an atomic to
 * its memory fails, also where that memory is still mapped here and could be stored to. However it ended (killed, by an exit,
 * by executing another program), whatever children it leaves behind, and also where this process has no descriptor left to
 * ask with, or no /proc.
 *
 * A process that has lost only the thread by which its end is noticed is treated so, too, but stays in the registry.
 */
#include "../programs/common.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
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

/* ---- a target that loses one thread ---- */

/* Only our background thread waits for a word that processes share: let it alone be killed when it does that next. */
static void end_background(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAIT, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	check_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	check_eq(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter),
		 0);
}

static int count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	check(dir, "%s", strerror(errno));
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

/* The files of the registry that this process has mapped are still there. */
static bool is_registered(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	bool linked = true;
	char line[512];

	check(maps, "%s", strerror(errno));
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "/verbatim-") && strstr(line, "(deleted)"))
			linked = false;
	fclose(maps);
	return linked;
}

#ifdef __SANITIZE_THREAD__
enum { OWN_THREADS = 2 }; /* ThreadSanitizer starts one with the first thread of the program */
#else
enum { OWN_THREADS = 1 };
#endif

static int half_target(void)
{
	struct address peer;
	struct node node;
	char word;

	open_node(&node);
	node_meet(&node, ROLE_FD, &peer);
	check_eq(node_recv(&node, 7, 64, 8), 0);
	end_background();
	msg_send(ROLE_FD, "f", 1);
	while (count_threads() > OWN_THREADS)
		sleep_ms(1);
	msg_send(ROLE_FD, "t", 1);
	msg_recv(ROLE_FD, &word, 1);
	word = is_registered() ? 'y' : 'n';
	msg_send(ROLE_FD, &word, 1);
	pause();
	return 1;
}

/* Nothing succeeds with it any more, but it is there: its other threads may be copying. */
static void lose_thread(void)
{
	struct address peer;
	struct ibv_wc wc;
	struct node node;
	char word;
	int fd;
	pid_t pid = spawn_self("half", &fd);

	open_node(&node);
	node_meet(&node, fd, &peer);
	msg_recv(fd, &word, 1);
	check_eq(node_send(&node, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	msg_recv(fd, &word, 1);
	/* It wakes the thread, and fails where that was not asleep when the filter came. */
	check(cq_wait(node.send_cq, &wc, 10000));
	if (wc.status != IBV_WC_SUCCESS)
		node_connect(&node, &peer);
	ask(&node, IBV_WR_RDMA_WRITE, &peer, IBV_WC_RETRY_EXC_ERR);
	msg_send(fd, "?", 1);
	msg_recv(fd, &word, 1);
	check_eq(word, 'y');
	check_eq(kill(pid, SIGKILL), 0);
	check_eq(waitpid(pid, NULL, 0), pid);
	close(fd);
	node_close(&node);
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
		return !strcmp(argv[1], "half") ? half_target() : target();
	check_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	may_hide_proc = enter_namespaces(CLONE_NEWNS) &&
			!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	if (!may_hide_proc)
		printf("no right to make a mount namespace: /proc stays\n");
	lose_thread();
	for (int i = 0; i < rounds; i++) {
		struct round round = round_of(i % ALL);

#ifdef __SANITIZE_THREAD__
		if (round.child == VFORKED)
			continue; /* ThreadSanitizer makes a fork() of it */
#endif
		end_and_ask(&round);
	}
	return 0;
}
