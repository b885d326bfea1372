// SPDX-License-Identifier: MIT
/*
 * Helpers of the real library for reading sysfs. They read whatever files exist; there are none for
 * our devices.
 */
#include "objects.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/env.h"

VB_PUBLIC const char *ibv_get_sysfs_path(void);
VB_PUBLIC int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
VB_PUBLIC int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs_dev, const char *format,
					...);

static char sysfs_path[IBV_SYSFS_PATH_MAX];
static pthread_once_t sysfs_path_once = PTHREAD_ONCE_INIT;

/* vb_getenv() ignores the environment in set-user-ID programs. */
static void find_sysfs_path(void)
{
	const char *env = vb_getenv("SYSFS_PATH");
	size_t len;

	snprintf(sysfs_path, sizeof(sysfs_path), "%s", env ? env : "/sys");
	len = strlen(sysfs_path);
	while (len > 0 && sysfs_path[len - 1] == '/')
		sysfs_path[--len] = '\0';
}

const char *ibv_get_sysfs_path(void)
{
	pthread_once(&sysfs_path_once, find_sysfs_path);
	return sysfs_path;
}

/* Returns the length without a trailing newline, or -1. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[2 * IBV_SYSFS_PATH_MAX];
	ssize_t len;
	int fd;

	if (!dir || !file || !buf || !size ||
	    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path)) {
		errno = EINVAL;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	len = read(fd, buf, size);
	close(fd);
	if (len < 0)
		return -1;
	if (len > 0 && buf[len - 1] == '\n')
		buf[--len] = '\0';
	else if ((size_t)len < size)
		buf[len] = '\0';
	else {
		errno = EOVERFLOW;
		return -1;
	}
	return (int)len;
}

int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs_dev, const char *format, ...)
{
	errno = ENOENT;
	return -1;
}
