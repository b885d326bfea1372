/* SPDX-License-Identifier: MIT */
/*
 * Work with queues: doorbells, doorbell records, completions, events, segments of work requests.
 *
 * Order. Doorbells and doorbell records are stored after everything that the thread stored before them. The getters of
 * the owner bit and of the validity byte come before everything that the thread reads after them. So the usual loops
 * (write WQEs, ring; see the owner bit, read the CQE) need no fence of their own.
 *
 * Doorbells go through the thread's outbox. Without one nothing is rung: the thread's error number becomes ENODEV, and
 * functions that return a status return FLEXIO_DEV_STATUS_FAILED.
 */
#ifndef _FLEXIO_DEV_QUEUE_ACCESS_H_
#define _FLEXIO_DEV_QUEUE_ACCESS_H_

#include <stdint.h>

#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_dpa_arch.h>
#include <libflexio-dev/flexio_dev_endianity.h>
#include <libflexio-dev/flexio_dev_queue_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a send WQE does. Names that came after 24.10 have numbers of their own. */
typedef enum flexio_ctrl_seg {
	FLEXIO_CTRL_SEG_SEND_EN = 0,
	FLEXIO_CTRL_SEG_SEND_RC = 1,
	FLEXIO_CTRL_SEG_SEND_UC = 1,
	FLEXIO_CTRL_SEG_LDMA = 2,
	FLEXIO_CTRL_SEG_RDMA_WRITE = 3,
	FLEXIO_CTRL_SEG_RDMA_READ = 4,
	FLEXIO_CTRL_SEG_ATOMIC_COMPARE_AND_SWAP = 5,
	FLEXIO_CTRL_SEG_LSO = 6,
	FLEXIO_CTRL_SEG_NOP = 7,
	FLEXIO_CTRL_SEG_RDMA_WRITE_IMM = 8,
	FLEXIO_CTRL_SEG_TRANSPOSE = 9,
	FLEXIO_CTRL_SEG_SEND_UD = 10,
	FLEXIO_CTRL_SEG_WAIT_ON_DATA = 11,
	FLEXIO_CTRL_SEG_ATOMIC_FETCH_AND_ADD = 12,
} flexio_ctrl_seg_t;

/* Names of 26.x. */
#define FLEXIO_CTRL_SEG_TYPE_SEND_EN                 FLEXIO_CTRL_SEG_SEND_EN
#define FLEXIO_CTRL_SEG_TYPE_SEND_RC                 FLEXIO_CTRL_SEG_SEND_RC
#define FLEXIO_CTRL_SEG_TYPE_SEND_UC                 FLEXIO_CTRL_SEG_SEND_UC
#define FLEXIO_CTRL_SEG_TYPE_SEND_UD                 FLEXIO_CTRL_SEG_SEND_UD
#define FLEXIO_CTRL_SEG_TYPE_LDMA                    FLEXIO_CTRL_SEG_LDMA
#define FLEXIO_CTRL_SEG_TYPE_RDMA_WRITE              FLEXIO_CTRL_SEG_RDMA_WRITE
#define FLEXIO_CTRL_SEG_TYPE_RDMA_WRITE_IMM          FLEXIO_CTRL_SEG_RDMA_WRITE_IMM
#define FLEXIO_CTRL_SEG_TYPE_RDMA_READ               FLEXIO_CTRL_SEG_RDMA_READ
#define FLEXIO_CTRL_SEG_TYPE_ATOMIC_COMPARE_AND_SWAP FLEXIO_CTRL_SEG_ATOMIC_COMPARE_AND_SWAP
#define FLEXIO_CTRL_SEG_TYPE_ATOMIC_FETCH_AND_ADD    FLEXIO_CTRL_SEG_ATOMIC_FETCH_AND_ADD
#define FLEXIO_CTRL_SEG_TYPE_LSO                     FLEXIO_CTRL_SEG_LSO
#define FLEXIO_CTRL_SEG_TYPE_NOP                     FLEXIO_CTRL_SEG_NOP
#define FLEXIO_CTRL_SEG_TYPE_TRANSPOSE               FLEXIO_CTRL_SEG_TRANSPOSE
#define FLEXIO_CTRL_SEG_TYPE_WAIT_ON_DATA            FLEXIO_CTRL_SEG_WAIT_ON_DATA

