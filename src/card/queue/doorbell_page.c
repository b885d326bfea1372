// SPDX-License-Identifier: MIT
/*
 * Owns doorbell pages: stores of the program become rings. Where which doorbell lies is the
 * format's to say (format/mlx4.c, format/mlx5.c); whatever else is stored there means nothing.
 * So does a WQE in a BlueFlame register, behind its first 8 bytes: they ring, and the WQE is read
 * from the ring. On hardware that register is write-combining memory, from which the card gets whole
 * words however narrow the stores were: a memmove() may copy a WQE byte by byte, in either
 * direction.
 *
 * A store is seen in the thread that makes it (host/trap/trap.h) and executed there. The exception: a
 * program's handler of an asynchronous signal may ring while its thread is inside of the card and
 * holds locks. Such a ring is only noted, and the background thread executes it. Nothing is lost:
 * of a send queue the ring itself or its doorbell record says what is posted, of a CQ the arm
 * record says what was asked, and of an event queue the newest index is what counts.
 */
#include "card/device.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rcu.h"
#include "base/util.h"
#include "card/queue/cq.h"
#include "card/queue/doorbell.h"
#include "card/queue/eq.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/sink.h"
#include "host/trap/trap.h"

enum { WORD = 64, RUNG = 1u << 31, PAGE = 4096 };
enum { COMBINED = 4, COMBINED_ALL = (1 << COMBINED) - 1 };

/* A word of which narrow stores have written some bytes. */
union uar_combined {
	struct {
		uint8_t bytes[COMBINED];
		uint16_t at;     /* its offset in the page */
		uint8_t written; /* a bit for each byte */
	};
	uint64_t whole;
};

struct vb_uar {
	struct vb_card *card; /* of the device, which may be gone before the page */
	struct vb_dev *dev;
	void *page;      /* NULL: this machine cannot trap stores */
	uint32_t number; /* by which queues name it; 0: none */
	/* union uar_combined; a register has one user at a time, as on hardware */
	_Atomic uint64_t combined;
};

/* vb_card_enter() without its end. Per thread, for all hosts: it is the thread that holds locks. */
_Thread_local int vb_card_inside __attribute__((tls_model("initial-exec")));

bool vb_card_is_inside(void)
{
	return vb_card_inside || vb_read_ongoing();
}

static void bits_set(_Atomic uint64_t *bits, uint32_t number)
{
	atomic_fetch_or_explicit(&bits[number / WORD], 1ull << number % WORD, memory_order_release);
}

/*
 * Only atomic instructions and a system call: this is a signal handler. A number that no object
 * can have rings nothing, as it does outside of the card.
 */
static void uar_defer(struct vb_card *card, const struct vb_bell *bell)
{
	if (bell->kind == VB_BELL_SEND)
		bits_set(card->tables.rung.qps, bell->number & VB_QPN_INDEX_MASK);
	else if (bell->kind == VB_BELL_ARM && bell->number <= VB_CQ_MAX)
		bits_set(card->tables.rung.cqs, bell->number);
	else if (bell->kind == VB_BELL_EQ && bell->number <= VB_EQ_MAX)
		atomic_store_explicit(&card->tables.rung.eqs[bell->number], RUNG | bell->ci,
				      memory_order_release);
	atomic_store_explicit(&card->tables.rung.any, true, memory_order_seq_cst);
	vb_fabric_kick(card->fabric);
}

/* --- rings, inside a read section; dev NULL: of any of the card ------------------------------- */

static void ring_qp(struct vb_card *card, const struct vb_dev *dev, uint32_t qpn)
{
	struct vb_qp *qp = vb_qp_find(card, qpn);

	if (!qp || (dev && qp->dev != dev))
		return;
	if (qp->codec->owned)
		vb_qp_ring_owned(qp);
	else
		vb_qp_ring_sq(qp, be32toh(atomic_load_explicit((_Atomic uint32_t *)&qp->init.dbr[1],
							       memory_order_acquire)));
}

