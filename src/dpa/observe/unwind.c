// SPDX-License-Identifier: MIT
/*
 * Owns the call stack of a thread, by the description of frames that compilers leave in a program
 * (.debug_frame, .eh_frame). The program, its registers and its stack are not trusted: the number of
 * steps is bounded, and memory is read by the caller's function only.
 */
#include "dpa/internal.h"

#ifdef HAVE_LIBDW
#include <dwarf.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>

#include "dpa/observe/libdw.h"

enum { RA = 1, SP = 2, OPS_MAX = 64, DEPTH = 16 };

struct unwinder {
	struct libdw dw;
	Dwarf_CFI *cfi[2];
	uint64_t bias;
	int (*read)(void *arg, uint64_t addr, uint64_t *word);
	void *arg;
	uint64_t x[32], pc;
	uint64_t cfa; /* of the frame at hand */
};

/* ---- DWARF expressions, as far as frames have them ---- */

struct stack {
	uint64_t words[DEPTH];
	unsigned int depth;
	bool value; /* what is on top is the value itself, not its address */
};

static bool unwind_push(struct stack *s, uint64_t word)
{
	if (s->depth == DEPTH)
		return false;
	s->words[s->depth++] = word;
	return true;
}

static bool binary(struct stack *s, bool minus)
{
	if (s->depth < 2)
		return false;
	s->depth--;
	s->words[s->depth - 1] += minus ? 0 - s->words[s->depth] : s->words[s->depth];
	return true;
}

static bool unwind_step(const struct unwinder *u, struct stack *s, const Dwarf_Op *op)
{
	if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31)
		return unwind_push(s, u->x[op->atom - DW_OP_breg0] + op->number);
	if (op->atom >= DW_OP_lit0 && op->atom <= DW_OP_lit31)
		return unwind_push(s, op->atom - DW_OP_lit0);
	switch (op->atom) {
	case DW_OP_bregx:
		return op->number < 32 && unwind_push(s, u->x[op->number] + op->number2);
	case DW_OP_regx:
		s->value = true;
		return op->number < 32 && unwind_push(s, u->x[op->number]);
	case DW_OP_call_frame_cfa:
		return unwind_push(s, u->cfa);
	case DW_OP_const1u:
	case DW_OP_const1s:
	case DW_OP_const2u:
	case DW_OP_const2s:
	case DW_OP_const4u:
	case DW_OP_const4s:
	case DW_OP_constu:
	case DW_OP_consts:
		return unwind_push(s, op->number);
	case DW_OP_plus_uconst:
		return s->depth && (s->words[s->depth - 1] += op->number, true);
	case DW_OP_plus:
	case DW_OP_minus:
		return binary(s, op->atom == DW_OP_minus);
	case DW_OP_deref:
		return s->depth &&
		       !u->read(u->arg, s->words[s->depth - 1], &s->words[s->depth - 1]);
	case DW_OP_stack_value:
		return s->value = true;
	default:
		return false;
	}
}

static bool unwind_evaluate(const struct unwinder *u, const Dwarf_Op *ops, size_t nops,
			    uint64_t *word, bool *value)
{
	struct stack s = { .depth = 0 };

	if (!nops || nops > OPS_MAX)
		return false;
	for (size_t i = 0; i < nops; i++)
		if (!unwind_step(u, &s, &ops[i]))
			return false;
	if (!s.depth)
		return false;
	*word = s.words[s.depth - 1];
	*value = s.value;
	return true;
}

/* ---- frames ---- */

static Dwarf_Frame *frame_at(const struct unwinder *u, uint64_t pc)
{
	Dwarf_Frame *frame = NULL;

	for (unsigned int i = 0; i < 2; i++)
		if (u->cfi[i] && !u->dw.cfi_addrframe(u->cfi[i], pc - u->bias, &frame))
			return frame;
	return NULL;
}

/* What a register was in the caller. False: nobody knows. */
static bool caller_register(const struct unwinder *u, Dwarf_Frame *frame, int number,
			    uint64_t *word)
{
	Dwarf_Op memory[3], *ops;
	size_t nops;
	uint64_t at;
	bool value;

	if (u->dw.frame_register(frame, number, memory, &ops, &nops))
		return false;
	if (!nops && !ops) { /* the same */
		*word = u->x[number];
		return true;
	}
	if (!unwind_evaluate(u, ops, nops, &at, &value))
		return false;
	if (value) {
		*word = at;
		return true;
	}
	return !u->read(u->arg, at, word);
}

