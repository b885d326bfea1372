// SPDX-License-Identifier: MIT
/*
 * Owns the lock of the range. It is a futex: a mutex of libc might be replaced by whatever the
 * program brings. A child of fork() has it unlocked by the handler of fork_copy.c.
 */
#include <linux/futex.h>

#include "host/memory/libc.h"
#include "host/memory/memory.h"

static _Atomic uint32_t word; /* 1: taken, 2: taken, and somebody may sleep */

/*
 * The faults stay: libverbatim answers some of them, and blocked ones would end the process. None
 * happens while the lock is held.
 */
void memory_block(sigset_t *before)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
	unsigned long set = ~0ul;

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		set &= ~(1ul << (faults[i] - 1));
	RAW(SYS_rt_sigprocmask, SIG_BLOCK, &set, before, sizeof(set));
}

void memory_unblock(const sigset_t *before)
{
	RAW(SYS_rt_sigprocmask, SIG_SETMASK, before, NULL, sizeof(unsigned long));
}

void memory_lock(sigset_t *before)
{
	uint32_t none = 0;

	memory_block(before);
	if (atomic_compare_exchange_strong_explicit(&word, &none, 1, memory_order_acquire,
						    memory_order_relaxed))
		return;
	/* Pairs with memory_unlock. */
	while (atomic_exchange_explicit(&word, 2, memory_order_acquire))
		RAW(SYS_futex, &word, FUTEX_WAIT, 2, NULL, NULL, 0);
}

void memory_unlock(const sigset_t *before)
{
	if (atomic_exchange_explicit(&word, 0, memory_order_release) == 2)
		RAW(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
	memory_unblock(before);
}
