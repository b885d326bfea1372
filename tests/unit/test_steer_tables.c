// SPDX-License-Identifier: MIT
/*
 * Which rule a frame meets: masks, priorities, tables, misses; and what cannot be made or taken
 * away.
 */
#include "steer_kit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t mac = 0x020000000001;

static void nothing_matches_without_rules(void **state)
{
	static const enum vb_steer_kind kinds[] = { VB_STEER_NIC_RX, VB_STEER_NIC_TX,
						    VB_STEER_FDB };
	struct vb_steer_matcher *matcher;
	struct kit kit;

	for (size_t i = 0; i < 3; i++) {
		kit_open(&kit, kinds[i]);
		assert_true(vb_steer_empty(kit.steer));
		kit_expect_to(&kit, VB_STEER_TO_DEFAULT);
		matcher = kit_matcher(kit.root, 0, BIT_DMAC, 48);
		kit_expect_to(&kit, VB_STEER_TO_DEFAULT);
		assert_true(kit.result & VB_STEER_MISSED);
		assert_int_equal(vb_steer_matcher_destroy(matcher), 0);
		kit_close(&kit);
	}
	kit_open(&kit, VB_STEER_SNIFFER_RX);
	kit_expect_nothing(&kit, VB_STEER_MISSED | VB_STEER_DROPPED);
	kit_close(&kit);
}

static void a_rule_takes_its_frames(void **state)
{
	struct vb_steer_action *dest = kit_dest(5);
	struct vb_steer_matcher *matcher;
	struct vb_steer_rule *rule;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	matcher = kit_matcher(kit.root, 0, BIT_DMAC, 48);
	rule = kit_rule(matcher, BIT_DMAC, 48, mac, dest);
	assert_false(vb_steer_empty(kit.steer));
	kit_expect(&kit, 5);
	assert_int_equal(kit.result, VB_STEER_EMITTED);
	assert_ptr_equal(kit.caught[0].data, kit.frame); /* no copy where nothing changes */
	kit_udp(&kit, mac + 1, 1000);
	kit_expect_to(&kit, VB_STEER_TO_DEFAULT);
	kit_udp(&kit, mac, 1000);
	vb_steer_rule_destroy(rule);
	kit_expect_to(&kit, VB_STEER_TO_DEFAULT);
	assert_true(vb_steer_empty(kit.steer));
	assert_int_equal(vb_steer_matcher_destroy(matcher), 0);
	assert_int_equal(vb_steer_action_destroy(dest), 0);
	kit_close(&kit);
}

static void every_frame_by_an_empty_mask(void **state)
{
	struct vb_steer_action *dest = kit_dest(5);
	struct vb_steer_matcher *matcher;
	struct vb_steer_rule *rule;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	matcher = kit_matcher(kit.root, 0, 0, 0);
	rule = kit_rule(matcher, 0, 0, 0, dest);
	kit_expect(&kit, 5);
	kit.len = 14;
	kit_expect(&kit, 5);
	kit.len = 0;
	kit_expect(&kit, 5);
	vb_steer_rule_destroy(rule);
	vb_steer_matcher_destroy(matcher);
	vb_steer_action_destroy(dest);
	kit_close(&kit);
}

