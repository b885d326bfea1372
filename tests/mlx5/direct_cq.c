// SPDX-License-Identifier: MIT
/*
 * mlx5dv_create_cq(): entries of 64 and 128 bytes, with and without compression, in every format. What a compressed
 * ring tells is the same when libibverbs polls it and when the program expands the arrays itself, around the end of
 * the ring too. A queue pair that is destroyed leaves nothing behind that a poll returns.
 */
#include "direct.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CQES = 64, BURST = 20, ROUNDS = 60 };

struct end {
	struct ibv_cq *cq[2]; /* of sends, of receives; may be one */
	struct ibv_qp *qp;
};

static struct node node; /* context, PD and memory */

static struct ibv_cq *create(uint16_t size, uint8_t format, uint32_t flags)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = CQES - 1, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct mlx5dv_cq_init_attr direct = { 0 };
	struct ibv_cq_ex *cq;

	if (size)
		direct.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
	if (format)
		direct.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
	if (flags)
		direct.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_FLAGS;
	direct.cqe_size = size;
	direct.cqe_comp_res_format = format;
	direct.flags = flags;
	cq = mlx5dv_create_cq(node.ctx, &attr, &direct);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static void refuse(uint16_t size, uint8_t format, uint32_t flags)
{
	errno = 0;
	check(!create(size, format, flags) && errno == EINVAL);
}

static void refusals(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 1 };
	struct mlx5dv_cq_init_attr direct = { .comp_mask = 1 << 20 };
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION };

	refuse(100, 0, 0);
	refuse(64, 0, MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD);
	refuse(128, 0, 1 << 5);
	refuse(64, MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM, 0);
	check(!mlx5dv_create_cq(node.ctx, &attr, &direct) && errno == EINVAL);
	check(!mlx5dv_create_cq(node.ctx, &attr, NULL) && errno == EINVAL);
	check(!mlx5dv_create_cq(NULL, &attr, &direct) && errno == EINVAL);
	check_eq(mlx5dv_query_device(node.ctx, &caps), 0);
	check(caps.cqe_comp_caps.max_num && caps.cqe_comp_caps.supported_format == 7);
	check((caps.flags & MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP) &&
	      (caps.flags & MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD));
}

static void open_end(struct end *end, struct ibv_cq *send, struct ibv_cq *recv)
{
	struct ibv_qp_init_attr init = { .send_cq = send,
					 .recv_cq = recv,
					 .cap = node.attr.cap,
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	struct node on = node;
	struct address self;

	end->cq[0] = send;
	end->cq[1] = recv;
	end->qp = on.qp = ibv_create_qp(node.pd, &init);
	check(end->qp);
	node_address(&on, &self);
	node_connect(&on, &self);
}

static void close_end(struct end *end)
{
	check_eq(ibv_destroy_qp(end->qp), 0);
	check_eq(ibv_destroy_cq(end->cq[0]), 0);
	if (end->cq[1] != end->cq[0])
		check_eq(ibv_destroy_cq(end->cq[1]), 0);
}

/* n messages of several lengths to itself, with one doorbell. */
static void send_burst(struct ibv_qp *qp, uint32_t n)
{
	struct ibv_sge sge[BURST];
	struct ibv_send_wr wr[BURST] = { 0 }, *bad;
	struct ibv_recv_wr recv = { .num_sge = 1 }, *bad_recv;

	for (uint32_t i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)node.buf, 64, node.mr->lkey };
		recv.wr_id = 1000 + i;
		recv.sg_list = &sge[i];
		check_eq(ibv_post_recv(qp, &recv, &bad_recv), 0);
	}
	for (uint32_t i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)node.buf + 128, 8 + i, node.mr->lkey };
		wr[i] = (struct ibv_send_wr){ .wr_id = i,
					      .next = i + 1 < n ? &wr[i + 1] : NULL,
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .opcode = IBV_WR_SEND };
	}
	check_eq(ibv_post_send(qp, wr, &bad), 0);
}

