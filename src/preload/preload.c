// SPDX-License-Identifier: MIT
/*
 * The preload of `verbatim run`: for programs that look at files of the card instead of asking a library.
 *
 *	/dev/accel/accelN                                  open, ioctl, close (mmap needs no help: it is a real file)
 *	/sys/class/infiniband/NAME/ports/PORT/phys_state   open, fopen, access, stat
 *
 * It is in every process below `verbatim run`, so it stays small: libverbatim is loaded only by a process that opens one of
 * these files, and everything else goes straight to the C library. No function here allocates before that.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/real.h"

#define PUBLIC       __attribute__((visibility("default")))
#define ACCEL_PREFIX "/dev/accel/accel"
#define PORT_PREFIX  "/sys/class/infiniband/"

/* --- the card --------------------------------------------------------------------------------------------------- */

struct card {
	int (*accel_open)(unsigned int number, int flags);
	int (*accel_ioctl)(int fd, unsigned long request, void *arg);
	void (*accel_close)(int fd);
	int (*phys_state)(const char *name, unsigned int port, char *text, size_t len);
};

static struct card card;
static atomic_bool accel_used; /* a descriptor of accelN may be open */

static bool load_card(void)
{
	static atomic_int state; /* 1: there, -1: not to be had */
	void *lib;

	if (!state) {
		lib = dlopen("libverbatim.so.1", RTLD_NOW | RTLD_LOCAL);
		if (lib) {
			card.accel_open =
				(__typeof__(card.accel_open))dlsym(lib, "vb_hbl_accel_open");
			card.accel_ioctl =
				(__typeof__(card.accel_ioctl))dlsym(lib, "vb_hbl_accel_ioctl");
			card.accel_close =
				(__typeof__(card.accel_close))dlsym(lib, "vb_hbl_accel_close");
			card.phys_state =
				(__typeof__(card.phys_state))dlsym(lib, "vb_hbl_phys_state");
		}
		state = card.accel_open && card.accel_ioctl && card.accel_close && card.phys_state
				? 1
				: -1;
	}
	return state > 0;
}

/* --- paths ------------------------------------------------------------------------------------------------------ */

static bool parse_number(const char *text, const char *end, unsigned int *number)
{
	unsigned int n = 0;

	if (text == end || end - text > 3)
		return false;
	for (; text < end; text++) {
		if (*text < '0' || *text > '9')
			return false;
		n = n * 10 + (unsigned int)(*text - '0');
	}
	*number = n;
	return true;
}

static bool is_accel(const char *path, unsigned int *number)
{
	size_t len = sizeof(ACCEL_PREFIX) - 1;

	return path && !strncmp(path, ACCEL_PREFIX, len) &&
	       parse_number(path + len, path + strlen(path), number);
}

/* The text of a port's file; its length, 0 where the path is none. */
static size_t port_text(const char *path, char text[64])
{
	size_t len = sizeof(PORT_PREFIX) - 1;
	const char *name, *ports, *number, *end;
	unsigned int port;
	char device[64];
	int ret;

	if (!path || strncmp(path, PORT_PREFIX, len))
		return 0;
	name = path + len;
	ports = strchr(name, '/');
	if (!ports || (size_t)(ports - name) >= sizeof(device) || strncmp(ports, "/ports/", 7))
		return 0;
	number = ports + 7;
	end = strchr(number, '/');
	if (!end || strcmp(end, "/phys_state") || !parse_number(number, end, &port) || !load_card())
		return 0;
	memcpy(device, name, (size_t)(ports - name));
	device[ports - name] = 0;
	ret = card.phys_state(device, port, text, 64);
	return ret > 0 ? (size_t)ret : 0;
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

static int open_port(const char *text, size_t len, int flags)
{
	int fd;

	if ((flags & O_ACCMODE) != O_RDONLY) {
		errno = EACCES;
		return -1;
	}
	fd = memfd_create("phys_state", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd >= 0 && (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET))) {
		REAL(close)(fd);
		errno = EIO;
		return -1;
	}
	return fd;
}

/* True where the path is one of ours: *fd is the answer, -1 with errno. */
static bool open_ours(const char *path, int flags, int *fd)
{
	unsigned int number;
	char text[64];
	size_t len;

	if (is_accel(path, &number) && load_card()) {
		*fd = card.accel_open(number, flags);
		if (*fd < 0) {
			errno = -*fd;
			*fd = -1;
		} else {
			accel_used = true;
		}
		return true;
	}
	len = port_text(path, text);
	if (!len)
		return false;
	*fd = open_port(text, len, flags);
	return true;
}

static mode_t mode_of(int flags, va_list args)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

