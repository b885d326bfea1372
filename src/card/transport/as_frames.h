/* SPDX-License-Identifier: MIT */
/*
 * Packets of queue pairs as the Ethernet frames that they would be on a wire, for sniffers. The process
 * that sends a packet makes its frames. While nobody sniffs, in no process, a packet costs the two loads
 * of vb_roce_watched().
 *
 * Everything here runs inside a read section and a burst.
 */
#pragma once

#include "base/time.h"
#include "card/queue/objects.h"

enum { VB_ROCE_MOST = 256 }; /* frames of what the card moves at once; the rest is not shown */

static inline bool vb_roce_watched(const struct vb_card *card)
{
	return __builtin_expect(vb_registry_sniffed(card->meet), 0);
}

/* Before a packet is sent: the time, for the functions below; 0: nobody sniffs, and they are not called. */
static inline uint64_t vb_roce_time(const struct vb_card *card)
{
	return vb_roce_watched(card) ? vb_now_ns() | 1 : 0;
}

/*
 * A request that leaves on this path, and before it the acknowledgement that it carries. Its data are
 * bytes [offset, offset + len) of the pieces. sq.lock is held.
 */
void vb_roce_request(struct vb_qp *qp, struct vb_path *path, const struct vb_pkt *pkt,
		     const struct iovec *iov, int cnt, uint64_t offset, uint32_t len, uint64_t ns)
	__attribute__((cold));
/*
 * What the responder of qp sends: the packet that is offset bytes into a response that begins with psn. rq.lock
 * is held.
 */
void vb_roce_answer(struct vb_qp *qp, const struct vb_pkt *pkt, uint32_t psn, uint32_t offset,
		    uint64_t ns) __attribute__((cold));
/* What a queue pair of this process has answered to a call of qp. qp's sq.lock is held. */
void vb_roce_reply(struct vb_qp *qp, struct vb_qp *target, const struct vb_pkt *reply)
	__attribute__((cold));
/*
 * A WRITE, READ or atomic that was done in the memory of another process, without a packet: the request, and the
 * answer that it would have had. sq.lock is held.
 */
void vb_roce_copied(struct vb_qp *qp, const struct vb_pkt *pkt, const struct iovec *iov, int cnt,
		    uint64_t ns) __attribute__((cold));
