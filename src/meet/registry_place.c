// SPDX-License-Identifier: MIT
/*
 * Owns which directory the registry is in, and its file there: opened, checked, mapped and locked. For a host that
 * joins (registry.c), and for tools that only look or change EU groups. What directories are called, and
 * their modes, is in registry_dir.h.
 *
 * One user has several possible directories, and all of the user's processes must use the same. The
 * rule: a process enters a directory only while it holds the locks of all that exist, as seen by
 * one more look after it got them. It takes the one in which somebody lives, else one that keeps EU groups, else
 * the first, and removes the others. Two processes that had no lock in common would each have made its directory
 * after the other's last look, which cannot be.
 *
 * The directory goes with its last process, unless EU groups are kept in it (eus_store.c). So it is checked after
 * locking that its file is still linked.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "host/signals.h"
#include "meet/registry_dir.h"
#include "meet/registry_file.h"

_Static_assert(sizeof(((struct vb_registry_place *)0)->name) == VB_DIR_NAME_MAX, "a whole name");

void vb_registry_place_close(struct vb_registry_place *place)
{
	if (place->file)
		munmap(place->file, VB_REGISTRY_SIZE);
	vb_file_close(&place->lock);
	vb_file_close(&place->dir);
	*place = VB_NO_PLACE;
}

/* A child that was forked meanwhile has the files, too, and would keep locked what is only closed. */
static void place_close_all(struct vb_registry_place *places, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		if (vb_file_is_open(&places[i].lock))
			flock(places[i].lock.fd, LOCK_UN);
		vb_registry_place_close(&places[i]);
	}
}

/* A new file is reserved whole, so that no later store can meet a full file system. */
static int place_map(struct vb_registry_place *place)
{
	struct vb_registry_file *file;
	struct stat st;
	int ret;

	if (fstat(place->lock.fd, &st))
		return -errno;
	if (st.st_size < VB_REGISTRY_SIZE) {
		ret = vb_file_reserve(place->lock.fd, 0, VB_REGISTRY_SIZE, vb_dir_root_path());
		if (ret)
			return ret;
	}
	file = mmap(NULL, VB_REGISTRY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, place->lock.fd, 0);
	if (file == MAP_FAILED) {
		ret = -errno;
		vb_error("cannot map %s/%s/registry: %s", vb_dir_root_path(), place->name,
			 strerror(-ret));
		return ret;
	}
	if (!file->magic) {
		file->magic = REGISTRY_MAGIC;
		/*
		 * Slots become QP numbers: users who never meet should not have the same ones
		 * either.
		 */
		atomic_store_explicit(&file->next, (uint32_t)geteuid() * 2654435761u >> 24,
				      memory_order_relaxed);
	}
	if (file->magic != REGISTRY_MAGIC) {
		munmap(file, VB_REGISTRY_SIZE);
		vb_error("%s/%s/registry is damaged; remove that directory", vb_dir_root_path(),
			 place->name);
		return -EUCLEAN;
	}
	place->file = file;
	return 0;
}

int vb_registry_places_find(int root, struct vb_registry_place places[VB_DIR_NAMES])
{
	int count = 0, fd, ret;

	for (unsigned int k = 0; k < VB_DIR_NAMES; k++) {
		struct vb_registry_place *place = &places[count];

		*place = VB_NO_PLACE;
		ret = vb_dir_name(place->name, k);
		if (ret)
			goto close_all;
		fd = vb_dir_open(root, place->name);
		if (fd == -ENOENT || fd == -ENOTDIR)
			continue;
		ret = fd < 0 ? fd : vb_file_keep(&place->dir, fd);
		if (ret) {
			vb_error("cannot open %s/%s: %s", vb_dir_root_path(), place->name,
				 strerror(-ret));
			goto close_all;
		}
		count++;
	}
	return count;

close_all:
	place_close_all(places, (unsigned int)count);
	return ret;
}

/*
 * Open and lock the registry of a directory. -ESTALE: the directory was removed meanwhile.
 * -EWOULDBLOCK: somebody has the lock; place->lock is open.
 */
static int place_lock(struct vb_registry_place *place)
{
	struct stat st;
	int fd, ret;

	fd = vb_dir_open_file(place->dir.fd, "registry", true);
	if (fd == -ENOENT)
		return -ESTALE;
	ret = fd < 0 ? fd : vb_file_keep(&place->lock, fd);
	if (ret) {
		vb_error("cannot open %s/%s/registry: %s", vb_dir_root_path(), place->name,
			 strerror(-ret));
		return ret;
	}
	if (flock(place->lock.fd, LOCK_EX | LOCK_NB))
		return -errno;
	return fstat(place->lock.fd, &st) ? -errno : st.st_nlink ? 0 : -ESTALE;
}

