// SPDX-License-Identifier: MIT
/*
 * Loops as somebody would write them who wants the translator to be wrong. Each begins as a loop that
 * it treats as a whole (a copy, a fill, a body that is made twice, a choice, a reversal of bytes) and
 * then gets mistakes: registers that are two things at once, steps before the access, instructions that
 * changed places, somebody who enters in the middle. Memory has pages of all rights, ends, a window and a
 * device. Both tiers run the same calls with the same stops; all that can be seen must be the same.
 */
#include "bed.h"

#include <inttypes.h>

#include "dpa/internal.h"

#define WINDOW VB_DPA_WINDOW_BASE
#define DEVICE (VB_DPA_WINDOW_BASE + 0x10000)
#define LIMIT  (16ull << 20)
#define MIDDLE (2ull << 20) /* pages: writable, writable, only readable, writable, none */

enum { FUNCTIONS = 60, CALLS = 8, POOL = 9, LIST = 40, HOST = 4096, TOP = 8192, TURNS = 2500 };

/* ---- making them ---- */

struct maker {
	struct rv_prog *p;
	struct rng r;
	unsigned pool[POOL];
	struct rv_insn list[LIST];
	unsigned n;
};

static unsigned any(struct maker *m)
{
	return rng_chance(&m->r, 6) ? 0 : m->pool[rng_below(&m->r, POOL)];
}

static void put(struct maker *m, enum rv_op op, unsigned rd, unsigned rs1, unsigned rs2, i64 imm)
{
	if (m->n < LIST)
		m->list[m->n++] = (struct rv_insn){ .op = op,
						    .rd = (uint8_t)rd,
						    .rs1 = (uint8_t)rs1,
						    .rs2 = (uint8_t)rs2,
						    .imm = imm };
}

static const enum rv_op loads[2][4] = { { OP_lb, OP_lh, OP_lw, OP_ld },
					{ OP_lbu, OP_lhu, OP_lwu, OP_ld } };
static const enum rv_op stores[4] = { OP_sb, OP_sh, OP_sw, OP_sd };
static const enum rv_op branches[6] = { OP_bne, OP_bltu, OP_blt, OP_bgeu, OP_bge, OP_beq };

static void any_access(struct maker *m)
{
	static const enum rv_op atomics[] = { OP_lr_w,     OP_lr_d,     OP_sc_w,
					      OP_sc_d,     OP_amoadd_w, OP_amoswap_d,
					      OP_amomax_w, OP_amoand_d, OP_amoxor_w };
	unsigned k = rng_below(&m->r, 4);
	i64 imm = rng_chance(&m->r, 80) ? (i64)rng_below(&m->r, 64) - 16
					: (i64)rng_below(&m->r, 4096) - 2048;

	switch (rng_below(&m->r, 5)) {
	case 0:
	case 1:
		put(m, loads[rng_below(&m->r, 2)][k], any(m), any(m), 0, imm);
		break;
	case 2:
	case 3:
		put(m, stores[k], 0, any(m), any(m), imm);
		break;
	default:
		k = rng_below(&m->r, sizeof(atomics) / sizeof(atomics[0]));
		put(m, atomics[k], any(m), any(m), k < 2 ? 0 : any(m), 0);
		break;
	}
}

