// SPDX-License-Identifier: MIT
/* The helpers of direct.h: what a direct client does between the program and the rings, by the public header alone. */
#include "direct.h"

#include <endian.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { BLOCK = 64, SEG = 16 };

void direct_cq_open(struct direct_cq *cq, struct ibv_cq *from)
{
	struct mlx5dv_obj obj = { .cq = { .in = from, .out = &cq->dv } };

	memset(cq, 0, sizeof(*cq));
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), 0);
}

void direct_open(struct direct *d, struct node *node)
{
	struct mlx5dv_obj obj = { .qp = { .in = node->qp, .out = &d->dv } };

	memset(d, 0, sizeof(*d));
	d->node = node;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	if (!d->dv.bf.reg)
		test_skip("stores to doorbell pages cannot be seen on this processor");
	direct_cq_open(&d->send, node->send_cq);
	direct_cq_open(&d->recv, node->recv_cq);
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
	wqe->size = sizeof(struct mlx5_wqe_ctrl_seg);
	wqe->opcode = opcode;
	wqe->flags = flags;
	wqe->imm = imm;
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

void wqe_put_data(struct wqe *wqe, uint64_t addr, uint32_t len, uint32_t lkey)
{
	mlx5dv_set_data_seg(wqe_put(wqe, SEG), len, lkey, addr);
}

void wqe_put_inline(struct wqe *wqe, const void *data, uint32_t len)
{
	struct mlx5_wqe_inl_data_seg *seg =
		wqe_put(wqe, (uint32_t)(sizeof(*seg) + len + SEG - 1) / SEG * SEG);

	seg->byte_count = htobe32(len | MLX5_INLINE_SEG);
	memcpy(seg + 1, data, len);
}

void wqe_put_av(struct wqe *wqe, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct mlx5_wqe_datagram_seg *seg = wqe_put(wqe, sizeof(*seg));
	struct mlx5dv_ah dv;
	struct mlx5dv_obj obj = { .ah = { .in = ah, .out = &dv } };

	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH), 0);
	seg->av = *dv.av;
	seg->av.key.qkey.qkey = htobe32(qkey);
	seg->av.dqp_dct = htobe32(qpn | MLX5_EXTENDED_UD_AV);
}

static char *block(struct direct *d, uint32_t index)
{
	return (char *)d->dv.sq.buf + (size_t)(index & (d->dv.sq.wqe_cnt - 1)) * d->dv.sq.stride;
}

void direct_post(struct direct *d, struct wqe *wqe)
{
	uint32_t blocks = (wqe->size + BLOCK - 1) / BLOCK;

	mlx5dv_set_ctrl_seg((void *)wqe->bytes, (uint16_t)d->pi, wqe->opcode, wqe->opmod,
			    d->node->qp->qp_num, wqe->flags, (uint8_t)(wqe->size / SEG), 0,
			    wqe->imm);
	for (uint32_t i = 0; i < blocks; i++)
		memcpy(block(d, d->pi + i), wqe->bytes + i * BLOCK, BLOCK);
	d->last = d->pi;
	d->pi += blocks;
	__atomic_store_n(&d->dv.dbrec[MLX5_SND_DBR], htobe32(d->pi & 0xffff), __ATOMIC_RELEASE);
}

/* --- doorbells ----------------------------------------------------------------------------------- */

static char *reg(struct direct *d)
{
	return (char *)d->dv.bf.reg + (d->rings++ & 1 ? d->dv.bf.size : 0);
}

void direct_ring(struct direct *d)
{
	*(volatile uint64_t *)reg(d) = *(uint64_t *)block(d, d->last);
}

#ifdef __x86_64__

static void flame_1(char *to, const char *from)
{
	for (int i = 0; i < BLOCK; i++)
		*(volatile char *)(to + i) = from[i];
}

static void flame_down(char *to, const char *from)
{
	for (int i = BLOCK - 1; i >= 0; i--)
		*(volatile char *)(to + i) = from[i];
}

static void flame_2(char *to, const char *from)
{
	for (int i = 0; i < BLOCK; i += 2)
		*(volatile uint16_t *)(to + i) = *(const uint16_t *)(from + i);
}

static void flame_4(char *to, const char *from)
{
	for (int i = 0; i < BLOCK; i += 4)
		*(volatile uint32_t *)(to + i) = *(const uint32_t *)(from + i);
}

static void flame_8(char *to, const char *from)
{
	for (int i = 0; i < BLOCK; i += 8)
		*(volatile uint64_t *)(to + i) = *(const uint64_t *)(from + i);
}

