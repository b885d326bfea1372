/* SPDX-License-Identifier: MIT */
/*
 * sigaction() and its relatives, in front of libc's (base/signals.h says why).
 *
 * They have no version: a reference that names libc's then takes them. They are seen where a program
 * was linked with this library, or has it preloaded; a program that loads us with dlopen() has libc
 * before us.
 */
#include "driver.h"

#include <signal.h>

#include "base/signals.h"

VB_PUBLIC int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return vb_signal_action(sig, act, old);
}

VB_PUBLIC sighandler_t signal(int sig, sighandler_t handler)
{
	return vb_signal_handler(sig, handler, SA_RESTART);
}

VB_PUBLIC sighandler_t bsd_signal(int sig, sighandler_t handler);

VB_PUBLIC sighandler_t bsd_signal(int sig, sighandler_t handler)
{
	return vb_signal_handler(sig, handler, SA_RESTART);
}

VB_PUBLIC sighandler_t ssignal(int sig, sighandler_t handler)
{
	return vb_signal_handler(sig, handler, SA_RESTART);
}

VB_PUBLIC sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return vb_signal_handler(sig, handler, SA_RESETHAND | SA_NODEFER);
}

/* What signal() means under -std=c11 -D_XOPEN_SOURCE. */
VB_PUBLIC sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return vb_signal_handler(sig, handler, SA_RESETHAND | SA_NODEFER);
}

VB_PUBLIC int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	return vb_signal_mask(how, set, old);
}

VB_PUBLIC int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	int err = vb_signal_mask(how, set, old);

	if (!err)
		return 0;
	errno = err;
	return -1;
}
