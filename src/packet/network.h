/* SPDX-License-Identifier: MIT */
/*
 * What carries a BTH: a GRH (RoCE v1), or IPv4 or IPv6 with UDP (RoCE v2). The folder's own.
 */
#pragma once

#include "packet/roce.h"

enum { VB_NETWORK_MAX = 48 }; /* bytes of the largest: IPv6 and UDP */

/* Bytes in front of the BTH. */
uint32_t vb_network_size(uint8_t network);
/* The headers in front of len bytes from the BTH on; without a UDP checksum. Returns the first byte behind. */
uint8_t *vb_network_put(uint8_t *at, const struct vb_roce_route *route, uint32_t len);
/*
 * Check the headers at the beginning of len bytes and put what they say into the route, whose network is set;
 * *bth_len: bytes from the BTH on.
 */
enum vb_roce_error vb_network_get(const uint8_t *at, size_t len, struct vb_roce_route *route,
				  size_t *bth_len);
