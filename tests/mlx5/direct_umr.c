// SPDX-License-Identifier: MIT
/*
 * Indirect keys as collective libraries make them: layouts that lie in registered memory, which a raw WQE points to, of
 * more pieces than a WQE could hold; keys that are made of indirect keys, made before these are laid out; matrices that
 * are transposed out of such keys. Within a process and between two. And lists that lie: of foreign memory, of memory that
 * is gone, too long, in circles, or that change while they are read.
 */
#include "direct.h"

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	SIZE = 1 << 20,
	DATA = 0,             /* what keys are made of */
	PLAIN = SIZE / 2,     /* what is written from and read into */
	LISTS = SIZE / 4 * 3, /* layouts */
	PIECES = 3000,
	PIECE = 40, /* bytes between two pieces: none is longer */
	UNIT = 16,
	REPEATED = 0x400,
	LOCAL_MMO = 0x32,
};

struct end {
	struct node node;
	struct ibv_qp_ex *ex;
	struct mlx5dv_qp_ex *dv;
};

static struct ibv_qp *create_qp(struct node *node)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = node->send_cq,
		.recv_cq = node->recv_cq,
		.cap = { .max_send_wr = 32,
			 .max_recv_wr = 4,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 256 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = node->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct mlx5dv_qp_init_attr direct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_RAW_WQE,
	};

	return mlx5dv_create_qp(node->ctx, &attr, &direct);
}

static void set_qp(struct end *end)
{
	end->node.qp = create_qp(&end->node);
	check(end->node.qp);
	end->ex = ibv_qp_to_qp_ex(end->node.qp);
	end->dv = mlx5dv_qp_ex_from_ibv_qp_ex(end->ex);
}

static void open_end(struct end *end)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	node_open(&end->node, &attr);
	check_eq(ibv_destroy_qp(end->node.qp), 0);
	set_qp(end);
}

static void connect_self(struct end *end)
{
	struct address self;

	node_address(&end->node, &self);
	node_connect(&end->node, &self);
}

/* A queue pair that is its own peer, as those are that only configure keys. */
static void open_self(struct end *end)
{
	open_end(end);
	connect_self(end);
}

/* A new one, after an error. */
static void renew(struct end *end)
{
	check_eq(ibv_destroy_qp(end->node.qp), 0);
	set_qp(end);
	connect_self(end);
}

static struct mlx5dv_mkey *create_mkey(struct end *end, uint16_t entries)
{
	struct mlx5dv_mkey_init_attr attr = { end->node.pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
					      entries };
	struct mlx5dv_mkey *mkey = mlx5dv_create_mkey(&attr);

	check(mkey);
	return mkey;
}

/* --- work requests ------------------------------------------------------------------------------- */

static enum ibv_wc_status post_raw(struct end *end, struct wqe *wqe)
{
	struct ibv_wc wc;

	mlx5dv_set_ctrl_seg((void *)wqe->bytes, 0, wqe->opcode, 0, end->node.qp->qp_num,
			    MLX5_WQE_CTRL_CQ_UPDATE, (uint8_t)(wqe->size / UNIT), 0,
			    htobe32(wqe->imm));
	ibv_wr_start(end->ex);
	end->ex->wr_id = 7;
	mlx5dv_wr_raw_wqe(end->dv, wqe->bytes);
	check_eq(ibv_wr_complete(end->ex), 0);
	check(cq_wait(end->node.send_cq, &wc, PATIENCE_MS));
	check_eq(wc.wr_id, 7);
	return wc.status;
}

/* What a WQE with a pointer says, apart from its key. */
struct pointer {
	uint64_t addr;
	uint32_t key;
	uint16_t units;
	uint64_t length; /* of the key */
	uint32_t access;
	bool none; /* the WQE ends before the pointer */
};

