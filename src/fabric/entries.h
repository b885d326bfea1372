/* SPDX-License-Identifier: MIT */
/*
 * What a process shows the others of its QPs and memory keys: entries that the card fills and
 * initiators on this host read. The card sees only its own entries, here; how others find and pin
 * them is segment.h, inside of fabric/.
 *
 * The owner marks an entry dead (ready or key := 0), waits until nobody uses it, then changes or
 * reuses it.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
	VB_SEG_QP_CHUNK = 128, /* entries per chunk */
	VB_SEG_QP_CHUNKS = 512,
	VB_SEG_MR_CHUNK = 256,
	VB_SEG_MR_CHUNKS = 1024,
};

/* What an initiator on this host must know of a QP for direct one-sided work. */
struct vb_seg_qp {
	_Atomic uint32_t ready; /* 1: RC or UC in a state that receives */
	uint32_t remote_qpn;
	uint32_t access; /* enum ibv_access_flags */
	uint32_t pdn;
	uint32_t transport;       /* enum ibv_qp_type and VB_TRANSPORT_V1 */
	_Atomic uint64_t adapter; /* its GUID, in network order; for sniffers only */
	/* DC: the connection that this end belongs to, the same at both ends; 0: none */
	_Atomic uint64_t connection;
	/*
	 * RC: what the responder expects next, so that a dead process has still acknowledged. Written
	 * with every message: not on the line that initiators read with every direct access.
	 */
	_Alignas(64) _Atomic uint32_t epsn;
};

struct vb_seg_mr {
	_Atomic uint32_t key; /* 0: not live */
	uint32_t access;
	uint32_t pdn;
	uint32_t generation; /* another one with every registration, also where the key stays */
	uint64_t addr;
	uint64_t iova;
	uint64_t length;
	_Atomic uint64_t
		indirect; /* the owner's alone: what an indirect key stands for; 0: it is none */
	uint64_t reserved1[2];
};

_Static_assert(sizeof(struct vb_seg_qp) == 128 && sizeof(struct vb_seg_mr) == 64,
	       "entries fill lines");

struct vb_fabric;

/*
 * The own entry of a QP or MR index; its chunk is allocated where there is none. NULL where shared
 * memory is full.
 */
struct vb_seg_qp *vb_segment_qp(struct vb_fabric *fabric, uint32_t index);
struct vb_seg_mr *vb_segment_mr(struct vb_fabric *fabric, uint32_t index);

/*
 * The chunks of the own MR entries, for the data path; written once each, cleared when the fabric
 * stops. A fabric begins with them (state.h), so that the card finds them without knowing the rest.
 */
struct vb_entries {
	_Atomic(struct vb_seg_mr *) mrs[VB_SEG_MR_CHUNKS];
};

/* The own entry of an MR index, if it was ever allocated. */
static inline struct vb_seg_mr *vb_segment_find_mr(struct vb_fabric *fabric, uint32_t index)
{
	const struct vb_entries *own = (const struct vb_entries *)fabric;
	struct vb_seg_mr *chunk;

	if (index >= VB_SEG_MR_CHUNK * VB_SEG_MR_CHUNKS)
		return NULL;
	/* Pairs with vb_segment_mr(). */
	chunk = atomic_load_explicit(&own->mrs[index / VB_SEG_MR_CHUNK], memory_order_acquire);
	return chunk ? &chunk[index % VB_SEG_MR_CHUNK] : NULL;
}

/*
 * Wait until no live peer pins this QP (or MR) of ours. The entry is already dead, so no new pin
 * can hold.
 */
void vb_segment_wait_qp(struct vb_fabric *fabric, uint32_t qp_index);
void vb_segment_wait_mr(struct vb_fabric *fabric, uint32_t mr_index);
