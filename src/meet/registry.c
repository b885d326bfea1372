// SPDX-License-Identifier: MIT
/*
 * Owns one host's place in the registry: joining, leaving, and what it asks about the others.
 *
 *	DIRECTORY/registry            struct vb_registry_file (registry_file.h), reserved when the file is made; a byte per slot is
 *	                              locked while its process is there (slot_lock.h)
 *	DIRECTORY/SLOT-GENERATION     segment of the process in that slot
 *	DIRECTORY/SLOT-GENERATION.show    what it shows to tools, if it shows anything
 *	DIRECTORY/eu-groups           EU groups and partitions, if there are any (eus_store.c)
 *	DIRECTORY/function-...        an emulated function, shared by its driver and its device (fabric/function.h)
 *
 * Which directory it is, and how its file is opened, is in registry_place.c; who takes and frees slots in
 * registry_slots.c; the lock under which that happens in registry_lock.c.
 */
#include "meet/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "host/patch/patch.h"
#include "meet/registry_dir.h"
#include "meet/registry_file.h"
#include "meet/slot_lock.h"
#include "host/signals.h"

/* How long to wait for the lock, in milliseconds; vb_registry_join() waits for VB_LOCK_JOIN_MS. */
enum {
	LEAVE_MS = 100, /* only to remove what would be found again */
	REAP_MS = 10,   /* in the middle of other work; whoever has the lock reaps, too */
};

const _Atomic uint64_t vb_registry_not_sniffed;

void vb_registry_init(struct vb_registry *registry)
{
	*registry = (struct vb_registry)VB_REGISTRY_INIT;
}

/* ---- joining and leaving ---- */

/* What counts doorbells of this process may be counting in the slot of this host. */
static struct vb_slot_doorbells *registry_doorbells(const struct vb_registry *registry)
{
	struct vb_registry_file *file = registry->place.file;

	return file ? &file->slot[registry->self.slot].doorbells : NULL;
}

static void registry_leave_place(struct vb_registry *registry)
{
	vb_patch_hide(registry_doorbells(registry));
	vb_registry_place_close(&registry->place);
}

/* The segment file of the slot, empty. */
static int registry_make_segment(struct vb_registry *registry)
{
	char name[VB_SLOT_NAME];
	int fd, ret;

	vb_slot_segment_name(name, registry->self.slot, registry->self.generation);
	unlinkat(registry->place.dir.fd, name, 0);
	fd = vb_dir_open_file(registry->place.dir.fd, name, true);
	ret = fd < 0 ? fd : vb_file_keep(&registry->segment, fd);
	if (ret)
		vb_error("cannot make %s/%s/%s: %s", registry->root, registry->place.name, name,
			 strerror(-ret));
	return ret;
}

static int registry_take_slot(struct vb_registry *registry)
{
	int ret;

	vb_slots_reap(&registry->place);
	ret = vb_slots_claim(registry);
	if (ret)
		return ret;
	ret = registry_make_segment(registry);
	if (ret) {
		vb_slot_free(&registry->place, registry->self.slot);
		vb_slot_lock_end(&registry->slot_lock);
	}
	return ret;
}

static int registry_join(struct vb_registry *registry, int root)
{
	sigset_t before;
	int ret = vb_registry_place_enter(&registry->place, root, true, &before);

	if (ret)
		return ret;
	ret = registry_take_slot(registry);
	vb_registry_place_unlock(&registry->place);
	if (ret)
		registry_leave_place(registry);
	vb_signal_unblock(&before);
	return ret;
}

/* A forked child inherits the parent's descriptors and mapping but none of its claims. */
void vb_registry_forked(struct vb_registry *registry)
{
	pthread_mutex_init(&registry->own_lock, NULL);
	vb_patch_withdraw(registry_doorbells(registry));
	vb_slot_lock_end(&registry->slot_lock);
	vb_file_close(&registry->segment);
	vb_file_close(&registry->place.lock);
	vb_file_close(&registry->place.dir);
}