/* Who is asked next about a congestion control queue. */
typedef enum flexio_dev_cc_db_next_act {
	CC_DB_NEXT_ACT_SINGLE = 0x0,
	CC_DB_NEXT_ACT_MULTIPLE = 0x1,
	CC_DB_NEXT_ACT_FW = 0x2,
} flexio_dev_cc_db_next_act_t;

/* ---- doorbells ---- */

/* The calling thread's context; NULL until __dpa_os_get_thread_ctx() was called in the thread. */
extern __thread struct flexio_os_thread_ctx *__flexio_dev_thread
	__attribute__((tls_model("local-exec")));

FLEXIO_DEV_ALWAYS_INLINE struct flexio_os_thread_ctx *__flexio_dev_ctx(void)
{
	struct flexio_os_thread_ctx *ctx = __flexio_dev_thread;

	return __builtin_expect(!ctx, 0) ? __dpa_os_get_thread_ctx() : ctx;
}

FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t
__flexio_dev_outbox_store(struct flexio_os_thread_ctx *ctx, uint32_t offset, uint64_t value)
{
	if (__builtin_expect(!ctx->outbox_base, 0)) {
		ctx->os_errno = 19; /* ENODEV */
		return FLEXIO_DEV_STATUS_FAILED;
	}
	__outbox_write((volatile dpa_outbox_value_t *)(uintptr_t)(ctx->outbox_base + offset),
		       value);
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* Before 24.10 the thread context was the first argument and there was a result. */
#if FLEXIO_DEV_VER_USED >= FLEXIO_DEV_VER(24, 10, 0)
#define __FLEXIO_DEV_DB_RESULT void
#define __FLEXIO_DEV_DB_CTX
#define __FLEXIO_DEV_DB_STORE(name, value)                                                       \
	(void)__flexio_dev_outbox_store(__flexio_dev_ctx(), offsetof(dpa_outbox_u_page_t, name), \
					value)
#else
#define __FLEXIO_DEV_DB_RESULT flexio_dev_status_t
#define __FLEXIO_DEV_DB_CTX    struct flexio_dev_thread_ctx *dtctx,
#define __FLEXIO_DEV_DB_STORE(name, value)                                     \
	return __flexio_dev_outbox_store((struct flexio_os_thread_ctx *)dtctx, \
					 offsetof(dpa_outbox_u_page_t, name), value)
#endif

/* Tell the card that WQEs up to pi, not included, are in the send queue. */
FLEXIO_DEV_ALWAYS_INLINE __FLEXIO_DEV_DB_RESULT
flexio_dev_qp_sq_ring_db(__FLEXIO_DEV_DB_CTX uint16_t pi, uint32_t qnum)
{
	__FLEXIO_DEV_DB_STORE(SXD_DB, OUTBOX_V_SXD_DB(pi, qnum));
}

/* Arm a CQ: the next completion behind ci makes an event. */
FLEXIO_DEV_ALWAYS_INLINE __FLEXIO_DEV_DB_RESULT flexio_dev_cq_arm(__FLEXIO_DEV_DB_CTX uint32_t ci,
								  uint32_t qnum)
{
	__FLEXIO_DEV_DB_STORE(CQ_DB, OUTBOX_V_CQ_DB(qnum, ci));
}

/* Give event queue entries before ci back, and arm the queue. */
FLEXIO_DEV_ALWAYS_INLINE __FLEXIO_DEV_DB_RESULT
flexio_dev_eq_update_ci(__FLEXIO_DEV_DB_CTX uint32_t ci, uint32_t qnum)
{
	__FLEXIO_DEV_DB_STORE(EQ_DB_REARM, OUTBOX_V_EQ_DB_REARM(qnum, ci));
}

/* Put a completion of zeros into a CQ; whatever the CQ wakes is woken. */
FLEXIO_DEV_ALWAYS_INLINE __FLEXIO_DEV_DB_RESULT
flexio_dev_zcqe_gen(__FLEXIO_DEV_DB_CTX uint32_t cq_n)
{
	__FLEXIO_DEV_DB_STORE(RXT_DB, OUTBOX_V_RXT_DB(cq_n));
}

/* Raise the MSI-X interrupt of a CQ. */
#define flexio_dev_msix_send(...) flexio_dev_zcqe_gen(__VA_ARGS__)

/* Arm an emulation context. */
FLEXIO_DEV_ALWAYS_INLINE __FLEXIO_DEV_DB_RESULT
flexio_dev_db_ctx_arm(__FLEXIO_DEV_DB_CTX uint32_t qnum, uint32_t emu_ctx_id)
{
	__FLEXIO_DEV_DB_STORE(EMU_CAP, OUTBOX_V_EMU_CAP(qnum, emu_ctx_id));
}

/* Trigger an emulation context. */
FLEXIO_DEV_ALWAYS_INLINE __FLEXIO_DEV_DB_RESULT
flexio_dev_db_ctx_force_trigger(__FLEXIO_DEV_DB_CTX uint32_t cqnum, uint32_t emu_ctx_id)
{
	__FLEXIO_DEV_DB_STORE(EMU_CAP_TRIGGER, OUTBOX_V_EMU_CAP_TRIGGER(cqnum, emu_ctx_id));
}

/* Set rate, round trip measurement and next action of a congestion control queue. */
FLEXIO_DEV_ALWAYS_INLINE __FLEXIO_DEV_DB_RESULT
flexio_dev_cc_ring_db(__FLEXIO_DEV_DB_CTX uint16_t ccq_id, uint32_t rate, uint32_t rtt_req,
		      enum flexio_dev_cc_db_next_act next_act)
{
	__FLEXIO_DEV_DB_STORE(CC_DB, OUTBOX_V_CC_DB(rate, rtt_req, next_act, ccq_id));
}

#undef __FLEXIO_DEV_DB_RESULT
#undef __FLEXIO_DEV_DB_CTX
#undef __FLEXIO_DEV_DB_STORE

/* The two halves of the congestion control doorbell, as they are. */
FLEXIO_DEV_ALWAYS_INLINE void flexio_dev_cc_ring_db_low64bit(uint64_t value)
{
	(void)__flexio_dev_outbox_store(__flexio_dev_ctx(), offsetof(dpa_outbox_u_page_t, CC_DB),
					value);
}

FLEXIO_DEV_ALWAYS_INLINE void flexio_dev_cc_ring_db_high64bit(uint64_t value)
{
	(void)__flexio_dev_outbox_store(__flexio_dev_ctx(),
					offsetof(dpa_outbox_u_page_t, CC_DB_MSB), value);
}

/* Doorbell value of an emulation context; 0 if it cannot be read. */
FLEXIO_DEV_ALWAYS_INLINE uint32_t flexio_dev_read_db_value(uint64_t emu_ctx_id)
{
	struct flexio_os_thread_ctx *ctx = __flexio_dev_ctx();
	uint64_t control;

	if (__flexio_dev_outbox_store(ctx, offsetof(dpa_outbox_u_page_t, RXC_RD),
				      OUTBOX_V_RXC_RD(emu_ctx_id)) != FLEXIO_DEV_STATUS_SUCCESS)
		return 0;
	do
		control = *OUTBOX_PAGE_FIELD_PTR(ctx->outbox_base, UCTL);
	while (control & OUTBOX_UCTL_BUSY);
	if (control & OUTBOX_UCTL_ERR)
		return 0;
	return (uint32_t)*OUTBOX_PAGE_FIELD_PTR(ctx->outbox_base, BUFFER);
}

/* ---- doorbell records ---- */

FLEXIO_DEV_ALWAYS_INLINE void __flexio_dev_dbr_store(uint32_t *dbr, uint32_t value)
{
	__asm__ volatile("fence rw, w" ::: "memory");
	*(volatile uint32_t *)dbr = cpu_to_be32(value);
}

/* Give completions before ci back. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t flexio_dev_dbr_cq_set_ci(uint32_t *cq_dbr, uint32_t ci)
{
	__flexio_dev_dbr_store(cq_dbr, ci & 0xffffff);
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* One more receive WQE is there. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t flexio_dev_dbr_rq_inc_pi(uint32_t *rq_dbr)
{
	uint32_t pi = be32_to_cpu(*(volatile uint32_t *)rq_dbr);

	__flexio_dev_dbr_store(rq_dbr, (pi + 1) & 0xffff);
	return FLEXIO_DEV_STATUS_SUCCESS;
}

#if FLEXIO_DEV_VER_USED < FLEXIO_DEV_VER(24, 10, 0)
/* Names of the first programs. */
#define flexio_dev_swqe_seg_data_set(swqe, data_sz, lkey, data_addr) \
	flexio_dev_swqe_seg_mem_ptr_data_set(swqe, data_sz, lkey, data_addr)

/* Producer index of a send queue's record. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t flexio_dev_dbr_sq_set_pi(uint32_t *sq_dbr, uint32_t pi)
{
	__flexio_dev_dbr_store(sq_dbr, pi & 0xffff);
	return FLEXIO_DEV_STATUS_SUCCESS;
}
#endif

/* ---- completions and events ---- */

/* Fields change under the reader's eyes, so each is read once, where the program says. */
#define __FLEXIO_DEV_READ(field) (*(const volatile __typeof__(field) *)&(field))

/* Changes with each turn of the ring: who may read the entry. */
FLEXIO_DEV_ALWAYS_INLINE uint8_t flexio_dev_cqe_get_owner(struct flexio_dev_cqe64 *cqe)
{
	return __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE) & 1;
}

