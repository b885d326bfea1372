// SPDX-License-Identifier: MIT
/* A hash table of flows by five-tuple, open addressing, four slots to a cache line, half full. */
#include <string.h>

#include "kernel.h"

enum { SLOTS = 4096, KEYS = 2048 };

struct key {
	uint32_t src, dst;
	uint16_t sport, dport;
	uint32_t protocol;
};

static struct slot {
	struct key key;
	uint32_t value, used;
} table[SLOTS];

static struct key keys[KEYS];

static uint32_t hash(const struct key *k)
{
	uint64_t h = ((uint64_t)k->src << 32 | k->dst) * 0x9e3779b97f4a7c15ull;

	h ^= ((uint64_t)k->sport << 48 | (uint64_t)k->dport << 32 | k->protocol) + (h >> 29);
	h *= 0xbf58476d1ce4e5b9ull;
	return (uint32_t)(h >> 32);
}

static int same(const struct key *a, const struct key *b)
{
	return a->src == b->src && a->dst == b->dst && a->sport == b->sport &&
	       a->dport == b->dport && a->protocol == b->protocol;
}

static __attribute__((noinline)) struct slot *find(const struct key *k)
{
	uint32_t i = hash(k) % SLOTS;

	while (table[i].used && !same(&table[i].key, k))
		i = (i + 1) % SLOTS;
	return &table[i];
}

uint64_t kernel(uint64_t rounds)
{
	uint64_t seed = 13, sum = 0;

	memset(table, 0, sizeof(table));
	for (unsigned i = 0; i < KEYS; i++) {
		struct slot *s;

		keys[i] = (struct key){ (uint32_t)kernel_random(&seed),
					(uint32_t)kernel_random(&seed),
					(uint16_t)kernel_random(&seed),
					(uint16_t)kernel_random(&seed), 17 };
		s = find(&keys[i]);
		*s = (struct slot){ keys[i], i, 1 };
	}
	while (rounds--)
		for (unsigned i = 0; i < 256; i++) {
			struct key k = keys[(rounds * 97 + i * 31) % KEYS];

			k.protocol += i % 8 == 7; /* one in eight is not there */
			sum = sum * 31 + find(&k)->value;
		}
	return sum;
}
