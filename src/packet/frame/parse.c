// SPDX-License-Identifier: MIT
/*
 * Finds the headers of a frame. Each function gets a level of headers and the offset where its
 * header begins, checks that the header lies before the limit, keeps what it says and calls the
 * next:
 *
 *	ethernet --> tags --> network --+--> ipv4 --+--> transport --> udp_tunnel --+
 *	    ^                  ^  ^     +--> ipv6 --+              +-> gre, IP in IP -+
 *	    |                  |  +-- mpls                                           |
 *	    +------------------+----------------- inner level, once -----------------+
 *
 * The limit of a level is the end of what the IP header above it carries.
 */
#include <errno.h>
#include <netinet/in.h>

#include "packet/frame/bytes.h"

enum {
	PORT_GTPU = 2152,
	PORT_VXLAN = 4789,
	PORT_VXLAN_GPE = 4790,
	PORT_GENEVE = 6081,
	PORT_MPLS = 6635,
	GRE_CHECKSUM = 0x8000,
	GRE_KEY = 0x2000,
	GRE_SEQUENCE = 0x1000,
	GRE_ACK = 0x80, /* of version 1 */
	GRE_VERSION = 7,
	GTP_DATA = 255,
};

struct parser {
	struct vb_frame *f;
	uint32_t limit;     /* headers lie before it */
	bool trust_lengths; /* of IP */
};

static void parse_network(struct parser *p, struct vb_layer *l, uint32_t at, uint16_t type);
static void parse_ethernet(struct parser *p, struct vb_layer *l, uint32_t at);
static void parse_ip_any(struct parser *p, struct vb_layer *l, uint32_t at);

/* --- tunnels ---------------------------------------------------------------------------------- */

static void begin_tunnel(struct parser *p, enum vb_tunnel type, uint32_t at)
{
	p->f->tunnel = (uint8_t)type;
	p->f->tunnel_at = (uint16_t)at;
	p->f->inner.end = p->limit;
}

static void parse_vxlan(struct parser *p, uint32_t at, bool gpe)
{
	struct vb_layer *inner = &p->f->inner;

	if (p->limit < at + 8)
		return;
	begin_tunnel(p, gpe ? VB_TUNNEL_VXLAN_GPE : VB_TUNNEL_VXLAN, at);
	switch (gpe ? read8(p->f->data + at + 3) : 3) {
	case 1:
		parse_network(p, inner, at + 8, ETH_IPV4);
		break;
	case 2:
		parse_network(p, inner, at + 8, ETH_IPV6);
		break;
	case 3:
		parse_ethernet(p, inner, at + 8);
	}
}

static void parse_bridged(struct parser *p, uint32_t at, uint16_t type)
{
	if (type == ETH_BRIDGED)
		parse_ethernet(p, &p->f->inner, at);
	else if (type == ETH_IPV4 || type == ETH_IPV6)
		parse_network(p, &p->f->inner, at, type);
}

static void parse_geneve(struct parser *p, uint32_t at)
{
	uint32_t len;
	uint8_t first;

	if (p->limit < at + 8)
		return;
	first = read8(p->f->data + at);
	len = 8 + (first & 0x3f) * 4u;
	if (first >> 6 || p->limit < at + len)
		return;
	begin_tunnel(p, VB_TUNNEL_GENEVE, at);
	parse_bridged(p, at + len, read16(p->f->data + at + 2));
}

/* The offset behind the header and its extensions, or 0. */
static uint32_t gtpu_payload(const struct parser *p, uint32_t at, uint8_t flags)
{
	uint8_t next, len;

	if (!(flags & 7))
		return at + 8;
	if (p->limit < at + 12)
		return 0;
	next = flags & 4 ? read8(p->f->data + at + 11) : 0;
	at += 12;
	for (int i = 0; next && i < VB_FRAME_EXTENSIONS; i++) {
		len = at < p->limit ? read8(p->f->data + at) : 0;
		if (!len || p->limit < at + len * 4u)
			return 0;
		at += len * 4u;
		next = read8(p->f->data + at - 1);
	}
	return next ? 0 : at;
}

