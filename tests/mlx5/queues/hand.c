// SPDX-License-Identifier: MIT
/* The helpers of hand.h. */
#include "hand.h"

#include <endian.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	PAGE = 4096,
	BLOCK = 64,
	SEG = 16,
	QPC = 0xc0,
	PATH = QPC + 0xc0,
	CTX = 0x100,
	WQ = CTX + 0x180
};
enum { LOG_SQ = 6, LOG_RQ = 6, CQ_BELL = 0x20 };
enum { CQ_SET_CI = 0, CQ_ARM = 1 }; /* words of its record */

/* --- commands ------------------------------------------------------------------------------------ */

void put_bits(void *to, uint32_t bit, uint32_t len, uint64_t value)
{
	uint8_t *bytes = to;

	for (uint32_t i = 0; i < len; i++) {
		uint32_t at = bit + len - 1 - i;
		uint8_t mask = (uint8_t)(0x80 >> at % 8);

		bytes[at / 8] &= (uint8_t)~mask;
		if (value >> i & 1)
			bytes[at / 8] |= mask;
	}
}

uint64_t get_bits(const void *from, uint32_t bit, uint32_t len)
{
	const uint8_t *bytes = from;
	uint64_t value = 0;

	for (uint32_t at = bit; at < bit + len; at++)
		value = value << 1 | (bytes[at / 8] >> (7 - at % 8) & 1);
	return value;
}

void command_begin(struct command *c, uint16_t opcode)
{
	memset(c, 0, sizeof(*c));
	put_bits(c->in, 0, 16, opcode);
	memset(c->out, 0xa5, sizeof(c->out));
}

struct mlx5dv_devx_obj *command_create(struct hand *hand, struct command *c, size_t inlen,
				       uint32_t *number)
{
	struct mlx5dv_devx_obj *obj = mlx5dv_devx_obj_create(hand->ctx, c->in, inlen, c->out, 16);

	check(obj != NULL, "command %#x: status %#x", (unsigned int)get_bits(c->in, 0, 16),
	      c->out[0]);
	check_eq(c->out[0], 0);
	if (number)
		*number = (uint32_t)get_bits(c->out, 0x48, 24);
	return obj;
}

void command_refused(struct hand *hand, struct command *c, size_t inlen, uint8_t status)
{
	check(!mlx5dv_devx_obj_create(hand->ctx, c->in, inlen, c->out, 16), "it was made");
	check_eq(errno, EREMOTEIO);
	check_eq(c->out[0], status);
}

static uint8_t status_of(int err, const struct command *c)
{
	check(!err || err == EREMOTEIO, "errno %d", err);
	check_eq(!err, !c->out[0]);
	return c->out[0];
}

uint8_t command_modify(struct mlx5dv_devx_obj *obj, uint32_t number, struct command *c,
		       size_t inlen)
{
	put_bits(c->in, 0x48, 24, number);
	return status_of(mlx5dv_devx_obj_modify(obj, c->in, inlen, c->out, 16), c);
}

uint8_t command_query(struct mlx5dv_devx_obj *obj, uint32_t number, uint16_t opcode,
		      struct command *c, size_t outlen)
{
	command_begin(c, opcode);
	put_bits(c->in, 0x48, 24, number);
	return status_of(mlx5dv_devx_obj_query(obj, c->in, 16, c->out, outlen), c);
}

void object_end(struct mlx5dv_devx_obj **obj)
{
	if (*obj)
		check_eq(mlx5dv_devx_obj_destroy(*obj), 0);
	*obj = NULL;
}

/* --- device and memory --------------------------------------------------------------------------- */

