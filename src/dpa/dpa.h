/* SPDX-License-Identifier: MIT */
/*
 * The accelerator, as the rest of the card sees it. This header and debug.h are the only ones of
 * this folder that others include.
 *
 *   vb_dpa                  execution units (EUs) and the few host threads that drive them
 *     `- vb_dpa_process     one program: guest memory, windows, device pages, symbols, text
 *          `- vb_dpa_thread one guest thread: registers, stack, affinity, counters
 *
 * Guest code is RV64IMAC + Zicsr (user counters) Zifencei Zba Zbb Zbs Zbc, lp64. It is hostile:
 * whatever it does ends in a trap callback, never in a host fault.
 *
 * Rules that hold for every function here
 *   - The result is 0 or -errno; outputs are written only on success.
 *   - Functions of different threads may be called at the same time. A thread object takes one
 * controlling caller at a time (start, run, call, destroy); stop, preempt and the counters may come
 * from anywhere.
 *   - Callbacks run on the host thread that executes the guest thread, with no lock of this folder
 * held. They may call anything here except stop, wait or destroy of the calling thread itself.
 *   - A callback must return: leaving it with longjmp, or leaving a signal handler that interrupted
 * guest code with longjmp, is not supported.
 *
 * What counts as an instruction: everything that retires, and an ecall that its callback answered
 * with anything but VB_DPA_TRAP. An instruction that traps does not retire and is not counted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpa/view.h"

#ifdef __cplusplus
extern "C" {
#endif

struct vb_dpa;
struct vb_dpa_process;
struct vb_dpa_thread;
struct vb_dpa_window;
struct vb_dpa_image;
struct vb_shown_thread;

/* Guest addresses at and above this belong to windows and device pages. */
#define VB_DPA_WINDOW_BASE (1ULL << 32)
#define VB_DPA_WINDOW_END  (1ULL << 62)

/* Where a function that was called by vb_dpa_thread_set_call returns to: its thread has ended then. */
#define VB_DPA_RETURN_PC 0xfffffffffffff000ULL

/* The clock that the cycle and time counters show, and how deterministic mode derives both: one
 * tick an instruction. */
#define VB_DPA_CLOCK_HZ 1800000000ULL

/* mcause values of the privileged specification, as far as user code can raise them. */
enum vb_dpa_cause {
	VB_DPA_CAUSE_NONE = 0,
	VB_DPA_CAUSE_FETCH = 1,   /* pc is not in executable memory; tval = the address */
	VB_DPA_CAUSE_ILLEGAL = 2, /* tval = the instruction's bits */
	VB_DPA_CAUSE_BREAKPOINT = 3,
	VB_DPA_CAUSE_LOAD_MISALIGNED = 4,  /* LR only; ordinary loads may be misaligned */
	VB_DPA_CAUSE_LOAD = 5,             /* tval = the effective address, here and below */
	VB_DPA_CAUSE_STORE_MISALIGNED = 6, /* SC and AMO only */
	VB_DPA_CAUSE_STORE = 7,
	VB_DPA_CAUSE_ECALL = 8,
	VB_DPA_CAUSE_CHECK = 25,    /* a finding of checked mode; tval = the address */
	VB_DPA_CAUSE_WATCHDOG = 24, /* the bound of vb_dpa_thread_divert; a custom cause */
};

const char *vb_dpa_cause_name(enum vb_dpa_cause cause);

/*
 * Everything a program can see of a thread. The engine works in this structure itself: callbacks
 * get the live one and may change x[] and pc.
 */
struct vb_dpa_state {
	uint64_t x[32]; /* x[0] reads zero */
	uint64_t sink;  /* no meaning: where writes to x0 go */
	uint64_t pc;    /* of the instruction not yet retired (at an ecall: the ecall) */
	uint64_t cause; /* enum vb_dpa_cause of the last trap */
	uint64_t tval;
	uint64_t instret; /* instructions retired since the thread was created */
};

