/* SPDX-License-Identifier: MIT */
/*
 * Where raw Ethernet frames go: the port's steering, and what it steers to.
 *
 *	send queue --> NIC_TX rules --> FDB rules --+--> the cable --> other ports, other processes
 *	                                            +--> this port again: other contexts of the adapter
 *	cable --> port --> NIC_RX rules --+--> QP or TIR --> receive queues
 *	                                  +--> as without rules: the flows of ibv_create_flow()
 *	               `-> sniffer rules: a copy of everything
 *
 * Steering belongs to the adapter. Every process that has rules or receivers on it gets each frame for
 * the port and applies its own rules to it; a process that ends takes its rules along. So a frame that
 * rules of two processes match goes to both.
 *
 * Rules are made with steer/steer.h on the domains that this file hands out.
 */
#pragma once

#include "card/device.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "steer/steer.h"

/* vb_steer_dest.kind of this owner. */
enum vb_flow_dest {
	VB_FLOW_QP,    /* object: struct vb_qp, RAW_PACKET */
	VB_FLOW_TIR,   /* object: struct vb_tir */
	VB_FLOW_VPORT, /* number: VB_VPORT_WIRE, or 0: the manager, which is this port's NIC_RX */
};

enum { VB_VPORT_MANAGER = 0, VB_VPORT_WIRE = 0xffff };

/*
 * The domain of the device's adapter, one per kind and process; it lives as long as the process. NULL:
 * no memory.
 */
VB_PUBLIC struct vb_steer *vb_flow_domain(struct vb_dev *dev, enum vb_steer_kind kind);

/*
 * The domain of verbs flows, of kind NIC_RX: it has the frames that miss the NIC_RX domain. What misses
 * here goes to nobody. Its rules change nothing of a frame.
 */
VB_PUBLIC struct vb_steer *vb_flow_verbs_domain(struct vb_dev *dev);

/* --- transport interface receive: what spreads frames over receive queues ----------------------- */

struct vb_tir;

enum vb_tir_loopback { VB_TIR_UNICAST = 1 << 0, VB_TIR_MULTICAST = 1 << 1 };

struct vb_tir_attr {
	struct vb_qp *rq;          /* one receive queue (RAW_PACKET), or NULL and */
	const struct vb_rss *rss;  /* an indirection table of WQs; copied */
	uint32_t transport_domain; /* number; 0: none */
	uint8_t loopback;          /* which frames of its own transport domain it takes */
};

/* The receive queues are in use (-EBUSY at their end) as long as the TIR lives. */
VB_PUBLIC int vb_tir_create(struct vb_dev *dev, const struct vb_tir_attr *attr,
			    struct vb_tir **tir);
/* -EBUSY: an action leads to it. */
VB_PUBLIC int vb_tir_destroy(struct vb_tir *tir);
/*
 * Queues of its table (and their count), or how it hashes, become those of rss; one caller at a
 * time. -EINVAL: it has no table, or such queues cannot be in one.
 */
enum vb_tir_parts { VB_TIR_QUEUES = 1 << 0, VB_TIR_HASH = 1 << 1 };
VB_PUBLIC int vb_tir_set_rss(struct vb_tir *tir, const struct vb_rss *rss, unsigned int parts);
VB_PUBLIC int vb_tir_set_loopback(struct vb_tir *tir, uint8_t loopback);
VB_PUBLIC uint32_t vb_tir_number(const struct vb_tir *tir);
/* The TIR of this adapter with this number, until vb_tir_put(); NULL: none. */
VB_PUBLIC struct vb_tir *vb_tir_get(struct vb_dev *dev, uint32_t number);
/* Whether it was made on this open device, not only on this adapter. */
VB_PUBLIC bool vb_tir_is_of(const struct vb_tir *tir, const struct vb_dev *dev);
VB_PUBLIC void vb_tir_put(struct vb_tir *tir);
/* The argument that its device was opened with (vb_dev_open()). */
VB_PUBLIC void *vb_tir_owner(const struct vb_tir *tir);

/* Numbers of transport domains; 0 where there is none left. */
VB_PUBLIC uint32_t vb_transport_domain_take(struct vb_card *card);
VB_PUBLIC void vb_transport_domain_give(struct vb_card *card, uint32_t number);
/* Whether a TIR is in it: then its number must not become another one's. */
VB_PUBLIC bool vb_transport_domain_busy(struct vb_card *card, uint32_t number);

/*
 * A RAW_PACKET queue pair that receives, with mlx4 any, as the destination of an action; -EINVAL: it is
 * none.
 */
VB_PUBLIC int vb_flow_hold_qp(struct vb_qp *qp);
VB_PUBLIC void vb_flow_release_qp(struct vb_qp *qp);
/* Whether rules of the device's adapter can lead to it: another port's, or a parent's, is none. */
VB_PUBLIC bool vb_flow_reaches_qp(const struct vb_dev *dev, const struct vb_qp *qp);

/*
 * One sniffer rule more, or less (-1): while there is any, in any process, packets of queue pairs are made into
 * frames for them (transport/as_frames.c).
 */
VB_PUBLIC void vb_cable_sniff(const struct vb_dev *dev, int change);

/* --- sending ------------------------------------------------------------------------------------ */

enum { VB_CABLE_LONGEST = 9216 }; /* bytes of a frame */

/*
 * Put a frame on a port's cable from outside of all queues, as `verbatim cable replay` does: it arrives
 * at that port, in all processes. 0, or the number of processes that lost it because they did not take
 * what came before; -EINVAL: shorter than 14 or longer than 9216 bytes. Or take what passes there, sent
 * (by this process or another one) or received; one capture of a device at a time (-EBUSY), which must be
 * closed before the device. sink->frame is called in a read section, from any thread, and must not block.
 */
struct vb_capture_sink {
	/* ns: when it was sent. Frames of several processes may come in another order. */
	void (*frame)(void *arg, const struct vb_frame *frame, bool sent, uint64_t ns);
	void *arg;
	bool rdma; /* also the packets of queue pairs, as frames */
};

VB_PUBLIC int vb_cable_inject(struct vb_dev *dev, const void *data, uint32_t len);
VB_PUBLIC int vb_capture_open(struct vb_dev *dev, const struct vb_capture_sink *sink);
VB_PUBLIC void vb_capture_close(struct vb_dev *dev);
/*
 * Whether no process would lose a frame of this length that is injected now. give_up: those that would
 * are not asked any more until they take frames again.
 */
VB_PUBLIC bool vb_cable_has_room(struct vb_dev *dev, uint32_t len, bool give_up);
/*
 * Whether all other processes have taken what was injected: they may lose what a process that ends
 * leaves. slow_too: also those that nobody waits for.
 */
VB_PUBLIC bool vb_cable_drained(struct vb_dev *dev, bool slow_too);
/*
 * Frames of any port that this process lost before a capture or a rule saw them; and the number of processes
 * that ended before anything of theirs was read, so that nobody knows how many frames that was.
 */
VB_PUBLIC uint64_t vb_cable_lost(struct vb_dev *dev, uint32_t *unread);
