// SPDX-License-Identifier: MIT
/*
 * The verbs measurements: latency, rate and bandwidth, between two processes and inside one.
 *
 * Between two processes the child does what the parent's order says until the measurement is over:
 *
 *	parent, core 0                 child, core 1
 *	order ---------- socket -----> order
 *	lead()  <====== verbs ======>  follow()     time is taken in the parent
 *
 * Inside one process a single thread plays both sides.
 */
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>

#include "../../tests/programs/common.h"

enum { DEPTH = 128, AREA = 2 * BENCH_MAX_BYTES + 65536 };

/* How the other side spends its time. */
enum manner { POLLS_CQ, POLLS_MEMORY, POLLS_BOTH, PASSIVE };
/* What is measured: a message to and fro, one after the other, or many at once. */
enum pattern { PING_PONG, ROUND_TRIP, STREAM };

struct order {
	enum ibv_wr_opcode opcode;
	enum pattern pattern;
	enum manner manner;
	uint32_t bytes;
	uint64_t count;
	bool end; /* no more orders */
};

static struct address peer;
static uint64_t unsignalled;
static bool owed; /* a receive was used and not yet posted again */

/* --- one request ------------------------------------------------------------------------------- */

/* The flag that a memory-polling side waits for is the last byte of the message. */
static void post(struct node *node, const struct order *o, bool signalled, uint8_t mark)
{
	bool inline_ok = o->bytes <= 64 && o->opcode != IBV_WR_RDMA_READ &&
			 o->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD &&
			 o->opcode != IBV_WR_ATOMIC_CMP_AND_SWP;
	struct ibv_sge sge = { (uintptr_t)node->buf, o->bytes, node->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = o->opcode,
				  .send_flags = (signalled ? IBV_SEND_SIGNALED : 0) |
						(inline_ok ? IBV_SEND_INLINE : 0) };
	struct ibv_send_wr *bad;

	if (o->bytes)
		node->buf[o->bytes - 1] = mark;
	if (o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = peer.addr + BENCH_MAX_BYTES;
		wr.wr.atomic.rkey = peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = peer.addr + BENCH_MAX_BYTES;
		wr.wr.rdma.rkey = peer.rkey;
	}
	check_eq(ibv_post_send(node->qp, &wr, &bad), 0);
}

static void post_receive(struct node *node)
{
	check_eq(node_recv(node, 1, BENCH_MAX_BYTES, BENCH_MAX_BYTES), 0);
}

static void await(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	check_status(&wc, IBV_WC_SUCCESS);
}

