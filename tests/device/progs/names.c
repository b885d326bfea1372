// SPDX-License-Identifier: MIT
/*
 * Every documented name of the device API: functions with their types, values, fields. Only compiled, by ../headers.sh,
 * in the forms of today.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>
#include <libflexio-dev/flexio_dev_queue_types.h>
#include <libflexio-dev/flexio_dev_tracer.h>

#define FUNCTION(name, result, ...)                                                              \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), result (*)(__VA_ARGS__)), \
		       #name);
#define VALUE(name, value)     _Static_assert((name) == (value), #name);
#define FIELD(type, field)     _Static_assert(sizeof(((type *)0)->field) > 0, #field);
#define PLACE(type, field, at) _Static_assert(offsetof(type, field) == (at), #field);
#define TYPE(name)             _Static_assert(sizeof(name) > 0, #name);

/* ---- functions ---- */

FUNCTION(flexio_dev_cc_ring_db, void, uint16_t, uint32_t, uint32_t, enum flexio_dev_cc_db_next_act)
FUNCTION(flexio_dev_cc_ring_db_high64bit, void, uint64_t)
FUNCTION(flexio_dev_cc_ring_db_low64bit, void, uint64_t)
FUNCTION(flexio_dev_comp_cq_init, void, struct flexio_dev_cqe64 *, int, uint8_t)
FUNCTION(flexio_dev_comp_cqe_get_comp_cqe, uint64_t, struct flexio_dev_cqe64 *, int)
FUNCTION(flexio_dev_comp_cqe_get_num_comp_cqes, uint8_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_comp_cqe_get_validity_byte, uint8_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_comp_cqe_is_comp_cqe_array, uint8_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cq_arm, void, uint32_t, uint32_t)
FUNCTION(flexio_dev_cqe_get_byte_cnt, uint32_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_csum_ok, uint16_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_err_synd, uint32_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_hw_err_synd, uint32_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_opcode, uint8_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_owner, uint8_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_qpn, uint32_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_type, uint8_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_user_index, uint32_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_vendor_err_synd, uint32_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cqe_get_wqe_counter, uint16_t, struct flexio_dev_cqe64 *)
FUNCTION(flexio_dev_cross_device_ring_db, flexio_dev_status_t, flexio_uar_device_id, uint32_t,
	 uint32_t)
FUNCTION(flexio_dev_db_ctx_arm, void, uint32_t, uint32_t)
FUNCTION(flexio_dev_db_ctx_force_trigger, void, uint32_t, uint32_t)
FUNCTION(flexio_dev_dbr_cq_set_ci, flexio_dev_status_t, uint32_t *, uint32_t)
FUNCTION(flexio_dev_dbr_rq_inc_pi, flexio_dev_status_t, uint32_t *)
FUNCTION(flexio_dev_eq_update_ci, void, uint32_t, uint32_t)
FUNCTION(flexio_dev_eqe_get_cqn, uint32_t, struct flexio_dev_eqe *)
FUNCTION(flexio_dev_eqe_get_owner, uint8_t, struct flexio_dev_eqe *)
FUNCTION(flexio_dev_error, void, uint8_t)
FUNCTION(flexio_dev_event_handler_activate, void, uint32_t)
FUNCTION(flexio_dev_finish, void, void)
FUNCTION(flexio_dev_get_and_rst_errno, uint64_t, struct flexio_dev_thread_ctx *)
FUNCTION(flexio_dev_get_current_thread_name, const char *, void)
FUNCTION(flexio_dev_get_errno, uint64_t, struct flexio_dev_thread_ctx *)
FUNCTION(flexio_dev_get_pcc_table_base, uint64_t, uint16_t)
FUNCTION(flexio_dev_get_thread_ctx, int, struct flexio_dev_thread_ctx **)
FUNCTION(flexio_dev_get_thread_id, uint32_t, struct flexio_dev_thread_ctx *)
FUNCTION(flexio_dev_get_thread_local_storage, flexio_uintptr_t, struct flexio_dev_thread_ctx *)
FUNCTION(flexio_dev_memcpy16, void, uint16_t *, const uint16_t *, uint64_t)
FUNCTION(flexio_dev_memcpy32, void, uint32_t *, const uint32_t *, uint64_t)
FUNCTION(flexio_dev_memcpy64, void, uint64_t *, const uint64_t *, uint64_t)
FUNCTION(flexio_dev_msg, int, int, flexio_msg_dev_level, const char *, ...)
FUNCTION(flexio_dev_multi_window_config, flexio_dev_status_t, enum flexio_window_entity, uint16_t,
	 uint32_t)
