// SPDX-License-Identifier: MIT
/*
 * Two processes, one with a shared receive queue that it drives by hand: WQEs are taken from the head of the list, and
 * given back to its tail in another order than that in which they were used, so that links, not positions, decide. The
 * other one sends by BlueFlame and by doorbell in turns. In between the queue runs empty, and senders wait for it.
 */
#include "direct.h"

#include <endian.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 16, BATCH = 4, ROUNDS = 64, MESSAGE = 3000, SLOT = 4096 };

static struct node node;
static struct direct self;
static struct address peer;

static void open_node(int fd, bool shared)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.srq = shared;
	attr.cap.max_recv_wr = DEPTH - 1;
	attr.size = DEPTH * SLOT;
	attr.min_rnr_timer = 1;
	node_open(&node, &attr);
	node_meet(&node, fd, &peer);
	direct_open(&self, &node);
}

/* --- the queue by hand --------------------------------------------------------------------------- */

static struct mlx5dv_srq srq = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
static uint16_t head, tail, posted;

static struct mlx5_wqe_srq_next_seg *wqe_of(uint16_t index)
{
	return (void *)((uint8_t *)srq.buf + (size_t)index * srq.stride);
}

/* The WQE at the head gets the slot of its own number. */
static void post(void)
{
	struct mlx5_wqe_srq_next_seg *wqe = wqe_of(head);
	struct mlx5_wqe_data_seg *seg = (void *)(wqe + 1);

	mlx5dv_set_data_seg(seg, MESSAGE, node.mr->lkey, (uintptr_t)node.buf + head * SLOT);
	if (srq.stride > sizeof(*wqe) + sizeof(*seg))
		mlx5dv_set_data_seg(seg + 1, 0, 0x100, 0); /* the end */
	head = be16toh(wqe->next_wqe_index);
	__atomic_store_n(srq.dbrec, htobe32(++posted), __ATOMIC_RELEASE);
}

static void give_back(uint16_t index)
{
	wqe_of(tail)->next_wqe_index = htobe16(index);
	tail = index;
}

static void target(int fd)
{
	struct mlx5dv_obj obj = { .srq = { .out = &srq } };
	uint16_t used[BATCH];
	uint32_t moved = 0;

	open_node(fd, true);
	obj.srq.in = node.srq;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ), 0);
	check_eq(srq.tail, DEPTH - 1);
	head = (uint16_t)srq.head;
	tail = (uint16_t)srq.tail;
	msg_send(fd, "g", 1);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		for (uint32_t k = 0; k < BATCH; k++)
			post();
		for (uint32_t k = 0; k < BATCH; k++) {
			struct mlx5_cqe64 cqe;

			direct_expect(&self.recv, node.qp->qp_num, MLX5_CQE_RESP_SEND, &cqe);
			used[k] = be16toh(cqe.wqe_counter);
			check(used[k] < DEPTH);
			check_eq(be32toh(cqe.srqn_uidx) & 0xffffff, srq.srqn);
			check_eq(be32toh(cqe.byte_cnt), MESSAGE);
			check_eq(pattern_check(node.buf + used[k] * SLOT, MESSAGE, i * BATCH + k),
				 MESSAGE);
			moved += used[k] != (i * BATCH + k) % DEPTH;
		}
		for (uint32_t k = BATCH; k-- > 0;)
			give_back(used[k]);
	}
	check(moved > 0, "every WQE was used in the order of the ring");
	msg_try_recv(fd, &(char){ 0 }, 1);
	node_close(&node);
}

/* --- the sender ---------------------------------------------------------------------------------- */

static void sender(int fd)
{
	struct mlx5_cqe64 cqe;
	struct wqe wqe;
	char word;

	open_node(fd, false);
	msg_recv(fd, &word, 1);
	for (uint32_t i = 0; i < ROUNDS * BATCH; i++) {
		pattern_fill(node.buf, MESSAGE, i);
		wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		wqe_put_data(&wqe, (uintptr_t)node.buf, MESSAGE, node.mr->lkey);
		direct_post(&self, &wqe);
		if (i & 1)
			direct_ring(&self);
		else
			check(direct_flame(&self, i & 2 ? FLAME_8 : FLAME_16));
		direct_expect(&self.send, node.qp->qp_num, MLX5_CQE_REQ, &cqe);
		check_eq(be16toh(cqe.wqe_counter), self.last & 0xffff);
	}
	close(fd);
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
	pid = spawn_self("target", &fd);
	sender(fd);
	spawn_wait(pid);
	return 0;
}
