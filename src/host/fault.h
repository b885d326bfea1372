/* SPDX-License-Identifier: MIT */
/*
 * Access to memory that the program may have unmapped since it registered it.
 *
 * A card must answer such an access with a protection error, never with a crash. So every touch of
 * program memory goes through the functions below: a SIGSEGV or SIGBUS inside one of them makes it
 * return -EFAULT. Faults anywhere else are the program's own and go to the handler it had (or to
 * the default, a core dump).
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/public.h"
#include "host/rights.h"

/* Install the handlers, or put them back in front where the program has installed its own since. */
VB_PUBLIC int vb_fault_arm(void);

/*
 * sigaction(2) for SIGSEGV and SIGBUS (host/signals.h): once we have the signals, act becomes the
 * program's own action, to be called for faults that are its own, and old is what that was.
 */
int vb_fault_action(int sig, const struct sigaction *act, struct sigaction *old);

/* Called for each fault that is the program's own; debuggers stop there (tools/gdb/host.gdb). */
void vb_fault_of_program(const siginfo_t *info);
/*
 * Others that expect faults (guest code, trapped pages): asked for every fault of an access outside
 * of the functions below, in the order of registration, before the program's own handler. A handler
 * that knows the fault returns true, and the thread goes on as context says, or it jumps away after
 * vb_fault_unblock(context). Registering twice counts once; there is no way back. Arms, too.
 */
typedef bool vb_fault_handler(int sig, siginfo_t *info, void *context);
VB_PUBLIC int vb_fault_register(vb_fault_handler *handler);
VB_PUBLIC void vb_fault_unblock(void *context);

/* Whether the kernel has our SIGSEGV handler: a program can put its own there past libc. */
bool vb_fault_is_armed(void);

/*
 * Code of ours that is called in the middle of the program's, as a handler is, but is none: the
 * guard of a copy that was interrupted, to be put back when that is over.
 */
void *vb_fault_guard(void);
void vb_fault_set_guard(void *guard);

/* Whether the program has handlers of asynchronous signals, as far as we know. */
bool vb_fault_has_handlers(void);
/* Look for those that it installed before us or past us. */
void vb_fault_find_handlers(void);
/* Wait is called before the first one is installed. */
void vb_fault_on_handlers(void (*wait)(void));

/* Hook is asked from now on where the program changes users, groups or rights. */
void vb_fault_on_rights(vb_rights_hook *hook);

/* Whether the program is about to close itself in by seccomp, or has done so, by libc's functions. */
bool vb_fault_is_closing_in(void);
/* What it did before the first doorbell page was mapped, it did to us, too. */
void vb_fault_forget_closing_in(void);
/* Call this, which is allowed in signal handlers, in the prctl() that is about to be noted so. */
void vb_fault_on_closing_in(void (*prepare)(void));

/* 0, or -EFAULT with an unknown part of the bytes moved. */
VB_PUBLIC int vb_fault_copy(void *dst, const void *src, size_t n);

/*
 * Whether every page of [p, p + n) can be read: to tell which side of a failed copy was at fault.
 */
VB_PUBLIC bool vb_fault_readable(const void *p, size_t n);

/* Atomic, of an aligned word of 1, 2, 4 or 8 bytes: acquire, release; 0 or -EFAULT. */
VB_PUBLIC int vb_fault_load(const void *word, uint32_t size, uint64_t *value);
VB_PUBLIC int vb_fault_store(void *word, uint32_t size, uint64_t value);

/* Atomic on an aligned 8-byte word; 0 or -EFAULT. */
VB_PUBLIC int vb_fault_fetch_add(uint64_t *word, uint64_t add, uint64_t *old);
VB_PUBLIC int vb_fault_compare_swap(uint64_t *word, uint64_t compare, uint64_t swap, uint64_t *old);

/* An atomic with masks. */
struct vb_masked {
	bool add;      /* to fields, each of which keeps its carry; else compare and swap */
	uint64_t data; /* to be added, or to be stored where swap_mask has ones */
	/* add: ones where fields have their highest bit; else what must be there under compare_mask */
	uint64_t compare;
	uint64_t swap_mask, compare_mask; /* of compare and swap */
};

/* What such an atomic makes of a word. */
static inline uint64_t vb_masked_result(const struct vb_masked *m, uint64_t old)
{
	uint64_t top = m->compare;

	if (m->add) /* the highest bits are added without a carry out of them */
		return ((old & ~top) + (m->data & ~top)) ^ ((old ^ m->data) & top);
	return (old ^ m->compare) & m->compare_mask
		       ? old
		       : (old & ~m->swap_mask) | (m->data & m->swap_mask);
}

/* The same on an aligned word of 4 or 8 bytes. */
VB_PUBLIC int vb_fault_masked(void *word, uint32_t size, const struct vb_masked *m, uint64_t *old);
