// SPDX-License-Identifier: MIT
/*
 * Random bytes as a frame, as what a program asks the card to do with it, and as flow rules.
 * Whatever they are, nothing outside of the frame is touched, rules are refused or do something,
 * and all of it can be taken away again.
 *
 *	byte 0        low 2 bits: what is done (offloads, edits, rules); the rest: how
 *	rules         byte: how many matchers; each: level, priority, criteria, number of masked
 *	              bits, 2 bytes for each (place, wanted bit), number of actions, each a byte
 *	              and its arguments
 *	the rest      the frame
 *
 * A frame lies in memory of its own size, so that the sanitizer sees a byte too far.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rcu.h"
#include "steer/steer.h"

enum { MATCHERS = 4, ACTIONS = 6, LEVELS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at, *end;
};

static uint8_t byte(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static uint32_t word(struct input *in)
{
	uint32_t value = 0;

	for (int i = 0; i < 4; i++)
		value = value << 8 | byte(in);
	return value;
}

/* --- a frame by itself ------------------------------------------------------------------------ */

static void check_layer(const struct vb_frame *f, const struct vb_layer *l)
{
	if (l->l3 + (uint32_t)l->l3_len > f->len || l->l4 > f->len || l->payload > f->len ||
	    l->end > f->len || l->l2 > f->len || l->mpls > f->len)
		abort();
}

static void read_frame(const struct vb_frame *f)
{
	static const uint8_t key[VB_FRAME_HASH_KEY] = { 0x6d, 0x5a };
	char line[VB_FRAME_LINE];

	check_layer(f, &f->outer);
	check_layer(f, &f->inner);
	if (f->tunnel_at > f->len || f->tunnel_mpls > f->len)
		abort();
	vb_frame_verify(f, VB_CSUM_ALL);
	if (vb_frame_line(f, line, sizeof(line)) > sizeof(line) - 2)
		abort(); /* a line that may be cut */
	vb_frame_sum(f);
	vb_frame_hash(f, key, 0x1ff, false, NULL);
	vb_frame_hash(f, key, 0x800001ff, true, NULL);
}

static int read_payload(void *arg, uint8_t *to, uint32_t offset, uint32_t len)
{
	memset(to, (int)offset, len);
	return 0;
}

static int look(void *arg, struct vb_frame *f)
{
	read_frame(f);
	return ++*(int *)arg > 64; /* enough of them */
}

static void do_offloads(struct input *in, struct vb_frame *f)
{
	struct vb_swp swp = { byte(in), byte(in), byte(in), byte(in), byte(in) };
	uint8_t *buffer = malloc(4096), which = byte(in), how = byte(in);
	int count = 0;
	struct vb_lso lso = { .header = f->data,
			      .header_len = f->len,
			      .len = f->len + word(in) % 70000,
			      .mss = word(in) % 3000,
			      .checksums = which,
			      .swp = how & 1 ? &swp : NULL,
			      .buffer = buffer,
			      .room = 4096,
			      .read = read_payload,
			      .emit = look,
			      .arg = &count };

	vb_frame_segment(&lso);
	vb_frame_fill_checksums(f, which);
	read_frame(f);
	/* What was filled in is right, unless the IP header lies about lengths. */
	if ((which & VB_CSUM_L3) && f->outer.ip && !f->outer.bad_l3 &&
	    !vb_frame_verify(f, VB_CSUM_L3) && !(which & VB_CSUM_INNER_L4))
		abort();
	if (!vb_frame_parse_swp(f, &swp)) {
		vb_frame_fill_checksums(f, which);
		check_layer(f, &f->outer);
		check_layer(f, &f->inner);
	}
	free(buffer);
}

