/* SPDX-License-Identifier: MIT */
/* Fields of the firmware's commands: big-endian bits, counted from the first of the command. */
#pragma once

#include <stdint.h>

/* Up to 32 bits; a field does not cross a word. */
static inline uint32_t get(const uint8_t *from, uint32_t bit, uint32_t len)
{
	const uint8_t *p = from + bit / 32 * 4;
	uint32_t word = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];

	return word >> (32 - bit % 32 - len) & (len == 32 ? UINT32_MAX : (1u << len) - 1);
}

static inline void put(uint8_t *to, uint32_t bit, uint32_t len, uint32_t value)
{
	uint32_t shift = 32 - bit % 32 - len, mask = len == 32 ? UINT32_MAX : (1u << len) - 1;
	uint8_t *p = to + bit / 32 * 4;

	for (uint32_t i = 0; i < 4; i++) {
		uint8_t keep = (uint8_t) ~(mask << shift >> (24 - 8 * i));

		p[i] = (uint8_t)((p[i] & keep) |
				 (uint8_t)((value & mask) << shift >> (24 - 8 * i)));
	}
}

static inline void put64(uint8_t *to, uint32_t bit, uint64_t value)
{
	put(to, bit, 32, (uint32_t)(value >> 32));
	put(to, bit + 32, 32, (uint32_t)value);
}

static inline uint64_t get64(const uint8_t *from, uint32_t bit)
{
	return (uint64_t)get(from, bit, 32) << 32 | get(from, bit + 32, 32);
}
