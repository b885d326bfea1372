// SPDX-License-Identifier: MIT
/*
 * How many frames a reflector turns around: device code (samples/l2-reflector) on one execution
 * unit and on many, beside a host loop over a RAW_PACKET queue pair; and that loop beside AF_PACKET
 * sockets on a veth pair.
 *
 *	this process: sender on mlx5_1 == cable == mlx5_0: reflector, a process of its own
 *
 * usage: reflect-bench [--quick] [--json] VERBATIM SAMPLE
 *
 * At most 64 frames are on their way. Repetitions of both sides take turns; each starts its
 * reflector anew. Besides the rate as a sender sees it there is the rate per core: frames for each
 * second of processor time that the reflector took.
 */
#include "reflect.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../tests/programs/common.h"

enum { REPEATS = 5, MAX_ARGS = 10 };

static bool quick, json, has_veth;
static char *verbatim, *sample;

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void die(const char *what)
{
	fprintf(stderr, "bench/frames: %s failed: %s\n", what, strerror(errno));
	exit(1);
}

void ready(const char *name)
{
	printf("%s\n", name);
	fflush(stdout);
}

void make_frame(uint8_t *f, uint32_t size, uint32_t flow)
{
	static const uint8_t start[] = { 0x02, 0x42, 0x7e, 0x7f, 0xeb, 0x03, 0x02, 0x00, 0xbe,
					 0x00, 0x00, 0x01, 0x08, 0x00, 0x45, 0,    0,    0,
					 0,    0,    0,    0,    64,   17,   0,    0,    10,
					 7,    0,    1,    10,   7,    0,    2 };

	memset(f, 0, size);
	memcpy(f, start, sizeof(start));
	f[16] = (uint8_t)((size - 14) >> 8);
	f[17] = (uint8_t)(size - 14);
	f[34] = 0x10;
	f[35] = (uint8_t)flow;
	f[37] = 7;
	f[38] = (uint8_t)((size - 34) >> 8);
	f[39] = (uint8_t)(size - 34);
}

void swap_macs(uint8_t *f)
{
	uint8_t mac[6];

	memcpy(mac, f, 6);
	memcpy(f, f + 6, 6);
	memcpy(f + 6, mac, 6);
}

/* ---- reflectors ---- */

struct child {
	pid_t pid;
	clockid_t clock;
	int fd;
};

static struct child start(char *const argv[])
{
	struct child c;
	int pipe_fd[2];
	char byte = 0;

	if (pipe(pipe_fd))
		die("pipe");
	c.pid = fork();
	if (c.pid < 0)
		die("fork");
	if (!c.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipe_fd[1], STDOUT_FILENO);
		close(pipe_fd[0]);
		close(pipe_fd[1]);
		execv(argv[0], argv);
		_exit(126);
	}
	close(pipe_fd[1]);
	c.fd = pipe_fd[0];
	while (byte != '\n')
		if (read(c.fd, &byte, 1) != 1)
			die("the reflector");
	if (clock_getcpuclockid(c.pid, &c.clock))
		die("clock_getcpuclockid");
	return c;
}

static void stop(struct child *c, int signal)
{
	int status;

	kill(c->pid, signal);
	waitpid(c->pid, &status, 0);
	close(c->fd);
}

static double cpu(const struct child *c)
{
	struct timespec t;

	clock_gettime(c->clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- the table ---- */

enum kind { DPA_ONE, DPA_MANY, HOST_LOOP, VETH };

struct result {
	double rate,
		core; /* thousands of frames in a second of time, of the reflector's processor time */
	uint64_t lost;
};

static struct result measure(enum kind kind, uint32_t size, uint64_t n)
{
	static char self[] = "/proc/self/exe", run[] = "run", dashes[] = "--", q[] = "-q",
		    one[] = "1", many[] = "8", host[] = "host", veth[] = "veth";
	char *const dpa_argv[] = { verbatim, run, dashes, sample, q, kind == DPA_ONE ? one : many,
				   NULL };
	char *const other_argv[] = { self, kind == VETH ? veth : host, NULL };
	const struct sender *sender = kind == VETH ? &veth_sender : &qp_sender;
	bool dpa = kind == DPA_ONE || kind == DPA_MANY;
	struct child child = start(dpa ? dpa_argv : other_argv);
	struct result r = { 0 };
	double begin, used;

	sender->open(size);
	sender->run(n / 10, &r.lost);
	used = cpu(&child);
	begin = now();
	sender->run(n, &r.lost);
	r.rate = (double)n / (now() - begin) * 1e6;
	r.core = (double)n / (cpu(&child) - used) * 1e6;
	sender->close();
	stop(&child, dpa ? SIGTERM : SIGKILL);
	return r;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), ascending);
	return v[n / 2];
}

