// SPDX-License-Identifier: MIT
/*
 * Owns the trapped regions and what happens when one is stored to.
 *
 *	store faults --> which region? --> decode --> callback(s) --> registers, then behind the instruction
 *	                     | none           | no store that we know
 *	                     v                v
 *	              not ours: the next     message, then as any other fault
 *
 * A region is a slot of a table that only grows; its base is 0 while it is free. A handler that
 * found it counts itself in first and looks again, so vb_trap_unmap() knows when the last one has
 * left.
 *
 * Regions of operations are unmapped by the program, and nobody tells us: munmap() of the C library
 * can be called past every wrapper. So each of their pages begins with a cookie. On a fault the page
 * is mapped a second time, which the kernel does for shared memory, and there the cookie is read. The
 * address may have become another region meanwhile: whoever maps one takes it away from those that
 * had it before.
 *
 * Stacks. A program's alternate signal stack may have room for little more than the signal, and
 * a ring of a doorbell executes work requests. So decoding and callback are moved to the stack that
 * the store was made on, with the alternate stack switched off meanwhile: a signal that comes now
 * would otherwise be put on top of our own frame. Returning from the signal switches it on again.
 */
#include "host/trap/trap.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/fault.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/time.h"
#include "host/patch/patch.h"
#include "host/signals.h"
#include "host/patch/sites.h"
#include "host/patch/store.h"

#if defined(__x86_64__)

#include <asm/prctl.h>

enum {
	MAX_REGIONS = 4096,
	PAGE = 4096,
	FIRST_SWEEP =
		64, /* regions of operations, before it is looked which of them are unmapped */
	WRITE_FAULT = 2,
	FETCH_FAULT = 16,
	GENERAL_PROTECTION = 13,
	RED_ZONE = 128,
	ALIGNMENT_CHECK = 1 << 18, /* of the flags */
	/* bounded, because a handler of the program past us may have interrupted a call */
	SETTLE_YIELDS = 100,
	SETTLE_SLEEPS = 1000, /* of a millisecond */
};

struct region {
	_Atomic uintptr_t base; /* 0: free */
	_Atomic uint32_t users; /* handlers that are looking at it or inside its callback */
	size_t size;
	vb_trap_store *store;
	vb_trap_op *op;  /* or NULL: it has stores */
	uint64_t number; /* of the cookies: operations */
	void *arg;
};

/* At the beginning of each page of a region of operations. */
struct cookie {
	uint64_t magic, number;
};

static const uint64_t COOKIE_MAGIC = 0x6f702d7061676521;

static struct region regions[MAX_REGIONS];
static _Atomic uint32_t num_regions; /* slots ever used */
static struct vb_lock lock;

/* --- registers of the thread that stored ------------------------------------------------------ */

static const int gpr_index[VB_STORE_GPRS] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
					      REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
					      REG_R12, REG_R13, REG_R14, REG_R15 };

/* The kernel writes the size of the whole image into the software bytes of the legacy part. */
static size_t image_size(const void *fpstate)
{
	uint32_t words[2]; /* magic, size */

	memcpy(words, (const char *)fpstate + 464, sizeof(words));
	return words[0] == 0x46505853u ? words[1] : 512;
}

static uint64_t segment_base(bool gs)
{
	unsigned long base = 0;

	syscall(SYS_arch_prctl, gs ? ARCH_GET_GS : ARCH_GET_FS, &base);
	return base;
}

static void read_registers(const ucontext_t *uc, struct vb_store_regs *regs)
{
	for (int i = 0; i < VB_STORE_GPRS; i++)
		regs->gpr[i] = (uint64_t)uc->uc_mcontext.gregs[gpr_index[i]];
	regs->rip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
	regs->rflags = (uint64_t)uc->uc_mcontext.gregs[REG_EFL];
	regs->vectors = NULL;
	regs->fpstate = uc->uc_mcontext.fpregs;
	regs->fpstate_size = regs->fpstate ? image_size(regs->fpstate) : 0;
	regs->segment_base = segment_base;
}

