// SPDX-License-Identifier: MIT
/*
 * Owns the list of readers and the waiting for them; see rcu.h.
 *
 * A thread may have its first section in a signal handler, in the middle of anything: so readers come
 * from pages that are never given back, and the list of them grows without a lock. There are pages for
 * a thousand threads, which take no memory before they are needed; for more, they are mapped.
 */
#include "base/rcu.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/barrier.h"
#include "base/fork.h"
#include "base/time.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mask.h"

enum { SPINS = 100, FIRST_PAUSE_NS = 10000, LAST_PAUSE_NS = 1000000, SPARES = 15 };

_Static_assert(sizeof(struct vb_readers) == 4096, "a page");

struct vb_rcu vb_rcu = {
	.gp = 1,
	.fenced = true, /* until readers_start() */
	.settled = true,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.readers = &vb_rcu.first,
};
_Thread_local struct vb_reader *vb_reader;

static struct vb_readers spares[SPARES];

/* --- readers ---------------------------------------------------------------------------------- */

static void rcu_give_back(void *arg)
{
	struct vb_reader *reader = arg;

	vb_reader = NULL; /* a destructor that comes later may have a section */
	/* A handler of the program may have ended the thread inside of one. */
	atomic_store_explicit(&reader->word, 0, memory_order_release);
	atomic_store_explicit(&reader->taken, 0, memory_order_release);
}

/*
 * Threads end by a key of libc. With the first library that is loaded: later, one that has been given
 * many keys by the program would make libc allocate where a signal handler may be running.
 */
static void readers_start(void)
{
	pthread_key_t key;

	if (atomic_load_explicit(&vb_rcu.key, memory_order_relaxed))
		return;
	if (!pthread_key_create(&key, rcu_give_back))
		atomic_store_explicit(&vb_rcu.key, (uint32_t)key + 1, memory_order_relaxed);
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		return;
	atomic_store_explicit(&vb_rcu.settled, false, memory_order_relaxed);
	atomic_store_explicit(&vb_rcu.fenced, false, memory_order_release);
}

static struct vb_reader *take_free(struct vb_readers *page)
{
	for (unsigned int i = 0; i < VB_READERS; i++) {
		struct vb_reader *reader = &page->reader[i];
		uint32_t none = 0;

		/* Acquire: pairs with rcu_give_back(). */
		if (!atomic_load_explicit(&reader->taken, memory_order_relaxed) &&
		    atomic_compare_exchange_strong_explicit(
			    &reader->taken, &none, 1, memory_order_acquire, memory_order_relaxed))
			return reader;
	}
	return NULL;
}

/* NULL: there is no memory. */
static struct vb_readers *make_page(void)
{
	uint32_t used = atomic_load_explicit(&vb_rcu.spares, memory_order_relaxed);
	void *page;

	while (used < SPARES)
		if (atomic_compare_exchange_weak_explicit(&vb_rcu.spares, &used, used + 1,
							  memory_order_relaxed,
							  memory_order_relaxed))
			return &spares[used];
	page = mmap(NULL, sizeof(struct vb_readers), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return page == MAP_FAILED ? NULL : page;
}

static struct vb_reader *add_page(void)
{
	struct vb_readers *page = make_page();

	if (!page)
		return NULL;
	atomic_store_explicit(&page->reader[0].taken, 1, memory_order_relaxed);
	page->next = atomic_load_explicit(&vb_rcu.readers, memory_order_relaxed);
	/* seq_cst: in the list before its first section. Pairs with make_seen(). */
	while (!atomic_compare_exchange_weak_explicit(&vb_rcu.readers, &page->next, page,
						      memory_order_seq_cst, memory_order_relaxed))
		;
	return &page->reader[0];
}

static struct vb_reader *take_any(void)
{
	struct vb_readers *page = atomic_load_explicit(&vb_rcu.readers, memory_order_acquire);
	struct vb_reader *reader = NULL;

	for (; page && !reader; page = page->next)
		reader = take_free(page);
	return reader ? reader : add_page();
}

struct vb_reader *vb_reader_find(void)
{
	struct vb_reader *reader = take_any();
	uint32_t key;