static void any_computation(struct maker *m)
{
	static const enum rv_op reg[] = { OP_addw, OP_subw, OP_sllw,   OP_mulw,   OP_xor,  OP_or,
					  OP_and,  OP_add,  OP_sltu,   OP_sh2add, OP_rorw, OP_sub,
					  OP_mul,  OP_divw, OP_add_uw, OP_mulhu,  OP_max,  OP_sra };
	static const enum rv_op imm[] = { OP_addiw, OP_addi, OP_andi, OP_xori, OP_slti, OP_sltiu };
	static const enum rv_op shift[] = { OP_slli, OP_srli, OP_srai, OP_slliw, OP_srliw };

	switch (rng_below(&m->r, 8)) {
	case 0:
	case 1:
	case 2:
		put(m, reg[rng_below(&m->r, 18)], any(m), any(m), any(m), 0);
		break;
	case 3:
	case 4:
	case 5:
		put(m, imm[rng_below(&m->r, 6)], any(m), any(m), 0,
		    rng_chance(&m->r, 30) ? 0 : (i64)rng_below(&m->r, 256) - 128);
		break;
	case 6:
		put(m, shift[rng_below(&m->r, 5)], any(m), any(m), 0,
		    rng_chance(&m->r, 30) ? 8 : rng_below(&m->r, 32));
		break;
	default:
		if (rng_chance(&m->r, 20)) /* instret */
			put(m, OP_csrrs, any(m), 0, 0, 0xc02);
		else
			put(m, rng_chance(&m->r, 50) ? OP_zext_h : OP_rev8, any(m), any(m), 0, 0);
		break;
	}
}

/* Bytes of a halfword, or of a word, in the other order. */
static void any_swap(struct maker *m)
{
	unsigned h = any(m), t = any(m), d = rng_chance(&m->r, 60) ? h : any(m);
	bool first = rng_chance(&m->r, 50);

	if (rng_chance(&m->r, 40)) {
		put(m, OP_rev8, d, any(m), 0, 0);
		put(m, rng_chance(&m->r, 50) ? OP_srli : OP_srai, d, d, 0, 32);
		return;
	}
	put(m, rng_chance(&m->r, 50) ? OP_lhu : OP_lbu, h, any(m), 0, rng_below(&m->r, 64));
	put(m, first ? OP_slli : OP_srli, t, h, 0, 8);
	put(m, first ? OP_srliw : OP_slliw, d, h, 0, 8);
	put(m, OP_or, rng_chance(&m->r, 70) ? d : t, d, t, 0);
	put(m, OP_zext_h, m->list[m->n - 1].rd, m->list[m->n - 1].rd, 0, 0);
}

/* Bytes that lie side by side, put together in one order or the other; loads first or one by one. */
static void any_bytes(struct maker *m)
{
	unsigned n = rng_chance(&m->r, 50) ? 2 : 4, base = m->pool[0], sum = m->pool[4], b;
	unsigned order = rng_below(&m->r, 2), imm = rng_below(&m->r, 64);

	for (unsigned i = 0; i < n; i++) {
		unsigned at = order ? n - 1 - i : i;

		b = i ? m->pool[rng_chance(&m->r, 80) ? 5 : 5 + rng_below(&m->r, 3)] : sum;
		put(m, rng_chance(&m->r, 80) ? OP_lbu : OP_lb, b, base, 0,
		    imm + (rng_chance(&m->r, 95) ? at : 0));
		if (i)
			put(m, rng_chance(&m->r, 50) ? OP_slli : OP_slliw, b, b, 0, 8 * i);
		if (i)
			put(m, rng_chance(&m->r, 90) ? OP_or : OP_add, sum, sum, b, 0);
	}
	if (rng_chance(&m->r, 50))
		put(m, rng_chance(&m->r, 50) ? OP_zext_h : OP_addiw, any(m), sum, 0, 0);
}

/* A branch over what follows; fix says over how many. */
static void any_choice(struct maker *m)
{
	unsigned n = 1 + rng_below(&m->r, rng_chance(&m->r, 80) ? 2 : 3);

	if (m->n + n + 1 > LIST)
		return;
	put(m, branches[rng_below(&m->r, 6)], 0, any(m), any(m), 0);
	if (rng_chance(&m->r, 20)) {
		m->list[m->n - 1].label = LIST; /* out of the loop */
		return;
	}
	m->list[m->n - 1].label = (int)n;
	while (n--)
		any_computation(m);
}