int vb_registry_join(struct vb_registry *registry, struct vb_slot_info *self)
{
	VB_NO_CANCEL;
	int root, ret;

	vb_registry_close(registry); /* what a forked child has inherited */
	snprintf(registry->root, sizeof(registry->root), "%s", vb_dir_root_path());
	root = vb_dir_open_root();
	if (root < 0)
		return root;
	ret = registry_join(registry, root);
	if (!ret) {
		atomic_store_explicit(&registry->sniffed_at, &registry->place.file->sniffed,
				      memory_order_relaxed);
		vb_dir_sweep(root);
		*self = registry->self;
	}
	close(root);
	return ret;
}

int vb_registry_visit(struct vb_registry *registry, bool make, sigset_t *before)
{
	VB_NO_CANCEL;
	int root, ret;

	snprintf(registry->root, sizeof(registry->root), "%s", vb_dir_root_path());
	root = vb_dir_open_root();
	if (root < 0)
		return root;
	ret = vb_registry_place_enter(&registry->place, root, make, before);
	close(root);
	return ret == -ENOENT && !make ? 0 : ret;
}

void vb_registry_quit(struct vb_registry *registry, const sigset_t *before)
{
	VB_NO_CANCEL;

	if (!registry->place.file)
		return; /* there was none, and signals are as they were */
	if (lseek(registry->place.lock.fd, 0, SEEK_END) >= VB_REGISTRY_SIZE)
		vb_registry_place_tidy(&registry->place, registry->root);
	vb_registry_place_unlock(&registry->place);
	vb_registry_place_close(&registry->place);
	vb_signal_unblock(before);
}

/*
 * The last to leave removes the directory. Where that does not work the next to join finds it, and
 * no harm is done.
 */
static void registry_remove_directory(struct vb_registry *registry)
{
	sigset_t before;

	if (vb_registry_lock(registry, LEAVE_MS, &before))
		return;
	vb_registry_place_tidy(&registry->place, registry->root);
	vb_registry_unlock(registry, &before);
}

static bool registry_has_slot(const struct vb_registry *registry)
{
	return atomic_load_explicit(&registry->joined, memory_order_relaxed) == getpid();
}

bool vb_registry_is_joined(const struct vb_registry *registry)
{
	return registry->place.file && registry_has_slot(registry);
}

void vb_registry_leave(struct vb_registry *registry)
{
	VB_NO_CANCEL;
	if (!vb_registry_is_joined(registry))
		return;
	vb_patch_withdraw(registry_doorbells(registry));
	/*
	 * A program that has closed itself in may be ended for removing files: then the slot is left
	 * as it would be if the process were killed, and the next to look reaps it.
	 */
	if (!vb_fault_is_closing_in()) {
		vb_slot_free(&registry->place, registry->self.slot);
		registry_remove_directory(registry);
	}
	/* Files and mapping stay: at exit, the background thread may still be using them. */
	atomic_store_explicit(&registry->joined, 0, memory_order_relaxed);
}

void vb_registry_close(struct vb_registry *registry)
{
	VB_NO_CANCEL;
	vb_slot_lock_end(&registry->slot_lock);
	vb_file_close(&registry->segment);
	atomic_store_explicit(&registry->sniffed_at, &vb_registry_not_sniffed,
			      memory_order_relaxed);
	registry_leave_place(registry);
}

/* ---- what the others ask ---- */

int vb_registry_segment(const struct vb_registry *registry, struct vb_file *file)
{
	if (!registry_has_slot(registry))
		return -ESHUTDOWN;
	if (!vb_file_is_open(&registry->segment)) {
		vb_error("the program closed a descriptor of the card; it must close only its own");
		return -EBADF;
	}
	*file = registry->segment;
	return 0;
}

int vb_registry_make_shown(const struct vb_registry *registry, struct vb_file *file)
{
	char name[VB_SLOT_NAME];
	int fd;

	if (!registry_has_slot(registry) || !vb_file_is_open(&registry->place.dir))
		return -ESHUTDOWN;
	vb_slot_shown_name(name, registry->self.slot, registry->self.generation);
	unlinkat(registry->place.dir.fd, name, 0);
	fd = vb_dir_open_file(registry->place.dir.fd, name, true);
	return fd < 0 ? fd : vb_file_keep(file, fd);
}