void hand_open(struct hand *hand)
{
	struct mlx5dv_pd dv;
	struct mlx5dv_obj obj = { .pd = { .out = &dv } };

	memset(hand, 0, sizeof(*hand));
	hand->ctx = device_open();
	hand->uar = mlx5dv_devx_alloc_uar(hand->ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	if (!hand->uar && errno == EOPNOTSUPP)
		test_skip("stores to doorbell pages cannot be seen on this processor");
	check(hand->uar != NULL);
	hand->pd = ibv_alloc_pd(hand->ctx);
	obj.pd.in = hand->pd;
	check(hand->pd && !mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD));
	hand->pdn = dv.pdn;
	check_eq(mlx5dv_devx_query_eqn(hand->ctx, 0, &hand->eqn), 0);
	hand->mem =
		mmap(NULL, HAND_MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(hand->mem != MAP_FAILED);
	hand->umem = mlx5dv_devx_umem_reg(hand->ctx, hand->mem, HAND_MEM, IBV_ACCESS_LOCAL_WRITE);
	hand->buf = kind_map(HAND_BUF, PROT_READ | PROT_WRITE);
	check(hand->umem && hand->buf);
	hand->mr = ibv_reg_mr(hand->pd, hand->buf, HAND_BUF, ACCESS_ALL);
	check(hand->mr != NULL);
	check_eq(ibv_query_gid(hand->ctx, 1, TEST_GID_INDEX, &hand->gid), 0);
}

void hand_close(struct hand *hand)
{
	check_eq(ibv_dereg_mr(hand->mr), 0);
	check_eq(mlx5dv_devx_umem_dereg(hand->umem), 0);
	mlx5dv_devx_free_uar(hand->uar);
	check_eq(ibv_dealloc_pd(hand->pd), 0);
	check_eq(ibv_close_device(hand->ctx), 0);
	munmap(hand->mem, HAND_MEM);
	kind_unmap(hand->buf, HAND_BUF);
}

void *hand_take(struct hand *hand, size_t size, uint64_t *offset)
{
	*offset = hand->used;
	hand->used += (size + PAGE - 1) / PAGE * PAGE;
	check(hand->used <= HAND_MEM, "no memory for rings is left");
	memset(hand->mem + *offset, 0, size);
	return hand->mem + *offset;
}

/* --- completion queues --------------------------------------------------------------------------- */

void hand_cq_command(struct hand *hand, struct hand_cq *cq, uint32_t log_size, struct command *c)
{
	uint64_t ring, record;

	memset(cq, 0, sizeof(*cq));
	cq->hand = hand;
	cq->count = 1u << log_size;
	cq->size = 64;
	cq->buf = hand_take(hand, (size_t)cq->count * 128, &ring); /* a test may want larger ones */
	cq->dbr = hand_take(hand, 8, &record);
	command_begin(c, 0x400);
	put_bits(c->in, 0x280, 64, ring);
	put_bits(c->in, 0x2c0, 32, hand->umem->umem_id);
	put_bits(c->in, 0x2e0, 1, 1);
	put_bits(c->in, 0x80 + 0x6, 1, 1);
	put_bits(c->in, 0x80 + 0x20, 32, hand->umem->umem_id);
	put_bits(c->in, 0x80 + 0x63, 5, log_size);
	put_bits(c->in, 0x80 + 0x68, 24, hand->uar->page_id);
	put_bits(c->in, 0x80 + 0xb8, 8, hand->eqn);
	put_bits(c->in, 0x80 + 0x1c0, 64, record);
}

void hand_cq_create(struct hand_cq *cq, struct command *c)
{
	if (get_bits(c->in, 0x80 + 0x8, 3))
		cq->size = 128;
	for (uint32_t i = 0; i < cq->count; i++)
		cq->buf[(i + 1) * cq->size - 1] = MLX5_CQE_INVALID << 4 | 1;
	cq->obj = command_create(cq->hand, c, 272, &cq->number);
}

void hand_cq(struct hand *hand, struct hand_cq *cq, uint32_t log_size)
{
	struct command c;

	hand_cq_command(hand, cq, log_size, &c);
	hand_cq_create(cq, &c);
}

void hand_cq_end(struct hand_cq *cq)
{
	object_end(&cq->obj);
}

/* --- queue pairs --------------------------------------------------------------------------------- */

void hand_qp_command(struct hand *hand, struct hand_qp *qp, enum ibv_qp_type type,
		     struct hand_cq *send, struct hand_cq *recv, uint32_t log_sq, uint32_t log_rq,
		     struct command *c)
{
	uint64_t rings, record;

	memset(qp, 0, sizeof(*qp));
	qp->hand = hand;
	qp->send = send;
	qp->recv = recv;
	qp->sq_cnt = 1u << log_sq;
	qp->rq_cnt = 1u << log_rq;
	qp->rq_shift = 4;
	qp->rq = hand_take(hand, ((size_t)BLOCK << log_sq) + ((size_t)SEG << log_rq), &rings);
	qp->sq = qp->rq + ((size_t)SEG << log_rq);
	qp->dbr = hand_take(hand, 8, &record);
	command_begin(c, 0x500);
	put_bits(c->in, QPC + 0x8, 8, type == IBV_QPT_RC ? 0 : type == IBV_QPT_UC ? 1 : 2);
	put_bits(c->in, QPC + 0x13, 2, 3);
	put_bits(c->in, QPC + 0x28, 24, hand->pdn);
	put_bits(c->in, QPC + 0x49, 4, log_rq);
	put_bits(c->in, QPC + 0x51, 4, log_sq);
	put_bits(c->in, QPC + 0x68, 24, hand->uar->page_id);
	put_bits(c->in, QPC + 0x88, 24, 0xabcdef); /* user_index */
	put_bits(c->in, QPC + 0x3e8, 24, send->number);
	put_bits(c->in, QPC + 0x4e8, 24, recv->number);
	put_bits(c->in, QPC + 0x500, 64, record);
	put_bits(c->in, QPC + 0x683, 1, 1);
	put_bits(c->in, QPC + 0x720, 32, hand->umem->umem_id);
	put_bits(c->in, 0x800, 64, rings);
	put_bits(c->in, 0x840, 32, hand->umem->umem_id);
	put_bits(c->in, 0x860, 1, 1);
}

void hand_qp_create(struct hand_qp *qp, struct command *c)
{
	qp->obj = command_create(qp->hand, c, 272, &qp->number);
}

void hand_qp(struct hand *hand, struct hand_qp *qp, enum ibv_qp_type type, struct hand_cq *send,
	     struct hand_cq *recv)
{
	struct command c;

	hand_qp_command(hand, qp, type, send, recv, LOG_SQ, LOG_RQ, &c);
	hand_qp_create(qp, &c);
}

void hand_qp_end(struct hand_qp *qp)
{
	object_end(&qp->obj);
}

uint8_t hand_to_init(struct hand_qp *qp)
{
	struct command c;

	command_begin(&c, 0x502);
	put_bits(c.in, QPC + 0x13, 2, 3);
	put_bits(c.in, QPC + 0x490, 1, 1); /* rre, rwe, rae */
	put_bits(c.in, QPC + 0x491, 1, 1);
	put_bits(c.in, QPC + 0x492, 1, 1);
	put_bits(c.in, QPC + 0x540, 32, HAND_QKEY);
	put_bits(c.in, PATH + 0x128, 8, 1);
	return command_modify(qp->obj, qp->number, &c, 272);
}

/* As clients do on Ethernet: neither grh nor rmac is set. */
uint8_t hand_to_rtr(struct hand_qp *qp, const struct hand_address *peer)
{
	struct command c;

	command_begin(&c, 0x503);
	put_bits(c.in, QPC + 0x40, 3, IBV_MTU_4096);
	put_bits(c.in, QPC + 0x43, 5, 30);
	put_bits(c.in, QPC + 0x488, 3, 4);
	put_bits(c.in, QPC + 0x4a3, 5, 12);
	if (peer) {
		put_bits(c.in, QPC + 0x4a8, 24, peer->psn);
		put_bits(c.in, QPC + 0xa8, 24, peer->qpn);
		memcpy(c.in + (PATH + 0x80) / 8, &peer->gid, sizeof(peer->gid));
	}
	put_bits(c.in, PATH + 0x48, 8, TEST_GID_INDEX);
	put_bits(c.in, PATH + 0x58, 8, 64);
	put_bits(c.in, PATH + 0x128, 8, 1);
	return command_modify(qp->obj, qp->number, &c, 272);
}

uint8_t hand_to_rts(struct hand_qp *qp)
{
	struct command c;

	command_begin(&c, 0x504);
	put_bits(c.in, PATH + 0x40, 5, 14);
	put_bits(c.in, QPC + 0x388, 3, 4);
	put_bits(c.in, QPC + 0x38d, 3, 7);
	put_bits(c.in, QPC + 0x390, 3, 7);
	put_bits(c.in, QPC + 0x3c8, 24, HAND_PSN);
	return command_modify(qp->obj, qp->number, &c, 272);
}

void hand_connect(struct hand_qp *qp, const struct hand_address *peer)
{
	check_eq(hand_to_init(qp), 0);
	check_eq(hand_to_rtr(qp, peer), 0);
	check_eq(hand_to_rts(qp), 0);
}

uint8_t hand_qp_simple(struct hand_qp *qp, uint16_t opcode)
{
	struct command c;

	command_begin(&c, opcode);
	return command_modify(qp->obj, qp->number, &c, 272);
}

uint8_t hand_qp_state(struct hand_qp *qp)
{
	struct command c;

	check_eq(command_query(qp->obj, qp->number, 0x50b, &c, 272), 0);
	return (uint8_t)get_bits(c.out, QPC, 4);
}

void hand_address(const struct hand_qp *qp, struct hand_address *address)
{
	*address = (struct hand_address){ .qpn = qp->number,
					  .psn = HAND_PSN,
					  .rkey = qp->hand->mr->rkey,
					  .addr = (uintptr_t)qp->hand->buf,
					  .gid = qp->hand->gid };
}

/* --- queues of frames ---------------------------------------------------------------------------- */

static void wq_command(struct hand *hand, struct hand_qp *wq, uint32_t log_stride,
		       uint32_t log_size, struct command *c)
{
	uint64_t ring, record;
	uint8_t *buf = hand_take(hand, (size_t)1 << (log_stride + log_size), &ring);

	wq->hand = hand;
	wq->dbr = hand_take(hand, 8, &record);
	wq->sq = wq->rq = buf;
	put_bits(c->in, CTX + 0x28, 24, 0x123456); /* user_index */
	put_bits(c->in, WQ + 0x0, 4, 1);           /* cyclic */
	put_bits(c->in, WQ + 0x48, 24, hand->pdn);
	put_bits(c->in, WQ + 0x80, 64, record);
	put_bits(c->in, WQ + 0x10c, 4, log_stride);
	put_bits(c->in, WQ + 0x11b, 5, log_size);
	put_bits(c->in, WQ + 0x120, 2, 3);
	put_bits(c->in, WQ + 0x140, 32, hand->umem->umem_id);
	put_bits(c->in, WQ + 0x160, 32, hand->umem->umem_id);
	put_bits(c->in, WQ + 0x180, 64, ring);
}

void hand_sq_command(struct hand *hand, struct hand_qp *sq, struct hand_cq *cq, uint32_t tisn,
		     struct command *c)
{
	memset(sq, 0, sizeof(*sq));
	command_begin(c, 0x904);
	wq_command(hand, sq, 6, LOG_SQ, c);
	sq->send = cq;
	sq->sq_cnt = 1u << LOG_SQ;
	put_bits(c->in, CTX + 0x3, 1, 1); /* flush_in_error_en */
	put_bits(c->in, CTX + 0x4, 1, 1); /* allow_multi_pkt_send_wqe */
	put_bits(c->in, CTX + 0x48, 24, cq->number);
	put_bits(c->in, CTX + 0x100, 16, tisn ? 1 : 0);
	put_bits(c->in, CTX + 0x168, 24, tisn);
	put_bits(c->in, WQ + 0x68, 24, hand->uar->page_id);
}

void hand_rq_command(struct hand *hand, struct hand_qp *rq, struct hand_cq *cq, struct command *c)
{
	memset(rq, 0, sizeof(*rq));
	command_begin(c, 0x908);
	wq_command(hand, rq, 4, LOG_RQ, c);
	rq->recv = cq;
	rq->rq_cnt = 1u << LOG_RQ;
	rq->rq_shift = 4;
	put_bits(c->in, CTX + 0x3, 1, 1); /* vsd */
	put_bits(c->in, CTX + 0xd, 1, 1); /* flush_in_error_en */
	put_bits(c->in, CTX + 0x48, 24, cq->number);
}

void hand_wq_create(struct hand_qp *wq, struct command *c)
{
	wq->obj = command_create(wq->hand, c, 272, &wq->number);
}

uint8_t hand_wq_state(struct hand_qp *wq, uint16_t opcode, enum wq_state from, enum wq_state to)
{
	struct command c;

	command_begin(&c, opcode);
	put_bits(c.in, 0x40, 4, from);
	put_bits(c.in, CTX + 0x8, 4, to);
	return command_modify(wq->obj, wq->number, &c, 272);
}

/* --- send WQEs ----------------------------------------------------------------------------------- */

void *wqe_put(struct wqe *wqe, uint32_t size)
{
	void *at = wqe->bytes + wqe->size;

	check(wqe->size + size <= sizeof(wqe->bytes));
	wqe->size += size;
	return at;
}

void wqe_begin(struct wqe *wqe, uint8_t opcode, uint8_t flags, uint32_t imm)
{
	memset(wqe, 0, sizeof(*wqe));
	wqe->opcode = opcode;
	wqe->flags = flags;
	wqe->imm = imm;
	wqe_put(wqe, sizeof(struct mlx5_wqe_ctrl_seg));
}

void wqe_put_raddr(struct wqe *wqe, uint64_t addr, uint32_t rkey)
{
	struct mlx5_wqe_raddr_seg *seg = wqe_put(wqe, sizeof(*seg));

	seg->raddr = htobe64(addr);
	seg->rkey = htobe32(rkey);
}

void wqe_put_atomic(struct wqe *wqe, uint64_t swap_add, uint64_t compare)
{
	struct mlx5_wqe_atomic_seg *seg = wqe_put(wqe, sizeof(*seg));

	seg->swap_add = htobe64(swap_add);
	seg->compare = htobe64(compare);
}

void wqe_put_data(struct wqe *wqe, const void *addr, uint32_t len, uint32_t lkey)
{
	mlx5dv_set_data_seg(wqe_put(wqe, SEG), len, lkey, (uintptr_t)addr);
}

void wqe_put_inline(struct wqe *wqe, const void *data, uint32_t len)
{
	struct mlx5_wqe_inl_data_seg *seg =
		wqe_put(wqe, (uint32_t)(sizeof(*seg) + len + SEG - 1) / SEG * SEG);

	seg->byte_count = htobe32(MLX5_INLINE_SEG | len);
	memcpy(seg + 1, data, len);
}

void wqe_put_av(struct wqe *wqe, const union ibv_gid *gid, uint32_t qpn, uint32_t qkey)
{
	struct mlx5_wqe_datagram_seg *seg = wqe_put(wqe, sizeof(*seg));

	seg->av.key.qkey.qkey = htobe32(qkey);
	seg->av.dqp_dct = htobe32(qpn | 1u << 31); /* the extended form */
	seg->av.grh_gid_fl = htobe32(1u << 30 | TEST_GID_INDEX << 20);
	seg->av.hop_limit = 64;
	memcpy(seg->av.rgid, gid, sizeof(seg->av.rgid));
}

void hand_post(struct hand_qp *qp, struct wqe *wqe)
{
	uint32_t blocks = (wqe->size + BLOCK - 1) / BLOCK;

	mlx5dv_set_ctrl_seg((void *)wqe->bytes, (uint16_t)qp->sq_head, wqe->opcode, wqe->opmod,
			    qp->number, wqe->flags, (uint8_t)(wqe->size / SEG), 0, wqe->imm);
	for (uint32_t i = 0; i < blocks; i++)
		memcpy(qp->sq + ((qp->sq_head + i) & (qp->sq_cnt - 1)) * BLOCK,
		       wqe->bytes + i * BLOCK, BLOCK);
	qp->sq_head += blocks;
	__atomic_store_n(&qp->dbr[MLX5_SND_DBR], htobe32(qp->sq_head & 0xffff), __ATOMIC_RELEASE);
}

/* The first 8 bytes of the WQE that was posted last would do; what counts is the number in them. */
void hand_ring(struct hand_qp *qp)
{
	uint64_t ctrl = (uint64_t)htobe32(qp->number << 8) << 32;

	*(volatile uint64_t *)qp->hand->uar->reg_addr = ctrl;
}

void hand_send(struct hand_qp *qp, size_t offset, uint32_t len)
{
	struct wqe wqe;

	wqe_begin(&wqe, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_data(&wqe, qp->hand->buf + offset, len, qp->hand->mr->lkey);
	hand_post(qp, &wqe);
	hand_ring(qp);
}

void hand_write(struct hand_qp *qp, size_t offset, uint32_t len, const struct hand_address *to,
		size_t at)
{
	struct wqe wqe;

	wqe_begin(&wqe, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, to->addr + at, to->rkey);
	wqe_put_data(&wqe, qp->hand->buf + offset, len, qp->hand->mr->lkey);
	hand_post(qp, &wqe);
	hand_ring(qp);
}

void hand_recv(struct hand_qp *qp, size_t offset, uint32_t len)
{
	uint8_t *wqe = qp->rq + ((size_t)(qp->rq_head & (qp->rq_cnt - 1)) << qp->rq_shift);

	mlx5dv_set_data_seg((void *)wqe, len, qp->hand->mr->lkey,
			    (uintptr_t)qp->hand->buf + offset);
	qp->rq_head++;
	__atomic_store_n(&qp->dbr[MLX5_RCV_DBR], htobe32(qp->rq_head & 0xffff), __ATOMIC_RELEASE);
}

/* --- completions --------------------------------------------------------------------------------- */

bool hand_poll(struct hand_cq *cq, struct mlx5_cqe64 *out)
{
	uint8_t *entry = cq->buf + (size_t)(cq->ci & (cq->count - 1)) * cq->size;
	struct mlx5_cqe64 *cqe = (void *)(entry + cq->size - sizeof(*cqe));
	uint8_t last = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

	if (last >> 4 == MLX5_CQE_INVALID || (last & 1) != !!(cq->ci & cq->count))
		return false;
	*out = *cqe;
	cq->ci++;
	__atomic_store_n(&cq->dbr[CQ_SET_CI], htobe32(cq->ci & 0xffffff), __ATOMIC_RELEASE);
	return true;
}

void hand_wait(struct hand_cq *cq, struct mlx5_cqe64 *cqe)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	/* A core for the others now and then: the card's own thread may need it to make the CQE. */
	for (unsigned int i = 1; !hand_poll(cq, cqe); i++) {
		if (i % 256 == 0)
			sched_yield();
		check(i % 1024 || now_us() < end, "no CQE");
	}
}

void hand_expect(struct hand_cq *cq, const struct hand_qp *qp, uint8_t opcode,
		 struct mlx5_cqe64 *cqe)
{
	hand_wait(cq, cqe);
	check(cqe->op_own >> 4 == opcode, "opcode %u, not %u; syndrome %#x", cqe->op_own >> 4,
	      opcode, ((struct mlx5_err_cqe *)cqe)->syndrome);
	if (!cqe->hds_ip_ext) /* a frame's has the flow tag there */
		check_eq(be32toh(cqe->sop_drop_qpn) & 0xffffff, qp->number);
}

void hand_expect_error(struct hand_cq *cq, const struct hand_qp *qp, uint8_t opcode,
		       uint8_t syndrome)
{
	struct mlx5_cqe64 cqe;

	hand_wait(cq, &cqe);
	check_eq(cqe.op_own >> 4, opcode);
	check_eq(be32toh(cqe.sop_drop_qpn) & 0xffffff, qp->number);
	check_eq(((struct mlx5_err_cqe *)&cqe)->syndrome, syndrome);
}

void hand_arm(struct hand_cq *cq, bool solicited)
{
	uint32_t word = (cq->sn & 3) << 28 |
			(solicited ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT) |
			(cq->ci & 0xffffff);

	cq->sn++;
	__atomic_store_n(&cq->dbr[CQ_ARM], htobe32(word), __ATOMIC_RELEASE);
	*(volatile uint64_t *)((char *)cq->hand->uar->base_addr + CQ_BELL) =
		htobe64((uint64_t)word << 32 | cq->number);
}
