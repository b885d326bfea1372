// SPDX-License-Identifier: MIT
/*
 * Owns the cables: how a frame gets from one port to others, in this process and in all others of the
 * user on this host.
 *
 *	adapter --+--> the same port (other contexts, other processes)
 *	          +--> switch of the cable --> other ports:  here: vb_flow_arrive()
 *	                                                     other processes: vb_frame_send() --> vb_cable_receive() there
 *
 * All ports whose adapters name one cable hang on one learning switch. It is not in one place: every
 * process gets every frame, and decides for its own ports which of them the switch would send it to.
 *
 *	destination is multicast            to all ports but the sender's
 *	... the MAC of one of our ports     to that port
 *	... a MAC seen as a source          to the port where it was last seen
 *	... none of these                   to all ports but the sender's
 *
 * A process knows the MACs of its own configuration from the start, and learns sources from all frames
 * that it sends or receives. A MAC is forgotten when another one needs its place, and has moved when it
 * is seen on another port; time plays no part.
 *
 * A port with a TAP (tap.c) has a cable of its own, on which no other port hangs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "base/rcu.h"
#include "card/device.h"
#include "card/ether/ether.h"
#include "card/ether/flow.h"
#include "card/fault/fault.h"
#include "card/queue/objects.h"
#include "packet/frame/frame.h"

_Static_assert((int)VB_CABLE_LONGEST == (int)VB_FRAME_MAX, "what a cable takes a ring takes");

struct vb_capture {
	struct vb_dev *dev;
	struct vb_capture_sink sink;
	struct vb_capture *_Atomic next;
};

/* --- listening -------------------------------------------------------------------------------- */

/* The lock is held. */
static uint32_t use_of_frames(const struct vb_card *card)
{
	return (card->cable.listeners > card->cable.capturing ? VB_FRAME_RECEIVES : 0) |
	       (card->cable.capturing ? VB_FRAME_SNIFFS : 0);
}

static void change_use(struct vb_card *card, int listeners, int captures)
{
	uint32_t before;

	vb_card_enter();
	vb_lock(&card->cable.lock);
	before = use_of_frames(card);
	card->cable.listeners += (uint32_t)listeners;
	card->cable.capturing += (uint32_t)captures;
	if (before != use_of_frames(card))
		vb_frame_listen(card->fabric, use_of_frames(card));
	vb_unlock(&card->cable.lock);
	vb_card_leave();
}

void vb_cable_listen(struct vb_card *card, int change)
{
	change_use(card, change, 0);
}

void vb_cable_sniff(const struct vb_dev *dev, int change)
{
	struct vb_card *card = vb_dev_card(dev);
	uint32_t before;

	if (vb_dev_stale(dev))
		return;
	vb_card_enter();
	vb_lock(&card->cable.lock);
	before = card->cable.sniffers;
	card->cable.sniffers += (uint32_t)change;
	if (!before != !card->cable.sniffers)
		vb_registry_sniff(card->meet, card->cable.sniffers);
	vb_unlock(&card->cable.lock);
	vb_card_leave();
}

void vb_cable_joined(struct vb_card *card)
{
	vb_lock(&card->cable.lock);
	if (card->cable.listeners)
		vb_frame_listen(card->fabric, use_of_frames(card));
	if (card->cable.sniffers)
		vb_registry_sniff(card->meet, true);
	vb_unlock(&card->cable.lock);
}

void vb_cable_forked(struct vb_card *card)
{
	atomic_store_explicit(&card->cable.lock.held, 0, memory_order_relaxed);
	card->cable.listeners = card->cable.capturing = card->cable.sniffers = 0;
	atomic_store_explicit(&card->cable.captures, NULL, memory_order_relaxed);
}

/* --- captures --------------------------------------------------------------------------------- */

enum { OLDEST_S = 60 }; /* of times that are believed: a stopped capture reads late */

/* The time that another process has given; it is not trusted. */
static uint64_t time_of(uint64_t given)
{
	uint64_t now = vb_now_ns();

	return given && given <= now && now - given < OLDEST_S * 1000000000ull ? given : now;
}

