// SPDX-License-Identifier: MIT
/*
 * Owns which of a host's links leads to an address, and the path to no host at all.
 *
 *	address, QP number --> shm: another host in the registry? --> loop: this one? --> further links --> vb_path_none
 */
#include <errno.h>

#include "base/rcu.h"
#include "fabric/nowhere.h"
#include "fabric/state.h"

static const struct vb_link_ops none_ops = {
	.name = "none",
	VB_NOWHERE_OPS,
};

static const struct vb_link none_link = { .ops = &none_ops };

const struct vb_path vb_path_none = { .link = (struct vb_link *)&none_link,
				      .mtu = VB_SHM_SPAN,
				      .span = VB_SHM_SPAN };

static bool address_is_local(struct vb_fabric *fabric, const struct vb_address *to)
{
	return !to->dgid || fabric->sink->is_local(fabric->card, to->dgid);
}

void vb_path_peek(struct vb_fabric *fabric, struct vb_path *path, const struct vb_address *to,
		  uint32_t qpn)
{
	bool local = address_is_local(fabric, to);
	struct vb_link *link = fabric->links;

	while (link && link->ops->peek(link, path, to, local, qpn) == -ENETUNREACH)
		link = link->next;
	if (!link)
		*path = vb_path_none;
	path->transport = to->transport;
}

int vb_path_open(struct vb_fabric *fabric, struct vb_path *path, const struct vb_address *to,
		 uint32_t qpn, uint32_t from)
{
	struct vb_link *link = fabric->links;
	int ret = -ENETUNREACH;
	bool local;

	vb_read_lock();
	local = address_is_local(fabric, to);
	while (link && (ret = link->ops->open(link, path, to, local, qpn, from)) == -ENETUNREACH)
		link = link->next;
	if (ret)
		*path = vb_path_none;
	path->transport = to->transport;
	vb_read_unlock();
	return ret == -ENETUNREACH ? 0 : ret;
}

int vb_path_open_slot(struct vb_fabric *fabric, struct vb_path *path, uint32_t slot, uint32_t from)
{
	return vb_path_open(fabric, path, &(struct vb_address){ 0 }, slot << VB_QPN_INDEX_BITS,
			    from);
}
