// SPDX-License-Identifier: MIT
/*
 * Congestion control: messages of a CC FIFO change window and pace of a QP, and the measured rate follows; reports go to the
 * CC CQ.
 *
 * No time is asserted: a pace is a promise that a transfer takes at least so long, and rates of one run are compared with
 * each other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <unistd.h>

enum { SIZE = 1 << 20, WINDOW = 1, PACE = 2, BURST = 4 };

static struct {
	struct dev dev[2];
	struct mem mem[2];
	struct end end[2];
	struct fifo db, cc;
	struct ibv_cq *cc_cq;
	struct hbldv_query_cq_attr ccq;
	uint32_t messages;
} t;

static int set_up(void **state)
{
	const struct conn_attr attr = { .caps = HBLDV_QP_CAP_CONG_CTRL };
	struct hbldv_cq_attr cq = { .port_num = 1, .cq_type = HBLDV_CQ_TYPE_CC };

	t.messages = 0;
	for (int i = 0; i < 2; i++) {
		dev_open(&t.dev[i], i);
		set_port(&t.dev[i], 1);
		mem_device(&t.mem[i], &t.dev[i], SIZE);
		hbl_end_create(&t.end[i], &t.dev[i], &(struct end_attr){ .port = 1 });
	}
	t.cc_cq = hbldv_create_cq(t.dev[0].context, 64, NULL, 0, &cq);
	CHECK(t.cc_cq && !hbldv_query_cq(t.cc_cq, &t.ccq));
	ends_connect(&t.end[0], &t.end[1], &attr);
	fifo_create(&t.db, &t.dev[0], 1, HBLDV_USR_FIFO_TYPE_DB);
	fifo_create(&t.cc, &t.dev[0], 1, HBLDV_USR_FIFO_TYPE_CC);
	return 0;
}

static int tear_down(void **state)
{
	CHECK(!hbldv_destroy_usr_fifo(t.db.usr));
	CHECK(!hbldv_destroy_usr_fifo(t.cc.usr));
	CHECK(!ibv_destroy_cq(t.cc_cq));
	for (int i = 0; i < 2; i++) {
		hbl_end_destroy(&t.end[i]);
		mem_free(&t.mem[i]);
		dev_close(&t.dev[i]);
	}
	return 0;
}

static void tell_card(uint32_t qpn, uint32_t valid, uint32_t window, uint32_t burst, uint32_t pace)
{
	volatile uint32_t *regs =
		(uint32_t *)((char *)t.cc.usr->regs_cpu_addr + t.cc.usr->regs_offset);

	if (t.messages++ % 2) { /* by dwords, or by two of them */
		regs[0] = burst;
		regs[1] = window;
		regs[2] = pace;
		regs[3] = qpn | valid << 24;
	} else {
		((volatile uint64_t *)regs)[0] = burst | (uint64_t)window << 32;
		((volatile uint64_t *)regs)[1] = pace | (uint64_t)(qpn | valid << 24) << 32;
	}
}

/* Bytes per second of count writes of size bytes. */
static double rate(int count, uint32_t size)
{
	uint64_t start = now_ns();
	struct cqe cqe;

	for (int i = 0; i < count; i++)
		hbl_end_post(&t.end[0],
			     &(struct wqe){ .opcode = LINEAR,
					    .size = size,
					    .tag = (uint32_t)i,
					    .local = t.mem[0].va,
					    .remote = t.mem[1].va },
			     i == count - 1);
	fifo_ring(&t.db, t.end[0].q.qp_num, hbl_end_pi(&t.end[0]));
	hbl_cq_wait(&t.end[0].req, &cqe);
	CHECK(cqe.tag == ~(uint32_t)(count - 1));
	return (double)count * size * 1e9 / (double)(now_ns() - start);
}

/*
 * Whether the card sends faster than a limit: a busy machine is slow at times, and a card that is held back is
 * slow each time.
 */
static bool exceeds(double limit)
{
	for (int tries = 0; tries < 50; tries++)
		if (rate(8, SIZE) > limit)
			return true;
	return false;
}

static void pace_changes_the_rate(void **state)
{
	/* Two bursts may go at once, at the start. */
	const double told = 65536 / 4e-3, at_most = told * SIZE * 2 / (SIZE * 2 - 3 * 65536);
	const uint32_t qpn = t.end[0].q.qp_num;

	assert_true(exceeds(2 * at_most));
	tell_card(qpn, PACE | BURST, 0, 65536, 4000); /* 16.4 MB/s */
	assert_true(rate(2, SIZE) < at_most);
	tell_card(qpn, BURST, 0, 32768, 0); /* half of it */
	assert_true(rate(2, SIZE) < at_most / 2);
	tell_card(qpn, PACE, 0, 0, 0); /* none */
	assert_true(exceeds(2 * at_most));
	assert_memory_equal(t.mem[0].host, t.mem[1].host, SIZE);
}

/* Reports since the last call: how many, and the most packets that one of them acknowledged. */
static uint32_t reports(uint32_t *most)
{
	static uint32_t seen;
	uint32_t pi = *(volatile uint32_t *)t.ccq.pi_cpu_addr, count = 0;
	const uint32_t *entry = t.ccq.mem_cpu_addr;

	if (pi < seen)
		seen = 0;
	*most = 0;
	for (; seen < pi; seen++, count++) {
		const uint32_t *e = entry + 4 * (seen % 64);

		if (pi - seen > 64)
			continue; /* overwritten */
		assert_true(e[0] >> 31);
		assert_int_equal(e[0] >> 29 & 1, !(seen & 64)); /* the phase */
		assert_int_equal(e[1], t.end[0].q.qp_num);
		*most = e[3] > *most ? e[3] : *most;
	}
	return count;
}

static void window_bounds_packets_in_flight(void **state)
{
	uint32_t most, count;

	rate(1, SIZE);
	count = reports(&most);
	assert_true(count >= 1);
	assert_true(most > 1); /* 128 packets, and no bound */
	tell_card(t.end[0].q.qp_num, WINDOW, 1, 0, 0);
	rate(1, SIZE);
	count = reports(&most);
	assert_int_equal(count, SIZE / 8192);
	assert_int_equal(most, 1);
	tell_card(t.end[0].q.qp_num, WINDOW, 3, 0, 0);
	rate(1, SIZE);
	reports(&most);
	assert_in_range(most, 1, 3);
}

static void consumer_index(void **state)
{
	for (uint32_t i = 1; i < 200; i++) {
		uint32_t expected = t.dev[0].gaudi3 ? 4 * i & 0x7ff : (2 * i - 1) & 63;

		tell_card(t.end[0].q.qp_num, WINDOW, 100, 0, 0);
		assert_int_equal(*(volatile uint32_t *)t.cc.usr->ci_cpu_addr, expected);
	}
	/* A message for nobody. */
	tell_card(8191, WINDOW, 100, 0, 0);
	expect_event(&t.dev[0], IBV_EVENT_PORT_ERR);
	/* Messages of the other algorithm are taken and change nothing. */
	volatile uint32_t *regs =
		(uint32_t *)((char *)t.cc.usr->regs_cpu_addr + t.cc.usr->regs_offset);
	regs[0] = 1 << 22;
	regs[1] = regs[2] = 1;
	regs[3] = t.end[0].q.qp_num | 0xfu << 24;
	rate(8, SIZE);
	assert_true(no_event(&t.dev[0]));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pace_changes_the_rate),
		TEST(window_bounds_packets_in_flight),
		TEST(consumer_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
