/* SPDX-License-Identifier: MIT */
/*
 * The translator, as the rest of the processor sees it. Where there is none (another CPU, no
 * executable memory), the functions are there and vb_jit_create says -ENOTSUP.
 */
#pragma once

#include "dpa/cpu/cpu.h"

/* What only the loader knows. All of it is a hint: a wrong one costs speed, never correctness. */
struct vb_jit_hints {
	const uint64_t
		*leaders; /* code addresses: symbols first, then words in data that look like one */
	size_t nleaders;
	size_t nsymbols;
	const struct vb_text_range
		*data; /* initialised, readable memory, where jump tables may be */
	unsigned int ndata;
};

/*
 * Jump tables of a text: one for the first choice of registers, one for the choice that running it
 * suggests.
 */
#define VB_JIT_TABLES 2

/*
 * Translate text. table is host memory for VB_JIT_TABLES times 4 * (hi - lo) bytes, each page
 * aligned, that lies at table_offset from guest 0 and is inaccessible now. -ENOTSUP: this host
 * cannot; *why (static) says what is missing.
 */
int vb_jit_create(struct vb_text *text, uint64_t limit, void *table, int64_t table_offset,
		  const struct vb_jit_hints *hints, const char **why);
void vb_jit_destroy(struct vb_text *text);

/* As vb_interp_run, or, if not exact, up to VB_CPU_EARLY instructions less; text->jit is set. */
enum vb_cpu_exit vb_jit_run(struct vb_cpu *cpu, uint64_t max, bool exact);
/* In a signal handler: if the fault is in translated code, make cpu->s exact and say true. */
bool vb_jit_fault(struct vb_cpu *cpu, void *context);

void vb_jit_stats(const struct vb_text *text, struct vb_dpa_text_stats *stats);
/* Append the translated functions to /tmp/perf-PID.map (perf.c); name(arg, pc) gives the symbol. */
void vb_jit_perf_map(const struct vb_text *text,
		     const char *(*name)(void *arg, uint64_t pc, uint64_t *offset), void *arg);
