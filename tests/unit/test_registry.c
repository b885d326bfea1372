/* SPDX-License-Identifier: MIT */
/*
 * The registry where the machine is not as it should be: no /dev/shm, a full one, a read-only one, a damaged file, a
 * program without standard output. Each case is a process of its own, in namespaces of its own; what it logged is
 * read back, because a user sees nothing else.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../programs/common.h"
#include "base/registry.h"

enum { NO_NAMESPACES = 77 };

static char said[8192]; /* the log of the last case */

/* Run it in a child with a /dev/shm of its own: its exit code, and what it said. */
static int in_child(int (*body)(void))
{
	size_t len = 0;
	int pipes[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		if (!enter_namespaces(CLONE_NEWNS | CLONE_NEWNET) ||
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
			_exit(NO_NAMESPACES);
		_exit(body());
	}
	close(pipes[1]);
	while ((n = read(pipes[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_NAMESPACES) {
		print_message("no right to make namespaces\n");
		skip();
	}
	return WEXITSTATUS(status);
}

/* One line, with this in it. */
static void assert_said(const char *text)
{
	if (!strstr(said, text))
		print_error("said: %s\n", said);
	assert_non_null(strstr(said, text));
	assert_ptr_equal(strchr(said, '\n'), strrchr(said, '\n'));
}

static int mount_shm(const char *options, unsigned long flags)
{
	return mount("none", "/dev/shm", "tmpfs", flags, options);
}

static int join(void)
{
	struct vb_slot_info self;

	return -vb_registry_join(&self);
}

static int join_without_shm(void)
{
	return mount("none", "/dev", "tmpfs", 0, NULL) ? -1 : join();
}

static int join_full(void)
{
	return mount_shm("size=4k", 0) ? -1 : join();
}

static int join_read_only(void)
{
	return mount_shm(NULL, MS_RDONLY) ? -1 : join();
}

static void machine_lacks(void **state)
{
	(void)state;
	assert_int_equal(in_child(join_without_shm), ENOENT);
	assert_said("Verbatim needs a /dev/shm that you can write to");
	assert_int_equal(in_child(join_read_only), EROFS);
	assert_said("Verbatim needs a /dev/shm that you can write to");
	assert_int_equal(in_child(join_full), ENOSPC);
	assert_said("no room for the registry in /dev/shm");
}

static void find_directory(char *path, size_t len)
{
	struct stat net, pid;

	assert_int_equal(stat("/proc/self/ns/net", &net), 0);
	assert_int_equal(stat("/proc/self/ns/pid", &pid), 0);
	snprintf(path, len, "/dev/shm/verbatim-%u-%llu-%llu-v1", (unsigned int)geteuid(),
		 (unsigned long long)net.st_ino, (unsigned long long)pid.st_ino);
}

static int join_damaged(void)
{
	char path[128];
	FILE *f;

	if (mount_shm(NULL, 0))
		return -1;
	find_directory(path, sizeof(path));
	mkdir(path, 0700);
	strcat(path, "/registry");
	f = fopen(path, "w");
	for (int i = 0; f && i < 65536; i++)
		fputc('x', f);
	if (f)
		fclose(f);
	return join();
}

static int join_open_to_others(void)
{
	char path[128];

	if (mount_shm(NULL, 0))
		return -1;
	find_directory(path, sizeof(path));
	mkdir(path, 0700);
	chmod(path, 0777);
	return join();
}

static void somebody_was_there(void **state)
{
	(void)state;
	assert_int_equal(in_child(join_damaged), EUCLEAN);
	assert_said("is damaged; remove that directory");
	assert_int_equal(in_child(join_open_to_others), EPERM);
	assert_said("belongs to somebody else or is open to others; remove it");
}

static void count_one(void *arg, const struct vb_slot_info *info)
{
	(void)info;
	++*(int *)arg;
}

/* 0 where the registry is whole after text went to where standard input, output and error were. */
static int write_to_closed_stdio(void)
{
	char junk[4096];
	int found = 0, fd;

	if (mount_shm(NULL, 0))
		return 2;
	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		close(fd);
	if (join())
		return 3;
	fd = vb_registry_create_segment();
	if (fd <= STDERR_FILENO)
		return 4;
	memset(junk, 0xaa, sizeof(junk));
	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (write(fd, junk, sizeof(junk)) >= 0)
			return 5;
	return vb_registry_list(count_one, &found) == 1 && found == 1 ? 0 : 6;
}

static void closed_stdio(void **state)
{
	(void)state;
	assert_int_equal(in_child(write_to_closed_stdio), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machine_lacks),
		cmocka_unit_test(somebody_was_there),
		cmocka_unit_test(closed_stdio),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
