/* SPDX-License-Identifier: MIT */
/*
 * What the files of this folder share: the objects behind dpa.h.
 *
 * Locks, taken in this order: process.snapshot_lock, process.cpus_lock, process.lock (windows),
 * dpa.lock (threads' states and run queues), space.lock (page rights) or the lock of mem_file.c. None
 * is held over a callback.
 */
#pragma once

#include <pthread.h>

#include "base/file.h"
#include "base/time.h"
#include "base/util.h"
#include "dpa/cpu/cpu.h"
#include "dpa/cpu/jit/jit.h"
#include "dpa/observe/debug.h"
#include "control/show/dpa.h"

/* ---- mem.c: guest memory below the limit ---- */

enum { SPACE_FILED = 2 + 6 }; /* the heap, and that of malloc; data of the program */

/* Guest addresses whose pages lie in the space's file. */
struct filed_range {
	uint64_t addr, len;
	void *copy; /* during a fork, for the child; NULL: no room */
};

struct space {
	uint8_t *base; /* host address of guest 0 */
	uint64_t limit;
	void *region; /* table, guard, guest, guard */
	size_t region_len;
	bool whole;  /* all that 32 bits can name is reserved: translated code may run */
	void *table; /* for the translator */
	size_t table_len;
	uint64_t page;  /* host page size */
	uint8_t *pages; /* rights of each page, enum vb_dpa_rights; PAGE_RESERVED: unmapped on
			   purpose */
	uint64_t next;  /* where the search for free pages starts */
	pthread_mutex_t lock;
	/* What follows is mem_file.c's, under its lock. */
	struct vb_file file; /* fd -1: none */
	pid_t owner;         /* the process that made it */
	struct filed_range filed[SPACE_FILED];
	unsigned int num_filed;
	struct space *next_filed;
};

#define PAGE_RESERVED 0x80

/* whole: try to reserve what translated code needs; space->whole says whether there was room. */
int vb_space_create(struct space *space, uint64_t limit, uint64_t text_span, bool whole);
void vb_space_destroy(struct space *space);
/*
 * guard: keep so many pages below unmapped. addr == 0: anywhere. rights may be 0: reserve only.
 */
int vb_space_map(struct space *space, uint64_t *addr, uint64_t len, unsigned int rights,
		 uint64_t guard);
/* Pages that were kept unmapped get memory. */
int vb_space_open(struct space *space, uint64_t addr, uint64_t len);
int vb_space_unmap(struct space *space, uint64_t addr, uint64_t len);
/* Of host code; whether there is memory shows when it is touched. */
static inline struct vb_dpa_view vb_space_view(const struct space *space, uint64_t addr)
{
	return (struct vb_dpa_view){ (uintptr_t)space->base + addr };
}
bool vb_space_holds(struct space *space, uint64_t addr, uint64_t len, unsigned int rights);
/* Copy what can be read or executed; -EFAULT, also where somebody unmaps it at the same time. */
int vb_space_read(struct space *space, uint64_t addr, void *to, uint64_t len);

/* ---- mem_file.c: pages that peers can map ---- */

/* Untouched pages that are mapped, readable and writable, go into the file, where that is good; 0. */
int vb_space_into_file(struct space *space, uint64_t addr, uint64_t len);
/* Whether any page of it lies there. */
bool vb_space_is_filed(struct space *space, uint64_t addr, uint64_t len);
/*
 * The first pages from addr on that somebody may have written, [*from, *to), of those that lie in the
 * file one behind the other; empty, at their end, where there are none. False: addr lies elsewhere.
 */
bool vb_space_written(struct space *space, uint64_t addr, uint64_t *from, uint64_t *to);
/* All of them are unmapped; peers are waited for. */
void vb_space_leave_file(struct space *space);

/* ---- elf.c: what a file says ---- */

struct elf_segment {
	uint64_t addr, filesz, memsz, offset;
	unsigned int rights;
};

struct symbol {
	uint64_t addr, size;
	const char *name;
	bool code;
};

