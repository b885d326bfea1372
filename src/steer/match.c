// SPDX-License-Identifier: MIT
/*
 * Match fields: which there are, and how they come out of a frame.
 *
 * struct fte_match_param is 128 words of 32 bits. A mask becomes a plan: one operation for each
 * word that is not 0. A frame's key are these words, masked, one behind the other. So a mask of one
 * MAC address makes keys of two words, and only those are read from the frame. Sums cost a pass
 * over the frame and are facts of their own, only made where asked for.
 *
 * A field of a header that the frame has not is 0.
 */
#include <errno.h>

#include "steer/internal.h"

/* --- names ------------------------------------------------------------------------------------ */

enum support { PLAIN, SUMS, GENEVE_OPTION, REFUSED };

struct field {
	const char *name;
	uint16_t bit, width;
	uint8_t support;
};

enum { OUTER = 0, MISC = 0x200, INNER = 0x400, MISC2 = 0x600, MISC3 = 0x800, MISC5 = 0xc00 };

#define BOTH(name, bit, ...)                                    \
	{ "outer_headers." name, OUTER + bit, __VA_ARGS__ },    \
	{                                                       \
		"inner_headers." name, INNER + bit, __VA_ARGS__ \
	}

static const struct field fields[] = {
	BOTH("smac_47_16", 0x0, 32),
	BOTH("smac_15_0", 0x20, 16),
	BOTH("ethertype", 0x30, 16),
	BOTH("dmac_47_16", 0x40, 32),
	BOTH("dmac_15_0", 0x60, 16),
	BOTH("first_prio", 0x70, 3),
	BOTH("first_cfi", 0x73, 1),
	BOTH("first_vid", 0x74, 12),
	BOTH("ip_protocol", 0x80, 8),
	BOTH("ip_dscp", 0x88, 6),
	BOTH("ip_ecn", 0x8e, 2),
	BOTH("cvlan_tag", 0x90, 1),
	BOTH("svlan_tag", 0x91, 1),
	BOTH("frag", 0x92, 1),
	BOTH("ip_version", 0x93, 4),
	BOTH("tcp_flags", 0x97, 9),
	BOTH("tcp_sport", 0xa0, 16),
	BOTH("tcp_dport", 0xb0, 16),
	BOTH("ipv4_ihl", 0xd0, 4),
	BOTH("l3_ok", 0xd4, 1),
	BOTH("l4_ok", 0xd5, 1),
	BOTH("ipv4_checksum_ok", 0xd6, 1, SUMS),
	BOTH("l4_checksum_ok", 0xd7, 1, SUMS),
	BOTH("ip_ttl_hoplimit", 0xd8, 8),
	BOTH("udp_sport", 0xe0, 16),
	BOTH("udp_dport", 0xf0, 16),
	BOTH("src_ipv4_src_ipv6", 0x100, 128),
	BOTH("dst_ipv4_dst_ipv6", 0x180, 128),
	{ "misc.gre_c_present", MISC + 0x0, 1 },
	{ "misc.gre_k_present", MISC + 0x2, 1 },
	{ "misc.gre_s_present", MISC + 0x3, 1 },
	{ "misc.source_vhci_port", MISC + 0x4, 4, REFUSED },
	{ "misc.source_sqn", MISC + 0x8, 24 },
	{ "misc.source_port", MISC + 0x30, 16 },
	{ "misc.outer_second_prio", MISC + 0x40, 3 },
	{ "misc.outer_second_cfi", MISC + 0x43, 1 },
	{ "misc.outer_second_vid", MISC + 0x44, 12 },
	{ "misc.inner_second_prio", MISC + 0x50, 3 },
	{ "misc.inner_second_cfi", MISC + 0x53, 1 },
	{ "misc.inner_second_vid", MISC + 0x54, 12 },
	{ "misc.outer_second_cvlan_tag", MISC + 0x60, 1 },
	{ "misc.inner_second_cvlan_tag", MISC + 0x61, 1 },
	{ "misc.outer_second_svlan_tag", MISC + 0x62, 1 },
	{ "misc.inner_second_svlan_tag", MISC + 0x63, 1 },
	{ "misc.gre_protocol", MISC + 0x70, 16 },
	{ "misc.gre_key_h", MISC + 0x80, 24 },
	{ "misc.gre_key_l", MISC + 0x98, 8 },
	{ "misc.vxlan_vni", MISC + 0xa0, 24 },
	{ "misc.bth_opcode", MISC + 0xb8, 8 },
	{ "misc.geneve_vni", MISC + 0xc0, 24 },
	{ "misc.lag_rx_port_affinity", MISC + 0xd8, 4, REFUSED },
	{ "misc.geneve_tlv_option_0_exist", MISC + 0xde, 1, GENEVE_OPTION },
	{ "misc.geneve_oam", MISC + 0xdf, 1 },
	{ "misc.outer_ipv6_flow_label", MISC + 0xec, 20 },
	{ "misc.inner_ipv6_flow_label", MISC + 0x10c, 20 },
	{ "misc.geneve_opt_len", MISC + 0x12a, 6 },
	{ "misc.geneve_protocol_type", MISC + 0x130, 16 },
	{ "misc.bth_dst_qp", MISC + 0x148, 24 },
	{ "misc.inner_esp_spi", MISC + 0x160, 32 },
	{ "misc.outer_esp_spi", MISC + 0x180, 32 },
	{ "misc2.outer_first_mpls", MISC2 + 0x0, 32 },
	{ "misc2.inner_first_mpls", MISC2 + 0x20, 32 },
	{ "misc2.outer_first_mpls_over_gre", MISC2 + 0x40, 32 },
	{ "misc2.outer_first_mpls_over_udp", MISC2 + 0x60, 32 },
	{ "misc2.metadata_reg_c_7 to _0", MISC2 + 0x80, 256 },
	{ "misc2.metadata_reg_a", MISC2 + 0x180, 32 },
	{ "misc2.metadata_reg_b", MISC2 + 0x1a0, 32 },
	{ "misc3.inner_tcp_seq_num", MISC3 + 0x0, 32 },
	{ "misc3.outer_tcp_seq_num", MISC3 + 0x20, 32 },
	{ "misc3.inner_tcp_ack_num", MISC3 + 0x40, 32 },
	{ "misc3.outer_tcp_ack_num", MISC3 + 0x60, 32 },
	{ "misc3.outer_vxlan_gpe_vni", MISC3 + 0x88, 24 },
	{ "misc3.outer_vxlan_gpe_next_protocol", MISC3 + 0xa0, 8 },
	{ "misc3.outer_vxlan_gpe_flags", MISC3 + 0xa8, 8 },
	{ "misc3.icmp_header_data", MISC3 + 0xc0, 32 },
	{ "misc3.icmpv6_header_data", MISC3 + 0xe0, 32 },
	{ "misc3.icmp_type", MISC3 + 0x100, 8 },
	{ "misc3.icmp_code", MISC3 + 0x108, 8 },
	{ "misc3.icmpv6_type", MISC3 + 0x110, 8 },
	{ "misc3.icmpv6_code", MISC3 + 0x118, 8 },
	{ "misc3.geneve_tlv_option_0_data", MISC3 + 0x120, 32, GENEVE_OPTION },
	{ "misc3.gtpu_teid", MISC3 + 0x140, 32 },
	{ "misc3.gtpu_msg_type", MISC3 + 0x160, 8 },
	{ "misc3.gtpu_msg_flags", MISC3 + 0x168, 8 },
	{ "misc3.gtpu_dw_2", MISC3 + 0x180, 32 },
	{ "misc3.gtpu_first_ext_dw_0", MISC3 + 0x1a0, 32 },
	{ "misc3.gtpu_dw_0", MISC3 + 0x1c0, 32 },
	{ "misc4.prog_sample_field", 0xa00, 512, REFUSED },
	{ "misc5.macsec_tag", MISC5 + 0x0, 128, REFUSED },
	{ "misc5.tunnel_header", MISC5 + 0x80, 128 },
};

