// SPDX-License-Identifier: MIT
/*
 * Owns the system calls that wait, and the same waits in a replaced time; see time.h.
 *
 * In a replaced time a wait has no time-out of the kernel's: the time itself wakes the sleeper. A futex and a condition are
 * woken as their own wakers do it, which callers must expect at any moment anyway; a poll gets one more descriptor.
 */
#include "base/time.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"

struct vb_time *_Atomic vb_time_replaced;

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
}

/* --- ticks ------------------------------------------------------------------------------------ */

static pthread_once_t ticks_once = PTHREAD_ONCE_INIT;
static uint64_t first_ticks, first_ns; /* of this machine: a process needs one pair */

static void ticks_start(void)
{
	first_ns = vb_machine_ns();
	first_ticks = vb_ticks();
}

void vb_ticks_begin(void)
{
	pthread_once(&ticks_once, ticks_start);
}

uint64_t vb_ticks_to_ns(uint64_t ticks)
{
	uint64_t ns = vb_machine_ns() - first_ns, passed = vb_ticks() - first_ticks;

	return passed ? (uint64_t)((double)ticks * (double)ns / (double)passed) : 0;
}

/*
 * A thread that loses the processor between two looks has two moments: the shortest of some tries counts, and one that is
 * short enough ends them.
 */
void vb_ticks_moment(uint64_t *ticks, uint64_t *ns)
{
	uint64_t best = UINT64_MAX;

	*ticks = *ns = 0;
	for (int i = 0; i < 16 && best > 2000; i++) {
		uint64_t before = vb_machine_ns(), at = vb_ticks();
		uint64_t took = vb_machine_ns() - before;

		if (took >= best)
			continue;
		best = took;
		*ticks = at;
		*ns = before + took / 2;
	}
}

/* --- futexes ---------------------------------------------------------------------------------- */

struct futex_sleeper {
	struct vb_sleeper sleeper;
	void *word;
	uint32_t value;
	enum vb_futex kind;
	int ret;
};

static int futex_flag(enum vb_futex kind)
{
	return kind == VB_FUTEX_PRIVATE ? FUTEX_PRIVATE_FLAG : 0;
}

/*
 * left: NULL waits without end. Not FUTEX_WAIT_BITSET, which has an absolute deadline: libc waits by that one, so that a
 * filter can tell our waits from the program's.
 */
static int futex_wait(void *word, uint32_t value, enum vb_futex kind, const struct timespec *left)
{
	return syscall(SYS_futex, word, FUTEX_WAIT | futex_flag(kind), value, left, NULL, 0)
		       ? -errno
		       : 0;
}

void vb_futex_wake(void *word, int count, enum vb_futex kind)
{
	syscall(SYS_futex, word, FUTEX_WAKE | futex_flag(kind), count, NULL, NULL, 0);
}

static void futex_block(struct vb_sleeper *sleeper)
{
	struct futex_sleeper *f = container_of(sleeper, struct futex_sleeper, sleeper);

	f->ret = futex_wait(f->word, f->value, f->kind, NULL);
}

static void futex_rouse(struct vb_sleeper *sleeper)
{
	struct futex_sleeper *f = container_of(sleeper, struct futex_sleeper, sleeper);

	vb_futex_wake(f->word, INT_MAX, f->kind);
}

static bool futex_is_ready(struct vb_sleeper *sleeper)
{
	struct futex_sleeper *f = container_of(sleeper, struct futex_sleeper, sleeper);

	return atomic_load_explicit((_Atomic uint32_t *)f->word, memory_order_relaxed) != f->value;
}

static int futex_wait_replaced(struct vb_time *time, void *word, uint32_t value, enum vb_futex kind,
			       uint64_t until)
{
	struct futex_sleeper f = {
		.sleeper = { until, futex_block, futex_rouse, futex_is_ready },
		.word = word,
		.value = value,
		.kind = kind,
	};

	return time->ops->wait(time, &f.sleeper) ? -ETIMEDOUT : f.ret;
}

int vb_futex_wait_until(struct vb_time *time, void *word, uint32_t value, enum vb_futex kind,
			uint64_t until)
{
	struct timespec left;
	uint64_t now;

	if (__builtin_expect(time != NULL, 0))
		return futex_wait_replaced(time, word, value, kind, until);
	if (until == VB_NEVER)
		return futex_wait(word, value, kind, NULL);
	now = vb_machine_ns();
	left = timespec_of(until > now ? until - now : 0);
	return futex_wait(word, value, kind, &left);
}

/* --- sleeps ----------------------------------------------------------------------------------- */

void vb_pause_ns(uint64_t ns)
{
	struct timespec ts = timespec_of(ns);

	syscall(SYS_nanosleep, &ts, NULL);
}

struct nap {
	struct vb_sleeper sleeper;
	_Atomic uint32_t over;
};

static void nap_block(struct vb_sleeper *sleeper)
{
	struct nap *nap = container_of(sleeper, struct nap, sleeper);

	futex_wait(&nap->over, 0, VB_FUTEX_PRIVATE, NULL);
}

static void nap_end(struct vb_sleeper *sleeper)
{
	struct nap *nap = container_of(sleeper, struct nap, sleeper);

	atomic_store_explicit(&nap->over, 1, memory_order_relaxed);
	vb_futex_wake(&nap->over, 1, VB_FUTEX_PRIVATE);
}

void vb_sleep_until(struct vb_time *time, uint64_t until)
{
	struct nap nap = { .sleeper = { .until = until, .block = nap_block, .wake = nap_end } };
	uint64_t now;

	if (__builtin_expect(time != NULL, 0)) {
		time->ops->wait(time, &nap.sleeper);
		return;
	}
	now = vb_machine_ns();
	if (until > now)
		vb_pause_ns(until - now);
}

