// SPDX-License-Identifier: MIT
/* Device memory: the heap, copies and fills, mkeys. */
#include "bed.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct flexio_heap_mem_info info(struct flexio_process *process)
{
	struct flexio_heap_mem_info i;

	assert_ok(flexio_process_mem_info_get(process, &i));
	return i;
}

static void test_alloc(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_heap_mem_info i = info(process);
	flexio_uintptr_t a = 0, b = 0, c;

	assert_true(i.base_addr && i.size >= 1U << 20);
	assert_int_equal(i.requested, 0);
	assert_int_equal(i.allocated, 0);
	assert_ok(flexio_buf_dev_alloc(process, 1, &a));
	assert_ok(flexio_buf_dev_alloc(process, 65, &b));
	assert_true(a >= i.base_addr && b < i.base_addr + i.size && a != b);
	assert_int_equal(a % 64, 0);
	assert_int_equal(b % 64, 0);
	assert_int_equal(info(process).requested, 66);
	assert_int_equal(info(process).allocated, 64 + 128);
	assert_ok(flexio_buf_dev_free(process, a));
	assert_failed(flexio_buf_dev_free(process, a)); /* twice */
	assert_failed(flexio_buf_dev_free(process, b + 64));
	assert_failed(flexio_buf_dev_free(process, 0x10000)); /* not of the heap */
	assert_failed(flexio_buf_dev_free(process, UINT64_MAX));
	assert_ok(flexio_buf_dev_free(process, 0));
	assert_failed(flexio_buf_dev_free(NULL, b));
	assert_int_equal(info(process).requested, 65);
	assert_ok(flexio_buf_dev_free(process, b));
	assert_int_equal(info(process).allocated, 0);

	c = 5;
	assert_failed(flexio_buf_dev_alloc(process, 0, &c));
	assert_int_equal(c, 0); /* set even where it fails */
	c = 5;
	assert_failed(flexio_buf_dev_alloc(process, 1UL << 40, &c));
	assert_int_equal(c, 0);
	assert_failed(flexio_buf_dev_alloc(process, SIZE_MAX, &c));
	assert_failed(flexio_buf_dev_alloc(process, SIZE_MAX - 62, &c));
	assert_failed(flexio_buf_dev_alloc(process, 64, NULL));
	c = 5;
	assert_failed(flexio_buf_dev_alloc(NULL, 64, &c));
	assert_int_equal(c, 0);
	assert_failed(flexio_process_mem_info_get(process, NULL));
	assert_failed(flexio_process_mem_info_get(NULL, &i));
	bed_process_end(process);
}

static void test_memalign(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t addr[16];
	unsigned int n = 0;

	for (size_t align = 1; align <= 1U << 15; align *= 2) {
		assert_ok(flexio_buf_dev_memalign(process, align, 100 + align, &addr[n]));
		assert_int_equal(addr[n] % align, 0);
		assert_int_equal(addr[n++] % 64, 0);
	}
	while (n--)
		assert_ok(flexio_buf_dev_free(process, addr[n]));
	assert_int_equal(info(process).allocated, 0);
	assert_failed(flexio_buf_dev_memalign(process, 0, 64, addr));
	assert_failed(flexio_buf_dev_memalign(process, 96, 64, addr));
	assert_failed(flexio_buf_dev_memalign(process, 1UL << 40, 64, addr));
	bed_process_end(process);
}

/* As much as programs ask for: many large buffers, and room beside them. */
static void test_many_large(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t addr[33];

	for (unsigned int i = 0; i < 32; i++)
		assert_ok(flexio_buf_dev_alloc(process, 16 << 20, &addr[i]));
	assert_ok(flexio_buf_dev_alloc(process, 4096, &addr[32]));
	assert_ok(flexio_buf_dev_memset(process, 1, 4096, addr[31] + (16 << 20) - 4096));
	bed_process_end(process);
}

