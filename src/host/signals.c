// SPDX-License-Identifier: MIT
/*
 * Owns what the program believes its masks to be.
 *
 *	program's mask  =  real mask, without SIGSEGV and SIGBUS  +  two bits of ours
 *
 * The bits of a thread's mask are thread-local; those of a handler's mask (sa_mask) lie in a table
 * by signal. A thread starts with none: pthread_create() copies the real mask only.
 *
 * A child of vfork() has actions and masks of its own, but its memory is its parent's: what it sets
 * goes to the kernel only.
 */
#include "host/signals.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fork.h"
#include "host/fault.h"

enum { SEGV_BIT = 1, BUS_BIT = 2, SIGNALS = 65, KERNEL_SIGSET = 8 };

static _Atomic unsigned char handler_bits[SIGNALS];
static _Thread_local volatile unsigned int thread_bits __attribute__((tls_model("initial-exec")));
static _Thread_local volatile unsigned int pending_bits
	__attribute__((tls_model("initial-exec"))); /* sent while "blocked" */

/*
 * Of this memory; in a page that is zero again in a child of fork(), but not in one of vfork().
 * NULL: not known.
 */
static _Atomic pid_t *owner;

void vb_signal_forked(void)
{
	if (owner)
		atomic_store_explicit(owner, getpid(), memory_order_release);
}

void vb_signal_start(void)
{
	void *page = mmap(NULL, sizeof(*owner), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (page == MAP_FAILED)
		return;
	if (madvise(page, sizeof(*owner), MADV_WIPEONFORK)) {
		munmap(page, sizeof(*owner));
		return;
	}
	owner = page;
	vb_signal_forked();
}

#ifndef VB_PRELOAD /* which has no table */
VB_STAGE(SIGNALS, .start = vb_signal_start, .child = vb_signal_forked);
#endif

/*
 * In a child of fork() the first to ask, perhaps a handler of the program, becomes the
 * owner.
 */
bool vb_signal_is_borrowed(void)
{
	pid_t self = getpid(), zero = 0;

	return owner &&
	       !atomic_compare_exchange_strong_explicit(owner, &zero, self, memory_order_acq_rel,
							memory_order_acquire) &&
	       zero != self;
}

/* Takes our two out of the mask. */
static unsigned int host_signals_take_bits(uint64_t *mask)
{
	unsigned int bits = (*mask & VB_SIGNAL_BIT(SIGSEGV) ? SEGV_BIT : 0) |
			    (*mask & VB_SIGNAL_BIT(SIGBUS) ? BUS_BIT : 0);

	*mask &= ~(VB_SIGNAL_BIT(SIGSEGV) | VB_SIGNAL_BIT(SIGBUS));
	return bits;
}

static uint64_t host_signals_put_bits(uint64_t mask, unsigned int bits)
{
	return mask | (bits & SEGV_BIT ? VB_SIGNAL_BIT(SIGSEGV) : 0) |
	       (bits & BUS_BIT ? VB_SIGNAL_BIT(SIGBUS) : 0);
}

/* --- handlers --------------------------------------------------------------------------------- */

static _Atomic uint64_t handlers;
static _Atomic(vb_signal_settle *) settle;
static _Atomic bool settled; /* no call is left that has not seen a handler */

/*
 * Before the kernel knows it. A bit is never taken back: two threads that set and reset a handler at
 * the same time would leave it wrong. A vfork() child's is counted, too, at no harm.
 */
static void note_handler(int sig, const struct sigaction *act)
{
	vb_signal_settle *wait;

	if (!vb_signal_is_asynchronous(sig) || !vb_signal_has_handler(act))
		return;
	atomic_fetch_or_explicit(&handlers, 1ull << (sig - 1), memory_order_seq_cst);
	/* Another thread's may have been the first, and that thread still be waiting. */
	if (atomic_load_explicit(&settled, memory_order_acquire))
		return;
	wait = atomic_load_explicit(&settle, memory_order_acquire);
	if (wait)
		wait();
	atomic_store_explicit(&settled, true, memory_order_release);
}

static bool host_signals_is_ours(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS;
}

/*
 * To the kernel, past what we keep; of our two the program's own action is asked for, which changes
 * nothing.
 */
static int borrowed_action(int sig, const struct sigaction *act, struct sigaction *before)
{
	struct sigaction real;

	if (host_signals_is_ours(sig))
		return vb_fault_action(sig, NULL, before) || vb_libc_sigaction(sig, act, &real) ? -1
												: 0;
	return vb_libc_sigaction(sig, act, before);
}

static int set_action(int sig, const struct sigaction *act, struct sigaction *before)
{
	return host_signals_is_ours(sig) ? vb_fault_action(sig, act, before)
					 : vb_libc_sigaction(sig, act, before);
}

int vb_signal_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction copy, before;
	unsigned char bits = 0, bits_before;
	bool borrowed = vb_signal_is_borrowed();
	int ret, err = errno;
	uint64_t mask;

	if (sig < 1 || sig >= SIGNALS) {
		errno = EINVAL;
		return -1;
	}
	if (act) {
		copy = *act;
		mask = vb_sigset_bits(&act->sa_mask);
		bits = (unsigned char)host_signals_take_bits(&mask);
		vb_sigset_put_bits(&copy.sa_mask, mask);
		note_handler(sig, act);
	}
	bits_before = atomic_load_explicit(&handler_bits[sig], memory_order_relaxed);
	ret = (borrowed ? borrowed_action : set_action)(sig, act ? &copy : NULL, &before);
	if (ret)
		return ret;
	if (act && !borrowed)
		atomic_store_explicit(&handler_bits[sig], bits, memory_order_relaxed);
	if (old) {
		*old = before;
		vb_sigset_put_bits(
			&old->sa_mask,
			host_signals_put_bits(vb_sigset_bits(&before.sa_mask), bits_before));
	}
	errno = err;
	return 0;
}

