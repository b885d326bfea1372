/* SPDX-License-Identifier: MIT */
/*
 * How cards meet: the interface of the fabric to the card.
 *
 * The card hands packets (packet/packet.h) to a path and gets packets from peers through a sink. A packet has the fields of RoCE;
 * some, marked there, go between hosts of one machine only. The card never asks what kind of link a path goes by,
 * only what a path can do (enum vb_path_caps).
 *
 * PSNs count packets of the path's link, at both ends: one for each packet of a SEND or WRITE, which has up to
 * path->mtu bytes, and one for each path->span bytes of a READ response. On a wire both are the path MTU. Shared
 * memory takes some KiB in one packet, more where a ring is large, and cuts READ responses for the smallest ring,
 * because each end knows the size of its own only. What is shown of such packets as RoCE frames has therefore more
 * frames than PSNs (card/transport/as_frames.c).
 *
 *	card:   requester --vb_path_send()--> link (link.h): ring of a peer | a wire
 *	        responder <--sink.receive()-- link <-- vb_fabric_progress()
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <infiniband/verbs.h>

#include "base/public.h"
#include "meet/registry.h"
#include "control/record/timeline.h"
#include "fabric/entries.h"
#include "fabric/host.h"
#include "fabric/link.h"
#include "packet/packet.h"

enum {
	VB_QPN_INDEX_BITS = 16,
	VB_QPN_INDEX_MASK = (1 << VB_QPN_INDEX_BITS) - 1,
};

static inline uint32_t vb_qpn_slot(uint32_t qpn)
{
	return (qpn >> VB_QPN_INDEX_BITS) & (VB_SLOTS - 1);
}

/* --- paths ------------------------------------------------------------------------------------ */

struct vb_peer; /* another host on this machine, as seen from one (peer.h) */

/*
 * Where a packet is to go, and from where: as an adapter and an address vector say it. Pointers are valid during the
 * call. What is not known is NULL or 0.
 */
struct vb_address {
	const union ibv_gid
		*dgid; /* NULL: whichever adapter, of the host in the slot of the QP's number */
	const union ibv_gid *sgid; /* of the port that sends */
	const uint8_t
		*dmac;  /* as the address vector has it; NULL or zeros: to be found by the GID */
	__be64 adapter; /* GUID of the one that sends */
	uint32_t flow_label;
	uint32_t mtu; /* path MTU, for a link that is a wire */
	uint8_t traffic_class, hop_limit;
	uint8_t transport; /* that the QP there must have */
};

enum vb_path_caps {
	VB_PATH_REACHES = 1 << 0,  /* the peer exists: without it packets are lost */
	VB_PATH_CALLS = 1 << 1,    /* the QP is of this host: the card calls its responder */
	VB_PATH_DIRECT = 1 << 2,   /* memory there may be reached without its process (direct.h), */
	VB_PATH_DELIVERS = 1 << 3, /* and queues that are lent (lend.h) */
};

/* The way to a QP. Opened once per connected QP; holds what its link needs for it. */
struct vb_path {
	struct vb_link *link; /* never NULL */
	uint8_t caps;         /* enum vb_path_caps */
	uint8_t transport;    /* that the QP there must have */
	uint8_t ring;         /* shared memory: which of those to the peer (peer.h) */
	struct vb_peer *peer; /* shared memory */
	uint32_t mtu;         /* largest payload of a packet that we send; a property of the link */
	uint32_t
		span; /* bytes of a READ response per PSN: the same for both ends; of the link, too */
};

/* Of shared memory, where READ responses are cut for the smallest ring. */
enum { VB_SHM_SPAN = 4096 };

extern const struct vb_path vb_path_none; /* to nobody: every path begins and ends as this */

enum vb_pending { VB_PENDING_NONE, VB_PENDING_BLOCKED, VB_PENDING_RUNNABLE };

/* The card of a host, to which these are told: the one of vb_fabric_start(). */
struct vb_sink {
	/*
	 * A packet arrived; runs in a read section, in whatever thread made progress. The lock of
	 * its ring is held, so what follows from it for the program is only collected.
	 */
	void (*receive)(struct vb_card *card, const struct vb_pkt *pkt);
	/*
	 * That was the last one for now: what was collected is delivered. In the same read section
	 * and thread, no lock held.
	 */
	void (*received)(struct vb_card *card);
	/*
	 * The packet will take long, and something waits to be delivered: received() is to come
	 * before it.
	 */
	bool (*delivers_first)(struct vb_card *card, const struct vb_pkt *pkt);
	/*
	 * Due work of queues: what this thread left to itself and what is blocked; all: also what
	 * other threads left, and timers. Returns the time (ns) of the next timer, UINT64_MAX for
	 * none or where not all is done.
	 */
	uint64_t (*work)(struct vb_card *card, bool all);
	/* Whether work() would find something: blocked work waits for room in a ring. */
	enum vb_pending (*pending)(struct vb_card *card, bool all);
	/* Whether a GID is one of this host's adapters. */
	bool (*is_local)(struct vb_card *card, const union ibv_gid *gid);
};