static void trap_write_registers(ucontext_t *uc, const struct vb_store_regs *regs)
{
	for (int i = 0; i < VB_STORE_GPRS; i++)
		uc->uc_mcontext.gregs[gpr_index[i]] = (greg_t)regs->gpr[i];
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)regs->rip;
}

/* --- doing what the instruction would have done ----------------------------------------------- */

struct trap {
	ucontext_t *uc; /* NULL: it is a call, not a fault */
	struct region *region;
	const void *addr;           /* that it faulted at */
	struct vb_tramp *tramp;     /* that it faulted in; NULL: in none */
	struct vb_store_regs *regs; /* changed as the instruction would */
	struct vb_store_form form;
	struct vb_store store;
	struct vb_site *site;     /* NULL: no room in the table */
	struct vb_tramp *covered; /* a breakpoint is on its site; otherwise NULL */
	uint8_t code[VB_STORE_CODE_MAX];
	size_t code_len;
	bool load;
	bool done;
};

static bool inside(const struct region *region, uint64_t addr, size_t size)
{
	uintptr_t base = atomic_load_explicit(&region->base, memory_order_relaxed);

	return addr >= base && addr - base + size <= region->size;
}

static void trap_deliver(struct region *region, uint64_t addr, const void *data, size_t size)
{
	region->store(region->arg,
		      (size_t)(addr - atomic_load_explicit(&region->base, memory_order_relaxed)),
		      data, size);
}

/*
 * What was in memory reads as zero. Writing 32 bits of a register clears the rest of it, fewer bits
 * do not.
 */
static void exchange_register(struct trap *t)
{
	const struct vb_store *s = &t->store;
	uint64_t old = t->regs->gpr[s->reg], mask;

	if (s->size >= 4)
		mask = 0;
	else if (s->reg_high)
		mask = ~0xff00ull;
	else
		mask = s->size == 2 ? ~0xffffull : ~0xffull;
	t->regs->gpr[s->reg] = old & mask;
}

/* Gathers elements of a copy from program memory; the number that could be read. */
static uint64_t trap_gather(const struct vb_store *s, uint64_t source, uint64_t n, uint8_t *piece)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		if (s->kind == VB_STORE_FILL)
			memcpy(piece + i * s->size, s->data, s->size);
		else if (vb_fault_copy(piece + i * s->size,
				       (const void *)(uintptr_t)(source + i * s->size), s->size))
			break;
	}
	return i;
}

/*
 * Elements as far as they lie in the region. The instruction is left, or repeated for what remains,
 * as after an interruption: memory behind the region and sources that are not there then fault by
 * themselves.
 */
static bool do_string(struct trap *t)
{
	const struct vb_store *s = &t->store;
	bool down = t->regs->rflags & 0x400;
	uint64_t left = s->repeat ? t->regs->gpr[VB_GPR_CX] : 1, done = 0;
	uint64_t mask = s->address32 ? UINT32_MAX : UINT64_MAX;
	uint64_t step = down ? (uint64_t)0 - s->size : s->size;
	uint8_t piece[VB_STORE_MAX];

	if (s->repeat)
		left &= mask;
	while (done < left) {
		uint64_t at = s->addr + done * step, from = s->source + done * step;
		uint64_t want = down ? 1 : VB_STORE_MAX / s->size, n;

		want = want < left - done ? want : left - done;
		while (want && !inside(t->region, at, want * s->size))
			want--;
		n = trap_gather(s, from, want, piece);
		if (!n)
			break;
		trap_deliver(t->region, at, piece, n * s->size);
		done += n;
	}
	if (!done && left)
		return false;
	t->regs->gpr[VB_GPR_DI] = (s->addr + done * step) & mask;
	if (s->kind == VB_STORE_COPY)
		t->regs->gpr[VB_GPR_SI] = (s->source + done * step) & mask;
	if (s->repeat)
		t->regs->gpr[VB_GPR_CX] = left - done;
	if (done == left)
		t->regs->rip += s->length;
	return true;
}

