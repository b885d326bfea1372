/* SPDX-License-Identifier: MIT */
/*
 * What a work request becomes on its way: its local memory in pieces, and the headers of its
 * packets. Every message passes here, so most of it is in line. Inside a read section.
 */
#pragma once

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "card/memory/keys.h"
#include "card/queue/objects.h"

/*
 * The local memory of a work request; the number of pieces or -EINVAL where a key does not cover
 * them.
 */
static inline int vb_message_gather(const struct vb_qp *qp, const struct vb_wr *wr,
				    struct iovec *iov)
{
	bool written = vb_wr_op_has_answer(wr->op);

	for (unsigned int i = 0; i < wr->num_sge; i++) {
		const struct vb_sge *sge = &wr->sge[i];
		void *p = (void *)(uintptr_t)sge->addr;

		if (!sge->raw)
			p = vb_mr_translate(qp->card, sge->lkey, qp->init.pd->number, sge->addr,
					    sge->len, written ? IBV_ACCESS_LOCAL_WRITE : 0);
		if (!p)
			return -EINVAL;
		iov[i] = (struct iovec){ p, sge->len };
	}
	return wr->num_sge;
}

/* The headers of a packet; flags and payload are left to the caller. */
static inline void vb_message_packet(const struct vb_qp *qp, const struct vb_wr *wr,
				     struct vb_pkt *pkt)
{
	static const uint8_t ops[] = {
		[VB_WR_SEND] = VB_PKT_SEND,
		[VB_WR_WRITE] = VB_PKT_WRITE,
		[VB_WR_READ] = VB_PKT_READ,
		[VB_WR_COMPARE_SWAP] = VB_PKT_COMPARE_SWAP,
		[VB_WR_FETCH_ADD] = VB_PKT_FETCH_ADD,
		[VB_WR_MASKED_COMPARE_SWAP] = VB_PKT_MASKED_COMPARE_SWAP,
		[VB_WR_MASKED_FETCH_ADD] = VB_PKT_MASKED_FETCH_ADD,
	};

	pkt->op = ops[wr->op];
	pkt->syndrome = 0;
	pkt->transport = qp->transport;
	pkt->dqpn = qp->attr.dest_qp_num;
	pkt->sqpn = qp->number;
	pkt->psn = qp->sq.sender.psn;
	pkt->imm = pkt->inv_rkey = wr->imm;
	pkt->qkey = pkt->acked_psn = 0;
	pkt->va = wr->raddr;
	pkt->rkey = wr->rkey;
	pkt->dma_len = (uint32_t)wr->len;
	pkt->swap_add = wr->swap_add;
	pkt->compare = wr->compare;
	if (__builtin_expect(vb_pkt_is_masked(pkt), 0)) {
		pkt->swap_mask = wr->swap_mask;
		pkt->compare_mask = wr->compare_mask;
	}
	pkt->grh = NULL;
	pkt->source.lkey = 0;
}

/*
 * What an atomic puts into local memory: a word of the host, or 4 bytes as they are on a wire, as
 * mlx5 hardware has it where atomic_req_8B_endianness_mode is 1. Returns the number of bytes.
 */
static inline size_t vb_message_result(const struct vb_wr *wr, uint64_t old, uint64_t *result)
{
	uint32_t half = htobe32((uint32_t)old);

	*result = old;
	if (__builtin_expect(wr->word != sizeof(half), 1))
		return sizeof(*result);
	memcpy(result, &half, sizeof(half));
	return sizeof(half);
}

_Static_assert(VB_WR_IMM >> 1 == VB_PKT_IMM && VB_WR_INVALIDATE >> 1 == VB_PKT_INVALIDATE &&
		       VB_WR_SOLICITED << 3 == VB_PKT_SOLICITED,
	       "flags that are moved together");

/* What the last packet says of a message. */
static inline uint16_t vb_message_last(const struct vb_wr *wr)
{
	return (uint16_t)(VB_PKT_LAST | VB_PKT_ACK_REQ |
			  (wr->flags & (VB_WR_IMM | VB_WR_INVALIDATE)) >> 1 |
			  (wr->flags & VB_WR_SOLICITED) << 3);
}

/* Flags of the packet that stands for bytes [at, at + len) of a message. */
static inline uint16_t vb_message_flags(const struct vb_wr *wr, uint64_t at, uint32_t len)
{
	uint16_t flags = at ? 0 : VB_PKT_FIRST;

	if (at + len < wr->len && wr->op != VB_WR_READ)
		return flags;
	return flags | vb_message_last(wr);
}

/* --- message.c --- */
/*
 * vb_message_gather() found no memory for a work request: whether that is because indirect keys have
 * none, and all keys allow what it needs. Then its bytes are copied with the next two.
 */
bool vb_message_is_scattered(const struct vb_qp *qp, const struct vb_wr *wr) __attribute__((cold));
/* Bytes [offset, offset + len) of such a work request from or to its memory; 0, -EACCES or -EFAULT. */
int vb_message_read(const struct vb_qp *qp, const struct vb_wr *wr, uint64_t offset, void *buf,
		    size_t len);
int vb_message_write(const struct vb_qp *qp, const struct vb_wr *wr, uint64_t offset,
		     const void *buf, size_t len);
/* The same of one piece. */
int vb_message_move(const struct vb_qp *qp, const struct vb_sge *sge, uint64_t offset, void *buf,
		    size_t len, bool write);
/* [offset, offset + len) of a list of pieces; the number of pieces. */
uint32_t vb_message_slice(const struct iovec *iov, int cnt, uint64_t offset, uint32_t len,
			  struct iovec *out);
/* Copy pieces to others, offset bytes into them; 0 or -EFAULT. */
int vb_message_copy(const struct iovec *to, int to_cnt, uint64_t offset, const struct iovec *from,
		    uint32_t from_cnt);
/*
 * The 40 bytes in front of a datagram. RoCE v1: a global routing header, which is laid out as an
 * IPv6 header. RoCE v2 (A17.4.5): an IPv6 header, or 20 bytes of nothing and an IPv4 header.
 */
void vb_message_grh(uint8_t out[40], const struct vb_pkt *pkt, enum vb_network network);
