// SPDX-License-Identifier: MIT
/* Every action: what it does to a frame, and what it keeps from going. */
#include "kit.h"

#include <endian.h>

/* A NIC_RX, NIC_TX or FDB domain with a root table that leads all frames to one of level 1. */
struct bench {
	enum vb_steer_kind kind;
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *root, *deep;
	struct mlx5dv_dr_matcher *root_matcher, *matcher;
	struct mlx5dv_dr_action *go;
	struct mlx5dv_dr_rule *lead;
};

static void bench_open(struct bench *b, enum mlx5dv_dr_domain_type type)
{
	struct param all = { .match_sz = 64 };

	b->kind = type == MLX5DV_DR_DOMAIN_TYPE_NIC_RX   ? VB_STEER_NIC_RX
		  : type == MLX5DV_DR_DOMAIN_TYPE_NIC_TX ? VB_STEER_NIC_TX
							 : VB_STEER_FDB;
	b->domain = make_domain(type);
	b->root = make_table(b->domain, 0);
	b->deep = make_table(b->domain, 1);
	b->root_matcher = mlx5dv_dr_matcher_create(b->root, 0, 0, match(&all));
	b->matcher = make_matcher(b->deep);
	b->go = mlx5dv_dr_action_create_dest_table(b->deep);
	b->lead = mlx5dv_dr_rule_create(b->root_matcher, match(&all), 1, &b->go);
	assert_non_null(b->lead);
	kit_frame(MAC, 7);
}

static void bench_close(struct bench *b)
{
	assert_ok(mlx5dv_dr_rule_destroy(b->lead));
	assert_ok(mlx5dv_dr_action_destroy(b->go));
	assert_ok(mlx5dv_dr_matcher_destroy(b->matcher));
	assert_ok(mlx5dv_dr_matcher_destroy(b->root_matcher));
	assert_ok(mlx5dv_dr_table_destroy(b->deep));
	assert_ok(mlx5dv_dr_table_destroy(b->root));
	assert_ok(mlx5dv_dr_domain_destroy(b->domain));
}

/* One frame through a rule of level 1 with these actions; then the rule goes. */
static unsigned int run(struct bench *b, size_t count, struct mlx5dv_dr_action *actions[])
{
	struct param value = param_of(64, BIT_DMAC, 48, MAC);
	struct mlx5dv_dr_rule *rule =
		mlx5dv_dr_rule_create(b->matcher, match(&value), count, actions);
	unsigned int result;

	assert_non_null(rule);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(mlx5dv_dr_action_destroy(actions[i]), EBUSY);
	result = kit_run(b->kind);
	assert_ok(mlx5dv_dr_rule_destroy(rule));
	return result;
}

static void ends(void **state)
{
	struct mlx5dv_dr_action *drop = mlx5dv_dr_action_create_drop();
	struct mlx5dv_dr_action *miss = mlx5dv_dr_action_create_default_miss();
	struct mlx5dv_dr_action *vport[2], *port;
	struct bench b;

	(void)state;
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	assert_int_equal(run(&b, 1, &drop), VB_STEER_DROPPED);
	assert_true(run(&b, 1, &miss) & VB_STEER_MISSED);
	assert_true(run(&b, 0, NULL) & VB_STEER_MISSED);
	bench_close(&b);
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_TX);
	run(&b, 1, &miss);
	assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_WIRE);
	bench_close(&b);
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_FDB);
	vport[0] = mlx5dv_dr_action_create_dest_vport(b.domain, 0);
	vport[1] = mlx5dv_dr_action_create_dest_vport(b.domain, 0xffff);
	port = mlx5dv_dr_action_create_dest_ib_port(b.domain, 1);
	run(&b, 1, &vport[0]);
	assert_int_equal(kit.caught[0].dest.number, VB_VPORT_MANAGER);
	run(&b, 1, &vport[1]);
	assert_int_equal(kit.caught[0].dest.number, VB_VPORT_WIRE);
	run(&b, 1, &port);
	assert_int_equal(kit.caught[0].dest.kind, VB_FLOW_VPORT);
	assert_int_equal(kit.caught[0].dest.number, VB_VPORT_WIRE);
	assert_ok(mlx5dv_dr_action_destroy(vport[0]));
	assert_ok(mlx5dv_dr_action_destroy(vport[1]));
	assert_ok(mlx5dv_dr_action_destroy(port));
	bench_close(&b);
	assert_ok(mlx5dv_dr_action_destroy(drop));
	assert_ok(mlx5dv_dr_action_destroy(miss));
}