/*
 * Start for this process (first call joins the registry, starts the background thread) and stop
 * (last call leaves). After a fork the child has none: it may start its own.
 */
int vb_fabric_start(struct vb_host *host, const struct vb_sink *sink);
void vb_fabric_stop(struct vb_fabric *fabric);
uint32_t vb_fabric_slot(struct vb_fabric *fabric);
/*
 * One region more, or one less, has memory that is not shared (host/shared/shared.h), so that peers need the
 * right to trace this process; see tracer.h. Not for the data path.
 */
void vb_fabric_private_memory(struct vb_fabric *fabric, int change);
/* What a fabric begins with (state.h): for the card's data path, which does not know the rest. */
struct vb_fabric_shown {
	struct vb_entries entries;
	_Atomic uint32_t epoch;
	const _Atomic uint32_t *told; /* the segment's word: see function.h; NULL: no segment */
};

/*
 * Changes when the process starts anew (after a fork): objects of an earlier epoch are not ours to
 * touch.
 */
static inline uint32_t vb_fabric_epoch(const struct vb_fabric *fabric)
{
	return atomic_load_explicit(&((const struct vb_fabric_shown *)fabric)->epoch,
				    memory_order_relaxed);
}

/* Receive what has arrived and do due work; true if anything was done. */
bool vb_fabric_progress(struct vb_fabric *fabric);
/* The same for a poller: also tells peers that no wake-up is needed while somebody polls. */
bool vb_fabric_poll(struct vb_fabric *fabric);
/*
 * A CQ was armed (+1) or is not any more (-1): while any is, peers wake the background thread for
 * each packet.
 */
void vb_fabric_armed(struct vb_fabric *fabric, int change);
/*
 * The program looks at memory and calls nobody, so that the background thread does everything and
 * sleeps after nearly every packet: from now on senders have the barrier, and falling asleep costs
 * little (barrier.h).
 */
void vb_fabric_unpolled(struct vb_fabric *fabric);
/*
 * An object of so many bytes is gone: see host/heap.h. Where many are, the background thread
 * returns their memory.
 */
void vb_fabric_freed(struct vb_fabric *fabric, size_t bytes);
/*
 * New work or an earlier timer for sink.work(): wake the background thread if it would sleep too
 * long.
 */
void vb_fabric_kick(struct vb_fabric *fabric);
/*
 * Blocked work was put on the list: false where the background thread sleeps and does not know of
 * it. A wake-up for room in the ring may have come before the work was there.
 */
bool vb_fabric_attends(struct vb_fabric *fabric);
/*
 * Have a process that vb_registry_list() shows call vb_ask_asked(), soon. 0, -ESRCH where it is
 * gone, or -errno. This process need not have started.
 */
int vb_fabric_ask(const struct vb_slot_info *info);

/* In place of a number: no ordering needed. */
#define VB_NO_QUEUE UINT32_MAX

/*
 * A path to a QP, for the one of ours with the number `from`: packets that have been sent from one
 * number to one process arrive in that order, whichever path they took. vb_path_none where no process
 * has the QP; -errno where one has, and the path cannot be made.
 */
int vb_path_open(struct vb_fabric *fabric, struct vb_path *path, const struct vb_address *to,
		 uint32_t qpn, uint32_t from);
/* The same to whatever QP of the process in a slot of the registry. */
int vb_path_open_slot(struct vb_fabric *fabric, struct vb_path *path, uint32_t slot, uint32_t from);
/*
 * For one packet inside a read section: nothing is made, and nothing to be closed. In order with other
 * packets that take such paths.
 */
void vb_path_peek(struct vb_fabric *fabric, struct vb_path *path, const struct vb_address *to,
		  uint32_t qpn);

static inline bool vb_path_can(const struct vb_path *path, enum vb_path_caps cap)
{
	return path->caps & cap;
}

static inline void vb_path_close(struct vb_path *path)
{
	path->link->ops->close(path->link, path);
	*path = vb_path_none;
}

/* The same inside a read section, any locks held. */
static inline void vb_path_drop(struct vb_path *path)
{
	path->link->ops->drop(path->link, path);
	*path = vb_path_none;
}

