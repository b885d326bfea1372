// SPDX-License-Identifier: MIT
/*
 * What all commands have in common: which call carries which, lengths, who refuses with what, and
 * objects that end with their context.
 */
#include "commands.h"

enum { ALLOC_PD = 0x800, ALLOC_UAR = 0x802, ALLOC_TD = 0x816, CREATE_RQT = 0x916 };
enum { QUERY_ISSI = 0x10a, QUERY_HCA_CAP = 0x100, CREATE_TIR = 0x900 };

static struct command c;

static void lengths(void **state)
{
	(void)state;
	command(&c, QUERY_ISSI, 16, 112);
	assert_ok(general(&c));
	c.inlen = 15;
	assert_int_equal(general(&c), EINVAL);
	assert_untouched(&c);
	c.inlen = 16;
	c.outlen = 15;
	assert_int_equal(general(&c), EINVAL);
	assert_untouched(&c);
	c.outlen = 111;
	refuse_general(&c, BAD_OUTP_LEN);
	c.outlen = 113; /* longer is no matter */
	assert_ok(general(&c));
	assert_int_equal(c.out[112], 0);
	assert_int_equal(c.out[113], 0xa5);
	command(&c, 0x755, 511, 16);
	refuse_general(&c, BAD_INP_LEN);
	assert_int_equal(mlx5dv_devx_general_cmd(kit.ctx, NULL, 16, c.out, 16), EINVAL);
	assert_int_equal(mlx5dv_devx_general_cmd(kit.ctx, c.in, 16, NULL, 16), EINVAL);
	assert_int_equal(mlx5dv_devx_general_cmd(NULL, c.in, 16, c.out, 16), EINVAL);
	assert_int_equal(mlx5dv_devx_general_cmd(kit.ctx, c.in, 65536, c.out, 16), EINVAL);
	assert_int_equal(mlx5dv_devx_general_cmd(kit.ctx, c.in, 16, c.out, 65536), EINVAL);
}

/* Programs that have one buffer for a command and its answer: the kernel copies both. */
static void one_buffer(void **state)
{
	struct mlx5dv_devx_obj *obj;
	uint8_t one[112] = { 0 };

	(void)state;
	put_bits(one, 0, 16, QUERY_ISSI);
	assert_ok(mlx5dv_devx_general_cmd(kit.ctx, one, 16, one, sizeof(one)));
	assert_int_equal(get_bits(one, 0x50, 16), 1);
	memset(one, 0, sizeof(one));
	put_bits(one, 0, 16, 0x939);
	put_bits(one, 0x78, 8, 1); /* 128 counters */
	obj = mlx5dv_devx_obj_create(kit.ctx, one, 16, one, 16);
	assert_non_null(obj);
	command(&c, 0x93b, 32, 16 + 128 * 16);
	put_bits(c.in, 0xc2, 30, 128);
	put_bits(c.in, 0xe0, 32, get_bits(one, 0x40, 32));
	assert_ok(query(obj, &c));
	/* the answer begins inside of the command */
	memcpy(c.out + 24, c.in, 32);
	assert_ok(mlx5dv_devx_obj_query(obj, c.out + 24, 32, c.out, c.outlen));
	destroy(obj);
}

/* Every command by every call: only its own one takes it. */
static void carriers(void **state)
{
	static const uint16_t creating[] = { ALLOC_PD,   ALLOC_UAR, ALLOC_TD, CREATE_TIR,
					     CREATE_RQT, 0x930,     0x933,    0x936,
					     0x939,      0x93d,     0x940,    0xa00 };
	static const uint16_t others[] = { 0x801, 0x803, 0x817, 0x902, 0x918, 0x931,
					   0x934, 0x938, 0x93a, 0x93e, 0x941, 0xa03 };
	struct mlx5dv_devx_obj *pd = create(command(&c, ALLOC_PD, 16, 16));

	(void)state;
	assert_non_null(pd);
	for (size_t i = 0; i < sizeof(creating) / sizeof(creating[0]); i++) {
		command(&c, creating[i], 1024, 1024);
		assert_int_equal(general(&c), EINVAL);
		assert_untouched(&c);
		assert_int_equal(modify(pd, &c), EINVAL);
		assert_int_equal(query(pd, &c), EINVAL);
		assert_untouched(&c);
	}
	/* destroying is for mlx5dv_devx_obj_destroy() alone */
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		command(&c, others[i], 1024, 1024);
		put_bits(c.in, 0x48, 24, 1);
		assert_int_equal(general(&c), EINVAL);
		assert_null_errno(create(&c), EINVAL);
		assert_int_equal(modify(pd, &c), EINVAL);
		assert_int_equal(query(pd, &c), EINVAL);
		assert_untouched(&c);
	}
	command(&c, QUERY_ISSI, 16, 112);
	assert_null_errno(create(&c), EINVAL);
	assert_int_equal(query(pd, &c), EINVAL);
	destroy(pd);
}

