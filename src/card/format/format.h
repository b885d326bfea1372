/* SPDX-License-Identifier: MIT */
/*
 * Queue formats: what a codec turns WQE bytes into, and completions from.
 *
 * A codec knows bytes, never sockets; the engine knows work requests, never WQE bytes. Queue
 * contents are untrusted: a codec reads every field once, checks sizes against the ring and answers
 * nonsense with -EINVAL.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

enum vb_wr_op {
	VB_WR_SEND,
	VB_WR_WRITE,
	VB_WR_READ,
	VB_WR_COMPARE_SWAP,
	VB_WR_FETCH_ADD,
	VB_WR_MASKED_COMPARE_SWAP,
	VB_WR_MASKED_FETCH_ADD, /* compare: the last bits of the fields that are added one by one */
	VB_WR_LSO,              /* raw Ethernet: a large frame to be cut */
	/* from here on local work */
	VB_WR_NOP,
	VB_WR_LOCAL = VB_WR_NOP,
	VB_WR_LOCAL_INVALIDATE,
	VB_WR_COPY, /* from sge[0] to sge[1] */
	VB_WR_TRANSPOSE,
	VB_WR_UMR, /* configure the indirect key imm */
	VB_WR_WAIT, /* until the word at raddr, of rkey, compares with `compare` under the mask swap_add */
};

static inline bool vb_wr_op_is_atomic(uint8_t op)
{
	return op >= VB_WR_COMPARE_SWAP && op <= VB_WR_MASKED_FETCH_ADD;
}

/* Its answer is written to local memory. */
static inline bool vb_wr_op_has_answer(uint8_t op)
{
	return op >= VB_WR_READ && op <= VB_WR_MASKED_FETCH_ADD;
}

enum vb_wr_wait {
	VB_WAIT_ALWAYS,
	VB_WAIT_EQUAL,
	VB_WAIT_BIGGER,
	VB_WAIT_SMALLER,
	VB_WAIT_CYCLIC_BIGGER,
	VB_WAIT_CYCLIC_SMALLER,
	VB_WAIT_CONDITIONS,
	VB_WAIT_CONDITION = 0xf, /* mask */
	VB_WAIT_INVERT = 0x10,
};

enum vb_wr_flags {
	VB_WR_SIGNALED = 1 << 0,
	VB_WR_SOLICITED = 1 << 1,
	VB_WR_FENCE = 1 << 2,
	VB_WR_IMM = 1 << 3,
	VB_WR_INVALIDATE = 1 << 4,
	VB_WR_FIRST_ERROR = 1 << 5, /* of errors only the queue's first completes */
	VB_WR_INLINED = 1 << 7,     /* received: the data lies in the receive WQE */
};

enum { VB_WR_MAX_SGE = 64 }; /* a WQE of 63 units of 16 bytes cannot hold more */

struct vb_sge {
	uint64_t addr;
	uint32_t len;
	uint32_t lkey;
	bool raw;  /* inline data: addr is a pointer into the ring, no key */
	bool more; /* ... which wraps: the next sge is the rest of it */
};

/* How many frames a send work request of raw Ethernet has. */
enum vb_wr_frames {
	VB_FRAMES_ONE,
	VB_FRAMES_CUT,  /* one for every mss bytes */
	VB_FRAMES_EACH, /* one for every sge */
};

/* What a configuration of an indirect key sets. */
enum vb_umr_set {
	VB_UMR_LAYOUT = 1 << 0,
	VB_UMR_START = 1 << 1,
	VB_UMR_LENGTH = 1 << 2,
	VB_UMR_TAG = 1 << 3,        /* the low byte of the key */
	VB_UMR_FREE = 1 << 4,       /* the key is free afterwards */
	VB_UMR_CHECK_FREE = 1 << 5, /* and must be before */
};

struct vb_umr {
	uint8_t set; /* enum vb_umr_set */
	uint8_t tag;
	unsigned int access_mask, access; /* enum ibv_access_flags: which, and what they are */
	uint64_t start, length;
	const void *ring; /* where the codec finds the layout, */
	uint32_t mask, at, units;
	/* or where it lies in memory; list_len 0: it is in the ring */
	uint64_t list_addr;
	uint32_t list_key, list_len;
};

