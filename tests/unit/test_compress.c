// SPDX-License-Identifier: MIT
/*
 * Compressed completions of frames, read by a decoder that knows only the layout: in every format they tell what
 * uncompressed ones tell, but for the hash and the checksum where the format has no place for them.
 *
 *	CQE:  12 hash   16 its type   20 checksum   29 header types   30 tag   44 length   57 flow tag   60 index
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bare.h"
#include "base/rcu.h"
#include "card/queue/cq.h"
#include "card/queue/objects.h"
#include "packet/frame/frame.h"

enum { HASH, CHECKSUM, FLOW_TAG, CHECKSUM_STRIDE, L3_L4, FORMATS };
enum { OWNER = 7, CQES = 64, FRAMES = 20, CQE = 64, ARRAY = 7 };
enum {
	AT_HASH = 12,
	AT_HASH_TYPE = 16,
	AT_SUM = 20,
	AT_TYPES = 29,
	AT_LEN = 44,
	AT_TAG = 57,
	AT_INDEX = 60
};

static struct bare bare;

struct ring {
	struct vb_cq_attr attr;
	struct vb_cq *cq;
};

/* What differs from frame to frame, beside lengths and contents. */
struct traffic {
	bool tags, types;
	uint16_t vlan; /* of the last frame */
};

static int open_bare(void **state)
{
	return bare_open(&bare, IBV_QPT_RC);
}

static int close_bare(void **state)
{
	bare_close(&bare);
	return 0;
}

static void ring_open(struct ring *ring, bool compressed, uint8_t format)
{
	*ring = (struct ring){ .attr = { .cqe_cnt = CQES,
					 .cqe_size = CQE,
					 .owner = OWNER,
					 .ignore_overrun = true,
					 .compressed = compressed,
					 .mini_format = format } };
	ring->attr.buf = aligned_alloc(CQE, CQES * CQE);
	ring->attr.dbr = calloc(2, sizeof(*ring->attr.dbr));
	memset(ring->attr.buf, 0xff, CQES * CQE);
	assert_int_equal(vb_cq_create(bare.dev, &ring->attr, &ring->cq), 0);
}

static void ring_close(struct ring *ring)
{
	assert_int_equal(vb_cq_destroy(ring->cq), 0);
	free(ring->attr.buf);
	free(ring->attr.dbr);
}

/* An IPv4 frame over UDP or TCP; its bytes follow from its number. */
static void make_frame(struct vb_frame *f, uint8_t *bytes, uint32_t i, const struct traffic *what)
{
	bool tcp = what->types && i % 2;

	memset(bytes, 0, 256);
	memcpy(bytes, "\2\0\0\0\0\1\2\0\0\0\0\2\x08\0\x45", 15);
	bytes[16] = 0;
	bytes[17] = (uint8_t)(40 + i); /* total length */
	bytes[22] = 64;
	bytes[23] = tcp ? 6 : 17;
	bytes[26] = bytes[30] = 10;
	bytes[34] = (uint8_t)(i * 37);
	bytes[39] = (uint8_t)(20 + i); /* UDP: length */
	bytes[46] = tcp ? 0x50 : (uint8_t)(i * 11);
	bytes[50] = (uint8_t)(i * 59);
	*f = (struct vb_frame){ .data = bytes, .len = 54 + i, .tailroom = 100 };
	vb_frame_parse(f);
	vb_frame_fill_checksums(f, VB_CSUM_ALL);
	vb_frame_parse(f);
	assert_int_equal(f->outer.l4_type, tcp ? VB_L4_TCP : VB_L4_UDP);
	if (what->vlan && i == FRAMES - 1) {
		f->outer.vlans = 1;
		f->outer.vlan[0] = what->vlan;
	}
}

static void push(struct vb_cq *cq, const struct traffic *what)
{
	uint8_t bytes[256];
	struct vb_frame f;

	vb_read_lock();
	vb_burst_begin(vb_card_program());
	for (uint32_t i = 0; i < FRAMES; i++) {
		struct vb_completion c = { .receive = true,
					   .op = VB_WR_SEND,
					   .wqe_index = (uint16_t)(0xfff8 + i),
					   .qpn = 99,
					   .uidx = 0x1234,
					   .imm = htobe32(0x9e3779b9u * (i + 1)),
					   .flow_tag = what->tags ? 0x10203 * (i + 1) : 0xabcdef,
					   .metadata = 77,
					   .frame = &f };

		make_frame(&f, bytes, i, what);
		c.byte_len = f.len;
		c.hash_type = what->types ? (uint8_t)(1 + i % 2) : 3;
		vb_cq_push(cq, &c);
	}
	vb_burst_end();
	vb_read_unlock();
}

/* --- the decoder ------------------------------------------------------------------------------ */

