// SPDX-License-Identifier: MIT
/*
 * Above the limit: windows onto host memory with their rights and their end, and device pages whose
 * accesses are calls. After a window is gone nothing reaches its memory, whatever a guest thread
 * was doing at that moment.
 */
#include "bed.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dpa/cpu/jit/code.h"
#include "dpa/internal.h"

#define AT        (VB_DPA_WINDOW_BASE + 0x100000)
#define PAGE_SIZE 4096u

/* One function per access: f(address, value) does one instruction and returns what a0 then holds.
 */
static int fn_of[OP_COUNT], fn_hammer;

static void make_accesses(struct rv_prog *p)
{
	for (int op = 0; op < OP_COUNT; op++) {
		enum rv_format f = rv_info[op].format;

		if (f != FMT_LD && f != FMT_ST && f != FMT_AM && f != FMT_LR && f != FMT_SC)
			continue;
		fn_of[op] = rv_label(p);
		rv_place(p, fn_of[op]);
		if (f == FMT_SC)
			rv_emit(p, (rv_info[op].bits & 0x1000) ? OP_lr_d : OP_lr_w, 12, 10, 0, 0);
		rv_emit(p, (enum rv_op)op, f == FMT_ST ? 0 : 10, 10,
			f == FMT_LD || f == FMT_LR ? 0 : 11, 0);
		rv_emit(p, OP_jalr, 0, 1, 0, 0);
	}
	/* hammer(address): load, change, store, for ever */
	fn_hammer = rv_label(p);
	rv_place(p, fn_hammer);
	rv_emit(p, OP_ld, 5, 10, 0, 0);
	rv_emit(p, OP_addi, 5, 5, 0, 1);
	rv_emit(p, OP_sd, 0, 10, 5, 0);
	rv_emit(p, OP_sd, 0, 10, 5, 8);
	rv_emit(p, OP_addi, 12, 0, 0, 1);
	rv_emit(p, OP_addi, 13, 10, 0, 16);
	rv_emit(p, OP_amoadd_d, 0, 13, 12, 0);
	rv_jump(p, 0, fn_hammer);
}

static int access_by(struct bed *b, struct vb_dpa_thread *t, enum rv_op op, u64 address, u64 value,
		     uint64_t *result)
{
	uint64_t args[2] = { address, value };

	return vb_dpa_call(t, rv_address(&b->p, fn_of[op]), args, 2, result);
}

static int do_access(struct bed *b, enum rv_op op, u64 address, u64 value, uint64_t *result)
{
	return access_by(b, b->thread, op, address, value, result);
}

static void expect_trap(struct bed *b, enum rv_op op, u64 address, enum vb_dpa_cause cause)
{
	uint64_t result;

	assert_int_equal(do_access(b, op, address, 1, &result), -EFAULT);
	assert_int_equal(bed_state(b)->cause, cause);
	assert_int_equal(bed_state(b)->tval, address);
	assert_int_equal(bed_state(b)->pc, rv_address(&b->p, fn_of[op]));
}

static struct vb_dpa_window *window(struct bed *b, struct vb_dpa_thread *t, u64 addr, u64 len,
				    void *host, unsigned rights)
{
	struct vb_dpa_window *w;

	assert_int_equal(vb_dpa_window_create(b->process, t, addr, len, host, rights, &w), 0);
	return w;
}

/* Every width, every alignment, sign and zero extension, up to both ends. */
static void test_accesses(void **state)
{
	struct bed b = { 0 };
	uint8_t host[256];
	uint64_t got;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	for (unsigned i = 0; i < sizeof(host); i++)
		host[i] = (uint8_t)(i * 37 + 128);
	window(&b, NULL, AT, sizeof(host), host, VB_DPA_READ | VB_DPA_WRITE);
	for (int op = 0; op < OP_COUNT; op++) {
		unsigned size = rv_info[op].arg;

		if (rv_info[op].format != FMT_LD && rv_info[op].format != FMT_ST)
			continue;
		for (unsigned off = 0; off + size <= sizeof(host);
		     off += off < 16 || off > 230 ? 1 : 13) {
			u64 want = 0, value = 0x1122334455667788ull * (off + 1);
			unsigned shift = 64 - 8 * size;
			bool is_signed = op == OP_lb || op == OP_lh || op == OP_lw || op == OP_ld;

			memcpy(&want, host + off, size);
			want = is_signed ? (u64)((i64)(want << shift) >> shift) : want;
			assert_int_equal(do_access(&b, (enum rv_op)op, AT + off, value, &got), 0);
			if (rv_info[op].format == FMT_LD)
				assert_int_equal(got, want);
			else
				assert_memory_equal(host + off, &value, size);
		}
		/* One byte too far, one too early. */
		expect_trap(&b, (enum rv_op)op, AT + sizeof(host) - size + 1,
			    rv_info[op].format == FMT_LD ? VB_DPA_CAUSE_LOAD : VB_DPA_CAUSE_STORE);
		expect_trap(&b, (enum rv_op)op, AT - 1,
			    rv_info[op].format == FMT_LD ? VB_DPA_CAUSE_LOAD : VB_DPA_CAUSE_STORE);
	}
	bed_close(&b);
}

