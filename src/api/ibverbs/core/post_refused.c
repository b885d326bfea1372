// SPDX-License-Identifier: MIT
/*
 * Why a work request was not taken: the log lines of posting that failed, for all queue formats.
 *
 * The data path only returns an error. This file repeats its checks, in the same order, to find and
 * log the reason.
 */
#include "objects.h"

static const char *post_refused_type_name(enum ibv_qp_type type)
{
	switch ((int)type) {
	case IBV_QPT_RC:
		return "RC";
	case IBV_QPT_UC:
		return "UC";
	case IBV_QPT_UD:
		return "UD";
	default:
		return "RAW_PACKET";
	}
}

static const char *post_refused_state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return (unsigned int)state <= IBV_QPS_ERR ? names[state] : "an unknown state";
}

static uint64_t inline_length(const struct ibv_send_wr *wr)
{
	uint64_t total = 0;

	for (int i = 0; wr->send_flags & IBV_SEND_INLINE && i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	return total;
}

static int max_sges(const struct api_qp *qp, const struct ibv_send_wr *wr)
{
	bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		      wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	return qp->sq.max_gs - (atomic ? provider_of(qp->ibv.context)->ring.atomic_sges : 0);
}

static void explain_send(const struct api_qp *qp, const struct ibv_send_wr *wr, int err)
{
	if (qp->ibv.state < IBV_QPS_RTS)
		vb_refuse_post_state(post_refused_state_name(qp->ibv.state));
	else if (err == EOPNOTSUPP)
		vb_refuse_unsupported_value("opcode", wr->opcode);
	else if (wr->num_sge < 0 || wr->num_sge > max_sges(qp, wr))
		vb_refuse_post_sge(wr->num_sge, (uint32_t)max_sges(qp, wr));
	else if (inline_length(wr) > qp->sq.max_inline)
		vb_refuse_post_inline(inline_length(wr), qp->sq.max_inline);
	else if (err == ENOMEM)
		vb_refuse_post_full(qp->sq.max_post);
	else if (qp->ibv.qp_type != IBV_QPT_RC && wr->opcode != IBV_WR_SEND &&
		 wr->opcode != IBV_WR_SEND_WITH_IMM)
		vb_refuse_post_opcode(wr->opcode, post_refused_type_name(qp->ibv.qp_type));
	else
		vb_refuse_post_request(wr->opcode);
}

int api_send_refused(struct api_qp *qp, const struct ibv_send_wr *wr, int err)
{
	VB_CALL_AS("ibv_post_send", API_QP(&qp->ibv));
	explain_send(qp, wr, err);
	return err;
}

int api_wr_refused(struct api_qp *qp, int err)
{
	VB_CALL_AS("ibv_wr_complete", API_QP(&qp->ibv));
	if (qp->ibv.state < IBV_QPS_RTS)
		vb_refuse_post_state(post_refused_state_name(qp->ibv.state));
	else if (err == ENOMEM)
		vb_refuse_post_full(qp->sq.max_post);
	else
		vb_refuse_combination(
			"a setter got too many SGEs, too much inline data, or a bad address handle");
	return err;
}

int api_recv_refused(struct ibv_qp *qp, const struct ibv_recv_wr *wr, int err)
{
	const struct api_rq *rq = &to_qp(qp)->rq;

	VB_CALL_AS("ibv_post_recv", API_QP(qp));
	if (qp->srq)
		vb_refuse_combination("receives of this queue pair are posted to its SRQ");
	else if (qp->state == IBV_QPS_RESET)
		vb_refuse_post_state(post_refused_state_name(qp->state));
	else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_gs)
		vb_refuse_post_sge(wr->num_sge, rq->max_gs);
	else if (err == ENOMEM)
		vb_refuse_post_full(rq->cnt);
	else
		vb_refuse_combination("an SGE has more than 2 GiB");
	return err;
}

int api_srq_recv_refused(struct api_srq *srq, const struct ibv_recv_wr *wr, int err)
{
	VB_CALL_AS("ibv_post_srq_recv", API_SRQ(&srq->ibv));
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > srq->max_gs)
		vb_refuse_post_sge(wr->num_sge, srq->max_gs);
	else if (err == ENOMEM)
		vb_refuse_post_full(srq->wqe_cnt - 1);
	else
		vb_refuse_combination("an SGE has more than 2 GiB");
	return err;
}
