// SPDX-License-Identifier: MIT
/*
 * Signals as the program sees them, while SIGSEGV and SIGBUS are the card's and never really blocked: queries tell what
 * the program asked for, its handlers run for its own faults with their flags, masks and stacks, and a doorbell works
 * from everywhere: from handlers, from threads that block everything.
 */
#include "raw.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct node node;
static struct raw raw;
static sigjmp_buf back;
static volatile int seen;      /* signals that reached a handler of ours */
static volatile bool on_stack; /* the last one ran on the alternate stack */
static volatile bool usr1_held;
static stack_t alternate;

/* An own bell, end to end. */
static void ring(void)
{
	struct mlx4_cqe cqe;
	struct raw_wqe wqe;

	raw_begin(&wqe, MLX4_OPCODE_NOP, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	check(raw_post(&raw, &wqe));
	raw_ring(&raw);
	raw_expect(&raw.send, node.qp->qp_num, true, &cqe);
	raw_free(&raw, &cqe);
}

static void note(void)
{
	char here;
	sigset_t now;

	seen++;
	on_stack = &here >= (char *)alternate.ss_sp &&
		   &here < (char *)alternate.ss_sp + alternate.ss_size;
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	usr1_held = sigismember(&now, SIGUSR1) == 1;
	ring(); /* from the handler itself */
}

static void jump_back(int sig)
{
	(void)sig;
	note();
	siglongjmp(back, 1);
}

static void go_on(int sig)
{
	(void)sig;
	note();
}

static void other(int sig)
{
	(void)sig;
}

/* A store of the program's own that is wrong. */
static void fault(void)
{
	static volatile char *page;
	int before = seen;

	if (!page)
		page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!sigsetjmp(back, 1)) {
		*page = 1;
		check(false, "no fault");
	}
	check_eq(seen, before + 1);
}

static void set(int sig, sighandler_t handler, int flags, int masked)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags }, now;

	sigemptyset(&act.sa_mask);
	if (masked)
		sigaddset(&act.sa_mask, masked);
	check_eq(sigaction(sig, &act, NULL), 0);
	check_eq(sigaction(sig, NULL, &now), 0);
	check(now.sa_handler == handler);
	check_eq((unsigned int)now.sa_flags & (SA_ONSTACK | SA_RESETHAND | SA_NODEFER | SA_RESTART),
		 (unsigned int)flags);
	for (int s = 1; s < 32; s++)
		check_eq(sigismember(&now.sa_mask, s), s == masked);
}

static sighandler_t current(int sig)
{
	struct sigaction now;

	check_eq(sigaction(sig, NULL, &now), 0);
	return now.sa_handler;
}

static void flags_count(void)
{
	set(SIGSEGV, jump_back, 0, 0);
	fault();
	check(!on_stack && !usr1_held);
	set(SIGSEGV, jump_back, SA_ONSTACK, SIGUSR1);
	fault();
	check(on_stack && usr1_held);
	/* What siglongjmp() restores is what was before the fault. */
	fault();
	set(SIGSEGV, jump_back, SA_RESETHAND | SA_ONSTACK, 0);
	fault();
	check(current(SIGSEGV) == SIG_DFL);
	ring();
}

static void signal_and_its_relatives(void)
{
	sighandler_t before;

	check(signal(SIGSEGV, jump_back) == SIG_DFL);
	fault();
	check(signal(SIGSEGV, other) == jump_back);
	check(current(SIGSEGV) == other);
	check(sysv_signal(SIGSEGV, jump_back) == other);
	fault();
	check(current(SIGSEGV) == SIG_DFL);
	before = signal(SIGBUS, jump_back); /* the default, or a sanitizer's */
	check(signal(SIGBUS, before) == jump_back);
	check(current(SIGBUS) == before);
	check(signal(-1, other) == SIG_ERR);
	ring();
}

