/* SPDX-License-Identifier: MIT */
/*
 * The processor: one vb_cpu executes one guest thread over one vb_text (decoded and perhaps
 * translated instructions) and one guest memory. It knows memory, windows and counts; it knows
 * nothing of scheduling, ELF files or queues.
 *
 *   guest pc ----> insns[(pc - lo) / 2]   pre-decoded, one for every even address   (interp.c)
 *            `---> table[(pc - lo) / 2]   host address of translated code, or none  (jit/)
 *
 *                                host memory of one process
 *   | jump tables | guard | guest 0 .. limit      inaccessible up to 4 GiB | guard |
 *                         ^ vb_cpu.base (r14 in translated code)
 *
 * An access below the limit goes straight to base + address; rights are the host MMU's, and a fault
 * comes back as a guest trap (signal.c). Everything above takes vb_access_* (access.c): windows,
 * device pages, or a trap.
 *
 * Translated code adds the low 32 bits of a register and an immediate to base, whatever else it
 * believes of the register: it cannot name a byte outside of the 4 GiB and the guards. The
 * interpreter compares every address, and does with a reservation that ends behind the limit.
 */
#pragma once

#include <setjmp.h>
#include <stdatomic.h>

#include "dpa/dpa.h"

#define VB_CPU_SPAN  (1ULL << 32) /* what 32 bits can name: reserved for translated code */
#define VB_CPU_GUARD (1ULL << 20) /* on both sides; far more than an immediate can add */
#define VB_CPU_LIMIT_MAX \
	((1ULL << 31) - (1ULL << 16)) /* a compare with it fits a signed 32-bit immediate */
#define VB_CPU_TEXT_MAX (64ULL << 20)
#define VB_CPU_INSNS_GUARD \
	(16ULL << 20) /* farther than a branch or jal leads, in decoded instructions */
#define VB_CPU_RETURN_PC \
	VB_DPA_RETURN_PC      /* returning to it ends a call; nothing can be mapped there */
#define VB_CPU_SINK        32 /* register number that writes to x0 are decoded to */
#define VB_CPU_TABLE_SLOTS 16 /* entries of a thread's own window table; a power of two */

/* ---- decoded instructions ---- */

/* One line per instruction in insns.h; vb_op numbers them in that order. */
struct vb_insn {
	const void *handler; /* label in interp.c */
	int32_t imm; /* immediate; for loads and stores and branches the offset; CSR number */
	uint8_t rd;  /* VB_CPU_SINK for x0 */
	uint8_t rs1;
	uint8_t rs2; /* also the zimm-free shift amounts live in imm, not here */
	uint8_t op;  /* enum vb_op */
};

/* A range of executable guest memory; the decoder reads nothing outside of these. */
struct vb_text_range {
	uint64_t lo, hi;
	uint64_t end; /* up to here it goes on with zeros that are no part of the file */
};

struct vb_jit; /* jit/jit.h */
struct vb_observer;

struct vb_text {
	uint64_t lo, hi; /* guest addresses that hold all executable ranges */
	uint64_t bytes;  /* of the ranges alone: gaps between them are no text */
	struct vb_text_range *ranges;
	unsigned int nranges;
	const uint8_t *base;          /* host address of guest 0, to read the bits */
	struct vb_insn *insns;        /* (hi - lo) / 2 entries and one behind that always traps */
	size_t insns_bytes;           /* between two guards of VB_CPU_INSNS_GUARD */
	struct vb_jit *jit;           /* NULL: interpreter only */
	struct vb_observer *observer; /* of an observed text; NULL */
};

/* Decode every even address of the ranges (kept; freed by destroy). */
int vb_text_create(struct vb_text *text, const uint8_t *base, struct vb_text_range *ranges,
		   unsigned int nranges);
/* The same text for an observer, who outlives it. -ENOMEM. */
int vb_text_create_observed(struct vb_text *text, const struct vb_text *of,
			    struct vb_observer *observer);
/* Call the observer's mark before the instruction at pc, or no more. -EFAULT: there is none. */
int vb_text_mark(struct vb_text *text, uint64_t pc, bool set);
void vb_text_destroy(struct vb_text *text);

static inline bool vb_text_holds(const struct vb_text *text, uint64_t pc)
{
	return pc - text->lo < text->hi - text->lo && !(pc & 1);
}

/* Length of the instruction whose first half is `low`. */
static inline unsigned int vb_insn_len(uint16_t low)
{
	return (low & 3) == 3 ? 4 : 2;
}

/*
 * Executable all the same: zeros behind the bytes of a file, which are no instruction. They are not
 * decoded, so that a text costs what its file says and not what its header asks for.
 */
bool vb_text_zeros(const struct vb_text *text, uint64_t pc);

/* Bits of the instruction at pc (16 or 32 of them), 0 if not all of it is executable. */
uint32_t vb_text_bits(const struct vb_text *text, uint64_t pc);

