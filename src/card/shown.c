// SPDX-License-Identifier: MIT
/* Owns the entries of adapters and queue pairs in the file that tools read. */
#include "card/shown.h"

#include <stdio.h>
#include <string.h>

#include "card/queue/objects.h"
#include "card/sink.h"

static void card_shown_add(_Atomic uint64_t *to, const _Atomic uint64_t *more)
{
	atomic_store_explicit(to,
			      atomic_load_explicit(to, memory_order_relaxed) +
				      atomic_load_explicit(more, memory_order_relaxed),
			      memory_order_relaxed);
}

/* --- adapters --------------------------------------------------------------------------------- */

/* Lock held. A forked child, or a process that left the registry and joined again, begins anew. */
static void begin_epoch(struct vb_card *card)
{
	uint32_t epoch = vb_fabric_epoch(card->fabric);

	if (card->shown.epoch == epoch)
		return;
	memset(card->shown.adapter, 0, sizeof(card->shown.adapter));
	card->shown.epoch = epoch;
}

static void show_past(struct vb_card *card, uint32_t index)
{
	struct vb_monitor_adapter *entry = card->shown.adapter[index].place.entry;
	const struct vb_monitor_traffic *past = &card->shown.adapter[index].past;

	if (!entry)
		return;
	for (uint32_t i = 0; i < sizeof(*past) / sizeof(uint64_t); i++)
		atomic_store_explicit(&((_Atomic uint64_t *)&entry->past)[i],
				      atomic_load_explicit(&((const _Atomic uint64_t *)past)[i],
							   memory_order_relaxed),
				      memory_order_relaxed);
}

static void open_adapter(const struct vb_adapter *adapter)
{
	struct vb_card *card = adapter->card;
	struct vb_monitor_place *place = &card->shown.adapter[adapter->index].place;
	struct vb_monitor_adapter *entry;

	if (vb_monitor_add(VB_MONITOR_ADAPTER, place))
		return;
	entry = place->entry;
	snprintf(entry->name, sizeof(entry->name), "%s", adapter->config->name);
	show_past(card, adapter->index);
	vb_monitor_show(place);
}

void vb_show_adapter(const struct vb_adapter *adapter, int change)
{
	struct vb_card *card = adapter->card;
	uint32_t users;

	vb_lock(&card->shown.lock);
	begin_epoch(card);
	users = card->shown.adapter[adapter->index].users += (uint32_t)change;
	if (change > 0 && users == 1)
		open_adapter(adapter);
	else if (!users)
		vb_monitor_remove(&card->shown.adapter[adapter->index].place);
	vb_unlock(&card->shown.lock);
}

void vb_hide_traffic(const struct vb_adapter *adapter, const struct vb_monitor_traffic *moved,
		     struct vb_monitor_place *place)
{
	struct vb_card *card = adapter->card;
	struct vb_monitor_traffic *past = &card->shown.adapter[adapter->index].past;
	struct vb_monitor_adapter *entry;

	vb_lock(&card->shown.lock);
	begin_epoch(card);
	entry = card->shown.adapter[adapter->index].place.entry;
	card_shown_add(&past->sent, &moved->sent);
	card_shown_add(&past->received, &moved->received);
	card_shown_add(&past->packets, &moved->packets);
	card_shown_add(&past->copies, &moved->copies);
	card_shown_add(&past->calls, &moved->calls);
	card_shown_add(&past->retries, &moved->retries);
	card_shown_add(&past->dropped, &moved->dropped);
	card_shown_add(&past->stores, &moved->stores);
	/* A reader that has one of the two only finds the number of the adapter's entry changed. */
	if (entry)
		vb_monitor_write_begin(&entry->seq);
	vb_monitor_remove(place);
	show_past(card, adapter->index);
	if (entry)
		vb_monitor_write_end(&entry->seq);
	vb_unlock(&card->shown.lock);
}

/* --- queue pairs ------------------------------------------------------------------------------ */

void vb_show_qp(struct vb_qp *qp)
{
	struct vb_monitor_qp *entry;

	if (vb_monitor_add(VB_MONITOR_QP, &qp->shown))
		return;
	entry = qp->shown.entry;
	entry->number = qp->number;
	entry->type = (uint32_t)qp->type;
	entry->send_cq = qp->init.send_cq ? qp->init.send_cq->number : 0;
	entry->recv_cq = qp->init.recv_cq ? qp->init.recv_cq->number : 0;
	snprintf(entry->adapter, sizeof(entry->adapter), "%s", qp->dev->adapter->config->name);
	vb_monitor_show(&qp->shown);
}

void vb_hide_qp(struct vb_qp *qp)
{
	struct vb_monitor_traffic moved = {
		.sent = qp->sq.traffic.sent + qp->rq.traffic.sent,
		.received = qp->sq.traffic.received + qp->rq.traffic.received,
		.packets = qp->sq.sent_by.packets,
		.copies = qp->sq.sent_by.copies,
		.stores = qp->sq.sent_by.stores,
		.calls = qp->sq.sent_by.calls,
		.retries = qp->sq.rewinds,
		.dropped = qp->rq.dropped,
	};

	vb_hide_traffic(qp->dev->adapter, &moved, &qp->shown);
}
