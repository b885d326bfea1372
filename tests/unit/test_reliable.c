// SPDX-License-Identifier: MIT
/*
 * The reliability core by itself: a sender and a receiver over a network of this file that loses, repeats, delays and
 * reorders packets, under a clock that this file moves. A run is decided by its seed alone; a failure names it, and
 * `test_reliable SEED` repeats it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "card/transport/reliable.h"

enum {
	MESSAGES = 24,
	RING = 64,
	WIRE = 512, /* packets on the wire at once */
	MTU = 256,
	MAX_PACKETS = 6,
	STEPS = 200000,
};

enum kind { SEND, READ, ATOMIC };
enum what { REQUEST, ACK, NAK, RNR, RESPONSE };

struct message {
	enum kind kind;
	uint32_t packets;     /* of the request, or of a READ's response */
	unsigned int arrived; /* packets that the receiver took: each once, in order */
	unsigned int done;    /* times that an atomic was carried out */
	bool complete;
};

struct packet {
	uint64_t at;
	bool to_sender;
	enum what what;
	uint32_t psn;
	uint32_t message, part;
	uint32_t from; /* READ: parts that the sender has already */
	bool last;
	uint64_t value;
};

struct sim {
	uint64_t random, seed, now, next_look;
	unsigned int loss, repeat, jitter, not_ready; /* percent; jitter: microseconds */
	bool cut;
	struct message messages[MESSAGES];
	struct packet wire[WIRE];
	uint32_t on_wire;
	/* the sender's engine */
	struct vb_sender s;
	struct flight {
		struct vb_flight flight; /* first */
		uint32_t message;
	} flights[RING];
	uint32_t next, part, first_psn; /* message to send, packet of it, PSN that it began with */
	uint32_t completed;
	bool failed;
	/* the receiver's */
	struct vb_receiver r;
	uint32_t receiving;
	uint64_t counter; /* what atomics add to */
	unsigned int timeouts;
};

static uint32_t draw(struct sim *sim, uint32_t below)
{
	sim->random = sim->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((sim->random >> 33) % below);
}

#define must(sim, cond)                                                                         \
	do {                                                                                    \
		if (!(cond)) {                                                                  \
			print_error("seed %llu: %s\n", (unsigned long long)(sim)->seed, #cond); \
			fail();                                                                 \
		}                                                                               \
	} while (0)

/* --- the network -------------------------------------------------------------------------------------------------- */

/* The wire is a heap: the packet that arrives first is wire[0]. */
static void heap_add(struct sim *sim, const struct packet *packet)
{
	uint32_t i = sim->on_wire++;

	for (; i && sim->wire[(i - 1) / 2].at > packet->at; i = (i - 1) / 2)
		sim->wire[i] = sim->wire[(i - 1) / 2];
	sim->wire[i] = *packet;
}

static struct packet heap_take(struct sim *sim)
{
	struct packet first = sim->wire[0], last = sim->wire[--sim->on_wire];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < sim->on_wire) {
		child += child + 1 < sim->on_wire && sim->wire[child + 1].at < sim->wire[child].at;
		if (sim->wire[child].at >= last.at)
			break;
		sim->wire[i] = sim->wire[child];
		i = child;
	}
	sim->wire[i] = last;
	return first;
}

static void put(struct sim *sim, struct packet packet)
{
	for (unsigned int copies = 1 + (draw(sim, 100) < sim->repeat); copies; copies--) {
		if (sim->cut || draw(sim, 100) < sim->loss || sim->on_wire == WIRE)
			continue;
		packet.at = sim->now + 1000 + draw(sim, sim->jitter * 1000 + 1);
		heap_add(sim, &packet);
	}
}

/* --- the sender's engine --------------------------------------------------------------------------------------------- */

