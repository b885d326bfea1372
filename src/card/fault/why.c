// SPDX-License-Identifier: MIT
/*
 * Owns the log lines of error completions: why a work request ended as it did.
 *
 * The data path decides on a status and nothing more. Which of its checks it was is found out again
 * here, after the fact and only where the log wants to know; the questions stand in the order of
 * the checks. Called with the lock of the queue held, inside a read section.
 */
#include <arpa/inet.h>

#include "base/log.h"
#include "base/refusal.h"
#include "card/fault/fault.h"
#include "card/memory/keys.h"
#include "card/queue/objects.h"
#include "card/transport/sides.h"

static const char *const status_names[] = {
	[IBV_WC_LOC_LEN_ERR] = "ends with IBV_WC_LOC_LEN_ERR",
	[IBV_WC_LOC_QP_OP_ERR] = "ends with IBV_WC_LOC_QP_OP_ERR",
	[IBV_WC_LOC_PROT_ERR] = "ends with IBV_WC_LOC_PROT_ERR",
	[IBV_WC_WR_FLUSH_ERR] = "ends with IBV_WC_WR_FLUSH_ERR",
	[IBV_WC_BAD_RESP_ERR] = "ends with IBV_WC_BAD_RESP_ERR",
	[IBV_WC_REM_INV_REQ_ERR] = "ends with IBV_WC_REM_INV_REQ_ERR",
	[IBV_WC_REM_ACCESS_ERR] = "ends with IBV_WC_REM_ACCESS_ERR",
	[IBV_WC_REM_OP_ERR] = "ends with IBV_WC_REM_OP_ERR",
	[IBV_WC_RETRY_EXC_ERR] = "ends with IBV_WC_RETRY_EXC_ERR",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "ends with IBV_WC_RNR_RETRY_EXC_ERR",
};

static const char *status_name(enum ibv_wc_status status)
{
	return (unsigned int)status < sizeof(status_names) / sizeof(status_names[0])
		       ? status_names[status]
		       : "ends with an error";
}

static const char *op_name(uint8_t op)
{
	switch (op) {
	case VB_WR_SEND:
		return "SEND";
	case VB_WR_WRITE:
		return "RDMA WRITE";
	case VB_WR_READ:
		return "RDMA READ";
	case VB_WR_COMPARE_SWAP:
	case VB_WR_FETCH_ADD:
	case VB_WR_MASKED_COMPARE_SWAP:
	case VB_WR_MASKED_FETCH_ADD:
		return "ATOMIC";
	case VB_WR_LOCAL_INVALIDATE:
		return "LOCAL_INV";
	case VB_WR_COPY:
		return "LDMA";
	case VB_WR_TRANSPOSE:
		return "TRANSPOSE";
	case VB_WR_UMR:
		return "UMR";
	case VB_WR_WAIT:
		return "WAIT";
	default:
		return "send request";
	}
}

/* --- keys ------------------------------------------------------------------------------------- */

/*
 * The first SGE that the card may not use, or none: then the memory behind one is not there any
 * more.
 */
static void explain_sges(const struct vb_qp *qp, const struct vb_sge *sge, uint32_t count,
			 unsigned int access)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *why;

		if (sge[i].raw || !sge[i].len)
			continue;
		why = vb_mr_explain(qp->card, sge[i].lkey, qp->init.pd->number, sge[i].addr,
				    sge[i].len, access);
		if (why) {
			vb_refuse_wr_key(sge[i].lkey, why, sge[i].addr, sge[i].len);
			return;
		}
	}
	vb_refuse_wr_gone("local");
}

/* --- the requester ---------------------------------------------------------------------------- */

static bool why_has_response(const struct vb_wr *wr)
{
	return vb_wr_op_has_answer(wr->op);
}

static void explain_operation(const struct vb_qp *qp, const struct vb_wr *wr)
{
	uint16_t rung = (uint16_t)(qp->sq.pi - wr->index);

	if (rung < wr->blocks)
		vb_refuse_wr_doorbell(wr->blocks, rung);
	else if (qp->type == IBV_QPT_UC && (why_has_response(wr) || (wr->flags & VB_WR_INVALIDATE)))
		vb_refuse_wr_read_on_uc();
	else if (why_has_response(wr) && !qp->attr.max_rd_atomic)
		vb_refuse_wr_no_rd_atomic();
	else if (wr->op == VB_WR_LOCAL_INVALIDATE)
		vb_refuse_wr_invalidate(wr->imm);
	else
		vb_refuse_wr_format(wr->wqe_opcode);
}

