// SPDX-License-Identifier: MIT
/*
 * Indirect keys: lists and interleaved layouts, configured by mlx5dv_wr_*(), as source and destination of every kind of
 * request, within a process and between two, with direct copies and in packets. Bounds, rights and domains are those of the
 * key and of what it is made of. Invalidation, configuration anew, another low byte. And the other work requests of
 * direct verbs: copies, raw WQEs, requests that are taken back.
 */
#include "direct.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SIZE = 1 << 20,
	PIECES = 16,
	LIST = 100000, /* bytes of a list */
	REPEAT = 1000,
	A = 24,
	B = 8,
	SKIP = 40,
	INTERLEAVED = REPEAT * (A + B),
	FAR = SIZE / 2, /* where the second of the interleaved pieces begins */
};

struct end {
	struct node node;
	struct ibv_qp_ex *ex;
	struct mlx5dv_qp_ex *dv;
	struct mlx5dv_mkey *mkey;
};

static struct ibv_qp *create_qp(struct node *node, uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = node->send_cq,
		.recv_cq = node->recv_cq,
		.cap = { .max_send_wr = 32,
			 .max_recv_wr = 32,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 512 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = node->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct mlx5dv_qp_init_attr direct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
			     MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
		.send_ops_flags = ops,
	};

	return mlx5dv_create_qp(node->ctx, &attr, &direct);
}

enum {
	ALL_OPS = MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |
		  MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE |
		  MLX5DV_QP_EX_WITH_MEMCPY,
};

static struct mlx5dv_mkey *create_mkey(struct ibv_pd *pd, uint32_t flags)
{
	struct mlx5dv_mkey_init_attr attr = { pd, flags | MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
					      PIECES };
	struct mlx5dv_mkey *mkey = mlx5dv_create_mkey(&attr);

	check(mkey && mkey->lkey && mkey->lkey == mkey->rkey && attr.max_entries >= PIECES);
	return mkey;
}

static void open_end(struct end *end)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	node_open(&end->node, &attr);
	check_eq(ibv_destroy_qp(end->node.qp), 0);
	end->node.qp = create_qp(&end->node, ALL_OPS);
	check(end->node.qp);
	end->ex = ibv_qp_to_qp_ex(end->node.qp);
	end->dv = mlx5dv_qp_ex_from_ibv_qp_ex(end->ex);
	check(end->ex && end->dv && end->dv->wr_mr_list);
	end->mkey = create_mkey(end->node.pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE);
}

static void close_end(struct end *end)
{
	check_eq(mlx5dv_destroy_mkey(end->mkey), 0);
	node_close(&end->node);
}

/* --- layouts ------------------------------------------------------------------------------------- */

/* Pieces of many lengths, backwards in the buffer, with gaps. */
static uint32_t list(struct node *node, struct ibv_sge sge[PIECES])
{
	uint32_t total = 0;

	for (uint32_t i = 0; i < PIECES; i++) {
		uint32_t len = i + 1 < PIECES ? i * 300 + 1 : LIST - total;

		sge[i] = (struct ibv_sge){ (uintptr_t)node->buf + SIZE - total - len - 16 * (i + 1),
					   len, node->mr->lkey };
		total += len;
	}
	return total;
}

static void interleaved(struct node *node, struct mlx5dv_mr_interleaved data[2])
{
	data[0] = (struct mlx5dv_mr_interleaved){ (uintptr_t)node->buf, A, SKIP, node->mr->lkey };
	data[1] =
		(struct mlx5dv_mr_interleaved){ (uintptr_t)node->buf + FAR, B, 0, node->mr->lkey };
}

/* The place of byte i of a layout. */
static uint8_t *byte_of(struct node *node, bool is_list, uint32_t i)
{
	struct ibv_sge sge[PIECES];
	uint32_t k = 0;

	if (!is_list) {
		uint32_t block = i / (A + B), at = i % (A + B);

		return at < A ? node->buf + block * (A + SKIP) + at
			      : node->buf + FAR + block * B + (at - A);
	}
	list(node, sge);
	while (i >= sge[k].length)
		i -= sge[k++].length;
	return (uint8_t *)(uintptr_t)sge[k].addr + i;
}

static uint32_t length_of(bool is_list)
{
	return is_list ? LIST : INTERLEAVED;
}

/* All of the buffer, and then the bytes of the layout. */
static void fill(struct node *node, bool is_list, uint32_t seed)
{
	uint8_t *data = malloc(LIST);

	memset(node->buf, 0xee, SIZE);
	pattern_fill(data, length_of(is_list), seed);
	for (uint32_t i = 0; i < length_of(is_list); i++)
		*byte_of(node, is_list, i) = data[i];
	free(data);
}