/* ns: when it was sent; 0: now. */
static void capture_any(const struct vb_adapter *adapter, const struct vb_frame *frame, bool sent,
			bool rdma, uint64_t ns)
{
	struct vb_card *card = adapter->card;

	/* Pairs with the release in vb_capture_open(). */
	struct vb_capture *capture =
		atomic_load_explicit(&card->cable.captures, memory_order_acquire);

	for (; __builtin_expect(!!capture, 0);
	     capture = atomic_load_explicit(&capture->next, memory_order_acquire))
		if (capture->dev->adapter == adapter && (!rdma || capture->sink.rdma))
			capture->sink.frame(capture->sink.arg, frame, sent, time_of(ns));
}

static void capture_frame(const struct vb_adapter *adapter, const struct vb_frame *frame, bool sent,
			  uint64_t ns)
{
	capture_any(adapter, frame, sent, false, ns);
}

/* What points to the capture of a device, or the end of the list; the lock is held. */
static struct vb_capture *_Atomic *capture_find(const struct vb_dev *dev)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_capture *_Atomic *at = &card->cable.captures;
	struct vb_capture *capture;

	while ((capture = atomic_load_explicit(at, memory_order_relaxed)) && capture->dev != dev)
		at = &capture->next;
	return at;
}

int vb_capture_open(struct vb_dev *dev, const struct vb_capture_sink *sink)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_capture *new = calloc(1, sizeof(*new));
	struct vb_capture *_Atomic *at;
	bool busy;

	if (!new)
		return -ENOMEM;
	new->dev = dev;
	new->sink = *sink;
	vb_card_enter();
	vb_lock(&card->cable.lock);
	at = capture_find(dev);
	busy = atomic_load_explicit(at, memory_order_relaxed);
	if (!busy)
		atomic_store_explicit(at, new, memory_order_release);
	vb_unlock(&card->cable.lock);
	vb_card_leave();
	if (busy) {
		free(new);
		return -EBUSY;
	}
	change_use(card, 1, 1);
	vb_cable_sniff(dev, sink->rdma);
	vb_tap_use(dev->adapter, 1);
	return 0;
}

void vb_capture_close(struct vb_dev *dev)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_capture *_Atomic *at;
	struct vb_capture *capture;

	vb_card_enter();
	vb_lock(&card->cable.lock);
	at = capture_find(dev);
	capture = atomic_load_explicit(at, memory_order_relaxed);
	if (capture)
		atomic_store_explicit(at,
				      atomic_load_explicit(&capture->next, memory_order_relaxed),
				      memory_order_release);
	vb_unlock(&card->cable.lock);
	vb_card_leave();
	if (!capture)
		return;
	vb_tap_use(dev->adapter, -1);
	vb_cable_sniff(dev, -capture->sink.rdma);
	vb_read_wait();
	free(capture);
	change_use(card, -1, -1);
}

/* --- the switch ------------------------------------------------------------------------------- */

static uint64_t mac_at(const uint8_t *p)
{
	return (uint64_t)p[0] << 40 | (uint64_t)p[1] << 32 | (uint64_t)p[2] << 24 |
	       (uint64_t)p[3] << 16 | (uint64_t)p[4] << 8 | p[5];
}

uint64_t vb_cable_number(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 0x100000001b3ull;
	return hash;
}

/* A port that is down has one that nobody else has. */
static uint64_t cable_of(const struct vb_adapter *adapter)
{
	return atomic_load_explicit(&adapter->cable, memory_order_relaxed);
}

static bool has_port(const struct vb_adapter *adapter)
{
	return adapter->config->format != VB_FORMAT_HBL;
}

/* What a port is called in the table, in 16 bits; two ports may share a name and both get a frame. */
static uint16_t tag_of(__be64 guid)
{
	uint64_t x = guid * 0x9e3779b97f4a7c15ull;

	return (uint16_t)(x >> 48);
}

