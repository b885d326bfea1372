// SPDX-License-Identifier: MIT
/*
 * Owns the names and modes of registry directories, and the removal of those whose namespace is
 * gone.
 *
 * What lies in /dev/shm under our name may be anybody's and may change between two calls. Every
 * object is therefore opened first (O_PATH: without effect on what it is), checked by its
 * descriptor, and used by its descriptor.
 */
#include "meet/registry_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "meet/slot_lock.h"

#define VERSION "v5"

const char *vb_dir_root_path(void)
{
	const char *dir = vb_getenv("VERBATIM_SHM_DIR");

	return dir && *dir ? dir : "/dev/shm";
}

int vb_dir_open_root(void)
{
	const char *path = vb_dir_root_path();
	int fd = -1, ret = -EINVAL;

	/* A relative path would be another place for each program. */
	if (path[0] == '/') {
		fd = vb_file_above_stdio(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
		ret = -errno;
	}
	if (fd >= 0)
		return fd;
	if (vb_getenv("VERBATIM_SHM_DIR") && path[0])
		vb_error("VERBATIM_SHM_DIR=%s: %s", path,
			 ret == -EINVAL ? "the path must begin with /" : strerror(-ret));
	else
		vb_error("cannot open %s: %s; Verbatim needs a /dev/shm that you can write to",
			 path, strerror(-ret));
	return ret;
}

static int namespace_inode(const char *path, uint64_t *inode)
{
	struct stat st;

	if (stat(path, &st)) {
		int ret = -errno;

		vb_error("cannot read %s: %s; is /proc mounted?", path, strerror(-ret));
		return ret;
	}
	*inode = st.st_ino;
	return 0;
}

int vb_dir_name(char name[VB_DIR_NAME_MAX], unsigned int k)
{
	uint64_t net = 0, pid = 0;
	int n, ret;

	ret = namespace_inode("/proc/thread-self/ns/net", &net);
	if (!ret)
		ret = namespace_inode("/proc/thread-self/ns/pid", &pid);
	if (ret)
		return ret;
	n = snprintf(name, VB_DIR_NAME_MAX, "verbatim-%u-%" PRIu64 "-%" PRIu64 "-" VERSION,
		     (unsigned int)geteuid(), net, pid);
	if (k)
		snprintf(name + n, VB_DIR_NAME_MAX - (size_t)n, "-%u", k);
	return 0;
}

/*
 * By a descriptor that was opened with O_PATH: neither a symbolic link nor missing rights stand in
 * the way.
 */
static int registry_dir_set_mode(int fd, mode_t mode)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	return chmod(path, mode) ? -errno : 0;
}