enum vb_dpa_tier { VB_DPA_TIER_AUTO, VB_DPA_TIER_INTERP, VB_DPA_TIER_JIT };

enum vb_dpa_rights { VB_DPA_READ = 1, VB_DPA_WRITE = 2, VB_DPA_EXEC = 4 };

/* ---- the accelerator ---- */

struct vb_dpa_attr {
	unsigned int eus;          /* 0: 256 */
	unsigned int host_threads; /* 0: as many as there are CPUs, at most 4 */
	unsigned int slice; /* instructions before another ready thread of the EU gets its turn; 0:
			       100,000 */
	unsigned int spin_us; /* how long an idle host thread spins before it sleeps; 0: 20;
				 UINT_MAX: not at all */
	bool deterministic;   /* one host thread, interleaving drawn from seed; VERBATIM_DPA_SEED=n
				 sets both */
	uint64_t seed;
	/* Called by host threads every few microseconds, between instructions of guest code and
	 * while they wait for work: what guest code polls for may need somebody to bring it. Must be
	 * cheap; must not stop or destroy threads. May be NULL. */
	void (*poll)(void *arg);
	void *poll_arg;
};

/* attr may be NULL. Host threads start with the first thread that is started. */
int vb_dpa_create(const struct vb_dpa_attr *attr, struct vb_dpa **dpa);
/* -EBUSY while processes exist. */
int vb_dpa_destroy(struct vb_dpa *dpa);
/*
 * Started threads only queue up while held; lets a caller start many at one moment, the same one in
 * every run.
 */
void vb_dpa_hold(struct vb_dpa *dpa, bool hold);
unsigned int vb_dpa_eu_count(const struct vb_dpa *dpa);
/*
 * The EUs that threads without affinity run on, from their next start; the list is copied. Without
 * one, all. 0, -EINVAL for an empty list or a number that does not exist, or -ENOMEM.
 */
int vb_dpa_set_pool(struct vb_dpa *dpa, const unsigned int *eus, unsigned int n);
/* How many that are. */
unsigned int vb_dpa_pool_size(const struct vb_dpa *dpa);
/* EUs that have a thread to run now; a hint, old as soon as it is read. */
unsigned int vb_dpa_eus_busy(const struct vb_dpa *dpa);
bool vb_dpa_deterministic(const struct vb_dpa *dpa);
/* Words, one for each EU, where its busy ticks are stored from now on. Before anything runs. */
void vb_dpa_show_eus(struct vb_dpa *dpa, _Atomic uint64_t *busy);

/*
 * A fault on demand: everything on this EU takes slow times as long; 0 or 1: as always, UINT_MAX:
 * nothing runs there, until this is called again. A slice that runs is not interrupted. -EINVAL: no
 * such EU.
 */
int vb_dpa_eu_hamper(struct vb_dpa *dpa, unsigned int eu, unsigned int slow);

struct vb_dpa_eu_counters {
	uint64_t slices; /* times a thread was put on the EU */
	uint64_t instructions;
	uint64_t busy_ns;
};

int vb_dpa_eu_counters(struct vb_dpa *dpa, unsigned int eu, struct vb_dpa_eu_counters *out);

/* ---- processes ---- */

enum vb_dpa_action {
	VB_DPA_CONTINUE, /* the ecall retired; go on behind it (or at pc, if the callback changed
			    it) */
	VB_DPA_EXIT,     /* the ecall retired and the thread is done */
	VB_DPA_YIELD,    /* the ecall retired; let other threads of the EU run first */
	VB_DPA_BLOCK,    /* the ecall retired; run again after vb_dpa_thread_wake (which may already
			    have come) */
	VB_DPA_TRAP,     /* not a known call: becomes a trap with cause ECALL */
};

