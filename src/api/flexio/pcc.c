// SPDX-License-Identifier: MIT
/*
 * Owns what programmable congestion control has without a wire: the table of a process, and what
 * doorbells of congestion control queues (CCQs) say. docs/pcc.md has the layout.
 *
 *	flexio_dev_cc_ring_db, _low64bit --> CC_DB     --> entry of the CCQ in the process's table
 *	flexio_dev_cc_ring_db_high64bit  --> CC_DB_MSB --> kept at the thread, goes with its next CC_DB
 *
 * The table is host memory behind a window that device code can only read: what stands there was
 * said by a doorbell.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

/* Beside the outbox page, below the windows of threads. */
#define TABLE_AT (1ULL << 42)

enum {
	RTT_SHIFT = 32,
	ACTION_SHIFT = 34,
	ACTION_MASK = 3,
	CCQ_SHIFT = 48,
};

int vb_pcc_init(struct flexio_process *process)
{
	struct vb_dpa_window *window; /* goes with the process */
	int err = -ENOMEM;

	process->pcc = calloc(VB_RTOS_PCC_QUEUES, sizeof(*process->pcc));
	if (process->pcc)
		err = vb_dpa_window_create(process->dpa, NULL, TABLE_AT,
					   VB_RTOS_PCC_QUEUES * sizeof(*process->pcc), process->pcc,
					   VB_DPA_READ, &window);
	if (err)
		fail("process %s: no table of congestion control: %s", process->name,
		     strerror(-err));
	return err;
}

void vb_pcc_free(struct flexio_process *process)
{
	free(process->pcc);
}

uint64_t vb_pcc_table(const struct flexio_process *process, uint64_t vhca_id)
{
	return process->pcc && vhca_id == process->uar.adapter->index ? TABLE_AT : 0;
}

/* Threads that ring for one CCQ at a time leave the values of one of them, field by field. */
int vb_pcc_ring(struct guest *guest, uint64_t value)
{
	struct vb_rtos_pcc *entry;

	if (!guest->process->pcc)
		return -ENOENT;
	entry = &guest->process->pcc[value >> CCQ_SHIFT];
	__atomic_store_n(&entry->rate, (uint32_t)value, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->rtt_req, (uint8_t)(value >> RTT_SHIFT & 1), __ATOMIC_RELAXED);
	__atomic_store_n(&entry->next_act, (uint8_t)(value >> ACTION_SHIFT & ACTION_MASK),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&entry->high, guest->cc_high, __ATOMIC_RELAXED);
	/* Release: who has seen the number sees the values. */
	__atomic_fetch_add(&entry->doorbells, 1, __ATOMIC_RELEASE);
	guest->cc_high = 0;
	return 0;
}
