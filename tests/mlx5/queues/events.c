// SPDX-License-Identifier: MIT
/*
 * What happens to queues by command, as a program hears of it: completions and errors from event channels, completions
 * from an event queue of its own, moderation.
 */
#include "hand.h"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

enum {
	COMPLETION = 0x0,
	COMM_EST = 0x2,
	SQ_DRAINED = 0x3,
	CQ_ERROR = 0x4,
	WQ_INVAL_REQ_ERROR = 0x10,
	WQ_ACCESS_ERROR = 0x11,
	SRQ_LAST_WQE = 0x13,
	SRQ_LIMIT = 0x14
};

static struct hand hand;
static struct mlx5dv_devx_event_channel *channel;
static struct hand_cq cq, recv_cq;
static struct hand_qp a, b;
static struct hand_address to_a, to_b;

static void open_pair(void)
{
	hand_qp(&hand, &a, IBV_QPT_RC, &cq, &recv_cq);
	hand_qp(&hand, &b, IBV_QPT_RC, &cq, &recv_cq);
	hand_address(&a, &to_a);
	hand_address(&b, &to_b);
	hand_connect(&a, &to_b);
	hand_connect(&b, &to_a);
}

static void open_all(uint32_t log_cq)
{
	channel = mlx5dv_devx_create_event_channel(hand.ctx, 0);
	check(channel != NULL);
	check_eq(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
	hand_cq(&hand, &cq, log_cq);
	hand_cq(&hand, &recv_cq, 6);
	open_pair();
}

static void close_all(void)
{
	hand_qp_end(&a);
	hand_qp_end(&b);
	hand_cq_end(&cq);
	hand_cq_end(&recv_cq);
	mlx5dv_devx_destroy_event_channel(channel);
	hand.used = 0;
}

static void subscribe(struct mlx5dv_devx_obj *obj, uint16_t event, uint64_t cookie)
{
	check_eq(mlx5dv_devx_subscribe_devx_event(channel, obj, sizeof(event), &event, cookie), 0);
}

static bool has_event(void)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	return poll(&fd, 1, 0) == 1;
}

/* The next event must come, for this cookie and of this type; the byte at `at` of its EQE begins the object's number. */
static void expect_event(uint64_t cookie, uint8_t type, uint32_t at, uint32_t number)
{
	enum { EQE = 64 };
	_Alignas(struct mlx5dv_devx_async_event_hdr)
		uint8_t event[sizeof(struct mlx5dv_devx_async_event_hdr) + EQE];
	struct mlx5dv_devx_async_event_hdr *hdr = (void *)event;
	const uint8_t *eqe = hdr->out_data;
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	check_eq(poll(&fd, 1, PATIENCE_MS), 1);
	check_eq(mlx5dv_devx_get_event(channel, hdr, sizeof(event)), (ssize_t)sizeof(event));
	check_eq(hdr->cookie, cookie);
	check_eq(eqe[1], type);
	check_eq(get_bits(eqe, at * 8, 32), number);
}

static void write_one(void)
{
	struct mlx5_cqe64 cqe;

	hand_write(&a, 0, 64, &to_b, 4096);
	hand_expect(&cq, &a, MLX5_CQE_REQ, &cqe);
}

/* --- completions --------------------------------------------------------------------------------- */

static void armed(void)
{
	struct mlx5_cqe64 cqe;

	open_all(4);
	subscribe(cq.obj, COMPLETION, 17);
	write_one();
	check(!has_event()); /* not armed */
	for (int i = 0; i < 40; i++) {
		hand_arm(&cq, false);
		check(!has_event());
		hand_write(&a, 0, 64, &to_b, 0);
		hand_write(&a, 0, 64, &to_b, 0);
		expect_event(17, COMPLETION, 56, cq.number);
		check(!has_event()); /* one for any number of CQEs */
		hand_expect(&cq, &a, MLX5_CQE_REQ, &cqe);
		hand_expect(&cq, &a, MLX5_CQE_REQ, &cqe);
	}
	/* A CQE that came before the arming counts. */
	hand_write(&a, 0, 64, &to_b, 0);
	hand_arm(&cq, false);
	expect_event(17, COMPLETION, 56, cq.number);
	hand_expect(&cq, &a, MLX5_CQE_REQ, &cqe);
	/* Sends are not solicited. */
	hand_arm(&cq, true);
	write_one();
	check(!has_event());
	close_all();
}

/* The consumer index of an arming is the one that its doorbell has. */
static void armed_before_the_record(void)
{
	struct mlx5_cqe64 cqe;
	__be32 old;

	open_all(4);
	subscribe(cq.obj, COMPLETION, 1);
	old = cq.dbr[0];
	hand_write(&a, 0, 64, &to_b, 0);
	hand_expect(&cq, &a, MLX5_CQE_REQ, &cqe);
	cq.dbr[0] = old; /* as a program that writes the record now and then */
	hand_arm(&cq, false);
	check(!has_event());
	cq.dbr[0] = htobe32(cq.ci);
	write_one();
	expect_event(1, COMPLETION, 56, cq.number);
	close_all();
}

