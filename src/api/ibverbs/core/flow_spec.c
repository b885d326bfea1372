// SPDX-License-Identifier: MIT
/*
 * From the specifications of a verbs flow to a mask and a value of struct fte_match_param, and its
 * actions. Fields of both are big-endian, so most of it is copying to the right place.
 *
 *	param:  outer headers 64 | misc 64 | inner headers 64 | misc2 64 | ...      bytes
 *
 * The bits of a value outside of its mask do not matter, as on hardware.
 */
#include "flow.h"

enum { OUTER = 0, MISC = 64, INNER = 128, MISC2 = 192 };

/* Byte offsets in a section of headers; bits where a field has no byte of its own. */
enum {
	SMAC = 0,
	ETHERTYPE = 6,
	DMAC = 8,
	FIRST_TAG = 14,
	IP_PROTOCOL = 16,
	TRAFFIC_CLASS = 17,
	CVLAN_TAG_BIT = 0x90,
	IP_VERSION_BIT = 0x93,
	TCP_SPORT = 20,
	TCP_DPORT = 22,
	HOP_LIMIT = 27,
	UDP_SPORT = 28,
	UDP_DPORT = 30,
	SRC_IP = 32,
	DST_IP = 48,
	IPV4_IN_IP = 12, /* an IPv4 address has the last four bytes of an address */
};

/* In misc and misc2. */
enum {
	GRE_C_BIT = 0,
	GRE_K_BIT = 2,
	GRE_S_BIT = 3,
	GRE_PROTOCOL = 14,
	GRE_KEY = 16,
	VXLAN_VNI = 20,
	OUTER_FLOW_LABEL = 28,
	INNER_FLOW_LABEL = 32,
	INNER_ESP_SPI = 44,
	OUTER_ESP_SPI = 48,
	OUTER_MPLS = 0,
	INNER_MPLS = 4,
	MPLS_OVER_GRE = 8,
	MPLS_OVER_UDP = 12,
};

enum { PROTO_TCP = 6, PROTO_UDP = 17, PROTO_GRE = 47, PROTO_ESP = 50, VXLAN_PORT = 4789 };

/* Where a specification's fields go. */
struct target {
	struct flow_match *match;
	bool inner;
	unsigned int base;              /* of the headers */
	enum ibv_flow_spec_type before; /* the specification in front, for MPLS */
};

/* Two specifications that want different values of a field can never both hold. */
static int put(struct flow_match *m, unsigned int at, const void *value, const void *mask,
	       size_t len)
{
	const uint8_t *v = value, *k = mask;

	for (size_t i = 0; i < len; i++) {
		uint8_t both = m->mask[at + i] & k[i];

		if ((m->value[at + i] & both) != (v[i] & both))
			return -vb_refuse_combination("two specifications contradict each other");
		m->mask[at + i] |= k[i];
		m->value[at + i] |= v[i] & k[i];
	}
	return 0;
}

static int put_byte(struct flow_match *m, unsigned int at, uint8_t value, uint8_t mask)
{
	return put(m, at, &value, &mask, 1);
}

/* A field of up to 8 bits inside a byte or across two; bit counts from the start of the section. */
static int flow_spec_put_bits(struct flow_match *m, unsigned int base, unsigned int bit,
			      unsigned int width, uint8_t value)
{
	unsigned int shift = 16 - bit % 8 - width, ones = ((1u << width) - 1) << shift;
	unsigned int bits = (unsigned int)value << shift;
	uint8_t v[2] = { (uint8_t)(bits >> 8), (uint8_t)bits };
	uint8_t k[2] = { (uint8_t)(ones >> 8), (uint8_t)ones };

	return put(m, base + bit / 8, v, k, 2);
}

static int put_protocol(const struct target *t, uint8_t protocol)
{
	return put_byte(t->match, t->base + IP_PROTOCOL, protocol, 0xff);
}