/* ---- above the limit ---- */

struct vb_access_entry {
	uint64_t tag;          /* first guest address */
	_Atomic(uint64_t) len; /* 0: empty; whoever takes the window away writes 0 */
	uint8_t *host;         /* NULL: device page */
	struct vb_dpa_window *window;
	unsigned int rights;
};

/* A window or, with host == NULL, a device page (window.c keeps them). */
struct vb_dpa_window {
	uint64_t addr, len; /* in guest addresses */
	uint8_t *host;
	unsigned int rights;
	const struct vb_dpa_device_ops *device;
	void *device_arg;
	atomic_uint users; /* device callbacks under way */
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread; /* NULL: all threads see it */
	struct vb_dpa_window *next;   /* in the process's list */
};

/* Who knows the windows of a process (window.c). Fills *entry; false: nothing covers addr. */
struct vb_access_source {
	bool (*find)(void *arg, struct vb_dpa_thread *thread, uint64_t addr,
		     struct vb_access_entry *entry);
	void *arg;
};

/* ---- the processor ---- */

enum vb_cpu_exit {
	VB_CPU_BUDGET,  /* all instructions asked for are retired */
	VB_CPU_TRAP,    /* s.cause, s.tval, s.pc say what and where */
	VB_CPU_ECALL,   /* s.pc is the ecall, not retired yet */
	VB_CPU_RETURN,  /* pc reached VB_CPU_RETURN_PC */
	VB_CPU_STOPPED, /* stop was set */
	VB_CPU_SEEN,    /* the observer of the text wants a stop */
};

/*
 * Written by the host thread that runs it, except where said. Translated code keeps rbp at
 * &s.x[16], so that every register is reached with an 8-bit displacement; s must stay first.
 */
struct vb_cpu {
	struct vb_dpa_state s;

	/* fixed while it runs */
	uint8_t *base; /* host address of guest 0 */
	uint64_t limit;
	struct vb_text *text;
	struct vb_dpa_thread *thread; /* for callbacks of device pages */
	struct vb_cpu *next;          /* the other cpus of the process, for vb_access_invalidate */
	struct vb_access_source source;
	bool deterministic; /* cycle and time derive from instret */

	/* translated code (jit/enter.c) */
	uint64_t budget;      /* r15 while outside */
	uint64_t end_instret; /* instret if the budget were used up */
	uint64_t host_rsp;    /* frame of the entry */
	uint64_t pred_base;   /* where rsp starts, and is reset to, as a return predictor */
	uint64_t pred_limit;  /* and the mark below which it is reset */
	uint64_t jit_exit; /* enum vb_cpu_exit of an event inside of an out-of-line instruction */
	bool missed;       /* an indirect jump went to an address without translated code */

	/* faults (signal.c) */
	const struct vb_insn *ip; /* interpreter: instruction of the access under way */
	uint64_t left;            /* and the instructions left, it included */
	uint64_t interp_end;      /* instret when none is left */
	jmp_buf *fault;           /* where a fault lands; NULL: not ours */
	bool in_jit;              /* translated code, or a helper it called, is executing */
	bool in_loop;             /* a helper makes turns of a loop that s is at the head of */
	bool plain;               /* it could not: the interpreter makes them, up to the trap */

	/* observed texts */
	bool stop_behind;     /* the observer wants a stop behind the instruction under way */
	unsigned int seen_by; /* who wanted the last stop; observe.c */

	/* LR/SC: compare-and-swap against what LR saw */
	uint64_t reserved_addr; /* ~0: none */
	uint64_t reserved_value;

	/* windows: written here and, with len = 0, by whoever takes a window away (window.c) */
	struct vb_access_entry table[VB_CPU_TABLE_SLOTS];
	unsigned int table_last; /* the entry hit last */
	unsigned int table_next; /* the one to refill next */
	atomic_uint accessing;   /* odd: an entry of the table is in use; pairs with
				    vb_access_invalidate */
	uint64_t table_misses;

	/* a copy of the entry used last, for translated code; taken away together with it */
	uint64_t window_tag;
	_Atomic(uint64_t) window_load, window_store; /* offsets below these hold 8 bytes more */
	uint8_t *window_host;

	/* Written by any thread: leave between two instructions, soon; at once behind a store to a device page,
	 * whose callback may write it. */
	atomic_bool stop;
};

void vb_cpu_init(struct vb_cpu *cpu, struct vb_text *text, uint8_t *base, uint64_t limit);

/* How many instructions early a run that need not be exact may end: those the translator would have
 * to leave to the interpreter. */
#define VB_CPU_EARLY 1024

/*
 * Retire max instructions, exactly or at most VB_CPU_EARLY less, unless an event comes first. Takes
 * the translator if the text has one and the interpreter for what it cannot do. A short run is
 * always exact, so that every run gets on.
 */