/* The layout has the pattern in [0, len), and nothing else in the buffer has changed. */
static void verify(struct node *node, bool is_list, uint32_t len, uint32_t seed)
{
	uint8_t *data = malloc(LIST), *all = malloc(SIZE);

	pattern_fill(data, length_of(is_list), seed);
	memcpy(all, node->buf, SIZE);
	for (uint32_t i = 0; i < len; i++) {
		uint8_t *at = byte_of(node, is_list, i);

		check_eq(*at, data[i]);
		all[at - node->buf] = 0xee;
	}
	for (uint32_t i = 0; i < SIZE; i++)
		check_eq(all[i], 0xee);
	free(data);
	free(all);
}

static void configure(struct end *end, bool is_list, bool old_form, uint32_t access)
{
	struct mlx5dv_mkey_conf_attr conf = { 0 };
	struct mlx5dv_mr_interleaved data[2];
	struct ibv_sge sge[PIECES];
	struct ibv_wc wc;

	list(&end->node, sge);
	interleaved(&end->node, data);
	ibv_wr_start(end->ex);
	end->ex->wr_id = 77;
	end->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	if (old_form && is_list) {
		mlx5dv_wr_mr_list(end->dv, end->mkey, access, PIECES, sge);
	} else if (old_form) {
		mlx5dv_wr_mr_interleaved(end->dv, end->mkey, access, REPEAT, 2, data);
	} else {
		mlx5dv_wr_mkey_configure(end->dv, end->mkey, 2, &conf);
		mlx5dv_wr_set_mkey_access_flags(end->dv, access);
		if (is_list)
			mlx5dv_wr_set_mkey_layout_list(end->dv, PIECES, sge);
		else
			mlx5dv_wr_set_mkey_layout_interleaved(end->dv, REPEAT, 2, data);
	}
	check_eq(ibv_wr_complete(end->ex), 0);
	cq_expect_at(__FILE__, __LINE__, end->node.send_cq, 77, IBV_WC_SUCCESS, &wc);
	check_eq(wc.opcode, MLX5DV_WC_UMR);
}

/* --- requests ------------------------------------------------------------------------------------ */

static struct ibv_sge whole(struct end *end, uint32_t offset, uint32_t len)
{
	return (struct ibv_sge){ offset, len, end->mkey->lkey };
}

static int post(struct end *end, enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t addr,
		uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = opcode,
				  .sg_list = sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	} else if (opcode == IBV_WR_LOCAL_INV) {
		wr.num_sge = 0;
		wr.invalidate_rkey = rkey;
	} else if (opcode == IBV_WR_SEND_WITH_INV) {
		wr.invalidate_rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(end->node.qp, &wr, &bad);
}

#define expect_post(end, opcode, sge, addr, rkey, status)        \
	do {                                                     \
		check_eq(post(end, opcode, sge, addr, rkey), 0); \
		cq_expect((end)->node.send_cq, opcode, status);  \
	} while (0)

static void post_recv(struct end *end, struct ibv_sge *sge)
{
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = sge, .num_sge = 1 }, *bad;

	check_eq(ibv_post_recv(end->node.qp, &wr, &bad), 0);
}

/* What both ends say to each other before each step. */
struct word {
	uint32_t rkey, seed;
	uint64_t addr;
	bool is_list, stop;
	uint32_t received; /* expect so many bytes of a SEND */
};

/* The second end: configures, lends its key, and looks at what came. */
static void serve(int fd)
{
	struct address peer;
	struct word word;
	struct end end;

	open_end(&end);
	node_meet(&end.node, fd, &peer);
	for (;;) {
		struct ibv_sge sge;

		msg_recv(fd, &word, sizeof(word));
		if (word.stop)
			break;
		configure(&end, word.is_list, word.seed & 1, ACCESS_ALL);
		fill(&end.node, word.is_list, word.seed);
		sge = whole(&end, 0, length_of(word.is_list));
		if (word.received)
			post_recv(&end, &sge);
		word.rkey = end.mkey->rkey;
		msg_send(fd, &word, sizeof(word));
		msg_recv(fd, &word, sizeof(word)); /* it is done */
		if (word.received)
			cq_expect(end.node.recv_cq, 9, IBV_WC_SUCCESS);
		verify(&end.node, word.is_list, length_of(word.is_list), word.seed);
	}
	close_end(&end);
}