static void small_priorities_come_first(void **state)
{
	struct vb_steer_action *dest[3] = { kit_dest(0), kit_dest(1), kit_dest(2) };
	struct vb_steer_matcher *matcher[3];
	struct vb_steer_rule *rule[3];
	struct vb_steer_table *table;
	struct vb_steer_action *go;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	assert_int_equal(vb_steer_table_create(kit.steer, 1, &table), 0);
	go = kit_table(table);
	matcher[0] = kit_matcher(kit.root, 0, 0, 0);
	rule[0] = kit_rule(matcher[0], 0, 0, 0, go);
	/* In a deeper table: made in another order than they are met. */
	struct vb_steer_matcher *late = kit_matcher(table, 9, BIT_DMAC, 48);
	struct vb_steer_matcher *first = kit_matcher(table, 3, BIT_UDP_DPORT, 16);
	struct vb_steer_matcher *second = kit_matcher(table, 3, BIT_ETHERTYPE, 16);
	struct vb_steer_rule *c = kit_rule(late, BIT_DMAC, 48, mac, dest[2]);
	struct vb_steer_rule *b = kit_rule(second, BIT_ETHERTYPE, 16, 0x800, dest[1]);
	struct vb_steer_rule *a = kit_rule(first, BIT_UDP_DPORT, 16, 1000, dest[0]);

	kit_expect(&kit, 0);
	vb_steer_rule_destroy(a);
	kit_expect(&kit, 1);
	/* Made later, with the same priority: behind. */
	a = kit_rule(first, BIT_UDP_DPORT, 16, 1000, dest[0]);
	kit_expect(&kit, 0);
	vb_steer_rule_destroy(a);
	vb_steer_matcher_destroy(first);
	first = kit_matcher(table, 3, BIT_UDP_DPORT, 16);
	a = kit_rule(first, BIT_UDP_DPORT, 16, 1000, dest[0]);
	kit_expect(&kit, 1);
	vb_steer_rule_destroy(b);
	kit_expect(&kit, 0);
	vb_steer_rule_destroy(a);
	kit_expect(&kit, 2);
	vb_steer_rule_destroy(c);
	kit_expect_nothing(&kit, VB_STEER_MISSED | VB_STEER_DROPPED);
	vb_steer_matcher_destroy(first);
	vb_steer_matcher_destroy(second);
	vb_steer_matcher_destroy(late);
	vb_steer_rule_destroy(rule[0]);
	vb_steer_matcher_destroy(matcher[0]);
	assert_int_equal(vb_steer_table_destroy(table), -EBUSY); /* an action leads to it */
	vb_steer_action_destroy(go);
	assert_int_equal(vb_steer_table_destroy(table), 0);
	for (int i = 0; i < 3; i++)
		vb_steer_action_destroy(dest[i]);
	kit_close(&kit);
}

/* A rule that copies gets the frame as it came, and so do those behind it. */
static void copies(void **state)
{
	struct vb_steer_action *first = kit_dest(1), *second = kit_dest(2);
	struct vb_steer_matcher *high, *low, *deep;
	struct vb_steer_table *table;
	struct vb_steer_rule *copy[2], *last;
	struct param value;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	high = kit_matcher(kit.root, 0, BIT_UDP_DPORT, 16);
	low = kit_matcher(kit.root, 1, BIT_DMAC, 48);
	value = kit_param(BIT_UDP_DPORT, 16, 7);
	for (int i = 0; i < 2; i++)
		assert_int_equal(vb_steer_rule_create(high, &value, sizeof(value), &first, 1,
						      VB_STEER_COPY, &copy[i], NULL),
				 0);
	kit_udp(&kit, mac, 7);
	kit_run(&kit);
	assert_int_equal(kit.count, 3); /* both, and the miss */
	assert_int_equal(kit.caught[2].dest.to, VB_STEER_TO_DEFAULT);
	last = kit_rule(low, BIT_DMAC, 48, mac, second);
	kit_run(&kit);
	assert_int_equal(kit.count, 3);
	assert_int_equal(kit.caught[0].dest.number, 1);
	assert_int_equal(kit.caught[1].dest.number, 1);
	assert_int_equal(kit.caught[2].dest.number, 2);
	assert_int_equal(kit.result, VB_STEER_EMITTED);
	/* Not below the root. */
	assert_int_equal(vb_steer_table_create(kit.steer, 1, &table), 0);
	deep = kit_matcher(table, 0, BIT_UDP_DPORT, 16);
	{
		struct vb_steer_rule *none = NULL;

		assert_int_equal(vb_steer_rule_create(deep, &value, sizeof(value), &first, 1,
						      VB_STEER_COPY, &none, NULL),
				 -EINVAL);
		assert_null(none);
	}
	vb_steer_rule_destroy(last);
	vb_steer_rule_destroy(copy[0]);
	vb_steer_rule_destroy(copy[1]);
	vb_steer_matcher_destroy(high);
	vb_steer_matcher_destroy(low);
	vb_steer_matcher_destroy(deep);
	vb_steer_table_destroy(table);
	vb_steer_action_destroy(first);
	vb_steer_action_destroy(second);
	kit_close(&kit);
}

