// SPDX-License-Identifier: MIT
/*
 * Completion queues that are full: what would complete there waits until the program has taken entries, and then happens
 * once, in order. A queue that nobody reads at all is overrun in the end. Both devices are in this process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <sched.h>

enum { ROOM = 4, MESSAGES = 40, SLOT = 20000, SIZE = MESSAGES * SLOT };

static struct {
	struct dev dev[2];
	struct mem mem[2];
	struct end end[2];
	struct fifo fifo[2];
} t;

static int set_up(void **state)
{
	for (int i = 0; i < 2; i++) {
		dev_open(&t.dev[i], i);
		set_port(&t.dev[i], 1);
		mem_device(&t.mem[i], &t.dev[i], SIZE);
		fifo_create(&t.fifo[i], &t.dev[i], 1, HBLDV_USR_FIFO_TYPE_DB);
	}
	fill(t.mem[0].host, SIZE, 5);
	return 0;
}

static int tear_down(void **state)
{
	for (int i = 0; i < 2; i++) {
		hbl_end_destroy(&t.end[i]);
		CHECK(!hbldv_destroy_usr_fifo(t.fifo[i].usr));
		mem_free(&t.mem[i]);
	}
	for (int i = 0; i < 2; i++)
		dev_close(&t.dev[i]);
	return 0;
}

/* req: entries of the requester's CQ, res: of its peer's; 0: enough. */
static void make_ends(enum hbldv_qp_wq_types a, enum hbldv_qp_wq_types b, uint32_t req,
		      uint32_t res, const struct conn_attr *attr)
{
	hbl_end_create(&t.end[0], &t.dev[0],
		       &(struct end_attr){ .port = 1, .wqes = 64, .type = a, .req_cqes = req });
	hbl_end_create(&t.end[1], &t.dev[1],
		       &(struct end_attr){ .port = 1, .wqes = 64, .type = b, .res_cqes = res });
	ends_connect(&t.end[0], &t.end[1], attr);
}

static void post(int side, const struct wqe *wqe)
{
	hbl_end_post(&t.end[side], wqe, true);
	fifo_ring(&t.fifo[side], t.end[side].q.qp_num, hbl_end_pi(&t.end[side]));
}

static void post_writes(uint32_t size)
{
	for (uint32_t i = 0; i < MESSAGES; i++)
		post(0, &(struct wqe){ .opcode = LINEAR,
				       .size = size,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va + i * SLOT,
				       .remote = t.mem[1].va + i * SLOT });
}

static void requester_done(int side, uint32_t tag)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end[side].req, &cqe);
	assert_true(cqe.requester);
	assert_int_equal(cqe.tag, ~tag);
}

static void responder_done(int side, uint32_t tag)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end[side].res, &cqe);
	assert_false(cqe.requester);
	assert_int_equal(cqe.tag, tag);
}

static void nothing_more(void)
{
	struct cqe cqe;

	for (int i = 0; i < 2; i++) {
		assert_false(hbl_cq_poll(&t.end[i].req, &cqe));
		assert_false(hbl_cq_poll(&t.end[i].res, &cqe));
		assert_true(no_event(&t.dev[i]));
	}
}

/* All entries of a CQ are written; acknowledgements may be on their way until then. */
static void wait_full(const struct cq *cq)
{
	uint64_t start = now_ns();

	while (atomic_load((_Atomic uint32_t *)cq->q.pi_cpu_addr) != ROOM) {
		CHECK(now_ns() - start < 20000000000ull);
		sched_yield();
	}
}

static const char *slot(int side, uint32_t i)
{
	return (const char *)t.mem[side].host + i * SLOT;
}

/* --- the responder's -------------------------------------------------------------------------------------------- */

static void writes_wait(void **state)
{
	static const char nothing[64];

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, 0, ROOM, NULL);
	post_writes(64);
	/* Those that fit are there, and nothing of the others: neither data nor the requester's completion. */
	for (uint32_t i = 0; i < ROOM; i++)
		requester_done(0, i);
	assert_int_equal(*(uint32_t *)t.end[1].res.q.pi_cpu_addr, ROOM);
	assert_int_equal(*(uint32_t *)t.end[0].req.q.pi_cpu_addr, ROOM);
	assert_memory_equal(slot(1, ROOM), nothing, 64);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		responder_done(1, i);
		assert_memory_equal(slot(1, i), slot(0, i), 64);
	}
	for (uint32_t i = ROOM; i < MESSAGES; i++)
		requester_done(0, i);
	nothing_more();
}

