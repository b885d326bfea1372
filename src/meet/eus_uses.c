// SPDX-License-Identifier: MIT
/*
 * Owns which process uses which execution units: entries of the registry file, one for each host and adapter with
 * device processes. An entry names its host by slot and generation and counts as long as that process is there,
 * so an entry of one that was killed needs no more than to be taken again.
 *
 * They are at the end of the file, which is made longer by the first program that needs one.
 *
 * Entries are taken, and asked for, under the lock of the registry (registry_lock.c); their owner changes the numbers
 * in them and gives them back without it. What another process wrote there is only compared and counted: a number
 * that makes no sense belongs to nobody.
 *
 * Called by eus_user.c for a program, and by dpaeumgmt, which asks before it changes anything.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "meet/eus.h"
#include "meet/registry_file.h"

enum { PROCESSES_MAX = 1 << 16 }; /* that one entry is believed to have */

static uint64_t eus_uses_owner(const struct vb_slot_info *host)
{
	return (uint64_t)host->generation << 32 | (host->slot + 1);
}

/* The slot that has an entry, whose process may be gone; NULL: the entry is free. */
static const struct vb_slot *eus_uses_slot(const struct vb_registry_file *file,
					   const struct vb_eu_use *use)
{
	uint64_t owner = atomic_load_explicit(&use->owner, memory_order_acquire);
	uint32_t index = (uint32_t)owner - 1;
	const struct vb_slot *slot = index < VB_SLOTS ? &file->slot[index] : NULL;

	return slot && atomic_load_explicit(&slot->pid, memory_order_acquire) &&
			       atomic_load_explicit(&slot->generation, memory_order_acquire) ==
				       owner >> 32
		       ? slot
		       : NULL;
}

static struct vb_eu_use *eus_uses_find_free(struct vb_registry_file *file)
{
	for (unsigned int i = 0; i < VB_EU_USES; i++)
		if (!eus_uses_slot(file, &file->use[i]))
			return &file->use[i];
	return NULL;
}

int vb_eu_uses_map(const struct vb_registry *registry, struct vb_registry_file **out)
{
	const struct vb_registry_place *place = &registry->place;
	struct vb_registry_file *file;
	struct stat st;
	int ret = fstat(place->lock.fd, &st) ? -errno : 0;

	/* Reserved, so that no later store can meet a full file system. */
	if (!ret && st.st_size < (off_t)sizeof(*file)) {
		ret = vb_file_reserve(place->lock.fd, VB_REGISTRY_SIZE, sizeof(*file),
				      registry->root);
		if (ret)
			return ret;
	}
	file = ret ? MAP_FAILED
		   : mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, place->lock.fd,
			  0);
	if (file == MAP_FAILED) {
		ret = ret ? ret : -errno;
		vb_error("cannot map %s/%s/registry: %s", registry->root, place->name,
			 strerror(-ret));
		return ret;
	}
	*out = file;
	return 0;
}

void vb_eu_uses_unmap(struct vb_registry_file *file)
{
	if (file)
		munmap(file, sizeof(*file));
}

struct vb_eu_use *vb_eu_use_begin(const struct vb_registry *registry, struct vb_registry_file *file,
				  const char *card)
{
	struct vb_eu_use *use = eus_uses_find_free(file);

	if (!use) {
		vb_slots_reap(&registry->place);
		use = eus_uses_find_free(file);
	}
	if (!use) {
		vb_error("all %d places for programs with device code are taken: see `verbatim ps`",
			 VB_EU_USES);
		return NULL;
	}
	snprintf(use->card, sizeof(use->card), "%s", card);
	atomic_store_explicit(&use->groups, 0, memory_order_relaxed);
	atomic_store_explicit(&use->processes, 0, memory_order_relaxed);
	/* Pairs with eus_uses_slot(). */
	atomic_store_explicit(&use->owner, eus_uses_owner(&registry->self), memory_order_release);
	return use;
}

void vb_eu_use_end(struct vb_eu_use *use)
{
	atomic_store_explicit(&use->owner, 0, memory_order_release);
}

void vb_eu_use_group(struct vb_eu_use *use, unsigned int id, bool on)
{
	if (on)
		atomic_fetch_or_explicit(&use->groups, 1u << id, memory_order_acq_rel);
	else
		atomic_fetch_and_explicit(&use->groups, ~(1u << id), memory_order_acq_rel);
}

void vb_eu_use_processes(struct vb_eu_use *use, unsigned int n)
{
	atomic_store_explicit(&use->processes, n, memory_order_release);
}

/* ---- what dpaeumgmt asks ---- */

/*
 * A copy, so that nothing changes while it is looked at, and a file that became shorter is only an error. Entries that
 * the file does not have are free.
 */
static int eus_uses_copy(const struct vb_registry *registry, struct vb_registry_file **copy)
{
	struct vb_registry_file *file = calloc(1, sizeof(*file));
	ssize_t n = file ? pread(registry->place.lock.fd, file, sizeof(*file), 0) : -1;
	int ret = n >= VB_REGISTRY_SIZE ? 0 : !file ? -ENOMEM : n < 0 ? -errno : -EUCLEAN;

	if (ret) {
		vb_error("cannot read %s/%s/registry: %s", registry->root, registry->place.name,
			 strerror(-ret));
		free(file);
		return ret;
	}
	*copy = file;
	return 0;
}

/* By its lock; and one that has ended uses nothing, though a peer's copy may still keep its memory and its lock. */
static bool eus_uses_is_there(const struct vb_registry *registry,
			      const struct vb_registry_file *copy, const struct vb_slot *slot)
{
	uint32_t pid = slot->pid;

	return vb_slot_is_there(&registry->place, (uint32_t)(slot - copy->slot), pid) &&
	       (!kill((pid_t)pid, 0) || errno != ESRCH);
}

/* Of those that are there: of group 0 the device processes, of another one 1 for each that uses it. */
static int eus_uses_count(const struct vb_registry *registry, const char *card, unsigned int group,
			  pid_t *one)
{
	struct vb_registry_file *copy = NULL;
	int total = 0, ret = registry->place.file ? eus_uses_copy(registry, &copy) : 0;

	for (unsigned int i = 0; copy && i < VB_EU_USES; i++) {
		const struct vb_eu_use *use = &copy->use[i];
		const struct vb_slot *slot = eus_uses_slot(copy, use);
		uint32_t n = group ? use->groups >> group & 1 : use->processes;

		if (!n || !slot || strncmp(use->card, card, sizeof(use->card)) ||
		    !eus_uses_is_there(registry, copy, slot))
			continue;
		total += (int)(n < PROCESSES_MAX ? n : PROCESSES_MAX);
		*one = (pid_t)slot->pid;
	}
	free(copy);
	return ret ? ret : total;
}

int vb_eus_group_users(const struct vb_registry *registry, const char *card, unsigned int id,
		       pid_t *one)
{
	return eus_uses_count(registry, card, id, one);
}

int vb_eus_processes(const struct vb_registry *registry, const char *card, pid_t *one)
{
	return eus_uses_count(registry, card, 0, one);
}
