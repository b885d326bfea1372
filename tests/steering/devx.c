// SPDX-License-Identifier: MIT
/*
 * Objects by command: what is made, what is refused with which status, what stays while it is used.
 */
#include "kit.h"

#include "card/ether/tir.h"

enum { BAD_OP = 2, BAD_PARAM = 3, BAD_RES = 5, BAD_INP_LEN = 0x50, BAD_OUTP_LEN = 0x51 };
enum { CREATE_TIR = 0x900, CREATE_RQT = 0x916, ALLOC_COUNTER = 0x939, ALLOC_TD = 0x816 };

struct command {
	uint8_t in[272 + 4 * 256], out[64];
};

static struct mlx5dv_devx_obj *create(struct command *c, uint16_t opcode, size_t inlen)
{
	put_bits(c->in, 0, 16, opcode);
	memset(c->out, 0xa5, sizeof(c->out));
	return mlx5dv_devx_obj_create(kit.ctx, c->in, inlen, c->out, 16);
}

/* The firmware refuses: a status, and zeros behind it. */
static void refused(struct command *c, uint16_t opcode, size_t inlen, uint8_t status)
{
	static const uint8_t zeros[15];

	assert_null_errno(create(c, opcode, inlen), EREMOTEIO);
	assert_int_equal(c->out[0], status);
	assert_memory_equal(c->out + 1, zeros, sizeof(zeros));
	assert_int_equal(c->out[16], 0xa5);
}

static void counters(void **state)
{
	struct command c = { 0 };
	struct mlx5dv_devx_obj *one, *bulk;
	uint32_t first;

	(void)state;
	one = make_counters(0, &first);
	bulk = make_counters(2, &first);
	put_bits(c.in, 0, 16, 0x93b);
	put_bits(c.in, 0xe0, 32, first + 255);
	assert_ok(mlx5dv_devx_obj_query(bulk, c.in, 32, c.out, 32));
	put_bits(c.in, 0xe0, 32, first + 256);
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 32, c.out, 32), EREMOTEIO);
	assert_int_equal(c.out[0], BAD_RES);
	put_bits(c.in, 0xe0, 32, first - 1);
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 32, c.out, 32), EREMOTEIO);
	put_bits(c.in, 0xe0, 32, first);
	put_bits(c.in, 0xc2, 30, 257);
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 32, c.out, 32), EREMOTEIO);
	assert_int_equal(c.out[0], BAD_RES);
	put_bits(c.in, 0xc2, 30, 3); /* the answer has room for one */
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 32, c.out, 32), EREMOTEIO);
	assert_int_equal(c.out[0], BAD_OUTP_LEN);
	put_bits(c.in, 0xc1, 1, 1);
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 32, c.out, 32), EREMOTEIO);
	assert_int_equal(c.out[0], BAD_PARAM);
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 31, c.out, 32), EREMOTEIO);
	assert_int_equal(c.out[0], BAD_INP_LEN);
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 32, c.out, 31), EREMOTEIO);
	assert_int_equal(c.out[0], BAD_OUTP_LEN);
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 32, NULL, 0), EINVAL);
	put_bits(c.in, 0, 16, 0x902);
	assert_int_equal(mlx5dv_devx_obj_query(bulk, c.in, 32, c.out, 32), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_modify(bulk, c.in, 32, c.out, 32), EINVAL);
	assert_ok(mlx5dv_devx_obj_destroy(one));
	assert_ok(mlx5dv_devx_obj_destroy(bulk));
	memset(&c, 0, sizeof(c));
	put_bits(c.in, 0x78, 8, 3); /* not one bit */
	refused(&c, ALLOC_COUNTER, 16, BAD_PARAM);
}

static void transport_domains(void **state)
{
	struct command c = { 0 };
	struct mlx5dv_devx_obj *a = create(&c, ALLOC_TD, 16), *b;
	uint32_t number;

	(void)state;
	assert_non_null(a);
	number = (uint32_t)get_bits(c.out, 0x48, 24);
	assert_int_not_equal(number, 0);
	b = create(&c, ALLOC_TD, 16);
	assert_non_null(b);
	assert_int_not_equal(get_bits(c.out, 0x48, 24), number);
	assert_int_equal(mlx5dv_devx_obj_query(a, c.in, 16, c.out, 16), EINVAL);
	assert_ok(mlx5dv_devx_obj_destroy(a));
	assert_ok(mlx5dv_devx_obj_destroy(b));
}

