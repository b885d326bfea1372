// SPDX-License-Identifier: MIT
/*
 * Windows: what device code sees of host memory, and when it does not see it any more. Device code calls the run-time
 * system itself, so that wrong arguments get there too.
 */
#include "bed.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/device/rtos.h"
#include "../programs/common.h"

#define SIZE         (64 << 10)
#define RW           IBV_ACCESS_LOCAL_WRITE
#define REFUSED      UINT64_MAX
#define STATUS_LOAD  (1 + 5)
#define STATUS_STORE (1 + 7)

/* A process with a window and a region. */
struct view {
	struct flexio_process *process;
	struct ibv_pd *pd;
	struct flexio_window *window;
	uint32_t id;
	uint64_t *mem;
	struct ibv_mr *mr;
};

static uint64_t call(const struct view *v, uint64_t number, uint64_t a, uint64_t b, uint64_t c,
		     uint64_t d)
{
	uint64_t words[5] = { number, a, b, c, d };

	return bed_words(v->process, "raw_call", words, 5);
}

static uint64_t config(const struct view *v, uint64_t entity, uint64_t id, uint64_t key)
{
	return call(v, VB_RTOS_WINDOW_CONFIG, entity, id, key, 0);
}

static uint64_t ptr(const struct view *v, uint64_t entity, const void *haddr)
{
	return call(v, VB_RTOS_WINDOW_PTR, entity, (uintptr_t)haddr, 0, 0);
}

static uint64_t copy_in(const struct view *v, uint64_t entity, uint64_t daddr, const void *haddr,
			uint64_t len)
{
	return call(v, VB_RTOS_WINDOW_READ, entity, daddr, (uintptr_t)haddr, len);
}

static uint64_t copy_out(const struct view *v, uint64_t entity, const void *haddr, uint64_t daddr,
			 uint64_t len)
{
	return call(v, VB_RTOS_WINDOW_WRITE, entity, (uintptr_t)haddr, daddr, len);
}

static uint64_t peek(const struct view *v, uint64_t addr, uint64_t size)
{
	return bed_words(v->process, "peek", (uint64_t[]){ addr, size }, 2);
}

static void poke(const struct view *v, uint64_t addr, uint64_t size, uint64_t value)
{
	bed_words(v->process, "poke", (uint64_t[]){ addr, size, value }, 3);
}

/* The access ends the process, and the reason is this status. */
static void traps(const struct view *v, const char *func, uint64_t addr, uint64_t size, int status)
{
	uint64_t words[3] = { addr, size, 0x55 };
	flexio_uintptr_t args;

	assert_ok(flexio_copy_from_host(v->process, words, sizeof(words), &args));
	assert_int_equal(flexio_err_status_get(v->process), 0);
	assert_int_equal(bed_call(v->process, func, args, NULL), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(flexio_err_status_get(v->process), status);
}

static void *pages(size_t size)
{
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(mem != MAP_FAILED);
	return mem;
}

static void view_open_with(struct view *v, int access)
{
	v->process = bed_process();
	v->pd = ibv_alloc_pd(bed_ctx);
	assert_non_null(v->pd);
	assert_ok(flexio_window_create(v->process, v->pd, &v->window));
	v->id = flexio_window_get_id(v->window);
	v->mem = pages(SIZE);
	for (unsigned int i = 0; i < SIZE / 8; i++)
		v->mem[i] = i * 0x9e3779b97f4a7c15;
	v->mr = ibv_reg_mr(v->pd, v->mem, SIZE, access);
	assert_non_null(v->mr);
}

static void view_open(struct view *v)
{
	view_open_with(v, RW);
}

static void view_close(struct view *v)
{
	assert_ok(flexio_window_destroy(v->window));
	if (v->mr)
		assert_int_equal(ibv_dereg_mr(v->mr), 0);
	if (v->mem)
		munmap(v->mem, SIZE);
	assert_int_equal(ibv_dealloc_pd(v->pd), 0);
	bed_process_end(v->process);
}

/* ---- objects ---- */

static void test_life(void **state)
{
	struct flexio_window *w[3], *none = (void *)0x1;
	struct flexio_process *process = bed_process();
	struct ibv_pd *pd = ibv_alloc_pd(bed_ctx);

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		assert_ok(flexio_window_create(process, pd, &w[i]));
		assert_true(flexio_window_get_id(w[i]) <= UINT16_MAX);
		for (unsigned int j = 0; j < i; j++)
			assert_int_not_equal(flexio_window_get_id(w[i]),
					     flexio_window_get_id(w[j]));
	}
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_failed(flexio_process_destroy(process));
	assert_ok(flexio_window_destroy(w[1]));
	assert_failed(flexio_window_destroy(w[1]));
	assert_int_equal(flexio_window_get_id(w[1]), UINT32_MAX);
	assert_ok(flexio_window_destroy(w[0]));
	assert_ok(flexio_window_destroy(w[2]));

	assert_failed(flexio_window_create(NULL, pd, &none));
	assert_failed(flexio_window_create(process, NULL, &none));
	assert_failed(flexio_window_create(process, pd, NULL));
	assert_failed(flexio_window_create((void *)pd, pd, &none));
	assert_ptr_equal(none, (void *)0x1);
	assert_failed(flexio_window_destroy(NULL));
	assert_failed(flexio_window_destroy((void *)process));
	assert_int_equal(flexio_window_get_id(NULL), UINT32_MAX);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	bed_process_end(process);
}

