// SPDX-License-Identifier: MIT
/*
 * The ring between two processes: what goes in comes out, and nonsense in it is refused whatever it is, also while it
 * changes. The producer's side of a record is written here by hand where it must be wrong.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "../programs/common.h"
#include "host/fault.h"
#include "base/tsan.h"
#include "fabric/ring.h"

enum { SIZE = VB_RING_MIN, LINE = VB_RING_LINE, MTU = SIZE / 4 };

/* A record as it lies in the ring. */
struct header {
	_Atomic uint32_t commit;
	uint8_t op, flags, syndrome, transport;
	uint32_t dqpn, sqpn, psn, imm, len, extra; /* the top byte of len is flags */
};

enum { PAD = 1u << 31, DESCRIBED = 1u << 30 };

struct pair {
	struct vb_ring_tx tx;
	struct vb_ring_rx rx;
};

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	struct vb_ring_shared *shared = aligned_alloc(LINE, sizeof(struct vb_ring_shared) + SIZE);

	if (!p || !shared || vb_fault_arm())
		return -1;
	memset(shared, 0, sizeof(*shared) + SIZE);
	p->tx = (struct vb_ring_tx){ .shared = shared, .size = SIZE };
	vb_ring_attach(&p->rx, shared, SIZE);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	free(p->tx.shared);
	free(p);
	return 0;
}

static struct header *header_at(struct pair *p, uint64_t position)
{
	return (struct header *)&p->rx.shared->data[position & (SIZE - 1)];
}

/* ---- what goes in comes out ---- */

static struct vb_pkt make_packet(uint8_t op, uint8_t transport, uint32_t seed)
{
	return (struct vb_pkt){
		.op = op,
		/* A flag of the second byte has no name yet, and arrives all the same. */
		.flags = (uint16_t)(VB_PKT_ONLY | (seed & VB_PKT_IMM) | (seed & 0xff00)),
		.syndrome = (uint8_t)seed,
		.transport = transport,
		.dqpn = seed * 3,
		.sqpn = seed * 5,
		.psn = seed & 0xffffff,
		.imm = seed * 7,
		.msn = seed * 11,
		.qkey = seed * 19,
		.acked_psn = seed * 23,
		.hbl_entry = seed * 29,
		.va = 0x123456789abcull * seed,
		.rkey = seed * 13,
		.dma_len = seed * 17,
		.swap_add = 0xfedcba987ull * seed,
		.compare = 0x1111111ull * seed,
		.swap_mask = 0x3333333333ull * seed,
		.compare_mask = 0x9999999999ull * seed,
		.origin = { .adapter = 0x77777777777ull * seed,
			    .cable = 0x55555555555ull * seed,
			    .ways = 9 * seed },
	};
}

static bool has_reth(uint8_t op)
{
	return op == VB_PKT_WRITE || op == VB_PKT_READ;
}

static bool has_atomic(uint8_t op)
{
	return op >= VB_PKT_COMPARE_SWAP && op <= VB_PKT_MASKED_FETCH_ADD;
}

