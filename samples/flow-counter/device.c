// SPDX-License-Identifier: MIT
/*
 * Counts frames by the tag that the rule of their flow gave them. The tag is in the completion, so
 * device code need not look at the frame.
 */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_queue_access.h>

#include "shared.h"

/* The next completion, or NULL. The owner bit changes with each turn of the ring. */
static struct flexio_dev_cqe64 *next_cqe(const struct queue *cq)
{
	struct flexio_dev_cqe64 *cqe = (struct flexio_dev_cqe64 *)cq->ring + cq->index % DEPTH;

	return flexio_dev_cqe_get_owner(cqe) == ((cq->index / DEPTH) & 1) ? cqe : NULL;
}

/* Woken by the CQ. */
__dpa_global__ void count_flows(uint64_t arg)
{
	struct counter *c = (struct counter *)arg;
	struct flexio_dev_cqe64 *cqe;

	while ((cqe = next_cqe(&c->cq))) {
		/* Completions of frames have the tag where others have the number of the queue. */
		uint32_t tag = flexio_dev_cqe_get_qpn(cqe);

		if (tag < FLOWS) {
			c->flow[tag].frames++;
			c->flow[tag].bytes += flexio_dev_cqe_get_byte_cnt(cqe);
		} else {
			c->strays++;
		}
		/* The buffer is not needed any more. */
		flexio_dev_dbr_rq_inc_pi((uint32_t *)c->rq.record);
		flexio_dev_dbr_cq_set_ci((uint32_t *)c->cq.record, ++c->cq.index);
		/* Release: who sees the number sees what was counted. */
		__atomic_store_n(&c->frames, c->frames + 1, __ATOMIC_RELEASE);
	}
	flexio_dev_cq_arm(c->cq.index, c->cq.number);
	flexio_dev_thread_reschedule();
}
