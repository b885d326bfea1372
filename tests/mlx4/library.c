// SPDX-License-Identifier: MIT
/*
 * The bytes that verbs leave in mlx4 queues, and what they refuse: a program that posts by verbs and looks at the rings
 * itself finds there what the library of the hardware writes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "raw.h"

static struct node a, b;
static struct mlx4dv_qp ring; /* of a */

static void open_pair(const struct node_attr *attr)
{
	struct mlx4dv_obj obj = { .qp = { NULL, &ring } };

	node_pair(&a, &b, attr);
	obj.qp.in = a.qp;
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), 0);
}

static void close_pair(void)
{
	node_close(&a);
	node_close(&b);
}

static const void *send_wqe(uint32_t index)
{
	return (char *)ring.buf.buf + ring.sq.offset + ((size_t)index << ring.sq.wqe_shift);
}

static const struct mlx4_wqe_data_seg *recv_wqe(uint32_t index)
{
	return (void *)((char *)ring.buf.buf + ring.rq.offset +
			((size_t)index << ring.rq.wqe_shift));
}

static void check_seg(const struct mlx4_wqe_data_seg *seg, uint32_t len, uint32_t lkey,
		      const void *addr)
{
	assert_int_equal(be32toh(seg->byte_count), len);
	assert_int_equal(be32toh(seg->lkey), lkey);
	assert_int_equal(be64toh(seg->addr), (uintptr_t)addr);
}

/* --- send queues ----------------------------------------------------------------------------------- */

static void local_invalidate_is_ordered(void **state)
{
	const struct node_attr attr = node_attr(IBV_QPT_RC);
	const struct mlx4_wqe_ctrl_seg *ctrl;
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = IBV_SEND_SIGNALED,
				  .invalidate_rkey = 0x12345 },
			   *bad;

	open_pair(&attr);
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	ctrl = send_wqe(0);
	assert_int_equal(be32toh(ctrl->srcrb_flags),
			 MLX4_WQE_CTRL_CQ_UPDATE | MLX4_WQE_CTRL_STRONG_ORDER);
	assert_int_equal(be32toh(ctrl->owner_opcode), MLX4_OPCODE_LOCAL_INVAL);
	assert_int_equal(ctrl->fence_size, 3);
	close_pair();
}

/* What a transport does not have goes to the card, in the form that all sends of the transport have. */
static void write_on_ud_is_taken(void **state)
{
	const struct node_attr attr = node_attr(IBV_QPT_UD);
	struct ibv_ah_attr ah_attr = { 0 };
	const struct mlx4_wqe_ctrl_seg *ctrl;
	const struct mlx4_wqe_datagram_seg *dgram;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = 5,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &sge,
				  .num_sge = 1 },
			   *bad;
	struct ibv_ah *ah;

	open_pair(&attr);
	ah_attr_to(&ah_attr, &b.gid);
	ah = ibv_create_ah(a.pd, &ah_attr);
	assert_non_null(ah);
	sge = (struct ibv_sge){ (uintptr_t)a.buf, 64, a.mr->lkey };
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b.qp->qp_num;
	wr.wr.ud.remote_qkey = TEST_QKEY;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	ctrl = send_wqe(0);
	dgram = (const void *)(ctrl + 1);
	assert_int_equal(be32toh(ctrl->owner_opcode), MLX4_OPCODE_RDMA_WRITE);
	assert_int_equal(ctrl->fence_size, 5);
	assert_int_equal(be32toh(dgram->dqpn), b.qp->qp_num);
	check_seg((const void *)(dgram + 1), 64, a.mr->lkey, a.buf);
	cq_expect(a.send_cq, 5, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	close_pair();
}

static void too_much_is_refused(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr query;
	struct ibv_sge sge[64] = { 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = sge }, *bad_send;
	struct ibv_recv_wr recv = { .sg_list = sge }, *bad_recv;

	attr.cap.max_recv_sge = 3;
	open_pair(&attr);
	assert_int_equal(ibv_query_qp(a.qp, &query, IBV_QP_CAP, &init), 0);
	wr.num_sge = (int)init.cap.max_send_sge + 1;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad_send), ENOMEM);
	assert_ptr_equal(bad_send, &wr);
	wr.send_flags = IBV_SEND_INLINE;
	wr.num_sge = 2;
	sge[0] = (struct ibv_sge){ (uintptr_t)a.buf, init.cap.max_inline_data, 0 };
	sge[1] = (struct ibv_sge){ (uintptr_t)a.buf, 1, 0 };
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad_send), ENOMEM);
	recv.num_sge = (int)init.cap.max_recv_sge + 1;
	assert_int_equal(ibv_post_recv(a.qp, &recv, &bad_recv), ENOMEM);
	assert_ptr_equal(bad_recv, &recv);
	/* Nothing of it was posted. */
	assert_true(be32toh(((const struct mlx4_wqe_ctrl_seg *)send_wqe(0))->owner_opcode) >> 31);
	close_pair();

	attr.srq = true;
	open_pair(&attr);
	recv.num_sge = 40;
	assert_int_equal(ibv_post_srq_recv(a.srq, &recv, &bad_recv), ENOMEM);
	close_pair();
}

