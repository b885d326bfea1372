// SPDX-License-Identifier: MIT
/* Owns the two system calls behind mask.h. Made past libc, whose functions may be ours. */
#include "base/mask.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { KERNEL_SIGSET = 8 };

void vb_signal_block(sigset_t *before)
{
	const uint64_t all = ~(VB_SIGNALS_OF_FAULTS | VB_SIGNALS_OF_LIBC);

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, before, KERNEL_SIGSET);
}

void vb_signal_unblock(const sigset_t *before)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, before, NULL, KERNEL_SIGSET);
}
