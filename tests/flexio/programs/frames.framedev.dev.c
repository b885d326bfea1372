// SPDX-License-Identifier: MIT
/*
 * Device code of frames.c: writes one send WQE with the functions of the library, and takes frames
 * in an event handler.
 */
#include "queue_dev.h"

#include "frames.h"

/* Headers begin in the last two bytes of the Ethernet segment and go on in the next ones. */
static uint32_t put_header(struct frames_send *job)
{
	uint32_t size = job->inline_size & 0x8000 ? 0 : job->inline_size, index = 2;

	flexio_dev_swqe_seg_eth_set(sq_seg(&job->sq, 1), (uint16_t)job->flags, (uint16_t)job->mss,
				    (uint16_t)job->inline_size, job->header);
	sq_seg(&job->sq, 1)->eth.rsvd0 = cpu_to_be32(job->swp);
	for (uint32_t at = 2; at < size; at += 16)
		memcpy(sq_seg(&job->sq, index++)->inline_data.inline_data, job->header + at, 16);
	return index;
}

__dpa_rpc__ uint64_t send_wqe(struct frames_send *job)
{
	union flexio_dev_sqe_seg *ctrl = sq_seg(&job->sq, 0);
	struct flexio_dev_cqe64 *cqe;
	uint32_t index;

	flexio_dev_swqe_seg_ctrl_set(ctrl, job->sq.pi, job->sq.number, MLX5_CTRL_SEG_CE_CQE_ALWAYS,
				     (enum flexio_ctrl_seg)job->type);
	if (job->opcode)
		ctrl->ctrl.idx_opcode =
			cpu_to_be32((job->opcode & 0xff0000ff) | (job->sq.pi & 0xffff) << 8);
	index = put_header(job);
	for (uint32_t i = 0; i < job->parts; i++)
		flexio_dev_swqe_seg_mem_ptr_data_set(sq_seg(&job->sq, index++), job->part[i].len,
						     job->lkey, job->part[i].addr);
	ctrl->ctrl.qpn_ds = cpu_to_be32(job->sq.number << 8 | index);
	job->sq.pi += (index + 3) / 4;
	RING(job->sq.pi, job->sq.number);
	while (!(cqe = cq_peek(&job->cq)))
		;
	read_cqe(cqe, &job->cqe);
	cq_consume(&job->cq);
	return job->cqe.opcode;
}

/* Woken by frames: keep their completions, and be woken again. */
__dpa_global__ void take_frames(uint64_t arg)
{
	struct frames_seen *seen = (struct frames_seen *)arg;
	struct flexio_dev_cqe64 *cqe;

	seen->runs++;
	while ((cqe = cq_peek(&seen->cq))) {
		memcpy(seen->cqe[seen->frames % FRAMES_SEEN], cqe, 64);
		seen->csum_ok[seen->frames % FRAMES_SEEN] = flexio_dev_cqe_get_csum_ok(cqe);
		cq_consume(&seen->cq);
		__atomic_store_n(&seen->frames, seen->frames + 1, __ATOMIC_RELEASE);
	}
	ARM(seen->cq.ci, seen->cq.number);
	flexio_dev_thread_reschedule();
}
