// SPDX-License-Identifier: MIT
/*
 * The mlx4 queue format, card side, with the layouts of <infiniband/mlx4dv.h>.
 *
 *	send WQE: blocks of the ring's stride (at least 64 bytes), units ("ds") of 16; wraps at the end of the ring
 *	| ctrl | [datagram 48 | remote address 16 [atomic 16] | key to invalidate 32] | data 16 ... |
 *
 *	ctrl.owner_opcode   bit 31: owner, flips with every round through the ring; 4..0: opcode
 *
 * Inline data are pieces of a length and bytes, padded to 16; none crosses a line of 64 bytes. A
 * length of 0x80000000 is such a piece of no bytes, which is how an empty data segment is written.
 *
 *	receive WQE: data segments, ended by lkey 0x100 or the end; shared queues have a 16-byte link in front. There is no
 *	inline data here: a count of 0 is no bytes, and 0x80000000 is 2 GiB.
 *
 * A CQE has 32 bytes; where entries have 64 it is the second half, and cq.c passes that. Doorbells:
 * at the end.
 */
#include "card/format/doorbell.h"
#include "card/format/segments.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <infiniband/mlx4dv.h>

#include "packet/frame/frame.h"

static_assert(sizeof(struct mlx4_wqe_ctrl_seg) == 16, "control segment");
static_assert(sizeof(struct mlx4_wqe_datagram_seg) == 48, "datagram segment");
static_assert(sizeof(struct mlx4_cqe) == 32, "CQE");
static_assert(sizeof(struct mlx4_err_cqe) == 32, "error CQE");
static_assert(offsetof(struct mlx4_cqe, owner_sr_opcode) == 31, "owner byte is written last");

enum {
	LINE = 64,
	DS_MASK = 0x3f,
	OPCODE_MASK = 0x1f,
	CQE_INLINE_SCATTER = 0x20, /* owner_sr_opcode: the data lies in the receive WQE */
};

#define OWNER_BIT (1u << 31)
/* What drivers write where nothing is posted: with the owner bit as it falls. */
#define STAMP 0x7fffffffu

/* segments.h has them by their mlx5 names. */
_Static_assert(sizeof(struct mlx4_wqe_data_seg) == sizeof(struct mlx5_wqe_data_seg) &&
		       offsetof(struct mlx4_wqe_data_seg, addr) ==
			       offsetof(struct mlx5_wqe_data_seg, addr) &&
		       sizeof(struct mlx4_wqe_raddr_seg) == sizeof(struct mlx5_wqe_raddr_seg) &&
		       sizeof(struct mlx4_wqe_atomic_seg) == sizeof(struct mlx5_wqe_atomic_seg) &&
		       (uint32_t)MLX4_INLINE_SEG == (uint32_t)MLX5_INLINE_SEG &&
		       (int)MLX4_INVALID_LKEY == (int)MLX5_INVALID_LKEY &&
		       (int)MLX4_CQE_SYNDROME_LOCAL_LENGTH_ERR ==
			       (int)MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR &&
		       (int)MLX4_CQE_SYNDROME_REMOTE_ABORTED_ERR ==
			       (int)MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR,
	       "the same bytes");

