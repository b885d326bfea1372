// SPDX-License-Identifier: MIT
/*
 * Work queue entries: every opcode, inline data, strides, rendezvous, atomics, completion types, wrap-around. Both devices
 * are in this process, so that both ends can be looked at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <unistd.h>

enum { SIZE = 1 << 20 };

static struct {
	struct dev dev[2];
	struct mem mem[2];
	struct end end[2];
	struct fifo fifo[2];
} t;

static void make_ends(enum hbldv_qp_wq_types a, enum hbldv_qp_wq_types b, bool wide,
		      const struct conn_attr *attr)
{
	for (int i = 0; i < 2; i++)
		hbl_end_create(&t.end[i], &t.dev[i],
			       &(struct end_attr){
				       .port = 1, .wqes = 64, .type = i ? b : a, .wide = wide });
	ends_connect(&t.end[0], &t.end[1], attr);
}

static int set_up(void **state)
{
	for (int i = 0; i < 2; i++) {
		dev_open(&t.dev[i], i);
		set_port(&t.dev[i], 1);
		mem_device(&t.mem[i], &t.dev[i], SIZE);
		fifo_create(&t.fifo[i], &t.dev[i], 1, HBLDV_USR_FIFO_TYPE_DB);
		fill(t.mem[i].host, SIZE, (uint32_t)i);
	}
	return 0;
}

static int tear_down(void **state)
{
	for (int i = 0; i < 2; i++) {
		hbl_end_destroy(&t.end[i]);
		CHECK(!hbldv_destroy_usr_fifo(t.fifo[i].usr));
		mem_free(&t.mem[i]);
	}
	/* After all ends: both may be on one device. */
	for (int i = 0; i < 2; i++)
		dev_close(&t.dev[i]);
	return 0;
}

static void post(int side, const struct wqe *wqe)
{
	hbl_end_post(&t.end[side], wqe, true);
	fifo_ring(&t.fifo[side], t.end[side].q.qp_num, hbl_end_pi(&t.end[side]));
}

static void requester_done(int side, uint32_t tag, uint32_t size)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end[side].req, &cqe);
	assert_true(cqe.requester);
	assert_int_equal(cqe.tag, ~tag);
	assert_int_equal(cqe.size, size);
	assert_int_equal(cqe.qpn, t.end[side].q.qp_num);
}

static void responder_done(int side, uint32_t tag, uint32_t size)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end[side].res, &cqe);
	assert_false(cqe.requester);
	assert_int_equal(cqe.tag, tag);
	assert_int_equal(cqe.size, size);
	assert_int_equal(cqe.qpn, t.end[side].q.qp_num);
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

/* --- writes ----------------------------------------------------------------------------------------------------- */

static void linear(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 4095, 8192, 8193, 100001, SIZE / 2 };

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	for (uint32_t i = 0; i < 7; i++) {
		uint32_t size = sizes[i];

		memset(t.mem[1].host, 0xee, SIZE);
		post(0, &(struct wqe){ .opcode = i % 2 ? SEND : LINEAR,
				       .size = size,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va,
				       .remote = t.mem[1].va + 3 });
		responder_done(1, i, size);
		requester_done(0, i, size);
		assert_memory_equal((char *)t.mem[1].host + 3, t.mem[0].host, size);
		assert_int_equal(((uint8_t *)t.mem[1].host)[2], 0xee);
		assert_int_equal(((uint8_t *)t.mem[1].host)[3 + size], 0xee);
	}
	nothing_more();
}

static void completion_types(void **state)
{
	struct wqe wqe = { .opcode = LINEAR, .size = 8 };

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	wqe.local = t.mem[0].va;
	wqe.remote = t.mem[1].va;
	for (uint32_t type = 0; type < 4; type++) {
		wqe.completion = type;
		wqe.tag = 100 + type;
		hbl_end_post(&t.end[0], &wqe, type == 3);
		fifo_ring(&t.fifo[0], t.end[0].q.qp_num, hbl_end_pi(&t.end[0]));
	}
	/* 2 is the CQ, 3 sync object and CQ; the requester wanted one for the last only. */
	responder_done(1, 102, 8);
	responder_done(1, 103, 8);
	requester_done(0, 103, 8);
	nothing_more();
}

