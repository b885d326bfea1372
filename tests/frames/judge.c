// SPDX-License-Identifier: MIT
/*
 * What src/frame and src/steer make of frames, for judge.py to compare with scapy. A line in, a
 * line out:
 *
 *	parse FRAME                          facts, name=value
 *	verify FRAME                         right checksums, sum from byte 14, FCS
 *	fill WHICH FRAME                     the frame
 *	swp WHICH O3 O4 I3 I4 FLAGS FRAME    the frame, checksums filled at these places
 *	hash FIELDS SYMMETRIC KEY FRAME      hash and its type
 *	lso HEADER MSS WHICH FRAME           number of segments, the segments
 *	push TYPE TAG FRAME                  the frame; also: pop FRAME, pad FRAME
 *	reformat TYPE DATA FRAME             the frame
 *	modify ACTIONS FRAME                 the frame, registers A B C0 .. C7, through a rule
 *	match CRITERIA MASK VALUE FRAME      hit or miss, through a rule
 *
 * Numbers as C writes them, bytes in hex ("-": none); a failure is "error ERRNO".
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rcu.h"
#include "steer/steer.h"

enum { ROOM = 1 << 17, WORDS = 8 };

static char line[4 * ROOM];
static uint8_t memory[ROOM], other[ROOM], third[ROOM], scratch[VB_STEER_SCRATCH];

static uint32_t unhex(const char *text, uint8_t *to)
{
	uint32_t n = 0;
	unsigned int byte;

	if (text && strcmp(text, "-"))
		for (; sscanf(text, "%2x", &byte) == 1; text += 2)
			to[n++] = (uint8_t)byte;
	return n;
}

static void hex(const uint8_t *data, uint32_t len)
{
	static const char digits[] = "0123456789abcdef";

	for (uint32_t i = 0; i < len; i++) {
		putchar(digits[data[i] >> 4]);
		putchar(digits[data[i] & 0xf]);
	}
}

static uint64_t number(const char *word)
{
	return word ? strtoull(word, NULL, 0) : 0;
}

static struct vb_frame load(const char *word)
{
	struct vb_frame f = { .data = memory + 1024, .headroom = 1024, .tailroom = 1024 };

	f.len = unhex(word, f.data);
	vb_frame_parse(&f);
	return f;
}

static void answer(int err, const struct vb_frame *f)
{
	if (err)
		printf("error %d", -err);
	else
		hex(f->data, f->len);
}

/* --- frame ------------------------------------------------------------------------------------ */

static void print_layer(const char *name, const struct vb_layer *l)
{
	printf(" %s.has_l2=%d %s.vlans=%d", name, l->has_l2, name, l->vlans);
	for (int i = 0; i < l->vlans; i++)
		printf(" %s.vlan%d=%d %s.type%d=%d", name, i, l->vlan[i], name, i, l->vlan_type[i]);
	printf(" %s.ethertype=%d %s.ip=%d %s.protocol=%d %s.l4=%s", name, l->ethertype, name, l->ip,
	       name, l->protocol, name, vb_l4_name(l->l4_type));
	printf(" %s.l3_at=%d %s.l4_at=%d %s.payload=%d %s.end=%u", name, l->l3, name, l->l4, name,
	       l->payload, name, l->end);
	printf(" %s.fragment=%d %s.options=%d %s.bad=%d", name, l->fragment, name, l->options, name,
	       l->bad_l3 || l->bad_l4);
}

static void do_parse(char **word)
{
	struct vb_frame f = load(word[1]);

	printf("tunnel=%s has_inner=%d", vb_tunnel_name(f.tunnel), f.has_inner);
	print_layer("outer", &f.outer);
	print_layer("inner", &f.inner);
}

static void do_verify(char **word)
{
	struct vb_frame f = load(word[1]);

	printf("%d %d %u", vb_frame_verify(&f, VB_CSUM_ALL), vb_frame_sum(&f),
	       vb_frame_fcs(f.data, f.len));
}

static void do_fill(char **word)
{
	struct vb_frame f = load(word[2]);

	vb_frame_fill_checksums(&f, (uint8_t)number(word[1]));
	answer(0, &f);
}

static void do_swp(char **word)
{
	struct vb_frame f = load(word[7]);
	struct vb_swp swp = {
		.outer_l3 = (uint8_t)number(word[2]),
		.outer_l4 = (uint8_t)number(word[3]),
		.inner_l3 = (uint8_t)number(word[4]),
		.inner_l4 = (uint8_t)number(word[5]),
		.flags = (uint8_t)number(word[6]),
	};
	int err = vb_frame_parse_swp(&f, &swp);

	if (!err)
		vb_frame_fill_checksums(&f, (uint8_t)number(word[1]));
	answer(err, &f);
}

static void do_hash(char **word)
{
	struct vb_frame f = load(word[4]);
	uint8_t type;
	uint32_t hash;

	unhex(word[3], other);
	hash = vb_frame_hash(&f, other, number(word[1]), number(word[2]), &type);
	printf("%u %u", hash, type);
}

static int read_payload(void *arg, uint8_t *to, uint32_t offset, uint32_t len)
{
	const struct vb_lso *lso = arg;

	memcpy(to, lso->header + lso->header_len + offset, len);
	return 0;
}

static int print_segment(void *arg, struct vb_frame *f)
{
	putchar(' ');
	hex(f->data, f->len);
	return 0;
}

