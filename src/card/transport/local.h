/* SPDX-License-Identifier: MIT */
/* Work that stays on the card; see local.c. */
#pragma once

#include "card/queue/objects.h"

/* What the work request ends with. */
enum ibv_wc_status vb_local_copy(const struct vb_qp *qp, const struct vb_wr *wr);
enum ibv_wc_status vb_local_transpose(const struct vb_qp *qp, const struct vb_wr *wr);
/* *true_now: whether what is waited for is true; only on success. */
enum ibv_wc_status vb_local_look(const struct vb_qp *qp, const struct vb_wr *wr, bool *true_now);
