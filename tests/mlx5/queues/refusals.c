// SPDX-License-Identifier: MIT
/*
 * Commands of queues that must be refused, with the status of the manual, and change nothing: fields of features that are
 * not there, memory that is not, numbers of nothing or of other contexts, wrong order, states from where there is no way.
 * And that answers of queries are what commands set.
 */
#include "hand.h"

#include <string.h>

enum {
	BAD_PARAM = 3,
	BAD_RES = 5,
	BAD_RES_STATE = 9,
	BAD_QP_STATE = 0x10,
	BAD_INP_LEN = 0x50,
	BAD_OUTP_LEN = 0x51
};
enum { CQC = 0x80, QPC = 0xc0, CTX = 0x100, WQ = CTX + 0x180 };

static struct hand hand, other; /* two contexts of one device */
static struct hand_cq cq, other_cq;
static struct hand_qp qp, sq, rq;

/* A change of a good command, after which it must be refused. */
struct change {
	uint32_t at, bits;
	uint64_t value;
	uint8_t status;
};

static void refuse_each(const struct command *good, const struct change *changes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct command c = *good;

		put_bits(c.in, changes[i].at, changes[i].bits, changes[i].value);
		if (mlx5dv_devx_obj_create(hand.ctx, c.in, 272, c.out, 16) ||
		    c.out[0] != changes[i].status)
			check(false, "command %#x, field %#x: status %#x",
			      (unsigned int)get_bits(c.in, 0, 16), changes[i].at, c.out[0]);
		check_eq(errno, EREMOTEIO);
	}
}

#define REFUSE_EACH(good, changes) \
	refuse_each(good, changes, sizeof(changes) / sizeof((changes)[0]))

/* Every command that is shorter than it must be, and every answer. */
static void refuse_short(const struct command *good)
{
	for (size_t len = 0; len < 272; len += 13) {
		struct command c = *good;

		check(!mlx5dv_devx_obj_create(hand.ctx, c.in, len, c.out, 16));
		check_eq(errno, len < 16 ? EINVAL : EREMOTEIO);
		if (len >= 16)
			check_eq(c.out[0], BAD_INP_LEN);
	}
	for (size_t len = 0; len < 16; len++) {
		struct command c = *good;

		check(!mlx5dv_devx_obj_create(hand.ctx, c.in, 272, c.out, len));
		check_eq(errno, EINVAL);
	}
}

/* --- creation ------------------------------------------------------------------------------------ */

static void completion_queues(void)
{
	struct hand_cq tried;
	struct command c;
	const struct change changes[] = {
		{ CQC + 0x63, 5, 23, BAD_PARAM }, /* more CQEs than there can be */
		{ CQC + 0x8, 3, 3, BAD_PARAM },
		{ CQC + 0x7, 1, 1, BAD_PARAM },
		{ CQC + 0x5e, 2, 3, BAD_PARAM },
		{ CQC + 0xf, 2, 2, BAD_PARAM },
		{ CQC + 0x68, 24, 0, BAD_RES }, /* UAR */
		{ CQC + 0x68, 24, other.uar->page_id, BAD_RES },
		{ CQC + 0xb8, 8, 0, BAD_RES }, /* EQ */
		{ CQC + 0xb8, 8, 77, BAD_RES },
		{ CQC + 0x20, 32, 0, BAD_RES }, /* umems */
		{ CQC + 0x20, 32, other.umem->umem_id, BAD_RES },
		{ 0x2c0, 32, 0xffffffff, BAD_RES },
		{ 0x2c0, 32, other.umem->umem_id, BAD_RES },
		{ 0x280, 64, HAND_MEM - 64, BAD_RES }, /* beyond the umem */
		{ 0x280, 64, UINT64_MAX - 63, BAD_RES },
		{ 0x280, 64, 8, BAD_PARAM }, /* not aligned */
		{ CQC + 0x1c0, 64, HAND_MEM, BAD_RES },
		{ CQC + 0x1c0, 64, HAND_MEM - 4, BAD_RES },
		{ CQC + 0x1c0, 64, 4, BAD_PARAM },
	};

	hand_cq_command(&hand, &tried, 4, &c);
	put_bits(c.in, CQC + 0x8, 3, 1);
	REFUSE_EACH(&c, changes);
	refuse_short(&c);
	/* The last bytes of the umem will do. */
	put_bits(c.in, 0x280, 64, HAND_MEM - 16 * 128);
	put_bits(c.in, CQC + 0x1c0, 64, HAND_MEM - 8);
	hand_cq_create(&tried, &c);
	hand_cq_end(&tried);
}

