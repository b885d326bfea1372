// SPDX-License-Identifier: MIT
/* Device half of core.c: threads that are somewhere, with something in their hands. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

struct pair {
	uint64_t left, right;
};

uint64_t was_seven = 7; /* every page of the program is in the core, also one that became zero */
uint64_t *published;

static __attribute__((noinline)) uint64_t innermost(volatile uint64_t *at, uint64_t depth)
{
	volatile struct pair pair = { 11, depth };

	*at = pair.left; /* the fault */
	return pair.right;
}

static __attribute__((noinline)) uint64_t middle(volatile uint64_t *at, uint64_t depth)
{
	volatile uint64_t mark = 0x1000 + depth;
	uint64_t below = depth ? middle(at, depth - 1) : innermost(at, 3);

	return below + mark;
}

__dpa_rpc__ uint64_t tumble(uint64_t at)
{
	was_seven = 0;
	return middle((volatile uint64_t *)at, 2) + 1;
}

__dpa_global__ void tumble_later(uint64_t at)
{
	was_seven = middle((volatile uint64_t *)at, 2);
}

__dpa_rpc__ uint64_t show(uint64_t *word)
{
	published = word;
	return 0;
}

/* Overwrites what was on the stack. */
__dpa_global__ void on_error(uint64_t ctx, uint64_t code)
{
	volatile uint64_t scratch[4096];

	for (unsigned int i = 0; i < 4096; i++)
		scratch[i] = ctx + code;
}

static __attribute__((noinline)) void turn(volatile uint64_t *word, uint64_t number)
{
	volatile uint64_t turns = 0, mine = number;

	while (*word != 2)
		if (!turns++)
			*word = mine != 0;
}

__dpa_global__ void spin(uint64_t word)
{
	turn((volatile uint64_t *)word, 1234);
	flexio_dev_thread_reschedule();
}

/* Changes all that it can, all the time: memory, and its own stack pointer. */
__dpa_global__ void scribble(uint64_t words)
{
	volatile uint64_t *w = (volatile uint64_t *)words;

	for (uint64_t n = 1;; n++) {
		for (unsigned int i = 1; i < 4096; i++)
			w[i] = n & 1 ? n : 0;
		__asm__ volatile("mv t1, sp\n\tmv sp, %0\n\tmv sp, t1" ::"r"(n << 32 | n) : "t1");
		w[0] = n;
	}
}

__dpa_global__ void talk(uint64_t lines)
{
	for (uint64_t i = 0; i < lines; i++)
		flexio_dev_print("a line that nobody reads, number %lu\n", i);
}
