// SPDX-License-Identifier: MIT
/*
 * Doorbell pages: what a store means in each format, and that a ring which comes while its thread is inside of the card is
 * executed all the same.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "bare.h"
#include "base/rcu.h"
#include "base/util.h"
#include "card/format/format.h"
#include "card/queue/cq.h"
#include "card/queue/doorbell.h"
#include "card/queue/eq.h"
#include "card/queue/objects.h"

static struct vb_bell bells[VB_BELLS_MAX];

/* A store of so many big-endian words. */
static unsigned int store(const struct vb_codec *codec, size_t offset, unsigned int words, ...)
{
	uint32_t data[16];
	va_list list;

	assert_in_range(words, 1, 16);
	va_start(list, words);
	for (unsigned int i = 0; i < words; i++)
		data[i] = htobe32(va_arg(list, uint32_t));
	va_end(list);
	memset(bells, 0xff, sizeof(bells));
	return codec->doorbell(offset, data, words * sizeof(data[0]), bells);
}

static void expect_arm(const struct vb_bell *bell, uint32_t number, bool solicited, uint32_t ci)
{
	assert_int_equal(bell->kind, VB_BELL_ARM);
	assert_int_equal(bell->number, number);
	assert_int_equal(bell->solicited, solicited);
	assert_int_equal(bell->ci, ci);
}

static void test_mlx4(void **state)
{
	const struct vb_codec *codec = &vb_codec_mlx4;

	(void)state;
	assert_int_equal(store(codec, 0x14, 1, 0x12345600), 1);
	assert_int_equal(bells[0].kind, VB_BELL_SEND);
	assert_int_equal(bells[0].number, 0x123456);
	assert_int_equal(store(codec, 0x20, 2, 0x32000007, 0x123), 1);
	expect_arm(&bells[0], 7, false, 0x123);
	assert_true(bells[0].counted);
	assert_int_equal(bells[0].sn, 3);
	/* The first half alone: the index is that of the record. */
	assert_int_equal(store(codec, 0x20, 1, 0x11000008), 1);
	expect_arm(&bells[0], 8, true, VB_BELL_CI_FROM_RECORD);
	assert_int_equal(bells[0].sn, 1);
	/* No command, the second half alone, and other places ring nothing. */
	assert_int_equal(store(codec, 0x20, 2, 0x30000007, 0x123), 0);
	assert_int_equal(store(codec, 0x24, 1, 0x123), 0);
	assert_int_equal(store(codec, 0x800, 2, 1, 2), 0);
	/* One store over both. */
	assert_int_equal(store(codec, 0x14, 5, 0x100, 0, 0, 0x02000009, 5), 2);
	assert_int_equal(bells[0].number, 1);
	expect_arm(&bells[1], 9, false, 5);
}