/* The next stretch of bytes that are stored, from *at on; its length, 0 at the end. */
static uint32_t next_stretch(const struct vb_store *s, uint32_t *at)
{
	uint32_t end;

	while (*at < s->size && !(s->mask >> *at & 1))
		++*at;
	for (end = *at; end < s->size && (s->mask >> end & 1); end++)
		;
	return end - *at;
}

/* False where it reaches out of the region: no doorbell is rung like this. */
static bool do_plain(struct trap *t)
{
	const struct vb_store *s = &t->store;
	uint32_t at, n;

	if (s->mask == UINT64_MAX) { /* nearly always */
		if (!inside(t->region, s->addr, s->size))
			return false;
		trap_deliver(t->region, s->addr, s->data, s->size);
		return true;
	}
	for (at = 0; (n = next_stretch(s, &at)) != 0; at += n)
		if (!inside(t->region, s->addr + at, n))
			return false;
	for (at = 0; (n = next_stretch(s, &at)) != 0; at += n)
		trap_deliver(t->region, s->addr + at, s->data + at, n);
	return true;
}

static bool trap_do_store(struct trap *t)
{
	struct vb_store *s = &t->store;

	if (s->kind == VB_STORE_FILL || s->kind == VB_STORE_COPY)
		return do_string(t);
	if (s->kind == VB_STORE_BLOCK &&
	    vb_fault_copy(s->data, (const void *)(uintptr_t)s->source, s->size))
		return false;
	if (!do_plain(t))
		return false;
	if (s->kind == VB_STORE_EXCHANGE)
		exchange_register(t);
	t->regs->rip += s->length;
	return true;
}

/* --- operations ------------------------------------------------------------------------------- */

static bool trap_operate(struct trap *t, uint64_t addr, uint64_t *value, size_t size)
{
	struct region *region = t->region;
	uintptr_t base = atomic_load_explicit(&region->base, memory_order_relaxed);

	if ((size != 1 && size != 2 && size != 4 && size != 8) || addr % size ||
	    !inside(region, addr, size))
		return false;
	return region->op(region->arg, (size_t)(addr - base), t->load, value, size);
}

static bool do_op_store(struct trap *t)
{
	const struct vb_store *s = &t->store;
	uint64_t value = 0;

	if (s->kind != VB_STORE_PLAIN || s->mask != UINT64_MAX || s->size > sizeof(value))
		return false;
	memcpy(&value, s->data, s->size);
	if (!trap_operate(t, s->addr, &value, s->size))
		return false;
	t->regs->rip += s->length;
	return true;
}

/* Whether a page is still of its region. The kernel may have no mapping left to look with. */
enum cookie_is { COOKIE_GONE, COOKIE_THERE, COOKIE_UNKNOWN };

/* Both mappings are of one page, whatever may happen at addr in the meantime. */
static enum cookie_is look_for_cookie(uintptr_t addr, uint64_t number)
{
	long page = (long)(addr & ~(uintptr_t)(PAGE - 1));
	long second = syscall(SYS_mremap, page, 0L, (long)PAGE, (long)MREMAP_MAYMOVE, 0L);
	struct cookie cookie = { 0 };
	enum cookie_is is = COOKIE_GONE;

	if (second == -1) /* EFAULT, EINVAL: not there, or private memory of the program */
		return errno == EFAULT || errno == EINVAL ? COOKIE_GONE : COOKIE_UNKNOWN;
	if (syscall(SYS_mprotect, second, (long)PAGE, (long)PROT_READ))
		is = errno == ENOMEM ? COOKIE_UNKNOWN : COOKIE_GONE;
	else if (!vb_fault_copy(&cookie, (const void *)second, sizeof(cookie)) &&
		 cookie.magic == COOKIE_MAGIC && cookie.number == number)
		is = COOKIE_THERE;
	syscall(SYS_munmap, second, (long)PAGE);
	return is;
}

