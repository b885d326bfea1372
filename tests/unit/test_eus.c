// SPDX-License-Identifier: MIT
/* EU groups and partitions: lists of EUs, rules, and their text against damage. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "meet/eus.h"

static char why[VB_EU_WHY];

static struct vb_eu_set set_of(const char *text)
{
	struct vb_eu_set set;

	assert_int_equal(vb_eu_set_parse(text, VB_CONFIG_MAX_EUS, &set, why), 0);
	return set;
}

static int group(struct vb_eus *eus, const char *card, const char *name, const char *range)
{
	struct vb_eu_set set = set_of(range);

	return vb_eus_group_create(eus, card, VB_EUS_DEFAULT, name, &set, why);
}

static int partition(struct vb_eus *eus, const char *card, const char *vhca, unsigned int groups,
		     const char *range)
{
	struct vb_eu_partition what = { .max_groups = groups,
					.num_vhcas = 1,
					.eus = set_of(range) };

	snprintf(what.vhca[0], sizeof(what.vhca[0]), "%s", vhca);
	return vb_eus_partition_create(eus, card, VB_EUS_DEFAULT, &what, why);
}

static void test_sets(void **state)
{
	static const char *const bad[] = {
		"",          ",",     "1,", ",1",   "-",     "1-",  "-1",
		"a",         "1 ",    " 1", "1,,2", "2-1",   "1,1", "1-3,2",
		"190",       "0-190", "+1", "0x1",  "1-2-3", "1;2", "99999999999999999999",
		"4294967297"
	};
	struct vb_eu_set set;
	char *text;

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why[0] = 0;
		assert_int_equal(vb_eu_set_parse(bad[i], 190, &set, why), -EINVAL);
		assert_true(why[0]);
	}
	set = set_of("6-8,16,4095,70");
	assert_int_equal(vb_eu_set_count(&set), 6);
	assert_int_equal(vb_eu_set_last(&set), 4095);
	text = vb_eu_set_text(&set, true);
	assert_string_equal(text, "6-8,16,70,4095");
	free(text);
	text = vb_eu_set_text(&set, false);
	assert_string_equal(text, "6,7,8,16,70,4095");
	free(text);
}

static void test_groups(void **state)
{
	struct vb_eus *eus = vb_eus_new();
	struct vb_eu_view view;

	assert_int_equal(group(eus, "mlx5_0", "a", "0-3"), 1);
	assert_int_equal(group(eus, "mlx5_0", "b", "3"), -EEXIST);
	assert_string_equal(why, "EU 3 is in EU group 1 (a)");
	assert_int_equal(group(eus, "mlx5_0", "a", "4"), -EEXIST);
	assert_int_equal(group(eus, "mlx5_0", "", "4"), -EINVAL);
	assert_int_equal(group(eus, "mlx5_0", "sixteen letters!", "4"), -EINVAL);
	assert_int_equal(group(eus, "mlx5_0", "new\nline", "4"), -EINVAL);
	assert_int_equal(group(eus, "mlx5_0", " front", "4"), -EINVAL);
	assert_int_equal(group(eus, "mlx5_0", "b", "190"), -EINVAL);
	assert_int_equal(group(eus, "mlx5_1", "a", "0-3"), 1);
	for (unsigned int i = 2; i <= VB_EU_GROUPS; i++) {
		char name[16], range[16];

		snprintf(name, sizeof(name), "g%u", i);
		snprintf(range, sizeof(range), "%u", 10 + i);
		assert_int_equal(group(eus, "mlx5_0", name, range), (int)i);
	}
	assert_int_equal(group(eus, "mlx5_0", "more", "100"), -ENOSPC);
	vb_eus_view(eus, "mlx5_0", VB_EUS_DEFAULT, &view);
	assert_int_equal(view.num_groups, 15);
	assert_int_equal(vb_eu_set_count(&view.usable), 190);
	assert_int_equal(vb_eu_set_count(&view.pool), 190 - 4 - 14);
	/* The number of one that is gone comes back first. */
	assert_int_equal(vb_eus_group_destroy(eus, "mlx5_0", 7, why), 0);
	assert_int_equal(vb_eus_group_destroy(eus, "mlx5_0", 7, why), -ENOENT);
	assert_int_equal(group(eus, "mlx5_0", "seven", "100"), 7);
	assert_int_equal(vb_eus_group_find(eus, "mlx5_0", "seven"), 7);
	assert_int_equal(vb_eus_group_find(eus, "mlx5_1", "seven"), 0);
	assert_int_equal(vb_eus_group_destroy(eus, "mlx5_1", 1, why), 0);
	assert_null(vb_eus_card(eus, "mlx5_1"));
	vb_eus_free(eus);
}

