// SPDX-License-Identifier: MIT
/*
 * Owns loops that copy or fill memory, of one block each: what memcpy and memset of the device
 * library are made of, and what programs write themselves.
 *
 *   1: ld   a, 0(s)      all loads through one register, before
 *      ld   b, 8(s)      the stores through another one, which put
 *      sd   a, 0(d)      each value where it was in the source; or
 *      sd   b, 8(d)      stores of one register that stays as it is
 *      addi s, s, 16     both walk on by what was copied,
 *      addi d, d, 16     and one register counts
 *      addi n, n, -2
 *      bltu k, n, 1b
 *
 * Whoever enters such a loop with many turns to go calls run_loop, which makes all turns but the
 * last ones at once. A turn is what the interpreter would have made of it: the same bytes, the same
 * registers, and block length instructions retired. Turns are left to translated code where the
 * budget ends, where a range leaves guest memory, and where source and destination would overlap.
 *
 * The registers change when all bytes are written. If a page is not there, or not for this, they are
 * still those of the loop's head: the interpreter begins again there and goes on up to the
 * instruction that traps (run.c). Pages are read before the first byte is written, so that bytes are
 * only written a second time where a page may be read and not written, or goes away meanwhile. A
 * loop that stores in another order than from low to high would have left other bytes of its last
 * turn then; for it such a page is found before the first byte is written as well.
 */
#include "dpa/cpu/jit/code.h"
#include "dpa/cpu/jit/runtime.h"

#define PAGE      4096
#define MIN_TURNS 4   /* fewer are not worth it, once we are here */
#define MIN_BYTES 768 /* as much must be ahead for a call to pay */
#define SIGN      (1ULL << 63)

/* ---- finding them ---- */

/* What the instructions so far do. */
struct reading {
	uint32_t loaded;  /* bit per guest register */
	uint32_t stepped; /* the same: addi r, r */
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
static bool read_branch(struct loop *l, const struct reading *r, const struct vb_insn *insn)
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

bool find_loop(const struct vb_text *text, const struct block *b, struct loop *l)
{
	struct reading r = { .loaded = 0 };
	uint32_t i = b->index;

	if (b->count < 3 || b->count > 2 * LOOP_WORDS + LOOP_STEPS + 1)
		return false;
	*l = (struct loop){ .index = b->index, .count = b->count };
	for (unsigned int n = b->count; n > 1; n--) {
		const struct vb_insn *insn = &text->insns[i];
		bool ok = false;

		if (insn->op >= VB_OP_LB && insn->op <= VB_OP_SD)
			ok = read_access(l, &r, insn, insn->op <= VB_OP_LWU);
		else if (insn->op == VB_OP_ADDI || insn->op == VB_OP_ADDIW)
			ok = read_step(l, &r, insn);
		if (!ok)
			return false;
		i += vb_insn_len(text->base[text->lo + 2 * (uint64_t)i]) / 2;
	}
	return text->insns[i].op >= VB_OP_BEQ && text->insns[i].op <= VB_OP_BGEU &&
	       (int64_t)i + text->insns[i].imm / 2 == b->index && is_whole(l, &r) &&
	       read_branch(l, &r, &text->insns[i]);
}

/* ---- entering them ---- */

/* Flags: above, and many turns are ahead. rax is used. */
void emit_loop_test(struct tx *tx, const struct loop *l)
{
	int64_t by = l->steps[l->counter].by, turns = (MIN_BYTES + l->stride - 1) / l->stride;
	unsigned int counter = l->steps[l->counter].reg;
	unsigned int a = by > 0 ? l->bound : counter, b = by > 0 ? counter : l->bound;

	mov_rr(&tx->c, RAX, src64(tx, a, RAX));
	if (b)
		alu(&tx->c, X_W, ALU_SUB, RAX, operand64(tx, b));
	alu_imm(&tx->c, X_W, ALU_CMP, rm_reg(RAX), (int32_t)(turns * (by > 0 ? by : -by)));
}

/* ---- running them ---- */

const struct loop *find_loop_at(const struct generation *gen, uint32_t index)
{
	size_t lo = 0, hi = gen->nloops - 1;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (gen->loops[mid].index < index)
			lo = mid + 1;
		else
			hi = mid;
	}
	return &gen->loops[lo];
}

