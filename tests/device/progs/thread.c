// SPDX-License-Identifier: MIT
/* Device code: threads, messages, intrinsics, the rest of flexio_dev.h. Run by ../thread.c. */
#include <stdio.h>
#include <string.h>

#include <dpaintrin.h>

#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_debug.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_tracer.h>
#include <libflexio-os/flexio_os.h>
#include <libflexio-os/flexio_os_mb.h>
#include <libflexio-os/flexio_os_syscall.h>

#define RPC __attribute__((used, retain))

uint64_t seen[8] RPC;
char text[64] RPC;

/* ---- the thread ---- */

RPC uint64_t context(void)
{
	struct flexio_dev_thread_ctx *dtctx = NULL, *again = NULL;
	uint64_t ok = 0;

	ok |= (uint64_t)(flexio_dev_get_thread_ctx(&dtctx) == 0 && dtctx);
	ok |= (uint64_t)(flexio_dev_get_thread_ctx(&again) == 0 && again == dtctx) << 1;
	ok |= (uint64_t)((void *)flexio_os_get_thread_ctx() == (void *)dtctx) << 2;
	ok |= (uint64_t)(flexio_dev_get_thread_ctx(NULL) < 0) << 3;
	seen[0] = (uintptr_t)dtctx;
	seen[1] = flexio_dev_get_thread_id(dtctx);
	seen[2] = flexio_dev_get_thread_local_storage(dtctx);
	strcpy(text, flexio_dev_get_current_thread_name());
	return ok;
}

static __thread uint64_t counter = 40;
static __thread char zeros[1000];

/* Thread local variables are each thread's own and keep their values. */
RPC uint64_t count_up(void)
{
	zeros[counter % 1000]++;
	return ++counter + (uint64_t)zeros[0];
}

static __thread char wide[64] __attribute__((aligned(64)));
static __thread uint32_t narrow = 7;

RPC uint64_t aligned_locals(void)
{
	wide[63] = (char)narrow;
	return (uintptr_t)wide % 64 + (uintptr_t)&counter % 8 + (uintptr_t)&narrow % 4 +
	       (wide[0] != 0) + (wide[63] != 7);
}

static int constructed;

__attribute__((constructor(200))) static void second(void)
{
	constructed = constructed * 10 + 2;
}

__attribute__((constructor(101))) static void first(void)
{
	constructed = constructed * 10 + 1;
}

__attribute__((constructor)) static void third(void)
{
	constructed = constructed * 10 + 3;
}

RPC uint64_t get_constructed(void)
{
	return (uint64_t)constructed;
}

/* ---- ends ---- */

RPC void end_by(uint64_t which, uint64_t code)
{
	switch (which) {
	case 0:
		flexio_dev_thread_reschedule();
	case 1:
		flexio_dev_thread_finish();
	case 2:
		flexio_dev_thread_retrigger();
	case 3:
		flexio_dev_process_finish();
	case 4:
		flexio_dev_error((uint8_t)code);
	case 5:
		flexio_dev_reschedule();
	case 6:
		flexio_dev_finish();
	}
}

RPC uint64_t yields(void)
{
	struct flexio_dev_thread_ctx *dtctx;

	flexio_dev_get_thread_ctx(&dtctx);
	flexio_dev_yield(dtctx);
	flexio_dev_yield_and_retrigger();
	return 5;
}

RPC uint64_t activate(uint64_t id)
{
	struct flexio_dev_thread_ctx *dtctx;

	flexio_dev_get_thread_ctx(&dtctx);
	flexio_dev_event_handler_activate((uint32_t)id);
	return flexio_dev_get_errno(dtctx);
}

RPC void reset_errno(void)
{
	struct flexio_dev_thread_ctx *dtctx;

	flexio_dev_get_thread_ctx(&dtctx);
	flexio_dev_rst_errno(dtctx);
}

/* ---- messages ---- */

RPC int64_t message(uint64_t stream, uint64_t level)
{
	return flexio_dev_msg((int)stream, (flexio_msg_dev_level)level, "%s %d\n", "message", 5);
}

RPC void macros(void)
{
	flexio_dev_msg_broadcast(FLEXIO_MSG_DEV_ERROR, "broadcast\n");
	flexio_dev_msg_dflt(FLEXIO_MSG_DEV_WARN, "default %d\n", 1);
	flexio_dev_print("print\n");
	flexio_dev_msg_err(1, "err\n");
	flexio_dev_msg_warn(1, "warn\n");
	flexio_dev_msg_info(1, "info\n");
	flexio_dev_msg_dbg(1, "dbg\n");
}