struct elf_program {
	uint64_t entry;
	uint64_t bias; /* added to all addresses of the file: 0, or where a PIE went */
	struct elf_segment segments[32];
	unsigned int nsegments;
	uint64_t loaded;                                     /* bytes of the file in all segments */
	uint64_t tls_addr, tls_filesz, tls_memsz, tls_align; /* tls_memsz == 0: none */
	uint64_t dynamic, dynamic_len;                       /* of a PIE */
	struct symbol *symbols;                              /* sorted by address */
	size_t nsymbols;
	char *names; /* the strings that names point into */
};

int vb_elf_read(const void *image, size_t len, uint64_t limit, struct elf_program *program,
		struct vb_dpa_error *error);
/* Fill mapped, writable memory with the segments and apply the relocations of a PIE. */
int vb_elf_load(const void *image, const struct elf_program *program, uint8_t *base,
		struct vb_dpa_error *error);
void vb_elf_free(struct elf_program *program);
int vb_elf_symbol(const struct elf_program *program, const char *name, uint64_t *value,
		  uint64_t *size);
/* Record why, return error number: `return elf_fail(error, -ENOEXEC, "...")`. */
int vb_elf_fail(struct vb_dpa_error *error, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- process.c ---- */

struct check;
struct observation;
struct debugged;
struct samples;

struct vb_dpa_process {
	struct vb_dpa *dpa;
	bool held; /* by a debugger; written under cpus_lock and dpa.lock, read under either */
	struct space space;
	struct vb_text text;
	struct elf_program program;
	const struct vb_dpa_ops *ops;
	void *ops_arg;
	uint64_t stack_size, stack_spare; /* of its threads, whole pages */
	char name[64];
	uint8_t number; /* in notes of the timeline; from 1, and 1 again after 255 */
	uint64_t global_pointer;
	pthread_mutex_t cpus_lock;
	struct vb_cpu *cpus; /* of its threads, the oldest first; this and below under cpus_lock */
	struct vb_cpu **cpus_end; /* the link of the youngest */
	uint32_t last_number;     /* of a thread */
	pthread_mutex_t
		snapshot_lock; /* one set of snapshots is taken at a time; before cpus_lock */
	pthread_mutex_t lock;
	struct vb_dpa_window *windows;       /* under lock */
	_Atomic(struct vb_text *) run_text;  /* what threads execute: text, or an observed copy */
	struct observation *observation;     /* NULL until the first observer; observe.c */
	_Atomic(struct debugged *) debugged; /* NULL until the first debugger; debug.c */
	struct check *check;                 /* NULL: not checked */
	struct samples *samples;             /* NULL: no profile; sample.c */
};

/* ---- observe.c: who watches a process ---- */

enum observe_client {
	OBSERVE_CHECK, /* asked first of an access: what it refuses is a trap, nobody else's business */
	OBSERVE_DEBUG,
	OBSERVE_CLIENTS
};

/* As struct vb_observer, which asks the clients one after the other. */
struct observe_ops {
	enum vb_seen (*mark)(struct vb_dpa_thread *thread, void *arg); /* or NULL */
	enum vb_seen (*access)(struct vb_dpa_thread *thread, uint64_t addr, unsigned int size,
			       unsigned int kind, void *arg); /* or NULL */
	void *arg;
};

/*
 * Begin, or with NULL end, to observe. Threads may be calling ops for a while after they were
 * changed or ended: they, and what they lead to, last as long as the process. -ENOMEM.
 */
int vb_observe(struct vb_dpa_process *process, enum observe_client client,
	       const struct observe_ops *ops);
/* Of a client that observes. -EFAULT: no instruction. A call of ops.mark for an address that only the other client has
 * marked does not happen. */
int vb_observe_mark(struct vb_dpa_process *process, enum observe_client client, uint64_t pc,
		    bool set);
void vb_observe_free(struct vb_dpa_process *process);

/* ---- check.c: checked mode ---- */

#define CHECK_COPIES 8

/* Of a thread; by the host thread that runs it. */
struct check_thread {
	uint64_t sp;    /* at the last access, or when the thread was started */
	bool sp_loaded; /* that was a load into sp */
	uint64_t worked;
	uint64_t copies[CHECK_COPIES]; /* instret of stores to come whose value nobody wrote */
	unsigned int ncopies;
	enum vb_dpa_why why; /* of the stop that was asked for */
};

/* checks: enum vb_check. What was begun is ended by vb_check_end, on error too. -ENOMEM. */
int vb_check_begin(struct vb_dpa_process *process, uint32_t checks, const void *elf, size_t len);
void vb_check_end(struct vb_dpa_process *process);
/* Of a checked process: before an ecall is answered. */
void vb_check_ecall(struct vb_dpa_thread *thread);
/* The range is being unmapped, in any process. */
void vb_check_forget(struct vb_dpa_process *process, uint64_t addr, uint64_t len);

/* ---- sample.c: profiles ---- */

/* Begins one where the environment asks for it; -errno after error was filled. */
int vb_sample_begin(struct vb_dpa_process *process, const void *elf, size_t len,
		    struct vb_dpa_error *error);
/* No thread runs any more. */
void vb_sample_end(struct vb_dpa_process *process);

typedef enum vb_dpa_why vb_sample_run(struct vb_dpa_thread *thread, uint64_t max, bool exact,
				      bool *yielded);
/* Run it, with stops for samples. */
enum vb_dpa_why vb_sample_pass(struct vb_dpa_thread *thread, uint64_t max, bool exact,
			       bool *yielded, vb_sample_run *run);

/* ---- unwind.c ---- */

/* For many questions, one at a time: elf stays. NULL: there is no description, or no libdw. */
struct vb_unwinder *vb_unwinder_open(const struct vb_dpa_process *process, const void *elf,
				     size_t len);
/* As vb_dpa_unwind(). */
unsigned int vb_unwinder_walk(struct vb_unwinder *u, const struct vb_dpa_state *state,
			      int (*read)(void *arg, uint64_t addr, uint64_t *word), void *arg,
			      uint64_t *addrs, unsigned int max);
void vb_unwinder_close(struct vb_unwinder *u);

/* ---- window.c ---- */

/* The vb_access_source of a process's threads. */
bool vb_window_find(void *arg, struct vb_dpa_thread *thread, uint64_t addr,
		    struct vb_access_entry *entry);
/* All that are left; no thread exists any more. */
void vb_windows_free(struct vb_dpa_process *process);

/* ---- thread.c, sched.c ---- */

enum thread_state {
	THREAD_IDLE,    /* state is the caller's */
	THREAD_HANDED,  /* on its way to an EU, maybe in the box of a host thread */
	THREAD_READY,   /* in the run queue of its EU */
	THREAD_RUNNING, /* on an EU, or on a lent host thread */
	THREAD_BLOCKED, /* waits for a wake */
	THREAD_HELD,    /* by a debugger; in no queue */
};

/* A trap that a debugger keeps back. */
enum trap_kept { TRAP_NONE, TRAP_KEPT, TRAP_TOLD };

struct vb_dpa_thread {
	struct vb_cpu cpu; /* first, so that one is found from the other */

	/*
	 * Does not change, or rarely: whoever starts the thread reads it without taking the line
	 * away.
	 */
	_Alignas(64) struct vb_dpa_process *process;
	atomic_uint last;                /* host thread that ran it last */
	uint64_t stack_addr, stack_size; /* without the guard page */
	uint64_t stack_spare;            /* between the two, unmapped until it is used */
	uint64_t tls_addr, tls_len, tp;
	enum vb_dpa_affinity affinity;
	unsigned int *group; /* STRICT: one entry */
	unsigned int group_size;
	void *user;
	struct vb_shown_thread *shown; /* or NULL */
	struct vb_shown_counting counting;
	char name[32];
	uint32_t number;      /* vb_dpa_thread_number */
	struct vb_cpu **link; /* what leads to it in the process's list; under cpus_lock */

	/* What a start changes, on one line. Written under dpa.lock, but: its controlling caller takes it from IDLE to HANDED or
	 * RUNNING, and back from a lent RUNNING, without. */
	_Alignas(64) _Atomic(enum thread_state) state;
	atomic_bool stop;    /* stop asked for */
	atomic_uint waiters; /* for it to become idle; who makes it idle without the lock looks */
	enum vb_dpa_why why; /* of the last time it became idle */
	/* A snapshot of it is wanted: whoever runs it takes it first. Written under dpa.lock. */
	_Atomic(struct vb_dpa_snapshot *) snapshot;
	bool lent;       /* runs on its caller's host thread, which gets the result itself */
	bool stay;       /* a debugger holds this thread while others run; under dpa.lock */
	bool awaited;    /* it executes, and is to stop; under dpa.lock */
	bool dying;      /* runs while the process is held; under dpa.lock */
	uint64_t starts; /* by whoever takes it out of IDLE */

	/* under dpa.lock */
	bool wake;              /* a wake came before the block */
	bool quiet;             /* a call in deterministic mode: no done callback */
	unsigned int finishing; /* done callbacks under way; it must not go away */
	unsigned int eu;
	struct vb_dpa_thread *run_next;
	pthread_cond_t changed; /* it became idle, or a lent one was woken */

	/* written by the host thread that runs it */
	bool begun;    /* it has executed a slice of the call that it was prepared for */
	bool diverted; /* by the trap callback that is under way */
	/* A debugger wants more than that it runs: steps, or a trap to be delivered. */
	atomic_bool ordered;
	uint64_t bound;       /* of cpu.s.instret; 0: none */
	uint64_t entry;       /* pc of the last call */
	bool sampled;         /* sample.c has set the next, */
	uint64_t sample_next; /* of cpu.s.instret */
	struct check_thread check;
	/* counters */
	uint64_t busy_ticks, slices, traps;

	/* debug.c: written by the host thread that runs it, and under dpa.lock while none does */
	struct {
		bool step; /* until pc leaves [from, to) */
		uint64_t from, to;
		enum trap_kept trap;
		uint64_t trap_pc;
		uint64_t pass_pc, pass_instret; /* a breakpoint that does not count */
		uint64_t hit_addr;              /* of the access under way */
		unsigned int hit;               /* enum vb_dpa_watch; 0: no watchpoint */
		uint64_t met_addr;              /* the same, to be told at the next resume */
		unsigned int met;
	} debug;
};

/* ---- sched.c ---- */

struct eu {
	struct vb_dpa_thread *head, *tail; /* ready threads */
	unsigned int load;                 /* ready and running threads */
	bool queued;                       /* in the list of EUs that have something to do */
	bool busy;                         /* a host thread is running one of its threads */
	struct eu *next;                   /* in that list */
	uint64_t slices, instructions, busy_ticks;
	uint16_t traced;    /* slices that were; by the host thread that is on the EU */
	unsigned int slow;  /* vb_dpa_eu_hamper() */
	unsigned int skips; /* turns to pass over before its next slice */
	uint64_t last_ns;   /* how long its last slice took, where it is slow */
};

/*
 * A host thread that drives EUs. The box is how others reach it: BOX_BUSY, BOX_SPINNING or
 * BOX_SLEEPING by itself, then, by the one who finds it open, BOX_POKED or a thread to run.
 */
struct worker {
	_Alignas(64) _Atomic uintptr_t box;
	struct vb_dpa *dpa;
	unsigned int index;
	pthread_t thread;
};

struct vb_dpa {
	/* Does not change, or rarely: on a line that stays where it is read. */
	struct eu *eus;
	unsigned int neus;
	unsigned int host_threads; /* how many there may be */
	unsigned int slice;
	unsigned int spin_us;
	void (*poll)(void *arg); /* or NULL */
	void *poll_arg;
	_Atomic uint64_t *shown_busy; /* vb_dpa_show_eus(), or NULL */
	bool deterministic;
	atomic_bool held;     /* vb_dpa_hold */
	atomic_uint nworkers; /* started */

	_Alignas(64) pthread_mutex_t lock;  /* of everything below, but what is atomic */
	struct eu *ready_head, *ready_tail; /* EUs with ready threads that no host thread runs */
	unsigned int nready;
	uint64_t rng;       /* deterministic mode */
	unsigned int rotor; /* where the search for an idle EU starts, as an index of the pool */
	unsigned int *pool; /* EUs of threads without affinity; NULL: all */
	_Atomic unsigned int pool_size; /* written under lock */
	unsigned int nprocesses;
	atomic_uint busy_eus; /* EUs with load; written under lock */
	bool quit;
	pthread_mutex_t turn; /* deterministic mode: who holds it executes guest code */
	uint64_t retired;     /* deterministic mode: by all threads so far; under turn */
	struct worker workers[64];
};

/* A HANDED thread goes to an EU: to a host thread that waits, or into the queues. No lock held. */
void vb_sched_hand(struct vb_dpa_thread *thread);
/* Under dpa.lock: take a READY thread out of its run queue. */
void vb_sched_remove(struct vb_dpa_thread *thread);
/* Under dpa.lock: into the run queue of an EU, unless it is to stop or is held. */
void vb_sched_ready(struct vb_dpa_thread *thread);
/* After vb_sched_ready, without dpa.lock: host threads that wait look into the queues. */
void vb_sched_poke(struct vb_dpa *dpa);
/* Start the host threads if they are not there yet. */
int vb_sched_workers(struct vb_dpa *dpa);
/* Under dpa.lock: the thread is idle now. */
void vb_thread_idle(struct vb_dpa_thread *thread, enum vb_dpa_why why);
/* Run the done callback of a thread that vb_thread_idle was called for with finishing set. */
void vb_thread_done(struct vb_dpa_thread *thread, enum vb_dpa_why why);

/* Execute max instructions of a RUNNING thread, with its callbacks; if not exact, perhaps some
 * less (VB_CPU_EARLY). */
enum vb_dpa_why vb_thread_run_slice(struct vb_dpa_thread *thread, uint64_t max, bool exact,
				    bool *yielded);
/* The same, but a trap has led to nothing yet. */
enum vb_dpa_why vb_thread_pass(struct vb_dpa_thread *thread, uint64_t max, bool exact,
			       bool *yielded);
/* What a trap leads to: VB_DPA_WHY_TRAP, or BUDGET if the callback diverted the thread. */
enum vb_dpa_why vb_thread_trap(struct vb_dpa_thread *thread);

/* ---- debug.c ---- */

/* Under dpa.lock: whether a debugger keeps the thread from running. */
static inline bool vb_debug_holds(const struct vb_dpa_thread *thread)
{
	return (thread->process->held || thread->stay) && !thread->dying;
}

/* Under dpa.lock: the thread, which is awaited, does not execute any more, or not now. */
void vb_debug_count_out(struct vb_dpa_thread *thread);

static inline void vb_debug_out(struct vb_dpa_thread *thread)
{
	if (__builtin_expect(thread->awaited, 0))
		vb_debug_count_out(thread);
}

/* Under dpa.lock: the thread was stopped, and goes on as if nothing had been asked of it. */
void vb_debug_forget(struct vb_dpa_thread *thread);
/* An observer made it come out: true if it must stop for that. */
bool vb_debug_seen(struct vb_dpa_thread *thread);
/* It trapped: true if it stops, and vb_debug_run_slice() delivers the trap later. */
bool vb_debug_trap(struct vb_dpa_thread *thread);
/* vb_thread_run_slice() of a thread that is `ordered`, but for the counters. */
enum vb_dpa_why vb_debug_run_slice(struct vb_dpa_thread *thread, uint64_t max, bool exact,
				   bool *yielded);
/* The process goes. */
void vb_debug_free(struct vb_dpa_process *process);
/* The process of a debugger, with all locks taken; NULL, and none, if it is not stopped. */
struct vb_dpa_process *vb_debug_enter(struct vb_dpa_debug *debug);
void vb_debug_leave(struct vb_dpa_process *process);

/* ---- show.c: what the event tracer sees of a slice ---- */

struct show {
	struct vb_shown_slice slice;
	struct vb_shown_stamp stamp; /* when it began */
};

/* In front of and behind a slice; ticks: now, and how many it took. */
void vb_show_in(struct vb_dpa_thread *thread, struct show *show, uint64_t state, uint64_t ticks);
void vb_show_out(struct vb_dpa_thread *thread, struct show *show, uint64_t ticks, uint64_t retired);

/* ---- snapshot.c ---- */

/* By the host thread that is about to run it: take the snapshot that is wanted. */
void vb_snapshot_answer(struct vb_dpa_thread *thread);