static void do_edits(struct input *in, const struct vb_frame *from)
{
	enum { ROOM = 128 };
	uint8_t *memory = malloc(from->len + 2 * ROOM), header[96];
	struct vb_frame f = {
		.data = memory + ROOM, .len = from->len, .headroom = ROOM, .tailroom = ROOM
	};
	uint32_t len;

	memcpy(f.data, from->data, f.len);
	vb_frame_parse(&f);
	for (int i = 0; i < 8; i++) {
		switch (byte(in) % 4) {
		case 0:
			vb_frame_push_vlan(&f, byte(in) & 1 ? 0x8100 : 0x88a8, (uint16_t)word(in));
			break;
		case 1:
			vb_frame_pop_vlan(&f);
			break;
		case 2:
			vb_frame_pad(&f);
			break;
		case 3:
			len = byte(in) % sizeof(header);
			for (uint32_t j = 0; j < len; j++)
				header[j] = byte(in);
			vb_frame_reformat(&f, byte(in) % 5, header, len);
		}
		if (f.data < memory || f.data + f.len > memory + from->len + 2 * ROOM ||
		    f.headroom != (uint32_t)(f.data - memory))
			abort();
		read_frame(&f);
	}
	vb_frame_fcs(f.data, f.len);
	free(memory);
}

/* --- rules ------------------------------------------------------------------------------------ */

struct rules {
	struct vb_steer *steer;
	struct vb_steer_table *table[LEVELS];
	struct vb_steer_matcher *matcher[MATCHERS];
	struct vb_steer_rule *rule[MATCHERS];
	struct vb_steer_action *action[MATCHERS][ACTIONS], *array[MATCHERS];
};

static struct vb_steer_counter counter;

static struct vb_steer_action *make_action(struct input *in, struct rules *r)
{
	uint8_t data[VB_STEER_MAX_REFORMAT];
	struct vb_steer_action_attr attr = { .what = byte(in) % 11 };
	struct vb_steer_action *action = NULL;

	for (size_t i = 0; i < 64; i++)
		data[i] = attr.what == VB_STEER_DO_MODIFY || attr.what == VB_STEER_DO_REFORMAT
				  ? byte(in)
				  : 0;
	switch (attr.what) {
	case VB_STEER_DO_TABLE:
		attr.table = r->table[byte(in) % LEVELS];
		break;
	case VB_STEER_DO_ARRAY:
		return NULL;
	case VB_STEER_DO_MODIFY:
		attr.modify.actions = data;
		attr.modify.count = byte(in) % 9;
		break;
	case VB_STEER_DO_REFORMAT:
		attr.reformat.type = byte(in) % 5;
		attr.reformat.data = data;
		attr.reformat.len = byte(in) % 65;
		break;
	case VB_STEER_DO_TAG:
		attr.tag = word(in) & 0x1ffffff;
		break;
	case VB_STEER_DO_COUNT:
		attr.counter = &counter;
		break;
	case VB_STEER_DO_PUSH_VLAN:
		attr.vlan = word(in);
		break;
	default:
		break;
	}
	vb_steer_action_create(&attr, &action, NULL);
	return action;
}

/* Of the actions that a rule has, an array: those that can be in one. */
static struct vb_steer_action *make_array(struct vb_steer_action **action, uint32_t count)
{
	struct vb_steer_branch branch[ACTIONS];
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_ARRAY,
					     .array = { branch, count } };
	struct vb_steer_action *array = NULL;

	for (uint32_t i = 0; i < count; i++)
		branch[i] = (struct vb_steer_branch){ action[i], NULL };
	vb_steer_action_create(&attr, &array, NULL);
	return array;
}