FUNCTION(flexio_dev_multi_window_copy_from_host, flexio_dev_status_t, enum flexio_window_entity,
	 void *, uint64_t, uint32_t)
FUNCTION(flexio_dev_multi_window_copy_to_host, flexio_dev_status_t, enum flexio_window_entity,
	 uint64_t, const void *, uint32_t)
FUNCTION(flexio_dev_multi_window_mkey_config, flexio_dev_status_t, enum flexio_window_entity,
	 uint32_t)
FUNCTION(flexio_dev_multi_window_ptr_acquire, flexio_dev_status_t, enum flexio_window_entity,
	 uint64_t, flexio_uintptr_t *)
FUNCTION(flexio_dev_nic_counters_config, void, uint32_t *, uint32_t *, uint32_t)
FUNCTION(flexio_dev_nic_counters_sample, void, void)
FUNCTION(flexio_dev_outbox_config, flexio_dev_status_t, struct flexio_dev_thread_ctx *, uint16_t)
FUNCTION(flexio_dev_outbox_config_fast, void, struct flexio_dev_thread_ctx *, uint16_t)
FUNCTION(flexio_dev_outbox_config_uar_extension, flexio_dev_status_t,
	 struct flexio_dev_thread_ctx *, flexio_uar_device_id)
FUNCTION(flexio_dev_process_finish, void, void)
FUNCTION(flexio_dev_puts, int, struct flexio_dev_thread_ctx *, char *)
FUNCTION(flexio_dev_qp_sq_ring_db, void, uint16_t, uint32_t)
FUNCTION(flexio_dev_read_db_value, uint32_t, uint64_t)
FUNCTION(flexio_dev_reschedule, void, void)
FUNCTION(flexio_dev_rst_errno, void, struct flexio_dev_thread_ctx *)
FUNCTION(flexio_dev_rwqe_get_addr, void *, struct flexio_dev_wqe_rcv_data_seg *)
FUNCTION(flexio_dev_swqe_seg_atomic_set, flexio_dev_status_t, union flexio_dev_sqe_seg *, uint64_t,
	 uint64_t)
FUNCTION(flexio_dev_swqe_seg_av1_set, void, union flexio_dev_sqe_seg *, uint32_t, uint32_t, uint8_t,
	 uint8_t, uint8_t, uint16_t)
FUNCTION(flexio_dev_swqe_seg_av2_set, void, union flexio_dev_sqe_seg *, uint8_t *, uint8_t, uint8_t,
	 uint32_t)
FUNCTION(flexio_dev_swqe_seg_av3_set, void, union flexio_dev_sqe_seg *, uint8_t *)
FUNCTION(flexio_dev_swqe_seg_ctrl_set, flexio_dev_status_t, union flexio_dev_sqe_seg *, uint32_t,
	 uint32_t, uint32_t, enum flexio_ctrl_seg)
FUNCTION(flexio_dev_swqe_seg_eth_set, flexio_dev_status_t, union flexio_dev_sqe_seg *, uint16_t,
	 uint16_t, uint16_t, uint8_t *)
FUNCTION(flexio_dev_swqe_seg_inline_data_set, flexio_dev_status_t, union flexio_dev_sqe_seg *,
	 uint32_t, uint32_t *)
FUNCTION(flexio_dev_swqe_seg_mem_ptr_data_set, flexio_dev_status_t, union flexio_dev_sqe_seg *,
	 uint32_t, uint32_t, uint64_t)
FUNCTION(flexio_dev_swqe_seg_rdma_set, flexio_dev_status_t, union flexio_dev_sqe_seg *, uint32_t,
	 uint64_t)
FUNCTION(flexio_dev_swqe_seg_shared_receive_set, flexio_dev_status_t, union flexio_dev_sqe_seg *,
	 uint16_t, uint8_t)