static void own_event_queue(void)
{
	enum { LOG = 4 };
	struct mlx5dv_devx_eq *eq;
	struct mlx5_cqe64 cqe;
	struct command c;
	uint8_t *ring;
	uint32_t eqn;

	channel = mlx5dv_devx_create_event_channel(hand.ctx, 0);
	command_begin(&c, 0x301);
	put_bits(c.in, 0x80 + 0x63, 5, LOG);
	eq = mlx5dv_devx_create_eq(hand.ctx, c.in, 272, c.out, 16);
	check(eq != NULL);
	eqn = (uint32_t)get_bits(c.out, 0x58, 8);
	ring = eq->vaddr;
	hand_cq_command(&hand, &cq, 4, &c);
	put_bits(c.in, 0x80 + 0xb8, 8, eqn);
	hand_cq_create(&cq, &c);
	hand_cq(&hand, &recv_cq, 4);
	open_pair();
	check_eq(mlx5dv_devx_destroy_eq(eq), EBUSY);
	for (uint32_t i = 0; i < 40; i++) {
		uint8_t *eqe = ring + i % (1u << LOG) * 64;

		hand_arm(&cq, false);
		hand_write(&a, 0, 64, &to_b, 0);
		hand_expect(&cq, &a, MLX5_CQE_REQ, &cqe);
		check_eq(__atomic_load_n(&eqe[63], __ATOMIC_ACQUIRE) & 1, i >> LOG & 1);
		check_eq(eqe[1], COMPLETION);
		check_eq(get_bits(eqe, 56 * 8, 32), cq.number);
		*(volatile uint32_t *)((char *)hand.uar->base_addr + 0x40) =
			htobe32(eqn << 24 | (i + 1));
	}
	close_all();
	check_eq(mlx5dv_devx_destroy_eq(eq), 0);
}

/* --- moderation ---------------------------------------------------------------------------------- */

static void moderated(void)
{
	struct mlx5_cqe64 cqe;
	struct command c;

	open_all(6);
	subscribe(cq.obj, COMPLETION, 3);
	command_begin(&c, 0x403);
	put_bits(c.in, 0x60, 32, 3); /* period and count */
	put_bits(c.in, 0x80 + 0x90, 16, 5);
	check_eq(command_modify(cq.obj, cq.number, &c, 272), 0);
	check_eq(command_query(cq.obj, cq.number, 0x402, &c, 272), 0);
	check_eq(get_bits(c.out, 0x80 + 0x90, 16), 5);
	for (int round = 0; round < 3; round++) {
		hand_arm(&cq, false);
		for (int i = 0; i < 5; i++) {
			check(!has_event(), "round %d, after %d", round, i);
			hand_write(&a, 0, 64, &to_b, 0);
			hand_expect(&cq, &a, MLX5_CQE_REQ, &cqe);
		}
		expect_event(3, COMPLETION, 56, cq.number);
	}
	close_all();
}

/* --- errors -------------------------------------------------------------------------------------- */

static void overrun(void)
{
	struct command c;

	open_all(2);
	subscribe(cq.obj, CQ_ERROR, 99);
	for (int i = 0; i < 5; i++)
		hand_write(&a, 0, 8, &to_b, 0);
	expect_event(99, CQ_ERROR, 32, cq.number);
	check_eq(command_query(cq.obj, cq.number, 0x402, &c, 272), 0);
	check_eq(get_bits(c.out, 0x80, 4), 9);
	check_eq(get_bits(c.out, 0x80 + 0x148, 24), 0);
	check_eq(get_bits(c.out, 0x80 + 0x168, 24), 4);
	close_all();
}

static void overrun_ignored(void)
{
	struct mlx5_cqe64 *cqe;
	struct command c;

	open_all(2);
	subscribe(cq.obj, CQ_ERROR, 99);
	command_begin(&c, 0x403);
	put_bits(c.in, 0x60, 32, 4);
	put_bits(c.in, 0x80 + 0xe, 1, 1);
	check_eq(command_modify(cq.obj, cq.number, &c, 272), 0);
	for (int i = 0; i < 7; i++)
		hand_write(&a, 0, 8, &to_b, 0);
	cqe = (void *)(cq.buf + (6 % 4) * 64);
	check_eq(be16toh(cqe->wqe_counter), 6);
	check(!has_event());
	close_all();
}