/* Memory that an indirect key is made of. */
struct vb_piece {
	uint64_t addr;
	uint32_t key, len;
	uint64_t stride; /* from one block of a layout to the next */
	uint64_t end;    /* in the block; the card's */
};

/* A block of pieces, repeated. */
struct vb_layout {
	struct vb_piece *piece;
	uint32_t count, max;
	uint32_t repeat;
	uint64_t bytes; /* of a block; the card's */
};

/* A send work request, decoded. */
struct vb_wr {
	uint8_t op;           /* enum vb_wr_op */
	uint8_t flags;        /* enum vb_wr_flags */
	uint8_t wqe_opcode;   /* the format's own, for the CQE */
	uint8_t wqe_modifier; /* mlx5: of the opcode */
	uint8_t blocks;       /* ring blocks it takes */
	uint8_t wait;         /* VB_WR_WAIT: enum vb_wr_wait */
	uint16_t index;       /* of its first block */
	uint16_t num_sge;
	uint32_t imm; /* or the key to invalidate */
	uint32_t rkey;
	struct {
		uint8_t element, rows, cols; /* VB_WR_TRANSPOSE; element: bytes */
	} matrix;
	uint64_t len; /* sum over sge */
	uint64_t raddr;
	uint64_t swap_add, compare;
	uint64_t swap_mask, compare_mask; /* VB_WR_MASKED_COMPARE_SWAP */
	uint8_t word;                     /* bytes that an atomic changes */
	/* datagrams, and DC, where dqpn is the DCT */
	uint32_t dqpn, qkey;
	uint64_t dc_key;
	uint16_t stream; /* of a DCI */
	union ibv_gid dgid;
	uint8_t sgid_index, traffic_class, hop_limit;
	uint8_t dmac[6];
	uint32_t flow_label;
	/*
	 * VB_WR_LSO: the first sge are header_len bytes of headers, repeated in front of every mss
	 * bytes
	 */
	uint16_t mss, header_len;
	/* raw Ethernet */
	uint8_t frames;    /* enum vb_wr_frames */
	uint8_t checksums; /* enum vb_csum: to be filled in */
	uint8_t swp[4];    /* where headers are: outer L4, L3, inner L4, L3; 0: look */
	uint8_t swp_flags;
	bool insert_vlan;
	bool to_wire;  /* queues of the sender's own port do not hear it */
	uint32_t vlan; /* EtherType << 16 | tag */
	uint32_t metadata;
	struct vb_umr umr; /* VB_WR_UMR */
	struct vb_sge sge[VB_WR_MAX_SGE];
};

/* What carried a datagram: header types of RoCE packets as mlx5 CQEs number them. */
enum vb_network { VB_NETWORK_GRH, VB_NETWORK_IPV6, VB_NETWORK_IPV4 };

/* A completion, before it becomes a CQE. */
struct vb_completion {
	enum ibv_wc_status status;
	bool receive;       /* responder side */
	uint8_t turn;       /* of the ring, where CQEs carry it */
	uint8_t wqe_opcode; /* requester: of the WQE */
	uint8_t op;         /* responder: VB_WR_SEND or VB_WR_WRITE (with immediate) */
	uint8_t flags;      /* enum vb_wr_flags: IMM, INVALIDATE, SOLICITED */
	bool grh;
	uint8_t network; /* enum vb_network, where grh is set */
	uint16_t wqe_index;
	uint32_t qpn;
	uint32_t byte_len;
	uint32_t imm;
	uint32_t src_qpn;
	uint32_t srqn; /* 0: not from an SRQ */
	uint32_t uidx;
	uint64_t timestamp;
	bool real_time; /* the time of day is wanted, not the card's clock */
	/* raw Ethernet, received; imm is the RSS hash */
	const struct vb_frame *frame; /* as it came; NULL: it is none */
	uint8_t hash_type;            /* enum vb_hash_type */
	bool stripped;                /* the outer tag is not in the buffer */
	bool filler;                  /* strides that no frame is in */
	uint16_t strides;             /* that the frame takes; wqe_index is the first; 0: a WQE */
	uint16_t wqe_id;              /* with strides: the WQE */
	uint32_t flow_tag, metadata;
};

/* What a compressed CQE says by itself; an array of them fills one CQE. */
enum { VB_MINI_MAX = 7, VB_MINI_MAX_BASIC = 64 };

struct vb_mini {
	uint8_t bytes[8];
};