static void test_partitions(void **state)
{
	struct vb_eus *eus = vb_eus_new();
	struct vb_eu_view view;

	assert_int_equal(group(eus, "mlx5_0", "a", "0-3"), 1);
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_1", 1, "3-9"), -EEXIST);
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_0", 1, "4-9"), -EINVAL);
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_1", 0, "4-9"), -EINVAL);
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_1", 15, "4-9"), -ENOSPC);
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_1", 2, "4-9"), 1);
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_1", 1, "20"), -EEXIST); /* in one already */
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_2", 1, "9"), -EEXIST);
	assert_int_equal(partition(eus, "mlx5_1", "mlx5_2", 1, "0"), -EPERM);
	assert_int_equal(group(eus, "mlx5_0", "b", "4"), -EEXIST);
	assert_string_equal(why, "EU 4 belongs to EU partition 1");
	vb_eus_view(eus, "mlx5_1", VB_EUS_DEFAULT, &view);
	assert_int_equal(view.count, 6);
	assert_int_equal(view.max_groups, 2);
	assert_int_equal(view.partition, 1);
	assert_string_equal(view.manager, "mlx5_0");
	assert_int_equal(group(eus, "mlx5_1", "a", "6"), -EINVAL); /* numbers are virtual */
	assert_int_equal(group(eus, "mlx5_1", "a", "5"), 1);
	assert_int_equal(group(eus, "mlx5_1", "b", "0"), 2);
	assert_int_equal(group(eus, "mlx5_1", "c", "1"), -ENOSPC);
	assert_int_equal(vb_eus_partition_destroy(eus, "mlx5_0", 1, why), -EBUSY);
	vb_eus_view(eus, "mlx5_0", VB_EUS_DEFAULT, &view);
	assert_int_equal(view.max_groups, 13);
	assert_int_equal(vb_eu_set_count(&view.usable), 184);
	/* An adapter with groups does not go into a partition with them. */
	assert_int_equal(group(eus, "mlx5_3", "a", "0"), 1);
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_3", 1, "50"), -EBUSY);
	assert_int_equal(vb_eus_group_destroy(eus, "mlx5_1", 1, why), 0);
	assert_int_equal(vb_eus_group_destroy(eus, "mlx5_1", 2, why), 0);
	assert_int_equal(vb_eus_partition_destroy(eus, "mlx5_0", 1, why), 0);
	assert_int_equal(vb_eus_partition_destroy(eus, "mlx5_0", 1, why), -ENOENT);
	vb_eus_free(eus);
}

static struct vb_eus *example(void)
{
	struct vb_eus *eus = vb_eus_new();

	assert_int_equal(group(eus, "mlx5_0", "rx queue", "6-8,16"), 1);
	assert_int_equal(partition(eus, "mlx5_0", "mlx5_1", 2, "20-29"), 1);
	assert_int_equal(group(eus, "mlx5_1", "end", "0"), 1);
	assert_int_equal(group(eus, "mlx5_1", "card", "1-9"), 2);
	return eus;
}