/* An atomic has a segment more than other work: with as many data segments as others may have it has no room. */
static void atomic_keeps_to_its_stride(void **state)
{
	const struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = { .wr_id = 3,
				  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = sge,
				  .num_sge = 2 },
			   *bad;

	open_pair(&attr);
	assert_int_equal(ring.sq.wqe_shift, 6);
	sge[0] = sge[1] = (struct ibv_sge){ (uintptr_t)a.buf, 4, a.mr->lkey };
	wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
	wr.wr.atomic.rkey = b.mr->rkey;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), ENOMEM);
	sge[0].length = 8;
	wr.num_sge = 1;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	cq_expect(a.send_cq, 3, IBV_WC_SUCCESS);
	close_pair();
}

/* --- sizes ----------------------------------------------------------------------------------------- */

static const struct {
	enum ibv_qp_type type;
	uint32_t sge, inline_data; /* asked for */
	int shift;                 /* of the stride */
	uint32_t max_sge, max_inline;
} sizes[] = {
	{ IBV_QPT_RC, 1, 0, 6, 2, 28 },          { IBV_QPT_RC, 2, 0, 6, 2, 28 },
	{ IBV_QPT_RC, 3, 0, 7, 6, 88 },          { IBV_QPT_RC, 6, 0, 7, 6, 88 },
	{ IBV_QPT_RC, 7, 0, 8, 14, 208 },        { IBV_QPT_RC, 30, 0, 9, 30, 448 },
	{ IBV_QPT_RC, 1, 28, 6, 2, 28 },         { IBV_QPT_RC, 1, 29, 7, 6, 88 },
	{ IBV_QPT_RC, 1, 448, 9, 30, 448 },      { IBV_QPT_RC, 1, 449, 10, 30, 912 },
	{ IBV_QPT_RC, 1, 900, 10, 30, 912 },     { IBV_QPT_RC, 1, 912, 10, 30, 912 },
	{ IBV_QPT_RC, 1, 913, 0, 0, 0 },         { IBV_QPT_UC, 2, 0, 6, 2, 28 },
	{ IBV_QPT_UC, 3, 88, 7, 6, 88 },         { IBV_QPT_UD, 1, 0, 7, 4, 60 },
	{ IBV_QPT_UD, 5, 0, 8, 12, 180 },        { IBV_QPT_UD, 1, 884, 10, 30, 884 },
	{ IBV_QPT_UD, 1, 885, 0, 0, 0 },         { IBV_QPT_RAW_PACKET, 3, 0, 6, 3, 44 },
	{ IBV_QPT_RAW_PACKET, 1, 40, 6, 3, 44 }, { IBV_QPT_RAW_PACKET, 1, 41, 7, 7, 104 },
};

static void strides(void **state)
{
	const struct node_attr attr = node_attr(IBV_QPT_RC);

	node_open(&a, &attr);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = a.send_cq,
			.recv_cq = a.recv_cq,
			.qp_type = sizes[i].type,
			.cap = { .max_send_wr = 10,
				 .max_recv_wr = 1,
				 .max_send_sge = sizes[i].sge,
				 .max_recv_sge = 1,
				 .max_inline_data = sizes[i].inline_data },
		};
		struct ibv_qp *qp = ibv_create_qp(a.pd, &init);
		struct mlx4dv_obj obj = { .qp = { qp, &ring } };

		if (!sizes[i].shift) {
			assert_null(qp);
			assert_int_equal(errno, EINVAL);
			continue;
		}
		assert_non_null(qp);
		assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), 0);
		assert_int_equal(ring.sq.wqe_shift, sizes[i].shift);
		assert_int_equal(init.cap.max_send_sge, sizes[i].max_sge);
		assert_int_equal(init.cap.max_inline_data, sizes[i].max_inline);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	node_close(&a);
}

