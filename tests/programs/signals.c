// SPDX-License-Identifier: MIT
/*
 * The program's own SIGSEGV and SIGBUS handlers and ours live together: its faults come to its handler, faults of the
 * card on memory that is gone become error completions, whoever installed a handler first. Also a system call that a
 * signal interrupts in the middle of verbs, and threads that block all signals.
 */
#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

static sigjmp_buf back;
static volatile sig_atomic_t own_faults;

static void handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
	own_faults++;
	siglongjmp(back, 1);
}

static void install(void)
{
	struct sigaction act = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	check_eq(sigaction(SIGSEGV, &act, NULL), 0);
	check_eq(sigaction(SIGBUS, &act, NULL), 0);
}

static void *closed_page(void)
{
	void *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(p != MAP_FAILED, "mmap");
	return p;
}

/* The program's own bad access reaches the program's own handler. */
static void own_fault(void)
{
	volatile char *page = closed_page();
	int before = own_faults;

	if (sigsetjmp(back, 1) == 0) {
		*page = 1;
		check(false, "no fault");
	}
	check_eq(own_faults, before + 1);
	munmap((void *)page, 4096);
}

/* The card's bad access becomes an error completion, and the program's handler hears nothing of it. */
static void card_fault(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct node a, b;
	struct ibv_mr *mr;
	int before = own_faults;
	void *page;

	node_pair(&a, &b, &attr);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr = ibv_reg_mr(a.pd, page, 4096, ACCESS_ALL);
	check(mr, "%s", strerror(errno));
	check_eq(mprotect(page, 4096, PROT_NONE), 0);
	sge = (struct ibv_sge){ (uintptr_t)page, 64, mr->lkey };
	wr = (struct ibv_send_wr){
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND
	};
	check_eq(node_recv(&b, 2, 0, 64), 0);
	if (sigsetjmp(back, 1) == 0)
		check_eq(ibv_post_send(a.qp, &wr, &bad), 0);
	check_eq(own_faults, before);
	cq_expect(a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	check_eq(ibv_dereg_mr(mr), 0);
	munmap(page, 4096);
	node_close(&a);
	node_close(&b);
}

static atomic_int ticks;

static void tick(int sig)
{
	(void)sig;
	ticks++;
}

/* A timer that fires every 200 us while messages run. */
static void interrupted(void)
{
	struct itimerval timer = { { 0, 200 }, { 0, 200 } }, off = { 0 };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;

	signal(SIGALRM, tick);
	node_pair(&a, &b, &attr);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (uint64_t i = 0; i < 5000 || ticks < 20; i++) {
		uint32_t len = (uint32_t)(i * 131 % 60000);

		check_eq(node_recv(&b, i, 0, 65536), 0);
		check_eq(node_send(&a, i, 0, len, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b.recv_cq, i, IBV_WC_SUCCESS);
	}
	setitimer(ITIMER_REAL, &off, NULL);
	node_close(&a);
	node_close(&b);
}

/* The fault happens in a thread that blocks everything that can be blocked. */
static void *blocking_thread(void *arg)
{
	sigset_t all;

	(void)arg;
	sigfillset(&all);
	sigdelset(
		&all,
		SIGSEGV); /* a blocked synchronous fault ends any process: that is the kernel's rule */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	card_fault();
	return NULL;
}

int main(void)
{
	pthread_t thread;

	install(); /* before the library had any reason to install its own */
	own_fault();
	card_fault();
	own_fault();
	install(); /* and once more on top of the library's */
	own_fault();
	card_fault();
	check_eq(pthread_create(&thread, NULL, blocking_thread, NULL), 0);
	check_eq(pthread_join(thread, NULL), 0);
	interrupted();
	return 0;
}
