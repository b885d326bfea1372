// SPDX-License-Identifier: MIT
/*
 * The mlx5 queue format, card side, with the layouts of <infiniband/mlx5dv.h>.
 *
 *	send WQE: blocks of 64 bytes, units ("ds") of 16; wraps at the end of the ring
 *	| ctrl | [datagram 48 | remote address 16 [atomic 16, 32]] | data 16 ... or inline: length, bytes, pad to 16 |
 *
 *	receive WQE: data segments, ended by lkey 0x100 or the end; shared queues have a 16-byte link in front
 */
#include "card/format/doorbell.h"
#include "card/format/mlx5.h"
#include "card/format/segments.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#include "base/util.h"
#include "packet/frame/frame.h"

enum {
	BLOCK = 64,
	WAIT = 0x0f,            /* opcodes: wait for a CQ or for data */
	ENHANCED_MPSW = 0x29,   /* several frames, each with a segment of its own */
	LOCAL_MMO = 0x32,       /* memory to memory */
	MODIFIER_ON_DATA = 1,   /* of WAIT */
	MODIFIER_TRANSPOSE = 0, /* of LOCAL_MMO */
	MODIFIER_LDMA = 1,
	MODIFIER_MPW = 1,      /* of MLX5_OPCODE_TSO: several frames of one length */
	INSERT_VLAN = 1 << 15, /* of inline_hdr_sz: a tag stands in place of the header */
	INSERT_SVLAN = 1 << 0, /* and it is of the type 0x88a8 */
};

static const struct vb_opcode opcodes[] = {
	[MLX5_OPCODE_NOP] = { VB_WR_NOP, .known = true },
	[MLX5_OPCODE_SEND] = { VB_WR_SEND, .known = true },
	[MLX5_OPCODE_SEND_IMM] = { VB_WR_SEND, VB_WR_IMM, .known = true },
	[MLX5_OPCODE_SEND_INVAL] = { VB_WR_SEND, VB_WR_INVALIDATE, .known = true },
	[MLX5_OPCODE_RDMA_WRITE] = { VB_WR_WRITE, .raddr = true, .known = true },
	[MLX5_OPCODE_RDMA_WRITE_IMM] = { VB_WR_WRITE, VB_WR_IMM, .raddr = true, .known = true },
	[MLX5_OPCODE_RDMA_READ] = { VB_WR_READ, .raddr = true, .known = true },
	[MLX5_OPCODE_ATOMIC_CS] = { VB_WR_COMPARE_SWAP, .raddr = true, .atomic = true,
				    .known = true },
	[MLX5_OPCODE_ATOMIC_FA] = { VB_WR_FETCH_ADD, .raddr = true, .atomic = true, .known = true },
	[MLX5_OPCODE_ATOMIC_MASKED_CS] = { VB_WR_MASKED_COMPARE_SWAP, .raddr = true, .atomic = true,
					   .known = true, .masked = true },
	[MLX5_OPCODE_ATOMIC_MASKED_FA] = { VB_WR_MASKED_FETCH_ADD, .raddr = true, .atomic = true,
					   .known = true, .masked = true },
	[MLX5_OPCODE_LOCAL_INVAL] = { VB_WR_LOCAL_INVALIDATE, .known = true },
	[MLX5_OPCODE_TSO] = { VB_WR_LSO, .known = true, .raw = true },
	[ENHANCED_MPSW] = { VB_WR_SEND, .known = true, .raw = true },
	[WAIT] = { VB_WR_WAIT, .known = true },
	[MLX5_OPCODE_UMR] = { VB_WR_UMR, .known = true },
	[MLX5_OPCODE_MMO] = { VB_WR_COPY, .known = true },
	[LOCAL_MMO] = { VB_WR_COPY, .known = true },
};

static int mlx5_decode_datagram(struct vb_cursor *c, struct vb_wr *wr)
{
	const struct mlx5_wqe_datagram_seg *seg = vb_cursor_take(c, sizeof(*seg) / VB_SEG_UNIT);
	struct mlx5_wqe_datagram_seg copy;
	uint32_t route;

	if (!seg)
		return -EINVAL;
	/* 48 bytes after a ctrl segment end exactly at the block: they never wrap. */
	memcpy(&copy, seg, sizeof(copy));
	wr->qkey = be32toh(copy.av.key.qkey.qkey);
	wr->dqpn = be32toh(copy.av.dqp_dct) & 0xffffff;
	route = be32toh(copy.av.grh_gid_fl);
	wr->sgid_index = (uint8_t)(route >> 20);
	wr->traffic_class = copy.av.tclass;
	wr->hop_limit = copy.av.hop_limit;
	wr->flow_label = route & 0xfffff;
	memcpy(wr->dmac, copy.av.rmac, sizeof(wr->dmac));
	memcpy(&wr->dgid, copy.av.rgid, sizeof(wr->dgid));
	return 0;
}

/* Inline bytes stay in the ring; a WQE that wraps makes two pieces. */
static int mlx5_decode_inline(struct vb_cursor *c, uint32_t at, uint32_t len, struct vb_wr *wr)
{
	uint32_t to_end = c->mask + 1 - at;

	if (wr->num_sge + 2 > VB_WR_MAX_SGE)
		return -EINVAL;
	if (len > to_end) {
		wr->sge[wr->num_sge++] =
			(struct vb_sge){ (uintptr_t)(c->ring + at), to_end, 0, true, true };
		wr->sge[wr->num_sge++] =
			(struct vb_sge){ (uintptr_t)c->ring, len - to_end, 0, true, false };
	} else if (len) {
		wr->sge[wr->num_sge++] =
			(struct vb_sge){ (uintptr_t)(c->ring + at), len, 0, true, false };
	}
	wr->len += len;
	return 0;
}

