// SPDX-License-Identifier: MIT
/* Memory keys by command: verbs requests go through them as through keys of ibv_reg_mr(). */
#include "commands.h"

#include <unistd.h>

enum { CREATE_MKEY = 0x200, QUERY_MKEY = 0x201, ALLOC_PD = 0x800 };
enum { LOCAL_READ = 0x15, LOCAL_WRITE = 0x14, REMOTE_READ = 0x13, REMOTE_WRITE = 0x12 };

static struct command c;
static uint8_t memory[3 * 4096] __attribute__((aligned(4096)));
static struct mlx5dv_devx_umem *umem;

static uint32_t pdn(void)
{
	struct mlx5dv_pd dv;
	struct mlx5dv_obj obj = { .pd = { .in = kit.pd, .out = &dv } };

	assert_ok(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD));
	return dv.pdn;
}

/* Addresses from start on are the umem's bytes from offset on. */
static void key_command(uint64_t start, uint64_t offset, uint64_t len, uint8_t variant)
{
	command(&c, CREATE_MKEY, 272, 16);
	put_bits(c.in, 0x61, 1, 1);
	put_bits(c.in, 0x80 + LOCAL_READ, 1, 1);
	put_bits(c.in, 0x80 + LOCAL_WRITE, 1, 1);
	put_bits(c.in, 0x80 + REMOTE_READ, 1, 1);
	put_bits(c.in, 0x80 + REMOTE_WRITE, 1, 1);
	put_bits(c.in, 0x80 + 0x16, 2, 1); /* MTT */
	put_bits(c.in, 0x80 + 0x20, 24, 0xffffff);
	put_bits(c.in, 0x80 + 0x38, 8, variant);
	put_bits(c.in, 0x80 + 0x68, 24, pdn());
	put_bits(c.in, 0x80 + 0x80, 64, start);
	put_bits(c.in, 0x80 + 0xc0, 64, len);
	put_bits(c.in, 0x320, 32, umem->umem_id);
	put_bits(c.in, 0x340, 64, offset);
}

static struct ibv_qp *connect_to_self(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = kit.cq,
		.recv_cq = kit.cq,
		.cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(kit.pd, &init);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.timeout = 14,
	};

	assert_non_null(qp);
	assert_ok(ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.dest_qp_num = qp->qp_num;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	assert_ok(ibv_query_gid(kit.ctx, 1, 0, &attr.ah_attr.grh.dgid));
	assert_ok(ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	assert_ok(ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					IBV_QP_MAX_QP_RD_ATOMIC));
	return qp;
}

static enum ibv_wc_status write_to(struct ibv_qp *qp, uint32_t lkey, uint64_t from, uint32_t rkey,
				   uint64_t to, uint32_t len)
{
	struct ibv_sge sge = { from, len, lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { to, rkey } };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	assert_ok(ibv_post_send(qp, &wr, &bad));
	while (!(n = ibv_poll_cq(kit.cq, 1, &wc)))
		;
	assert_int_equal(n, 1);
	return wc.status;
}

static void keys(void **state)
{
	struct mlx5dv_devx_obj *a, *b;
	struct ibv_qp *qp = connect_to_self();
	uint32_t from, to;

	(void)state;
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)i;
	key_command(0x10000, 0, 4096, 0x5a);
	a = create(&c);
	assert_non_null(a);
	from = (uint32_t)get_bits(c.out, 0x48, 24) << 8 | 0x5a;
	key_command(0x7000000000, 4096 + 100, 4096, 0x11);
	b = create(&c);
	assert_non_null(b);
	to = (uint32_t)get_bits(c.out, 0x48, 24) << 8 | 0x11;
	assert_int_equal(write_to(qp, from, 0x10000 + 7, to, 0x7000000000 + 9, 1000),
			 IBV_WC_SUCCESS);
	assert_memory_equal(memory + 7, memory + 4096 + 100 + 9, 1000);
	command(&c, QUERY_MKEY, 16, 272);
	put_bits(c.in, 0x48, 24, to >> 8);
	assert_ok(query(b, &c));
	assert_int_equal(get_bits(c.out, 0x80 + 0x80, 64), 0x7000000000);
	assert_int_equal(get_bits(c.out, 0x80 + 0xc0, 64), 4096);
	assert_int_equal(get_bits(c.out, 0x80 + 0x38, 8), 0x11);
	put_bits(c.in, 0x48, 24, from >> 8);
	assert_int_equal(query(b, &c), EINVAL);
	/* what is used stays; a key that is gone, and one byte too far */
	assert_int_equal(mlx5dv_devx_umem_dereg(umem), EBUSY);
	assert_int_equal(write_to(qp, from, 0x10000, to, 0x7000000000 + 4000, 97),
			 IBV_WC_REM_ACCESS_ERR);
	assert_ok(ibv_destroy_qp(qp));
	qp = connect_to_self();
	destroy(b);
	assert_int_equal(write_to(qp, from, 0x10000, to, 0x7000000000, 8), IBV_WC_REM_ACCESS_ERR);
	destroy(a);
	assert_ok(ibv_destroy_qp(qp));
}