FUNCTION(flexio_dev_swqe_seg_transpose_set, flexio_dev_status_t, union flexio_dev_sqe_seg *,
	 uint8_t, uint8_t, uint8_t)
FUNCTION(flexio_dev_swqe_seg_wait_on_data_data_set, flexio_dev_status_t, union flexio_dev_sqe_seg *,
	 uint64_t, uint64_t)
FUNCTION(flexio_dev_swqe_seg_wait_on_data_set, flexio_dev_status_t, union flexio_dev_sqe_seg *,
	 uint8_t, uint8_t, uint32_t, uint64_t, uint8_t)
FUNCTION(flexio_dev_thread_finish, void, void)
FUNCTION(flexio_dev_thread_reschedule, void, void)
FUNCTION(flexio_dev_thread_retrigger, void, void)
FUNCTION(flexio_dev_trace_0, void, uint8_t, flexio_msg_dev_level, int)
FUNCTION(flexio_dev_trace_1, void, uint8_t, flexio_msg_dev_level, int, uint64_t)
FUNCTION(flexio_dev_trace_2, void, uint8_t, flexio_msg_dev_level, int, uint64_t, uint64_t)
FUNCTION(flexio_dev_trace_3, void, uint8_t, flexio_msg_dev_level, int, uint64_t, uint64_t, uint64_t)
FUNCTION(flexio_dev_trace_4, void, uint8_t, flexio_msg_dev_level, int, uint64_t, uint64_t, uint64_t,
	 uint64_t)
FUNCTION(flexio_dev_trace_5, void, uint8_t, flexio_msg_dev_level, int, uint64_t, uint64_t, uint64_t,
	 uint64_t, uint64_t)
FUNCTION(flexio_dev_trace_6, void, uint8_t, flexio_msg_dev_level, int, uint64_t, uint64_t, uint64_t,
	 uint64_t, uint64_t, uint64_t)
FUNCTION(flexio_dev_tracer_flush, void, uint8_t)
FUNCTION(flexio_dev_tracer_notify_host, void, uint8_t, uint32_t)
FUNCTION(flexio_dev_window_config, flexio_dev_status_t, enum flexio_window_entity, uint16_t,
	 uint32_t)
FUNCTION(flexio_dev_window_copy_from_host, flexio_dev_status_t, enum flexio_window_entity, void *,
	 uint64_t, uint32_t)
FUNCTION(flexio_dev_window_copy_to_host, flexio_dev_status_t, enum flexio_window_entity, uint64_t,
	 const void *, uint32_t)
FUNCTION(flexio_dev_window_mkey_config, flexio_dev_status_t, enum flexio_window_entity, uint32_t)
FUNCTION(flexio_dev_window_ptr_acquire, flexio_dev_status_t, enum flexio_window_entity, uint64_t,
	 flexio_uintptr_t *)
FUNCTION(flexio_dev_yield, void, struct flexio_dev_thread_ctx *)
FUNCTION(flexio_dev_yield_and_retrigger, void, void)
FUNCTION(flexio_dev_zcqe_gen, void, uint32_t)

/* ---- values ---- */

