/* SPDX-License-Identifier: MIT */
/*
 * Who is on this machine: the hosts of processes that have opened a card, each in a numbered slot. A process
 * has one host, or several where a program simulates them.
 *
 * The registry is a small file in a directory of its own below /dev/shm, one directory per user,
 * network namespace and PID namespace, readable by that user alone. Beside it lies one segment file
 * per process (what is in it is the fabric's business), and what is remembered while no process lives: EU groups
 * (eus.h). Joining, reaping and EU groups hold a file lock, which
 * the kernel drops when its holder dies; nothing else needs a lock. A slot is named by number and
 * generation, so that a reference to a process that is gone never reaches the next one in its slot.
 */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/file.h"
#include "meet/slot_lock.h"

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

struct vb_registry_file; /* mapped by all; registry.c */

/* A registry directory, open; lock is its registry file. */
struct vb_registry_place {
	struct vb_file dir, lock;
	struct vb_registry_file *file; /* mapped; NULL: not yet */
	char name[96];
};

/*
 * One host of this process in the registry: a slot of its own, and its lock (slot_lock.h). A process has
 * one for each of its hosts. All hosts of a process have its pid, and all slots are alive as long as their
 * hosts are, not longer: a host that leaves gives its slot back while the process goes on.
 *
 * Not more than one thread joins, leaves or closes at a time; the files of this folder alone look inside.
 */
struct vb_registry {
	const _Atomic uint64_t *_Atomic sniffed_at; /* bit 0 says it; never NULL */
	struct vb_registry_place place;             /* in which this host has joined */
	struct vb_file segment;                     /* its segment file */
	struct vb_slot_lock slot_lock;              /* held as long as the host has its slot */
	struct vb_slot_info self;
	_Atomic pid_t
		joined; /* the process that has the slot; 0: it left, at exit below other threads */
	pthread_mutex_t
		own_lock; /* among threads of this process: the file's lock is one for all */
	char root[PATH_MAX];
};

extern const _Atomic uint64_t vb_registry_not_sniffed;

#define VB_REGISTRY_INIT                                                                         \
	{                                                                                        \
		.sniffed_at = &vb_registry_not_sniffed,                                          \
		.place = { .dir = { .fd = -1 }, .lock = { .fd = -1 } }, .segment = { .fd = -1 }, \
		.own_lock = PTHREAD_MUTEX_INITIALIZER                                            \
	}

/* One that has not joined. */
void vb_registry_init(struct vb_registry *registry);

/*
 * Claim a slot for this host, and make its segment file. 0 or -errno, after a log line that says
 * what to do.
 */
int vb_registry_join(struct vb_registry *registry, struct vb_slot_info *self);
/*
 * Give the slot back and remove the process's segment file; a forked child does not own it and
 * leaves it alone.
 */
void vb_registry_leave(struct vb_registry *registry);
/* Whether this process has a slot; false in a child, by whichever call it was forked. */
bool vb_registry_is_joined(const struct vb_registry *registry);
/* Close what is left open for threads that may still look; when there are none. */
void vb_registry_close(struct vb_registry *registry);
/*
 * Open and lock the registry without a slot in it, and block signals: for a tool, and for moments, because
 * processes that join wait meanwhile. Without make, nothing is open where there is none (place.file). 0, or -errno
 * after a log line.
 */
int vb_registry_visit(struct vb_registry *registry, bool make, sigset_t *before);
/* The end of a visit; the directory goes where nothing in it is needed. */
void vb_registry_quit(struct vb_registry *registry, const sigset_t *before);
/* In a forked child: let go of the parent's files. Allowed in a handler of pthread_atfork(). */
void vb_registry_forked(struct vb_registry *registry);

/* This process's segment file, which stays the registry's; 0, or -errno after a log line. */
int vb_registry_segment(const struct vb_registry *registry, struct vb_file *file);
/* Open a peer's; the descriptor or -errno. */
int vb_registry_open_segment(const struct vb_registry *registry, uint32_t slot,
			     uint32_t generation);
/*
 * What this process shows to tools (control/show/layout.h): a new empty file beside its segment, which
 * goes with its slot; file becomes the caller's. 0 or -errno.
 */
int vb_registry_make_shown(const struct vb_registry *registry, struct vb_file *file);
/* Open that of a process that vb_registry_list() visits; the descriptor or -errno. */
int vb_registry_open_shown(const struct vb_slot_info *info);
/* The segment of a process that vb_registry_list() shows, without joining. */
int vb_registry_open_listed(const struct vb_slot_info *info);
/*
 * Open a file beside the segments that processes share, made where there is none; it goes with the
 * directory. The descriptor or -errno.
 */
int vb_registry_open_shared(const struct vb_registry *registry, const char *name);
/* The directory in which all this lies, for messages. */
const char *vb_registry_root(const struct vb_registry *registry);

/* The process in a slot; false where it is empty. */
bool vb_registry_lookup(const struct vb_registry *registry, uint32_t slot,
			struct vb_slot_info *info);
/*
 * A thread that lives as long as this program, 0 where there is none any more. When it is gone the
 * program has ended, or the process executes another one. Memory of the program is named by this
 * thread: the pid would name the next program, too.
 */
void vb_registry_watch(struct vb_registry *registry, pid_t thread);
/*
 * Whether a thread of the program that joined in this slot, in this generation, may still be running
 * (slot_lock.h). A system call: not for the data path.
 */
bool vb_registry_alive(const struct vb_registry *registry, uint32_t slot, uint32_t generation);
/* Whether a slot is empty, and the process that has left it may still be running. The same. */
bool vb_registry_lingers(const struct vb_registry *registry, uint32_t slot);
/* The generation now in a slot, 0 where empty: a plain load, for the data path. */
uint32_t vb_registry_generation(const struct vb_registry *registry, uint32_t slot);
/* Free the slots and files of processes that died without leaving. */
void vb_registry_reap(struct vb_registry *registry);

/*
 * Devices with one owner on this host (bit number < 64). 0, -EBUSY where a process that runs has
 * it. Given back by release, by leaving, or by dying.
 */
int vb_registry_claim(struct vb_registry *registry, unsigned int number);
void vb_registry_release(struct vb_registry *registry, unsigned int number);
/* Who has it; false where nobody does. Plain loads: the process may have died. */
bool vb_registry_claimant(const struct vb_registry *registry, unsigned int number,
			  struct vb_slot_info *info);

/*
 * Whether this process takes frames that others send to all. Given back by leaving, or by dying.
 * And the processes that do, as bits of slots 64 * word and up: a plain load; one of them may have
 * died.
 */
void vb_registry_listen(struct vb_registry *registry, bool listen);
uint64_t vb_registry_listeners(const struct vb_registry *registry, uint32_t word);

/*
 * Whether this process sniffs: wants to be shown the packets of queue pairs, too. Given back as above.
 * And whether a process does; and whether any does, for the data path: two plain loads.
 */
void vb_registry_sniff(struct vb_registry *registry, bool sniffs);
bool vb_registry_sniffs(const struct vb_registry *registry, uint32_t slot);

static inline bool vb_registry_sniffed(const struct vb_registry *registry)
{
	return atomic_load_explicit(
		       atomic_load_explicit(&registry->sniffed_at, memory_order_relaxed),
		       memory_order_relaxed) &
	       1;
}

/* Bytes free in the file system of the segments. */
uint64_t vb_registry_space(const struct vb_registry *registry);

/* Call visit for every process, without joining; the number of processes or -errno. */
int vb_registry_list(void (*visit)(void *arg, const struct vb_slot_info *info), void *arg);
