// SPDX-License-Identifier: MIT
/*
 * Queues that the program drives itself, by what mlx5dv_init_obj() shows: a WQE written into the ring and rung by a
 * store to the doorbell page, the CQE read from the ring, the CQ armed by a store. Numbers are those of the card.
 */
#include "common.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/mlx5dv.h>

static struct node a;
static struct mlx5dv_qp qp;
static struct mlx5dv_cq cq;
static uint32_t pi, ci;

/* Whether the next CQE is the program's. */
static struct mlx5_cqe64 *next_cqe(void)
{
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)cq.buf + (ci & (cq.cqe_cnt - 1));
	uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

	return op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == !!(ci & cq.cqe_cnt) ? cqe : NULL;
}

static struct mlx5_cqe64 *await_cqe(void)
{
	struct mlx5_cqe64 *cqe;

	while (!(cqe = next_cqe()))
		;
	cq.dbrec[0] = htobe32(++ci & 0xffffff);
	return cqe;
}

/* One RDMA write of 8 bytes, rung by a store of 8 bytes. */
static void write_direct(uint64_t from, uint64_t to)
{
	struct mlx5_wqe_ctrl_seg *ctrl =
		(void *)((char *)qp.sq.buf + (pi & (qp.sq.wqe_cnt - 1)) * qp.sq.stride);
	struct mlx5_wqe_raddr_seg *remote = (void *)(ctrl + 1);

	mlx5dv_set_ctrl_seg(ctrl, (uint16_t)pi, MLX5_OPCODE_RDMA_WRITE, 0, a.qp->qp_num,
			    MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
	remote->raddr = htobe64((uintptr_t)a.buf + to);
	remote->rkey = htobe32(a.mr->rkey);
	mlx5dv_set_data_seg((void *)(remote + 1), 8, a.mr->lkey, (uintptr_t)a.buf + from);
	pi++;
	__atomic_store_n(&qp.dbrec[1], htobe32(pi & 0xffff), __ATOMIC_RELEASE);
	*(volatile uint64_t *)((char *)qp.bf.reg + (pi & 1 ? 0 : 0x100)) = *(uint64_t *)ctrl;
}

static void rings(void)
{
	for (uint64_t i = 0; i < 500; i++) {
		struct mlx5_cqe64 *cqe;

		memcpy(a.buf, &i, 8);
		memset(a.buf + 64, 0xff, 8);
		write_direct(0, 64);
		cqe = await_cqe();
		check_eq(mlx5dv_get_cqe_opcode(cqe), MLX5_CQE_REQ);
		check_eq(be16toh(cqe->wqe_counter), i & 0xffff);
		check(!memcmp(a.buf, a.buf + 64, 8));
	}
}

/* The doorbell of the CQ: sequence and command with the index in the record, then the number behind it. */
static void arm_direct(void)
{
	static uint32_t sn;
	uint32_t word = (sn++ & 3) << 28 | (ci & 0xffffff);

	cq.dbrec[1] = htobe32(word);
	*(volatile uint64_t *)((char *)cq.cq_uar + 0x20) = htobe64((uint64_t)word << 32 | cq.cqn);
}

static void events(struct ibv_comp_channel *channel)
{
	struct pollfd fd = { channel->fd, POLLIN, 0 };
	struct ibv_cq *got;
	void *context;

	for (int i = 0; i < 50; i++) {
		arm_direct();
		check_eq(poll(&fd, 1, 0), 0);
		write_direct(0, 64);
		check_eq(poll(&fd, 1, PATIENCE_MS), 1);
		check_eq(ibv_get_cq_event(channel, &got, &context), 0);
		check(got == a.send_cq);
		ibv_ack_cq_events(got, 1);
		await_cqe();
	}
}

/* --- doorbells from a signal handler that interrupts the same doorbell --- */

enum { INTERRUPTIONS = 300 };

static volatile sig_atomic_t interruptions;

static void arm_in_handler(int sig)
{
	(void)sig;
	interruptions++;
	*(volatile uint64_t *)((char *)cq.cq_uar + 0x20) =
		htobe64((uint64_t)(ci & 0xffffff) << 32 | cq.cqn);
}

static void *interrupt(void *thread)
{
	while (interruptions < INTERRUPTIONS) {
		check_eq(pthread_kill(*(pthread_t *)thread, SIGUSR1), 0);
		sched_yield();
	}
	return NULL;
}

/* Where the card took the interrupted doorbell for finished, the handler would wait for the lock of its own thread. */
static void interrupted_arming(struct ibv_comp_channel *channel)
{
	struct sigaction action = { .sa_handler = arm_in_handler };
	pthread_t self = pthread_self(), other;
	struct ibv_cq *got;
	void *context;

	alarm(PATIENCE_MS / 1000);
	check_eq(sigaction(SIGUSR1, &action, NULL), 0);
	check_eq(pthread_create(&other, NULL, interrupt, &self), 0);
	while (interruptions < INTERRUPTIONS)
		check_eq(ibv_req_notify_cq(a.send_cq, 0), 0);
	check_eq(pthread_join(other, NULL), 0);
	alarm(0);
	/* However often it was armed: one event. */
	write_direct(0, 64);
	check_eq(ibv_get_cq_event(channel, &got, &context), 0);
	ibv_ack_cq_events(got, 1);
	await_cqe();
	check_eq(poll(&(struct pollfd){ channel->fd, POLLIN, 0 }, 1, 0), 0);
}

static void objects(void)
{
	struct mlx5dv_pd pd;
	struct mlx5dv_obj obj = { .qp = { a.qp, &qp },
				  .cq = { a.send_cq, &cq },
				  .pd = { a.pd, &pd } };

	check_eq(mlx5dv_init_obj(NULL, MLX5DV_OBJ_QP), EINVAL);
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_PD), 0);
	check(qp.sq.buf && qp.sq.wqe_cnt && qp.sq.stride == 64 && qp.dbrec && cq.buf && cq.dbrec);
	check(!(cq.cqe_cnt & (cq.cqe_cnt - 1)) && cq.cqe_size == 64 && cq.cqn);
	if (!qp.bf.reg)
		test_skip("stores to doorbell pages cannot be seen on this processor");
}

