/* SPDX-License-Identifier: MIT */
/*
 * Files that the card keeps open while a program runs that knows nothing of them.
 *
 * The program may have closed its standard output, may close every descriptor it did not open
 * itself, may forbid large files (ulimit -f), may have lost the reader of its standard error and
 * may have timers that interrupt every call. None of that may end the program, or make the card
 * write into one of its files.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/public.h"

/* A descriptor, and which file it was when it was opened. */
struct vb_file {
	int fd; /* -1: none */
	dev_t dev;
	ino_t ino;
};

#define VB_NO_FILE ((struct vb_file){ .fd = -1 })

/*
 * fd, or a duplicate above standard input, output and error (fd is then closed), or -1 with errno.
 * A kept descriptor must not stand where a program without standard output would write.
 */
VB_PUBLIC int vb_file_above_stdio(int fd);
/* Note which file a descriptor is: 0, or -errno, and then it is closed. */
VB_PUBLIC int vb_file_keep(struct vb_file *file, int fd);
/* False where the program closed the descriptor; its number may be another file by now. */
VB_PUBLIC bool vb_file_is_open(const struct vb_file *file);
/* Closes it, unless the program has done so. */
VB_PUBLIC void vb_file_close(struct vb_file *file);

/*
 * Whether this process may make a file of so many bytes: 0, or -EFBIG after a log line. To be asked
 * before a file grows, because the kernel's own answer to a file beyond RLIMIT_FSIZE is SIGXFSZ,
 * which ends the program.
 */
int vb_file_allowed(uint64_t bytes);
/*
 * write(2), but a file that may not grow and a pipe that nobody reads are only errors (EFBIG,
 * EPIPE), and it is not a cancellation point. Allowed in signal handlers.
 */
VB_PUBLIC ssize_t vb_file_write(int fd, const void *text, size_t len);
/*
 * Reserve bytes [from, to) of a file in the folder `where`; 0, or -errno after a log line that says
 * what to do.
 */
int vb_file_reserve(int fd, uint64_t from, uint64_t to, const char *where);
/*
 * What the file now has of a mapping that began as PROT_NONE can be read and written. The rest stays as it
 * was: programs that look at all of a process's memory (valgrind) would fault at each word of it. 0, or -errno.
 */
int vb_file_uncover(void *map, uint64_t from, uint64_t to);
