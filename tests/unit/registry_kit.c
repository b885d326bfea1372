// SPDX-License-Identifier: MIT
/* What registry_kit.h promises. */
#include "registry_kit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../programs/common.h"

char said[8192];
struct vb_registry registry = VB_REGISTRY_INIT;

int in_child(int (*body)(void))
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
		unsetenv("VERBATIM_SHM_DIR");
		_exit(body());
	}
	close(pipes[1]);
	while ((n = read(pipes[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		print_error("wait status %#x, said: %s\n", (unsigned int)status, said);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_NAMESPACES) {
		print_message("no right to make namespaces\n");
		skip();
	}
	if (WEXITSTATUS(status) == NO_ROOT) {
		print_message("becoming another user needs root\n");
		skip();
	}
	return WEXITSTATUS(status);
}

void assert_said(const char *text)
{
	if (!strstr(said, text))
		print_error("said: %s\n", said);
	assert_non_null(strstr(said, text));
	assert_ptr_equal(strchr(said, '\n'), strrchr(said, '\n'));
}

int mount_shm(const char *options, unsigned long flags)
{
	return mount("none", "/dev/shm", "tmpfs", flags, options);
}

int join(void)
{
	struct vb_slot_info self;

	return -vb_registry_join(&registry, &self);
}

void find_directory(char *path, size_t len)
{
	struct stat net, pid;

	assert_int_equal(stat("/proc/self/ns/net", &net), 0);
	assert_int_equal(stat("/proc/self/ns/pid", &pid), 0);
	snprintf(path, len, "/dev/shm/verbatim-%u-%llu-%llu-v5", (unsigned int)geteuid(),
		 (unsigned long long)net.st_ino, (unsigned long long)pid.st_ino);
}

static void count_one(void *arg, const struct vb_slot_info *info)
{
	(void)info;
	++*(int *)arg;
}

int members(void)
{
	int found = 0;

	return vb_registry_list(count_one, &found) == found ? found : -1;
}

int directories(void)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	int count = 0;

	while (dir && (entry = readdir(dir)))
		count += entry->d_type == DT_DIR && !strncmp(entry->d_name, "verbatim-", 9);
	if (dir)
		closedir(dir);
	return count;
}

pid_t start_member(int *until)
{
	int ready[2], stay[2];
	char word = 0;
	pid_t pid;

	if (pipe(ready) || pipe(stay))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(stay[1]);
		word = join() ? 'n' : 'y';
		if (write(ready[1], &word, 1) != 1 || read(stay[0], &word, 1) < 0)
			_exit(1);
		vb_registry_leave(&registry);
		_exit(0);
	}
	close(ready[1]);
	close(stay[0]);
	if (read(ready[0], &word, 1) != 1 || word != 'y')
		pid = -1;
	close(ready[0]);
	*until = stay[1];
	return pid;
}

void end_member(pid_t pid, int until)
{
	if (write(until, "x", 1) != 1)
		kill(pid, SIGKILL);
	close(until);
	waitpid(pid, NULL, 0);
}

pid_t hold_lock(void)
{
	char path[128];
	pid_t pid;
	int fd, ready[2];
	char word;

	find_directory(path, sizeof(path));
	mkdir(path, 0700);
	strcat(path, "/registry");
	if (pipe(ready))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || flock(fd, LOCK_EX) || write(ready[1], "r", 1) != 1)
			_exit(1);
		pause();
	}
	if (read(ready[0], &word, 1) != 1)
		pid = -1;
	close(ready[0]);
	close(ready[1]);
	return pid;
}
