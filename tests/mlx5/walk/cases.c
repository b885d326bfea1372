// SPDX-License-Identifier: MIT
/* A good command for each row of the table of commands; see walk.h. */
#include "walk.h"

#include <string.h>

enum {
	CTX = 0x100,
	WQ = CTX + 0x180,
	QPC = 0xc0,
	PATH = QPC + 0xc0,
	CQC = 0x80,
	MKC = 0x80,
	DCTC = 0x80
};
enum { GROUP_SIZE = 64, BAD_QP_STATE = 0x10 };

static uint32_t number(const struct world *w, enum walk_kind kind)
{
	return w->made[kind].number;
}

/* --- queues: commands of hand.h, in memory that all of them share ------------------------------- */

static void take(uint8_t *in, const struct command *c, size_t len)
{
	memcpy(in, c->in, len);
}

static struct hand_cq cq_of(const struct world *w)
{
	return (struct hand_cq){ .number = number(w, WALK_CQ) };
}

static void build_cq(struct world *w, uint8_t *in)
{
	struct hand_cq cq;
	struct command c;

	w->hand.used = 0;
	hand_cq_command(&w->hand, &cq, 4, &c);
	put_bits(c.in, CQC + 0x84, 12, 33); /* cq_period */
	put_bits(c.in, CQC + 0x90, 16, 7);  /* cq_max_count */
	take(in, &c, 272);
}

static void fill_modify_cq(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0x60, 32, 1 << 0 | 1 << 1); /* moderation */
	put_bits(in, CQC + 0x84, 12, 44);
	put_bits(in, CQC + 0x90, 16, 9);
}

static void build_qp(struct world *w, uint8_t *in)
{
	struct hand_cq cq = cq_of(w);
	struct hand_qp qp;
	struct command c;

	w->hand.used = 0;
	hand_qp_command(&w->hand, &qp, IBV_QPT_RC, &cq, &cq, 4, 4, &c);
	put_bits(c.in, QPC + 0x28, 24, number(w, WALK_PD));
	put_bits(c.in, QPC + 0x60, 8, number(w, WALK_Q_COUNTER));
	take(in, &c, 272);
}

static void build_sq(struct world *w, uint8_t *in)
{
	struct hand_cq cq = cq_of(w);
	struct hand_qp sq;
	struct command c;

	w->hand.used = 0;
	hand_sq_command(&w->hand, &sq, &cq, number(w, WALK_TIS), &c);
	put_bits(c.in, WQ + 0x48, 24, number(w, WALK_PD));
	take(in, &c, 272);
}

static void build_rq(struct world *w, uint8_t *in)
{
	struct hand_cq cq = cq_of(w);
	struct hand_qp rq;
	struct command c;

	w->hand.used = 0;
	hand_rq_command(&w->hand, &rq, &cq, &c);
	put_bits(c.in, CTX + 0x60, 8, number(w, WALK_Q_COUNTER));
	put_bits(c.in, WQ + 0x48, 24, number(w, WALK_PD));
	take(in, &c, 272);
}

static void build_dct(struct world *w, uint8_t *in)
{
	put_bits(in, DCTC + 0x48, 24, number(w, WALK_CQ));
	put_bits(in, DCTC + 0x60, 8, number(w, WALK_Q_COUNTER));
	put_bits(in, DCTC + 0x6c, 3, 7); /* rre, rwe, rae */
	put_bits(in, DCTC + 0xa8, 24, number(w, WALK_RMP));
	put_bits(in, DCTC + 0xc8, 24, number(w, WALK_PD));
	put_bits(in, DCTC + 0x100, 64, 0x123456789abcdefull);
	put_bits(in, DCTC + 0x145, 3, IBV_MTU_1024);
	put_bits(in, DCTC + 0x168, 8, TEST_GID_INDEX);
}

static void build_rmp(struct world *w, uint8_t *in)
{
	struct hand_cq cq = cq_of(w);
	struct hand_qp rq;
	struct command c;

	w->hand.used = 0;
	hand_rq_command(&w->hand, &rq, &cq, &c);
	put_bits(in, CTX + 0x8, 4, 1);  /* RDY */
	put_bits(in, CTX + 0x20, 1, 1); /* basic_cyclic_rcv_wqe */
	memcpy(in + WQ / 8, c.in + WQ / 8, 192);
	put_bits(in, WQ + 0x48, 24, number(w, WALK_PD));
}