static void explain_length(const struct vb_qp *qp, const struct vb_wr *wr)
{
	const struct vb_config_adapter *config = qp->dev->adapter->config;

	if (wr->op == VB_WR_COPY || wr->op == VB_WR_TRANSPOSE)
		vb_refuse_wr_local_len(wr->sge[0].len, wr->sge[1].len);
	else if (wr->len > 1ull << VB_MAX_MSG_LOG)
		vb_refuse_wr_long(wr->len, 1ull << VB_MAX_MSG_LOG);
	else if (qp->type == IBV_QPT_UD && wr->len > config->mtu)
		vb_refuse_wr_datagram(wr->len, config->mtu, config->name);
	else if (qp->type == IBV_QPT_RAW_PACKET)
		vb_refuse_wr_frame(wr->len);
	else
		vb_refuse_wr_atomic_len(wr->len);
}

static void explain_silence(struct vb_qp *qp)
{
	char gid[INET6_ADDRSTRLEN] = "?";

	inet_ntop(AF_INET6, qp->attr.ah_attr.grh.dgid.raw, gid, sizeof(gid));
	if (qp->transport & VB_TRANSPORT_CUT)
		vb_refuse_wr_port_down(qp->dev->adapter->config->name);
	else if (!vb_path_can(&qp->path, VB_PATH_REACHES))
		vb_refuse_wr_no_path(gid, qp->attr.dest_qp_num);
	else if (!vb_path_alive(&qp->path))
		vb_refuse_wr_peer_died(qp->attr.dest_qp_num);
	else
		vb_refuse_wr_no_answer(qp->attr.dest_qp_num, qp->attr.retry_cnt);
}

static void explain_memory(const struct vb_qp *qp, const struct vb_wr *wr)
{
	struct vb_sge word = { wr->raddr, 8, wr->rkey, false, false };
	struct vb_sge list = { wr->umr.list_addr, wr->umr.list_len, wr->umr.list_key, false,
			       false };

	switch (wr->op) {
	case VB_WR_COPY:
	case VB_WR_TRANSPOSE:
		if (vb_mr_explain(qp->card, wr->sge[0].lkey, qp->init.pd->number, wr->sge[0].addr,
				  wr->sge[0].len, 0))
			explain_sges(qp, wr->sge, 1, 0);
		else
			explain_sges(qp, wr->sge + 1, 1, IBV_ACCESS_LOCAL_WRITE);
		break;
	case VB_WR_WAIT:
		explain_sges(qp, &word, 1, 0);
		break;
	case VB_WR_UMR:
		explain_sges(qp, &list, 1, 0);
		break;
	default:
		explain_sges(qp, wr->sge, wr->num_sge,
			     why_has_response(wr) ? IBV_ACCESS_LOCAL_WRITE : 0);
	}
}

void vb_why_send(struct vb_qp *qp, const struct vb_wr *wr, enum ibv_wc_status status)
{
	VB_CALL_AS(op_name(wr->op), .kind = "QP", .number = qp->number,
		   .detail = status_name(status), .nested = true);
	bool blamed = qp->blamed;

	qp->blamed = false;
	if (!vb_log_enabled(VB_LOG_INFO))
		return;
	if (blamed) {
		vb_refuse_wr_injected();
		return;
	}
	switch ((int)status) {
	case IBV_WC_LOC_QP_OP_ERR:
		explain_operation(qp, wr);
		break;
	case IBV_WC_LOC_LEN_ERR:
		explain_length(qp, wr);
		break;
	case IBV_WC_LOC_PROT_ERR:
		explain_memory(qp, wr);
		break;
	case IBV_WC_REM_ACCESS_ERR:
		vb_refuse_wr_peer_key(wr->rkey, wr->raddr, wr->len);
		break;
	case IBV_WC_REM_INV_REQ_ERR:
		vb_refuse_wr_peer_request();
		break;
	case IBV_WC_REM_OP_ERR:
		vb_refuse_wr_peer_buffer();
		break;
	case IBV_WC_RETRY_EXC_ERR:
		explain_silence(qp);
		break;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		vb_refuse_wr_rnr(qp->attr.dest_qp_num, qp->attr.rnr_retry);
		break;
	default:
		vb_refuse_wr_answer();
	}
}

void vb_why_flushed(const struct vb_qp *qp, uint32_t count, const char *queue)
{
	VB_CALL_AS("work requests", .kind = "QP", .number = qp->number,
		   .detail = "is in the error state", .nested = true);
	if (count)
		vb_refuse_wr_flushed(count, queue);
}

