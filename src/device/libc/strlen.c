// SPDX-License-Identifier: MIT
/* Eight bytes at a time: see words.h. */
#include "words.h"

/* Whole words, which never cross a page, so what lies behind the string may be read. */
size_t strlen(const char *s)
{
	const char *at = s;

	for (; (uintptr_t)at % 8; at++)
		if (!*at)
			return (size_t)(at - s);
	for (;; at += 8) {
		uint64_t word = load8(at);
		/* the highest bit of the first byte that is zero, and perhaps of some behind it */
		uint64_t zero = (word - 0x0101010101010101u) & ~word & 0x8080808080808080u;

		if (zero)
			return (size_t)(at - s) + (size_t)__builtin_ctzll(zero) / 8;
	}
}
