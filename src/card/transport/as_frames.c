// SPDX-License-Identifier: MIT
/*
 * Owns which frames a packet of queue pairs would be on a wire: the addresses of both ends, and how many frames
 * there are. packet/roce.h has their bytes.
 *
 * A packet of the card has up to 1 GiB of data; it is cut where a frame of the path MTU begins. Frames have
 * the path MTU each, and PSNs that count on from that of the message's first packet. The card counts its own
 * packets: the next message, and the acknowledgement, have fewer PSNs behind them than there were frames.
 */
#include "card/transport/as_frames.h"

#include <netinet/in.h>
#include <string.h>

#include "card/ether/ether.h"
#include "card/queue/objects.h"
#include "card/transport/message.h"
#include "card/transport/requester.h"
#include "host/fault.h"
#include "packet/frame/frame.h"
#include "packet/roce.h"

enum { FRAME_ROOM = VB_ROCE_HEAD_MAX + VB_ROCE_DATA + VB_ROCE_TAIL_MAX };

/* From one queue pair to another. */
struct route {
	struct vb_roce_route on_wire;
	struct vb_card *card; /* of the sender */
	__be64 from, to;      /* GUIDs of the adapters; 0: not known */
	uint32_t mtu;
	uint64_t ns; /* when the packet was sent */
};

/* --- the route -------------------------------------------------------------------------------- */

static const struct vb_adapter *find_by_gid(struct vb_card *card, const union ibv_gid *gid)
{
	for (unsigned int a = 0; a < card->adapters.count; a++) {
		const struct vb_adapter *adapter = &card->adapters.all[a];

		for (unsigned int i = 0; i < adapter->num_gids; i++)
			if (!memcmp(&adapter->gids[i].gid, gid, sizeof(*gid)) &&
			    vb_cable_port(card, adapter->guid) == adapter)
				return adapter;
	}
	return NULL;
}

/* The adapter of the addressee: it tells itself, or its GID does, which several may have. */
static void find_addressee(struct route *r, struct vb_path *path, uint32_t qpn)
{
	const struct vb_qp *here = vb_qp_find(r->card, qpn);
	const union ibv_gid *dgid = &r->on_wire.dgid;
	uint8_t *dmac = r->on_wire.dmac;
	const struct vb_adapter *adapter;

	r->to = here ? here->dev->adapter->guid : vb_path_adapter(path, qpn);
	adapter = r->to ? vb_cable_port(r->card, r->to) : NULL;
	if (!adapter)
		adapter = find_by_gid(r->card, dgid);
	if (adapter) {
		memcpy(dmac, adapter->config->mac, 6);
		if (!r->to)
			r->to = adapter->guid;
	} else if (dgid->raw[0] == 0xfe && dgid->raw[1] == 0x80) {
		/* An interface identifier that was made of the MAC. */
		memcpy(dmac, &dgid->raw[8], 3);
		memcpy(dmac + 3, &dgid->raw[13], 3);
		dmac[0] ^= 2;
	}
}

/* False: the address vector is not one that a packet could have left with. */
static bool find_route(struct route *r, const struct vb_qp *qp, struct vb_path *path,
		       const struct vb_pkt *pkt)
{
	const struct vb_adapter *adapter = qp->dev->adapter;
	const struct ibv_global_route *grh = &qp->attr.ah_attr.grh;
	struct vb_roce_route *w = &r->on_wire;

	*r = (struct route){ .card = qp->card,
			     .from = adapter->guid,
			     .mtu = VB_ROCE_DATA,
			     .on_wire = { .ip_df = true, .pkey = VB_ROCE_PKEY, .migreq = true } };
	if (pkt->grh) {
		w->sgid = pkt->grh->sgid;
		w->dgid = pkt->grh->dgid;
		w->traffic_class = pkt->grh->traffic_class;
		w->hop_limit = pkt->grh->hop_limit;
	} else {
		if (grh->sgid_index >= adapter->num_gids)
			return false;
		w->sgid = adapter->gids[grh->sgid_index].gid;
		w->dgid = grh->dgid;
		w->traffic_class = grh->traffic_class;
		w->hop_limit = grh->hop_limit;
		w->flow_label = grh->flow_label & 0xfffff;
		r->mtu = 128u << qp->attr.path_mtu;
	}
	if (r->mtu < 256 || r->mtu > VB_ROCE_DATA)
		return false;
	w->network = pkt->transport & VB_TRANSPORT_V1                          ? VB_ROCE_V1
		     : IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)&w->dgid) ? VB_ROCE_IPV4
									       : VB_ROCE_IPV6;
	w->sport = qp->sport ? qp->sport : vb_roce_source_port(w->flow_label, pkt->sqpn, pkt->dqpn);
	memcpy(w->smac, adapter->config->mac, 6);
	find_addressee(r, path, pkt->dqpn);
	return true;
}

