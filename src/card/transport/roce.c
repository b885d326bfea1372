// SPDX-License-Identifier: MIT
/*
 * Owns the frames of RoCE: what a packet of queue pairs would be on a wire (IBTA annexes A16, A17).
 *
 *	         +- v2 -----------------------------+
 *	Ethernet | IPv4 or IPv6  UDP port 4791      | BTH  extended headers  data  pad  ICRC
 *	         | v1: GRH, ethertype 0x8915        |
 *
 * A packet of the card has up to 1 GiB of data; it is cut where a frame of the path MTU begins. Frames have
 * the path MTU each, and PSNs that count on from that of the message's first packet. The card counts its own
 * packets: the next message, and the acknowledgement, have fewer PSNs behind them than there were frames.
 *
 * A frame is made on the stack, first as the ICRC wants it: with eight bytes of ones in front, in place
 * of the local route header that RoCE does not have, and ones in all fields that may change on the way.
 * Then these fields get their values, and the Ethernet header covers the eight bytes.
 */
#include "card/transport/roce.h"

#include <netinet/in.h>
#include <string.h>

#include "card/ether/ether.h"
#include "card/queue/objects.h"
#include "card/transport/message.h"
#include "card/transport/requester.h"
#include "host/fault.h"
#include "packet/frame/bytes.h"

enum {
	ETH_ROCE_V1 = 0x8915,
	ROCE_PORT = 4791,
	IB_NEXT_HEADER = 0x1b,
	MASKED_LRH = 8,
	BTH = 12,
	ICRC = 4,
	DATA_MAX = 4096,
	/* GRH or IP with UDP; AtomicETH has the most of all extended headers, but for RETH with ImmDt */
	FRAME_ROOM = VB_FRAME_HEADER + IPV6_HEADER + UDP_HEADER + BTH + 32 + DATA_MAX + ICRC,
	DEFAULT_PKEY = 0xffff,
	BTH_SOLICITED = 0x80,
	BTH_MIGRATED = 0x40,
	BTH_ACK_REQUEST = 0x80,
};

/* From one queue pair to another. */
struct route {
	__be64 from, to; /* GUIDs of the adapters; 0: not known */
	uint8_t smac[6], dmac[6];
	union ibv_gid sgid, dgid;
	bool v1, ipv4;
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label;
	uint16_t sport;
	uint32_t mtu;
	uint64_t ns; /* when the packet was sent */
};

/* --- the route -------------------------------------------------------------------------------- */

/* As rdma_flow_label_to_udp_sport() has it; without a label both directions of two QPs have one port. */
static uint16_t source_port(uint32_t label, uint32_t a, uint32_t b)
{
	uint64_t mixed = (uint64_t)a * b;

	if (!label) {
		mixed ^= mixed >> 20;
		mixed ^= mixed >> 40;
		label = (uint32_t)mixed & 0xfffff;
	}
	return (uint16_t)(0xc000 | ((label & 0x3fff) ^ (label & 0xfc000) >> 14));
}

static const struct vb_adapter *find_by_gid(const union ibv_gid *gid)
{
	for (unsigned int a = 0; a < vb_card.adapters.count; a++) {
		const struct vb_adapter *adapter = &vb_card.adapters.all[a];

		for (unsigned int i = 0; i < adapter->num_gids; i++)
			if (!memcmp(&adapter->gids[i].gid, gid, sizeof(*gid)) &&
			    vb_cable_port(adapter->guid) == adapter)
				return adapter;
	}
	return NULL;
}

/* The adapter of the addressee: it tells itself, or its GID does, which several may have. */
static void find_addressee(struct route *r, struct vb_path *path, uint32_t qpn)
{
	const struct vb_qp *here = vb_qp_find(qpn);
	const struct vb_adapter *adapter;

	r->to = here ? here->dev->adapter->guid : vb_path_adapter(path, qpn);
	adapter = r->to ? vb_cable_port(r->to) : NULL;
	if (!adapter)
		adapter = find_by_gid(&r->dgid);
	if (adapter) {
		memcpy(r->dmac, adapter->config->mac, 6);
		if (!r->to)
			r->to = adapter->guid;
	} else if (r->dgid.raw[0] == 0xfe && r->dgid.raw[1] == 0x80) {
		/* An interface identifier that was made of the MAC. */
		memcpy(r->dmac, &r->dgid.raw[8], 3);
		memcpy(r->dmac + 3, &r->dgid.raw[13], 3);
		r->dmac[0] ^= 2;
	}
}

