/* SPDX-License-Identifier: MIT */
/* A thread of device code as the host sees it: its context, what it did last, calls on it. */
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

#include "base/lock.h"
#include "card/memory/mr.h"
#include "control/show/dpa.h"
#include "device/rtos.h"
#include "dpa/dpa.h"

struct crash;
struct flexio_process;

/* ---- call.c: RPCs ---------------------------------------------------------------------------- */

enum { CALL_SLOTS = 256 };

/* How a guest thread ended its run, where an ecall said so. */
enum thread_end {
	END_NONE, /* by returning */
	END_RESCHEDULE,
	END_FINISH,
	END_RETRIGGER,
	END_PROCESS,   /* the process is over */
	END_TIMEOUT,   /* a call, or an error handler, ran out of time */
	END_RECOVERED, /* it faulted, and the error handler ended by rescheduling */
};

/* A memory region that a guest thread sees through a window (window.c). */
struct window_map {
	struct vb_mr_watch watch; /* first; of the region's key */
	uint64_t base;            /* of the guest addresses */
	struct vb_lock lock;      /* of what is below */
	_Atomic bool live;        /* the key and the window object are there */
	struct vb_mr_info info;
	unsigned int changes; /* of info, so far */
	struct vb_dpa_window *dpa;
};

/* One of a guest thread's two windows. Without a lock only the thread itself reads it. */
struct guest_window {
	uint32_t id, mkey;            /* as configured last */
	unsigned int current;         /* map in use; the other one is for the next configuration */
	struct flexio_window *window; /* this and below under the lock of all windows; NULL: none */
	struct guest_window *next;    /* of that window object */
	struct window_map maps[2];
};

enum guest_kind {
	GUEST_CALL,    /* struct call_slot */
	GUEST_HANDLER, /* struct flexio_event_handler */
	GUEST_WORKER,  /* of a command queue */
};

/* ---- events.c: what a guest thread did last ---- */

enum { EVENTS = 16, EVENT_ARGS = 4 };

enum event_kind {
	EVENT_NONE,
	EVENT_CALL,     /* of the run-time system; number: VB_RTOS_*, args: a0 to a3 */
	EVENT_RPC,      /* number: of arguments; args: the function, then they */
	EVENT_HANDLER,  /* an event handler begins; args: function, argument */
	EVENT_TASK,     /* of a command queue; args: function, argument */
	EVENT_DOORBELL, /* args: register, value */
};

struct event {
	uint64_t instret; /* of the thread, when it happened last */
	uint64_t result;  /* of a call or doorbell */
	uint16_t kind, number;
	uint32_t times; /* in a row, with the same arguments */
	uint64_t args[EVENT_ARGS];
};

/* A ring, written by the host thread that runs the guest thread or is about to start it. */
struct events {
	unsigned int next;
	struct event list[EVENTS];
};

/* Note an event; its result, if it has one, is written to what this returns. */
static inline struct event *vb_event_note(struct events *events, uint64_t instret,
					  enum event_kind kind, uint64_t number,
					  const uint64_t args[EVENT_ARGS])
{
	struct event *e = &events->list[(events->next - 1) % EVENTS];
	uint16_t shown = number < UINT16_MAX ? (uint16_t)number : UINT16_MAX;

	if (e->kind == kind && e->number == shown && e->args[0] == args[0] &&
	    e->args[1] == args[1] && e->args[2] == args[2] && e->args[3] == args[3]) {
		e->instret = instret;
		e->times++;
		return e;
	}
	e = &events->list[events->next++ % EVENTS];
	*e = (struct event){ .instret = instret,
			     .kind = (uint16_t)kind,
			     .number = shown,
			     .times = 1,
			     .args = { args[0], args[1], args[2], args[3] } };
	return e;
}

/* In words, the oldest first; now: instructions of the thread at the end. */
void vb_events_print(FILE *out, const struct flexio_process *process, const struct events *events,
		     uint64_t now);

