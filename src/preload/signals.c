// SPDX-License-Identifier: MIT
/*
 * sigaction() and its relatives for programs that load libibverbs with dlopen(): there libc comes before it, but nobody
 * comes before the preload. The work is that of base/signals.c and base/signal_wrappers.c, which are in here, too; only
 * the program's own actions for SIGSEGV and SIGBUS are libverbatim's to keep, once that is loaded (base/fault.c asks for
 * us then).
 */
#include "base/signals.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/fault.h"

#define PUBLIC __attribute__((visibility("default")))

typedef int action_function(int sig, const struct sigaction *act, struct sigaction *old);

static _Atomic(action_function *) libverbatim_action;

PUBLIC const struct vb_signal_keeper *verbatim_preload_signals(action_function *action);

/* libverbatim is loaded and introduces itself. */
const struct vb_signal_keeper *verbatim_preload_signals(action_function *action)
{
	atomic_store(&libverbatim_action, action);
	return &vb_signal_keeper;
}

/* Without libverbatim there is nobody who would take the signals. */
int vb_fault_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	action_function *action = atomic_load(&libverbatim_action);

	return action ? action(sig, act, old) : vb_libc_sigaction(sig, act, old);
}
