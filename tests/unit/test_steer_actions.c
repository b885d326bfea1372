// SPDX-License-Identifier: MIT
/*
 * What rules do with frames: every action, their order, several destinations, and what has no room.
 */
#include "steer_kit.h"

#include <errno.h>

#include "base/rcu.h"

static const uint64_t mac = 0x020000000001;

/* One rule for every frame. */
struct one {
	struct kit kit;
	struct vb_steer_matcher *matcher;
	struct vb_steer_rule *rule;
	struct vb_steer_action *action[VB_STEER_MAX_ACTIONS];
	size_t count;
};

static void one_open(struct one *one, enum vb_steer_kind kind)
{
	memset(one, 0, sizeof(*one));
	kit_open(&one->kit, kind);
	one->matcher = kit_matcher(one->kit.root, 0, 0, 0);
}

static void one_add(struct one *one, struct vb_steer_action *action)
{
	one->action[one->count++] = action;
}

static void one_rule(struct one *one)
{
	struct param value = { { 0 } };

	one->rule = kit_rule_of(one->matcher, &value, one->action, one->count);
}

static void one_close(struct one *one)
{
	if (one->rule)
		vb_steer_rule_destroy(one->rule);
	assert_int_equal(vb_steer_matcher_destroy(one->matcher), 0);
	while (one->count--)
		assert_int_equal(vb_steer_action_destroy(one->action[one->count]), 0);
	kit_close(&one->kit);
}

static struct vb_steer_action *vlan_action(uint32_t vlan)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_PUSH_VLAN, .vlan = vlan };

	return kit_action(&attr);
}

static struct vb_steer_action *tag_action(uint32_t tag)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_TAG, .tag = tag };

	return kit_action(&attr);
}

static struct vb_steer_action *reformat_action(enum vb_reformat type, const void *data,
					       uint32_t len)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_REFORMAT,
					     .reformat = { type, data, len } };

	return kit_action(&attr);
}

/* SET of a field of so many bits. */
static struct vb_steer_action *set_action(uint32_t field, uint32_t bits, uint32_t data)
{
	uint8_t bytes[8] = {
		(uint8_t)(0x10 | field >> 8), (uint8_t)field,        0,
		(uint8_t)(bits & 31),         (uint8_t)(data >> 24), (uint8_t)(data >> 16),
		(uint8_t)(data >> 8),         (uint8_t)data
	};
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_MODIFY, .modify = { bytes, 1 } };

	return kit_action(&attr);
}

/* VXLAN over IPv4 without lengths, as programs give it. */
static const uint8_t vxlan[] = {
	2, 0,  0, 0, 0, 9,  2, 0, 0, 0,    0, 8,    0x08, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0,
	0, 10, 0, 0, 1, 10, 0, 0, 2, 0x40, 0, 0x12, 0xb5, 0, 0,    0, 0, 8, 0, 0, 0, 0, 0,  42, 0,
};

static void destinations_are_the_owners(void **state)
{
	struct vb_steer_action_attr attr = {
		.what = VB_STEER_DO_DEST,
		.dest = { .to = VB_STEER_TO_WIRE, .kind = 3, .number = 4, .object = &attr },
	};
	struct one one;

	one_open(&one, VB_STEER_NIC_RX);
	one_add(&one, kit_action(&attr));
	one_rule(&one);
	kit_expect(&one.kit, 4);
	assert_int_equal(one.kit.caught[0].dest.kind, 3);
	assert_ptr_equal(one.kit.caught[0].dest.object, &attr);
	one_close(&one);
}

static void drops(void **state)
{
	struct one one;

	one_open(&one, VB_STEER_NIC_RX);
	one_add(&one, kit_plain(VB_STEER_DO_DROP));
	one_rule(&one);
	kit_expect_nothing(&one.kit, VB_STEER_DROPPED);
	one_close(&one);
}

