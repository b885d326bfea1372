// SPDX-License-Identifier: MIT
/*
 * mlx5dv_wr_*(): work requests of direct verbs, between ibv_wr_start() and ibv_wr_complete().
 *
 * A configuration of a key (UMR) takes two blocks, then its layout:
 *
 *	+---------+---------+---------+---------+
 *	| ctrl    | umr: length of the layout,  |   ctrl names the key
 *	|         | mask of what is set         |
 *	+---------+---------+---------+---------+
 *	| context of the key: rights, length    |
 *	+---------+---------+---------+---------+
 *	| piece   | piece   | piece   | padding |   or a block of pieces that repeats:
 *	+---------+---------+---------+---------+   | header  | piece ...
 *
 * The setters of mlx5dv_wr_mkey_configure() fill in parts of it in any order.
 */
#include "sq.h"

#include "card/queue/qp.h"

enum {
	UMR_SEGS = sizeof(struct mlx5_wqe_umr_ctrl_seg) / SEG,
	CONTEXT_SEGS = sizeof(struct mlx5_wqe_mkey_context_seg) / SEG,
	HEAD_BLOCKS = (1 + UMR_SEGS + CONTEXT_SEGS) / SEGS_PER_BB,
	REPEATED = 0x400, /* a block of pieces, in place of a key */
	OPMOD_DMA = 1,    /* of MLX5_OPCODE_MMO */
};

#define RIGHTS_MASK                                        \
	(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |  \
	 MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |  \
	 MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | \
	 MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC)

/* --- configuration of keys -------------------------------------------------------------------- */

static struct mlx5_wqe_umr_ctrl_seg *umr_ctrl(const struct mlx5_wr_builder *wr)
{
	return (struct mlx5_wqe_umr_ctrl_seg *)(wr->ctrl + 1);
}

/* A block of the open WQE. */
static char *block(const struct mlx5_qp *qp, uint32_t index)
{
	const struct api_sq *sq = &qp->api.sq;

	return sq->buf + (size_t)((sq->cur_post + index) & (sq->cnt - 1)) * MLX5_SEND_WQE_BB;
}

static struct mlx5_wqe_mkey_context_seg *context(const struct mlx5_qp *qp)
{
	return (struct mlx5_wqe_mkey_context_seg *)block(qp, 1);
}

static void set_mask(struct mlx5_wr_builder *wr, uint64_t bits)
{
	umr_ctrl(wr)->mkey_mask |= htobe64(bits);
}

static bool open_mkey(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey)
{
	struct mlx5_qp *qp = dv_to_qp(dv);
	struct ibv_qp_ex *ex = &qp->api.ex;
	struct mlx5_wr_builder *wr = &qp->wr;
	struct mlx5_wqe_mkey_context_seg *key;
	char *at = mlx5_wr_open(ex, MLX5_OPCODE_UMR, UMR_SEGS + CONTEXT_SEGS, 0);

	if (unlikely(!at))
		return false;
	if (unlikely(!mkey)) {
		mlx5_wr_fail(wr, EINVAL);
		return false;
	}
	/* The layout is in the WQE; the real library knows no other way either. */
	if (unlikely(!(ex->wr_flags & IBV_SEND_INLINE))) {
		mlx5_wr_fail(wr, EOPNOTSUPP);
		return false;
	}
	wr->ctrl->imm = htobe32(mkey->lkey);
	wr->data = NULL;
	wr->mkey = (const struct vb_verbs_mkey *)mkey;
	wr->setters = 0;
	wr->has_access = wr->has_layout = false;
	memset(at, 0, sizeof(struct mlx5_wqe_umr_ctrl_seg));
	key = context(qp);
	memset(key, 0, sizeof(*key));
	umr_ctrl(wr)->flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
	set_mask(wr, MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE);
	key->qpn_mkey = htobe32(0xffffff00u | (mkey->lkey & 0xff));
	if (wr->mkey->update_tag)
		set_mask(wr, MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY);
	return true;
}

