// SPDX-License-Identifier: MIT
/*
 * bench-dpa: how fast device programs run, as one table.
 *
 * Every kernel natively (gcc -O2), on our translator and interpreter, and on qemu-riscv64 (the same
 * RISC-V file), interleaved in one run. Medians of CPU time; ratios against native of the same run.
 * Below it what the engine itself costs.
 */
#include "bench.h"

#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What engines are compared by, then what device programs do. */
static const char *const kernel_name[] = { "coremark", "sha256",     "memcpy",  "chase",
					   "packet",   "multiply",   "branchy", "recursion",
					   "indirect", "crc",        "rewrite", "lookup",
					   "keyvalue", "congestion", "cqe" };
enum { KERNELS = sizeof(kernel_name) / sizeof(kernel_name[0]) };

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(const double *v, unsigned n)
{
	double s[MAX_REPS];

	memcpy(s, v, n * sizeof(*s));
	qsort(s, n, sizeof(*s), ascending);
	return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

double smallest(const double *v, unsigned n)
{
	double lo = v[0];

	for (unsigned i = 1; i < n; i++)
		lo = v[i] < lo ? v[i] : lo;
	return lo;
}

double spread(const double *v, unsigned n)
{
	double lo = smallest(v, n), hi = v[0];

	for (unsigned i = 1; i < n; i++)
		hi = v[i] > hi ? v[i] : hi;
	return 100 * (hi - lo) / median(v, n);
}

struct row {
	double ms, ratio[ENGINES], spread[ENGINES];
};

/* Ratios are taken within a repetition, where both runs met the same machine, and then the median
 * of those. Two translators differ by less than a busy machine does: there the smallest times. */
static void fill(const struct options *o, const struct kernel_result *r, struct row *row)
{
	double ratio[MAX_REPS];

	row->ms = median(r->seconds[NATIVE], o->reps) * 1e3;
	for (int e = 0; e < ENGINES; e++) {
		if (!engine_runs(o, (enum engine)e))
			continue;
		for (unsigned rep = 0; rep < o->reps; rep++)
			ratio[rep] = r->seconds[e][rep] / r->seconds[NATIVE][rep];
		row->ratio[e] = o->against ? smallest(r->seconds[e], o->reps) /
						     smallest(r->seconds[NATIVE], o->reps)
					   : median(ratio, o->reps);
		row->spread[e] = row->ratio[e] > 0
					 ? spread(e == NATIVE ? r->seconds[e] : ratio, o->reps)
					 : 0;
	}
}

static void print_row(const char *name, const struct row *w, bool qemu)
{
	char times[32];

	printf("%-11s", name);
	if (w->ms > 0)
		printf(" %7.1f ms", w->ms);
	else
		printf(" %10s", "");
	printf(" %6.2f", w->ratio[JIT]);
	printf(" %7.1f", w->ratio[INTERP]);
	if (qemu)
		printf(" %6.2f %8.2f", w->ratio[QEMU], w->ratio[QEMU] / w->ratio[JIT]);
	else
		printf(" %6s %8s", "-", "-");
	if (w->ms > 0) {
		snprintf(times, sizeof(times), "%.0f/%.0f/%.0f/%.0f", w->spread[NATIVE],
			 w->spread[JIT], w->spread[INTERP], w->spread[QEMU]);
		printf("   %s", times);
	}
	putchar('\n');
}

static void print_against(const struct options *o, const struct row *row, const struct row *mean)
{
	printf("DPA translator: slowdown against native gcc -O2 (CPU time, smallest of %u, interleaved)\n\n",
	       o->reps);
	printf("%-11s %6s %6s   %s\n", "kernel", "other", "this", "gain %");
	for (int k = 0; k <= KERNELS; k++) {
		const struct row *w = k < KERNELS ? &row[k] : mean;

		printf("%-11s %6.2f %6.2f %8.1f\n", k < KERNELS ? kernel_name[k] : "geom. mean",
		       w->ratio[OTHER], w->ratio[JIT], 100 * (w->ratio[OTHER] / w->ratio[JIT] - 1));
	}
}

static void print_checked(const struct options *o, const struct row *row, const struct row *mean)
{
	static const enum engine shown[] = { INTERP, OBSERVED, HEAP, UNINIT };

	printf("DPA checked mode: slowdown against our translator (CPU time, median of %u, interleaved)%s\n\n",
	       o->reps, o->quick ? "; quick: the numbers mean nothing" : "");
	printf("%-11s %12s %12s %12s %12s\n", "kernel", "interpreter", "observed", "heap",
	       "heap,uninit");
	for (int k = 0; k <= KERNELS; k++) {
		const struct row *w = k < KERNELS ? &row[k] : mean;

		printf("%-11s", k < KERNELS ? kernel_name[k] : "geom. mean");
		for (int i = 0; i < 4; i++)
			printf(" %12.1f", w->ratio[shown[i]] / w->ratio[JIT]);
		putchar('\n');
	}
}

static void print(const struct options *o, const struct row *row, const struct row *mean,
		  const struct costs *c)
{
	printf("DPA engine: slowdown against native gcc -O2 (CPU time, median of %u, interleaved)%s\n\n",
	       o->reps, o->quick ? "; quick: the numbers mean nothing" : "");
	printf("%-11s %10s %6s %7s %6s %8s   %s\n", "kernel", "native", "jit", "interp", "qemu",
	       "qemu/jit", "spread % (native/jit/interp/qemu)");
	for (int k = 0; k < KERNELS; k++)
		print_row(kernel_name[k], &row[k], o->qemu);
	print_row("geom. mean", mean, o->qemu);
	printf("\ntranslation   %.2f ms per 100 KB of text (smallest of many; %.0f KB in %.2f ms; host code %.1fx)\n",
	       c->translate_ms_per_100k, c->text_kib, c->translate_ms, c->code_ratio);
	printf("its check     %.2f ms per 100 KB of text, %.2f ms for one instruction (aims: 4 and 0.5)\n",
	       c->verify_ms_per_100k, c->verify_ms);
	printf("thread switch %.0f ns preempted, %.0f ns by yield; call of a function from the host %.0f ns\n",
	       c->preempt_ns, c->yield_ns, c->call_ns);
	printf("atomics       %.0f ns for lr.d, sc.d and amoor.d\n", c->atomics_ns);
}

static int write_json(const struct options *o, const struct row *row, const struct row *mean,
		      const struct costs *c)
{
	FILE *f = fopen(o->json, "w");

	if (!f) {
		perror(o->json);
		return 1;
	}
	fprintf(f, "[");
	for (int k = 0; k <= KERNELS; k++) {
		const struct row *w = k < KERNELS ? &row[k] : mean;

		fprintf(f, "{\"name\": \"%s\", \"unit\": \"x native\", \"native_ms\": %.3f",
			k < KERNELS ? kernel_name[k] : "geometric mean", w->ms);
		for (int e = JIT; e < ENGINES; e++)
			if (w->ratio[e] > 0)
				fprintf(f, ", \"%s\": %.4f", engine_name[e], w->ratio[e]);
		fprintf(f, ", \"jit_spread_percent\": %.2f},\n ", w->spread[JIT]);
	}
	fprintf(f, "{\"name\": \"translation\", \"unit\": \"ms per 100 KB\", \"value\": %.4f},\n ",
		c->translate_ms_per_100k);
	fprintf(f,
		"{\"name\": \"check of a translation\", \"unit\": \"ms per 100 KB\", \"value\": %.4f},\n ",
		c->verify_ms_per_100k);
	fprintf(f,
		"{\"name\": \"check of one instruction\", \"unit\": \"ms\", \"value\": %.4f},\n ",
		c->verify_ms);
	fprintf(f, "{\"name\": \"preempted thread switch\", \"unit\": \"ns\", \"value\": %.1f},\n ",
		c->preempt_ns);
	fprintf(f, "{\"name\": \"thread switch by yield\", \"unit\": \"ns\", \"value\": %.1f},\n ",
		c->yield_ns);
	fprintf(f, "{\"name\": \"call from the host\", \"unit\": \"ns\", \"value\": %.1f},\n ",
		c->call_ns);
	fprintf(f, "{\"name\": \"lr.d, sc.d and amoor.d\", \"unit\": \"ns\", \"value\": %.1f}]\n",
		c->atomics_ns);
	return fclose(f) ? 1 : 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'f':
		o->files = arg;
		return 0;
	case 'r':
		o->dpa_run = arg;
		return 0;
	case 'Q':
		o->qemu = strcmp(arg, "-") ? arg : NULL;
		return 0;
	case 'j':
		o->json = arg;
		return 0;
	case 'a':
		o->against = arg;
		return 0;
	case 'c':
		o->checked = true;
		o->target = 0.02;
		return 0;
	case 'n':
		o->reps = (unsigned)atoi(arg);
		return o->reps >= 1 && o->reps <= MAX_REPS ? 0 : EINVAL;
	case 'q':
		o->quick = true;
		o->reps = 3;
		o->target = 0.004;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option option[] = {
	{ "files", 'f', "DIR", 0, "folder of the compiled kernels", 0 },
	{ "run", 'r', "PATH", 0, "verbatim-dpa-run", 0 },
	{ "qemu", 'Q', "PATH", 0, "qemu-riscv64, or - to leave it out", 0 },
	{ "json", 'j', "FILE", 0, "also write the rows as JSON", 0 },
	{ "against", 'a', "PATH", 0,
	  "another build's verbatim-dpa-run: compare its translator with this one, nothing else",
	  0 },
	{ "checked", 'c', NULL, 0, "what checked mode costs, nothing else", 0 },
	{ "reps", 'n', "N", 0, "repetitions (7)", 0 },
	{ "quick", 'q', NULL, 0, "only prove that it runs", 0 },
	{ 0 },
};

int main(int argc, char **argv)
{
	struct options o = { .reps = 7,
			     .target = 0.06,
			     .dpa_run = "verbatim-dpa-run",
			     .qemu = "qemu-riscv64",
			     .files = "." };
	const struct argp argp = { .options = option,
				   .parser = parse,
				   .doc = "Measure the DPA's engine." };
	static struct kernel_result result[KERNELS];
	struct row row[KERNELS] = { 0 }, mean = { 0 };
	struct costs costs;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	for (int k = 0; k < KERNELS; k++)
		result[k].name = kernel_name[k];
	if (engines_run(&o, result, KERNELS) ||
	    (!o.against && !o.checked && costs_measure(&o, &costs)))
		return 1;
	for (int k = 0; k < KERNELS; k++)
		fill(&o, &result[k], &row[k]);
	for (int e = 0; e < ENGINES; e++) {
		for (int k = 0; k < KERNELS; k++)
			mean.ratio[e] += log(row[k].ratio[e] > 0 ? row[k].ratio[e] : 1) / KERNELS;
		mean.ratio[e] = exp(mean.ratio[e]);
	}
	if (o.against) {
		print_against(&o, row, &mean);
		return 0;
	}
	if (o.checked) {
		print_checked(&o, row, &mean);
		return 0;
	}
	print(&o, row, &mean, &costs);
	return o.json ? write_json(&o, row, &mean, &costs) : 0;
}