	if (!reader)
		vb_error(
			"no memory for more than %d threads that use the card: one has to wait until another ends",
			VB_READERS * (1 + SPARES));
	/* A look-up without a section would be of freed memory. */
	for (; !reader; reader = take_any())
		vb_pause_ns(LAST_PAUSE_NS);
	/* A signal handler may have come in between, and have found one. */
	if (vb_reader) {
		atomic_store_explicit(&reader->taken, 0, memory_order_release);
		return vb_reader;
	}
	vb_reader = reader;
	key = atomic_load_explicit(&vb_rcu.key, memory_order_relaxed);
	if (key)
		pthread_setspecific((pthread_key_t)(key - 1), reader);
	return reader;
}

/* The other threads, and their sections, are not in the child. */
static void readers_forked(void)
{
	struct vb_readers *page = atomic_load_explicit(&vb_rcu.readers, memory_order_relaxed);

	pthread_mutex_init(&vb_rcu.lock, NULL);
	atomic_store_explicit(&vb_rcu.turns, 0, memory_order_relaxed);
	for (; page; page = page->next)
		for (unsigned int i = 0; i < VB_READERS; i++) {
			struct vb_reader *reader = &page->reader[i];

			if (reader == vb_reader)
				continue;
			atomic_store_explicit(&reader->word, 0, memory_order_relaxed);
			atomic_store_explicit(&reader->taken, 0, memory_order_relaxed);
		}
}

VB_STAGE(READERS, .start = readers_start, .child = readers_forked);

/* --- waiting ---------------------------------------------------------------------------------- */

/*
 * What this thread has done is seen by all sections that begin from now on, and all sections that began
 * are seen by this thread.
 */
static void make_seen(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&vb_rcu.settled, memory_order_acquire))
		return;
	if (!vb_barrier_is_forbidden() &&
	    !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		return;
	atomic_store_explicit(&vb_rcu.fenced, true, memory_order_seq_cst);
	vb_barrier_outwait();
	atomic_store_explicit(&vb_rcu.settled, true, memory_order_release);
}

void vb_read_give_up_calls(void)
{
	atomic_store_explicit(&vb_rcu.fenced, true, memory_order_seq_cst);
	if (!syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		atomic_store_explicit(&vb_rcu.settled, true, memory_order_release);
}

/* Pairs with vb_read_unlock(). */
static bool is_over(const struct vb_reader *reader)
{
	uint64_t word =
		atomic_load_explicit(&((struct vb_reader *)reader)->word, memory_order_acquire);

	return !(word & VB_READ_NEST) ||
	       !((word ^ atomic_load_explicit(&vb_rcu.gp, memory_order_relaxed)) & VB_READ_PHASE);
}

/* Wait for the sections of the phase that is not gp's. */
static void wait_for_readers(void)
{
	struct vb_readers *page = atomic_load_explicit(&vb_rcu.readers, memory_order_acquire);

	for (; page; page = page->next)
		for (unsigned int i = 0; i < VB_READERS; i++) {
			uint64_t pause_ns = FIRST_PAUSE_NS;

			for (unsigned int spins = 0; !is_over(&page->reader[i]); spins++) {
				if (spins < SPINS) {
					vb_cpu_relax();
					continue;
				}
				vb_pause_ns(pause_ns);
				if (pause_ns < LAST_PAUSE_NS)
					pause_ns *= 2;
			}
		}
}

/* With the lock. */
static void wait_turn(void)
{
	atomic_fetch_add_explicit(&vb_rcu.turns, 1, memory_order_seq_cst);
	make_seen();
	wait_for_readers();
	atomic_fetch_xor_explicit(&vb_rcu.gp, VB_READ_PHASE, memory_order_seq_cst);
	wait_for_readers();
	/* What follows comes after the sections that ended. */
	make_seen();
	atomic_fetch_add_explicit(&vb_rcu.turns, 1, memory_order_seq_cst);
}

void vb_read_wait(void)
{
	sigset_t before;
	uint64_t turn;

	vb_tsan_release(&vb_rcu.waited);
	/* The end of the next turn that begins after this, whichever thread has it, is enough. */
	turn = (atomic_fetch_add_explicit(&vb_rcu.turns, 0, memory_order_seq_cst) + 3) & ~1ull;
	/* A handler of the program that came in between might wait itself, for ever. */
	vb_signal_block(&before);
	pthread_mutex_lock(&vb_rcu.lock);
	if (atomic_load_explicit(&vb_rcu.turns, memory_order_acquire) < turn)
		wait_turn();
	pthread_mutex_unlock(&vb_rcu.lock);
	vb_signal_unblock(&before);
	vb_tsan_acquire(&vb_rcu.ended);
}
