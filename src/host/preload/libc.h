/* SPDX-License-Identifier: MIT */
/*
 * libc's own functions, for those that stand in front of them.
 *
 * All are found when the preload is loaded: some of them may be called in signal handlers, where
 * dlsym() may not. A constructor of another library may come before ours; its calls find what they
 * need themselves.
 */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

/*
 * What programs built with _FORTIFY_SOURCE call, and those from before glibc 2.33; no header
 * declares them.
 */
PUBLIC int __open_2(const char *path, int flags);
PUBLIC int __open64_2(const char *path, int flags);
PUBLIC int __openat_2(int dir, const char *path, int flags);
PUBLIC int __openat64_2(int dir, const char *path, int flags);
PUBLIC char *__realpath_chk(const char *path, char *resolved, size_t size);
PUBLIC ssize_t __readlink_chk(const char *path, char *text, size_t len, size_t size);
PUBLIC ssize_t __readlinkat_chk(int dir, const char *path, char *text, size_t len, size_t size);
PUBLIC char *__getcwd_chk(char *text, size_t len, size_t size);
PUBLIC int __xstat(int version, const char *path, struct stat *st);
PUBLIC int __xstat64(int version, const char *path, struct stat64 *st);
PUBLIC int __lxstat(int version, const char *path, struct stat *st);
PUBLIC int __lxstat64(int version, const char *path, struct stat64 *st);
PUBLIC int __fxstat(int version, int fd, struct stat *st);
PUBLIC int __fxstat64(int version, int fd, struct stat64 *st);
PUBLIC int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
PUBLIC int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);

/* clang-format off */
#define LIBC_FUNCTIONS(F) \
	F(access) F(canonicalize_file_name) F(chdir) F(close) F(eaccess) F(euidaccess) F(faccessat) F(fopen) F(fopen64) \
	F(fstat) F(fstat64) F(fstatat) F(fstatat64) F(__getcwd_chk) F(get_current_dir_name) F(getcwd) F(getxattr) F(glob) \
	F(glob64) F(ioctl) F(lgetxattr) F(listxattr) F(llistxattr) F(lstat) F(lstat64) F(open) F(__open_2) F(open64) \
	F(__open64_2) F(openat) F(__openat_2) F(openat64) F(__openat64_2) F(opendir) F(readdir) F(readdir64) F(readlink) \
	F(__readlink_chk) F(readlinkat) F(__readlinkat_chk) F(realpath) F(__realpath_chk) F(scandir) F(scandir64) F(stat) \
	F(stat64) F(statx) F(__xstat) F(__xstat64) F(__lxstat) F(__lxstat64) F(__fxstat) F(__fxstat64) F(__fxstatat) \
	F(__fxstatat64)
/* clang-format on */

enum libc_function {
#define LIBC_NUMBER(name) LIBC_##name,
	LIBC_FUNCTIONS(LIBC_NUMBER)
#undef LIBC_NUMBER
		LIBC_COUNT
};

extern _Atomic(void *) libc_found[LIBC_COUNT];

void *libc_find(enum libc_function function);

/* Relaxed: what is behind the address was there before the preload. */
static inline void *libc_function(enum libc_function function)
{
	void *found = atomic_load_explicit(&libc_found[function], memory_order_relaxed);

	return found ? found : libc_find(function);
}

#define LIBC(name) ((__typeof__(&(name)))libc_function(LIBC_##name))
