// SPDX-License-Identifier: MIT
/* C11 atomics of one thread: every operation the A extension has, and those compilers build from LR/SC. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

static _Atomic uint32_t w = 5;
static _Atomic uint64_t d = 7;
static _Atomic(void *) pointer;

static void words(uint32_t v)
{
	uint32_t expect = v;

	printf("%" PRIx32 " ", atomic_fetch_add(&w, v));
	printf("%" PRIx32 " ", atomic_fetch_sub_explicit(&w, v * 3, memory_order_relaxed));
	printf("%" PRIx32 " ", atomic_fetch_and_explicit(&w, ~v, memory_order_acquire));
	printf("%" PRIx32 " ", atomic_fetch_or_explicit(&w, v << 3, memory_order_release));
	printf("%" PRIx32 " ", atomic_fetch_xor(&w, 0xa5a5a5a5));
	printf("%" PRIx32 " ", atomic_exchange(&w, v ^ 0x80000001));
	printf("%d ", atomic_compare_exchange_strong(&w, &expect, 1));
	printf("%d ", atomic_compare_exchange_strong(&w, &expect, expect + 9));
	printf("%" PRIx32 "\n", atomic_load(&w));
}

static void doubles(uint64_t v)
{
	uint64_t expect = v;

	printf("%" PRIx64 " ", atomic_fetch_add(&d, v));
	printf("%" PRIx64 " ", atomic_fetch_sub(&d, v << 7));
	printf("%" PRIx64 " ", atomic_fetch_and(&d, ~v));
	printf("%" PRIx64 " ", atomic_fetch_or(&d, v << 3));
	printf("%" PRIx64 " ", atomic_fetch_xor(&d, v * 0x9e3779b97f4a7c15));
	printf("%" PRIx64 " ", atomic_exchange(&d, v ^ 1));
	printf("%d ", atomic_compare_exchange_strong(&d, &expect, 1));
	printf("%d ", atomic_compare_exchange_strong(&d, &expect, expect * 3));
	printf("%" PRIx64 "\n", atomic_load(&d));
}

#ifdef __clang__ /* gcc calls libatomic for these, which no bare-metal package has */
static _Atomic uint8_t b[4];
static _Atomic uint16_t h[2];

static void parts(unsigned v)
{
	for (unsigned i = 0; i < 4; i++) {
		uint8_t expect = (uint8_t)(v + i);

		atomic_fetch_add(&b[i], (uint8_t)(v + i));
		atomic_fetch_xor(&h[i & 1], (uint16_t)(v * 257));
		atomic_compare_exchange_strong(&b[i], &expect, (uint8_t)~v);
		atomic_exchange(&h[i & 1], (uint16_t)(h[i & 1] + 3));
	}
}
#else
static unsigned char b[4];
static unsigned short h[2];

static void parts(unsigned v)
{
	for (unsigned i = 0; i < 4; i++) {
		uint8_t expect = (uint8_t)(v + i);

		b[i] += (uint8_t)(v + i);
		h[i & 1] ^= (unsigned short)(v * 257);
		if (b[i] == expect)
			b[i] = (uint8_t)~v;
		h[i & 1] += 3;
	}
}
#endif

int main(void)
{
	static const uint64_t v[] = { 0,          1,          0x7fffffff,        0x80000000,
				      0xffffffff, 1ull << 63, 0x0123456789abcdef };
	int x;

	for (unsigned i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		words((uint32_t)v[i]);
		doubles(v[i]);
		parts((unsigned)v[i] + i);
		atomic_thread_fence(memory_order_seq_cst);
	}
	atomic_store(&pointer, &x);
	printf("%d %x %x %x %x %x %x\n", atomic_load(&pointer) == &x, b[0], b[1], b[2], b[3], h[0],
	       h[1]);
	return 0;
}
