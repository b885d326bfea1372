/* SPDX-License-Identifier: MIT */
/*
 * What the files of the translator share.
 *
 *   analyze.c   decoded text -> leaders, blocks, budget checks, uses of registers
 *   loops*.c    loops that copy, fill, compare or add up memory, many turns at once
 *   emit*.c     one block after the other -> host code, with notes for whoever comes back (sites)
 *   thunks.c    what every translation has: enter, leave, out-of-line work, dispatch
 *   jit.c       makes, replaces and frees translations
 *   enter.c     runs them, and reads a fault's state back
 *   profile.c   second thoughts about the register map
 *   perf.c      names for profilers
 *   verify*.c   check the host code that all of these made against the contract in verify.h
 *
 * Host registers in translated code
 *   rbp         &cpu->s.x[16]: every guest register has an 8-bit displacement
 *   r14         guest memory
 *   r15         instructions left, minus the block being executed
 *   rax, rdx    scratch; rax also carries the target of an indirect jump
 *   rsp         the host thread's own stack, used as a return predictor only
 *   the rest    the ten guest registers that the program uses most
 */
#pragma once

#include <pthread.h>

#include "dpa/cpu/jit/jit.h"
#include "dpa/cpu/jit/x86.h"
#include "dpa/cpu/ops.h"

#define BLOCK_MAX    64  /* instructions of a block; fits an 8-bit immediate */
#define UNCHECKED    256 /* instructions on a path before a block has to check the budget */
#define SLACK        512 /* kept back from the budget: more than any path between two checks */
#define GENERATIONS  8 /* translations of one text: the first, and what learning and profiling add */
#define MAPPED       10
#define PRED_BYTES   16384 /* of host stack for the return predictor */
#define STATE_BIAS   128   /* rbp - (uint8_t *)cpu */
#define SELECT_MAX   2     /* instructions that a choice may leave out (emit_select.c) */
#define LOOP_MAX     96    /* instructions of a loop that is made twice (emit_twice.c) */
#define LOOP_WORDS   8     /* of one turn of a loop that copies (loops.c) */
#define LOOP_STEPS   4
#define LOOP_SITE    127       /* site.left: such a loop begins here */
#define SITE_RESTART 1U        /* site.pending: a fault here is no trap, the interpreter finds it */
#define DRIFT_MAX    (1 << 18) /* how far a base may have moved since it was compared */

/*
 * A place in host code that may have to tell where the guest is: a memory access, or a call of the
 * interpreter. There may be one for every halfword of the text, so they are small.
 */
struct site {
	uint32_t host;    /* offset of the host instruction; increasing */
	uint32_t pending; /* guest registers whose upper half is not extended yet; SITE_RESTART */
	uint32_t index : 25; /* guest instruction, (pc - lo) / 2 */
	uint32_t left : 7;   /* instructions of the block not retired, this one included */
};

_Static_assert(VB_CPU_TEXT_MAX / 2 <= 1 << 25 && BLOCK_MAX < LOOP_SITE && LOOP_SITE < 1 << 7,
	       "they fit a site");

/* A loop that copies or fills memory, compares two ranges, or adds up elements. */
struct loop {
	enum { LOOP_COPY, LOOP_COMPARE, LOOP_SUM } kind;
	uint32_t index;   /* its block */
	uint32_t stride;  /* bytes of a turn */
	uint8_t count;    /* instructions of a turn */
	uint8_t size;     /* bytes of an access */
	uint8_t from, to; /* guest registers */
	uint8_t value;    /* stored by a loop that loads nothing; the sum */
	uint8_t bound;    /* what the counter is compared with */
	uint8_t counter;  /* which of the steps */
	uint8_t signs;    /* bit per word: the load extends the sign */
	uint8_t nwords;   /* loaded in a turn */
	uint8_t nsteps;
	bool word;                              /* the sum is one */
	bool is_signed, until_equal, inclusive; /* the comparison */
	bool in_order;                          /* a turn stores from the first word to the last */
	int32_t from_low, to_low;               /* of a turn's first byte from the register */
	struct {
		uint8_t reg, at;
	} words[LOOP_WORDS];
	struct {
		int32_t by;
		uint8_t reg;
		bool word;
	} steps[LOOP_STEPS];
};

/* One translation of the whole text. Immutable once published. */
struct generation {
	uint8_t *code;
	size_t code_len; /* mapped */
	size_t code_used;
	struct site *sites;
	size_t nsites;
	struct loop *loops; /* in the order of their blocks */
	size_t nloops;
	int8_t host[33]; /* host register of each guest register, NOREG */
};