/* A TIR keeps its transport domain: its number does not become another one's. */
static void used_domains(void **state)
{
	static struct queue queue;
	struct command c = { 0 };
	struct mlx5dv_devx_obj *domain = create(&c, ALLOC_TD, 16), *tir;
	uint32_t number = (uint32_t)get_bits(c.out, 0x48, 24);

	(void)state;
	assert_non_null(domain);
	queue_open(&queue);
	memset(&c, 0, sizeof(c));
	put_bits(c.in, 0x1e8, 24, vb_qp_number(queue.card));
	put_bits(c.in, 0x228, 24, number);
	tir = create(&c, CREATE_TIR, 272);
	assert_non_null(tir);
	assert_int_equal(mlx5dv_devx_obj_destroy(domain), EBUSY);
	assert_ok(mlx5dv_devx_obj_destroy(tir));
	assert_ok(mlx5dv_devx_obj_destroy(domain));
	queue_close(&queue);
}

/* A TIR keeps its queue; a number that is none is refused. */
static void direct_tirs(void **state)
{
	static struct queue queue;
	struct command c = { 0 };
	struct mlx5dv_devx_obj *tir;
	uint32_t number;

	(void)state;
	queue_open(&queue);
	tir = make_tir(&queue, &number);
	assert_int_not_equal(number, 0);
	assert_int_equal(vb_qp_destroy(queue.card), -EBUSY);
	assert_ok(mlx5dv_devx_obj_destroy(tir));
	put_bits(c.in, 0x1e8, 24, 0xffffff);
	refused(&c, CREATE_TIR, 272, BAD_RES);
	put_bits(c.in, 0x1e8, 24, vb_qp_number(queue.card));
	refused(&c, CREATE_TIR, 271, BAD_INP_LEN);
	put_bits(c.in, 0x120, 4, 2); /* no such disp_type */
	refused(&c, CREATE_TIR, 272, BAD_PARAM);
	queue_close(&queue);
}

/* What the TIR of a command hashes. */
static void check_hash(struct command *c, uint64_t fields, bool symmetric)
{
	struct mlx5dv_devx_obj *obj = create(c, CREATE_TIR, 272);
	struct vb_tir *tir;

	assert_non_null(obj);
	tir = vb_tir_get(vb_verbs_dev(kit.ctx), (uint32_t)get_bits(c->out, 0x48, 24));
	assert_non_null(tir);
	assert_int_equal(tir->rss->fields, fields);
	assert_int_equal(tir->rss->symmetric, symmetric);
	vb_tir_put(tir);
	assert_ok(mlx5dv_devx_obj_destroy(obj));
}

static void spread_tirs(void **state)
{
	static struct queue queues[4];
	struct command c = { 0 };
	struct mlx5dv_devx_obj *rqt, *tir;
	uint32_t table;

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		queue_open(&queues[i]);
		put_bits(c.in, 0x880 + 32 * i + 8, 24, vb_qp_number(queues[i].card));
	}
	put_bits(c.in, 0x1d0, 16, 3); /* no power of two */
	refused(&c, CREATE_RQT, 272 + 16, BAD_PARAM);
	put_bits(c.in, 0x1d0, 16, 0);
	refused(&c, CREATE_RQT, 272 + 16, BAD_PARAM);
	put_bits(c.in, 0x1d0, 16, 256);
	refused(&c, CREATE_RQT, 272 + 4 * 256, BAD_PARAM);
	put_bits(c.in, 0x1d0, 16, 4);
	refused(&c, CREATE_RQT, 272 + 12, BAD_INP_LEN);
	put_bits(c.in, 0x880 + 96 + 8, 24, 0xffffff);
	refused(&c, CREATE_RQT, 272 + 16, BAD_RES);
	queue_close(&queues[0]); /* what failed keeps nothing */
	queue_open(&queues[0]);
	put_bits(c.in, 0x880 + 8, 24, vb_qp_number(queues[0].card));
	put_bits(c.in, 0x880 + 96 + 8, 24, vb_qp_number(queues[3].card));
	rqt = create(&c, CREATE_RQT, 272 + 16);
	assert_non_null(rqt);
	table = (uint32_t)get_bits(c.out, 0x48, 24);
	assert_int_equal(vb_qp_destroy(queues[2].card), -EBUSY);

	memset(&c, 0, sizeof(c));
	put_bits(c.in, 0x120, 4, 1);
	put_bits(c.in, 0x208, 24, table + 1);
	put_bits(c.in, 0x220, 4, 2);
	put_bits(c.in, 0x380 + 2, 30, 0xf);
	refused(&c, CREATE_TIR, 272, BAD_RES);
	put_bits(c.in, 0x208, 24, table);
	put_bits(c.in, 0x220, 4, 1); /* XOR */
	refused(&c, CREATE_TIR, 272, BAD_PARAM);
	put_bits(c.in, 0x220, 4, 2);
	put_bits(c.in, 0x380 + 2, 30, 0x2f); /* no such field */
	refused(&c, CREATE_TIR, 272, BAD_PARAM);
	put_bits(c.in, 0x380 + 2, 30, 0xf);
	put_bits(c.in, 0x3a0 + 2, 30, 0xf); /* outer and inner */
	refused(&c, CREATE_TIR, 272, BAD_PARAM);
	put_bits(c.in, 0x3a0 + 2, 30, 0);
	check_hash(&c,
		   IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_TCP |
			   IBV_RX_HASH_DST_PORT_TCP,
		   false);
	put_bits(c.in, 0x200, 1, 1);
	put_bits(c.in, 0x380, 2, 3); /* IPv6, UDP */
	check_hash(&c,
		   IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_UDP |
			   IBV_RX_HASH_DST_PORT_UDP,
		   true);
	put_bits(c.in, 0x380, 32, 0x10 | 1);
	check_hash(&c, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_IPSEC_SPI, true);
	put_bits(c.in, 0x380, 32, 0);
	put_bits(c.in, 0x3a0, 32, 1u << 31 | 2);
	refused(&c, CREATE_TIR, 272, BAD_PARAM); /* without tunneled_offload_en */
	put_bits(c.in, 0x202, 1, 1);
	check_hash(&c, IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_INNER, true);
	put_bits(c.in, 0x200, 3, 0);
	put_bits(c.in, 0x3a0, 32, 0);
	put_bits(c.in, 0x380, 32, 0xf);
	tir = create(&c, CREATE_TIR, 272);
	assert_non_null(tir);
	assert_int_equal(mlx5dv_devx_obj_destroy(rqt), EBUSY); /* the TIR needs it */
	assert_ok(mlx5dv_devx_obj_destroy(tir));
	assert_ok(mlx5dv_devx_obj_destroy(rqt));
	for (uint32_t i = 0; i < 4; i++)
		queue_close(&queues[i]);
}

