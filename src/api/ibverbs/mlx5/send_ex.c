// SPDX-License-Identifier: MIT
/*
 * ibv_wr_*(): work requests built piece by piece, straight into the ring.
 *
 * wr_start() takes the send queue's lock and wr_complete() or wr_abort() gives it back. An opcode
 * function opens a WQE; the setters add to it in any order, because address vector and data have
 * fixed places; the next opcode function or wr_complete() closes it. The first error stops the
 * building: everything after it does nothing, and wr_complete() undoes the batch and returns it.
 *
 *	wr_start -> (opcode -> setters...)* -> wr_complete | wr_abort
 */
#include "sq.h"

static inline struct mlx5_qp *ex_to_qp(struct ibv_qp_ex *qp)
{
	return (struct mlx5_qp *)qp;
}

/* The setters of the open WQE are done: give it its size and go on behind it. */
void mlx5_wr_close(struct mlx5_qp *qp)
{
	struct mlx5_wr_builder *wr = &qp->wr;

	if (!wr->ctrl)
		return;
	if (unlikely(wr->mkey)) {
		wr->mkey = NULL;
		if (wr->setters) { /* fewer than were announced */
			mlx5_wr_fail(wr, EINVAL);
			return;
		}
	}
	sq_finish(&qp->api, wr->ctrl, wr->opcode, wr->ds);
	if (unlikely(wr->opmod))
		wr->ctrl->opmod_idx_opcode |= htobe32((uint32_t)wr->opmod << 24);
	wr->ctrl = NULL;
	wr->nreq++;
}

void mlx5_wr_fail(struct mlx5_wr_builder *wr, int err)
{
	if (!wr->err)
		wr->err = err;
	wr->ctrl = NULL;
	wr->mkey = NULL;
}

/*
 * Open a WQE with room for its transport segments; returns where they go, or NULL after an error.
 */
char *mlx5_wr_open(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t transport_segs, __be32 imm)
{
	struct mlx5_qp *qp = ex_to_qp(ex);
	struct mlx5_wr_builder *wr = &qp->wr;
	struct api_sq *sq = &qp->api.sq;

	mlx5_wr_close(qp);
	if (unlikely(wr->err))
		return NULL;
	if (unlikely(!loop_sq_has_room(sq))) {
		mlx5_wr_fail(wr, ENOMEM);
		return NULL;
	}
	wr->ctrl = sq_next_wqe(sq);
	wr->ctrl->signature = 0;
	wr->ctrl->dci_stream_channel_id = 0;
	wr->ctrl->fm_ce_se = sq_ctrl_flags(sq, ex->wr_flags);
	wr->ctrl->imm = imm;
	wr->opcode = opcode;
	wr->opmod = 0;
	wr->ds = wr->data_ds = 1 + transport_segs;
	wr->data = (char *)wr->ctrl + wr->ds * SEG;
	if (unlikely(wr->data > sq->end)) /* behind the address vector of DC */
		wr->data -= sq->end - sq->buf;
	sq->slot[sq->cur_post & (sq->cnt - 1)].wr_id = ex->wr_id;
	return (char *)(wr->ctrl + 1);
}

/* --- opcodes ---------------------------------------------------------------------------------- */

static uint32_t send_segs(const struct ibv_qp_ex *ex)
{
	return ex->qp_base.qp_type == IBV_QPT_UD || ex->qp_base.qp_type == IBV_QPT_DRIVER
		       ? sizeof(struct mlx5_wqe_datagram_seg) / SEG
		       : 0;
}

/*
 * The same for one-sided work: where its segments go. Those of a DCI follow an address vector, which
 * ends with the block.
 */
static char *open_remote(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t segs, __be32 imm)
{
	const struct api_sq *sq = &ex_to_qp(ex)->api.sq;
	uint32_t av = send_segs(ex);
	char *at = mlx5_wr_open(ex, opcode, av + segs, imm);

	if (unlikely(at && av)) {
		memset(at, 0, av * SEG);
		at += av * SEG;
		return at == sq->end ? sq->buf : at;
	}
	return at;
}

