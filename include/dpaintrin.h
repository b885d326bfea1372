/* SPDX-License-Identifier: MIT */
/*
 * Intrinsics of the DPA: fences, counters, fixed-point arithmetic.
 *
 * Fences. A fence orders what the calling thread did before it against what it does after it, in one space:
 *
 *	__DPA_HEAP     memory that only DPA threads use
 *	__DPA_MEMORY   memory that DPA threads, the card and the host use
 *	__DPA_MMIO     windows (host memory) and the outbox
 *	__DPA_SYSTEM   all of them
 *
 * They are RISC-V fence instructions: memory is r/w and MMIO is i/o. Windows are ordinary memory accesses for the CPU
 * and the outbox is a device, so fences of __DPA_MMIO order both kinds. All are compiler barriers too.
 *
 * Counters. Cycles and time run at 1.8 GHz, instructions are exact; see docs/engine.md.
 *
 * Fixed point. Q16.16: the value is the integer divided by 65536. Results are the exact ones rounded down; what does
 * not fit, or is not defined, gives the nearest end of the range.
 */
#ifndef __DPAINTRIN_H
#define __DPAINTRIN_H

#include <stdint.h>

#define DPA_INTRIN_VERSION(major, minor) (((major) << 16) | (minor))
#ifndef DPA_INTRIN_VERSION_USED
#define DPA_INTRIN_VERSION_USED DPA_INTRIN_VERSION(1, 3)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define __DPA_HEAP   1
#define __DPA_MEMORY 2
#define __DPA_MMIO   3
#define __DPA_SYSTEM 4

#define __DPA_R      1
#define __DPA_W      2
#define __DPA_RW     3

#define __DPA_INLINE static inline __attribute__((always_inline, unused))

/* The nine fences of one space; r and w are the letters of its reads and writes. The arguments are constants, so one
 * instruction remains. */
#define __DPA_FENCE_ONE(pred, succ) __asm__ volatile("fence " pred ", " succ ::: "memory")
#define __DPA_FENCE_SUCC(pred, op, r, w, rw)       \
	do {                                       \
		if ((op) == __DPA_R)               \
			__DPA_FENCE_ONE(pred, r);  \
		else if ((op) == __DPA_W)          \
			__DPA_FENCE_ONE(pred, w);  \
		else                               \
			__DPA_FENCE_ONE(pred, rw); \
	} while (0)
#define __DPA_FENCE(op1, op2, r, w, rw)                      \
	do {                                                 \
		if ((op1) == __DPA_R)                        \
			__DPA_FENCE_SUCC(r, op2, r, w, rw);  \
		else if ((op1) == __DPA_W)                   \
			__DPA_FENCE_SUCC(w, op2, r, w, rw);  \
		else                                         \
			__DPA_FENCE_SUCC(rw, op2, r, w, rw); \
	} while (0)

/* Order operations op1 before the fence against operations op2 behind it. All arguments are constants. */
__DPA_INLINE void __dpa_thread_fence(int space, int op1, int op2)
{
	if (space == __DPA_HEAP || space == __DPA_MEMORY)
		__DPA_FENCE(op1, op2, "r", "w", "rw");
	else
		__DPA_FENCE(op1, op2, "ir", "ow", "iorw");
}

__DPA_INLINE void __dpa_thread_memory_fence(int op1, int op2)
{
	__dpa_thread_fence(__DPA_MEMORY, op1, op2);
}

__DPA_INLINE void __dpa_thread_outbox_fence(int op1, int op2)
{
	__dpa_thread_fence(__DPA_MMIO, op1, op2);
}

__DPA_INLINE void __dpa_thread_window_fence(int op1, int op2)
{
	__dpa_thread_fence(__DPA_MMIO, op1, op2);
}

/* All before all behind, in every space. */
__DPA_INLINE void __dpa_thread_system_fence(void)
{
	__dpa_thread_fence(__DPA_SYSTEM, __DPA_RW, __DPA_RW);
}

/* Later reads through windows see what the host wrote before. */
__DPA_INLINE void __dpa_thread_window_read_inv(void)
{
	__dpa_thread_fence(__DPA_MMIO, __DPA_R, __DPA_R);
}

