// SPDX-License-Identifier: MIT
/*
 * Owns what a work request becomes on its way: its local memory in pieces, and the headers of its packets. Called by the
 * requester.
 */
#include "card/internal.h"

#include <errno.h>

#include "base/fault.h"

int vb_message_gather(const struct vb_qp *qp, const struct vb_wr *wr, struct iovec *iov)
{
	bool written =
		wr->op == VB_WR_READ || wr->op == VB_WR_COMPARE_SWAP || wr->op == VB_WR_FETCH_ADD;

	for (unsigned int i = 0; i < wr->num_sge; i++) {
		const struct vb_sge *sge = &wr->sge[i];
		void *p = (void *)(uintptr_t)sge->addr;

		if (!sge->raw)
			p = vb_mr_translate(sge->lkey, qp->init.pd->number, sge->addr, sge->len,
					    written ? IBV_ACCESS_LOCAL_WRITE : 0);
		if (!p)
			return -EINVAL;
		iov[i] = (struct iovec){ p, sge->len };
	}
	return wr->num_sge;
}

uint32_t vb_message_slice(const struct iovec *iov, int cnt, uint64_t offset, uint32_t len,
			  struct iovec *out)
{
	uint32_t n = 0;

	for (int i = 0; i < cnt && len; i++) {
		size_t take;

		if (offset >= iov[i].iov_len) {
			offset -= iov[i].iov_len;
			continue;
		}
		take = iov[i].iov_len - offset < len ? iov[i].iov_len - offset : len;
		out[n++] = (struct iovec){ (char *)iov[i].iov_base + offset, take };
		len -= (uint32_t)take;
		offset = 0;
	}
	return n;
}

void vb_message_packet(const struct vb_qp *qp, const struct vb_wr *wr, struct vb_pkt *pkt)
{
	static const uint8_t ops[] = {
		[VB_WR_SEND] = VB_PKT_SEND,           [VB_WR_WRITE] = VB_PKT_WRITE,
		[VB_WR_READ] = VB_PKT_READ,           [VB_WR_COMPARE_SWAP] = VB_PKT_COMPARE_SWAP,
		[VB_WR_FETCH_ADD] = VB_PKT_FETCH_ADD,
	};

	pkt->op = ops[wr->op];
	pkt->syndrome = 0;
	pkt->transport = (uint8_t)qp->type;
	pkt->dqpn = qp->attr.dest_qp_num;
	pkt->sqpn = qp->number;
	pkt->psn = qp->sq.psn;
	pkt->imm = wr->imm;
	pkt->msn_qkey = 0;
	pkt->va = wr->raddr;
	pkt->rkey = wr->rkey;
	pkt->dma_len = (uint32_t)wr->len;
	pkt->swap_add = wr->swap_add;
	pkt->compare = wr->compare;
	pkt->grh = NULL;
	pkt->source.lkey = 0;
}

uint8_t vb_message_flags(const struct vb_wr *wr, uint64_t at, uint32_t len)
{
	uint8_t flags = at ? 0 : VB_PKT_FIRST;

	if (at + len < wr->len && wr->op != VB_WR_READ)
		return flags;
	flags |= VB_PKT_LAST | VB_PKT_ACK_REQ;
	if (wr->flags & VB_WR_IMM)
		flags |= VB_PKT_IMM;
	if (wr->flags & VB_WR_INVALIDATE)
		flags |= VB_PKT_INVALIDATE;
	if (wr->flags & VB_WR_SOLICITED)
		flags |= VB_PKT_SOLICITED;
	return flags;
}

int vb_message_copy(const struct iovec *to, int to_cnt, uint64_t offset, const struct iovec *from,
		    uint32_t from_cnt)
{
	struct iovec part[VB_WR_MAX_SGE];

	for (uint32_t i = 0; i < from_cnt; i++) {
		const char *src = from[i].iov_base;
		uint32_t n = vb_message_slice(to, to_cnt, offset, (uint32_t)from[i].iov_len, part);

		for (uint32_t k = 0; k < n; k++) {
			if (vb_fault_copy(part[k].iov_base, src, part[k].iov_len))
				return -EFAULT;
			src += part[k].iov_len;
		}
		offset += from[i].iov_len;
	}
	return 0;
}
