// SPDX-License-Identifier: MIT
/* The same with the forms before 24.10, which take the thread context and have a result. */
#include <libflexio-dev/flexio_dev_ver.h>
#define FLEXIO_DEV_VER_USED FLEXIO_DEV_VER(24, 7, 0)
#include "emu_dev.h"

__dpa_global__ void old_on_doorbell(uint64_t arg)
{
	do_doorbell((struct emu_state *)arg);
}

__dpa_rpc__ uint64_t old_emu_arm(uint32_t cqn, uint32_t id)
{
	return (uint64_t)EMU_ARM(cqn, id);
}

__dpa_rpc__ uint64_t old_emu_trigger(uint32_t cqn, uint32_t id)
{
	return (uint64_t)EMU_TRIGGER(cqn, id);
}