static void inline_data(void **state)
{
	static const char text[] = "forty-eight bytes fit into the wide form of one!";

	for (int wide = 0; wide < 2; wide++) {
		uint32_t size = wide ? 48 : 16;

		make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, wide, NULL);
		memset(t.mem[1].host, 0, 64);
		post(0, &(struct wqe){ .opcode = LINEAR,
				       .size = size,
				       .tag = 5,
				       .data = text,
				       .remote = t.mem[1].va });
		requester_done(0, 5, size);
		assert_memory_equal(t.mem[1].host, text, size);
		assert_int_equal(((char *)t.mem[1].host)[size], 0);
		nothing_more();
		hbl_end_destroy(&t.end[0]);
		hbl_end_destroy(&t.end[1]);
	}
}

static void wrap_around(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	for (uint32_t i = 0; i < 1000; i++) {
		struct cqe cqe;

		*(uint32_t *)t.mem[0].host = i;
		post(0, &(struct wqe){ .opcode = LINEAR,
				       .size = 4,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va,
				       .remote = t.mem[1].va });
		hbl_cq_wait(&t.end[1].res, &cqe);
		assert_int_equal(cqe.index, t.dev[0].gaudi3 ? i : i % 64);
		assert_int_equal(*(uint32_t *)t.mem[1].host, i);
		requester_done(0, i, 4);
	}
	nothing_more();
}

/* Many entries, one doorbell; and doorbells that repeat an index. */
static void batches(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < 63; i++)
			hbl_end_post(&t.end[0],
				     &(struct wqe){ .opcode = i % 3 ? LINEAR : NOP,
						    .size = i % 3 ? i : 0,
						    .tag = i,
						    .local = t.mem[0].va,
						    .remote = t.mem[1].va },
				     true);
		for (int i = 0; i < 3; i++)
			fifo_ring(&t.fifo[0], t.end[0].q.qp_num, hbl_end_pi(&t.end[0]));
		for (uint32_t i = 0; i < 63; i++)
			requester_done(0, i, i % 3 ? i : 0);
	}
	nothing_more();
}

/* --- strides ---------------------------------------------------------------------------------------------------- */

static void strides(void **state)
{
	const uint8_t *from = t.mem[0].host, *to = t.mem[1].host;
	uint32_t n = 0;

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, true, NULL);
	post(0, &(struct wqe){ .opcode = STRIDE,
			       .size = 100 * 24,
			       .tag = 1,
			       .completion = CQ,
			       .local = t.mem[0].va,
			       .remote = t.mem[1].va,
			       .stride = { 1000 },
			       .count = { 100 },
			       .chunk = 24 });
	responder_done(1, 1, 2400);
	requester_done(0, 1, 2400);
	for (uint32_t i = 0; i < 100; i++)
		assert_memory_equal(to + i * 24, from + i * 1000, 24);
	post(0, &(struct wqe){ .opcode = MULTI_STRIDE,
			       .size = 3 * 4 * 5 * 6 * 10,
			       .tag = 2,
			       .completion = CQ,
			       .local = t.mem[0].va,
			       .remote = t.mem[1].va,
			       .stride = { 16, 100, 1000, 100000 },
			       .count = { 3, 4, 5, 6 },
			       .chunk = 10 });
	responder_done(1, 2, 3600);
	requester_done(0, 2, 3600);
	for (uint32_t d = 0; d < 6; d++)
		for (uint32_t c = 0; c < 5; c++)
			for (uint32_t b = 0; b < 4; b++)
				for (uint32_t a = 0; a < 3; a++)
					assert_memory_equal(to + 10 * n++,
							    from + 16 * a + 100 * b + 1000 * c +
								    100000 * d,
							    10);
	nothing_more();
}

/* --- rendezvous ------------------------------------------------------------------------------------------------- */