static int put_eth(const struct target *t, const struct ibv_flow_spec *spec)
{
	const struct ibv_flow_eth_filter *v = &spec->eth.val, *k = &spec->eth.mask;
	struct flow_match *m = t->match;
	int err = put(m, t->base + DMAC, v->dst_mac, k->dst_mac, 6);

	if (!err)
		err = put(m, t->base + SMAC, v->src_mac, k->src_mac, 6);
	if (!err)
		err = put(m, t->base + ETHERTYPE, &v->ether_type, &k->ether_type, 2);
	if (!err && k->vlan_tag) {
		err = put(m, t->base + FIRST_TAG, &v->vlan_tag, &k->vlan_tag, 2);
		if (!err)
			err = flow_spec_put_bits(m, t->base, CVLAN_TAG_BIT, 1, 1);
	}
	return err;
}

static int put_ipv4(const struct target *t, const struct ibv_flow_spec *spec)
{
	const struct ibv_flow_ipv4_ext_filter *v = &spec->ipv4_ext.val, *k = &spec->ipv4_ext.mask;
	const struct ibv_flow_ipv4_filter *value = &spec->ipv4.val, *mask = &spec->ipv4.mask;
	bool ext = (spec->hdr.type & ~IBV_FLOW_SPEC_INNER) == IBV_FLOW_SPEC_IPV4_EXT;
	struct flow_match *m = t->match;
	int err = flow_spec_put_bits(m, t->base, IP_VERSION_BIT, 4, 4);

	if (!err)
		err = put(m, t->base + SRC_IP + IPV4_IN_IP, ext ? &v->src_ip : &value->src_ip,
			  ext ? &k->src_ip : &mask->src_ip, 4);
	if (!err)
		err = put(m, t->base + DST_IP + IPV4_IN_IP, ext ? &v->dst_ip : &value->dst_ip,
			  ext ? &k->dst_ip : &mask->dst_ip, 4);
	if (err || !ext)
		return err;
	if (k->flags)
		return -vb_refuse_unsupported("flags of an IPv4 header in a flow");
	err = put_byte(m, t->base + IP_PROTOCOL, v->proto, k->proto);
	if (!err)
		err = put_byte(m, t->base + TRAFFIC_CLASS, v->tos, k->tos);
	return err ? err : put_byte(m, t->base + HOP_LIMIT, v->ttl, k->ttl);
}

static int put_ipv6(const struct target *t, const struct ibv_flow_spec *spec)
{
	const struct ibv_flow_ipv6_filter *v = &spec->ipv6.val, *k = &spec->ipv6.mask;
	struct flow_match *m = t->match;
	uint32_t label = k->flow_label & htobe32(0xfffff);
	int err = flow_spec_put_bits(m, t->base, IP_VERSION_BIT, 4, 6);

	if (!err)
		err = put(m, t->base + SRC_IP, v->src_ip, k->src_ip, 16);
	if (!err)
		err = put(m, t->base + DST_IP, v->dst_ip, k->dst_ip, 16);
	if (!err)
		err = put(m, MISC + (t->inner ? INNER_FLOW_LABEL : OUTER_FLOW_LABEL),
			  &v->flow_label, &label, 4);
	if (!err)
		err = put_byte(m, t->base + IP_PROTOCOL, v->next_hdr, k->next_hdr);
	if (!err)
		err = put_byte(m, t->base + TRAFFIC_CLASS, v->traffic_class, k->traffic_class);
	return err ? err : put_byte(m, t->base + HOP_LIMIT, v->hop_limit, k->hop_limit);
}

static int put_ports(const struct target *t, const struct ibv_flow_spec *spec)
{
	const struct ibv_flow_tcp_udp_filter *v = &spec->tcp_udp.val, *k = &spec->tcp_udp.mask;
	bool tcp = (spec->hdr.type & ~IBV_FLOW_SPEC_INNER) == IBV_FLOW_SPEC_TCP;
	int err = put_protocol(t, tcp ? PROTO_TCP : PROTO_UDP);

	if (!err)
		err = put(t->match, t->base + (tcp ? TCP_SPORT : UDP_SPORT), &v->src_port,
			  &k->src_port, 2);
	return err ? err
		   : put(t->match, t->base + (tcp ? TCP_DPORT : UDP_DPORT), &v->dst_port,
			 &k->dst_port, 2);
}

