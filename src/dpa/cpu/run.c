// SPDX-License-Identifier: MIT
/*
 * Owns the running of a cpu: which tier, for how long, and where a fault lands.
 *
 *      vb_cpu_run -- setjmp --> pieces of at most PIECE instructions --> translator or interpreter
 *           ^                                                                   |
 *           `------------------- longjmp from signal.c -------------------------'
 */
#include "dpa/cpu/cpu.h"
#include "dpa/cpu/jit/jit.h"
#include "dpa/cpu/ops.h"

#include <assert.h>
#include <string.h>

#include "base/time.h"

/* How many instructions may pass before a stop request is seen. */
#define PIECE 20000

_Static_assert(PIECE > 2 * VB_CPU_EARLY, "a piece gets on");

void vb_cpu_init(struct vb_cpu *cpu, struct vb_text *text, uint8_t *base, uint64_t limit)
{
	memset(cpu, 0, sizeof(*cpu));
	cpu->text = text;
	cpu->base = base;
	cpu->limit = limit;
	cpu->reserved_addr = ~0ULL;
}

uint64_t vb_cpu_clock_now(void)
{
	uint64_t now = vb_now_ns();

	/* 1.8 ticks a nanosecond; the unsigned wrap is that of a 64-bit counter. */
	static_assert(VB_DPA_CLOCK_HZ == 1800000000, "9 / 5 of a nanosecond");
	return now / 5 * 9 + now % 5 * 9 / 5;
}

uint64_t vb_cpu_clock(const struct vb_cpu *cpu, uint64_t instret)
{
	return cpu->deterministic ? instret : vb_cpu_clock_now();
}

/* Set the trap that the instruction at s.pc raises with the access that just faulted. */
static void set_trap(struct vb_cpu *cpu)
{
	const struct vb_insn *insn = &cpu->text->insns[(cpu->s.pc - cpu->text->lo) / 2];
	bool load = (insn->op >= VB_OP_LB && insn->op <= VB_OP_LWU) || insn->op == VB_OP_LR_W ||
		    insn->op == VB_OP_LR_D;

	cpu->s.cause = load ? VB_DPA_CAUSE_LOAD : VB_DPA_CAUSE_STORE;
	cpu->s.tval = cpu->s.x[insn->rs1] + (uint64_t)(int64_t)insn->imm;
}

/* After a longjmp: find the instruction that faulted, unless vb_jit_fault already did. */
static enum vb_cpu_exit run_fault(struct vb_cpu *cpu)
{
	vb_access_end(cpu);
	cpu->in_jit = false;
	cpu->stop_behind = false;
	if (cpu->ip) {
		cpu->s.pc = cpu->text->lo + 2 * (uint64_t)(cpu->ip - cpu->text->insns);
		cpu->s.instret = cpu->interp_end - cpu->left;
	}
	set_trap(cpu);
	return VB_CPU_TRAP;
}

/* Nobody sees where a piece ends, so only the last one may have to be exact. */
static enum vb_cpu_exit run_pieces(struct vb_cpu *cpu, uint64_t max, bool exact)
{
	uint64_t start = cpu->s.instret;
	uint64_t early = exact || max < 2 * VB_CPU_EARLY ? 0 : VB_CPU_EARLY;
	enum vb_cpu_exit exit = VB_CPU_BUDGET;

	while (exit == VB_CPU_BUDGET && cpu->s.instret - start < max - early) {
		uint64_t left = max - (cpu->s.instret - start);
		uint64_t piece = left < PIECE ? left : PIECE;

		if (atomic_load_explicit(&cpu->stop, memory_order_relaxed))
			return VB_CPU_STOPPED;
		if (cpu->text->jit && !cpu->plain)
			exit = vb_jit_run(cpu, piece, piece == left && !early);
		else if (cpu->text->observer)
			exit = vb_observed_run(cpu, piece);
		else
			exit = vb_interp_run(cpu, piece);
	}
	return exit;
}

/* After a longjmp: turns of a loop could not all be made (jit/loops.c). */
static bool run_plain(struct vb_cpu *cpu)
{
	if (!cpu->in_loop)
		return false;
	cpu->in_loop = false;
	cpu->in_jit = false;
	cpu->plain = true;
	return true;
}

enum vb_cpu_exit vb_cpu_run(struct vb_cpu *cpu, uint64_t max, bool exact)
{
	struct vb_cpu *outer = vb_cpu_current;
	const uint64_t start = cpu->s.instret;
	enum vb_cpu_exit exit;
	jmp_buf fault;

	cpu->s.x[0] = 0;
	cpu->plain = false;
	if (_setjmp(fault) == 0 || run_plain(cpu)) {
		vb_cpu_current = cpu;
		atomic_signal_fence(memory_order_seq_cst);
		cpu->fault = &fault;
		exit = run_pieces(cpu, max - (cpu->s.instret - start), exact);
	} else {
		exit = run_fault(cpu);
	}
	cpu->fault = NULL;
	atomic_signal_fence(memory_order_seq_cst);
	vb_cpu_current = outer;
	return exit;
}