static void parse_gtpu(struct parser *p, uint32_t at)
{
	uint8_t flags;

	if (p->limit < at + 8)
		return;
	flags = read8(p->f->data + at);
	if ((flags & 0xf0) != 0x30) /* version 1, GTP and not GTP' */
		return;
	begin_tunnel(p, VB_TUNNEL_GTPU, at);
	if (read8(p->f->data + at + 1) != GTP_DATA)
		return;
	at = gtpu_payload(p, at, flags);
	if (at)
		parse_ip_any(p, &p->f->inner, at);
}

/* The offset behind the bottom of the stack, or 0. */
static uint32_t mpls_payload(const struct parser *p, uint32_t at)
{
	for (int i = 0; i < VB_FRAME_LABELS && p->limit >= at + 4; i++, at += 4)
		if (read8(p->f->data + at + 2) & 1)
			return at + 4;
	return 0;
}

static void parse_mpls_tunnel(struct parser *p, uint32_t at)
{
	if (p->limit < at + 4)
		return;
	if (!p->f->tunnel)
		begin_tunnel(p, VB_TUNNEL_MPLS, at);
	p->f->tunnel_mpls = (uint16_t)at;
	at = mpls_payload(p, at);
	if (at)
		parse_ip_any(p, &p->f->inner, at);
}

/*
 * Version 1 (RFC 2637) has the fields of version 0, and perhaps an acknowledgement behind them. Cards take
 * it for GRE, too: rdma-core's tests of tunnels send it with IP inside, and match what is inside.
 */
static void parse_gre(struct parser *p, uint32_t at)
{
	uint16_t flags, type;
	uint32_t len = 4;

	if (p->limit < at + 4)
		return;
	flags = read16(p->f->data + at);
	type = read16(p->f->data + at + 2);
	len += (flags & GRE_CHECKSUM ? 4 : 0) + (flags & GRE_KEY ? 4 : 0) +
	       (flags & GRE_SEQUENCE ? 4 : 0);
	if ((flags & GRE_VERSION) == 1)
		len += flags & GRE_ACK ? 4 : 0;
	if ((flags & GRE_VERSION) > 1 || p->limit < at + len)
		return;
	begin_tunnel(p, type == ETH_BRIDGED && flags == GRE_KEY ? VB_TUNNEL_NVGRE : VB_TUNNEL_GRE,
		     at);
	if (type == ETH_MPLS || type == ETH_MPLS_MULTICAST)
		parse_mpls_tunnel(p, at + len);
	else
		parse_bridged(p, at + len, type);
}

static void parse_udp_tunnel(struct parser *p, uint32_t at, uint16_t port)
{
	switch (port) {
	case PORT_VXLAN:
		parse_vxlan(p, at, false);
		break;
	case PORT_VXLAN_GPE:
		parse_vxlan(p, at, true);
		break;
	case PORT_GENEVE:
		parse_geneve(p, at);
		break;
	case PORT_GTPU:
		parse_gtpu(p, at);
		break;
	case PORT_MPLS:
		parse_mpls_tunnel(p, at);
	}
}

/* --- transport -------------------------------------------------------------------------------- */

/* Length of the header at the offset, 0: it does not fit or is no header. */
static uint32_t l4_header(const struct parser *p, uint32_t at, enum vb_l4 type)
{
	static const uint8_t shortest[] = {
		[VB_L4_TCP] = TCP_HEADER, [VB_L4_UDP] = UDP_HEADER, [VB_L4_ICMP] = 8,
		[VB_L4_ICMPV6] = 8,       [VB_L4_ESP] = 8,          [VB_L4_AH] = 12,
	};
	uint32_t len = shortest[type];

	if (p->limit < at + len)
		return 0;
	if (type == VB_L4_TCP) {
		len = (read8(p->f->data + at + 12) >> 4) * 4u;
		if (len < TCP_HEADER || p->limit < at + len)
			return 0;
	}
	return len;
}

