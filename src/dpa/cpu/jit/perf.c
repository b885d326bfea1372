// SPDX-License-Identifier: MIT
/*
 * Owns the file that tells profilers the names of translated code: /tmp/perf-PID.map, where perf(1)
 * looks for it. Anybody can make files in /tmp, so the file is made anew by us and never opened
 * through a link; all texts of the process are appended to that one file.
 */
#include "base/lock.h"
#include "base/log.h"
#include "dpa/cpu/jit/code.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file that this process made; pid 0: none. A child of fork(2) makes its own. */
static struct {
	struct vb_lock lock;
	pid_t pid;
	dev_t dev;
	ino_t ino;
} made;

/* What an earlier process of this number left behind is ours to remove; anything else stays. */
static void remove_old(const char *path)
{
	struct stat st;

	if (!lstat(path, &st) && st.st_uid == geteuid() && !S_ISDIR(st.st_mode))
		unlink(path);
}

static int perf_open_new(const char *path, struct stat *st)
{
	int fd;

	remove_old(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0 && fstat(fd, st)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* The one that we made; -1 with EEXIST if another one is in its place. */
static int open_again(const char *path)
{
	int fd = open(path, O_WRONLY | O_NOFOLLOW | O_APPEND | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || (!fstat(fd, &st) && st.st_dev == made.dev && st.st_ino == made.ino))
		return fd;
	close(fd);
	errno = EEXIST;
	return -1;
}

static FILE *open_map(void)
{
	struct stat st = { 0 };
	char path[64];
	FILE *file;
	int fd;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	vb_lock(&made.lock);
	if (made.pid == getpid()) {
		fd = open_again(path);
	} else {
		fd = perf_open_new(path, &st);
		if (fd >= 0) {
			made.pid = getpid();
			made.dev = st.st_dev;
			made.ino = st.st_ino;
		}
	}
	vb_unlock(&made.lock);
	file = fd < 0 ? NULL : fdopen(fd, "a");
	if (!file) {
		vb_warn("dpa: no names for profilers: %s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	return file;
}

void vb_jit_perf_map(const struct vb_text *text,
		     const char *(*name)(void *arg, uint64_t pc, uint64_t *offset), void *arg)
{
	const struct generation *gen = &text->jit->gens[0];
	const struct epoch *epoch = &text->jit->epochs[0];
	size_t n = (text->hi - text->lo) / 2;
	const char *current = NULL;
	char shown[VB_DPA_NAME_TEXT];
	uint32_t start = 0;
	FILE *file = open_map();

	if (!file)
		return;
	/*
	 * Leaders are in address order, and so is their code: a function is the run of leaders with
	 * its name.
	 */
	for (size_t i = 0; i <= n; i++) {
		bool leader = i < n && epoch->table[i] != epoch->miss;
		uint32_t end = leader ? (uint32_t)((const uint8_t *)epoch->table[i] - gen->code)
				      : (uint32_t)gen->code_used;
		const char *here = NULL;
		uint64_t offset;

		if (leader)
			here = name(arg, text->lo + 2 * i, &offset);
		if (i < n && (!leader || here == current))
			continue;
		if (current)
			fprintf(file, "%llx %x dpa:%s\n",
				(unsigned long long)(uintptr_t)(gen->code + start), end - start,
				vb_dpa_printable(current, shown));
		current = here;
		start = end;
	}
	fclose(file);
}