static void to_ready(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, CTX + 0x8, 4, 1);
}

static void arm_limit(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0x40, 4, 1);
	put_bits(in, 0x80, 64, 1);
	put_bits(in, CTX + 0x8, 4, 1);
	put_bits(in, WQ + 0x30, 16, 5);
}

static void build_tis(struct world *w, uint8_t *in)
{
	put_bits(in, CTX + 0x128, 24, number(w, WALK_TRANSPORT_DOMAIN));
}

static void modify_tis(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0x80, 64, 1); /* prio */
	put_bits(in, CTX + 0xc, 4, 3);
}

static void build_rqt(struct world *w, uint8_t *in)
{
	put_bits(in, CTX + 0xb0, 16, 1);
	put_bits(in, CTX + 0xd0, 16, 1);
	put_bits(in, CTX + 0x788, 24, number(w, WALK_RQ));
}

static void modify_rqt(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0x80, 64, 1);
	put_bits(in, CTX + 0xd0, 16, 1);
	put_bits(in, CTX + 0x788, 24, number(w, WALK_RQ));
}

static void build_tir(struct world *w, uint8_t *in)
{
	put_bits(in, CTX + 0x20, 4, 1);
	put_bits(in, CTX + 0x108, 24, number(w, WALK_RQT));
	put_bits(in, CTX + 0x120, 4, 2); /* Toeplitz */
	put_bits(in, CTX + 0x128, 24, number(w, WALK_TRANSPORT_DOMAIN));
}

static void modify_tir(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0x80, 64, 1 << 4);
	put_bits(in, CTX + 0x126, 2, 1); /* self_lb_block */
}

/* --- transitions --------------------------------------------------------------------------------- */

static void to_init(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, QPC + 0x13, 2, 3);
	put_bits(in, QPC + 0x491, 1, 1); /* rwe */
	put_bits(in, PATH + 0x128, 8, 1);
}

static void to_rtr(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, QPC + 0x40, 3, IBV_MTU_1024);
	put_bits(in, QPC + 0x43, 5, 30);
	put_bits(in, QPC + 0xa8, 24, object->number); /* to itself */
	put_bits(in, QPC + 0x488, 3, 2);
	put_bits(in, QPC + 0x4a3, 5, 12);
	put_bits(in, QPC + 0x4a8, 24, 0x123);
	memcpy(in + (PATH + 0x80) / 8, &w->hand.gid, sizeof(w->hand.gid));
	put_bits(in, PATH + 0x48, 8, TEST_GID_INDEX);
	put_bits(in, PATH + 0x128, 8, 1);
}

static void to_rts(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, PATH + 0x40, 5, 14);
	put_bits(in, QPC + 0x388, 3, 2);
	put_bits(in, QPC + 0x38d, 3, 6);
	put_bits(in, QPC + 0x390, 3, 5);
	put_bits(in, QPC + 0x3c8, 24, 0x123);
}

static void in_rts(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0x80, 32, 1 << 6); /* min_rnr_nak */
	put_bits(in, QPC + 0x4a3, 5, 9);
}

/* --- keys and flows ------------------------------------------------------------------------------ */

static void build_mkey(struct world *w, uint8_t *in)
{
	put_bits(in, 0x61, 1, 1);
	put_bits(in, MKC + 0x14, 2, 3); /* lw, lr */
	put_bits(in, MKC + 0x16, 2, 1); /* MTT */
	put_bits(in, MKC + 0x20, 24, 0xffffff);
	put_bits(in, MKC + 0x38, 8, 0x42);
	put_bits(in, MKC + 0x68, 24, number(w, WALK_PD));
	put_bits(in, MKC + 0x80, 64, 0x123456000);
	put_bits(in, MKC + 0xc0, 64, 4096);
	put_bits(in, 0x320, 32, w->hand.umem->umem_id);
}

static void build_table(struct world *w, uint8_t *in)
{
	put_bits(in, 0xc8, 8, 5); /* level */
	put_bits(in, 0xd8, 8, 14);
}

/* table_type and table_id are those of the object. */
static void modify_table(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0x70, 16, 1); /* where misses go */
}