static void assert_same(const struct vb_pkt *in, const struct vb_pkt *out, uint32_t seed)
{
	assert_int_equal(out->op, in->op);
	assert_int_equal(out->flags, in->flags);
	assert_int_equal(out->syndrome, in->syndrome);
	assert_int_equal(out->transport, in->transport);
	assert_int_equal(out->dqpn, in->dqpn);
	assert_int_equal(out->sqpn, in->sqpn);
	assert_int_equal(out->psn, in->psn);
	assert_int_equal(out->imm, in->imm);
	if (in->transport == VB_TRANSPORT_HBL)
		assert_int_equal(out->hbl_entry, in->hbl_entry);
	else if (in->op >= VB_PKT_ACK)
		assert_int_equal(out->msn, in->msn);
	else if (vb_transport_type(in->transport) == IBV_QPT_UD)
		assert_int_equal(out->qkey, in->qkey);
	else
		assert_int_equal(out->acked_psn, in->acked_psn);
	assert_int_equal(out->len, in->len);
	if (has_reth(in->op) || has_atomic(in->op)) {
		assert_int_equal(out->va, in->va);
		assert_int_equal(out->rkey, in->rkey);
		assert_int_equal(out->dma_len, in->dma_len);
	}
	if (has_atomic(in->op))
		assert_int_equal(out->compare, in->compare);
	if (vb_pkt_is_masked(in)) {
		assert_int_equal(out->swap_mask, in->swap_mask);
		assert_int_equal(out->compare_mask, in->compare_mask);
	}
	if (has_atomic(in->op))
		assert_int_equal(out->swap_add, in->swap_add);
	if (in->op == VB_PKT_ATOMIC_RESPONSE)
		assert_int_equal(out->original, in->original);
	if (in->op == VB_PKT_SEND && in->transport == IBV_QPT_RAW_PACKET)
		assert_memory_equal(&out->origin, &in->origin, sizeof(in->origin));
	assert_int_equal(out->grh != NULL, in->grh != NULL);
	if (in->grh) {
		assert_memory_equal(&out->grh->sgid, &in->grh->sgid, 16);
		assert_memory_equal(&out->grh->dgid, &in->grh->dgid, 16);
		assert_int_equal(out->grh->traffic_class, in->grh->traffic_class);
		assert_int_equal(out->grh->hop_limit, in->grh->hop_limit);
	}
	if (in->source.lkey) {
		assert_int_equal(out->iov_cnt, 0);
		assert_int_equal(out->source.addr, in->source.addr);
		assert_int_equal(out->source.lkey, in->source.lkey);
		return;
	}
	assert_int_equal(out->source.lkey, 0);
	assert_int_equal(out->iov_cnt, 1);
	assert_int_equal(out->iov->iov_len, in->len);
	assert_int_equal(pattern_check(out->iov->iov_base, in->len, seed), in->len);
}

/* Through an empty ring, in pieces. */
static void pass(struct pair *p, struct vb_pkt *in, uint32_t len, uint32_t seed)
{
	static uint8_t payload[VB_FRAME_MAX];
	struct iovec pieces[3], iov;
	struct vb_grh grh = { .traffic_class = 5, .hop_limit = (uint8_t)seed }, got;
	struct vb_pkt out;
	bool described = in->source.lkey;

	memset(&grh.sgid, (int)seed, 16);
	memset(&grh.dgid, (int)seed + 1, 16);
	pattern_fill(payload, len <= sizeof(payload) ? len : 0, seed);
	pieces[0] = (struct iovec){ payload, len / 3 };
	pieces[1] = (struct iovec){ payload + len / 3, len / 3 };
	pieces[2] = (struct iovec){ payload + len / 3 * 2, len - len / 3 * 2 };
	in->iov = pieces;
	in->iov_cnt = described ? 0 : 3;
	in->len = len;
	in->grh = in->op == VB_PKT_SEND && vb_transport_type(in->transport) == IBV_QPT_UD ? &grh
											  : NULL;
	assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &got), 0);
	assert_false(vb_ring_pending(&p->rx));
	assert_int_equal(vb_ring_send(&p->tx, in), 0);
	assert_true(vb_ring_pending(&p->rx));
	assert_false(vb_ring_drained(&p->tx));
	assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &got), 1);
	assert_same(in, &out, seed);
	/* a peek takes nothing */
	assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &got), 1);
	assert_same(in, &out, seed);
	vb_ring_next(&p->rx);
	vb_ring_release(&p->rx);
	assert_true(vb_ring_drained(&p->tx));
}

