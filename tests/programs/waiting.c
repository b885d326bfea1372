// SPDX-License-Identifier: MIT
/*
 * Send queues that wait for a word of memory, in WQEs that the program writes itself (mlx5 direct verbs): what follows
 * is done when the word has the value, whatever state the queue has been in meanwhile, or is flushed with it.
 */
#include "common.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WAIT = 0x0f, ON_DATA = 1, EQUAL = 1, VALUE = 5, MANY = 200, BLOCK = 64 };

struct waiting {
	struct node node, peer;
	struct mlx5dv_qp dv;
	uint64_t *word;
	unsigned int pi;
};

static void put_wait(struct waiting *w, uint32_t lkey)
{
	char *wqe = (char *)w->dv.sq.buf + w->pi % w->dv.sq.wqe_cnt * BLOCK;
	__be64 words[3] = { htobe64((uintptr_t)w->word), htobe64(VALUE), htobe64(~0ull) };
	__be32 key = htobe32(lkey);

	memset(wqe, 0, BLOCK);
	mlx5dv_set_ctrl_seg((void *)wqe, (uint16_t)w->pi, WAIT, ON_DATA, w->node.qp->qp_num, 8, 3,
			    0, 0);
	wqe[19] = EQUAL;
	memcpy(wqe + 20, &key, sizeof(key));
	memcpy(wqe + 24, words, sizeof(words));
	w->pi++;
}

static void put_nop(struct waiting *w)
{
	char *wqe = (char *)w->dv.sq.buf + w->pi % w->dv.sq.wqe_cnt * BLOCK;

	memset(wqe, 0, BLOCK);
	mlx5dv_set_ctrl_seg((void *)wqe, (uint16_t)w->pi, MLX5_OPCODE_NOP, 0, w->node.qp->qp_num, 8,
			    1, 0, 0);
	w->pi++;
}

static void ring(struct waiting *w)
{
	w->dv.dbrec[MLX5_SND_DBR] = htobe32(w->pi);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile __be64 *)w->dv.bf.reg =
		*(__be64 *)((char *)w->dv.sq.buf + (w->pi - 1) % w->dv.sq.wqe_cnt * BLOCK);
}

static void set_word(struct waiting *w, uint64_t value)
{
	__atomic_store_n(w->word, htobe64(value), __ATOMIC_RELEASE);
}

static void post(struct waiting *w)
{
	set_word(w, 0);
	put_wait(w, w->node.mr->lkey);
	put_nop(w);
	ring(w);
}

static void open_one(struct waiting *w)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct mlx5dv_obj obj = { .qp.out = &w->dv };

	memset(w, 0, sizeof(*w));
	node_pair(&w->node, &w->peer, &attr);
	obj.qp.in = w->node.qp;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	check_eq(w->dv.sq.stride, BLOCK);
	w->word = (uint64_t *)w->node.buf;
}

static void close_one(struct waiting *w)
{
	node_close(&w->node);
	node_close(&w->peer);
}

static void expect_two(struct waiting *w, enum ibv_wc_status first, enum ibv_wc_status second)
{
	struct ibv_wc wc;

	check(cq_wait(w->node.send_cq, &wc, PATIENCE_MS));
	check_eq(wc.status, first);
	check(cq_wait(w->node.send_cq, &wc, PATIENCE_MS));
	check_eq(wc.status, second);
}

static void expect_none(struct waiting *w)
{
	struct ibv_wc wc;

	for (int i = 0; i < 1000; i++)
		check_eq(ibv_poll_cq(w->node.send_cq, 1, &wc), 0);
}

static void drained_and_back(struct waiting *w)
{
	post(w);
	expect_none(w);
	check_eq(qp_set_state(w->node.qp, IBV_QPS_SQD), 0);
	set_word(w, VALUE);
	expect_none(w);
	usleep(5000);
	expect_none(w);
	check_eq(qp_set_state(w->node.qp, IBV_QPS_RTS), 0);
	expect_two(w, IBV_WC_SUCCESS, IBV_WC_SUCCESS);
}

int main(void)
{
	static struct waiting w, many[MANY];

	open_one(&w);
	for (int round = 0; round < 100; round++) { /* the ring wraps */
		post(&w);
		expect_none(&w);
		set_word(&w, VALUE);
		expect_two(&w, IBV_WC_SUCCESS, IBV_WC_SUCCESS);
	}
	drained_and_back(&w);
	drained_and_back(&w);
	post(&w);
	check_eq(qp_set_state(w.node.qp, IBV_QPS_ERR), 0);
	set_word(&w, VALUE);
	expect_two(&w, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
	close_one(&w);
	/* Without its memory. */
	open_one(&w);
	post(&w);
	expect_none(&w);
	check_eq(ibv_dereg_mr(w.node.mr), 0);
	expect_two(&w, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR);
	w.node.mr = NULL;
	close_one(&w);
	for (int i = 0; i < MANY; i++) {
		open_one(&many[i]);
		post(&many[i]);
	}
	for (int i = 0; i < MANY; i += 2)
		set_word(&many[i], VALUE);
	for (int i = 0; i < MANY; i += 2)
		expect_two(&many[i], IBV_WC_SUCCESS, IBV_WC_SUCCESS);
	for (int i = 0; i < MANY; i++) /* the others while they wait */
		close_one(&many[i]);
	return 0;
}