/* f(address): four bytes, the first counts most. */
static int make_word(struct rv_prog *p)
{
	int f = rv_label(p);

	rv_place(p, f);
	rv_emit(p, OP_lb, 11, 10, 0, 0);
	rv_emit(p, OP_lbu, 12, 10, 0, 1);
	rv_emit(p, OP_lbu, 13, 10, 0, 2);
	rv_emit(p, OP_lbu, 10, 10, 0, 3);
	rv_emit(p, OP_slliw, 11, 11, 0, 24);
	rv_emit(p, OP_slli, 12, 12, 0, 16);
	rv_emit(p, OP_slli, 13, 13, 0, 8);
	rv_emit(p, OP_or, 11, 11, 12, 0);
	rv_emit(p, OP_or, 11, 11, 13, 0);
	rv_emit(p, OP_or, 10, 10, 11, 0);
	rv_emit(p, OP_addi, 11, 0, 0, 1);
	rv_emit(p, OP_addi, 12, 0, 0, 2);
	rv_emit(p, OP_addi, 13, 0, 0, 3);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
	return f;
}

/* Bytes that are put together come from windows and from memory in turns, up to the window's end. */
static void test_words(void **state)
{
	struct bed b = { 0 };
	uint8_t host[64];
	uint64_t got, heap = 0;
	int f;

	(void)state;
	f = make_word(&b.p);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_mem_map(b.process, &heap, sizeof(host), VB_DPA_READ | VB_DPA_WRITE),
			 0);
	for (unsigned i = 0; i < sizeof(host); i++)
		host[i] = (uint8_t)(i * 37 + 128);
	assert_int_equal(vb_dpa_mem_write(b.process, heap, host, sizeof(host)), 0);
	window(&b, NULL, AT, sizeof(host), host, VB_DPA_READ);
	for (unsigned n = 0; n < 2000; n++) {
		unsigned off = n % 64;
		uint64_t at = (n / 7 % 2 ? heap : AT) + off, before = bed_state(&b)->instret;
		int rc = vb_dpa_call(b.thread, rv_address(&b.p, f), &at, 1, &got);
		uint32_t want;

		if (at < AT && off > 60) /* there is more memory behind it */
			continue;
		assert_int_equal(rc, off > 60 ? -EFAULT : 0);
		if (off > 60) {
			assert_int_equal(bed_state(&b)->tval, AT + 64);
			assert_int_equal(bed_state(&b)->instret - before, 64 - off);
			continue;
		}
		memcpy(&want, host + off, 4);
		assert_int_equal(got, (uint64_t)(int64_t)(int32_t)__builtin_bswap32(want));
		assert_int_equal(bed_state(&b)->x[13], 3);
	}
	bed_close(&b);
}