/* Several packets each: the last is the one that waits. */
static void long_writes_wait(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, 0, ROOM, NULL);
	post_writes(SLOT);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		responder_done(1, i);
		assert_memory_equal(slot(1, i), slot(0, i), SLOT);
	}
	for (uint32_t i = 0; i < MESSAGES; i++)
		requester_done(0, i);
	nothing_more();
}

/* What asks for no completion there is held up by those in front only. */
static void in_order(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, 0, ROOM, NULL);
	for (uint32_t i = 0; i < MESSAGES; i++)
		post(0, &(struct wqe){ .opcode = LINEAR,
				       .size = 64,
				       .tag = i,
				       .completion = i % 2 ? NONE : CQ,
				       .local = t.mem[0].va + i * SLOT,
				       .remote = t.mem[1].va + i * SLOT });
	for (uint32_t i = 0; i < 2 * ROOM; i++)
		requester_done(0, i);
	assert_int_equal(*(uint32_t *)t.end[0].req.q.pi_cpu_addr, 2 * ROOM);
	for (uint32_t i = 0; i < MESSAGES; i += 2)
		responder_done(1, i);
	for (uint32_t i = 2 * ROOM; i < MESSAGES; i++)
		requester_done(0, i);
	nothing_more();
}

/* An atomic that waited is done once. */
static void atomics_wait(void **state)
{
	uint64_t *counter = t.mem[1].host, *old = t.mem[0].host;

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, 0, ROOM, NULL);
	*counter = 100;
	for (uint32_t i = 0; i < MESSAGES; i++)
		post(0, &(struct wqe){ .opcode = t.dev[0].gaudi3 ? FETCH_ADD_G3 : FETCH_ADD_R,
				       .size = 8,
				       .tag = 7,
				       .completion = CQ,
				       .local = t.mem[0].va + i * 8,
				       .remote = t.mem[1].va });
	for (uint32_t i = 0; i < MESSAGES; i++)
		responder_done(1, 7);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		requester_done(0, 7);
		assert_int_equal(old[i], 100 + 7 * i);
	}
	assert_int_equal(*counter, 100 + 7 * MESSAGES);
	nothing_more();
}

static void reads_wait(void **state)
{
	make_ends(HBLDV_WQ_READ_RDV, HBLDV_WQ_READ_RDV_ENDP, 0, ROOM, NULL);
	fill(t.mem[1].host, SIZE, 9);
	for (uint32_t i = 0; i < MESSAGES; i++)
		post(0, &(struct wqe){ .opcode = RDV_READ,
				       .size = SLOT,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va + i * SLOT,
				       .remote = t.mem[1].va + i * SLOT });
	for (uint32_t i = 0; i < MESSAGES; i++)
		responder_done(1, i);
	for (uint32_t i = 0; i < MESSAGES; i++)
		requester_done(0, i);
	assert_memory_equal(t.mem[0].host, t.mem[1].host, SIZE);
	nothing_more();
}

static void rendezvous_waits(void **state)
{
	const struct conn_attr attr = { .dest_wq_size = 64 };

	make_ends(HBLDV_WQ_SEND_RDV, HBLDV_WQ_RECV_RDV, 0, ROOM, &attr);
	for (uint32_t i = 0; i < MESSAGES; i++)
		post(1, &(struct wqe){
				.opcode = SEND, .size = SLOT, .local = t.mem[1].va + i * SLOT });
	for (uint32_t i = 0; i < MESSAGES; i++)
		post(0, &(struct wqe){ .opcode = RDV_WRITE,
				       .size = SLOT,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va + i * SLOT });
	for (uint32_t i = 0; i < MESSAGES; i++) {
		responder_done(1, i);
		assert_memory_equal(slot(1, i), slot(0, i), SLOT);
		requester_done(1, 0);
	}
	for (uint32_t i = 0; i < MESSAGES; i++)
		requester_done(0, i);
	nothing_more();
}

