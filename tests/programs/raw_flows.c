// SPDX-License-Identifier: MIT
/*
 * ibv_create_flow(): every kind of specification, with the frame that it matches and those that miss it by one field;
 * priorities, defaults, sniffers, tags, drops, counters; what is refused. The argument is the device.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "station.h"

/* Frames between stations of one port: to a group, since others' unicast addresses are not on the port itself. */
static const uint64_t here = 0x030000000001, there = 0x020000000002, group = 0x01005e000001;
static const char *device;
static struct station tx, rx, other, far; /* far: of another port */

/* --- flows --------------------------------------------------------------------------------------- */

struct flow_in {
	_Alignas(8) uint32_t pad; /* so that specifications are aligned */
	struct ibv_flow_attr attr;
	uint8_t specs[512];
	size_t size;
};

static void flow_begin(struct flow_in *in, uint16_t priority)
{
	memset(in, 0, sizeof(*in));
	in->attr = (struct ibv_flow_attr){ .type = IBV_FLOW_ATTR_NORMAL,
					   .size = sizeof(in->attr),
					   .priority = priority,
					   .port = 1 };
}

static void *flow_spec(struct flow_in *in, int type, size_t size)
{
	struct ibv_flow_spec *spec = (void *)(in->specs + in->size);

	spec->hdr.type = (enum ibv_flow_spec_type)type;
	spec->hdr.size = (uint16_t)size;
	in->size += size;
	in->attr.size = (uint16_t)(in->attr.size + size);
	in->attr.num_of_specs++;
	return spec;
}