static struct ibv_context *other_adapter(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "mlx5_1"))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

static void test_other_adapter(void **state)
{
	struct ibv_context *ctx = other_adapter();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct flexio_window *none = NULL;
	struct ibv_mr *mr;
	struct view v;

	(void)state;
	view_open(&v);
	assert_failed(flexio_window_create(v.process, pd, &none));
	assert_null(none);
	mr = ibv_reg_mr(pd, v.mem, SIZE, RW);
	assert_non_null(mr);
	assert_int_equal(config(&v, 0, v.id, mr->lkey), REFUSED);
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
	view_close(&v);
}

static void test_many_objects(void **state)
{
	static struct flexio_window *w[5000];
	struct flexio_window *again;
	struct ibv_pd *pd = ibv_alloc_pd(bed_ctx);
	struct flexio_process *process = bed_process();
	unsigned int n = 0;

	(void)state;
	while (n < 5000 && flexio_window_create(process, pd, &w[n]) == FLEXIO_STATUS_SUCCESS)
		n++;
	assert_in_range(n, 1000, 4999);
	assert_ok(flexio_window_destroy(w[n / 2]));
	assert_ok(flexio_window_create(process, pd, &again));
	w[n / 2] = again;
	while (n)
		assert_ok(flexio_window_destroy(w[--n]));
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	bed_process_end(process);
}

/* ---- what is seen ---- */

static void test_read_and_write(void **state)
{
	struct view v;
	uint64_t at;

	(void)state;
	view_open(&v);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	at = ptr(&v, 0, v.mem);
	assert_int_not_equal(at, 0);
	for (unsigned int size = 1; size <= 8; size *= 2) {
		uint64_t mask = size < 8 ? (1ull << size * 8) - 1 : ~0ull;

		for (unsigned int i = 0; i < 40; i += 3) { /* misaligned ones, too */
			uint64_t want = 0;

			memcpy(&want, (char *)v.mem + i, size);
			assert_int_equal(peek(&v, at + i, size), want);
			poke(&v, at + 4096 + i, size, ~want);
			want = ~want & mask;
			assert_memory_equal((char *)v.mem + 4096 + i, &want, size);
		}
	}
	v.mem[7] = 40;
	assert_int_equal(bed_words(v.process, "fetch_add", (uint64_t[]){ at + 56, 2 }, 2), 40);
	assert_int_equal(v.mem[7], 42);
	/* the first and the last bytes */
	assert_int_equal(peek(&v, at + SIZE - 8, 8), v.mem[SIZE / 8 - 1]);
	assert_int_equal(peek(&v, ptr(&v, 0, (char *)v.mem + SIZE - 1), 1),
			 ((uint8_t *)v.mem)[SIZE - 1]);
	view_close(&v);
}

