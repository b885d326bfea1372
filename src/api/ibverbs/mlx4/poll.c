// SPDX-License-Identifier: MIT
/*
 * ibv_poll_cq() and ibv_start_poll() on an mlx4 completion queue.
 *
 * This is the data path: nothing is allocated, only the CQ's own lock (and an SRQ's) is taken.
 */
#include "api/ibverbs/core/loops.h"

#include "card/card.h"
#include "mlx4.h"

/* --- one CQE ---------------------------------------------------------------------------------- */

static inline bool is_error(const struct mlx4_cqe *cqe)
{
	return mlx4_opcode(cqe) == MLX4_CQE_OPCODE_ERROR;
}

static inline enum ibv_wc_status mlx4_poll_status_of(const struct mlx4_cqe *cqe)
{
	return is_error(cqe) ? syndrome_status(((const struct mlx4_err_cqe *)cqe)->syndrome)
			     : IBV_WC_SUCCESS;
}

static inline enum ibv_wc_opcode opcode_of(const struct mlx4_cqe *cqe)
{
	if (!mlx4_is_send(cqe))
		return mlx4_opcode(cqe) == MLX4_RECV_OPCODE_RDMA_WRITE_IMM
			       ? IBV_WC_RECV_RDMA_WITH_IMM
			       : IBV_WC_RECV;
	return send_wc_opcode(mlx4_opcode(cqe));
}

static inline unsigned int flags_of(const struct mlx4_cqe *cqe)
{
	unsigned int flags = 0;

	if (is_error(cqe))
		return 0;
	if (mlx4_is_send(cqe))
		return mlx4_opcode(cqe) == MLX4_OPCODE_RDMA_WRITE_IMM ||
				       mlx4_opcode(cqe) == MLX4_OPCODE_SEND_IMM
			       ? IBV_WC_WITH_IMM
			       : 0;
	switch (mlx4_opcode(cqe)) {
	case MLX4_RECV_OPCODE_RDMA_WRITE_IMM:
	case MLX4_RECV_OPCODE_SEND_IMM:
		flags = IBV_WC_WITH_IMM;
		break;
	case MLX4_RECV_OPCODE_SEND_INVAL:
		flags = IBV_WC_WITH_INV;
		break;
	default:
		break;
	}
	if ((be32toh(cqe->status) & MLX4_CQE_STATUS_IPV4_CSUM_OK) == MLX4_CQE_STATUS_IPV4_CSUM_OK)
		flags |= IBV_WC_IP_CSUM_OK;
	return flags | (be32toh(cqe->g_mlpath_rqpn) & MLX4_CQE_GRH ? IBV_WC_GRH : 0);
}

/* Inline receive: copies the data from the receive WQE to the buffers of the work request. */
static void move_inline(const struct mlx4_qp *qp, uint32_t index, uint32_t len)
{
	const struct api_rq *rq = &qp->api.rq;
	const char *from = rq->buf + ((size_t)(index & (rq->cnt - 1)) << rq->shift);
	const struct ibv_sge *to = &qp->saved[(size_t)(index & (rq->cnt - 1)) * rq->max_gs];

	for (uint32_t i = 0; i < rq->max_gs && len; i++) {
		uint32_t n = to[i].length < len ? to[i].length : len;

		memcpy((void *)(uintptr_t)to[i].addr, from, n);
		from += n;
		len -= n;
	}
}

/*
 * Retire the work request that a CQE completes and find its wr_id. The index of a send counts
 * strides: all before it are done too.
 */
