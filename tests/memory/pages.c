// SPDX-License-Identifier: MIT
/* The runs of free pages (src/host/memory/pages.h), against a plain array of what is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/memory/pages.h"

enum { COUNT = 5000, NUMBER = 0x7f0000003 }; /* at no boundary */

static uint8_t state[COUNT], taken[COUNT];
static struct page_info info[COUNT];
static struct pages pages;
static uint64_t seed = 88172645463325252ull;

static uint32_t next(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 20) % below;
}

static int begin(void **unused)
{
	(void)unused;
	memset(state, 0, sizeof(state));
	memset(taken, 0, sizeof(taken));
	memset(info, 0, sizeof(info));
	pages_init(&pages, NUMBER, COUNT, state, info);
	return 0;
}

static uint32_t free_run(uint32_t first)
{
	uint32_t n = 0;

	while (first + n < COUNT && !taken[first + n])
		n++;
	return n;
}

static void take_and_give(void **unused)
{
	uint32_t first[200] = { 0 }, len[200] = { 0 };

	(void)unused;
	for (int step = 0; step < 200000; step++) {
		uint32_t i = next(200), align = 1u << next(6),
			 count = 1 + next(next(10) ? 20 : 900);

		if (len[i]) { /* back, in two pieces */
			uint32_t part = next(len[i] + 1);

			memset(taken + first[i], 0, len[i]);
			if (part)
				pages_give(&pages, first[i], part);
			if (part < len[i])
				pages_give(&pages, first[i] + part, len[i] - part);
			len[i] = 0;
			continue;
		}
		first[i] = pages_take(&pages, count, align, PAGE_SHARED);
		if (first[i] == PAGES_NONE)
			continue;
		len[i] = count;
		assert_true((NUMBER + first[i]) % align == 0);
		assert_true(first[i] + count <= COUNT && free_run(first[i]) >= count);
		memset(taken + first[i], 1, count);
	}
	for (int i = 0; i < 200; i++)
		if (len[i])
			pages_give(&pages, first[i], len[i]);
	/* All of it is one run again. */
	assert_int_equal(pages_take(&pages, COUNT, 1, PAGE_SHARED), 0);
	assert_int_equal(pages_take(&pages, 1, 1, PAGE_SHARED), PAGES_NONE);
}

static void take_at(void **unused)
{
	(void)unused;
	assert_true(pages_take_at(&pages, 100, 10, PAGE_GONE));
	assert_false(pages_take_at(&pages, 99, 2, PAGE_GONE));
	assert_false(pages_take_at(&pages, COUNT - 1, 2, PAGE_GONE));
	assert_false(pages_take_at(&pages, 5, UINT32_MAX, PAGE_GONE));
	assert_true(pages_take_at(&pages, 110, 5, PAGE_SHARED));
	pages_give(&pages, 110, 5);
	/* What is gone stays between two runs. */
	assert_int_equal(pages_take(&pages, COUNT - 110, 1, PAGE_SHARED), 110);
	assert_int_equal(pages_take(&pages, 101, 1, PAGE_SHARED), PAGES_NONE);
	assert_int_equal(pages_take(&pages, 100, 1, PAGE_SHARED), 0);
}

static void absurd(void **unused)
{
	(void)unused;
	assert_int_equal(pages_take(&pages, 0, 1, PAGE_SHARED), PAGES_NONE);
	assert_int_equal(pages_take(&pages, COUNT + 1, 1, PAGE_SHARED), PAGES_NONE);
	assert_int_equal(pages_take(&pages, UINT32_MAX, 1, PAGE_SHARED), PAGES_NONE);
	assert_int_equal(pages_take(&pages, 1, 1u << 31, PAGE_SHARED), PAGES_NONE);
	assert_int_equal(pages_take(&pages, COUNT, 1, PAGE_SHARED), 0);
}

static void alike(void **unused)
{
	(void)unused;
	memset(state + 3, PAGE_SHARED | PAGE_RW, 20);
	state[10] |= PAGE_HEAD;
	assert_int_equal(pages_alike(&pages, 3, COUNT, PAGE_KIND), 20);
	assert_int_equal(pages_alike(&pages, 3, COUNT, 0xff), 7);
	assert_int_equal(pages_alike(&pages, 10, COUNT, 0xff), 1);
	assert_int_equal(pages_alike(&pages, 11, 15, 0xff), 4);
	assert_int_equal(pages_alike(&pages, 23, COUNT, 0xff), COUNT - 23);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(take_and_give, begin),
		cmocka_unit_test_setup(take_at, begin),
		cmocka_unit_test_setup(absurd, begin),
		cmocka_unit_test_setup(alike, begin),
	};

	return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
