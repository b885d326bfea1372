// SPDX-License-Identifier: MIT
/*
 * Offloads at their edges: published vectors of the hash, frames of no length, headers that lie, no
 * room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <errno.h>
#include <infiniband/verbs.h>

#include "packet/frame/frame.h"

/*
 * The key and the vectors by which every implementation of receive side scaling is verified
 * (Microsoft's).
 */
static const uint8_t key[VB_FRAME_HASH_KEY] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
	0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
	0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

static uint32_t tcp4(uint8_t *data, const uint8_t src[4], const uint8_t dst[4], uint16_t sport,
		     uint16_t dport)
{
	memset(data, 0, 64);
	data[12] = 0x08;
	data[14] = 0x45;
	data[17] = 40;
	data[23] = 6;
	memcpy(data + 26, src, 4);
	memcpy(data + 30, dst, 4);
	data[34] = (uint8_t)(sport >> 8);
	data[35] = (uint8_t)sport;
	data[36] = (uint8_t)(dport >> 8);
	data[37] = (uint8_t)dport;
	data[46] = 0x50;
	return 54;
}

static void published_vectors(void **state)
{
	static const struct {
		uint8_t src[4], dst[4];
		uint16_t sport, dport;
		uint32_t ip, tcp;
	} vectors[] = {
		{ { 66, 9, 149, 187 }, { 161, 142, 100, 80 }, 2794, 1766, 0x323e8fc2, 0x51ccc178 },
		{ { 199, 92, 111, 2 }, { 65, 69, 140, 83 }, 14230, 4739, 0xd718262a, 0xc626b0ea },
		{ { 24, 19, 198, 95 }, { 12, 22, 207, 184 }, 12898, 38024, 0xd2d0a5de, 0x5c2b394a },
		{ { 38, 27, 205, 30 }, { 209, 142, 163, 6 }, 48228, 2217, 0x82989176, 0xafc7327f },
		{ { 153, 39, 163, 191 },
		  { 202, 188, 127, 2 },
		  44251,
		  1303,
		  0x5d1809c5,
		  0x10e828a2 },
	};
	uint64_t ip = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
	uint64_t tcp = ip | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
	uint8_t data[64], type;

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		struct vb_frame f = { .data = data };

		f.len = tcp4(data, vectors[i].src, vectors[i].dst, vectors[i].sport,
			     vectors[i].dport);
		vb_frame_parse(&f);
		assert_int_equal(vb_frame_hash(&f, key, ip, false, &type), vectors[i].ip);
		assert_int_equal(type, VB_HASH_SRC_IPV4 | VB_HASH_DST_IPV4);
		assert_int_equal(vb_frame_hash(&f, key, tcp, false, &type), vectors[i].tcp);
		assert_int_equal(type, VB_HASH_SRC_IPV4 | VB_HASH_DST_IPV4 | VB_HASH_SRC_TCP |
					       VB_HASH_DST_TCP);
	}
}

static void both_directions_have_one_hash(void **state)
{
	uint64_t fields = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_TCP |
			  IBV_RX_HASH_DST_PORT_TCP;
	static const uint8_t a[4] = { 10, 0, 0, 1 }, b[4] = { 10, 0, 0, 2 };
	uint8_t there[64], back[64];
	struct vb_frame f = { .data = there }, g = { .data = back };

	f.len = tcp4(there, a, b, 9, 1);
	g.len = tcp4(back, b, a, 1, 9);
	vb_frame_parse(&f);
	vb_frame_parse(&g);
	assert_int_equal(vb_frame_hash(&f, key, fields, true, NULL),
			 vb_frame_hash(&g, key, fields, true, NULL));
	assert_int_not_equal(vb_frame_hash(&f, key, fields, false, NULL),
			     vb_frame_hash(&g, key, fields, false, NULL));
}

/* A UDP checksum of 0 says that there is none; one that comes out as 0 is sent as 0xffff. */
static void udp_without_a_checksum(void **state)
{
	static const uint8_t a[4] = { 10, 0, 0, 1 }, b[4] = { 10, 0, 0, 2 };
	uint8_t data[64];
	struct vb_frame f = { .data = data };
	uint16_t sum;

	f.len = tcp4(data, a, b, 1, 2);
	data[23] = 17;
	data[39] = 20;
	vb_frame_parse(&f);
	assert_int_equal(vb_frame_verify(&f, VB_CSUM_L4), VB_CSUM_L4);
	vb_frame_fill_checksums(&f, VB_CSUM_L4);
	sum = (uint16_t)(data[40] << 8 | data[41]);
	assert_int_not_equal(sum, 0);
	/* As much in the payload as the sum lacks: now it is 0. */
	data[42] = data[40];
	data[43] = data[41];
	vb_frame_fill_checksums(&f, VB_CSUM_L4);
	assert_int_equal(data[40] << 8 | data[41], 0xffff);
	assert_int_equal(vb_frame_verify(&f, VB_CSUM_L4), VB_CSUM_L4);
	data[41] = 0xfe;
	assert_int_equal(vb_frame_verify(&f, VB_CSUM_L4), 0);
}

static void tiny_frames(void **state)
{
	uint8_t data[1024] = { 0 };

	for (uint32_t len = 0; len < 20; len++) {
		struct vb_frame f = {
			.data = data + 512, .len = len, .headroom = 512, .tailroom = 400
		};

		vb_frame_parse(&f);
		assert_int_equal(f.outer.has_l2, len >= 14);
		assert_int_equal(vb_frame_verify(&f, VB_CSUM_ALL), 0);
		vb_frame_fill_checksums(&f, VB_CSUM_ALL);
		vb_frame_sum(&f);
		assert_int_equal(vb_frame_hash(&f, key, UINT64_MAX >> 33, false, NULL), 0);
		assert_int_equal(vb_frame_pop_vlan(&f), -EINVAL);
		for (int type = 0; type < 5; type++)
			if (type != VB_REFORMAT_L2_TO_L2_TUNNEL || len < 14)
				assert_int_equal(
					vb_frame_reformat(&f, (enum vb_reformat)type, data, 2),
					-EINVAL);
		assert_int_equal(vb_frame_push_vlan(&f, 0x8100, 1), len < 14 ? -EINVAL : 0);
		assert_int_equal(vb_frame_pad(&f), 0);
		assert_int_equal(f.len, 60);
	}
}

