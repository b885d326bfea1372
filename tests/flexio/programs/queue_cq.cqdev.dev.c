// SPDX-License-Identifier: MIT
/* Work for the CQ program, and functions that ring what they are told to and say how that went. */
#include "queue_dev.h"

__dpa_rpc__ uint64_t run_work(struct work *w)
{
	return do_work(w);
}

__dpa_rpc__ uint64_t fill_recv(struct work_handler *w)
{
	for (uint32_t i = 0; i < 1u << w->qp.log_rq; i++)
		post_recv(&w->qp, w->buffers + (uint64_t)i * w->size, w->size, w->lkey);
	return 0;
}

/* Ring things by number; the thread's error number is the answer. */
__dpa_rpc__ uint64_t try_arm(uint32_t ci, uint32_t number)
{
	(void)last_errno();
	ARM(ci, number);
	return last_errno();
}

__dpa_rpc__ uint64_t try_zero(uint32_t number)
{
	(void)last_errno();
	ZERO_CQE(number);
	return last_errno();
}

__dpa_rpc__ uint64_t try_ring(uint32_t pi, uint32_t number)
{
	(void)last_errno();
	RING(pi, number);
	return last_errno();
}

__dpa_rpc__ uint64_t try_eq(uint32_t ci, uint32_t number)
{
	(void)last_errno();
	flexio_dev_eq_update_ci(ci, number);
	return last_errno();
}

/* Stores of other widths and to other registers. */
__dpa_rpc__ uint64_t try_store(uint64_t offset, uint64_t value, uint32_t size)
{
	uint64_t at = __dpa_os_get_thread_ctx()->outbox_base + offset;

	(void)last_errno();
	if (size == 8)
		*(volatile uint64_t *)at = value;
	else if (size == 4)
		*(volatile uint32_t *)at = (uint32_t)value;
	else if (size == 2)
		*(volatile uint16_t *)at = (uint16_t)value;
	else
		*(volatile uint8_t *)at = (uint8_t)value;
	return last_errno();
}

__dpa_rpc__ uint64_t try_outbox(uint32_t id, uint32_t pi, uint32_t number)
{
	flexio_dev_status_t status = flexio_dev_outbox_config(thread_ctx(), (uint16_t)id);

	(void)last_errno();
	RING(pi, number);
	return (uint64_t)status << 32 | last_errno();
}

__dpa_rpc__ uint64_t try_fast(uint32_t id, uint32_t pi, uint32_t number)
{
	flexio_dev_outbox_config_fast(thread_ctx(), (uint16_t)id);
	(void)last_errno();
	RING(pi, number);
	return last_errno();
}

__dpa_global__ void receive(uint64_t arg)
{
	do_receive((struct work_handler *)arg);
}
