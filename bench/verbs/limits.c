// SPDX-License-Identifier: MIT
/*
 * What the machine can do at best, measured in the same run: a cache line handed from core to core, memcpy, and
 * process_vm_writev into another process, each with the sizes of the verbs measurements.
 */
#include "bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "../../tests/programs/common.h"

static const uint64_t sizes[] = { 4096, 65536, 1 << 20, 16 << 20 };

double bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

void bench_pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	/* With one core, or a smaller set of them, the numbers are what they are. */
	sched_setaffinity(0, sizeof(set), &set);
}

uint64_t bench_iterations(const struct bench *bench, uint64_t bytes)
{
	uint64_t n;

	if (bench->quick)
		return bytes > 65536 ? 4 : 100;
	if (bytes <= 64)
		return 50000;
	n = (512ull << 20) / bytes;
	return n > 50000 ? 50000 : n < 32 ? 32 : n;
}

static int compare(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;

	return a < b ? -1 : a > b;
}

void bench_print(const char *name, const char *place, uint64_t bytes, const char *unit,
		 double *samples, int count)
{
	qsort(samples, (size_t)count, sizeof(samples[0]), compare);
	printf("%s\t%s\t%llu\t%s\t%.4g\t%.4g\t%.4g\n", name, place, (unsigned long long)bytes, unit,
	       samples[count / 2], samples[0], samples[count - 1]);
	fflush(stdout);
}

/* One cache line that goes to and fro; each side waits for its turn. */
static _Alignas(64) atomic_uint ball;
static uint64_t hops;

static void *hop_partner(void *arg)
{
	(void)arg;
	bench_pin(1);
	for (unsigned int i = 0; i < hops; i++) {
		while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + 1)
			;
		atomic_store_explicit(&ball, 2 * i + 2, memory_order_release);
	}
	return NULL;
}

static void measure_hop(const struct bench *bench)
{
	double samples[BENCH_REPEATS], start;
	pthread_t thread;

	hops = bench->quick ? 1000 : 500000;
	for (int r = 0; r < bench->repeats; r++) {
		ball = 0;
		pthread_create(&thread, NULL, hop_partner, NULL);
		start = 0;
		for (unsigned int i = 0; i < hops; i++) {
			/* The first round waits for the thread to start and does not count. */
			if (i == 1)
				start = bench_now();
			atomic_store_explicit(&ball, 2 * i + 1, memory_order_release);
			while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + 2)
				;
		}
		samples[r] = (bench_now() - start) / (double)(2 * (hops - 1));
		pthread_join(thread, NULL);
	}
	bench_print("hop", "limit", 64, "ns", samples, bench->repeats);
}

static void *fresh(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(p != MAP_FAILED, "mmap");
	memset(p, 1, bytes);
	return p;
}

static void measure_memcpy(const struct bench *bench)
{
	uint8_t *from = fresh(BENCH_MAX_BYTES), *to = fresh(BENCH_MAX_BYTES);
	double samples[BENCH_REPEATS], start;

	for (int s = 0; s < 4; s++) {
		uint64_t n = bench_iterations(bench, sizes[s]);

		for (int r = 0; r < bench->repeats; r++) {
			start = bench_now();
			for (uint64_t i = 0; i < n; i++) {
				memcpy(to, from, sizes[s]);
				/* Keeps the compiler from seeing that the same bytes are copied again. */
				__asm__ volatile("" ::"r"(to), "r"(from) : "memory");
			}
			samples[r] = (double)(n * sizes[s]) / (bench_now() - start);
		}
		bench_print("memcpy", "limit", sizes[s], "GB/s", samples, bench->repeats);
	}
	munmap(from, BENCH_MAX_BYTES);
	munmap(to, BENCH_MAX_BYTES);
}

int bench_limits_child(void)
{
	uint64_t addr;
	char end;

	bench_pin(1);
	addr = (uintptr_t)fresh(BENCH_MAX_BYTES);
	msg_send(ROLE_FD, &addr, sizeof(addr));
	msg_recv(ROLE_FD, &end, 1);
	return 0;
}

/* ns per call. */
static double vm_writev(pid_t pid, uint8_t *from, uint64_t to, uint64_t bytes, uint64_t n)
{
	struct iovec local = { from, bytes }, remote = { (void *)(uintptr_t)to, bytes };
	double start = bench_now();

	for (uint64_t i = 0; i < n; i++)
		check(process_vm_writev(pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes,
		      "process_vm_writev");
	return (bench_now() - start) / (double)n;
}

static void measure_vm_writev(const struct bench *bench)
{
	uint8_t *from = fresh(BENCH_MAX_BYTES);
	double samples[BENCH_REPEATS];
	uint64_t to;
	pid_t pid;
	int fd;

	pid = spawn_self("limits", &fd);
	msg_recv(fd, &to, sizeof(to));
	for (int r = 0; r < bench->repeats; r++)
		samples[r] = vm_writev(pid, from, to, 8, bench_iterations(bench, 8));
	bench_print("vm_writev", "limit", 8, "ns", samples, bench->repeats);
	for (int s = 0; s < 4; s++) {
		for (int r = 0; r < bench->repeats; r++)
			samples[r] =
				(double)sizes[s] / vm_writev(pid, from, to, sizes[s],
							     bench_iterations(bench, sizes[s]));
		bench_print("vm_writev", "limit", sizes[s], "GB/s", samples, bench->repeats);
	}
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	munmap(from, BENCH_MAX_BYTES);
}

void bench_limits(const struct bench *bench)
{
	measure_hop(bench);
	measure_memcpy(bench);
	measure_vm_writev(bench);
}
