// SPDX-License-Identifier: MIT
/*
 * Pages of operations: every form of load that there is gives its register what the operation says and leaves the rest
 * of it alone; stores bring their bytes; what is no operation, or no page of ours any more, is a fault of the program's
 * own.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <cpuid.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/trap/trap.h"

static struct {
	size_t offset, size;
	bool load;
	uint64_t value;
	unsigned int calls;
} seen;
static uint64_t answer;

static bool record(void *arg, size_t offset, bool load, uint64_t *value, size_t size)
{
	assert_ptr_equal(arg, &seen);
	seen.offset = offset;
	seen.size = size;
	seen.load = load;
	seen.value = *value;
	seen.calls++;
	if (load)
		*value = answer;
	return offset < 4096;
}

static uint8_t *page;

static void begin(void)
{
	page = vb_trap_map_op(4096, record, &seen);
	assert_non_null(page);
	memset(&seen, 0, sizeof(seen));
}

static void end(void)
{
	vb_trap_end(&seen);
	assert_int_equal(munmap(page, 4096), 0);
}

static void expect(bool load, size_t offset, size_t size)
{
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.load, load);
	assert_int_equal(seen.offset, offset);
	assert_int_equal(seen.size, size);
	seen.calls = 0;
}

#define OLD 0x1111222233334444ull

/* One instruction on rax, which has OLD before. */
#define LOAD(text, offset, size, want)                                               \
	do {                                                                         \
		uint64_t a = OLD, base = (uint64_t)page, index = 8;                  \
		__asm__ volatile(text : "+a"(a) : "r"(base), "r"(index) : "memory"); \
		expect(true, offset, size);                                          \
		assert_int_equal(a, want);                                           \
	} while (0)

static bool has_movbe(void)
{
	unsigned int a, b, c = 0, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_MOVBE);
}

static void loads(void **state)
{
	begin();
	answer = 0xf1f2f3f4f5f6f7f8;
	LOAD("movb 1(%1), %%al", 1, 1, 0x11112222333344f8);
	LOAD("movb 3(%1), %%ah", 3, 1, 0x111122223333f844);
	LOAD("movw 2(%1), %%ax", 2, 2, 0x111122223333f7f8);
	LOAD("movl 0x14(%1), %%eax", 0x14, 4, 0xf5f6f7f8);
	LOAD("movq (%1), %%rax", 0, 8, 0xf1f2f3f4f5f6f7f8);
	LOAD("movq 0x10(%1,%2,4), %%rax", 0x30, 8, 0xf1f2f3f4f5f6f7f8);
	LOAD("movzbw 5(%1), %%ax", 5, 1, 0x11112222333300f8);
	LOAD("movzbl 5(%1), %%eax", 5, 1, 0xf8);
	LOAD("movzbq 5(%1), %%rax", 5, 1, 0xf8);
	LOAD("movzwl 6(%1), %%eax", 6, 2, 0xf7f8);
	LOAD("movsbw 5(%1), %%ax", 5, 1, 0x111122223333fff8);
	LOAD("movsbl 5(%1), %%eax", 5, 1, 0xfffffff8);
	LOAD("movsbq 5(%1), %%rax", 5, 1, 0xfffffffffffffff8);
	LOAD("movswl 6(%1), %%eax", 6, 2, 0xfffff7f8);
	LOAD("movswq 6(%1), %%rax", 6, 2, 0xfffffffffffff7f8);
	LOAD("movslq 8(%1), %%rax", 8, 4, 0xfffffffff5f6f7f8);
	if (has_movbe()) {
		LOAD("movbew 2(%1), %%ax", 2, 2, 0x111122223333f8f7);
		LOAD("movbel 4(%1), %%eax", 4, 4, 0xf8f7f6f5);
		LOAD("movbeq 8(%1), %%rax", 8, 8, 0xf8f7f6f5f4f3f2f1);
	}
	answer = 0x7f;
	LOAD("movsbq 5(%1), %%rax", 5, 1, 0x7f);
	/* The address's own register */
	LOAD("movq %1, %%rax; movq 8(%%rax), %%rax", 8, 8, 0x7f);
	end();
}