static void send_what_may(struct sim *sim)
{
	while (sim->next < MESSAGES && !sim->s.rnr_until && vb_sender_has_window(&sim->s) &&
	       sim->s.tail - sim->s.head < RING && !sim->failed) {
		struct message *m = &sim->messages[sim->next];
		uint32_t packets = m->kind == SEND ? m->packets : 1;

		if (m->kind != SEND && sim->s.responses >= VB_REPLAYS)
			return; /* max_rd_atomic: the receiver remembers no more */
		if (!sim->part)
			sim->first_psn = sim->s.psn;
		put(sim, (struct packet){ .what = REQUEST,
					  .psn = sim->s.psn,
					  .message = sim->next,
					  .part = sim->part,
					  .from = sim->s.resumed,
					  .last = sim->part + 1 == packets });
		/* A READ takes the PSNs of its response. */
		sim->s.psn =
			vb_psn_add(sim->s.psn, m->kind == READ ? m->packets - sim->s.resumed : 1);
		if (++sim->part < packets)
			continue;
		((struct flight *)vb_sender_add(&sim->s, sim->first_psn, m->kind != SEND))
			->message = sim->next++;
		sim->part = 0;
	}
}

static void complete_ready(struct sim *sim)
{
	struct vb_flight *f;

	while ((f = vb_sender_complete(&sim->s))) {
		uint32_t index = ((struct flight *)f)->message;
		struct message *m = &sim->messages[index];

		must(sim, index == sim->completed && !m->complete);
		must(sim, m->arrived == (m->kind == SEND ? m->packets : 1));
		must(sim, m->kind != READ || f->received == m->packets);
		m->complete = true;
		sim->completed++;
		vb_sender_pop(&sim->s);
	}
}

static void rewind_all(struct sim *sim)
{
	sim->next -= vb_sender_rewind(&sim->s, sim->part ? sim->first_psn : sim->s.psn);
	sim->part = 0;
}

static void take_response(struct sim *sim, const struct packet *packet)
{
	struct vb_flight *f = vb_sender_response(&sim->s, packet->psn);
	struct message *m;

	if (!f)
		return;
	m = &sim->messages[((struct flight *)f)->message];
	must(sim, ((struct flight *)f)->message == packet->message);
	if (m->kind == ATOMIC)
		must(sim, m->done == 1 && packet->value == packet->message);
	else
		must(sim, f->received == packet->part);
	f->received++;
	vb_sender_answered(&sim->s, f, packet->last);
}

static void sender_takes(struct sim *sim, const struct packet *packet)
{
	switch (packet->what) {
	case ACK:
		vb_sender_acknowledge(&sim->s, packet->psn);
		break;
	case NAK:
		vb_sender_acknowledge(&sim->s, vb_psn_add(packet->psn, 0xffffff));
		complete_ready(sim);
		rewind_all(sim);
		break;
	case RNR:
		vb_sender_acknowledge(&sim->s, vb_psn_add(packet->psn, 0xffffff));
		complete_ready(sim);
		rewind_all(sim);
		sim->failed |= !vb_sender_wait_rnr(&sim->s, 1, sim->now);
		sim->next_look = 0;
		break;
	default:
		take_response(sim, packet);
	}
	complete_ready(sim);
	send_what_may(sim);
}

static void sender_looks(struct sim *sim)
{
	sim->next_look = UINT64_MAX;
	switch (vb_sender_look(&sim->s, sim->now, &sim->next_look)) {
	case VB_SENDER_TIMEOUT:
		sim->timeouts++;
		if (!vb_sender_retry(&sim->s)) {
			sim->failed = true;
			return;
		}
		rewind_all(sim);
		break;
	case VB_SENDER_IDLE:
	case VB_SENDER_WAITS:
	case VB_SENDER_READY:
		break;
	}
	send_what_may(sim);
	if (sim->next_look <= sim->now)
		sim->next_look = sim->now + 1;
}

/* --- the receiver's engine --------------------------------------------------------------------------------------------- */

static void respond(struct sim *sim, const struct packet *packet, uint64_t value)
{
	struct message *m = &sim->messages[packet->message];
	uint32_t packets = m->kind == READ ? m->packets : 1;

	for (uint32_t i = packet->from; i < packets; i++)
		put(sim, (struct packet){ .to_sender = true,
					  .what = RESPONSE,
					  .psn = vb_psn_add(packet->psn, i - packet->from),
					  .message = packet->message,
					  .part = i,
					  .last = i + 1 == packets,
					  .value = value });
}

static void reply(struct sim *sim, enum what what, uint32_t psn)
{
	put(sim, (struct packet){ .to_sender = true, .what = what, .psn = psn });
}

