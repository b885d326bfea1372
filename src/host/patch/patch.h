/* SPDX-License-Identifier: MIT */
/*
 * Store instructions that were replaced by a jump, so that a doorbell costs a call instead of a
 * fault. docs/doorbells.md has the design.
 *
 * Whatever goes wrong here, the store is executed as it is, faults, and host/trap/trap.h sees it.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/patch/sites.h"
#include "host/patch/store.h"

enum { VB_JUMP = 5, VB_TRAMP_MAX = 256 };

/*
 * The code that a patched site jumps to, and what was at the site. Written before the jump is there
 * and never changed nor freed after that: a thread may be in it for ever.
 */
struct vb_tramp {
	/* offsets are known to patch_thunk.c */
	uintptr_t elsewhere; /* registers back, then the original store */
	uintptr_t done;      /* registers back, then on behind the store */
	uintptr_t site;      /* address of the instruction */
	uint32_t vectors;    /* state components that the evaluation wants to read */
	/* those are not */
	struct vb_site *entry; /* its entry in the table */
	uintptr_t original;    /* address of the store's copy */
	uintptr_t code_start;
	size_t code_size;
	uint8_t span;    /* bytes from the site's start to the jump's end, foreign ones included */
	uint8_t changed; /* bytes of the site that are not as they were */
	uint16_t starts; /* those of the foreign ones that begin an instruction, by number */
	uint16_t skip;   /* 0, or where the code goes on after a jump at its start */
	uint8_t jump[VB_STORE_CODE_MAX];
	uint8_t code[VB_STORE_CODE_MAX];
	struct vb_store_form form;
	_Atomic bool restored;
	_Atomic bool disturbed; /* somebody else has changed bytes of the jump */
	/*
	 * Falls with each store elsewhere, rises with those that ring; where one that rings finds it
	 * below zero, the site is restored. Races cost only precision.
	 */
	_Alignas(64) _Atomic int64_t budget;
};

/* What all of the trapped pages lie in; a store outside of it is not ours. Races cost a trap. */
struct vb_patch_bounds {
	_Atomic uintptr_t low, span;
};
extern struct vb_patch_bounds vb_patch_bounds;

/* For the statistics of a process. */
struct vb_patch_counts {
	_Atomic uint64_t traps;                  /* stores that faulted */
	_Atomic uint32_t patched;                /* sites with a jump */
	_Atomic uint32_t sites[VB_SITE_REASONS]; /* that keep the trap, by reason */
};
VB_PUBLIC extern struct vb_patch_counts vb_patch_counts;
VB_PUBLIC const char *vb_site_reason_name(enum vb_site_reason reason);

/*
 * The same for others to see, in a slot of the registry; numbers stay at their highest. They are the
 * process's: where it has several slots, they are in the one that was published first. It must stay mapped
 * as long as there are trapped pages, or until it is hidden.
 */
struct vb_slot_doorbells {
	_Atomic uint64_t traps;
	_Atomic uint16_t patched;
	_Atomic uint8_t kept[14]; /* sites, by reason */
};
_Static_assert(VB_SITE_REASONS <= 14, "a counter for each reason");
void vb_patch_publish(struct vb_slot_doorbells *where);
/* Not there any more. */
void vb_patch_withdraw(struct vb_slot_doorbells *where);
/* Nor is a thread writing there any more. */
void vb_patch_hide(struct vb_slot_doorbells *where);
/* In a handler, while a region is in use: this one has trapped. */
void vb_patch_count_trap(void);

/* Why this site traps; NONE: not known yet, or it does not. */
void vb_patch_keep_trap(struct vb_site *site, enum vb_site_reason reason);

/* So many more have a jump. */
void vb_patch_count_patched(int change);

/* Before the first page can trap; outside of signal handlers. */
void vb_patch_setup(void);

/*
 * In the fault handler, after a store of this site was carried out: patch it if it is time.
 * Asynchronous signals are blocked, and no frame is on the alternate stack that the kernel would not
 * see there.
 */
void vb_patch_consider(struct vb_site *site);

/* Outside of it: put the instruction back, and keep the trap for this reason. */
void vb_patch_restore(struct vb_tramp *tramp, enum vb_site_reason reason);

/* A store through it rang. */
void vb_patch_hit(struct vb_tramp *tramp);

/* The trampoline whose copy of the store has this address, or NULL. */
struct vb_tramp *vb_patch_at(uintptr_t rip);

/*
 * The instruction that a thread executed which faulted at rip, where the bytes there say nothing
 * about it, because the site is or was just being changed; NULL where they do. code gets len bytes.
 */
struct vb_tramp *vb_patch_executed(uintptr_t rip, uint8_t *code, size_t *len,
				   size_t (*read)(uintptr_t rip, uint8_t *code));