static void test_atomics(void **state)
{
	struct bed b = { 0 };
	_Alignas(8) uint64_t host[4];
	uint64_t got;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	window(&b, NULL, AT, sizeof(host), host, VB_DPA_READ | VB_DPA_WRITE);
	for (int op = 0; op < OP_COUNT; op++) {
		enum rv_format f = rv_info[op].format;
		bool wide = rv_info[op].bits & 0x1000;
		u64 old = 0x8000000380000005ull, value = 0x90000000f0000001ull, want;

		if (f != FMT_AM && f != FMT_SC && f != FMT_LR)
			continue;
		host[1] = old;
		assert_int_equal(do_access(&b, (enum rv_op)op, AT + 8, value, &got), 0);
		want = f == FMT_AM ? rv_amo((enum rv_op)op, wide ? old : (u64)(i64)(i32)old, value)
		       : f == FMT_SC ? value
				     : old;
		if (!wide)
			want = (old & 0xffffffff00000000ull) | (u32)want;
		assert_int_equal(host[1], want);
		assert_int_equal(got, f == FMT_SC ? 0 : wide ? old : (u64)(i64)(i32)old);
		if (f != FMT_SC) /* its LR has trapped before it */
			expect_trap(&b, (enum rv_op)op, AT + sizeof(host),
				    f == FMT_LR ? VB_DPA_CAUSE_LOAD : VB_DPA_CAUSE_STORE);
	}
	bed_close(&b);
}

static void test_rights(void **state)
{
	struct bed b = { 0 };
	uint64_t host[8] = { 5, 6, 7, 8 }, got;
	struct vb_dpa_window *r, *w;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	r = window(&b, NULL, AT, 64, host, VB_DPA_READ);
	assert_int_equal(do_access(&b, OP_ld, AT, 0, &got), 0);
	assert_int_equal(got, 5);
	expect_trap(&b, OP_sd, AT, VB_DPA_CAUSE_STORE);
	expect_trap(&b, OP_sb, AT + 63, VB_DPA_CAUSE_STORE);
	expect_trap(&b, OP_amoadd_d, AT, VB_DPA_CAUSE_STORE);
	assert_int_equal(host[0], 5);
	w = window(&b, NULL, AT + 0x1000, 64, host, VB_DPA_WRITE);
	assert_int_equal(do_access(&b, OP_sd, AT + 0x1008, 99, &got), 0);
	assert_int_equal(host[1], 99);
	expect_trap(&b, OP_ld, AT + 0x1008, VB_DPA_CAUSE_LOAD);
	/* Each invalidated at once, the other still there. */
	assert_int_equal(vb_dpa_window_destroy(r), 0);
	expect_trap(&b, OP_ld, AT, VB_DPA_CAUSE_LOAD);
	assert_int_equal(do_access(&b, OP_sd, AT + 0x1000, 98, &got), 0);
	assert_int_equal(vb_dpa_window_destroy(w), 0);
	expect_trap(&b, OP_sd, AT + 0x1000, VB_DPA_CAUSE_STORE);
	/* The same place again, with other memory and rights. */
	r = window(&b, NULL, AT, 64, host + 1, VB_DPA_READ | VB_DPA_WRITE);
	assert_int_equal(do_access(&b, OP_ld, AT, 0, &got), 0);
	assert_int_equal(got, 99);
	assert_int_equal(do_access(&b, OP_sd, AT, 1, &got), 0);
	bed_close(&b);
}

static void test_refusals(void **state)
{
	struct vb_dpa_window *w, *none = NULL;
	struct bed b = { 0 };
	uint8_t host[64];

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	assert_int_equal(
		vb_dpa_window_create(b.process, NULL, VB_DPA_WINDOW_BASE - 8, 64, host, 1, &none),
		-EINVAL);
	assert_int_equal(
		vb_dpa_window_create(b.process, NULL, VB_DPA_WINDOW_END - 8, 64, host, 1, &none),
		-EINVAL);
	assert_int_equal(vb_dpa_window_create(b.process, NULL, AT, 0, host, 1, &none), -EINVAL);
	assert_int_equal(vb_dpa_window_create(b.process, NULL, AT, ~0ull, host, 1, &none), -EINVAL);
	w = window(&b, NULL, AT, 64, host, VB_DPA_READ);
	for (i64 off = -63; off < 64; off += 21)
		assert_int_equal(
			vb_dpa_window_create(b.process, NULL, AT + (u64)off, 64, host, 1, &none),
			-EEXIST);
	assert_null(none);
	window(&b, NULL, AT + 64, 64, host, VB_DPA_READ); /* neighbours may touch */
	window(&b, NULL, AT - 64, 64, host, VB_DPA_READ);
	assert_int_equal(vb_dpa_window_destroy(w), 0);
	bed_close(&b);
}

