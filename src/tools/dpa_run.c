// SPDX-License-Identifier: MIT
/*
 * Owns `verbatim dpa run FILE.elf [ARGS]`, a program of its own in libexec/verbatim that dpa.c
 * becomes: one bare program on one guest thread, with the two system calls that programs for tests
 * and benches need. Numbers and registers are those of Linux on RISC-V, so the same file runs under
 * qemu-riscv64: a7 = 64 write(fd, buffer, length), 93 and 94 exit(status); anything else answers
 * -ENOSYS.
 *
 * Exit status: the guest's; 124 --max-insns reached; 125 the guest trapped; 126 the file cannot be
 * run, or bad usage.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "dpa/dpa.h"

#define EXIT_MAX_INSNS 124
#define EXIT_TRAP      125
#define EXIT_REFUSED   126

#define LIMIT_MAX_MIB  2047

#define STACK_SIZE     (8ULL << 20)

struct options {
	enum vb_dpa_tier tier;
	bool count, regs, stats;
	uint64_t max_insns;
	uint64_t limit;
	char **args; /* the file and the guest's arguments */
	int nargs;
};

struct guest {
	int status;
};

/* ---- options ---- */

enum { OPT_TIER = 1, OPT_COUNT, OPT_REGS, OPT_MAX, OPT_LIMIT, OPT_STATS };

static const struct argp_option option_table[] = {
	{ "tier", OPT_TIER, "TIER", 0, "interp or jit; default: jit where it works", 0 },
	{ "count", OPT_COUNT, NULL, 0, "Print the number of instructions retired", 0 },
	{ "regs", OPT_REGS, NULL, 0, "Print all registers at the end", 0 },
	{ "max-insns", OPT_MAX, "N", 0, "Stop after exactly N instructions, with status 124", 0 },
	{ "limit", OPT_LIMIT, "MIB", 0, "Size of guest memory, 1 to 2047; default 1024", 0 },
	{ "stats", OPT_STATS, NULL, 0, "Print size and time of the translation", 0 },
	{ 0 },
};

static error_t dpa_run_parse_number(struct argp_state *state, const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	if (errno || *end || end == text || *text == '-')
		argp_error(state, "'%s' is not a number", text);
	return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case OPT_TIER:
		if (strcmp(arg, "interp") && strcmp(arg, "jit"))
			argp_error(state, "--tier is interp or jit");
		o->tier = strcmp(arg, "jit") ? VB_DPA_TIER_INTERP : VB_DPA_TIER_JIT;
		return 0;
	case OPT_COUNT:
		o->count = true;
		return 0;
	case OPT_REGS:
		o->regs = true;
		return 0;
	case OPT_STATS:
		o->stats = true;
		return 0;
	case OPT_MAX:
		return dpa_run_parse_number(state, arg, &o->max_insns);
	case OPT_LIMIT:
		dpa_run_parse_number(state, arg, &o->limit);
		if (!o->limit || o->limit > LIMIT_MAX_MIB)
			argp_error(state, "--limit is 1 to %d", LIMIT_MAX_MIB);
		return 0;
	case ARGP_KEY_ARG:
		/* The file; everything behind it is the guest's, options included. */
		o->args = state->argv + state->next - 1;
		o->nargs = state->argc - state->next + 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which program?");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	option_table,
	parse_option,
	"FILE.elf [ARGS...]",
	"Run a bare RISC-V program (RV64IMAC, Zba, Zbb, Zbs, Zbc) on the accelerator's processor."
	"\vSystem calls (number in a7): 64 write, 93 and 94 exit. The exit status is the program's; 124: stopped by "
	"--max-insns, 125: it trapped, 126: it cannot be run.\n",
	NULL,
	NULL,
	NULL,
};

/* ---- the guest's system calls ---- */