int vb_dir_open(int root, const char *name)
{
	struct stat st;
	int path, fd, ret = 0;

	path = openat(root, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (path < 0)
		return -errno;
	if (fstat(path, &st))
		ret = -errno;
	else if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		ret = -ENOTDIR;
	else if ((st.st_mode & 0777) != 0700)
		ret = registry_dir_set_mode(path, 0700);
	if (!ret && (st.st_mode & 077))
		vb_warn("%s/%s was open to other users; now it is not", vb_dir_root_path(), name);
	if (!ret) {
		fd = vb_file_above_stdio(openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		ret = fd < 0 ? -errno : fd;
	}
	close(path);
	return ret;
}

int vb_dir_make(int root)
{
	char name[VB_DIR_NAME_MAX];
	struct stat st;
	int ret;

	for (unsigned int k = 0; k < VB_DIR_NAMES; k++) {
		ret = vb_dir_name(name, k);
		if (ret)
			return ret;
		if (!mkdirat(root, name, 0700))
			return 0;
		ret = -errno;
		if (ret != -EEXIST) {
			vb_error(
				"cannot create %s/%s: %s; Verbatim needs a %s that you can write to",
				vb_dir_root_path(), name, strerror(-ret), vb_dir_root_path());
			return ret;
		}
		if (fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) ||
		    (S_ISDIR(st.st_mode) && st.st_uid == geteuid()))
			return 0; /* one of our processes was faster, or it is gone again: look anew */
		vb_info("%s/%s belongs to user %u; using the next name", vb_dir_root_path(), name,
			(unsigned int)st.st_uid);
	}
	vb_error(
		"%s/%s and all names before it belong to others (user %u): have them removed, or set VERBATIM_SHM_DIR to a directory of yours, the same for all programs that are to meet",
		vb_dir_root_path(), name, (unsigned int)st.st_uid);
	return -EPERM;
}

/* Opens what has this name if it is an own file; -EPERM if it is something else. */
static int open_own_file(int dir, const char *name)
{
	struct stat st;
	int path, fd, ret = 0;

	path = vb_sys_openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
	if (path < 0)
		return -errno;
	if (fstat(path, &st))
		ret = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		ret = -EPERM;
	else if ((st.st_mode & 0777) != 0600)
		ret = registry_dir_set_mode(path, 0600);
	if (!ret) {
		char link[32];

		snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", path);
		fd = vb_file_above_stdio(vb_sys_open(link, O_RDWR | O_CLOEXEC));
		ret = fd < 0 ? -errno : fd;
	}
	vb_sys_close(path);
	return ret;
}

int vb_dir_open_file(int dir, const char *name, bool create)
{
	int fd;

	for (int tries = 0; tries < 100; tries++) {
		fd = open_own_file(dir, name);
		if (fd == -EPERM && create && !unlinkat(dir, name, 0))
			continue;
		if (fd != -ENOENT || !create)
			return fd;
		fd = vb_file_above_stdio(vb_sys_openat(
			dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
		if (fd < 0 && errno == EEXIST)
			continue;
		if (fd >= 0 && fchmod(fd, 0600)) {
			int ret = -errno;

			vb_sys_close(fd);
			return ret;
		}
		return fd < 0 ? -errno : fd;
	}
	return -EAGAIN;
}

/* ---- directories of other namespaces ---- */

pid_t vb_dir_lock_holder(const struct vb_file *file)
{
	FILE *locks = fopen("/proc/locks", "re");
	unsigned int major, minor;
	unsigned long long ino;
	pid_t holder = 0;
	char line[256];
	int pid;

	while (locks && !holder && fgets(line, sizeof(line), locks))
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major, &minor, &ino) ==
			    4 &&
		    makedev(major, minor) == file->dev && ino == file->ino)
			holder = pid;
	if (locks)
		fclose(locks);
	return holder;
}

/* Call visit for each file of a directory until it returns false; false then. */
static bool each_file(int dir, bool (*visit)(int dir, const char *name))
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	bool all = list;

	if (!list && copy >= 0)
		close(copy);
	while (all && (entry = readdir(list)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			all = visit(dir, entry->d_name);
	if (list)
		closedir(list);
	return all;
}

bool vb_dir_has_groups(int dir)
{
	struct stat st;

	return !fstatat(dir, VB_DIR_GROUPS, &st, AT_SYMLINK_NOFOLLOW) || errno != ENOENT;
}

/*
 * The registry is removed last: without it a new process would make its own beside what is being
 * removed.
 */
static bool remove_file(int dir, const char *name)
{
	return !strcmp(name, "registry") || !strcmp(name, VB_DIR_GROUPS) || !unlinkat(dir, name, 0);
}

bool vb_dir_remove_files(int dir)
{
	return each_file(dir, remove_file) && !vb_dir_has_groups(dir) &&
	       !unlinkat(dir, "registry", 0);
}

/*
 * While its registry is locked nobody joins. A process that waits for the lock sees then that the
 * file is gone.
 */
static bool empty_directory(int dir, int lock)
{
	struct stat st;

	return !flock(lock, LOCK_EX | LOCK_NB) && !fstat(lock, &st) && st.st_nlink &&
	       vb_slot_lock_any(lock) == VB_SLOT_FREE && vb_dir_remove_files(dir);
}

static void registry_dir_sweep(int root, const char *name)
{
	int dir = vb_dir_open(root, name), lock;

	if (dir < 0)
		return;
	lock = vb_dir_open_file(dir, "registry", false);
	if ((lock == -ENOENT || (lock >= 0 && empty_directory(dir, lock))) &&
	    !unlinkat(root, name, AT_REMOVEDIR))
		vb_info("removed %s/%s, which nobody used any more", vb_dir_root_path(), name);
	if (lock >= 0) {
		flock(lock, LOCK_UN); /* or a child that was forked meanwhile keeps it locked */
		close(lock);
	}
	close(dir);
}

void vb_dir_sweep(int root)
{
	char own[VB_DIR_NAME_MAX], mine[32];
	struct dirent *entry;
	DIR *list;
	int copy;

	copy = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list = copy < 0 ? NULL : fdopendir(copy);
	if (!list && copy >= 0)
		close(copy);
	if (!list || vb_dir_name(own, 0))
		goto close_list;
	snprintf(mine, sizeof(mine), "verbatim-%u-", (unsigned int)geteuid());
	while ((entry = readdir(list))) {
		const char *name = entry->d_name;
		unsigned int uid;
		int end = 0;

		if (!strncmp(name, mine, strlen(mine)) && strncmp(name, own, strlen(own)) &&
		    sscanf(name, "verbatim-%u-%*u-%*u-" VERSION "%n", &uid, &end) == 1 && end &&
		    (!name[end] || name[end] == '-'))
			registry_dir_sweep(root, name);
	}
close_list:
	if (list)
		closedir(list);
}
