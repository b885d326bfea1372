// SPDX-License-Identifier: MIT
/* The device library and its C library on many guest threads at once: progs/many.c, as the host sees it. */
#include "card.h"

#define THREADS 32
/* ThreadSanitizer takes minutes for more. */
#ifdef __SANITIZE_THREAD__
#define ROUNDS 200
#define SEEDS  3
#else
#define ROUNDS 1000
#define SEEDS  12
#endif

static struct guest *guests[THREADS];

static void run_all(struct card *c, const char *function, uint64_t arg)
{
	vb_dpa_hold(c->dpa, true);
	for (unsigned int i = 0; i < THREADS; i++) {
		assert_int_equal(vb_dpa_thread_set_call(guests[i]->thread, card_symbol(c, function),
							&arg, 1),
				 0);
		assert_int_equal(vb_dpa_thread_start(guests[i]->thread), 0);
	}
	vb_dpa_hold(c->dpa, false);
	for (unsigned int i = 0; i < THREADS; i++) {
		enum vb_dpa_why why;

		assert_int_equal(vb_dpa_thread_wait(guests[i]->thread, -1, &why), 0);
		assert_int_equal(why, VB_DPA_WHY_RETURN);
		assert_int_equal(vb_dpa_thread_state(guests[i]->thread)->x[10], 0);
	}
}

static int setup(void **state)
{
	card_setup(state);
	for (unsigned int i = 0; i < THREADS; i++)
		guests[i] = card_guest(*state, 100 + i, "many", 0);
	return 0;
}

static int teardown(void **state)
{
	for (unsigned int i = 0; i < THREADS; i++)
		card_guest_free(guests[i]);
	return card_teardown(state);
}

/* Every line and every message came whole, from the thread that it names, in its order, and once. */
static void check_libc(struct card *c, unsigned int rounds)
{
	unsigned long lines[THREADS] = { 0 }, messages[THREADS] = { 0 };

	run_all(c, "work", rounds);
	for (size_t i = 0; i < c->count; i++) {
		const struct message *m = &c->messages[i];
		char expected[512];
		unsigned int n;

		assert_in_range(m->thread, 100, 100 + THREADS - 1);
		n = m->thread - 100;
		if (m->text[0] == '<')
			snprintf(expected, sizeof(expected), "<%u %u:%lu %lu>\n", m->thread,
				 m->thread, lines[n], lines[n]);
		else
			snprintf(expected, sizeof(expected), "[%u %lu %0300d]\n", m->thread,
				 messages[n] * 16, 1);
		assert_string_equal(m->text, expected);
		m->text[0] == '<' ? lines[n]++ : messages[n]++;
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		assert_int_equal(lines[i], rounds);
		assert_int_equal(messages[i], (rounds + 15) / 16);
		assert_int_equal(guests[i]->ctx->held, 0);
		assert_int_equal(guests[i]->ctx->line_len, 0);
	}
}

static void libc(void **state)
{
	check_libc(*state, ROUNDS);
}

/* Threads that take turns after a few instructions, drawn from a seed: inside of malloc, of a lock, of a line. */
static void libc_in_turns(void **state)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct vb_dpa_attr attr = { .deterministic = true, .seed = seed, .slice = 50 };

		card_attr = &attr;
		setup(state);
		check_libc(*state, 20);
		teardown(state);
		card_attr = NULL;
	}
}

static void spinlocks(void **state)
{
	struct card *c = *state;

	card_call(c, "spin_begin");
	run_all(c, "spin_work", 2000);
	assert_int_equal(*(uint64_t *)card_object(c, "shared"), THREADS * 2000);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(libc, setup, teardown),
		cmocka_unit_test(libc_in_turns),
		cmocka_unit_test_setup_teardown(spinlocks, setup, teardown),
	};

	return card_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
