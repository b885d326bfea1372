// SPDX-License-Identifier: MIT
/*
 * The card in a simulated time: what waits for time to pass comes when that time says so, and never before, and no test
 * waits for it. The threads that take part are this one, the card's background thread and the link's.
 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bare.h"
#include "base/time.h"
#include "card/queue/objects.h"
#include "card/memory/mr.h"
#include "sim_link.h"
#include "sim_time.h"

enum {
	OWNER = 7,
	PERIOD_US = 1000,
	BACKGROUND = 1,
	THREADS = 2,
	LEN = 64,
	LATENCY_NS = 5000,
	LOOK_NS = 1000000
};

static const uint64_t second = 1000000000;

static struct sim_time sim;
static struct bare bare;
static struct sim_link wire;
static bool linked;
static _Atomic int notified;

static int sim_setup(void **state)
{
	(void)state;
	sim_begin(&sim, second);
	return 0;
}

static int sim_teardown(void **state)
{
	(void)state;
	sim_end(&sim);
	return 0;
}

static int open_bare(void **state)
{
	(void)state;
	return bare_open(&bare, IBV_QPT_RC);
}

static int close_bare(void **state)
{
	(void)state;
	sim_run(&sim, 0);
	bare_close(&bare);
	if (linked)
		sim_link_end(&wire);
	linked = false;
	return 0;
}

/* --- periods of CQs: by hand -------------------------------------------------------------------- */

static void notify(void *cookie)
{
	(void)cookie;
	atomic_fetch_add(&notified, 1);
}

/* The background thread has done all that is due, and so many were told. */
static void assert_notified(int times)
{
	sim_settle(&sim, BACKGROUND);
	assert_int_equal(atomic_load(&notified), times);
}

struct moderated {
	struct vb_cq_attr attr;
	struct vb_cq *cq;
};

static void moderated_open(struct moderated *m, bool from_cqe)
{
	m->attr = (struct vb_cq_attr){ .cqe_cnt = 16,
				       .cqe_size = 64,
				       .always_armed = true,
				       .owner = OWNER,
				       .notify = notify,
				       .moderation = { .period_us = PERIOD_US,
						       .from_cqe = from_cqe } };
	m->attr.buf = aligned_alloc(64, 16 * 64);
	m->attr.dbr = calloc(2, sizeof(*m->attr.dbr));
	atomic_store(&notified, 0);
	assert_int_equal(vb_cq_create(bare.dev, &m->attr, &m->cq), 0);
}

static void moderated_ring(struct moderated *m)
{
	assert_int_equal(vb_doorbell_zero_cqe(vb_card_program(), OWNER, vb_cq_number(m->cq)), 0);
}

static void moderated_close(struct moderated *m)
{
	assert_int_equal(vb_cq_destroy(m->cq), 0);
	free(m->attr.buf);
	free(m->attr.dbr);
}

/* A moderated CQ speaks at the end of its period. */
static void test_moderation(void **state)
{
	struct moderated m;

	(void)state;
	moderated_open(&m, true);
	moderated_ring(&m);
	assert_notified(0);
	sim_move(&sim, PERIOD_US * 1000 - 1);
	assert_notified(0);
	sim_move(&sim, 1);
	assert_notified(1);
	moderated_close(&m);
}

/* The period counts from the last event, or anew from every completion. */
static void period_counts(bool from_cqe)
{
	struct moderated m;

	moderated_open(&m, from_cqe);
	moderated_ring(&m);
	assert_notified(0); /* there was no event before: the CQ is as old as one */
	sim_move(&sim, PERIOD_US * 1000);
	assert_notified(1);
	moderated_ring(&m);
	sim_move(&sim, 600 * 1000);
	moderated_ring(&m);
	assert_notified(1);
	sim_move(&sim, 500 * 1000);
	if (from_cqe) {
		assert_notified(1);
		sim_move(&sim, 500 * 1000);
	}
	assert_notified(2);
	/* Nothing for longer than the period: the last event is old enough, a completion is not. */
	sim_move(&sim, 3 * PERIOD_US * 1000);
	moderated_ring(&m);
	if (from_cqe) {
		assert_notified(2);
		sim_move(&sim, PERIOD_US * 1000);
	}
	assert_notified(3);
	moderated_close(&m);
}

static void test_period_modes(void **state)
{
	(void)state;
	period_counts(false);
	period_counts(true);
}

/* --- reliable delivery: by itself ----------------------------------------------------------------- */

