// SPDX-License-Identifier: MIT
/*
 * Domains, tables, matchers and rules: what is in use stays, what is destroyed is out of effect,
 * dumps name all.
 */
#include "kit.h"

static void all_kinds(void **state)
{
	(void)state;
	for (int type = MLX5DV_DR_DOMAIN_TYPE_NIC_RX; type <= MLX5DV_DR_DOMAIN_TYPE_FDB; type++) {
		struct mlx5dv_dr_domain *domain = make_domain((enum mlx5dv_dr_domain_type)type);
		struct mlx5dv_dr_table *table = make_table(domain, 0);
		struct mlx5dv_dr_matcher *matcher = make_matcher(table);
		struct mlx5dv_dr_action *drop = mlx5dv_dr_action_create_drop();
		struct mlx5dv_dr_rule *rule = make_rule(matcher, MAC, drop);
		enum vb_steer_kind kind = type == MLX5DV_DR_DOMAIN_TYPE_NIC_RX   ? VB_STEER_NIC_RX
					  : type == MLX5DV_DR_DOMAIN_TYPE_NIC_TX ? VB_STEER_NIC_TX
										 : VB_STEER_FDB;

		kit_frame(MAC, 1);
		assert_int_equal(kit_run(kind), VB_STEER_DROPPED);
		kit_frame(MAC + 1, 1);
		assert_int_equal(kit_run(kind), VB_STEER_EMITTED | VB_STEER_MISSED);
		assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_DEFAULT);
		assert_ok(mlx5dv_dr_rule_destroy(rule));
		kit_frame(MAC, 1);
		assert_int_equal(kit_run(kind), VB_STEER_EMITTED | VB_STEER_MISSED);
		assert_ok(mlx5dv_dr_action_destroy(drop));
		assert_ok(mlx5dv_dr_matcher_destroy(matcher));
		assert_ok(mlx5dv_dr_table_destroy(table));
		assert_ok(mlx5dv_dr_domain_destroy(domain));
	}
}

/* As programs do it that destroy in the wrong order and ignore what comes back. */
static void in_use(void **state)
{
	struct mlx5dv_dr_domain *domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	struct mlx5dv_dr_table *root = make_table(domain, 0), *deep = make_table(domain, 1);
	struct mlx5dv_dr_matcher *matcher = make_matcher(root);
	struct mlx5dv_dr_action *go = mlx5dv_dr_action_create_dest_table(deep);
	struct mlx5dv_dr_rule *rule = make_rule(matcher, MAC, go);

	(void)state;
	assert_int_equal(mlx5dv_dr_domain_destroy(domain), EBUSY);
	assert_int_equal(mlx5dv_dr_table_destroy(root), EBUSY);
	assert_int_equal(mlx5dv_dr_table_destroy(deep), EBUSY);
	assert_int_equal(mlx5dv_dr_matcher_destroy(matcher), EBUSY);
	assert_int_equal(mlx5dv_dr_action_destroy(go), EBUSY);
	assert_ok(mlx5dv_dr_rule_destroy(rule));
	assert_int_equal(mlx5dv_dr_table_destroy(root), EBUSY);
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	assert_ok(mlx5dv_dr_table_destroy(root));
	assert_int_equal(mlx5dv_dr_table_destroy(deep), EBUSY);
	assert_ok(mlx5dv_dr_action_destroy(go));
	assert_int_equal(mlx5dv_dr_domain_destroy(domain), EBUSY);
	assert_ok(mlx5dv_dr_table_destroy(deep));
	assert_ok(mlx5dv_dr_domain_destroy(domain));
}

/*
 * The rules of public programs: dmac in 64 bytes; every frame by an empty mask of 512 bytes,
 * criteria 0.
 */
static void usual_matchers(void **state)
{
	struct mlx5dv_dr_domain *domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	struct mlx5dv_dr_table *table = make_table(domain, 0);
	struct param all = { .match_sz = 512 };
	struct mlx5dv_dr_matcher *by_mac = make_matcher(table);
	struct mlx5dv_dr_matcher *every = mlx5dv_dr_matcher_create(table, 1, 0, match(&all));
	struct mlx5dv_dr_matcher *none = mlx5dv_dr_matcher_create(table, 2, 0, NULL);
	struct mlx5dv_dr_action *drop = mlx5dv_dr_action_create_drop();
	struct mlx5dv_dr_action *miss = mlx5dv_dr_action_create_default_miss();
	struct mlx5dv_dr_rule *first, *rest;

	(void)state;
	assert_non_null(every);
	assert_non_null(none);
	first = make_rule(by_mac, MAC, miss);
	rest = mlx5dv_dr_rule_create(every, match(&all), 1, &drop);
	assert_non_null(rest);
	kit_frame(MAC, 1);
	assert_int_equal(kit_run(VB_STEER_NIC_RX), VB_STEER_EMITTED | VB_STEER_MISSED);
	kit_frame(MAC + 1, 1);
	assert_int_equal(kit_run(VB_STEER_NIC_RX), VB_STEER_DROPPED);
	assert_ok(mlx5dv_dr_rule_destroy(rest));
	assert_ok(mlx5dv_dr_rule_destroy(first));
	assert_ok(mlx5dv_dr_matcher_destroy(none));
	assert_ok(mlx5dv_dr_matcher_destroy(every));
	assert_ok(mlx5dv_dr_matcher_destroy(by_mac));
	assert_ok(mlx5dv_dr_action_destroy(miss));
	assert_ok(mlx5dv_dr_action_destroy(drop));
	assert_ok(mlx5dv_dr_table_destroy(table));
	assert_ok(mlx5dv_dr_domain_destroy(domain));
}