VALUE(MLX5_CTRL_SEG_CE_CQE_ON_CQE_ERROR, 0x0)
VALUE(MLX5_CTRL_SEG_CE_CQE_ON_FIRST_CQE_ERROR, 0x1)
VALUE(MLX5_CTRL_SEG_CE_CQE_ALWAYS, 0x2)
VALUE(MLX5_CTRL_SEG_CE_CQE_AND_EQE, 0x3)
VALUE(FLEXIO_DEV_NIC_COUNTER_PORT0_RX_BYTES, 0x10)
VALUE(FLEXIO_DEV_NIC_COUNTER_PORT1_RX_BYTES, 0x11)
VALUE(FLEXIO_DEV_NIC_COUNTER_PORT2_RX_BYTES, 0x12)
VALUE(FLEXIO_DEV_NIC_COUNTER_PORT3_RX_BYTES, 0x13)
VALUE(FLEXIO_DEV_NIC_COUNTER_PORT0_TX_BYTES, 0x20)
VALUE(FLEXIO_DEV_NIC_COUNTER_PORT1_TX_BYTES, 0x21)
VALUE(FLEXIO_DEV_NIC_COUNTER_PORT2_TX_BYTES, 0x22)
VALUE(FLEXIO_DEV_NIC_COUNTER_PORT3_TX_BYTES, 0x23)
VALUE(FLEXIO_DEV_STATUS_SUCCESS, 0x0)
VALUE(FLEXIO_DEV_STATUS_FAILED, 0x1)
VALUE(FLEXIO_DEV_WINDOW_ENTITY_0, 0x0)
VALUE(FLEXIO_DEV_WINDOW_ENTITY_1, 0x1)
VALUE(FLEXIO_DEV_WINDOW_ENTITY_NUM, 0x2)
VALUE(FLEXIO_DEV_ERROR_ILLEGAL_ERR, 0x42)
VALUE(FLEXIO_CTRL_SEG_SEND_EN, 0x0)
VALUE(FLEXIO_CTRL_SEG_SEND_RC, 0x1)
VALUE(FLEXIO_CTRL_SEG_LDMA, 0x2)
VALUE(FLEXIO_CTRL_SEG_RDMA_WRITE, 0x3)
VALUE(FLEXIO_CTRL_SEG_RDMA_READ, 0x4)
VALUE(FLEXIO_CTRL_SEG_ATOMIC_COMPARE_AND_SWAP, 0x5)
VALUE(FLEXIO_CTRL_SEG_LSO, 0x6)
VALUE(FLEXIO_CTRL_SEG_NOP, 0x7)
VALUE(FLEXIO_CTRL_SEG_RDMA_WRITE_IMM, 0x8)
VALUE(FLEXIO_CTRL_SEG_TRANSPOSE, 0x9)
VALUE(CC_DB_NEXT_ACT_SINGLE, 0x0)
VALUE(CC_DB_NEXT_ACT_MULTIPLE, 0x1)
VALUE(CC_DB_NEXT_ACT_FW, 0x2)
VALUE(FLEXIO_ETH_SEG_L4CS, 0x8000)
VALUE(FLEXIO_ETH_SEG_L3CS, 0x4000)
VALUE(FLEXIO_ETH_SEG_L4CS_INNER, 0x2000)
VALUE(FLEXIO_ETH_SEG_L3CS_INNER, 0x1000)
VALUE(FLEXIO_ETH_SEG_TRAILER_ALIGN, 0x200)
VALUE(FLEXIO_ETH_SEG_SWP_OUTER_L4_TYPE, 0x40)
VALUE(FLEXIO_ETH_SEG_SWP_OUTER_L3_TYPE, 0x20)
VALUE(FLEXIO_ETH_SEG_SWP_INNER_L4_TYPE, 0x2)
VALUE(FLEXIO_ETH_SEG_SWP_INNER_L3_TYPE, 0x1)
VALUE(LOG_SQE_NUM_SEGS, 2)
VALUE(FLEXIO_MSG_DEV_NO_PRINT, 0)
VALUE(FLEXIO_MSG_DEV_ALWAYS_PRINT, 1)
VALUE(FLEXIO_MSG_DEV_ERROR, 2)
VALUE(FLEXIO_MSG_DEV_WARN, 3)
VALUE(FLEXIO_MSG_DEV_INFO, 4)
VALUE(FLEXIO_MSG_DEV_DEBUG, 5)
VALUE(FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT, 255)
VALUE(FLEXIO_MSG_DEV_BROADCAST_STREAM, 0xff)
VALUE(EOF, -1)
VALUE(_FDEV_ERR, -1)
VALUE(_FDEV_EOF, -2)
VALUE(_FDEV_SETUP_RW, _FDEV_SETUP_READ | _FDEV_SETUP_WRITE)

/* ---- fields ---- */

