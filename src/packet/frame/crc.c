// SPDX-License-Identifier: MIT
/*
 * Owns CRC-32 of Ethernet (polynomial 0x04c11db7, least significant bit first), for the FCS of frames and for
 * the ICRC of RoCE. Called for every byte that goes over a wire.
 *
 * Where the processor multiplies without carries, 64 or 128 bytes at a time are folded: a polynomial that stands d
 * bits in front of another one is the same to the CRC as its product with x^d mod P, added to that one.
 *
 *	 16 bytes  16 bytes  16 bytes  16 bytes | 16 bytes ...
 *	    |---------- x^512 --------------------> ^        four folds that do not wait for each other,
 *	                                                     then x^128 until 16 bytes are left
 *
 * What is shorter than 16, and other processors, go by tables: four bits of input each, so that all of them are
 * 1 KiB. tests/unit/test_roce.c compares both ways with the definition, bit by bit.
 */
#include "packet/frame/frame.h"

#include <endian.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* [k][n]: what a register with n in its lowest four bits becomes by 4 * (k + 1) bits. */
static const uint32_t crc_table[16][16] = {
	{ 0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158,
	  0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4,
	  0xa00ae278, 0xbdbdf21c },
	{ 0x00000000, 0x77073096, 0xee0e612c, 0x990951ba, 0x076dc419, 0x706af48f, 0xe963a535,
	  0x9e6495a3, 0x0edb8832, 0x79dcb8a4, 0xe0d5e91e, 0x97d2d988, 0x09b64c2b, 0x7eb17cbd,
	  0xe7b82d07, 0x90bf1d91 },
	{ 0x00000000, 0x4ac21251, 0x958424a2, 0xdf4636f3, 0xf0794f05, 0xbabb5d54, 0x65fd6ba7,
	  0x2f3f79f6, 0x3b83984b, 0x71418a1a, 0xae07bce9, 0xe4c5aeb8, 0xcbfad74e, 0x8138c51f,
	  0x5e7ef3ec, 0x14bce1bd },
	{ 0x00000000, 0x191b3141, 0x32366282, 0x2b2d53c3, 0x646cc504, 0x7d77f445, 0x565aa786,
	  0x4f4196c7, 0xc8d98a08, 0xd1c2bb49, 0xfaefe88a, 0xe3f4d9cb, 0xacb54f0c, 0xb5ae7e4d,
	  0x9e832d8e, 0x87981ccf },
	{ 0x00000000, 0x1c26a370, 0x384d46e0, 0x246be590, 0x709a8dc0, 0x6cbc2eb0, 0x48d7cb20,
	  0x54f16850, 0xe1351b80, 0xfd13b8f0, 0xd9785d60, 0xc55efe10, 0x91af9640, 0x8d893530,
	  0xa9e2d0a0, 0xb5c473d0 },
	{ 0x00000000, 0x01c26a37, 0x0384d46e, 0x0246be59, 0x0709a8dc, 0x06cbc2eb, 0x048d7cb2,
	  0x054f1685, 0x0e1351b8, 0x0fd13b8f, 0x0d9785d6, 0x0c55efe1, 0x091af964, 0x08d89353,
	  0x0a9e2d0a, 0x0b5c473d },
	{ 0x00000000, 0x5019579f, 0xa032af3e, 0xf02bf8a1, 0x9b14583d, 0xcb0d0fa2, 0x3b26f703,
	  0x6b3fa09c, 0xed59b63b, 0xbd40e1a4, 0x4d6b1905, 0x1d724e9a, 0x764dee06, 0x2654b999,
	  0xd67f4138, 0x866616a7 },
	{ 0x00000000, 0xb8bc6765, 0xaa09c88b, 0x12b5afee, 0x8f629757, 0x37def032, 0x256b5fdc,
	  0x9dd738b9, 0xc5b428ef, 0x7d084f8a, 0x6fbde064, 0xd7018701, 0x4ad6bfb8, 0xf26ad8dd,
	  0xe0df7733, 0x58631056 },
	{ 0x00000000, 0x60e09782, 0xc1c12f04, 0xa121b886, 0x58f35849, 0x3813cfcb, 0x9932774d,
	  0xf9d2e0cf, 0xb1e6b092, 0xd1062710, 0x70279f96, 0x10c70814, 0xe915e8db, 0x89f57f59,
	  0x28d4c7df, 0x4834505d },
	{ 0x00000000, 0x3d6029b0, 0x7ac05360, 0x47a07ad0, 0xf580a6c0, 0xc8e08f70, 0x8f40f5a0,
	  0xb220dc10, 0x30704bc1, 0x0d106271, 0x4ab018a1, 0x77d03111, 0xc5f0ed01, 0xf890c4b1,
	  0xbf30be61, 0x825097d1 },
	{ 0x00000000, 0x03d6029b, 0x07ac0536, 0x047a07ad, 0x0f580a6c, 0x0c8e08f7, 0x08f40f5a,
	  0x0b220dc1, 0x1eb014d8, 0x1d661643, 0x191c11ee, 0x1aca1375, 0x11e81eb4, 0x123e1c2f,
	  0x16441b82, 0x15921919 },
	{ 0x00000000, 0xcb5cd3a5, 0x4dc8a10b, 0x869472ae, 0x9b914216, 0x50cd91b3, 0xd659e31d,
	  0x1d0530b8, 0xec53826d, 0x270f51c8, 0xa19b2366, 0x6ac7f0c3, 0x77c2c07b, 0xbc9e13de,
	  0x3a0a6170, 0xf156b2d5 },
	{ 0x00000000, 0x67de9cce, 0xcfbd399c, 0xa863a552, 0x440b7579, 0x23d5e9b7, 0x8bb64ce5,
	  0xec68d02b, 0x8816eaf2, 0xefc8763c, 0x47abd36e, 0x20754fa0, 0xcc1d9f8b, 0xabc30345,
	  0x03a0a617, 0x647e3ad9 },
	{ 0x00000000, 0xa6770bb4, 0x979f1129, 0x31e81a9d, 0xf44f2413, 0x52382fa7, 0x63d0353a,
	  0xc5a73e8e, 0x33ef4e67, 0x959845d3, 0xa4705f4e, 0x020754fa, 0xc7a06a74, 0x61d761c0,
	  0x503f7b5d, 0xf64870e9 },
	{ 0x00000000, 0x7cbb312b, 0xf9766256, 0x85cd537d, 0x299dc2ed, 0x5526f3c6, 0xd0eba0bb,
	  0xac509190, 0x533b85da, 0x2f80b4f1, 0xaa4de78c, 0xd6f6d6a7, 0x7aa64737, 0x061d761c,
	  0x83d02561, 0xff6b144a },
	{ 0x00000000, 0xccaa009e, 0x4225077d, 0x8e8f07e3, 0x844a0efa, 0x48e00e64, 0xc66f0987,
	  0x0ac50919, 0xd3e51bb5, 0x1f4f1b2b, 0x91c01cc8, 0x5d6a1c56, 0x57af154f, 0x9b0515d1,
	  0x158a1232, 0xd92012ac },
};

