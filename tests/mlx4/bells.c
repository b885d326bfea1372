// SPDX-License-Identifier: MIT
/*
 * Doorbells by plain stores are never lost: several threads, each with two queue pairs of one context, ring them in a row
 * to one and the same address; every WQE executes exactly once. With all signals blocked in every second thread, and
 * with a SIGSEGV handler of the program's own, installed before or after the card was opened, which hears of nothing but
 * its own faults. Idle queues cost no CPU.
 */
#include "raw.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { THREADS = 4, BURST = 16 };

static sigjmp_buf back;
static volatile sig_atomic_t own_faults;

static void on_segv(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
	own_faults++;
	siglongjmp(back, 1);
}

static void install(void)
{
	struct sigaction act = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO }, now;

	sigfillset(&act.sa_mask);
	check_eq(sigaction(SIGSEGV, &act, NULL), 0);
	/* The program sees what it asked for. */
	check_eq(sigaction(SIGSEGV, NULL, &now), 0);
	check(now.sa_sigaction == on_segv && (now.sa_flags & SA_SIGINFO));
	check_eq(sigismember(&now.sa_mask, SIGSEGV), 1);
	check_eq(sigismember(&now.sa_mask, SIGUSR1), 1);
}

static void own_fault(void)
{
	volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int before = own_faults;

	if (!sigsetjmp(back, 1)) {
		*page = 1;
		check(false, "no fault");
	}
	check_eq(own_faults, before + 1);
	munmap((void *)page, 4096);
}

/* --- the million ------------------------------------------------------------------------------------- */

/* A QP that sends to itself: its partner is its own receive queue of the same node. */
struct lane {
	struct node node;
	struct raw raw;
	uint64_t done;
};

struct worker {
	pthread_t thread;
	struct lane lane[2];
	uint64_t rings, per_lane;
	bool blocked;
};

static struct ibv_context *shared;

/* A queue pair of the shared context, connected to itself; RDMA writes of a counter, so that nothing waits. */
static void lane_open(struct lane *lane)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;

	memset(lane, 0, sizeof(*lane));
	lane->node.attr = attr;
	lane->node.ctx = shared;
	check_eq(ibv_query_gid(shared, 1, TEST_GID_INDEX, &lane->node.gid), 0);
	lane->node.mtu = IBV_MTU_1024;
	lane->node.pd = ibv_alloc_pd(shared);
	lane->node.send_cq = ibv_create_cq(shared, 256, NULL, NULL, 0);
	lane->node.recv_cq = ibv_create_cq(shared, 256, NULL, NULL, 0);
	lane->node.buf =
		mmap(NULL, attr.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	lane->node.mr = ibv_reg_mr(lane->node.pd, lane->node.buf, attr.size, attr.access);
	check(lane->node.pd && lane->node.send_cq && lane->node.recv_cq && lane->node.mr, "%s",
	      strerror(errno));
	lane->node.qp = node_create_qp(&lane->node);
	check(lane->node.qp, "%s", strerror(errno));
	node_address(&lane->node, &self);
	node_connect(&lane->node, &self);
	raw_open(&lane->raw, &lane->node);
}

static void lane_close(struct lane *lane)
{
	check_eq(ibv_destroy_qp(lane->node.qp), 0);
	check_eq(ibv_dereg_mr(lane->node.mr), 0);
	check_eq(ibv_destroy_cq(lane->node.send_cq), 0);
	check_eq(ibv_destroy_cq(lane->node.recv_cq), 0);
	check_eq(ibv_dealloc_pd(lane->node.pd), 0);
	munmap(lane->node.buf, lane->node.attr.size);
}

