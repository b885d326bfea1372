/* SPDX-License-Identifier: MIT */
/* The parts of bench-dpa: kernels on the engines (engines.c), the engine's own costs (costs.c),
 * the table (main.c). */
#ifndef BENCH_DPA_H
#define BENCH_DPA_H

#include <stdbool.h>
#include <stdint.h>

enum engine { NATIVE, JIT, INTERP, QEMU, OTHER, OBSERVED, HEAP, UNINIT, ENGINES };

enum { MAX_REPS = 31 };

extern const char *const engine_name[ENGINES];

struct options {
	const char *files; /* folder with NAME.native and NAME.elf for each kernel, and bulk.elf */
	const char *dpa_run, *qemu, *json;
	const char *against; /* another verbatim-dpa-run: compare translators, nothing else */
	bool checked;        /* the translator, the interpreter and checked mode, nothing else */
	unsigned reps;
	double target; /* CPU seconds of one native run */
	bool quick;
};

/* CPU seconds of a kernel, per engine and repetition, without starting and loading. */
struct kernel_result {
	const char *name;
	uint64_t rounds;
	double seconds[ENGINES][MAX_REPS];
};

/* Is this engine part of the run? */
bool engine_runs(const struct options *o, enum engine e);
/* Run all kernels on all engines, interleaved. 0, or 1 after saying what went wrong. */
int engines_run(const struct options *o, struct kernel_result *results, unsigned count);

struct costs {
	double text_kib, translate_ms, translate_ms_per_100k, verify_ms_per_100k, code_ratio;
	double verify_ms; /* of a text of one instruction */
	double preempt_ns, yield_ns, call_ns, atomics_ns;
};

/* Translation of a large program, and what changing threads costs; medians. */
int costs_measure(const struct options *o, struct costs *c);

double median(const double *v, unsigned n);
double smallest(const double *v, unsigned n);
/* (largest - smallest) / median, in percent */
double spread(const double *v, unsigned n);

#endif
