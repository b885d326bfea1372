/* SPDX-License-Identifier: MIT */
/* Text of a file that a test writes, because what is generated into anonymous memory is never patched; and processes to
 * patch it in. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* bytes, padded with int3, mapped as a library's text is, at `at` or anywhere; fails the test on error. */
void *text_map(void *at, const void *bytes, size_t n);
void text_unmap(void *text, size_t n);

typedef void store_function(void *at, uint64_t value);

store_function *function_at(void *text);

/* Each test in a process of its own, with a fresh table, and the number of traps that it wants. */
void in_child(void (*act)(void), const char *after);

/* In a child: cmocka's assertions would jump into the parent's frames. */
#define must(x)                                                                 \
	do {                                                                    \
		if (!(x)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			_exit(1);                                               \
		}                                                               \
	} while (0)
