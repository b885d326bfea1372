/* SPDX-License-Identifier: MIT */
/*
 * The outbox page: registers of the card that device code stores to. Each register has a cache line of its own, takes
 * 64-bit stores and is little endian.
 *
 *	struct flexio_os_thread_ctx *ctx = __dpa_os_get_thread_ctx();
 *
 *	outbox_write(ctx->outbox_base, SXD_DB, OUTBOX_V_SXD_DB(pi, qpn));
 *
 * The functions of flexio_dev_queue_access.h do that, and look whether there is an outbox.
 */
#ifndef __FLEXIO_DEV_DPA_ARCH_H__
#define __FLEXIO_DEV_DPA_ARCH_H__

#include <stddef.h>
#include <stdint.h>

#include <libflexio-os/flexio_os.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t dpa_outbox_value_t;
typedef uint64_t dpa_window_value_t;

#define DPA_OUTBOX_PAGE_BSIZE 4096

typedef struct dpa_outbox_u_page {
	uint64_t UCTL; /* busy at 0, error at 1 */
	uint8_t rsvd0[56];
	uint64_t BUFFER;
	uint8_t rsvd1[184];
	uint64_t CQ_DB; /* arm a CQ */
	uint8_t rsvd2[56];
	uint64_t EQ_DB_REARM; /* consumer index of an EQ, and arm it */
	uint8_t rsvd3[56];
	uint64_t EQ_DB_NO_REARM;
	uint8_t rsvd4[56];
	uint64_t SXD_DB; /* producer index of a send queue */
	uint8_t rsvd5[56];
	uint64_t EMU_CAP;
	uint8_t rsvd6[56];
	uint64_t EMU_CAP_TRIGGER;
	uint8_t rsvd7[56];
	uint64_t RXT_DB; /* a completion of zeros on a CQ */
	uint8_t rsvd8[56];
	uint64_t RXT_DONE0;
	uint64_t RXT_DONE1;
	uint8_t rsvd9[48];
	uint64_t RXC_RD;
	uint8_t rsvd10[56];
	uint64_t CC_DB; /* congestion control */
	uint64_t CC_DB_MSB;
	uint8_t rsvd11[3184];
	uint64_t SW_RESERVE;
	uint8_t rsvd12[56];
} dpa_outbox_u_page_t;

#ifndef __cplusplus
_Static_assert(offsetof(dpa_outbox_u_page_t, BUFFER) == 0x40, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, CQ_DB) == 0x100, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, EQ_DB_REARM) == 0x140, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, EQ_DB_NO_REARM) == 0x180, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, SXD_DB) == 0x1c0, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, EMU_CAP) == 0x200, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, EMU_CAP_TRIGGER) == 0x240, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, RXT_DB) == 0x280, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, RXT_DONE1) == 0x2c8, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, RXC_RD) == 0x300, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, CC_DB_MSB) == 0x348, "register");
_Static_assert(offsetof(dpa_outbox_u_page_t, SW_RESERVE) == 0xfc0, "register");
_Static_assert(sizeof(dpa_outbox_u_page_t) == DPA_OUTBOX_PAGE_BSIZE, "page");
#endif

/* Values of the registers. Bits that a field does not have are cut off. */
#define __OUTBOX_BITS(value, bits, shift) \
	(((dpa_outbox_value_t)(value) & ((UINT64_C(1) << (bits)) - 1)) << (shift))

#define OUTBOX_V_CQ_DB(cqn, cq_ci)          (__OUTBOX_BITS(cqn, 24, 0) | __OUTBOX_BITS(cq_ci, 24, 32))
#define OUTBOX_V_EQ_DB_REARM(eqn, eq_ci)    (__OUTBOX_BITS(eqn, 24, 0) | __OUTBOX_BITS(eq_ci, 26, 32))
#define OUTBOX_V_EQ_DB_NO_REARM(eqn, eq_ci) OUTBOX_V_EQ_DB_REARM(eqn, eq_ci)
#define OUTBOX_V_SXD_DB(wqe_index, qp_or_sq) \
	(__OUTBOX_BITS(wqe_index, 16, 0) | __OUTBOX_BITS(qp_or_sq, 24, 32))
#define OUTBOX_V_RXT_DB(cqn)     __OUTBOX_BITS(cqn, 24, 0)
#define OUTBOX_V_RXC_RD(address) __OUTBOX_BITS(address, 26, 2)
#define OUTBOX_V_EMU_CAP(dummy_qpn, emulation_index) \
	(__OUTBOX_BITS(dummy_qpn, 24, 0) | __OUTBOX_BITS(emulation_index, 26, 32))
#define OUTBOX_V_EMU_CAP_TRIGGER(dummy_qpn, emulation_index) \
	OUTBOX_V_EMU_CAP(dummy_qpn, emulation_index)
#define OUTBOX_V_CC_DB(rate, rtt_req, nxt_act, ccq_id)                \
	(__OUTBOX_BITS(rate, 32, 0) | __OUTBOX_BITS(rtt_req, 1, 32) | \
	 __OUTBOX_BITS(nxt_act, 2, 34) | __OUTBOX_BITS(ccq_id, 16, 48))

#define OUTBOX_UCTL_BUSY 1
#define OUTBOX_UCTL_ERR  2

#define OUTBOX_PAGE_FIELD_PTR(page, name) \
	((volatile dpa_outbox_value_t *)((uintptr_t)(page) + offsetof(dpa_outbox_u_page_t, name)))

/* A store to a register. What was written to queues and doorbell records before is visible to the card first. */
static inline __attribute__((always_inline, unused)) void
__outbox_write(volatile dpa_outbox_value_t *reg, dpa_outbox_value_t value)
{
	__asm__ volatile("fence w, o" ::: "memory");
	*reg = value;
}

#define outbox_write(page, name, value) \
	__outbox_write(OUTBOX_PAGE_FIELD_PTR(page, name), (dpa_outbox_value_t)(value))

#ifdef __cplusplus
}
#endif

#endif
