// SPDX-License-Identifier: MIT
/*
 * The simulated time; see sim_time.h.
 */
#include "sim_time.h"

#include <sched.h>
#include <string.h>

/* One wait, on the stack of its thread; under the lock. */
struct sim_wait {
	struct vb_sleeper *sleeper;
	struct sim_wait *next, **link;
};

static struct sim_time *sim_of(struct vb_time *time)
{
	return (struct sim_time *)time;
}

static uint64_t sim_now(struct vb_time *time)
{
	return atomic_load(&sim_of(time)->now);
}

static bool sim_is_over(struct sim_time *sim, const struct vb_sleeper *sleeper)
{
	return sim->ended || sleeper->until <= atomic_load(&sim->now);
}

static void wait_add(struct sim_time *sim, struct sim_wait *wait)
{
	wait->next = sim->asleep;
	wait->link = &sim->asleep;
	if (wait->next)
		wait->next->link = &wait->next;
	sim->asleep = wait;
	sim->count++;
	pthread_cond_broadcast(&sim->changed);
}

static void wait_remove(struct sim_time *sim, struct sim_wait *wait)
{
	*wait->link = wait->next;
	if (wait->next)
		wait->next->link = wait->link;
	sim->count--;
	pthread_cond_broadcast(&sim->changed);
}

static bool sim_wait(struct vb_time *time, struct vb_sleeper *sleeper)
{
	struct sim_time *sim = sim_of(time);
	struct sim_wait wait = { .sleeper = sleeper };
	bool over;

	pthread_mutex_lock(&sim->lock);
	over = sim_is_over(sim, sleeper);
	if (!over) {
		wait_add(sim, &wait);
		pthread_mutex_unlock(&sim->lock);
		sleeper->block(sleeper);
		pthread_mutex_lock(&sim->lock);
		over = sim_is_over(sim, sleeper);
		wait_remove(sim, &wait);
	}
	pthread_mutex_unlock(&sim->lock);
	return over;
}

static const struct vb_time_ops sim_ops = { .now = sim_now, .wait = sim_wait };

/*
 * Under the lock: wake those whose time or event has come. True: there are some, which are about to come back; a wake may
 * have been lost on one that had not begun to block, so that the caller tries again.
 */
static bool sim_rouse(struct sim_time *sim)
{
	bool any = false;

	for (struct sim_wait *wait = sim->asleep; wait; wait = wait->next) {
		struct vb_sleeper *sleeper = wait->sleeper;

		if (sim_is_over(sim, sleeper) || (sleeper->ready && sleeper->ready(sleeper))) {
			sleeper->wake(sleeper);
			any = true;
		}
	}
	return any;
}

/* Under the lock, which others get in between. */
static void sim_yield(struct sim_time *sim)
{
	pthread_mutex_unlock(&sim->lock);
	sched_yield();
	pthread_mutex_lock(&sim->lock);
}

static uint64_t sim_next(const struct sim_time *sim)
{
	uint64_t next = VB_NEVER;

	for (struct sim_wait *wait = sim->asleep; wait; wait = wait->next)
		if (wait->sleeper->until < next)
			next = wait->sleeper->until;
	return next;
}

static void *sim_drive(void *arg)
{
	struct sim_time *sim = arg;
	uint64_t next;

	pthread_mutex_lock(&sim->lock);
	while (!sim->ended) {
		if (!sim->threads || sim->count < sim->threads) {
			pthread_cond_wait(&sim->changed, &sim->lock);
		} else if (sim_rouse(sim)) {
			sim_yield(sim);
		} else {
			next = sim_next(sim);
			if (next == VB_NEVER)
				pthread_cond_wait(&sim->changed, &sim->lock);
			else
				atomic_store(&sim->now, next);
		}
	}
	pthread_mutex_unlock(&sim->lock);
	return NULL;
}

void sim_begin(struct sim_time *sim, uint64_t now)
{
	memset(sim, 0, sizeof(*sim));
	sim->time.ops = &sim_ops;
	atomic_store(&sim->now, now);
	pthread_mutex_init(&sim->lock, NULL);
	pthread_cond_init(&sim->changed, NULL);
	pthread_create(&sim->driver, NULL, sim_drive, sim);
	atomic_store(&vb_time_replaced, &sim->time);
}

void sim_end(struct sim_time *sim)
{
	atomic_store(&vb_time_replaced, NULL);
	pthread_mutex_lock(&sim->lock);
	sim->ended = true;
	pthread_cond_broadcast(&sim->changed);
	while (sim_rouse(sim))
		sim_yield(sim);
	pthread_mutex_unlock(&sim->lock);
	pthread_join(sim->driver, NULL);
}

void sim_move(struct sim_time *sim, uint64_t ns)
{
	pthread_mutex_lock(&sim->lock);
	atomic_fetch_add(&sim->now, ns);
	while (sim_rouse(sim))
		sim_yield(sim);
	pthread_mutex_unlock(&sim->lock);
}

void sim_run(struct sim_time *sim, unsigned int threads)
{
	pthread_mutex_lock(&sim->lock);
	sim->threads = threads;
	pthread_cond_broadcast(&sim->changed);
	pthread_mutex_unlock(&sim->lock);
}

void sim_settle(struct sim_time *sim, unsigned int threads)
{
	pthread_mutex_lock(&sim->lock);
	while (sim->count != threads || sim_rouse(sim))
		sim_yield(sim);
	pthread_mutex_unlock(&sim->lock);
}
