// SPDX-License-Identifier: MIT
/* The mlx5 provider: its table and its contexts. */
#include "mlx5.h"

#include "card/ether/flow.h"
#include "card/queue/doorbell.h"
#include "card/queue/qp.h"
#include "host/trap/trap.h"

/* The doorbell page is made when direct verbs first ask for it. */
static char *mlx5_provider_uar_page(struct api_context *ctx)
{
	struct mlx5_context *own = to_mlx5_context(ctx);
	char *page;

	api_context_lock(&ctx->verbs.context);
	if (!own->uar && vb_uar_create(ctx->dev, &own->uar))
		own->uar = NULL;
	page = vb_uar_page(own->uar);
	api_context_unlock(&ctx->verbs.context);
	return page;
}

static int mlx5_provider_context_open(struct api_context *ctx, void *private_data)
{
	struct mlx5_context *own = to_mlx5_context(ctx);

	own->transport_domain = vb_transport_domain_take(vb_dev_adapter(ctx->dev)->card);
	return own->transport_domain ? 0 : -ENOMEM;
}

/* --- reserved numbers of QPs ------------------------------------------------------------------ */

static int reserve_qpn(struct ibv_context *context, uint32_t *qpn)
{
	struct mlx5_context *own = to_mlx5_context(to_context(context));
	struct mlx5_reserved *reserved = calloc(1, sizeof(*reserved));
	int rc = reserved ? vb_qpn_take(own->api.dev, &reserved->qpn)
			  : vb_refuse_memory("the reservation");

	if (rc) {
		free(reserved);
		return -rc;
	}
	*qpn = reserved->qpn;
	api_context_lock(context);
	reserved->next = own->reserved;
	own->reserved = reserved;
	api_context_unlock(context);
	return 0;
}

static int release_qpn(struct ibv_context *context, uint32_t qpn)
{
	struct mlx5_reserved **link = &to_mlx5_context(to_context(context))->reserved, *found;

	api_context_lock(context);
	while (*link && (*link)->qpn != qpn)
		link = &(*link)->next;
	found = *link;
	if (found)
		*link = found->next;
	api_context_unlock(context);
	if (!found)
		return -vb_refuse_value("qpn", qpn);
	vb_qpn_give(to_context(context)->dev, qpn);
	free(found);
	return 0;
}

static void mlx5_provider_context_close(struct api_context *ctx)
{
	struct mlx5_context *own = to_mlx5_context(ctx);

	while (own->reserved)
		release_qpn(&ctx->verbs.context, own->reserved->qpn);
	vb_uar_destroy(to_mlx5_context(ctx)->uar);
	vb_transport_domain_give(vb_dev_adapter(ctx->dev)->card,
				 to_mlx5_context(ctx)->transport_domain);
}

static struct mlx5_wqe_av *av(struct ibv_ah *ah)
{
	return &to_mlx5_ah(to_ah(ah))->av;
}

static struct mlx5dv_qp_ex *qp_ex(struct ibv_qp_ex *qp)
{
	return &((struct mlx5_qp *)qp)->dv;
}

static void *dm_memory(struct ibv_dm *dm, size_t *length)
{
	*length = to_dm(dm)->length;
	return to_dm(dm)->buf;
}

static uint32_t transport_domain(struct ibv_context *context)
{
	return to_mlx5_context(to_context(context))->transport_domain;
}

static uint8_t loopback(struct ibv_qp *qp)
{
	return ((const struct mlx5_qp *)to_qp(qp))->loopback;
}

static struct ibv_wq *create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr,
				const struct mlx5dv_wq_init_attr *direct)
{
	return api_wq_create_direct(context, attr, direct);
}

