// SPDX-License-Identifier: MIT
/* Flow tables, groups, entries and their contexts by command: where frames go, and what is refused. */
#include "commands.h"

enum {
	CREATE_TABLE = 0x930,
	QUERY_TABLE = 0x932,
	CREATE_GROUP = 0x933,
	QUERY_GROUP = 0x935,
	SET_ENTRY = 0x936,
	QUERY_ENTRY = 0x937,
	QUERY_COUNTER = 0x93b,
	MODIFY_TABLE = 0x93c,
	ALLOC_REFORMAT = 0x93d,
	ALLOC_MODIFY = 0x940,
};

enum { DROP = 2, FORWARD = 4, COUNT = 8, REFORMAT = 0x10, MODIFY_HEADER = 0x40, PUSH = 0x100 };
enum { TO_TABLE = 1, TO_TIR = 2 };
enum { ENTRY_BYTES = 832 };

static struct command c;

struct made {
	struct mlx5dv_devx_obj *obj;
	uint32_t number;
};

static struct made made(uint32_t at, uint32_t bits)
{
	struct made m = { .obj = create(&c) };

	assert_non_null(m.obj);
	m.number = (uint32_t)get_bits(c.out, at, bits);
	return m;
}

static struct made table(uint32_t type, uint32_t level, uint32_t miss)
{
	command(&c, CREATE_TABLE, 64, 16);
	put_bits(c.in, 0x80, 8, type);
	put_bits(c.in, 0xc8, 8, level);
	put_bits(c.in, 0xd8, 8, 8);
	put_bits(c.in, 0xc4, 4, miss != 0);
	put_bits(c.in, 0xe8, 24, miss);
	return made(0x48, 24);
}

/* On the destination MAC. */
static void group_command(uint32_t type, uint32_t to, uint32_t first, uint32_t last)
{
	command(&c, CREATE_GROUP, 1024, 16);
	put_bits(c.in, 0x80, 8, type);
	put_bits(c.in, 0xa8, 24, to);
	put_bits(c.in, 0xe0, 32, first);
	put_bits(c.in, 0x120, 32, last);
	put_bits(c.in, 0x1f8, 8, OUTER);
	put_bits(c.in, 0x200 + BIT_DMAC, 48, UINT64_MAX);
}

static struct made group(uint32_t type, uint32_t to, uint32_t first, uint32_t last)
{
	group_command(type, to, first, last);
	return made(0x48, 24);
}

static void entry_command(uint32_t type, uint32_t to, uint32_t in_group, uint32_t index,
			  uint64_t dmac, uint32_t action)
{
	command(&c, SET_ENTRY, ENTRY_BYTES, 16);
	put_bits(c.in, 0x80, 8, type);
	put_bits(c.in, 0xa8, 24, to);
	put_bits(c.in, 0x100, 32, index);
	put_bits(c.in, 0x220, 32, in_group);
	put_bits(c.in, 0x270, 16, action);
	put_bits(c.in, 0x400 + BIT_DMAC, 48, dmac);
}

static void destination(uint32_t i, uint32_t type, uint32_t number)
{
	put_bits(c.in, 0x1a00 + 64 * i, 8, type);
	put_bits(c.in, 0x1a00 + 64 * i + 8, 24, number);
	put_bits(c.in, 0x288, 24, i + 1);
	c.inlen = ENTRY_BYTES + 8 * (i + 1);
}

static struct made entry(void)
{
	struct made m = { .obj = create(&c) };

	assert_non_null(m.obj);
	return m;
}

/* Bits of modify_enable_mask. */
enum { PART_ACTION = 0, PART_TAG = 1, PART_DESTINATIONS = 2, PART_COUNTERS = 3 };

/* A flow of direct verbs that brings all frames to the table. */
static struct ibv_flow *enter(struct mlx5dv_devx_obj *to, struct mlx5dv_flow_matcher **matcher)
{
	struct param all = { .match_sz = 64 };
	struct mlx5dv_flow_matcher_attr attr = {
		.type = IBV_FLOW_ATTR_NORMAL,
		.match_mask = match(&all),
	};
	struct mlx5dv_flow_action_attr action = { .type = MLX5DV_FLOW_ACTION_DEST_DEVX, .obj = to };
	struct ibv_flow *flow;

