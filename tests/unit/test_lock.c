// SPDX-License-Identifier: MIT
/* The lock of a queue: exclusion between threads, and what a forked child inherits. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/lock.h"

enum { THREADS = 4, ROUNDS = 20000 };

static struct vb_lock lock;
static unsigned int counter;

static void *count(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		vb_lock(&lock);
		counter++;
		vb_unlock(&lock);
	}
	return arg;
}

static void count_with_threads(void)
{
	pthread_t thread[THREADS];

	counter = 0;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, count, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

static void excludes(void **state)
{
	(void)state;
	count_with_threads();
	assert_int_equal(counter, THREADS * ROUNDS);
	assert_true(vb_trylock(&lock));
	assert_false(vb_trylock(&lock));
	vb_unlock(&lock);
	assert_true(vb_trylock(&lock));
	vb_unlock(&lock);
}

static int run_child(int depth)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return 99;
	if (pid == 0) {
		alarm(20); /* a lock that is never given back */
		vb_lock(&lock);
		if (vb_trylock(&lock))
			_exit(1); /* it is ours, and held like any other */
		if (depth && run_child(depth - 1))
			_exit(2);
		vb_unlock(&lock);
		count_with_threads();
		_exit(counter == THREADS * ROUNDS ? 0 : 3);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void *hold(void *arg)
{
	pthread_barrier_t *barrier = arg;

	vb_lock(&lock);
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	vb_unlock(&lock);
	return NULL;
}

/* Held by another thread at the fork; and held by the child itself when it has a child of its own. */
static void child_inherits(void **state)
{
	pthread_barrier_t barrier;
	pthread_t thread;

	(void)state;
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, hold, &barrier);
	pthread_barrier_wait(&barrier);
	assert_int_equal(run_child(1), 0);
	/* What the child did is its own: here the thread still has the lock. */
	assert_false(vb_trylock(&lock));
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	assert_true(vb_trylock(&lock));
	vb_unlock(&lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(excludes),
		cmocka_unit_test(child_inherits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