/* A window of one thread is nothing to another. */
static void test_private(void **state)
{
	struct vb_dpa_thread *other;
	struct bed b = { 0 };
	uint64_t host = 77, got;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_thread_create(b.process, NULL, &other), 0);
	window(&b, b.thread, AT, 8, &host, VB_DPA_READ);
	assert_int_equal(do_access(&b, OP_ld, AT, 0, &got), 0);
	assert_int_equal(got, 77);
	assert_int_equal(access_by(&b, other, OP_ld, AT, 0, &got), -EFAULT);
	assert_int_equal(vb_dpa_thread_state(other)->tval, AT);
	assert_int_equal(vb_dpa_thread_destroy(other), 0);
	bed_close(&b);
}

static u64 place(unsigned i)
{
	return AT + i * 0x10000ull + (i % 3) * 0x100;
}

/* More windows than any table of a thread holds, used in turns and at random. */
static void test_many(void **state)
{
	enum { COUNT = 200 };
	static uint64_t host[COUNT][4];
	struct vb_dpa_window *w[COUNT];
	struct rng r = { 9 };
	struct bed b = { 0 };
	uint64_t got;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	for (unsigned i = 0; i < COUNT; i++) {
		host[i][0] = i * 1000;
		w[i] = window(&b, NULL, place(i), 32, host[i], VB_DPA_READ | VB_DPA_WRITE);
	}
	for (unsigned n = 0; n < 4000; n++) {
		unsigned i = n < COUNT ? n : rng_below(&r, COUNT);

		assert_int_equal(do_access(&b, OP_amoadd_d, place(i), 1, &got), 0);
		assert_int_equal(got, host[i][0] - 1);
		if (n % 500 == 499) {
			assert_int_equal(vb_dpa_window_destroy(w[i]), 0);
			expect_trap(&b, OP_ld, place(i), VB_DPA_CAUSE_LOAD);
			w[i] = window(&b, NULL, place(i), 32, host[i], VB_DPA_READ | VB_DPA_WRITE);
		}
	}
	bed_close(&b);
}

/* Windows taken away under threads that hammer them, the memory then given back to the system. */
static void test_invalidation(void **state)
{
	struct vb_dpa_attr attr = { .eus = 2, .host_threads = 2, .slice = 5000 };
	struct vb_dpa_thread *t[2];
	struct bed b = { 0 };

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, &attr);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_dpa_thread_create(b.process, NULL, &t[i]), 0);
	for (unsigned round = 0; round < 100; round++) {
		_Atomic uint64_t *host = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE,
					      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct vb_dpa_window *w =
			window(&b, NULL, AT, PAGE_SIZE, (void *)host, VB_DPA_READ | VB_DPA_WRITE);
		uint64_t arg = AT;
		enum vb_dpa_why why;

		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(
				vb_dpa_thread_set_call(t[i], rv_address(&b.p, fn_hammer), &arg, 1),
				0);
			assert_int_equal(vb_dpa_thread_start(t[i]), 0);
		}
		while (atomic_load(&host[2]) < 20) /* both sides are at work */
			sched_yield();
		assert_int_equal(vb_dpa_window_destroy(w), 0);
		for (unsigned k = 0; k < 3; k++)
			atomic_store(&host[k], 0);
		for (unsigned spin = 0; spin < 2000; spin++) /* nothing may come through any more */
			for (unsigned k = 0; k < 3; k++)
				assert_int_equal(atomic_load(&host[k]), 0);
		munmap((void *)host, PAGE_SIZE);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(vb_dpa_thread_wait(t[i], -1, &why), 0);
			assert_int_equal(why, VB_DPA_WHY_TRAP);
			assert_in_range(vb_dpa_thread_state(t[i])->tval, AT, AT + 16);
		}
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_dpa_thread_destroy(t[i]), 0);
	bed_close(&b);
}

