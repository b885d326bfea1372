// SPDX-License-Identifier: MIT
/*
 * What mlx4dv_init_obj() and its three companions promise: combinations, comp_mask, refusals that change nothing, layout
 * of the rings, the program's own allocators, a CQ that belongs to the program.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raw.h"

static struct node node;

static int open_node(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.srq = *state != NULL;
	node_open(&node, &attr);
	return 0;
}

static int close_node(void **state)
{
	node_close(&node);
	return 0;
}

static bool is_filled(const void *p, size_t n, uint8_t byte)
{
	for (size_t i = 0; i < n; i++)
		if (((const uint8_t *)p)[i] != byte)
			return false;
	return true;
}

/* Rings are whole pages, and programs are told so: some map or clear all of them. */
static size_t whole_pages(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) & ~(page - 1);
}

/* --- mlx4dv_init_obj ------------------------------------------------------------------------------- */

static void nulls_are_refused(void **state)
{
	struct mlx4dv_obj obj = { 0 };
	struct mlx4dv_qp qp;
	struct mlx4dv_cq cq;

	memset(&qp, 0xee, sizeof(qp));
	memset(&cq, 0xee, sizeof(cq));
	assert_int_equal(mlx4dv_init_obj(NULL, MLX4DV_OBJ_QP), EINVAL);
	for (uint64_t type = 1; type <= MLX4DV_OBJ_RWQ; type <<= 1)
		assert_int_equal(mlx4dv_init_obj(&obj, type), EINVAL);
	obj.qp.in = node.qp;
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), EINVAL);
	/* One bad part, and none is written. */
	obj.qp.out = &qp;
	obj.cq.out = &cq;
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP | MLX4DV_OBJ_CQ), EINVAL);
	assert_true(is_filled(&qp, sizeof(qp), 0xee));
	assert_true(is_filled(&cq, sizeof(cq), 0xee));
}

static void other_bits_are_ignored(void **state)
{
	struct mlx4dv_qp qp;
	struct mlx4dv_obj obj = { .qp = { node.qp, &qp } };

	assert_int_equal(mlx4dv_init_obj(&obj, 0), 0);
	assert_int_equal(mlx4dv_init_obj(&obj, 1ull << 40), 0);
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP | 1ull << 63), 0);
	assert_int_equal(be32toh(qp.doorbell_qpn), node.qp->qp_num << 8);
}

static void foreign_devices_are_refused(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct mlx4dv_cq out;
	struct mlx4dv_obj obj = { .cq = { cq, &out } };
	struct mlx4dv_context attrs = { 0 };
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC };
	uint8_t range = 2;

	assert_string_equal(ibv_get_device_name(list[0]), "mlx5_0");
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_CQ), EOPNOTSUPP);
	assert_int_equal(mlx4dv_query_device(ctx, &attrs), EOPNOTSUPP);
	assert_int_equal(mlx4dv_set_context_attr(ctx, MLX4DV_SET_CTX_ATTR_LOG_WQS_RANGE_SZ, &range),
			 EOPNOTSUPP);
	errno = 0;
	assert_null(mlx4dv_create_qp(ctx, &init, NULL));
	assert_int_equal(errno, EOPNOTSUPP);
	ibv_destroy_cq(cq);
	ibv_close_device(ctx);
	ibv_free_device_list(list);
}

static void qp_shows_both_rings(void **state)
{
	struct mlx4dv_qp qp = { .comp_mask = MLX4DV_QP_MASK_UAR_MMAP_OFFSET | 1ull << 50 };
	struct mlx4dv_obj obj = { .qp = { node.qp, &qp } };
	size_t sq, rq;

	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), 0);
	assert_int_equal(qp.comp_mask, 0);
	assert_non_null(qp.rdb);
	assert_int_equal((uintptr_t)qp.sdb % 4096, MLX4_SEND_DOORBELL);
	assert_true(qp.sq.wqe_shift >= 6 && qp.rq.wqe_shift >= 4);
	sq = (size_t)qp.sq.wqe_cnt << qp.sq.wqe_shift;
	rq = (size_t)qp.rq.wqe_cnt << qp.rq.wqe_shift;
	assert_int_equal(qp.buf.length, whole_pages(sq + rq));
	/* 2 KiB and one WQE more than can be posted. */
	assert_true(qp.sq.wqe_cnt - 64 >= (2048u >> qp.sq.wqe_shift) + 1);
	/* The larger stride comes first. */
	assert_int_equal(qp.sq.offset, 0);
	assert_int_equal(qp.rq.offset, sq);
	/* What the program stored to a doorbell is not there to be read. */
	assert_int_equal(*qp.sdb, 0);
}

