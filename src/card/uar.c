// SPDX-License-Identifier: MIT
/*
 * Owns doorbell pages: stores of the program become rings.
 *
 *	mlx4
 *	0x14   big endian   QP number << 8                                    send queue
 *	0x20   big endian   sequence << 28 | command << 24 | CQ number, then
 *	                    consumer index                                    arm a completion queue
 *	mlx5
 *	0x800, 0x900        the first 8 bytes of a WQE; QP number << 8 | size in the second word
 *	                    (the doorbell record says how far)                send queue
 *	0x20                sequence << 28 | command << 24 | consumer index, then
 *	                    CQ number                                         arm a completion queue
 *	0x40, 0x48          EQ number << 24 | consumer index                  event queue, read so far
 *
 * Whatever else is stored there means nothing, as on a card without BlueFlame registers.
 *
 * A store is seen in the thread that makes it (base/trap.h) and executed there. The exception: a program's handler of an
 * asynchronous signal may ring while its thread is inside of the card and holds locks. Such a ring is only noted, in a
 * bit per queue, and the background thread executes it. Nothing is lost: for a send queue the owner bits say what is
 * posted, for a CQ the arm record says what was asked.
 */
#include "card/internal.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rcu.h"
#include "base/trap.h"

enum {
	SEND_DOORBELL = 0x14,
	CQ_DOORBELL = 0x20,
	MLX5_EQ_DOORBELL = 0x40,
	MLX5_EQ_DOORBELL_NO_ARM = 0x48,
	MLX5_SEND_DOORBELL = 0x800,
	MLX5_BF_SIZE = 0x100,
	CI_MASK = 0xffffff,
	ARM_SOLICITED = 1,
	ARM_ANY = 2
};
enum { MAX_NUMBERS = 1 << 16, WORD = 64 };

struct vb_uar {
	struct vb_dev *dev;
	void *page; /* NULL: this machine cannot trap stores */
};

/* Rings that wait for the background thread: a bit per index of a QP and per number of a CQ. */
static struct deferred {
	_Atomic uint64_t qps[MAX_NUMBERS / WORD], cqs[MAX_NUMBERS / WORD];
	_Atomic bool any;
} deferred;

_Thread_local int vb_card_inside __attribute__((tls_model("initial-exec")));

bool vb_card_is_inside(void)
{
	return vb_card_inside || rcu_read_ongoing();
}

static void defer(_Atomic uint64_t *bits, uint32_t number)
{
	atomic_fetch_or(&bits[number / WORD], 1ull << number % WORD);
	atomic_store(&deferred.any, true);
	vb_work_look();
}

/* --- rings --------------------------------------------------------------------------------------------------------- */

/* dev NULL: of any. Inside a read section. */
static void ring_qp(const struct vb_dev *dev, uint32_t qpn)
{
	struct vb_qp *qp = vb_qp_find(qpn);

	if (!qp || (dev && qp->dev != dev))
		return;
	if (qp->codec->owned)
		vb_qp_ring_owned(qp);
	else
		vb_qp_ring_sq(qp, be32toh(atomic_load_explicit((_Atomic uint32_t *)&qp->init.dbr[1],
							       memory_order_acquire)));
}

static void arm_cq(const struct vb_dev *dev, uint32_t word, uint32_t ci)
{
	struct vb_cq *cq = vb_cq_find(word & CI_MASK);
	uint32_t command = (word >> 24) & 3;

	if (!cq || (dev && cq->dev != dev))
		return;
	if (cq->dev->adapter->config->format == VB_FORMAT_MLX5)
		vb_cq_arm(cq, command & 1); /* the record has the index */
	else if (command == ARM_SOLICITED || command == ARM_ANY)
		vb_cq_arm_sn(cq, word >> 28, command == ARM_SOLICITED, ci);
}

static void on_send(struct vb_uar *uar, uint32_t word)
{
	uint32_t qpn = word >> 8;

	if (vb_card_is_inside()) {
		defer(deferred.qps, qpn & VB_QPN_INDEX_MASK);
		return;
	}
	vb_read_lock();
	ring_qp(uar->dev, qpn);
	vb_read_unlock();
}