	*matcher = mlx5dv_create_flow_matcher(kit.ctx, &attr);
	assert_non_null(*matcher);
	flow = mlx5dv_create_flow(*matcher, match(&all), 1, &action);
	assert_non_null(flow);
	return flow;
}

/* Rings of the engine: an entry leads to a TIR, counts, and marks; a miss leads to another table. */
static void ways(void **state)
{
	static struct queue queue;
	struct made last = table(0, 9, 0), first = table(0, 3, last.number), g, e, g2, e2;
	struct mlx5dv_devx_obj *tir, *counters;
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow *flow = enter(first.obj, &matcher);
	uint32_t tirn, counter;

	(void)state;
	queue_open(&queue);
	tir = make_tir(&queue, &tirn);
	counters = make_counters(1, &counter);
	kit_frame(MAC, 1000);
	assert_int_equal(kit_run(VB_STEER_NIC_RX) & VB_STEER_EMITTED, 0); /* two empty tables */
	g = group(0, first.number, 4, 7);
	entry_command(0, first.number, g.number, 5, MAC, FORWARD | COUNT);
	put_bits(c.in, 0x248, 24, 0x777);
	destination(0, TO_TIR, tirn);
	put_bits(c.in, 0x2a8, 24, 1);
	put_bits(c.in, 0x1a00 + 64, 32, counter + 3);
	c.inlen += 8;
	e = entry();
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 1);
	assert_int_equal(kit.caught[0].dest.number, tirn);
	assert_int_equal(kit.caught[0].meta.tag, 0x777);
	command(&c, QUERY_COUNTER, 32, 32);
	put_bits(c.in, 0xe0, 32, counter + 3);
	assert_ok(query(counters, &c));
	assert_int_equal(get_bits(c.out, 0x80, 64), 1);
	/* what the entry needs stays */
	assert_int_equal(mlx5dv_devx_obj_destroy(counters), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(tir), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(g.obj), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(first.obj), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(last.obj), EBUSY);
	/* a miss of the first table */
	g2 = group(0, last.number, 0, 0);
	entry_command(0, last.number, g2.number, 0, MAC + 1, FORWARD);
	destination(0, TO_TIR, tirn);
	e2 = entry();
	kit_frame(MAC + 1, 1000);
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 1);
	assert_int_equal(kit.caught[0].meta.tag, 0);
	/* no way for misses any more */
	command(&c, MODIFY_TABLE, 64, 16);
	put_bits(c.in, 0xa8, 24, first.number);
	put_bits(c.in, 0x70, 16, 1);
	assert_ok(modify(first.obj, &c));
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 0);
	destroy(e2.obj);
	destroy(g2.obj);
	destroy(last.obj);
	destroy(e.obj);
	assert_int_equal(mlx5dv_devx_obj_destroy(first.obj), EBUSY);
	destroy(g.obj);
	assert_int_equal(mlx5dv_devx_obj_destroy(first.obj), EBUSY); /* the flow leads to it */
	assert_ok(ibv_destroy_flow(flow));
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	destroy(first.obj);
	destroy(counters);
	destroy(tir);
	queue_close(&queue);
}

