// SPDX-License-Identifier: MIT
/*
 * The DC transport by command, driven by hand, between two processes: one makes a DCT over an RMP whose WQEs begin with a
 * link, the other a DCI that names it in each WQE. Every operation, a wrong key, what is refused.
 */
#include "hand.h"

#include <endian.h>
#include <string.h>
#include <unistd.h>

enum { QPC = 0xc0, DCTC = 0x80, CTX = 0x100, WQ = CTX + 0x180, LOG = 4, STRIDE = 5 };
enum { BAD_PARAM = 3, BAD_RES = 5, DCT_BYTES = 80 };
#define KEY 0x1122334455667788ull

static struct hand hand;
static struct hand_cq cq;

/* --- the target ---------------------------------------------------------------------------------- */

static uint8_t *receives;
static __be32 *record;

static struct mlx5dv_devx_obj *make_rmp(uint32_t *number)
{
	uint64_t ring, at;
	struct command c;

	receives = hand_take(&hand, 1 << (LOG + STRIDE), &ring);
	record = hand_take(&hand, 8, &at);
	command_begin(&c, 0x90c);
	put_bits(c.in, CTX + 0x8, 4, 1);
	put_bits(c.in, WQ, 4, 1);
	put_bits(c.in, WQ + 0x48, 24, hand.pdn);
	put_bits(c.in, WQ + 0x80, 64, at);
	put_bits(c.in, WQ + 0x10c, 4, STRIDE);
	put_bits(c.in, WQ + 0x11b, 5, LOG);
	put_bits(c.in, WQ + 0x140, 32, hand.umem->umem_id);
	put_bits(c.in, WQ + 0x160, 32, hand.umem->umem_id);
	put_bits(c.in, WQ + 0x180, 64, ring);
	return command_create(&hand, &c, 272, number);
}

/* The first byte of the link is left as it is: nobody looks at it. */
static void post_receive(uint32_t i, size_t offset, uint32_t len)
{
	uint8_t *wqe = receives + (i % (1u << LOG) << STRIDE);

	memset(wqe, 0xee, 16);
	mlx5dv_set_data_seg((void *)(wqe + 16), len, hand.mr->lkey, (uintptr_t)hand.buf + offset);
	__atomic_store_n(record, htobe32((i + 1) & 0xffff), __ATOMIC_RELEASE);
}

static void dct_command(struct command *c, uint32_t srqn)
{
	command_begin(c, 0x710);
	put_bits(c->in, DCTC + 0x28, 24, 0x123456); /* user_index */
	put_bits(c->in, DCTC + 0x48, 24, cq.number);
	put_bits(c->in, DCTC + 0x6c, 3, 7); /* rre, rwe, rae */
	put_bits(c->in, DCTC + 0x93, 5, 12);
	put_bits(c->in, DCTC + 0xa8, 24, srqn);
	put_bits(c->in, DCTC + 0xc8, 24, hand.pdn);
	put_bits(c->in, DCTC + 0x100, 64, KEY);
	put_bits(c->in, DCTC + 0x145, 3, IBV_MTU_4096);
	put_bits(c->in, DCTC + 0x148, 8, 1);
	put_bits(c->in, DCTC + 0x168, 8, TEST_GID_INDEX);
	put_bits(c->in, DCTC + 0x178, 8, 64);
}

static void refusals(uint32_t rmpn)
{
	struct command c;

	dct_command(&c, 0xfffff0);
	command_refused(&hand, &c, DCT_BYTES, BAD_RES);
	dct_command(&c, rmpn);
	put_bits(c.in, DCTC + 0x48, 24, 0xfffff0);
	command_refused(&hand, &c, DCT_BYTES, BAD_RES);
	dct_command(&c, rmpn);
	put_bits(c.in, DCTC + 0xc8, 24, 0xfffff0);
	command_refused(&hand, &c, DCT_BYTES, BAD_RES);
	dct_command(&c, rmpn);
	put_bits(c.in, DCTC + 0x168, 8, 255);
	command_refused(&hand, &c, DCT_BYTES, BAD_PARAM);
	dct_command(&c, rmpn);
	put_bits(c.in, DCTC + 0x145, 3, 7);
	command_refused(&hand, &c, DCT_BYTES, BAD_PARAM);
	dct_command(&c, rmpn);
	put_bits(c.in, DCTC + 0x71, 1, 1); /* rlky */
	command_refused(&hand, &c, DCT_BYTES, BAD_PARAM);
}

