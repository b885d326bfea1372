// SPDX-License-Identifier: MIT
/*
 * UMR of the mlx5 queue format: a WQE that configures an indirect key, which the control segment
 * names.
 *
 *	| ctrl | flags 1 | 0 3 | length of the layout, in units 2 | 0 2 | mask of what is set 8 | 0 32 |
 *	| key context 64 |
 *	| layout: pieces of 16 bytes each, padded to 64 |               inline
 *	| 0 4 | key 4 | address 8 |  ---> layout, in memory              not inline
 *
 * Whole blocks, up to the layout, never wrap.
 */
#include "card/format/mlx5.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#include "host/fault.h"

static void decode_rights(uint64_t mask, uint8_t flags, struct vb_umr *umr)
{
	static const struct {
		uint64_t mask;
		uint8_t bit;
		unsigned int access;
	} rights[] = {
		{ MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE,
		  MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE },
		{ MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ,
		  MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ, IBV_ACCESS_REMOTE_READ },
		{ MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE,
		  MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE },
		{ MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC,
		  MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC },
	};

	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
		if (mask & rights[i].mask)
			umr->access_mask |= rights[i].access;
		if ((mask & rights[i].mask) && (flags & rights[i].bit))
			umr->access |= rights[i].access;
	}
}

/* Where the layout is: behind the context, or where a pointer there says. */
static int find_layout(struct vb_cursor *c, bool in_wqe, uint32_t units, struct vb_umr *umr)
{
	const struct mlx5_wqe_umr_klm_seg *seg;
	struct mlx5_wqe_umr_klm_seg pointer;

	umr->units = units;
	if (in_wqe) {
		umr->ring = c->ring;
		umr->mask = c->mask;
		umr->at = c->at;
		return units > c->units ? -EINVAL : 0;
	}
	seg = vb_cursor_take(c, 1);
	if (!seg)
		return -EINVAL;
	memcpy(&pointer, seg, sizeof(pointer));
	umr->list_key = be32toh(pointer.mkey);
	umr->list_addr = be64toh(pointer.address);
	umr->list_len = units * VB_SEG_UNIT;
	return 0;
}

int vb_mlx5_umr(struct vb_cursor *c, struct vb_wr *wr)
{
	const void *ctrl = vb_cursor_take(c, sizeof(struct mlx5_wqe_umr_ctrl_seg) / VB_SEG_UNIT);
	const void *context =
		vb_cursor_take(c, sizeof(struct mlx5_wqe_mkey_context_seg) / VB_SEG_UNIT);
	struct mlx5_wqe_umr_ctrl_seg umr;
	struct mlx5_wqe_mkey_context_seg mkey;
	uint32_t units;
	uint64_t mask;

	if (!ctrl || !context)
		return -EINVAL;
	memcpy(&umr, ctrl, sizeof(umr));
	memcpy(&mkey, context, sizeof(mkey));
	mask = be64toh(umr.mkey_mask);
	units = be16toh(umr.klm_octowords);
	/* A part of a layout, signatures: what no driver here writes. */
	if ((umr.flags & MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET) || umr.bsf_octowords ||
	    (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE))
		return -EINVAL;
	wr->umr = (struct vb_umr){ .tag = (uint8_t)be32toh(mkey.qpn_mkey),
				   .start = be64toh(mkey.start_addr),
				   .length = be64toh(mkey.len) };
	if (units && find_layout(c, umr.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE, units, &wr->umr))
		return -EINVAL;
	wr->umr.set =
		(uint8_t)((units ? VB_UMR_LAYOUT : 0) |
			  (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR ? VB_UMR_START : 0) |
			  (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN ? VB_UMR_LENGTH : 0) |
			  (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY ? VB_UMR_TAG : 0) |
			  (umr.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE ? VB_UMR_CHECK_FREE : 0));
	if ((mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE) && (mkey.free & MLX5_WQE_MKEY_CONTEXT_FREE))
		wr->umr.set |= VB_UMR_FREE;
	decode_rights(mask, mkey.access_flags, &wr->umr);
	return 0;
}

/* --- layouts ---------------------------------------------------------------------------------- */