static void flame_16(char *to, const char *from)
{
	for (int i = 0; i < BLOCK; i += 16)
		_mm_stream_si128((__m128i *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
}

__attribute__((target("avx"))) static void flame_32(char *to, const char *from)
{
	for (int i = 0; i < BLOCK; i += 32)
		_mm256_stream_si256((__m256i *)(to + i),
				    _mm256_loadu_si256((const __m256i *)(from + i)));
}

__attribute__((target("avx512f"))) static void flame_64(char *to, const char *from)
{
	_mm512_stream_si512((__m512i *)to, _mm512_loadu_si512(from));
}

static void flame_string(char *to, const char *from)
{
	size_t n = BLOCK / 8;

	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static void (*flame_function(enum flame how))(char *to, const char *from)
{
	switch (how) {
	case FLAME_1:
		return flame_1;
	case FLAME_DOWN:
		return flame_down;
	case FLAME_2:
		return flame_2;
	case FLAME_4:
		return flame_4;
	case FLAME_8:
		return flame_8;
	case FLAME_16:
		return flame_16;
	case FLAME_32:
		return __builtin_cpu_supports("avx") ? flame_32 : NULL;
	case FLAME_64:
		return __builtin_cpu_supports("avx512f") ? flame_64 : NULL;
	default:
		return flame_string;
	}
}

#else

static void (*flame_function(enum flame how))(char *to, const char *from)
{
	return NULL;
}

#endif

bool direct_flame(struct direct *d, enum flame how)
{
	void (*copy)(char *to, const char *from) = flame_function(how);
	char *to;

	if (!copy)
		return false;
	to = reg(d);
	/* As drivers do: whole blocks, the first of them with the control segment. */
	for (uint32_t at = d->last; at != d->pi; at++, to += BLOCK)
		copy(to, block(d, at));
	return true;
}

void direct_arm(struct direct_cq *cq, bool solicited)
{
	uint32_t word = (cq->sn++ & 3) << 28 |
			(solicited ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT) |
			(cq->ci & 0xffffff);

	__atomic_store_n(&cq->dv.dbrec[1], htobe32(word), __ATOMIC_RELEASE);
	*(volatile uint64_t *)((char *)cq->dv.cq_uar + MLX5_CQ_DOORBELL) =
		htobe64((uint64_t)word << 32 | cq->dv.cqn);
}

/* --- receives and completions -------------------------------------------------------------------- */

void direct_recv(struct direct *d, size_t offset, uint32_t len)
{
	struct mlx5_wqe_data_seg *seg =
		(void *)((char *)d->dv.rq.buf +
			 (size_t)(d->rq_head & (d->dv.rq.wqe_cnt - 1)) * d->dv.rq.stride);

	mlx5dv_set_data_seg(seg, len, d->node->mr->lkey, (uintptr_t)d->node->buf + offset);
	if (d->dv.rq.stride > SEG)
		mlx5dv_set_data_seg(seg + 1, 0, MLX5_INVALID_LKEY, 0);
	d->rq_head++;
	__atomic_store_n(&d->dv.dbrec[MLX5_RCV_DBR], htobe32(d->rq_head & 0xffff),
			 __ATOMIC_RELEASE);
}

bool direct_poll(struct direct_cq *cq, struct mlx5_cqe64 *cqe)
{
	/* In an entry of 128 bytes the CQE is the second half. */
	struct mlx5_cqe64 *at = (void *)((char *)cq->dv.buf +
					 (size_t)(cq->ci & (cq->dv.cqe_cnt - 1)) * cq->dv.cqe_size +
					 cq->dv.cqe_size - sizeof(*at));
	uint8_t op_own = __atomic_load_n(&at->op_own, __ATOMIC_ACQUIRE);

	if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != !!(cq->ci & cq->dv.cqe_cnt))
		return false;
	*cqe = *at;
	cq->ci++;
	__atomic_store_n(&cq->dv.dbrec[0], htobe32(cq->ci & 0xffffff), __ATOMIC_RELEASE);
	return true;
}

void direct_wait(struct direct_cq *cq, struct mlx5_cqe64 *cqe)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	while (!direct_poll(cq, cqe)) {
		check(now_us() < end, "no CQE");
		sched_yield();
	}
}

void direct_expect(struct direct_cq *cq, uint32_t qpn, uint8_t opcode, struct mlx5_cqe64 *cqe)
{
	direct_wait(cq, cqe);
	check_eq(mlx5dv_get_cqe_opcode(cqe), opcode);
	check_eq(be32toh(cqe->sop_drop_qpn) & 0xffffff, qpn);
}

void direct_expect_error(struct direct_cq *cq, uint32_t qpn, uint8_t opcode, uint8_t syndrome)
{
	struct mlx5_cqe64 cqe;

	direct_expect(cq, qpn, opcode, &cqe);
	check_eq(((struct mlx5_err_cqe *)&cqe)->syndrome, syndrome);
}
