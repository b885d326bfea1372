// SPDX-License-Identifier: MIT
/*
 * What picolibc needs from below: a stdout that writes through ecall 64, exit through 93, a heap.
 *
 * Output is collected in a buffer because one call per character would be all that a run does.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static char buffer[4096];
static size_t used;

static long ecall3(long number, long a, long b, long c)
{
	register long a0 __asm__("a0") = a;
	register long a1 __asm__("a1") = b;
	register long a2 __asm__("a2") = c;
	register long a7 __asm__("a7") = number;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
	return a0;
}

static int flush(FILE *f)
{
	(void)f;
	if (used)
		ecall3(64, 1, (long)(uintptr_t)buffer, (long)used);
	used = 0;
	return 0;
}

static int put(char c, FILE *f)
{
	buffer[used++] = c;
	if (used == sizeof(buffer))
		flush(f);
	return 0;
}

static FILE out = FDEV_SETUP_STREAM(put, NULL, flush, _FDEV_SETUP_WRITE);
FILE *const stdout = &out;
FILE *const stderr = &out;
FILE *const stdin = &out;

void _exit(int code)
{
	flush(stdout);
	for (;;)
		ecall3(93, code, 0, 0);
}

void *sbrk(ptrdiff_t by)
{
	extern char __heap_start[], __heap_end[];
	static char *at = __heap_start;
	char *old = at;

	if (by > __heap_end - at || by < __heap_start - at)
		return (void *)-1;
	at += by;
	return old;
}
