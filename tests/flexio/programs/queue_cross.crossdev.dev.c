// SPDX-License-Identifier: MIT
/* Work whose doorbell goes to another adapter, in three ways. */
#include "queue_dev.h"

/* Write WQEs without ringing, then ring as told: 0 through the outbox as it is, 1 set to the other device, 2 directly. */
__dpa_rpc__ uint64_t run_cross(struct work *w, uint32_t how, uint32_t device_id)
{
	flexio_dev_status_t status = FLEXIO_DEV_STATUS_SUCCESS;

	(void)last_errno();
	for (uint32_t i = 0; i < w->nops; i++)
		post_send(&w->qp, &w->ops[i]);
	if (how == 1)
		status = flexio_dev_outbox_config_uar_extension(thread_ctx(), device_id);
	if (how == 2)
		status = flexio_dev_cross_device_ring_db(device_id, w->qp.number, w->qp.pi);
	else
		RING(w->qp.pi, w->qp.number);
	if (w->arm)
		ARM(w->cq.ci, w->cq.number);
	w->os_errno = last_errno();
	w->nops = 0;
	return status ? UINT64_MAX : w->expect ? do_work(w) : 0;
}

/* Takes completions of the other adapter, and arms the CQ there. */
__dpa_global__ void watch(uint64_t arg)
{
	struct work_watch *w = (struct work_watch *)arg;
	struct flexio_dev_cqe64 *cqe;
	uint64_t seen = w->seen;

	if (w->device_id)
		w->status = flexio_dev_outbox_config_uar_extension(thread_ctx(), w->device_id);
	w->runs++;
	for (; (cqe = cq_peek(&w->cq)); seen++) {
		w->bytes += flexio_dev_cqe_get_byte_cnt(cqe);
		cq_consume(&w->cq);
	}
	ARM(w->cq.ci, w->cq.number);
	__atomic_store_n(&w->seen, seen, __ATOMIC_RELEASE);
	flexio_dev_thread_reschedule();
}
