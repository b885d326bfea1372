// SPDX-License-Identifier: MIT
/*
 * The FlexIO benchmark, as one table: what a call, a trigger, a copy, a message and an allocation cost, each beside what
 * the machine itself needs for the like, measured in turn with it in the same run.
 *
 *	call              the calling thread lends itself         beside: a bare hand-over between two threads and back
 *	call, other       an EU's host thread runs it             beside: the same
 *	trigger           one device thread wakes another         beside: half of that hand-over
 *	event             until the handler it wakes begins       beside: a cache-line hop, or a futex wake-up (events.c)
 *	RDMA write        by device code                          beside: by a host loop (rate.c)
 *	counted, traced   dpa-statistics is at work               beside: it is not (watched.c)
 *	recorded          verbatim trace records the timeline     beside: it does not (watched.c)
 *
 * Run by ./run, which builds it as a user would and starts it twice: with lending, and without.
 */
#include <argp.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "shared.h"

extern struct flexio_app *bench_app;
extern flexio_func_t empty, print_many, trace_many, relay, kick;

enum { MAX_REPS = 31, COPY_MAX = 1 << 20 };

struct options {
	unsigned int reps;
	bool quick, json, other;
	const char *only;    /* rows whose name has this; NULL: all */
	unsigned long plain; /* only make so many calls, and print what they took */
};

static struct options o = { .reps = 7 };
struct flexio_process *process;
struct ibv_context *bench_ctx;
static flexio_uintptr_t buffer;
static char *host_from, *host_to;

static void die(const char *what)
{
	fprintf(stderr, "bench-flexio: %s failed\n", what);
	exit(1);
}

#define CHECK(expr)                 \
	do {                        \
		if (expr)           \
			die(#expr); \
	} while (0)

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static FILE *null;

/* ---- what is measured: nanoseconds for n times ---- */

static double calls(unsigned long n, size_t unused)
{
	double start = now();
	uint64_t result;

	(void)unused;
	for (unsigned long i = 0; i < n; i++)
		CHECK(flexio_process_call(process, empty, &result, (uint64_t)i));
	return now() - start;
}

static double triggers(unsigned long n, size_t unused)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = relay };
	struct flexio_event_handler *h[2];
	struct flexio_mem to = { FLEXIO_MEMTYPE_HOST, { 0 } }, from = { FLEXIO_MEMTYPE_DPA, { 0 } };
	flexio_uintptr_t d[2];
	struct relay data[2] = { { .left = n / 2 }, { .left = n / 2 } };
	uint64_t done = 0;
	double start, end;

	(void)unused;
	for (int i = 0; i < 2; i++)
		CHECK(flexio_event_handler_create(process, &attr, &h[i]));
	for (int i = 0; i < 2; i++) {
		data[i].next = flexio_event_handler_get_activation_id(h[1 - i]);
		CHECK(flexio_copy_from_host(process, &data[i], sizeof(data[i]), &d[i]));
		CHECK(flexio_event_handler_run(h[i], d[i]));
	}
	to.haddr = (uintptr_t)&done;
	from.daddr = d[0] + offsetof(struct relay, done);
	start = now();
	CHECK(flexio_process_call(process, kick, NULL,
				  flexio_event_handler_get_activation_id(h[0])));
	while (!done) {
		usleep(50);
		CHECK(flexio_memcpy(process, &to, &from, sizeof(done)));
	}
	end = now();
	for (int i = 0; i < 2; i++) {
		CHECK(flexio_event_handler_destroy(h[i]));
		CHECK(flexio_buf_dev_free(process, d[i]));
	}
	return end - start;
}

static double copies(unsigned long n, size_t size)
{
	double start = now();

	for (unsigned long i = 0; i < n; i++)
		CHECK(flexio_host2dev_memcpy(process, host_from, size, buffer));
	return now() - start;
}

static double messages(unsigned long n, size_t unused)
{
	double start = now();

	(void)unused;
	CHECK(flexio_process_call(process, print_many, NULL, (uint64_t)n));
	return now() - start;
}

/* How long device code takes: most messages are overwritten before the host formats them. */
static double traces(unsigned long n, size_t transport)
{
	char *const formats[] = { "message %lu of %lu\n", NULL };
	flexio_msg_stream_attr_t attr = { .data_bsize = 65536,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_TRACER,
					  .level = FLEXIO_MSG_DEV_INFO,
					  .tracer_mode = (enum flexio_msg_transport)transport,
					  .tracer_msg_formats = formats };
	struct flexio_msg_stream *stream;
	double start, end;

	CHECK(flexio_msg_stream_create(process, &attr, null, NULL, &stream));
	start = now();
	CHECK(flexio_process_call(process, trace_many, NULL,
				  (uint64_t)flexio_msg_stream_get_id(stream), (uint64_t)n));
	end = now();
	CHECK(flexio_msg_stream_destroy(stream));
	return end - start;
}