/* Both sides of every message, each side in order. */
static void poll_burst(struct end *end, uint32_t n)
{
	uint32_t sent = 0, received = 0;
	struct ibv_wc wc;

	while (sent < n || received < n) {
		check(cq_wait(end->cq[sent == n], &wc, PATIENCE_MS));
		check_eq(wc.status, IBV_WC_SUCCESS);
		check_eq(wc.qp_num, end->qp->qp_num);
		if (wc.opcode == IBV_WC_RECV) {
			check_eq(wc.wr_id, 1000 + received);
			check_eq(wc.byte_len, 8 + received);
			received++;
		} else {
			check_eq(wc.opcode, IBV_WC_SEND);
			check_eq(wc.wr_id, sent);
			sent++;
		}
	}
	for (int i = 0; i < 2; i++)
		check_eq(ibv_poll_cq(end->cq[i], 1, &wc), 0);
}

/* --- the program reads the ring itself ----------------------------------------------------------- */

struct mini {
	__be32 word;
	__be32 byte_cnt;
};

static char *at(const struct mlx5dv_cq *cq, uint32_t index)
{
	return (char *)cq->buf + (size_t)(index & (cq->cqe_cnt - 1)) * cq->cqe_size + cq->cqe_size -
	       64;
}

/* One completion, or all of an array: their number. Checks lengths of receives and counters of sends. */
static uint32_t take(struct direct_cq *cq, uint32_t *sent, uint32_t *received)
{
	struct mlx5_cqe64 *cqe = (void *)at(&cq->dv, cq->ci);
	uint32_t n = 1;
	uint8_t op_own;

	do
		op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);
	while (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != !!(cq->ci & cq->dv.cqe_cnt));
	if (mlx5dv_get_cqe_format(cqe) == 3) {
		n = be32toh(cqe->byte_cnt);
		check(n > 1 && n <= 2 * BURST);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct mini *mini =
			(struct mini *)at(&cq->dv, cq->ci + (i < 8 ? 1 : i & ~7u)) + i % 8;
		__be32 len = n > 1 ? mini->byte_cnt : cqe->byte_cnt;

		if (mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_REQ) {
			check_eq(n > 1 ? be32toh(mini->word) >> 16 : be16toh(cqe->wqe_counter),
				 *sent % BURST);
			++*sent;
		} else {
			check_eq(mlx5dv_get_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
			check_eq(be32toh(len), 8 + *received % BURST);
			++*received;
		}
	}
	/* What an array left in the entries must not look like a CQE of the next round. */
	for (uint32_t i = 0; n > 1 && i < n; i++)
		at(&cq->dv, cq->ci + i)[63] = (char)(MLX5_CQE_INVALID << 4);
	cq->ci += n;
	__atomic_store_n(&cq->dv.dbrec[0], htobe32(cq->ci & 0xffffff), __ATOMIC_RELEASE);
	return n;
}

static void by_hand(uint16_t size, uint8_t format)
{
	uint32_t sent = 0, received = 0, arrays = 0;
	struct node on = node;
	struct direct_cq cq[2];
	struct address self;
	struct end end;

	open_end(&end, create(size, format, 0), create(size, format, 0));
	for (int i = 0; i < 2; i++) {
		direct_cq_open(&cq[i], end.cq[i]);
		check_eq(cq[i].dv.cqe_cnt, CQES);
		check_eq(cq[i].dv.cqe_size, size);
	}
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		send_burst(end.qp, BURST);
		for (uint32_t n = 0, got; n < 2 * BURST; n += got) {
			got = take(&cq[n >= BURST], &sent, &received);
			arrays += got > 1;
		}
		check_eq(sent, i * BURST);
		check_eq(received, i * BURST);
		/* libibverbs has not seen these completions: begin anew. */
		check_eq(qp_set_state(end.qp, IBV_QPS_RESET), 0);
		on.qp = end.qp;
		node_address(&on, &self);
		node_connect(&on, &self);
	}
	/* libibverbs does not know how far the program is. */
	check_eq(ibv_resize_cq(end.cq[0], 4 * CQES), format ? EINVAL : 0);
	/* One array for each side of each burst. */
	check_eq(arrays, format ? 2 * ROUNDS : 0);
	close_end(&end);
}

