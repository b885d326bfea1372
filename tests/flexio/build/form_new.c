// SPDX-License-Identifier: MIT
/* Device code in the forms since 24.10: no thread context. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>

/* Calls that the card refuses, so that the program runs without queues: what counts is that they arrive. */
__dpa_rpc__ uint64_t refused(void)
{
	struct flexio_dev_thread_ctx *dtctx;
	flexio_uintptr_t at;
	uint64_t bits = 0;

	flexio_dev_get_thread_ctx(&dtctx);
	bits |= flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, 0xfff0, 1) ==
		FLEXIO_DEV_STATUS_FAILED;
	bits |= (flexio_dev_window_mkey_config(FLEXIO_DEV_WINDOW_ENTITY_1, 1) ==
		 FLEXIO_DEV_STATUS_FAILED)
		<< 1;
	bits |= (flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, 4096, &at) ==
		 FLEXIO_DEV_STATUS_FAILED)
		<< 2;
	bits |= (flexio_dev_get_and_rst_errno(dtctx) != 0) << 3;
	return bits;
}

__dpa_global__ void never_run(uint64_t arg)
{
	flexio_dev_cq_arm(1, 2);
	flexio_dev_qp_sq_ring_db(1, 2);
	flexio_dev_zcqe_gen(3);
	flexio_dev_msix_send(3);
	flexio_dev_thread_reschedule();
}
