// SPDX-License-Identifier: MIT
/*
 * Owns the call stack of a guest thread, found without frame pointers and without debug information:
 * words of the stack that point behind a call instruction.
 *
 *	pc in h     search up from sp     word -> behind "jal h"     taken: the next frame is in its caller
 *	                                  word -> behind "jal x"     left by a call that is over: passed over
 *	                                  word -> behind "jalr"      taken, where no direct call is found
 *
 * Where h was reached by a tail call no word says so. Then the nearest word behind any call is
 * taken. So a function that has returned may be among the frames, but seldom is.
 */
#include "dpa/internal.h"

#include "host/fault.h"
#include "dpa/cpu/ops.h"

enum { RA = 1, SP = 2, SEARCH = 2048 /* words looked at for one frame */ };

/* Where the function begins that holds pc; pc itself where nothing is known. */
static uint64_t observe_stack_function_of(const struct vb_dpa_process *process, uint64_t pc)
{
	uint64_t offset;

	return vb_dpa_symbol_name(process, pc, &offset) ? pc - offset : pc;
}

static const struct vb_insn *observe_stack_insn_at(const struct vb_text *text, uint64_t pc,
						   unsigned int len)
{
	uint32_t bits = vb_text_holds(text, pc) ? vb_text_bits(text, pc) : 0;

	return bits && vb_insn_len((uint16_t)bits) == len ? &text->insns[(pc - text->lo) / 2]
							  : NULL;
}

/* Whether a call returns to addr; *target: what it calls, 0: a register says so. */
static bool follows_call(const struct vb_text *text, uint64_t addr, uint64_t *target)
{
	const struct vb_insn *call, *before;

	*target = 0;
	if (!vb_text_holds(text, addr - 2))
		return false;
	call = observe_stack_insn_at(text, addr - 4, 4);
	if (call && call->op == VB_OP_JAL && call->rd == RA) {
		*target = addr - 4 + (uint64_t)(int64_t)call->imm;
		return true;
	}
	if (call && call->op == VB_OP_JALR && call->rd == RA) {
		before = observe_stack_insn_at(text, addr - 8, 4);
		if (before && before->op == VB_OP_AUIPC && before->rd == call->rs1)
			*target = addr - 8 + (uint64_t)(int64_t)before->imm +
				  (uint64_t)(int64_t)call->imm;
		return true;
	}
	call = observe_stack_insn_at(text, addr - 2, 2);
	return call && call->op == VB_OP_JALR && call->rd == RA;
}

#define PIECE 512 /* bytes that are read in one go: never of two pages */
#define NONE  1   /* no address of a piece */

struct search {
	const struct vb_dpa_thread *thread;
	uint64_t sp, end; /* of the words not yet looked at */
	uint64_t piece;   /* address of the words that were read; NONE */
	uint64_t words[PIECE / 8];
};

/* The word at sp; what cannot be read is the end of the stack. */
static uint64_t observe_stack_word_at(struct search *s, uint64_t sp)
{
	uint64_t piece = sp & ~(uint64_t)(PIECE - 1);

	if (piece != s->piece &&
	    vb_view_read(vb_space_view(&s->thread->process->space, piece), s->words, PIECE)) {
		s->end = sp;
		s->piece = NONE;
		return 0;
	}
	s->piece = piece;
	return s->words[(sp - piece) / 8];
}

/* The stack of the thread, or memory that the program has made one. */
static void search_from(struct search *s, const struct vb_dpa_thread *thread, uint64_t sp)
{
	uint64_t lo = thread->stack_addr, hi = lo + thread->stack_size;
	uint64_t guard = thread->process->space.page, limit = thread->process->space.limit;

	sp = (sp + 7) & ~7ULL;
	if (sp < lo && lo - sp <= guard)
		sp = lo; /* it has run over */
	s->thread = thread;
	s->piece = NONE;
	s->sp = sp;
	if (sp >= lo && sp <= hi)
		s->end = hi;
	else if (sp && sp < limit - 8 * SEARCH)
		s->end = sp + 8 * SEARCH;
	else
		s->end = sp; /* nothing is there */
}

/* The return address of the frame in `function`; 0: there is none. */
static uint64_t observe_stack_next_frame(struct search *s, uint64_t function)
{
	const struct vb_dpa_process *process = s->thread->process;
	uint64_t loose = 0, loose_sp = 0, target, word;

	for (uint64_t sp = s->sp; sp < s->end && sp - s->sp < 8 * SEARCH; sp += 8) {
		word = observe_stack_word_at(s, sp);
		if (word == VB_CPU_RETURN_PC)
			break;
		if (!follows_call(&process->text, word, &target))
			continue;
		if (target && observe_stack_function_of(process, target) == function) {
			s->sp = sp + 8;
			return word;
		}
		if (!loose) {
			loose = word;
			loose_sp = sp + 8;
		}
	}
	if (loose)
		s->sp = loose_sp;
	return loose;
}

unsigned int vb_dpa_backtrace(const struct vb_dpa_thread *thread, const struct vb_dpa_state *state,
			      uint64_t *frames, unsigned int max)
{
	const struct vb_dpa_process *process = thread->process;
	uint64_t first = observe_stack_function_of(process, thread->entry), ra = state->x[RA],
		 pc = state->pc;
	struct search s;
	uint64_t target;
	unsigned int n = 0;

	search_from(&s, thread, state->x[SP]);
	/* ra is of the function's own call, or left by one that it made and that is over */
	if (max && follows_call(&process->text, ra, &target) &&
	    ((target && observe_stack_function_of(process, target) ==
				observe_stack_function_of(process, pc)) ||
	     observe_stack_function_of(process, ra - 1) != observe_stack_function_of(process, pc)))
		frames[n++] = ra;
	while (n < max && ra != VB_CPU_RETURN_PC) {
		uint64_t function = observe_stack_function_of(process, n ? frames[n - 1] - 1 : pc),
			 frame;

		if (function == first)
			break;
		frame = observe_stack_next_frame(&s, function);
		if (!frame)
			break;
		/* the function has saved ra as well */
		if (!(n == 1 && frame == frames[0]))
			frames[n++] = frame;
	}
	return n;
}
