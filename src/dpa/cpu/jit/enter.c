// SPDX-License-Identifier: MIT
/*
 * Owns the running of translated code: in, out, and back to exact state from wherever it stopped.
 *
 * Inside, r15 counts down from what is left minus SLACK; blocks subtract their length first and
 * only some of them look, but none gets further than SLACK past zero. The rest, up to the exact
 * end, is interpreted where somebody asked for that end. So is everything without translated code,
 * one instruction at a time until there is some again.
 */
#include "dpa/cpu/jit/runtime.h"

#include <pthread.h>
#include <ucontext.h>

#define STACK_RESERVE \
	65536 /* free below the predictor, for signal handlers of the program and for callbacks */

_Static_assert(SLACK + BLOCK_MAX <= VB_CPU_EARLY, "what translated code leaves undone");

/* ---- host stack ---- */

/* The calling thread's own stack; empty if nobody knows. */
struct stack {
	uintptr_t low, high;
	bool asked;
};

static struct stack own_stack(void)
{
	static _Thread_local struct stack own;
	pthread_attr_t attr;
	size_t size;
	void *addr;

	if (!own.asked && !pthread_getattr_np(pthread_self(), &attr)) {
		if (!pthread_attr_getstack(&attr, &addr, &size)) {
			own.low = (uintptr_t)addr;
			own.high = own.low + size;
		}
		pthread_attr_destroy(&attr);
	}
	own.asked = true;
	return own;
}

/*
 * How far the predictor may grow here. 0: every call puts its return address where the last one
 * did. So it is with little room, and on any stack but the thread's own, as coroutine libraries
 * make: nothing tells where those end. Translated code then takes no more of a stack than the
 * interpreter does.
 */
static uintptr_t predictor_bytes(void)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	struct stack own = own_stack();

	if (here < own.low || here >= own.high || here - own.low <= STACK_RESERVE + PRED_BYTES)
		return 0;
	return PRED_BYTES;
}

/* ---- exact state ---- */

static void extend_pending(struct vb_cpu *cpu, uint32_t pending)
{
	for (; pending; pending &= pending - 1) {
		uint64_t *x = &cpu->s.x[__builtin_ctz(pending)];

		*x = (uint64_t)(int64_t)(int32_t)*x;
	}
}

/* The registers are stored; make pc, instret and the upper halves those of the site's instruction.
 */
static void state_of_site(struct vb_cpu *cpu, const struct site *site, uint64_t budget)
{
	extend_pending(cpu, site->pending);
	cpu->s.pc = cpu->text->lo + 2 * (uint64_t)site->index;
	cpu->s.instret = cpu->end_instret - (budget + site->left);
}

uint64_t vb_jit_execute(struct vb_cpu *cpu, uint64_t site, struct generation *gen)
{
	struct site note = gen->sites[(uint32_t)site];
	enum vb_cpu_exit exit;

	if (note.left == LOOP_SITE) { /* before its block, of which nothing is paid */
		note.left = 0;
		state_of_site(cpu, &note, cpu->budget);
		run_loop(cpu, find_loop_at(gen, note.index));
		return 0;
	}
	state_of_site(cpu, &note, cpu->budget);
	exit = vb_interp_run(cpu, 1);
	cpu->jit_exit = exit;
	return exit != VB_CPU_BUDGET;
}

static const struct site *find_site(const struct generation *gen, uint64_t host)
{
	size_t lo = 0, hi = gen->nsites;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (gen->sites[mid].host < host)
			lo = mid + 1;
		else
			hi = mid;
	}
	/*
	 * Several notes may share an offset (nothing was emitted between them); the last is the
	 * access.
	 */
	while (lo + 1 < gen->nsites && gen->sites[lo + 1].host == host)
		lo++;
	return lo < gen->nsites && gen->sites[lo].host == host ? &gen->sites[lo] : NULL;
}