/* Its slot is free when the last handler has left it. */
static void trap_retire(struct region *region, uintptr_t base)
{
	atomic_compare_exchange_strong_explicit(&region->base, &base, 0, memory_order_seq_cst,
						memory_order_relaxed);
}

/* --- the instruction -------------------------------------------------------------------------- */

/* The instruction may end right before a page that cannot be read. */
static size_t read_code(uint64_t rip, uint8_t *code)
{
	size_t first = 4096 - (rip & 4095);

	if (first > VB_STORE_CODE_MAX)
		first = VB_STORE_CODE_MAX;
	if (vb_fault_copy(code, (const void *)(uintptr_t)rip, first))
		return 0;
	if (first < VB_STORE_CODE_MAX &&
	    !vb_fault_copy(code + first, (const void *)(uintptr_t)(rip + first),
			   VB_STORE_CODE_MAX - first))
		return VB_STORE_CODE_MAX;
	return first;
}

static void trap_complain(const struct trap *t)
{
	static const char *const what[] = { "store to doorbell page", "store to operation address",
					    "load from operation address" };
	bool op = t->region->op;
	char text[256];
	int n = snprintf(text, sizeof(text),
			 "verbatim: cannot decode the %s %p at %#llx:", what[op + (op && t->load)],
			 t->addr, (unsigned long long)t->regs->rip);

	for (size_t i = 0; i < t->code_len; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " %02x", t->code[i]);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "%s\n",
		      op ? "; use a mov of 1, 2, 4 or 8 bytes, aligned, that has an operation"
			 : "; ring with a mov, xchg, vector or string store");
	if (vb_file_write(STDERR_FILENO, text, (size_t)n) < 0)
		return;
}

/* What was executed: the bytes at rip, unless they are a jump of ours by now. */
static bool understand(struct trap *t)
{
	struct vb_tramp *tramp = t->tramp;

	t->covered = NULL;
	if (!tramp) {
		tramp = vb_patch_executed(t->regs->rip, t->code, &t->code_len, read_code);
		if (tramp && t->code_len && t->code[0] == VB_INT3)
			t->covered = tramp;
	}
	if (!tramp)
		return !vb_site_parse(t->regs->rip, t->code, t->code_len, &t->form, &t->site);
	t->form = tramp->form;
	t->site = NULL;
	t->code_len = t->form.length;
	memcpy(t->code, tramp->code, t->code_len);
	return true;
}

static bool do_op_load(struct trap *t)
{
	struct vb_load load;
	uint64_t value = 0;

	t->code_len = read_code(t->regs->rip, t->code);
	if (vb_load_decode(t->code, t->code_len, t->regs, &load) ||
	    !trap_operate(t, load.addr, &value, load.size))
		return false;
	vb_load_finish(&load, value, t->regs);
	t->regs->rip += load.length;
	return true;
}

static bool do_access(struct trap *t)
{
	t->site = NULL;
	t->covered = NULL;
	if (t->load)
		return do_op_load(t);
	if (!understand(t) || vb_store_eval(&t->form, t->regs, &t->store))
		return false;
	return t->region->op ? do_op_store(t) : trap_do_store(t);
}

/* --- stacks ----------------------------------------------------------------------------------- */

__asm__(".text\n"
	".hidden vb_trap_call_on\n"
	".globl vb_trap_call_on\n"
	".type vb_trap_call_on, @function\n"
	"vb_trap_call_on:\n"
	"	.cfi_startproc\n"
	"	pushq %rbp\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset %rbp, -16\n"
	"	movq %rsp, %rbp\n"
	"	.cfi_def_cfa_register %rbp\n"
	"	movq %rdi, %rsp\n"
	"	movq %rdx, %rdi\n"
	"	call *%rsi\n"
	"	movq %rbp, %rsp\n"
	"	popq %rbp\n"
	"	.cfi_def_cfa %rsp, 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size vb_trap_call_on, .-vb_trap_call_on\n");

