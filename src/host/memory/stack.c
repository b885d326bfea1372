// SPDX-License-Identifier: MIT
/*
 * Owns the change of stacks around a fork.
 *
 * Parent and child cannot both run on pages that they share. A thread may well fork on such a stack,
 * one of many in a block that a library of coroutines has allocated, while other threads run on its
 * neighbours. So the thread leaves it for the time of the call:
 *
 *	fork()          its own stack                a stack of ours, private
 *	  memory_call_beside() -----------------------> call: handlers, copy, the kernel's fork
 *	                stands still, is copied         |                 |
 *	  parent: returns to it <------------------------                 |
 *	  child: returns to its copy, at the same address <---------------
 *
 * A debugger and exceptions find their way back by the frame pointer, as the directives say.
 */
#include <errno.h>

#include "host/memory/libc.h"
#include "host/memory/memory.h"

/* Handlers of the program run on it, and those of signals. */
enum { STACK = 512 << 10, GUARD = 16 << 10 };

/* clang-format off */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	".balign 16\n"
	".globl memory_switch_stack\n"
	".hidden memory_switch_stack\n"
	".type memory_switch_stack, @function\n"
	"memory_switch_stack:\n"
	".cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rbp\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_rel_offset %rbp, 0\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	movq %rdx, %rsp\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	callq *%rax\n"
	"	movq %rbp, %rsp\n"
	"	popq %rbp\n"
	".cfi_def_cfa %rsp, 8\n"
	".cfi_restore %rbp\n"
	"	ret\n"
	".cfi_endproc\n"
	".size memory_switch_stack, . - memory_switch_stack\n"
	".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	".balign 16\n"
	".globl memory_switch_stack\n"
	".hidden memory_switch_stack\n"
	".type memory_switch_stack, %function\n"
	"memory_switch_stack:\n"
	".cfi_startproc\n"
	"	hint #34\n" /* bti c */
	"	stp x29, x30, [sp, #-16]!\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset x29, -16\n"
	".cfi_offset x30, -8\n"
	"	mov x29, sp\n"
	".cfi_def_cfa_register x29\n"
	"	mov sp, x2\n"
	"	mov x9, x0\n"
	"	mov x0, x1\n"
	"	blr x9\n"
	"	mov sp, x29\n"
	".cfi_def_cfa_register sp\n"
	"	ldp x29, x30, [sp], #16\n"
	".cfi_def_cfa_offset 0\n"
	".cfi_restore x29\n"
	".cfi_restore x30\n"
	"	ret\n"
	".cfi_endproc\n"
	".size memory_switch_stack, . - memory_switch_stack\n"
	".popsection\n");
#endif
/* clang-format on */

#ifndef MEMORY_CAN_SWITCH
/* Nothing is started on such a processor (start.c). */
long memory_switch_stack(long (*call)(void *arg), void *arg, char *top)
{
	return call(arg);
}
#endif

/* Whether a thread that runs here could come to shared pages before the kernel has forked. */
static bool is_near_shared(const char *here)
{
	uint32_t page, count;

	if (!memory_part((uintptr_t)here - STACK, STACK + 1, &page, &count))
		return false;
	for (; count; page++, count--)
		if ((memory.pages.state[page] & PAGE_KIND) == PAGE_SHARED)
			return true;
	return false;
}

/* One call on another stack. */
struct beside {
	long (*call)(void *arg);
	void *arg;
	bool handling; /* the stack that is left is the one of signals */
	stack_t signals;
	sigset_t mask;
};

/*
 * The kernel takes a thread that has left the stack of signals for one that has done with it, and
 * would run the next handler over its frames. Here handlers have room, so there is none meanwhile.
 */
static long call_on(void *arg)
{
	struct beside *beside = arg;
	stack_t none = { .ss_flags = SS_DISABLE };
	long ret;

	if (!beside->handling)
		return beside->call(beside->arg);
	RAW(SYS_sigaltstack, &none, NULL);
	memory_unblock(&beside->mask);
	ret = beside->call(beside->arg);
	memory_block(&beside->mask);
	RAW(SYS_sigaltstack, &beside->signals, NULL);
	return ret;
}

/* Below the range, if it can be: debuggers take a caller's frame at a lower address for a wrong one. */
static char *map_stack(void)
{
	enum { BELOW = 256 << 20 };
	char *at = (char *)RAW(SYS_mmap, memory_page(0) - BELOW, GUARD + STACK, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	if (!RAW(SYS_mprotect, at + GUARD, STACK, PROT_READ | PROT_WRITE))
		return at;
	RAW(SYS_munmap, at, GUARD + STACK);
	return NULL;
}

long memory_call_beside(long (*call)(void *arg), void *arg)
{
	struct beside beside = { .call = call, .arg = arg };
	int before = errno, err;
	char *stack;
	long ret;

	if (!is_near_shared(__builtin_frame_address(0))) {
		ret = call(arg);
		if (ret >= 0)
			errno = before;
		return ret;
	}
	stack = map_stack();
	if (!stack) {
		errno = ENOMEM;
		return -1;
	}
	beside.handling = !RAW(SYS_sigaltstack, NULL, &beside.signals) &&
			  beside.signals.ss_flags & SS_ONSTACK;
	beside.signals.ss_flags &= ~SS_ONSTACK;
	if (beside.handling)
		memory_block(&beside.mask);
	ret = memory_switch_stack(call_on, &beside, stack + GUARD + STACK);
	err = errno;
	if (beside.handling)
		memory_unblock(&beside.mask);
	RAW(SYS_munmap, stack, GUARD + STACK);
	errno = ret < 0 ? err : before;
	return ret;
}
