// SPDX-License-Identifier: MIT
/*
 * Copied eight bytes at a time, from the end where source and destination overlap so: see words.h.
 */
#include "words.h"

static void forward(char *to, const char *from, size_t n)
{
	for (; n >= 32; n -= 32, to += 32, from += 32)
		copy32(to, from);
	for (; n >= 8; n -= 8, to += 8, from += 8)
		store8(to, load8(from));
	for (; n; n--)
		*to++ = *from++;
}

static void backward(char *to, const char *from, size_t n)
{
	for (; n >= 32; n -= 32)
		copy32(to + n - 32, from + n - 32);
	for (; n >= 8; n -= 8)
		store8(to + n - 8, load8(from + n - 8));
	while (n--)
		to[n] = from[n];
}

void *memmove(void *dest, const void *src, size_t n)
{
	/* as one unsigned number: true also where dest lies before src */
	if ((uintptr_t)dest - (uintptr_t)src >= n)
		forward(dest, src, n);
	else
		backward(dest, src, n);
	return dest;
}