/* To the last byte, and everything can be had again afterwards. */
static void test_exhaustion(void **state)
{
	struct flexio_process *process = bed_process();
	size_t size = info(process).size, part = size / 64;
	flexio_uintptr_t addr[65], all = 0;

	for (unsigned int i = 0; i < 64; i++)
		assert_ok(flexio_buf_dev_alloc(process, part, &addr[i]));
	assert_failed(flexio_buf_dev_alloc(process, 1, &addr[64]));
	assert_int_equal(info(process).allocated, size);
	for (unsigned int i = 0; i < 64; i += 2) /* holes, each too small for two */
		assert_ok(flexio_buf_dev_free(process, addr[i]));
	assert_failed(flexio_buf_dev_alloc(process, part + 1, &addr[64]));
	assert_ok(flexio_buf_dev_alloc(process, part, &addr[0]));
	assert_ok(flexio_buf_dev_free(process, addr[0]));
	for (unsigned int i = 1; i < 64; i += 2)
		assert_ok(flexio_buf_dev_free(process, addr[i]));
	assert_ok(flexio_buf_dev_alloc(process, size, &all)); /* all joined again */
	assert_ok(flexio_buf_dev_free(process, all));
	bed_process_end(process);
}

/* Many holes that are a little too small do not hide the room behind them, nor the one among them that fits. */
static void test_holes(void **state)
{
	struct flexio_process *process = bed_process();
	enum { N = 4000 };
	static flexio_uintptr_t addr[N];
	flexio_uintptr_t first, rest, hole;
	size_t size = info(process).size;

	for (unsigned int i = 0; i < N; i++)
		assert_ok(flexio_buf_dev_alloc(process, i == 5 ? 1984 : 1088, &addr[i]));
	for (unsigned int i = 1; i < N; i += 2)
		assert_ok(flexio_buf_dev_free(process, addr[i]));
	assert_ok(flexio_buf_dev_alloc(process, 1984, &first));
	/* fill what is behind them */
	while (flexio_buf_dev_alloc(process, 64 << 20, &rest) == FLEXIO_STATUS_SUCCESS)
		;
	for (size_t part = 32 << 20; part >= 2048; part /= 2)
		while (flexio_buf_dev_alloc(process, part, &rest) == FLEXIO_STATUS_SUCCESS)
			;
	if (first != addr[5]) { /* the one that fits, last in its bin */
		assert_ok(flexio_buf_dev_alloc(process, 1984, &hole));
		assert_int_equal(hole, addr[5]);
	}
	assert_true(info(process).allocated <= size);
	bed_process_end(process);
}

struct block {
	flexio_uintptr_t addr;
	size_t size;
};

