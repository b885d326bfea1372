// SPDX-License-Identifier: MIT
/* Device half of checked.c: the bugs that checked mode finds, and what only looks like one. */
#include <stdlib.h>
#include <string.h>

#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

#define APART __attribute__((noinline))

static APART uint32_t *make(uint64_t n)
{
	uint32_t *all = malloc(n * sizeof(*all));

	all[0] = 0;
	return all;
}

static APART void fill(uint32_t *all, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		((volatile uint32_t *)all)[i] = (uint32_t)i;
}

static APART void drop(void *all)
{
	free(all);
}

/* ---- bugs ---- */

__dpa_rpc__ uint64_t overflow(uint64_t n)
{
	uint32_t *all = make(12);

	fill(all, n);
	free(all);
	return n;
}

__dpa_rpc__ uint64_t in_front(void)
{
	volatile uint32_t *all = make(12);
	uint32_t before = all[-1];

	free((void *)all);
	return before;
}

__dpa_rpc__ uint64_t after_free(void)
{
	volatile uint32_t *all = make(12);

	drop((void *)all);
	return all[3];
}

__dpa_rpc__ uint64_t after_realloc(void)
{
	uint32_t *all = make(12), *more = realloc(all, 100);
	uint64_t sum;

	sum = *(volatile uint32_t *)all;
	free(more);
	return sum;
}

__dpa_rpc__ uint64_t twice(void)
{
	uint32_t *all = make(12);

	drop(all);
	drop(all);
	return 5;
}

__dpa_rpc__ uint64_t inside(void)
{
	uint32_t *all = make(12);

	drop(all + 2);
	drop(all);
	return 6;
}

__dpa_rpc__ uint64_t free_this(uint64_t addr)
{
	drop((void *)addr);
	return 7;
}

__dpa_rpc__ uint64_t copy_out(uint64_t n)
{
	char *to = malloc(100), from[256];

	memset(from, 1, sizeof(from));
	memcpy(to, from, n);
	free(to);
	return n;
}

__dpa_rpc__ uint64_t unset_block(void)
{
	uint64_t *all = malloc(64), sum;

	sum = ((volatile uint64_t *)all)[2] + 1;
	free(all);
	return sum;
}

__dpa_rpc__ uint64_t unset_local(uint64_t n)
{
	volatile uint64_t all[8];

	for (uint64_t i = 0; i < n; i++)
		all[i] = i;
	return all[7] > 3 ? 1 : 2;
}

__dpa_rpc__ uint64_t lose(uint64_t n)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += make(12)[0];
	return sum;
}

__dpa_rpc__ uint64_t poke(uint64_t addr)
{
	*(volatile uint64_t *)addr = 1;
	return 8;
}

__dpa_rpc__ uint64_t poke_byte(uint64_t addr)
{
	*(volatile uint8_t *)addr = 1;
	return 9;
}

__dpa_global__ void recover(uint64_t ctx, uint64_t code)
{
	(void)ctx;
	(void)code;
	flexio_dev_thread_reschedule();
}

/* ---- no bugs ---- */

struct record {
	uint64_t set, unset;
	unsigned int low : 3, high : 5;
};

static struct record kept;
static char *name;

static APART void keep(struct record *r)
{
	kept = *r; /* the member that nobody set, too */
}

static APART void pass_on(struct record *to, const struct record *from)
{
	memcpy(to, from, sizeof(*to));
}

__dpa_rpc__ uint64_t unset_copies(uint64_t n)
{
	struct record a, b;

	a.set = n;
	a.low = 2;
	pass_on(&b, &a);
	keep(&b);
	return kept.set + kept.low;
}

__dpa_rpc__ uint64_t later(void)
{
	return kept.unset + 1; /* and here it matters */
}

__dpa_rpc__ uint64_t strings(uint64_t n)
{
	uint64_t sum = 0;

	for (uint64_t i = 1; i <= n; i++) {
		char *text = malloc(i), *copy;

		memset(text, 'x', i - 1);
		text[i - 1] = 0;
		copy = strdup(text);
		sum += strlen(copy) + (uint64_t)strcmp(text, copy);
		free(copy);
		free(text);
	}
	free(name);
	name = strdup("kept"); /* reachable: no leak */
	return sum;
}

