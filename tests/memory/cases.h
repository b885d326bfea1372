/* SPDX-License-Identifier: MIT */
/* What the programs of cases share: each case is a function, run by its name in a process of its own. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "start.h"

#define PAGE  4096
#define LARGE (256 << 10)

#define CHECK(what)                                                                          \
	do {                                                                                 \
		if (!(what)) {                                                               \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __func__, __LINE__, #what, \
				errno);                                                      \
			_exit(1);                                                            \
		}                                                                            \
	} while (0)

static inline int wait_for(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static inline bool are(const char *p, char value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != value)
			return false;
	return true;
}

struct test_case {
	const char *name;
	void (*run)(void);
	uint64_t limit; /* 0: none is started, 1: the default */
};

static inline int run_case(const struct test_case *cases, size_t count, int argc, char **argv)
{
	for (size_t i = 0; i < count && argc == 2; i++) {
		if (strcmp(cases[i].name, argv[1]))
			continue;
		if (cases[i].limit)
			CHECK(memory_test_start(cases[i].limit > 1 ? cases[i].limit : 0));
		cases[i].run();
		return 0;
	}
	return 2;
}