static sighandler_t set_handler(int sig, const struct sigaction *act)
{
	struct sigaction old;

	if (act->sa_handler == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return vb_signal_action(sig, act, &old) ? SIG_ERR : old.sa_handler;
}

sighandler_t vb_signal_handler(int sig, sighandler_t handler, int flags)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags };

	return set_handler(sig, &act);
}

static _Atomic uint64_t interrupting; /* signals that siginterrupt() was called for, by number */

sighandler_t vb_signal_bsd_handler(int sig, sighandler_t handler)
{
	struct sigaction act = { .sa_handler = handler };

	if (sig >= 1 && sig < SIGNALS) {
		vb_sigset_put_bits(&act.sa_mask, VB_SIGNAL_BIT(sig));
		act.sa_flags = atomic_load_explicit(&interrupting, memory_order_relaxed) &
					       VB_SIGNAL_BIT(sig)
				       ? 0
				       : SA_RESTART;
	}
	return set_handler(sig, &act);
}

int vb_signal_interrupt(int sig, bool interrupts)
{
	struct sigaction act;

	if (vb_signal_action(sig, NULL, &act))
		return -1;
	if (interrupts) {
		atomic_fetch_or_explicit(&interrupting, VB_SIGNAL_BIT(sig), memory_order_relaxed);
		act.sa_flags &= ~SA_RESTART;
	} else {
		atomic_fetch_and_explicit(&interrupting, ~VB_SIGNAL_BIT(sig), memory_order_relaxed);
		act.sa_flags |= SA_RESTART;
	}
	return vb_signal_action(sig, &act, NULL);
}

/* --- masks ------------------------------------------------------------------------------------ */

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
	uint64_t mask = 0, real = 0;
	int ret, err = errno;

	if (set) {
		mask = vb_sigset_bits(set) & ~VB_SIGNALS_OF_LIBC; /* as libc does */
		bits = host_signals_take_bits(&mask);
	}
	if (syscall(SYS_rt_sigprocmask, how, set ? &mask : NULL, &real, KERNEL_SIGSET)) {
		ret = errno;
		errno = err;
		return ret;
	}
	if (set && !vb_signal_is_borrowed())
		thread_bits = how == SIG_BLOCK     ? before | bits
			      : how == SIG_UNBLOCK ? before & ~bits
						   : bits;
	if (old) {
		host_signals_take_bits(&real);
		vb_sigset_put_bits(old, host_signals_put_bits(real, before));
	}
	if (set && pending_bits)
		send_pending(thread_bits);
	return 0;
}

void vb_signal_strip(sigset_t *set)
{
	uint64_t mask = vb_sigset_bits(set);

	host_signals_take_bits(&mask);
	vb_sigset_put_bits(set, mask);
}

int vb_signal_wait_begin(struct vb_signal_wait *wait, const sigset_t *set)
{
	uint64_t mask;

	wait->mask = set ? &wait->real : NULL;
	wait->before = thread_bits;
	if (!set)
		return 0;
	mask = vb_sigset_bits(set);
	thread_bits = host_signals_take_bits(&mask);
	vb_sigset_put_bits(&wait->real, mask);
	if (!(pending_bits & ~thread_bits))
		return 0;
	send_pending(thread_bits);
	vb_signal_wait_end(wait);
	return EINTR;
}

void vb_signal_wait_end(const struct vb_signal_wait *wait)
{
	thread_bits = wait->before;
}

static bool is_held(int sig)
{
	return thread_bits & (sig == SIGSEGV ? SEGV_BIT : BUS_BIT);
}

static void host_signals_hold(int sig)
{
	pending_bits |= sig == SIGSEGV ? SEGV_BIT : BUS_BIT;
}

/* --- filters ---------------------------------------------------------------------------------- */

static _Atomic bool closing_in;
static _Atomic(vb_signal_settle *) on_closing_in;

/*
 * From here on nothing is asked of the kernel that the program did not ask for. Without the first of
 * the two a filter needs a privilege, so that libraries of filters always set it. What a child of
 * vfork() does is not for its parent.
 */
void vb_signal_note_prctl(int option)
{
	vb_signal_settle *prepare;
	int err = errno;

	if ((option != PR_SET_NO_NEW_PRIVS && option != PR_SET_SECCOMP) ||
	    vb_signal_is_borrowed() || atomic_load_explicit(&closing_in, memory_order_relaxed))
		return;
	prepare = atomic_load_explicit(&on_closing_in, memory_order_acquire);
	if (prepare)
		prepare();
	atomic_store_explicit(&closing_in, true, memory_order_relaxed);
	errno = err;
}

/* --- rights ----------------------------------------------------------------------------------- */

static _Atomic(vb_rights_hook *) rights_hook;

vb_rights_hook *vb_signal_rights_hook(void)
{
	return atomic_load_explicit(&rights_hook, memory_order_acquire);
}

const struct vb_signal_keeper vb_signal_keeper = {
	.is_held = is_held,
	.hold = host_signals_hold,
	.handlers = &handlers,
	.settle = &settle,
	.closing_in = &closing_in,
	.rights = &rights_hook,
	.on_closing_in = &on_closing_in,
};
