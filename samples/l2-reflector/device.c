// SPDX-License-Identifier: MIT
/*
 * An L2 reflector: every frame goes back to its sender, with the MAC addresses swapped. One event
 * handler for each receive queue; handlers share nothing, so they run at the same time on execution
 * units of their own.
 */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_queue_access.h>

#include "shared.h"

enum { CQE_REQUEST = 0, CQE_RESPONDER_SEND = 2 };

/* The next completion, or NULL. The owner bit changes with each turn of the ring. */
static struct flexio_dev_cqe64 *next_cqe(const struct queue *cq)
{
	struct flexio_dev_cqe64 *cqe = (struct flexio_dev_cqe64 *)cq->ring + cq->index % DEPTH;

	return flexio_dev_cqe_get_owner(cqe) == ((cq->index / DEPTH) & 1) ? cqe : NULL;
}

/* Buffers are aligned, so three loads and stores do it: bytes 0 to 5 and 6 to 11 change places. */
static void swap_macs(uint32_t *frame)
{
	uint32_t a = frame[0], b = frame[1], c = frame[2];

	frame[0] = b >> 16 | c << 16;
	frame[1] = c >> 16 | a << 16;
	frame[2] = a >> 16 | b << 16;
}

static void post_send(struct lane *lane, uint64_t addr, uint32_t len, uint32_t ce)
{
	union flexio_dev_sqe_seg *wqe =
		(union flexio_dev_sqe_seg *)lane->sq.ring + 4 * (lane->sq.index % DEPTH);

	flexio_dev_swqe_seg_ctrl_set(&wqe[0], lane->sq.index, lane->sq.number, ce,
				     FLEXIO_CTRL_SEG_SEND_EN);
	flexio_dev_swqe_seg_eth_set(&wqe[1], 0, 0, 0, NULL);
	flexio_dev_swqe_seg_mem_ptr_data_set(&wqe[2], len, lane->lkey, addr);
	lane->sq.index++;
}

/*
 * Ring, and wait until the card has sent everything: only the last WQE of a burst has a completion
 * of its own, any other one is that of an error.
 */
static void send_all(struct lane *lane)
{
	uint16_t last = (uint16_t)(lane->sq.index - 1), seen;

	flexio_dev_qp_sq_ring_db((uint16_t)lane->sq.index, lane->sq.number);
	do {
		struct flexio_dev_cqe64 *cqe;

		while (!(cqe = next_cqe(&lane->sq_cq)))
			;
		if (flexio_dev_cqe_get_opcode(cqe) != CQE_REQUEST)
			lane->failed++;
		seen = flexio_dev_cqe_get_wqe_counter(cqe);
		lane->sq_cq.index++;
	} while (seen != last);
	flexio_dev_dbr_cq_set_ci((uint32_t *)lane->sq_cq.record, lane->sq_cq.index);
}

/* Up to BURST frames; returns how many. */
static uint32_t reflect_burst(struct lane *lane)
{
	struct flexio_dev_cqe64 *cqe = next_cqe(&lane->rq_cq), *next;
	uint32_t frames = 0;
	uint64_t bytes = 0;

	for (; cqe && frames < BURST; frames++, cqe = next) {
		uint32_t index = flexio_dev_cqe_get_wqe_counter(cqe) % DEPTH;
		uint32_t len = flexio_dev_cqe_get_byte_cnt(cqe);
		uint64_t addr = lane->buffers + (uint64_t)index * BUFFER;

		lane->rq_cq.index++;
		next = next_cqe(&lane->rq_cq);
		swap_macs((uint32_t *)addr);
		post_send(lane, addr, len,
			  next && frames + 1 < BURST ? MLX5_CTRL_SEG_CE_CQE_ON_CQE_ERROR
						     : MLX5_CTRL_SEG_CE_CQE_ALWAYS);
		bytes += len;
	}
	if (!frames)
		return 0;
	send_all(lane);
	for (uint32_t i = 0; i < frames; i++)
		flexio_dev_dbr_rq_inc_pi((uint32_t *)lane->rq.record);
	flexio_dev_dbr_cq_set_ci((uint32_t *)lane->rq_cq.record, lane->rq_cq.index);
	lane->bytes += bytes;
	/* Release: who sees the number sees the bytes. */
	__atomic_store_n(&lane->frames, lane->frames + frames, __ATOMIC_RELEASE);
	return frames;
}

/* Woken by the CQ of one receive queue. */
__dpa_global__ void reflect(uint64_t arg)
{
	struct lane *lane = (struct lane *)arg;

	while (reflect_burst(lane))
		;
	flexio_dev_cq_arm(lane->rq_cq.index, lane->rq_cq.number);
	flexio_dev_thread_reschedule();
}