static void misses_below_the_root(void **state)
{
	static const struct {
		enum vb_steer_kind kind;
		int to; /* -1: nowhere */
	} cases[] = { { VB_STEER_NIC_RX, -1 },
		      { VB_STEER_NIC_TX, VB_STEER_TO_WIRE },
		      { VB_STEER_FDB, VB_STEER_TO_MANAGER },
		      { VB_STEER_SNIFFER_TX, -1 } };
	struct vb_steer_counter counter = { 0 };
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_COUNT, .counter = &counter };
	struct vb_steer_action *count = kit_action(&attr), *miss = kit_plain(VB_STEER_DO_MISS);

	for (size_t i = 0; i < 4; i++) {
		struct vb_steer_matcher *matcher, *all;
		struct vb_steer_table *table;
		struct vb_steer_rule *go_on, *rule;
		struct vb_steer_action *go;
		struct kit kit;

		kit_open(&kit, cases[i].kind);
		assert_int_equal(vb_steer_table_create(kit.steer, 1, &table), 0);
		go = kit_table(table);
		matcher = kit_matcher(kit.root, 0, BIT_DMAC, 48);
		go_on = kit_rule(matcher, BIT_DMAC, 48, mac, go);
		all = kit_matcher(table, 0, 0, 0);
		for (int how = 0; how < 3; how++) { /* no rule, a counter only, a miss by a rule */
			rule = how ? kit_rule(all, 0, 0, 0, how == 1 ? count : miss) : NULL;
			if (cases[i].to < 0)
				kit_expect_nothing(&kit, VB_STEER_MISSED | VB_STEER_DROPPED);
			else
				kit_expect_to(&kit, (enum vb_steer_to)cases[i].to);
			if (rule)
				vb_steer_rule_destroy(rule);
		}
		vb_steer_matcher_destroy(all);
		vb_steer_rule_destroy(go_on);
		vb_steer_matcher_destroy(matcher);
		vb_steer_action_destroy(go);
		vb_steer_table_destroy(table);
		kit_close(&kit);
	}
	assert_int_equal(counter.packets, 4);
	assert_int_equal(counter.bytes, 4 * 60);
	vb_steer_action_destroy(count);
	vb_steer_action_destroy(miss);
}

static void equal_rules(void **state)
{
	struct vb_steer_action *dest[3] = { kit_dest(0), kit_dest(1), kit_dest(2) };
	struct vb_steer_matcher *root, *twin, *deep, *other;
	struct vb_steer_table *table, *second_root;
	struct vb_steer_rule *rule[3], *refused = NULL;
	struct vb_steer_action *go;
	struct param value = kit_param(BIT_DMAC, 48, mac);
	const char *why = NULL;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	/*
	 * At the root each gets the frame; another table of level 0 with the same mask is no other
	 * place.
	 */
	assert_int_equal(vb_steer_table_create(kit.steer, 0, &second_root), 0);
	root = kit_matcher(kit.root, 0, BIT_DMAC, 48);
	twin = kit_matcher(second_root, 0, BIT_DMAC, 48);
	rule[0] = kit_rule(root, BIT_DMAC, 48, mac, dest[0]);
	rule[1] = kit_rule(twin, BIT_DMAC, 48, mac, dest[1]);
	kit_run(&kit);
	assert_int_equal(kit.count, 2);
	assert_int_equal(kit.caught[0].dest.number + kit.caught[1].dest.number, 1);
	assert_int_equal(vb_steer_rule_create(root, value.bytes, sizeof(value), dest, 1,
					      VB_STEER_UNIQUE, &refused, &why),
			 -EEXIST);
	assert_non_null(why);
	assert_null(refused);
	assert_int_equal(vb_steer_matcher_destroy(twin), -EBUSY);
	vb_steer_rule_destroy(rule[1]);
	assert_int_equal(vb_steer_matcher_destroy(twin), 0); /* the other one's rules stay */
	kit_expect(&kit, 0);
	vb_steer_rule_destroy(rule[0]);
	/* Deeper the oldest gets it, and the next when that goes. */
	assert_int_equal(vb_steer_table_create(kit.steer, 5, &table), 0);
	go = kit_table(table);
	other = kit_matcher(kit.root, 1, 0, 0);
	struct vb_steer_rule *go_on = kit_rule(other, 0, 0, 0, go);
	deep = kit_matcher(table, 0, BIT_DMAC, 48);
	for (int i = 0; i < 3; i++)
		rule[i] = kit_rule(deep, BIT_DMAC, 48, mac, dest[i]);
	kit_expect(&kit, 0);
	vb_steer_rule_destroy(rule[1]);
	kit_expect(&kit, 0);
	vb_steer_rule_destroy(rule[0]);
	kit_expect(&kit, 2);
	vb_steer_rule_destroy(rule[2]);
	vb_steer_rule_destroy(go_on);
	vb_steer_matcher_destroy(root);
	vb_steer_matcher_destroy(deep);
	vb_steer_matcher_destroy(other);
	vb_steer_action_destroy(go);
	vb_steer_table_destroy(table);
	vb_steer_table_destroy(second_root);
	for (int i = 0; i < 3; i++)
		vb_steer_action_destroy(dest[i]);
	kit_close(&kit);
}

