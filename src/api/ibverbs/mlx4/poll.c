/* SPDX-License-Identifier: MIT */
/*
 * ibv_poll_cq() and ibv_start_poll() on an mlx4 completion queue.
 *
 * As poll.c and poll_ex.c: nothing is allocated, only the CQ's own lock (and an SRQ's) is taken, and
 * where the ring is empty the card is asked once to do what is due.
 */
#include "api/ibverbs/mlx5/cqe.h"
#include "api/ibverbs/core/loops.h"
#include "mlx4.h"

#include <time.h>

/* --- one CQE ------------------------------------------------------------------------------------ */

static inline bool is_error(const struct mlx4_cqe *cqe)
{
	return mlx4_opcode(cqe) == MLX4_CQE_OPCODE_ERROR;
}

/* The syndromes are those of mlx5. */
static inline enum ibv_wc_status status_of(const struct mlx4_cqe *cqe)
{
	return is_error(cqe) ? cqe_syndrome_status(((const struct mlx4_err_cqe *)cqe)->syndrome)
			     : IBV_WC_SUCCESS;
}

static struct api_qp *qp_of(struct api_cq *cq, const struct mlx4_cqe *cqe)
{
	uint32_t qpn = mlx4_qpn(cqe);

	if (unlikely(!cq->last_qp || cq->last_qp->ibv.qp_num != qpn))
		cq->last_qp = api_qp_find(to_context(cq->ibv.context), qpn);
	return cq->last_qp;
}