static void queue_pairs(void)
{
	struct hand_qp tried;
	struct command c;
	const struct change changes[] = {
		{ QPC + 0x8, 8, 3, BAD_PARAM },  /* XRC */
		{ QPC + 0x20, 1, 1, BAD_PARAM }, /* signatures */
		{ QPC + 0x49f, 1, 1, BAD_PARAM },
		{ QPC + 0x5b, 1, 1, BAD_PARAM },
		{ QPC + 0x58, 2, 3, BAD_PARAM },
		{ QPC + 0x565, 3, 2, BAD_PARAM },
		{ QPC + 0x28, 24, 0, BAD_RES },
		{ QPC + 0x28, 24, other.pdn, BAD_RES },
		{ QPC + 0x3e8, 24, 0xfffff, BAD_RES },
		{ QPC + 0x3e8, 24, other_cq.number, BAD_RES },
		{ QPC + 0x4e8, 24, other_cq.number, BAD_RES },
		{ QPC + 0x68, 24, 0xffff, BAD_RES },
		{ QPC + 0x720, 32, 0, BAD_RES },
		{ 0x840, 32, 0, BAD_RES },
		{ 0x800, 64, HAND_MEM - 4096, BAD_RES }, /* the receive ring would fit */
		{ QPC + 0x500, 64, HAND_MEM - 7, BAD_RES },
	};

	hand_qp_command(&hand, &tried, IBV_QPT_RC, &cq, &cq, 6, 6, &c);
	REFUSE_EACH(&c, changes);
	refuse_short(&c);
	put_bits(c.in, QPC + 0x565, 3, 1);
	put_bits(c.in, QPC + 0x568, 24, 12345); /* an RMP that is not there */
	command_refused(&hand, &c, 272, BAD_RES);
	put_bits(c.in, QPC + 0x565, 3, 3);
	put_bits(c.in, QPC + 0x50, 1, 1); /* neither queue */
	command_refused(&hand, &c, 272, BAD_PARAM);
}

