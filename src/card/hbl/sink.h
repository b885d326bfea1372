/* SPDX-License-Identifier: MIT */
/* What ../sink.c calls for hbl queues. */
#pragma once

#include "fabric/fabric.h"

struct vb_card;

/* A packet for an hbl queue, in a burst. 0, or -EFAULT: its payload is not readable (loopback). */
int vb_hbl_receive(struct vb_card *card, const struct vb_pkt *pkt);
/* Entries of user FIFOs that signal handlers stored. In a burst, no lock held. */
void vb_hbl_fifo_run_deferred(struct vb_card *card);
/*
 * Faults on demand (../inject.c), under its lock. As vb_inject_port(), of which a device may have
 * several; vb_inject_qp(); and without the event.
 */
struct vb_adapter;
struct vb_inject;
void vb_hbl_inject_port(const struct vb_adapter *adapter, uint32_t number, bool up);
int vb_hbl_inject_qp(const struct vb_adapter *adapter, const struct vb_inject *fault, char *words,
		     size_t size);
void vb_hbl_inject_fatal(const struct vb_adapter *adapter);
/* Add how work requests of all devices left the card. No lock held. */
struct vb_path_counters;
void vb_hbl_add_counters(struct vb_card *card, struct vb_path_counters *to);
/* In a forked child: forget the devices of the parent. */
void vb_hbl_forked(struct vb_card *card);
