// SPDX-License-Identifier: MIT
/*
 * What is refused: by which call, on which level, with which errno. Nothing has changed afterwards.
 */
#include "kit.h"

#include <endian.h>

#define L2_TO_L2  MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL
#define OUT_OF_L2 MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2

struct both {
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *root, *deep;
	struct mlx5dv_dr_matcher *root_matcher, *matcher;
};

static void both_open(struct both *b, enum mlx5dv_dr_domain_type type)
{
	b->domain = make_domain(type);
	b->root = make_table(b->domain, 0);
	b->deep = make_table(b->domain, 1);
	b->root_matcher = make_matcher(b->root);
	b->matcher = make_matcher(b->deep);
}

static void both_close(struct both *b)
{
	assert_ok(mlx5dv_dr_matcher_destroy(b->matcher));
	assert_ok(mlx5dv_dr_matcher_destroy(b->root_matcher));
	assert_ok(mlx5dv_dr_table_destroy(b->deep));
	assert_ok(mlx5dv_dr_table_destroy(b->root));
	assert_ok(mlx5dv_dr_domain_destroy(b->domain));
}

static void refuse_rule(struct mlx5dv_dr_matcher *matcher, struct mlx5dv_dr_action *action, int err)
{
	struct param value = param_of(64, BIT_DMAC, 48, MAC);

	assert_null_errno(mlx5dv_dr_rule_create(matcher, match(&value), 1, &action), err);
	assert_int_equal(mlx5dv_dr_matcher_destroy(matcher), 0); /* no rule is left */
}

static void accept_rule(struct mlx5dv_dr_matcher *matcher, struct mlx5dv_dr_action *action)
{
	assert_ok(mlx5dv_dr_rule_destroy(make_rule(matcher, MAC, action)));
}

#define REFUSE_ROOT(b, action, err)                          \
	do {                                                 \
		refuse_rule((b)->root_matcher, action, err); \
		(b)->root_matcher = make_matcher((b)->root); \
	} while (0)
#define REFUSE_DEEP(b, action, err)                     \
	do {                                            \
		refuse_rule((b)->matcher, action, err); \
		(b)->matcher = make_matcher((b)->deep); \
	} while (0)

static void domains(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *other = NULL;

	(void)state;
	assert_null_errno(mlx5dv_dr_domain_create(NULL, MLX5DV_DR_DOMAIN_TYPE_FDB), EINVAL);
	assert_null_errno(mlx5dv_dr_domain_create(kit.ctx, (enum mlx5dv_dr_domain_type)3), EINVAL);
	for (int i = 0; list[i] && !other; i++)
		if (!mlx5dv_is_supported(list[i]) && !strncmp(list[i]->name, "mlx4", 4))
			other = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (other) {
		assert_null_errno(mlx5dv_dr_domain_create(other, MLX5DV_DR_DOMAIN_TYPE_FDB),
				  EOPNOTSUPP);
		assert_ok(ibv_close_device(other));
	}
	assert_int_equal(mlx5dv_dr_domain_destroy(NULL), EINVAL);
	assert_int_equal(mlx5dv_dr_domain_sync(NULL, 0), EINVAL);
	assert_null_errno(mlx5dv_dr_table_create(NULL, 0), EINVAL);
	assert_int_equal(mlx5dv_dr_table_destroy(NULL), EINVAL);
	assert_null_errno(mlx5dv_dr_matcher_create(NULL, 0, 0, NULL), EINVAL);
	assert_int_equal(mlx5dv_dr_matcher_destroy(NULL), EINVAL);
	assert_int_equal(mlx5dv_dr_matcher_set_layout(NULL, NULL), EINVAL);
	assert_null_errno(mlx5dv_dr_rule_create(NULL, NULL, 0, NULL), EINVAL);
	assert_int_equal(mlx5dv_dr_rule_destroy(NULL), EINVAL);
	assert_int_equal(mlx5dv_dr_action_destroy(NULL), EINVAL);
}

