// SPDX-License-Identifier: MIT
/*
 * Counter sets of queues by command: their lives, and that each counter tells what was done to the queues that name the
 * set: requests, receives that were missing, packets out of order, errors of both sides. Also
 * where the peer is another process, which would otherwise write and read without a word.
 */
#include "hand.h"

#include <endian.h>
#include <string.h>
#include <unistd.h>

enum { QPC = 0xc0, CTX = 0x100, PATH = QPC + 0xc0, BAD_RES = 5, NO_RES = 0xf, BAD_PARAM = 3 };
enum { ALLOC = 0x771, QUERY = 0x773, SETS = 255 };

/* Bits of the answer. */
enum counter {
	RX_WRITE = 0x80,
	RX_READ = 0xc0,
	RX_ATOMIC = 0x100,
	OUT_OF_BUFFER = 0x180,
	OUT_OF_SEQUENCE = 0x1c0,
	DUPLICATE = 0x200,
	RNR_NAK = 0x240,
	ACK_TIMEOUT = 0x300,
	RESP_LENGTH = 0x3c0,
	RESP_PROTECTION = 0x440,
	REQ_PROTECTION = 0x460,
	RESP_CQE = 0x480,
	REQ_CQE = 0x4a0,
	REQ_INVALID = 0x500,
	REQ_ACCESS = 0x540,
	RESP_ACCESS = 0x560,
	REQ_RETRIES = 0x5a0,
	RESP_FLUSH = 0x5e0,
	REQ_FLUSH = 0x600,
};

struct set {
	struct mlx5dv_devx_obj *obj;
	uint32_t number;
};

static struct hand hand;
static struct hand_cq cqs[3]; /* sends of a, sends of b, receives */
static struct hand_qp a, b;
static struct hand_address to_a, to_b;
static struct set sets[SETS + 1];

/* --- sets ---------------------------------------------------------------------------------------- */

static void open_set(struct set *set)
{
	struct command c;

	command_begin(&c, ALLOC);
	set->obj = command_create(&hand, &c, 16, NULL);
	set->number = (uint32_t)get_bits(c.out, 0x58, 8);
	check(set->number != 0);
}

static void close_set(struct set *set)
{
	object_end(&set->obj);
}

static void query_set(const struct set *set, bool clear, struct command *c)
{
	command_begin(c, QUERY);
	put_bits(c->in, 0xf8, 8, set->number);
	put_bits(c->in, 0xc0, 1, clear);
	check_eq(mlx5dv_devx_obj_query(set->obj, c->in, 32, c->out, 256), 0);
}

static uint32_t count(const struct set *set, enum counter which)
{
	struct command c;

	query_set(set, false, &c);
	return (uint32_t)get_bits(c.out, which, 32);
}

/* These are so, and all others are 0. */
static void expect_counts(const struct set *set, const uint32_t (*want)[2], size_t n)
{
	struct command c;

	query_set(set, true, &c);
	for (size_t i = 0; i < n; i++) {
		check(get_bits(c.out, want[i][0], 32) == want[i][1], "counter at %#x: %u, not %u",
		      want[i][0], (unsigned int)get_bits(c.out, want[i][0], 32), want[i][1]);
		put_bits(c.out, want[i][0], 32, 0);
	}
	for (size_t i = 0; i < 256; i++)
		check(c.out[i] == 0, "counter at bit %zu", i * 8);
}

#define EXPECT(set, ...)                                         \
	expect_counts(set, (const uint32_t[][2]){ __VA_ARGS__ }, \
		      sizeof((const uint32_t[][2]){ __VA_ARGS__ }) / (2 * sizeof(uint32_t)))

