// SPDX-License-Identifier: MIT
/* Sender and reflector over RAW_PACKET queue pairs, as a host program has them. */
#include "reflect.h"

#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

enum { DEPTH = 128 };

struct port {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_flow *flow;
	uint8_t *buf; /* DEPTH slots to receive, FLOWS to send from */
};

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		die(name);
	ibv_free_device_list(list);
	return ctx;
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT))
		die("ibv_modify_qp");
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("ibv_modify_qp");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("ibv_modify_qp");
}

static void put_mac(uint8_t *to, uint64_t mac)
{
	for (int i = 0; i < 6; i++)
		to[i] = (uint8_t)(mac >> (40 - 8 * i));
}

static void port_flow(struct port *p, uint64_t mac)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} flow = { { .size = sizeof(flow), .num_of_specs = 1, .port = 1 },
		   { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(struct ibv_flow_spec_eth) } };

	put_mac(flow.eth.val.dst_mac, mac);
	put_mac(flow.eth.mask.dst_mac, ~0ull);
	p->flow = ibv_create_flow(p->qp, &flow.attr);
	if (!p->flow)
		die("ibv_create_flow");
}

/* Post slots again, all with one call. */
static void post_receives(struct port *p, const uint64_t *slots, int count)
{
	struct ibv_recv_wr wr[DEPTH], *bad;
	struct ibv_sge sge[DEPTH];

	for (int i = 0; i < count; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)p->buf + slots[i] * SLOT, SLOT, p->mr->lkey };
		wr[i] = (struct ibv_recv_wr){ slots[i], i + 1 < count ? &wr[i + 1] : NULL, &sge[i],
					      1 };
	}
	if (count && ibv_post_recv(p->qp, wr, &bad))
		die("ibv_post_recv");
}

static void port_open(struct port *p, const char *device, uint64_t mac)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET,
					 .cap = { .max_send_wr = DEPTH,
						  .max_recv_wr = DEPTH,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	uint64_t slots[DEPTH];

	p->ctx = open_named(device);
	p->pd = ibv_alloc_pd(p->ctx);
	p->send_cq = ibv_create_cq(p->ctx, DEPTH, NULL, NULL, 0);
	p->recv_cq = ibv_create_cq(p->ctx, DEPTH, NULL, NULL, 0);
	init.send_cq = p->send_cq;
	init.recv_cq = p->recv_cq;
	p->qp = ibv_create_qp(p->pd, &init);
	p->buf = aligned_alloc(4096, (DEPTH + FLOWS) * SLOT);
	p->mr = ibv_reg_mr(p->pd, p->buf, (DEPTH + FLOWS) * SLOT, IBV_ACCESS_LOCAL_WRITE);
	if (!p->qp || !p->mr)
		die("making a queue pair");
	to_rts(p->qp);
	for (uint64_t i = 0; i < DEPTH; i++)
		slots[i] = i;
	post_receives(p, slots, DEPTH);
	port_flow(p, mac);
}

static void port_close(struct port *p)
{
	ibv_destroy_flow(p->flow);
	ibv_destroy_qp(p->qp);
	ibv_destroy_cq(p->send_cq);
	ibv_destroy_cq(p->recv_cq);
	ibv_dereg_mr(p->mr);
	ibv_dealloc_pd(p->pd);
	ibv_close_device(p->ctx);
	free(p->buf);
}

/* Send count slots (at, size) with one doorbell; the last one completes. */
static void post_sends(struct port *p, const uint64_t *slots, const uint32_t *sizes, int count)
{
	struct ibv_send_wr wr[BATCH], *bad;
	struct ibv_sge sge[BATCH];

	memset(wr, 0, sizeof(wr[0]) * (size_t)count);
	for (int i = 0; i < count; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)p->buf + slots[i] * SLOT, sizes[i],
					   p->mr->lkey };
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_SEND;
		wr[i].send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED;
	}
	if (ibv_post_send(p->qp, wr, &bad))
		die("ibv_post_send");
}

static void await_send(struct port *p)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(p->send_cq, 1, &wc))
		;
	if (wc.status != IBV_WC_SUCCESS)
		die("a send");
}

/* Take what has come, at most BATCH frames. */
static int take(struct port *p, uint64_t *slots, uint32_t *sizes)
{
	struct ibv_wc wc[BATCH];
	int count = ibv_poll_cq(p->recv_cq, BATCH, wc);

	for (int i = 0; i < count; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			die("a receive");
		slots[i] = wc[i].wr_id;
		sizes[i] = wc[i].byte_len;
	}
	return count;
}

/* ---- the reflector ---- */

void qp_reflect(void)
{
	uint64_t slots[BATCH];
	uint32_t sizes[BATCH];
	struct port p;

	port_open(&p, "mlx5_0", REFLECTOR_MAC);
	ready("host loop");
	for (;;) {
		int count = take(&p, slots, sizes);

		if (!count)
			continue;
		for (int i = 0; i < count; i++)
			swap_macs(p.buf + slots[i] * SLOT);
		post_sends(&p, slots, sizes, count);
		await_send(&p);
		post_receives(&p, slots, count);
	}
}

/* ---- the sender ---- */

static struct port sender;
static uint32_t sender_size;

static void sender_open(uint32_t size)
{
	sender_size = size;
	port_open(&sender, "mlx5_1", SENDER_MAC);
	for (uint32_t i = 0; i < FLOWS; i++)
		make_frame(sender.buf + (DEPTH + i) * SLOT, size, i);
}

static void send_batch(void)
{
	static uint32_t flow;
	uint64_t slots[BATCH];
	uint32_t sizes[BATCH];

	for (int i = 0; i < BATCH; i++) {
		slots[i] = DEPTH + flow++ % FLOWS;
		sizes[i] = sender_size;
	}
	post_sends(&sender, slots, sizes, BATCH);
	await_send(&sender);
}

static void sender_run(uint64_t n, uint64_t *lost)
{
	uint64_t sent = 0, got = 0, slots[BATCH];
	uint32_t sizes[BATCH];
	double since = now();
	int count;

	while (got < n) {
		for (; sent - got + BATCH <= WINDOW && sent < n + WINDOW; sent += BATCH)
			send_batch();
		count = take(&sender, slots, sizes);
		post_receives(&sender, slots, count);
		got += (uint64_t)count;
		if (count) {
			since = now();
		} else if (now() - since > GIVE_UP * 1e6) {
			*lost += sent - got;
			sent = got;
			since = now();
		}
	}
	/* What is still on its way must not be counted next time. */
	for (since = now(); got < sent && now() - since < GIVE_UP * 1e6; got += (uint64_t)count) {
		count = take(&sender, slots, sizes);
		post_receives(&sender, slots, count);
	}
}

static void sender_close(void)
{
	port_close(&sender);
}

const struct sender qp_sender = { sender_open, sender_run, sender_close };
