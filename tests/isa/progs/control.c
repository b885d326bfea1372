// SPDX-License-Identifier: MIT
/* Control flow as compilers make it: longjmp, computed goto, switch tables, tail calls, deep recursion, pointers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

static jmp_buf out, inner;
static volatile int depth_seen;

static void dive(int depth, int leave_at)
{
	volatile int keep = depth;

	if (depth == leave_at)
		longjmp(out, depth + 1);
	dive(depth + 1, leave_at);
	depth_seen += keep; /* only reached when nothing jumped */
}

static void test_longjmp(void)
{
	volatile int round = 0;
	int r = setjmp(out);

	printf("longjmp %d round %d seen %d\n", r, round, depth_seen);
	if (round < 6)
		dive(0, round++ * 37);
}

/* A jump out of two nested catchers, taken many times: more calls than returns. */
static int nested(int n)
{
	if (setjmp(inner) == 0) {
		if (n % 3 == 0)
			longjmp(inner, n + 1);
		return n;
	}
	return -n;
}

/* A byte-coded machine with computed goto. */
static long machine(const unsigned char *code, long a)
{
	static const void *const op[] = { &&halt, &&inc, &&dbl, &&sq, &&back, &&swap };
	long b = 3, left = 20;

#define NEXT goto *op[*code++]
	NEXT;
inc:
	a += b;
	NEXT;
dbl:
	a *= 2;
	NEXT;
sq:
	a = (a * a) % 1000003;
	NEXT;
swap:
	a ^= b;
	b ^= a;
	a ^= b;
	NEXT;
back:
	if (left--)
		code -= *code;
	else
		code++;
	NEXT;
halt:
	return a ^ b;
}

static int dense(int v)
{
	switch (v) {
	case 0:
		return 11;
	case 1:
		return v * 7;
	case 2:
		return -5;
	case 3:
		return v << 9;
	case 4:
		return 100 - v;
	case 5:
		return dense(v - 5) + 1;
	case 6:
		return 66;
	case 7:
		return dense(3) ^ dense(6);
	case 8:
		return 8080;
	case 9:
		return dense(8) / 3;
	default:
		return v;
	}
}

static const char *sparse(uint64_t v)
{
	switch (v) {
	case 0:
		return "zero";
	case 7:
		return "seven";
	case 1000:
		return "thousand";
	case 0x80000000:
		return "sign32";
	case 0xffffffff:
		return "ones32";
	case 0x8000000000000000:
		return "sign64";
	case 0xffffffffffffffff:
		return "ones64";
	default:
		return "other";
	}
}

static int is_odd(unsigned n);

static __attribute__((noinline)) int is_even(unsigned n)
{
	return n ? is_odd(n - 1) : 1; /* a tail call from -O2 on */
}

static __attribute__((noinline)) int is_odd(unsigned n)
{
	return n ? is_even(n - 1) : 0;
}

static unsigned ackermann(unsigned m, unsigned n)
{
	if (!m)
		return n + 1;
	return n ? ackermann(m - 1, ackermann(m, n - 1)) : ackermann(m - 1, 1);
}

static __attribute__((noinline)) unsigned long deep(unsigned n, unsigned long *sum)
{
	unsigned long mine = n * 2654435761ul;

	if (n)
		mine ^= deep(n - 1, sum);
	*sum += mine;
	return mine >> 1;
}

typedef long (*binary)(long, long);

static long f_add(long a, long b)
{
	return a + b;
}
static long f_sub(long a, long b)
{
	return a - b;
}
static long f_mul(long a, long b)
{
	return a * b;
}
static long f_mix(long a, long b)
{
	return (a << 5) ^ (b >> 3);
}

static long sum_va(int n, ...)
{
	va_list ap;
	long s = 0;

	va_start(ap, n);
	while (n--)
		s = s * 10 + va_arg(ap, long);
	va_end(ap);
	return s;
}

int main(void)
{
	static const binary table[] = { f_add, f_sub, f_mul, f_mix };
	static const unsigned char code[] = { 1, 2, 3, 5, 1, 4, 5, 2, 0 };
	static const uint64_t value[] = {
		0, 7, 8, 1000, 0x80000000, 0xffffffff, 1ull << 63, ~0ull
	};
	unsigned long sum = 0;
	long v = 1;

	test_longjmp();
	for (int i = 0; i < 9; i++)
		printf("nested %d machine %ld\n", nested(i), machine(code, i));
	for (int i = -2; i < 12; i++)
		printf("dense %d\n", dense(i));
	for (unsigned i = 0; i < sizeof(value) / sizeof(value[0]); i++)
		printf("sparse %s\n", sparse(value[i]));
	printf("even %d odd %d\n", is_even(3000), is_odd(3001));
	printf("ackermann %u\n", ackermann(2, 60));
	printf("deep %lx", deep(9000, &sum));
	printf(" %lx\n", sum);
	for (int i = 0; i < 400; i++)
		v = table[(i * 7 + (v & 3)) & 3](v, i + 1);
	printf("pointers %ld va %ld\n", v, sum_va(11, 1l, 2l, 3l, 4l, 5l, 6l, 7l, 8l, 9l, 0l, 1l));
	return 42;
}
