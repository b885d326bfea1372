// SPDX-License-Identifier: MIT
/* Owns the copying of what programs show. Nothing that a program wrote is trusted: texts are ended, numbers are only numbers. */
#include "tools/look/look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "base/time.h"
#include "control/show/monitor.h"
#include "tools/cmd.h"

/* Looks at the queue pairs of a process that destroys some at the same time. */
enum { LOOKS = 100 };

static void *look_gather_add(struct look *look, struct look_list *list)
{
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 32;
		void *at = realloc(list->at, room * list->size);

		if (!at) {
			look->failed = true;
			return NULL;
		}
		list->at = at;
		list->room = room;
	}
	return memset((char *)list->at + list->count++ * list->size, 0, list->size);
}

/* A text of somebody else's: ended, and without what would move a terminal's cursor. */
static void copy_text(char *to, size_t size, const char *from, size_t most)
{
	size_t n = 0;

	for (; n < size - 1 && n < most && from[n]; n++)
		to[n] = from[n] >= 0x20 && from[n] < 0x7f ? from[n] : '?';
	to[n] = '\0';
}

static void copy_traffic(struct look_traffic *to, const struct vb_monitor_traffic *from)
{
	to->sent = atomic_load_explicit(&from->sent, memory_order_relaxed);
	to->received = atomic_load_explicit(&from->received, memory_order_relaxed);
	to->packets = atomic_load_explicit(&from->packets, memory_order_relaxed);
	to->copies = atomic_load_explicit(&from->copies, memory_order_relaxed);
	to->calls = atomic_load_explicit(&from->calls, memory_order_relaxed);
	to->retries = atomic_load_explicit(&from->retries, memory_order_relaxed);
	to->dropped = atomic_load_explicit(&from->dropped, memory_order_relaxed);
	to->stores = atomic_load_explicit(&from->stores, memory_order_relaxed);
}

static void look_gather_add_traffic(struct look_traffic *to, const struct look_traffic *more)
{
	to->sent += more->sent;
	to->received += more->received;
	to->packets += more->packets;
	to->copies += more->copies;
	to->calls += more->calls;
	to->retries += more->retries;
	to->dropped += more->dropped;
	to->stores += more->stores;
}

/* --- processes -------------------------------------------------------------------------------- */

static void see_process(void *arg, const struct vb_slot_info *info)
{
	struct look *look = arg;
	struct look_process *p = look_gather_add(look, &look->processes);
	char command[32];

	if (!p)
		return;
	p->pid = info->pid;
	p->slot = info->slot;
	p->dir = info->dir;
	tools_command_of(info->pid, command, sizeof(command));
	copy_text(p->command, sizeof(p->command), command, sizeof(command));
	if (!info->doorbells)
		return;
	p->doorbells.patched =
		atomic_load_explicit(&info->doorbells->patched, memory_order_relaxed);
	p->doorbells.traps = atomic_load_explicit(&info->doorbells->traps, memory_order_relaxed);
	for (int i = 0; i < VB_SITE_REASONS; i++)
		p->doorbells.kept[i] =
			atomic_load_explicit(&info->doorbells->kept[i], memory_order_relaxed);
}

const struct look_process *look_process(const struct look *look, pid_t pid)
{
	look_each(look_process, p, &look->processes) if (p->pid == pid) return p;
	return NULL;
}

/* --- the card --------------------------------------------------------------------------------- */

static void see_adapters(struct look *look, struct vb_monitor_view *view)
{
	uint32_t count = vb_monitor_count(view, VB_MONITOR_ADAPTER);
	struct vb_monitor_adapter entry;

	for (uint32_t i = 0; i < count; i++) {
		struct look_adapter *a;

		if (vb_monitor_read(view, VB_MONITOR_ADAPTER, i, 0, &entry, sizeof(entry)))
			continue;
		a = look_gather_add(look, &look->adapters);
		if (!a)
			return;
		a->pid = vb_monitor_pid(view);
		copy_text(a->name, sizeof(a->name), entry.name, sizeof(entry.name));
		copy_traffic(&a->traffic, &entry.past);
	}
}

