/* SPDX-License-Identifier: MIT */
/*
 * Read sections around every use of a table that other threads may shrink (QPs, memory keys,
 * peers).
 *
 * What is found in a table inside a read section stays valid until the section ends. To remove an
 * entry, call vb_read_wait() before freeing it, or before promising that nobody uses it any more.
 * Never wait with a queue's lock held: a reader may be waiting for that lock. (liburcu's
 * bulletproof flavour: threads need no registration, and the read side has no fence because the
 * writer uses membarrier.)
 */
#pragma once

/*
 * Inline read sections: a call through the PLT and the dynamic TLS model cost as much as the rest
 * of a small message.
 */
#define _LGPL_SOURCE
#include <urcu-bp.h>

#include "base/public.h"
#include "base/tsan.h"

/*
 * ThreadSanitizer does not see the order that membarrier makes: every section that ended before a
 * wait returned happened before what follows it, and what came before the wait happened before
 * every section that starts later.
 */
#ifdef VB_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
/* One of each in a process, whichever of its libraries and programs has its own copy of this code. */
VB_PUBLIC extern char vb_rcu_ended, vb_rcu_waited;
#define vb_tsan_acquire(what) __tsan_acquire(what)
#define vb_tsan_release(what) __tsan_release(what)
#else
#define vb_tsan_acquire(what)
#define vb_tsan_release(what)
#endif

static inline void vb_read_lock(void)
{
	rcu_read_lock();
	vb_tsan_acquire(&vb_rcu_waited);
}

static inline void vb_read_unlock(void)
{
	vb_tsan_release(&vb_rcu_ended);
	rcu_read_unlock();
}

static inline void vb_read_wait(void)
{
	vb_tsan_release(&vb_rcu_waited);
	synchronize_rcu();
	vb_tsan_acquire(&vb_rcu_ended);
}
