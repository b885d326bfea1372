/* SPDX-License-Identifier: MIT */
/*
 * Threads that the program cancels (pthread_cancel) while they are in a call of ours.
 *
 * No function of the verbs is a cancellation point, but many functions of libc inside of them are:
 * open, read, write, close. A thread that ended there would take its locks and half-made objects
 * with it. VB_NO_CANCEL at the head of a block puts the cancellation off until its end. It costs
 * nothing beside a system call, and stands where one is made.
 *
 * A thread that may be cancelled anywhere (PTHREAD_CANCEL_ASYNCHRONOUS) must call nothing of ours, but
 * it may store to a doorbell: there VB_DEFER_CANCEL makes it one that may be cancelled at those
 * functions only. For all other threads that is a look at their state. Not by the state above: libc
 * 2.36 forgets the result of a thread that ends when it is given back.
 *
 * Neither helps where the cancellation of such a thread had begun before: at the end of open, read,
 * write or close libc then waits for the signal that carries it out, and in our handlers, which block
 * signals, for ever. So whatever a doorbell can reach calls the vb_sys_ functions and those of time.h, which
 * are the system calls and nothing else: patching, the events that a doorbell causes, looking for a peer, the
 * log.
 */
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/tsan.h"

static inline int vb_cancel_hold(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void vb_cancel_release(const int *before)
{
	pthread_setcancelstate(*before, NULL);
}

#define VB_NO_CANCEL                                                                     \
	__attribute__((cleanup(vb_cancel_release), unused)) const int vb_cancel_before = \
		vb_cancel_hold()

static inline int vb_cancel_defer(void)
{
	int before;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before);
	return before;
}

static inline void vb_cancel_undefer(const int *before)
{
	pthread_setcanceltype(*before, NULL);
}

#define VB_DEFER_CANCEL                                                                       \
	__attribute__((cleanup(vb_cancel_undefer), unused)) const int vb_cancel_type_before = \
		vb_cancel_defer()

static inline int vb_sys_open(const char *path, int flags)
{
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags);
}

static inline int vb_sys_openat(int dir, const char *path, int flags, mode_t mode)
{
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

/*
 * ThreadSanitizer keeps the uses of a descriptor by libc's functions until it sees it closed. Without
 * this call the next user of the number, in another thread, would race with those of the one before.
 */
#ifdef VB_TSAN
void __sanitizer_syscall_pre_impl_close(long fd);
#define vb_tsan_close(fd) __sanitizer_syscall_pre_impl_close(fd)
#else
#define vb_tsan_close(fd)
#endif

static inline int vb_sys_close(int fd)
{
	vb_tsan_close(fd);
	return (int)syscall(SYS_close, fd);
}

static inline ssize_t vb_sys_read(int fd, void *to, size_t len)
{
	return syscall(SYS_read, fd, to, len);
}

static inline ssize_t vb_sys_write(int fd, const void *from, size_t len)
{
	return syscall(SYS_write, fd, from, len);
}

static inline ssize_t vb_sys_pwrite(int fd, const void *from, size_t len, off_t at)
{
	return syscall(SYS_pwrite64, fd, from, len, at);
}