static void masks(void **state)
{
	struct param mask = param_of(512, BIT_DMAC, 48, UINT64_MAX), bad = mask;
	struct mlx5dv_dr_matcher *matcher;
	struct both b;

	(void)state;
	both_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	matcher = mlx5dv_dr_matcher_create(b.root, 0, OUTER, match(&mask));
	assert_non_null(matcher);
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	assert_null_errno(mlx5dv_dr_matcher_create(b.deep, 0, OUTER, match(&mask)), EINVAL);
	mask.match_sz = 448;
	matcher = mlx5dv_dr_matcher_create(b.deep, 0, OUTER, match(&mask));
	assert_non_null(matcher);
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	bad.match_sz = 513;
	assert_null_errno(mlx5dv_dr_matcher_create(b.root, 0, OUTER, match(&bad)), EINVAL);
	assert_null_errno(mlx5dv_dr_matcher_create(b.root, 0, 0x81, match(&mask)), EINVAL);
	assert_null_errno(mlx5dv_dr_matcher_create(b.deep, 0, 0x81, match(&mask)), EINVAL);
	/* A mask outside of its criteria: at level 0. */
	assert_null_errno(mlx5dv_dr_matcher_create(b.root, 0, MISC2, match(&mask)), EINVAL);
	/* A field that the card has not: prog_sample_field_value_0 of misc4. */
	bad = param_of(448, 5 * 512, 32, 1);
	assert_null_errno(mlx5dv_dr_matcher_create(b.deep, 0, 0x20, match(&bad)), EOPNOTSUPP);
	both_close(&b);
}

static void values(void **state)
{
	struct mlx5dv_dr_action *drop = mlx5dv_dr_action_create_drop(), *none = NULL;
	struct mlx5dv_dr_action *two[] = { drop, drop };
	struct mlx5dv_dr_action *many[17];
	struct param value = param_of(64, BIT_DMAC, 48, MAC);
	struct mlx5dv_dr_rule *rule;
	struct both b;

	(void)state;
	both_open(&b, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	value.match_sz = 62; /* level 0 takes any length */
	rule = mlx5dv_dr_rule_create(b.root_matcher, match(&value), 1, &drop);
	assert_non_null(rule);
	assert_ok(mlx5dv_dr_rule_destroy(rule));
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 1, &drop), EINVAL);
	value.match_sz = 512;
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 1, &drop), EINVAL);
	value.match_sz = 0;
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 1, &drop), EINVAL);
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, NULL, 1, &drop), EINVAL);
	value.match_sz = 513;
	assert_null_errno(mlx5dv_dr_rule_create(b.root_matcher, match(&value), 1, &drop), EINVAL);
	value = param_of(64, BIT_SMAC, 48, 1); /* outside of the mask */
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 1, &drop), EINVAL);
	assert_null_errno(mlx5dv_dr_rule_create(b.root_matcher, match(&value), 1, &drop), EINVAL);
	value = param_of(64, BIT_DMAC, 48, MAC);
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 2, two), EINVAL);
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 1, NULL), EINVAL);
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 1, &none), EINVAL);
	for (int i = 0; i < 17; i++)
		many[i] = drop;
	assert_null_errno(mlx5dv_dr_rule_create(b.matcher, match(&value), 17, many), EINVAL);
	assert_ok(mlx5dv_dr_action_destroy(drop)); /* none of them kept it */
	both_close(&b);
}

