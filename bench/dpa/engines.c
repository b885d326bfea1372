// SPDX-License-Identifier: MIT
/*
 * Kernels on the engines, each as its own process, measured by the CPU time the kernel accounts to
 * it.
 *
 * The same C source is compiled natively and for RISC-V; the number of rounds is patched into a
 * copy of each file. What starting costs (loading, translating, linking) is measured with zero
 * rounds and taken off. All engines must print the same checksum.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const char *const engine_name[ENGINES] = { "native", "jit",      "interp", "qemu",
					   "other",  "observed", "heap",   "heap,uninit" };

bool engine_runs(const struct options *o, enum engine e)
{
	switch (e) {
	case INTERP:
		return !o->against;
	case QEMU:
		return o->qemu && !o->against && !o->checked;
	case OTHER:
		return o->against;
	case OBSERVED:
	case HEAP:
	case UNINIT:
		return o->checked;
	default:
		return true;
	}
}

struct job {
	const struct options *o;
	char dir[64]; /* scratch */
};

static uint8_t *read_file(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p = NULL;
	long n;

	if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0) {
		fprintf(stderr, "bench-dpa: %s: %s\n", path, strerror(errno));
		goto out;
	}
	rewind(f);
	p = malloc((size_t)n + 1);
	if (fread(p, 1, (size_t)n, f) != (size_t)n) {
		free(p);
		p = NULL;
	}
	*size = (size_t)n;
out:
	if (f)
		fclose(f);
	return p;
}

/* Copy DIR/NAME.SUFFIX with its number of rounds set. */
static int patched_copy(const struct job *j, const char *name, const char *suffix, uint64_t rounds,
			const char *to)
{
	char path[512];
	size_t size;
	uint8_t *p, *at;
	int fd, bad = 1;

	snprintf(path, sizeof(path), "%s/%s.%s", j->o->files, name, suffix);
	p = read_file(path, &size);
	if (!p)
		return 1;
	at = memmem(p, size, "ROUNDS=>", 8);
	fd = open(to, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);
	if (at && fd >= 0) {
		memcpy(at + 8, &rounds, 8);
		bad = write(fd, p, size) != (ssize_t)size;
	}
	if (bad)
		fprintf(stderr, "bench-dpa: cannot prepare %s\n", path);
	if (fd >= 0)
		close(fd);
	free(p);
	return bad;
}

