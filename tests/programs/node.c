// SPDX-License-Identifier: MIT
/*
 * One open device with PD, buffer, two CQs and a QP, and the steps that connect it. See common.h.
 */
#include "common.h"
#include "hosts.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct ibv_context *device_open(void)
{
	return hosts_open_device(getenv("VERBATIM_TEST_DEVICE"));
}

struct node_attr node_attr(enum ibv_qp_type type)
{
	struct node_attr attr = {
		.type = type,
		.cap = { .max_send_wr = 64,
			 .max_recv_wr = 64,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.cqe = 256,
		.sig_all = false,
		.size = 64 * 1024,
		.access = ACCESS_ALL,
		.qp_access = ACCESS_REMOTE,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
		.rd_atomic = 8,
		.dest_rd_atomic = 8,
		.gid_index = TEST_GID_INDEX,
	};

	/* UC has no responder for READ and atomics. */
	if (type == IBV_QPT_UC)
		attr.qp_access = IBV_ACCESS_REMOTE_WRITE;
	return attr;
}

struct ibv_qp *node_create_qp(struct node *node)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = node->send_cq,
		.recv_cq = node->recv_cq,
		.srq = node->srq,
		.cap = node->attr.cap,
		.qp_type = node->attr.type,
		.sq_sig_all = node->attr.sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = node->pd,
	};
	struct ibv_qp_init_attr plain = {
		.send_cq = node->send_cq,
		.recv_cq = node->recv_cq,
		.srq = node->srq,
		.cap = node->attr.cap,
		.qp_type = node->attr.type,
		.sq_sig_all = node->attr.sig_all,
	};

	if (!node->attr.send_ops)
		return ibv_create_qp(node->pd, &plain);
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = node->attr.send_ops;
	return ibv_create_qp_ex(node->ctx, &init);
}

static void open_srq(struct node *node)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = node->attr.cap.max_recv_wr,
			  .max_sge = node->attr.cap.max_recv_sge },
	};

	node->srq = ibv_create_srq(node->pd, &init);
	check(node->srq, "%s", strerror(errno));
}

void node_open(struct node *node, const struct node_attr *attr)
{
	struct ibv_port_attr port;

	memset(node, 0, sizeof(*node));
	node->attr = *attr;
	node->ctx = device_open();
	check_eq(ibv_query_port(node->ctx, 1, &port), 0);
	node->mtu = port.active_mtu;
	check_eq(ibv_query_gid(node->ctx, 1, attr->gid_index, &node->gid), 0);
	node->pd = ibv_alloc_pd(node->ctx);
	check(node->pd, "%s", strerror(errno));
	if (attr->events) {
		node->channel = ibv_create_comp_channel(node->ctx);
		check(node->channel, "%s", strerror(errno));
	}
	node->send_cq = ibv_create_cq(node->ctx, attr->cqe, node, node->channel, 0);
	check(node->send_cq, "%s", strerror(errno));
	node->recv_cq = ibv_create_cq(node->ctx, attr->cqe, node, node->channel, 0);
	check(node->recv_cq, "%s", strerror(errno));
	if (attr->srq)
		open_srq(node);
	node->buf = kind_map(attr->size, PROT_READ | PROT_WRITE);
	check(node->buf, "%s", strerror(errno));
	/* Registration touches every page; large ones keep that from being the longest part of a test. */
	if (attr->size >= 64u << 20)
		madvise(node->buf, attr->size, MADV_HUGEPAGE);
	node->mr = ibv_reg_mr(node->pd, node->buf, attr->size, attr->access);
	check(node->mr, "%s", strerror(errno));
	node->qp = node_create_qp(node);
	check(node->qp, "%s", strerror(errno));
}

void node_open_other(struct node *node, const struct node_attr *attr)
{
	struct host *host = hosts_wanted() ? host_open() : NULL;
	struct host *before = host_enter(host);

	node_open(node, attr);
	host_enter(before);
	node->host = host;
}

void node_close(struct node *node)
{
	if (node->qp)
		check_eq(ibv_destroy_qp(node->qp), 0);
	if (node->srq)
		check_eq(ibv_destroy_srq(node->srq), 0);
	if (node->mr)
		check_eq(ibv_dereg_mr(node->mr), 0);
	if (node->recv_cq)
		check_eq(ibv_destroy_cq(node->recv_cq), 0);
	if (node->send_cq)
		check_eq(ibv_destroy_cq(node->send_cq), 0);
	if (node->channel)
		check_eq(ibv_destroy_comp_channel(node->channel), 0);
	check_eq(ibv_dealloc_pd(node->pd), 0);
	check_eq(ibv_close_device(node->ctx), 0);
	kind_unmap(node->buf, node->attr.size);
	if (node->host)
		host_close(node->host);
	memset(node, 0, sizeof(*node));
}

void node_address(const struct node *node, struct address *address)
{
	memset(address, 0, sizeof(*address));
	address->qpn = node->qp->qp_num;
	address->psn = TEST_PSN;
	address->rkey = node->mr->rkey;
	address->addr = (uintptr_t)node->buf;
	address->size = node->attr.size;
	address->gid = node->gid;
}

int qp_set_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

