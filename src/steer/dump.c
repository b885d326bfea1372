// SPDX-License-Identifier: MIT
/* The objects of a domain as text, and how much memory they take. */
#include <malloc.h>

#include "steer/internal.h"

static const char *const kind_names[] = { "NIC_RX", "NIC_TX", "FDB", "SNIFFER_RX", "SNIFFER_TX" };
static const char *const action_names[] = {
	"dest",     "table", "array", "miss",      "drop",     "modify",
	"reformat", "tag",   "count", "push_vlan", "pop_vlan",
};

static void dump_action(const struct vb_steer_action *action, FILE *to)
{
	fprintf(to, " %s", action_names[action->what]);
	switch (action->what) {
	case VB_STEER_DO_DEST:
		fprintf(to, "(%u:0x%llx)", action->dest.kind,
			(unsigned long long)action->dest.number);
		break;
	case VB_STEER_DO_TABLE:
		fprintf(to, "(level %u %p)", action->table->level, (void *)action->table);
		break;
	case VB_STEER_DO_TAG:
		fprintf(to, "(0x%x)", action->tag);
		break;
	case VB_STEER_DO_COUNT:
		fprintf(to, "(%llu packets, %llu bytes)",
			(unsigned long long)atomic_load_explicit(&action->counter->packets,
								 memory_order_relaxed),
			(unsigned long long)atomic_load_explicit(&action->counter->bytes,
								 memory_order_relaxed));
		break;
	case VB_STEER_DO_PUSH_VLAN:
		fprintf(to, "(0x%08x)", action->vlan);
		break;
	case VB_STEER_DO_REFORMAT:
		fprintf(to, "(type %u, %u bytes)", action->reformat.type, action->reformat.len);
		break;
	case VB_STEER_DO_ARRAY:
	case VB_STEER_DO_MODIFY:
		fprintf(to, "(%u)", action->count);
		break;
	default:
		break;
	}
}

static void dump_rule(struct vb_steer_rule *rule, FILE *to)
{
	fprintf(to, "    rule %p", (void *)rule);
	for (uint32_t i = 0; i < rule->words; i++)
		fprintf(to, "%s%08x", i ? "." : " ", rule_key(rule)[i]);
	fprintf(to, " ->");
	for (uint32_t i = 0; i < rule->count; i++)
		dump_action(rule->action[i], to);
	fprintf(to, "\n");
}

/* only: rules of this matcher, or NULL: of all that share the store. */
static void dump_store(struct store *store, const struct vb_steer_matcher *only, FILE *to)
{
	struct slots *slots = atomic_load_explicit(&store->slots, memory_order_relaxed);

	fprintf(to, "  matcher priority %u criteria 0x%x rules %u mask", store->priority,
		store->criteria, only ? only->rules : store->rules);
	for (uint32_t i = 0; i < STEER_WORDS; i++)
		if (store->mask[i])
			fprintf(to, " 0x%x:%08x", i * 32, store->mask[i]);
	fprintf(to, "\n");
	for (uint32_t i = 0; slots && i <= slots->mask; i++) {
		struct vb_steer_rule *rule =
			atomic_load_explicit(&slots->slot[i].rule, memory_order_relaxed);

		for (; rule && rule != STEER_GONE;
		     rule = atomic_load_explicit(&rule->next, memory_order_relaxed))
			if (!only || rule->matcher == only)
				dump_rule(rule, to);
	}
}

static void dump_list(_Atomic(struct list *) *at, FILE *to)
{
	struct list *list = atomic_load_explicit(at, memory_order_relaxed);

	for (uint32_t i = 0; list && i < list->count; i++)
		dump_store(list->store[i], NULL, to);
}

void vb_steer_dump(struct vb_steer *steer, const struct vb_steer_table *only, FILE *to)
{
	struct vb_list *node;

	vb_lock(&steer->lock);
	fprintf(to, "domain %p %s tables %u\n", (void *)steer, kind_names[steer->kind],
		steer->table_count);
	if (!only || !only->level) {
		fprintf(to, "root\n");
		dump_list(&steer->root, to);
	}
	for (node = steer->tables.next; node != &steer->tables; node = node->next) {
		struct vb_steer_table *table = container_of(node, struct vb_steer_table, node);

		if ((only && table != only) || !table->level)
			continue;
		fprintf(to, "table %p level %u\n", (void *)table, table->level);
		dump_list(&table->list, to);
	}
	vb_unlock(&steer->lock);
}

void vb_steer_matcher_dump(const struct vb_steer_matcher *matcher, FILE *to)
{
	struct vb_steer *steer = matcher->table->steer;

	vb_lock(&steer->lock);
	dump_store(matcher->store, matcher, to);
	vb_unlock(&steer->lock);
}

void vb_steer_rule_dump(struct vb_steer_rule *rule, FILE *to)
{
	struct vb_steer *steer = rule->matcher->table->steer;

	vb_lock(&steer->lock);
	dump_rule(rule, to);
	vb_unlock(&steer->lock);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void add_store(struct store *store, struct vb_steer_usage *usage)
{
	struct slots *slots = atomic_load_explicit(&store->slots, memory_order_relaxed);

	usage->bytes += malloc_usable_size(store) + (slots ? malloc_usable_size(slots) : 0);
	usage->rules += store->rules;
	usage->matchers += store->handles;
	for (uint32_t i = 0; slots && i <= slots->mask; i++) {
		struct vb_steer_rule *rule =
			atomic_load_explicit(&slots->slot[i].rule, memory_order_relaxed);

		for (; rule && rule != STEER_GONE;
		     rule = atomic_load_explicit(&rule->next, memory_order_relaxed))
			usage->bytes += malloc_usable_size(rule) + sizeof(size_t);
	}
}

static void add_list(_Atomic(struct list *) *at, struct vb_steer_usage *usage)
{
	struct list *list = atomic_load_explicit(at, memory_order_relaxed);

	for (uint32_t i = 0; list && i < list->count; i++)
		add_store(list->store[i], usage);
	usage->bytes += list ? malloc_usable_size(list) : 0;
}

void vb_steer_usage(struct vb_steer *steer, struct vb_steer_usage *usage)
{
	struct vb_list *node;

	*usage = (struct vb_steer_usage){ 0 };
	vb_lock(&steer->lock);
	usage->tables = steer->table_count;
	add_list(&steer->root, usage);
	for (node = steer->tables.next; node != &steer->tables; node = node->next) {
		struct vb_steer_table *table = container_of(node, struct vb_steer_table, node);

		usage->bytes += sizeof(*table);
		add_list(&table->list, usage);
	}
	vb_unlock(&steer->lock);
}
