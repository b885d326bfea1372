// SPDX-License-Identifier: MIT
/*
 * Lines of faults, as they come from a socket or a script. Whatever they say: an answer, no memory
 * beyond the line is read, an error has words, and what is accepted is within its limits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "card/fault/inject.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct vb_inject *fault)
{
	if (!fault->card[0] || !memchr(fault->card, 0, sizeof(fault->card)))
		abort();
	switch (fault->kind) {
	case VB_INJECT_PORT:
		if (!fault->number || fault->number > 255)
			abort();
		break;
	case VB_INJECT_QP_NEXT:
		if (fault->status <= IBV_WC_SUCCESS || fault->status > IBV_WC_GENERAL_ERR)
			abort();
		break;
	case VB_INJECT_FAIL:
		if ((unsigned int)fault->object >= VB_INJECT_OBJECTS)
			abort();
		break;
	case VB_INJECT_EU:
		if (fault->number > 4095 || fault->slow == 1)
			abort();
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char words[40], *line = malloc(size + 1); /* exactly, so that a byte more is seen */
	struct vb_inject fault;
	int ret;

	memcpy(line, data, size);
	line[size] = '\0';
	memset(words, 'x', sizeof(words));
	ret = vb_inject_parse(line, &fault, words, sizeof(words));
	if (!ret)
		check(&fault);
	if (ret < 0 && (!memchr(words, 0, sizeof(words)) || !words[0]))
		abort();
	free(line);
	return 0;
}
