// SPDX-License-Identifier: MIT
/*
 * Owns the registry file and its slots. Where it lies is in registry_dir.h.
 *
 *	DIRECTORY/registry            struct vb_registry_file (registry_file.h): 256 slots, reserved when the file is made; a byte per slot is
 *	                              locked while its process is there (slot_lock.h)
 *	DIRECTORY/SLOT-GENERATION     segment of the process in that slot
 *	DIRECTORY/SLOT-GENERATION.show    what it shows to tools, if it shows anything
 *	DIRECTORY/function-...        an emulated function, shared by its driver and its device (fabric/function.h)
 *
 * Slots are taken and reaped only under the lock on the registry file (flock), and given back by
 * their owner without it; pid and generation are atomic because they are read without it. The lock
 * belongs to the open file, so all threads of a process have it together: own_lock is for them. No
 * handler of the program runs while either is held, because it might leave by a jump. Waiting is in
 * small sleeps with neither held, so that it can be interrupted and has a limit.
 *
 * One user has several possible directories, and all of the user's processes must use the same. The
 * rule: a process joins in a directory only while it holds the locks of all that exist, as seen by
 * one more look after it got them. It takes the one in which somebody lives, else the first, and
 * removes the others. Two processes that had no lock in common would each have made its directory
 * after the other's last look, which cannot be.
 *
 * The directory goes with its last process, so a joiner checks after locking that its file is still
 * linked.
 *
 * A slot is reaped when the whole process is gone, which the lock of its byte says: not before, because
 * any of its threads may be in the middle of a copy. That its program has ended, and that nothing can
 * succeed with it any more, is seen earlier, by `life` in its segment (fabric/segment.h). A slot that
 * its owner has given back is taken again only when that process is gone, too.
 */
#include "meet/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/time.h"
#include "host/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "host/patch/patch.h"
#include "meet/registry_dir.h"
#include "meet/registry_file.h"
#include "meet/slot_lock.h"
#include "host/signals.h"

/*
 * How long to wait for the lock, in milliseconds. It is held for some, unless its holder is
 * stopped.
 */
enum {
	JOIN_MS = 5000, /* and as long again for each new holder */
	LEAVE_MS = 100, /* only to remove what would be found again */
	REAP_MS = 10,   /* in the middle of other work; whoever has the lock reaps, too */
};

_Static_assert(sizeof(((struct vb_registry_place *)0)->name) == VB_DIR_NAME_MAX, "a whole name");

#define NO_PLACE ((struct vb_registry_place){ .dir = VB_NO_FILE, .lock = VB_NO_FILE })

const _Atomic uint64_t vb_registry_not_sniffed;

void vb_registry_init(struct vb_registry *registry)
{
	*registry = (struct vb_registry)VB_REGISTRY_INIT;
}

static void segment_name(char *name, size_t len, uint32_t slot, uint32_t generation)
{
	snprintf(name, len, "%u-%u", slot, generation);
}

static char *shown_name(char name[32], uint32_t slot, uint32_t generation)
{
	snprintf(name, 32, "%u-%u.show", slot, generation);
	return name;
}

/*
 * Whether the process in a slot with this pid is there. A program that has closed our descriptors
 * cannot ask for locks: to it, a process is there as long as a process has that pid.
 */
static bool process_is_there(const struct vb_registry_place *place, uint32_t index, uint32_t pid)
{
	enum vb_slot_lock_state state =
		vb_file_is_open(&place->lock) ? vb_slot_lock_of(place->lock.fd, index) : VB_SLOT_UNKNOWN;

	if (state == VB_SLOT_UNKNOWN)
		return !kill((pid_t)pid, 0) || errno != ESRCH;
	return state == VB_SLOT_HELD;
}

/* ---- the lock ---- */

struct patience {
	uint64_t end;
	long pause_ns;
	bool asked;     /* the time was over before, */
	ino_t ino;      /* and this was the registry file that was locked, */
	uint64_t turns; /* and how often it had been */
};

static struct patience registry_patience(unsigned int ms)
{
	return (struct patience){ .end = vb_now_ns() + ms * 1000000ull, .pause_ns = 50000 };
}

/* Sleep a while before the next try; false where the time is over. */
static bool registry_wait_more(struct patience *p)
{
	if (vb_now_ns() >= p->end)
		return false;
	vb_pause_ns((uint64_t)p->pause_ns);
	if (p->pause_ns < 5000000)
		p->pause_ns *= 2;
	return true;
}

