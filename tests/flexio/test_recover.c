// SPDX-License-Identifier: MIT
/* Recoverable buffers: their content reaches the user's buffer when they end, whatever became of the process. */
#include "bed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 4096, SIZE = 3 * BLOCK };

static struct ibv_pd *pd;
static uint8_t *user; /* SIZE bytes */

static struct flexio_process *make(void)
{
	struct flexio_process_attr attr = { .pd = pd };
	struct flexio_process *process = NULL;

	assert_ok(flexio_process_create(bed_ctx, bed_app, &attr, &process));
	return process;
}

static struct ibv_mr *reg(size_t size, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, user, size, access);

	assert_non_null(mr);
	memset(user, 0x55, SIZE);
	return mr;
}

static flexio_uintptr_t alloc(struct flexio_process *process, size_t size, struct ibv_mr *mr)
{
	flexio_uintptr_t addr = 1;

	assert_ok(flexio_recoverable_buf_dev_alloc(process, size, mr->lkey, &addr));
	assert_int_equal(addr % BLOCK, 0);
	assert_int_not_equal(addr, 0);
	return addr;
}

static void fill(struct flexio_process *process, flexio_uintptr_t addr, int value, size_t size)
{
	assert_ok(flexio_buf_dev_memset(process, value, size, addr));
}

static void expect(uint8_t value, size_t size)
{
	for (size_t i = 0; i < SIZE; i++)
		assert_int_equal(user[i], i < size ? value : 0x55);
}

static void test_freed(void **state)
{
	struct flexio_process *process = make();
	struct flexio_heap_mem_info before, after;
	struct ibv_mr *mr = reg(SIZE, IBV_ACCESS_LOCAL_WRITE);

	assert_ok(flexio_process_mem_info_get(process, &before));
	for (unsigned int i = 0; i < 3; i++) {
		/* 2 blocks and a byte are 3 blocks: all of it can be used */
		flexio_uintptr_t addr = alloc(process, i == 1 ? SIZE : 2 * BLOCK + 1, mr);

		fill(process, addr, (int)i + 1, SIZE);
		expect(i ? (uint8_t)i : 0x55, SIZE); /* not before its end */
		assert_ok(flexio_buf_dev_free(process, addr));
		expect((uint8_t)(i + 1), SIZE);
		assert_failed(flexio_buf_dev_free(process, addr));
	}
	assert_ok(flexio_process_mem_info_get(process, &after));
	assert_int_equal(before.allocated, after.allocated);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	bed_process_end(process);
}

