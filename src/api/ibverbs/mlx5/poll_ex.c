/* SPDX-License-Identifier: MIT */
/*
 * Polling through ibv_cq_ex: start_poll(), next_poll(), end_poll() and the read_*() functions.
 *
 * The CQ stays locked from a successful start_poll() to end_poll(); the read functions look at the
 * current CQE.
 */
#include "cqe.h"
#include "api/ibverbs/core/loops.h"

#include <time.h>

/* Step to the next CQE: its wr_id and status are public, the rest is read on demand. */
static int cq_step(struct api_cq *cq)
{
	struct mlx5_cqe64 *cqe;
	struct api_qp *qp;

	do {
		cqe = cq_sw_entry(cq, cq->ci);
		if (!cqe)
			return ENOENT;
		cq->ci++;
		qp = cqe_qp(cq, cqe);
	} while (unlikely(!qp));

	cq->cur = cqe;
	cq->ex.wr_id = cqe_retire(qp, cqe);
	cq->ex.status = cqe_status(cqe);
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	return loop_start_poll(ibcq, attr, cq_step);
}

static int next_poll(struct ibv_cq_ex *ibcq)
{
	return cq_step(ex_to_cq(ibcq));
}

static void end_poll(struct ibv_cq_ex *ibcq)
{
	struct api_cq *cq = ex_to_cq(ibcq);

	cq_store_ci(cq);
	api_unlock(&cq->lock, cq->unlocked);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return cqe_wc_opcode(ex_to_cq(cq)->cur);
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return cqe_vendor_err(ex_to_cq(cq)->cur);
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return be32toh(ex_to_cq(cq)->cur->byte_cnt);
}

/* An invalidated rkey is given in host order through the same function, hence the conversion. */
static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	const struct mlx5_cqe64 *cqe = ex_to_cq(cq)->cur;

	if (cqe_opcode(cqe) == MLX5_CQE_RESP_SEND_INV)
		return be32toh(cqe->imm_inval_pkey);
	return cqe->imm_inval_pkey;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return cqe_qpn(ex_to_cq(cq)->cur);
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return be32toh(ex_to_cq(cq)->cur->flags_rqpn) & CQE_QPN_MASK;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return cqe_wc_flags(ex_to_cq(cq)->cur);
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return be16toh(ex_to_cq(cq)->cur->slid);
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return (be32toh(ex_to_cq(cq)->cur->flags_rqpn) >> 24) & 0xf;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->cur->ml_path & 0x7f;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq)
{
	return be64toh(ex_to_cq(cq)->cur->timestamp);
}

/* The card's clock runs at 1 GHz, so its distance from now is the same on the wall clock. */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	struct timespec now;
	uint64_t age = vb_clock() - be64toh(ex_to_cq(cq)->cur->timestamp);

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - age;
}

static uint16_t read_cvlan(struct ibv_cq_ex *cq)
{
	return be16toh(ex_to_cq(cq)->cur->vlan_info);
}

static uint32_t read_flow_tag(struct ibv_cq_ex *cq)
{
	return 0;
}

static void read_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *tm_info)
{
	*tm_info = (struct ibv_wc_tm_info){ 0 };
}

void mlx5_cq_set_ex_ops(struct api_cq *cq)
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
