// SPDX-License-Identifier: MIT
/*
 * Owns which of a host's links leads to an address, and the path to no host at all.
 *
 *	address, QP number --> loop: this host? --> shm: a host in the registry? --> further links --> vb_path_none
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
	struct vb_address full = *to;

	full.is_local = address_is_local(fabric, to);
	*path = vb_path_none;
	for (struct vb_link *link = fabric->links; link; link = link->next)
		if (link->ops->peek(link, path, &full, qpn) != -ENETUNREACH)
			break;
	path->transport = to->transport;
}

int vb_path_open(struct vb_fabric *fabric, struct vb_path *path, const struct vb_address *to,
		 uint32_t qpn, uint32_t from)
{
	struct vb_address full = *to;
	int ret = -ENETUNREACH;

	vb_read_lock();
	full.is_local = address_is_local(fabric, to);
	*path = vb_path_none;
	for (struct vb_link *link = fabric->links; link && ret == -ENETUNREACH; link = link->next)
		ret = link->ops->open(link, path, &full, qpn, from);
	vb_read_unlock();
	path->transport = to->transport;
	return ret == -ENETUNREACH ? 0 : ret;
}

int vb_path_open_slot(struct vb_fabric *fabric, struct vb_path *path, uint32_t slot, uint32_t from)
{
	return vb_path_open(fabric, path, &(struct vb_address){ 0 }, slot << VB_QPN_INDEX_BITS,
			    from);
}