/* What the user pointer of a guest thread points to; first in the struct of its kind. */
struct guest {
	struct flexio_process *process;
	struct vb_dpa_view ctx; /* struct vb_rtos_thread: written here, never trusted when read */
	uint64_t ctx_addr;
	uint32_t thread_id;
	enum guest_kind kind;
	bool continuable;
	uint64_t len;        /* of the guest memory behind ctx_addr */
	enum thread_end end; /* written by the thread's ecall, read after its run */
	bool lent; /* a call on its caller's host thread, which writes messages out itself */
	/* of a call or an error handler, in ns of vb_now_ns(); 0: the clock has not started */
	uint64_t deadline;
	uint64_t worked; /* units of enum work since a call looked at the clock */
	int fault;       /* status of the fault whose error handler runs on the thread; 0: none */
	struct crash *crash; /* of that fault, or NULL */
	struct guest_window windows[2];
	/* outbox.c: what its doorbells go to; written by the thread itself, or before it runs */
	struct vb_card *card;
	uint64_t owner;     /* see vb_doorbell_send() */
	uint16_t outbox_id; /* 0: the process's own */
	uint64_t uctl;      /* the outbox's registers: control, */
	uint64_t buffer;    /* and what was read last */
	uint64_t cc_high;   /* upper half of the next doorbell of congestion control */
	struct events events;
	struct vb_shown_thread shown; /* to tools */
};

/* What a device thread can use of its stack; behind what a card has there is a warning. */
enum { STACK_MOST = 65536 };

/* A field of its context. What a fault takes away reads as 0. */
#define ctx_get(guest, field) vb_view_get((guest)->ctx, VB_VIEW_FIELD(struct vb_rtos_thread, field))
#define ctx_put(guest, field, value) \
	vb_view_put((guest)->ctx, VB_VIEW_FIELD(struct vb_rtos_thread, field), value)

struct call_slot {
	struct guest guest; /* first */
	_Atomic bool busy;
	struct vb_lock lock; /* of thread, against vb_calls_halt */
	struct vb_dpa_thread *thread;
	_Atomic unsigned int ended; /* futex of a queued call: SLOT_* of call.c */
	enum vb_dpa_why why;        /* how it ended */
	_Atomic(const char *) what; /* what is being called, for log lines and debuggers */
	uint64_t argbuf_addr;       /* in guest memory, behind the context */
	uint64_t argbuf[VB_RTOS_ARGBUF_SIZE / 8]; /* what goes there */
	struct call_slot *next_spare;
} __attribute__((aligned(64)));

/* Start the clock of a call or an error handler, or look at it: true if its time is over. */
bool vb_call_late(struct guest *guest);
/*
 * What the host does for one instruction of a guest: slices count instructions, and this is the rest. A call
 * looks at the clock after WORK_LOOK units.
 */
enum work {
	WORK_LOOK = 64,
	WORK_CALL = 1,
	WORK_DOORBELL = 16,
	WORK_MESSAGE = 16,
	WORK_CONFIG = 16,      /* of a window: membarrier(2) */
	WORK_BYTES_SHIFT = 12, /* a unit for so many bytes that are copied or printed */
};
/* Units of work were done. True: the time of this call is over, and guest.end says so. */
bool vb_call_worked(struct guest *guest, uint64_t units);
/* The thread of a queued call left its EU. */
void vb_call_done(struct guest *guest, enum vb_dpa_why why);
/* What a thread calls, as a debugger shows it: "RPC FUNCTION". No effect: no call, or not its thread. */
void vb_calls_name(struct flexio_process *process, uint32_t thread, char *name, size_t size);
/* Stop calls under way; each ends with FATAL_ERR. Does not wait. */
void vb_calls_halt(struct flexio_process *process);
void vb_calls_open(struct flexio_process *process);
/* False: a call is under way, or calls are not open. */
bool vb_calls_destroy(struct flexio_process *process);
/*
 * Call a device function without arguments, on a thread of its own. what: its description in log
 * lines. 0, or -EFAULT after a reason.
 */
int vb_call_plain(struct flexio_process *process, uint64_t pc, const char *what);
/*
 * The thread is about to be destroyed in the middle of its work. If it holds malloc's lock, all
 * other threads would wait for that lock for ever. So it may run a little further.
 */
void vb_guest_grace(struct guest *guest, struct vb_dpa_thread *thread);