static void build_group(struct world *w, uint8_t *in)
{
	uint32_t first = w->turn++ % 200 * GROUP_SIZE;

	put_bits(in, 0xa8, 24, number(w, WALK_FLOW_TABLE));
	put_bits(in, 0xe0, 32, first);
	put_bits(in, 0x120, 32, first + GROUP_SIZE - 1);
}

static void query_group(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0xa8, 24, number(w, WALK_FLOW_TABLE));
}

static void build_entry(struct world *w, uint8_t *in)
{
	put_bits(in, 0xa8, 24, number(w, WALK_FLOW_TABLE));
	put_bits(in, 0x100, 32, w->turn++ % GROUP_SIZE); /* of the first group */
	put_bits(in, 0x220, 32, number(w, WALK_FLOW_GROUP));
	put_bits(in, 0x270, 16, 2); /* drop */
}

static void modify_entry(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0x30, 16, 1);
	put_bits(in, 0xa8, 24, number(w, WALK_FLOW_TABLE));
	put_bits(in, 0xd8, 8, 1); /* the action */
	put_bits(in, 0x220, 32, number(w, WALK_FLOW_GROUP));
	put_bits(in, 0x270, 16, 2);
}

static void build_reformat(struct world *w, uint8_t *in)
{
	put_bits(in, 0xe5, 3, 2); /* L2 to L2 tunnel */
	put_bits(in, 0xf6, 10, 50);
	put_bits(in, 0x110 + 12 * 8, 16, 0x800);
	put_bits(in, 0x110 + 14 * 8, 8, 0x45);
}

static void build_modify_header(struct world *w, uint8_t *in)
{
	put_bits(in, 0x78, 8, 1);
	put_bits(in, 0x80, 4, 1);    /* set */
	put_bits(in, 0x84, 12, 0xa); /* TTL */
	put_bits(in, 0x9b, 5, 8);
	put_bits(in, 0xa0, 32, 64);
}

static void query_counter(struct world *w, const struct walk_object *object, uint8_t *in)
{
	put_bits(in, 0xe0, 32, object->number);
}

static void build_db_map(struct world *w, uint8_t *in)
{
	put_bits(in, 0x80 + 0x80, 32, w->function);
	put_bits(in, 0x80 + 0xa0, 32, w->turn++ % 64);
	put_bits(in, 0x80 + 0xc0, 32, number(w, WALK_CQ));
}

static void build_emulated_eq(struct world *w, uint8_t *in)
{
	put_bits(in, 0x80 + 0x60, 32, w->function);
	put_bits(in, 0x80 + 0x1b4, 12, w->turn++ % 32);
}

static void query_general(struct world *w, const struct walk_object *object, uint8_t *in)
{
	(void)object;
	put_bits(in, 0x40, 32, object->number);
}

/* --- the cases ----------------------------------------------------------------------------------- */

#define QUERY(opcode, out)                      \
	{                                       \
		opcode, 16, out, 0x48, NULL, 0, \
		{                               \
			{                       \
				0               \
			}                       \
		}                               \
	}
#define CQ_REF(at)                       \
	{                                \
		at, 24, WALK_CQ, true, 0 \
	}
#define PD_REF(at)                       \
	{                                \
		at, 24, WALK_PD, true, 0 \
	}
#define UMEM_REF(at)                        \
	{                                   \
		at, 32, WALK_UMEM, false, 0 \
	}