static void refusals(void **state)
{
	static const struct {
		uint32_t at, bits;
		uint64_t value;
		uint8_t status;
	} bad[] = {
		{ 0x61, 1, 0, BAD_PARAM },            /* no umem */
		{ 0x80 + 0x16, 2, 0, BAD_PARAM },     /* PA */
		{ 0x80 + 0x16, 2, 2, BAD_PARAM },     /* KLM */
		{ 0x80 + 0x3, 3, 1, BAD_PARAM },      /* device memory */
		{ 0x80 + 0x1, 1, 1, BAD_PARAM },      /* free */
		{ 0x80 + 0x10, 1, 1, BAD_PARAM },     /* umr_en */
		{ 0x80 + 0x20, 24, 5, BAD_PARAM },    /* of one queue pair */
		{ 0x80 + 0x60, 1, 1, BAD_PARAM },     /* length64 */
		{ 0x80 + 0x61, 1, 1, BAD_PARAM },     /* bsf_en */
		{ 0x80 + 0x1e3, 2, 1, BAD_PARAM },    /* crypto_en */
		{ 0x80 + 0x68, 24, 0xffff, BAD_RES }, /* pd */
		{ 0x80 + 0xc0, 64, 0, BAD_PARAM },    /* len */
		{ 0x80 + 0xc0, 64, UINT64_MAX, BAD_RES },
		{ 0x80 + 0xc0, 64, sizeof(memory) + 1, BAD_RES },
		{ 0x320, 32, 0xfffff, BAD_RES }, /* umem */
		{ 0x340, 64, sizeof(memory), BAD_RES },
		{ 0x340, 64, UINT64_MAX, BAD_RES },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		key_command(0, 0, 4096, 0);
		put_bits(c.in, bad[i].at, bad[i].bits, bad[i].value);
		refuse_create(&c, bad[i].status);
	}
	key_command(0, 0, 4096, 0);
	c.inlen = 271;
	refuse_create(&c, BAD_INP_LEN);
}

/* A key for work requests to lay out: until then it stands for nothing. */
static void free_keys(void **state)
{
	struct ibv_qp *qp = connect_to_self();
	struct mlx5dv_devx_obj *from, *key;
	uint32_t lkey, rkey;

	(void)state;
	key_command(0x10000, 0, 4096, 7);
	from = create(&c);
	assert_non_null(from);
	lkey = (uint32_t)get_bits(c.out, 0x48, 24) << 8 | 7;
	key_command(0, 0, 0, 0x42);
	put_bits(c.in, 0x61, 1, 0);        /* no umem */
	put_bits(c.in, 0x80 + 0x1, 1, 1);  /* free */
	put_bits(c.in, 0x80 + 0x10, 1, 1); /* umr_en */
	put_bits(c.in, 0x80 + 0x16, 2, 2); /* KLM */
	refuse_create(&c, BAD_PARAM);      /* for how many pieces? */
	put_bits(c.in, 0x80 + 0x1a0, 32, 0x10000);
	refuse_create(&c, BAD_PARAM);
	put_bits(c.in, 0x80 + 0x1a0, 32, 4);
	put_bits(c.in, 0x61, 1, 1);
	refuse_create(&c, BAD_PARAM);
	put_bits(c.in, 0x61, 1, 0);
	key = create(&c);
	assert_non_null(key);
	rkey = (uint32_t)get_bits(c.out, 0x48, 24) << 8 | 0x42;
	assert_int_equal(write_to(qp, lkey, 0x10000, rkey, 0, 8), IBV_WC_REM_ACCESS_ERR);
	assert_ok(ibv_destroy_qp(qp));
	destroy(key);
	destroy(from);
}

/* --- lists of pieces ----------------------------------------------------------------------------- */