static void rendezvous_write(void **state)
{
	const struct conn_attr attr = { .dest_wq_size = 4 };

	make_ends(HBLDV_WQ_SEND_RDV, HBLDV_WQ_RECV_RDV, false, &attr);
	/* The writer is first and waits; then the buffers come, more than the writer keeps. */
	for (uint32_t i = 0; i < 3; i++)
		post(0, &(struct wqe){ .opcode = RDV_WRITE,
				       .size = 1000,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va + i * 1000 });
	nothing_more();
	for (uint32_t i = 0; i < 10; i++)
		post(1, &(struct wqe){ .opcode = SEND,
				       .size = 2000,
				       .tag = 50 + i,
				       .local = t.mem[1].va + i * 2000 });
	for (uint32_t i = 3; i < 10; i++)
		post(0, &(struct wqe){ .opcode = RDV_WRITE,
				       .size = 1000,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va + i * 1000 });
	for (uint32_t i = 0; i < 10; i++) {
		responder_done(1, i, 1000);
		requester_done(0, i, 1000);
		requester_done(1, 50 + i, 2000);
		assert_memory_equal((char *)t.mem[1].host + i * 2000,
				    (char *)t.mem[0].host + i * 1000, 1000);
	}
	nothing_more();
}

static void rendezvous_read(void **state)
{
	make_ends(HBLDV_WQ_READ_RDV, HBLDV_WQ_READ_RDV_ENDP, false, NULL);
	for (uint32_t i = 0; i < 40; i++)
		post(0, &(struct wqe){ .opcode = RDV_READ,
				       .size = i * 517,
				       .tag = i,
				       .completion = i % 2 ? CQ : NONE,
				       .local = t.mem[0].va,
				       .remote = t.mem[1].va });
	for (uint32_t i = 0; i < 40; i++) {
		requester_done(0, i, i * 517);
		if (i % 2)
			responder_done(1, i, i * 517);
	}
	assert_memory_equal(t.mem[0].host, t.mem[1].host, 39 * 517);
	nothing_more();
}

/* --- atomics ---------------------------------------------------------------------------------------------------- */

/* A queue for two types of work does both. */
static void mixed_read(void **state)
{
	make_ends(HBLDV_WQ_WRITE | HBLDV_WQ_READ_RDV, HBLDV_WQ_READ_RDV_ENDP, false, NULL);
	for (uint32_t i = 0; i < 40; i++)
		post(0, &(struct wqe){ .opcode = i % 2 ? RDV_READ : LINEAR,
				       .size = 600,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va + i / 2 * 600,
				       .remote = t.mem[1].va + (i % 2 ? 0 : SIZE / 2) });
	for (uint32_t i = 0; i < 40; i++) {
		requester_done(0, i, 600);
		responder_done(1, i, 600);
	}
	nothing_more();
}

static void mixed_rendezvous(void **state)
{
	const struct conn_attr attr = { .dest_wq_size = 64 };

	make_ends(HBLDV_WQ_WRITE | HBLDV_WQ_RECV_RDV, HBLDV_WQ_SEND_RDV, false, &attr);
	for (uint32_t i = 0; i < 20; i++) {
		post(0, &(struct wqe){ .opcode = LINEAR,
				       .size = 600,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[0].va,
				       .remote = t.mem[1].va + i * 600 });
		responder_done(1, i, 600);
		requester_done(0, i, 600);
		post(0, &(struct wqe){ .opcode = SEND, .size = 700, .local = t.mem[0].va + 4096 });
		requester_done(0, 0, 700);
		post(1, &(struct wqe){ .opcode = RDV_WRITE,
				       .size = 700,
				       .tag = i,
				       .completion = CQ,
				       .local = t.mem[1].va + i * 700 });
		responder_done(0, i, 700);
		requester_done(1, i, 700);
		assert_memory_equal((char *)t.mem[0].host + 4096, (char *)t.mem[1].host + i * 700,
				    700);
	}
	nothing_more();
}

