// SPDX-License-Identifier: MIT
/*
 * Steering domains: a view of the adapter's rules of one kind. Rules of all domains of a kind are
 * in one engine, where level 0 is common and deeper tables are the domain's own.
 */
#include "dr.h"

enum {
	SYNC_FLAGS = MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW | MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW |
		     MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM,
};

int dr_refuse(int err, const char *why)
{
	switch (err) {
	case -EBUSY:
		return vb_refuse_busy(why);
	case -EEXIST:
		return vb_refuse_exists(why);
	case -EOPNOTSUPP:
		return vb_refuse_cannot(why);
	case -ENOMEM:
	case -ENOSPC:
		return vb_refuse_memory("more steering objects");
	default:
		return vb_refuse_combination(why ? why : "an argument is out of range");
	}
}

/* --- a context closes ------------------------------------------------------------------------- */

static void dr_domain_matcher_close(struct mlx5dv_dr_matcher *matcher)
{
	struct vb_list *node, *after;

	vb_list_for_each_safe(node, after, &matcher->rules) {
		vb_list_del(node);
		dr_rule_end(container_of(node, struct mlx5dv_dr_rule, node));
	}
	vb_steer_matcher_destroy(matcher->steer);
	matcher->steer = NULL;
}

/* -EBUSY: an action leads to the table. */
static int table_close(struct mlx5dv_dr_table *table)
{
	struct vb_list *node;
	int err;

	for (node = table->matchers.next; node != &table->matchers; node = node->next)
		if (container_of(node, struct mlx5dv_dr_matcher, node)->steer)
			dr_domain_matcher_close(container_of(node, struct mlx5dv_dr_matcher, node));
	err = vb_steer_table_destroy(table->steer);
	if (!err)
		table->steer = NULL;
	return err;
}

static int domain_close(struct devx_left *left)
{
	struct mlx5dv_dr_domain *domain = container_of(left, struct mlx5dv_dr_domain, left);
	struct vb_list *node;
	int err = 0;

	for (node = domain->tables.next; node != &domain->tables; node = node->next)
		if (container_of(node, struct mlx5dv_dr_table, node)->steer &&
		    table_close(container_of(node, struct mlx5dv_dr_table, node)))
			err = -EBUSY;
	return err;
}

/* --- create and destroy ----------------------------------------------------------------------- */

VB_PUBLIC struct mlx5dv_dr_domain *mlx5dv_dr_domain_create(struct ibv_context *ctx,
							   enum mlx5dv_dr_domain_type type)
{
	struct mlx5dv_dr_domain *domain;

	API_CALL(API_DEVICE(ctx));
	if (!ctx)
		return api_refuse_null(null, "ctx");
	if (!mlx5dv_is_supported(ctx->device))
		return api_refuse_null(not_mlx, "mlx5");
	if ((unsigned int)type > MLX5DV_DR_DOMAIN_TYPE_FDB)
		return api_refuse_null(value, "type", (unsigned int)type);
	domain = calloc(1, sizeof(*domain));
	if (!domain)
		return api_refuse_null(memory, "the domain");
	domain->left.end = domain_close;
	domain->dev = vb_verbs_dev(ctx);
	domain->type = type;
	domain->steer = vb_flow_domain(domain->dev, dr_kind(type));
	vb_list_init(&domain->tables);
	if (!domain->steer || !devx_left_add(ctx, &domain->left)) {
		free(domain);
		return api_refuse_null(memory, "the domain");
	}
	return domain;
}

VB_PUBLIC int mlx5dv_dr_domain_destroy(struct mlx5dv_dr_domain *domain)
{
	API_CALL(.kind = "domain");
	if (!domain)
		return api_refuse(null, "domain");
	/* Pairs with the release of the last user. */
	if (atomic_load_explicit(&domain->users, memory_order_acquire))
		return api_refuse(busy, "tables or actions");
	devx_left_remove(&domain->left);
	free(domain);
	return 0;
}

/* Rules are in effect when the call that made them returns: there is nothing to wait for. */
VB_PUBLIC int mlx5dv_dr_domain_sync(struct mlx5dv_dr_domain *domain, uint32_t flags)
{
	API_CALL(.kind = "domain");
	if (!domain)
		return api_refuse(null, "domain");
	if (flags & ~(uint32_t)SYNC_FLAGS)
		return api_refuse(unsupported_value, "flags", flags & ~(uint32_t)SYNC_FLAGS);
	return 0;
}

/* Memory of rules that are gone is always given back. */
VB_PUBLIC void mlx5dv_dr_domain_set_reclaim_device_memory(struct mlx5dv_dr_domain *dmn, bool enable)
{
}

VB_PUBLIC void mlx5dv_dr_domain_allow_duplicate_rules(struct mlx5dv_dr_domain *domain, bool allow)
{
	if (domain)
		atomic_store_explicit(&domain->unique, !allow, memory_order_relaxed);
}
