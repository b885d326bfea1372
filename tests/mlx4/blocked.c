// SPDX-License-Identifier: MIT
/*
 * A doorbell rings whatever the program blocks, and however it says so: the old functions of BSD and System V, masks of
 * new threads, masks for the time of a wait. A child of vfork() that puts its signals back to the default, as programs do
 * before they execute another, takes nothing from its parent.
 */
#include "raw.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define BIT(sig) (1 << ((sig)-1)) /* of a BSD mask */

static struct node node;
static struct raw raw;
static sigset_t all;
static sigjmp_buf back;
static volatile int rung, faults;

static void ring(void)
{
	struct mlx4_cqe cqe;
	struct raw_wqe wqe;

	raw_begin(&wqe, MLX4_OPCODE_NOP, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	check(raw_post(&raw, &wqe));
	raw_ring(&raw);
	raw_expect(&raw.send, node.qp->qp_num, true, &cqe);
	raw_free(&raw, &cqe);
	rung++;
}

static bool is_blocked(int sig)
{
	sigset_t now;

	check_eq(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
	return sigismember(&now, sig) == 1;
}

static void unblock_all(void)
{
	sigset_t none;

	sigemptyset(&none);
	check_eq(pthread_sigmask(SIG_SETMASK, &none, NULL), 0);
}

static void jump_back(int sig)
{
	(void)sig;
	faults++;
	siglongjmp(back, 1);
}

/* A fault of the program's own, which its handler gets. */
static void own_fault(void)
{
	static volatile char *page;
	int before = faults;

	if (!page)
		page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!sigsetjmp(back, 1)) {
		*page = 1;
		check(false, "no fault");
	}
	check_eq(faults, before + 1);
}

/* --- the old functions ------------------------------------------------------------------------------- */

static void old_masks(void)
{
	check_eq(sigblock(0), 0);
	check_eq(sigblock(BIT(SIGSEGV) | BIT(SIGUSR1)), 0);
	check(is_blocked(SIGSEGV) && is_blocked(SIGUSR1) && !is_blocked(SIGUSR2));
	ring();
	check_eq(sigsetmask(~0), BIT(SIGSEGV) | BIT(SIGUSR1));
	check(is_blocked(SIGSEGV) && is_blocked(SIGUSR2));
	ring();
	sigsetmask(0);
	check(!is_blocked(SIGSEGV) && !is_blocked(SIGUSR2));
	check_eq(sighold(SIGSEGV), 0);
	check(is_blocked(SIGSEGV));
	ring();
	check_eq(sigrelse(SIGSEGV), 0);
	check(!is_blocked(SIGSEGV));
	check_eq(sighold(-1), -1);
	check_eq(errno, EINVAL);
}

static void old_handlers(void)
{
	check(signal(SIGSEGV, jump_back) != SIG_ERR);
	check(sigset(SIGSEGV, SIG_HOLD) == jump_back);
	check(is_blocked(SIGSEGV));
	ring();
	check(sigset(SIGSEGV, jump_back) == SIG_HOLD);
	check(!is_blocked(SIGSEGV));
	own_fault();
	ring();
	check_eq(sigignore(SIGSEGV), 0);
	ring();
	check(sigset(SIGSEGV, jump_back) == SIG_IGN);
	own_fault();
	check(sigset(-1, jump_back) == SIG_ERR);
}

/* --- threads ----------------------------------------------------------------------------------------- */

static void *ring_in_thread(void *arg)
{
	(void)arg;
	check(is_blocked(SIGUSR1));
	ring();
	return NULL;
}

static void masks_of_new_threads(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	check_eq(pthread_attr_init(&attr), 0);
	check_eq(pthread_attr_setsigmask_np(&attr, &all), 0);
	check_eq(pthread_create(&thread, &attr, ring_in_thread, NULL), 0);
	check_eq(pthread_join(thread, NULL), 0);
	check_eq(pthread_attr_setsigmask_np(&attr, NULL), 0);
	check_eq(pthread_attr_destroy(&attr), 0);
}

/* --- waits with a mask of their own -------------------------------------------------------------------- */

static int epoll_fd;

static int wait_sigsuspend(const sigset_t *mask)
{
	return sigsuspend(mask);
}

static int wait_ppoll(const sigset_t *mask)
{
	return ppoll(NULL, 0, NULL, mask);
}

static int wait_pselect(const sigset_t *mask)
{
	return pselect(0, NULL, NULL, NULL, NULL, mask);
}

static int wait_epoll(const sigset_t *mask)
{
	struct epoll_event event;

	return epoll_pwait(epoll_fd, &event, 1, -1, mask);
}

static void on_alarm(int sig)
{
	(void)sig;
	ring();
}

/* A handler that runs while a wait blocks all but its signal. */
static void waits(void)
{
	static int (*const functions[])(const sigset_t *mask) = { wait_sigsuspend, wait_ppoll,
								  wait_pselect, wait_epoll };
	struct itimerval soon = { .it_value = { 0, 1000 } };
	sigset_t but_alarm = all;

	sigdelset(&but_alarm, SIGALRM);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	check(signal(SIGALRM, on_alarm) != SIG_ERR);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		int before = rung;

		check_eq(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
		check_eq(setitimer(ITIMER_REAL, &soon, NULL), 0);
		check_eq(functions[i](&but_alarm), -1);
		check_eq(errno, EINTR);
		check_eq(rung, before + 1);
		check(is_blocked(SIGSEGV) && is_blocked(SIGALRM));
		unblock_all();
	}
	/* Without a mask, and with nothing to wait for. */
	check_eq(ppoll(NULL, 0, &(struct timespec){ 0, 1 }, NULL), 0);
	check_eq(pselect(0, NULL, NULL, NULL, &(struct timespec){ 0, 1 }, NULL), 0);
	close(epoll_fd);
}

static void count(int sig)
{
	(void)sig;
	faults++;
}

/* One that was sent while it was held off ends the wait that lets it in. */
static void held_off_until_a_wait(void)
{
	int before = faults;
	sigset_t none;

	sigemptyset(&none);
	check(signal(SIGSEGV, count) != SIG_ERR);
	check_eq(sighold(SIGSEGV), 0);
	raise(SIGSEGV);
	check_eq(faults, before);
	check_eq(sigsuspend(&none), -1);
	check_eq(errno, EINTR);
	check_eq(faults, before + 1);
	check(is_blocked(SIGSEGV));
	unblock_all();
	check_eq(faults, before + 1);
}

/* --- vfork ------------------------------------------------------------------------------------------- */

static void child_of_vfork(void)
{
	struct sigaction act = { .sa_handler = on_alarm }, now;
	int status;
	pid_t pid;

	check(signal(SIGSEGV, jump_back) != SIG_ERR);
	act.sa_mask = all;
	check_eq(sigaction(SIGALRM, &act, NULL), 0);
	check_eq(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
	pid = vfork();
	if (!pid) {
		for (int sig = 1; sig < 32; sig++)
			signal(sig, SIG_DFL);
		unblock_all();
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	check_eq(waitpid(pid, &status, 0), pid);
	check_eq(status, 0);
	check(is_blocked(SIGSEGV));
	check_eq(sigaction(SIGALRM, NULL, &now), 0);
	check_eq(sigismember(&now.sa_mask, SIGSEGV), 1);
	ring();
	unblock_all();
	own_fault();
	ring();
}

/* A child of fork() goes on as its parent was, and what it changes is its own. */
static void child_of_fork(void)
{
	int status;
	pid_t pid;

	check(signal(SIGSEGV, jump_back) != SIG_ERR);
	pid = fork();
	if (!pid) {
		check(!is_blocked(SIGSEGV));
		own_fault();
		check(signal(SIGSEGV, SIG_IGN) == jump_back);
		check(signal(SIGSEGV, SIG_DFL) == SIG_IGN);
		_exit(0);
	}
	check_eq(waitpid(pid, &status, 0), pid);
	check_eq(status, 0);
	own_fault();
	ring();
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;

	sigfillset(&all);
	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	raw_open(&raw, &node);
	old_masks();
	old_handlers();
	masks_of_new_threads();
	waits();
	held_off_until_a_wait();
	child_of_vfork();
	child_of_fork();
	node_close(&node);
	return 0;
}