/* Translations with the same register map; threads go from one to the other through the table. */
struct epoch {
	const void **table; /* host address of each leader; miss for all others */
	int32_t table_disp; /* of table from guest 0 */
	const void *miss;
	uint64_t (*enter)(struct vb_cpu *cpu, const void *target);
	int8_t host[33];
};

struct vb_jit {
	struct vb_text *text;
	uint64_t limit;
	size_t table_len;
	bool sp_checked; /* sp < limit holds in translated code */
	bool has_clmul;  /* the host multiplies without carries */
	struct epoch epochs[VB_JIT_TABLES];
	_Atomic(unsigned int) epoch; /* the one to enter; published with release */
	struct generation gens[GENERATIONS];
	_Atomic(unsigned int) ngens; /* published with release */
	pthread_mutex_t lock;        /* making generations */
	uint8_t *extra;              /* enum extra of each halfword */
	struct vb_text_range *data;  /* where jump tables may be */
	unsigned int ndata;
	atomic_uint misses; /* since the last translation */
	atomic_bool final;  /* a further translation failed: there will be none */
	uint64_t translate_ns;

	/* profile.c */
	atomic_bool settled; /* the register map is final */
	atomic_uint runs;
	_Atomic(uint64_t) uses[33]; /* of each guest register, counted while stepping */
};

/* What is known of a halfword before the analysis. */
enum extra {
	EXTRA_LEADER = 1, /* a hint, or an indirect jump went there */
	EXTRA_SYMBOL = 2, /* an instruction starts here, whatever lies before it */
	EXTRA_WINDOW = 4, /* an access here went to a window and had to leave */
};

/* ---- analyze.c ---- */

enum mark {
	MARK_START = 1,  /* an instruction of the linear sweep starts here */
	MARK_LONG = 16,  /* and has two halfwords */
	MARK_LEADER = 2, /* may be entered from anywhere */
	MARK_CHECK = 4,  /* reached by a backward jump or a call */
	MARK_SELECT = 8, /* a branch that becomes one with those that it skips (emit_select.c) */
};

struct block {
	uint32_t index;    /* of its first instruction */
	uint32_t last;     /* of its last one */
	uint16_t count;    /* instructions */
	uint16_t distance; /* instructions that an unchecked path can have executed before it */
	bool leader, check;
};

struct analysis {
	const struct vb_text *text;
	uint32_t n; /* halfwords */
	uint8_t *marks;
	struct block *blocks;
	uint32_t nblocks;
	uint64_t uses[33]; /* of each guest register, by place in loops */
	bool sp_checked;
};

int analyze(struct vb_jit *jit, struct analysis *a);
void analysis_free(struct analysis *a);
uint32_t whole_reads(const struct analysis *a, uint32_t first, uint32_t last);
bool is_straight_loop(const struct analysis *a, uint32_t first, uint32_t *last);
/* The most used ones get a host register. */
void choose_registers(const uint64_t uses[33], int8_t host[33]);

/* ---- emit.c ---- */

enum stub_kind {
	STUB_EXECUTE, /* interpret this one instruction, go on behind it */
	STUB_LEAVE, /* leave translated code for pc, with `left` instructions of the block not done
		     */
	STUB_RESET, /* reset the return predictor, try again */
	STUB_EXIT,  /* out of a loop: extend what is pending, and go to index */
};

/*
 * Code that is rarely needed and therefore lies behind all other. As many as sites, and as small.
 */
struct stub {
	uint8_t kind;     /* enum stub_kind */
	bool window;      /* EXECUTE, a plain load or store: try the last window first */
	bool fence;       /* a fence was put off up to here */
	uint8_t left;     /* LEAVE */
	uint32_t from;    /* displacement to patch */
	uint32_t back;    /* where to go on; not LEAVE */
	uint32_t site;    /* EXECUTE */
	uint32_t pending; /* LEAVE */
	int32_t index;    /* LEAVE: the guest goes on here; a branch may lead out of the text */
};

struct fixup {
	uint32_t from;  /* displacement to patch */
	uint32_t index; /* with the host code of this guest instruction */
};

/* What is known of a guest register at this point of the straight line. */
struct fact {
	bool checked;  /* value - drift was compared with the limit */
	bool known;    /* value is a constant */
	bool window;   /* accesses through it were seen to go to windows */
	bool word;     /* the register is the sign extension of its low half */
	uint8_t below; /* it is less than 2^below; 0: nobody knows (emit_range.c) */
	int32_t drift;
	uint32_t stub; /* of that compare */
	uint64_t value;
};