static void count_turn(struct vb_registry_file *file)
{
	atomic_fetch_add_explicit(&file->turns, 1, memory_order_relaxed);
}

/* Of a registry that need not be mapped: 0 where it is being made. */
static uint64_t read_turns(int fd)
{
	uint64_t turns;
	off_t at = offsetof(struct vb_registry_file, turns);

	return pread(fd, &turns, sizeof(turns), at) == sizeof(turns) ? turns : 0;
}

/*
 * The time for joining is over, in this turn. True where it begins anew, because processes have the
 * lock one after the other: /proc/locks would not tell, where one has just given it back. False, after
 * a log line, where one has it for too long.
 */
static bool is_moving(struct patience *p, const char *root, const char *name,
		      const struct vb_file *lock, uint64_t turns)
{
	pid_t holder;

	if (!p->asked || p->ino != lock->ino || p->turns != turns) {
		p->asked = true;
		p->ino = lock->ino;
		p->turns = turns;
		p->end = vb_now_ns() + JOIN_MS * 1000000ull;
		return true;
	}
	holder = vb_dir_lock_holder(lock);
	if (holder > 0)
		vb_error(
			"process %d keeps %s/%s/registry locked; is it stopped? Let it go on, or end it",
			(int)holder, root, name);
	else
		vb_error("%s/%s/registry stays locked, by a process that is not visible from here",
			 root, name);
	return false;
}

/* With signals blocked: 0, -EWOULDBLOCK, or -EBADF where the program has closed our descriptor. */
static int registry_try_lock(struct vb_registry *registry)
{
	int ret = 0;

	if (pthread_mutex_trylock(&registry->own_lock))
		return -EWOULDBLOCK;
	if (!vb_file_is_open(&registry->place.lock))
		ret = -EBADF;
	else if (flock(registry->place.lock.fd, LOCK_EX | LOCK_NB))
		ret = -errno;
	if (ret)
		pthread_mutex_unlock(&registry->own_lock);
	else
		count_turn(registry->place.file);
	return ret;
}

/*
 * Lock the registry that we have joined; 0, or -errno: nothing is locked then, and signals are as
 * before. At JOIN_MS a log line says who has it.
 */
static int lock_registry(struct vb_registry *registry, unsigned int ms, sigset_t *before)
{
	struct patience left = registry_patience(ms);
	int ret;

	for (;;) {
		vb_signal_block(before);
		ret = registry_try_lock(registry);
		if (!ret)
			return 0;
		vb_signal_unblock(before);
		if (ret != -EWOULDBLOCK)
			return ret;
		if (!registry_wait_more(&left) &&
		    (ms < JOIN_MS ||
		     !is_moving(&left, registry->root, registry->place.name, &registry->place.lock,
				read_turns(registry->place.lock.fd))))
			return -ETIMEDOUT;
	}
}

static void unlock_registry(struct vb_registry *registry, const sigset_t *before)
{
	flock(registry->place.lock.fd, LOCK_UN);
	pthread_mutex_unlock(&registry->own_lock);
	vb_signal_unblock(before);
}

/* ---- slots ---- */

/* By the owner, or with the file lock held where the owner is dead. */
static void registry_free_slot(struct vb_registry *registry, uint32_t index)
{
	struct vb_slot *slot = &registry->place.file->slot[index];
	uint32_t generation = atomic_load_explicit(&slot->generation, memory_order_relaxed);
	char name[32];

	if (vb_file_is_open(&registry->place.dir)) {
		unlinkat(registry->place.dir.fd, shown_name(name, index, generation), 0);
		segment_name(name, sizeof(name), index, generation);
		unlinkat(registry->place.dir.fd, name, 0);
	}
	atomic_store_explicit(&slot->claims, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->thread, 0, memory_order_relaxed);
	vb_registry_clear_marks(registry->place.file, index);
	atomic_store_explicit(&slot->pid, 0, memory_order_release);
}

static bool is_inhabited(const struct vb_registry_place *place)
{
	for (uint32_t i = 0; i < VB_SLOTS; i++) {
		uint32_t pid =
			atomic_load_explicit(&place->file->slot[i].pid, memory_order_acquire);

		if (pid && process_is_there(place, i, pid))
			return true;
	}
	return false;
}