static enum ibv_wc_status configure(struct end *end, struct mlx5dv_mkey *mkey,
				    const struct pointer *to)
{
	struct mlx5_wqe_umr_ctrl_seg *umr;
	struct mlx5_wqe_mkey_context_seg *context;
	struct mlx5_wqe_umr_klm_seg *pointer;
	struct wqe wqe;

	wqe_begin(&wqe, MLX5_OPCODE_UMR, 0, mkey->lkey);
	umr = wqe_put(&wqe, sizeof(*umr));
	umr->klm_octowords = htobe16(to->units);
	umr->mkey_mask =
		htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
	context = wqe_put(&wqe, sizeof(*context));
	if (to->access & IBV_ACCESS_LOCAL_WRITE)
		context->access_flags |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE;
	if (to->access & IBV_ACCESS_REMOTE_READ)
		context->access_flags |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ;
	if (to->access & IBV_ACCESS_REMOTE_WRITE)
		context->access_flags |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE;
	if (to->access & IBV_ACCESS_REMOTE_ATOMIC)
		context->access_flags |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC;
	context->qpn_mkey = htobe32(0xffffff00u | (mkey->lkey & 0xff));
	context->len = htobe64(to->length);
	if (!to->none) {
		pointer = wqe_put(&wqe, sizeof(*pointer));
		pointer->mkey = htobe32(to->key);
		pointer->address = htobe64(to->addr);
	}
	return post_raw(end, &wqe);
}

/* A list of one piece of memory, or of another key, inside of the WQE. */
static void configure_one(struct end *end, struct mlx5dv_mkey *mkey, uint32_t access, uint64_t addr,
			  uint32_t len, uint32_t key)
{
	struct ibv_sge sge = { addr, len, key };

	ibv_wr_start(end->ex);
	end->ex->wr_id = 8;
	end->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mr_list(end->dv, mkey, access, 1, &sge);
	check_eq(ibv_wr_complete(end->ex), 0);
	cq_expect(end->node.send_cq, 8, IBV_WC_SUCCESS);
}

static enum ibv_wc_status rdma(struct end *end, enum ibv_wr_opcode opcode, uint64_t addr,
			       uint32_t lkey, uint32_t len, uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge = { addr, len, lkey };
	struct ibv_send_wr wr = { .wr_id = 9,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = raddr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	}
	check_eq(ibv_post_send(end->node.qp, &wr, &bad), 0);
	check(cq_wait(end->node.send_cq, &wc, PATIENCE_MS));
	check_eq(wc.wr_id, 9);
	return wc.status;
}

static enum ibv_wc_status write_plain(struct end *end, uint32_t len, uint64_t raddr, uint32_t rkey)
{
	return rdma(end, IBV_WR_RDMA_WRITE, (uintptr_t)end->node.buf + PLAIN, end->node.mr->lkey,
		    len, raddr, rkey);
}

static enum ibv_wc_status read_plain(struct end *end, uint32_t len, uint64_t raddr, uint32_t rkey)
{
	return rdma(end, IBV_WR_RDMA_READ, (uintptr_t)end->node.buf + PLAIN, end->node.mr->lkey,
		    len, raddr, rkey);
}

/* --- layouts ------------------------------------------------------------------------------------- */

static uint32_t piece_len(uint32_t i)
{
	return 1 + i % (PIECE - 1);
}

/* Pieces from the end of the data to its beginning; returns their bytes. */
static uint32_t put_list(struct node *node, void *at)
{
	struct mlx5_wqe_umr_klm_seg *klm = at;
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < PIECES; i++) {
		klm[i].byte_count = htobe32(piece_len(i));
		klm[i].mkey = htobe32(node->mr->lkey);
		klm[i].address = htobe64((uintptr_t)node->buf + (PIECES - 1 - i) * PIECE);
		bytes += piece_len(i);
	}
	return bytes;
}

static uint8_t *list_byte(struct node *node, uint32_t at)
{
	uint32_t i = 0;

	while (at >= piece_len(i))
		at -= piece_len(i++);
	return node->buf + (PIECES - 1 - i) * PIECE + at;
}

/* The bytes of the list have the pattern, and no other byte of the data was touched. */
static void verify_list(struct node *node, uint32_t bytes, uint32_t seed)
{
	uint8_t *want = malloc(bytes), *all = malloc(PLAIN);

	pattern_fill(want, bytes, seed);
	memcpy(all, node->buf, PLAIN);
	for (uint32_t i = 0, at = 0; i < PIECES; at += piece_len(i), i++) {
		uint8_t *piece = list_byte(node, at);

		check(!memcmp(piece, want + at, piece_len(i)));
		memset(all + (piece - node->buf), 0xee, piece_len(i));
	}
	for (uint32_t i = 0; i < PLAIN; i++)
		check_eq(all[i], 0xee);
	free(want);
	free(all);
}