static double allocations(unsigned long n, size_t size)
{
	flexio_uintptr_t a[16];
	double start = now();

	for (unsigned long i = 0; i < n; i += 16) {
		for (int k = 0; k < 16; k++)
			CHECK(flexio_buf_dev_alloc(process, size, &a[k]));
		for (int k = 0; k < 16; k++)
			CHECK(flexio_buf_dev_free(process, a[k]));
	}
	return now() - start;
}

/* ---- what stands beside it ---- */

static atomic_uint turn;

static void wait_turn(unsigned int mine)
{
	unsigned int seen;

	while ((seen = atomic_load(&turn)) % 2 != mine)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void pass_turn(void)
{
	atomic_fetch_add(&turn, 1);
	syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *hand_back(void *arg)
{
	for (unsigned long i = 0; i < *(unsigned long *)arg; i++) {
		wait_turn(1);
		pass_turn();
	}
	return NULL;
}

/* To another thread and back, both sleeping in a futex. */
static double hand_overs(unsigned long n, size_t half)
{
	pthread_t thread;
	double start, end;

	atomic_store(&turn, 0);
	CHECK(pthread_create(&thread, NULL, hand_back, &n));
	start = now();
	for (unsigned long i = 0; i < n; i++) {
		pass_turn();
		wait_turn(0);
	}
	end = now();
	pthread_join(thread, NULL);
	return half ? (end - start) / 2 : end - start;
}

static double plain_copies(unsigned long n, size_t size)
{
	double start = now();

	for (unsigned long i = 0; i < n; i++) {
		memcpy(host_to, host_from, size);
		__asm__ volatile("" ::"r"(host_to) : "memory");
	}
	return now() - start;
}

static double plain_messages(unsigned long n, size_t unused)
{
	double start = now();

	(void)unused;
	for (unsigned long i = 0; i < n; i++)
		fprintf(null, "/%3u/message %lu of the benchmark\n", 1U, i);
	fflush(null);
	return now() - start;
}

static double plain_allocations(unsigned long n, size_t size)
{
	void *a[16];
	double start = now();

	for (unsigned long i = 0; i < n; i += 16) {
		for (int k = 0; k < 16; k++)
			__asm__ volatile("" ::"r"(a[k] = malloc(size)) : "memory");
		for (int k = 0; k < 16; k++)
			free(a[k]);
	}
	return now() - start;
}

/* ---- the table ---- */

static const struct row {
	const char *name;
	measure *ours;
	const char *beside;
	measure *theirs;
	size_t arg, their_arg;
	unsigned long n;
	bool other_only, lent_only;
	double aim; /* the ratio should be at most that; 0: none */
} rows[] = {
	{ "call, lent thread", calls, "futex hand-over and back", hand_overs, 0, 0, 20000, false,
	  true, 0 },
	{ "call, another thread", calls, "futex hand-over and back", hand_overs, 0, 0, 20000, true,
	  false, 1.2 },
	{ "trigger of a handler", triggers, "futex hand-over", hand_overs, 0, 1, 20000, false, true,
	  0 },
	{ "event, EU awake", events_activated, "cache-line hop", events_hop, 3000, 3000, 4000,
	  false, true, 3 },
	{ "event, EU asleep", events_activated, "futex wake-up", events_futex, 300000, 300000, 1000,
	  false, true, 1.2 },
	{ "event of a CQE, EU awake", events_completed, "cache-line hop", events_hop, 3000, 3000,
	  4000, false, true, 3 },
	{ "event of a CQE, asleep", events_completed, "futex wake-up", events_futex, 300000, 300000,
	  1000, false, true, 1.2 },
	{ "call, counted", watched_counters, "counters off", watched_off, 0, 0, 100000, false, true,
	  0 },
	{ "CQE and write, counted", watched_counters, "counters off", watched_off, WATCHED_SERVE,
	  WATCHED_SERVE, 100000, false, true, 1.02 },
	{ "call of 5 us, counted", watched_counters, "counters off", watched_off, 3000, 3000, 20000,
	  false, true, 1.02 },
	{ "call, traced", watched_tracer, "tracer off", watched_untraced, 0, 0, 100000, false, true,
	  0 },
	{ "CQE and write, traced", watched_tracer, "tracer off", watched_untraced, WATCHED_SERVE,
	  WATCHED_SERVE, 100000, false, true, 0 },
	{ "call of 5 us, traced", watched_tracer, "tracer off", watched_untraced, 3000, 3000, 20000,
	  false, true, 1.02 },
	{ "call, recorded", recorded_on, "not recorded", recorded_off, 0, 0, 100000, false, true,
	  0 },
	{ "RDMA write, 1 EU", rate_device, "host loop", rate_host, 1, 1, 200000, false, true, 2 },
	{ "RDMA write, 1 EU, by 16", rate_device, "host loop", rate_host, 16, 16, 400000, false,
	  true, 2 },
	{ "RDMA write, many EUs", rate_device, "host loop, as many", rate_host, RATE_ALL | 1,
	  RATE_ALL | 1, 200000, false, true, 2 },
	{ "copy to device, 64 B", copies, "memcpy", plain_copies, 64, 64, 200000, false, true, 0 },
	{ "copy to device, 4 KiB", copies, "memcpy", plain_copies, 4096, 4096, 100000, false, true,
	  0 },
	{ "copy to device, 1 MiB", copies, "memcpy", plain_copies, COPY_MAX, COPY_MAX, 500, false,
	  true, 0 },
	{ "message, sync stream", messages, "fprintf", plain_messages, 0, 0, 20000, false, true,
	  0 },
	{ "trace, over a QP", traces, "fprintf", plain_messages, FLEXIO_TRACER_TRANSPORT_QP, 0,
	  20000, false, true, 0 },
	{ "trace, over a window", traces, "fprintf", plain_messages, FLEXIO_TRACER_TRANSPORT_WINDOW,
	  0, 20000, false, true, 0 },
	{ "buffer alloc and free", allocations, "malloc and free", plain_allocations, 256, 256,
	  100000, false, true, 0 },
};

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), ascending);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void measure_row(const struct row *r)
{
	unsigned long n = o.quick ? r->n / 100 / 16 * 16 + 16 : r->n;
	double ours[MAX_REPS], theirs[MAX_REPS], ratio[MAX_REPS], a, b, c;

	r->ours(n, r->arg); /* once, so that all is there */
	for (unsigned int i = 0; i < o.reps; i++) {
		ours[i] = r->ours(n, r->arg) / (double)n;
		theirs[i] = r->theirs(n, r->their_arg) / (double)n;
		ratio[i] = ours[i] / theirs[i];
	}
	a = median(ours, o.reps);
	b = median(theirs, o.reps);
	c = median(ratio, o.reps);
	if (o.json)
		printf("{\"name\": \"%s\", \"unit\": \"ns\", \"value\": %.1f, \"spread_percent\": %.0f, "
		       "\"beside\": \"%s\", \"beside_ns\": %.1f, \"ratio\": %.3f, \"aim\": %g}\n",
		       r->name, a, 100 * (ours[o.reps - 1] - ours[0]) / a, r->beside, b, c, r->aim);
	else
		printf("%-24s %10.1f ns %5.0f %%   %-26s %10.1f ns %9.3f", r->name, a,
		       100 * (ours[o.reps - 1] - ours[0]) / a, r->beside, b, c);
	if (!o.json && r->aim > 0)
		printf("   <= %g %s", r->aim, c <= r->aim ? "yes" : "NO");
	if (!o.json)
		printf("\n");
	fflush(stdout);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'q':
		o.quick = true;
		o.reps = 3;
		return 0;
	case 'j':
		o.json = true;
		return 0;
	case 'o':
		o.other = true;
		return 0;
	case 'r':
		o.only = arg;
		return 0;
	case 'p':
		o.plain = strtoul(arg, NULL, 10);
		return 0;
	case 'n':
		o.reps = (unsigned int)atoi(arg);
		if (o.reps < 1 || o.reps > MAX_REPS)
			argp_error(state, "repetitions: 1 to %d", MAX_REPS);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option option[] = {
	{ "quick", 'q', NULL, 0, "only prove that it runs", 0 },
	{ "json", 'j', NULL, 0, "print the rows as JSON, one a line", 0 },
	{ "other", 'o', NULL, 0, "only the rows without lending (VERBATIM_RPC_LEND=off)", 0 },
	{ "reps", 'n', "N", 0, "repetitions (7)", 0 },
	{ "rows", 'r', "TEXT", 0, "only rows whose name has TEXT in it", 0 },
	{ "plain", 'p', "N", OPTION_HIDDEN, NULL, 0 },
	{ 0 },
};

int main(int argc, char **argv)
{
	const struct argp argp = { .options = option,
				   .parser = parse,
				   .doc = "Measure libflexio." };
	flexio_msg_stream_attr_t attr = { .data_bsize = 65536, .level = FLEXIO_MSG_DEV_INFO };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct flexio_msg_stream *stream;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	bench_ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	CHECK(!bench_ctx);
	null = fopen("/dev/null", "w");
	host_from = malloc(COPY_MAX);
	host_to = malloc(COPY_MAX);
	CHECK(!null || !host_from || !host_to);
	memset(host_from, 1, COPY_MAX);
	memset(host_to, 2, COPY_MAX);
	CHECK(flexio_process_create(bench_ctx, bench_app, NULL, &process));
	CHECK(flexio_msg_stream_create(process, &attr, null, NULL, &stream));
	CHECK(flexio_buf_dev_alloc(process, COPY_MAX, &buffer));
	CHECK(flexio_buf_dev_memset(process, 3, COPY_MAX, buffer));
	if (o.plain)
		printf("%.0f\n", watched_plain(o.plain, 0));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && !o.plain; i++)
		if ((o.other ? rows[i].other_only : rows[i].lent_only) &&
		    (!o.only || strstr(rows[i].name, o.only)))
			measure_row(&rows[i]);
	events_end();
	rate_end();
	CHECK(flexio_process_destroy(process));
	ibv_close_device(bench_ctx);
	ibv_free_device_list(list);
	return 0;
}