/* With the process, healthy or crashed: what device code wrote last is there. */
static void test_process_end(void **state)
{
	for (unsigned int crash = 0; crash < 2; crash++) {
		struct flexio_process *process = make();
		struct ibv_mr *mr = reg(BLOCK, IBV_ACCESS_LOCAL_WRITE);
		flexio_uintptr_t addr = alloc(process, 100, mr);
		uint64_t word;

		fill(process, addr, 9, BLOCK);
		bed_words(process, "poke", (uint64_t[]){ addr + 16, 8, 0x1234567890 }, 3);
		if (crash)
			assert_int_equal(bed_call(process, "fault", 5, NULL),
					 FLEXIO_STATUS_FATAL_ERR);
		expect(0x55, SIZE);
		bed_process_end(process);
		memcpy(&word, user + 16, 8);
		assert_int_equal(word, 0x1234567890);
		memset(user + 16, 9, 8);
		expect(9, BLOCK);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
}

static void test_refusals(void **state)
{
	struct flexio_process *process = make();
	struct ibv_pd *other = ibv_alloc_pd(bed_ctx);
	struct ibv_mr *mr = reg(2 * BLOCK, IBV_ACCESS_LOCAL_WRITE), *bad;
	flexio_uintptr_t addr = 1;
	uint32_t key = mr->lkey;

	assert_failed(flexio_recoverable_buf_dev_alloc(NULL, BLOCK, mr->lkey, &addr));
	assert_int_equal(addr, 0);
	assert_failed(flexio_recoverable_buf_dev_alloc(process, BLOCK, mr->lkey, NULL));
	for (unsigned int i = 0; i < 6; i++) {
		/* another length than that of the key, rounded */
		static const size_t size[] = { 0, 1, BLOCK, 2 * BLOCK + 1, SIZE, SIZE_MAX };

		addr = 1;
		assert_failed(flexio_recoverable_buf_dev_alloc(process, size[i], mr->lkey, &addr));
		assert_int_equal(addr, 0);
	}
	assert_failed(
		flexio_recoverable_buf_dev_alloc(process, 2 * BLOCK, mr->lkey ^ 0xff00, &addr));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_failed(flexio_recoverable_buf_dev_alloc(process, 2 * BLOCK, key, &addr));
	bad = reg(2 * BLOCK, 0); /* the card may not write it */
	assert_failed(flexio_recoverable_buf_dev_alloc(process, 2 * BLOCK, bad->lkey, &addr));
	assert_int_equal(ibv_dereg_mr(bad), 0);
	bad = reg(2 * BLOCK - 1, IBV_ACCESS_LOCAL_WRITE); /* not in whole blocks */
	assert_failed(flexio_recoverable_buf_dev_alloc(process, 2 * BLOCK - 1, bad->lkey, &addr));
	assert_int_equal(ibv_dereg_mr(bad), 0);
	bad = ibv_reg_mr(other, user, BLOCK, IBV_ACCESS_LOCAL_WRITE);
	assert_failed(flexio_recoverable_buf_dev_alloc(process, BLOCK, bad->lkey, &addr));
	assert_int_equal(ibv_dereg_mr(bad), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	bed_process_end(process);
	assert_failed(flexio_recoverable_buf_dev_alloc(process, BLOCK, 1, &addr));
}

/* The user's buffer went before: nothing is written, not even where its number is another region's now. */
static void test_key_gone(void **state)
{
	struct flexio_process *process = make();
	struct ibv_mr *mr = reg(SIZE, IBV_ACCESS_LOCAL_WRITE);
	flexio_uintptr_t addr[3];
	struct ibv_mr *again[64];

	for (unsigned int i = 0; i < 3; i++) {
		addr[i] = alloc(process, SIZE, mr);
		fill(process, addr[i], 7, SIZE);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
	for (unsigned int i = 0; i < 64; i++)
		again[i] = reg(SIZE, IBV_ACCESS_LOCAL_WRITE);
	assert_ok(flexio_buf_dev_free(process, addr[0]));
	expect(0x55, SIZE);
	bed_process_end(process);
	expect(0x55, SIZE);
	for (unsigned int i = 0; i < 64; i++)
		assert_int_equal(ibv_dereg_mr(again[i]), 0);
}

/* Registered anew: elsewhere it follows, with another length it is lost. */
static void test_key_changed(void **state)
{
	struct flexio_process *process = make();
	uint8_t *elsewhere = calloc(1, SIZE);
	struct ibv_mr *mr = reg(SIZE, IBV_ACCESS_LOCAL_WRITE);
	flexio_uintptr_t a = alloc(process, SIZE, mr), b = alloc(process, SIZE, mr);

	fill(process, a, 3, SIZE);
	fill(process, b, 4, SIZE);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, elsewhere, SIZE, 0), 0);
	assert_ok(flexio_buf_dev_free(process, a));
	expect(0x55, SIZE);
	assert_int_equal(elsewhere[0] + elsewhere[SIZE - 1], 6);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, user, BLOCK, 0),
			 0);
	assert_ok(flexio_buf_dev_free(process, b));
	expect(0x55, SIZE);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	free(elsewhere);
	bed_process_end(process);
}

/* The memory behind the key cannot be written any more. */
static void test_memory_gone(void **state)
{
	struct flexio_process *process = make();
	void *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, at, SIZE, IBV_ACCESS_LOCAL_WRITE);
	flexio_uintptr_t addr;

	assert_non_null(mr);
	addr = alloc(process, SIZE, mr);
	munmap(at, SIZE);
	assert_ok(flexio_buf_dev_free(process, addr));
	ibv_dereg_mr(mr);
	bed_process_end(process);
}

struct race {
	struct flexio_process *process;
	struct ibv_mr *mr;
	_Atomic int freed;
	flexio_uintptr_t addr;
};

static void *race_free(void *arg)
{
	struct race *r = arg;

	r->freed += flexio_buf_dev_free(r->process, r->addr) == FLEXIO_STATUS_SUCCESS;
	return NULL;
}

static void *race_dereg(void *arg)
{
	struct race *r = arg;

	ibv_dereg_mr(r->mr);
	return NULL;
}

/* Two free it and one deregisters, all at once. */
static void test_races(void **state)
{
	struct flexio_process *process = make();

	for (unsigned int i = 0; i < 200; i++) {
		struct race r = { .process = process, .mr = reg(SIZE, IBV_ACCESS_LOCAL_WRITE) };
		void *(*const does[])(void *) = { race_free, race_free, race_dereg };
		pthread_t t[3];

		r.addr = alloc(process, SIZE, r.mr);
		for (unsigned int k = 0; k < 3; k++)
			assert_int_equal(pthread_create(&t[k], NULL, does[(i + k) % 3], &r), 0);
		for (unsigned int k = 0; k < 3; k++)
			pthread_join(t[k], NULL);
		assert_int_equal(r.freed, 1);
	}
	bed_process_end(process);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freed),       cmocka_unit_test(test_process_end),
		cmocka_unit_test(test_refusals),    cmocka_unit_test(test_key_gone),
		cmocka_unit_test(test_key_changed), cmocka_unit_test(test_memory_gone),
		cmocka_unit_test(test_races),
	};

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	bed_init(argc, argv);
	pd = ibv_alloc_pd(bed_ctx);
	user = calloc(1, SIZE);
	return !pd || !user || cmocka_run_group_tests(tests, NULL, NULL);
}