static void frame_queues(void)
{
	struct hand_qp tried;
	struct command c;
	const struct change both[] = {
		{ CTX + 0x0, 1, 1, BAD_PARAM }, /* rlky */
		{ CTX + 0xe, 1, 1, BAD_PARAM }, /* hairpin */
		{ CTX + 0x8, 4, 1, BAD_PARAM }, /* not in RST */
		{ CTX + 0x1a, 2, 3, BAD_PARAM },
		{ CTX + 0x48, 24, 0, BAD_RES },
		{ CTX + 0x48, 24, other_cq.number, BAD_RES },
		{ WQ + 0x48, 24, 0xffffff, BAD_RES },
		{ WQ + 0x48, 24, other.pdn, BAD_RES },
		{ WQ + 0x4, 1, 1, BAD_PARAM },
		{ WQ + 0x10c, 4, 3, BAD_PARAM },
		{ WQ + 0x11b, 5, 16, BAD_PARAM },
		{ WQ + 0x11b, 5, 31, BAD_PARAM },
		{ WQ + 0x140, 32, 0, BAD_RES },
		{ WQ + 0x160, 32, 0, BAD_RES },
		{ WQ + 0x180, 64, HAND_MEM, BAD_RES },
		{ WQ + 0x180, 64, 1, BAD_PARAM },
		{ WQ + 0x80, 64, 1, BAD_PARAM },
	};
	const struct change send[] = {
		{ WQ + 0x68, 24, 0, BAD_RES },
		{ CTX + 0x100, 16, 2, BAD_PARAM },
		{ CTX + 0x100, 16, 1, BAD_RES }, /* TIS 0 */
		{ CTX + 0xf0, 16, 77, BAD_RES }, /* a rate that is not there */
	};
	const struct change receive[] = {
		{ CTX + 0x1, 1, 1, BAD_PARAM },                                /* delay_drop_en */
		{ CTX + 0x4, 4, 2, BAD_PARAM },  { CTX + 0x4, 4, 1, BAD_RES }, /* RMP 0 */
		{ WQ, 4, 3, BAD_PARAM },                                       /* striding */
		{ WQ, 4, 0, BAD_PARAM }, /* a list has larger entries */
		{ WQ + 0x134, 4, 1, BAD_PARAM },
	};

	hand_sq_command(&hand, &tried, &cq, 0, &c);
	REFUSE_EACH(&c, both);
	REFUSE_EACH(&c, send);
	refuse_short(&c);
	hand_rq_command(&hand, &tried, &cq, &c);
	REFUSE_EACH(&c, both);
	REFUSE_EACH(&c, receive);
	refuse_short(&c);
	command_begin(&c, 0x912);
	put_bits(c.in, CTX + 0x128, 24, 999);
	command_refused(&hand, &c, 192, BAD_RES);
	put_bits(c.in, CTX + 0x128, 24, 0);
	command_refused(&hand, &c, 192, BAD_RES);
}

/* --- order --------------------------------------------------------------------------------------- */

static void in_use(void)
{
	struct command c;

	check_eq(mlx5dv_devx_obj_destroy(cq.obj), EBUSY);
	check_eq(mlx5dv_devx_umem_dereg(hand.umem), EBUSY);
	check_eq(ibv_dealloc_pd(hand.pd), EBUSY);
	/* All of them are as they were. */
	check_eq(command_query(cq.obj, cq.number, 0x402, &c, 272), 0);
	check_eq(hand_qp_state(&qp), 0);
}

static void other_carriers(void)
{
	struct command c;

	/* A command of another kind, of another object, of another call. */
	command_begin(&c, 0x50b);
	put_bits(c.in, 0x48, 24, qp.number);
	check_eq(mlx5dv_devx_obj_query(cq.obj, c.in, 16, c.out, 272), EINVAL);
	put_bits(c.in, 0x48, 24, sq.number);
	check_eq(mlx5dv_devx_obj_query(qp.obj, c.in, 16, c.out, 272), EINVAL);
	put_bits(c.in, 0x48, 24, qp.number);
	check_eq(mlx5dv_devx_obj_modify(qp.obj, c.in, 16, c.out, 272), EINVAL);
	check_eq(mlx5dv_devx_general_cmd(hand.ctx, c.in, 16, c.out, 272), EINVAL);
	check_eq(c.out[0], 0xa5); /* the answer was left alone */
	check_eq(mlx5dv_devx_obj_query(qp.obj, c.in, 16, c.out, 271), EREMOTEIO);
	check_eq(c.out[0], BAD_OUTP_LEN);
	command_begin(&c, 0x502);
	check_eq(mlx5dv_devx_obj_modify(qp.obj, c.in, 271, c.out, 16), EINVAL); /* number 0 */
	put_bits(c.in, 0x48, 24, qp.number);
	check_eq(mlx5dv_devx_obj_modify(qp.obj, c.in, 271, c.out, 16), EREMOTEIO);
	check_eq(c.out[0], BAD_INP_LEN);
	check_eq(hand_qp_state(&qp), 0);
}

/* --- states -------------------------------------------------------------------------------------- */

