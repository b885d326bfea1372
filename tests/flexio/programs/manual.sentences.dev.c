// SPDX-License-Identifier: MIT
/* Device half of manual.c: work that the host lists, and single doorbells. */
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

__dpa_rpc__ uint64_t arm(uint32_t ci, uint32_t number)
{
	(void)last_errno();
	ARM(ci, number);
	return last_errno();
}

/* Through an outbox, which is set twice: the second time changes nothing. */
__dpa_rpc__ uint64_t zero(uint32_t outbox, uint32_t number)
{
	if (flexio_dev_outbox_config(thread_ctx(), (uint16_t)outbox) ||
	    flexio_dev_outbox_config(thread_ctx(), (uint16_t)outbox))
		return 1;
	(void)last_errno();
	ZERO_CQE(number);
	return last_errno();
}

/* What the host's memory holds, seen through a window that stays configured while the thread waits. */
__dpa_rpc__ uint64_t look(uint16_t window, uint32_t mkey, uint64_t haddr)
{
	flexio_uintptr_t at;

	if (flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, window, mkey) ||
	    flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, haddr, &at))
		return 0;
	return *(volatile uint64_t *)at;
}

__dpa_rpc__ uint64_t fall(void)
{
	*(volatile uint64_t *)8 = 1;
	return 0;
}

/* Configure the outbox, say so, wait for the host, and ring an empty send queue. */
__dpa_rpc__ uint64_t ring_later(uint32_t outbox, uint64_t word, uint32_t number)
{
	uint64_t *at = (uint64_t *)word;

	if (flexio_dev_outbox_config(thread_ctx(), (uint16_t)outbox))
		return 1;
	__atomic_store_n(at, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != 2)
		;
	(void)last_errno();
	outbox_write(__dpa_os_get_thread_ctx()->outbox_base, SXD_DB, OUTBOX_V_SXD_DB(0, number));
	return last_errno();
}