FIELD(struct flexio_dev_cqe64, byte_cnt)
FIELD(struct flexio_dev_cqe64, csum_ok)
FIELD(struct flexio_dev_cqe64, err_syndrome)
FIELD(struct flexio_dev_cqe64, imm_inval_pkey)
FIELD(struct flexio_dev_cqe64, op_own)
FIELD(struct flexio_dev_cqe64, qpn)
FIELD(struct flexio_dev_cqe64, qpn24)
FIELD(struct flexio_dev_cqe64, rsvd)
FIELD(struct flexio_dev_cqe64, rsvd00)
FIELD(struct flexio_dev_cqe64, rsvd14)
FIELD(struct flexio_dev_cqe64, rsvd22)
/* names of other SDKs for the same places */
_Static_assert(offsetof(struct flexio_dev_cqe64, rsvd36) == 36, "dword 9, before 24.10");
_Static_assert(sizeof(((struct flexio_dev_cqe64 *)0)->rsvd36) == 8, "two dwords");
_Static_assert(offsetof(struct flexio_dev_cqe64, imm_inval_pkey) == 36, "dword 9");
_Static_assert(offsetof(struct flexio_dev_cqe64, rsvd24) == 24, "dword 6, newest");
_Static_assert(offsetof(struct flexio_dev_cqe64, rsvd40) == 40, "dword 10, newest");
FIELD(struct flexio_dev_cqe64, rsvd48)
FIELD(struct flexio_dev_cqe64, signature)
FIELD(struct flexio_dev_cqe64, sop_rdrop)
FIELD(struct flexio_dev_cqe64, srqn_uidx)
FIELD(struct flexio_dev_cqe64, wqe_counter)
FIELD(struct flexio_dev_eqe, event_data.cqn)
FIELD(struct flexio_dev_eqe, event_data)
FIELD(struct flexio_dev_eqe, owner)
FIELD(struct flexio_dev_eqe, rsvd00)
FIELD(struct flexio_dev_eqe, rsvd02)
FIELD(struct flexio_dev_eqe, rsvd3c)
FIELD(struct flexio_dev_eqe, rsvd4)
FIELD(struct flexio_dev_eqe, signature)
FIELD(struct flexio_dev_eqe, sub_type)
FIELD(struct flexio_dev_eqe, type)
FIELD(struct flexio_dev_mini_cqe64, mini_cqe)
FIELD(struct flexio_dev_mini_cqe64, num_and_type)
FIELD(struct flexio_dev_mini_cqe64, rsvd0)
FIELD(struct flexio_dev_mini_cqe64, validity_iteration_count)
FIELD(union flexio_dev_sqe_seg, atomic)
FIELD(union flexio_dev_sqe_seg, ctrl)
FIELD(union flexio_dev_sqe_seg, eth)
FIELD(union flexio_dev_sqe_seg, inline_data)
FIELD(union flexio_dev_sqe_seg, inline_send_data)
FIELD(union flexio_dev_sqe_seg, mem_ptr_send_data)
FIELD(union flexio_dev_sqe_seg, rdma)
FIELD(union flexio_dev_sqe_seg, shared_receive)
FIELD(union flexio_dev_sqe_seg, transpose)
FIELD(struct flexio_dev_wqe_atomic_seg, compare_data)
FIELD(struct flexio_dev_wqe_atomic_seg, swap_or_add_data)
FIELD(struct flexio_dev_wqe_ctrl_seg, general_id)
FIELD(struct flexio_dev_wqe_ctrl_seg, idx_opcode)
FIELD(struct flexio_dev_wqe_ctrl_seg, qpn_ds)
FIELD(struct flexio_dev_wqe_ctrl_seg, signature_fm_ce_se)
FIELD(struct flexio_dev_wqe_eth_seg, cs_swp_flags)
FIELD(struct flexio_dev_wqe_eth_seg, inline_hdr_bsz)
FIELD(struct flexio_dev_wqe_eth_seg, inline_hdrs)
FIELD(struct flexio_dev_wqe_eth_seg, mss)
FIELD(struct flexio_dev_wqe_eth_seg, rsvd0)
FIELD(struct flexio_dev_wqe_eth_seg, rsvd2)
FIELD(struct flexio_dev_wqe_inline_data_seg, inline_data)
FIELD(struct flexio_dev_wqe_inline_send_data_seg, byte_count)
FIELD(struct flexio_dev_wqe_inline_send_data_seg, data_and_padding)
FIELD(struct flexio_dev_wqe_mem_ptr_send_data_seg, addr)
FIELD(struct flexio_dev_wqe_mem_ptr_send_data_seg, byte_count)
FIELD(struct flexio_dev_wqe_mem_ptr_send_data_seg, lkey)
FIELD(struct flexio_dev_wqe_rcv_data_seg, addr)
FIELD(struct flexio_dev_wqe_rcv_data_seg, byte_count)
FIELD(struct flexio_dev_wqe_rcv_data_seg, lkey)
FIELD(struct flexio_dev_wqe_rdma_seg, raddr)
FIELD(struct flexio_dev_wqe_rdma_seg, rkey)
FIELD(struct flexio_dev_wqe_rdma_seg, rsvd0)
FIELD(struct flexio_dev_wqe_shared_receive_seg, next_wqe_index)
FIELD(struct flexio_dev_wqe_shared_receive_seg, rsvd0)
FIELD(struct flexio_dev_wqe_shared_receive_seg, rsvd1)
FIELD(struct flexio_dev_wqe_shared_receive_seg, signature)
FIELD(struct flexio_dev_wqe_transpose_seg, element_size)
FIELD(struct flexio_dev_wqe_transpose_seg, num_of_cols)
FIELD(struct flexio_dev_wqe_transpose_seg, num_of_rows)
FIELD(struct flexio_dev_wqe_transpose_seg, rsvd0)
FIELD(struct flexio_dev_wqe_transpose_seg, rsvd1)
FIELD(struct flexio_dev_wqe_transpose_seg, rsvd2)
FIELD(struct flexio_dev_wqe_transpose_seg, rsvd4)
FIELD(struct spinlock_s, locked)

