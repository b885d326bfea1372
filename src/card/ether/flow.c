// SPDX-License-Identifier: MIT
/*
 * Owns the way of raw frames through the steering of an adapter, and the domains of its rules.
 *
 *	vb_flow_send --> [NIC_TX] --> [FDB] --> vb_cable_send (cable.c)
 *	             `-> [SNIFFER_TX]
 *
 *	vb_flow_arrive --> [NIC_RX] --+--> QP, TIR --> receive queue --> CQE
 *	               |              +--> miss --> [verbs flows] --> QP
 *	               `-> [SNIFFER_RX]
 *
 * Each [domain] is made when somebody first asks for it, and passed by where it has no rules. A frame
 * that rules have changed lies in the scratch area of the domain that changed it, and is read there by
 * those that follow. So a thread has a scratch area for each domain that can edit and be on the way at
 * the same time as another: NIC_TX, FDB, NIC_RX.
 */
#include "card/ether/flow.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/rcu.h"
#include "card/device.h"
#include "card/ether/ether.h"
#include "card/ether/tir.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "packet/frame/frame.h"

/* Behind enum vb_steer_kind. */
enum { VERBS = VB_STEER_SNIFFER_TX + 1 };

_Static_assert(VERBS + 1 == VB_FLOW_DOMAINS, "a place for each domain");

/* --- domains ---------------------------------------------------------------------------------- */

static struct vb_steer *domain(const struct vb_adapter *adapter, unsigned int which)
{
	struct vb_card *card = adapter->card;

	/* Pairs with the release in make_domain(). */
	struct vb_steer *steer = atomic_load_explicit(&card->flow.domain[adapter->index][which],
						      memory_order_acquire);

	return steer && !vb_steer_empty(steer) ? steer : NULL;
}

static struct vb_steer *make_domain(struct vb_dev *dev, unsigned int which, enum vb_steer_kind kind)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_steer *_Atomic *at = &card->flow.domain[dev->adapter->index][which];
	struct vb_steer *steer;

	if (vb_dev_stale(dev))
		return NULL;
	pthread_mutex_lock(&card->flow.lock);
	steer = atomic_load_explicit(at, memory_order_relaxed);
	if (!steer && !vb_steer_create(kind, &steer)) {
		atomic_store_explicit(at, steer, memory_order_release);
		/* Rules that only count or mirror want frames, too. */
		if (which == VB_STEER_NIC_RX || which == VB_STEER_SNIFFER_RX)
			vb_cable_listen(card, 1);
	}
	pthread_mutex_unlock(&card->flow.lock);
	return steer;
}

struct vb_steer *vb_flow_domain(struct vb_dev *dev, enum vb_steer_kind kind)
{
	return make_domain(dev, kind, kind);
}

struct vb_steer *vb_flow_verbs_domain(struct vb_dev *dev)
{
	return make_domain(dev, VERBS, VB_STEER_NIC_RX);
}

/* The parent's rules lead to the parent's queues. */
void vb_flow_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->flow.lock, NULL);
	for (unsigned int i = 0; i < VB_CONFIG_MAX_ADAPTERS; i++)
		for (unsigned int k = 0; k < VB_FLOW_DOMAINS; k++)
			atomic_store_explicit(&card->flow.domain[i][k], NULL, memory_order_relaxed);
}

/* --- scratch areas ---------------------------------------------------------------------------- */

enum scratch { SCRATCH_TX, SCRATCH_FDB, SCRATCH_RX, SCRATCHES };

static _Thread_local uint8_t *scratches; /* per thread, for all hosts; NULL: none yet */
static pthread_key_t scratch_key;        /* frees them when the thread ends */
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void free_scratches(void *area)
{
	scratches = NULL;
	munmap(area, (size_t)SCRATCHES * VB_STEER_SCRATCH);
}

static void make_scratch_key(void)
{
	if (pthread_key_create(&scratch_key, free_scratches))
		scratch_key = 0;
}

