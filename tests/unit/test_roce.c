// SPDX-License-Identifier: MIT
/*
 * The bytes of packets: every kind goes out and comes in again, opcodes and headers are those of the
 * specification, and whatever the bytes are, the decoder names what is wrong and looks at nothing outside of
 * them. What is decoded ends where a page that cannot be read begins.
 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "base/util.h"
#include "packet/frame/frame.h"
#include "roce_kit.h"

enum { PAGE = 4096, ROOM = 4 * PAGE, RANDOM_BYTES = 300 };

static uint8_t *room; /* of ROOM bytes; no page behind it */

static int map_room(void **state)
{
	room = mmap(NULL, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(room, MAP_FAILED);
	return mprotect(room + ROOM, PAGE, PROT_NONE);
}

static int unmap_room(void **state)
{
	return munmap(room, ROOM + PAGE);
}

/* The bytes, moved to where the room ends. */
static uint8_t *at_the_end(const uint8_t *bytes, size_t len)
{
	return memmove(room + ROOM - len, bytes, len);
}

static uint64_t seed = 88172645463325252ull;

static uint32_t draw(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32) % below;
}

static void make_random(struct roce_case *c)
{
	uint8_t bytes[RANDOM_BYTES];

	for (unsigned int i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)draw(256);
	roce_case_make(c, bytes, sizeof(bytes));
}

/* --- the CRC ---------------------------------------------------------------------------------- */

