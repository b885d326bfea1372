// SPDX-License-Identifier: MIT
/* Owns the heavy side of barrier.h. */
#include "base/barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool vb_barrier_available;

bool vb_barrier_register(void)
{
	vb_barrier_available =
		!syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
	return vb_barrier_available;
}

void vb_barrier_heavy(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (vb_barrier_available)
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}