static void larger_receive_stride_comes_first(void **state)
{
	struct ibv_qp_init_attr init = {
		.send_cq = node.send_cq,
		.recv_cq = node.recv_cq,
		.qp_type = IBV_QPT_UC,
		.cap = { .max_send_wr = 10,
			 .max_recv_wr = 10,
			 .max_send_sge = 1,
			 .max_recv_sge = 16 },
	};
	struct ibv_qp *made = ibv_create_qp(node.pd, &init);
	struct mlx4dv_qp qp;
	struct mlx4dv_obj obj = { .qp = { made, &qp } };

	assert_non_null(made);
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), 0);
	assert_int_equal(qp.rq.wqe_shift, 8);
	assert_int_equal(qp.rq.offset, 0);
	assert_int_equal(qp.rq.wqe_cnt, 16);
	assert_int_equal(qp.sq.offset, 16 << 8);
	ibv_destroy_qp(made);
}

/*
 * Queues that were not asked for: the hardware wants at least one receive, and reads ahead in the send ring, as much of
 * which the program may use as is left over.
 */
static void smallest_queues(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (int i = 0; i < 3; i++) {
		struct ibv_qp_init_attr init = { .send_cq = node.send_cq,
						 .recv_cq = node.recv_cq,
						 .qp_type = types[i] };
		struct ibv_qp *made = ibv_create_qp(node.pd, &init);
		struct mlx4dv_qp qp;
		struct mlx4dv_obj obj = { .qp = { made, &qp } };

		assert_non_null(made);
		assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), 0);
		assert_int_equal(qp.sq.wqe_shift, 6);
		assert_int_equal(qp.sq.wqe_cnt, 64);
		assert_int_equal(qp.rq.wqe_cnt, 1);
		assert_int_equal(qp.rq.wqe_shift, 4);
		assert_non_null(qp.rdb);
		assert_int_equal(qp.rq.offset, 64 * 64);
		assert_int_equal(qp.buf.length, whole_pages(64 * 64 + 16));
		assert_int_equal(init.cap.max_send_wr, 64 - 2048 / 64 - 1);
		assert_int_equal(init.cap.max_recv_wr, 1);
		assert_int_equal(init.cap.max_recv_sge, 1);
		ibv_destroy_qp(made);
	}
}

/* From RESET to INIT every WQE becomes the program's, and is seen as not posted. */
static void send_ring_is_preset(void **state)
{
	struct mlx4dv_qp qp;
	struct mlx4dv_obj obj = { .qp = { node.qp, &qp } };

	node_to_init(&node);
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), 0);
	for (uint32_t i = 0; i < qp.sq.wqe_cnt; i++) {
		uint32_t *line = (void *)((char *)qp.buf.buf + qp.sq.offset +
					  ((size_t)i << qp.sq.wqe_shift));

		assert_true(be32toh(line[0]) >> 31);
		for (uint32_t at = 64; at < 1u << qp.sq.wqe_shift; at += 64)
			assert_int_equal(line[at / 4], UINT32_MAX);
	}
}