static _Atomic uint64_t *place_of(const struct vb_adapter *first, uint64_t mac)
{
	struct vb_card *card = first->card;
	uint64_t hash = mac * 0x9e3779b97f4a7c15ull;

	return &card->cable.learned[first->index][hash >> 54 & (VB_CABLE_MACS - 1)];
}

/* The first of our adapters on a cable has its table; NULL: we have none there. */
static const struct vb_adapter *first_on(struct vb_card *card, uint64_t cable)
{
	for (unsigned int i = 0; i < card->adapters.count; i++)
		if (has_port(&card->adapters.all[i]) && cable_of(&card->adapters.all[i]) == cable)
			return &card->adapters.all[i];
	return NULL;
}

/* One of our ports on the cable has this MAC by configuration. */
static bool is_configured(struct vb_card *card, uint64_t cable, uint64_t mac)
{
	for (unsigned int i = 0; i < card->adapters.count; i++)
		if (has_port(&card->adapters.all[i]) && cable_of(&card->adapters.all[i]) == cable &&
		    mac_at(card->adapters.all[i].config->mac) == mac)
			return true;
	return false;
}

static void cable_learn(const struct vb_adapter *first, const struct vb_frame_origin *origin,
			const struct vb_frame *frame)
{
	uint64_t mac = mac_at(frame->data + 6), entry = mac << 16 | tag_of(origin->adapter);
	_Atomic uint64_t *at = place_of(first, mac);

	if (atomic_load_explicit(at, memory_order_relaxed) == entry)
		return;
	if (!(frame->data[6] & 1) && mac && !is_configured(first->card, origin->cable, mac))
		atomic_store_explicit(at, entry, memory_order_relaxed);
}

/* Where the switch brings a frame. */
struct direction {
	uint64_t mac;    /* its destination */
	bool all;        /* to all ports */
	bool configured; /* to the ports of ours that have the MAC */
	uint16_t tag;    /* else to this port */
};

static struct direction find_direction(const struct vb_adapter *first, uint64_t mac)
{
	struct direction d = { .mac = mac };
	uint64_t entry;

	d.all = mac >> 40 & 1 || !mac;
	if (d.all)
		return d;
	entry = atomic_load_explicit(place_of(first, mac), memory_order_relaxed);
	d.tag = (uint16_t)entry;
	if (entry >> 16 == mac)
		return d; /* configured ones are not learned */
	d.configured = is_configured(first->card, cable_of(first), mac);
	d.all = !d.configured;
	return d;
}

static bool leads_to(const struct direction *d, const struct vb_adapter *port)
{
	if (d->all)
		return true;
	return d->configured ? mac_at(port->config->mac) == d->mac : d->tag == tag_of(port->guid);
}

/* The other ports of the cable, as far as they are ours. */
static void switch_frame(struct vb_card *card, const struct vb_frame_origin *origin,
			 const struct vb_frame *frame)
{
	const struct vb_adapter *first = first_on(card, origin->cable);
	struct direction d;

	if (!first)
		return;
	cable_learn(first, origin, frame);
	d = find_direction(first, mac_at(frame->data));
	for (unsigned int i = first->index; i < card->adapters.count; i++) {
		const struct vb_adapter *port = &card->adapters.all[i];

		if (has_port(port) && cable_of(port) == origin->cable &&
		    port->guid != origin->adapter && leads_to(&d, port)) {
			capture_frame(port, frame, false, origin->ns);
			vb_flow_arrive(port, NULL, frame, false);
		}
	}
}

/* --- frames ----------------------------------------------------------------------------------- */

static struct vb_pkt as_packet(const struct vb_frame_origin *origin, const struct iovec *iov)
{
	return (struct vb_pkt){
		.op = VB_PKT_SEND,
		.flags = VB_PKT_ONLY,
		.transport = IBV_QPT_RAW_PACKET,
		.origin = *origin,
		.iov = iov,
		.iov_cnt = 1,
		.len = (uint32_t)iov->iov_len,
	};
}

