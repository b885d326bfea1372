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

static void allow(pid_t who)
{
	if (prctl(PR_SET_PTRACER, who == ALL ? PR_SET_PTRACER_ANY : (unsigned long)who, 0, 0, 0))
		vb_info("peers cannot reach memory directly: PR_SET_PTRACER: %s", strerror(errno));
	vb_fabric.tracer.allowed = who;
}

/* With the lock: say what is true now, where it is not what was said last. */
static void update(void)
{
	pid_t who = vb_fabric.tracer.regions ? vb_fabric.tracer.wanted : NOBODY;

	/* A program that has closed itself in may be ended for the question. */
	if (who != vb_fabric.tracer.allowed && !vb_fault_is_closing_in() && is_restricted())
		allow(who);
}

void vb_tracer_allow(pid_t peer)
{
	VB_NO_CANCEL;
	pid_t *wanted = &vb_fabric.tracer.wanted;

	vb_lock(&vb_fabric.tracer.lock);
	if (*wanted != ALL && *wanted != peer)
		*wanted = *wanted == NOBODY || (kill(*wanted, 0) && errno == ESRCH) ? peer : ALL;
	update();
	vb_unlock(&vb_fabric.tracer.lock);
}

void vb_fabric_private_memory(int change)
{
	VB_NO_CANCEL;

	vb_lock(&vb_fabric.tracer.lock);
	vb_fabric.tracer.regions += (unsigned int)change;
	update();
	vb_unlock(&vb_fabric.tracer.lock);
}

void vb_tracer_reset(bool forked)
{
	vb_lock(&vb_fabric.tracer.lock);
	if (vb_fabric.tracer.allowed != NOBODY && !forked && !vb_fault_is_closing_in())
		allow(NOBODY);
	vb_fabric.tracer.allowed = vb_fabric.tracer.wanted = NOBODY;
	vb_fabric.tracer.regions = 0;
	vb_unlock(&vb_fabric.tracer.lock);
}
