// SPDX-License-Identifier: MIT
/*
 * Each row in a process of its own, because it changes masks, limits and the like; what it says comes
 * through a pipe, which ends when the last process of the row has ended.
 *
 * usage: interposed [--list | --without NAME | NAME]
 */
#include "rows.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANGS = 20000 }; /* milliseconds without a word */

static const struct rows *const all[] = { &signal_rows, &wait_rows,   &file_rows,
					  &name_rows,   &memory_rows, &process_rows };

void say(const char *format, ...)
{
	int err = errno;
	va_list args;

	va_start(args, format);
	vdprintf(STDOUT_FILENO, format, args);
	va_end(args);
	errno = err;
}

void say_call(const char *what, enum kind kind, long value, int err)
{
	char text[32];

	if (kind == POINTER && value && value != -1)
		strcpy(text, "a pointer");
	else if (kind == DESCRIPTOR && value >= 0)
		strcpy(text, "a descriptor");
	else if (kind == FLAG)
		strcpy(text, value ? "true" : "false");
	else
		snprintf(text, sizeof(text), "%ld", value);
	say("\t%s = %s, errno %s\n", what, text,
	    err == UNTOUCHED ? "untouched" : strerrorname_np(err));
}

void say_set(const char *what, const sigset_t *set)
{
	uint64_t bits;

	memcpy(&bits, set, sizeof(bits)); /* all that the kernel has */
	say("\t%s: %016llx\n", what, (unsigned long long)bits);
}

void say_action(const char *what, const struct sigaction *act)
{
	say("\t%s: %s, flags %x, restorer %s\n", what,
	    act->sa_handler == SIG_DFL   ? "SIG_DFL"
	    : act->sa_handler == SIG_IGN ? "SIG_IGN"
					 : "a handler",
	    (unsigned int)act->sa_flags, act->sa_restorer ? "set" : "none");
	say_set("its mask", &act->sa_mask);
}

void say_child(pid_t pid)
{
	int status = 0;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		say("no child\n");
	else if (WIFSIGNALED(status))
		say("ended by signal %d\n", WTERMSIG(status));
	else
		say("exit code %d\n", WEXITSTATUS(status));
}

void enter_folder(void)
{
	char folder[] = "/tmp/verbatim-interposed-XXXXXX";
	int fd;

	if (!mkdtemp(folder) || chdir(folder) || (fd = creat("here", 0644)) < 0 ||
	    write(fd, "text\n", 5) != 5 || close(fd) || symlink("here", "link")) {
		say("no folder: %s\n", strerror(errno));
		_exit(1);
	}
}

static void leave_folder(void)
{
	char folder[64];

	if (getcwd(folder, sizeof(folder)) && !strncmp(folder, "/tmp/verbatim-interposed-", 25)) {
		unlink("here");
		unlink("link");
		unlink("made");
		unlink("dangling");
		rmdir("inner");
		rmdir(folder);
	}
}

void forbid_children(void)
{
	struct rlimit none = { 0, 0 };

	/* Limits of processes do not bind root. */
	if (!geteuid() && (setgroups(0, NULL) || setresgid(65534, 65534, 65534) ||
			   setresuid(65534, 65534, 65534)))
		say("still root\n");
	setrlimit(RLIMIT_NPROC, &none);
}

void *named(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static void run_child(void (*act)(void), const int *ends)
{
	dup2(ends[1], STDOUT_FILENO);
	close(ends[0]);
	close(ends[1]);
	act();
	leave_folder();
	_exit(0);
}

static void run(const char *name, const char *how, void (*act)(void))
{
	char text[4096];
	struct pollfd from = { .events = POLLIN };
	int ends[2];
	ssize_t n = -1;
	pid_t pid;

	dprintf(STDOUT_FILENO, "%s %s\n", name, how);
	if (pipe2(ends, O_CLOEXEC))
		exit(99);
	from.fd = ends[0];
	pid = fork();
	if (!pid)
		run_child(act, ends);
	close(ends[1]);
	while (poll(&from, 1, HANGS) > 0 && (n = read(ends[0], text, sizeof(text))) > 0)
		if (write(STDOUT_FILENO, text, (size_t)n) != n)
			exit(99);
	close(ends[0]);
	if (n) {
		say("hangs\n");
		kill(pid, SIGKILL);
	}
	say_child(pid);
}

int main(int argc, char **argv)
{
	bool list = argc > 1 && !strcmp(argv[1], "--list");
	struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		for (size_t n = 0; n < all[i]->count; n++) {
			const struct row *row = &all[i]->row[n];

			if (list) {
				puts(row->name);
				continue;
			}
			if (argc > 1 && !strcmp(argv[argc - 1], row->name) == (argc > 2))
				continue;
			run(row->name, "succeeds", row->good);
			if (row->bad)
				run(row->name, "fails", row->bad);
		}
	}
	return 0;
}