/* The same window with other rights, other memory, other addresses; what is refused changes nothing. */
static void test_change(void **state)
{
	struct bed b = { 0 };
	uint64_t host[16] = { 5, 6, [8] = 7, 8 }, got;
	struct vb_dpa_window *w;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	w = window(&b, NULL, AT, 64, host, VB_DPA_READ | VB_DPA_WRITE);
	window(&b, NULL, AT + 0x1000, 64, host, VB_DPA_READ);
	assert_int_equal(do_access(&b, OP_sd, AT, 9, &got), 0);
	assert_int_equal(vb_dpa_window_change(w, AT, 64, host, VB_DPA_READ), 0);
	expect_trap(&b, OP_sd, AT, VB_DPA_CAUSE_STORE);
	assert_int_equal(do_access(&b, OP_ld, AT, 0, &got), 0);
	assert_int_equal(got, 9);
	assert_int_equal(vb_dpa_window_change(w, AT, 64, host + 8, VB_DPA_READ | VB_DPA_WRITE), 0);
	assert_int_equal(do_access(&b, OP_ld, AT, 0, &got), 0);
	assert_int_equal(got, 7);
	assert_int_equal(do_access(&b, OP_sd, AT + 8, 10, &got), 0);
	assert_int_equal(host[9], 10);
	assert_int_equal(vb_dpa_window_change(w, AT + 0x1001, 64, host, VB_DPA_READ), -EEXIST);
	assert_int_equal(vb_dpa_window_change(w, AT, 64, NULL, VB_DPA_READ), -EINVAL);
	assert_int_equal(vb_dpa_window_change(w, AT, 64, host, 0), -EINVAL);
	assert_int_equal(vb_dpa_window_change(w, AT, 0, host, VB_DPA_READ), -EINVAL);
	assert_int_equal(vb_dpa_window_change(w, VB_DPA_WINDOW_END - 8, 64, host, VB_DPA_READ),
			 -EINVAL);
	assert_int_equal(do_access(&b, OP_sd, AT + 8, 11, &got), 0);
	assert_int_equal(host[9], 11);
	assert_int_equal(vb_dpa_window_change(w, AT + 32, 32, host, VB_DPA_READ), 0);
	expect_trap(&b, OP_ld, AT, VB_DPA_CAUSE_LOAD);
	assert_int_equal(do_access(&b, OP_ld, AT + 32, 0, &got), 0);
	assert_int_equal(got, 9);
	bed_close(&b);
}

/* A window that changes under threads that hammer it: they never miss it, and the memory they had is left alone. */
static void test_change_in_use(void **state)
{
	struct vb_dpa_attr attr = { .eus = 2, .host_threads = 2, .slice = 5000 };
	static _Atomic uint64_t host[2][8];
	struct vb_dpa_thread *t[2];
	struct vb_dpa_window *w;
	struct bed b = { 0 };
	uint64_t arg = AT;
	enum vb_dpa_why why;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, &attr);
	w = window(&b, NULL, AT, sizeof(host[0]), (void *)host[0], VB_DPA_READ | VB_DPA_WRITE);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(vb_dpa_thread_create(b.process, NULL, &t[i]), 0);
		assert_int_equal(vb_dpa_thread_set_call(t[i], rv_address(&b.p, fn_hammer), &arg, 1),
				 0);
		assert_int_equal(vb_dpa_thread_start(t[i]), 0);
	}
	for (unsigned round = 0; round < 50; round++) {
		_Atomic uint64_t *old = host[round % 2], *now = host[(round + 1) % 2];

		while (atomic_load(&old[2]) < 20) /* both sides are at work */
			sched_yield();
		assert_int_equal(vb_dpa_window_change(w, AT, sizeof(host[0]), (void *)now,
						      VB_DPA_READ | VB_DPA_WRITE),
				 0);
		for (unsigned k = 0; k < 3; k++)
			atomic_store(&old[k], 0);
		for (unsigned spin = 0; spin < 200; spin++)
			for (unsigned k = 0; k < 3; k++)
				assert_int_equal(atomic_load(&old[k]), 0);
	}
	assert_int_equal(vb_dpa_window_destroy(w), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(vb_dpa_thread_wait(t[i], -1, &why), 0);
		assert_int_equal(why, VB_DPA_WHY_TRAP);
		assert_int_equal(vb_dpa_thread_destroy(t[i]), 0);
	}
	bed_close(&b);
}

