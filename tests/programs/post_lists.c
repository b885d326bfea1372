// SPDX-License-Identifier: MIT
/*
 * Lists of work requests in one call: all run in order; where one is refused, those before it are posted, it is named
 * in bad_wr, and those behind it are not. Also queues that signal everything, and receive queues that are full.
 */
#include "common.h"

#include <errno.h>
#include <string.h>

enum { COUNT = 32 };

static struct node a, b;
static struct address to;

static void make_list(struct ibv_send_wr *wr, struct ibv_sge *sge, int count)
{
	for (int i = 0; i < count; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)a.buf + i * 8, 8, a.mr->lkey };
		wr[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)i,
					      .next = i + 1 < count ? &wr[i + 1] : NULL,
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .opcode = IBV_WR_RDMA_WRITE,
					      .send_flags = IBV_SEND_SIGNALED };
		wr[i].wr.rdma.remote_addr = to.addr + (uint64_t)i * 8;
		wr[i].wr.rdma.rkey = to.rkey;
	}
}

static void whole_list(void)
{
	struct ibv_send_wr wr[COUNT], *bad = NULL;
	struct ibv_sge sge[COUNT];

	pattern_fill(a.buf, COUNT * 8, 1);
	make_list(wr, sge, COUNT);
	check_eq(ibv_post_send(a.qp, wr, &bad), 0);
	for (uint64_t i = 0; i < COUNT; i++)
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
	check_eq(pattern_check(b.buf, COUNT * 8, 1), COUNT * 8);
}

/* Request 10 has more entries than the QP. */
static void broken_list(void)
{
	struct ibv_send_wr wr[COUNT], *bad = NULL;
	struct ibv_sge sge[COUNT];
	struct ibv_wc wc;

	memset(b.buf, 0, COUNT * 8);
	make_list(wr, sge, COUNT);
	wr[10].num_sge = 1000;
	check(ibv_post_send(a.qp, wr, &bad) != 0, "the bad request was accepted");
	check(bad == &wr[10], "bad_wr is number %d", (int)(bad - wr));
	for (uint64_t i = 0; i < 10; i++)
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
	check(!cq_wait(a.send_cq, &wc, 5), "a request behind the bad one ran");
	check_eq(pattern_check(b.buf, 80, 1), 80);
	check_eq(b.buf[80], 0);
	whole_list();
}

static void receive_list(void)
{
	struct ibv_recv_wr wr[200], *bad = NULL;
	struct ibv_sge sge = { (uintptr_t)b.buf, 64, b.mr->lkey };
	int posted;

	for (int i = 0; i < 200; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = (uint64_t)i,
					      .next = i + 1 < 200 ? &wr[i + 1] : NULL,
					      .sg_list = &sge,
					      .num_sge = 1 };
	/* The queue has 64 (or what that was rounded up to): the list does not fit. */
	check_eq(ibv_post_recv(b.qp, wr, &bad), ENOMEM);
	posted = (int)(bad - wr);
	check(posted >= 64 && posted < 200, "%d were posted", posted);
	for (uint64_t i = 0; i < (uint64_t)posted; i++) {
		check_eq(node_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b.recv_cq, i, IBV_WC_SUCCESS);
	}
	wr[0].next = NULL;
	wr[0].num_sge = 1000;
	check(ibv_post_recv(b.qp, wr, &bad) != 0, "a receive with too many entries was accepted");
	check(bad == &wr[0], "bad_wr");
}

/* sq_sig_all: every request completes, whatever its flags. */
static void signal_all(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node x, y;

	attr.sig_all = true;
	node_pair(&x, &y, &attr);
	for (uint64_t i = 0; i < 100; i++) {
		check_eq(node_recv(&y, i, 0, 64), 0);
		check_eq(node_send(&x, i, 0, 8, 0), 0);
		cq_expect(x.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(y.recv_cq, i, IBV_WC_SUCCESS);
	}
	node_close(&x);
	node_close(&y);
}

/* The event of an error names the QP that has it. */
static void event_names_qp(void)
{
	struct ibv_async_event event;

	check_eq(node_rdma(&a, 1, IBV_WR_RDMA_WRITE, 0, 8, &to, to.size), 0);
	cq_expect(a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	check_eq(ibv_get_async_event(b.ctx, &event), 0);
	check_eq(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	check(event.element.qp == b.qp, "the event names another QP");
	ibv_ack_async_event(&event);
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	node_pair(&a, &b, &attr);
	node_address(&b, &to);
	whole_list();
	broken_list();
	receive_list();
	signal_all();
	event_names_qp();
	node_close(&a);
	node_close(&b);
	return 0;
}