FLEXIO_DEV_ALWAYS_INLINE uint8_t flexio_dev_cqe_get_opcode(struct flexio_dev_cqe64 *cqe)
{
	return __FLEXIO_DEV_READ(cqe->op_own) >> 4;
}

/* 0 no inline data, 1 inline data of 32 bytes, 2 of 64 bytes, 3 compressed. */
FLEXIO_DEV_ALWAYS_INLINE uint8_t flexio_dev_cqe_get_type(struct flexio_dev_cqe64 *cqe)
{
	return (__FLEXIO_DEV_READ(cqe->op_own) >> 2) & 3;
}

/*
 * Of a frame: bit 0 its Ethernet header is right, bit 1 the checksum of IP, bit 2 that of TCP or
 * UDP. The card has these bits in byte 28; the field that is called csum_ok has the checksum of the
 * frame.
 */
FLEXIO_DEV_ALWAYS_INLINE uint16_t flexio_dev_cqe_get_csum_ok(struct flexio_dev_cqe64 *cqe)
{
	return (uint16_t)(be32_to_cpu(__FLEXIO_DEV_READ(cqe->rsvd14[1])) >> 24);
}

FLEXIO_DEV_ALWAYS_INLINE uint32_t flexio_dev_cqe_get_qpn(struct flexio_dev_cqe64 *cqe)
{
	return be32_to_cpu(__FLEXIO_DEV_READ(cqe->qpn)) & 0xffffff;
}

