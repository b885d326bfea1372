// SPDX-License-Identifier: MIT
/* Device half of checked_hostile.c: code that is out to hurt whoever checks it. */
#include <stdlib.h>
#include <string.h>

#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

/* Of the C library; the headers show them to some programs only. */
int posix_memalign(void **to, size_t align, size_t size);
void *memalign(size_t align, size_t size);
void *valloc(size_t size);
void *pvalloc(size_t size);
size_t malloc_usable_size(void *p);

/* Call a function with any return address and any stack pointer; it does not come back from most. */
static __attribute__((noinline)) void jump(uint64_t func, uint64_t a0, uint64_t a1, uint64_t ra,
					   uint64_t sp)
{
	register uint64_t x10 __asm__("a0") = a0;
	register uint64_t x11 __asm__("a1") = a1;

	__asm__ volatile("mv ra, %2\n\tmv sp, %3\n\tjr %4"
			 :
			 : "r"(x10), "r"(x11), "r"(ra), "r"(sp), "r"(func)
			 : "ra", "memory");
	__builtin_unreachable();
}

static const uint64_t odd[] = {
	0,          1,         7,         0x1000,    0x10000, 0x7fffffff, 0x80000000,
	0xffffffff, 1UL << 32, 1UL << 48, 1UL << 62, ~0UL,    ~0UL - 7,   ~0UL << 12,
};

#define ODD (sizeof(odd) / sizeof(odd[0]))

__dpa_rpc__ uint64_t num_odd(void)
{
	return ODD;
}

__dpa_rpc__ uint64_t odd_return(uint64_t i)
{
	uint64_t here = (uint64_t)__builtin_frame_address(0);

	jump((uint64_t)(i & 1 ? (void *)malloc : (void *)free), 0, 0, odd[i / 2 % ODD],
	     here & ~15UL);
	return 0;
}

__dpa_rpc__ uint64_t odd_stack(uint64_t i)
{
	jump((uint64_t)(i & 1 ? (void *)malloc : (void *)free), odd[(i / 2 + 5) % ODD], 0, 0,
	     odd[i / 2 % ODD]);
	return 0;
}

__dpa_rpc__ uint64_t odd_free(uint64_t i)
{
	free((void *)odd[i % ODD]);
	return 0;
}

__dpa_rpc__ uint64_t odd_realloc(uint64_t i)
{
	void *p = realloc((void *)odd[i % ODD], odd[i / ODD % ODD]);

	free(realloc(realloc(malloc(odd[i / ODD % ODD] % 4096), 0), 100));
	return p != NULL;
}

__dpa_rpc__ uint64_t odd_memalign(uint64_t i)
{
	uint64_t align = odd[i / ODD % ODD];

	return (uint64_t)posix_memalign((void **)odd[i % ODD], align, 64) +
	       (uint64_t)posix_memalign((void **)&odd[0], 64, 64); /* cannot be written */
}

__dpa_rpc__ uint64_t odd_sizes(uint64_t i)
{
	uint64_t a = odd[i % ODD], b = odd[i / ODD % ODD];

	free(malloc(a));
	free(calloc(a, b));
	free(aligned_alloc(a, b));
	free(memalign(a, b));
	free(valloc(a));
	free(pvalloc(b));
	return malloc_usable_size((void *)a);
}

__dpa_rpc__ uint64_t odd_access(uint64_t i)
{
	uint64_t addr = odd[i % ODD];

	if (i / ODD & 1)
		*(volatile uint64_t *)addr = 1;
	else
		return *(volatile uint8_t *)addr;
	return 0;
}

/* As many blocks as there are, then frees of what is none; the number of blocks. */
__dpa_rpc__ uint64_t use_up(uint64_t size)
{
	void **last = NULL, **p;
	uint64_t n = 0;

	while ((p = malloc(size))) {
		*p = last;
		last = p;
		n++;
	}
	for (uint64_t i = 0; i < 1000; i++)
		free((char *)last + 8);
	while ((p = last)) {
		last = *p;
		free(p);
	}
	return n;
}

/* Pieces everywhere, and then a block that fits into none of them. */
__dpa_rpc__ uint64_t search(uint64_t n)
{
	void **last = NULL, **p;
	uint64_t found = 0;

	for (uint64_t i = 0; i < n && (p = malloc(sizeof(*p))); i++) {
		*p = last;
		last = p;
	}
	for (p = last; p && *p; p = *p) {
		void **gone = *p;

		*p = *gone;
		free(gone);
		if (!*p)
			break;
	}
	for (unsigned int i = 0; i < 3; i++)
		found += aligned_alloc(1 << 27, 1) != NULL;
	return found;
}

/* Each turn is a few instructions here, and a lot of work for the host. */
__dpa_rpc__ uint64_t work(uint64_t turns)
{
	uint64_t n = 0;
	void *p = malloc(16 << 20);

	for (uint64_t i = 0; i < turns; i++) {
		p = realloc(p, (16 << 20) + (i & 1) * 4096);
		n += p != NULL;
	}
	free(p);
	return n;
}

static uint64_t *shared[16];

/* Several at a time: blocks change hands, some are used after they are freed. */
__dpa_rpc__ uint64_t race(uint64_t seed)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < 3000; i++) {
		uint64_t *p, *mine = malloc(seed % 200 + 8);

		seed = seed * 6364136223846793005UL + 1442695040888963407UL;
		if (mine)
			*mine = seed;
		p = __atomic_exchange_n(&shared[seed >> 60], mine, __ATOMIC_ACQ_REL);
		if (!p)
			continue;
		sum += *p;
		if (seed & 256)
			p = realloc(p, seed >> 20 & 511);
		free(p);
		if (seed & 512)
			sum += *(volatile uint8_t *)p;
	}
	return sum;
}

__dpa_rpc__ uint64_t fine(uint64_t n)
{
	char *p = malloc(n);

	memset(p, 1, n);
	free(p);
	return n + 1;
}

__dpa_global__ void recover(uint64_t ctx, uint64_t code)
{
	(void)ctx;
	(void)code;
	flexio_dev_thread_reschedule();
}