/*
 * A request between an indirect key here, or a plain one, and an indirect key there. SEND and WRITE leave the peer's
 * pattern as it was: what is sent is the same.
 */
static void exchange(struct end *end, int fd, enum ibv_wr_opcode opcode, bool mine_list,
		     bool theirs_list, bool plain)
{
	static uint32_t seed = 500;
	uint32_t len = length_of(theirs_list) < length_of(mine_list) ? length_of(theirs_list)
								     : length_of(mine_list);
	struct word word = { .is_list = theirs_list, .seed = ++seed };
	struct ibv_sge sge = whole(end, 0, len);

	if (plain)
		sge = (struct ibv_sge){ (uintptr_t)end->node.buf, len, end->node.mr->lkey };
	word.received = opcode == IBV_WR_SEND ? len : 0;
	configure(end, mine_list, seed & 1, IBV_ACCESS_LOCAL_WRITE);
	msg_send(fd, &word, sizeof(word));
	msg_recv(fd, &word, sizeof(word));
	if (opcode == IBV_WR_RDMA_READ) {
		memset(end->node.buf, 0xee, SIZE);
	} else if (plain) {
		pattern_fill(end->node.buf, len, word.seed);
	} else {
		fill(&end->node, mine_list, word.seed);
	}
	expect_post(end, opcode, &sge, 0, word.rkey, IBV_WC_SUCCESS);
	if (plain)
		check_eq(pattern_check(end->node.buf, len, word.seed), len);
	else
		verify(&end->node, mine_list,
		       opcode == IBV_WR_RDMA_READ ? len : length_of(mine_list), word.seed);
	msg_send(fd, &word, sizeof(word));
}

static void two_processes(void)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
						      IBV_WR_SEND };
	struct word stop = { .stop = true };
	struct address peer;
	struct end end;
	pid_t pid;
	int fd;

	pid = spawn_self("serve", &fd);
	open_end(&end);
	node_meet(&end.node, fd, &peer);
	for (int i = 0; i < 24; i++)
		exchange(&end, fd, opcodes[i % 3], i / 3 & 1, i / 6 & 1, i >= 12);
	msg_send(fd, &stop, sizeof(stop));
	spawn_wait(pid);
	close(fd);
	close_end(&end);
}

/* --- within a process ---------------------------------------------------------------------------- */

static void pair(struct end *a, struct end *b)
{
	struct address to_a, to_b;

	open_end(a);
	open_end(b);
	node_address(&a->node, &to_a);
	node_address(&b->node, &to_b);
	node_connect(&a->node, &to_b);
	node_connect(&b->node, &to_a);
}

static void close_pair(struct end *a, struct end *b)
{
	close_end(a);
	close_end(b);
}

static void one_process(void)
{
	struct end a, b;
	struct ibv_sge sge;

	pair(&a, &b);
	for (int i = 0; i < 8; i++) {
		bool mine = i & 1, theirs = i & 2;
		uint32_t len = mine && theirs ? LIST : INTERLEAVED;

		configure(&a, mine, i & 4, IBV_ACCESS_LOCAL_WRITE);
		configure(&b, theirs, i & 4, ACCESS_ALL);
		sge = whole(&a, 0, len);
		fill(&a.node, mine, 1);
		memset(b.node.buf, 0xee, SIZE);
		expect_post(&a, IBV_WR_RDMA_WRITE, &sge, 0, b.mkey->rkey, IBV_WC_SUCCESS);
		verify(&b.node, theirs, len, 1);
		memset(a.node.buf, 0xee, SIZE);
		expect_post(&a, IBV_WR_RDMA_READ, &sge, 0, b.mkey->rkey, IBV_WC_SUCCESS);
		verify(&a.node, mine, len, 1);
		memset(b.node.buf, 0xee, SIZE);
		sge = whole(&b, 0, len);
		post_recv(&b, &sge);
		sge = whole(&a, 0, len);
		expect_post(&a, IBV_WR_SEND, &sge, 0, 0, IBV_WC_SUCCESS);
		cq_expect(b.node.recv_cq, 9, IBV_WC_SUCCESS);
		verify(&b.node, theirs, len, 1);
	}
	close_pair(&a, &b);
}