static struct pointer pointer_to(struct end *end, uint32_t units, uint64_t length)
{
	return (struct pointer){ .addr = (uintptr_t)end->node.buf + LISTS,
				 .key = end->node.mr->lkey,
				 .units = (uint16_t)units,
				 .length = length,
				 .access = ACCESS_ALL };
}

/* --- lists in memory ----------------------------------------------------------------------------- */

static void long_list(void)
{
	struct mlx5dv_mkey *mkey;
	struct pointer to;
	struct end end;
	uint32_t bytes;

	open_self(&end);
	mkey = create_mkey(&end, PIECES);
	bytes = put_list(&end.node, end.node.buf + LISTS);
	to = pointer_to(&end, PIECES, bytes);
	check_eq(configure(&end, mkey, &to), IBV_WC_SUCCESS);
	/* It is read when the key is configured, not when it is used. */
	memset(end.node.buf + LISTS, 0xff, PIECES * UNIT);
	memset(end.node.buf, 0xee, PLAIN);
	pattern_fill(end.node.buf + PLAIN, bytes, 1);
	check_eq(write_plain(&end, bytes, 0, mkey->rkey), IBV_WC_SUCCESS);
	verify_list(&end.node, bytes, 1);
	memset(end.node.buf + PLAIN, 0, bytes);
	check_eq(read_plain(&end, bytes, 0, mkey->rkey), IBV_WC_SUCCESS);
	check_eq(pattern_check(end.node.buf + PLAIN, bytes, 1), bytes);
	check_eq(read_plain(&end, 2, bytes - 1, mkey->rkey), IBV_WC_REM_ACCESS_ERR);
	check_eq(mlx5dv_destroy_mkey(mkey), 0);
	node_close(&end.node);
}

/* Columns of a matrix: a block of pieces that repeats, and lies in memory. */
static uint32_t put_block(struct node *node, void *at, uint32_t repeat, uint16_t pieces)
{
	struct mlx5_wqe_umr_repeat_block_seg *block = at;
	struct mlx5_wqe_umr_repeat_ent_seg *entry = (void *)((char *)at + UNIT);

	memset(block, 0, UNIT);
	block->byte_count = htobe32(8u * pieces);
	block->op = htobe32(REPEATED);
	block->repeat_count = htobe32(repeat);
	block->num_ent = htobe16(pieces);
	for (uint32_t i = 0; i < pieces; i++) {
		entry[i].stride = htobe16(24);
		entry[i].byte_count = htobe16(8);
		entry[i].memkey = htobe32(node->mr->lkey);
		entry[i].va = htobe64((uintptr_t)node->buf + i * 0x1000);
	}
	return repeat * 8u * pieces;
}

static void blocks(void)
{
	enum { REPEAT = 100, COLUMNS = 90 };
	struct mlx5dv_mkey *mkey;
	struct pointer to;
	struct end end;
	uint32_t bytes;

	open_self(&end);
	mkey = create_mkey(&end, COLUMNS + 1);
	bytes = put_block(&end.node, end.node.buf + LISTS, REPEAT, COLUMNS);
	to = pointer_to(&end, (COLUMNS + 1 + 3) & ~3u,
			bytes); /* as drivers do, in units of 64 bytes */
	check_eq(configure(&end, mkey, &to), IBV_WC_SUCCESS);
	memset(end.node.buf, 0xee, PLAIN);
	pattern_fill(end.node.buf + PLAIN, bytes, 2);
	check_eq(write_plain(&end, bytes, 0, mkey->rkey), IBV_WC_SUCCESS);
	for (uint32_t r = 0; r < REPEAT; r++)
		for (uint32_t i = 0; i < COLUMNS; i++) {
			check(!memcmp(end.node.buf + i * 0x1000 + r * 24,
				      end.node.buf + PLAIN + (r * COLUMNS + i) * 8, 8));
			check_eq(end.node.buf[i * 0x1000 + r * 24 + 8], 0xee);
		}
	check_eq(mlx5dv_destroy_mkey(mkey), 0);
	node_close(&end.node);
}