/* Which transitions there are from each state that a program can bring a queue pair to. */
static void transitions(void)
{
	enum { RST, INIT, RTR, RTS, SQER, SQD, ERR };
	static const uint16_t opcodes[] = {
		0x502, 0x503, 0x504, 0x505, 0x506, 0x508, 0x50c, 0x50e
	};
	static const uint8_t from[] = { RST, INIT, RTR, RTS, SQER, RTS, SQD, INIT };
	struct hand_address self;

	hand_address(&qp, &self);
	for (uint8_t state = RST; state <= ERR; state++) {
		if (state == SQER)
			continue;
		check_eq(hand_qp_simple(&qp, 0x50a), 0);
		if (state >= INIT)
			check_eq(hand_to_init(&qp), 0);
		if (state >= RTR)
			check_eq(hand_to_rtr(&qp, &self), 0);
		if (state >= RTS)
			check_eq(hand_to_rts(&qp), 0);
		if (state == SQD)
			check_eq(hand_qp_simple(&qp, 0x508), 0);
		if (state == ERR)
			check_eq(hand_qp_simple(&qp, 0x507), 0);
		check_eq(hand_qp_state(&qp), state);
		for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
			if (from[i] != state) {
				check_eq(hand_qp_simple(&qp, opcodes[i]), BAD_QP_STATE);
				check_eq(hand_qp_state(&qp), state);
			}
	}
	check_eq(hand_qp_simple(&qp, 0x50a), 0);
	check_eq(hand_qp_simple(&qp, 0x507), BAD_QP_STATE); /* from RST */
	check_eq(hand_qp_simple(&qp, 0x50a), 0);
}

static void refuse_modify(uint16_t opcode, uint32_t at, uint32_t bits, uint64_t value)
{
	struct command c;

	command_begin(&c, opcode);
	put_bits(c.in, QPC + 0x40, 3, IBV_MTU_1024);
	put_bits(c.in, at, bits, value);
	check_eq(command_modify(qp.obj, qp.number, &c, 272), BAD_PARAM);
}

static void bad_values(void)
{
	enum { PATH = QPC + 0xc0 };
	struct hand_address self;

	hand_address(&qp, &self);
	refuse_modify(0x502, PATH + 0x10, 16, 5);  /* pkey_index */
	refuse_modify(0x502, PATH + 0x128, 8, 99); /* port */
	refuse_modify(0x502, 0x80, 32, 1);         /* an alternate path */
	refuse_modify(0x502, 0x80, 32, 1u << 31);
	check_eq(hand_qp_state(&qp), 0);
	check_eq(hand_to_init(&qp), 0);
	refuse_modify(0x503, QPC + 0x40, 3, 0); /* mtu */
	refuse_modify(0x503, QPC + 0x40, 3, 6);
	refuse_modify(0x503, PATH + 0x48, 8, 200); /* GID */
	refuse_modify(0x503, QPC + 0x488, 3, 5);   /* more than 16 */
	refuse_modify(0x503, 0x80, 32, 1u << 12);  /* retries belong to RTS */
	check_eq(hand_qp_state(&qp), 1);
	check_eq(hand_to_rtr(&qp, &self), 0);
	refuse_modify(0x504, QPC + 0x388, 3, 7);
	check_eq(hand_qp_state(&qp), 2);
	check_eq(hand_qp_simple(&qp, 0x50a), 0);
}

static void other_states(void)
{
	struct command c;

	command_begin(&c, 0x905);
	put_bits(c.in, 0x80, 64, 1);
	put_bits(c.in, CTX + 0xf0, 16, 77); /* a rate that is not there */
	check_eq(command_modify(sq.obj, sq.number, &c, 272), BAD_RES);
	put_bits(c.in, 0x80, 64, 2);
	check_eq(command_modify(sq.obj, sq.number, &c, 272), BAD_PARAM);
	check_eq(hand_wq_state(&sq, 0x905, WQ_RDY, WQ_ERR), BAD_RES_STATE);
	check_eq(hand_wq_state(&sq, 0x905, WQ_RST, 2), BAD_PARAM);
	check_eq(hand_wq_state(&rq, 0x909, WQ_RST, WQ_ERR), BAD_RES_STATE);
	command_begin(&c, 0x909);
	put_bits(c.in, 0x80, 64, 1ull << 40);
	check_eq(command_modify(rq.obj, rq.number, &c, 272), BAD_PARAM);
	command_begin(&c, 0x403);
	put_bits(c.in, 0x30, 16, 1); /* resize */
	check_eq(command_modify(cq.obj, cq.number, &c, 272), BAD_PARAM);
	command_begin(&c, 0x403);
	put_bits(c.in, 0x60, 32, 8); /* an event queue that is none */
	check_eq(command_modify(cq.obj, cq.number, &c, 272), BAD_RES);
}