static void set_access(struct mlx5_qp *qp, uint32_t flags)
{
	const uint32_t known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct mlx5_wr_builder *wr = &qp->wr;

	if (unlikely(wr->has_access || (flags & ~known))) {
		mlx5_wr_fail(wr, EINVAL);
		return;
	}
	wr->has_access = true;
	set_mask(wr, RIGHTS_MASK);
	context(qp)->access_flags =
		(uint8_t)(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ |
			  (flags & IBV_ACCESS_LOCAL_WRITE
				   ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE
				   : 0) |
			  (flags & IBV_ACCESS_REMOTE_READ
				   ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ
				   : 0) |
			  (flags & IBV_ACCESS_REMOTE_WRITE
				   ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE
				   : 0) |
			  (flags & IBV_ACCESS_REMOTE_ATOMIC
				   ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC
				   : 0));
}

/* Room for so many units of 16 bytes, or false. max: those that the key was made for. */
static bool begin_layout(struct mlx5_qp *qp, uint32_t units, bool any)
{
	struct mlx5_wr_builder *wr = &qp->wr;
	uint32_t room = (qp->wqe_max - HEAD_BLOCKS) * SEGS_PER_BB;

	if (unlikely(wr->has_layout || !any)) {
		mlx5_wr_fail(wr, EINVAL);
		return false;
	}
	if (unlikely(units > room || units > wr->mkey->max_entries)) {
		mlx5_wr_fail(wr, ENOMEM);
		return false;
	}
	wr->has_layout = true;
	return true;
}

static void *layout_at(const struct mlx5_qp *qp, uint32_t unit)
{
	return block(qp, HEAD_BLOCKS + unit / SEGS_PER_BB) + unit % SEGS_PER_BB * SEG;
}

static void end_layout(struct mlx5_qp *qp, uint32_t units, uint64_t length)
{
	struct mlx5_wr_builder *wr = &qp->wr;
	uint32_t padded = align_up(units, SEGS_PER_BB);

	for (uint32_t i = units; i < padded; i++)
		memset(layout_at(qp, i), 0, SEG);
	umr_ctrl(wr)->klm_octowords = htobe16((uint16_t)padded);
	set_mask(wr, MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR);
	context(qp)->len = htobe64(length);
	context(qp)->translations_octword_size = htobe32(padded);
	wr->ds = 1 + UMR_SEGS + CONTEXT_SEGS + padded;
}

static void set_list(struct mlx5_qp *qp, uint16_t num, const struct ibv_sge *sge)
{
	uint64_t length = 0;

	if (!begin_layout(qp, num, num && sge))
		return;
	for (uint32_t i = 0; i < num; i++) {
		struct mlx5_wqe_umr_klm_seg *klm = layout_at(qp, i);

		if (unlikely(!sge[i].length)) { /* it would end the list */
			mlx5_wr_fail(&qp->wr, EINVAL);
			return;
		}
		klm->byte_count = htobe32(sge[i].length);
		klm->mkey = htobe32(sge[i].lkey);
		klm->address = htobe64(sge[i].addr);
		length += sge[i].length;
	}
	end_layout(qp, num, length);
}

static void set_interleaved(struct mlx5_qp *qp, uint32_t repeat, uint16_t num,
			    const struct mlx5dv_mr_interleaved *data)
{
	struct mlx5_wqe_umr_repeat_block_seg *header;
	uint32_t bytes = 0;

	if (!begin_layout(qp, num + 1u, num && data && repeat))
		return;
	header = layout_at(qp, 0);
	for (uint32_t i = 0; i < num; i++) {
		struct mlx5_wqe_umr_repeat_ent_seg *entry = layout_at(qp, i + 1);
		uint64_t stride = (uint64_t)data[i].bytes_count + data[i].bytes_skip;

		/* Both have 16 bits. */
		if (unlikely(!data[i].bytes_count || stride > UINT16_MAX)) {
			mlx5_wr_fail(&qp->wr, EINVAL);
			return;
		}
		entry->stride = htobe16((uint16_t)stride);
		entry->byte_count = htobe16((uint16_t)data[i].bytes_count);
		entry->memkey = htobe32(data[i].lkey);
		entry->va = htobe64(data[i].addr);
		bytes += data[i].bytes_count;
	}
	header->byte_count = htobe32(bytes);
	header->op = htobe32(REPEATED);
	header->repeat_count = htobe32(repeat);
	header->reserved = 0;
	header->num_ent = htobe16(num);
	end_layout(qp, num + 1u, (uint64_t)bytes * repeat);
}