/* The queue pair that waits goes away: its peer hears of it as if it had never answered. */
static void destroyed_while_full(void **state)
{
	const struct conn_attr attr = { .timeout = 10, .retry = 1 };

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, 0, ROOM, &attr);
	post_writes(64);
	for (uint32_t i = 0; i < ROOM; i++)
		requester_done(0, i);
	hbl_end_destroy(&t.end[1]);
	expect_event(&t.dev[0], IBV_EVENT_QP_FATAL);
}

/* --- the requester's -------------------------------------------------------------------------------------------- */

static void completions_wait(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, ROOM, 0, NULL);
	post_writes(SLOT);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		responder_done(1, i); /* nothing keeps the data itself */
		assert_memory_equal(slot(1, i), slot(0, i), SLOT);
	}
	wait_full(&t.end[0].req);
	for (uint32_t i = 0; i < MESSAGES; i++)
		requester_done(0, i);
	nothing_more();
}

/* Reports of congestion control say when all packets are acknowledged. */
static void wait_acknowledged(const struct hbldv_query_cq_attr *reports)
{
	uint64_t start = now_ns();
	uint32_t packets = 0;

	for (uint32_t ci = 0; packets < MESSAGES;) {
		CHECK(now_ns() - start < 20000000000ull);
		if (atomic_load((_Atomic uint32_t *)reports->pi_cpu_addr) == ci)
			sched_yield();
		else
			packets += ((uint32_t *)reports->mem_cpu_addr)[4 * ci++ + 3];
	}
}

/* The work queue ends in the error state: what was done before is still told. */
static void told_after_error(void **state)
{
	const struct conn_attr attr = { .caps = HBLDV_QP_CAP_CONG_CTRL };
	struct hbldv_cq_attr cc = { .port_num = 1, .cq_type = HBLDV_CQ_TYPE_CC };
	struct ibv_cq *cq = hbldv_create_cq(t.dev[0].context, 64, NULL, 0, &cc);
	struct hbldv_query_cq_attr reports;

	assert_int_equal(hbldv_query_cq(cq, &reports), 0);
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, ROOM, 0, &attr);
	post_writes(64);
	wait_acknowledged(&reports);
	post(0, &(struct wqe){ .opcode = 31 });
	expect_event(&t.dev[0], IBV_EVENT_QP_FATAL);
	for (uint32_t i = 0; i < MESSAGES; i++)
		responder_done(1, i);
	for (uint32_t i = 0; i < MESSAGES; i++)
		requester_done(0, i);
	nothing_more();
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void reset_while_full(void **state)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, ROOM, ROOM, NULL);
	post_writes(64);
	wait_full(&t.end[0].req);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_modify_qp(t.end[i].qp, &reset, IBV_QP_STATE), 0);
	for (uint32_t i = 0; i < ROOM; i++) {
		requester_done(0, i);
		responder_done(1, i);
	}
	nothing_more();
}

/* --- nobody reads ----------------------------------------------------------------------------------------------- */

static void overrun(void **state)
{
	struct ibv_async_event event;

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, 0, ROOM, NULL);
	post_writes(64);
	/* The writes go on without it, in the end. */
	for (uint32_t i = 0; i < MESSAGES; i++)
		requester_done(0, i);
	assert_memory_equal(slot(1, MESSAGES - 1), slot(0, MESSAGES - 1), 64);
	assert_int_equal(ibv_get_async_event(t.dev[1].context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, t.end[1].res.ibv);
	ibv_ack_async_event(&event);
	for (uint32_t i = 0; i < ROOM; i++)
		responder_done(1, i);
	nothing_more();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(writes_wait),          TEST(long_writes_wait), TEST(in_order),
		TEST(atomics_wait),         TEST(reads_wait),       TEST(rendezvous_waits),
		TEST(destroyed_while_full), TEST(completions_wait), TEST(told_after_error),
		TEST(reset_while_full),     TEST(overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
