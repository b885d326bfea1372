/* SPDX-License-Identifier: MIT */
/*
 * The queue format of hbl devices: bytes of work queue entries, doorbells, congestion-control
 * messages and completions. All little-endian.
 *
 * Send WQE, 32 or 64 bytes:
 *
 *	w0  opcode:5 td:1 te:1 rsvd:1 wqe_index:8 reduction:13 se:1 inline:1 ackreq:1     (Gaudi2)
 *	w1  size
 *	w2  local address (64 bits)       inline: remote address
 *	w4  remote address (64 bits)      inline: data, 16 bytes, or 48 in the 64-byte form
 *	w6  tag
 *	w7  ... completion type in the two highest bits: 0 none, 1 sync object, 2 CQ, 3 both
 *	w8  four strides, w12 four 16-bit counts, w14 size of a stride                      (64-byte form)
 *
 * Receive WQE, 16 bytes; entry i tells how the completion of send WQE i is reported to its
 * requester:
 *
 *	w0  opcode:5 rsvd:3 wqe_index:8 rsvd:15 sob_cmd:1
 *	w1  sync object:27 data:3 completion type:2
 *	w2  size      w3  tag
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"

enum vb_hbl_opcode {
	VB_HBL_NOP = 0,
	VB_HBL_SEND = 1,
	VB_HBL_LINEAR = 2,
	VB_HBL_STRIDE = 3,
	VB_HBL_MULTI_STRIDE = 4,
	VB_HBL_RDV_WRITE = 5,
	VB_HBL_RDV_READ = 6,
	VB_HBL_ATOMIC_FETCH_ADD_G3 = 7,  /* Gaudi2: QOS_UPDATE */
	VB_HBL_ATOMIC_FETCH_ADD_W = 9,   /* nothing comes back */
	VB_HBL_ATOMIC_FETCH_ADD_R = 0xa, /* the old value comes back */
};

/* What a WQE asks for, whatever generation wrote it. */
enum vb_hbl_op {
	VB_HBL_OP_NOP,
	VB_HBL_OP_WRITE,
	VB_HBL_OP_SEND,
	VB_HBL_OP_RDV_WRITE,
	VB_HBL_OP_READ,
	VB_HBL_OP_FETCH_ADD,        /* the old value comes back */
	VB_HBL_OP_FETCH_ADD_SILENT, /* nothing does */
};

enum { VB_HBL_DIMENSIONS = 4, VB_HBL_INLINE_MAX = 48, VB_HBL_RWQE_SIZE = 16 };

/* Completion types, a bit mask. */
enum { VB_HBL_COMPLETE_SOB = 1, VB_HBL_COMPLETE_CQ = 2 };

struct vb_hbl_wr {
	uint8_t op;         /* enum vb_hbl_op */
	uint8_t completion; /* at the responder: VB_HBL_COMPLETE_* */
	bool is_inline;
	uint8_t dimensions; /* 0: contiguous */
	uint32_t size;
	uint32_t tag;
	uint64_t local, remote;
	uint64_t add;
	uint32_t chunk; /* bytes that are contiguous; size where all is */
	uint32_t stride[VB_HBL_DIMENSIONS];
	uint32_t count[VB_HBL_DIMENSIONS];
	uint8_t data[VB_HBL_INLINE_MAX];
};

/* Syndromes of errors, as the device reports them. */
enum vb_hbl_syndrome {
	VB_HBL_SYN_NONE = 0,
	VB_HBL_SYN_BAD_OPCODE = 0x40,
	VB_HBL_SYN_BAD_QPN = 0x41,
	VB_HBL_SYN_BAD_PI = 0x43,
	VB_HBL_SYN_LOCAL_ACCESS = 0x44,
	VB_HBL_SYN_REMOTE_ACCESS = 0x45,
	VB_HBL_SYN_REMOTE_REQUEST = 0x46,
	VB_HBL_SYN_RETRIES = 0x47,
	VB_HBL_SYN_BAD_SIZE = 0x48,
	VB_HBL_SYN_BAD_INDEX = 0x91,
};

const char *vb_hbl_syndrome_text(enum vb_hbl_syndrome syndrome);

/*
 * Decode a send WQE that was copied out of the ring. index: its position, of which the low byte
 * must be in the entry (Gaudi2, where check is set).
 */
enum vb_hbl_syndrome vb_hbl_decode_send(const void *wqe, bool wide, enum vb_generation generation,
					uint32_t index, bool check, struct vb_hbl_wr *wr);

struct vb_hbl_rwqe {
	uint8_t completion; /* at the requester: VB_HBL_COMPLETE_* */
	uint32_t size, tag;
};

enum vb_hbl_syndrome vb_hbl_decode_receive(const void *wqe, enum vb_generation generation,
					   uint32_t index, bool check, struct vb_hbl_rwqe *rwqe);

struct vb_hbl_doorbell {
	uint32_t pi, qpn;
	uint8_t port; /* programs disagree about it; the FIFO's own counts */
};

void vb_hbl_decode_doorbell(const uint32_t dword[2], struct vb_hbl_doorbell *db);

enum { VB_HBL_CC_BBR = 0, VB_HBL_CC_SWIFT = 1 };
/* valid_mask of a BBR message */
enum { VB_HBL_CC_WINDOW = 1, VB_HBL_CC_PACE = 2, VB_HBL_CC_BURST = 4 };

struct vb_hbl_cc {
	uint8_t message; /* VB_HBL_CC_* */
	uint8_t valid;
	uint32_t qpn;
	uint32_t burst;  /* bytes */
	uint32_t window; /* packets */
	uint32_t pace;   /* microseconds between bursts */
};

void vb_hbl_decode_cc(const uint32_t dword[4], struct vb_hbl_cc *cc);

struct vb_hbl_completion {
	uint32_t qpn, index, tag, size;
	bool requester;
};

/* Write a CQE; the word with the valid bit last, with release order. */
void vb_hbl_encode_cqe(void *cqe, const struct vb_hbl_completion *completion);

/* A congestion-control report. */
struct vb_hbl_ccqe {
	uint32_t qpn, rtt, psns;
	bool phase;
};

void vb_hbl_encode_ccqe(void *cqe, const struct vb_hbl_ccqe *report);
