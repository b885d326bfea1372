// SPDX-License-Identifier: MIT
/*
 * Random work between two processes against a model: SEND, WRITE, READ and atomics of all sizes, with and without
 * immediate data, inline, fence and signal, many at once. Completions come in order, every byte and every old value
 * is the one the model says. The argument is the number of READs and atomics on the way at once.
 *
 *	memory of both:  | 64 slots of 8 KiB | 64 slots of 8 KiB | 8 words |
 *	requester         source or result    -                   -
 *	responder         receive buffers     targets of WRITE    targets of atomics
 *
 * Slots of 64 for 32 requests on the way: what is looked at is never overwritten at the same time.
 */
#include "common.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>

enum { OPS = 20000, SLOTS = 64, SLOT = 8192, WINDOW = 32, WORDS = 8 };
enum { TARGETS = SLOTS * SLOT, COUNTERS = 2 * SLOTS * SLOT, SIZE = COUNTERS + 4096 };

struct op {
	enum ibv_wr_opcode opcode;
	uint32_t len;
	uint32_t seed; /* of the bytes that are sent, or that a READ must bring */
	uint64_t old;  /* what an atomic must bring */
	uint32_t from; /* READ: the slot */
};

/* Of one side, which may be a thread. */
static _Thread_local struct node node;
static _Thread_local struct address peer;
static _Thread_local struct op ops[SLOTS];     /* by number modulo SLOTS */
static _Thread_local struct op written[SLOTS]; /* what lies in the responder's target slots */
static _Thread_local uint64_t words[WORDS];    /* the responder's words, as the model has them */
static _Thread_local uint64_t noise;

/* On a network that loses packets (impair.c): less work, and less patience with each packet. */
static bool is_impaired(void)
{
	return getenv("VERBATIM_TEST_IMPAIR");
}

static void open_node(int rd_atomic)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	if (is_impaired()) {
		attr.timeout = 12;
		attr.retry_cnt = 7;
	}

	attr.size = SIZE;
	attr.cap.max_inline_data = 128;
	attr.rd_atomic = attr.dest_rd_atomic = (uint8_t)rd_atomic;
	node_open(&node, &attr);
	memset(node.buf, 0, SIZE);
}

/* --- responder ----------------------------------------------------------------------------------- */

static int responder(int rd_atomic)
{
	uint64_t received = 0, total = UINT64_MAX;
	struct ibv_wc wc;

	open_node(rd_atomic);
	node_meet(&node, ROLE_FD, &peer);
	for (uint64_t i = 0; i < SLOTS; i++)
		check_eq(node_recv(&node, i, i * SLOT, SLOT), 0);
	msg_send(ROLE_FD, "", 1);
	while (received < total) {
		const uint8_t *slot = node.buf + received % SLOTS * SLOT;
		uint32_t number;

		if (ibv_poll_cq(node.recv_cq, 1, &wc) == 0) {
			if (total == UINT64_MAX && recv(ROLE_FD, &total, 8, MSG_DONTWAIT) == 0)
				return 1;
			continue;
		}
		check_status(&wc, IBV_WC_SUCCESS);
		check_eq(wc.wr_id, received % SLOTS);
		memcpy(&number, slot, 4);
		if (wc.opcode == IBV_WC_RECV && wc.byte_len >= 4) {
			if (wc.wc_flags & IBV_WC_WITH_IMM)
				check_eq(be32toh(wc.imm_data), number);
			check(pattern_check(slot + 4, wc.byte_len - 4, number) == wc.byte_len - 4,
			      "message %u of %u bytes", number, wc.byte_len);
		}
		check_eq(node_recv(&node, wc.wr_id, wc.wr_id * SLOT, SLOT), 0);
		received++;
	}
	check(ibv_poll_cq(node.recv_cq, 1, &wc) == 0, "a message too many");
	node_close(&node);
	return 0;
}

/* --- requester ----------------------------------------------------------------------------------- */

static uint32_t random_length(void)
{
	static const uint32_t most[] = { 16, 128, 1100, SLOT };

	return next_random(&noise) % (most[next_random(&noise) % 4] - 8);
}

static void fill_atomic(struct op *op, struct ibv_send_wr *wr)
{
	uint32_t w = next_random(&noise) % WORDS;

	op->len = 8;
	op->old = words[w];
	wr->wr.atomic.remote_addr = peer.addr + COUNTERS + w * 8;
	wr->wr.atomic.rkey = peer.rkey;
	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.compare_add = next_random(&noise);
		words[w] += wr->wr.atomic.compare_add;
	} else {
		/* Half of them fit. */
		wr->wr.atomic.compare_add = words[w] + next_random(&noise) % 2;
		wr->wr.atomic.swap = next_random(&noise);
		if (wr->wr.atomic.compare_add == words[w])
			words[w] = wr->wr.atomic.swap;
	}
}

