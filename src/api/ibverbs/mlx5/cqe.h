/* SPDX-License-Identifier: MIT */
/*
 * From a CQE to what verbs say about it: the parts that ibv_poll_cq() and the read_*() functions
 * share.
 */
#pragma once

#include "api/ibverbs/core/loops.h"
#include "cq.h"

static inline enum ibv_wc_status cqe_status(const struct mlx5_cqe64 *cqe)
{
	uint8_t opcode = cqe_opcode(cqe);

	if (likely(opcode != MLX5_CQE_REQ_ERR && opcode != MLX5_CQE_RESP_ERR))
		return IBV_WC_SUCCESS;
	return syndrome_status(((const struct mlx5_err_cqe *)cqe)->syndrome);
}

static inline uint32_t cqe_vendor_err(const struct mlx5_cqe64 *cqe)
{
	return ((const struct mlx5_err_cqe *)cqe)->vendor_err_synd;
}

/* The WQE opcode that a requester CQE carries above the QP number. */
static inline uint8_t cqe_wqe_opcode(const struct mlx5_cqe64 *cqe)
{
	return (uint8_t)(be32toh(cqe->sop_drop_qpn) >> 24);
}

/* The CQE completes a raw WQE, which has one opcode whatever it did. */
static inline bool cqe_is_raw(const struct api_qp *qp, const struct mlx5_cqe64 *cqe)
{
	const uint8_t *raw = ((const struct mlx5_qp *)qp)->raw;

	return unlikely(raw) && raw[be16toh(cqe->wqe_counter) & (qp->sq.cnt - 1)];
}

static inline enum ibv_wc_opcode cqe_wc_opcode(const struct api_qp *qp,
					       const struct mlx5_cqe64 *cqe)
{
	switch (cqe_opcode(cqe)) {
	case MLX5_CQE_REQ:
	case MLX5_CQE_REQ_ERR:
		return cqe_is_raw(qp, cqe) ? (enum ibv_wc_opcode)MLX5DV_WC_RAW_WQE
					   : send_wc_opcode(cqe_wqe_opcode(cqe));
	case MLX5_CQE_RESP_WR_IMM:
		return IBV_WC_RECV_RDMA_WITH_IMM;
	default:
		return IBV_WC_RECV;
	}
}

/* A global routing header lies in front of the data (UD). */
static inline unsigned int cqe_grh_flag(uint32_t flags_rqpn)
{
	return (flags_rqpn >> 28) & 3 ? IBV_WC_GRH : 0;
}

/* Checksums are told of IPv4 only. */
static inline unsigned int cqe_csum_flag(const struct mlx5_cqe64 *cqe)
{
	enum { L3_TYPE = 3 << 2, L3_IPV4 = 2 << 2, BOTH = CQE_L3_OK | CQE_L4_OK };

	return cqe_is_frame(cqe) && (cqe->hds_ip_ext & BOTH) == BOTH &&
			       (cqe->l4_hdr_type_etc & L3_TYPE) == L3_IPV4
		       ? IBV_WC_IP_CSUM_OK
		       : 0;
}

static inline unsigned int cqe_wc_flags(const struct mlx5_cqe64 *cqe)
{
	unsigned int grh = cqe_grh_flag(be32toh(cqe->flags_rqpn));

	switch (cqe_opcode(cqe)) {
	case MLX5_CQE_REQ:
		switch (cqe_wqe_opcode(cqe)) {
		case MLX5_OPCODE_RDMA_WRITE_IMM:
		case MLX5_OPCODE_SEND_IMM:
			return IBV_WC_WITH_IMM;
		default:
			return 0;
		}
	case MLX5_CQE_RESP_WR_IMM:
	case MLX5_CQE_RESP_SEND_IMM:
		return grh | IBV_WC_WITH_IMM;
	case MLX5_CQE_RESP_SEND_INV:
		return grh | IBV_WC_WITH_INV;
	case MLX5_CQE_RESP_SEND:
		return grh | cqe_csum_flag(cqe);
	default:
		return 0;
	}
}

/* The next CQE of a QP that exists; NULL when the ring is empty. */
static inline struct mlx5_cqe64 *cqe_next(struct api_cq *cq, struct api_qp **qp)
{
	struct mlx5_cqe64 *cqe;

	do {
		cqe = unlikely(cq->compressed) ? mlx5_cq_expand(cq) : cq_sw_entry(cq, cq->ci);
		if (!cqe)
			return NULL;
		cq->ci++;
		*qp = loop_find_qp(cq, cqe_qpn(cqe));
	} while (unlikely(!*qp));
	return cqe;
}

/* A frame, or a filler, in strides of the WQE at the tail; an error ends all of it. */
static inline uint64_t cqe_retire_strides(struct api_qp *qp, const struct mlx5_cqe64 *cqe)
{
	const struct vb_striding *striding = &((const struct mlx5_qp *)qp)->striding;
	uint32_t tail = atomic_load_explicit(&qp->rq.tail, memory_order_relaxed);

	qp->rq.strides += be32toh(cqe->byte_cnt) >> 16 & 0x7fff;
	if (cqe_opcode(cqe) != MLX5_CQE_RESP_ERR && qp->rq.strides < 1u << striding->log_count)
		return qp->rq.wrid[tail & (qp->rq.cnt - 1)];
	qp->rq.strides = 0;
	return loop_retire_recv(&qp->rq);
}

/*
 * Retire the work request that a CQE completes and find its wr_id. Send work requests complete in
 * order: the ones before it that asked for no completion are done too.
 */
static inline uint64_t cqe_retire(struct api_qp *qp, const struct mlx5_cqe64 *cqe)
{
	uint16_t index = be16toh(cqe->wqe_counter);
	uint8_t opcode = cqe_opcode(cqe);
	struct api_sq_slot *slot;
	uint64_t wr_id;

	if (opcode != MLX5_CQE_REQ && opcode != MLX5_CQE_REQ_ERR) {
		if (unlikely(((const struct mlx5_qp *)qp)->striding.log_bytes))
			return cqe_retire_strides(qp, cqe);
		return qp->ibv.srq ? loop_retire_srq(to_srq(qp->ibv.srq), index)
				   : loop_retire_recv(&qp->rq);
	}
	slot = &qp->sq.slot[index & (qp->sq.cnt - 1)];
	wr_id = slot->wr_id;
	/* Pairs with the acquire in loop_sq_has_room(): the slot may be written again. */
	atomic_store_explicit(&qp->sq.tail, slot->head + 1, memory_order_release);
	return wr_id;
}
