// SPDX-License-Identifier: MIT
/*
 * Standard descriptors of the commands: closed ones, and output that nobody got.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"

const char *tools_printable(char *text)
{
	for (char *p = text; *p; p++)
		if (*p < 0x20 || *p >= 0x7f)
			*p = '?';
	return text;
}

/* Why standard output failed, where that was noticed before the end; 0: it was not. */
static int stdout_error;

void tools_stdout_failed(void)
{
	stdout_error = errno;
}

/* Output that was lost is a failure, the help text included. */
static void flush_at_exit(void)
{
	if (!ferror(stdout) && !fflush(stdout))
		return;
	fprintf(stderr, "%s: standard output: %s\n", program_invocation_short_name,
		strerror(stdout_error ? stdout_error : errno));
	fflush(stderr);
	_exit(1);
}

/*
 * Nothing that we open may stand in the place of a closed standard output: the registry would get
 * the table. Not inherited, so that a program below `verbatim run` finds its descriptors as we did.
 */
void tools_guard_stdio(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", (fd ? O_RDONLY : O_WRONLY) | O_CLOEXEC) < 0)
			break;
	atexit(flush_at_exit);
}