static const struct vb_opcode opcodes[OPCODE_MASK + 1] = {
	[MLX4_OPCODE_NOP] = { VB_WR_NOP, .known = true },
	[MLX4_OPCODE_SEND] = { VB_WR_SEND, .known = true },
	[MLX4_OPCODE_SEND_IMM] = { VB_WR_SEND, VB_WR_IMM, .known = true },
	[MLX4_OPCODE_SEND_INVAL] = { VB_WR_SEND, VB_WR_INVALIDATE, .known = true },
	[MLX4_OPCODE_LSO] = { VB_WR_LSO, .known = true },
	[MLX4_OPCODE_RDMA_WRITE] = { VB_WR_WRITE, .raddr = true, .known = true },
	[MLX4_OPCODE_RDMA_WRITE_IMM] = { VB_WR_WRITE, VB_WR_IMM, .raddr = true, .known = true },
	[MLX4_OPCODE_RDMA_READ] = { VB_WR_READ, .raddr = true, .known = true },
	[MLX4_OPCODE_ATOMIC_CS] = { VB_WR_COMPARE_SWAP, .raddr = true, .atomic = true,
				    .known = true },
	[MLX4_OPCODE_ATOMIC_FA] = { VB_WR_FETCH_ADD, .raddr = true, .atomic = true, .known = true },
	[MLX4_OPCODE_MASKED_ATOMIC_CS] = { VB_WR_MASKED_COMPARE_SWAP, .raddr = true, .atomic = true,
					   .known = true, .masked = true },
	[MLX4_OPCODE_MASKED_ATOMIC_FA] = { VB_WR_MASKED_FETCH_ADD, .raddr = true, .atomic = true,
					   .known = true, .masked = true },
	[MLX4_OPCODE_LOCAL_INVAL] = { VB_WR_LOCAL_INVALIDATE, .known = true },
};

static const struct mlx4_wqe_ctrl_seg *ctrl_at(const void *ring, uint32_t blocks, uint32_t shift,
					       uint32_t index)
{
	return (const void *)((const char *)ring + ((size_t)(index & (blocks - 1)) << shift));
}

/*
 * A WQE takes as many blocks as its size in units needs. One without a size takes a block, to be
 * refused there.
 */
static uint32_t wqe_blocks(uint32_t ds, uint32_t shift)
{
	uint32_t units = 1u << (shift - 4);

	return ds ? (ds + units - 1) / units : 1;
}

static uint32_t mlx4_owned(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index)
{
	const struct mlx4_wqe_ctrl_seg *ctrl = ctrl_at(ring, blocks, shift, index);
	/* Pairs with the driver's store of the owner bit, behind the rest of the WQE. */
	uint32_t word = be32toh(atomic_load_explicit((_Atomic uint32_t *)&ctrl->owner_opcode,
						     memory_order_acquire));
	uint32_t n;

	if (!(word & OWNER_BIT) != !(index & blocks) || (word & STAMP) == STAMP)
		return 0;
	n = wqe_blocks(*(const volatile uint8_t *)&ctrl->fence_size & DS_MASK, shift);
	return n > blocks ? 1 : n;
}

static int mlx4_decode_datagram(struct vb_cursor *c, struct vb_wr *wr)
{
	const struct mlx4_wqe_datagram_seg *seg = vb_cursor_take(c, sizeof(*seg) / VB_SEG_UNIT);
	struct mlx4_wqe_datagram_seg copy;

	if (!seg)
		return -EINVAL;
	/* 48 bytes after a ctrl segment end exactly at the line: they never wrap. */
	memcpy(&copy, seg, sizeof(copy));
	wr->qkey = be32toh(copy.qkey);
	wr->dqpn = be32toh(copy.dqpn) & 0xffffff;
	wr->sgid_index = copy.av.gid_index & 0x7f;
	wr->traffic_class = (uint8_t)(be32toh(copy.av.sl_tclass_flowlabel) >> 20);
	wr->hop_limit = copy.av.hop_limit;
	wr->flow_label = be32toh(copy.av.sl_tclass_flowlabel) & 0xfffff;
	memcpy(wr->dmac, copy.mac, sizeof(wr->dmac));
	memcpy(&wr->dgid, copy.av.dgid, sizeof(wr->dgid));
	return 0;
}

/* An inline piece: bytes that stay in the ring. */
static int mlx4_decode_inline(struct vb_cursor *c, uint32_t len, struct vb_wr *wr)
{
	uint32_t at = c->at + (uint32_t)sizeof(struct mlx4_wqe_inline_seg);

	if (at % LINE + len > LINE ||
	    !vb_cursor_take(c, (len + (uint32_t)sizeof(struct mlx4_wqe_inline_seg) + VB_SEG_UNIT -
				1) / VB_SEG_UNIT))
		return -EINVAL;
	if (!len)
		return 0;
	if (wr->num_sge == VB_WR_MAX_SGE)
		return -EINVAL;
	wr->sge[wr->num_sge++] = (struct vb_sge){ (uintptr_t)(c->ring + at), len, 0, true };
	wr->len += len;
	return 0;
}

