// SPDX-License-Identifier: MIT
/*
 * Owns the slots of the registry file: an empty one is taken, one whose process is gone is freed with its files.
 *
 * They are taken and reaped only under the lock of the registry (registry_lock.c), and given back by their owner
 * without it; pid and generation are atomic because they are read without it.
 *
 * A slot is reaped when the whole process is gone, which the lock of the slot says (slot_lock.h): not before, because
 * any of its threads may be in the middle of a copy. That its program has ended, and that nothing can
 * succeed with it any more, is seen earlier, by `life` in its segment (fabric/segment.h). A slot that
 * its owner has given back is taken again only when that process is gone, too.
 *
 * Called by registry.c and registry_place.c.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/file.h"
#include "base/log.h"
#include "host/patch/patch.h"
#include "meet/registry_dir.h"
#include "meet/registry_file.h"
#include "meet/slot_lock.h"

char *vb_slot_segment_name(char name[VB_SLOT_NAME], uint32_t slot, uint32_t generation)
{
	snprintf(name, VB_SLOT_NAME, "%u-%u", slot, generation);
	return name;
}

char *vb_slot_shown_name(char name[VB_SLOT_NAME], uint32_t slot, uint32_t generation)
{
	snprintf(name, VB_SLOT_NAME, "%u-%u.show", slot, generation);
	return name;
}

/*
 * A program that has closed our descriptors cannot ask for locks: to it, a process is there as long as a
 * process has that pid.
 */
bool vb_slot_is_there(const struct vb_registry_place *place, uint32_t index, uint32_t pid)
{
	enum vb_slot_lock_state state = vb_file_is_open(&place->lock)
						? vb_slot_lock_of(place->lock.fd, index)
						: VB_SLOT_UNKNOWN;

	if (state == VB_SLOT_UNKNOWN)
		return !kill((pid_t)pid, 0) || errno != ESRCH;
	return state == VB_SLOT_HELD;
}

void vb_slot_free(const struct vb_registry_place *place, uint32_t index)
{
	struct vb_slot *slot = &place->file->slot[index];
	uint32_t generation = atomic_load_explicit(&slot->generation, memory_order_relaxed);
	char name[VB_SLOT_NAME];

	if (vb_file_is_open(&place->dir)) {
		unlinkat(place->dir.fd, vb_slot_shown_name(name, index, generation), 0);
		unlinkat(place->dir.fd, vb_slot_segment_name(name, index, generation), 0);
	}
	atomic_store_explicit(&slot->claims, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->thread, 0, memory_order_relaxed);
	vb_registry_clear_marks(place->file, index);
	atomic_store_explicit(&slot->pid, 0, memory_order_release);
}

bool vb_slots_inhabited(const struct vb_registry_place *place)
{
	for (uint32_t i = 0; i < VB_SLOTS; i++) {
		uint32_t pid =
			atomic_load_explicit(&place->file->slot[i].pid, memory_order_acquire);

		if (pid && vb_slot_is_there(place, i, pid))
			return true;
	}
	return false;
}

unsigned int vb_slots_reap(const struct vb_registry_place *place)
{
	unsigned int used = 0;

	for (uint32_t i = 0; i < VB_SLOTS; i++) {
		struct vb_slot *slot = &place->file->slot[i];
		uint32_t pid = atomic_load_explicit(&slot->pid, memory_order_acquire);

		if (pid && !vb_slot_is_there(place, i, pid))
			vb_slot_free(place, i);
		else if (pid)
			used++;
	}
	return used;
}

/* An empty slot becomes this process's, which has its lock. */
static void slots_enter(struct vb_registry *registry, uint32_t index)
{
	struct vb_registry_file *file = registry->place.file;
	struct vb_slot *slot = &file->slot[index];
	uint32_t generation = 1 + atomic_load_explicit(&slot->generation, memory_order_relaxed);

	if (!generation)
		generation = 1;
	atomic_store_explicit(&file->next, (index + 1) % VB_SLOTS, memory_order_relaxed);
	atomic_store_explicit(&slot->generation, generation, memory_order_relaxed);
	atomic_store_explicit(&slot->thread, 0, memory_order_relaxed);
	registry->self =
		(struct vb_slot_info){ .slot = index, .generation = generation, .pid = getpid() };
	atomic_store_explicit(&registry->joined, getpid(), memory_order_relaxed);
	vb_patch_publish(&slot->doorbells);
	atomic_store_explicit(&slot->pid, (uint32_t)getpid(), memory_order_release);
}

/* Lock the first slot that is empty, by a descriptor of its own: its index, VB_SLOTS, or -errno. */
static int slots_lock_one(const struct vb_registry *registry, int fd)
{
	struct vb_registry_file *file = registry->place.file;

	for (uint32_t n = 0; n < VB_SLOTS; n++) {
		uint32_t index =
			(atomic_load_explicit(&file->next, memory_order_relaxed) + n) % VB_SLOTS;
		int ret;

		if (atomic_load_explicit(&file->slot[index].pid, memory_order_acquire))
			continue;
		ret = vb_slot_lock_take(fd, index);
		if (!ret)
			return (int)index;
		/* Its former owner has left, and is not gone. */
		if (ret != -EAGAIN)
			return ret;
	}
	return VB_SLOTS;
}

int vb_slots_claim(struct vb_registry *registry)
{
	int fd = vb_dir_open_file(registry->place.dir.fd, "registry", false), ret;
	int index = fd < 0 ? fd : slots_lock_one(registry, fd);

	if ((index < 0 || index == VB_SLOTS) && fd >= 0)
		vb_sys_close(fd);
	if (index == VB_SLOTS) {
		vb_error("all %d process slots of this user are taken: see `verbatim ps`", index);
		return -EAGAIN;
	}
	ret = index < 0 ? index : vb_slot_lock_keep(&registry->slot_lock, fd);
	if (ret)
		vb_error("cannot lock a slot of %s/%s/registry: %s", registry->root,
			 registry->place.name, strerror(-ret));
	else
		slots_enter(registry, (uint32_t)index);
	return ret;
}