static unsigned int reap_locked(struct vb_registry *registry)
{
	unsigned int used = 0;

	for (uint32_t i = 0; i < VB_SLOTS; i++) {
		struct vb_slot *slot = &registry->place.file->slot[i];
		uint32_t pid = atomic_load_explicit(&slot->pid, memory_order_acquire);

		if (pid && !process_is_there(&registry->place, i, pid))
			registry_free_slot(registry, i);
		else if (pid)
			used++;
	}
	return used;
}

/* An empty slot becomes this process's, which has its lock. */
static void enter_slot(struct vb_registry *registry, uint32_t index)
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
	vb_patch_publish(&slot->doorbells);
	atomic_store_explicit(&slot->pid, (uint32_t)getpid(), memory_order_release);
}

/* Lock the first slot that is empty, by a descriptor of its own: its index, VB_SLOTS, or -errno. */
static int lock_slot(const struct vb_registry *registry, int fd)
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

static int claim_slot(struct vb_registry *registry)
{
	int fd = vb_dir_open_file(registry->place.dir.fd, "registry", false), ret;
	int index = fd < 0 ? fd : lock_slot(registry, fd);

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
		enter_slot(registry, (uint32_t)index);
	return ret;
}

/* The segment file of the slot, empty. */
static int registry_make_segment(struct vb_registry *registry)
{
	char name[32];
	int fd, ret;

	segment_name(name, sizeof(name), registry->self.slot, registry->self.generation);
	unlinkat(registry->place.dir.fd, name, 0);
	fd = vb_dir_open_file(registry->place.dir.fd, name, true);
	ret = fd < 0 ? fd : vb_file_keep(&registry->segment, fd);
	if (ret)
		vb_error("cannot make %s/%s/%s: %s", registry->root, registry->place.name, name,
			 strerror(-ret));
	return ret;
}

/* ---- places ---- */

static void close_place(struct vb_registry_place *place)
{
	if (place->file)
		munmap(place->file, sizeof(*place->file));
	vb_file_close(&place->lock);
	vb_file_close(&place->dir);
	*place = NO_PLACE;
}

/* What counts doorbells of this process may be counting in the slot of this host. */
static struct vb_slot_doorbells *own_doorbells(const struct vb_registry *registry)
{
	struct vb_registry_file *file = registry->place.file;

	return file ? &file->slot[registry->self.slot].doorbells : NULL;
}

static void leave_place(struct vb_registry *registry)
{
	vb_patch_hide(own_doorbells(registry));
	close_place(&registry->place);
}

/* A child that was forked meanwhile has the files, too, and would keep locked what is only closed. */
static void close_places(struct vb_registry_place *places, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		if (vb_file_is_open(&places[i].lock))
			flock(places[i].lock.fd, LOCK_UN);
		close_place(&places[i]);
	}
}

/* A new file is reserved whole, so that no later store can meet a full file system. */
static int map_registry(struct vb_registry_place *place)
{
	struct vb_registry_file *file;
	struct stat st;
	int ret;

	if (fstat(place->lock.fd, &st))
		return -errno;
	if (st.st_size < (off_t)sizeof(*file)) {
		ret = vb_file_reserve(place->lock.fd, 0, sizeof(*file), vb_dir_root_path());
		if (ret)
			return ret;
	}
	file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, place->lock.fd, 0);
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
		munmap(file, sizeof(*file));
		vb_error("%s/%s/registry is damaged; remove that directory", vb_dir_root_path(),
			 place->name);
		return -EUCLEAN;
	}
	place->file = file;
	return 0;
}