static void post_send(void)
{
	struct mlx5_wqe_ctrl_seg *ctrl =
		bare_ctrl(&bare, MLX5_OPCODE_SEND, 2, MLX5_WQE_CTRL_CQ_UPDATE);
	struct mlx5_wqe_data_seg *seg = (void *)(ctrl + 1);

	seg->byte_count = htobe32(LEN);
	seg->lkey = htobe32(vb_mr_key(bare.mr));
	seg->addr = htobe64((uintptr_t)bare.memory);
	bare_ring(&bare, 1);
}

/* The next CQE of this kind, which only the background thread brings; and how much time that took. */
static struct mlx5_cqe64 *await_cqe(uint8_t opcode, uint64_t *took)
{
	uint64_t begun = vb_now_ns(), limit = begun + 3600 * second;
	struct mlx5_cqe64 *cqe;

	do {
		while (!(cqe = bare_poll(&bare)) && vb_now_ns() < limit)
			vb_sleep_ns(LOOK_NS);
	} while (cqe && cqe->op_own >> 4 != opcode);
	*took = vb_now_ns() - begun;
	return cqe;
}

static uint8_t syndrome(const struct mlx5_cqe64 *cqe)
{
	return ((const struct mlx5_err_cqe *)cqe)->syndrome;
}

static uint64_t timeout_ns(void)
{
	return 4096ull << bare.timeout;
}

/* The queue pair to itself, without a link or over one. The timeout of 18 is a second. */
static void connect_with(uint8_t timeout, uint8_t retry_cnt, uint8_t rnr_retry)
{
	bare.timeout = timeout;
	bare.retry_cnt = retry_cnt;
	bare.rnr_retry = rnr_retry;
	bare.min_rnr_timer = 0; /* 655.36 ms */
	assert_int_equal(bare_connect(&bare), 0);
	sim_run(&sim, THREADS);
}

static void connect_over(bool (*loses)(struct sim_link *link, const struct vb_pkt *pkt),
			 uint8_t timeout, uint8_t retry_cnt, uint8_t rnr_retry)
{
	struct vb_path path = sim_link_path(&wire, IBV_QPT_RC);

	sim_link_begin(&wire, LATENCY_NS, loses);
	linked = true;
	connect_with(timeout, retry_cnt, rnr_retry);
	bare.qp->path = path; /* nothing runs so far, and the one that it had needs no close */
	sim_run(&sim, THREADS + 1);
}

static bool lose_first(struct sim_link *link, const struct vb_pkt *pkt)
{
	(void)pkt;
	return atomic_load(&link->sent) == 1;
}

/* One timeout, and not before: IBTA 9.7.6.1.3 lets it be up to four times as long. */
static void test_lost_request(void **state)
{
	struct mlx5_cqe64 *cqe;
	uint64_t took;

	(void)state;
	connect_over(lose_first, 18, 7, 0);
	memset(bare.memory, 0x5a, LEN);
	bare_post_recv(&bare, (uintptr_t)bare.memory + 4096, LEN);
	post_send();
	cqe = await_cqe(MLX5_CQE_REQ, &took);
	assert_non_null(cqe);
	assert_int_equal(atomic_load(&wire.lost), 1);
	assert_true(took >= timeout_ns() && took <= 4 * timeout_ns());
	assert_memory_equal(bare.memory, bare.memory + 4096, LEN);
}

static bool lose_answers(struct sim_link *link, const struct vb_pkt *pkt)
{
	return pkt->op == VB_PKT_ACK && atomic_load(&link->lost) < 3;
}

/* The answer is lost three times: so many timeouts, and one receive. */
static void test_lost_answers(void **state)
{
	struct mlx5_cqe64 *cqe;
	uint64_t took;

	(void)state;
	connect_over(lose_answers, 18, 7, 0);
	bare_post_recv(&bare, (uintptr_t)bare.memory + 4096, LEN);
	bare_post_recv(&bare, (uintptr_t)bare.memory + 8192, LEN);
	memset(bare.memory + 8192, 0, LEN);
	memset(bare.memory, 0x3c, LEN);
	post_send();
	cqe = await_cqe(MLX5_CQE_REQ, &took);
	assert_non_null(cqe);
	assert_int_equal(atomic_load(&wire.lost), 3);
	assert_true(took >= 3 * timeout_ns() && took <= 12 * timeout_ns());
	assert_memory_equal(bare.memory, bare.memory + 4096, LEN);
	assert_int_equal(bare.memory[8192], 0);
}