static enum vb_l4 l4_type(const struct vb_layer *l)
{
	switch (l->protocol) {
	case IPPROTO_TCP:
		return VB_L4_TCP;
	case IPPROTO_UDP:
		return VB_L4_UDP;
	case IPPROTO_ICMP:
		return l->ip == 4 ? VB_L4_ICMP : VB_L4_NONE;
	case IPPROTO_ICMPV6:
		return l->ip == 6 ? VB_L4_ICMPV6 : VB_L4_NONE;
	case IPPROTO_ESP:
		return VB_L4_ESP;
	case IPPROTO_AH:
		return VB_L4_AH;
	default:
		return VB_L4_NONE;
	}
}

/* What is no L4 header but begins another level. */
static void parse_encapsulated(struct parser *p, const struct vb_layer *l, uint32_t at)
{
	if (l->protocol == IPPROTO_GRE) {
		parse_gre(p, at);
	} else if (l->protocol == IPPROTO_IPIP || l->protocol == IPPROTO_IPV6) {
		begin_tunnel(p, VB_TUNNEL_IP, at);
		parse_network(p, &p->f->inner, at,
			      l->protocol == IPPROTO_IPIP ? ETH_IPV4 : ETH_IPV6);
	}
}

static void parse_transport(struct parser *p, struct vb_layer *l, uint32_t at)
{
	bool outer = l == &p->f->outer;
	enum vb_l4 type = l4_type(l);
	uint32_t len;

	if (type == VB_L4_NONE) {
		if (outer)
			parse_encapsulated(p, l, at);
		return;
	}
	len = l4_header(p, at, type);
	l->bad_l4 = !len;
	if (!len)
		return;
	l->l4 = (uint16_t)at;
	l->l4_type = (uint8_t)type;
	l->payload = (uint16_t)(at + len);
	if (type == VB_L4_TCP)
		l->tcp_flags = read16(p->f->data + at + 12) & 0x1ff;
	else if (type == VB_L4_UDP && outer)
		parse_udp_tunnel(p, at + len, read16(p->f->data + at + 2));
}

/* --- network ---------------------------------------------------------------------------------- */

/*
 * l3 and ip are set: header is the length of the first header, total what the datagram has by its
 * own word.
 */
static void set_end(struct parser *p, struct vb_layer *l, uint32_t header, uint32_t total)
{
	uint32_t have = l->end - l->l3;

	if (!p->trust_lengths)
		return;
	l->bad_l3 = total < header || total > have;
	if (total < header)
		total = header;
	if (total < have)
		l->end = l->l3 + total;
	if (l->end < p->limit)
		p->limit = l->end;
}

static void parse_ipv4(struct parser *p, struct vb_layer *l, uint32_t at)
{
	const uint8_t *ip = p->f->data + at;
	uint32_t header;
	uint8_t first;

	l->bad_l3 = true;
	if (p->limit < at + IPV4_HEADER)
		return;
	first = read8(ip);
	header = (first & 0xf) * 4u;
	if (first >> 4 != 4 || header < IPV4_HEADER || p->limit < at + header)
		return;
	l->bad_l3 = false;
	l->ip = 4;
	l->l3 = (uint16_t)at;
	l->l3_len = (uint16_t)header;
	l->payload = (uint16_t)(at + header);
	l->options = header > IPV4_HEADER;
	l->protocol = read8(ip + 9);
	l->fragment = read16(ip + 6) & 0x3fff;
	set_end(p, l, header, read16(ip + 2));
	if (!l->fragment)
		parse_transport(p, l, at + header);
}

static bool is_extension(uint8_t protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_DSTOPTS ||
	       protocol == IPPROTO_MH;
}

