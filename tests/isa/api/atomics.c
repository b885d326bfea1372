// SPDX-License-Identifier: MIT
/*
 * Atomics under contention: guest threads on several host threads and host code with C11 atomics,
 * all on the same words. Every sum must come out exactly; a lock taken by both sides must exclude;
 * published data must be seen.
 */
#include "bed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { GUESTS = 4, HOSTS = 2, TURNS = 20000, TURNS_AT_LEAST = 100, SECONDS = 5 };

/* The shared block; the guest reaches it through x9. */
struct shared {
	_Atomic uint32_t add_w, lr_w;
	_Atomic uint64_t add_d, lr_d, swap, or_d, xor_d, max, min;
	_Atomic uint32_t lock;
	uint64_t plain, plain2; /* only under the lock */
	_Alignas(64) _Atomic uint64_t flag;
	_Alignas(64) uint64_t payload;
	_Alignas(64) _Atomic uint64_t seen;
	/* store buffering: who starts, what each side stores, what the guest then loaded */
	_Alignas(64) _Atomic uint64_t round, guest_round, guest_saw;
	_Alignas(64) _Atomic uint64_t x;
	_Alignas(64) _Atomic uint64_t y;
	_Alignas(64) _Atomic uint64_t last; /* turn of the two tests in lock step */
};

static int fn_mix, fn_lock, fn_produce, fn_buffer[2];

static void at(struct rv_prog *p, enum rv_op op, unsigned rd, size_t offset, unsigned value,
	       unsigned order)
{
	rv_emit(p, OP_addi, 7, 9, 0, (i64)offset);
	rv_emit(p, op, rd, 7, value, order);
}

/* old + 1 by LR/SC, as compilers write it. */
static void reserve_add(struct rv_prog *p, bool wide, size_t offset)
{
	int again = rv_label(p);

	rv_emit(p, OP_addi, 7, 9, 0, (i64)offset);
	rv_place(p, again);
	rv_emit(p, wide ? OP_lr_d : OP_lr_w, 5, 7, 0, 2);
	rv_emit(p, OP_addi, 5, 5, 0, 1);
	rv_emit(p, wide ? OP_sc_d : OP_sc_w, 6, 7, 5, 1);
	rv_branch(p, OP_bne, 6, 0, again);
}

/* mix(block, turns, bit): one of each kind per turn. */
static void make_mix(struct rv_prog *p)
{
	int top = rv_label(p);

	fn_mix = rv_label(p);
	rv_place(p, fn_mix);
	rv_emit(p, OP_addi, 9, 10, 0, 0);
	rv_place(p, top);
	rv_emit(p, OP_addi, 28, 0, 0, 1);
	at(p, OP_amoadd_w, 0, offsetof(struct shared, add_w), 28, 0);
	at(p, OP_amoadd_d, 5, offsetof(struct shared, add_d), 28, 3);
	reserve_add(p, false, offsetof(struct shared, lr_w));
	reserve_add(p, true, offsetof(struct shared, lr_d));
	at(p, OP_amoor_d, 0, offsetof(struct shared, or_d), 12, 0);
	at(p, OP_amoxor_d, 5, offsetof(struct shared, xor_d), 12, 0);
	at(p, OP_amomaxu_d, 5, offsetof(struct shared, max), 11, 0);
	at(p, OP_amominu_d, 0, offsetof(struct shared, min), 11, 0);
	/* Tokens move through the swapped word; the sum of all that was put in and got out must balance. */
	at(p, OP_amoswap_d, 29, offsetof(struct shared, swap), 11, 0);
	rv_emit(p, OP_add, 30, 30, 29, 0);
	rv_emit(p, OP_addi, 11, 11, 0, -1);
	rv_branch(p, OP_bne, 11, 0, top);
	rv_emit(p, OP_addi, 10, 30, 0, 0);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
}

/* lock(block, turns): plain increments under a lock of amoswap.aq and a plain store behind a fence.
 */