/*
 * A TIR stays as long as a rule leads to it; an action alone does not keep it, and is of no use
 * behind it.
 */
static void tir(void **state)
{
	static struct queue queue;
	struct mlx5dv_dr_action *action;
	struct param value = param_of(64, BIT_DMAC, 48, MAC);
	struct mlx5dv_devx_obj *obj;
	struct mlx5dv_dr_rule *rule;
	struct bench b;
	uint32_t number;

	(void)state;
	queue_open(&queue);
	obj = make_tir(&queue, &number);
	action = mlx5dv_dr_action_create_dest_devx_tir(obj);
	assert_non_null(action);
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	assert_int_equal(run(&b, 1, &action), VB_STEER_EMITTED);
	assert_int_equal(kit.caught[0].dest.kind, VB_FLOW_TIR);
	assert_int_equal(kit.caught[0].dest.number, number);
	rule = make_rule(b.root_matcher, 0, action); /* every frame */
	assert_int_equal(mlx5dv_devx_obj_destroy(obj), EBUSY);
	assert_int_equal(vb_qp_destroy(queue.card), -EBUSY);
	assert_ok(mlx5dv_dr_rule_destroy(rule));
	assert_ok(mlx5dv_devx_obj_destroy(obj));
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 1, &action), EINVAL);
	assert_ok(mlx5dv_dr_action_destroy(action));
	queue_close(&queue);
	bench_close(&b);
}

/* A mirror: everybody gets the frame as without the rule, and the TIR, too. */
static void array(void **state)
{
	static struct queue queue;
	struct mlx5dv_dr_action *miss = mlx5dv_dr_action_create_default_miss(), *tir, *both;
	struct mlx5dv_dr_action_dest_attr dest[2] = { { MLX5DV_DR_ACTION_DEST, { miss } } };
	struct mlx5dv_dr_action_dest_attr *dests[] = { &dest[0], &dest[1] };
	struct mlx5dv_devx_obj *obj;
	struct mlx5dv_dr_rule *rule;
	struct bench b;
	uint32_t number;

	(void)state;
	queue_open(&queue);
	obj = make_tir(&queue, &number);
	tir = mlx5dv_dr_action_create_dest_devx_tir(obj);
	dest[1] = (struct mlx5dv_dr_action_dest_attr){ MLX5DV_DR_ACTION_DEST, { tir } };
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	both = mlx5dv_dr_action_create_dest_array(b.domain, 2, dests);
	assert_non_null(both);
	run(&b, 1, &both);
	assert_int_equal(kit.count, 2);
	assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_DEFAULT);
	assert_int_equal(kit.caught[1].dest.number, number);
	/* At level 0, as public programs have it. */
	assert_ok(mlx5dv_dr_rule_destroy(b.lead));
	b.lead = rule = make_rule(b.root_matcher, 0, both);
	kit_run(b.kind);
	assert_int_equal(kit.count, 2);
	assert_ok(mlx5dv_dr_rule_destroy(rule));
	/* In any order: what the array uses stays until it is gone. */
	assert_int_equal(mlx5dv_dr_action_destroy(tir), EBUSY);
	assert_int_equal(mlx5dv_dr_action_destroy(miss), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(obj), EBUSY);
	assert_int_equal(mlx5dv_dr_domain_destroy(b.domain), EBUSY);
	assert_ok(mlx5dv_dr_action_destroy(both));
	assert_ok(mlx5dv_devx_obj_destroy(obj));
	assert_ok(mlx5dv_dr_action_destroy(tir));
	assert_ok(mlx5dv_dr_action_destroy(miss));
	b.lead = make_rule(b.root_matcher, 0, b.go);
	bench_close(&b);
	queue_close(&queue);
}