static void cq_shows_its_ring(void **state)
{
	struct mlx4dv_cq cq = { .comp_mask = 0, .cq_uar = (void *)0x5 };
	struct mlx4dv_obj obj = { .cq = { node.send_cq, &cq } };

	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_CQ), 0);
	assert_int_equal(cq.comp_mask, 0);
	assert_ptr_equal(cq.cq_uar, (void *)0x5); /* nobody asked */
	assert_int_equal(cq.cqe_cnt, node.send_cq->cqe + 1);
	assert_true(cq.cqe_size == 32 || cq.cqe_size == 64);
	assert_int_equal(cq.buf.length, whole_pages(cq.cqe_cnt * (size_t)cq.cqe_size));
	assert_int_equal(cq.arm_sn, 1);
	assert_ptr_equal(cq.arm_db, cq.set_ci_db + 1);
	for (uint32_t i = 0; i < cq.cqe_cnt; i++)
		assert_int_equal(((uint8_t *)cq.buf.buf)[(i + 1) * (size_t)cq.cqe_size - 1] &
					 MLX4_CQE_OWNER_MASK,
				 MLX4_CQE_OWNER_MASK);
	cq.comp_mask = MLX4DV_CQ_MASK_UAR | 1ull << 9;
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_CQ), 0);
	assert_int_equal(cq.comp_mask, MLX4DV_CQ_MASK_UAR);
	assert_int_equal((uintptr_t)cq.cq_uar % 4096, 0);
}

static void all_at_once(void **state)
{
	struct mlx4dv_qp qp;
	struct mlx4dv_cq cq = { 0 };
	struct mlx4dv_srq srq;
	struct mlx4dv_obj obj = { .qp = { node.qp, &qp },
				  .cq = { node.recv_cq, &cq },
				  .srq = { node.srq, &srq } };

	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP | MLX4DV_OBJ_CQ | MLX4DV_OBJ_SRQ), 0);
	assert_null(qp.rdb); /* receives are the SRQ's */
	assert_int_equal(qp.rq.wqe_cnt, 0);
	assert_int_equal(srq.head, 0);
	assert_int_equal(srq.buf.length, whole_pages((size_t)(srq.tail + 1) << srq.wqe_shift));
	assert_true(srq.wqe_shift >= 5);
	assert_non_null(srq.db);
	assert_int_equal(srq.comp_mask, 0);
}

