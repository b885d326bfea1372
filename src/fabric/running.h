/* SPDX-License-Identifier: MIT */
/* The fabrics that run in this process, inside of fabric/: host.c. */
#pragma once

#include <stdbool.h>

struct vb_fabric;

/*
 * Walk: for (f = vb_running_begin(); f; f = vb_running_next(f)) ...; then vb_running_end(). What the walk
 * finds stays until its end. Allowed in signal handlers, with any locks.
 *
 * No handler of the program runs in this thread meanwhile: one that forks would return, in the child, to
 * segments that are not mapped there. A walk that waits lets them in again and again. vb_running_let_in()
 * does, and says whether the walk may go on: in a forked child it may not, and what it found is gone. It does
 * nothing in a thread that does not walk. vb_running_goes_on() says it once more.
 */
struct vb_fabric *vb_running_begin(void);
struct vb_fabric *vb_running_next(struct vb_fabric *fabric);
void vb_running_end(void);
bool vb_running_let_in(void);
bool vb_running_goes_on(void);
bool vb_running_any(void);

/* With the lock of starting (progress.c). Removal waits for the walks that are on. */
void vb_running_add(struct vb_fabric *fabric);
void vb_running_remove(struct vb_fabric *fabric);
/* In a forked child: none runs. */
void vb_running_forked(void);
