// SPDX-License-Identifier: MIT
/*
 * Owns ports that end in a TAP interface of the kernel (tap = NAME in the configuration) instead of a
 * cable.
 *
 *	queues --> vb_tap_send() --> write(fd) --> the kernel has received a frame on NAME
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
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rcu.h"
#include "base/time.h"
#include "card/ether/ether.h"
#include "card/fault/fault.h"
#include "host/thread.h"
#include "packet/frame/frame.h"

enum {
	BUSY_MS = 100,     /* between two tries to take over */
	REFUSED_MS = 1000, /* between two tries where somebody must allow it first */
	LOOK_MS = 20,      /* between two looks whether to stop */
	BURST = 64,        /* frames between two looks, however many wait */
	ROOM_NS = 1000000, /* between two looks for room in a process that receives */
};

static const char tun[] = "/dev/net/tun";

void vb_tap_send(const struct vb_adapter *adapter, const struct vb_frame *frame)
{
	VB_NO_CANCEL;
	const struct vb_tap *tap = &adapter->card->tap.at[adapter->index];
	ssize_t n;

	/* Pairs with the release in tap_carry(). */
	if (!atomic_load_explicit(&tap->carries, memory_order_acquire) ||
	    vb_port_is_cut(adapter, 1) || !vb_file_is_open(&tap->file))
		return;
	/* An interface that is down takes nothing: the frame is lost, as on a cut cable. */
	n = vb_sys_write(tap->file.fd, frame->data, frame->len);
	(void)n;
}

/* 0, or -errno. A fork closes the file of the child, so it is noted before it has the interface. */
static int tap_attach(struct vb_tap *tap, const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open(tun, O_RDWR | O_NONBLOCK | O_CLOEXEC), ret;

	if (fd >= 0)
		fd = vb_file_above_stdio(fd);
	if (fd < 0)
		return -errno;
	ret = vb_file_keep(&tap->file, fd);
	if (ret)
		return ret;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (!ioctl(fd, TUNSETIFF, &request))
		return 0;
	ret = -errno;
	vb_file_close(&tap->file);
	return ret;
}

/*
 * Wait a while, for a frame where there is a file; false: stop. The flag is looked at now and then: a
 * descriptor to wake us by would be one more that the program may close.
 */
static bool tap_wait_for(const struct vb_tap *tap, bool frames, int timeout_ms)
{
	struct pollfd fd = { .fd = frames ? tap->file.fd : -1, .events = POLLIN };

	while (!atomic_load_explicit(&tap->stop, memory_order_acquire) && timeout_ms > 0) {
		if (vb_poll_until(VB_MACHINE_TIME, &fd, 1, vb_machine_ns() + LOOK_MS * 1000000ull,
				  NULL) > 0)
			break;
		timeout_ms -= LOOK_MS;
	}
	return !atomic_load_explicit(&tap->stop, memory_order_acquire);
}

static void tap_report(const struct vb_adapter *adapter, int err)
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

/* Frames stay in the TAP while a process that receives them has no room. */
static enum vb_frame_may may_take(struct vb_card *card)
{
	enum vb_frame_may may;

	vb_read_lock();
	may = vb_cable_may_send(card, VB_FRAME_MAX);
	vb_read_unlock();
	if (may == VB_FRAME_WAITS)
		vb_pause_ns(ROOM_NS);
	return may;
}

/* Up to so many frames that wait there; false: the TAP is gone, or the program has closed the file. */
static bool tap_take_frames(const struct vb_adapter *adapter, const struct vb_file *file, int most)
{
	uint8_t frame[VB_FRAME_MAX];
	ssize_t n = 1;

	while (n > 0 && most--) {
		enum vb_frame_may may = may_take(adapter->card);
		bool open;

		if (may == VB_FRAME_WAITS)
			return true;
		open = vb_file_is_open(file);
		n = open ? read(file->fd, frame, sizeof(frame)) : 0;
		if (n > 0)
			vb_cable_arrive(adapter, frame, (uint32_t)n);
		vb_frame_sent(adapter->card->fabric, may);
		if (!open)
			return false;
	}
	return n > 0 || errno == EAGAIN || errno == EINTR;
}

/* Carry frames until the end, or until the TAP is gone. */
static void tap_carry(const struct vb_adapter *adapter, struct vb_tap *tap)
{
	vb_info("%s: this process carries the frames of tap %s", adapter->config->name,
		adapter->config->tap);
	vb_cable_listen(adapter->card, 1);
	atomic_store_explicit(&tap->carries, true, memory_order_release);
	while (tap_wait_for(tap, true, BUSY_MS) && tap_take_frames(adapter, &tap->file, BURST))
		;
	atomic_store_explicit(&tap->carries, false, memory_order_relaxed);
	vb_read_wait();
	vb_cable_listen(adapter->card, -1);
}

static void *tap_run(void *arg)
{
	const struct vb_adapter *adapter = arg;
	struct vb_tap *tap = &adapter->card->tap.at[adapter->index];
	int ret, reported = 0;

	do {
		ret = tap_attach(tap, adapter->config->tap);
		if (!ret) {
			reported = 0;
			tap_carry(adapter, tap);
			vb_file_close(&tap->file);
		} else if (ret != -EBUSY && ret != reported) {
			reported = ret;
			tap_report(adapter, ret);
		}
	} while (tap_wait_for(tap, false, ret == -EBUSY ? BUSY_MS : REFUSED_MS));
	return NULL;
}

static void tap_start(struct vb_tap *tap, const struct vb_adapter *adapter)
{
	tap->file = VB_NO_FILE;
	atomic_store_explicit(&tap->stop, false, memory_order_relaxed);
	tap->running = !vb_thread_start(&tap->thread, NULL, tap_run, (void *)adapter);
	if (!tap->running)
		tap_report(adapter, -EAGAIN); /* the next queue pair tries again */
}

static void tap_stop(struct vb_tap *tap)
{
	if (!tap->running)
		return;
	atomic_store_explicit(&tap->stop, true, memory_order_release);
	pthread_join(tap->thread, NULL);
	tap->running = false;
}

void vb_tap_use(const struct vb_adapter *adapter, int change)
{
	struct vb_card *card = adapter->card;
	VB_NO_CANCEL;
	struct vb_tap *tap = &adapter->card->tap.at[adapter->index];

	if (!adapter->config->tap[0])
		return;
	pthread_mutex_lock(&card->tap.lock);
	tap->users += (uint32_t)change;
	if (change > 0 && !tap->running)
		tap_start(tap, adapter);
	else if (!tap->users)
		tap_stop(tap);
	pthread_mutex_unlock(&card->tap.lock);
}

/* The TAP is the parent's; it must not stay attached when the parent ends. */
void vb_tap_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->tap.lock, NULL);
	for (unsigned int i = 0; i < VB_CONFIG_MAX_ADAPTERS; i++) {
		struct vb_tap *tap = &card->tap.at[i];

		tap->users = 0;
		if (!tap->running)
			continue;
		atomic_store_explicit(&tap->carries, false, memory_order_relaxed);
		vb_file_close(&tap->file);
		tap->running = false;
	}
}