/* By its definition. */
static uint32_t crc_bits(uint32_t crc, const uint8_t *at, size_t len)
{
	while (len--) {
		crc ^= *at++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return crc;
}

static void crc_is_that_of_ethernet(void **state)
{
	static uint8_t bytes[VB_FRAME_MAX];

	assert_int_equal(vb_frame_fcs((const uint8_t *)"123456789", 9), 0xcbf43926);
	for (unsigned int i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)draw(256);
	for (uint32_t len = 0; len <= 700; len++) {
		const uint8_t *at = at_the_end(bytes, len);
		uint32_t cut = draw(len + 1), begin = draw(UINT32_MAX), crc;

		assert_int_equal(vb_frame_crc(begin, at, len), crc_bits(begin, at, len));
		crc = vb_frame_crc(begin, at, cut);
		assert_int_equal(vb_frame_crc(crc, at + cut, len - cut), crc_bits(begin, at, len));
	}
	for (uint32_t i = 0; i < 50; i++) {
		uint32_t skip = draw(64), len = draw(sizeof(bytes) - 64);

		assert_int_equal(vb_frame_crc(~0u, bytes + skip, len),
				 crc_bits(~0u, bytes + skip, len));
	}
}

/* The ICRC of the bytes from IP or GRH on, without the four of its own. */
static uint32_t icrc_of(const uint8_t *network, size_t len, uint8_t kind)
{
	static const uint8_t ones[8] = { 255, 255, 255, 255, 255, 255, 255, 255 };
	static uint8_t copy[ROOM];
	uint32_t header = kind == VB_ROCE_IPV4 ? 20 : 40;

	memcpy(copy, network, len);
	if (kind == VB_ROCE_IPV4) {
		copy[1] = copy[8] = copy[10] = copy[11] = 0xff;
	} else {
		copy[0] |= 0x0f;
		copy[1] = copy[2] = copy[3] = copy[7] = 0xff;
	}
	if (kind != VB_ROCE_V1) {
		copy[header + 6] = copy[header + 7] = 0xff;
		header += 8;
	}
	copy[header + 4] = 0xff;
	return ~crc_bits(crc_bits(0xffffffff, ones, sizeof(ones)), copy, len);
}

static void set_icrc(uint8_t *network, size_t len, uint8_t kind)
{
	uint32_t icrc = htole32(icrc_of(network, len - 4, kind));

	memcpy(network + len - 4, &icrc, 4);
}

/* --- out and in again ------------------------------------------------------------------------- */

static void pass(const struct roce_case *c, enum vb_roce_from from)
{
	static uint8_t bytes[ROCE_FRAME_MAX];
	static struct roce_case want;
	struct vb_roce_packet got;
	size_t len = roce_case_encode(c, from, bytes);
	enum vb_roce_error error;
	const uint8_t *at;
	const char *field;

	assert_true(len > 0);
	at = at_the_end(bytes, len);
	error = roce_case_decode(c, from, at, len, &got);
	if (error)
		fail_msg("op %u, transport 0x%x, flags 0x%x, network %u, %u bytes: %s", c->pkt.op,
			 c->pkt.transport, c->pkt.flags, c->route.network, c->pkt.len,
			 vb_roce_error_name(error));
	roce_case_expect(c, from, &want);
	field = roce_differ(&want.route, &want.pkt, &got);
	if (field)
		fail_msg("op %u, transport 0x%x, flags 0x%x, network %u, %u bytes: %s", c->pkt.op,
			 c->pkt.transport, c->pkt.flags, c->route.network, c->pkt.len, field);
}

/* One packet of the specification: how it is asked for, and what it must be. */
static const struct row {
	uint8_t opcode, transport, op;
	uint16_t flags;
	uint8_t headers; /* bytes between BTH and data */
	bool data;
} rows[] = {
	{ 0x00, IBV_QPT_RC, VB_PKT_SEND, VB_PKT_FIRST, 0, true },
	{ 0x01, IBV_QPT_RC, VB_PKT_SEND, 0, 0, true },
	{ 0x02, IBV_QPT_RC, VB_PKT_SEND, VB_PKT_LAST, 0, true },
	{ 0x03, IBV_QPT_RC, VB_PKT_SEND, VB_PKT_LAST | VB_PKT_IMM, 4, true },
	{ 0x04, IBV_QPT_RC, VB_PKT_SEND, VB_PKT_ONLY, 0, true },
	{ 0x05, IBV_QPT_RC, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_IMM, 4, true },
	{ 0x06, IBV_QPT_RC, VB_PKT_WRITE, VB_PKT_FIRST, 16, true },
	{ 0x07, IBV_QPT_RC, VB_PKT_WRITE, 0, 0, true },
	{ 0x08, IBV_QPT_RC, VB_PKT_WRITE, VB_PKT_LAST, 0, true },
	{ 0x09, IBV_QPT_RC, VB_PKT_WRITE, VB_PKT_LAST | VB_PKT_IMM, 4, true },
	{ 0x0a, IBV_QPT_RC, VB_PKT_WRITE, VB_PKT_ONLY, 16, true },
	{ 0x0b, IBV_QPT_RC, VB_PKT_WRITE, VB_PKT_ONLY | VB_PKT_IMM, 20, true },
	{ 0x0c, IBV_QPT_RC, VB_PKT_READ, VB_PKT_ONLY, 16, false },
	{ 0x0d, IBV_QPT_RC, VB_PKT_READ_RESPONSE, VB_PKT_FIRST, 4, true },
	{ 0x0e, IBV_QPT_RC, VB_PKT_READ_RESPONSE, 0, 0, true },
	{ 0x0f, IBV_QPT_RC, VB_PKT_READ_RESPONSE, VB_PKT_LAST, 4, true },
	{ 0x10, IBV_QPT_RC, VB_PKT_READ_RESPONSE, VB_PKT_ONLY, 4, true },
	{ 0x11, IBV_QPT_RC, VB_PKT_ACK, VB_PKT_ONLY, 4, false },
	{ 0x12, IBV_QPT_RC, VB_PKT_ATOMIC_RESPONSE, VB_PKT_ONLY, 12, false },
	{ 0x13, IBV_QPT_RC, VB_PKT_COMPARE_SWAP, VB_PKT_ONLY, 28, false },
	{ 0x14, IBV_QPT_RC, VB_PKT_FETCH_ADD, VB_PKT_ONLY, 28, false },
	{ 0x16, IBV_QPT_RC, VB_PKT_SEND, VB_PKT_LAST | VB_PKT_INVALIDATE, 4, true },
	{ 0x17, IBV_QPT_RC, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_INVALIDATE, 4, true },
	{ 0x20, IBV_QPT_UC, VB_PKT_SEND, VB_PKT_FIRST, 0, true },
	{ 0x21, IBV_QPT_UC, VB_PKT_SEND, 0, 0, true },
	{ 0x22, IBV_QPT_UC, VB_PKT_SEND, VB_PKT_LAST, 0, true },
	{ 0x23, IBV_QPT_UC, VB_PKT_SEND, VB_PKT_LAST | VB_PKT_IMM, 4, true },
	{ 0x24, IBV_QPT_UC, VB_PKT_SEND, VB_PKT_ONLY, 0, true },
	{ 0x25, IBV_QPT_UC, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_IMM, 4, true },
	{ 0x26, IBV_QPT_UC, VB_PKT_WRITE, VB_PKT_FIRST, 16, true },
	{ 0x27, IBV_QPT_UC, VB_PKT_WRITE, 0, 0, true },
	{ 0x28, IBV_QPT_UC, VB_PKT_WRITE, VB_PKT_LAST, 0, true },
	{ 0x29, IBV_QPT_UC, VB_PKT_WRITE, VB_PKT_LAST | VB_PKT_IMM, 4, true },
	{ 0x2a, IBV_QPT_UC, VB_PKT_WRITE, VB_PKT_ONLY, 16, true },
	{ 0x2b, IBV_QPT_UC, VB_PKT_WRITE, VB_PKT_ONLY | VB_PKT_IMM, 20, true },
	{ 0x36, IBV_QPT_UC, VB_PKT_SEND, VB_PKT_LAST | VB_PKT_INVALIDATE, 4, true },
	{ 0x37, IBV_QPT_UC, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_INVALIDATE, 4, true },
	{ 0x64, IBV_QPT_UD, VB_PKT_SEND, VB_PKT_ONLY, 8, true },
	{ 0x65, IBV_QPT_UD, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_IMM, 12, true },
	{ 0x81, 0, VB_PKT_CNP, VB_PKT_ONLY, 16, false },
	{ 0xa0, IBV_QPT_XRC_SEND, VB_PKT_SEND, VB_PKT_FIRST, 4, true },
	{ 0xa1, IBV_QPT_XRC_SEND, VB_PKT_SEND, 0, 4, true },
	{ 0xa2, IBV_QPT_XRC_SEND, VB_PKT_SEND, VB_PKT_LAST, 4, true },
	{ 0xa3, IBV_QPT_XRC_SEND, VB_PKT_SEND, VB_PKT_LAST | VB_PKT_IMM, 8, true },
	{ 0xa4, IBV_QPT_XRC_SEND, VB_PKT_SEND, VB_PKT_ONLY, 4, true },
	{ 0xa5, IBV_QPT_XRC_SEND, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_IMM, 8, true },
	{ 0xa6, IBV_QPT_XRC_SEND, VB_PKT_WRITE, VB_PKT_FIRST, 20, true },
	{ 0xa7, IBV_QPT_XRC_SEND, VB_PKT_WRITE, 0, 4, true },
	{ 0xa8, IBV_QPT_XRC_SEND, VB_PKT_WRITE, VB_PKT_LAST, 4, true },
	{ 0xa9, IBV_QPT_XRC_SEND, VB_PKT_WRITE, VB_PKT_LAST | VB_PKT_IMM, 8, true },
	{ 0xaa, IBV_QPT_XRC_SEND, VB_PKT_WRITE, VB_PKT_ONLY, 20, true },
	{ 0xab, IBV_QPT_XRC_SEND, VB_PKT_WRITE, VB_PKT_ONLY | VB_PKT_IMM, 24, true },
	{ 0xac, IBV_QPT_XRC_SEND, VB_PKT_READ, VB_PKT_ONLY, 20, false },
	{ 0xad, IBV_QPT_XRC_RECV, VB_PKT_READ_RESPONSE, VB_PKT_FIRST, 4, true },
	{ 0xae, IBV_QPT_XRC_RECV, VB_PKT_READ_RESPONSE, 0, 0, true },
	{ 0xaf, IBV_QPT_XRC_RECV, VB_PKT_READ_RESPONSE, VB_PKT_LAST, 4, true },
	{ 0xb0, IBV_QPT_XRC_RECV, VB_PKT_READ_RESPONSE, VB_PKT_ONLY, 4, true },
	{ 0xb1, IBV_QPT_XRC_RECV, VB_PKT_ACK, VB_PKT_ONLY, 4, false },
	{ 0xb2, IBV_QPT_XRC_RECV, VB_PKT_ATOMIC_RESPONSE, VB_PKT_ONLY, 12, false },
	{ 0xb3, IBV_QPT_XRC_SEND, VB_PKT_COMPARE_SWAP, VB_PKT_ONLY, 32, false },
	{ 0xb4, IBV_QPT_XRC_SEND, VB_PKT_FETCH_ADD, VB_PKT_ONLY, 32, false },
	{ 0xb6, IBV_QPT_XRC_SEND, VB_PKT_SEND, VB_PKT_LAST | VB_PKT_INVALIDATE, 8, true },
	{ 0xb7, IBV_QPT_XRC_SEND, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_INVALIDATE, 8, true },
	/* ours */
	{ 0xc0, IBV_QPT_RC, VB_PKT_MASKED_COMPARE_SWAP, VB_PKT_ONLY, 56, false },
	{ 0xc0, IBV_QPT_RC, VB_PKT_MASKED_FETCH_ADD, VB_PKT_ONLY, 56, false },
	{ 0xc1, IBV_QPT_XRC_SEND, VB_PKT_MASKED_COMPARE_SWAP, VB_PKT_ONLY, 60, false },
	{ 0xc1, IBV_QPT_XRC_SEND, VB_PKT_MASKED_FETCH_ADD, VB_PKT_ONLY, 60, false },
	{ 0xc2, VB_TRANSPORT_DC, VB_PKT_COMPARE_SWAP, VB_PKT_ONLY, 28, false },
	{ 0xc2, VB_TRANSPORT_DC, VB_PKT_ATOMIC_RESPONSE, VB_PKT_ONLY, 20, false },
	{ 0xc3, VB_TRANSPORT_HBL, VB_PKT_SEND, VB_PKT_LAST, 16, true },
	{ 0xc3, VB_TRANSPORT_HBL, VB_PKT_WRITE, 0, 32, true },
	{ 0xc3, VB_TRANSPORT_HBL, VB_PKT_READ, VB_PKT_LAST, 32, false },
	{ 0xc3, VB_TRANSPORT_HBL, VB_PKT_FETCH_ADD, VB_PKT_LAST, 48, false },
	{ 0xc3, VB_TRANSPORT_HBL, VB_PKT_ACK, 0, 8, false },
	{ 0xc3, VB_TRANSPORT_HBL, VB_PKT_READ_RESPONSE, VB_PKT_FIRST, 8, true },
	{ 0xc3, VB_TRANSPORT_HBL, VB_PKT_ATOMIC_RESPONSE, VB_PKT_ONLY, 16, false },
	{ 0xc4, IBV_QPT_RAW_PACKET, VB_PKT_SEND, VB_PKT_ONLY, 36, true },
};

static bool has_version(uint8_t transport)
{
	return transport != VB_TRANSPORT_DC && transport != VB_TRANSPORT_HBL &&
	       transport != IBV_QPT_RAW_PACKET;
}

/* A packet of this row, all else at random; false: there is none on this network. */
static bool make_row(struct roce_case *c, const struct row *row, uint8_t network, uint32_t len)
{
	do
		make_random(c);
	while (c->route.network != network);
	c->pkt.op = row->op;
	c->pkt.transport = row->transport;
	if (network == VB_ROCE_V1 && has_version(row->transport))
		c->pkt.transport |= VB_TRANSPORT_V1;
	c->pkt.flags = (uint16_t)(row->flags | (c->pkt.flags & VB_PKT_SOLICITED) |
				  (c->pkt.flags & VB_PKT_ACK_REQ));
	roce_case_set_len(c, row->data ? len : 0);
	return network != VB_ROCE_V1 || row->op != VB_PKT_CNP;
}

static uint32_t network_len(uint8_t network)
{
	return network == VB_ROCE_V1 ? 40 : network == VB_ROCE_IPV4 ? 28 : 48;
}

/* The frame by the layout of the specification, and its ICRC by another implementation. */
static void check_layout(const struct roce_case *c, const struct row *row)
{
	static uint8_t bytes[ROCE_FRAME_MAX];
	size_t len = roce_case_encode(c, VB_ROCE_NETWORK, bytes),
	       before = network_len(c->route.network);
	const uint8_t *bth = bytes + before;
	uint32_t pad = -c->pkt.len & 3, icrc;

	assert_int_equal(len, before + 12 + row->headers + c->pkt.len + pad + 4);
	assert_int_equal(bth[0], row->opcode);
	assert_int_equal(bth[1] & 0x3f, pad << 4);
	assert_int_equal(be32toh(*(const __be32 *)(bth + 4)) & 0xffffff, c->pkt.dqpn);
	assert_int_equal(be32toh(*(const __be32 *)(bth + 8)) & 0xffffff, c->pkt.psn);
	memcpy(&icrc, bytes + len - 4, 4);
	assert_int_equal(le32toh(icrc), icrc_of(bytes, len - 4, c->route.network));
}

static void every_packet_passes(void **state)
{
	static const uint32_t lengths[] = { 0, 1, 2, 3, 4, 63, 256, 511, 1024, 2048, 4095, 4096 };
	static struct roce_case c;

	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++)
		for (uint8_t network = VB_ROCE_V1; network <= VB_ROCE_IPV6; network++)
			for (unsigned int l = 0; l < ARRAY_SIZE(lengths); l++) {
				if (!make_row(&c, &rows[i], network, lengths[l]))
					continue;
				check_layout(&c, &rows[i]);
				pass(&c, VB_ROCE_ETHERNET);
				pass(&c, VB_ROCE_NETWORK);
				if (network != VB_ROCE_V1)
					pass(&c, VB_ROCE_BTH);
			}
}

