// SPDX-License-Identifier: MIT
/*
 * How large the rings of an mlx5 QP are, for what the program asked.
 *
 * A send WQE takes whole basic blocks of 64 bytes: control segment, what the transport needs
 * (address, atomic or datagram segment), then data segments or inline data. Every WR is counted
 * with the largest WQE that the QP may post, so that max_send_wr of them always fit. The send ring
 * is rounded up to a power of two, and the program is told what it got.
 */
#include "api/ibverbs/core/loops.h"

#include "card/ether/flow.h"
#include "card/queue/qp.h"
#include "mlx5.h"

static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16, "control segment");
static_assert(sizeof(struct mlx5_wqe_datagram_seg) == 48, "datagram segment");

enum { INLINE_HEADER = sizeof(struct mlx5_wqe_inl_data_seg) };

/* Bytes of a send WQE before its data, at most. */
static uint32_t send_overhead(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg) +
		       sizeof(struct mlx5_wqe_atomic_seg);
	case IBV_QPT_UC:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg);
	case IBV_QPT_DRIVER: /* a DCI */
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_datagram_seg) +
		       sizeof(struct mlx5_wqe_raddr_seg) + sizeof(struct mlx5_wqe_atomic_seg);
	case IBV_QPT_RAW_PACKET:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_eth_seg);
	default:
		return sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_datagram_seg);
	}
}

enum {
	/* A configuration of a key: control segments and the key's context, then pieces of its memory. */
	UMR_HEAD = sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_umr_ctrl_seg) +
		   sizeof(struct mlx5_wqe_mkey_context_seg),
	UMR_OPS = MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |
		  MLX5DV_QP_EX_WITH_MKEY_CONFIGURE,
};

static_assert(UMR_HEAD == 2 * MLX5_SEND_WQE_BB, "whole blocks");

/* Its pieces take what inline data would, and at least a block. */
static uint32_t umr_size(const struct ibv_qp_cap *cap)
{
	return UMR_HEAD +
	       align_up(max_u32(cap->max_inline_data, MLX5_SEND_WQE_BB), MLX5_SEND_WQE_BB);
}

static int mlx5_qp_size_sq(struct mlx5_qp *qp, enum ibv_qp_type type, const struct ibv_qp_cap *cap,
			   uint32_t *bytes)
{
	struct api_sq *sq = &qp->api.sq;
	uint32_t overhead = send_overhead(type) + align_up(qp->api.max_tso_header, SEG);
	uint32_t data = cap->max_send_sge * SEG, wqe_size;
	uint64_t total;
	int err = loop_check_sq(cap, VB_MAX_INLINE);

	*bytes = 0;
	if (err || !cap->max_send_wr)
		return err;
	if (cap->max_inline_data && align_up(INLINE_HEADER + cap->max_inline_data, SEG) > data)
		data = align_up(INLINE_HEADER + cap->max_inline_data, SEG);
	wqe_size = align_up(overhead + data, MLX5_SEND_WQE_BB);
	if (qp->dv_ops & UMR_OPS)
		wqe_size = max_u32(wqe_size, umr_size(cap));
	qp->wqe_max = wqe_size / MLX5_SEND_WQE_BB;
	total = roundup_pow2((uint32_t)(wqe_size * cap->max_send_wr / MLX5_SEND_WQE_BB));
	/* The index in a WQE has 16 bits; mlx5 has the same limit in basic blocks. */
	if (total > VB_MAX_QP_WR)
		return -vb_refuse_range("max_send_wr in blocks of 64 bytes", total, 0,
					VB_MAX_QP_WR);
	sq->cnt = (uint32_t)total;
	sq->max_post = sq->cnt / (wqe_size / MLX5_SEND_WQE_BB);
	sq->max_gs = (uint16_t)min_u32((wqe_size - overhead) / SEG, VB_MAX_SGE);
	sq->max_inline = min_u32(wqe_size - overhead - INLINE_HEADER, VB_MAX_INLINE);
	*bytes = sq->cnt * MLX5_SEND_WQE_BB;
	return 0;
}

/* --- attributes of direct verbs --------------------------------------------------------------- */

/*
 * Received data is never left in CQEs, so whether that is allowed makes no difference. Frames of
 * tunnels are always looked into.
 */