static void do_lso(char **word)
{
	struct vb_frame f = load(word[4]);
	struct vb_lso lso = {
		.header = f.data,
		.header_len = (uint32_t)number(word[1]),
		.len = f.len,
		.mss = (uint32_t)number(word[2]),
		.checksums = (uint8_t)number(word[3]),
		.buffer = other,
		.room = ROOM,
		.read = read_payload,
		.emit = print_segment,
		.arg = &lso,
	};
	int n;

	printf("segments");
	n = vb_frame_segment(&lso);
	if (n < 0)
		printf(" error %d", -n);
}

static void do_edit(char **word)
{
	const char *what = word[0];
	struct vb_frame f;
	int err;

	if (!strcmp(what, "push")) {
		f = load(word[3]);
		err = vb_frame_push_vlan(&f, (uint16_t)number(word[1]), (uint16_t)number(word[2]));
	} else if (!strcmp(what, "reformat")) {
		uint32_t len = unhex(word[2], other);

		f = load(word[3]);
		err = vb_frame_reformat(&f, (enum vb_reformat)number(word[1]), other, len);
	} else {
		f = load(word[1]);
		err = !strcmp(what, "pop") ? vb_frame_pop_vlan(&f) : vb_frame_pad(&f);
	}
	answer(err, &f);
}

/* --- steer ------------------------------------------------------------------------------------ */

static void print_frame(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
			const struct vb_steer_meta *meta)
{
	if (dest->to != VB_STEER_TO_OWNER) {
		printf("miss");
		return;
	}
	if (arg) {
		printf("hit");
		return;
	}
	hex(f->data, f->len);
	printf(" %u %u", meta->reg_a, meta->reg_b);
	for (int i = 0; i < 8; i++)
		printf(" %u", meta->reg_c[i]);
}

/* One matcher with one rule; extra: an action before the destination. */
static void run_rule(const char *frame, uint8_t criteria, uint32_t mask_len, uint32_t value_len,
		     const struct vb_steer_action_attr *extra)
{
	static const struct vb_steer_meta meta = { .reg_a = 0x11223344,
						   .reg_b = 0x55667788,
						   .reg_c = { 0x99aabbcc, 0xddeeff00, 0x01020304,
							      0x12131415, 0x23242526, 0x34353637,
							      0x45464748, 0x56575859 },
						   .source_sqn = 0x123456,
						   .source_port = 0x789a };
	struct vb_steer_action_attr dest = { .what = VB_STEER_DO_DEST };
	struct vb_steer_action *actions[2] = { NULL, NULL };
	struct vb_steer_matcher *matcher = NULL;
	struct vb_steer_table *table;
	struct vb_steer_rule *rule = NULL;
	const char *why = "";
	struct vb_steer *steer;
	struct vb_frame f = load(frame);
	int err;

	if (vb_steer_create(VB_STEER_NIC_RX, &steer) ||
	    vb_steer_set_geneve_option(steer, 0x102, 0x80) ||
	    vb_steer_table_create(steer, 0, &table))
		abort();
	err = vb_steer_action_create(&dest, &actions[0], &why);
	if (!err && extra)
		err = vb_steer_action_create(extra, &actions[1], &why);
	if (!err)
		err = vb_steer_matcher_create(table, 0, criteria, other, mask_len, &matcher, &why);
	if (!err)
		err = vb_steer_rule_create(matcher, third, value_len, actions, extra ? 2 : 1, 0,
					   &rule, &why);
	if (err) {
		printf("error %d %s", -err, why);
	} else {
		vb_read_lock();
		vb_steer_run(steer, &f, &meta, scratch, print_frame, extra ? NULL : actions);
		vb_read_unlock();
		vb_steer_rule_destroy(rule);
	}
	if (matcher)
		vb_steer_matcher_destroy(matcher);
	for (int i = 0; i < 2; i++)
		if (actions[i])
			vb_steer_action_destroy(actions[i]);
	vb_steer_table_destroy(table);
	if (vb_steer_destroy(steer))
		abort();
}

static void do_modify(char **word)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_MODIFY };
	static uint8_t actions[4096];

	attr.modify.count = unhex(word[1], actions) / 8;
	attr.modify.actions = actions;
	run_rule(word[2], 0, 0, 0, &attr);
}

static void do_match(char **word)
{
	uint32_t mask = unhex(word[2], other), value = unhex(word[3], third);

	run_rule(word[4], (uint8_t)number(word[1]), mask, value, NULL);
}

static const struct {
	const char *name;
	void (*run)(char **word);
} commands[] = {
	{ "parse", do_parse },   { "verify", do_verify }, { "fill", do_fill },
	{ "swp", do_swp },       { "hash", do_hash },     { "lso", do_lso },
	{ "push", do_edit },     { "pop", do_edit },      { "pad", do_edit },
	{ "reformat", do_edit }, { "modify", do_modify }, { "match", do_match },
};

int main(void)
{
	while (fgets(line, sizeof(line), stdin)) {
		char *word[WORDS] = { NULL };
		int n = 0;

		for (char *at = strtok(line, " \n"); at && n < WORDS; at = strtok(NULL, " \n"))
			word[n++] = at;
		for (size_t i = 0; n && i < sizeof(commands) / sizeof(commands[0]); i++)
			if (!strcmp(word[0], commands[i].name))
				commands[i].run(word);
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