static const struct vb_verbs_mlx5 own_accessors = {
	.av = av,
	.create_cq = mlx5_cq_create_direct,
	.create_wq = create_wq,
	.qp_ex = qp_ex,
	.cancel = mlx5_qp_cancel,
	.max_memcpy = MLX5_MAX_MEMCPY,
	.reserve_qpn = reserve_qpn,
	.release_qpn = release_qpn,
	.dm = dm_memory,
	.dm_ops = VB_TRAP_OPS ? (1u << API_DM_OPS) - 1 : 0,
	.dm_map_op = api_dm_map_op,
	.transport_domain = transport_domain,
	.loopback = loopback,
};

static const struct verbs_ex_private accessors = {
	.format = VB_FORMAT_MLX5,
	.objects = &api_objects,
	.rings = &api_rings,
	.mlx5 = &own_accessors,
};

const struct api_provider api_mlx5 = {
	.timestamp_mask = UINT64_MAX,
	.raw = true,
	.max_flow_priority = 15,
	.max_dm = 256 << 10,
	.raw_caps = { .packet = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING |
				IBV_RAW_PACKET_CAP_SCATTER_FCS | IBV_RAW_PACKET_CAP_IP_CSUM,
		      .wq_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING | IBV_WQ_FLAGS_SCATTER_FCS |
				  IBV_WQ_FLAGS_PCI_WRITE_END_PADDING,
		      .qp_flags = IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SCATTER_FCS |
				  IBV_QP_CREATE_PCI_WRITE_END_PADDING |
				  IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
		      .rx_hash_fields = API_RX_HASH_FIELDS | IBV_RX_HASH_IPSEC_SPI |
					(uint64_t)IBV_RX_HASH_INNER,
		      .max_tso = VB_MAX_TSO,
		      .max_rate = 100000000,
		      .wc_flags = IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG },

	.accessors = &accessors,
	.context_bytes = sizeof(struct mlx5_context),
	.open = mlx5_provider_context_open,
	.close = mlx5_provider_context_close,
	.abandon = api_abandon,

	.ah_bytes = sizeof(struct mlx5_ah),
	.fill_ah = mlx5_ah_fill,
	.reg_mr = api_mr_reg,
	.create_cq = mlx5_cq_create,
	.resize_cq = api_cq_resize,
	.destroy_cq = api_cq_destroy,
	.create_srq = api_srq_create,
	.create_qp = api_qp_create,
	.modify_qp = api_qp_modify,
	.query_qp = api_qp_query,
	.destroy_qp = api_qp_destroy,

	.poll_cq = mlx5_cq_poll,
	.req_notify_cq = mlx5_cq_arm,
	.post_send = mlx5_post_send,
	.post_recv = mlx5_post_recv,
	.post_srq_recv = mlx5_post_srq_recv,
	.query_rt_values = api_query_rt_values,
	.alloc_td = api_td_alloc,
	.alloc_parent_domain = api_parent_domain_alloc,
	.modify_cq = api_cq_modify,
	.create_wq = api_wq_create,
	.modify_wq = api_wq_modify,
	.destroy_wq = api_wq_destroy,
	.create_rwq_ind_table = api_ind_table_create,
	.destroy_rwq_ind_table = api_ind_table_destroy,

	.ring = {
		.qp_bytes = sizeof(struct mlx5_qp),
		.qp_size = mlx5_qp_size,
		.qp_alloc = mlx5_qp_alloc,
		.qp_free = mlx5_qp_free,
		.qp_card_attr = mlx5_qp_card_attr,
		.qp_set_ex_ops = mlx5_qp_set_ex_ops,
		.cq_ex = &mlx5_cq_ex,
		.cqe_ready = mlx5_cqe_ready,
		.cqe_give = mlx5_cqe_give,
		.cqe_move = mlx5_cqe_move,
		.cqe_qpn = mlx5_cqe_qpn,
		.cqe_receive = mlx5_cqe_receive,
		.cq_span = mlx5_cq_span,
		.cq_forget = mlx5_cq_forget,
		.uar_page = mlx5_provider_uar_page,
	},
};
