/* SPDX-License-Identifier: MIT */
/* The fabrics that run in this process, inside of fabric/: host.c. */
#pragma once

#include <stdbool.h>

struct vb_fabric;

/*
 * Walk: for (f = vb_running_begin(); f; f = vb_running_next(f)) ...; then vb_running_end(). What the walk
 * finds stays until its end. Allowed in signal handlers, with any locks.
 */
struct vb_fabric *vb_running_begin(void);
struct vb_fabric *vb_running_next(struct vb_fabric *fabric);
void vb_running_end(void);
bool vb_running_any(void);

/* With the lock of starting (progress.c). Removal waits for the walks that are on. */
void vb_running_add(struct vb_fabric *fabric);
void vb_running_remove(struct vb_fabric *fabric);
/* In a forked child: none runs. */
void vb_running_forked(void);