/* The lowest index decides, in whichever order groups were made; several destinations get a copy each. */
static void indices(void **state)
{
	static struct queue queues[2];
	struct made t = table(0, 0, 0), high, low, e, e2;
	struct mlx5dv_devx_obj *tirs[2];
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow *flow = enter(t.obj, &matcher);
	uint32_t tirn[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		queue_open(&queues[i]);
		tirs[i] = make_tir(&queues[i], &tirn[i]);
	}
	high = group(0, t.number, 100, 200);
	low = group(0, t.number, 3, 9);
	entry_command(0, t.number, high.number, 150, MAC, FORWARD);
	destination(0, TO_TIR, tirn[0]);
	e = entry();
	kit_frame(MAC, 1);
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.caught[0].dest.number, tirn[0]);
	entry_command(0, t.number, low.number, 9, MAC, FORWARD);
	destination(0, TO_TIR, tirn[1]);
	e2 = entry();
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 1);
	assert_int_equal(kit.caught[0].dest.number, tirn[1]);
	/* modified: to both */
	put_bits(c.in, 0x30, 16, 1);
	destination(1, TO_TIR, tirn[0]);
	assert_ok(modify(e2.obj, &c)); /* of which the mask names nothing */
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 1);
	put_bits(c.in, 0xd8, 8, 1 << PART_DESTINATIONS);
	put_bits(c.in, 0x270, 16, DROP); /* not named */
	assert_ok(modify(e2.obj, &c));
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 2);
	command(&c, QUERY_ENTRY, 64, 1024);
	put_bits(c.in, 0xa8, 24, t.number);
	put_bits(c.in, 0x100, 32, 9);
	assert_ok(query(e2.obj, &c));
	assert_int_equal(get_bits(c.out, 0x288, 24), 2);
	assert_int_equal(get_bits(c.out, 0x1a00 + 64 + 8, 24), tirn[0]);
	/* and back to a drop */
	entry_command(0, t.number, low.number, 9, MAC, DROP);
	put_bits(c.in, 0x30, 16, 1);
	put_bits(c.in, 0xd8, 8, 1 << PART_ACTION);
	assert_ok(modify(e2.obj, &c));
	assert_int_equal(kit_run(VB_STEER_NIC_RX), VB_STEER_DROPPED);
	put_bits(c.in, 0x270, 16, FORWARD); /* without a destination: nothing changes */
	assert_int_equal(modify(e2.obj, &c), EREMOTEIO);
	assert_status(&c, BAD_PARAM);
	assert_int_equal(kit_run(VB_STEER_NIC_RX), VB_STEER_DROPPED);
	destroy(e.obj);
	destroy(e2.obj);
	destroy(high.obj);
	destroy(low.obj);
	assert_ok(ibv_destroy_flow(flow));
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	destroy(t.obj);
	for (int i = 0; i < 2; i++) {
		destroy(tirs[i]);
		queue_close(&queues[i]);
	}
}

/* Contexts change the frame on its way, and stay while an entry has them. */
static void edits(void **state)
{
	static struct queue queue;
	struct made t = table(0, 0, 0), g = group(0, t.number, 0, 0), e, mod, ref;
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow *flow = enter(t.obj, &matcher);
	struct mlx5dv_devx_obj *tir;
	uint32_t tirn;

	(void)state;
	queue_open(&queue);
	tir = make_tir(&queue, &tirn);
	command(&c, ALLOC_MODIFY, 16 + 8, 16);
	put_bits(c.in, 0x78, 8, 1);
	put_bits(c.in, 0x80, 4, 1);    /* set */
	put_bits(c.in, 0x84, 12, 0xc); /* UDP destination port */
	put_bits(c.in, 0x9b, 5, 16);
	put_bits(c.in, 0xa0, 32, 4242);
	mod = made(0x40, 32);
	c.inlen--;
	refuse_create(&c, BAD_INP_LEN);
	put_bits(c.in, 0x78, 8, 0);
	refuse_create(&c, BAD_PARAM);
	command(&c, ALLOC_REFORMAT, 34 + 50, 16);
	put_bits(c.in, 0xe5, 3, 2);
	put_bits(c.in, 0xf6, 10, 50);
	put_bits(c.in, 0x110 + 96, 16, 0x0800);
	ref = made(0x40, 32);
	c.inlen--;
	refuse_create(&c, BAD_INP_LEN);
	put_bits(c.in, 0xf6, 10, 257);
	refuse_create(&c, EXCEED_LIM);
	put_bits(c.in, 0xe5, 3, 5);
	refuse_create(&c, BAD_PARAM);
	entry_command(0, t.number, g.number, 0, MAC, FORWARD | MODIFY_HEADER | REFORMAT);
	destination(0, TO_TIR, tirn);
	put_bits(c.in, 0x2c0, 32, ref.number + 77);
	put_bits(c.in, 0x2e0, 32, mod.number);
	refuse_create(&c, BAD_RES);
	put_bits(c.in, 0x2c0, 32, ref.number);
	e = entry();
	kit_frame(MAC, 1);
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 1);
	assert_int_equal(kit.caught[0].len, kit.len + 50);
	assert_int_equal(get_bits(kit.caught[0].bytes, (50 + 36) * 8, 16), 4242);
	assert_int_equal(mlx5dv_devx_obj_destroy(mod.obj), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(ref.obj), EBUSY);
	destroy(e.obj);
	destroy(mod.obj);
	destroy(ref.obj);
	destroy(g.obj);
	assert_ok(ibv_destroy_flow(flow));
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	destroy(t.obj);
	destroy(tir);
	queue_close(&queue);
}

