/* SPDX-License-Identifier: MIT */
/*
 * Packets of every kind for tests of packet/roce.h: made of random bytes, encoded, and compared with what the
 * decoder says. What the packet must have become is worked out here by hand, not by the tables of src/packet.
 */
#pragma once

#include "packet/roce.h"

enum { ROCE_FRAME_MAX = VB_ROCE_HEAD_MAX + VB_FRAME_MAX + VB_ROCE_TAIL_MAX };

struct roce_case {
	struct vb_roce_route route;
	struct vb_pkt pkt;
	struct iovec iov[3];
	uint8_t data[VB_FRAME_MAX];
};

/* Any operation, transport and flags, also those that do not go together. Missing bytes are 0. */
void roce_case_make(struct roce_case *c, const uint8_t *bytes, size_t size);
/* Set the length of the data, in three pieces. */
void roce_case_set_len(struct roce_case *c, uint32_t len);
/* The bytes of the packet into out, of ROCE_FRAME_MAX; their number, or 0 where vb_roce_encode() refuses. */
size_t roce_case_encode(const struct roce_case *c, enum vb_roce_from from, uint8_t *out);
/* What should come out of that; data stays where it is. */
void roce_case_expect(const struct roce_case *c, enum vb_roce_from from, struct roce_case *want);
/* NULL, or the name of the first field that differs. */
const char *roce_differ(const struct vb_roce_route *route, const struct vb_pkt *pkt,
			const struct vb_roce_packet *got);
/* Decode from where it was encoded. */
enum vb_roce_error roce_case_decode(const struct roce_case *c, enum vb_roce_from from,
				    const uint8_t *bytes, size_t len, struct vb_roce_packet *got);
