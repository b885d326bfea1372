// SPDX-License-Identifier: MIT
/*
 * Owns the registry file and the directory around it.
 *
 *	/dev/shm/verbatim-UID-NETNS-PIDNS-v1/    mode 0700
 *	    registry            struct registry_file: 256 slots, reserved when the file is made
 *	    SLOT-GENERATION     segment of the process in that slot
 *
 * Slots are written only under the file lock; pid and generation are atomic because they are read without it. The
 * directory goes with its last process, so a joiner checks after locking that its file is still linked.
 */
#include "base/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"

#define REGISTRY_MAGIC 0x3176676572626576ull /* "vebregv1" */

struct slot {
	_Atomic uint32_t pid;        /* 0: empty */
	_Atomic uint32_t generation; /* counts the owners of this slot; never 0 once used */
	uint64_t start_time;     /* of the process, in ticks since boot: tells a reused pid apart */
	_Atomic uint64_t claims; /* devices of which the process is the only user, a bit each */
	uint64_t reserved[5];
};

struct registry_file {
	uint64_t magic;
	_Atomic uint32_t next; /* where the search for an empty slot starts: reuse is put off */
	uint32_t reserved0;
	_Atomic uint64_t
		listeners[VB_SLOTS / 64]; /* a bit per slot; set and cleared by its owner */
	uint64_t reserved1[2];
	struct slot slot[VB_SLOTS];
};

_Static_assert(sizeof(struct slot) == 64 && offsetof(struct registry_file, slot) == 64, "layout");

static struct {
	int dir_fd, fd;
	struct registry_file *file;
	struct vb_slot_info self;
} registry = { .dir_fd = -1, .fd = -1 };

static int namespace_inode(const char *path, uint64_t *inode)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	*inode = st.st_ino;
	return 0;
}

static int directory_path(char *path, size_t len)
{
	uint64_t net, pid;

	if (namespace_inode("/proc/self/ns/net", &net) ||
	    namespace_inode("/proc/self/ns/pid", &pid)) {
		vb_error("/proc/self/ns is not readable; is /proc mounted?");
		return -ENOSYS;
	}
	snprintf(path, len, "/dev/shm/verbatim-%u-%" PRIu64 "-%" PRIu64 "-v1",
		 (unsigned int)geteuid(), net, pid);
	return 0;
}

/* State, thread count and start time from /proc/PID/stat; false where there is no such process. */
static bool process_stat(pid_t pid, char *state, long *threads, uint64_t *start)
{
	char path[32], text[1024], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	p = strrchr(text, ')'); /* the name may contain anything, even parentheses */
	return p &&
	       sscanf(p + 1,
		      " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %" SCNu64,
		      state, threads, start) == 3;
}

static bool process_runs(pid_t pid, uint64_t start_time)
{
	uint64_t start;
	long threads;
	char state;

	if (!process_stat(pid, &state, &threads, &start) || start != start_time)
		return false;
	/* A leader that called pthread_exit shows as a zombie while its threads go on. */
	return !((state == 'Z' || state == 'X') && threads <= 1);
}

static void segment_name(char *name, size_t len, uint32_t slot, uint32_t generation)
{
	snprintf(name, len, "%u-%u", slot, generation);
}

/*
 * A descriptor that is kept must not stand where a program without standard output or error would write: its text
 * would go into the registry. fd, or one above the three, or -1 with errno.
 */
static int above_stdio(int fd)
{
	int high, err;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	err = errno;
	close(fd);
	errno = err;
	return high;
}

static int make_directory(void)
{
	char path[96];
	int ret = directory_path(path, sizeof(path));

	if (ret || !mkdir(path, 0700) || errno == EEXIST)
		return ret;
	ret = -errno;
	vb_error("cannot create %s: %s; Verbatim needs a /dev/shm that you can write to", path,
		 strerror(-ret));
	return ret;
}

static int open_directory(void)
{
	char path[96];
	struct stat st;
	int fd, ret;

	ret = directory_path(path, sizeof(path));
	if (ret)
		return ret;
	fd = above_stdio(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 077)) {
		vb_error("%s belongs to somebody else or is open to others; remove it", path);
		close(fd);
		return -EPERM;
	}
	return fd;
}