static void test_two_entities(void **state)
{
	struct ibv_mr *half;
	struct view v;
	uint64_t a, b;

	(void)state;
	view_open(&v);
	half = ibv_reg_mr(v.pd, v.mem + SIZE / 16, SIZE / 2, 0);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	assert_int_equal(ptr(&v, 1, v.mem), 0);
	assert_int_equal(call(&v, VB_RTOS_WINDOW_MKEY, 1, half->lkey, 0, 0), REFUSED);
	assert_int_equal(config(&v, 1, v.id, half->lkey), 0);
	a = ptr(&v, 0, v.mem + SIZE / 16);
	b = ptr(&v, 1, v.mem + SIZE / 16);
	assert_int_not_equal(a, b);
	assert_int_equal(peek(&v, a, 8), v.mem[SIZE / 16]);
	assert_int_equal(peek(&v, b, 8), v.mem[SIZE / 16]);
	poke(&v, a, 8, 12345);
	assert_int_equal(peek(&v, b, 8), 12345);
	/* exchange the keys */
	assert_int_equal(call(&v, VB_RTOS_WINDOW_MKEY, 0, half->lkey, 0, 0), 0);
	assert_int_equal(call(&v, VB_RTOS_WINDOW_MKEY, 1, v.mr->lkey, 0, 0), 0);
	poke(&v, b, 8, 54321);
	assert_int_equal(peek(&v, a, 8), 54321);
	traps(&v, "poke", a, 8, STATUS_STORE);
	ibv_dereg_mr(half);
	view_close(&v);
}

static void test_rights(void **state)
{
	struct view v;
	uint64_t at;

	(void)state;
	view_open_with(&v, 0);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	at = ptr(&v, 0, v.mem);
	assert_int_equal(peek(&v, at + 8, 8), v.mem[1]);
	assert_int_equal(copy_out(&v, 0, v.mem, bed_alloc(v.process, 64), 64), REFUSED);
	traps(&v, "poke", at, 8, STATUS_STORE);
	assert_int_equal(v.mem[0], 0);
	view_close(&v);
}

static void bound(long offset, unsigned int size, const char *func, int status)
{
	struct view v;

	view_open(&v);
	assert_int_equal(config(&v, 1, v.id, v.mr->lkey), 0);
	traps(&v, func, ptr(&v, 1, v.mem) + (uint64_t)offset, size, status);
	view_close(&v);
}

static void test_bounds(void **state)
{
	(void)state;
	bound(-1, 1, "peek", STATUS_LOAD);
	bound(-4, 8, "peek", STATUS_LOAD);
	bound(SIZE, 1, "peek", STATUS_LOAD);
	bound(SIZE - 4, 8, "peek", STATUS_LOAD);
	bound(SIZE - 4, 8, "poke", STATUS_STORE);
	bound(-4, 8, "poke", STATUS_STORE);
	bound(1L << 47, 8, "poke", STATUS_STORE);
}

static void test_copies(void **state)
{
	size_t size = 3 << 20;
	flexio_uintptr_t dev;
	struct ibv_mr *mr;
	struct view v;
	char *big = pages(size), *seen = pages(size);
	struct flexio_mem to = { FLEXIO_MEMTYPE_HOST, { .haddr = (uintptr_t)seen } };
	struct flexio_mem from = { FLEXIO_MEMTYPE_DPA, { 0 } };

	(void)state;
	view_open(&v);
	dev = from.daddr = bed_alloc(v.process, size);
	for (size_t i = 0; i < size; i++)
		big[i] = (char)(i * 7 + (i >> 12));
	mr = ibv_reg_mr(v.pd, big, size, RW);
	assert_int_equal(copy_in(&v, 0, dev, big, 8), REFUSED); /* nothing is configured */
	assert_int_equal(config(&v, 0, v.id, mr->lkey), 0);
	assert_int_equal(copy_in(&v, 0, dev, big, size), 0);
	assert_ok(flexio_memcpy(v.process, &to, &from, size));
	assert_memory_equal(big, seen, size);
	memset(big, 0, size);
	assert_int_equal(copy_out(&v, 0, big + 1, dev, size - 1), 0);
	assert_int_equal(big[0], 0);
	assert_memory_equal(big + 1, seen, size - 1);
	assert_int_equal(copy_in(&v, 0, dev, big, 0), 0);
	assert_int_equal(copy_out(&v, 0, big + size, dev, 0), 0);

	/* refused, and nothing happens */
	memset(big, 1, size);
	assert_int_equal(copy_out(&v, 0, big + 1, dev, size), REFUSED);
	assert_int_equal(copy_out(&v, 0, big - 1, dev, 1), REFUSED);
	assert_int_equal(copy_out(&v, 0, big, 0, 16), REFUSED);
	assert_int_equal(copy_out(&v, 0, big, dev, UINT64_MAX), REFUSED);
	assert_int_equal(copy_out(&v, 0, (void *)(UINTPTR_MAX - 7), dev, 16), REFUSED);
	assert_int_equal(copy_out(&v, 0, big, ptr(&v, 0, big), 16), REFUSED);
	assert_int_equal(copy_out(&v, 2, big, dev, 16), REFUSED);
	assert_int_equal(copy_in(&v, 0, bed_value(v.process, "global_addr", 2), big, 16), REFUSED);
	assert_int_equal(copy_in(&v, 0, 1ull << 29, big, 1ull << 40), REFUSED);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(big[i], 1);
	ibv_dereg_mr(mr);
	munmap(big, size);
	munmap(seen, size);
	view_close(&v);
}