/* --- lists that lie ------------------------------------------------------------------------------ */

/* Refused so; and the key is what it was before: the data's first 64 bytes. */
static void refuse(struct end *end, struct mlx5dv_mkey *mkey, const struct pointer *to,
		   enum ibv_wc_status status)
{
	check_eq(configure(end, mkey, to), status);
	renew(end);
	pattern_fill(end->node.buf, 64, 3);
	memset(end->node.buf + PLAIN, 0, 64);
	check_eq(read_plain(end, 64, 0, mkey->rkey), IBV_WC_SUCCESS);
	check_eq(pattern_check(end->node.buf + PLAIN, 64, 3), 64);
	check_eq(read_plain(end, 65, 0, mkey->rkey), IBV_WC_REM_ACCESS_ERR);
	renew(end);
}

static void refused(void)
{
	struct mlx5_wqe_umr_repeat_block_seg *block;
	struct mlx5dv_mkey *mkey, *other;
	struct pointer good, to;
	struct ibv_pd *pd;
	struct ibv_mr *mr, *gone;
	struct end end;
	uint32_t bytes;
	void *memory;

	open_self(&end);
	mkey = create_mkey(&end, 64);
	other = create_mkey(&end, 4);
	configure_one(&end, mkey, ACCESS_ALL, (uintptr_t)end.node.buf, 64, end.node.mr->lkey);
	configure_one(&end, other, ACCESS_ALL, (uintptr_t)end.node.buf + LISTS, 4096,
		      end.node.mr->lkey);
	bytes = put_list(&end.node, end.node.buf + LISTS);
	good = pointer_to(&end, 64, bytes);
	/* no key, one of another domain, one that ends too early, one that has no memory of its own */
	to = good;
	to.key = 0;
	refuse(&end, mkey, &to, IBV_WC_LOC_PROT_ERR);
	pd = ibv_alloc_pd(end.node.ctx);
	mr = ibv_reg_mr(pd, end.node.buf, SIZE, ACCESS_ALL);
	check(pd && mr);
	to.key = mr->lkey;
	refuse(&end, mkey, &to, IBV_WC_LOC_PROT_ERR);
	to = good;
	to.addr = (uintptr_t)end.node.buf + SIZE - 64 * UNIT + 1;
	refuse(&end, mkey, &to, IBV_WC_LOC_PROT_ERR);
	to.addr = UINT64_MAX - 15;
	refuse(&end, mkey, &to, IBV_WC_LOC_PROT_ERR);
	to = good;
	to.key = other->lkey;
	to.addr = 0;
	refuse(&end, mkey, &to, IBV_WC_LOC_PROT_ERR);
	/* memory that is gone, in the middle of the list */
	memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(memory != MAP_FAILED);
	gone = ibv_reg_mr(end.node.pd, memory, 8192, 0);
	check(gone);
	memcpy((char *)memory + 4096 - 16 * UNIT, end.node.buf + LISTS, 64 * UNIT);
	check_eq(munmap((char *)memory + 4096, 4096), 0);
	to = good;
	to.key = gone->lkey;
	to.addr = (uintptr_t)memory + 4096 - 16 * UNIT;
	refuse(&end, mkey, &to, IBV_WC_LOC_PROT_ERR);
	check_eq(ibv_dereg_mr(gone), 0);
	check_eq(munmap(memory, 4096), 0);
	/* more pieces than the key has room for; no pointer */
	to = good;
	to.units = 65;
	refuse(&end, mkey, &to, IBV_WC_MW_BIND_ERR);
	to.units = UINT16_MAX; /* beyond what is registered */
	refuse(&end, mkey, &to, IBV_WC_LOC_PROT_ERR);
	to = good;
	to.none = true;
	refuse(&end, mkey, &to, IBV_WC_LOC_QP_OP_ERR);
	/* blocks: of more pieces than there are units, that repeat never, or too often to be counted */
	put_block(&end.node, end.node.buf + LISTS, 4, 63);
	block = (void *)(end.node.buf + LISTS);
	to = good;
	to.units = 63;
	refuse(&end, mkey, &to, IBV_WC_MW_BIND_ERR);
	block->num_ent = htobe16(UINT16_MAX);
	refuse(&end, mkey, &good, IBV_WC_MW_BIND_ERR);
	block->num_ent = htobe16(63);
	block->repeat_count = 0;
	refuse(&end, mkey, &good, IBV_WC_MW_BIND_ERR);
	/* a list of nothing is no layout that could be used */
	memset(block, 0, UNIT);
	check_eq(configure(&end, mkey, &good), IBV_WC_SUCCESS);
	check_eq(read_plain(&end, 1, 0, mkey->rkey), IBV_WC_REM_ACCESS_ERR);
	check_eq(ibv_dereg_mr(mr), 0);
	check_eq(ibv_dealloc_pd(pd), 0);
	check_eq(mlx5dv_destroy_mkey(mkey), 0);
	check_eq(mlx5dv_destroy_mkey(other), 0);
	node_close(&end.node);
}