static void fetch_add(void **state)
{
	uint64_t *word = (uint64_t *)((char *)t.mem[1].host + 64), *old = t.mem[0].host;
	uint32_t opcode = t.dev[0].gaudi3 ? FETCH_ADD_G3 : FETCH_ADD_R;
	uint64_t expected = 1ull << 40;

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, true, NULL);
	*word = expected;
	for (uint32_t i = 0; i < 50; i++) {
		post(0, &(struct wqe){ .opcode = opcode,
				       .size = 8,
				       .tag = i,
				       .local = t.mem[0].va,
				       .remote = t.mem[1].va + 64,
				       .add = (1ull << 33) + i });
		requester_done(0, i, 8);
		assert_int_equal(*old, expected);
		expected += (1ull << 33) + i;
		assert_int_equal(*word, expected);
	}
	if (!t.dev[0].gaudi3) { /* the one that brings nothing back */
		*old = 4711;
		post(0, &(struct wqe){ .opcode = FETCH_ADD_W,
				       .size = 8,
				       .tag = 99,
				       .remote = t.mem[1].va + 64,
				       .add = 1 });
		requester_done(0, 99, 8);
		assert_int_equal(*word, expected + 1);
		assert_int_equal(*old, 4711);
	}
	nothing_more();
}

/* --- ports and keys --------------------------------------------------------------------------------------------- */

static void keys(void **state)
{
	const struct conn_attr attr = { .local_key = 0x1234, .remote_key = 0x1234 };

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, &attr);
	post(0, &(struct wqe){
			.opcode = LINEAR, .size = 8, .local = t.mem[0].va, .remote = t.mem[1].va });
	requester_done(0, 0, 8);
	nothing_more();
}

/* A QP of the same device, asked for by the capability or by the port's own GID. */
static void loopback(void **state)
{
	const struct conn_attr attr = { .caps = HBLDV_QP_CAP_LOOPBACK };
	struct address to[2];

	for (int i = 0; i < 2; i++) {
		hbl_end_create(&t.end[i], &t.dev[0], &(struct end_attr){ .port = 1 });
		hbl_end_address(&t.end[i], &to[i]);
		memset(&to[i].gid, 0x77, sizeof(to[i].gid)); /* not looked at */
	}
	hbl_end_connect(&t.end[0], &to[1], &attr);
	hbl_end_connect(&t.end[1], &to[0], &attr);
	post(0, &(struct wqe){ .opcode = LINEAR,
			       .size = 500,
			       .completion = CQ,
			       .local = t.mem[0].va,
			       .remote = t.mem[0].va + 4096 });
	requester_done(0, 0, 500);
	responder_done(1, 0, 500);
	assert_memory_equal(t.mem[0].host, (char *)t.mem[0].host + 4096, 500);
	nothing_more();
}

/* An IP address that both devices have means the same port of the other one. */
static void shared_gid(void **state)
{
	struct address to[2];

	for (int i = 0; i < 2; i++) {
		hbl_end_create(&t.end[i], &t.dev[i], &(struct end_attr){ .port = 1 });
		hbl_end_address(&t.end[i], &to[i]);
		assert_int_equal(ibv_query_gid(t.dev[i].context, 1, 1, &to[i].gid), 0);
	}
	assert_memory_equal(&to[0].gid, &to[1].gid, sizeof(to[0].gid));
	hbl_end_connect(&t.end[0], &to[1], NULL);
	hbl_end_connect(&t.end[1], &to[0], NULL);
	post(0, &(struct wqe){ .opcode = LINEAR,
			       .size = 500,
			       .completion = CQ,
			       .local = t.mem[0].va,
			       .remote = t.mem[1].va });
	responder_done(1, 0, 500);
	requester_done(0, 0, 500);
	nothing_more();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(linear),           TEST(completion_types), TEST(inline_data),
		TEST(wrap_around),      TEST(batches),          TEST(strides),
		TEST(rendezvous_write), TEST(rendezvous_read),  TEST(mixed_read),
		TEST(mixed_rendezvous), TEST(fetch_add),        TEST(keys),
		TEST(loopback),         TEST(shared_gid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
