/* SPDX-License-Identifier: MIT */
/*
 * Writing WQEs into a send ring (send.c: ibv_post_send, send_ex.c: ibv_wr_*).
 *
 * The ring is an array of 64-byte basic blocks. A WQE starts on a block and takes as many as it
 * needs; segments are 16-byte units, and what does not fit before the end of the ring goes on at
 * its start. The first four segments never cross the end. All functions run under the queue's lock.
 *
 *	+---------+---------+---------+---------+
 *	| ctrl    | raddr   | atomic  | data    |   RC, UC: raddr for RDMA, both for atomics
 *	+---------+---------+---------+---------+
 *	| data    | inline: byte_count, bytes...    instead of all data segments
 *	+---------+---------+---------+---------+
 *	| ctrl    | datagram: address vector    |   UD
 *	+---------+---------+---------+---------+
 *	| ctrl    | eth     | data    |             RAW_PACKET; eth goes on with the headers of a large send
 */
#pragma once

#include "api/ibverbs/core/loops.h"
#include "mlx5.h"

enum { SEGS_PER_BB = MLX5_SEND_WQE_BB / SEG };

/* Where the next data goes, and the size of the WQE so far in segments. */
struct sq_cursor {
	char *pos;
	uint32_t ds;
};

static inline struct mlx5_wqe_ctrl_seg *sq_next_wqe(struct api_sq *sq)
{
	return (struct mlx5_wqe_ctrl_seg *)(sq->buf + (size_t)(sq->cur_post & (sq->cnt - 1)) *
							      MLX5_SEND_WQE_BB);
}

/* enum ibv_send_flags to the byte of the control segment. */
static inline uint8_t sq_ctrl_flags(const struct api_sq *sq, unsigned int send_flags)
{
	return (uint8_t)((sq->signal_all || (send_flags & IBV_SEND_SIGNALED)
				  ? MLX5_WQE_CTRL_CQ_UPDATE
				  : 0) |
			 (send_flags & IBV_SEND_SOLICITED ? MLX5_WQE_CTRL_SOLICITED : 0) |
			 (send_flags & IBV_SEND_FENCE ? MLX5_WQE_CTRL_FENCE : 0));
}

static inline void sq_put_datagram(char *at, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct mlx5_wqe_av *av = &((struct mlx5_wqe_datagram_seg *)at)->av;

	*av = to_mlx5_ah(to_ah(ah))->av;
	av->key.qkey.qkey = htobe32(qkey);
	av->dqp_dct = htobe32((qpn & 0xffffff) | MLX5_EXTENDED_UD_AV);
}

/* Segments of length 0 are left out: a byte count of 0 means 2 GiB. */
static inline int sq_put_sge(const struct api_sq *sq, struct sq_cursor *cur, uint64_t addr,
			     uint32_t length, uint32_t lkey)
{
	struct mlx5_wqe_data_seg *seg;

	if (unlikely(!length))
		return 0;
	if (unlikely(length > SEG_MAX_LENGTH))
		return EINVAL;
	if (unlikely(cur->pos == sq->end))
		cur->pos = sq->buf;
	seg = (struct mlx5_wqe_data_seg *)cur->pos;
	seg->byte_count = htobe32(length & ~SEG_MAX_LENGTH);
	seg->lkey = htobe32(lkey);
	seg->addr = htobe64(addr);
	cur->pos += SEG;
	cur->ds++;
	return 0;
}

/*
 * Inline data: the header is written when the length is known; pos moves behind the bytes copied.
 */
static inline char *sq_inline_start(const struct api_sq *sq, struct sq_cursor *cur)
{
	char *header;

	if (unlikely(cur->pos == sq->end))
		cur->pos = sq->buf;
	header = cur->pos;
	cur->pos += sizeof(struct mlx5_wqe_inl_data_seg);
	return header;
}

static inline void sq_inline_copy(const struct api_sq *sq, struct sq_cursor *cur, const void *addr,
				  size_t length)
{
	size_t room = (size_t)(sq->end - cur->pos);

	if (unlikely(length > room)) {
		memcpy(cur->pos, addr, room);
		addr = (const char *)addr + room;
		length -= room;
		cur->pos = sq->buf;
	}
	/* The address of an entry without bytes may be NULL, which memcpy() does not allow. */
	if (likely(length))
		memcpy(cur->pos, addr, length);
	cur->pos += length;
}

static inline void sq_inline_end(struct sq_cursor *cur, char *header, uint32_t total)
{
	if (!total)
		return; /* no data, no segment */
	((struct mlx5_wqe_inl_data_seg *)header)->byte_count = htobe32(total | MLX5_INLINE_SEG);
	cur->ds += ((uint32_t)sizeof(struct mlx5_wqe_inl_data_seg) + total + SEG - 1) / SEG;
}

/* What a raw WQE says of its frames. header: of a large send, repeated before every mss bytes. */
static inline void sq_put_eth(const struct api_sq *sq, struct sq_cursor *cur,
			      unsigned int send_flags, const void *header, uint16_t header_len,
			      uint16_t mss)
{
	struct mlx5_wqe_eth_seg *eth = (struct mlx5_wqe_eth_seg *)cur->pos;
	size_t first = offsetof(struct mlx5_wqe_eth_seg, inline_hdr_start), bytes;

	memset(eth, 0, SEG);
	if (send_flags & IBV_SEND_IP_CSUM)
		eth->cs_flags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
	eth->mss = htobe16(mss);
	eth->inline_hdr_sz = htobe16(header_len);
	bytes = max_u32(SEG, align_up((uint32_t)first + header_len, SEG));
	cur->pos += first;
	sq_inline_copy(sq, cur, header, header_len);
	cur->pos += bytes - first - header_len;
	cur->ds += (uint32_t)bytes / SEG;
}

/* The WQE is complete: write its control segment, remember the wr_id, move on. */
static inline void sq_finish(struct api_qp *qp, struct mlx5_wqe_ctrl_seg *ctrl, uint8_t opcode,
			     uint32_t ds)
{
	struct api_sq *sq = &qp->sq;

	ctrl->opmod_idx_opcode = htobe32((sq->cur_post & 0xffff) << 8 | opcode);
	ctrl->qpn_ds = htobe32(qp->ibv.qp_num << 8 | ds);
	sq->slot[sq->cur_post & (sq->cnt - 1)].head = sq->head;
	if (unlikely(to_mlx5_qp(qp)->raw))
		to_mlx5_qp(qp)->raw[sq->cur_post & (sq->cnt - 1)] = false;
	sq->head++;
	sq->cur_post += (ds + SEGS_PER_BB - 1) / SEGS_PER_BB;
}

/* Doorbell record, then doorbell, once for all that was posted. */
static inline void sq_ring(struct api_qp *qp)
{
	__atomic_store_n(&qp->dbr[MLX5_SND_DBR], htobe32(qp->sq.cur_post & 0xffff),
			 __ATOMIC_RELEASE);
	vb_qp_ring_sq(qp->card, qp->sq.cur_post & 0xffff);
}