static void every_kind(void **state)
{
	static const uint8_t transports[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
					      IBV_QPT_UD | VB_TRANSPORT_V1, IBV_QPT_RAW_PACKET };
	static const uint32_t lengths[] = { 0, 1, 7, 8, 23, 24, 25, 31, 32, 33, 64, 1000, MTU };
	uint32_t seed = 1;

	/* Many times the size of the ring: it wraps at all kinds of places. */
	for (int round = 0; round < 10; round++)
		for (uint8_t op = VB_PKT_SEND; op < VB_PKT_OPS; op++)
			for (unsigned int t = 0; t < sizeof(transports); t++)
				for (unsigned int l = 0; l < sizeof(lengths) / sizeof(lengths[0]);
				     l++, seed++) {
					struct vb_pkt in = make_packet(op, transports[t], seed);

					pass(*state, &in, lengths[l], seed);
				}
}

/*
 * The longest frames through the smallest ring. Where one fits on neither side of the ring's end it is lost, and the
 * next one is not.
 */
static void long_frame_at_any_place(void **state)
{
	struct pair *p = *state;

	for (uint32_t seed = 1; seed < 1000; seed++) {
		struct vb_pkt in = make_packet(VB_PKT_SEND, IBV_QPT_RC, seed), out;
		struct iovec iov;
		struct vb_grh grh;
		int ret;

		for (uint32_t i = 0; i < seed % 5; i++)
			pass(p, &in, seed % 64 * LINE, seed);
		in = make_packet(VB_PKT_SEND, IBV_QPT_RAW_PACKET, seed);
		in.len = VB_FRAME_MAX;
		ret = vb_ring_send(&p->tx, &in);
		if (ret) { /* that one is lost, but the way is free for the next */
			assert_int_equal(ret, -EAGAIN);
			assert_true(vb_ring_pending(&p->rx));
			assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &grh), 0);
			vb_ring_release(&p->rx);
			assert_int_equal(vb_ring_send(&p->tx, &in), 0);
		}
		assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &grh), 1);
		assert_int_equal(out.len, VB_FRAME_MAX);
		vb_ring_next(&p->rx);
		assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &grh), 0);
		vb_ring_release(&p->rx);
	}
}

static void described_payloads(void **state)
{
	for (uint32_t seed = 1; seed < 1000; seed++) {
		struct vb_pkt in =
			make_packet(seed & 1 ? VB_PKT_SEND : VB_PKT_WRITE, IBV_QPT_RC, seed);

		in.source = (struct vb_source){ .addr = 0x1000ull * seed, .lkey = seed };
		pass(*state, &in, seed % 3 ? seed : VB_PULL_MAX, seed);
	}
}

/* Until it is full; then what was sent is there, in order, and room comes back. */
static void full(void **state)
{
	struct pair *p = *state;
	struct vb_pkt in = make_packet(VB_PKT_SEND, IBV_QPT_RC, 1), out;
	uint32_t sent = 0, taken = 0;
	struct vb_grh grh;
	struct iovec iov;
	bool wake = false;
	int ret;

	for (;; sent++) {
		in.psn = sent;
		ret = vb_ring_send(&p->tx, &in);
		if (ret)
			break;
	}
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(sent, SIZE / LINE - 1);
	assert_true(vb_ring_wait_room(&p->tx));
	while ((ret = vb_ring_peek(&p->rx, &out, &iov, &grh)) == 1) {
		assert_int_equal(out.psn, taken++);
		wake |= vb_ring_next(&p->rx);
	}
	assert_int_equal(ret, 0);
	assert_int_equal(taken, sent);
	assert_true(wake);
	vb_ring_release(&p->rx);
	assert_false(vb_ring_wait_room(&p->tx));
	assert_int_equal(vb_ring_send(&p->tx, &in), 0);
}

