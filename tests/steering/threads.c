// SPDX-License-Identifier: MIT
/*
 * Many threads at once on one domain and one TIR: rules, matchers, tables and actions come and go
 * while others dump the domain, send frames through it and try to destroy the TIR.
 */
#include "kit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/rcu.h"

enum { MAKERS = 3, ROUNDS = 40 };

static struct mlx5dv_dr_domain *domain;
static struct mlx5dv_devx_obj *tir;
static _Atomic int makers;

static void make_and_end(uint64_t mac)
{
	struct mlx5dv_dr_table *root = make_table(domain, 0), *deep = make_table(domain, 1);
	struct mlx5dv_dr_matcher *first = make_matcher(root), *second = make_matcher(deep);
	struct mlx5dv_dr_action *go = mlx5dv_dr_action_create_dest_table(deep);
	struct mlx5dv_dr_action *to = mlx5dv_dr_action_create_dest_devx_tir(tir);
	struct mlx5dv_dr_rule *a = make_rule(first, mac, go), *b = make_rule(second, mac, to);

	assert_int_equal(mlx5dv_dr_table_destroy(deep), EBUSY);
	assert_int_equal(mlx5dv_devx_obj_destroy(tir), EBUSY);
	assert_ok(mlx5dv_dr_rule_destroy(a));
	assert_ok(mlx5dv_dr_action_destroy(go));
	assert_ok(mlx5dv_dr_rule_destroy(b));
	assert_ok(mlx5dv_dr_action_destroy(to));
	assert_ok(mlx5dv_dr_matcher_destroy(second));
	assert_ok(mlx5dv_dr_matcher_destroy(first));
	assert_ok(mlx5dv_dr_table_destroy(deep));
	assert_ok(mlx5dv_dr_table_destroy(root));
}

static void *maker(void *arg)
{
	for (int i = 0; i < ROUNDS; i++)
		make_and_end(MAC + (uintptr_t)arg % 2);
	atomic_fetch_sub_explicit(&makers, 1, memory_order_release);
	return NULL;
}

static void *dumper(void *arg)
{
	FILE *to = fopen("/dev/null", "w");

	(void)arg;
	assert_non_null(to);
	while (atomic_load_explicit(&makers, memory_order_acquire))
		assert_ok(mlx5dv_dump_dr_domain(to, domain));
	fclose(to);
	return NULL;
}

static void count_tirs(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
		       const struct vb_steer_meta *meta)
{
	(void)f;
	(void)meta;
	if (dest->to == VB_STEER_TO_OWNER && dest->kind == VB_FLOW_TIR)
		++*(unsigned int *)arg;
}

static void *sender(void *arg)
{
	struct vb_steer *steer = vb_flow_domain(vb_verbs_dev(kit.ctx), VB_STEER_NIC_RX);
	struct vb_frame f = { .data = kit.frame, .len = kit.len };
	struct vb_steer_meta meta = { 0 };

	vb_frame_parse(&f);
	while (atomic_load_explicit(&makers, memory_order_acquire)) {
		vb_read_lock();
		vb_steer_run(steer, &f, &meta, NULL, count_tirs, arg);
		vb_read_unlock();
	}
	return NULL;
}

static void all_at_once(void **state)
{
	static struct queue queue;
	struct mlx5dv_dr_action *keep;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_rule *rule;
	pthread_t threads[MAKERS + 2];
	unsigned int arrived = 0;
	uint32_t number;

	(void)state;
	queue_open(&queue);
	tir = make_tir(&queue, &number);
	domain = make_domain(MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	/* One rule holds the TIR all the time, so that no thread can really destroy it. */
	keep = mlx5dv_dr_action_create_dest_devx_tir(tir);
	table = make_table(domain, 2);
	matcher = make_matcher(table);
	rule = make_rule(matcher, MAC, keep);
	kit_frame(MAC, 1);
	atomic_store_explicit(&makers, MAKERS, memory_order_release);
	for (uintptr_t i = 0; i < MAKERS; i++)
		assert_ok(pthread_create(&threads[i], NULL, maker, (void *)i));
	assert_ok(pthread_create(&threads[MAKERS], NULL, dumper, NULL));
	assert_ok(pthread_create(&threads[MAKERS + 1], NULL, sender, &arrived));
	for (int i = 0; i < MAKERS + 2; i++)
		assert_ok(pthread_join(threads[i], NULL));
	assert_ok(mlx5dv_dr_rule_destroy(rule));
	assert_ok(mlx5dv_devx_obj_destroy(tir));
	assert_ok(mlx5dv_dr_action_destroy(keep));
	assert_ok(mlx5dv_dr_matcher_destroy(matcher));
	assert_ok(mlx5dv_dr_table_destroy(table));
	assert_ok(mlx5dv_dr_domain_destroy(domain));
	queue_close(&queue);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(all_at_once) };

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