static void long_data_of_ours(void **state)
{
	static const struct {
		uint8_t transport;
		uint32_t most;
	} kinds[] = { { VB_TRANSPORT_HBL, 8192 },
		      { IBV_QPT_RAW_PACKET, 9216 },
		      { IBV_QPT_RC, 4096 } };
	static struct roce_case c;
	struct vb_roce_bytes bytes;

	for (unsigned int k = 0; k < ARRAY_SIZE(kinds); k++) {
		make_row(&c, &rows[4], VB_ROCE_IPV6, 0);
		c.pkt.transport = kinds[k].transport;
		for (uint32_t less = 0; less < 5; less++) {
			roce_case_set_len(&c, kinds[k].most - less);
			pass(&c, VB_ROCE_ETHERNET);
		}
		c.pkt.len = kinds[k].most + 1;
		assert_int_equal(vb_roce_encode(&c.route, &c.pkt, &bytes), -EMSGSIZE);
	}
}

/* Whatever goes together or not: what the encoder takes comes out again, and it takes the rows and no others. */
static void random_packets_pass(void **state)
{
	static struct roce_case c;
	unsigned int taken = 0;

	for (unsigned int i = 0; i < 40000; i++) {
		struct vb_roce_bytes bytes;
		bool known = false;

		make_random(&c);
		if (vb_roce_encode(&c.route, &c.pkt, &bytes))
			continue;
		for (unsigned int k = 0; k < ARRAY_SIZE(rows); k++)
			known |= rows[k].opcode == bytes.head[bytes.bth] && rows[k].op == c.pkt.op;
		assert_true(known);
		taken++;
		pass(&c, VB_ROCE_ETHERNET);
	}
	assert_in_range(taken, 2000, 20000);
}