static const struct row {
	const char *name;
	enum kind ours;
	const char *beside;
	enum kind theirs;
	uint32_t size;
	double aim; /* the ratio per core should be at least that; 0: none */
} rows[] = {
	{ "DPA, 1 EU, 64 B", DPA_ONE, "host loop", HOST_LOOP, 64, 0.5 },
	{ "DPA, 8 queues, 64 B", DPA_MANY, "host loop", HOST_LOOP, 64, 0.5 },
	{ "DPA, 1 EU, 1500 B", DPA_ONE, "host loop", HOST_LOOP, 1500, 0.5 },
	{ "host loop, 64 B", HOST_LOOP, "AF_PACKET, veth", VETH, 64, 0 },
	{ "host loop, 1500 B", HOST_LOOP, "AF_PACKET, veth", VETH, 1500, 0 },
};

static void print_row(const struct row *r, const double v[6], double spread, uint64_t lost)
{
	if (json) {
		printf("{\"name\": \"reflector: %s\", \"unit\": \"kframes/s\", \"value\": %.1f, \"spread_percent\": %.0f, "
		       "\"per_core\": %.1f, \"beside\": \"%s\", \"beside_value\": %.1f, \"beside_per_core\": %.1f, "
		       "\"ratio\": %.3f, \"ratio_per_core\": %.3f, \"lost\": %llu}\n",
		       r->name, v[0], spread, v[1], r->beside, v[2], v[3], v[4], v[5],
		       (unsigned long long)lost);
	} else {
		printf("%-20s %9.0f %5.0f %% %9.0f   %-16s %9.0f %9.0f   %6.2f %8.2f", r->name,
		       v[0], spread, v[1], r->beside, v[2], v[3], v[4], v[5]);
		if (r->aim > 0)
			printf("   >= %g %s", r->aim, v[5] >= r->aim ? "yes" : "NO");
		if (lost)
			printf("   %llu lost", (unsigned long long)lost);
		printf("\n");
	}
	fflush(stdout);
}

static void measure_row(const struct row *r)
{
	double v[6][REPEATS], m[6], spread;
	uint64_t n = quick ? 1000 : 200000, lost = 0;
	int repeats = quick ? 1 : REPEATS;

	if (r->theirs == VETH && !has_veth) {
		if (!json)
			printf("%-20s AF_PACKET over veth: not allowed here\n", r->name);
		return;
	}
	for (int i = 0; i < repeats; i++) {
		struct result ours = measure(r->ours, r->size, n),
			      theirs = measure(r->theirs, r->size, n);

		v[0][i] = ours.rate;
		v[1][i] = ours.core;
		v[2][i] = theirs.rate;
		v[3][i] = theirs.core;
		v[4][i] = ours.rate / theirs.rate;
		v[5][i] = ours.core / theirs.core;
		lost += ours.lost;
	}
	for (int i = 0; i < 6; i++)
		m[i] = median(v[i], repeats);
	spread = 100 * (v[0][repeats - 1] - v[0][0]) / m[0];
	print_row(r, m, spread, lost);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "host"))
		qp_reflect();
	if (argc == 2 && !strcmp(argv[1], "veth"))
		veth_reflect();
	for (; argc > 1 && argv[1][0] == '-'; argc--, argv++) {
		quick |= !strcmp(argv[1], "--quick");
		json |= !strcmp(argv[1], "--json");
	}
	if (argc != 3)
		return 2;
	verbatim = argv[1];
	sample = argv[2];
	/* A network of its own: nobody else is on the cable. */
	has_veth = enter_namespaces(CLONE_NEWNET) && veth_make();
	if (!json)
		printf("%-20s %9s %7s %9s   %-16s %9s %9s   %6s %8s\n", "reflector", "kframes/s",
		       "spread", "per core", "beside", "kframes/s", "per core", "ratio",
		       "per core");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		measure_row(&rows[i]);
	return 0;
}