/*
 * Extended atomics, whose size the modifier tells:
 *
 *	8 bytes  | swap 8 | compare 8 | swap mask 8 | compare mask 8 |        | add 8 | boundary 8 |
 *	4        | swap 4 | compare 4 | swap mask 4 | compare mask 4 |        | add 4 | boundary 4 | 0 8 |
 */
static __attribute__((noinline)) int decode_masked(struct vb_cursor *c,
						   const struct vb_opcode *opcode, struct vb_wr *wr)
{
	enum { EXTENDED_4 = 8, EXTENDED_8 = 9 };
	static const struct vb_opcode where = { .raddr = true };
	const __be32 *seg;
	__be32 word[4];

	if (wr->wqe_modifier == EXTENDED_8)
		return vb_seg_remote(c, opcode, wr);
	if (wr->wqe_modifier != EXTENDED_4 || vb_seg_remote(c, &where, wr))
		return -EINVAL;
	seg = vb_cursor_take(c, 1);
	if (!seg)
		return -EINVAL;
	memcpy(word, seg, sizeof(word));
	wr->word = sizeof(uint32_t);
	wr->swap_add = be32toh(word[0]);
	wr->compare = be32toh(word[1]);
	wr->swap_mask = be32toh(word[2]);
	wr->compare_mask = be32toh(word[3]);
	return 0;
}

/* A cursor whose address is given away lives in memory and not in registers: so it is a copy. */
static inline int decode_remote(struct vb_cursor *c, const struct vb_opcode *opcode,
				struct vb_wr *wr)
{
	struct vb_cursor copy;
	int ret;

	if (__builtin_expect(!opcode->masked, 1))
		return vb_seg_remote(c, opcode, wr);
	copy = *c;
	ret = decode_masked(&copy, opcode, wr);
	*c = copy;
	return ret;
}

static int mlx5_decode_data(struct vb_cursor *c, struct vb_wr *wr)
{
	while (c->units) {
		uint32_t start = c->at, count;
		const struct mlx5_wqe_data_seg *seg = (const void *)(c->ring + c->at);

		count = be32toh(*(const volatile __be32 *)&seg->byte_count);
		if (count & MLX5_INLINE_SEG) {
			uint32_t len = count & ~MLX5_INLINE_SEG;

			if (len > c->units * VB_SEG_UNIT - 4 ||
			    !vb_cursor_take(c, (len + 4 + VB_SEG_UNIT - 1) / VB_SEG_UNIT))
				return -EINVAL;
			if (mlx5_decode_inline(c, (start + 4) & c->mask, len, wr))
				return -EINVAL;
			continue;
		}
		if (vb_seg_add_pointer(c, count, wr))
			return -EINVAL;
	}
	return 0;
}

/*
 * When a WQE completes: 0 if it fails, 1 if it is the first that fails, 2 always, 3 always and with an
 * event. As CQs are armed for events, 3 is 2 here.
 */
enum { CE_MASK = 3 << 2, CE_FIRST_ERROR = 1 << 2 };

/* The control segment; leaves the cursor behind it. NULL where the WQE cannot be told. */
static const struct vb_opcode *mlx5_decode_ctrl(const void *ring, uint32_t blocks, uint32_t index,
						struct vb_wr *wr, struct vb_cursor *c)
{
	const struct mlx5_wqe_ctrl_seg *ctrl =
		(const void *)((const char *)ring + (index & (blocks - 1)) * BLOCK);
	uint32_t opmod_idx_opcode = be32toh(*(const volatile __be32 *)&ctrl->opmod_idx_opcode);
	uint32_t ds = be32toh(*(const volatile __be32 *)&ctrl->qpn_ds) & 0x3f;
	/* Signature, stream and flags are one word: the stream alone would not be aligned. */
	uint32_t stream_flags = be32toh(*(const volatile __be32 *)&ctrl->signature);
	uint8_t fm_ce_se = (uint8_t)stream_flags;
	const struct vb_opcode *opcode;

