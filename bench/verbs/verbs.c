// SPDX-License-Identifier: MIT
/*
 * The verbs measurements: latency, rate and bandwidth, between two processes and inside one, where a single thread plays both
 * sides; and what it costs to have a card. What is measured of kinds of memory is in memory.c.
 */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>

/* --- what is measured -------------------------------------------------------------------------- */

static const struct row latency_rows[] = {
	{ "send", IBV_WR_SEND, PING_PONG, POLLS_CQ },
	{ "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, PING_PONG, POLLS_CQ },
	{ "write, target polls CQ", IBV_WR_RDMA_WRITE, PING_PONG, POLLS_BOTH },
	{ "write, target polls memory", IBV_WR_RDMA_WRITE, PING_PONG, POLLS_MEMORY },
	{ "read", IBV_WR_RDMA_READ, ROUND_TRIP, POLLS_CQ },
	{ "read, passive target", IBV_WR_RDMA_READ, ROUND_TRIP, PASSIVE },
	{ "fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, ROUND_TRIP, POLLS_CQ },
	{ "cmp_swap", IBV_WR_ATOMIC_CMP_AND_SWP, ROUND_TRIP, POLLS_CQ },
	{ "fetch_add, passive target", IBV_WR_ATOMIC_FETCH_AND_ADD, ROUND_TRIP, PASSIVE },
};

static const struct row stream_rows[] = {
	{ "send_bw", IBV_WR_SEND, STREAM, POLLS_CQ },
	{ "write_bw", IBV_WR_RDMA_WRITE, STREAM, POLLS_CQ },
	{ "read_bw", IBV_WR_RDMA_READ, STREAM, POLLS_CQ },
	{ "write_bw, passive target", IBV_WR_RDMA_WRITE, STREAM, PASSIVE },
	{ "read_bw, passive target", IBV_WR_RDMA_READ, STREAM, PASSIVE },
};

static const uint32_t sizes[] = { 4096, 65536, 1 << 20, 16 << 20 };

static void between_two(const struct bench *bench)
{
	static const struct row rate = { "send_rate", IBV_WR_SEND, STREAM, POLLS_CQ };
	struct side side;
	pid_t pid;
	int fd;

	pid = pair_open(&side, MEMORY_NODE, &fd);
	for (size_t i = 0; i < sizeof(latency_rows) / sizeof(latency_rows[0]); i++)
		pair_measure(bench, &side, fd, &latency_rows[i], 8, "ns", latency_rows[i].name);
	pair_measure(bench, &side, fd, &rate, 8, "M/s", rate.name);
	for (size_t i = 0; i < sizeof(stream_rows) / sizeof(stream_rows[0]); i++) {
		for (int s = 0; s < 4; s++)
			pair_measure(bench, &side, fd, &stream_rows[i], sizes[s], "GB/s",
				     stream_rows[i].name);
	}
	pair_close(&side, pid, fd);
}

/* --- inside one process ------------------------------------------------------------------------ */

static void inside_one(const struct bench *bench)
{
	static const struct row rows[] = {
		{ "send", IBV_WR_SEND, ROUND_TRIP, POLLS_CQ },
		{ "write", IBV_WR_RDMA_WRITE, ROUND_TRIP, POLLS_CQ },
		{ "read", IBV_WR_RDMA_READ, ROUND_TRIP, POLLS_CQ },
		{ "fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, ROUND_TRIP, POLLS_CQ },
	};
	double samples[BENCH_REPEATS];
	struct side a, b;

	side_open(&a, MEMORY_NODE);
	side_open(&b, MEMORY_NODE);
	side_join(&a, &b);
	for (int i = 0; i < 4 + 3 * 4; i++) {
		const struct row *row = &rows[i < 4 ? i : (i - 4) / 4];
		uint32_t bytes = i < 4 ? 8 : sizes[(i - 4) % 4];
		struct order o = { row->opcode, row->pattern, row->manner, bytes, 0, false };
		char name[64];

		o.count = bench_iterations(bench, bytes) * (bytes <= 64 && !bench->quick ? 10 : 1);
		side_loop(&a, &b, &o);
		for (int r = 0; r < bench->repeats; r++) {
			double ns = side_loop(&a, &b, &o);

			samples[r] = bytes <= 64 ? ns : bytes / ns;
		}
		snprintf(name, sizeof(name), "%s%s", row->name, i < 4 ? "" : "_bw");
		bench_print(name, "one", bytes, i < 4 ? "ns" : "GB/s", samples, bench->repeats);
	}
	side_close(&a);
	side_close(&b);
}

/* --- what it costs to have a card -------------------------------------------------------------- */

static uint64_t resident(void)
{
	unsigned long long pages = 0, all;
	FILE *f = fopen("/proc/self/statm", "r");

	check(f && fscanf(f, "%llu %llu", &all, &pages) == 2, "/proc/self/statm");
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double cpu_ms(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1e3 +
	       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e3;
}

static void costs(const struct bench *bench)
{
	enum { QPS = 1000 };
	static struct ibv_qp *qps[QPS];
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node node;
	double sample;
	uint64_t before = resident();

	attr.cap.max_send_wr = attr.cap.max_recv_wr = 128;
	node_open(&node, &attr);
	sample = (double)(resident() - before) / (1 << 20);
	bench_print("resident after open", "one", 0, "MiB", &sample, 1);
	before = resident();
	for (int i = 0; i < QPS; i++) {
		struct node side = node;
		struct address self;

		qps[i] = side.qp = node_create_qp(&node);
		check(qps[i], "%s", strerror(errno));
		node_address(&side, &self);
		node_connect(&side, &self);
	}
	sample = (double)(resident() - before) / QPS / 1024;
	bench_print("resident per QP", "one", 0, "KiB", &sample, 1);
	sleep_ms(bench->quick ? 10 : 200);
	sample = cpu_ms();
	sleep_ms(bench->quick ? 10 : 1000);
	sample = cpu_ms() - sample;
	bench_print("idle CPU in a second", "one", 0, "ms", &sample, 1);
	for (int i = 0; i < QPS; i++)
		check_eq(ibv_destroy_qp(qps[i]), 0);
	node_close(&node);
}

/* A part of its own, or -1: all that one process can measure. */
static int run_part(const char *part, struct bench bench)
{
	if (!strcmp(part, "limits"))
		return bench_limits_child();
	if (!strcmp(part, "meetings"))
		return bench_memory_child();
	if (!strcmp(part, "memory")) {
		bench.repeats = 1;
		bench_pin(0);
		bench_limits(&bench);
		bench_memory(&bench);
		return 0;
	}
#if defined(__x86_64__)
	if (!strcmp(part, "mlx4")) {      /* in a process of its own, which is patched or not */
		bench_mlx4_limit(&bench); /* before a device is open: the handler is its own */
		bench_pin(0);
		bench_mlx4(&bench);
		bench_mlx5(&bench);
		return 0;
	}
#endif
	return pair_child(part);
}

int main(int argc, char **argv)
{
	struct bench bench = { false, BENCH_REPEATS };
	int ret;

	if (argc > 1 && !strcmp(argv[argc - 1], "--quick"))
		bench = (struct bench){ true, 1 };
	ret = argc > 1 ? run_part(argv[1], bench) : -1;
	if (ret >= 0)
		return ret;
	costs(&bench); /* before the process has grown */
	bench_pin(0);
	bench_limits(&bench);
	inside_one(&bench);
	between_two(&bench);
	return 0;
}
