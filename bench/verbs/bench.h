/* SPDX-License-Identifier: MIT */
/*
 * What the measurements of bench/verbs share: time, repetitions, and how a row is printed.
 *
 * The program prints one line per measurement, fields separated by tabs, for the run script to make a table of:
 *
 *	name  place  bytes  unit  median  lowest  highest
 *
 * place: one (a single process, one thread) or two (two processes, pinned to cores 0 and 1) or limit.
 * unit: ns, ms, MiB (less is better), M/s, GB/s.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_REPEATS = 7, BENCH_MAX_BYTES = 16 << 20 };

struct bench {
	bool quick;  /* only prove that it runs */
	int repeats; /* 7; quick: 1 */
};

double bench_now(void); /* ns */
void bench_pin(int core);
/* Iterations for messages of that size, so that a repetition takes some 50 ms. */
uint64_t bench_iterations(const struct bench *bench, uint64_t bytes);
void bench_print(const char *name, const char *place, uint64_t bytes, const char *unit,
		 double *samples, int count);

/* The machine's limits: cache-line hop, memcpy, bare process_vm_writev. */
void bench_limits(const struct bench *bench);
/* mlx4 direct verbs beside verbs on the same adapter, and a bare SIGSEGV; x86-64 only. */
void bench_mlx4_limit(const struct bench *bench);
void bench_mlx4(const struct bench *bench);
/* The same with mlx5 queues that were made by command. */
void bench_mlx5(const struct bench *bench);
/* Memory that peers map beside memory that they do not, and what it costs the program; one sample of each. */
void bench_memory(const struct bench *bench);
/* A child of bench_memory(): registers a buffer for each message. */
int bench_memory_child(void);
/* A child of bench_limits(): owns the memory that process_vm_writev goes to. */
int bench_limits_child(void);