	_Static_assert(offsetof(struct mlx5_wqe_ctrl_seg, signature) == 8 &&
			       offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 11,
		       "one word");
	wr->index = (uint16_t)index;
	wr->stream = (uint16_t)(stream_flags >> 8);
	wr->wqe_opcode = (uint8_t)opmod_idx_opcode;
	wr->wqe_modifier = (uint8_t)(opmod_idx_opcode >> 24);
	wr->blocks = (uint8_t)(ds ? (ds + 3) / 4 : 1);
	wr->num_sge = 0;
	wr->len = 0;
	wr->flags = VB_WR_SIGNALED;
	if (!ds || wr->blocks > blocks || wr->wqe_opcode >= sizeof(opcodes) / sizeof(opcodes[0]))
		return NULL;
	opcode = &opcodes[wr->wqe_opcode];
	if (!opcode->known)
		return NULL;
	wr->op = opcode->op;
	wr->flags = (uint8_t)(opcode->flags |
			      ((fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) ? VB_WR_SIGNALED : 0) |
			      ((fm_ce_se & CE_MASK) == CE_FIRST_ERROR ? VB_WR_FIRST_ERROR : 0) |
			      ((fm_ce_se & MLX5_WQE_CTRL_SOLICITED) ? VB_WR_SOLICITED : 0) |
			      ((fm_ce_se & 0xe0) ? VB_WR_FENCE : 0));
	/* Immediate data passes through as it is; a key is a number. */
	wr->imm = *(const volatile uint32_t *)&ctrl->imm;
	if ((wr->flags & VB_WR_INVALIDATE) || wr->op == VB_WR_LOCAL_INVALIDATE ||
	    wr->op == VB_WR_UMR)
		wr->imm = be32toh(wr->imm);
	*c = (struct vb_cursor){ ring, blocks * BLOCK - 1, (index & (blocks - 1)) * BLOCK, ds };
	vb_cursor_take(c, 1);
	return opcode;
}

/*
 * Memory to memory:
 *
 *	| ctrl | 0 0 0 | element size | 0 | columns | 0 | rows | 0 ... | source 16 | destination 16 |
 *
 * The second segment is that of a matrix; a copy has none: its place is free, or names memory of the
 * driver's own where hardware keeps notes.
 */
static int decode_mmo(struct vb_cursor *c, struct vb_wr *wr)
{
	enum { ELEMENT_AT = 3, COLS_AT = 5, ROWS_AT = 7, BITS = 0x7f };
	const volatile uint8_t *matrix = vb_cursor_take(c, 1);

	if (!matrix || wr->wqe_modifier > MODIFIER_LDMA ||
	    (wr->wqe_opcode == MLX5_OPCODE_MMO && wr->wqe_modifier != MODIFIER_LDMA))
		return -EINVAL;
	if (wr->wqe_modifier == MODIFIER_TRANSPOSE) {
		wr->op = VB_WR_TRANSPOSE;
		wr->matrix.element = matrix[ELEMENT_AT];
		wr->matrix.cols = matrix[COLS_AT] & BITS;
		wr->matrix.rows = matrix[ROWS_AT] & BITS;
	}
	while (c->units && wr->num_sge < 3) {
		const struct mlx5_wqe_data_seg *seg = (const void *)(c->ring + c->at);
		uint32_t count = be32toh(*(const volatile __be32 *)&seg->byte_count);

		if (count & MLX5_INLINE_SEG || vb_seg_add_pointer(c, count, wr))
			return -EINVAL;
	}
	wr->len = wr->sge[0].len;
	return wr->num_sge == 2 ? 0 : -EINVAL;
}

/*
 * Wait on data:
 *
 *	| ctrl | 0 0 0 | invert 1 bit, condition 4 | lkey 4 | address 8; low 3 bits: what to do if not | value 8 | mask 8 |
 */
static int decode_wait(struct vb_cursor *c, struct vb_wr *wr)
{
	enum { CONDITION_AT = 3, KEY_AT = 4, ADDRESS_AT = 8 };
	const uint8_t *where = vb_cursor_take(c, 1), *what = vb_cursor_take(c, 1);
	__be32 key;
	__be64 word[3];

	if (!where || !what || wr->wqe_modifier != MODIFIER_ON_DATA)
		return -EINVAL;
	wr->wait = *(const volatile uint8_t *)(where + CONDITION_AT);
	memcpy(&key, where + KEY_AT, sizeof(key));
	memcpy(&word[0], where + ADDRESS_AT, sizeof(word[0]));
	memcpy(&word[1], what, 2 * sizeof(word[1]));
	wr->rkey = be32toh(key);
	wr->raddr = be64toh(word[0]) & ~7ull;
	wr->compare = be64toh(word[1]);
	wr->swap_add = be64toh(word[2]);
	return (wr->wait & VB_WAIT_CONDITION) < VB_WAIT_CONDITIONS ? 0 : -EINVAL;
}

/* Work that goes nowhere; the cursor is a copy, as above. */
static VB_APART int decode_local(struct vb_cursor c, struct vb_wr *wr)
{
	switch (wr->op) {
	case VB_WR_COPY:
		return decode_mmo(&c, wr);
	case VB_WR_WAIT:
		return decode_wait(&c, wr);
	case VB_WR_UMR:
		return vb_mlx5_umr(&c, wr);
	default: /* nothing, or a key to invalidate, which the control segment has */
		return 0;
	}
}

static VB_FLAT int mlx5_send(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			     struct vb_wr *wr)
{
	const struct vb_opcode *opcode;
	struct vb_cursor c;

	opcode = mlx5_decode_ctrl(ring, blocks, index, wr, &c);
	if (!opcode || opcode->raw)
		return -EINVAL;
	if (__builtin_expect(wr->op >= VB_WR_LOCAL, 0))
		return decode_local(c, wr);
	if (decode_remote(&c, opcode, wr))
		return -EINVAL;
	return mlx5_decode_data(&c, wr);
}

static int mlx5_send_ud(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			struct vb_wr *wr)
{
	const struct vb_opcode *opcode;
	struct vb_cursor c;
	int ret;

	opcode = mlx5_decode_ctrl(ring, blocks, index, wr, &c);
	if (!opcode || opcode->raw)
		return -EINVAL;
	if (wr->op == VB_WR_NOP)
		return 0;
	if (wr->op == VB_WR_WAIT)
		return decode_wait(&c, wr);
	if (wr->op != VB_WR_SEND || (wr->flags & VB_WR_INVALIDATE))
		return -EINVAL;
	ret = mlx5_decode_datagram(&c, wr);
	return ret ? ret : mlx5_decode_data(&c, wr);
}

