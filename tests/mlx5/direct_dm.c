// SPDX-License-Identifier: MIT
/*
 * Device memory: copies in words, its limits, zero-based registrations that requests of another process reach, and
 * what mlx5dv_init_obj() shows of it.
 */
#include "direct.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 64 << 10, OFFSET = 4096, REGISTERED = 32 << 10 };

static struct node node;
static uint64_t max_size;

static struct ibv_dm *alloc(size_t length, uint32_t log_align)
{
	struct ibv_alloc_dm_attr attr = { .length = length, .log_align_req = log_align };

	errno = 0;
	return ibv_alloc_dm(node.ctx, &attr);
}

static void limits(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64, .comp_mask = 1 };
	struct mlx5dv_alloc_dm_attr memic = { .type = MLX5DV_DM_TYPE_MEMIC };
	struct mlx5dv_alloc_dm_attr icm = { .type = MLX5DV_DM_TYPE_STEERING_SW_ICM };
	struct ibv_dm *dm, *rest;

	check(!alloc(max_size + 1, 0) && errno == ENOMEM);
	check(!alloc(0, 0) && errno == EINVAL);
	check(!alloc(64, 13) && errno == EINVAL);
	check(!ibv_alloc_dm(node.ctx, &attr) && errno == EINVAL);
	attr.comp_mask = 0;
	check(!mlx5dv_alloc_dm(node.ctx, &attr, &icm) && errno == EOPNOTSUPP);
	memic.comp_mask = 1;
	check(!mlx5dv_alloc_dm(node.ctx, &attr, &memic) && errno == EINVAL);
	memic.comp_mask = 0;
	dm = mlx5dv_alloc_dm(node.ctx, &attr, &memic);
	rest = alloc(max_size - 64, 6);
	check(dm && rest);
	check(!alloc(4, 0) && errno == ENOMEM);
	check_eq(ibv_free_dm(dm), 0);
	check_eq(ibv_free_dm(rest), 0);
	dm = alloc(max_size, 0);
	check(dm);
	check_eq(ibv_free_dm(dm), 0);
}

static void copies(void)
{
	struct mlx5dv_dm dv = { .comp_mask = MLX5DV_DM_MASK_REMOTE_VA };
	struct mlx5dv_obj obj = { .dm = { .out = &dv } };
	struct ibv_dm *dm = alloc(LENGTH, 12);
	uint32_t word = 0x11223344;

	check(dm);
	pattern_fill(node.buf, LENGTH, 5);
	check_eq(ibv_memcpy_to_dm(dm, 0, node.buf, LENGTH), 0);
	memset(node.buf, 0, LENGTH);
	check_eq(ibv_memcpy_from_dm(node.buf, dm, 0, LENGTH), 0);
	check_eq(pattern_check(node.buf, LENGTH, 5), LENGTH);
	check_eq(ibv_memcpy_to_dm(dm, 2, node.buf, 4), EINVAL);
	check_eq(ibv_memcpy_to_dm(dm, 4, node.buf, 3), EINVAL);
	check_eq(ibv_memcpy_to_dm(dm, LENGTH, node.buf, 4), EFAULT);
	check_eq(ibv_memcpy_from_dm(node.buf, dm, LENGTH - 4, 8), EFAULT);
	check_eq(ibv_memcpy_from_dm(node.buf, dm, UINT64_MAX - 3, 8), EFAULT);
	obj.dm.in = dm;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM), 0);
	check(dv.buf && dv.length == LENGTH && dv.comp_mask == MLX5DV_DM_MASK_REMOTE_VA);
	check_eq((uintptr_t)dv.buf % 4096, 0);
	check(!memcmp(dv.buf, node.buf, LENGTH));
	*(volatile uint32_t *)dv.buf = word;
	check_eq(ibv_memcpy_from_dm(&word, dm, 0, 4), 0);
	check_eq(word, 0x11223344);
	check_eq(ibv_free_dm(dm), 0);
}