enum vb_cpu_exit vb_cpu_run(struct vb_cpu *cpu, uint64_t max, bool exact);

/* The interpreter alone. vb_cpu_run has arranged for faults. */
enum vb_cpu_exit vb_interp_run(struct vb_cpu *cpu, uint64_t max);
/* Handler labels by enum vb_op; [0] 4-byte, [1] compressed form. */
const void *vb_interp_handler(unsigned int op, bool compressed);

/* ---- observers ---- */

enum vb_seen {
	VB_SEEN_GO,
	VB_SEEN_STOP,        /* VB_CPU_SEEN before the instruction, which does not retire */
	VB_SEEN_STOP_BEHIND, /* VB_CPU_SEEN behind it */
};

enum vb_access_kind { VB_ACCESS_LOAD = 1, VB_ACCESS_STORE = 2 }; /* both: an atomic */

/* Called on the host thread that runs the cpu, whose registers, pc and instret are exact. */
struct vb_observer {
	/* Before a marked instruction. May change registers; where it changes pc the thread goes on
	 * there, and that counts as one instruction. */
	enum vb_seen (*mark)(struct vb_cpu *cpu);
	/* Before a load, a store or an atomic, which may still trap. */
	enum vb_seen (*access)(struct vb_cpu *cpu, uint64_t addr, unsigned int size,
			       unsigned int kind);
	atomic_bool accesses; /* whether accesses are shown */
};

/* The interpreter of texts with an observer. */
enum vb_cpu_exit vb_observed_run(struct vb_cpu *cpu, uint64_t max);
const void *vb_observed_handler(unsigned int op, bool compressed);
const void *vb_observed_mark_handler(void);

/* Install the SIGSEGV and SIGBUS handlers once per process, in front of earlier ones. */
int vb_signal_install(void);
/* The cpu that the calling host thread executes; the handlers look here. */
extern _Thread_local struct vb_cpu *vb_cpu_current __attribute__((tls_model("initial-exec")));

/* Loads and stores at or above the limit, or that cross it. False: a trap. */
bool vb_access_load(struct vb_cpu *cpu, uint64_t addr, unsigned int size, uint64_t *value);
bool vb_access_store(struct vb_cpu *cpu, uint64_t addr, unsigned int size, uint64_t value);
/*
 * Host address of an atomic operand of `size` bytes, NULL: a trap. Between begin and end the table
 * entry stays.
 */
void *vb_access_atomic_begin(struct vb_cpu *cpu, uint64_t addr, unsigned int size,
			     unsigned int rights);
/* Ends an access that a fault, or an atomic instruction, left open. */
void vb_access_end(struct vb_cpu *cpu);
void vb_access_init(void);
/* After vb_access_init: a mark of an access needs a fence behind it. */
bool vb_access_fences(void);
/* Take window out of the tables of a list of cpus; on return no access through it is under way. */
void vb_access_invalidate(struct vb_cpu *cpus, const struct vb_dpa_window *window);

/* Functions that touch memory which guests share on purpose: their races are not ours to report. */
#if defined(__clang__)
#define VB_GUEST_ACCESS __attribute__((no_sanitize("thread", "address", "undefined")))
#else
#define VB_GUEST_ACCESS \
	__attribute__((no_sanitize_thread, no_sanitize_address, no_sanitize_undefined))
#endif

/* A full fence, as the guest's and for asymmetric waiting; sanitizers do not model the C11 one. */
static inline void vb_cpu_fence(void)
{
#if defined(__x86_64__)
	__asm__ volatile("lock orl $0, (%%rsp)" ::: "memory", "cc");
#elif defined(__aarch64__)
	__asm__ volatile("dmb ish" ::: "memory");
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/*
 * An index that was found below a bound; 0 where the host only guesses that it was. Whoever uses
 * the result cannot be made to read past the bound ahead of time (Spectre v1).
 */
static inline uint64_t vb_cpu_below(uint64_t index, uint64_t bound)
{
#if defined(__x86_64__)
	uint64_t mask;

	__asm__("cmp %2, %1\n\tsbb %0, %0" : "=r"(mask) : "r"(index), "r"(bound) : "cc");
	return index & mask;
#elif defined(__aarch64__)
	uint64_t below;

	__asm__ volatile("cmp %1, %2\n\tcsel %0, %1, xzr, lo\n\thint #20" /* csdb */
			 : "=r"(below)
			 : "r"(index), "r"(bound)
			 : "cc");
	return below;
#else
	return index;
#endif
}

/* Of the instruction at pc, which the text holds. */
static inline uint64_t vb_text_index(const struct vb_text *text, uint64_t pc)
{
	return vb_cpu_below((pc - text->lo) / 2, (text->hi - text->lo) / 2);
}

/* The cycle and time counters. */
uint64_t vb_cpu_clock(const struct vb_cpu *cpu, uint64_t instret);
uint64_t vb_cpu_clock_now(void); /* where they do not derive from instret */
