// SPDX-License-Identifier: MIT
/* Work that the host lists, with the newest forms. */
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

__dpa_global__ void receive(uint64_t arg)
{
	do_receive((struct work_handler *)arg);
}
