// SPDX-License-Identifier: MIT
/* Device half of emu.c, with today's forms of the functions. */
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

__dpa_rpc__ uint64_t emu_trigger(uint32_t cqn, uint32_t id)
{
	(void)last_errno();
	EMU_TRIGGER(cqn, id);
	return last_errno();
}

__dpa_rpc__ uint64_t emu_value(uint32_t id)
{
	return flexio_dev_read_db_value(id);
}

__dpa_rpc__ uint64_t emu_msix(uint32_t cqn)
{
	(void)last_errno();
	MSIX(cqn);
	return last_errno();
}
