// SPDX-License-Identifier: MIT
/* The same with the forms before 24.10. */
#include <libflexio-dev/flexio_dev_ver.h>
#define FLEXIO_DEV_VER_USED FLEXIO_DEV_VER(24, 7, 0)
#include "queue_dev.h"

__dpa_rpc__ uint64_t run_work_old(struct work *w)
{
	return do_work(w);
}

__dpa_rpc__ uint64_t fill_recv_old(struct work_handler *w)
{
	for (uint32_t i = 0; i < 1u << w->qp.log_rq; i++)
		post_recv(&w->qp, w->buffers + (uint64_t)i * w->size, w->size, w->lkey);
	return 0;
}

__dpa_global__ void receive_old(uint64_t arg)
{
	do_receive((struct work_handler *)arg);
}