/* Host memory that the program unmapped, or cut short, without telling us. */
static void test_memory_gone(void **state)
{
	struct bed b = { 0 };
	uint8_t *host = mmap(NULL, 2 * PAGE_SIZE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t got;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	window(&b, NULL, AT, 2 * PAGE_SIZE, host, VB_DPA_READ | VB_DPA_WRITE);
	assert_int_equal(do_access(&b, OP_sd, AT + PAGE_SIZE, 3, &got), 0);
	assert_int_equal(mprotect(host, PAGE_SIZE, PROT_READ), 0);
	assert_int_equal(do_access(&b, OP_ld, AT, 3, &got), 0);
	expect_trap(&b, OP_sd, AT, VB_DPA_CAUSE_STORE);
	expect_trap(&b, OP_amoswap_w, AT + 4, VB_DPA_CAUSE_STORE);
	munmap(host, PAGE_SIZE);
	expect_trap(&b, OP_ld, AT, VB_DPA_CAUSE_LOAD);
	expect_trap(&b, OP_lb, AT + PAGE_SIZE - 1, VB_DPA_CAUSE_LOAD);
	expect_trap(&b, OP_sw, AT + 8, VB_DPA_CAUSE_STORE);
	expect_trap(&b, OP_lr_w, AT + 8, VB_DPA_CAUSE_LOAD);
	assert_int_equal(do_access(&b, OP_ld, AT + PAGE_SIZE, 0, &got), 0);
	assert_int_equal(got, 3);
	munmap(host + PAGE_SIZE, PAGE_SIZE);
	bed_close(&b);
}

struct device {
	unsigned loads, stores, size;
	uint64_t offset, value, sum;
	bool broken;
};

static int on_load(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t *value,
		   void *arg)
{
	struct device *d = arg;

	(void)thread;
	d->loads++;
	d->offset = offset;
	d->size = size;
	*value = 0xfedcba9876543280ull; /* all of it: the engine takes what the width asks for */
	return d->broken ? -EIO : 0;
}

static int on_store(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t value,
		    void *arg)
{
	struct device *d = arg;

	(void)thread;
	d->stores++;
	d->offset = offset;
	d->size = size;
	d->value = value;
	d->sum += value;
	return d->broken ? -EIO : 0;
}

static const struct vb_dpa_device_ops device_ops = { on_load, on_store };

static void test_device(void **state)
{
	struct device d = { 0 };
	struct vb_dpa_window *w;
	struct bed b = { 0 };
	uint64_t got;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_device_create(b.process, NULL, AT, PAGE_SIZE, &device_ops, &d, &w),
			 0);
	for (int op = 0; op < OP_COUNT; op++) {
		unsigned size = rv_info[op].arg;
		u64 value = 0x8877665544332211ull,
		    mask = size == 8 ? ~0ull : (1ull << (8 * size)) - 1;
		static const u64 extended[] = { [OP_lb] = 0xffffffffffffff80ull,
						[OP_lh] = 0x3280,
						[OP_lw] = 0x76543280,
						[OP_ld] = 0xfedcba9876543280ull,
						[OP_lbu] = 0x80,
						[OP_lhu] = 0x3280,
						[OP_lwu] = 0x76543280 };

		if (rv_info[op].format == FMT_AM || rv_info[op].format == FMT_LR) {
			expect_trap(&b, (enum rv_op)op, AT,
				    rv_info[op].format == FMT_LR ? VB_DPA_CAUSE_LOAD
								 : VB_DPA_CAUSE_STORE);
			continue;
		}
		if (rv_info[op].format != FMT_LD && rv_info[op].format != FMT_ST)
			continue;
		for (u64 off = 0; off <= PAGE_SIZE - size; off += PAGE_SIZE - size) {
			d.loads = d.stores = 0;
			assert_int_equal(do_access(&b, (enum rv_op)op, AT + off, value, &got), 0);
			assert_int_equal(d.offset, off);
			assert_int_equal(d.size, size);
			assert_int_equal(d.loads + d.stores, 1); /* once, and only once */
			if (rv_info[op].format == FMT_LD)
				assert_int_equal(got, extended[op]);
			else
				assert_int_equal(d.value & mask, value & mask);
		}
		d.loads = d.stores = 0;
		if (size > 1)
			expect_trap(&b, (enum rv_op)op, AT + PAGE_SIZE - 1,
				    rv_info[op].format == FMT_LD ? VB_DPA_CAUSE_LOAD
								 : VB_DPA_CAUSE_STORE);
		assert_int_equal(d.loads + d.stores, 0);
	}
	d.broken = true;
	expect_trap(&b, OP_lw, AT + 16, VB_DPA_CAUSE_LOAD);
	expect_trap(&b, OP_sd, AT + 16, VB_DPA_CAUSE_STORE);
	assert_int_equal(vb_dpa_window_destroy(w), 0);
	d.stores = 0;
	expect_trap(&b, OP_sd, AT, VB_DPA_CAUSE_STORE);
	assert_int_equal(d.stores, 0);
	bed_close(&b);
}

