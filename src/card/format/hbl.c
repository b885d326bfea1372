// SPDX-License-Identifier: MIT
/*
 * The hbl queue format (hbl.h has the layouts). Knows bytes only; what it is given was copied out
 * of the ring, so that a program that goes on writing cannot change what was checked.
 */
#include "card/format/hbl.h"

#include <endian.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum {
	OPCODE_MASK = 0x1f,
	INDEX_SHIFT = 8,
	REDUCTION_SHIFT = 16,
	REDUCTION_MASK = 0x1fff,
	INLINE_BIT = 30,
	COMPLETION_SHIFT = 30,
	INLINE_NARROW = 16,
	CQE_REQUESTER = 1 << 24,
	QPN_MASK = 0xffffff,
};

#define CQE_VALID  (1u << 31)
#define CCQE_PHASE (1u << 29)

static const char *const syndrome_texts[] = {
	[VB_HBL_SYN_NONE] = "no error",
	[VB_HBL_SYN_BAD_OPCODE] = "the work queue entry has an opcode that this queue does not do",
	[VB_HBL_SYN_BAD_QPN] = "the doorbell names no queue pair that can send",
	[VB_HBL_SYN_BAD_PI] = "the doorbell's producer index is outside of the work queue",
	[VB_HBL_SYN_LOCAL_ACCESS] = "a local address is not mapped",
	[VB_HBL_SYN_REMOTE_ACCESS] = "the peer refused key or address",
	[VB_HBL_SYN_REMOTE_REQUEST] = "the peer's queue does not do this request",
	[VB_HBL_SYN_RETRIES] = "the peer does not answer",
	[VB_HBL_SYN_BAD_SIZE] = "the sizes in the work queue entry do not fit together",
	[VB_HBL_SYN_BAD_INDEX] = "the work queue entry has the index of another one",
};

const char *vb_hbl_syndrome_text(enum vb_hbl_syndrome syndrome)
{
	return syndrome_texts[syndrome];
}

static uint32_t hbl_word(const void *wqe, unsigned int n)
{
	uint32_t value;

	memcpy(&value, (const char *)wqe + 4 * n, sizeof(value));
	return le32toh(value);
}

static uint64_t hbl_address(const void *wqe, unsigned int n)
{
	return hbl_word(wqe, n) | (uint64_t)hbl_word(wqe, n + 1) << 32;
}

static int operation(uint32_t opcode, enum vb_generation generation)
{
	switch (opcode) {
	case VB_HBL_NOP:
		return VB_HBL_OP_NOP;
	case VB_HBL_SEND:
		return VB_HBL_OP_SEND;
	case VB_HBL_LINEAR:
	case VB_HBL_STRIDE:
	case VB_HBL_MULTI_STRIDE:
		return VB_HBL_OP_WRITE;
	case VB_HBL_RDV_WRITE:
		return VB_HBL_OP_RDV_WRITE;
	case VB_HBL_RDV_READ:
		return VB_HBL_OP_READ;
	case VB_HBL_ATOMIC_FETCH_ADD_G3:
		return generation == VB_GAUDI3 ? VB_HBL_OP_FETCH_ADD : -1;
	case VB_HBL_ATOMIC_FETCH_ADD_W:
		return generation == VB_GAUDI2 ? VB_HBL_OP_FETCH_ADD_SILENT : -1;
	case VB_HBL_ATOMIC_FETCH_ADD_R:
		return generation == VB_GAUDI2 ? VB_HBL_OP_FETCH_ADD : -1;
	default:
		return -1;
	}
}

/* Strides: every count that is 0 counts as 1, and the product must be what the size says. */
static bool decode_strides(const void *wqe, uint32_t opcode, struct vb_hbl_wr *wr)
{
	uint64_t total = hbl_word(wqe, 14);

	wr->dimensions = opcode == VB_HBL_STRIDE ? 1 : VB_HBL_DIMENSIONS;
	wr->chunk = hbl_word(wqe, 14);
	for (unsigned int i = 0; i < wr->dimensions; i++) {
		uint32_t counts = hbl_word(wqe, 12 + i / 2);

		wr->stride[i] = hbl_word(wqe, 8 + i);
		wr->count[i] = i % 2 ? counts >> 16 : counts & 0xffff;
		if (!wr->count[i])
			wr->count[i] = 1;
		total *= wr->count[i];
		if (total > UINT32_MAX)
			return false;
	}
	return total == wr->size && (wr->chunk || !wr->size);
}

static enum vb_hbl_syndrome hbl_decode_inline(const void *wqe, bool wide, struct vb_hbl_wr *wr)
{
	uint32_t room = wide ? VB_HBL_INLINE_MAX : INLINE_NARROW;

	if (wr->op != VB_HBL_OP_WRITE && wr->op != VB_HBL_OP_SEND)
		return VB_HBL_SYN_BAD_OPCODE;
	if (wr->size > room)
		return VB_HBL_SYN_BAD_SIZE;
	wr->is_inline = true;
	wr->remote = hbl_address(wqe, 2);
	wr->dimensions = 0;
	memcpy(wr->data, (const char *)wqe + 16, room);
	return VB_HBL_SYN_NONE;
}

