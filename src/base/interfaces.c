// SPDX-License-Identifier: MIT
/*
 * Reads the machine's interfaces with getifaddrs(3). That call gives one entry per address, each
 * with the name of its interface, in no promised order; here they are gathered by interface, IPv4
 * in front of IPv6, because that is the order in which a RoCE card's GID table lists them.
 *
 * Called by config.c only.
 */
#include "base/interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <netpacket/packet.h>

/* IPv6, UDP and BTH headers: what a RoCE v2 packet carries in front of its payload on the wire. */
enum { HEADER_BYTES = 60, DEFAULT_MTU = 1500 };

/* An address label such as "eth0:1" is still eth0. */
static void interface_name(char name[IF_NAMESIZE], const char *label)
{
	size_t len = strcspn(label, ":");

	if (len >= IF_NAMESIZE)
		len = IF_NAMESIZE - 1;
	memcpy(name, label, len);
	name[len] = '\0';
}

static unsigned int read_mtu(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq req = { 0 };
	unsigned int mtu = DEFAULT_MTU;

	if (fd < 0)
		return mtu;
	memcpy(req.ifr_name, name, IF_NAMESIZE);
	if (!ioctl(fd, SIOCGIFMTU, &req) && req.ifr_mtu > 0)
		mtu = (unsigned int)req.ifr_mtu;
	close(fd);
	return mtu;
}

static struct vb_interface *find_or_add(struct vb_interfaces *all, const struct ifaddrs *entry)
{
	char name[IF_NAMESIZE] = "";
	struct vb_interface *interface;

	interface_name(name, entry->ifa_name);
	for (unsigned int i = 0; i < all->count; i++)
		if (!strcmp(all->list[i].name, name))
			return &all->list[i];
	if (all->count == VB_INTERFACE_MAX)
		return NULL;
	interface = &all->list[all->count++];
	memset(interface, 0, sizeof(*interface));
	memcpy(interface->name, name, sizeof(name));
	interface->index = if_nametoindex(name);
	interface->mtu = read_mtu(name);
	interface->up = entry->ifa_flags & IFF_UP;
	interface->loopback = entry->ifa_flags & IFF_LOOPBACK;
	return interface;
}

static void add_ipv4(struct vb_interface *interface, const struct ifaddrs *entry)
{
	const struct sockaddr_in *sin = (const struct sockaddr_in *)entry->ifa_addr;
	struct in6_addr mapped = { 0 };
	unsigned int behind = interface->num_addresses - interface->num_ipv4;

	mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
	memcpy(&mapped.s6_addr[12], &sin->sin_addr, 4);
	if (interface->loopback && entry->ifa_netmask)
		interface->loop_mask = ((const struct sockaddr_in *)entry->ifa_netmask)->sin_addr;
	interface->reachable = true;
	if (interface->num_ipv4 == VB_INTERFACE_MAX_ADDRESSES)
		return;
	if (interface->num_addresses == VB_INTERFACE_MAX_ADDRESSES)
		behind--; /* full: the last IPv6 address makes room */
	else
		interface->num_addresses++;
	memmove(&interface->address[interface->num_ipv4 + 1],
		&interface->address[interface->num_ipv4], behind * sizeof(mapped));
	interface->address[interface->num_ipv4++] = mapped;
}

static void add_ipv6(struct vb_interface *interface, const struct ifaddrs *entry)
{
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)entry->ifa_addr;

	if (!IN6_IS_ADDR_LINKLOCAL(&sin6->sin6_addr))
		interface->reachable = true;
	if (interface->num_addresses < VB_INTERFACE_MAX_ADDRESSES)
		interface->address[interface->num_addresses++] = sin6->sin6_addr;
}

static void interfaces_add_entry(struct vb_interfaces *all, const struct ifaddrs *entry)
{
	struct vb_interface *interface = find_or_add(all, entry);

	if (!interface || !entry->ifa_addr)
		return;
	switch (entry->ifa_addr->sa_family) {
	case AF_PACKET: {
		const struct sockaddr_ll *sll = (const struct sockaddr_ll *)entry->ifa_addr;

		if (sll->sll_halen == sizeof(interface->mac))
			memcpy(interface->mac, sll->sll_addr, sizeof(interface->mac));
		break;
	}
	case AF_INET:
		add_ipv4(interface, entry);
		break;
	case AF_INET6:
		add_ipv6(interface, entry);
		break;
	}
}

static int by_index(const void *a, const void *b)
{
	const struct vb_interface *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

int vb_interfaces_read(struct vb_interfaces *all)
{
	struct ifaddrs *entries;

	if (getifaddrs(&entries))
		return -errno;
	all->count = 0;
	for (struct ifaddrs *e = entries; e; e = e->ifa_next)
		interfaces_add_entry(all, e);
	freeifaddrs(entries);
	qsort(all->list, all->count, sizeof(all->list[0]), by_index);
	return 0;
}

const struct vb_interface *vb_interface_by_name(const struct vb_interfaces *all, const char *name)
{
	for (unsigned int i = 0; i < all->count; i++)
		if (!strcmp(all->list[i].name, name))
			return &all->list[i];
	return NULL;
}

static bool interfaces_has_address(const struct vb_interface *interface,
				   const struct in6_addr *address)
{
	for (unsigned int i = 0; i < interface->num_addresses; i++)
		if (IN6_ARE_ADDR_EQUAL(&interface->address[i], address))
			return true;
	/* All of 127.0.0.0/8 is this host, though only 127.0.0.1 is listed. */
	if (interface->loop_mask.s_addr && interface->num_ipv4 && IN6_IS_ADDR_V4MAPPED(address))
		return !((interface->address[0].s6_addr32[3] ^ address->s6_addr32[3]) &
			 interface->loop_mask.s_addr);
	return false;
}

const struct vb_interface *vb_interface_by_address(const struct vb_interfaces *all,
						   const struct in6_addr *address)
{
	for (unsigned int i = 0; i < all->count; i++)
		if (interfaces_has_address(&all->list[i], address))
			return &all->list[i];
	return NULL;
}

const struct vb_interface *vb_interface_usable(const struct vb_interfaces *all, unsigned int k)
{
	const struct vb_interface *last = NULL;

	for (unsigned int i = 0, n = 0; i < all->count && n <= k; i++) {
		const struct vb_interface *interface = &all->list[i];

		if (interface->up && !interface->loopback && interface->reachable) {
			last = interface;
			n++;
		}
	}
	return last;
}

unsigned int vb_interface_path_mtu(const struct vb_interface *interface)
{
	unsigned int mtu = 4096;

	while (mtu > 256 && mtu + HEADER_BYTES > interface->mtu)
		mtu /= 2;
	return mtu;
}