/*
 * Send side: a root rule to level 1, and there to the wire; the miss of level 1 is the manager's.
 */
static void to_the_wire(void **state)
{
	struct mlx5dv_dr_domain *domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_FDB);
	struct mlx5dv_dr_table *root = make_table(domain, 0), *deep = make_table(domain, 1);
	struct mlx5dv_dr_matcher *root_matcher = make_matcher(root), *matcher = make_matcher(deep);
	struct mlx5dv_dr_action *go = mlx5dv_dr_action_create_dest_table(deep);
	struct mlx5dv_dr_action *wire = mlx5dv_dr_action_create_dest_vport(domain, 0xffff);
	struct mlx5dv_dr_rule *a = make_rule(root_matcher, MAC, go);
	struct mlx5dv_dr_rule *b = make_rule(root_matcher, MAC + 1, go);
	struct mlx5dv_dr_rule *c = make_rule(matcher, MAC, wire);

	(void)state;
	kit_frame(MAC, 1);
	assert_int_equal(kit_run(VB_STEER_FDB), VB_STEER_EMITTED);
	assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_OWNER);
	assert_int_equal(kit.caught[0].dest.kind, VB_FLOW_VPORT);
	assert_int_equal(kit.caught[0].dest.number, VB_VPORT_WIRE);
	kit_frame(MAC + 1, 1);
	kit_run(VB_STEER_FDB);
	assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_MANAGER);
	kit_frame(MAC + 2, 1);
	kit_run(VB_STEER_FDB);
	assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_DEFAULT);
	/* The tables first, as some programs do, and again behind the rest. */
	assert_ok(mlx5dv_dr_rule_destroy(c));
	assert_ok(mlx5dv_dr_rule_destroy(b));
	assert_ok(mlx5dv_dr_rule_destroy(a));
	assert_int_equal(mlx5dv_dr_table_destroy(deep), EBUSY);
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	assert_ok(mlx5dv_dr_matcher_destroy(root_matcher));
	assert_ok(mlx5dv_dr_action_destroy(go));
	assert_ok(mlx5dv_dr_table_destroy(deep));
	assert_ok(mlx5dv_dr_table_destroy(root));
	assert_ok(mlx5dv_dr_domain_destroy(domain));
	assert_ok(mlx5dv_dr_action_destroy(wire));
}

static void duplicates(void **state)
{
	struct mlx5dv_dr_domain *domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	struct mlx5dv_dr_table *root = make_table(domain, 0), *deep = make_table(domain, 1);
	struct mlx5dv_dr_matcher *root_matcher = make_matcher(root), *matcher = make_matcher(deep);
	struct mlx5dv_dr_action *drop = mlx5dv_dr_action_create_drop();
	struct param value = param_of(64, BIT_DMAC, 48, MAC);
	struct mlx5dv_dr_rule *rule[4];

	(void)state;
	rule[0] = make_rule(matcher, MAC, drop);
	rule[1] = make_rule(matcher, MAC, drop);
	mlx5dv_dr_domain_allow_duplicate_rules(domain, false);
	assert_null_errno(mlx5dv_dr_rule_create(matcher, match(&value), 1, &drop), EEXIST);
	rule[2] = make_rule(root_matcher, MAC, drop);
	rule[3] = make_rule(root_matcher, MAC, drop); /* only deeper levels care */
	for (int i = 0; i < 4; i++)
		assert_ok(mlx5dv_dr_rule_destroy(rule[i]));
	rule[0] = make_rule(matcher, MAC, drop);
	mlx5dv_dr_domain_allow_duplicate_rules(domain, true);
	rule[1] = make_rule(matcher, MAC, drop);
	assert_ok(mlx5dv_dr_rule_destroy(rule[1]));
	assert_ok(mlx5dv_dr_rule_destroy(rule[0]));
	assert_ok(mlx5dv_dr_action_destroy(drop));
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	assert_ok(mlx5dv_dr_matcher_destroy(root_matcher));
	assert_ok(mlx5dv_dr_table_destroy(deep));
	assert_ok(mlx5dv_dr_table_destroy(root));
	assert_ok(mlx5dv_dr_domain_destroy(domain));
}