/* In FDB, to the manager and, in a tunnel, to the wire; and a counter among destinations. */
static void array_reformat(void **state)
{
	uint8_t header[50] = { 0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45 };
	uint32_t counter;
	struct mlx5dv_devx_obj *counters = make_counters(0, &counter);
	struct mlx5dv_dr_action *encap, *wire, *manager, *count, *all;
	struct mlx5dv_dr_action_dest_reformat in_tunnel;
	struct mlx5dv_dr_action_dest_attr dest[3], *dests[] = { &dest[0], &dest[1], &dest[2] };
	struct bench b;

	(void)state;
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_FDB);
	encap = mlx5dv_dr_action_create_packet_reformat(
		b.domain, 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL,
		sizeof(header), header);
	wire = mlx5dv_dr_action_create_dest_vport(b.domain, 0xffff);
	manager = mlx5dv_dr_action_create_dest_vport(b.domain, 0);
	count = mlx5dv_dr_action_create_flow_counter(counters, 0);
	in_tunnel = (struct mlx5dv_dr_action_dest_reformat){ encap, wire };
	dest[0] = (struct mlx5dv_dr_action_dest_attr){ MLX5DV_DR_ACTION_DEST, { manager } };
	dest[1] = (struct mlx5dv_dr_action_dest_attr){ MLX5DV_DR_ACTION_DEST_REFORMAT,
						       .dest_reformat = &in_tunnel };
	dest[2] = (struct mlx5dv_dr_action_dest_attr){ MLX5DV_DR_ACTION_DEST, { count } };
	all = mlx5dv_dr_action_create_dest_array(b.domain, 3, dests);
	assert_non_null(all);
	assert_int_equal(mlx5dv_dr_action_destroy(encap), EBUSY);
	run(&b, 1, &all);
	assert_int_equal(kit.count, 2);
	assert_int_equal(kit.caught[0].len, kit.len);
	assert_int_equal(kit.caught[1].len, kit.len + sizeof(header));
	assert_int_equal(kit.caught[1].dest.number, VB_VPORT_WIRE);
	assert_int_equal(mlx5dv_devx_obj_destroy(counters), EBUSY);
	assert_ok(mlx5dv_dr_action_destroy(all));
	assert_ok(mlx5dv_devx_obj_destroy(counters));
	assert_ok(mlx5dv_dr_action_destroy(count));
	assert_ok(mlx5dv_dr_action_destroy(encap));
	assert_ok(mlx5dv_dr_action_destroy(wire));
	assert_ok(mlx5dv_dr_action_destroy(manager));
	bench_close(&b);
}