static uint64_t guest_write(struct vb_dpa_process *process, uint64_t fd, uint64_t addr,
			    uint64_t len)
{
	struct vb_dpa_view data = vb_dpa_mem_host(process, addr, len, VB_DPA_READ);
	ssize_t n;

	if (fd != STDOUT_FILENO && fd != STDERR_FILENO)
		return (uint64_t)-EBADF;
	if (len && vb_view_is_none(data))
		return (uint64_t)-EFAULT;
	/* The kernel reads it: what is gone meanwhile is EFAULT. */
	n = write((int)fd, len ? vb_view_lend(data) : "", len);
	return n < 0 ? (uint64_t)-errno : (uint64_t)n;
}

static enum vb_dpa_action on_ecall(struct vb_dpa_thread *thread, struct vb_dpa_state *s, void *arg)
{
	struct guest *guest = arg;

	switch (s->x[17]) {
	case 64:
		s->x[10] = guest_write(vb_dpa_thread_process(thread), s->x[10], s->x[11], s->x[12]);
		return VB_DPA_CONTINUE;
	case 93:
	case 94:
		guest->status = (int)(s->x[10] & 0xff);
		return VB_DPA_EXIT;
	default:
		s->x[10] = (uint64_t)-ENOSYS;
		return VB_DPA_CONTINUE;
	}
}

/* ---- start and end ---- */

/* The whole of a regular file; NULL with errno. */
static void *dpa_run_read_file(const char *path, size_t *len)
{
	FILE *file = fopen(path, "rb");
	void *data = NULL;
	struct stat st;
	int err = 0;

	if (!file)
		return NULL;
	if (fstat(fileno(file), &st))
		err = errno;
	else if (!S_ISREG(st.st_mode))
		err = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	else if (!(data = malloc((size_t)st.st_size + 1)))
		err = ENOMEM;
	else if (fread(data, 1, (size_t)st.st_size, file) != (size_t)st.st_size)
		err = EIO;
	fclose(file);
	if (err) {
		free(data);
		errno = err;
		return NULL;
	}
	*len = (size_t)st.st_size;
	return data;
}

/*
 * argc, argv, an empty environment and an empty auxiliary vector, as a Linux kernel leaves them at
 * sp.
 */
static int push_args(struct vb_dpa_process *process, struct vb_dpa_state *s,
		     const struct options *o)
{
	uint64_t sp = s->x[2], words = (uint64_t)o->nargs + 5,
		 *vector = calloc(words, sizeof(*vector));
	int err = 0;

	if (!vector)
		return -ENOMEM;
	vector[0] = (uint64_t)o->nargs;
	for (int i = 0; i < o->nargs && !err; i++) {
		size_t len = strlen(o->args[i]) + 1;

		sp -= len;
		vector[1 + i] = sp;
		err = vb_dpa_mem_write(process, sp, o->args[i], len);
	}
	sp = (sp - words * sizeof(*vector)) & ~15ULL;
	if (!err)
		err = vb_dpa_mem_write(process, sp, vector, words * sizeof(*vector));
	free(vector);
	s->x[2] = sp;
	return err;
}

static void dpa_run_print_end(struct vb_dpa_process *process, const struct vb_dpa_state *s,
			      const struct options *o)
{
	struct vb_dpa_text_stats stats;

	if (o->count)
		fprintf(stderr, "instructions: %" PRIu64 "\n", s->instret);
	if (o->regs) {
		fprintf(stderr, "pc 0x%016" PRIx64 "\n", s->pc);
		for (int i = 0; i < 32; i++)
			fprintf(stderr, "x%d 0x%016" PRIx64 "\n", i, s->x[i]);
	}
	if (o->stats) {
		vb_dpa_text_stats(process, &stats);
		fprintf(stderr,
			"text: %" PRIu64 " bytes, code: %" PRIu64 " bytes, translated %" PRIu64
			" times in %" PRIu64 " us\n",
			stats.text_bytes, stats.code_bytes, stats.translations,
			stats.translate_ns / 1000);
	}
}

