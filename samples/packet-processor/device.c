// SPDX-License-Identifier: MIT
/*
 * A packet processor: answers ARP requests and pings for its address, and sends UDP back with another port.
 *
 *	RQ --CQ--> handler: look, change in place --> SQ --CQ--> buffer goes back to the RQ
 *
 * A frame is changed where it was received and sent from there. So its buffer is posted again only when the send has
 * completed; a burst of frames shares one doorbell and one wait.
 */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>
#include <libflexio-libc/string.h>

#include "shared.h"

enum { ETH = 14, IP = 20, UDP = 8, ARP = 28, ICMP = 8 };
enum { TYPE_IP = 0x0800, TYPE_ARP = 0x0806, PROTOCOL_ICMP = 1, PROTOCOL_UDP = 17 };
enum { CQE_REQUEST = 0, CQE_RESPONDER_SEND = 2 };

/* What becomes of a frame. */
enum verdict { IGNORE, SEND, SEND_WITH_CHECKSUMS };

/* ---- bytes ---- */

static uint32_t get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t get32(const uint8_t *p)
{
	return get16(p) << 16 | get16(p + 2);
}

static void put16(uint8_t *p, uint32_t value)
{
	p[0] = (uint8_t)(value >> 8);
	p[1] = (uint8_t)value;
}

static void put32(uint8_t *p, uint32_t value)
{
	put16(p, value >> 16);
	put16(p + 2, value);
}

static void put_our_mac(uint8_t *p)
{
	put16(p, (uint32_t)(OUR_MAC >> 32));
	put32(p + 2, (uint32_t)OUR_MAC);
}

/* Back to who sent it; the frame may have come to the broadcast address. */
static void turn_ethernet(uint8_t *frame)
{
	memcpy(frame, frame + 6, 6);
	put_our_mac(frame + 6);
}

/* ---- protocols ---- */

static enum verdict answer_arp(struct processor *p, uint8_t *frame, uint32_t len)
{
	uint8_t *arp = frame + ETH;

	if (len < ETH + ARP || get32(arp) != 0x00010800 || get32(arp + 4) != 0x06040001 ||
	    get32(arp + 24) != OUR_IP)
		return IGNORE;
	turn_ethernet(frame);
	put16(arp + 6, 2);
	memcpy(arp + 18, arp + 8, 10); /* the sender becomes the target */
	put_our_mac(arp + 8);
	put32(arp + 14, OUR_IP);
	p->arp++;
	if (p->verbose)
		flexio_dev_print("ARP: told %u.%u.%u.%u who we are\n", arp[24], arp[25], arp[26],
				 arp[27]);
	return SEND;
}

static enum verdict answer_ping(struct processor *p, uint8_t *frame, uint32_t len)
{
	uint8_t *ip = frame + ETH, *icmp = ip + IP;
	uint32_t sum, from = get32(ip + 12);

	if (len < ETH + IP + ICMP || get16(icmp) != 0x0800)
		return IGNORE;
	turn_ethernet(frame);
	put32(ip + 12, OUR_IP);
	put32(ip + 16, from);
	/* Type 8 becomes 0, so the sum, which is a complement, grows by as much. Addresses only change places. */
	sum = get16(icmp + 2) + 0x0800;
	put16(icmp + 2, (sum & 0xffff) + (sum >> 16));
	icmp[0] = 0;
	p->echo++;
	if (p->verbose)
		flexio_dev_print("ICMP: echo %u of %u.%u.%u.%u\n", get16(icmp + 6), ip[16], ip[17],
				 ip[18], ip[19]);
	return SEND;
}

/* The next port, one hop less to live; the card makes both checksums. */
static enum verdict forward_udp(struct processor *p, uint8_t *frame, uint32_t len)
{
	uint8_t *ip = frame + ETH, *udp = ip + IP;
	uint32_t port;

	if (len < ETH + IP + UDP || ip[8] < 2)
		return IGNORE;
	port = get16(udp + 2);
	turn_ethernet(frame);
	ip[8]--;
	put16(udp + 2, port + 1);
	p->forwarded++;
	if (p->verbose)
		flexio_dev_print("UDP: port %u becomes %u\n", port, (port + 1) & 0xffff);
	return SEND_WITH_CHECKSUMS;
}

static enum verdict process(struct processor *p, uint8_t *frame, uint32_t len)
{
	const uint8_t *ip = frame + ETH;

