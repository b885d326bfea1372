// SPDX-License-Identifier: MIT
/*
 * Owns the functions that make children, in front of libc's: each leaves a stack that is shared, and
 * has the steps of fork_copy.c around the kernel's fork.
 *
 * fork() runs our handlers, whoever calls it; so do daemon() and forkpty(), which call it inside
 * libc. _Fork() does not, and neither do clone() without CLONE_VM and the system calls. vfork() and
 * posix_spawn() have the parent's memory anyway.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "host/memory/fork_copy.h"
#include "host/memory/libc.h"
#include "host/memory/memory.h"

static long no_memory(void)
{
	errno = ENOMEM;
	return -1;
}

/* --- those that run the handlers -------------------------------------------------------------- */

/* call, which returns a pid where it forks. */
static long with_reserve(long (*call)(void *arg), void *arg)
{
	long pid;
	int err;

	if (!memory_reserve_copy())
		return no_memory();
	pid = call(arg);
	err = errno;
	memory_drop_reserved();
	if (pid > 0 && memory_reserved.failed) {
		RAW(SYS_wait4, pid, NULL, 0, NULL);
		return no_memory();
	}
	errno = err;
	return pid;
}

static long fork_libc(void *arg)
{
	return LIBC(fork)();
}

static long fork_reserved(void *arg)
{
	return with_reserve(fork_libc, arg);
}

PUBLIC pid_t fork(void)
{
	if (!atomic_load(&memory.size))
		return LIBC(fork)();
	return (pid_t)memory_call_beside(fork_reserved, NULL);
}

/* libc's other name for it. */
PUBLIC pid_t __fork(void);

PUBLIC pid_t __fork(void)
{
	return fork();
}

struct daemon_call {
	int nochdir, noclose;
};

static long daemon_libc(void *arg)
{
	const struct daemon_call *call = arg;

	return LIBC(daemon)(call->nochdir, call->noclose);
}

static long daemon_reserved(void *arg)
{
	return with_reserve(daemon_libc, arg);
}

PUBLIC int daemon(int nochdir, int noclose)
{
	struct daemon_call call = { nochdir, noclose };

	if (!atomic_load(&memory.size))
		return LIBC(daemon)(nochdir, noclose);
	return (int)memory_call_beside(daemon_reserved, &call);
}

struct forkpty_call {
	int *master;
	char *name;
	const struct termios *settings;
	const struct winsize *size;
};

static long forkpty_libc(void *arg)
{
	const struct forkpty_call *call = arg;

	return LIBC(forkpty)(call->master, call->name, call->settings, call->size);
}

static long forkpty_reserved(void *arg)
{
	const struct forkpty_call *call = arg;
	long pid;

	memory_reserved.failed = false;
	pid = with_reserve(forkpty_libc, arg);
	if (pid < 0 && memory_reserved.failed)
		RAW(SYS_close, *call->master);
	return pid;
}

PUBLIC int forkpty(int *master, char *name, const struct termios *settings,
		   const struct winsize *size)
{
	struct forkpty_call call = { master, name, settings, size };

	if (!atomic_load(&memory.size))
		return LIBC(forkpty)(master, name, settings, size);
	return (int)memory_call_beside(forkpty_reserved, &call);
}

/* --- those that do not ------------------------------------------------------------------------ */

/* call makes a child with memory of its own and returns in both. */
static long with_copy(long (*call)(const long *arg), const long *arg, bool shares_files)
{
	long made = -1;
	int err = ENOMEM;
	sigset_t mask;

	if (!memory_prepare()) {
		made = call(arg);
		err = errno;
	}
	if (made) {
		memory_in_parent();
	} else {
		mask = memory_adopt(shares_files);
		memory_unlock(&mask);
	}
	if (made < 0)
		errno = err;
	return made;
}

static long fork_bare(const long *arg)
{
	return LIBC(_Fork)();
}

static long fork_unhandled(void *arg)
{
	return with_copy(fork_bare, NULL, false);
}

PUBLIC pid_t _Fork(void)
{
	return (pid_t)memory_call_beside(fork_unhandled, NULL);
}

/* --- clone ------------------------------------------------------------------------------------ */