/* What initiators do is counted in the set that the target names. */
static struct mlx5dv_devx_obj *make_set(uint32_t *number)
{
	struct mlx5dv_devx_obj *set;
	struct command c;

	command_begin(&c, 0x771);
	set = command_create(&hand, &c, 16, NULL);
	*number = (uint32_t)get_bits(c.out, 0x58, 8);
	return set;
}

static void check_counts(struct mlx5dv_devx_obj *set, uint32_t number)
{
	enum { WRITES = 0x80, READS = 0xc0, ATOMICS = 0x100 };
	struct command c;

	command_begin(&c, 0x773);
	put_bits(c.in, 0xf8, 8, number);
	check_eq(mlx5dv_devx_obj_query(set, c.in, 32, c.out, 256), 0);
	check_eq(get_bits(c.out, WRITES, 32), 2);
	check_eq(get_bits(c.out, READS, 32), 1);
	check_eq(get_bits(c.out, ATOMICS, 32), 2);
}

static int target(void)
{
	struct mlx5dv_devx_obj *rmp, *dct, *set;
	struct hand_address address;
	struct hand_qp named = { 0 };
	struct mlx5_cqe64 cqe;
	struct command c;
	uint32_t rmpn, counters;
	char word = 0;

	hand_open(&hand);
	hand_cq(&hand, &cq, 6);
	rmp = make_rmp(&rmpn);
	refusals(rmpn);
	set = make_set(&counters);
	dct_command(&c, rmpn);
	put_bits(c.in, DCTC + 0x60, 8, counters);
	dct = command_create(&hand, &c, DCT_BYTES, &named.number);
	check_eq(mlx5dv_devx_obj_destroy(rmp), EBUSY);
	check_eq(command_query(dct, named.number, 0x713, &c, DCT_BYTES), 0);
	check_eq(get_bits(c.out, DCTC + 0x4, 4), 0);
	check_eq(get_bits(c.out, DCTC + 0x100, 64), KEY);
	check_eq(get_bits(c.out, DCTC + 0xa8, 24), rmpn);
	for (uint32_t i = 0; i < 8; i++)
		post_receive(i, 4096 * i, 4096);
	named.hand = &hand;
	hand_address(&named, &address);
	msg_send(ROLE_FD, &address, sizeof(address));
	for (uint32_t i = 0; i < 8; i++) {
		hand_wait(&cq, &cqe);
		check_eq(cqe.op_own >> 4, i & 1 ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND);
		check_eq(be32toh(cqe.byte_cnt), 1000 + i);
		check_eq(be16toh(cqe.wqe_counter), i);
		check_eq(be32toh(cqe.srqn_uidx) & 0xffffff, 0x123456);
		check_eq(pattern_check(hand.buf + 4096 * i, 1000 + i, i), 1000 + i);
	}
	msg_send(ROLE_FD, &word, 1);
	msg_recv(ROLE_FD, &word, 1);
	check_eq(pattern_check(hand.buf + 40000, 10000, 77), 10000); /* written */
	check_counts(set, counters);
	check_eq(mlx5dv_devx_obj_destroy(set), EBUSY);
	object_end(&dct);
	object_end(&set);
	object_end(&rmp);
	hand_cq_end(&cq);
	hand_close(&hand);
	return 0;
}

/* --- the initiator ------------------------------------------------------------------------------- */

static void wqe_to(struct wqe *wqe, uint8_t opcode, const struct hand_address *to, uint64_t key,
		   uint32_t imm)
{
	struct mlx5_wqe_datagram_seg *seg;

	wqe_begin(wqe, opcode, MLX5_WQE_CTRL_CQ_UPDATE, imm);
	wqe_put_av(wqe, &to->gid, to->qpn, 0);
	seg = (void *)(wqe->bytes + sizeof(struct mlx5_wqe_ctrl_seg));
	seg->av.key.dc_key = htobe64(key);
}

static void go(struct hand_qp *dci, struct wqe *wqe)
{
	struct mlx5_cqe64 cqe;

	hand_post(dci, wqe);
	hand_ring(dci);
	hand_expect(&cq, dci, MLX5_CQE_REQ, &cqe);
}

