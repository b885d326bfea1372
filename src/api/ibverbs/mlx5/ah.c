// SPDX-License-Identifier: MIT
/* Address handles of an mlx5 card: the address vector of its datagram segments. */
#include "mlx5.h"

#include "card/card.h"

static_assert(sizeof(struct mlx5_wqe_av) == 48, "address vector");

enum { AV_GRH = 1u << 30, AV_SGID_SHIFT = 20, AV_FLOW_MASK = 0xfffff };

void mlx5_ah_fill(struct api_ah *ah, const struct vb_adapter *adapter,
		  const struct ibv_ah_attr *attr, const uint8_t mac[ETHERNET_LL_SIZE])
{
	const struct ibv_global_route *grh = &attr->grh;
	struct mlx5_wqe_av *av = &to_mlx5_ah(ah)->av;

	av->stat_rate_sl = (uint8_t)(attr->static_rate << 4 | (attr->sl & 7) << 1);
	av->fl_mlid = attr->src_path_bits & 0x7f;
	/* RoCE v2: UDP source port */
	av->rlid = htobe16(adapter->gids[grh->sgid_index].type == IBV_GID_TYPE_ROCE_V2
				   ? ibv_flow_label_to_udp_sport(grh->flow_label)
				   : attr->dlid);
	av->tclass = grh->traffic_class;
	av->hop_limit = grh->hop_limit;
	av->grh_gid_fl = htobe32(AV_GRH | (uint32_t)grh->sgid_index << AV_SGID_SHIFT |
				 (grh->flow_label & AV_FLOW_MASK));
	memcpy(av->rgid, grh->dgid.raw, sizeof(av->rgid));
	memcpy(av->rmac, mac, sizeof(av->rmac));
}