static void expand(uint8_t *cqe, const uint8_t *mini, uint32_t behind, int format)
{
	uint16_t index = (uint16_t)((cqe[AT_INDEX] << 8 | cqe[AT_INDEX + 1]) + (int)behind);
	uint16_t stride = (uint16_t)(mini[2] << 8 | mini[3]);

	cqe[AT_INDEX] = (uint8_t)(index >> 8);
	cqe[AT_INDEX + 1] = (uint8_t)index;
	memcpy(cqe + AT_LEN, mini + 4, 4);
	switch (format) {
	case HASH:
		memcpy(cqe + AT_HASH, mini, 4);
		return;
	case CHECKSUM:
		memcpy(cqe + AT_SUM, mini, 2);
		assert_int_equal(stride, 0);
		return;
	case CHECKSUM_STRIDE:
		memcpy(cqe + AT_SUM, mini, 2);
		break;
	case FLOW_TAG:
		cqe[AT_TAG] = mini[4];
		memcpy(cqe + AT_TAG + 1, mini, 2);
		cqe[AT_LEN] = 0;
		break;
	case L3_L4:
		assert_int_equal(mini[0], 0);
		cqe[AT_TYPES] = mini[1];
		break;
	}
	assert_int_equal(stride, index);
}

/* All CQEs of the ring, and how many of them were compressed. */
static uint32_t decode(const struct ring *ring, int format, uint8_t out[][CQE])
{
	const uint8_t *buf = ring->attr.buf, *title = NULL;
	uint32_t compressed = 0, behind = 0;

	for (uint32_t i = 0; i < FRAMES;) {
		const uint8_t *entry = buf + (size_t)i * CQE;
		uint32_t count = (uint32_t)(entry[63] >> 4) + 1;

		if (!ring->attr.compressed || (entry[63] >> 2 & 3) != 3) {
			title = entry;
			behind = 0;
			memcpy(out[i++], entry, CQE);
			continue;
		}
		assert_non_null(title);
		assert_int_equal(entry[62], 0); /* the first turn */
		assert_in_range(count, 1, ARRAY);
		for (uint32_t j = 0; j < count; j++) {
			memcpy(out[i], title, CQE);
			expand(out[i++], entry + (size_t)j * 8, ++behind, format);
		}
		compressed += count;
	}
	return compressed;
}

static void forget(uint8_t *cqe, size_t at, size_t size)
{
	memset(cqe + at, 0, size);
}

/* Push the same frames into both kinds of CQ and compare all that a format tells; the number of mini CQEs. */
static uint32_t compare(int format, const struct traffic *what)
{
	static uint8_t zipped[FRAMES][CQE], plain[FRAMES][CQE];
	struct ring a, b;
	uint32_t compressed;

	ring_open(&a, true, (uint8_t)format);
	ring_open(&b, false, 0);
	push(a.cq, what);
	push(b.cq, what);
	compressed = decode(&a, format, zipped);
	assert_int_equal(decode(&b, format, plain), 0);
	for (uint32_t i = 0; i < FRAMES; i++) {
		uint8_t *pair[] = { zipped[i], plain[i] };

		for (int k = 0; k < 2; k++) {
			if (format != HASH)
				forget(pair[k], AT_HASH, 4);
			if (format != CHECKSUM && format != CHECKSUM_STRIDE)
				forget(pair[k], AT_SUM, 2);
			if (format == L3_L4)
				forget(pair[k], AT_HASH_TYPE, 1);
			forget(pair[k], 62, 1);
		}
		assert_memory_equal(zipped[i], plain[i], CQE);
	}
	ring_close(&a);
	ring_close(&b);
	return compressed;
}

/* --- the tests -------------------------------------------------------------------------------- */

/* Lengths, hashes and checksums differ: everything but the title is compressed, in all formats. */
static void test_contents(void **state)
{
	for (int format = 0; format < FORMATS; format++)
		assert_int_equal(compare(format, &(struct traffic){ 0 }), FRAMES - 1);
}

static void test_flow_tags(void **state)
{
	for (int format = 0; format < FORMATS; format++)
		assert_int_equal(compare(format, &(struct traffic){ .tags = true }),
				 format == FLOW_TAG ? FRAMES - 1 : 0);
}

/* UDP and TCP by turns. */
static void test_header_types(void **state)
{
	for (int format = 0; format < FORMATS; format++)
		assert_int_equal(compare(format, &(struct traffic){ .types = true }),
				 format == L3_L4 ? FRAMES - 1 : 0);
}

/* What no format holds ends the array: the last frame has a CQE of its own. */
static void test_tag(void **state)
{
	for (int format = 0; format < FORMATS; format++)
		assert_int_equal(compare(format, &(struct traffic){ .vlan = 5 }), FRAMES - 2);
}

/* The checksum of a CQE is that of the packet behind the Ethernet header, at byte 20, and the same in a mini CQE. */
static void test_checksum(void **state)
{
	uint8_t out[FRAMES][CQE], bytes[256];
	struct vb_frame f;
	struct ring ring;

	ring_open(&ring, true, CHECKSUM);
	push(ring.cq, &(struct traffic){ 0 });
	assert_int_equal(decode(&ring, CHECKSUM, out), FRAMES - 1);
	for (uint32_t i = 0; i < FRAMES; i++) {
		uint32_t sum = 0;

		make_frame(&f, bytes, i, &(struct traffic){ 0 });
		for (uint32_t at = 14; at < f.len; at++)
			sum += at % 2 ? bytes[at] : (uint32_t)bytes[at] << 8;
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		assert_int_equal(out[i][AT_SUM] << 8 | out[i][AT_SUM + 1], sum);
	}
	ring_close(&ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contents),     cmocka_unit_test(test_flow_tags),
		cmocka_unit_test(test_header_types), cmocka_unit_test(test_tag),
		cmocka_unit_test(test_checksum),
	};

	return cmocka_run_group_tests(tests, open_bare, close_bare);
}
