// SPDX-License-Identifier: MIT
/*
 * The differential driver: random programs on the interpreter, the translator and qemu-riscv64,
 * against the reference model.
 *
 *   isa-gen --run DPA_RUN [--qemu QEMU] [--programs N | --seconds T] [--seed S] ...
 *   isa-gen --write FILE --seed S [--per-elf N]       only write one ELF, to look at
 *
 * Every ELF file's records must equal the model's on each tier; the instruction counts of our tiers
 * must equal the model's. Two ELFs in eight hold what qemu 7.2 gets wrong (GEN_OURS) and stay with
 * our tiers, one has no 16-bit instructions, two run everything several times, so that what the
 * translator learns on the way matters. A difference prints the seed and keeps the file.
 */
#include "gen.h"
#include "run.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct options {
	struct run_tools tools;
	const char *write;
	unsigned programs, per_elf, jobs, seconds;
	u64 seed;
};

enum { MODEL_LIMIT = 400000000 };

static void explain(const struct rv_model *m, const struct run *r)
{
	size_t size = m->out_size < r->size ? m->out_size : r->size, at = 0;

	while (at < size && m->out[at] == r->out[at])
		at++;
	if (at == size) {
		fprintf(stderr, "  wrote %zu bytes, expected %zu\n", r->size, m->out_size);
		return;
	}
	for (size_t word = 0; word < GEN_RECORD / 8; word++) {
		size_t off = at / GEN_RECORD * GEN_RECORD + word * 8;
		u64 want, got;
		char name[16] = "checksum";

		if (off + 8 > size)
			break;
		memcpy(&want, m->out + off, 8);
		memcpy(&got, r->out + off, 8);
		if (want == got)
			continue;
		if (word < 32)
			snprintf(name, sizeof(name), word ? "x%zu" : "number", word);
		fprintf(stderr,
			"  program %zu: %s is 0x%016" PRIx64 ", expected 0x%016" PRIx64 "\n",
			at / GEN_RECORD, name, got, want);
	}
}

/* One tier on one file; the number of differences (0 or 1). */
static int check_tier(const struct options *o, enum run_tier tier, const char *elf,
		      const struct rv_model *m)
{
	struct run r;
	int bad = 0, rc = run_elf(&o->tools, tier, elf, NULL, &r);

	if (rc) {
		fprintf(stderr, "%s: cannot start: %s\n", run_tier_name[tier], strerror(-rc));
		return 1;
	}
	if (r.status != m->status || r.size != m->out_size || memcmp(r.out, m->out, r.size)) {
		fprintf(stderr, "%s: %s: status %d, expected %d\n%s", elf, run_tier_name[tier],
			r.status, m->status, r.err);
		explain(m, &r);
		bad = 1;
	} else if (tier != RUN_QEMU && run_count(&r) != m->count) {
		fprintf(stderr, "%s: %s: counted %" PRIu64 " instructions, expected %" PRIu64 "\n",
			elf, run_tier_name[tier], run_count(&r), m->count);
		bad = 1;
	}
	run_free(&r);
	return bad;
}

static int write_file(const struct rv_prog *p, const char *path)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);
	int rc = fd < 0 ? -1 : rv_write_elf(p, fd);

	if (rc)
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

static int one_elf(const struct options *o, u64 seed, unsigned programs, u64 *executed)
{
	struct rv_prog p;
	struct rv_model m;
	char name[64], path[512];
	int bad = 0;

	gen_programs(&p, seed, programs, gen_flags(seed));
	rv_model_init(&m, &p);
	if (rv_model_run(&m, MODEL_LIMIT) != RV_EXIT) {
		fprintf(stderr, "seed %" PRIu64 ": the model did not end, pc 0x%" PRIx64 "\n", seed,
			m.pc);
		bad = 1;
		goto out;
	}
	*executed += m.count;
	snprintf(name, sizeof(name), "gen-%" PRIu64 ".elf", seed);
	run_scratch(path, sizeof(path), name);
	if (write_file(&p, path)) {
		bad = 1;
		goto out;
	}
	if (o->tools.dpa_run) {
		bad += check_tier(o, RUN_INTERP, path, &m);
		bad += check_tier(o, RUN_JIT, path, &m);
	}
	if (o->tools.qemu && !(gen_flags(seed) & GEN_OURS))
		bad += check_tier(o, RUN_QEMU, path, &m);
	if (bad)
		fprintf(stderr,
			"seed %" PRIu64 " (isa-gen --write FILE --seed %" PRIu64
			" --per-elf %u); kept %s\n",
			seed, seed, programs, path);
	else
		unlink(path);
out:
	rv_model_free(&m);
	rv_free(&p);
	return bad;
}