/* Why a thread is not running any more. */
enum vb_dpa_why {
	VB_DPA_WHY_RETURN, /* the function returned; x[10] holds its value */
	VB_DPA_WHY_EXIT,   /* an ecall answered VB_DPA_EXIT */
	VB_DPA_WHY_TRAP,   /* state.cause and tval say which */
	VB_DPA_WHY_BUDGET, /* the instructions of vb_dpa_thread_run are used up; it can go on */
	VB_DPA_WHY_STOP,   /* vb_dpa_thread_stop; it can go on */
	VB_DPA_WHY_BLOCK,  /* vb_dpa_thread_run only: the thread waits for a wake */
};

/* What checked mode has to say. */
enum vb_dpa_found {
	VB_DPA_FOUND_BUG,  /* the thread traps behind it, or goes on in that mode */
	VB_DPA_FOUND_CALL, /* the same of the host: what it calls fails, or goes on in that mode */
	VB_DPA_FOUND_LEAK, /* blocks that the device program has lost */
	VB_DPA_FOUND_KEPT, /* blocks of the device heap that were not given back */
};

struct vb_dpa_ops {
	/* NULL: every ecall is a trap. */
	enum vb_dpa_action (*ecall)(struct vb_dpa_thread *thread, struct vb_dpa_state *state,
				    void *arg);
	/*
	 * Called once per trap, before done. May call vb_dpa_thread_divert, so that the thread goes
	 * on. May be NULL.
	 */
	void (*trap)(struct vb_dpa_thread *thread, const struct vb_dpa_state *state, void *arg);
	/*
	 * A started thread left its EU by itself (return, exit, trap) and may be started again from
	 * here. Not called for run, call and stop, whose callers know. Must not wait for other
	 * guest threads: the next one of the EU may be this host thread's. May be NULL.
	 */
	void (*done)(struct vb_dpa_thread *thread, enum vb_dpa_why why, void *arg);
	/*
	 * Checked mode: one line, and a text of several lines that repeats it. On the host thread
	 * that runs into it. NULL: both go to the log and to standard error.
	 */
	void (*found)(struct vb_dpa_process *process, enum vb_dpa_found kind, const char *line,
		      const char *text, void *arg);
	/*
	 * Checked mode has filled or copied so many bytes on behalf of the thread, which counts as one
	 * instruction. True: the thread ends, as by VB_DPA_EXIT. May be NULL.
	 */
	bool (*worked)(struct vb_dpa_thread *thread, uint64_t bytes, void *arg);
	/* The thread has used its stack up and goes on in its stack_spare. May be NULL. */
	void (*beyond)(struct vb_dpa_thread *thread, uint64_t size, void *arg);
};

struct vb_dpa_process_attr {
	uint64_t limit;        /* guest memory is [0, limit); 0: 1 GiB; at most 2 GiB - 64 KiB */
	enum vb_dpa_tier tier; /* VERBATIM_DPA_TIER wins over it */
	const struct vb_dpa_ops *ops; /* must outlive the process */
	void *ops_arg;
	const char *name; /* for dumps and the perf map; copied */
	uint32_t check;   /* enum vb_check of base/config.h; VERBATIM_DPA_CHECK wins over it */
	bool share_data;  /* keys of the card may cover the program's writable segments */
	/*
	 * Of threads that do not say otherwise: their stack, 0: 64 KiB, and how much there is below it
	 * that they are told of when they use it. Checked mode gives all of it from the start.
	 */
	uint64_t stack_size, stack_spare;
};

/* Why a file was refused, in words. */
struct vb_dpa_error {
	char text[160];
};

/*
 * Read a file without loading it: whether it is one we run, and where its symbols will be.
 * -ENOEXEC,
 * -ENOMEM; error may be NULL.
 */
int vb_dpa_image_read(const void *elf, size_t len, struct vb_dpa_image **image,
		      struct vb_dpa_error *error);
/* -ENOENT. size may be NULL. */
int vb_dpa_image_symbol(const struct vb_dpa_image *image, const char *name, uint64_t *value,
			uint64_t *size);
void vb_dpa_image_free(struct vb_dpa_image *image);

/*
 * Load a static or static-PIE RISC-V ELF file held in memory (not kept). attr and error may be
 * NULL. -ENOEXEC: not a file we run; -EINVAL: bad attr; -ENOMEM. On error nothing stays mapped.
 */