static void registrations(void)
{
	struct ibv_dm *dm = alloc(LENGTH, 0);
	struct ibv_mr *mr;

	check(dm);
	check(!ibv_reg_dm_mr(node.pd, dm, 0, LENGTH, ACCESS_ALL) && errno == EINVAL);
	check(!ibv_reg_dm_mr(node.pd, dm, 4, LENGTH, ACCESS_ALL | IBV_ACCESS_ZERO_BASED) &&
	      errno == EINVAL);
	check(!ibv_reg_dm_mr(node.pd, NULL, 0, LENGTH, IBV_ACCESS_ZERO_BASED) && errno == EINVAL);
	mr = ibv_reg_dm_mr(node.pd, dm, LENGTH, 0,
			   IBV_ACCESS_ZERO_BASED); /* empty, as the kernel takes it */
	check(mr);
	check_eq(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_dm_mr(node.pd, dm, 4, LENGTH - 4, ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	check(mr && mr->lkey);
	check_eq(ibv_free_dm(dm), EBUSY);
	check_eq(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, node.buf, 64, 0),
		 IBV_REREG_MR_ERR_INPUT);
	check_eq(ibv_dereg_mr(mr), 0);
	check_eq(ibv_free_dm(dm), 0);
}

/* --- two processes ------------------------------------------------------------------------------- */

static void target(int fd)
{
	struct address peer, own;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	uint64_t word = 1000;
	char done;

	dm = alloc(LENGTH, 6);
	check(dm);
	check_eq(ibv_memcpy_to_dm(dm, OFFSET + REGISTERED - 8, &word, 8), 0);
	mr = ibv_reg_dm_mr(node.pd, dm, OFFSET, REGISTERED, ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	check(mr);
	node_address(&node, &own);
	own.rkey = mr->rkey;
	own.addr = 0;
	msg_send(fd, &own, sizeof(own));
	msg_recv(fd, &peer, sizeof(peer));
	node_connect(&node, &peer);
	msg_send(fd, "r", 1);
	msg_recv(fd, &done, 1);
	check_eq(ibv_memcpy_from_dm(node.buf, dm, OFFSET, REGISTERED), 0);
	check_eq(pattern_check(node.buf, REGISTERED - 8, 9), REGISTERED - 8);
	memcpy(&word, node.buf + REGISTERED - 8, 8);
	check_eq(word, 1007);
	check_eq(ibv_dereg_mr(mr), 0);
	check_eq(ibv_free_dm(dm), 0);
}

/* Device memory here, too: what is written comes from it and what is read goes there. */
static void initiator(int fd)
{
	struct address peer, own;
	struct ibv_dm *dm = alloc(LENGTH, 6);
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	char ready;

	check(dm);
	mr = ibv_reg_dm_mr(node.pd, dm, 0, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
	check(mr);
	node_address(&node, &own);
	msg_recv(fd, &peer, sizeof(peer));
	msg_send(fd, &own, sizeof(own));
	node_connect(&node, &peer);
	msg_recv(fd, &ready, 1);
	pattern_fill(node.buf, REGISTERED, 9);
	check_eq(ibv_memcpy_to_dm(dm, 64, node.buf, REGISTERED), 0);
	for (int i = 0; i < 4; i++) {
		static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
							      IBV_WR_ATOMIC_FETCH_AND_ADD,
							      IBV_WR_RDMA_WRITE };

		wr.opcode = opcodes[i];
		wr.wr_id = (uint64_t)i;
		sge = (struct ibv_sge){ i == 0 ? 64 : 0, REGISTERED - 8, mr->lkey };
		wr.wr.rdma.rkey = peer.rkey;
		wr.wr.rdma.remote_addr = i < 3 ? 0 : 9;
		if (i == 2) {
			sge.length = 8;
			wr.wr.atomic.remote_addr = REGISTERED - 8;
			wr.wr.atomic.compare_add = 7;
			wr.wr.atomic.rkey = peer.rkey;
		}
		check_eq(ibv_post_send(node.qp, &wr, &bad), 0);
		/* The last reaches beyond the registration. */
		cq_expect(node.send_cq, (uint64_t)i,
			  i < 3 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
		check_eq(ibv_memcpy_from_dm(node.buf, dm, 0, REGISTERED), 0);
		if (i == 1)
			check_eq(pattern_check(node.buf, REGISTERED - 8, 9), REGISTERED - 8);
		if (i == 2)
			check_eq(*(uint64_t *)node.buf, 1000);
	}
	check_eq(ibv_dereg_mr(mr), 0);
	check_eq(ibv_free_dm(dm), 0);
	msg_send(fd, "d", 1);
}

int main(int argc, char **argv)
{
	struct ibv_device_attr_ex caps = { 0 };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	static struct ibv_dm *volatile abandoned; /* still reachable: no leak */
	struct ibv_dm *left;
	pid_t pid;
	int fd;

	node_open(&node, &attr);
	check_eq(ibv_query_device_ex(node.ctx, NULL, &caps), 0);
	max_size = caps.max_dm_size;
	check(max_size >= LENGTH);
	if (argc > 1) {
		target(ROLE_FD);
		node_close(&node);
		return 0;
	}
	limits();
	copies();
	registrations();
	pid = spawn_self("target", &fd);
	initiator(fd);
	spawn_wait(pid);
	/* What is left goes with the context, but for the program's own struct. */
	abandoned = alloc(max_size, 0);
	check(abandoned);
	node_close(&node);
	node_open(&node, &attr);
	left = alloc(max_size, 0);
	check(left);
	check_eq(ibv_free_dm(left), 0);
	node_close(&node);
	return 0;
}
