// SPDX-License-Identifier: MIT
/* As many rules as programs have at most, in tables behind one another: each is found, and those that went are not. */
#include "kit.h"

enum { LEVELS = 3, ACTIONS = 16 };

static uint32_t rules;

/* The MAC of a rule: no order in them. */
static uint64_t mac_of(uint32_t i)
{
	return 0x020000000000ull | (uint64_t)(i * 2654435761u) << 4 | (i & 0xf);
}

static void expect(uint32_t i, bool there)
{
	kit_frame(mac_of(i), 1);
	if (!there) {
		assert_int_equal(kit_run(VB_STEER_NIC_RX), VB_STEER_DROPPED | VB_STEER_MISSED);
		return;
	}
	assert_int_equal(kit_run(VB_STEER_NIC_RX), VB_STEER_EMITTED);
	assert_int_equal(kit.count, 1);
	assert_int_equal(kit.caught[0].meta.tag, i % ACTIONS + 1);
}

static void a_million(void **state)
{
	struct mlx5dv_dr_domain *domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	struct mlx5dv_dr_rule **rule = calloc(rules, sizeof(*rule)), *way[LEVELS];
	struct mlx5dv_dr_action *tag[ACTIONS], *go[LEVELS], *actions[2], *tir;
	struct mlx5dv_dr_table *table[LEVELS];
	struct mlx5dv_dr_matcher *matcher[LEVELS];
	struct param every = { .match_sz = 64 }, value;
	struct mlx5dv_devx_obj *obj;
	static struct queue queue;
	uint32_t number;

	assert_non_null(rule);
	queue_open(&queue);
	obj = make_tir(&queue, &number);
	tir = mlx5dv_dr_action_create_dest_devx_tir(obj);
	for (uint32_t i = 0; i < ACTIONS; i++)
		assert_non_null(tag[i] = mlx5dv_dr_action_create_tag(i + 1));
	for (uint32_t i = 0; i < LEVELS; i++)
		table[i] = make_table(domain, i);
	for (uint32_t i = 0; i + 1 < LEVELS; i++) {
		matcher[i] = mlx5dv_dr_matcher_create(table[i], 0, 0, match(&every));
		go[i] = mlx5dv_dr_action_create_dest_table(table[i + 1]);
		way[i] = mlx5dv_dr_rule_create(matcher[i], match(&every), 1, &go[i]);
		assert_non_null(way[i]);
	}
	matcher[LEVELS - 1] = make_matcher(table[LEVELS - 1]);
	actions[1] = tir;
	for (uint32_t i = 0; i < rules; i++) {
		actions[0] = tag[i % ACTIONS];
		value = param_of(64, BIT_DMAC, 48, mac_of(i));
		rule[i] = mlx5dv_dr_rule_create(matcher[LEVELS - 1], match(&value), 2, actions);
		assert_non_null(rule[i]);
	}
	for (uint32_t i = 0; i < rules; i += 7)
		expect(i, true);
	for (uint32_t i = 0; i < rules; i += 2)
		assert_ok(mlx5dv_dr_rule_destroy(rule[i]));
	for (uint32_t i = 0; i < rules; i += 7)
		expect(i, i % 2);
	for (uint32_t i = 1; i < rules; i += 2)
		assert_ok(mlx5dv_dr_rule_destroy(rule[i]));
	expect(1, false);
	assert_ok(mlx5dv_dr_matcher_destroy(matcher[LEVELS - 1]));
	for (uint32_t i = 0; i + 1 < LEVELS; i++) {
		assert_ok(mlx5dv_dr_rule_destroy(way[i]));
		assert_ok(mlx5dv_dr_matcher_destroy(matcher[i]));
		assert_ok(mlx5dv_dr_action_destroy(go[i]));
	}
	for (uint32_t i = 0; i < ACTIONS; i++)
		assert_ok(mlx5dv_dr_action_destroy(tag[i]));
	for (uint32_t i = 0; i < LEVELS; i++)
		assert_ok(mlx5dv_dr_table_destroy(table[i]));
	assert_ok(mlx5dv_dr_action_destroy(tir));
	assert_ok(mlx5dv_devx_obj_destroy(obj));
	queue_close(&queue);
	assert_ok(mlx5dv_dr_domain_destroy(domain));
	free(rule);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_million) };

	rules = getenv("VERBATIM_TEST_LONG") ? 1000000 : 50000;
	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
