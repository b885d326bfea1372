// SPDX-License-Identifier: MIT
/*
 * libdpa_stats beside a program whose DPA processes come and go all the time, each in the place of the one before:
 *
 *	samples    a sample is of the process that it is said to be of
 *	pairs      whoever has left an execution unit has got it before
 *	clock      cycles are right, though whoever reads the clocks loses its processor in between
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <dpa_stats.h>

#include "../programs/common.h"
#include "control/show/dpa.h"
#include "base/time.h"

enum { ROUNDS = 10000, LIVES_NS = 300000, SLICE_NS = 100000, ID_MASK = (1 << 20) - 1 };

static dpa_stats_handler_t *h;
static atomic_bool done;

/* A life of about as long as a reader takes, so that it ends anywhere in between. */
static uint64_t end_of_life(uint64_t *seed)
{
	return vb_machine_ns() + next_random(seed) % LIVES_NS;
}

/* --- samples ------------------------------------------------------------------------------------ */

/* Each process has one thread, of its own number, that leaves some samples. */
static void *leave_samples(void *arg)
{
	static const struct vb_shown_stamp stamp;
	struct vb_shown_process process;
	struct vb_shown_thread shown;
	struct vb_shown_slice slice = { 0 };
	uint64_t seed = 2, until;

	for (uint32_t n = 1; n <= ROUNDS / 2; n++) {
		vb_shown_process_begin(&process, "successor", "mlx5_0", n, false);
		vb_shown_thread_begin(&shown, &process, n, "thread");
		check(shown.request);
		slice.state = VB_MONITOR_ACTIVE | VB_MONITOR_TRACER;
		for (int i = 0; i < 200; i++)
			vb_shown_in(&shown, &slice, &stamp);
		until = end_of_life(&seed);
		while (vb_machine_ns() < until)
			;
		vb_shown_thread_end(&shown);
		vb_shown_process_end(&process);
	}
	atomic_store(&done, true);
	return NULL;
}

static void samples(void)
{
	unsigned int seen = 0, wrong = 0;
	dpa_stats_perf_event_list *list;
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, leave_samples, NULL), 0);
	while (!atomic_load(&done)) {
		if (dpa_stats_read_process_perf_event_list(h, DPA_STATS_ALL_PROCESSES,
							   DPA_STATS_ALL_THREADS, &list))
			continue;
		for (uint32_t i = 0; i < list->samples_num; i++) {
			const dpa_stats_perf_event_sample *s = &list->samples[i];

			wrong += (s->dpa_process_id & ID_MASK) != s->dpa_thread_id;
			seen++;
		}
		dpa_stats_free_perf_event_list(list);
	}
	pthread_join(thread, NULL);
	printf("%u samples, %u wrong\n", seen, wrong);
	check_eq(wrong, 0);
}

/* --- pairs -------------------------------------------------------------------------------------- */

static atomic_uint arrived;

/* The first slices of a process, in two threads at a time: one of them makes the buffer. */
static void *run_slices(void *arg)
{
	static const struct vb_shown_stamp stamp;
	struct vb_shown_thread *shown = arg;
	struct vb_shown_slice slice = { .eu = (uint16_t)shown->id };
	uint64_t until;

	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) < 2)
		sched_yield(); /* and no sleep: both begin at once */
	for (slice.id = 0; slice.id < 3; slice.id++) {
		slice.state = atomic_load(&shown->request->state);
		vb_shown_in(shown, &slice, &stamp);
		until = vb_machine_ns() + SLICE_NS;
		while (vb_machine_ns() < until)
			;
		vb_shown_out(shown, &slice, &stamp);
	}
	return NULL;
}

/* How many samples of leaving have none of getting before them. */
static unsigned int count_odd(void)
{
	bool in[2][3] = { 0 };
	dpa_stats_perf_event_list *list;
	unsigned int odd = 0;

	check_eq(dpa_stats_read_process_perf_event_list(h, DPA_STATS_ALL_PROCESSES,
							DPA_STATS_ALL_THREADS, &list),
		 0);
	for (uint32_t i = 0; i < list->samples_num; i++) {
		const dpa_stats_perf_event_sample *s = &list->samples[i];

		if (s->type == DPA_STATS_EVENT_SAMPLE_TYPE_SCHEDULE_IN)
			in[s->eu_id][s->sample_id_in_eu] = true;
		else
			odd += !in[s->eu_id][s->sample_id_in_eu];
	}
	dpa_stats_free_perf_event_list(list);
	return odd;
}

