// SPDX-License-Identifier: MIT
/*
 * What a NAT or load balancer does with a packet: check its header, rewrite addresses and ports by a
 * table, mend IP and UDP checksums by the difference, count.
 */
#include <string.h>

#include "kernel.h"

enum { PACKETS = 64, SLOT = 128, ENTRIES = 64 };

static uint8_t ring[PACKETS][SLOT];

static struct entry {
	uint8_t mac[12];
	uint32_t addr;
	uint16_t port;
	uint64_t packets;
} table[ENTRIES];

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* RFC 1624: the sum without the old halfword and with the new one. */
static uint16_t mend(uint16_t sum, uint16_t old, uint16_t new)
{
	uint32_t s = (uint16_t)~sum + (uint32_t)(uint16_t)~old + new;

	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return (uint16_t)~s;
}

static uint16_t header_sum(const uint8_t *p)
{
	uint32_t s = 0;

	for (unsigned i = 0; i < 20; i += 2)
		s += get16(p + i);
	s = (s & 0xffff) + (s >> 16);
	return (uint16_t) ~((s & 0xffff) + (s >> 16));
}

static void set16(uint8_t *field, uint16_t value, uint8_t *sum1, uint8_t *sum2)
{
	uint16_t old = get16(field);

	if (sum1)
		put16(sum1, mend(get16(sum1), old, value));
	put16(sum2, mend(get16(sum2), old, value));
	put16(field, value);
}

static __attribute__((noinline)) int rewrite(uint8_t *p)
{
	uint8_t *ip = p + 14, *udp = ip + 20;
	struct entry *e;

	if (get16(p + 12) != 0x0800 || ip[0] != 0x45 || ip[9] != 17 || header_sum(ip))
		return 0;
	e = &table[(get16(ip + 14) ^ get16(udp)) % ENTRIES];
	memcpy(p, e->mac, sizeof(e->mac));
	set16(ip + 16, (uint16_t)(e->addr >> 16), ip + 10, udp + 6);
	set16(ip + 18, (uint16_t)e->addr, ip + 10, udp + 6);
	set16(udp + 2, e->port, NULL, udp + 6);
	e->packets++;
	return 1;
}

uint64_t kernel(uint64_t rounds)
{
	uint64_t seed = 11, sum = 0;

	for (unsigned i = 0; i < ENTRIES; i++)
		table[i] = (struct entry){ { (uint8_t)i, 2, 3 },
					   (uint32_t)kernel_random(&seed),
					   (uint16_t)kernel_random(&seed),
					   0 };
	for (unsigned i = 0; i < PACKETS; i++) {
		for (unsigned j = 0; j < SLOT; j++)
			ring[i][j] = (uint8_t)kernel_random(&seed);
		put16(ring[i] + 12, 0x0800);
		ring[i][14] = 0x45;
		ring[i][23] = 17;
		put16(ring[i] + 24, 0);
		put16(ring[i] + 24, header_sum(ring[i] + 14));
	}
	while (rounds--)
		for (unsigned i = 0; i < PACKETS; i++)
			sum += (unsigned)rewrite(ring[i]);
	for (unsigned i = 0; i < PACKETS; i++)
		for (unsigned j = 0; j < SLOT; j++)
			sum = sum * 31 + ring[i][j];
	return sum;
}
