/* SPDX-License-Identifier: MIT */
/* Running a command and keeping what it wrote; used to compare the engine's tiers with qemu-riscv64. */
#ifndef ISA_RUN_H
#define ISA_RUN_H

#include <stddef.h>
#include <stdint.h>

struct run {
	int status; /* exit status, 128 + signal, or -1 when it had to be ended */
	uint8_t *out;
	size_t size;
	char err[8192]; /* the start of stderr, always terminated */
};

/* Where the programs under test are; filled from the command line by run_option(). */
struct run_tools {
	const char *dpa_run; /* verbatim-dpa-run */
	const char *qemu;    /* qemu-riscv64, or NULL */
};

enum run_tier { RUN_INTERP, RUN_JIT, RUN_QEMU, RUN_TIERS };

extern const char *const run_tier_name[RUN_TIERS];

/* Run argv with a generous limit in seconds. Returns 0 unless the command could not be started. */
int run_command(char *const argv[], unsigned seconds, struct run *r);
/* Run an ELF file on one tier; `extra` (may be NULL) is one more option for verbatim-dpa-run. */
int run_elf(const struct run_tools *t, enum run_tier tier, const char *elf, const char *extra,
	    struct run *r);
void run_free(struct run *r);

/* The number after "instructions: " in stderr, or ~0. */
uint64_t run_count(const struct run *r);

/* A path for a scratch file of this process, in TMPDIR or /tmp. */
void run_scratch(char *path, size_t size, const char *name);

#endif