struct scribbler {
	uint8_t *list;
	_Atomic bool stop;
};

static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	uint64_t state = 5;

	while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
		uint32_t n = next_random(&state);
		uint32_t value = n & 0x100 ? htobe32(REPEATED) : next_random(&state) & 0xffff00ff;

		__atomic_store_n((uint32_t *)s->list + n % 64, value, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* The list changes while it is read: the request ends, some way, and what was read is what is used. */
static void changing(void)
{
	struct scribbler s = { 0 };
	struct mlx5dv_mkey *mkey;
	pthread_t thread;
	struct end end;

	open_self(&end);
	mkey = create_mkey(&end, 16);
	s.list = end.node.buf + LISTS;
	check_eq(pthread_create(&thread, NULL, scribble, &s), 0);
	for (int i = 0; i < 200; i++) {
		struct pointer to = pointer_to(&end, 16, 1 << 20);
		enum ibv_wc_status status = configure(&end, mkey, &to);

		check(status == IBV_WC_SUCCESS || status == IBV_WC_MW_BIND_ERR);
		if (status == IBV_WC_SUCCESS)
			status = read_plain(&end, 100, 0, mkey->rkey);
		if (status != IBV_WC_SUCCESS)
			renew(&end);
	}
	atomic_store(&s.stop, true);
	pthread_join(thread, NULL);
	check_eq(mlx5dv_destroy_mkey(mkey), 0);
	node_close(&end.node);
}

/* --- keys of keys -------------------------------------------------------------------------------- */

/* One key over the receive buffers of several operations, made before any of them is known. */
static void team(void)
{
	enum { OPS = 40, BYTES = 1000, ROOM = 1 << 16 };
	struct mlx5dv_mkey *team, *op[OPS];
	struct mlx5_wqe_umr_klm_seg *klm;
	struct pointer to;
	struct end end;

	open_self(&end);
	team = create_mkey(&end, OPS);
	klm = (void *)(end.node.buf + LISTS);
	for (uint32_t i = 0; i < OPS; i++) {
		op[i] = create_mkey(&end, 4);
		klm[i] = (struct mlx5_wqe_umr_klm_seg){ htobe32(ROOM), htobe32(op[i]->rkey), 0 };
	}
	to = pointer_to(&end, OPS, (uint64_t)OPS * ROOM);
	check_eq(configure(&end, team, &to), IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < OPS; i++)
		configure_one(&end, op[i], IBV_ACCESS_LOCAL_WRITE,
			      (uintptr_t)end.node.buf + i * 2 * BYTES, BYTES, end.node.mr->lkey);
	memset(end.node.buf, 0xee, PLAIN);
	for (uint32_t i = 0; i < OPS; i++) {
		pattern_fill(end.node.buf + PLAIN, BYTES, i);
		check_eq(write_plain(&end, BYTES, i * ROOM, team->rkey), IBV_WC_SUCCESS);
	}
	for (uint32_t i = 0; i < OPS; i++) {
		check_eq(pattern_check(end.node.buf + i * 2 * BYTES, BYTES, i), BYTES);
		check_eq(end.node.buf[i * 2 * BYTES + BYTES], 0xee);
		check_eq(read_plain(&end, BYTES, i * ROOM, team->rkey), IBV_WC_SUCCESS);
		check_eq(pattern_check(end.node.buf + PLAIN, BYTES, i), BYTES);
	}
	/* Laid out anew, it is what all that are made of it mean. */
	configure_one(&end, op[3], IBV_ACCESS_LOCAL_WRITE, (uintptr_t)end.node.buf + PLAIN / 2, 8,
		      end.node.mr->lkey);
	*(uint64_t *)(end.node.buf + PLAIN / 2) = 37;
	check_eq(rdma(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)end.node.buf + PLAIN,
		      end.node.mr->lkey, 8, 3 * ROOM, team->rkey),
		 IBV_WC_SUCCESS);
	check_eq(*(uint64_t *)(end.node.buf + PLAIN), 37);
	check_eq(*(uint64_t *)(end.node.buf + PLAIN / 2), 42);
	/* It has bounds of its own, and rights. */
	check_eq(write_plain(&end, 9, 3 * ROOM, team->rkey), IBV_WC_REM_ACCESS_ERR);
	renew(&end);
	configure_one(&end, op[3], 0, (uintptr_t)end.node.buf, BYTES, end.node.mr->lkey);
	check_eq(read_plain(&end, 8, 3 * ROOM, team->rkey), IBV_WC_SUCCESS);
	check_eq(write_plain(&end, 8, 3 * ROOM, team->rkey), IBV_WC_REM_ACCESS_ERR);
	renew(&end);
	check_eq(mlx5dv_destroy_mkey(op[3]), 0);
	check_eq(read_plain(&end, 8, 3 * ROOM, team->rkey), IBV_WC_REM_ACCESS_ERR);
	renew(&end);
	check_eq(read_plain(&end, 8, 4 * ROOM, team->rkey), IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < OPS; i++)
		if (i != 3)
			check_eq(mlx5dv_destroy_mkey(op[i]), 0);
	check_eq(mlx5dv_destroy_mkey(team), 0);
	node_close(&end.node);
}