static bool lose_all(struct sim_link *link, const struct vb_pkt *pkt)
{
	(void)link;
	(void)pkt;
	return true;
}

/* Nothing arrives: the requester gives up after its retries, and no earlier. */
static void test_gives_up(void **state)
{
	struct mlx5_cqe64 *cqe;
	uint64_t took;

	(void)state;
	connect_over(lose_all, 20, 5, 0);
	post_send();
	cqe = await_cqe(MLX5_CQE_REQ_ERR, &took);
	assert_non_null(cqe);
	assert_int_equal(syndrome(cqe), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	assert_int_equal(atomic_load(&wire.lost), 1 + 5);
	assert_true(took >= 6 * timeout_ns() && took <= 24 * timeout_ns());
}

/* No queue pair has the number: no answer either. */
static void test_no_peer(void **state)
{
	struct mlx5_cqe64 *cqe;
	uint64_t took;

	(void)state;
	bare.timeout = 18;
	bare.retry_cnt = 1;
	assert_int_equal(bare_connect_to(&bare, vb_qp_number(bare.qp) + 1), 0);
	sim_run(&sim, THREADS);
	bare_ctrl(&bare, MLX5_OPCODE_SEND, 1, MLX5_WQE_CTRL_CQ_UPDATE);
	bare_ring(&bare, 1);
	cqe = await_cqe(MLX5_CQE_REQ_ERR, &took);
	assert_non_null(cqe);
	assert_int_equal(syndrome(cqe), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	assert_true(took >= 2 * timeout_ns());
}

static bool lose_none(struct sim_link *link, const struct vb_pkt *pkt)
{
	(void)link;
	(void)pkt;
	return false;
}

/* With nothing lost a message takes the way there and back, to the next look of this thread. */
static void test_latency(void **state)
{
	struct mlx5_cqe64 *cqe;
	uint64_t took;

	(void)state;
	connect_over(lose_none, 18, 7, 0);
	bare_post_recv(&bare, (uintptr_t)bare.memory + 4096, LEN);
	post_send();
	cqe = await_cqe(MLX5_CQE_REQ, &took);
	assert_non_null(cqe);
	assert_int_equal(atomic_load(&wire.sent), 2);
	assert_true(took >= 2 * LATENCY_NS && took <= 2 * LATENCY_NS + LOOK_NS);
}

static const uint64_t rnr_ns = 655360000;

/* A receiver that is never ready is asked again after each RNR timer, as often as it was agreed. */
static void never_ready(void)
{
	struct mlx5_cqe64 *cqe;
	uint64_t took;

	post_send();
	cqe = await_cqe(MLX5_CQE_REQ_ERR, &took);
	assert_non_null(cqe);
	assert_int_equal(syndrome(cqe), MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
	assert_true(took >= 3 * rnr_ns && took < 4 * rnr_ns);
}

static void test_never_ready(void **state)
{
	(void)state;
	connect_with(18, 7, 3);
	never_ready();
}

static void test_never_ready_link(void **state)
{
	(void)state;
	connect_over(lose_none, 18, 7, 3);
	never_ready();
	assert_int_equal(atomic_load(&wire.sent), 2 * (1 + 3));
}

/* One that becomes ready gets the message at the end of the timer that runs then. */
static void ready_later(void)
{
	struct mlx5_cqe64 *cqe;
	uint64_t took;

	post_send();
	vb_sleep_ns(1000 * rnr_ns + rnr_ns / 2);
	assert_null(bare_poll(&bare));
	bare_post_recv(&bare, (uintptr_t)bare.memory + 4096, LEN);
	cqe = await_cqe(MLX5_CQE_REQ, &took);
	assert_non_null(cqe);
	assert_true(took > 0 && took <= rnr_ns);
}

static void test_ready_later(void **state)
{
	(void)state;
	connect_with(18, 7, VB_RNR_FOREVER);
	ready_later();
}

static void test_ready_later_link(void **state)
{
	(void)state;
	connect_over(lose_none, 18, 7, VB_RNR_FOREVER);
	ready_later();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_moderation, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_period_modes, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_latency, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_lost_request, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_lost_answers, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_gives_up, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_no_peer, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_never_ready, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_never_ready_link, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_ready_later, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_ready_later_link, open_bare, close_bare),
	};

	return cmocka_run_group_tests(tests, sim_setup, sim_teardown);
}