/* Patching is done on another stack: not from an alternate one, where a fault there would be put. */
static bool trap_carry_out(struct trap *t, bool may_patch)
{
	bool done = do_access(t);

	if (!done)
		trap_complain(t);
	if (!may_patch)
		return done;
	if (done && t->site && !t->region->op)
		vb_patch_consider(t->site);
	if (done && t->covered)
		vb_patch_uncover(t->covered);
	return done;
}

static void off_alternate(void *arg)
{
	struct trap *t = arg;
	stack_t off = { .ss_flags = SS_DISABLE };

	sigaltstack(&off, NULL);
	t->done = trap_carry_out(t, true);
}

static bool is_on(const stack_t *stack, uintptr_t sp)
{
	return !(stack->ss_flags & SS_DISABLE) && sp >= (uintptr_t)stack->ss_sp &&
	       sp - (uintptr_t)stack->ss_sp < stack->ss_size;
}

static bool trap_run(struct trap *t)
{
	uintptr_t sp = (uintptr_t)t->uc->uc_mcontext.gregs[REG_RSP];
	const stack_t *alternate = &t->uc->uc_stack;

	if (is_on(alternate, sp))
		return trap_carry_out(t, false);
	if (!is_on(alternate, (uintptr_t)__builtin_frame_address(0)))
		return trap_carry_out(t, true);
	vb_trap_call_on((void *)((sp - RED_ZONE) & ~(uintptr_t)63), off_alternate, t);
	/* The program's own handler is next, on this stack, and may leave it by a jump. */
	if (!t->done)
		sigaltstack(alternate, NULL);
	return t->done;
}

/* --- the fault -------------------------------------------------------------------------------- */

static void trap_leave(struct region *region)
{
	atomic_fetch_sub_explicit(&region->users, 1, memory_order_release);
}

/* Counted in when it returns one: no callback is taken away under us. */
static struct region *trap_find(uintptr_t addr, bool ops)
{
	uint32_t count = atomic_load_explicit(&num_regions, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++) {
		struct region *region = &regions[i];
		uintptr_t base = atomic_load_explicit(&region->base, memory_order_acquire);

		if (!base || addr < base || addr - base >= region->size)
			continue;
		/* Pairs with vb_trap_unmap(): it sees us, or we see that the region is gone. */
		atomic_fetch_add_explicit(&region->users, 1, memory_order_seq_cst);
		if (atomic_load_explicit(&region->base, memory_order_seq_cst) == base &&
		    addr - base < region->size && (ops || !region->op))
			return region;
		trap_leave(region);
	}
	return NULL;
}

/* The region that an access faulted in, or NULL: it is not ours. */
static struct region *find_faulted(uintptr_t addr, bool load)
{
	struct region *region = trap_find(addr, true);

	/* A page that cannot be looked at is taken for what we know of it. */
	if (!region || (!region->op && !load) ||
	    (region->op && look_for_cookie(addr, region->number) != COOKIE_GONE))
		return region;
	trap_leave(region);
	return NULL;
}

/*
 * A fault of the store in a trampoline is one of the site: registers are as they were there. So that
 * is what the program's own handler sees, too.
 */
static struct vb_tramp *back_to_site(ucontext_t *uc)
{
	uintptr_t rip = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
	struct vb_tramp *tramp = vb_site_find(rip) ? NULL : vb_patch_at(rip);

	if (tramp)
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)tramp->site;
	return tramp;
}

/* Nothing can be executed here. It may be a jump of ours whose bytes are not as we left them. */
static bool trap_resume(ucontext_t *uc)
{
	uintptr_t to = vb_patch_strayed((uintptr_t)uc->uc_mcontext.gregs[REG_RIP]);

	if (to)
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)to;
	return to != 0;
}