static int by_address(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void test_random(void **state)
{
	struct flexio_process *process = bed_process();
	struct block block[512], sorted[512];
	unsigned int seed = 3, n = 0;
	size_t requested = 0;

	for (unsigned int round = 0; round < 20000; round++) {
		if (n < 512 && (rand_r(&seed) % 5 < 3 || !n)) {
			block[n].size = 1 + (size_t)rand_r(&seed) % (1U << rand_r(&seed) % 18);
			assert_ok(flexio_buf_dev_alloc(process, block[n].size, &block[n].addr));
			requested += block[n++].size;
		} else {
			unsigned int i = (unsigned int)rand_r(&seed) % n;

			assert_ok(flexio_buf_dev_free(process, block[i].addr));
			requested -= block[i].size;
			block[i] = block[--n];
		}
		if (round % 500)
			continue;
		assert_int_equal(info(process).requested, requested);
		memcpy(sorted, block, n * sizeof(*block));
		qsort(sorted, n, sizeof(*sorted), by_address);
		for (unsigned int i = 1; i < n; i++)
			assert_true(sorted[i - 1].addr + sorted[i - 1].size <= sorted[i].addr);
	}
	while (n--)
		assert_ok(flexio_buf_dev_free(process, block[n].addr));
	assert_int_equal(info(process).allocated, 0);
	bed_process_end(process);
}

static void *alloc_loop(void *arg)
{
	flexio_uintptr_t addr[8];

	for (unsigned int i = 0; i < 2000; i++) {
		for (unsigned int k = 0; k < 8; k++)
			if (flexio_buf_dev_alloc(arg, 100 * (k + 1), &addr[k]))
				return arg;
		for (unsigned int k = 0; k < 8; k++)
			if (flexio_buf_dev_free(arg, addr[k]))
				return arg;
	}
	return NULL;
}

static void test_alloc_threads(void **state)
{
	struct flexio_process *process = bed_process();
	pthread_t thread[4];
	void *failed;

	for (unsigned int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, alloc_loop, process);
	for (unsigned int i = 0; i < 4; i++) {
		pthread_join(thread[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(info(process).allocated, 0);
	bed_process_end(process);
}

static uint64_t host_sum(const uint8_t *p, size_t n)
{
	uint64_t s = 0;

	while (n--)
		s = s * 31 + *p++;
	return s;
}

static void test_copies(void **state)
{
	struct flexio_process *process = bed_process();
	enum { SIZE = 100000 };
	uint8_t *data = malloc(SIZE), *back = malloc(SIZE);
	struct flexio_mem host = { .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)back };
	struct flexio_mem dev = { .mem_type = FLEXIO_MEMTYPE_DPA }, dev2 = dev;
	flexio_uintptr_t a, b = bed_alloc(process, SIZE);

	for (unsigned int i = 0; i < SIZE; i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	assert_ok(flexio_copy_from_host(process, data, SIZE, &a));
	assert_int_equal(bed_words(process, "sum", (uint64_t[]){ a, SIZE }, 2),
			 host_sum(data, SIZE));
	dev.daddr = a;
	assert_ok(flexio_memcpy(process, &host, &dev, SIZE)); /* device to host */
	assert_memory_equal(back, data, SIZE);
	dev2.daddr = b;
	assert_ok(flexio_memcpy(process, &dev2, &dev, SIZE)); /* device to device */
	assert_int_equal(bed_words(process, "sum", (uint64_t[]){ b, SIZE }, 2),
			 host_sum(data, SIZE));
	memset(back, 0x5a, SIZE);
	assert_ok(flexio_memcpy(process, &dev2, &host, SIZE)); /* host to device */
	assert_int_equal(bed_words(process, "sum", (uint64_t[]){ b, SIZE }, 2),
			 host_sum(back, SIZE));
	host.haddr = (uintptr_t)data;
	assert_ok(flexio_memcpy(
		process, &host,
		&(struct flexio_mem){ .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)back },
		SIZE));
	assert_memory_equal(back, data, SIZE); /* host to host */

	assert_ok(flexio_buf_dev_memset(process, 0x17, 1000, b + 100));
	memset(back + 100, 0x17, 1000);
	assert_int_equal(bed_words(process, "sum", (uint64_t[]){ b, SIZE }, 2),
			 host_sum(back, SIZE));
	assert_ok(flexio_host2dev_memcpy(process, data, 10, b));
	/* variables of the program can be written, too */
	bed_write(process, bed_value(process, "global_addr", 0), 41);
	assert_int_equal(bed_value(process, "count", 1), 42);
	free(data);
	free(back);
	bed_process_end(process); /* buffers go with it */
}

static void test_bad_copies(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_heap_mem_info i = info(process);
	uint64_t word = 1;
	uint64_t text = bed_value(process, "global_addr", 2);
	uint64_t constant = bed_value(process, "global_addr", 1);
	struct flexio_mem host = { .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)&word };
	struct flexio_mem dev = { .mem_type = FLEXIO_MEMTYPE_DPA, .daddr = i.base_addr };
	flexio_uintptr_t out = 3;
	const uint64_t bad[] = { 0,         8,        text, constant, UINT64_MAX, UINT64_MAX - 3,
				 1UL << 32, 1UL << 40 };

	for (unsigned int k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
		assert_failed(flexio_host2dev_memcpy(process, &word, 8, bad[k]));
		assert_failed(flexio_buf_dev_memset(process, 0, 8, bad[k]));
		dev.daddr = bad[k];
		assert_failed(flexio_memcpy(process, &dev, &host, 8));
	}
	dev.daddr = text; /* reading text is fine */
	assert_ok(flexio_memcpy(process, &host, &dev, 4));
	dev.daddr = i.base_addr;
	assert_failed(flexio_host2dev_memcpy(process, &word, 1UL << 40, i.base_addr));
	assert_failed(flexio_host2dev_memcpy(process, &word, 0, i.base_addr));
	assert_failed(flexio_host2dev_memcpy(process, NULL, 8, i.base_addr));
	assert_failed(flexio_host2dev_memcpy(NULL, &word, 8, i.base_addr));
	assert_failed(flexio_buf_dev_memset(process, 0, 0, i.base_addr));
	assert_failed(flexio_buf_dev_memset(process, 0, 1UL << 40, i.base_addr));
	assert_failed(flexio_buf_dev_memset(NULL, 0, 8, i.base_addr));
	assert_failed(flexio_memcpy(process, &dev, &host, 0));
	assert_failed(flexio_memcpy(process, NULL, &host, 8));
	assert_failed(flexio_memcpy(process, &dev, NULL, 8));
	assert_failed(flexio_memcpy(NULL, &dev, &host, 8));
	host.haddr = 0;
	assert_failed(flexio_memcpy(process, &dev, &host, 8));
	host.mem_type = (enum flexio_memtype)7;
	assert_failed(flexio_memcpy(process, &dev, &host, 8));
	assert_failed(flexio_copy_from_host(process, NULL, 8, &out));
	assert_int_equal(out, 0);
	out = 3;
	assert_failed(flexio_copy_from_host(process, &word, 0, &out));
	assert_int_equal(out, 0);
	assert_failed(flexio_copy_from_host(process, &word, 1UL << 40, &out));
	assert_failed(flexio_copy_from_host(process, &word, 8, NULL));
	assert_failed(flexio_copy_from_host(NULL, &word, 8, &out));
	assert_int_equal(info(process).allocated, 0); /* nothing was left behind */
	bed_process_end(process);
}

/* A range lies in the heap or outside of it, never across its ends, whatever is mapped behind them. */
static void test_heap_ends(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_heap_mem_info heap = info(process);
	uint64_t end = heap.base_addr + heap.size;
	struct flexio_mem host = { .mem_type = FLEXIO_MEMTYPE_HOST }, dev = { 0 };
	static char data[64 << 10];
	const struct {
		uint64_t at;
		size_t size;
		bool good;
	} ranges[] = {
		{ heap.base_addr, 64, true },
		{ end - 64, 64, true },
		{ end - 64, 65, false },
		{ end - 1, 4096, false },
		{ heap.base_addr - 1, 2, false },
		{ heap.base_addr - 4096, 8192, false },
		{ end - 4096, sizeof(data), false },
	};

	host.haddr = (uintptr_t)data;
	for (unsigned int i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		flexio_status want = ranges[i].good ? FLEXIO_STATUS_SUCCESS : FLEXIO_STATUS_FAILED;

		dev.daddr = ranges[i].at;
		assert_int_equal(flexio_host2dev_memcpy(process, data, ranges[i].size, dev.daddr),
				 want);
		assert_int_equal(flexio_buf_dev_memset(process, 1, ranges[i].size, dev.daddr),
				 want);
		assert_int_equal(flexio_memcpy(process, &dev, &host, ranges[i].size), want);
		assert_int_equal(flexio_memcpy(process, &host, &dev, ranges[i].size), want);
	}
	bed_process_end(process);
}

/* Host memory that is not there, or cannot be written, is an error of the call and not the end of the program. */
static void test_host_memory(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_mem dev = { .mem_type = FLEXIO_MEMTYPE_DPA,
				  .daddr = bed_alloc(process, 8192) };
	struct flexio_mem host = { .mem_type = FLEXIO_MEMTYPE_HOST };
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t used = info(process).allocated;
	flexio_uintptr_t out = 3;

	assert_true(pages != MAP_FAILED);
	munmap(pages + 4096, 4096);
	assert_failed(flexio_host2dev_memcpy(process, pages, 8192, dev.daddr));
	assert_failed(flexio_copy_from_host(process, pages, 8192, &out));
	assert_int_equal(out, 0);
	assert_int_equal(info(process).allocated, used);
	host.haddr = (uintptr_t)pages;
	assert_failed(flexio_memcpy(process, &dev, &host, 8192));
	assert_failed(flexio_memcpy(process, &host, &dev, 8192));
	assert_ok(flexio_memcpy(process, &host, &dev, 4096));
	mprotect(pages, 4096, PROT_READ);
	assert_failed(flexio_memcpy(process, &host, &dev, 8));
	assert_ok(flexio_memcpy(process, &dev, &host, 8));
	munmap(pages, 4096);
	bed_process_end(process);
}

/* Device malloc's pages. */
static void test_sbrk(void **state)
{
	struct flexio_process *process = bed_process();
	uint64_t args[5] = { 3, 0 }, start, step = 1U << 20, n = 0;

	start = bed_words(process, "raw_call", args, 5);
	args[1] = step;
	for (; n < 100000; n++)
		if (bed_words(process, "raw_call", args, 5) == UINT64_MAX)
			break;
	assert_true(n >= 16 && n < 100000);
	args[1] = (uint64_t) - (int64_t)(n * step) - 4096; /* below the start */
	assert_int_equal(bed_words(process, "raw_call", args, 5), UINT64_MAX);
	args[1] = (uint64_t) - (int64_t)(n * step);
	assert_int_equal(bed_words(process, "raw_call", args, 5), start + n * step);
	args[1] = 0;
	assert_int_equal(bed_words(process, "raw_call", args, 5), start);
	args[1] = (uint64_t)INT64_MIN;
	assert_int_equal(bed_words(process, "raw_call", args, 5), UINT64_MAX);
	bed_write(process, start, 99); /* usable memory */
	assert_int_equal(bed_read(process, start), 99);
	bed_process_end(process);
}

static void test_mkeys(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t a = bed_alloc(process, 8192);
	struct flexio_mkey_attr attr = {
		.daddr = a, .len = 8192, .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
	};
	struct flexio_mkey *mkey = NULL, *second = NULL, *untouched = (void *)16;
	struct ibv_pd *pd = ibv_alloc_pd(bed_ctx);

	assert_ok(flexio_device_mkey_create(process, &attr, &mkey)); /* in the process's PD */
	attr.pd = pd;
	assert_ok(flexio_device_mkey_create(process, &attr, &second));
	assert_int_not_equal(flexio_mkey_get_id(mkey), UINT32_MAX);
	assert_int_not_equal(flexio_mkey_get_id(mkey), flexio_mkey_get_id(second));
	assert_failed(flexio_process_destroy(process)); /* in use */
	assert_ok(flexio_device_mkey_destroy(second));
	assert_failed(flexio_device_mkey_destroy(second));
	assert_int_equal(flexio_mkey_get_id(second), UINT32_MAX);
	assert_ok(flexio_device_mkey_destroy(NULL));
	attr.len = 0;
	assert_failed(flexio_device_mkey_create(process, &attr, &untouched));
	attr.len = 1UL << 40;
	assert_failed(flexio_device_mkey_create(process, &attr, &untouched));
	attr.len = 8192;
	attr.daddr = 16;
	assert_failed(flexio_device_mkey_create(process, &attr, &untouched));
	attr.daddr = a;
	attr.access = 1 << 30;
	assert_failed(flexio_device_mkey_create(process, &attr, &untouched));
	attr.access = IBV_ACCESS_ON_DEMAND;
	assert_failed(flexio_device_mkey_create(process, &attr, &untouched));
	assert_failed(flexio_device_mkey_create(process, NULL, &untouched));
	assert_failed(flexio_device_mkey_create(process, &attr, NULL));
	assert_failed(flexio_device_mkey_create(NULL, &attr, &untouched));
	assert_ptr_equal(untouched, (void *)16);
	assert_int_equal(flexio_mkey_get_id(NULL), UINT32_MAX);
	assert_ok(flexio_device_mkey_destroy(mkey));
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	bed_process_end(process);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alloc),       cmocka_unit_test(test_memalign),
		cmocka_unit_test(test_exhaustion),  cmocka_unit_test(test_holes),
		cmocka_unit_test(test_random),      cmocka_unit_test(test_alloc_threads),
		cmocka_unit_test(test_copies),      cmocka_unit_test(test_bad_copies),
		cmocka_unit_test(test_host_memory), cmocka_unit_test(test_sbrk),
		cmocka_unit_test(test_many_large),  cmocka_unit_test(test_mkeys),
		cmocka_unit_test(test_heap_ends),
	};

	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