/* --- conditions ------------------------------------------------------------------------------- */

struct cond_sleeper {
	struct vb_sleeper sleeper;
	pthread_cond_t *cond;
	pthread_mutex_t *lock;
};

static void cond_block(struct vb_sleeper *sleeper)
{
	struct cond_sleeper *c = container_of(sleeper, struct cond_sleeper, sleeper);

	pthread_cond_wait(c->cond, c->lock);
}

static void cond_rouse(struct vb_sleeper *sleeper)
{
	struct cond_sleeper *c = container_of(sleeper, struct cond_sleeper, sleeper);

	pthread_cond_broadcast(c->cond);
}

int vb_cond_wait_until(struct vb_time *time, pthread_cond_t *cond, pthread_mutex_t *lock,
		       uint64_t until)
{
	struct cond_sleeper c = { { until, cond_block, cond_rouse, NULL }, cond, lock };
	struct timespec ts = timespec_of(until);

	if (__builtin_expect(time != NULL, 0))
		return time->ops->wait(time, &c.sleeper) ? ETIMEDOUT : 0;
	if (until == VB_NEVER)
		return pthread_cond_wait(cond, lock);
	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &ts);
}

/* --- descriptors ------------------------------------------------------------------------------ */

enum { POLLS = 8 }; /* descriptors of one call without an allocation */

struct poll_sleeper {
	struct vb_sleeper sleeper;
	struct pollfd *fds; /* the caller's, and one to wake by */
	unsigned int count; /* of the caller's */
	const sigset_t *mask;
	int ret, err;
};

/* Not libc's ppoll() where it is not needed: that one is a cancellation point, and interposed. */
static int poll_for(struct pollfd *fds, unsigned int count, uint64_t ns, const sigset_t *mask)
{
	struct timespec ts = timespec_of(ns);

	if (mask)
		return ppoll(fds, count, ns == VB_NEVER ? NULL : &ts, mask);
	return (int)syscall(SYS_ppoll, fds, count, ns == VB_NEVER ? NULL : &ts, NULL, (size_t)0);
}

static void poll_block(struct vb_sleeper *sleeper)
{
	struct poll_sleeper *p = container_of(sleeper, struct poll_sleeper, sleeper);

	p->ret = poll_for(p->fds, p->count + 1, VB_NEVER, p->mask);
	p->err = errno;
	if (p->ret > 0 && p->fds[p->count].revents)
		p->ret--;
}

static void poll_rouse(struct vb_sleeper *sleeper)
{
	struct poll_sleeper *p = container_of(sleeper, struct poll_sleeper, sleeper);

	eventfd_write(p->fds[p->count].fd, 1);
}

static bool poll_is_ready(struct vb_sleeper *sleeper)
{
	struct poll_sleeper *p = container_of(sleeper, struct poll_sleeper, sleeper);
	bool ready = false;

	/* One after the other: the array itself is the sleeping thread's. */
	for (unsigned int i = 0; i < p->count && !ready; i++) {
		struct pollfd fd = { .fd = p->fds[i].fd, .events = p->fds[i].events };

		ready = poll_for(&fd, 1, 0, NULL) > 0;
	}
	return ready;
}

static int poll_wait_replaced(struct vb_time *time, struct pollfd *fds, unsigned int count,
			      uint64_t until, const sigset_t *mask)
{
	struct pollfd few[POLLS + 1];
	struct pollfd *all = count > POLLS ? calloc(count + 1, sizeof(*all)) : few;
	struct poll_sleeper p = {
		{ until, poll_block, poll_rouse, poll_is_ready }, all, count, mask, 0, 0
	};
	int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	eventfd_t rung;
	bool over;

	if (!all || bell < 0) {
		p.err = errno;
		p.ret = -1;
		goto free_all;
	}
	if (count)
		memcpy(all, fds, count * sizeof(*fds));
	all[count] = (struct pollfd){ .fd = bell, .events = POLLIN };
	do {
		eventfd_read(bell, &rung);
		over = time->ops->wait(time, &p.sleeper);
	} while (!over && !p.ret);
	/* What is ready at the deadline counts. */
	if (over && p.ret <= 0) {
		p.ret = poll_for(all, count, 0, mask);
		p.err = errno;
	}
	for (unsigned int i = 0; i < count; i++)
		fds[i].revents = all[i].revents;
free_all:
	if (bell >= 0)
		close(bell);
	if (all != few)
		free(all);
	if (p.ret < 0)
		errno = p.err;
	return p.ret;
}

int vb_poll_until(struct vb_time *time, struct pollfd *fds, unsigned int count, uint64_t until,
		  const sigset_t *mask)
{
	uint64_t now;

	if (__builtin_expect(time != NULL, 0) && until)
		return poll_wait_replaced(time, fds, count, until, mask);
	now = until && until != VB_NEVER ? vb_machine_ns() : 0;
	return poll_for(fds, count,
			until == VB_NEVER ? until
			: until > now     ? until - now
					  : 0,
			mask);
}

int vb_epoll_until(struct vb_time *time, int epoll, struct epoll_event *events, int count,
		   uint64_t until)
{
	struct pollfd fd = { .fd = epoll, .events = POLLIN };
	int ret;

	if (until == VB_NEVER && !time)
		return epoll_wait(epoll, events, count, -1);
	/* The descriptor can be polled, to the nanosecond; another thread may be the first to take what it has. */
	while ((ret = vb_poll_until(time, &fd, 1, until, NULL)) > 0) {
		ret = epoll_wait(epoll, events, count, 0);
		if (ret)
			break;
	}
	return ret;
}
