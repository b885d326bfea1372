// SPDX-License-Identifier: MIT
/* Owns what start.h promises: a table of shown pages, as libverbatim has one. */
#include "start.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/shared/born.h"

enum { PAGE = 4096 };

bool memory_test_aligned;
void (*memory_test_meanwhile)(void);

static struct {
	pthread_mutex_t lock;
	uint64_t base; /* of page 0 of the file; 0: not known yet */
	uint64_t pages;
	unsigned char *shown; /* not by malloc: an allocator calls us */
	int fd;
	dev_t dev;
	ino_t ino;
	pid_t pid;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

static void die(const char *what)
{
	fprintf(stderr, "memory test: %s\n", what);
	_exit(99);
}

static int make_file(const char *name, uint64_t bytes)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	if (fstat(fd, &st))
		return -errno;
	table.fd = fd;
	table.dev = st.st_dev;
	table.ino = st.st_ino;
	table.pid = getpid();
	table.base = 0;
	table.pages = bytes / PAGE;
	table.shown = mmap(NULL, table.pages, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return fd;
}

/* Whatever the program does with the descriptor: this file, and no other. */
static int add(void *base, size_t len, const struct vb_file *file, off_t offset)
{
	uint64_t page = (uint64_t)offset / PAGE, count = len / PAGE;

	pthread_mutex_lock(&table.lock);
	if (!table.base)
		table.base = (uint64_t)base - (uint64_t)offset;
	if ((uint64_t)base - (uint64_t)offset != table.base || page + count > table.pages ||
	    len % PAGE || file->fd != table.fd || file->dev != table.dev || file->ino != table.ino)
		die("a page is not at its place in the file");
	for (uint64_t i = page; i < page + count; i++) {
		if (table.shown[i])
			die("a page is shown twice");
		table.shown[i] = 1;
	}
	pthread_mutex_unlock(&table.lock);
	return 0;
}

static void take_away(void *base, size_t len)
{
	pthread_mutex_lock(&table.lock);
	if (table.base)
		memset(&table.shown[((uint64_t)base - table.base) / PAGE], 0, len / PAGE);
	pthread_mutex_unlock(&table.lock);
	if (memory_test_meanwhile) {
		void (*meanwhile)(void) = memory_test_meanwhile;

		memory_test_meanwhile = NULL;
		meanwhile();
	}
}

int memory_test_try(uint64_t limit, const char **why)
{
	vb_born_start_function *start =
		(vb_born_start_function *)dlsym(RTLD_DEFAULT, VB_BORN_START);
	struct vb_born_hooks hooks = { limit, !memory_test_aligned, make_file, add, take_away };

	*why = NULL;
	return start ? start(&hooks, why) : 1;
}

bool memory_test_start(uint64_t limit)
{
	const char *why;
	int ret = memory_test_try(limit, &why);

	if (ret < 0) {
		fprintf(stderr, "memory test: not started: %s\n", why ? why : strerror(-ret));
		exit(99);
	}
	return !ret;
}

static bool all_are(const void *base, uint64_t len, unsigned char what)
{
	uint64_t first = ((uint64_t)base - table.base) / PAGE, count = (len + PAGE - 1) / PAGE;

	if (!table.base || table.pid != getpid() || (uint64_t)base < table.base ||
	    first + count > table.pages)
		return !what;
	for (uint64_t i = first; i < first + count; i++)
		if (table.shown[i] != what)
			return false;
	return true;
}

bool memory_test_is_shown(const void *base, uint64_t len)
{
	return all_are(base, len, 1);
}

bool memory_test_is_hidden(const void *base, uint64_t len)
{
	return all_are(base, len, 0);
}

int memory_test_fd(void)
{
	return table.fd;
}

uint64_t memory_test_offset(const void *base)
{
	return (uint64_t)base - table.base;
}
