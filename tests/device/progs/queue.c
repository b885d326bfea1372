// SPDX-License-Identifier: MIT
/*
 * Device code: queue access. Run by ../queue.c. Compiled twice: with the argument forms of today and, OLD_FORMS, with
 * those before 24.10.
 */
#include <libflexio-dev/flexio_dev_ver.h>
#ifdef OLD_FORMS
#define FLEXIO_DEV_VER_USED FLEXIO_DEV_VER(24, 7, 0)
#endif
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>

#define RPC   __attribute__((used, retain))

#define PAINT 0xa5

/* ---- segments: each setter writes one, over paint ---- */

union flexio_dev_sqe_seg segments[32] RPC;
unsigned int segment_count RPC;
unsigned int refused RPC;

static union flexio_dev_sqe_seg *next(void)
{
	union flexio_dev_sqe_seg *seg = &segments[segment_count++];

	for (unsigned int i = 0; i < sizeof(*seg); i++)
		((volatile uint8_t *)seg)[i] = PAINT;
	return seg;
}

static void must(flexio_dev_status_t status)
{
	refused += status != FLEXIO_DEV_STATUS_SUCCESS;
}

/* pi, queue number and completion mode come from the host, so that nothing is a constant. */
RPC void ctrl_segments(uint32_t pi, uint32_t qpn, uint32_t ce)
{
	static const flexio_ctrl_seg_t type[] = {
		FLEXIO_CTRL_SEG_SEND_EN,
		FLEXIO_CTRL_SEG_SEND_RC,
		FLEXIO_CTRL_SEG_SEND_UC,
		FLEXIO_CTRL_SEG_SEND_UD,
		FLEXIO_CTRL_SEG_LDMA,
		FLEXIO_CTRL_SEG_TRANSPOSE,
		FLEXIO_CTRL_SEG_RDMA_WRITE,
		FLEXIO_CTRL_SEG_RDMA_WRITE_IMM,
		FLEXIO_CTRL_SEG_RDMA_READ,
		FLEXIO_CTRL_SEG_NOP,
		FLEXIO_CTRL_SEG_ATOMIC_COMPARE_AND_SWAP,
		FLEXIO_CTRL_SEG_ATOMIC_FETCH_AND_ADD,
		FLEXIO_CTRL_SEG_LSO,
		FLEXIO_CTRL_SEG_WAIT_ON_DATA,
	};

	segment_count = refused = 0;
	for (unsigned int i = 0; i < sizeof(type) / sizeof(*type); i++)
		must(flexio_dev_swqe_seg_ctrl_set(next(), pi, qpn, ce, type[i]));
	if (flexio_dev_swqe_seg_ctrl_set(next(), pi, qpn, ce, (flexio_ctrl_seg_t)13) ==
	    FLEXIO_DEV_STATUS_FAILED)
		refused += 100;
}

RPC void data_segments(void)
{
	uint8_t header[2] = { 0x11, 0x22 }, mac[6] = { 1, 2, 3, 4, 5, 6 }, gid[16];
	uint32_t data[3] = { 0x03020100, 0x07060504, 0x0b0a0908 };

	for (int i = 0; i < 16; i++)
		gid[i] = (uint8_t)(0xf0 + i);
	segment_count = refused = 0;
	must(flexio_dev_swqe_seg_eth_set(next(), FLEXIO_ETH_SEG_L4CS | FLEXIO_ETH_SEG_L3CS, 1460,
					 18, header));
	must(flexio_dev_swqe_seg_eth_set(next(), 0, 0, 0, NULL));
	must(flexio_dev_swqe_seg_inline_data_set(next(), 12, data));
	must(flexio_dev_swqe_seg_mem_ptr_data_set(next(), 0x1000, 0xaabbccdd, 0x1122334455667788));
	must(flexio_dev_swqe_seg_rdma_set(next(), 0x01020304, 0x8877665544332211));
	must(flexio_dev_swqe_seg_atomic_set(next(), 0x0102030405060708, 0x1112131415161718));
	must(flexio_dev_swqe_seg_transpose_set(next(), 4, 8, 16));
	must(flexio_dev_swqe_seg_shared_receive_set(next(), 0x1234, 0x56));
	flexio_dev_swqe_seg_av1_set(next(), 0x11111111, 0x00abcdef, 1, 0x23, 0x80, 0xc001);
	flexio_dev_swqe_seg_av2_set(next(), mac, 0x20, 64, 0x40300001);
	flexio_dev_swqe_seg_av3_set(next(), gid);
	must(flexio_dev_swqe_seg_wait_on_data_set(next(), 2, 1, 0x99887766, 0x123456789abcdef8, 5));
	must(flexio_dev_swqe_seg_wait_on_data_data_set(next(), 0x0102, 0xffff));
}

