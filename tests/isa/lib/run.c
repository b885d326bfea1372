// SPDX-License-Identifier: MIT
/*
 * Child processes for the differential tests: start, collect stdout and stderr, end it after a
 * limit.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

const char *const run_tier_name[RUN_TIERS] = { "interp", "jit", "qemu" };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int start(char *const argv[], pid_t *pid, int out[2], int err[2])
{
	posix_spawn_file_actions_t fa;
	int rc;

	if (pipe2(out, O_CLOEXEC))
		return -errno;
	if (pipe2(err, O_CLOEXEC)) {
		rc = -errno;
		close(out[0]);
		close(out[1]);
		return rc;
	}
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, out[1], 1);
	posix_spawn_file_actions_adddup2(&fa, err[1], 2);
	rc = -posix_spawnp(pid, argv[0], &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(out[1]);
	close(err[1]);
	if (rc) {
		close(out[0]);
		close(err[0]);
	}
	return rc;
}

/* Read what there is into r; false at the end of that pipe. */
static int drain_out(int fd, struct run *r, size_t *room)
{
	ssize_t n;

	if (r->size == *room) {
		*room = *room ? *room * 2 : 1 << 16;
		r->out = realloc(r->out, *room);
	}
	n = read(fd, r->out + r->size, *room - r->size);
	if (n > 0)
		r->size += (size_t)n;
	return n > 0;
}

static int drain_err(int fd, struct run *r, size_t *used)
{
	char spill[512];
	size_t room = sizeof(r->err) - 1 - *used;
	ssize_t n = read(fd, room ? r->err + *used : spill, room ? room : sizeof(spill));

	if (n > 0 && room)
		*used += (size_t)n;
	r->err[*used] = 0;
	return n > 0;
}

int run_command(char *const argv[], unsigned seconds, struct run *r)
{
	int out[2], err[2], rc, ws, ended = 0;
	size_t room = 0, used = 0;
	double end = now() + seconds;
	struct pollfd p[2];
	pid_t pid;

	memset(r, 0, sizeof(*r));
	rc = start(argv, &pid, out, err);
	if (rc)
		return rc;
	p[0] = (struct pollfd){ .fd = out[0], .events = POLLIN };
	p[1] = (struct pollfd){ .fd = err[0], .events = POLLIN };
	while (p[0].fd >= 0 || p[1].fd >= 0) {
		if (now() > end && !ended) {
			kill(pid, SIGKILL);
			ended = 1;
		}
		poll(p, 2, 200);
		if (p[0].revents && !drain_out(out[0], r, &room))
			p[0].fd = -1;
		if (p[1].revents && !drain_err(err[0], r, &used))
			p[1].fd = -1;
	}
	close(out[0]);
	close(err[0]);
	while (waitpid(pid, &ws, 0) < 0 && errno == EINTR)
		;
	r->status = ended ? -1 : WIFEXITED(ws) ? WEXITSTATUS(ws) : 128 + WTERMSIG(ws);
	return 0;
}

/* Of one program, which is translated piece by piece, each checked. */
#ifdef __SANITIZE_THREAD__
enum { SECONDS = 600 };
#else
enum { SECONDS = 120 };
#endif

int run_elf(const struct run_tools *t, enum run_tier tier, const char *elf, const char *extra,
	    struct run *r)
{
	char *argv[12];
	int n = 0;

	if (tier == RUN_QEMU) {
		argv[n++] = (char *)t->qemu;
		argv[n++] = (char *)"-cpu";
		argv[n++] = (char *)"rv64,zba=true,zbb=true,zbs=true,zbc=true";
	} else {
		argv[n++] = (char *)t->dpa_run;
		argv[n++] = (char *)"--tier";
		argv[n++] = (char *)run_tier_name[tier];
		argv[n++] = (char *)"--count";
		if (extra)
			argv[n++] = (char *)extra;
	}
	argv[n++] = (char *)elf;
	argv[n] = NULL;
	return run_command(argv, SECONDS, r);
}

void run_free(struct run *r)
{
	free(r->out);
	memset(r, 0, sizeof(*r));
}

uint64_t run_count(const struct run *r)
{
	const char *at = strstr(r->err, "instructions: ");

	return at ? strtoull(at + 14, NULL, 10) : ~0ull;
}

void run_scratch(char *path, size_t size, const char *name)
{
	const char *dir = getenv("TMPDIR");

	snprintf(path, size, "%s/isa-%d-%s", dir ? dir : "/tmp", (int)getpid(), name);
}
