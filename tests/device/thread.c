// SPDX-License-Identifier: MIT
/* Threads, messages, intrinsics, calls of the card: progs/thread.c, as the host sees it. */
#include "card.h"

#include <errno.h>
#include <math.h>

static void context(void **state)
{
	struct card *c = *state;
	uint64_t *seen = card_object(c, "seen");
	struct guest *g = card_guest(c, 300, "worker", 0);

	c->main->ctx->tls = 0x77000;
	assert_int_equal(card_call(c, "context"), 0xf);
	assert_int_equal(seen[0], c->main->ctx_addr);
	assert_int_equal(seen[1], 7);
	assert_int_equal(seen[2], 0x77000);
	assert_string_equal(card_object(c, "text"), "main");
	card_call(c, "context");
	assert_int_equal(c->ctx_calls, 1); /* asked once, then kept */

	guest_call(g, "context", 0);
	assert_int_equal(seen[0], g->ctx_addr);
	assert_int_equal(seen[1], 300);
	assert_int_equal(seen[2], 0);
	assert_string_equal(card_object(c, "text"), "worker");
	card_guest_free(g);
}

static void thread_locals(void **state)
{
	struct card *c = *state;
	struct guest *g = card_guest(c, 8, "other", 0);

	assert_int_equal(card_call(c, "count_up"), 41);
	assert_int_equal(card_call(c, "count_up"), 42);
	assert_int_equal(guest_call(g, "count_up", 0), 41);
	assert_int_equal(card_call(c, "count_up"), 43);
	assert_int_equal(card_call(c, "aligned_locals"), 0);
	assert_int_equal(guest_call(g, "aligned_locals", 0), 0);
	card_guest_free(g);
}

static void constructors(void **state)
{
	assert_int_equal(card_call(*state, "get_constructed"), 123);
}

static void version(void **state)
{
	assert_int_equal(*(uint64_t *)card_object(*state, VB_RTOS_SYM_VERSION),
			 VB_RTOS_ABI_VERSION);
}

static void ends(void **state)
{
	static const enum end expected[] = { END_RESCHEDULE, END_FINISH,  END_RETRIGGER,
					     END_PROCESS,    END_PROCESS, END_RESCHEDULE,
					     END_FINISH };
	struct card *c = *state;

	for (uint64_t i = 0; i < 7; i++) {
		c->status = 0;
		card_call(c, "end_by", i, (uint64_t)0x9a);
		assert_int_equal(c->main->end, expected[i]);
		assert_int_equal(c->status, i == 3 ? 0x40 : i == 4 ? 0x9a : 0);
	}
	card_call(c, "end_by", (uint64_t)4, (uint64_t)0x7f);
	assert_int_equal(c->status, 0x42);
}

static void yields(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "yields"), 5);
	assert_int_equal(c->main->yields, 0); /* not continuable: no effect */
	c->main->ctx->flags = VB_RTOS_THREAD_CONTINUABLE;
	assert_int_equal(card_call(c, "yields"), 5);
	assert_int_equal(c->main->yields, 2);
	assert_int_equal(c->main->retrigger, 1);
}

static void activation(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "activate", (uint64_t)12), 0);
	assert_int_equal(c->activated, 12);
	assert_int_equal(card_call(c, "activate", (uint64_t)404), EINVAL);
	assert_int_equal(card_call(c, "activate", (uint64_t)12), EINVAL); /* kept until reset */
	card_call(c, "reset_errno");
	assert_int_equal(card_call(c, "activate", (uint64_t)12), 0);
}

static int send(struct card *c, uint64_t stream, uint64_t level)
{
	return (int)card_call(c, "message", stream, level);
}

