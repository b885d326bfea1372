// SPDX-License-Identifier: MIT
/* Queue access, byte for byte: progs/queue.c, as the host sees it. */
#include "card.h"

#include <errno.h>

/* Bytes in hexadecimal, blanks ignored. */
static void assert_bytes(const void *bytes, const char *expected)
{
	char text[3 * 64 + 1] = "", *at = text;
	char packed[3 * 64 + 1] = "", *to = packed;
	size_t length;

	for (; *expected; expected++)
		if (*expected != ' ')
			*to++ = *expected;
	length = (size_t)(to - packed) / 2;
	for (size_t i = 0; i < length; i++)
		at += sprintf(at, "%02x", ((const uint8_t *)bytes)[i]);
	assert_string_equal(text, packed);
}

static void ctrl_segments(void **state)
{
	/* pi 0x1beef is cut to 16 bits; completion mode 2 is at bit 3:2. */
	static const char *const expected[] = {
		"00beef0a 12345603 00000008 00000000", /* SEND_EN */
		"00beef0a 12345602 00000008 00000000", /* SEND_RC */
		"00beef0a 12345602 00000008 00000000", /* SEND_UC */
		"00beef0a 12345603 00000008 00000000", /* SEND_UD */
		"01beef32 12345604 00000008 00000000", /* LDMA */
		"00beef32 12345604 00000008 00000000", /* TRANSPOSE */
		"00beef08 12345603 00000008 00000000", /* RDMA_WRITE */
		"00beef09 12345603 00000008 00000000", /* RDMA_WRITE_IMM */
		"00beef10 12345603 00000008 00000000", /* RDMA_READ */
		"00beef00 12345601 00000008 00000000", /* NOP */
		"00beef11 12345604 00000008 00000000", /* COMPARE_AND_SWAP */
		"00beef12 12345604 00000008 00000000", /* FETCH_AND_ADD */
		"00beef0e 12345604 00000008 00000000", /* LSO */
		"01beef0f 12345603 00000008 00000000", /* WAIT_ON_DATA */
		"a5a5a5a5 a5a5a5a5 a5a5a5a5 a5a5a5a5", /* no such type */
	};
	struct card *c = *state;
	uint8_t(*segment)[16] = card_object(c, "segments");

	card_call(c, "ctrl_segments", (uint64_t)0x1beef, (uint64_t)0x123456, (uint64_t)2);
	assert_int_equal(*(unsigned int *)card_object(c, "refused"), 100);
	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++)
		assert_bytes(segment[i], expected[i]);
}

static void data_segments(void **state)
{
	static const char *const expected[] = {
		"00000000 c000 05b4 00000000 0012 1122",  /* Ethernet */
		"00000000 0000 0000 00000000 0000 0000",  /* Ethernet, no headers */
		"8000000c 00010203 04050607 08090a0b",    /* inline */
		"00001000 aabbccdd 1122334455667788",     /* pointer */
		"8877665544332211 01020304 00000000",     /* RDMA */
		"0102030405060708 1112131415161718",      /* atomic */
		"000000 04 00 08 00 10 0000000000000000", /* transpose */
		"0000 1234 56 0000000000000000000000",    /* shared receive */
		"11111111 00000000 80abcdef 23 80 c001",  /* address vector */
		"00000000 010203040506 20 40 40300001",   /* ... second */
		"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",       /* ... third */
		"000000 12 99887766 12345678 9abcdefd",   /* wait on data */
		"0000000000000102 000000000000ffff",      /* ... value */
	};
	struct card *c = *state;
	uint8_t(*segment)[16] = card_object(c, "segments");

	card_call(c, "data_segments");
	assert_int_equal(*(unsigned int *)card_object(c, "refused"), 0);
	assert_int_equal(*(unsigned int *)card_object(c, "segment_count"), 13);
	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++)
		assert_bytes(segment[i], expected[i]);
}

static void put(struct card *c, const char *name, size_t at, const void *bytes, size_t length)
{
	assert_int_equal(vb_dpa_mem_write(c->process, card_symbol(c, name) + at, bytes, length), 0);
}

static void getters(void **state)
{
	static const uint64_t expected[] = {
		1,      0xd,        2,        0x07,       0x563412,
		0xbb99, 0x01000040, 0xccbbaa, 0x81008105, 0x81,
		0x81,   0x44332211, 1,        0x00abcdef, 0x1122334455667788,
	};
	struct card *c = *state;
	uint8_t cqe[64] = { 0 }, eqe[64] = { 0 };
	uint64_t *seen = card_object(c, "seen");

	memcpy(cqe + 20, "\x03\x01", 2); /* the checksum, which is not what is right */
	cqe[28] = 0x07;
	memcpy(cqe + 32, "\xff\xcc\xbb\xaa", 4);
	memcpy(cqe + 36, "\x11\x22\x33\x44", 4);
	memcpy(cqe + 44, "\x01\x00\x00\x40", 4);
	memcpy(cqe + 52, "\x81\x00\x81\x05", 4);
	memcpy(cqe + 56, "\xee\x56\x34\x12", 4);
	memcpy(cqe + 60, "\xbb\x99", 2);
	cqe[63] = 0xd9; /* opcode 13, type 2, owner 1 */
	memcpy(eqe + 56, "\x77\xab\xcd\xef", 4);
	eqe[63] = 0xff;
	put(c, "cqe", 0, cqe, 64);
	put(c, "eqe", 0, eqe, 64);
	put(c, "rwqe", 8, "\x11\x22\x33\x44\x55\x66\x77\x88", 8);
	card_call(c, "read_all");
	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++)
		assert_int_equal(seen[i], expected[i]);
	cqe[63] = 0xd8;
	put(c, "cqe", 63, cqe + 63, 1);
	card_call(c, "read_all");
	assert_int_equal(seen[0], 0);
}

