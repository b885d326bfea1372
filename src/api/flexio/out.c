// SPDX-License-Identifier: MIT
/*
 * Owns text on its way to a file of the program: stream.c fills it in and writes it, under the lock
 * of the stream's output.
 *
 * A pipe, a socket or a terminal that nothing reads blocks who writes to it, for ever and with the
 * lock of the FILE. So such a file is asked first, and gets no more at a time than it takes without
 * blocking, behind what the program itself has printed. Others may write to it meanwhile, other
 * streams too: the write itself does not wait, where the kernel can do that. Nor does anything wait
 * for the lock of the FILE, which a thread of the program holds as long as it is blocked there.
 *
 * Nor is a reader that has gone a reason for SIGPIPE, which would end the program: lent calls and
 * exit() write in its own threads.
 *
 * Files on disk are written as they are: they never block.
 */
#include "api/flexio/process.h"

#include <poll.h>
#include <stdio_ext.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "api/flexio/stream.h"

/*
 * What a pipe takes whole when poll() says that it takes something; a terminal is only sure to have
 * room for 256 characters.
 */
enum { PIPE_CHUNK = 4096, TERMINAL_CHUNK = 256 };
enum { LOCKED_NS = 1000000 }; /* between two looks at a FILE that a thread has locked */

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
		out->socket = S_ISSOCK(st.st_mode);
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
	struct vb_time *time = vb_time_card();
	uint64_t until = ns ? vb_time_now(time) + ns : 0;

	/* An error or a reader that has gone is for the write to tell. */
	return vb_poll_until(time, &pfd, 1, until, NULL) > 0;
}

struct pipe_signal {
	sigset_t before;
	bool pending; /* one that is the program's */
};

static void pipe_signal_hold(struct pipe_signal *p, const sigset_t *set)
{
	sigset_t pending;

	pthread_sigmask(SIG_BLOCK, set, &p->before);
	p->pending = sigismember(&p->before, SIGPIPE) && !sigpending(&pending) &&
		     sigismember(&pending, SIGPIPE);
}

/* failed: a write may have raised one. Leaves errno alone. */
static void pipe_signal_release(struct pipe_signal *p, const sigset_t *set, bool failed)
{
	int saved = errno;

	if (failed && !p->pending)
		sigtimedwait(set, NULL, &(struct timespec){ 0 });
	pthread_sigmask(SIG_SETMASK, &p->before, NULL);
	errno = saved;
}

/* So many bytes were written; -1: errno, EAGAIN where it would block. */
static ssize_t write_now(const struct out *out, size_t len)
{
	struct iovec iov = { (void *)out->at, len };
	int fd = fileno(out->file);
	ssize_t n;

	if (out->socket)
		return send(fd, out->at, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	n = pwritev2(fd, &iov, 1, -1, RWF_NOWAIT);
	/* Not by this kernel, or not this kind of file. */
	if (n < 0 && (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS))
		n = write(fd, out->at, len);
	return n;
}

/* The FILE is locked. The same, behind what the program has printed, which is not more than a buffer. */
static ssize_t write_behind(const struct out *out, size_t len)
{
	if (!__fpending(out->file))
		return write_now(out, len);
	if (fflush(out->file))
		return -1;
	errno = EAGAIN;
	return 0;
}

static ssize_t write_some(const struct out *out)
{
	struct pipe_signal signal;
	sigset_t set;
	ssize_t n;

	if (!vb_out_wait(out, 0)) {
		errno = EAGAIN;
		return -1;
	}
	if (ftrylockfile(out->file)) {
		vb_pause_ns(LOCKED_NS);
		errno = EAGAIN;
		return -1;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pipe_signal_hold(&signal, &set);
	n = write_behind(out, out->left < out->chunk ? out->left : out->chunk);
	pipe_signal_release(&signal, &set, n < 0 && errno == EPIPE);
	funlockfile(out->file);
	return n;
}

static ssize_t write_whole(const struct out *out)
{
	return fwrite(out->at, 1, out->left, out->file) == out->left && !fflush(out->file)
		       ? (ssize_t)out->left
		       : -1;
}

bool vb_out_write(struct out *out, int *err)
{
	*err = 0;
	while (out->left) {
		ssize_t n = out->chunk ? write_some(out) : write_whole(out);

		if (n < 0 && (errno == EAGAIN || errno == EINTR) && out->chunk)
			return false;
		if (n < 0) {
			*err = errno;
			out->left = 0;
			break;
		}
		out->at += n;
		out->left -= (size_t)n;
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
