// SPDX-License-Identifier: MIT
/* Work on a buffer that the host filled. A device address arrives as an ordinary pointer. */
#include <libflexio-dev/flexio_dev.h>

/* Sort words in place and return their sum. */
__dpa_rpc__ uint64_t sort(uint32_t *words, size_t number)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < number; i++) {
		uint32_t word = words[i];
		size_t at = i;

		for (; at > 0 && words[at - 1] > word; at--)
			words[at] = words[at - 1];
		words[at] = word;
		sum += word;
	}
	return sum;
}
