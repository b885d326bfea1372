// SPDX-License-Identifier: MIT
/*
 * Random bytes in the rings and records of mlx4 queues (RC, UC, UD, raw frames, a shared receive queue), and random stores
 * to their doorbell page: whatever a program does that drives its queues itself, the card never crashes and can be reset.
 *
 *	byte 0        which queue pair, and which fields are mended to be valid
 *	byte 1        receive record
 *	byte 2        number of doorbell stores at the end
 *	byte 3        consumer index of the CQ, where it is to lie
 *	64 bytes each receive WQEs as many as byte 1 says, up to the ring's size, then send blocks
 *	8 bytes each  doorbell stores: offset, size, value
 *
 * Mending matters: with random owner bits, sizes and keys every request would stop at the first check.
 */
#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx4dv.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	HEADER = 4,
	MEMORY = 65536,
	KINDS = 5,
	MEND_OWNER = 8,
	MEND_KEYS = 16,
	MEND_ADDRESSES = 32,
	MEND_SEGMENTS = 64,
	LIE_CQ = 128,
};

struct target {
	enum ibv_qp_type type;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct mlx4dv_qp dv;
	struct mlx4dv_cq dv_cq;
	struct mlx4dv_srq dv_srq;
};

static struct ibv_context *context;
static union ibv_gid gid;
static struct target targets[KINDS];

static void need(int ok)
{
	if (!ok)
		abort();
}

static void open_target(struct target *t, enum ibv_qp_type type, int with_srq)
{
	struct mlx4dv_obj obj = { 0 };
	struct ibv_qp_init_attr init = { .qp_type = type, .cap = { 40, 16, 2, 4, 0 } };

	t->type = type;
	t->pd = ibv_alloc_pd(context);
	t->cq = ibv_create_cq(context, 255, NULL, NULL, 0);
	t->memory = aligned_alloc(4096, MEMORY);
	need(t->pd && t->cq && t->memory);
	memset(t->memory, 0, MEMORY);
	t->mr = ibv_reg_mr(t->pd, t->memory, MEMORY,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (with_srq) {
		t->srq = ibv_create_srq(t->pd, &(struct ibv_srq_init_attr){ .attr = { 15, 3, 0 } });
		need(!!t->srq);
		obj.srq.in = t->srq;
		obj.srq.out = &t->dv_srq;
	}
	init.send_cq = init.recv_cq = t->cq;
	init.srq = t->srq;
	t->qp = ibv_create_qp(t->pd, &init);
	need(t->mr && t->qp);
	obj.qp.in = t->qp;
	obj.qp.out = &t->dv;
	obj.cq.in = t->cq;
	obj.cq.out = &t->dv_cq;
	t->dv_cq.comp_mask = MLX4DV_CQ_MASK_UAR;
	need(!mlx4dv_init_obj(&obj,
			      MLX4DV_OBJ_QP | MLX4DV_OBJ_CQ | (with_srq ? MLX4DV_OBJ_SRQ : 0)));
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "mlx4_0"))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	need(!!context);
	need(!ibv_query_gid(context, 1, 0, &gid));
	open_target(&targets[0], IBV_QPT_RC, 0);
	open_target(&targets[1], IBV_QPT_UC, 0);
	open_target(&targets[2], IBV_QPT_UD, 0);
	open_target(&targets[3], IBV_QPT_RAW_PACKET, 0);
	open_target(&targets[4], IBV_QPT_RC, 1);
}

