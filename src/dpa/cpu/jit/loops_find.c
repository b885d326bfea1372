// SPDX-License-Identifier: MIT
/*
 * Owns the finding of loops whose turns can be made many at once (loops.c): those that copy or fill
 * memory, compare two ranges, or add up elements. They are known by what their instructions do, in
 * whatever order, not by a name.
 *
 *   compare                     sum
 *   1: ld   x, 0(s)             1: lhu  v, 0(s)     unsigned elements,
 *      ld   y, 0(d)                addw t, t, v     each added once to one register
 *      bne  x, y, out              addi s, s, 2
 *      addi s, s, 8                addi n, n, -1
 *      addi d, d, 8                bnez n, 1b
 *      addi n, n, -8
 *      bltu k, n, 1b            Steps may be on either side of the bne.
 */
#include "dpa/cpu/jit/code.h"

/* What the instructions so far do. */
struct reading {
	uint32_t loaded;  /* bit per guest register */
	uint32_t stepped; /* the same: addi r, r */
	uint32_t added;   /* the same: loaded, and added to the sum */
	uint8_t nloads, nstores;
	struct access {
		uint8_t reg;
		int32_t imm;
	} loads[LOOP_WORDS], stores[LOOP_WORDS];
};

static bool read_access(struct loop *l, struct reading *r, const struct vb_insn *insn, bool load)
{
	unsigned int kind = (unsigned int)insn->op - (load ? VB_OP_LB : VB_OP_SB);
	uint8_t size = (uint8_t)(1U << (kind & 3)), *n = load ? &r->nloads : &r->nstores;
	uint8_t *base = load ? &l->from : &l->to;
	struct access *a = load ? r->loads : r->stores;

	if (*n == LOOP_WORDS || (load && r->nstores) || (l->size && l->size != size) ||
	    (*n && *base != insn->rs1) || !insn->rs1 || r->stepped >> insn->rs1 & 1 ||
	    r->loaded >> insn->rs1 & 1)
		return false;
	/* A register is loaded or steps, in either order: one that did both would not be its sum. */
	if (load && (insn->rd == VB_CPU_SINK || insn->rd == insn->rs1 || insn->rd == 2 ||
		     (r->loaded | r->stepped) >> insn->rd & 1))
		return false;
	if (load) {
		r->loaded |= 1U << insn->rd;
		l->signs |= (uint8_t)((insn->op <= VB_OP_LD) << *n);
	}
	l->size = size;
	*base = insn->rs1;
	a[(*n)++] = (struct access){ load ? insn->rd : insn->rs2, insn->imm };
	return true;
}

static bool read_step(struct loop *l, struct reading *r, const struct vb_insn *insn)
{
	if (l->nsteps == LOOP_STEPS || insn->rd != insn->rs1 || insn->rd == 2 || !insn->imm ||
	    (r->loaded | r->stepped) >> insn->rd & 1)
		return false;
	r->stepped |= 1U << insn->rd;
	l->steps[l->nsteps].reg = insn->rd;
	l->steps[l->nsteps].word = insn->op == VB_OP_ADDIW;
	l->steps[l->nsteps++].by = insn->imm;
	return true;
}

/* The branch goes on while the counter is on one side of the bound, and steps lead to the other. */
static bool loops_find_read_branch(struct loop *l, const struct reading *r,
				   const struct vb_insn *insn)
{
	bool first = r->stepped >> insn->rs1 & 1, second = r->stepped >> insn->rs2 & 1;
	bool less = insn->op == VB_OP_BLT || insn->op == VB_OP_BLTU;

	if (insn->op == VB_OP_BEQ || first == second ||
	    r->loaded >> (first ? insn->rs2 : insn->rs1) & 1)
		return false;
	l->bound = first ? insn->rs2 : insn->rs1;
	for (l->counter = 0; l->steps[l->counter].reg != (first ? insn->rs1 : insn->rs2);)
		l->counter++;
	l->is_signed = insn->op == VB_OP_BLT || insn->op == VB_OP_BGE;
	l->until_equal = insn->op == VB_OP_BNE;
	l->inclusive = insn->op == VB_OP_BGE || insn->op == VB_OP_BGEU;
	/* counter < bound, bound >= counter: it must grow; the others: it must shrink. */
	return l->until_equal || (first == less) == (l->steps[l->counter].by > 0);
}