static void one_sided(struct hand_qp *dci, const struct hand_address *to)
{
	uint64_t *value = (uint64_t *)hand.buf;
	struct wqe wqe;

	pattern_fill(hand.buf, 10000, 77);
	wqe_to(&wqe, MLX5_OPCODE_RDMA_WRITE, to, KEY, 0);
	wqe_put_raddr(&wqe, to->addr + 40000, to->rkey);
	wqe_put_data(&wqe, hand.buf, 10000, hand.mr->lkey);
	go(dci, &wqe);
	wqe_to(&wqe, MLX5_OPCODE_RDMA_READ, to, KEY, 0);
	wqe_put_raddr(&wqe, to->addr + 40000, to->rkey);
	wqe_put_data(&wqe, hand.buf + 20000, 10000, hand.mr->lkey);
	go(dci, &wqe);
	check_eq(pattern_check(hand.buf + 20000, 10000, 77), 10000);
	*value = 40;
	wqe_to(&wqe, MLX5_OPCODE_RDMA_WRITE, to, KEY, 0);
	wqe_put_raddr(&wqe, to->addr + 60000, to->rkey);
	wqe_put_data(&wqe, value, 8, hand.mr->lkey);
	go(dci, &wqe);
	wqe_to(&wqe, MLX5_OPCODE_ATOMIC_FA, to, KEY, 0);
	wqe_put_raddr(&wqe, to->addr + 60000, to->rkey);
	wqe_put_atomic(&wqe, 2, 0);
	wqe_put_data(&wqe, value, 8, hand.mr->lkey);
	go(dci, &wqe);
	check_eq(*value, 40);
	wqe_to(&wqe, MLX5_OPCODE_ATOMIC_CS, to, KEY, 0);
	wqe_put_raddr(&wqe, to->addr + 60000, to->rkey);
	wqe_put_atomic(&wqe, 7, 42);
	wqe_put_data(&wqe, value, 8, hand.mr->lkey);
	go(dci, &wqe);
	check_eq(*value, 42);
}

static void open_dci(struct hand_qp *dci)
{
	struct command c;

	hand_qp_command(&hand, dci, IBV_QPT_RC, &cq, &cq, 6, 4, &c);
	put_bits(c.in, QPC + 0x8, 8, 5); /* st: DCI */
	put_bits(c.in, QPC + 0x50, 1, 1);
	command_refused(&hand, &c, 272, BAD_PARAM); /* without send queue */
	put_bits(c.in, QPC + 0x50, 1, 0);
	hand_qp_create(dci, &c);
	dci->sq = dci->rq; /* it has no receives */
	check_eq(hand_to_init(dci), 0);
	check_eq(hand_to_rtr(dci, NULL), 0);
	check_eq(hand_to_rts(dci), 0);
	check_eq(hand_qp_state(dci), 3);
}

static void initiate(int fd)
{
	struct hand_address to;
	struct hand_qp dci;
	struct wqe wqe;
	char word = 0;

	hand_open(&hand);
	hand_cq(&hand, &cq, 6);
	open_dci(&dci);
	msg_recv(fd, &to, sizeof(to));
	for (uint32_t i = 0; i < 8; i++) {
		pattern_fill(hand.buf, 1000 + i, i);
		wqe_to(&wqe, i & 1 ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND, &to, KEY, 5);
		wqe_put_data(&wqe, hand.buf, 1000 + i, hand.mr->lkey);
		go(&dci, &wqe);
	}
	msg_recv(fd, &word, 1);
	one_sided(&dci, &to);
	wqe_to(&wqe, MLX5_OPCODE_RDMA_WRITE, &to, KEY + 1, 0);
	wqe_put_raddr(&wqe, to.addr, to.rkey);
	wqe_put_data(&wqe, hand.buf, 8, hand.mr->lkey);
	hand_post(&dci, &wqe);
	hand_ring(&dci);
	hand_expect_error(&cq, &dci, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	check_eq(hand_qp_state(&dci), 6);
	msg_send(fd, &word, 1);
	hand_qp_end(&dci);
	hand_cq_end(&cq);
	hand_close(&hand);
}

int main(int argc, char **argv)
{
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "target"))
		return target();
	pid = spawn_self("target", &fd);
	initiate(fd);
	spawn_wait(pid);
	close(fd);
	return 0;
}
