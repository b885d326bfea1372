/* SPDX-License-Identifier: MIT */
/*
 * Memory barriers of the accelerator. New code uses the intrinsics of dpaintrin.h.
 */
#ifndef __FLEXIO_OS_MB_H__
#define __FLEXIO_OS_MB_H__

/* Everything before it, memory and device registers alike, is done before anything behind it. */
#define flexio_os_mb()  __asm__ volatile("fence iorw, iorw" ::: "memory")
#define flexio_os_rmb() __asm__ volatile("fence ir, ir" ::: "memory")
#define flexio_os_wmb() __asm__ volatile("fence ow, ow" ::: "memory")

#endif
