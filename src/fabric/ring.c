// SPDX-License-Identifier: MIT
/*
 * Owns the record format of the rings. See ring.h for the protocol.
 *
 *	record: header (32 bytes) | extension | payload | pad to 64
 *	extension: RETH 16 for WRITE and READ, AtomicETH 32, with masks 48, atomic response 8, GRH 40 for datagrams,
 *	origin 32 for raw frames
 *
 * Of a payload that is described (struct vb_source) the description is carried, behind the
 * extension.
 */
#include "fabric/ring.h"

#include <errno.h>
#include <string.h>

#include "host/fault.h"

struct record {
	_Atomic uint32_t commit; /* lines, and a mark */
	uint8_t op, flags, syndrome, transport;
	_Alignas(8) uint32_t dqpn; /* loaded with the next */
	uint32_t sqpn;
	_Alignas(8) uint32_t psn; /* loaded with the next */
	uint32_t imm;             /* or inv_rkey: no packet has both */
	uint32_t len_flags;       /* 24 bits of length; above them the high byte of the flags */
	uint32_t extra; /* the one of msn, qkey, acked_psn, hbl_entry that the packet has */
};

struct reth {
	uint64_t va;
	uint32_t rkey, dma_len;
};

struct atomic_eth {
	struct reth reth;
	uint64_t swap_add, compare;
};

struct masked_eth {
	struct atomic_eth atomic;
	uint64_t swap_mask, compare_mask;
};

_Static_assert(VB_PULL_MAX < 1 << 24 && VB_FRAME_MAX < 1 << 24, "a length has 24 bits");
_Static_assert(sizeof(struct record) == 32 && sizeof(struct atomic_eth) == 32, "record layout");

enum {
	PAD = 1u << 31,       /* only skips to the start of the ring */
	DESCRIBED = 1u << 30, /* a description of the payload, not the payload */
};

static uint32_t extension_size(uint8_t op, uint8_t transport)
{
	switch (op) {
	case VB_PKT_SEND:
		return vb_transport_type(transport) == IBV_QPT_UD ? 40
		       : transport == IBV_QPT_RAW_PACKET          ? sizeof(struct vb_frame_origin)
								  : 0;
	case VB_PKT_WRITE:
	case VB_PKT_READ:
		return sizeof(struct reth);
	case VB_PKT_COMPARE_SWAP:
	case VB_PKT_FETCH_ADD:
		return sizeof(struct atomic_eth);
	case VB_PKT_MASKED_COMPARE_SWAP:
	case VB_PKT_MASKED_FETCH_ADD:
		return sizeof(struct masked_eth);
	case VB_PKT_ATOMIC_RESPONSE:
		return sizeof(uint64_t);
	default:
		return 0;
	}
}

/*
 * A word of a record, for the consumer: loaded once. What the producer changes afterwards changes
 * nothing that was checked, and the compiler does not look there again.
 */
#define LOAD(field) \
	atomic_load_explicit((_Atomic __typeof__(field) *)&(field), memory_order_relaxed)

/* Which field a record's extra word is, by operation and transport. */
static uint32_t *extra_field(struct vb_pkt *pkt)
{
	if (pkt->transport == VB_TRANSPORT_HBL)
		return &pkt->hbl_entry;
	if (pkt->op >= VB_PKT_ACK)
		return &pkt->msn;
	return vb_transport_type(pkt->transport) == IBV_QPT_UD ? &pkt->qkey : &pkt->acked_psn;
}

static struct record *ring_record_at(struct vb_ring_shared *shared, uint64_t size,
				     uint64_t position)
{
	return (struct record *)&shared->data[position & (size - 1)];
}