/* Which action in a rule of which level. */
static void levels(void **state)
{
	__be64 set = htobe64(1ull << 60 | 4ull << 48 | 0x0a0b0c0dull);
	struct mlx5dv_dr_action *pop = mlx5dv_dr_action_create_pop_vlan();
	struct mlx5dv_dr_action *tag = mlx5dv_dr_action_create_tag(1);
	struct mlx5dv_dr_action *push, *vport, *port, *deep_set, *root_set, *back;
	struct mlx5dv_dr_table *lower;
	struct both b, other;

	(void)state;
	both_open(&b, MLX5DV_DR_DOMAIN_TYPE_FDB);
	both_open(&other, MLX5DV_DR_DOMAIN_TYPE_FDB);
	push = mlx5dv_dr_action_create_push_vlan(b.domain, htobe32(0x81000001));
	vport = mlx5dv_dr_action_create_dest_vport(b.domain, 0xffff);
	port = mlx5dv_dr_action_create_dest_ib_port(b.domain, 1);
	deep_set = mlx5dv_dr_action_create_modify_header(b.domain, 0, 8, &set);
	root_set = mlx5dv_dr_action_create_modify_header(
		b.domain, MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL, 8, &set);
	REFUSE_ROOT(&b, vport, ENOTSUP);
	REFUSE_ROOT(&b, port, ENOTSUP);
	REFUSE_ROOT(&b, push, ENOTSUP);
	REFUSE_ROOT(&b, pop, ENOTSUP);
	REFUSE_ROOT(&b, deep_set, EINVAL);
	REFUSE_DEEP(&b, root_set, EINVAL);
	REFUSE_ROOT(&b, tag, EINVAL);
	REFUSE_DEEP(&b, tag, EOPNOTSUPP);
	accept_rule(b.matcher, vport);
	accept_rule(b.matcher, port);
	accept_rule(b.matcher, push);
	accept_rule(b.matcher, pop);
	accept_rule(b.matcher, deep_set);
	accept_rule(b.root_matcher, root_set);
	/* Of another domain. */
	REFUSE_DEEP(&other, vport, EINVAL);
	REFUSE_DEEP(&other, deep_set, EINVAL);
	REFUSE_ROOT(&other, root_set, EINVAL);
	/* Tables: neither the root, nor of another domain, nor backwards. */
	assert_null_errno(mlx5dv_dr_action_create_dest_table(b.root), EINVAL);
	back = mlx5dv_dr_action_create_dest_table(other.deep);
	REFUSE_ROOT(&b, back, EINVAL);
	assert_ok(mlx5dv_dr_action_destroy(back));
	back = mlx5dv_dr_action_create_dest_table(b.deep);
	REFUSE_DEEP(&b, back, EINVAL); /* to itself: a circle */
	assert_ok(mlx5dv_dr_action_destroy(back));
	lower = make_table(b.domain, 1);
	back = mlx5dv_dr_action_create_dest_table(lower);
	REFUSE_DEEP(&b, back, EINVAL);
	accept_rule(b.root_matcher, back);
	assert_ok(mlx5dv_dr_action_destroy(back));
	assert_ok(mlx5dv_dr_table_destroy(lower));
	assert_ok(mlx5dv_dr_action_destroy(push));
	assert_ok(mlx5dv_dr_action_destroy(pop));
	assert_ok(mlx5dv_dr_action_destroy(vport));
	assert_ok(mlx5dv_dr_action_destroy(port));
	assert_ok(mlx5dv_dr_action_destroy(tag));
	assert_ok(mlx5dv_dr_action_destroy(deep_set));
	assert_ok(mlx5dv_dr_action_destroy(root_set));
	both_close(&other);
	both_close(&b);
}

