/* SPDX-License-Identifier: MIT */
/*
 * What the registry file is: its slots, as all processes of a user see them. Included by registry.c, which
 * makes it and gives out slots, and by registry_marks.c.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "host/patch/patch.h"
#include "meet/registry.h"

#define REGISTRY_MAGIC 0x3476676572626576ull /* "vebregv4" */

struct vb_slot {
	_Atomic uint32_t pid;        /* 0: empty */
	_Atomic uint32_t generation; /* counts the owners of this slot; never 0 once used */
	_Atomic uint64_t claims;     /* devices of which the process is the only user, a bit each */
	uint64_t reserved[2];
	_Atomic uint32_t
		thread; /* that lives as long as the program; 0: none yet, or not any more */
	_Atomic uint32_t sniffs;            /* 1: it wants to see the packets of queue pairs */
	struct vb_slot_doorbells doorbells; /* counters of its owner, for `verbatim ps -v` */
};

struct vb_registry_file {
	uint64_t magic;
	_Atomic uint32_t next; /* where the search for an empty slot starts: reuse is put off */
	uint32_t reserved0;
	_Atomic uint64_t
		listeners[VB_SLOTS / 64]; /* a bit per slot; set and cleared by its owner */
	/*
	 * Bit 0: a slot sniffs, or one did whose owner died. Above it, the number of times that one began:
	 * who finds no sniffer clears the bit only where none began meanwhile.
	 */
	_Atomic uint64_t sniffed;
	_Atomic uint64_t turns; /* counts those who had the lock of the file, each when it had it */
	struct vb_slot slot[VB_SLOTS];
};

_Static_assert(sizeof(struct vb_slot) == 64 && offsetof(struct vb_registry_file, slot) == 64,
	       "layout");

/* --- registry_marks.c --- */
/* The host in a slot listens and sniffs no more: it leaves, or is gone and its slot is being freed. */
void vb_registry_clear_marks(struct vb_registry_file *file, uint32_t index);