/* A new file is reserved whole, so that no later store can meet a full file system. */
static int prepare_file(int fd)
{
	struct registry_file *file;
	struct stat st;
	int ret;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size < (off_t)sizeof(struct registry_file)) {
		ret = posix_fallocate(fd, 0, sizeof(struct registry_file));
		if (ret) {
			vb_error(
				"no room for the registry in /dev/shm: %s; free some of it, or give it more (containers: --shm-size=256m)",
				strerror(ret));
			return -ret;
		}
	}
	file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		return -errno;
	if (!file->magic) {
		file->magic = REGISTRY_MAGIC;
		/* Slots become QP numbers: users who never meet should not have the same ones either. */
		file->next = (uint32_t)geteuid() * 2654435761u >> 24;
	}
	if (file->magic != REGISTRY_MAGIC) {
		munmap(file, sizeof(*file));
		vb_error("the registry in /dev/shm/verbatim-* is damaged; remove that directory");
		return -EUCLEAN;
	}
	registry.file = file;
	return 0;
}

static void close_files(void)
{
	if (registry.file)
		munmap(registry.file, sizeof(*registry.file));
	if (registry.fd >= 0)
		close(registry.fd);
	if (registry.dir_fd >= 0)
		close(registry.dir_fd);
	registry.file = NULL;
	registry.fd = registry.dir_fd = -1;
}