enum { AT_ONCE = 64 }; /* units of a list that are read together */

/* The units of a layout, one by one. Those in memory are read once, and looked at afterwards. */
struct source {
	struct vb_cursor ring;
	const uint8_t *list; /* what is still to be read of a list; NULL: it is in the ring */
	uint32_t left;       /* units of that */
	uint32_t have, next; /* units in bytes, and the one that is taken next */
	bool failed;         /* the memory is not there */
	uint8_t bytes[AT_ONCE * VB_SEG_UNIT];
};

static bool mlx5_umr_fill(struct source *s)
{
	uint32_t n = s->left < AT_ONCE ? s->left : AT_ONCE;

	if (!n)
		return false;
	s->failed = vb_fault_copy(s->bytes, s->list, (size_t)n * VB_SEG_UNIT);
	s->list += (size_t)n * VB_SEG_UNIT;
	s->left -= n;
	s->have = n;
	s->next = 0;
	return !s->failed;
}

/* The next unit; NULL where there is none. */
static const void *mlx5_umr_take(struct source *s)
{
	if (!s->list)
		return vb_cursor_take(&s->ring, 1);
	if (s->next == s->have && !mlx5_umr_fill(s))
		return NULL;
	return s->bytes + (size_t)s->next++ * VB_SEG_UNIT;
}

static int add_piece(struct vb_layout *layout, const struct vb_piece *piece)
{
	if (layout->count == layout->max)
		return -EINVAL;
	layout->piece[layout->count++] = *piece;
	return 0;
}

/*
 *	a block that repeats | its length 4 | 0x400 | times 4 | 0 2 | number of pieces 2 |
 *	... its pieces:      | stride 2 | length 2 | key 4 | address 8 |
 */
static int read_block(struct source *s, const void *seg, struct vb_layout *layout)
{
	struct mlx5_wqe_umr_repeat_block_seg block;
	struct mlx5_wqe_umr_repeat_ent_seg entry;

	memcpy(&block, seg, sizeof(block));
	layout->repeat = be32toh(block.repeat_count);
	for (uint32_t i = be16toh(block.num_ent); i; i--) {
		seg = mlx5_umr_take(s);
		if (!seg)
			return -EINVAL;
		memcpy(&entry, seg, sizeof(entry));
		if (add_piece(layout, &(struct vb_piece){ .addr = be64toh(entry.va),
							  .key = be32toh(entry.memkey),
							  .len = be16toh(entry.byte_count),
							  .stride = be16toh(entry.stride) }))
			return -EINVAL;
	}
	return 0;
}

/* piece of a list: | length 4 | key 4 | address 8 |; a length of 0: the padding begins */
static int mlx5_umr_read_list(struct source *s, const void *seg, struct vb_layout *layout)
{
	struct mlx5_wqe_umr_klm_seg klm;

	for (; seg; seg = mlx5_umr_take(s)) {
		memcpy(&klm, seg, sizeof(klm));
		if (!klm.byte_count)
			break;
		if (add_piece(layout, &(struct vb_piece){ .addr = be64toh(klm.address),
							  .key = be32toh(klm.mkey),
							  .len = be32toh(klm.byte_count) }))
			return -EINVAL;
	}
	return 0;
}

int vb_mlx5_layout(const struct vb_wr *wr, const void *list, struct vb_layout *layout)
{
	enum { REPEATED = 0x400 };
	const struct vb_umr *umr = &wr->umr;
	struct mlx5_wqe_umr_klm_seg first;
	struct source s;
	const void *seg;
	int ret;

	s.ring = (struct vb_cursor){ umr->ring, umr->mask, umr->at, umr->units };
	s.list = list;
	s.left = umr->units;
	s.have = s.next = 0;
	s.failed = false;
	seg = mlx5_umr_take(&s);
	if (!seg)
		return s.failed ? -EFAULT : -EINVAL;
	memcpy(&first, seg, sizeof(first));
	ret = be32toh(first.mkey) == REPEATED ? read_block(&s, seg, layout)
					      : mlx5_umr_read_list(&s, seg, layout);
	return s.failed ? -EFAULT : ret;
}
