// SPDX-License-Identifier: MIT
/* mlx5dv_create_flow() with its matchers and actions: rules of the root. */
#include "kit.h"

#include <endian.h>

static struct mlx5dv_flow_matcher *flow_matcher(enum mlx5dv_flow_table_type type)
{
	struct param mask = param_of(64, BIT_DMAC, 48, UINT64_MAX);
	struct mlx5dv_flow_matcher_attr attr = { .type = IBV_FLOW_ATTR_NORMAL,
						 .match_criteria_enable = OUTER,
						 .match_mask = match(&mask),
						 .comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE,
						 .ft_type = type };
	struct mlx5dv_flow_matcher *matcher = mlx5dv_create_flow_matcher(kit.ctx, &attr);

	assert_non_null(matcher);
	return matcher;
}

/* Tag, count and change a frame, then to a TIR. */
static void to_a_tir(void **state)
{
	static struct queue queue;
	uint64_t set = htobe64(1ull << 60 | 4ull << 48 | 0x0a0b0c0dull);
	struct mlx5dv_flow_matcher *matcher = flow_matcher(MLX5DV_FLOW_TABLE_TYPE_NIC_RX);
	struct param value = param_of(64, BIT_DMAC, 48, MAC);
	struct mlx5dv_devx_obj *obj, *counter;
	struct ibv_flow_action *modify;
	struct ibv_flow *flow;
	uint8_t in[32] = { 0 }, out[32];
	uint32_t number, counter_id;

	(void)state;
	queue_open(&queue);
	obj = make_tir(&queue, &number);
	counter = make_counters(0, &counter_id);
	modify = mlx5dv_create_flow_action_modify_header(kit.ctx, 8, &set,
							 MLX5DV_FLOW_TABLE_TYPE_NIC_RX);
	assert_non_null(modify);
	{
		struct mlx5dv_flow_action_attr actions[] = {
			{ MLX5DV_FLOW_ACTION_DEST_DEVX, .obj = obj },
			{ MLX5DV_FLOW_ACTION_TAG, .tag_value = 0x1234 },
			{ MLX5DV_FLOW_ACTION_COUNTERS_DEVX, .obj = counter },
			{ MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION, .action = modify },
		};

		flow = mlx5dv_create_flow(matcher, match(&value), 4, actions);
	}
	assert_non_null(flow);
	kit_frame(MAC, 1);
	assert_int_equal(kit_run(VB_STEER_NIC_RX), VB_STEER_EMITTED);
	assert_int_equal(kit.caught[0].dest.number, number);
	assert_int_equal(kit.caught[0].meta.tag, 0x1234);
	assert_int_equal(get_bits(kit.caught[0].bytes, 0, 32), 0x0a0b0c0d);
	put_bits(in, 0, 16, 0x93b);
	put_bits(in, 0xe0, 32, counter_id);
	assert_ok(mlx5dv_devx_obj_query(counter, in, sizeof(in), out, sizeof(out)));
	assert_int_equal(get_bits(out, 0x80, 64), 1);
	/* In use. */
	assert_int_equal(mlx5dv_destroy_flow_matcher(matcher), EBUSY);
	assert_int_equal(ibv_destroy_flow_action(modify), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(obj), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(counter), EBUSY);
	assert_ok(ibv_destroy_flow(flow));
	kit_run(VB_STEER_NIC_RX);
	assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_DEFAULT);
	assert_ok(ibv_destroy_flow_action(modify));
	assert_ok(mlx5dv_devx_obj_destroy(obj));
	assert_ok(mlx5dv_devx_obj_destroy(counter));
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	queue_close(&queue);
}

