// SPDX-License-Identifier: MIT
/*
 * mlx5 direct verbs: what works today. The rest is in unsupported.c.
 */
#include "mlx5.h"

#include "card/queue/qp.h"

/* A device of ours whose queues have the mlx5 format. */
VB_PUBLIC bool mlx5dv_is_supported(struct ibv_device *device)
{
	return device && vb_verbs_adapter(device)->config->format == VB_FORMAT_MLX5;
}

/* Commands (DEVX) work on every context, whether it was opened with the flag or not. */
VB_PUBLIC struct ibv_context *mlx5dv_open_device(struct ibv_device *device,
						 struct mlx5dv_context_attr *attr)
{
	API_CALL(.kind = device ? device->name : NULL);
	if (!mlx5dv_is_supported(device))
		return api_refuse_null(not_mlx5);
	if (attr && attr->comp_mask)
		return api_refuse_null(bits, "comp_mask", attr->comp_mask);
	if (attr && (attr->flags & ~(uint32_t)MLX5DV_CONTEXT_FLAGS_DEVX))
		return api_refuse_null(bits, "flags", attr->flags);
	return ibv_open_device(device);
}

/* comp_mask comes back with those of the asked-for parts that are filled in. */
VB_PUBLIC int mlx5dv_query_device(struct ibv_context *context, struct mlx5dv_context *attrs)
{
	uint64_t asked, answered;

	API_CALL(API_DEVICE(context));
	if (!context || !attrs)
		return api_refuse(null, "context or attrs_out");
	if (!mlx5dv_is_supported(context->device))
		return api_refuse(not_mlx5);
	asked = attrs->comp_mask;
	answered =
		asked & (MLX5DV_CONTEXT_MASK_CQE_COMPRESION | MLX5DV_CONTEXT_MASK_SWP |
			 MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS |
			 MLX5DV_CONTEXT_MASK_DYN_BFREGS | MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE |
			 MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS | MLX5DV_CONTEXT_MASK_DC_ODP_CAPS |
			 MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS | MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD |
			 MLX5DV_CONTEXT_MASK_DCI_STREAMS | MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH |
			 MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD);
	/*
	 * Offloads that there are none of are answered with zero. Fields that nobody asked for stay
	 * untouched.
	 */
	attrs->version = 0;
	attrs->flags = MLX5DV_CONTEXT_FLAGS_CQE_V1 | MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED |
		       MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW | MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP |
		       MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD;
	attrs->comp_mask = answered;
	if (answered & MLX5DV_CONTEXT_MASK_CQE_COMPRESION)
		attrs->cqe_comp_caps = (struct mlx5dv_cqe_comp_caps){
			.max_num = VB_MAX_MINIS,
			.supported_format = MLX5DV_CQE_RES_FORMAT_HASH |
					    MLX5DV_CQE_RES_FORMAT_CSUM |
					    MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX,
		};
	if (answered & MLX5DV_CONTEXT_MASK_SWP)
		attrs->sw_parsing_caps = (struct mlx5dv_sw_parsing_caps){
			.sw_parsing_offloads =
				MLX5DV_SW_PARSING | MLX5DV_SW_PARSING_CSUM | MLX5DV_SW_PARSING_LSO,
			.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
		};
	if (answered & MLX5DV_CONTEXT_MASK_STRIDING_RQ)
		attrs->striding_rq_caps = (struct mlx5dv_striding_rq_caps){
			.min_single_stride_log_num_of_bytes = VB_STRIDE_LOG_MIN,
			.max_single_stride_log_num_of_bytes = VB_STRIDE_LOG_MAX,
			.min_single_wqe_log_num_of_strides = VB_STRIDES_LOG_MIN,
			.max_single_wqe_log_num_of_strides = VB_STRIDES_LOG_MAX,
			.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
		};
	if (answered & MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS)
		attrs->tunnel_offloads_caps = MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN |
					      MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE |
					      MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE;
	if (answered & MLX5DV_CONTEXT_MASK_DYN_BFREGS)
		attrs->max_dynamic_bfregs = 0;
	/* The two clocks run alike, but the program's may be set. */
	if (answered & MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE)
		attrs->max_clock_info_update_nsec = 10000000000;
	if (answered & MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS)
		attrs->flow_action_flags = 0;
	if (answered & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS)
		attrs->dc_odp_caps = 0;
	if (answered & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS)
		attrs->num_lag_ports = 0;
	if (answered & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD)
		attrs->sig_caps = (struct mlx5dv_sig_caps){ 0 };
	if (answered & MLX5DV_CONTEXT_MASK_DCI_STREAMS)
		attrs->dci_streams_caps = (struct mlx5dv_dci_streams_caps){
			.max_log_num_concurent = VB_DC_MAX_LOG_STREAMS,
			.max_log_num_errored = VB_DC_MAX_LOG_ERRORED,
		};
	if (answered & MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH)
		attrs->max_wr_memcpy_length = vb_verbs_mlx5(context)->max_memcpy;
	if (answered & MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD)
		attrs->crypto_caps = (struct mlx5dv_crypto_caps){ 0 };
	return 0;
}