/* One whose address vector is not the long one names no GID, and so nobody on Ethernet. */
static int decode_dc(struct vb_cursor *c, struct vb_wr *wr)
{
	const struct mlx5_wqe_av *av = (const void *)(c->ring + c->at);
	__be32 dct = c->units < sizeof(*av) / VB_SEG_UNIT ? 0 : av->dqp_dct;

	if (!(be32toh(dct) & MLX5_EXTENDED_UD_AV))
		return -EINVAL;
	wr->dc_key = be64toh(av->key.dc_key);
	return mlx5_decode_datagram(c, wr);
}

static int mlx5_send_dc(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			struct vb_wr *wr)
{
	const struct vb_opcode *opcode;
	struct vb_cursor c;

	opcode = mlx5_decode_ctrl(ring, blocks, index, wr, &c);
	if (!opcode || opcode->raw)
		return -EINVAL;
	if (wr->op == VB_WR_NOP || wr->op == VB_WR_LOCAL_INVALIDATE)
		return 0;
	if (wr->op == VB_WR_COPY)
		return decode_mmo(&c, wr);
	if (wr->op == VB_WR_WAIT)
		return decode_wait(&c, wr);
	if (wr->op == VB_WR_UMR)
		return vb_mlx5_umr(&c, wr);
	if (decode_dc(&c, wr) || decode_remote(&c, opcode, wr))
		return -EINVAL;
	return mlx5_decode_data(&c, wr);
}

/*
 * The Ethernet segment:
 *
 *	| swp offsets 4 | cs_flags | swp_flags | mss 2 | metadata 4 | header size 2 | header 2 ...  pad to 16 |
 *	                                                            | INSERT_VLAN   | tag 2 |
 *
 * The header may wrap.
 */
static int decode_eth(struct vb_cursor *c, struct vb_wr *wr)
{
	enum { HEADER_AT = 14 };
	struct mlx5_wqe_eth_seg copy;
	uint32_t start = c->at, len;
	const void *seg = vb_cursor_take(c, 1);

	if (!seg)
		return -EINVAL;
	memcpy(&copy, seg, VB_SEG_UNIT);
	memcpy(wr->swp, &copy.rsvd0, sizeof(wr->swp));
	wr->checksums = copy.cs_flags & VB_CSUM_ALL;
	wr->swp_flags = copy.rsvd1;
	wr->mss = be16toh(copy.mss);
	wr->metadata = be32toh(copy.rsvd2);
	len = be16toh(copy.inline_hdr_sz);
	wr->to_wire = false;
	wr->insert_vlan = len & INSERT_VLAN;
	if (wr->insert_vlan) {
		wr->vlan = (len & INSERT_SVLAN ? 0x88a8u : 0x8100u) << 16 |
			   (uint32_t)copy.inline_hdr_start[0] << 8 | copy.inline_hdr_start[1];
		len = 0;
	}
	wr->header_len = (uint16_t)len;
	if (len > VB_SEG_UNIT - HEADER_AT &&
	    !vb_cursor_take(c, (len - (VB_SEG_UNIT - HEADER_AT) + VB_SEG_UNIT - 1) / VB_SEG_UNIT))
		return -EINVAL;
	return mlx5_decode_inline(c, (start + HEADER_AT) & c->mask, len, wr);
}

static int mlx5_send_raw(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			 struct vb_wr *wr)
{
	struct vb_cursor c;

	if (!mlx5_decode_ctrl(ring, blocks, index, wr, &c))
		return -EINVAL;
	if (wr->op == VB_WR_NOP)
		return 0;
	if (wr->op == VB_WR_WAIT)
		return decode_wait(&c, wr);
	if (wr->op == VB_WR_UMR)
		return vb_mlx5_umr(&c, wr);
	if ((wr->op != VB_WR_SEND && wr->op != VB_WR_LSO) ||
	    (wr->flags & (VB_WR_IMM | VB_WR_INVALIDATE)) || decode_eth(&c, wr))
		return -EINVAL;
	wr->frames = VB_FRAMES_ONE;
	if (wr->op == VB_WR_LSO && wr->wqe_modifier == MODIFIER_MPW) {
		wr->op = VB_WR_SEND;
		wr->frames = VB_FRAMES_CUT;
	} else if (wr->wqe_opcode == ENHANCED_MPSW) {
		wr->frames = VB_FRAMES_EACH;
	}
	/* Several frames have no header in common; a large one has. */
	if (wr->frames != VB_FRAMES_ONE && wr->header_len)
		return -EINVAL;
	if (wr->op == VB_WR_LSO && !wr->header_len)
		return -EINVAL;
	return mlx5_decode_data(&c, wr);
}

static int mlx5_receive(const void *wqe, uint32_t size, bool shared, struct vb_sge *sge)
{
	return vb_seg_receive(wqe, size, shared, 0, sge);
}

static uint16_t mlx5_next(const void *wqe)
{
	return be16toh(((const struct mlx5_wqe_srq_next_seg *)wqe)->next_wqe_index);
}