static struct route turned(const struct route *r)
{
	struct route back = *r;

	back.from = r->to;
	back.to = r->from;
	back.on_wire.sgid = r->on_wire.dgid;
	back.on_wire.dgid = r->on_wire.sgid;
	memcpy(back.on_wire.smac, r->on_wire.dmac, 6);
	memcpy(back.on_wire.dmac, r->on_wire.smac, 6);
	return back;
}

/* --- a frame ---------------------------------------------------------------------------------- */

/* Data of the pieces; false: they are not there any more. */
static bool read_data(uint8_t *to, const struct iovec *iov, int cnt, uint64_t offset, uint32_t len)
{
	struct iovec part[VB_WR_MAX_SGE];
	uint32_t n = vb_message_slice(iov, cnt, offset, len, part);

	for (uint32_t i = 0; i < n; i++) {
		if (vb_fault_copy(to, part[i].iov_base, part[i].iov_len))
			return false;
		to += part[i].iov_len;
	}
	return true;
}

/*
 * As the sniffer sees it: what is between processes only is not there, and atomics with masks, whose form on
 * a wire of mlx5 is not public, are those without.
 */
static void make_plain(struct vb_pkt *pkt)
{
	pkt->transport &= (uint8_t)~VB_TRANSPORT_CUT;
	pkt->flags &= (uint16_t) ~(VB_PKT_PLACED | VB_PKT_ACKS);
	pkt->source.lkey = 0;
	if (pkt->op == VB_PKT_MASKED_COMPARE_SWAP)
		pkt->op = VB_PKT_COMPARE_SWAP;
	else if (pkt->op == VB_PKT_MASKED_FETCH_ADD)
		pkt->op = VB_PKT_FETCH_ADD;
}

static bool show_frame(const struct route *r, struct vb_pkt *pkt, const struct iovec *iov, int cnt,
		       uint64_t offset, uint32_t len)
{
	uint8_t room[FRAME_ROOM], *data = room + VB_ROCE_HEAD_MAX;
	struct iovec copy = { data, len };
	struct vb_roce_bytes bytes;
	struct vb_frame frame;

	if (!read_data(data, iov, cnt, offset, len))
		return false;
	pkt->iov = &copy;
	pkt->iov_cnt = 1;
	pkt->len = len;
	if (vb_roce_encode(&r->on_wire, pkt, &bytes))
		return false;
	memcpy(data - bytes.head_len, bytes.head, bytes.head_len);
	memcpy(data + len, bytes.tail, bytes.tail_len);
	frame = (struct vb_frame){ .data = data - bytes.head_len,
				   .len = bytes.head_len + len + bytes.tail_len };
	frame.tailroom = (uint32_t)(room + FRAME_ROOM - (frame.data + frame.len));
	vb_frame_parse(&frame);
	vb_frame_pad(&frame);
	vb_cable_show(r->card, r->from, r->to, &frame, r->ns);
	return true;
}

/*
 * A packet as one frame, or as many as its data need, up to a bound: the queue is locked meanwhile, and
 * what the card copies at once may be a gigabyte.
 */
static void roce_show_packet(const struct route *r, const struct vb_pkt *pkt,
			     const struct iovec *iov, int cnt, uint64_t offset, uint32_t len)
{
	const uint16_t of_last =
		VB_PKT_LAST | VB_PKT_IMM | VB_PKT_INVALIDATE | VB_PKT_SOLICITED | VB_PKT_ACK_REQ;
	struct vb_pkt part = *pkt;
	uint16_t flags;
	uint32_t at = 0, step, frames = 0;

	make_plain(&part);
	flags = part.flags;
	do {
		step = len - at < r->mtu ? len - at : r->mtu;
		part.flags = flags;
		if (at)
			part.flags &= (uint16_t)~VB_PKT_FIRST;
		if (at + step < len)
			part.flags &= (uint16_t)~of_last;
		if (!show_frame(r, &part, iov, cnt, offset + at, step))
			return;
		part.psn = vb_psn_add(part.psn, 1);
		at += step;
	} while (at < len && ++frames < VB_ROCE_MOST);
}

/* --- packets ---------------------------------------------------------------------------------- */

