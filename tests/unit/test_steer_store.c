// SPDX-License-Identifier: MIT
/*
 * The hash tables of rules: whoever chooses the values of rules does not choose their places. A
 * long row of taken slots is what a look-up of a missing value walks, so the tests measure that
 * instead of time.
 */
#include "steer_kit.h"

#include "steer/internal.h"

enum { RULES = 4096, BIT_SRC_IPV4 = 0x160, RUN_MAX = 512 };

/* Values of two words, source and destination address. */
typedef uint64_t make_value(uint32_t i);

struct table {
	struct kit kit;
	struct vb_steer_matcher *matcher;
	struct vb_steer_action *drop;
	struct vb_steer_rule *rule[RULES];
};

static void open_table(struct table *t, make_value *make)
{
	struct param mask = kit_param(BIT_SRC_IPV4, 32, UINT32_MAX);

	kit_open(&t->kit, VB_STEER_NIC_RX);
	kit_set(&mask, BIT_DST_IPV4, 32, UINT32_MAX);
	assert_int_equal(vb_steer_matcher_create(t->kit.root, 0, VB_STEER_OUTER, mask.bytes,
						 sizeof(mask), &t->matcher, NULL),
			 0);
	t->drop = kit_plain(VB_STEER_DO_DROP);
	for (uint32_t i = 0; i < RULES; i++) {
		struct param value = kit_param(BIT_SRC_IPV4, 32, make(i) & UINT32_MAX);

		kit_set(&value, BIT_DST_IPV4, 32, make(i) >> 32);
		t->rule[i] = kit_rule_of(t->matcher, &value, &t->drop, 1);
	}
}

static void close_table(struct table *t)
{
	for (uint32_t i = 0; i < RULES; i++)
		vb_steer_rule_destroy(t->rule[i]);
	assert_int_equal(vb_steer_matcher_destroy(t->matcher), 0);
	assert_int_equal(vb_steer_action_destroy(t->drop), 0);
	kit_close(&t->kit);
}

/* The longest row of taken slots. */
static uint32_t longest_run(const struct table *t)
{
	const struct slots *slots = atomic_load(&t->matcher->store->slots);
	uint32_t run = 0, longest = 0;

	for (uint32_t i = 0; i < 2 * (slots->mask + 1); i++) {
		run = atomic_load(&slots->slot[i & slots->mask].rule) ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	return longest;
}

/* --- values that somebody chose --------------------------------------------------------------- */

static uint64_t counted(uint32_t i)
{
	return i;
}

static uint64_t counted_high(uint32_t i)
{
	return (uint64_t)i << 52;
}

static uint64_t counted_middle(uint32_t i)
{
	return (uint64_t)i << 26;
}

static uint64_t few_bits(uint32_t i)
{
	return 1ull << (i & 63) ^ 1ull << (i >> 6 & 63);
}

static uint64_t inverse(uint64_t odd)
{
	uint64_t x = odd;

	for (int i = 0; i < 6; i++)
		x *= 2 - odd * x;
	return x;
}

/* Equal results of a multiplication with a known constant and shifts: backwards from there. */
static uint64_t inverted(uint32_t i)
{
	uint64_t hash = (uint64_t)(i + 1) << 32;

	for (int bit = 31; bit >= 0; bit--)
		if (hash >> (bit + 15) & 1)
			hash |= 1ull << bit;
	hash ^= hash >> 32;
	return hash * inverse(0x9e3779b97f4a7c15u) ^ 2;
}

static void chosen_values_do_not_meet(void **state)
{
	static make_value *const makes[] = { counted, counted_high, counted_middle, inverted };
	static struct table t;

	for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++) {
		open_table(&t, makes[i]);
		assert_true(longest_run(&t) < RUN_MAX);
		close_table(&t);
	}
}

/* --- the secret ------------------------------------------------------------------------------- */

/* What is learnt of one domain says nothing about another one. */
static void domains_differ(void **state)
{
	static struct table one, two;
	uint32_t same = 0;

	open_table(&one, counted);
	open_table(&two, counted);
	for (uint32_t i = 0; i < RULES; i++)
		same += one.rule[i]->hash == two.rule[i]->hash;
	assert_true(same < 16);
	close_table(&one);
	close_table(&two);
}

/* Pairs that differ alike in one domain differ otherwise in the next one. */
static void differences_do_not_survive(void **state)
{
	static struct table one, two;
	uint32_t same = 0;

	open_table(&one, few_bits);
	open_table(&two, few_bits);
	for (uint32_t i = 1; i < RULES; i++) {
		uint32_t a = one.rule[i]->hash ^ one.rule[i - 1]->hash;
		uint32_t b = two.rule[i]->hash ^ two.rule[i - 1]->hash;

		same += a && a == b;
	}
	assert_true(same < 16);
	close_table(&one);
	close_table(&two);
}

/* Every bit of every word counts, also of the words that fill no group of four. */
static void every_bit_counts(void **state)
{
	static const struct hash_secret secret = { 0x0123456789abcdef,
						   0x1122334455667788,
						   { 0x99aabbccddeeff01, 0x8877665544332211 } };

	for (uint32_t words = 1; words <= 9; words++) {
		uint32_t key[9] = { 0 }, zero = steer_hash(&secret, key, words);

		for (uint32_t bit = 0; bit < words * 32; bit++) {
			key[bit / 32] ^= 1u << bit % 32;
			assert_int_not_equal(steer_hash(&secret, key, words), zero);
			key[bit / 32] = 0;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chosen_values_do_not_meet),
		cmocka_unit_test(domains_differ),
		cmocka_unit_test(differences_do_not_survive),
		cmocka_unit_test(every_bit_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
