// SPDX-License-Identifier: MIT
/*
 * Memory of rings and records from a parent domain's allocators, of every kind of queue: what is asked for, and with
 * which type; memory that is refused, and memory that is left to the library. The queues work, and all is given back.
 */
#include "direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 6 };
enum mode { OWN, DEFAULT, NONE, NO_RECORDS, NO_RINGS } mode;

static int count[KINDS], freed[KINDS];
static struct ibv_pd *parent;

static int kind(uint64_t type)
{
	check_eq(type >> 32, RDMA_DRIVER_MLX5);
	check((type & 0xffffffff) >= 1 && (type & 0xffffffff) < KINDS);
	return (int)(type & 0xffffffff);
}

static void *own_alloc(struct ibv_pd *pd, void *context, size_t size, size_t align, uint64_t type)
{
	void *ptr = NULL;

	check(pd == parent && context == &count && align >= 8 && size);
	if (mode == NONE)
		return NULL;
	if (mode == (type == MLX5DV_RES_TYPE_DBR ? NO_RECORDS : NO_RINGS))
		return NULL;
	if (mode == DEFAULT)
		return IBV_ALLOCATOR_USE_DEFAULT;
	count[kind(type)]++;
	check(!posix_memalign(&ptr, align, size));
	memset(ptr, 0x77, size);
	return ptr;
}

static void own_free(struct ibv_pd *pd, void *context, void *ptr, uint64_t type)
{
	check(pd == parent && context == &count);
	freed[kind(type)]++;
	free(ptr);
}

static void queues(struct node *node, bool works)
{
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 64,
					       .wc_flags = IBV_WC_STANDARD_FLAGS,
					       .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					       .parent_domain = parent };
	struct mlx5dv_cq_init_attr direct = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
					      .cqe_size = 128 };
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_wq_init_attr wq_attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1, .pd = parent
	};
	struct ibv_cq_ex *cq = mlx5dv_create_cq(node->ctx, &cq_attr, &direct);
	struct ibv_srq *srq = ibv_create_srq(parent, &srq_attr);
	struct node on = *node;
	struct address self;
	struct ibv_wq *wq;

	check_eq(!!cq, works);
	check_eq(!!srq, works);
	on.pd = parent;
	on.qp = node_create_qp(&on);
	check_eq(!!on.qp, works);
	wq_attr.cq = node->recv_cq;
	wq = ibv_create_wq(node->ctx, &wq_attr);
	check_eq(!!wq, works);
	if (!works)
		return;
	check_eq(ibv_destroy_qp(on.qp), 0);
	on.send_cq = on.recv_cq = ibv_cq_ex_to_cq(cq);
	on.qp = node_create_qp(&on);
	check(on.qp);
	node_address(&on, &self);
	node_connect(&on, &self);
	check_eq(node_recv(&on, 2, 64, 8), 0);
	memcpy(node->buf, "12345678", 8);
	check_eq(node_send(&on, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	cq_expect(on.send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(on.send_cq, 1, IBV_WC_SUCCESS);
	check(!memcmp(node->buf + 64, "12345678", 8));
	check_eq(ibv_dealloc_pd(parent), EBUSY);
	check_eq(ibv_destroy_qp(on.qp), 0);
	check_eq(ibv_destroy_wq(wq), 0);
	check_eq(ibv_destroy_srq(srq), 0);
	check_eq(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

int main(void)
{
	struct ibv_parent_domain_init_attr attr = { .comp_mask =
							    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
							    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
						    .alloc = own_alloc,
						    .free = own_free,
						    .pd_context = &count };
	struct node_attr node_is = node_attr(IBV_QPT_RC);
	struct node node;

	node_open(&node, &node_is);
	attr.pd = node.pd;
	parent = ibv_alloc_parent_domain(node.ctx, &attr);
	check(parent);
	mode = NONE;
	queues(&node, false);
	/* The first of two is there when the second is refused: it is given back. */
	for (mode = NO_RECORDS; mode <= NO_RINGS; mode++) {
		queues(&node, false);
		for (int i = 1; i < KINDS; i++)
			check_eq(count[i], freed[i]);
	}
	memset(count, 0, sizeof(count));
	memset(freed, 0, sizeof(freed));
	mode = DEFAULT;
	queues(&node, true);
	for (int i = 1; i < KINDS; i++)
		check_eq(count[i] + freed[i], 0);
	mode = OWN;
	queues(&node, true);
	for (int i = 1; i < KINDS; i++) {
		check(count[i], "type %d", i);
		check_eq(count[i], freed[i]);
	}
	check_eq(ibv_dealloc_pd(parent), 0);
	node_close(&node);
	return 0;
}