/* A loop that copies or fills; who is who may coincide. */
static void make_copy(struct maker *m)
{
	unsigned size = rng_below(&m->r, 4),
		 words = 1 + rng_below(&m->r, rng_chance(&m->r, 20) ? 8 : 3);
	unsigned to = m->pool[0], from = m->pool[1], counter = m->pool[2];
	i64 stride = (i64)words << size, low = rng_chance(&m->r, 30) ? rng_below(&m->r, 64) : 0;
	bool fill = rng_chance(&m->r, 30), early = rng_chance(&m->r, 30);
	i64 by = rng_chance(&m->r, 70) ? -1 : (i64)rng_below(&m->r, 64) - 32;
	enum rv_op step = rng_chance(&m->r, 20) ? OP_addiw : OP_addi;

	if (words > 4)
		counter = m->pool[8], words = 6;
	stride = (i64)words << size;
	if (early)
		put(m, step, counter, counter, 0, by);
	for (unsigned i = 0; i < words && !fill; i++)
		put(m, loads[rng_below(&m->r, 2)][size], m->pool[(words > 4 ? 2 : 3) + i % 6], from,
		    0, low + ((i64)i << size));
	for (unsigned i = 0; i < words; i++)
		put(m, stores[size], 0, to,
		    fill ? m->pool[3] : m->pool[(words > 4 ? 2 : 3) + i % 6], (i64)i << size);
	put(m, OP_addi, to, to, 0, stride);
	if (!fill)
		put(m, OP_addi, from, from, 0, stride);
	if (!early)
		put(m, step, counter, counter, 0, by);
}

/* A loop that compares two ranges; whoever finds a difference leaves. */
static void make_compare(struct maker *m)
{
	unsigned size = rng_below(&m->r, 4), kind = rng_below(&m->r, 2);
	i64 by = rng_chance(&m->r, 70) ? -1 : -((i64)1 << size);
	bool early = rng_chance(&m->r, 30);

	if (early)
		put(m, OP_addi, m->pool[2], m->pool[2], 0, by);
	put(m, loads[kind][size], m->pool[3], m->pool[0], 0, 0);
	put(m, loads[rng_chance(&m->r, 90) ? kind : !kind][size], m->pool[4], m->pool[1], 0, 0);
	put(m, rng_chance(&m->r, 90) ? OP_bne : OP_beq, 0, m->pool[3], m->pool[4], 0);
	m->list[m->n - 1].label = LIST;
	put(m, OP_addi, m->pool[0], m->pool[0], 0, (i64)1 << size);
	put(m, OP_addi, m->pool[1], m->pool[1], 0, (i64)1 << size);
	if (!early)
		put(m, rng_chance(&m->r, 80) ? OP_addi : OP_addiw, m->pool[2], m->pool[2], 0, by);
}

/* A loop that adds up elements. */
static void make_sum(struct maker *m)
{
	unsigned size = rng_below(&m->r, 3), words = 1 + rng_below(&m->r, 3);
	enum rv_op add = rng_chance(&m->r, 50) ? OP_add : OP_addw;

	for (unsigned i = 0; i < words; i++) {
		put(m, loads[!rng_chance(&m->r, 10)][size], m->pool[3 + i], m->pool[1], 0,
		    (i64)i << size);
		put(m, add, m->pool[6], m->pool[6], m->pool[3 + i], 0);
	}
	put(m, OP_addi, m->pool[1], m->pool[1], 0, (i64)words << size);
	put(m, OP_addi, m->pool[2], m->pool[2], 0, -1);
}

static void make_body(struct maker *m)
{
	for (unsigned n = 1 + rng_below(&m->r, 16); n; n--)
		switch (rng_below(&m->r, 12)) {
		case 0:
			any_swap(m);
			break;
		case 10:
			any_bytes(m);
			break;
		case 11:
			put(m, OP_fence, 0, 0, 0, 0x33);
			break;
		case 1:
		case 2:
			any_choice(m);
			break;
		case 3:
		case 4:
		case 5:
			any_access(m);
			break;
		case 6:
			put(m, OP_addi, m->pool[rng_below(&m->r, 3)], m->pool[rng_below(&m->r, 3)],
			    0, 8 * ((i64)rng_below(&m->r, 8) - 3));
			break;
		default:
			any_computation(m);
			break;
		}
}