uint8_t vb_seg_syndrome(enum ibv_wc_status status)
{
	static const uint8_t syndromes[] = {
		[IBV_WC_LOC_LEN_ERR] = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
		[IBV_WC_LOC_QP_OP_ERR] = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
		[IBV_WC_LOC_PROT_ERR] = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
		[IBV_WC_WR_FLUSH_ERR] = MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
		[IBV_WC_MW_BIND_ERR] = MLX5_CQE_SYNDROME_MW_BIND_ERR,
		[IBV_WC_BAD_RESP_ERR] = MLX5_CQE_SYNDROME_BAD_RESP_ERR,
		[IBV_WC_LOC_ACCESS_ERR] = MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR,
		[IBV_WC_REM_INV_REQ_ERR] = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
		[IBV_WC_REM_ACCESS_ERR] = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
		[IBV_WC_REM_OP_ERR] = MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
		[IBV_WC_RETRY_EXC_ERR] = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR,
		[IBV_WC_RNR_RETRY_EXC_ERR] = MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
		[IBV_WC_REM_ABORT_ERR] = MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR,
	};

	return syndromes[status];
}

/* Of work requests whose answer is written to local memory; mlx4 numbers them alike. */
static bool has_answer(uint8_t wqe_opcode)
{
	return wqe_opcode == MLX5_OPCODE_RDMA_READ || wqe_opcode == MLX5_OPCODE_ATOMIC_CS ||
	       wqe_opcode == MLX5_OPCODE_ATOMIC_FA || wqe_opcode == MLX5_OPCODE_ATOMIC_MASKED_CS ||
	       wqe_opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
}

/*
 * What the two generations of hardware have been seen to report, which no document explains; where
 * nothing is known (marked *) a number of our own, so that it is never 0.
 */
uint8_t vb_seg_vendor_error(const struct vb_completion *c)
{
	static const uint8_t sent[] = {
		[IBV_WC_LOC_LEN_ERR] = 0x68,       [IBV_WC_LOC_QP_OP_ERR] = 0x68,
		[IBV_WC_LOC_PROT_ERR] = 0x51,      [IBV_WC_WR_FLUSH_ERR] = 0xf9,
		[IBV_WC_MW_BIND_ERR] = 0x25,       [IBV_WC_BAD_RESP_ERR] = 0x85 /* * */,
		[IBV_WC_REM_INV_REQ_ERR] = 0x8a,   [IBV_WC_REM_ACCESS_ERR] = 0x88,
		[IBV_WC_REM_OP_ERR] = 0x89,        [IBV_WC_RETRY_EXC_ERR] = 0x81,
		[IBV_WC_RNR_RETRY_EXC_ERR] = 0x87,
	};
	static const uint8_t received[] = {
		[IBV_WC_LOC_LEN_ERR] = 0x6a /* * */,
		[IBV_WC_LOC_QP_OP_ERR] = 0x68 /* * */,
		[IBV_WC_LOC_PROT_ERR] = 0x32,
		[IBV_WC_WR_FLUSH_ERR] = 0xf9,
		[IBV_WC_REM_INV_REQ_ERR] = 0x8a /* * */,
		[IBV_WC_REM_ACCESS_ERR] = 0x88 /* * */,
	};
	enum { READ_INTO_LOCAL = 0x33, OTHER = 0xff /* * */ };
	const uint8_t *table = c->receive ? received : sent;
	size_t size = c->receive ? sizeof(received) : sizeof(sent);

	if (!c->receive && c->status == IBV_WC_LOC_PROT_ERR && has_answer(c->wqe_opcode))
		return READ_INTO_LOCAL;
	return (size_t)c->status < size && table[c->status] ? table[c->status] : OTHER;
}

static uint8_t cqe_opcode(const struct vb_completion *c)
{
	if (c->status != IBV_WC_SUCCESS)
		return c->receive ? MLX5_CQE_RESP_ERR : MLX5_CQE_REQ_ERR;
	if (!c->receive)
		return MLX5_CQE_REQ;
	if (c->op == VB_WR_WRITE)
		return MLX5_CQE_RESP_WR_IMM;
	if (c->flags & VB_WR_IMM)
		return MLX5_CQE_RESP_SEND_IMM;
	return c->flags & VB_WR_INVALIDATE ? MLX5_CQE_RESP_SEND_INV : MLX5_CQE_RESP_SEND;
}

static void mlx5_publish(struct mlx5_cqe64 *cqe, uint8_t op_own, uint8_t turn)
{
	/*
	 * Pairs with the acquire of whoever reads the owner bit; then of whoever reads the turn in
	 * the signature's place instead, and the opcode after it.
	 */
	atomic_store_explicit((_Atomic uint8_t *)&cqe->op_own, op_own, memory_order_release);
	atomic_store_explicit((_Atomic uint8_t *)&cqe->signature, turn, memory_order_release);
}

/*
 * Who sent a datagram, and how it came. RoCE has no service level: the field tells the network
 * header (bits 2:0) and whether UDP follows it (bit 3). Only with that do programs know how the 40
 * bytes in front of the data are laid out.
 */
static uint32_t flags_rqpn(const struct vb_completion *c)
{
	uint32_t sl = c->network == VB_NETWORK_GRH ? 0 : 8u | c->network;

	return c->src_qpn | (c->grh ? 1u << 28 | sl << 24 : 0);
}