/* One CQ, where sends and receives take turns, and one for each. */
static void ring(uint16_t size, uint8_t format, uint32_t flags, bool two)
{
	struct end end;

	end.cq[0] = create(size, format, flags);
	open_end(&end, end.cq[0], two ? create(size, format, flags) : end.cq[0]);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t n = i % BURST + 1;

		send_burst(end.qp, n);
		poll_burst(&end, n);
	}
	check_eq(ibv_resize_cq(end.cq[0], 4 * CQES), 0);
	send_burst(end.qp, BURST);
	poll_burst(&end, BURST);
	close_end(&end);
}

/* Rings are replaced with completions in them, whole arrays and the rest of one. */
static void resized(uint16_t size, uint8_t format)
{
	struct ibv_wc wc;
	struct end end;

	open_end(&end, create(size, format, 0), create(size, format, 0));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t left[2] = { BURST, BURST }, next[2] = { 0, 1000 };

		send_burst(end.qp, BURST);
		for (uint32_t k = 0; k < 2 * BURST; k++) {
			uint32_t which = left[0] ? 0 : 1;

			if (k % BURST == i % BURST) {
				int cqes = i % 3 ? (i % 3) * CQES * 2 - 1 : CQES - 1;

				check_eq(ibv_resize_cq(end.cq[0], cqes), 0);
				check_eq(ibv_resize_cq(end.cq[1], cqes), 0);
				if (left[which] > 2)
					check_eq(ibv_resize_cq(end.cq[which], 1), EINVAL);
			}
			check_eq(ibv_poll_cq(end.cq[which], 1, &wc), 1);
			check_eq(wc.status, IBV_WC_SUCCESS);
			check_eq(wc.wr_id, next[which]++);
			if (which)
				check_eq(wc.byte_len, 8 + wc.wr_id - 1000);
			left[which]--;
		}
		check_eq(ibv_poll_cq(end.cq[0], 1, &wc), 0);
		check_eq(ibv_poll_cq(end.cq[1], 1, &wc), 0);
	}
	close_end(&end);
}

/* The completions of a destroyed queue pair, whole arrays and the rest of one, are passed over. */
static void forgotten(uint16_t size, uint8_t format)
{
	struct end end, other;
	struct ibv_wc wc;

	open_end(&end, create(size, format, 0), create(size, format, 0));
	open_end(&other, end.cq[0], end.cq[1]);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		send_burst(other.qp, BURST);
		for (uint32_t k = 0; k < i % BURST; k++)
			check_eq(ibv_poll_cq(end.cq[i & 1], 1, &wc), 1);
		send_burst(end.qp, 5);
		check_eq(ibv_destroy_qp(other.qp), 0);
		poll_burst(&end, 5);
		open_end(&other, end.cq[0], end.cq[1]);
	}
	check_eq(ibv_destroy_qp(other.qp), 0);
	close_end(&end);
}

int main(void)
{
	static const uint8_t formats[] = { 0, MLX5DV_CQE_RES_FORMAT_HASH,
					   MLX5DV_CQE_RES_FORMAT_CSUM,
					   MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_cq *cq;

	node_open(&node, &attr);
	refusals();
	for (uint16_t size = 64; size <= 128; size = (uint16_t)(2 * size)) {
		for (size_t i = 0; i < sizeof(formats); i++) {
			ring(size, formats[i], 0, false);
			ring(size, formats[i], 0, true);
			forgotten(size, formats[i]);
			resized(size, formats[i]);
			by_hand(size, formats[i]);
		}
	}
	ring(128, 0, MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD, false);
	setenv("MLX5_CQE_SIZE", "100", 1);
	check(!ibv_create_cq(node.ctx, 10, NULL, NULL, 0) && errno == EINVAL);
	setenv("MLX5_CQE_SIZE", "128", 1);
	cq = ibv_create_cq(node.ctx, 10, NULL, NULL, 0);
	check(cq);
	check_eq(ibv_destroy_cq(cq), 0);
	node_close(&node);
	return 0;
}
