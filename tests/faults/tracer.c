// SPDX-License-Identifier: MIT
/*
 * Whom a process lets trace itself, where Yama makes that its choice (ptrace_scope 1): the peer that it is connected to,
 * all of the user's processes as soon as there are two, nobody after it has closed its devices, nobody while all memory
 * that it registered is shared. Elsewhere it says nothing.
 * A made-up /proc/sys/kernel has the scope, and a seccomp filter shows each call.
 */
#include "../programs/common.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { NO_CALL = -2, MAX_CALLS = 8 };

static volatile long calls[MAX_CALLS];
static volatile int num_calls;

static int peer(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address other;
	struct node node;
	char word;

	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &other);
	msg_recv(ROLE_FD, &word, 1);
	node_close(&node);
	return 0;
}

#if defined(__x86_64__)
#define ARGUMENT(context) ((context)->uc_mcontext.gregs[REG_RSI])
#define RESULT(context)   ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ARGUMENT(context) ((context)->uc_mcontext.regs[1])
#define RESULT(context)   ((context)->uc_mcontext.regs[0])
#endif

static void on_call(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	if (num_calls < MAX_CALLS)
		calls[num_calls++] = (long)ARGUMENT((ucontext_t *)context);
	RESULT((ucontext_t *)context) = 0;
}

/* From here on prctl(PR_SET_PTRACER, ...) only adds to calls. */
static void watch_calls(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_PTRACER, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };
	struct sigaction act = { .sa_sigaction = on_call, .sa_flags = SA_SIGINFO };

	check_eq(sigaction(SIGSYS, &act, NULL), 0);
	check_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	check_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

/* The argument of the calls since the last time; at most one is expected. */
static long last_call(void)
{
	long arg = num_calls ? calls[0] : NO_CALL;

	check(num_calls < 2, "%d calls", num_calls);
	num_calls = 0;
	return arg;
}

static int subject(bool restricted)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node node, second;
	struct address other;
	pid_t pid[2];
	int fd[2];

	for (int i = 0; i < 2; i++)
		pid[i] = spawn_self("peer", &fd[i]);
	watch_calls();
	node_open(&node, &attr);
	second = node;
	second.qp = node_create_qp(&second);
	check(second.qp, "%s", strerror(errno));
	check_eq(last_call(), NO_CALL);
	node_meet(&node, fd[0], &other);
	check_eq(last_call(), restricted ? pid[0] : NO_CALL);
	node_meet(&second, fd[1], &other);
	check_eq(last_call(), restricted ? (long)PR_SET_PTRACER_ANY : NO_CALL);
	check_eq(ibv_destroy_qp(second.qp), 0);
	node_close(&node);
	check_eq(last_call(), restricted ? 0 : NO_CALL);
	for (int i = 0; i < 2; i++) {
		msg_send(fd[i], "e", 1);
		spawn_wait(pid[i]);
	}
	return 0;
}

/* Peers map shared memory without a right to trace; only other memory that is registered needs it. */
static int sharing(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	static char memory[4096];
	struct address other;
	struct node node;
	struct ibv_mr *mr;
	pid_t pid;
	int fd;

	pid = spawn_self("peer", &fd);
	setenv("VERBATIM_TEST_MEMORY", "shared", 1);
	watch_calls();
	node_open(&node, &attr);
	node_meet(&node, fd, &other);
	check_eq(last_call(), NO_CALL);
	for (int i = 0; i < 2; i++) {
		mr = ibv_reg_mr(node.pd, memory, sizeof(memory), ACCESS_ALL);
		check(mr, "%s", strerror(errno));
		check_eq(last_call(), pid);
		check_eq(ibv_dereg_mr(mr), 0);
		check_eq(last_call(), 0);
	}
	node_close(&node);
	check_eq(last_call(), NO_CALL);
	msg_send(fd, "e", 1);
	spawn_wait(pid);
	return 0;
}

static void run(const char *scope, const char *role)
{
	int fd, pair;
	pid_t pid;

	if (mount("none", "/proc/sys/kernel", "tmpfs", 0, NULL))
		test_skip("a made-up /proc/sys/kernel needs the right to mount (%s)",
			  strerror(errno));
	if (scope) {
		check_eq(mkdir("/proc/sys/kernel/yama", 0755), 0);
		fd = open("/proc/sys/kernel/yama/ptrace_scope", O_CREAT | O_WRONLY | O_CLOEXEC,
			  0644);
		check(fd >= 0 && write(fd, scope, 2) == 2, "%s", strerror(errno));
		close(fd);
	}
	pid = spawn_self(role, &pair);
	spawn_wait(pid);
	close(pair);
	check_eq(umount("/proc/sys/kernel"), 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "peer"))
		return peer();
	if (argc > 1 && !strcmp(argv[1], "sharing"))
		return sharing();
	if (argc > 1)
		return subject(!strcmp(argv[1], "restricted"));
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0)
		test_skip("seeing the calls needs a kernel with seccomp");
	if (!enter_namespaces(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		test_skip("a made-up /proc/sys/kernel needs a mount namespace (%s)",
			  strerror(errno));
	run(NULL, "unrestricted");
	run("0\n", "unrestricted");
	run("1\n", "restricted");
	run("2\n", "unrestricted");
	run("1\n", "sharing");
	return 0;
}