FLEXIO_DEV_ALWAYS_INLINE uint16_t flexio_dev_cqe_get_wqe_counter(struct flexio_dev_cqe64 *cqe)
{
	return be16_to_cpu(__FLEXIO_DEV_READ(cqe->wqe_counter));
}

FLEXIO_DEV_ALWAYS_INLINE uint32_t flexio_dev_cqe_get_byte_cnt(struct flexio_dev_cqe64 *cqe)
{
	return be32_to_cpu(__FLEXIO_DEV_READ(cqe->byte_cnt));
}

FLEXIO_DEV_ALWAYS_INLINE uint32_t flexio_dev_cqe_get_user_index(struct flexio_dev_cqe64 *cqe)
{
	return be32_to_cpu(__FLEXIO_DEV_READ(cqe->srqn_uidx)) & 0xffffff;
}

/* All four bytes: hardware syndrome 31:24, vendor's 15:8, syndrome 7:0. */
FLEXIO_DEV_ALWAYS_INLINE uint32_t flexio_dev_cqe_get_err_synd(struct flexio_dev_cqe64 *cqe)
{
	return be32_to_cpu(__FLEXIO_DEV_READ(cqe->err_syndrome));
}

FLEXIO_DEV_ALWAYS_INLINE uint32_t flexio_dev_cqe_get_hw_err_synd(struct flexio_dev_cqe64 *cqe)
{
	return __FLEXIO_DEV_READ(cqe->hw_err_syndrome);
}

FLEXIO_DEV_ALWAYS_INLINE uint32_t flexio_dev_cqe_get_vendor_err_synd(struct flexio_dev_cqe64 *cqe)
{
	return __FLEXIO_DEV_READ(cqe->vendor_err_synd);
}

FLEXIO_DEV_ALWAYS_INLINE uint8_t flexio_dev_eqe_get_owner(struct flexio_dev_eqe *eqe)
{
	return __atomic_load_n(&eqe->owner, __ATOMIC_ACQUIRE) & 1;
}

FLEXIO_DEV_ALWAYS_INLINE uint32_t flexio_dev_eqe_get_cqn(struct flexio_dev_eqe *eqe)
{
	return be32_to_cpu(__FLEXIO_DEV_READ(eqe->event_data.cqn)) & 0xffffff;
}

