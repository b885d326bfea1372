// SPDX-License-Identifier: MIT
/*
 * The rest of what raw queues promise: CQs armed with sequence numbers and events, shared receive queues as lists, verbs
 * and raw use side by side, bad WQEs that give the right error CQE and QP state, QPs destroyed under load.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "raw.h"

static struct node a, b;
static struct raw ra, rb;

static void open_pair(enum ibv_qp_type type, bool events, bool srq)
{
	struct node_attr attr = node_attr(type);

	attr.events = events;
	attr.srq = srq;
	attr.rnr_retry = 0;
	node_pair(&a, &b, &attr);
	raw_open(&ra, &a);
	raw_open(&rb, &b);
}

static void close_pair(void)
{
	node_close(&a);
	node_close(&b);
}

static void send_one(void)
{
	struct mlx4_cqe cqe;

	raw_send(&ra, 0, 64, MLX4_WQE_CTRL_CQ_UPDATE);
	raw_ring(&ra);
	raw_expect(&ra.send, a.qp->qp_num, true, &cqe);
	raw_free(&ra, &cqe);
}

/* --- atomics with masks ----------------------------------------------------------------------------- */

static uint64_t masked(bool add, uint64_t data, uint64_t compare, uint64_t swap_mask,
		       uint64_t compare_mask)
{
	struct mlx4_cqe cqe;
	struct raw_wqe wqe;

	raw_begin(&wqe, add ? MLX4_OPCODE_MASKED_ATOMIC_FA : MLX4_OPCODE_MASKED_ATOMIC_CS,
		  MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(&wqe, (uintptr_t)b.buf, b.mr->rkey);
	raw_put_atomic(&wqe, data, compare);
	if (!add)
		raw_put_atomic(&wqe, swap_mask, compare_mask);
	raw_put_data(&wqe, a.buf, 8, a.mr->lkey);
	check(raw_post(&ra, &wqe));
	raw_ring(&ra);
	raw_expect(&ra.send, a.qp->qp_num, true, &cqe);
	raw_free(&ra, &cqe);
	return *(uint64_t *)a.buf;
}

static void masked_atomics(void **state)
{
	uint64_t *word;

	open_pair(IBV_QPT_RC, false, false);
	word = (uint64_t *)b.buf;
	for (int i = 0; i < 200; i++) { /* round the ring, whose strides they wrap in */
		*word = 0x00ff00ff12345678;
		/* four sums of 16 bits */
		assert_int_equal(masked(true, 0xff01ff01ffff0001, 0x8000800080008000, 0, 0),
				 0x00ff00ff12345678);
		assert_int_equal(*word, 0x0000000012335679);
		/* bits by their masks, where others are as expected */
		assert_int_equal(
			masked(false, 0xabababababababab, 0x5679, 0xff00000000000000, 0xffff),
			0x0000000012335679);
		assert_int_equal(*word, 0xab00000012335679);
		assert_int_equal(masked(false, 0, 0x5678, UINT64_MAX, 0xffff), 0xab00000012335679);
		assert_int_equal(*word, 0xab00000012335679);
	}
	close_pair();
}

/* --- events ---------------------------------------------------------------------------------------- */

static bool has_event(struct ibv_comp_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	return poll(&fd, 1, 0) == 1;
}

static void take_event(struct node *node, struct raw_cq *cq, struct ibv_cq *want)
{
	struct pollfd fd = { .fd = node->channel->fd, .events = POLLIN };
	struct ibv_cq *from;
	void *context;

	check_eq(poll(&fd, 1, PATIENCE_MS), 1);
	check_eq(ibv_get_cq_event(node->channel, &from, &context), 0);
	check(from == want);
	ibv_ack_cq_events(from, 1);
	cq->sn++;
}

static void armed_with_events(void **state)
{
	struct mlx4_cqe cqe;

	open_pair(IBV_QPT_RC, true, false);
	for (int i = 0; i < 20; i++)
		raw_recv(&rb, 0, 64);
	/* Not armed: no event. */
	send_one();
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	assert_false(has_event(b.channel));
	/* Armed: one event for any number of CQEs. */
	for (int i = 0; i < 6; i++) {
		raw_arm(&rb.recv, false);
		assert_false(has_event(b.channel));
		send_one();
		send_one();
		take_event(&b, &rb.recv, b.recv_cq);
		assert_false(has_event(b.channel));
		raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
		raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	}
	/* A CQE that came before the arming counts. */
	send_one();
	raw_arm(&rb.recv, false);
	take_event(&b, &rb.recv, b.recv_cq);
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	/* A doorbell with a number whose event is out is an old one. */
	rb.recv.sn--;
	raw_arm(&rb.recv, false);
	send_one();
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	assert_false(has_event(b.channel));
	rb.recv.sn++;
	raw_arm(&rb.recv, false);
	send_one();
	take_event(&b, &rb.recv, b.recv_cq);
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	close_pair();
}

/* Who polls a part of what an event announced, arms and waits is told of the rest. */
static void armed_after_a_part(void **state)
{
	struct mlx4_cqe cqe;

	open_pair(IBV_QPT_RC, true, false);
	for (int i = 0; i < 3; i++) {
		raw_recv(&rb, 0, 64);
		send_one();
	}
	raw_arm(&rb.recv, false);
	for (int i = 0; i < 3; i++) {
		take_event(&b, &rb.recv, b.recv_cq);
		raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
		raw_arm(&rb.recv, false);
	}
	assert_false(has_event(b.channel));
	/* Who arms before it polls is not told twice. */
	raw_recv(&rb, 0, 64);
	send_one();
	take_event(&b, &rb.recv, b.recv_cq);
	raw_arm(&rb.recv, false);
	assert_false(has_event(b.channel));
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	close_pair();
}

static void armed_for_solicited(void **state)
{
	struct mlx4_cqe cqe;

	open_pair(IBV_QPT_RC, true, false);
	raw_recv(&rb, 0, 64);
	raw_recv(&rb, 0, 64);
	raw_arm(&rb.recv, true);
	send_one();
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	assert_false(has_event(b.channel));
	raw_send(&ra, 0, 64, MLX4_WQE_CTRL_CQ_UPDATE | MLX4_WQE_CTRL_SOLICIT);
	raw_ring(&ra);
	take_event(&b, &rb.recv, b.recv_cq);
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	close_pair();
}

/* A program of 32 bits rings in two halves; the index is then that of the record. */
static void armed_in_halves(void **state)
{
	struct mlx4_cqe cqe;
	volatile uint32_t *bell;
	uint32_t sn, word;

	open_pair(IBV_QPT_RC, true, false);
	raw_recv(&rb, 0, 64);
	sn = rb.recv.sn & 3;
	bell = (volatile uint32_t *)((char *)rb.recv.dv.cq_uar + MLX4_CQ_DOORBELL);
	word = sn << 28 | MLX4_CQ_DB_REQ_NOT;
	*rb.recv.dv.arm_db = htobe32(word | rb.recv.ci);
	bell[0] = htobe32(word | rb.recv.dv.cqn);
	bell[1] = htobe32(rb.recv.ci);
	send_one();
	take_event(&b, &rb.recv, b.recv_cq);
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	close_pair();
}

/* --- shared receive queue ---------------------------------------------------------------------------- */

struct raw_srq {
	struct mlx4dv_srq dv;
	uint32_t posted;
};

static struct mlx4_wqe_srq_next_seg *srq_wqe(struct raw_srq *srq, int index)
{
	return (void *)((char *)srq->dv.buf.buf + ((size_t)index << srq->dv.wqe_shift));
}

static bool srq_post(struct raw_srq *srq, size_t offset)
{
	struct mlx4_wqe_srq_next_seg *next = srq_wqe(srq, srq->dv.head);
	struct mlx4_wqe_data_seg *seg = (void *)(next + 1);

	if (srq->dv.head == srq->dv.tail)
		return false;
	mlx4dv_set_data_seg(seg, 128, b.mr->lkey, (uintptr_t)b.buf + offset);
	if (srq->dv.wqe_shift > 5)
		mlx4dv_set_data_seg(seg + 1, 0, MLX4_INVALID_LKEY, 0);
	srq->dv.head = be16toh(next->next_wqe_index);
	srq->posted++;
	__atomic_store_n(srq->dv.db, htobe32(srq->posted & 0xffff), __ATOMIC_RELEASE);
	return true;
}

static void srq_give_back(struct raw_srq *srq, const struct mlx4_cqe *cqe)
{
	uint16_t index = be16toh(cqe->wqe_index);

	srq_wqe(srq, srq->dv.tail)->next_wqe_index = htobe16(index);
	srq->dv.tail = index;
}

static void shared_receive_queue(void **state)
{
	struct raw_srq srq = { 0 };
	struct mlx4dv_obj obj;
	struct mlx4_cqe cqe;
	int filled = 0;

	open_pair(IBV_QPT_RC, false, true);
	obj = (struct mlx4dv_obj){ .srq = { b.srq, &srq.dv } };
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_SRQ), 0);
	while (srq_post(&srq, 0))
		filled++;
	assert_in_range(filled, 64, 127);
	for (uint32_t i = 0; i < 1000; i++) {
		pattern_fill(a.buf, 64, i);
		send_one();
		raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
		assert_int_equal(pattern_check(b.buf, 64, i), 64);
		srq_give_back(&srq, &cqe);
		assert_true(srq_post(&srq, 0));
	}
	close_pair();
}

