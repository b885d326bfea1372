// SPDX-License-Identifier: MIT
/* Matchers: a mask over fields of a frame, and the rules with values for them. */
#include "dr.h"

enum {
	ROOT_PARAM = VB_STEER_PARAM, /* struct fte_match_param */
	DEEP_PARAM = 448,            /* struct dr_match_param */
	MAX_LOG_RULES = 24,
	LAYOUT_FLAGS = MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE | MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE,
};

static int dr_matcher_make(struct mlx5dv_dr_table *table, uint16_t priority, uint8_t criteria,
			   const struct mlx5dv_flow_match_parameters *mask,
			   struct vb_steer_matcher **steer)
{
	size_t len = mask ? mask->match_sz : 0;
	size_t most = vb_steer_table_level(table->steer) ? DEEP_PARAM : ROOT_PARAM;
	const char *why = NULL;
	int err;

	if (len > most)
		return vb_refuse_range("match_sz of the mask", len, 0, most);
	if (criteria & 0x80)
		return vb_refuse_bits("match_criteria_enable", criteria & 0x80);
	err = vb_steer_matcher_create(table->steer, priority, criteria,
				      mask ? mask->match_buf : NULL, len, steer, &why);
	if (err == -EOPNOTSUPP)
		return vb_refuse_unsupported(why);
	return err ? dr_refuse(err, why) : 0;
}

VB_PUBLIC struct mlx5dv_dr_matcher *
mlx5dv_dr_matcher_create(struct mlx5dv_dr_table *table, uint16_t priority,
			 uint8_t match_criteria_enable, struct mlx5dv_flow_match_parameters *mask)
{
	struct mlx5dv_dr_matcher *matcher;
	int err;

	API_CALL(.kind = "matcher");
	if (!table)
		return api_refuse_null(null, "table");
	if (!table->steer)
		return api_refuse_null(combination, "the context is closed");
	matcher = calloc(1, sizeof(*matcher));
	if (!matcher)
		return api_refuse_null(memory, "the matcher");
	err = dr_matcher_make(table, priority, match_criteria_enable, mask, &matcher->steer);
	if (err) {
		free(matcher);
		return api_null(-err);
	}
	matcher->table = table;
	vb_list_init(&matcher->rules);
	vb_lock(&table->domain->lock);
	vb_list_add_tail(&table->matchers, &matcher->node);
	vb_unlock(&table->domain->lock);
	return matcher;
}

VB_PUBLIC int mlx5dv_dr_matcher_destroy(struct mlx5dv_dr_matcher *matcher)
{
	struct mlx5dv_dr_domain *domain;
	int err;

	API_CALL(.kind = "matcher");
	if (!matcher)
		return api_refuse(null, "matcher");
	domain = matcher->table->domain;
	/* Dumps must not meet it any more; it comes back where it cannot go. */
	vb_lock(&domain->lock);
	vb_list_del(&matcher->node);
	vb_unlock(&domain->lock);
	err = matcher->steer ? vb_steer_matcher_destroy(matcher->steer) : 0;
	if (err) {
		vb_lock(&domain->lock);
		vb_list_add_tail(&matcher->table->matchers, &matcher->node);
		vb_unlock(&domain->lock);
		return api_fail(-dr_refuse(err, "rules"));
	}
	free(matcher);
	return 0;
}

/* A hint only: the tables of the engine grow with their rules. */
VB_PUBLIC int mlx5dv_dr_matcher_set_layout(struct mlx5dv_dr_matcher *matcher,
					   struct mlx5dv_dr_matcher_layout *layout)
{
	API_CALL(.kind = "matcher");
	if (!matcher || !layout)
		return api_refuse(null, "matcher or layout");
	if (!matcher->steer)
		return api_refuse(combination, "the context is closed");
	if (!vb_steer_table_level(matcher->table->steer))
		return api_refuse(cannot, "matchers of a root table have no layout");
	if (layout->flags & ~(uint32_t)LAYOUT_FLAGS)
		return api_refuse(unsupported_value, "flags",
				  layout->flags & ~(uint32_t)LAYOUT_FLAGS);
	if ((layout->flags & MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE) &&
	    layout->log_num_of_rules_hint > MAX_LOG_RULES)
		return api_refuse(cannot, "a matcher has at most 2^24 rules");
	return 0;
}
