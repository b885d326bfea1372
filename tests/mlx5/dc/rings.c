// SPDX-License-Identifier: MIT
/*
 * A DCI whose ring a program writes itself, all the way round and across its end, to targets in this process and in another one.
 * And WQEs that are wrong: each fails by itself, with the DCI and nobody else.
 */
#include "../direct.h"
#include "dc.h"

#include <endian.h>
#include <string.h>

static struct dc dc;
static struct dci dci;
static struct node node; /* as direct.h has it */
static struct direct self;
static const struct dci_attr rts = { .timeout = 12, .retry_cnt = 2, .rnr_retry = 7 };

static void put_av(struct wqe *wqe, struct ibv_ah *ah, const struct dc_target *to)
{
	struct mlx5_wqe_datagram_seg *seg = wqe_put(wqe, sizeof(*seg));
	struct mlx5dv_ah dv;
	struct mlx5dv_obj obj = { .ah = { .in = ah, .out = &dv } };

	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH), 0);
	seg->av = *dv.av;
	seg->av.key.dc_key = htobe64(to->key);
	seg->av.dqp_dct = htobe32(to->dctn | MLX5_EXTENDED_UD_AV);
}

/* The CQ may have been used before. */
static void open_ring(void)
{
	uint32_t ci = self.send.ci;

	dci_open(&dci, &dc, &rts);
	node = (struct node){
		.ctx = dc.ctx, .qp = dci.qp, .send_cq = dc.send_cq, .recv_cq = dc.recv_cq
	};
	direct_open(&self, &node);
	self.send.ci = ci;
}

static void expect(uint8_t opcode, struct mlx5_cqe64 *cqe)
{
	direct_expect(&self.send, dci.qp->qp_num, opcode, cqe);
	check_eq(be16toh(cqe->wqe_counter), self.last & 0xffff);
}