static int mlx5_qp_check_flags(struct mlx5_qp *qp, uint32_t flags)
{
	const uint32_t raw = MLX5DV_QP_CREATE_TUNNEL_OFFLOADS |
			     MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC |
			     MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC;
	const uint32_t scatter =
		MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
	const uint32_t none =
		MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE | MLX5DV_QP_CREATE_SIG_PIPELINING;

	if (flags & ~(raw | scatter | none))
		return -vb_refuse_bits("create_flags", flags & ~(raw | scatter | none));
	if (flags & none)
		return -vb_refuse_unsupported_value("create_flags", flags & none);
	if ((flags & scatter) == scatter)
		return -vb_refuse_combination("scatter to CQE is both allowed and disabled");
	if ((flags & raw) && qp->api.ibv.qp_type != IBV_QPT_RAW_PACKET)
		return -vb_refuse_unsupported("tunnels and loopback on this type of queue pair");
	qp->loopback =
		(uint8_t)((flags & MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC ? VB_TIR_UNICAST
									       : 0) |
			  (flags & MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC ? VB_TIR_MULTICAST
									       : 0));
	return 0;
}

/* DC: the type of queue pair DRIVER has no other meaning. */
static int check_dc(struct mlx5_qp *qp, const struct ibv_qp_init_attr_ex *attr,
		    const struct mlx5dv_qp_init_attr *direct)
{
	const struct mlx5dv_dc_init_attr *dc = &direct->dc_init_attr;
	bool streams = direct->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;

	if (!(direct->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) != (attr->qp_type != IBV_QPT_DRIVER))
		return -vb_refuse_combination("DC and the type DRIVER go together");
	if (streams && (attr->qp_type != IBV_QPT_DRIVER || dc->dc_type != MLX5DV_DCTYPE_DCI))
		return -vb_refuse_combination("only a DCI has streams");
	if (streams && dc->dci_streams.log_num_concurent > VB_DC_MAX_LOG_STREAMS)
		return -vb_refuse_range("log_num_concurent", dc->dci_streams.log_num_concurent, 0,
					VB_DC_MAX_LOG_STREAMS);
	if (streams && dc->dci_streams.log_num_errored > VB_DC_MAX_LOG_ERRORED)
		return -vb_refuse_range("log_num_errored", dc->dci_streams.log_num_errored, 0,
					VB_DC_MAX_LOG_ERRORED);
	if (attr->qp_type != IBV_QPT_DRIVER)
		return 0;
	if (dc->dc_type == MLX5DV_DCTYPE_DCT) {
		if (!attr->srq || (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
			return -vb_refuse_combination(
				"a DCT receives through a shared receive queue, and sends nothing");
		qp->dc = VB_DC_TARGET;
		qp->dc_key = dc->dct_access_key;
		qp->api.late_number = true;
	} else if (dc->dc_type == MLX5DV_DCTYPE_DCI) {
		if (!attr->send_cq || !attr->cap.max_send_wr)
			return -vb_refuse_combination("a DCI needs a send queue and its CQ");
		qp->dc = VB_DC_INITIATOR;
		qp->dc_log_errored = streams ? dc->dci_streams.log_num_errored : 0;
	} else {
		return -vb_refuse_value("dc_type", dc->dc_type);
	}
	return 0;
}

static int mlx5_qp_check_direct(struct mlx5_qp *qp, const struct ibv_qp_init_attr_ex *attr,
				const struct mlx5dv_qp_init_attr *direct)
{
	const uint64_t known =
		MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
		MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
	int err;

	if (direct->comp_mask & ~known)
		return -vb_refuse_bits("comp_mask", direct->comp_mask & ~known);
	err = check_dc(qp, attr, direct);
	if (!err && (direct->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS))
		err = mlx5_qp_check_flags(qp, direct->create_flags);
	if (!err && (direct->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS)) {
		err = mlx5_qp_check_dv_ops(&qp->api, direct->send_ops_flags);
		if (!err && !(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
			err = mlx5_qp_set_ex_ops(&qp->api, 0);
		qp->dv_ops = direct->send_ops_flags;
	}
	return err;
}

/* Of a WQ. */
static int mlx5_qp_check_striding(struct mlx5_qp *qp, const struct mlx5dv_wq_init_attr *direct)
{
	const struct mlx5dv_striding_rq_init_attr *attr = &direct->striding_rq_attrs;
	const uint64_t known = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;

	if (direct->comp_mask & ~known)
		return -vb_refuse_bits("comp_mask", direct->comp_mask & ~known);
	if (!direct->comp_mask)
		return 0;
	if (attr->single_stride_log_num_of_bytes < VB_STRIDE_LOG_MIN ||
	    attr->single_stride_log_num_of_bytes > VB_STRIDE_LOG_MAX)
		return -vb_refuse_range("single_stride_log_num_of_bytes",
					attr->single_stride_log_num_of_bytes, VB_STRIDE_LOG_MIN,
					VB_STRIDE_LOG_MAX);
	if (attr->single_wqe_log_num_of_strides < VB_STRIDES_LOG_MIN ||
	    attr->single_wqe_log_num_of_strides > VB_STRIDES_LOG_MAX)
		return -vb_refuse_range("single_wqe_log_num_of_strides",
					attr->single_wqe_log_num_of_strides, VB_STRIDES_LOG_MIN,
					VB_STRIDES_LOG_MAX);
	qp->striding = (struct vb_striding){
		.log_bytes = (uint8_t)attr->single_stride_log_num_of_bytes,
		.log_count = (uint8_t)attr->single_wqe_log_num_of_strides,
		.shift = attr->two_byte_shift_en,
	};
	return 0;
}

/* A WQE of strides begins with a link, as in a shared queue. */
static int size_rq(struct mlx5_qp *qp, const struct ibv_qp_cap *cap, uint32_t *bytes)
{
	struct api_rq *rq = &qp->api.rq;
	uint32_t link = qp->striding.log_bytes ? 1 : 0;
	uint32_t least = link * (max_u32(cap->max_recv_sge, 1) + link) * SEG;
	/* The send ring behind it starts on a basic block. */
	int err = loop_size_rq(rq, cap, least, MLX5_SEND_WQE_BB, bytes);

	if (!err && link)
		rq->max_gs = min_u32(rq->max_gs, (1u << rq->shift) / SEG - link);
	return err;
}

int mlx5_qp_alloc(struct api_qp *api)
{
	struct mlx5_qp *qp = to_mlx5_qp(api);

	mlx5_qp_set_dv_ops(qp);
	if (!(qp->dv_ops & MLX5DV_QP_EX_WITH_RAW_WQE))
		return 0;
	qp->raw = calloc(api->sq.cnt ? api->sq.cnt : 1, sizeof(*qp->raw));
	return qp->raw ? 0 : vb_refuse_memory("the queue pair");
}

void mlx5_qp_free(struct api_qp *qp)
{
	free(to_mlx5_qp(qp)->raw);
}

/*
 * Fill in the sizes of both queues (direct: of a WQ or of a queue pair), and in qp->cap what the program gets; a positive errno where it
 * asks too much.
 */
int mlx5_qp_size(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr, const void *direct,
		 struct api_qp_layout *layout)
{
	struct ibv_qp_cap cap = loop_wanted(attr);
	int err = 0;

	if (direct)
		err = qp->is_wq ? mlx5_qp_check_striding(to_mlx5_qp(qp), direct)
				: mlx5_qp_check_direct(to_mlx5_qp(qp), attr, direct);
	if (to_mlx5_qp(qp)->dc)
		cap.max_recv_wr = cap.max_recv_sge = 0;
	if (to_mlx5_qp(qp)->dc == VB_DC_TARGET)
		cap = (struct ibv_qp_cap){ 0 };
	if (!err)
		err = mlx5_qp_size_sq(to_mlx5_qp(qp), attr->qp_type, &cap, &layout->sq_bytes);
	if (!err)
		err = size_rq(to_mlx5_qp(qp), &cap, &layout->rq_bytes);
	if (err)
		return err;
	qp->sq.shift = 6;
	layout->rq_offset = 0;
	layout->sq_offset = layout->rq_bytes;
	loop_grant(qp);
	return 0;
}

void mlx5_qp_card_attr(const struct api_qp *qp, struct vb_qp_attr *attr)
{
	attr->transport_domain = to_mlx5_context(to_context(qp->ibv.context))->transport_domain;
	attr->loopback = ((const struct mlx5_qp *)qp)->loopback;
	attr->striding = ((const struct mlx5_qp *)qp)->striding;
	attr->dc = ((const struct mlx5_qp *)qp)->dc;
	attr->dc_key = ((const struct mlx5_qp *)qp)->dc_key;
	attr->dc_log_errored = ((const struct mlx5_qp *)qp)->dc_log_errored;
	if (attr->dc)
		attr->type = IBV_QPT_RC;
	if (attr->dc == VB_DC_INITIATOR)
		attr->srq = NULL; /* it receives nothing */
}
