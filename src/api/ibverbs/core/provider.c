// SPDX-License-Identifier: MIT
/* Which provider an adapter has: the one of its queue format. */
#include "provider.h"

#include "card/card.h"

const struct api_provider *api_provider_of(const struct vb_adapter *adapter)
{
	static const struct api_provider *const providers[VB_FORMATS] = {
		[VB_FORMAT_MLX5] = &api_mlx5,
		[VB_FORMAT_MLX4] = &api_mlx4,
		[VB_FORMAT_HBL] = &api_hbl,
	};

	return providers[adapter->config->format];
}
