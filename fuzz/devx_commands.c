// SPDX-License-Identifier: MIT
/*
 * Random bytes as commands of the programmer's reference manual, by every call that carries one, and on the objects that
 * they made: each command lies in memory of just its length, as its answer does. Nothing beyond either is touched, a
 * refusal by the firmware has a status and zeros, and what commands made can be destroyed, the users first.
 *
 * Each command begins with six bytes: which one, by which call, what is mended (numbers of objects that exist, types,
 * functions), the object, its length, and that of its answer. The length of input is then its body.
 */
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mlx5dv.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OBJECTS = 12, HEAD = 6, FUNCTION = 0x100 };
enum {
	MEND_TYPE = 1,
	MEND_FUNCTION = 2,
	MEND_CQ = 4,
	MEND_ID = 8,
	MEND_NUMBERS = 16,
	MEND_ZERO = 32
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_wq *wq;
static struct mlx5dv_devx_umem *umem;
static uint8_t memory[65536] __attribute__((aligned(4096)));

static struct object {
	struct mlx5dv_devx_obj *obj;
	uint32_t id;     /* the first word behind the head of the answer, or the second */
	uint16_t opcode; /* that made it */
	uint16_t type;
} objects[OBJECTS];

/* Every opcode of the manual that there are facts about. */
static const uint16_t opcodes[] = {
	0x100, 0x102, 0x107, 0x10a, 0x200, 0x201, 0x202, 0x203, 0x301, 0x400, 0x401, 0x402,
	0x403, 0x500, 0x501, 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50b, 0x50c,
	0x50e, 0x600, 0x700, 0x701, 0x702, 0x703, 0x705, 0x710, 0x711, 0x713, 0x740, 0x752,
	0x754, 0x755, 0x760, 0x771, 0x773, 0x800, 0x802, 0x805, 0x80e, 0x816, 0x842, 0x900,
	0x901, 0x903, 0x904, 0x905, 0x907, 0x908, 0x909, 0x90b, 0x90c, 0x90d, 0x90f, 0x912,
	0x913, 0x915, 0x916, 0x917, 0x919, 0x92f, 0x930, 0x931, 0x932, 0x933, 0x935, 0x936,
	0x937, 0x939, 0x93b, 0x93c, 0x93d, 0x940, 0xa00, 0xa00, 0xa01, 0xa02, 0xb00, 0xb17,
};

static void need(int ok)
{
	if (!ok)
		abort();
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_wq_init_attr attr = { .wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1 };

	need(list && list[0]);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	need(ctx != NULL);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	attr.pd = pd;
	attr.cq = cq;
	wq = ibv_create_wq(ctx, &attr);
	umem = mlx5dv_devx_umem_reg(ctx, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(pd && cq && wq && umem);
}

static uint32_t cq_number(void)
{
	struct mlx5dv_cq dv;
	struct mlx5dv_obj obj = { .cq = { .in = cq, .out = &dv } };

	need(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	return dv.cqn;
}

static uint32_t pd_number(void)
{
	struct mlx5dv_pd dv;
	struct mlx5dv_obj obj = { .pd = { .in = pd, .out = &dv } };

	need(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD));
	return dv.pdn;
}

static void put(uint8_t *in, size_t inlen, size_t at, uint32_t value)
{
	value = htobe32(value);
	if (at + 4 <= inlen)
		memcpy(in + at, &value, 4);
}

/* Numbers of what exists, where commands have them. */
static void mend_numbers(uint8_t *in, size_t inlen, uint16_t opcode, uint32_t id)
{
	switch (opcode) {
	case 0x200:
		put(in, inlen, 20, 0xffffff00);
		put(in, inlen, 28, pd_number());
		put(in, inlen, 100, umem->umem_id);
		put(in, inlen, 12, id & 1 ? 0 : 1u << 30); /* mkey_umem_valid */
		put(in, inlen, 16, (id & 1 ? 2u + (id >> 1 & 1) : 1u) << 8 | 0xf << 10);
		if (id & 1) {                  /* a list of pieces, KLM or KSM */
			put(in, inlen, 68, 8); /* room for so many */
			put(in, inlen, 96, 1 + (id >> 2 & 7));
			put(in, inlen, 276, id << 8);
		}
		break;
	case 0x900:
		put(in, inlen, 32 + 0xe0 / 8, wq->wq_num);
		put(in, inlen, 32 + 0x100 / 8, id);
		break;
	case 0x916:
		put(in, inlen, 32 + 0xc0 / 8, 1);
		put(in, inlen, 272, wq->wq_num);
		break;
	case 0x930:
		put(in, inlen, 28, id);
		break;
	case 0x933:
		put(in, inlen, 20, id);
		break;
	case 0x936:
		put(in, inlen, 20, objects[0].id);
		put(in, inlen, 68, id);
		put(in, inlen, 832, objects[2].id | 1u << 24);
		break;
	case 0x773:
	case 0x93b:
		put(in, inlen, 28, id);
		break;
	default: /* SQs, RQs, RMPs, CQs, QPs: places of CQ, domain, umems */
		put(in, inlen, 32 + 8, cq_number());
		put(in, inlen, 32 + 48 + 8, pd_number());
		put(in, inlen, 32 + 48 + 40, umem->umem_id);
		put(in, inlen, 32 + 48 + 44, umem->umem_id);
		put(in, inlen, 24 + 4, pd_number());
		put(in, inlen, 20, umem->umem_id);
		put(in, inlen, 88, umem->umem_id);
		put(in, inlen, 264, umem->umem_id);
		break;
	}
}

static void mend(uint8_t *in, size_t inlen, uint8_t how, uint16_t opcode, const struct object *o)
{
	uint16_t type = how & 64 ? 0x32 : 0x49;

	if (how & MEND_TYPE)
		put(in, inlen, 4, opcode >= 0xa00 ? (o->type ? o->type : type) : how >> 7);
	if (how & MEND_FUNCTION) {
		put(in, inlen, type == 0x32 ? 32 : 28, FUNCTION + (how >> 6));
		put(in, inlen, 36, how >> 4 & 3); /* a queue */
	}
	if (how & MEND_CQ)
		put(in, inlen, 40, cq_number());
	if (how & MEND_ID) {
		static const size_t places[] = { 8, 20, 24, 32 };

		for (size_t i = 0; i < 4; i++)
			put(in, inlen, places[i], o->id);
	}
	if (how & MEND_NUMBERS)
		mend_numbers(in, inlen, opcode, o->id);
}

/* What the firmware refuses has a status and zeros; what the kernel refuses has nothing. */
static void check_answer(const uint8_t *out, size_t outlen, int err)
{
	need(err != EREMOTEIO || (outlen >= 16 && out[0]));
	for (size_t i = 1; err == EREMOTEIO && i < outlen; i++)
		need(!out[i] || (i >= 4 && i < 8));
	for (size_t i = 0; err == EINVAL && i < outlen; i++)
		need(out[i] == 0xa5);
	need(err || !out[0]);
}

static void create(struct object *o, uint8_t *in, size_t inlen, uint8_t *out, size_t outlen)
{
	if (o->obj && mlx5dv_devx_obj_destroy(o->obj))
		return; /* others use it */
	memset(o, 0, sizeof(*o));
	errno = 0;
	o->obj = mlx5dv_devx_obj_create(ctx, in, inlen, out, outlen);
	check_answer(out, outlen, o->obj ? 0 : errno);
	if (!o->obj)
		return;
	memcpy(&o->id, out + 8, 4);
	o->id = be32toh(o->id);
	o->opcode = (uint16_t)(in[0] << 8 | in[1]);
	o->type = o->opcode == 0xa00 ? (uint16_t)(in[6] << 8 | in[7]) : 0;
}

static size_t length(uint8_t byte)
{
	static const uint16_t lengths[] = { 16,  32,  48,  64,  72,   272, 276,
					    512, 832, 840, 848, 1024, 4112 };

	if (byte < 200)
		return lengths[byte % (sizeof(lengths) / sizeof(lengths[0]))] +
		       (byte >= 150) * byte % 3;
	return (size_t)(byte - 200) * 20;
}

/* How many bytes of the input it took. */
static size_t command(const uint8_t *data, size_t size)
{
	size_t inlen = length(data[4]), outlen = length(data[5]), n = size - HEAD;
	uint16_t opcode = opcodes[data[0] % (sizeof(opcodes) / sizeof(opcodes[0]))];
	struct object *o = &objects[data[3] % OBJECTS];
	uint8_t *in = calloc(1, inlen), *out = malloc(outlen), how = data[2];
	int err = 0;

	need((in || !inlen) && (out || !outlen));
	n = n < 24 ? n : 24;
	n = n < inlen ? n : inlen;
	if (!(how & MEND_ZERO))
		memcpy(in, data + HEAD, n);
	memset(out, 0xa5, outlen);
	if (inlen >= 4)
		put(in, inlen, 0, data[1] & 16 ? be32toh(*(uint32_t *)in) : (uint32_t)opcode << 16);
	mend(in, inlen, how, opcode, o);
	switch (data[1] % 8) {
	case 0:
	case 1:
		errno = 0;
		err = mlx5dv_devx_general_cmd(ctx, in, inlen, out, outlen);
		check_answer(out, outlen, err);
		break;
	case 2:
		if (o->obj)
			check_answer(out, outlen,
				     mlx5dv_devx_obj_modify(o->obj, in, inlen, out, outlen));
		break;
	case 3:
	case 4:
		if (o->obj)
			check_answer(out, outlen,
				     mlx5dv_devx_obj_query(o->obj, in, inlen, out, outlen));
		break;
	default:
		create(o, in, inlen, out, outlen);
	}
	free(in);
	free(out);
	return HEAD + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int left = 1;

	if (!ctx)
		open_device();
	while (size > HEAD) {
		size_t n = command(data, size);

		data += n;
		size -= n;
	}
	for (int round = 0; left && round <= OBJECTS; round++) {
		left = 0;
		for (int i = 0; i < OBJECTS; i++) {
			if (objects[i].obj && !mlx5dv_devx_obj_destroy(objects[i].obj))
				memset(&objects[i], 0, sizeof(objects[i]));
			left += objects[i].obj != NULL;
		}
	}
	need(!left);
	return 0;
}
