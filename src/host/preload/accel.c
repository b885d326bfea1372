// SPDX-License-Identifier: MIT
/*
 * The accelerator files: open(), ioctl() and close() lead to the card. mmap() needs no help, the
 * descriptor is a real file.
 *
 * libverbatim is loaded by a process that opens one of them, and by no other.
 */
#include "accel.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "libc.h"

#define ACCEL "/dev/accel/accel"

static struct {
	int (*open)(unsigned int number, int flags);
	int (*ioctl)(int fd, unsigned long request, void *arg);
	void (*close)(int fd);
} card;

static atomic_bool used; /* a descriptor of accelN may be open */

static bool load_card(void)
{
	static atomic_int state; /* 1: there, -1: not to be had */
	void *lib;

	if (!state) {
		lib = dlopen("libverbatim.so.1", RTLD_NOW | RTLD_LOCAL);
		if (lib) {
			card.open = (__typeof__(card.open))dlsym(lib, "vb_hbl_accel_open");
			card.ioctl = (__typeof__(card.ioctl))dlsym(lib, "vb_hbl_accel_ioctl");
			card.close = (__typeof__(card.close))dlsym(lib, "vb_hbl_accel_close");
		}
		state = card.open && card.ioctl && card.close ? 1 : -1;
	}
	return state > 0;
}

static bool accel_parse(const char *name, unsigned int *number)
{
	const char *p = name + sizeof(ACCEL) - 1;
	unsigned int n = 0;

	if (strncmp(name, ACCEL, sizeof(ACCEL) - 1) || !*p || strlen(p) > 3)
		return false;
	for (; *p; p++) {
		if (*p < '0' || *p > '9')
			return false;
		n = n * 10 + (unsigned int)(*p - '0');
	}
	*number = n;
	return true;
}

bool accel_open(const char *name, int flags, int *fd)
{
	unsigned int number;
	int ret;

	if (!accel_parse(name, &number) || flags & O_PATH || !load_card())
		return false;
	ret = card.open(number, flags);
	if (ret < 0)
		errno = -ret;
	else
		used = true;
	*fd = ret < 0 ? -1 : ret;
	return true;
}

PUBLIC int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (used) {
		ret = card.ioctl(fd, request, arg);
		if (!ret)
			return 0;
		if (ret != -ENOTTY) {
			errno = -ret;
			return -1;
		}
	}
	return LIBC(ioctl)(fd, request, arg);
}

PUBLIC int close(int fd)
{
	if (used && fd >= 0)
		card.close(fd);
	return LIBC(close)(fd);
}
