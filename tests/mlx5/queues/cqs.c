// SPDX-License-Identifier: MIT
/*
 * Completion queues by command: rings that are replaced while completions come, as drivers do it; another event queue;
 * compressed completions in both layouts, expanded by hand; the clocks of timestamps.
 */
#include "hand.h"

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BAD_PARAM = 3, BAD_RES = 5, BAD_SIZE_OUTS_CQES = 0x40 };
enum { MODIFY_CQ = 0x403, SELECT = 0x60, EQN = 1 << 3, CQC = 0x80, RESIZE_CQ = 5, BURST = 20 };
enum layout { PLAIN, BASIC, ENHANCED };

static struct hand hand;
static struct hand_cq send_cq, recv_cq;
static struct hand_qp qp;
static struct hand_address self;

static void open_cq(struct hand_cq *cq, uint32_t log_size, enum layout layout, uint32_t format)
{
	struct command c;

	hand_cq_command(&hand, cq, log_size, &c);
	put_bits(c.in, CQC + 0x11, 1, layout != PLAIN);
	put_bits(c.in, CQC + 0x12, 2, format);
	put_bits(c.in, CQC + 0x1e, 2, layout == ENHANCED);
	hand_cq_create(cq, &c);
}

static void open_all(uint32_t log_size, enum layout layout, uint32_t format)
{
	open_cq(&send_cq, 6, PLAIN, 0);
	open_cq(&recv_cq, log_size, layout, format);
	hand_qp(&hand, &qp, IBV_QPT_RC, &send_cq, &recv_cq);
	hand_address(&qp, &self);
	hand_connect(&qp, &self);
}

static void close_all(void)
{
	hand_qp_end(&qp);
	hand_cq_end(&send_cq);
	hand_cq_end(&recv_cq);
	hand.used = 0;
}

/* Messages of several lengths to itself, with one doorbell; the lengths begin with `first`. */
static void send_burst(uint32_t count, uint32_t first)
{
	struct mlx5_cqe64 cqe;
	struct wqe wqe;

	for (uint32_t i = 0; i < count; i++) {
		hand_recv(&qp, 4096, 4096);
		wqe_begin(&wqe, MLX5_OPCODE_SEND, i + 1 == count ? MLX5_WQE_CTRL_CQ_UPDATE : 0, 0);
		wqe_put_data(&wqe, hand.buf, first + i, hand.mr->lkey);
		hand_post(&qp, &wqe);
	}
	hand_ring(&qp);
	hand_expect(&send_cq, &qp, MLX5_CQE_REQ, &cqe);
}

/* --- another ring --------------------------------------------------------------------------------- */

/* A ring of its own umem. */
struct ring {
	uint8_t *mem;
	uint32_t count;
	size_t bytes;
	struct mlx5dv_devx_umem *umem;
};