/* The receiver is not ready for the last packet of a WRITE with immediate data; all arrives once it is. */
static void late_receive(void)
{
	struct ibv_sge sge, dummy;
	struct end a, b;
	struct ibv_wc wc;

	pair(&a, &b);
	configure(&a, true, false, IBV_ACCESS_LOCAL_WRITE);
	configure(&b, true, false, ACCESS_ALL);
	fill(&a.node, true, 3);
	memset(b.node.buf, 0xee, SIZE);
	sge = whole(&a, 0, LIST);
	dummy = (struct ibv_sge){ (uintptr_t)b.node.buf, 1, b.node.mr->lkey };
	check_eq(post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 0, b.mkey->rkey), 0);
	check_eq(ibv_poll_cq(a.node.send_cq, 1, &wc), 0);
	post_recv(&b, &dummy);
	cq_expect(a.node.send_cq, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_SUCCESS);
	cq_expect(b.node.recv_cq, 9, IBV_WC_SUCCESS);
	verify(&b.node, true, LIST, 3);
	close_pair(&a, &b);
}

static void atomics(void)
{
	struct end a, b;
	uint64_t word = 41, *result;
	struct ibv_sge sge;

	pair(&a, &b);
	configure(&a, false, false, IBV_ACCESS_LOCAL_WRITE);
	configure(&b, false, false, ACCESS_ALL);
	/* The second piece of block 3: B bytes at FAR + 3 * B. */
	memcpy(byte_of(&b.node, false, 3 * (A + B) + A), &word, 8);
	sge = whole(&a, A, 8);
	expect_post(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 3 * (A + B) + A, b.mkey->rkey,
		    IBV_WC_SUCCESS);
	memcpy(&word, byte_of(&b.node, false, 3 * (A + B) + A), 8);
	check_eq(word, 46);
	result = (uint64_t *)byte_of(&a.node, false, A);
	check_eq(*result, 41);
	/* A word that two pieces share has no place. */
	expect_post(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, A - 4, b.mkey->rkey,
		    IBV_WC_REM_ACCESS_ERR);
	close_pair(&a, &b);
}

/* A fresh pair, of which the remote key has these rights; then the request fails so. */
static void refused(enum ibv_wr_opcode opcode, uint32_t mine, uint32_t theirs, uint32_t offset,
		    uint32_t len, enum ibv_wc_status status)
{
	struct end a, b;
	struct ibv_sge sge;

	pair(&a, &b);
	configure(&a, true, false, mine);
	configure(&b, true, false, theirs);
	sge = whole(&a, 0, len);
	expect_post(&a, opcode, &sge, offset, b.mkey->rkey, status);
	close_pair(&a, &b);
}

static void rights(void)
{
	refused(IBV_WR_RDMA_WRITE, 0, ACCESS_ALL, LIST - 100, 101, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_RDMA_WRITE, 0, ACCESS_ALL, LIST - 100, 100, IBV_WC_SUCCESS);
	refused(IBV_WR_RDMA_WRITE, 0, ACCESS_ALL, UINT32_MAX, 100, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_RDMA_WRITE, 0, IBV_ACCESS_REMOTE_READ, 0, 100, IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, 0, 100,
		IBV_WC_REM_ACCESS_ERR);
	refused(IBV_WR_RDMA_READ, 0, ACCESS_ALL, 0, 100, IBV_WC_LOC_PROT_ERR);
	refused(IBV_WR_RDMA_WRITE, 0, ACCESS_ALL, 0, LIST + 1, IBV_WC_LOC_PROT_ERR);
	refused(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, 1, 8,
		IBV_WC_REM_ACCESS_ERR);
}

/* What a key is made of has rights, bounds and a domain of its own, and may go away. */
static void made_of(void)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr[3];
	struct end a, b;

	for (int i = 0; i < 4; i++) {
		struct ibv_sge sge[2], from;

		pair(&a, &b);
		pd = ibv_alloc_pd(b.node.ctx);
		mr[0] = ibv_reg_mr(b.node.pd, b.node.buf, 4096, 0);
		mr[1] = ibv_reg_mr(pd, b.node.buf, 4096, ACCESS_ALL);
		mr[2] = ibv_reg_mr(b.node.pd, b.node.buf, 4096, ACCESS_ALL);
		check(pd && mr[0] && mr[1] && mr[2]);
		sge[0] = (struct ibv_sge){ (uintptr_t)b.node.buf + 8192, 64, b.node.mr->lkey };
		sge[1] = (struct ibv_sge){ (uintptr_t)b.node.buf, 4096, mr[i % 3]->lkey };
		if (i == 2)
			sge[1].length++;
		ibv_wr_start(b.ex);
		b.ex->wr_flags = IBV_SEND_INLINE;
		mlx5dv_wr_mr_list(b.dv, b.mkey, ACCESS_ALL, 2, sge);
		check_eq(ibv_wr_complete(b.ex), 0);
		if (i == 3)
			check_eq(ibv_dereg_mr(mr[0]), 0);
		from = (struct ibv_sge){ (uintptr_t)a.node.buf, sge[1].length, a.node.mr->lkey };
		expect_post(&a, IBV_WR_RDMA_WRITE, &from, 64, b.mkey->rkey, IBV_WC_REM_ACCESS_ERR);
		for (int k = i == 3; k < 3; k++)
			check_eq(ibv_dereg_mr(mr[k]), 0);
		check_eq(ibv_dealloc_pd(pd), 0);
		close_pair(&a, &b);
	}
}

