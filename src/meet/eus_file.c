// SPDX-License-Identifier: MIT
/*
 * Owns the store of EU groups and partitions: one per user and host (network and PID namespace),
 * beside the registry's directory, because that one goes with its last process and this one must
 * not. It is gone after a reboot, as it is with hardware.
 *
 *	/dev/shm/verbatim-UID-NETNS-PIDNS-v4-eus/      mode 0700; -eus-1 where others took the name
 *		lock         locked (flock) while the store is read or changed
 *		store        the text of eus.c; replaced as a whole by rename(2); none: there is nothing
 *		use-mlx5_0   record locks (fcntl) of the programs that use the adapter's accelerator:
 *		             byte ID: threads in that group; bytes FIRST + pid * STRIDE and on, as many
 *		             as the program has device processes
 *
 * The kernel drops both kinds of lock with their process, however it ends. Record locks belong to
 * the process, so that a forked child does not keep them, and the kernel says whose they are.
 *
 * The directory is removed by whoever closes it and finds no store and no user. Everybody therefore
 * looks, after locking, whether the lock file still has a name.
 */
#include "meet/eus.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/time.h"
#include "base/file.h"
#include "base/log.h"
#include "meet/registry_dir.h"

/* LOCKS_MAX: more than there can be programs. */
enum { LOCK_MS = 5000, USERS_FIRST = 1 << 20, USERS_STRIDE = 1 << 16, LOCKS_MAX = 4096 };

/* ---- the directory ---- */

static int directory_name(char name[VB_DIR_NAME_MAX], unsigned int k)
{
	int ret = vb_dir_name(name, 0);
	size_t len = ret ? 0 : strlen(name);

	if (!ret)
		snprintf(name + len, VB_DIR_NAME_MAX - len, k ? "-eus-%u" : "-eus", k);
	return ret;
}

/*
 * The first that is ours; with make, one under the first name that nobody has. -ENOENT: there is
 * none, or it was removed before it could be opened.
 */
static int open_directory(int root, bool make, char name[VB_DIR_NAME_MAX])
{
	int fd, ret;

	for (unsigned int k = 0; k < VB_DIR_NAMES; k++) {
		ret = directory_name(name, k);
		if (ret)
			return ret;
		fd = vb_dir_open(root, name);
		if (fd != -ENOENT && fd != -ENOTDIR)
			return fd;
	}
	for (unsigned int k = 0; make && k < VB_DIR_NAMES; k++) {
		directory_name(name, k);
		if (mkdirat(root, name, 0700) && errno != EEXIST)
			return -errno;
		/* One that another process has made since the first look is the one to use. */
		fd = vb_dir_open(root, name);
		if (fd != -ENOTDIR)
			return fd;
	}
	return make ? -EPERM : -ENOENT;
}

/* A child that another thread forked meanwhile has the file, too, and closing would leave it locked. */
static void eus_file_unlock(int lock)
{
	if (lock < 0)
		return;
	flock(lock, LOCK_UN);
	close(lock);
}

/* 0, -EWOULDBLOCK: somebody has the lock, -ESTALE: the directory was removed meanwhile. */
static int eus_file_try_open(struct vb_eus_store *store, int root, bool change, bool make)
{
	char name[VB_DIR_NAME_MAX];
	struct stat st;
	int ret = 0;

	store->dir = open_directory(root, make, name);
	if (store->dir < 0)
		return store->dir == -ENOENT && make ? -ESTALE : store->dir;
	memcpy(store->name, name, sizeof(store->name));
	store->lock = vb_dir_open_file(store->dir, "lock", true);
	if (store->lock < 0)
		ret = store->lock == -ENOENT ? -ESTALE : store->lock;
	else if (flock(store->lock, (change ? LOCK_EX : LOCK_SH) | LOCK_NB) ||
		 fstat(store->lock, &st))
		ret = -errno;
	else if (!st.st_nlink)
		ret = -ESTALE;
	if (!ret)
		return 0;
	eus_file_unlock(store->lock);
	close(store->dir);
	store->dir = store->lock = -1;
	return ret;
}

