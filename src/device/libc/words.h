/* SPDX-License-Identifier: MIT */
/*
 * Eight bytes at a time, at any address: the accelerator takes misaligned loads and stores.
 * picolibc is built for size and goes byte by byte; device code copies packets.
 *
 * One function per file, so that a program which defines one of them itself gets its own and ours
 * for the others.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t __attribute__((may_alias)) word_t;
typedef uint32_t __attribute__((may_alias)) half_t;

static inline uint64_t load8(const char *at)
{
	return *(const word_t *)at;
}

static inline void store8(char *at, uint64_t value)
{
	*(word_t *)at = value;
}

static inline uint32_t load4(const char *at)
{
	return *(const half_t *)at;
}

static inline void store4(char *at, uint32_t value)
{
	*(half_t *)at = value;
}

/* 32 bytes; all of them are read before the first is written. */
static inline void copy32(char *to, const char *from)
{
	uint64_t a = load8(from), b = load8(from + 8), c = load8(from + 16), d = load8(from + 24);

	store8(to, a);
	store8(to + 8, b);
	store8(to + 16, c);
	store8(to + 24, d);
}