/* Counters of ibv_create_counters(), in two flows at once. */
static void verbs_counters(void **state)
{
	struct ibv_counters_init_attr init = { 0 };
	struct ibv_counter_attach_attr bytes = { .counter_desc = IBV_COUNTER_BYTES, .index = 0 };
	struct ibv_counter_attach_attr packets = { .counter_desc = IBV_COUNTER_PACKETS,
						   .index = 1 };
	struct mlx5dv_flow_matcher *matcher = flow_matcher(MLX5DV_FLOW_TABLE_TYPE_NIC_RX);
	struct ibv_counters *counters = ibv_create_counters(kit.ctx, &init);
	struct mlx5dv_flow_action_attr actions[] = {
		{ MLX5DV_FLOW_ACTION_IBV_COUNTER, .counter = counters },
		{ MLX5DV_FLOW_ACTION_DROP },
		{ MLX5DV_FLOW_ACTION_IBV_COUNTER, .counter = counters },
	};
	struct ibv_flow *flow[2];
	uint64_t got[2];

	(void)state;
	assert_non_null(counters);
	assert_ok(ibv_attach_counters_point_flow(counters, &bytes, NULL));
	assert_ok(ibv_attach_counters_point_flow(counters, &packets, NULL));
	for (uint64_t i = 0; i < 2; i++) {
		struct param value = param_of(64, BIT_DMAC, 48, MAC + i);

		assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 3, actions), EINVAL);
		flow[i] = mlx5dv_create_flow(matcher, match(&value), 2, actions);
		assert_non_null(flow[i]);
	}
	assert_int_equal(ibv_destroy_counters(counters), EBUSY);
	for (uint64_t i = 0; i < 3; i++) {
		kit_frame(MAC + i, 1);
		kit_run(VB_STEER_NIC_RX);
	}
	assert_ok(ibv_read_counters(counters, got, 2, 0));
	assert_int_equal(got[0], 2 * kit.len);
	assert_int_equal(got[1], 2);
	assert_ok(ibv_destroy_flow(flow[0]));
	assert_int_equal(ibv_destroy_counters(counters), EBUSY);
	assert_ok(ibv_destroy_flow(flow[1]));
	assert_ok(ibv_destroy_counters(counters));
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
}

static void drop_and_miss(void **state)
{
	static const enum mlx5dv_flow_table_type types[] = { MLX5DV_FLOW_TABLE_TYPE_NIC_RX,
							     MLX5DV_FLOW_TABLE_TYPE_NIC_TX,
							     MLX5DV_FLOW_TABLE_TYPE_FDB };
	static const enum vb_steer_kind kinds[] = { VB_STEER_NIC_RX, VB_STEER_NIC_TX,
						    VB_STEER_FDB };
	struct param value = param_of(64, BIT_DMAC, 48, MAC);

	(void)state;
	kit_frame(MAC, 1);
	for (int i = 0; i < 3; i++) {
		struct mlx5dv_flow_matcher *matcher = flow_matcher(types[i]);
		struct mlx5dv_flow_action_attr action = { MLX5DV_FLOW_ACTION_DROP };
		struct ibv_flow *flow = mlx5dv_create_flow(matcher, match(&value), 1, &action);

		assert_non_null(flow);
		assert_int_equal(kit_run(kinds[i]), VB_STEER_DROPPED);
		assert_ok(ibv_destroy_flow(flow));
		action.type = MLX5DV_FLOW_ACTION_DEFAULT_MISS;
		flow = mlx5dv_create_flow(matcher, match(&value), 1, &action);
		assert_non_null(flow);
		kit_run(kinds[i]);
		assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_DEFAULT);
		assert_ok(ibv_destroy_flow(flow));
		assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	}
}

/* The device is closed over a flow and its matcher; a reformat in a flow of NIC_TX. */
static void life(void **state)
{
	uint8_t header[50] = { 0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 8, 0, 0x45 };
	struct mlx5dv_flow_matcher *matcher = flow_matcher(MLX5DV_FLOW_TABLE_TYPE_NIC_TX);
	struct param value = param_of(64, BIT_DMAC, 48, MAC);
	struct ibv_flow_action *encap = mlx5dv_create_flow_action_packet_reformat(
		kit.ctx, sizeof(header), header,
		MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL,
		MLX5DV_FLOW_TABLE_TYPE_NIC_TX);
	struct mlx5dv_flow_action_attr action = { MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION,
						  .action = encap };
	struct ibv_flow *flow = mlx5dv_create_flow(matcher, match(&value), 1, &action);

	(void)state;
	assert_non_null(flow);
	kit_frame(MAC, 1);
	kit_run(VB_STEER_NIC_TX);
	assert_int_equal(kit.caught[0].len, kit.len + sizeof(header));
	assert_ok(ibv_destroy_cq(kit.cq)); /* of one that is left the memory would stay */
	assert_ok(ibv_close_device(kit.ctx));
	free(kit.pd); /* its struct stays */
	kit.ctx = NULL;
	kit_open(NULL);
	kit_frame(MAC, 1);
	kit_run(VB_STEER_NIC_TX);
	assert_int_equal(kit.caught[0].len, kit.len);
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 1, &action), EINVAL);
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	/* As those of the real library, ibv_destroy_flow*() go through the context, which is gone. */
	flow->context = encap->context = kit.ctx;
	assert_ok(ibv_destroy_flow(flow));
	assert_ok(ibv_destroy_flow_action(encap));
}

