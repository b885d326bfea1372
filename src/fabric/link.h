/* SPDX-License-Identifier: MIT */
/*
 * A link: a medium by which a host's packets leave it, and by which packets come. Both halves are here; what is
 * not here does not depend on the medium.
 *
 *	vb_path_open() --> open of the host's links, in order: shm | loop | a wire     the first that leads there
 *	vb_path_send() --> send of the path's link
 *	background thread, pollers (progress.c) --> poll, pending, tend                each link that receives
 *	poll --> vb_link_deliver() (state.h) --> the card's sink
 *
 *	loop   QPs of the same host: the card calls its own responder
 *	shm    hosts on this machine: rings in shared memory (shm.c, peer.c, ring.c)
 *
 * A link may lie over another one, to lose, delay, repeat or record what passes:
 *
 *	open, send, ... -->  over  -->  under  -->                                     vb_link_wrap()
 *	        sink    <--  over  <--  under  <-- poll                                vb_link_deliver()
 *
 * Where none does, that costs a load and a branch per packet that is received, and nothing on the way out.
 */
#pragma once

#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/public.h"

struct vb_address;
struct vb_fabric;
struct vb_link;
struct vb_path;
struct vb_pkt;

/* What arrived and was not taken yet: nothing, what other threads of ours are reading, or what no thread reads. */
enum vb_link_left { VB_LEFT_NOTHING, VB_LEFT_BEING_READ, VB_LEFT_UNREAD };

/*
 * The operations of a link. Those that are marked may be NULL. An operation of a path gets the link whose
 * operation it is: below a wrapping link that is not path->link.
 */
struct vb_link_ops {
	const char *name;

	/* --- the sending half. Threads that send are in a read section --- */
	/*
	 * For one packet: fill in *path where the link leads to this QP, and hold nothing. -ENETUNREACH: it
	 * does not, and *path is as it was. local: the GID is an adapter's of this machine, or there is none.
	 */
	int (*peek)(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		    bool local, uint32_t qpn);
	/*
	 * The same, and keep what is needed until close() or drop(), for what our QP `from` sends.
	 * -ENETUNREACH; or -errno where it leads there, and the path cannot be made.
	 */
	int (*open)(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		    bool local, uint32_t qpn, uint32_t from);
	/* As vb_path_send() and so on, fabric.h. */
	int (*send)(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt);
	void (*flush)(struct vb_link *link, struct vb_path *path);
	bool (*alive)(struct vb_link *link, struct vb_path *path);
	bool (*drained)(struct vb_link *link, struct vb_path *path);
	bool (*unread)(struct vb_link *link, struct vb_path *path);
	bool (*polled)(struct vb_link *link, const struct vb_path *path);
	uint32_t (*expected)(struct vb_link *link, struct vb_path *path, uint32_t qpn,
			     uint32_t sqpn, uint32_t otherwise);
	__be64 (*adapter)(struct vb_link *link, struct vb_path *path, uint32_t qpn);
	uint64_t (*connection)(struct vb_link *link, struct vb_path *path, uint32_t qpn);
	void (*close)(struct vb_link *link, struct vb_path *path);
	/* close() inside a read section, any locks held. */
	void (*drop)(struct vb_link *link, struct vb_path *path);

	/* --- the receiving half. NULL, all of them, where nothing is received --- */
	/*
	 * Receive what has arrived, by vb_link_deliver() under one vb_lock of the link's own, release that, call
	 * the sink's received(), and tell how many packets that was. In a read section, any thread, several at
	 * once. thorough: also notice peers that are gone.
	 */
	uint32_t (*poll)(struct vb_link *link, bool thorough);
	/*
	 * Whether poll() would find something, for a thread that is about to sleep: a sender that publishes a
	 * packet after this look wakes it (barrier.h, or a descriptor). In a read section.
	 */
	enum vb_link_left (*pending)(struct vb_link *link);
	/* NULL, or: in the background thread, outside of read sections, where waiting is allowed. */
	void (*tend)(struct vb_link *link);
	/*
	 * NULL, or: a descriptor is readable that was given to vb_link_watch(). It is watched again from here
	 * on: false where it is not this link's. In the background thread, before it polls.
	 */
	bool (*readable)(struct vb_link *link, int fd);
	/* A wrapping link only: a packet comes from the link below. In a read section. */
	void (*receive)(struct vb_link *link, const struct vb_pkt *pkt);

	/* --- its life: called once each, with no packet on its way; NULL: nothing to do --- */
	/* The host has its slot and its segment, and no thread receives yet. 0 or -errno. */
	int (*start)(struct vb_link *link);
	/* Before the host leaves: wait, for a while, until peers have taken what it sent. Never for a lock. */
	void (*linger)(struct vb_link *link);
	/* No thread receives any more, and the segment is still there. */
	void (*stop)(struct vb_link *link);
	/* In a forked child, in place of stop(): the peers are the parent's, and mappings were not inherited. */
	void (*forked)(struct vb_link *link);
};

/* A link of one host. Zeroed but for `ops` before it is added. */
struct vb_link {
	const struct vb_link_ops *ops;
	struct vb_fabric *fabric;
	struct vb_link *over;  /* gets what is received, before the card does; NULL: none */
	struct vb_link *under; /* a wrapping link: the one that it lies over */
	struct vb_link *next;  /* of the host, in the order of asking; those at the top only */
	struct vb_link *next_receiver;
};

/* In start(): watch a descriptor, until the host stops or vb_link_unwatch(). 0 or -errno. */
int vb_link_watch(struct vb_link *link, int fd);
void vb_link_unwatch(struct vb_link *link, int fd);

/* One more link of a host that has not started, asked after the others. */
VB_PUBLIC void vb_link_add(struct vb_fabric *fabric, struct vb_link *link);
/*
 * Lay a link over one that the host has, by name, for paths that are opened from then on. Nothing is sent or
 * received meanwhile. -ENOENT: it has no such link.
 */
VB_PUBLIC int vb_link_wrap(struct vb_fabric *fabric, const char *name, struct vb_link *over);

/*
 * A wrapping link that passes everything on. Others begin as a copy of it, with functions of their own for what
 * they change; these call link->under's, and for what is received pass.receive.
 */
VB_PUBLIC extern const struct vb_link_ops vb_link_pass;
