// SPDX-License-Identifier: MIT
/*
 * Random bytes as what another process has put into its ring to us: no record makes the consumer look outside of the
 * ring, and what it takes for a packet is one. The first eight bytes also are what it says about where a further ring is:
 * that has the size of a ring, or none.
 *
 *	1 byte     size of the ring: mostly the smallest, because it is the fastest to make
 *	2 bytes    where the consumer stands, in lines
 *	then, as often as there are bytes for it:
 *	1 byte     how many lines further the next record lies, and whether the consumer looks before it is written
 *	1 byte     how many bytes of it follow, up to 127; with the top bit set a correct commit word comes before them
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct vb_ring_rx *rx, const struct vb_pkt *pkt, const struct iovec *iov,
		  const struct vb_grh *grh)
{
	const uint8_t *record = &rx->shared->data[rx->head & (rx->size - 1)], *at = iov->iov_base;
	volatile uint8_t sum = 0;

	if (pkt->op >= VB_PKT_OPS || !rx->record_bytes || rx->record_bytes % VB_RING_LINE ||
	    rx->record_bytes > rx->size)
		abort();
	if (pkt->grh && pkt->grh != grh)
		abort();
	if (!pkt->iov_cnt) {
		if (!pkt->source.lkey || pkt->len > VB_PULL_MAX)
			abort();
		return;
	}
	if (pkt->iov != iov || iov->iov_len != pkt->len || pkt->source.lkey ||
	    pkt->len > vb_ring_max(rx->size, pkt->transport) || at < record ||
	    at + pkt->len > record + rx->record_bytes ||
	    record + rx->record_bytes > rx->shared->data + rx->size)
		abort();
	/* The sanitizer says whether it is there. */
	for (uint32_t i = 0; i < pkt->len; i++)
		sum = (uint8_t)(sum + at[i]);
}

/* As drain() does it; a producer can make it go round for ever, so there is an end. False: the ring is given up. */
static bool consume(struct vb_ring_rx *rx)
{
	for (uint64_t n = 0; n < 2 * rx->size / VB_RING_LINE; n++) {
		struct vb_grh grh;
		struct vb_pkt pkt;
		struct iovec iov;
		int ret = vb_ring_peek(rx, &pkt, &iov, &grh);

		if (ret < 0 && ret != -EPROTO)
			abort();
		if (ret <= 0)
			return !ret;
		check(rx, &pkt, &iov, &grh);
		vb_ring_next(rx);
	}
	vb_ring_release(rx);
	return true;
}

static void write_record(struct vb_ring_shared *shared, uint64_t ring, uint64_t at,
			 const uint8_t *bytes, uint64_t len, bool commit)
{
	uint64_t offset = at & (ring - 1);
	uint32_t lines = (uint32_t)((len + 4 + VB_RING_LINE - 1) / VB_RING_LINE);

	if (commit) {
		memcpy(&shared->data[offset], &lines, 4);
		offset += 4;
	}
	if (len > ring - offset)
		len = ring - offset;
	memcpy(&shared->data[offset], bytes, len);
}

static void check_place(const uint8_t *data)
{
	uint64_t place, offset;
	uint32_t size;

	memcpy(&place, data, sizeof(place));
	size = vb_ring_place_size(place);
	offset = vb_ring_place_offset(place);
	if (offset % VB_RING_LINE || (size && (size < VB_RING_MIN || size > VB_RING_MAX)) ||
	    (size & (size - 1)))
		abort();
	if (size && vb_ring_place(vb_ring_place_generation(place), offset, size) != place)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_ring_rx rx = { 0 };
	uint64_t at;

	if (size >= 8)
		check_place(data);
	if (size < 3)
		return 0;
	rx.size = data[0] % 16 ? VB_RING_MIN : VB_RING_MAX;
	/* Exactly as large as it is, so that the byte behind it is not there. */
	rx.shared = aligned_alloc(VB_RING_LINE, sizeof(*rx.shared) + rx.size);
	if (!rx.shared)
		return 0;
	memset(rx.shared, 0, sizeof(*rx.shared) + rx.size);
	at = (uint64_t)(data[1] | data[2] << 8) * VB_RING_LINE;
	rx.looked = at;
	vb_ring_move(&rx, at);
	data += 3;
	size -= 3;
	while (size > 2) {
		uint64_t len = data[1] & 127;

		if ((data[0] & 128) && !consume(&rx))
			break;
		len = len < size - 2 ? len : size - 2;
		write_record(rx.shared, rx.size, at, data + 2, len, data[1] & 128);
		at += (uint64_t)(data[0] & 127) * VB_RING_LINE;
		data += 2 + len;
		size -= 2 + len;
	}
	consume(&rx);
	free(rx.shared);
	return 0;
}
