// SPDX-License-Identifier: MIT
/* A mix as in embedded benchmarks: list search, sort and reversal, a small matrix, a number scanner, CRC-16. */
#include <stddef.h>

#include "kernel.h"

enum { ITEMS = 60, N = 10 };

struct item {
	struct item *next;
	int16_t key, value;
};

static struct item pool[ITEMS];
static int16_t a[N][N], b[N][N];
static int32_t c[N][N];
static char text[256];

static uint16_t crc16(uint16_t crc, uint32_t v, int bits)
{
	for (int i = 0; i < bits; i++, v >>= 1)
		crc = (uint16_t)((crc ^ v) & 1 ? crc >> 1 ^ 0xa001 : crc >> 1);
	return crc;
}

static struct item *reverse(struct item *l)
{
	struct item *r = NULL;

	while (l) {
		struct item *n = l->next;

		l->next = r;
		r = l;
		l = n;
	}
	return r;
}

static struct item *merge(struct item *x, struct item *y)
{
	struct item head, *t = &head;

	while (x && y) {
		struct item **least = x->key <= y->key ? &x : &y;

		t->next = *least;
		t = *least;
		*least = t->next;
	}
	t->next = x ? x : y;
	return head.next;
}

static struct item *sort(struct item *l)
{
	struct item *slow = l, *fast, *half;

	if (!l || !l->next)
		return l;
	for (fast = l->next; fast && fast->next; fast = fast->next->next)
		slow = slow->next;
	half = slow->next;
	slow->next = NULL;
	return merge(sort(l), sort(half));
}

static uint16_t lists(uint16_t crc, uint64_t *seed)
{
	struct item *l = NULL;

	for (int i = 0; i < ITEMS; i++) {
		pool[i] = (struct item){ l, (int16_t)kernel_random(seed), (int16_t)i };
		l = &pool[i];
	}
	l = sort(reverse(l));
	for (int n = 0; n < 12; n++) {
		int16_t want = pool[n * 5].key;

		for (struct item *i = l; i; i = i->next)
			if (i->key == want) {
				crc = crc16(crc, (uint16_t)i->value, 16);
				break;
			}
	}
	return crc;
}

static uint16_t matrix(uint16_t crc, int16_t seed)
{
	for (int i = 0; i < N; i++)
		for (int k = 0; k < N; k++) {
			a[i][k] = (int16_t)(seed + i * k);
			b[i][k] = (int16_t)(seed - i + k);
		}
	for (int i = 0; i < N; i++)
		for (int k = 0; k < N; k++) {
			int32_t s = 0;

			for (int l = 0; l < N; l++)
				s += a[i][l] * b[l][k];
			c[i][k] = s;
		}
	for (int i = 0; i < N; i++)
		crc = crc16(crc, (uint32_t)c[i][N - 1 - i], 32);
	return crc;
}

/* Classify comma separated tokens: integers, fractions, words, with counts per final state. */
static uint16_t scan(uint16_t crc)
{
	enum { START, INT, FRACTION, WORD, BAD, STATES } s = START;
	unsigned count[STATES] = { 0 };

	for (const char *p = text; *p; p++) {
		int digit = *p >= '0' && *p <= '9';

		if (*p == ',') {
			count[s]++;
			s = START;
			continue;
		}
		switch (s) {
		case START:
			s = digit || *p == '-' ? INT
			    : *p == '.'        ? FRACTION
			    : *p >= 'a'        ? WORD
					       : BAD;
			break;
		case INT:
			s = digit ? INT : *p == '.' ? FRACTION : BAD;
			break;
		case FRACTION:
			s = digit ? FRACTION : BAD;
			break;
		case WORD:
			s = *p >= 'a' ? WORD : BAD;
			break;
		default:
			break;
		}
	}
	for (int i = 0; i < STATES; i++)
		crc = crc16(crc, count[i], 16);
	return crc;
}

uint64_t kernel(uint64_t rounds)
{
	static const char alphabet[] = "0123456789.-abcx,,,";
	uint64_t seed = 1;
	uint16_t crc = 0;

	for (unsigned i = 0; i < sizeof(text) - 1; i++)
		text[i] = alphabet[kernel_random(&seed) % (sizeof(alphabet) - 1)];
	while (rounds--) {
		crc = lists(crc, &seed);
		crc = matrix(crc, (int16_t)crc);
		crc = scan(crc);
		text[rounds % 250] = alphabet[crc % 16];
	}
	return crc;
}