/* Whether the directories are those that were locked; 0, -ESTALE where not, or -errno. */
static int place_compare(int root, const struct vb_registry_place *locked, int count)
{
	struct vb_registry_place now[VB_DIR_NAMES];
	int found = vb_registry_places_find(root, now), ret = 0;

	if (found < 0)
		return found;
	if (found != count)
		ret = -ESTALE;
	for (int i = 0; i < found && !ret; i++)
		if (now[i].dir.dev != locked[i].dir.dev || now[i].dir.ino != locked[i].dir.ino)
			ret = -ESTALE;
	place_close_all(now, (unsigned int)found);
	return ret;
}

/* The higher, the more a directory is to be kept; 0: nothing is in it. */
static int place_worth(const struct vb_registry_place *place)
{
	return vb_slots_inhabited(place) ? 2 : vb_dir_has_groups(place->dir.fd);
}

/* Of the directories, all locked: keep the one that is worth most, the first of equals. */
static int place_choose(struct vb_registry_place *place, int root, struct vb_registry_place *places,
			int count)
{
	int chosen = 0, ret;

	for (int i = 0; i < count; i++) {
		ret = place_map(&places[i]);
		if (ret)
			return ret;
	}
	for (int i = 1; i < count; i++)
		if (place_worth(&places[i]) > place_worth(&places[chosen]))
			chosen = i;
	*place = places[chosen];
	places[chosen] = VB_NO_PLACE;
	vb_lock_count_turn(place->file);
	for (int i = 0; i < count; i++) {
		if (places[i].dir.fd >= 0 && !place_worth(&places[i]) &&
		    vb_dir_remove_files(places[i].dir.fd))
			unlinkat(root, places[i].name, AT_REMOVEDIR);
	}
	return 0;
}

/*
 * One try, with signals blocked: 0, -EWOULDBLOCK or -ESTALE (try again), -ENOENT, or -errno after a
 * log line.
 */
static int place_try(struct vb_registry_place *place, int root, bool make,
		     struct vb_registry_place *busy, uint64_t *turns)
{
	struct vb_registry_place places[VB_DIR_NAMES];
	int count, ret = 0;

	count = vb_registry_places_find(root, places);
	if (count < 0)
		return count;
	if (!count) {
		ret = make ? vb_dir_make(root) : -ENOENT;
		return ret ? ret : -ESTALE;
	}
	for (int i = 0; i < count && !ret; i++) {
		ret = place_lock(&places[i]);
		if (ret == -EWOULDBLOCK) {
			*busy = places[i]; /* by name and inode, for a message */
			*turns = vb_lock_turns(busy->lock.fd);
		}
	}
	if (!ret)
		ret = place_compare(root, places, count);
	if (!ret)
		ret = place_choose(place, root, places, count);
	place_close_all(places, (unsigned int)count);
	return ret;
}

int vb_registry_place_enter(struct vb_registry_place *place, int root, bool make, sigset_t *before)
{
	struct vb_patience left = vb_patience_begin(VB_LOCK_JOIN_MS);
	struct vb_registry_place busy = VB_NO_PLACE;
	uint64_t turns = 0;
	int ret;

	for (;;) {
		vb_signal_block(before);
		ret = place_try(place, root, make, &busy, &turns);
		if (!ret)
			return 0;
		vb_signal_unblock(before);
		if (ret != -EWOULDBLOCK && ret != -ESTALE)
			return ret;
		if (!vb_patience_wait(&left) &&
		    !vb_patience_renew(&left, vb_dir_root_path(), busy.name, &busy.lock, turns))
			return -ETIMEDOUT;
	}
}

void vb_registry_place_unlock(const struct vb_registry_place *place)
{
	flock(place->lock.fd, LOCK_UN);
}

void vb_registry_place_tidy(const struct vb_registry_place *place, const char *path)
{
	int root;

	if (!vb_file_is_open(&place->dir) || vb_slots_reap(place))
		return;
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return;
	if (vb_dir_remove_files(place->dir.fd))
		unlinkat(root, place->name, AT_REMOVEDIR);
	close(root);
}