/* ---- where the fields lie ---- */

PLACE(struct flexio_dev_cqe64, rsvd00, 0)
PLACE(struct flexio_dev_cqe64, csum_ok, 20)
PLACE(struct flexio_dev_cqe64, rsvd22, 22)
PLACE(struct flexio_dev_cqe64, rsvd14, 24)
PLACE(struct flexio_dev_cqe64, srqn_uidx, 32)
PLACE(struct flexio_dev_cqe64, imm_inval_pkey, 36)
PLACE(struct flexio_dev_cqe64, rsvd, 40)
PLACE(struct flexio_dev_cqe64, byte_cnt, 44)
PLACE(struct flexio_dev_cqe64, rsvd48, 48)
PLACE(struct flexio_dev_cqe64, err_syndrome, 52)
PLACE(struct flexio_dev_cqe64, qpn, 56)
PLACE(struct flexio_dev_cqe64, sop_rdrop, 56)
PLACE(struct flexio_dev_cqe64, qpn24, 57)
PLACE(struct flexio_dev_cqe64, wqe_counter, 60)
PLACE(struct flexio_dev_cqe64, signature, 62)
PLACE(struct flexio_dev_cqe64, op_own, 63)
PLACE(struct flexio_dev_eqe, rsvd00, 0)
PLACE(struct flexio_dev_eqe, type, 1)
PLACE(struct flexio_dev_eqe, rsvd02, 2)
PLACE(struct flexio_dev_eqe, sub_type, 3)
PLACE(struct flexio_dev_eqe, rsvd4, 4)
PLACE(struct flexio_dev_eqe, event_data, 32)
PLACE(struct flexio_dev_eqe, event_data.cqn, 56)
PLACE(struct flexio_dev_eqe, rsvd3c, 60)
PLACE(struct flexio_dev_eqe, signature, 62)
PLACE(struct flexio_dev_eqe, owner, 63)
PLACE(struct flexio_dev_mini_cqe64, mini_cqe, 0)
PLACE(struct flexio_dev_mini_cqe64, rsvd0, 56)
PLACE(struct flexio_dev_mini_cqe64, validity_iteration_count, 62)
PLACE(struct flexio_dev_mini_cqe64, num_and_type, 63)
PLACE(struct flexio_dev_wqe_atomic_seg, swap_or_add_data, 0)
PLACE(struct flexio_dev_wqe_atomic_seg, compare_data, 8)
PLACE(struct flexio_dev_wqe_ctrl_seg, idx_opcode, 0)
PLACE(struct flexio_dev_wqe_ctrl_seg, qpn_ds, 4)
PLACE(struct flexio_dev_wqe_ctrl_seg, signature_fm_ce_se, 8)
PLACE(struct flexio_dev_wqe_ctrl_seg, general_id, 12)
PLACE(struct flexio_dev_wqe_eth_seg, rsvd0, 0)
PLACE(struct flexio_dev_wqe_eth_seg, cs_swp_flags, 4)
PLACE(struct flexio_dev_wqe_eth_seg, mss, 6)
PLACE(struct flexio_dev_wqe_eth_seg, rsvd2, 8)
PLACE(struct flexio_dev_wqe_eth_seg, inline_hdr_bsz, 12)
PLACE(struct flexio_dev_wqe_eth_seg, inline_hdrs, 14)
PLACE(struct flexio_dev_wqe_inline_data_seg, inline_data, 0)
PLACE(struct flexio_dev_wqe_inline_send_data_seg, byte_count, 0)
PLACE(struct flexio_dev_wqe_inline_send_data_seg, data_and_padding, 4)
PLACE(struct flexio_dev_wqe_mem_ptr_send_data_seg, byte_count, 0)
PLACE(struct flexio_dev_wqe_mem_ptr_send_data_seg, lkey, 4)
PLACE(struct flexio_dev_wqe_mem_ptr_send_data_seg, addr, 8)
PLACE(struct flexio_dev_wqe_rcv_data_seg, byte_count, 0)
PLACE(struct flexio_dev_wqe_rcv_data_seg, lkey, 4)
PLACE(struct flexio_dev_wqe_rcv_data_seg, addr, 8)
PLACE(struct flexio_dev_wqe_rdma_seg, raddr, 0)
PLACE(struct flexio_dev_wqe_rdma_seg, rkey, 8)
PLACE(struct flexio_dev_wqe_rdma_seg, rsvd0, 12)
PLACE(struct flexio_dev_wqe_transpose_seg, element_size, 3)
PLACE(struct flexio_dev_wqe_transpose_seg, num_of_cols, 5)
PLACE(struct flexio_dev_wqe_transpose_seg, num_of_rows, 7)
PLACE(struct flexio_dev_wqe_transpose_seg, rsvd4, 8)