static bool takes_receive(const struct order *o)
{
	return o->opcode == IBV_WR_SEND || o->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* --- to and fro -------------------------------------------------------------------------------- */

/* Send without asking for a completion most of the time, as latency-minded programs do. */
static void throw(struct node * node, const struct order *o, uint8_t mark)
{
	bool signalled = ++unsignalled % 32 == 0;

	post(node, o, signalled, mark);
	/* What is due is done while the message is on its way, not before. */
	if (owed)
		post_receive(node);
	owed = false;
	if (signalled)
		await(node->send_cq);
}

static void catch (struct node *node, const struct order *o, uint8_t mark)
{
	volatile uint8_t *flag = node->buf + BENCH_MAX_BYTES + o->bytes - 1;
	struct ibv_wc wc;

	if (takes_receive(o)) {
		await(node->recv_cq);
		owed = true;
		return;
	}
	while (*flag != mark) {
		if (o->manner == POLLS_BOTH)
			ibv_poll_cq(node->recv_cq, 1, &wc);
	}
}

static void ping_pong(struct node *node, const struct order *o, bool first)
{
	for (uint64_t i = 0; i < o->count; i++) {
		uint8_t mark = (uint8_t)(i % 250 + 1);

		if (first)
			throw(node, o, mark);
		catch (node, o, mark);
		if (!first)
			throw(node, o, mark);
	}
	if (owed)
		post_receive(node);
	owed = false;
}

/* --- many at once ------------------------------------------------------------------------------ */

static void stream(struct node *node, const struct order *o)
{
	uint64_t window = o->bytes <= 65536 ? 64 : o->bytes <= 1 << 20 ? 16 : 4;
	uint64_t posted = 0, done = 0, step = o->bytes <= 64 ? 16 : 1;
	struct ibv_wc wc[16];

	while (done < o->count) {
		int n;

		while (posted < o->count && posted - done < window) {
			posted++;
			post(node, o, posted % step == 0 || posted == o->count, 1);
		}
		n = ibv_poll_cq(node->send_cq, 16, wc);
		for (int i = 0; i < n; i++) {
			check_status(&wc[i], IBV_WC_SUCCESS);
			done = done + step > o->count ? o->count : done + step;
		}
	}
}

/* Take the messages of a stream, or wait for its end in the way that was ordered. */
static void absorb(struct node *node, const struct order *o, int fd)
{
	struct ibv_wc wc[16];
	char end;

	if (takes_receive(o) && o->pattern == STREAM) {
		for (uint64_t got = 0; got < o->count;) {
			int n = ibv_poll_cq(node->recv_cq, 16, wc);

			for (int i = 0; i < n; i++) {
				check_status(&wc[i], IBV_WC_SUCCESS);
				post_receive(node);
			}
			got += (uint64_t)n;
		}
		return;
	}
	if (o->manner == PASSIVE) {
		msg_recv(fd, &end, 1);
		return;
	}
	/* The leader sends one message when it is through. */
	await(node->recv_cq);
	post_receive(node);
}

static void round_trips(struct node *node, const struct order *o)
{
	for (uint64_t i = 0; i < o->count; i++) {
		post(node, o, true, 1);
		await(node->send_cq);
	}
}

/* --- the two sides ----------------------------------------------------------------------------- */

static void lead(struct node *node, const struct order *o, int fd)
{
	struct order end = { .opcode = IBV_WR_SEND };

	if (o->pattern == PING_PONG)
		ping_pong(node, o, true);
	else if (o->pattern == STREAM)
		stream(node, o);
	else
		round_trips(node, o);
	if (o->pattern == PING_PONG || (takes_receive(o) && o->pattern == STREAM))
		return;
	if (o->manner == PASSIVE) {
		msg_send(fd, "", 1);
	} else {
		post(node, &end, true, 0);
		await(node->send_cq);
	}
}

static int follow_orders(struct node *node)
{
	struct order o;

	for (;;) {
		msg_recv(ROLE_FD, &o, sizeof(o));
		if (o.end)
			return 0;
		memset(node->buf + BENCH_MAX_BYTES, 0, 64);
		msg_send(ROLE_FD, "", 1);
		if (o.pattern == PING_PONG)
			ping_pong(node, &o, false);
		else
			absorb(node, &o, ROLE_FD);
	}
}

/* One repetition; ns per message. */
static double run_order(struct node *node, const struct order *o, int fd)
{
	char ready;
	double start, taken;

	msg_send(fd, o, sizeof(*o));
	memset(node->buf + BENCH_MAX_BYTES, 0, 64);
	msg_recv(fd, &ready, 1);
	start = bench_now();
	lead(node, o, fd);
	taken = (bench_now() - start) / (double)o->count;
	return o->pattern == PING_PONG ? taken / 2 : taken;
}

/* --- what is measured -------------------------------------------------------------------------- */

struct row {
	const char *name;
	enum ibv_wr_opcode opcode;
	enum pattern pattern;
	enum manner manner;
};

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

static void measure(const struct bench *bench, struct node *node, int fd, const struct row *row,
		    uint32_t bytes, const char *unit)
{
	struct order o = { row->opcode, row->pattern, row->manner, bytes, 0, false };
	double samples[BENCH_REPEATS];

	o.count = bench_iterations(bench, bytes);
	/* Atomics of a passive target wake a thread each: fewer tell as much. */
	if (row->manner == PASSIVE && bytes <= 64 && o.count > 5000)
		o.count = 5000;
	run_order(node, &o, fd); /* warm */
	for (int r = 0; r < bench->repeats; r++) {
		double ns = run_order(node, &o, fd);

		samples[r] = !strcmp(unit, "ns")    ? ns
			     : !strcmp(unit, "M/s") ? 1e3 / ns
						    : bytes / ns;
	}
	bench_print(row->name, "two", bytes, unit, samples, bench->repeats);
}

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_send_wr = attr.cap.max_recv_wr = DEPTH;
	attr.cap.max_inline_data = 64;
	attr.size = AREA;
	attr.rd_atomic = attr.dest_rd_atomic = 16;
	node_open(node, &attr);
	memset(node->buf, 1, AREA);
}

static void fill_receives(struct node *node)
{
	for (int i = 0; i < DEPTH; i++)
		post_receive(node);
}