/* --- keys come and go ---------------------------------------------------------------------------- */

static void invalidated(void)
{
	struct ibv_sge sge;
	struct end a, b;

	/* by its owner, then configured anew, then by the peer */
	pair(&a, &b);
	configure(&a, true, true, IBV_ACCESS_LOCAL_WRITE);
	configure(&b, true, true, ACCESS_ALL);
	expect_post(&b, IBV_WR_LOCAL_INV, NULL, 0, b.mkey->rkey, IBV_WC_SUCCESS);
	configure(&b, false, true, ACCESS_ALL);
	fill(&a.node, true, 8);
	memset(b.node.buf, 0xee, SIZE);
	sge = whole(&a, 0, INTERLEAVED);
	expect_post(&a, IBV_WR_RDMA_WRITE, &sge, 0, b.mkey->rkey, IBV_WC_SUCCESS);
	verify(&b.node, false, INTERLEAVED, 8);
	sge = (struct ibv_sge){ (uintptr_t)b.node.buf, 64, b.node.mr->lkey };
	post_recv(&b, &sge);
	sge = whole(&a, 0, 64);
	expect_post(&a, IBV_WR_SEND_WITH_INV, &sge, 0, b.mkey->rkey, IBV_WC_SUCCESS);
	cq_expect(b.node.recv_cq, 9, IBV_WC_SUCCESS);
	expect_post(&a, IBV_WR_RDMA_WRITE, &sge, 0, b.mkey->rkey, IBV_WC_REM_ACCESS_ERR);
	close_pair(&a, &b);

	/* what is free cannot be invalidated, nor by a peer what it may not */
	pair(&a, &b);
	expect_post(&b, IBV_WR_LOCAL_INV, NULL, 0, b.mkey->rkey, IBV_WC_LOC_QP_OP_ERR);
	close_pair(&a, &b);
	pair(&a, &b);
	check_eq(mlx5dv_destroy_mkey(b.mkey), 0);
	b.mkey = create_mkey(b.node.pd, 0);
	configure(&b, true, false, ACCESS_ALL);
	sge = (struct ibv_sge){ (uintptr_t)b.node.buf, 64, b.node.mr->lkey };
	post_recv(&b, &sge);
	sge = (struct ibv_sge){ (uintptr_t)a.node.buf, 64, a.node.mr->lkey };
	expect_post(&a, IBV_WR_SEND_WITH_INV, &sge, 0, b.mkey->rkey, IBV_WC_REM_ACCESS_ERR);
	close_pair(&a, &b);
}

/* Rights alone change; the low byte changes where the key was made so. */
static void changed(void)
{
	struct mlx5dv_mkey_conf_attr conf = { 0 };
	struct ibv_sge sge;
	struct end a, b;
	uint32_t old;

	pair(&a, &b);
	check_eq(mlx5dv_destroy_mkey(b.mkey), 0);
	b.mkey = create_mkey(b.node.pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG);
	configure(&b, true, false, ACCESS_ALL);
	b.mkey->rkey = b.mkey->lkey ^= 0x5a;
	ibv_wr_start(b.ex);
	b.ex->wr_flags = IBV_SEND_INLINE;
	mlx5dv_wr_mkey_configure(b.dv, b.mkey, 1, &conf);
	mlx5dv_wr_set_mkey_access_flags(b.dv, IBV_ACCESS_REMOTE_READ);
	check_eq(ibv_wr_complete(b.ex), 0);
	fill(&b.node, true, 12);
	sge = (struct ibv_sge){ (uintptr_t)a.node.buf, LIST, a.node.mr->lkey };
	expect_post(&a, IBV_WR_RDMA_READ, &sge, 0, b.mkey->rkey, IBV_WC_SUCCESS);
	check_eq(pattern_check(a.node.buf, LIST, 12), LIST);
	expect_post(&a, IBV_WR_RDMA_WRITE, &sge, 0, b.mkey->rkey, IBV_WC_REM_ACCESS_ERR);
	close_pair(&a, &b);

	pair(&a, &b);
	check_eq(mlx5dv_destroy_mkey(b.mkey), 0);
	b.mkey = create_mkey(b.node.pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG);
	configure(&b, true, false, ACCESS_ALL);
	old = b.mkey->rkey;
	b.mkey->rkey = b.mkey->lkey ^= 0x5a;
	configure(&b, true, false, ACCESS_ALL);
	sge = (struct ibv_sge){ (uintptr_t)a.node.buf, LIST, a.node.mr->lkey };
	expect_post(&a, IBV_WR_RDMA_READ, &sge, 0, old, IBV_WC_REM_ACCESS_ERR);
	close_pair(&a, &b);

	/* it was not made so */
	pair(&a, &b);
	b.mkey->lkey ^= 0x5a;
	ibv_wr_start(b.ex);
	b.ex->wr_id = 5;
	b.ex->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	mlx5dv_wr_mkey_configure(b.dv, b.mkey, 0, &conf);
	check_eq(ibv_wr_complete(b.ex), 0);
	cq_expect(b.node.send_cq, 5, IBV_WC_MW_BIND_ERR);
	close_pair(&a, &b);
}