static void rounds(struct dc_side *side)
{
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	uint64_t *old = (void *)(dc.buf + 4096), first = 0;
	struct mlx5_cqe64 cqe;
	struct wqe wqe;

	for (uint32_t i = 0; i < 3 * self.dv.sq.wqe_cnt / 5; i++) {
		const struct dc_target *to = &side->target[i % side->count];

		pattern_fill(dc.buf, 100, i);
		wqe_begin(&wqe, MLX5_OPCODE_SEND_IMM, MLX5_WQE_CTRL_CQ_UPDATE, htobe32(i + 1));
		put_av(&wqe, ah, to);
		wqe_put_inline(&wqe, dc.buf, 100);
		direct_post(&self, &wqe);
		direct_ring(&self);
		dc_side_tell(side, &(struct dc_command){ .order = DC_EXPECT,
							 .which = i % side->count,
							 .len = 100,
							 .imm = htobe32(i + 1),
							 .seed = i,
							 .src_qpn = dci.qp->qp_num });
		expect(MLX5_CQE_REQ, &cqe);
		/* Two blocks: remote address and operands behind the address vector, which may be the ring's end. */
		wqe_begin(&wqe, MLX5_OPCODE_ATOMIC_FA, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		put_av(&wqe, ah, to);
		wqe_put_raddr(&wqe, to->addr + DC_SIZE / 4, to->rkey);
		wqe_put_atomic(&wqe, 5, 0);
		wqe_put_data(&wqe, (uintptr_t)old, 8, dc.mr->lkey);
		direct_post(&self, &wqe);
		direct_ring(&self);
		expect(MLX5_CQE_REQ, &cqe);
		first = i ? first : *old;
		check_eq(*old, first + 5 * i);
	}
	check_eq(ibv_destroy_ah(ah), 0);
}

/* --- what no card takes -------------------------------------------------------------------------- */

enum wrong { SHORT_AV, NO_EXTENSION, BAD_SGID, NO_SUCH_OPCODE, FRAMES, TOO_LONG, NO_RADDR, WRONGS };

static uint8_t build(struct wqe *wqe, struct ibv_ah *ah, const struct dc_target *to,
		     enum wrong wrong)
{
	struct mlx5_wqe_av *av;

	wqe_begin(wqe,
		  wrong == NO_SUCH_OPCODE ? 0x7e
		  : wrong == FRAMES       ? MLX5_OPCODE_TSO
					  : MLX5_OPCODE_SEND,
		  MLX5_WQE_CTRL_CQ_UPDATE, 0);
	put_av(wqe, ah, to);
	av = (void *)(wqe->bytes + sizeof(struct mlx5_wqe_ctrl_seg));
	if (wrong == SHORT_AV)
		wqe->size -= 32;
	if (wrong == NO_EXTENSION)
		av->dqp_dct &= htobe32(0xffffff);
	if (wrong == BAD_SGID)
		av->grh_gid_fl |= htobe32(0xffu << 20);
	if (wrong == NO_RADDR)
		wqe->opcode = MLX5_OPCODE_RDMA_READ;
	if (wrong != SHORT_AV && wrong != NO_RADDR)
		wqe_put_data(wqe, (uintptr_t)dc.buf, 64, dc.mr->lkey);
	return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
}

static void hostile(struct dc_side *side)
{
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	struct wqe wqe;

	for (enum wrong wrong = 0; wrong < WRONGS; wrong++) {
		uint8_t syndrome = build(&wqe, ah, &side->target[0], wrong);

		direct_post(&self, &wqe);
		if (wrong == TOO_LONG) {
			struct mlx5_wqe_ctrl_seg *ctrl =
				(void *)((char *)self.dv.sq.buf +
					 (self.last & (self.dv.sq.wqe_cnt - 1)) * 64);

			ctrl->qpn_ds |= htobe32(0x3f);
		}
		direct_ring(&self);
		direct_expect_error(&self.send, dci.qp->qp_num, MLX5_CQE_REQ_ERR, syndrome);
		check_eq(qp_get_state(dci.qp), IBV_QPS_ERR);
		check_eq(ibv_destroy_qp(dci.qp), 0);
		open_ring();
	}
	/* Random bytes, many of them with a good control segment: they end somehow, and the card goes on. */
	for (uint64_t seed = 1, i = 0; i < 300; i++) {
		struct mlx5_cqe64 cqe;
		uint32_t n;

		build(&wqe, ah, &side->target[0], WRONGS);
		wqe.size = 16 * (2 + next_random(&seed) % 10);
		for (n = 0; n < 6; n++)
			wqe.bytes[16 + next_random(&seed) % (wqe.size - 16)] =
				(uint8_t)next_random(&seed);
		wqe.opcode = (uint8_t)(next_random(&seed) % 0x14);
		/* What a WAIT waits for may never be, and some keys of a UMR exist. */
		if (wqe.opcode == 0x0f)
			wqe.opcode = MLX5_OPCODE_SEND;
		direct_post(&self, &wqe);
		direct_ring(&self);
		direct_wait(&self.send, &cqe);
		if (qp_get_state(dci.qp) == IBV_QPS_RTS)
			continue;
		check_eq(ibv_destroy_qp(dci.qp), 0);
		open_ring();
	}
	check_eq(ibv_destroy_ah(ah), 0);
}

int main(int argc, char **argv)
{
	struct dc_side side;

	if (argc > 1) {
		dc_side_serve(ROLE_FD);
		return 0;
	}
	dc_open(&dc);
	for (int other = 0; other < 2; other++) {
		if (other)
			dc_side_spawn(&side, 2);
		else
			dc_side_open(&side, &dc, 2);
		open_ring();
		rounds(&side);
		check_eq(ibv_destroy_qp(dci.qp), 0);
		dc_side_close(&side);
	}
	dc_side_open(&side, &dc, 2);
	open_ring();
	hostile(&side);
	check_eq(ibv_destroy_qp(dci.qp), 0);
	dc_side_close(&side);
	dc_close(&dc);
	return 0;
}