/* ---- what is refused ---- */

static void test_wrong_names(void **state)
{
	struct flexio_process *stranger = bed_process();
	struct flexio_window *theirs;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct view v;
	uint64_t at;

	(void)state;
	view_open(&v);
	pd = ibv_alloc_pd(bed_ctx);
	mr = ibv_reg_mr(pd, v.mem, SIZE, RW);
	assert_ok(flexio_window_create(stranger, v.pd, &theirs));
	assert_int_equal(ptr(&v, 0, v.mem), 0);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	at = ptr(&v, 0, v.mem);

	assert_int_equal(config(&v, 0, 0, v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, 0, v.id + 1000, v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, 0, flexio_window_get_id(theirs), v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, 0, UINT16_MAX, v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, 0, 1ull << 32 | v.id, v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, 0, UINT64_MAX, v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, 2, v.id, v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, 1ull << 32, v.id, v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, UINT64_MAX, v.id, v.mr->lkey), REFUSED);
	assert_int_equal(config(&v, 0, v.id, 0), REFUSED);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey ^ 1), REFUSED);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey + 0x100), REFUSED);
	assert_int_equal(config(&v, 0, v.id, mr->lkey), REFUSED); /* another domain */
	assert_int_equal(config(&v, 0, v.id, UINT32_MAX), REFUSED);
	assert_int_equal(config(&v, 0, v.id, 1ull << 32 | v.mr->lkey), REFUSED);
	assert_int_equal(call(&v, VB_RTOS_WINDOW_MKEY, 0, mr->lkey, 0, 0), REFUSED);
	assert_int_equal(call(&v, VB_RTOS_WINDOW_MKEY, 3, v.mr->lkey, 0, 0), REFUSED);
	assert_int_equal(ptr(&v, 2, v.mem), 0);
	assert_int_equal(ptr(&v, UINT64_MAX, v.mem), 0);
	assert_int_equal(ptr(&v, 0, (void *)(1ull << 48)), 0);
	assert_int_equal(ptr(&v, 0, (void *)UINTPTR_MAX), 0);

	/* what was there still is */
	assert_int_equal(peek(&v, at + 16, 8), v.mem[2]);
	assert_ok(flexio_window_destroy(theirs));
	bed_process_end(stranger);
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	view_close(&v);
}