static void wr_mr_list(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access_flags,
		       uint16_t num_sges, struct ibv_sge *sge)
{
	if (!open_mkey(dv, mkey))
		return;
	set_access(dv_to_qp(dv), access_flags);
	if (dv_to_qp(dv)->wr.mkey)
		set_list(dv_to_qp(dv), num_sges, sge);
}

static void wr_mr_interleaved(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey,
			      uint32_t access_flags, uint32_t repeat_count,
			      uint16_t num_interleaved, struct mlx5dv_mr_interleaved *data)
{
	if (!open_mkey(dv, mkey))
		return;
	set_access(dv_to_qp(dv), access_flags);
	if (dv_to_qp(dv)->wr.mkey)
		set_interleaved(dv_to_qp(dv), repeat_count, num_interleaved, data);
}

/* There are no signatures to be reset. */
static void wr_mkey_configure(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey,
			      uint8_t num_setters, struct mlx5dv_mkey_conf_attr *attr)
{
	struct mlx5_wr_builder *wr = &dv_to_qp(dv)->wr;

	if (!open_mkey(dv, mkey))
		return;
	if (unlikely(attr &&
		     (attr->comp_mask ||
		      (attr->conf_flags & ~(uint32_t)MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR)))) {
		mlx5_wr_fail(wr, EOPNOTSUPP);
		return;
	}
	wr->setters = num_setters;
}

/* Whether a setter may be called now; it is one less. */
static bool take_setter(struct mlx5_wr_builder *wr)
{
	if (unlikely(!wr->ctrl))
		return false;
	if (unlikely(!wr->mkey || !wr->setters)) {
		mlx5_wr_fail(wr, EINVAL);
		return false;
	}
	wr->setters--;
	return true;
}

static void wr_set_mkey_access_flags(struct mlx5dv_qp_ex *dv, uint32_t access_flags)
{
	if (take_setter(&dv_to_qp(dv)->wr))
		set_access(dv_to_qp(dv), access_flags);
}

static void wr_set_mkey_layout_list(struct mlx5dv_qp_ex *dv, uint16_t num_sges,
				    const struct ibv_sge *sge)
{
	if (take_setter(&dv_to_qp(dv)->wr))
		set_list(dv_to_qp(dv), num_sges, sge);
}

static void wr_set_mkey_layout_interleaved(struct mlx5dv_qp_ex *dv, uint32_t repeat_count,
					   uint16_t num_interleaved,
					   const struct mlx5dv_mr_interleaved *data)
{
	if (take_setter(&dv_to_qp(dv)->wr))
		set_interleaved(dv_to_qp(dv), repeat_count, num_interleaved, data);
}

static void wr_set_mkey_sig_block(struct mlx5dv_qp_ex *dv, const struct mlx5dv_sig_block_attr *attr)
{
	if (take_setter(&dv_to_qp(dv)->wr))
		mlx5_wr_fail(&dv_to_qp(dv)->wr, EOPNOTSUPP);
}

static void wr_set_mkey_crypto(struct mlx5dv_qp_ex *dv, const struct mlx5dv_crypto_attr *attr)
{
	if (take_setter(&dv_to_qp(dv)->wr))
		mlx5_wr_fail(&dv_to_qp(dv)->wr, EOPNOTSUPP);
}

/* --- other work requests ---------------------------------------------------------------------- */

