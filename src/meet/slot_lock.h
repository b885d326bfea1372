/* SPDX-License-Identifier: MIT */
/*
 * The lock of a slot, which says whether the process in it is still there: it goes with its memory.
 * (The lock of the whole registry, which is held for moments, is in registry_lock.c.)
 *
 *	registry file   [0][1][2] ... [255]     a byte per slot, locked by the process in it (fcntl, F_OFD_SETLK)
 *	process         mapping of one page  -->  open file, which has the lock; no descriptor of it is left
 *
 * Such a lock belongs to an open file and ends with it, and the only thing that keeps this file open is
 * a mapping that no child inherits (MADV_DONTFORK). So it is held exactly as long as a thread has the
 * memory of the program that joined: it ends with the last thread when the process is killed or exits,
 * and when the process executes another program, whichever children live on. A child of vfork() has
 * that memory, too, and counts. Neither pids, which come round again, nor start times, which depend on
 * the time namespace of the reader, nor /proc are needed, and whoever has the registry open needs no
 * further descriptor.
 *
 * A child that is forked past libc's fork() in the microseconds in which the lock is taken keeps it as
 * long as it lives. Then a slot is reaped late, and nothing else: that the program has ended is seen by
 * `life` in its segment (fabric/segment.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vb_slot_lock {
	void *at;    /* the page; NULL: no lock */
	pid_t owner; /* the process that mapped it: in others the address means nothing */
};

enum vb_slot_lock_state { VB_SLOT_HELD, VB_SLOT_FREE, VB_SLOT_UNKNOWN };

/* With fd, a descriptor of the registry file that is opened for this: 0, or -EAGAIN where another process has it. */
int vb_slot_lock_take(int fd, uint32_t slot);
/* Keep what fd has locked, and close fd: 0 or -errno. */
int vb_slot_lock_keep(struct vb_slot_lock *lock, int fd);
/* Give it back. In a forked child: forget it. */
void vb_slot_lock_end(struct vb_slot_lock *lock);

/* With any descriptor of the registry file. UNKNOWN where the kernel does not say. */
enum vb_slot_lock_state vb_slot_lock_of(int fd, uint32_t slot);
/* Of all slots at once. */
enum vb_slot_lock_state vb_slot_lock_any(int fd);
