// SPDX-License-Identifier: MIT
/*
 * Owns text on its way to a file of the program: stream.c fills it in and writes it, under the lock
 * of the stream's output.
 *
 * A pipe, a socket or a terminal that nothing reads blocks who writes to it, for ever and with the
 * lock of the FILE. So such a file is asked first, and gets no more at a time than it takes without
 * blocking. Files on disk are written as they are: they never block.
 */
#include "internal.h"

#include <poll.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * What a pipe takes whole when poll() says that it takes something; a terminal is only sure to have
 * room for 256 characters.
 */
enum { PIPE_CHUNK = 4096, TERMINAL_CHUNK = 256 };

void vb_out_init(struct out *out, FILE *file)
{
	int fd = fileno(file), saved = errno;
	struct stat st;

	*out = (struct out){ .file = file };
	if (fd >= 0 && !fstat(fd, &st)) {
		if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))
			out->chunk = PIPE_CHUNK;
		else if (S_ISCHR(st.st_mode) && isatty(fd))
			out->chunk = TERMINAL_CHUNK;
	}
	errno = saved;
}

void vb_out_fill(struct out *out, const char *text, size_t len)
{
	out->at = text;
	out->left = len;
}

bool vb_out_wait(const struct out *out, uint64_t ns)
{
	struct pollfd pfd = { .fd = fileno(out->file), .events = POLLOUT };
	struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000ULL),
			       .tv_nsec = (long)(ns % 1000000000ULL) };

	/* An error or a reader that has gone is for the write to tell. */
	return ppoll(&pfd, 1, &ts, NULL) > 0;
}

/* What the program itself has printed goes first, and is not more than a buffer. */
static bool takes(const struct out *out)
{
	if (!out->chunk)
		return true;
	if (!vb_out_wait(out, 0))
		return false;
	if (!__fpending(out->file))
		return true;
	return fflush(out->file) || vb_out_wait(out, 0);
}

bool vb_out_write(struct out *out, int *err)
{
	*err = 0;
	while (out->left) {
		size_t n = out->chunk && out->left > out->chunk ? out->chunk : out->left;

		if (!takes(out))
			return false;
		if (fwrite(out->at, 1, n, out->file) != n || fflush(out->file)) {
			*err = errno;
			out->left = 0;
			break;
		}
		out->at += n;
		out->left -= n;
	}
	return true;
}

#ifdef __GLIBC__
extern struct _IO_FILE *_IO_list_all __attribute__((weak));
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));

static bool is_listed(const FILE *file)
{
	const struct _IO_FILE *at;

	if (!&_IO_list_all || !_IO_list_lock || !_IO_list_unlock)
		return false;
	_IO_list_lock();
	for (at = _IO_list_all; at && at != file; at = at->_chain)
		;
	_IO_list_unlock();
	return at;
}
#else
static bool is_listed(const FILE *file)
{
	return false;
}
#endif

bool vb_out_is_open(const struct out *out)
{
	return out->file == stdout || out->file == stderr || is_listed(out->file);
}
