/* SPDX-License-Identifier: MIT */
/*
 * Reliable delivery by go-back-N (IBTA 9.7): what a sender and a receiver remember, once for all
 * transports of the card.
 *
 *	              una                       psn
 *	 acknowledged [ sent, not acknowledged  )[ to be sent          packet sequence numbers, 24 bits
 *	              head ... messages ... tail                       ring of struct vb_flight
 *
 * This file knows sequence numbers, messages and time. It knows no packets, no memory and no
 * queues: the engines (requester.c, hbl/requester.c and their responders) own those, call in here
 * under the lock of their queue, and do what the answer says: retries and time-outs of RC are carried
 * out in completer.c. So the protocol can be tested by
 * itself, on a network that loses and reorders and with a clock that the test moves
 * (tests/unit/test_reliable.c).
 *
 * Invariants: head <= tail in the 32-bit circle; the messages between them are in the order of
 * their PSNs. una never goes back: after a rewind psn may be behind it, and what is sent again up
 * to there needs no window.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- packet sequence numbers ------------------------------------------------------------------ */

enum { VB_PSN_HALF = 1 << 23 }; /* more in flight could not be told from what is acknowledged */

static inline uint32_t vb_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & 0xffffff;
}

/* a - b in the 24-bit circle, negative where a is behind b */
static inline int32_t vb_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* The PSNs that a READ takes: one per response packet, at least one (IBTA 9.7.2). */
static inline uint32_t vb_psn_span(uint64_t len, uint32_t mtu)
{
	return len <= mtu ? 1 : (uint32_t)((len + mtu - 1) / mtu);
}

/* --- the sender ------------------------------------------------------------------------------- */

/* A message that was sent and is not complete. First in the engine's own struct. */
struct vb_flight {
	uint32_t first_psn, last_psn;
	/* READ or atomic: complete with its response, never by an acknowledgement */
	bool has_response;
	bool answered;     /* that response is all there */
	uint32_t next_psn; /* of the response */
	uint32_t received; /* bytes of the response, */
	uint32_t base;     /* those that an earlier request brought among them */
};

struct vb_sender {
	char *ring;      /* of the engine's structs, */
	uint32_t stride; /* of so many bytes each; */
	uint32_t mask;   /* their number - 1 */
	uint32_t head, tail;
	uint32_t psn, una;
	uint32_t responses;                   /* messages between head and tail that have one */
	uint32_t resumed;                     /* see vb_sender_rewind() */
	uint32_t window;                      /* packets that may be in flight */
	uint8_t retries, rnr_retries;         /* left, */
	uint8_t retry_limit, rnr_retry_limit; /* of so many; RNR: 7 means for ever */
	uint64_t timeout;                     /* ns; UINT64_MAX: none */
	uint64_t rnr_until;                   /* ns: the receiver is not ready before; 0: it is */
	/* The timer looks now and then; nothing here is written per packet. */
	uint64_t stamp;                     /* when it first saw things as they are; 0: not seen */
	uint32_t stamped_head, stamped_una; /* how they were then */
	bool recent;                        /* had something in flight since the last look */
	uint8_t put_off; /* timeouts that did not count since then: we had not read what came */
};

enum {
	VB_RNR_FOREVER = 7,
	VB_LIVENESS_NS = 20000000, /* a peer that died is noticed within this, */
	VB_SHORTEST_LOOK_NS = 1000000,
};

static inline struct vb_flight *vb_sender_at(const struct vb_sender *s, uint32_t index)
{
	return (struct vb_flight *)(s->ring + (uint64_t)(index & s->mask) * s->stride);
}

static inline bool vb_sender_busy(const struct vb_sender *s)
{
	return s->head != s->tail;
}

static inline struct vb_flight *vb_sender_oldest(const struct vb_sender *s)
{
	return vb_sender_at(s, s->head);
}

/* Another packet may go. */
static inline bool vb_sender_has_window(const struct vb_sender *s)
{
	return vb_psn_diff(s->psn, s->una) < (int32_t)s->window;
}

/* The message whose packets began at first_psn and end before psn is on its way. */
static inline struct vb_flight *vb_sender_add(struct vb_sender *s, uint32_t first_psn,
					      bool has_response)
{
	struct vb_flight *f = vb_sender_at(s, s->tail++);

	*f = (struct vb_flight){
		.first_psn = first_psn,
		.last_psn = vb_psn_add(s->psn, 0xffffff),
		.has_response = has_response,
		.next_psn = first_psn,
		.received = s->resumed,
		.base = s->resumed,
	};
	s->resumed = 0;
	s->responses += has_response;
	return f;
}

/* The oldest message, if it is complete; NULL otherwise. vb_sender_pop() then takes it away. */
static inline struct vb_flight *vb_sender_complete(const struct vb_sender *s)
{
	struct vb_flight *f = vb_sender_oldest(s);

	if (!vb_sender_busy(s))
		return NULL;
	return (f->has_response ? f->answered : vb_psn_diff(s->una, f->last_psn) > 0) ? f : NULL;
}

static inline void vb_sender_pop(struct vb_sender *s)
{
	s->responses -= vb_sender_oldest(s)->has_response;
	s->head++;
}

/* Nothing is in flight any more; the next packet stays what it is. */
static inline void vb_sender_forget(struct vb_sender *s)
{
	s->head = s->tail;
	s->una = s->psn;
	s->responses = s->resumed = 0;
	s->rnr_until = s->stamp = 0;
}

/* Things go on: all retries are there again. */
static inline void vb_sender_refresh(struct vb_sender *s)
{
	s->retries = s->retry_limit;
	s->rnr_retries = s->rnr_retry_limit;
}