static void see_qps(struct look *look, struct vb_monitor_view *view)
{
	uint32_t count = vb_monitor_count(view, VB_MONITOR_QP);
	struct vb_monitor_qp entry;

	for (uint32_t i = 0; i < count; i++) {
		struct look_qp *qp;

		if (vb_monitor_read(view, VB_MONITOR_QP, i, 0, &entry, sizeof(entry)))
			continue;
		qp = look_gather_add(look, &look->qps);
		if (!qp)
			return;
		qp->pid = vb_monitor_pid(view);
		copy_text(qp->adapter, sizeof(qp->adapter), entry.adapter, sizeof(entry.adapter));
		qp->number = entry.number;
		qp->type = entry.type;
		qp->send_cq = entry.send_cq;
		qp->recv_cq = entry.recv_cq;
		qp->state = atomic_load_explicit(&entry.state, memory_order_relaxed);
		qp->peer = atomic_load_explicit(&entry.peer, memory_order_relaxed);
		copy_traffic(&qp->sq, &entry.sq);
		copy_traffic(&qp->rq, &entry.rq);
	}
}

/* Changes when a queue pair of any adapter goes: what it did is past then. */
static uint64_t mark_of(struct vb_monitor_view *view)
{
	uint32_t count = vb_monitor_count(view, VB_MONITOR_ADAPTER);
	struct vb_monitor_adapter entry;
	uint64_t mark = 0;

	for (uint32_t i = 0; i < count; i++)
		if (!vb_monitor_read(view, VB_MONITOR_ADAPTER, i, 0, &entry, sizeof(entry)))
			mark = mark * 31 + entry.seq.number;
	return mark;
}

/*
 * Each queue pair counts once, by its entry or in the past of its adapter: a counter that went back
 * is another one for those who read it. A program that never stops to destroy queue pairs is seen as
 * it is: what it counts may be short of one then.
 */
static void see_card(struct look *look, struct vb_monitor_view *view)
{
	size_t adapters = look->adapters.count, qps = look->qps.count;

	for (int i = 0; i < LOOKS; i++) {
		uint64_t mark = mark_of(view);

		look->adapters.count = adapters;
		look->qps.count = qps;
		see_adapters(look, view);
		see_qps(look, view);
		if (mark_of(view) == mark)
			return;
	}
}

/* Those of one registry: the slots of another are others. */
static void find_peers_in(struct look *look, int dir)
{
	pid_t in_slot[VB_SLOTS] = { 0 };

	look_each(look_process, p, &look->processes) if (p->dir == dir)
		in_slot[p->slot % VB_SLOTS] = p->pid;
	look_each(look_qp, qp, &look->qps)
	{
		const struct look_process *of = look_process(look, qp->pid);

		if (of && of->dir == dir && qp->peer)
			qp->peer_pid = in_slot[(qp->peer >> 16) % VB_SLOTS];
	}
}

/* A queue pair's number names the slot of its process: bits 16 and up. */
static void find_peers(struct look *look)
{
	int last = -1;

	/* The registry lists its directories one after the other. */
	look_each(look_process, p, &look->processes)
	{
		if (p->dir != last)
			find_peers_in(look, p->dir);
		last = p->dir;
	}
}

static void sum_adapters(struct look *look)
{
	look_each(look_adapter, a, &look->adapters) look_each(
		look_qp, qp, &look->qps) if (qp->pid == a->pid && !strcmp(qp->adapter, a->name))
	{
		a->qps++;
		look_gather_add_traffic(&a->traffic, &qp->sq);
		a->traffic.sent += qp->rq.sent;
		a->traffic.received += qp->rq.received;
		a->traffic.dropped += qp->rq.dropped;
	}
}