static inline enum ibv_wc_opcode opcode_of(const struct mlx4_cqe *cqe)
{
	if (!mlx4_is_send(cqe))
		return mlx4_opcode(cqe) == MLX4_RECV_OPCODE_RDMA_WRITE_IMM
			       ? IBV_WC_RECV_RDMA_WITH_IMM
			       : IBV_WC_RECV;
	switch (mlx4_opcode(cqe)) {
	case MLX4_OPCODE_RDMA_WRITE:
	case MLX4_OPCODE_RDMA_WRITE_IMM:
		return IBV_WC_RDMA_WRITE;
	case MLX4_OPCODE_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case MLX4_OPCODE_ATOMIC_CS:
		return IBV_WC_COMP_SWAP;
	case MLX4_OPCODE_ATOMIC_FA:
		return IBV_WC_FETCH_ADD;
	case MLX4_OPCODE_LOCAL_INVAL:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
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

/* The data of a short message, from the receive WQE to where it was to go. */
static void move_inline(const struct api_rq *rq, uint32_t index, uint32_t len)
{
	const char *from = rq->buf + ((size_t)(index & (rq->cnt - 1)) << rq->shift);
	const struct ibv_sge *to = &rq->saved[(size_t)(index & (rq->cnt - 1)) * rq->max_gs];

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
static inline uint64_t retire(struct api_qp *qp, const struct mlx4_cqe *cqe)
{
	uint16_t index = be16toh(cqe->wqe_index);
	uint64_t wr_id;
	uint32_t tail;

	if (mlx4_is_send(cqe)) {
		tail = atomic_load_explicit(&qp->sq.tail, memory_order_relaxed);
		tail += (uint16_t)(index - (uint16_t)tail);
		wr_id = qp->sq.slot[tail & (qp->sq.cnt - 1)].wr_id;
		/* Pairs with the acquire in send.c: the slot may be written again. */
		atomic_store_explicit(&qp->sq.tail, tail + 1, memory_order_release);
		return wr_id;
	}
	if (qp->ibv.srq) {
		struct api_srq *srq = to_srq(qp->ibv.srq);

		wr_id = srq->wrid[index & (srq->wqe_cnt - 1)];
		api_srq_free_wqe(srq, index);
		return wr_id;
	}
	tail = atomic_load_explicit(&qp->rq.tail, memory_order_relaxed);
	wr_id = qp->rq.wrid[tail & (qp->rq.cnt - 1)];
	if (unlikely((cqe->owner_sr_opcode & MLX4_CQE_INL_SCATTER) && qp->rq.saved))
		move_inline(&qp->rq, tail, be32toh(cqe->byte_cnt));
	/* Pairs with the acquire in loop_post_one_recv(). */
	atomic_store_explicit(&qp->rq.tail, tail + 1, memory_order_release);
	return wr_id;
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
		*qp = qp_of(cq, cqe);
	} while (unlikely(!*qp)); /* of a QP that is gone: nobody waits for it */
	return cqe;
}

/* --- ibv_poll_cq() ------------------------------------------------------------------------------ */

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

static bool poll_one(struct api_cq *cq, struct ibv_wc *wc)
{
	struct api_qp *qp;
	const struct mlx4_cqe *cqe = next_cqe(cq, &qp);

	if (!cqe)
		return false;
	wc->wr_id = retire(qp, cqe);
	wc->qp_num = qp->ibv.qp_num;
	wc->status = status_of(cqe);
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

static int poll_some(struct api_cq *cq, int num_entries, struct ibv_wc *wc)
{
	int n = 0;

	api_lock(&cq->lock, cq->unlocked);
	while (n < num_entries && poll_one(cq, &wc[n]))
		n++;
	if (n)
		cq_store_ci(cq);
	api_unlock(&cq->lock, cq->unlocked);
	return n;
}

int mlx4_cq_poll(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct api_cq *cq = to_cq(ibcq);
	int n = poll_some(cq, num_entries, wc);

	/* The card's work may take a while: other threads can poll meanwhile. */
	if (n || num_entries <= 0 || !vb_progress(cq->dev))
		return n;
	return poll_some(cq, num_entries, wc);
}

/* --- ibv_start_poll() and the readers ----------------------------------------------------------- */

static inline const struct mlx4_cqe *current(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->cur4;
}

static int step(struct api_cq *cq)
{
	struct api_qp *qp;
	struct mlx4_cqe *cqe = next_cqe(cq, &qp);

	if (!cqe)
		return ENOENT;
	cq->cur4 = cqe;
	cq->ex.wr_id = retire(qp, cqe);
	cq->ex.status = status_of(cqe);
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	return loop_start_poll(ibcq, attr, step);
}

static int next_poll(struct ibv_cq_ex *ibcq)
{
	return step(ex_to_cq(ibcq));
}

static void end_poll(struct ibv_cq_ex *ibcq)
{
	struct api_cq *cq = ex_to_cq(ibcq);

	cq_store_ci(cq);
	api_unlock(&cq->lock, cq->unlocked);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return opcode_of(current(cq));
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return ((const struct mlx4_err_cqe *)current(cq))->vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return be32toh(current(cq)->byte_cnt);
}

/* An invalidated rkey is given in host order through the same function, hence the conversion. */
static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	const struct mlx4_cqe *cqe = current(cq);

	if (!mlx4_is_send(cqe) && mlx4_opcode(cqe) == MLX4_RECV_OPCODE_SEND_INVAL)
		return be32toh(cqe->immed_rss_invalid);
	return cqe->immed_rss_invalid;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return mlx4_qpn(current(cq));
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return be32toh(current(cq)->g_mlpath_rqpn) & MLX4_CQE_QPN_MASK;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return flags_of(current(cq));
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->timestamps ? 0 : be16toh(current(cq)->rlid);
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->timestamps ? 0 : (uint8_t)(be16toh(current(cq)->sl_vid) >> 13);
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return (be32toh(current(cq)->g_mlpath_rqpn) >> 24) & 0x7f;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq)
{
	const struct mlx4_cqe *cqe = current(cq);

	return (uint64_t)be32toh(cqe->ts_47_16) << 16 | (uint64_t)cqe->ts_15_8 << 8 | cqe->ts_7_0;
}

/* The card's clock runs at 1 GHz; the age of a CQE is known modulo its 48 bits. */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	uint64_t age = (vb_clock() - read_completion_ts(cq)) & MLX4_TIMESTAMP_MASK;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - age;
}

static uint16_t read_cvlan(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->timestamps ? 0 : be16toh(current(cq)->sl_vid) & 0xfff;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *cq)
{
	return 0;
}

static void read_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *tm_info)
{
	*tm_info = (struct ibv_wc_tm_info){ 0 };
}

void mlx4_cq_set_ex_ops(struct api_cq *cq)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
	ex->read_completion_wallclock_ns = read_completion_wallclock_ns;
	ex->read_cvlan = read_cvlan;
	ex->read_flow_tag = read_flow_tag;
	ex->read_tm_info = read_tm_info;
}
