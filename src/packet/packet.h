/* SPDX-License-Identifier: MIT */
/*
 * A packet between two queue pairs: the fields that RoCE has, and those that only cards of this kind say to
 * each other. The card makes and takes packets, the fabric carries them between processes (fabric/ring.c),
 * roce.h has their bytes on a wire.
 *
 * Members of a union are names for one word: operation and transport decide which of them a packet has. Each
 * field has one meaning; fields that an operation does not use are not carried.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <infiniband/verbs.h>

/* In the transport of a packet or a queue pair: its route is RoCE v1. Two versions do not meet. */
enum {
	VB_TRANSPORT_V1 = 0x80,
	/* Of a queue pair only: its port is down, so that it takes nothing. Never in a packet. */
	VB_TRANSPORT_CUT = 0x20,
	VB_TRANSPORT_HBL = 0x48, /* beyond enum ibv_qp_type */
	VB_TRANSPORT_DC =
		0x4a, /* how two ends of DC meet (card/transport/dc.h); the rest goes as RC */
};

static inline uint8_t vb_transport_type(uint8_t transport)
{
	return transport & (uint8_t)~VB_TRANSPORT_V1;
}

/* The largest frame of raw Ethernet. */
enum { VB_FRAME_MAX = 9216 };

/* Where a raw frame goes that another process has sent; bits. */
enum vb_frame_way {
	VB_FRAME_TO_PORT = 1 << 0,  /* to receivers on the sender's own port */
	VB_FRAME_TO_CABLE = 1 << 1, /* to the other ports of its cable */
	VB_FRAME_ARRIVES = 1 << 2,  /* it was put on the cable: to this port, nowhere else */
	VB_FRAME_SNIFFED = 1 << 3,  /* it shows a packet of queue pairs: to sniffers only */
};

/* RAW_PACKET only: where a frame comes from. */
struct vb_frame_origin {
	union {
		__be64 adapter;  /* GUID of the sender's */
		__be64 receiver; /* VB_FRAME_ARRIVES: GUID of the adapter that gets it */
	};
	union {
		uint64_t cable;   /* hash of the cable's name */
		__be64 addressee; /* VB_FRAME_SNIFFED: GUID of the addressee's adapter */
	};
	uint32_t ways; /* enum vb_frame_way */
	uint32_t zero; /* no padding: the struct is copied to the other process */
	uint64_t ns; /* when it was sent, for those that sniff; 0: when vb_frame_send() is called */
};

/* The values travel between cards (roce.h): a new operation is added at an end, none is renumbered. */
enum vb_pkt_op {
	VB_PKT_SEND = 1,
	VB_PKT_WRITE,
	VB_PKT_READ,
	VB_PKT_COMPARE_SWAP,
	VB_PKT_FETCH_ADD,
	VB_PKT_MASKED_COMPARE_SWAP,
	VB_PKT_MASKED_FETCH_ADD,
	VB_PKT_ACK, /* syndrome tells ACK, RNR NAK, NAK */
	VB_PKT_READ_RESPONSE,
	VB_PKT_ATOMIC_RESPONSE,
	VB_PKT_OPS, /* those below it go between processes of a host */
	/* Only on a wire: */
	VB_PKT_CNP = 0x40, /* congestion notification, to the queue pair that sends too fast */
};

enum vb_pkt_flags {
	VB_PKT_FIRST = 1 << 0,
	VB_PKT_LAST = 1 << 1,
	VB_PKT_ONLY = VB_PKT_FIRST | VB_PKT_LAST,
	VB_PKT_IMM = 1 << 2,
	VB_PKT_INVALIDATE = 1 << 3,
	VB_PKT_SOLICITED = 1 << 4,
	VB_PKT_ACK_REQ = 1 << 5,
	/* Between processes of a host only: */
	VB_PKT_PLACED =
		1 << 6, /* WRITE: the initiator has put data in place itself; see generation */
	VB_PKT_ACKS = 1 << 7, /* a request that also acknowledges, up to acked_psn */
};

