// SPDX-License-Identifier: MIT
/*
 * Deferred work and alarms by themselves: what threads leave to themselves and to each other is done, what was removed is
 * not, and who sleeps until the next alarm is told the right time.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/time.h"
#include "base/rcu.h"
#include "base/util.h"
#include "card/alarm.h"
#include "card/burst.h"
#include "card/card.h"
#include "card/deferred.h"

/* --- deferred work ------------------------------------------------------------------------------------------------------ */

enum { ITEMS = 32, THREADS = 4, ROUNDS = 20000, REMOVALS = 100 };

struct item {
	struct vb_deferred deferred; /* first */
	_Atomic uint64_t wanted, done;
	_Atomic bool removed;
};

static struct item items[ITEMS];
static _Atomic(struct item *) table[ITEMS]; /* as the card finds its queues */
static _Atomic uint64_t late;               /* runs after the removal */
static _Atomic bool stop;

static void run(struct vb_deferred *deferred, uint32_t due)
{
	struct item *item = container_of(deferred, struct item, deferred);

	assert_true(due);
	if (atomic_load(&item->removed))
		atomic_fetch_add(&late, 1);
	/* All that was wanted before it was deferred is seen here. */
	atomic_store(&item->done, atomic_load(&item->wanted));
	if (due & 2)
		vb_defer_blocked(deferred, 4); /* found no room, once */
}

static void defer_one(uint64_t *random)
{
	struct item *item;

	*random = *random * 6364136223846793005u + 1442695040888963407u;
	vb_read_lock();
	item = atomic_load(&table[(*random >> 33) % ITEMS]);
	if (item) {
		atomic_fetch_add(&item->wanted, 1);
		vb_defer(&item->deferred, 1 + (*random >> 60 & 1));
	}
	/* A thread that left work alone leaves it to the others. */
	if (*random >> 61 & 1)
		vb_deferred_run(vb_card_program(), *random >> 62 & 1);
	vb_read_unlock();
}

static void *defer_many(void *arg)
{
	uint64_t random = (uintptr_t)arg + 1;

	for (int i = 0; i < ROUNDS; i++)
		defer_one(&random);
	return NULL;
}

static void *defer_on(void *arg)
{
	uint64_t random = (uintptr_t)arg + 1;

	while (!atomic_load(&stop))
		defer_one(&random);
	return NULL;
}

static void start(pthread_t *threads, void *(*body)(void *))
{
	for (int i = 0; i < ITEMS; i++) {
		vb_deferred_init(&items[i].deferred, vb_card_program(), run);
		atomic_store(&table[i], &items[i]);
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, body, (void *)i), 0);
}