int vb_dpa_process_create(struct vb_dpa *dpa, const void *elf, size_t len,
			  const struct vb_dpa_process_attr *attr, struct vb_dpa_process **process,
			  struct vb_dpa_error *error);
/* -EBUSY while threads exist. Windows and device pages go with it. */
int vb_dpa_process_destroy(struct vb_dpa_process *process);

enum vb_dpa_tier
vb_dpa_process_tier(const struct vb_dpa_process *process); /* the one in use, never AUTO */
uint64_t vb_dpa_process_entry(const struct vb_dpa_process *process);
uint64_t vb_dpa_process_limit(const struct vb_dpa_process *process);
/* What its addresses are more than those in the file: 0, but for a PIE. */
uint64_t vb_dpa_process_bias(const struct vb_dpa_process *process);
const char *vb_dpa_process_name(const struct vb_dpa_process *process);
void *vb_dpa_process_ops_arg(const struct vb_dpa_process *process);
/* What a thread of it that has retired so many instructions would read from its cycle and time counters. */
uint64_t vb_dpa_clock(const struct vb_dpa_process *process, uint64_t instret);

/* Value of a symbol. -ENOENT. */
int vb_dpa_symbol_value(const struct vb_dpa_process *process, const char *name, uint64_t *value,
			uint64_t *size);
/* The function or object that holds addr; *offset (may be NULL) is from its start. NULL: none.
 * Lives as long as the process. */
const char *vb_dpa_symbol_name(const struct vb_dpa_process *process, uint64_t addr,
			       uint64_t *offset);
/*
 * The line of source of an address, as FILE:NUMBER; elf: the file that the process was made from.
 * -ENOENT: it was compiled without -g, or libdw is not there.
 */
int vb_dpa_line(const struct vb_dpa_process *process, const void *elf, size_t len, uint64_t addr,
		char *text, size_t size);
/* The same for many addresses: elf stays. NULL where there is nothing to be found. */
struct vb_dpa_lines;
struct vb_dpa_lines *vb_dpa_lines_open(const struct vb_dpa_process *process, const void *elf,
				       size_t len);
int vb_dpa_lines_find(struct vb_dpa_lines *lines, uint64_t addr, char *text, size_t size);
void vb_dpa_lines_close(struct vb_dpa_lines *lines);
/*
 * The return addresses of a thread with these registers, the innermost first, as the program's own
 * description of its frames (DWARF) has them; read: a word of its stack, 0 or an error. Returns how
 * many, at most max; 0: there is no description, or no libdw.
 */
unsigned int vb_dpa_unwind(const struct vb_dpa_process *process, const void *elf, size_t len,
			   const struct vb_dpa_state *state,
			   int (*read)(void *arg, uint64_t addr, uint64_t *word), void *arg,
			   uint64_t *addrs, unsigned int max);
/*
 * An address in words: number, function, and line where it is known. returns: it is a return
 * address, so the call in front of it counts. elf as above. Returns text.
 */
#define VB_DPA_PLACE_TEXT 512
const char *vb_dpa_place(const struct vb_dpa_process *process, const void *elf, size_t len,
			 uint64_t addr, bool returns, char *text, size_t size);
/*
 * A name from a file, as it may be shown: everything but printable ASCII, and the backslash, as
 * \xNN; cut with "..." where it is too long. The file is not trusted, and whoever prints a name of
 * it calls this. Returns text.
 */
#define VB_DPA_NAME_TEXT 128
const char *vb_dpa_printable(const char *name, char text[VB_DPA_NAME_TEXT]);

struct vb_dpa_text_stats {
	uint64_t text_bytes; /* of the executable segments, without gaps between them */
	uint64_t code_bytes; /* of host code; 0 with the interpreter */
	uint64_t translate_ns;
	uint64_t translations; /* 1, and one more each time new indirect targets were learned */
};

void vb_dpa_text_stats(const struct vb_dpa_process *process, struct vb_dpa_text_stats *out);