static void test_offsets(void **state)
{
	struct ibv_mr *mr;
	struct view v;

	(void)state;
	view_open(&v);
	mr = ibv_reg_mr_iova2(v.pd, v.mem, SIZE, 0x123456789000, RW);
	assert_int_equal(config(&v, 0, v.id, mr->lkey), 0);
	assert_int_equal(peek(&v, ptr(&v, 0, (void *)0x123456789008), 8), v.mem[1]);
	ibv_dereg_mr(mr);
	mr = ibv_reg_mr(v.pd, v.mem, SIZE, RW | IBV_ACCESS_ZERO_BASED);
	assert_non_null(mr);
	assert_int_equal(config(&v, 0, v.id, mr->lkey), 0);
	assert_int_equal(peek(&v, ptr(&v, 0, (void *)24), 8), v.mem[3]);
	ibv_dereg_mr(mr);
	/* what does not fit a window */
	mr = ibv_reg_mr_iova2(v.pd, v.mem, SIZE, (1ull << 48) - SIZE + 4096, RW);
	assert_int_equal(config(&v, 0, v.id, mr->lkey), REFUSED);
	ibv_dereg_mr(mr);
	mr = ibv_reg_mr_iova2(v.pd, v.mem, SIZE, (1ull << 48) - SIZE, RW);
	assert_int_equal(config(&v, 0, v.id, mr->lkey), 0);
	assert_int_equal(peek(&v, ptr(&v, 0, (void *)((1ull << 48) - 8)), 8), v.mem[SIZE / 8 - 1]);
	ibv_dereg_mr(mr);
	mr = ibv_reg_mr_iova2(v.pd, v.mem, SIZE, 0xffff888000000000, RW);
	if (mr) {
		assert_int_equal(config(&v, 0, v.id, mr->lkey), REFUSED);
		ibv_dereg_mr(mr);
	}
	view_close(&v);
}

/* ---- ends ---- */

static void ended(struct view *v, uint64_t at)
{
	flexio_uintptr_t dev = bed_alloc(v->process, 64);

	assert_int_equal(ptr(v, 0, v->mem), 0);
	assert_int_equal(copy_in(v, 0, dev, v->mem, 8), REFUSED);
	assert_int_equal(copy_out(v, 0, v->mem, dev, 8), REFUSED);
	traps(v, "poke", at, 8, STATUS_STORE);
	assert_int_not_equal(v->mem[0], 0x55);
}

static void test_deregistration(void **state)
{
	struct view v;
	uint64_t at;
	uint32_t key;

	(void)state;
	view_open(&v);
	key = v.mr->lkey;
	assert_int_equal(config(&v, 0, v.id, key), 0);
	at = ptr(&v, 0, v.mem);
	assert_int_equal(peek(&v, at + 8, 8), v.mem[1]);
	assert_int_equal(ibv_dereg_mr(v.mr), 0);
	v.mr = NULL;
	assert_int_equal(config(&v, 0, v.id, key), REFUSED);
	assert_int_equal(call(&v, VB_RTOS_WINDOW_MKEY, 0, key, 0, 0), REFUSED);
	ended(&v, at);
	view_close(&v);
}

static void rereg(struct view *v, int flags, struct ibv_pd *pd, void *addr, size_t len, int access)
{
	uint32_t key = v->mr->lkey;

	assert_int_equal(ibv_rereg_mr(v->mr, flags, pd, addr, len, access), 0);
	assert_int_equal(v->mr->lkey, key);
}

/* A window that is configured follows: rights, then memory. Device code need not ask again. */
static void test_reregistration(void **state)
{
	uint64_t *half;
	struct view v;
	uint64_t at;
	flexio_uintptr_t dev;

	(void)state;
	view_open(&v);
	half = v.mem + SIZE / 16;
	dev = bed_alloc(v.process, 64);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	at = ptr(&v, 0, v.mem);
	poke(&v, at, 8, 0x77);
	rereg(&v, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0);
	assert_int_equal(peek(&v, at + 8, 8), v.mem[1]);
	assert_int_equal(copy_in(&v, 0, dev, v.mem, 8), 0);
	assert_int_equal(copy_out(&v, 0, v.mem, dev, 8), REFUSED);
	rereg(&v, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW);
	poke(&v, at, 8, 0x78);
	assert_int_equal(v.mem[0], 0x78);
	assert_int_equal(copy_out(&v, 0, v.mem, dev, 8), 0);
	assert_int_equal(v.mem[0], 0x77);
	rereg(&v, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, half, SIZE / 2, 0);
	assert_int_equal(peek(&v, ptr(&v, 0, half) + 8, 8), half[1]);
	assert_int_equal(copy_in(&v, 0, dev, half, 8), 0);
	assert_int_equal(copy_in(&v, 0, dev, v.mem, 8), REFUSED);
	rereg(&v, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, v.mem, SIZE,
	      0);
	assert_int_equal(peek(&v, at + 8, 8), v.mem[1]);
	traps(&v, "poke", at, 8, STATUS_STORE); /* it is for reading now */
	view_close(&v);
}

