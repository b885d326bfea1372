// SPDX-License-Identifier: MIT
/*
 * Raw send and receive loops over RC, UC and UD, every opcode, one stride per WQE and packed WQEs of many sizes that wrap,
 * inline data: what arrives is what was sent, once, in order. Also between two processes, neither of which calls the
 * library while it runs.
 */
#include "raw.h"

#include <stdio.h>
#include <string.h>

static struct raw ra, rb;

static void open_pair(struct node *a, struct node *b, const struct node_attr *attr)
{
	node_pair(a, b, attr);
	raw_open(&ra, a);
	raw_open(&rb, b);
}

/* --- one stride per message ------------------------------------------------------------------------ */

static void send_loop(enum ibv_qp_type type)
{
	struct node_attr attr = node_attr(type);
	uint32_t grh = type == IBV_QPT_UD ? 40 : 0;
	struct node a, b;
	struct mlx4_cqe cqe;

	open_pair(&a, &b, &attr);
	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t len = 1 + i % 1000;
		struct raw_wqe wqe;

		pattern_fill(a.buf, len, i);
		memset(b.buf, 0, 2048);
		raw_recv(&rb, 0, 2048);
		raw_begin(&wqe, MLX4_OPCODE_SEND_IMM, MLX4_WQE_CTRL_CQ_UPDATE, htobe32(i));
		if (type == IBV_QPT_UD)
			raw_put_dgram(&wqe, &b.gid, b.qp->qp_num, TEST_QKEY);
		raw_put_data(&wqe, a.buf, len, a.mr->lkey);
		check(raw_post(&ra, &wqe));
		raw_ring(&ra);
		raw_expect(&ra.send, a.qp->qp_num, true, &cqe);
		check_eq(mlx4dv_get_cqe_opcode(&cqe), MLX4_OPCODE_SEND_IMM);
		check_eq(be16toh(cqe.wqe_index), i & 0xffff);
		raw_free(&ra, &cqe);
		raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
		check_eq(mlx4dv_get_cqe_opcode(&cqe), MLX4_RECV_OPCODE_SEND_IMM);
		check_eq(be32toh(cqe.immed_rss_invalid), i);
		check_eq(be32toh(cqe.byte_cnt), len + grh);
		check_eq(be16toh(cqe.wqe_index), i & 0xffff);
		check_eq(be32toh(cqe.g_mlpath_rqpn) >> 31, type == IBV_QPT_UD);
		if (type == IBV_QPT_UD)
			check_eq(be32toh(cqe.g_mlpath_rqpn) & 0xffffff, a.qp->qp_num);
		check_eq(pattern_check(b.buf + grh, len, i), len);
	}
	check(!raw_poll(&ra.send, &cqe));
	check(!raw_poll(&rb.recv, &cqe));
	node_close(&a);
	node_close(&b);
}

/* --- packed ---------------------------------------------------------------------------------------- */

/* WQEs of 1 to 15 blocks, inline and not, many rounds through the ring, several per bell. */
static void packed_loop(uint32_t sges)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct mlx4_cqe cqe;
	uint64_t seed = 7;
	struct node a, b;
	uint8_t data[900];

	attr.cap.max_send_sge = sges;
	attr.cap.max_recv_wr = 256;
	open_pair(&a, &b, &attr);
	check_eq(ra.dv.sq.wqe_shift, sges <= 2 ? 6 : sges <= 6 ? 7 : 8);
	for (uint32_t round = 0; round < 400; round++) {
		uint32_t posted = 0, lens[16];

		for (; posted < 16; posted++) {
			uint32_t len = 1 + next_random(&seed) % 800;
			struct raw_wqe wqe;

			lens[posted] = len;
			pattern_fill(data, len, round + posted);
			raw_begin(&wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE, 0);
			if (next_random(&seed) & 1) {
				raw_put_inline(&wqe, data, len);
			} else {
				/* One segment per 32 bytes, and an empty one. */
				raw_put_data(&wqe, NULL, 0, 0);
				memcpy(a.buf + posted * 1024, data, len);
				for (uint32_t at = 0; at < len; at += 32)
					raw_put_data(&wqe, a.buf + posted * 1024 + at,
						     len - at < 32 ? len - at : 32, a.mr->lkey);
			}
			if (!raw_post(&ra, &wqe))
				break;
			raw_recv(&rb, posted * 1024, 1024);
		}
		check(posted > 0);
		raw_ring(&ra);
		for (uint32_t i = 0; i < posted; i++) {
			raw_expect(&ra.send, a.qp->qp_num, true, &cqe);
			raw_free(&ra, &cqe);
			raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
			check_eq(be32toh(cqe.byte_cnt), lens[i]);
			check_eq(pattern_check(b.buf + i * 1024, lens[i], round + i), lens[i]);
		}
		check_eq(ra.sq_tail, ra.sq_head);
	}
	check(ra.sq_head > 4 * ra.dv.sq.wqe_cnt, "%u blocks", ra.sq_head);
	node_close(&a);
	node_close(&b);
}