/* --- what the encoder refuses ----------------------------------------------------------------- */

static void refuse_to_encode(const struct roce_case *c)
{
	struct vb_roce_bytes bytes;

	assert_int_equal(vb_roce_encode(&c->route, &c->pkt, &bytes), -EINVAL);
}

static void no_such_packet(void **state)
{
	static struct roce_case good, c;
	static const struct {
		uint8_t transport, op;
		uint16_t flags;
	} bad[] = {
		{ IBV_QPT_RC, 0, VB_PKT_ONLY },
		{ IBV_QPT_RC, VB_PKT_OPS, VB_PKT_ONLY },
		{ IBV_QPT_RC, 0xff, VB_PKT_ONLY },
		{ IBV_QPT_RC, VB_PKT_SEND, VB_PKT_FIRST | VB_PKT_IMM },
		{ IBV_QPT_RC, VB_PKT_SEND, VB_PKT_IMM },
		{ IBV_QPT_RC, VB_PKT_SEND, VB_PKT_FIRST | VB_PKT_INVALIDATE },
		{ IBV_QPT_RC, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_IMM | VB_PKT_INVALIDATE },
		{ IBV_QPT_RC, VB_PKT_WRITE, VB_PKT_ONLY | VB_PKT_INVALIDATE },
		{ IBV_QPT_RC, VB_PKT_WRITE, VB_PKT_ONLY | VB_PKT_PLACED },
		{ IBV_QPT_RC, VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_ACKS },
		{ IBV_QPT_UC, VB_PKT_READ, VB_PKT_ONLY },
		{ IBV_QPT_UC, VB_PKT_ACK, VB_PKT_ONLY },
		{ IBV_QPT_UC, VB_PKT_FETCH_ADD, VB_PKT_ONLY },
		{ IBV_QPT_UC, VB_PKT_MASKED_FETCH_ADD, VB_PKT_ONLY },
		{ IBV_QPT_UD, VB_PKT_SEND, VB_PKT_FIRST },
		{ IBV_QPT_UD, VB_PKT_WRITE, VB_PKT_ONLY },
		{ IBV_QPT_XRC_SEND, VB_PKT_ACK, VB_PKT_ONLY },
		{ IBV_QPT_XRC_RECV, VB_PKT_SEND, VB_PKT_ONLY },
		{ IBV_QPT_RC | VB_TRANSPORT_V1, VB_PKT_SEND, VB_PKT_ONLY },
		{ IBV_QPT_RC | VB_TRANSPORT_CUT, VB_PKT_SEND, VB_PKT_ONLY },
		{ VB_TRANSPORT_DC, VB_PKT_SEND, VB_PKT_ONLY },
		{ VB_TRANSPORT_HBL, VB_PKT_COMPARE_SWAP, VB_PKT_ONLY },
		{ IBV_QPT_RAW_PACKET, VB_PKT_WRITE, VB_PKT_ONLY },
		{ IBV_QPT_RC, VB_PKT_CNP, VB_PKT_ONLY },
	};

	make_row(&good, &rows[4], VB_ROCE_IPV4, 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		c = good;
		c.pkt.transport = bad[i].transport;
		c.pkt.op = bad[i].op;
		c.pkt.flags = bad[i].flags;
		refuse_to_encode(&c);
	}
	c = good;
	c.route.network = VB_ROCE_V1;
	refuse_to_encode(&c);
	c = good;
	c.pkt.source.lkey = 1;
	refuse_to_encode(&c);
	c = good;
	c.pkt.op = VB_PKT_ACK;
	c.pkt.syndrome = VB_SYN_NO_PULL;
	refuse_to_encode(&c);
	c = good;
	c.pkt.op = VB_PKT_READ;
	roce_case_set_len(&c, 4);
	refuse_to_encode(&c);
	c = good;
	roce_case_set_len(&c, 64);
	c.pkt.iov_cnt = 1; /* pieces that are less than the packet, or more */
	refuse_to_encode(&c);
	roce_case_set_len(&c, 64);
	c.pkt.len = 20;
	refuse_to_encode(&c);
}