/* One line for programs, then the registers with names for people. */
static void dpa_run_print_trap(struct vb_dpa_process *process, const struct vb_dpa_state *s)
{
	uint32_t bits = 0;
	char dump[4096];

	if (vb_dpa_mem_read(process, s->pc, &bits, 4) && vb_dpa_mem_read(process, s->pc, &bits, 2))
		bits = 0;
	if ((bits & 3) != 3)
		bits &= 0xffff;
	vb_dpa_state_format(process, s, dump, sizeof(dump));
	fprintf(stderr,
		"verbatim dpa run: trap: %s pc=0x%" PRIx64 " addr=0x%" PRIx64 " insn=0x%" PRIx32
		"\n",
		vb_dpa_cause_name((enum vb_dpa_cause)s->cause), s->pc, s->tval, bits);
	fputs(dump, stderr);
}

static int run_thread(struct vb_dpa_process *process, struct vb_dpa_thread *thread,
		      struct guest *guest, const struct options *o)
{
	struct vb_dpa_state *s = vb_dpa_thread_state(thread);
	enum vb_dpa_why why;
	int err;

	err = vb_dpa_thread_set_call(thread, vb_dpa_process_entry(process), NULL, 0);
	s->x[1] = 0; /* nothing called the entry */
	if (!err)
		err = push_args(process, s, o);
	if (!err)
		err = vb_dpa_thread_run(thread, o->max_insns, &why);
	if (err) {
		fprintf(stderr, "verbatim dpa run: %s\n", strerror(-err));
		return EXIT_REFUSED;
	}
	if (why == VB_DPA_WHY_TRAP)
		dpa_run_print_trap(process, s);
	dpa_run_print_end(process, s, o);
	switch (why) {
	case VB_DPA_WHY_EXIT:
		return guest->status;
	case VB_DPA_WHY_TRAP:
		return EXIT_TRAP;
	default:
		return EXIT_MAX_INSNS;
	}
}

static int run_file(struct vb_dpa *dpa, const void *elf, size_t len, const struct options *o)
{
	static const struct vb_dpa_ops ops = { .ecall = on_ecall };
	struct guest guest = { 0 };
	struct vb_dpa_process_attr attr = {
		.limit = o->limit << 20,
		.tier = o->tier,
		.ops = &ops,
		.ops_arg = &guest,
		.name = o->args[0],
	};
	struct vb_dpa_thread_attr thread_attr = { .stack_size = STACK_SIZE, .name = "main" };
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread;
	struct vb_dpa_error error = { "" };
	int status, err;

	if (vb_dpa_process_create(dpa, elf, len, &attr, &process, &error)) {
		fprintf(stderr, "verbatim dpa run: %s: %s\n", o->args[0], error.text);
		return EXIT_REFUSED;
	}
	err = vb_dpa_thread_create(process, &thread_attr, &thread);
	if (err) {
		fprintf(stderr, "verbatim dpa run: %s: cannot make a thread: %s\n", o->args[0],
			strerror(-err));
		status = EXIT_REFUSED;
	} else {
		status = run_thread(process, thread, &guest, o);
		vb_dpa_thread_destroy(thread);
	}
	vb_dpa_process_destroy(process);
	return status;
}

int main(int argc, char **argv)
{
	static char name[] = "verbatim dpa run"; /* what the user typed, in help and errors */
	struct options o = { .max_insns = UINT64_MAX };
	const struct vb_config *config;
	struct vb_dpa_attr attr = { 0 };
	struct vb_dpa *dpa;
	size_t len = 0;
	void *elf;
	int status, err;

	if (argc > 0)
		argv[0] = name;
	argp_err_exit_status = EXIT_REFUSED;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
	elf = dpa_run_read_file(o.args[0], &len);
	if (!elf) {
		fprintf(stderr, "verbatim dpa run: %s: %s\n", o.args[0], strerror(errno));
		return EXIT_REFUSED;
	}
	config = vb_config_get();
	if (!config) {
		free(elf);
		return EXIT_REFUSED; /* what is wrong with it was logged */
	}
	attr.eus = config->adapter[0].dpa_eus;
	err = vb_dpa_create(&attr, &dpa);
	if (err) {
		fprintf(stderr, "verbatim dpa run: the accelerator cannot be used: %s\n",
			strerror(-err));
		free(elf);
		return EXIT_REFUSED;
	}
	status = run_file(dpa, elf, len, &o);
	vb_dpa_destroy(dpa);
	free(elf);
	return status;
}