/* --- queries ------------------------------------------------------------------------------------- */

static void rights(void)
{
	struct hand_address self;
	struct command c;

	hand_address(&qp, &self);
	check_eq(hand_to_init(&qp), 0);
	check_eq(hand_to_rtr(&qp, &self), 0);
	check_eq(hand_to_rts(&qp), 0);
	check_eq(command_query(qp.obj, qp.number, 0x50b, &c, 272), 0);
	check_eq(get_bits(c.out, QPC + 0x490, 3), 7);
	check_eq(get_bits(c.out, QPC + 0x28, 24), hand.pdn);
	check_eq(get_bits(c.out, QPC + 0x40, 3), IBV_MTU_4096);
	check_eq(get_bits(c.out, QPC + 0x43, 5), 30);
	check_eq(get_bits(c.out, QPC + 0x51, 4), 6);
	check_eq(get_bits(c.out, QPC + 0x88, 24), 0xabcdef);
	check_eq(get_bits(c.out, QPC + 0xa8, 24), qp.number);
	check_eq(get_bits(c.out, QPC + 0x388, 3), 4);
	check_eq(get_bits(c.out, QPC + 0x488, 3), 4);
	check_eq(get_bits(c.out, QPC + 0x38d, 3), 7);
	check_eq(get_bits(c.out, QPC + 0x3e8, 24), cq.number);
	check_eq(get_bits(c.out, QPC + 0x3c8, 24), HAND_PSN);
	check_eq(get_bits(c.out, QPC + 0x4a3, 5), 12);
	check(!memcmp(c.out + (QPC + 0xc0 + 0x80) / 8, &self.gid, 16));
	/* Only the right whose bit is set changes. */
	command_begin(&c, 0x505);
	put_bits(c.in, 0x80, 32, 1 << 3); /* rwe */
	check_eq(command_modify(qp.obj, qp.number, &c, 272), 0);
	check_eq(command_query(qp.obj, qp.number, 0x50b, &c, 272), 0);
	check_eq(get_bits(c.out, QPC + 0x490, 3), 5);
	command_begin(&c, 0x505);
	put_bits(c.in, 0x80, 32, 1 << 6); /* min_rnr_nak */
	put_bits(c.in, QPC + 0x4a3, 5, 3);
	check_eq(command_modify(qp.obj, qp.number, &c, 272), 0);
	check_eq(command_query(qp.obj, qp.number, 0x50b, &c, 272), 0);
	check_eq(get_bits(c.out, QPC + 0x4a3, 5), 3);
	check_eq(hand_qp_simple(&qp, 0x50a), 0);
}

int main(void)
{
	struct command c;

	hand_open(&hand);
	hand_open(&other);
	hand_cq(&hand, &cq, 6);
	hand_cq(&other, &other_cq, 4);
	completion_queues();
	queue_pairs();
	frame_queues();
	hand_qp(&hand, &qp, IBV_QPT_RC, &cq, &cq);
	hand_sq_command(&hand, &sq, &cq, 0, &c);
	hand_wq_create(&sq, &c);
	hand_rq_command(&hand, &rq, &cq, &c);
	hand_wq_create(&rq, &c);
	in_use();
	other_carriers();
	transitions();
	bad_values();
	other_states();
	rights();
	hand_qp_end(&rq);
	hand_qp_end(&sq);
	hand_qp_end(&qp);
	hand_cq_end(&cq);
	hand_cq_end(&other_cq);
	hand_close(&other);
	hand_close(&hand);
	return 0;
}
