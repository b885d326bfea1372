/* SPDX-License-Identifier: MIT */
/* Frames on their way through the card: queues, rules, cables, interfaces of the kernel. */
#pragma once

#include "card/queue/objects.h"

/* --- receive.c --- */
/* A raw frame; c has what the CQE shall say about it. */
void vb_responder_frame(struct vb_qp *qp, const struct vb_frame *frame, struct vb_completion *c);

/* --- send.c --- */
enum { VB_RAW_BUFFER = VB_FRAME_MAX + 2048 }; /* of vb_qp.frame */
/*
 * The frames of a WQE: enum ibv_wc_status, or -EAGAIN where one finds no room; sq.sent counts those that
 * went, and the next call goes on behind them. sq.lock is held, inside a read section.
 */
int vb_raw_send(struct vb_qp *qp, const struct vb_wr *wr, const struct iovec *iov, int cnt);

/* --- tir.c --- */
int vb_rss_check(const struct vb_dev *dev, const struct vb_rss *rss);
void vb_rss_hold(const struct vb_rss *rss, int by);
void vb_tir_forked(struct vb_card *card);

/* --- flow.c: inside read sections --- */
struct vb_frame;
/*
 * A frame of a send queue, whose lock is held; metadata: of the WQE; to_wire: not to queues of its
 * own port.
 */
void vb_flow_send(struct vb_qp *from, const struct vb_frame *frame, uint32_t metadata,
		  bool to_wire);
/*
 * A frame at the port of an adapter. from: the sender, where that is a queue of this process there.
 * looped: the port has sent it, and no rule of the FDB has turned it back.
 */
void vb_flow_arrive(const struct vb_adapter *adapter, const struct vb_qp *from,
		    const struct vb_frame *frame, bool looped);
/* What another process sends on the adapter's port: for sniffers. */
void vb_flow_overhear(const struct vb_adapter *adapter, const struct vb_frame *frame);
/* A packet that queue pairs of the adapter send or receive, as a frame: for sniffers, too. */
void vb_flow_sniff(const struct vb_adapter *adapter, bool sent, const struct vb_frame *frame);
void vb_flow_forked(struct vb_card *card);

/* --- cable.c --- */
/* The process wants, or wants no more (-1), frames that others send. */
void vb_cable_listen(struct vb_card *card, int change);
/* Once more after the process has joined the registry anew. */
void vb_cable_joined(struct vb_card *card);
void vb_cable_forked(struct vb_card *card);
/* A cable is told from others by a hash of its name, so long that two names do not share one by accident. */
uint64_t vb_cable_number(const char *name);
/* Inside read sections: */
/* A frame leaves an adapter; ways: enum vb_frame_way. */
void vb_cable_send(const struct vb_adapter *adapter, const struct vb_qp *from,
		   const struct vb_frame *frame, uint32_t ways);
/* Whether a frame of this length can leave now, before vb_frame_sent(); see vb_frame_may_send(). */
enum vb_frame_may vb_cable_may_send(struct vb_card *card, uint32_t len);
/* A frame from another process; what it says is not trusted. */
void vb_cable_receive(struct vb_card *card, const struct vb_pkt *pkt);
/*
 * Show the frame of a packet to the sniffers of both adapters, in all processes. GUIDs; 0: not known. ns:
 * when the packet was sent.
 */
void vb_cable_show(struct vb_card *card, __be64 from, __be64 to, const struct vb_frame *frame,
		   uint64_t ns);
/* Our adapter with a GUID, if it has a cable; NULL: none. */
const struct vb_adapter *vb_cable_port(struct vb_card *card, __be64 guid);

/* A frame comes from outside to a port, in all processes; the number of those that lost it. */
unsigned int vb_cable_arrive(const struct vb_adapter *adapter, const void *data, uint32_t len);

/* --- tap.c --- */
/* The process uses raw Ethernet on the adapter, or one use less (-1): then it may carry for a TAP. */
void vb_tap_use(const struct vb_adapter *adapter, int change);
/* A frame leaves the port of an adapter that has a TAP; in a read section. */
void vb_tap_send(const struct vb_adapter *adapter, const struct vb_frame *frame);
void vb_tap_forked(struct vb_card *card);
