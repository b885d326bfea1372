/* SPDX-License-Identifier: MIT */
/*
 * Signals as the program sees them, while SIGSEGV and SIGBUS stay ours and are never blocked.
 *
 * A doorbell is a store that faults. Were SIGSEGV blocked in the thread that rings, the kernel
 * would end the process; had the program replaced our handler, the ring would reach the program. So
 * sigaction() and its relatives lead here (libibverbs.so.1 exports them before libc does): the
 * program's handlers for the two signals are kept and called for faults that are its own
 * (host/fault.h), the two signals are taken out of every mask that is really set, and whoever asks
 * gets to know what the program had asked for.
 *
 * Everything is allowed in signal handlers, as the functions of libc are.
 */
#pragma once

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mask.h"
#include "base/public.h"
#include "host/rights.h"

typedef void vb_signal_settle(void);

/* Whatever the flags say: the kernel looks at the two values alone. */
static inline bool vb_signal_has_handler(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
}

/* Whether handlers of this signal interrupt code anywhere, while others answer a fault. */
static inline bool vb_signal_is_asynchronous(int sig)
{
	return !(VB_SIGNAL_BIT(sig) & (VB_SIGNALS_OF_FAULTS | VB_SIGNALS_OF_LIBC |
				       VB_SIGNAL_BIT(SIGKILL) | VB_SIGNAL_BIT(SIGSTOP)));
}

/*
 * There may be two of us in a process: the preload of `verbatim run` has this file, too, and stands
 * before everybody. It then knows what the program believes, and asks libverbatim only for the two
 * signals' own actions.
 */
struct vb_signal_keeper {
	bool (*is_held)(
		int sig);      /* whether the program believes to block the signal in this thread */
	void (*hold)(int sig); /* one came meanwhile */
	/* signals that have, or had, a handler of the program, by number */
	_Atomic uint64_t *handlers;
	/* called when the first one is about to be installed; NULL: nobody */
	_Atomic(vb_signal_settle *) *settle;
	/* whether it has said that it would filter its system calls, */
	_Atomic bool *closing_in;
	/* and what is called just before that is noted; NULL: nothing */
	_Atomic(vb_signal_settle *) *on_closing_in;
	/* asked where it changes users, groups or rights; NULL: no card was ever open */
	_Atomic(vb_rights_hook *) *rights;
};

extern const struct vb_signal_keeper vb_signal_keeper;

/* libc's own, by a name that nobody puts himself in front of. */
int vb_libc_sigaction(int sig, const struct sigaction *act,
		      struct sigaction *old) __asm__("__sigaction");

/* sigaction(2): 0 with errno as it was, or -1 with errno. */
VB_PUBLIC int vb_signal_action(int sig, const struct sigaction *act, struct sigaction *old);

/* signal(3) with the given flags and nothing in its mask. */
VB_PUBLIC sighandler_t vb_signal_handler(int sig, sighandler_t handler, int flags);

/* BSD's signal(3): interrupted calls go on, unless siginterrupt(3) said otherwise before. */
VB_PUBLIC sighandler_t vb_signal_bsd_handler(int sig, sighandler_t handler);

/* siginterrupt(3): 0, or -1 with errno. */
VB_PUBLIC int vb_signal_interrupt(int sig, bool interrupts);

/* Takes the two signals out of a mask that libc is to set. */
VB_PUBLIC void vb_signal_strip(sigset_t *set);

/*
 * sigsuspend(2), ppoll(2) and whatever else waits with a mask of its own: between begin and end
 * that is the program's mask, and wait->mask is the one to set. set may be NULL: none. begin: 0, or
 * EINTR where a signal was held off that the mask lets in.
 */
struct vb_signal_wait {
	const sigset_t *mask; /* NULL: none */
	sigset_t real;
	unsigned int before;
};

VB_PUBLIC int vb_signal_wait_begin(struct vb_signal_wait *wait, const sigset_t *set);
VB_PUBLIC void vb_signal_wait_end(const struct vb_signal_wait *wait);

/* prctl(2) is called for this: the program may be about to filter its system calls. */
VB_PUBLIC void vb_signal_note_prctl(int option);

/* Of vb_signal_keeper; NULL: there is no thread of ours yet. */
VB_PUBLIC vb_rights_hook *vb_signal_rights_hook(void);

/*
 * Of the preload: whether its functions only pass on what they are called with. They do where
 * ThreadSanitizer's library comes behind them. It has to see every handler, which it calls when its
 * own state is whole; one that came past it would wait for a lock that its thread has. Its functions
 * in turn lead to those of libibverbs.so.1, as in a program that `verbatim run` did not start.
 */
bool vb_signal_stands_aside(void);

/* Whether this is a child of vfork(): its memory is another process's. */
VB_PUBLIC bool vb_signal_is_borrowed(void);

/* When this library is loaded, and in a child of fork(): rows of base/fork.h, which the preload has not. */
void vb_signal_start(void);
void vb_signal_forked(void);

/* pthread_sigmask(3): 0 or a positive errno; errno itself stays as it was. */
VB_PUBLIC int vb_signal_mask(int how, const sigset_t *set, sigset_t *old);
