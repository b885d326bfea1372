// SPDX-License-Identifier: MIT
/*
 * Bandwidth and latency between two processes, in the style of the vendor's program: a window of writes from a ring of
 * buffers on several QPs, one doorbell for several entries, every buffer verified at the end; then small messages back and
 * forth, waited for in memory and not in a CQ. Prints both; asserts only what arrived.
 */
#include "hbl.h"

#include <sched.h>

enum { QPS = 4, SLOTS = 16, SLOT = 256 << 10, ROUNDS = 40, PINGS = 2000 };

static struct {
	struct dev dev;
	struct mem out, in;
	struct end end[QPS];
	struct fifo fifo[QPS];
	struct address own[QPS], peer[QPS];
} s;

static void set_up(int number, int fd)
{
	dev_open(&s.dev, number);
	mem_device(&s.out, &s.dev, (size_t)QPS * SLOTS * SLOT);
	mem_device(&s.in, &s.dev, (size_t)QPS * SLOTS * SLOT);
	for (uint32_t i = 0; i < QPS; i++) {
		set_port(&s.dev, i + 1);
		hbl_end_create(&s.end[i], &s.dev, &(struct end_attr){ .port = i + 1, .wqes = 64 });
		hbl_end_address(&s.end[i], &s.own[i]);
		s.own[i].va = s.in.va + (uint64_t)i * SLOTS * SLOT;
	}
	tell(fd, s.own, sizeof(s.own));
	hear(fd, s.peer, sizeof(s.peer));
	for (uint32_t i = 0; i < QPS; i++) {
		hbl_end_connect(&s.end[i], &s.peer[i], NULL);
		fifo_create(&s.fifo[i], &s.dev, i + 1, HBLDV_USR_FIFO_TYPE_DB);
	}
	meet(fd);
}

static void send_round(uint32_t round)
{
	struct cqe cqe;

	for (uint32_t i = 0; i < QPS; i++) {
		for (uint32_t k = 0; k < SLOTS; k++)
			hbl_end_post(
				&s.end[i],
				&(struct wqe){ .opcode = LINEAR,
					       .size = SLOT,
					       .tag = round,
					       .completion = k == SLOTS - 1 ? CQ : NONE,
					       .local = s.out.va + (i * SLOTS + k) * (uint64_t)SLOT,
					       .remote = s.peer[i].va + k * (uint64_t)SLOT },
				k == SLOTS - 1);
		fifo_ring(&s.fifo[i], s.end[i].q.qp_num, hbl_end_pi(&s.end[i]));
	}
	for (uint32_t i = 0; i < QPS; i++) {
		hbl_cq_wait(&s.end[i].req, &cqe);
		CHECK(cqe.tag == ~round);
	}
}

static void receive_round(uint32_t round)
{
	struct cqe cqe;

	for (uint32_t i = 0; i < QPS; i++) {
		hbl_cq_wait(&s.end[i].res, &cqe);
		CHECK(cqe.tag == round && cqe.size == SLOT);
	}
}

static void bandwidth(int number, int fd)
{
	uint64_t start = now_ns();
	double seconds;

	fill(s.out.host, s.out.size, 1);
	meet(fd);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		if (number)
			receive_round(round);
		else
			send_round(round);
	}
	seconds = (double)(now_ns() - start) / 1e9;
	if (number)
		CHECK(is_filled(s.in.host, s.in.size, 1));
	else
		printf("bandwidth: %.1f MB/s\n",
		       (double)ROUNDS * QPS * SLOTS * SLOT / seconds / 1e6);
}

/* The last byte of a message is the last to arrive. */
static void wait_byte(uint8_t value)
{
	volatile uint8_t *byte = (uint8_t *)s.in.host + 63;
	uint64_t start = now_ns();

	while (*byte != value) {
		CHECK(now_ns() - start < 20000000000ull);
		sched_yield();
	}
}

static void latency(int number, int fd)
{
	uint64_t start;
	struct cqe cqe;

	((volatile uint8_t *)s.in.host)[63] = 0;
	meet(fd);
	start = now_ns();
	for (uint32_t i = 1; i <= PINGS; i++) {
		if (number)
			wait_byte((uint8_t)i);
		((volatile uint8_t *)s.out.host)[63] = (uint8_t)i;
		hbl_end_post(&s.end[0],
			     &(struct wqe){ .opcode = LINEAR,
					    .size = 64,
					    .tag = i,
					    .local = s.out.va,
					    .remote = s.peer[0].va },
			     true);
		fifo_ring(&s.fifo[0], s.end[0].q.qp_num, hbl_end_pi(&s.end[0]));
		if (!number)
			wait_byte((uint8_t)i);
		hbl_cq_wait(&s.end[0].req, &cqe);
		CHECK(cqe.tag == ~i);
	}
	if (!number)
		printf("latency: %.2f us\n", (double)(now_ns() - start) / PINGS / 2000);
}

static void side(int number, int fd)
{
	set_up(number, fd);
	bandwidth(number, fd);
	latency(number, fd);
	meet(fd);
	CHECK(no_event(&s.dev));
	for (int i = 0; i < QPS; i++) {
		CHECK(!hbldv_destroy_usr_fifo(s.fifo[i].usr));
		hbl_end_destroy(&s.end[i]);
	}
	mem_free(&s.out);
	mem_free(&s.in);
	dev_close(&s.dev);
}

int main(void)
{
	return run_pair(side);
}
