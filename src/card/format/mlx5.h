/* SPDX-License-Identifier: MIT */
/* What the files of the mlx5 format have of each other. */
#pragma once

#include "card/format/segments.h"

/* The rest of a WQE that configures an indirect key; 0 or -EINVAL. */
int vb_mlx5_umr(struct vb_cursor *c, struct vb_wr *wr);
/* The layout in it, or at list, as struct vb_codec has it. */
int vb_mlx5_layout(const struct vb_wr *wr, const void *list, struct vb_layout *layout);
