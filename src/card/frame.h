/* SPDX-License-Identifier: MIT */
/*
 * Bytes of an Ethernet frame: where its headers are, checksums, the hash that spreads frames over receive queues.
 *
 * A frame may lie in memory that another process goes on writing. So what is read from it once is kept in struct
 * vb_frame, and whatever is read later decides about no address.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "card/card.h"

enum { VB_FRAME_HEADER = 14 }; /* a frame has at least this */

struct vb_frame {
	uint8_t *data;
	uint32_t len;
	uint32_t l3, l4;  /* offsets of the headers; 0: none that is known */
	uint32_t l3_len;  /* IPv4: bytes of the header */
	uint32_t end;     /* of what IP carries: a short frame is padded behind it */
	bool ipv4;        /* l3 */
	uint8_t protocol; /* of l4: TCP or UDP */
	bool has_vlan;
	uint16_t vlan;   /* the tag behind its type: priority, number */
	uint32_t status; /* as CQEs have it */
	uint16_t checksum;
};

/* Find the headers; data and len are set. */
void vb_frame_parse(struct vb_frame *f);
/* What the sender asked the card to fill in: VB_WR_IP_CSUM, VB_WR_L4_CSUM. */
void vb_frame_fill_checksums(struct vb_frame *f, uint8_t flags);
/* Set what a receiver is told: status and checksum. */
void vb_frame_classify(struct vb_frame *f);
/* Over the fields that the receiver hashes, of those that the frame has. */
uint32_t vb_frame_hash(const struct vb_frame *f, const struct vb_rss *rss);