/* False: the address vector is not one that a packet could have left with. */
static bool find_route(struct route *r, const struct vb_qp *qp, struct vb_path *path,
		       const struct vb_pkt *pkt)
{
	const struct vb_adapter *adapter = qp->dev->adapter;
	const struct ibv_global_route *grh = &qp->attr.ah_attr.grh;

	*r = (struct route){ .from = adapter->guid, .mtu = DATA_MAX };
	if (pkt->grh) {
		r->sgid = pkt->grh->sgid;
		r->dgid = pkt->grh->dgid;
		r->traffic_class = pkt->grh->traffic_class;
		r->hop_limit = pkt->grh->hop_limit;
	} else {
		if (grh->sgid_index >= adapter->num_gids)
			return false;
		r->sgid = adapter->gids[grh->sgid_index].gid;
		r->dgid = grh->dgid;
		r->traffic_class = grh->traffic_class;
		r->hop_limit = grh->hop_limit;
		r->flow_label = grh->flow_label & 0xfffff;
		r->mtu = 128u << qp->attr.path_mtu;
	}
	if (r->mtu < 256 || r->mtu > DATA_MAX)
		return false;
	r->v1 = pkt->transport & VB_TRANSPORT_V1;
	r->ipv4 = !r->v1 && IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)&r->dgid);
	r->sport = qp->sport ? qp->sport : source_port(r->flow_label, pkt->sqpn, pkt->dqpn);
	memcpy(r->smac, adapter->config->mac, 6);
	find_addressee(r, path, pkt->dqpn);
	return true;
}

static struct route turned(const struct route *r)
{
	struct route back = *r;

	back.from = r->to;
	back.to = r->from;
	back.sgid = r->dgid;
	back.dgid = r->sgid;
	memcpy(back.smac, r->dmac, 6);
	memcpy(back.dmac, r->smac, 6);
	return back;
}

/* --- headers ---------------------------------------------------------------------------------- */

static void write24(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 16);
	write16(at + 1, value & 0xffff);
}

static void write64(uint8_t *at, uint64_t value)
{
	write32(at, (uint32_t)(value >> 32));
	write32(at + 4, (uint32_t)value);
}

/* What atomics with masks look like on a wire is not public: they are shown as those without. */
static bool is_swap(const struct vb_pkt *pkt)
{
	return pkt->op == VB_PKT_COMPARE_SWAP || pkt->op == VB_PKT_MASKED_COMPARE_SWAP;
}

static uint8_t opcode_of(const struct vb_pkt *pkt)
{
	/* first, middle, last, only */
	static const uint8_t send[] = { 0x00, 0x01, 0x02, 0x04 },
			     write[] = { 0x06, 0x07, 0x08, 0x0a },
			     response[] = { 0x0d, 0x0e, 0x0f, 0x10 };
	bool first = pkt->flags & VB_PKT_FIRST, last = pkt->flags & VB_PKT_LAST;
	unsigned int part = first && last ? 3 : last ? 2 : first ? 0 : 1;
	uint8_t type = vb_transport_type(pkt->transport);
	uint8_t base = type == IBV_QPT_UD ? 0x60 : type == IBV_QPT_UC ? 0x20 : 0, op;

	switch (pkt->op) {
	case VB_PKT_SEND:
		op = pkt->flags & VB_PKT_INVALIDATE
			     ? (first ? 0x17 : 0x16)
			     : (uint8_t)(send[part] + !!(pkt->flags & VB_PKT_IMM));
		break;
	case VB_PKT_WRITE:
		op = (uint8_t)(write[part] + !!(pkt->flags & VB_PKT_IMM));
		break;
	case VB_PKT_READ:
		op = 0x0c;
		break;
	case VB_PKT_READ_RESPONSE:
		op = response[part];
		break;
	case VB_PKT_ACK:
		op = 0x11;
		break;
	case VB_PKT_ATOMIC_RESPONSE:
		op = 0x12;
		break;
	default:
		op = is_swap(pkt) ? 0x13 : 0x14;
	}
	return base | op;
}