static void stores(void **state)
{
	uint64_t value = 0x1122334455667788;

	begin();
	__asm__ volatile("movb %b0, 1(%1)" ::"r"(value), "r"(page) : "memory");
	expect(false, 1, 1);
	assert_int_equal(seen.value, 0x88);
	__asm__ volatile("movw %w0, 2(%1)" ::"r"(value), "r"(page) : "memory");
	expect(false, 2, 2);
	assert_int_equal(seen.value, 0x7788);
	__asm__ volatile("movl $-2, 4(%0)" ::"r"(page) : "memory");
	expect(false, 4, 4);
	assert_int_equal(seen.value, 0xfffffffe);
	__asm__ volatile("movq %0, 8(%1)" ::"r"(value), "r"(page) : "memory");
	expect(false, 8, 8);
	assert_int_equal(seen.value, value);
	end();
}

/* As libc does it: each byte of a single one is loaded once. */
static void copies(void **state)
{
	void *(*volatile copy)(void *, const void *, size_t) = memcpy;
	uint64_t value = 0;

	begin();
	answer = 0xf1f2f3f4f5f6f7f8;
	copy(&value, page + 7, 1);
	expect(true, 7, 1);
	assert_int_equal(value, 0xf8);
	for (size_t size = 2; size <= 8; size *= 2) {
		value = 0;
		copy(&value, page + 16, size);
		assert_in_range(seen.calls, 1, 2);
		assert_memory_equal(&value, &answer, size);
		seen.calls = 0;
	}
	value = 5;
	copy(page + 9, &value, 1);
	expect(false, 9, 1);
	assert_int_equal(seen.value, 5);
	end();
}

