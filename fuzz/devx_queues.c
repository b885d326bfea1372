// SPDX-License-Identifier: MIT
/*
 * Queues by command (DEVX) under random changes: good commands with fields changed, in any order, over rings and records
 * that are written at random and rung by store. Whatever is refused leaves a status, whatever was made can be queried and
 * destroyed in the end.
 *
 * The input is a row of steps of 8 bytes: what to do, to which of the objects, and up to two fields of the command that
 * get another value.
 */
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/mlx5dv.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OBJECTS = 8, STEP = 8, BYTES = 304, MEM = 1 << 17, RINGS = 1 << 14, RECORDS = 4096 };
enum { CTX = 0x100, WQ = CTX + 0x180, QPC = 0xc0, CQC = 0x80, DCTC = 0x80 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct mlx5dv_devx_uar *uar;
static struct mlx5dv_devx_umem *umem;
static uint8_t *mem;
static uint32_t pdn, cqn, eqn;

static struct object {
	struct mlx5dv_devx_obj *obj;
	uint16_t made_by;
	uint32_t number;
} objects[OBJECTS];

static void need(int ok)
{
	if (!ok)
		abort();
}

static void put(uint8_t *to, uint32_t bit, uint32_t len, uint64_t value)
{
	for (uint32_t i = 0; i < len; i++) {
		uint32_t at = bit + len - 1 - i;

		to[at / 8] = (uint8_t)((to[at / 8] & ~(0x80 >> at % 8)) |
				       (value >> i & 1 ? 0x80 >> at % 8 : 0));
	}
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct mlx5dv_cq dv_cq;
	struct mlx5dv_pd dv_pd;
	struct mlx5dv_obj obj = { .cq = { .out = &dv_cq }, .pd = { .out = &dv_pd } };

	need(list && list[0]);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	need(ctx != NULL);
	pd = obj.pd.in = ibv_alloc_pd(ctx);
	cq = obj.cq.in = ibv_create_cq(ctx, 63, NULL, NULL, 0);
	uar = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	umem = mlx5dv_devx_umem_reg(ctx, mem, MEM, IBV_ACCESS_LOCAL_WRITE);
	need(pd && cq && uar && umem && !mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ | MLX5DV_OBJ_PD));
	need(!mlx5dv_devx_query_eqn(ctx, 0, &eqn));
	pdn = dv_pd.pdn;
	cqn = dv_cq.cqn;
}

/* --- commands that would be taken ------------------------------------------------------------------ */

static uint32_t number_of(uint16_t made_by)
{
	for (int i = 0; i < OBJECTS; i++)
		if (objects[i].obj && objects[i].made_by == made_by)
			return objects[i].number;
	return 0;
}

static uint32_t some_cq(void)
{
	return number_of(0x400) ? number_of(0x400) : cqn;
}

static void good_wq(uint8_t *in, uint32_t slot, uint32_t stride)
{
	put(in, CTX + 0x48, 24, some_cq());
	put(in, WQ, 4, 1);
	put(in, WQ + 0x48, 24, pdn);
	put(in, WQ + 0x68, 24, uar->page_id);
	put(in, WQ + 0x80, 64, slot * 8);
	put(in, WQ + 0x10c, 4, stride);
	put(in, WQ + 0x11b, 5, 4);
	put(in, WQ + 0x140, 32, umem->umem_id);
	put(in, WQ + 0x160, 32, umem->umem_id);
	put(in, WQ + 0x180, 64, RECORDS + slot * 2048);
}

static void good_cq(uint8_t *in, uint32_t slot)
{
	put(in, 0x280, 64, RECORDS + slot * 2048);
	put(in, 0x2c0, 32, umem->umem_id);
	put(in, CQC + 0x20, 32, umem->umem_id);
	put(in, CQC + 0x63, 5, 4);
	put(in, CQC + 0x68, 24, uar->page_id);
	put(in, CQC + 0xb8, 8, eqn);
	put(in, CQC + 0x1c0, 64, slot * 8);
}

