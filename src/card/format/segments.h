/* SPDX-License-Identifier: MIT */
/*
 * What the WQEs of mlx4 and mlx5 have in common: units of 16 bytes that may wrap around the ring,
 * and the segments for remote addresses, atomics and pointers, which are the same bytes under two
 * names. Error CQEs say the same, too.
 */
#pragma once

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/mlx5dv.h>

#include "card/format/format.h"

enum { VB_SEG_UNIT = 16 };

/* Where the decoder stands in a WQE that may wrap. */
struct vb_cursor {
	const uint8_t *ring;
	uint32_t mask;  /* of byte offsets */
	uint32_t at;    /* byte offset in the ring */
	uint32_t units; /* left in the WQE */
};

static inline const void *vb_cursor_take(struct vb_cursor *c, uint32_t units)
{
	const void *p = c->ring + c->at;

	if (units > c->units)
		return NULL;
	c->units -= units;
	c->at = (c->at + units * VB_SEG_UNIT) & c->mask;
	return p;
}

/* What an error CQE says of a status; mlx5.c has it. */
uint8_t vb_seg_syndrome(enum ibv_wc_status status);
/* And in the vendor's own words; never 0. */
uint8_t vb_seg_vendor_error(const struct vb_completion *completion);

/* What an opcode of a format means. */
struct vb_opcode {
	uint8_t op;
	uint8_t flags;
	bool raddr, atomic, known;
	bool masked; /* an atomic with masks */
	bool raw;    /* only queues of raw Ethernet have it */
};

/* A count of 0 stands for 2 GiB: the field has no room for it. */
static inline struct vb_sge vb_seg_pointer(uint32_t count, uint32_t lkey, __be64 addr)
{
	return (struct vb_sge){ be64toh(addr), count ? count : 1u << 31, lkey, false, false };
}

/* The pointer segment at the cursor, whose count was read already. */
static inline int vb_seg_add_pointer(struct vb_cursor *c, uint32_t count, struct vb_wr *wr)
{
	const struct mlx5_wqe_data_seg *seg = vb_cursor_take(c, 1);
	struct vb_sge *sge = &wr->sge[wr->num_sge];

	if (!seg || wr->num_sge == VB_WR_MAX_SGE)
		return -EINVAL;
	*sge = vb_seg_pointer(count, be32toh(seg->lkey), seg->addr);
	wr->num_sge++;
	wr->len += sge->len;
	return 0;
}

/* The segments of one-sided work: where, and the operands of an atomic of 8 bytes, then their masks. */
static inline int vb_seg_remote(struct vb_cursor *c, const struct vb_opcode *opcode,
				struct vb_wr *wr)
{
	const struct mlx5_wqe_raddr_seg *remote;
	const struct mlx5_wqe_atomic_seg *atomic;

	if (opcode->raddr) {
		remote = vb_cursor_take(c, 1);
		if (!remote)
			return -EINVAL;
		wr->raddr = be64toh(remote->raddr);
		wr->rkey = be32toh(remote->rkey);
	}
	if (opcode->atomic) {
		atomic = vb_cursor_take(c, 1);
		if (!atomic)
			return -EINVAL;
		wr->swap_add = be64toh(atomic->swap_add);
		wr->compare = be64toh(atomic->compare);
		wr->word = sizeof(uint64_t);
	}
	if (opcode->op == VB_WR_MASKED_COMPARE_SWAP) {
		atomic = vb_cursor_take(c, 1);
		if (!atomic)
			return -EINVAL;
		wr->swap_mask = be64toh(atomic->swap_add);
		wr->compare_mask = be64toh(atomic->compare);
	}
	return 0;
}

/*
 * A receive WQE; the number of sge or -EINVAL. full: the count that stands for 2 GiB. Where that is
 * not 0, a segment of no length is one that only has its place.
 */
static inline int vb_seg_receive(const void *wqe, uint32_t size, bool shared, uint32_t full,
				 struct vb_sge *sge)
{
	const struct mlx5_wqe_data_seg *seg = wqe, *end = (const void *)((const char *)wqe + size);
	int n = 0;

	if (shared)
		seg++; /* the link */
	for (; seg < end && n < VB_WR_MAX_SGE; seg++) {
		uint32_t count = be32toh(seg->byte_count), lkey = be32toh(seg->lkey);

		if (lkey == MLX5_INVALID_LKEY)
			break;
		if (count == full)
			count = 0; /* 2 GiB to vb_seg_pointer() */
		else if (!count)
			continue;
		if (count & MLX5_INLINE_SEG)
			return -EINVAL;
		sge[n++] = vb_seg_pointer(count, lkey, seg->addr);
	}
	return n;
}