/* A QP that goes takes its CQEs with it, but not from a CQ that the program reads itself. */
static void taken_cq_is_left_alone(void **state)
{
	for (int taken = 0; taken < 2; taken++) {
		struct node_attr attr = node_attr(IBV_QPT_RC);
		struct mlx4_cqe cqe;
		struct raw_cq cq;
		struct ibv_wc wc;
		struct node a, b;

		node_pair(&a, &b, &attr);
		if (taken)
			raw_cq_open(&cq, a.send_cq);
		assert_int_equal(node_recv(&b, 1, 0, 64), 0);
		assert_int_equal(node_send(&a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
		assert_int_equal(ibv_destroy_qp(a.qp), 0);
		a.qp = NULL;
		if (taken)
			raw_wait(&cq, &cqe);
		else
			assert_int_equal(ibv_poll_cq(a.send_cq, 1, &wc), 0);
		node_close(&a);
		node_close(&b);
	}
}

/* A new ring has what the program has not read yet, by its own index. */
static void taken_cq_is_resized(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct mlx4_cqe cqe;
	struct raw_cq cq;
	struct node a, b;
	uint32_t ci;

	node_pair(&a, &b, &attr);
	raw_cq_open(&cq, b.recv_cq);
	for (int size = 20; size < 2000; size = size * 3 + 1) {
		for (uint64_t i = 0; i < 12; i++) {
			assert_int_equal(node_recv(&b, i, 0, 64), 0);
			assert_int_equal(node_send(&a, i, 0, 64, IBV_SEND_SIGNALED), 0);
			cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		}
		for (int i = 0; i < 7; i++)
			raw_expect(&cq, b.qp->qp_num, false, &cqe);
		assert_int_equal(ibv_resize_cq(b.recv_cq, size), 0);
		ci = cq.ci;
		raw_cq_open(&cq, b.recv_cq);
		assert_int_equal(be32toh(*cq.dv.set_ci_db), ci);
		cq.ci = ci;
		for (int i = 7; i < 12; i++)
			raw_expect(&cq, b.qp->qp_num, false, &cqe);
		assert_false(raw_poll(&cq, &cqe));
	}
	node_close(&a);
	node_close(&b);
}

/* --- the others -------------------------------------------------------------------------------------- */

static void device_is_a_connectx3(void **state)
{
	struct ibv_device_attr attr;
	struct mlx4dv_context dv = { .comp_mask = UINT64_MAX };

	assert_int_equal(ibv_query_device(node.ctx, &attr), 0);
	assert_int_equal(attr.vendor_id, 0x02c9);
	assert_int_equal(attr.vendor_part_id, 4099);
	assert_int_equal(mlx4dv_query_device(node.ctx, &dv), 0);
	assert_int_equal(dv.comp_mask, 0);
	assert_int_equal(dv.version, 0);
	assert_in_range(dv.max_inl_recv_sz, 64, 1024);
	assert_int_equal(mlx4dv_query_device(NULL, &dv), EINVAL);
	assert_int_equal(mlx4dv_query_device(node.ctx, NULL), EINVAL);
}

static struct ibv_qp_init_attr_ex rc_attr(struct node *of)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = of->send_cq,
		.recv_cq = of->recv_cq,
		.qp_type = IBV_QPT_RC,
		.cap = { 16, 16, 1, 1, 0 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = of->pd,
	};
}

static void creation_checks_its_attributes(void **state)
{
	struct ibv_qp_init_attr_ex init = rc_attr(&node);
	struct mlx4dv_qp_init_attr dv = { .comp_mask = 1ull << 1 };
	struct ibv_qp *qp;

	assert_null(mlx4dv_create_qp(node.ctx, &init, &dv));
	assert_int_equal(errno, EINVAL);
	dv.comp_mask = MLX4DV_QP_INIT_ATTR_MASK_INL_RECV;
	dv.inl_recv_sz = 1 << 20;
	assert_null(mlx4dv_create_qp(node.ctx, &init, &dv));
	assert_int_equal(errno, EINVAL);
	assert_null(mlx4dv_create_qp(node.ctx, NULL, &dv));
	assert_int_equal(errno, EINVAL);
	qp = mlx4dv_create_qp(node.ctx, &init, NULL);
	assert_non_null(qp);
	ibv_destroy_qp(qp);
	/* The new way to post is not this card's. */
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND;
	assert_null(ibv_create_qp_ex(node.ctx, &init));
	assert_int_equal(errno, EOPNOTSUPP);
}

/* Short messages stay in the receive WQE: seen by who reads the ring, and moved by who polls with verbs. */
static void inline_receive(void **state)
{
	for (int direct = 0; direct < 2; direct++) {
		struct node_attr attr = node_attr(IBV_QPT_RC);
		struct mlx4dv_qp_init_attr dv = { MLX4DV_QP_INIT_ATTR_MASK_INL_RECV, 128 };
		struct ibv_qp_init_attr_ex init;
		struct address at_a, at_b;
		static struct raw rb;
		struct node a, b;
		struct ibv_wc wc;

		node_open(&a, &attr);
		node_open(&b, &attr);
		ibv_destroy_qp(b.qp);
		init = rc_attr(&b);
		b.qp = mlx4dv_create_qp(b.ctx, &init, &dv);
		assert_non_null(b.qp);
		node_address(&a, &at_a);
		node_address(&b, &at_b);
		node_connect(&a, &at_b);
		node_connect(&b, &at_a);
		if (direct)
			raw_open(&rb, &b);
		for (uint32_t i = 0; i < 100; i++) {
			uint32_t len = 1 + i * 5; /* from 129 on they do not fit */
			struct mlx4_cqe cqe;

			pattern_fill(a.buf, len, i);
			memset(b.buf, 0, 1024);
			if (direct)
				raw_recv(&rb, 0, 1024);
			else
				assert_int_equal(node_recv(&b, i, 0, 1024), 0);
			assert_int_equal(node_send(&a, i, 0, len, IBV_SEND_SIGNALED), 0);
			cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
			if (!direct) {
				cq_expect_at(__FILE__, __LINE__, b.recv_cq, i, IBV_WC_SUCCESS, &wc);
				assert_int_equal(wc.byte_len, len);
				assert_int_equal(pattern_check(b.buf, len, i), len);
				continue;
			}
			raw_wait(&rb.recv, &cqe);
			assert_int_equal(be32toh(cqe.byte_cnt), len);
			assert_int_equal(!!(cqe.owner_sr_opcode & 0x20), len <= 128);
			if (len > 128)
				assert_int_equal(pattern_check(b.buf, len, i), len);
			else
				assert_int_equal(pattern_check((char *)rb.dv.buf.buf +
								       rb.dv.rq.offset +
								       ((i & (rb.dv.rq.wqe_cnt - 1))
									<< rb.dv.rq.wqe_shift),
							       len, i),
						 len);
		}
		node_close(&a);
		node_close(&b);
	}
}

/* --- the program's own memory ------------------------------------------------------------------------- */

static int allocated, given_back;
static bool refuse, crooked;
static struct {
	char *start;
	size_t size;
} blocks[16];

static void *own_alloc(size_t size, void *data)
{
	char *p;

	assert_ptr_equal(data, &allocated);
	if (refuse)
		return NULL;
	assert_int_equal(size % 4096, 0);
	p = aligned_alloc(4096, size + 4096);
	memset(p, 0x5a, size + 4096);
	assert_in_range(allocated, 0, 15);
	blocks[allocated].start = p;
	blocks[allocated++].size = size;
	return crooked ? p + 8 : p;
}

static void own_free(void *ptr, void *data)
{
	assert_ptr_equal(data, &allocated);
	given_back++;
	free((void *)((uintptr_t)ptr & ~(uintptr_t)4095));
}

static void own_allocators(void **state)
{
	struct mlx4dv_ctx_allocators own = { own_alloc, own_free, &allocated };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a;

	assert_int_equal(mlx4dv_set_context_attr(NULL, MLX4DV_SET_CTX_ATTR_BUF_ALLOCATORS, &own),
			 EINVAL);
	assert_int_equal(
		mlx4dv_set_context_attr(node.ctx, MLX4DV_SET_CTX_ATTR_BUF_ALLOCATORS, NULL),
		EINVAL);
	own.free = NULL;
	assert_int_equal(
		mlx4dv_set_context_attr(node.ctx, MLX4DV_SET_CTX_ATTR_BUF_ALLOCATORS, &own),
		EINVAL);
	assert_int_equal(mlx4dv_set_context_attr(node.ctx, (enum mlx4dv_set_ctx_attr_type)99, &own),
			 EOPNOTSUPP);
	own.free = own_free;

	/* As a program would: the context first, then everything with its own memory. */
	a = node;
	a.attr = attr;
	allocated = given_back = 0;
	assert_int_equal(mlx4dv_set_context_attr(a.ctx, MLX4DV_SET_CTX_ATTR_BUF_ALLOCATORS, &own),
			 0);
	a.send_cq = ibv_create_cq(a.ctx, 100, NULL, NULL, 0);
	assert_non_null(a.send_cq);
	assert_int_equal(allocated, 2); /* ring, record */
	a.srq = ibv_create_srq(a.pd, &(struct ibv_srq_init_attr){ .attr = { 16, 1, 0 } });
	assert_non_null(a.srq);
	assert_int_equal(allocated, 4);
	a.recv_cq = a.send_cq;
	a.qp = node_create_qp(&a);
	assert_non_null(a.qp);
	assert_int_equal(allocated, 6);
	assert_int_equal(given_back, 0);

	refuse = true;
	assert_null(node_create_qp(&a));
	assert_int_equal(errno, ENOMEM);
	refuse = false;
	crooked = true;
	assert_null(ibv_create_cq(a.ctx, 10, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(given_back, 1);
	crooked = false;

	/* Back to ours; what was allocated by the program's goes back there. */
	assert_int_equal(mlx4dv_set_context_attr(a.ctx, MLX4DV_SET_CTX_ATTR_BUF_ALLOCATORS,
						 &(struct mlx4dv_ctx_allocators){ 0 }),
			 0);
	ibv_destroy_qp(a.qp);
	ibv_destroy_srq(a.srq);
	ibv_destroy_cq(a.send_cq);
	assert_int_equal(given_back, 7);
	assert_int_equal(allocated, 7);
}

static bool is_own(const void *p)
{
	for (int i = 0; i < allocated; i++)
		if ((const char *)p >= blocks[i].start &&
		    (const char *)p < blocks[i].start + blocks[i].size)
			return true;
	return false;
}

/* Queues in the program's own memory work, and the structures show that memory. */
static void own_memory_is_used(void **state)
{
	struct mlx4dv_ctx_allocators own = { own_alloc, own_free, &allocated };
	static struct raw raw;
	struct mlx4_cqe cqe;
	struct address self;
	struct node a = node;

	allocated = given_back = 0;
	assert_int_equal(
		mlx4dv_set_context_attr(node.ctx, MLX4DV_SET_CTX_ATTR_BUF_ALLOCATORS, &own), 0);
	a.send_cq = ibv_create_cq(a.ctx, 64, NULL, NULL, 0);
	a.recv_cq = ibv_create_cq(a.ctx, 64, NULL, NULL, 0);
	a.qp = node_create_qp(&a);
	assert_true(a.send_cq && a.recv_cq && a.qp);
	node_address(&a, &self);
	node_connect(&a, &self);
	raw_open(&raw, &a);
	assert_true(is_own(raw.dv.buf.buf) && is_own(raw.dv.rdb));
	assert_true(is_own(raw.send.dv.buf.buf) && is_own(raw.send.dv.set_ci_db));
	assert_false(is_own(a.buf));
	for (uint32_t i = 0; i < 200; i++) {
		pattern_fill(a.buf, 500, i);
		raw_recv(&raw, 4096, 500);
		raw_send(&raw, 0, 500, MLX4_WQE_CTRL_CQ_UPDATE);
		raw_ring(&raw);
		raw_expect(&raw.send, a.qp->qp_num, true, &cqe);
		raw_free(&raw, &cqe);
		raw_expect(&raw.recv, a.qp->qp_num, false, &cqe);
		assert_int_equal(pattern_check(a.buf + 4096, 500, i), 500);
	}
	assert_int_equal(ibv_resize_cq(a.send_cq, 200), 0);
	assert_int_equal(allocated, 7);
	ibv_destroy_qp(a.qp);
	ibv_destroy_cq(a.send_cq);
	ibv_destroy_cq(a.recv_cq);
	assert_int_equal(given_back, 7);
}

int main(void)
{
	static int with_srq;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nulls_are_refused, open_node, close_node),
		cmocka_unit_test_setup_teardown(other_bits_are_ignored, open_node, close_node),
		cmocka_unit_test(foreign_devices_are_refused),
		cmocka_unit_test_setup_teardown(qp_shows_both_rings, open_node, close_node),
		cmocka_unit_test_setup_teardown(smallest_queues, open_node, close_node),
		cmocka_unit_test_setup_teardown(larger_receive_stride_comes_first, open_node,
						close_node),
		cmocka_unit_test_setup_teardown(send_ring_is_preset, open_node, close_node),
		cmocka_unit_test_setup_teardown(cq_shows_its_ring, open_node, close_node),
		cmocka_unit_test_prestate_setup_teardown(all_at_once, open_node, close_node,
							 &with_srq),
		cmocka_unit_test(taken_cq_is_left_alone),
		cmocka_unit_test(taken_cq_is_resized),
		cmocka_unit_test_setup_teardown(device_is_a_connectx3, open_node, close_node),
		cmocka_unit_test_setup_teardown(creation_checks_its_attributes, open_node,
						close_node),
		cmocka_unit_test(inline_receive),
		cmocka_unit_test_setup_teardown(own_allocators, open_node, close_node),
		cmocka_unit_test_setup_teardown(own_memory_is_used, open_node, close_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