static void tags_and_counts(void **state)
{
	struct vb_steer_counter counter = { 0 };
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_COUNT, .counter = &counter };
	struct one one;

	one_open(&one, VB_STEER_NIC_RX);
	one_add(&one, kit_dest(1));
	one_add(&one, tag_action(0xabcdef));
	one_add(&one, kit_action(&attr));
	one_rule(&one);
	kit_expect(&one.kit, 1);
	assert_int_equal(one.kit.caught[0].meta.tag, 0xabcdef);
	assert_int_equal(one.kit.meta.tag, 0); /* the caller's stays */
	kit_expect(&one.kit, 1);
	assert_int_equal(counter.packets, 2);
	assert_int_equal(counter.bytes, 120);
	attr = (struct vb_steer_action_attr){ .what = VB_STEER_DO_TAG, .tag = 1 << 24 };
	struct vb_steer_action *refused = NULL;

	assert_int_equal(vb_steer_action_create(&attr, &refused, NULL), -EINVAL);
	one_close(&one);
}

static void tags_are_pushed_and_popped(void **state)
{
	struct one one;
	struct caught *got = &one.kit.caught[0];

	one_open(&one, VB_STEER_FDB);
	one_add(&one, vlan_action(0x88a80123));
	one_add(&one, vlan_action(0x81000456));
	one_add(&one, kit_dest(1));
	one_rule(&one);
	kit_expect(&one.kit, 1);
	assert_int_equal(got->len, 68);
	assert_memory_equal(got->bytes, one.kit.frame, 12);
	assert_memory_equal(got->bytes + 12, "\x81\x00\x04\x56\x88\xa8\x01\x23\x08\x00", 10);
	/* What came out, back in: popped twice, and a third time nothing is there. */
	uint8_t before[60];

	memcpy(before, one.kit.frame, 60);
	memcpy(one.kit.frame, got->bytes, 68);
	one.kit.len = 68;
	vb_steer_rule_destroy(one.rule);
	one.action[3] = kit_plain(VB_STEER_DO_POP_VLAN);
	one.action[4] = kit_plain(VB_STEER_DO_POP_VLAN);
	one.count = 5;
	struct param value = { { 0 } };

	one.rule = kit_rule_of(one.matcher, &value, one.action + 2, 3);
	kit_expect(&one.kit, 1);
	assert_int_equal(got->len, 60);
	assert_memory_equal(got->bytes, before, 60);
	memcpy(one.kit.frame, before, 60);
	one.kit.len = 60;
	kit_expect(&one.kit, 1);
	assert_ptr_equal(got->data, one.kit.frame); /* nothing to pop, no copy */
	one_close(&one);
}

static void headers_are_modified(void **state)
{
	struct one one;
	struct caught *got = &one.kit.caught[0];
	struct vb_frame f;

	one_open(&one, VB_STEER_NIC_TX);
	one_add(&one, set_action(0x16, 32, 0x0a000001)); /* DIPV4 */
	one_add(&one, kit_dest(1));
	one_rule(&one);
	kit_expect(&one.kit, 1);
	assert_memory_equal(got->bytes + 30, "\x0a\x00\x00\x01", 4);
	f = (struct vb_frame){ .data = got->bytes, .len = got->len };
	vb_frame_parse(&f);
	assert_int_equal(vb_frame_verify(&f, VB_CSUM_ALL), VB_CSUM_L3 | VB_CSUM_L4);
	one_close(&one);
}

/* The value that makes the sum 0 makes it 0xffff; a datagram without a checksum gets none. */
static void udp_checksums_stay_what_they_are(void **state)
{
	struct vb_frame f;
	struct one one;
	struct caught *got = &one.kit.caught[0];
	uint32_t port, sum;

	one_open(&one, VB_STEER_NIC_TX);
	sum = (uint32_t)one.kit.frame[40] << 8 | one.kit.frame[41];
	port = 1000 + sum; /* of which the sum would be 0 */
	one_add(&one, set_action(0xc, 16, (port & 0xffff) + (port >> 16)));
	one_add(&one, kit_dest(1));
	one_rule(&one);
	kit_expect(&one.kit, 1);
	assert_int_equal(got->bytes[40] << 8 | got->bytes[41], 0xffff);
	f = (struct vb_frame){ .data = got->bytes, .len = got->len };
	vb_frame_parse(&f);
	assert_int_equal(vb_frame_verify(&f, VB_CSUM_L4), VB_CSUM_L4);
	one.kit.frame[40] = one.kit.frame[41] = 0;
	kit_expect(&one.kit, 1);
	assert_int_equal(got->bytes[40] << 8 | got->bytes[41], 0);
	one_close(&one);
}

