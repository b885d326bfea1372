// SPDX-License-Identifier: MIT
/*
 * Owns ports that end in a TAP interface of the kernel (tap = NAME in the configuration) instead of a
 * cable.
 *
 *	queues --> vb_wire_send() --> write(fd) --> the kernel has received a frame on NAME
 *	the kernel sends on NAME --> read(fd), in a thread --> vb_cable_arrive() --> rules and flows
 *
 * Many processes may use the adapter, and one carries its frames: the kernel lets one descriptor at a
 * time have a TAP. The others are refused (EBUSY) and try again, so that one of them takes over when the
 * carrier ends, however it ends. The carrier gets what the others send as every process that listens
 * does, and hands them what arrives.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/rcu.h"
#include "card/internal.h"
#include "frame/frame.h"

enum {
	BUSY_MS = 100,    /* between two tries to take over */
	REFUSED_MS = 1000 /* between two tries where somebody must allow it first */
};

static const char tun[] = "/dev/net/tun";

void vb_wire_send(const struct vb_adapter *adapter, const struct vb_frame *frame)
{
	VB_NO_CANCEL;
	/* Pairs with the release in carry(). */
	int fd = atomic_load_explicit(&vb_card.wire.at[adapter->index].fd, memory_order_acquire);
	ssize_t n;

	if (fd <= 0)
		return;
	/* An interface that is down takes nothing: the frame is lost, as on a cut cable. */
	n = write(fd - 1, frame->data, frame->len);
	(void)n;
}

/* The descriptor, or -errno. */
static int attach(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open(tun, O_RDWR | O_NONBLOCK | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (!ioctl(fd, TUNSETIFF, &request))
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

/* False: stop. */
static bool wait_for(int fd, int stop, int timeout_ms)
{
	struct pollfd fds[] = { { .fd = stop, .events = POLLIN }, { .fd = fd, .events = POLLIN } };

	poll(fds, fd < 0 ? 1 : 2, timeout_ms);
	return !fds[0].revents;
}

static void report(const struct vb_adapter *adapter, int err)
{
	const char *name = adapter->config->tap;

	if (err == -EPERM || err == -EACCES)
		vb_warn("%s: its frames go nowhere: tap %s: %s; let root make it for you: ip tuntap add dev %s mode tap user %u && ip link set %s up",
			adapter->config->name, name, strerror(-err), name, (unsigned int)geteuid(),
			name);
	else
		vb_warn("%s: its frames go nowhere: tap %s: %s: %s", adapter->config->name, name,
			tun, strerror(-err));
}

/* Carry frames until the end, or until the TAP is gone. */
static void carry(const struct vb_adapter *adapter, int fd, int stop)
{
	_Atomic int *shown = &vb_card.wire.at[adapter->index].fd;
	uint8_t frame[VB_FRAME_MAX];
	ssize_t n = 0;

	vb_info("%s: this process carries the frames of tap %s", adapter->config->name,
		adapter->config->tap);
	vb_cable_listen(1);
	atomic_store_explicit(shown, fd + 1, memory_order_release);
	while (wait_for(fd, stop, -1)) {
		while ((n = read(fd, frame, sizeof(frame))) > 0)
			vb_cable_arrive(adapter, frame, (uint32_t)n);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			break;
	}
	atomic_store_explicit(shown, 0, memory_order_relaxed);
	vb_read_wait();
	vb_cable_listen(-1);
}

static void *run(void *arg)
{
	const struct vb_adapter *adapter = arg;
	int stop = vb_card.wire.at[adapter->index].stop, fd, reported = 0;

	do {
		fd = attach(adapter->config->tap);
		if (fd >= 0) {
			reported = 0;
			carry(adapter, fd, stop);
			close(fd);
		} else if (fd != -EBUSY && fd != reported) {
			reported = fd;
			report(adapter, fd);
		}
	} while (wait_for(-1, stop, fd == -EBUSY ? BUSY_MS : REFUSED_MS));
	return NULL;
}

static void start(struct vb_wire *wire, const struct vb_adapter *adapter)
{
	sigset_t all, old;

	wire->stop = eventfd(0, EFD_CLOEXEC);
	if (wire->stop < 0) {
		report(adapter, -errno);
		return;
	}
	/* The program's signals are for the program's threads; faults in its buffers are ours. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	wire->running = !pthread_create(&wire->thread, NULL, run, (void *)adapter);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!wire->running) {
		report(adapter, -EAGAIN);
		close(wire->stop);
	}
}

static void stop(struct vb_wire *wire)
{
	if (!wire->running)
		return;
	eventfd_write(wire->stop, 1);
	pthread_join(wire->thread, NULL);
	close(wire->stop);
	wire->running = false;
}

void vb_wire_use(const struct vb_adapter *adapter, int change)
{
	VB_NO_CANCEL;
	struct vb_wire *wire = &vb_card.wire.at[adapter->index];

	if (!adapter->config->tap[0])
		return;
	pthread_mutex_lock(&vb_card.wire.lock);
	wire->users += (uint32_t)change;
	if (change > 0 && wire->users == 1)
		start(wire, adapter);
	else if (!wire->users)
		stop(wire);
	pthread_mutex_unlock(&vb_card.wire.lock);
}

/* The TAP is the parent's; it must not stay attached when the parent ends. */
void vb_wire_forked(void)
{
	pthread_mutex_init(&vb_card.wire.lock, NULL);
	for (unsigned int i = 0; i < VB_CONFIG_MAX_ADAPTERS; i++) {
		struct vb_wire *wire = &vb_card.wire.at[i];
		int fd = atomic_exchange_explicit(&wire->fd, 0, memory_order_relaxed);

		if (fd)
			close(fd - 1);
		if (wire->running)
			close(wire->stop);
		wire->running = false;
		wire->users = 0;
	}
}
