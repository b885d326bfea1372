/* SPDX-License-Identifier: MIT */
/*
 * What the machine's network interfaces are, as far as an adapter cares: name, addresses, MAC, MTU.
 *
 * A snapshot: taken once, when the configuration is read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <net/if.h>
#include <netinet/in.h>

enum { VB_INTERFACE_MAX = 64, VB_INTERFACE_MAX_ADDRESSES = 8 };

struct vb_interface {
	char name[IF_NAMESIZE];
	unsigned int index;
	unsigned int mtu; /* of the interface, in bytes */
	uint8_t mac[6];
	bool up;
	bool loopback;
	bool reachable;           /* has an IPv4 or a global IPv6 address */
	struct in_addr loop_mask; /* loopback only: every IPv4 address under this mask is local */
	unsigned int num_ipv4;    /* these come first in address[] */
	unsigned int num_addresses;
	struct in6_addr address[VB_INTERFACE_MAX_ADDRESSES]; /* IPv4 as ::ffff:a.b.c.d */
};

struct vb_interfaces {
	unsigned int count;
	struct vb_interface list[VB_INTERFACE_MAX]; /* by index */
};

/* All interfaces of this network namespace. 0 or -errno. */
int vb_interfaces_read(struct vb_interfaces *all);

/* NULL where there is none. */
const struct vb_interface *vb_interface_by_name(const struct vb_interfaces *all, const char *name);
const struct vb_interface *vb_interface_by_address(const struct vb_interfaces *all,
						   const struct in6_addr *address);
/*
 * The k-th interface that can carry traffic to others (up, no loopback, with an address), the last
 * one where there are fewer, NULL where there is none.
 */
const struct vb_interface *vb_interface_usable(const struct vb_interfaces *all, unsigned int k);

/* The largest path MTU (256 ... 4096) whose packets fit the interface's MTU. */
unsigned int vb_interface_path_mtu(const struct vb_interface *interface);
