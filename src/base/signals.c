// SPDX-License-Identifier: MIT
/*
 * Owns what the program believes its masks to be.
 *
 *	program's mask  =  real mask, without SIGSEGV and SIGBUS  +  two bits of ours
 *
 * The bits of a thread's mask are thread-local; those of a handler's mask (sa_mask) lie in a table by signal. A thread
 * starts with none: pthread_create() copies the real mask only.
 */
#include "base/signals.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"

enum { SEGV_BIT = 1, BUS_BIT = 2, SIGNALS = 65, KERNEL_SIGSET = 8 };

static _Atomic unsigned char handler_bits[SIGNALS];
static _Thread_local volatile unsigned int thread_bits __attribute__((tls_model("initial-exec")));
static _Thread_local volatile unsigned int pending_bits
	__attribute__((tls_model("initial-exec"))); /* sent while "blocked" */

static unsigned int take_bits(sigset_t *set)
{
	unsigned int bits = (sigismember(set, SIGSEGV) == 1 ? SEGV_BIT : 0) |
			    (sigismember(set, SIGBUS) == 1 ? BUS_BIT : 0);

	sigdelset(set, SIGSEGV);
	sigdelset(set, SIGBUS);
	return bits;
}

static void put_bits(sigset_t *set, unsigned int bits)
{
	if (bits & SEGV_BIT)
		sigaddset(set, SIGSEGV);
	if (bits & BUS_BIT)
		sigaddset(set, SIGBUS);
}

/* --- handlers ------------------------------------------------------------------------------------------------------- */

int vb_signal_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction copy, before;
	unsigned char bits = 0, bits_before;
	int ret;

	if (sig < 1 || sig >= SIGNALS) {
		errno = EINVAL;
		return -1;
	}
	if (act) {
		copy = *act;
		bits = (unsigned char)take_bits(&copy.sa_mask);
	}
	bits_before = atomic_load_explicit(&handler_bits[sig], memory_order_relaxed);
	ret = sig == SIGSEGV || sig == SIGBUS ? vb_fault_action(sig, act ? &copy : NULL, &before)
					      : vb_libc_sigaction(sig, act ? &copy : NULL, &before);
	if (ret)
		return ret;
	if (act)
		atomic_store_explicit(&handler_bits[sig], bits, memory_order_relaxed);
	if (old) {
		*old = before;
		put_bits(&old->sa_mask, bits_before);
	}
	return 0;
}

sighandler_t vb_signal_handler(int sig, sighandler_t handler, int flags)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags }, old;

	sigemptyset(&act.sa_mask);
	if (handler == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return vb_signal_action(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

/* --- masks ---------------------------------------------------------------------------------------------------------- */

/* What was sent while the program held the signal off comes now, to the thread that got it. */
static void send_pending(unsigned int bits)
{
	unsigned int due = pending_bits & ~bits;

	pending_bits &= bits;
	if (due & SEGV_BIT)
		raise(SIGSEGV);
	if (due & BUS_BIT)
		raise(SIGBUS);
}

int vb_signal_mask(int how, const sigset_t *set, sigset_t *old)
{
	unsigned int bits = 0, before = thread_bits;
	sigset_t copy, real;

	if (set) {
		copy = *set;
		bits = take_bits(&copy);
		/* As libc does: the two that it uses itself are never blocked. */
		sigdelset(&copy, __SIGRTMIN);
		sigdelset(&copy, __SIGRTMIN + 1);
	}
	sigemptyset(&real);
	if (syscall(SYS_rt_sigprocmask, how, set ? &copy : NULL, &real, KERNEL_SIGSET))
		return errno;
	if (set)
		thread_bits = how == SIG_BLOCK     ? before | bits
			      : how == SIG_UNBLOCK ? before & ~bits
						   : bits;
	if (old) {
		take_bits(&real);
		*old = real;
		put_bits(old, before);
	}
	if (set && pending_bits)
		send_pending(thread_bits);
	return 0;
}

static bool is_held(int sig)
{
	return thread_bits & (sig == SIGSEGV ? SEGV_BIT : BUS_BIT);
}

static void hold(int sig)
{
	pending_bits |= sig == SIGSEGV ? SEGV_BIT : BUS_BIT;
}

const struct vb_signal_keeper vb_signal_keeper = { is_held, hold };
