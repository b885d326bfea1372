/* SPDX-License-Identifier: MIT */
/*
 * libflexio on Verbatim: the objects behind the handles, and what the files of this folder share.
 *
 *	accel (one per adapter in use) -- vb_dpa
 *	flexio_app -- ELF image, functions
 *	  `- flexio_process -- vb_dpa_process
 *	       |- heap             device memory given out; all bookkeeping on the host
 *	       |- calls            a pool of guest threads with argument buffers, for RPCs
 *	       |- streams[255]     message streams
 *	       |- handlers         event handlers by activation id; entries live as long as the process
 *	       |- cmdqs            command queues: tasks and workers
 *	       `- status, fd       the first fatal error
 *
 * Locks, in the order in which they may be taken: process.mutex (creation and destruction), the
 * lock of one handler entry; process.cmdqs_lock, the lock of one command queue; recover_lock; then
 * leaves: the lock of the heap, stream.lock, the accelerator's own. No lock is held while guest code runs.
 *
 * Inside: 0 or -errno, or a flexio_status where a function decides for its caller. The function
 * that decides to fail logs the reason, with fail().
 */
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

#include "api/flexio/accelerator.h"
#include "api/flexio/app.h"
#include "api/flexio/fail.h"
#include "api/flexio/guest.h"
#include "api/flexio/handle.h"
#include "base/file.h"
#include "base/lock.h"
#include "control/record/timeline.h"
#include "control/show/dpa.h"
#include "control/show/monitor.h"
#include "gdb/listen.h"
#include "host/shared/arena.h"

/* ---- memory.c: the device heap --------------------------------------------------------------- */

/* align: a power of two. 0: no room. In checked mode with a red zone behind it. */
uint64_t vb_device_alloc(struct flexio_process *process, uint64_t size, uint64_t align);
/* False: not the address of a block in use. */
bool vb_device_free(struct flexio_process *process, uint64_t daddr);
void vb_device_info(struct flexio_process *process, struct flexio_heap_mem_info *info);

/* ---- recoverable.c --------------------------------------------------------------------------- */

/* Free a buffer of the heap, a recoverable one after its content was copied. False: no buffer begins at daddr. */
bool vb_recoverable_free(struct flexio_process *process, uint64_t daddr);
/* All that are left, with the process. */
void vb_recoverables_dump(struct flexio_process *process);

/* ---- counters.c ------------------------------------------------------------------------------ */

enum { MAX_COUNTERS = 32 };

/* What a process samples: values[i] is where device code wants to have ids[i]. */
struct counters {
	uint32_t count;
	struct vb_dpa_view values; /* device memory that lasts as long as the process */
	uint32_t ids[MAX_COUNTERS];
};

/* False: what device code asks for cannot be, and ends its process; the log says why. */
bool vb_counters_config(struct guest *guest, uint64_t values, uint64_t ids, uint64_t count);
bool vb_counters_sample(struct guest *guest);

/* ---- pcc.c ----------------------------------------------------------------------------------- */

/* Of a process with en_pcc. */
int vb_pcc_init(struct flexio_process *process);
/* After the guest memory is gone. */
void vb_pcc_free(struct flexio_process *process);
/* Device address of the table; 0: the process has no table for vhca_id. */
uint64_t vb_pcc_table(const struct flexio_process *process, uint64_t vhca_id);
/* A doorbell of a congestion control queue. -ENOENT: the process was created without en_pcc. */
int vb_pcc_ring(struct guest *guest, uint64_t value);

/* ---- event_handler.c ------------------------------------------------------------------------- */

struct handler_entry;

/* Start the handler, if that is what its state allows. False: there is no such handler. */
bool vb_handler_trigger(struct flexio_process *process, uint64_t activation_id);
/* A thread of a handler left its EU. */
void vb_handler_done(struct guest *guest);
/* VB_RTOS_YIELD. True: it shall wait for the next trigger; false: go on at once. */
bool vb_handler_yield(struct guest *guest, bool retrigger);
/*
 * The handler behind a thread object, kept from being destroyed until vb_handler_release(); NULL:
 * not one of this process. Under process.mutex.
 */
struct flexio_event_handler *vb_handler_hold(struct flexio_process *process,
					     struct flexio_thread *thread);
void vb_handler_release(struct flexio_event_handler *handler);
/* An object that it is attached to has an event. From any thread. */
void vb_handler_event(struct flexio_event_handler *handler);
void vb_handlers_halt(struct flexio_process *process);
void vb_handlers_destroy(struct flexio_process *process);

