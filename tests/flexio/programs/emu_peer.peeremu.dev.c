// SPDX-License-Identifier: MIT
/* Device half of emu_peer.c: queues that serve what a driver of another process publishes. */
#include "emu_dev.h"

__dpa_global__ void on_doorbell(uint64_t arg)
{
	do_doorbell((struct emu_state *)arg);
}

__dpa_rpc__ uint64_t emu_arm(uint32_t cqn, uint32_t id)
{
	(void)last_errno();
	EMU_ARM(cqn, id);
	return last_errno();
}