static void lives(void)
{
	struct command c;
	uint8_t seen[256] = { 0 };

	for (int i = 0; i < SETS; i++) {
		open_set(&sets[i]);
		check(!seen[sets[i].number]++);
		check_eq(count(&sets[i], RX_WRITE), 0);
	}
	command_begin(&c, ALLOC);
	command_refused(&hand, &c, 16, NO_RES);
	close_set(&sets[7]);
	open_set(&sets[7]);
	query_set(&sets[0], true, &c);
	put_bits(c.in, 0xf8, 8, sets[1].number); /* another object's */
	check_eq(mlx5dv_devx_obj_query(sets[0].obj, c.in, 32, c.out, 256), EINVAL);
	put_bits(c.in, 0xf8, 8, sets[0].number);
	check_eq(mlx5dv_devx_obj_query(sets[0].obj, c.in, 31, c.out, 256), EREMOTEIO);
	check_eq(mlx5dv_devx_obj_query(sets[0].obj, c.in, 32, c.out, 255), EREMOTEIO);
	put_bits(c.in, 0xc1, 1, 1); /* aggregate */
	check_eq(mlx5dv_devx_obj_query(sets[0].obj, c.in, 32, c.out, 256), EREMOTEIO);
	check_eq(c.out[0], BAD_PARAM);
	for (int i = 0; i < SETS; i++)
		close_set(&sets[i]);
}

/* --- queue pairs --------------------------------------------------------------------------------- */

static void open_qp(struct hand_qp *qp, struct hand_cq *send, const struct set *set)
{
	struct command c;

	hand_qp_command(&hand, qp, IBV_QPT_RC, send, &cqs[2], 6, 6, &c);
	put_bits(c.in, QPC + 0x60, 8, set ? set->number : 0);
	hand_qp_create(qp, &c);
}

static void open_queues(void)
{
	for (int i = 0; i < 3; i++)
		hand_cq(&hand, &cqs[i], 7);
	open_set(&sets[0]);
	open_set(&sets[1]);
	open_qp(&a, &cqs[0], &sets[0]);
	open_qp(&b, &cqs[1], &sets[1]);
	hand_address(&a, &to_a);
	hand_address(&b, &to_b);
}

static void open_pair(void)
{
	open_queues();
	hand_connect(&a, &to_b);
	hand_connect(&b, &to_a);
}

static void close_pair(void)
{
	check_eq(mlx5dv_devx_obj_destroy(sets[0].obj), EBUSY);
	hand_qp_end(&a);
	hand_qp_end(&b);
	close_set(&sets[0]);
	close_set(&sets[1]);
	for (int i = 0; i < 3; i++)
		hand_cq_end(&cqs[i]);
	hand.used = 0;
}