static void compressed(void **state)
{
	struct card *c = *state;
	uint64_t *seen = card_object(c, "seen");
	uint8_t(*ring)[64];

	put(c, "cqe", 48, "\x01\x02\x03\x04\x05\x06\x07\x08", 8);
	put(c, "cqe", 62, "\x5a\x6c", 2); /* validity; seven entries, type 3 */
	card_call(c, "read_compressed");
	assert_int_equal(seen[0], 1);
	assert_int_equal(seen[1], 7);
	assert_int_equal(seen[2], 0x5a);
	assert_int_equal(seen[3], 0x0807060504030201);
	assert_int_equal(seen[4], 0x01020304);
	put(c, "cqe", 63, "\x64", 1); /* type 1 */
	card_call(c, "read_compressed");
	assert_int_equal(seen[0], 0);

	card_call(c, "init_compressed");
	ring = card_object(c, "ring");
	for (int i = 0; i < 4; i++)
		assert_int_equal(ring[i][62], i < 3 ? 0xff : 0);
}

static void records(void **state)
{
	struct card *c = *state;
	uint8_t *dbr = card_object(c, "dbr");

	put(c, "dbr", 4, "\x00\x00\xff\xfe", 4);
	assert_int_equal(card_call(c, "records", (uint64_t)0x12345678, (uint64_t)1), 0);
	assert_bytes(dbr, "00345678 0000ffff");
	assert_int_equal(card_call(c, "records", (uint64_t)0, (uint64_t)2), 0);
	assert_bytes(dbr, "00000000 00000001");
}

static bool old_forms(void)
{
	return strstr(card_program, "queue-old.elf") != NULL;
}

static void oldest_names(void **state)
{
	struct card *c = *state;

	if (!old_forms()) /* the program does not have them */
		return;
	assert_int_equal(card_call(c, "oldest", (uint64_t)0), 0);
	assert_bytes(card_object(c, "dbr"), "00000000 0000ffff");
	assert_bytes(card_object(c, "segments"), "00001000 aabbccdd 1122334455667788");
	card_call(c, "oldest", (uint64_t)1);
	assert_int_equal(c->main->end, END_RESCHEDULE);
}

static void doorbells(void **state)
{
	static const uint64_t expected[][2] = {
		{ 0x1c0, 0x001234560000beef }, { 0x100, 0x0012345600abcdef },
		{ 0x140, 0x0112345600000042 }, { 0x280, 0x0000000000000777 },
		{ 0x280, 0x0000000000000778 }, { 0x200, 0x0000022200000111 },
		{ 0x240, 0x0000044400000333 }, { 0x340, 0x8001000912345678 },
		{ 0x340, 0x0123456789abcdef }, { 0x348, 0xfedcba9876543210 },
		{ 0x300, 0x0000000000000040 },
	};
	struct card *c = *state;

	card_outbox(c);
	assert_int_equal(card_call(c, "ring_all"), 0);
	assert_int_equal(c->stores, sizeof(expected) / sizeof(*expected));
	for (size_t i = 0; i < c->stores; i++) {
		assert_int_equal(c->outbox[i][0], expected[i][0]);
		assert_int_equal(c->outbox[i][1], expected[i][1]);
	}
	assert_int_equal(*(uint64_t *)card_object(c, "seen"), 0x80);
	assert_int_equal(card_call(c, "error_number"), 0);
}

static void no_outbox(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "ring_all"), old_forms() ? 0xff : 0);
	assert_int_equal(c->stores, 0);
	assert_int_equal(card_call(c, "error_number"), ENODEV);
	assert_int_equal(card_call(c, "error_number"), 0);
}

static void byte_order(void **state)
{
	assert_int_equal(card_call(*state, "byte_order"), 0x3f);
}

static void windows(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "windows"), 0x1f);
	assert_int_equal(*(uint64_t *)card_object(c, "seen"), 0x99); /* untouched */
	assert_int_equal(card_call(c, "error_number"), EINVAL);
	c->answer = 0;
	assert_int_equal(card_call(c, "windows"), 1 << 2); /* 0 is no address */
	assert_int_equal(c->last_call[0], VB_RTOS_WINDOW_WRITE);
	assert_int_equal(c->last_call[1], old_forms() ? 0 : 1);
	assert_int_equal(c->last_call[2], 0x7000);
	assert_int_equal(c->last_call[4], 16);
	c->answer = 0x100007000;
	assert_int_equal(card_call(c, "windows"), 0x1b);
	assert_int_equal(*(uint64_t *)card_object(c, "seen"), 0x100007000);
}

#define T(name) cmocka_unit_test_setup_teardown(name, card_setup, card_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(ctrl_segments), T(data_segments), T(getters),   T(compressed), T(records),
		T(oldest_names),  T(doorbells),     T(no_outbox), T(byte_order), T(windows),
	};

	return card_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
