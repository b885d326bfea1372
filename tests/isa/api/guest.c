// SPDX-License-Identifier: MIT
/* A compiled program for compiled.c: symbols, thread-local data, tables of pointers, read-only data. */
#include <stdint.h>

_Thread_local uint64_t local = 11;
_Thread_local uint64_t zeroed;
const char *const names[] = { "zero", "one", "two" };
uint64_t counter = 5;
static uint64_t hidden[4] = { 1, 2, 3, 4 };
uint64_t *const pointer = &hidden[2];

__attribute__((noinline)) uint64_t add(uint64_t a, uint64_t b)
{
	return a + b + counter;
}

__attribute__((noinline)) uint64_t twice(uint64_t a)
{
	return add(a, a);
}

uint64_t (*const table[])(uint64_t) = { twice };

/* Everything a relocation could have missed. */
uint64_t everything(uint64_t n)
{
	local += n;
	zeroed += 2 * n;
	return table[0](n) + *pointer + (uint64_t)names[n][0] + local * 1000 + zeroed * 100000;
}

uint64_t name_address(uint64_t n)
{
	return (uint64_t)names[n];
}

void wild(uint64_t *p)
{
	*p = 1;
}

int main(void)
{
	return (int)everything(2);
}
