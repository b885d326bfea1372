// SPDX-License-Identifier: MIT
#include "steer_kit.h"

#include "base/rcu.h"

static uint8_t scratch[VB_STEER_SCRATCH];

void kit_set(struct param *param, uint32_t bit, uint32_t width, uint64_t value)
{
	for (uint32_t i = 0; i < width; i++) {
		uint32_t at = bit + width - 1 - i;
		uint8_t mask = (uint8_t)(0x80 >> at % 8);

		param->bytes[at / 8] &= (uint8_t)~mask;
		if (i < 64 && value >> i & 1)
			param->bytes[at / 8] |= mask;
	}
}

struct param kit_param(uint32_t bit, uint32_t width, uint64_t value)
{
	struct param param = { { 0 } };

	kit_set(&param, bit, width, value);
	return param;
}

void kit_open(struct kit *kit, enum vb_steer_kind kind)
{
	memset(kit, 0, sizeof(*kit));
	assert_int_equal(vb_steer_create(kind, &kit->steer), 0);
	assert_int_equal(vb_steer_table_create(kit->steer, 0, &kit->root), 0);
	kit_udp(kit, 0x020000000001, 1000);
}

void kit_close(struct kit *kit)
{
	assert_int_equal(vb_steer_table_destroy(kit->root), 0);
	assert_int_equal(vb_steer_destroy(kit->steer), 0);
}

void kit_udp(struct kit *kit, uint64_t dmac, uint16_t dport)
{
	static const uint8_t ip[] = { 0x45, 0,    0,   46, 0, 1, 0,   0, 64, 17,
				      0xe6, 0x8f, 192, 0,  2, 1, 192, 0, 2,  2 };
	struct vb_frame f = { .data = kit->frame, .len = 60 };

	memset(kit->frame, 0, sizeof(kit->frame));
	for (int i = 0; i < 6; i++)
		kit->frame[i] = (uint8_t)(dmac >> (40 - 8 * i));
	memcpy(kit->frame + 6, "\x02\x42\x00\x00\x00\x07\x08\x00", 8);
	memcpy(kit->frame + 14, ip, sizeof(ip));
	kit->frame[34] = 0x30;
	kit->frame[35] = 0x39;
	kit->frame[36] = (uint8_t)(dport >> 8);
	kit->frame[37] = (uint8_t)dport;
	kit->frame[39] = 26;
	kit->len = 60;
	vb_frame_parse(&f);
	vb_frame_fill_checksums(&f, VB_CSUM_L3 | VB_CSUM_L4);
}

static void catch (void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
		   const struct vb_steer_meta *meta)
{
	struct kit *kit = arg;
	struct caught *to = &kit->caught[kit->count];

	assert_true(kit->count < KIT_CAUGHT);
	to->dest = *dest;
	to->len = f->len;
	to->data = f->data;
	memcpy(to->bytes, f->data, f->len < KIT_BYTES ? f->len : KIT_BYTES);
	to->meta = *meta;
	kit->count++;
}

void kit_run(struct kit *kit)
{
	struct vb_frame f = { .data = kit->frame, .len = kit->len };
	uint8_t before[KIT_BYTES];

	memcpy(before, kit->frame, sizeof(before));
	vb_frame_parse(&f);
	kit->count = 0;
	vb_read_lock();
	kit->result = vb_steer_run(kit->steer, &f, &kit->meta, scratch, catch, kit);
	vb_read_unlock();
	assert_memory_equal(before, kit->frame, sizeof(before)); /* whatever the rules did */
	assert_int_equal(!!(kit->result & VB_STEER_EMITTED), !!kit->count);
}

void kit_expect(struct kit *kit, uint64_t number)
{
	kit_run(kit);
	assert_int_equal(kit->count, 1);
	assert_int_equal(kit->caught[0].dest.to, VB_STEER_TO_OWNER);
	assert_int_equal(kit->caught[0].dest.number, number);
}

void kit_expect_to(struct kit *kit, enum vb_steer_to to)
{
	kit_run(kit);
	assert_int_equal(kit->count, 1);
	assert_int_equal(kit->caught[0].dest.to, to);
}

void kit_expect_nothing(struct kit *kit, unsigned int result)
{
	kit_run(kit);
	assert_int_equal(kit->count, 0);
	assert_int_equal(kit->result, result);
}

struct vb_steer_action *kit_action(const struct vb_steer_action_attr *attr)
{
	struct vb_steer_action *action = NULL;

	assert_int_equal(vb_steer_action_create(attr, &action, NULL), 0);
	return action;
}

struct vb_steer_action *kit_dest(uint64_t number)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_DEST,
					     .dest = { .kind = 7, .number = number } };

	return kit_action(&attr);
}

struct vb_steer_action *kit_table(struct vb_steer_table *table)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_TABLE, .table = table };

	return kit_action(&attr);
}

struct vb_steer_action *kit_plain(enum vb_steer_do what)
{
	struct vb_steer_action_attr attr = { .what = what };

	return kit_action(&attr);
}

struct vb_steer_matcher *kit_matcher(struct vb_steer_table *table, uint16_t priority, uint32_t bit,
				     uint32_t width)
{
	struct param mask = kit_param(bit, width, UINT64_MAX);
	struct vb_steer_matcher *matcher = NULL;

	assert_int_equal(vb_steer_matcher_create(table, priority,
						 width ? (uint8_t)(1 << bit / 512) : 0, mask.bytes,
						 sizeof(mask), &matcher, NULL),
			 0);
	return matcher;
}

struct vb_steer_rule *kit_rule_of(struct vb_steer_matcher *matcher, const struct param *value,
				  struct vb_steer_action *const *actions, size_t count)
{
	struct vb_steer_rule *rule = NULL;

	assert_int_equal(vb_steer_rule_create(matcher, value->bytes, sizeof(*value), actions, count,
					      0, &rule, NULL),
			 0);
	return rule;
}

struct vb_steer_rule *kit_rule(struct vb_steer_matcher *matcher, uint32_t bit, uint32_t width,
			       uint64_t value, struct vb_steer_action *action)
{
	struct param param = kit_param(bit, width, value);

	return kit_rule_of(matcher, &param, &action, 1);
}