/* The bits of a word that belong to a field. */
static uint32_t bits_in_word(const struct field *field, uint32_t word)
{
	uint32_t first = field->bit, last = first + field->width; /* last: the first behind */
	uint32_t from = first > word * 32 ? first - word * 32 : 0;
	uint32_t to = last < word * 32 + 32 ? last - word * 32 : 32;

	if (last <= word * 32 || first >= word * 32 + 32)
		return 0;
	return (uint32_t)(0xffffffffull >> from & ~(0xffffffffull >> to));
}

/* --- plans ------------------------------------------------------------------------------------ */

static void add_op(struct key_plan *plan, uint32_t fact, uint32_t mask)
{
	if (mask)
		plan->op[plan->count++] =
			(struct key_op){ .fact = (uint8_t)fact, .word = plan->words, .mask = mask };
}

/* Sort the bits of one word; the rest of them is known to nobody. */
static int plan_word(uint32_t word, uint32_t mask, uint32_t option, struct key_plan *plan,
		     const char **why)
{
	uint32_t rest = mask, sums = 0, bits;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		bits = bits_in_word(&fields[i], word) & mask;
		if (!bits)
			continue;
		if (fields[i].support == REFUSED ||
		    (fields[i].support == GENEVE_OPTION && option == STEER_NO_OPTION)) {
			*why = fields[i].name;
			return -EOPNOTSUPP;
		}
		plan->geneve_option |= fields[i].support == GENEVE_OPTION;
		sums |= fields[i].support == SUMS ? bits : 0;
		rest &= ~bits;
	}
	if (rest) {
		*why = "reserved bits";
		return -EOPNOTSUPP;
	}
	add_op(plan, word, mask & ~sums);
	add_op(plan, word < INNER / 32 ? FACT_OUTER_SUMS : FACT_INNER_SUMS, sums);
	plan->words++;
	return 0;
}