/* Of the one who has the lock; the child has a copy of it, and starts on its copy of this stack. */
static struct {
	int (*function)(void *arg);
	void *arg;
	char *stack; /* where the function shall run, perhaps in shared pages */
	bool shares_files;
	sigset_t mask;
	char first_stack[16384] __attribute__((aligned(16)));
} starting;

/* Ends as clone() ends a child, and not on the first stack: there a child of this one may have started. */
static long run_started(void *arg)
{
	int (*function)(void *arg) = starting.function;
	void *of_function = starting.arg;
	sigset_t mask = starting.mask;

	memory_unlock(&mask);
	RAW(SYS_exit, function(of_function));
	__builtin_unreachable();
}

static int start_child(void *arg)
{
	starting.mask = memory_adopt(starting.shares_files);
	return (int)memory_switch_stack(run_started, NULL, starting.stack);
}

struct clone_call {
	int (*function)(void *arg);
	char *stack;
	int flags;
	void *arg;
	void *rest[3];
};

static long clone_copied(void *arg)
{
	const struct clone_call *call = arg;
	int ret = -1, err = ENOMEM;

	if (!memory_prepare()) {
		starting.function = call->function;
		starting.arg = call->arg;
		starting.stack = (char *)((uintptr_t)call->stack & ~(uintptr_t)15);
		starting.shares_files = call->flags & CLONE_FILES;
		ret = LIBC(clone)(start_child, starting.first_stack + sizeof(starting.first_stack),
				  call->flags, NULL, call->rest[0], call->rest[1], call->rest[2]);
		err = errno;
	}
	memory_in_parent();
	if (ret < 0)
		errno = err;
	return ret;
}

PUBLIC int clone(int (*function)(void *arg), void *stack, int flags, void *arg, ...)
{
	struct clone_call call = { function, stack, flags, arg, { 0 } };
	va_list args;

	va_start(args, arg);
	for (int i = 0; i < 3; i++)
		call.rest[i] = va_arg(args, void *);
	va_end(args);
	if (flags & CLONE_VM || !atomic_load(&memory.size) || !function || !stack)
		return LIBC(clone)(function, stack, flags, arg, call.rest[0], call.rest[1],
				   call.rest[2]);
	return (int)memory_call_beside(clone_copied, &call);
}

/* --- system calls ----------------------------------------------------------------------------- */

struct system_call {
	long arg[7]; /* its number, and six more */
	bool shares_files;
};

/* The fields of struct clone_args that matter: flags at 0, stack at 40. */
static bool is_fork(const long *arg, bool *shares_files)
{
	unsigned long flags = 0, stack = 0;

	switch (arg[0]) {
#ifdef SYS_fork
	case SYS_fork:
		break;
#endif
	case SYS_clone:
		flags = (unsigned long)arg[1];
		stack = (unsigned long)arg[2];
		break;
#ifdef SYS_clone3
	case SYS_clone3:
		if (!arg[1] || arg[2] < 64)
			return false;
		flags = *(const uint64_t *)arg[1];
		stack = ((const uint64_t *)arg[1])[5];
		break;
#endif
	default:
		return false;
	}
	*shares_files = flags & CLONE_FILES;
	return !(flags & CLONE_VM) && !stack;
}

static long calls_call_kernel(const long *arg)
{
	return RAW(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
}

static long call_copied(void *arg)
{
	const struct system_call *call = arg;

	return with_copy(calls_call_kernel, call->arg, call->shares_files);
}

PUBLIC long syscall(long number, ...)
{
	struct system_call call = { { number }, false };
	va_list args;
	long ret;

	va_start(args, number);
	for (int i = 1; i < 7; i++)
		call.arg[i] = va_arg(args, long);
	va_end(args);
#ifdef SYS_userfaultfd
	if (number == SYS_userfaultfd)
		atomic_store_explicit(&memory.watched, true, memory_order_relaxed);
#endif
	if (!atomic_load_explicit(&memory.size, memory_order_relaxed))
		return calls_call_kernel(call.arg);
	if (is_fork(call.arg, &call.shares_files))
		return memory_call_beside(call_copied, &call);
	return memory_syscall(call.arg, &ret) ? ret : calls_call_kernel(call.arg);
}