/* Two CQEs of a queue pair of verbs, of which the program has read none. */
static struct ibv_qp *leave_two(void)
{
	struct node b = a;
	struct address self;

	b.qp = node_create_qp(&b);
	check(b.qp, "%s", strerror(errno));
	node_address(&b, &self);
	node_connect(&b, &self);
	for (uint64_t i = 0; i < 2; i++)
		check_eq(node_rdma(&b, i, IBV_WR_RDMA_WRITE, 0, 8, &self, 64), 0);
	return b.qp;
}

/* The index of a CQ that was taken is the program's: what it has not read stays, whatever becomes of the rest. */
static void taken_cq(void)
{
	struct mlx5dv_obj obj = { .cq = { a.send_cq, &cq } };
	struct ibv_qp *other = leave_two();
	uint32_t number = other->qp_num;

	check_eq(ibv_destroy_qp(other), 0);
	check_eq(be32toh(cq.dbrec[0]), ci);
	for (int i = 0; i < 2; i++)
		check_eq(be32toh(await_cqe()->sop_drop_qpn) & 0xffffff, number);
	check(!next_cqe());
	other = leave_two();
	check_eq(ibv_resize_cq(a.send_cq, (int)cq.cqe_cnt * 2), 0);
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), 0);
	check_eq(be32toh(cq.dbrec[0]), ci);
	for (int i = 0; i < 2; i++)
		check_eq(be32toh(await_cqe()->sop_drop_qpn) & 0xffffff, other->qp_num);
	check(!next_cqe());
	check_eq(ibv_destroy_qp(other), 0);
}

/* In the error state a receive comes back, though no doorbell says that it was posted. */
static void receive_in_the_error_state(void)
{
	struct ibv_wc wc;

	check_eq(qp_set_state(a.qp, IBV_QPS_ERR), 0);
	mlx5dv_set_data_seg(qp.rq.buf, 8, a.mr->lkey, (uintptr_t)a.buf);
	__atomic_store_n(&qp.dbrec[0], htobe32(1), __ATOMIC_RELEASE);
	check(cq_wait(a.recv_cq, &wc, PATIENCE_MS));
	check_status(&wc, IBV_WC_WR_FLUSH_ERR);
}

static void memory(void)
{
	struct mlx5dv_devx_umem *umem, *other;
	struct mlx5dv_devx_uar *uar;

	umem = mlx5dv_devx_umem_reg(a.ctx, a.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	other = mlx5dv_devx_umem_reg(a.ctx, a.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	check(umem && other && umem->umem_id && umem->umem_id != other->umem_id);
	check_eq(mlx5dv_devx_umem_dereg(umem), 0);
	check_eq(mlx5dv_devx_umem_dereg(other), 0);
	check(!mlx5dv_devx_umem_reg(a.ctx, (void *)4096, 4096, 0) && errno == EFAULT);
	check(!mlx5dv_devx_umem_reg(a.ctx, a.buf, 0, 0) && errno == EINVAL);
	uar = mlx5dv_devx_alloc_uar(a.ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	check(uar && uar->page_id && (char *)uar->reg_addr == (char *)uar->base_addr + 0x800);
	*(volatile uint64_t *)uar->reg_addr = 0; /* names no queue */
	mlx5dv_devx_free_uar(uar);
	check(!mlx5dv_devx_alloc_uar(a.ctx, 0x100) && errno == EINVAL);
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;

	attr.events = true;
	node_open(&a, &attr);
	node_address(&a, &self);
	node_connect(&a, &self);
	objects();
	rings();
	events(a.channel);
	interrupted_arming(a.channel);
	memory();
	taken_cq();
	receive_in_the_error_state();
	node_close(&a);
	return 0;
}