static bool trap_answer(int sig, siginfo_t *info, void *context)
{
	VB_DEFER_CANCEL;
	ucontext_t *uc = context;
	struct vb_tramp *tramp = back_to_site(uc);
	struct vb_store_regs regs;
	struct trap t;
	int saved = errno;
	bool done;

	if (sig != SIGSEGV)
		return false;
	if (uc->uc_mcontext.gregs[REG_TRAPNO] == GENERAL_PROTECTION) {
		done = !tramp && (vb_patch_halted((uintptr_t)uc->uc_mcontext.gregs[REG_RIP]) ||
				  trap_resume(uc));
		errno = saved;
		return done;
	}
	if (uc->uc_mcontext.gregs[REG_ERR] & FETCH_FAULT)
		return trap_resume(uc);
	t.load = !(uc->uc_mcontext.gregs[REG_ERR] & WRITE_FAULT);
	if (t.load && tramp)
		return false;
	t.uc = uc;
	t.regs = &regs;
	t.tramp = tramp;
	t.addr = info->si_addr;
	t.region = find_faulted((uintptr_t)info->si_addr, t.load);
	if (!t.region) {
		errno = saved;
		return false;
	}
	if (!t.region->op)
		vb_patch_count_trap();
	read_registers(uc, &regs);
	done = trap_run(&t);
	if (done)
		trap_write_registers(uc, &regs);
	trap_leave(t.region);
	errno = saved;
	return done;
}

static void trap_check_alignment(bool on)
{
	uint64_t flags = __builtin_ia32_readeflags_u64();

	__builtin_ia32_writeeflags_u64(on ? flags | ALIGNMENT_CHECK : flags & ~ALIGNMENT_CHECK);
}

/* The kernel leaves this flag as it was at the store; our accesses are not aligned. */
static bool trap_on_fault(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;
	bool checks = uc->uc_mcontext.gregs[REG_EFL] & ALIGNMENT_CHECK, done;

	if (checks)
		trap_check_alignment(false);
	done = trap_answer(sig, info, context);
	if (checks && !done)
		trap_check_alignment(true);
	return done;
}

/* --- the call of a patched site --------------------------------------------------------------- */

/*
 * As for a fault, no handler of the program may run while the callback does: it could ring itself,
 * or leave by a jump with locks held. Where the program has none, none needs to be held off. Who
 * installs the first one waits for calls that have not seen it (trap_wait_calls()): hence the second look.
 */
static struct region *trap_enter(uintptr_t addr, sigset_t *before, bool *blocked)
{
	struct region *region;

	*blocked = vb_fault_has_handlers();
	if (!*blocked) {
		region = trap_find(addr, false);
		if (!region || !vb_fault_has_handlers())
			return region;
		trap_leave(region);
		*blocked = true;
	}
	vb_signal_block(before);
	return trap_find(addr, false);
}

bool vb_trap_direct(struct vb_store_regs *regs, struct vb_tramp *tramp)
{
	VB_DEFER_CANCEL;
	struct trap t;
	void *guard = vb_fault_guard();
	int saved = errno;
	sigset_t before;
	bool blocked, done = false;

	t.uc = NULL;
	t.regs = regs;
	t.site = NULL;
	/* What the processor would not execute is left to it. */
	if (vb_store_eval(&tramp->form, regs, &t.store) ||
	    (tramp->form.aligned && t.store.addr % t.store.size))
		return false;
	t.region = trap_enter(t.store.addr, &before, &blocked);
	if (t.region) {
		done = trap_do_store(&t);
		trap_leave(t.region);
	}
	if (blocked)
		vb_signal_unblock(&before);
	if (done)
		vb_patch_hit(tramp);
	else if (atomic_fetch_sub_explicit(&tramp->budget, 1, memory_order_relaxed) < 0)
		vb_patch_restore(tramp, VB_SITE_RESTORED);
	vb_fault_set_guard(guard);
	errno = saved;
	return done;
}