static inline uint64_t mlx4_poll_retire(struct api_qp *qp, const struct mlx4_cqe *cqe)
{
	uint16_t index = be16toh(cqe->wqe_index);
	uint64_t wr_id;
	uint32_t tail;

	if (mlx4_is_send(cqe)) {
		tail = atomic_load_explicit(&qp->sq.tail, memory_order_relaxed);
		tail += (uint16_t)(index - (uint16_t)tail);
		wr_id = qp->sq.slot[tail & (qp->sq.cnt - 1)].wr_id;
		/* Pairs with the acquire in loop_sq_has_room(): the slot may be written again. */
		atomic_store_explicit(&qp->sq.tail, tail + 1, memory_order_release);
		return wr_id;
	}
	if (qp->ibv.srq)
		return loop_retire_srq(to_srq(qp->ibv.srq), index);
	if (unlikely((cqe->owner_sr_opcode & MLX4_CQE_INL_SCATTER) && to_mlx4_qp(qp)->saved))
		move_inline(to_mlx4_qp(qp),
			    atomic_load_explicit(&qp->rq.tail, memory_order_relaxed),
			    be32toh(cqe->byte_cnt));
	return loop_retire_recv(&qp->rq);
}

/* The next CQE of a QP that exists; NULL when the ring is empty. */
static inline struct mlx4_cqe *next_cqe(struct api_cq *cq, struct api_qp **qp)
{
	struct mlx4_cqe *cqe;

	do {
		cqe = mlx4_sw_entry(cq, cq->ci);
		if (!cqe)
			return NULL;
		cq->ci++;
		*qp = loop_find_qp(cq, mlx4_qpn(cqe));
	} while (unlikely(!*qp));
	return cqe;
}

/* --- ibv_poll_cq() ---------------------------------------------------------------------------- */

static void wc_receive(struct ibv_wc *wc, const struct api_cq *cq, const struct mlx4_cqe *cqe)
{
	uint32_t g_mlpath_rqpn = be32toh(cqe->g_mlpath_rqpn);

	if (wc->wc_flags & IBV_WC_WITH_INV)
		wc->invalidated_rkey = be32toh(cqe->immed_rss_invalid);
	else if (wc->wc_flags & IBV_WC_WITH_IMM)
		wc->imm_data = cqe->immed_rss_invalid;
	wc->pkey_index = 0;
	wc->src_qp = g_mlpath_rqpn & MLX4_CQE_QPN_MASK;
	wc->slid = cq->timestamps ? 0 : be16toh(cqe->rlid);
	wc->sl = cq->timestamps ? 0 : (uint8_t)(be16toh(cqe->sl_vid) >> 13);
	wc->dlid_path_bits = (g_mlpath_rqpn >> 24) & 0x7f;
}

static bool mlx4_poll_one(struct api_cq *cq, struct ibv_wc *wc)
{
	struct api_qp *qp;
	const struct mlx4_cqe *cqe = next_cqe(cq, &qp);

	if (!cqe)
		return false;
	wc->wr_id = mlx4_poll_retire(qp, cqe);
	wc->qp_num = qp->ibv.qp_num;
	wc->status = mlx4_poll_status_of(cqe);
	wc->wc_flags = flags_of(cqe);
	wc->vendor_err = 0;
	wc->opcode = opcode_of(cqe);
	if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		wc->vendor_err = ((const struct mlx4_err_cqe *)cqe)->vendor_err;
		wc->byte_len = 0;
		return true;
	}
	wc->byte_len = be32toh(cqe->byte_cnt);
	if (!mlx4_is_send(cqe))
		wc_receive(wc, cq, cqe);
	return true;
}

int mlx4_cq_poll(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return loop_poll(cq, num_entries, wc, mlx4_poll_one);
}

/* --- ibv_start_poll() and the readers --------------------------------------------------------- */

static inline const struct mlx4_cqe *mlx4_poll_current(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->cur;
}

static int mlx4_poll_step(struct api_cq *cq)
{
	struct api_qp *qp;
	struct mlx4_cqe *cqe = next_cqe(cq, &qp);

	if (!cqe)
		return ENOENT;
	cq->cur = cqe;
	cq->ex.wr_id = mlx4_poll_retire(qp, cqe);
	cq->ex.status = mlx4_poll_status_of(cqe);
	return 0;
}

static int mlx4_poll_start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	return loop_start_poll(ibcq, attr, mlx4_poll_step);
}

static int mlx4_poll_next_poll(struct ibv_cq_ex *ibcq)
{
	return mlx4_poll_step(ex_to_cq(ibcq));
}