static void make_lock(struct rv_prog *p)
{
	int top = rv_label(p), again = rv_label(p);

	fn_lock = rv_label(p);
	rv_place(p, fn_lock);
	rv_emit(p, OP_addi, 9, 10, 0, 0);
	rv_place(p, top);
	rv_place(p, again);
	rv_emit(p, OP_addi, 28, 0, 0, 1);
	at(p, OP_amoswap_w, 5, offsetof(struct shared, lock), 28, 2);
	rv_branch(p, OP_bne, 5, 0, again);
	rv_emit(p, OP_ld, 5, 9, 0, offsetof(struct shared, plain));
	rv_emit(p, OP_ld, 6, 9, 0, offsetof(struct shared, plain2));
	rv_emit(p, OP_addi, 5, 5, 0, 1);
	rv_emit(p, OP_addi, 6, 6, 0, -1);
	rv_emit(p, OP_sd, 0, 9, 5, offsetof(struct shared, plain));
	rv_emit(p, OP_sd, 0, 9, 6, offsetof(struct shared, plain2));
	rv_emit(p, OP_fence, 0, 0, 0, 0x31); /* rw, w */
	rv_emit(p, OP_sw, 0, 9, 0, offsetof(struct shared, lock));
	rv_emit(p, OP_addi, 11, 11, 0, -1);
	rv_branch(p, OP_bne, 11, 0, top);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
}

/* The turn in x28 is done: the next one, or the end where the host says that it was the last. */
static void until_last(struct rv_prog *p, int top)
{
	rv_emit(p, OP_fence, 0, 0, 0, 0x22); /* r, r */
	rv_emit(p, OP_ld, 5, 10, 0, offsetof(struct shared, last));
	rv_branch(p, OP_bne, 28, 5, top);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
}

/* produce(block, turns): payload, fence, flag; then wait until the host has seen it. */
static void make_produce(struct rv_prog *p)
{
	int top = rv_label(p), wait = rv_label(p);

	fn_produce = rv_label(p);
	rv_place(p, fn_produce);
	rv_emit(p, OP_addi, 28, 0, 0, 0);
	rv_place(p, top);
	rv_emit(p, OP_addi, 28, 28, 0, 1);
	rv_emit(p, OP_slli, 29, 28, 0, 20);
	rv_emit(p, OP_sd, 0, 10, 29, offsetof(struct shared, payload));
	rv_emit(p, OP_fence, 0, 0, 0, 0x11); /* w, w */
	rv_emit(p, OP_sd, 0, 10, 28, offsetof(struct shared, flag));
	rv_place(p, wait);
	rv_emit(p, OP_ld, 5, 10, 0, offsetof(struct shared, seen));
	rv_branch(p, OP_bne, 5, 28, wait);
	until_last(p, top);
}

/*
 * buffer(block, turns): when the round begins, x = n; fence rw, rw; what is y? In a loop: x = n - 2,
 * n - 1, n with a fence behind each, and y is loaded behind the last; turns do not wait for their
 * fences.
 */
static void make_buffer(struct rv_prog *p, bool loop)
{
	int top = rv_label(p), wait = rv_label(p), store = rv_label(p);

	fn_buffer[loop] = rv_label(p);
	rv_place(p, fn_buffer[loop]);
	rv_emit(p, OP_addi, 28, 0, 0, 0);
	rv_place(p, top);
	rv_emit(p, OP_addi, 28, 28, 0, 1);
	rv_place(p, wait);
	rv_emit(p, OP_ld, 5, 10, 0, offsetof(struct shared, round));
	rv_branch(p, OP_bne, 5, 28, wait);
	rv_emit(p, OP_addi, 29, 0, 0, loop ? 2 : 0);
	rv_place(p, store);
	rv_emit(p, OP_sub, 30, 28, 29, 0);
	rv_emit(p, OP_sd, 0, 10, 30, offsetof(struct shared, x));
	rv_emit(p, OP_fence, 0, 0, 0, 0x33);
	rv_emit(p, OP_addi, 29, 29, 0, -1);
	if (loop)
		rv_branch(p, OP_bge, 29, 0, store);
	rv_emit(p, OP_ld, 6, 10, 0, offsetof(struct shared, y));
	rv_emit(p, OP_sd, 0, 10, 6, offsetof(struct shared, guest_saw));
	rv_emit(p, OP_fence, 0, 0, 0, 0x11);
	rv_emit(p, OP_sd, 0, 10, 28, offsetof(struct shared, guest_round));
	until_last(p, top);
}