/* What the window's domain has no part in any more is gone. */
static void test_other_domain(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(bed_ctx);
	struct view v;
	uint64_t at;

	(void)state;
	view_open(&v);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	at = ptr(&v, 0, v.mem);
	rereg(&v, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), REFUSED);
	ended(&v, at);
	rereg(&v, IBV_REREG_MR_CHANGE_PD, v.pd, NULL, 0, 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	view_close(&v);
}

static void test_window_destroyed(void **state)
{
	struct flexio_window *second;
	struct view v;
	uint64_t at;

	(void)state;
	view_open(&v);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	at = ptr(&v, 0, v.mem);
	assert_ok(flexio_window_create(v.process, v.pd, &second));
	assert_ok(flexio_window_destroy(v.window));
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), REFUSED);
	assert_int_equal(call(&v, VB_RTOS_WINDOW_MKEY, 0, v.mr->lkey, 0, 0), REFUSED);
	v.window = second;
	ended(&v, at);
	view_close(&v);
}

static void test_memory_gone(void **state)
{
	flexio_uintptr_t dev;
	struct view v;
	uint64_t at;

	(void)state;
	view_open(&v);
	dev = bed_alloc(v.process, SIZE);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	at = ptr(&v, 0, v.mem);
	assert_int_equal(peek(&v, at + 8, 8), v.mem[1]);
	munmap((char *)v.mem + SIZE / 2, SIZE / 2);
	assert_int_equal(copy_in(&v, 0, dev, v.mem, SIZE), REFUSED);
	assert_int_equal(copy_out(&v, 0, v.mem, dev, SIZE), REFUSED);
	assert_int_equal(copy_in(&v, 0, dev, v.mem, SIZE / 2), 0);
	traps(&v, "peek", at + SIZE / 2, 8, STATUS_LOAD);
	view_close(&v);
}

static void test_thread_gone(void **state)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("raw_call") };
	struct flexio_event_handler *handler;
	flexio_uintptr_t args, done;
	struct view v;

	(void)state;
	view_open(&v);
	{
		uint64_t words[5] = { VB_RTOS_WINDOW_CONFIG, 0, v.id, v.mr->lkey, 0 };

		assert_ok(flexio_copy_from_host(v.process, words, sizeof(words), &args));
	}
	for (unsigned int i = 0; i < 20; i++) {
		assert_ok(flexio_event_handler_create(v.process, &attr, &handler));
		assert_ok(flexio_event_handler_run(handler, args));
		bed_value(v.process, "activate", flexio_event_handler_get_activation_id(handler));
		if (i & 1)
			usleep(500);
		assert_ok(flexio_event_handler_destroy(handler));
	}
	done = bed_alloc(v.process, 64);
	assert_int_equal(copy_in(&v, 0, done, v.mem, 8), REFUSED);
	assert_ok(flexio_buf_dev_free(v.process, args));
	view_close(&v);
}

/* A queue pair ends the key. */
static void test_invalidation(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct node a, b;
	struct ibv_wc wc;
	struct view v = { 0 };
	uint64_t at;

	(void)state;
	node_pair(&a, &b, &attr);
	assert_ok(flexio_process_create(a.ctx, bed_app, NULL, &v.process));
	assert_ok(flexio_window_create(v.process, a.pd, &v.window));
	v.id = flexio_window_get_id(v.window);
	v.mem = pages(SIZE);
	v.mr = ibv_reg_mr(a.pd, v.mem, SIZE, RW);
	assert_int_equal(config(&v, 0, v.id, v.mr->lkey), 0);
	at = ptr(&v, 0, v.mem);
	poke(&v, at, 8, 5);
	assert_int_equal(v.mem[0], 5);
	wr.invalidate_rkey = v.mr->rkey;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	while (!ibv_poll_cq(a.send_cq, 1, &wc))
		;
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	ended(&v, at);
	assert_int_equal(ibv_dereg_mr(v.mr), 0);
	munmap(v.mem, SIZE);
	assert_ok(flexio_window_destroy(v.window));
	bed_process_end(v.process);
	node_close(&a);
	node_close(&b);
}

