// SPDX-License-Identifier: MIT
/* Owns the mark of lock.h. */
#include "base/lock.h"

#include <pthread.h>

uint32_t vb_lock_mark = 1;

#ifdef VB_CHECKS
_Thread_local unsigned int vb_locks_held;
#endif

static void change_mark(void)
{
	if (!++vb_lock_mark)
		vb_lock_mark = 1;
}

__attribute__((constructor)) static void register_fork_handler(void)
{
	pthread_atfork(NULL, NULL, change_mark);
}
