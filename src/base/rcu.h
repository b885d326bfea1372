/* SPDX-License-Identifier: MIT */
/*
 * Read sections around every use of a table that other threads may shrink (QPs, memory keys, peers).
 *
 * What is found in a table inside a read section stays valid until the section ends; who removes an entry calls
 * vb_read_wait() before freeing it, or before promising that nobody uses it any more. Never wait with a queue's lock
 * held: a reader may be waiting for that lock. (liburcu's bulletproof flavour: threads need no registration, and the
 * read side has no fence because the writer uses membarrier.)
 */
#pragma once

/* Inline read sections: a call through the PLT and the dynamic TLS model cost as much as the rest of a small message. */
#define _LGPL_SOURCE
#include <urcu-bp.h>

static inline void vb_read_lock(void)
{
	rcu_read_lock();
}

static inline void vb_read_unlock(void)
{
	rcu_read_unlock();
}

static inline void vb_read_wait(void)
{
	synchronize_rcu();
}