static void arm_cq(struct vb_card *card, const struct vb_dev *dev, const struct vb_bell *bell)
{
	struct vb_cq *cq = vb_cq_find(card, bell->number);

	if (!cq || (dev && cq->dev != dev))
		return;
	if (bell->counted)
		vb_cq_arm_sn(cq, bell->sn, bell->solicited, bell->ci);
	else
		vb_cq_arm_index(cq, bell->solicited, bell->ci);
}

static void uar_ring(const struct vb_dev *dev, const struct vb_bell *bell)
{
	struct vb_card *card = vb_dev_card(dev);

	switch ((enum vb_bell_kind)bell->kind) {
	case VB_BELL_SEND:
		ring_qp(card, dev, bell->number);
		break;
	case VB_BELL_ARM:
		arm_cq(card, dev, bell);
		break;
	case VB_BELL_EQ:
		vb_eq_consumed(card, dev, bell->number, bell->ci);
		break;
	}
}

/*
 * A store that is narrower than a word: what it rings where it completes one. The words of a copy
 * are written one after the other, so a store to another word begins anew.
 */
static unsigned int uar_combine(struct vb_uar *uar, size_t offset, const uint8_t *data, size_t size,
				struct vb_bell bells[VB_BELLS_MAX])
{
	const struct vb_codec *codec = vb_adapter_codec(uar->dev->adapter);
	size_t at = offset & ~(size_t)(COMBINED - 1);
	union uar_combined word;

	if (offset - codec->combined_at >= codec->combined_size || offset + size > at + COMBINED)
		return 0;
	/* Relaxed: the bytes are all that it says. */
	word.whole = atomic_load_explicit(&uar->combined, memory_order_relaxed);
	if (word.at != at)
		word = (union uar_combined){ .at = (uint16_t)at };
	for (size_t i = 0; i < size; i++) {
		word.bytes[offset + i - at] = data[i];
		word.written |= (uint8_t)(1u << (offset + i - at));
	}
	atomic_store_explicit(&uar->combined, word.written == COMBINED_ALL ? 0 : word.whole,
			      memory_order_relaxed);
	return word.written == COMBINED_ALL ? codec->doorbell(at, word.bytes, COMBINED, bells) : 0;
}

static void uar_on_store(void *arg, size_t offset, const void *data, size_t size)
{
	struct vb_uar *uar = arg;
	struct vb_bell bells[VB_BELLS_MAX];
	unsigned int count;

	if (vb_dev_stale(uar->dev))
		return;
	count = vb_adapter_codec(uar->dev->adapter)->doorbell(offset, data, size, bells);
	if (!count && size < COMBINED)
		count = uar_combine(uar, offset, data, size, bells);
	if (!count) /* the rest of a WQE that goes to a BlueFlame register */
		return;
	if (vb_card_is_inside()) {
		for (unsigned int i = 0; i < count; i++)
			uar_defer(uar->card, &bells[i]);
		return;
	}
	vb_read_lock();
	for (unsigned int i = 0; i < count; i++)
		uar_ring(uar->dev, &bells[i]);
	vb_read_unlock();
}

/* --- deferred ones, with no lock held and inside a read section ------------------------------- */

static void arm_from_record(struct vb_card *card, uint32_t number)
{
	struct vb_cq *cq = vb_cq_find(card, number);
	struct vb_bell bell;

	if (!cq)
		return;
	/* Pairs with the driver's store before its doorbell. */
	if (cq->codec->armed(be32toh(atomic_load_explicit((_Atomic uint32_t *)&cq->attr.dbr[1],
							  memory_order_acquire)),
			     &bell)) {
		bell.number = number;
		arm_cq(card, NULL, &bell);
	}
}

/* Most words are empty: they are only read. */
static uint64_t uar_take_bits(_Atomic uint64_t *bits)
{
	return atomic_load_explicit(bits, memory_order_relaxed)
		       ? atomic_exchange_explicit(bits, 0, memory_order_acquire)
		       : 0;
}

