// SPDX-License-Identifier: MIT
/*
 * What a burst delivers: callbacks run with no lock held, so they may ring, arm and push themselves, and every one that is
 * due is called, whichever threads work at once. A callback under a lock of the card would wait here for itself.
 */
#include <endian.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "bare.h"
#include "base/rcu.h"
#include "card/deferred.h"

enum { OWNER = 7, CQES = 16, CHAIN = 48, CQS = 8, THREADS = 4, PUSHES = 20000 };

static struct bare bare;

static void sleep_us(long us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

static int open_bare(void **state)
{
	(void)state;
	return bare_open(&bare, IBV_QPT_RC);
}

static int close_bare(void **state)
{
	(void)state;
	bare_close(&bare);
	return 0;
}

static struct vb_cq *create_cq(struct vb_cq_attr *attr, void (*notify)(void *), void *cookie)
{
	struct vb_cq *cq;

	attr->cqe_cnt = CQES;
	attr->cqe_size = 64;
	attr->owner = OWNER;
	attr->ignore_overrun = true;
	attr->notify = notify;
	attr->cookie = cookie;
	attr->buf = aligned_alloc(64, CQES * 64);
	attr->dbr = calloc(2, sizeof(*attr->dbr));
	assert_int_equal(vb_cq_create(bare.dev, attr, &cq), 0);
	return cq;
}

static void destroy_cq(struct vb_cq *cq, struct vb_cq_attr *attr)
{
	assert_int_equal(vb_cq_destroy(cq), 0);
	free(attr->buf);
	free(attr->dbr);
}

/* --- indices of 24 bits that come round --------------------------------------------------------- */

/* So many CQEs take ThreadSanitizer a minute, and there is one thread. */
#ifdef __SANITIZE_THREAD__
#define SKIP_IF_SLOW() skip()
#else
#define SKIP_IF_SLOW() ((void)0)
#endif

static void count_up(void *cookie)
{
	++*(unsigned int *)cookie;
}

static void push_zeros(struct vb_cq *cq, uint32_t count)
{
	while (count--)
		assert_int_equal(vb_doorbell_zero_cqe(vb_card_program(), OWNER, vb_cq_number(cq)),
				 0);
}

static void consume(const struct vb_cq_attr *attr, uint32_t ci)
{
	atomic_store((_Atomic uint32_t *)&attr->dbr[0], htobe32(ci & 0xffffff));
}

/* Nothing that was solicited ever came: an arming for that waits, however many others came. */
static void test_nothing_solicited(void **state)
{
	const uint32_t many = (1 << 23) + 1024;
	struct vb_cq_attr attr = { 0 };
	unsigned int events = 0;
	struct vb_cq *cq;

	(void)state;
	SKIP_IF_SLOW();
	cq = create_cq(&attr, count_up, &events);
	push_zeros(cq, many);
	consume(&attr, many);
	for (int i = 0; i < 10; i++)
		vb_cq_arm(cq, true);
	assert_int_equal(events, 0);
	destroy_cq(cq, &attr);
}

/* A CQE that no event has announced, with the same indices as at the last event. */
static void test_once_round(void **state)
{
	struct vb_cq_attr attr = { 0 };
	unsigned int events = 0;
	struct vb_cq *cq;

	(void)state;
	SKIP_IF_SLOW();
	cq = create_cq(&attr, count_up, &events);
	vb_cq_arm(cq, false);
	push_zeros(cq, 1);
	assert_int_equal(events, 1);
	push_zeros(cq, 1 << 24);
	consume(&attr, 1 << 24);
	vb_cq_arm(cq, false);
	assert_int_equal(events, 2);
	destroy_cq(cq, &attr);
}

/* --- a callback that uses the very queues that it is about -------------------------------------------------------------- */

static struct {
	struct vb_cq *cq;
	struct vb_qp *qp;
	unsigned int rung, called;
} chain;

static void post_next(void)
{
	if (chain.rung == CHAIN)
		return;
	chain.rung++;
	bare_ctrl(&bare, MLX5_OPCODE_NOP, 1, MLX5_WQE_CTRL_CQ_UPDATE);
	bare_ring(&bare, 1);
}

static void ring_again(void *cookie)
{
	(void)cookie;
	chain.called++;
	vb_cq_arm(chain.cq, false);
	post_next();
}

static void test_callback_rings(void **state)
{
	struct vb_cq_attr attr = { .always_armed = false };
	struct vb_qp_attr qp_attr = { .type = IBV_QPT_RC,
				      .pd = bare.pd,
				      .sq_buf = bare.sq,
				      .sq_cnt = BARE_BLOCKS,
				      .rq_buf = bare.rq,
				      .rq_cnt = BARE_RECVS,
				      .rq_shift = 6,
				      .dbr = bare.qp_dbr,
				      .cap = { BARE_BLOCKS, BARE_RECVS, 2, 4, 0 } };
	struct vb_cq *own_cq = bare.cq;
	struct vb_qp *own_qp = bare.qp;

	(void)state;
	chain.cq = create_cq(&attr, ring_again, NULL);
	qp_attr.send_cq = qp_attr.recv_cq = chain.cq;
	assert_int_equal(vb_qp_create(bare.dev, &qp_attr, &chain.qp), 0);
	bare.qp = chain.qp;
	assert_int_equal(bare_connect(&bare), 0);
	vb_cq_arm(chain.cq, false);
	post_next();
	assert_int_equal(chain.rung, CHAIN);
	assert_int_equal(chain.called, CHAIN);
	assert_int_equal(vb_qp_destroy(chain.qp), 0);
	destroy_cq(chain.cq, &attr);
	bare.cq = own_cq;
	bare.qp = own_qp;
}

/* --- no call is lost ---------------------------------------------------------------------------------------------------- */

static struct vb_cq *cqs[CQS];
static _Atomic uint64_t pushed[CQS], called[CQS];

static void push(unsigned int i)
{
	atomic_fetch_add(&pushed[i], 1);
	assert_int_equal(vb_doorbell_zero_cqe(vb_card_program(), OWNER, vb_cq_number(cqs[i])), 0);
}

/* Every second call has another one follow, on the next queue. */
static void count(void *cookie)
{
	unsigned int i = (unsigned int)(uintptr_t)cookie;

	if (atomic_fetch_add(&called[i], 1) % 2)
		push((i + 1) % CQS);
}

static void *push_many(void *arg)
{
	uint64_t random = (uintptr_t)arg + 1;

	for (int n = 0; n < PUSHES; n++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		push((unsigned int)(random >> 33) % CQS);
	}
	return NULL;
}

static void test_every_call(void **state)
{
	struct vb_cq_attr attr[CQS] = { 0 };
	pthread_t threads[THREADS];

	(void)state;
	for (unsigned int i = 0; i < CQS; i++) {
		attr[i].always_armed = true;
		cqs[i] = create_cq(&attr[i], count, (void *)(uintptr_t)i);
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, push_many, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	/* A thread that has returned has delivered what it collected. */
	for (int i = 0; i < CQS; i++)
		assert_int_equal(atomic_load(&called[i]), atomic_load(&pushed[i]));
	for (int i = 0; i < CQS; i++)
		destroy_cq(cqs[i], &attr[i]);
}

/* --- blocked work ------------------------------------------------------------------------------- */

static _Atomic bool was_run;

static void note_run(struct vb_deferred *item, uint32_t due)
{
	(void)item;
	(void)due;
	atomic_store(&was_run, true);
}

/*
 * The wake-up for room in a ring came before the work was on the list, so the background thread sleeps again, and no
 * program polls: the work is done nevertheless.
 */
static void test_blocked_late(void **state)
{
	struct vb_deferred item;

	(void)state;
	vb_deferred_init(&item, vb_card_program(), note_run);
	for (int i = 0; i < 20; i++) {
		atomic_store(&was_run, false);
		sleep_us(
			2000); /* it falls asleep; where it does not, this proves nothing, and passes */
		vb_read_lock();
		vb_defer_blocked(&item, 1);
		vb_read_unlock();
		for (int n = 0; n < 5000 && !atomic_load(&was_run); n++)
			sleep_us(1000);
		assert_true(atomic_load(&was_run));
	}
	vb_deferred_remove(&item);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_solicited, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_once_round, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_callback_rings, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_every_call, open_bare, close_bare),
		cmocka_unit_test_setup_teardown(test_blocked_late, open_bare, close_bare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
