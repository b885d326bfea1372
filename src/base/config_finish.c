// SPDX-License-Identifier: MIT
/*
 * Owns what a configuration leaves open: defaults, and what the machine's interfaces say. Called by
 * config.c, when all keys were read.
 */
#include "base/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/interfaces.h"

enum {
	DEFAULT_HBL_PORTS = 4,
	DEFAULT_FUNCTIONS = 4,
	DEFAULT_QUEUES = 64,   /* and vectors of a function */
	DEFAULT_PART = 0xa2dc, /* BlueField-3 */
};

_Static_assert((int)VB_INTERFACE_MAX_ADDRESSES == (int)VB_CONFIG_MAX_ADDRESSES,
	       "an interface's addresses are copied as a whole");

static void take_interface(struct vb_config_adapter *a, const struct vb_interface *interface)
{
	a->ifindex = interface->index;
	memcpy(a->interface, interface->name, sizeof(a->interface));
	memcpy(a->mac, interface->mac, sizeof(a->mac));
	if (!a->mtu)
		a->mtu = vb_interface_path_mtu(interface);
}

static void take_addresses(struct vb_config_adapter *a, const struct vb_interface *interface)
{
	memcpy(a->address, interface->address, sizeof(a->address));
	a->num_addresses = interface->num_addresses;
}

/* Nothing was configured: the k-th usable interface, or this host alone. */
static void finish_automatic(struct vb_config_adapter *a, const struct vb_interfaces *all,
			     unsigned int k)
{
	static const struct in6_addr localhost = { .s6_addr = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff,
								0xff, 127, 0, 0, 1 } };
	const struct vb_interface *interface = vb_interface_usable(all, k);

	if (interface) {
		take_interface(a, interface);
		take_addresses(a, interface);
		return;
	}
	interface = vb_interface_by_address(all, &localhost);
	if (interface)
		take_interface(a, interface);
	a->address[0] = localhost;
	a->num_addresses = 1;
}

/* The addresses are the adapter's whatever the machine has; one that it lacks takes the port down.
 */
static void finish_by_address(struct vb_config_adapter *a, const struct vb_interfaces *all)
{
	for (unsigned int i = 0; i < a->num_addresses; i++) {
		const struct vb_interface *interface = vb_interface_by_address(all, &a->address[i]);

		if (!interface || !interface->up)
			a->down = true;
		else if (!a->ifindex)
			take_interface(a, interface);
	}
}

static void finish_by_interface(struct vb_config_adapter *a, const struct vb_interfaces *all)
{
	const struct vb_interface *interface = vb_interface_by_name(all, a->interface);

	if (!interface) {
		a->down = true;
		return;
	}
	take_interface(a, interface);
	take_addresses(a, interface);
	a->down = !interface->up || !interface->num_addresses;
}

static void finish_functions(struct vb_config_adapter *a)
{
	if (a->functions == VB_CONFIG_NO_FUNCTIONS || a->format != VB_FORMAT_MLX5)
		a->functions = 0;
	else if (!a->functions)
		a->functions = DEFAULT_FUNCTIONS;
	if (!a->function_queues)
		a->function_queues = DEFAULT_QUEUES;
	if (!a->function_vectors)
		a->function_vectors = DEFAULT_QUEUES;
}

static void finish_adapter(struct vb_config_adapter *a, const struct vb_interfaces *all,
			   unsigned int k)
{
	if (a->interface[0])
		finish_by_interface(a, all);
	else if (a->num_addresses)
		finish_by_address(a, all);
	else
		finish_automatic(a, all, k);
	if (!a->cqe_size)
		a->cqe_size = 64;
	if (!a->cable[0])
		memcpy(a->cable, "default", sizeof("default"));
	if (!a->part && a->format == VB_FORMAT_MLX5)
		a->part = DEFAULT_PART;
	if (!a->ports)
		a->ports = a->format == VB_FORMAT_HBL ? DEFAULT_HBL_PORTS : 1;
	if (!a->mtu)
		a->mtu = 4096; /* no interface, so no wire that could be too narrow */
	finish_functions(a);
}

void vb_config_finish(struct vb_config *config)
{
	struct vb_interfaces *all = calloc(1, sizeof(*all));
	static const struct vb_interfaces none;

	if (all && vb_interfaces_read(all))
		all->count = 0; /* a sandbox without netlink still has this host */
	for (unsigned int k = 0; k < config->num_adapters; k++)
		finish_adapter(&config->adapter[k], all ? all : &none, k);
	free(all);
}