__dpa_rpc__ uint64_t family(void)
{
	uint64_t *zero = calloc(8, sizeof(*zero)), sum = 0;
	char *aligned = aligned_alloc(256, 512), *grown;
	volatile uint64_t huge = 1UL << 63;

	for (unsigned int i = 0; i < 8; i++)
		sum += zero[i];
	grown = realloc(zero, 4096);
	sum += (uintptr_t)aligned % 256 + (uint64_t)grown[63];
	sum += malloc(2 * huge - 1) != NULL;
	sum += calloc(huge >> 30, huge >> 30) != NULL;
	sum += realloc(grown, huge + 8) != NULL;
	sum += aligned_alloc(huge, 8) != NULL;
	sum += realloc(malloc(8), huge << 1) != NULL; /* 0 bytes: it is freed */
	free(NULL);
	free(grown);
	free(aligned);
	return sum;
}

/* ---- what only looks like a bug ---- */

struct maybe {
	uint8_t has;
	uint64_t value;
};

static APART uint64_t value_or(struct maybe m, uint64_t other)
{
	return m.has ? m.value : other;
}

static APART uint64_t pass_whole(struct maybe *m)
{
	m->has = 0;
	return value_or(*m, 5);
}

/* Atomics of a byte are made of those of a word, which ends behind the block. */
static APART uint64_t narrow(void)
{
	uint8_t *byte = malloc(1), *fifth = malloc(5);
	uint16_t *half = malloc(2);
	uint64_t sum;

	*byte = 1;
	*half = 2;
	fifth[4] = 4;
	sum = __atomic_fetch_add(byte, 1, __ATOMIC_RELAXED);
	sum += __atomic_fetch_add(half, 1, __ATOMIC_RELAXED);
	sum += __atomic_fetch_or(fifth + 4, 3, __ATOMIC_RELAXED);
	sum += *byte + *half + fifth[4];
	free(byte);
	free(half);
	free(fifth);
	return sum; /* 7 + 2 + 3 + 7 */
}

static APART void nothing(void)
{
	__asm__ volatile("");
}

/* A bit-field is set, and what it was made of is left in an argument register. */
static APART uint64_t left_over(uint64_t *word)
{
	uint64_t before, after;

	__asm__ volatile("ld a1, 0(%2)\n\t"
			 "andi %0, a1, -512\n\t"
			 "ori %0, %0, 3\n\t"
			 "sd %0, 0(%2)\n\t"
			 "jal %3\n\t"
			 "ld %1, 0(%2)"
			 : "=&r"(before), "=&r"(after)
			 : "r"(word), "i"(nothing)
			 : "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "ra", "t0", "t1", "t2",
			   "t3", "t4", "t5", "t6", "memory");
	return after & 511;
}

/* ---- a coroutine whose stack is in that of the thread ---- */

struct context {
	uint64_t ra, sp, s[12];
};

void switch_to(struct context *from, struct context *to);

#define SAVED(op, at)                                                                         \
	op " ra, 0(" at ")\n" op " sp, 8(" at ")\n" op " s0, 16(" at ")\n" op " s1, 24(" at   \
	   ")\n" op " s2, 32(" at ")\n" op " s3, 40(" at ")\n" op " s4, 48(" at ")\n" op      \
	   " s5, 56(" at ")\n" op " s6, 64(" at ")\n" op " s7, 72(" at ")\n" op " s8, 80(" at \
	   ")\n" op " s9, 88(" at ")\n" op " s10, 96(" at ")\n" op " s11, 104(" at ")\n"

__asm__(".globl switch_to\nswitch_to:\n" SAVED("sd", "a0") SAVED("ld", "a1") "ret\n");

static struct context caller, callee;
static uint64_t steps;

static APART uint64_t deep(uint64_t n)
{
	volatile uint64_t here = n;

	return n ? deep(n - 1) + here : 0;
}

static void routine(void)
{
	for (;;) {
		steps += deep(4);
		switch_to(&callee, &caller);
	}
}

static APART uint64_t own_stack(void)
{
	char stack[4096] __attribute__((aligned(16)));
	volatile uint64_t mine[16];
	uint64_t sum = 0;

	steps = 0;
	for (uint64_t i = 0; i < 16; i++)
		mine[i] = i;
	callee = (struct context){ .ra = (uintptr_t)routine, .sp = (uintptr_t)(stack + 4096) };
	for (unsigned int i = 0; i < 3; i++) {
		switch_to(&caller, &callee);
		sum += deep(3);
	}
	for (uint64_t i = 0; i < 16; i++)
		sum += mine[i];
	return sum + steps; /* 3 * 6 + 120 + 3 * 10 */
}

__dpa_rpc__ uint64_t correct(void)
{
	struct maybe *m = malloc(sizeof(*m));
	uint64_t *word = malloc(sizeof(*word)), sum;

	sum = pass_whole(m) + left_over(word);
	free(m);
	free(word);
	return sum + narrow() + own_stack(); /* 5 + 3 + 19 + 168 */
}
