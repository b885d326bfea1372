/* SPDX-License-Identifier: MIT */
/* What both halves of events.c know. */
#pragma once

#include <stdint.h>

struct relay_data {
	uint64_t runs, id, tls;
	uint64_t left; /* times to pass the trigger on */
	uint32_t next; /* activation id */
	uint32_t end;  /* 1: reschedule, 2: finish, 3: retrigger, 0: return */
	char name[32];
};
