// SPDX-License-Identifier: MIT
/* Owns what file.h promises about descriptors and sizes. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/public.h"
#include "base/mask.h"

int vb_file_above_stdio(int fd)
{
	VB_NO_CANCEL;
	int high, err;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	err = errno;
	vb_sys_close(fd);
	errno = err;
	return high;
}

int vb_file_keep(struct vb_file *file, int fd)
{
	struct stat st;
	int ret;

	fd = vb_file_above_stdio(fd);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		ret = -errno;
		vb_sys_close(fd);
		return ret;
	}
	*file = (struct vb_file){ fd, st.st_dev, st.st_ino };
	return 0;
}

bool vb_file_is_open(const struct vb_file *file)
{
	struct stat st;

	return file->fd >= 0 && !fstat(file->fd, &st) && st.st_dev == file->dev &&
	       st.st_ino == file->ino;
}

void vb_file_close(struct vb_file *file)
{
	VB_NO_CANCEL;

	if (vb_file_is_open(file))
		vb_sys_close(file->fd);
	*file = VB_NO_FILE;
}

int vb_file_allowed(uint64_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	    bytes <= limit.rlim_cur)
		return 0;
	vb_error("files may have %" PRIu64 " bytes (ulimit -f), and %" PRIu64
		 " bytes of shared memory are needed; raise the limit",
		 (uint64_t)limit.rlim_cur, bytes);
	return -EFBIG;
}

ssize_t vb_file_write(int fd, const void *text, size_t len)
{
	VB_NO_CANCEL;
	static const struct timespec at_once;
	sigset_t caused, pending, before;
	ssize_t ret;
	int err, sig;

	/*
	 * The signal goes to the thread that writes: it is held off, and taken back if this call
	 * caused it.
	 */
	sigpending(&pending);
	vb_signal_block(&before);
	ret = vb_sys_write(fd, text, len);
	err = errno;
	sig = ret >= 0 ? 0 : err == EFBIG ? SIGXFSZ : err == EPIPE ? SIGPIPE : 0;
	if (sig && !sigismember(&pending, sig)) {
		sigemptyset(&caused);
		sigaddset(&caused, sig);
		syscall(SYS_rt_sigtimedwait, &caused, NULL, &at_once, 8);
	}
	vb_signal_unblock(&before);
	errno = err;
	return ret;
}

int vb_file_reserve(int fd, uint64_t from, uint64_t to, const char *where)
{
	VB_NO_CANCEL;
	sigset_t before;
	int ret;

	ret = vb_file_allowed(to);
	if (ret)
		return ret;
	/*
	 * A signal makes the call give back all that it has reserved: a fast timer would let none
	 * of them succeed.
	 */
	vb_signal_block(&before);
	do {
		ret = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
	} while (ret == EINTR);
	vb_signal_unblock(&before);
	if (ret == ENOSPC)
		vb_error(
			"%s is full: %s; free some of it, or give it more (containers: --shm-size=256m)",
			where, strerror(ret));
	else if (ret)
		vb_error("%s: %" PRIu64 " bytes cannot be reserved (fallocate): %s", where,
			 to - from, strerror(ret));
	return -ret;
}

int vb_file_uncover(void *map, uint64_t from, uint64_t to)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	from &= ~(page - 1);
	to = (to + page - 1) & ~(page - 1);
	return mprotect((char *)map + from, to - from, PROT_READ | PROT_WRITE) ? -errno : 0;
}