static void masks_that_cannot_be(void **state)
{
	static const struct {
		uint32_t bit, width;
		const char *name;
	} refused[] = {
		{ 0x204, 4, "misc.source_vhci_port" },
		{ 0x2d8, 4, "misc.lag_rx_port_affinity" },
		{ 0x2de, 1, "misc.geneve_tlv_option_0_exist" },
		{ 0x920, 32, "misc3.geneve_tlv_option_0_data" },
		{ 0xa20, 32, "misc4.prog_sample_field" },
		{ 0xc00, 32, "misc5.macsec_tag" },
		{ 0xc0, 16, "reserved bits" },
		{ 0x200 + 0x1, 1, "reserved bits" },
		{ 0x840 + 0x40, 8, "reserved bits" },
	};
	struct vb_steer_matcher *matcher = NULL;
	struct vb_steer_table *table;
	struct param mask;
	const char *why;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	assert_int_equal(vb_steer_table_create(kit.steer, 1, &table), 0);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		mask = kit_param(refused[i].bit, refused[i].width, UINT64_MAX);
		why = NULL;
		assert_int_equal(vb_steer_matcher_create(table, 0, 0x7f, mask.bytes, sizeof(mask),
							 &matcher, &why),
				 -EOPNOTSUPP);
		assert_string_equal(why, refused[i].name);
		assert_null(matcher);
	}
	/* Outside of the criteria: refused at the root, not looked at below. */
	mask = kit_param(BIT_DMAC, 48, UINT64_MAX);
	assert_int_equal(vb_steer_matcher_create(kit.root, 0, VB_STEER_MISC, mask.bytes,
						 sizeof(mask), &matcher, &why),
			 -EINVAL);
	assert_int_equal(vb_steer_matcher_create(table, 0, VB_STEER_MISC, mask.bytes, sizeof(mask),
						 &matcher, &why),
			 0);
	vb_steer_matcher_destroy(matcher);
	assert_int_equal(vb_steer_matcher_create(table, 0, 0x80, NULL, 0, &matcher, &why), -EINVAL);
	assert_int_equal(vb_steer_matcher_create(table, 0, 1, mask.bytes, 513, &matcher, &why),
			 -EINVAL);
	/* Short masks are enough. */
	assert_int_equal(vb_steer_matcher_create(table, 0, 1, mask.bytes, 14, &matcher, &why), 0);
	vb_steer_matcher_destroy(matcher);
	vb_steer_table_destroy(table);
	kit_close(&kit);
}

static void values_that_cannot_be(void **state)
{
	struct vb_steer_action *dest = kit_dest(1);
	struct vb_steer_matcher *matcher;
	struct vb_steer_rule *rule = NULL;
	struct param value = kit_param(BIT_DMAC, 48, mac);
	const char *why = NULL;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	matcher = kit_matcher(kit.root, 0, BIT_DMAC, 48);
	kit_set(&value, BIT_SMAC, 48, 1);
	assert_int_equal(
		vb_steer_rule_create(matcher, value.bytes, sizeof(value), &dest, 1, 0, &rule, &why),
		-EINVAL);
	assert_non_null(why);
	assert_int_equal(vb_steer_rule_create(matcher, value.bytes, 513, &dest, 1, 0, &rule, NULL),
			 -EINVAL);
	assert_null(rule);
	kit_expect_to(&kit, VB_STEER_TO_DEFAULT);
	assert_int_equal(vb_steer_action_destroy(dest), 0); /* what was refused holds nothing */
	assert_int_equal(vb_steer_matcher_destroy(matcher), 0);
	kit_close(&kit);
}

