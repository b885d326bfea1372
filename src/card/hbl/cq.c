// SPDX-License-Identifier: MIT
/*
 * Owns completion queues: their three pages of memory, and writing entries.
 *
 *	mem   [ CQE 16 B | ... ]        the card writes, the program clears the valid bit
 *	pi    producer index            the card writes, free running
 *	regs  consumer index            the program writes; the card looks before it writes an entry
 *
 * Each queue has a register page of its own and only the newest consumer index matters, so the page
 * is plain memory. All three are shared with the processes of the user, because the peer of a queue
 * pair that is lent writes and reads them itself (lend.c). A forked child has copies: what it does
 * there is not its parent's.
 *
 * A completion needs a reserved entry. Where none is free, the requester waits with the completion
 * and the responder with the request itself. The program writes its index without a doorbell, so
 * timers of those queue pairs look at it.
 */
#include "card/hbl/internal.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/rcu.h"
#include "base/util.h"
#include "host/fault.h"
#include "host/shared/shared.h"

enum { REGS_ODD = 0x180, REGS_EVEN = 0x100 };

static void unmap(const struct vb_hbl_cq_info *info)
{
	if (info->mem)
		vb_shared_free(info->mem, info->size);
	if (info->pi)
		vb_shared_free(info->pi, VB_HBL_PAGE);
	if (info->regs)
		vb_shared_free(info->regs, VB_HBL_PAGE);
}

static int hbl_cq_map(struct vb_hbl_cq_info *info)
{
	info->size = (info->entries * VB_HBL_CQE_SIZE + VB_HBL_PAGE - 1) & ~(VB_HBL_PAGE - 1u);
	info->mem = vb_shared_alloc(info->size);
	info->pi = vb_shared_alloc(VB_HBL_PAGE);
	info->regs = vb_shared_alloc(VB_HBL_PAGE);
	if (info->mem && info->pi && info->regs)
		return 0;
	unmap(info);
	return -ENOMEM;
}

