/* SPDX-License-Identifier: MIT */
/*
 * Lets the allocator of `verbatim run` begin without a card: what it asks of libverbatim is answered
 * here, and checked. Without the allocator in LD_PRELOAD nothing begins, and the program runs on
 * plain libc.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Blocks of malloc() stay libc's, as they do by default. */
extern bool memory_test_aligned;
/* Whether it began; limit: bytes that may be in use, 0: the default. Ends the test where it is there and refuses. */
bool memory_test_start(uint64_t limit);
/* The same, with the allocator's word: 0, -errno, or 1 where there is no allocator. */
int memory_test_try(uint64_t limit, const char **why);
/* Whether peers may use all of it, none of it. */
bool memory_test_is_shown(const void *base, uint64_t len);
bool memory_test_is_hidden(const void *base, uint64_t len);
/* Called once, when pages were taken from peers: what another thread might do just then. */
extern void (*memory_test_meanwhile)(void);
/* Number of the memfd. */
int memory_test_fd(void);
/* Where the first shared page is in the file that peers would open; NULL: not mapped. */
uint64_t memory_test_offset(const void *base);