/* ---- types ---- */

TYPE(enum cq_ce_mode)
TYPE(enum flexio_dev_nic_counter_ids)
TYPE(flexio_dev_status_t)
TYPE(enum flexio_window_entity)
TYPE(flexio_dev_arg_unpack_func_t *)
TYPE(flexio_dev_async_rpc_handler_t *)
TYPE(flexio_dev_event_handler_t *)
TYPE(flexio_dev_rpc_handler_t *)
TYPE(flexio_uar_device_id)
TYPE(flexio_dev_error_t)
TYPE(flexio_ctrl_seg_t)
TYPE(flexio_dev_cc_db_next_act_t)
TYPE(flexio_dev_wqe_eth_seg_cs_swp_flags_t)

/* ---- standard IO ---- */

#if !defined(PICOLIBC_STDIO_GLOBALS) || !defined(__FORMAT_ATTRIBUTE__) || !defined(putc) || \
	!defined(putchar)
#error a macro of stdio.h is missing
#endif
FUNCTION(asprintf, int, char **, const char *, ...)
FUNCTION(clearerr, void, FILE *)
FUNCTION(feof, int, FILE *)
FUNCTION(ferror, int, FILE *)
FUNCTION(fflush, int, FILE *)
FUNCTION(fprintf, int, FILE *, const char *, ...)
FUNCTION(fputs, int, const char *, FILE *)
FUNCTION(printf, int, const char *, ...)
FUNCTION(puts, int, const char *)
FUNCTION(snprintf, int, char *, size_t, const char *, ...)
FUNCTION(sprintf, int, char *, const char *, ...)
FUNCTION(vasprintf, int, char **, const char *, va_list)
FUNCTION(vprintf, int, const char *, va_list)
FUNCTION(vsnprintf, int, char *, size_t, const char *, va_list)
FUNCTION(vsprintf, int, char *, const char *, va_list)
TYPE(struct __file)
_Static_assert(__builtin_types_compatible_p(__typeof__(&stdout), FILE **),
	       "stdout can be assigned");