/* ---- compressed completions ---- */

/* Prepare a ring for compression: no entry is valid for this iteration count. */
FLEXIO_DEV_ALWAYS_INLINE void flexio_dev_comp_cq_init(struct flexio_dev_cqe64 *cqe, int num_cqes,
						      uint8_t validity_iteration_count)
{
	for (int i = 0; i < num_cqes; i++)
		cqe[i].validity_iteration_count = validity_iteration_count;
}

FLEXIO_DEV_ALWAYS_INLINE uint8_t flexio_dev_comp_cqe_get_validity_byte(struct flexio_dev_cqe64 *cqe)
{
	return __atomic_load_n(&cqe->validity_iteration_count, __ATOMIC_ACQUIRE);
}

/* 1 if the entry is an array of compressed ones, else 0. */
FLEXIO_DEV_ALWAYS_INLINE uint8_t flexio_dev_comp_cqe_is_comp_cqe_array(struct flexio_dev_cqe64 *cqe)
{
	struct flexio_dev_mini_cqe64 *mini = (struct flexio_dev_mini_cqe64 *)cqe;

	return ((__FLEXIO_DEV_READ(mini->num_and_type) >> 2) & 3) == 3;
}

FLEXIO_DEV_ALWAYS_INLINE uint8_t flexio_dev_comp_cqe_get_num_comp_cqes(struct flexio_dev_cqe64 *cqe)
{
	struct flexio_dev_mini_cqe64 *mini = (struct flexio_dev_mini_cqe64 *)cqe;

	return (__FLEXIO_DEV_READ(mini->num_and_type) >> 4) + 1;
}

/* One of them, as it lies in memory. */
FLEXIO_DEV_ALWAYS_INLINE uint64_t flexio_dev_comp_cqe_get_comp_cqe(struct flexio_dev_cqe64 *cqe,
								   int comp_cqe_index)
{
	struct flexio_dev_mini_cqe64 *mini = (struct flexio_dev_mini_cqe64 *)cqe;

	return __FLEXIO_DEV_READ(mini->mini_cqe[comp_cqe_index]);
}

/* Its hash, where the CQ was created with that format. */
#define FLEXIO_DEV_COMP_CQE_GET_RX_HASH_RESULT(_x) be32_to_cpu((uint32_t)((_x)&0xFFFFFFFFULL))

/* ---- work requests ---- */

FLEXIO_DEV_ALWAYS_INLINE void *flexio_dev_rwqe_get_addr(struct flexio_dev_wqe_rcv_data_seg *rwqe)
{
	return (void *)(uintptr_t)be64_to_cpu(rwqe->addr);
}

/* Opcode, modifier and length in segments of each kind of WQE; 0: there is no such kind. */
FLEXIO_DEV_ALWAYS_INLINE uint32_t __flexio_dev_ctrl_seg(enum flexio_ctrl_seg type)
{
#define __FLEXIO_DEV_CTRL(opcode, modifier, ds) ((uint32_t)(modifier) << 24 | (ds) << 8 | (opcode))
	switch (type) {
	case FLEXIO_CTRL_SEG_SEND_EN:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_SEND, 0, 3);
	case FLEXIO_CTRL_SEG_SEND_RC:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_SEND, 0, 2);
	case FLEXIO_CTRL_SEG_SEND_UD:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_SEND, 0, 3);
	case FLEXIO_CTRL_SEG_LDMA:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_LOCAL_MMO,
					 MLX5_CTRL_SEGMENT_OPC_MOD_LOCAL_MMO_LOCAL_DMA, 4);
	case FLEXIO_CTRL_SEG_TRANSPOSE:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_LOCAL_MMO,
					 MLX5_CTRL_SEGMENT_OPC_MOD_LOCAL_MMO_TRANSPOSE, 4);
	case FLEXIO_CTRL_SEG_RDMA_WRITE:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_RDMA_WRITE, 0, 3);
	case FLEXIO_CTRL_SEG_RDMA_WRITE_IMM:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_RDMA_WRITE_WITH_IMMEDIATE, 0, 3);
	case FLEXIO_CTRL_SEG_RDMA_READ:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_RDMA_READ, 0, 3);
	case FLEXIO_CTRL_SEG_ATOMIC_COMPARE_AND_SWAP:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_ATOMIC_COMPARE_AND_SWAP, 0, 4);
	case FLEXIO_CTRL_SEG_ATOMIC_FETCH_AND_ADD:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_ATOMIC_FETCH_AND_ADD, 0, 4);
	case FLEXIO_CTRL_SEG_LSO:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_LSO, 0, 4);
	case FLEXIO_CTRL_SEG_NOP:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_NOP, 0, 1);
	case FLEXIO_CTRL_SEG_WAIT_ON_DATA:
		return __FLEXIO_DEV_CTRL(MLX5_CTRL_SEG_OPCODE_WAIT,
					 MLX5_CTRL_SEGMENT_OPC_MOD_WAIT_ON_DATA, 3);
	}