enum { MODE_KLM = 2, MODE_KSM = 3, LIST = 272, START = 0x5000000, WHOLE = 0x10000 };

struct piece {
	uint32_t len, key;
	uint64_t addr;
};

/* All of the memory, from WHOLE on. */
static struct mlx5dv_devx_obj *whole_key(uint32_t *key)
{
	struct mlx5dv_devx_obj *obj;

	key_command(WHOLE, 0, sizeof(memory), 1);
	obj = create(&c);
	assert_non_null(obj);
	*key = (uint32_t)get_bits(c.out, 0x48, 24) << 8 | 1;
	return obj;
}

static void list_command(uint32_t mode, uint64_t len, const struct piece *piece, uint32_t count)
{
	key_command(START, 0, len, 0x33);
	put_bits(c.in, 0x61, 1, 0); /* no umem */
	put_bits(c.in, 0x80 + 0x16, 2, mode);
	put_bits(c.in, 0x80 + 0x1a0, 32, (count + 3) & ~3u);
	put_bits(c.in, 0x300, 32, (count + 3) & ~3u);
	put_bits(c.in, 0x80 + 0x1db, 5, mode == MODE_KSM ? 12 : 0);
	put_bits(c.in, 0x320, 32, 0);
	for (uint32_t i = 0; i < count; i++) {
		put_bits(c.in + LIST + 16 * i, 0x0, 32, piece[i].len);
		put_bits(c.in + LIST + 16 * i, 0x20, 32, piece[i].key);
		put_bits(c.in + LIST + 16 * i, 0x40, 64, piece[i].addr);
	}
	c.inlen = LIST + 16 * ((count + 3) & ~3u);
}

static struct mlx5dv_devx_obj *list_key(uint32_t mode, uint64_t len, const struct piece *piece,
					uint32_t count, uint32_t *key)
{
	struct mlx5dv_devx_obj *obj;

	list_command(mode, len, piece, count);
	obj = create(&c);
	assert_non_null(obj);
	*key = (uint32_t)get_bits(c.out, 0x48, 24) << 8 | 0x33;
	return obj;
}

static void fill(void)
{
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 7 + i / 256);
}

/* Pieces of any length, one after the other; what lies between them is not touched. */
static void lists(void **state)
{
	static const uint8_t data[60] = "in three pieces, of which the last is not all used";
	struct mlx5dv_devx_obj *whole, *list;
	struct ibv_qp *qp = connect_to_self();
	uint32_t wkey, key;

	(void)state;
	whole = whole_key(&wkey);
	fill();
	memcpy(memory, data, sizeof(data));
	list = list_key(MODE_KLM, 60,
			(struct piece[]){ { 7, wkey, WHOLE + 5001 },
					  { 20, wkey, WHOLE + 9000 },
					  { 40, wkey, WHOLE + 4096 } },
			3, &key);
	command(&c, QUERY_MKEY, 16, 272);
	put_bits(c.in, 0x48, 24, key >> 8);
	assert_ok(query(list, &c));
	assert_int_equal(get_bits(c.out, 0x80 + 0x16, 2), MODE_KLM);
	assert_int_equal(get_bits(c.out, 0x80 + 0x1a0, 32), 4);
	assert_int_equal(get_bits(c.out, 0x80 + 0xc0, 64), 60);
	assert_int_equal(write_to(qp, wkey, WHOLE, key, START, 60), IBV_WC_SUCCESS);
	assert_memory_equal(memory + 5001, data, 7);
	assert_memory_equal(memory + 9000, data + 7, 20);
	assert_memory_equal(memory + 4096, data + 27, 33);
	assert_int_equal(memory[5000], (uint8_t)(5000 * 7 + 5000 / 256));
	assert_int_equal(memory[5008], (uint8_t)(5008 * 7 + 5008 / 256));
	assert_int_equal(memory[4096 + 33], (uint8_t)((4096 + 33) * 7 + (4096 + 33) / 256));
	/* as a source, too: from the last byte of a piece on */
	assert_int_equal(write_to(qp, key, START + 6, wkey, WHOLE + 100, 22), IBV_WC_SUCCESS);
	assert_memory_equal(memory + 100, data + 6, 22);
	/* one byte more than len, though the pieces have it */
	assert_int_equal(write_to(qp, wkey, WHOLE, key, START + 1, 60), IBV_WC_REM_ACCESS_ERR);
	assert_ok(ibv_destroy_qp(qp));
	destroy(list);
	destroy(whole);
}