/* --- what the decoder refuses ----------------------------------------------------------------- */

/* A good frame that is damaged in a known way; sums that do not matter are made right again. */
struct damaged {
	struct roce_case c;
	uint8_t bytes[ROCE_FRAME_MAX];
	size_t len;
	uint8_t *network, *udp, *bth;
};

static bool seen[VB_ROCE_ERRORS];

static struct damaged *make_good(const struct row *row, uint8_t network, uint32_t len)
{
	static struct damaged d;

	make_row(&d.c, row, network, len);
	d.c.route.tagged = false;
	d.len = roce_case_encode(&d.c, VB_ROCE_ETHERNET, d.bytes);
	d.network = d.bytes + 14;
	d.bth = d.network + network_len(network);
	d.udp = d.bth - 8;
	return &d;
}

static const struct row *row_of(uint8_t opcode)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].opcode == opcode)
			return &rows[i];
	fail();
	return NULL;
}

static void fix_ip(struct damaged *d)
{
	uint16_t sum;

	memset(d->network + 10, 0, 2);
	sum = htobe16((uint16_t)~vb_frame_sum16(d->network, 20, 0));
	memcpy(d->network + 10, &sum, 2);
}

static void expect(const struct damaged *d, enum vb_roce_error error)
{
	struct vb_roce_packet got, before;
	enum vb_roce_error is;

	memset(&got, 0x5a, sizeof(got));
	before = got;
	is = vb_roce_decode_frame(at_the_end(d->bytes, d->len), d->len, &got);
	assert_string_equal(vb_roce_error_name(is), vb_roce_error_name(error));
	seen[error] = true;
	if (error) /* nothing is set */
		assert_memory_equal(&got, &before, sizeof(got));
}

/* After a change of the BTH or of what follows it. */
static void expect_behind_icrc(struct damaged *d, enum vb_roce_error error)
{
	set_icrc(d->network, d->len - 14, d->c.route.network);
	expect(d, error);
}