/* To the caller's registers. False: this is the last frame that is known. */
static bool frame_out(struct unwinder *u, Dwarf_Frame *frame)
{
	int ra = u->dw.frame_info(frame, NULL, NULL, NULL);
	uint64_t x[32], before = u->cfa;
	Dwarf_Op *ops;
	size_t nops;
	bool value;

	if (ra <= 0 || ra >= 32 || u->dw.frame_cfa(frame, &ops, &nops) ||
	    !unwind_evaluate(u, ops, nops, &u->cfa, &value))
		return false;
	for (int i = 1; i < 32; i++)
		if (!caller_register(u, frame, i, &x[i])) {
			if (i == ra)
				return false;
			x[i] = u->x[i];
		}
	/* Callers are above; a leaf has nothing on the stack. */
	if (u->cfa < before || (u->cfa == before && x[ra] == u->pc))
		return false;
	x[0] = 0;
	x[SP] = u->cfa;
	u->pc = x[ra];
	for (unsigned int i = 0; i < 32; i++)
		u->x[i] = x[i];
	return true;
}

static unsigned int unwind_walk(struct unwinder *u, uint64_t *addrs, unsigned int max)
{
	Dwarf_Frame *frame = frame_at(u, u->pc);
	unsigned int n = 0;

	/* A jump to where no program is: its caller is in ra. */
	if (!frame && max) {
		u->pc = u->x[RA];
		frame = frame_at(u, u->pc - 1);
		if (frame)
			addrs[n++] = u->pc;
	}
	while (frame && n < max) {
		bool out = frame_out(u, frame);

		free(frame);
		frame = NULL;
		if (!out || u->pc == VB_CPU_RETURN_PC)
			break;
		addrs[n++] = u->pc;
		frame = frame_at(u, u->pc - 1); /* the call is before */
	}
	free(frame);
	return n;
}

struct vb_unwinder {
	struct unwinder u;
	Dwarf *dwarf;
	Elf *file;
};

struct vb_unwinder *vb_unwinder_open(const struct vb_dpa_process *process, const void *elf,
				     size_t len)
{
	struct vb_unwinder *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->u.bias = process->program.bias;
	if (vb_libdw_load(&v->u.dw)) {
		elf_version(EV_CURRENT);
		v->file = elf_memory((char *)(uintptr_t)elf, len);
	}
	if (!v->file) {
		free(v);
		return NULL;
	}
	v->dwarf = v->u.dw.begin_elf(v->file, DWARF_C_READ, NULL);
	v->u.cfi[0] = v->dwarf ? v->u.dw.getcfi(v->dwarf) : NULL; /* goes with dwarf */
	v->u.cfi[1] = v->u.dw.getcfi_elf(v->file);
	return v;
}

unsigned int vb_unwinder_walk(struct vb_unwinder *v, const struct vb_dpa_state *state,
			      int (*read)(void *arg, uint64_t addr, uint64_t *word), void *arg,
			      uint64_t *addrs, unsigned int max)
{
	v->u.read = read;
	v->u.arg = arg;
	for (unsigned int i = 0; i < 32; i++)
		v->u.x[i] = state->x[i];
	v->u.pc = state->pc;
	v->u.cfa = 0;
	return unwind_walk(&v->u, addrs, max);
}

void vb_unwinder_close(struct vb_unwinder *v)
{
	if (v->u.cfi[1])
		v->u.dw.cfi_end(v->u.cfi[1]);
	if (v->dwarf)
		v->u.dw.end(v->dwarf);
	elf_end(v->file);
	free(v);
}
#else
struct vb_unwinder *vb_unwinder_open(const struct vb_dpa_process *process, const void *elf,
				     size_t len)
{
	(void)process, (void)elf, (void)len;
	return NULL;
}

unsigned int vb_unwinder_walk(struct vb_unwinder *v, const struct vb_dpa_state *state,
			      int (*read)(void *arg, uint64_t addr, uint64_t *word), void *arg,
			      uint64_t *addrs, unsigned int max)
{
	(void)v, (void)state, (void)read, (void)arg, (void)addrs, (void)max;
	return 0;
}

void vb_unwinder_close(struct vb_unwinder *v)
{
	(void)v;
}
#endif

unsigned int vb_dpa_unwind(const struct vb_dpa_process *process, const void *elf, size_t len,
			   const struct vb_dpa_state *state,
			   int (*read)(void *arg, uint64_t addr, uint64_t *word), void *arg,
			   uint64_t *addrs, unsigned int max)
{
	struct vb_unwinder *v = vb_unwinder_open(process, elf, len);
	unsigned int n = v ? vb_unwinder_walk(v, state, read, arg, addrs, max) : 0;

	if (v)
		vb_unwinder_close(v);
	return n;
}