/* ---- device mkeys ---- */

static void test_device_mkey(void **state)
{
	struct flexio_mkey_attr attr = { .len = 4096, .access = RW };
	struct flexio_mkey *mkey;
	struct view v;
	uint64_t at;

	(void)state;
	view_open(&v);
	attr.pd = v.pd;
	attr.daddr = bed_alloc(v.process, 4096);
	assert_ok(flexio_device_mkey_create(v.process, &attr, &mkey));
	bed_write(v.process, attr.daddr + 8, 77);
	assert_int_equal(config(&v, 1, v.id, flexio_mkey_get_id(mkey)), 0);
	at = ptr(&v, 1, (void *)attr.daddr);
	assert_int_equal(peek(&v, at + 8, 8), 77);
	poke(&v, at + 16, 8, 78);
	assert_int_equal(bed_read(v.process, attr.daddr + 16), 78);
	assert_int_equal(copy_out(&v, 1, (void *)(attr.daddr + 64), attr.daddr + 8, 16), 0);
	assert_int_equal(bed_read(v.process, attr.daddr + 72), 78);
	assert_ok(flexio_device_mkey_destroy(mkey));
	traps(&v, "peek", at, 8, STATUS_LOAD);
	view_close(&v);
}

/* ---- again and again ---- */

static size_t in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void test_reconfigure(void **state)
{
	uint64_t words[8], mem[2][2] __attribute__((aligned(64))) = { { 11, 0 }, { 22, 0 } };
	struct ibv_mr *mr[2];
	size_t before = 0;
	struct view v;

	(void)state;
	view_open(&v);
	words[0] = v.id;
	words[7] = 1000;
	for (unsigned int i = 0; i < 2; i++) {
		mr[i] = ibv_reg_mr(v.pd, mem[i], sizeof(mem[i]), RW);
		words[1 + i * 3] = mr[i]->lkey;
		words[2 + i * 3] = (uintptr_t)mem[i];
		words[3 + i * 3] = mem[i][0];
	}
	for (unsigned int i = 0; i < 6; i++) {
		assert_int_equal(bed_words(v.process, "flip", words, 8), 1000);
		if (i == 1)
			before = in_use();
	}
	/* some hundred bytes may have found other places; 4000 maps are more */
	assert_in_range(in_use(), 0, before + 4096);
	assert_int_equal(mem[0][1], 3000);
	assert_int_equal(mem[1][1], 3000);
	/* one key all the time */
	words[4] = words[1];
	words[5] = words[2];
	words[6] = words[3];
	words[7] = 100000;
	assert_int_equal(bed_words(v.process, "flip", words, 8), 100000);
	assert_int_equal(mem[0][1], 103000);
	for (unsigned int i = 0; i < 2; i++)
		ibv_dereg_mr(mr[i]);
	view_close(&v);
}

static const struct view *shared;

/* Each with regions of its own, which come and go; all through one window. */
static void *flip_thread(void *arg)
{
	uint64_t *mem = pages(8192);

	for (unsigned int round = 0; round < 8; round++) {
		uint64_t words[8] = { shared->id, 0, 0, 0, 0, 0, 0, 100 };
		struct ibv_mr *mr[2];

		for (unsigned int i = 0; i < 2; i++) {
			mem[i * 512] = (uintptr_t)&words + i;
			mem[i * 512 + 1] = 0;
			mr[i] = ibv_reg_mr(shared->pd, mem + i * 512, 4096, RW);
			assert_non_null(mr[i]);
			words[1 + i * 3] = mr[i]->lkey;
			words[2 + i * 3] = (uintptr_t)(mem + i * 512);
			words[3 + i * 3] = mem[i * 512];
		}
		assert_int_equal(bed_words(shared->process, "flip", words, 8), 100);
		assert_int_equal(mem[1], 50);
		assert_int_equal(mem[513], 50);
		ibv_dereg_mr(mr[0]);
		ibv_dereg_mr(mr[1]);
	}
	munmap(mem, 8192);
	return arg;
}