/* Registers pass from table to table, and are matched there. */
static void registers_travel(void **state)
{
	struct vb_steer_table *table;
	struct vb_steer_matcher *deep;
	struct vb_steer_rule *rule;
	struct vb_steer_action *dest = kit_dest(6);
	struct one one;

	one_open(&one, VB_STEER_NIC_RX);
	assert_int_equal(vb_steer_table_create(one.kit.steer, 1, &table), 0);
	one_add(&one, set_action(0x51, 32, 77)); /* REG_C0 */
	one_add(&one, kit_table(table));
	one_rule(&one);
	deep = kit_matcher(table, 0, BIT_REG_C0, 32);
	rule = kit_rule(deep, BIT_REG_C0, 32, 77, dest);
	kit_expect(&one.kit, 6);
	assert_int_equal(one.kit.caught[0].meta.reg_c[0], 77);
	assert_ptr_equal(one.kit.caught[0].data, one.kit.frame); /* registers need no copy */
	vb_steer_rule_destroy(rule);
	vb_steer_matcher_destroy(deep);
	vb_steer_action_destroy(dest);
	vb_steer_rule_destroy(one.rule);
	one.rule = NULL;
	vb_steer_action_destroy(one.action[--one.count]);
	vb_steer_table_destroy(table);
	one_close(&one);
}

static void modifications_that_cannot_be(void **state)
{
	static const struct {
		uint8_t bytes[8];
		int err;
	} cases[] = {
		{ { 0x10, 0x18, 0, 0 }, -EOPNOTSUPP },         /* no such field */
		{ { 0x00, 0x01, 0, 0 }, -EINVAL },             /* no such type */
		{ { 0x10, 0x02, 0, 0 }, -EINVAL },             /* 32 bits of 16 */
		{ { 0x10, 0x01, 1, 0 }, -EINVAL },             /* behind the end */
		{ { 0x30, 0x01, 0, 9, 0, 0x07, 1 }, -EINVAL }, /* nine bits at one of nine */
		{ { 0x30, 0x01, 0, 9, 0x0f, 0xff }, -EOPNOTSUPP },
		{ { 0x20, 0x99, 0, 0 }, -EOPNOTSUPP },
	};
	struct vb_steer_action *action = NULL;
	const char *why;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vb_steer_action_attr attr = { .what = VB_STEER_DO_MODIFY,
						     .modify = { cases[i].bytes, 1 } };

		why = NULL;
		assert_int_equal(vb_steer_action_create(&attr, &action, &why), cases[i].err);
		assert_non_null(why);
		assert_null(action);
		attr.modify.count = 0;
		assert_int_equal(vb_steer_action_create(&attr, &action, &why), -EINVAL);
		attr.modify.count = VB_STEER_MAX_MODIFY + 1;
		assert_int_equal(vb_steer_action_create(&attr, &action, &why), -EINVAL);
	}
}

/* A reason is a constant text: it outlives the next one. */
static void reasons_stay(void **state)
{
	static const struct {
		uint8_t bytes[8];
		const char *why;
	} cases[] = {
		{ { 0x10, 0x18 }, "modify field 0x18" },
		{ { 0x10, 0x00 }, "modify field 0x00" },
		{ { 0x20, 0x99 }, "modify field 0x99" },
		{ { 0x30, 0xff }, "modify field 0xff" },
		{ { 0x31, 0x00 }, "modify field above 0xff" },
	};
	enum { CASES = sizeof(cases) / sizeof(cases[0]) };
	struct vb_steer_action *action = NULL;
	const char *why[CASES];

	for (int i = 0; i < CASES; i++) {
		struct vb_steer_action_attr attr = { .what = VB_STEER_DO_MODIFY,
						     .modify = { cases[i].bytes, 1 } };

		assert_int_equal(vb_steer_action_create(&attr, &action, &why[i]), -EOPNOTSUPP);
	}
	for (int i = 0; i < CASES; i++)
		assert_string_equal(why[i], cases[i].why);
}