static void unknown(void **state)
{
	static const uint16_t absent[] = { 0x101, 0x102, 0x103, 0x104, 0x108, 0x109, 0x10b, 0x301,
					   0x302, 0x50f, 0x510, 0x600, 0x601, 0x700, 0x701, 0x705,
					   0x706, 0x717, 0x718, 0x740, 0x782, 0x783, 0x806, 0x807,
					   0x80e, 0x80f, 0x827, 0x828, 0x829, 0x82b, 0x842, 0x92f,
					   0xa08, 0xa0a, 0xb00, 0xb0c, 0xb13, 0xb16, 0xb17, 0xb22 };

	(void)state;
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
		refuse_general(command(&c, absent[i], 16, 16), BAD_OP);
		refuse_create(command(&c, absent[i], 16, 16), BAD_OP);
	}
	for (uint32_t opcode = 0xc00; opcode < 0xc10; opcode++) {
		assert_int_equal(general(command(&c, (uint16_t)opcode, 64, 64)), EINVAL);
		assert_untouched(&c);
	}
	command(&c, 0xa00, 64, 64); /* a general object of no known type */
	put_bits(c.in, 0x30, 16, 0x7777);
	refuse_create(&c, BAD_PARAM);
}

/* Objects have different numbers, and stay while they are used. */
static void allocations(void **state)
{
	static const uint16_t opcodes[] = { ALLOC_PD, ALLOC_UAR, ALLOC_TD };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct mlx5dv_devx_obj *a = create(command(&c, opcodes[i], 16, 16)), *b;
		uint32_t number = (uint32_t)get_bits(c.out, 0x48, 24);

		assert_non_null(a);
		assert_int_not_equal(number, 0);
		b = create(&c);
		assert_non_null(b);
		assert_int_not_equal(get_bits(c.out, 0x48, 24), number);
		destroy(b);
		destroy(a);
	}
}

/* A table before its queue, a TIR before its table: each in the other order is refused. */
static void order(void **state)
{
	static struct queue queue;
	struct mlx5dv_devx_obj *rqt, *tir;
	uint32_t table;

	(void)state;
	queue_open(&queue);
	command(&c, CREATE_RQT, 272 + 4, 16);
	put_bits(c.in, 0x1d0, 16, 1);
	put_bits(c.in, 0x888, 24, vb_qp_number(queue.card));
	rqt = create(&c);
	assert_non_null(rqt);
	table = (uint32_t)get_bits(c.out, 0x48, 24);
	command(&c, CREATE_TIR, 272, 16);
	put_bits(c.in, 0x120, 4, 1);
	put_bits(c.in, 0x208, 24, table);
	put_bits(c.in, 0x220, 4, 2);
	tir = create(&c);
	assert_non_null(tir);
	assert_int_equal(vb_qp_destroy(queue.card), -EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(rqt), EBUSY);
	destroy(tir);
	destroy(rqt);
	queue_close(&queue);
}

/*
 * What a program leaves behind ends with its context, whatever uses what. Its structs are the
 * program's to free, as after a real close.
 */
static void left_behind(void **state)
{
	static const uint16_t opcodes[] = { ALLOC_PD, ALLOC_UAR, ALLOC_TD };
	struct ibv_context *ctx = mlx5dv_open_device(
		kit.ctx->device,
		&(struct mlx5dv_context_attr){ .flags = MLX5DV_CONTEXT_FLAGS_DEVX });
	static uint8_t memory[8192] __attribute__((aligned(4096)));
	struct mlx5dv_devx_obj *objs[5];
	struct mlx5dv_devx_umem *umem;
	struct mlx5dv_devx_uar *uar;
	uint32_t table;

	(void)state;
	assert_non_null(ctx);
	umem = mlx5dv_devx_umem_reg(ctx, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	uar = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	assert_non_null(umem);
	assert_non_null(uar);
	for (size_t i = 0; i < 3; i++) {
		command(&c, opcodes[i], 16, 16);
		objs[i] = mlx5dv_devx_obj_create(ctx, c.in, 16, c.out, 16);
	}
	/* a table, and one whose misses go there */
	command(&c, 0x930, 64, 16);
	put_bits(c.in, 0xc8, 8, 5);
	objs[3] = mlx5dv_devx_obj_create(ctx, c.in, 64, c.out, 16);
	table = (uint32_t)get_bits(c.out, 0x48, 24);
	put_bits(c.in, 0xc8, 8, 4);
	put_bits(c.in, 0xc4, 4, 1);
	put_bits(c.in, 0xe8, 24, table);
	objs[4] = mlx5dv_devx_obj_create(ctx, c.in, 64, c.out, 16);
	assert_ok(ibv_close_device(ctx));
	for (size_t i = 0; i < 5; i++) {
		assert_non_null(objs[i]);
		assert_int_equal(query(objs[i], &c), EINVAL);
		destroy(objs[i]);
	}
	assert_ok(mlx5dv_devx_umem_dereg(umem));
	mlx5dv_devx_free_uar(uar);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths),     cmocka_unit_test(one_buffer),
		cmocka_unit_test(carriers),    cmocka_unit_test(unknown),
		cmocka_unit_test(allocations), cmocka_unit_test(order),
		cmocka_unit_test(left_behind),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