static void ring_open(struct ring *ring, uint32_t log_size)
{
	ring->count = 1u << log_size;
	ring->bytes = ((size_t)64 << log_size) + 4096;
	ring->mem =
		mmap(NULL, ring->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(ring->mem != MAP_FAILED);
	for (uint32_t i = 0; i < ring->count; i++)
		ring->mem[i * 64 + 63] = MLX5_CQE_INVALID << 4;
	ring->umem = mlx5dv_devx_umem_reg(hand.ctx, ring->mem, ring->bytes, IBV_ACCESS_LOCAL_WRITE);
	check(ring->umem != NULL);
}

static void ring_close(struct ring *ring)
{
	check_eq(mlx5dv_devx_umem_dereg(ring->umem), 0);
	munmap(ring->mem, ring->bytes);
}

static void resize_command(struct command *c, const struct ring *ring)
{
	command_begin(c, MODIFY_CQ);
	put_bits(c->in, 0x30, 16, 1);
	put_bits(c->in, SELECT, 32, 7);
	put_bits(c->in, CQC + 0x63, 5, (uint64_t)__builtin_ctz(ring->count));
	put_bits(c->in, 0x2c0, 32, ring->umem->umem_id);
	put_bits(c->in, 0x2e0, 1, 1);
}

static uint8_t resize(struct hand_cq *cq, const struct ring *ring)
{
	struct command c;

	resize_command(&c, ring);
	return command_modify(cq->obj, cq->number, &c, 272);
}

/* What a driver does then: the CQEs before the one that says so move to the next index. */
static void follow(struct hand_cq *cq, const struct ring *ring)
{
	struct mlx5_cqe64 *from, *to;
	uint32_t i = cq->ci;

	for (;; i++) {
		from = (void *)(cq->buf + (size_t)(i & (cq->count - 1)) * 64);
		check_eq(from->op_own & 1, !!(i & cq->count));
		if (from->op_own >> 4 == RESIZE_CQ)
			break;
		check(from->op_own >> 4 != MLX5_CQE_INVALID && i - cq->ci < cq->count);
		to = (void *)(ring->mem + (size_t)((i + 1) & (ring->count - 1)) * 64);
		*to = *from;
		to->op_own = (uint8_t)((to->op_own & ~1) | !!((i + 1) & ring->count));
	}
	cq->ci++;
	cq->buf = ring->mem;
	cq->count = ring->count;
	__atomic_store_n(&cq->dbr[0], htobe32(cq->ci & 0xffffff), __ATOMIC_RELEASE);
}

static void expect_lengths(uint32_t count, uint32_t first)
{
	struct mlx5_cqe64 cqe;

	for (uint32_t i = 0; i < count; i++) {
		hand_expect(&recv_cq, &qp, MLX5_CQE_RESP_SEND, &cqe);
		check_eq(be32toh(cqe.byte_cnt), first + i);
	}
}

static void rings(void)
{
	static const uint32_t logs[] = { 7, 5, 5, 8, 6 };
	struct ring ring[5], tiny;
	struct mlx5_cqe64 cqe;
	struct command c;

	open_all(6, PLAIN, 0);
	for (uint32_t i = 0; i < 5; i++) {
		ring_open(&ring[i], logs[i]);
		send_burst(BURST, 100 * i + 1);
		expect_lengths(7, 100 * i + 1);
		check_eq(resize(&recv_cq, &ring[i]), 0);
		send_burst(9, 100 * i + 51); /* these are in the new ring already */
		follow(&recv_cq, &ring[i]);
		expect_lengths(BURST - 7, 100 * i + 8);
		expect_lengths(9, 100 * i + 51);
		check(!hand_poll(&recv_cq, &cqe));
		check_eq(mlx5dv_devx_umem_dereg(ring[i].umem), EBUSY);
		if (i)
			ring_close(&ring[i - 1]); /* nothing is in it any more */
		check_eq(command_query(recv_cq.obj, recv_cq.number, 0x402, &c, 272), 0);
		check_eq(get_bits(c.out, CQC + 0x63, 5), logs[i]);
	}
	/* Many rounds of the last one. */
	for (uint32_t i = 0; i < 40; i++) {
		send_burst(BURST, 1000 + i);
		expect_lengths(BURST, 1000 + i);
	}
	/* Refusals leave the ring as it is. */
	ring_open(&tiny, 3);
	send_burst(9, 500);
	check_eq(resize(&recv_cq, &tiny), BAD_SIZE_OUTS_CQES);
	resize_command(&c, &ring[4]);
	put_bits(c.in, CQC + 0x63, 5, 23);
	check_eq(command_modify(recv_cq.obj, recv_cq.number, &c, 272), BAD_PARAM);
	resize_command(&c, &ring[4]);
	put_bits(c.in, CQC + 0x63, 5, 12); /* the umem is too short */
	check_eq(command_modify(recv_cq.obj, recv_cq.number, &c, 272), BAD_RES);
	resize_command(&c, &tiny);
	put_bits(c.in, SELECT, 32, 6); /* no size */
	check_eq(command_modify(recv_cq.obj, recv_cq.number, &c, 272), BAD_PARAM);
	expect_lengths(9, 500);
	ring_close(&tiny);
	close_all();
	ring_close(&ring[4]);
}

/* Completions come from another thread while rings change. */
static atomic_bool sending;

static void *send_on(void *arg)
{
	for (uint32_t i = 0; i < 300; i++)
		send_burst(4, 1 + i * 4);
	atomic_store(&sending, false);
	return arg;
}

static void while_completions_come(void)
{
	struct ring ring[2];
	struct mlx5_cqe64 cqe;
	uint32_t next = 1, which = 0, moves = 0;
	pthread_t thread;

	open_all(11, PLAIN, 0); /* the sender does not wait for us */
	ring_open(&ring[0], 12);
	ring_open(&ring[1], 11);
	atomic_store(&sending, true);
	check_eq(pthread_create(&thread, NULL, send_on, NULL), 0);
	while (atomic_load(&sending) || next < 1201) {
		if (hand_poll(&recv_cq, &cqe)) {
			check_eq(be32toh(cqe.byte_cnt), next);
			next++;
		}
		if (next % 50 == 0 && moves < 40) {
			check_eq(resize(&recv_cq, &ring[which]), 0);
			follow(&recv_cq, &ring[which]);
			which = !which;
			moves++;
			for (uint32_t i = 0; i < ring[which].count; i++)
				ring[which].mem[i * 64 + 63] = MLX5_CQE_INVALID << 4;
		}
	}
	check_eq(pthread_join(thread, NULL), 0);
	check_eq(next, 1201);
	check(moves > 0);
	close_all();
	ring_close(&ring[0]);
	ring_close(&ring[1]);
}

/* --- events --------------------------------------------------------------------------------------- */

struct eq {
	struct mlx5dv_devx_eq *dv;
	uint32_t number, ci;
};

static void eq_open(struct eq *eq)
{
	struct command c;

	command_begin(&c, 0x301);
	put_bits(c.in, 0x80 + 0x63, 5, 4);
	eq->dv = mlx5dv_devx_create_eq(hand.ctx, c.in, 272, c.out, 16);
	check(eq->dv != NULL);
	eq->number = (uint32_t)get_bits(c.out, 0x58, 8);
	eq->ci = 0;
}

static uint32_t eq_take(struct eq *eq)
{
	uint8_t *eqe = (uint8_t *)eq->dv->vaddr + (eq->ci & 15) * 64;
	uint32_t got = 0;

	while ((__atomic_load_n(&eqe[63], __ATOMIC_ACQUIRE) & 1) == !!(eq->ci & 16)) {
		check_eq(eqe[1], 0); /* a completion */
		check_eq(get_bits(eqe, 56 * 8, 32), recv_cq.number);
		got++;
		eq->ci++;
		eqe = (uint8_t *)eq->dv->vaddr + (eq->ci & 15) * 64;
	}
	return got;
}

static uint8_t move_events(uint32_t number)
{
	struct command c;

	command_begin(&c, MODIFY_CQ);
	put_bits(c.in, SELECT, 32, EQN);
	put_bits(c.in, CQC + 0xb8, 8, number);
	return command_modify(recv_cq.obj, recv_cq.number, &c, 272);
}

static void event_queues(void)
{
	struct command c;
	struct eq a, b;

	eq_open(&a);
	eq_open(&b);
	open_all(6, PLAIN, 0);
	check_eq(move_events(a.number), 0);
	check_eq(mlx5dv_devx_destroy_eq(a.dv), EBUSY);
	for (uint32_t i = 0; i < 3; i++) {
		hand_arm(&recv_cq, false);
		send_burst(1, 10);
		expect_lengths(1, 10);
		check_eq(eq_take(&a), 1);
	}
	/* An arming goes along. */
	hand_arm(&recv_cq, false);
	check_eq(move_events(b.number), 0);
	send_burst(1, 11);
	expect_lengths(1, 11);
	check_eq(eq_take(&a), 0);
	check_eq(eq_take(&b), 1);
	check_eq(command_query(recv_cq.obj, recv_cq.number, 0x402, &c, 272), 0);
	check_eq(get_bits(c.out, CQC + 0xb8, 8), b.number);
	check_eq(mlx5dv_devx_destroy_eq(a.dv), 0);
	check_eq(move_events(a.number), BAD_RES);
	check_eq(mlx5dv_devx_destroy_eq(b.dv), EBUSY);
	/* To a vector, whose events go to channels. */
	check_eq(move_events(hand.eqn), 0);
	hand_arm(&recv_cq, false);
	send_burst(1, 12);
	expect_lengths(1, 12);
	check_eq(eq_take(&b), 0);
	check_eq(mlx5dv_devx_destroy_eq(b.dv), 0);
	close_all();
}

/* --- compression ---------------------------------------------------------------------------------- */

/* One format has a flow tag before the length. */
enum { LENGTH = 0xffffff };

struct mini {
	__be32 word, byte_cnt;
};

static struct mlx5_cqe64 *entry(uint32_t index)
{
	return (void *)(recv_cq.buf + (size_t)(index & (recv_cq.count - 1)) * 64);
}

static void consume(uint32_t count)
{
	recv_cq.ci += count;
	__atomic_store_n(&recv_cq.dbr[0], htobe32(recv_cq.ci & 0xffffff), __ATOMIC_RELEASE);
}

/* Title of n, mini CQEs 0 to 7 in the next entry, 8 k and on 8 k behind the title; entries are made invalid. */
static uint32_t take_basic(uint32_t next)
{
	struct mlx5_cqe64 *cqe = entry(recv_cq.ci);
	uint32_t n = 1;

	while (__atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE) >> 4 == MLX5_CQE_INVALID ||
	       (cqe->op_own & 1) != !!(recv_cq.ci & recv_cq.count))
		;
	check_eq(cqe->op_own >> 4, MLX5_CQE_RESP_SEND);
	if ((cqe->op_own >> 2 & 3) == 3)
		n = be32toh(cqe->byte_cnt);
	check(n >= 1 && n <= BURST);
	for (uint32_t i = 0; i < n; i++) {
		struct mini *mini =
			(struct mini *)entry(recv_cq.ci + (i < 8 ? 1 : i & ~7u)) + i % 8;

		check_eq(be32toh(n > 1 ? mini->byte_cnt : cqe->byte_cnt) & LENGTH, next + i);
	}
	for (uint32_t i = 0; i < n; i++)
		entry(recv_cq.ci + i)->op_own = MLX5_CQE_INVALID << 4;
	consume(n);
	return n;
}

