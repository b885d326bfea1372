// SPDX-License-Identifier: MIT
/*
 * Owns which bytes the ICRC covers (IBTA 7.8.1, A16.5.1, A17.3.3): eight bytes of ones in place of the local
 * route header that RoCE does not have, then the packet with ones in the fields that may change on the way.
 *
 *	IPv4      type of service, time to live, checksum
 *	IPv6, GRH traffic class, flow label, hop limit
 *	UDP       checksum
 *	BTH       byte 4: FECN, BECN and six reserved bits
 *
 * It is sent the low byte first, as an FCS.
 */
#include "packet/icrc.h"

#include <endian.h>
#include <string.h>

#include "packet/frame/bytes.h"
#include "packet/network.h"
#include "packet/opcodes.h"

enum { ICRC_LRH = 8 };

uint32_t vb_icrc_begin(uint8_t network, const uint8_t *header)
{
	uint8_t masked[ICRC_LRH + VB_NETWORK_MAX + ROCE_BTH], *at = masked + ICRC_LRH;
	uint32_t size = vb_network_size(network);

	memset(masked, 0xff, ICRC_LRH);
	memcpy(at, header, size + ROCE_BTH);
	if (network == VB_ROCE_IPV4) {
		at[1] = at[8] = 0xff;
		write16(at + 10, 0xffff);
	} else {
		write32(at, 0x6fffffff);
		at[7] = 0xff;
	}
	at += size;
	if (network != VB_ROCE_V1)
		write16(at - 2, 0xffff);
	at[4] = 0xff;
	return vb_frame_crc(0xffffffff, masked, ICRC_LRH + size + ROCE_BTH);
}

void vb_icrc_put(uint32_t crc, uint8_t *at)
{
	crc = htole32(~crc);
	memcpy(at, &crc, sizeof(crc));
}

bool vb_icrc_is(uint32_t crc, const uint8_t *at)
{
	uint8_t right[4];

	vb_icrc_put(crc, right);
	return !memcmp(right, at, sizeof(right));
}