/* FETCH_ADD of 1 on a word of the lane's memory: what executes twice or never shows in the sum. */
static void lane_post(struct lane *lane)
{
	struct node *node = &lane->node;
	struct raw_wqe wqe;

	raw_begin(&wqe, MLX4_OPCODE_ATOMIC_FA, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(&wqe, (uintptr_t)node->buf, node->mr->rkey);
	raw_put_atomic(&wqe, 1, 0);
	raw_put_data(&wqe, node->buf + 64, 8, node->mr->lkey);
	check(raw_post(&lane->raw, &wqe));
}

static void lane_drain(struct lane *lane)
{
	struct mlx4_cqe cqe;

	while (raw_poll(&lane->raw.send, &cqe)) {
		check_eq(mlx4dv_get_cqe_opcode(&cqe), MLX4_OPCODE_ATOMIC_FA);
		check_eq(be16toh(cqe.wqe_index), lane->done & 0xffff);
		raw_free(&lane->raw, &cqe);
		lane->done++;
	}
}

static void *ring_many(void *arg)
{
	struct worker *w = arg;
	sigset_t all, now;

	if (w->blocked) {
		sigfillset(&all);
		check_eq(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
		check_eq(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
		check_eq(sigismember(&now, SIGSEGV), 1);
	}
	for (uint64_t i = 0; i < w->per_lane; i++) {
		lane_post(&w->lane[0]);
		lane_post(&w->lane[1]);
		/* In a row, to one address: two bells. */
		raw_ring(&w->lane[0].raw);
		raw_ring(&w->lane[1].raw);
		lane_drain(&w->lane[0]);
		lane_drain(&w->lane[1]);
		/* Rung means executed: nothing is left to a thread in the background. */
		check_eq(w->lane[0].done, i + 1);
		check_eq(w->lane[1].done, i + 1);
	}
	return NULL;
}

static void many_bells(uint64_t total)
{
	static struct worker workers[THREADS];
	uint64_t word;

	for (int i = 0; i < THREADS; i++) {
		lane_open(&workers[i].lane[0]);
		lane_open(&workers[i].lane[1]);
		workers[i].per_lane = total / THREADS / 2;
		workers[i].blocked = i & 1;
		check_eq(pthread_create(&workers[i].thread, NULL, ring_many, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		check_eq(pthread_join(workers[i].thread, NULL), 0);
		for (int k = 0; k < 2; k++) {
			memcpy(&word, workers[i].lane[k].node.buf, 8);
			check_eq(word, workers[i].per_lane);
			lane_close(&workers[i].lane[k]);
		}
	}
}

/* --- bells of one queue from many threads -------------------------------------------------------------- */

static struct lane common_lane;
static pthread_mutex_t common_lock = PTHREAD_MUTEX_INITIALIZER;

/* Posts under a lock, rings without: bells cross, and each finds what is there, or nothing. */
static void *ring_common(void *arg)
{
	uint64_t count = *(uint64_t *)arg;

	for (uint64_t i = 0; i < count; i++) {
		pthread_mutex_lock(&common_lock);
		lane_drain(&common_lane);
		while (common_lane.raw.sq_head - common_lane.raw.sq_tail > 32)
			lane_drain(&common_lane);
		lane_post(&common_lane);
		pthread_mutex_unlock(&common_lock);
		raw_ring(&common_lane.raw);
	}
	return NULL;
}

static void common_queue(uint64_t total)
{
	uint64_t each = total / THREADS, word;
	pthread_t threads[THREADS];

	lane_open(&common_lane);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_create(&threads[i], NULL, ring_common, &each), 0);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_join(threads[i], NULL), 0);
	lane_drain(&common_lane);
	check_eq(common_lane.done, each * THREADS);
	memcpy(&word, common_lane.node.buf, 8);
	check_eq(word, each * THREADS);
	lane_close(&common_lane);
}

/* --- bells from a handler of an asynchronous signal ------------------------------------------------------ */

static struct lane alarm_lane;
static atomic_uint alarms;

static void on_alarm(int sig)
{
	(void)sig;
	if (alarm_lane.raw.sq_head - alarm_lane.raw.sq_tail > 40)
		return;
	lane_post(&alarm_lane);
	raw_ring(&alarm_lane.raw);
	atomic_fetch_add(&alarms, 1);
}

/* It may come while this thread is inside of the card: the bell is then executed a moment later. */
static void from_a_handler(unsigned int wanted)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval every = { .it_interval = { 0, 50 }, .it_value = { 0, 50 } }, off = { 0 };
	uint64_t end = now_us() + PATIENCE_MS * 1000ull, word;
	struct node a, b;
	struct node_attr attr = node_attr(IBV_QPT_RC);
	sigset_t alarm;

	lane_open(&alarm_lane);
	node_pair(&a, &b, &attr);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigfillset(&act.sa_mask); /* SIGSEGV too: it must not matter */
	check_eq(sigaction(SIGALRM, &act, NULL), 0);
	check_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
	for (uint64_t i = 0; atomic_load(&alarms) < wanted; i++) {
		check(now_us() < end, "%u alarms", atomic_load(&alarms));
		check_eq(node_recv(&b, i, 0, 64), 0);
		check_eq(node_send(&a, i, 0, 64, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b.recv_cq, i, IBV_WC_SUCCESS);
		sigprocmask(SIG_BLOCK, &alarm, NULL);
		lane_drain(&alarm_lane);
		sigprocmask(SIG_UNBLOCK, &alarm, NULL);
	}
	setitimer(ITIMER_REAL, &off, NULL);
	while (alarm_lane.done < atomic_load(&alarms)) {
		check(now_us() < end, "%llu of %u done", (unsigned long long)alarm_lane.done,
		      atomic_load(&alarms));
		lane_drain(&alarm_lane);
	}
	memcpy(&word, alarm_lane.node.buf, 8);
	check_eq(word, atomic_load(&alarms));
	node_close(&a);
	node_close(&b);
	lane_close(&alarm_lane);
}

/* --- idle ------------------------------------------------------------------------------------------------ */

static uint64_t cpu_us(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
}

static void idle(void)
{
	static struct lane lanes[8];
	uint64_t used;

	for (int i = 0; i < 8; i++) {
		lane_open(&lanes[i]);
		lane_post(&lanes[i]);
		raw_ring(&lanes[i].raw);
		raw_arm(&lanes[i].raw.recv, false);
		lane_drain(&lanes[i]);
	}
	sleep_ms(200); /* a thread that was busy may look around once more before it sleeps */
	used = cpu_us();
	sleep_ms(1000);
	used = cpu_us() - used;
	printf("idle: %llu us of CPU time in a second\n", (unsigned long long)used);
	check(used < 5000, "%llu us", (unsigned long long)used);
	for (int i = 0; i < 8; i++)
		lane_close(&lanes[i]);
}

int main(void)
{
	install();
	shared = device_open();
	own_fault();
	common_queue((uint64_t)campaign(40000, 1000000));
	install(); /* once more, after the card was opened */
	many_bells((uint64_t)campaign(1000000, 10000000));
	own_fault();
	from_a_handler((unsigned int)campaign(500, 20000));
	own_fault();
	idle();
	check_eq(own_faults, 3);
	check_eq(ibv_close_device(shared), 0);
	return 0;
}