static void what_is_in_use_stays(void **state)
{
	struct vb_steer_action *dest = kit_dest(1), *array;
	struct vb_steer_branch branch = { .dest = dest };
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_ARRAY, .array = { &branch, 1 } };
	struct vb_steer_matcher *matcher;
	struct vb_steer_rule *rule;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	array = kit_action(&attr);
	matcher = kit_matcher(kit.root, 0, BIT_DMAC, 48);
	rule = kit_rule(matcher, BIT_DMAC, 48, mac, array);
	assert_int_equal(vb_steer_destroy(kit.steer), -EBUSY);
	assert_int_equal(vb_steer_table_destroy(kit.root), -EBUSY);
	assert_int_equal(vb_steer_matcher_destroy(matcher), -EBUSY);
	assert_int_equal(vb_steer_action_destroy(array), -EBUSY);
	assert_int_equal(vb_steer_action_destroy(dest), -EBUSY);
	kit_expect(&kit, 1);
	vb_steer_rule_destroy(rule);
	assert_int_equal(vb_steer_action_destroy(dest), -EBUSY);
	assert_int_equal(vb_steer_action_destroy(array), 0);
	assert_int_equal(vb_steer_action_destroy(dest), 0);
	assert_int_equal(vb_steer_matcher_destroy(matcher), 0);
	kit_close(&kit);
}

/* Levels only rise, so there is no circle; a way that is too long ends. */
static void long_ways(void **state)
{
	struct vb_steer_table *table[VB_STEER_MAX_HOPS + 1];
	struct vb_steer_matcher *matcher[VB_STEER_MAX_HOPS + 1];
	struct vb_steer_action *go[VB_STEER_MAX_HOPS + 1], *dest = kit_dest(3);
	struct vb_steer_rule *rule[VB_STEER_MAX_HOPS + 1], *refused = NULL;
	const char *why = NULL;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	table[0] = kit.root;
	for (int i = 0; i <= VB_STEER_MAX_HOPS; i++) {
		if (i)
			assert_int_equal(
				vb_steer_table_create(kit.steer, (uint32_t)i * 1000, &table[i]), 0);
		go[i] = kit_table(table[i]);
		matcher[i] = kit_matcher(table[i], 0, 0, 0);
	}
	for (int i = 0; i < VB_STEER_MAX_HOPS - 1; i++)
		rule[i] = kit_rule(matcher[i], 0, 0, 0, go[i + 1]);
	rule[VB_STEER_MAX_HOPS - 1] = kit_rule(matcher[VB_STEER_MAX_HOPS - 1], 0, 0, 0, dest);
	kit_expect(&kit, 3); /* the longest way */
	vb_steer_rule_destroy(rule[VB_STEER_MAX_HOPS - 1]);
	rule[VB_STEER_MAX_HOPS - 1] =
		kit_rule(matcher[VB_STEER_MAX_HOPS - 1], 0, 0, 0, go[VB_STEER_MAX_HOPS]);
	kit_expect_nothing(&kit, VB_STEER_TOO_FAR);
	for (int i = 0; i < 3; i++) {
		struct vb_steer_branch branch = { .dest = go[i] };
		struct vb_steer_action_attr attr = { .what = VB_STEER_DO_ARRAY,
						     .array = { &branch, 1 } };
		struct vb_steer_action *array = kit_action(&attr);

		assert_int_equal(
			vb_steer_rule_create(matcher[2], NULL, 0, &go[i], 1, 0, &refused, &why),
			-EINVAL);
		assert_non_null(strstr(why, "level"));
		assert_int_equal(
			vb_steer_rule_create(matcher[2], NULL, 0, &array, 1, 0, &refused, &why),
			-EINVAL);
		vb_steer_action_destroy(array);
	}
	for (int i = 0; i < VB_STEER_MAX_HOPS; i++)
		vb_steer_rule_destroy(rule[i]);
	for (int i = VB_STEER_MAX_HOPS; i >= 0; i--) {
		vb_steer_matcher_destroy(matcher[i]);
		assert_int_equal(vb_steer_action_destroy(go[i]), 0);
		if (i)
			assert_int_equal(vb_steer_table_destroy(table[i]), 0);
	}
	vb_steer_action_destroy(dest);
	kit_close(&kit);
}

static void not_to_another_domain(void **state)
{
	struct vb_steer_table *foreign;
	struct vb_steer_matcher *matcher;
	struct vb_steer_rule *refused = NULL;
	struct vb_steer_action *away;
	struct vb_steer *other;
	const char *why = NULL;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	matcher = kit_matcher(kit.root, 0, 0, 0);
	assert_int_equal(vb_steer_create(VB_STEER_NIC_RX, &other), 0);
	assert_int_equal(vb_steer_table_create(other, 99, &foreign), 0);
	away = kit_table(foreign);
	assert_int_equal(vb_steer_rule_create(matcher, NULL, 0, &away, 1, 0, &refused, &why),
			 -EINVAL);
	assert_non_null(strstr(why, "domain"));
	assert_null(refused);
	assert_int_equal(vb_steer_action_destroy(away), 0);
	assert_int_equal(vb_steer_table_destroy(foreign), 0);
	assert_int_equal(vb_steer_destroy(other), 0);
	vb_steer_matcher_destroy(matcher);
	kit_close(&kit);
}