static uint8_t *put_bth(uint8_t *at, const struct vb_pkt *pkt, uint32_t pad)
{
	bool asks =
		(pkt->flags & VB_PKT_ACK_REQ) && vb_transport_type(pkt->transport) == IBV_QPT_RC;

	at[0] = opcode_of(pkt);
	at[1] = (uint8_t)((pkt->flags & VB_PKT_SOLICITED ? BTH_SOLICITED : 0) | BTH_MIGRATED |
			  pad << 4);
	write16(at + 2, DEFAULT_PKEY);
	at[4] = 0xff; /* for the ICRC */
	write24(at + 5, pkt->dqpn);
	at[8] = asks ? BTH_ACK_REQUEST : 0;
	write24(at + 9, pkt->psn);
	return at + BTH;
}

static uint8_t *put_reth(uint8_t *at, const struct vb_pkt *pkt)
{
	write64(at, pkt->va);
	write32(at + 8, pkt->rkey);
	write32(at + 12, pkt->dma_len);
	return at + 16;
}

static uint8_t *put_atomic(uint8_t *at, const struct vb_pkt *pkt)
{
	write64(at, pkt->va);
	write32(at + 8, pkt->rkey);
	write64(at + 12, pkt->swap_add);
	write64(at + 20, is_swap(pkt) ? pkt->compare : 0);
	return at + 28;
}

static uint8_t *put_aeth(uint8_t *at, const struct vb_pkt *pkt)
{
	at[0] = pkt->syndrome;
	write24(at + 1, pkt->msn);
	return at + 4;
}

static uint8_t *put_extended(uint8_t *at, const struct vb_pkt *pkt)
{
	if (vb_transport_type(pkt->transport) == IBV_QPT_UD) {
		write32(at, pkt->qkey);
		write32(at + 4, pkt->sqpn & 0xffffff);
		at += 8;
	}
	if (pkt->op == VB_PKT_READ || (pkt->op == VB_PKT_WRITE && (pkt->flags & VB_PKT_FIRST)))
		at = put_reth(at, pkt);
	if (vb_pkt_is_atomic(pkt))
		at = put_atomic(at, pkt);
	if (pkt->op == VB_PKT_ACK || pkt->op == VB_PKT_ATOMIC_RESPONSE ||
	    (pkt->op == VB_PKT_READ_RESPONSE && (pkt->flags & VB_PKT_ONLY)))
		at = put_aeth(at, pkt);
	if (pkt->op == VB_PKT_ATOMIC_RESPONSE) {
		write64(at, pkt->swap_add);
		at += 8;
	}
	if (pkt->flags & VB_PKT_INVALIDATE) {
		write32(at, pkt->inv_rkey);
		at += 4;
	} else if (pkt->flags & VB_PKT_IMM) {
		memcpy(at, &pkt->imm, 4);
		at += 4;
	}
	return at;
}

/* --- a frame ---------------------------------------------------------------------------------- */

static uint32_t network_len(const struct route *r)
{
	return r->v1 ? IPV6_HEADER : (r->ipv4 ? IPV4_HEADER : IPV6_HEADER) + UDP_HEADER;
}

/* With ones for the ICRC; len: of the whole from here on. */
static void put_network(uint8_t *at, const struct route *r, uint32_t len)
{
	uint8_t *udp = at + (r->ipv4 ? IPV4_HEADER : IPV6_HEADER);

	if (r->ipv4) {
		memset(at, 0, IPV4_HEADER);
		at[0] = 0x45;
		at[1] = 0xff;
		write16(at + 2, len);
		at[6] = 0x40; /* do not fragment */
		at[8] = 0xff;
		at[9] = IPPROTO_UDP;
		write16(at + 10, 0xffff);
		memcpy(at + 12, &r->sgid.raw[12], 4);
		memcpy(at + 16, &r->dgid.raw[12], 4);
	} else {
		write32(at, 0x6fffffff);
		write16(at + 4, len - IPV6_HEADER);
		at[6] = r->v1 ? IB_NEXT_HEADER : IPPROTO_UDP;
		at[7] = 0xff;
		memcpy(at + 8, &r->sgid, 16);
		memcpy(at + 24, &r->dgid, 16);
	}
	if (r->v1)
		return;
	write16(udp, r->sport);
	write16(udp + 2, ROCE_PORT);
	write16(udp + 4, len - (uint32_t)(udp - at));
	write16(udp + 6, 0xffff);
}