/* Through a tunnel and back; the order of the list means nothing. */
static void tunnels(void **state)
{
	struct one one, back;
	struct caught *got = &one.kit.caught[0];

	one_open(&one, VB_STEER_FDB);
	one_add(&one, kit_dest(1));
	one_add(&one, reformat_action(VB_REFORMAT_L2_TO_L2_TUNNEL, vxlan, sizeof(vxlan)));
	one_add(&one, vlan_action(0x81000777)); /* before the tunnel, so inside of it */
	one_rule(&one);
	kit_expect(&one.kit, 1);
	assert_int_equal(got->len, sizeof(vxlan) + 64);
	assert_int_equal(got->bytes[16] << 8 | got->bytes[17], 20 + 8 + 8 + 64);
	assert_int_equal(got->bytes[38] << 8 | got->bytes[39], 8 + 8 + 64);
	assert_memory_equal(got->bytes + sizeof(vxlan) + 12, "\x81\x00\x07\x77\x08\x00", 6);

	one_open(&back, VB_STEER_NIC_RX);
	memcpy(back.kit.frame, got->bytes, got->len);
	back.kit.len = got->len;
	one_add(&back, kit_plain(VB_STEER_DO_POP_VLAN)); /* of what was inside */
	one_add(&back, kit_dest(2));
	one_add(&back, reformat_action(VB_REFORMAT_L2_TUNNEL_TO_L2, NULL, 0));
	one_rule(&back);
	kit_expect(&back.kit, 2);
	assert_int_equal(back.kit.caught[0].len, 60);
	assert_memory_equal(back.kit.caught[0].bytes, one.kit.frame, 60);
	/* Nothing to remove. */
	kit_udp(&back.kit, mac, 1);
	kit_expect_nothing(&back.kit, VB_STEER_DROPPED);
	one_close(&back);
	one_close(&one);
}

static void reformats_that_cannot_be(void **state)
{
	static const struct {
		int type;
		uint32_t len;
	} cases[] = { { VB_REFORMAT_L2_TUNNEL_TO_L2, 1 },
		      { VB_REFORMAT_L3_TUNNEL_TO_L2, 13 },
		      { VB_REFORMAT_L3_TUNNEL_TO_L2, 15 },
		      { VB_REFORMAT_L2_TO_L2_TUNNEL, 0 },
		      { VB_REFORMAT_L2_TO_L2_TUNNEL, VB_STEER_MAX_REFORMAT + 1 },
		      { VB_REFORMAT_L2_TO_L3_TUNNEL, 13 },
		      { 4, 14 } };
	static const uint8_t data[VB_STEER_MAX_REFORMAT + 1];
	struct vb_steer_action *action = NULL;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vb_steer_action_attr attr = { .what = VB_STEER_DO_REFORMAT,
						     .reformat = { (enum vb_reformat)cases[i].type,
								   data, cases[i].len } };

		assert_int_equal(vb_steer_action_create(&attr, &action, NULL), -EINVAL);
		assert_null(action);
	}
}

static struct vb_steer_action *array_action(const struct vb_steer_branch *branch, uint32_t count)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_ARRAY,
					     .array = { branch, count } };

	return kit_action(&attr);
}

