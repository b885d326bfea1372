// SPDX-License-Identifier: MIT
/*
 * Waits of base/time.h in a simulated time: each ends when that time says so, after hours of it that nobody lives through,
 * or when its event comes; and in the machine's time, where deadlines that have passed only look.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/time.h"
#include "sim_time.h"

static const uint64_t hour = 3600ull * 1000000000;
static const uint64_t start = 1000000000;

static struct sim_time sim;

/* What one wait is made of; all kinds have all of it. */
struct bed {
	_Atomic uint32_t word;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool rung;
	int event, epoll;
	uint64_t until;
	int result;
	uint64_t ended; /* the time behind it */
};

/* 0: the event came; ETIMEDOUT: the deadline did. */
typedef int wait_fn(struct vb_time *time, struct bed *bed);

static int wait_futex(struct vb_time *time, struct bed *bed)
{
	int ret = 0;

	while (!ret && !atomic_load(&bed->word))
		ret = vb_futex_wait_until(time, &bed->word, 0, VB_FUTEX_PRIVATE, bed->until);
	return ret == -EAGAIN ? 0 : -ret;
}

static int wait_shared_futex(struct vb_time *time, struct bed *bed)
{
	int ret = 0;

	while (!ret && !atomic_load(&bed->word))
		ret = vb_futex_wait_until(time, &bed->word, 0, VB_FUTEX_SHARED, bed->until);
	return ret == -EAGAIN ? 0 : -ret;
}

static int wait_cond(struct vb_time *time, struct bed *bed)
{
	int ret = 0;

	pthread_mutex_lock(&bed->lock);
	while (!ret && !bed->rung)
		ret = vb_cond_wait_until(time, &bed->cond, &bed->lock, bed->until);
	pthread_mutex_unlock(&bed->lock);
	return ret;
}

static int wait_poll(struct vb_time *time, struct bed *bed)
{
	struct pollfd fds[] = { { .fd = -1 }, { .fd = bed->event, .events = POLLIN } };
	int n = vb_poll_until(time, fds, 2, bed->until, NULL);

	assert_int_equal(n > 0, fds[1].revents == POLLIN);
	return n < 0 ? errno : n ? 0 : ETIMEDOUT;
}

/* More of them than there are on the stack of a wait. */
static int wait_poll_many(struct vb_time *time, struct bed *bed)
{
	struct pollfd fds[64];
	int n;

	for (unsigned int i = 0; i < 64; i++)
		fds[i] = (struct pollfd){ .fd = bed->event, .events = POLLIN };
	n = vb_poll_until(time, fds, 64, bed->until, NULL);
	assert_true(n == 0 || n == 64);
	return n ? 0 : ETIMEDOUT;
}

static int wait_epoll(struct vb_time *time, struct bed *bed)
{
	struct epoll_event event;
	int n = vb_epoll_until(time, bed->epoll, &event, 1, bed->until);

	assert_true(n <= 0 || event.data.fd == bed->event);
	return n < 0 ? errno : n ? 0 : ETIMEDOUT;
}

static int wait_sleep(struct vb_time *time, struct bed *bed)
{
	vb_sleep_until(time, bed->until);
	return ETIMEDOUT;
}

static wait_fn *const waits[] = { wait_futex,     wait_shared_futex, wait_cond, wait_poll,
				  wait_poll_many, wait_epoll,        wait_sleep };
enum { WAITS = sizeof(waits) / sizeof(waits[0]), EVENTS = WAITS - 1 }; /* a sleep has no event */

static void bed_open(struct bed *bed)
{
	struct epoll_event event = { .events = EPOLLIN };

	memset(bed, 0, sizeof(*bed));
	pthread_mutex_init(&bed->lock, NULL);
	pthread_cond_init(&bed->cond, NULL);
	bed->event = event.data.fd = eventfd(0, EFD_CLOEXEC);
	bed->epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(bed->epoll, EPOLL_CTL_ADD, bed->event, &event), 0);
}

static void bed_close(struct bed *bed)
{
	close(bed->epoll);
	close(bed->event);
}

/* The event of every kind. */
static void bed_ring(struct bed *bed)
{
	atomic_store(&bed->word, 1);
	vb_futex_wake(&bed->word, 1, VB_FUTEX_PRIVATE);
	vb_futex_wake(&bed->word, 1, VB_FUTEX_SHARED);
	pthread_mutex_lock(&bed->lock);
	bed->rung = true;
	pthread_cond_signal(&bed->cond);
	pthread_mutex_unlock(&bed->lock);
	eventfd_write(bed->event, 1);
}

struct sleep {
	wait_fn *wait;
	struct bed bed;
	pthread_t thread;
};

static void *sleep_main(void *arg)
{
	struct sleep *sleep = arg;

	sleep->bed.result = sleep->wait(vb_time_card(), &sleep->bed);
	sleep->bed.ended = vb_now_ns();
	return NULL;
}

static void sleep_begin(struct sleep *sleep, wait_fn *wait, uint64_t until)
{
	bed_open(&sleep->bed);
	sleep->wait = wait;
	sleep->bed.until = until;
	pthread_create(&sleep->thread, NULL, sleep_main, sleep);
	sim_settle(&sim, 1);
}

static void sleep_join(struct sleep *sleep)
{
	pthread_join(sleep->thread, NULL);
	bed_close(&sleep->bed);
}

