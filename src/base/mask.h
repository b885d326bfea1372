/* SPDX-License-Identifier: MIT */
/*
 * Masks of signals: their bits, and short pieces of code in which no handler of the program runs.
 * signals.h has what programs ask for.
 */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "base/public.h"

/*
 * Sets are edited by bits: sigaddset() and sigdelset() refuse the two signals that libc uses itself,
 * and set errno. The first 64 bits are all that the kernel has and libc touches, so that they may be
 * all that a caller has.
 */
#define VB_SIGNAL_BIT(sig) (1ull << ((sig)-1))

/* libc sends them to its threads, and waits for the answers: they are never blocked for long. */
#define VB_SIGNALS_OF_LIBC (VB_SIGNAL_BIT(__SIGRTMIN) | VB_SIGNAL_BIT(__SIGRTMIN + 1))

/* Raised by instructions: blocked, they would end the process. */
#define VB_SIGNALS_OF_FAULTS                                                      \
	(VB_SIGNAL_BIT(SIGSEGV) | VB_SIGNAL_BIT(SIGBUS) | VB_SIGNAL_BIT(SIGFPE) | \
	 VB_SIGNAL_BIT(SIGILL) | VB_SIGNAL_BIT(SIGTRAP) | VB_SIGNAL_BIT(SIGSYS))

static inline uint64_t vb_sigset_bits(const sigset_t *set)
{
	uint64_t bits;

	memcpy(&bits, set, sizeof(bits));
	return bits;
}

static inline void vb_sigset_put_bits(sigset_t *set, uint64_t bits)
{
	memcpy(set, &bits, sizeof(bits));
}

/*
 * Between the two no handler of the program runs in this thread: for short pieces that a handler
 * must not leave by a jump, or that an interrupted call would undo. What the program believes its
 * mask to be does not change.
 */
VB_PUBLIC void vb_signal_block(sigset_t *before);
VB_PUBLIC void vb_signal_unblock(const sigset_t *before);