/* Go on behind the extension headers; false: they do not end, or L4 is not behind them. */
static bool skip_extensions(struct parser *p, struct vb_layer *l, uint32_t *at)
{
	const uint8_t *data = p->f->data;
	uint32_t len;

	for (int i = 0; is_extension(l->protocol); i++) {
		if (i == VB_FRAME_EXTENSIONS)
			return false;
		if (p->limit < *at + 8) {
			l->bad_l3 = true;
			return false;
		}
		len = l->protocol == IPPROTO_FRAGMENT ? 8 : (read8(data + *at + 1) + 1) * 8u;
		if (p->limit < *at + len) {
			l->bad_l3 = true;
			return false;
		}
		if (l->protocol == IPPROTO_FRAGMENT && read16(data + *at + 2) & 0xfff9)
			l->fragment = true;
		l->options = true;
		l->protocol = read8(data + *at);
		*at += len;
		l->l3_len = (uint16_t)(*at - l->l3);
		l->payload = (uint16_t)*at;
		if (l->fragment)
			return false; /* what follows may be the middle of a datagram */
	}
	return true;
}

static void parse_ipv6(struct parser *p, struct vb_layer *l, uint32_t at)
{
	const uint8_t *ip = p->f->data + at;
	uint32_t length;

	l->bad_l3 = true;
	if (p->limit < at + IPV6_HEADER || read8(ip) >> 4 != 6)
		return;
	l->bad_l3 = false;
	l->ip = 6;
	l->l3 = (uint16_t)at;
	l->l3_len = IPV6_HEADER;
	l->payload = (uint16_t)(at + IPV6_HEADER);
	l->protocol = read8(ip + 6);
	length = read16(ip + 4);
	set_end(p, l, IPV6_HEADER, IPV6_HEADER + length);
	at += IPV6_HEADER;
	if (skip_extensions(p, l, &at))
		parse_transport(p, l, at);
}

/* The version in the first byte is all that says what it is. */
static void parse_ip_any(struct parser *p, struct vb_layer *l, uint32_t at)
{
	uint8_t version = at < p->limit ? read8(p->f->data + at) >> 4 : 0;

	if (version == 4)
		parse_ipv4(p, l, at);
	else if (version == 6)
		parse_ipv6(p, l, at);
}

static void parse_network(struct parser *p, struct vb_layer *l, uint32_t at, uint16_t type)
{
	switch (type) {
	case ETH_IPV4:
		parse_ipv4(p, l, at);
		break;
	case ETH_IPV6:
		parse_ipv6(p, l, at);
		break;
	case ETH_MPLS:
	case ETH_MPLS_MULTICAST:
		if (p->limit < at + 4)
			break;
		l->mpls = (uint16_t)at;
		at = mpls_payload(p, at);
		if (at)
			parse_ip_any(p, l, at);
	}
}

static void parse_ethernet(struct parser *p, struct vb_layer *l, uint32_t at)
{
	const uint8_t *data = p->f->data;
	uint16_t type;

	if (p->limit < at + VB_FRAME_HEADER)
		return;
	l->has_l2 = true;
	l->l2 = (uint16_t)at;
	type = read16(data + at + 12);
	at += VB_FRAME_HEADER;
	while (l->vlans < VB_FRAME_VLANS && (type == ETH_CVLAN || type == ETH_SVLAN) &&
	       p->limit >= at + VLAN_TAG) {
		l->vlan_type[l->vlans] = type;
		l->vlan[l->vlans++] = read16(data + at);
		type = read16(data + at + 2);
		at += VLAN_TAG;
	}
	l->ethertype = type;
	l->payload = (uint16_t)at;
	parse_network(p, l, at, type);
}

/* --- the whole -------------------------------------------------------------------------------- */

static void parse_reset(struct vb_frame *f)
{
	f->tunnel = VB_TUNNEL_NONE;
	f->has_inner = false;
	f->tunnel_at = f->tunnel_mpls = 0;
	f->outer = (struct vb_layer){ .end = f->len };
	f->inner = (struct vb_layer){ 0 };
}

static void parse_headers(struct vb_frame *f, bool trust_lengths)
{
	struct parser p = { .f = f,
			    .limit = f->len < 0xffff ? f->len : 0xffff,
			    .trust_lengths = trust_lengths };

	parse_reset(f);
	parse_ethernet(&p, &f->outer, 0);
	f->has_inner = f->inner.has_l2 || f->inner.ip;
}

