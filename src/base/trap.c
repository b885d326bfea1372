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
 * Stacks. A program's alternate signal stack may be as small as 2 KiB, and a ring of a doorbell
 * executes work requests. So the callback is moved to the stack that the store was made on, with
 * the alternate stack switched off meanwhile: a signal that comes now would otherwise be put on top
 * of our own frame. Returning from the signal switches it on again.
 */
#include "base/trap.h"

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

#include "base/fault.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/sites.h"
#include "base/store.h"

#if defined(__x86_64__)

#include <asm/prctl.h>

enum { MAX_REGIONS = 4096, WRITE_FAULT = 2, RED_ZONE = 128 };

struct region {
	_Atomic uintptr_t base; /* 0: free */
	_Atomic uint32_t users; /* handlers that are looking at it or inside its callback */
	size_t size;
	vb_trap_store *store;
	void *arg;
};

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

static void write_gpr(ucontext_t *uc, enum vb_gpr reg, uint64_t value)
{
	uc->uc_mcontext.gregs[gpr_index[reg]] = (greg_t)value;
}

/* --- doing what the instruction would have done ----------------------------------------------- */

struct trap {
	ucontext_t *uc;
	struct region *region;
	struct vb_store_regs regs;
	struct vb_store_form form;
	struct vb_store store;
	struct vb_site *site; /* NULL: no room in the table */
	uint8_t code[VB_STORE_CODE_MAX];
	size_t code_len;
	bool done;
};

static bool inside(const struct region *region, uint64_t addr, size_t size)
{
	uintptr_t base = atomic_load_explicit(&region->base, memory_order_relaxed);

	return addr >= base && addr - base + size <= region->size;
}

static void deliver(struct region *region, uint64_t addr, const void *data, size_t size)
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
	uint64_t old = t->regs.gpr[s->reg], mask;

	if (s->size >= 4)
		mask = 0;
	else if (s->reg_high)
		mask = ~0xff00ull;
	else
		mask = s->size == 2 ? ~0xffffull : ~0xffull;
	write_gpr(t->uc, s->reg, old & mask);
}

/* Gathers elements of a copy from program memory; the number that could be read. */
static uint64_t gather(const struct vb_store *s, uint64_t source, uint64_t n, uint8_t *piece)
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
	bool down = t->regs.rflags & 0x400;
	uint64_t left = s->repeat ? t->regs.gpr[VB_GPR_CX] : 1, done = 0;
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
		n = gather(s, from, want, piece);
		if (!n)
			break;
		deliver(t->region, at, piece, n * s->size);
		done += n;
	}
	if (!done && left)
		return false;
	write_gpr(t->uc, VB_GPR_DI, (s->addr + done * step) & mask);
	if (s->kind == VB_STORE_COPY)
		write_gpr(t->uc, VB_GPR_SI, (s->source + done * step) & mask);
	if (s->repeat)
		write_gpr(t->uc, VB_GPR_CX, left - done);
	if (done == left)
		t->uc->uc_mcontext.gregs[REG_RIP] += s->length;
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

	for (at = 0; (n = next_stretch(s, &at)) != 0; at += n)
		if (!inside(t->region, s->addr + at, n))
			return false;
	for (at = 0; (n = next_stretch(s, &at)) != 0; at += n)
		deliver(t->region, s->addr + at, s->data + at, n);
	return true;
}

static bool do_store(struct trap *t)
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
	t->uc->uc_mcontext.gregs[REG_RIP] += s->length;
	return true;
}

/* --- stacks ----------------------------------------------------------------------------------- */

void vb_trap_call_on(void *stack, void (*function)(void *), void *arg);

/* Calls function(arg) on another stack. */
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

static void off_alternate(void *arg)
{
	struct trap *t = arg;
	stack_t off = { .ss_flags = SS_DISABLE };

	sigaltstack(&off, NULL);
	t->done = do_store(t);
}

static bool is_on(const stack_t *stack, uintptr_t sp)
{
	return !(stack->ss_flags & SS_DISABLE) && sp >= (uintptr_t)stack->ss_sp &&
	       sp - (uintptr_t)stack->ss_sp < stack->ss_size;
}

static bool run(struct trap *t)
{
	uintptr_t sp = (uintptr_t)t->uc->uc_mcontext.gregs[REG_RSP];
	const stack_t *alternate = &t->uc->uc_stack;

	if (!is_on(alternate, (uintptr_t)__builtin_frame_address(0)) || is_on(alternate, sp))
		return do_store(t);
	vb_trap_call_on((void *)((sp - RED_ZONE) & ~(uintptr_t)63), off_alternate, t);
	return t->done;
}

/* --- the fault -------------------------------------------------------------------------------- */

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

static void complain(const struct trap *t, const void *addr)
{
	char text[256];
	int n = snprintf(text, sizeof(text),
			 "verbatim: cannot decode the store to doorbell page %p at %#llx:", addr,
			 (unsigned long long)t->regs.rip);

	for (size_t i = 0; i < t->code_len; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " %02x", t->code[i]);
	n += snprintf(text + n, sizeof(text) - (size_t)n,
		      "; ring with a mov, xchg, vector or string store\n");
	if (vb_file_write(STDERR_FILENO, text, (size_t)n) < 0)
		return;
}

/* Counted in when it returns one: no callback is taken away under us. */
static struct region *find(uintptr_t addr)
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
		    addr - base < region->size)
			return region;
		atomic_fetch_sub_explicit(&region->users, 1, memory_order_release);
	}
	return NULL;
}

static bool on_fault(int sig, siginfo_t *info, void *context)
{
	struct trap t;
	int saved = errno;
	bool done;

	t.uc = context;
	if (sig != SIGSEGV || !(t.uc->uc_mcontext.gregs[REG_ERR] & WRITE_FAULT))
		return false;
	t.region = find((uintptr_t)info->si_addr);
	if (!t.region)
		return false;
	read_registers(t.uc, &t.regs);
	t.code_len = read_code(t.regs.rip, t.code);
	done = !vb_site_parse(t.regs.rip, t.code, t.code_len, &t.form, &t.site) &&
	       !vb_store_eval(&t.form, &t.regs, &t.store) && run(&t);
	if (!done)
		complain(&t, info->si_addr);
	atomic_fetch_sub_explicit(&t.region->users, 1, memory_order_release);
	errno = saved;
	return done;
}

/* --- regions ---------------------------------------------------------------------------------- */

static struct region *free_slot(void)
{
	for (uint32_t i = 0; i < MAX_REGIONS; i++)
		if (!atomic_load_explicit(&regions[i].base, memory_order_seq_cst) &&
		    !atomic_load_explicit(&regions[i].users, memory_order_seq_cst))
			return &regions[i];
	return NULL;
}

void *vb_trap_map(size_t size, vb_trap_store *store, void *arg)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct region *region;
	void *base;
	int ret;

	size = (size + page - 1) & ~(page - 1);
	ret = vb_fault_register(on_fault);
	if (ret) {
		errno = -ret;
		return NULL;
	}
	base = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	vb_lock(&lock);
	region = free_slot();
	if (region) {
		region->size = size;
		region->store = store;
		region->arg = arg;
		atomic_store_explicit(&region->base, (uintptr_t)base, memory_order_seq_cst);
		if (region - regions >= atomic_load_explicit(&num_regions, memory_order_relaxed))
			atomic_store_explicit(&num_regions, (uint32_t)(region - regions) + 1,
					      memory_order_release);
	}
	vb_unlock(&lock);
	if (!region) {
		munmap(base, size);
		errno = ENOSPC;
		return NULL;
	}
	return base;
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

#endif
