// SPDX-License-Identifier: MIT
/* Device half of counters.c. */
#include "queue_dev.h"

#include <stdlib.h>

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
	for (int i = 0; i < 33; i++)
		many[i] = ids[0]; /* each of them exists */
	flexio_dev_nic_counters_config(many, many, 33);
	return unused;
}

/*
 * The most there can be, on the heap; then others in their place. A sample fills what was configured last, and nothing else.
 * Returns a bit for each thing that is right.
 */
__dpa_rpc__ uint64_t replaced(uint64_t unused)
{
	uint32_t *which = malloc(32 * sizeof(*which)), *seen = malloc(33 * sizeof(*seen));
	uint64_t ok = 0;

	(void)unused;
	for (int i = 0; i < 32; i++)
		which[i] = FLEXIO_DEV_NIC_COUNTER_PORT0_TX_BYTES + (i ? i % 4 : 0);
	memset(seen, 0xff, 33 * sizeof(*seen));
	flexio_dev_nic_counters_config(seen, which, 32);
	which[0] = FLEXIO_DEV_NIC_COUNTER_PORT2_RX_BYTES; /* the list was kept as it was */
	flexio_dev_nic_counters_sample();
	ok |= seen[0] == values[1] && seen[1] == 0 && seen[4] == seen[0] && seen[32] == ~0u;
	memset(seen, 0xee, 33 * sizeof(*seen));
	flexio_dev_nic_counters_config(values, ids, 4);
	memset(values, 0xff, sizeof(values));
	flexio_dev_nic_counters_sample();
	ok |= (uint64_t)(values[0] != ~0u && values[2] == 0 && values[3] == 0) << 1;
	for (int i = 0; i < 33; i++)
		ok |= (uint64_t)(seen[i] != 0xeeeeeeee) << 63;
	free(which);
	free(seen);
	return ok;
}