/* A payload that is not there: nothing was sent, and the next packet is the next. */
static void unreadable(void **state)
{
	struct pair *p = *state;
	void *hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct vb_pkt in = make_packet(VB_PKT_SEND, IBV_QPT_RC, 1), out;
	struct iovec pieces = { (char *)hole + 4000, 4000 }, iov;
	struct vb_grh grh;

#ifdef VB_TSAN
	print_message("ThreadSanitizer does not follow a jump out of a signal handler\n");
	skip();
#endif
	assert_true(hole != MAP_FAILED);
	assert_int_equal(munmap((char *)hole + 4096, 4096), 0);
	in.iov = &pieces;
	in.iov_cnt = 1;
	in.len = 4000;
	assert_int_equal(vb_ring_send(&p->tx, &in), -EFAULT);
	assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &grh), 0);
	pieces.iov_base = hole;
	pieces.iov_len = in.len = 96;
	in.psn = 77;
	assert_int_equal(vb_ring_send(&p->tx, &in), 0);
	assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &grh), 1);
	assert_int_equal(out.psn, 77);
	munmap(hole, 4096);
}

/* ---- nonsense ---- */

static const struct {
	const char *what;
	uint64_t head;   /* of the consumer */
	uint32_t commit; /* of the record there */
	uint8_t op, transport;
	uint32_t len;
	struct vb_source source;
	int result;
} records[] = {
	{ "one line", 0, 1, VB_PKT_SEND, IBV_QPT_RC, 32, { 0, 0 }, 1 },
	{ "no lines, but a mark", 0, DESCRIBED, VB_PKT_SEND, IBV_QPT_RC, 0, { 1, 1 }, -EPROTO },
	{ "more than the ring", 0, SIZE / LINE + 1, VB_PKT_SEND, IBV_QPT_RC, 0, { 0, 0 }, -EPROTO },
	{ "all of the ring", 0, SIZE / LINE, VB_PKT_SEND, IBV_QPT_RC, 0, { 0, 0 }, 1 },
	{ "all bits but the marks",
	  0,
	  ~(PAD | DESCRIBED),
	  VB_PKT_SEND,
	  IBV_QPT_RC,
	  0,
	  { 0, 0 },
	  -EPROTO },
	{ "beyond the end", SIZE - LINE, 2, VB_PKT_SEND, IBV_QPT_RC, 0, { 0, 0 }, -EPROTO },
	{ "up to the end", SIZE - LINE, 1, VB_PKT_SEND, IBV_QPT_RC, 32, { 0, 0 }, 1 },
	{ "padding at the start", 0, PAD, VB_PKT_SEND, IBV_QPT_RC, 0, { 0, 0 }, -EPROTO },
	{ "padding, all bits", SIZE, UINT32_MAX, VB_PKT_SEND, IBV_QPT_RC, 0, { 0, 0 }, -EPROTO },
	{ "padding, then nothing", LINE, PAD | 1, VB_PKT_SEND, IBV_QPT_RC, 0, { 0, 0 }, 0 },
	{ "no operation", 0, 1, VB_PKT_OPS, IBV_QPT_RC, 0, { 0, 0 }, -EPROTO },
	{ "no operation, 255", 0, 1, 255, IBV_QPT_RC, 0, { 0, 0 }, -EPROTO },
	{ "one byte too many", 0, 1, VB_PKT_SEND, IBV_QPT_RC, 33, { 0, 0 }, -EPROTO },
	{ "the largest length", 0, 1, VB_PKT_SEND, IBV_QPT_RC, UINT32_MAX, { 0, 0 }, -EPROTO },
	{ "more than the MTU", 0, 200, VB_PKT_SEND, IBV_QPT_RC, MTU + 1, { 0, 0 }, -EPROTO },
	{ "the MTU", 0, 65, VB_PKT_SEND, IBV_QPT_RC, MTU, { 0, 0 }, 1 },
	{ "a frame", 0, 145, VB_PKT_SEND, IBV_QPT_RAW_PACKET, VB_FRAME_MAX, { 0, 0 }, 1 },
	{ "a frame, too long",
	  0,
	  200,
	  VB_PKT_SEND,
	  IBV_QPT_RAW_PACKET,
	  VB_FRAME_MAX + 1,
	  { 0, 0 },
	  -EPROTO },
	{ "no room for a RETH", 0, 1, VB_PKT_WRITE, IBV_QPT_RC, 17, { 0, 0 }, -EPROTO },
	{ "room for a RETH", 0, 1, VB_PKT_WRITE, IBV_QPT_RC, 16, { 0, 0 }, 1 },
	{ "room for an AtomicETH", 0, 1, VB_PKT_FETCH_ADD, IBV_QPT_RC, 0, { 0, 0 }, 1 },
	{ "no room for an AtomicETH", 0, 1, VB_PKT_FETCH_ADD, IBV_QPT_RC, 1, { 0, 0 }, -EPROTO },
	{ "no room for its masks",
	  0,
	  1,
	  VB_PKT_MASKED_FETCH_ADD,
	  IBV_QPT_RC,
	  0,
	  { 0, 0 },
	  -EPROTO },
	{ "room for its masks", 0, 2, VB_PKT_MASKED_FETCH_ADD, IBV_QPT_RC, 48, { 0, 0 }, 1 },
	{ "no room for a GRH", 0, 1, VB_PKT_SEND, IBV_QPT_UD, 0, { 0, 0 }, -EPROTO },
	{ "no room for a GRH, v1",
	  0,
	  1,
	  VB_PKT_SEND,
	  IBV_QPT_UD | VB_TRANSPORT_V1,
	  0,
	  { 0, 0 },
	  -EPROTO },
	{ "room for a GRH", 0, 2, VB_PKT_SEND, IBV_QPT_UD, 56, { 0, 0 }, 1 },
	{ "described", 0, DESCRIBED | 1, VB_PKT_SEND, IBV_QPT_RC, VB_PULL_MAX, { 9, 1 }, 1 },
	{ "described, too long",
	  0,
	  DESCRIBED | 1,
	  VB_PKT_SEND,
	  IBV_QPT_RC,
	  VB_PULL_MAX + 1,
	  { 9, 1 },
	  -EPROTO },
	{ "described, no key", 0, DESCRIBED | 1, VB_PKT_SEND, IBV_QPT_RC, 5, { 9, 0 }, -EPROTO },
	{ "described, not RC", 0, DESCRIBED | 1, VB_PKT_SEND, IBV_QPT_UC, 5, { 9, 1 }, -EPROTO },
	{ "described READ", 0, DESCRIBED | 1, VB_PKT_READ, IBV_QPT_RC, 5, { 9, 1 }, -EPROTO },
	{ "described WRITE, no room",
	  0,
	  DESCRIBED | 1,
	  VB_PKT_FETCH_ADD,
	  IBV_QPT_RC,
	  5,
	  { 9, 1 },
	  -EPROTO },
};