/* --- received frames -------------------------------------------------------------------------- */

/*
 *	0  bit 0 tunneled, bit 1 the outer IP is 6    12 hash, big endian    16 its type    20 checksum over the packet
 *	28 headers that are right                     29 their types         30 VLAN tag
 *
 * <infiniband/mlx5dv.h> has no names for most of them. Of a tunnel 29 tells the inner headers.
 */
enum { RSS_HASH_RESULT = 12, CHECK_SUM = 20 };
enum { TUNNELED = 1 << 0, OUTER_IPV6 = 1 << 1 };
enum { L2_OK = 1 << 0, L3_OK = 1 << 1, L4_OK = 1 << 2 };
enum { VLAN_STRIPPED = 1 << 0, IP_OPTIONS = 1 << 1, FRAGMENT = 1 << 7 };
enum { L3_IPV6 = 1 << 2, L3_IPV4 = 2 << 2 };
enum { L4_TCP = 1 << 4, L4_UDP = 2 << 4, L4_TCP_EMPTY_ACK = 3 << 4, L4_TCP_ACK = 4 << 4 };

static uint8_t headers_right(const struct vb_frame *f)
{
	uint8_t right = vb_frame_verify(f, VB_CSUM_ALL);
	bool l3 = right & VB_CSUM_L3, l4 = right & VB_CSUM_L4;

	if (f->has_inner) {
		l3 &= !f->inner.ip || (right & VB_CSUM_INNER_L3);
		l4 = (l4 || f->outer.l4_type == VB_L4_NONE) && (right & VB_CSUM_INNER_L4);
	}
	return (uint8_t)(L2_OK | (l3 ? L3_OK : 0) | (l4 ? L4_OK : 0));
}

static uint8_t header_types(const struct vb_frame *f)
{
	enum { TCP_ACK = 0x10 };
	const struct vb_layer *layer = f->has_inner ? &f->inner : &f->outer;
	uint8_t types = layer->ip == 4 ? L3_IPV4 : layer->ip == 6 ? L3_IPV6 : 0;

	types |= (uint8_t)((layer->options ? IP_OPTIONS : 0) | (layer->fragment ? FRAGMENT : 0));
	if (layer->l4_type == VB_L4_UDP)
		types |= L4_UDP;
	else if (layer->l4_type == VB_L4_TCP && !(layer->tcp_flags & TCP_ACK))
		types |= L4_TCP;
	else if (layer->l4_type == VB_L4_TCP)
		types |= layer->end > layer->payload ? L4_TCP_ACK : L4_TCP_EMPTY_ACK;
	return types;
}

static void frame_completion(struct mlx5_cqe64 *cqe, const struct vb_completion *c)
{
	const struct vb_frame *f = c->frame;
	__be16 sum = htobe16(vb_frame_sum(f));
	uint8_t *bytes = (uint8_t *)cqe;

	/* The queue is known by its user index: the flow tag takes the place of its number. */
	cqe->srqn_uidx = htobe32(c->uidx);
	cqe->sop_drop_qpn = htobe32(c->flow_tag);
	cqe->imm_inval_pkey = htobe32(c->metadata);
	bytes[0] = (uint8_t)((f->has_inner ? TUNNELED : 0) |
			     (f->has_inner && f->outer.ip == 6 ? OUTER_IPV6 : 0));
	memcpy(bytes + RSS_HASH_RESULT, &c->imm, sizeof(c->imm));
	bytes[RSS_HASH_RESULT + 4] = c->hash_type;
	memcpy(bytes + CHECK_SUM, &sum, sizeof(sum));
	cqe->hds_ip_ext = headers_right(f);
	cqe->l4_hdr_type_etc = (uint8_t)(header_types(f) | (c->stripped ? VLAN_STRIPPED : 0));
	cqe->vlan_info = htobe16(f->outer.vlans ? f->outer.vlan[0] : 0);
}

/*
 * Of strides: filler 1, strides 15, bytes 16; wqe_counter is the first stride, and the WQE itself is in
 * a field that is reserved elsewhere.
 */
static void strides_completion(struct mlx5_cqe64 *cqe, const struct vb_completion *c)
{
	enum { WQE_ID = 2 };
	__be16 id = htobe16(c->wqe_id);

	memcpy((uint8_t *)cqe + WQE_ID, &id, sizeof(id));
	cqe->byte_cnt =
		htobe32((uint32_t)c->filler << 31 | (uint32_t)c->strides << 16 | c->byte_len);
}

static void mlx5_completion(void *to, const struct vb_completion *c, bool owner)
{
	struct mlx5_cqe64 *cqe = to;
	uint8_t op_own =
		(uint8_t)(cqe_opcode(c) << 4 | (c->flags & VB_WR_SOLICITED ? 2 : 0) | owner);

	cqe->srqn_uidx = htobe32(c->srqn ? c->srqn : c->uidx);
	cqe->wqe_counter = htobe16(c->wqe_index);
	cqe->sop_drop_qpn = htobe32((uint32_t)c->wqe_opcode << 24 | c->qpn);
	if (c->status == IBV_WC_SUCCESS) {
		/* Immediate data is in network order already. */
		cqe->imm_inval_pkey = c->flags & VB_WR_INVALIDATE ? htobe32(c->imm) : c->imm;
		cqe->byte_cnt = htobe32(c->byte_len);
		cqe->flags_rqpn = htobe32(flags_rqpn(c));
		cqe->timestamp = htobe64(c->timestamp);
		/* By this a reader knows frames; an older one may have left it here. */
		cqe->hds_ip_ext = 0;
		if (c->frame)
			frame_completion(cqe, c);
	} else {
		struct mlx5_err_cqe *err = to;

		/*
		 * What an earlier completion left there would be read as the hardware's syndrome.
		 */
		memset(err->rsvd1, 0, sizeof(err->rsvd1));
		err->vendor_err_synd = vb_seg_vendor_error(c);
		err->syndrome = vb_seg_syndrome(c->status);
	}
	if (c->strides)
		strides_completion(cqe, c);
	mlx5_publish(cqe, op_own, c->turn);
}

