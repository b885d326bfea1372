// SPDX-License-Identifier: MIT
/* Device half of pcc.c. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>

static uint64_t last_errno(void)
{
	struct flexio_dev_thread_ctx *ctx;

	flexio_dev_get_thread_ctx(&ctx);
	return flexio_dev_get_and_rst_errno(ctx);
}

__dpa_rpc__ uint64_t decide(uint64_t ccq, uint64_t rate, uint64_t rtt, uint64_t act)
{
	flexio_dev_cc_ring_db((uint16_t)ccq, (uint32_t)rate, (uint32_t)rtt,
			      (enum flexio_dev_cc_db_next_act)act);
	return last_errno();
}

/* Through an outbox of the host; both halves, each by itself. */
__dpa_rpc__ uint64_t decide_through(uint64_t outbox, uint64_t ccq, uint64_t rate)
{
	struct flexio_dev_thread_ctx *ctx;
	uint64_t high;

	flexio_dev_get_thread_ctx(&ctx);
	if (flexio_dev_outbox_config(ctx, (uint16_t)outbox) != FLEXIO_DEV_STATUS_SUCCESS)
		return ~0ull;
	flexio_dev_cc_ring_db_high64bit(rate + 1);
	high = last_errno();
	flexio_dev_cc_ring_db((uint16_t)ccq, (uint32_t)rate, 0, CC_DB_NEXT_ACT_SINGLE);
	return last_errno() << 32 | high;
}

__dpa_rpc__ uint64_t halves(uint64_t high, uint64_t low)
{
	flexio_dev_cc_ring_db_high64bit(high);
	flexio_dev_cc_ring_db_low64bit(low);
	return last_errno();
}

__dpa_rpc__ uint64_t many(uint64_t ccq, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		flexio_dev_cc_ring_db((uint16_t)ccq, (uint32_t)i, 0, CC_DB_NEXT_ACT_SINGLE);
	return last_errno();
}

__dpa_rpc__ uint64_t table(uint64_t vhca_id)
{
	return flexio_dev_get_pcc_table_base((uint16_t)vhca_id);
}

__dpa_rpc__ uint64_t seen(uint64_t ccq, uint64_t word)
{
	return ((const uint64_t *)flexio_dev_get_pcc_table_base(0))[ccq * 4 + word];
}

__dpa_rpc__ uint64_t scribble(void)
{
	*(volatile uint64_t *)flexio_dev_get_pcc_table_base(0) = 1;
	return 0;
}