static void open_frame(struct ibv_qp_ex *ex, uint8_t opcode, const void *header,
		       uint16_t header_len, uint16_t mss)
{
	struct mlx5_qp *qp = ex_to_qp(ex);
	struct sq_cursor cur = { mlx5_wr_open(ex, opcode, 0, 0), 1 };

	if (!cur.pos)
		return;
	sq_put_eth(&qp->api.sq, &cur, ex->wr_flags, header, header_len, mss);
	qp->wr.ds = qp->wr.data_ds = cur.ds;
	qp->wr.data = cur.pos;
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	struct mlx5_qp *qp = ex_to_qp(ex);

	if (unlikely(!hdr || !hdr_sz || hdr_sz > qp->api.max_tso_header || !mss)) {
		mlx5_wr_close(qp);
		mlx5_wr_fail(&qp->wr, EINVAL);
		return;
	}
	open_frame(ex, MLX5_OPCODE_TSO, hdr, hdr_sz, mss);
}

static void open_send(struct ibv_qp_ex *ex, uint8_t opcode, __be32 imm)
{
	uint32_t segs = send_segs(ex);
	char *at;

	if (unlikely(ex->qp_base.qp_type == IBV_QPT_RAW_PACKET)) {
		open_frame(ex, opcode, NULL, 0, 0);
		return;
	}
	at = mlx5_wr_open(ex, opcode, segs, imm);

	/* A program that forgets wr_set_ud_addr() must not send to the address of an older WQE. */
	if (at && segs)
		memset(at, 0, segs * SEG);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	open_send(ex, MLX5_OPCODE_SEND, 0);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	open_send(ex, MLX5_OPCODE_SEND_IMM, imm_data);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	open_send(ex, MLX5_OPCODE_SEND_INVAL, htobe32(invalidate_rkey));
}

static void open_rdma(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t rkey, uint64_t remote_addr,
		      __be32 imm)
{
	char *at = open_remote(ex, opcode, 1, imm);

	if (at)
		wqe_put_raddr(at, remote_addr, rkey);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	open_rdma(ex, MLX5_OPCODE_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      __be32 imm_data)
{
	open_rdma(ex, MLX5_OPCODE_RDMA_WRITE_IMM, rkey, remote_addr, imm_data);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	open_rdma(ex, MLX5_OPCODE_RDMA_READ, rkey, remote_addr, 0);
}

static void open_atomic(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t rkey, uint64_t remote_addr,
			uint64_t swap_add, uint64_t compare)
{
	char *at = open_remote(ex, opcode, 2, 0);

	if (!at)
		return;
	wqe_put_raddr(at, remote_addr, rkey);
	wqe_put_atomic(at + SEG, swap_add, compare);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	open_atomic(ex, MLX5_OPCODE_ATOMIC_CS, rkey, remote_addr, swap, compare);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	open_atomic(ex, MLX5_OPCODE_ATOMIC_FA, rkey, remote_addr, add, 0);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	mlx5_wr_open(ex, MLX5_OPCODE_LOCAL_INVAL, 0, htobe32(invalidate_rkey));
}

/* --- setters ---------------------------------------------------------------------------------- */

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct mlx5_wr_builder *wr = &ex_to_qp(ex)->wr;

	if (unlikely(!wr->ctrl))
		return;
	if (unlikely(!ah || ex->qp_base.qp_type != IBV_QPT_UD)) {
		mlx5_wr_fail(wr, EINVAL);
		return;
	}
	sq_put_datagram((char *)(wr->ctrl + 1), ah, remote_qpn, remote_qkey);
}

/*
 * Data has one place in a WQE: a second data setter replaces what the first wrote. False: no WQE is
 * open, or it takes no data.
 */