static void test_many_threads(void **state)
{
	pthread_t thread[24];
	struct view v;

	(void)state;
	view_open(&v);
	shared = &v;
	bed_func("flip");
	for (unsigned int i = 0; i < 24; i++)
		pthread_create(&thread[i], NULL, flip_thread, NULL);
	for (unsigned int i = 0; i < 24; i++)
		pthread_join(thread[i], NULL);
	view_close(&v);
}

/* ---- the end of a key while device code uses it ---- */

struct busy {
	const struct view *v;
	const char *func;
	flexio_uintptr_t args;
	flexio_status status;
	pthread_t thread;
};

static void *busy_main(void *arg)
{
	struct busy *busy = arg;

	busy->status = bed_call(busy->v->process, busy->func, busy->args, NULL);
	return NULL;
}

/* Device code writes all the time, on a thread of its own. Returns when it has begun. */
static void busy_start(struct busy *busy, const struct view *v, const char *func)
{
	flexio_uintptr_t source = bed_alloc(v->process, SIZE), count = bed_alloc(v->process, 64);
	uint64_t words[6] = { v->id, v->mr->lkey, (uintptr_t)v->mem, source, SIZE, count };

	*busy = (struct busy){ .v = v, .func = func };
	assert_ok(flexio_copy_from_host(v->process, words, sizeof(words), &busy->args));
	bed_func(func);
	assert_int_equal(pthread_create(&busy->thread, NULL, busy_main, busy), 0);
	bed_await(v->process, count, 5);
}

/* Once the registration has ended nothing arrives any more, and the memory may go. */
static void deregister_under(const char *func, flexio_status status)
{
	for (unsigned int round = 0; round < 10; round++) {
		struct busy busy;
		struct view v;

		view_open(&v);
		busy_start(&busy, &v, func);
		if (round & 1) {
			assert_int_equal(ibv_dereg_mr(v.mr), 0);
			v.mr = NULL;
		} else {
			assert_ok(flexio_window_destroy(v.window));
			assert_ok(flexio_window_create(v.process, v.pd, &v.window));
		}
		memset(v.mem, 0xab, SIZE);
		usleep(200);
		for (unsigned int i = 0; i < SIZE; i++)
			assert_int_equal(((uint8_t *)v.mem)[i], 0xab);
		munmap(v.mem, SIZE);
		v.mem = NULL;
		pthread_join(busy.thread, NULL);
		assert_int_equal(busy.status, status);
		view_close(&v);
	}
}

static void test_end_under_copies(void **state)
{
	(void)state;
	deregister_under("copy_on", FLEXIO_STATUS_SUCCESS);
}

static void test_end_under_stores(void **state)
{
	(void)state;
	deregister_under("store_on", FLEXIO_STATUS_FATAL_ERR);
}

/* Memory that goes without a word: the device's fault, not ours. */
static void test_unmap_under_stores(void **state)
{
	struct busy busy;
	struct view v;

	(void)state;
	view_open(&v);
	busy_start(&busy, &v, "store_on");
	munmap(v.mem, SIZE);
	v.mem = NULL;
	pthread_join(busy.thread, NULL);
	assert_int_equal(busy.status, FLEXIO_STATUS_FATAL_ERR);
	view_close(&v);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_other_adapter),
		cmocka_unit_test(test_many_objects),
		cmocka_unit_test(test_read_and_write),
		cmocka_unit_test(test_two_entities),
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_wrong_names),
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_deregistration),
		cmocka_unit_test(test_reregistration),
		cmocka_unit_test(test_other_domain),
		cmocka_unit_test(test_window_destroyed),
		cmocka_unit_test(test_memory_gone),
		cmocka_unit_test(test_thread_gone),
		cmocka_unit_test(test_invalidation),
		cmocka_unit_test(test_device_mkey),
		cmocka_unit_test(test_reconfigure),
		cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_end_under_copies),
		cmocka_unit_test(test_end_under_stores),
		cmocka_unit_test(test_unmap_under_stores),
	};

	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