/* The table is of another context: its queues are not for this one's TIRs. */
static void tables_of_others(void **state)
{
	static struct queue queues[2];
	struct ibv_context *other = ibv_open_device(kit.ctx->device);
	struct command c = { 0 };
	struct mlx5dv_devx_obj *rqt;
	uint32_t table;

	(void)state;
	assert_non_null(other);
	for (uint32_t i = 0; i < 2; i++) {
		queue_open(&queues[i]);
		put_bits(c.in, 0x880 + 32 * i + 8, 24, vb_qp_number(queues[i].card));
	}
	put_bits(c.in, 0x1d0, 16, 2);
	rqt = create(&c, CREATE_RQT, 272 + 8);
	assert_non_null(rqt);
	table = (uint32_t)get_bits(c.out, 0x48, 24);
	memset(&c, 0, sizeof(c));
	put_bits(c.in, 0, 16, CREATE_TIR);
	put_bits(c.in, 0x120, 4, 1);
	put_bits(c.in, 0x208, 24, table);
	put_bits(c.in, 0x220, 4, 2);
	assert_null_errno(mlx5dv_devx_obj_create(other, c.in, 272, c.out, 16), EREMOTEIO);
	assert_int_equal(c.out[0], BAD_RES);
	assert_ok(mlx5dv_devx_obj_destroy(rqt));
	for (uint32_t i = 0; i < 2; i++)
		queue_close(&queues[i]); /* what failed keeps nothing */
	assert_ok(ibv_close_device(other));
}

static void bad_arguments(void **state)
{
	static uint64_t no_object[8];
	struct command c = { 0 };

	(void)state;
	assert_null_errno(mlx5dv_devx_obj_create(NULL, c.in, 16, c.out, 16), EINVAL);
	assert_null_errno(mlx5dv_devx_obj_create(kit.ctx, NULL, 0, c.out, 16), EINVAL);
	put_bits(c.in, 0, 16, ALLOC_TD);
	assert_null_errno(mlx5dv_devx_obj_create(kit.ctx, c.in, 16, NULL, 0), EINVAL);
	assert_null_errno(mlx5dv_devx_obj_create(kit.ctx, c.in, 16, c.out, 15), EINVAL);
	refused(&c, 0x827, 64, BAD_OP);                   /* one of the manual that is not here */
	assert_null_errno(create(&c, 0x999, 64), EINVAL); /* none of the manual */
	assert_int_equal(c.out[0], 0xa5);
	assert_int_equal(mlx5dv_devx_obj_destroy(NULL), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_query(NULL, c.in, 16, c.out, 16), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_modify(NULL, c.in, 16, c.out, 16), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_destroy((void *)no_object), EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counters),      cmocka_unit_test(transport_domains),
		cmocka_unit_test(direct_tirs),   cmocka_unit_test(spread_tirs),
		cmocka_unit_test(bad_arguments), cmocka_unit_test(tables_of_others),
		cmocka_unit_test(used_domains),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