static void one_sided(struct hand_qp *qp, uint8_t opcode, uint32_t len, uint32_t rkey,
		      const struct hand_address *to)
{
	struct wqe wqe;

	wqe_begin(&wqe, opcode, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe_put_raddr(&wqe, to->addr + 32768, rkey);
	if (opcode == MLX5_OPCODE_ATOMIC_FA)
		wqe_put_atomic(&wqe, 1, 0);
	wqe_put_data(&wqe, hand.buf, len, hand.mr->lkey);
	hand_post(qp, &wqe);
	hand_ring(qp);
}

static void requests(void)
{
	struct mlx5_cqe64 cqe;

	open_pair();
	for (int i = 0; i < 9; i++) {
		one_sided(&a,
			  i < 2   ? MLX5_OPCODE_RDMA_WRITE
			  : i < 5 ? MLX5_OPCODE_RDMA_READ
				  : MLX5_OPCODE_ATOMIC_FA,
			  i < 5 ? 9000 : 8, to_b.rkey, &to_b);
		hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	}
	EXPECT(&sets[0], { RX_WRITE, 0 });
	EXPECT(&sets[1], { RX_WRITE, 2 }, { RX_READ, 3 }, { RX_ATOMIC, 4 });
	EXPECT(&sets[1], { RX_WRITE, 0 }); /* it was cleared */
	/* a receive that comes late */
	hand_send(&a, 0, 100);
	while (!count(&sets[0], RNR_NAK))
		usleep(100);
	check(count(&sets[1], OUT_OF_BUFFER) >= 1);
	hand_recv(&b, 8192, 4096);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	hand_expect(&cqs[2], &b, MLX5_CQE_RESP_SEND, &cqe);
	check_eq(count(&sets[1], OUT_OF_BUFFER), count(&sets[0], RNR_NAK));
	close_pair();
}

static void errors(void)
{
	/* a key that there is not, with something posted on both sides that is flushed then */
	open_pair();
	hand_recv(&b, 8192, 64);
	one_sided(&a, MLX5_OPCODE_RDMA_WRITE, 8, 0x1234500, &to_b);
	hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	hand_expect_error(&cqs[2], &b, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	hand_send(&a, 0, 8);
	hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	EXPECT(&sets[0], { REQ_ACCESS, 1 }, { REQ_CQE, 2 }, { REQ_FLUSH, 1 });
	EXPECT(&sets[1], { RESP_ACCESS, 1 }, { RESP_CQE, 1 }, { RESP_FLUSH, 1 });
	close_pair();
	/* a message that is too long */
	open_pair();
	hand_recv(&b, 8192, 64);
	hand_send(&a, 0, 65);
	hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
	hand_expect_error(&cqs[2], &b, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	EXPECT(&sets[0], { REQ_INVALID, 1 }, { REQ_CQE, 1 });
	EXPECT(&sets[1], { RESP_LENGTH, 1 }, { RESP_CQE, 1 });
	close_pair();
	/* memory of the sender that is not registered */
	open_pair();
	hand.mr->lkey ^= 1;
	hand_send(&a, 0, 8);
	hand.mr->lkey ^= 1;
	hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	EXPECT(&sets[0], { REQ_PROTECTION, 1 }, { REQ_CQE, 1 });
	close_pair();
}

/* The two do not agree on what was sent: behind what is expected, or before it. */
static void sequence(void)
{
	for (int ahead = 0; ahead < 2; ahead++) {
		struct command c;

		open_queues();
		check_eq(hand_to_init(&a), 0);
		check_eq(hand_to_init(&b), 0);
		to_a.psn = ahead ? HAND_PSN - 9 : HAND_PSN + 9;
		check_eq(hand_to_rtr(&a, &to_b), 0);
		check_eq(hand_to_rtr(&b, &to_a), 0);
		check_eq(hand_to_rts(&b), 0);
		command_begin(&c, 0x504);
		put_bits(c.in, PATH + 0x40, 5, 8); /* timeout: 1 ms */
		put_bits(c.in, QPC + 0x388, 3, 4);
		put_bits(c.in, QPC + 0x38d, 3, 3); /* three times */
		put_bits(c.in, QPC + 0x390, 3, 7);
		put_bits(c.in, QPC + 0x3c8, 24, HAND_PSN);
		check_eq(command_modify(a.obj, a.number, &c, 272), 0);
		hand_recv(&b, 0, 64);
		hand_send(&a, 0, 8);
		hand_expect_error(&cqs[0], &a, MLX5_CQE_REQ_ERR,
				  MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
		EXPECT(&sets[0], { ACK_TIMEOUT, 3 }, { REQ_RETRIES, 1 }, { REQ_CQE, 1 });
		EXPECT(&sets[1], { ahead ? OUT_OF_SEQUENCE : DUPLICATE, 4 });
		close_pair();
	}
}

/* Sets are named at creation, at RST2INIT and in RTS; what names one that is not there is refused. */
static void naming(void)
{
	struct ibv_context *other = ibv_open_device(hand.ctx->device);
	struct mlx5dv_devx_obj *foreign;
	struct mlx5_cqe64 cqe;
	struct command c;

	open_pair();
	open_set(&sets[2]);
	command_begin(&c, 0x505);
	put_bits(c.in, 0x80, 32, 1 << 25);
	put_bits(c.in, QPC + 0x60, 8, sets[2].number);
	check_eq(command_modify(b.obj, b.number, &c, 272), 0);
	check_eq(command_query(b.obj, b.number, 0x50b, &c, 272), 0);
	check_eq(get_bits(c.out, QPC + 0x60, 8), sets[2].number);
	check_eq(mlx5dv_devx_obj_destroy(sets[2].obj), EBUSY);
	one_sided(&a, MLX5_OPCODE_RDMA_WRITE, 8, to_b.rkey, &to_b);
	hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	EXPECT(&sets[1], { RX_WRITE, 0 });
	EXPECT(&sets[2], { RX_WRITE, 1 });
	/* to none */
	command_begin(&c, 0x505);
	put_bits(c.in, 0x80, 32, 1 << 25);
	check_eq(command_modify(b.obj, b.number, &c, 272), 0);
	close_set(&sets[2]);
	/* what is not there, and what another context has */
	put_bits(c.in, QPC + 0x60, 8, 200);
	check_eq(command_modify(b.obj, b.number, &c, 272), BAD_RES);
	check(other != NULL);
	command_begin(&c, ALLOC);
	foreign = mlx5dv_devx_obj_create(other, c.in, 16, c.out, 16);
	check(foreign != NULL);
	sets[3].number = (uint32_t)get_bits(c.out, 0x58, 8);
	check(sets[3].number != sets[0].number && sets[3].number != sets[1].number);
	command_begin(&c, 0x505);
	put_bits(c.in, 0x80, 32, 1 << 25);
	put_bits(c.in, QPC + 0x60, 8, sets[3].number);
	check_eq(command_modify(b.obj, b.number, &c, 272), BAD_RES);
	hand_qp_end(&b);
	hand_qp_command(&hand, &b, IBV_QPT_RC, &cqs[1], &cqs[2], 6, 6, &c);
	put_bits(c.in, QPC + 0x60, 8, sets[3].number);
	command_refused(&hand, &c, 272, BAD_RES);
	put_bits(c.in, QPC + 0x60, 8, 0);
	hand_qp_create(&b, &c);
	/* RST2INIT has no mask */
	command_begin(&c, 0x502);
	put_bits(c.in, QPC + 0x60, 8, 200);
	put_bits(c.in, PATH + 0x128, 8, 1);
	check_eq(command_modify(b.obj, b.number, &c, 272), BAD_RES);
	check_eq(hand_qp_state(&b), 0);
	put_bits(c.in, QPC + 0x60, 8, sets[1].number);
	check_eq(command_modify(b.obj, b.number, &c, 272), 0);
	check_eq(mlx5dv_devx_obj_destroy(sets[1].obj), EBUSY);
	close_pair();
	check_eq(mlx5dv_devx_obj_destroy(foreign), 0);
	check_eq(ibv_close_device(other), 0);
}

/* A queue pair of verbs counts, too, when a command says so, and holds the set until it ends. */
static void verbs(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct mlx5dv_devx_obj *obj;
	struct command c;
	struct node node, other;
	uint32_t number;

	node_pair(&node, &other, &attr);
	command_begin(&c, ALLOC);
	obj = mlx5dv_devx_obj_create(node.ctx, c.in, 16, c.out, 16);
	check(obj != NULL);
	number = (uint32_t)get_bits(c.out, 0x58, 8);
	command_begin(&c, 0x505);
	put_bits(c.in, 0x48, 24, node.qp->qp_num);
	put_bits(c.in, 0x80, 32, 1 << 25);
	put_bits(c.in, QPC + 0x60, 8, number);
	check_eq(mlx5dv_devx_qp_modify(node.qp, c.in, 272, c.out, 16), 0);
	check_eq(mlx5dv_devx_obj_destroy(obj), EBUSY);
	check_eq(ibv_destroy_qp(node.qp), 0);
	node.qp = NULL;
	check_eq(mlx5dv_devx_obj_destroy(obj), 0);
	node_close(&node);
	node_close(&other);
}

/* --- another process ----------------------------------------------------------------------------- */

static void peer(int fd)
{
	struct hand_address self, far;
	uint32_t counts[3];
	char byte;

	hand_open(&hand);
	open_queues();
	self = to_b;
	msg_send(fd, &self, sizeof(self));
	msg_recv(fd, &far, sizeof(far));
	hand_connect(&b, &far);
	msg_send(fd, "r", 1);
	msg_recv(fd, &byte, 1); /* passive until then */
	counts[0] = count(&sets[1], RX_WRITE);
	counts[1] = count(&sets[1], RX_READ);
	counts[2] = count(&sets[1], RX_ATOMIC);
	msg_send(fd, counts, sizeof(counts));
	close_pair();
	hand_close(&hand);
}

static void neighbours(void)
{
	static const uint32_t lengths[] = { 1, 8, 4096, 5000, 30000 };
	enum { ROUNDS = 20, LENGTHS = 5 };
	struct hand_address far;
	struct mlx5_cqe64 cqe;
	uint32_t counts[3];
	char byte;
	int fd;
	pid_t pid = spawn_self("peer", &fd);

	open_queues();
	msg_recv(fd, &far, sizeof(far));
	msg_send(fd, &to_a, sizeof(to_a));
	hand_connect(&a, &far);
	msg_recv(fd, &byte, 1);
	for (int i = 0; i < ROUNDS * LENGTHS; i++) {
		one_sided(&a, MLX5_OPCODE_RDMA_WRITE, lengths[i % LENGTHS], far.rkey, &far);
		hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
		one_sided(&a, MLX5_OPCODE_RDMA_READ, lengths[i % LENGTHS], far.rkey, &far);
		hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
		one_sided(&a, MLX5_OPCODE_ATOMIC_FA, 8, far.rkey, &far);
		hand_expect(&cqs[0], &a, MLX5_CQE_REQ, &cqe);
	}
	msg_send(fd, "e", 1);
	msg_recv(fd, counts, sizeof(counts));
	for (int i = 0; i < 3; i++)
		check_eq(counts[i], ROUNDS * LENGTHS);
	spawn_wait(pid);
	close(fd);
	close_pair();
}

/* --- frames -------------------------------------------------------------------------------------- */

/* RQs; frames that find no receive are counted in ether/receive.c. */
static void frames(void)
{
	struct hand_qp rq;
	struct command c;

	hand_cq(&hand, &cqs[0], 6);
	open_set(&sets[0]);
	open_set(&sets[1]);
	hand_rq_command(&hand, &rq, &cqs[0], &c);
	put_bits(c.in, CTX + 0x60, 8, 200);
	command_refused(&hand, &c, 272, BAD_RES);
	put_bits(c.in, CTX + 0x60, 8, sets[0].number);
	hand_wq_create(&rq, &c);
	check_eq(mlx5dv_devx_obj_destroy(sets[0].obj), EBUSY);
	hand_recv(&rq, 0, 1024);
	check_eq(hand_wq_state(&rq, 0x909, WQ_RST, WQ_RDY), 0);
	/* another set, beside a change of state */
	command_begin(&c, 0x909);
	put_bits(c.in, 0x40, 4, WQ_RDY);
	put_bits(c.in, 0x80, 64, 1 << 3);
	put_bits(c.in, CTX + 0x8, 4, WQ_ERR);
	put_bits(c.in, CTX + 0x60, 8, 200);
	check_eq(command_modify(rq.obj, rq.number, &c, 272), BAD_RES);
	put_bits(c.in, CTX + 0x60, 8, sets[1].number);
	check_eq(command_modify(rq.obj, rq.number, &c, 272), 0);
	check_eq(command_query(rq.obj, rq.number, 0x90b, &c, 272), 0);
	check_eq(get_bits(c.out, CTX + 0x60, 8), sets[1].number);
	hand_expect_error(&cqs[0], &rq, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	EXPECT(&sets[1], { RESP_CQE, 1 }, { RESP_FLUSH, 1 });
	close_set(&sets[0]);
	hand_qp_end(&rq);
	close_set(&sets[1]);
	hand_cq_end(&cqs[0]);
	hand.used = 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "peer")) {
		peer(ROLE_FD);
		return 0;
	}
	hand_open(&hand);
	lives();
	requests();
	errors();
	sequence();
	naming();
	verbs();
	neighbours();
	frames();
	hand_close(&hand);
	return 0;
}
