// SPDX-License-Identifier: MIT
/*
 * Owns lists of pieces of memory (cutting and copying), memory of indirect keys, and what stands in
 * front of a datagram. The rest of message.h is in line there.
 */
#include "card/transport/message.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "card/memory/indirect.h"
#include "card/memory/keys.h"
#include "card/queue/objects.h"
#include "host/fault.h"

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

int vb_message_copy(const struct iovec *to, int to_cnt, uint64_t offset, const struct iovec *from,
		    uint32_t from_cnt)
{
	struct iovec part[VB_WR_MAX_SGE];

	/* Nearly always one piece goes into one. */
	if (from_cnt == 1 && to_cnt == 1 && offset <= to->iov_len &&
	    from->iov_len <= to->iov_len - offset)
		return vb_fault_copy((char *)to->iov_base + offset, from->iov_base, from->iov_len)
			       ? -EFAULT
			       : 0;
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

/* --- indirect keys ---------------------------------------------------------------------------- */

bool vb_message_is_scattered(const struct vb_qp *qp, const struct vb_wr *wr)
{
	unsigned int access = vb_wr_op_has_answer(wr->op) ? IBV_ACCESS_LOCAL_WRITE : 0;
	uint32_t pdn = qp->init.pd->number;

	for (unsigned int i = 0; i < wr->num_sge; i++) {
		const struct vb_sge *sge = &wr->sge[i];

		if (!sge->raw &&
		    !vb_mr_translate(qp->card, sge->lkey, pdn, sge->addr, sge->len, access) &&
		    !vb_indirect_allows(qp->card, sge->lkey, pdn, sge->addr, sge->len, access))
			return false;
	}
	return true;
}

int vb_message_move(const struct vb_qp *qp, const struct vb_sge *sge, uint64_t offset, void *buf,
		    size_t len, bool write)
{
	uint32_t pdn = qp->init.pd->number;
	unsigned int access = write ? IBV_ACCESS_LOCAL_WRITE : 0;
	uint64_t addr = sge->addr + offset;
	void *memory = sge->raw ? (void *)(uintptr_t)addr
				: vb_mr_translate(qp->card, sge->lkey, pdn, addr, len, access);

	if (memory)
		return vb_fault_copy(write ? memory : buf, write ? buf : memory, len) ? -EFAULT : 0;
	return write ? vb_indirect_write(qp->card, sge->lkey, pdn, addr, buf, len, access)
		     : vb_indirect_read(qp->card, sge->lkey, pdn, addr, buf, len, access);
}

static int message_move(const struct vb_qp *qp, const struct vb_wr *wr, uint64_t offset, char *buf,
			size_t len, bool write)
{
	int ret = 0;

	for (unsigned int i = 0; !ret && len && i < wr->num_sge; i++) {
		size_t n;

		if (offset >= wr->sge[i].len) {
			offset -= wr->sge[i].len;
			continue;
		}
		n = wr->sge[i].len - offset < len ? wr->sge[i].len - offset : len;
		ret = vb_message_move(qp, &wr->sge[i], offset, buf, n, write);
		buf += n;
		len -= n;
		offset = 0;
	}
	return ret;
}

int vb_message_read(const struct vb_qp *qp, const struct vb_wr *wr, uint64_t offset, void *buf,
		    size_t len)
{
	return message_move(qp, wr, offset, buf, len, false);
}

int vb_message_write(const struct vb_qp *qp, const struct vb_wr *wr, uint64_t offset,
		     const void *buf, size_t len)
{
	return message_move(qp, wr, offset, (char *)(uintptr_t)buf, len, true);
}

void vb_message_grh(uint8_t out[40], const struct vb_pkt *pkt, enum vb_network network)
{
	enum { UDP = 8, IB_NEXT_HEADER = 0x1b };
	const struct vb_grh *grh = pkt->grh;
	uint32_t behind = pkt->len + 12 + 8 + 4; /* BTH, DETH, ICRC */
	uint16_t length = htons((uint16_t)(network == VB_NETWORK_GRH ? behind : behind + UDP));

	memset(out, 0, 40);
	if (network == VB_NETWORK_IPV4) {
		uint16_t total = htons((uint16_t)(ntohs(length) + 20));

		out[20] = 0x45;
		out[21] = grh->traffic_class;
		memcpy(out + 22, &total, 2);
		out[26] = 0x40; /* do not fragment */
		out[28] = grh->hop_limit;
		out[29] = IPPROTO_UDP;
		memcpy(out + 32, &grh->sgid.raw[12], 4);
		memcpy(out + 36, &grh->dgid.raw[12], 4);
		return;
	}
	out[0] = (uint8_t)(0x60 | grh->traffic_class >> 4);
	out[1] = (uint8_t)(grh->traffic_class << 4);
	memcpy(out + 4, &length, 2);
	out[6] = network == VB_NETWORK_GRH ? IB_NEXT_HEADER : IPPROTO_UDP;
	out[7] = grh->hop_limit;
	memcpy(out + 8, &grh->sgid, 16);
	memcpy(out + 24, &grh->dgid, 16);
}