static void destinations(void **state)
{
	struct ibv_qp_init_attr init = { .send_cq = kit.cq,
					 .recv_cq = kit.cq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(kit.pd, &init);
	static uint64_t no_object[8];
	struct mlx5dv_devx_obj *bad = (void *)no_object, *counter, *obj;
	static struct queue queue;
	struct mlx5dv_dr_action *tir;
	struct both rx, fdb;
	uint32_t number;

	(void)state;
	both_open(&rx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	both_open(&fdb, MLX5DV_DR_DOMAIN_TYPE_FDB);
	queue_open(&queue);
	obj = make_tir(&queue, &number);
	counter = make_counters(0, &number);
	assert_non_null(qp);
	assert_null_errno(mlx5dv_dr_action_create_dest_ibv_qp(qp), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_ibv_qp(NULL), EINVAL);
	assert_ok(ibv_destroy_qp(qp));
	assert_null_errno(mlx5dv_dr_action_create_dest_devx_tir(NULL), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_devx_tir(bad), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_devx_tir(counter), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_flow_counter(obj, 0), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_flow_counter(counter, 1), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_table(NULL), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_vport(NULL, 0), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_vport(rx.domain, 0xffff), EOPNOTSUPP);
	assert_null_errno(mlx5dv_dr_action_create_dest_vport(fdb.domain, 0x10000), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_vport(fdb.domain, 7), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_ib_port(rx.domain, 1), EOPNOTSUPP);
	assert_null_errno(mlx5dv_dr_action_create_dest_ib_port(fdb.domain, 0), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_ib_port(fdb.domain, 2), ENOTSUP);
	assert_null_errno(mlx5dv_dr_action_create_dest_root_table(rx.root, 0), EOPNOTSUPP);
	/* Receive queues are for NIC_RX. */
	tir = mlx5dv_dr_action_create_dest_devx_tir(obj);
	REFUSE_DEEP(&fdb, tir, EOPNOTSUPP);
	REFUSE_ROOT(&fdb, tir, EINVAL);
	accept_rule(rx.matcher, tir);
	accept_rule(rx.root_matcher, tir);
	assert_ok(mlx5dv_dr_action_destroy(tir));
	assert_ok(mlx5dv_devx_obj_destroy(obj));
	assert_ok(mlx5dv_devx_obj_destroy(counter));
	queue_close(&queue);
	both_close(&fdb);
	both_close(&rx);
}

static void arrays(void **state)
{
	struct mlx5dv_dr_domain *tx = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_TX);
	struct mlx5dv_dr_action *miss = mlx5dv_dr_action_create_default_miss();
	struct mlx5dv_dr_action *tag = mlx5dv_dr_action_create_tag(1), *wire, *decap, *other_wire;
	struct mlx5dv_dr_action_dest_reformat reformat;
	struct mlx5dv_dr_action_dest_attr a = { MLX5DV_DR_ACTION_DEST, { miss } }, bad = a;
	struct mlx5dv_dr_action_dest_attr *dests[] = { &a, &bad, NULL };
	struct both b, other;

	(void)state;
	both_open(&b, MLX5DV_DR_DOMAIN_TYPE_FDB);
	both_open(&other, MLX5DV_DR_DOMAIN_TYPE_FDB);
	wire = mlx5dv_dr_action_create_dest_vport(b.domain, 0xffff);
	other_wire = mlx5dv_dr_action_create_dest_vport(other.domain, 0xffff);
	decap = mlx5dv_dr_action_create_packet_reformat(
		b.domain, 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, NULL);
	assert_null_errno(mlx5dv_dr_action_create_dest_array(tx, 2, dests), EOPNOTSUPP);
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 1, dests), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 65, dests), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 3, dests), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_array(NULL, 2, dests), EINVAL);
	bad.dest = tag;
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 2, dests), EOPNOTSUPP);
	bad.dest = other_wire;
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 2, dests), EINVAL);
	bad.dest = NULL;
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 2, dests), EINVAL);
	bad.type = (enum mlx5dv_dr_action_dest_type)2;
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 2, dests), EINVAL);
	reformat = (struct mlx5dv_dr_action_dest_reformat){ decap, wire };
	bad = (struct mlx5dv_dr_action_dest_attr){ MLX5DV_DR_ACTION_DEST_REFORMAT,
						   .dest_reformat = &reformat };
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 2, dests), EOPNOTSUPP);
	reformat.reformat = NULL;
	assert_null_errno(mlx5dv_dr_action_create_dest_array(b.domain, 2, dests), EINVAL);
	assert_ok(mlx5dv_dr_action_destroy(wire));
	assert_ok(mlx5dv_dr_action_destroy(other_wire));
	assert_ok(mlx5dv_dr_action_destroy(decap));
	assert_ok(mlx5dv_dr_action_destroy(miss));
	assert_ok(mlx5dv_dr_action_destroy(tag));
	both_close(&other);
	both_close(&b);
	assert_ok(mlx5dv_dr_domain_destroy(tx));
}

static void edits(void **state)
{
	struct mlx5dv_dr_domain *rx = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	struct mlx5dv_dr_domain *tx = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_TX);
	__be64 set = htobe64(1ull << 60 | 4ull << 48 | 1), bad = htobe64(9ull << 60);
	uint8_t header[300] = { 0 };

	(void)state;
	assert_null_errno(mlx5dv_dr_action_create_modify_header(NULL, 0, 8, &set), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_modify_header(rx, 2, 8, &set), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_modify_header(rx, 0, 0, &set), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_modify_header(rx, 0, 12, &set), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_modify_header(rx, 0, 8, NULL), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_modify_header(rx, 0, 8 * 129, &set), EINVAL);
	assert_null(mlx5dv_dr_action_create_modify_header(rx, 0, 8, &bad));
	assert_null_errno(mlx5dv_dr_action_create_packet_reformat(NULL, 0, L2_TO_L2, 14, header),
			  EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_packet_reformat(tx, 2, L2_TO_L2, 14, header),
			  EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_packet_reformat(tx, 0, 4, 14, header), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_packet_reformat(tx, 0, L2_TO_L2, 14, NULL),
			  EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_packet_reformat(tx, 0, L2_TO_L2, 0, header),
			  EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_packet_reformat(tx, 0, L2_TO_L2, 300, header),
			  EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_packet_reformat(rx, 0, L2_TO_L2, 14, header),
			  EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_packet_reformat(tx, 0, OUT_OF_L2, 0, NULL),
			  EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_push_vlan(NULL, 0), EINVAL);
	assert_ok(mlx5dv_dr_domain_destroy(rx));
	assert_ok(mlx5dv_dr_domain_destroy(tx));
}