int vb_eus_store_open(struct vb_eus_store *store, bool change, bool make)
{
	VB_NO_CANCEL;
	uint64_t end = vb_now_ns() + LOCK_MS * 1000000ull, pause = 50000;
	int root, ret;

	*store = (struct vb_eus_store){ .dir = -1, .lock = -1 };
	root = vb_dir_open_root();
	if (root < 0)
		return root;
	for (;;) {
		ret = eus_file_try_open(store, root, change, make);
		if ((ret != -EWOULDBLOCK && ret != -ESTALE && ret != -EINTR) || vb_now_ns() > end)
			break;
		vb_pause_ns(pause);
		pause = pause < 5000000 ? pause * 2 : pause;
	}
	close(root);
	if (ret == -ENOENT) {
		store->dir = store->lock = -1;
		return 0;
	}
	if (ret == -EWOULDBLOCK)
		vb_error("%s/%s/lock stays locked; is the process that has it stopped?",
			 vb_dir_root_path(), store->name);
	else if (ret)
		vb_error("cannot use the store of EU groups in %s: %s", vb_dir_root_path(),
			 strerror(-ret));
	return ret;
}

/* ---- the text ---- */

/* All of a file, as a string. */
static int eus_file_read_all(int fd, char **text, size_t *len)
{
	struct stat st;
	ssize_t n = 0;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size > VB_EU_TEXT_MAX)
		return -EFBIG;
	*text = malloc((size_t)st.st_size + 1);
	if (!*text)
		return -ENOMEM;
	for (*len = 0; *len < (size_t)st.st_size; *len += (size_t)n) {
		n = read(fd, *text + *len, (size_t)st.st_size - *len);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			break;
	}
	if (n >= 0)
		return 0;
	free(*text);
	return -errno;
}

int vb_eus_store_read(const struct vb_eus_store *store, struct vb_eus **eus)
{
	VB_NO_CANCEL;
	int fd = store->dir < 0 ? -ENOENT : vb_dir_open_file(store->dir, "store", false), ret;
	char *text = NULL, why[VB_EU_WHY];
	size_t len = 0;

	if (fd == -ENOENT) {
		*eus = vb_eus_new();
		return *eus ? 0 : -ENOMEM;
	}
	ret = fd < 0 ? fd : eus_file_read_all(fd, &text, &len);
	if (fd >= 0)
		close(fd);
	if (!ret)
		ret = vb_eus_parse(text, len, eus, why);
	else
		snprintf(why, sizeof(why), "%s", strerror(-ret));
	free(text);
	if (ret)
		vb_error("%s/%s/store is damaged and not used: %s; remove that file",
			 vb_dir_root_path(), store->name, why);
	return ret;
}

static int write_new(const struct vb_eus_store *store, const char *text, size_t len)
{
	int fd = vb_dir_open_file(store->dir, "new", true), ret = 0;

	if (fd < 0)
		return fd;
	if (ftruncate(fd, 0))
		ret = -errno;
	for (size_t at = 0; !ret && at < len;) {
		ssize_t n = vb_file_write(fd, text + at, len - at);

		if (n < 0 && errno != EINTR)
			ret = -errno;
		at += n < 0 ? 0 : (size_t)n;
	}
	if (!ret && renameat(store->dir, "new", store->dir, "store"))
		ret = -errno;
	close(fd);
	if (ret)
		unlinkat(store->dir, "new", 0);
	return ret;
}

int vb_eus_store_write(const struct vb_eus_store *store, const struct vb_eus *eus)
{
	VB_NO_CANCEL;
	size_t len = 0;
	char *text;
	int ret;

	if (vb_eus_is_empty(eus))
		return unlinkat(store->dir, "store", 0) && errno != ENOENT ? -errno : 0;
	text = vb_eus_text(eus, &len);
	ret = text ? write_new(store, text, len) : -ENOMEM;
	free(text);
	if (ret)
		vb_error("cannot write %s/%s/store: %s", vb_dir_root_path(), store->name,
			 strerror(-ret));
	return ret;
}

/* ---- who uses what ---- */

int vb_eus_users_open(const struct vb_eus_store *store, const char *card, bool make)
{
	char name[VB_NAME_MAX + 8];

	if (store->dir < 0)
		return -ENOENT;
	snprintf(name, sizeof(name), "use-%s", card);
	return vb_dir_open_file(store->dir, name, make);
}

