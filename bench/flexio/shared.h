/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

struct relay {
	uint64_t left; /* triggers to pass on */
	uint64_t done;
	uint32_t next; /* activation id of the other one */
	uint32_t pad;
};