static void damaged_networks(void **state)
{
	const struct row *send = row_of(0x04);
	struct damaged *d;

#define DAMAGED(kind, change, error)            \
	do {                                    \
		d = make_good(send, kind, 100); \
		change;                         \
		expect(d, error);               \
	} while (0)
#define DAMAGED_IP(change, error) DAMAGED(VB_ROCE_IPV4, change; fix_ip(d), error)

	DAMAGED(VB_ROCE_IPV4, (void)0, VB_ROCE_OK);
	DAMAGED(VB_ROCE_IPV4, d->bytes[12] = 0x88, VB_ROCE_ETHERTYPE);
	DAMAGED(VB_ROCE_IPV4, memcpy(d->bytes + 12, "\x81\0\0\1\x81\0", 6), VB_ROCE_ETHERTYPE);
	DAMAGED(VB_ROCE_IPV4, (memcpy(d->bytes + 12, "\x81\0", 2), d->len = 17), VB_ROCE_SHORT);
	DAMAGED_IP(d->network[0] = 0x65, VB_ROCE_IP_VERSION);
	DAMAGED_IP(d->network[0] = 0x46, VB_ROCE_IP_OPTIONS);
	DAMAGED_IP(d->network[0] = 0x44, VB_ROCE_IP_OPTIONS);
	DAMAGED_IP(d->network[2]++, VB_ROCE_IP_LENGTH);
	DAMAGED_IP((d->network[2] = 0, d->network[3] = 19), VB_ROCE_IP_LENGTH);
	DAMAGED_IP((d->network[2] = 0, d->network[3] = 27), VB_ROCE_SHORT);
	DAMAGED_IP(
		(d->network[2] = 0, d->network[3] = 20 + 8 + 15, memcpy(d->udp + 4, "\0\x17", 2)),
		VB_ROCE_SHORT);
	DAMAGED_IP(d->network[3]--, VB_ROCE_UDP_LENGTH);
	DAMAGED(VB_ROCE_IPV4, d->network[12]++, VB_ROCE_IP_CHECKSUM);
	DAMAGED_IP(d->network[6] |= 0x20, VB_ROCE_FRAGMENT);
	DAMAGED_IP(d->network[7] |= 1, VB_ROCE_FRAGMENT);
	DAMAGED_IP(d->network[9] = 6, VB_ROCE_PROTOCOL);
	DAMAGED_IP(d->network[4]++, VB_ROCE_BAD_ICRC); /* the identification is covered */
	DAMAGED(VB_ROCE_IPV4, d->udp[3]++, VB_ROCE_UDP_PORT);
	DAMAGED(VB_ROCE_IPV4, d->udp[5]++, VB_ROCE_UDP_LENGTH);
	DAMAGED(VB_ROCE_IPV4, d->udp[7]++, VB_ROCE_UDP_CHECKSUM);
	DAMAGED(VB_ROCE_IPV4, d->udp[1]++, VB_ROCE_BAD_ICRC);
	DAMAGED(VB_ROCE_IPV6, (void)0, VB_ROCE_OK);
	DAMAGED(VB_ROCE_IPV6, d->network[0] = 0x40, VB_ROCE_IP_VERSION);
	DAMAGED(VB_ROCE_IPV6, d->network[4]++, VB_ROCE_IP_LENGTH);
	DAMAGED(VB_ROCE_IPV6, d->network[6] = 44, VB_ROCE_FRAGMENT);
	DAMAGED(VB_ROCE_IPV6, d->network[6] = 0, VB_ROCE_PROTOCOL); /* hop-by-hop options */
	DAMAGED(VB_ROCE_IPV6, d->network[6] = 0x1b, VB_ROCE_PROTOCOL);
	DAMAGED(VB_ROCE_IPV6, d->udp[7]++, VB_ROCE_UDP_CHECKSUM);
	DAMAGED(VB_ROCE_V1, (void)0, VB_ROCE_OK);
	DAMAGED(VB_ROCE_V1, d->network[0] = 0x40, VB_ROCE_IP_VERSION);
	DAMAGED(VB_ROCE_V1, d->network[4]++, VB_ROCE_IP_LENGTH);
	DAMAGED(VB_ROCE_V1, d->network[6] = 17, VB_ROCE_PROTOCOL);
	DAMAGED(VB_ROCE_V1, d->network[39]++, VB_ROCE_BAD_ICRC);
}

/* Zero is the rule; a checksum that is there and right passes, as kernels fill one in. */
static void udp_checksum(void **state)
{
	for (uint8_t network = VB_ROCE_IPV4; network <= VB_ROCE_IPV6; network++) {
		struct damaged *d = make_good(row_of(0x04), network, 33);
		uint32_t len = (uint32_t)(d->bytes + d->len - d->udp),
			 skip = network == VB_ROCE_IPV4 ? 12 : 8;
		uint32_t sum = vb_frame_sum16(d->network + skip,
					      (uint32_t)(d->udp - d->network) - skip, 17 + len);
		uint16_t right = htobe16((uint16_t)~vb_frame_sum16(d->udp, len, sum));

		assert_int_not_equal(right, 0);
		memcpy(d->udp + 6, &right, 2);
		expect(d, VB_ROCE_OK);
		d->udp[6]++;
		expect(d, VB_ROCE_UDP_CHECKSUM);
	}
}

/* Frames are padded to 60 bytes; what lies behind the length of IP is nothing of the packet. */
static void padded_frame(void **state)
{
	for (uint8_t network = VB_ROCE_V1; network <= VB_ROCE_IPV6; network++) {
		struct damaged *d = make_good(row_of(0x04), network, 0);

		memset(d->bytes + d->len, 0xa5, 30);
		d->len += 30;
		expect(d, VB_ROCE_OK);
	}
}