/* To all other processes; the number of those that lost it. */
static unsigned int send_out(struct vb_card *card, const struct vb_frame_origin *origin,
			     const struct vb_frame *frame)
{
	struct iovec iov = { frame->data, frame->len };
	struct vb_pkt pkt = as_packet(origin, &iov);

	return vb_frame_send(card->fabric, &pkt);
}

/* Rules may have made the frame longer than we take, or left no header: that one is lost. */
static bool cable_fits(const struct vb_frame *frame)
{
	return frame->len >= VB_FRAME_HEADER && frame->len <= VB_FRAME_MAX;
}

/* Rules may have taken a tag or a tunnel off; their frame is not ours to change. */
static struct vb_frame pad(const struct vb_frame *frame, uint8_t bytes[VB_FRAME_SHORTEST])
{
	struct vb_frame padded = { .data = bytes,
				   .len = frame->len,
				   .tailroom = VB_FRAME_SHORTEST - frame->len };

	memcpy(bytes, frame->data, frame->len);
	vb_frame_pad(&padded);
	return padded;
}

void vb_cable_send(const struct vb_adapter *adapter, const struct vb_qp *from,
		   const struct vb_frame *frame, uint32_t ways)
{
	struct vb_frame_origin origin = { .adapter = adapter->guid,
					  .cable = cable_of(adapter),
					  .ways = ways };
	uint8_t bytes[VB_FRAME_SHORTEST];
	struct vb_frame padded;

	if (!cable_fits(frame))
		return;
	if (__builtin_expect(frame->len < VB_FRAME_SHORTEST, 0)) {
		padded = pad(frame, bytes);
		frame = &padded;
	}
	capture_frame(adapter, frame, true, 0);
	/* First to other processes: one may capture, and queues of this one may answer at once. */
	send_out(adapter->card, &origin, frame);
	if (ways & VB_FRAME_TO_PORT)
		vb_flow_arrive(adapter, from, frame, ways & VB_FRAME_TO_CABLE);
	if (ways & VB_FRAME_TO_CABLE) {
		switch_frame(adapter->card, &origin, frame);
		if (__builtin_expect(adapter->config->tap[0], 0))
			vb_tap_send(adapter, frame);
	}
}

enum vb_frame_may vb_cable_may_send(struct vb_card *card, uint32_t len)
{
	enum { LONGER = 256 }; /* rules may make it so */
	struct iovec iov = { NULL, len + LONGER < VB_FRAME_MAX ? len + LONGER : VB_FRAME_MAX };
	struct vb_pkt pkt = as_packet(&(struct vb_frame_origin){ .ways = 0 }, &iov);

	return vb_frame_may_send(card->fabric, &pkt);
}

/* The adapter with a GUID that is on a cable; NULL: none of ours. */
const struct vb_adapter *vb_cable_port(struct vb_card *card, __be64 guid)
{
	for (unsigned int i = 0; i < card->adapters.count; i++)
		if (card->adapters.all[i].guid == guid && has_port(&card->adapters.all[i]))
			return &card->adapters.all[i];
	return NULL;
}

/* Sent by one port and received by another. Where both are one it is seen once, as sent. */
static void cable_show_packet(const struct vb_adapter *from, const struct vb_adapter *to,
			      const struct vb_frame *frame, uint64_t ns)
{
	if (from) {
		capture_any(from, frame, true, true, ns);
		vb_flow_sniff(from, true, frame);
	}
	if (to && to != from) {
		capture_any(to, frame, false, true, ns);
		vb_flow_sniff(to, false, frame);
	}
}

void vb_cable_show(struct vb_card *card, __be64 from, __be64 to, const struct vb_frame *frame,
		   uint64_t ns)
{
	struct vb_frame_origin origin = {
		.adapter = from, .addressee = to, .ways = VB_FRAME_SNIFFED, .ns = ns
	};

	cable_show_packet(vb_cable_port(card, from), vb_cable_port(card, to), frame, ns);
	send_out(card, &origin, frame);
}