static void good_qp(uint8_t *in, uint32_t slot)
{
	put(in, QPC + 0x28, 24, pdn);
	put(in, QPC + 0x49, 4, 4);
	put(in, QPC + 0x51, 4, 4);
	put(in, QPC + 0x68, 24, uar->page_id);
	put(in, QPC + 0x3e8, 24, some_cq());
	put(in, QPC + 0x4e8, 24, some_cq());
	put(in, QPC + 0x500, 64, slot * 8);
	put(in, QPC + 0x720, 32, umem->umem_id);
	put(in, 0x800, 64, RECORDS + slot * 2048);
	put(in, 0x840, 32, umem->umem_id);
	if (number_of(0x90c)) {
		put(in, QPC + 0x565, 3, 1);
		put(in, QPC + 0x568, 24, number_of(0x90c));
	}
}

static void good_dct(uint8_t *in)
{
	put(in, DCTC + 0x48, 24, some_cq());
	put(in, DCTC + 0xa8, 24, number_of(0x90c));
	put(in, DCTC + 0xc8, 24, pdn);
	put(in, DCTC + 0x145, 3, 3);
}

static void good(uint8_t *in, uint16_t opcode, uint32_t slot)
{
	put(in, 0, 16, opcode);
	switch (opcode) {
	case 0x400:
		good_cq(in, slot);
		break;
	case 0x500:
		good_qp(in, slot);
		break;
	case 0x710:
		good_dct(in);
		break;
	case 0x904:
		good_wq(in, slot, 6);
		put(in, CTX + 0x100, 16, number_of(0x912) ? 1 : 0);
		put(in, CTX + 0x168, 24, number_of(0x912));
		break;
	case 0x908:
	case 0x90c:
		good_wq(in, slot, 5);
		break;
	case 0x912:
		put(in, CTX + 0x128, 24, number_of(0x816));
		break;
	case 0x916:
		put(in, CTX + 0xd0, 16, 2);
		put(in, CTX + 0x780, 32, number_of(0x908));
		put(in, CTX + 0x7a0, 32, number_of(0x908));
		break;
	case 0x900:
		put(in, CTX + 0x20, 4, number_of(0x916) ? 1 : 0);
		put(in, CTX + 0xe8, 24, number_of(0x908));
		put(in, CTX + 0x108, 24, number_of(0x916));
		put(in, CTX + 0x120, 4, 2);
		break;
	default:
		break;
	}
}

/* What most transitions want; the loopback has no address. */
static void good_modify(uint8_t *in, const struct object *o)
{
	put(in, 0x48, 24, o->number);
	if (o->made_by == 0x500) {
		put(in, QPC + 0x40, 3, 3);
		put(in, QPC + 0xa8, 24, o->number);
		put(in, QPC + 0xc0, 1, 1);
		put(in, QPC + 0x490, 3, 7);
	} else if (o->made_by == 0x916) {
		put(in, 0x80, 64, 1);
		good(in, 0x916, 0);
	} else if (o->made_by == 0x904 || o->made_by == 0x908) {
		put(in, CTX + 0x8, 4, 1);
	}
}

/* --- steps ------------------------------------------------------------------------------------------ */

static void change(uint8_t *in, const uint8_t *field)
{
	uint32_t bit = (uint32_t)(field[0] | field[1] << 8) & 0xfff, len = field[0] & 1 ? 4 : 24;

	if (field[2] && bit + len <= 280 * 8)
		put(in, bit, len, field[2] & 0x80 ? ~0ull << (field[2] & 15) : field[2]);
}

static void destroy(struct object *o)
{
	int err = o->obj ? mlx5dv_devx_obj_destroy(o->obj) : 0;

	need(!err || err == EBUSY);
	if (!err)
		o->obj = NULL;
}

