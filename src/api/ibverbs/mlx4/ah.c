// SPDX-License-Identifier: MIT
/*
 * Address handles of an mlx4 card: the address vector of its datagram segments, and the MAC behind
 * it.
 */
#include "mlx4.h"

#include "card/card.h"

enum { AV_GRH = 0x80, AV_FLOW_MASK = 0xfffff };

void mlx4_ah_fill(struct api_ah *api, const struct vb_adapter *adapter,
		  const struct ibv_ah_attr *attr, const uint8_t mac[ETHERNET_LL_SIZE])
{
	const struct ibv_global_route *grh = &attr->grh;
	struct mlx4_ah *ah = to_mlx4_ah(api);
	struct mlx4_av *av = &ah->av;

	av->port_pd = htobe32((uint32_t)attr->port_num << 24);
	av->g_slid = AV_GRH | (attr->src_path_bits & 0x7f);
	av->gid_index = grh->sgid_index;
	av->stat_rate = attr->static_rate;
	av->hop_limit = grh->hop_limit;
	/* Ethernet: the priority has three bits. */
	av->sl_tclass_flowlabel =
		htobe32((uint32_t)(attr->sl & 7) << 29 | (uint32_t)grh->traffic_class << 20 |
			(grh->flow_label & AV_FLOW_MASK));
	memcpy(av->dgid, grh->dgid.raw, sizeof(av->dgid));
	memcpy(ah->mac, mac, sizeof(ah->mac));
}