/* One thing that is not as it should be. */
static void spoil(struct maker *m)
{
	struct rv_insn *a = &m->list[rng_below(&m->r, m->n)], *b = &m->list[rng_below(&m->r, m->n)];
	struct rv_insn swap = *a;

	switch (rng_below(&m->r, 9)) {
	case 0:
	case 1: /* a register that is another one */
		a->rd = a->rd ? (uint8_t)any(m) : 0;
		break;
	case 2:
		a->rs1 = (uint8_t)any(m);
		break;
	case 3:
		a->rs2 = a->rs2 ? (uint8_t)any(m) : 0;
		break;
	case 4:
	case 5:
		if (a->label || b->label)
			break;
		*a = *b;
		*b = swap;
		break;
	case 6:
		if (rv_info[a->op].format == FMT_LD || rv_info[a->op].format == FMT_ST)
			a->imm += 8 * ((i64)rng_below(&m->r, 5) - 2);
		break;
	case 7:
		put(m, rng_chance(&m->r, 50) ? OP_addi : OP_addiw, any(m), any(m), 0,
		    rng_below(&m->r, 9));
		m->list[m->n - 1].rs1 = m->list[m->n - 1].rd;
		if (m->n > 1 && !a->label) {
			swap = *a;
			*a = m->list[m->n - 1];
			m->list[m->n - 1] = swap;
		}
		break;
	default:
		any_access(m);
		break;
	}
}

/* The list becomes code; somewhere in it, perhaps, others enter. */
static void place_list(struct maker *m, int middle, int out)
{
	unsigned at = middle < 0 ? m->n : rng_below(&m->r, m->n);
	int over[LIST + 4];
	unsigned ends[LIST + 4], nover = 0;

	for (unsigned i = 0; i < m->n; i++) {
		const struct rv_insn *x = &m->list[i];

		for (unsigned k = 0; k < nover; k++)
			if (ends[k] == i)
				rv_place(m->p, over[k]);
		if (i == at)
			rv_place(m->p, middle);
		if (x->label == LIST) {
			rv_branch(m->p, x->op, x->rs1, x->rs2, out);
		} else if (x->label) {
			over[nover] = rv_label(m->p);
			ends[nover] = i + 1 + (unsigned)x->label;
			ends[nover] = ends[nover] < m->n ? ends[nover] : m->n;
			rv_branch(m->p, x->op, x->rs1, x->rs2, over[nover++]);
		} else {
			rv_emit(m->p, x->op, x->rd, x->rs1, x->rs2, x->imm)->compress =
				rng_chance(&m->r, 80);
		}
	}
	for (unsigned k = 0; k < nover; k++)
		if (ends[k] == m->n)
			rv_place(m->p, over[k]);
}

static void choose_pool(struct maker *m)
{
	bool taken[32] = { [0] = true, [1] = true, [2] = rng_chance(&m->r, 85) };

	for (unsigned i = 0; i < POOL; i++) {
		do
			m->pool[i] = rng_below(&m->r, 32);
		while (taken[m->pool[i]]);
		taken[m->pool[i]] = true;
	}
	if (rng_chance(&m->r, 10))
		m->pool[rng_below(&m->r, POOL)] = 2;
	if (rng_chance(&m->r, 20)) /* two that are one */
		m->pool[rng_below(&m->r, POOL)] = m->pool[rng_below(&m->r, POOL)];
}

