/* SPDX-License-Identifier: MIT */
/* The two sides of a queue pair: what the requester and the responder remember. */
#pragma once

#include "base/lock.h"
#include "card/card.h"
#include "card/format/format.h"
#include "card/transport/reliable.h"

/*
 * How a message is transferred to another process. A retransmission uses the same method and the
 * same split: the target may have taken some of the packets, and counts on their numbers.
 */
struct vb_transfer {
	bool chosen;
	bool pulls;          /* its packets describe what the target fetches itself */
	uint32_t split;      /* the sender has placed the bytes from here on; VB_NO_SPLIT: none */
	uint32_t generation; /* of the target's registration when it did so */
};

#define VB_NO_SPLIT UINT32_MAX

/* A message that was sent in packets and is not acknowledged yet. */
struct vb_inflight {
	struct vb_flight flight; /* first */
	uint16_t index;
	uint8_t op, flags, wqe_opcode;
	uint8_t blocks;
	uint32_t len;
	struct vb_transfer transfer;
};

/*
 * The requester: everything below is under lock. Indices are block numbers, 16 bits, as in the
 * format.
 */
struct vb_sq {
	_Alignas(64) struct vb_lock lock;
	void *buf;
	uint32_t blocks;
	uint32_t shift;              /* log2 of the bytes of a block */
	uint16_t pi;                 /* doorbell */
	uint16_t next;               /* WQE to send next */
	bool loaded;                 /* wr holds the WQE at next */
	bool unflushed;              /* packets went out that the peer was not told of */
	bool erred;                  /* a WQE completed with an error since the last reset */
	struct vb_transfer transfer; /* of wr */
	bool no_pull;                /* the target cannot fetch payloads */
	uint32_t to_place;  /* we place the bytes of wr from here on; 0: all, VB_NO_SPLIT: none */
	uint64_t sent;      /* payload bytes of wr already sent in packets; or its frames */
	uint64_t cost;      /* of what was sent since the doorbell, see RUN_BYTES */
	uint32_t resend;    /* blocks from next on that were begun before a rewind */
	uint32_t first_psn; /* of wr */
	struct vb_sender sender;      /* PSNs, what is in flight, retries, timers */
	struct vb_inflight *inflight; /* its ring, of blocks entries */
	uint32_t again; /* entries from sender.tail to here tell of messages to be sent again */
	enum ibv_wc_status failing; /* what wr will end with, once nothing is in flight before it */
	struct vb_path_counters sent_by; /* ways that WQEs took */
	struct vb_traffic traffic;       /* of requests: received is what READs asked for */
	uint64_t rewinds;                /* times that packets were sent again */
	struct {
		uint32_t kbps;  /* of raw frames; 0: no limit */
		uint32_t burst; /* bytes that may go at once */
		uint64_t next;  /* ns: nothing is sent before */
	} pace;
	struct vb_wr wr;
	uint64_t
		watch_at; /* ns: when to look again at the word, or for the room, that wr waits for; 0: it does not */
	uint32_t watch_ns; /* how long it was from the last look to that */
};

/* A response that could not be sent at once. */
struct vb_response {
	uint8_t op; /* VB_PKT_READ_RESPONSE or VB_PKT_ATOMIC_RESPONSE */
	uint32_t psn, msn;
	uint64_t va; /* READ: where in our memory */
	uint32_t rkey, generation;
	uint32_t len, sent;
	uint64_t value; /* atomic: the original */
};

enum {
	VB_RESPONSES = VB_REPLAYS,     /* VB_MAX_RD_ATOMIC; asserted in responder.c */
	VB_ANSWERS = 2 * VB_RESPONSES, /* and refusals */
};

enum vb_have_wqe {
	VB_WQE_HAVE = 1,
	VB_WQE_ASKED = 2,  /* the next one that is taken is to fail (inject_qp.c) */
	VB_WQE_BLAMED = 4, /* this one fails for that reason */
};

/* The responder: under lock. */
struct vb_rq {
	_Alignas(64) struct vb_lock lock;
	void *buf;
	uint32_t count, shift;
	uint16_t ci;
	struct vb_receiver receiver; /* what comes next, and atomics that were done */
	uint32_t msn;
	bool mixed; /* the log has a line about packets of the other version of RoCE */
	bool ack_due;
	bool duplicate; /* acknowledge, though nothing is new */
	_Atomic uint32_t
		acked; /* epsn as last told to the requester, in an answer or on the back of a request */
	/* the message being received */
	bool open;        /* between FIRST and LAST */
	uint8_t have_wqe; /* a receive WQE was taken for it: enum vb_have_wqe */
	uint8_t asked;    /* with VB_WQE_ASKED: enum ibv_wc_status */
	bool inlined;     /* its data was left there */
	uint8_t op;
	uint16_t wqe_index;
	uint16_t num_sge;
	uint32_t stride; /* of the WQE that was taken: the next one that is free */
	uint64_t received, capacity;
	struct vb_traffic traffic; /* of messages and frames; sent is what peers' READs asked for */
	uint64_t packets, dropped; /* that came; that found no receive posted, and were lost */
	uint64_t va;               /* WRITE: where */
	uint32_t rkey, generation, dma_len;
	struct vb_response response[VB_ANSWERS]; /* to send: ring */
	uint32_t resp_head, resp_tail;
	struct vb_sge sge[VB_WR_MAX_SGE];
	bool pinned;                            /* the message has several packets: */
	uint32_t sge_generation[VB_WR_MAX_SGE]; /* of the registrations when it began */
};