/* A mirror: the normal receivers, a queue, a queue behind a tunnel, and a count. */
static void several_destinations(void **state)
{
	struct vb_steer_counter counter = { 0 };
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_COUNT, .counter = &counter };
	struct vb_steer_action *miss = kit_plain(VB_STEER_DO_MISS), *count = kit_action(&attr);
	struct vb_steer_action *a = kit_dest(1), *b = kit_dest(2);
	struct vb_steer_action *encap =
		reformat_action(VB_REFORMAT_L2_TO_L2_TUNNEL, vxlan, sizeof(vxlan));
	struct vb_steer_branch branch[] = {
		{ b, encap }, { miss, NULL }, { a, NULL }, { count, NULL }
	};
	struct one one;
	struct caught *got = one.kit.caught;

	one_open(&one, VB_STEER_NIC_RX);
	one_add(&one, array_action(branch, 4));
	one_rule(&one);
	kit_run(&one.kit);
	assert_int_equal(one.kit.count, 3);
	assert_int_equal(got[0].dest.number, 2);
	assert_int_equal(got[0].len, 60 + sizeof(vxlan));
	assert_int_equal(got[1].dest.to, VB_STEER_TO_DEFAULT);
	assert_int_equal(got[1].len, 60);
	assert_int_equal(got[2].dest.number, 1);
	assert_memory_equal(got[2].bytes, one.kit.frame, 60);
	assert_int_equal(counter.packets, 1);
	one_close(&one);
	assert_int_equal(vb_steer_action_destroy(a), 0);
	vb_steer_action_destroy(b);
	vb_steer_action_destroy(miss);
	vb_steer_action_destroy(count);
	vb_steer_action_destroy(encap);
}

/* A changed frame goes to two tables; what the first does with it the second does not see. */
static void branches_are_apart(void **state)
{
	struct vb_steer_table *table[2];
	struct vb_steer_matcher *matcher[2];
	struct vb_steer_rule *rule[2];
	struct vb_steer_action *go[2], *dest[2] = { kit_dest(0), kit_dest(1) };
	struct vb_steer_action *set[2] = { set_action(0x5, 16, 0xaaaa),
					   set_action(0x2, 16, 0xbbbb) };
	struct vb_steer_branch branch[2] = { { 0 } };
	struct param all = { { 0 } };
	struct one one;
	struct caught *got = one.kit.caught;

	one_open(&one, VB_STEER_FDB);
	for (int i = 0; i < 2; i++) {
		struct vb_steer_action *both[] = { set[i], dest[i] };

		assert_int_equal(vb_steer_table_create(one.kit.steer, 1, &table[i]), 0);
		matcher[i] = kit_matcher(table[i], 0, 0, 0);
		rule[i] = kit_rule_of(matcher[i], &all, both, 2);
		branch[i].dest = go[i] = kit_table(table[i]);
	}
	one_add(&one, set_action(0x1, 32, 0x11111111)); /* SMAC_47_16, for both */
	one_add(&one, array_action(branch, 2));
	one_rule(&one);
	kit_run(&one.kit);
	assert_int_equal(one.kit.count, 2);
	assert_memory_equal(got[0].bytes, "\x02\x00\x00\x00\xaa\xaa\x11\x11\x11\x11\x00\x07", 12);
	assert_memory_equal(got[1].bytes, "\x02\x00\x00\x00\x00\x01\x11\x11\x11\x11\xbb\xbb", 12);
	vb_steer_rule_destroy(one.rule);
	one.rule = NULL;
	vb_steer_action_destroy(one.action[--one.count]); /* the array */
	for (int i = 0; i < 2; i++) {
		vb_steer_rule_destroy(rule[i]);
		vb_steer_matcher_destroy(matcher[i]);
		vb_steer_action_destroy(go[i]);
		vb_steer_action_destroy(dest[i]);
		vb_steer_action_destroy(set[i]);
		assert_int_equal(vb_steer_table_destroy(table[i]), 0);
	}
	one_close(&one);
}