/* A hundred thousand doorbells in a row, each counted, in order, with the registers around them intact. */
static void test_doorbells(void **state)
{
	struct device d = { 0 };
	struct vb_dpa_window *w;
	struct bed b = { 0 };
	uint64_t args[2] = { AT + 8, 100000 }, result;
	int top = rv_label(&b.p);

	(void)state;
	rv_place(&b.p, top);
	rv_emit(&b.p, OP_sw, 0, 10, 11, 0);
	rv_emit(&b.p, OP_sd, 0, 10, 11, 8);
	rv_emit(&b.p, OP_add, 12, 12, 11, 0);
	rv_emit(&b.p, OP_addi, 11, 11, 0, -1);
	rv_branch(&b.p, OP_bne, 11, 0, top);
	rv_emit(&b.p, OP_addi, 10, 12, 0, 0);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_device_create(b.process, NULL, AT, 64, &device_ops, &d, &w), 0);
	assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, args, 2), 0);
	bed_state(&b)->x[12] = 0;
	assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_RETURN);
	result = bed_state(&b)->x[10];
	assert_int_equal(result, 100000ull * 100001 / 2);
	assert_int_equal(d.stores, 200000);
	assert_int_equal(d.sum, 2 * result);
	assert_int_equal(d.value, 1);
	bed_close(&b);
}

/* A callback that halts its own thread: not one more instruction is executed, however early in a slice. */
static int on_halting_store(struct vb_dpa_thread *thread, uint64_t offset, unsigned size,
			    uint64_t value, void *arg)
{
	vb_dpa_thread_halt(thread);
	return on_store(thread, offset, size, value, arg);
}

static void test_halting_doorbell(void **state)
{
	static const struct vb_dpa_device_ops ops = { on_load, on_halting_store };
	struct device d = { 0 };
	struct vb_dpa_window *w;
	struct bed b = { 0 };
	uint64_t args[2] = { AT + 8, 1000 };
	int top = rv_label(&b.p);

	(void)state;
	rv_place(&b.p, top);
	rv_emit(&b.p, OP_sd, 0, 10, 11, 0);
	rv_emit(&b.p, OP_sd, 0, 10, 11, 8);
	rv_emit(&b.p, OP_addi, 11, 11, 0, -1);
	rv_branch(&b.p, OP_bne, 11, 0, top);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_device_create(b.process, NULL, AT, 64, &ops, &d, &w), 0);
	assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, args, 2), 0);
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t before = bed_state(&b)->instret;

		assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_STOP);
		assert_int_equal(d.stores, i + 1);
		assert_int_equal(bed_state(&b)->instret - before, i && i % 2 == 0 ? 3 : 1);
		assert_int_equal(vb_dpa_thread_stop(b.thread), 0);
	}
	assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_RETURN);
	assert_int_equal(d.sum, 2ull * 1000 * 1001 / 2);
	bed_close(&b);
}

/* A page that lasts cannot be taken away, and goes with the process. */
static void test_permanent(void **state)
{
	struct vb_dpa_device_ops ops = device_ops;
	struct vb_dpa_window *w;
	struct device d = { 0 };
	struct bed b = { 0 };
	uint64_t got;

	(void)state;
	ops.permanent = true;
	make_accesses(&b.p);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_device_create(b.process, NULL, AT, PAGE_SIZE, &ops, &d, &w), 0);
	assert_int_equal(do_access(&b, OP_sd, AT, 7, &got), 0);
	assert_int_equal(vb_dpa_window_destroy(w), -EINVAL);
	assert_int_equal(do_access(&b, OP_sd, AT, 7, &got), 0);
	assert_int_equal(d.stores, 2);
	bed_close(&b);
}

/* A device page whose load takes as long as the test wants. */
struct slow {
	struct vb_dpa_window *window;
	atomic_bool entered, leave, destroyed;
};

