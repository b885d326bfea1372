// SPDX-License-Identifier: MIT
/*
 * Owns compressed completions: CQEs that differ from the one before them only in what a mini CQE holds are written as
 * an array of these, in one entry.
 *
 *	index   i       i + 1            i + 2 ... i + n   i + n + 1
 *	        CQE     n mini CQEs      skipped           CQE or mini CQEs
 *	        title   they are the     (validity byte    ...
 *	                CQEs i + 1 ...   of no turn)
 *
 * Each mini CQE takes an index as the CQE would, so consumer index, overrun and arming know nothing of compression.
 *
 * CQEs wait for others in their array only during a burst: what one doorbell carries out or one look at a peer's ring
 * receives. Whoever begins a burst ends it, inside the same read section, and everything is in the ring then. An event,
 * a CQE that does not fit and a long copy end the waiting before. Outside of bursts nothing is compressed.
 *
 * The state of a CQ is under its lock. Which CQs a thread has to look after at the end of its burst is a short list of
 * the thread's own: more of them at once than it holds are not compressed.
 */
#include "card/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_OPEN = 8, CQE_SIZE = 64 };

struct vb_minis {
	uint8_t format;  /* of receives, as the CQ was created */
	uint8_t limit;   /* of one array */
	uint8_t count;   /* mini CQEs that wait */
	bool has_title;  /* the last entry written is one, or belongs to one */
	uint16_t behind; /* CQEs since the title */
	uint32_t first;  /* index of the first one that waits */
	struct vb_mini mini[VB_MINI_MAX];
	_Alignas(8) uint8_t title[CQE_SIZE];
};

_Atomic uint32_t vb_compressing;

__thread bool vb_burst_open;

/* Of this thread's burst. */
static __thread struct {
	unsigned int count;
	struct vb_cq *cq[MAX_OPEN];
} burst;

struct vb_minis *vb_minis_new(const struct vb_cq_attr *attr)
{
	struct vb_minis *minis = calloc(1, sizeof(*minis));

	if (!minis)
		return NULL;
	minis->format = attr->mini_format;
	minis->limit = (uint8_t)(attr->cqe_cnt < VB_MINI_MAX ? attr->cqe_cnt : VB_MINI_MAX);
	atomic_fetch_add(&vb_compressing, 1);
	return minis;
}

void vb_minis_free(struct vb_minis *minis)
{
	if (minis)
		atomic_fetch_sub(&vb_compressing, 1);
	free(minis);
}

/* --- one CQ, under its lock ------------------------------------------------------------------------------------------ */

static uint8_t turn_of(const struct vb_cq *cq, uint32_t index)
{
	return (uint8_t)(index >> cq->turn_shift);
}

static void *entry(const struct vb_cq *cq, uint32_t index)
{
	return (char *)cq->attr.buf + (size_t)(index & cq->slots) * CQE_SIZE;
}

void vb_minis_write(struct vb_cq *cq)
{
	struct vb_minis *minis = cq->minis;
	uint32_t first = minis->first;

	if (!minis->count)
		return;
	/* What was left there 256 turns ago must not look new when the consumer comes round again. */
	for (uint32_t i = first + 1; i != first + minis->count; i++)
		cq->codec->skipped(entry(cq, i), (uint8_t)(turn_of(cq, i) - 1));
	cq->codec->minis(entry(cq, first), minis->mini, minis->count, turn_of(cq, first),
			 first & cq->attr.cqe_cnt);
	minis->count = 0;
}

/* Whether the end of this thread's burst will look after the CQ. */
static bool is_looked_after(struct vb_cq *cq)
{
	if (!vb_burst_open)
		return false;
	for (unsigned int i = 0; i < burst.count; i++)
		if (burst.cq[i] == cq)
			return true;
	if (burst.count == MAX_OPEN)
		return false;
	burst.cq[burst.count++] = cq;
	return true;
}

bool vb_minis_add(struct vb_cq *cq, struct vb_completion *completion)
{
	_Alignas(8) uint8_t cqe[CQE_SIZE] = { 0 };
	struct vb_minis *minis = cq->minis;
	bool open = is_looked_after(cq);

	completion->turn = 0; /* not what CQEs differ in */
	cq->codec->completion(cqe, completion, false);
	if (open && minis->has_title &&
	    cq->codec->mini(minis->title, cqe, (uint16_t)(minis->behind + 1), minis->format,
			    &minis->mini[minis->count])) {
		if (!minis->count)
			minis->first = cq->pi;
		minis->behind++;
		if (++minis->count == minis->limit)
			vb_minis_write(cq);
		return true;
	}
	vb_minis_write(cq);
	minis->has_title = open;
	minis->behind = 0;
	memcpy(minis->title, cqe, sizeof(cqe));
	return false;
}

/* --- the burst of a thread ------------------------------------------------------------------------------------------- */

static void write_all(bool end)
{
	for (unsigned int i = 0; i < burst.count; i++) {
		struct vb_cq *cq = burst.cq[i];

		vb_lock(&cq->lock);
		vb_minis_write(cq);
		/* A consumer finds the title right before its mini CQEs, or before other mini CQEs of the same burst. */
		cq->minis->has_title &= !end;
		vb_unlock(&cq->lock);
	}
}

void vb_burst_close(void)
{
	write_all(true);
	burst.count = 0;
	vb_burst_open = false;
}

void vb_burst_pause(void)
{
	write_all(false);
}