#define SPEC(in, type, kind) \
	((struct ibv_flow_spec_##kind *)flow_spec(in, type, sizeof(struct ibv_flow_spec_##kind)))

_Static_assert(offsetof(struct flow_in, specs) == 4 + sizeof(struct ibv_flow_attr), "specs follow");

static struct ibv_flow *flow_make(struct station *s, struct flow_in *in)
{
	struct ibv_flow *flow = ibv_create_flow(s->qp, &in->attr);

	check(flow, "%s", strerror(errno));
	return flow;
}

static void refused(struct station *s, struct flow_in *in, int err)
{
	errno = 0;
	check(!ibv_create_flow(s->qp, &in->attr));
	check_eq(errno, err);
}

static void add_dmac(struct flow_in *in, uint64_t mac)
{
	struct ibv_flow_spec_eth *eth = SPEC(in, IBV_FLOW_SPEC_ETH, eth);
	uint8_t header[14];

	put_eth(header, 0, mac, 0, 0);
	memcpy(eth->val.dst_mac, header, 6);
	memset(eth->mask.dst_mac, 0xff, 6);
}

static void add_default(struct flow_in *in, enum ibv_flow_attr_type type)
{
	flow_begin(in, 0);
	in->attr.type = type;
}

/* --- each kind of specification -------------------------------------------------------------------- */

/* A frame, its flow, and bytes that make it another frame: offsets, ended by 0xffff. */
struct sample {
	const char *name;
	uint32_t (*frame)(uint8_t *f);
	void (*specs)(struct flow_in *in);
	uint16_t misses[12];
};

enum { END = 0xffff };

static uint32_t frame_vlan(uint8_t *f)
{
	put_tag(f, put_eth(f, 0, here, there, 0x8100), 5 << 13 | 0x123, 0x88b5);
	return 100;
}

static void specs_vlan(struct flow_in *in)
{
	struct ibv_flow_spec_eth *eth = SPEC(in, IBV_FLOW_SPEC_ETH, eth);
	uint8_t header[18];

	frame_vlan(header);
	memcpy(eth->val.dst_mac, header, 6);
	memcpy(eth->val.src_mac, header + 6, 6);
	memcpy(&eth->val.vlan_tag, header + 14, 2);
	memcpy(&eth->val.ether_type, header + 16, 2);
	memset(&eth->mask, 0xff, sizeof(eth->mask));
}

static uint32_t frame_ip4(uint8_t *f)
{
	put_udp(f, put_ip4(f, put_eth(f, 0, here, there, 0x0800), 17, 0x0a010203, 0x0a040506, 66),
		1111, 2222, 58);
	return 100;
}

static void specs_ip4(struct flow_in *in)
{
	struct ibv_flow_spec_ipv4 *ip;
	uint8_t f[100];

	frame_ip4(f);
	SPEC(in, IBV_FLOW_SPEC_ETH, eth);
	ip = SPEC(in, IBV_FLOW_SPEC_IPV4, ipv4);
	memcpy(&ip->val.src_ip, f + 26, 4);
	memcpy(&ip->val.dst_ip, f + 30, 4);
	memset(&ip->mask, 0xff, sizeof(ip->mask));
}

static void specs_udp(struct flow_in *in)
{
	struct ibv_flow_spec_tcp_udp *udp;
	uint8_t f[100];

	frame_ip4(f);
	specs_ip4(in);
	udp = SPEC(in, IBV_FLOW_SPEC_UDP, tcp_udp);
	memcpy(&udp->val.src_port, f + 34, 2);
	memcpy(&udp->val.dst_port, f + 36, 2);
	memset(&udp->mask, 0xff, sizeof(udp->mask));
}

static void specs_ip4_ext(struct flow_in *in)
{
	struct ibv_flow_spec_ipv4_ext *ip;
	uint8_t f[100];

	frame_ip4(f);
	ip = SPEC(in, IBV_FLOW_SPEC_IPV4_EXT, ipv4_ext);
	memcpy(&ip->val.dst_ip, f + 30, 4);
	memset(&ip->mask.dst_ip, 0xff, 4);
	ip->val.proto = 17;
	ip->val.tos = 0;
	ip->val.ttl = 64;
	ip->mask.proto = ip->mask.tos = ip->mask.ttl = 0xff;
}

static uint32_t frame_tcp6(uint8_t *f)
{
	uint32_t at = put_ip6(f, put_eth(f, 0, here, there, 0x86dd), 6, 0x21, 0x22, 46);

	f[15] = 0x12; /* traffic class, flow label */
	f[16] = 0x34;
	put_tcp(f, at, 333, 444, 0x02);
	return 100;
}

static void specs_tcp6(struct flow_in *in)
{
	struct ibv_flow_spec_ipv6 *ip = SPEC(in, IBV_FLOW_SPEC_IPV6, ipv6);
	struct ibv_flow_spec_tcp_udp *tcp = SPEC(in, IBV_FLOW_SPEC_TCP, tcp_udp);
	uint8_t f[100];

	frame_tcp6(f);
	memcpy(ip->val.src_ip, f + 22, 16);
	memcpy(ip->val.dst_ip, f + 38, 16);
	ip->val.flow_label = htobe32(0x23400);
	ip->val.traffic_class = 0x01;
	ip->val.hop_limit = 64;
	ip->val.next_hdr = 6;
	memset(&ip->mask, 0xff, sizeof(ip->mask));
	tcp->val.src_port = htobe16(333);
	tcp->val.dst_port = htobe16(444);
	memset(&tcp->mask, 0xff, sizeof(tcp->mask));
}

static uint32_t frame_vxlan(uint8_t *f)
{
	uint32_t at = put_eth(f, 0, here, there, 0x0800);

	at = put_ip4(f, at, 17, 1, 2, 86 - 0);
	at = put_udp(f, at, 5555, 4789, 78);
	f[at] = 0x08;
	put32(f + at + 4, 0x123456 << 8);
	at = put_eth(f, at + 8, 0x020000000011, 0x020000000022, 0x0800);
	at = put_ip4(f, at, 17, 0x0b000001, 0x0b000002, 36);
	put_udp(f, at, 77, 88, 28);
	return 120;
}

static void specs_vxlan(struct flow_in *in)
{
	struct ibv_flow_spec_tcp_udp *udp;
	struct ibv_flow_spec_tunnel *tunnel;
	struct ibv_flow_spec_ipv4 *inner;
	struct ibv_flow_spec_eth *eth;

	udp = SPEC(in, IBV_FLOW_SPEC_UDP, tcp_udp);
	udp->val.dst_port = htobe16(4789);
	udp->mask.dst_port = 0xffff;
	tunnel = SPEC(in, IBV_FLOW_SPEC_VXLAN_TUNNEL, tunnel);
	tunnel->val.tunnel_id = htobe32(0x123456);
	tunnel->mask.tunnel_id = UINT32_MAX;
	eth = SPEC(in, IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, eth);
	memcpy(eth->val.dst_mac, (uint8_t[]){ 2, 0, 0, 0, 0, 0x11 }, 6);
	memset(eth->mask.dst_mac, 0xff, 6);
	inner = SPEC(in, IBV_FLOW_SPEC_IPV4 | IBV_FLOW_SPEC_INNER, ipv4);
	inner->val.dst_ip = htobe32(0x0b000002);
	inner->mask.dst_ip = UINT32_MAX;
	udp = SPEC(in, IBV_FLOW_SPEC_UDP | IBV_FLOW_SPEC_INNER, tcp_udp);
	udp->val.dst_port = htobe16(88);
	udp->mask.dst_port = 0xffff;
}

static uint32_t frame_gre(uint8_t *f)
{
	uint32_t at = put_ip4(f, put_eth(f, 0, here, there, 0x0800), 47, 1, 2, 66);

	put16(f + at, 0x2000); /* key present */
	put16(f + at + 2, 0x0800);
	put32(f + at + 4, 0xabcdef01);
	put_ip4(f, at + 8, 17, 3, 4, 38);
	return 100;
}

static void specs_gre(struct flow_in *in)
{
	struct ibv_flow_spec_gre *gre = SPEC(in, IBV_FLOW_SPEC_GRE, gre);

	gre->val.c_ks_res0_ver = htobe16(0x2000);
	gre->mask.c_ks_res0_ver = htobe16(0xb000);
	gre->val.protocol = htobe16(0x0800);
	gre->mask.protocol = 0xffff;
	gre->val.key = htobe32(0xabcdef01);
	gre->mask.key = UINT32_MAX;
}

static uint32_t frame_mpls(uint8_t *f)
{
	uint32_t at = put_eth(f, 0, here, there, 0x8847);

	put32(f + at, 0x12345 << 12 | 5 << 9 | 1 << 8 | 64);
	put_ip4(f, at + 4, 17, 3, 4, 62);
	return 100;
}

static void specs_mpls(struct flow_in *in)
{
	struct ibv_flow_spec_mpls *mpls = SPEC(in, IBV_FLOW_SPEC_MPLS, mpls);

	mpls->val.label = htobe32(0x12345 << 12 | 5 << 9 | 1 << 8 | 64);
	mpls->mask.label = UINT32_MAX;
}

static uint32_t frame_esp(uint8_t *f)
{
	uint32_t at = put_ip4(f, put_eth(f, 0, here, there, 0x0800), 50, 1, 2, 66);

	put32(f + at, 0x11223344);
	return 100;
}

static void specs_esp(struct flow_in *in)
{
	struct ibv_flow_spec_esp *esp = SPEC(in, IBV_FLOW_SPEC_ESP, esp);

	esp->val.spi = htobe32(0x11223344);
	esp->mask.spi = UINT32_MAX;
}

static const struct sample samples[] = {
	{ "ETH, VLAN", frame_vlan, specs_vlan, { 0, 5, 6, 11, 13, 14, 15, 16, 17, END } },
	{ "IPV4", frame_ip4, specs_ip4, { 12, 26, 29, 30, 33, END } },
	{ "UDP", frame_ip4, specs_udp, { 23, 34, 35, 36, 37, END } },
	{ "IPV4_EXT", frame_ip4, specs_ip4_ext, { 15, 22, 23, 30, END } },
	{ "IPV6, TCP", frame_tcp6, specs_tcp6, { 15, 16, 20, 21, 22, 37, 38, 53, 54, 57, END } },
	{ "VXLAN", frame_vxlan, specs_vxlan, { 23, 36, 46, 48, 50, 80, 87, END } },
	{ "GRE", frame_gre, specs_gre, { 23, 34, 36, 38, 41, END } },
	{ "MPLS", frame_mpls, specs_mpls, { 13, 14, 16, 17, END } },
	{ "ESP", frame_esp, specs_esp, { 23, 34, 37, END } },
};

static void each_specification(void)
{
	for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
		const struct sample *s = &samples[i];
		struct flow_in in;
		struct ibv_flow *flow;
		struct got got;
		uint8_t f[256] = { 0 };
		uint32_t len = s->frame(f);

		flow_begin(&in, 0);
		s->specs(&in);
		station_send(&tx, f, len, 0);
		station_quiet(&rx);
		flow = flow_make(&rx, &in);
		station_send(&tx, f, len, 0);
		check(station_poll(&rx, &got), "%s does not match", s->name);
		check(!memcmp(got.data, f, len));
		for (int k = 0; s->misses[k] != END; k++) {
			uint8_t *byte = f + s->misses[k];
			/* Of these two bytes, the bits that are compared are high ones. */
			uint8_t bit = s->misses[k] == 12 || s->misses[k] == 34 ? 0x80 : 2;

			*byte ^= bit;
			station_send(&tx, f, len, 0);
			check(!station_poll(&rx, &got), "%s matches with another byte %d", s->name,
			      s->misses[k]);
			*byte ^= bit;
		}
		station_send(&tx, f, len, 0);
		station_expect(&rx, f, len);
		check_eq(ibv_destroy_flow(flow), 0);
		station_send(&tx, f, len, 0);
		station_quiet(&rx);
	}
}

/* --- which flow gets it ---------------------------------------------------------------------------- */

static void masks(void)
{
	struct ibv_flow_spec_ipv4 *ip;
	struct ibv_flow *flow;
	struct flow_in in;
	uint8_t f[100] = { 0 };

	flow_begin(&in, 0);
	ip = SPEC(&in, IBV_FLOW_SPEC_IPV4, ipv4);
	ip->val.dst_ip = htobe32(0x0a0405ff); /* the last byte is outside of the mask */
	ip->mask.dst_ip = htobe32(0xffffff00);
	flow = flow_make(&rx, &in);
	frame_ip4(f);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	f[32] ^= 1;
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	check_eq(ibv_destroy_flow(flow), 0);
}

static void priorities(void)
{
	struct ibv_flow *low, *high, *same;
	struct flow_in in;
	uint8_t f[100] = { 0 };

	frame_ip4(f);
	flow_begin(&in, 3);
	add_dmac(&in, here);
	low = flow_make(&rx, &in);
	flow_begin(&in, 2);
	specs_ip4(&in);
	high = flow_make(&other, &in);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&other, f, sizeof(f));
	station_quiet(&rx);
	f[30] ^= 1; /* not for the high one */
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_quiet(&other);
	f[30] ^= 1;
	check_eq(ibv_destroy_flow(high), 0);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	/* The same mask, value and priority: both. */
	flow_begin(&in, 3);
	add_dmac(&in, here);
	same = flow_make(&other, &in);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_expect(&other, f, sizeof(f));
	check_eq(ibv_destroy_flow(low), 0);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	station_expect(&other, f, sizeof(f));
	check_eq(ibv_destroy_flow(same), 0);
}