static void pairs(void)
{
	struct vb_shown_process process;
	struct vb_shown_thread shown[2];
	pthread_t thread[2];
	unsigned int odd = 0;

	for (uint32_t n = 1; n <= ROUNDS / 5; n++) {
		vb_shown_process_begin(&process, "pairs", "mlx5_0", n, false);
		check_eq(dpa_stats_set_counter_state(h, DPA_STATS_ALL_PROCESSES,
						     DPA_STATS_COUNTER_STATE_ACTIVE,
						     DPA_STATS_SAMPLE_TYPE_EVENT_TRACER),
			 0);
		atomic_store(&arrived, 0);
		for (uint32_t i = 0; i < 2; i++) {
			vb_shown_thread_begin(&shown[i], &process, i, "thread");
			check_eq(pthread_create(&thread[i], NULL, run_slices, &shown[i]), 0);
		}
		for (int i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		odd += count_odd();
		for (int i = 0; i < 2; i++)
			vb_shown_thread_end(&shown[i]);
		vb_shown_process_end(&process);
	}
	printf("%u samples without their partner\n", odd);
	check_eq(odd, 0);
}

/* --- clock -------------------------------------------------------------------------------------- */

static atomic_uint disturbed; /* 0: nobody sleeps */

/* In place of the C library's: some readers of the clock sleep before they have their answer. */
VB_PUBLIC int clock_gettime(clockid_t clock, struct timespec *now)
{
	const struct timespec nap = { .tv_nsec = 20000000 };
	int ret = (int)syscall(SYS_clock_gettime, clock, now);

	if (clock == CLOCK_MONOTONIC && atomic_load(&disturbed) &&
	    atomic_fetch_add(&disturbed, 1) % 3 == 0)
		nanosleep(&nap, NULL);
	return ret;
}

/* Ticks per ns: the shortest of many looks at both clocks, twice. */
static double true_rate(void)
{
	uint64_t ticks[2], ns[2];

	for (int i = 0; i < 2; i++) {
		uint64_t best = UINT64_MAX;

		for (int k = 0; k < 1000; k++) {
			uint64_t a = vb_machine_ns(), t = vb_ticks(), b = vb_machine_ns();

			if (b - a >= best)
				continue;
			best = b - a;
			ticks[i] = t;
			ns[i] = a;
		}
		if (!i)
			usleep(300000);
	}
	return (double)(ticks[1] - ticks[0]) / (double)(ns[1] - ns[0]);
}

/* A program of its own, in which each third call sleeps, from this one on. */
static int count_cycles(unsigned int first, double rate)
{
	const uint64_t counted = 1ull << 40;
	double wanted = (double)counted / rate * 1.8, got;
	struct ibv_context *ctx;
	dpa_stats_perf_cumul_list *list;
	struct vb_shown_process process;
	struct vb_shown_thread shown;
	struct vb_shown_counting counting;
	uint64_t state;

	atomic_store(&disturbed, first);
	ctx = device_open();
	h = dpa_stats_open("mlx5_0");
	vb_shown_process_begin(&process, "clock", "mlx5_0", 1, false);
	vb_shown_thread_begin(&shown, &process, 1, "thread");
	check_eq(dpa_stats_set_counter_state(h, DPA_STATS_ALL_PROCESSES,
					     DPA_STATS_COUNTER_STATE_ACTIVE,
					     DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT),
		 0);
	vb_shown_counting_begin(&counting, &shown);
	check(vb_shown_wanted(&counting, &state));
	vb_shown_begin(&counting, state);
	vb_shown_count(&counting, counted, 1, 1);
	check_eq(dpa_stats_read_process_cumul_info_list(h, DPA_STATS_ALL_PROCESSES,
							DPA_STATS_ALL_THREADS, &list),
		 0);
	check_eq(list->samples_num, 1);
	got = (double)list->samples[0].cycles;
	printf("%.0f cycles, not %.0f: %.2f %%\n", got, wanted, 100 * (got / wanted - 1));
	vb_shown_thread_end(&shown);
	vb_shown_process_end(&process);
	check_eq(ibv_close_device(ctx), 0);
	return got > 0.99 * wanted && got < 1.01 * wanted ? 0 : 1;
}

static void clock_is_right(void)
{
	double rate = true_rate();
	int status;
	pid_t pid;

	for (unsigned int first = 1; first <= 3; first++) {
		fflush(stdout);
		pid = fork();
		if (!pid)
			exit(count_cycles(first, rate));
		check(pid > 0 && waitpid(pid, &status, 0) == pid);
		check_eq(status, 0);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct ibv_context *ctx;

	if (!strcmp(what, "clock")) {
		clock_is_right();
		return 0;
	}
	ctx = device_open();
	h = dpa_stats_open("mlx5_0");
	check(ctx && h);
	if (!strcmp(what, "pairs"))
		pairs();
	else
		samples();
	dpa_stats_close(h);
	check_eq(ibv_close_device(ctx), 0);
	return 0;
}
