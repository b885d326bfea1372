/* SPDX-License-Identifier: MIT */
/* What path.c and the kinds of paths share. */
#pragma once

#include <errno.h>

#include "fabric/peer.h"

/* --- progress.c --- */
bool vb_fabric_is_local(const union ibv_gid *gid);

/* --- path_shm.c: inside a read section --- */
/* A path to the process in a slot, or vb_path_none. */
void vb_path_shm_peek(struct vb_path *path, uint32_t slot);
/*
 * Make the ring of our queue pair `from`, and keep the peer until the path is closed. -errno, and
 * vb_path_none, where that fails.
 */
int vb_path_shm_hold(struct vb_path *path, uint32_t qpn, uint32_t from);