/* Job j of the campaign takes ELF j, j + jobs, ... until programs or time run out. */
static int campaign(const struct options *o, unsigned job)
{
	time_t end = time(NULL) + o->seconds;
	unsigned long long made = 0;
	u64 executed = 0;
	int bad = 0;

	for (unsigned n = job;; n += o->jobs) {
		unsigned done = n * o->per_elf, count = o->per_elf;

		if (o->seconds ? time(NULL) >= end : done >= o->programs)
			break;
		if (!o->seconds && count > o->programs - done)
			count = o->programs - done;
		bad += one_elf(o, o->seed + n, count, &executed);
		made += count;
		if (bad > 3)
			break;
	}
	printf("job %u: %llu programs, %" PRIu64 " instructions, %d different\n", job, made,
	       executed, bad);
	fflush(stdout);
	return bad;
}

static int run_jobs(const struct options *o)
{
	int bad = 0;

	for (unsigned job = 0; job < o->jobs; job++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(campaign(o, job) ? 1 : 0);
		if (pid < 0)
			return 99;
	}
	for (unsigned job = 0; job < o->jobs; job++) {
		int ws;

		if (wait(&ws) < 0 || !WIFEXITED(ws) || WEXITSTATUS(ws))
			bad = 1;
	}
	return bad;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'r':
		o->tools.dpa_run = arg;
		return 0;
	case 'q':
		o->tools.qemu = arg;
		return 0;
	case 'w':
		o->write = arg;
		return 0;
	case 'n':
		o->programs = (unsigned)strtoul(arg, NULL, 0);
		return 0;
	case 'p':
		o->per_elf = (unsigned)strtoul(arg, NULL, 0);
		return 0;
	case 'j':
		o->jobs = (unsigned)strtoul(arg, NULL, 0);
		return 0;
	case 't':
		o->seconds = (unsigned)strtoul(arg, NULL, 0);
		return 0;
	case 's':
		o->seed = strcmp(arg, "time") ? strtoull(arg, NULL, 0) : (u64)time(NULL) << 20;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option option[] = {
	{ "run", 'r', "PATH", 0, "verbatim-dpa-run", 0 },
	{ "qemu", 'q', "PATH", 0, "qemu-riscv64", 0 },
	{ "write", 'w', "FILE", 0, "write the ELF of --seed and stop", 0 },
	{ "programs", 'n', "N", 0, "programs in total (2000)", 0 },
	{ "per-elf", 'p', "N", 0, "programs in one ELF (500)", 0 },
	{ "jobs", 'j', "N", 0, "processes side by side (2)", 0 },
	{ "seconds", 't', "T", 0, "go on for T seconds instead", 0 },
	{ "seed", 's', "S", 0, "first seed, or `time' (1)", 0 },
	{ 0 },
};

static bool installed(const char *program)
{
	char *argv[] = { (char *)program, (char *)"--version", NULL };
	struct run r;

	if (run_command(argv, 60, &r))
		return false;
	run_free(&r);
	return true;
}

int main(int argc, char **argv)
{
	struct options o = { .programs = 2000, .per_elf = 500, .jobs = 2, .seed = 1 };
	const struct argp argp = { .options = option,
				   .parser = parse,
				   .doc = "Compare random RISC-V programs between engines." };
	struct rv_prog p;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (o.write) {
		gen_programs(&p, o.seed, o.per_elf, gen_flags(o.seed));
		return write_file(&p, o.write) ? 1 : 0;
	}
	if (o.tools.qemu && !installed(o.tools.qemu)) {
		printf("%s is not installed: comparing with the model only\n", o.tools.qemu);
		o.tools.qemu = NULL;
	}
	if (!o.tools.dpa_run && !o.tools.qemu) {
		fprintf(stderr, "isa-gen: nothing to compare: give --run or --qemu\n");
		return 2;
	}
	fflush(stdout);
	return run_jobs(&o);
}