const struct walk_case walk_cases[WALK_KINDS] = {
	[WALK_PD] = { .name = "PD", .create = 0x800, .in = 16, .number = 0x48 },
	[WALK_UAR] = { .name = "UAR", .create = 0x802, .in = 16, .number = 0x48 },
	[WALK_TRANSPORT_DOMAIN] = { .name = "TRANSPORT_DOMAIN", .create = 0x816, .in = 16, .number = 0x48 },
	[WALK_Q_COUNTER] = { .name = "Q_COUNTER", .create = 0x771, .in = 16, .number = 0x58,
			     .query = { 0x773, 32, 256, 0xf8, NULL, 0, { { 0 } } } },
	[WALK_CQ] = {
		.name = "CQ", .create = 0x400, .in = 272, .number = 0x48, .build = build_cq,
		.refs = { { CQC + 0x68, 24, WALK_UAR, false, 0 }, UMEM_REF(0x2c0), UMEM_REF(CQC + 0x20) },
		.query = QUERY(0x402, 272),
		.same = { { CQC + 0x63, CQC + 0x63, 5 }, { CQC + 0x84, CQC + 0x84, 12 },
			  { CQC + 0x90, CQC + 0x90, 16 }, { CQC + 0xb8, CQC + 0xb8, 8 } },
		.modify = { { 0x403, 272, 16, 0x48, fill_modify_cq, 0,
			      { { CQC + 0x84, CQC + 0x84, 12 }, { CQC + 0x90, CQC + 0x90, 16 } } } },
	},
	[WALK_MKEY] = {
		.name = "MKEY", .create = 0x200, .in = 272, .number = 0x48, .build = build_mkey,
		.refs = { PD_REF(MKC + 0x68), UMEM_REF(0x320) },
		.query = QUERY(0x201, 272),
		.same = { { MKC + 0x80, MKC + 0x80, 64 }, { MKC + 0xc0, MKC + 0xc0, 64 },
			  { MKC + 0x68, MKC + 0x68, 24 }, { MKC + 0x38, MKC + 0x38, 8 } },
	},
	[WALK_RMP] = {
		.name = "RMP", .create = 0x90c, .in = 272, .number = 0x48, .build = build_rmp,
		.refs = { PD_REF(WQ + 0x48), UMEM_REF(WQ + 0x140), UMEM_REF(WQ + 0x160) },
		.query = QUERY(0x90f, 272),
		.same = { { WQ + 0x48, WQ + 0x48, 24 }, { WQ + 0x11b, WQ + 0x11b, 5 }, { CTX + 0x8, CTX + 0x8, 4 } },
		.modify = { { 0x90d, 272, 16, 0x48, arm_limit, 0, { { WQ + 0x30, WQ + 0x30, 16 } } } },
	},
	[WALK_DCT] = {
		.name = "DCT", .create = 0x710, .in = 80, .number = 0x48, .build = build_dct,
		.refs = { CQ_REF(DCTC + 0x48), { DCTC + 0x60, 8, WALK_Q_COUNTER, true, 0 },
			  { DCTC + 0xa8, 24, WALK_RMP, true, 0 }, PD_REF(DCTC + 0xc8) },
		.query = QUERY(0x713, 80),
		.same = { { DCTC + 0x48, DCTC + 0x48, 24 }, { DCTC + 0x60, DCTC + 0x60, 8 }, { DCTC + 0xa8, DCTC + 0xa8, 24 },
			  { DCTC + 0x100, DCTC + 0x100, 32 }, { DCTC + 0x145, DCTC + 0x145, 3 } },
	},
	[WALK_RQ] = {
		.name = "RQ", .create = 0x908, .in = 272, .number = 0x48, .build = build_rq,
		.refs = { CQ_REF(CTX + 0x48), PD_REF(WQ + 0x48), { CTX + 0x60, 8, WALK_Q_COUNTER, true, 0 },
			  UMEM_REF(WQ + 0x140), UMEM_REF(WQ + 0x160) },
		.query = QUERY(0x90b, 272),
		.same = { { CTX + 0x48, CTX + 0x48, 24 }, { CTX + 0x60, CTX + 0x60, 8 }, { WQ + 0x48, WQ + 0x48, 24 },
			  { CTX + 0x8, CTX + 0x8, 4 } },
		.modify = { { 0x909, 272, 16, 0x48, to_ready, 0, { { CTX + 0x8, CTX + 0x8, 4 } } } },
	},
	[WALK_RQT] = {
		.name = "RQT", .create = 0x916, .in = 272 + 4, .head = 272, .number = 0x48, .build = build_rqt,
		.refs = { { CTX + 0x788, 24, WALK_RQ, true, 0 } },
		.query = QUERY(0x919, 272 + 4),
		.same = { { CTX + 0xd0, CTX + 0xd0, 16 }, { CTX + 0x788, CTX + 0x788, 24 } },
		.modify = { { 0x917, 272 + 4, 16, 0x48, modify_rqt, 0, { { CTX + 0xd0, CTX + 0xd0, 16 } } } },
	},
	[WALK_TIR] = {
		.name = "TIR", .create = 0x900, .in = 272, .number = 0x48, .build = build_tir,
		.refs = { { CTX + 0x108, 24, WALK_RQT, true, 0 }, { CTX + 0x128, 24, WALK_TRANSPORT_DOMAIN, true, 0 } },
		.query = QUERY(0x903, 272),
		.same = { { CTX + 0x108, CTX + 0x108, 24 }, { CTX + 0x128, CTX + 0x128, 24 }, { CTX + 0x20, CTX + 0x20, 4 } },
		.modify = { { 0x901, 272, 16, 0x48, modify_tir, 0, { { CTX + 0x126, CTX + 0x126, 2 } } } },
	},
	[WALK_TIS] = {
		.name = "TIS", .create = 0x912, .in = 192, .number = 0x48, .build = build_tis,
		.refs = { { CTX + 0x128, 24, WALK_TRANSPORT_DOMAIN, true, 0 } },
		.query = QUERY(0x915, 176),
		.same = { { CTX + 0x128, 0x80 + 0x128, 24 } },
		.modify = { { 0x913, 192, 16, 0x48, modify_tis, 0, { { CTX + 0xc, 0x80 + 0xc, 4 } } } },
	},
	[WALK_SQ] = {
		.name = "SQ", .create = 0x904, .in = 272, .number = 0x48, .build = build_sq,
		.refs = { CQ_REF(CTX + 0x48), PD_REF(WQ + 0x48), { CTX + 0x168, 24, WALK_TIS, true, 0 },
			  { WQ + 0x68, 24, WALK_UAR, false, 0 }, UMEM_REF(WQ + 0x140), UMEM_REF(WQ + 0x160) },
		.query = QUERY(0x907, 272),
		.same = { { CTX + 0x48, CTX + 0x48, 24 }, { CTX + 0x168, CTX + 0x168, 24 }, { WQ + 0x48, WQ + 0x48, 24 },
			  { CTX + 0x8, CTX + 0x8, 4 } },
		.modify = { { 0x905, 272, 16, 0x48, to_ready, 0, { { CTX + 0x8, CTX + 0x8, 4 } } } },
	},
	[WALK_QP] = {
		.name = "QP", .create = 0x500, .in = 272, .number = 0x48, .ordered = true, .build = build_qp,
		.refs = { PD_REF(QPC + 0x28), CQ_REF(QPC + 0x3e8), CQ_REF(QPC + 0x4e8),
			  { QPC + 0x60, 8, WALK_Q_COUNTER, true, 0 }, { QPC + 0x68, 24, WALK_UAR, false, 0 },
			  UMEM_REF(0x840) },
		.query = QUERY(0x50b, 272),
		.same = { { QPC + 0x28, QPC + 0x28, 24 }, { QPC + 0x3e8, QPC + 0x3e8, 24 }, { QPC + 0x60, QPC + 0x60, 8 },
			  { QPC + 0x8, QPC + 0x8, 8 } },
		.modify = {
			{ 0x502, 272, 16, 0x48, to_init, 0, { { QPC + 0x491, QPC + 0x491, 1 } } },
			{ 0x50e, 272, 16, 0x48, NULL, 0, { { 0 } } },
			{ 0x503, 272, 16, 0x48, to_rtr, 0,
			  { { QPC + 0xa8, QPC + 0xa8, 24 }, { QPC + 0x488, QPC + 0x488, 3 }, { QPC + 0x4a8, QPC + 0x4a8, 24 } } },
			{ 0x504, 272, 16, 0x48, to_rts, 0,
			  { { QPC + 0x38d, QPC + 0x38d, 3 }, { QPC + 0x390, QPC + 0x390, 3 }, { QPC + 0x3c8, QPC + 0x3c8, 24 } } },
			{ 0x505, 272, 16, 0x48, in_rts, 0, { { QPC + 0x4a3, QPC + 0x4a3, 5 } } },
			{ 0x506, 272, 16, 0x48, NULL, BAD_QP_STATE, { { 0 } } }, /* its send queue has not failed */
			{ 0x508, 16, 16, 0x48, NULL, 0, { { 0 } } },
			{ 0x50c, 272, 16, 0x48, NULL, 0, { { 0 } } },
			{ 0x507, 16, 16, 0x48, NULL, 0, { { 0 } } },
			{ 0x50a, 16, 16, 0x48, NULL, 0, { { 0 } } },
		},
	},
	[WALK_FLOW_COUNTER] = { .name = "FLOW_COUNTER", .create = 0x939, .in = 16, .number = 0x40,
				.query = { 0x93b, 32, 32, 0, query_counter, 0, { { 0 } } } },
	[WALK_REFORMAT] = { .name = "PACKET_REFORMAT_CONTEXT", .create = 0x93d, .in = 34 + 50, .head = 34, .number = 0x40,
			    .build = build_reformat },
	[WALK_MODIFY_HEADER] = { .name = "MODIFY_HEADER_CONTEXT", .create = 0x940, .in = 24, .head = 16, .number = 0x40,
				 .build = build_modify_header },
	[WALK_FLOW_TABLE] = {
		.name = "FLOW_TABLE", .create = 0x930, .in = 64, .number = 0x48, .build = build_table,
		.query = { 0x932, 64, 64, 0xa8, NULL, 0, { { 0 } } },
		.same = { { 0xc8, 0xc8, 8 }, { 0xd8, 0xd8, 8 } },
		.modify = { { 0x93c, 64, 16, 0xa8, modify_table, 0, { { 0 } } } },
	},
	[WALK_FLOW_GROUP] = {
		.name = "FLOW_GROUP", .create = 0x933, .in = 1024, .number = 0x48, .build = build_group,
		.refs = { { 0xa8, 24, WALK_FLOW_TABLE, true, 0 } },
		.query = { 0x935, 64, 1024, 0xc0, query_group, 0, { { 0 } } },
		.same = { { 0xe0, 0xe0, 32 }, { 0x120, 0x120, 32 } },
	},
	[WALK_FLOW_ENTRY] = {
		.name = "FLOW_TABLE_ENTRY", .create = 0x936, .in = 832, .build = build_entry,
		.refs = { { 0x220, 32, WALK_FLOW_GROUP, true, 0 } },
		.query = { 0x937, 64, 832, 0x100, query_group, 0, { { 0 } } },
		.same = { { 0x270, 0x270, 16 } },
		.modify = { { 0x936, 832, 16, 0x100, modify_entry, 0, { { 0x270, 0x270, 16 } } } },
	},
	[WALK_DB_CQ_MAP] = {
		.name = "DPA_DB_CQ_MAPPING", .create = 0xa00, .type = 0x32, .in = 48, .number = 0x40, .build = build_db_map,
		.refs = { { 0x80 + 0xc8, 24, WALK_CQ, true, 0 } },
		.query = { 0xa02, 16, 48, 0x40, query_general, 0, { { 0 } } },
		.same = { { 0x80 + 0x80, 0x80 + 0x80, 32 }, { 0x80 + 0xa0, 0x80 + 0xa0, 32 }, { 0x80 + 0xc0, 0x80 + 0xc0, 32 } },
	},
	[WALK_EMULATED_EQ] = {
		.name = "EMULATED_DEV_EQ", .create = 0xa00, .type = 0x49, .in = 72, .number = 0x40, .build = build_emulated_eq,
		.query = { 0xa02, 16, 72, 0x40, query_general, 0, { { 0 } } },
		.same = { { 0x80 + 0x60, 0x80 + 0x60, 32 }, { 0x80 + 0x1b4, 0x80 + 0x1b4, 12 } },
	},
};

