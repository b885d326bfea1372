// SPDX-License-Identifier: MIT
/* usage: wire SAMPLE COMMAND... */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "wire.h"

void sample_start(struct sample *s, char **command, const char *const *more)
{
	char *argv[WIRE_MAX_ARGS] = { 0 };
	int n = 0, pipe_fd[2];
	pid_t parent = getpid();

	for (; *command && n < WIRE_MAX_ARGS - 1; command++)
		argv[n++] = *command;
	for (; *more && n < WIRE_MAX_ARGS - 1; more++)
		argv[n++] = (char *)*more;
	check_eq(pipe(pipe_fd), 0);
	s->pid = fork();
	check(s->pid >= 0);
	if (!s->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
		if (getppid() != parent)
			_exit(1);
		dup2(pipe_fd[1], STDOUT_FILENO);
		close(pipe_fd[0]);
		close(pipe_fd[1]);
		execv(argv[0], argv);
		_exit(126);
	}
	close(pipe_fd[1]);
	s->out = fdopen(pipe_fd[0], "r");
	check(s->out);
	sample_line(s);
}

const char *sample_line(struct sample *s)
{
	check(fgets(s->line, sizeof(s->line), s->out), "the sample printed nothing more");
	return s->line;
}

const char *sample_find(struct sample *s, const char *begin)
{
	while (strncmp(sample_line(s), begin, strlen(begin)))
		;
	return s->line;
}

void sample_end(struct sample *s, int signal)
{
	if (signal)
		check_eq(kill(s->pid, signal), 0);
	/* It must not wait for us to read. */
	while (fgets(s->line, sizeof(s->line), s->out))
		;
	fclose(s->out);
	spawn_wait(s->pid);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*talk)(char **command);
	} samples[] = {
		{ "flow-counter", wire_flow_counter },
		{ "l2-reflector", wire_l2_reflector },
		{ "packet-processor", wire_packet_processor },
	};
	size_t i = 0, count = sizeof(samples) / sizeof(samples[0]);

	check(argc > 2);
	while (i < count && strcmp(argv[1], samples[i].name))
		i++;
	check(i < count, "no such sample");
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	samples[i].talk(argv + 2);
	return 0;
}