static void test_text(void **state)
{
	struct vb_eus *eus = example(), *back = NULL;
	size_t len, again_len;
	char *text = vb_eus_text(eus, &len), *again;

	assert_int_equal(vb_eus_parse(text, len, &back, why), 0);
	again = vb_eus_text(back, &again_len);
	assert_int_equal(len, again_len);
	assert_memory_equal(text, again, len);
	assert_int_equal(vb_eus_group_find(back, "mlx5_1", "card"), 2);
	vb_eus_free(back);
	free(again);
	free(text);
	vb_eus_free(eus);
}

/* Every byte changed, every length cut: never taken for what was written. */
static void test_damage(void **state)
{
	struct vb_eus *eus = example(), *back = NULL;
	size_t len;
	char *text = vb_eus_text(eus, &len);

	for (size_t i = 0; i < len; i++) {
		assert_int_equal(vb_eus_parse(text, i, &back, why), -EUCLEAN);
		for (unsigned int bit = 0; bit < 8; bit++) {
			text[i] = (char)(text[i] ^ 1 << bit);
			assert_int_equal(vb_eus_parse(text, len, &back, why), -EUCLEAN);
			text[i] = (char)(text[i] ^ 1 << bit);
		}
	}
	assert_null(back);
	free(text);
	vb_eus_free(eus);
}

/* Texts with the right sum that no command could have made. */
static void test_impossible(void **state)
{
	static const char *const bodies[] = {
		"verbatim-eus 2\ncard mlx5_0\ngroup 1 0 a\n",
		"verbatim-eus 1\ngroup 1 0 a\n",
		"verbatim-eus 1\ncard mlx5_0\n",
		"verbatim-eus 1\ncard ../../x\ngroup 1 0 a\n",
		"verbatim-eus 1\ncard mlx5_0\ngroup 16 0 a\n",
		"verbatim-eus 1\ncard mlx5_0\ngroup 0 0 a\n",
		"verbatim-eus 1\ncard mlx5_0\ngroup 1 0 a\ngroup 2 0 b\n",
		"verbatim-eus 1\ncard mlx5_0\ngroup 1 0 a\ngroup 2 1 a\n",
		"verbatim-eus 1\ncard mlx5_0\ngroup 2 0 a\ngroup 1 1 b\n",
		"verbatim-eus 1\ncard mlx5_0\ngroup 1 4096 a\n",
		"verbatim-eus 1\ncard mlx5_0\ngroup 1 0,1 a\n",
		"verbatim-eus 1\ncard mlx5_0\npartition 1 1 0-3 mlx5_0\n",
		"verbatim-eus 1\ncard mlx5_0\npartition 1 1 0-3 mlx5_1,mlx5_1\n",
		"verbatim-eus 1\ncard mlx5_0\npartition 1 1 0-3 a/b\n",
		"verbatim-eus 1\ncard mlx5_0\npartition 1 16 0-3 mlx5_1\n",
		"verbatim-eus 1\ncard mlx5_0\npartition 1 1 0-3 mlx5_1\ncard mlx5_1\ngroup 1 4 a\n",
		"verbatim-eus 1\ncard mlx5_0\nnonsense\n",
	};
	struct vb_eus *back = NULL;

	for (unsigned int i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		uint64_t h = 0xcbf29ce484222325ull;
		char text[512];
		int len;

		for (const char *p = bodies[i]; *p; p++)
			h = (h ^ (unsigned char)*p) * 0x100000001b3ull;
		len = snprintf(text, sizeof(text), "%send %016" PRIx64 "\n", bodies[i], h);
		if (vb_eus_parse(text, (size_t)len, &back, why) != -EUCLEAN)
			fail_msg("taken: %s", text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sets),       cmocka_unit_test(test_groups),
		cmocka_unit_test(test_partitions), cmocka_unit_test(test_text),
		cmocka_unit_test(test_damage),     cmocka_unit_test(test_impossible),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