/* SET of DMAC 47..16, and a push of a VLAN. */
static void edits(void **state)
{
	__be64 set = htobe64(1ull << 60 | 4ull << 48 | 0x0a0b0c0dull);
	struct mlx5dv_dr_action *actions[3], *root_set;
	struct bench b;

	(void)state;
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_FDB);
	actions[0] = mlx5dv_dr_action_create_modify_header(b.domain, 0, sizeof(set), &set);
	actions[1] = mlx5dv_dr_action_create_push_vlan(b.domain, htobe32(0x81000123));
	actions[2] = mlx5dv_dr_action_create_dest_vport(b.domain, 0xffff);
	assert_int_equal(run(&b, 3, actions), VB_STEER_EMITTED);
	assert_int_equal(kit.caught[0].len, kit.len + 4);
	assert_int_equal(get_bits(kit.caught[0].bytes, 0, 32), 0x0a0b0c0d);
	assert_int_equal(get_bits(kit.caught[0].bytes, 96, 32), 0x81000123);
	assert_int_equal(mlx5dv_dr_domain_destroy(b.domain), EBUSY);
	assert_ok(mlx5dv_dr_action_destroy(actions[1]));
	/* The tag comes off again. */
	memcpy(kit.frame, kit.caught[0].bytes, kit.caught[0].len);
	kit_frame(MAC, 7);
	memmove(kit.frame + 16, kit.frame + 12, kit.len - 12);
	put_bits(kit.frame, 96, 32, 0x81000123);
	kit.len += 4;
	actions[1] = mlx5dv_dr_action_create_pop_vlan();
	assert_int_equal(run(&b, 3, actions), VB_STEER_EMITTED);
	assert_int_equal(kit.caught[0].len, kit.len - 4);
	assert_int_equal(get_bits(kit.caught[0].bytes, 96, 16), 0x0800);
	for (int i = 0; i < 3; i++)
		assert_ok(mlx5dv_dr_action_destroy(actions[i]));
	/* For level 0 it is made so. */
	root_set = mlx5dv_dr_action_create_modify_header(
		b.domain, MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL, sizeof(set), &set);
	assert_non_null(root_set);
	assert_ok(mlx5dv_dr_rule_destroy(b.lead));
	b.lead = make_rule(b.root_matcher, 0, root_set);
	kit_frame(MAC, 7);
	kit_run(b.kind);
	assert_int_equal(get_bits(kit.caught[0].bytes, 0, 32), 0x0a0b0c0d);
	assert_ok(mlx5dv_dr_rule_destroy(b.lead));
	assert_ok(mlx5dv_dr_action_destroy(root_set));
	b.lead = make_rule(b.root_matcher, 0, b.go);
	bench_close(&b);
}

/* Into a tunnel and out of it: what NIC_TX puts in front, NIC_RX takes off. */
static void tunnels(void **state)
{
	/* Ethernet, IPv4, UDP to 4789, VXLAN. */
	uint8_t header[50] = { 0x02, 0,    0, 0, 0,  1, 0x02, 0, 0,    0,    0,    2,    8,
			       0,    0x45, 0, 0, 0,  0, 1,    0, 0,    64,   17,   0,    0,
			       10,   0,    0, 1, 10, 0, 0,    2, 0x30, 0x39, 0x12, 0xb5, 0,
			       0,    0,    0, 8, 0,  0, 0,    0, 0,    5,    0 };
	struct mlx5dv_dr_action *encap, *decap[2];
	struct bench b;

	(void)state;
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_TX);
	encap = mlx5dv_dr_action_create_packet_reformat(
		b.domain, 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL,
		sizeof(header), header);
	assert_non_null(encap);
	run(&b, 1, &encap);
	assert_int_equal(kit.caught[0].len, 110);
	assert_ok(mlx5dv_dr_action_destroy(encap));
	bench_close(&b);
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	memcpy(kit.frame, kit.caught[0].bytes, 110);
	put_bits(kit.frame, 0, 48, MAC);
	kit.len = 110;
	decap[0] = mlx5dv_dr_action_create_packet_reformat(
		b.domain, 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, NULL);
	decap[1] = mlx5dv_dr_action_create_tag(0xff000042);
	assert_non_null(decap[0]);
	/* The frame then misses level 1 of NIC_RX; a table behind it shows what became of it. */
	{
		struct mlx5dv_dr_table *last = make_table(b.domain, 2);
		struct mlx5dv_dr_matcher *matcher = make_matcher(last);
		struct mlx5dv_dr_action *go = mlx5dv_dr_action_create_dest_table(last);
		struct mlx5dv_dr_action *drop = mlx5dv_dr_action_create_drop();
		struct mlx5dv_dr_action *actions[] = { decap[0], decap[1], go };
		struct mlx5dv_dr_rule *rule = make_rule(matcher, MAC, drop);

		assert_int_equal(run(&b, 3, actions), VB_STEER_DROPPED);
		assert_ok(mlx5dv_dr_rule_destroy(rule));
		assert_ok(mlx5dv_dr_action_destroy(go));
		assert_ok(mlx5dv_dr_action_destroy(drop));
		assert_ok(mlx5dv_dr_matcher_destroy(matcher));
		assert_ok(mlx5dv_dr_table_destroy(last));
	}
	assert_ok(mlx5dv_dr_action_destroy(decap[0]));
	assert_ok(mlx5dv_dr_action_destroy(decap[1]));
	bench_close(&b);
}

