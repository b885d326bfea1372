// SPDX-License-Identifier: MIT
/*
 * From verbs handles to the objects of the card, for the files about queues, whose names meet those of libibverbs.
 */
#include "api/ibverbs/driver.h"

struct vb_dev *vb_verbs_dev(struct ibv_context *ctx);
struct vb_pd *vb_verbs_pd(struct ibv_pd *pd);

struct vb_dev *vb_verbs_dev(struct ibv_context *ctx)
{
	return to_context(ctx)->dev;
}

struct vb_pd *vb_verbs_pd(struct ibv_pd *pd)
{
	return pd_card(pd);
}
