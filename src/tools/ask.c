// SPDX-License-Identifier: MIT
/* Owns how a tool has a program listen (control/ask/client.h): by a word of the program's shared memory. */
#include <errno.h>
#include <signal.h>

#include "fabric/fabric.h"
#include "meet/registry.h"
#include "tools/cmd.h"

struct sleeper {
	pid_t pid;
	int err;
};

static void sleeper_wake(void *arg, const struct vb_slot_info *info)
{
	struct sleeper *sleeper = arg;

	if (info->pid == sleeper->pid && sleeper->err)
		sleeper->err = vb_fabric_ask(info);
}

int tools_wake(void *arg)
{
	struct sleeper sleeper = { .pid = *(const pid_t *)arg, .err = -ESRCH };
	int ret;

	if (kill(sleeper.pid, 0) && errno == ESRCH)
		return -ESRCH;
	ret = vb_registry_list(sleeper_wake, &sleeper);
	return ret < 0 ? ret : sleeper.err;
}
