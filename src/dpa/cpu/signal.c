// SPDX-License-Identifier: MIT
/*
 * Owns SIGSEGV and SIGBUS: a fault of a guest access becomes a guest trap, anything else goes to
 * whoever had the signal before. The handler is installed with SA_ONSTACK, and translated code
 * keeps rsp on the host thread's own stack with room below, so it makes no difference whether the
 * program set an alternate stack.
 *
 * The handler leaves by longjmp into vb_cpu_run. Guest code, translated or interpreted, holds no
 * lock and owns nothing that would have to be undone; the one exception, an open window access, is
 * closed there.
 */
#include "dpa/cpu/cpu.h"
#include "dpa/cpu/jit/jit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

_Thread_local struct vb_cpu *vb_cpu_current __attribute__((tls_model("initial-exec")));

static struct sigaction earlier_segv, earlier_bus;
static pthread_once_t install_once = PTHREAD_ONCE_INIT;
static int install_error;

/* Did the access under way touch something that only a guest access touches? */
static bool fault_is_guest(const struct vb_cpu *cpu, const siginfo_t *info)
{
	const uint8_t *addr = info->si_addr;

	if (atomic_load_explicit(&cpu->accessing, memory_order_relaxed) & 1)
		return true;
	return (uint64_t)(addr - (cpu->base - VB_CPU_GUARD)) < cpu->limit + 2 * VB_CPU_GUARD;
}

static void call_earlier(const struct sigaction *earlier, int sig, siginfo_t *info, void *context)
{
	sigset_t mask = earlier->sa_mask, saved;

	if (!(earlier->sa_flags & SA_SIGINFO) &&
	    (earlier->sa_handler == SIG_DFL || earlier->sa_handler == SIG_IGN)) {
		/* The default is to die: let the fault, or the sent signal, come again without us.
		 */
		struct sigaction dfl = { .sa_handler = SIG_DFL };

		sigaction(sig, &dfl, NULL);
		if (info->si_code <= 0)
			raise(sig);
		return;
	}
	if (!(earlier->sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	pthread_sigmask(SIG_BLOCK, &mask, &saved);
	if (earlier->sa_flags & SA_SIGINFO)
		earlier->sa_sigaction(sig, info, context);
	else
		earlier->sa_handler(sig);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct vb_cpu *cpu = vb_cpu_current;

	/* si_code > 0: raised by an access, not sent by somebody. */
	if (cpu && cpu->fault && info->si_code > 0 &&
	    (vb_jit_fault(cpu, context) || fault_is_guest(cpu, info))) {
		/* A wrapper of sigaction may have blocked more than we asked for; this is not a
		 * return. */
		pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
		longjmp(*cpu->fault, 1);
	}
	call_earlier(sig == SIGSEGV ? &earlier_segv : &earlier_bus, sig, info, context);
}

static void install(void)
{
	struct sigaction action = { .sa_sigaction = on_fault };

	/* SA_NODEFER: the handler may leave by longjmp, and the signal must not stay blocked. */
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGSEGV, &action, &earlier_segv) || sigaction(SIGBUS, &action, &earlier_bus))
		install_error = -errno;
}

int vb_signal_install(void)
{
	pthread_once(&install_once, install);
	return install_error;
}
