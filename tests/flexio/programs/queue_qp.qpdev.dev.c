// SPDX-License-Identifier: MIT
/* Work that the host lists, receive rings in and out of order, and WQEs as raw words. */
#include "queue_dev.h"

#include <stdlib.h>

__dpa_rpc__ uint64_t run_work(struct work *w)
{
	return do_work(w);
}

/* As many receives as the ring holds, in the order of the ring. */
__dpa_rpc__ uint64_t fill_recv(struct work_handler *w)
{
	for (uint32_t i = 0; i < 1u << w->qp.log_rq; i++)
		post_recv(&w->qp, w->buffers + (uint64_t)i * w->size, w->size, w->lkey);
	return 0;
}

/* The same with links, from the last one to the first. */
__dpa_rpc__ uint64_t fill_linked(struct work_handler *w)
{
	uint32_t number = 1u << w->qp.log_rq;

	for (uint32_t i = 0; i < number; i++) {
		union flexio_dev_sqe_seg *seg =
			(union flexio_dev_sqe_seg *)(w->qp.rq + (uint64_t)i * w->qp.stride);

		/* WQE 0 is first, then the last, and so on down */
		flexio_dev_swqe_seg_shared_receive_set(&seg[0], (uint16_t)((i - 1) & (number - 1)),
						       0);
		flexio_dev_swqe_seg_mem_ptr_data_set(&seg[1], w->size, w->lkey,
						     w->buffers + (uint64_t)i * w->size);
		flexio_dev_dbr_rq_inc_pi((uint32_t *)w->qp.dbr);
	}
	return 0;
}

/* One WQE as it is: four segments of 16 bytes. */
__dpa_rpc__ uint64_t ring_raw(struct work *w, uint32_t first, uint32_t second)
{
	uint32_t *words = (uint32_t *)sq_seg(&w->qp, 0);

	words[0] = cpu_to_be32(first);
	words[1] = cpu_to_be32(second);
	words[2] = cpu_to_be32(8);
	words[3] = 0;
	w->qp.pi++;
	return do_work(w);
}

__dpa_rpc__ uint64_t make_block(uint64_t size)
{
	return (uintptr_t)malloc(size);
}

/* Byte by byte, and gone. */
__dpa_rpc__ uint64_t sum_block(uint64_t addr, uint64_t size)
{
	volatile uint8_t *block = (void *)addr;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < size; i++)
		sum += block[i];
	free((void *)addr);
	return sum;
}