/* A message that goes through pieces of both kinds, with lengths that fit nothing. */
static void mixed(void)
{
	enum { PARTS = 9, BYTES = 10007 };
	struct mlx5dv_mkey *outer, *inner;
	struct ibv_sge sge[PARTS];
	uint32_t total = 0;
	struct end end;

	open_self(&end);
	outer = create_mkey(&end, PARTS);
	inner = create_mkey(&end, 4);
	configure_one(&end, inner, IBV_ACCESS_LOCAL_WRITE, (uintptr_t)end.node.buf, PLAIN / 2,
		      end.node.mr->lkey);
	for (uint32_t i = 0; i < PARTS; i++) {
		uint32_t len = BYTES + i * 13;

		sge[i] = (struct ibv_sge){ i & 1 ? i * 15000 : (uintptr_t)end.node.buf + i * 15000,
					   len, i & 1 ? inner->lkey : end.node.mr->lkey };
		total += len;
	}
	ibv_wr_start(end.ex);
	end.ex->wr_id = 8;
	end.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mr_list(end.dv, outer, ACCESS_ALL, PARTS, sge);
	check_eq(ibv_wr_complete(end.ex), 0);
	cq_expect(end.node.send_cq, 8, IBV_WC_SUCCESS);
	pattern_fill(end.node.buf + PLAIN, total, 4);
	check_eq(write_plain(&end, total, 0, outer->rkey), IBV_WC_SUCCESS);
	for (uint32_t i = 0, at = 0; i < PARTS; at += sge[i].length, i++)
		check(!memcmp(end.node.buf + i * 15000, end.node.buf + PLAIN + at, sge[i].length));
	memset(end.node.buf + PLAIN, 0, total);
	check_eq(read_plain(&end, total, 0, outer->rkey), IBV_WC_SUCCESS);
	check_eq(pattern_check(end.node.buf + PLAIN, total, 4), total);
	check_eq(mlx5dv_destroy_mkey(outer), 0);
	check_eq(mlx5dv_destroy_mkey(inner), 0);
	node_close(&end.node);
}