static int spawn(char *const argv[], double *seconds, char *out, size_t size)
{
	posix_spawn_file_actions_t fa;
	struct rusage use;
	int p[2], status = 0;
	size_t used = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		return 1;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, p[1], 1);
	n = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(p[1]);
	if (n) {
		fprintf(stderr, "bench-dpa: %s: %s\n", argv[0], strerror((int)n));
		close(p[0]);
		return 1;
	}
	while (used + 1 < size && (n = read(p[0], out + used, size - 1 - used)) > 0)
		used += (size_t)n;
	out[used] = 0;
	close(p[0]);
	if (wait4(pid, &status, 0, &use) < 0 || status) {
		fprintf(stderr, "bench-dpa: %s failed, status 0x%x\n", argv[0], (unsigned)status);
		return 1;
	}
	*seconds = (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec +
		   (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
	return 0;
}

static int run_one(const struct job *j, enum engine e, const char *name, double *seconds, char *out,
		   size_t size)
{
	char path[512], *argv[6];
	int n = 0, err;

	snprintf(path, sizeof(path), "%s/%s.%s", j->dir, name, e == NATIVE ? "native" : "elf");
	if (e == QEMU) {
		argv[n++] = (char *)j->o->qemu;
		argv[n++] = (char *)"-cpu";
		argv[n++] = (char *)"rv64,zba=true,zbb=true,zbs=true,zbc=true";
	} else if (e != NATIVE) {
		argv[n++] = (char *)(e == OTHER ? j->o->against : j->o->dpa_run);
		argv[n++] = (char *)"--tier";
		argv[n++] = (char *)(e == INTERP ? "interp" : "jit");
	}
	argv[n++] = path;
	argv[n] = NULL;
	if (e == OBSERVED || e == HEAP || e == UNINIT)
		setenv("VERBATIM_DPA_CHECK", e == OBSERVED ? "nothing" : engine_name[e], 1);
	err = spawn(argv, seconds, out, size);
	unsetenv("VERBATIM_DPA_CHECK");
	return err;
}

static int prepare(const struct job *j, const char *name, uint64_t rounds)
{
	static const char *const suffix[] = { "native", "elf" };
	char to[512];

	for (int i = 0; i < 2; i++) {
		snprintf(to, sizeof(to), "%s/%s.%s", j->dir, name, suffix[i]);
		if (patched_copy(j, name, suffix[i], rounds, to))
			return 1;
	}
	return 0;
}

/* Find the rounds that take about the target natively. */
static int calibrate(const struct job *j, struct kernel_result *r)
{
	char out[64];
	double t = 0;

	r->rounds = 4;
	for (;;) {
		if (prepare(j, r->name, r->rounds) ||
		    run_one(j, NATIVE, r->name, &t, out, sizeof(out)))
			return 1;
		if (t > j->o->target / 4)
			break;
		r->rounds *= 2;
	}
	r->rounds = (uint64_t)((double)r->rounds * j->o->target / t) + 1;
	return prepare(j, r->name, r->rounds);
}

/* What each engine takes to start this file and do nothing. */
static int starts(const struct job *j, const char *name, double base[ENGINES])
{
	double t[5];
	char out[64];

	if (prepare(j, name, 0))
		return 1;
	for (int e = 0; e < ENGINES; e++) {
		if (!engine_runs(j->o, (enum engine)e))
			continue;
		for (int i = 0; i < 5; i++)
			if (run_one(j, (enum engine)e, name, &t[i], out, sizeof(out)))
				return 1;
		base[e] = median(t, 5);
	}
	return 0;
}

static int one_kernel(const struct job *j, struct kernel_result *r, unsigned rep,
		      const double base[ENGINES])
{
	char want[64], out[64];

	for (int e = 0; e < ENGINES; e++) {
		double t = 0;

		if (!engine_runs(j->o, (enum engine)e))
			continue;
		if (run_one(j, (enum engine)e, r->name, &t, e ? out : want, sizeof(out)))
			return 1;
		if (e && strcmp(out, want)) {
			fprintf(stderr, "bench-dpa: %s: %s computed %.16s, native %.16s\n", r->name,
				engine_name[e], out, want);
			return 1;
		}
		r->seconds[e][rep] = t > base[e] ? t - base[e] : 1e-6;
	}
	return 0;
}

static void clean(const struct job *j, const struct kernel_result *r, unsigned count)
{
	char path[512];

	for (unsigned k = 0; k < count; k++) {
		snprintf(path, sizeof(path), "%s/%s.native", j->dir, r[k].name);
		unlink(path);
		snprintf(path, sizeof(path), "%s/%s.elf", j->dir, r[k].name);
		unlink(path);
	}
	rmdir(j->dir);
}

int engines_run(const struct options *o, struct kernel_result *r, unsigned count)
{
	struct job j = { .o = o, .dir = "/tmp/bench-dpa-XXXXXX" };
	double(*base)[ENGINES] = calloc(count, sizeof(*base));
	int bad = 0;

	if (!base || !mkdtemp(j.dir)) {
		perror("bench-dpa");
		free(base);
		return 1;
	}
	for (unsigned k = 0; k < count && !bad; k++)
		bad = starts(&j, r[k].name, base[k]) || calibrate(&j, &r[k]);
	/* Repetitions outside, kernels and engines inside: a slow phase of the machine hits all alike. */
	for (unsigned rep = 0; rep < o->reps && !bad; rep++) {
		for (unsigned k = 0; k < count && !bad; k++)
			bad = one_kernel(&j, &r[k], rep, base[k]);
		if (isatty(2))
			fprintf(stderr, "\rrepetition %u of %u%s", rep + 1, o->reps,
				rep + 1 < o->reps ? " " : "\r                       \r");
	}
	clean(&j, r, count);
	free(base);
	return bad;
}
