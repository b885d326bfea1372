/* SPDX-License-Identifier: MIT */
/* What ../sink.c calls for hbl queues. */
#pragma once

#include "fabric/fabric.h"

/* A packet for an hbl queue, in a burst. 0, or -EFAULT: its payload is not readable (loopback). */
int vb_hbl_receive(const struct vb_pkt *pkt);
/* Entries of user FIFOs that signal handlers stored. In a burst, no lock held. */
void vb_hbl_fifo_run_deferred(void);
/* In a forked child: forget the devices of the parent. */
void vb_hbl_forked(void);
