// SPDX-License-Identifier: MIT
/* Packet parsing: Ethernet, VLAN, IPv4/IPv6, UDP/TCP; header checksum, flow hash, counters per flow. */
#include <string.h>

#include "kernel.h"

enum { PACKETS = 64, SLOT = 128, FLOWS = 256 };

static uint8_t ring[PACKETS][SLOT];
static struct {
	uint32_t packets, bytes;
} flow[FLOWS];

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static uint16_t sum16(const uint8_t *p, unsigned len)
{
	uint32_t s = 0;

	for (unsigned i = 0; i < len; i += 2)
		s += get16(p + i);
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)~s;
}

static uint32_t mix(uint32_t h, uint32_t v)
{
	h ^= v;
	h *= 0x9e3779b1u;
	return h ^ h >> 15;
}

/* Flow hash of a packet, or 0 for one to drop. */
static __attribute__((noinline)) uint32_t parse(const uint8_t *p, unsigned len)
{
	unsigned at = 12, type = get16(p + at), protocol;
	uint32_t h = 1;

	while (type == 0x8100 && at < 24) {
		h = mix(h, get16(p + at + 2) & 0xfff);
		at += 4;
		type = get16(p + at);
	}
	at += 2;
	if (type == 0x0800) {
		unsigned header = (p[at] & 15) * 4u;

		if (p[at] >> 4 != 4 || header < 20 || at + header > len || sum16(p + at, header))
			return 0;
		protocol = p[at + 9];
		h = mix(mix(h, get32(p + at + 12)), get32(p + at + 16));
		at += header;
	} else if (type == 0x86dd) {
		protocol = p[at + 6];
		for (unsigned i = 8; i < 40; i += 4)
			h = mix(h, get32(p + at + i));
		at += 40;
	} else {
		return 0;
	}
	if ((protocol != 6 && protocol != 17) || at + 8 > len)
		return 0;
	return mix(mix(h, get32(p + at)), protocol) | 1;
}

static void make(uint8_t *p, uint64_t *seed)
{
	unsigned at = 12, kind = (unsigned)(kernel_random(seed) % 8);

	for (unsigned i = 0; i < SLOT; i++)
		p[i] = (uint8_t)kernel_random(seed);
	if (kind & 1) {
		put16(p + at, 0x8100);
		at += 4;
	}
	if (kind == 6) {
		put16(p + at, 0x86dd);
		p[at + 2 + 6] = 17;
		return;
	}
	put16(p + at, kind == 7 ? 0x0806 : 0x0800);
	at += 2;
	p[at] = 0x45;
	p[at + 9] = kind & 2 ? 6 : 17;
	put16(p + at + 10, 0);
	put16(p + at + 10, sum16(p + at, 20));
}

uint64_t kernel(uint64_t rounds)
{
	uint64_t seed = 7, sum = 0;

	for (unsigned i = 0; i < PACKETS; i++)
		make(ring[i], &seed);
	memset(flow, 0, sizeof(flow));
	while (rounds--)
		for (unsigned i = 0; i < PACKETS; i++) {
			unsigned len = 60 + ((unsigned)rounds + i * 7) % 60;
			uint32_t h = parse(ring[i], len);

			flow[h % FLOWS].packets++;
			flow[h % FLOWS].bytes += len;
			sum += h;
		}
	for (unsigned i = 0; i < FLOWS; i++)
		sum = sum * 31 + flow[i].packets + flow[i].bytes;
	return sum;
}