RPC int64_t put_string(uint64_t null)
{
	struct flexio_dev_thread_ctx *dtctx;
	char hello[] = "put 100% of it\n";

	flexio_dev_get_thread_ctx(&dtctx);
	return flexio_dev_puts(dtctx, null ? NULL : hello);
}

/* A message that points to nowhere must not harm anybody. */
RPC int64_t bad_message(void)
{
	return flexio_os_syscall(2, 0, 1, 0x3ffff000, 100, 0, 0);
}

RPC void simulator(void)
{
	struct flexio_dev_perf_data sum = { 0 };

	print_sim_str("string|", 0);
	print_sim_str("cut off", 3);
	print_sim_putc('|');
	print_sim_hex(0xabcdef, 4);
	print_sim_putc('|');
	print_sim_hex(0xabc, 0);
	print_sim_int(-12, 0);
	print_sim_putc('\n');
	SIM_TRACE(sum.insts);
	SIM_TRACE("text", 17);
	FLEXIO_DEV_PERF_COLLECT(&sum)
	{
		for (volatile int i = 0; i < 100; i++)
			;
	}
	FLEXIO_DEV_PERF_COLLECT(&sum) flexio_os_mb();
	flexio_dev_perf_print(&sum, "collected");
	FLEXIO_DEV_PERF_MEASURE(MEASURED) flexio_os_wmb();
	flexio_dev_perf_measure_calibrate();
	seen[0] = sum.insts;
}

/* ---- the card ---- */

RPC uint64_t card_calls(uint64_t which)
{
	static uint32_t ids[] = { FLEXIO_DEV_NIC_COUNTER_PORT0_RX_BYTES,
				  FLEXIO_DEV_NIC_COUNTER_PORT3_TX_BYTES };
	static uint32_t values[2];
	static char buffer[8];
	struct flexio_dev_thread_ctx *dtctx;
	enum flexio_window_entity none = FLEXIO_DEV_WINDOW_ENTITY_NUM;

	flexio_dev_get_thread_ctx(&dtctx);
	switch (which) {
	case 0:
		return flexio_dev_outbox_config(dtctx, 3);
	case 1:
		flexio_dev_outbox_config_fast(dtctx, 4);
		return 0;
	case 2:
		return flexio_dev_outbox_config_uar_extension(dtctx, 5);
	case 3:
		return flexio_dev_cross_device_ring_db(6, 7, 8);
	case 4:
		flexio_dev_nic_counters_config(values, ids, 2);
		return 0;
	case 5:
		flexio_dev_nic_counters_sample();
		return 0;
	case 6:
		return flexio_dev_get_pcc_table_base(9);
	case 7: /* no such window */
		return flexio_dev_multi_window_config(none, 1, 2) +
		       flexio_dev_multi_window_mkey_config(none, 2) +
		       flexio_dev_multi_window_ptr_acquire(none, 1, &seen[0]) +
		       flexio_dev_multi_window_copy_from_host(none, buffer, 1, 1) +
		       flexio_dev_multi_window_copy_to_host(none, 1, buffer, 1);
	default: /* nowhere to put the address */
		return flexio_dev_multi_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, 1, NULL);
	}
}

RPC uint64_t copies(void)
{
	uint64_t a64[5] = { 1, 2, 3, 4, 5 }, b64[5] = { 0 };
	uint32_t a32[5] = { 1, 2, 3, 4, 5 }, b32[5] = { 0 };
	uint16_t a16[5] = { 1, 2, 3, 4, 5 }, b16[5] = { 0 };

	flexio_dev_memcpy64(b64, a64, 4);
	flexio_dev_memcpy32(b32, a32, 4);
	flexio_dev_memcpy16(b16, a16, 4);
	return !memcmp(a64, b64, 32) && !b64[4] && !memcmp(a32, b32, 16) && !b32[4] &&
	       !memcmp(a16, b16, 8) && !b16[4];
}