/* Entries carry the turn of the ring; an array is behind its title or other arrays of it. */
static uint32_t take_enhanced(uint32_t next)
{
	struct mlx5_cqe64 *cqe = entry(recv_cq.ci);
	uint8_t turn = (uint8_t)(recv_cq.ci >> __builtin_ctz(recv_cq.count));
	uint32_t n = 1;

	while (__atomic_load_n(&cqe->signature, __ATOMIC_ACQUIRE) != turn)
		;
	if ((cqe->op_own >> 2 & 3) == 3) {
		const struct mini *minis = (void *)cqe;

		n = (cqe->op_own >> 4) + 1u;
		check(n <= 7);
		for (uint32_t i = 0; i < n; i++)
			check_eq(be32toh(minis[i].byte_cnt) & LENGTH, next + i);
	} else {
		check_eq(be32toh(cqe->byte_cnt), next);
	}
	consume(n);
	return n;
}

static void compressed(enum layout layout, uint32_t format)
{
	uint32_t arrays = 0;

	open_all(6, layout, format);
	if (layout == ENHANCED)
		for (uint32_t i = 0; i < recv_cq.count; i++)
			entry(i)->signature = 0xff;
	for (uint32_t round = 0; round < 60; round++) {
		send_burst(BURST, round + 1);
		for (uint32_t n = 0, got; n < BURST; n += got) {
			got = layout == BASIC ? take_basic(round + 1 + n)
					      : take_enhanced(round + 1 + n);
			arrays += got > 1;
		}
	}
	check(arrays >= 60, "layout %d, format %u: %u", layout, format, arrays);
	close_all();
}

