/* SPDX-License-Identifier: MIT */
/*
 * A call into the run-time system. The numbers and what they do are in docs/rtos-abi.md; programs have no need for
 * them, the functions of libflexio-dev cover all.
 */
#ifndef __FLEXIO_OS_SYSCALL_H__
#define __FLEXIO_OS_SYSCALL_H__

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline int64_t flexio_os_syscall(uint64_t number, uint64_t arg0, uint64_t arg1,
					uint64_t arg2, uint64_t arg3, uint64_t arg4, uint64_t arg5)
{
	register uint64_t a0 __asm__("a0") = arg0;
	register uint64_t a1 __asm__("a1") = arg1;
	register uint64_t a2 __asm__("a2") = arg2;
	register uint64_t a3 __asm__("a3") = arg3;
	register uint64_t a4 __asm__("a4") = arg4;
	register uint64_t a5 __asm__("a5") = arg5;
	register uint64_t a7 __asm__("a7") = number;

	__asm__ volatile("ecall"
			 : "+r"(a0)
			 : "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5), "r"(a7)
			 : "memory");
	return (int64_t)a0;
}

#ifdef __cplusplus
}
#endif

#endif