/* Open the own directories that there are; how many, or -errno after a log line. */
static int find_places(int root, struct vb_registry_place places[VB_DIR_NAMES])
{
	int count = 0, fd, ret;

	for (unsigned int k = 0; k < VB_DIR_NAMES; k++) {
		struct vb_registry_place *place = &places[count];

		*place = NO_PLACE;
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
	close_places(places, (unsigned int)count);
	return ret;
}

/*
 * Open and lock the registry of a directory. -ESTALE: the directory was removed meanwhile.
 * -EWOULDBLOCK: somebody has the lock; place->lock is open.
 */
static int lock_place(struct vb_registry_place *place)
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
static int compare_places(int root, const struct vb_registry_place *locked, int count)
{
	struct vb_registry_place now[VB_DIR_NAMES];
	int found = find_places(root, now), ret = 0;

	if (found < 0)
		return found;
	if (found != count)
		ret = -ESTALE;
	for (int i = 0; i < found && !ret; i++)
		if (now[i].dir.dev != locked[i].dir.dev || now[i].dir.ino != locked[i].dir.ino)
			ret = -ESTALE;
	close_places(now, (unsigned int)found);
	return ret;
}

/*
 * Of the directories, all locked: keep the one in which somebody lives, or the first, as
 * registry->place.
 */
static int choose_place(struct vb_registry *registry, int root, struct vb_registry_place *places,
			int count)
{
	int chosen = 0, ret;

	for (int i = 0; i < count; i++) {
		ret = map_registry(&places[i]);
		if (ret)
			return ret;
	}
	for (int i = 1; i < count; i++)
		if (!is_inhabited(&places[chosen]) && is_inhabited(&places[i]))
			chosen = i;
	registry->place = places[chosen];
	places[chosen] = NO_PLACE;
	count_turn(registry->place.file);
	for (int i = 0; i < count; i++) {
		if (places[i].dir.fd < 0 || is_inhabited(&places[i]))
			continue;
		vb_dir_remove_files(places[i].dir.fd);
		unlinkat(root, places[i].name, AT_REMOVEDIR);
	}
	return 0;
}

/* ---- joining and leaving ---- */

static int take_slot(struct vb_registry *registry)
{
	int ret;

	reap_locked(registry);
	ret = claim_slot(registry);
	if (ret)
		return ret;
	ret = registry_make_segment(registry);
	if (ret) {
		registry_free_slot(registry, registry->self.slot);
		vb_slot_lock_end(&registry->slot_lock);
	}
	return ret;
}

/*
 * One try, with signals blocked: 0, -EWOULDBLOCK or -ESTALE (try again), or -errno after a log
 * line.
 */
static int try_join(struct vb_registry *registry, int root, struct vb_registry_place *busy,
		    uint64_t *turns)
{
	struct vb_registry_place places[VB_DIR_NAMES];
	int count, ret = 0;

	count = find_places(root, places);
	if (count < 0)
		return count;
	if (!count) {
		ret = vb_dir_make(root);
		return ret ? ret : -ESTALE;
	}
	for (int i = 0; i < count && !ret; i++) {
		ret = lock_place(&places[i]);
		if (ret == -EWOULDBLOCK) {
			*busy = places[i]; /* by name and inode, for a message */
			*turns = read_turns(busy->lock.fd);
		}
	}
	if (!ret)
		ret = compare_places(root, places, count);
	if (!ret)
		ret = choose_place(registry, root, places, count);
	if (!ret) {
		ret = take_slot(registry);
		flock(registry->place.lock.fd, LOCK_UN);
		if (ret)
			leave_place(registry);
	}
	close_places(places, (unsigned int)count);
	return ret;
}

static int registry_join(struct vb_registry *registry, int root)
{
	struct patience left = registry_patience(JOIN_MS);
	struct vb_registry_place busy = NO_PLACE;
	uint64_t turns = 0;
	sigset_t before;
	int ret;

	for (;;) {
		vb_signal_block(&before);
		ret = try_join(registry, root, &busy, &turns);
		vb_signal_unblock(&before);
		if (ret != -EWOULDBLOCK && ret != -ESTALE)
			return ret;
		if (!registry_wait_more(&left) &&
		    !is_moving(&left, registry->root, busy.name, &busy.lock, turns))
			return -ETIMEDOUT;
	}
}

/* A forked child inherits the parent's descriptors and mapping but none of its claims. */
void vb_registry_forked(struct vb_registry *registry)
{
	pthread_mutex_init(&registry->own_lock, NULL);
	vb_patch_withdraw(own_doorbells(registry));
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

/*
 * The last to leave removes the directory. Where that does not work the next to join finds it, and
 * no harm is done.
 */
static void registry_remove_directory(struct vb_registry *registry)
{
	sigset_t before;
	int root;

	if (lock_registry(registry, LEAVE_MS, &before))
		return;
	root = reap_locked(registry) ? -1 : open(registry->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0) {
		vb_dir_remove_files(registry->place.dir.fd);
		unlinkat(root, registry->place.name, AT_REMOVEDIR);
		close(root);
	}
	unlock_registry(registry, &before);
}

bool vb_registry_is_joined(const struct vb_registry *registry)
{
	return registry->place.file && registry->self.pid == getpid();
}

void vb_registry_leave(struct vb_registry *registry)
{
	VB_NO_CANCEL;
	if (!vb_registry_is_joined(registry))
		return;
	vb_patch_withdraw(own_doorbells(registry));
	/*
	 * A program that has closed itself in may be ended for removing files: then the slot is left
	 * as it would be if the process were killed, and the next to look reaps it.
	 */
	if (!vb_fault_is_closing_in()) {
		registry_free_slot(registry, registry->self.slot);
		registry_remove_directory(registry);
	}
	/* Files and mapping stay: at exit, the background thread may still be using them. */
	registry->self.pid = 0;
}

void vb_registry_close(struct vb_registry *registry)
{
	VB_NO_CANCEL;
	vb_slot_lock_end(&registry->slot_lock);
	vb_file_close(&registry->segment);
	atomic_store_explicit(&registry->sniffed_at, &vb_registry_not_sniffed,
			      memory_order_relaxed);
	leave_place(registry);
}

/* ---- what the others ask ---- */

int vb_registry_segment(const struct vb_registry *registry, struct vb_file *file)
{
	if (registry->self.pid != getpid())
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
	char name[32];
	int fd;

	if (registry->self.pid != getpid() || !vb_file_is_open(&registry->place.dir))
		return -ESHUTDOWN;
	shown_name(name, registry->self.slot, registry->self.generation);
	unlinkat(registry->place.dir.fd, name, 0);
	fd = vb_dir_open_file(registry->place.dir.fd, name, true);
	return fd < 0 ? fd : vb_file_keep(file, fd);
}

int vb_registry_open_shown(const struct vb_slot_info *info)
{
	return vb_dir_open_file(info->dir,
				shown_name((char[32]){ 0 }, info->slot, info->generation), false);
}

const char *vb_registry_root(const struct vb_registry *registry)
{
	return registry->root;
}

int vb_registry_open_segment(const struct vb_registry *registry, uint32_t slot, uint32_t generation)
{
	VB_NO_CANCEL;
	char name[32];

	segment_name(name, sizeof(name), slot, generation);
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
	char name[32];

	segment_name(name, sizeof(name), info->slot, info->generation);
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
	       process_is_there(&registry->place, index, (uint32_t)info.pid);
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
	    lock_registry(registry, REAP_MS, &before))
		return;
	reap_locked(registry);
	unlock_registry(registry, &before);
}

int vb_registry_claim(struct vb_registry *registry, unsigned int number)
{
	VB_NO_CANCEL;
	struct vb_slot_info info;
	sigset_t before;
	int ret = 0;

	if (!vb_registry_is_joined(registry))
		return -ENODEV;
	ret = lock_registry(registry, JOIN_MS, &before);
	if (ret)
		return ret;
	if (vb_registry_claimant(registry, number, &info)) {
		reap_locked(registry);
		ret = vb_registry_claimant(registry, number, &info) ? -EBUSY : 0;
	}
	if (!ret)
		atomic_fetch_or_explicit(&registry->place.file->slot[registry->self.slot].claims,
					 1ull << number, memory_order_acq_rel);
	unlock_registry(registry, &before);
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
	/* close_place() closes and unmaps what is noted in it. */
	ret = vb_file_keep(&place->lock, fd);
	if (ret)
		return ret;
	if (lseek(place->lock.fd, 0, SEEK_END) < (off_t)sizeof(*file))
		return 0; /* it is being made */
	file = mmap(NULL, sizeof(*file), PROT_READ, MAP_SHARED, place->lock.fd, 0);
	if (file == MAP_FAILED)
		return -errno; /* a list without its processes would be wrong */
	place->file = file;
	for (uint32_t i = 0; i < VB_SLOTS && file->magic == REGISTRY_MAGIC; i++) {
		const struct vb_slot *slot = &file->slot[i];
		uint32_t pid = atomic_load_explicit(&slot->pid, memory_order_acquire);

		if (!pid || !process_is_there(place, i, pid))
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
	found = find_places(root, places);
	for (int i = 0; i < found && total >= 0; i++) {
		int count = list_place(&places[i], visit, arg);

		total = count < 0 ? count : total + count;
	}
	if (found > 0)
		close_places(places, (unsigned int)found);
	close(root);
	return found < 0 ? found : total;
}