/* In the fault handler, where a breakpoint stands on a patched site: the bytes behind it go back. */
void vb_patch_uncover(struct vb_tramp *tramp);

/* Nothing can be executed at rip: the intended target, if one of our jumps went astray to it; else 0. */
uintptr_t vb_patch_strayed(uintptr_t rip);

/* A general protection fault at rip: whether it was our hlt, which is gone now. */
bool vb_patch_halted(uintptr_t rip);

/* --- parts -------------------------------------------------------------------------------------- */

/* patch_code.c: false where the form cannot be patched. */
bool vb_tramp_can(const struct vb_store_form *form);
/* Bytes of its code; without what is skipped. */
size_t vb_tramp_size(const struct vb_store_form *form);
/* Its code, to be executed at `at`; the addresses in tramp are set, skip was before. False: a jump does not reach. */
bool vb_tramp_build(struct vb_tramp *tramp, uintptr_t at, uint8_t *code, size_t size);

/* Where a jump from a site can lead: entry in [low, high). */
struct vb_jump_window {
	uintptr_t low, high;
	uint8_t prefixes;
};
enum { VB_JUMP_WINDOWS = 4 };
/* code: at least 9 bytes from the site on. The number of windows. */
unsigned int vb_jump_windows(uintptr_t site, const uint8_t *code, unsigned int length,
			     struct vb_jump_window windows[VB_JUMP_WINDOWS]);

/* patch_place.c: what /proc/self/maps says about a site; 0 or a reason. */
struct vb_place {
	uintptr_t entry; /* where the code can be */
	unsigned int window;
	bool shared; /* beside other trampolines, on their page */
};
enum vb_site_reason vb_place_find(uintptr_t site, size_t bytes, size_t size,
				  const struct vb_jump_window *windows, unsigned int count,
				  struct vb_place *place);

/* Whether one of these addresses is in code that is not ours, or nobody can tell. */
bool vb_place_is_executable(const uintptr_t *at, unsigned int count);
/* Outside of signal handlers, before all others. */
void vb_place_setup(void);
/* Whether it is in the C library, the loader, or this library. */
bool vb_place_is_exempt(uintptr_t rip);

/*
 * patch_text.c: from `was` to `will`, n bytes; false where it is as it was. finish: in a child that was
 * forked in the middle of a change. change_below: of the jump, all but the first byte, which is int3.
 */
bool vb_text_change(struct vb_site *site, uintptr_t at, const uint8_t *was, const uint8_t *will,
		    size_t n);
void vb_text_finish(struct vb_site *site, const struct vb_tramp *tramp, uint32_t changes);
bool vb_text_change_below(const struct vb_tramp *tramp);

/* patch_stray.c */
enum { VB_INT3 = 0xcc, VB_HLT = 0xf4, VB_LANDINGS = 15 };
/* Those of the bytes [from, to) of code that begin an instruction, by number; one begins at `from`. */
uint16_t vb_stray_starts(const uint8_t *code, size_t len, unsigned int from, unsigned int to);
/* Where the jump leads when there are breakpoints behind the store: the number of places. */
unsigned int vb_stray_landings(const struct vb_tramp *tramp, uintptr_t at[VB_LANDINGS]);
/* Whether the jump led to rip, by breakpoints or by what stands there now. */
bool vb_stray_led_to(const struct vb_tramp *tramp, uintptr_t rip);
/* Makes sure that nothing can be executed at its landings, now and later; false where that fails. */
bool vb_stray_close(const struct vb_tramp *tramp);

/* The first trampoline that has bytes in [from, to); NULL where there is none. The lock is held. */
const struct vb_tramp *vb_tramp_next(uintptr_t from, uintptr_t to);
#define VB_TRAMP_FILE "verbatim-doorbells"

/* Opens a file of this thread below /proc; -1 with errno. Allowed in signal handlers. */
int vb_proc_open(const char *name, int flags);
/* NONE, TRACED where a debugger is attached, or REFUSED where nobody can tell. */
enum vb_site_reason vb_proc_tracer(void);
/* Whether some thread has SIGSEGV really blocked, or nobody can tell: hlt would end the process. */
bool vb_proc_blocks_faults(void);

/* patch_thunk.c */
void vb_patch_thunk(void);
/* False where this processor's registers cannot be kept. */
bool vb_patch_thunk_setup(void);
/* Of the vector registers, all that there are. */
extern uint32_t vb_patch_components;

/* trap.c: calls function(arg) on another stack. */
void vb_trap_call_on(void *stack, void (*function)(void *), void *arg);
/* True where the store was ours and is done. regs->gpr may be changed. */
bool vb_trap_direct(struct vb_store_regs *regs, struct vb_tramp *tramp);
