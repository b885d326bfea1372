// SPDX-License-Identifier: MIT
/*
 * Traces (flexio_dev_tracer.h). The host gives a stream its buffers through g_dev_p_tracer_ctx;
 * without that nothing is stored.
 *
 * A writer takes an index of the current buffer. The one that gets the index just past the end has
 * the turn: it waits for those that are still writing, hands the buffer over and opens the next;
 * later ones wait for it. A flush takes the turn by writing an index past the end.
 *
 * Whoever touches a buffer is counted as writing before it looks at the level, and the host sets the
 * level to 0 before it looks at the count: so a stream that is closed is left alone, and one that is
 * opened at its place is seen as a whole.
 */
#include <libflexio-dev/flexio_dev_tracer.h>

#include "device/dev/ecall.h"

_Static_assert(sizeof(struct flexio_tracer_streams_data) == sizeof(struct vb_rtos_tracer),
	       "layout");

/* A thread that was ended by force in the middle of a message writes no more: do not wait for it
 * for ever. Its message is then whatever it had stored. */
#define PATIENCE 100000

__attribute__((used, retain)) struct flexio_tracer_ctx *g_dev_p_tracer_ctx;

static struct flexio_tracer_streams_data *stream(uint8_t id)
{
	struct flexio_tracer_ctx *ctx = __atomic_load_n(&g_dev_p_tracer_ctx, __ATOMIC_ACQUIRE);

	return ctx && id < FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT ? &ctx->tracer_ctx[id] : NULL;
}

/* False: the stream does not show the level, or is closed. True: the caller is counted as writing. */
static int enter(struct flexio_tracer_streams_data *s, uint8_t level)
{
	/* Sequentially consistent, both: pairs with vb_tracer_stop() of the host. */
	__atomic_fetch_add(&s->writing, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&s->valid_lvl, __ATOMIC_SEQ_CST) >= level)
		return 1;
	__atomic_fetch_sub(&s->writing, 1, __ATOMIC_RELEASE);
	return 0;
}

static void leave(struct flexio_tracer_streams_data *s)
{
	__atomic_fetch_sub(&s->writing, 1, __ATOMIC_RELEASE);
}

/* With the turn, and entered: give count messages to the host and open the next buffer. */
static void hand_over(struct flexio_tracer_streams_data *s, uint8_t id, uint32_t count)
{
	uint16_t next = (uint16_t)((s->buf_idx + 1) & s->buf_mask);

	for (unsigned int i = 0; i < PATIENCE && __atomic_load_n(&s->writing, __ATOMIC_ACQUIRE) > 1;
	     i++)
		__flexio_dev_relax();
	ecall4(VB_RTOS_TRACES, id, count, s->buf_idx, 1);
	s->buf_idx = next;
	s->current_buffer = s->buffer + ((uint32_t)next << s->log_num_buf_msgs);
	__atomic_store_n(&s->current_ix, 0, __ATOMIC_RELEASE);
}

/* False: the level is not shown. True: *ix of the current buffer is the caller's, which has entered. */
static int take(struct flexio_tracer_streams_data *s, uint8_t id, uint8_t level, uint32_t *ix)
{
	while (enter(s, level)) {
		*ix = __atomic_fetch_add(&s->current_ix, 1, __ATOMIC_ACQ_REL);
		if (*ix < s->max_entries_per_buf)
			return 1;
		if (*ix == s->max_entries_per_buf)
			hand_over(s, id, *ix);
		leave(s);
		/* index 0 comes back with the next buffer */
		while (__atomic_load_n(&s->current_ix, __ATOMIC_ACQUIRE) > s->max_entries_per_buf &&
		       s->valid_lvl >= level)
			__flexio_dev_relax();
	}
	return 0;
}

static void trace(uint8_t id, flexio_msg_dev_level level, const struct flexio_tracer_msg *msg)
{
	struct flexio_tracer_streams_data *s = stream(id);
	uint32_t ix;

	if (!s || !level || *(volatile uint8_t *)&s->valid_lvl < level ||
	    !take(s, id, (uint8_t)level, &ix))
		return;
	s->current_buffer[ix] = *msg;
	leave(s);
}

void flexio_dev_tracer_notify_host(uint8_t tracer_id, uint32_t num_msg)
{
	struct flexio_tracer_streams_data *s = stream(tracer_id);

	if (s && s->valid_lvl)
		ecall4(VB_RTOS_TRACES, tracer_id, num_msg, s->buf_idx, 0);
}

void flexio_dev_tracer_flush(uint8_t tracer_id)
{
	struct flexio_tracer_streams_data *s = stream(tracer_id);
	uint32_t count;

	if (!s || !enter(s, 1))
		return;
	if (__atomic_load_n(&s->current_ix, __ATOMIC_ACQUIRE)) {
		count = __atomic_exchange_n(&s->current_ix, s->max_entries_per_buf + 1,
					    __ATOMIC_ACQ_REL);
		/* Otherwise another thread hands the buffer over. */
		if (count <= s->max_entries_per_buf)
			hand_over(s, tracer_id, count);
	}
	leave(s);
}

#define TRACE(...)              \
	trace(tracer_id, level, \
	      &(struct flexio_tracer_msg){ (uint32_t)format_id, { 0 }, __VA_ARGS__ })

void flexio_dev_trace_0(uint8_t tracer_id, flexio_msg_dev_level level, int format_id)
{
	TRACE(0);
}

void flexio_dev_trace_1(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0)
{
	TRACE(arg0);
}

void flexio_dev_trace_2(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1)
{
	TRACE(arg0, arg1);
}

void flexio_dev_trace_3(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1, uint64_t arg2)
{
	TRACE(arg0, arg1, arg2);
}

void flexio_dev_trace_4(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1, uint64_t arg2, uint64_t arg3)
{
	TRACE(arg0, arg1, arg2, arg3);
}

void flexio_dev_trace_5(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1, uint64_t arg2, uint64_t arg3, uint64_t arg4)
{
	TRACE(arg0, arg1, arg2, arg3, arg4);
}

void flexio_dev_trace_6(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1, uint64_t arg2, uint64_t arg3, uint64_t arg4, uint64_t arg5)
{
	TRACE(arg0, arg1, arg2, arg3, arg4, arg5);
}
