// SPDX-License-Identifier: MIT
/*
 * Owns the line that says what a frame is, in the manner of tcpdump -e. Whatever the frame has, only
 * bytes that vb_frame_parse() has found to be there are read.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "packet/frame/bytes.h"
#include "packet/frame/frame.h"

enum {
	ETH_ARP = 0x0806,
	ETH_LLDP = 0x88cc,
	ETH_ROCE = 0x8915,
	ETH_LONGEST_LENGTH = 1500, /* a larger type is none, but a length */
	ARP_PACKET = 28,
	ARP_ETHERNET = 0x0001,
	GRH = 40,
	BTH = 12,
	PORT_ROCE = 4791,
};

struct line {
	char *text;
	size_t size, len; /* len < size */
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *line, const char *fmt, ...)
{
	size_t room = line->size - line->len;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(line->text + line->len, room, fmt, args);
	va_end(args);
	if (n > 0)
		line->len += (size_t)n < room ? (size_t)n : room - 1;
}

static void add_mac(struct line *line, const uint8_t *p)
{
	line_add(line, "%02x:%02x:%02x:%02x:%02x:%02x", p[0], p[1], p[2], p[3], p[4], p[5]);
}

static void add_address(struct line *line, uint8_t ip, const uint8_t *p)
{
	char text[INET6_ADDRSTRLEN];

	line_add(line, "%s", inet_ntop(ip == 4 ? AF_INET : AF_INET6, p, text, sizeof(text)));
}

static const char *line_type_name(uint16_t type)
{
	switch (type) {
	case ETH_IPV4:
		return "IPv4";
	case ETH_IPV6:
		return "IPv6";
	case ETH_ARP:
		return "ARP";
	case ETH_CVLAN:
		return "802.1Q";
	case ETH_SVLAN:
		return "802.1Q-QinQ";
	case ETH_MPLS:
		return "MPLS unicast";
	case ETH_MPLS_MULTICAST:
		return "MPLS multicast";
	case ETH_ROCE:
		return "RoCE";
	case ETH_LLDP:
		return "LLDP";
	default:
		return "Unknown";
	}
}

static void add_type(struct line *line, uint16_t type)
{
	if (type <= ETH_LONGEST_LENGTH)
		line_add(line, "802.3");
	else
		line_add(line, "ethertype %s (0x%04x)", line_type_name(type), type);
}

/* --- what frames carry ------------------------------------------------------------------------ */

/* len: bytes behind the Ethernet header. */
static void add_arp(struct line *line, const uint8_t *p, uint32_t len)
{
	if (len < ARP_PACKET || read16(p) != ARP_ETHERNET || read16(p + 2) != ETH_IPV4 ||
	    read8(p + 4) != 6 || read8(p + 5) != 4) {
		line_add(line, "ARP");
	} else if (read16(p + 6) == 1) {
		line_add(line, "Request who-has ");
		add_address(line, 4, p + 24);
		line_add(line, " tell ");
		add_address(line, 4, p + 14);
	} else if (read16(p + 6) == 2) {
		line_add(line, "Reply ");
		add_address(line, 4, p + 14);
		line_add(line, " is-at ");
		add_mac(line, p + 8);
	} else {
		line_add(line, "ARP operation %u", read16(p + 6));
	}
	line_add(line, ", length %" PRIu32, len);
}