/* To itself; a receiver that is not ready is an error at once, so that nothing waits for a timer. */
static void connect_self(struct target *t)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int rc = t->type == IBV_QPT_RC, connected = rc || t->type == IBV_QPT_UC;
	int raw = t->type == IBV_QPT_RAW_PACKET;

	need(!ibv_modify_qp(t->qp, &attr, IBV_QP_STATE));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT,
				     .port_num = 1,
				     .qkey = 1,
				     .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = t->qp->qp_num,
				     .max_rd_atomic = 4,
				     .max_dest_rd_atomic = 4,
				     .timeout = 8,
				     .retry_cnt = 1 };
	if (rc)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = gid;
	attr.ah_attr.port_num = 1;
	need(!ibv_modify_qp(t->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PORT | (raw ? 0 : IBV_QP_PKEY_INDEX) |
				    (connected ? IBV_QP_ACCESS_FLAGS
				     : raw     ? 0
					       : IBV_QP_QKEY)));
	attr.qp_state = IBV_QPS_RTR;
	need(!ibv_modify_qp(
		t->qp, &attr,
		IBV_QP_STATE |
			(connected ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
				   : 0) |
			(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	attr.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(t->qp, &attr,
			    IBV_QP_STATE | (raw ? 0 : IBV_QP_SQ_PSN) |
				    (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						     IBV_QP_MAX_QP_RD_ATOMIC
					: 0)));
}

/* --- mending --------------------------------------------------------------------------------------- */

static void mend_data(const struct target *t, struct mlx4_wqe_data_seg *seg, uint8_t how)
{
	if (how & MEND_KEYS)
		seg->lkey = htobe32(t->mr->lkey);
	if (how & MEND_ADDRESSES) {
		seg->addr = htobe64((uintptr_t)t->memory + be64toh(seg->addr) % MEMORY);
		seg->byte_count &= htobe32(0x80000fff);
	}
}

static void mend_block(const struct target *t, uint8_t *block, uint8_t how)
{
	struct mlx4_wqe_ctrl_seg *ctrl = (void *)block;

	if (how & MEND_OWNER)
		ctrl->owner_opcode &= htobe32(0x1f);
	for (int unit = 1; unit < 4; unit++) {
		struct mlx4_wqe_raddr_seg *remote = (void *)(block + unit * 16);

		if (unit == 1 && (how & MEND_SEGMENTS)) {
			remote->rkey = htobe32(t->mr->rkey);
			remote->raddr =
				htobe64((uintptr_t)t->memory + be64toh(remote->raddr) % MEMORY);
		} else {
			mend_data(t, (void *)remote, how);
		}
	}
	if (t->type == IBV_QPT_UD && (how & MEND_SEGMENTS)) {
		struct mlx4_wqe_datagram_seg *to = (void *)(block + 16);

		to->dqpn = htobe32(t->qp->qp_num);
		to->qkey = htobe32(1);
		to->av.gid_index = 0;
		memcpy(to->av.dgid, &gid, sizeof(gid));
	}
}

/* --- input ------------------------------------------------------------------------------------------- */

/* The next n bytes of input, padded with zeroes at its end. */
static void take(const uint8_t **data, size_t *size, void *to, size_t n)
{
	size_t have = *size < n ? *size : n;

	memset(to, 0, n);
	memcpy(to, *data, have);
	*data += have;
	*size -= have;
}

static void fill_receives(struct target *t, const uint8_t **data, size_t *size, uint8_t how,
			  unsigned int count)
{
	char *ring = t->srq ? t->dv_srq.buf.buf : (char *)t->dv.buf.buf + t->dv.rq.offset;
	uint32_t entries = t->srq ? 16 : t->dv.rq.wqe_cnt;
	uint8_t block[64];

	for (unsigned int i = 0; i < count && *size; i++) {
		take(data, size, block, sizeof(block));
		for (int unit = t->srq ? 1 : 0; unit < 4; unit++)
			mend_data(t, (void *)(block + unit * 16), how);
		memcpy(ring + (i % entries) * 64, block, 64);
	}
}

/* Any store to any place of the page; every second one rings the queue itself. */
static void store(struct target *t, const uint8_t word[8])
{
	char *page = t->dv_cq.cq_uar;
	uint64_t value;

	memcpy(&value, word, 8);
	if (word[0] & 1) {
		*(volatile uint32_t *)t->dv.sdb = t->dv.doorbell_qpn;
		return;
	}
	switch (word[0] >> 1 & 3) {
	case 0:
		*(volatile uint8_t *)(page + value % 64) = word[7];
		break;
	case 1:
		*(volatile uint32_t *)(page + value % 60) = (uint32_t)(value >> 32);
		break;
	case 2:
		*(volatile uint64_t *)(page + 0x20) =
			htobe64((value & 0xff00000000000000) | (uint64_t)t->dv_cq.cqn << 32 |
				(value & 0xffff));
		break;
	default:
		memcpy(page + value % 48, word, 8);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t header[HEADER], block[64], word[8];
	struct target *t;
	struct ibv_wc wc[16];
	uint32_t blocks;
	char *sq;

	if (!context)
		open_all();
	take(&data, &size, header, HEADER);
	t = &targets[(header[0] & 7) % KINDS];
	connect_self(t);
	fill_receives(t, &data, &size, header[0], header[1] % 17);
	if (t->srq)
		*t->dv_srq.db = htobe32(header[1]);
	else
		*t->dv.rdb = htobe32(header[1]);
	sq = (char *)t->dv.buf.buf + t->dv.sq.offset;
	blocks = t->dv.sq.wqe_cnt << (t->dv.sq.wqe_shift - 6);
	for (uint32_t i = 0; i < blocks && size > 8u * (header[2] % 16); i++) {
		take(&data, &size, block, sizeof(block));
		mend_block(t, block, header[0]);
		memcpy(sq + i * 64, block, 64);
	}
	*(volatile uint32_t *)t->dv.sdb = t->dv.doorbell_qpn;
	if (header[0] & LIE_CQ)
		*t->dv_cq.set_ci_db = htobe32(header[3] * 0x10101u);
	for (unsigned int i = 0; i < header[2] % 16u; i++) {
		take(&data, &size, word, sizeof(word));
		store(t, word);
	}
	*(volatile uint32_t *)t->dv.sdb = t->dv.doorbell_qpn;
	while (ibv_poll_cq(t->cq, 16, wc) > 0)
		;
	return 0;
}
