// SPDX-License-Identifier: MIT
/*
 * RDMA without the host: read a text from another process, turn it around, write it back, and count that with an
 * atomic. The host only made the queues.
 */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>

#include "shared.h"

/* The first segment of the next work request. A block has four segments, and each of ours fits one block. */
static union flexio_dev_sqe_seg *next_wqe(struct job *job)
{
	return (union flexio_dev_sqe_seg *)job->sq + 4 * (job->pi % DEPTH);
}

/* Ring the doorbell, and wait until the card says that it is done. */
static int ring_and_wait(struct job *job)
{
	struct flexio_dev_cqe64 *cqe = (struct flexio_dev_cqe64 *)job->cq + job->ci % DEPTH;
	uint32_t turn = (job->ci / DEPTH) & 1;

	job->pi++;
	flexio_dev_qp_sq_ring_db(job->pi, job->qpn);
	/* The owner bit changes with each turn of the ring. */
	while (flexio_dev_cqe_get_owner(cqe) != turn)
		;
	job->ci++;
	flexio_dev_dbr_cq_set_ci((uint32_t *)job->cq_dbr, job->ci);
	if (flexio_dev_cqe_get_opcode(cqe) != 0) {
		flexio_dev_print("the card refused: syndrome 0x%x\n",
				 flexio_dev_cqe_get_err_synd(cqe) & 0xff);
		return -1;
	}
	return 0;
}

static int move(struct job *job, enum flexio_ctrl_seg what, uint64_t remote, uint32_t size)
{
	union flexio_dev_sqe_seg *wqe = next_wqe(job);

	flexio_dev_swqe_seg_ctrl_set(&wqe[0], job->pi, job->qpn, MLX5_CTRL_SEG_CE_CQE_ALWAYS, what);
	flexio_dev_swqe_seg_rdma_set(&wqe[1], job->rkey, remote);
	flexio_dev_swqe_seg_mem_ptr_data_set(&wqe[2], size, job->lkey, job->buffer);
	return ring_and_wait(job);
}

static int count(struct job *job, uint64_t add)
{
	union flexio_dev_sqe_seg *wqe = next_wqe(job);

	flexio_dev_swqe_seg_ctrl_set(&wqe[0], job->pi, job->qpn, MLX5_CTRL_SEG_CE_CQE_ALWAYS,
				     FLEXIO_CTRL_SEG_ATOMIC_FETCH_AND_ADD);
	flexio_dev_swqe_seg_rdma_set(&wqe[1], job->rkey, job->remote_counter);
	flexio_dev_swqe_seg_atomic_set(&wqe[2], add, 0);
	flexio_dev_swqe_seg_mem_ptr_data_set(&wqe[3], 8, job->lkey, job->buffer);
	return ring_and_wait(job);
}

__dpa_rpc__ uint64_t turn_around(struct job *job)
{
	char *text = (char *)job->buffer;

	if (move(job, FLEXIO_CTRL_SEG_RDMA_READ, job->remote_text, job->text_size))
		return 1;
	flexio_dev_print("read:  %s\n", text);
	for (uint32_t i = 0; i < job->text_size / 2; i++) {
		char c = text[i];

		text[i] = text[job->text_size - 1 - i];
		text[job->text_size - 1 - i] = c;
	}
	flexio_dev_print("write: %s\n", text);
	if (move(job, FLEXIO_CTRL_SEG_RDMA_WRITE, job->remote_answer, job->text_size))
		return 1;
	if (count(job, job->text_size))
		return 1;
	flexio_dev_print("the counter was %lu\n", *(unsigned long *)text);
	return 0;
}
