// SPDX-License-Identifier: MIT
/* The device half of the FlexIO benchmark. */
#include <dpaintrin.h>
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_queue_access.h>
#include <libflexio-dev/flexio_dev_tracer.h>

#include "shared.h"

__dpa_rpc__ uint64_t empty(uint64_t arg)
{
	return arg;
}

/* A nanosecond or so a turn. */
__dpa_rpc__ uint64_t busy(uint64_t turns)
{
	uint64_t x = turns;

	for (uint64_t i = 0; i < turns; i++)
		x = x * 6364136223846793005 + i;
	return x;
}

__dpa_rpc__ uint64_t print_many(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		flexio_dev_print("message %lu of the benchmark\n", i);
	return 0;
}

__dpa_rpc__ uint64_t trace_many(uint64_t id, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		flexio_dev_trace_2((uint8_t)id, FLEXIO_MSG_DEV_INFO, 0, i, count);
	return 0;
}

/* Two of them pass a trigger to and fro. */
__dpa_global__ void relay(uint64_t arg)
{
	struct relay *r = (struct relay *)arg;

	if (r->left) {
		r->left--;
		flexio_dev_event_handler_activate(r->next);
	} else {
		__atomic_store_n(&r->done, 1, __ATOMIC_RELEASE);
	}
	flexio_dev_thread_reschedule();
}

__dpa_rpc__ uint64_t kick(uint32_t id)
{
	flexio_dev_event_handler_activate(id);
	return 0;
}

/* ---- events ---- */

__dpa_global__ void stamp_activated(uint64_t arg)
{
	struct stamps *s = (struct stamps *)arg;

	s->seen = __dpa_thread_time();
	__atomic_store_n(&s->count, s->count + 1, __ATOMIC_RELEASE);
	flexio_dev_thread_reschedule();
}

__dpa_global__ void stamp_completed(uint64_t arg)
{
	struct stamps *s = (struct stamps *)arg;

	s->seen = __dpa_thread_time();
	flexio_dev_dbr_cq_set_ci((uint32_t *)s->dbr, ++s->ci);
	flexio_dev_cq_arm(s->ci, s->cqn);
	__atomic_store_n(&s->count, s->count + 1, __ATOMIC_RELEASE);
	flexio_dev_thread_reschedule();
}

static uint64_t pause(uint64_t ticks)
{
	uint64_t start = __dpa_thread_time(), at;

	while ((at = __dpa_thread_time()) - start < ticks)
		;
	return at;
}

static uint64_t latency(const struct stamps *s, uint64_t count, uint64_t start)
{
	while (__atomic_load_n(&s->count, __ATOMIC_ACQUIRE) == count)
		;
	return s->seen - start;
}

__dpa_rpc__ void ping_activated(struct stamps *s, uint64_t n, uint64_t ticks, uint64_t *out)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t count = s->count, start = pause(ticks);

		flexio_dev_event_handler_activate(s->activation);
		out[i] = latency(s, count, start);
	}
}

__dpa_rpc__ void ping_completed(struct stamps *s, uint64_t n, uint64_t ticks, uint64_t *out)
{
	if (!s->count)
		flexio_dev_cq_arm(s->ci, s->cqn);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t count = s->count, start = pause(ticks);

		flexio_dev_zcqe_gen(s->cqn);
		out[i] = latency(s, count, start);
	}
}

/* ---- rates ---- */

static void put_write(struct writer *w, enum cq_ce_mode ce)
{
	union flexio_dev_sqe_seg *seg =
		(union flexio_dev_sqe_seg *)w->sq + 4 * (w->pi & ((1u << RATE_LOG) - 1));

	flexio_dev_swqe_seg_ctrl_set(&seg[0], w->pi++, w->qpn, ce, FLEXIO_CTRL_SEG_RDMA_WRITE);
	flexio_dev_swqe_seg_rdma_set(&seg[1], w->rkey, w->to);
	flexio_dev_swqe_seg_mem_ptr_data_set(&seg[2], RATE_BYTES, w->lkey, w->from);
}

static void put_batch(struct writer *w)
{
	for (uint32_t i = 1; i < w->batch; i++)
		put_write(w, MLX5_CTRL_SEG_CE_CQE_ON_CQE_ERROR);
	put_write(w, MLX5_CTRL_SEG_CE_CQE_ALWAYS);
	flexio_dev_qp_sq_ring_db(w->pi, w->qpn);
}

static uint32_t take_completion(struct writer *w)
{
	struct flexio_dev_cqe64 *cqe =
		(struct flexio_dev_cqe64 *)w->cq_ring + (w->ci & ((1u << RATE_LOG) - 1));

	if (flexio_dev_cqe_get_owner(cqe) != ((w->ci >> RATE_LOG) & 1))
		return 0;
	w->errors += flexio_dev_cqe_get_opcode(cqe) != 0;
	flexio_dev_dbr_cq_set_ci((uint32_t *)w->cq_dbr, ++w->ci);
	return w->batch;
}

__dpa_global__ void write_on(uint64_t arg)
{
	struct writer *w = (struct writer *)arg;
	uint64_t posted = 0, completed = 0;

	w->start = __dpa_thread_time();
	while (completed < w->total && !w->errors) {
		while (posted < w->total && posted - completed + w->batch <= 1u << (RATE_LOG - 1)) {
			put_batch(w);
			posted += w->batch;
		}
		completed += take_completion(w);
	}
	__atomic_store_n(&w->end, __dpa_thread_time(), __ATOMIC_RELEASE);
	flexio_dev_thread_reschedule();
}

/* What an event handler does for an event: take a completion, answer with a write, wait for the next one. */
__dpa_rpc__ void serve(struct writer *w)
{
	take_completion(w);
	put_batch(w);
	flexio_dev_cq_arm(w->ci, w->cqn);
}