	if (len < ETH + IP)
		return IGNORE;
	if (get16(frame + 12) == TYPE_ARP)
		return answer_arp(p, frame, len);
	/* IPv4 for us, without options, not a fragment */
	if (get16(frame + 12) != TYPE_IP || ip[0] != 0x45 || get16(ip + 6) & 0x3fff ||
	    get32(ip + 16) != OUR_IP)
		return IGNORE;
	if (ip[9] == PROTOCOL_ICMP)
		return answer_ping(p, frame, len);
	return ip[9] == PROTOCOL_UDP ? forward_udp(p, frame, len) : IGNORE;
}

/* ---- queues ---- */

/* The next completion, or NULL. The owner bit changes with each turn of the ring. */
static struct flexio_dev_cqe64 *next_cqe(const struct queue *cq)
{
	struct flexio_dev_cqe64 *cqe = (struct flexio_dev_cqe64 *)cq->ring + cq->index % DEPTH;

	return flexio_dev_cqe_get_owner(cqe) == ((cq->index / DEPTH) & 1) ? cqe : NULL;
}

static void post_send(struct processor *p, uint64_t addr, uint32_t len, enum verdict verdict)
{
	union flexio_dev_sqe_seg *wqe =
		(union flexio_dev_sqe_seg *)p->sq.ring + 4 * (p->sq.index % DEPTH);
	uint16_t flags =
		verdict == SEND_WITH_CHECKSUMS ? FLEXIO_ETH_SEG_L3CS | FLEXIO_ETH_SEG_L4CS : 0;

	flexio_dev_swqe_seg_ctrl_set(&wqe[0], p->sq.index, p->sq.number,
				     MLX5_CTRL_SEG_CE_CQE_ALWAYS, FLEXIO_CTRL_SEG_SEND_EN);
	flexio_dev_swqe_seg_eth_set(&wqe[1], flags, 0, 0, NULL);
	flexio_dev_swqe_seg_mem_ptr_data_set(&wqe[2], len, p->lkey, addr);
	p->sq.index++;
}

/* Ring for count WQEs, and wait until the card has read their buffers. */
static void send_all(struct processor *p, uint32_t count)
{
	if (!count)
		return;
	flexio_dev_qp_sq_ring_db(p->sq.index, p->sq.number);
	while (count) {
		struct flexio_dev_cqe64 *cqe = next_cqe(&p->sq_cq);

		if (!cqe)
			continue;
		if (flexio_dev_cqe_get_opcode(cqe) != CQE_REQUEST)
			p->failed++;
		p->sq_cq.index++;
		count--;
	}
	flexio_dev_dbr_cq_set_ci((uint32_t *)p->sq_cq.record, p->sq_cq.index);
}

/* Up to BURST frames; returns how many. */
static uint32_t process_burst(struct processor *p)
{
	uint32_t frames = 0, sends = 0;
	struct flexio_dev_cqe64 *cqe;

	for (; frames < BURST && (cqe = next_cqe(&p->rq_cq)); frames++) {
		uint32_t index = flexio_dev_cqe_get_wqe_counter(cqe) % DEPTH;
		uint32_t len = flexio_dev_cqe_get_byte_cnt(cqe);
		uint64_t addr = p->buffers + (uint64_t)index * BUFFER;
		enum verdict verdict = IGNORE;

		if (flexio_dev_cqe_get_opcode(cqe) == CQE_RESPONDER_SEND)
			verdict = process(p, (uint8_t *)addr, len);
		p->rq_cq.index++;
		if (verdict == IGNORE)
			p->ignored++;
		else
			post_send(p, addr, len, verdict), sends++;
	}
	send_all(p, sends);
	for (uint32_t i = 0; i < frames; i++)
		flexio_dev_dbr_rq_inc_pi((uint32_t *)p->rq.record);
	flexio_dev_dbr_cq_set_ci((uint32_t *)p->rq_cq.record, p->rq_cq.index);
	return frames;
}

/* Woken by the RQ's CQ. */
__dpa_global__ void packet_processor(uint64_t arg)
{
	struct processor *p = (struct processor *)arg;
	uint32_t frames;

	while ((frames = process_burst(p)))
		/* Release: who sees the number sees what was counted. */
		__atomic_store_n(&p->frames, p->frames + frames, __ATOMIC_RELEASE);
	flexio_dev_cq_arm(p->rq_cq.index, p->rq_cq.number);
	flexio_dev_thread_reschedule();
}
