// SPDX-License-Identifier: MIT
/*
 * Threads of ours can all be made to act at once: whatever they do or wait for, while others start and end, and in a child
 * of fork(), which has none of them.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/fault.h"
#include "host/thread.h"

enum { KINDS = 3, ROUNDS = 200 };

static _Atomic bool stop;
static int end[2];

static void *compute(void *arg)
{
	while (!stop)
		sched_yield();
	return arg;
}

static void *read_end(void *arg)
{
	struct pollfd fd = { .fd = end[0], .events = POLLHUP };

	while (poll(&fd, 1, -1) < 0)
		assert_int_equal(errno, EINTR);
	return arg;
}

static _Atomic bool woken;

static void wake(void *arg)
{
	woken = true;
}

static void *attend(void *arg)
{
	while (!stop) {
		if (atomic_exchange(&woken, false))
			vb_thread_attend();
		usleep(100);
	}
	return arg;
}

static _Atomic int acted;

static void act(void *arg)
{
	assert_ptr_equal(arg, &acted);
	errno = EXDEV; /* of the thread, which does not notice */
	acted++;
}

static void *come_and_go(void *arg)
{
	pthread_t thread;

	while (!stop) {
		assert_int_equal(vb_thread_start(&thread, NULL, read_end, NULL), 0);
		pthread_detach(thread);
		usleep(1000);
	}
	return arg;
}

static void all_act(void **state)
{
	static const struct vb_thread_attr attends = { .wake = wake };
	static const struct {
		void *(*run)(void *arg);
		const struct vb_thread_attr *attr;
	} kind[KINDS] = { { compute, NULL }, { read_end, NULL }, { attend, &attends } };
	pthread_t thread[KINDS], other;
	int status;
	pid_t pid;

	assert_int_equal(vb_fault_arm(), 0);
	assert_int_equal(pipe(end), 0);
	assert_false(vb_thread_reachable());
	assert_true(vb_thread_program_has_one());
	for (int i = 0; i < KINDS; i++)
		assert_int_equal(vb_thread_start(&thread[i], kind[i].attr, kind[i].run, &thread[i]),
				 0);
	assert_true(vb_thread_reachable());
	for (int i = 0; i < ROUNDS; i++) {
		acted = 0;
		assert_true(vb_thread_run_in_all(act, &acted));
		assert_int_equal(acted, KINDS);
	}
	pid = fork();
	if (!pid)
		_exit(vb_thread_reachable());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(pthread_create(&other, NULL, come_and_go, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		acted = 0;
		assert_true(vb_thread_run_in_all(act, &acted));
		assert_true(acted >= KINDS);
	}
	stop = true;
	pthread_join(other, NULL);
	close(end[1]);
	for (int i = 0; i < KINDS; i++) {
		void *result;

		pthread_join(thread[i], &result);
		assert_ptr_equal(result, &thread[i]);
	}
}

/* A handler that the program installed past us would take the signal for a fault. */
static void another_handler(void **state)
{
	struct sigaction before, other = { .sa_handler = SIG_IGN };
	pthread_t thread;

	stop = false;
	assert_int_equal(vb_fault_arm(), 0);
	assert_int_equal(vb_thread_start(&thread, NULL, compute, NULL), 0);
	assert_int_equal(sigaction(SIGSEGV, &other, &before), 0);
	acted = 0;
	assert_false(vb_thread_run_in_all(act, &acted));
	assert_int_equal(acted, 0);
	assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
	assert_true(vb_thread_run_in_all(act, &acted));
	assert_true(acted >= 1);
	stop = true;
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_act),
		cmocka_unit_test(another_handler),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