/* What a store to a doorbell page says. */
enum vb_bell_kind { VB_BELL_SEND, VB_BELL_ARM, VB_BELL_EQ };

struct vb_bell {
	uint8_t kind;   /* enum vb_bell_kind */
	bool solicited; /* ARM: only for solicited completions */
	bool counted;   /* ARM: the arming has a sequence number, sn, of 2 bits */
	uint8_t sn;
	uint32_t number; /* of the QP, CQ or EQ */
	uint32_t ci;     /* ARM, EQ: consumer index, or VB_BELL_CI_FROM_RECORD */
};

/* ARM: the doorbell does not say it, the CQ's record does. */
#define VB_BELL_CI_FROM_RECORD UINT32_MAX

enum { VB_BELLS_MAX = 3 }; /* that one store can ring */

struct vb_codec {
	/* What the card checks before it makes a queue. */
	uint32_t cqe_size;  /* bytes of a CQE; in an entry of twice that it is last */
	uint32_t sq_blocks; /* of the largest send ring */
	uint8_t sq_shift_min, sq_shift_max; /* log2 of the bytes of a block */
	/*
	 * Decode the send WQE at block index of a ring of so many blocks of 1 << shift bytes; 0 or
	 * -EINVAL (then index, blocks and wqe_opcode are still set).
	 */
	int (*send)(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
		    struct vb_wr *wr);
	/* The same for a datagram queue, whose WQEs carry an address vector. */
	int (*send_ud)(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
		       struct vb_wr *wr);
	/* And for an initiator of DC, the same with a key of the target; NULL where the format has none. */
	int (*send_dc)(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
		       struct vb_wr *wr);
	/* And for a queue of raw frames; NULL where the format has none. */
	int (*send_raw)(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			struct vb_wr *wr);
	/*
	 * The layout that VB_WR_UMR sets; 0, -EINVAL, or -EFAULT where list, which is the memory of
	 * one that is not in the ring, is not there. NULL where the format has none.
	 */
	int (*layout)(const struct vb_wr *wr, const void *list, struct vb_layout *layout);
	/*
	 * The number of blocks of the WQE at index if the driver has given it to the card, else 0:
	 * for formats whose doorbell does not say how far. NULL where it does.
	 */
	uint32_t (*owned)(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index);
	/*
	 * Decode a receive WQE of size bytes; the number of sge (at most VB_WR_MAX_SGE) or -EINVAL.
	 */
	int (*receive)(const void *wqe, uint32_t size, bool shared, struct vb_sge *sge);
	/* The WQE after this one in a shared receive queue. */
	uint16_t (*next)(const void *wqe);
	/* Write a CQE; the owner bit last, with release order. */
	void (*completion)(void *cqe, const struct vb_completion *completion, bool owner);
	/* Write the last CQE of a ring that is replaced; NULL: the format has none. */
	void (*moved)(void *cqe, uint8_t turn, bool owner);
	/* The BlueFlame register of a doorbell page, where stores are combined. Size 0: there is no such register. */
	uint16_t combined_at, combined_size;
	/* What a store of size bytes at an offset of a doorbell page rings: the number of bells. */
	unsigned int (*doorbell)(size_t offset, const void *data, size_t size,
				 struct vb_bell bells[VB_BELLS_MAX]);
	/*
	 * What the arm record of a CQ asks for; false: nothing. The number is left to the caller.
	 */
	bool (*armed)(uint32_t record, struct vb_bell *bell);
	/* Compression; NULL where the format has none. */
	/* Whether title and the mini CQE say all of a CQE that comes so many behind its title. */
	bool (*mini)(const void *title, const void *cqe, uint16_t behind, uint8_t format,
		     struct vb_mini *mini);
	/* Write an array of mini CQEs; the turn of the ring last, with release order. */
	void (*minis)(void *cqe, const struct vb_mini *minis, uint8_t count, uint8_t turn,
		      bool owner);
	/*
	 * Write the title of so many completions, with their mini CQEs in the ring already; of one:
	 * as a CQE. The owner bit last, with release order.
	 */
	void (*title)(void *cqe, const void *title, uint32_t count, bool owner);
	/* The entry is not of this turn or a later one, whatever it says. */
	void (*skipped)(void *cqe, uint8_t turn);
};

extern const struct vb_codec vb_codec_mlx5;
extern const struct vb_codec vb_codec_mlx4;