/* The first handler of the program is about to come: calls that would not hold it off end before. */
static void trap_wait_calls(void)
{
	uint32_t count = atomic_load_explicit(&num_regions, memory_order_acquire);
	int tries = 0;

	for (uint32_t i = 0; i < count; i++)
		while (atomic_load_explicit(&regions[i].users, memory_order_seq_cst) &&
		       tries < SETTLE_YIELDS + SETTLE_SLEEPS) {
			if (tries++ < SETTLE_YIELDS)
				sched_yield();
			else
				vb_pause_ns(1000000);
		}
}

/*
 * Threads of the parent that were in a region are not here. What operations work on is the parent's,
 * which may free it without our knowledge.
 */
static void trap_forked(void)
{
	for (uint32_t i = 0; i < MAX_REGIONS; i++) {
		if (regions[i].op)
			atomic_store_explicit(&regions[i].base, 0, memory_order_relaxed);
		atomic_store_explicit(&regions[i].users, 0, memory_order_relaxed);
	}
}

VB_STAGE(TRAPS, .child = trap_forked);

/* --- regions ---------------------------------------------------------------------------------- */

/* Under the lock, whenever a region comes or goes. */
static void set_bounds(void)
{
	uint32_t count = atomic_load_explicit(&num_regions, memory_order_relaxed);
	uintptr_t low = UINTPTR_MAX, high = 0;

	for (uint32_t i = 0; i < count; i++) {
		uintptr_t base = atomic_load_explicit(&regions[i].base, memory_order_relaxed);

		if (!base || regions[i].op) /* patched code leaves operations to the fault */
			continue;
		low = base < low ? base : low;
		high = base + regions[i].size > high ? base + regions[i].size : high;
	}
	atomic_store_explicit(&vb_patch_bounds.low, low, memory_order_relaxed);
	atomic_store_explicit(&vb_patch_bounds.span, high > low ? high - low : 0,
			      memory_order_relaxed);
}

static struct region *trap_free_slot(void)
{
	for (uint32_t i = 0; i < MAX_REGIONS; i++)
		if (!atomic_load_explicit(&regions[i].base, memory_order_seq_cst) &&
		    !atomic_load_explicit(&regions[i].users, memory_order_seq_cst))
			return &regions[i];
	return NULL;
}

/* With the lock: what had these addresses before was unmapped by the program. */
static void take_over(uintptr_t base, size_t size)
{
	uint32_t count = atomic_load_explicit(&num_regions, memory_order_relaxed);

	for (uint32_t i = 0; i < count; i++) {
		uintptr_t other = atomic_load_explicit(&regions[i].base, memory_order_seq_cst);

		if (other && regions[i].op && other < base + size && base < other + regions[i].size)
			trap_retire(&regions[i], other);
	}
}

static bool trap_setup(void)
{
	int ret;

	vb_patch_setup();
	vb_fault_on_handlers(trap_wait_calls);
	ret = vb_fault_register(trap_on_fault);
	errno = -ret;
	return !ret;
}

/* The region of pages that were mapped; unmaps them where there is no room: NULL with errno. */
static void *enter_region(void *base, const struct region *want)
{
	size_t size = want->size;
	struct region *region;

	vb_lock(&lock);
	take_over((uintptr_t)base, size);
	region = trap_free_slot();
	if (region) {
		region->size = size;
		region->store = want->store;
		region->op = want->op;
		region->number = want->number;
		region->arg = want->arg;
		atomic_store_explicit(&region->base, (uintptr_t)base, memory_order_seq_cst);
		if (region - regions >= atomic_load_explicit(&num_regions, memory_order_relaxed))
			atomic_store_explicit(&num_regions, (uint32_t)(region - regions) + 1,
					      memory_order_release);
		set_bounds();
	}
	vb_unlock(&lock);
	if (!region) {
		munmap(base, size);
		errno = ENOSPC;
		return NULL;
	}
	return base;
}