/* ---- completions and events, as the host filled them in ---- */

struct flexio_dev_cqe64 cqe RPC;
struct flexio_dev_eqe eqe RPC;
struct flexio_dev_wqe_rcv_data_seg rwqe RPC;
uint64_t seen[32] RPC;

RPC void read_all(void)
{
	unsigned int n = 0;

	seen[n++] = flexio_dev_cqe_get_owner(&cqe);
	seen[n++] = flexio_dev_cqe_get_opcode(&cqe);
	seen[n++] = flexio_dev_cqe_get_type(&cqe);
	seen[n++] = flexio_dev_cqe_get_csum_ok(&cqe);
	seen[n++] = flexio_dev_cqe_get_qpn(&cqe);
	seen[n++] = flexio_dev_cqe_get_wqe_counter(&cqe);
	seen[n++] = flexio_dev_cqe_get_byte_cnt(&cqe);
	seen[n++] = flexio_dev_cqe_get_user_index(&cqe);
	seen[n++] = flexio_dev_cqe_get_err_synd(&cqe);
	seen[n++] = flexio_dev_cqe_get_hw_err_synd(&cqe);
	seen[n++] = flexio_dev_cqe_get_vendor_err_synd(&cqe);
	seen[n++] = cqe.imm_inval_pkey;
	seen[n++] = flexio_dev_eqe_get_owner(&eqe);
	seen[n++] = flexio_dev_eqe_get_cqn(&eqe);
	seen[n++] = (uintptr_t)flexio_dev_rwqe_get_addr(&rwqe);
}

RPC void read_compressed(void)
{
	seen[0] = flexio_dev_comp_cqe_is_comp_cqe_array(&cqe);
	seen[1] = flexio_dev_comp_cqe_get_num_comp_cqes(&cqe);
	seen[2] = flexio_dev_comp_cqe_get_validity_byte(&cqe);
	seen[3] = flexio_dev_comp_cqe_get_comp_cqe(&cqe, 6);
	seen[4] = FLEXIO_DEV_COMP_CQE_GET_RX_HASH_RESULT(seen[3]);
}

struct flexio_dev_cqe64 ring[4] RPC;

RPC void init_compressed(void)
{
	flexio_dev_comp_cq_init(ring, 3, 0xff);
}

/* ---- doorbell records ---- */

uint32_t dbr[2] RPC;

RPC uint64_t records(uint32_t ci, uint32_t times)
{
	uint64_t bad = flexio_dev_dbr_cq_set_ci(&dbr[0], ci);

	for (uint32_t i = 0; i < times; i++)
		bad |= flexio_dev_dbr_rq_inc_pi(&dbr[1]);
	return bad;
}

#ifdef OLD_FORMS
/* Names of the first programs. */
RPC uint64_t oldest(uint32_t leave)
{
	segment_count = 0;
	must(flexio_dev_swqe_seg_data_set(next(), 0x1000, 0xaabbccdd, 0x1122334455667788));
	if (leave)
		flexio_dev_return();
	return flexio_dev_dbr_sq_set_pi(&dbr[1], 0x1ffff);
}
#endif

/* ---- doorbells; the result has a bit for each that failed, in the old forms ---- */

