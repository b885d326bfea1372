/* SPDX-License-Identifier: MIT */
/*
 * Calls into the run-time system, for the files of this folder and of libc/.
 */
#pragma once

#include <errno.h>
#include <stdint.h>

#include <libflexio-os/flexio_os.h>

#include "device/rtos.h"

static inline int64_t ecall4(enum vb_rtos_call call, uint64_t arg0, uint64_t arg1, uint64_t arg2,
			     uint64_t arg3)
{
	register uint64_t a0 __asm__("a0") = arg0;
	register uint64_t a1 __asm__("a1") = arg1;
	register uint64_t a2 __asm__("a2") = arg2;
	register uint64_t a3 __asm__("a3") = arg3;
	register uint64_t a7 __asm__("a7") = call;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a3), "r"(a7) : "memory");
	return (int64_t)a0;
}

static inline int64_t ecall3(enum vb_rtos_call call, uint64_t arg0, uint64_t arg1, uint64_t arg2)
{
	register uint64_t a0 __asm__("a0") = arg0;
	register uint64_t a1 __asm__("a1") = arg1;
	register uint64_t a2 __asm__("a2") = arg2;
	register uint64_t a7 __asm__("a7") = call;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
	return (int64_t)a0;
}

static inline int64_t ecall1(enum vb_rtos_call call, uint64_t arg0)
{
	register uint64_t a0 __asm__("a0") = arg0;
	register uint64_t a7 __asm__("a7") = call;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a7) : "memory");
	return (int64_t)a0;
}

/* For calls that do not come back. */
static inline __attribute__((__noreturn__)) void ecall_end(enum vb_rtos_call call, uint64_t arg0)
{
	for (;;)
		ecall1(call, arg0);
}

static inline struct vb_rtos_thread *this_thread(void)
{
	return (struct vb_rtos_thread *)__dpa_os_get_thread_ctx();
}

/* Note a recoverable error. */
static inline void set_errno(uint32_t number)
{
	this_thread()->os_errno = number;
}

/*
 * Print what stdout holds back, so that nothing overtakes it and nothing is lost with the thread.
 */
void __flexio_dev_line_flush(struct vb_rtos_thread *thread);