static int mlx4_decode_data(struct vb_cursor *c, struct vb_wr *wr)
{
	while (c->units) {
		const struct mlx4_wqe_data_seg *seg = (const void *)(c->ring + c->at);
		uint32_t count = be32toh(*(const volatile __be32 *)&seg->byte_count);

		if (count & MLX4_INLINE_SEG) {
			if (mlx4_decode_inline(c, count & ~(uint32_t)MLX4_INLINE_SEG, wr))
				return -EINVAL;
			continue;
		}
		if (vb_seg_add_pointer(c, count, wr))
			return -EINVAL;
	}
	return 0;
}

static uint8_t wr_flags(const struct vb_opcode *opcode, uint32_t flags, uint8_t fence_size)
{
	return (uint8_t)(opcode->flags | ((flags & MLX4_WQE_CTRL_CQ_UPDATE) ? VB_WR_SIGNALED : 0) |
			 ((flags & MLX4_WQE_CTRL_SOLICIT) ? VB_WR_SOLICITED : 0) |
			 ((fence_size & MLX4_WQE_CTRL_FENCE) ? VB_WR_FENCE : 0));
}

/* The control segment; leaves the cursor behind it. NULL where the WQE cannot be told. */
static const struct vb_opcode *mlx4_decode_ctrl(const void *ring, uint32_t blocks, uint32_t shift,
						uint32_t index, struct vb_wr *wr,
						struct vb_cursor *c)
{
	const struct mlx4_wqe_ctrl_seg *ctrl = ctrl_at(ring, blocks, shift, index);
	uint32_t owner_opcode = be32toh(*(const volatile __be32 *)&ctrl->owner_opcode);
	uint8_t fence_size = *(const volatile uint8_t *)&ctrl->fence_size;
	uint32_t flags = be32toh(*(const volatile __be32 *)&ctrl->srcrb_flags);
	uint32_t ds = fence_size & DS_MASK, n = wqe_blocks(ds, shift);
	const struct vb_opcode *opcode;

	wr->index = (uint16_t)index;
	wr->wqe_opcode = owner_opcode & OPCODE_MASK;
	wr->blocks = (uint8_t)(n > blocks ? 1 : n);
	wr->num_sge = 0;
	wr->len = 0;
	wr->flags = VB_WR_SIGNALED;
	opcode = &opcodes[wr->wqe_opcode];
	if (!ds || n > blocks || !opcode->known)
		return NULL;
	wr->op = opcode->op;
	wr->flags = wr_flags(opcode, flags, fence_size);
	wr->checksums = (uint8_t)((flags & MLX4_WQE_CTRL_IP_HDR_CSUM ? VB_CSUM_L3 : 0) |
				  (flags & MLX4_WQE_CTRL_TCP_UDP_CSUM ? VB_CSUM_L4 : 0));
	/* Immediate data passes through as it is; a key is a number. */
	wr->imm = *(const volatile uint32_t *)&ctrl->imm;
	if (wr->flags & VB_WR_INVALIDATE)
		wr->imm = be32toh(wr->imm);
	*c = (struct vb_cursor){ ring, (blocks << shift) - 1, (index & (blocks - 1)) << shift, ds };
	vb_cursor_take(c, 1);
	return opcode;
}

static int decode_invalidate(struct vb_cursor *c, struct vb_wr *wr)
{
	/* 32 bytes behind a ctrl segment do not wrap. */
	const struct mlx4_wqe_local_inval_seg *seg = vb_cursor_take(c, sizeof(*seg) / VB_SEG_UNIT);

	if (!seg)
		return -EINVAL;
	wr->imm = be32toh(seg->mem_key);
	return 0;
}