/* Empty, and the next packet is psn. Limits, window and timeout stay. */
void vb_sender_reset(struct vb_sender *s, uint32_t psn);
/*
 * Everything up to and including psn arrived. The number of packets that is news; 0 for what was
 * never sent, too.
 */
static inline uint32_t vb_sender_acknowledge(struct vb_sender *s, uint32_t psn)
{
	uint32_t una = vb_psn_add(psn, 1);
	int32_t fresh = vb_psn_diff(una, s->una);

	/*
	 * What was never sent is not believed; nor is what a rewind took back, it will be
	 * acknowledged again.
	 */
	if (fresh <= 0 || vb_psn_diff(una, s->psn) > 0)
		return 0;
	s->una = una;
	vb_sender_refresh(s);
	return (uint32_t)fresh;
}

/*
 * A timeout while packets of the peer's are unread: it does not count, because we are slow, or were
 * stopped. False after some of them: other queue pairs of the peer's may send all the time.
 */
bool vb_sender_puts_off(struct vb_sender *s);
/*
 * The last timeout, where the peer has taken all that is asked for and not answered: it has no core
 * just then. So programs may have timeouts that only hardware meets. False after a quarter of a second.
 */
bool vb_sender_waits_on(struct vb_sender *s);
/*
 * A packet of a response with this PSN arrived: the message it belongs to, or NULL where it is of
 * no use (not asked for, or not the next one). The engine puts the bytes in place, adds them to
 * received, and then calls vb_sender_answered().
 */
struct vb_flight *vb_sender_response(struct vb_sender *s, uint32_t psn);
void vb_sender_answered(struct vb_sender *s, struct vb_flight *f, bool last);
/*
 * Send everything that is not complete again. The next packet is the first of the oldest message in
 * flight, or partial (the first of a message that was sent in part) where there is none. Returns
 * the number of messages to be sent again.
 *
 * A READ of which a part has arrived goes on behind it, or on a network that loses packets a long
 * one would never end: the engine asks for what is missing, from s->resumed bytes on.
 */
uint32_t vb_sender_rewind(struct vb_sender *s, uint32_t partial);
/* Use up a retry; false: there is none left. */
bool vb_sender_retry(struct vb_sender *s);
/*
 * The receiver is not ready: wait as long as the code of its answer says. False: that was too
 * often.
 */
bool vb_sender_wait_rnr(struct vb_sender *s, uint8_t code, uint64_t now);

enum vb_sender_due {
	VB_SENDER_IDLE,    /* nothing to wait for: off the timer list */
	VB_SENDER_WAITS,   /* come back at *next */
	VB_SENDER_READY,   /* the wait for the receiver is over: go on sending */
	VB_SENDER_TIMEOUT, /* no answer for the whole timeout */
};

/* What is due now. Lowers *next to the time of the next look. */
enum vb_sender_due vb_sender_look(struct vb_sender *s, uint64_t now, uint64_t *next);

/* --- the receiver ----------------------------------------------------------------------------- */

enum { VB_REPLAYS = 16 };

struct vb_receiver {
	uint32_t epsn; /* expected next */
	bool nak_sent; /* one NAK per gap: what follows is dropped until the missing packet comes */
	/* Atomics that were done: answered again, never done again. */
	struct {
		bool used;
		uint32_t psn;
		uint64_t value;
	} replay[VB_REPLAYS];
	uint32_t replay_next;
	/* READs that were taken: a part may be asked for again. */
	struct {
		uint32_t psn, span;
		uint32_t source;
	} read[VB_REPLAYS];
	uint32_t read_next;
};

enum vb_arrival {
	VB_ARRIVAL_EXPECTED,
	VB_ARRIVAL_DUPLICATE, /* seen before: answer again, do nothing twice (IBTA 9.7.5.1.1) */
	VB_ARRIVAL_GAP,       /* something is missing: NAK with epsn */
	VB_ARRIVAL_DROP,      /* the same, and the NAK is on its way */
};

void vb_receiver_reset(struct vb_receiver *r, uint32_t psn);

static inline enum vb_arrival vb_receiver_check(struct vb_receiver *r, uint32_t psn)
{
	int32_t ahead = vb_psn_diff(psn, r->epsn);

	if (__builtin_expect(!ahead, 1)) {
		r->nak_sent = false;
		return VB_ARRIVAL_EXPECTED;
	}
	if (ahead < 0)
		return VB_ARRIVAL_DUPLICATE;
	if (r->nak_sent)
		return VB_ARRIVAL_DROP;
	r->nak_sent = true;
	return VB_ARRIVAL_GAP;
}

/* The expected packet was taken; it stands for so many PSNs. */
static inline void vb_receiver_take(struct vb_receiver *r, uint32_t span)
{
	r->epsn = vb_psn_add(r->epsn, span);
}

void vb_receiver_remember(struct vb_receiver *r, uint32_t psn, uint64_t value);
/* The value that an atomic with this PSN returned; false where it is too long ago. */
bool vb_receiver_recall(const struct vb_receiver *r, uint32_t psn, uint64_t *value);
/* A READ was taken and is answered from source, whatever that means to the engine. */
void vb_receiver_note_read(struct vb_receiver *r, uint32_t psn, uint32_t span, uint32_t source);
/*
 * Whether a READ that comes again may be answered from source: the rest of one must come from where
 * its beginning came.
 */
bool vb_receiver_may_resume(const struct vb_receiver *r, uint32_t psn, uint32_t source);