/* What this card has not. */
static void not_there(void **state)
{
	(void)state;
	assert_null_errno(mlx5dv_dr_action_create_aso(NULL, NULL, 0, 0, 0), EOPNOTSUPP);
	assert_int_equal(mlx5dv_dr_action_modify_aso(NULL, 0, 0, 0), EOPNOTSUPP);
	assert_null_errno(mlx5dv_dr_action_create_flow_meter(NULL), EOPNOTSUPP);
	assert_int_equal(mlx5dv_dr_action_modify_flow_meter(NULL, NULL, 0), EOPNOTSUPP);
	assert_null_errno(mlx5dv_dr_action_create_flow_sampler(NULL), EOPNOTSUPP);
	assert_int_equal(mlx5dv_dr_aso_other_domain_link(NULL, NULL, NULL, 0, 0), EOPNOTSUPP);
	assert_int_equal(mlx5dv_dr_aso_other_domain_unlink(NULL, NULL), EOPNOTSUPP);
	assert_null_errno(mlx5dv_create_steering_anchor(kit.ctx, NULL), EOPNOTSUPP);
	assert_int_equal(mlx5dv_destroy_steering_anchor(NULL), EOPNOTSUPP);
}

/* The action outlives its domain, and another one takes the place in memory: it is no domain of the action's. */
static void vport_of_gone_domain(void **state)
{
	struct mlx5dv_dr_domain *gone = make_domain(MLX5DV_DR_DOMAIN_TYPE_FDB);
	struct mlx5dv_dr_action *wire = mlx5dv_dr_action_create_dest_vport(gone, 0xffff);
	struct both rx;

	(void)state;
	assert_ok(mlx5dv_dr_domain_destroy(gone));
	both_open(&rx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	if (rx.domain == gone)
		REFUSE_DEEP(&rx, wire, EOPNOTSUPP);
	both_close(&rx);
	assert_ok(mlx5dv_dr_action_destroy(wire));
}

static struct ibv_context *open_other(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *other = NULL;

	for (int i = 0; list[i] && !other; i++)
		if (mlx5dv_is_supported(list[i]) &&
		    strcmp(list[i]->name, kit.ctx->device->name) != 0)
			other = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(other);
	return other;
}

/* Frames of one port do not reach queue pairs of another; and no receive queue is behind the e-switch. */
static void queues_elsewhere(void **state)
{
	struct ibv_context *other = open_other();
	struct ibv_pd *pd = ibv_alloc_pd(other);
	struct ibv_cq *cq = ibv_create_cq(other, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 1, 1, 1, 1, 0 },
					 .qp_type = IBV_QPT_RAW_PACKET };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct mlx5dv_dr_action *to = mlx5dv_dr_action_create_dest_ibv_qp(qp);
	struct mlx5dv_dr_action *miss = mlx5dv_dr_action_create_default_miss();
	struct mlx5dv_dr_action_dest_attr a = { .dest = to }, b = { .dest = miss };
	struct mlx5dv_dr_action_dest_attr *dests[] = { &a, &b };
	struct both rx, fdb;

	(void)state;
	assert_non_null(to);
	both_open(&rx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	both_open(&fdb, MLX5DV_DR_DOMAIN_TYPE_FDB);
	REFUSE_ROOT(&rx, to, EINVAL);
	REFUSE_DEEP(&rx, to, EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_array(rx.domain, 2, dests), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_array(fdb.domain, 2, dests), EOPNOTSUPP);
	both_close(&fdb);
	both_close(&rx);
	assert_ok(mlx5dv_dr_action_destroy(miss));
	assert_ok(mlx5dv_dr_action_destroy(to));
	assert_ok(ibv_destroy_qp(qp));
	assert_ok(ibv_destroy_cq(cq));
	assert_ok(ibv_dealloc_pd(pd));
	assert_ok(ibv_close_device(other));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(domains),
		cmocka_unit_test(masks),
		cmocka_unit_test(values),
		cmocka_unit_test(levels),
		cmocka_unit_test(destinations),
		cmocka_unit_test(arrays),
		cmocka_unit_test(edits),
		cmocka_unit_test(not_there),
		cmocka_unit_test(queues_elsewhere),
		cmocka_unit_test(vport_of_gone_domain),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