int vb_registry_open_shown(const struct vb_slot_info *info)
{
	return vb_dir_open_file(
		info->dir,
		vb_slot_shown_name((char[VB_SLOT_NAME]){ 0 }, info->slot, info->generation), false);
}

const char *vb_registry_root(const struct vb_registry *registry)
{
	return registry->root;
}

int vb_registry_open_segment(const struct vb_registry *registry, uint32_t slot, uint32_t generation)
{
	VB_NO_CANCEL;
	char name[VB_SLOT_NAME];

	vb_slot_segment_name(name, slot, generation);
	return vb_file_is_open(&registry->place.dir)
		       ? vb_dir_open_file(registry->place.dir.fd, name, false)
		       : -EBADF;
}

int vb_registry_open_shared(const struct vb_registry *registry, const char *name)
{
	VB_NO_CANCEL;

	return vb_file_is_open(&registry->place.dir)
		       ? vb_dir_open_file(registry->place.dir.fd, name, true)
		       : -EBADF;
}

int vb_registry_open_listed(const struct vb_slot_info *info)
{
	VB_NO_CANCEL;
	char name[VB_SLOT_NAME];

	vb_slot_segment_name(name, info->slot, info->generation);
	return vb_dir_open_file(info->dir, name, false);
}

bool vb_registry_lookup(const struct vb_registry *registry, uint32_t index,
			struct vb_slot_info *info)
{
	struct vb_slot *slot;
	uint32_t pid;

	if (!registry->place.file || index >= VB_SLOTS)
		return false;
	slot = &registry->place.file->slot[index];
	pid = atomic_load_explicit(&slot->pid, memory_order_acquire);
	if (!pid)
		return false;
	*info = (struct vb_slot_info){
		index, atomic_load_explicit(&slot->generation, memory_order_acquire), (pid_t)pid,
		(pid_t)atomic_load_explicit(&slot->thread, memory_order_acquire)
	};
	return true;
}

bool vb_registry_alive(const struct vb_registry *registry, uint32_t index, uint32_t generation)
{
	VB_NO_CANCEL;
	struct vb_slot_info info;

	return vb_registry_lookup(registry, index, &info) && info.generation == generation &&
	       vb_slot_is_there(&registry->place, index, (uint32_t)info.pid);
}

bool vb_registry_lingers(const struct vb_registry *registry, uint32_t index)
{
	VB_NO_CANCEL;
	const struct vb_registry_place *place = &registry->place;

	return !vb_registry_generation(registry, index) && vb_file_is_open(&place->lock) &&
	       vb_slot_lock_of(place->lock.fd, index) == VB_SLOT_HELD;
}

void vb_registry_watch(struct vb_registry *registry, pid_t thread)
{
	/* Pairs with vb_registry_lookup(). */
	atomic_store_explicit(&registry->place.file->slot[registry->self.slot].thread,
			      (uint32_t)thread, memory_order_release);
}

uint32_t vb_registry_generation(const struct vb_registry *registry, uint32_t index)
{
	struct vb_slot *slot = &registry->place.file->slot[index];

	return atomic_load_explicit(&slot->pid, memory_order_acquire)
		       ? atomic_load_explicit(&slot->generation, memory_order_acquire)
		       : 0;
}

void vb_registry_reap(struct vb_registry *registry)
{
	VB_NO_CANCEL;
	sigset_t before;

	/* One that has closed itself in leaves it to others: see vb_registry_leave(). */
	if (!vb_registry_is_joined(registry) || vb_fault_is_closing_in() ||
	    vb_registry_lock(registry, REAP_MS, &before))
		return;
	vb_slots_reap(&registry->place);
	vb_registry_unlock(registry, &before);
}

