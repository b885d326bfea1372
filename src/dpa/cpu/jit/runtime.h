/* SPDX-License-Identifier: MIT */
/* What translated code calls, and what running it needs of its making. */
#pragma once

#include "dpa/cpu/jit/code.h"

/* Execute the instruction of a site with the interpreter. 0: go on behind it; 1: leave, cpu->jit_exit says why. */
uint64_t vb_jit_execute(struct vb_cpu *cpu, uint64_t site, struct generation *gen);

/* An indirect jump went to index, which has no code; after enough of these the text is translated again. */
void vb_jit_learn(struct vb_jit *jit, uint32_t index);