static int mlx4_send(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
		     struct vb_wr *wr)
{
	const struct vb_opcode *opcode;
	struct vb_cursor c;

	opcode = mlx4_decode_ctrl(ring, blocks, shift, index, wr, &c);
	if (!opcode || wr->op == VB_WR_LSO)
		return -EINVAL;
	if (wr->op == VB_WR_NOP)
		return 0;
	if (wr->op == VB_WR_LOCAL_INVALIDATE)
		return decode_invalidate(&c, wr);
	if (vb_seg_remote(&c, opcode, wr))
		return -EINVAL;
	return mlx4_decode_data(&c, wr);
}

static int mlx4_send_ud(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			struct vb_wr *wr)
{
	struct vb_cursor c;
	int ret;

	if (!mlx4_decode_ctrl(ring, blocks, shift, index, wr, &c))
		return -EINVAL;
	if (wr->op == VB_WR_NOP)
		return 0;
	if (wr->op != VB_WR_SEND || (wr->flags & VB_WR_INVALIDATE))
		return -EINVAL;
	ret = mlx4_decode_datagram(&c, wr);
	return ret ? ret : mlx4_decode_data(&c, wr);
}

/* The headers of a large frame: behind a word with their length, padded to 16. They may wrap. */
static int decode_lso(struct vb_cursor *c, struct vb_wr *wr)
{
	uint32_t word = be32toh(*(const volatile __be32 *)(c->ring + c->at));
	uint32_t at = (c->at + (uint32_t)sizeof(struct mlx4_wqe_lso_seg)) & c->mask;
	uint32_t len = word & 0xffff, to_end = c->mask + 1 - at;

	if (!c->units || !len || !(word >> 16) ||
	    !vb_cursor_take(c, (len + (uint32_t)sizeof(struct mlx4_wqe_lso_seg) + VB_SEG_UNIT - 1) /
				       VB_SEG_UNIT))
		return -EINVAL;
	wr->mss = (uint16_t)(word >> 16);
	wr->header_len = (uint16_t)len;
	wr->sge[wr->num_sge++] =
		(struct vb_sge){ (uintptr_t)(c->ring + at), len < to_end ? len : to_end, 0, true };
	if (len > to_end)
		wr->sge[wr->num_sge++] =
			(struct vb_sge){ (uintptr_t)c->ring, len - to_end, 0, true };
	wr->len += len;
	return 0;
}

/*
 * A frame comes back to queues of its own port where the control segment has its destination, in the
 * places of a shared receive queue's number and of immediate data: drivers without need for that
 * leave them 0.
 */
static bool names_destination(const struct mlx4_wqe_ctrl_seg *ctrl)
{
	return *(const volatile __be16 *)&ctrl->srcrb_flags16[0] ||
	       *(const volatile __be32 *)&ctrl->imm;
}

/* On raw Ethernet the solicited bit means "no ICRC": frames have none. */
static int mlx4_send_raw(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			 struct vb_wr *wr)
{
	struct vb_cursor c;

	if (!mlx4_decode_ctrl(ring, blocks, shift, index, wr, &c))
		return -EINVAL;
	wr->flags &= (uint8_t)~VB_WR_SOLICITED;
	wr->frames = VB_FRAMES_ONE;
	memset(wr->swp, 0, sizeof(wr->swp));
	wr->insert_vlan = false;
	wr->to_wire = !names_destination(ctrl_at(ring, blocks, shift, index));
	wr->metadata = 0;
	if (wr->op == VB_WR_NOP)
		return 0;
	if ((wr->op != VB_WR_SEND && wr->op != VB_WR_LSO) ||
	    (wr->flags & (VB_WR_INVALIDATE | VB_WR_IMM)))
		return -EINVAL;
	if (wr->op == VB_WR_LSO && decode_lso(&c, wr))
		return -EINVAL;
	return mlx4_decode_data(&c, wr);
}

