// SPDX-License-Identifier: MIT
/*
 * sigaction() and its relatives, in front of libc's: host/signals.h says why.
 *
 * This file is part of libibverbs.so.1, which comes before libc where a program was linked with it,
 * and of the preload of `verbatim run`, which comes before everybody. The names have no version: a
 * reference that names libc's then takes them.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "host/real.h"
#include "host/signals.h"

/* At the edge: 0, or -1 with errno. */
static int status(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

/* libibverbs.so.1 comes after run-times that have such functions of their own; the preload before. */
#ifdef VB_PRELOAD
#define ASIDE(name, ...)                                \
	do {                                            \
		if (vb_signal_stands_aside())           \
			return REAL(name)(__VA_ARGS__); \
	} while (0)
#else
#define ASIDE(name, ...)
#endif

/* --- handlers --------------------------------------------------------------------------------- */

VB_PUBLIC int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	ASIDE(sigaction, sig, act, old);
	return vb_signal_action(sig, act, old);
}

VB_PUBLIC sighandler_t signal(int sig, sighandler_t handler)
{
	ASIDE(signal, sig, handler);
	return vb_signal_bsd_handler(sig, handler);
}

VB_PUBLIC sighandler_t bsd_signal(int sig, sighandler_t handler);

VB_PUBLIC sighandler_t bsd_signal(int sig, sighandler_t handler)
{
	ASIDE(bsd_signal, sig, handler);
	return vb_signal_bsd_handler(sig, handler);
}

VB_PUBLIC sighandler_t ssignal(int sig, sighandler_t handler)
{
	ASIDE(ssignal, sig, handler);
	return vb_signal_bsd_handler(sig, handler);
}

/* What it says counts for later calls of signal(), too. */
VB_PUBLIC int siginterrupt(int sig, int interrupt)
{
	ASIDE(siginterrupt, sig, interrupt);
	return vb_signal_interrupt(sig, interrupt);
}

VB_PUBLIC sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	ASIDE(sysv_signal, sig, handler);
	return vb_signal_handler(sig, handler, SA_RESETHAND | SA_NODEFER);
}

/* What signal() means under -std=c11 -D_XOPEN_SOURCE. */
VB_PUBLIC sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	ASIDE(__sysv_signal, sig, handler);
	return vb_signal_handler(sig, handler, SA_RESETHAND | SA_NODEFER);
}

VB_PUBLIC int sigignore(int sig)
{
	struct sigaction act = { .sa_handler = SIG_IGN };

	ASIDE(sigignore, sig);
	return vb_signal_action(sig, &act, NULL);
}

static int change_one(int how, int sig, sigset_t *old)
{
	sigset_t one;

	sigemptyset(&one);
	return sigaddset(&one, sig) ? -1 : status(vb_signal_mask(how, &one, old));
}

/*
 * Blocks the signal, or sets its handler and unblocks it; the handler before, SIG_HOLD where it was
 * blocked. As libc's it takes SIG_ERR for an address.
 */
VB_PUBLIC sighandler_t sigset(int sig, sighandler_t handler)
{
	struct sigaction act = { .sa_handler = handler }, before;
	sigset_t mask;

	ASIDE(sigset, sig, handler);
	if (vb_signal_action(sig, handler == SIG_HOLD ? NULL : &act, &before) ||
	    change_one(handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, sig, &mask))
		return SIG_ERR;
	return vb_sigset_bits(&mask) & VB_SIGNAL_BIT(sig) ? SIG_HOLD : before.sa_handler;
}

/* --- masks ------------------------------------------------------------------------------------ */

VB_PUBLIC int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	ASIDE(pthread_sigmask, how, set, old);
	return vb_signal_mask(how, set, old);
}

VB_PUBLIC int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	ASIDE(sigprocmask, how, set, old);
	return status(vb_signal_mask(how, set, old));
}

VB_PUBLIC int sighold(int sig)
{
	ASIDE(sighold, sig);
	return change_one(SIG_BLOCK, sig, NULL);
}

VB_PUBLIC int sigrelse(int sig)
{
	ASIDE(sigrelse, sig);
	return change_one(SIG_UNBLOCK, sig, NULL);
}

/* BSD's masks are the first signals as bits of an int. */
static int signal_wrappers_change_bits(int how, int bits)
{
	sigset_t set, old;

	vb_sigset_put_bits(&set, (unsigned int)bits);
	return status(vb_signal_mask(how, &set, &old)) ? -1 : (int)(uint32_t)vb_sigset_bits(&old);
}

VB_PUBLIC int sigblock(int mask)
{
	ASIDE(sigblock, mask);
	return signal_wrappers_change_bits(SIG_BLOCK, mask);
}

VB_PUBLIC int sigsetmask(int mask)
{
	ASIDE(sigsetmask, mask);
	return signal_wrappers_change_bits(SIG_SETMASK, mask);
}

/* The thread that starts so believes to block nothing, as one that inherits a mask does. */
VB_PUBLIC int pthread_attr_setsigmask_np(pthread_attr_t *attr, const sigset_t *mask)
{
	sigset_t real;

	ASIDE(pthread_attr_setsigmask_np, attr, mask);
	if (mask) {
		real = *mask;
		vb_signal_strip(&real);
	}
	return REAL(pthread_attr_setsigmask_np)(attr, mask ? &real : NULL);
}

/* --- waits with a mask of their own ----------------------------------------------------------- */

/* The value of call, which is libc's function with wait.mask for its mask. */
#define WAIT(set, call)                                     \
	({                                                  \
		struct vb_signal_wait wait;                 \
		int ret = vb_signal_wait_begin(&wait, set); \
                                                            \
		if (ret) {                                  \
			ret = status(ret);                  \
		} else {                                    \
			ret = (call);                       \
			vb_signal_wait_end(&wait);          \
		}                                           \
		ret;                                        \
	})

VB_PUBLIC int sigsuspend(const sigset_t *set)
{
	ASIDE(sigsuspend, set);
	return WAIT(set, REAL(sigsuspend)(wait.mask));
}

VB_PUBLIC int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		    const sigset_t *set)
{
	ASIDE(ppoll, fds, count, timeout, set);
	return WAIT(set, REAL(ppoll)(fds, count, timeout, wait.mask));
}

VB_PUBLIC int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
			  const sigset_t *set, size_t size);

/* What programs built with _FORTIFY_SOURCE call. */
VB_PUBLIC int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
			  const sigset_t *set, size_t size)
{
	ASIDE(__ppoll_chk, fds, count, timeout, set, size);
	return WAIT(set, REAL(__ppoll_chk)(fds, count, timeout, wait.mask, size));
}

VB_PUBLIC int pselect(int count, fd_set *readable, fd_set *writable, fd_set *except,
		      const struct timespec *timeout, const sigset_t *set)
{
	ASIDE(pselect, count, readable, writable, except, timeout, set);
	return WAIT(set, REAL(pselect)(count, readable, writable, except, timeout, wait.mask));
}

VB_PUBLIC int epoll_pwait(int fd, struct epoll_event *events, int count, int timeout,
			  const sigset_t *set)
{
	ASIDE(epoll_pwait, fd, events, count, timeout, set);
	return WAIT(set, REAL(epoll_pwait)(fd, events, count, timeout, wait.mask));
}

VB_PUBLIC int epoll_pwait2(int fd, struct epoll_event *events, int count,
			   const struct timespec *timeout, const sigset_t *set)
{
	ASIDE(epoll_pwait2, fd, events, count, timeout, set);
	return WAIT(set, REAL(epoll_pwait2)(fd, events, count, timeout, wait.mask));
}
