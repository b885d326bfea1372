/* SPDX-License-Identifier: MIT */
/* Doorbell pages: what both formats share. Included only inside src/card/format. */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VB_BELL_CI_MASK = 0xffffff };

/* Whether a store covers a big-endian word of the page, and which value it puts there. */
static inline bool vb_bell_word(size_t at, size_t offset, const void *data, size_t size,
				uint32_t *value)
{
	uint32_t word;

	if (offset > at || offset + size < at + sizeof(word))
		return false;
	memcpy(&word, (const char *)data + (at - offset), sizeof(word));
	*value = be32toh(word);
	return true;
}
