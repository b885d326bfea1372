// SPDX-License-Identifier: MIT
/*
 * What the card does for a thread on request: windows, outbox, counters, congestion control tables.
 */
#include <libflexio-dev/flexio_dev.h>

#include "ecall.h"

static flexio_dev_status_t status(int64_t result)
{
	if (!result)
		return FLEXIO_DEV_STATUS_SUCCESS;
	set_errno(EINVAL);
	return FLEXIO_DEV_STATUS_FAILED;
}

static flexio_dev_status_t refuse(void)
{
	return status(-1);
}

flexio_dev_status_t flexio_dev_multi_window_config(enum flexio_window_entity win_entity,
						   uint16_t window_config_id, uint32_t mkey)
{
	if ((unsigned int)win_entity >= FLEXIO_DEV_WINDOW_ENTITY_NUM)
		return refuse();
	return status(ecall3(VB_RTOS_WINDOW_CONFIG, win_entity, window_config_id, mkey));
}

flexio_dev_status_t flexio_dev_multi_window_mkey_config(enum flexio_window_entity win_entity,
							uint32_t mkey)
{
	if ((unsigned int)win_entity >= FLEXIO_DEV_WINDOW_ENTITY_NUM)
		return refuse();
	return status(ecall3(VB_RTOS_WINDOW_MKEY, win_entity, mkey, 0));
}

flexio_dev_status_t flexio_dev_multi_window_ptr_acquire(enum flexio_window_entity win_entity,
							uint64_t haddr, flexio_uintptr_t *daddr)
{
	int64_t at;

	if ((unsigned int)win_entity >= FLEXIO_DEV_WINDOW_ENTITY_NUM || !daddr)
		return refuse();
	at = ecall3(VB_RTOS_WINDOW_PTR, win_entity, haddr, 0);
	if (!at || at == -1)
		return refuse();
	*daddr = (flexio_uintptr_t)at;
	return FLEXIO_DEV_STATUS_SUCCESS;
}

flexio_dev_status_t flexio_dev_multi_window_copy_from_host(enum flexio_window_entity win_entity,
							   void *daddr, uint64_t haddr,
							   uint32_t size)
{
	if ((unsigned int)win_entity >= FLEXIO_DEV_WINDOW_ENTITY_NUM)
		return refuse();
	return status(ecall4(VB_RTOS_WINDOW_READ, win_entity, (uintptr_t)daddr, haddr, size));
}

flexio_dev_status_t flexio_dev_multi_window_copy_to_host(enum flexio_window_entity win_entity,
							 uint64_t haddr, const void *daddr,
							 uint32_t size)
{
	if ((unsigned int)win_entity >= FLEXIO_DEV_WINDOW_ENTITY_NUM)
		return refuse();
	return status(ecall4(VB_RTOS_WINDOW_WRITE, win_entity, haddr, (uintptr_t)daddr, size));
}

flexio_dev_status_t flexio_dev_outbox_config(struct flexio_dev_thread_ctx *dtctx,
					     uint16_t outbox_config_id)
{
	(void)dtctx; /* it is always the calling thread's */
	return status(ecall1(VB_RTOS_OUTBOX_CONFIG, outbox_config_id));
}

void flexio_dev_outbox_config_fast(struct flexio_dev_thread_ctx *dtctx, uint16_t outbox_config_id)
{
	(void)dtctx;
	(void)status(ecall1(VB_RTOS_OUTBOX_CONFIG, outbox_config_id));
}

flexio_dev_status_t flexio_dev_outbox_config_uar_extension(struct flexio_dev_thread_ctx *dtctx,
							   flexio_uar_device_id device_id)
{
	(void)dtctx;
	return status(ecall1(VB_RTOS_OUTBOX_EXTEND, device_id));
}

flexio_dev_status_t flexio_dev_cross_device_ring_db(flexio_uar_device_id device_id, uint32_t qpn,
						    uint32_t pi)
{
	return status(ecall3(VB_RTOS_CROSS_DB, device_id, qpn, pi));
}

void flexio_dev_nic_counters_config(uint32_t *counter_values, uint32_t *counter_ids,
				    uint32_t num_counters)
{
	(void)status(ecall3(VB_RTOS_COUNTERS_CONFIG, (uintptr_t)counter_values,
			    (uintptr_t)counter_ids, num_counters));
}

void flexio_dev_nic_counters_sample(void)
{
	(void)status(ecall1(VB_RTOS_COUNTERS_SAMPLE, 0));
}

uint64_t flexio_dev_get_pcc_table_base(uint16_t vhca_id)
{
	int64_t at = ecall1(VB_RTOS_PCC_TABLE, vhca_id);

	if (at > 0)
		return (uint64_t)at;
	set_errno(EINVAL);
	return 0;
}