static void make_function(struct maker *m, int entry, int middle)
{
	int top = rv_label(m->p), outer = rv_label(m->p), out = rv_label(m->p);
	bool nested = rng_chance(&m->r, 20), copy = rng_chance(&m->r, 60);
	unsigned mistakes = rng_chance(&m->r, 40) ? 0 : 1 + rng_below(&m->r, 3);
	unsigned a = rng_chance(&m->r, 85) ? m->pool[2] : any(m);
	unsigned b = rng_chance(&m->r, 50) ? 0 : rng_chance(&m->r, 80) ? m->pool[7] : any(m);
	bool turn = rng_chance(&m->r, 40);

	m->n = 0;
	if (copy && rng_chance(&m->r, 60))
		make_copy(m);
	else if (copy && rng_chance(&m->r, 50))
		make_compare(m);
	else if (copy)
		make_sum(m);
	else
		make_body(m);
	while (mistakes--)
		spoil(m);
	if (rng_chance(&m->r, 20))
		a = m->pool[0];
	rv_place(m->p, entry);
	rv_place(m->p, outer);
	if (rng_chance(&m->r, 30))
		rv_emit(m->p, OP_addiw, any(m), any(m), 0, 5);
	rv_place(m->p, top);
	place_list(m, middle, out);
	if (rng_chance(&m->r, 15)) { /* left from its inside */
		rv_branch(m->p, branches[rng_below(&m->r, 6)], turn ? b : a, turn ? a : b, out);
		rv_jump(m->p, 0, top);
	} else {
		rv_branch(m->p, branches[rng_below(&m->r, copy ? 5 : 6)], turn ? b : a,
			  turn ? a : b, top);
	}
	if (nested)
		rv_branch(m->p, branches[rng_below(&m->r, 6)], any(m), any(m), outer);
	rv_place(m->p, out);
	rv_emit(m->p, OP_add, any(m), any(m), any(m), 0);
	rv_emit(m->p, OP_jalr, 0, 1, 0, 0);
}

struct function {
	int label;
	unsigned pool[POOL];
};

static void make_program(struct rv_prog *p, u64 seed, struct function *f)
{
	struct maker m = { .p = p, .r = { seed } };

	rv_init(p);
	for (unsigned n = 0; n < FUNCTIONS; n++) {
		int middle = rng_chance(&m.r, 15) ? rv_label(p) : -1;

		choose_pool(&m);
		memcpy(f[n].pool, m.pool, sizeof(m.pool));
		f[n].label = rv_label(p);
		if (middle >= 0 && rng_chance(&m.r, 50)) { /* this is the way in */
			int other = rv_label(p);

			rv_place(p, f[n].label);
			rv_branch(p, OP_beq, any(&m), any(&m), other);
			rv_jump(p, 0, middle);
			make_function(&m, other, middle);
		} else {
			make_function(&m, f[n].label, middle);
		}
	}
	/* Who uses sp as a base more often than not has it compared where it is written. */
	for (unsigned n = rng_chance(&m.r, 50) ? 200 : 0; n; n--)
		rv_emit(p, OP_ld, 10, 2, 0, 8);
	rv_data(p, NULL, 2 * RV_PAGE, 16);
	rv_layout(p);
}

/* ---- running them ---- */

struct side {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread;
	struct vb_dpa_window *window;
	uint8_t host[HOST];
	uint64_t device; /* what the device page has seen, in order */
};

static int on_load(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t *value,
		   void *arg)
{
	struct side *s = arg;

	(void)thread;
	s->device = s->device * 31 + offset + size;
	*value = s->device;
	return 0;
}

static int on_store(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t value,
		    void *arg)
{
	struct side *s = arg;

	(void)thread;
	s->device = s->device * 37 + offset + size + value;
	return 0;
}

static void map(struct side *s, uint64_t at, uint64_t len, unsigned rights)
{
	static uint8_t bytes[4 * RV_PAGE];
	struct rng r = { at };

	/* The same again and again, for those who look for differences. */
	for (size_t i = 0; i < sizeof(bytes); i += 8)
		memcpy(bytes + i, i < 1024 ? (void *)&(u64){ rng_next(&r) } : bytes + i - 1024, 8);
	assert_int_equal(vb_dpa_mem_map(s->process, &at, len, rights), 0);
	assert_int_equal(vb_dpa_mem_write(s->process, at, bytes, len), 0);
}