/* All words of one turn, without gaps, in whatever order; *low is the first. */
static bool is_dense(const struct access *a, unsigned int n, unsigned int size, int32_t *low)
{
	unsigned int seen = 0;

	*low = a[0].imm;
	for (unsigned int i = 1; i < n; i++)
		*low = a[i].imm < *low ? a[i].imm : *low;
	for (unsigned int i = 0; i < n; i++) {
		unsigned int at = (unsigned int)(a[i].imm - *low);

		if (at % size || at / size >= n)
			return false;
		seen |= 1U << at / size;
	}
	return seen == (1U << n) - 1;
}

static bool is_rising(const struct access *a, unsigned int n)
{
	for (unsigned int i = 1; i < n; i++)
		if (a[i].imm < a[i - 1].imm)
			return false;
	return true;
}

static bool steps_by(const struct loop *l, unsigned int reg, int32_t by)
{
	for (unsigned int i = 0; i < l->nsteps; i++)
		if (l->steps[i].reg == reg)
			return l->steps[i].by == by && !l->steps[i].word;
	return false;
}

/* Each word comes from where it goes to, or all are one register that nobody changes. */
static bool is_whole(struct loop *l, const struct reading *r)
{
	l->stride = (uint32_t)(r->nstores * l->size);
	l->nwords = r->nloads;
	l->in_order = is_rising(r->stores, r->nstores);
	if (!r->nstores || !is_dense(r->stores, r->nstores, l->size, &l->to_low) ||
	    !steps_by(l, l->to, (int32_t)l->stride) || r->loaded >> l->to & 1)
		return false;
	if (!r->nloads) {
		l->value = r->stores[0].reg;
		for (unsigned int i = 0; i < r->nstores; i++)
			if (r->stores[i].reg != l->value)
				return false;
		return !(r->stepped >> l->value & 1);
	}
	if (r->nloads != r->nstores || l->from == l->to ||
	    !is_dense(r->loads, r->nloads, l->size, &l->from_low) ||
	    !steps_by(l, l->from, (int32_t)l->stride))
		return false;
	for (unsigned int i = 0; i < r->nloads; i++) {
		unsigned int k = 0;

		while (k < r->nstores && r->stores[k].reg != r->loads[i].reg)
			k++;
		if (k == r->nstores ||
		    r->stores[k].imm - l->to_low != r->loads[i].imm - l->from_low)
			return false;
		l->words[i].reg = r->loads[i].reg;
		l->words[i].at = (uint8_t)(r->loads[i].imm - l->from_low);
	}
	return true;
}

/* The next instruction of a block. */
static const struct vb_insn *next_insn(const struct vb_text *text, uint32_t *i)
{
	const struct vb_insn *insn = &text->insns[*i];

	*i += vb_insn_len(text->base[text->lo + 2 * (uint64_t)*i]) / 2;
	return insn;
}

static bool is_step(const struct vb_insn *insn)
{
	return insn->op == VB_OP_ADDI || insn->op == VB_OP_ADDIW;
}

static bool is_branch_to(const struct vb_text *text, uint32_t i, uint32_t target)
{
	return text->insns[i].op >= VB_OP_BEQ && text->insns[i].op <= VB_OP_BGEU &&
	       (int64_t)i + text->insns[i].imm / 2 == target;
}

/* ---- copies and fills ---- */

static bool find_copy(const struct vb_text *text, const struct block *b, struct loop *l)
{
	struct reading r = { .loaded = 0 };
	uint32_t i = b->index;

	*l = (struct loop){ .kind = LOOP_COPY, .index = b->index, .count = (uint8_t)b->count };
	for (unsigned int n = b->count; n > 1; n--) {
		const struct vb_insn *insn = next_insn(text, &i);
		bool ok = false;

		if (insn->op >= VB_OP_LB && insn->op <= VB_OP_SD)
			ok = read_access(l, &r, insn, insn->op <= VB_OP_LWU);
		else if (is_step(insn))
			ok = read_step(l, &r, insn);
		if (!ok)
			return false;
	}
	return is_branch_to(text, i, b->index) && is_whole(l, &r) &&
	       loops_find_read_branch(l, &r, &text->insns[i]);
}

/* ---- sums ---- */

/* sum += something that this turn has loaded */
static bool read_add(struct loop *l, struct reading *r, const struct vb_insn *insn)
{
	bool first = r->loaded >> insn->rs1 & 1, word = insn->op == VB_OP_ADDW;
	unsigned int v = first ? insn->rs1 : insn->rs2, sum = first ? insn->rs2 : insn->rs1;

	if (!(r->loaded >> v & 1) || r->added >> v & 1 || insn->rd != sum || !sum || sum == 2 ||
	    (r->loaded | r->stepped) >> sum & 1 ||
	    (r->added && (l->value != sum || l->word != word)))
		return false;
	r->added |= 1U << v;
	l->value = (uint8_t)sum;
	l->word = word;
	return true;
}

