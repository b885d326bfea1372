// SPDX-License-Identifier: MIT
/*
 * Owns compressed completions: CQEs that differ from the one before them only in what a mini CQE
 * holds are written as an array of these, in one entry.
 *
 *	index   i       i + 1            i + 2 ... i + n   i + n + 1
 *	        CQE     n mini CQEs      skipped           CQE or mini CQEs
 *	        title   they are the     (validity byte    ...
 *	                CQEs i + 1 ...   of no turn)
 *
 * That is the enhanced layout, whose entries carry the turn of the ring. In the basic one, of CQs of
 * verbs and of commands that want it, the title counts the completions, the first of which is its own, and nothing else changes in
 * the ring; the consumer makes the entries that it passes invalid.
 *
 *	index   i             i + 1         i + 8                  i + n
 *	        title of n    mini CQEs     the next 8 mini CQEs   CQE or title
 *	                      0 ... 7
 *
 * Each mini CQE takes an index as the CQE would, so consumer index, overrun and arming know nothing
 * of compression.
 *
 * CQEs wait for others in their array only during a burst (burst.h), and everything is in the ring
 * at its end. An event, a CQE that does not fit and a long copy end the waiting before. A CQ for
 * which the burst has no place is not compressed.
 *
 * The state of a CQ is under its lock.
 */
#include "card/queue/cq.h"

#include <stdlib.h>
#include <string.h>

#include "card/queue/objects.h"

enum { CQE_SIZE = 64, BASIC_ARRAY = CQE_SIZE / (int)sizeof(struct vb_mini) };

_Static_assert((int)VB_MINI_MAX_BASIC == (int)VB_MAX_MINIS, "what programs are told");

struct vb_minis {
	bool basic;      /* the layout */
	uint8_t format;  /* of receives, as the CQ was created */
	uint8_t limit;   /* of one array */
	uint8_t count;   /* mini CQEs that wait */
	bool has_title;  /* the last entry written is one, or belongs to one */
	uint16_t behind; /* CQEs since the title */
	uint32_t first;  /* index of the first one that waits */
	struct vb_mini mini[VB_MINI_MAX_BASIC];
	_Alignas(8) uint8_t title[CQE_SIZE];
};

static void set_limit(struct vb_minis *minis, uint32_t cqe_cnt)
{
	uint32_t most = minis->basic ? VB_MINI_MAX_BASIC : VB_MINI_MAX;

	minis->limit = (uint8_t)(cqe_cnt < most ? cqe_cnt : most);
}

struct vb_minis *vb_minis_new(const struct vb_cq_attr *attr)
{
	struct vb_minis *minis = calloc(1, sizeof(*minis));

	if (!minis)
		return NULL;
	minis->format = attr->mini_format;
	minis->basic = attr->basic_minis;
	set_limit(minis, attr->cqe_cnt);
	return minis;
}

void vb_minis_free(struct vb_minis *minis)
{
	free(minis);
}

/* --- one CQ, under its lock ------------------------------------------------------------------- */

static uint8_t turn_of(const struct vb_cq *cq, uint32_t index)
{
	return (uint8_t)(index >> cq->turn_shift);
}

static void *compress_entry(const struct vb_cq *cq, uint32_t index)
{
	return (char *)cq->attr.buf + (size_t)(index & cq->slots) * cq->attr.cqe_size;
}

/* The arrays first: the title says that they are there. */
static void write_basic(struct vb_cq *cq)
{
	struct vb_minis *minis = cq->minis;
	uint32_t first = minis->first;

	for (uint32_t i = 0; minis->count > 1 && i < minis->count; i += BASIC_ARRAY) {
		uint32_t n = minis->count - i < BASIC_ARRAY ? minis->count - i : BASIC_ARRAY;

		memcpy(compress_entry(cq, first + (i ? i : 1)), &minis->mini[i],
		       n * sizeof(minis->mini[0]));
	}
	cq->codec->title(compress_entry(cq, first), minis->title, minis->count,
			 first & cq->attr.cqe_cnt);
	minis->count = 0;
}

void vb_minis_write(struct vb_cq *cq)
{
	struct vb_minis *minis = cq->minis;
	uint32_t first = minis->first;

	if (!minis->count)
		return;
	if (minis->basic) {
		write_basic(cq);
		return;
	}
	/*
	 * What was left there 256 turns ago must not look new when the consumer comes round again.
	 */
	for (uint32_t i = first + 1; i != first + minis->count; i++)
		cq->codec->skipped(compress_entry(cq, i), (uint8_t)(turn_of(cq, i) - 1));
	cq->codec->minis(compress_entry(cq, first), minis->mini, minis->count, turn_of(cq, first),
			 first & cq->attr.cqe_cnt);
	minis->count = 0;
}

/* Nothing waits, and a title is left behind in the old ring. */
void vb_minis_moved(struct vb_cq *cq)
{
	cq->minis->has_title = false;
	set_limit(cq->minis, cq->attr.cqe_cnt);
}

/* Every completion waits, the title too: it is not known before how many there are. */
static bool add_basic(struct vb_cq *cq, const uint8_t *cqe, bool open)
{
	struct vb_minis *minis = cq->minis;

	if (minis->count && !cq->codec->mini(minis->title, cqe, minis->count, minis->format,
					     &minis->mini[minis->count]))
		vb_minis_write(cq);
	if (!minis->count) {
		/* An error, for instance, has no mini CQE. */
		if (!open || !cq->codec->mini(cqe, cqe, 0, minis->format, &minis->mini[0]))
			return false;
		memcpy(minis->title, cqe, CQE_SIZE);
		minis->first = cq->pi;
	}
	if (++minis->count == minis->limit)
		vb_minis_write(cq);
	return true;
}

bool vb_minis_add(struct vb_cq *cq, struct vb_completion *completion)
{
	_Alignas(8) uint8_t cqe[CQE_SIZE] = { 0 };
	struct vb_minis *minis = cq->minis;
	bool open = vb_burst_compresses(cq);

	completion->turn = 0; /* not what CQEs differ in */
	cq->codec->completion(cqe, completion, false);
	if (minis->basic)
		return add_basic(cq, cqe, open);
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

/* --- the end of a burst ----------------------------------------------------------------------- */

void vb_minis_flush(struct vb_cq *cq, bool end)
{
	vb_lock(&cq->lock);
	vb_minis_write(cq);
	/*
	 * A consumer finds the title right before its mini CQEs, or before other mini CQEs of the
	 * same burst.
	 */
	cq->minis->has_title &= !end;
	vb_unlock(&cq->lock);
}