/* Pieces of one size: pages in another order. */
static void fixed_lists(void **state)
{
	struct mlx5dv_devx_obj *whole, *list;
	struct ibv_qp *qp = connect_to_self();
	uint32_t wkey, key;

	(void)state;
	whole = whole_key(&wkey);
	fill();
	list = list_key(MODE_KSM, 8192,
			(struct piece[]){ { 0, wkey, WHOLE + 8192 }, { 0, wkey, WHOLE + 4096 } }, 2,
			&key);
	assert_int_equal(write_to(qp, wkey, WHOLE, key, START + 4090, 100), IBV_WC_SUCCESS);
	assert_memory_equal(memory + 8192 + 4090, memory, 6);
	assert_memory_equal(memory + 4096, memory + 6, 94);
	assert_int_equal(write_to(qp, wkey, WHOLE, key, START + 8191, 2), IBV_WC_REM_ACCESS_ERR);
	assert_ok(ibv_destroy_qp(qp));
	destroy(list);
	list_command(MODE_KSM, 8193,
		     (struct piece[]){ { 0, wkey, WHOLE }, { 0, wkey, WHOLE + 4096 } }, 2);
	refuse_create(&c, BAD_PARAM);
	put_bits(c.in, 0x80 + 0xc0, 64, 8192);
	put_bits(c.in, 0x80 + 0x1db, 5, 0); /* pieces of what size? */
	refuse_create(&c, BAD_PARAM);
	destroy(whole);
}

static void bad_lists(void **state)
{
	struct mlx5dv_devx_obj *whole;
	uint32_t key;

	(void)state;
	whole = whole_key(&key);
	/* a hole in the middle, a length of 0, no key, less than len, nothing at all */
	list_command(MODE_KLM, 8,
		     (struct piece[]){ { 8, key, WHOLE }, { 0, 0, 0 }, { 8, key, WHOLE } }, 3);
	refuse_create(&c, BAD_PARAM);
	list_command(MODE_KLM, 8, (struct piece[]){ { 8, key, WHOLE }, { 0, key, WHOLE } }, 2);
	refuse_create(&c, BAD_PARAM);
	list_command(MODE_KLM, 8, (struct piece[]){ { 8, key, WHOLE }, { 8, 0, 0 } }, 2);
	refuse_create(&c, BAD_PARAM);
	list_command(MODE_KLM, 17, (struct piece[]){ { 8, key, WHOLE }, { 8, key, WHOLE } }, 2);
	refuse_create(&c, BAD_PARAM);
	list_command(MODE_KLM, 1, (struct piece[]){ { 0, 0, 0 } }, 1);
	refuse_create(&c, BAD_PARAM);
	/* lengths of the list and the command */
	list_command(MODE_KLM, 8, (struct piece[]){ { 8, key, WHOLE } }, 1);
	c.inlen--;
	refuse_create(&c, BAD_INP_LEN);
	c.inlen++;
	put_bits(c.in, 0x300, 32, 0);
	refuse_create(&c, BAD_PARAM);
	put_bits(c.in, 0x300, 32, 5); /* more than translations_octword_size */
	refuse_create(&c, BAD_PARAM);
	put_bits(c.in, 0x300, 32, 0x10000001);
	put_bits(c.in, 0x80 + 0x1a0, 32, 0x10000001);
	refuse_create(&c, BAD_PARAM);
	put_bits(c.in, 0x300, 32, 4);
	put_bits(c.in, 0x80 + 0x1a0, 32, 4);
	put_bits(c.in, 0x80 + 0xc0, 64, 0);
	refuse_create(&c, BAD_PARAM);
	put_bits(c.in, 0x80 + 0xc0, 64, 8);
	put_bits(c.in, 0x80 + 0x16, 2, 0); /* physical addresses */
	refuse_create(&c, BAD_PARAM);
	destroy(whole);
}

/*
 * What a piece names is looked at when it is used: another domain's key, one that is gone, a list, whose pieces are looked at
 * in turn.
 */
