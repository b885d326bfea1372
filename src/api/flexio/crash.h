/* SPDX-License-Identifier: MIT */
/* How a device process dies, and what is kept of that; debuggers. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#define FLEXIO_ALLOW_EXPERIMENTAL_API
#include <libflexio/flexio.h>

#include "api/flexio/guest.h"

/* ---- error.c --------------------------------------------------------------------------------- */

int vb_error_init(struct flexio_process *process);
void vb_error_free(struct flexio_process *process);
/*
 * End the process: the first status stays, all threads are told to stop, the error fd becomes
 * readable.
 */
void vb_process_fatal(struct flexio_process *process, int status);
/* What a status means; see docs/rtos-abi.md. */
const char *vb_status_text(int status);
/* Fail a call because the process has ended. Always FLEXIO_STATUS_FATAL_ERR. */
flexio_status vb_process_fail_dead(const struct flexio_process *process);

/* ---- debug.c --------------------------------------------------------------------------------- */

/*
 * The process is complete, and has not executed an instruction. VERBATIM_DPA_DEBUG may offer it to
 * debuggers, and wait for one. 0, or -errno after a reason.
 */
int vb_flexio_debug_begin(struct flexio_process *process);
/* Before its memory goes. */
void vb_flexio_debug_end(struct flexio_process *process);

/* ---- crash.c --------------------------------------------------------------------------------- */

/* What a thread was doing when it faulted. */
struct crash {
	int status;
	enum guest_kind kind;
	uint32_t thread_id;
	char name[32];
	struct vb_dpa_snapshot snapshot; /* an error handler uses the same stack */
	struct vb_dpa_stack stack;
	struct events events;
	unsigned int num_frames; /* return addresses, found on the stack without a description */
	uint64_t frames[32];
	char address
		[384]; /* what the address of a bad access belongs to; empty: not a bad access */
};

/*
 * Keep what a thread was doing when it faulted, at the guest until it is known whether the fault is
 * fatal. In a callback of this thread.
 */
void vb_crash_keep(struct guest *guest, struct vb_dpa_thread *thread,
		   const struct vb_dpa_state *state, int status);
/* It is, so this may be what flexio_crash_data() shows; before vb_process_fatal(). */
void vb_crash_publish(struct guest *guest);
/* It is not. */
void vb_crash_forget(struct guest *guest);
void vb_crash_free(struct flexio_process *process);

/* ---- crash_address.c ------------------------------------------------------------------------- */

/*
 * Say what an address belongs to that a load, a store or a jump of the guest failed at. Before the
 * thread runs again: its windows are read.
 */
void vb_address_describe(const struct guest *guest, const struct crash *crash, char *text,
			 size_t size);

/* ---- dumpfile.c: files of flexio_crash_data() and flexio_coredump_create() ------------------- */

struct dump_file {
	int fd;
	bool made; /* by us: it was not there before */
	char path[4096];
};

/*
 * Open OUTFILE.ID.SUFFIX by the rules of the manual; the id is as dpa-ps shows it. Ordinary files only: a pipe would make the
 * program wait. False, after a reason.
 */
bool vb_dump_open(struct dump_file *file, const struct flexio_process *process, const char *outfile,
		  const char *suffix, mode_t mode);
int vb_dump_write(int fd, const void *bytes, size_t len);
/* err: of what was written, 0 or -errno; then nothing is left of the file but its name, if that. */
flexio_status vb_dump_close(struct dump_file *file, const struct flexio_process *process, int err);
