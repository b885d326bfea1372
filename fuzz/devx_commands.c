// SPDX-License-Identifier: MIT
/*
 * Random bytes as commands of the programmer's reference manual, and as queries of the objects that they made: each command lies
 * in memory of just its length, as its answer does. Nothing beyond either is touched, and what a command made can be destroyed.
 *
 * Each command begins with four bytes: which one (an opcode of the table, an object's query, or none of them), what is mended
 * (general object type, function, CQ), its length, and that of its answer. The length of input is then its body.
 */
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mlx5dv.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OBJECTS = 4, HEAD = 4, FUNCTION = 0x100 };
enum { MEND_TYPE = 1, MEND_FUNCTION = 2, MEND_CQ = 4, MEND_ID = 8 };

static struct ibv_context *ctx;
static struct ibv_cq *cq;

static struct object {
	struct mlx5dv_devx_obj *obj;
	uint32_t id;
	uint16_t type;
} objects[OBJECTS];

static void need(int ok)
{
	if (!ok)
		abort();
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	need(list && list[0]);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	need(ctx != NULL);
	cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	need(cq != NULL);
}

static uint32_t cq_number(void)
{
	struct mlx5dv_cq dv;
	struct mlx5dv_obj obj = { .cq = { .in = cq, .out = &dv } };

	need(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	return dv.cqn;
}

static void put(uint8_t *in, size_t inlen, size_t at, uint32_t value)
{
	value = htobe32(value);
	if (at + 4 <= inlen)
		memcpy(in + at, &value, 4);
}

static void mend(uint8_t *in, size_t inlen, uint8_t how, uint16_t type)
{
	if (how & MEND_TYPE)
		put(in, inlen, 4, type);
	if (how & MEND_FUNCTION) {
		put(in, inlen, type == 0x32 ? 32 : 28, FUNCTION + (how >> 6));
		put(in, inlen, 36, how >> 4 & 3); /* a queue */
	}
	if (how & MEND_CQ)
		put(in, inlen, 40, cq_number());
}

static void create(struct object *o, uint8_t *in, size_t inlen, uint8_t *out, size_t outlen)
{
	if (o->obj)
		need(!mlx5dv_devx_obj_destroy(o->obj));
	o->obj = mlx5dv_devx_obj_create(ctx, in, inlen, out, outlen);
	if (!o->obj)
		return;
	need(outlen >= 16 && !out[0]);
	memcpy(&o->id, out + 8, 4);
	o->id = be32toh(o->id);
	o->type = (uint16_t)(in[6] << 8 | in[7]);
}

/* How many bytes of the input it took. */
static size_t command(const uint8_t *data, size_t size)
{
	static const uint16_t opcodes[] = {
		0xa00, 0xa00, 0xa00, 0xa00, 0x816, 0x900, 0x916, 0x939
	};
	size_t inlen = data[2] % 161, outlen = data[3] % 161, n = size - HEAD;
	struct object *o = &objects[data[0] / 16 % OBJECTS];
	uint8_t *in = calloc(1, inlen), *out = malloc(outlen), how = data[1];

	need((in || !inlen) && (out || !outlen));
	n = n < inlen ? n : inlen;
	memcpy(in, data + HEAD, n);
	if (data[0] % 16 < 8) {
		put(in, inlen, 0, (uint32_t)opcodes[data[0] % 8] << 16);
		mend(in, inlen, how, data[0] & 1 ? 0x32 : 0x49);
		create(o, in, inlen, out, outlen);
	} else if (o->obj) {
		if (data[0] % 16 < 12)
			put(in, inlen, 0, (data[0] & 1 ? 0xa02u : 0x93bu) << 16);
		if (how & MEND_TYPE)
			put(in, inlen, 4, o->type);
		if (how & MEND_ID)
			put(in, inlen, 8, o->id);
		if (data[0] % 16 == 15)
			mlx5dv_devx_obj_modify(o->obj, in, inlen, out, outlen);
		else
			mlx5dv_devx_obj_query(o->obj, in, inlen, out, outlen);
	}
	free(in);
	free(out);
	return HEAD + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!ctx)
		open_device();
	while (size > HEAD) {
		size_t n = command(data, size);

		data += n;
		size -= n;
	}
	for (int i = 0; i < OBJECTS; i++) {
		if (objects[i].obj)
			need(!mlx5dv_devx_obj_destroy(objects[i].obj));
		objects[i].obj = NULL;
	}
	return 0;
}