/* The values in place of the ones. RoCE v2 does without a UDP checksum. */
static void unmask(uint8_t *frame, const struct route *r)
{
	uint8_t *at = frame + VB_FRAME_HEADER, *bth = at + network_len(r);

	bth[4] = 0;
	if (!r->v1)
		write16(bth - 2, 0);
	if (r->ipv4) {
		at[1] = r->traffic_class;
		at[8] = r->hop_limit;
		write16(at + 10, 0);
		write16(at + 10, (uint16_t)~vb_frame_sum16(at, IPV4_HEADER, 0));
	} else {
		write32(at, 6u << 28 | (uint32_t)r->traffic_class << 20 | r->flow_label);
		at[7] = r->hop_limit;
	}
	memcpy(frame, r->dmac, 6);
	memcpy(frame + 6, r->smac, 6);
	write16(frame + 12, r->v1 ? ETH_ROCE_V1 : r->ipv4 ? ETH_IPV4 : ETH_IPV6);
}

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

static bool show_frame(const struct route *r, const struct vb_pkt *pkt, const struct iovec *iov,
		       int cnt, uint64_t offset, uint32_t len)
{
	uint8_t data[FRAME_ROOM];
	struct vb_frame frame = { .data = data };
	uint8_t *network = data + VB_FRAME_HEADER, *lrh = network - MASKED_LRH;
	uint32_t pad = -len & 3, icrc;
	uint8_t *at;

	at = put_extended(put_bth(network + network_len(r), pkt, pad), pkt);
	if (!read_data(at, iov, cnt, offset, len))
		return false;
	at += len;
	memset(at, 0, pad);
	at += pad;
	put_network(network, r, (uint32_t)(at - network) + ICRC);
	memset(lrh, 0xff, MASKED_LRH);
	icrc = htole32(vb_frame_fcs(lrh, (uint32_t)(at - lrh)));
	memcpy(at, &icrc, ICRC);
	unmask(data, r);
	frame.len = (uint32_t)(at - data) + ICRC;
	frame.tailroom = FRAME_ROOM - frame.len;
	vb_frame_parse(&frame);
	vb_frame_pad(&frame);
	vb_cable_show(r->from, r->to, &frame, r->ns);
	return true;
}

/*
 * A packet as one frame, or as many as its data need, up to a bound: the queue is locked meanwhile, and
 * what the card copies at once may be a gigabyte.
 */
static void show_packet(const struct route *r, const struct vb_pkt *pkt, const struct iovec *iov,
			int cnt, uint64_t offset, uint32_t len)
{
	const uint16_t of_last =
		VB_PKT_LAST | VB_PKT_IMM | VB_PKT_INVALIDATE | VB_PKT_SOLICITED | VB_PKT_ACK_REQ;
	struct vb_pkt part = *pkt;
	uint32_t at = 0, step, frames = 0;

	do {
		step = len - at < r->mtu ? len - at : r->mtu;
		part.flags = pkt->flags;
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

		show_packet(&route, &ack, NULL, 0, 0, 0);
	}
	show_packet(&route, &first, iov, cnt, offset, len);
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
	show_packet(&route, &first, pkt->iov, (int)pkt->iov_cnt, 0, pkt->len);
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
	show_packet(&back, &pkt, pkt.iov, (int)pkt.iov_cnt, 0, pkt.len);
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
	show_packet(&there, &part, iov, cnt, 0, read || atomic ? 0 : (uint32_t)wr->len);
	if (qp->type != IBV_QPT_RC)
		return;
	back = turned(&there);
	part.op = read ? VB_PKT_READ_RESPONSE : atomic ? VB_PKT_ATOMIC_RESPONSE : VB_PKT_ACK;
	if (atomic) {
		part.swap_add = 0;
		vb_message_copy(&(struct iovec){ &part.swap_add, 8 }, 1, 0, iov, (uint32_t)cnt);
		if (wr->word == sizeof(uint32_t)) /* it is there as on a wire */
			part.swap_add = be32toh((uint32_t)part.swap_add);
	}
	part.flags = VB_PKT_ONLY;
	part.syndrome = VB_SYN_ACK;
	part.dqpn = qp->number;
	part.sqpn = pkt->dqpn;
	part.msn = 0; /* the target does not count it */
	show_packet(&back, &part, iov, cnt, 0, read ? (uint32_t)wr->len : 0);
}