/* AETH syndromes (IBTA 9.7.5.2.4) */
enum vb_syndrome {
	VB_SYN_ACK = 0x1f, /* credits not limited */
	VB_SYN_RNR = 0x20, /* | timer code */
	VB_SYN_NAK_SEQUENCE = 0x60,
	VB_SYN_NAK_INVALID = 0x61,
	VB_SYN_NAK_ACCESS = 0x62,
	VB_SYN_NAK_OPERATION = 0x63,
	VB_SYN_KIND_MASK = 0x60,
	/*
	 * Never on a wire: the payload could not be read where the responder itself copies from the
	 * source.
	 */
	VB_SYN_SOURCE_FAULT = 0xff,
	/* Nor this: the responder cannot fetch a payload (struct vb_source); send it along. */
	VB_SYN_NO_PULL = 0xfe,
};

/* The global route header of a datagram. */
struct vb_grh {
	union ibv_gid sgid, dgid;
	uint8_t traffic_class, hop_limit;
};

/*
 * The payload of an RC SEND or WRITE that is described instead of carried: the target fetches it
 * from the sender's memory (fabric/direct.h). Only between processes of a host.
 */
struct vb_source {
	uint64_t addr;
	uint32_t lkey; /* 0: the payload is carried */
};

enum {
	VB_PULL_MAX = 1 << 20
}; /* bytes that one packet may describe: a poller is kept for that long */

struct vb_pkt {
	uint8_t op;        /* enum vb_pkt_op */
	uint8_t syndrome;  /* ACK, READ and ATOMIC responses */
	uint8_t transport; /* enum ibv_qp_type of the sender, and VB_TRANSPORT_V1 */
	uint16_t flags;    /* enum vb_pkt_flags */
	uint32_t dqpn, sqpn;
	uint32_t psn;
	union {
		uint32_t imm;     /* VB_PKT_IMM: immediate data, in network order */
		uint32_t hbl_tag; /* hbl requests: tag of the completion */
		uint32_t dc_end;  /* DC answer: the queue pair that is the target's end */
	};
	uint32_t inv_rkey;  /* VB_PKT_INVALIDATE: the key */
	uint32_t msn;       /* responses: message sequence number */
	uint32_t qkey;      /* UD */
	uint32_t acked_psn; /* VB_PKT_ACKS: the last PSN received */
	uint32_t hbl_entry; /* hbl requests: completion type and index of the work queue entry */
	uint32_t xrc_srqn;  /* XRC requests, on a wire only: the shared receive queue */
	/* RETH, AtomicETH */
	union {
		uint64_t va;
		uint64_t dc_key; /* DC request: the target's access key */
	};
	uint32_t rkey;
	union {
		uint32_t dma_len;
		uint32_t word; /* masked atomics: bytes of the word, 4 or 8 */
	};
	uint32_t
		generation; /* VB_PKT_PLACED: of the registration that the initiator found, instead of va */
	union {
		uint64_t swap_add;      /* atomics: the value to swap in or to add */
		uint64_t original;      /* ATOMIC response: the value before */
		uint64_t dc_connection; /* DC: number of the connection */
	};
	union {
		uint64_t compare;    /* COMPARE_SWAP, with masks or without */
		uint64_t boundary;   /* MASKED_FETCH_ADD: the last bits of its fields */
		uint64_t dc_version; /* DC request: VB_TRANSPORT_V1 or 0 */
	};
	uint64_t swap_mask, compare_mask; /* masked atomics */
	const struct vb_grh *grh;         /* UD only */
	struct vb_frame_origin origin;    /* RAW_PACKET only */
	/*
	 * Payload: the program's memory on the way out, the ring's on the way in; no pieces where
	 * it is described.
	 */
	struct vb_source source;
	const struct iovec *iov;
	uint32_t iov_cnt;
	uint32_t len;
};

static inline bool vb_pkt_is_masked(const struct vb_pkt *pkt)
{
	return pkt->op == VB_PKT_MASKED_COMPARE_SWAP || pkt->op == VB_PKT_MASKED_FETCH_ADD;
}

static inline bool vb_pkt_is_atomic(const struct vb_pkt *pkt)
{
	return pkt->op >= VB_PKT_COMPARE_SWAP && pkt->op <= VB_PKT_MASKED_FETCH_ADD;
}
