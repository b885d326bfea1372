// SPDX-License-Identifier: MIT
/* Owns what tracer.h promises: the one call to Yama, and what it was told last. */
#include "fabric/tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/time.h"
#include "host/fault.h"
#include "base/lock.h"
#include "base/log.h"
#include "fabric/fabric.h"
#include "fabric/state.h"

enum { NOBODY = 0, ALL = -1 };

static char read_scope(void)
{
	char scope = 0;
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (read(fd, &scope, 1) != 1)
		scope = 0;
	close(fd);
	return scope;
}

enum {
	SCOPE_NS = 1000000000
}; /* that long an answer counts: programs register for every message */

/* With the lock. Only where a process may open itself does it. */
static bool is_restricted(void)
{
	static uint64_t asked; /* ns; 0: never */
	static bool answer;
	uint64_t now = vb_now_coarse_ns();

	if (!asked || now - asked >= SCOPE_NS) {
		asked = now;
		answer = read_scope() == '1';
	}
	return answer;
}

/* The process has one of it: all of its hosts share their memory, and the right to reach it. */
static struct {
	struct vb_lock lock;
	pid_t wanted;         /* the peer's pid, nobody or all */
	pid_t allowed;        /* the same, as the kernel was told */
	unsigned int regions; /* of memory that is not shared */
} tracer;

static void allow(pid_t who)
{
	if (prctl(PR_SET_PTRACER, who == ALL ? PR_SET_PTRACER_ANY : (unsigned long)who, 0, 0, 0))
		vb_info("peers cannot reach memory directly: PR_SET_PTRACER: %s", strerror(errno));
	tracer.allowed = who;
}

/* With the lock: tell the kernel where the wanted tracer has changed. */
static void update(void)
{
	pid_t who = tracer.regions ? tracer.wanted : NOBODY;

	/* A program that has closed itself in may be ended for the question. */
	if (who != tracer.allowed && !vb_fault_is_closing_in() && is_restricted())
		allow(who);
}

void vb_tracer_allow(pid_t peer)
{
	VB_NO_CANCEL;
	pid_t *wanted = &tracer.wanted;

	/* Another host of this process needs no right. */
	if (peer == getpid())
		return;
	vb_lock(&tracer.lock);
	if (*wanted != ALL && *wanted != peer)
		*wanted = *wanted == NOBODY || (kill(*wanted, 0) && errno == ESRCH) ? peer : ALL;
	update();
	vb_unlock(&tracer.lock);
}

void vb_fabric_private_memory(struct vb_fabric *fabric, int change)
{
	VB_NO_CANCEL;

	vb_lock(&tracer.lock);
	fabric->private_regions += (unsigned int)change;
	tracer.regions += (unsigned int)change;
	update();
	vb_unlock(&tracer.lock);
}

void vb_tracer_leave(struct vb_fabric *fabric, bool last)
{
	vb_lock(&tracer.lock);
	tracer.regions -= fabric->private_regions;
	fabric->private_regions = 0;
	if (!last) {
		update();
	} else {
		if (tracer.allowed != NOBODY && !vb_fault_is_closing_in())
			allow(NOBODY);
		tracer.allowed = tracer.wanted = NOBODY;
	}
	vb_unlock(&tracer.lock);
}

void vb_tracer_forked(struct vb_fabric *fabric)
{
	fabric->private_regions = 0;
	tracer.allowed = tracer.wanted = NOBODY;
	tracer.regions = 0;
	atomic_store_explicit(&tracer.lock.held, 0, memory_order_relaxed);
}