/* What the library does not post. */
static void not_posted(void)
{
	struct mlx5dv_mkey_conf_attr conf = { 0 }, odd = { .conf_flags = 1 << 9 };
	struct mlx5dv_mkey_init_attr attr = { .max_entries = 1 };
	struct mlx5dv_mr_interleaved wide = { 0, 65000, 1000, 0 };
	struct ibv_sge sge[64];
	struct end a, b;

	pair(&a, &b);
	for (int i = 0; i < 64; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)a.node.buf, 1, a.node.mr->lkey };
	for (int i = 0; i < 12; i++) {
		static const int want[] = {
			EOPNOTSUPP, EINVAL, EINVAL,     EINVAL, ENOMEM, EINVAL,
			EINVAL,     EINVAL, EOPNOTSUPP, EINVAL, EINVAL, EINVAL
		};

		ibv_wr_start(a.ex);
		a.ex->wr_flags = i ? IBV_SEND_INLINE : 0;
		if (i == 4)
			mlx5dv_wr_mr_list(a.dv, a.mkey, 0, 64, sge);
		else if (i == 5)
			mlx5dv_wr_mr_list(a.dv, a.mkey, 1 << 20, 1, sge);
		else if (i == 6)
			mlx5dv_wr_mr_interleaved(a.dv, a.mkey, 0, 0, 1, &wide);
		else if (i == 7)
			mlx5dv_wr_mr_interleaved(a.dv, a.mkey, 0, 1, 1, &wide);
		else if (i == 8)
			mlx5dv_wr_mkey_configure(a.dv, a.mkey, 0, &odd);
		else if (i == 9)
			mlx5dv_wr_memcpy(a.dv, 0, 0, 0, 0, (1 << 24) + 1);
		else if (i == 10)
			mlx5dv_wr_mr_list(a.dv, NULL, 0, 1, sge);
		else if (i == 11)
			mlx5dv_wr_mr_list(a.dv, a.mkey, 0, 0, sge);
		else
			mlx5dv_wr_mkey_configure(a.dv, a.mkey, i == 3 ? 2 : 1, &conf);
		if (i == 2 || i == 3) {
			mlx5dv_wr_set_mkey_access_flags(a.dv, 0);
			mlx5dv_wr_set_mkey_access_flags(a.dv, 0);
		}
		check_eq(ibv_wr_complete(a.ex), want[i]);
	}
	/* Nothing of it was posted, and the queue pair works. */
	configure(&a, true, false, 0);
	close_pair(&a, &b);
	check(!mlx5dv_create_mkey(NULL) && errno == EINVAL);
	check(!mlx5dv_create_mkey(&attr) && errno == EINVAL);
	check_eq(mlx5dv_destroy_mkey(NULL), EINVAL);
}

static void flags(void)
{
	struct mlx5dv_mkey_init_attr attr = { .max_entries = 1 };
	struct end a, b;

	pair(&a, &b);
	attr.pd = a.node.pd;
	attr.create_flags =
		MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
	check(!mlx5dv_create_mkey(&attr) && errno == EOPNOTSUPP);
	attr.create_flags = 1 << 20;
	check(!mlx5dv_create_mkey(&attr) && errno == EINVAL);
	check_eq(ibv_dealloc_pd(a.node.pd), EBUSY);
	check(!create_qp(&a.node, 1 << 20) && errno == EINVAL);
	close_pair(&a, &b);
}

