// SPDX-License-Identifier: MIT
/*
 * Steering objects as text: a line each, indented by what contains them. Not the numbers of rdma-
 * core, which describe the memory of a card.
 */
#include "dr.h"

#include <stdio.h>

static const char *const type_names[] = { "NIC_RX", "NIC_TX", "FDB" };

static void dump_domain(FILE *to, const struct mlx5dv_dr_domain *domain)
{
	fprintf(to, "domain %p %s %s\n", (const void *)domain,
		domain->left.context ? domain->left.context->device->name : "closed",
		type_names[domain->type]);
}

/* With the domain's lock. */
static void dump_table(FILE *to, const struct mlx5dv_dr_table *table)
{
	const struct vb_list *node;

	if (!table->steer)
		return;
	fprintf(to, "table %p level %u\n", (const void *)table, vb_steer_table_level(table->steer));
	for (node = table->matchers.next; node != &table->matchers; node = node->next)
		vb_steer_matcher_dump(container_of(node, struct mlx5dv_dr_matcher, node)->steer,
				      to);
}

/* rdma-core answers these with a negative errno. */
#define REFUSE_NULL(what) (-api_refuse(null, what))

VB_PUBLIC int mlx5dv_dump_dr_domain(FILE *fout, struct mlx5dv_dr_domain *domain)
{
	const struct vb_list *node;

	API_CALL(.kind = "domain");
	if (!fout || !domain)
		return REFUSE_NULL("fout or domain");
	dump_domain(fout, domain);
	vb_lock(&domain->lock);
	for (node = domain->tables.next; node != &domain->tables; node = node->next)
		dump_table(fout, container_of(node, struct mlx5dv_dr_table, node));
	vb_unlock(&domain->lock);
	return 0;
}

VB_PUBLIC int mlx5dv_dump_dr_table(FILE *fout, struct mlx5dv_dr_table *table)
{
	API_CALL(.kind = "table");
	if (!fout || !table)
		return REFUSE_NULL("fout or table");
	dump_domain(fout, table->domain);
	vb_lock(&table->domain->lock);
	dump_table(fout, table);
	vb_unlock(&table->domain->lock);
	return 0;
}

VB_PUBLIC int mlx5dv_dump_dr_matcher(FILE *fout, struct mlx5dv_dr_matcher *matcher)
{
	API_CALL(.kind = "matcher");
	if (!fout || !matcher)
		return REFUSE_NULL("fout or matcher");
	dump_domain(fout, matcher->table->domain);
	if (matcher->steer)
		vb_steer_matcher_dump(matcher->steer, fout);
	return 0;
}

VB_PUBLIC int mlx5dv_dump_dr_rule(FILE *fout, struct mlx5dv_dr_rule *rule)
{
	API_CALL(.kind = "rule");
	if (!fout || !rule)
		return REFUSE_NULL("fout or rule");
	if (rule->steer)
		vb_steer_rule_dump(rule->steer, fout);
	return 0;
}