static void on_cq(struct vb_uar *uar, uint32_t word, uint32_t ci)
{
	if (vb_card_is_inside()) {
		defer(deferred.cqs, word & (MAX_NUMBERS - 1));
		return;
	}
	vb_read_lock();
	arm_cq(uar->dev, word, ci);
	vb_read_unlock();
}

/* Whether a store covers a big-endian word of the page, and which value it puts there. */
static bool word_at(size_t at, size_t offset, const uint8_t *data, size_t size, uint32_t *value)
{
	uint32_t word;

	if (offset > at || offset + size < at + sizeof(word))
		return false;
	memcpy(&word, data + (at - offset), sizeof(word));
	*value = be32toh(word);
	return true;
}

static void on_mlx5_store(struct vb_uar *uar, size_t offset, const void *data, size_t size)
{
	uint32_t word, cqn;

	/* The two halves of the register are for WQEs in turn; a WQE of 64 bytes may be stored there as a whole. */
	if (word_at(MLX5_SEND_DOORBELL + 4, offset, data, size, &word) ||
	    word_at(MLX5_SEND_DOORBELL + MLX5_BF_SIZE + 4, offset, data, size, &word))
		on_send(uar, word);
	if (word_at(CQ_DOORBELL, offset, data, size, &word) &&
	    word_at(CQ_DOORBELL + 4, offset, data, size, &cqn))
		on_cq(uar, (word & ~(uint32_t)CI_MASK) | (cqn & CI_MASK), word & CI_MASK);
	if (!vb_card_is_inside() && (word_at(MLX5_EQ_DOORBELL, offset, data, size, &word) ||
				     word_at(MLX5_EQ_DOORBELL_NO_ARM, offset, data, size, &word)))
		vb_eq_consumed(uar->dev, word >> 24, word & CI_MASK);
}

static void on_store(void *arg, size_t offset, const void *data, size_t size)
{
	struct vb_uar *uar = arg;
	uint32_t word, ci;

	if (vb_dev_stale(uar->dev))
		return;
	if (uar->dev->adapter->config->format == VB_FORMAT_MLX5) {
		on_mlx5_store(uar, offset, data, size);
		return;
	}
	if (word_at(SEND_DOORBELL, offset, data, size, &word))
		on_send(uar, word);
	if (!word_at(CQ_DOORBELL, offset, data, size, &word))
		return;
	/* A program of 32 bits rings in two halves: then the record has the index. */
	if (!word_at(CQ_DOORBELL + 4, offset, data, size, &ci))
		ci = VB_CQ_CI_FROM_RECORD;
	on_cq(uar, word, ci);
}

/* --- deferred ones, with no lock held and inside a read section ------------------------------------------------------ */

static void arm_from_record(uint32_t number)
{
	struct vb_cq *cq = vb_cq_find(number);
	uint32_t record;

	if (!cq)
		return;
	record = be32toh(
		atomic_load_explicit((_Atomic uint32_t *)&cq->attr.dbr[1], memory_order_acquire));
	arm_cq(NULL, (record & ~(uint32_t)CI_MASK) | number, record & CI_MASK);
}

void vb_uar_run_deferred(void)
{
	uint32_t slot = vb_fabric_slot() << VB_QPN_INDEX_BITS;

	/* Pairs with defer(): the bits were set before. */
	if (!atomic_exchange(&deferred.any, false))
		return;
	for (uint32_t i = 0; i < MAX_NUMBERS / WORD; i++) {
		uint64_t qps = atomic_exchange(&deferred.qps[i], 0);
		uint64_t cqs = atomic_exchange(&deferred.cqs[i], 0);

		for (; qps; qps &= qps - 1)
			ring_qp(NULL, slot | (i * WORD + (uint32_t)__builtin_ctzll(qps)));
		for (; cqs; cqs &= cqs - 1)
			arm_from_record(i * WORD + (uint32_t)__builtin_ctzll(cqs));
	}
}

/* --- the object ------------------------------------------------------------------------------------------------------ */

int vb_uar_create(struct vb_dev *dev, struct vb_uar **out)
{
	struct vb_uar *uar = calloc(1, sizeof(*uar));
	int err;

	if (!uar)
		return -ENOMEM;
	uar->dev = dev;
	uar->page = vb_trap_map(4096, on_store, uar);
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
	if (!uar)
		return;
	vb_trap_unmap(uar->page);
	free(uar);
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