static void add_roce(struct line *line, unsigned int version, const uint8_t *bth, uint32_t len)
{
	static const char *const transports[] = { "RC", "UC", "RD", "UD" };
	static const char *const names[] = {
		"SEND First",
		"SEND Middle",
		"SEND Last",
		"SEND Last with Immediate",
		"SEND Only",
		"SEND Only with Immediate",
		"RDMA WRITE First",
		"RDMA WRITE Middle",
		"RDMA WRITE Last",
		"RDMA WRITE Last with Immediate",
		"RDMA WRITE Only",
		"RDMA WRITE Only with Immediate",
		"RDMA READ Request",
		"RDMA READ response First",
		"RDMA READ response Middle",
		"RDMA READ response Last",
		"RDMA READ response Only",
		"Acknowledge",
		"ATOMIC Acknowledge",
		"CmpSwap",
		"FetchAdd",
		"opcode 0x15",
		"SEND Last with Invalidate",
		"SEND Only with Invalidate",
	};
	uint8_t opcode = read8(bth);

	line_add(line, "RoCE v%u ", version);
	if (opcode >> 5 < 4 && (opcode & 0x1f) < sizeof(names) / sizeof(names[0]))
		line_add(line, "%s %s", transports[opcode >> 5], names[opcode & 0x1f]);
	else
		line_add(line, "opcode 0x%02x", opcode);
	line_add(line, ", QP 0x%06x, PSN %u, length %" PRIu32, read32(bth + 4) & 0xffffff,
		 read32(bth + 8) & 0xffffff, len);
}

static void add_tcp(struct line *line, const struct vb_layer *l, const uint8_t *tcp, uint32_t len)
{
	static const char letters[] = "FSRP.UEW"; /* of the bits, the lowest first */
	uint32_t seq = read32(tcp + 4);

	line_add(line, "Flags [");
	for (unsigned int i = 0; i < 8; i++)
		if (l->tcp_flags >> i & 1)
			line_add(line, "%c", letters[i]);
	line_add(line, "%s], seq %" PRIu32, l->tcp_flags & 0xff ? "" : "none", seq);
	if (len)
		line_add(line, ":%" PRIu32, seq + len);
	if (l->tcp_flags & 0x10)
		line_add(line, ", ack %" PRIu32, read32(tcp + 8));
	line_add(line, ", win %u, length %" PRIu32, read16(tcp + 14), len);
}

static void add_echo(struct line *line, const char *what, const uint8_t *icmp)
{
	line_add(line, "echo %s, id %u, seq %u", what, read16(icmp + 4), read16(icmp + 6));
}

/* icmp: 8 bytes; len: of all that IP carries. */
static void add_icmp(struct line *line, const uint8_t *icmp, uint32_t len)
{
	uint8_t type = read8(icmp);

	line_add(line, "ICMP ");
	if (type == 8 || type == 0)
		add_echo(line, type ? "request" : "reply", icmp);
	else if (type == 3)
		line_add(line, "unreachable, code %u", read8(icmp + 1));
	else if (type == 11)
		line_add(line, "time exceeded");
	else
		line_add(line, "type %u, code %u", type, read8(icmp + 1));
	line_add(line, ", length %" PRIu32, len);
}

static void add_icmp6(struct line *line, const uint8_t *icmp, uint32_t len)
{
	static const char *const discovery[] = { "router solicitation", "router advertisement",
						 "neighbor solicitation", "neighbor advertisement",
						 "redirect" };
	uint8_t type = read8(icmp);

	line_add(line, "ICMP6, ");
	if (type == 128 || type == 129)
		add_echo(line, type == 128 ? "request" : "reply", icmp);
	else if (type >= 133 && type <= 137)
		line_add(line, "%s", discovery[type - 133]);
	else if (type == 1)
		line_add(line, "destination unreachable, code %u", read8(icmp + 1));
	else
		line_add(line, "type %u, code %u", type, read8(icmp + 1));
	line_add(line, ", length %" PRIu32, len);
}

static uint32_t line_between(uint32_t from, uint32_t to)
{
	return to > from ? to - from : 0;
}

