// SPDX-License-Identifier: MIT
/*
 * Read sections: what one has found is not freed before it ends, with threads that come and go, with handlers of signals, in
 * a forked child, when the kernel begins to refuse membarrier while all of that goes on, with threads that end inside of
 * one, and with more threads than there is memory for.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rcu.h"

enum { READERS = 4, ITEMS = 3000, GOOD = 0x600d, BAD = 0xbad };

struct item {
	_Atomic uint32_t value;
};

static _Atomic(struct item *) current;
static _Atomic bool stop;
static _Atomic uint64_t wrong, looks;

static void look(void)
{
	struct item *item;

	vb_read_lock();
	item = atomic_load_explicit(&current, memory_order_acquire);
	vb_read_lock();
	wrong += atomic_load_explicit(&item->value, memory_order_relaxed) != GOOD;
	vb_read_unlock();
	for (volatile int i = 0; i < 20; i++)
		;
	wrong += atomic_load_explicit(&item->value, memory_order_relaxed) != GOOD;
	vb_read_unlock();
	looks++;
}

static void *read_on(void *arg)
{
	while (!stop)
		look();
	return arg;
}

static void *look_once(void *arg)
{
	look();
	return arg;
}

/* Threads that look once and end. */
static void *come_and_go(void *arg)
{
	while (!stop) {
		pthread_t thread;

		if (!pthread_create(&thread, NULL, look_once, NULL))
			pthread_join(thread, NULL);
	}
	return arg;
}

static void on_alarm(int sig)
{
	(void)sig;
	look();
}

static void replace(struct item *items, unsigned int i)
{
	struct item *old = atomic_load(&current);

	atomic_store(&items[i % 2].value, GOOD);
	atomic_store_explicit(&current, &items[i % 2], memory_order_release);
	vb_read_wait();
	if (old)
		atomic_store(&old->value, BAD);
}

static void refuse_membarrier(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter))
		print_message("no filters of system calls\n");
}

/* A filter that is announced: readers have fences before it is there, and no waiter calls membarrier under it. */
static bool announce(void)
{
	vb_read_give_up_calls();
	return atomic_load(&vb_rcu.fenced) && atomic_load(&vb_rcu.settled);
}

/* 0 where no reader ever saw an item after it was "freed". */
static int churn(bool refuse, bool announced)
{
	static struct item items[2];
	struct itimerval timer = { { 0, 500 }, { 0, 500 } };
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	pthread_t thread[READERS + 1];

	stop = false;
	wrong = looks = 0;
	atomic_store(&current, NULL);
	replace(items, 0);
	for (int i = 0; i < READERS; i++)
		if (pthread_create(&thread[i], NULL, read_on, NULL))
			return 2;
	if (pthread_create(&thread[READERS], NULL, come_and_go, NULL))
		return 2;
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (unsigned int i = 1; i < ITEMS; i++) {
		replace(items, i);
		if (i == ITEMS / 2 && announced && !announce())
			return 3;
		if (i == ITEMS / 2 && refuse)
			refuse_membarrier();
	}
	stop = true;
	for (int i = 0; i <= READERS; i++)
		pthread_join(thread[i], NULL);
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_REAL, &timer, NULL);
	return wrong || !looks || (refuse && !atomic_load(&vb_rcu.fenced)) ? 1 : 0;
}

static void sections(void **state)
{
	(void)state;
	assert_int_equal(churn(false, false), 0);
}

static int in_child(int (*body)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(body());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int churn_refused(void)
{
	return churn(true, false);
}

static int churn_announced(void)
{
	return churn(true, true);
}

static void refused_later(void **state)
{
	(void)state;
	assert_int_equal(in_child(churn_refused), 0);
	assert_int_equal(in_child(churn_announced), 0);
}

static _Atomic bool inside;

static void *stay_inside(void *arg)
{
	vb_read_lock();
	inside = true;
	while (!stop)
		usleep(1000);
	vb_read_unlock();
	return arg;
}

static int wait_once(void)
{
	vb_read_wait();
	return 0;
}

/* A thread of the parent is inside of a section, and not there. */
static void forked(void **state)
{
	pthread_t thread;

	(void)state;
	stop = inside = false;
	assert_int_equal(pthread_create(&thread, NULL, stay_inside, NULL), 0);
	while (!inside)
		usleep(1000);
	assert_int_equal(in_child(wait_once), 0);
	stop = true;
	pthread_join(thread, NULL);
	assert_false(vb_read_ongoing());
}

static void *end_inside(void *arg)
{
	vb_read_lock();
	pthread_exit(arg);
}

/* It is over with its thread, and the next that takes its place is in none. */
static void ended_inside(void **state)
{
	pthread_t thread;

	(void)state;
	stop = true;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&thread, NULL, i ? read_on : end_inside, NULL), 0);
		pthread_join(thread, NULL);
		vb_read_wait();
	}
}

enum { CROWD = 16 * VB_READERS + 20 };

static pthread_barrier_t filled;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static _Atomic int inside_count, may_end;

static void *join_crowd(void *arg)
{
	pthread_barrier_wait(&filled);
	vb_read_lock();
	vb_read_unlock();
	inside_count++;
	pthread_mutex_lock(&held);
	while (!may_end)
		pthread_cond_wait(&released, &held);
	pthread_mutex_unlock(&held);
	return arg;
}

/* All threads are there when memory ends. Those that find no place get that of another when it has ended. */
static int crowd(void)
{
	struct rlimit none = { 0, RLIM_INFINITY };
	static pthread_t thread[CROWD];
	pthread_attr_t attr;

	pthread_barrier_init(&filled, NULL, CROWD + 1);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (int i = 0; i < CROWD; i++)
		if (pthread_create(&thread[i], &attr, join_crowd, NULL))
			return 2;
	getrlimit(RLIMIT_AS, &none);
	none.rlim_cur = 0;
	setrlimit(RLIMIT_AS, &none);
	pthread_barrier_wait(&filled);
	while (inside_count < 15 * VB_READERS)
		usleep(1000);
	vb_read_wait();
	pthread_mutex_lock(&held);
	may_end = 1;
	pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&held);
	for (int i = 0; i < CROWD; i++)
		pthread_join(thread[i], NULL);
	return inside_count == CROWD ? 0 : 1;
}

static void crowded(void **state)
{
	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip(); /* it needs memory itself where threads end */
#endif
	assert_int_equal(in_child(crowd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sections),      cmocka_unit_test(forked),
		cmocka_unit_test(refused_later), cmocka_unit_test(ended_inside),
		cmocka_unit_test(crowded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