/* As deep as QUERY_HCA_CAP says (max_indirection), and no deeper; a circle has no end. */
static void depth(void)
{
	enum { DEEPEST = 4 };
	struct mlx5dv_mkey *key[DEEPEST + 1];
	struct end end;

	open_self(&end);
	for (int i = 0; i <= DEEPEST; i++) {
		key[i] = create_mkey(&end, 4);
		configure_one(&end, key[i], ACCESS_ALL, i ? 0 : (uintptr_t)end.node.buf, 64,
			      i ? key[i - 1]->lkey : end.node.mr->lkey);
	}
	pattern_fill(end.node.buf, 64, 6);
	check_eq(read_plain(&end, 64, 0, key[DEEPEST - 1]->rkey), IBV_WC_SUCCESS);
	check_eq(pattern_check(end.node.buf + PLAIN, 64, 6), 64);
	check_eq(read_plain(&end, 64, 0, key[DEEPEST]->rkey), IBV_WC_REM_ACCESS_ERR);
	renew(&end);
	configure_one(&end, key[0], ACCESS_ALL, 0, 64, key[0]->lkey);
	check_eq(read_plain(&end, 64, 0, key[0]->rkey), IBV_WC_REM_ACCESS_ERR);
	renew(&end);
	check_eq(rdma(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)end.node.buf + PLAIN,
		      end.node.mr->lkey, 8, 0, key[1]->rkey),
		 IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i <= DEEPEST; i++)
		check_eq(mlx5dv_destroy_mkey(key[i]), 0);
	node_close(&end.node);
}

struct turner {
	struct end end;
	struct mlx5dv_mkey *mine, *other;
};

/* Makes its own key of the other's and of memory in turn, and uses both. */
static void *turn(void *arg)
{
	struct turner *t = arg;

	for (int i = 0; i < 1500; i++) {
		struct node *node = &t->end.node;

		configure_one(&t->end, t->mine, ACCESS_ALL, i & 1 ? 0 : (uintptr_t)node->buf, 4096,
			      i & 1 ? t->other->lkey : node->mr->lkey);
		if (read_plain(&t->end, 4096, 0, i & 2 ? t->mine->rkey : t->other->rkey) !=
		    IBV_WC_SUCCESS)
			renew(&t->end);
	}
	return NULL;
}