RPC uint64_t ring_all(void)
{
#ifdef OLD_FORMS
	struct flexio_dev_thread_ctx *dtctx;
	uint64_t failed = 0;

	flexio_dev_get_thread_ctx(&dtctx);
	failed |= (uint64_t)flexio_dev_qp_sq_ring_db(dtctx, 0xbeef, 0x123456) << 0;
	failed |= (uint64_t)flexio_dev_cq_arm(dtctx, 0xff123456, 0xabcdef) << 1;
	failed |= (uint64_t)flexio_dev_eq_update_ci(dtctx, 0x5123456, 0x42) << 2;
	failed |= (uint64_t)flexio_dev_zcqe_gen(dtctx, 0x777) << 3;
	failed |= (uint64_t)flexio_dev_msix_send(dtctx, 0x778) << 4;
	failed |= (uint64_t)flexio_dev_db_ctx_arm(dtctx, 0x111, 0x222) << 5;
	failed |= (uint64_t)flexio_dev_db_ctx_force_trigger(dtctx, 0x333, 0x444) << 6;
	failed |= (uint64_t)flexio_dev_cc_ring_db(dtctx, 0x8001, 0x12345678, 1, CC_DB_NEXT_ACT_FW)
		  << 7;
#else
	flexio_dev_qp_sq_ring_db(0xbeef, 0x123456);
	flexio_dev_cq_arm(0xff123456, 0xabcdef);
	flexio_dev_eq_update_ci(0x5123456, 0x42);
	flexio_dev_zcqe_gen(0x777);
	flexio_dev_msix_send(0x778);
	flexio_dev_db_ctx_arm(0x111, 0x222);
	flexio_dev_db_ctx_force_trigger(0x333, 0x444);
	flexio_dev_cc_ring_db(0x8001, 0x12345678, 1, CC_DB_NEXT_ACT_FW);
#endif
	flexio_dev_cc_ring_db_low64bit(0x0123456789abcdef);
	flexio_dev_cc_ring_db_high64bit(0xfedcba9876543210);
	seen[0] = flexio_dev_read_db_value(0x10);
#ifdef OLD_FORMS
	return failed;
#else
	return 0;
#endif
}

RPC uint64_t error_number(void)
{
	struct flexio_dev_thread_ctx *dtctx;

	flexio_dev_get_thread_ctx(&dtctx);
	return flexio_dev_get_and_rst_errno(dtctx);
}

/* ---- byte order ---- */

static const uint32_t constant = cpu_to_be32(0x01020304);

RPC uint64_t byte_order(void)
{
	volatile uint64_t v = 0x0102030405060708;
	uint64_t ok = 0;

	ok |= (uint64_t)(be16_to_cpu((uint16_t)v) == 0x0807 && cpu_to_be16((uint16_t)v) == 0x0807);
	ok |= (uint64_t)(be32_to_cpu((uint32_t)v) == 0x08070605 && constant == 0x04030201) << 1;
	ok |= (uint64_t)(be64_to_cpu(v) == 0x0807060504030201 &&
			 cpu_to_be64(v) == 0x0807060504030201)
	      << 2;
	ok |= (uint64_t)(le16_to_cpu(v) == 0x0708 && cpu_to_le16(v) == 0x0708) << 3;
	ok |= (uint64_t)(le32_to_cpu(v) == 0x05060708 && cpu_to_le32(v) == 0x05060708) << 4;
	ok |= (uint64_t)(le64_to_cpu(v) == v && cpu_to_le64(v) == v) << 5;
	return ok;
}

/* ---- windows, which the stand-in answers as the test says ---- */

RPC uint64_t windows(void)
{
	static char buffer[16];
	flexio_uintptr_t daddr = 0x99;
	uint64_t failed = 0;

#ifdef OLD_FORMS
	struct flexio_dev_thread_ctx *w;

	flexio_dev_get_thread_ctx(&w);
#else
	enum flexio_window_entity w = FLEXIO_DEV_WINDOW_ENTITY_1;
#endif
	failed |= (uint64_t)flexio_dev_window_config(w, 5, 0x600) << 0;
	failed |= (uint64_t)flexio_dev_window_mkey_config(w, 0x601) << 1;
	failed |= (uint64_t)flexio_dev_window_ptr_acquire(w, 0x7000, &daddr) << 2;
	failed |= (uint64_t)flexio_dev_window_copy_from_host(w, buffer, 0x7000, 16) << 3;
	failed |= (uint64_t)flexio_dev_window_copy_to_host(w, 0x7000, buffer, 16) << 4;
	seen[0] = daddr;
	return failed;
}
