// SPDX-License-Identifier: MIT
/*
 * The calling thread: its context, its ends, its error number.
 *
 * The context lies in memory that the host made and never moves, so its address is asked for once
 * per thread and kept in thread local memory.
 */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>

#include "ecall.h"

_Static_assert(offsetof(struct vb_rtos_thread, thread_id) == sizeof(struct flexio_os_thread_ctx),
	       "the public context is the head of ours");
_Static_assert(offsetof(struct vb_rtos_thread, os_errno) ==
		       offsetof(struct flexio_os_thread_ctx, os_errno),
	       "one layout");
_Static_assert(offsetof(struct vb_rtos_thread, outbox_base) ==
		       offsetof(struct flexio_os_thread_ctx, outbox_base),
	       "one layout");

/*
 * What the host looks for: this program was linked with a device library that speaks this version.
 */
__attribute__((used, retain)) const uint64_t __flexio_dev_abi_version = VB_RTOS_ABI_VERSION;

__thread struct flexio_os_thread_ctx *__flexio_dev_thread;

struct flexio_os_thread_ctx *__dpa_os_get_thread_ctx(void)
{
	if (!__flexio_dev_thread)
		__flexio_dev_thread =
			(struct flexio_os_thread_ctx *)(uintptr_t)ecall1(VB_RTOS_THREAD_CTX, 0);
	return __flexio_dev_thread;
}

static struct vb_rtos_thread *inner(struct flexio_dev_thread_ctx *dtctx)
{
	return dtctx ? (struct vb_rtos_thread *)dtctx : this_thread();
}

int flexio_dev_get_thread_ctx(struct flexio_dev_thread_ctx **dtctx)
{
	if (!dtctx)
		return -EINVAL;
	*dtctx = (struct flexio_dev_thread_ctx *)__dpa_os_get_thread_ctx();
	return 0;
}

uint32_t flexio_dev_get_thread_id(struct flexio_dev_thread_ctx *dtctx)
{
	return inner(dtctx)->thread_id;
}

uint32_t __flexio_dev_thread_id(void)
{
	return this_thread()->thread_id;
}

flexio_uintptr_t flexio_dev_get_thread_local_storage(struct flexio_dev_thread_ctx *dtctx)
{
	return inner(dtctx)->tls;
}

const char *flexio_dev_get_current_thread_name(void)
{
	return this_thread()->name;
}

uint64_t flexio_dev_get_errno(struct flexio_dev_thread_ctx *dtctx)
{
	return inner(dtctx)->os_errno;
}

void flexio_dev_rst_errno(struct flexio_dev_thread_ctx *dtctx)
{
	inner(dtctx)->os_errno = 0;
}

uint64_t flexio_dev_get_and_rst_errno(struct flexio_dev_thread_ctx *dtctx)
{
	struct vb_rtos_thread *thread = inner(dtctx);
	uint64_t number = thread->os_errno;

	thread->os_errno = 0;
	return number;
}

/* ---- ends ---- */

static __attribute__((__noreturn__)) void end(enum vb_rtos_call call, uint64_t arg)
{
	__flexio_dev_line_flush(this_thread());
	ecall_end(call, arg);
}

void flexio_dev_thread_reschedule(void)
{
	end(VB_RTOS_RESCHEDULE, 0);
}

void flexio_dev_thread_finish(void)
{
	end(VB_RTOS_FINISH, 0);
}

void flexio_dev_thread_retrigger(void)
{
	end(VB_RTOS_RETRIGGER, 0);
}

void flexio_dev_process_finish(void)
{
	end(VB_RTOS_PROCESS_FINISH, 0);
}

void flexio_dev_reschedule(void)
{
	end(VB_RTOS_RESCHEDULE, 0);
}

void flexio_dev_finish(void)
{
	end(VB_RTOS_FINISH, 0);
}

void flexio_dev_error(uint8_t errcode)
{
	end(VB_RTOS_ERROR, errcode);
}

static void yield(struct vb_rtos_thread *thread, uint64_t retrigger)
{
	if (!(thread->flags & VB_RTOS_THREAD_CONTINUABLE))
		return;
	__flexio_dev_line_flush(thread);
	ecall1(VB_RTOS_YIELD, retrigger);
}

void flexio_dev_yield(struct flexio_dev_thread_ctx *dtctx)
{
	yield(inner(dtctx), 0);
}

void flexio_dev_yield_and_retrigger(void)
{
	yield(this_thread(), 1);
}

void flexio_dev_event_handler_activate(uint32_t activation_id)
{
	if (ecall1(VB_RTOS_ACTIVATE, activation_id) < 0)
		set_errno(EINVAL);
}

void __flexio_dev_relax(void)
{
	ecall1(VB_RTOS_RELAX, 0);
}
