// SPDX-License-Identifier: MIT
/* Memory and the C library: packed structs, bit-fields, string and sort functions, the heap, soft float. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct __attribute__((packed)) odd {
	uint8_t a;
	uint64_t b;
	uint16_t c;
	uint32_t d;
};

struct bits {
	unsigned a : 3, b : 11;
	int c : 7;
	uint64_t d : 40;
	int64_t e : 24;
};

static uint64_t seed = 88172645463325252ull;

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static void test_layout(void)
{
	struct odd o[5];
	struct bits b = { 0 };
	uint64_t sum = 0;

	for (unsigned i = 0; i < 5; i++)
		o[i] = (struct odd){ (uint8_t)next(), next(), (uint16_t)next(), (uint32_t)next() };
	for (unsigned i = 0; i < 5; i++)
		sum = sum * 31 + o[i].a + o[i].b * 3 + o[i].c * 5 + o[i].d;
	for (unsigned i = 0; i < 100; i++) {
		b.a += 3;
		b.b ^= (unsigned)next();
		b.c -= 5;
		b.d += next() & 0xffffff;
		b.e = b.e * 3 + (int)i;
	}
	printf("packed %" PRIx64 " bits %u %u %d %" PRIu64 " %" PRId64 "\n", sum, b.a, b.b, b.c,
	       (uint64_t)b.d, (int64_t)b.e);
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void test_library(void)
{
	static int64_t v[500];
	static char text[1200];
	uint64_t h = 14695981039346656037ull;
	size_t len = 0;

	for (unsigned i = 0; i < 500; i++)
		v[i] = (int64_t)next();
	qsort(v, 500, sizeof(v[0]), compare);
	for (unsigned i = 0; i < 500; i++)
		h = (h ^ (uint64_t)v[i]) * 1099511628211ull;
	printf("sorted %" PRIx64 " first %" PRId64 "\n", h, v[0]);
	for (unsigned i = 0; i < 60; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%u-%x,", i * i, i * 77);
	memmove(text + 3, text, len);
	memmove(text, text + 5, len - 5);
	memset(text + 100, '.', 13);
	printf("text %zu %.40s %s\n", strlen(text), text, strstr(text, "900-"));
	printf("%d %d %ld %llx\n", strcmp("abc", "abd") < 0, memcmp("xyz", "xyz", 3),
	       strtol("-123456789012", NULL, 10), strtoull("deadbeefcafe", NULL, 16));
}

struct node {
	struct node *left, *right;
	uint64_t key;
};

static struct node *insert(struct node *n, uint64_t key)
{
	if (!n) {
		n = calloc(1, sizeof(*n));
		n->key = key;
	} else if (key < n->key) {
		n->left = insert(n->left, key);
	} else {
		n->right = insert(n->right, key);
	}
	return n;
}

static uint64_t drop(struct node *n, unsigned depth)
{
	uint64_t sum;

	if (!n)
		return depth;
	sum = drop(n->left, depth + 1) * 3 + n->key + drop(n->right, depth + 1);
	free(n);
	return sum;
}

static void test_heap(void)
{
	struct node *root = NULL;
	void *held[40] = { 0 };
	uint64_t sum = 0;

	for (unsigned i = 0; i < 700; i++)
		root = insert(root, next() >> 20);
	for (unsigned i = 0; i < 2000; i++) {
		unsigned k = (unsigned)next() % 40;

		free(held[k]);
		held[k] = malloc(1 + next() % 3000);
		memset(held[k], (int)i, 1);
		sum += *(unsigned char *)held[k];
	}
	printf("tree %" PRIx64 " heap %" PRIu64 "\n", drop(root, 0), sum);
}

static void test_float(void)
{
	volatile double x = 1.0;
	volatile float f = 0.1f;
	double s = 0;

	for (int i = 1; i < 200; i++) {
		x = x * 1.0001 + 1.0 / i;
		f = f * 1.01f - (float)i / 1000.0f;
		s += (i & 1) ? x : -x / 2;
	}
	printf("float %.12f %.6f %.9e %d %lld %u\n", x, (double)f, s, (int)(s * 100),
	       (long long)(x * 1e12), (unsigned)(x * 1000));
	printf("compare %d %d %d\n", x > 5.0, f < -1.0f, s != s);
}

static void test_wide(void)
{
	__int128 a = 1;
	unsigned __int128 u = ~(unsigned __int128)0;

	for (int i = 1; i < 30; i++) {
		a = a * -37 + i;
		u = u / 3 + (uint64_t)a;
	}
	printf("wide %" PRIx64 "%016" PRIx64 " %" PRIx64 "%016" PRIx64 " %" PRId64 "\n",
	       (uint64_t)(a >> 64), (uint64_t)a, (uint64_t)(u >> 64), (uint64_t)u,
	       (int64_t)(a % 1000000007));
}

int main(void)
{
	test_layout();
	test_library();
	test_heap();
	test_float();
	test_wide();
	return 0;
}
