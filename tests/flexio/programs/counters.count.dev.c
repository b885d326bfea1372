// SPDX-License-Identifier: MIT
/* Device half of counters.c. */
#include "queue_dev.h"

static uint32_t ids[] = { FLEXIO_DEV_NIC_COUNTER_PORT0_RX_BYTES,
			  FLEXIO_DEV_NIC_COUNTER_PORT0_TX_BYTES,
			  FLEXIO_DEV_NIC_COUNTER_PORT3_RX_BYTES,
			  FLEXIO_DEV_NIC_COUNTER_PORT1_TX_BYTES };
static uint32_t values[4];
static uint32_t many[33];

__dpa_rpc__ uint64_t run_work(struct work *w)
{
	return do_work(w);
}

__dpa_rpc__ uint64_t configure(uint64_t unused)
{
	flexio_dev_nic_counters_config(values, ids, 4);
	return unused;
}

__dpa_rpc__ uint64_t sample(uint64_t word)
{
	flexio_dev_nic_counters_sample();
	return values[2 * word] | (uint64_t)values[2 * word + 1] << 32;
}

__dpa_rpc__ uint64_t on_stack(uint64_t unused)
{
	uint32_t mine[4] = { 0 };

	flexio_dev_nic_counters_config(mine, ids, 4);
	return unused + mine[0];
}

__dpa_rpc__ uint64_t unknown(uint64_t unused)
{
	ids[2] = 0x14;
	flexio_dev_nic_counters_config(values, ids, 4);
	return unused;
}

__dpa_rpc__ uint64_t too_many(uint64_t unused)
{
	flexio_dev_nic_counters_config(many, many, 33);
	return unused;
}

__dpa_rpc__ uint64_t twice(uint64_t unused)
{
	flexio_dev_nic_counters_config(values, ids, 4);
	flexio_dev_nic_counters_config(values, ids, 4);
	return unused;
}