static void prefetch_to_write(const void *p)
{
#if defined(__x86_64__)
	/*
	 * The builtin becomes a read prefetch unless the compiler is told of a newer CPU; older
	 * ones ignore this.
	 */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/*
 * See what was consumed, which is more than before and at most all. Anything else would be waited for
 * until the end of days; a wrong number that is possible hurts only this ring, for the offset is masked.
 */
static void see_head(struct vb_ring_tx *tx, memory_order order)
{
	uint64_t head = atomic_load_explicit(&tx->shared->head, order);

	tx->damaged = head - tx->head > tx->tail - tx->head || head % VB_RING_LINE;
	if (!tx->damaged)
		tx->head = head;
}

static bool ring_has_room(struct vb_ring_tx *tx, uint64_t bytes)
{
	/* One line more: the commit word behind the record must be free to clear. */
	if (tx->tail + bytes + VB_RING_LINE - tx->head <= tx->size)
		return true;
	see_head(tx, memory_order_acquire); /* pairs with vb_ring_next */
	return tx->tail + bytes + VB_RING_LINE - tx->head <= tx->size;
}

static void ring_publish(struct vb_ring_tx *tx, struct record *record, uint64_t bytes,
			 uint32_t mark)
{
	struct record *next = ring_record_at(tx->shared, tx->size, tx->tail + bytes);

	atomic_store_explicit(&next->commit, 0, memory_order_relaxed);
	/*
	 * Pairs with the acquire in vb_ring_peek: header, payload and the cleared word above come
	 * first.
	 */
	atomic_store_explicit(&record->commit, (uint32_t)(bytes / VB_RING_LINE) | mark,
			      memory_order_release);
	tx->tail += bytes;
	/*
	 * The next record will clear the word behind it before it is published. Own that line by
	 * then, or the publishing store waits in the store buffer for it.
	 */
	prefetch_to_write(ring_record_at(tx->shared, tx->size, tx->tail + VB_RING_LINE));
}

/*
 * Room for a record in one piece, padding to the start of the ring where needed; NULL where there
 * is none. A long frame and the padding before it may be more than the smallest ring. Then the
 * padding goes ahead, and there is room once it has been consumed.
 */
static struct record *ring_reserve(struct vb_ring_tx *tx, uint64_t bytes)
{
	uint64_t to_end = tx->size - (tx->tail & (tx->size - 1));
	bool ahead = bytes > to_end && to_end + bytes + VB_RING_LINE > tx->size;

	if (bytes > to_end) {
		if (!ring_has_room(tx, ahead ? to_end : to_end + bytes))
			return NULL;
		ring_publish(tx, ring_record_at(tx->shared, tx->size, tx->tail), to_end, PAD);
	}
	if ((bytes <= to_end || ahead) && !ring_has_room(tx, bytes))
		return NULL;
	return ring_record_at(tx->shared, tx->size, tx->tail);
}

static void write_extension(uint8_t *to, const struct vb_pkt *pkt)
{
	struct atomic_eth eth = {
		.reth = { pkt->flags & VB_PKT_PLACED ? pkt->generation : pkt->va, pkt->rkey,
			  pkt->dma_len },
		.swap_add = pkt->swap_add,
		.compare = pkt->compare,
	};

	if (pkt->op == VB_PKT_SEND && pkt->transport == IBV_QPT_RAW_PACKET) {
		memcpy(to, &pkt->origin, sizeof(pkt->origin));
	} else if (pkt->op == VB_PKT_SEND) {
		memcpy(to, &pkt->grh->sgid, 16);
		memcpy(to + 16, &pkt->grh->dgid, 16);
		to[32] = pkt->grh->traffic_class;
		to[33] = pkt->grh->hop_limit;
	} else if (pkt->op == VB_PKT_ATOMIC_RESPONSE) {
		memcpy(to, &pkt->original, 8);
	} else {
		uint32_t size = extension_size(pkt->op, pkt->transport);

		memcpy(to, &eth, size < sizeof(eth) ? size : sizeof(eth));
		if (size == sizeof(struct masked_eth)) {
			memcpy(to + sizeof(eth), &pkt->swap_mask, 8);
			memcpy(to + sizeof(eth) + 8, &pkt->compare_mask, 8);
		}
	}
}

static void read_grh(const void *from, struct vb_grh *grh)
{
	uint64_t word[5]; /* 40 bytes, of which 34 are used */

	for (unsigned int i = 0; i < 5; i++)
		word[i] = LOAD(((uint64_t *)from)[i]);
	memcpy(&grh->sgid, &word[0], 16);
	memcpy(&grh->dgid, &word[2], 16);
	memcpy(&grh->traffic_class, (char *)&word[4], 1);
	memcpy(&grh->hop_limit, (char *)&word[4] + 1, 1);
}

static void read_extension(void *from, struct vb_pkt *pkt, struct vb_grh *grh)
{
	struct atomic_eth *eth = from;

	if (pkt->op == VB_PKT_SEND && pkt->transport == IBV_QPT_RAW_PACKET) {
		struct vb_frame_origin *origin = from;

		pkt->origin = (struct vb_frame_origin){ .adapter = LOAD(origin->adapter),
							.cable = LOAD(origin->cable),
							.ways = LOAD(origin->ways),
							.ns = LOAD(origin->ns) };
	} else if (pkt->op == VB_PKT_SEND) {
		read_grh(from, grh);
		pkt->grh = grh;
	} else if (pkt->op == VB_PKT_ATOMIC_RESPONSE) {
		pkt->original = LOAD(*(uint64_t *)from);
	} else {
		pkt->va = LOAD(eth->reth.va);
		if (pkt->flags & VB_PKT_PLACED)
			pkt->generation = (uint32_t)pkt->va;
		pkt->rkey = LOAD(eth->reth.rkey);
		pkt->dma_len = LOAD(eth->reth.dma_len);
		if (pkt->op != VB_PKT_WRITE && pkt->op != VB_PKT_READ) {
			pkt->swap_add = LOAD(eth->swap_add);
			pkt->compare = LOAD(eth->compare);
		}
		if (vb_pkt_is_masked(pkt)) {
			struct masked_eth *masked = from;

			pkt->swap_mask = LOAD(masked->swap_mask);
			pkt->compare_mask = LOAD(masked->compare_mask);
		}
	}
}

/* The payload is a description of the true one; 0, or -EPROTO where there can be none. */
static int ring_read_source(struct vb_pkt *pkt)
{
	const struct vb_source *source = pkt->iov->iov_base;

	pkt->source.addr = LOAD(source->addr);
	pkt->source.lkey = LOAD(source->lkey);
	pkt->iov_cnt = 0;
	return pkt->source.lkey && vb_transport_type(pkt->transport) == IBV_QPT_RC &&
			       (pkt->op == VB_PKT_SEND || pkt->op == VB_PKT_WRITE)
		       ? 0
		       : -EPROTO;
}

/* What the packet takes in a ring. */
static uint64_t ring_record_size(const struct vb_pkt *pkt)
{
	uint32_t ext = extension_size(pkt->op, pkt->transport);
	uint32_t payload = pkt->source.lkey ? sizeof(pkt->source) : pkt->len;

	return (sizeof(struct record) + ext + payload + VB_RING_LINE - 1) &
	       ~(uint64_t)(VB_RING_LINE - 1);
}

bool vb_ring_has_bytes(struct vb_ring_tx *tx, uint64_t bytes)
{
	return ring_has_room(tx, bytes);
}

bool vb_ring_has_room(struct vb_ring_tx *tx, const struct vb_pkt *pkt)
{
	return ring_reserve(tx, ring_record_size(pkt));
}

int vb_ring_send(struct vb_ring_tx *tx, const struct vb_pkt *pkt)
{
	uint32_t ext = extension_size(pkt->op, pkt->transport);
	bool described = pkt->source.lkey;
	uint64_t bytes = ring_record_size(pkt);
	struct record *record = ring_reserve(tx, bytes);
	uint8_t *to;

	if (!record)
		return tx->damaged ? -EPROTO : -EAGAIN;
	record->op = pkt->op;
	record->flags = (uint8_t)pkt->flags;
	record->syndrome = pkt->syndrome;
	record->transport = pkt->transport;
	record->dqpn = pkt->dqpn;
	record->sqpn = pkt->sqpn;
	record->psn = pkt->psn;
	record->imm = pkt->flags & VB_PKT_INVALIDATE ? pkt->inv_rkey : pkt->imm;
	record->len_flags = pkt->len | (uint32_t)(pkt->flags >> 8) << 24;
	record->extra = *extra_field((struct vb_pkt *)pkt);
	to = (uint8_t *)(record + 1);
	if (ext) {
		write_extension(to, pkt);
		to += ext;
	}
	if (described)
		memcpy(to, &pkt->source, sizeof(pkt->source));
	for (uint32_t i = 0; i < pkt->iov_cnt; i++) {
		if (vb_fault_copy(to, pkt->iov[i].iov_base, pkt->iov[i].iov_len))
			return -EFAULT;
		to += pkt->iov[i].iov_len;
	}
	ring_publish(tx, record, bytes, described ? DESCRIBED : 0);
	return 0;
}

bool vb_ring_drained(struct vb_ring_tx *tx)
{
	see_head(tx, memory_order_acquire);
	return tx->damaged || tx->head == tx->tail;
}

bool vb_ring_wait_room(struct vb_ring_tx *tx)
{
	atomic_store_explicit(&tx->shared->waiting, 1,
			      memory_order_seq_cst); /* pairs with vb_ring_next */
	see_head(tx, memory_order_seq_cst);
	return !tx->damaged && tx->tail - tx->head > tx->size / 2;
}

/* Validate the payload length against the size of the record, in lines. */
static bool ring_is_sound(const struct vb_ring_rx *rx, const struct vb_pkt *pkt, uint32_t ext,
			  uint32_t lines, bool described)
{
	uint32_t most = described ? VB_PULL_MAX : vb_ring_max(rx->size, pkt->transport);
	uint32_t carried = described ? sizeof(pkt->source) : pkt->len;

	return pkt->len <= most &&
	       sizeof(struct record) + ext + carried <= (uint64_t)lines * VB_RING_LINE;
}

/* Fields that are neighbours in both structs are moved together. */
_Static_assert(offsetof(struct vb_pkt, sqpn) == offsetof(struct vb_pkt, dqpn) + 4 &&
		       offsetof(struct vb_pkt, imm) == offsetof(struct vb_pkt, psn) + 4,
	       "as in struct record");
_Static_assert(offsetof(struct record, transport) == offsetof(struct record, op) + 3,
	       "loaded as one word");

static inline void read_header(struct record *record, struct vb_pkt *pkt)
{
	uint8_t kind[4]; /* op, flags, syndrome, transport */
	uint32_t word = atomic_load_explicit((_Atomic uint32_t *)&record->op, memory_order_relaxed);
	uint64_t qpns =
		atomic_load_explicit((_Atomic uint64_t *)&record->dqpn, memory_order_relaxed);
	uint64_t psn_imm =
		atomic_load_explicit((_Atomic uint64_t *)&record->psn, memory_order_relaxed);
	uint32_t len_flags = LOAD(record->len_flags);

	memcpy(kind, &word, sizeof(kind));
	pkt->op = kind[0];
	pkt->flags = (uint16_t)(kind[1] | len_flags >> 24 << 8);
	pkt->syndrome = kind[2];
	pkt->transport = kind[3];
	memcpy(&pkt->dqpn, &qpns, sizeof(qpns));
	memcpy(&pkt->psn, &psn_imm, sizeof(psn_imm));
	pkt->inv_rkey = pkt->imm;
	pkt->len = len_flags & 0xffffff;
	*extra_field(pkt) = LOAD(record->extra);
}

int vb_ring_peek(struct vb_ring_rx *rx, struct vb_pkt *pkt, struct iovec *iov, struct vb_grh *grh)
{
	uint64_t head = atomic_load_explicit(&rx->head, memory_order_relaxed);
	uint64_t to_end = rx->size - (head & (rx->size - 1));
	struct record *record =
		(struct record *)atomic_load_explicit(&rx->next, memory_order_relaxed);
	uint32_t commit, ext;
	bool described;

	commit = atomic_load_explicit(&record->commit,
				      memory_order_acquire); /* pairs with publish */
	if (!commit)
		return 0;
	if (commit & PAD) {
		if (to_end == rx->size)
			return -EPROTO; /* padding at the start would go round for ever */
		vb_ring_move(rx, head + to_end);
		return vb_ring_peek(rx, pkt, iov, grh);
	}
	described = commit & DESCRIBED;
	commit &= ~(uint32_t)DESCRIBED;
	if ((uint64_t)commit * VB_RING_LINE > to_end)
		return -EPROTO;
	read_header(record, pkt);
	pkt->grh = NULL;
	ext = extension_size(pkt->op, pkt->transport);
	/* The header is now ours; a peer that goes on changing it cannot move what was checked. */
	if (pkt->op >= VB_PKT_OPS || !ring_is_sound(rx, pkt, ext, commit, described))
		return -EPROTO;
	if (ext)
		read_extension(record + 1, pkt, grh);
	*iov = (struct iovec){ (uint8_t *)(record + 1) + ext, pkt->len };
	pkt->iov = iov;
	pkt->iov_cnt = 1;
	pkt->source.lkey = 0;
	if (described && ring_read_source(pkt))
		return -EPROTO;
	/* What vb_ring_next() will skip must be what was checked, so it is kept on our side. */
	rx->record_bytes = commit * VB_RING_LINE;
	/* The next record's line is on its way from the other core while this one is worked on. */
	__builtin_prefetch(ring_record_at(rx->shared, rx->size, head + rx->record_bytes));
	return 1;
}

/* Every quarter of the ring: whether the producer waits for room. */
static bool ring_look(struct vb_ring_rx *rx, uint64_t head)
{
	if (head - rx->looked < rx->size / 4)
		return false;
	rx->looked = head;
	atomic_store_explicit(&rx->shared->head, head,
			      memory_order_seq_cst); /* pairs with vb_ring_wait_room */
	return atomic_load_explicit(&rx->shared->waiting, memory_order_seq_cst) &&
	       atomic_exchange_explicit(&rx->shared->waiting, 0, memory_order_seq_cst);
}

bool vb_ring_next(struct vb_ring_rx *rx)
{
	uint64_t head = atomic_load_explicit(&rx->head, memory_order_relaxed) + rx->record_bytes;

	vb_ring_move(rx, head);
	return ring_look(rx, head);
}

bool vb_ring_release(struct vb_ring_rx *rx)
{
	uint64_t head = atomic_load_explicit(&rx->head, memory_order_relaxed);

	atomic_store_explicit(&rx->shared->head, head,
			      memory_order_release); /* pairs with has_room */
	/* Padding that went ahead of its record may have been the last that was there. */
	return ring_look(rx, head);
}

void vb_ring_close(struct vb_ring_rx *rx)
{
	static _Atomic uint32_t nothing;

	atomic_store_explicit(&rx->next, &nothing, memory_order_relaxed);
}