static void take_expected(struct sim *sim, const struct packet *packet)
{
	struct message *m = &sim->messages[packet->message];

	if (draw(sim, 100) < sim->not_ready) {
		sim->r.nak_sent = true;
		reply(sim, RNR, packet->psn);
		return;
	}
	must(sim, packet->message == sim->receiving && packet->part == m->arrived);
	m->arrived++;
	sim->receiving += packet->last;
	vb_receiver_take(&sim->r, m->kind == READ ? m->packets : 1);
	if (m->kind == ATOMIC) {
		m->done++;
		vb_receiver_remember(&sim->r, packet->psn, packet->message);
	}
	if (m->kind != SEND)
		respond(sim, packet, packet->message);
	else if (packet->last || !draw(sim, 4))
		reply(sim, ACK, vb_psn_add(sim->r.epsn, 0xffffff));
}

static void take_duplicate(struct sim *sim, const struct packet *packet)
{
	struct message *m = &sim->messages[packet->message];
	uint64_t value = 0;

	if (m->kind == ATOMIC && !vb_receiver_recall(&sim->r, packet->psn, &value))
		return;
	if (m->kind != SEND)
		respond(sim, packet, value);
	else
		reply(sim, ACK, vb_psn_add(sim->r.epsn, 0xffffff));
}

static void receiver_takes(struct sim *sim, const struct packet *packet)
{
	switch (vb_receiver_check(&sim->r, packet->psn)) {
	case VB_ARRIVAL_EXPECTED:
		take_expected(sim, packet);
		break;
	case VB_ARRIVAL_DUPLICATE:
		take_duplicate(sim, packet);
		break;
	case VB_ARRIVAL_GAP:
		reply(sim, NAK, sim->r.epsn);
		break;
	case VB_ARRIVAL_DROP:
		break;
	}
}

/* --- runs ---------------------------------------------------------------------------------------------------------------- */

static void sim_init(struct sim *sim, uint64_t seed)
{
	uint32_t psn;

	memset(sim, 0, sizeof(*sim));
	sim->random = sim->seed = seed;
	for (int i = 0; i < 8; i++)
		draw(sim, 2);
	sim->loss = draw(sim, 3) ? draw(sim, 30) : 0;
	sim->repeat = draw(sim, 3) ? draw(sim, 30) : 0;
	sim->jitter = draw(sim, 3) ? draw(sim, 200) : 0;
	sim->not_ready = draw(sim, 3) ? 0 : draw(sim, 30);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		sim->messages[i].kind = (enum kind)draw(sim, 3);
		sim->messages[i].packets =
			sim->messages[i].kind == ATOMIC ? 1 : 1 + draw(sim, MAX_PACKETS);
	}
	psn = draw(sim, 2) ? 0xffffff - draw(sim, 40) : draw(sim, 0x1000000);
	sim->s = (struct vb_sender){ .ring = (char *)sim->flights,
				     .stride = sizeof(sim->flights[0]),
				     .mask = RING - 1,
				     .window = 1 + draw(sim, 60),
				     .retry_limit = 255,
				     .rnr_retry_limit = VB_RNR_FOREVER,
				     .timeout = 1000000 + draw(sim, 1000000) };
	vb_sender_reset(&sim->s, psn);
	vb_receiver_reset(&sim->r, psn);
	sim->now = 1;
}

/* Until all is complete, or the sender has given up. */
static void sim_run(struct sim *sim)
{
	send_what_may(sim);
	for (unsigned int step = 0; step < STEPS; step++) {
		struct packet packet;

		if (sim->completed == MESSAGES || sim->failed)
			return;
		if (!sim->on_wire || sim->wire[0].at >= sim->next_look) {
			if (sim->next_look != UINT64_MAX && sim->next_look > sim->now)
				sim->now = sim->next_look;
			sender_looks(sim);
			continue;
		}
		packet = heap_take(sim);
		sim->now = packet.at > sim->now ? packet.at : sim->now;
		if (packet.to_sender)
			sender_takes(sim, &packet);
		else
			receiver_takes(sim, &packet);
	}
	must(sim, !"it stands still");
}