/* The tag travels with the frame, cut to 24 bits; counters count what came. */
static void tag_and_counter(void **state)
{
	static struct queue queue;
	uint8_t in[32] = { 0 }, out[16 + 2 * 16];
	struct mlx5dv_dr_action *actions[3];
	struct mlx5dv_devx_obj *counters, *obj;
	uint32_t first, number;
	struct bench b;

	(void)state;
	queue_open(&queue);
	obj = make_tir(&queue, &number);
	counters = make_counters(1, &first);
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	actions[0] = mlx5dv_dr_action_create_tag(0xff123456);
	actions[1] = mlx5dv_dr_action_create_flow_counter(counters, 3);
	actions[2] = mlx5dv_dr_action_create_dest_devx_tir(obj);
	run(&b, 3, actions);
	assert_int_equal(kit.caught[0].meta.tag, 0x123456);
	run(&b, 3, actions);
	put_bits(in, 0, 16, 0x93b);
	put_bits(in, 0xc0, 1, 1); /* clear */
	put_bits(in, 0xc2, 30, 2);
	put_bits(in, 0xe0, 32, first + 2);
	assert_ok(mlx5dv_devx_obj_query(counters, in, sizeof(in), out, sizeof(out)));
	assert_int_equal(get_bits(out, 0x80, 64), 0);
	assert_int_equal(get_bits(out, 0x80 + 128, 64), 2);
	assert_int_equal(get_bits(out, 0xc0 + 128, 64), 120);
	assert_ok(mlx5dv_devx_obj_query(counters, in, sizeof(in), out, sizeof(out)));
	assert_int_equal(get_bits(out, 0x80 + 128, 64), 0);
	/* The object before the action: the rules are gone. */
	assert_ok(mlx5dv_devx_obj_destroy(counters));
	run(&b, 2, actions);
	for (int i = 0; i < 3; i++)
		assert_ok(mlx5dv_dr_action_destroy(actions[i]));
	assert_ok(mlx5dv_devx_obj_destroy(obj));
	queue_close(&queue);
	bench_close(&b);
}

/* A RAW_PACKET queue pair as destination, where the adapter has them. */
static void raw_qp(void **state)
{
	struct ibv_qp_init_attr init = {
		.send_cq = kit.cq,
		.recv_cq = kit.cq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct ibv_qp *qp = ibv_create_qp(kit.pd, &init);
	struct mlx5dv_dr_action *action;
	struct bench b;

	(void)state;
	if (!qp) {
		assert_int_equal(errno, EOPNOTSUPP);
		skip();
	}
	bench_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	action = mlx5dv_dr_action_create_dest_ibv_qp(qp);
	assert_non_null(action);
	run(&b, 1, &action);
	assert_int_equal(kit.caught[0].dest.kind, VB_FLOW_QP);
	assert_ptr_equal(kit.caught[0].dest.object, vb_verbs_qp(qp));
	assert_int_equal(ibv_destroy_qp(qp), EBUSY);
	assert_ok(mlx5dv_dr_action_destroy(action));
	assert_ok(ibv_destroy_qp(qp));
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends),
		cmocka_unit_test(tir),
		cmocka_unit_test(array),
		cmocka_unit_test(array_reformat),
		cmocka_unit_test(edits),
		cmocka_unit_test(tunnels),
		cmocka_unit_test(tag_and_counter),
		cmocka_unit_test(raw_qp),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