void vb_cable_receive(struct vb_card *card, const struct vb_pkt *pkt)
{
	struct vb_frame frame = { .data = pkt->iov->iov_base, .len = pkt->len };
	const struct vb_adapter *port = vb_cable_port(card, pkt->origin.adapter);

	if (pkt->op != VB_PKT_SEND || !cable_fits(&frame))
		return;
	vb_frame_parse(&frame);
	if (pkt->origin.ways & VB_FRAME_SNIFFED) {
		cable_show_packet(port, vb_cable_port(card, pkt->origin.addressee), &frame,
				  pkt->origin.ns);
		return;
	}
	if (pkt->origin.ways & VB_FRAME_ARRIVES) {
		if (port && !vb_port_is_cut(port, 1)) {
			capture_frame(port, &frame, false, pkt->origin.ns);
			vb_flow_arrive(port, NULL, &frame, false);
		}
		return;
	}
	if (port) {
		capture_frame(port, &frame, true, pkt->origin.ns);
		if (pkt->origin.ways & VB_FRAME_TO_PORT)
			vb_flow_arrive(port, NULL, &frame, pkt->origin.ways & VB_FRAME_TO_CABLE);
		else
			vb_flow_overhear(port, &frame);
		if (pkt->origin.ways & VB_FRAME_TO_CABLE && port->config->tap[0])
			vb_tap_send(port, &frame);
	}
	if (pkt->origin.ways & VB_FRAME_TO_CABLE)
		switch_frame(card, &pkt->origin, &frame);
}

unsigned int vb_cable_arrive(const struct vb_adapter *adapter, const void *data, uint32_t len)
{
	struct vb_frame_origin origin = { .receiver = adapter->guid,
					  .cable = cable_of(adapter),
					  .ways = VB_FRAME_ARRIVES };
	uint8_t copy[VB_FRAME_MAX];
	struct vb_frame frame = { .data = copy, .len = len };
	unsigned int lost;

	if (len < VB_FRAME_HEADER || len > VB_FRAME_MAX || vb_port_is_cut(adapter, 1))
		return 0;
	memcpy(copy, data, len);
	frame.tailroom = VB_FRAME_MAX - len;
	vb_frame_parse(&frame);
	vb_frame_pad(&frame);
	vb_read_lock();
	vb_burst_begin(adapter->card);
	capture_frame(adapter, &frame, false, 0);
	lost = send_out(adapter->card, &origin, &frame); /* as in vb_cable_send() */
	vb_flow_arrive(adapter, NULL, &frame, false);
	vb_burst_end();
	vb_read_unlock();
	return lost;
}

int vb_cable_inject(struct vb_dev *dev, const void *data, uint32_t len)
{
	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	if (len < VB_FRAME_HEADER || len > VB_FRAME_MAX)
		return -EINVAL;
	return (int)vb_cable_arrive(dev->adapter, data, len);
}

bool vb_cable_has_room(struct vb_dev *dev, uint32_t len, bool give_up)
{
	struct iovec iov = { NULL, len < VB_FRAME_SHORTEST ? VB_FRAME_SHORTEST : len };
	struct vb_frame_origin origin = { .ways = VB_FRAME_ARRIVES };
	struct vb_pkt pkt = as_packet(&origin, &iov);
	bool room;

	if (vb_dev_stale(dev))
		return true;
	vb_read_lock();
	room = vb_frame_has_room(vb_dev_card(dev)->fabric, &pkt, give_up);
	vb_read_unlock();
	return room;
}

bool vb_cable_drained(struct vb_dev *dev, bool slow_too)
{
	bool drained;

	if (vb_dev_stale(dev))
		return true;
	vb_read_lock();
	drained = vb_frame_drained(vb_dev_card(dev)->fabric, slow_too);
	vb_read_unlock();
	return drained;
}

uint64_t vb_cable_lost(struct vb_dev *dev, uint32_t *unread)
{
	*unread = 0;
	return vb_dev_stale(dev) ? 0 : vb_frame_lost(vb_dev_card(dev)->fabric, unread);
}