static void side_open(struct side *s, enum vb_dpa_tier tier, const struct rv_prog *p,
		      unsigned rights)
{
	static const struct vb_dpa_device_ops ops = { on_load, on_store, false };
	struct vb_dpa_process_attr pa = { .tier = tier, .limit = LIMIT };
	struct vb_dpa_window *device;
	uint8_t *image;
	size_t size = rv_elf_image(p, &image);

	memset(s, 0, sizeof(*s));
	assert_int_equal(vb_dpa_create(NULL, &s->dpa), 0);
	assert_int_equal(vb_dpa_process_create(s->dpa, image, size, &pa, &s->process, NULL), 0);
	assert_int_equal(vb_dpa_process_tier(s->process), tier);
	map(s, LIMIT - TOP, TOP, VB_DPA_READ | VB_DPA_WRITE);
	map(s, MIDDLE, 2 * RV_PAGE, VB_DPA_READ | VB_DPA_WRITE);
	map(s, MIDDLE + 2 * RV_PAGE, RV_PAGE, VB_DPA_READ);
	map(s, MIDDLE + 3 * RV_PAGE, RV_PAGE, VB_DPA_READ | VB_DPA_WRITE);
	assert_int_equal(vb_dpa_thread_create(s->process, NULL, &s->thread), 0);
	assert_int_equal(vb_dpa_device_create(s->process, NULL, DEVICE, 256, &ops, s, &device), 0);
	assert_int_equal(
		vb_dpa_window_create(s->process, NULL, WINDOW, HOST, s->host, rights, &s->window),
		0);
	free(image);
}

static void side_close(struct side *s)
{
	assert_int_equal(vb_dpa_window_destroy(s->window), 0);
	assert_int_equal(vb_dpa_thread_destroy(s->thread), 0);
	assert_int_equal(vb_dpa_process_destroy(s->process), 0);
	assert_int_equal(vb_dpa_destroy(s->dpa), 0);
}

static u64 any_pointer(struct rng *r, u64 data)
{
	u64 off = rng_chance(r, 70) ? 8 * rng_below(r, 128) : rng_below(r, 1024);

	switch (rng_below(r, 20)) {
	case 0:
	case 1:
	case 2:
		return data + off;
	case 3:
	case 4:
		return LIMIT - TOP + off;
	case 5:
		return LIMIT - rng_below(r, 1200);
	case 6:
		return WINDOW + (rng_chance(r, 50) ? off : HOST - rng_below(r, 1200));
	case 7:
		return rng_chance(r, 30) ? DEVICE + off % 256 : RV_TEXT + off;
	case 8:
		return rng_chance(r, 50) ? 0 - off : rng_value(r);
	case 9:
		return MIDDLE + 2 * RV_PAGE - rng_below(r, 2000);
	case 10:
		return MIDDLE + 4 * RV_PAGE - rng_below(r, 2000);
	case 11:
		return MIDDLE - rng_below(r, 64);
	default:
		return MIDDLE + off;
	}
}

/* What registers are: pointers near each other, counts, bounds, anything. */
static void any_registers(struct rng *r, const unsigned *pool, u64 data, u64 *x)
{
	for (unsigned i = 2; i < 32; i++) {
		if (rng_chance(r, 55))
			x[i] = any_pointer(r, data);
		else if (rng_chance(r, 30))
			x[i] = x[2 + rng_below(r, i - 1)] + rng_below(r, 34) - 17;
		else if (rng_chance(r, 85))
			x[i] = rng_below(r, rng_chance(r, 50) ? 400 : 5000);
		else
			x[i] = rng_chance(r, 50) ? rng_value(r)
						 : (1ull << 32) - rng_below(r, 3) + 1;
	}
	if (rng_chance(r, 50))
		x[2] = LIMIT - TOP + 2048;
	if (rng_chance(r, 30))
		return;
	/* As the function means it: two pointers, apart or not, and a number of turns. */
	x[pool[0]] = any_pointer(r, data);
	x[pool[1]] =
		rng_chance(r, 40) ? x[pool[0]] + rng_below(r, 2400) - 1200 : any_pointer(r, data);
	x[pool[2]] = 100 + rng_below(r, 2000);
	x[pool[7]] = rng_chance(r, 40) ? x[pool[0]] + 8 * rng_below(r, 400) : rng_below(r, 100);
}