int steer_plan(const uint32_t mask[STEER_WORDS], uint32_t option, struct key_plan *plan,
	       const char **why)
{
	int err = 0;

	*plan = (struct key_plan){ .count = 0 };
	for (uint32_t i = 0; !err && i < STEER_WORDS; i++)
		if (mask[i])
			err = plan_word(i, mask[i], option, plan, why);
	plan->option = plan->geneve_option ? option : STEER_NO_OPTION;
	return err;
}

void steer_pack(const struct key_plan *plan, const uint32_t value[STEER_WORDS], uint32_t *key)
{
	for (uint32_t i = 0; i < plan->count; i++) {
		const struct key_op *op = &plan->op[i];
		uint32_t fact = op->fact == FACT_OUTER_SUMS   ? OUTER / 32 + 6
				: op->fact == FACT_INNER_SUMS ? INNER / 32 + 6
							      : op->fact;

		if (!i || plan->op[i - 1].word != op->word)
			key[op->word] = 0;
		key[op->word] |= value[fact] & op->mask;
	}
}

/* --- facts ------------------------------------------------------------------------------------ */

static uint32_t ip_word(const struct vb_frame *f, const struct vb_layer *l)
{
	uint32_t word = 0, tos;

	if (l->vlans)
		word |= l->vlan_type[0] == ETH_CVLAN ? 1u << 15 : 1u << 14;
	if (!l->ip)
		return word;
	tos = l->ip == 4 ? read8(f->data + l->l3 + 1) : read16(f->data + l->l3) >> 4 & 0xff;
	return word | (uint32_t)l->protocol << 24 | tos << 16 | (uint32_t)l->fragment << 13 |
	       (uint32_t)l->ip << 9 | l->tcp_flags;
}

static uint32_t ttl_word(const struct vb_frame *f, const struct vb_layer *l)
{
	uint32_t word = 0;

	if (!l->ip)
		return 0;
	if (l->ip == 4)
		word |= (read8(f->data + l->l3) & 0xfu) << 12;
	word |= !l->bad_l3 ? 1u << 11 : 0;
	word |= l->l4_type != VB_L4_NONE ? 1u << 10 : 0;
	return word | read8(f->data + l->l3 + (l->ip == 4 ? 8 : 7));
}

static uint32_t address_word(const struct vb_frame *f, const struct vb_layer *l, uint32_t index)
{
	uint32_t dst = index >= 12, part = index & 3;

	if (l->ip == 6)
		return read32(f->data + l->l3 + (dst ? 24 : 8) + part * 4);
	if (l->ip == 4 && part == 3)
		return read32(f->data + l->l3 + (dst ? 16 : 12));
	return 0;
}

static uint32_t layer_word(const struct vb_frame *f, const struct vb_layer *l, uint32_t index)
{
	const uint8_t *eth = f->data + l->l2;

	switch (index) {
	case 0:
		return l->has_l2 ? read32(eth + 6) : 0;
	case 1:
		return l->has_l2 ? (uint32_t)read16(eth + 10) << 16 | l->ethertype : 0;
	case 2:
		return l->has_l2 ? read32(eth) : 0;
	case 3:
		return l->has_l2 ? (uint32_t)read16(eth + 4) << 16 | l->vlan[0] : 0;
	case 4:
		return ip_word(f, l);
	case 5:
		return l->l4_type == VB_L4_TCP ? read32(f->data + l->l4) : 0;
	case 6:
		return ttl_word(f, l);
	case 7:
		return l->l4_type == VB_L4_UDP ? read32(f->data + l->l4) : 0;
	default:
		return address_word(f, l, index);
	}
}

static uint32_t sums_word(const struct vb_frame *f, const struct vb_layer *l, uint8_t l3,
			  uint8_t l4)
{
	uint8_t right = vb_frame_verify(f, l3 | l4);

	return (l->ip == 4 && right & l3 ? 1u << 9 : 0) | (right & l4 ? 1u << 8 : 0);
}