static int slow_load(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t *value,
		     void *arg)
{
	struct slow *slow = arg;

	(void)thread;
	(void)offset;
	(void)size;
	atomic_store(&slow->entered, true);
	while (!atomic_load(&slow->leave))
		sched_yield();
	*value = 5;
	return 0;
}

static void *destroy_slow(void *arg)
{
	struct slow *slow = arg;

	if (!vb_dpa_window_destroy(slow->window))
		atomic_store(&slow->destroyed, true);
	return NULL;
}

/* The end of a page waits for a callback that is under way. */
static void test_device_in_use(void **state)
{
	static const struct vb_dpa_device_ops ops = { slow_load, on_store };
	struct vb_dpa_attr attr = { .eus = 1, .host_threads = 1 };
	struct slow slow = { 0 };
	struct vb_dpa_thread *t;
	struct bed b = { 0 };
	enum vb_dpa_why why;
	uint64_t arg = AT;
	pthread_t thread;

	(void)state;
	make_accesses(&b.p);
	bed_open(&b, &attr);
	assert_int_equal(
		vb_dpa_device_create(b.process, NULL, AT, PAGE_SIZE, &ops, &slow, &slow.window), 0);
	assert_int_equal(vb_dpa_thread_create(b.process, NULL, &t), 0);
	assert_int_equal(vb_dpa_thread_set_call(t, rv_address(&b.p, fn_of[OP_ld]), &arg, 1), 0);
	assert_int_equal(vb_dpa_thread_start(t), 0);
	while (!atomic_load(&slow.entered))
		sched_yield();
	assert_int_equal(pthread_create(&thread, NULL, destroy_slow, &slow), 0);
	usleep(100000); /* enough for one that does not wait to show it */
	assert_false(atomic_load(&slow.destroyed));
	atomic_store(&slow.leave, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(atomic_load(&slow.destroyed));
	assert_int_equal(vb_dpa_thread_wait(t, -1, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_RETURN);
	assert_int_equal(vb_dpa_thread_state(t)->x[10], 5);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	bed_close(&b);
}

/*
 * Where the kernel cannot make barriers of plain stores (no membarrier), the mark before every
 * access through the inline window is followed by a fence, and by none where it can.
 */
static bool early; /* membarrier is refused from the start */

static void test_fences(void **state)
{
	static const uint8_t fence[] = { 0xf0, 0x83, 0x0c, 0x24, 0x00 }; /* lock or [rsp], 0 */
	uint8_t mark[16];
	struct code c = { .start = mark, .at = mark, .end = mark + sizeof(mark) };
	bool refused = vb_access_fences();
	const struct generation *gen;
	struct bed b = { 0 };
	unsigned marks = 0;
	size_t len;

	(void)state;
	if (bed_tier != VB_DPA_TIER_JIT)
		return;
	if (early)
		assert_true(refused);
	ins(&c, 0, 0xc7, 0, FIELD(accessing));
	put32(&c, 1);
	len = code_offset(&c);
	make_accesses(&b.p);
	bed_open(&b, NULL);
	gen = &b.process->text.jit->gens[0];
	for (size_t i = 0; i + len + sizeof(fence) <= gen->code_used; i++) {
		if (memcmp(gen->code + i, mark, len))
			continue;
		assert_int_equal(!memcmp(gen->code + i + len, fence, sizeof(fence)), refused);
		marks++;
	}
	assert_in_range(marks, 5, 100); /* most loads and stores of make_accesses */
	bed_close(&b);
}

/* From here on membarrier(2) fails, as in many a container. */
static int refuse_membarrier(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accesses),
		cmocka_unit_test(test_atomics),
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_private),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_invalidation),
		cmocka_unit_test(test_change),
		cmocka_unit_test(test_change_in_use),
		cmocka_unit_test(test_memory_gone),
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_doorbells),
		cmocka_unit_test(test_halting_doorbell),
		cmocka_unit_test(test_permanent),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_device_in_use),
		cmocka_unit_test(test_fences),
	};

	bed_main(argc, argv);
	early = argc > 2 && !strcmp(argv[2], "early");
	if (argc > 2 && !strcmp(argv[2], "late")) /* the program takes the right away from itself */
		vb_access_init();
	if (argc > 2 && refuse_membarrier()) {
		printf("this kernel has no seccomp filters\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