static enum vb_dpa_why side_run(struct side *s, u64 max)
{
	enum vb_dpa_why why;

	assert_int_equal(vb_dpa_thread_run(s->thread, max, &why), 0);
	return why;
}

static void compare(struct side *a, struct side *b, const char *what, u64 data)
{
	const struct vb_dpa_state *x = vb_dpa_thread_state(a->thread),
				  *y = vb_dpa_thread_state(b->thread);
	const struct {
		u64 at, len;
	} parts[] = { { data, 2 * RV_PAGE }, { LIMIT - TOP, TOP }, { MIDDLE, 4 * RV_PAGE } };
	static uint8_t mem[2][4 * RV_PAGE];

	if (x->pc != y->pc || x->instret != y->instret || x->cause != y->cause ||
	    x->tval != y->tval)
		fail_msg("%s: interpreter pc 0x%" PRIx64 " after %" PRIu64 " cause %" PRIu64
			 " tval 0x%" PRIx64 ", translator pc 0x%" PRIx64 " after %" PRIu64
			 " cause %" PRIu64 " tval 0x%" PRIx64,
			 what, x->pc, x->instret, x->cause, x->tval, y->pc, y->instret, y->cause,
			 y->tval);
	for (unsigned r = 0; r < 32; r++)
		if (x->x[r] != y->x[r])
			fail_msg("%s: x%u is 0x%" PRIx64 " and 0x%" PRIx64 " at 0x%" PRIx64, what,
				 r, x->x[r], y->x[r], x->pc);
	for (unsigned k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
		vb_dpa_mem_read(a->process, parts[k].at, mem[0], parts[k].len);
		vb_dpa_mem_read(b->process, parts[k].at, mem[1], parts[k].len);
		if (memcmp(mem[0], mem[1], parts[k].len))
			fail_msg("%s: memory at 0x%" PRIx64 " differs", what, parts[k].at);
	}
	if (memcmp(a->host, b->host, HOST) || a->device != b->device)
		fail_msg("%s: window or device differ", what);
}

/* The same registers and the same stops on both sides. */
static void one_call(struct side *a, struct side *b, struct rng *r, u64 pc, const unsigned *pool,
		     u64 data, const char *what)
{
	u64 x[32], done = 0;
	enum vb_dpa_why why = VB_DPA_WHY_BUDGET;

	any_registers(r, pool, data, x);
	for (unsigned k = 0; k < 2; k++) {
		struct side *s = k ? b : a;

		assert_int_equal(vb_dpa_thread_set_call(s->thread, pc, NULL, 0), 0);
		memcpy(vb_dpa_thread_state(s->thread)->x + 2, x + 2, 30 * 8);
		vb_dpa_thread_state(s->thread)->instret = 0;
	}
	while (why == VB_DPA_WHY_BUDGET && done < 24000) {
		u64 max = rng_chance(r, 60) ? 24000 : 1 + rng_below(r, 6000);

		why = side_run(a, max);
		if (side_run(b, max) != why)
			fail_msg("%s: the tiers ended differently", what);
		compare(a, b, what, data);
		done += max;
	}
}

/* HOSTILE_SHOW=n: function n of each program, to read. */
static void show(const struct rv_prog *p, const struct function *f)
{
	const char *which = getenv("HOSTILE_SHOW");
	unsigned n = which ? (unsigned)strtoul(which, NULL, 0) : FUNCTIONS;
	int from = n < FUNCTIONS ? p->label[f[n].label] : 0;
	int to = n + 1 < FUNCTIONS ? p->label[f[n + 1].label] : (int)p->count;
	char text[64];

	for (int i = from; n < FUNCTIONS && i < to; i++)
		print_message("%" PRIx64 ": %s\n", p->insn[i].pc,
			      rv_text(&p->insn[i], text, sizeof(text)));
}

