/* SPDX-License-Identifier: MIT */
/*
 * What the registry file is, as all processes of a user see it, and what the files of this folder that work on it
 * offer each other. Included in this folder alone.
 */
#pragma once

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "host/patch/patch.h"
#include "meet/registry.h"
#include "meet/registry_dir.h"

#define REGISTRY_MAGIC 0x3576676572626576ull /* "vebregv5" */

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

/* What a host uses of the execution units of one adapter (eus_uses.c). */
struct vb_eu_use {
	_Atomic uint64_t
		owner; /* generation, and below it slot + 1; a host that is not there: free */
	char card[VB_NAME_MAX];     /* the adapter: programs may have configurations of their own */
	_Atomic uint32_t groups;    /* bit ID: it has threads in that group */
	_Atomic uint32_t processes; /* device processes */
	uint64_t reserved[2];
};

enum { VB_EU_USES = 4 * VB_SLOTS };

struct vb_registry_file {
	uint64_t magic;
	_Atomic uint32_t next; /* where the search for an empty slot starts: reuse is put off */
	_Atomic uint32_t eus_changes; /* of EU groups and partitions (eus_store.c) */
	_Atomic uint64_t
		listeners[VB_SLOTS / 64]; /* a bit per slot; set and cleared by its owner */
	/*
	 * Bit 0: a slot sniffs, or one did whose owner died. Above it, the number of times that one began:
	 * who finds no sniffer clears the bit only where none began meanwhile.
	 */
	_Atomic uint64_t sniffed;
	_Atomic uint64_t turns; /* counts those who had the lock of the file, each when it had it */
	struct vb_slot slot[VB_SLOTS];
	/* The file ends here until a program with device code needs entries. */
	struct vb_eu_use use[VB_EU_USES];
};

/* What every registry has, and every process maps. */
enum { VB_REGISTRY_SIZE = offsetof(struct vb_registry_file, use) };

_Static_assert(sizeof(struct vb_slot) == 64 && sizeof(struct vb_eu_use) == 64 &&
		       offsetof(struct vb_registry_file, slot) == 64,
	       "layout");

/* --- registry_lock.c: the lock on the whole file --- */

/* Milliseconds that a process waits for the lock to join, and as long again for each new holder. */
enum { VB_LOCK_JOIN_MS = 5000 };

/* Of a process that waits for the lock. */
struct vb_patience {
	uint64_t end;
	long pause_ns;
	bool asked;     /* the time was over before, */
	ino_t ino;      /* and this was the registry file that was locked, */
	uint64_t turns; /* and how often it had been */
};

struct vb_patience vb_patience_begin(unsigned int ms);
/* Sleep a while before the next try; false where the time is over. */
bool vb_patience_wait(struct vb_patience *p);
/*
 * The time for joining is over, in this turn. True where it begins anew, because processes have the
 * lock one after the other: /proc/locks would not tell, where one has just given it back. False, after
 * a log line, where one has it for too long.
 */
bool vb_patience_renew(struct vb_patience *p, const char *root, const char *name,
		       const struct vb_file *lock, uint64_t turns);
/* By each process that has got the lock. */
void vb_lock_count_turn(struct vb_registry_file *file);
/* Of a registry that need not be mapped: 0 where it is being made. */
uint64_t vb_lock_turns(int fd);

/*
 * Lock the registry that this host has joined, and block signals: 0, or -errno: nothing is locked then, and
 * signals are as before. At VB_LOCK_JOIN_MS a log line says which process has it.
 */
int vb_registry_lock(struct vb_registry *registry, unsigned int ms, sigset_t *before);
void vb_registry_unlock(struct vb_registry *registry, const sigset_t *before);

/* --- registry_place.c: the directory, and the file in it --- */

#define VB_NO_PLACE ((struct vb_registry_place){ .dir = VB_NO_FILE, .lock = VB_NO_FILE })

/*
 * Open, map and lock the registry of this user and host, and block signals: 0, or -errno after a log line, and
 * signals are as before. root: a descriptor of the directory in which registries are. Without make, -ENOENT where
 * there is none, and no log line.
 */
int vb_registry_place_enter(struct vb_registry_place *place, int root, bool make, sigset_t *before);
/* Of what vb_registry_place_enter() has locked; signals are the caller's. */
void vb_registry_place_unlock(const struct vb_registry_place *place);
/*
 * Locked: reap slots, and remove the directory where no process is left and no EU groups are. path: of the directory
 * in which it lies.
 */
void vb_registry_place_tidy(const struct vb_registry_place *place, const char *path);
void vb_registry_place_close(struct vb_registry_place *place);
/* Open the directories that there are, without a look into them; how many, or -errno after a log line. */
int vb_registry_places_find(int root, struct vb_registry_place places[VB_DIR_NAMES]);

/* --- registry_slots.c: slots, and the files that go with them --- */

enum { VB_SLOT_NAME = 32 };

char *vb_slot_segment_name(char name[VB_SLOT_NAME], uint32_t slot, uint32_t generation);
char *vb_slot_shown_name(char name[VB_SLOT_NAME], uint32_t slot, uint32_t generation);
/* Whether the process with this pid, which has taken the slot, is there. */
bool vb_slot_is_there(const struct vb_registry_place *place, uint32_t index, uint32_t pid);
/* By the owner, or under the lock where the owner is gone. */
void vb_slot_free(const struct vb_registry_place *place, uint32_t index);
/* Whether any process is there. */
bool vb_slots_inhabited(const struct vb_registry_place *place);
/* Under the lock: free the slots of processes that are gone; how many are left. */
unsigned int vb_slots_reap(const struct vb_registry_place *place);
/* Under the lock: take one for this host. 0, or -errno after a log line. */
int vb_slots_claim(struct vb_registry *registry);

/* --- registry_marks.c --- */
/* The host in a slot listens and sniffs no more: it leaves, or is gone and its slot is being freed. */
void vb_registry_clear_marks(struct vb_registry_file *file, uint32_t index);