static void write_record(struct pair *p, unsigned int i)
{
	struct header *h = header_at(p, records[i].head);
	uint32_t ext = records[i].op == VB_PKT_WRITE || records[i].op == VB_PKT_READ ? 16 : 0;

	memset(p->rx.shared->data, 0, SIZE);
	h->op = records[i].op;
	h->transport = records[i].transport;
	h->len = records[i].len;
	memcpy((char *)(h + 1) + ext, &records[i].source, sizeof(records[i].source));
	atomic_store_explicit(&h->commit, records[i].commit, memory_order_release);
	vb_ring_move(&p->rx, records[i].head);
}

static bool lies_in_ring(const struct pair *p, const struct iovec *iov)
{
	const uint8_t *first = p->rx.shared->data, *at = iov->iov_base;

	return at >= first && at <= first + SIZE && iov->iov_len <= (size_t)(first + SIZE - at);
}

static void malformed(void **state)
{
	struct pair *p = *state;

	for (unsigned int i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		struct vb_grh grh;
		struct vb_pkt out;
		struct iovec iov;
		int ret;

		write_record(p, i);
		ret = vb_ring_peek(&p->rx, &out, &iov, &grh);
		if (ret != records[i].result)
			print_error("%s: %d\n", records[i].what, ret);
		assert_int_equal(ret, records[i].result);
		if (ret == 1 && out.iov_cnt)
			assert_true(lies_in_ring(p, &iov));
	}
}