static int put_vxlan(const struct target *t, const struct ibv_flow_spec *spec)
{
	const uint8_t *v = (const uint8_t *)&spec->tunnel.val.tunnel_id;
	const uint8_t *k = (const uint8_t *)&spec->tunnel.mask.tunnel_id;
	static const uint8_t port[2] = { VXLAN_PORT >> 8, VXLAN_PORT & 0xff };
	static const uint8_t ones[2] = { 0xff, 0xff };
	int err;

	if (t->inner)
		return -vb_refuse_unsupported("a tunnel inside of a tunnel in a flow");
	err = put_protocol(t, PROTO_UDP);
	/* The program may have named another port itself. */
	if (!err && !t->match->mask[UDP_DPORT] && !t->match->mask[UDP_DPORT + 1])
		err = put(t->match, UDP_DPORT, port, ones, 2);
	/* 24 of the 32 bits */
	return err ? err : put(t->match, MISC + VXLAN_VNI, v + 1, k + 1, 3);
}

static int put_gre(const struct target *t, const struct ibv_flow_spec *spec)
{
	const struct ibv_flow_gre_filter *v = &spec->gre.val, *k = &spec->gre.mask;
	unsigned int flags = be16toh(k->c_ks_res0_ver), value = be16toh(v->c_ks_res0_ver);
	static const unsigned int bits[] = { GRE_C_BIT, GRE_K_BIT, GRE_S_BIT };
	int err;

	if (t->inner)
		return -vb_refuse_unsupported("a tunnel inside of a tunnel in a flow");
	if (flags & ~0xb000u)
		return -vb_refuse_unsupported("GRE version and reserved bits in a flow");
	err = put_protocol(t, PROTO_GRE);
	for (unsigned int i = 0; !err && i < 3; i++)
		if (flags & 0x8000u >> bits[i])
			err = flow_spec_put_bits(t->match, MISC, bits[i], 1,
						 value & 0x8000u >> bits[i] ? 1 : 0);
	if (!err)
		err = put(t->match, MISC + GRE_PROTOCOL, &v->protocol, &k->protocol, 2);
	return err ? err : put(t->match, MISC + GRE_KEY, &v->key, &k->key, 4);
}

static int put_mpls(const struct target *t, const struct ibv_flow_spec *spec)
{
	unsigned int at = t->inner                         ? INNER_MPLS
			  : t->before == IBV_FLOW_SPEC_UDP ? MPLS_OVER_UDP
			  : t->before == IBV_FLOW_SPEC_GRE ? MPLS_OVER_GRE
							   : OUTER_MPLS;

	return put(t->match, MISC2 + at, &spec->mpls.val.label, &spec->mpls.mask.label, 4);
}

static int put_esp(const struct target *t, const struct ibv_flow_spec *spec)
{
	int err;

	if (spec->esp.mask.seq)
		return -vb_refuse_unsupported("ESP sequence numbers in a flow");
	err = put_protocol(t, PROTO_ESP);
	return err ? err
		   : put(t->match, MISC + (t->inner ? INNER_ESP_SPI : OUTER_ESP_SPI),
			 &spec->esp.val.spi, &spec->esp.mask.spi, 4);
}

static const struct {
	enum ibv_flow_spec_type type;
	size_t size;
	int (*put)(const struct target *target, const struct ibv_flow_spec *spec);
} layers[] = {
	{ IBV_FLOW_SPEC_ETH, sizeof(struct ibv_flow_spec_eth), put_eth },
	{ IBV_FLOW_SPEC_IPV4, sizeof(struct ibv_flow_spec_ipv4), put_ipv4 },
	{ IBV_FLOW_SPEC_IPV4_EXT, sizeof(struct ibv_flow_spec_ipv4_ext), put_ipv4 },
	{ IBV_FLOW_SPEC_IPV6, sizeof(struct ibv_flow_spec_ipv6), put_ipv6 },
	{ IBV_FLOW_SPEC_TCP, sizeof(struct ibv_flow_spec_tcp_udp), put_ports },
	{ IBV_FLOW_SPEC_UDP, sizeof(struct ibv_flow_spec_tcp_udp), put_ports },
	{ IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(struct ibv_flow_spec_tunnel), put_vxlan },
	{ IBV_FLOW_SPEC_GRE, sizeof(struct ibv_flow_spec_gre), put_gre },
	{ IBV_FLOW_SPEC_MPLS, sizeof(struct ibv_flow_spec_mpls), put_mpls },
	{ IBV_FLOW_SPEC_ESP, sizeof(struct ibv_flow_spec_esp), put_esp },
};

