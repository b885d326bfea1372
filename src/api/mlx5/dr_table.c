// SPDX-License-Identifier: MIT
/* Steering tables. All tables of level 0 are the root: a frame meets their matchers by priority. */
#include "dr.h"

VB_PUBLIC struct mlx5dv_dr_table *mlx5dv_dr_table_create(struct mlx5dv_dr_domain *domain,
							 uint32_t level)
{
	struct mlx5dv_dr_table *table;
	int err;

	API_CALL(.kind = "table");
	if (!domain)
		return api_refuse_null(null, "domain");
	if (!domain->left.context)
		return api_refuse_null(combination, "the context is closed");
	table = calloc(1, sizeof(*table));
	if (!table)
		return api_refuse_null(memory, "the table");
	err = vb_steer_table_create(domain->steer, level, &table->steer);
	if (err) {
		free(table);
		return api_null(-dr_refuse(err, "the table"));
	}
	table->domain = domain;
	vb_list_init(&table->matchers);
	vb_lock(&domain->lock);
	vb_list_add_tail(&domain->tables, &table->node);
	vb_unlock(&domain->lock);
	atomic_fetch_add_explicit(&domain->users, 1, memory_order_relaxed);
	return table;
}

VB_PUBLIC int mlx5dv_dr_table_destroy(struct mlx5dv_dr_table *table)
{
	struct mlx5dv_dr_domain *domain;
	int err;

	API_CALL(.kind = "table");
	if (!table)
		return api_refuse(null, "table");
	domain = table->domain;
	/* Dumps must not meet it any more; it comes back where it cannot go. */
	vb_lock(&domain->lock);
	vb_list_del(&table->node);
	vb_unlock(&domain->lock);
	/* Where the context is closed, matchers still name the table. */
	err = table->steer                       ? vb_steer_table_destroy(table->steer)
	      : !vb_list_empty(&table->matchers) ? -EBUSY
						 : 0;
	if (err) {
		vb_lock(&domain->lock);
		vb_list_add_tail(&domain->tables, &table->node);
		vb_unlock(&domain->lock);
		return api_fail(-dr_refuse(err, "matchers, or actions that lead to it"));
	}
	free(table);
	atomic_fetch_sub_explicit(&domain->users, 1, memory_order_release);
	return 0;
}
