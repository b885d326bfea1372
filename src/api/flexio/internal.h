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

#include "meet/eus.h"
#include "host/shared/arena.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/rate.h"
#include "base/refusal.h"
#include "base/time.h"
#include "control/record/timeline.h"
#include "base/util.h"
#include "card/card.h"
#include "device/rtos.h"
#include "dpa/dpa.h"
#include "gdb/listen.h"
#include "control/show/dpa.h"
#include "control/show/monitor.h"

/* ---- log.c: the host log, and why a call fails ----------------------------------------------- */

extern _Atomic int vb_flexio_log_level;

void vb_flexio_log(const char *function, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Log lines that are not about a failing call: about device threads, queues and streams. They name
 * the function that writes them.
 */
#define log_at(level, ...)                                                                       \
	do {                                                                                     \
		if (atomic_load_explicit(&vb_flexio_log_level, memory_order_relaxed) >= (level)) \
			vb_flexio_log(__func__, __LINE__, __VA_ARGS__);                          \
	} while (0)
/* Lines that device code can cause again and again: some a second, and a count of the others. */
#define log_some(level, fmt, ...)                                                                  \
	do {                                                                                       \
		static struct vb_rate rate;                                                        \
		struct vb_rate_words more;                                                         \
		uint32_t held_back;                                                                \
                                                                                                   \
		if (atomic_load_explicit(&vb_flexio_log_level, memory_order_relaxed) >= (level) && \
		    vb_rate_allows(&rate, &held_back))                                             \
			vb_flexio_log(__func__, __LINE__, fmt "%s", __VA_ARGS__,                   \
				      vb_rate_tell(&more, held_back));                             \
	} while (0)
#define log_err(...)  log_at(FLEXIO_LOG_LVL_ERR, __VA_ARGS__)
#define log_warn(...) log_at(FLEXIO_LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...) log_at(FLEXIO_LOG_LVL_INFO, __VA_ARGS__)

/*
 * The public function that this thread is in. API_CALL() is the first statement of each; a public
 * function does not call another one, so nothing has to be put back.
 */
struct vb_api_call {
	const char *function; /* NULL: it never was in one */
	bool said;            /* the reason of its failure is in the log */
};

extern _Thread_local struct vb_api_call vb_api_call __attribute__((tls_model("initial-exec")));

static inline void vb_api_begin(const char *function)
{
	vb_api_call = (struct vb_api_call){ function, false };
}

/* A call as the timeline shows it, to the end of its scope. */
struct api_span {
	const char *function;
	uint64_t start; /* 0: nobody records */
};

void vb_api_note(const struct api_span *span) __attribute__((cold));

static inline struct api_span api_span_begin(const char *function)
{
	vb_api_begin(function);
	return (struct api_span){ function, vb_timeline_is_on() ? vb_timeline_now() : 0 };
}

static inline void api_span_end(struct api_span *span)
{
	if (__builtin_expect(span->start != 0, 0))
		vb_api_note(span);
}

#define API_CALL()                                                                 \
	struct api_span api_span_ __attribute__((cleanup(api_span_end), unused)) = \
		api_span_begin(__func__)

/*
 * Say why the public call fails, in its name, wherever that is decided: "<function> <line> -
 * <text>". Only the first reason counts, so each failing call leaves one line. The result is
 * FLEXIO_STATUS_FAILED, for `return fail("...")`.
 */
#define fail(...) vb_flexio_fail(__func__, __LINE__, __VA_ARGS__)
flexio_status vb_flexio_fail(const char *function, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A helper failed. If it has not logged the reason, this logs at least the failure. */
#define failed() fail("something inside failed, and did not say why")
/* An invalid handle; what: the kind of object. */
#define bad_handle(handle, what) vb_flexio_bad_handle(__func__, __LINE__, handle, what)
flexio_status vb_flexio_bad_handle(const char *function, int line, const void *handle,
				   const char *what);

/*
 * Why the card, or libibverbs, refuses something becomes part of our line instead of one of its
 * own: CARD_WORDS(words) in front of what may be refused, for the rest of the scope; then
 * card_reason(&words, err).
 */
struct card_words {
	struct vb_call call;
	char text[256]; /* empty: nothing was refused */
};

static inline void card_words_begin(struct card_words *words)
{
	words->text[0] = 0;
	words->call = (struct vb_call){ .function = "libflexio",
					.nested = true,
					.words = words->text,
					.words_size = sizeof(words->text) };
	vb_call_begin(&words->call);
}

static inline void card_words_end(struct card_words *words)
{
	vb_call_end(&words->call);
}

/* err: -errno. */
static inline const char *card_reason(const struct card_words *words, int err)
{
	return words->text[0] ? words->text : strerror(-err);
}

#define CARD_WORDS(name)                                                 \
	struct card_words name __attribute__((cleanup(card_words_end))); \
	card_words_begin(&name)

/* ---- handle.c: which handles are alive ------------------------------------------------------- */

enum handle_kind {
	HANDLE_APP = 1,
	HANDLE_APP_LIST,
	HANDLE_PROCESS,
	HANDLE_MKEY,
	HANDLE_STREAM,
	HANDLE_EVENT_HANDLER,
	HANDLE_UAR,
	HANDLE_WINDOW,
	HANDLE_QUEUE, /* all of queue.h */
	HANDLE_OUTBOX,
	HANDLE_CMDQ,
	HANDLE_EMU,
	HANDLE_KINDS,
};

/* False: no memory. */
bool vb_handle_add(enum handle_kind kind, const void *handle);
/* Whether the handle is valid now; does not read the object. NULL is not valid. */
bool vb_handle_valid(enum handle_kind kind, const void *handle);

/*
 * Keep an object alive for the time of one call. NULL: the handle is not valid. Every public
 * function that takes a handle begins with
 *
 *	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_MKEY, mkey);
 *
 *	API_CALL();
 *	if (!pin)
 *		return bad_handle(mkey, "mkey");
 *
 * and the pin is released when the function returns. Only flexio_process_call() does without, see
 * call.c.
 */
struct handle *vb_handle_pin(enum handle_kind kind, const void *handle);
void vb_handle_unpin(struct handle **pin);
#define AUTO_UNPIN __attribute__((cleanup(vb_handle_unpin)))
/*
 * End the life of the pinned object: from now on new pins fail; the function releases this pin and
 * waits until all others are released. So the caller must not hold a lock that a pinned function
 * takes. False: another thread ends it, or there is no pin.
 */
bool vb_handle_end(struct handle **pin);
/* Each object of this kind, pinned. */
void vb_handles_visit(enum handle_kind kind, void (*visit)(void *handle, void *arg), void *arg);

/* ---- accelerator.c: the accelerator of an adapter -------------------------------------------- */

struct accel {
	char name[VB_NAME_MAX]; /* of the adapter */
	struct vb_dpa *dpa;
	unsigned int users;        /* processes; under the table's lock */
	uint64_t timeout_ns;       /* of an RPC */
	uint64_t heap_size;        /* of a process, in bytes */
	uint64_t stack_size;       /* of a device thread; behind it there is more, with a warning */
	uint32_t check;            /* enum vb_check */
	atomic_bool lend;          /* calling threads may run device code themselves */
	_Atomic unsigned int lent; /* host threads that lend themselves to a call now */
	struct vb_monitor_place shown;
	_Atomic uint64_t *busy; /* what is shown of its EUs, or NULL */
	uint64_t busy_offset;

	struct vb_eus_user *eus;  /* groups and partitions of its execution units */
	bool in_partition;        /* of another adapter: its EU numbers are virtual */
	_Atomic bool pool_empty;  /* no EU is left for threads without affinity */
	pthread_mutex_t eus_lock; /* of looking at the groups, and of */
	struct vb_eu_set usable;  /* EUs that strict affinity may name */
};

/* The mlx5 adapter behind a context, or NULL. */
const struct vb_adapter *vb_accel_adapter(struct ibv_context *ctx);
int vb_accel_get(struct ibv_context *ctx, struct accel **accel);
void vb_accel_put(struct accel *accel);

/* ---- affinity.c: which execution units a thread may have ------------------------------------- */

/* The pool and the EUs that a view has. 0, or -errno after a log line. */
int vb_accel_use_view(struct accel *accel, const struct vb_eu_view *view);
/* Look whether dpaeumgmt has changed something, and take it over. */
void vb_accel_refresh(struct accel *accel);
/* 0, or -EBUSY after a log line where there is no EU for a thread without affinity. */
int vb_accel_check_pool(struct accel *accel);
/*
 * Check an affinity against the accelerator and translate it. GROUP: attr->group is the caller's to
 * free, and the group is in use until vb_accel_affinity_end().
 */
int vb_accel_affinity(struct accel *accel, const struct flexio_affinity *affinity,
		      struct vb_dpa_thread_attr *attr);
/* group 0: there was none. */
void vb_accel_affinity_end(struct accel *accel, unsigned int group);

/* ---- version.c ------------------------------------------------------------------------------- */

/* NA: no adapter with an accelerator. */
enum flexio_hw_model_id vb_hw_model(struct ibv_context *ctx);
const char *vb_hw_model_name(enum flexio_hw_model_id model);

/* ---- app.c, func.c --------------------------------------------------------------------------- */

/* A registered function. Found by the address of its stub; lives as long as the app. */
struct func {
	struct func *next;   /* in its bucket; written before it is published */
	flexio_func_t *stub; /* of the host; func_register: the address of this struct */
	uint64_t addr;       /* of the device function */
	uint64_t unpack;     /* of the device's unpack function; 0: takes one uint64_t */
	size_t argbuf_size;
	flexio_func_arg_pack_fn_t *pack;
	char name[FLEXIO_MAX_NAME_LEN + 1];
	char unpack_name[FLEXIO_MAX_NAME_LEN + 1];
};

#define FUNC_BUCKETS 64

struct flexio_app {
	char name[FLEXIO_MAX_NAME_LEN + 1];
	_Atomic(enum flexio_hw_model_id) model; /* DEF: not registered */
	void *elf;
	size_t elf_size;
	struct vb_dpa_image *image; /* for symbols */
	pthread_mutex_t mutex;      /* registration */
	struct func *_Atomic funcs[FUNC_BUCKETS];
	_Atomic unsigned int users; /* processes */
	struct flexio_app *next;    /* list of all apps, in the order of creation */
};

/* True where text is a string of 1 to FLEXIO_MAX_NAME_LEN bytes. */
bool vb_name_valid(const char *text);
/* Take a reference: the app cannot be destroyed. False: not a valid app. */
bool vb_app_get(struct flexio_app *app);
void vb_app_put(struct flexio_app *app);
/* NULL: the app has none of this stub. */
const struct func *vb_func_find(struct flexio_app *app, flexio_func_t *stub);
/* Fail because the app has no function of this stub. */
flexio_status vb_func_fail(const struct flexio_app *app, flexio_func_t *stub);

/* ---- memory.c: the device heap --------------------------------------------------------------- */

/* align: a power of two. 0: no room. In checked mode with a red zone behind it. */
uint64_t vb_device_alloc(struct flexio_process *process, uint64_t size, uint64_t align);
/* False: not the address of a block in use. */
bool vb_device_free(struct flexio_process *process, uint64_t daddr);
void vb_device_info(struct flexio_process *process, struct flexio_heap_mem_info *info);

/* ---- recoverable.c --------------------------------------------------------------------------- */

/* Free a buffer of the heap, a recoverable one after its content was copied. False: there is none. */
bool vb_recoverable_free(struct flexio_process *process, uint64_t daddr);
/* All that are left, with the process. */
void vb_recoverables_dump(struct flexio_process *process);

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

/* A ring, written by whoever runs the thread or is about to start it. */
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

/* ---- out.c: text on its way to a file of the program ----------------------------------------- */

struct out {
	FILE *file;
	size_t chunk; /* bytes that go out at a time where writing can block; 0: it cannot */
	bool socket;
	const char *at; /* what is not written yet */
	size_t left;
};

void vb_out_init(struct out *out, FILE *file);
/* The next text, when nothing is left. It must stay until then. */
void vb_out_fill(struct out *out, const char *text, size_t len);
/* Write without waiting. False: the file does not take all now. *err: an errno, and nothing is left. */
bool vb_out_write(struct out *out, int *err);
/* Wait for at most ns until the file takes something. */
bool vb_out_wait(const struct out *out, uint64_t ns);
/* For the time of exit(): false where the program may have closed the file. */
bool vb_out_is_open(const struct out *out);

/* ---- stream.c -------------------------------------------------------------------------------- */

struct flexio_msg_stream;

/* Bytes of one message; no line of the C library is longer either. */
#define MESSAGE_MAX (1U << 20)

/*
 * A message from device code; text is the host's view of device memory. -EFAULT: it was unmapped
 * meanwhile.
 */
int vb_streams_message(struct guest *guest, uint64_t stream, uint64_t level,
		       struct vb_dpa_view text, size_t len);
/* So many traces are in a buffer of a tracer stream; -EINVAL: no such stream or buffer. */
int vb_streams_traces(struct guest *guest, uint64_t stream, uint64_t count, uint64_t buffer,
		      bool full);
/* Write out what synchronous streams still hold. */
void vb_streams_settle(struct flexio_process *process);
void vb_streams_destroy(struct flexio_process *process);
/* The program exits: what streams still hold goes out, but for asynchronous ones. */
void vb_streams_leave(void);
/* In a child of fork(): the streams are the parent's. */
void vb_streams_forked(void);

/* ---- tracer.c -------------------------------------------------------------------------------- */

struct tracer;

enum { TRACER_BUFFERS = 4 };

/* Whether the attributes of a tracer stream can be met; logs why not. */
flexio_status vb_tracer_check(const flexio_msg_stream_attr_t *attr);
/* Under streams_lock for writing. NULL: no memory. Device code stores nothing before a level is set. */
struct tracer *vb_tracer_open(struct flexio_process *process, const flexio_msg_stream_attr_t *attr,
			      int id);
void vb_tracer_level(struct tracer *t, unsigned int level);
/* Level 0, for good; device code that is at a message ends it. Without locks. */
void vb_tracer_stop(struct tracer *t);
/* Under streams_lock for writing. */
void vb_tracer_close(struct tracer *t);
void vb_tracers_free(struct flexio_process *process);
/* So many messages are in a buffer; full: the next one is begun. -EINVAL. */
int vb_tracer_take(struct tracer *t, uint64_t buffer, uint64_t count, bool full);
/* Take what device code has stored and not told. */
void vb_tracer_collect(struct tracer *t);
bool vb_tracer_pending(const struct tracer *t);
/* Messages of one buffer, and how many were lost before; there is room for a buffer. */
uint32_t vb_tracer_out(struct tracer *t, struct vb_rtos_trace *to, uint64_t *lost);
void vb_tracer_print(const struct tracer *t, const struct vb_rtos_trace *msg, FILE *out);

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
/* Device address of the table, 0: there is none for this number. */
uint64_t vb_pcc_table(const struct flexio_process *process, uint64_t vhca_id);
/* A doorbell of a congestion control queue. -ENOENT: the process has none. */
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
	uint64_t levels_addr;           /* device table of levels; 0: the program has none */
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
	char address[384]; /* what the address of a bad access belongs to; empty: there is none */
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

/* ---- rtos.c ---------------------------------------------------------------------------------- */

extern const struct vb_dpa_ops vb_rtos_ops;
/*
 * A run of the thread is over, in any way. If its error handler ran, this decides whether the
 * process goes on.
 */
void vb_guest_ended(struct guest *guest);