bool vb_jit_fault(struct vb_cpu *cpu, void *context)
{
	static const uint8_t gregs[16] = {
		[RAX] = REG_RAX, [RCX] = REG_RCX, [RDX] = REG_RDX, [RBX] = REG_RBX,
		[RSP] = REG_RSP, [RBP] = REG_RBP, [RSI] = REG_RSI, [RDI] = REG_RDI,
		[R8] = REG_R8,   [R9] = REG_R9,   [R10] = REG_R10, [R11] = REG_R11,
		[R12] = REG_R12, [R13] = REG_R13, [R14] = REG_R14, [R15] = REG_R15,
	};
	const greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	const struct vb_jit *jit = cpu->text->jit;
	const struct generation *gen = NULL;
	const struct site *site;
	uint64_t host = 0;

	if (!jit || !cpu->in_jit)
		return false;
	for (unsigned int g = 0;
	     g < atomic_load_explicit(&jit->ngens, memory_order_acquire) && !gen; g++) {
		host = (uint64_t)regs[REG_RIP] - (uint64_t)(uintptr_t)jit->gens[g].code;
		gen = host < jit->gens[g].code_used ? &jit->gens[g] : NULL;
	}
	site = gen ? find_site(gen, host) : NULL;
	if (!site)
		return false;
	for (unsigned int r = 1; r < 32; r++)
		if (gen->host[r] != NOREG)
			cpu->s.x[r] = (uint64_t)regs[gregs[gen->host[r]]];
	state_of_site(cpu, site, (uint64_t)regs[REG_R15]);
	cpu->in_loop = site->pending & SITE_RESTART; /* run.c: the interpreter goes on here */
	cpu->ip = NULL;
	return true;
}

/* ---- running ---- */

/* Host code for s.pc, if there is any and its assumptions hold. */
static const void *find_code(const struct vb_cpu *cpu, const struct epoch *epoch)
{
	const struct vb_jit *jit = cpu->text->jit;
	const void *code;

	if (!vb_text_holds(cpu->text, cpu->s.pc) || (jit->sp_checked && cpu->s.x[2] >= cpu->limit))
		return NULL;
	code = __atomic_load_n(&epoch->table[vb_text_index(cpu->text, cpu->s.pc)],
			       __ATOMIC_ACQUIRE);
	return code == epoch->miss ? NULL : code;
}

/* Why did it leave? */
static void enter_learn(struct vb_cpu *cpu)
{
	const struct vb_insn *insn;
	uint32_t index;

	if (!vb_text_holds(cpu->text, cpu->s.pc))
		return;
	index = (uint32_t)vb_text_index(cpu->text, cpu->s.pc);
	insn = &cpu->text->insns[index];
	if (cpu->missed) /* it is executed, so it is code, whatever the sweep took it for */
		vb_jit_learn(cpu->text->jit, index, EXTRA_LEADER | EXTRA_SYMBOL);
	else if (insn->op >= VB_OP_LB && insn->op <= VB_OP_SD &&
		 cpu->s.x[insn->rs1] >= VB_DPA_WINDOW_BASE)
		vb_jit_learn(cpu->text->jit, index, EXTRA_WINDOW);
}

/* Translated code until it leaves by itself. True: with an event. */
static bool enter_code(struct vb_cpu *cpu, const struct epoch *epoch, const void *code,
		       uint64_t left)
{
	bool event;

	cpu->budget = left - SLACK;
	cpu->end_instret = cpu->s.instret + cpu->budget;
	cpu->missed = false;
	cpu->in_jit = true;
	atomic_signal_fence(memory_order_seq_cst);
	event = epoch->enter(cpu, code);
	atomic_signal_fence(memory_order_seq_cst);
	cpu->in_jit = false;
	if (event)
		return true;
	cpu->s.instret = cpu->end_instret - cpu->budget;
	enter_learn(cpu);
	return false;
}

enum vb_cpu_exit vb_jit_run(struct vb_cpu *cpu, uint64_t max, bool exact)
{
	struct vb_jit *jit = cpu->text->jit;
	uint64_t end = cpu->s.instret + max;
	uintptr_t predictor = predictor_bytes();
	enum vb_cpu_exit exit = VB_CPU_BUDGET;
	const struct epoch *epoch;

	if (!atomic_load_explicit(&jit->settled, memory_order_relaxed))
		exit = vb_jit_profile(cpu, max);
	epoch = &jit->epochs[atomic_load_explicit(&jit->epoch, memory_order_acquire)];
	cpu->pred_limit = (uint64_t)(uintptr_t)__builtin_frame_address(0) - predictor;
	while (exit == VB_CPU_BUDGET && cpu->s.instret != end) {
		uint64_t left = end - cpu->s.instret;
		const void *code;

		if (left <= SLACK + BLOCK_MAX)
			return exact ? vb_interp_run(cpu, left) : VB_CPU_BUDGET;
		code = find_code(cpu, epoch);
		if (code && enter_code(cpu, epoch, code, left))
			return (enum vb_cpu_exit)cpu->jit_exit;
		/*
		 * Whatever made translated code leave, or be missing, is the interpreter's for one
		 * instruction.
		 */
		exit = vb_interp_run(cpu, 1);
	}
	return exit;
}