/* --- the responder ---------------------------------------------------------------------------- */

static unsigned int needed_right(const struct vb_pkt *pkt, const char **name)
{
	switch (pkt->op) {
	case VB_PKT_WRITE:
		*name = "IBV_ACCESS_REMOTE_WRITE";
		return IBV_ACCESS_REMOTE_WRITE;
	case VB_PKT_READ:
		*name = "IBV_ACCESS_REMOTE_READ and max_dest_rd_atomic";
		return IBV_ACCESS_REMOTE_READ;
	case VB_PKT_COMPARE_SWAP:
	case VB_PKT_FETCH_ADD:
	case VB_PKT_MASKED_COMPARE_SWAP:
	case VB_PKT_MASKED_FETCH_ADD:
		*name = "IBV_ACCESS_REMOTE_ATOMIC and max_dest_rd_atomic";
		return IBV_ACCESS_REMOTE_ATOMIC;
	default:
		*name = "";
		return 0;
	}
}

static void explain_request(const struct vb_qp *qp, const struct vb_pkt *pkt)
{
	const char *name;
	unsigned int right = needed_right(pkt, &name);

	if ((right & ~(unsigned int)qp->attr.qp_access_flags) ||
	    (right && right != IBV_ACCESS_REMOTE_WRITE && !qp->attr.max_dest_rd_atomic))
		vb_refuse_in_right(pkt->sqpn, name);
	else
		vb_refuse_in_request(pkt->sqpn);
}

static void explain_access(const struct vb_qp *qp, const struct vb_pkt *pkt)
{
	bool first = pkt->op != VB_PKT_WRITE || (pkt->flags & VB_PKT_FIRST);
	uint32_t key = first ? pkt->rkey : qp->rq.rkey;
	uint64_t va = first ? pkt->va : qp->rq.va + qp->rq.received;
	uint64_t len = pkt->op == VB_PKT_WRITE  ? (first ? pkt->dma_len : pkt->len)
		       : pkt->op == VB_PKT_READ ? pkt->dma_len
						: 8;
	bool placed = pkt->flags & VB_PKT_PLACED;
	const char *name, *why;

	if (pkt->flags & VB_PKT_INVALIDATE) {
		vb_refuse_wr_invalidate(pkt->inv_rkey);
		return;
	}
	why = vb_mr_explain(qp->card, key, qp->init.pd->number, va, len, needed_right(pkt, &name));
	if ((placed && vb_mr_is_live(qp->card, key, qp->init.pd->number)) ||
	    (!first && !why && vb_mr_generation(qp->card, key) != qp->rq.generation))
		why = "was registered anew while the request was under way";
	vb_refuse_in_key(pkt->sqpn, key, why ? why : "names memory that is not mapped any more", va,
			 len);
}

void vb_why_receive(const struct vb_qp *qp, const struct vb_pkt *pkt, enum ibv_wc_status status)
{
	VB_CALL_AS("receive", .kind = "QP", .number = qp->number, .detail = status_name(status),
		   .nested = true);
	if (!vb_log_enabled(VB_LOG_INFO))
		return;
	if (qp->rq.have_wqe & VB_WQE_BLAMED) {
		vb_refuse_wr_injected();
		return;
	}
	switch ((int)status) {
	case IBV_WC_REM_INV_REQ_ERR:
		explain_request(qp, pkt);
		break;
	case IBV_WC_REM_ACCESS_ERR:
		explain_access(qp, pkt);
		break;
	case IBV_WC_LOC_LEN_ERR:
		vb_refuse_in_length(qp->rq.received + pkt->len, qp->rq.capacity);
		break;
	case IBV_WC_LOC_PROT_ERR:
		explain_sges(qp, qp->rq.sge, qp->rq.num_sge, IBV_ACCESS_LOCAL_WRITE);
		break;
	default:
		vb_refuse_in_wqe();
	}
}

void vb_why_mixed(struct vb_qp *qp, const struct vb_pkt *pkt)
{
	bool v1 = pkt->transport & VB_TRANSPORT_V1;

	if (qp->rq.mixed || pkt->sqpn != qp->attr.dest_qp_num)
		return;
	qp->rq.mixed = true;
	vb_info("QP 0x%06x drops packets of QP 0x%06x: they are RoCE v%d and its own sgid_index %u is RoCE v%d; "
		"use GIDs of one type on both sides",
		qp->number, pkt->sqpn, v1 ? 1 : 2, qp->attr.ah_attr.grh.sgid_index, v1 ? 2 : 1);
}
