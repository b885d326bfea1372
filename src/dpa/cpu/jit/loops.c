// SPDX-License-Identifier: MIT
/*
 * Owns loops that copy or fill memory, compare two ranges, or add up elements: what memcpy, memset
 * and memcmp of the device library are made of, and what programs write themselves. loops_find.c
 * knows them.
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
#define MIN_BYTES 768 /* as much must be ahead for a copy to pay, */
#define MIN_AHEAD 96  /* as many turns for the others */
#define SIGN      (1ULL << 63)

/* ---- entering them ---- */

/* Flags: above, and many turns are ahead. rax is used. */
void emit_loop_test(struct tx *tx, const struct loop *l)
{
	int64_t by = l->steps[l->counter].by;
	int64_t turns = l->kind == LOOP_COPY ? (MIN_BYTES + l->stride - 1) / l->stride : MIN_AHEAD;
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

/* Bytes up to the first end of a page behind a or b, at most len. */
static uint64_t bytes_in_pages(const uint8_t *a, const uint8_t *b, uint64_t len)
{
	uint64_t of_a = PAGE - ((uintptr_t)a & (PAGE - 1)),
		 of_b = PAGE - ((uintptr_t)b & (PAGE - 1));
	uint64_t least = of_a < of_b ? of_a : of_b;

	return least < len ? least : len;
}

/*
 * How many bytes are equal from the first on, perhaps not all. Many are read at once, but none of a
 * page that the guest's loop may not come to.
 */
VB_GUEST_ACCESS static uint64_t equal_bytes(uint8_t *a, uint8_t *b, uint64_t len)
{
	uint64_t at = 0;

	while (at < len) {
		uint64_t end = at + bytes_in_pages(a + at, b + at, len - at);

		for (; at + 32 <= end; at += 32)
			if ((WORD(64, a + at) ^ WORD(64, b + at)) |
			    (WORD(64, a + at + 8) ^ WORD(64, b + at + 8)) |
			    (WORD(64, a + at + 16) ^ WORD(64, b + at + 16)) |
			    (WORD(64, a + at + 24) ^ WORD(64, b + at + 24)))
				break;
		while (at < end && WORD(8, a + at) == WORD(8, b + at))
			at++;
		if (at < end)
			break;
	}
	return at;
}

/* Turns that found two equal elements, the last of which leaves them in registers. */
static uint64_t compare_turns(const struct loop *l, uint8_t *to, uint8_t *from, uint64_t turns,
			      uint64_t *words)
{
	turns = equal_bytes(to, from, turns * l->stride) / l->stride;
	/* Somebody may write there meanwhile: what counts is what the registers get. */
	for (; turns; turns--) {
		uint64_t at = (turns - 1) * l->stride;

		words[0] = load_word(to + at, l->size, l->signs & 1);
		words[1] = load_word(from + at, l->size, l->signs >> 1 & 1);
		if (words[0] == words[1])
			break;
	}
	return turns;
}

/* Elements of 1, 2 or 4 bytes, eight bytes at a time: every second one in a lane of twice its size. */
VB_GUEST_ACCESS static uint64_t sum_elements(uint8_t *at, unsigned int size, uint64_t len)
{
	const unsigned int bits = 8 * size;
	const uint64_t mask = size == 1   ? 0x00ff00ff00ff00ffULL
			      : size == 2 ? 0x0000ffff0000ffffULL
					  : 0x00000000ffffffffULL;
	uint64_t sum = 0;

	while (len >= 8) {
		/* A lane of 16 bits holds 128 sums of two bytes, a wider one more than that. */
		uint64_t lanes = 0, some = len / 8 < 128 ? len / 8 : 128;

		for (len -= 8 * some; some; some--, at += 8) {
			uint64_t eight = WORD(64, at);

			lanes += (eight & mask) + (eight >> bits & mask);
		}
		if (size == 1)
			lanes = (lanes & 0x0000ffff0000ffffULL) +
				(lanes >> 16 & 0x0000ffff0000ffffULL);
		sum += size == 4 ? lanes : (lanes & 0xffffffff) + (lanes >> 32);
	}
	for (; len; len -= size, at += size)
		sum += load_word(at, size, false);
	return sum;
}

/* All elements but those of the last turn, which stay in registers and are added by it. */
static uint64_t sum_turns(const struct loop *l, uint8_t *from, uint64_t len, uint64_t *words)
{
	uint64_t sum = sum_elements(from, l->size, len - l->stride);

	for (unsigned int i = 0; i < l->nwords; i++) {
		words[i] = load_word(from + len - l->stride + l->words[i].at, l->size, false);
		sum += words[i];
	}
	return sum;
}

/* Turns that can be made from this state, all of them inside of guest memory; where they begin. */
static uint64_t turns_to_make(const struct vb_cpu *cpu, const struct loop *l, uint64_t *to,
			      uint64_t *from)
{
	uint64_t left = (int64_t)cpu->budget > 0 ? cpu->budget : 0;
	uint64_t turns = turns_within(turns_ahead(cpu, l), l->count, left);

	*to = cpu->s.x[l->to] + (uint64_t)(int64_t)l->to_low;
	*from = cpu->s.x[l->from] + (uint64_t)(int64_t)l->from_low;
	if (l->kind != LOOP_SUM)
		turns = turns_in_memory(cpu, turns, to, l->stride);
	if (l->nwords)
		turns = turns_in_memory(cpu, turns, from, l->stride);
	if (l->kind == LOOP_COPY && l->nwords)
		turns = turns_within(turns, l->stride, *to > *from ? *to - *from : *from - *to);
	return turns < MIN_TURNS ? 0 : turns;
}

void run_loop(struct vb_cpu *cpu, const struct loop *l)
{
	uint64_t words[LOOP_WORDS], to, from, sum = 0, turns = turns_to_make(cpu, l, &to, &from);

	if (!turns)
		return;
	cpu->in_loop = true;
	atomic_signal_fence(memory_order_seq_cst);
	if (l->kind == LOOP_SUM)
		sum = sum_turns(l, cpu->base + from, turns * l->stride, words);
	else if (l->kind == LOOP_COMPARE)
		turns = compare_turns(l, cpu->base + to, cpu->base + from, turns, words);
	else if (l->nwords)
		copy_turns(l, cpu->base + to, cpu->base + from, turns * l->stride, words);
	else
		fill_turns(l, cpu->base + to, cpu->s.x[l->value], turns * l->stride);
	atomic_signal_fence(memory_order_seq_cst);
	cpu->in_loop = false;
	if (!turns)
		return;
	for (unsigned int i = 0; i < l->nwords; i++)
		cpu->s.x[l->words[i].reg] = words[i];
	if (l->kind == LOOP_SUM) {
		sum += cpu->s.x[l->value];
		cpu->s.x[l->value] = l->word ? (uint64_t)(int64_t)(int32_t)sum : sum;
	}
	step_registers(cpu, l, turns);
	cpu->budget -= turns * l->count;
}
