/* SPDX-License-Identifier: MIT */
/*
 * The invariant CRC of RoCE: over what does not change on the way. The folder's own.
 *
 *	crc = vb_icrc_begin(network, first byte of the GRH or IP header)
 *	crc = vb_frame_crc(crc, ...)     headers behind the BTH, data, pad
 *	vb_icrc_put(crc, first byte behind)
 */
#pragma once

#include "packet/roce.h"

/* The register behind the BTH, which follows the network's headers in memory. */
uint32_t vb_icrc_begin(uint8_t network, const uint8_t *header);
void vb_icrc_put(uint32_t crc, uint8_t *at);
bool vb_icrc_is(uint32_t crc, const uint8_t *at);
