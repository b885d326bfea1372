/* SPDX-License-Identifier: MIT */
/*
 * Read sections around every use of a table that other threads may shrink (QPs, memory keys,
 * peers).
 *
 * What is found in a table inside a read section stays valid until the section ends. To remove an
 * entry, call vb_read_wait() before freeing it, or before promising that nobody uses it any more.
 * Never wait with a queue's lock held: a reader may be waiting for that lock. Threads need no
 * registration, sections may be nested, and a signal handler may have one.
 *
 *	reader:  word := gp (1 section, phase); [light]; use the table; word := 0 (release)
 *	waiter:  entry removed; [heavy]; every word that is in a section of the old phase: wait
 *
 * With a full barrier on both sides a waiter sees the section, or the section sees the removal. The
 * reader's costs as much as the rest of a small message, so the waiter pays for both (membarrier makes
 * every CPU that runs a thread of ours pass one). Where the kernel has no such call, or refuses it
 * later, as a filter that the program installs may do at any time, readers have a real fence from then
 * on, for good: `fenced`.
 *
 * A waiter waits for the sections that began before it, and not for those that follow: before and after
 * it turns the phase, it waits for words of the phase that is not gp's. The first of the two is for a
 * reader that read gp long ago and has only now stored it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/public.h"
#include "base/tsan.h"

/* What a thread shows: a line of its own, which only it writes, and given to the next when it ends. */
struct vb_reader {
	_Alignas(64) _Atomic uint64_t
		word;           /* 0, or VB_READ_PHASE or 0, and how many sections it is in */
	_Atomic uint32_t taken; /* 1: it is a thread's */
};

#define VB_READ_NEST  0xffffffffull
#define VB_READ_PHASE (1ull << 32)

enum { VB_READERS = 63 };

/* A page of them. */
struct vb_readers {
	struct vb_readers *next;
	struct vb_reader reader[VB_READERS];
};

/*
 * One in a process, whichever of its libraries and programs has its own copy of this code: so all that
 * the code remembers is here.
 */
struct vb_rcu {
	_Atomic uint64_t gp; /* the word of a thread in its first section; only the phase changes */
	_Atomic bool fenced; /* readers have a fence; */
	_Atomic bool settled; /* none is left without: waiters do not call membarrier */
	_Atomic uint32_t key; /* of pthread_key_create() + 1; 0: none yet */
	/* waiters: one at a time, and even while none is at work: each that begins and ends adds 1 */
	pthread_mutex_t lock;
	_Atomic uint64_t turns;
	/* all readers that there ever were, the first page last; then, of rcu.c's own, one after the other */
	_Atomic(struct vb_readers *) readers;
	struct vb_readers first;
	_Atomic uint32_t spares; /* how many of rcu.c's own are in use */
#ifdef VB_TSAN
	char ended, waited;
#endif
};

VB_PUBLIC extern struct vb_rcu vb_rcu;
VB_PUBLIC extern _Thread_local struct vb_reader *vb_reader
	__attribute__((tls_model("initial-exec")));

/* This thread's first section. */
VB_PUBLIC struct vb_reader *vb_reader_find(void);
VB_PUBLIC void vb_read_wait(void);
/* While membarrier is still allowed: do without it from now on. Allowed in signal handlers. */
void vb_read_give_up_calls(void);

/*
 * ThreadSanitizer does not see the order that membarrier makes: every section that ended before a
 * wait returned happened before what follows it, and what came before the wait happened before
 * every section that starts later.
 */
#ifdef VB_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define vb_tsan_acquire(what) __tsan_acquire(what)
#define vb_tsan_release(what) __tsan_release(what)
#else
#define vb_tsan_acquire(what)
#define vb_tsan_release(what)
#endif

static inline void vb_read_lock(void)
{
	struct vb_reader *reader = vb_reader;
	uint64_t word;

	if (__builtin_expect(!reader, 0))
		reader = vb_reader_find();
	word = atomic_load_explicit(&reader->word, memory_order_relaxed);
	if (__builtin_expect(word & VB_READ_NEST, 0)) {
		atomic_store_explicit(&reader->word, word + 1, memory_order_relaxed);
		return;
	}
	atomic_store_explicit(&reader->word, atomic_load_explicit(&vb_rcu.gp, memory_order_relaxed),
			      memory_order_relaxed);
	/* Pairs with make_seen() in rcu.c. */
	if (__builtin_expect(atomic_load_explicit(&vb_rcu.fenced, memory_order_relaxed), 0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	vb_tsan_acquire(&vb_rcu.waited);
}

static inline void vb_read_unlock(void)
{
	struct vb_reader *reader = vb_reader;

	vb_tsan_release(&vb_rcu.ended);
	/* Release: what was used was used before. Pairs with is_over() in rcu.c. */
	atomic_store_explicit(&reader->word,
			      atomic_load_explicit(&reader->word, memory_order_relaxed) - 1,
			      memory_order_release);
}

static inline bool vb_read_ongoing(void)
{
	return vb_reader &&
	       (atomic_load_explicit(&vb_reader->word, memory_order_relaxed) & VB_READ_NEST);
}