static uint32_t crc_by_tables(uint32_t crc, const uint8_t *at, size_t len)
{
	for (; len >= 8; at += 8, len -= 8) {
		uint64_t word;
		uint32_t next = 0;

		memcpy(&word, at, 8);
		word = le64toh(word) ^ crc;
		for (unsigned int k = 0; k < 16; k++)
			next ^= crc_table[15 - k][word >> 4 * k & 0xf];
		crc = next;
	}
	for (; len; at++, len--) {
		crc ^= *at;
		crc = crc_table[0][crc >> 4 & 0xf] ^ crc_table[1][crc & 0xf] ^ crc >> 8;
	}
	return crc;
}

#if defined(__x86_64__)
enum { CRC_FOLDED = 16, CRC_WIDE = 256 }; /* bytes that are worth the multiplications */

#define CRC_TARGET      __attribute__((target("pclmul,sse4.1")))
#define CRC_WIDE_TARGET __attribute__((target("vpclmulqdq,pclmul,avx2")))

/*
 * x^(d + 32) and x^(d - 32) mod P for d bits, in reversed order and one to the left, as the product of two
 * reversed numbers wants it: the first is for the eight bytes that stand farther in front.
 */
static const uint64_t crc_by_1024[2] = { 0x1e88ef372, 0x14a7fe880 };
static const uint64_t crc_by_512[2] = { 0x154442bd4, 0x1c6e41596 };
static const uint64_t crc_by_128[2] = { 0x1751997d0, 0x0ccaa009e };
/* x^64 mod P, for the last 64 bits; P itself, and the quotient of x^64 by it (Barrett's reduction) */
static const uint64_t crc_by_64 = 0x163cd6124;
static const uint64_t crc_barrett[2] = { 0x1db710641, 0x1f7011641 };

CRC_TARGET static inline __m128i crc_load(const void *at)
{
	return _mm_loadu_si128(at);
}

CRC_TARGET static inline __m128i crc_fold(__m128i from, __m128i by, __m128i to)
{
	return _mm_xor_si128(to, _mm_xor_si128(_mm_clmulepi64_si128(from, by, 0x00),
					       _mm_clmulepi64_si128(from, by, 0x11)));
}