/* Open and lock the registry; the last process to leave may have removed it in between, hence the loop. */
static int open_locked(void)
{
	struct stat st;
	int ret;

	for (int tries = 0; tries < 100; tries++) {
		ret = make_directory();
		if (ret)
			return ret;
		registry.dir_fd = open_directory();
		if (registry.dir_fd == -ENOENT)
			continue;
		if (registry.dir_fd < 0)
			return registry.dir_fd;
		registry.fd = above_stdio(openat(registry.dir_fd, "registry",
						 O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
		if (registry.fd >= 0 && !flock(registry.fd, LOCK_EX) && !fstat(registry.fd, &st) &&
		    st.st_nlink) {
			ret = prepare_file(registry.fd);
			if (ret)
				close_files();
			return ret;
		}
		ret = registry.fd < 0 ? -errno : 0;
		close_files();
		if (ret && ret != -ENOENT) {
			vb_error("cannot open the registry in /dev/shm: %s", strerror(-ret));
			return ret;
		}
	}
	return -EAGAIN;
}

static void set_listener(uint32_t index, bool listens)
{
	_Atomic uint64_t *word = &registry.file->listeners[index / 64];

	if (listens)
		atomic_fetch_or(word, 1ull << index % 64);
	else
		atomic_fetch_and(word, ~(1ull << index % 64));
}

/* With the file lock held. */
static void free_slot(uint32_t index)
{
	struct slot *slot = &registry.file->slot[index];
	char name[32];

	segment_name(name, sizeof(name), index, slot->generation);
	unlinkat(registry.dir_fd, name, 0);
	atomic_store_explicit(&slot->claims, 0, memory_order_relaxed);
	set_listener(index, false);
	atomic_store_explicit(&slot->pid, 0, memory_order_release);
}

static unsigned int reap_locked(void)
{
	unsigned int used = 0;

	for (uint32_t i = 0; i < VB_SLOTS; i++) {
		struct slot *slot = &registry.file->slot[i];
		uint32_t pid = atomic_load_explicit(&slot->pid, memory_order_acquire);

		if (pid && !process_runs((pid_t)pid, slot->start_time))
			free_slot(i);
		else if (pid)
			used++;
	}
	return used;
}

static int claim_slot(void)
{
	uint64_t start = 0;
	long threads;
	char state;

	if (!process_stat(getpid(), &state, &threads, &start))
		return -ENOSYS;
	for (uint32_t n = 0; n < VB_SLOTS; n++) {
		uint32_t index = (registry.file->next + n) % VB_SLOTS;
		struct slot *slot = &registry.file->slot[index];

		if (atomic_load_explicit(&slot->pid, memory_order_acquire))
			continue;
		registry.file->next = (index + 1) % VB_SLOTS;
		if (!++slot->generation)
			slot->generation = 1;
		slot->start_time = start;
		registry.self = (struct vb_slot_info){ index, slot->generation, getpid() };
		atomic_store_explicit(&slot->pid, (uint32_t)getpid(), memory_order_release);
		return 0;
	}
	vb_error("all %d process slots of this user are taken; `verbatim ps` lists who has them",
		 VB_SLOTS);
	return -EAGAIN;
}

int vb_registry_join(struct vb_slot_info *self)
{
	int ret;

	/* A forked child inherits the parent's descriptors and mapping but none of its claims. */
	close_files();
	ret = open_locked();
	if (ret)
		return ret;
	reap_locked();
	ret = claim_slot();
	flock(registry.fd, LOCK_UN);
	if (ret) {
		close_files();
		return ret;
	}
	*self = registry.self;
	return 0;
}

void vb_registry_leave(void)
{
	char path[96];

	if (!registry.file || registry.self.pid != getpid())
		return;
	flock(registry.fd, LOCK_EX);
	free_slot(registry.self.slot);
	if (!reap_locked() && !directory_path(path, sizeof(path))) {
		unlinkat(registry.dir_fd, "registry", 0);
		rmdir(path);
	}
	/* The mapping stays: at exit, the background thread may still be looking at it. */
	flock(registry.fd, LOCK_UN);
	registry.self.pid = 0;
}

int vb_registry_create_segment(void)
{
	char name[32];
	int fd;

	segment_name(name, sizeof(name), registry.self.slot, registry.self.generation);
	unlinkat(registry.dir_fd, name, 0);
	fd = above_stdio(openat(registry.dir_fd, name,
				O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	return fd < 0 ? -errno : fd;
}

int vb_registry_open_segment(uint32_t slot, uint32_t generation)
{
	char name[32];
	int fd;

	segment_name(name, sizeof(name), slot, generation);
	fd = above_stdio(openat(registry.dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
	return fd < 0 ? -errno : fd;
}

bool vb_registry_lookup(uint32_t index, struct vb_slot_info *info)
{
	struct slot *slot;
	uint32_t pid;

	if (!registry.file || index >= VB_SLOTS)
		return false;
	slot = &registry.file->slot[index];
	pid = atomic_load_explicit(&slot->pid, memory_order_acquire);
	if (!pid)
		return false;
	*info = (struct vb_slot_info){ index, slot->generation, (pid_t)pid };
	return true;
}

bool vb_registry_alive(uint32_t index, uint32_t generation)
{
	struct vb_slot_info info;

	return vb_registry_lookup(index, &info) && info.generation == generation &&
	       process_runs(info.pid, registry.file->slot[index].start_time);
}

uint32_t vb_registry_generation(uint32_t index)
{
	struct slot *slot = &registry.file->slot[index];

	return atomic_load_explicit(&slot->pid, memory_order_acquire) ? slot->generation : 0;
}

void vb_registry_reap(void)
{
	if (!registry.file || registry.self.pid != getpid())
		return;
	flock(registry.fd, LOCK_EX);
	reap_locked();
	flock(registry.fd, LOCK_UN);
}

int vb_registry_claim(unsigned int number)
{
	struct vb_slot_info info;
	int ret = 0;

	if (!registry.file || registry.self.pid != getpid())
		return -ENODEV;
	flock(registry.fd, LOCK_EX);
	if (vb_registry_claimant(number, &info)) {
		reap_locked();
		ret = vb_registry_claimant(number, &info) ? -EBUSY : 0;
	}
	if (!ret)
		atomic_fetch_or(&registry.file->slot[registry.self.slot].claims, 1ull << number);
	flock(registry.fd, LOCK_UN);
	return ret;
}

void vb_registry_release(unsigned int number)
{
	if (registry.file && registry.self.pid == getpid())
		atomic_fetch_and(&registry.file->slot[registry.self.slot].claims,
				 ~(1ull << number));
}

bool vb_registry_claimant(unsigned int number, struct vb_slot_info *info)
{
	for (uint32_t i = 0; i < VB_SLOTS; i++)
		if ((atomic_load_explicit(&registry.file->slot[i].claims, memory_order_acquire) >>
			     number &
		     1) &&
		    vb_registry_lookup(i, info))
			return true;
	return false;
}

void vb_registry_listen(bool listen)
{
	if (registry.file && registry.self.pid == getpid())
		set_listener(registry.self.slot, listen);
}

uint64_t vb_registry_listeners(uint32_t word)
{
	return atomic_load_explicit(&registry.file->listeners[word], memory_order_acquire);
}

uint64_t vb_registry_space(void)
{
	struct statvfs vfs;

	return fstatvfs(registry.fd, &vfs) ? 0 : (uint64_t)vfs.f_bavail * vfs.f_frsize;
}

int vb_registry_list(void (*visit)(void *arg, const struct vb_slot_info *info), void *arg)
{
	const struct registry_file *file;
	int dir_fd, fd, count = 0;

	dir_fd = open_directory();
	if (dir_fd < 0)
		return dir_fd == -ENOENT ? 0 : dir_fd;
	fd = openat(dir_fd, "registry", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	close(dir_fd);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	file = lseek(fd, 0, SEEK_END) < (off_t)sizeof(*file)
		       ? MAP_FAILED
		       : mmap(NULL, sizeof(*file), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (file == MAP_FAILED)
		return -errno;
	for (uint32_t i = 0; i < VB_SLOTS; i++) {
		const struct slot *slot = &file->slot[i];
		uint32_t pid = slot->pid;

		if (!pid || !process_runs((pid_t)pid, slot->start_time))
			continue;
		visit(arg, &(struct vb_slot_info){ i, slot->generation, (pid_t)pid });
		count++;
	}
	munmap((void *)file, sizeof(*file));
	return count;
}
