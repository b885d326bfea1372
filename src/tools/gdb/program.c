// SPDX-License-Identifier: MIT
/*
 * Owns `verbatim gdb -- PROGRAM`: the program, its first device process, and the gdb on it.
 *
 *	this tool                         program
 *	  listens on an abstract socket
 *	  forks ------------------------> VERBATIM_DPA_DEBUG=wait:NAME, exec
 *	  <------------------- token ---- flexio_process_create(), waits
 *	  gdb ----------------- attach -> goes on when gdb says so
 *
 * The program is in a process group of its own, so that an interrupt at the terminal is gdb's, and its
 * standard input is empty, because gdb reads the terminal.
 */
#include "tools/gdb/gdb.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cmd.h"

static const char who[] = "verbatim gdb";
static pid_t program_pid;

static void program_pass_signal(int sig)
{
	kill(program_pid, sig);
}

/* Returns only where the program cannot be started. */
static int program_become_program(const char *config, const char *name, char **program)
{
	char value[128];
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	snprintf(value, sizeof(value), "wait:%s", name);
	if (setenv("VERBATIM_DPA_DEBUG", value, 1) || tools_use_config(who, config) ||
	    tools_put_libraries_first(who))
		return CMD_FAILED;
	return tools_become(who, program);
}

static int listen_for_token(char name[64])
{
	struct sockaddr_un at;
	uint64_t random;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EAGAIN;
	snprintf(name, 64, "verbatim-gdb/%u/%016llx", (unsigned int)geteuid(),
		 (unsigned long long)random);
	len = vb_peer_address(&at, name);
	if (!bind(fd, (struct sockaddr *)&at, len) && !listen(fd, 4))
		return fd;
	close(fd);
	return -errno;
}

static bool accept_token(int listener, uint64_t *token)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	bool good = fd >= 0 && vb_peer_is_own(fd, NULL) &&
		    vb_peer_read(fd, token, sizeof(*token)) && vb_peer_write(fd, "y", 1);

	if (fd >= 0)
		close(fd);
	return good;
}

/* Until a device process waits, or the program is over: false. */
static bool await_token(int listener, pid_t program, uint64_t *token)
{
	struct pollfd fds[2] = { { .fd = listener, .events = POLLIN },
				 { .fd = (int)syscall(SYS_pidfd_open, program, 0),
				   .events = POLLIN } };
	bool found = false;

	while (!found) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[0].revents)
			found = accept_token(listener, token);
		else if (fds[1].revents)
			break;
	}
	if (fds[1].fd >= 0)
		close(fds[1].fd);
	return found;
}

/* Signals that would end this tool are the program's, which it waits for. */
static int reap(pid_t program)
{
	struct sigaction act = { .sa_handler = program_pass_signal };
	int status = 0;

	program_pid = program;
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	while (waitpid(program, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int gdb_program(struct gdb_run *run, const char *config, char **program)
{
	struct vb_gdb_entry entry;
	char name[64], *gdb = gdb_find(run->gdb);
	int listener = gdb ? listen_for_token(name) : -ENOENT, code;
	pid_t child;

	free(gdb);
	if (listener < 0)
		return CMD_FAILED;
	child = fork();
	if (!child) {
		code = program_become_program(config, name, program);
		fflush(NULL);
		_exit(code);
	}
	if (child < 0) {
		fprintf(stderr, "%s: %s\n", who, strerror(errno));
		return CMD_FAILED;
	}
	setpgid(child, child);
	if (!await_token(listener, child, &run->token)) {
		code = reap(child);
		fprintf(stderr, "%s: %s ended, with code %d, and had created no device process\n",
			who, program[0], code);
		return code;
	}
	close(listener);
	code = gdb_run(run);
	/* gdb has not come to it: it would wait for ever. */
	if (!gdb_look(run->token, &entry, NULL) && entry.waits)
		kill(child, SIGTERM);
	return reap(child);
}
