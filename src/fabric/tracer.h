/* SPDX-License-Identifier: MIT */
/*
 * Who may reach the memory of this process, where the kernel restricts that.
 *
 * Direct access to a peer's memory (direct.h) needs the right to trace it. Processes of one user
 * have it, unless Yama's ptrace_scope is 1: then a process must name who may trace it, one process
 * and its descendants, or all of the user's. A process therefore names a peer when it connects to
 * it: the one peer, or all as soon as there are two. But only while memory is registered that needs
 * it: peers map memory in memfds without that right (reach.h). Nothing is named where that has no
 * effect: where nothing is restricted, and where only the administrator may trace (2 and 3); there
 * data goes in packets.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct vb_fabric;

/* This process is connected to a peer. Not for the data path. */
void vb_tracer_allow(pid_t peer);
/* A host has no peers any more; last: nor has another one of this process. Takes back what was allowed for it. */
void vb_tracer_leave(struct vb_fabric *fabric, bool last);
/* In a forked child: all that was allowed was the parent's. */
void vb_tracer_forked(struct vb_fabric *fabric);
