// SPDX-License-Identifier: MIT
/* Device code that runs on many threads at once. Run by ../many.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPINLOCK_DEBUG
#include <libflexio-dev/flexio_dev.h>

#define RPC __attribute__((used, retain))

/* ---- malloc, asprintf, printf ---- */

RPC uint64_t work(uint64_t rounds)
{
	struct flexio_dev_thread_ctx *dtctx;
	uint32_t self;
	uint64_t bad = 0;
	char *kept[8] = { 0 };

	flexio_dev_get_thread_ctx(&dtctx);
	self = flexio_dev_get_thread_id(dtctx);
	for (uint64_t i = 0; i < rounds; i++) {
		size_t size = 16 + (self * 7 + i * 13) % 400;
		char **slot = &kept[i % 8], expected[32], *text = NULL;

		if (*slot) {
			for (size_t k = 1; k < 16; k++)
				bad += (*slot)[k] != (*slot)[0];
			bad += (*slot)[0] != (char)self;
		}
		free(*slot);
		*slot = malloc(size);
		if (!*slot)
			return 1000000;
		memset(*slot, (char)self, size);
		if (asprintf(&text, "%u:%lu", self, (unsigned long)i) < 0)
			return 1000001;
		snprintf(expected, sizeof(expected), "%u:%lu", self, (unsigned long)i);
		bad += strcmp(text, expected) != 0;
		/* a line in pieces, so that it could be torn apart */
		printf("<%u ", self);
		printf("%s", text);
		printf(" %lu>\n", (unsigned long)i);
		free(text);
		if (i % 16 == 0)
			flexio_dev_print("[%u %lu %0300d]\n", self, (unsigned long)i, 1);
	}
	for (int i = 0; i < 8; i++)
		free(kept[i]);
	return bad;
}

/* ---- spinlocks ---- */

static struct spinlock_s lock;
uint64_t shared RPC;
static uint64_t torn;
static uint32_t inside;

RPC void spin_begin(void)
{
	spin_init(&lock);
	shared = torn = 0;
}

RPC uint64_t spin_work(uint64_t rounds)
{
	uint64_t tries = 0;

	for (uint64_t i = 0; i < rounds; i++) {
		uint64_t before;

		if (i % 4 == 3) {
			while (spin_trylock(&lock)) {
				tries++;
				__flexio_dev_relax();
			}
		} else {
			spin_lock(&lock);
		}
		if (__atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST) ||
		    lock.locker_tid != __flexio_dev_thread_id() + 1)
			torn++;
		before = *(volatile uint64_t *)&shared;
		for (volatile int k = 0; k < 3; k++)
			;
		*(volatile uint64_t *)&shared = before + 1;
		__atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
		spin_unlock(&lock);
	}
	return tries < UINT64_MAX ? torn : 1;
}