static void join(pthread_t *threads)
{
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void test_all_is_done(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	start(threads, defer_many);
	join(threads);
	vb_read_lock();
	for (int i = 0; vb_deferred_pending(vb_card_program(), true) != VB_PENDING_NONE; i++) {
		assert_true(i < 3); /* blocked ones once more */
		vb_deferred_run(vb_card_program(), true);
	}
	vb_read_unlock();
	for (int i = 0; i < ITEMS; i++) {
		assert_int_equal(atomic_load(&items[i].deferred.due), 0);
		assert_int_equal(atomic_load(&items[i].done), atomic_load(&items[i].wanted));
	}
}

static struct item *order[ITEMS + 1];
static unsigned int ran;

static void run_share(struct vb_deferred *deferred, uint32_t due)
{
	order[ran++] = container_of(deferred, struct item, deferred);
	if (due & 2)
		vb_defer_rest(deferred, 1); /* not done with one share */
}

/* What has had its share comes one at a time, the one that waits longest first. */
static void test_rest(void **state)
{
	(void)state;
	for (int i = 0; i < ITEMS; i++) {
		vb_deferred_init(&items[i].deferred, vb_card_program(), run_share);
		vb_defer_rest(&items[i].deferred, i ? 1 : 2);
	}
	for (unsigned int i = 0; i < ITEMS + 1; i++) {
		assert_int_equal(vb_deferred_pending(vb_card_program(), true), VB_PENDING_RUNNABLE);
		vb_read_lock();
		vb_deferred_run(vb_card_program(), false);
		assert_int_equal(ran, i);
		vb_deferred_run(vb_card_program(), true);
		vb_read_unlock();
		assert_int_equal(ran, i + 1);
		assert_ptr_equal(order[i], &items[i % ITEMS]);
	}
	assert_int_equal(vb_deferred_pending(vb_card_program(), true), VB_PENDING_NONE);
	for (int i = 0; i < ITEMS; i++)
		vb_deferred_remove(&items[i].deferred);
}

static void test_removal(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	start(threads, defer_on);
	for (int i = 0; i < REMOVALS; i++) {
		struct item *item = &items[i % ITEMS];

		atomic_store(&table[i % ITEMS], NULL);
		vb_deferred_remove(&item->deferred);
		atomic_store(&item->removed, true);
		sched_yield();
		atomic_store(&item->removed, false);
		vb_deferred_init(&item->deferred, vb_card_program(), run);
		atomic_store(&table[i % ITEMS], item);
	}
	atomic_store(&stop, true);
	join(threads);
	assert_int_equal(atomic_load(&late), 0);
	for (int i = 0; i < ITEMS; i++)
		vb_deferred_remove(&items[i].deferred);
	assert_int_equal(vb_deferred_pending(vb_card_program(), true), VB_PENDING_NONE);
}

/* --- alarms ------------------------------------------------------------------------------------------------------------- */

struct queue {
	struct vb_lock lock;
	struct vb_alarm alarm;
	uint64_t due; /* under the lock; 0: nothing */
	_Atomic uint64_t looks;
};

static uint64_t next_during_look;

static bool look(struct vb_alarm *alarm, uint64_t now, uint64_t *next)
{
	struct queue *queue = container_of(alarm, struct queue, alarm);

	atomic_fetch_add(&queue->looks, 1);
	next_during_look = vb_alarm_next(vb_card_program());
	if (queue->due && now < queue->due) {
		vb_sooner(next, queue->due);
		return true;
	}
	queue->due = 0;
	return false;
}

static void set(struct queue *queue, uint64_t due)
{
	vb_read_lock();
	vb_burst_begin(vb_card_program());
	vb_lock(&queue->lock);
	queue->due = due;
	vb_alarm_set(&queue->alarm, due);
	vb_unlock(&queue->lock);
	vb_burst_end();
	vb_read_unlock();
}

static void run_alarms(void)
{
	vb_read_lock();
	vb_burst_begin(vb_card_program());
	vb_alarm_run(vb_card_program());
	vb_burst_end();
	vb_read_unlock();
}

static _Atomic uint64_t test_now = 1000;

static uint64_t read_now(struct vb_time *time)
{
	(void)time;
	return atomic_load(&test_now);
}

static const struct vb_time_ops test_time_ops = { .now = read_now };
static struct vb_time test_time = { &test_time_ops };

static void test_next_alarm(void **state)
{
	struct queue queue = {
		.alarm = { .card = vb_card_program(), .lock = &queue.lock, .look = look }
	};

	(void)state;
	atomic_store(&vb_time_replaced, &test_time);
	assert_true(vb_alarm_next(vb_card_program()) == UINT64_MAX);
	set(&queue, 5000);
	assert_int_equal(vb_alarm_next(vb_card_program()), 5000);
	run_alarms();
	assert_int_equal(queue.looks, 0);
	set(&queue, 2000);
	assert_int_equal(vb_alarm_next(vb_card_program()), 2000);
	queue.due = 9000; /* put off; the alarm finds out */
	atomic_store(&test_now, 2000);
	run_alarms();
	assert_int_equal(queue.looks, 1);
	assert_int_equal(vb_alarm_next(vb_card_program()), 9000);
	/* While one thread looks, another must not take it that nothing is set: it would sleep over the time to come. */
	assert_true(next_during_look != UINT64_MAX);
	atomic_store(&test_now, 9000);
	run_alarms();
	assert_int_equal(queue.looks, 2);
	assert_true(vb_alarm_next(vb_card_program()) == UINT64_MAX);
	set(&queue, 20000);
	vb_lock(&queue.lock);
	vb_alarm_clear(&queue.alarm);
	vb_unlock(&queue.lock);
	atomic_store(&test_now, 30000);
	run_alarms();
	assert_int_equal(queue.looks, 2);
	atomic_store(&vb_time_replaced, NULL);
}

/* Threads set alarms that are due at once, and look by themselves: afterwards there is none that was not looked at. */
static struct queue queues[ITEMS];

static void *set_many(void *arg)
{
	uint64_t random = (uintptr_t)arg + 1;

	for (int i = 0; i < ROUNDS; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		set(&queues[(random >> 33) % ITEMS], 1);
		if (random >> 61 & 1)
			run_alarms();
	}
	return NULL;
}

static void test_no_alarm_is_lost(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < ITEMS; i++)
		queues[i].alarm = (struct vb_alarm){ .card = vb_card_program(),
						     .lock = &queues[i].lock,
						     .look = look };
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, set_many, (void *)i), 0);
	join(threads);
	/* A queue that was in use when it was looked at comes a little later. */
	while (vb_alarm_next(vb_card_program()) != UINT64_MAX)
		run_alarms();
	for (int i = 0; i < ITEMS; i++) {
		assert_int_equal(queues[i].due, 0);
		assert_false(queues[i].alarm.set);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_is_done),      cmocka_unit_test(test_rest),
		cmocka_unit_test(test_removal),          cmocka_unit_test(test_next_alarm),
		cmocka_unit_test(test_no_alarm_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