/* Pages of the parent's become the child's own, or nothing at all. */
static void hbl_cq_make_own(void *at, size_t bytes)
{
	void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy != MAP_FAILED && !vb_fault_copy(copy, at, bytes) &&
	    mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
		return;
	if (copy != MAP_FAILED)
		munmap(copy, bytes);
	mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void vb_hbl_cq_forked(const struct vb_hbl_cq *cq)
{
	hbl_cq_make_own(cq->info.mem, cq->info.size);
	hbl_cq_make_own(cq->info.pi, VB_HBL_PAGE);
	hbl_cq_make_own(cq->info.regs, VB_HBL_PAGE);
}

static int enter_cc(struct vb_hbl_cq *cq)
{
	if (!cq->port->attr.advanced)
		return vb_refuse_hbl_not_advanced(cq->port->number);
	if (atomic_load_explicit(&cq->port->cc_cq, memory_order_relaxed))
		return vb_refuse_hbl_used_up("CQ for congestion control", cq->port->number);
	atomic_store_explicit(&cq->port->cc_cq, cq, memory_order_release);
	return 0;
}

static int hbl_cq_take_number(struct vb_hbl_cq *cq, struct vb_hbl_port *port, uint32_t *number)
{
	for (uint32_t i = 0; i < VB_HBL_CQS; i++) {
		if (port->cqs[i])
			continue;
		port->cqs[i] = cq;
		*number = VB_HBL_CQ_FIRST + i;
		return 0;
	}
	return vb_refuse_hbl_used_up("CQ", port->number);
}

/* The device's mutex held: give all numbers back. */
static void hbl_cq_leave(struct vb_hbl_cq *cq)
{
	for (uint32_t p = 1; p <= cq->hbl->adapter->config->ports; p++)
		for (uint32_t i = 0; i < VB_HBL_CQS; i++)
			if (cq->hbl->ports[p].cqs[i] == cq)
				cq->hbl->ports[p].cqs[i] = NULL;
}

/* A number on every port that is set up; the program is told the first. */
static int enter_all(struct vb_hbl_cq *cq)
{
	uint32_t number = 0;

	for (uint32_t p = 1; p <= cq->hbl->adapter->config->ports; p++) {
		struct vb_hbl_port *port = &cq->hbl->ports[p];
		int ret = port->used && port->ready ? hbl_cq_take_number(cq, port, &number) : 0;

		if (ret) {
			hbl_cq_leave(cq);
			return ret;
		}
		if (port->used && port->ready && !cq->info.number)
			cq->info.number = number;
	}
	return cq->info.number ? 0 : -EPERM;
}

/* The device's mutex held: its numbers. */
static int hbl_cq_enter(struct vb_hbl_cq *cq)
{
	int ret;

	if (cq->port && !cq->port->ready)
		return vb_refuse_hbl_not_set_up(cq->port->number);
	if (cq->info.cc)
		return enter_cc(cq);
	ret = cq->port ? hbl_cq_take_number(cq, cq->port, &cq->info.number) : enter_all(cq);
	cq->info.regs_offset = cq->info.number % 2 ? REGS_ODD : REGS_EVEN;
	return ret;
}

static void hbl_cq_tell(struct vb_notice *notice, uint64_t events)
{
	struct vb_hbl_cq *cq = container_of(notice, struct vb_hbl_cq, notice);

	vb_hbl_tell(cq->hbl, events, cq->cookie, 0);
}

int vb_hbl_cq_create(struct vb_hbl *hbl, uint32_t number, uint32_t entries, bool cc, void *cookie,
		     struct vb_hbl_cq **out)
{
	struct vb_hbl_port *port = vb_hbl_port(hbl, number);
	struct vb_hbl_cq *cq = NULL;
	int ret;

	if (number ? !port : cc)
		return vb_refuse_hbl_port(number);
	if (entries < 1 || entries > VB_HBL_CQE_MAX)
		return vb_refuse_range("cqe", entries, 1, VB_HBL_CQE_MAX);
	ret = vb_hbl_inject_create(hbl, VB_INJECT_CQ);
	if (ret)
		return ret;
	if (posix_memalign((void **)&cq, _Alignof(struct vb_hbl_cq), sizeof(*cq)))
		return -ENOMEM;
	*cq = (struct vb_hbl_cq){
		.hbl = hbl, .port = port, .cookie = cookie, .notice.tell = hbl_cq_tell
	};
	cq->info.cc = cc;
	cq->info.entries = VB_HBL_CQE_MIN;
	while (cq->info.entries < entries)
		cq->info.entries *= 2;
	ret = hbl_cq_map(&cq->info);
	if (ret)
		goto free_cq;
	pthread_mutex_lock(&hbl->mutex);
	ret = hbl_cq_enter(cq);
	pthread_mutex_unlock(&hbl->mutex);
	if (ret)
		goto unmap;
	*out = cq;
	return 0;

unmap:
	unmap(&cq->info);
free_cq:
	free(cq);
	return ret;
}

int vb_hbl_cq_check_unused(struct vb_hbl_cq *cq)
{
	bool used;

	if (vb_hbl_stale(cq->hbl))
		return 0;
	pthread_mutex_lock(&cq->hbl->mutex);
	used = cq->users;
	pthread_mutex_unlock(&cq->hbl->mutex);
	return used ? -EBUSY : 0;
}

int vb_hbl_cq_destroy(struct vb_hbl_cq *cq)
{
	struct vb_hbl *hbl = cq->hbl;
	int ret = 0;

	if (vb_hbl_stale(hbl))
		return 0; /* a forked child: it is the parent's */
	pthread_mutex_lock(&hbl->mutex);
	if (cq->users)
		ret = -EBUSY;
	else if (cq->info.cc)
		atomic_store_explicit(&cq->port->cc_cq, NULL, memory_order_release);
	else
		hbl_cq_leave(cq);
	pthread_mutex_unlock(&hbl->mutex);
	if (ret)
		return ret;
	vb_read_wait(); /* a report may be under way */
	unmap(&cq->info);
	free(cq);
	return 0;
}

void vb_hbl_cq_query(const struct vb_hbl_cq *cq, struct vb_hbl_cq_info *info)
{
	*info = cq->info;
}

/* --- writing ---------------------------------------------------------------------------------- */

/*
 * The queues are the program's to unmap or to scribble on, so nothing that is read decides where to
 * write, and what is written is written with a recovery point.
 */
static bool hbl_cq_has_room(const struct vb_hbl_cq *cq, uint32_t *ci)
{
	uint64_t regs = 0;

	*ci = 0;
	if (vb_fault_copy(&regs, (char *)cq->info.regs + cq->info.regs_offset, sizeof(regs)))
		return false;
	regs = le64toh(regs);
	/* Gaudi2: the number of the queue is in the low half. */
	*ci = cq->hbl->generation == VB_GAUDI2 ? (uint32_t)(regs >> 32) : (uint32_t)regs;
	return cq->produced + cq->reserved - *ci < cq->info.entries;
}

static void write_entry(struct vb_hbl_cq *cq, const void *entry)
{
	char *at = (char *)cq->info.mem +
		   (size_t)(cq->produced & (cq->info.entries - 1)) * VB_HBL_CQE_SIZE;
	uint64_t pi = htole64(cq->produced + 1);

	/* The rest of the entry before the word with the valid bit, that before the index. */
	if (vb_fault_copy(at + 4, (const char *)entry + 4, VB_HBL_CQE_SIZE - 4))
		return;
	atomic_thread_fence(memory_order_release);
	if (vb_fault_copy(at, entry, 4))
		return;
	atomic_thread_fence(memory_order_release);
	if (!vb_fault_copy(cq->info.pi, &pi, sizeof(pi)))
		cq->produced++;
}

static enum vb_hbl_room room(const struct vb_hbl_cq *cq)
{
	uint32_t ci;

	if (cq->failed)
		return VB_HBL_LOST;
	return hbl_cq_has_room(cq, &ci) ? VB_HBL_ROOM : VB_HBL_FULL;
}

enum vb_hbl_room vb_hbl_cq_reserve(struct vb_hbl_cq *cq)
{
	enum vb_hbl_room found;

	vb_lock(&cq->lock);
	found = room(cq);
	cq->reserved += found == VB_HBL_ROOM;
	vb_unlock(&cq->lock);
	return found;
}

static void hbl_cq_note(const struct vb_hbl_cq *cq, const struct vb_hbl_completion *completion)
{
	vb_note(CQE, .object = cq->info.number, .value = completion->size,
		.extra = vb_note_done(completion->qpn, completion->index, !completion->requester));
}

void vb_hbl_cq_fill(struct vb_hbl_cq *cq, const struct vb_hbl_completion *completion)
{
	_Alignas(16) uint8_t entry[VB_HBL_CQE_SIZE];

	vb_hbl_encode_cqe(entry, completion);
	vb_lock(&cq->lock);
	cq->reserved--;
	hbl_cq_note(cq, completion);
	write_entry(cq, entry);
	vb_unlock(&cq->lock);
}

enum vb_hbl_room vb_hbl_cq_put(struct vb_hbl_cq *cq, const struct vb_hbl_completion *completion)
{
	_Alignas(16) uint8_t entry[VB_HBL_CQE_SIZE];
	enum vb_hbl_room found;

	vb_hbl_encode_cqe(entry, completion);
	vb_lock(&cq->lock);
	found = room(cq);
	if (found == VB_HBL_ROOM) {
		hbl_cq_note(cq, completion);
		write_entry(cq, entry);
	}
	vb_unlock(&cq->lock);
	return found;
}

void vb_hbl_cq_cancel(struct vb_hbl_cq *cq)
{
	vb_lock(&cq->lock);
	cq->reserved--;
	vb_unlock(&cq->lock);
}

/*
 * A program takes completions as they come, but loses its core now and then, which a queue must
 * survive: its queue pairs wait while it is full. One whose index does not move, although we got to
 * look at it often enough, is not read at all. Looks are counted and not time, because a machine or
 * process that was stopped did not read either.
 */
static bool has_overrun(struct vb_hbl_cq *cq, uint32_t ci, uint64_t now)
{
	if (ci != cq->full_ci || !cq->full_time) {
		cq->full_ci = ci;
		cq->full_looks = 0;
	} else if (now - cq->full_time >= VB_HBL_FULL_LOOK_NS) {
		cq->full_looks++;
	} else {
		return false; /* another queue pair's look */
	}
	cq->full_time = now;
	return cq->full_looks >= VB_HBL_FULL_LOOKS;
}

bool vb_hbl_cq_look(struct vb_hbl_cq *cq, uint64_t now)
{
	bool full = false, failed = false;
	uint32_t ci;

	vb_lock(&cq->lock);
	if (!cq->failed && !hbl_cq_has_room(cq, &ci)) {
		failed = has_overrun(cq, ci, now);
		cq->failed = failed;
		full = !failed;
	} else {
		cq->full_time = 0;
	}
	vb_unlock(&cq->lock);
	if (failed) {
		vb_warn("%s: CQ %u overrun: the program takes none of its %u entries; completions are lost",
			cq->hbl->adapter->config->name, cq->info.number, cq->info.entries);
		vb_notice_set(&cq->notice, 1ull << IBV_EVENT_CQ_ERR);
	}
	return !full;
}

/* Reports overwrite what nobody read: the phase tells. */
void vb_hbl_cq_report(struct vb_hbl_cq *cq, struct vb_hbl_ccqe *report)
{
	_Alignas(16) uint8_t entry[VB_HBL_CQE_SIZE];

	vb_lock(&cq->lock);
	report->phase = !(cq->produced & cq->info.entries);
	vb_hbl_encode_ccqe(entry, report);
	write_entry(cq, entry);
	vb_unlock(&cq->lock);
}

uint32_t vb_hbl_cq_produced(struct vb_hbl_cq *cq)
{
	uint32_t produced;

	vb_lock(&cq->lock);
	produced = cq->produced;
	vb_unlock(&cq->lock);
	return produced;
}

void vb_hbl_cq_set_produced(struct vb_hbl_cq *cq, uint32_t produced)
{
	vb_lock(&cq->lock);
	cq->produced = produced;
	vb_unlock(&cq->lock);
}
