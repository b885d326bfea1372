/* SPDX-License-Identifier: MIT */
/* From verbs handles to the card, and what FlexIO objects keep of libibverbs. */
#pragma once

struct ibv_context;
struct ibv_pd;
struct vb_dev;
struct vb_pd;

struct vb_dev *vb_verbs_dev(struct ibv_context *ctx);
struct vb_pd *vb_verbs_pd(struct ibv_pd *pd);
/* Neither the context nor the protection domain (may be NULL) goes away until this is taken back: EBUSY for the program. */
void vb_verbs_hold(struct ibv_context *ctx, struct ibv_pd *pd);
void vb_verbs_release(struct ibv_context *ctx, struct ibv_pd *pd);
