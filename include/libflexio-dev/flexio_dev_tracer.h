/* SPDX-License-Identifier: MIT */
/*
 * Traces: messages whose formats the host has (tracer_msg_formats of the stream), so that device code stores only a
 * number and up to six arguments. Without a tracer stream of that id on the host nothing is stored.
 *
 *	buffer    [ msg | msg | ... max_entries_per_buf ][ msg | msg | ... ] ...   buf_mask + 1 buffers
 *	             ^ current_buffer + current_ix
 */
#ifndef _FLEXIO_DEV_TRACER_H_
#define _FLEXIO_DEV_TRACER_H_

#include <stdint.h>

#include <libflexio-dev/flexio_dev.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One message. */
struct flexio_tracer_msg {
	uint32_t format_id;
	uint32_t reserved[3];
	uint64_t arg0;
	uint64_t arg1;
	uint64_t arg2;
	uint64_t arg3;
	uint64_t arg4;
	uint64_t arg5;
} __attribute__((packed, aligned(8)));

#ifndef __cplusplus
_Static_assert(sizeof(struct flexio_tracer_msg) == 64, "a cache line");
#endif

/* One tracer stream, filled in by the host. */
struct flexio_tracer_streams_data {
	uint8_t valid_lvl; /* 0: no such stream */
	uint8_t transport_mode;
	uint16_t log_num_buf_msgs;
	uint32_t current_ix;
	uint32_t max_entries_per_buf;
	volatile uint32_t writing; /* threads that are storing a message */
	uint16_t buf_idx;
	uint16_t buf_mask;
	struct flexio_tracer_msg *current_buffer;
	struct flexio_tracer_msg *buffer;
};

struct flexio_tracer_ctx {
	struct flexio_tracer_streams_data tracer_ctx[FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT];
};

/* NULL until the host creates a tracer stream. */
extern struct flexio_tracer_ctx *g_dev_p_tracer_ctx;

/* Send what is stored, full or not. */
void flexio_dev_tracer_flush(uint8_t tracer_id);

/* Tell the host that num_msg messages of the current buffer are there. */
void flexio_dev_tracer_notify_host(uint8_t tracer_id, uint32_t num_msg);

/* Store a message with format format_id and so many arguments, if the stream's level prints it. */
void flexio_dev_trace_0(uint8_t tracer_id, flexio_msg_dev_level level, int format_id);
void flexio_dev_trace_1(uint8_t tracer_id, flexio_msg_dev_level level, int format_id,
			uint64_t arg0);
void flexio_dev_trace_2(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1);
void flexio_dev_trace_3(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1, uint64_t arg2);
void flexio_dev_trace_4(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1, uint64_t arg2, uint64_t arg3);
void flexio_dev_trace_5(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1, uint64_t arg2, uint64_t arg3, uint64_t arg4);
void flexio_dev_trace_6(uint8_t tracer_id, flexio_msg_dev_level level, int format_id, uint64_t arg0,
			uint64_t arg1, uint64_t arg2, uint64_t arg3, uint64_t arg4, uint64_t arg5);

#ifdef __cplusplus
}
#endif

#endif