static void make_rule(struct input *in, struct rules *r, int n)
{
	uint8_t mask[VB_STEER_PARAM] = { 0 }, value[VB_STEER_PARAM] = { 0 };
	struct vb_steer_table *table = r->table[byte(in) % LEVELS];
	uint8_t priority = byte(in), criteria = byte(in) & 0x7f;
	struct vb_steer_action *some[ACTIONS];
	uint32_t count = 0, bits = byte(in) % 8;

	for (uint32_t i = 0; i < bits; i++) {
		uint32_t place = (byte(in) << 8 | byte(in)) & 0x1fff;

		mask[place / 16] |= (uint8_t)(0x80 >> (place / 2) % 8);
		if (place & 1)
			value[place / 16] |= (uint8_t)(0x80 >> (place / 2) % 8);
	}
	if (vb_steer_matcher_create(table, priority, criteria, mask, sizeof(mask), &r->matcher[n],
				    NULL))
		return;
	bits = byte(in);
	for (uint32_t i = 0; i < bits % (ACTIONS + 1); i++) {
		r->action[n][i] = make_action(in, r);
		if (r->action[n][i])
			some[count++] = r->action[n][i];
	}
	if (bits & 0x80 && count) {
		r->array[n] = make_array(some, count);
		if (r->array[n]) {
			some[0] = r->array[n];
			count = 1;
		}
	}
	vb_steer_rule_create(r->matcher[n], value, sizeof(value), some, count,
			     bits & 0x40 ? VB_STEER_UNIQUE : 0, &r->rule[n], NULL);
}

static void emit(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
		 const struct vb_steer_meta *meta)
{
	read_frame(f);
	if (meta->tag >> 24)
		abort();
}

static void remove_all(struct rules *r)
{
	int err = 0;

	for (int i = 0; i < MATCHERS; i++)
		if (r->rule[i])
			vb_steer_rule_destroy(r->rule[i]);
	for (int i = 0; i < MATCHERS; i++) {
		if (r->matcher[i])
			err |= vb_steer_matcher_destroy(r->matcher[i]);
		if (r->array[i])
			err |= vb_steer_action_destroy(r->array[i]);
	}
	for (int i = 0; i < MATCHERS; i++)
		for (int j = 0; j < ACTIONS; j++)
			if (r->action[i][j])
				err |= vb_steer_action_destroy(r->action[i][j]);
	for (int i = 0; i < LEVELS; i++)
		err |= vb_steer_table_destroy(r->table[i]);
	if (err || vb_steer_destroy(r->steer))
		abort();
}

static void do_rules(struct input *in, uint8_t how)
{
	static uint8_t scratch[VB_STEER_SCRATCH];
	static const struct vb_steer_meta meta = { .reg_a = 0x55555555 };
	struct rules r = { 0 };
	uint8_t count = byte(in) % (MATCHERS + 1);
	struct vb_frame f = { 0 };

	if (vb_steer_create(how % 5, &r.steer))
		abort();
	if (how & 1)
		vb_steer_set_geneve_option(r.steer, 0x102, 0x80);
	for (uint32_t i = 0; i < LEVELS; i++)
		if (vb_steer_table_create(r.steer, i, &r.table[i]))
			abort();
	for (int i = 0; i < count; i++)
		make_rule(in, &r, i);
	f.len = (uint32_t)(in->end - in->at);
	f.data = malloc(f.len);
	if (f.len)
		memcpy(f.data, in->at, f.len);
	vb_frame_parse(&f);
	vb_read_lock();
	vb_steer_run(r.steer, &f, &meta, how & 0x20 ? NULL : scratch, emit, NULL);
	vb_read_unlock();
	if (f.len && memcmp(f.data, in->at, f.len))
		abort();
	free(f.data);
	remove_all(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	uint8_t what = byte(&in);
	struct vb_frame f = { 0 };

	if (what % 4 == 3) {
		do_rules(&in, what >> 2);
		return 0;
	}
	/* Arguments are the last 32 bytes, so that a frame begins where the input does. */
	f.len = (uint32_t)(in.end - in.at);
	f.len -= f.len > 32 ? 32 : 0;
	f.data = malloc(f.len);
	if (f.len)
		memcpy(f.data, in.at, f.len);
	in.at += f.len;
	vb_frame_parse(&f);
	read_frame(&f);
	if (what % 4 == 1)
		do_offloads(&in, &f);
	else
		do_edits(&in, &f);
	free(f.data);
	return 0;
}