/* ---- guest memory below the limit ---- */

/*
 * Map zeroed pages. *addr = 0 on entry: anywhere; otherwise exactly there (-EEXIST if anything is
 * mapped in the range). len is rounded up to pages. rights: VB_DPA_READ, or VB_DPA_READ |
 * VB_DPA_WRITE.
 */
int vb_dpa_mem_map(struct vb_dpa_process *process, uint64_t *addr, uint64_t len,
		   unsigned int rights);
/*
 * The same, readable and writable, for memory that keys of the card may cover: it stays as it is
 * until the process ends. At most twice.
 */
int vb_dpa_mem_map_shareable(struct vb_dpa_process *process, uint64_t *addr, uint64_t len);
/*
 * A key is about to cover these bytes: from now on peers load and store in them, if they lie in one
 * range of the above, or in data of a program with share_data, and if it is possible.
 */
void vb_dpa_mem_share(struct vb_dpa_process *process, uint64_t addr, uint64_t len);
int vb_dpa_mem_protect(struct vb_dpa_process *process, uint64_t addr, uint64_t len,
		       unsigned int rights);
int vb_dpa_mem_unmap(struct vb_dpa_process *process, uint64_t addr, uint64_t len);

/*
 * The host's view of [addr, addr + len) (view.h), or none unless all of it is mapped with these
 * rights. What was mapped may not be any more when it is read or written: that is -EFAULT then.
 */
struct vb_dpa_view vb_dpa_mem_host(struct vb_dpa_process *process, uint64_t addr, uint64_t len,
				   unsigned int rights);
/* Whether [addr, addr + len) is part of one segment of the program, and so stays mapped. */
bool vb_dpa_program_holds(const struct vb_dpa_process *process, uint64_t addr, uint64_t len);
/* Copies, as a debugger does: rights of the guest do not matter, unmapped memory gives -EFAULT.
 * Text cannot be written. */
int vb_dpa_mem_read(struct vb_dpa_process *process, uint64_t addr, void *to, uint64_t len);
int vb_dpa_mem_write(struct vb_dpa_process *process, uint64_t addr, const void *from, uint64_t len);

/* A range of pages that are mapped with the same rights. */
struct vb_dpa_range {
	uint64_t addr, len;
	unsigned int rights; /* enum vb_dpa_rights */
};

/*
 * The first mapped range at or above addr; of one that began before, the rest from addr's page on.
 * False: there is none. A loop goes on at addr + len, and sees what others map and unmap meanwhile
 * or does not.
 */
bool vb_dpa_mem_next(struct vb_dpa_process *process, uint64_t addr, struct vb_dpa_range *out);

/* ---- checked mode ---- */

/*
 * A process with checks (vb_dpa_process_attr.check) is interpreted, every access is looked at, and
 * malloc and its family are served by the host, in memory of their own. What is wrong goes to
 * vb_dpa_ops.found; then the thread traps with VB_DPA_CAUSE_CHECK. docs/debugging.md.
 */
struct vb_arena;

/*
 * Blocks of this arena in guest memory are checked from now on, and come from check_alloc: no thread
 * has run. The arena outlives the process. False: they are not, and the caller uses the arena itself.
 */
bool vb_dpa_check_heap(struct vb_dpa_process *process, struct vb_arena *arena);
/* call: the public function that does it, a string that stays. 0: no room. */
uint64_t vb_dpa_check_alloc(struct vb_dpa_process *process, uint64_t size, uint64_t align,
			    const char *call);
/* False: it is no block in use. */
bool vb_dpa_check_free(struct vb_dpa_process *process, uint64_t addr, const char *call);
/* vb_arena_find() of host/shared/arena.h, without what surrounds blocks here. */
struct vb_arena_place;
bool vb_dpa_check_find(struct vb_dpa_process *process, uint64_t addr, struct vb_arena_place *out);
/* Of blocks in use: what was asked for, and that rounded up. */
void vb_dpa_check_usage(struct vb_dpa_process *process, uint64_t *requested, uint64_t *allocated);
/*
 * The host is about to read or write mapped guest memory, in any process. False: that is a finding,
 * and it must not.
 */