void *vb_trap_map(size_t size, vb_trap_store *store, void *arg)
{
	struct region want = { .size = (size + PAGE - 1) & ~(size_t)(PAGE - 1),
			       .store = store,
			       .arg = arg };
	void *base;

	if (!trap_setup())
		return NULL;
	base = mmap(NULL, want.size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return base == MAP_FAILED ? NULL : enter_region(base, &want);
}

/*
 * Slots of regions that the program has unmapped become free: now and then, so that the looks are few
 * for each that is mapped.
 */
static void trap_sweep(void)
{
	static uint32_t mapped, limit = FIRST_SWEEP;
	uint32_t count = atomic_load_explicit(&num_regions, memory_order_relaxed);

	vb_lock(&lock);
	if (++mapped >= limit) {
		mapped = 0;
		for (uint32_t i = 0; i < count; i++) {
			struct region *region = &regions[i];
			uintptr_t base = atomic_load_explicit(&region->base, memory_order_seq_cst);

			if (!base || !region->op)
				continue;
			if (look_for_cookie(base, region->number) != COOKIE_GONE)
				mapped++;
			else
				trap_retire(region, base);
		}
		limit = mapped < FIRST_SWEEP / 2 ? FIRST_SWEEP : 2 * mapped;
	}
	vb_unlock(&lock);
}

void *vb_trap_map_op(size_t size, vb_trap_op *op, void *arg)
{
	static _Atomic uint64_t numbers;
	struct region want = {
		.size = (size + PAGE - 1) & ~(size_t)(PAGE - 1),
		.op = op,
		.number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed),
		.arg = arg,
	};
	const struct cookie cookie = { COOKIE_MAGIC, want.number };
	char *base;

	if (!trap_setup())
		return NULL;
	trap_sweep();
	base = mmap(NULL, want.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	for (size_t at = 0; at < want.size; at += PAGE)
		memcpy(base + at, &cookie, sizeof(cookie));
	if (mprotect(base, want.size, PROT_NONE)) {
		munmap(base, want.size);
		return NULL;
	}
	return enter_region(base, &want);
}

void vb_trap_end(const void *arg)
{
	uint32_t count = atomic_load_explicit(&num_regions, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++) {
		struct region *region = &regions[i];
		bool same;

		vb_lock(&lock);
		same = region->op && region->arg == arg;
		if (same)
			atomic_store_explicit(&region->base, 0, memory_order_seq_cst);
		vb_unlock(&lock);
		/* Also where it is unmapped already: an operation may be on its way. */
		while (same && atomic_load_explicit(&region->users, memory_order_seq_cst))
			sched_yield();
	}
}

void vb_trap_unmap(void *page)
{
	struct region *region = NULL;
	size_t size = 0;

	if (!page)
		return;
	vb_lock(&lock);
	for (uint32_t i = 0; i < atomic_load_explicit(&num_regions, memory_order_relaxed); i++) {
		if (atomic_load_explicit(&regions[i].base, memory_order_seq_cst) ==
		    (uintptr_t)page) {
			region = &regions[i];
			size = region->size;
			atomic_store_explicit(&region->base, 0, memory_order_seq_cst);
			set_bounds();
		}
	}
	vb_unlock(&lock);
	if (!region)
		return;
	while (atomic_load_explicit(&region->users, memory_order_seq_cst))
		sched_yield();
	munmap(page, size);
}

#else

void *vb_trap_map(size_t size, vb_trap_store *store, void *arg)
{
	errno = ENOTSUP;
	return NULL;
}

void vb_trap_unmap(void *page)
{
}

void *vb_trap_map_op(size_t size, vb_trap_op *op, void *arg)
{
	errno = ENOTSUP;
	return NULL;
}

void vb_trap_end(const void *arg)
{
}

#endif