/* --- opcodes --------------------------------------------------------------------------------------- */

static void one_sided(struct node *a, struct node *b)
{
	struct raw_wqe wqe;
	struct mlx4_cqe cqe;
	uint64_t word = 5;

	pattern_fill(a->buf, 3000, 1);
	raw_begin(&wqe, MLX4_OPCODE_RDMA_WRITE, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(&wqe, (uintptr_t)b->buf + 8192, b->mr->rkey);
	raw_put_data(&wqe, a->buf, 3000, a->mr->lkey);
	check(raw_post(&ra, &wqe));
	raw_begin(&wqe, MLX4_OPCODE_RDMA_READ, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(&wqe, (uintptr_t)b->buf + 8192, b->mr->rkey);
	raw_put_data(&wqe, a->buf + 16384, 3000, a->mr->lkey);
	((struct mlx4_wqe_ctrl_seg *)wqe.bytes)->fence_size = MLX4_WQE_CTRL_FENCE;
	check(raw_post(&ra, &wqe));
	memcpy(b->buf, &word, 8);
	raw_begin(&wqe, MLX4_OPCODE_ATOMIC_FA, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(&wqe, (uintptr_t)b->buf, b->mr->rkey);
	raw_put_atomic(&wqe, 10, 0);
	raw_put_data(&wqe, a->buf + 32768, 8, a->mr->lkey);
	check(raw_post(&ra, &wqe));
	raw_begin(&wqe, MLX4_OPCODE_ATOMIC_CS, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(&wqe, (uintptr_t)b->buf, b->mr->rkey);
	raw_put_atomic(&wqe, 99, 15);
	raw_put_data(&wqe, a->buf + 32776, 8, a->mr->lkey);
	check(raw_post(&ra, &wqe));
	raw_begin(&wqe, MLX4_OPCODE_NOP, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	check(raw_post(&ra, &wqe));
	raw_ring(&ra);
	for (int i = 0; i < 5; i++) {
		static const uint8_t opcodes[] = { MLX4_OPCODE_RDMA_WRITE, MLX4_OPCODE_RDMA_READ,
						   MLX4_OPCODE_ATOMIC_FA, MLX4_OPCODE_ATOMIC_CS,
						   MLX4_OPCODE_NOP };

		raw_expect(&ra.send, a->qp->qp_num, true, &cqe);
		check_eq(mlx4dv_get_cqe_opcode(&cqe), opcodes[i]);
		raw_free(&ra, &cqe);
	}
	check_eq(pattern_check(b->buf + 8192, 3000, 1), 3000);
	check_eq(pattern_check(a->buf + 16384, 3000, 1), 3000);
	memcpy(&word, a->buf + 32768, 8);
	check_eq(word, 5);
	memcpy(&word, a->buf + 32776, 8);
	check_eq(word, 15);
	memcpy(&word, b->buf, 8);
	check_eq(word, 99);
}

static void two_sided(struct node *a, struct node *b)
{
	struct ibv_mr *extra = ibv_reg_mr(b->pd, b->buf, 64, ACCESS_ALL);
	struct raw_wqe wqe;
	struct mlx4_cqe cqe;

	raw_recv(&rb, 0, 64);
	raw_begin(&wqe, MLX4_OPCODE_RDMA_WRITE_IMM, MLX4_WQE_CTRL_CQ_UPDATE, htobe32(77));
	raw_put_raddr(&wqe, (uintptr_t)b->buf + 4096, b->mr->rkey);
	raw_put_inline(&wqe, "immediate", 9);
	check(raw_post(&ra, &wqe));
	raw_ring(&ra);
	raw_expect(&ra.send, a->qp->qp_num, true, &cqe);
	raw_free(&ra, &cqe);
	raw_expect(&rb.recv, b->qp->qp_num, false, &cqe);
	check_eq(mlx4dv_get_cqe_opcode(&cqe), MLX4_RECV_OPCODE_RDMA_WRITE_IMM);
	check_eq(be32toh(cqe.immed_rss_invalid), 77);
	check(!memcmp(b->buf + 4096, "immediate", 9));

	raw_recv(&rb, 0, 64);
	raw_begin(&wqe, MLX4_OPCODE_SEND_INVAL, MLX4_WQE_CTRL_CQ_UPDATE, htobe32(extra->rkey));
	raw_put_data(&wqe, a->buf, 64, a->mr->lkey);
	check(raw_post(&ra, &wqe));
	raw_ring(&ra);
	raw_expect(&ra.send, a->qp->qp_num, true, &cqe);
	raw_free(&ra, &cqe);
	raw_expect(&rb.recv, b->qp->qp_num, false, &cqe);
	check_eq(mlx4dv_get_cqe_opcode(&cqe), MLX4_RECV_OPCODE_SEND_INVAL);
	check_eq(be32toh(cqe.immed_rss_invalid), extra->rkey);
	ibv_dereg_mr(extra);
}

static void local_invalidate(struct node *a)
{
	struct ibv_mr *extra = ibv_reg_mr(a->pd, a->buf, 64, ACCESS_ALL);
	struct mlx4_wqe_local_inval_seg *seg;
	struct raw_wqe wqe;
	struct mlx4_cqe cqe;

	raw_begin(&wqe, MLX4_OPCODE_LOCAL_INVAL, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	seg = (void *)(wqe.bytes + wqe.size);
	wqe.size += sizeof(*seg);
	seg->mem_key = htobe32(extra->lkey);
	check(raw_post(&ra, &wqe));
	raw_begin(&wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_data(&wqe, a->buf, 64, extra->lkey);
	check(raw_post(&ra, &wqe));
	raw_ring(&ra);
	raw_expect(&ra.send, a->qp->qp_num, true, &cqe);
	check_eq(mlx4dv_get_cqe_opcode(&cqe), MLX4_OPCODE_LOCAL_INVAL);
	raw_expect_error(&ra.send, a->qp->qp_num, MLX4_CQE_SYNDROME_LOCAL_PROT_ERR);
	ibv_dereg_mr(extra);
}

static void opcodes(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;

	open_pair(&a, &b, &attr);
	one_sided(&a, &b);
	two_sided(&a, &b);
	local_invalidate(&a);
	node_close(&a);
	node_close(&b);
}

/* --- two processes --------------------------------------------------------------------------------- */

enum { ROUNDS = 500 };

/* A ball goes to and fro; both sides look only at their rings. */
static void play(struct node *node, struct raw *raw, bool first)
{
	struct mlx4_cqe cqe;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		if (first) {
			pattern_fill(node->buf, 256, i);
			raw_recv(raw, 1024, 256);
			raw_send(raw, 0, 256, MLX4_WQE_CTRL_CQ_UPDATE);
			raw_ring(raw);
			raw_expect(&raw->send, node->qp->qp_num, true, &cqe);
			raw_free(raw, &cqe);
			raw_expect(&raw->recv, node->qp->qp_num, false, &cqe);
			check_eq(pattern_check(node->buf + 1024, 256, i + 1), 256);
		} else {
			raw_expect(&raw->recv, node->qp->qp_num, false, &cqe);
			check_eq(pattern_check(node->buf + 1024, 256, i), 256);
			raw_recv(raw, 1024, 256);
			pattern_fill(node->buf, 256, i + 1);
			raw_send(raw, 0, 256, MLX4_WQE_CTRL_CQ_UPDATE);
			raw_ring(raw);
			raw_expect(&raw->send, node->qp->qp_num, true, &cqe);
			raw_free(raw, &cqe);
		}
	}
}

static void peer(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address other;
	struct node node;
	char go = 1;

	node_open(&node, &attr);
	raw_open(&ra, &node);
	node_meet(&node, ROLE_FD, &other);
	raw_recv(&ra, 1024, 256);
	msg_send(ROLE_FD, &go, 1);
	play(&node, &ra, false);
	msg_recv(ROLE_FD, &go, 1);
	node_close(&node);
}

static void two_processes(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address other;
	struct node node;
	char go;
	int fd;
	pid_t pid = spawn_self("peer", &fd);

	node_open(&node, &attr);
	raw_open(&ra, &node);
	node_meet(&node, fd, &other);
	msg_recv(fd, &go, 1);
	play(&node, &ra, true);
	msg_send(fd, &go, 1);
	spawn_wait(pid);
	node_close(&node);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "peer")) {
		peer();
		return 0;
	}
	send_loop(IBV_QPT_RC);
	send_loop(IBV_QPT_UC);
	send_loop(IBV_QPT_UD);
	packed_loop(1);
	packed_loop(4);
	packed_loop(8);
	opcodes();
	two_processes();
	return 0;
}