/* --- device code ------------------------------------------------------------------------------ */

static void see_dpas(struct look *look, struct vb_monitor_view *view)
{
	uint32_t count = vb_monitor_count(view, VB_MONITOR_DPA_PROCESS);
	struct vb_monitor_process entry;

	for (uint32_t i = 0; i < count; i++) {
		struct look_dpa *dpa;

		if (vb_monitor_read(view, VB_MONITOR_DPA_PROCESS, i, 0, &entry, sizeof(entry)))
			continue;
		dpa = look_gather_add(look, &look->dpas);
		if (!dpa)
			return;
		dpa->pid = vb_monitor_pid(view);
		dpa->id = entry.id;
		copy_text(dpa->name, sizeof(dpa->name), entry.name, sizeof(entry.name));
		copy_text(dpa->adapter, sizeof(dpa->adapter), entry.adapter, sizeof(entry.adapter));
	}
}

/* Whether somebody has reset the counters since the thread last ran: what it shows is older. */
static bool look_gather_is_reset(struct vb_monitor_view *view,
				 const struct vb_monitor_thread *entry)
{
	uint64_t resets;

	return entry->process >= VB_MONITOR_REQUESTS ||
	       vb_monitor_load(view,
			       entry->process * sizeof(struct vb_monitor_request) +
				       offsetof(struct vb_monitor_request, resets),
			       &resets) ||
	       (uint32_t)resets != (uint32_t)entry->counters.resets;
}

static void see_threads(struct look *look, struct vb_monitor_view *view)
{
	uint32_t count = vb_monitor_count(view, VB_MONITOR_DPA_THREAD);
	struct vb_monitor_thread entry;

	for (uint32_t i = 0; i < count; i++) {
		struct look_thread *t;

		if (vb_monitor_read(view, VB_MONITOR_DPA_THREAD, i, 0, &entry, sizeof(entry)))
			continue;
		t = look_gather_add(look, &look->threads);
		if (!t)
			return;
		t->pid = vb_monitor_pid(view);
		t->process_id = entry.process_id;
		t->id = entry.id;
		copy_text(t->name, sizeof(t->name), entry.name, sizeof(entry.name));
		if (vb_monitor_read(view, VB_MONITOR_DPA_THREAD, i,
				    offsetof(struct vb_monitor_thread, counters), &entry.counters,
				    sizeof(entry.counters)))
			continue;
		t->counted = true;
		if (look_gather_is_reset(view, &entry))
			continue;
		t->ticks = atomic_load_explicit(&entry.counters.ticks, memory_order_relaxed);
		t->instructions =
			atomic_load_explicit(&entry.counters.instructions, memory_order_relaxed);
		t->executions =
			atomic_load_explicit(&entry.counters.executions, memory_order_relaxed);
	}
}

static void see_accelerators(struct look *look, struct vb_monitor_view *view)
{
	uint32_t count = vb_monitor_count(view, VB_MONITOR_ACCELERATOR);
	struct vb_monitor_accelerator entry;

	for (uint32_t i = 0; i < count; i++) {
		struct look_accelerator *a;

		if (vb_monitor_read(view, VB_MONITOR_ACCELERATOR, i, 0, &entry, sizeof(entry)) ||
		    !entry.eus || entry.eus > LOOK_EUS)
			continue;
		a = look_gather_add(look, &look->accelerators);
		if (!a)
			return;
		a->pid = vb_monitor_pid(view);
		copy_text(a->adapter, sizeof(a->adapter), entry.adapter, sizeof(entry.adapter));
		a->busy = calloc(entry.eus, sizeof(*a->busy));
		a->ticks = vb_ticks();
		if (a->busy &&
		    !vb_monitor_copy(view, entry.busy, a->busy, entry.eus * sizeof(*a->busy)))
			a->eus = entry.eus;
	}
}