static void settings(void **state)
{
	struct mlx5dv_dr_matcher_layout layout = { MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE, 10 };
	struct mlx5dv_dr_domain *domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	struct mlx5dv_dr_table *root = make_table(domain, 0), *deep = make_table(domain, 1);
	struct mlx5dv_dr_matcher *root_matcher = make_matcher(root), *matcher = make_matcher(deep);

	(void)state;
	assert_ok(mlx5dv_dr_domain_sync(domain, MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW |
							MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW |
							MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM));
	assert_int_equal(mlx5dv_dr_domain_sync(domain, 8), EOPNOTSUPP);
	mlx5dv_dr_domain_set_reclaim_device_memory(domain, true);
	assert_ok(mlx5dv_dr_matcher_set_layout(matcher, &layout));
	assert_int_equal(mlx5dv_dr_matcher_set_layout(root_matcher, &layout), ENOTSUP);
	layout.log_num_of_rules_hint = 40;
	assert_int_equal(mlx5dv_dr_matcher_set_layout(matcher, &layout), ENOTSUP);
	layout.flags = MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE;
	assert_ok(mlx5dv_dr_matcher_set_layout(matcher, &layout));
	layout.flags = 4;
	assert_int_equal(mlx5dv_dr_matcher_set_layout(matcher, &layout), ENOTSUP);
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	assert_ok(mlx5dv_dr_matcher_destroy(root_matcher));
	assert_ok(mlx5dv_dr_table_destroy(deep));
	assert_ok(mlx5dv_dr_table_destroy(root));
	assert_ok(mlx5dv_dr_domain_destroy(domain));
}

static unsigned int count(const char *text, const char *word)
{
	unsigned int n = 0;

	while ((text = strstr(text, word))) {
		n++;
		text += strlen(word);
	}
	return n;
}

#define DUMPED(call)                           \
	do {                                   \
		rewind(to);                    \
		memset(text, 0, sizeof(text)); \
		assert_ok(call);               \
		assert_ok(fflush(to));         \
	} while (0)

/* Two domains of one kind: a dump shows the objects of its own. */
static void dumps(void **state)
{
	static char text[8192];
	struct mlx5dv_dr_domain *domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_FDB);
	struct mlx5dv_dr_domain *other = make_domain(MLX5DV_DR_DOMAIN_TYPE_FDB);
	struct mlx5dv_dr_table *table = make_table(domain, 0), *deep = make_table(domain, 2);
	struct mlx5dv_dr_table *other_table = make_table(other, 0);
	struct mlx5dv_dr_matcher *matcher = make_matcher(table);
	struct mlx5dv_dr_matcher *other_matcher = make_matcher(other_table);
	struct mlx5dv_dr_action *drop = mlx5dv_dr_action_create_drop();
	struct mlx5dv_dr_rule *a = make_rule(matcher, MAC, drop);
	struct mlx5dv_dr_rule *b = make_rule(matcher, MAC + 1, drop);
	struct mlx5dv_dr_rule *c = make_rule(other_matcher, MAC, drop);
	FILE *to = fmemopen(text, sizeof(text) - 1, "w");

	(void)state;
	assert_non_null(to);
	DUMPED(mlx5dv_dump_dr_domain(to, domain));
	assert_int_equal(count(text, "domain "), 1);
	assert_non_null(strstr(text, " FDB"));
	assert_int_equal(count(text, "table "), 2);
	assert_non_null(strstr(text, "level 2"));
	assert_int_equal(count(text, "matcher "), 1);
	assert_int_equal(count(text, "rule "), 2);
	DUMPED(mlx5dv_dump_dr_table(to, deep));
	assert_int_equal(count(text, "matcher "), 0);
	DUMPED(mlx5dv_dump_dr_table(to, other_table));
	assert_int_equal(count(text, "rule "), 1);
	DUMPED(mlx5dv_dump_dr_matcher(to, matcher));
	assert_int_equal(count(text, "rule "), 2);
	DUMPED(mlx5dv_dump_dr_rule(to, b));
	assert_int_equal(count(text, "rule "), 1);
	assert_non_null(strstr(text, "drop"));
	assert_int_equal(mlx5dv_dump_dr_rule(NULL, b), -EINVAL);
	assert_int_equal(mlx5dv_dump_dr_domain(to, NULL), -EINVAL);
	assert_int_equal(mlx5dv_dump_dr_table(to, NULL), -EINVAL);
	assert_int_equal(mlx5dv_dump_dr_matcher(to, NULL), -EINVAL);
	fclose(to);
	assert_ok(mlx5dv_dr_rule_destroy(a));
	assert_ok(mlx5dv_dr_rule_destroy(b));
	assert_ok(mlx5dv_dr_rule_destroy(c));
	assert_ok(mlx5dv_dr_action_destroy(drop));
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	assert_ok(mlx5dv_dr_matcher_destroy(other_matcher));
	assert_ok(mlx5dv_dr_table_destroy(table));
	assert_ok(mlx5dv_dr_table_destroy(deep));
	assert_ok(mlx5dv_dr_table_destroy(other_table));
	assert_ok(mlx5dv_dr_domain_destroy(domain));
	assert_ok(mlx5dv_dr_domain_destroy(other));
}

