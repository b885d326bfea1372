// SPDX-License-Identifier: MIT
/* The helpers of raw.h: what a direct client does between the program and the rings, by the public header alone. */
#include "raw.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

enum { LINE = 64, SEG = 16, STAMP = 0x7fffffff };

void raw_cq_open(struct raw_cq *cq, struct ibv_cq *from)
{
	struct mlx4dv_obj obj = { .cq = { .in = from, .out = &cq->dv } };

	memset(cq, 0, sizeof(*cq));
	cq->dv.comp_mask = MLX4DV_CQ_MASK_UAR;
	check_eq(mlx4dv_init_obj(&obj, MLX4DV_OBJ_CQ), 0);
	check_eq(cq->dv.comp_mask, MLX4DV_CQ_MASK_UAR);
	cq->sn = (uint32_t)cq->dv.arm_sn;
}

void raw_open(struct raw *raw, struct node *node)
{
	struct mlx4dv_obj obj = { .qp = { .in = node->qp, .out = &raw->dv } };

	memset(raw, 0, sizeof(*raw));
	raw->node = node;
	check_eq(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), 0);
	raw_cq_open(&raw->send, node->send_cq);
	raw_cq_open(&raw->recv, node->recv_cq);
}

/* --- send WQEs ----------------------------------------------------------------------------------- */

static void *put(struct raw_wqe *wqe, uint32_t size)
{
	void *at = wqe->bytes + wqe->size;

	check(wqe->size + size <= sizeof(wqe->bytes));
	wqe->size += size;
	return at;
}

void raw_begin(struct raw_wqe *wqe, uint32_t opcode, uint32_t flags, uint32_t imm)
{
	struct mlx4_wqe_ctrl_seg *ctrl;

	memset(wqe, 0, sizeof(*wqe));
	ctrl = put(wqe, sizeof(*ctrl));
	wqe->opcode = opcode;
	ctrl->srcrb_flags = htobe32(flags & 0xff);
	ctrl->imm = imm;
}

void raw_put_raddr(struct raw_wqe *wqe, uint64_t addr, uint32_t rkey)
{
	struct mlx4_wqe_raddr_seg *seg = put(wqe, sizeof(*seg));

	seg->raddr = htobe64(addr);
	seg->rkey = htobe32(rkey);
}

void raw_put_atomic(struct raw_wqe *wqe, uint64_t swap_add, uint64_t compare)
{
	struct mlx4_wqe_atomic_seg *seg = put(wqe, sizeof(*seg));

	seg->swap_add = htobe64(swap_add);
	seg->compare = htobe64(compare);
}

void raw_put_dgram(struct raw_wqe *wqe, const union ibv_gid *gid, uint32_t qpn, uint32_t qkey)
{
	struct mlx4_wqe_datagram_seg *seg = put(wqe, sizeof(*seg));
	uint8_t mac[6] = { 0 }, raw[16];

	memcpy(raw, gid->raw, sizeof(raw));
	mlx4dv_set_dgram_seg(seg, 1u << 24, 0x80, 0, 0, 0, 64, 0, raw, qpn, qkey, 0, mac);
}

void raw_put_data(struct raw_wqe *wqe, const void *addr, uint32_t len, uint32_t lkey)
{
	struct mlx4_wqe_data_seg *seg = put(wqe, sizeof(*seg));

	mlx4dv_set_data_seg(seg, len ? len : (uint32_t)MLX4_INLINE_SEG, lkey, (uintptr_t)addr);
}

void raw_put_inline(struct raw_wqe *wqe, const void *data, uint32_t len)
{
	while (len) {
		struct mlx4_wqe_inline_seg *seg = (void *)(wqe->bytes + wqe->size);
		uint32_t room = LINE - wqe->size % LINE - (uint32_t)sizeof(*seg);
		uint32_t n = len < room ? len : room;

		put(wqe, (uint32_t)(sizeof(*seg) + n + SEG - 1) / SEG * SEG);
		seg->byte_count = htobe32(MLX4_INLINE_SEG | n);
		memcpy(seg + 1, data, n);
		data = (const char *)data + n;
		len -= n;
	}
}

static char *block(struct raw *raw, uint32_t index)
{
	return (char *)raw->dv.buf.buf + raw->dv.sq.offset +
	       ((size_t)(index & (raw->dv.sq.wqe_cnt - 1)) << raw->dv.sq.wqe_shift);
}

bool raw_post(struct raw *raw, struct raw_wqe *wqe)
{
	uint32_t stride = 1u << raw->dv.sq.wqe_shift;
	uint32_t n = (wqe->size + stride - 1) / stride, head = raw->sq_head;
	struct mlx4_wqe_ctrl_seg *ctrl = (void *)wqe->bytes;

	/* A ring that is never quite full: the card must find an end of what is posted. */
	if (head + n - raw->sq_tail >= raw->dv.sq.wqe_cnt)
		return false;
	ctrl->fence_size |= (uint8_t)(wqe->size / SEG);
	raw->blocks[head & 0xffff] = (uint16_t)n;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t part = wqe->size - i * stride < stride ? wqe->size - i * stride : stride;
		uint32_t skip = i ? 0 : 4;

		memcpy(block(raw, head + i) + skip, wqe->bytes + i * stride + skip, part - skip);
	}
	ctrl = (void *)block(raw, head);
	__atomic_store_n(&ctrl->owner_opcode,
			 htobe32(wqe->opcode | (head & raw->dv.sq.wqe_cnt ? 1u << 31 : 0)),
			 __ATOMIC_RELEASE);
	raw->sq_head = head + n;
	return true;
}

void raw_ring(struct raw *raw)
{
	*(volatile uint32_t *)raw->dv.sdb = raw->dv.doorbell_qpn;
}