static int sim_setup(void **state)
{
	(void)state;
	sim_begin(&sim, start);
	return 0;
}

static int sim_teardown(void **state)
{
	(void)state;
	sim_end(&sim);
	return 0;
}

static void test_deadlines(void **state)
{
	(void)state;
	for (int i = 0; i < WAITS; i++) {
		struct sleep sleep;
		uint64_t now = vb_now_ns();

		sleep_begin(&sleep, waits[i], now + hour);
		sim_move(&sim, hour - 1);
		sim_settle(&sim, 1); /* it waits all the same */
		sim_move(&sim, 1);
		sleep_join(&sleep);
		assert_int_equal(sleep.bed.result, ETIMEDOUT);
		assert_int_equal(sleep.bed.ended, now + hour);
	}
}

static void test_events(void **state)
{
	(void)state;
	for (int i = 0; i < EVENTS; i++) {
		uint64_t untils[] = { vb_now_ns() + hour, VB_NEVER };

		for (int j = 0; j < 2; j++) {
			struct sleep sleep;

			sleep_begin(&sleep, waits[i], untils[j]);
			bed_ring(&sleep.bed);
			sleep_join(&sleep);
			assert_int_equal(sleep.bed.result, 0);
			assert_int_equal(sleep.bed.ended, vb_now_ns());
		}
	}
}

/* In both times a deadline that has passed does not wait; descriptors that are ready still count. */
static void test_passed(void **state)
{
	struct vb_time *times[] = { vb_time_card(), VB_MACHINE_TIME };
	struct bed bed;

	(void)state;
	for (int t = 0; t < 2; t++)
		for (int past = 0; past < 2; past++) {
			bed_open(&bed);
			bed.until = past ? vb_time_now(times[t]) - 1 : 0;
			for (int i = 0; i < WAITS; i++)
				assert_int_equal(waits[i](times[t], &bed), ETIMEDOUT);
			bed_ring(&bed);
			for (int i = 0; i < EVENTS; i++)
				assert_int_equal(waits[i](times[t], &bed), 0);
			bed_close(&bed);
		}
}

/* The machine's time is real whatever the card's is: these come back without anybody who moves a clock. */
static void test_machine(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed);
	for (int i = 0; i < WAITS; i++) {
		bed.until = vb_machine_ns() + 1000000;
		assert_int_equal(waits[i](VB_MACHINE_TIME, &bed), ETIMEDOUT);
		/* A sleep may end early by a signal; here there is none. */
		assert_true(vb_machine_ns() >= bed.until);
	}
	vb_pause_ns(1000);
	bed_close(&bed);
	assert_int_equal(vb_now_ns(), atomic_load(&sim.now));
	assert_int_equal(vb_now_coarse_ns(), vb_now_ns());
	assert_int_equal(vb_wall_ns(), vb_now_ns());
}

/* --- by itself ---------------------------------------------------------------------------------- */

enum { SLEEPERS = 4, NAPS = 6 };

static struct {
	pthread_mutex_t lock;
	unsigned int count;
	struct {
		uint64_t at;
		unsigned int who;
	} line[SLEEPERS * NAPS];
} diary = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A different length for each, and a different kind of wait each time. */
static void *diarist(void *arg)
{
	unsigned int who = (unsigned int)(uintptr_t)arg;
	struct bed bed;

	bed_open(&bed);
	for (unsigned int i = 0; i < NAPS; i++) {
		bed.until = vb_now_ns() + (who + 2) * hour;
		assert_int_equal(waits[(who + i) % WAITS](vb_time_card(), &bed), ETIMEDOUT);
		pthread_mutex_lock(&diary.lock);
		diary.line[diary.count].at = vb_now_ns();
		diary.line[diary.count++].who = who;
		pthread_mutex_unlock(&diary.lock);
	}
	bed.until = VB_NEVER; /* until the test ends it: it still counts as one that waits */
	wait_futex(vb_time_card(), &bed);
	bed_close(&bed);
	return NULL;
}

static void test_runs_by_itself(void **state)
{
	pthread_t threads[SLEEPERS];
	uint64_t begun = vb_now_ns(), before = begun;
	unsigned int seen[SLEEPERS] = { 0 };

	(void)state;
	sim_run(&sim, SLEEPERS + 1);
	for (uintptr_t i = 0; i < SLEEPERS; i++)
		pthread_create(&threads[i], NULL, diarist, (void *)i);
	vb_sleep_ns(100 * hour);
	assert_int_equal(vb_now_ns(), begun + 100 * hour);
	assert_int_equal(diary.count, SLEEPERS * NAPS);
	for (unsigned int i = 0; i < diary.count; i++) {
		unsigned int who = diary.line[i].who;

		assert_true(diary.line[i].at >= before);
		before = diary.line[i].at;
		assert_int_equal(before, begun + ++seen[who] * (who + 2) * hour);
	}
	sim_end(&sim);
	for (unsigned int i = 0; i < SLEEPERS; i++)
		pthread_join(threads[i], NULL);
	sim_begin(&sim, start);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadlines),      cmocka_unit_test(test_events),
		cmocka_unit_test(test_passed),         cmocka_unit_test(test_machine),
		cmocka_unit_test(test_runs_by_itself),
	};

	return cmocka_run_group_tests(tests, sim_setup, sim_teardown);
}
