// SPDX-License-Identifier: MIT
/*
 * Owns packet pacing entries: rates that queues name by number, per adapter and process. Entry 0 is
 * no limit, and belongs to no queue. And the rate of a queue, and when its next WQE may go.
 */
#include "card/transport/pace.h"

#include <errno.h>

#include "base/time.h"
#include "card/device.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/transport/sides.h"
#include "card/transport/transport.h"

static struct vb_pace *pace_paces(const struct vb_dev *dev)
{
	struct vb_card *card = vb_dev_card(dev);

	return card->pace.at[dev->adapter->index];
}

/* Under the lock: one that may be shared, or a free one; 0: none. */
static uint16_t pace_choose(const struct vb_pace *pace, uint32_t kbps, uint32_t burst,
			    bool dedicated)
{
	uint16_t free = 0;

	for (uint16_t i = VB_PACES - 1; i; i--) {
		if (!pace[i].users)
			free = i;
		else if (!dedicated && !pace[i].dedicated && pace[i].kbps == kbps &&
			 pace[i].burst == burst)
			return i;
	}
	return free;
}

int vb_pace_take(struct vb_dev *dev, uint32_t kbps, uint32_t burst, bool dedicated, uint16_t *index)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_pace *pace = pace_paces(dev);
	uint16_t at;

	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	if (!kbps)
		return vb_refuse_value("rate_limit", kbps);
	vb_lock(&card->pace.lock);
	at = pace_choose(pace, kbps, burst, dedicated);
	if (at) {
		pace[at].kbps = kbps;
		pace[at].burst = burst;
		pace[at].dedicated = dedicated;
		pace[at].users++;
	}
	vb_unlock(&card->pace.lock);
	if (!at)
		return vb_refuse_numbers(VB_PACES - 1, "packet pacing entries");
	*index = at;
	return 0;
}

void vb_pace_give(struct vb_dev *dev, uint16_t index)
{
	struct vb_card *card = vb_dev_card(dev);
	vb_lock(&card->pace.lock);
	pace_paces(dev)[index].users--;
	vb_unlock(&card->pace.lock);
}

int vb_pace_find(struct vb_dev *dev, uint16_t index, uint32_t *kbps, uint32_t *burst)
{
	struct vb_card *card = vb_dev_card(dev);
	const struct vb_pace *pace = pace_paces(dev);
	int ret = -EINVAL;

	if (!index) {
		*kbps = *burst = 0;
		return 0;
	}
	vb_lock(&card->pace.lock);
	if (index < VB_PACES && pace[index].users) {
		*kbps = pace[index].kbps;
		*burst = pace[index].burst;
		ret = 0;
	}
	vb_unlock(&card->pace.lock);
	return ret;
}

/* --- the rate of one queue ---------------------------------------------------------------------- */

void vb_qp_set_rate(struct vb_qp *qp, uint32_t kbps, uint32_t burst)
{
	vb_card_enter();
	vb_lock(&qp->sq.lock);
	qp->sq.pace.kbps = kbps;
	qp->sq.pace.burst = burst;
	qp->sq.pace.next = 0;
	vb_unlock(&qp->sq.lock);
	vb_card_leave();
	vb_work_add(qp, VB_WORK_SEND); /* what waited under the old limit */
}

bool vb_pace_waits(struct vb_qp *qp)
{
	struct vb_sq *sq = &qp->sq;
	uint64_t now = vb_now_ns(), credit;

	if (now < sq->pace.next) {
		vb_alarm_set(&qp->timer, sq->pace.next);
		return true;
	}
	/* A queue that was idle has saved up for a burst, and no more. */
	credit = sq->pace.burst * 8000000ull / sq->pace.kbps;
	if (sq->pace.next + credit < now)
		sq->pace.next = now - credit;
	sq->pace.next += sq->wr.len * 8000000ull / sq->pace.kbps;
	return false;
}