static void wr_memcpy(struct mlx5dv_qp_ex *dv, uint32_t dest_lkey, uint64_t dest_addr,
		      uint32_t src_lkey, uint64_t src_addr, size_t length)
{
	struct mlx5_qp *qp = dv_to_qp(dv);
	struct mlx5_wqe_data_seg *seg;
	char *at = mlx5_wr_open(&qp->api.ex, MLX5_OPCODE_MMO, SEGS_PER_BB - 1, 0);

	if (unlikely(!at))
		return;
	if (unlikely(!length || length > MLX5_MAX_MEMCPY)) {
		mlx5_wr_fail(&qp->wr, EINVAL);
		return;
	}
	memset(at, 0, SEG);
	seg = (struct mlx5_wqe_data_seg *)(at + SEG);
	mlx5dv_set_data_seg(&seg[0], (uint32_t)length, src_lkey, src_addr);
	mlx5dv_set_data_seg(&seg[1], (uint32_t)length, dest_lkey, dest_addr);
	qp->wr.data = NULL;
	qp->wr.opmod = OPMOD_DMA;
}

/* The program has written the WQE, but for its index. */
static void wr_raw_wqe(struct mlx5dv_qp_ex *dv, const void *wqe)
{
	struct mlx5_qp *qp = dv_to_qp(dv);
	struct api_sq *sq = &qp->api.sq;
	const struct mlx5_wqe_ctrl_seg *from = wqe;
	uint32_t ds = be32toh(from->qpn_ds) & 0x3f, index = sq->cur_post & (sq->cnt - 1);
	struct mlx5_wqe_ctrl_seg *ctrl;

	mlx5_wr_close(qp);
	if (unlikely(qp->wr.err))
		return;
	if (unlikely(!ds || (ds + SEGS_PER_BB - 1) / SEGS_PER_BB > qp->wqe_max)) {
		mlx5_wr_fail(&qp->wr, EINVAL);
		return;
	}
	ctrl = (void *)mlx5_wr_open(&qp->api.ex, (uint8_t)be32toh(from->opmod_idx_opcode), 0, 0);
	if (unlikely(!ctrl))
		return;
	index = sq->cur_post & (sq->cnt - 1);
	for (uint32_t i = 0; i < ds; i++)
		memcpy(block(qp, i / SEGS_PER_BB) + i % SEGS_PER_BB * SEG,
		       (const char *)wqe + i * SEG, SEG);
	ctrl = qp->wr.ctrl;
	sq_finish(&qp->api, ctrl, (uint8_t)be32toh(from->opmod_idx_opcode), ds);
	ctrl->opmod_idx_opcode |= from->opmod_idx_opcode & htobe32(0xff000000u);
	ctrl->qpn_ds = from->qpn_ds;
	ctrl->signature = 0;
	qp->raw[index] = true;
	qp->wr.ctrl = NULL;
	qp->wr.nreq++;
}

/* --- addresses of DC -------------------------------------------------------------------------- */

static void wr_set_dc_addr_stream(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t remote_dctn,
				  uint64_t remote_dc_key, uint16_t stream_id)
{
	struct mlx5_wr_builder *wr = &dv_to_qp(dv)->wr;
	struct mlx5_wqe_av *av;

	if (unlikely(!wr->ctrl))
		return;
	/* Local work has no address. */
	if (unlikely(!ah || wr->data_ds < 1 + sizeof(*av) / SEG || wr->mkey)) {
		mlx5_wr_fail(wr, EINVAL);
		return;
	}
	av = (struct mlx5_wqe_av *)(wr->ctrl + 1);
	*av = to_mlx5_ah(to_ah(ah))->av;
	av->key.dc_key = htobe64(remote_dc_key);
	av->dqp_dct = htobe32((remote_dctn & 0xffffff) | MLX5_EXTENDED_UD_AV);
	wr->ctrl->dci_stream_channel_id = htobe16(stream_id);
}