static void foreign_pieces(void **state)
{
	struct ibv_pd *other = ibv_alloc_pd(kit.ctx);
	struct ibv_mr *mr = ibv_reg_mr(other, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct mlx5dv_devx_obj *whole, *list, *nested;
	uint32_t wkey, key, nkey;
	struct ibv_qp *qp;

	(void)state;
	assert_non_null(mr);
	whole = whole_key(&wkey);
	list = list_key(MODE_KLM, 16,
			(struct piece[]){ { 8, wkey, WHOLE }, { 8, mr->rkey, (uintptr_t)memory } },
			2, &key);
	qp = connect_to_self();
	assert_int_equal(write_to(qp, wkey, WHOLE, key, START, 8), IBV_WC_SUCCESS);
	assert_int_equal(write_to(qp, wkey, WHOLE, key, START, 9), IBV_WC_REM_ACCESS_ERR);
	assert_ok(ibv_destroy_qp(qp));
	qp = connect_to_self();
	assert_int_equal(write_to(qp, key, START + 8, wkey, WHOLE, 8), IBV_WC_LOC_PROT_ERR);
	assert_ok(ibv_destroy_qp(qp));
	nested = list_key(MODE_KLM, 16, (struct piece[]){ { 16, key, START } }, 1, &nkey);
	qp = connect_to_self();
	assert_int_equal(write_to(qp, nkey, START, wkey, WHOLE, 8), IBV_WC_SUCCESS);
	assert_int_equal(write_to(qp, nkey, START, wkey, WHOLE, 9), IBV_WC_LOC_PROT_ERR);
	assert_ok(ibv_destroy_qp(qp));
	destroy(whole);
	qp = connect_to_self();
	assert_int_equal(write_to(qp, key, START, key, START, 8), IBV_WC_LOC_PROT_ERR);
	assert_ok(ibv_destroy_qp(qp));
	destroy(nested);
	destroy(list);
	assert_ok(ibv_dereg_mr(mr));
	assert_ok(ibv_dealloc_pd(other));
}

/* A key of a list is free again after an invalidation where umr_en is set, and never where it is not. */
static void invalidation(void **state)
{
	(void)state;
	for (uint32_t umr = 0; umr < 2; umr++) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV,
					  .send_flags = IBV_SEND_SIGNALED };
		struct mlx5dv_devx_obj *whole, *list;
		struct ibv_qp *qp = connect_to_self();
		struct ibv_send_wr *bad;
		struct ibv_wc wc;
		uint32_t wkey, key;

		whole = whole_key(&wkey);
		list_command(MODE_KLM, 8, (struct piece[]){ { 8, wkey, WHOLE } }, 1);
		put_bits(c.in, 0x80 + 0x10, 1, umr);
		list = create(&c);
		assert_non_null(list);
		key = (uint32_t)get_bits(c.out, 0x48, 24) << 8 | 0x33;
		wr.invalidate_rkey = key;
		assert_ok(ibv_post_send(qp, &wr, &bad));
		while (!ibv_poll_cq(kit.cq, 1, &wc))
			;
		assert_int_equal(wc.status, umr ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR);
		assert_ok(ibv_destroy_qp(qp));
		qp = connect_to_self();
		assert_int_equal(write_to(qp, wkey, WHOLE, key, START, 8),
				 umr ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
		assert_ok(ibv_destroy_qp(qp));
		destroy(list);
		destroy(whole);
	}
}

/* A key in a domain that a command made keeps the domain. */
static void domains(void **state)
{
	struct mlx5dv_devx_obj *pd = create(command(&c, ALLOC_PD, 16, 16)), *key;
	uint32_t number = (uint32_t)get_bits(c.out, 0x48, 24);

	(void)state;
	assert_non_null(pd);
	key_command(0, 0, 4096, 0);
	put_bits(c.in, 0x80 + 0x68, 24, number);
	key = create(&c);
	assert_non_null(key);
	assert_int_equal(mlx5dv_devx_obj_destroy(pd), EBUSY);
	destroy(key);
	destroy(pd);
}

static int open_memory(void **state)
{
	assert_ok(kit_open(state));
	umem = mlx5dv_devx_umem_reg(kit.ctx, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	return !umem;
}

static int close_memory(void **state)
{
	assert_ok(mlx5dv_devx_umem_dereg(umem));
	return kit_close(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys),         cmocka_unit_test(free_keys),
		cmocka_unit_test(refusals),     cmocka_unit_test(domains),
		cmocka_unit_test(lists),        cmocka_unit_test(fixed_lists),
		cmocka_unit_test(bad_lists),    cmocka_unit_test(foreign_pieces),
		cmocka_unit_test(invalidation),
	};

	return cmocka_run_group_tests(tests, open_memory, close_memory);
}