/* Without a tracer stream nothing happens. */
RPC uint64_t traces(void)
{
	flexio_dev_trace_0(0, FLEXIO_MSG_DEV_ERROR, 1);
	flexio_dev_trace_1(0, FLEXIO_MSG_DEV_ERROR, 1, 1);
	flexio_dev_trace_2(0, FLEXIO_MSG_DEV_ERROR, 1, 1, 2);
	flexio_dev_trace_3(0, FLEXIO_MSG_DEV_ERROR, 1, 1, 2, 3);
	flexio_dev_trace_4(0, FLEXIO_MSG_DEV_ERROR, 1, 1, 2, 3, 4);
	flexio_dev_trace_5(0, FLEXIO_MSG_DEV_ERROR, 1, 1, 2, 3, 4, 5);
	flexio_dev_trace_6(255, FLEXIO_MSG_DEV_ERROR, 1, 1, 2, 3, 4, 5, 6);
	flexio_dev_tracer_flush(0);
	flexio_dev_tracer_notify_host(0, 0);
	return g_dev_p_tracer_ctx == NULL;
}

static struct flexio_tracer_ctx tracer;
static struct flexio_tracer_msg tracer_buffer[2][4];

/* With buffers of four messages, as a host would set them up: the fifth goes into the other buffer. */
RPC uint64_t trace_buffers(void)
{
	struct flexio_tracer_streams_data *s = &tracer.tracer_ctx[3];
	uint64_t ok;

	*s = (struct flexio_tracer_streams_data){
		.valid_lvl = FLEXIO_MSG_DEV_INFO,
		.log_num_buf_msgs = 2,
		.max_entries_per_buf = 4,
		.buf_mask = 1,
		.current_buffer = tracer_buffer[0],
		.buffer = tracer_buffer[0],
	};
	g_dev_p_tracer_ctx = &tracer;
	flexio_dev_trace_0(3, FLEXIO_MSG_DEV_DEBUG, 9);
	ok = s->current_ix == 0;
	for (int i = 0; i < 5; i++)
		flexio_dev_trace_6(3, FLEXIO_MSG_DEV_INFO, 10 + i, 1, 2, 3, 4, 5, (uint64_t)i);
	ok |= (uint64_t)(tracer_buffer[0][3].format_id == 13 && tracer_buffer[0][3].arg5 == 3) << 1;
	ok |= (uint64_t)(tracer_buffer[1][0].format_id == 14 && tracer_buffer[1][0].arg0 == 1) << 2;
	ok |= (uint64_t)(s->current_ix == 1 && s->writing == 0 && s->buf_idx == 1) << 3;
	flexio_dev_tracer_flush(3);
	ok |= (uint64_t)(s->current_ix == 0 && s->current_buffer == tracer_buffer[0]) << 4;
	g_dev_p_tracer_ctx = NULL;
	return ok;
}

/* ---- intrinsics ---- */

RPC uint64_t fences(void)
{
	volatile int x = 1;
	int ignored = 3;

	__dpa_thread_fence(__DPA_HEAP, __DPA_R, __DPA_R);
	__dpa_thread_fence(__DPA_MEMORY, __DPA_W, __DPA_RW);
	__dpa_thread_fence(__DPA_MMIO, __DPA_RW, __DPA_W);
	__dpa_thread_fence(__DPA_SYSTEM, __DPA_RW, __DPA_RW);
	__dpa_thread_memory_fence(__DPA_W, __DPA_W);
	__dpa_thread_outbox_fence(__DPA_W, __DPA_R);
	__dpa_thread_window_fence(__DPA_R, __DPA_W);
	__dpa_thread_system_fence();
	__dpa_thread_window_read_inv();
	__dpa_thread_window_writeback();
	__dpa_thread_memory_writeback();
	__dpa_compiler_barrier();
	__dpa_data_ignore(&ignored);
	flexio_os_mb();
	flexio_os_rmb();
	flexio_os_wmb();
	return (uint64_t)(x + ignored);
}

RPC uint64_t counters(void)
{
	uint64_t cycles = __dpa_thread_cycles(), time = __dpa_thread_time();
	uint64_t insts = __dpa_thread_inst_ret();

	for (volatile int i = 0; i < 1000; i++)
		;
	seen[0] = __dpa_thread_inst_ret() - insts;
	return __dpa_thread_cycles() > cycles && __dpa_thread_time() > time && seen[0] > 3000 &&
	       seen[0] < 20000;
}

RPC int64_t fxp(uint64_t which, uint64_t x)
{
	switch (which) {
	case 0:
		return __dpa_fxp_rcp((int32_t)x);
	case 1:
		return __dpa_fxp_pow2((int32_t)x);
	default:
		return __dpa_fxp_log2((uint32_t)x);
	}
}