/* Below the root: normal receivers for NIC_RX, the manager for FDB. */
static void mirrors_below_the_root(void **state)
{
	static const enum vb_steer_kind kinds[] = { VB_STEER_NIC_RX, VB_STEER_FDB };
	struct vb_steer_action *miss = kit_plain(VB_STEER_DO_MISS), *dest = kit_dest(4);
	struct vb_steer_branch branch[] = { { miss, NULL }, { dest, NULL } };
	struct vb_steer_action *array = array_action(branch, 2);

	for (int i = 0; i < 2; i++) {
		struct vb_steer_matcher *deep;
		struct vb_steer_table *table;
		struct vb_steer_rule *rule;
		struct one one;

		one_open(&one, kinds[i]);
		assert_int_equal(vb_steer_table_create(one.kit.steer, 1, &table), 0);
		one_add(&one, kit_table(table));
		one_rule(&one);
		deep = kit_matcher(table, 0, 0, 0);
		rule = kit_rule(deep, 0, 0, 0, array);
		kit_run(&one.kit);
		assert_int_equal(one.kit.count, 2);
		assert_int_equal(one.kit.caught[0].dest.to,
				 i ? VB_STEER_TO_MANAGER : VB_STEER_TO_DEFAULT);
		assert_int_equal(one.kit.caught[1].dest.number, 4);
		vb_steer_rule_destroy(rule);
		vb_steer_matcher_destroy(deep);
		vb_steer_rule_destroy(one.rule);
		one.rule = NULL;
		vb_steer_action_destroy(one.action[--one.count]);
		assert_int_equal(vb_steer_table_destroy(table), 0);
		one_close(&one);
	}
	vb_steer_action_destroy(array);
	vb_steer_action_destroy(miss);
	vb_steer_action_destroy(dest);
}

static void arrays_that_cannot_be(void **state)
{
	struct vb_steer_action *drop = kit_plain(VB_STEER_DO_DROP), *tag = tag_action(1);
	struct vb_steer_branch branch[] = { { drop, NULL } }, wrong[] = { { tag, NULL } };
	struct vb_steer_branch none[] = { { NULL, NULL } }, odd[] = { { drop, tag } };
	struct vb_steer_branch *const bad[] = { wrong, none, odd };
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_ARRAY, .array = { branch, 0 } };
	struct vb_steer_action *array = NULL;

	assert_int_equal(vb_steer_action_create(&attr, &array, NULL), -EINVAL);
	attr.array.count = VB_STEER_MAX_DESTS + 1;
	assert_int_equal(vb_steer_action_create(&attr, &array, NULL), -EINVAL);
	attr.array.count = 1;
	for (size_t i = 0; i < 3; i++) {
		attr.array.branch = bad[i];
		assert_int_equal(vb_steer_action_create(&attr, &array, NULL), -EINVAL);
	}
	assert_null(array);
	vb_steer_action_destroy(drop);
	vb_steer_action_destroy(tag);
}

/* Arrays of arrays, by tables; deeper than the limit nothing arrives. */
static void arrays_in_a_row(void **state)
{
	enum { DEEP = VB_STEER_MAX_SPLITS + 1 };
	struct vb_steer_table *table[DEEP + 1];
	struct vb_steer_matcher *matcher[DEEP + 1];
	struct vb_steer_action *go[DEEP + 1], *array[DEEP], *dest = kit_dest(1);
	struct vb_steer_rule *rule[DEEP + 1];
	struct kit kit;

	for (int deep = DEEP - 1; deep <= DEEP; deep++) {
		kit_open(&kit, VB_STEER_NIC_RX);
		for (int i = 0; i <= deep; i++) {
			assert_int_equal(vb_steer_table_create(kit.steer, (uint32_t)i, &table[i]),
					 0);
			matcher[i] = kit_matcher(table[i], 0, 0, 0);
			go[i] = kit_table(table[i]);
		}
		for (int i = 0; i < deep; i++) {
			struct vb_steer_branch branch = { go[i + 1], NULL };

			array[i] = array_action(&branch, 1);
			rule[i] = kit_rule(matcher[i], 0, 0, 0, array[i]);
		}
		rule[deep] = kit_rule(matcher[deep], 0, 0, 0, dest);
		if (deep == DEEP)
			kit_expect_nothing(&kit, VB_STEER_TOO_FAR);
		else
			kit_expect(&kit, 1);
		for (int i = deep; i >= 0; i--) {
			vb_steer_rule_destroy(rule[i]);
			vb_steer_matcher_destroy(matcher[i]);
			if (i < deep)
				vb_steer_action_destroy(array[i]);
		}
		for (int i = 0; i <= deep; i++) {
			assert_int_equal(vb_steer_action_destroy(go[i]), 0);
			assert_int_equal(vb_steer_table_destroy(table[i]), 0);
		}
		kit_close(&kit);
	}
	vb_steer_action_destroy(dest);
}