/* A flow that does not trap gets a copy; of one priority it comes before those that do. */
static void copies(void)
{
	struct ibv_flow *copy, *second, *trap, *all;
	struct flow_in in;
	struct got got;
	uint8_t f[100] = { 0 };

	frame_ip4(f);
	flow_begin(&in, 3);
	add_dmac(&in, here);
	trap = flow_make(&rx, &in);
	flow_begin(&in, 3);
	specs_ip4(&in);
	in.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	copy = flow_make(&other, &in);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_expect(&other, f, sizeof(f));
	/* Two of them: both, and then what traps; behind that nobody. */
	flow_begin(&in, 2);
	add_dmac(&in, here);
	in.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	second = flow_make(&other, &in);
	add_default(&in, IBV_FLOW_ATTR_ALL_DEFAULT);
	all = flow_make(&other, &in);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_get(&other, &got);
	station_expect(&other, f, sizeof(f));
	/* Without one that traps it goes on to the defaults. */
	check_eq(ibv_destroy_flow(trap), 0);
	check_eq(ibv_destroy_flow(second), 0);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	station_get(&other, &got);
	station_expect(&other, f, sizeof(f));
	check_eq(ibv_destroy_flow(all), 0);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&other, f, sizeof(f));
	check_eq(ibv_destroy_flow(copy), 0);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&other);
}

