// SPDX-License-Identifier: MIT
/*
 * Owns the headers in front of a BTH, both ways. A GRH is laid out as an IPv6 header.
 */
#include "packet/network.h"

#include <netinet/in.h>

#include "packet/frame/bytes.h"
#include "packet/opcodes.h"

enum { IPV4_DF = 0x4000, IPV4_FRAGMENT = 0x3fff, IPV4_VERSION_IHL = 0x45 };

uint32_t vb_network_size(uint8_t network)
{
	return network == VB_ROCE_IPV4   ? IPV4_HEADER + UDP_HEADER
	       : network == VB_ROCE_IPV6 ? IPV6_HEADER + UDP_HEADER
					 : IPV6_HEADER;
}

/* --- out -------------------------------------------------------------------------------------- */

static uint8_t *network_put_ipv4(uint8_t *at, const struct vb_roce_route *r, uint32_t len)
{
	at[0] = IPV4_VERSION_IHL;
	at[1] = r->traffic_class;
	write16(at + 2, len + IPV4_HEADER);
	write16(at + 4, r->ip_id);
	write16(at + 6, r->ip_df ? IPV4_DF : 0);
	at[8] = r->hop_limit;
	at[9] = IPPROTO_UDP;
	write16(at + 10, 0);
	memcpy(at + 12, &r->sgid.raw[12], 4);
	memcpy(at + 16, &r->dgid.raw[12], 4);
	write16(at + 10, (uint16_t)~vb_frame_sum16(at, IPV4_HEADER, 0));
	return at + IPV4_HEADER;
}

static uint8_t *network_put_ipv6(uint8_t *at, const struct vb_roce_route *r, uint32_t len,
				 uint8_t next)
{
	write32(at, 6u << 28 | (uint32_t)r->traffic_class << 20 | (r->flow_label & 0xfffff));
	write16(at + 4, len);
	at[6] = next;
	at[7] = r->hop_limit;
	memcpy(at + 8, &r->sgid, 16);
	memcpy(at + 24, &r->dgid, 16);
	return at + IPV6_HEADER;
}

uint8_t *vb_network_put(uint8_t *at, const struct vb_roce_route *r, uint32_t len)
{
	if (r->network == VB_ROCE_V1)
		return network_put_ipv6(at, r, len, GRH_NEXT_HEADER);
	len += UDP_HEADER;
	at = r->network == VB_ROCE_IPV4 ? network_put_ipv4(at, r, len)
					: network_put_ipv6(at, r, len, IPPROTO_UDP);
	write16(at, r->sport);
	write16(at + 2, ROCE_PORT);
	write16(at + 4, len);
	write16(at + 6, 0); /* RoCE v2 does without a checksum (A17.5.3) */
	return at + UDP_HEADER;
}

/* --- in --------------------------------------------------------------------------------------- */

static void network_map_ipv4(union ibv_gid *gid, const uint8_t *addr)
{
	memset(gid->raw, 0, 10);
	memset(gid->raw + 10, 0xff, 2);
	memcpy(gid->raw + 12, addr, 4);
}

/* *end: bytes of the IP packet. */
static enum vb_roce_error network_get_ipv4(const uint8_t *at, size_t len, struct vb_roce_route *r,
					   size_t *end)
{
	if (len < IPV4_HEADER)
		return VB_ROCE_SHORT;
	if (at[0] >> 4 != 4)
		return VB_ROCE_IP_VERSION;
	if (at[0] != IPV4_VERSION_IHL)
		return VB_ROCE_IP_OPTIONS;
	*end = read16(at + 2);
	if (*end > len || *end < IPV4_HEADER)
		return VB_ROCE_IP_LENGTH;
	if (vb_frame_sum16(at, IPV4_HEADER, 0) != 0xffff)
		return VB_ROCE_IP_CHECKSUM;
	if (read16(at + 6) & IPV4_FRAGMENT)
		return VB_ROCE_FRAGMENT;
	if (at[9] != IPPROTO_UDP)
		return VB_ROCE_PROTOCOL;
	r->traffic_class = at[1];
	r->ip_id = read16(at + 4);
	r->ip_df = read16(at + 6) & IPV4_DF;
	r->hop_limit = at[8];
	network_map_ipv4(&r->sgid, at + 12);
	network_map_ipv4(&r->dgid, at + 16);
	return VB_ROCE_OK;
}

/* The same of IPv6 and of a GRH. Extension headers are not those of RoCE: they are another protocol. */
static enum vb_roce_error network_get_ipv6(const uint8_t *at, size_t len, struct vb_roce_route *r,
					   size_t *end)
{
	if (len < IPV6_HEADER)
		return VB_ROCE_SHORT;
	if (at[0] >> 4 != 6)
		return VB_ROCE_IP_VERSION;
	*end = IPV6_HEADER + read16(at + 4);
	if (*end > len)
		return VB_ROCE_IP_LENGTH;
	if (at[6] == IPPROTO_FRAGMENT)
		return VB_ROCE_FRAGMENT;
	if (at[6] != (r->network == VB_ROCE_V1 ? GRH_NEXT_HEADER : IPPROTO_UDP))
		return VB_ROCE_PROTOCOL;
	r->traffic_class = (uint8_t)(read16(at) >> 4);
	r->flow_label = read32(at) & 0xfffff;
	r->hop_limit = at[7];
	memcpy(&r->sgid, at + 8, 16);
	memcpy(&r->dgid, at + 24, 16);
	return VB_ROCE_OK;
}

/* Over the pseudo header and the whole datagram of len bytes at udp. */
static bool network_udp_is_right(const struct vb_roce_route *r, const uint8_t *udp, uint32_t len)
{
	uint32_t skip = r->network == VB_ROCE_IPV4 ? 12 : 0;
	uint32_t sum = IPPROTO_UDP + len;

	sum = vb_frame_sum16(r->sgid.raw + skip, 16 - skip, sum);
	sum = vb_frame_sum16(r->dgid.raw + skip, 16 - skip, sum);
	return vb_frame_sum16(udp, len, sum) == 0xffff;
}

enum vb_roce_error vb_network_get(const uint8_t *at, size_t len, struct vb_roce_route *r,
				  size_t *bth_len)
{
	bool ipv4 = r->network == VB_ROCE_IPV4;
	size_t header = ipv4 ? IPV4_HEADER : IPV6_HEADER, end;
	enum vb_roce_error error =
		ipv4 ? network_get_ipv4(at, len, r, &end) : network_get_ipv6(at, len, r, &end);
	const uint8_t *udp = at + header;

	if (error)
		return error;
	*bth_len = end - header;
	if (r->network == VB_ROCE_V1)
		return VB_ROCE_OK;
	if (*bth_len < UDP_HEADER)
		return VB_ROCE_SHORT;
	if (read16(udp + 2) != ROCE_PORT)
		return VB_ROCE_UDP_PORT;
	if (read16(udp + 4) != *bth_len)
		return VB_ROCE_UDP_LENGTH;
	if (read16(udp + 6) && !network_udp_is_right(r, udp, (uint32_t)*bth_len))
		return VB_ROCE_UDP_CHECKSUM;
	r->sport = read16(udp);
	*bth_len -= UDP_HEADER;
	return VB_ROCE_OK;
}