/* What the last instruction left in flags and rax (emit_reuse.c). */
struct notes {
	uint32_t at;  /* host offset that it holds at */
	uint8_t zero; /* ZF tells whether this guest register is zero; 0: it does not */
	uint8_t sum;  /* CF tells whether this one is below an addend; 0: it does not */
	uint8_t addend[2];
	uint8_t factor[2];
	bool product; /* rax is the product of the factors */
	uint8_t rax;  /* guest register without a host register that rax holds as well; 0: none */
};

/* Since the last access: rax is the low half of a guest register, and nothing else. */
struct low {
	uint8_t reg;      /* that guest register; 0: none */
	uint32_t changed; /* of struct code; another one: rax may be anything */
	uint32_t except;  /* not if control came back from this stub */
};

/* A loop that is made twice (emit_twice.c). */
struct twice {
	enum { ONCE, FIRST, AGAIN } pass;
	uint32_t head, last;   /* guest instructions that the loop begins and ends with */
	uint32_t back;         /* host offset of the second copy */
	uint32_t exit;         /* displacement of the jump out of the first */
	bool ended;            /* the first falls into the second, not behind the loop */
	uint32_t waiting;      /* registers that are pending where the second begins */
	bool fence;            /* a fence may be due there */
	uint32_t pending;      /* what was pending at the end of the copy made last, */
	struct fact facts[33]; /* and what was known */
};

/* A run of instructions that put bytes together (emit_bytes.c). */
struct bytes {
	uint8_t count; /* instructions; 0: none is being emitted */
	uint8_t at;    /* the next one */
	uint8_t start; /* the first one that is not just itself */
	uint32_t end;  /* guest instruction behind it; nothing is planned again before that one */
	int32_t low,
		high; /* what is loaded from start on: from the base, first byte and behind the last */
	struct part {
		enum { PART_ITSELF, PART_SKIP, PART_WIDE, PART_BYTE } what;
		uint8_t wide; /* part whose load is made in place of this one; UINT8_MAX: none */
		uint8_t rd;
		uint8_t from, lane; /* BYTE: which one, of which register */
		struct wide {
			uint8_t size;
			bool sign, swap;
			int32_t imm;
		} load; /* WIDE */
	} parts[BLOCK_MAX];
};

struct thunks {
	uint32_t enter, execute, leave, dispatch, underflow, miss;
};

/* A translation in the making. */
struct tx {
	struct code c;
	struct vb_jit *jit;
	struct epoch *epoch;
	struct generation *gen;
	uint32_t *offsets; /* host offset of each halfword that is a leader, 0: none */
	struct analysis a;
	struct thunks thunks;
	uint32_t pending; /* see struct site */
	bool fence;       /* due before the next load, see emit_mem.c */
	struct fact facts[33];
	struct notes notes;
	struct low low;
	struct twice twice;
	struct bytes bytes;
	uint32_t index, next; /* this instruction and the one behind it */
	uint32_t left;        /* instructions of the block, this one included */
	struct stub *stubs;
	size_t nstubs, stubs_max;
	struct fixup *fixups;
	size_t nfixups, fixups_max;
	size_t sites_max, loops_max;
	uint64_t looks;   /* back for constants (emit_guess.c) */
	bool failed;      /* out of memory or room: give up */
	bool out_of_room; /* the host code gets larger than it may be */
};

void emit_all(struct tx *tx);
void emit_block(struct tx *tx, const struct block *b);
void emit_thunks(struct tx *tx);

/* emit.c, for the emit_*.c: operands of guest registers, results, notes */
struct rm slot(unsigned int reg);
int src64(struct tx *tx, unsigned int reg, int scratch);
int src32(struct tx *tx, unsigned int reg, int scratch);
struct rm operand64(struct tx *tx, unsigned int reg);
struct rm operand32(struct tx *tx, unsigned int reg);
bool is_imm32(const struct tx *tx, unsigned int reg);
void emit_compare(struct tx *tx, unsigned int rs1, unsigned int rs2);
void zero_unless_below(struct tx *tx, int reg);
int dst(struct tx *tx, unsigned int rd);
void finish(struct tx *tx, unsigned int rd, int reg, bool word);
void finish_word(struct tx *tx, unsigned int rd, int reg);
void flush_pending(struct tx *tx);
void flush_except(struct tx *tx, uint32_t keep);
bool is_word_here(const struct tx *tx, unsigned int reg);
void write_const(struct tx *tx, unsigned int rd, uint64_t value);
uint32_t add_site(struct tx *tx);
uint32_t add_stub(struct tx *tx, enum stub_kind kind, uint32_t from);
void stub_returns(struct tx *tx, uint32_t stub);
void add_fixup(struct tx *tx, uint32_t from, uint32_t index);
void emit_execute(struct tx *tx, const struct vb_insn *insn);
void emit_leave(struct tx *tx, uint64_t pc, uint32_t left);
uint64_t pc_of(const struct tx *tx, uint32_t index);

