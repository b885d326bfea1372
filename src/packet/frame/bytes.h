/* SPDX-License-Identifier: MIT */
/* Loads and stores of big-endian fields of frames, and the numbers of protocols. */
#pragma once

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "packet/frame/frame.h"

enum {
	ETH_IPV4 = 0x0800,
	ETH_IPV6 = 0x86dd,
	ETH_CVLAN = 0x8100,
	ETH_SVLAN = 0x88a8,
	ETH_MPLS = 0x8847,
	ETH_MPLS_MULTICAST = 0x8848,
	ETH_BRIDGED = 0x6558, /* an Ethernet frame in GRE or Geneve */
	VLAN_TAG = 4,
	IPV4_HEADER = 20,
	IPV6_HEADER = 40,
	TCP_HEADER = 20,
	UDP_HEADER = 8,
};

struct bytes2 {
	uint16_t value;
} __attribute__((packed, may_alias));

struct bytes4 {
	uint32_t value;
} __attribute__((packed, may_alias));

/* One load each, whoever else writes there: the compiler may not repeat a volatile access. */
static inline uint8_t read8(const uint8_t *at)
{
	return *(const volatile uint8_t *)at;
}

static inline uint16_t read16(const uint8_t *at)
{
	return be16toh(((const volatile struct bytes2 *)at)->value);
}

static inline uint32_t read32(const uint8_t *at)
{
	return be32toh(((const volatile struct bytes4 *)at)->value);
}

static inline void write16(uint8_t *at, uint32_t value)
{
	((struct bytes2 *)at)->value = htobe16((uint16_t)value);
}

static inline void write32(uint8_t *at, uint32_t value)
{
	((struct bytes4 *)at)->value = htobe32(value);
}