/* Divisors are powers of two, but for rare loops. */
static uint64_t quotient(uint64_t n, uint64_t by)
{
	return by & (by - 1) ? n / by : n >> __builtin_ctzll(by);
}

/* How often the branch is taken at least, from this state. */
static uint64_t turns_ahead(const struct vb_cpu *cpu, const struct loop *l)
{
	uint64_t x = cpu->s.x[l->steps[l->counter].reg], end = cpu->s.x[l->bound];
	int64_t by = l->steps[l->counter].by;

	if (l->steps[l->counter].word && (x | end) >> 31)
		return 0; /* no wrap of words in between */
	if (l->is_signed) {
		x ^= SIGN;
		end ^= SIGN;
	}
	if (by > 0 ? x >= end : x <= end)
		return 0;
	/* The last value with which it is taken. */
	if (!l->inclusive)
		end += by > 0 ? -1ULL : 1;
	return by > 0 ? quotient(end - x, (uint64_t)by) : quotient(x - end, (uint64_t)-by);
}

/* As many turns as fit into what is there of bytes or instructions, each needing so many. */
static uint64_t turns_within(uint64_t turns, uint64_t each, uint64_t room)
{
	return turns < UINT32_MAX && turns * each <= room ? turns : room / each;
}

/* Turns that stay in guest memory with accesses from addr on; the host cannot be made to guess that
 * an address outside of it were inside. */
static uint64_t turns_in_memory(const struct vb_cpu *cpu, uint64_t turns, uint64_t *addr,
				uint64_t stride)
{
	if (*addr >= cpu->limit)
		return 0;
	*addr = vb_cpu_below(*addr, cpu->limit);
	return turns_within(turns, stride, cpu->limit - *addr);
}

VB_GUEST_ACCESS static void touch_pages(const uint8_t *at, uint64_t len)
{
	for (const uint8_t *end = at + len; at < end;
	     at = (const uint8_t *)(((uintptr_t)at | (PAGE - 1)) + 1))
		(void)*(const volatile uint8_t *)at;
}

/* The same for pages that will be written. Nobody sees it: the byte is what it was all the time. */
VB_GUEST_ACCESS static void claim_pages(uint8_t *at, uint64_t len)
{
	for (uint8_t *end = at + len; at < end; at = (uint8_t *)(((uintptr_t)at | (PAGE - 1)) + 1))
		__asm__ volatile("lock orb $0, %0" : "+m"(*at)::"cc");
}

static void touch_target(const struct loop *l, uint8_t *to, uint64_t len)
{
	if (l->in_order)
		touch_pages(to, len);
	else
		claim_pages(to, len);
}

/* Element by element, as the guest's loop does it; the host takes many at a time where it can. */
VB_GUEST_ACCESS static void copy_elements(uint8_t *to, const uint8_t *from, unsigned int size,
					  uint64_t n)
{
	if (size == 1)
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
	else if (size == 2)
		__asm__ volatile("rep movsw" : "+D"(to), "+S"(from), "+c"(n)::"memory");
	else if (size == 4)
		__asm__ volatile("rep movsl" : "+D"(to), "+S"(from), "+c"(n)::"memory");
	else
		__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n)::"memory");
}

VB_GUEST_ACCESS static void fill_elements(uint8_t *to, uint64_t value, unsigned int size,
					  uint64_t n)
{
	if (size == 1)
		__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
	else if (size == 2)
		__asm__ volatile("rep stosw" : "+D"(to), "+c"(n) : "a"(value) : "memory");
	else if (size == 4)
		__asm__ volatile("rep stosl" : "+D"(to), "+c"(n) : "a"(value) : "memory");
	else
		__asm__ volatile("rep stosq" : "+D"(to), "+c"(n) : "a"(value) : "memory");
}

