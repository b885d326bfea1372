/* SPDX-License-Identifier: MIT */
/*
 * Between libhbl and the hbl driver inside libibverbs: how direct verbs reach what stands behind a handle.
 *
 * The driver hangs a table of these functions on every context of an hbl device, at the place that verbs_context keeps
 * for such things; contexts of other devices have none there.
 */
#pragma once

#include <stdbool.h>
#include <infiniband/verbs.h>

#include "card/hbl/hbl.h"

/* What hbldv_open_device() hands down through verbs_open_device(). */
struct hbl_open {
	uint64_t ports_mask;
	int core_fd;
};

struct verbs_ex_private {
	struct vb_hbl *(*device)(struct ibv_context *context);
	/* NULL with errno; entries is a power of two. */
	struct ibv_cq *(*create_cq)(struct ibv_context *context, uint32_t entries,
				    struct ibv_comp_channel *channel, void *cq_context,
				    uint32_t port, bool cc);
	struct vb_hbl_cq *(*cq)(struct ibv_cq *cq);
	struct vb_hbl_qp *(*qp)(struct ibv_qp *qp);
	/* 0 or a positive errno, as ibv_modify_qp(). hbl NULL: its defaults. */
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			 const struct vb_hbl_qp_attr *hbl);
};

extern const struct verbs_ex_private hbl_private; /* ../ibverbs/hbl/provider.c */

/* verbs.h does not declare it; libibverbs exports it for drivers. */
struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data);