static void refusals(void **state)
{
	struct made t = table(0, 7, 0), same = table(0, 7, 0), tx = table(1, 9, 0), g;

	(void)state;
	command(&c, CREATE_TABLE, 64, 16);
	put_bits(c.in, 0x80, 8, 2); /* an ACL */
	refuse_create(&c, BAD_PARAM);
	put_bits(c.in, 0x80, 8, 0);
	put_bits(c.in, 0x50, 16, 3);
	refuse_create(&c, BAD_INDEX);
	put_bits(c.in, 0x50, 16, 0);
	put_bits(c.in, 0xc4, 4, 1);
	refuse_create(&c, BAD_RES); /* no table 0 */
	put_bits(c.in, 0xe8, 24, same.number);
	put_bits(c.in, 0xc8, 8, 7);
	refuse_create(&c, BAD_PARAM); /* of the same level */
	put_bits(c.in, 0xe8, 24, tx.number);
	refuse_create(&c, BAD_PARAM); /* of another type */
	put_bits(c.in, 0xc4, 4, 3);
	refuse_create(&c, BAD_PARAM);
	group_command(0, t.number + 1000, 0, 1);
	refuse_create(&c, BAD_RES);
	group_command(1, t.number, 0, 1);
	refuse_create(&c, BAD_PARAM);
	group_command(0, t.number, 2, 1);
	refuse_create(&c, BAD_INDEX);
	group_command(0, t.number, 0, 256);
	refuse_create(&c, BAD_INDEX);
	group_command(0, t.number, 0, 1);
	put_bits(c.in, 0x1f8, 8, 0x80);
	refuse_create(&c, BAD_PARAM);
	g = group(0, t.number, 8, 16);
	group_command(0, t.number, 16, 20);
	refuse_create(&c, RES_BUSY);
	group_command(0, t.number, 0, 8);
	refuse_create(&c, RES_BUSY);
	command(&c, QUERY_GROUP, 64, 1024);
	put_bits(c.in, 0xa8, 24, t.number);
	put_bits(c.in, 0xc0, 32, g.number);
	assert_ok(query(g.obj, &c));
	assert_int_equal(get_bits(c.out, 0xe0, 32), 8);
	assert_int_equal(get_bits(c.out, 0x120, 32), 16);
	assert_int_equal(get_bits(c.out, 0x1f8, 8), OUTER);
	assert_int_equal(get_bits(c.out, 0x200 + BIT_DMAC, 48), 0xffffffffffff);
	entry_command(0, t.number, g.number, 7, MAC, DROP);
	refuse_create(&c, BAD_INDEX);
	entry_command(0, same.number, g.number, 8, MAC, DROP);
	refuse_create(&c, BAD_RES);
	entry_command(0, t.number, g.number, 8, MAC, 0);
	refuse_create(&c, BAD_PARAM);
	entry_command(0, t.number, g.number, 8, MAC, 0x8000);
	refuse_create(&c, BAD_PARAM);
	entry_command(0, t.number, g.number, 8, MAC, DROP | FORWARD);
	destination(0, TO_TABLE, same.number);
	refuse_create(&c, BAD_PARAM);
	entry_command(0, t.number, g.number, 8, MAC, FORWARD);
	destination(0, TO_TABLE, same.number);
	refuse_create(&c, BAD_PARAM); /* of the same level */
	destination(0, 5, 0);
	refuse_create(&c, BAD_PARAM);
	destination(0, 0, 0); /* a vport, outside of FDB */
	refuse_create(&c, BAD_PARAM);
	destination(0, TO_TIR, 0xabcdef);
	refuse_create(&c, BAD_RES);
	c.inlen--;
	refuse_create(&c, BAD_INP_LEN);
	put_bits(c.in, 0x288, 24, 0xffffff);
	refuse_create(&c, BAD_PARAM);
	c.inlen = ENTRY_BYTES - 1;
	refuse_create(&c, BAD_INP_LEN);
	entry_command(0, t.number, g.number, 8, MAC, DROP | COUNT);
	put_bits(c.in, 0x2a8, 24, 1);
	put_bits(c.in, 0x1a00, 32, 0xfffffff0);
	c.inlen += 8;
	refuse_create(&c, BAD_RES);
	/* nothing of all that was left in the group */
	destroy(g.obj);
	command(&c, QUERY_TABLE, 64, 64);
	put_bits(c.in, 0xa8, 24, t.number);
	assert_ok(query(t.obj, &c));
	assert_int_equal(get_bits(c.out, 0xc8, 8), 7);
	assert_int_equal(get_bits(c.out, 0xd8, 8), 8);
	put_bits(c.in, 0xa8, 24, t.number + 1);
	assert_int_equal(query(t.obj, &c), EINVAL);
	assert_untouched(&c);
	destroy(t.obj);
	destroy(same.obj);
	destroy(tx.obj);
}

