// SPDX-License-Identifier: MIT
/* What hosts_kit.h promises. */
#include "hosts_kit.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "../programs/common.h"
#include "base/rcu.h"

/* --- a sink ----------------------------------------------------------------------------------- */

static void take(struct vb_card *card, const struct vb_pkt *pkt)
{
	check_eq(pkt->psn, card->taken);
	check_eq(pkt->len, sizeof(uint32_t));
	check_eq(*(uint32_t *)pkt->iov->iov_base, ~pkt->psn);
	card->taken++;
}

static void received(struct vb_card *card)
{
	(void)card;
}

static bool never_first(struct vb_card *card, const struct vb_pkt *pkt)
{
	(void)card;
	(void)pkt;
	return false;
}

static uint64_t no_work(struct vb_card *card, bool all)
{
	(void)card;
	(void)all;
	return UINT64_MAX;
}

static enum vb_pending none_pending(struct vb_card *card, bool all)
{
	(void)card;
	(void)all;
	return VB_PENDING_NONE;
}

static bool is_here(struct vb_card *card, const union ibv_gid *gid)
{
	(void)card;
	return gid->raw[0] != FAR_AWAY;
}

const struct vb_sink counting_sink = {
	.receive = take,
	.received = received,
	.delivers_first = never_first,
	.work = no_work,
	.pending = none_pending,
	.is_local = is_here,
};

/* --- two hosts -------------------------------------------------------------------------------- */

void host_make(struct pair *pair, int i)
{
	check_eq(vb_host_make(&pair->host[i]), 0);
	pair->host[i]->card = &pair->card[i];
}

void host_start(struct pair *pair, int i)
{
	host_make(pair, i);
	check_eq(vb_fabric_start(pair->host[i], &counting_sink), 0);
}

void host_stop(struct pair *pair, int i)
{
	vb_fabric_stop(pair->host[i]->fabric);
	vb_host_free(pair->host[i]);
}

void pair_start(struct pair *pair)
{
	memset(pair, 0, sizeof(*pair));
	host_start(pair, 0);
	host_start(pair, 1);
}

void pair_stop(struct pair *pair)
{
	host_stop(pair, 0);
	host_stop(pair, 1);
}

int send_one(struct vb_path *path, uint32_t psn)
{
	uint32_t payload = ~psn;
	struct iovec iov = { &payload, sizeof(payload) };
	struct vb_pkt pkt = { .op = VB_PKT_SEND,
			      .flags = VB_PKT_ONLY,
			      .transport = IBV_QPT_RC,
			      .sqpn = 1,
			      .psn = psn,
			      .iov = &iov,
			      .iov_cnt = 1,
			      .len = sizeof(payload) };
	int ret;

	vb_read_lock();
	ret = vb_path_send(path, &pkt);
	vb_path_flush(path);
	vb_read_unlock();
	return ret;
}

void open_to(struct vb_path *path, const struct pair *pair, int from, int to)
{
	check_eq(vb_path_open_slot(pair->host[from]->fabric, path,
				   vb_fabric_slot(pair->host[to]->fabric), 1),
		 0);
	check(vb_path_can(path, VB_PATH_REACHES) && !vb_path_can(path, VB_PATH_CALLS), "no path");
}

void await_taken(const struct vb_card *card, uint32_t count)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	while (card->taken < count) {
		check(now_us() < end, "%u packets of %u came", card->taken, count);
		sched_yield();
	}
	check_eq(card->taken, count);
}

/* Packets of one to the other, whose background thread takes them; more than a ring holds. */
void talk(struct pair *pair, int from, int to, uint32_t count)
{
	uint32_t psn = pair->card[to].taken, end = psn + count;
	struct vb_path path;
	int ret;

	open_to(&path, pair, from, to);
	for (; psn < end; psn++) {
		while ((ret = send_one(&path, psn)) == -EAGAIN)
			sched_yield();
		check_eq(ret, 0);
	}
	await_taken(&pair->card[to], end);
	vb_path_close(&path);
}
