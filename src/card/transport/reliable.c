// SPDX-License-Identifier: MIT
/*
 * Owns the protocol of reliable.h, where it is not in line there.
 */
#include "card/transport/reliable.h"

#include <string.h>

#include "card/transport/sides.h"

void vb_sender_reset(struct vb_sender *s, uint32_t psn)
{
	s->psn = psn;
	vb_sender_forget(s);
	vb_sender_refresh(s);
}

struct vb_flight *vb_sender_response(struct vb_sender *s, uint32_t psn)
{
	for (uint32_t i = s->head; i != s->tail; i++) {
		struct vb_flight *f = vb_sender_at(s, i);

		if (!f->has_response || vb_psn_diff(psn, f->last_psn) > 0)
			continue;
		if (f->answered || vb_psn_diff(psn, f->first_psn) < 0)
			return NULL;
		if (psn == f->first_psn) { /* also of a request that was sent again */
			f->next_psn = psn;
			f->received = f->base;
		}
		return psn == f->next_psn ? f : NULL;
	}
	return NULL;
}

void vb_sender_answered(struct vb_sender *s, struct vb_flight *f, bool last)
{
	/*
	 * The request arrived, and all before it (IBTA 9.7.5.1.3); each answer starts timer and
	 * retries anew.
	 */
	if (vb_psn_diff(f->next_psn, s->una) >= 0)
		s->una = vb_psn_add(f->next_psn, 1);
	s->stamp = 0;
	vb_sender_refresh(s);
	f->next_psn = vb_psn_add(f->next_psn, 1);
	f->answered = last;
}

uint32_t vb_sender_rewind(struct vb_sender *s, uint32_t partial)
{
	const struct vb_flight *oldest = vb_sender_oldest(s);
	uint32_t again = s->tail - s->head;

	s->psn = partial;
	if (again) {
		s->psn = oldest->has_response ? oldest->next_psn : oldest->first_psn;
		s->resumed = oldest->received;
	}
	s->tail = s->head;
	s->responses = 0;
	return again;
}

bool vb_sender_puts_off(struct vb_sender *s)
{
	enum { MOST = 8 };

	return s->put_off < MOST && ++s->put_off;
}

bool vb_sender_waits_on(struct vb_sender *s)
{
	const uint64_t patience = 250000000; /* put_off counts so many of the shortest looks */
	uint64_t step = s->timeout > VB_SHORTEST_LOOK_NS ? s->timeout : VB_SHORTEST_LOOK_NS;

	return s->put_off < patience / step && ++s->put_off;
}

bool vb_sender_retry(struct vb_sender *s)
{
	if (!s->retries)
		return false;
	s->retries--;
	return true;
}

/* IBTA table 45, in microseconds / 10 */
static const uint32_t rnr_timer[32] = { 65536, 1,    2,    3,     4,     6,     8,     12,
					16,    24,   32,   48,    64,    96,    128,   192,
					256,   384,  512,  768,   1024,  1536,  2048,  3072,
					4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

bool vb_sender_wait_rnr(struct vb_sender *s, uint8_t code, uint64_t now)
{
	if (!s->rnr_retries && s->rnr_retry_limit != VB_RNR_FOREVER)
		return false;
	if (s->rnr_retry_limit != VB_RNR_FOREVER)
		s->rnr_retries--;
	/* It is an answer: what goes unanswered is counted, and timed, from here. */
	s->retries = s->retry_limit;
	s->stamp = 0;
	s->rnr_until = now + rnr_timer[code & 31] * 10000ull;
	return true;
}

/* How long a queue may be left alone: a dead peer must be noticed, and a short timeout met. */
static uint64_t look_period(const struct vb_sender *s)
{
	return s->timeout > VB_LIVENESS_NS        ? VB_LIVENESS_NS
	       : s->timeout > VB_SHORTEST_LOOK_NS ? s->timeout
						  : VB_SHORTEST_LOOK_NS;
}

static void reliable_lower(uint64_t *next, uint64_t when)
{
	*next = *next < when ? *next : when;
}

static enum vb_sender_due look_idle(struct vb_sender *s, uint64_t now, uint64_t *next)
{
	/*
	 * Nothing in flight now; in a stream there will be again in a moment. Only a queue that was
	 * idle at two looks goes off the list, or every other message would put it back and wake
	 * the thread that looks.
	 */
	s->stamp = 0;
	if (!s->recent)
		return VB_SENDER_IDLE;
	s->recent = false;
	reliable_lower(next, now + look_period(s));
	return VB_SENDER_WAITS;
}

enum vb_sender_due vb_sender_look(struct vb_sender *s, uint64_t now, uint64_t *next)
{
	uint64_t due;

	if (s->rnr_until && now >= s->rnr_until) {
		s->rnr_until = 0;
		reliable_lower(next, now);
		return VB_SENDER_READY;
	}
	if (s->rnr_until) {
		reliable_lower(next, s->rnr_until);
		return VB_SENDER_WAITS;
	}
	if (!vb_sender_busy(s) && vb_psn_diff(s->psn, s->una) <= 0)
		return look_idle(s, now, next);
	s->recent = true;
	if (!s->stamp || s->stamped_head != s->head || s->stamped_una != s->una) {
		s->stamp = now;
		s->stamped_head = s->head;
		s->stamped_una = s->una;
		s->put_off = 0;
	}
	due = s->timeout > UINT64_MAX - s->stamp ? UINT64_MAX : s->stamp + s->timeout;
	if (now >= due) {
		s->stamp = now;
		reliable_lower(next, now + look_period(s));
		return VB_SENDER_TIMEOUT;
	}
	reliable_lower(next, due);
	reliable_lower(next, now + look_period(s));
	return VB_SENDER_WAITS;
}

void vb_receiver_reset(struct vb_receiver *r, uint32_t psn)
{
	memset(r, 0, sizeof(*r));
	r->epsn = psn;
}

void vb_receiver_remember(struct vb_receiver *r, uint32_t psn, uint64_t value)
{
	uint32_t at = r->replay_next++ % VB_REPLAYS;

	r->replay[at].used = true;
	r->replay[at].psn = psn;
	r->replay[at].value = value;
}

void vb_receiver_note_read(struct vb_receiver *r, uint32_t psn, uint32_t span, uint32_t source)
{
	uint32_t at = r->read_next++ % VB_REPLAYS;

	r->read[at].psn = psn;
	r->read[at].span = span;
	r->read[at].source = source;
}

bool vb_receiver_may_resume(const struct vb_receiver *r, uint32_t psn, uint32_t source)
{
	for (uint32_t i = 1; i <= VB_REPLAYS; i++) {
		uint32_t at = (r->read_next - i) % VB_REPLAYS;
		int32_t part = vb_psn_diff(psn, r->read[at].psn);

		if (part >= 0 && part < (int32_t)r->read[at].span)
			return !part || r->read[at].source == source;
	}
	return true;
}

bool vb_receiver_recall(const struct vb_receiver *r, uint32_t psn, uint64_t *value)
{
	for (unsigned int i = 0; i < VB_REPLAYS; i++) {
		if (!r->replay[i].used || r->replay[i].psn != psn)
			continue;
		*value = r->replay[i].value;
		return true;
	}
	return false;
}
