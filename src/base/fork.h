/* SPDX-License-Identifier: MIT */
/*
 * What happens at start, fork and exit: one table, whose order is enum vb_stage.
 *
 *	              first                          last
 *	start         LOCKS  LOG  READERS   ...   STREAMS    when the library is loaded
 *	prepare       STREAMS   ...   READERS  LOG  LOCKS    before fork()
 *	parent        LOCKS  LOG  READERS   ...   STREAMS    after it, in the parent
 *	child         LOCKS  LOG  READERS   ...   STREAMS    after it, in the child
 *	exit          STREAMS   ...   READERS  LOG  LOCKS    at exit(), or when the library is unloaded
 *
 * A lock that prepare takes is thus taken after those above it, as everywhere else, and what a stage
 * calls is ready, or reset, before it. A file that has something to do declares its row with VB_STAGE();
 * tests/abi/stages.py fails on a row that the enum does not have, and on a hook of another kind. Each
 * library has its own rows: base/fork_rows.c brings them to the table, and takes them away again.
 *
 * Between prepare and the end of parent or child no handler of the program runs in this thread: one
 * that forks would wait for locks that the thread has itself. errno stays as it was.
 *
 * Children of vfork(), _Fork() and clone() run no handler. What must not take them for the parent looks
 * at pages that the kernel wipes in a child, or at the process's number, and says so in its file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/public.h"

/* From the bottom to the top: src/README.md says what each does. */
enum vb_stage {
	/* base/ */
	VB_STAGE_LOCKS,   /* lock.c */
	VB_STAGE_LOG,     /* log.c */
	VB_STAGE_READERS, /* rcu.c */
	/* host/ */
	VB_STAGE_SIGNALS, /* signals.c */
	VB_STAGE_FAULTS,  /* fault.c */
	VB_STAGE_SHARED,  /* shared/shared.c */
	VB_STAGE_POOL,    /* shared/shared_pool.c */
	VB_STAGE_COUNTS,  /* patch/patch_counts.c */
	VB_STAGE_PATCH,   /* patch/patch.c */
	VB_STAGE_TRAPS,   /* trap/trap.c */
	/* control/ */
	VB_STAGE_TIMELINE, /* control/record/timeline.c */
	VB_STAGE_ASK,      /* control/ask/ask.c */
	VB_STAGE_MONITOR,  /* control/show/page.c */
	/* fabric/, card/ */
	VB_STAGE_REACH,  /* fabric/reach.c */
	VB_STAGE_FABRIC, /* fabric/progress.c */
	VB_STAGE_CARDS,  /* card/sink.c */
	/* dpa/, gdb/: part of libflexio */
	VB_STAGE_SPACES,    /* dpa/mem_file.c */
	VB_STAGE_SAMPLES,   /* dpa/observe/sample.c */
	VB_STAGE_DEBUGGERS, /* dpa/observe/debug.c */
	VB_STAGE_GDB,       /* gdb/listen.c */
	/* api/: libibverbs, libmlx5, libflexio, libdpa_stats */
	VB_STAGE_CONTEXTS,     /* api/ibverbs/core/context.c */
	VB_STAGE_FLOWS,        /* api/ibverbs/core/flow.c */
	VB_STAGE_RQTS,         /* api/mlx5/devx_rqt.c */
	VB_STAGE_HANDLES,      /* api/flexio/handle.c */
	VB_STAGE_APPS,         /* api/flexio/app.c */
	VB_STAGE_ACCELERATORS, /* api/flexio/accelerator.c */
	VB_STAGE_STREAMS,      /* api/flexio/stream.c */
	VB_STAGE_STATS,        /* api/dpa_stats/handler.c */
	VB_STAGES
};

typedef void vb_stage_call(void);

/*
 * A row. Calls that a stage does not need are NULL.
 *
 * child works also where prepare was not called: a library may be loaded while another thread forks. A
 * library that can be unloaded has no prepare and no parent, which a fork of another thread may call
 * until it is over.
 */
struct vb_stage_row {
	enum vb_stage stage;
	const void *image; /* makes the linker add base/fork_rows.c */
	vb_stage_call *start, *prepare, *parent, *child, *exit;
};

/* In base/fork_rows.c, of which each library has its own. */
extern const char vb_stage_image __attribute__((visibility("hidden")));

/* At file scope: VB_STAGE(LOG, .start = log_start); */
#define VB_STAGE(name, ...)                                                                     \
	static const struct vb_stage_row stage_row_##name = { VB_STAGE_##name, &vb_stage_image, \
							      __VA_ARGS__ };                    \
	static const struct vb_stage_row *stage_place_##name                                    \
		__attribute__((used, section("vb_stages"))) = &stage_row_##name

/*
 * A library's rows, from its constructor and destructor: they come into the table and start, or exit and
 * leave it. Those of the library that has the table stay in it, which is never unloaded: other threads may
 * fork beside exit(). Neither takes a lock, so both are safe in a child that was made past fork(), and in
 * exit() of a signal handler.
 */
VB_PUBLIC void vb_stages_join(const struct vb_stage_row *const *rows, size_t count);
VB_PUBLIC void vb_stages_leave(const struct vb_stage_row *const *rows, size_t count);

/*
 * Around a call of a program. A handler of forks of the program's own that is older than ours, because libibverbs was
 * loaded later, is called after prepare, and before parent and child: with our locks in this thread, and in the child
 * with the state of the parent. What it calls gives the locks back and takes them again, or resets the child first.
 * In every other thread and at any other time these do nothing.
 */
void vb_fork_step_out(void);
void vb_fork_step_in(void);

/* Whether forks are heard of. libc may have had no memory for that. */
VB_PUBLIC bool vb_forks_are_watched(void);