static void refused_matchers(void **state)
{
	struct param mask = param_of(64, BIT_DMAC, 48, UINT64_MAX);
	const struct mlx5dv_flow_matcher_attr good = { .type = IBV_FLOW_ATTR_NORMAL,
						       .match_criteria_enable = OUTER,
						       .match_mask = match(&mask) };
	struct mlx5dv_flow_matcher_attr attr = good;
	struct mlx5dv_flow_matcher *matcher;

	(void)state;
	assert_null_errno(mlx5dv_create_flow_matcher(NULL, &attr), EINVAL);
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, NULL), EINVAL);
	attr.comp_mask = 2;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EOPNOTSUPP);
	attr = good;
	attr.type = IBV_FLOW_ATTR_SNIFFER;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EOPNOTSUPP);
	attr = good;
	attr.flags = 1u << 5;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EOPNOTSUPP);
	attr = good;
	attr.match_mask = NULL;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EINVAL);
	attr = good;
	attr.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE;
	attr.ft_type = MLX5DV_FLOW_TABLE_TYPE_RDMA_RX;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EOPNOTSUPP);
	attr.ft_type = (enum mlx5dv_flow_table_type)9;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EINVAL);
	attr.ft_type = MLX5DV_FLOW_TABLE_TYPE_NIC_TX;
	attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EINVAL);
	attr = good;
	attr.match_criteria_enable = 0x80;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EINVAL);
	attr = good;
	mask.match_sz = 513;
	assert_null_errno(mlx5dv_create_flow_matcher(kit.ctx, &attr), EINVAL);
	mask.match_sz = 64;
	attr = good;
	attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	matcher = mlx5dv_create_flow_matcher(kit.ctx, &attr);
	assert_non_null(matcher);
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	assert_int_equal(mlx5dv_destroy_flow_matcher(NULL), EINVAL);
}

static void refused_flows(void **state)
{
	struct mlx5dv_flow_matcher *matcher = flow_matcher(MLX5DV_FLOW_TABLE_TYPE_FDB);
	struct param value = param_of(64, BIT_DMAC, 48, MAC);
	struct mlx5dv_flow_action_attr actions[17] = { { MLX5DV_FLOW_ACTION_DROP } };
	uint64_t set = htobe64(1ull << 60 | 4ull << 48 | 1);
	struct ibv_flow_action *modify;

	(void)state;
	assert_null_errno(mlx5dv_create_flow(NULL, match(&value), 1, actions), EINVAL);
	assert_null_errno(mlx5dv_create_flow(matcher, NULL, 1, actions), EINVAL);
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 1, NULL), EINVAL);
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 17, actions), EINVAL);
	actions[1] = (struct mlx5dv_flow_action_attr){ MLX5DV_FLOW_ACTION_DEFAULT_MISS };
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 2, actions), EINVAL);
	actions[1] =
		(struct mlx5dv_flow_action_attr){ MLX5DV_FLOW_ACTION_TAG, .tag_value = 1u << 24 };
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 2, actions), EINVAL);
	actions[1].tag_value = 1; /* not in FDB */
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 2, actions), EINVAL);
	/* no counters */
	actions[1] = (struct mlx5dv_flow_action_attr){ MLX5DV_FLOW_ACTION_IBV_COUNTER };
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 2, actions), EINVAL);
	actions[1].type = (enum mlx5dv_flow_action_type)8;
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 2, actions), EOPNOTSUPP);
	actions[1] = (struct mlx5dv_flow_action_attr){ MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION };
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 2, actions), EINVAL);
	modify = mlx5dv_create_flow_action_modify_header(kit.ctx, 8, &set,
							 MLX5DV_FLOW_TABLE_TYPE_NIC_RX);
	actions[1].action = modify;
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 2, actions), EINVAL);
	assert_ok(ibv_destroy_flow_action(modify));
	value = param_of(64, BIT_SMAC, 48, 1);
	assert_null_errno(mlx5dv_create_flow(matcher, match(&value), 1, actions), EINVAL);
	assert_ok(mlx5dv_destroy_flow_matcher(matcher));
	assert_null_errno(mlx5dv_create_flow_action_modify_header(NULL, 8, &set, 0), EINVAL);
	assert_null_errno(mlx5dv_create_flow_action_modify_header(kit.ctx, 7, &set, 0), EINVAL);
	assert_null_errno(mlx5dv_create_flow_action_modify_header(kit.ctx, 8, &set,
								  MLX5DV_FLOW_TABLE_TYPE_RDMA_TX),
			  EOPNOTSUPP);
	assert_null_errno(mlx5dv_create_flow_action_packet_reformat(kit.ctx, 0, NULL, 9, 0),
			  EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(to_a_tir),         cmocka_unit_test(drop_and_miss),
		cmocka_unit_test(verbs_counters),   cmocka_unit_test(life),
		cmocka_unit_test(refused_matchers), cmocka_unit_test(refused_flows),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