static int mlx4_receive(const void *wqe, uint32_t size, bool shared, struct vb_sge *sge)
{
	return vb_seg_receive(wqe, size, shared, MLX4_INLINE_SEG, sge);
}

static uint16_t mlx4_next(const void *wqe)
{
	return be16toh(((const struct mlx4_wqe_srq_next_seg *)wqe)->next_wqe_index);
}

static uint8_t cqe_opcode(const struct vb_completion *c)
{
	if (c->status != IBV_WC_SUCCESS)
		return MLX4_CQE_OPCODE_ERROR;
	if (!c->receive)
		return c->wqe_opcode & OPCODE_MASK;
	if (c->op == VB_WR_WRITE)
		return MLX4_RECV_OPCODE_RDMA_WRITE_IMM;
	if (c->flags & VB_WR_IMM)
		return MLX4_RECV_OPCODE_SEND_IMM;
	return c->flags & VB_WR_INVALIDATE ? MLX4_RECV_OPCODE_SEND_INVAL : MLX4_RECV_OPCODE_SEND;
}

/* What the packet is; the public header has only the first of these bits, drivers know all. */
enum {
	STATUS_IPV4_FRAGMENT = 1 << 23,
	STATUS_IPV6 = 1 << 24,
	STATUS_IPV4_OPTIONS = 1 << 25,
	STATUS_TCP = 1 << 26,
	STATUS_UDP = 1 << 27,
};

static uint32_t frame_status(const struct vb_frame *f)
{
	uint8_t right = vb_frame_verify(f, VB_CSUM_L3 | VB_CSUM_L4);
	uint32_t status = f->outer.l4_type == VB_L4_TCP   ? STATUS_TCP
			  : f->outer.l4_type == VB_L4_UDP ? STATUS_UDP
							  : 0;

	if (f->outer.ip == 6)
		status |= STATUS_IPV6;
	if (f->outer.ip == 4) {
		status |= MLX4_CQE_STATUS_IPV4_PKT |
			  (f->outer.fragment ? STATUS_IPV4_FRAGMENT : 0) |
			  (f->outer.options ? STATUS_IPV4_OPTIONS : 0);
		if (right & VB_CSUM_L3)
			status |= MLX4_CQE_STATUS_IP_HDR_CSUM_OK;
	}
	if (right & VB_CSUM_L4)
		status |= MLX4_CQE_STATUS_TCP_UDP_CSUM_OK;
	return status;
}

static void fill_cqe(struct mlx4_cqe *cqe, const struct vb_completion *c)
{
	bool tagged = c->frame && c->frame->outer.vlans;

	/* Immediate data is in network order already. */
	cqe->immed_rss_invalid = c->flags & VB_WR_INVALIDATE ? htobe32(c->imm) : c->imm;
	cqe->g_mlpath_rqpn = htobe32(c->src_qpn | (c->grh ? 1u << 31 : 0));
	/* A timestamp lies where service level and VLAN are otherwise. */
	cqe->ts_47_16 = htobe32((uint32_t)(c->timestamp >> 16));
	if (!c->timestamp)
		cqe->sl_vid = htobe16(tagged ? c->frame->outer.vlan[0] : 0);
	cqe->status = htobe32(c->frame ? frame_status(c->frame) : 0);
	cqe->byte_cnt = htobe32(c->byte_len);
	cqe->checksum = htobe16(c->frame ? vb_frame_sum(c->frame) : 0);
	cqe->reserved3 = 0;
	cqe->ts_15_8 = (uint8_t)(c->timestamp >> 8);
	cqe->ts_7_0 = (uint8_t)c->timestamp;
}

/* Beside MLX4_CQE_VLAN_PRESENT_MASK, for a tag of the type 0x88a8. */
enum { SVLAN_PRESENT = 1 << 30 };

