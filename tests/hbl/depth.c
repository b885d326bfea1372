// SPDX-License-Identifier: MIT
/*
 * Two processes that write to each other as fast as their own work queue allows, with completion queues no deeper than
 * that: post one, look at the requester's CQ, look at the responder's, and again, without ever letting the other process
 * run. What a side sends is bounded by what was acknowledged, and by nothing that the other side's program did. So a
 * program that lost its core for a moment finds its responder's CQ full, and must lose nothing by it.
 */
#include "hbl.h"

enum { DEPTH = 128, MESSAGES = 10000, SIZE = 4096, LIMIT_S = 40 };

static struct {
	struct dev dev;
	struct mem out, in;
	struct end end;
	struct fifo fifo;
	struct address own, peer;
} s;

static void set_up(int number, int fd)
{
	dev_open(&s.dev, number);
	set_port(&s.dev, 1);
	mem_device(&s.out, &s.dev, SIZE);
	mem_device(&s.in, &s.dev, SIZE);
	hbl_end_create(&s.end, &s.dev,
		       &(struct end_attr){ .port = 1, .wqes = DEPTH, .cqes = DEPTH });
	hbl_end_address(&s.end, &s.own);
	s.own.va = s.in.va;
	tell(fd, &s.own, sizeof(s.own));
	hear(fd, &s.peer, sizeof(s.peer));
	hbl_end_connect(&s.end, &s.peer, NULL);
	fifo_create(&s.fifo, &s.dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	fill(s.out.host, SIZE, 3);
	meet(fd);
}

/* As programs count: one entry of a work queue stays free. */
static void try_send(uint32_t sent)
{
	if (s.end.pi == MESSAGES || s.end.pi - sent >= DEPTH - 1 || fifo_free(&s.fifo) <= 2)
		return;
	hbl_end_write(&s.end, &s.fifo, s.out.va, s.peer.va, SIZE, s.end.pi);
}

static void run(int number)
{
	uint32_t sent = 0, received = 0;
	uint64_t start = now_ns();
	struct cqe cqe;

	while (sent < MESSAGES || received < MESSAGES) {
		try_send(sent);
		while (hbl_cq_poll(&s.end.req, &cqe))
			CHECK(cqe.requester && cqe.tag == ~sent++);
		while (hbl_cq_poll(&s.end.res, &cqe))
			CHECK(!cqe.requester && cqe.tag == received++);
		if (now_ns() - start > LIMIT_S * 1000000000ull) {
			fprintf(stderr,
				"side %d stands still: %u sent, %u received, PI %u, CI %u\n",
				number, sent, received, *(uint32_t *)s.end.res.q.pi_cpu_addr,
				s.end.res.ci);
			exit(1);
		}
	}
}

static void side(int number, int fd)
{
	set_up(number, fd);
	run(number);
	CHECK(is_filled(s.in.host, SIZE, 3));
	meet(fd);
	CHECK(no_event(&s.dev));
	CHECK(!hbldv_destroy_usr_fifo(s.fifo.usr));
	hbl_end_destroy(&s.end);
	mem_free(&s.out);
	mem_free(&s.in);
	dev_close(&s.dev);
}

int main(void)
{
	return run_pair(side);
}
