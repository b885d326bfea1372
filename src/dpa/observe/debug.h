/* SPDX-License-Identifier: MIT */
/*
 * A debugger's view of a device process: hold all its threads between two instructions, look at
 * them, let them go on, and learn why they stopped. Like dpa.h a header for other folders; the gdb
 * stub is its user.
 *
 *	running -- hold, breakpoint, watchpoint, trap --> stopping -- all threads held --> stopped
 *	   ^                                                                                  |
 *	   `------------------------------------ resume --------------------------------------'
 *
 * A process has one debugger at most. Its functions are called by one host thread at a time, which
 * is none that executes guest code. Threads are named by number (vb_dpa_thread_number), because the
 * host program may destroy one at any time, a held one too: a number that is gone gives -ESRCH. It
 * may destroy the process as well: then nothing is stopped any more, and only detach is left.
 *
 * Nothing here costs anything while no debugger is attached. While breakpoints, watchpoints or steps
 * are set the process is interpreted; a debugger that has set none lets translated code run.
 */
#pragma once

#include "dpa/dpa.h"

#ifdef __cplusplus
extern "C" {
#endif

struct vb_dpa_debug;

enum vb_dpa_stop {
	VB_DPA_STOP_ASKED, /* vb_dpa_debug_hold */
	VB_DPA_STOP_BREAK, /* a breakpoint: the instruction at pc has not been executed */
	VB_DPA_STOP_WATCH, /* a watchpoint: the access has been executed, pc is behind it */
	VB_DPA_STOP_STEP,  /* the steps asked for are done, or the thread has ended */
	VB_DPA_STOP_TRAP,  /* a fault: state.cause and tval; going on lets the process see it */
};

/*
 * An ebreak of the program is a BREAK, too, and a trap (state.cause is BREAKPOINT). A trap of either
 * kind is delivered when the thread goes on, unless the debugger has given it another pc.
 */

enum vb_dpa_watch { VB_DPA_WATCH_READ = 1, VB_DPA_WATCH_WRITE = 2 };

struct vb_dpa_stopped {
	enum vb_dpa_stop why;
	uint32_t thread;         /* its number; 0: ASKED */
	uint64_t addr;           /* WATCH: the first byte of the access that is watched */
	enum vb_dpa_watch watch; /* WATCH: which kind of watchpoint it met, READ | WRITE for both */
};

/* -EBUSY: it has one; -ENOMEM. The process goes on as it was. */
int vb_dpa_debug_attach(struct vb_dpa_process *process, struct vb_dpa_debug **debug);
/* Breakpoints and watchpoints go, the process goes on; a trap that was held back is delivered. */
void vb_dpa_debug_detach(struct vb_dpa_debug *debug);

/* A file descriptor that can be read from (poll) while the process is stopped. */
int vb_dpa_debug_fd(const struct vb_dpa_debug *debug);
/* Ask all threads to stop. No effect on a process that is stopping or stopped. */
void vb_dpa_debug_hold(struct vb_dpa_debug *debug);
/*
 * Whether it is stopped: every thread is held, or has nothing to do. The first reason counts; a
 * thread that met another one meanwhile stops again, for that, when it is resumed. Steps that were
 * done meanwhile are forgotten: what counts is the next resume.
 */
bool vb_dpa_debug_stopped(struct vb_dpa_debug *debug, struct vb_dpa_stopped *out);

enum vb_dpa_go {
	VB_DPA_GO_ON,
	VB_DPA_GO_STEP, /* until pc leaves [from, to), one instruction at least */
	VB_DPA_GO_STAY, /* held, while others run */
};

struct vb_dpa_resume {
	uint32_t thread; /* 0: all that no entry before names */
	enum vb_dpa_go go;
	uint64_t from, to; /* STEP; equal: one instruction */
};

/*
 * Let a stopped process go on: for each thread the first entry that names it counts; none: it
 * stays. A thread goes on behind the breakpoint that it stopped at. New threads go on. -EINVAL: it
 * is not stopped.
 */
int vb_dpa_debug_resume(struct vb_dpa_debug *debug, const struct vb_dpa_resume *how,
			unsigned int n);

/* Only while stopped; -EINVAL otherwise, for all below. */

/* addr is in the text; -EFAULT if not, -ENOMEM. Setting one twice counts once. */
int vb_dpa_debug_break(struct vb_dpa_debug *debug, uint64_t addr, bool set);
/* An access that touches a byte of [addr, addr + len), windows too. -ENOENT to clear what is not set. */
int vb_dpa_debug_watch(struct vb_dpa_debug *debug, uint64_t addr, uint64_t len, unsigned int watch,
		       bool set);

/* Numbers in order of creation; returns how many there are, writes at most max. */
unsigned int vb_dpa_debug_threads(struct vb_dpa_debug *debug, uint32_t *numbers, unsigned int max);

struct vb_dpa_thread_info {
	char name[32];
	bool idle; /* nothing to do: no function was called, or it has returned */
	unsigned int eu;
};

int vb_dpa_debug_info(struct vb_dpa_debug *debug, uint32_t thread, struct vb_dpa_thread_info *out);
int vb_dpa_debug_state(struct vb_dpa_debug *debug, uint32_t thread, struct vb_dpa_state *out);
/* x[1..31] and pc count. */
int vb_dpa_debug_set_state(struct vb_dpa_debug *debug, uint32_t thread,
			   const struct vb_dpa_state *state);
/*
 * Memory as the thread sees it: below the limit whatever is mapped, above it windows; no device
 * pages, whose loads have effects. Text cannot be written. -EFAULT: *done bytes were copied.
 */
int vb_dpa_debug_read(struct vb_dpa_debug *debug, uint32_t thread, uint64_t addr, void *to,
		      uint64_t len, uint64_t *done);
int vb_dpa_debug_write(struct vb_dpa_debug *debug, uint32_t thread, uint64_t addr, const void *from,
		       uint64_t len, uint64_t *done);

/*
 * How long the process has been held, by debuggers, since it was made. Time limits stand still
 * meanwhile: they count the time of the clock less this.
 */
uint64_t vb_dpa_process_held_ns(const struct vb_dpa_process *process);

#ifdef __cplusplus
}
#endif