static enum vb_hbl_syndrome decode_atomic(const void *wqe, bool wide, struct vb_hbl_wr *wr)
{
	if (wr->size != sizeof(uint64_t) || wr->remote % sizeof(uint64_t))
		return VB_HBL_SYN_BAD_SIZE;
	wr->add = wide ? hbl_address(wqe, 8) : wr->tag;
	return VB_HBL_SYN_NONE;
}

enum vb_hbl_syndrome vb_hbl_decode_send(const void *wqe, bool wide, enum vb_generation generation,
					uint32_t index, bool check, struct vb_hbl_wr *wr)
{
	uint32_t w0 = hbl_word(wqe, 0), opcode = w0 & OPCODE_MASK;
	int op = operation(opcode, generation);

	memset(wr, 0, offsetof(struct vb_hbl_wr, data));
	if (check && generation == VB_GAUDI2 && (w0 >> INDEX_SHIFT & 0xff) != (index & 0xff))
		return VB_HBL_SYN_BAD_INDEX;
	/* A reduction is not done: without it the write would be another one. */
	if (op < 0 || (generation == VB_GAUDI2 && (w0 >> REDUCTION_SHIFT & REDUCTION_MASK)))
		return VB_HBL_SYN_BAD_OPCODE;
	wr->op = (uint8_t)op;
	if (op == VB_HBL_OP_NOP)
		return VB_HBL_SYN_NONE;
	wr->size = wr->chunk = hbl_word(wqe, 1);
	if (w0 >> INLINE_BIT & 1)
		return hbl_decode_inline(wqe, wide, wr);
	wr->local = hbl_address(wqe, 2);
	wr->remote = hbl_address(wqe, 4);
	wr->tag = hbl_word(wqe, 6);
	wr->completion = (uint8_t)(hbl_word(wqe, 7) >> COMPLETION_SHIFT);
	if (opcode == VB_HBL_STRIDE || opcode == VB_HBL_MULTI_STRIDE) {
		if (!wide)
			return VB_HBL_SYN_BAD_OPCODE;
		return decode_strides(wqe, opcode, wr) ? VB_HBL_SYN_NONE : VB_HBL_SYN_BAD_SIZE;
	}
	if (op == VB_HBL_OP_FETCH_ADD || op == VB_HBL_OP_FETCH_ADD_SILENT)
		return decode_atomic(wqe, wide, wr);
	return VB_HBL_SYN_NONE;
}

enum vb_hbl_syndrome vb_hbl_decode_receive(const void *wqe, enum vb_generation generation,
					   uint32_t index, bool check, struct vb_hbl_rwqe *rwqe)
{
	rwqe->completion = (uint8_t)(hbl_word(wqe, 1) >> COMPLETION_SHIFT);
	rwqe->size = hbl_word(wqe, 2);
	rwqe->tag = hbl_word(wqe, 3);
	/* An entry that reports nothing may be left as it is. */
	if (rwqe->completion && check && generation == VB_GAUDI2 &&
	    (hbl_word(wqe, 0) >> INDEX_SHIFT & 0xff) != (index & 0xff))
		return VB_HBL_SYN_BAD_INDEX;
	return VB_HBL_SYN_NONE;
}

void vb_hbl_decode_doorbell(const uint32_t dword[2], struct vb_hbl_doorbell *db)
{
	db->pi = dword[0] & 0x3fffff;
	db->qpn = dword[1] & QPN_MASK;
	db->port = (uint8_t)(dword[1] >> 24);
}

void vb_hbl_decode_cc(const uint32_t dword[4], struct vb_hbl_cc *cc)
{
	cc->burst = dword[0] & 0x3fffff;
	cc->message = dword[0] >> 22 & 3;
	cc->window = dword[1] & 0xffffff;
	cc->pace = dword[2] & 0xffff;
	cc->qpn = dword[3] & QPN_MASK;
	cc->valid = dword[3] >> 24 & 0xf;
}

static void hbl_store_entry(void *cqe, const uint32_t value[4])
{
	_Atomic uint32_t *to = cqe;

	for (int i = 1; i < 4; i++)
		atomic_store_explicit(&to[i], htole32(value[i]), memory_order_relaxed);
	/* The program reads the valid bit first. */
	atomic_store_explicit(&to[0], htole32(value[0]), memory_order_release);
}

void vb_hbl_encode_cqe(void *cqe, const struct vb_hbl_completion *completion)
{
	hbl_store_entry(cqe, (uint32_t[]){ (completion->qpn & QPN_MASK) | CQE_VALID |
						   (completion->requester ? CQE_REQUESTER : 0),
					   completion->index, completion->tag, completion->size });
}

void vb_hbl_encode_ccqe(void *cqe, const struct vb_hbl_ccqe *report)
{
	hbl_store_entry(cqe, (uint32_t[]){ CQE_VALID | (report->phase ? CCQE_PHASE : 0),
					   report->qpn & QPN_MASK, report->rtt & 0xffffff,
					   report->psns & 0xffffff });
}
