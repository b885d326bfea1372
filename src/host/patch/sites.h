/* SPDX-License-Identifier: MIT */
/*
 * The store instructions that trapped (host/trap/trap.h): what each is, how often it did, and whether it
 * was replaced by a jump (host/patch/patch.h).
 *
 * A site is an address. What stands there may change, because a library is unloaded and another one
 * comes to the same place. So whoever uses what is known of a site compares the bytes first.
 *
 * The table has a fixed size. A site that finds no room in it is decoded each time and never
 * patched.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/patch/store.h"

struct vb_tramp;

/* Why a site keeps the trap. */
enum vb_site_reason {
	VB_SITE_NONE,     /* not tried yet, or patched */
	VB_SITE_OFF,      /* VERBATIM_PATCH=off, or a build with ThreadSanitizer */
	VB_SITE_TRACED,   /* a debugger may have breakpoints there */
	VB_SITE_FORM,     /* string store, stack, segment or instruction pointer in the address */
	VB_SITE_TEXT,     /* no private, read-only text of a file */
	VB_SITE_EXEMPT,   /* the C library, the loader, the card itself */
	VB_SITE_OVERLAP,  /* its bytes are part of a neighbour's jump, or the other way round */
	VB_SITE_PLACE,    /* no room where a jump could lead */
	VB_SITE_REFUSED,  /* the kernel did not let us */
	VB_SITE_FULL,     /* too many patched sites */
	VB_SITE_RESTORED, /* it mostly stored elsewhere */
	VB_SITE_REASONS
};

struct vb_site {
	_Atomic uintptr_t rip;            /* 0: free; set once */
	_Atomic uint32_t version;         /* odd while code and form are written */
	_Atomic uint32_t traps;           /* since the code was seen first */
	_Atomic uint32_t reason;          /* enum vb_site_reason */
	_Atomic uint32_t tries;           /* that the kernel refused */
	_Atomic uint32_t changes;         /* odd while its bytes are changed */
	_Atomic(struct vb_tramp *) tramp; /* the newest one; its jump is there, or was */
	uint8_t code[VB_STORE_CODE_MAX];
	struct vb_store_form form;
};

/*
 * The form of the instruction at rip, whose bytes are given: 0, or -EINVAL where it is no store that
 * we know. *site is its entry, or NULL where there is no room. Allowed in signal handlers.
 */
int vb_site_parse(uintptr_t rip, const uint8_t *code, size_t len, struct vb_store_form *form,
		  struct vb_site **site);

/* The entry of an address, or NULL. */
struct vb_site *vb_site_find(uintptr_t rip);