static void edits_without_room_change_nothing(void **state)
{
	static const uint8_t a[4] = { 10, 0, 0, 1 }, b[4] = { 10, 0, 0, 2 };
	uint8_t data[64], before[64], header[50] = { 0 };
	struct vb_frame f = { .data = data };

	f.len = tcp4(data, a, b, 1, 2);
	vb_frame_parse(&f);
	memcpy(before, data, 64);
	assert_int_equal(vb_frame_push_vlan(&f, 0x8100, 1), -ENOSPC);
	assert_int_equal(vb_frame_reformat(&f, VB_REFORMAT_L2_TO_L2_TUNNEL, header, 50), -ENOSPC);
	assert_int_equal(vb_frame_reformat(&f, VB_REFORMAT_L2_TO_L3_TUNNEL, header, 50), -ENOSPC);
	assert_int_equal(vb_frame_pad(&f), -ENOSPC);
	assert_ptr_equal(f.data, data);
	assert_int_equal(f.len, 54);
	assert_memory_equal(data, before, 64);
}

static int no_read(void *arg, uint8_t *to, uint32_t offset, uint32_t len)
{
	return *(int *)arg;
}

static int no_emit(void *arg, struct vb_frame *f)
{
	return *(int *)arg;
}

static void large_sends_that_cannot_be(void **state)
{
	static const uint8_t a[4] = { 10, 0, 0, 1 }, b[4] = { 10, 0, 0, 2 };
	uint8_t header[64], buffer[2000];
	int stop = 0;
	struct vb_lso good = { .header = header,
			       .header_len = 54,
			       .len = 3000,
			       .mss = 1000,
			       .buffer = buffer,
			       .room = sizeof(buffer),
			       .read = no_read,
			       .emit = no_emit,
			       .arg = &stop };
	struct vb_lso lso;

	tcp4(header, a, b, 1, 2);
	assert_int_equal(vb_frame_segment(&good), 3);
	lso = good;
	lso.mss = 0;
	assert_int_equal(vb_frame_segment(&lso), -EINVAL);
	lso = good;
	lso.len = 53; /* the header is longer than the frame */
	assert_int_equal(vb_frame_segment(&lso), -EINVAL);
	lso = good;
	lso.header_len = 53; /* it ends inside of TCP's */
	assert_int_equal(vb_frame_segment(&lso), -EINVAL);
	lso = good;
	lso.header_len = 13;
	assert_int_equal(vb_frame_segment(&lso), -EOPNOTSUPP);
	lso = good;
	lso.room = 1053;
	assert_int_equal(vb_frame_segment(&lso), -ENOSPC);
	lso = good;
	lso.len = 100000, lso.mss = 65535, lso.room = 200000; /* more than IP can say */
	assert_int_equal(vb_frame_segment(&lso), -ENOSPC);
	lso = good;
	lso.len = 54; /* nothing to send: the header alone */
	assert_int_equal(vb_frame_segment(&lso), 1);
	stop = -EFAULT;
	assert_int_equal(vb_frame_segment(&good), -EFAULT);
	header[23] = 17; /* UDP */
	assert_int_equal(vb_frame_segment(&good), -EOPNOTSUPP);
}

static void software_parser_that_lies(void **state)
{
	static const uint8_t a[4] = { 10, 0, 0, 1 }, b[4] = { 10, 0, 0, 2 };
	static const struct vb_swp wrong[] = {
		{ .outer_l3 = 255 },
		{ .outer_l3 = 18 },                /* 20 bytes do not fit behind it */
		{ .outer_l4 = 17 },                /* L4 without L3 */
		{ .outer_l3 = 7, .outer_l4 = 8 },  /* inside of L3 */
		{ .outer_l3 = 7, .outer_l4 = 18 }, /* behind the end */
		{ .outer_l3 = 7, .flags = VB_SWP_OUTER_IPV6, .outer_l4 = 17 },
		{ .outer_l3 = 7, .outer_l4 = 17, .inner_l3 = 200 },
		{ .outer_l3 = 6 }, /* no header length there */
	};
	struct vb_swp right = { .outer_l3 = 7, .outer_l4 = 17 };
	uint8_t data[64];
	struct vb_frame f = { .data = data };

	f.len = tcp4(data, a, b, 1, 2);
	assert_int_equal(vb_frame_parse_swp(&f, &right), 0);
	vb_frame_fill_checksums(&f, VB_CSUM_ALL);
	vb_frame_parse(&f);
	assert_int_equal(vb_frame_verify(&f, VB_CSUM_ALL), VB_CSUM_L3 | VB_CSUM_L4);
	data[12] = 0x40; /* so that the byte where L3 would begin says a header of 0 bytes */
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(vb_frame_parse_swp(&f, &wrong[i]), -EINVAL);
		assert_int_equal(f.outer.ip + f.inner.ip, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_vectors),
		cmocka_unit_test(both_directions_have_one_hash),
		cmocka_unit_test(udp_without_a_checksum),
		cmocka_unit_test(tiny_frames),
		cmocka_unit_test(edits_without_room_change_nothing),
		cmocka_unit_test(large_sends_that_cannot_be),
		cmocka_unit_test(software_parser_that_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
