/* SPDX-License-Identifier: MIT */
/*
 * A burst is what a thread does in the card between taking its first queue lock and releasing its
 * last one: one doorbell, one look at the ring of a peer, one item of deferred work.
 *
 * What leaves the card is delivered at the end of the burst, with no queue lock held: callbacks of
 * the program (CQ notifications, asynchronous events) and wake-ups of other processes and of the
 * background thread. These may take long, make system calls and take locks of their own. Wake-ups
 * at once, under the send queue's lock, are the exception: for more than VB_BURST_PATHS peers, for
 * raw frames (fabric/frames.c), and for the target of a WRITE that both sides copy (transport/one_sided.c).
 *
 * Until the end they are collected per thread, linked through the objects that they are about, so
 * that collecting allocates nothing and shares nothing:
 *
 *	struct vb_burst (per thread)
 *	  first --> notice of a CQ --> notice of a QP --> NULL      in the order of posting
 *	  path[]  peers that packets were sent to
 *	  cq[]    CQs with completions that may still be compressed (compress.c)
 *
 * Per thread: a thread is in one burst at a time, of one card, which the burst knows. What it has collected
 * is of that card, too.
 *
 * A burst begins and ends inside one read section and with no queue lock held, so its objects stay.
 * Bursts may be nested; every end delivers.
 *
 * Order: a thread delivers its notices in the order in which it posted them, each after the CQE
 * that it announces was written. If another thread has posted a notice that is not delivered yet,
 * that thread also delivers what this one adds to it.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/lock.h"
#include "fabric/fabric.h"

struct vb_card;
struct vb_cq;
struct vb_qp;

/* Packets to one queue pair that follow one another; see run.h. */
struct vb_run {
	struct vb_qp *qp;   /* its rq.lock is held; NULL: there is no run */
	struct vb_cq *cq;   /* that of its receives, where its lock is held, too; or NULL */
	bool acks;          /* packets of it carried acknowledgements, */
	uint32_t acked_psn; /* of everything up to here, */
	uint32_t sqpn;      /* by this queue pair */
};

/*
 * Part of an object that calls back. Invariant: linked if and only if `what` is not 0. The thread
 * that changes it from 0 links it.
 */
struct vb_notice {
	_Atomic uint64_t what; /* as the object means it */
	struct vb_notice *next;
	void (*tell)(struct vb_notice *notice, uint64_t what);
};

enum {
	VB_BURST_CQS = 8,     /* CQs beyond that are not compressed */
	VB_BURST_PATHS = 4,   /* peers beyond that are woken at once */
	VB_BURST_LONG = 4096, /* bytes of a long copy: completions and notices do not wait for it */
};

struct vb_burst {
	unsigned int depth; /* of nesting; 0: none */
	bool pending;       /* there is something to do at the end */
	bool receiving;     /* begun by vb_burst_receive() */
	bool kick;          /* wake the background thread */
	bool answers;       /* a peer waits for a response that was deferred */
	uint8_t cqs, paths;
	struct vb_card *card; /* whose burst it is, or the last one was */
	unsigned int held;    /* VB_CHECKS: locks that the thread held when it entered the card */
	struct vb_run run;    /* of vb_card_sink.receive(); ends before its received() */
	struct vb_notice *first, *last;
	struct vb_cq *cq[VB_BURST_CQS];
	struct vb_path path[VB_BURST_PATHS];
};

extern _Thread_local struct vb_burst vb_burst;

void vb_burst_close(void);

static inline void vb_burst_begin(struct vb_card *card)
{
	vb_check(!vb_burst.depth || vb_burst.card == card);
	vb_burst.card = card;
	if (!vb_burst.depth++)
		vb_checked(vb_burst.held = vb_locks_held);
}

static inline void vb_burst_end(void)
{
	vb_burst.depth--;
	if (__builtin_expect(vb_burst.pending, 0))
		vb_burst_close();
}

#ifdef VB_CHECKS
/* The thread's locks but for those of its run. */
static inline unsigned int vb_burst_locks(void)
{
	return vb_locks_held - !!vb_burst.run.qp - !!vb_burst.run.cq;
}
#endif

/*
 * For each packet; the first begins the burst. The link may hold locks of its own, as that of a
 * ring, and has released them when it says that this was the last.
 */
static inline void vb_burst_receive(struct vb_card *card)
{
	if (vb_burst.receiving)
		return;
	vb_burst.receiving = true;
	vb_burst_begin(card);
}

/* Behind each packet. */
static inline void vb_burst_taken(void)
{
	vb_check(vb_burst.depth != 1 || vb_burst_locks() == vb_burst.held);
}

/* Behind the last one, before its run ends. */
static inline void vb_burst_released(void)
{
	if (vb_burst.receiving && vb_burst.depth == 1)
		vb_checked(vb_burst.held = vb_burst_locks());
}

static inline void vb_burst_received(void)
{
	if (!vb_burst.receiving)
		return;
	vb_burst.receiving = false;
	vb_burst_end();
}

/* Whether a notice is pending that should be delivered before so many bytes are copied. */
static inline bool vb_burst_is_awaited(uint64_t bytes)
{
	return __builtin_expect(bytes > VB_BURST_LONG, 0) && vb_burst.first;
}

/* Before a copy of so many bytes: write the completions that wait to be compressed. */
void vb_burst_write(void);

static inline void vb_burst_before(uint64_t bytes)
{
	if (__builtin_expect(bytes > VB_BURST_LONG, 0) && vb_burst.cqs)
		vb_burst_write();
}

/* --- collecting: in a burst, any locks held --------------------------------------------------- */

void vb_notice_link(struct vb_notice *notice);

/* Counted: the callback learns the sum of all counts. */
static inline void vb_notice_add(struct vb_notice *notice, uint64_t count)
{
	/* Pairs with tell_all(), which has read the link before it sets this to 0. */
	if (!atomic_fetch_add_explicit(&notice->what, count, memory_order_acq_rel))
		vb_notice_link(notice);
}

/* Bits: one that is pending already is delivered once. */
static inline void vb_notice_set(struct vb_notice *notice, uint64_t bits)
{
	if (!atomic_fetch_or_explicit(&notice->what, bits, memory_order_acq_rel)) /* as above */
		vb_notice_link(notice);
}

/* Packets were sent on this path: wake the peer if it sleeps. */
void vb_burst_flush(const struct vb_path *path);
/* Wake the background thread of the card's host; at once where there is no burst. */
void vb_burst_kick(struct vb_card *card);
/* Have the end of the burst write the CQ's compressed completions. False: no room, or no burst. */
bool vb_burst_compresses(struct vb_cq *cq);

/* In a forked child: drop what the parent's thread had collected. */
void vb_burst_forked(void);
