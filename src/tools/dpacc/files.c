// SPDX-License-Identifier: MIT
/*
 * Files: reading them whole, and where an output is made.
 */
#include "dpacc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const void *file_read(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	bool known = fd >= 0 && !fstat(fd, &st);
	size_t done = 0;
	char *data;

	if (!known || !S_ISREG(st.st_mode)) {
		say("%s: %s", path,
		    !known                ? strerror(errno)
		    : S_ISDIR(st.st_mode) ? "is a folder"
					  : "is no ordinary file");
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	data = mem_alloc((size_t)st.st_size + 1);
	while (done < (size_t)st.st_size) {
		ssize_t n = read(fd, data + done, (size_t)st.st_size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	close(fd);
	*size = done;
	return data;
}

bool same_file(const char *a, const char *b)
{
	struct stat sa, sb;

	return !stat(a, &sa) && !stat(b, &sb) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

bool file_is_special(const char *path)
{
	struct stat st;

	return !stat(path, &st) && !S_ISREG(st.st_mode);
}

const char *file_folder(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return ".";
	return slash == path ? "/" : mem_dup(path, (size_t)(slash - path));
}

/* What a link leads to, or the path itself. */
static const char *real_place(const char *to)
{
	char *real = realpath(to, NULL);
	const char *place = real ? mem_dup(real, strlen(real)) : to;

	free(real);
	return place;
}

int file_beside(const char *to, const char **temporary, const char **place)
{
	const char *real = real_place(to);
	char *name = mem_printf("%s/.dpacc-XXXXXX", file_folder(real));
	int fd = mkostemp(name, O_CLOEXEC);
	mode_t mask;

	if (fd < 0)
		return -1;
	mask = umask(0);
	umask(mask);
	if (fchmod(fd, 0666 & ~mask)) {
		close(fd);
		unlink(name);
		return -1;
	}
	*temporary = name;
	*place = real;
	return fd;
}
