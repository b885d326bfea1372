// SPDX-License-Identifier: MIT
/*
 * Owns the files of crash data and core dumps: where they are, and that nothing that lies there
 * already makes the program wait, or makes it write into somebody else's file.
 */
#include "api/flexio/crash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/flexio/process.h"
#include "base/file.h"

#define FALLBACK "/tmp"

/* -1: errno. O_NONBLOCK: a pipe that nobody reads is an error, not a wait. */
static int dumpfile_open_path(struct dump_file *file, int flags, mode_t mode)
{
	flags |= O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	file->made = true;
	file->fd = open(file->path, flags | O_CREAT | O_EXCL, mode);
	if (file->fd < 0 && errno == EEXIST) {
		file->made = false;
		file->fd = open(file->path, flags);
		if (file->fd < 0 && errno == ENOENT) { /* a link that leads to no file yet */
			file->fd = open(file->path, flags | O_CREAT, mode);
		}
	}
	/* A program without standard error must not write it into this file. */
	file->fd = vb_file_above_stdio(file->fd);
	return file->fd;
}

/* Whether others may put files there, or links: into the folder of last resort they do. */
static bool is_shared(const struct dump_file *file)
{
	char folder[sizeof(file->path)];
	const char *name = strrchr(file->path, '/');
	struct stat st;

	snprintf(folder, sizeof(folder), "%.*s", name ? (int)(name - file->path) + 1 : 1,
		 name ? file->path : ".");
	return !stat(folder, &st) && st.st_mode & S_IWOTH;
}

/*
 * own: what is there must be our own. A file that is not for others to read must be so everywhere:
 * whoever made it can.
 */
static int dumpfile_check(const struct dump_file *file, bool own, mode_t mode)
{
	struct stat st;

	if (fstat(file->fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if ((own || !(mode & S_IROTH)) && st.st_uid != geteuid())
		return -EPERM;
	if (own && st.st_nlink != 1)
		return -EPERM;
	/* A file that was there may let others read what they must not. */
	if (st.st_uid == geteuid() && st.st_mode & 0777 & ~mode &&
	    fchmod(file->fd, st.st_mode & mode))
		return -errno;
	return ftruncate(file->fd, 0) ? -errno : 0;
}

/* 0 or -errno. */
static int dumpfile_try_open(struct dump_file *file, mode_t mode)
{
	bool own = is_shared(file);
	int err = dumpfile_open_path(file, own ? O_NOFOLLOW : 0, mode) < 0
			  ? -errno
			  : dumpfile_check(file, own, mode);

	if (err && file->fd >= 0) {
		close(file->fd);
		file->fd = -1;
	}
	return err;
}

static bool make_path(struct dump_file *file, const char *folder, const char *base, uint32_t id,
		      const char *suffix)
{
	return snprintf(file->path, sizeof(file->path), "%s%s%s.%x.%s", folder, *folder ? "/" : "",
			base, id, suffix) < (int)sizeof(file->path);
}

bool vb_dump_open(struct dump_file *file, const struct flexio_process *process, const char *outfile,
		  const char *suffix, mode_t mode)
{
	const char *base = outfile ? outfile : "flexio_dev";
	uint32_t id = vb_process_id(process);
	int err;

	file->fd = -1;
	err = make_path(file, "", base, id, suffix) ? dumpfile_try_open(file, mode) : -ENAMETOOLONG;
	if (err && base[0] != '/')
		err = make_path(file, FALLBACK, base, id, suffix) ? dumpfile_try_open(file, mode)
								  : -ENAMETOOLONG;
	if (!err)
		return true;
	fail("process %s: no file %.300s: %s", process->name, file->path,
	     err == -EINVAL  ? "it is there, and no ordinary file"
	     : err == -EPERM ? "it is somebody else's"
			     : strerror(-err));
	return false;
}

int vb_dump_write(int fd, const void *bytes, size_t len)
{
	const char *at = bytes;

	while (len) {
		ssize_t n = vb_file_write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

flexio_status vb_dump_close(struct dump_file *file, const struct flexio_process *process, int err)
{
	if (err && ftruncate(file->fd, 0))
		err = -errno;
	if (close(file->fd) && !err)
		err = -errno;
	if (!err)
		return FLEXIO_STATUS_SUCCESS;
	/* A part of it would only mislead. */
	if (file->made)
		unlink(file->path);
	return fail("process %s: %.300s could not be written: %s", process->name, file->path,
		    strerror(-err));
}