/* FDB: to the wire, to the manager. NIC_TX: allowed or dropped. */
static void ports(void **state)
{
	struct made fdb = table(4, 0, 0), tx = table(1, 0, 0), g = group(4, fdb.number, 0, 9), e;

	(void)state;
	entry_command(4, fdb.number, g.number, 0, MAC, FORWARD);
	destination(0, 0, 0xffff);
	e = entry();
	destroy(e.obj);
	destination(0, 8, 0); /* the uplink */
	e = entry();
	destroy(e.obj);
	destination(0, 0, 5);
	refuse_create(&c, BAD_INDEX);
	destination(0, TO_TIR, 1);
	refuse_create(&c, BAD_PARAM);
	destroy(g.obj);
	g = group(1, tx.number, 0, 9);
	entry_command(1, tx.number, g.number, 0, MAC, 1);
	e = entry();
	refuse_create(&c, RES_BUSY); /* the index is taken */
	destroy(e.obj);
	put_bits(c.in, 0x248, 24, 1); /* a tag */
	refuse_create(&c, BAD_PARAM);
	destroy(g.obj);
	destroy(fdb.obj);
	destroy(tx.obj);
}

static uint64_t packets(struct mlx5dv_devx_obj *counters, uint32_t id)
{
	command(&c, QUERY_COUNTER, 32, 32);
	put_bits(c.in, 0xe0, 32, id);
	assert_ok(query(counters, &c));
	return get_bits(c.out, 0x80, 64);
}

/* A change of the entry at index 5; what the mask does not name is wrong on purpose. */
static void change_command(struct made t, struct made g, uint32_t parts)
{
	entry_command(0, t.number, g.number, 5, MAC + 99, 0xffff);
	put_bits(c.in, 0x30, 16, 1);
	put_bits(c.in, 0xd8, 8, parts);
	put_bits(c.in, 0x248, 24, 0x999);
}