/* --- general commands ---------------------------------------------------------------------------- */

static void ask_pages(uint8_t *in)
{
	put_bits(in, 0x30, 16, 1);
}

static void ask_port(uint8_t *in)
{
	put_bits(in, 0x30, 16, 1);
	put_bits(in, 0x50, 16, 0x5006);
	put_bits(in, 0x88, 8, 1);
}

const struct walk_general walk_generals[] = {
	{ "QUERY_HCA_CAP", 0x100, 16, 16, NULL },
	{ "QUERY_PAGES", 0x107, 16, 16, ask_pages },
	{ "QUERY_ISSI", 0x10a, 16, 112, NULL },
	{ "QUERY_SPECIAL_CONTEXTS", 0x203, 16, 20, NULL },
	{ "QUERY_ESW_VPORT_CONTEXT", 0x752, 16, 272, NULL },
	{ "QUERY_NIC_VPORT_CONTEXT", 0x754, 16, 272, NULL },
	{ "MODIFY_NIC_VPORT_CONTEXT", 0x755, 512, 16, NULL },
	{ "QUERY_ROCE_ADDRESS", 0x760, 16, 48, NULL },
	{ "ACCESS_REGISTER", 0x805, 32, 32, ask_port },
};
const size_t walk_general_count = sizeof(walk_generals) / sizeof(walk_generals[0]);
