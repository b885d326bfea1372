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
#include "base/lock.h"
#include "base/log.h"
#include "fabric/state.h"

enum { NOBODY = 0, ALL = -1 };

/* Only where a process may open itself does it. */
static bool is_restricted(void)
{
	char scope = 0;
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (read(fd, &scope, 1) != 1)
		scope = 0;
	close(fd);
	return scope == '1';
}

static void allow(pid_t who)
{
	if (prctl(PR_SET_PTRACER, who == ALL ? PR_SET_PTRACER_ANY : (unsigned long)who, 0, 0, 0))
		vb_info("peers cannot reach memory directly: PR_SET_PTRACER: %s", strerror(errno));
	vb_fabric.tracer.allowed = who;
}

void vb_tracer_allow(pid_t peer)
{
	VB_NO_CANCEL;
	vb_lock(&vb_fabric.tracer.lock);
	if (vb_fabric.tracer.allowed != ALL && vb_fabric.tracer.allowed != peer &&
	    is_restricted()) {
		bool first = vb_fabric.tracer.allowed == NOBODY ||
			     (kill(vb_fabric.tracer.allowed, 0) && errno == ESRCH);

		allow(first ? peer : ALL);
	}
	vb_unlock(&vb_fabric.tracer.lock);
}

void vb_tracer_reset(bool forked)
{
	vb_lock(&vb_fabric.tracer.lock);
	if (vb_fabric.tracer.allowed != NOBODY && !forked)
		allow(NOBODY);
	vb_fabric.tracer.allowed = NOBODY;
	vb_unlock(&vb_fabric.tracer.lock);
}
