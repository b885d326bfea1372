/* SPDX-License-Identifier: MIT */
/* What both halves of cmdq.c know. */
#pragma once

#include <stdint.h>

#define SIDE 48

struct row {
	uint64_t a, b, out; /* device addresses */
};
