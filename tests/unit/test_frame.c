// SPDX-License-Identifier: MIT
/*
 * Bytes of raw frames, which may come from another process and be anything: whatever they say,
 * nothing outside of the frame is looked at. Each frame ends where a page that cannot be read
 * begins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "card/ether/ether.h"
#include "packet/frame/frame.h"

enum { PAGE = 4096, LONGEST = 128, ROUNDS = 2000 };

static const uint8_t key[VB_FRAME_HASH_KEY];
static uint8_t *page;

static int map(void **state)
{
	page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	return mprotect(page + PAGE, PAGE, PROT_NONE);
}

static int unmap(void **state)
{
	return munmap(page, 2 * PAGE);
}

/* Random, but with headers that are often what they should be, so that the parser goes on. */
static void make_up(uint8_t *frame, uint32_t len)
{
	static const uint8_t types[][2] = { { 0x08, 0 }, { 0x86, 0xdd }, { 0x81, 0 }, { 0x42, 0 } };
	uint32_t at = 12;

	for (uint32_t i = 0; i < len; i++)
		frame[i] = (uint8_t)(random() & 1 ? 0 : random());
	do {
		memcpy(frame + at, types[random() % 4], 2);
		at += 4;
	} while (frame[at - 4] == 0x81 && at + 2 <= len && at < 20);
	at -= 2;
	if (at < len)
		frame[at] = (uint8_t)((random() & 1 ? 0x40 : 0x60) | (random() % 16));
	if (at + 9 < len)
		frame[at + 9] = frame[at + 6] = random() & 1 ? 6 : 17;
}

static void read_all(const struct vb_frame *f)
{
	char line[VB_FRAME_LINE], cut[20];

	assert_in_range(vb_frame_line(f, line, sizeof(line)), 1, sizeof(line) - 2);
	assert_in_range(vb_frame_line(f, cut, sizeof(cut)), 1, sizeof(cut) - 1);
	assert_memory_equal(cut, line, strlen(cut));
	vb_frame_verify(f, VB_CSUM_ALL);
	vb_frame_sum(f);
	vb_frame_hash(f, key, ~IBV_RX_HASH_INNER, false, NULL);
	vb_frame_hash(f, key, UINT64_MAX, true, NULL);
}

static void look_at(uint8_t *data, uint32_t len)
{
	struct vb_frame f = { .data = data, .len = len };

	vb_frame_parse(&f);
	for (int i = 0; i < 2; i++) {
		const struct vb_layer *l = i ? &f.inner : &f.outer;

		assert_true(l->l3 + l->l3_len <= (int)len && l->end <= len && l->l4 <= len);
		assert_true(l->payload <= len && l->l2 <= len && l->mpls <= len);
	}
	read_all(&f);
	vb_frame_fill_checksums(&f, VB_CSUM_ALL);
}

static void nothing_outside_is_read(void **state)
{
	for (uint32_t len = VB_FRAME_HEADER; len < LONGEST; len++) {
		for (int i = 0; i < ROUNDS; i++) {
			make_up(page + PAGE - len, len);
			look_at(page + PAGE - len, len);
		}
	}
}

/* A header that another process changes under us: what was found before still holds. */
static void headers_change_meanwhile(void **state)
{
	for (uint32_t len = 34; len < LONGEST; len++) {
		uint8_t *data = page + PAGE - len;
		struct vb_frame f = { .data = data, .len = len };

		memset(data, 0, len);
		data[12] = 0x08;
		data[14] = 0x45;
		data[17] = (uint8_t)(len - VB_FRAME_HEADER);
		data[23] = 17;
		vb_frame_parse(&f);
		assert_int_equal(f.outer.ip, 4);
		memset(data, 0xff, len);
		read_all(&f);
	}
}

static void short_packets_are_dropped(void **state)
{
	struct iovec iov = { page + PAGE, 0 };
	struct vb_pkt pkt = {
		.op = VB_PKT_SEND, .transport = IBV_QPT_RAW_PACKET, .iov = &iov, .iov_cnt = 1
	};

	for (pkt.len = 0; pkt.len < VB_FRAME_HEADER; pkt.len++) {
		iov = (struct iovec){ page + PAGE - pkt.len, pkt.len };
		vb_cable_receive(vb_card_program(), &pkt);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_outside_is_read, map, unmap),
		cmocka_unit_test_setup_teardown(headers_change_meanwhile, map, unmap),
		cmocka_unit_test_setup_teardown(short_packets_are_dropped, map, unmap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