#undef __FLEXIO_DEV_CTRL
	return 0;
}

/*
 * First segment of a WQE: its index, its queue, when it completes (enum cq_ce_mode) and what it does. Immediate data
 * goes into ctrl.general_id afterwards. FAILED, and nothing is written, if there is no such type.
 */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t
flexio_dev_swqe_seg_ctrl_set(union flexio_dev_sqe_seg *swqe, uint32_t sq_pi, uint32_t sq_number,
			     uint32_t ce, enum flexio_ctrl_seg ctrl_seg_type)
{
	uint32_t kind = __flexio_dev_ctrl_seg(ctrl_seg_type);

	if (!kind)
		return FLEXIO_DEV_STATUS_FAILED;
	swqe->ctrl.idx_opcode = cpu_to_be32((kind & 0xff0000ff) | (sq_pi & 0xffff) << 8);
	swqe->ctrl.qpn_ds = cpu_to_be32(sq_number << 8 | ((kind >> 8) & 0xff));
	swqe->ctrl.signature_fm_ce_se = cpu_to_be32(ce << 2);
	swqe->ctrl.general_id = 0;
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* Ethernet: inline_hdr_bsz bytes of headers are inlined, the first two of them in this segment. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t
flexio_dev_swqe_seg_eth_set(union flexio_dev_sqe_seg *swqe, uint16_t cs_swp_flags, uint16_t mss,
			    uint16_t inline_hdr_bsz, uint8_t inline_hdrs[2])
{
	swqe->eth.rsvd0 = 0;
	swqe->eth.cs_swp_flags = cpu_to_be16(cs_swp_flags);
	swqe->eth.mss = cpu_to_be16(mss);
	swqe->eth.rsvd2 = 0;
	swqe->eth.inline_hdr_bsz = cpu_to_be16(inline_hdr_bsz);
	swqe->eth.inline_hdrs[0] = inline_hdrs ? inline_hdrs[0] : 0;
	swqe->eth.inline_hdrs[1] = inline_hdrs ? inline_hdrs[1] : 0;
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* data_sz bytes of data in the WQE, the first twelve in this segment. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t flexio_dev_swqe_seg_inline_data_set(
	union flexio_dev_sqe_seg *swqe, uint32_t data_sz, uint32_t *data)
{
	swqe->inline_send_data.byte_count = cpu_to_be32(data_sz | 0x80000000u);
	for (int i = 0; i < 3; i++)
		swqe->inline_send_data.data_and_padding[i] = data[i];
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* data_sz bytes of data at an address. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t flexio_dev_swqe_seg_mem_ptr_data_set(
	union flexio_dev_sqe_seg *swqe, uint32_t data_sz, uint32_t lkey, uint64_t data_addr)
{
	swqe->mem_ptr_send_data.byte_count = cpu_to_be32(data_sz);
	swqe->mem_ptr_send_data.lkey = cpu_to_be32(lkey);
	swqe->mem_ptr_send_data.addr = cpu_to_be64(data_addr);
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* Remote memory. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t
flexio_dev_swqe_seg_rdma_set(union flexio_dev_sqe_seg *swqe, uint32_t rkey, uint64_t raddr)
{
	swqe->rdma.raddr = cpu_to_be64(raddr);
	swqe->rdma.rkey = cpu_to_be32(rkey);
	swqe->rdma.rsvd0 = 0;
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* Operands: compare and swap, or fetch and add (compare_data is not used). */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t flexio_dev_swqe_seg_atomic_set(
	union flexio_dev_sqe_seg *swqe, uint64_t swap_or_add_data, uint64_t compare_data)
{
	swqe->atomic.swap_or_add_data = cpu_to_be64(swap_or_add_data);
	swqe->atomic.compare_data = cpu_to_be64(compare_data);
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* A matrix to transpose. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t
flexio_dev_swqe_seg_transpose_set(union flexio_dev_sqe_seg *swqe, uint8_t element_size,
				  uint8_t num_of_cols, uint8_t num_of_rows)
{
	*swqe = (union flexio_dev_sqe_seg){ { 0, 0, 0, 0 } };
	swqe->transpose.element_size = element_size;
	swqe->transpose.num_of_cols = num_of_cols;
	swqe->transpose.num_of_rows = num_of_rows;
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* First segment of a WQE of a linked list of receives. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t flexio_dev_swqe_seg_shared_receive_set(
	union flexio_dev_sqe_seg *swqe, uint16_t next_wqe_index, uint8_t signature)
{
	*swqe = (union flexio_dev_sqe_seg){ { 0, 0, 0, 0 } };
	swqe->shared_receive.next_wqe_index = cpu_to_be16(next_wqe_index);
	swqe->shared_receive.signature = signature;
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* Address vector, first segment; the only one if ext is 0. */
FLEXIO_DEV_ALWAYS_INLINE void flexio_dev_swqe_seg_av1_set(union flexio_dev_sqe_seg *swqe,
							  uint32_t qkey, uint32_t dqp, uint8_t ext,
							  uint8_t stat_rate_sl, uint8_t fl_mlid,
							  uint16_t rlid)
{
	swqe->adres_vector.s1.key.qkey.qkey = cpu_to_be32(qkey);
	swqe->adres_vector.s1.key.qkey.reserved = 0;
	swqe->adres_vector.s1.ext_dqp_dct =
		cpu_to_be32((ext ? 0x80000000u : 0) | (dqp & 0x7fffffff));
	swqe->adres_vector.s1.stat_rate_sl = stat_rate_sl;
	swqe->adres_vector.s1.fl_mlid = fl_mlid;
	swqe->adres_vector.s1.rlid = cpu_to_be16(rlid);
}

/* Second segment: Ethernet address and what goes into the GRH or IP header. */
FLEXIO_DEV_ALWAYS_INLINE void flexio_dev_swqe_seg_av2_set(union flexio_dev_sqe_seg *swqe,
							  uint8_t *rmac, uint8_t tclass,
							  uint8_t hop_limit, uint32_t grh_gid_fl)
{
	swqe->adres_vector.s2.rsvd0 = 0;
	for (int i = 0; i < 6; i++)
		swqe->adres_vector.s2.rmac[i] = rmac[i];
	swqe->adres_vector.s2.tclass = tclass;
	swqe->adres_vector.s2.hop_limit = hop_limit;
	swqe->adres_vector.s2.grh_gid_fl = cpu_to_be32(grh_gid_fl);
}

/* Third segment: remote GID or IP address. */
FLEXIO_DEV_ALWAYS_INLINE void flexio_dev_swqe_seg_av3_set(union flexio_dev_sqe_seg *swqe,
							  uint8_t *rgid)
{
	for (int i = 0; i < 16; i++)
		swqe->adres_vector.s3.rgid[i] = rgid[i];
}

/* Wait on data: where (8-byte aligned), which comparison, and what to do if it fails (low three bits). */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t
flexio_dev_swqe_seg_wait_on_data_set(union flexio_dev_sqe_seg *swqe, uint8_t operation, uint8_t inv,
				     uint32_t lkey, uint64_t addr, uint8_t action_on_fail)
{
	*swqe = (union flexio_dev_sqe_seg){ { 0, 0, 0, 0 } };
	swqe->wait_on_data.op_inv = (uint8_t)((inv & 1) << 4 | (operation & 0xf));
	swqe->wait_on_data.lkey = cpu_to_be32(lkey);
	swqe->wait_on_data.va_63_32 = cpu_to_be32((uint32_t)(addr >> 32));
	swqe->wait_on_data.va_31_3_fail_act =
		cpu_to_be32(((uint32_t)addr & ~7u) | (action_on_fail & 7u));
	return FLEXIO_DEV_STATUS_SUCCESS;
}

/* ... and the value with the bits that count. */
FLEXIO_DEV_ALWAYS_INLINE flexio_dev_status_t flexio_dev_swqe_seg_wait_on_data_data_set(
	union flexio_dev_sqe_seg *swqe, uint64_t data, uint64_t data_mask)
{
	swqe->wait_on_data_data.data = cpu_to_be64(data);
	swqe->wait_on_data_data.mask = cpu_to_be64(data_mask);
	return FLEXIO_DEV_STATUS_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#endif
