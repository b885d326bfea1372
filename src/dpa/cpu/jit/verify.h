/* SPDX-License-Identifier: MIT */
/*
 * The checker of finished translations. It knows the contract below and the bytes, and nothing of
 * how they were made: no emitter is called and no fact of theirs is believed.
 *
 * The contract of host code, "body" being all of it behind the thunks:
 *
 *   thunks      are the listing in verify.c, instruction for instruction. Only they change rbp or r14,
 *               and only they, call, ret and "mov rsp, pred_base" change rsp; these three registers are
 *               otherwise nothing but bases of memory operands, so that no host address gets out.
 *   memory      a memory operand of the body is one of
 *                 [r14 + low + disp]   low was made by a 32-bit mov in the straight line before, disp
 *                                      with the operand's size is inside of a guard
 *                 [r14 + disp]         all of it in guest memory, below the limit
 *                                      (both with a note in sites, for faults)
 *                 [rbp + disp]         a guest register, or the reservation of LR and SC
 *                 [rax]                in the window sequence only
 *                 lock or [rsp], 0     a fence
 *   window      the mark, (the fence,) (rax = a guest register,) lea rax; sub tag; cmp with the length
 *               that goes with the kind of access; jae to the end of the mark; cmovae rax, x0; add host; the
 *               access, which stores anything but rax; the end of the mark. Nobody jumps into it. From between
 *               a mark and its end no jump leads elsewhere than to an end.
 *   jumps       lead to the start of an instruction of the body, or to leave, miss or dispatch. Leaders
 *               (what the jump table gets) and return sites count as targets of jumps from anywhere:
 *               nothing that was so before a target is taken to be so behind it.
 *   table       and rax, -2; lea rdx, [rax - lo]; cmp rdx, length of the text; jae miss; cmovae rdx, x0; jmp
 *               or call [r14 + rdx * 4 + table]. Nobody jumps into it.
 *   calls       of leaders only, right behind "cmp rsp, pred_limit; jb"; or of execute, right behind
 *               "mov eax, number of a site".
 *   division    right behind the test that keeps the host from a trap, by a register or a guest register.
 *   prefixes    are REX alone for jumps, calls and returns; elsewhere each has an effect.
 *   sites       are sorted.
 *   the rest    is a list of instructions without memory operands of their own.
 *
 * Then, whatever the body does, it touches guest memory, the guards, the cpu's slots and windows
 * within their length and rights; it runs its own instructions and no others. That it computes what
 * the guest asked for, and looks at the budget often enough, is not checked here: tests compare it
 * with the interpreter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct site;

struct verify {
	const uint8_t *code; /* where it will run */
	size_t len;
	const int8_t *host; /* host register of each guest register 1..31, -1: none */
	uint64_t limit;     /* of guest memory */
	uint64_t text_lo, text_len;
	int32_t table; /* of the jump table from guest 0 */
	const void *gen;
	const struct site *sites; /* where guest accesses are, and what execute may be called for */
	size_t nsites;
	const uint32_t *offsets; /* of leaders; 0: none */
	size_t noffsets;
	uint32_t enter, miss; /* where the thunks are said to be */
	bool fences;          /* marks of windows need one */
	bool forget;          /* tests: decode each instruction in full, as if it were the first */
};

/* 0; -EBADMSG and why (in words, with the offset), or -ENOMEM. */
int vb_jit_verify(const struct verify *v, char *why, size_t size);