/* The device is closed over all of them: no frame meets them any more, and the program's handles can be destroyed. */
static void closed(void **state)
{
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *root, *deep;
	struct mlx5dv_dr_matcher *matcher, *below;
	struct mlx5dv_dr_action *go, *drop = mlx5dv_dr_action_create_drop(), *both, *wire;
	struct mlx5dv_dr_action_dest_attr dest[2] = { { .type = MLX5DV_DR_ACTION_DEST },
						      { .type = MLX5DV_DR_ACTION_DEST } };
	struct mlx5dv_dr_rule *rule[3];
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	(void)state;
	kit_close(NULL);
	kit.ctx = NULL;
	kit_open(NULL);
	domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_FDB);
	root = make_table(domain, 0);
	deep = make_table(domain, 1);
	matcher = make_matcher(root);
	below = make_matcher(deep);
	go = mlx5dv_dr_action_create_dest_table(deep);
	wire = mlx5dv_dr_action_create_dest_vport(domain, 0xffff);
	dest[0].dest = go;
	dest[1].dest = wire;
	both = mlx5dv_dr_action_create_dest_array(
		domain, 2, (struct mlx5dv_dr_action_dest_attr *[]){ &dest[0], &dest[1] });
	assert_non_null(both);
	rule[0] = make_rule(matcher, MAC, go);
	rule[1] = make_rule(below, MAC, drop);
	rule[2] = make_rule(matcher, MAC + 1, both);
	kit_frame(MAC, 1);
	assert_int_equal(kit_run(VB_STEER_FDB), VB_STEER_DROPPED);
	assert_ok(ibv_destroy_cq(kit.cq)); /* of one that is left the memory would stay */
	assert_ok(ibv_close_device(kit.ctx));
	free(kit.pd); /* its struct stays */
	kit.ctx = NULL;
	kit_open(NULL);
	for (int i = 0; i < 2; i++) {
		kit_frame(MAC + (uint64_t)i, 1);
		assert_int_equal(kit_run(VB_STEER_FDB), VB_STEER_EMITTED | VB_STEER_MISSED);
		assert_int_equal(kit.caught[0].dest.to, VB_STEER_TO_DEFAULT);
	}
	assert_null_errno(mlx5dv_dr_table_create(domain, 0), EINVAL);
	assert_null_errno(mlx5dv_dr_matcher_create(deep, 0, 0, NULL), EINVAL);
	assert_null_errno(mlx5dv_dr_rule_create(matcher, NULL, 0, NULL), EINVAL);
	assert_null_errno(mlx5dv_dr_action_create_dest_table(deep), EINVAL);
	assert_ok(mlx5dv_dump_dr_domain(to, domain));
	assert_ok(mlx5dv_dump_dr_matcher(to, matcher));
	assert_ok(mlx5dv_dump_dr_rule(to, rule[0]));
	fclose(to);
	free(text);
	/* What is below keeps what is above, as before. */
	assert_int_equal(mlx5dv_dr_domain_destroy(domain), EBUSY);
	assert_int_equal(mlx5dv_dr_table_destroy(root), EBUSY);
	for (int i = 0; i < 3; i++)
		assert_ok(mlx5dv_dr_rule_destroy(rule[i]));
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	assert_ok(mlx5dv_dr_matcher_destroy(below));
	assert_ok(mlx5dv_dr_table_destroy(root));
	assert_ok(mlx5dv_dr_table_destroy(deep));
	assert_ok(mlx5dv_dr_action_destroy(both));
	assert_ok(mlx5dv_dr_action_destroy(go));
	assert_ok(mlx5dv_dr_action_destroy(wire));
	assert_ok(mlx5dv_dr_action_destroy(drop));
	assert_ok(mlx5dv_dr_domain_destroy(domain));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_kinds),      cmocka_unit_test(in_use),
		cmocka_unit_test(usual_matchers), cmocka_unit_test(to_the_wire),
		cmocka_unit_test(duplicates),     cmocka_unit_test(settings),
		cmocka_unit_test(dumps),          cmocka_unit_test(closed),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