static void run_seed(uint64_t seed)
{
	struct sim sim;

	sim_init(&sim, seed);
	sim_run(&sim);
	must(&sim, !sim.failed && sim.completed == MESSAGES && sim.receiving == MESSAGES);
	for (int i = 0; i < MESSAGES; i++)
		must(&sim, sim.messages[i].done == (sim.messages[i].kind == ATOMIC));
}

/* Everything arrives once and in order, whatever the network does. */
static void test_seeds(void **state)
{
	uint64_t count = getenv("VERBATIM_TEST_LONG") ? 1000000 : 5000;

	for (uint64_t seed = 1; seed <= count; seed++)
		run_seed(seed);
}

/* A cable that is cut: retry_limit retries, one timeout each, then the end. */
static void test_cut(void **state)
{
	struct sim sim;

	sim_init(&sim, 7);
	sim.cut = true;
	sim.s.retry_limit = 3;
	vb_sender_refresh(&sim.s);
	sim_run(&sim);
	must(&sim, sim.failed && sim.timeouts == 4 && sim.completed == 0);
	/* What is given up is not waited for, and does not time out once more. */
	vb_sender_forget(&sim.s);
	for (int i = 0; i < 3; i++) {
		sim.now += 60ull * 1000000000;
		must(&sim, vb_sender_look(&sim.s, sim.now, &sim.next_look) != VB_SENDER_TIMEOUT);
	}
	must(&sim, vb_sender_look(&sim.s, sim.now, &sim.next_look) == VB_SENDER_IDLE);
}

/* A receiver that is never ready. */
static void test_never_ready(void **state)
{
	struct sim sim;

	sim_init(&sim, 9);
	sim.loss = sim.repeat = 0;
	sim.not_ready = 100;
	sim.s.rnr_retry_limit = 2;
	vb_sender_refresh(&sim.s);
	sim_run(&sim);
	must(&sim, sim.failed && sim.completed == 0 && sim.s.rnr_retries == 0);
}

/* Without a timeout nothing is sent again by time. */
static void test_no_timeout(void **state)
{
	struct sim sim;
	uint64_t next;

	sim_init(&sim, 3);
	sim.s.timeout = UINT64_MAX;
	sim.cut = true;
	send_what_may(&sim);
	for (uint64_t now = 1; now < 3600ull * 1000000000; now += 60ull * 1000000000) {
		next = UINT64_MAX;
		must(&sim, vb_sender_look(&sim.s, now, &next) == VB_SENDER_WAITS);
		must(&sim, next <= now + VB_LIVENESS_NS);
	}
}

/* The span of a READ, at the edges of the MTU (IBTA 9.7.2). */
static void test_span(void **state)
{
	assert_int_equal(vb_psn_span(0, MTU), 1);
	assert_int_equal(vb_psn_span(1, MTU), 1);
	assert_int_equal(vb_psn_span(MTU, MTU), 1);
	assert_int_equal(vb_psn_span(MTU + 1, MTU), 2);
	assert_int_equal(vb_psn_span(10 * MTU, MTU), 10);
	assert_int_equal(vb_psn_span(1ull << 31, 256), 1 << 23);
	assert_int_equal(vb_psn_span(UINT32_MAX, UINT32_MAX), 1);
}

/* What arrives is in order, behind a gap, or seen before; of a gap the sender is told once. */
static void test_arrivals(void **state)
{
	struct vb_receiver r;

	vb_receiver_reset(&r, 0xfffffe);
	assert_int_equal(vb_receiver_check(&r, 0xfffffe), VB_ARRIVAL_EXPECTED);
	vb_receiver_take(&r, 3); /* a READ, over the end of the circle */
	assert_int_equal(r.epsn, 1);
	for (uint32_t seen = 0xfffffd; seen != 1; seen = vb_psn_add(seen, 1))
		assert_int_equal(vb_receiver_check(&r, seen), VB_ARRIVAL_DUPLICATE);
	assert_int_equal(vb_receiver_check(&r, 3), VB_ARRIVAL_GAP);
	assert_int_equal(vb_receiver_check(&r, 4), VB_ARRIVAL_DROP);
	assert_int_equal(vb_receiver_check(&r, 0), VB_ARRIVAL_DUPLICATE);
	assert_int_equal(vb_receiver_check(&r, 5), VB_ARRIVAL_DROP);
	assert_int_equal(vb_receiver_check(&r, 1), VB_ARRIVAL_EXPECTED);
	vb_receiver_take(&r, 1);
	assert_int_equal(vb_receiver_check(&r, 3), VB_ARRIVAL_GAP);
}

