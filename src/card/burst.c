// SPDX-License-Identifier: MIT
/* Owns what a thread collects during its burst, and the delivery; see burst.h. */
#include "card/burst.h"

#include <string.h>

#include "base/rcu.h"
#include "card/queue/objects.h"

_Thread_local struct vb_burst vb_burst;

/* --- collecting ------------------------------------------------------------------------------- */

void vb_notice_link(struct vb_notice *notice)
{
	vb_check(vb_burst.depth);
	notice->next = NULL;
	if (vb_burst.first)
		vb_burst.last->next = notice;
	else
		vb_burst.first = notice;
	vb_burst.last = notice;
	vb_burst.pending = true;
}

void vb_burst_flush(const struct vb_path *path)
{
	unsigned int n = vb_burst.paths;

	vb_check(vb_burst.depth);
	for (unsigned int i = 0; i < n; i++)
		if (vb_burst.path[i].peer == path->peer && vb_burst.path[i].link == path->link)
			return;
	if (__builtin_expect(n == VB_BURST_PATHS, 0)) {
		struct vb_path copy = *path;

		vb_path_flush(&copy);
		return;
	}
	vb_burst.path[n] = *path;
	vb_burst.paths = (uint8_t)(n + 1);
	vb_burst.pending = true;
}

void vb_burst_kick(struct vb_card *card)
{
	vb_check(!vb_burst.depth || vb_burst.card == card);
	if (vb_burst.depth)
		vb_burst.kick = vb_burst.pending = true;
	else
		vb_fabric_kick(card->fabric);
}

bool vb_burst_compresses(struct vb_cq *cq)
{
	if (!vb_burst.depth)
		return false;
	for (unsigned int i = 0; i < vb_burst.cqs; i++)
		if (vb_burst.cq[i] == cq)
			return true;
	if (vb_burst.cqs == VB_BURST_CQS)
		return false;
	vb_burst.cq[vb_burst.cqs++] = cq;
	vb_burst.pending = true;
	return true;
}

/* --- delivering: no lock held ----------------------------------------------------------------- */

void vb_burst_write(void)
{
	for (unsigned int i = 0; i < vb_burst.cqs; i++)
		vb_minis_flush(vb_burst.cq[i], false);
}

static void write_compressed(void)
{
	unsigned int count = vb_burst.cqs;

	vb_burst.cqs = 0;
	for (unsigned int i = 0; i < count; i++)
		vb_minis_flush(vb_burst.cq[i], true);
}

static void wake_peers(void)
{
	unsigned int count = vb_burst.paths;

	vb_burst.paths = 0;
	for (unsigned int i = 0; i < count; i++)
		vb_path_flush(&vb_burst.path[i]);
}

static void tell_all(void)
{
	struct vb_notice *notice = vb_burst.first;

	vb_burst.first = vb_burst.last = NULL;
	while (notice) {
		struct vb_notice *next = notice->next;

		/* Pairs with vb_notice_add(): the next one to add links it again. */
		notice->tell(notice,
			     atomic_exchange_explicit(&notice->what, 0, memory_order_acq_rel));
		notice = next;
	}
}

void vb_burst_close(void)
{
	vb_check(!vb_burst.receiving); /* the link may hold a lock */
	vb_check(vb_locks_held == vb_burst.held);
	vb_check(vb_read_ongoing());
	vb_burst.pending = false;
	if (vb_burst.cqs)
		write_compressed();
	if (vb_burst.paths)
		wake_peers();
	if (vb_burst.kick) {
		vb_burst.kick = false;
		vb_fabric_kick(vb_burst.card->fabric);
	}
	if (vb_burst.first)
		tell_all();
}

void vb_burst_forked(void)
{
	unsigned int depth = vb_burst.depth, held = vb_burst.held;

	/* The thread that forked may be inside of the card, and goes on there. */
	vb_burst = (struct vb_burst){ .depth = depth,
				      .card = vb_burst.card,
				      .held = held,
				      .receiving = vb_burst.receiving,
				      .run = vb_burst.run };
}
