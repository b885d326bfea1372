// SPDX-License-Identifier: MIT
/* Filled eight bytes at a time: see words.h. */
#include "words.h"

void *memset(void *dest, int c, size_t n)
{
	uint64_t pattern = (unsigned char)c * 0x0101010101010101u;
	char *to = dest;

	if (n < 8) {
		for (size_t i = 0; i < n; i++)
			to[i] = (char)c;
		return dest;
	}
	for (; n >= 32; n -= 32, to += 32) {
		store8(to, pattern);
		store8(to + 8, pattern);
		store8(to + 16, pattern);
		store8(to + 24, pattern);
	}
	for (; n >= 8; n -= 8, to += 8)
		store8(to, pattern);
	if (n)
		store8(to + n - 8, pattern);
	return dest;
}