/* An atomic that comes again gets the value of the first time, as long as it is remembered. */
static void test_replay(void **state)
{
	struct vb_receiver r;
	uint64_t value;

	vb_receiver_reset(&r, 0);
	assert_false(vb_receiver_recall(&r, 0, &value));
	for (uint32_t psn = 0; psn < 2 * VB_REPLAYS; psn++)
		vb_receiver_remember(&r, psn, psn * 100);
	for (uint32_t psn = 0; psn < VB_REPLAYS; psn++)
		assert_false(vb_receiver_recall(&r, psn, &value));
	for (uint32_t psn = VB_REPLAYS; psn < 2 * VB_REPLAYS; psn++) {
		assert_true(vb_receiver_recall(&r, psn, &value));
		assert_int_equal(value, psn * 100);
	}
}

/* Acknowledgements that cannot be: of what was never sent, of long ago. */
static void test_disbelief(void **state)
{
	struct sim sim;
	uint32_t una;

	sim_init(&sim, 5);
	sim.s.window = 8;
	send_what_may(&sim);
	una = sim.s.una;
	assert_int_equal(vb_sender_acknowledge(&sim.s, sim.s.psn), 0);
	assert_int_equal(vb_sender_acknowledge(&sim.s, vb_psn_add(sim.s.psn, 1000)), 0);
	assert_int_equal(vb_sender_acknowledge(&sim.s, vb_psn_add(una, 0xffffff)), 0);
	assert_int_equal(sim.s.una, una);
	assert_null(vb_sender_response(&sim.s, vb_psn_add(sim.s.psn, 3)));
}

/* The rest of a READ comes from where its beginning came; one that begins anew may come from anywhere. */
static void test_resume(void **state)
{
	struct vb_receiver r;

	(void)state;
	vb_receiver_reset(&r, 0xfffffe);
	vb_receiver_note_read(&r, 0xfffffe, 4, 7); /* fffffe, ffffff, 0, 1 */
	vb_receiver_note_read(&r, 2, 1, 8);
	assert_true(vb_receiver_may_resume(&r, 0xfffffe, 9));
	assert_true(vb_receiver_may_resume(&r, 0xffffff, 7));
	assert_true(vb_receiver_may_resume(&r, 1, 7));
	assert_false(vb_receiver_may_resume(&r, 0xffffff, 8));
	assert_false(vb_receiver_may_resume(&r, 1, 8));
	assert_true(vb_receiver_may_resume(&r, 2, 7));
	assert_true(vb_receiver_may_resume(&r, 3, 1));
	/* The newest counts, also where the circle of numbers has come round. */
	vb_receiver_note_read(&r, 0xfffffd, 4, 9);
	assert_true(vb_receiver_may_resume(&r, 0xffffff, 9));
	assert_false(vb_receiver_may_resume(&r, 0xffffff, 7));
}

/* A quarter of a second, and not once where the timeout is longer than that. */
static void waits_for_a_slow_peer(void **state)
{
	static const struct {
		uint64_t timeout;
		unsigned int times;
	} cases[] = { { 8192, 250 }, { 1000000, 250 }, { 67108864, 3 }, { 4294967296, 0 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vb_sender s = { .timeout = cases[i].timeout };

		for (unsigned int n = 0; n < cases[i].times; n++)
			assert_true(vb_sender_waits_on(&s));
		for (unsigned int n = 0; n < 10; n++)
			assert_false(vb_sender_waits_on(&s));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_for_a_slow_peer),
		cmocka_unit_test(test_arrivals),
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_span),
		cmocka_unit_test(test_disbelief),
		cmocka_unit_test(test_no_timeout),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_never_ready),
		cmocka_unit_test(test_seeds),
		cmocka_unit_test(test_resume),
	};

	if (argc > 1) {
		run_seed(strtoull(argv[1], NULL, 0));
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