static void count_emits(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
			const struct vb_steer_meta *meta)
{
	++*(unsigned int *)arg;
}

/* How often a run calls emit, which may be more than the kit can catch. */
static unsigned int emits(struct kit *kit)
{
	struct vb_frame f = { .data = kit->frame, .len = kit->len };
	unsigned int count = 0;

	vb_frame_parse(&f);
	vb_read_lock();
	kit->result = vb_steer_run(kit->steer, &f, &kit->meta, NULL, count_emits, &count);
	vb_read_unlock();
	return count;
}

/* Arrays of 64 behind one another would make millions; every leaf counts, also one that drops. */
static void arrays_multiply_up_to_a_limit(void **state)
{
	enum { DEEP = VB_STEER_MAX_SPLITS, WIDE = VB_STEER_MAX_DESTS };
	struct vb_steer_counter counter = { 0 };
	struct vb_steer_action_attr count = { .what = VB_STEER_DO_COUNT, .counter = &counter };
	struct vb_steer_action *leaf[] = { kit_dest(1), kit_action(&count) };
	struct vb_steer_action *go[DEEP], *array[DEEP];
	struct vb_steer_matcher *matcher[DEEP];
	struct vb_steer_table *table[DEEP];
	struct vb_steer_rule *rule[DEEP];
	struct kit kit;

	for (int end = 0; end < 2; end++) {
		kit_open(&kit, VB_STEER_FDB);
		for (int i = DEEP - 1; i >= 0; i--) {
			struct vb_steer_branch branch[WIDE] = { { NULL, NULL } };

			for (int k = 0; k < WIDE; k++)
				branch[k].dest = i < DEEP - 1 ? go[i + 1] : leaf[end];
			assert_int_equal(vb_steer_table_create(kit.steer, (uint32_t)i, &table[i]),
					 0);
			matcher[i] = kit_matcher(table[i], 0, 0, 0);
			array[i] = array_action(branch, WIDE);
			rule[i] = kit_rule(matcher[i], 0, 0, 0, array[i]);
			go[i] = kit_table(table[i]);
		}
		/* 2 branches lead to the third array, 16 of its to arrays of leaves. */
		if (!end) {
			assert_int_equal(emits(&kit), VB_STEER_MAX_BRANCHES - 2 - 16);
			assert_int_equal(kit.result, VB_STEER_EMITTED | VB_STEER_TOO_FAR);
		} else {
			assert_int_equal(emits(&kit), 0);
			assert_int_equal(kit.result, VB_STEER_TOO_FAR);
			assert_int_equal(atomic_load(&counter.packets),
					 VB_STEER_MAX_BRANCHES - 2 - 16);
		}
		for (int i = 0; i < DEEP; i++) {
			vb_steer_rule_destroy(rule[i]);
			assert_int_equal(vb_steer_action_destroy(array[i]), 0);
			vb_steer_matcher_destroy(matcher[i]);
		}
		for (int i = 0; i < DEEP; i++) {
			assert_int_equal(vb_steer_action_destroy(go[i]), 0);
			assert_int_equal(vb_steer_table_destroy(table[i]), 0);
		}
		kit_close(&kit);
	}
	vb_steer_action_destroy(leaf[0]);
	vb_steer_action_destroy(leaf[1]);
}