/* Two threads, and keys that become circles and cease to be: nobody waits for ever. */
static void circles(void)
{
	struct turner t[2];
	pthread_t thread[2];

	memset(t, 0, sizeof(t));
	open_self(&t[0].end);
	t[1] = t[0];
	set_qp(&t[1].end);
	t[1].end.node.send_cq = ibv_create_cq(t[0].end.node.ctx, 64, NULL, NULL, 0);
	check(t[1].end.node.send_cq);
	check_eq(ibv_destroy_qp(t[1].end.node.qp), 0);
	set_qp(&t[1].end);
	connect_self(&t[1].end);
	for (int i = 0; i < 2; i++)
		t[i].mine = create_mkey(&t[0].end, 4);
	for (int i = 0; i < 2; i++)
		t[i].other = t[!i].mine;
	for (int i = 0; i < 2; i++)
		check_eq(pthread_create(&thread[i], NULL, turn, &t[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < 2; i++)
		check_eq(mlx5dv_destroy_mkey(t[i].mine), 0);
	check_eq(ibv_destroy_qp(t[1].end.node.qp), 0);
	check_eq(ibv_destroy_cq(t[1].end.node.send_cq), 0);
	node_close(&t[0].end.node);
}

/* --- matrices ------------------------------------------------------------------------------------ */

/* Out of a block that repeats, as an exchange of all with all does; then into one. */
static void transposed(void)
{
	enum { ROWS = 20, COLS = 12, ELEMENT = 8, BYTES = ROWS * COLS * ELEMENT };
	struct mlx5dv_mkey *mkey;
	uint8_t *plain, *to;
	struct pointer list;
	struct end end;

	open_self(&end);
	mkey = create_mkey(&end, COLS + 1);
	put_block(&end.node, end.node.buf + LISTS, ROWS, COLS);
	list = pointer_to(&end, COLS + 1, BYTES);
	check_eq(configure(&end, mkey, &list), IBV_WC_SUCCESS);
	plain = end.node.buf + PLAIN;
	to = plain + BYTES;
	pattern_fill(plain, BYTES, 9);
	check_eq(write_plain(&end, BYTES, 0, mkey->rkey), IBV_WC_SUCCESS);
	for (int out = 1; out >= 0; out--) {
		struct wqe wqe;
		uint8_t *matrix;

		wqe_begin(&wqe, LOCAL_MMO, 0, 0);
		matrix = wqe_put(&wqe, UNIT);
		matrix[3] = ELEMENT;
		matrix[5] = out ? COLS : ROWS;
		matrix[7] = out ? ROWS : COLS;
		if (out)
			wqe_put_data(&wqe, 0, BYTES, mkey->lkey);
		wqe_put_data(&wqe, (uintptr_t)to, BYTES, end.node.mr->lkey);
		if (!out)
			wqe_put_data(&wqe, 0, BYTES, mkey->lkey);
		memset(out ? to : end.node.buf, 0, BYTES);
		check_eq(post_raw(&end, &wqe), IBV_WC_SUCCESS);
		for (uint32_t r = 0; r < ROWS; r++)
			for (uint32_t c = 0; c < COLS; c++)
				check(!memcmp(out ? to + (c * ROWS + r) * ELEMENT
						  : end.node.buf + c * 0x1000 + r * 24,
					      plain + (r * COLS + c) * ELEMENT, ELEMENT));
	}
	check_eq(mlx5dv_destroy_mkey(mkey), 0);
	node_close(&end.node);
}

/* --- two processes ------------------------------------------------------------------------------- */

struct word {
	uint32_t rkey, bytes, seed;
};

/* Lends a key of a key of a long list, and says what it finds there. */
static void serve(int fd)
{
	struct mlx5dv_mkey *list, *outer;
	struct address peer;
	struct pointer to;
	struct word word;
	struct end end;

	open_end(&end);
	node_meet(&end.node, fd, &peer);
	list = create_mkey(&end, PIECES);
	outer = create_mkey(&end, 4);
	word.bytes = put_list(&end.node, end.node.buf + LISTS);
	to = pointer_to(&end, PIECES, word.bytes);
	check_eq(configure(&end, list, &to), IBV_WC_SUCCESS);
	configure_one(&end, outer, ACCESS_ALL, 0, word.bytes, list->lkey);
	word.rkey = outer->rkey;
	for (int i = 0; i < 20; i++) {
		memset(end.node.buf, 0xee, PLAIN);
		msg_send(fd, &word, sizeof(word));
		msg_recv(fd, &word, sizeof(word)); /* written */
		verify_list(&end.node, word.bytes, word.seed);
	}
	msg_send(fd, &word, sizeof(word));
	msg_recv(fd, &word, sizeof(word));
	check_eq(mlx5dv_destroy_mkey(outer), 0);
	check_eq(mlx5dv_destroy_mkey(list), 0);
	node_close(&end.node);
}

static void two_processes(void)
{
	struct address peer;
	struct word word;
	struct end end;
	pid_t pid;
	int fd;

	pid = spawn_self("serve", &fd);
	open_end(&end);
	node_meet(&end.node, fd, &peer);
	for (uint32_t i = 0; i < 20; i++) {
		msg_recv(fd, &word, sizeof(word));
		word.seed = i;
		pattern_fill(end.node.buf + PLAIN, word.bytes, i);
		check_eq(write_plain(&end, word.bytes, 0, word.rkey), IBV_WC_SUCCESS);
		memset(end.node.buf + PLAIN, 0, word.bytes);
		check_eq(read_plain(&end, word.bytes, 0, word.rkey), IBV_WC_SUCCESS);
		check_eq(pattern_check(end.node.buf + PLAIN, word.bytes, i), word.bytes);
		msg_send(fd, &word, sizeof(word));
	}
	msg_recv(fd, &word, sizeof(word));
	check_eq(read_plain(&end, 2, word.bytes - 1, word.rkey), IBV_WC_REM_ACCESS_ERR);
	msg_send(fd, &word, sizeof(word));
	spawn_wait(pid);
	close(fd);
	node_close(&end.node);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		serve(ROLE_FD);
		return 0;
	}
	long_list();
	blocks();
	refused();
	changing();
	team();
	mixed();
	depth();
	circles();
	transposed();
	two_processes();
	return 0;
}
