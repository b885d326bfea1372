// SPDX-License-Identifier: MIT
/* Compared eight bytes at a time: see words.h. */
#include "words.h"

int memcmp(const void *left, const void *right, size_t n)
{
	const unsigned char *a = left, *b = right;

	for (; n >= 8; n -= 8, a += 8, b += 8) {
		uint64_t x = load8((const char *)a), y = load8((const char *)b);

		if (x != y) /* the first byte counts most */
			return __builtin_bswap64(x) < __builtin_bswap64(y) ? -1 : 1;
	}
	for (; n; n--, a++, b++)
		if (*a != *b)
			return *a - *b;
	return 0;
}