static int check_size(const struct ibv_flow_spec *spec, size_t size)
{
	return spec->hdr.size == size ? 0
				      : -vb_refuse_range("size of a flow specification",
							 spec->hdr.size, size, size);
}

static int take_action(struct ibv_context *context, const struct ibv_flow_spec *spec,
		       struct flow_match *match)
{
	int err;

	switch ((int)spec->hdr.type) {
	case IBV_FLOW_SPEC_ACTION_TAG:
		err = check_size(spec, sizeof(spec->flow_tag));
		if (err)
			return err;
		if (match->tags++ || spec->flow_tag.tag_id > 0xffffff)
			return -vb_refuse_combination("a flow has one tag, of 24 bits");
		match->tag = spec->flow_tag.tag_id;
		return 0;
	case IBV_FLOW_SPEC_ACTION_DROP:
		err = check_size(spec, sizeof(spec->drop));
		match->drop = true;
		return err;
	case IBV_FLOW_SPEC_ACTION_COUNT:
		err = check_size(spec, sizeof(spec->flow_count));
		if (err)
			return err;
		if (match->counters || !spec->flow_count.counters ||
		    spec->flow_count.counters->context != context)
			return -vb_refuse_combination(
				"a flow has one set of counters, of its own context");
		match->counters = spec->flow_count.counters;
		return 0;
	default:
		return -vb_refuse_unsupported_value("a flow specification of type", spec->hdr.type);
	}
}

static int take_layer(const struct target *target, const struct ibv_flow_spec *spec)
{
	enum ibv_flow_spec_type type = spec->hdr.type & ~(unsigned int)IBV_FLOW_SPEC_INNER;
	int err;

	for (unsigned int i = 0; i < ARRAY_SIZE(layers); i++) {
		if (layers[i].type != type)
			continue;
		err = check_size(spec, layers[i].size);
		return err ? err : layers[i].put(target, spec);
	}
	return -vb_refuse_unsupported_value("a flow specification of type", spec->hdr.type);
}

static uint8_t section(const struct flow_match *m, unsigned int at, uint8_t bit)
{
	for (unsigned int i = 0; i < 64; i++)
		if (m->mask[at + i])
			return bit;
	return 0;
}

int api_flow_match(struct ibv_context *context, const struct ibv_flow_attr *attr,
		   struct flow_match *match)
{
	const char *at = (const char *)(attr + 1);
	struct target target = { .match = match };
	struct ibv_flow_spec copy, *spec = &copy;
	int err = 0;

	memset(match, 0, sizeof(*match));
	for (unsigned int i = 0; i < attr->num_of_specs && !err; i++) {
		/* Specifications follow one another, aligned or not. */
		memcpy(&copy, at, sizeof(copy.hdr));
		if (copy.hdr.size < sizeof(copy.hdr) || copy.hdr.size > sizeof(copy))
			return -vb_refuse_range("size of a flow specification", copy.hdr.size,
						sizeof(copy.hdr), sizeof(copy));
		memcpy(&copy, at, copy.hdr.size);
		if (spec->hdr.type & 0x1000) {
			err = take_action(context, spec, match);
		} else {
			target.inner = spec->hdr.type & IBV_FLOW_SPEC_INNER;
			target.base = target.inner ? INNER : OUTER;
			err = take_layer(&target, spec);
			target.before = spec->hdr.type;
		}
		at += spec->hdr.size;
	}
	match->criteria =
		section(match, OUTER, VB_STEER_OUTER) | section(match, MISC, VB_STEER_MISC) |
		section(match, INNER, VB_STEER_INNER) | section(match, MISC2, VB_STEER_MISC2);
	return err;
}