/* Each part of an entry is changed by itself (modify_enable_mask), and the others stay. */
static void parts(void **state)
{
	static struct queue queue;
	struct made t = table(0, 3, 0), g, e;
	struct mlx5dv_devx_obj *tir, *other, *counters;
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow *flow = enter(t.obj, &matcher);
	uint32_t tirn, othern, counter;

	(void)state;
	queue_open(&queue);
	tir = make_tir(&queue, &tirn);
	other = make_tir(&queue, &othern);
	counters = make_counters(1, &counter);
	g = group(0, t.number, 4, 7);
	entry_command(0, t.number, g.number, 5, MAC, FORWARD | COUNT);
	put_bits(c.in, 0x248, 24, 0x777);
	destination(0, TO_TIR, tirn);
	put_bits(c.in, 0x2a8, 24, 1);
	put_bits(c.in, 0x1a00 + 64, 32, counter);
	c.inlen += 8;
	e = entry();
	kit_frame(MAC, 1000);
	/* the tag */
	change_command(t, g, 1 << PART_TAG);
	put_bits(c.in, 0x248, 24, 0x123);
	assert_ok(modify(e.obj, &c));
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.caught[0].dest.number, tirn);
	assert_int_equal(kit.caught[0].meta.tag, 0x123);
	assert_int_equal(packets(counters, counter), 1);
	/* the counter, in a list whose items are larger; there is no destination before it */
	change_command(t, g, 1 << PART_COUNTERS);
	put_bits(c.in, 0x2a8, 24, 1);
	put_bits(c.in, 0x280, 1, 1);
	put_bits(c.in, 0x1a00, 32, counter + 1);
	assert_int_equal(modify(e.obj, &c), EREMOTEIO);
	assert_status(&c, BAD_INP_LEN);
	c.inlen += 16;
	assert_ok(modify(e.obj, &c));
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.caught[0].dest.number, tirn);
	assert_int_equal(kit.caught[0].meta.tag, 0x123);
	assert_int_equal(packets(counters, counter), 1);
	assert_int_equal(packets(counters, counter + 1), 1);
	/* destinations: the counter stays behind them */
	change_command(t, g, 1 << PART_DESTINATIONS);
	destination(0, TO_TIR, tirn);
	destination(1, TO_TIR, othern);
	assert_ok(modify(e.obj, &c));
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 2);
	assert_int_equal(packets(counters, counter + 1), 2);
	assert_int_equal(mlx5dv_devx_obj_destroy(other), EBUSY);
	/* what is wrong changes nothing */
	change_command(t, g, 1 << PART_DESTINATIONS);
	put_bits(c.in, 0x288, 24, 0xffffff);
	assert_int_equal(modify(e.obj, &c), EREMOTEIO);
	assert_status(&c, BAD_INP_LEN);
	change_command(t, g, 1 << 4);
	assert_int_equal(modify(e.obj, &c), EREMOTEIO);
	assert_status(&c, BAD_PARAM);
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.count, 2);
	/* the action alone: lists that it has no use for go */
	change_command(t, g, 1 << PART_ACTION);
	put_bits(c.in, 0x270, 16, DROP);
	assert_ok(modify(e.obj, &c));
	assert_int_equal(kit_run(VB_STEER_NIC_RX) & VB_STEER_DROPPED, VB_STEER_DROPPED);
	command(&c, QUERY_ENTRY, 64, 1024);
	put_bits(c.in, 0xa8, 24, t.number);
	put_bits(c.in, 0x100, 32, 5);
	assert_ok(query(e.obj, &c));
	assert_int_equal(get_bits(c.out, 0x270, 16), DROP);
	assert_int_equal(get_bits(c.out, 0x288, 24), 0);
	assert_int_equal(get_bits(c.out, 0x2a8, 24), 0);
	assert_int_equal(get_bits(c.out, 0x248, 24), 0x123);
	assert_int_equal(get_bits(c.out, 0x400 + BIT_DMAC, 48), MAC);
	destroy(other);
	destroy(counters);
	destroy(e.obj);
	destroy(g.obj);
	assert_ok(ibv_destroy_flow(flow));
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	destroy(t.obj);
	destroy(tir);
	queue_close(&queue);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ways),     cmocka_unit_test(indices), cmocka_unit_test(edits),
		cmocka_unit_test(refusals), cmocka_unit_test(ports),   cmocka_unit_test(parts),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