static int child(void)
{
	struct node node;
	int ret;

	bench_pin(1);
	open_node(&node);
	node_meet(&node, ROLE_FD, &peer);
	fill_receives(&node);
	msg_send(ROLE_FD, "", 1);
	ret = follow_orders(&node);
	node_close(&node);
	return ret;
}

static void between_two(const struct bench *bench)
{
	static const struct row rate = { "send_rate", IBV_WR_SEND, STREAM, POLLS_CQ };
	struct order end = { .end = true };
	struct node node;
	char ready;
	pid_t pid;
	int fd;

	pid = spawn_self("child", &fd);
	open_node(&node);
	node_meet(&node, fd, &peer);
	fill_receives(&node);
	msg_recv(fd, &ready, 1);
	for (size_t i = 0; i < sizeof(latency_rows) / sizeof(latency_rows[0]); i++)
		measure(bench, &node, fd, &latency_rows[i], 8, "ns");
	measure(bench, &node, fd, &rate, 8, "M/s");
	for (size_t i = 0; i < sizeof(stream_rows) / sizeof(stream_rows[0]); i++) {
		for (int s = 0; s < 4; s++)
			measure(bench, &node, fd, &stream_rows[i], sizes[s], "GB/s");
	}
	msg_send(fd, &end, sizeof(end));
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

/* --- inside one process ------------------------------------------------------------------------ */

/* The whole way of a message through one thread: post, and both completions where there are two. */
static double loop_once(struct node *a, struct node *b, const struct order *o)
{
	double start = bench_now();

	for (uint64_t i = 0; i < o->count; i++) {
		bool signalled = !takes_receive(o) || i % 32 == 31;

		post(a, o, signalled, 1);
		if (takes_receive(o)) {
			await(b->recv_cq);
			post_receive(b);
		}
		if (signalled)
			await(a->send_cq);
	}
	return (bench_now() - start) / (double)o->count;
}

static void inside_one(const struct bench *bench)
{
	static const struct row rows[] = {
		{ "send", IBV_WR_SEND, ROUND_TRIP, POLLS_CQ },
		{ "write", IBV_WR_RDMA_WRITE, ROUND_TRIP, POLLS_CQ },
		{ "read", IBV_WR_RDMA_READ, ROUND_TRIP, POLLS_CQ },
		{ "fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, ROUND_TRIP, POLLS_CQ },
	};
	double samples[BENCH_REPEATS];
	struct address self;
	struct node a, b;

	open_node(&a);
	open_node(&b);
	node_address(&b, &peer);
	node_address(&a, &self);
	node_connect(&a, &peer);
	node_connect(&b, &self);
	fill_receives(&b);
	for (int i = 0; i < 4 + 3 * 4; i++) {
		const struct row *row = &rows[i < 4 ? i : (i - 4) / 4];
		uint32_t bytes = i < 4 ? 8 : sizes[(i - 4) % 4];
		struct order o = { row->opcode, row->pattern, row->manner, bytes, 0, false };
		char name[64];

		o.count = bench_iterations(bench, bytes) * (bytes <= 64 && !bench->quick ? 10 : 1);
		loop_once(&a, &b, &o);
		for (int r = 0; r < bench->repeats; r++) {
			double ns = loop_once(&a, &b, &o);

			samples[r] = bytes <= 64 ? ns : bytes / ns;
		}
		snprintf(name, sizeof(name), "%s%s", row->name, i < 4 ? "" : "_bw");
		bench_print(name, "one", bytes, i < 4 ? "ns" : "GB/s", samples, bench->repeats);
	}
	node_close(&a);
	node_close(&b);
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

int main(int argc, char **argv)
{
	struct bench bench = { false, BENCH_REPEATS };

	if (argc > 1 && !strcmp(argv[1], "child"))
		return child();
	if (argc > 1 && !strcmp(argv[1], "limits"))
		return bench_limits_child();
	if (argc > 1 && !strcmp(argv[1], "--quick"))
		bench = (struct bench){ true, 1 };
#if defined(__x86_64__)
	if (argc > 1 &&
	    !strcmp(argv[1], "mlx4")) { /* in a process of its own, which is patched or not */
		if (argc > 2)
			bench = (struct bench){ true, 1 };
		bench_mlx4_limit(&bench); /* before a device is open: the handler is its own */
		bench_pin(0);
		bench_mlx4(&bench);
		bench_mlx5(&bench);
		return 0;
	}
#endif
	costs(&bench); /* before the process has grown */
	bench_pin(0);
	bench_limits(&bench);
	inside_one(&bench);
	between_two(&bench);
	return 0;
}
