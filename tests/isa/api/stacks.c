// SPDX-License-Identifier: MIT
/*
 * Host stacks: guest calls push return addresses onto the host's stack, to be predicted. They may do
 * so where the stack is known to have room, and nowhere else: how deep a guest recurses then makes no
 * difference to the host's memory.
 *
 *   | coroutine below | stack of a thread | coroutine above |      one mapping, painted
 */
#include "bed.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/tsan.h"

enum {
	PAINT = 0x5a,
	COROUTINE = 256 << 10,
	ROOMY = 1 << 20,     /* a thread's stack with room for everything */
	RESERVE = 64 << 10,  /* what docs/security.md promises below pushed return addresses */
	DEEP = 100000,       /* guest calls: 800 KB if each pushed an address */
	SMALLEST = 48 << 10, /* of the threads' stacks that are tried */
	LARGEST = 192 << 10,
};

static struct bed bed;
static struct vb_dpa_thread *guest;
static uint8_t *area;

/* f(n) = n ? f(n - 1) + 1 : 0, never in tail position */
static int setup(void **state)
{
	struct vb_dpa_thread_attr ta = { .stack_size = 8 << 20 };
	int f = rv_label(&bed.p), done = rv_label(&bed.p);
	uint64_t depth = 10, result;

	(void)state;
	rv_place(&bed.p, f);
	rv_branch(&bed.p, OP_beq, 10, 0, done);
	rv_emit(&bed.p, OP_addi, 2, 2, 0, -16);
	rv_emit(&bed.p, OP_sd, 0, 2, 1, 8);
	rv_emit(&bed.p, OP_addi, 10, 10, 0, -1);
	rv_jump(&bed.p, 1, f);
	rv_emit(&bed.p, OP_ld, 1, 2, 0, 8);
	rv_emit(&bed.p, OP_addi, 2, 2, 0, 16);
	rv_emit(&bed.p, OP_addi, 10, 10, 0, 1);
	rv_place(&bed.p, done);
	rv_emit(&bed.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&bed, NULL);
	assert_int_equal(vb_dpa_thread_create(bed.process, &ta, &guest), 0);
	area = mmap(NULL, 2 * COROUTINE + ROOMY, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(area != MAP_FAILED);
	/* The register map is settled before anything is measured. */
	for (unsigned n = 0; n < 300; n++)
		assert_int_equal(vb_dpa_call(guest, RV_TEXT, &depth, 1, &result), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(vb_dpa_thread_destroy(guest), 0);
	munmap(area, 2 * COROUTINE + ROOMY);
	bed_close(&bed);
	return 0;
}

static void call_guest(uint64_t depth)
{
	uint64_t result = 0;
	int err = vb_dpa_call(guest, RV_TEXT, &depth, 1, &result);

	if (err || result != depth)
		abort(); /* no assertion leaves another stack */
}

/* How much of a painted stack was never written. */
static size_t unused(const uint8_t *stack, size_t size)
{
	size_t n = 0;

	while (n < size && stack[n] == PAINT)
		n++;
	return n;
}

/* ---- a thread calls the guest on its own stack ---- */

static void *call_on_thread(void *arg)
{
	call_guest(*(uint64_t *)arg);
	return NULL;
}

static size_t unused_by_thread(size_t size, uint64_t depth)
{
	uint8_t *stack = area + COROUTINE;
	pthread_attr_t attr;
	pthread_t thread;

	memset(stack, PAINT, size);
	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setstack(&attr, stack, size), 0);
	assert_int_equal(pthread_create(&thread, &attr, call_on_thread, &depth), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_attr_destroy(&attr);
	return unused(stack, size);
}

static void test_threads(void **state)
{
	(void)state;
#ifdef VB_TSAN
	skip(); /* its own part of a stack is larger than all of these */
#endif
	unused_by_thread(LARGEST, 1); /* what the C library does once */
	for (size_t size = SMALLEST; size <= LARGEST; size += 4096) {
		size_t shallow = unused_by_thread(size, 1), deep = unused_by_thread(size, DEEP);

		if (deep < shallow && deep < RESERVE)
			fail_msg("a stack of %zu KiB: %zu bytes are left of %zu", size >> 10, deep,
				 shallow);
	}
	/* Where there is room it is used, or all of this shows nothing. */
	if (bed_tier == VB_DPA_TIER_JIT)
		assert_true(unused_by_thread(ROOMY, DEEP) < unused_by_thread(ROOMY, 1));
}

/* ---- a thread calls the guest on another stack ---- */

struct coroutine {
	ucontext_t caller, self;
	uint8_t *stack;
	uint64_t depth;
};

static _Thread_local struct coroutine *current;

static void coroutine_body(void)
{
	call_guest(current->depth);
}

static void *switch_stack(void *arg)
{
	struct coroutine *co = arg;

	call_guest(1); /* the engine has seen this thread on its own stack */
	current = co;
	if (getcontext(&co->self))
		abort();
	co->self.uc_stack = (stack_t){ .ss_sp = co->stack, .ss_size = COROUTINE };
	co->self.uc_link = &co->caller;
	makecontext(&co->self, coroutine_body, 0);
	if (swapcontext(&co->caller, &co->self))
		abort();
	return NULL;
}

static size_t unused_by_coroutine(uint8_t *stack, uint64_t depth)
{
	struct coroutine co = { .stack = stack, .depth = depth };
	pthread_attr_t attr;
	pthread_t thread;

	memset(stack, PAINT, COROUTINE);
	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setstack(&attr, area + COROUTINE, ROOMY), 0);
	assert_int_equal(pthread_create(&thread, &attr, switch_stack, &co), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_attr_destroy(&attr);
	return unused(stack, COROUTINE);
}

static void test_coroutines(void **state)
{
	uint8_t *stacks[] = { area, area + COROUTINE + ROOMY };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		size_t shallow = unused_by_coroutine(stacks[i], 1);

		assert_in_range(shallow, 1, COROUTINE - 1);
		assert_int_equal(unused_by_coroutine(stacks[i], 100), shallow);
		assert_int_equal(unused_by_coroutine(stacks[i], DEEP), shallow);
		if (getenv("VERBATIM_TEST_PRINT"))
			printf("a coroutine uses %zu bytes\n", COROUTINE - shallow);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_coroutines),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