/* The register behind 16 bytes that have no more in front of them. */
CRC_TARGET static inline uint32_t crc_reduce(__m128i x)
{
	const __m128i low = _mm_set_epi32(0, 0, 0, -1), barrett = crc_load(crc_barrett);
	__m128i q;

	x = _mm_xor_si128(_mm_srli_si128(x, 8),
			  _mm_clmulepi64_si128(x, crc_load(crc_by_128), 0x10));
	x = _mm_xor_si128(_mm_srli_si128(x, 4),
			  _mm_clmulepi64_si128(_mm_and_si128(x, low),
					       _mm_loadl_epi64((const __m128i *)&crc_by_64), 0x00));
	q = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low), barrett, 0x10), low);
	x = _mm_xor_si128(x, _mm_clmulepi64_si128(q, barrett, 0x00));
	return (uint32_t)_mm_extract_epi32(x, 1);
}

/* The register behind x, which has only the last bytes behind it. */
CRC_TARGET static inline uint32_t crc_finish(__m128i x, const uint8_t *at, size_t len)
{
	const __m128i by = crc_load(crc_by_128);

	for (; len >= 16; at += 16, len -= 16)
		x = crc_fold(x, by, crc_load(at));
	return crc_by_tables(crc_reduce(x), at, len);
}

CRC_TARGET static uint32_t crc_by_folds(uint32_t crc, const uint8_t *at, size_t len)
{
	const __m128i by = crc_load(crc_by_128), far = crc_load(crc_by_512);
	__m128i x = _mm_xor_si128(crc_load(at), _mm_cvtsi32_si128((int)crc)), y, z, w;

	if (len < 128)
		return crc_finish(x, at + 16, len - 16);
	y = crc_load(at + 16);
	z = crc_load(at + 32);
	w = crc_load(at + 48);
	for (at += 64, len -= 64; len >= 64; at += 64, len -= 64) {
		x = crc_fold(x, far, crc_load(at));
		y = crc_fold(y, far, crc_load(at + 16));
		z = crc_fold(z, far, crc_load(at + 32));
		w = crc_fold(w, far, crc_load(at + 48));
	}
	x = crc_fold(crc_fold(crc_fold(x, by, y), by, z), by, w);
	return crc_finish(x, at, len);
}

CRC_WIDE_TARGET static inline __m256i crc_fold_wide(__m256i from, __m256i by, const uint8_t *to)
{
	return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)to),
				_mm256_xor_si256(_mm256_clmulepi64_epi128(from, by, 0x00),
						 _mm256_clmulepi64_epi128(from, by, 0x11)));
}

/* x, which stands in front of y, becomes one with both halves of it. */
CRC_WIDE_TARGET static inline __m128i crc_join(__m128i x, __m256i y)
{
	const __m128i by = crc_load(crc_by_128);

	x = crc_fold(x, by, _mm256_castsi256_si128(y));
	return crc_fold(x, by, _mm256_extracti128_si256(y, 1));
}

/* Of at least 128 bytes. */
CRC_WIDE_TARGET static uint32_t crc_by_wide_folds(uint32_t crc, const uint8_t *at, size_t len)
{
	const __m256i far = _mm256_broadcastsi128_si256(crc_load(crc_by_1024));
	__m256i x = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)at),
				     _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
	__m256i y = _mm256_loadu_si256((const __m256i *)(at + 32));
	__m256i z = _mm256_loadu_si256((const __m256i *)(at + 64));
	__m256i w = _mm256_loadu_si256((const __m256i *)(at + 96));
	__m128i last;

	for (at += 128, len -= 128; len >= 128; at += 128, len -= 128) {
		x = crc_fold_wide(x, far, at);
		y = crc_fold_wide(y, far, at + 32);
		z = crc_fold_wide(z, far, at + 64);
		w = crc_fold_wide(w, far, at + 96);
	}
	last = crc_fold(_mm256_castsi256_si128(x), crc_load(crc_by_128),
			_mm256_extracti128_si256(x, 1));
	return crc_finish(crc_join(crc_join(crc_join(last, y), z), w), at, len);
}

uint32_t vb_frame_crc(uint32_t crc, const void *data, size_t len)
{
	if (len >= CRC_WIDE && __builtin_cpu_supports("vpclmulqdq") &&
	    __builtin_cpu_supports("avx2"))
		return crc_by_wide_folds(crc, data, len);
	if (len >= CRC_FOLDED && __builtin_cpu_supports("pclmul") &&
	    __builtin_cpu_supports("sse4.1"))
		return crc_by_folds(crc, data, len);
	return crc_by_tables(crc, data, len);
}
#else
uint32_t vb_frame_crc(uint32_t crc, const void *data, size_t len)
{
	return crc_by_tables(crc, data, len);
}
#endif

uint32_t vb_frame_fcs(const uint8_t *data, uint32_t len)
{
	return ~vb_frame_crc(0xffffffff, data, len);
}