/* Decide what request i is, and what it must bring; true where it takes a receive. */
static bool fill(uint64_t i, struct op *op, struct ibv_send_wr *wr, uint8_t *slot)
{
	static const enum ibv_wr_opcode kinds[] = {
		IBV_WR_SEND,       IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,  IBV_WR_RDMA_READ,
		IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	uint32_t number = (uint32_t)i;

	op->opcode = kinds[next_random(&noise) % 9];
	op->seed = number;
	op->len = random_length() + 4;
	wr->imm_data = htobe32(number);
	wr->wr.rdma.rkey = peer.rkey;
	switch (op->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		memcpy(slot, &number, 4);
		pattern_fill(slot + 4, op->len - 4, number);
		return true;
	case IBV_WR_RDMA_READ:
		/* Of a slot that some earlier WRITE filled, and that no request on the way will change. */
		op->from = (uint32_t)((i + SLOTS - next_random(&noise) % 16) % SLOTS);
		op->seed = written[op->from].seed;
		op->len = written[op->from].len;
		wr->wr.rdma.remote_addr = peer.addr + TARGETS + op->from * SLOT;
		memset(slot, 0xee, op->len);
		return false;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		pattern_fill(slot, op->len, number);
		written[i % SLOTS] = *op;
		wr->wr.rdma.remote_addr = peer.addr + TARGETS + i % SLOTS * SLOT;
		return op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	default:
		fill_atomic(op, wr);
		memset(slot, 0xee, 8);
		return false;
	}
}

static bool post(uint64_t i)
{
	struct op *op = &ops[i % SLOTS];
	uint8_t *slot = node.buf + i % SLOTS * SLOT;
	struct ibv_sge sge = { (uintptr_t)slot, 0, node.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
	bool takes, outgoing;

	takes = fill(i, op, &wr, slot);
	sge.length = op->len;
	wr.opcode = op->opcode;
	outgoing = op->opcode != IBV_WR_RDMA_READ && op->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD &&
		   op->opcode != IBV_WR_ATOMIC_CMP_AND_SWP;
	if (outgoing && op->len <= 128 && next_random(&noise) % 2)
		wr.send_flags |= IBV_SEND_INLINE;
	if (next_random(&noise) % 8 == 0)
		wr.send_flags |= IBV_SEND_FENCE;
	/* At least every eighth is signalled, so that the window moves on. */
	if (next_random(&noise) % 2 || i % 8 == 7)
		wr.send_flags |= IBV_SEND_SIGNALED;
	check_eq(ibv_post_send(node.qp, &wr, &bad), 0);
	return takes;
}

static void verify(uint64_t i)
{
	const struct op *op = &ops[i % SLOTS];
	const uint8_t *slot = node.buf + i % SLOTS * SLOT;
	uint64_t old;

	if (op->opcode == IBV_WR_RDMA_READ) {
		check(pattern_check(slot, op->len, op->seed) == op->len, "READ %llu of %u bytes",
		      (unsigned long long)i, op->len);
	} else if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		   op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		memcpy(&old, slot, 8);
		check(old == op->old, "atomic %llu brought %llx, not %llx", (unsigned long long)i,
		      (unsigned long long)old, (unsigned long long)op->old);
	}
}

static void run(const char *role, int rd_atomic)
{
	uint64_t posted = 0, done = 0, messages = 0, end = is_impaired() ? OPS / 10 : OPS;
	struct ibv_wc wc;
	char ready;
	pid_t pid;
	int fd;

	memset(written, 0, sizeof(written));
	memset(words, 0, sizeof(words));
	noise = (uint64_t)rd_atomic;
	pid = spawn_self(role, &fd);
	open_node(rd_atomic);
	node_meet(&node, fd, &peer);
	msg_recv(fd, &ready, 1);
	while (done < end) {
		while (posted < end && posted - done < WINDOW)
			messages += post(posted++);
		if (ibv_poll_cq(node.send_cq, 1, &wc) == 0)
			continue;
		check_status(&wc, IBV_WC_SUCCESS);
		check(wc.wr_id >= done && wc.wr_id < posted, "completion of %llu after %llu",
		      (unsigned long long)wc.wr_id, (unsigned long long)done);
		for (; done <= wc.wr_id; done++)
			verify(done);
	}
	msg_send(fd, &messages, sizeof(messages));
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strncmp(argv[1], "responder", 9))
		return responder(atoi(argv[1] + 9));
	run("responder1", 1);
	run("responder4", 4);
	run("responder16", 16);
	return 0;
}