/* What was checked is what is skipped, whatever the record says by then. */
static void changed_after_peek(void **state)
{
	struct pair *p = *state;
	struct vb_grh grh;
	struct vb_pkt out;
	struct iovec iov;

	write_record(p, 0);
	header_at(p, LINE)->op = VB_PKT_READ;
	header_at(p, LINE)->commit = 1;
	assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &grh), 1);
	header_at(p, 0)->commit = SIZE / LINE + 5;
	header_at(p, 0)->len = UINT32_MAX;
	assert_int_equal(out.len, 32);
	vb_ring_next(&p->rx);
	assert_int_equal(vb_ring_peek(&p->rx, &out, &iov, &grh), 1);
	assert_int_equal(out.op, VB_PKT_READ);
}

static _Atomic bool done;

static void *scribble(void *arg)
{
	struct pair *p = arg;
	_Atomic uint64_t *word = (_Atomic uint64_t *)p->rx.shared->data;
	static const uint32_t commits[] = { 1, 2, 65, DESCRIBED | 1, PAD, 3, 200, 300 };
	uint64_t seed = 5;

	while (!atomic_load_explicit(&done, memory_order_relaxed)) {
		uint32_t r = next_random(&seed);

		/* the first word: commit, operation, flags, syndrome, transport; then the others */
		atomic_store_explicit(&word[0],
				      commits[r % 8] | (uint64_t)(r >> 8 & 15) << 32 |
					      (uint64_t)(r >> 12 & 15) << 56,
				      memory_order_relaxed);
		atomic_store_explicit(&word[3], next_random(&seed) % 20000, memory_order_relaxed);
		atomic_store_explicit(&word[4], next_random(&seed), memory_order_relaxed);
		atomic_store_explicit(&word[5], next_random(&seed) & 1, memory_order_relaxed);
	}
	return NULL;
}

/* A peer that changes the record all the time: each peek sees one record, and that one is sound. */
static void changed_meanwhile(void **state)
{
	struct pair *p = *state;
	unsigned int sound = 0, refused = 0;
	pthread_t thread;

	atomic_store(&done, false);
	assert_int_equal(pthread_create(&thread, NULL, scribble, p), 0);
	for (int i = 0; i < 300000 || !sound || !refused; i++) {
		struct vb_grh grh;
		struct vb_pkt out;
		struct iovec iov;
		int ret;

		if (i % 1024 == 0)
			sched_yield(); /* there may be one core only */
		vb_ring_move(&p->rx, 0);
		ret = vb_ring_peek(&p->rx, &out, &iov, &grh);
		refused += ret < 0;
		if (ret != 1)
			continue;
		sound++;
		assert_true(out.op < VB_PKT_OPS);
		if (out.iov_cnt) {
			assert_true(out.len <= VB_FRAME_MAX);
			assert_int_equal(iov.iov_len, out.len);
			assert_true(lies_in_ring(p, &iov));
		} else {
			assert_true(out.len <= VB_PULL_MAX && out.source.lkey);
		}
		assert_true(p->rx.record_bytes && p->rx.record_bytes <= SIZE);
	}
	atomic_store(&done, true);
	pthread_join(thread, NULL);
}

/* A consumer that says it has taken what was never sent hurts only its own ring. */
static void hostile_consumer(void **state)
{
	static const uint64_t heads[] = { UINT64_MAX, 1ull << 63, 1, LINE, SIZE, 0 };
	struct pair *p = *state;
	struct vb_pkt in = make_packet(VB_PKT_SEND, IBV_QPT_RC, 1);
	uint64_t seed = 3;

	for (int i = 0; i < 20000; i++) {
		atomic_store(&p->tx.shared->head,
			     heads[next_random(&seed) % 6] + next_random(&seed) % 3 * p->tx.tail);
		vb_ring_send(&p->tx, &in);
		vb_ring_wait_room(&p->tx);
		vb_ring_drained(&p->tx);
	}
}