void raw_put_destination(struct raw_wqe *wqe, const uint8_t *frame)
{
	struct mlx4_wqe_ctrl_seg *ctrl = (void *)wqe->bytes;

	memcpy(&ctrl->srcrb_flags16[0], frame, 2);
	memcpy(&ctrl->imm, frame + 2, 4);
}

void raw_send(struct raw *raw, size_t offset, uint32_t len, uint32_t flags)
{
	struct raw_wqe wqe;

	raw_begin(&wqe, MLX4_OPCODE_SEND, flags, 0);
	if (raw->node->qp->qp_type == IBV_QPT_RAW_PACKET)
		raw_put_destination(&wqe, (const uint8_t *)raw->node->buf + offset);
	raw_put_data(&wqe, raw->node->buf + offset, len, raw->node->mr->lkey);
	check(raw_post(raw, &wqe));
}

void raw_recv(struct raw *raw, size_t offset, uint32_t len)
{
	uint32_t index = raw->rq_head & (raw->dv.rq.wqe_cnt - 1);
	struct mlx4_wqe_data_seg *seg = (void *)((char *)raw->dv.buf.buf + raw->dv.rq.offset +
						 ((size_t)index << raw->dv.rq.wqe_shift));

	mlx4dv_set_data_seg(seg, len, raw->node->mr->lkey, (uintptr_t)raw->node->buf + offset);
	if (raw->dv.rq.wqe_shift > 4)
		mlx4dv_set_data_seg(seg + 1, 0, MLX4_INVALID_LKEY, 0);
	raw->rq_head++;
	__atomic_store_n(raw->dv.rdb, htobe32(raw->rq_head & 0xffff), __ATOMIC_RELEASE);
}

/* --- completions --------------------------------------------------------------------------------- */

bool raw_poll(struct raw_cq *cq, struct mlx4_cqe *out)
{
	size_t size = (size_t)cq->dv.cqe_size;
	char *entry = (char *)cq->dv.buf.buf + (cq->ci & (cq->dv.cqe_cnt - 1)) * size;
	struct mlx4_cqe *cqe = (void *)(entry + size - sizeof(*cqe));
	uint8_t last = __atomic_load_n(&cqe->owner_sr_opcode, __ATOMIC_ACQUIRE);

	if (!(last & MLX4_CQE_OWNER_MASK) != !(cq->ci & cq->dv.cqe_cnt))
		return false;
	*out = *cqe;
	cq->ci++;
	__atomic_store_n(cq->dv.set_ci_db, htobe32(cq->ci & 0xffffff), __ATOMIC_RELEASE);
	return true;
}

void raw_wait(struct raw_cq *cq, struct mlx4_cqe *cqe)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	/* A core for the others now and then: the card's own thread may need it to make the CQE. */
	for (unsigned int i = 1; !raw_poll(cq, cqe); i++) {
		if (i % 256 == 0)
			sched_yield();
		check(i % 1024 || now_us() < end, "no CQE");
	}
}

void raw_expect(struct raw_cq *cq, uint32_t qpn, bool send, struct mlx4_cqe *cqe)
{
	raw_wait(cq, cqe);
	check_eq(be32toh(cqe->vlan_my_qpn) & MLX4_CQE_QPN_MASK, qpn);
	check_eq(!!(cqe->owner_sr_opcode & MLX4_CQE_IS_SEND_MASK), send);
	check(mlx4dv_get_cqe_opcode(cqe) != MLX4_CQE_OPCODE_ERROR, "syndrome %#x",
	      ((struct mlx4_err_cqe *)cqe)->syndrome);
}

void raw_expect_error(struct raw_cq *cq, uint32_t qpn, uint8_t syndrome)
{
	struct mlx4_cqe cqe;

	raw_wait(cq, &cqe);
	check_eq(be32toh(cqe.vlan_my_qpn) & MLX4_CQE_QPN_MASK, qpn);
	check_eq(mlx4dv_get_cqe_opcode(&cqe), MLX4_CQE_OPCODE_ERROR);
	check_eq(((struct mlx4_err_cqe *)&cqe)->syndrome, syndrome);
	check(((struct mlx4_err_cqe *)&cqe)->vendor_err != 0, "no vendor's error");
}

void raw_free(struct raw *raw, const struct mlx4_cqe *cqe)
{
	uint16_t index = be16toh(cqe->wqe_index);
	uint32_t upto = raw->sq_tail + (uint16_t)(index - (uint16_t)raw->sq_tail);

	upto += raw->blocks[index];
	for (; raw->sq_tail != upto; raw->sq_tail++) {
		uint32_t owner = raw->sq_tail & raw->dv.sq.wqe_cnt ? 1u << 31 : 0;
		uint32_t *word = (void *)block(raw, raw->sq_tail);

		for (uint32_t at = 0; at < 1u << raw->dv.sq.wqe_shift; at += LINE)
			word[at / 4] = htobe32((uint32_t)STAMP | owner);
	}
}

void raw_arm(struct raw_cq *cq, bool solicited)
{
	uint32_t sn = cq->sn & 3, ci = cq->ci & 0xffffff;
	uint32_t cmd = solicited ? MLX4_CQ_DB_REQ_NOT_SOL : MLX4_CQ_DB_REQ_NOT;
	uint64_t bell = (uint64_t)(sn << 28 | cmd | cq->dv.cqn) << 32 | ci;

	__atomic_store_n(cq->dv.arm_db, htobe32(sn << 28 | cmd | ci), __ATOMIC_RELEASE);
	*(volatile uint64_t *)((char *)cq->dv.cq_uar + MLX4_CQ_DOORBELL) = htobe64(bell);
}