/* --- other work requests ------------------------------------------------------------------------- */

static void copies(void)
{
	struct end a, b;
	struct ibv_wc wc;

	pair(&a, &b);
	pattern_fill(a.node.buf, 100000, 1);
	ibv_wr_start(a.ex);
	a.ex->wr_id = 6;
	a.ex->wr_flags = IBV_SEND_SIGNALED;
	mlx5dv_wr_memcpy(a.dv, a.node.mr->lkey, (uintptr_t)a.node.buf + FAR, a.node.mr->lkey,
			 (uintptr_t)a.node.buf, 100000);
	check_eq(ibv_wr_complete(a.ex), 0);
	cq_expect_at(__FILE__, __LINE__, a.node.send_cq, 6, IBV_WC_SUCCESS, &wc);
	check_eq(wc.opcode, MLX5DV_WC_MEMCPY);
	check_eq(pattern_check(a.node.buf + FAR, 100000, 1), 100000);
	/* from an indirect key, and beyond its end */
	configure(&a, false, false, IBV_ACCESS_LOCAL_WRITE);
	fill(&a.node, false, 4);
	ibv_wr_start(a.ex);
	a.ex->wr_id = 6;
	a.ex->wr_flags = IBV_SEND_SIGNALED;
	mlx5dv_wr_memcpy(a.dv, a.node.mr->lkey, (uintptr_t)a.node.buf + SIZE - INTERLEAVED,
			 a.mkey->lkey, 0, INTERLEAVED);
	check_eq(ibv_wr_complete(a.ex), 0);
	cq_expect(a.node.send_cq, 6, IBV_WC_SUCCESS);
	check_eq(pattern_check(a.node.buf + SIZE - INTERLEAVED, INTERLEAVED, 4), INTERLEAVED);
	/* to one */
	pattern_fill(a.node.buf + SIZE - INTERLEAVED, INTERLEAVED, 5);
	ibv_wr_start(a.ex);
	mlx5dv_wr_memcpy(a.dv, a.mkey->lkey, 0, a.node.mr->lkey,
			 (uintptr_t)a.node.buf + SIZE - INTERLEAVED, INTERLEAVED);
	check_eq(ibv_wr_complete(a.ex), 0);
	cq_expect(a.node.send_cq, 6, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < INTERLEAVED; i++)
		check_eq(*byte_of(&a.node, false, i), a.node.buf[SIZE - INTERLEAVED + i]);
	ibv_wr_start(a.ex);
	mlx5dv_wr_memcpy(a.dv, a.node.mr->lkey, (uintptr_t)a.node.buf + SIZE - 10, a.node.mr->lkey,
			 (uintptr_t)a.node.buf, 11);
	check_eq(ibv_wr_complete(a.ex), 0);
	cq_expect(a.node.send_cq, 6, IBV_WC_LOC_PROT_ERR);
	close_pair(&a, &b);
}

/* Raw WQEs between others, round the ring several times: each has its own opcode in completions. */
static void raw_wqes(void)
{
	struct end a, b;

	pair(&a, &b);
	for (uint32_t i = 0; i < 500; i++) {
		struct ibv_wc wc;
		struct wqe wqe;

		memcpy(a.node.buf, &i, 4);
		ibv_wr_start(a.ex);
		a.ex->wr_id = i;
		a.ex->wr_flags = IBV_SEND_SIGNALED;
		if (i % 3) {
			wqe_begin(&wqe, 0, 0, 0);
			wqe_put_raddr(&wqe, (uintptr_t)b.node.buf, b.node.mr->rkey);
			if (i % 3 == 1)
				wqe_put_data(&wqe, (uintptr_t)a.node.buf, 4, a.node.mr->lkey);
			else
				wqe_put_inline(&wqe, a.node.buf, 200);
			mlx5dv_set_ctrl_seg((void *)wqe.bytes, 999, MLX5_OPCODE_RDMA_WRITE, 0,
					    a.node.qp->qp_num, MLX5_WQE_CTRL_CQ_UPDATE,
					    (uint8_t)(wqe.size / 16), 0xff, 0);
			mlx5dv_wr_raw_wqe(a.dv, wqe.bytes);
		} else {
			ibv_wr_rdma_write(a.ex, b.node.mr->rkey, (uintptr_t)b.node.buf);
			ibv_wr_set_sge(a.ex, a.node.mr->lkey, (uintptr_t)a.node.buf, 4);
		}
		check_eq(ibv_wr_complete(a.ex), 0);
		cq_expect_at(__FILE__, __LINE__, a.node.send_cq, i, IBV_WC_SUCCESS, &wc);
		check_eq(wc.opcode, i % 3 ? (int)MLX5DV_WC_RAW_WQE : (int)IBV_WC_RDMA_WRITE);
		check(!memcmp(b.node.buf, &i, 4));
	}
	close_pair(&a, &b);
}

