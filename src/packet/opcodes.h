/* SPDX-License-Identifier: MIT */
/*
 * Which BTH opcode a packet has, and which headers stand behind the BTH: what encoder and decoder must agree
 * on. The folder's own.
 */
#pragma once

#include "packet/packet.h"

/* Headers behind the BTH. A packet has them in the order of these bits. "Ours": see README.md. */
enum vb_roce_headers {
	ROCE_VETH = 1 << 0,        /* ours: mark, operation, position, syndrome, source QP */
	ROCE_DETH = 1 << 1,        /* Q_Key, source QP */
	ROCE_XRCETH = 1 << 2,      /* shared receive queue */
	ROCE_HBLETH = 1 << 3,      /* ours: tag, work queue entry */
	ROCE_RETH = 1 << 4,        /* address, key, length */
	ROCE_ATOMIC = 1 << 5,      /* AtomicETH: address, key, two operands */
	ROCE_OPERANDS = 1 << 6,    /* ours: two operands, behind a RETH */
	ROCE_MASKS = 1 << 7,       /* ours: two masks */
	ROCE_DC_ASK = 1 << 8,      /* ours: connection, key, version of RoCE */
	ROCE_DC_ANSWER = 1 << 9,   /* ours: connection, queue pair of the target's end */
	ROCE_FRAMEETH = 1 << 10,   /* ours: struct vb_frame_origin */
	ROCE_AETH = 1 << 11,       /* syndrome, MSN */
	ROCE_ATOMIC_ACK = 1 << 12, /* AtomicAckETH: the value before */
	ROCE_IMM = 1 << 13,        /* ImmDt */
	ROCE_IETH = 1 << 14,       /* key to invalidate */
	ROCE_CNP_RESERVED = 1 << 15,
	ROCE_DATA = 1 << 16, /* not a header: data may follow */
	ROCE_HEADERS = 16,
};

enum vb_roce_opcode {
	ROCE_OP_CNP = 0x81,
	/* Manufacturer's opcodes (0xc0 to 0xff), one per kind of packet; VETH tells the operation. */
	ROCE_OP_MASKED = 0xc0,     /* RC: atomics with masks */
	ROCE_OP_XRC_MASKED = 0xc1, /* XRC likewise */
	ROCE_OP_DC = 0xc2,         /* two ends of DC meet */
	ROCE_OP_HBL = 0xc3,        /* every packet of hbl */
	ROCE_OP_FRAME = 0xc4,      /* a raw Ethernet frame, from cable to cable */
};

/* Bytes of the BTH, and values in it. */
enum {
	ROCE_BTH = 12,
	ROCE_ICRC = 4,
	BTH_SOLICITED = 0x80,
	BTH_MIGRATED = 0x40,
	BTH_PAD_SHIFT = 4,
	BTH_VERSION = 0x0f,
	BTH_FECN = 0x80,
	BTH_BECN = 0x40,
	BTH_ACK_REQUEST = 0x80,
	VETH_MARK = 'V',
	VETH_VERSION = 1,
	ETH_ROCE_V1 = 0x8915,
	ROCE_PORT = 4791,
	GRH_NEXT_HEADER = 0x1b,
};

struct vb_roce_form {
	uint8_t opcode;
	uint32_t headers; /* enum vb_roce_headers */
};

/* The form of a packet; false: it has none on a wire. */
bool vb_roce_form_of(const struct vb_pkt *pkt, struct vb_roce_form *form);
/*
 * From an opcode: operation, transport (without VB_TRANSPORT_V1) and flags of the packet, and the headers that
 * follow. Of one of ours only transport and ROCE_VETH: what that says tells the rest, by vb_roce_form_of().
 * False: no packet has this opcode.
 */
bool vb_roce_form_read(uint8_t opcode, struct vb_pkt *pkt, struct vb_roce_form *form);

uint32_t vb_roce_headers_size(uint32_t headers);
/* Data that a packet of this transport can have at most. */
uint32_t vb_roce_data_max(uint8_t transport);
/* Whether packets of this transport tell the version of RoCE (VB_TRANSPORT_V1). */
bool vb_roce_has_version(uint8_t transport);
/* Whether it may ask for an acknowledgement: a request on a reliable transport of the specification. */
bool vb_roce_may_ask(const struct vb_pkt *pkt);