/* ---- cmdq.c ---------------------------------------------------------------------------------- */

/* A worker left its EU: its task is done. */
void vb_worker_done(struct guest *guest);
void vb_cmdqs_halt(struct flexio_process *process);

/* ---- process.c ------------------------------------------------------------------------------- */

/*
 * The right to ring queues of an adapter; of a process, and of the process's adapter unless it is
 * an extension.
 */
struct flexio_uar {
	struct flexio_process *process;
	uint32_t id;
	const struct vb_adapter *adapter;
	struct flexio_uar *base; /* an extension: of which */
	unsigned int users;      /* queues and extensions; this and below under process.uar_lock */
	struct flexio_uar *extensions, *sibling; /* one each adapter; the next of its base */
	struct flexio_uar *next;                 /* in its bucket */
};

#define UAR_BUCKETS    256
#define RMP_BUCKETS    256
#define MAX_STREAMS    FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT
#define MAX_OUTBOXES   256
#define HANDLER_CHUNK  256
#define HANDLER_CHUNKS 64 /* 16384 threads of a process */

/* What must be destroyed before its process. */
enum process_part {
	PART_HANDLER,
	PART_CMDQ,
	PART_MKEY,
	PART_WINDOW,
	PART_QUEUE, /* UARs and outboxes, too */
	PARTS,
};

struct flexio_process {
	struct flexio_app *app;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	bool own_pd;
	struct accel *accel;
	struct vb_dpa_process *dpa;
	char name[FLEXIO_MAX_NAME_LEN + 1];
	uint32_t id;          /* in this program; see vb_process_id() */
	struct vb_umem *umem; /* over its memory, for queues of others */
	uint32_t dumem_id;    /* the number of that umem */
	struct flexio_uar uar __attribute__((aligned(16))); /* a handle, too */

	struct vb_gdb_offer *offer;    /* to debuggers; NULL: none; under mutex */
	struct vb_shown_process shown; /* to tools */

	struct vb_arena heap;
	bool checked; /* blocks of the heap are the checker's (vb_dpa_check_heap) */
	pthread_mutex_t recover_lock;
	struct recoverable *recoverables; /* under recover_lock */
	pthread_mutex_t brk_lock;
	uint64_t brk_base, brk, brk_end; /* VB_RTOS_SBRK */
	_Atomic uint32_t next_thread_id;

	/* error.c */
	_Atomic int status;             /* 0: alive */
	struct vb_file error_file;      /* flexio_err_handler_fd() */
	struct crash *_Atomic crash;    /* of the thread that ended it; NULL: not by a fault */
	_Atomic uint64_t error_handler; /* device address; 0: none */
	bool threaded;                  /* it has or had event handlers or workers; under mutex */

	/* stream.c */
	struct flexio_msg_stream *streams[MAX_STREAMS]; /* under streams_lock */
	pthread_rwlock_t streams_lock;
	_Atomic unsigned int unwritten; /* messages in synchronous streams */
	atomic_bool beyond;             /* it was said that a stack is too small for a card */
	uint64_t levels_addr;           /* device table of levels; 0: not in this device program */
	/* tracer.c, under streams_lock */
	struct vb_dpa_view tracer_table; /* of struct vb_rtos_tracer; none: no tracer stream yet */
	struct tracer_memory *tracer_memory;
	unsigned int tracer_windows;

	struct vb_rtos_pcc *pcc; /* table of congestion control, or NULL; pcc.c */
	/* counters.c: count is 0 before the first choice */
	struct vb_lock counters_lock;
	struct counters counters;

	/* event_handler.c */
	struct handler_entry *_Atomic handlers[HANDLER_CHUNKS];

	/* cmdq.c */
	pthread_mutex_t cmdqs_lock;
	struct flexio_cmdq *cmdqs; /* all, under cmdqs_lock */

	_Atomic unsigned int parts[PARTS]; /* objects that need it: see vb_process_hold() */

	/* queues, and what they need */
	struct vb_lock uar_lock;
	struct flexio_uar *uars[UAR_BUCKETS];   /* all, its own included, by id */
	_Atomic uint8_t outboxes[MAX_OUTBOXES]; /* enum outbox_can, by id; 0 is its own */
	struct vb_lock rmp_lock;
	struct flexio_rmp *rmps[RMP_BUCKETS]; /* all, by number */

