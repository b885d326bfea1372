/* SPDX-License-Identifier: MIT */
/* What translated code calls, and what running it needs of its making. */
#pragma once

#include "dpa/cpu/jit/code.h"

/*
 * Execute the instruction of a site with the interpreter. 0: go on behind it; 1: leave,
 * cpu->jit_exit says why.
 */
uint64_t vb_jit_execute(struct vb_cpu *cpu, uint64_t site, struct generation *gen);

/* As many turns of a loop as can be made at once; registers and budget are in the cpu. */
void run_loop(struct vb_cpu *cpu, const struct loop *l);
const struct loop *find_loop_at(const struct generation *gen, uint32_t index);

/* Translated code left at index for a reason that another translation would not have (flags of enum
 * extra). After enough of these there is one. */
void vb_jit_learn(struct vb_jit *jit, uint32_t index, unsigned int flags);

/* Until the register map is settled: step through some instructions and count. As vb_interp_run. */
enum vb_cpu_exit vb_jit_profile(struct vb_cpu *cpu, uint64_t max);

/* Translate with another register map and let everybody enter that from now on. */
int vb_jit_remap(struct vb_jit *jit, const int8_t host[33]);
