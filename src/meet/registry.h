/* SPDX-License-Identifier: MIT */
/*
 * Who is on this host: the processes that have opened a card, each in a numbered slot.
 *
 * The registry is a small file in a directory of its own below /dev/shm, one directory per user,
 * network namespace and PID namespace, readable by that user alone. Beside it lies one segment file
 * per process (what is in it is the fabric's business). Joining and reaping hold a file lock, which
 * the kernel drops when its holder dies; nothing else needs a lock. A slot is named by number and
 * generation, so that a reference to a process that is gone never reaches the next one in its slot.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/file.h"

enum { VB_SLOTS = 256 };

struct vb_slot_doorbells; /* host/patch/patch.h */

struct vb_slot_info {
	uint32_t slot;
	uint32_t generation;
	pid_t pid;
	pid_t thread; /* as it was told to vb_registry_watch(); 0: none */
	/* of vb_registry_list() only, as they were when it looked; otherwise NULL */
	const struct vb_slot_doorbells *doorbells;
	int dir; /* of vb_registry_list() only: where its files are */
};

/*
 * Claim a slot for this process, and make its segment file. 0 or -errno, after a log line that says
 * what to do.
 */
int vb_registry_join(struct vb_slot_info *self);
/*
 * Give the slot back and remove the process's segment file; a forked child does not own it and
 * leaves it alone.
 */
void vb_registry_leave(void);
/* Whether this process has a slot; false in a child, by whichever call it was forked. */
bool vb_registry_is_joined(void);
/* Close what is left open for threads that may still look; when there are none. */
void vb_registry_close(void);
/* In a forked child: let go of the parent's files. Allowed in a handler of pthread_atfork(). */
void vb_registry_forked(void);

/* This process's segment file, which stays the registry's; 0, or -errno after a log line. */
int vb_registry_segment(struct vb_file *file);
/* Open a peer's; the descriptor or -errno. */
int vb_registry_open_segment(uint32_t slot, uint32_t generation);
/*
 * What this process shows to tools (control/show/layout.h): a new empty file beside its segment, which
 * goes with its slot; file becomes the caller's. 0 or -errno.
 */
int vb_registry_make_shown(struct vb_file *file);
/* Open that of a process that vb_registry_list() visits; the descriptor or -errno. */
int vb_registry_open_shown(const struct vb_slot_info *info);
/* The segment of a process that vb_registry_list() shows, without joining. */
int vb_registry_open_listed(const struct vb_slot_info *info);
/*
 * Open a file beside the segments that processes share, made where there is none; it goes with the
 * directory. The descriptor or -errno.
 */
int vb_registry_open_shared(const char *name);
/* The directory in which all this lies, for messages. */
const char *vb_registry_root(void);

/* The process in a slot; false where it is empty. */
bool vb_registry_lookup(uint32_t slot, struct vb_slot_info *info);
/*
 * A thread that lives as long as this program, 0 where there is none any more. When it is gone the
 * program has ended, or the process executes another one. Memory of the program is named by this
 * thread: the pid would name the next program, too.
 */
void vb_registry_watch(pid_t thread);
/*
 * Whether a thread of the program that joined in this slot, in this generation, may still be running
 * (registry_life.h). A system call: not for the data path.
 */
bool vb_registry_alive(uint32_t slot, uint32_t generation);
/* Whether a slot is empty, and the process that has left it may still be running. The same. */
bool vb_registry_lingers(uint32_t slot);
/* The generation now in a slot, 0 where empty: a plain load, for the data path. */
uint32_t vb_registry_generation(uint32_t slot);
/* Free the slots and files of processes that died without leaving. */
void vb_registry_reap(void);

/*
 * Devices with one owner on this host (bit number < 64). 0, -EBUSY where a process that runs has
 * it. Given back by release, by leaving, or by dying.
 */
int vb_registry_claim(unsigned int number);
void vb_registry_release(unsigned int number);
/* Who has it; false where nobody does. Plain loads: the process may have died. */
bool vb_registry_claimant(unsigned int number, struct vb_slot_info *info);

/*
 * Whether this process takes frames that others send to all. Given back by leaving, or by dying.
 * And the processes that do, as bits of slots 64 * word and up: a plain load; one of them may have
 * died.
 */
void vb_registry_listen(bool listen);
uint64_t vb_registry_listeners(uint32_t word);

/*
 * Whether this process sniffs: wants to be shown the packets of queue pairs, too. Given back as above.
 * And whether a process does; and whether any does, for the data path: two plain loads.
 */
void vb_registry_sniff(bool sniffs);
bool vb_registry_sniffs(uint32_t slot);

extern const _Atomic uint64_t *_Atomic vb_registry_sniffed_at; /* bit 0 says it; never NULL */

static inline bool vb_registry_sniffed(void)
{
	return atomic_load_explicit(
		       atomic_load_explicit(&vb_registry_sniffed_at, memory_order_relaxed),
		       memory_order_relaxed) &
	       1;
}

/* Bytes free in the file system of the segments. */
uint64_t vb_registry_space(void);

/* Call visit for every process, without joining; the number of processes or -errno. */
int vb_registry_list(void (*visit)(void *arg, const struct vb_slot_info *info), void *arg);