	/*
	 * A host thread that began a call while the process was being destroyed may still read the
	 * fields from here on. They keep their values when the memory is reused for another
	 * process; the memory is never freed.
	 */
	pthread_mutex_t mutex;                       /* creation and destruction of its objects */
	bool open;                                   /* for calls and new objects; under mutex */
	struct call_slot *_Atomic slots[CALL_SLOTS]; /* made on first use */
	_Atomic unsigned int waiting;                /* callers that found no slot */
	pthread_mutex_t slot_lock;
	pthread_cond_t slot_free;
	unsigned int slots_given; /* under slot_lock: slots freed while somebody waited */
	struct flexio_process *next_spare;
};

static inline bool process_dead(const struct flexio_process *process)
{
	return atomic_load_explicit(&process->status, memory_order_acquire) != 0;
}

/* The id that tools show: unlike those of all programs of the user that run now. */
static inline uint32_t vb_process_id(const struct flexio_process *process)
{
	return process->shown.request ? process->shown.id : process->id;
}

/*
 * Whether it is the parent's: we are a child of fork(). Its locks and device threads may be in any
 * state, so the child's handles of it and its objects end, and nothing else is done.
 */
bool vb_process_inherited(const struct flexio_process *process);

/*
 * Take a reference to a pinned process, for an object that needs it. False, after a log line: it is
 * being destroyed. After the release the owner of the reference must not use the process any more.
 */
bool vb_process_hold(struct flexio_process *process, enum process_part part);
void vb_process_release(struct flexio_process *process, enum process_part part);

/* Device memory, none unless it is writable and stays as long as the process; for queues of the card. */
struct vb_dpa_view vb_process_lasting(struct flexio_process *process, uint64_t addr, uint64_t size);
void *vb_process_queue_memory(struct flexio_process *process, uint64_t addr, uint64_t size);

/* One page with the thread's context in front, the rest free for the caller. */
int vb_guest_init(struct guest *guest, struct flexio_process *process, enum guest_kind kind,
		  const char *name, uint64_t tls, uint32_t flags, uint64_t extra);
void vb_guest_free(struct guest *guest);
/* After each run: print what the thread's stdout still holds. */
void vb_guest_flush(struct guest *guest);

/* ---- window.c -------------------------------------------------------------------------------- */

/* A VB_RTOS_WINDOW_* call of the thread; its result. */
uint64_t vb_window_call(struct guest *guest, struct vb_dpa_thread *thread, uint64_t number,
			const uint64_t *args);
/* The thread is about to be destroyed. */
void vb_windows_release(struct guest *guest);
/* The region behind one of its windows, by the thread itself. False: there is none (any more). */
bool vb_window_region(const struct guest *guest, unsigned int entity, struct vb_mr_info *info);

/* ---- uar.c ----------------------------------------------------------------------------------- */

int vb_flexio_uar_init(struct flexio_process *process);
void vb_flexio_uar_finish(struct flexio_process *process);
/*
 * The UAR for a queue on this adapter: the one with this id, or its extension. Counts a user; NULL
 * after a log line.
 */
struct flexio_uar *vb_flexio_uar_hold(struct flexio_process *process, uint32_t id,
				      const struct vb_adapter *adapter);
void vb_flexio_uar_release(struct flexio_uar *uar);
/* The owner of queues that its process made on this adapter. */
uint64_t vb_flexio_uar_owner(const struct flexio_process *process,
			     const struct vb_adapter *adapter);
/* The owner behind an id that device code names; 0: no such UAR. */
uint64_t vb_flexio_uar_owner_by_id(struct flexio_process *process, uint64_t id);

/* ---- outbox.c -------------------------------------------------------------------------------- */

/* Above device memory, below the windows. */
#define OUTBOX_PAGE (1ULL << 40)
#define OUTBOX_SIZE 4096

int vb_outbox_init(struct flexio_process *process);
/* Back to the process's own outbox. */
void vb_outbox_reset(struct guest *guest);
/* VB_RTOS_OUTBOX_CONFIG, _EXTEND and VB_RTOS_CROSS_DB. False: refused. */
bool vb_outbox_config(struct guest *guest, uint64_t id);
bool vb_outbox_extend(struct guest *guest, uint64_t device_id);
bool vb_outbox_cross_db(struct guest *guest, uint64_t device_id, uint64_t qpn, uint64_t pi);

/* ---- ecalls.c -------------------------------------------------------------------------------- */

extern const struct vb_dpa_ops vb_rtos_ops;
/*
 * A run of the thread is over, in any way. If its error handler ran, this decides whether the
 * process goes on.
 */
void vb_guest_ended(struct guest *guest);