/* Sent by somebody, not made by an access. */
static void sent_signals(void)
{
	int before = seen;
	sigset_t segv, old;

	set(SIGSEGV, SIG_IGN, 0, 0);
	raise(SIGSEGV);
	set(SIGSEGV, go_on, 0, 0);
	raise(SIGSEGV);
	check_eq(seen, before + 1);
	/* Held off, it comes when it is let in. */
	sigemptyset(&segv);
	sigaddset(&segv, SIGSEGV);
	check_eq(sigprocmask(SIG_BLOCK, &segv, &old), 0);
	check_eq(sigismember(&old, SIGSEGV), 0);
	raise(SIGSEGV);
	check_eq(seen, before + 1);
	ring();
	check_eq(sigprocmask(SIG_UNBLOCK, &segv, &old), 0);
	check_eq(sigismember(&old, SIGSEGV), 1);
	check_eq(seen, before + 2);
	check_eq(sigprocmask(99, &segv, NULL), -1);
	set(SIGSEGV, jump_back, 0, 0);
}

static void *in_thread(void *arg)
{
	(void)arg;
	ring();
	return NULL;
}

static void masks(void)
{
	sigset_t all, now, old;
	pthread_t thread;

	sigfillset(&all);
	check_eq(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
	check_eq(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
	for (int s = 1; s < 32; s++)
		check_eq(sigismember(&now, s), s != SIGKILL && s != SIGSTOP);
	ring();
	check_eq(pthread_create(&thread, NULL, in_thread, NULL), 0);
	check_eq(pthread_join(thread, NULL), 0);
	check_eq(pthread_sigmask(SIG_SETMASK, &old, &now), 0);
	check_eq(sigismember(&now, SIGBUS), 1);
	check_eq(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
	check_eq(sigismember(&now, SIGSEGV), 0);
}

/* A handler of another signal that blocks everything may ring. */
static void other_signals(void)
{
	struct sigaction act = { .sa_handler = go_on }, now;
	int before = seen;

	sigfillset(&act.sa_mask);
	check_eq(sigaction(SIGUSR2, &act, NULL), 0);
	check_eq(sigaction(SIGUSR2, NULL, &now), 0);
	check_eq(sigismember(&now.sa_mask, SIGSEGV), 1);
	raise(SIGUSR2);
	check_eq(seen, before + 1);
	check(usr1_held);
}

/* --- what ends a process ----------------------------------------------------------------------------- */

static void fault_while_blocked(void)
{
	volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	set(SIGSEGV, other, 0, 0);
	*page = 1;
}

static void fault_ignored(void)
{
	volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	signal(SIGSEGV, SIG_IGN);
	*page = 1;
}

static void fault_by_default(void)
{
	volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*page = 1;
}

static const struct {
	const char *role;
	void (*act)(void);
} ends[] = {
	{ "blocked", fault_while_blocked },
	{ "ignored", fault_ignored },
	{ "default", fault_by_default },
};

static void open_node(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;

	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	raw_open(&raw, &node);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(ends) / sizeof(ends[0]); i++) {
		if (strcmp(argv[1], ends[i].role))
			continue;
		open_node();
		ends[i].act();
		return 0;
	}
	alternate.ss_size = 65536;
	alternate.ss_sp = malloc(alternate.ss_size);
	check_eq(sigaltstack(&alternate, NULL), 0);
	set(SIGSEGV, other, SA_RESTART, SIGUSR1); /* before the card is opened */
	open_node();
	check(current(SIGSEGV) == other);
	flags_count();
	signal_and_its_relatives();
	sent_signals();
	masks();
	other_signals();
	fault();
	node_close(&node);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		int fd, status;
		pid_t pid = spawn_self(ends[i].role, &fd);

		check_eq(waitpid(pid, &status, 0), pid);
		/* The default of a sanitizer is its own report. */
		check((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
			      (ends[i].act == fault_by_default && WIFEXITED(status) &&
			       WEXITSTATUS(status)),
		      "%s: status %#x", ends[i].role, status);
		close(fd);
	}
	return 0;
}
