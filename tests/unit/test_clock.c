// SPDX-License-Identifier: MIT
/*
 * The card on a clock that the test moves: what waits for time to pass comes when that clock says so, and never before.
 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "bare.h"
#include "base/clock.h"
#include "fabric/fabric.h"

enum { OWNER = 7, PERIOD_US = 1000, PATIENCE_S = 20 };

static struct bare bare;
static _Atomic uint64_t now = 1000000000;
static _Atomic int notified;

static uint64_t read_now(void)
{
	return atomic_load(&now);
}

static void move(uint64_t ns)
{
	atomic_fetch_add(&now, ns);
	vb_fabric_kick();
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void notify(void *cookie)
{
	(void)cookie;
	atomic_fetch_add(&notified, 1);
}

static bool is_notified(int times)
{
	time_t limit = time(NULL) + PATIENCE_S;

	while (atomic_load(&notified) < times && time(NULL) < limit)
		nap();
	return atomic_load(&notified) == times;
}

static int open_bare(void **state)
{
	(void)state;
	atomic_store(&vb_clock_replaced, read_now);
	return bare_open(&bare, IBV_QPT_RC);
}

static int close_bare(void **state)
{
	(void)state;
	bare_close(&bare);
	atomic_store(&vb_clock_replaced, NULL);
	return 0;
}

/* A moderated CQ speaks at the end of its period. */
static void test_moderation(void **state)
{
	struct vb_cq_attr attr = { .cqe_cnt = 16,
				   .cqe_size = 64,
				   .always_armed = true,
				   .owner = OWNER,
				   .notify = notify,
				   .moderation = { .period_us = PERIOD_US, .from_cqe = true } };
	struct vb_cq *cq;

	(void)state;
	attr.buf = aligned_alloc(64, 16 * 64);
	attr.dbr = calloc(2, sizeof(*attr.dbr));
	assert_int_equal(vb_cq_create(bare.dev, &attr, &cq), 0);
	assert_int_equal(vb_doorbell_zero_cqe(OWNER, vb_cq_number(cq)), 0);
	/* Much longer than the period, on another clock. */
	for (int i = 0; i < 20; i++)
		nap();
	assert_int_equal(atomic_load(&notified), 0);
	move((PERIOD_US - 1) * 1000);
	for (int i = 0; i < 20; i++)
		nap();
	assert_int_equal(atomic_load(&notified), 0);
	move(1000);
	assert_true(is_notified(1));
	assert_int_equal(vb_cq_destroy(cq), 0);
	free(attr.buf);
	free(attr.dbr);
}

static void is_quiet(int times)
{
	for (int i = 0; i < 20; i++)
		nap();
	assert_int_equal(atomic_load(&notified), times);
}

/* The period counts from the last event, or anew from every completion. */
static void period_counts(bool from_cqe)
{
	struct vb_cq_attr attr = { .cqe_cnt = 16,
				   .cqe_size = 64,
				   .always_armed = true,
				   .owner = OWNER,
				   .notify = notify,
				   .moderation = { .period_us = PERIOD_US, .from_cqe = from_cqe } };
	struct vb_cq *cq;

	attr.buf = aligned_alloc(64, 16 * 64);
	attr.dbr = calloc(2, sizeof(*attr.dbr));
	atomic_store(&notified, 0);
	assert_int_equal(vb_cq_create(bare.dev, &attr, &cq), 0);
	assert_int_equal(vb_doorbell_zero_cqe(OWNER, vb_cq_number(cq)), 0);
	is_quiet(0); /* there was no event before: the CQ is as old as one */
	move(PERIOD_US * 1000);
	assert_true(is_notified(1));
	assert_int_equal(vb_doorbell_zero_cqe(OWNER, vb_cq_number(cq)), 0);
	move(600 * 1000);
	assert_int_equal(vb_doorbell_zero_cqe(OWNER, vb_cq_number(cq)), 0);
	is_quiet(1);
	move(500 * 1000);
	if (from_cqe) {
		is_quiet(1);
		move(500 * 1000);
	}
	assert_true(is_notified(2));
	/* Nothing for longer than the period: the last event is old enough, a completion is not. */
	move(3 * PERIOD_US * 1000);
	assert_int_equal(vb_doorbell_zero_cqe(OWNER, vb_cq_number(cq)), 0);
	if (from_cqe) {
		is_quiet(2);
		move(PERIOD_US * 1000);
	}
	assert_true(is_notified(3));
	assert_int_equal(vb_cq_destroy(cq), 0);
	free(attr.buf);
	free(attr.dbr);
}

static void test_period_modes(void **state)
{
	(void)state;
	period_counts(false);
	period_counts(true);
}

/* The requester of a queue pair that does not answer gives up after its timeouts, and no earlier. */
static void test_retries(void **state)
{
	struct mlx5_cqe64 *cqe = NULL;
	time_t limit;

	(void)state;
	/* Nobody answers packets to a number that is not there. */
	assert_int_equal(bare_connect_to(&bare, vb_qp_number(bare.qp) + 1), 0);
	bare_ctrl(&bare, MLX5_OPCODE_SEND, 1, MLX5_WQE_CTRL_CQ_UPDATE);
	bare_ring(&bare, 1);
	for (int i = 0; i < 20; i++) {
		vb_progress(bare.dev);
		assert_null(bare_poll(&bare));
		nap();
	}
	limit = time(NULL) + PATIENCE_S;
	while (!(cqe = bare_poll(&bare)) && time(NULL) < limit) {
		move(1000000000);
		nap();
	}
	assert_non_null(cqe);
	assert_int_equal(cqe->op_own >> 4, MLX5_CQE_REQ_ERR);
	assert_int_equal(((struct mlx5_err_cqe *)cqe)->syndrome,
			 MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_moderation, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_period_modes, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_retries, open_bare, close_bare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