bool vb_dpa_check_range(struct vb_dpa_process *process, uint64_t addr, uint64_t len, bool write,
			const char *call);
/* Whether a range belongs to malloc, as checked mode serves it; false in any other process. */
bool vb_dpa_check_malloc_holds(const struct vb_dpa_process *process, uint64_t addr, uint64_t len);
/* Tell what was not freed. No thread is left, or none will run again. */
void vb_dpa_check_leaks(struct vb_dpa_process *process);

/* ---- windows: host memory seen at guest addresses above the limit ---- */

/*
 * Let guest [addr, addr + len) mean host [host, host + len). The range must lie in
 * [VB_DPA_WINDOW_BASE, VB_DPA_WINDOW_END) and meet no other window or device page (-EEXIST). thread
 * = NULL: every thread of the process sees it; otherwise only that one. Host memory that goes away
 * under a window gives the guest a trap.
 */
int vb_dpa_window_create(struct vb_dpa_process *process, struct vb_dpa_thread *thread,
			 uint64_t addr, uint64_t len, void *host, unsigned int rights,
			 struct vb_dpa_window **window);
/*
 * The same window with other memory, rights or guest addresses: an access finds it as it was or as
 * it is, and never without anything in between. As it was, it is not used any more once this
 * returned. -EEXIST, -EINVAL as above: it stays as it was. Not for device pages, and not from
 * inside their callbacks.
 */
int vb_dpa_window_change(struct vb_dpa_window *window, uint64_t addr, uint64_t len, void *host,
			 unsigned int rights);
/* No guest access to the host memory is under way, or can begin, once this returned. Not from
 * inside a device page callback. */
int vb_dpa_window_destroy(struct vb_dpa_window *window);

/*
 * Device pages: loads and stores become calls. size is 1, 2, 4 or 8; an access never crosses the
 * end of the range. A result other than 0 is a load or store trap. Atomics on device pages trap.
 * Removed with vb_dpa_window_destroy.
 */
struct vb_dpa_device_ops {
	int (*load)(struct vb_dpa_thread *thread, uint64_t offset, unsigned int size,
		    uint64_t *value, void *arg);
	int (*store)(struct vb_dpa_thread *thread, uint64_t offset, unsigned int size,
		     uint64_t value, void *arg);
	/* It goes with the process, not before: accesses are cheaper, most of all those of many
	 * threads at a time. vb_dpa_window_destroy refuses (-EINVAL). */
	bool permanent;
};

int vb_dpa_device_create(struct vb_dpa_process *process, struct vb_dpa_thread *thread,
			 uint64_t addr, uint64_t len, const struct vb_dpa_device_ops *ops,
			 void *arg, struct vb_dpa_window **window);

/* ---- threads ---- */

enum vb_dpa_affinity {
	VB_DPA_AFFINITY_NONE,   /* any EU of the pool, chosen at each start */
	VB_DPA_AFFINITY_STRICT, /* this EU only */
	VB_DPA_AFFINITY_GROUP,  /* an EU of the group, chosen at each start */
};

struct vb_dpa_thread_attr {
	uint64_t stack_size; /* 0: the process's; an unmapped page lies below it and its spare */
	enum vb_dpa_affinity affinity;
	unsigned int eu;           /* STRICT */
	const unsigned int *group; /* GROUP: EU numbers, copied */
	unsigned int group_size;
	void *user;       /* vb_dpa_thread_user */
	const char *name; /* for dumps; copied */
	/* Where its slices are counted for tools (control/show/dpa.h); outlives the thread. NULL: nowhere. */
	struct vb_shown_thread *shown;
};

/* A new thread is idle: registers zero but sp (stack), gp (__global_pointer$) and tp (its copy of
 * the TLS segment). */