static void mlx5_moved(void *to, uint8_t turn, bool owner)
{
	enum { RESIZE_CQ = 5 };

	mlx5_publish(to, (uint8_t)(RESIZE_CQ << 4 | owner), turn);
}

/* --- compressed CQEs -------------------------------------------------------------------------- */

/*
 *	mini CQE of a send:     | wqe_counter 16 | opcode of the WQE 8 | 0      | byte_cnt 32            |
 *	     ... of a receive:  | rss_hash_result 32                            | byte_cnt 32            |  HASH
 *	                        | check_sum 16   | 0                            | byte_cnt 32            |  CHECKSUM
 *	                        | flow tag 15:0  | wqe_counter 16               | tag 23:16, byte_cnt 24 |  FLOW_TAG
 *	                        | check_sum 16   | wqe_counter 16               | byte_cnt 32            |  CHECKSUM_STRIDE
 *	                        | 0 | types 8    | wqe_counter 16               | byte_cnt 32            |  L3_L4
 *
 * Receives take consecutive WQEs, or strides: of these the frames of an array take as many as that of
 * the title, where the format does not tell the first one. Of hash and checksum, what the format does not hold is not told: in
 * a mini CQE the title's is not the frame's. Everything else is the title's.
 */
enum mini_format {
	MINI_HASH = 0,
	MINI_CHECKSUM = 1,
	MINI_FLOW_TAG = 2,
	MINI_CHECKSUM_STRIDE = 3,
	MINI_L3_L4 = 4,
};

enum { FORMAT_COMPRESSED = 3 };

/* Move a field of the CQE into the mini CQE: what is left in the CQE is the title's. */
static void move_field(uint8_t *to, uint8_t *cqe, const uint8_t *title, size_t at, size_t size)
{
	memcpy(to, cqe + at, size);
	memcpy(cqe + at, title + at, size);
}

/* Hash and checksum: one of them, or none, goes into the mini CQE, the rest is lost. */
static void move_sums(uint8_t *to, uint8_t *cqe, const uint8_t *title, uint8_t format)
{
	uint8_t lost[4];

	move_field(format == MINI_HASH ? to : lost, cqe, title, RSS_HASH_RESULT, 4);
	move_field(format == MINI_CHECKSUM || format == MINI_CHECKSUM_STRIDE ? to : lost, cqe,
		   title, CHECK_SUM, 2);
}

static bool mini_receive(const struct mlx5_cqe64 *title, struct mlx5_cqe64 *cqe, uint16_t behind,
			 uint8_t format, uint8_t *to)
{
	enum { TAG = offsetof(struct mlx5_cqe64, sop_drop_qpn) + 1 };
	const uint8_t *first = (const uint8_t *)title;
	uint8_t *bytes = (uint8_t *)cqe, lost;
	bool frame = cqe->hds_ip_ext;
	bool tells =
		format == MINI_FLOW_TAG || format == MINI_CHECKSUM_STRIDE || format == MINI_L3_L4;
	uint32_t strides = frame ? be32toh(title->byte_cnt) >> 16 : 0;

	if (frame && (to[4] << 8 | to[5]) != (int)strides && !(strides && tells))
		return false;
	if (!(strides && tells) &&
	    be16toh(cqe->wqe_counter) !=
		    (uint16_t)(be16toh(title->wqe_counter) + behind * (strides ? strides : 1)))
		return false;
	if (tells)
		memcpy(to + 2, &cqe->wqe_counter, 2);
	cqe->wqe_counter = title->wqe_counter;
	move_sums(to, bytes, first, format);
	if (format == MINI_FLOW_TAG) {
		if (to[4]) /* over 16 MiB: a message, not a frame */
			return false;
		/* Elsewhere this is the number of a QP, which has no place in a mini CQE. */
		memcpy(to, bytes + TAG + 1, 2);
		to[4] = bytes[TAG];
		if (frame)
			memcpy(bytes + TAG, first + TAG, 3);
	} else if (format == MINI_L3_L4 && frame) {
		move_field(to + 1, bytes, first, offsetof(struct mlx5_cqe64, l4_hdr_type_etc), 1);
		/* It follows from the headers, as the hash does. */
		move_field(&lost, bytes, first, RSS_HASH_RESULT + 4, 1);
	}
	return true;
}

static bool mlx5_mini(const void *title, const void *from, uint16_t behind, uint8_t format,
		      struct vb_mini *mini)
{
	struct mlx5_cqe64 cqe = *(const struct mlx5_cqe64 *)from;
	uint8_t *bytes = (uint8_t *)&cqe, *to = mini->bytes;
	uint8_t opcode = cqe.op_own >> 4;

