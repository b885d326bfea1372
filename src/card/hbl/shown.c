// SPDX-License-Identifier: MIT
/* Owns the entries of hbl queue pairs in the file that tools read. */
#include "card/hbl/internal.h"

#include <stdio.h>

#include "card/card.h"

void vb_hbl_show_qp(struct vb_hbl_qp *qp)
{
	struct vb_monitor_qp *entry;

	if (vb_monitor_add(VB_MONITOR_QP, &qp->shown))
		return;
	entry = qp->shown.entry;
	entry->number = qp->qpn;
	entry->type = VB_TRANSPORT_HBL;
	entry->send_cq = qp->req_cq->info.number;
	entry->recv_cq = qp->res_cq->info.number;
	snprintf(entry->adapter, sizeof(entry->adapter), "%s", qp->hbl->adapter->config->name);
	vb_monitor_show(&qp->shown);
	vb_hbl_show_state(qp);
}

void vb_hbl_show_state(const struct vb_hbl_qp *qp)
{
	struct vb_monitor_qp *shown = qp->shown.entry;

	if (shown)
		atomic_store_explicit(&shown->state,
				      atomic_load_explicit(&qp->state, memory_order_relaxed),
				      memory_order_relaxed);
}

void vb_hbl_hide_qp(struct vb_hbl_qp *qp)
{
	struct vb_card *card = qp->hbl->card;
	const struct vb_monitor_traffic moved = {
		.sent = qp->sq.bytes_sent + qp->rq.bytes_read,
		.received = qp->sq.bytes_asked + qp->rq.bytes_received,
		.packets = qp->sq.sent_by.packets,
		.stores = qp->sq.sent_by.stores,
		.copies = qp->sq.sent_by.copies,
		.calls = qp->sq.sent_by.calls,
		.retries = qp->sq.rewinds,
	};

	vb_lock(&card->retired.lock);
	vb_add_counters(&card->retired.counters, &qp->sq.sent_by);
	vb_unlock(&card->retired.lock);
	vb_hide_traffic(qp->hbl->adapter, &moved, &qp->shown);
}

void vb_hbl_add_counters(struct vb_card *card, struct vb_path_counters *to)
{
	pthread_mutex_lock(&card->hbl.lock);
	for (uint32_t i = 0; i < VB_HBL_DEVICES; i++) {
		struct vb_hbl *hbl = vb_hbl_find(card, i);

		if (!hbl)
			continue;
		pthread_mutex_lock(&hbl->mutex);
		for (struct vb_hbl_qp *qp = hbl->qps; qp; qp = qp->next) {
			vb_lock(&qp->sq.lock);
			if (qp->port)
				vb_add_counters(to, &qp->sq.sent_by);
			vb_unlock(&qp->sq.lock);
		}
		pthread_mutex_unlock(&hbl->mutex);
	}
	pthread_mutex_unlock(&card->hbl.lock);
}
