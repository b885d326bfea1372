// SPDX-License-Identifier: MIT
/*
 * Owns the wake word's futex, and the thread that waits for descriptors. See wait.h.
 */
#include "host/wait.h"
#include "base/cancel.h"
#include "base/time.h"
#include "host/thread.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

void vb_wait_init(struct vb_wait *wait, void (*wake)(void *arg), void *arg)
{
	*wait = (struct vb_wait){ .wake = wake, .arg = arg, .epoll = -1, .stop = -1 };
	pthread_mutex_init(&wait->lock, NULL);
}

void vb_wait_sleep(struct vb_wait *wait, uint32_t value, uint64_t until)
{
	vb_futex_wait_until(vb_time_card(), wait->word, value, VB_FUTEX_SHARED, until);
}

void vb_wait_wake(struct vb_wait *wait)
{
	vb_futex_wake(wait->word, 1, VB_FUTEX_SHARED);
}

/* --- descriptors ------------------------------------------------------------------------------ */

/* A descriptor is reported once, and then not before it is armed again. */
static int wait_arm(struct vb_wait *wait, int op, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.fd = fd };

	return epoll_ctl(wait->epoll, op, fd, &event) ? -errno : 0;
}

static void *wait_watch(void *arg)
{
	struct vb_wait *wait = arg;
	struct epoll_event event;

	prctl(PR_SET_NAME, "verbatim-wait");
	for (;;) {
		if (vb_epoll_until(vb_time_card(), wait->epoll, &event, 1, VB_NEVER) != 1)
			continue;
		if (event.data.fd == wait->stop)
			return NULL;
		pthread_mutex_lock(&wait->lock);
		wait->ready[wait->num_ready++] = event.data.fd;
		pthread_mutex_unlock(&wait->lock);
		wait->wake(wait->arg);
	}
}

/* With the lock: the first descriptor brings the thread. */
static int wait_start(struct vb_wait *wait)
{
	int ret;

	wait->epoll = epoll_create1(EPOLL_CLOEXEC);
	wait->stop = eventfd(0, EFD_CLOEXEC);
	ret = wait->epoll < 0 || wait->stop < 0 ? -errno
						: wait_arm(wait, EPOLL_CTL_ADD, wait->stop);
	if (ret)
		goto close;
	ret = vb_thread_start(&wait->watcher, NULL, wait_watch, wait);
	if (!ret)
		return 0;
close:
	if (wait->epoll >= 0)
		close(wait->epoll);
	if (wait->stop >= 0)
		close(wait->stop);
	wait->epoll = wait->stop = -1;
	return ret;
}

void vb_wait_destroy(struct vb_wait *wait)
{
	VB_NO_CANCEL;
	if (wait->epoll >= 0) {
		eventfd_write(wait->stop, 1);
		pthread_join(wait->watcher, NULL);
		close(wait->epoll);
		close(wait->stop);
	}
	free(wait->ready);
	pthread_mutex_destroy(&wait->lock);
	wait->ready = NULL;
	wait->epoll = wait->stop = -1;
}

int vb_wait_add(struct vb_wait *wait, int fd)
{
	VB_NO_CANCEL;
	int *ready;
	int ret = 0;

	pthread_mutex_lock(&wait->lock);
	/*
	 * Each descriptor is among the ready ones at most once, so that the watcher always has
	 * room.
	 */
	ready = realloc(wait->ready, (wait->num_fds + 1) * sizeof(*ready));
	if (!ready) {
		ret = -ENOMEM;
		goto unlock;
	}
	wait->ready = ready;
	if (wait->epoll < 0)
		ret = wait_start(wait);
	if (!ret)
		ret = wait_arm(wait, EPOLL_CTL_ADD, fd);
	wait->num_fds += !ret;
unlock:
	pthread_mutex_unlock(&wait->lock);
	return ret;
}

void vb_wait_remove(struct vb_wait *wait, int fd)
{
	pthread_mutex_lock(&wait->lock);
	if (wait->epoll >= 0 && !epoll_ctl(wait->epoll, EPOLL_CTL_DEL, fd, NULL)) {
		wait->num_fds--;
		for (unsigned int i = 0; i < wait->num_ready; i++)
			if (wait->ready[i] == fd)
				wait->ready[i--] = wait->ready[--wait->num_ready];
	}
	pthread_mutex_unlock(&wait->lock);
}

int vb_wait_take(struct vb_wait *wait)
{
	int fd = -1;

	pthread_mutex_lock(&wait->lock);
	while (wait->num_ready && fd < 0) {
		fd = wait->ready[--wait->num_ready];
		if (wait_arm(wait, EPOLL_CTL_MOD, fd))
			fd = -1; /* it was removed after the watcher had found it */
	}
	pthread_mutex_unlock(&wait->lock);
	return fd;
}