static uint32_t vlan_present(const struct vb_completion *c)
{
	if (!c->frame || !c->frame->outer.vlans)
		return 0;
	return c->frame->outer.vlan_type[0] == 0x88a8 ? SVLAN_PRESENT : MLX4_CQE_VLAN_PRESENT_MASK;
}

static void mlx4_completion(void *to, const struct vb_completion *c, bool owner)
{
	struct mlx4_cqe *cqe = to;
	uint8_t owner_sr_opcode =
		(uint8_t)((owner ? MLX4_CQE_OWNER_MASK : 0) |
			  (c->receive ? 0 : MLX4_CQE_IS_SEND_MASK) |
			  (c->flags & VB_WR_INLINED ? CQE_INLINE_SCATTER : 0) | cqe_opcode(c));

	cqe->vlan_my_qpn = htobe32(c->qpn | vlan_present(c));
	cqe->wqe_index = htobe16(c->wqe_index);
	if (c->status == IBV_WC_SUCCESS) {
		fill_cqe(cqe, c);
	} else {
		struct mlx4_err_cqe *err = to;

		memset(err->reserved1, 0, sizeof(err->reserved1));
		err->vendor_err = vb_seg_vendor_error(c);
		err->syndrome = vb_seg_syndrome(c->status);
	}
	/* Pairs with the acquire of whoever reads the owner bit. */
	atomic_store_explicit((_Atomic uint8_t *)&cqe->owner_sr_opcode, owner_sr_opcode,
			      memory_order_release);
}

/* --- doorbell pages --------------------------------------------------------------------------- */

/*
 *	0x14   big endian   QP number << 8                                    send queue
 *	0x20   big endian   sequence << 28 | command << 24 | CQ number, then
 *	                    consumer index                                    arm a completion queue
 */
enum { SEND_BELL = 0x14, CQ_BELL = 0x20, ARM_SOLICITED = 1, ARM_ANY = 2 };

static bool mlx4_arming(uint32_t word, uint32_t ci, struct vb_bell *bell)
{
	uint32_t command = (word >> 24) & 3;

	*bell = (struct vb_bell){ .kind = VB_BELL_ARM,
				  .solicited = command == ARM_SOLICITED,
				  .counted = true,
				  .sn = (uint8_t)(word >> 28) & 3,
				  .number = word & VB_BELL_CI_MASK,
				  .ci = ci };
	return command == ARM_SOLICITED || command == ARM_ANY;
}

static unsigned int mlx4_doorbell(size_t offset, const void *data, size_t size,
				  struct vb_bell bells[VB_BELLS_MAX])
{
	uint32_t word, ci;
	unsigned int n = 0;

	if (vb_bell_word(SEND_BELL, offset, data, size, &word))
		bells[n++] = (struct vb_bell){ .kind = VB_BELL_SEND, .number = word >> 8 };
	if (!vb_bell_word(CQ_BELL, offset, data, size, &word))
		return n;
	/* A program of 32 bits rings in two halves: then the record has the index. */
	if (!vb_bell_word(CQ_BELL + 4, offset, data, size, &ci))
		ci = VB_BELL_CI_FROM_RECORD;
	return n + mlx4_arming(word, ci, &bells[n]);
}

static bool mlx4_armed(uint32_t record, struct vb_bell *bell)
{
	return mlx4_arming(record, record & VB_BELL_CI_MASK, bell);
}

const struct vb_codec vb_codec_mlx4 = {
	.cqe_size = 32,
	/* Owner bits flip with every round: 16 bits of index must tell two rounds apart. */
	.sq_blocks = 1 << 15,
	.sq_shift_min = 6,
	.sq_shift_max = 10,
	.send = mlx4_send,
	.send_ud = mlx4_send_ud,
	.send_raw = mlx4_send_raw,
	.owned = mlx4_owned,
	.receive = mlx4_receive,
	.next = mlx4_next,
	.completion = mlx4_completion,
	.doorbell = mlx4_doorbell,
	.armed = mlx4_armed,
};