/* So that everything is in the packet but one thing; where the packet has to be longer, it is. */
static void damaged_packets(void **state)
{
	struct damaged *d;

#define DAMAGED_BTH(opcode, size, change, error)                   \
	do {                                                       \
		d = make_good(row_of(opcode), VB_ROCE_IPV6, size); \
		change;                                            \
		expect_behind_icrc(d, error);                      \
	} while (0)
	/* One opcode for another: the headers or the data of that one are missing. */
	DAMAGED_BTH(0x04, 8, (void)0, VB_ROCE_OK);
	DAMAGED_BTH(0x04, 8, d->bth[1] |= 1, VB_ROCE_VERSION);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x15, VB_ROCE_OPCODE);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x18, VB_ROCE_OPCODE);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x1c, VB_ROCE_OPCODE);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x2c, VB_ROCE_OPCODE); /* READ on UC */
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x44, VB_ROCE_OPCODE); /* RD */
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x60, VB_ROCE_OPCODE); /* the first of several datagrams */
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x80, VB_ROCE_OPCODE);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0xc5, VB_ROCE_OPCODE);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0xff, VB_ROCE_OPCODE);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x06, VB_ROCE_HEADERS);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x13, VB_ROCE_HEADERS);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x81, VB_ROCE_HEADERS);
	DAMAGED_BTH(0x04, 8, d->bth[0] = 0x11, VB_ROCE_NO_DATA);
	DAMAGED_BTH(0x04, 0, d->bth[1] |= 0x10, VB_ROCE_PAD);
	DAMAGED_BTH(0x0c, 0, d->bth[1] |= 0x10, VB_ROCE_PAD);
	DAMAGED_BTH(0x11, 0, d->bth[12] = VB_SYN_NO_PULL, VB_ROCE_HEADERS);
	DAMAGED_BTH(0x11, 0, d->bth[12] = 0x80, VB_ROCE_HEADERS);
	DAMAGED_BTH(0xc0, 0, d->bth[12] = 'W', VB_ROCE_FOREIGN);
	DAMAGED_BTH(0xc0, 0, d->bth[13] = 2, VB_ROCE_FOREIGN);
	DAMAGED_BTH(0xc0, 0, d->bth[14] = VB_PKT_SEND, VB_ROCE_HEADERS);
	DAMAGED_BTH(0xc0, 0, d->bth[14] = VB_PKT_OPS, VB_ROCE_HEADERS);
	DAMAGED_BTH(0xc0, 0, d->bth[14] = VB_PKT_CNP, VB_ROCE_HEADERS);
	DAMAGED_BTH(0xc0, 0, d->bth[14] = 0, VB_ROCE_HEADERS);
	DAMAGED_BTH(0xc0, 0, d->bth[15] |= VB_PKT_ACKS, VB_ROCE_HEADERS);
	DAMAGED_BTH(0xc0, 0, d->bth[0] = 0xc1, VB_ROCE_HEADERS);
	DAMAGED_BTH(0xc0, 0, d->bth[0] = 0xc3, VB_ROCE_HEADERS);
	DAMAGED_BTH(0xc3, 0, (d->bth[14] = VB_PKT_ACK, d->bth[16] = 0xff), VB_ROCE_HEADERS);
	DAMAGED_BTH(0x04, 3, d->bth[4] = 0xff, VB_ROCE_OK); /* marks and reserved bits */
}

/* A packet that is longer or shorter than it may be: its lengths agree, its content does not. */
static void wrong_lengths(void **state)
{
	static uint8_t long_one[ROOM];
	struct damaged *d = make_good(row_of(0x04), VB_ROCE_IPV6, 4096);
	struct damaged w = *d;

	for (int extra = 1; extra <= 8; extra++) {
		struct vb_roce_packet got;
		size_t len = w.len + (size_t)extra - 14, udp = len - 40;
		enum vb_roce_error error;

		memset(long_one, 0, sizeof(long_one));
		memcpy(long_one, w.bytes + 14, w.len - 14 - 4);
		long_one[4] = long_one[44] = (uint8_t)(udp >> 8);
		long_one[5] = long_one[45] = (uint8_t)udp;
		set_icrc(long_one, len, VB_ROCE_IPV6);
		error = vb_roce_decode_network(VB_ROCE_IPV6, at_the_end(long_one, len), len, &got);
		assert_string_equal(vb_roce_error_name(error), extra % 4 ? "pad" : "too-long");
		seen[error] = true;
	}
}

/* No check is one that nothing meets. */
static void every_refusal_was_seen(void **state)
{
	for (int error = 0; error < VB_ROCE_ERRORS; error++) {
		if (!seen[error])
			fail_msg("%s", vb_roce_error_name(error));
		for (int other = 0; other < error; other++)
			assert_string_not_equal(vb_roce_error_name(error),
						vb_roce_error_name(other));
	}
	assert_string_equal(vb_roce_error_name(VB_ROCE_ERRORS), "unknown");
}

/* --- hostile bytes ---------------------------------------------------------------------------- */

static void every_beginning_is_refused(void **state)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++)
		for (uint8_t network = VB_ROCE_V1; network <= VB_ROCE_IPV6; network++) {
			struct damaged *d;
			struct vb_roce_packet got;
			size_t bth;

			if (network == VB_ROCE_V1 && rows[i].op == VB_PKT_CNP)
				continue;
			d = make_good(&rows[i], network, 40);
			bth = (size_t)(d->bth - d->bytes);
			for (size_t len = 0; len < d->len; len++) {
				assert_int_not_equal(
					vb_roce_decode_frame(at_the_end(d->bytes, len), len, &got),
					0);
				if (network == VB_ROCE_V1 || len < bth)
					continue;
				assert_int_not_equal(
					vb_roce_decode_udp(&d->c.route,
							   at_the_end(d->bth, len - bth), len - bth,
							   &got),
					0);
			}
		}
}

