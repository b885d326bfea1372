/* SPDX-License-Identifier: MIT */
/*
 * Where the registry is: a directory of this user in a directory that all users can write to.
 *
 *	/dev/shm/verbatim-UID-NETNS-PIDNS-v5      mode 0700
 *	/dev/shm/verbatim-UID-NETNS-PIDNS-v5-1    where somebody else has taken that name first, and so on
 *
 * /dev/shm has the sticky bit, so nobody can remove what another user has put there under our name,
 * and a user can always be forestalled. Therefore a user has several names; registry_place.c has the rule
 * by which all processes of a user come to use the same one. VERBATIM_SHM_DIR names another
 * directory in place of /dev/shm.
 *
 * Included in this folder, and by others for the root.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/file.h"

enum { VB_DIR_NAMES = 8, VB_DIR_NAME_MAX = 96 };

/* The file in it that outlives all processes, and keeps the directory there (eus_store.c). */
#define VB_DIR_GROUPS "eu-groups"

/* The directory in which ours lies, as a path for messages: /dev/shm, or VERBATIM_SHM_DIR. */
const char *vb_dir_root_path(void);
/* Opens it; the descriptor, or -errno after a log line. */
int vb_dir_open_root(void);
/* The k-th name, k < VB_DIR_NAMES; 0, or -errno after a log line. */
int vb_dir_name(char name[VB_DIR_NAME_MAX], unsigned int k);

/*
 * Opens an own directory, after setting its mode to 0700 where that is not its mode (a umask of 777
 * leaves one that its owner cannot enter). The descriptor, -ENOENT where there is nothing, -ENOTDIR
 * where the name belongs to somebody else or is no directory, or -errno.
 */
int vb_dir_open(int root, const char *name);
/*
 * Makes one under the first name that is free; 0, or -errno after a log line. 0 is no promise that
 * it is still there.
 */
int vb_dir_make(int root);

/*
 * Opens an own file in an own directory for reading and writing, its mode 0600 whatever the umask
 * is. create: made where there is none. What is not an own file is removed. The descriptor or
 * -errno.
 */
int vb_dir_open_file(int dir, const char *name, bool create);
/* Whether EU groups are kept in it. What cannot be seen may be there. */
bool vb_dir_has_groups(int dir);
/*
 * Removes the files of a directory in which nobody lives, the registry last: true where none is left. Where EU groups
 * are kept, they and the registry stay.
 */
bool vb_dir_remove_files(int dir);
/* The process that holds a lock on this file, as /proc/locks has it; 0 where that is not known. */
pid_t vb_dir_lock_holder(const struct vb_file *file);

/*
 * Removes this user's directories of other namespaces in which nobody lives and no EU groups are. Every process
 * in a registry holds a lock on a byte of the file `registry` for as long as it lives
 * (slot_lock.h), and whoever joins or leaves one on the whole of it (flock).
 */
void vb_dir_sweep(int root);
