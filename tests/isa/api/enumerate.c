// SPDX-License-Identifier: MIT
/* What debuggers and core dumps list: the threads of a process and its mapped memory. */
#include "bed.h"

#include <unistd.h>

static struct bed bed;

static int setup(void **state)
{
	(void)state;
	rv_init(&bed.p);
	rv_data(&bed.p, NULL, 64, 64);
	rv_emit(&bed.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&bed, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	bed_close(&bed);
	return 0;
}

/* ---- threads ---- */

struct seen {
	uint32_t numbers[8];
	unsigned int n, most;
};

static int note(struct vb_dpa_thread *thread, void *arg)
{
	struct seen *seen = arg;

	assert_true(seen->n < 8);
	seen->numbers[seen->n++] = vb_dpa_thread_number(thread);
	return seen->n == seen->most ? 7 : 0;
}

static void expect_threads(const uint32_t *numbers, unsigned int n)
{
	struct seen seen = { .most = 100 };

	assert_int_equal(vb_dpa_threads_each(bed.process, note, &seen), 0);
	assert_int_equal(seen.n, n);
	assert_memory_equal(seen.numbers, numbers, n * sizeof(*numbers));
}

static struct vb_dpa_thread *make(void)
{
	struct vb_dpa_thread *thread;

	assert_int_equal(vb_dpa_thread_create(bed.process, NULL, &thread), 0);
	return thread;
}

static void test_threads(void **state)
{
	struct vb_dpa_thread *two = make(), *three = make(), *four = make(), *five, *six;
	struct seen seen = { .most = 2 };

	(void)state;
	expect_threads((uint32_t[]){ 1, 2, 3, 4 }, 4);
	assert_int_equal(vb_dpa_threads_each(bed.process, note, &seen), 7);
	assert_int_equal(seen.n, 2);
	/* from the middle, from the end: a number is not used again */
	assert_int_equal(vb_dpa_thread_destroy(three), 0);
	assert_int_equal(vb_dpa_thread_destroy(four), 0);
	expect_threads((uint32_t[]){ 1, 2 }, 2);
	five = make();
	six = make();
	expect_threads((uint32_t[]){ 1, 2, 5, 6 }, 4);
	assert_int_equal(vb_dpa_thread_destroy(two), 0);
	assert_int_equal(vb_dpa_thread_destroy(five), 0);
	assert_int_equal(vb_dpa_thread_destroy(six), 0);
	expect_threads((uint32_t[]){ 1 }, 1);
}

/* ---- memory ---- */

static void expect_range(uint64_t from, uint64_t addr, uint64_t len, unsigned int rights)
{
	struct vb_dpa_range range = { 0 };

	assert_true(vb_dpa_mem_next(bed.process, from, &range));
	assert_int_equal(range.addr, addr);
	assert_int_equal(range.len, len);
	assert_int_equal(range.rights, rights);
}

static void test_ranges(void **state)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = 0x20000000;
	struct vb_dpa_range range = { 0 }, last = { 0 };
	struct vb_dpa_stack stack;

	(void)state;
	assert_int_equal(vb_dpa_mem_map(bed.process, &at, 4 * page, VB_DPA_READ | VB_DPA_WRITE), 0);
	expect_range(at - page, at, 4 * page, VB_DPA_READ | VB_DPA_WRITE);
	expect_range(at + page + 1, at + page, 3 * page, VB_DPA_READ | VB_DPA_WRITE);
	assert_int_equal(vb_dpa_mem_protect(bed.process, at + page, page, VB_DPA_READ), 0);
	expect_range(at, at, page, VB_DPA_READ | VB_DPA_WRITE);
	expect_range(at + page, at + page, page, VB_DPA_READ);
	assert_int_equal(vb_dpa_mem_unmap(bed.process, at + 2 * page, page), 0);
	expect_range(at + 2 * page, at + 3 * page, page, VB_DPA_READ | VB_DPA_WRITE);
	assert_int_equal(vb_dpa_mem_unmap(bed.process, at, 4 * page), 0);
	/* All of it: no two ranges meet, none is a guard, and each can be read. */
	vb_dpa_thread_stack(bed.thread, &stack);
	for (uint64_t addr = 0; vb_dpa_mem_next(bed.process, addr, &range); last = range) {
		uint8_t byte;

		assert_true(range.addr >= addr && range.len && !(range.len % page));
		assert_true(range.addr >= stack.addr ||
			    range.addr + range.len <= stack.addr - page);
		assert_false(range.addr == last.addr + last.len && range.rights == last.rights);
		assert_int_equal(vb_dpa_mem_read(bed.process, range.addr, &byte, 1), 0);
		addr = range.addr + range.len;
	}
	assert_true(last.len);
	assert_false(vb_dpa_mem_next(bed.process, last.addr + last.len, &range));
	assert_false(vb_dpa_mem_next(bed.process, vb_dpa_process_limit(bed.process), &range));
	assert_false(vb_dpa_mem_next(bed.process, UINT64_MAX, &range));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_ranges),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