void vb_uar_run_deferred(struct vb_card *card)
{
	uint32_t slot = vb_fabric_slot(card->fabric) << VB_QPN_INDEX_BITS;

	/*
	 * Pairs with uar_defer(): the bits were set before. The load is sequentially consistent with
	 * the kick, so that the round of the background thread that takes the kick back sees them.
	 */
	if (!atomic_load_explicit(&card->tables.rung.any, memory_order_seq_cst) ||
	    !atomic_exchange_explicit(&card->tables.rung.any, false, memory_order_acquire))
		return;
	for (uint32_t i = 0; i < ARRAY_SIZE(card->tables.rung.qps); i++)
		for (uint64_t qps = uar_take_bits(&card->tables.rung.qps[i]); qps; qps &= qps - 1)
			ring_qp(card, NULL, slot | (i * WORD + (uint32_t)__builtin_ctzll(qps)));
	for (uint32_t i = 0; i < ARRAY_SIZE(card->tables.rung.cqs); i++)
		for (uint64_t cqs = uar_take_bits(&card->tables.rung.cqs[i]); cqs; cqs &= cqs - 1)
			arm_from_record(card, i * WORD + (uint32_t)__builtin_ctzll(cqs));
	for (uint32_t i = 0; i <= VB_EQ_MAX; i++) {
		uint32_t rung =
			atomic_load_explicit(&card->tables.rung.eqs[i], memory_order_relaxed);

		if (rung && (rung = atomic_exchange_explicit(&card->tables.rung.eqs[i], 0,
							     memory_order_acquire)))
			vb_eq_consumed(card, NULL, i, rung & ~(uint32_t)RUNG);
	}
}

/* --- the object ------------------------------------------------------------------------------- */

int vb_uar_create(struct vb_dev *dev, struct vb_uar **out)
{
	struct vb_uar *uar = calloc(1, sizeof(*uar));
	int err;

	if (!uar)
		return -ENOMEM;
	uar->card = vb_dev_card(dev);
	uar->dev = dev;
	uar->page = vb_trap_map(PAGE, uar_on_store, uar);
	if (!uar->page && errno != ENOTSUP) {
		err = errno;
		free(uar);
		return -err;
	}
	*out = uar;
	return 0;
}

void vb_uar_destroy(struct vb_uar *uar)
{
	struct vb_card *card;

	if (!uar)
		return;
	card = uar->card;
	pthread_mutex_lock(&card->umem_lock);
	card->tables.uar[uar->number] = NULL;
	pthread_mutex_unlock(&card->umem_lock);
	vb_trap_unmap(uar->page);
	free(uar);
}

void vb_uar_set_number(struct vb_uar *uar, uint32_t number)
{
	struct vb_card *card = uar->card;

	pthread_mutex_lock(&card->umem_lock);
	uar->number = number;
	card->tables.uar[number] = uar;
	pthread_mutex_unlock(&card->umem_lock);
}

bool vb_uar_is(const struct vb_dev *dev, uint32_t number, const void *addr)
{
	struct vb_card *card = vb_dev_card(dev);
	const struct vb_uar *uar;
	bool is;

	pthread_mutex_lock(&card->umem_lock);
	uar = number <= VB_UAR_MAX ? card->tables.uar[number] : NULL;
	is = uar && uar->dev->adapter == dev->adapter &&
	     (uintptr_t)addr - (uintptr_t)uar->page < PAGE;
	pthread_mutex_unlock(&card->umem_lock);
	return is;
}

bool vb_uar_exists(const struct vb_dev *dev, uint32_t number)
{
	struct vb_card *card = vb_dev_card(dev);
	const struct vb_uar *uar;
	bool exists;

	pthread_mutex_lock(&card->umem_lock);
	uar = number && number <= VB_UAR_MAX ? card->tables.uar[number] : NULL;
	exists = uar && uar->dev == dev;
	pthread_mutex_unlock(&card->umem_lock);
	return exists;
}

struct vb_card *vb_uar_card(const struct vb_uar *uar)
{
	return uar->card;
}

void *vb_uar_page(struct vb_uar *uar)
{
	return uar ? uar->page : NULL;
}

void vb_card_enter(void)
{
	vb_card_inside++;
}

void vb_card_leave(void)
{
	vb_card_inside--;
}