/* What is behind IP. */
static void line_add_l4(struct line *line, const struct vb_frame *f, const struct vb_layer *l)
{
	const uint8_t *l4 = f->data + l->l4;
	uint32_t carried = line_between(l->l3 + l->l3_len, l->end),
		 payload = line_between(l->payload, l->end);

	switch (l->l4 ? l->l4_type : VB_L4_NONE) {
	case VB_L4_TCP:
		add_tcp(line, l, l4, payload);
		break;
	case VB_L4_UDP:
		if (read16(l4 + 2) == PORT_ROCE && line_between(l->l4 + UDP_HEADER, l->end) >= BTH)
			add_roce(line, 2, l4 + UDP_HEADER, carried - UDP_HEADER);
		else
			line_add(line, "UDP, length %" PRIu32, line_between(UDP_HEADER, carried));
		break;
	case VB_L4_ICMP:
		add_icmp(line, l4, carried);
		break;
	case VB_L4_ICMPV6:
		add_icmp6(line, l4, carried);
		break;
	default:
		line_add(line, "%s-proto-%u, length %" PRIu32, l->ip == 4 ? "ip" : "ip6",
			 l->protocol, carried);
		if (l->fragment)
			line_add(line, ", fragment");
		else if (l->bad_l4)
			line_add(line, ", header is cut");
	}
}

static void line_add_ip(struct line *line, const struct vb_frame *f, const struct vb_layer *l)
{
	const uint8_t *ip = f->data + l->l3, *l4 = f->data + l->l4;
	bool ports = l->l4 && (l->l4_type == VB_L4_TCP || l->l4_type == VB_L4_UDP);
	uint32_t source = l->ip == 4 ? 12 : 8, size = l->ip == 4 ? 4 : 16;

	add_address(line, l->ip, ip + source);
	if (ports)
		line_add(line, ".%u", read16(l4));
	line_add(line, " > ");
	add_address(line, l->ip, ip + source + size);
	if (ports)
		line_add(line, ".%u", read16(l4 + 2));
	line_add(line, ": ");
	line_add_l4(line, f, l);
}

/* What is behind Ethernet and its tags, or in a tunnel. */
static void add_l3(struct line *line, const struct vb_frame *f, const struct vb_layer *l)
{
	uint32_t left = line_between(l->payload, f->len);

	if (l->mpls)
		line_add(line, "MPLS label %u, ", read32(f->data + l->mpls) >> 12);
	if (l->ip && l->l3 && !l->bad_l3)
		line_add_ip(line, f, l);
	else if (l->bad_l3)
		line_add(line, "IP, header is wrong or cut");
	else if (l->ethertype == ETH_ARP)
		add_arp(line, f->data + l->payload, left);
	else if (l->ethertype == ETH_ROCE && left >= GRH + BTH)
		add_roce(line, 1, f->data + l->payload + GRH, left - GRH);
	else
		line_add(line, "%" PRIu32 " bytes", left);
}

static void add_l2(struct line *line, const struct vb_frame *f, const struct vb_layer *l)
{
	const uint8_t *eth = f->data + l->l2;

	add_mac(line, eth + 6);
	line_add(line, " > ");
	add_mac(line, eth);
	line_add(line, ", ");
	add_type(line, l->vlans ? l->vlan_type[0] : l->ethertype);
	line_add(line, ", length %" PRIu32 ": ", f->len - l->l2);
	for (unsigned int i = 0; i < l->vlans; i++) {
		line_add(line, "vlan %u, p %u, ", l->vlan[i] & 0xfff, l->vlan[i] >> 13);
		add_type(line, i + 1u < l->vlans ? l->vlan_type[i + 1] : l->ethertype);
		line_add(line, ", ");
	}
}

size_t vb_frame_line(const struct vb_frame *f, char *text, size_t size)
{
	struct line line = { .text = text, .size = size };

	if (!size)
		return 0;
	*text = '\0';
	if (!f->outer.has_l2 || f->len < VB_FRAME_HEADER) {
		line_add(&line, "%" PRIu32 " bytes: shorter than an Ethernet header", f->len);
		return line.len;
	}
	add_l2(&line, f, &f->outer);
	add_l3(&line, f, &f->outer);
	if (f->tunnel != VB_TUNNEL_NONE)
		line_add(&line, ", %s", vb_tunnel_name(f->tunnel));
	if (f->has_inner) {
		line_add(&line, ": ");
		if (f->inner.has_l2)
			add_l2(&line, f, &f->inner);
		add_l3(&line, f, &f->inner);
	}
	return line.len;
}
