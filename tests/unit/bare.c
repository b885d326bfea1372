// SPDX-License-Identifier: MIT
/*
 * The smallest driver; see bare.h.
 */
#include "bare.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void no_event(void *arg, const struct vb_event *event)
{
	(void)arg;
	(void)event;
}

static void no_notify(void *cookie)
{
	(void)cookie;
}

/* Queue memory comes in pages from a real driver, so page alignment is what the card may count on. */
static void *pages(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~4095ull);

	if (p)
		memset(p, 0, (bytes + 4095) & ~4095ull);
	return p;
}

static int create_cq(struct bare *bare)
{
	struct vb_cq_attr attr = { .buf = bare->cqes,
				   .cqe_cnt = BARE_CQES,
				   .cqe_size = 64,
				   .dbr = bare->cq_dbr,
				   .cookie = bare,
				   .notify = no_notify };

	for (int i = 0; i < BARE_CQES; i++)
		bare->cqes[i].op_own = MLX5_CQE_INVALID << 4;
	return vb_cq_create(bare->dev, &attr, &bare->cq);
}

static int create_qp(struct bare *bare)
{
	struct vb_qp_attr attr = { .type = bare->type,
				   .pd = bare->pd,
				   .send_cq = bare->cq,
				   .recv_cq = bare->cq,
				   .sq_buf = bare->sq,
				   .sq_cnt = BARE_BLOCKS,
				   .rq_buf = bare->rq,
				   .rq_cnt = BARE_RECVS,
				   .rq_shift = 6,
				   .dbr = bare->qp_dbr,
				   .cap = { BARE_BLOCKS, BARE_RECVS, 2, 4, 0 },
				   .cookie = bare };

	return vb_qp_create(bare->dev, &attr, &bare->qp);
}

int bare_open_on(struct bare *bare, struct vb_card *card, enum ibv_qp_type type)
{
	struct vb_adapter *const *list;
	unsigned int count;
	int ret;

	memset(bare, 0, sizeof(*bare));
	bare->type = type;
	bare->timeout = 8;
	bare->retry_cnt = 1;
	bare->memory = pages(BARE_MEMORY);
	bare->sq = pages(BARE_BLOCKS * 64);
	bare->rq = pages(BARE_RECVS * 64);
	bare->cqes = pages(BARE_CQES * 64);
	bare->qp_dbr = pages(64);
	bare->cq_dbr = pages(64);
	ret = vb_card_adapters(card, &list, &count);
	if (ret || !count)
		return ret ? ret : -ENODEV;
	bare->gid = list[0]->gids[0].gid;
	ret = vb_dev_open(list[0], no_event, NULL, &bare->dev);
	if (!ret)
		ret = vb_pd_alloc(bare->dev, &bare->pd);
	if (!ret)
		ret = vb_mr_reg(bare->pd, bare->memory, BARE_MEMORY, (uintptr_t)bare->memory,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
				&bare->mr);
	if (!ret)
		ret = create_cq(bare);
	if (!ret)
		ret = create_qp(bare);
	return ret ? ret : bare_connect(bare);
}

int bare_open(struct bare *bare, enum ibv_qp_type type)
{
	return bare_open_on(bare, vb_card_program(), type);
}

void bare_close(struct bare *bare)
{
	if (bare->qp)
		vb_qp_destroy(bare->qp);
	if (bare->cq)
		vb_cq_destroy(bare->cq);
	if (bare->mr)
		vb_mr_dereg(bare->mr);
	if (bare->pd)
		vb_pd_dealloc(bare->pd);
	if (bare->dev)
		vb_dev_close(bare->dev);
	free(bare->memory);
	free(bare->sq);
	free(bare->rq);
	free(bare->cqes);
	free(bare->qp_dbr);
	free(bare->cq_dbr);
}

