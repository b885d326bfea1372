// SPDX-License-Identifier: MIT
/*
 * A key-value request: parse "get KEY", "set KEY LENGTH" with its value, find the key, copy the value,
 * write the answer's header with a decimal length.
 */
#include <string.h>

#include "kernel.h"

enum { REQUESTS = 32, ITEMS = 256, KEY = 24, VALUE = 96 };

static struct item {
	char key[KEY];
	uint8_t value[VALUE];
	uint16_t length;
} items[ITEMS];

static uint8_t requests[REQUESTS][160];
static uint16_t lengths[REQUESTS];
static uint8_t answer[160];

static unsigned put_number(uint8_t *p, unsigned v)
{
	uint8_t digits[10];
	unsigned n = 0, len;

	do
		digits[n++] = (uint8_t)('0' + v % 10);
	while (v /= 10);
	for (len = n; n; n--)
		*p++ = digits[n - 1];
	return len;
}

static struct item *find(const uint8_t *key, unsigned len)
{
	uint32_t h = 2166136261u;

	for (unsigned i = 0; i < len; i++)
		h = (h ^ key[i]) * 16777619u;
	for (unsigned i = 0; i < 4; i++) {
		struct item *it = &items[(h + i) % ITEMS];

		if (!it->key[0] || (!memcmp(it->key, key, len) && !it->key[len]))
			return it;
	}
	return &items[h % ITEMS];
}

static __attribute__((noinline)) unsigned serve(const uint8_t *p, unsigned len)
{
	const uint8_t *key = p + 4, *end = p + len, *at = key;
	struct item *it;
	unsigned n = 0, key_len;

	while (at<end && * at> ' ')
		at++;
	key_len = (unsigned)(at - key);
	if (!key_len || key_len >= KEY)
		return 0;
	it = find(key, key_len);
	if (p[0] == 's') {
		for (at++; at < end && *at >= '0' && *at <= '9'; at++)
			n = n * 10 + (*at - '0');
		at++;
		if (n > VALUE || n > (unsigned)(end - at))
			return 0;
		memset(it->key, 0, KEY);
		memcpy(it->key, key, key_len);
		memcpy(it->value, at, n);
		it->length = (uint16_t)n;
		memcpy(answer, "STORED\r\n", 8);
		return 8;
	}
	memcpy(answer, "VALUE ", 6);
	n = 6 + put_number(answer + 6, it->length);
	answer[n++] = '\n';
	memcpy(answer + n, it->value, it->length);
	return n + it->length;
}

static unsigned make(uint8_t *p, uint64_t *seed, unsigned i)
{
	unsigned n, len = 8 + (unsigned)(kernel_random(seed) % 80);

	memcpy(p, i % 4 ? "get key:" : "set key:", 8);
	n = 8 + put_number(p + 8, (unsigned)(kernel_random(seed) % 64) * 1001);
	p[n++] = ' ';
	if (i % 4)
		return n;
	n += put_number(p + n, len);
	p[n++] = ' ';
	for (unsigned j = 0; j < len; j++)
		p[n++] = (uint8_t)kernel_random(seed);
	return n;
}

uint64_t kernel(uint64_t rounds)
{
	uint64_t seed = 17, sum = 0;

	memset(items, 0, sizeof(items));
	for (unsigned i = 0; i < REQUESTS; i++)
		lengths[i] = (uint16_t)make(requests[i], &seed, i);
	while (rounds--)
		for (unsigned i = 0; i < REQUESTS; i++) {
			unsigned n = serve(requests[i], lengths[i]);

			sum = sum * 31 + n + answer[n / 2];
		}
	return sum;
}