static void test_mlx5(void **state)
{
	const struct vb_codec *codec = &vb_codec_mlx5;

	(void)state;
	for (size_t half = 0x800; half <= 0x900; half += 0x100) {
		assert_int_equal(store(codec, half, 2, 0, 0x12345603), 1);
		assert_int_equal(bells[0].kind, VB_BELL_SEND);
		assert_int_equal(bells[0].number, 0x123456);
	}
	assert_int_equal(
		store(codec, 0x800, 16, 0, 0x12345603, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		1);
	assert_int_equal(store(codec, 0x800, 1, 0), 0);
	assert_int_equal(store(codec, 0x20, 2, 0x30000123, 7), 1);
	expect_arm(&bells[0], 7, false, 0x123);
	assert_false(bells[0].counted);
	assert_int_equal(store(codec, 0x20, 2, 0x01000123, 7), 1);
	expect_arm(&bells[0], 7, true, 0x123);
	assert_int_equal(store(codec, 0x20, 1, 0x01000123), 0);
	for (size_t at = 0x40; at <= 0x48; at += 8) {
		assert_int_equal(store(codec, at, 1, 0x05000123), 1);
		assert_int_equal(bells[0].kind, VB_BELL_EQ);
		assert_int_equal(bells[0].number, 5);
		assert_int_equal(bells[0].ci, 0x123);
	}
	assert_int_equal(store(codec, 0x14, 1, 0x12345600), 0);
}

static void test_records(void **state)
{
	struct vb_bell bell;

	(void)state;
	assert_true(vb_codec_mlx4.armed(0x21000123, &bell));
	expect_arm(&bell, bell.number, true, 0x123);
	assert_int_equal(bell.sn, 2);
	assert_false(vb_codec_mlx4.armed(0x20000123, &bell));
	assert_true(vb_codec_mlx5.armed(0x21000123, &bell));
	expect_arm(&bell, bell.number, true, 0x123);
	assert_true(vb_codec_mlx5.armed(0x20000123, &bell));
	assert_false(bell.solicited);
}

struct eqe {
	__be32 word[16];
};

/* Each EQE is for another CQ; whether that of cqn comes to be written. */
static bool is_written(struct vb_eq *eq, uint32_t cqn)
{
	const struct eqe *ring = vb_eq_ring(eq);
	time_t limit = time(NULL) + 20;

	do {
		vb_eq_completion(eq, cqn); /* lost where the ring is full */
		if (be32toh(*(volatile __be32 *)&ring[0].word[14]) == cqn)
			return true;
	} while (time(NULL) < limit);
	return false;
}

/* As in a signal handler that interrupts the card. */
static void test_eq_from_inside(void **state)
{
	struct bare bare;
	struct vb_uar *uar;
	struct vb_eq *eq;

	(void)state;
	assert_int_equal(bare_open(&bare, IBV_QPT_RC), 0);
	assert_int_equal(vb_uar_create(bare.dev, &uar), 0);
	assert_int_equal(vb_eq_create(bare.dev, 0, &eq), 0);
	if (!vb_uar_page(uar)) {
		print_message("stores to doorbell pages cannot be seen on this processor\n");
	} else {
		vb_card_enter();
		assert_true(is_written(eq, 1)); /* the ring is full */
		*(volatile uint32_t *)((char *)vb_uar_page(uar) + 0x48) =
			htobe32(vb_eq_number(eq) << 24 | 1);
		assert_true(is_written(eq, 2));
		vb_card_leave();
	}
	assert_int_equal(vb_eq_destroy(eq), 0);
	vb_uar_destroy(uar);
	bare_close(&bare);
}

/* Make the next CQ be given this number: numbers go out in turn. */
static void turn_numbers(uint32_t number)
{
	int64_t taken = -1;

	for (int i = 0; i < VB_CQ_MAX && taken % VB_CQ_MAX != number - 1; i++) {
		taken = vb_ids_take(&vb_card_program()->numbers.cq, VB_CQ_MAX);
		assert_true(taken > 0);
		vb_ids_give(&vb_card_program()->numbers.cq, (uint32_t)taken);
	}
}

static bool is_armed(struct vb_cq *cq)
{
	time_t limit = time(NULL) + 20;

	while (vb_cq_arming(cq) != VB_CQ_ARMED)
		if (time(NULL) >= limit)
			return false;
	return true;
}

/* An arming in a signal handler that interrupts the card, of the first, some and the last CQ. */
static void test_arm_from_inside(void **state)
{
	static const uint32_t numbers[] = { 1, 63, 64, 1000, VB_CQ_MAX - 1, VB_CQ_MAX };
	struct bare bare;
	struct vb_uar *uar;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		turn_numbers(numbers[i]);
		assert_int_equal(bare_open(&bare, IBV_QPT_RC), 0);
		assert_int_equal(vb_cq_number(bare.cq), numbers[i]);
		assert_int_equal(vb_uar_create(bare.dev, &uar), 0);
		if (vb_uar_page(uar)) {
			vb_card_enter();
			*(volatile uint64_t *)((char *)vb_uar_page(uar) + 0x20) =
				htobe64(numbers[i]);
			assert_true(is_armed(bare.cq));
			vb_card_leave();
		}
		vb_uar_destroy(uar);
		bare_close(&bare);
	}
}

/* Numbers that no object can have are no other object's. */
static void test_foreign_from_inside(void **state)
{
	struct bare bare;
	struct vb_uar *uar;

	(void)state;
	turn_numbers(1);
	assert_int_equal(bare_open(&bare, IBV_QPT_RC), 0);
	assert_int_equal(vb_cq_number(bare.cq), 1);
	assert_int_equal(vb_uar_create(bare.dev, &uar), 0);
	if (vb_uar_page(uar)) {
		vb_card_enter();
		for (uint32_t number = VB_CQ_MAX; number < 0x1000000; number <<= 1)
			*(volatile uint64_t *)((char *)vb_uar_page(uar) + 0x20) =
				htobe64(number | 1);
		vb_card_leave();
		vb_read_lock();
		vb_uar_run_deferred(vb_card_program());
		vb_read_unlock();
		assert_int_equal(vb_cq_arming(bare.cq), VB_CQ_NOT_ARMED);
	}
	vb_uar_destroy(uar);
	bare_close(&bare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mlx4),
		cmocka_unit_test(test_mlx5),
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_eq_from_inside),
		cmocka_unit_test(test_arm_from_inside),
		cmocka_unit_test(test_foreign_from_inside),
	};

	return cmocka_run_group_tests_name("doorbell", tests, NULL, NULL);
}