static void name_threads(struct look *look)
{
	look_each(look_thread, t, &look->threads) look_each(
		look_dpa, dpa, &look->dpas) if (dpa->id == t->process_id && dpa->pid == t->pid)
	{
		dpa->threads++;
		memcpy(t->process, dpa->name, sizeof(t->process));
		memcpy(t->adapter, dpa->adapter, sizeof(t->adapter));
	}
}

/* --- order ------------------------------------------------------------------------------------ */

#define COMPARE(x, y) ((x) < (y) ? -1 : (x) > (y))

static int by_qp(const void *a, const void *b)
{
	const struct look_qp *x = a, *y = b;

	return x->pid != y->pid ? COMPARE(x->pid, y->pid) : COMPARE(x->number, y->number);
}

static int by_thread(const void *a, const void *b)
{
	const struct look_thread *x = a, *y = b;

	if (x->pid != y->pid)
		return COMPARE(x->pid, y->pid);
	return x->process_id != y->process_id ? COMPARE(x->process_id, y->process_id)
					      : COMPARE(x->id, y->id);
}

/* So that the same one is found in another look, of tens of thousands. */
static void sort(struct look_list *list, int (*compare)(const void *a, const void *b))
{
	if (list->count)
		qsort(list->at, list->count, list->size, compare);
}

static const void *look_gather_find(const struct look_list *list, const void *item,
				    int (*compare)(const void *a, const void *b))
{
	return list->count ? bsearch(item, list->at, list->count, list->size, compare) : NULL;
}

const struct look_qp *look_same_qp(const struct look *look, const struct look_qp *qp)
{
	return look_gather_find(&look->qps, qp, by_qp);
}

const struct look_thread *look_same_thread(const struct look *look, const struct look_thread *t)
{
	return look_gather_find(&look->threads, t, by_thread);
}

/* --- all of it -------------------------------------------------------------------------------- */

static int see_view(struct vb_monitor_view *view, void *arg)
{
	struct look *look = arg;

	see_card(look, view);
	see_dpas(look, view);
	see_threads(look, view);
	see_accelerators(look, view);
	return 0;
}

int look_make(struct look *look)
{
	int ret;

	*look = (struct look){ .processes.size = sizeof(struct look_process),
			       .adapters.size = sizeof(struct look_adapter),
			       .qps.size = sizeof(struct look_qp),
			       .dpas.size = sizeof(struct look_dpa),
			       .threads.size = sizeof(struct look_thread),
			       .accelerators.size = sizeof(struct look_accelerator) };
	look->time = vb_machine_ns();
	ret = vb_registry_list(see_process, look);
	if (ret >= 0)
		ret = vb_monitor_each(see_view, look);
	sort(&look->qps, by_qp);
	sort(&look->threads, by_thread);
	find_peers(look);
	sum_adapters(look);
	name_threads(look);
	return ret < 0 ? ret : look->failed ? -ENOMEM : 0;
}

void look_free(struct look *look)
{
	look_each(look_accelerator, a, &look->accelerators) free(a->busy);
	free(look->accelerators.at);
	free(look->processes.at);
	free(look->adapters.at);
	free(look->qps.at);
	free(look->dpas.at);
	free(look->threads.at);
}

/* --- words ------------------------------------------------------------------------------------ */

const char *look_type(uint32_t type)
{
	switch (type) {
	case IBV_QPT_RC:
		return "RC";
	case IBV_QPT_UC:
		return "UC";
	case IBV_QPT_UD:
		return "UD";
	case IBV_QPT_RAW_PACKET:
		return "RAW";
	case 0x48: /* VB_TRANSPORT_HBL */
		return "HBL";
	}
	return "?";
}

const char *look_state(uint32_t state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < sizeof(names) / sizeof(*names) ? names[state] : "?";
}

void look_bytes(uint64_t bytes, char text[24])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	unsigned int unit = 0;

	while (value >= 1024 && unit < 6) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 24, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}