enum ibv_qp_state qp_get_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	memset(&attr, 0, sizeof(attr));
	check_eq(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void ah_attr_to(struct ibv_ah_attr *ah, const union ibv_gid *gid)
{
	memset(ah, 0, sizeof(*ah));
	ah->is_global = 1;
	ah->grh.dgid = *gid;
	ah->grh.sgid_index = TEST_GID_INDEX;
	ah->grh.hop_limit = 64;
	ah->port_num = 1;
}

void node_to_init(struct node *node)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = 1,
		.qkey = TEST_QKEY,
		.qp_access_flags = (unsigned int)node->attr.qp_access,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= node->attr.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	check_eq(ibv_modify_qp(node->qp, &attr, mask), 0);
}

void node_to_rtr(struct node *node, const struct address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = node->mtu,
		.max_dest_rd_atomic = node->attr.dest_rd_atomic,
		.min_rnr_timer = node->attr.min_rnr_timer,
	};
	int mask = IBV_QP_STATE;

	if (node->attr.type != IBV_QPT_UD) {
		attr.dest_qp_num = peer->qpn;
		attr.rq_psn = peer->psn;
		ah_attr_to(&attr.ah_attr, &peer->gid);
		attr.ah_attr.grh.sgid_index = node->attr.gid_index;
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (node->attr.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	check_eq(ibv_modify_qp(node->qp, &attr, mask), 0);
}

void node_to_rts(struct node *node)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = TEST_PSN,
		.timeout = node->attr.timeout,
		.retry_cnt = node->attr.retry_cnt,
		.rnr_retry = node->attr.rnr_retry,
		.max_rd_atomic = node->attr.rd_atomic,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (node->attr.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	check_eq(ibv_modify_qp(node->qp, &attr, mask), 0);
}

void node_connect(struct node *node, const struct address *peer)
{
	if (qp_get_state(node->qp) != IBV_QPS_RESET)
		check_eq(qp_set_state(node->qp, IBV_QPS_RESET), 0);
	node_to_init(node);
	node_to_rtr(node, peer);
	node_to_rts(node);
}

void node_pair(struct node *a, struct node *b, const struct node_attr *attr)
{
	struct address aa, bb;

	node_open(a, attr);
	node_open_other(b, attr);
	node_address(a, &aa);
	node_address(b, &bb);
	node_connect(a, &bb);
	node_connect(b, &aa);
}

int node_send(struct node *node, uint64_t wr_id, size_t offset, uint32_t len, int flags)
{
	struct ibv_sge sge = { (uintptr_t)node->buf + offset, len, node->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = (unsigned int)flags,
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(node->qp, &wr, &bad);
}

int node_rdma(struct node *node, uint64_t wr_id, enum ibv_wr_opcode opcode, size_t offset,
	      uint32_t len, const struct address *peer, size_t remote)
{
	struct ibv_sge sge = { (uintptr_t)node->buf + offset, len, node->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = peer->addr + remote;
		wr.wr.atomic.rkey = peer->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = peer->addr + remote;
		wr.wr.rdma.rkey = peer->rkey;
	}
	return ibv_post_send(node->qp, &wr, &bad);
}

int node_recv(struct node *node, uint64_t wr_id, size_t offset, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)node->buf + offset, len, node->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	if (node->srq)
		return ibv_post_srq_recv(node->srq, &wr, &bad);
	return ibv_post_recv(node->qp, &wr, &bad);
}

bool cq_wait(struct ibv_cq *cq, struct ibv_wc *wc, unsigned int timeout_ms)
{
	uint64_t end = now_us() + timeout_ms * 1000ull;
	int n;

	do {
		n = ibv_poll_cq(cq, 1, wc);
		check(n >= 0, "poll_cq: %d", n);
		if (n)
			return true;
	} while (now_us() < end);
	return false;
}

void cq_expect_at(const char *file, int line, struct ibv_cq *cq, uint64_t wr_id,
		  enum ibv_wc_status status, struct ibv_wc *out)
{
	struct ibv_wc wc;

	memset(&wc, 0, sizeof(wc));
	if (!cq_wait(cq, &wc, PATIENCE_MS)) {
		test_failed(file, line, "a completion", " none came for wr_id %llu",
			    (unsigned long long)wr_id);
		return;
	}
	check_status_at(file, line, &wc, status);
	if (wc.wr_id != wr_id)
		test_failed(file, line, "order", " wr_id %llu came, not %llu",
			    (unsigned long long)wc.wr_id, (unsigned long long)wr_id);
	if (out)
		*out = wc;
}

int event_wait(struct ibv_context *ctx, unsigned int timeout_ms)
{
	struct pollfd pfd = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (poll(&pfd, 1, (int)timeout_ms) <= 0)
		return -1;
	check_eq(ibv_get_async_event(ctx, &event), 0);
	ibv_ack_async_event(&event);
	return (int)event.event_type;
}

/* --- raw Ethernet ------------------------------------------------------------------------------- */

struct ibv_flow *flow_all(struct ibv_qp *qp)
{
	struct ibv_flow_attr attr = { .type = IBV_FLOW_ATTR_ALL_DEFAULT,
				      .size = sizeof(attr),
				      .port = 1 };
	struct ibv_flow *flow = ibv_create_flow(qp, &attr);

	check(flow, "%s", strerror(errno));
	return flow;
}

void raw_to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	check_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	check_eq(qp_set_state(qp, IBV_QPS_RTR), 0);
	check_eq(qp_set_state(qp, IBV_QPS_RTS), 0);
}
