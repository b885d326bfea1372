// SPDX-License-Identifier: MIT
/*
 * Ends that the C library knows: all of them end the process, none returns.
 *
 *	_exit(0)               status 0x40, as flexio_dev_process_finish()
 *	_exit(n)               0x80 + the low seven bits of n
 *	abort, assert, raise   0x80 + the number of the signal (SIGABRT is 6)
 *	smashed stack          0x86, too
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

void __assert_func(const char *file, int line, const char *func, const char *expression)
	__attribute__((__noreturn__));
void __assert_no_args(void) __attribute__((__noreturn__));
void __stack_chk_fail(void) __attribute__((__noreturn__));

static __attribute__((__noreturn__)) void end(int code)
{
	flexio_dev_error((uint8_t)(FLEXIO_DEV_ERROR_USER_MIN | (code & 0x7f)));
}

void _exit(int code)
{
	if (!code)
		flexio_dev_process_finish();
	end(code);
}

void abort(void)
{
	flexio_dev_msg_dflt(FLEXIO_MSG_DEV_ERROR, "abort called\n");
	end(SIGABRT);
}

pid_t getpid(void)
{
	return 1;
}

/* Reached by raise() where the program has no handler for the signal. */
int kill(pid_t pid, int signal)
{
	(void)pid;
	end(signal);
}

void __assert_func(const char *file, int line, const char *func, const char *expression)
{
	flexio_dev_msg_dflt(FLEXIO_MSG_DEV_ERROR, "assertion \"%s\" failed: %s:%d%s%s\n",
			    expression, file, line, func ? ", " : "", func ? func : "");
	end(SIGABRT);
}

void __assert_no_args(void)
{
	flexio_dev_msg_dflt(FLEXIO_MSG_DEV_ERROR, "assertion failed\n");
	end(SIGABRT);
}

/* Stack protector: a constant, so that a smashed stack is noticed at all; it keeps no secret. */
uintptr_t __stack_chk_guard = 0x00000aff0d0a00ffUL;

void __stack_chk_fail(void)
{
	flexio_dev_msg_dflt(FLEXIO_MSG_DEV_ERROR, "stack smashing detected\n");
	end(SIGABRT);
}