/* NULL: no memory; then rules that edit drop. Its pages are only there once rules edit. */
static void *scratch(enum scratch which)
{
	void *area;

	if (!scratches) {
		pthread_once(&scratch_once, make_scratch_key);
		area = mmap(NULL, (size_t)SCRATCHES * VB_STEER_SCRATCH, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (area == MAP_FAILED)
			return NULL;
		if (pthread_setspecific(scratch_key, area)) {
			munmap(area, (size_t)SCRATCHES * VB_STEER_SCRATCH);
			return NULL;
		}
		scratches = area;
	}
	return scratches + (size_t)which * VB_STEER_SCRATCH;
}

/* --- to a receive queue ----------------------------------------------------------------------- */

/* A frame that arrives. */
struct arrival {
	const struct vb_adapter *adapter;
	const struct vb_qp *from; /* its sender on this adapter in this process, or NULL */
	bool multicast;
	bool sniffed; /* a copy for a sniffer, which also hears its own domain */
};

static bool flow_hears(const struct arrival *a, const struct vb_steer_meta *meta,
		       uint32_t transport_domain, uint8_t loopback)
{
	if (meta->foreign && !(loopback & VB_TIR_UNICAST))
		return false;
	if (a->sniffed || !a->from || !transport_domain ||
	    transport_domain != a->from->init.transport_domain)
		return true;
	return loopback & (a->multicast ? VB_TIR_MULTICAST : VB_TIR_UNICAST);
}

/* rss NULL: to this queue; else to one of the table's. */
static void flow_deliver(struct vb_qp *to, const struct vb_rss *rss, const struct vb_frame *f,
			 const struct vb_steer_meta *meta)
{
	struct vb_completion c = {
		.frame = f,
		.flow_tag = meta->tag & 0xffffff,
		.metadata = meta->reg_b,
	};
	uint32_t hash;

	if (rss && !rss->count)
		return;
	if (rss) {
		hash = vb_frame_hash(f, rss->key, rss->fields, rss->symmetric, &c.hash_type);
		c.imm = htobe32(hash);
		to = rss->wq[hash & (rss->count - 1)];
	}
	vb_responder_frame(to, f, &c);
}

static void to_qp(const struct arrival *a, struct vb_qp *qp, const struct vb_frame *f,
		  const struct vb_steer_meta *meta)
{
	/*
	 * One with a table has no queue of its own: the states of its WQs count. None hears itself,
	 * unless it was made so.
	 */
	if ((qp != a->from || qp->init.loopback) && (qp->rss || vb_qp_receives(vb_qp_state(qp))) &&
	    flow_hears(a, meta, qp->init.transport_domain, qp->init.loopback))
		flow_deliver(qp, atomic_load_explicit(&qp->rss, memory_order_acquire), f, meta);
}

static void to_dest(const struct arrival *a, const struct vb_steer_dest *dest,
		    const struct vb_frame *f, const struct vb_steer_meta *meta)
{
	const struct vb_tir *tir = dest->object;

	if (dest->kind == VB_FLOW_QP)
		to_qp(a, dest->object, f, meta);
	else if (dest->kind == VB_FLOW_TIR &&
		 flow_hears(a, meta, tir->transport_domain,
			    atomic_load_explicit(&tir->loopback, memory_order_relaxed)))
		flow_deliver(tir->rq, atomic_load_explicit(&tir->rss, memory_order_acquire), f,
			     meta);
}

static void emit_verbs(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *frame,
		       const struct vb_steer_meta *meta)
{
	if (dest->to == VB_STEER_TO_OWNER)
		to_dest(arg, dest, frame, meta);
}

static void emit_rx(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *frame,
		    const struct vb_steer_meta *meta)
{
	const struct arrival *a = arg;
	struct vb_steer *verbs;

	if (dest->to == VB_STEER_TO_OWNER) {
		to_dest(a, dest, frame, meta);
	} else if (dest->to == VB_STEER_TO_DEFAULT) {
		verbs = domain(a->adapter, VERBS);
		if (verbs)
			vb_steer_run(verbs, frame, meta, NULL, emit_verbs, arg);
	}
}

/* A unicast address that is not the port's, as far as its configuration says. */
static bool is_foreign(const struct vb_adapter *adapter, const struct vb_frame *frame)
{
	return !(frame->data[0] & 1) && memcmp(frame->data, adapter->config->mac, 6);
}

static void sniff(const struct vb_adapter *adapter, enum vb_steer_kind kind,
		  const struct vb_qp *from, const struct vb_frame *frame)
{
	struct vb_steer *steer = domain(adapter, kind);
	struct vb_steer_meta meta = { 0 };
	struct arrival a = { adapter, from, frame->data[0] & 1, true };

	if (steer)
		vb_steer_run(steer, frame, &meta, NULL, emit_verbs, &a);
}

static void flow_receive(const struct vb_adapter *adapter, const struct vb_qp *from,
			 const struct vb_frame *frame, bool looped)
{
	struct vb_steer *steer = domain(adapter, VB_STEER_NIC_RX);
	struct vb_steer_meta meta = { .foreign = looped && is_foreign(adapter, frame) };
	struct arrival a = { adapter, from, frame->data[0] & 1, false };

	if (steer)
		vb_steer_run(steer, frame, &meta, scratch(SCRATCH_RX), emit_rx, &a);
	else
		emit_rx(&a, &(struct vb_steer_dest){ .to = VB_STEER_TO_DEFAULT }, frame, &meta);
}

void vb_flow_overhear(const struct vb_adapter *adapter, const struct vb_frame *frame)
{
	sniff(adapter, VB_STEER_SNIFFER_RX, NULL, frame);
}

void vb_flow_sniff(const struct vb_adapter *adapter, bool sent, const struct vb_frame *frame)
{
	sniff(adapter, sent ? VB_STEER_SNIFFER_TX : VB_STEER_SNIFFER_RX, NULL, frame);
}

void vb_flow_arrive(const struct vb_adapter *adapter, const struct vb_qp *from,
		    const struct vb_frame *frame, bool looped)
{
	if (!from) /* else a sniffer had it when it was sent */
		sniff(adapter, VB_STEER_SNIFFER_RX, NULL, frame);
	flow_receive(adapter, from, frame, looped);
}

/* --- from a send queue ------------------------------------------------------------------------ */

/*
 * A frame that is sent. Rules of both domains multiply it; beyond the bound of one domain copies are
 * dropped, so that a frame cannot keep its thread busy for ever. Where a copy arrives it is a frame of
 * its own.
 */
struct departure {
	struct vb_qp *from;
	unsigned int copies;
	uint32_t ways; /* without rules: enum vb_frame_way */
};

/* A small frame takes so much longer than its bytes: one WQE may make 256 Ki of them. In bytes, see RUN_BYTES. */
enum { FRAME_COST = 512 };

/* Out of the FDB. A miss of the root: as without rules, on all ways. */
static void emit_fdb(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *frame,
		     const struct vb_steer_meta *meta)
{
	struct departure *d = arg;
	const struct vb_qp *from = d->from;
	const struct vb_adapter *adapter = from->dev->adapter;
	bool owner = dest->to == VB_STEER_TO_OWNER && dest->kind == VB_FLOW_VPORT;

	if (d->copies++ >= VB_STEER_MAX_BRANCHES)
		return;
	if (dest->to == VB_STEER_TO_DEFAULT)
		vb_cable_send(adapter, from, frame, d->ways);
	else if (dest->to == VB_STEER_TO_WIRE || (owner && dest->number == VB_VPORT_WIRE))
		vb_cable_send(adapter, from, frame, VB_FRAME_TO_CABLE);
	else if (dest->to == VB_STEER_TO_MANAGER || (owner && dest->number == VB_VPORT_MANAGER))
		vb_cable_send(adapter, from, frame, VB_FRAME_TO_PORT);
}

/* Out of NIC_TX: neither a miss nor the wire passes the e-switch by. */
static void emit_tx(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *frame,
		    const struct vb_steer_meta *meta)
{
	const struct departure *d = arg;
	struct vb_steer *steer = domain(d->from->dev->adapter, VB_STEER_FDB);

	if (d->copies >= VB_STEER_MAX_BRANCHES)
		return;
	if (dest->to == VB_STEER_TO_OWNER &&
	    (dest->kind != VB_FLOW_VPORT || dest->number != VB_VPORT_WIRE))
		return;
	if (steer)
		vb_steer_run(steer, frame, meta, scratch(SCRATCH_FDB), emit_fdb, arg);
	else
		emit_fdb(arg, &(struct vb_steer_dest){ .to = VB_STEER_TO_DEFAULT }, frame, meta);
}

void vb_flow_send(struct vb_qp *from, const struct vb_frame *frame, uint32_t metadata, bool to_wire)
{
	struct vb_steer *steer = domain(from->dev->adapter, VB_STEER_NIC_TX);
	struct vb_steer_meta meta = { .reg_a = metadata, .source_sqn = from->number };
	struct departure d = { .from = from,
			       .ways = VB_FRAME_TO_CABLE | (to_wire ? 0 : VB_FRAME_TO_PORT) };

	sniff(from->dev->adapter, VB_STEER_SNIFFER_TX, from, frame);
	if (steer)
		vb_steer_run(steer, frame, &meta, scratch(SCRATCH_TX), emit_tx, &d);
	else
		emit_tx(&d, &(struct vb_steer_dest){ .to = VB_STEER_TO_DEFAULT }, frame, &meta);
	from->sq.cost += (1 + d.copies) * (uint64_t)FRAME_COST;
}
