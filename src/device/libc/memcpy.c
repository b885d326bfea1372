// SPDX-License-Identifier: MIT
/* Copied eight bytes at a time: see words.h. */
#include "words.h"

/* Less than eight bytes. */
static inline void copy_few(char *to, const char *from, size_t n)
{
	if (n >= 4) {
		uint32_t first = load4(from), last = load4(from + n - 4);

		store4(to, first);
		store4(to + n - 4, last);
		return;
	}
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

void *memcpy(void *restrict dest, const void *restrict src, size_t n)
{
	const char *from = src;
	char *to = dest;

	if (n < 8) {
		copy_few(to, from, n);
		return dest;
	}
	for (; n >= 32; n -= 32, to += 32, from += 32)
		copy32(to, from);
	for (; n >= 8; n -= 8, to += 8, from += 8)
		store8(to, load8(from));
	if (n) /* the last eight bytes, some of them once more */
		store8(to + n - 8, load8(from + n - 8));
	return dest;
}