/* --- timestamps ----------------------------------------------------------------------------------- */

static uint64_t now_in(clockid_t clock)
{
	struct timespec ts;

	check_eq(clock_gettime(clock, &ts), 0);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The time of a CQE in ns, and that of a clock before and after it, which it lies between. */
static void expect_time(struct hand_cq *cq, bool real, uint64_t before)
{
	struct mlx5_cqe64 cqe;
	uint64_t time;

	hand_wait(cq, &cqe);
	time = be64toh(cqe.timestamp);
	if (real) {
		check((time & 0xffffffff) < 1000000000);
		time = (time >> 32) * 1000000000 + (time & 0xffffffff);
	}
	check(time >= before && time <= now_in(real ? CLOCK_REALTIME : CLOCK_MONOTONIC));
}

/* Which clock CQEs tell is the queue pair's choice, or that of the CQ; 0, 1: the card's, 2: the time of day. */
static void timestamps(uint32_t of_qp, uint32_t of_cq)
{
	uint64_t day = now_in(CLOCK_REALTIME), card = now_in(CLOCK_MONOTONIC);
	bool real = of_qp == 2, real_too = real || of_cq == 2;
	struct command c;
	struct wqe wqe;

	open_cq(&send_cq, 6, PLAIN, 0);
	hand_cq_command(&hand, &recv_cq, 6, &c);
	put_bits(c.in, CQC + 0x5e, 2, of_cq);
	hand_cq_create(&recv_cq, &c);
	hand_qp_command(&hand, &qp, IBV_QPT_RC, &send_cq, &recv_cq, 6, 6, &c);
	put_bits(c.in, 0xc0 + 0x58, 2, of_qp);
	hand_qp_create(&qp, &c);
	hand_address(&qp, &self);
	hand_connect(&qp, &self);
	hand_recv(&qp, 4096, 4096);
	wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_data(&wqe, hand.buf, 64, hand.mr->lkey);
	hand_post(&qp, &wqe);
	hand_ring(&qp);
	expect_time(&send_cq, real, real ? day : card);
	expect_time(&recv_cq, real_too, real_too ? day : card);
	close_all();
}

static void refusals(void)
{
	struct command c;

	hand_cq_command(&hand, &recv_cq, 6, &c);
	put_bits(c.in, CQC + 0x11, 1, 1);
	put_bits(c.in, CQC + 0x1e, 2, 2); /* a layout that is none */
	command_refused(&hand, &c, 272, BAD_PARAM);
	put_bits(c.in, CQC + 0x1e, 2, 0);
	put_bits(c.in, CQC + 0x5c, 2, 2); /* a format that is none */
	command_refused(&hand, &c, 272, BAD_PARAM);
	put_bits(c.in, CQC + 0x11, 1, 0); /* of a CQ without compression it says nothing */
	hand_cq_create(&recv_cq, &c);
	hand_cq_end(&recv_cq);
	hand.used = 0;
}

int main(void)
{
	hand_open(&hand);
	rings();
	while_completions_come();
	event_queues();
	for (uint32_t format = 0; format < 4; format++) {
		compressed(BASIC, format);
		compressed(ENHANCED, format);
	}
	for (uint32_t i = 0; i < 9; i++)
		timestamps(i / 3, i % 3);
	refusals();
	hand_close(&hand);
	return 0;
}
