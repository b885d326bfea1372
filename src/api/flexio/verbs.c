// SPDX-License-Identifier: MIT
/*
 * Owns the way from verbs handles to the objects of the card, and what FlexIO objects keep of libibverbs. In a file of its
 * own because the names of the two drivers meet.
 */
#include "verbs.h"

#include "api/ibverbs/core/objects.h"

struct vb_dev *vb_verbs_dev(struct ibv_context *ctx)
{
	return to_context(ctx)->dev;
}

struct vb_pd *vb_verbs_pd(struct ibv_pd *pd)
{
	return pd_card(pd);
}

void vb_verbs_hold(struct ibv_context *ctx, struct ibv_pd *pd)
{
	atomic_fetch_add(&to_context(ctx)->users, 1);
	if (pd)
		atomic_fetch_add(&to_pd(pd)->users, 1);
}

void vb_verbs_release(struct ibv_context *ctx, struct ibv_pd *pd)
{
	if (pd)
		atomic_fetch_sub(&to_pd(pd)->users, 1);
	atomic_fetch_sub(&to_context(ctx)->users, 1);
}
