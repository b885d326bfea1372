// SPDX-License-Identifier: MIT
/* Calls what flow.S holds and prints what came back; expected values were worked out by hand. */
#include <stdio.h>

long mid_block(long n);
long half_insn(void);
long returns_only(long n);
long calls_only(long n);
long skip_return(void);
long swap_links(long n);
long alternate_link(long n);
long other_return(void);
long overlap(long n);
long all_registers(void);

static int wrong;

static void is(const char *what, long got, long want)
{
	printf("%s %ld\n", what, got);
	if (got != want) {
		printf("  expected %ld\n", want);
		wrong = 1;
	}
}

/* What mid_block computes when it enters at step n. */
static long mid_block_says(long n)
{
	long a = 1;

	for (; n < 7; n++)
		switch (n) {
		case 0:
			a += 1;
			break;
		case 1:
			a <<= 1;
			break;
		case 2:
			a ^= 0x55;
			break;
		case 3:
			a += 7;
			break;
		case 4:
			a <<= 2;
			break;
		case 5:
			a -= 3;
			break;
		case 6:
			a ^= 0x2a;
			break;
		}
	return a;
}

static long overlap_says(long left)
{
	long a = 110;

	while (--left > 0)
		a += left & 3 ? (left & 3) == 1 ? 110 : 100 : 111;
	return a;
}

int main(void)
{
	for (int round = 0; round < 3;
	     round++) /* later rounds run what the first one made the engine learn */
		for (long n = 0; n < 8; n++)
			is("mid_block", mid_block(n), mid_block_says(n));
	is("half_insn", half_insn(), 9);
	is("returns_only", returns_only(1), 3);
	is("returns_only", returns_only(50000), 150000);
	is("calls_only", calls_only(1), 5);
	is("calls_only", calls_only(50000), 250000);
	is("skip_return", skip_return(), 11);
	is("swap_links", swap_links(3), 154);
	is("alternate_link", alternate_link(1000), 7000);
	is("other_return", other_return(), 658);
	for (long n = 1; n < 40; n += 3)
		is("overlap", overlap(n), overlap_says(n));
	is("all_registers", all_registers(), 29);
	return wrong;
}