/* In SQD what was not begun can be taken back: it completes, and does nothing. */
static void taken_back(void)
{
	struct end a, b;
	struct ibv_sge sge;

	pair(&a, &b);
	memset(b.node.buf, 0, 64);
	memset(a.node.buf, 1, 64);
	check_eq(mlx5dv_qp_cancel_posted_send_wrs(a.dv, 1), -EINVAL);
	check_eq(qp_set_state(a.node.qp, IBV_QPS_SQD), 0);
	for (uint32_t i = 0; i < 6; i++) {
		struct ibv_send_wr wr = { .wr_id = i % 3,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_RDMA_WRITE,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad;

		sge = (struct ibv_sge){ (uintptr_t)a.node.buf, 1, a.node.mr->lkey };
		wr.wr.rdma.remote_addr = (uintptr_t)b.node.buf + i;
		wr.wr.rdma.rkey = b.node.mr->rkey;
		check_eq(ibv_post_send(a.node.qp, &wr, &bad), 0);
	}
	check_eq(mlx5dv_qp_cancel_posted_send_wrs(a.dv, 1), 2);
	check_eq(mlx5dv_qp_cancel_posted_send_wrs(a.dv, 7), 0);
	check_eq(qp_set_state(a.node.qp, IBV_QPS_RTS), 0);
	for (uint32_t i = 0; i < 6; i++)
		cq_expect(a.node.send_cq, i % 3, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < 6; i++)
		check_eq(b.node.buf[i], i % 3 != 1);
	close_pair(&a, &b);
}

/* The program has written over the ring: what is there is not known, but the call comes back. */
static void garbage_taken_back(void)
{
	struct end a, b;
	struct mlx5dv_qp dv;
	struct mlx5dv_obj obj = { .qp = { .out = &dv } };

	for (uint32_t units = 0; units < 64; units += 63) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad;

		pair(&a, &b);
		sge = (struct ibv_sge){ (uintptr_t)a.node.buf, 1, a.node.mr->lkey };
		obj.qp.in = a.node.qp;
		check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
		check_eq(qp_set_state(a.node.qp, IBV_QPS_SQD), 0);
		for (uint32_t i = 0; i < 3; i++)
			check_eq(ibv_post_send(a.node.qp, &wr, &bad), 0);
		for (uint32_t i = 0; i < dv.sq.wqe_cnt; i++)
			((struct mlx5_wqe_ctrl_seg *)((char *)dv.sq.buf + i * 64))->qpn_ds =
				htobe32(a.node.qp->qp_num << 8 | units);
		check(mlx5dv_qp_cancel_posted_send_wrs(a.dv, 7) >= 0);
		close_pair(&a, &b);
	}
}

/* Requests that have no data of their own refuse it, wherever in the ring they are. */
static void no_data(void)
{
	struct end a, b;
	struct ibv_sge sge;

	pair(&a, &b);
	sge = (struct ibv_sge){ (uintptr_t)a.node.buf, 64, a.node.mr->lkey };
	for (uint32_t i = 0; i < 6; i++) {
		ibv_wr_start(a.ex);
		a.ex->wr_id = i;
		a.ex->wr_flags = IBV_SEND_INLINE;
		if (i & 1)
			mlx5dv_wr_memcpy(a.dv, a.node.mr->lkey, sge.addr, a.node.mr->lkey,
					 sge.addr + 64, 64);
		else
			mlx5dv_wr_mr_list(a.dv, a.mkey, IBV_ACCESS_LOCAL_WRITE, 1, &sge);
		if (i < 2)
			ibv_wr_set_sge(a.ex, sge.lkey, sge.addr, 1);
		else if (i < 4)
			ibv_wr_set_sge_list(a.ex, 1, &sge);
		else
			ibv_wr_set_inline_data(a.ex, a.node.buf, 4);
		check_eq(ibv_wr_complete(a.ex), EINVAL);
	}
	close_pair(&a, &b);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		serve(ROLE_FD);
		return 0;
	}
	one_process();
	late_receive();
	atomics();
	rights();
	made_of();
	invalidated();
	changed();
	not_posted();
	flags();
	copies();
	raw_wqes();
	taken_back();
	garbage_taken_back();
	no_data();
	two_processes();
	return 0;
}
