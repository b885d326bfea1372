// SPDX-License-Identifier: MIT
/*
 * Runs the cases of a two-ended suite under cmocka, each in one process and between two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "end.h"

static void fail_case(const char *file, int line)
{
	_fail(file, line);
}

struct run {
	const struct end_case *test;
	enum end_place place;
};

static void run_case(void **state)
{
	const struct run *run = *state;

	run->test->run(run->place);
}

int end_run_cases(const char *suite, const struct end_case *cases, size_t count)
{
	struct CMUnitTest *tests = calloc(count * 2, sizeof(*tests));
	struct run *runs = calloc(count * 2, sizeof(*runs));
	char *name;
	int failed;

	test_fail_hook = fail_case;
	for (size_t i = 0; i < count * 2; i++) {
		runs[i].test = &cases[i / 2];
		runs[i].place = i % 2 ? ELSEWHERE : HERE;
		if (asprintf(&name, "%s (%s)", cases[i / 2].name,
			     i % 2 ? "two processes" : "one process") < 0)
			abort();
		tests[i].name = name;
		tests[i].test_func = run_case;
		tests[i].initial_state = &runs[i];
	}
	failed = _cmocka_run_group_tests(suite, tests, count * 2, NULL, NULL);
	for (size_t i = 0; i < count * 2; i++)
		free((void *)(uintptr_t)tests[i].name);
	free(tests);
	free(runs);
	return failed ? 1 : 0;
}