static void defaults(void)
{
	struct ibv_flow *all, *multi, *mac;
	struct flow_in in;
	uint8_t f[60] = { 0 };

	add_default(&in, IBV_FLOW_ATTR_ALL_DEFAULT);
	all = flow_make(&rx, &in);
	add_default(&in, IBV_FLOW_ATTR_MC_DEFAULT);
	multi = flow_make(&other, &in);
	/* From the wire; what its own port sends to another's address is on the wire only. */
	put_eth(f, 0, there, there + 1, 0x88b5);
	station_send(&far, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_quiet(&other);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	put_eth(f, 0, group, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_expect(&other, f, sizeof(f));
	/* Any other flow comes before them. */
	flow_begin(&in, 15);
	add_dmac(&in, group);
	mac = flow_make(&other, &in);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	station_expect(&other, f, sizeof(f));
	check_eq(ibv_destroy_flow(all), 0);
	check_eq(ibv_destroy_flow(multi), 0);
	check_eq(ibv_destroy_flow(mac), 0);
}

/* Specifications of a flow that is not NORMAL say nothing, as with the kernel's drivers. */
static void ignored_specifications(void)
{
	struct ibv_flow *all, *multi, *sniffer;
	struct flow_in in;
	uint8_t f[60] = { 0 };

	add_default(&in, IBV_FLOW_ATTR_ALL_DEFAULT);
	add_dmac(&in, there);
	SPEC(&in, IBV_FLOW_SPEC_ACTION_DROP, action_drop);
	all = flow_make(&rx, &in);
	add_default(&in, IBV_FLOW_ATTR_MC_DEFAULT);
	add_dmac(&in, here);
	multi = flow_make(&other, &in);
	put_eth(f, 0, there, there + 1, 0x88b5);
	station_send(&far, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_quiet(&other);
	put_eth(f, 0, group, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_expect(&other, f, sizeof(f));
	check_eq(ibv_destroy_flow(multi), 0);
	add_default(&in, IBV_FLOW_ATTR_SNIFFER);
	add_dmac(&in, there);
	sniffer = flow_make(&other, &in);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_expect(&other, f, sizeof(f));
	check_eq(ibv_destroy_flow(sniffer), 0);
	check_eq(ibv_destroy_flow(all), 0);
}

static void sniffers(void)
{
	struct ibv_flow *all, *sniffer;
	struct flow_in in;
	uint8_t f[60] = { 0 };

	add_default(&in, IBV_FLOW_ATTR_SNIFFER);
	sniffer = flow_make(&other, &in);
	put_eth(f, 0, here, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	station_expect(&other, f, sizeof(f));
	add_default(&in, IBV_FLOW_ATTR_ALL_DEFAULT);
	all = flow_make(&rx, &in);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	station_expect(&other, f, sizeof(f));
	check_eq(ibv_destroy_flow(all), 0);
	check_eq(ibv_destroy_flow(sniffer), 0);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&other);
}

/* --- actions ------------------------------------------------------------------------------------------ */

static void tags(void)
{
	struct ibv_flow *flow, *all;
	struct flow_in in;
	struct got got;
	uint8_t f[60] = { 0 };

	flow_begin(&in, 0);
	add_dmac(&in, here);
	SPEC(&in, IBV_FLOW_SPEC_ACTION_TAG, action_tag)->tag_id = 0xabcdef;
	flow = flow_make(&rx, &in);
	all = flow_all(rx.qp);
	put_eth(f, 0, here, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_get(&rx, &got);
	check_eq(got.tag, rx.has_tag ? 0xabcdef : 0);
	put_eth(f, 0, group, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_get(&rx, &got);
	check_eq(got.tag, 0);
	check_eq(got.qpn, rx.qp->qp_num);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_flow(all), 0);
}

static void drops(void)
{
	struct ibv_flow *flow, *all;
	struct flow_in in;
	uint8_t f[60] = { 0 };

	flow_begin(&in, 0);
	add_dmac(&in, here);
	SPEC(&in, IBV_FLOW_SPEC_ACTION_DROP, action_drop);
	flow = flow_make(&rx, &in);
	all = flow_all(rx.qp);
	put_eth(f, 0, here, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	put_eth(f, 0, group, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_flow(all), 0);
}

static void counts(void)
{
	struct ibv_counters_init_attr init = { 0 };
	struct ibv_counters *counters = ibv_create_counters(rx.ctx, &init);
	struct ibv_counter_attach_attr attach = { .counter_desc = IBV_COUNTER_BYTES, .index = 1 };
	uint64_t values[3] = { 0, 0, 77 };
	struct ibv_flow *flow;
	struct flow_in in;
	struct got got;
	uint8_t f[100] = { 0 };

	check(counters);
	check_eq(ibv_attach_counters_point_flow(counters, &attach, NULL), 0);
	attach = (struct ibv_counter_attach_attr){ .counter_desc = IBV_COUNTER_PACKETS };
	check_eq(ibv_attach_counters_point_flow(counters, &attach, NULL), 0);
	flow_begin(&in, 0);
	add_dmac(&in, here);
	SPEC(&in, IBV_FLOW_SPEC_ACTION_COUNT, counter_action)->counters = counters;
	flow = flow_make(&rx, &in);
	check_eq(ibv_destroy_counters(counters), EBUSY);
	check_eq(ibv_attach_counters_point_flow(counters, &attach, NULL), EBUSY);
	put_eth(f, 0, here, there, 0x88b5);
	for (int i = 0; i < 3; i++) {
		station_send(&tx, f, i ? 100 : 60, 0);
		station_get(&rx, &got);
	}
	check_eq(ibv_read_counters(counters, values, 1, 0), EINVAL);
	check_eq(ibv_read_counters(counters, values, 3, 0), 0);
	check_eq(values[0], 3);
	check_eq(values[1], 260);
	check_eq(values[2], 77);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_counters(counters), 0);
}

/* --- what is refused -------------------------------------------------------------------------------- */

/* A flow to a queue pair without receive queue takes its frames from those behind it. */
static void loses(struct station *sender)
{
	struct ibv_flow *flow, *all = flow_all(rx.qp);
	struct flow_in in;
	uint8_t f[60] = { 0 };

	flow_begin(&in, 0);
	add_dmac(&in, here);
	flow = flow_make(sender, &in);
	put_eth(f, 0, here, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	check_eq(ibv_destroy_flow(flow), 0);
	station_send(&tx, f, sizeof(f), 0);
	station_expect(&rx, f, sizeof(f));
	check_eq(ibv_destroy_flow(all), 0);
}

static void bad_input(void)
{
	struct flow_in in;
	struct ibv_qp *qp;
	struct ibv_qp_init_attr init = { .send_cq = rx.send_cq,
					 .recv_cq = rx.send_cq,
					 .qp_type = IBV_QPT_RAW_PACKET,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct station sender = { .qp = ibv_create_qp(rx.pd, &init) };

	qp = sender.qp;
	check(qp);
	flow_begin(&in, 0);
	/* It cannot receive: with mlx5 that is no destination, with mlx4 one that loses all. */
	if (!strncmp(device, "mlx4", 4))
		loses(&sender);
	else
		refused(&sender, &in, EINVAL);
	check_eq(ibv_destroy_qp(qp), 0);
	flow_begin(&in, 0);
	in.attr.port = 2;
	refused(&rx, &in, EINVAL);
	in.attr.port = 0;
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0x1000);
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	in.attr.type = 9;
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	in.attr.comp_mask = 1;
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	in.attr.flags = 1u << 30;
	refused(&rx, &in, EINVAL);
	in.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	refused(&rx, &in, EOPNOTSUPP);
	add_default(&in, IBV_FLOW_ATTR_ALL_DEFAULT);
	flow_spec(&in, IBV_FLOW_SPEC_ETH, 8); /* ignored, but it has a form */
	refused(&rx, &in, EINVAL);
	add_default(&in, IBV_FLOW_ATTR_ALL_DEFAULT);
	in.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	SPEC(&in, IBV_FLOW_SPEC_ACTION_DROP, action_drop);
	in.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	flow_spec(&in, 0x77, 8);
	refused(&rx, &in, EOPNOTSUPP);
	flow_begin(&in, 0);
	flow_spec(&in, IBV_FLOW_SPEC_ETH, 8); /* too small */
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	SPEC(&in, IBV_FLOW_SPEC_TCP, tcp_udp);
	SPEC(&in, IBV_FLOW_SPEC_UDP, tcp_udp); /* cannot be both */
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	SPEC(&in, IBV_FLOW_SPEC_ESP, esp)->mask.seq = 1;
	refused(&rx, &in, EOPNOTSUPP);
	flow_begin(&in, 0);
	SPEC(&in, IBV_FLOW_SPEC_ACTION_TAG, action_tag)->tag_id = 1 << 24;
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	SPEC(&in, IBV_FLOW_SPEC_ACTION_COUNT, counter_action);
	refused(&rx, &in, EINVAL);
	flow_begin(&in, 0);
	SPEC(&in, IBV_FLOW_SPEC_ACTION_HANDLE, action_handle);
	refused(&rx, &in, EOPNOTSUPP);
	check_eq(ibv_destroy_flow(flow_all(rx.qp)), 0); /* nothing is left behind */
}

/* Many flows of one mask, and of many masks; in any order of going. */
static void many(void)
{
	enum { FLOWS = 3000 };
	static struct ibv_flow *flows[FLOWS];
	struct flow_in in;
	struct got got;
	uint8_t f[60] = { 0 };
	uint64_t random = 1;

	for (int i = 0; i < FLOWS; i++) {
		flow_begin(&in, 0);
		add_dmac(&in, here + (uint64_t)i);
		flows[i] = flow_make(&rx, &in);
	}
	for (int i = 0; i < 200; i++) {
		put_eth(f, 0, here + next_random(&random) % FLOWS, there, 0x88b5);
		station_send(&tx, f, sizeof(f), 0);
		station_get(&rx, &got);
	}
	put_eth(f, 0, here + FLOWS, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	station_quiet(&rx);
	for (int i = 0; i < FLOWS; i += 2)
		check_eq(ibv_destroy_flow(flows[i]), 0);
	for (int i = FLOWS - 1; i > 0; i -= 2)
		check_eq(ibv_destroy_flow(flows[i]), 0);
}

/* A device that is closed takes its flows along. */
static void closed(void)
{
	static struct station s; /* the structs stay, and a leak checker finds them here */
	static struct ibv_flow *volatile flow;
	uint8_t f[60] = { 0 };

	station_open(&s, device);
	flow = flow_all(s.qp);
	check(flow);
	check_eq(ibv_close_device(s.ctx), 0);
	put_eth(f, 0, here, there, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
}

int main(int argc, char **argv)
{
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	device = argc > 1 ? argv[1] : "mlx5_0";
	station_open(&tx, device);
	station_open(&rx, device);
	station_open(&other, device);
	station_open(&far, !strcmp(device, "mlx5_0") ? "mlx5_1" : "mlx5_0");
	each_specification();
	masks();
	priorities();
	copies();
	defaults();
	sniffers();
	ignored_specifications();
	tags();
	drops();
	counts();
	bad_input();
	many();
	closed();
	station_close(&far);
	station_close(&other);
	station_close(&rx);
	station_close(&tx);
	return 0;
}
