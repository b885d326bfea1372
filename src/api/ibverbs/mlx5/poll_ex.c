// SPDX-License-Identifier: MIT
/*
 * Polling through ibv_cq_ex: poll_ex_start_poll(), poll_ex_next_poll(), end_poll() and the read_*() functions.
 *
 * The CQ stays locked from a successful poll_ex_start_poll() to end_poll(); the read functions look at the
 * current CQE.
 */
#include "cqe.h"

#include "card/card.h"

static inline const struct mlx5_cqe64 *poll_ex_current(struct ibv_cq_ex *cq)
{
	return ex_to_cq(cq)->cur;
}

/* Step to the next CQE: its wr_id and status are public, the rest is read on demand. */
static int poll_ex_step(struct api_cq *cq)
{
	struct api_qp *qp;
	const struct mlx5_cqe64 *cqe = cqe_next(cq, &qp);

	if (!cqe)
		return ENOENT;
	cq->cur = cqe;
	cq->ex.wr_id = cqe_retire(qp, cqe);
	cq->ex.status = cqe_status(cqe);
	return 0;
}

static int poll_ex_start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	return loop_start_poll(ibcq, attr, poll_ex_step);
}

static int poll_ex_next_poll(struct ibv_cq_ex *ibcq)
{
	return poll_ex_step(ex_to_cq(ibcq));
}

static enum ibv_wc_opcode poll_ex_read_opcode(struct ibv_cq_ex *cq)
{
	/* The CQE was found with its QP, which is destroyed only with the CQ unlocked. */
	return cqe_wc_opcode(ex_to_cq(cq)->last_qp, poll_ex_current(cq));
}

static uint32_t poll_ex_read_vendor_err(struct ibv_cq_ex *cq)
{
	return cqe_vendor_err(poll_ex_current(cq));
}

static uint32_t poll_ex_read_byte_len(struct ibv_cq_ex *cq)
{
	return be32toh(poll_ex_current(cq)->byte_cnt);
}

/* An invalidated rkey is given in host order through the same function, hence the conversion. */
static __be32 poll_ex_read_imm_data(struct ibv_cq_ex *cq)
{
	const struct mlx5_cqe64 *cqe = poll_ex_current(cq);

	if (cqe_opcode(cqe) == MLX5_CQE_RESP_SEND_INV)
		return be32toh(cqe->imm_inval_pkey);
	return cqe->imm_inval_pkey;
}

static uint32_t poll_ex_read_qp_num(struct ibv_cq_ex *cq)
{
	return cqe_qpn(poll_ex_current(cq));
}

static uint32_t poll_ex_read_src_qp(struct ibv_cq_ex *cq)
{
	return be32toh(poll_ex_current(cq)->flags_rqpn) & CQE_QPN_MASK;
}

static unsigned int poll_ex_read_wc_flags(struct ibv_cq_ex *cq)
{
	return cqe_wc_flags(poll_ex_current(cq));
}

static uint32_t poll_ex_read_slid(struct ibv_cq_ex *cq)
{
	return be16toh(poll_ex_current(cq)->slid);
}

static uint8_t poll_ex_read_sl(struct ibv_cq_ex *cq)
{
	return (be32toh(poll_ex_current(cq)->flags_rqpn) >> 24) & 0xf;
}

static uint8_t poll_ex_read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return poll_ex_current(cq)->ml_path & 0x7f;
}

static uint64_t poll_ex_read_completion_ts(struct ibv_cq_ex *cq)
{
	return be64toh(poll_ex_current(cq)->timestamp);
}

static uint64_t poll_ex_read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	return api_cq_wallclock_ns(vb_clock() - poll_ex_read_completion_ts(cq));
}

static uint16_t poll_ex_read_cvlan(struct ibv_cq_ex *cq)
{
	return be16toh(poll_ex_current(cq)->vlan_info);
}

/* Of completions that are no frames there is none. */
static uint32_t read_flow_tag(struct ibv_cq_ex *cq)
{
	const struct mlx5_cqe64 *cqe = poll_ex_current(cq);

	return cqe_is_frame(cqe) ? be32toh(cqe->sop_drop_qpn) & CQE_QPN_MASK : 0;
}

const struct ibv_cq_ex mlx5_cq_ex = {
	.start_poll = poll_ex_start_poll,
	.next_poll = poll_ex_next_poll,
	.end_poll = api_cq_end_poll,
	.read_opcode = poll_ex_read_opcode,
	.read_vendor_err = poll_ex_read_vendor_err,
	.read_byte_len = poll_ex_read_byte_len,
	.read_imm_data = poll_ex_read_imm_data,
	.read_qp_num = poll_ex_read_qp_num,
	.read_src_qp = poll_ex_read_src_qp,
	.read_wc_flags = poll_ex_read_wc_flags,
	.read_slid = poll_ex_read_slid,
	.read_sl = poll_ex_read_sl,
	.read_dlid_path_bits = poll_ex_read_dlid_path_bits,
	.read_completion_ts = poll_ex_read_completion_ts,
	.read_completion_wallclock_ns = poll_ex_read_completion_wallclock_ns,
	.read_cvlan = poll_ex_read_cvlan,
	.read_flow_tag = read_flow_tag,
	.read_tm_info = api_cq_read_tm_info,
};
