// SPDX-License-Identifier: MIT
/*
 * Random bytes as what came from a wire, and as a packet to be sent. Nothing outside of the bytes is looked at;
 * what is taken for a packet is one, so that it can be sent and comes out the same; what the encoder takes, the
 * decoder gives back.
 *
 *	1 byte     what the rest is:
 *	           0  a frame          1  an IPv4 packet    2  an IPv6 packet    3  a GRH and what follows
 *	           4 to 6  what is behind UDP or a GRH, whose headers and ICRC are made right
 *	           7  fields of a packet (tests/unit/roce_kit.h)
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "packet/frame/frame.h"
#include "packet/icrc.h"
#include "packet/network.h"
#include "packet/opcodes.h"
#include "roce_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Exactly as large as they are, so that the byte behind them is not there. */
static uint8_t *copy_of(const void *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	if (size)
		memcpy(copy, data, size);
	return copy;
}

/* A packet that was decoded: encoded, it is the same. */
static void check_packet(const uint8_t *bytes, size_t size, const struct vb_roce_packet *got)
{
	static struct roce_case c;
	static uint8_t frame[ROCE_FRAME_MAX];
	const uint8_t *at = got->iov.iov_base;
	struct vb_roce_packet again;
	struct vb_roce_route route = got->route;
	size_t len;

	if (got->pkt.iov != &got->iov || got->iov.iov_len != got->pkt.len || at < bytes ||
	    at + got->pkt.len > bytes + size)
		abort();
	c.route = got->route;
	c.pkt = got->pkt;
	len = roce_case_encode(&c, VB_ROCE_ETHERNET, frame);
	route.becn |= got->pkt.op == VB_PKT_CNP; /* taken without it, never sent so */
	if (!len || vb_roce_decode_frame(frame, len, &again) ||
	    roce_differ(&route, &got->pkt, &again))
		abort();
}

static void decode(unsigned int kind, const uint8_t *data, size_t size)
{
	static const uint8_t networks[] = { 0, VB_ROCE_IPV4, VB_ROCE_IPV6, VB_ROCE_V1 };
	uint8_t *bytes = copy_of(data, size);
	struct vb_roce_packet got;
	enum vb_roce_error error;

	error = kind ? vb_roce_decode_network(networks[kind], bytes, size, &got)
		     : vb_roce_decode_frame(bytes, size, &got);
	if (!error)
		check_packet(bytes, size, &got);
	free(bytes);
}

/* Behind everything that random bytes do not pass. */
static void decode_behind_icrc(uint8_t network, const uint8_t *data, size_t size)
{
	static const union ibv_gid mapped = { .raw = { [10] = 0xff, 0xff } };
	struct vb_roce_route route = { .network = network, .ip_df = network == VB_ROCE_IPV4 };
	uint8_t header[VB_NETWORK_MAX + ROCE_BTH], *bytes, *bth;
	uint32_t before = vb_network_size(network), crc;
	struct vb_roce_packet got;

	if (size < ROCE_BTH || size > 0xf000)
		return;
	if (network == VB_ROCE_IPV4)
		route.sgid = route.dgid = mapped;
	memcpy(vb_network_put(header, &route, (uint32_t)size + ROCE_ICRC), data, ROCE_BTH);
	bytes = malloc(before + size + ROCE_ICRC);
	if (!bytes)
		return;
	bth = bytes + before;
	memcpy(bytes, header, before);
	memcpy(bth, data, size);
	bth[1] &= (uint8_t)~BTH_VERSION;
	memcpy(header + before, bth, ROCE_BTH);
	crc = vb_frame_crc(vb_icrc_begin(network, header), bth + ROCE_BTH, size - ROCE_BTH);
	vb_icrc_put(crc, bth + size);
	if (!vb_roce_decode_network(network, bytes, before + size + ROCE_ICRC, &got))
		check_packet(bytes, before + size + ROCE_ICRC, &got);
	if (network != VB_ROCE_V1) {
		uint8_t *alone = copy_of(bth, size + ROCE_ICRC);

		if (!vb_roce_decode_udp(&route, alone, size + ROCE_ICRC, &got))
			check_packet(alone, size + ROCE_ICRC, &got);
		free(alone);
	}
	free(bytes);
}

static void encode(const uint8_t *data, size_t size)
{
	static struct roce_case c, want;
	static uint8_t frame[ROCE_FRAME_MAX];

	roce_case_make(&c, data, size);
	for (int from = VB_ROCE_ETHERNET; from <= VB_ROCE_BTH; from++) {
		size_t len = roce_case_encode(&c, (enum vb_roce_from)from, frame);
		struct vb_roce_packet got;
		uint8_t *bytes;

		if (!len)
			return;
		if (from == VB_ROCE_BTH && c.route.network == VB_ROCE_V1)
			return;
		bytes = copy_of(frame, len);
		roce_case_expect(&c, (enum vb_roce_from)from, &want);
		if (roce_case_decode(&c, (enum vb_roce_from)from, bytes, len, &got) ||
		    roce_differ(&want.route, &want.pkt, &got))
			abort();
		free(bytes);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned int kind = size ? data[0] % 8 : 0;

	if (!size)
		return 0;
	if (kind < 4)
		decode(kind, data + 1, size - 1);
	else if (kind < 7)
		decode_behind_icrc((uint8_t)(kind - 4), data + 1, size - 1);
	else
		encode(data + 1, size - 1);
	return 0;
}
