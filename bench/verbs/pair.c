// SPDX-License-Identifier: MIT
/*
 * One side of a measurement, and what it does: posts requests, throws and catches messages, gives and follows orders.
 */
#include "pair.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MALLOCED = 1 << 20, SMALL = 4096, DEVICE = 64 << 10 };
enum { FEW = 5000 };

/* --- one request ------------------------------------------------------------------------------- */

static bool is_atomic(const struct order *o)
{
	return o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* The flag that a memory-polling side waits for is the last byte of the message. */
void side_post(struct side *side, const struct order *o, bool signalled, uint8_t mark)
{
	bool inline_ok = o->bytes <= 64 && o->opcode != IBV_WR_RDMA_READ && !is_atomic(o);
	struct ibv_sge sge = { (uintptr_t)side->source.buf, o->bytes, side->source.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = o->opcode,
				  .send_flags = (signalled ? IBV_SEND_SIGNALED : 0) |
						(inline_ok ? IBV_SEND_INLINE : 0) };
	struct ibv_send_wr *bad;

	if (o->bytes)
		side->source.buf[o->bytes - 1] = mark;
	if (is_atomic(o)) {
		wr.wr.atomic.remote_addr = side->remote_addr;
		wr.wr.atomic.rkey = side->remote_key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = side->remote_addr;
		wr.wr.rdma.rkey = side->remote_key;
	}
	check_eq(ibv_post_send(side->node.qp, &wr, &bad), 0);
}

void side_post_receive(struct side *side)
{
	check_eq(node_recv(&side->node, 1, BENCH_MAX_BYTES, BENCH_MAX_BYTES), 0);
}

void side_await(struct ibv_cq *cq)
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
static void throw(struct side * side, const struct order *o, uint8_t mark)
{
	bool signalled = ++side->unsignalled % 32 == 0;

	side_post(side, o, signalled, mark);
	/* What is due is done while the message is on its way, not before. */
	if (side->owed)
		side_post_receive(side);
	side->owed = false;
	if (signalled)
		side_await(side->node.send_cq);
}

static void catch (struct side *side, const struct order *o, uint8_t mark)
{
	volatile uint8_t *flag = side->landing.buf + o->bytes - 1;
	struct ibv_wc wc;

	if (takes_receive(o)) {
		side_await(side->node.recv_cq);
		side->owed = true;
		return;
	}
	while (*flag != mark) {
		if (o->manner == POLLS_BOTH)
			ibv_poll_cq(side->node.recv_cq, 1, &wc);
	}
}

static void ping_pong(struct side *side, const struct order *o, bool first)
{
	for (uint64_t i = 0; i < o->count; i++) {
		uint8_t mark = (uint8_t)(i % 250 + 1);

		if (first)
			throw(side, o, mark);
		catch (side, o, mark);
		if (!first)
			throw(side, o, mark);
	}
	if (side->owed)
		side_post_receive(side);
	side->owed = false;
}

/* --- many at once ------------------------------------------------------------------------------ */

static void stream(struct side *side, const struct order *o)
{
	uint64_t window = o->bytes <= 65536 ? 64 : o->bytes <= 1 << 20 ? 16 : 4;
	uint64_t posted = 0, done = 0, step = o->bytes <= 64 ? 16 : 1;
	struct ibv_wc wc[16];

	while (done < o->count) {
		int n;

		while (posted < o->count && posted - done < window) {
			posted++;
			side_post(side, o, posted % step == 0 || posted == o->count, 1);
		}
		n = ibv_poll_cq(side->node.send_cq, 16, wc);
		for (int i = 0; i < n; i++) {
			check_status(&wc[i], IBV_WC_SUCCESS);
			done = done + step > o->count ? o->count : done + step;
		}
	}
}

/* Take the messages of a stream, or wait for its end in the way that was ordered. */
static void absorb(struct side *side, const struct order *o, int fd)
{
	struct ibv_wc wc[16];
	char end;

	if (takes_receive(o) && o->pattern == STREAM) {
		for (uint64_t got = 0; got < o->count;) {
			int n = ibv_poll_cq(side->node.recv_cq, 16, wc);

			for (int i = 0; i < n; i++) {
				check_status(&wc[i], IBV_WC_SUCCESS);
				side_post_receive(side);
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
	side_await(side->node.recv_cq);
	side_post_receive(side);
}

static void round_trips(struct side *side, const struct order *o)
{
	for (uint64_t i = 0; i < o->count; i++) {
		side_post(side, o, true, 1);
		side_await(side->node.send_cq);
	}
}

double side_loop(struct side *a, struct side *b, const struct order *o)
{
	double start = bench_now();

	for (uint64_t i = 0; i < o->count; i++) {
		bool signalled = !takes_receive(o) || i % 32 == 31;

		side_post(a, o, signalled, 1);
		if (takes_receive(o)) {
			side_await(b->node.recv_cq);
			side_post_receive(b);
		}
		if (signalled)
			side_await(a->node.send_cq);
	}
	return (bench_now() - start) / (double)o->count;
}

/* --- the two sides ----------------------------------------------------------------------------- */

static void lead(struct side *side, const struct order *o, int fd)
{
	struct order end = { .opcode = IBV_WR_SEND };

	if (o->pattern == PING_PONG)
		ping_pong(side, o, true);
	else if (o->pattern == STREAM)
		stream(side, o);
	else
		round_trips(side, o);
	if (o->pattern == PING_PONG || (takes_receive(o) && o->pattern == STREAM))
		return;
	if (o->manner == PASSIVE) {
		msg_send(fd, "", 1);
	} else {
		side_post(side, &end, true, 0);
		side_await(side->node.send_cq);
	}
}

static int follow_orders(struct side *side)
{
	struct order o;

	for (;;) {
		msg_recv(ROLE_FD, &o, sizeof(o));
		if (o.end)
			return 0;
		memset(side->landing.buf, 0, 64);
		msg_send(ROLE_FD, "", 1);
		if (o.pattern == PING_PONG)
			ping_pong(side, &o, false);
		else
			absorb(side, &o, ROLE_FD);
	}
}

/* One repetition; ns per message. */
static double run_order(struct side *side, const struct order *o, int fd)
{
	char ready;
	double start, taken;

	msg_send(fd, o, sizeof(*o));
	memset(side->landing.buf, 0, 64);
	msg_recv(fd, &ready, 1);
	start = bench_now();
	lead(side, o, fd);
	taken = (bench_now() - start) / (double)o->count;
	return o->pattern == PING_PONG ? taken / 2 : taken;
}

void pair_measure(const struct bench *bench, struct side *side, int fd, const struct row *row,
		  uint32_t bytes, const char *unit, const char *name)
{
	struct order o = { row->opcode, row->pattern, row->manner, bytes, 0, false };
	double samples[BENCH_REPEATS];

	o.count = bench_iterations(bench, bytes);
	if (row->manner == PASSIVE && bytes <= 64 && o.count > FEW) {
		uint64_t most = o.count;
		double fit;

		/* Each may wake a thread: then fewer tell as much. */
		o.count = FEW;
		fit = 50e6 / run_order(side, &o, fd);
		o.count = fit < FEW ? FEW : fit < (double)most ? (uint64_t)fit : most;
	} else {
		run_order(side, &o, fd); /* warm */
	}
	for (int r = 0; r < bench->repeats; r++) {
		double ns = run_order(side, &o, fd);

		samples[r] = !strcmp(unit, "ns")    ? ns
			     : !strcmp(unit, "M/s") ? 1e3 / ns
						    : bytes / ns;
	}
	bench_print(name, "two", bytes, unit, samples, bench->repeats);
}

/* --- making and joining sides -------------------------------------------------------------------- */

static struct area allocate(struct side *side, size_t size)
{
	struct area area = { .buf = malloc(size) };

	check(area.buf, "malloc");
	memset(area.buf, 1, size);
	area.mr = ibv_reg_mr(side->node.pd, area.buf, size, ACCESS_ALL);
	check(area.mr, "%s", strerror(errno));
	area.addr = (uintptr_t)area.buf;
	return area;
}

/* Device memory, mapped; others name its bytes from 0. */
static struct area allocate_device(struct side *side)
{
	struct ibv_alloc_dm_attr attr = { .length = DEVICE, .log_align_req = 12 };
	struct area area = { .dm = ibv_alloc_dm(side->node.ctx, &attr) };
	struct mlx5dv_dm dv = { .comp_mask = 0 };
	struct mlx5dv_obj obj = { .dm = { .in = area.dm, .out = &dv } };

	check(area.dm, "%s", strerror(errno));
	area.mr = ibv_reg_dm_mr(side->node.pd, area.dm, 0, DEVICE,
				ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	check(area.mr, "%s", strerror(errno));
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM), 0);
	area.buf = dv.buf;
	return area;
}

static void release(struct side *side, struct area *area)
{
	if (area->mr == side->node.mr)
		return;
	check_eq(ibv_dereg_mr(area->mr), 0);
	if (area->dm)
		check_eq(ibv_free_dm(area->dm), 0);
	else
		free(area->buf);
}

void side_open(struct side *side, enum memory memory)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	uint8_t *at;

	memset(side, 0, sizeof(*side));
	side->memory = memory;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = PAIR_DEPTH;
	attr.cap.max_inline_data = 64;
	attr.size = PAIR_AREA;
	attr.rd_atomic = attr.dest_rd_atomic = 16;
	node_open(&side->node, &attr);
	memset(side->node.buf, 1, PAIR_AREA);
	at = side->node.buf + BENCH_MAX_BYTES;
	side->source = (struct area){ .buf = side->node.buf, .mr = side->node.mr };
	side->landing = (struct area){ .buf = at, .mr = side->node.mr, .addr = (uintptr_t)at };
	if (memory == MEMORY_MALLOC || memory == MEMORY_SMALL) {
		side->source = allocate(side, memory == MEMORY_MALLOC ? MALLOCED : SMALL);
		side->landing = allocate(side, memory == MEMORY_MALLOC ? MALLOCED : SMALL);
	} else if (memory == MEMORY_DEVICE) {
		side->landing = allocate_device(side);
	}
}

void side_close(struct side *side)
{
	check_eq(ibv_destroy_qp(side->node.qp), 0);
	side->node.qp = NULL;
	release(side, &side->source);
	release(side, &side->landing);
	node_close(&side->node);
}

bool side_has_device_memory(void)
{
	struct ibv_device_attr_ex caps = { 0 };
	struct ibv_context *ctx = device_open();

	check_eq(ibv_query_device_ex(ctx, NULL, &caps), 0);
	check_eq(ibv_close_device(ctx), 0);
	return caps.max_dm_size >= 2 * DEVICE;
}

static void fill_receives(struct side *side)
{
	for (int i = 0; i < PAIR_DEPTH; i++)
		side_post_receive(side);
}

/* What one side says of itself to the other. */
static struct address describe(const struct side *side)
{
	struct address own;

	node_address(&side->node, &own);
	own.addr = side->landing.addr;
	own.rkey = side->landing.mr->rkey;
	return own;
}

static void connect(struct side *side, const struct address *peer)
{
	node_connect(&side->node, peer);
	side->remote_addr = peer->addr;
	side->remote_key = peer->rkey;
	fill_receives(side);
}

void side_join(struct side *a, struct side *b)
{
	struct address of_a = describe(a), of_b = describe(b);

	connect(a, &of_b);
	connect(b, &of_a);
}

void side_meet(struct side *side, int fd)
{
	struct address own = describe(side), peer;
	char ready;

	msg_send(fd, &own, sizeof(own));
	msg_recv(fd, &peer, sizeof(peer));
	connect(side, &peer);
	msg_send(fd, "", 1);
	msg_recv(fd, &ready, 1);
}

pid_t pair_open(struct side *side, enum memory memory, int *fd)
{
	char role[] = { 'c', 'h', 'i', 'l', 'd', (char)('0' + memory), '\0' };
	pid_t pid = spawn_self(role, fd);

	side_open(side, memory);
	side_meet(side, *fd);
	return pid;
}

void pair_close(struct side *side, pid_t pid, int fd)
{
	struct order end = { .end = true };

	msg_send(fd, &end, sizeof(end));
	spawn_wait(pid);
	close(fd);
	side_close(side);
}

int pair_child(const char *role)
{
	struct side side;
	int ret;

	if (strncmp(role, "child", 5) || role[5] < '0' || role[5] >= '0' + MEMORIES)
		return -1;
	bench_pin(1);
	side_open(&side, (enum memory)(role[5] - '0'));
	side_meet(&side, ROLE_FD);
	ret = follow_orders(&side);
	side_close(&side);
	return ret;
}