static void many_rules(void **state)
{
	enum { RULES = 20000 };
	struct vb_steer_rule **rule = calloc(RULES, sizeof(*rule));
	struct vb_steer_action *dest[16];
	struct vb_steer_matcher *matcher;
	struct vb_steer_usage usage;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	matcher = kit_matcher(kit.root, 0, BIT_DMAC, 48);
	for (uint64_t i = 0; i < 16; i++)
		dest[i] = kit_dest(i);
	for (uint64_t i = 0; i < RULES; i++)
		rule[i] = kit_rule(matcher, BIT_DMAC, 48, mac + i * i, dest[i % 16]);
	vb_steer_usage(kit.steer, &usage);
	assert_int_equal(usage.rules, RULES);
	assert_true(usage.bytes / RULES < 120);
	/* Every third one goes; the others stay what they are. */
	for (uint64_t i = 0; i < RULES; i += 3)
		vb_steer_rule_destroy(rule[i]);
	for (uint64_t i = 0; i < RULES; i++) {
		kit_udp(&kit, mac + i * i, 1);
		if (i % 3)
			kit_expect(&kit, i % 16);
		else
			kit_expect_to(&kit, VB_STEER_TO_DEFAULT);
	}
	for (uint64_t i = 0; i < RULES; i++)
		if (i % 3)
			vb_steer_rule_destroy(rule[i]);
	kit_expect_to(&kit, VB_STEER_TO_DEFAULT);
	assert_int_equal(vb_steer_matcher_destroy(matcher), 0);
	for (int i = 0; i < 16; i++)
		vb_steer_action_destroy(dest[i]);
	kit_close(&kit);
	free(rule);
}

static void the_dump_names_rules(void **state)
{
	struct vb_steer_action *dest = kit_dest(0xabc);
	struct vb_steer_matcher *matcher;
	struct vb_steer_rule *rule;
	struct kit kit;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	kit_open(&kit, VB_STEER_FDB);
	matcher = kit_matcher(kit.root, 4, BIT_DMAC, 48);
	rule = kit_rule(matcher, BIT_DMAC, 48, mac, dest);
	vb_steer_dump(kit.steer, NULL, to);
	fclose(to);
	assert_non_null(strstr(text, "FDB"));
	assert_non_null(strstr(text, "priority 4"));
	assert_non_null(strstr(text, "02000000.00010000"));
	assert_non_null(strstr(text, "dest(7:0xabc)"));
	free(text);
	vb_steer_rule_destroy(rule);
	vb_steer_matcher_destroy(matcher);
	vb_steer_action_destroy(dest);
	kit_close(&kit);
}

static void the_geneve_option(void **state)
{
	struct vb_steer_matcher *matcher;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	assert_int_equal(vb_steer_set_geneve_option(kit.steer, 0x102, 0x80), 0);
	matcher = kit_matcher(kit.root, 0, 0x920, 32);
	assert_int_equal(vb_steer_set_geneve_option(kit.steer, 0x103, 0x80), -EBUSY);
	vb_steer_matcher_destroy(matcher);
	assert_int_equal(vb_steer_set_geneve_option(kit.steer, 0x103, 0x80), 0);
	kit_close(&kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_matches_without_rules),
		cmocka_unit_test(a_rule_takes_its_frames),
		cmocka_unit_test(every_frame_by_an_empty_mask),
		cmocka_unit_test(small_priorities_come_first),
		cmocka_unit_test(copies),
		cmocka_unit_test(misses_below_the_root),
		cmocka_unit_test(equal_rules),
		cmocka_unit_test(masks_that_cannot_be),
		cmocka_unit_test(values_that_cannot_be),
		cmocka_unit_test(what_is_in_use_stays),
		cmocka_unit_test(long_ways),
		cmocka_unit_test(not_to_another_domain),
		cmocka_unit_test(many_rules),
		cmocka_unit_test(the_dump_names_rules),
		cmocka_unit_test(the_geneve_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
