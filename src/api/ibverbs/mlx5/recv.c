// SPDX-License-Identifier: MIT
/*
 * Posting receives, to a QP's own queue and to an SRQ.
 *
 * A receive WQE is an array of data segments; one that is not full ends in a segment with an
 * invalid key. The card reads the doorbell record when a message arrives, so it needs no doorbell
 * for that. The doorbell is for a QP in the error state, which must flush what is posted; an SRQ
 * has none.
 */
#include "api/ibverbs/core/loops.h"
#include "mlx5.h"

/*
 * Segments of length 0 are left out: a byte count of 0 means 2 GiB. The WQE has room for a power of
 * two of segments, which may be more than max_gs.
 */
static int mlx5_recv_fill_segments(struct mlx5_wqe_data_seg *seg, uint32_t max_gs, uint32_t room,
				   const struct ibv_recv_wr *wr)
{
	uint32_t n = 0;

	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > max_gs))
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (unlikely(!sge->length))
			continue;
		if (unlikely(sge->length > SEG_MAX_LENGTH))
			return EINVAL;
		seg[n].byte_count = htobe32(sge->length & ~SEG_MAX_LENGTH);
		seg[n].lkey = htobe32(sge->lkey);
		seg[n].addr = htobe64(sge->addr);
		n++;
	}
	if (n < room) {
		seg[n].byte_count = 0;
		seg[n].lkey = htobe32(MLX5_INVALID_LKEY);
		seg[n].addr = 0;
	}
	return 0;
}

/* A WQE of strides begins with a link, which says nothing where WQEs follow one another. */
static int fill_strides(struct mlx5_wqe_data_seg *seg, uint32_t max_gs, uint32_t room,
			const struct ibv_recv_wr *wr)
{
	memset(seg, 0, SEG);
	return mlx5_recv_fill_segments(seg + 1, max_gs, room - 1, wr);
}

int mlx5_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	if (unlikely(to_mlx5_qp(to_qp(qp))->striding.log_bytes))
		return loop_post_recv(qp, wr, bad_wr, fill_strides);
	return loop_post_recv(qp, wr, bad_wr, mlx5_recv_fill_segments);
}

int mlx5_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return loop_post_srq_recv(srq, wr, bad_wr, mlx5_recv_fill_segments);
}
