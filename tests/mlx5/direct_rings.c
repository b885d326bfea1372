// SPDX-License-Identifier: MIT
/*
 * Two processes that drive their mlx5 queues by hand. Every way to ring counts: doorbells of 8 bytes, and WQEs copied
 * into the BlueFlame register by stores of every width, of one block and of several, from two queues in turn. All kinds
 * of requests, receives and errors. And what mlx5dv_init_obj() says of each object.
 */
#include "direct.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PI_BLOCKS = 256, MESSAGE = 256, INLINE = 200, ROUNDS = 300 };

static struct node node;
static struct direct self;
static struct address peer;

static void open_node(int fd)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_send_wr = PI_BLOCKS / 4;
	attr.cap.max_inline_data = INLINE;
	attr.events = true;
	node_open(&node, &attr);
	node_meet(&node, fd, &peer);
	direct_open(&self, &node);
}

static void expect_done(void)
{
	struct mlx5_cqe64 cqe;

	direct_expect(&self.send, node.qp->qp_num, MLX5_CQE_REQ, &cqe);
	check_eq(be16toh(cqe.wqe_counter), self.last & 0xffff);
}

/* --- the initiator ------------------------------------------------------------------------------- */

/* A WRITE of inline data, which takes several blocks, read back; the register gets all of it. */
static void write_and_read(enum flame how, uint32_t seed)
{
	uint8_t data[INLINE];
	struct wqe wqe;

	pattern_fill(data, sizeof(data), seed);
	wqe_begin(&wqe, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, peer.addr, peer.rkey);
	wqe_put_inline(&wqe, data, sizeof(data));
	direct_post(&self, &wqe);
	check(direct_flame(&self, how));
	expect_done();
	memset(node.buf, 0, sizeof(data));
	wqe_begin(&wqe, MLX5_OPCODE_RDMA_READ, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, peer.addr, peer.rkey);
	wqe_put_data(&wqe, (uintptr_t)node.buf, sizeof(data), node.mr->lkey);
	direct_post(&self, &wqe);
	check(direct_flame(&self, how));
	expect_done();
	check_eq(pattern_check(node.buf, sizeof(data), seed), sizeof(data));
}

static void atomics(uint64_t rounds)
{
	uint64_t *old = (void *)node.buf;
	struct wqe wqe;

	for (uint64_t i = 0; i < rounds; i++) {
		wqe_begin(&wqe, MLX5_OPCODE_ATOMIC_FA, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		wqe_put_raddr(&wqe, peer.addr + 4096, peer.rkey);
		wqe_put_atomic(&wqe, 3, 0);
		wqe_put_data(&wqe, (uintptr_t)old, 8, node.mr->lkey);
		direct_post(&self, &wqe);
		direct_ring(&self);
		expect_done();
		check_eq(*old, 3 * i);
	}
}

/* Messages with immediate data, several WQEs to a ring. */
static void sends(int fd)
{
	uint32_t done = 0;
	char go;

	msg_recv(fd, &go, 1);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct wqe wqe;
		bool last = i % 4 == 3;

		pattern_fill(node.buf + i % 8 * MESSAGE, MESSAGE, i);
		wqe_begin(&wqe, MLX5_OPCODE_SEND_IMM, last ? MLX5_WQE_CTRL_CQ_UPDATE : 0,
			  htobe32(i));
		wqe_put_data(&wqe, (uintptr_t)node.buf + i % 8 * MESSAGE, MESSAGE, node.mr->lkey);
		direct_post(&self, &wqe);
		if (!last)
			continue;
		/* The register holds one WQE; the record says that there are more before it. */
		if (i % 8 == 7)
			check(direct_flame(&self, FLAME_16));
		else
			direct_ring(&self);
		expect_done();
		done++;
	}
	check_eq(done, ROUNDS / 4);
}

