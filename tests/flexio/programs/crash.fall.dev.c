// SPDX-License-Identifier: MIT
/* Device half of crash.c: ways to fall, each a few calls deep. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <stdlib.h>

static const volatile uint64_t fixed = 5;

static __attribute__((noinline)) uint64_t innermost(volatile uint64_t *at)
{
	*at = 1; /* the line of the fault */
	return *at + 1;
}

static __attribute__((noinline)) uint64_t middle(uint64_t at)
{
	return innermost((volatile uint64_t *)at) + 1;
}

__dpa_rpc__ uint64_t tumble(uint64_t at)
{
	return middle(at ? at : (uint64_t)&fixed) + 1;
}

static __attribute__((noinline)) uint64_t deeper(uint64_t n)
{
	volatile uint64_t frame[32];

	frame[n % 32] = n;
	return n ? deeper(n + 1) + frame[n % 32] : 0;
}

__dpa_rpc__ uint64_t run_over(void)
{
	return deeper(1);
}

__dpa_rpc__ uint64_t give_up(uint64_t code)
{
	if (code == 0x40)
		flexio_dev_process_finish();
	flexio_dev_error((uint8_t)code);
}

__dpa_global__ void fall_in_background(uint64_t at)
{
	middle(at);
}

__dpa_global__ void on_error(uint64_t ctx, uint64_t code)
{
	volatile uint64_t scratch[512]; /* overwrites what was on the stack */

	for (unsigned int i = 0; i < 512; i++)
		scratch[i] = ctx + code;
}

/* A stack pointer that points to anywhere, and a push. */
__dpa_rpc__ uint64_t lose_stack(uint64_t sp)
{
	__asm__ volatile("mv sp, %0\n\tsd ra, 0(sp)" ::"r"(sp) : "memory");
	return sp;
}

/* A call of the run-time system that is not there, whose number ends like that of another one. */
__dpa_rpc__ uint64_t call_nothing(void)
{
	register uint64_t a7 __asm__("a7") = 0x10001;

	__asm__ volatile("ecall" ::"r"(a7) : "a0", "memory");
	return 0;
}

/* ---- addresses of all kinds ---- */

static _Thread_local uint64_t private_word;
static uint64_t shared[4];

__dpa_rpc__ uint64_t jump(uint64_t to)
{
	((void (*)(void))to)();
	return 1;
}

/* An atomic is refused where it is misaligned, and on a doorbell page. */
__dpa_rpc__ uint64_t add(uint64_t at)
{
	return __atomic_fetch_add((uint64_t *)at, 1, __ATOMIC_RELAXED);
}

__dpa_rpc__ uint64_t jump_to(uint32_t what)
{
	struct flexio_dev_thread_ctx *dtctx;
	void *block = malloc(40);

	flexio_dev_get_thread_ctx(&dtctx);
	jump(what == 0   ? (uint64_t)block
	     : what == 1 ? (uint64_t)&private_word
	     : what == 2 ? (uint64_t)dtctx
	     : what == 3 ? (uint64_t)shared
			 : (uint64_t)&block);
	free(block);
	return 1;
}

__dpa_rpc__ uint64_t overwrite_text(void)
{
	return middle((uint64_t)&overwrite_text);
}

/* Leaves the address of a variable on its stack, and stays. */
__dpa_global__ void stay(uint64_t word)
{
	volatile uint64_t here = 1;

	*(volatile uint64_t *)word = (uint64_t)&here;
	while (here)
		;
}

/* Stores at a host address. Key 0: without a window. */
__dpa_rpc__ uint64_t store_out(uint32_t window, uint32_t key, uint64_t haddr)
{
	flexio_uintptr_t at = 1UL << 48 | haddr;

	if (key && (flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, (uint16_t)window, key) ||
		    flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, haddr, &at)))
		return 1;
	for (unsigned int i = 0; i < 40; i++) /* of what the thread did last, one line */
		flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, haddr, &at);
	return middle(at);
}

/* Stores at a host address until that fails. */
__dpa_rpc__ uint64_t store_on(uint32_t window, uint32_t key, uint64_t haddr)
{
	flexio_uintptr_t at;

	if (flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, (uint16_t)window, key) ||
	    flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, haddr, &at))
		return 1;
	for (;;)
		*(volatile uint64_t *)at = 1;
}
