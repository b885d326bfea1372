// SPDX-License-Identifier: MIT
/*
 * The same adapter driven in two ways: by ibv_post_send() and ibv_poll_cq(), and by hand through mlx4 direct verbs, where
 * every doorbell is a store, which traps until it is patched. One thread plays both sides: RDMA writes of 8 bytes to itself.
 *
 * Beside it: what a trap costs at least, a SIGSEGV whose handler does nothing but step over the store.
 */
#include "bench.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "../../tests/mlx4/raw.h"

enum { STORE_LENGTH = 2, BURST = 16 };

static void step_over(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += STORE_LENGTH;
}

/* Before a device is open: the kernel's way to a handler and back, and nothing of ours. */
void bench_mlx4_limit(const struct bench *bench)
{
	struct sigaction act = { .sa_sigaction = step_over, .sa_flags = SA_SIGINFO | SA_NODEFER },
			 old;
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t count = bench->quick ? 100 : 20000;
	double samples[BENCH_REPEATS];

	check(page != MAP_FAILED);
	check_eq(sigaction(SIGSEGV, &act, &old), 0);
	for (int r = -1; r < bench->repeats; r++) {
		double start = bench_now();

		for (uint64_t i = 0; i < count; i++)
			__asm__ volatile("movl %%eax, (%%rcx)" ::"a"(0), "c"(page) : "memory");
		if (r >= 0)
			samples[r] = (bench_now() - start) / (double)count;
	}
	bench_print("SIGSEGV round trip", "limit", 4, "ns", samples, bench->repeats);
	sigaction(SIGSEGV, &old, NULL);
	munmap(page, 4096);
}

static double by_verbs(struct node *node, const struct address *self, uint64_t count)
{
	double start = bench_now();
	struct ibv_wc wc;

	for (uint64_t i = 0; i < count; i++) {
		check_eq(node_rdma(node, i, IBV_WR_RDMA_WRITE, 0, 8, self, 4096), 0);
		while (!ibv_poll_cq(node->send_cq, 1, &wc))
			;
	}
	return (bench_now() - start) / (double)count;
}

static void post_write(struct raw *raw, bool signalled)
{
	struct node *node = raw->node;
	struct raw_wqe wqe;

	raw_begin(&wqe, MLX4_OPCODE_RDMA_WRITE, signalled ? MLX4_WQE_CTRL_CQ_UPDATE : 0, 0);
	raw_put_raddr(&wqe, (uintptr_t)node->buf + 4096, node->mr->rkey);
	raw_put_data(&wqe, node->buf, 8, node->mr->lkey);
	check(raw_post(raw, &wqe));
}

/* burst WQEs per doorbell, the last with a completion. */
static double by_hand(struct raw *raw, uint64_t count, uint64_t burst)
{
	double start = bench_now();
	struct mlx4_cqe cqe;

	for (uint64_t i = 0; i < count; i += burst) {
		for (uint64_t k = 1; k <= burst; k++)
			post_write(raw, k == burst);
		raw_ring(raw);
		while (!raw_poll(&raw->send, &cqe))
			;
		raw_free(raw, &cqe);
	}
	return (bench_now() - start) / (double)count;
}

/* A bell that finds nothing posted: the trap and the look into the ring. */
static double bells(struct raw *raw, uint64_t count)
{
	double start = bench_now();

	for (uint64_t i = 0; i < count; i++)
		raw_ring(raw);
	return (bench_now() - start) / (double)count;
}

static void open_node(struct node *node, struct address *self)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.sig_all = true;
	node_open(node, &attr);
	node_address(node, self);
	node_connect(node, self);
}

/* In turns, so that all of them meet the same hours of a shared machine. */
void bench_mlx4(const struct bench *bench)
{
	enum { VERBS, RAW, RAW_BURST, BELL, ROWS };
	static const char *const names[ROWS] = { "mlx4 write, verbs", "mlx4 write, raw",
						 "mlx4 write, raw, 16 per bell", "mlx4 doorbell" };
	uint64_t count = bench->quick ? 160 : 32000;
	double samples[ROWS][BENCH_REPEATS];
	struct address self, raw_self;
	struct node node, raw_node;
	static struct raw raw;

	setenv("VERBATIM_TEST_DEVICE", "mlx4_0", 1);
	open_node(&node, &self);
	open_node(&raw_node, &raw_self); /* with rings that nobody has used */
	raw_open(&raw, &raw_node);
	for (int r = -1; r < bench->repeats; r++) {
		double ns[ROWS] = { [VERBS] = by_verbs(&node, &self, count),
				    [RAW] = by_hand(&raw, count, 1),
				    [RAW_BURST] = by_hand(&raw, count, BURST),
				    [BELL] = bells(&raw, count) };

		for (int what = 0; what < ROWS && r >= 0; what++)
			samples[what][r] = ns[what];
	}
	for (int what = 0; what < ROWS; what++)
		bench_print(names[what], "one", 8, "ns", samples[what], bench->repeats);
	node_close(&node);
	node_close(&raw_node);
	unsetenv("VERBATIM_TEST_DEVICE");
}