static void small_alternate_stack(void **state)
{
	size_t size = (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
	stack_t stack = { .ss_sp = malloc(size), .ss_size = size }, now;

	begin();
	answer = 9;
	assert_int_equal(sigaltstack(&stack, NULL), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(((volatile uint32_t *)page)[1], 9);
	assert_int_equal(seen.calls, 100);
	assert_int_equal(sigaltstack(NULL, &now), 0);
	assert_ptr_equal(now.ss_sp, stack.ss_sp);
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, NULL);
	free(stack.ss_sp);
	end();
}

/* --- faults of the program -------------------------------------------------------------------- */

static void load_vector(void)
{
	__asm__ volatile("movdqu (%0), %%xmm0" ::"r"(page) : "memory", "xmm0");
}

static void load_compare(void)
{
	__asm__ volatile("cmpl $0, (%0)" ::"r"(page) : "memory", "cc");
}

static void load_crooked(void)
{
	__asm__ volatile("movl 2(%0), %%eax" ::"r"(page) : "memory", "eax");
}

static void store_added(void)
{
	__asm__ volatile("lock; addl $1, (%0)" ::"r"(page) : "memory", "cc");
}

static void store_swapped(void)
{
	uint32_t value = 0;

	__asm__ volatile("xchgl %0, (%1)" : "+r"(value) : "r"(page) : "memory");
}

static void store_large(void)
{
	__asm__ volatile("movdqu %%xmm0, (%0)" ::"r"(page) : "memory");
}

static void ended(void)
{
	vb_trap_end(&seen);
	((volatile uint8_t *)page)[0] = 1;
}

static void unmapped(void)
{
	munmap(page, 4096);
	((volatile uint8_t *)page)[0] = 1;
}

static void read_only_memory_there(void)
{
	munmap(page, 4096);
	if (mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
	    page)
		_exit(1);
	((volatile uint8_t *)page)[0] = 1;
}

static void shared_memory_there(void)
{
	munmap(page, 4096);
	if (mmap(page, 4096, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
	    page)
		_exit(1);
	((volatile uint8_t *)page)[0];
}

static int status_of(void (*act)(void), char *text, size_t len)
{
	int status, pipes[2];
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		dup2(pipes[1], STDERR_FILENO);
		signal(SIGSEGV, SIG_DFL); /* not cmocka's */
		page = vb_trap_map_op(4096, record, &seen);
		act();
		_exit(0);
	}
	close(pipes[1]);
	n = read(pipes[0], text, len - 1);
	text[n > 0 ? n : 0] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void others_are_the_programs_faults(void **state)
{
	static const struct {
		void (*act)(void);
		const char *said;
	} cases[] = {
		{ load_vector, "load from operation address" },
		{ load_compare, "load from operation address" },
		{ load_crooked, "load from operation address" },
		{ store_added, "store to operation address" },
		{ store_swapped, "store to operation address" },
		{ store_large, "store to operation address" },
		{ ended, "" },
		{ unmapped, "" },
		{ read_only_memory_there, "" },
		{ shared_memory_there, "" },
	};
	char text[512];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = status_of(cases[i].act, text, sizeof(text));

		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		if (*cases[i].said)
			assert_non_null(strstr(text, cases[i].said));
		else
			assert_string_equal(text, "");
	}
}

/* --- many regions ----------------------------------------------------------------------------- */

static void doorbell(void *arg, size_t offset, const void *data, size_t size)
{
	++*(unsigned int *)arg;
}

/* A doorbell page at an address that had operations: also where nobody accessed it since. */
static void addresses_change_hands(void **state)
{
	enum { ROUNDS = 20, PAGES = 32 };
	void *pages[PAGES];
	unsigned int rings = 0, reused = 0;

	for (int round = 0; round < ROUNDS; round++) {
		void *bell;

		begin();
		assert_int_equal(munmap(page, 4096), 0);
		bell = vb_trap_map(4096, doorbell, &rings);
		reused += bell == page;
		*(volatile uint32_t *)bell = 1;
		assert_int_equal(seen.calls, 0);
		vb_trap_end(&seen);
		*(volatile uint32_t *)bell = 1;
		vb_trap_unmap(bell);
	}
	assert_int_equal(rings, 2 * ROUNDS);
	assert_in_range(reused, 1, ROUNDS);
	for (int i = 0; i < PAGES; i++) {
		begin();
		pages[i] = page;
	}
	for (int i = 0; i < PAGES; i++) {
		*(volatile uint8_t *)pages[i] = 1;
		expect(false, 0, 1);
	}
	vb_trap_end(&seen);
	for (int i = 0; i < PAGES; i++)
		munmap(pages[i], 4096);
}

/* More than there is room for, were those that are unmapped not forgotten. */
static void unmapped_regions_are_forgotten(void **state)
{
	enum { MANY = 4500 };
	void *hold[2];

	for (int i = 0; i < MANY; i++) {
		begin();
		*(volatile uint8_t *)page = 1;
		expect(false, 0, 1);
		hold[0] = page;
		begin();
		hold[1] = page;
		*(volatile uint8_t *)hold[0] = 1;
		expect(false, 0, 1);
		munmap(hold[0], 4096);
		/* Something else comes there, so that the address is not used again. */
		assert_ptr_equal(mmap(hold[0], 4096, PROT_NONE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
				 hold[0]);
		munmap(hold[1], 4096);
	}
	vb_trap_end(&seen);
}

/* Without room for another mapping nobody can look whether a region is still there. */
static void regions_stay_without_memory(void **state)
{
	enum { MANY = 300 };
	struct rlimit before, none;

	begin();
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	none = before;
	none.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
	for (int i = 0; i < MANY; i++)
		if (vb_trap_map_op(4096, record, &seen))
			abort();
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	*(volatile uint8_t *)page = 1;
	expect(false, 0, 1);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loads),
		cmocka_unit_test(stores),
		cmocka_unit_test(copies),
		cmocka_unit_test(small_alternate_stack),
		cmocka_unit_test(others_are_the_programs_faults),
		cmocka_unit_test(addresses_change_hands),
		cmocka_unit_test(unmapped_regions_are_forgotten),
		cmocka_unit_test(regions_stay_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
