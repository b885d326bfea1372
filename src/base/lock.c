// SPDX-License-Identifier: MIT
/* Owns the mark of lock.h. */
#include "base/lock.h"

#include "base/fork.h"

uint32_t vb_lock_mark = 1;

#ifdef VB_CHECKS
_Thread_local unsigned int vb_locks_held;
#endif

static void mark_change(void)
{
	if (!++vb_lock_mark)
		vb_lock_mark = 1;
}

VB_STAGE(LOCKS, .child = mark_change);