/* A word of a header whose end the parser has not checked. */
static uint32_t match_word_at(const struct vb_frame *f, uint32_t at)
{
	return at + 4 <= f->len ? read32(f->data + at) : 0;
}

/* A word of the tunnel's header, if it is such a tunnel. */
static uint32_t tunnel_word(const struct vb_frame *f, enum vb_tunnel tunnel, uint32_t index)
{
	return f->tunnel == tunnel ? match_word_at(f, f->tunnel_at + index * 4) : 0;
}

static bool is_gre(const struct vb_frame *f)
{
	return f->tunnel == VB_TUNNEL_GRE || f->tunnel == VB_TUNNEL_NVGRE;
}

static uint32_t gre_key(const struct vb_frame *f)
{
	uint16_t flags = is_gre(f) ? read16(f->data + f->tunnel_at) : 0;

	return flags & 0x2000 ? match_word_at(f, f->tunnel_at + (flags & 0x8000 ? 8 : 4)) : 0;
}

static uint32_t bth_word(const struct vb_frame *f, uint32_t index)
{
	enum { PORT_ROCE = 4791 };

	if (f->outer.l4_type != VB_L4_UDP || f->outer.payload + 12u > f->outer.end ||
	    read16(f->data + f->outer.l4 + 2) != PORT_ROCE)
		return 0;
	return read32(f->data + f->outer.payload + index * 4);
}

static uint32_t flow_label(const struct vb_frame *f, const struct vb_layer *l)
{
	return l->ip == 6 ? read32(f->data + l->l3) & 0xfffff : 0;
}

static uint32_t esp_spi(const struct vb_frame *f, const struct vb_layer *l)
{
	return l->l4_type == VB_L4_ESP ? read32(f->data + l->l4) : 0;
}

/* The data of the domain's Geneve option. */
static uint32_t geneve_option(const struct key_source *from, bool *found)
{
	uint32_t head = tunnel_word(from->f, VB_TUNNEL_GENEVE, 0), option;
	uint32_t at = from->f->tunnel_at + 8u, end = at + (head >> 24 & 0x3f) * 4;

	*found = false;
	for (; at + 4 <= end; at += 4 + (option & 0x1f) * 4) {
		option = match_word_at(from->f, at);
		if (option >> 8 == from->option) {
			*found = true;
			return option & 0x1f ? match_word_at(from->f, at + 4) : 0;
		}
	}
	return 0;
}

static uint32_t geneve_word(const struct key_source *from)
{
	uint32_t head = tunnel_word(from->f, VB_TUNNEL_GENEVE, 0);
	bool found = false;

	if (from->option != STEER_NO_OPTION)
		geneve_option(from, &found);
	return (tunnel_word(from->f, VB_TUNNEL_GENEVE, 1) & 0xffffff00) | (uint32_t)found << 1 |
	       (head >> 23 & 1);
}

static uint32_t second_tags(const struct vb_frame *f)
{
	uint32_t word = 0;

	if (f->outer.vlans > 1)
		word |= f->outer.vlan_type[1] == ETH_CVLAN ? 1u << 31 : 1u << 29;
	if (f->inner.vlans > 1)
		word |= f->inner.vlan_type[1] == ETH_CVLAN ? 1u << 30 : 1u << 28;
	return word | (is_gre(f) ? read16(f->data + f->tunnel_at + 2) : 0);
}

static uint32_t misc_word(const struct key_source *from, uint32_t index)
{
	const struct vb_frame *f = from->f;
	uint32_t word;

	switch (index) {
	case 0:
		return (is_gre(f) ? (read16(f->data + f->tunnel_at) & 0xb000u) << 16 : 0) |
		       (from->meta->source_sqn & 0xffffff);
	case 1:
		return from->meta->source_port;
	case 2:
		return (uint32_t)f->outer.vlan[1] << 16 | f->inner.vlan[1];
	case 3:
		return second_tags(f);
	case 4:
		return gre_key(f);
	case 5:
		return (tunnel_word(f, VB_TUNNEL_VXLAN, 1) & 0xffffff00) | bth_word(f, 0) >> 24;
	case 6:
		return geneve_word(from);
	case 7:
		return flow_label(f, &f->outer);
	case 8:
		return flow_label(f, &f->inner);
	case 9:
		word = tunnel_word(f, VB_TUNNEL_GENEVE, 0);
		return (word >> 24 & 0x3f) << 16 | (word & 0xffff);
	case 10:
		return bth_word(f, 1) & 0xffffff;
	case 11:
		return esp_spi(f, &f->inner);
	case 12:
		return esp_spi(f, &f->outer);
	default:
		return 0;
	}
}