/* --- verbs beside raw use ------------------------------------------------------------------------------ */

/* Sends by verbs and receives by hand, then the other way round; a CQ is polled in one way only. */
static void mixed(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct mlx4dv_obj obj;
	struct mlx4_cqe cqe;

	node_pair(&a, &b, &attr);
	memset(&rb, 0, sizeof(rb));
	rb.node = &b;
	obj = (struct mlx4dv_obj){ .qp = { b.qp, &rb.dv } };
	assert_int_equal(mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP), 0);
	raw_cq_open(&rb.recv, b.recv_cq);
	for (uint32_t i = 0; i < 500; i++) {
		pattern_fill(a.buf, 200, i);
		raw_recv(&rb, 0, 256);
		assert_int_equal(node_send(&a, i, 0, 200, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
		assert_int_equal(pattern_check(b.buf, 200, i), 200);
	}
	raw_cq_open(&rb.send, b.send_cq);
	for (uint32_t i = 0; i < 500; i++) {
		pattern_fill(b.buf, 200, i);
		assert_int_equal(node_recv(&a, i, 4096, 256), 0);
		raw_send(&rb, 0, 200, MLX4_WQE_CTRL_CQ_UPDATE);
		raw_ring(&rb);
		raw_expect(&rb.send, b.qp->qp_num, true, &cqe);
		raw_free(&rb, &cqe);
		cq_expect(a.recv_cq, i, IBV_WC_SUCCESS);
		assert_int_equal(pattern_check(a.buf + 4096, 200, i), 200);
	}
	close_pair();
}

/* --- what is wrong ----------------------------------------------------------------------------------- */

static void post_unknown_opcode(struct raw_wqe *wqe)
{
	raw_begin(wqe, 0x03, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_data(wqe, a.buf, 64, a.mr->lkey);
}

static void post_no_size(struct raw_wqe *wqe)
{
	raw_begin(wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE, 0);
}

static void post_too_short(struct raw_wqe *wqe)
{
	/* A READ that ends before its remote address. */
	raw_begin(wqe, MLX4_OPCODE_RDMA_READ, MLX4_WQE_CTRL_CQ_UPDATE, 0);
}

static void post_inline_across_a_line(struct raw_wqe *wqe)
{
	struct mlx4_wqe_inline_seg *seg;

	raw_begin(wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	seg = (void *)(wqe->bytes + wqe->size);
	seg->byte_count = htobe32(MLX4_INLINE_SEG | 60);
	wqe->size += 64;
}

static void post_inline_beyond_the_end(struct raw_wqe *wqe)
{
	struct mlx4_wqe_inline_seg *seg;

	raw_begin(wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	seg = (void *)(wqe->bytes + wqe->size);
	seg->byte_count = htobe32(MLX4_INLINE_SEG | 40);
	wqe->size += 16;
}

static void post_bad_key(struct raw_wqe *wqe)
{
	raw_begin(wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_data(wqe, a.buf, 64, a.mr->lkey ^ 0x55);
}

static void post_out_of_bounds(struct raw_wqe *wqe)
{
	raw_begin(wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_data(wqe, a.buf + a.attr.size - 32, 64, a.mr->lkey);
}

static void post_bad_rkey(struct raw_wqe *wqe)
{
	raw_begin(wqe, MLX4_OPCODE_RDMA_WRITE, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(wqe, (uintptr_t)b.buf, b.mr->rkey ^ 0x55);
	raw_put_data(wqe, a.buf, 64, a.mr->lkey);
}

static void post_atomic_of_4(struct raw_wqe *wqe)
{
	raw_begin(wqe, MLX4_OPCODE_ATOMIC_FA, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(wqe, (uintptr_t)b.buf, b.mr->rkey);
	raw_put_atomic(wqe, 1, 0);
	raw_put_data(wqe, a.buf, 4, a.mr->lkey);
}

static void post_nobody_receives(struct raw_wqe *wqe)
{
	raw_begin(wqe, MLX4_OPCODE_SEND, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_data(wqe, a.buf, 64, a.mr->lkey);
}

static void post_lso(struct raw_wqe *wqe)
{
	raw_begin(wqe, MLX4_OPCODE_LSO, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_data(wqe, a.buf, 64, a.mr->lkey);
}

static const struct {
	void (*post)(struct raw_wqe *wqe);
	uint8_t syndrome;
} mistakes[] = {
	{ post_unknown_opcode, MLX4_CQE_SYNDROME_LOCAL_QP_OP_ERR },
	{ post_no_size, MLX4_CQE_SYNDROME_LOCAL_QP_OP_ERR },
	{ post_too_short, MLX4_CQE_SYNDROME_LOCAL_QP_OP_ERR },
	{ post_inline_across_a_line, MLX4_CQE_SYNDROME_LOCAL_QP_OP_ERR },
	{ post_inline_beyond_the_end, MLX4_CQE_SYNDROME_LOCAL_QP_OP_ERR },
	{ post_lso, MLX4_CQE_SYNDROME_LOCAL_QP_OP_ERR },
	{ post_bad_key, MLX4_CQE_SYNDROME_LOCAL_PROT_ERR },
	{ post_out_of_bounds, MLX4_CQE_SYNDROME_LOCAL_PROT_ERR },
	{ post_bad_rkey, MLX4_CQE_SYNDROME_REMOTE_ACCESS_ERR },
	{ post_atomic_of_4, MLX4_CQE_SYNDROME_LOCAL_LENGTH_ERR },
	{ post_nobody_receives, MLX4_CQE_SYNDROME_RNR_RETRY_EXC_ERR },
};

/* The bad one fails, the one behind it is flushed, and the QP is in the error state. */
static void bad_wqes(void **state)
{
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		struct raw_wqe wqe;

		open_pair(IBV_QPT_RC, false, false);
		mistakes[i].post(&wqe);
		assert_true(raw_post(&ra, &wqe));
		if (mistakes[i].post == post_no_size)
			((struct mlx4_wqe_ctrl_seg *)((char *)ra.dv.buf.buf + ra.dv.sq.offset))
				->fence_size = 0;
		raw_send(&ra, 0, 64, MLX4_WQE_CTRL_CQ_UPDATE);
		raw_ring(&ra);
		raw_expect_error(&ra.send, a.qp->qp_num, mistakes[i].syndrome);
		raw_expect_error(&ra.send, a.qp->qp_num, MLX4_CQE_SYNDROME_WR_FLUSH_ERR);
		assert_int_equal(qp_get_state(a.qp), IBV_QPS_ERR);
		close_pair();
	}
}

/* On UD only the send queue stops. */
static void bad_wqe_of_a_datagram(void **state)
{
	struct raw_wqe wqe;

	open_pair(IBV_QPT_UD, false, false);
	raw_begin(&wqe, MLX4_OPCODE_RDMA_WRITE, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	raw_put_raddr(&wqe, (uintptr_t)b.buf, b.mr->rkey);
	raw_put_data(&wqe, a.buf, 64, a.mr->lkey);
	assert_true(raw_post(&ra, &wqe));
	raw_ring(&ra);
	raw_expect_error(&ra.send, a.qp->qp_num, MLX4_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	assert_int_equal(qp_get_state(a.qp), IBV_QPS_SQE);
	close_pair();
}

/* In the error state receives come back, too, though no doorbell says that they were posted. */
static void receives_in_the_error_state(void **state)
{
	struct mlx4_cqe cqe;

	open_pair(IBV_QPT_RC, false, false);
	assert_int_equal(qp_set_state(b.qp, IBV_QPS_ERR), 0);
	for (int i = 0; i < 3; i++) {
		raw_recv(&rb, 0, 64);
		raw_recv(&rb, 0, 64);
		raw_expect_error(&rb.recv, b.qp->qp_num, MLX4_CQE_SYNDROME_WR_FLUSH_ERR);
		raw_expect_error(&rb.recv, b.qp->qp_num, MLX4_CQE_SYNDROME_WR_FLUSH_ERR);
		assert_false(raw_poll(&rb.recv, &cqe));
		sleep_ms(30); /* it is looked at more rarely now */
	}
	/* Back in use they wait for messages again. */
	assert_int_equal(qp_set_state(b.qp, IBV_QPS_RESET), 0);
	node_to_init(&b);
	rb.rq_head = 0;
	raw_recv(&rb, 0, 64);
	sleep_ms(10);
	assert_false(raw_poll(&rb.recv, &cqe));
	close_pair();
}

/* A WQE with the owner bit of the last round is not posted, however often the bell rings. */
static void wrong_owner_bit(void **state)
{
	struct mlx4_wqe_ctrl_seg *ctrl;
	struct mlx4_cqe cqe;

	open_pair(IBV_QPT_RC, false, false);
	raw_recv(&rb, 0, 64);
	raw_send(&ra, 0, 64, MLX4_WQE_CTRL_CQ_UPDATE);
	ctrl = (void *)((char *)ra.dv.buf.buf + ra.dv.sq.offset);
	ctrl->owner_opcode ^= htobe32(1u << 31);
	for (int i = 0; i < 10; i++)
		raw_ring(&ra);
	sleep_ms(20);
	assert_false(raw_poll(&ra.send, &cqe));
	assert_int_equal(qp_get_state(a.qp), IBV_QPS_RTS);
	ctrl->owner_opcode ^= htobe32(1u << 31);
	raw_ring(&ra);
	raw_expect(&ra.send, a.qp->qp_num, true, &cqe);
	raw_expect(&rb.recv, b.qp->qp_num, false, &cqe);
	close_pair();
}

/* Bells for queues that do not exist, or exist elsewhere, and stores that mean nothing. */
static void meaningless_stores(void **state)
{
	volatile uint32_t *page;
	struct mlx4_cqe cqe;

	open_pair(IBV_QPT_RC, false, false);
	page = (volatile uint32_t *)((char *)ra.dv.sdb - MLX4_SEND_DOORBELL);
	for (uint32_t i = 0; i < 1024; i++)
		page[i] = htobe32(0xdeadbeef);
	for (uint32_t i = 0; i < 1000; i++)
		*(volatile uint32_t *)ra.dv.sdb = htobe32(i * 7919 << 8);
	*(volatile uint64_t *)((char *)page + MLX4_CQ_DOORBELL) = htobe64(UINT64_MAX);
	/* The other context's queue, by our bell. */
	raw_recv(&ra, 0, 64);
	raw_send(&rb, 0, 64, MLX4_WQE_CTRL_CQ_UPDATE);
	*(volatile uint32_t *)ra.dv.sdb = rb.dv.doorbell_qpn;
	sleep_ms(10);
	assert_false(raw_poll(&rb.send, &cqe));
	raw_ring(&rb);
	raw_expect(&rb.send, b.qp->qp_num, true, &cqe);
	close_pair();
}

/* --- destruction under load ------------------------------------------------------------------------------ */

static atomic_bool stop;

static void *ring_for_ever(void *arg)
{
	struct raw *raw = arg;
	volatile uint32_t *sdb = raw->dv.sdb;
	uint32_t qpn = raw->dv.doorbell_qpn;

	while (!atomic_load(&stop))
		*sdb = qpn;
	return NULL;
}

static void destroyed_under_load(void **state)
{
	for (int i = 0; i < 50; i++) {
		pthread_t threads[2];
		struct mlx4_cqe cqe;

		open_pair(IBV_QPT_RC, false, false);
		atomic_store(&stop, false);
		for (int k = 0; k < 2; k++)
			assert_int_equal(
				pthread_create(&threads[k], NULL, ring_for_ever, k ? &rb : &ra), 0);
		for (int k = 0; k < 32; k++) {
			raw_recv(&rb, 0, 64);
			raw_send(&ra, 0, 64, MLX4_WQE_CTRL_CQ_UPDATE);
		}
		raw_wait(&ra.send, &cqe);
		/* The page outlives the QP: bells for it mean nothing now. */
		assert_int_equal(ibv_destroy_qp(i & 1 ? a.qp : b.qp), 0);
		*(i & 1 ? &a.qp : &b.qp) = NULL;
		sleep_ms(1);
		atomic_store(&stop, true);
		for (int k = 0; k < 2; k++)
			pthread_join(threads[k], NULL);
		close_pair();
	}
}

/* A reset empties the ring; the program starts again at 0. */
static void reset_starts_again(void **state)
{
	struct address peer;

	open_pair(IBV_QPT_UC, false, false);
	for (int i = 0; i < 10; i++)
		send_one();
	node_address(&b, &peer);
	assert_int_equal(qp_set_state(a.qp, IBV_QPS_RESET), 0);
	node_connect(&a, &peer);
	ra.sq_head = ra.sq_tail = 0;
	for (int i = 0; i < 10; i++)
		send_one();
	close_pair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(masked_atomics),
		cmocka_unit_test(armed_with_events),
		cmocka_unit_test(armed_after_a_part),
		cmocka_unit_test(armed_for_solicited),
		cmocka_unit_test(armed_in_halves),
		cmocka_unit_test(shared_receive_queue),
		cmocka_unit_test(mixed),
		cmocka_unit_test(bad_wqes),
		cmocka_unit_test(bad_wqe_of_a_datagram),
		cmocka_unit_test(receives_in_the_error_state),
		cmocka_unit_test(wrong_owner_bit),
		cmocka_unit_test(meaningless_stores),
		cmocka_unit_test(destroyed_under_load),
		cmocka_unit_test(reset_starts_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