/* Rules of equal value: the oldest of them, up to the limit, get the frame. */
static void equal_rules_up_to_a_limit(void **state)
{
	static struct vb_steer_rule *rule[VB_STEER_MAX_BRANCHES + 1];
	struct vb_steer_action *dest = kit_dest(1);
	struct vb_steer_matcher *matcher;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	matcher = kit_matcher(kit.root, 0, 0, 0);
	for (int i = 0; i < VB_STEER_MAX_BRANCHES; i++)
		rule[i] = kit_rule(matcher, 0, 0, 0, dest);
	assert_int_equal(emits(&kit), VB_STEER_MAX_BRANCHES);
	assert_int_equal(kit.result, VB_STEER_EMITTED);
	rule[VB_STEER_MAX_BRANCHES] = kit_rule(matcher, 0, 0, 0, dest);
	assert_int_equal(emits(&kit), VB_STEER_MAX_BRANCHES);
	assert_int_equal(kit.result, VB_STEER_EMITTED | VB_STEER_TOO_FAR);
	for (int i = 0; i <= VB_STEER_MAX_BRANCHES; i++)
		vb_steer_rule_destroy(rule[i]);
	vb_steer_matcher_destroy(matcher);
	vb_steer_action_destroy(dest);
	kit_close(&kit);
}

static void combinations_that_cannot_be(void **state)
{
	struct vb_steer_action *two[] = { kit_dest(1), kit_dest(2) },
			       *many[VB_STEER_MAX_ACTIONS + 1];
	struct vb_steer_action *tags[] = { tag_action(1), tag_action(2) };
	struct vb_steer_rule *rule = NULL;
	const char *why = NULL;
	struct one one;

	one_open(&one, VB_STEER_NIC_RX);
	assert_int_equal(vb_steer_rule_create(one.matcher, NULL, 0, two, 2, 0, &rule, &why),
			 -EINVAL);
	assert_non_null(why);
	assert_int_equal(vb_steer_rule_create(one.matcher, NULL, 0, tags, 2, 0, &rule, &why),
			 -EINVAL);
	for (int i = 0; i <= VB_STEER_MAX_ACTIONS; i++)
		many[i] = tags[0];
	assert_int_equal(vb_steer_rule_create(one.matcher, NULL, 0, many, VB_STEER_MAX_ACTIONS + 1,
					      0, &rule, &why),
			 -EINVAL);
	assert_null(rule);
	kit_expect_to(&one.kit, VB_STEER_TO_DEFAULT);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(vb_steer_action_destroy(two[i]), 0);
		assert_int_equal(vb_steer_action_destroy(tags[i]), 0);
	}
	one_close(&one);
}

static void never(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
		  const struct vb_steer_meta *meta)
{
	fail();
}

static void no_room(void **state)
{
	static uint8_t scratch[VB_STEER_SCRATCH], long_frame[VB_STEER_FRAME_MAX + 1];
	static const struct vb_steer_meta meta;
	struct vb_frame f = { .data = long_frame, .len = sizeof(long_frame) };
	struct one one;

	one_open(&one, VB_STEER_NIC_RX);
	one_add(&one, vlan_action(0x81000001));
	one_add(&one, kit_dest(1));
	one_rule(&one);
	vb_frame_parse(&f);
	assert_int_equal(vb_steer_run(one.kit.steer, &f, &meta, scratch, never, NULL),
			 VB_STEER_NO_ROOM);
	f.len = 60;
	assert_int_equal(vb_steer_run(one.kit.steer, &f, &meta, NULL, never, NULL),
			 VB_STEER_NO_ROOM);
	one_close(&one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(destinations_are_the_owners),
		cmocka_unit_test(drops),
		cmocka_unit_test(tags_and_counts),
		cmocka_unit_test(tags_are_pushed_and_popped),
		cmocka_unit_test(headers_are_modified),
		cmocka_unit_test(udp_checksums_stay_what_they_are),
		cmocka_unit_test(registers_travel),
		cmocka_unit_test(modifications_that_cannot_be),
		cmocka_unit_test(reasons_stay),
		cmocka_unit_test(tunnels),
		cmocka_unit_test(reformats_that_cannot_be),
		cmocka_unit_test(several_destinations),
		cmocka_unit_test(branches_are_apart),
		cmocka_unit_test(mirrors_below_the_root),
		cmocka_unit_test(arrays_that_cannot_be),
		cmocka_unit_test(arrays_in_a_row),
		cmocka_unit_test(arrays_multiply_up_to_a_limit),
		cmocka_unit_test(equal_rules_up_to_a_limit),
		cmocka_unit_test(combinations_that_cannot_be),
		cmocka_unit_test(no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