static enum ibv_wc_opcode mlx4_poll_read_opcode(struct ibv_cq_ex *cq)
{
	return opcode_of(mlx4_poll_current(cq));
}

static uint32_t mlx4_poll_read_vendor_err(struct ibv_cq_ex *cq)
{
	return ((const struct mlx4_err_cqe *)mlx4_poll_current(cq))->vendor_err;
}

static uint32_t mlx4_poll_read_byte_len(struct ibv_cq_ex *cq)
{
	return be32toh(mlx4_poll_current(cq)->byte_cnt);
}

/* An invalidated rkey is given in host order through the same function, hence the conversion. */
static __be32 mlx4_poll_read_imm_data(struct ibv_cq_ex *cq)
{
	const struct mlx4_cqe *cqe = mlx4_poll_current(cq);

	if (!mlx4_is_send(cqe) && mlx4_opcode(cqe) == MLX4_RECV_OPCODE_SEND_INVAL)
		return be32toh(cqe->immed_rss_invalid);
	return cqe->immed_rss_invalid;
}

static uint32_t mlx4_poll_read_qp_num(struct ibv_cq_ex *cq)
{
	return mlx4_qpn(mlx4_poll_current(cq));
}

static uint32_t mlx4_poll_read_src_qp(struct ibv_cq_ex *cq)
{
	return be32toh(mlx4_poll_current(cq)->g_mlpath_rqpn) & MLX4_CQE_QPN_MASK;
}

static unsigned int mlx4_poll_read_wc_flags(struct ibv_cq_ex *cq)
{
	return flags_of(mlx4_poll_current(cq));
}

static uint32_t mlx4_poll_read_slid(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->timestamps ? 0 : be16toh(mlx4_poll_current(cq)->rlid);
}

static uint8_t mlx4_poll_read_sl(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->timestamps ? 0
					: (uint8_t)(be16toh(mlx4_poll_current(cq)->sl_vid) >> 13);
}

static uint8_t mlx4_poll_read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return (be32toh(mlx4_poll_current(cq)->g_mlpath_rqpn) >> 24) & 0x7f;
}

static uint64_t mlx4_poll_read_completion_ts(struct ibv_cq_ex *cq)
{
	const struct mlx4_cqe *cqe = mlx4_poll_current(cq);

	return (uint64_t)be32toh(cqe->ts_47_16) << 16 | (uint64_t)cqe->ts_15_8 << 8 | cqe->ts_7_0;
}

/* The age of a CQE is known modulo the 48 bits of its timestamp. */
static uint64_t mlx4_poll_read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	return api_cq_wallclock_ns((vb_clock() - mlx4_poll_read_completion_ts(cq)) &
				   MLX4_TIMESTAMP_MASK);
}

static uint16_t mlx4_poll_read_cvlan(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->timestamps ? 0 : be16toh(mlx4_poll_current(cq)->sl_vid) & 0xfff;
}

const struct ibv_cq_ex mlx4_cq_ex = {
	.start_poll = mlx4_poll_start_poll,
	.next_poll = mlx4_poll_next_poll,
	.end_poll = api_cq_end_poll,
	.read_opcode = mlx4_poll_read_opcode,
	.read_vendor_err = mlx4_poll_read_vendor_err,
	.read_byte_len = mlx4_poll_read_byte_len,
	.read_imm_data = mlx4_poll_read_imm_data,
	.read_qp_num = mlx4_poll_read_qp_num,
	.read_src_qp = mlx4_poll_read_src_qp,
	.read_wc_flags = mlx4_poll_read_wc_flags,
	.read_slid = mlx4_poll_read_slid,
	.read_sl = mlx4_poll_read_sl,
	.read_dlid_path_bits = mlx4_poll_read_dlid_path_bits,
	.read_completion_ts = mlx4_poll_read_completion_ts,
	.read_completion_wallclock_ns = mlx4_poll_read_completion_wallclock_ns,
	.read_cvlan = mlx4_poll_read_cvlan,
	.read_flow_tag = api_cq_read_flow_tag,
	.read_tm_info = api_cq_read_tm_info,
};