static bool find_sum(const struct vb_text *text, const struct block *b, struct loop *l)
{
	struct reading r = { .loaded = 0 };
	uint32_t i = b->index;

	*l = (struct loop){ .kind = LOOP_SUM, .index = b->index, .count = (uint8_t)b->count };
	for (unsigned int n = b->count; n > 1; n--) {
		const struct vb_insn *insn = next_insn(text, &i);
		bool ok = false;

		if (insn->op >= VB_OP_LBU && insn->op <= VB_OP_LWU)
			ok = read_access(l, &r, insn, true);
		else if (is_step(insn))
			ok = read_step(l, &r, insn);
		else if (insn->op == VB_OP_ADD || insn->op == VB_OP_ADDW)
			ok = read_add(l, &r, insn);
		if (!ok)
			return false;
	}
	if (!r.nloads || r.added != r.loaded || (r.loaded | r.stepped) >> l->value & 1 ||
	    l->value == l->from)
		return false;
	l->nwords = r.nloads;
	l->stride = (uint32_t)(r.nloads * l->size);
	for (unsigned int k = 0; k < r.nloads; k++)
		l->words[k].reg = r.loads[k].reg;
	if (!is_branch_to(text, i, b->index) || !loops_find_read_branch(l, &r, &text->insns[i]) ||
	    l->bound == l->value || !is_dense(r.loads, r.nloads, l->size, &l->from_low) ||
	    !steps_by(l, l->from, (int32_t)l->stride))
		return false;
	for (unsigned int k = 0; k < r.nloads; k++)
		l->words[k].at = (uint8_t)(r.loads[k].imm - l->from_low);
	return true;
}

/* ---- comparisons ---- */

/* The second load goes through another register. */
static bool read_side(struct loop *l, struct reading *r, const struct vb_insn *insn)
{
	bool second = r->nloads;

	if (r->nloads == 2 || (second && insn->rs1 == l->from))
		return false;
	if (second) { /* read_access expects all of them through one */
		l->to = l->from;
		l->to_low = r->loads[0].imm;
		l->from = insn->rs1;
	}
	return read_access(l, r, insn, true);
}

/* The instructions of one of the two blocks but its branch, at which *i is left. */
static bool read_half(const struct vb_text *text, const struct block *b, struct loop *l,
		      struct reading *r, bool loads, uint32_t *i)
{
	*i = b->index;
	for (unsigned int n = b->count; n > 1; n--) {
		const struct vb_insn *insn = next_insn(text, i);

		if (loads && insn->op >= VB_OP_LB && insn->op <= VB_OP_LWU
			    ? !read_side(l, r, insn)
			    : !is_step(insn) || !read_step(l, r, insn))
			return false;
	}
	return true;
}

static bool find_compare(const struct vb_text *text, const struct block *b, struct loop *l)
{
	struct reading r = { .loaded = 0 };
	const struct vb_insn *out;
	uint32_t i;

	*l = (struct loop){ .kind = LOOP_COMPARE,
			    .index = b->index,
			    .count = (uint8_t)(b[0].count + b[1].count) };
	if (!read_half(text, &b[0], l, &r, true, &i) || r.nloads != 2)
		return false;
	out = &text->insns[i];
	if (out->op != VB_OP_BNE || out->rs1 == out->rs2 ||
	    (1U << out->rs1 | 1U << out->rs2) != r.loaded)
		return false;
	next_insn(text, &i);
	if (b[1].index != i || !read_half(text, &b[1], l, &r, false, &i) ||
	    !is_branch_to(text, i, b->index) || !loops_find_read_branch(l, &r, &text->insns[i]))
		return false;
	l->nwords = 2;
	l->stride = l->size;
	l->from_low = r.loads[1].imm;
	l->words[0].reg = r.loads[0].reg;
	l->words[1].reg = r.loads[1].reg;
	/* The same bytes are equal elements only if both are extended in the same way. */
	return (l->signs == 0 || l->signs == 3) && !((1U << l->from | 1U << l->to) & r.loaded) &&
	       steps_by(l, l->from, (int32_t)l->stride) && steps_by(l, l->to, (int32_t)l->stride);
}

/* A loop that begins with this block, which another one follows or not. */
bool find_loop(const struct vb_text *text, const struct block *b, bool last, struct loop *l)
{
	if (b->count < 3 || b->count > 2 * LOOP_WORDS + LOOP_STEPS + 1)
		return false;
	return find_copy(text, b, l) || find_sum(text, b, l) ||
	       (!last && b[1].count <= LOOP_STEPS + 1 && find_compare(text, b, l));
}