int vb_dpa_thread_create(struct vb_dpa_process *process, const struct vb_dpa_thread_attr *attr,
			 struct vb_dpa_thread **thread);
/* -EBUSY while it is ready or running: stop it first. */
int vb_dpa_thread_destroy(struct vb_dpa_thread *thread);

/* Prepare a call: pc, up to 8 arguments in a0-a7, ra such that returning ends it, sp/gp/tp as when
 * created. -EBUSY, -EINVAL. */
int vb_dpa_thread_set_call(struct vb_dpa_thread *thread, uint64_t pc, const uint64_t *args,
			   unsigned int nargs);
/*
 * In the trap callback of this thread only: it does not end, but begins another function, with
 * registers as by vb_dpa_thread_set_call; what was on its stack is lost. After max instructions it
 * traps with VB_DPA_CAUSE_WATCHDOG (UINT64_MAX: no bound). -EINVAL.
 */
int vb_dpa_thread_divert(struct vb_dpa_thread *thread, uint64_t pc, const uint64_t *args,
			 unsigned int nargs, uint64_t max);
/* Its stack, and how much below it is never mapped: an access there is an overflow. */
struct vb_dpa_stack {
	uint64_t addr, size, guard;
};
void vb_dpa_thread_stack(const struct vb_dpa_thread *thread, struct vb_dpa_stack *out);
/* Memory of its thread-local storage; len 0: it has none. Rights are of no meaning. */
void vb_dpa_thread_tls(const struct vb_dpa_thread *thread, struct vb_dpa_range *out);
/*
 * Return addresses on the stack of a thread in this state, the innermost first; how many. Some may
 * be of calls that are over. The thread does not run, or calls.
 */
unsigned int vb_dpa_backtrace(const struct vb_dpa_thread *thread, const struct vb_dpa_state *state,
			      uint64_t *frames, unsigned int max);
/* The live registers of a thread that is not running (or, in a callback, of the calling one). */
struct vb_dpa_state *vb_dpa_thread_state(struct vb_dpa_thread *thread);

/*
 * Put it on an EU, to run until it returns, exits, traps or is stopped; it continues where its
 * state says.
 */
int vb_dpa_thread_start(struct vb_dpa_thread *thread);
/* End a VB_DPA_BLOCK, or the next one. Any thread may call it. */
void vb_dpa_thread_wake(struct vb_dpa_thread *thread);
/* Ask it to leave its EU between two instructions, and wait until it did. 0 also if it was idle. */
int vb_dpa_thread_stop(struct vb_dpa_thread *thread);
/*
 * As stop, but without waiting: it leaves its EU soon, or stops as soon as it is run again.
 * Callbacks may call it, for the calling thread too: behind a store to a device page or an ecall it
 * executes nothing more. vb_dpa_thread_stop makes it usable again.
 */
void vb_dpa_thread_halt(struct vb_dpa_thread *thread);
/* End its time slice at the next chance (soon: within some thousand instructions). */
void vb_dpa_thread_preempt(struct vb_dpa_thread *thread);
/* Wait until it is idle. timeout_ns < 0: for ever. -ETIMEDOUT. *why may be NULL. */
int vb_dpa_thread_wait(struct vb_dpa_thread *thread, int64_t timeout_ns, enum vb_dpa_why *why);

/*
 * Run an idle thread right here: the calling host thread lends itself as its EU. Retires exactly
 * max instructions unless something else ends it first (*why). UINT64_MAX: no bound.
 */
int vb_dpa_thread_run(struct vb_dpa_thread *thread, uint64_t max, enum vb_dpa_why *why);
/*
 * The same for a thread that is going to be destroyed: it runs even while a debugger holds the
 * process, which does not see it.
 */
int vb_dpa_thread_run_dying(struct vb_dpa_thread *thread, uint64_t max, enum vb_dpa_why *why);
/*
 * set_call + run + the value of a0. -EFAULT: it trapped, -EINTR: it exited or was stopped instead
 * of returning. In deterministic mode the call takes its turn on the one host thread like any other
 * thread.
 */