static void levels(void **state)
{
	struct card *c = *state;

	/* stream 0 is open at INFO (4), 9 at WARN (3), 5 is closed */
	card_level(c, 9, 3);
	for (uint64_t level = 1; level <= 4; level++)
		assert_int_equal(send(c, 0, level), 10);
	assert_int_equal(send(c, 0, 5), 0);
	assert_int_equal(send(c, 0, 0), 0);
	assert_int_equal(send(c, 9, 3), 10);
	assert_int_equal(send(c, 9, 4), 0);
	assert_int_equal(send(c, 5, 1), 0);
	assert_int_equal(c->count, 5);
	assert_int_equal(c->messages[4].stream, 9);
	assert_int_equal(c->messages[4].level, 3);
	assert_int_equal(c->messages[4].thread, 7);
	assert_int_equal(send(c, 255, 4), 10); /* broadcast */
	assert_int_equal(c->messages[5].stream, 255);
	card_level(c, 0, 0);
	assert_int_equal(send(c, 255, 4), 0);
	assert_int_equal(send(c, 255, 3), 10);
	assert_int_equal(send(c, 256, 1), -1);
	assert_int_equal(send(c, (uint64_t)-1, 1), -1);
	assert_int_equal((int)card_call(c, "bad_message"), -1);
}

static void macros(void **state)
{
	static const struct {
		uint8_t stream, level;
	} expected[] = { { 255, 2 }, { 0, 3 }, { 0, 4 }, { 1, 2 }, { 1, 3 }, { 1, 4 }, { 1, 5 } };
	struct card *c = *state;

	card_level(c, 1, 5);
	card_call(c, "macros");
	assert_int_equal(c->count, 7);
	for (size_t i = 0; i < 7; i++) {
		assert_int_equal(c->messages[i].stream, expected[i].stream);
		assert_int_equal(c->messages[i].level, expected[i].level);
	}
	assert_text(c, "broadcast\ndefault 1\nprint\nerr\nwarn\ninfo\ndbg\n");
}

static void puts_(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "put_string", (uint64_t)0), 15);
	assert_text(c, "put 100% of it\n");
	assert_int_equal(card_call(c, "put_string", (uint64_t)1), 0);
	card_level(c, 0, 0);
	assert_int_equal(card_call(c, "put_string", (uint64_t)0), 0);
	assert_int_equal(c->count, 0);
}

static void debugging(void **state)
{
	struct card *c = *state;
	unsigned long insts[3], cycles;
	int line, line2;
	char *text;

	card_level(c, 0, 5);
	card_call(c, "simulator");
	text = card_text(c);
	assert_int_equal(sscanf(text,
				"string|cut|cdef|abc-12\n"
				"simulator:%d sum.insts 0x0\n"
				"simulator:%d text 0x11\n"
				"collected: instructions/cycles: %lu/%lu\n"
				"MEASURED: instructions/cycles: %lu/%lu\n"
				"calibrate: instructions/cycles: %lu",
				&line, &line2, &insts[0], &cycles, &insts[1], &cycles, &insts[2]),
			 7);
	assert_int_equal(line2, line + 1);
	assert_true(insts[0] > 300 && insts[1] > insts[2] && insts[2] < 50);
	assert_int_equal(*(uint64_t *)card_object(c, "seen"), insts[0]);
	free(text);
}

