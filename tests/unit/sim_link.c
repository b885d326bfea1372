// SPDX-License-Identifier: MIT
/*
 * The simulated link; see sim_link.h.
 */
#include "sim_link.h"

#include <errno.h>
#include <string.h>

#include "base/lock.h"
#include "base/rcu.h"
#include "base/time.h"
#include "base/util.h"
#include "card/sink.h"
#include "card/state.h"

static int link_send(struct vb_link *own, struct vb_path *path, const struct vb_pkt *pkt)
{
	struct sim_link *link = container_of(own, struct sim_link, link);
	struct sim_packet *packet;
	size_t n = 0;

	(void)path;
	atomic_fetch_add(&link->sent, 1);
	if (link->loses(link, pkt)) {
		atomic_fetch_add(&link->lost, 1);
		return 0;
	}
	pthread_mutex_lock(&link->lock);
	if (link->tail - link->head == SIM_LINK_PACKETS || pkt->len > SIM_LINK_MTU) {
		pthread_mutex_unlock(&link->lock);
		return -EHOSTDOWN;
	}
	packet = &link->packet[link->tail % SIM_LINK_PACKETS];
	packet->due = vb_now_ns() + link->latency;
	packet->pkt = *pkt;
	for (uint32_t i = 0; i < pkt->iov_cnt; n += pkt->iov[i++].iov_len)
		memcpy(packet->bytes + n, pkt->iov[i].iov_base, pkt->iov[i].iov_len);
	packet->iov = (struct iovec){ packet->bytes, n };
	packet->pkt.iov = &packet->iov;
	packet->pkt.iov_cnt = n ? 1 : 0;
	link->tail++;
	atomic_fetch_add(&link->changed, 1);
	pthread_mutex_unlock(&link->lock);
	vb_futex_wake(&link->changed, 1, VB_FUTEX_PRIVATE);
	return 0;
}

/* As the fabric brings what it finds in a ring. */
static void link_deliver(const struct vb_pkt *pkt)
{
	struct vb_card *card = vb_card_program();
	struct vb_lock ring = { 0 }; /* the card knows that a link holds one, VB_CHECKS */

	vb_read_lock();
	vb_lock(&ring);
	vb_card_sink.receive(card, pkt);
	vb_unlock(&ring);
	vb_card_sink.received(card);
	vb_card_sink.work(card, true);
	vb_read_unlock();
	vb_fabric_kick(card->fabric); /* a timer may have been set */
}

static void *link_main(void *arg)
{
	struct sim_link *link = arg;
	uint32_t changed;
	uint64_t due;
	bool ends;

	do {
		pthread_mutex_lock(&link->lock);
		changed = atomic_load(&link->changed);
		ends = link->ends;
		due = link->head != link->tail ? link->packet[link->head % SIM_LINK_PACKETS].due
					       : VB_NEVER;
		pthread_mutex_unlock(&link->lock);
		if (due > vb_now_ns()) {
			if (!ends)
				vb_futex_wait_until(vb_time_card(), &link->changed, changed,
						    VB_FUTEX_PRIVATE, due);
			continue;
		}
		/* Only this thread takes packets, and their slot is free behind that. */
		link_deliver(&link->packet[link->head % SIM_LINK_PACKETS].pkt);
		pthread_mutex_lock(&link->lock);
		link->head++;
		pthread_mutex_unlock(&link->lock);
	} while (!ends);
	return NULL;
}

static void link_flush(struct vb_link *own, struct vb_path *path)
{
	(void)own, (void)path;
}

static bool link_yes(struct vb_link *own, struct vb_path *path)
{
	(void)own, (void)path;
	return true;
}

static bool link_no(struct vb_link *own, struct vb_path *path)
{
	(void)own, (void)path;
	return false;
}

static uint64_t link_connection(struct vb_link *own, struct vb_path *path, uint32_t qpn)
{
	(void)own, (void)path, (void)qpn;
	return 0;
}

static bool link_is_polled(struct vb_link *own, const struct vb_path *path)
{
	(void)own, (void)path;
	return false;
}

static uint32_t link_expected(struct vb_link *own, struct vb_path *path, uint32_t qpn,
			      uint32_t sqpn, uint32_t otherwise)
{
	(void)own, (void)path, (void)qpn, (void)sqpn;
	return otherwise;
}

static __be64 link_adapter(struct vb_link *own, struct vb_path *path, uint32_t qpn)
{
	(void)own, (void)path, (void)qpn;
	return 0;
}

static const struct vb_link_ops link_ops = {
	.name = "simulated",
	.send = link_send,
	.flush = link_flush,
	.alive = link_yes,
	.drained = link_yes, /* time-outs tell */
	.unread = link_no,
	.polled = link_is_polled,
	.expected = link_expected,
	.adapter = link_adapter,
	.connection = link_connection,
	.close = link_flush,
	.drop = link_flush,
};

struct vb_path sim_link_path(struct sim_link *link, uint8_t transport)
{
	return (struct vb_path){ .link = &link->link,
				 .caps = VB_PATH_REACHES,
				 .transport = transport,
				 .mtu = SIM_LINK_MTU,
				 .span = SIM_LINK_MTU };
}

void sim_link_begin(struct sim_link *link, uint64_t latency,
		    bool (*loses)(struct sim_link *link, const struct vb_pkt *pkt))
{
	memset(link, 0, sizeof(*link));
	link->loses = loses;
	link->latency = latency;
	pthread_mutex_init(&link->lock, NULL);
	link->link.ops = &link_ops;
	pthread_create(&link->thread, NULL, link_main, link);
}

void sim_link_end(struct sim_link *link)
{
	pthread_mutex_lock(&link->lock);
	link->ends = true;
	atomic_fetch_add(&link->changed, 1);
	pthread_mutex_unlock(&link->lock);
	vb_futex_wake(&link->changed, 1, VB_FUTEX_PRIVATE);
	pthread_join(link->thread, NULL);
}
