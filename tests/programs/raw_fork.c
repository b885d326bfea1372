// SPDX-License-Identifier: MIT
/* Threads of the parent make flows when it forks: what they had locked does not stop the child. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "station.h"

enum { THREADS = 2, CHILDREN = 16 };

static atomic_bool done;

static void *make_and_end(void *arg)
{
	while (!atomic_load_explicit(&done, memory_order_relaxed))
		check_eq(ibv_destroy_flow(flow_all(arg)), 0);
	return NULL;
}

static void child(void)
{
	struct station own;

	station_open(&own, "mlx5_0");
	check_eq(ibv_destroy_flow(flow_all(own.qp)), 0);
	station_close(&own);
	_exit(0);
}

int main(void)
{
	pthread_t thread[THREADS];
	struct station parent;
	int status;

#ifdef __SANITIZE_ADDRESS__
	/* Its own allocator does not know forks: a child hangs there on a lock of its parent's threads. */
	test_skip("no fork under threads with AddressSanitizer");
#endif
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	station_open(&parent, "mlx5_0");
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_create(&thread[i], NULL, make_and_end, parent.qp), 0);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		check(pid >= 0);
		if (!pid)
			child();
		check_eq(waitpid(pid, &status, 0), pid);
		check_eq(status, 0);
	}
	atomic_store_explicit(&done, true, memory_order_relaxed);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	station_close(&parent);
	return 0;
}