/* ---- two threads, as two processes ---- */

enum { PACKETS = 30000 };

static void *produce(void *arg)
{
	struct pair *p = arg;
	static uint8_t payload[MTU];
	uint64_t seed = 9;

	for (uint32_t i = 0; i < PACKETS; i++) {
		struct vb_pkt in = make_packet(VB_PKT_WRITE, IBV_QPT_RC, i);
		struct iovec iov = { payload, next_random(&seed) % 600 };

		in.iov = &iov;
		in.iov_cnt = 1;
		in.len = (uint32_t)iov.iov_len;
		pattern_fill(payload, in.len, i);
		while (vb_ring_send(&p->tx, &in) == -EAGAIN)
			sched_yield();
	}
	return NULL;
}

static void in_order(void **state)
{
	struct pair *p = *state;
	pthread_t thread;
	uint64_t seed = 9;

	assert_int_equal(pthread_create(&thread, NULL, produce, p), 0);
	for (uint32_t i = 0; i < PACKETS;) {
		struct vb_grh grh;
		struct vb_pkt out;
		struct iovec iov;
		int ret = vb_ring_peek(&p->rx, &out, &iov, &grh);

		assert_true(ret >= 0);
		if (!ret) {
			vb_ring_release(&p->rx);
			sched_yield();
			continue;
		}
		assert_int_equal(out.psn, i);
		assert_int_equal(out.len, next_random(&seed) % 600);
		assert_int_equal(pattern_check(iov.iov_base, out.len, i), out.len);
		vb_ring_next(&p->rx);
		i++;
	}
	pthread_join(thread, NULL);
}

/*
 * The last that a producer has written before it waits is padding, for a frame that found no room behind
 * it: whoever reads that must wake it, and there may be no further record.
 */
static void padding_before_a_wait(void **state)
{
	struct pair *p = *state;
	struct vb_pkt large = make_packet(VB_PKT_SEND, IBV_QPT_RC, 1), small = large, out;
	struct vb_pkt frame = make_packet(VB_PKT_SEND, IBV_QPT_RAW_PACKET, 1);
	static char bytes[VB_FRAME_MAX];
	struct iovec iov = { bytes, MTU }, got;
	struct vb_grh grh;
	bool woken = false;

	large.len = MTU;
	large.iov = &iov;
	large.iov_cnt = 1;
	frame.len = 9000;
	assert_int_equal(vb_ring_send(&p->tx, &large), 0);
	assert_int_equal(vb_ring_peek(&p->rx, &out, &got, &grh), 1);
	assert_false(vb_ring_next(&p->rx));
	assert_false(vb_ring_release(&p->rx));
	while (p->tx.tail < SIZE / 2)
		assert_int_equal(vb_ring_send(&p->tx, &small), 0);
	assert_false(vb_ring_has_room(&p->tx, &frame));
	assert_int_equal(p->tx.tail, SIZE); /* padding */
	assert_int_equal(vb_ring_send(&p->tx, &large), -EAGAIN);
	assert_true(vb_ring_wait_room(&p->tx));
	while (vb_ring_peek(&p->rx, &out, &got, &grh) == 1)
		woken |= vb_ring_next(&p->rx);
	assert_false(woken); /* too few bytes for a look */
	assert_true(vb_ring_release(&p->rx));
	assert_int_equal(vb_ring_send(&p->tx, &large), 0);
}

int main(void)
{
#define RING_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		RING_TEST(every_kind),
		RING_TEST(long_frame_at_any_place),
		RING_TEST(described_payloads),
		RING_TEST(full),
		RING_TEST(unreadable),
		RING_TEST(malformed),
		RING_TEST(changed_after_peek),
		RING_TEST(changed_meanwhile),
		RING_TEST(hostile_consumer),
		RING_TEST(in_order),
		RING_TEST(padding_before_a_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
