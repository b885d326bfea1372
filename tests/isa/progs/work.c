// SPDX-License-Identifier: MIT
/* Small real work: a hash, a cipher, matrices, a sieve, a queue simulation, text scanning. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t rotl(uint32_t v, int n)
{
	return v << n | v >> (32 - n);
}

/* A ChaCha-like mixing of sixteen words. */
static void mix(uint32_t s[16], int rounds)
{
	while (rounds--)
		for (int i = 0; i < 4; i++) {
			uint32_t *a = &s[i], *b = &s[4 + (i + rounds) % 4], *c = &s[8 + i],
				 *d = &s[12 + (i + 1) % 4];

			*a += *b, *d = rotl(*d ^ *a, 16);
			*c += *d, *b = rotl(*b ^ *c, 12);
			*a += *b, *d = rotl(*d ^ *a, 8);
			*c += *d, *b = rotl(*b ^ *c, 7);
		}
}

static uint32_t crc(const unsigned char *p, size_t n)
{
	uint32_t c = ~0u;

	while (n--) {
		c ^= *p++;
		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
	}
	return ~c;
}

static long matrix(void)
{
	static long a[12][12], b[12][12], c[12][12];
	long trace = 0;

	for (int i = 0; i < 12; i++)
		for (int k = 0; k < 12; k++)
			a[i][k] = i * 7 - k, b[i][k] = i ^ (k * 3);
	for (int n = 0; n < 4; n++) {
		for (int i = 0; i < 12; i++)
			for (int k = 0; k < 12; k++) {
				c[i][k] = 0;
				for (int l = 0; l < 12; l++)
					c[i][k] += a[i][l] * b[l][k];
			}
		memcpy(a, c, sizeof(a));
	}
	for (int i = 0; i < 12; i++)
		trace += c[i][i];
	return trace;
}

static unsigned sieve(void)
{
	static unsigned char composite[4000];
	unsigned primes = 0;

	for (unsigned i = 2; i < sizeof(composite); i++) {
		primes += !composite[i];
		for (unsigned k = 2 * i; k < sizeof(composite); k += i)
			composite[k] = 1;
	}
	return primes;
}

/* Packets through a small ring with drops, by a state machine. */
static uint64_t queue(void)
{
	uint16_t ring[32];
	unsigned head = 0, tail = 0, dropped = 0, state = 1;
	uint64_t sum = 0;

	for (unsigned t = 0; t < 5000; t++) {
		state = state * 1103515245 + 12345;
		switch (state >> 28) {
		case 0:
		case 1:
		case 2:
		case 3:
		case 4:
		case 5:
		case 6:
		case 7:
			if (head - tail < 32)
				ring[head++ & 31] = (uint16_t)(state >> 8);
			else
				dropped++;
			break;
		case 15:
			tail = head;
			break;
		default:
			if (head != tail)
				sum = sum * 17 + ring[tail++ & 31];
			break;
		}
	}
	return sum + dropped;
}

static unsigned scan(const char *s)
{
	unsigned words = 0, in = 0, value = 0;

	for (; *s; s++) {
		if (*s >= '0' && *s <= '9')
			value = value * 10 + (unsigned)(*s - '0');
		if ((*s | 32) >= 'a' && (*s | 32) <= 'z') {
			words += !in;
			in = 1;
		} else {
			in = 0;
		}
	}
	return words * 100000 + value % 99999;
}

int main(void)
{
	static unsigned char text[777];
	uint32_t s[16];

	for (unsigned i = 0; i < 16; i++)
		s[i] = i * 0x01010101u;
	mix(s, 20);
	for (unsigned i = 0; i < sizeof(text); i++)
		text[i] = (unsigned char)(s[i & 15] >> (i & 24));
	printf("mix %08" PRIx32 " %08" PRIx32 " crc %08" PRIx32 "\n", s[0], s[15],
	       crc(text, sizeof(text)));
	printf("matrix %ld sieve %u queue %" PRIx64 "\n", matrix(), sieve(), queue());
	printf("scan %u\n",
	       scan("Every doorbell counts, 17 times; bytes arrive 1 by 1, and 0042 of them late."));
	return 0;
}
