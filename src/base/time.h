/* SPDX-License-Identifier: MIT */
/*
 * Owns time: all clocks, sleeps and time-outs of src/. No other file reads a clock or waits with a time-out; the few that
 * have to are in the table of tests/abi/times.py, each with its reason.
 *
 * There are two times:
 *
 *	the card's     timers, periods and timestamps of cards, links and device code, time-outs of their calls.
 *	               vb_now_ns(), and waits of vb_time_card(). A test or a simulation can replace it (struct vb_time)
 *	               before the first device is opened.
 *	the machine's  everything about this machine: how long its threads spin, how long another process holds a lock,
 *	               how long its processor worked. vb_machine_ns(), vb_pause_ns(), vb_ticks(), and waits of
 *	               VB_MACHINE_TIME. Always real.
 *
 * Both are monotonic nanoseconds, the same on every CPU and in every process of the host, and the same number unless the
 * card's is replaced. Deadlines are absolute: VB_NEVER waits without end, and one that has passed (0, at the latest) only
 * looks.
 *
 * A replaced time learns of each wait by its operation wait(), and decides when the deadline has come:
 *
 *	vb_futex_wait_until()                              struct vb_time
 *	vb_cond_wait_until()     --> struct vb_sleeper --> wait(): block() by the thread itself,
 *	vb_poll_until() ...                                        wake() by another thread at the deadline
 */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/public.h"

struct epoll_event;

#define VB_NEVER UINT64_MAX

/* One thread that waits, as a replaced time sees it. Valid until wait() returns. */
struct vb_sleeper {
	uint64_t until; /* of that time; VB_NEVER */
	/* Wait for the event without a time-out; by the thread itself. May return early. */
	void (*block)(struct vb_sleeper *sleeper);
	/*
	 * Make block() return; by any thread. It is lost on a thread that has not begun to block: call it again
	 * until wait() has seen block() return.
	 */
	void (*wake)(struct vb_sleeper *sleeper);
	/* By any thread: the event has come, block() is about to return. NULL: that cannot be seen from outside. */
	bool (*ready)(struct vb_sleeper *sleeper);
};

struct vb_time;

struct vb_time_ops {
	uint64_t (*now)(struct vb_time *time); /* any thread, also in signal handlers */
	/* Return when block() has returned; true: the deadline has come. NULL: nothing waits in this time. */
	bool (*wait)(struct vb_time *time, struct vb_sleeper *sleeper);
};

struct vb_time {
	const struct vb_time_ops *ops;
};

#define VB_MACHINE_TIME ((struct vb_time *)NULL)

extern VB_PUBLIC struct vb_time *_Atomic vb_time_replaced; /* NULL: the machine's time */

static inline struct vb_time *vb_time_card(void)
{
	return atomic_load_explicit(&vb_time_replaced, memory_order_acquire);
}

/* --- clocks ----------------------------------------------------------------------------------- */

static inline uint64_t vb_clock_read(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t vb_machine_ns(void)
{
	return vb_clock_read(CLOCK_MONOTONIC);
}

static inline uint64_t vb_time_now(struct vb_time *time)
{
	return __builtin_expect(time != NULL, 0) ? time->ops->now(time) : vb_machine_ns();
}

static inline uint64_t vb_now_ns(void)
{
	return vb_time_now(vb_time_card());
}

/* A few milliseconds behind, at a quarter of the price. */
static inline uint64_t vb_now_coarse_ns(void)
{
	struct vb_time *time = vb_time_card();

	return __builtin_expect(time != NULL, 0) ? time->ops->now(time)
						 : vb_clock_read(CLOCK_MONOTONIC_COARSE);
}

/* Since 1970. A replaced time begins there. */
static inline uint64_t vb_wall_ns(void)
{
	struct vb_time *time = vb_time_card();

	return __builtin_expect(time != NULL, 0) ? time->ops->now(time)
						 : vb_clock_read(CLOCK_REALTIME);
}

/* --- ticks: how long the machine worked ------------------------------------------------------- */

/*
 * Of the processor's own counter where it has one that all CPUs and programs of the host see alike, else nanoseconds of
 * the machine: cheap enough around a slice of a hundred instructions.
 */
static inline uint64_t vb_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return vb_machine_ns();
#endif
}

VB_PUBLIC void vb_ticks_begin(void); /* before the first tick that is turned into ns */
/* At the rate since vb_ticks_begin(): exact enough soon after. */
VB_PUBLIC uint64_t vb_ticks_to_ns(uint64_t ticks);
/* One moment in ticks and in ns of the machine. */
VB_PUBLIC void vb_ticks_moment(uint64_t *ticks, uint64_t *ns);

/* --- waits ------------------------------------------------------------------------------------ */

/*
 * time: vb_time_card() or VB_MACHINE_TIME; `until` is one of its. The card may be in the middle of its work, so sleeps, futexes and
 * polls without a mask are no cancellation points.
 */

/* A signal may cut it short. */
VB_PUBLIC void vb_sleep_until(struct vb_time *time, uint64_t until);

/* In the card's time. */
static inline void vb_sleep_ns(uint64_t ns)
{
	struct vb_time *time = vb_time_card();

	vb_sleep_until(time, vb_time_now(time) + ns);
}

/*
 * In the machine's time: before the next look at what another thread or process of this machine does. A signal may cut it
 * short.
 */
VB_PUBLIC void vb_pause_ns(uint64_t ns);

enum vb_futex { VB_FUTEX_PRIVATE, VB_FUTEX_SHARED }; /* SHARED: other processes wait or wake, too */

/* Sleep while the word is `value`. 0 (perhaps early), -EAGAIN, -EINTR or -ETIMEDOUT. */
VB_PUBLIC int vb_futex_wait_until(struct vb_time *time, void *word, uint32_t value,
				  enum vb_futex kind, uint64_t until);
VB_PUBLIC void vb_futex_wake(void *word, int count, enum vb_futex kind);

/* As pthread_cond_timedwait(3): 0 (perhaps early) or ETIMEDOUT. The clock of the condition's attributes does not count. */
VB_PUBLIC int vb_cond_wait_until(struct vb_time *time, pthread_cond_t *cond, pthread_mutex_t *lock,
				 uint64_t until);

/* As ppoll(2); mask may be NULL. */
VB_PUBLIC int vb_poll_until(struct vb_time *time, struct pollfd *fds, unsigned int count,
			    uint64_t until, const sigset_t *mask);

/* As epoll_wait(2). */
int vb_epoll_until(struct vb_time *time, int epoll, struct epoll_event *events, int count,
		   uint64_t until);
