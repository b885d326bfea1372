// SPDX-License-Identifier: MIT
/*
 * A fault of a guest access becomes a guest trap. host/fault.c owns the signals and asks here. Its
 * handler runs on an alternate stack where the program has one; translated code keeps rsp on the
 * host thread's own stack with room below, so it makes no difference.
 *
 * The handler leaves by longjmp into vb_cpu_run. Guest code, translated or interpreted, holds no
 * lock and owns nothing that would have to be undone; the one exception, an open window access, is
 * closed there.
 */
#include "host/fault.h"
#include "dpa/cpu/cpu.h"
#include "dpa/cpu/jit/jit.h"

#include <signal.h>

_Thread_local struct vb_cpu *vb_cpu_current __attribute__((tls_model("initial-exec")));

/* Did the access under way touch something that only a guest access touches? */
static bool fault_is_guest(const struct vb_cpu *cpu, const siginfo_t *info)
{
	const uint8_t *addr = info->si_addr;

	if (atomic_load_explicit(&cpu->accessing, memory_order_relaxed) & 1)
		return true;
	return (uint64_t)(addr - (cpu->base - VB_CPU_GUARD)) < cpu->limit + 2 * VB_CPU_GUARD;
}

static bool signal_on_fault(int sig, siginfo_t *info, void *context)
{
	struct vb_cpu *cpu = vb_cpu_current;

	(void)sig;
	if (!cpu || !cpu->fault || !(vb_jit_fault(cpu, context) || fault_is_guest(cpu, info)))
		return false;
	vb_fault_unblock(context);
	longjmp(*cpu->fault, 1);
}

int vb_signal_install(void)
{
	return vb_fault_register(signal_on_fault);
}