/*
 * Send one packet. -EAGAIN: no room; there will be progress when there is again. -EHOSTDOWN: the
 * peer is gone. -EFAULT: the payload was not readable (nothing was sent).
 */
static inline int vb_path_send(struct vb_path *path, const struct vb_pkt *pkt)
{
	int ret = path->link->ops->send(path->link, path, pkt);

	if (!ret)
		vb_note(SENT, .object = pkt->sqpn, .code = pkt->op, .value = pkt->len,
			.extra = (uint64_t)pkt->psn << 32 | pkt->dqpn);
	return ret;
}

/* After a batch of sends: let the peer know. */
static inline void vb_path_flush(struct vb_path *path)
{
	path->link->ops->flush(path->link, path);
}

/* False once the peer is known to have died; asks the system at most every few milliseconds. */
static inline bool vb_path_alive(struct vb_path *path)
{
	return path->link->ops->alive(path->link, path);
}

/* True once the peer has taken all packets sent so far, as far as that can be known. */
static inline bool vb_path_drained(struct vb_path *path)
{
	return path->link->ops->drained(path->link, path);
}

/* Whether packets of the peer's wait for us, an answer perhaps among them. Inside a read section. */
static inline bool vb_path_unread(struct vb_path *path)
{
	return path->link->ops->unread(path->link, path);
}

/* Whether a thread of the peer polls right now, so that a packet is taken at once. */
static inline bool vb_path_polled(const struct vb_path *path)
{
	return path->link->ops->polled(path->link, path);
}

/*
 * The packet that a QP of the peer expects next from our sqpn, as it shows itself: valid even after
 * the process died. Otherwise where that is not known, or it is connected to another one.
 */
static inline uint32_t vb_path_expected(struct vb_path *path, uint32_t qpn, uint32_t sqpn,
					uint32_t otherwise)
{
	return path->link->ops->expected(path->link, path, qpn, sqpn, otherwise);
}

/* The GUID of the adapter that a QP of the peer is on, as it shows itself; 0: not known. */
static inline __be64 vb_path_adapter(struct vb_path *path, uint32_t qpn)
{
	return path->link->ops->adapter(path->link, path, qpn);
}

/* The connection of DC that a QP of the peer belongs to, as it shows itself; 0: none, or not known. */
static inline uint64_t vb_path_connection(struct vb_path *path, uint32_t qpn)
{
	return path->link->ops->connection(path->link, path, qpn);
}

/* What a process does with the frames of others; bits. */
enum vb_frame_use {
	VB_FRAME_RECEIVES = 1 << 0, /* queues, rules or a TAP get them */
	VB_FRAME_SNIFFS = 1 << 1,   /* it looks at what passes a port */
};

/* How this process listens from now on; 0: not at all. */
void vb_frame_listen(struct vb_fabric *fabric, uint32_t use);
/*
 * Whether a frame of a queue may be sent, inside a read section: each process that receives has room for
 * it, or has taken nothing for so long that it is not waited for any more. Where not, there will be
 * progress when there is room. A process that only sniffs is not waited for.
 *
 * The room is kept for the caller, among threads that ask, until vb_frame_sent().
 */
enum vb_frame_may { VB_FRAME_WAITS, VB_FRAME_UNHEARD, VB_FRAME_PROMISED };
enum vb_frame_may vb_frame_may_send(struct vb_fabric *fabric, const struct vb_pkt *pkt);
void vb_frame_sent(struct vb_fabric *fabric, enum vb_frame_may may);
/*
 * A raw frame, to every other process that listens (VB_FRAME_SNIFFED: that sniffs); inside a read section. One that has no room
 * loses it, and finds it counted. Returns the number of those.
 */
unsigned int vb_frame_send(struct vb_fabric *fabric, const struct vb_pkt *pkt);
/*
 * Whether all of them have room for it now; inside a read section. give_up: count those that have none
 * as slow, and do not ask them again until they have taken something.
 */
bool vb_frame_has_room(struct vb_fabric *fabric, const struct vb_pkt *pkt, bool give_up);
/* True once every listener has read all frames; slow_too includes slow ones. Inside a read section. */
bool vb_frame_drained(struct vb_fabric *fabric, bool slow_too);
/* Before this process leaves: wait, at most a second, until they have taken what it sent. */
void vb_frame_linger(struct vb_fabric *fabric);
/*
 * Frames that others sent and this process lost, because it did not take them in time; and how many
 * processes ended before anything that they sent was taken.
 */
uint64_t vb_frame_lost(struct vb_fabric *fabric, uint32_t *unread);