static void wr_set_dc_addr(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t remote_dctn,
			   uint64_t remote_dc_key)
{
	wr_set_dc_addr_stream(dv, ah, remote_dctn, remote_dc_key, 0);
}

/* --- which QP has which ----------------------------------------------------------------------- */

int mlx5_qp_check_dv_ops(const struct api_qp *qp, uint64_t ops)
{
	const uint64_t all = MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |
			     MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE |
			     MLX5DV_QP_EX_WITH_MEMCPY;
	uint64_t can = qp->ibv.qp_type == IBV_QPT_RC ? all : MLX5DV_QP_EX_WITH_RAW_WQE;

	if (ops & ~all)
		return -vb_refuse_bits("send_ops_flags", ops & ~all);
	return ops & ~can ? -vb_refuse_unsupported_value("send_ops_flags", ops & ~can) : 0;
}

void mlx5_qp_set_dv_ops(struct mlx5_qp *qp)
{
	struct mlx5dv_qp_ex *dv = &qp->dv;

	if (qp->dc == VB_DC_INITIATOR) {
		dv->wr_set_dc_addr = wr_set_dc_addr;
		dv->wr_set_dc_addr_stream = wr_set_dc_addr_stream;
	}
	if (qp->dv_ops & MLX5DV_QP_EX_WITH_MR_LIST)
		dv->wr_mr_list = wr_mr_list;
	if (qp->dv_ops & MLX5DV_QP_EX_WITH_MR_INTERLEAVED)
		dv->wr_mr_interleaved = wr_mr_interleaved;
	if (qp->dv_ops & MLX5DV_QP_EX_WITH_MKEY_CONFIGURE) {
		dv->wr_mkey_configure = wr_mkey_configure;
		dv->wr_set_mkey_access_flags = wr_set_mkey_access_flags;
		dv->wr_set_mkey_layout_list = wr_set_mkey_layout_list;
		dv->wr_set_mkey_layout_interleaved = wr_set_mkey_layout_interleaved;
		dv->wr_set_mkey_sig_block = wr_set_mkey_sig_block;
		dv->wr_set_mkey_crypto = wr_set_mkey_crypto;
	}
	if (qp->dv_ops & MLX5DV_QP_EX_WITH_MEMCPY)
		dv->wr_memcpy = wr_memcpy;
	if (qp->dv_ops & MLX5DV_QP_EX_WITH_RAW_WQE)
		dv->wr_raw_wqe = wr_raw_wqe;
}

/* --- work requests that are taken back -------------------------------------------------------- */

/* The queue stands still: nothing is read until the program moves it back to RTS. */
int mlx5_qp_cancel(struct mlx5dv_qp_ex *dv, uint64_t wr_id)
{
	struct api_qp *qp = &dv_to_qp(dv)->api;
	struct api_sq *sq = &qp->sq;
	int canceled = 0, next, left;

	api_lock(&sq->lock, sq->unlocked);
	next = vb_qp_unsent(qp->card);
	left = next < 0 ? 0 : (uint16_t)(sq->cur_post - (uint16_t)next);
	/* The program can write the ring, too: no size in it leads beyond what was posted. */
	while (left > 0) {
		uint32_t index = (sq->cur_post - (uint32_t)left) & (sq->cnt - 1);
		struct mlx5_wqe_ctrl_seg *ctrl =
			(void *)(sq->buf + (size_t)index * MLX5_SEND_WQE_BB);
		uint32_t ds = be32toh(ctrl->qpn_ds) & 0x3f;

		if (sq->slot[index].wr_id == wr_id) {
			ctrl->opmod_idx_opcode = htobe32(
				(be32toh(ctrl->opmod_idx_opcode) & 0xffff00) | MLX5_OPCODE_NOP);
			canceled++;
		}
		left -= ds ? (int)((ds + SEGS_PER_BB - 1) / SEGS_PER_BB) : 1;
	}
	api_unlock(&sq->lock, sq->unlocked);
	return next < 0 ? vb_refuse_combination("the queue pair is not in SQD, or not drained yet")
			: canceled;
}
