// SPDX-License-Identifier: MIT
/*
 * A signal handler forks in the middle of giving out shared memory, freeing it, and waiting for peers that use it: the child returns
 * from the handler to what it interrupted, ends that, and has shared memory of its own.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/shared/shared.h"

enum { PAGE = VB_SHARED_PAGE, LIMIT = 20 };

static const char *armed; /* the function in which the signal comes, once */
static pid_t child;       /* 0 in the child itself */
static bool forked;

static void fork_in_handler(int sig)
{
	(void)sig;
	forked = true;
	child = fork();
	if (!child)
		alarm(LIMIT); /* instead of a hang */
}

static void arrive(const char *function)
{
	if (armed != function)
		return;
	armed = NULL;
	raise(SIGUSR1);
}

static const char in_fallocate[] = "posix_fallocate", in_munmap[] = "munmap", in_hook[] = "a hook";

/* Ours call these. */
int posix_fallocate(int fd, off_t offset, off_t len)
{
	arrive(in_fallocate);
	return (int)syscall(SYS_fallocate, fd, 0, offset, len);
}

int munmap(void *at, size_t len)
{
	arrive(in_munmap);
	return (int)syscall(SYS_munmap, at, len);
}

static void use_memory(void)
{
	char *at = vb_shared_alloc(2 * PAGE);

	if (!at)
		_exit(2);
	at[0] = at[PAGE] = 1;
	vb_shared_free(at, 2 * PAGE);
}

static void nothing_made(void)
{
}

static void wait_hook(uintptr_t base, size_t len)
{
	(void)base, (void)len;
	arrive(in_hook);
}

static const struct vb_shared_hooks hooks = { nothing_made, wait_hook };

static void test_fork_in(const char *function)
{
	int status = -1;

	signal(SIGUSR1, fork_in_handler);
	forked = false;
	vb_shared_set_hooks(&hooks);
	use_memory(); /* the pool is there, and has a block */
	armed = function;
	use_memory();
	if (forked && !child) {
		use_memory();
		vb_shared_set_hooks(&hooks);
		use_memory();
		vb_shared_set_hooks(NULL); /* waits for those that are called */
		_exit(0);
	}
	assert_true(forked);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	use_memory();
	vb_shared_set_hooks(NULL);
}

static void test_fork_in_alloc(void **state)
{
	(void)state;
	test_fork_in(in_fallocate);
}

static void test_fork_in_free(void **state)
{
	(void)state;
	test_fork_in(in_munmap);
}

static void test_fork_in_wait(void **state)
{
	(void)state;
	test_fork_in(in_hook);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fork_in_alloc),
		cmocka_unit_test(test_fork_in_free),
		cmocka_unit_test(test_fork_in_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
