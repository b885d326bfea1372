/* SPDX-License-Identifier: MIT */
/*
 * libc's own functions, for those that stand in front of them.
 *
 * All are found when the library is loaded, malloc() first: some may be called in signal handlers,
 * where dlsym() may not, and dlsym() itself may allocate. A constructor of another library may come
 * before ours; its calls find what they need themselves.
 */
#pragma once

#include <malloc.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

/* clang-format off */
#define LIBC_FUNCTIONS(F) \
	F(malloc) F(calloc) F(free) F(realloc) F(reallocarray) F(posix_memalign) F(aligned_alloc) F(memalign) F(valloc) \
	F(pvalloc) F(malloc_usable_size) F(malloc_trim) F(mmap) F(mmap64) F(munmap) F(mremap) F(mprotect) F(madvise) F(mlock) \
	F(mlock2) F(munlock) F(mlockall) F(munlockall) F(remap_file_pages) F(shmat) F(pkey_mprotect) F(fork) F(_Fork) F(clone) F(syscall) F(setrlimit) F(setrlimit64) \
	F(prlimit) F(prlimit64) F(pthread_attr_setstack) F(pthread_attr_setstackaddr) F(daemon) F(forkpty)
/* clang-format on */

enum libc_function {
#define LIBC_NUMBER(name) LIBC_##name,
	LIBC_FUNCTIONS(LIBC_NUMBER)
#undef LIBC_NUMBER
		LIBC_COUNT
};

extern _Atomic(void *) libc_found[LIBC_COUNT];

void *libc_find(enum libc_function function);

/* Whether all of ours come first in this process, and what comes next is libc's own. */
int libc_is_next(const char **which);

/* Relaxed: what is behind the address was there before us. */
static inline void *libc_function(enum libc_function function)
{
	void *found = atomic_load_explicit(&libc_found[function], memory_order_relaxed);

	return found ? found : libc_find(function);
}

#define LIBC(name) ((__typeof__(&(name)))libc_function(LIBC_##name))

/* A system call past all that stands in front of libc's functions; never a cancellation point. */
#define RAW(...) LIBC(syscall)(__VA_ARGS__)

/* What the kernel says in a file of /proc or /sys; nothing where it cannot be read. */
void libc_read_text(const char *path, char *text, size_t size);