static bool begin_data(struct mlx5_wr_builder *wr, struct sq_cursor *cur)
{
	if (unlikely(!wr->ctrl))
		return false;
	if (unlikely(!wr->data)) {
		mlx5_wr_fail(wr, EINVAL);
		return false;
	}
	*cur = (struct sq_cursor){ wr->data, wr->data_ds };
	return true;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct mlx5_qp *qp = ex_to_qp(ex);
	struct sq_cursor cur;

	if (unlikely(!begin_data(&qp->wr, &cur)))
		return;
	if (unlikely(qp->api.sq.max_gs < 1 || sq_put_sge(&qp->api.sq, &cur, addr, length, lkey)))
		mlx5_wr_fail(&qp->wr, EINVAL);
	qp->wr.ds = cur.ds;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct mlx5_qp *qp = ex_to_qp(ex);
	struct sq_cursor cur;

	if (unlikely(!begin_data(&qp->wr, &cur)))
		return;
	if (unlikely(num_sge > qp->api.sq.max_gs)) {
		mlx5_wr_fail(&qp->wr, EINVAL);
		return;
	}
	for (size_t i = 0; i < num_sge; i++) {
		if (unlikely(sq_put_sge(&qp->api.sq, &cur, sg_list[i].addr, sg_list[i].length,
					sg_list[i].lkey))) {
			mlx5_wr_fail(&qp->wr, EINVAL);
			return;
		}
	}
	qp->wr.ds = cur.ds;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct mlx5_qp *qp = ex_to_qp(ex);
	struct sq_cursor cur;
	size_t total = 0;
	char *header;

	if (unlikely(!begin_data(&qp->wr, &cur)))
		return;
	header = sq_inline_start(&qp->api.sq, &cur);
	for (size_t i = 0; i < num_buf; i++) {
		if (unlikely(buf_list[i].length > qp->api.sq.max_inline - total)) {
			mlx5_wr_fail(&qp->wr, EINVAL);
			return;
		}
		total += buf_list[i].length;
		sq_inline_copy(&qp->api.sq, &cur, buf_list[i].addr, buf_list[i].length);
	}
	sq_inline_end(&cur, header, (uint32_t)total);
	qp->wr.ds = cur.ds;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	const struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

/* --- batches ---------------------------------------------------------------------------------- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct mlx5_qp *qp = ex_to_qp(ex);
	struct mlx5_wr_builder *wr = &qp->wr;

	api_lock(&qp->api.sq.lock, qp->api.sq.unlocked);
	wr->ctrl = NULL;
	wr->mkey = NULL;
	wr->nreq = 0;
	wr->err = ex->qp_base.state < IBV_QPS_RTS ? EINVAL : 0;
	wr->start_post = qp->api.sq.cur_post;
	wr->start_head = qp->api.sq.head;
}

static void wr_undo(struct mlx5_qp *qp)
{
	qp->api.sq.cur_post = qp->wr.start_post;
	qp->api.sq.head = qp->wr.start_head;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct mlx5_qp *qp = ex_to_qp(ex);
	int err;

	mlx5_wr_close(qp);
	err = qp->wr.err;
	if (unlikely(err))
		wr_undo(qp);
	else if (likely(qp->wr.nreq))
		sq_ring(&qp->api);
	api_unlock(&qp->api.sq.lock, qp->api.sq.unlocked);
	return likely(!err) ? 0 : api_wr_refused(&qp->api, err);
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	struct mlx5_qp *qp = ex_to_qp(ex);

	wr_undo(qp);
	api_unlock(&qp->api.sq.lock, qp->api.sq.unlocked);
}

/* --- which QP has which ----------------------------------------------------------------------- */

enum {
	OPS_UD = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	OPS_RAW = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
	OPS_UC = OPS_UD | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
		 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV,
	OPS_RC = OPS_UC | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
};

static uint64_t supported_ops(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_DRIVER:
		return OPS_RC;
	case IBV_QPT_UC:
		return OPS_UC;
	case IBV_QPT_RAW_PACKET:
		return OPS_RAW;
	default:
		return OPS_UD;
	}
}

int mlx5_qp_set_ex_ops(struct api_qp *qp, uint64_t send_ops_flags)
{
	struct ibv_qp_ex *ex = &qp->ex;

	if (send_ops_flags & ~supported_ops(qp->ibv.qp_type))
		return -vb_refuse_unsupported_value(
			"send_ops_flags", send_ops_flags & ~supported_ops(qp->ibv.qp_type));
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	if (qp->ibv.qp_type == IBV_QPT_RAW_PACKET) {
		ex->wr_send_tso = wr_send_tso;
	} else if (qp->ibv.qp_type == IBV_QPT_UD) {
		ex->wr_set_ud_addr = wr_set_ud_addr;
	} else {
		ex->wr_send_inv = wr_send_inv;
		ex->wr_rdma_write = wr_rdma_write;
		ex->wr_rdma_write_imm = wr_rdma_write_imm;
		ex->wr_local_inv = wr_local_inv;
	}
	if (qp->ibv.qp_type == IBV_QPT_RC || qp->ibv.qp_type == IBV_QPT_DRIVER) {
		ex->wr_rdma_read = wr_rdma_read;
		ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
		ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	}
	qp->has_ex = true;
	return 0;
}