static void random_batch(u64 seed)
{
	static const unsigned rights[] = { VB_DPA_READ, VB_DPA_WRITE, VB_DPA_READ | VB_DPA_WRITE };
	struct function functions[FUNCTIONS];
	struct rv_prog p;
	struct rng r = { ~seed };
	struct side a, b;

	make_program(&p, seed, functions);
	show(&p, functions);
	side_open(&a, VB_DPA_TIER_INTERP, &p, rights[seed % 3]);
	side_open(&b, VB_DPA_TIER_JIT, &p, rights[seed % 3]);
	for (unsigned n = 0; n < FUNCTIONS * CALLS; n++) {
		unsigned f = rng_below(&r, FUNCTIONS);
		char what[64];

		snprintf(what, sizeof(what), "seed %" PRIu64 " call %u, function %u", seed, n, f);
		one_call(&a, &b, &r, rv_address(&p, functions[f].label), functions[f].pool,
			 p.data_base, what);
	}
	side_close(&a);
	side_close(&b);
	rv_free(&p);
}

/* Both tiers are in here; once is enough. */
static void test_random(void **state)
{
	const char *seeds = getenv("HOSTILE_SEEDS"), *first = getenv("HOSTILE_FIRST");
	u64 n = seeds ? strtoull(seeds, NULL, 0) : 100, from = first ? strtoull(first, NULL, 0) : 1;

	(void)state;
	for (u64 seed = from; bed_tier == VB_DPA_TIER_JIT && seed < from + n; seed++)
		random_batch(seed);
}

/* ---- by hand ---- */

/*
 * Words of a turn are stored from the last to the first, and a page that may only be read begins
 * between them: the last one traps, and those before it must not be there.
 */
static void test_stores_backwards(void **state)
{
	const u64 edge = MIDDLE + RV_PAGE, first = edge - 100 * 16 - 8;
	uint64_t at = MIDDLE, behind = edge, have[2];
	struct bed b = { 0 };
	int top = rv_label(&b.p);

	(void)state;
	rv_place(&b.p, top);
	rv_emit(&b.p, OP_sd, 0, 10, 11, 8);
	rv_emit(&b.p, OP_sd, 0, 10, 11, 0);
	rv_emit(&b.p, OP_addi, 10, 10, 0, 16);
	rv_emit(&b.p, OP_addi, 12, 12, 0, -1);
	rv_branch(&b.p, OP_bne, 12, 0, top);
	rv_emit(&b.p, OP_ebreak, 0, 0, 0, 0);
	bed_open_limit(&b, LIMIT);
	assert_int_equal(vb_dpa_mem_map(b.process, &at, RV_PAGE, VB_DPA_READ | VB_DPA_WRITE), 0);
	assert_int_equal(vb_dpa_mem_map(b.process, &behind, RV_PAGE, VB_DPA_READ), 0);
	bed_reset(&b);
	bed_state(&b)->x[10] = first;
	bed_state(&b)->x[11] = ~0ull;
	bed_state(&b)->x[12] = 200;
	assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_TRAP);
	assert_int_equal(bed_state(&b)->cause, VB_DPA_CAUSE_STORE);
	assert_int_equal(bed_state(&b)->tval, edge);
	assert_int_equal(bed_state(&b)->pc, RV_TEXT);
	assert_int_equal(bed_state(&b)->instret, 500);
	assert_int_equal(vb_dpa_mem_read(b.process, edge - 16, have, sizeof(have)), 0);
	assert_int_equal(have[0], ~0ull);
	assert_int_equal(have[1], 0);
	bed_close(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_stores_backwards),
					    cmocka_unit_test(test_random) };

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
