// SPDX-License-Identifier: MIT
/*
 * Runs the cases of a two-ended suite under cmocka, each in one process and between two; with VERBATIM_TEST_HOSTS=two
 * between two hosts of one process alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "end.h"
#include "hosts.h"

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
	size_t places = hosts_wanted() ? 1 : 2, total = count * places;
	struct CMUnitTest *tests = calloc(total, sizeof(*tests));
	struct run *runs = calloc(total, sizeof(*runs));
	char *name;
	int failed;

	test_fail_hook = fail_case;
	for (size_t i = 0; i < total; i++) {
		runs[i].test = &cases[i / places];
		runs[i].place = i % places || places == 1 ? ELSEWHERE : HERE;
		if (asprintf(&name, "%s (%s)", cases[i / places].name,
			     places == 1  ? "two hosts"
			     : i % places ? "two processes"
					  : "one process") < 0)
			abort();
		tests[i].name = name;
		tests[i].test_func = run_case;
		tests[i].initial_state = &runs[i];
	}
	failed = _cmocka_run_group_tests(suite, tests, total, NULL, NULL);
	for (size_t i = 0; i < total; i++)
		free((void *)(uintptr_t)tests[i].name);
	free(tests);
	free(runs);
	return failed ? 1 : 0;
}