static void create(struct object *o, uint8_t *in, uint16_t opcode, uint32_t slot,
		   const uint8_t *step)
{
	uint8_t out[16];

	destroy(o);
	if (o->obj)
		return;
	good(in, opcode, slot);
	change(in, step + 2);
	change(in, step + 5);
	put(in, 0, 16, opcode);
	memset(out, 0xa5, sizeof(out));
	o->obj = mlx5dv_devx_obj_create(ctx, in, BYTES, out, sizeof(out));
	need(o->obj ? !out[0] : errno == EREMOTEIO && out[0]);
	o->made_by = opcode;
	o->number = (uint32_t)out[9] << 16 | (uint32_t)out[10] << 8 | out[11];
	need(!o->obj || o->number);
}

static const struct {
	uint16_t made_by, query, modify[12];
} families[] = {
	{ 0x400, 0x402, { 0x403 } },
	{ 0x500, 0x50b, { 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x508, 0x50a, 0x50c, 0x50e } },
	{ 0x710, 0x713, { 0 } },
	{ 0x904, 0x907, { 0x905 } },
	{ 0x908, 0x90b, { 0x909 } },
	{ 0x90c, 0x90f, { 0x90d } },
	{ 0x912, 0x915, { 0x913 } },
	{ 0x916, 0x919, { 0x917 } },
	{ 0x900, 0x903, { 0x901 } },
	{ 0x816, 0, { 0 } },
};
enum { FAMILIES = sizeof(families) / sizeof(families[0]) };

static void run(struct object *o, uint8_t *in, const uint8_t *step, int query)
{
	uint8_t out[BYTES] = { 0 };
	uint16_t opcode = 0;
	int err;

	for (int i = 0; o->obj && i < FAMILIES; i++)
		if (families[i].made_by == o->made_by)
			opcode = query ? families[i].query
				       : families[i].modify[step[1] / OBJECTS % 12];
	if (!opcode)
		return;
	good_modify(in, o);
	change(in, step + 2);
	change(in, step + 5);
	put(in, 0, 16, opcode);
	put(in, 0x48, 24, o->number);
	err = query ? mlx5dv_devx_obj_query(o->obj, in, 16, out, sizeof(out))
		    : mlx5dv_devx_obj_modify(o->obj, in, BYTES, out, 16);
	need(err ? err == EREMOTEIO && out[0] : !out[0]);
}

static void one_step(const uint8_t *step)
{
	uint32_t slot = step[1] % OBJECTS;
	struct object *o = &objects[slot];
	uint8_t in[BYTES] = { 0 };
	uint32_t at;

	switch (step[0] % 16) {
	case 0 ... 5:
		create(o, in, families[step[1] / OBJECTS % FAMILIES].made_by, slot, step);
		break;
	case 6 ... 9:
		run(o, in, step, 0);
		break;
	case 10:
		run(o, in, step, 1);
		break;
	case 11:
		destroy(o);
		break;
	case 12 ... 13: /* into rings and records */
		at = (uint32_t)(step[2] | step[3] << 8) * 2 % (MEM - 4);
		memcpy(mem + at, step + 4, 4);
		break;
	case 14:
		*(volatile uint64_t *)uar->reg_addr = (uint64_t)htobe32(o->number << 8) << 32;
		break;
	default:
		*(volatile uint64_t *)((char *)uar->base_addr + 0x20) =
			htobe64((uint64_t)(step[2] | step[3] << 16) << 32 | o->number);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!ctx)
		open_device();
	for (; size >= STEP; data += STEP, size -= STEP)
		one_step(data);
	/* What others use goes last. */
	for (int round = 0; round < OBJECTS; round++)
		for (int i = 0; i < OBJECTS; i++)
			destroy(&objects[i]);
	for (int i = 0; i < OBJECTS; i++)
		need(!objects[i].obj);
	memset(mem, 0, MEM);
	return 0;
}