	if (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR)
		return false;
	*mini = (struct vb_mini){ 0 };
	cqe.timestamp = ((const struct mlx5_cqe64 *)title)->timestamp; /* all have the title's */
	move_field(to + 4, bytes, title, offsetof(struct mlx5_cqe64, byte_cnt), 4);
	if (opcode == MLX5_CQE_REQ) {
		move_field(to, bytes, title, offsetof(struct mlx5_cqe64, wqe_counter), 2);
		move_field(to + 2, bytes, title, offsetof(struct mlx5_cqe64, sop_drop_qpn), 1);
	} else if (!mini_receive(title, &cqe, behind, format, to)) {
		return false;
	}
	return !memcmp(&cqe, title, sizeof(cqe));
}

static void mlx5_minis(void *to, const struct vb_mini *minis, uint8_t count, uint8_t turn,
		       bool owner)
{
	memcpy(to, minis, count * sizeof(*minis));
	mlx5_publish(to, (uint8_t)((count - 1) << 4 | FORMAT_COMPRESSED << 2 | owner), turn);
}

static void mlx5_title(void *to, const void *title, uint32_t count, bool owner)
{
	struct mlx5_cqe64 *cqe = to;
	struct mlx5_cqe64 copy = *(const struct mlx5_cqe64 *)title;

	if (count > 1)
		copy.byte_cnt = htobe32(count);
	memcpy(cqe, &copy, offsetof(struct mlx5_cqe64, signature));
	mlx5_publish(cqe, (uint8_t)(copy.op_own | (count > 1 ? FORMAT_COMPRESSED << 2 : 0) | owner),
		     0);
}

static void mlx5_skipped(void *to, uint8_t turn)
{
	struct mlx5_cqe64 *cqe = to;

	/* Seen with the next entry that is published. */
	atomic_store_explicit((_Atomic uint8_t *)&cqe->signature, turn, memory_order_relaxed);
}

/* --- doorbell pages --------------------------------------------------------------------------- */

/*
 *	0x800, 0x900        the first 8 bytes of a WQE; QP number << 8 | size in the second word
 *	                    (the doorbell record says how far)                send queue
 *	0x20                sequence << 28 | command << 24 | consumer index, then
 *	                    CQ number                                         arm a completion queue
 *	0x40, 0x48          EQ number << 24 | consumer index                  event queue, read so far
 *
 * The index of an arming is in the doorbell record, too, and its sequence number tells the card
 * nothing.
 */
enum {
	CQ_BELL = 0x20,
	EQ_BELL = 0x40,
	EQ_BELL_NO_ARM = 0x48,
	SEND_BELL = 0x800,
	BF_SIZE = 0x100,
};

static void mlx5_arming(uint32_t word, uint32_t number, struct vb_bell *bell)
{
	*bell = (struct vb_bell){ .kind = VB_BELL_ARM,
				  .solicited = (word >> 24) & 1,
				  .number = number & VB_BELL_CI_MASK,
				  .ci = word & VB_BELL_CI_MASK };
}

static unsigned int mlx5_doorbell(size_t offset, const void *data, size_t size,
				  struct vb_bell bells[VB_BELLS_MAX])
{
	uint32_t word, cqn;
	unsigned int n = 0;

	/*
	 * The two halves of the BlueFlame register are for WQEs in turn; a WQE may be stored there
	 * as a whole.
	 */
	if (vb_bell_word(SEND_BELL + 4, offset, data, size, &word) ||
	    vb_bell_word(SEND_BELL + BF_SIZE + 4, offset, data, size, &word))
		bells[n++] = (struct vb_bell){ .kind = VB_BELL_SEND, .number = word >> 8 };
	if (vb_bell_word(CQ_BELL, offset, data, size, &word) &&
	    vb_bell_word(CQ_BELL + 4, offset, data, size, &cqn))
		mlx5_arming(word, cqn, &bells[n++]);
	if (vb_bell_word(EQ_BELL, offset, data, size, &word) ||
	    vb_bell_word(EQ_BELL_NO_ARM, offset, data, size, &word))
		bells[n++] = (struct vb_bell){ .kind = VB_BELL_EQ,
					       .number = word >> 24,
					       .ci = word & VB_BELL_CI_MASK };
	return n;
}

static bool mlx5_armed(uint32_t record, struct vb_bell *bell)
{
	mlx5_arming(record, 0, bell);
	return true;
}

const struct vb_codec vb_codec_mlx5 = {
	.cqe_size = 64,
	.sq_blocks = 1 << 16,
	.sq_shift_max = UINT8_MAX, /* blocks have one size, and nobody says it */
	.send = mlx5_send,
	.send_ud = mlx5_send_ud,
	.send_dc = mlx5_send_dc,
	.send_raw = mlx5_send_raw,
	.layout = vb_mlx5_layout,
	.receive = mlx5_receive,
	.next = mlx5_next,
	.completion = mlx5_completion,
	.moved = mlx5_moved,
	.combined_at = SEND_BELL,
	.combined_size = 2 * BF_SIZE,
	.doorbell = mlx5_doorbell,
	.armed = mlx5_armed,
	.mini = mlx5_mini,
	.minis = mlx5_minis,
	.title = mlx5_title,
	.skipped = mlx5_skipped,
};