static int to_rts(struct bare *bare, uint32_t qpn)
{
	struct ibv_qp_attr attr = { .port_num = 1,
				    .qkey = 1,
				    .path_mtu = IBV_MTU_1024,
				    .max_rd_atomic = 4,
				    .max_dest_rd_atomic = 4,
				    .timeout = bare->timeout,
				    .retry_cnt = bare->retry_cnt,
				    .rnr_retry = bare->rnr_retry,
				    .min_rnr_timer = bare->min_rnr_timer,
				    .dest_qp_num = qpn,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN, ret;

	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = bare->gid;
	attr.ah_attr.port_num = 1;
	init |= bare->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (bare->type != IBV_QPT_UD)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (bare->type == IBV_QPT_RC) {
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	}
	attr.qp_state = IBV_QPS_INIT;
	ret = vb_qp_modify(bare->qp, &attr, init);
	attr.qp_state = IBV_QPS_RTR;
	if (!ret)
		ret = vb_qp_modify(bare->qp, &attr, rtr);
	attr.qp_state = IBV_QPS_RTS;
	return ret ? ret : vb_qp_modify(bare->qp, &attr, rts);
}

int bare_connect_to(struct bare *bare, uint32_t qpn)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	int ret = vb_qp_modify(bare->qp, &reset, IBV_QP_STATE);

	bare->pi = bare->recv_pi = 0;
	bare->qp_dbr[0] = bare->qp_dbr[1] = 0;
	while (bare_poll(bare))
		;
	return ret ? ret : to_rts(bare, qpn);
}

int bare_connect(struct bare *bare)
{
	return bare_connect_to(bare, vb_qp_number(bare->qp));
}

void *bare_block(struct bare *bare)
{
	return bare->sq + (bare->pi % BARE_BLOCKS) * 64;
}

struct mlx5_wqe_ctrl_seg *bare_ctrl(struct bare *bare, uint8_t opcode, uint8_t ds, uint8_t flags)
{
	struct mlx5_wqe_ctrl_seg *ctrl = bare_block(bare);

	memset(ctrl, 0, 64);
	ctrl->opmod_idx_opcode = htobe32((bare->pi & 0xffff) << 8 | opcode);
	ctrl->qpn_ds = htobe32(vb_qp_number(bare->qp) << 8 | ds);
	ctrl->fm_ce_se = flags;
	return ctrl;
}

void bare_ring(struct bare *bare, uint32_t blocks)
{
	bare->pi += blocks;
	/* The record first, then the bell: a card may look at either. */
	atomic_thread_fence(memory_order_release);
	*(volatile __be32 *)&bare->qp_dbr[1] = htobe32(bare->pi & 0xffff);
	vb_qp_ring_sq(bare->qp, bare->pi);
}

void bare_post_recv(struct bare *bare, uint64_t addr, uint32_t len)
{
	struct mlx5_wqe_data_seg *seg = (void *)(bare->rq + bare->recv_pi % BARE_RECVS * 64);

	memset(seg, 0, 64);
	seg[0].byte_count = htobe32(len);
	seg[0].lkey = htobe32(vb_mr_key(bare->mr));
	seg[0].addr = htobe64(addr);
	seg[1].lkey = htobe32(0x100); /* ends the list */
	bare->recv_pi++;
	atomic_store_explicit((_Atomic uint32_t *)&bare->qp_dbr[0], htobe32(bare->recv_pi & 0xffff),
			      memory_order_release);
}

struct mlx5_cqe64 *bare_poll(struct bare *bare)
{
	struct mlx5_cqe64 *cqe = &bare->cqes[bare->ci % BARE_CQES];
	/* Pairs with the card's release of the CQE. */
	uint8_t op_own =
		atomic_load_explicit((_Atomic uint8_t *)&cqe->op_own, memory_order_acquire);
	/* Each pass around the ring has the other owner bit. */
	uint8_t mine = (bare->ci / BARE_CQES) & 1;

	if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & MLX5_CQE_OWNER_MASK) != mine)
		return NULL;
	bare->ci++;
	atomic_store_explicit((_Atomic uint32_t *)&bare->cq_dbr[0], htobe32(bare->ci & 0xffffff),
			      memory_order_release);
	return cqe;
}

struct mlx5_cqe64 *bare_wait(struct bare *bare)
{
	time_t limit = time(NULL) + 20;
	struct mlx5_cqe64 *cqe;

	while (!(cqe = bare_poll(bare)) && time(NULL) < limit)
		vb_progress(bare->dev);
	return cqe;
}
