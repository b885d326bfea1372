// SPDX-License-Identifier: MIT
/* Owns the link to QPs of the same host: the card calls its own responder instead of sending. */
#include "fabric/nowhere.h"
#include "fabric/state.h"

static int loop_peek(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		     bool local, uint32_t qpn)
{
	if (!local || vb_qpn_slot(qpn) != link->fabric->segment->slot)
		return -ENETUNREACH;
	*path = (struct vb_path){ .link = link,
				  .caps = VB_PATH_REACHES | VB_PATH_CALLS,
				  .mtu = UINT32_MAX,
				  .span = UINT32_MAX };
	return 0;
}

static int loop_open(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		     bool local, uint32_t qpn, uint32_t from)
{
	return loop_peek(link, path, to, local, qpn);
}

const struct vb_link_ops vb_loop_ops = {
	.name = "loop",
	.peek = loop_peek,
	.open = loop_open,
	VB_NOWHERE_OPS,
};