void vb_frame_parse(struct vb_frame *f)
{
	parse_headers(f, true);
}

void vb_frame_parse_template(struct vb_frame *f)
{
	parse_headers(f, false);
}

/* --- software parser -------------------------------------------------------------------------- */

static int place_l3(const struct vb_frame *f, struct vb_layer *l, uint32_t at, bool ipv6)
{
	const uint8_t *ip = f->data + at;
	uint32_t total;

	if (f->len < at + (ipv6 ? IPV6_HEADER : IPV4_HEADER))
		return -EINVAL;
	l->ip = ipv6 ? 6 : 4;
	l->l3 = (uint16_t)at;
	l->l3_len = IPV6_HEADER;
	total = IPV6_HEADER + read16(ip + 4);
	if (!ipv6) {
		l->l3_len = (uint16_t)((read8(ip) & 0xf) * 4);
		total = read16(ip + 2);
	}
	if (l->l3_len < IPV4_HEADER || f->len < at + l->l3_len)
		return -EINVAL;
	l->payload = (uint16_t)(at + l->l3_len);
	l->end = at + total < f->len ? at + total : f->len;
	return 0;
}

static int place_l4(const struct vb_frame *f, struct vb_layer *l, uint32_t at, bool udp)
{
	uint32_t len = UDP_HEADER;

	if (at < l->l3 + (uint32_t)l->l3_len || f->len < at + (udp ? UDP_HEADER : TCP_HEADER))
		return -EINVAL;
	if (!udp) {
		uint16_t word = read16(f->data + at + 12);

		len = (word >> 12) * 4u;
		if (len < TCP_HEADER || f->len < at + len)
			return -EINVAL;
		l->tcp_flags = word & 0x1ff;
	}
	l->l4 = (uint16_t)at;
	l->l4_type = udp ? VB_L4_UDP : VB_L4_TCP;
	l->protocol = udp ? IPPROTO_UDP : IPPROTO_TCP;
	l->l3_len = (uint16_t)(l->ip == 6 ? at - l->l3 : l->l3_len);
	l->payload = (uint16_t)(at + len);
	return 0;
}

static int parse_place(const struct vb_frame *f, struct vb_layer *l, uint32_t l3, uint32_t l4,
		       bool ipv6, bool udp)
{
	int err = 0;

	if (l3)
		err = place_l3(f, l, l3 * 2, ipv6);
	if (!err && l4)
		err = l3 ? place_l4(f, l, l4 * 2, udp) : -EINVAL; /* its sum needs the addresses */
	return err;
}

int vb_frame_parse_swp(struct vb_frame *f, const struct vb_swp *swp)
{
	int err;

	parse_reset(f);
	if (f->len < VB_FRAME_HEADER)
		return -EINVAL;
	f->outer.has_l2 = true;
	f->inner.end = f->len;
	err = parse_place(f, &f->outer, swp->outer_l3, swp->outer_l4,
			  swp->flags & VB_SWP_OUTER_IPV6, swp->flags & VB_SWP_OUTER_UDP);
	if (!err)
		err = parse_place(f, &f->inner, swp->inner_l3, swp->inner_l4,
				  swp->flags & VB_SWP_INNER_IPV6, swp->flags & VB_SWP_INNER_UDP);
	if (err)
		parse_reset(f);
	f->has_inner = f->inner.ip;
	return err;
}

/* --- names ------------------------------------------------------------------------------------ */

const char *vb_l4_name(uint8_t l4)
{
	static const char *const names[] = { "none", "tcp", "udp", "icmp", "icmpv6", "esp", "ah" };

	return l4 < sizeof(names) / sizeof(names[0]) ? names[l4] : "?";
}

const char *vb_tunnel_name(uint8_t tunnel)
{
	static const char *const names[] = { "none", "vxlan", "vxlan-gpe", "geneve", "gtpu",
					     "gre",  "nvgre", "ip",        "mpls" };

	return tunnel < sizeof(names) / sizeof(names[0]) ? names[tunnel] : "?";
}