/* A function of the open family: its parameters, among them path and flags, and how they are passed on. */
#define OPEN(name, params, ...)                       \
	PUBLIC int name params;                       \
	int name params                               \
	{                                             \
		va_list args;                         \
		mode_t mode;                          \
		int fd;                               \
                                                      \
		va_start(args, flags);                \
		mode = mode_of(flags, args);          \
		va_end(args);                         \
		if (open_ours(path, flags, &fd))      \
			return fd;                    \
		return REAL(name)(__VA_ARGS__, mode); \
	}

/* What programs built with _FORTIFY_SOURCE call: without a mode. */
#define OPEN_2(name, params, ...)                \
	PUBLIC int name params;                  \
	int name params                          \
	{                                        \
		int fd;                          \
                                                 \
		if (open_ours(path, flags, &fd)) \
			return fd;               \
		return REAL(name)(__VA_ARGS__);  \
	}

#define FOPEN(name)                                                                                \
	PUBLIC FILE *name(const char *path, const char *mode);                                     \
	FILE *name(const char *path, const char *mode)                                             \
	{                                                                                          \
		char text[64];                                                                     \
		size_t len = port_text(path, text);                                                \
		FILE *file;                                                                        \
		int fd;                                                                            \
                                                                                                   \
		if (!len)                                                                          \
			return REAL(name)(path, mode);                                             \
		fd = open_port(text, len, *mode == 'r' && !strchr(mode, '+') ? O_RDONLY : O_RDWR); \
		file = fd < 0 ? NULL : fdopen(fd, "r");                                            \
		if (!file && fd >= 0)                                                              \
			REAL(close)(fd);                                                           \
		return file;                                                                       \
	}

#undef open
#undef openat
OPEN(open, (const char *path, int flags, ...), path, flags)
OPEN(open64, (const char *path, int flags, ...), path, flags)
OPEN(openat, (int dir, const char *path, int flags, ...), dir, path, flags)
OPEN(openat64, (int dir, const char *path, int flags, ...), dir, path, flags)
OPEN_2(__open_2, (const char *path, int flags), path, flags)
OPEN_2(__open64_2, (const char *path, int flags), path, flags)
OPEN_2(__openat_2, (int dir, const char *path, int flags), dir, path, flags)
OPEN_2(__openat64_2, (int dir, const char *path, int flags), dir, path, flags)
FOPEN(fopen)
FOPEN(fopen64)

/* --- using and closing ------------------------------------------------------------------------------------------ */

PUBLIC int ioctl(int fd, unsigned long request, ...);

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (accel_used) {
		ret = card.accel_ioctl(fd, request, arg);
		if (!ret)
			return 0;
		if (ret != -ENOTTY) {
			errno = -ret;
			return -1;
		}
	}
	return REAL(ioctl)(fd, request, arg);
}

PUBLIC int close(int fd);

int close(int fd)
{
	if (accel_used && fd >= 0)
		card.accel_close(fd);
	return REAL(close)(fd);
}

/* --- asking ------------------------------------------------------------------------------------------------------ */

/* Whether a program that asks before it opens shall go on. */
static bool exists(const char *path)
{
	unsigned int number;
	char text[64];

	/* The name is asked of the card as that of a port: an accelerator exists where its device does. */
	if (is_accel(path, &number) && load_card()) {
		char device[16];

		snprintf(device, sizeof(device), "hbl_%u", number);
		return card.phys_state(device, 1, text, sizeof(text)) > 0;
	}
	return port_text(path, text) > 0;
}

/* Of a file of ours: an accelerator is for reading and writing, a port's file for reading. */
static int access_ours(const char *path, int mode)
{
	unsigned int number;

	if (!(mode & X_OK) && (!(mode & W_OK) || is_accel(path, &number)))
		return 0;
	errno = EACCES;
	return -1;
}

PUBLIC int access(const char *path, int mode);

int access(const char *path, int mode)
{
	return exists(path) ? access_ours(path, mode) : REAL(access)(path, mode);
}

PUBLIC int faccessat(int dir, const char *path, int mode, int flags);

int faccessat(int dir, const char *path, int mode, int flags)
{
	return exists(path) ? access_ours(path, mode) : REAL(faccessat)(dir, path, mode, flags);
}

static void describe(const char *path, struct stat *st)
{
	unsigned int number;

	memset(st, 0, sizeof(*st));
	st->st_mode = is_accel(path, &number) ? S_IFCHR | 0666 : S_IFREG | 0444;
	st->st_nlink = 1;
	st->st_size = is_accel(path, &number) ? 0 : 4096;
	st->st_uid = geteuid();
	st->st_gid = getegid();
}

/* On the 64-bit machines that we know the two structs are one. */
#define STAT(name, type)                                    \
	PUBLIC int name(const char *path, struct type *st); \
	int name(const char *path, struct type *st)         \
	{                                                   \
		if (!exists(path))                          \
			return REAL(name)(path, st);        \
		describe(path, (struct stat *)st);          \
		return 0;                                   \
	}

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one struct");
STAT(stat, stat)
STAT(stat64, stat64)