/* What a peer may not do is an event of the queue pair that it was asked of. */
static void access_error(void)
{
	struct hand_address wrong;

	open_all(4);
	subscribe(b.obj, WQ_ACCESS_ERROR, 5);
	wrong = to_b;
	wrong.rkey ^= 0x1200;
	hand_write(&a, 0, 8, &wrong, 0);
	hand_expect_error(&cq, &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	expect_event(5, WQ_ACCESS_ERROR, 56, b.number);
	close_all();
}

/* A request that the queue pair does not allow at all. */
static void invalid_request(void)
{
	enum { RWE = 1 << 3 };
	struct command c;

	open_all(4);
	subscribe(b.obj, WQ_INVAL_REQ_ERROR, 7);
	command_begin(&c, 0x505);
	put_bits(c.in, 0x80, 32, RWE);
	check_eq(command_modify(b.obj, b.number, &c, 272), 0);
	hand_write(&a, 0, 8, &to_b, 0);
	hand_expect_error(&cq, &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
	expect_event(7, WQ_INVAL_REQ_ERROR, 56, b.number);
	close_all();
}

/* The first packet that finds a queue pair in RTR, and only that. */
static void established(void)
{
	open_all(4);
	check_eq(hand_qp_simple(&b, 0x50a), 0);
	check_eq(hand_to_init(&b), 0);
	check_eq(hand_to_rtr(&b, &to_a), 0);
	subscribe(b.obj, COMM_EST, 8);
	write_one();
	expect_event(8, COMM_EST, 56, b.number);
	write_one();
	check(!has_event());
	close_all();
}

/* --- receives that are shared -------------------------------------------------------------------- */

static struct mlx5dv_devx_obj *open_rmp(struct hand_qp *rmp)
{
	enum { CTX = 0x100, WQ = CTX + 0x180 };
	struct command c, rq;

	hand_rq_command(&hand, rmp, &recv_cq, &rq);
	command_begin(&c, 0x90c);
	put_bits(c.in, CTX + 0x8, 4, 1);
	put_bits(c.in, CTX + 0x20, 1, 1); /* basic_cyclic_rcv_wqe */
	memcpy(c.in + WQ / 8, rq.in + WQ / 8, 192);
	hand_wq_create(rmp, &c);
	return rmp->obj;
}

/* The limit that MODIFY_RMP armed, once; and the end of what a failed queue pair takes of the list. */
static void shared(void)
{
	enum { CTX = 0x100, WQ = CTX + 0x180, QPC = 0xc0 };
	struct mlx5_cqe64 cqe;
	struct hand_qp rmp;
	struct command c;

	open_all(4);
	hand_qp_end(&b);
	open_rmp(&rmp);
	hand_qp_command(&hand, &b, IBV_QPT_RC, &cq, &recv_cq, 4, 4, &c);
	put_bits(c.in, QPC + 0x565, 3, 1);
	put_bits(c.in, QPC + 0x568, 24, rmp.number);
	hand_qp_create(&b, &c);
	hand_address(&b, &to_b);
	check_eq(hand_qp_simple(&a, 0x50a), 0);
	a.sq_head = a.rq_head = 0;
	memset(a.dbr, 0, 8);
	hand_connect(&a, &to_b);
	hand_connect(&b, &to_a);
	subscribe(rmp.obj, SRQ_LIMIT, 21);
	subscribe(b.obj, SRQ_LAST_WQE, 22);
	for (uint32_t i = 0; i < 4; i++)
		hand_recv(&rmp, i * 64, 64);
	command_begin(&c, 0x90d);
	put_bits(c.in, 0x40, 4, 1);
	put_bits(c.in, 0x80, 64, 1);
	put_bits(c.in, CTX + 0x8, 4, 1);
	put_bits(c.in, WQ + 0x30, 16, 3);
	check_eq(command_modify(rmp.obj, rmp.number, &c, 272), 0);
	for (int i = 0; i < 3; i++) {
		check(i > 1 || !has_event(), "%d", i);
		hand_send(&a, 1024, 8);
		hand_expect(&cq, &a, MLX5_CQE_REQ, &cqe);
		hand_expect(&recv_cq, &b, MLX5_CQE_RESP_SEND, &cqe);
	}
	expect_event(21, SRQ_LIMIT, 56, rmp.number);
	check(!has_event());
	check_eq(hand_qp_simple(&b, 0x507), 0);
	expect_event(22, SRQ_LAST_WQE, 56, b.number);
	hand_qp_end(&b);
	hand_qp_end(&rmp);
	close_all();
}

static void drained(void)
{
	open_all(4);
	subscribe(a.obj, SQ_DRAINED, 6);
	check_eq(hand_qp_simple(&a, 0x508), 0);
	expect_event(6, SQ_DRAINED, 56, a.number);
	check_eq(hand_qp_state(&a), 5);
	check_eq(hand_qp_simple(&a, 0x50c), 0);
	check_eq(hand_qp_state(&a), 3);
	write_one();
	close_all();
}

int main(void)
{
	hand_open(&hand);
	armed();
	armed_before_the_record();
	own_event_queue();
	moderated();
	overrun();
	overrun_ignored();
	access_error();
	invalid_request();
	established();
	shared();
	drained();
	hand_close(&hand);
	return 0;
}