/* Earlier writes through windows are visible to the host before later ones. */
__DPA_INLINE void __dpa_thread_window_writeback(void)
{
	__dpa_thread_fence(__DPA_MMIO, __DPA_W, __DPA_W);
}

/* The same for DPA memory, towards the card and the host. */
__DPA_INLINE void __dpa_thread_memory_writeback(void)
{
	__dpa_thread_fence(__DPA_MEMORY, __DPA_W, __DPA_W);
}

/* Order for the compiler only. */
__DPA_INLINE void __dpa_compiler_barrier(void)
{
	__asm__ volatile("" ::: "memory");
}

/* Hint: the cache line at addr need not be written back. Memory here is coherent, so nothing is to be done. */
__DPA_INLINE void __dpa_data_ignore(const volatile void *addr)
{
	(void)addr;
}

__DPA_INLINE uint64_t __dpa_thread_cycles(void)
{
	uint64_t value;

	__asm__ volatile("rdcycle %0" : "=r"(value)::"memory");
	return value;
}

__DPA_INLINE uint64_t __dpa_thread_inst_ret(void)
{
	uint64_t value;

	__asm__ volatile("rdinstret %0" : "=r"(value)::"memory");
	return value;
}

__DPA_INLINE uint64_t __dpa_thread_time(void)
{
	uint64_t value;

	__asm__ volatile("rdtime %0" : "=r"(value)::"memory");
	return value;
}

/* 1 / x. 0 gives the largest value. */
__DPA_INLINE int32_t __dpa_fxp_rcp(int32_t x)
{
	int64_t quotient;

	if (!x)
		return INT32_MAX;
	quotient = (INT64_C(1) << 32) / x;
	if (quotient * x != INT64_C(1) << 32 && x < 0)
		quotient--; /* towards minus infinity */
	if (quotient > INT32_MAX)
		return INT32_MAX;
	return quotient < INT32_MIN ? INT32_MIN : (int32_t)quotient;
}

/* 2 to the power of x. */
static inline __attribute__((unused)) int32_t __dpa_fxp_pow2(int32_t x)
{
	/* 2 to the power of 1/2, 1/4, ... 1/65536, times 2^63 */
	static const uint64_t root[16] = {
		0xb504f333f9de6484, 0x9837f0518db8a96f, 0x8b95c1e3ea8bd6e7, 0x85aac367cc487b15,
		0x82cd8698ac2ba1d7, 0x8164d1f3bc030773, 0x80b1ed4fd999ab6c, 0x8058d7d2d5e5f6b1,
		0x802c6436d0e04f51, 0x8016302f17467628, 0x800b179c82028fd1, 0x80058baf7fee3b5d,
		0x8002c5d00fdcfcb7, 0x800162e61bed4a49, 0x8000b17292f702a4, 0x800058b92abbae02,
	};
	uint64_t value = UINT64_C(1) << 63;
	int shift = 47 - (x >> 16); /* from 63 fraction bits to 16, less the power */

	if (x >= 15 << 16)
		return INT32_MAX;
	if (shift > 63)
		return 0;
	for (int bit = 0; bit < 16; bit++)
		if (x & (0x8000 >> bit))
			value = (uint64_t)(((unsigned __int128)value * root[bit]) >> 63);
	return (int32_t)(value >> shift);
}

/* Base 2 logarithm of x, an unsigned Q16.16 number. 0 gives the smallest value. */
static inline __attribute__((unused)) int32_t __dpa_fxp_log2(uint32_t x)
{
	int32_t result;
	uint64_t value;

	if (!x)
		return INT32_MIN;
	result = 15 - __builtin_clz(x);
	value = (uint64_t)x << (32 + __builtin_clz(x)); /* 1 to 2, with 63 fraction bits */
	for (int bit = 0; bit < 16; bit++) {
		unsigned __int128 square = (unsigned __int128)value * value;
		int carry = (int)(square >> 127);

		result = result * 2 + carry;
		value = (uint64_t)(square >> (63 + carry));
	}
	return result;
}

#ifdef __cplusplus
}
#endif

#endif