static struct shared *open_block(struct bed *b, uint64_t *addr)
{
	struct vb_dpa_attr attr = { .eus = GUESTS, .host_threads = GUESTS, .slice = 777 };
	struct shared *s;

	make_mix(&b->p);
	make_lock(&b->p);
	make_produce(&b->p);
	make_buffer(&b->p, false);
	make_buffer(&b->p, true);
	bed_open(b, &attr);
	*addr = 0;
	assert_int_equal(vb_dpa_mem_map(b->process, addr, sizeof(*s), VB_DPA_READ | VB_DPA_WRITE),
			 0);
	s = vb_view_lend(
		vb_dpa_mem_host(b->process, *addr, sizeof(*s), VB_DPA_READ | VB_DPA_WRITE));
	assert_non_null(s);
	s->min = ~0ull;
	s->last = TURNS;
	return s;
}

static void start_guests(struct bed *b, struct vb_dpa_thread **t, unsigned n, int label,
			 uint64_t addr)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_dpa_thread_attr ta = { .affinity = VB_DPA_AFFINITY_STRICT, .eu = i };
		uint64_t args[3] = { addr, TURNS, 1ull << i };

		assert_int_equal(vb_dpa_thread_create(b->process, &ta, &t[i]), 0);
		assert_int_equal(vb_dpa_thread_set_call(t[i], rv_address(&b->p, label), args, 3),
				 0);
		assert_int_equal(vb_dpa_thread_start(t[i]), 0);
	}
}

static uint64_t finish_guests(struct vb_dpa_thread **t, unsigned n)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		enum vb_dpa_why why;

		assert_int_equal(vb_dpa_thread_wait(t[i], -1, &why), 0);
		assert_int_equal(why, VB_DPA_WHY_RETURN);
		sum += vb_dpa_thread_state(t[i])->x[10];
		assert_int_equal(vb_dpa_thread_destroy(t[i]), 0);
	}
	return sum;
}

struct host {
	struct shared *s;
	unsigned number;
	uint64_t got;
};

static void *host_mix(void *arg)
{
	struct host *h = arg;
	struct shared *s = h->s;

	for (uint64_t n = TURNS; n; n--) {
		uint32_t w = atomic_load(&s->lr_w);
		uint64_t d = atomic_load(&s->lr_d), m;

		atomic_fetch_add(&s->add_w, 1);
		atomic_fetch_add(&s->add_d, 1);
		while (!atomic_compare_exchange_weak(&s->lr_w, &w, w + 1))
			;
		while (!atomic_compare_exchange_weak(&s->lr_d, &d, d + 1))
			;
		atomic_fetch_or(&s->or_d, 1ull << (32 + h->number));
		atomic_fetch_xor(&s->xor_d, 1ull << (32 + h->number));
		for (m = atomic_load(&s->max);
		     m < n && !atomic_compare_exchange_weak(&s->max, &m, n);)
			;
		h->got += atomic_exchange(&s->swap, n);
	}
	return NULL;
}

static void test_mix(void **state)
{
	struct vb_dpa_thread *guest[GUESTS];
	pthread_t thread[HOSTS];
	struct host host[HOSTS] = { 0 };
	struct bed b = { 0 };
	struct shared *s;
	uint64_t addr, got, all = GUESTS + HOSTS;

	(void)state;
	s = open_block(&b, &addr);
	for (unsigned i = 0; i < HOSTS; i++) {
		host[i] = (struct host){ .s = s, .number = i };
		assert_int_equal(pthread_create(&thread[i], NULL, host_mix, &host[i]), 0);
	}
	start_guests(&b, guest, GUESTS, fn_mix, addr);
	got = finish_guests(guest, GUESTS);
	for (unsigned i = 0; i < HOSTS; i++) {
		pthread_join(thread[i], NULL);
		got += host[i].got;
	}
	assert_int_equal(s->add_w, all * TURNS);
	assert_int_equal(s->add_d, all * TURNS);
	assert_int_equal(s->lr_w, all * TURNS);
	assert_int_equal(s->lr_d, all * TURNS);
	assert_int_equal(s->or_d, 0xf | 3ull << 32);
	assert_int_equal(s->xor_d, 0); /* each toggled its bit an even number of times */
	assert_int_equal(s->max, TURNS);
	assert_int_equal(s->min, 1);
	assert_int_equal(got + s->swap, all * TURNS * (TURNS + 1ull) / 2);
	bed_close(&b);
}