/* All of it, at every length around the ends of lines. */
static void long_inline_data(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_inline_data = 912;
	open_pair(&attr);
	for (uint32_t len = 840; len <= 912; len++) {
		pattern_fill(a.buf, len, len);
		memset(b.buf, 0, 1024);
		assert_int_equal(node_recv(&b, len, 0, 1024), 0);
		assert_int_equal(node_send(&a, len, 0, len, IBV_SEND_SIGNALED | IBV_SEND_INLINE),
				 0);
		cq_expect(a.send_cq, len, IBV_WC_SUCCESS);
		cq_expect(b.recv_cq, len, IBV_WC_SUCCESS);
		assert_int_equal(pattern_check(b.buf, len, len), len);
		assert_int_equal(b.buf[len], 0);
	}
	close_pair();
}

/* --- receive queues -------------------------------------------------------------------------------- */

/* Segments of no length keep their place, here and in shared queues. */
static void set_list(struct ibv_sge sge[4], const struct node *node)
{
	for (int i = 0; i < 4; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)node->buf + 1000u * (uint32_t)i,
					   i == 1 || i == 3 ? 100 : 0, node->mr->lkey };
}

static void check_list(const struct mlx4_wqe_data_seg *seg, const struct node *node)
{
	for (int i = 0; i < 4; i++)
		check_seg(&seg[i], i == 1 || i == 3 ? 100 : 0, node->mr->lkey,
			  node->buf + 1000 * i);
	check_seg(&seg[4], 0, MLX4_INVALID_LKEY, NULL);
}

static void receive_150(struct node *from, struct node *to)
{
	memset(to->buf, 0, 4096);
	pattern_fill(from->buf, 150, 9);
	assert_int_equal(node_send(from, 1, 0, 150, IBV_SEND_SIGNALED), 0);
	cq_expect(from->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(to->recv_cq, 6, IBV_WC_SUCCESS);
	assert_int_equal(to->buf[0], 0);
	assert_memory_equal(to->buf + 1000, from->buf, 100);
	assert_int_equal(to->buf[2000], 0);
	assert_memory_equal(to->buf + 3000, from->buf + 100, 50);
	assert_int_equal(to->buf[3050], 0);
}

static void empty_segments_are_kept(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_sge sge[4];
	struct ibv_recv_wr wr = { .wr_id = 6, .sg_list = sge, .num_sge = 4 }, *bad;

	attr.cap.max_recv_sge = 5;
	open_pair(&attr);
	set_list(sge, &a);
	assert_int_equal(ibv_post_recv(a.qp, &wr, &bad), 0);
	check_list(recv_wqe(0), &a);
	receive_150(&b, &a);
	close_pair();
}

static struct mlx4dv_srq srq_of(struct ibv_srq *srq)
{
	struct mlx4dv_srq dv;
	struct mlx4dv_obj obj = { .srq = { srq, &dv } };

	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_SRQ), 0);
	return dv;
}

static void shared_queue_is_preset(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_sge sge[4];
	struct ibv_recv_wr wr = { .wr_id = 6, .sg_list = sge, .num_sge = 4 }, *bad;
	struct mlx4dv_srq dv;
	uint32_t count;

	attr.srq = true;
	attr.cap.max_recv_sge = 5;
	open_pair(&attr);
	dv = srq_of(a.srq);
	assert_int_equal(dv.wqe_shift, 7);
	count = (uint32_t)dv.tail + 1;
	for (uint32_t i = 0; i < count; i++) {
		const struct mlx4_wqe_srq_next_seg *next =
			(void *)((char *)dv.buf.buf + ((size_t)i << dv.wqe_shift));
		const struct mlx4_wqe_data_seg *seg = (const void *)(next + 1);

		assert_int_equal(be16toh(next->next_wqe_index), (i + 1) & (count - 1));
		for (int k = 0; k < 7; k++)
			check_seg(&seg[k], 0, MLX4_INVALID_LKEY, NULL);
	}
	set_list(sge, &a);
	assert_int_equal(ibv_post_srq_recv(a.srq, &wr, &bad), 0);
	check_list((void *)((char *)dv.buf.buf + 16), &a);
	receive_150(&b, &a);
	close_pair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(local_invalidate_is_ordered),
		cmocka_unit_test(write_on_ud_is_taken),
		cmocka_unit_test(too_much_is_refused),
		cmocka_unit_test(atomic_keeps_to_its_stride),
		cmocka_unit_test(strides),
		cmocka_unit_test(long_inline_data),
		cmocka_unit_test(empty_segments_are_kept),
		cmocka_unit_test(shared_queue_is_preset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