/* An error CQE for a bad key, and what was posted behind it is flushed. */
static void errors(void)
{
	struct wqe wqe;

	wqe_begin(&wqe, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, peer.addr, peer.rkey ^ 0x5500);
	wqe_put_data(&wqe, (uintptr_t)node.buf, 8, node.mr->lkey);
	direct_post(&self, &wqe);
	direct_post(&self, &wqe);
	check(direct_flame(&self, FLAME_8));
	direct_expect_error(&self.send, node.qp->qp_num, MLX5_CQE_REQ_ERR,
			    MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	direct_expect_error(&self.send, node.qp->qp_num, MLX5_CQE_REQ_ERR,
			    MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	check_eq(qp_get_state(node.qp), IBV_QPS_ERR);
}

/* Two queues ring the same register in turn, and both count, to the last. */
static void two_queues(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node n[2];
	struct direct d[2];
	struct address own;
	struct wqe wqe;

	for (int i = 0; i < 2; i++) {
		node_open(&n[i], &attr);
		node_address(&n[i], &own);
		node_connect(&n[i], &own);
		direct_open(&d[i], &n[i]);
	}
	check(d[0].dv.bf.reg && d[0].dv.bf.size == 256 && d[0].dv.sq.stride == 64);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct direct *at = &d[i & 1];
		struct node *on = at->node;
		struct mlx5_cqe64 cqe;

		memcpy(on->buf, &i, 4);
		wqe_begin(&wqe, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		wqe_put_raddr(&wqe, (uintptr_t)on->buf + 64, on->mr->rkey);
		wqe_put_data(&wqe, (uintptr_t)on->buf, 4, on->mr->lkey);
		direct_post(at, &wqe);
		if (!direct_flame(at, i % FLAMES))
			direct_ring(at);
		check(direct_poll(&at->send, &cqe));
		check_eq(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_REQ);
		check(!memcmp(on->buf + 64, &i, 4));
		check(!direct_poll(&d[0].send, &cqe) && !direct_poll(&d[1].send, &cqe));
	}
	for (int i = 0; i < 2; i++)
		node_close(&n[i]);
}

/* Datagrams to itself by the vector of an address handle. */
static void datagrams(void)
{
	struct node_attr attr = node_attr(IBV_QPT_UD);
	struct ibv_ah_attr ah_attr = { 0 };
	struct node n;
	struct direct d;
	struct ibv_ah *ah;
	struct wqe wqe;

	node_open(&n, &attr);
	node_connect(&n, NULL);
	direct_open(&d, &n);
	ah_attr_to(&ah_attr, &n.gid);
	ah = ibv_create_ah(n.pd, &ah_attr);
	check(ah);
	for (uint32_t i = 0; i < 50; i++) {
		struct mlx5_cqe64 cqe;

		direct_recv(&d, 4096, 40 + 64);
		pattern_fill(n.buf, 64, i);
		wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		wqe_put_av(&wqe, ah, n.qp->qp_num, TEST_QKEY);
		wqe_put_data(&wqe, (uintptr_t)n.buf, 64, n.mr->lkey);
		direct_post(&d, &wqe);
		check(direct_flame(&d, FLAME_8));
		direct_expect(&d.send, n.qp->qp_num, MLX5_CQE_REQ, &cqe);
		direct_expect(&d.recv, n.qp->qp_num, MLX5_CQE_RESP_SEND, &cqe);
		check_eq(be32toh(cqe.byte_cnt), 40 + 64);
		check_eq(pattern_check(n.buf + 4096 + 40, 64, i), 64);
	}
	check_eq(ibv_destroy_ah(ah), 0);
	node_close(&n);
}

/* A receive WQ shows its ring; an object or a type that is wrong changes nothing. */
static void objects(void)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 10, .max_sge = 2 };
	struct mlx5dv_rwq rwq = { .comp_mask = ~0ull };
	struct mlx5dv_obj obj = { .rwq = { .out = &rwq } };

	init.pd = node.pd;
	init.cq = node.recv_cq;
	obj.rwq.in = ibv_create_wq(node.ctx, &init);
	check(obj.rwq.in);
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ | MLX5DV_OBJ_AH), EINVAL);
	check(!rwq.buf && rwq.comp_mask == ~0ull);
	check_eq(mlx5dv_init_obj(&obj, 1 << 30), EOPNOTSUPP);
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ), 0);
	check(rwq.buf && rwq.dbrec && !rwq.comp_mask);
	check_eq(rwq.wqe_cnt, 16);
	check_eq(rwq.stride, 32);
	check_eq(ibv_destroy_wq(obj.rwq.in), 0);
}

static void initiator(int fd)
{
	open_node(fd);
	for (uint32_t i = 0; i < ROUNDS; i++)
		if (i % FLAMES != FLAME_64 || __builtin_cpu_supports("avx512f"))
			write_and_read(i % FLAMES, i);
	atomics(50);
	sends(fd);
	objects();
	errors();
}

/* --- the target ---------------------------------------------------------------------------------- */

static void target(int fd)
{
	struct pollfd event;
	struct ibv_cq *cq;
	void *context;

	open_node(fd);
	event = (struct pollfd){ node.channel->fd, POLLIN, 0 };
	for (uint32_t i = 0; i < 8; i++)
		direct_recv(&self, 8192 + i * MESSAGE, MESSAGE);
	direct_arm(&self.recv, false);
	msg_send(fd, "g", 1);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct mlx5_cqe64 cqe;

		if (!i) {
			check_eq(poll(&event, 1, PATIENCE_MS), 1);
			check_eq(ibv_get_cq_event(node.channel, &cq, &context), 0);
			check(cq == node.recv_cq);
			ibv_ack_cq_events(cq, 1);
		}
		direct_expect(&self.recv, node.qp->qp_num, MLX5_CQE_RESP_SEND_IMM, &cqe);
		check_eq(be32toh(cqe.imm_inval_pkey), i);
		check_eq(be32toh(cqe.byte_cnt), MESSAGE);
		check_eq(be16toh(cqe.wqe_counter), i);
		check_eq(pattern_check(node.buf + 8192 + i % 8 * MESSAGE, MESSAGE, i), MESSAGE);
		direct_recv(&self, 8192 + i % 8 * MESSAGE, MESSAGE);
	}
	check_eq(be64toh(htobe64(*(uint64_t *)(node.buf + 4096))), 150);
	msg_try_recv(fd, &(char){ 0 }, 1);
	node_close(&node);
}

int main(int argc, char **argv)
{
	pid_t pid;
	int fd;

	if (argc > 1) {
		target(ROLE_FD);
		return 0;
	}
	two_queues();
	datagrams();
	pid = spawn_self("target", &fd);
	initiator(fd);
	close(fd);
	spawn_wait(pid);
	node_close(&node);
	return 0;
}