/* A bit of the frame that may change on the way, as the specification lists them. */
static bool may_change(const struct damaged *d, size_t byte, int bit)
{
	size_t network = byte - 14, bth = (size_t)(d->bth - d->bytes);

	if (byte < 12)
		return true; /* MACs */
	if (byte == bth + 4)
		return true;
	if (d->c.route.network == VB_ROCE_IPV4)
		return false; /* the header has a checksum */
	return byte >= 14 && (network == 7 || (network < 4 && !(network == 0 && bit >= 4)));
}

static void every_bit_counts(void **state)
{
	static const uint8_t opcodes[] = { 0x04, 0x0b, 0x12, 0x65, 0xa6, 0xc1, 0xc2, 0xc3, 0xc4 };

	for (unsigned int i = 0; i < sizeof(opcodes); i++)
		for (uint8_t network = VB_ROCE_V1; network <= VB_ROCE_IPV6; network++) {
			struct damaged *d = make_good(row_of(opcodes[i]), network, 21);

			for (size_t bit = 0; bit < d->len * 8; bit++) {
				struct vb_roce_packet got;
				bool ok;

				d->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
				ok = !vb_roce_decode_frame(at_the_end(d->bytes, d->len), d->len,
							   &got);
				assert_int_equal(ok, may_change(d, bit / 8, (int)bit % 8));
				d->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
			}
		}
}

/* Behind a right ICRC anything may stand; what is taken for a packet can be sent again and is the same. */
static void random_bytes(void **state)
{
	static struct roce_case c, again;
	static uint8_t bytes[ROCE_FRAME_MAX], twice[ROCE_FRAME_MAX];
	unsigned int taken = 0;

	for (unsigned int i = 0; i < 60000; i++) {
		struct vb_roce_packet got, second;
		size_t len = 16 + draw(120), before = VB_ROCE_HEAD_MAX, size;
		uint8_t *bth = bytes + before;
		const char *field;

		make_random(&c);
		c.route.network = (uint8_t)(VB_ROCE_IPV4 + draw(2));
		for (size_t k = 0; k < len; k++)
			bth[k] = (uint8_t)draw(256);
		bth[0] = draw(2) ? rows[draw(ARRAY_SIZE(rows))].opcode : bth[0];
		bth[1] &= 0xf0;
		bth[12] = draw(2) ? 'V' : bth[12];
		bth[13] = 1;
		bth[14] = (uint8_t)draw(VB_PKT_OPS);
		bth[15] &= 3;
		vb_roce_decode_udp(&c.route, at_the_end(bth, len), len, &got);
		/* As a frame: the headers of another packet of that length, which has the right ICRC. */
		c.pkt = (struct vb_pkt){ .op = VB_PKT_SEND,
					 .flags = VB_PKT_ONLY,
					 .transport = IBV_QPT_RC };
		roce_case_set_len(&c, (uint32_t)len & 0xfc);
		size = roce_case_encode(&c, VB_ROCE_NETWORK, twice);
		memcpy(twice + size - 4 - c.pkt.len - 12, bth, 12 + c.pkt.len);
		set_icrc(twice, size, c.route.network);
		if (vb_roce_decode_network(c.route.network, at_the_end(twice, size), size, &got))
			continue;
		taken++;
		again.route = got.route;
		again.pkt = got.pkt;
		size = roce_case_encode(&again, VB_ROCE_NETWORK, bytes);
		assert_true(size > 0);
		assert_int_equal(vb_roce_decode_network(c.route.network, bytes, size, &second), 0);
		got.route.becn |= got.pkt.op == VB_PKT_CNP; /* taken without it, never sent so */
		field = roce_differ(&got.route, &got.pkt, &second);
		if (field)
			fail_msg("op %u, transport 0x%x: %s", got.pkt.op, got.pkt.transport, field);
	}
	assert_in_range(taken, 5000, 60000);
}

/* --- ports ------------------------------------------------------------------------------------ */

static void source_ports(void **state)
{
	/* rdma_flow_label_to_udp_sport(): the upper six bits of the label go into the lower fourteen */
	assert_int_equal(vb_roce_source_port(0x00001, 5, 6), 0xc001);
	assert_int_equal(vb_roce_source_port(0x04001, 5, 6), 0xc000);
	assert_int_equal(vb_roce_source_port(0xfffff, 5, 6), 0xffc0);
	assert_int_equal(vb_roce_source_port(0, 5, 6), vb_roce_source_port(0, 6, 5));
	assert_int_equal(vb_roce_source_port(0, 5, 6), 0xc01e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_is_that_of_ethernet),
		cmocka_unit_test(every_packet_passes),
		cmocka_unit_test(long_data_of_ours),
		cmocka_unit_test(random_packets_pass),
		cmocka_unit_test(no_such_packet),
		cmocka_unit_test(damaged_networks),
		cmocka_unit_test(udp_checksum),
		cmocka_unit_test(padded_frame),
		cmocka_unit_test(damaged_packets),
		cmocka_unit_test(wrong_lengths),
		cmocka_unit_test(every_refusal_was_seen),
		cmocka_unit_test(every_beginning_is_refused),
		cmocka_unit_test(every_bit_counts),
		cmocka_unit_test(random_bytes),
		cmocka_unit_test(source_ports),
	};

	return cmocka_run_group_tests(tests, map_room, unmap_room);
}
