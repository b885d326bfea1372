/* SPDX-License-Identifier: MIT */
/* Host code written by hand, and what the checker of translations says to it. */
#pragma once

#include "bed.h"

#include "dpa/cpu/jit/code.h"
#include "dpa/cpu/jit/verify.h"

#define HAND_LIMIT (16u << 20) /* of guest memory */
#define HAND_SITES 1000

struct hand {
	uint8_t bytes[4096];
	uint32_t offsets[8]; /* leaders */
	unsigned leaders;
	struct vb_text text;
	struct vb_jit jit;
	struct epoch epoch;
	struct generation gen;
	struct tx tx;
	struct code *c;
	struct site sites[HAND_SITES];
	bool fences;
};

/* The thunks; a body may follow, any of its bytes as the place of a guest access. */
void hand_begin(struct hand *h);
/* What comes next is in the jump table. */
void hand_leader(struct hand *h);
void hand_leave(struct hand *h);
void hand_raw(struct hand *h, const char *bytes, size_t n);
#define RAW(h, text) hand_raw(h, text, sizeof(text) - 1)

/* As vb_jit_verify, with and without its memo, which must say the same. */
int hand_verify(const struct hand *h, char *why, size_t size);
/* refusal: part of the reason; NULL: it is within the contract */
void hand_expect(const char *what, void (*make)(struct hand *h), const char *refusal);
#define EXPECT(body, refusal) hand_expect(#body, body, refusal)

#define BREAK(name, code)                \
	static void name(struct hand *h) \
	{                                \
		code;                    \
	}