int vb_registry_claim(struct vb_registry *registry, unsigned int number)
{
	VB_NO_CANCEL;
	struct vb_slot_info info;
	sigset_t before;
	int ret = 0;

	if (!vb_registry_is_joined(registry))
		return -ENODEV;
	ret = vb_registry_lock(registry, VB_LOCK_JOIN_MS, &before);
	if (ret)
		return ret;
	if (vb_registry_claimant(registry, number, &info)) {
		vb_slots_reap(&registry->place);
		ret = vb_registry_claimant(registry, number, &info) ? -EBUSY : 0;
	}
	if (!ret)
		atomic_fetch_or_explicit(&registry->place.file->slot[registry->self.slot].claims,
					 1ull << number, memory_order_acq_rel);
	vb_registry_unlock(registry, &before);
	return ret;
}

void vb_registry_release(struct vb_registry *registry, unsigned int number)
{
	if (vb_registry_is_joined(registry))
		atomic_fetch_and_explicit(&registry->place.file->slot[registry->self.slot].claims,
					  ~(1ull << number), memory_order_acq_rel);
}

/* One that is gone claims nothing, even while a peer's copy still keeps its memory and so its slot. */
bool vb_registry_claimant(const struct vb_registry *registry, unsigned int number,
			  struct vb_slot_info *info)
{
	struct vb_slot *slots = registry->place.file->slot;

	for (uint32_t i = 0; i < VB_SLOTS; i++)
		if ((atomic_load_explicit(&slots[i].claims, memory_order_acquire) >> number & 1) &&
		    vb_registry_lookup(registry, i, info) &&
		    (!kill(info->pid, 0) || errno != ESRCH))
			return true;
	return false;
}

uint64_t vb_registry_space(const struct vb_registry *registry)
{
	struct statvfs vfs;

	return fstatvfs(registry->segment.fd, &vfs) ? 0 : (uint64_t)vfs.f_bavail * vfs.f_frsize;
}

/* The processes of one directory; how many. */
static int list_place(struct vb_registry_place *place,
		      void (*visit)(void *arg, const struct vb_slot_info *info), void *arg)
{
	int fd = openat(place->dir.fd, "registry", O_RDONLY | O_NOFOLLOW | O_CLOEXEC), count = 0;
	struct vb_registry_file *file;
	int ret;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	/* vb_registry_place_close() closes and unmaps what is noted in it. */
	ret = vb_file_keep(&place->lock, fd);
	if (ret)
		return ret;
	if (lseek(place->lock.fd, 0, SEEK_END) < VB_REGISTRY_SIZE)
		return 0; /* it is being made */
	file = mmap(NULL, VB_REGISTRY_SIZE, PROT_READ, MAP_SHARED, place->lock.fd, 0);
	if (file == MAP_FAILED)
		return -errno; /* a list without its processes would be wrong */
	place->file = file;
	for (uint32_t i = 0; i < VB_SLOTS && file->magic == REGISTRY_MAGIC; i++) {
		const struct vb_slot *slot = &file->slot[i];
		uint32_t pid = atomic_load_explicit(&slot->pid, memory_order_acquire);

		if (!pid || !vb_slot_is_there(place, i, pid))
			continue;
		visit(arg, &(struct vb_slot_info){ .slot = i,
						   .generation = atomic_load_explicit(
							   &slot->generation, memory_order_acquire),
						   .pid = (pid_t)pid,
						   .doorbells = &slot->doorbells,
						   .dir = place->dir.fd });
		count++;
	}
	return count;
}

int vb_registry_list(void (*visit)(void *arg, const struct vb_slot_info *info), void *arg)
{
	VB_NO_CANCEL;
	struct vb_registry_place places[VB_DIR_NAMES];
	int root = vb_dir_open_root(), found, total = 0;

	if (root < 0)
		return root;
	found = vb_registry_places_find(root, places);
	for (int i = 0; i < found && total >= 0; i++) {
		int count = list_place(&places[i], visit, arg);

		total = count < 0 ? count : total + count;
	}
	for (int i = 0; i < found; i++)
		vb_registry_place_close(&places[i]);
	close(root);
	return found < 0 ? found : total;
}
