// SPDX-License-Identifier: MIT
/*
 * Owns the bytes of Ethernet frames: Ethernet, one VLAN tag, IPv4 or IPv6 without extension headers, TCP or UDP. Knows
 * no queues; called from raw.c.
 */
#include "card/frame.h"

#include <endian.h>
#include <netinet/in.h>
#include <string.h>
#include <infiniband/mlx4dv.h>

#include "card/format/format.h"

enum { VLAN_TAG = 4, ETH_IPV4 = 0x0800, ETH_IPV6 = 0x86dd, ETH_VLAN = 0x8100 };

/* Once, whoever else writes there. */
static uint8_t read8(const uint8_t *at)
{
	return *(const volatile uint8_t *)at;
}

static uint16_t read16(const uint8_t *at)
{
	return (uint16_t)(read8(at) << 8 | read8(at + 1));
}

static void write16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* --- headers --------------------------------------------------------------------------------------------------------- */

static uint32_t ip_end(const struct vb_frame *f, uint32_t length)
{
	return f->l3 + length < f->len ? f->l3 + length : f->len;
}

static void parse_ipv4(struct vb_frame *f)
{
	const uint8_t *ip = f->data + f->l3;
	uint32_t header;
	uint8_t first;

	if (f->len < f->l3 + 20)
		return;
	first = read8(ip);
	header = (first & 0xf) * 4u;
	if (first >> 4 != 4 || header < 20 || f->len < f->l3 + header)
		return;
	f->ipv4 = true;
	f->l3_len = header;
	f->end = ip_end(f, read16(ip + 2));
	/* Only the first piece of a datagram has the ports, and none a checksum that could be looked at. */
	if (!(read16(ip + 6) & 0x3fff))
		f->l4 = f->l3 + header;
	f->protocol = read8(ip + 9);
}

static void parse_ipv6(struct vb_frame *f)
{
	const uint8_t *ip = f->data + f->l3;

	if (f->len < f->l3 + 40 || read8(ip) >> 4 != 6)
		return;
	f->l3_len = 40;
	f->end = ip_end(f, 40u + read16(ip + 4));
	f->l4 = f->l3 + 40;
	f->protocol = read8(ip + 6);
}

void vb_frame_parse(struct vb_frame *f)
{
	uint32_t at = VB_FRAME_HEADER;
	uint16_t type = read16(f->data + 12);

	if (type == ETH_VLAN && f->len >= at + VLAN_TAG) {
		f->has_vlan = true;
		f->vlan = read16(f->data + 14);
		type = read16(f->data + 16);
		at += VLAN_TAG;
	}
	f->l3 = at;
	if (type == ETH_IPV4)
		parse_ipv4(f);
	else if (type == ETH_IPV6)
		parse_ipv6(f);
	if (!f->l3_len)
		f->l3 = 0;
	if (f->l4 && ((f->protocol != IPPROTO_TCP && f->protocol != IPPROTO_UDP) ||
		      f->len < f->l4 + (f->protocol == IPPROTO_TCP ? 20u : 8u)))
		f->l4 = 0;
}

/* --- checksums --------------------------------------------------------------------------------------------------------- */

static uint32_t sum16(const uint8_t *data, uint32_t len, uint32_t sum)
{
	for (; len > 1; len -= 2, data += 2)
		sum += (uint32_t)(data[0] << 8 | data[1]);
	return len ? sum + ((uint32_t)data[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static uint16_t ip_sum(const struct vb_frame *f)
{
	return fold(sum16(f->data + f->l3, f->l3_len, 0));
}

/* Over the pseudo header and everything behind it: 0xffff where the checksum inside is right. */
static uint16_t l4_sum(const struct vb_frame *f)
{
	const uint8_t *ip = f->data + f->l3;
	uint32_t sum = f->protocol;

	if (f->end < f->l4)
		return 0;
	sum += f->end - f->l4;
	sum = f->ipv4 ? sum16(ip + 12, 8, sum) : sum16(ip + 8, 32, sum);
	return fold(sum16(f->data + f->l4, f->end - f->l4, sum));
}

void vb_frame_fill_checksums(struct vb_frame *f, uint8_t flags)
{
	uint8_t *ip = f->data + f->l3, *at;
	uint16_t sum;

	if (f->ipv4 && (flags & VB_WR_IP_CSUM)) {
		write16(ip + 10, 0);
		write16(ip + 10, (uint16_t)~ip_sum(f));
	}
	if (!f->l4 || !(flags & VB_WR_L4_CSUM))
		return;
	at = f->data + f->l4 + (f->protocol == IPPROTO_TCP ? 16 : 6);
	write16(at, 0);
	sum = (uint16_t)~l4_sum(f);
	write16(at, sum || f->protocol == IPPROTO_TCP ? sum : 0xffff);
}

void vb_frame_classify(struct vb_frame *f)
{
	f->checksum = fold(sum16(f->data + VB_FRAME_HEADER, f->len - VB_FRAME_HEADER, 0));
	if (f->ipv4) {
		f->status |= MLX4_CQE_STATUS_IPV4_PKT;
		if (ip_sum(f) == 0xffff)
			f->status |= MLX4_CQE_STATUS_IP_HDR_CSUM_OK;
	}
	if (f->l4 && l4_sum(f) == 0xffff)
		f->status |= MLX4_CQE_STATUS_TCP_UDP_CSUM_OK;
}

/* --- receive side scaling ---------------------------------------------------------------------------------------------- */

/* The Toeplitz hash: for every bit that is set, the 32 bits of the key that start at its place. */
static uint32_t toeplitz(const uint8_t *key, const uint8_t *data, size_t len)
{
	uint32_t window, hash = 0;
	size_t next = 32;

	memcpy(&window, key, sizeof(window));
	window = be32toh(window);
	for (size_t i = 0; i < len; i++) {
		for (int bit = 7; bit >= 0; bit--, next++) {
			if (data[i] & 1 << bit)
				hash ^= window;
			window = window << 1 | (key[next / 8] >> (7 - next % 8) & 1);
		}
	}
	return hash;
}

uint32_t vb_frame_hash(const struct vb_frame *f, const struct vb_rss *rss)
{
	const uint8_t *ip = f->data + f->l3;
	uint32_t size = f->ipv4 ? 4 : 16, addresses = f->ipv4 ? 12 : 8;
	uint64_t source = f->ipv4 ? IBV_RX_HASH_SRC_IPV4 : IBV_RX_HASH_SRC_IPV6;
	uint64_t destination = f->ipv4 ? IBV_RX_HASH_DST_IPV4 : IBV_RX_HASH_DST_IPV6;
	bool tcp = f->protocol == IPPROTO_TCP;
	uint8_t input[36];
	size_t n = 0;

	if (!f->l3)
		return 0;
	if (rss->fields & source) {
		memcpy(input, ip + addresses, size);
		n = size;
	}
	if (rss->fields & destination) {
		memcpy(input + n, ip + addresses + size, size);
		n += size;
	}
	if (f->l4 && (rss->fields & (tcp ? IBV_RX_HASH_SRC_PORT_TCP : IBV_RX_HASH_SRC_PORT_UDP))) {
		memcpy(input + n, f->data + f->l4, 2);
		n += 2;
	}
	if (f->l4 && (rss->fields & (tcp ? IBV_RX_HASH_DST_PORT_TCP : IBV_RX_HASH_DST_PORT_UDP))) {
		memcpy(input + n, f->data + f->l4 + 2, 2);
		n += 2;
	}
	return toeplitz(rss->key, input, n);
}
