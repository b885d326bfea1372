// SPDX-License-Identifier: MIT
/*
 * Scatter and gather: 1 to 30 entries on either side, of random lengths with nothing among them, for SEND, WRITE and
 * READ. The receiver's list never cuts the message where the sender's does.
 */
#include "end.h"

#include <errno.h>
#include <string.h>

enum { MAX_SGE = 30, AREA = 256 * 1024 };

static uint64_t seed = 42;

/* Cut len bytes at addr into count entries, some of them empty; the pieces stay in order. */
static void cut(struct ibv_sge *sge, uint32_t count, uint64_t addr, uint32_t len, uint32_t lkey)
{
	uint32_t left = len;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t part =
			i + 1 == count ? left : next_random(&seed) % (left / (count - i) * 2 + 1);

		if (i + 1 < count && next_random(&seed) % 5 == 0)
			part = 0;
		if (part > left)
			part = left;
		/* An entry without bytes needs no address. */
		sge[i] = (struct ibv_sge){ part ? addr : 0, part, lkey };
		addr += part;
		left -= part;
	}
}

static void open_pair(struct node *a, struct node *b)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = AREA;
	attr.cap.max_send_sge = MAX_SGE;
	attr.cap.max_recv_sge = MAX_SGE;
	attr.cap.max_inline_data = 400;
	node_pair(a, b, &attr);
}

/* Lists of both sides for one SEND. */
static void send_lists(struct node *a, struct node *b, uint32_t n, uint32_t m, uint32_t len,
		       int flags)
{
	struct ibv_sge from[MAX_SGE], to[MAX_SGE];
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = to, .num_sge = (int)m };
	struct ibv_send_wr send = { .wr_id = 2,
				    .sg_list = from,
				    .num_sge = (int)n,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED | (unsigned int)flags };
	struct ibv_recv_wr *bad_recv;
	struct ibv_send_wr *bad_send;
	struct ibv_wc wc;

	pattern_fill(a->buf, len, n * 100 + m);
	memset(b->buf, 0, len + 64);
	cut(from, n, (uintptr_t)a->buf, len, a->mr->lkey);
	/* The receive list has room left, and may end in the middle of an entry. */
	cut(to, m, (uintptr_t)b->buf, len + next_random(&seed) % 64, b->mr->lkey);
	check_eq(ibv_post_recv(b->qp, &recv, &bad_recv), 0);
	check_eq(ibv_post_send(a->qp, &send, &bad_send), 0);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	cq_expect_at(__FILE__, __LINE__, b->recv_cq, 1, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, len);
	check(pattern_check(b->buf, len, n * 100 + m) == len, "%u to %u entries, %u bytes", n, m,
	      len);
}

/* The list is on our side only; the remote place is one piece. */
static void rdma_list(struct node *a, struct node *b, uint32_t n, uint32_t len, bool read)
{
	struct ibv_sge list[MAX_SGE];
	struct ibv_send_wr wr = { .wr_id = 3,
				  .sg_list = list,
				  .num_sge = (int)n,
				  .opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	uint8_t *from = read ? b->buf : a->buf, *to = read ? a->buf : b->buf;

	pattern_fill(from, len, n + len);
	memset(to, 0, len);
	cut(list, n, (uintptr_t)a->buf, len, a->mr->lkey);
	wr.wr.rdma.remote_addr = (uintptr_t)b->buf;
	wr.wr.rdma.rkey = b->mr->rkey;
	check_eq(ibv_post_send(a->qp, &wr, &bad), 0);
	cq_expect(a->send_cq, 3, IBV_WC_SUCCESS);
	check(pattern_check(to, len, n + len) == len, "%s of %u entries, %u bytes",
	      read ? "READ" : "WRITE", n, len);
}

int main(void)
{
	static const uint32_t lengths[] = { 0, 1, 64, 300, 1500, 4097, 70000, 200000 };
	struct ibv_device_attr device;
	struct node a, b;

	open_pair(&a, &b);
	check_eq(ibv_query_device(a.ctx, &device), 0);
	check(device.max_sge >= MAX_SGE, "max_sge %d", device.max_sge);
	for (uint32_t n = 1; n <= MAX_SGE; n++) {
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			send_lists(&a, &b, n, 1 + (n * 7 + (uint32_t)l) % MAX_SGE, lengths[l], 0);
			rdma_list(&a, &b, n, lengths[l], false);
			rdma_list(&a, &b, n, lengths[l], true);
		}
		/* Inline lists are gathered at posting. */
		send_lists(&a, &b, n, 1, 300, IBV_SEND_INLINE);
	}
	node_close(&a);
	node_close(&b);
	return 0;
}