/* Somebody else's lock in a part of the file: false where there is none. */
static bool find_lock(int fd, off_t from, off_t len, struct flock *found)
{
	*found = (struct flock){
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = len
	};
	return !fcntl(fd, F_GETLK, found) && found->l_type != F_UNLCK;
}

pid_t vb_eus_group_user(int fd, unsigned int id)
{
	struct flock found;

	return find_lock(fd, (off_t)id, 1, &found) ? found.l_pid : 0;
}

/* A look at the locks of a file: where, how many were seen, and whose the last one was. */
struct count {
	int fd;
	unsigned int looks, processes;
	pid_t one;
};

/*
 * Which lock is found first is not said, so look before and behind it as well. The file is open to all
 * programs of the user: a lock that is none of ours may be of any size, and counts as one.
 */
static void count_locks(struct count *count, off_t from, off_t to)
{
	struct flock found;

	while (from < to && count->looks < LOCKS_MAX &&
	       find_lock(count->fd, from, to - from, &found)) {
		off_t end = found.l_len ? found.l_start + found.l_len : to;

		count->looks++;
		count->one = found.l_pid;
		count->processes +=
			found.l_start >= from && found.l_len > 0 && found.l_len <= USERS_STRIDE
				? (unsigned int)found.l_len
				: 1;
		count_locks(count, from, found.l_start);
		from = end;
	}
}

unsigned int vb_eus_processes(int fd, pid_t *one)
{
	struct count count = { .fd = fd };

	count_locks(&count, USERS_FIRST, (off_t)1 << 40);
	*one = count.one;
	return count.processes;
}

static int users_lock(int fd, off_t at, off_t len, bool on)
{
	struct flock lock = {
		.l_type = on ? F_RDLCK : F_UNLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = len
	};

	return len && fcntl(fd, F_SETLK, &lock) ? -errno : 0;
}

int vb_eus_users_group(int fd, unsigned int id, bool on)
{
	return users_lock(fd, (off_t)id, 1, on);
}

int vb_eus_users_announce(int fd, unsigned int before, unsigned int n)
{
	off_t at = USERS_FIRST + (off_t)getpid() * USERS_STRIDE;

	if (n > before)
		return users_lock(fd, at, (off_t)n, true);
	return users_lock(fd, at + (off_t)n, (off_t)(before - n), false);
}

/* ---- the end ---- */

/* What cannot be looked at, for want of descriptors, may be used; what is no file of ours is not. */
static bool eus_file_is_used(int dir, const char *name)
{
	int fd = vb_dir_open_file(dir, name, false);
	struct flock found;
	bool used;

	if (fd < 0)
		return fd != -ENOENT && fd != -EPERM;
	used = find_lock(fd, 0, 0, &found);
	close(fd);
	return used;
}

/* Under the lock: true where only the lock file is left. */
static bool remove_unused(int dir)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	bool empty = list != NULL;

	if (!list && copy >= 0)
		close(copy);
	while (empty && (entry = readdir(list))) {
		const char *name = entry->d_name;

		if (!strncmp(name, "use-", 4))
			empty = !eus_file_is_used(dir, name) && !unlinkat(dir, name, 0);
		else if (!strcmp(name, "new")) /* of a writer that was killed */
			empty = !unlinkat(dir, name, 0);
		else
			empty = !strcmp(name, "lock") || !strcmp(name, ".") || !strcmp(name, "..");
	}
	if (list)
		closedir(list);
	return empty;
}

static void eus_file_remove_directory(const struct vb_eus_store *store)
{
	int root;

	if (flock(store->lock, LOCK_EX | LOCK_NB) || !remove_unused(store->dir))
		return;
	unlinkat(store->dir, "lock", 0);
	root = open(vb_dir_root_path(), O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return;
	unlinkat(root, store->name, AT_REMOVEDIR);
	close(root);
}

void vb_eus_store_close(struct vb_eus_store *store, bool tidy)
{
	VB_NO_CANCEL;

	if (tidy && store->dir >= 0)
		eus_file_remove_directory(store);
	eus_file_unlock(store->lock);
	if (store->dir >= 0)
		close(store->dir);
	store->dir = store->lock = -1;
}