int vb_dpa_call(struct vb_dpa_thread *thread, uint64_t pc, const uint64_t *args, unsigned int nargs,
		uint64_t *result);

void *vb_dpa_thread_user(const struct vb_dpa_thread *thread);
const char *vb_dpa_thread_name(const struct vb_dpa_thread *thread);
struct vb_dpa_process *vb_dpa_thread_process(const struct vb_dpa_thread *thread);
/* 1, 2, 3... in the order of creation in a process; never used again. */
uint32_t vb_dpa_thread_number(const struct vb_dpa_thread *thread);
/*
 * Visit the threads of a process, the oldest first; a result other than 0 ends it and is returned.
 * No thread is created or destroyed meanwhile, so visit must not do that, wait for whoever does, or
 * create, change or destroy windows.
 */
int vb_dpa_threads_each(struct vb_dpa_process *process,
			int (*visit)(struct vb_dpa_thread *thread, void *arg), void *arg);

struct vb_dpa_thread_counters {
	uint64_t instructions; /* exact when the thread is not running; otherwise as of its last
				  slice */
	uint64_t busy_ns;
	uint64_t slices;
	uint64_t starts;
	uint64_t traps;
	uint64_t window_misses; /* accesses above the limit that the thread's own table did not hold
				 */
};

void vb_dpa_thread_counters(const struct vb_dpa_thread *thread, struct vb_dpa_thread_counters *out);

/* ---- what is left for debuggers ---- */

/* Registers of a thread, and the part of its stack that was in use, at one moment. */
struct vb_dpa_snapshot {
	uint32_t id; /* how the one who took it calls the thread */
	bool taken;  /* false: there is nothing in it */
	bool late;   /* it was in a callback and did not come back in time */
	struct vb_dpa_state state;
	uint64_t stack_addr, stack_len; /* from the stack pointer, or the stack's end, upwards */
	void *stack;                    /* a copy, or NULL: there was none to make */
};

/* In a callback of this thread only. */
void vb_dpa_snapshot_self(struct vb_dpa_thread *thread, struct vb_dpa_snapshot *out);
/*
 * Of all threads of a process, the oldest first. Threads that run do so at their next chance and go
 * on at once: each snapshot is of one moment, but not all of the same one. Where a thread is in a
 * callback for longer than a second, its registers are those of the call. id is called under the
 * rules of vb_dpa_threads_each. -ENOMEM. Not from callbacks.
 */
int vb_dpa_snapshots_take(struct vb_dpa_process *process, uint32_t (*id)(struct vb_dpa_thread *),
			  struct vb_dpa_snapshot **list, size_t *count);
void vb_dpa_snapshot_drop(struct vb_dpa_snapshot *snapshot); /* what it holds, not itself */
void vb_dpa_snapshots_free(struct vb_dpa_snapshot *list, size_t count);

/* A core file: ELF for RISC-V, with the notes of Linux, which gdb reads. */
struct vb_dpa_core {
	const struct vb_dpa_snapshot *const *threads; /* gdb shows the first one */
	size_t count;
	int signal;          /* why the first one ended; 0: it did not */
	const char *program; /* name of the program's file; gdb warns where its own has another */
	const char *words;   /* "core was generated by" this */
	/* Takes the bytes in their order; an error (-errno) ends it and is returned. */
	int (*write)(const void *bytes, size_t len, void *arg);
	void *arg;
};

/*
 * Memory is what is mapped, with the stacks of the snapshots in place of what is there now; windows
 * are no part of it. Pages of zeros take no room. -ENOMEM, -E2BIG.
 */
int vb_dpa_core_write(struct vb_dpa_process *process, const struct vb_dpa_core *core);

/*
 * A dump in words: cause, pc and ra with symbol names, all registers.
 * Returns the length that a large enough buffer would hold, like snprintf.
 */
size_t vb_dpa_state_format(const struct vb_dpa_process *process, const struct vb_dpa_state *state,
			   char *buf, size_t len);

#ifdef __cplusplus
}
#endif