static uint32_t misc2_word(const struct key_source *from, uint32_t index)
{
	const struct vb_frame *f = from->f;

	switch (index) {
	case 0:
		return f->outer.mpls ? read32(f->data + f->outer.mpls) : 0;
	case 1:
		return f->inner.mpls ? read32(f->data + f->inner.mpls) : 0;
	case 2:
		return f->tunnel_mpls && is_gre(f) ? read32(f->data + f->tunnel_mpls) : 0;
	case 3:
		return f->tunnel_mpls && !is_gre(f) ? read32(f->data + f->tunnel_mpls) : 0;
	case 12:
		return from->meta->reg_a;
	case 13:
		return from->meta->reg_b;
	default:
		return index < 12 ? from->meta->reg_c[11 - index] : 0;
	}
}

static uint32_t tcp_number(const struct vb_frame *f, const struct vb_layer *l, uint32_t at)
{
	return l->l4_type == VB_L4_TCP ? read32(f->data + l->l4 + at) : 0;
}

static uint32_t icmp_word(const struct vb_frame *f, enum vb_l4 type, uint32_t at)
{
	return f->outer.l4_type == type ? read32(f->data + f->outer.l4 + at) : 0;
}

static uint32_t gtpu_word(const struct vb_frame *f, uint32_t index)
{
	uint32_t first = tunnel_word(f, VB_TUNNEL_GTPU, 0), flags = first >> 24;

	switch (index) {
	case 11:
		return (first >> 16 & 0xff) << 24 | flags << 16;
	case 12:
		return flags & 7 ? tunnel_word(f, VB_TUNNEL_GTPU, 2) : 0;
	default:
		return flags & 4 ? tunnel_word(f, VB_TUNNEL_GTPU, 3) : 0;
	}
}

static uint32_t misc3_word(const struct key_source *from, uint32_t index)
{
	const struct vb_frame *f = from->f;
	uint32_t word;
	bool found;

	switch (index) {
	case 0:
	case 2:
		return tcp_number(f, &f->inner, index ? 8 : 4);
	case 1:
	case 3:
		return tcp_number(f, &f->outer, index == 3 ? 8 : 4);
	case 4:
		return tunnel_word(f, VB_TUNNEL_VXLAN_GPE, 1) >> 8;
	case 5:
		word = tunnel_word(f, VB_TUNNEL_VXLAN_GPE, 0);
		return (word & 0xff) << 24 | word >> 24 << 16;
	case 6:
		return icmp_word(f, VB_L4_ICMP, 4);
	case 7:
		return icmp_word(f, VB_L4_ICMPV6, 4);
	case 8:
		return (icmp_word(f, VB_L4_ICMP, 0) & 0xffff0000) |
		       icmp_word(f, VB_L4_ICMPV6, 0) >> 16;
	case 9:
		return geneve_option(from, &found);
	case 10:
		return tunnel_word(f, VB_TUNNEL_GTPU, 1);
	case 11:
	case 12:
	case 13:
		return gtpu_word(f, index);
	case 14:
		return tunnel_word(f, VB_TUNNEL_GTPU, 0);
	default:
		return 0;
	}
}

static uint32_t fact(const struct key_source *from, uint32_t index)
{
	const struct vb_frame *f = from->f;

	switch (index / 16) {
	case 0:
		return layer_word(f, &f->outer, index);
	case 1:
		return misc_word(from, index - 16);
	case 2:
		return layer_word(f, &f->inner, index - 32);
	case 3:
		return misc2_word(from, index - 48);
	case 4:
		return misc3_word(from, index - 64);
	case 6:
		return index >= 100 && f->tunnel_at
			       ? match_word_at(f, f->tunnel_at + (index - 100) * 4)
			       : 0;
	default:
		return index == FACT_OUTER_SUMS
			       ? sums_word(f, &f->outer, VB_CSUM_L3, VB_CSUM_L4)
			       : sums_word(f, &f->inner, VB_CSUM_INNER_L3, VB_CSUM_INNER_L4);
	}
}

void steer_extract(const struct key_plan *plan, const struct key_source *from, uint32_t *key)
{
	const struct key_op *op = plan->op, *end = op + plan->count;

	for (; op < end; op++) {
		uint32_t bits = fact(from, op->fact) & op->mask;

		/* Plain facts and sums of one word follow each other. */
		if (op > plan->op && op[-1].word == op->word)
			bits |= key[op->word];
		key[op->word] = bits;
	}
}