/* False: not one of theirs. */
bool emit_alu(struct tx *tx, const struct vb_insn *insn);
bool emit_bits(struct tx *tx, const struct vb_insn *insn);
bool emit_mem(struct tx *tx, const struct vb_insn *insn);
void full_fence(struct tx *tx);
void flush_fence(struct tx *tx);
bool emit_atomic(struct tx *tx, const struct vb_insn *insn);
void emit_window(struct tx *tx, const struct stub *stub);
bool emit_flow(struct tx *tx, const struct vb_insn *insn);
void emit_table_jump(struct tx *tx, bool call);

/* emit_mem.c, for emit_atomic.c */
bool guest_address(struct tx *tx, const struct vb_insn *insn, unsigned int size, bool certain,
		   struct rm *m, uint32_t *stub);
bool guest_address_in_place(struct tx *tx, const struct vb_insn *insn, unsigned int size,
			    struct rm *m, uint32_t *stub);
void confine_again(struct tx *tx, const struct rm *m);
void complete_stub(struct tx *tx, uint32_t stub, uint32_t site, bool window);

/* emit_reuse.c */
void notes_move(struct tx *tx, uint32_t from);
void notes_void(struct tx *tx);
void note_rax(struct tx *tx, unsigned int rd);
bool rax_is_noted(const struct tx *tx, unsigned int reg);
void note_low(struct tx *tx, unsigned int reg, uint32_t stub);
bool low_is_noted(const struct tx *tx, unsigned int reg, uint32_t *stub);
void forget_low(struct tx *tx, unsigned int reg);
void note_zero(struct tx *tx, unsigned int rd);
bool zero_is_noted(const struct tx *tx, unsigned int reg);
void note_carry(struct tx *tx, unsigned int rd, unsigned int a, unsigned int b);
bool carry_is_noted(const struct tx *tx, unsigned int sum, unsigned int addend);
void note_product(struct tx *tx, unsigned int rd, unsigned int a, unsigned int b);
bool product_is_noted(const struct tx *tx, unsigned int a, unsigned int b);

/* loops_find.c, loops.c */
bool find_loop(const struct vb_text *text, const struct block *b, bool last, struct loop *l);
void emit_loop_test(struct tx *tx, const struct loop *l);

/* emit_swap.c: several instructions at once; the number of them, 0: not one of its sequences */
unsigned int emit_swap(struct tx *tx, const struct vb_insn *insn);

/* emit_bytes.c */
bool plan_bytes(struct tx *tx, const struct vb_insn *insn);
bool emit_bytes(struct tx *tx, const struct vb_insn *insn);

/* emit_range.c */
unsigned int bits_of(const struct tx *tx, unsigned int reg);
unsigned int result_bits(const struct tx *tx, const struct vb_insn *insn);
void note_bits(struct tx *tx, unsigned int rd, unsigned int bits);
void finish_bits(struct tx *tx, unsigned int rd, int reg, unsigned int bits);

/* emit_guess.c */
void emit_guesses(struct tx *tx, uint32_t first, uint32_t last, struct fact *facts);

/* emit_twice.c */
void emit_twice(struct tx *tx, uint32_t first, uint32_t last);
void emit_jump_back(struct tx *tx, enum x86_cc cc);
void emit_jump_always(struct tx *tx);

/* emit_select.c */
bool select_op(unsigned int op);
void emit_select(struct tx *tx, const struct vb_insn *branch, const struct vb_insn *insn);

/* A field of the cpu, as an operand. */
#define FIELD(name) rm_mem(RBP, (int32_t)offsetof(struct vb_cpu, name) - STATE_BIAS)

/* Does a block end with it? */
static inline bool op_ends_block(unsigned int op)
{
	return (op >= VB_OP_JAL && op <= VB_OP_BGEU) || op == VB_OP_ECALL || op == VB_OP_EBREAK ||
	       op >= VB_OP_ILLEGAL;
}