static void *host_lock(void *arg)
{
	struct host *h = arg;
	struct shared *s = h->s;

	for (unsigned n = 0; n < TURNS; n++) {
		while (atomic_exchange_explicit(&s->lock, 1, memory_order_acquire))
			sched_yield();
		s->plain++;
		s->plain2--;
		atomic_store_explicit(&s->lock, 0, memory_order_release);
	}
	return NULL;
}

static void test_lock(void **state)
{
	struct vb_dpa_thread *guest[2];
	pthread_t thread;
	struct bed b = { 0 };
	struct host host;
	uint64_t addr;

	(void)state;
	host.s = open_block(&b, &addr);
	assert_int_equal(pthread_create(&thread, NULL, host_lock, &host), 0);
	start_guests(&b, guest, 2, fn_lock, addr);
	finish_guests(guest, 2);
	pthread_join(thread, NULL);
	assert_int_equal(host.s->plain, 3 * TURNS);
	assert_int_equal(host.s->plain2, -(uint64_t)(3 * TURNS));
	bed_close(&b);
}

/*
 * Where all cores are busy, each turn in lock step is a wait for the other side's time slice, and the guest's thread
 * does not give its own away: then fewer turns must do.
 */
static bool late(time_t began)
{
	return time(NULL) - began > SECONDS;
}

static void *host_consume(void *arg)
{
	struct host *h = arg;
	struct shared *s = h->s;
	time_t began = time(NULL);

	for (uint64_t n = 1; n <= s->last; n++) {
		while (atomic_load_explicit(&s->flag, memory_order_acquire) != n)
			sched_yield();
		h->got += s->payload != n << 20;
		if (n >= TURNS_AT_LEAST && n < s->last && late(began))
			s->last = n + 1;
		atomic_store_explicit(&s->seen, n, memory_order_release);
	}
	return NULL;
}

static void test_publish(void **state)
{
	struct vb_dpa_thread *guest;
	pthread_t thread;
	struct bed b = { 0 };
	struct host host = { 0 };
	uint64_t addr;

	(void)state;
	host.s = open_block(&b, &addr);
	assert_int_equal(pthread_create(&thread, NULL, host_consume, &host), 0);
	start_guests(&b, &guest, 1, fn_produce, addr);
	finish_guests(&guest, 1);
	pthread_join(thread, NULL);
	assert_int_equal(host.got, 0);
	bed_close(&b);
}

/* Two stores and two loads crosswise with full fences between: both sides missing the other is forbidden. */
static void store_buffering(bool loop)
{
	struct vb_dpa_thread *guest;
	struct bed b = { 0 };
	time_t began = time(NULL);
	unsigned missed = 0;
	struct shared *s;
	uint64_t addr;

	s = open_block(&b, &addr);
	start_guests(&b, &guest, 1, fn_buffer[loop], addr);
	for (uint64_t n = 1; n <= s->last; n++) {
		uint64_t saw;

		if (n >= TURNS_AT_LEAST && late(began))
			s->last = n;
		atomic_store_explicit(&s->round, n, memory_order_release);
		for (volatile unsigned spin = 0; spin < n % 64;
		     spin++) /* meet it at different moments */
			;
		atomic_store(&s->y, n);
		saw = atomic_load(&s->x);
		while (atomic_load_explicit(&s->guest_round, memory_order_acquire) != n)
			sched_yield();
		missed += saw != n && s->guest_saw != n;
	}
	finish_guests(&guest, 1);
	assert_int_equal(missed, 0);
	bed_close(&b);
}

static void test_store_buffering(void **state)
{
	(void)state;
	store_buffering(false);
	store_buffering(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mix),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_publish),
		cmocka_unit_test(test_store_buffering),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