/* Guest memory: of any type, anywhere, read once. */
typedef volatile uint8_t __attribute__((may_alias)) word8;
typedef volatile uint16_t __attribute__((may_alias, aligned(1))) word16;
typedef volatile uint32_t __attribute__((may_alias, aligned(1))) word32;
typedef volatile uint64_t __attribute__((may_alias, aligned(1))) word64;

#define WORD(bits, at) (*(word##bits *)(at))

VB_GUEST_ACCESS static uint64_t load_word(uint8_t *at, unsigned int size, bool sign)
{
	unsigned int unused = 64 - 8 * size;
	uint64_t v = size == 1   ? WORD(8, at)
		     : size == 2 ? WORD(16, at)
		     : size == 4 ? WORD(32, at)
				 : WORD(64, at);

	return sign ? (uint64_t)((int64_t)(v << unused) >> unused) : v;
}

VB_GUEST_ACCESS static void store_word(uint8_t *at, unsigned int size, uint64_t v)
{
	if (size == 1)
		WORD(8, at) = (uint8_t)v;
	else if (size == 2)
		WORD(16, at) = (uint16_t)v;
	else if (size == 4)
		WORD(32, at) = (uint32_t)v;
	else
		WORD(64, at) = v;
}

/* The last turn: its words stay in registers, and each is read once. */
static void copy_words(const struct loop *l, uint8_t *to, uint8_t *from, uint64_t *words)
{
	for (unsigned int i = 0; i < l->nwords; i++)
		words[i] = load_word(from + l->words[i].at, l->size, l->signs >> i & 1);
	for (unsigned int i = 0; i < l->nwords; i++)
		store_word(to + l->words[i].at, l->size, words[i]);
}

static void copy_turns(const struct loop *l, uint8_t *to, uint8_t *from, uint64_t len,
		       uint64_t *words)
{
	touch_pages(from, len);
	touch_target(l, to, len);
	copy_elements(to, from, l->size, (len - l->stride) / l->size);
	copy_words(l, to + len - l->stride, from + len - l->stride, words);
}

static void fill_turns(const struct loop *l, uint8_t *to, uint64_t value, uint64_t len)
{
	touch_target(l, to, len);
	fill_elements(to, value, l->size, len / l->size);
}

static void step_registers(struct vb_cpu *cpu, const struct loop *l, uint64_t turns)
{
	for (unsigned int i = 0; i < l->nsteps; i++) {
		uint64_t *x = &cpu->s.x[l->steps[i].reg];

		*x += turns * (uint64_t)(int64_t)l->steps[i].by;
		if (l->steps[i].word)
			*x = (uint64_t)(int64_t)(int32_t)*x;
	}
}

void run_loop(struct vb_cpu *cpu, const struct loop *l)
{
	uint64_t to = cpu->s.x[l->to] + (uint64_t)(int64_t)l->to_low, from = 0, turns;
	uint64_t words[LOOP_WORDS];
	uint64_t left = (int64_t)cpu->budget > 0 ? cpu->budget : 0;

	turns = turns_within(turns_ahead(cpu, l), l->count, left);
	turns = turns_in_memory(cpu, turns, &to, l->stride);
	if (l->nwords) {
		from = cpu->s.x[l->from] + (uint64_t)(int64_t)l->from_low;
		turns = turns_in_memory(cpu, turns, &from, l->stride);
		turns = turns_within(turns, l->stride, to > from ? to - from : from - to);
	}
	if (turns < MIN_TURNS)
		return;
	cpu->in_loop = true;
	atomic_signal_fence(memory_order_seq_cst);
	if (l->nwords)
		copy_turns(l, cpu->base + to, cpu->base + from, turns * l->stride, words);
	else
		fill_turns(l, cpu->base + to, cpu->s.x[l->value], turns * l->stride);
	atomic_signal_fence(memory_order_seq_cst);
	cpu->in_loop = false;
	for (unsigned int i = 0; i < l->nwords; i++)
		cpu->s.x[l->words[i].reg] = words[i];
	step_registers(cpu, l, turns);
	cpu->budget -= turns * l->count;
}