/* Syndromes that are never on a wire: what follows from them is. */
static bool is_internal(const struct vb_pkt *pkt)
{
	return pkt->op == VB_PKT_ACK &&
	       (pkt->syndrome == VB_SYN_SOURCE_FAULT || pkt->syndrome == VB_SYN_NO_PULL);
}

static uint32_t msn_of(struct vb_qp *qp)
{
	uint32_t msn;

	vb_lock(&qp->rq.lock);
	msn = qp->rq.msn;
	vb_unlock(&qp->rq.lock);
	return msn;
}

void vb_roce_request(struct vb_qp *qp, struct vb_path *path, const struct vb_pkt *pkt,
		     const struct iovec *iov, int cnt, uint64_t offset, uint32_t len, uint64_t ns)
{
	struct vb_pkt first = *pkt;
	struct route route;

	if (!find_route(&route, qp, path, pkt))
		return;
	route.ns = ns;
	if (offset)
		first.psn = vb_psn_add(qp->sq.first_psn, (uint32_t)(offset / route.mtu));
	if (pkt->flags & VB_PKT_ACKS) {
		struct vb_pkt ack = { .op = VB_PKT_ACK,
				      .syndrome = VB_SYN_ACK,
				      .transport = pkt->transport,
				      .flags = VB_PKT_ONLY,
				      .dqpn = pkt->dqpn,
				      .sqpn = pkt->sqpn,
				      .psn = pkt->acked_psn,
				      .msn = msn_of(qp) };

		roce_show_packet(&route, &ack, NULL, 0, 0, 0);
	}
	roce_show_packet(&route, &first, iov, cnt, offset, len);
}

void vb_roce_answer(struct vb_qp *qp, const struct vb_pkt *pkt, uint32_t psn, uint32_t offset,
		    uint64_t ns)
{
	struct vb_pkt first = *pkt;
	struct route route;

	if (is_internal(pkt) || !find_route(&route, qp, &qp->path, pkt))
		return;
	first.psn = vb_psn_add(psn, offset / route.mtu);
	route.ns = ns;
	roce_show_packet(&route, &first, pkt->iov, (int)pkt->iov_cnt, 0, pkt->len);
}

void vb_roce_reply(struct vb_qp *qp, struct vb_qp *target, const struct vb_pkt *reply)
{
	struct vb_pkt pkt = *reply;
	struct route there, back;

	/* As qp sees the route: the target's own address vector may be changing. */
	pkt.transport = qp->transport;
	pkt.dqpn = target->number;
	pkt.sqpn = qp->number;
	if (is_internal(&pkt) || !find_route(&there, qp, &qp->path, &pkt))
		return;
	back = turned(&there);
	back.ns = vb_now_ns();
	pkt.dqpn = qp->number;
	pkt.sqpn = target->number;
	pkt.msn = msn_of(target);
	roce_show_packet(&back, &pkt, pkt.iov, (int)pkt.iov_cnt, 0, pkt.len);
}

void vb_roce_copied(struct vb_qp *qp, const struct vb_pkt *pkt, const struct iovec *iov, int cnt,
		    uint64_t ns)
{
	const struct vb_wr *wr = &qp->sq.wr;
	bool read = wr->op == VB_WR_READ, atomic = vb_wr_is_atomic(wr);
	struct vb_pkt part = *pkt;
	struct route there, back;

	part.psn = qp->sq.sender.psn;
	part.flags = vb_message_flags(wr, 0, (uint32_t)wr->len);
	if (!find_route(&there, qp, &qp->path, &part))
		return;
	there.ns = ns;
	roce_show_packet(&there, &part, iov, cnt, 0, read || atomic ? 0 : (uint32_t)wr->len);
	if (qp->type != IBV_QPT_RC)
		return;
	back = turned(&there);
	part.op = read ? VB_PKT_READ_RESPONSE : atomic ? VB_PKT_ATOMIC_RESPONSE : VB_PKT_ACK;
	if (atomic) {
		part.original = 0;
		vb_message_copy(&(struct iovec){ &part.original, 8 }, 1, 0, iov, (uint32_t)cnt);
		if (wr->word == sizeof(uint32_t)) /* it is there as on a wire */
			part.original = be32toh((uint32_t)part.original);
	}
	part.flags = VB_PKT_ONLY;
	part.syndrome = VB_SYN_ACK;
	part.dqpn = qp->number;
	part.sqpn = pkt->dqpn;
	part.msn = 0; /* the target does not count it */
	roce_show_packet(&back, &part, iov, cnt, 0, read ? (uint32_t)wr->len : 0);
}
