/* SPDX-License-Identifier: MIT */
/* A host program with a queue pair of libibverbs that is connected to one of device code in another process. */
#pragma once

#include "check.h"

#include <infiniband/verbs.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { PEER_SIZE = 8192 };

/* What the two tell each other. */
struct hello {
	uint32_t qpn, key;
	uint64_t addr;
	union ibv_gid gid;
};

static inline void tell(int fd, const void *what, size_t size)
{
	CHECK(write(fd, what, size) == (ssize_t)size);
}

static inline void hear(int fd, void *what, size_t size)
{
	CHECK(recv(fd, what, size, MSG_WAITALL) == (ssize_t)size);
}

struct peer {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint64_t *buf;
	struct hello other;
};

static inline void peer_connect(struct peer *p)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC };

	CHECK(!ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = p->other.qpn,
				     .rq_psn = 0x123,
				     .max_dest_rd_atomic = 8,
				     .min_rnr_timer = 1,
				     .ah_attr = {
					     .is_global = 1,
					     .port_num = 1,
					     .grh = { .dgid = p->other.gid, .hop_limit = 64 } } };
	CHECK(!ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .sq_psn = 0x123,
				     .max_rd_atomic = 8 };
	CHECK(!ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void peer_open(struct peer *p, int fd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 64,
						  .max_recv_wr = 64,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct hello self;

	p->ctx = open_device();
	p->pd = ibv_alloc_pd(p->ctx);
	p->cq = ibv_create_cq(p->ctx, 128, NULL, NULL, 0);
	init.send_cq = init.recv_cq = p->cq;
	p->qp = ibv_create_qp(p->pd, &init);
	p->buf = aligned_alloc(4096, PEER_SIZE);
	memset(p->buf, 0, PEER_SIZE);
	p->mr = ibv_reg_mr(p->pd, p->buf, PEER_SIZE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(p->pd && p->cq && p->qp && p->mr);
	self = (struct hello){ p->qp->qp_num, p->mr->rkey, (uintptr_t)p->buf, { { 0 } } };
	CHECK(!ibv_query_gid(p->ctx, 1, 0, &self.gid));
	tell(fd, &self, sizeof(self));
	hear(fd, &p->other, sizeof(p->other));
	peer_connect(p);
	tell(fd, "r", 1);
}