static void card_calls(void **state)
{
	static const struct {
		enum vb_rtos_call call;
		uint64_t refused; /* result if the host refuses */
		uint64_t args[3];
		unsigned int nargs;
	} calls[] = {
		{ VB_RTOS_OUTBOX_CONFIG, 1, { 3 }, 1 },   { VB_RTOS_OUTBOX_CONFIG, 0, { 4 }, 1 },
		{ VB_RTOS_OUTBOX_EXTEND, 1, { 5 }, 1 },   { VB_RTOS_CROSS_DB, 1, { 6, 7, 8 }, 3 },
		{ VB_RTOS_COUNTERS_CONFIG, 0, { 0 }, 0 }, { VB_RTOS_COUNTERS_SAMPLE, 0, { 0 }, 0 },
		{ VB_RTOS_PCC_TABLE, 0, { 9 }, 1 },
	};
	struct card *c = *state;

	for (uint64_t i = 0; i < 7; i++) {
		c->answer = -1;
		assert_int_equal(card_call(c, "card_calls", i), calls[i].refused);
		assert_int_equal(c->main->ctx->os_errno, EINVAL);
		c->main->ctx->os_errno = 0;
		assert_int_equal(c->last_call[0], calls[i].call);
		for (unsigned int k = 0; k < calls[i].nargs; k++)
			assert_int_equal(c->last_call[1 + k], calls[i].args[k]);
		c->answer = i == 6 ? 0x5000 : 0;
		assert_int_equal(card_call(c, "card_calls", i), i == 6 ? 0x5000 : 0);
		assert_int_equal(c->main->ctx->os_errno, 0);
	}
	c->last_call[0] = 0;
	assert_int_equal(card_call(c, "card_calls", (uint64_t)7), 5);
	assert_int_equal(card_call(c, "card_calls", (uint64_t)8), 1);
	assert_int_equal(c->last_call[0], 0); /* the host was not even asked */
}

static void copies(void **state)
{
	assert_int_equal(card_call(*state, "copies"), 1);
}

static void traces(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "traces"), 1);
	assert_int_equal(c->count, 0);
	assert_int_equal(card_call(c, "trace_buffers"), 0x1f);
	/* the flush: stream 3, one message in buffer 1, which is done */
	assert_memory_equal(c->last_call, ((uint64_t[]){ VB_RTOS_TRACES, 3, 1, 1, 1 }),
			    5 * sizeof(uint64_t));
}

static void intrinsics(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "fences"), 4);
	assert_int_equal(card_call(c, "counters"), 1);
}

static int64_t clamp(long double x)
{
	return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (int64_t)floorl(x);
}

static int64_t rcp(int32_t x)
{
	return x ? clamp(4294967296.0L / x) : INT32_MAX;
}

static int64_t pow2(int32_t x)
{
	return clamp(exp2l(x / 65536.0L) * 65536.0L);
}

static int64_t log2_(uint32_t x)
{
	return x ? clamp(log2l(x / 65536.0L) * 65536.0L) : INT32_MIN;
}

/* Against long double, which is exact enough: no result comes nearer to an integer than its error. */
static void fixed_point(void **state)
{
	static const uint32_t edges[] = { 0,          1,          2,          0x8000,
					  0xffff,     0x10000,    0x10001,    0x20000,
					  0x7fffffff, 0x80000000, 0x80000001, 0xffffffff,
					  0xffff0000, 0xfff00000, 0xffefffff, 0xeffff,
					  0xf0000,    0xeffff,    0x30000,    3 };
	struct card *c = *state;
	uint64_t random = 1;

	for (unsigned int i = 0; i < 3000; i++) {
		uint32_t x = i < 20 ? edges[i] : (uint32_t)(random >> 32);

		random = random * 6364136223846793005u + 1442695040888963407u;
		if (i >= 20)
			x >>= random >> 59; /* numbers of all sizes */
		if (i & 1 && i >= 20)
			x = -x;
		assert_int_equal((int64_t)card_call(c, "fxp", (uint64_t)0, (uint64_t)x),
				 rcp((int32_t)x));
		assert_int_equal((int64_t)card_call(c, "fxp", (uint64_t)1, (uint64_t)x),
				 pow2((int32_t)x));
		assert_int_equal((int64_t)card_call(c, "fxp", (uint64_t)2, (uint64_t)x), log2_(x));
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, card_setup, card_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(context), T(thread_locals), T(constructors), T(version),
		T(ends),    T(yields),        T(activation),   T(levels),
		T(macros),  T(puts_),         T(debugging),    T(card_calls),
		T(copies),  T(traces),        T(intrinsics),   T(fixed_point),
	};

	return card_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
