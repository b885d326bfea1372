// SPDX-License-Identifier: MIT
/*
 * The card's side of steering (card/ether/flow.h), as libmlx5 and libflexio use it: rules of all domains, TIRs, transport domains,
 * misses, rules that come and go under traffic, frames put on a cable and captures.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "api/ibverbs/accessors.h"
#include "card/ether/flow.h"
#include "card/device.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "station.h"

enum { LEN = 80, DMAC = 8 };

static const uint64_t here = 0x020000000001, there = 0x020000000002, group = 0x01005e000001;
static struct station tx, rx, far; /* two contexts of mlx5_0, and mlx5_1 */

static const struct verbs_ex_private *private_of(struct ibv_context *context)
{
	return verbs_get_ctx(context)->priv;
}

static struct vb_dev *dev_of(struct station *s)
{
	return private_of(s->ctx)->objects->dev(s->ctx);
}

static struct vb_qp *card_of(struct station *s)
{
	struct vb_verbs_qp out;

	private_of(s->ctx)->rings->qp(s->qp, &out);
	return out.card;
}

static void send_frame(uint64_t dst, uint8_t *f)
{
	memset(f, 0, LEN);
	put_eth(f, 0, dst, there, 0x88b5);
	pattern_fill(f + 14, LEN - 14, 1);
	station_send(&tx, f, LEN, 0);
}

/* --- rules ------------------------------------------------------------------------------------------ */

/* A table with one matcher on the destination MAC, and rules in it. */
struct rules {
	struct vb_steer_table *table;
	struct vb_steer_matcher *matcher;
	struct vb_steer_rule *rule[64];
	unsigned int count;
};

static void rules_open(struct rules *r, struct vb_steer *domain, uint32_t level)
{
	uint8_t mask[64] = { 0 };

	memset(mask + DMAC, 0xff, 6);
	*r = (struct rules){ 0 };
	check(domain);
	check_eq(vb_steer_table_create(domain, level, &r->table), 0);
	check_eq(vb_steer_matcher_create(r->table, 0, VB_STEER_OUTER, mask, sizeof(mask),
					 &r->matcher, NULL),
		 0);
}

static void rules_add(struct rules *r, uint64_t mac, struct vb_steer_action **actions, size_t n)
{
	uint8_t value[64] = { 0 }, header[14];

	put_eth(header, 0, mac, 0, 0);
	memcpy(value + DMAC, header, 6);
	check_eq(vb_steer_rule_create(r->matcher, value, sizeof(value), actions, n, 0,
				      &r->rule[r->count++], NULL),
		 0);
}

static void rules_close(struct rules *r)
{
	while (r->count)
		vb_steer_rule_destroy(r->rule[--r->count]);
	check_eq(vb_steer_matcher_destroy(r->matcher), 0);
	check_eq(vb_steer_table_destroy(r->table), 0);
}

static struct vb_steer_action *action(const struct vb_steer_action_attr *attr)
{
	struct vb_steer_action *made;

	check_eq(vb_steer_action_create(attr, &made, NULL), 0);
	return made;
}

static struct vb_steer_action *to_dest(uint32_t kind, void *object, uint64_t number)
{
	return action(&(struct vb_steer_action_attr){
		.what = VB_STEER_DO_DEST,
		.dest = { .kind = kind, .object = object, .number = number } });
}

/* --- receiving --------------------------------------------------------------------------------------- */

/* A rule takes its frames from the verbs flows; a miss, and a copy by an array, goes to them. */
static void receive_rules(void)
{
	struct vb_steer_branch branch[2];
	struct vb_steer_action *actions[2], *tag, *dest, *miss, *array;
	struct ibv_flow *flow = flow_all(rx.qp);
	struct station other;
	struct rules r;
	struct got got;
	uint8_t f[LEN];

	station_open(&other, "mlx5_0");
	check_eq(vb_flow_hold_qp(card_of(&other)), 0);
	dest = to_dest(VB_FLOW_QP, card_of(&other), 0);
	tag = action(&(struct vb_steer_action_attr){ .what = VB_STEER_DO_TAG, .tag = 0x4711 });
	miss = action(&(struct vb_steer_action_attr){ .what = VB_STEER_DO_MISS });
	branch[0] = (struct vb_steer_branch){ .dest = miss };
	branch[1] = (struct vb_steer_branch){ .dest = dest };
	array = action(&(struct vb_steer_action_attr){ .what = VB_STEER_DO_ARRAY,
						       .array = { branch, 2 } });
	rules_open(&r, vb_flow_domain(dev_of(&other), VB_STEER_NIC_RX), 0);
	actions[0] = tag;
	actions[1] = dest;
	rules_add(&r, here, actions, 2);
	rules_add(&r, there, &array, 1);
	rules_add(&r, group, &miss, 1);
	send_frame(here, f);
	station_get(&other, &got);
	check_eq(got.tag, 0x4711);
	station_quiet(&rx);
	send_frame(there, f);
	station_expect(&other, f, LEN);
	station_expect(&rx, f, LEN);
	send_frame(group, f);
	station_quiet(&other);
	station_expect(&rx, f, LEN);
	send_frame(group + 77, f);
	station_quiet(&other);
	station_expect(&rx, f, LEN);
	check_eq(ibv_destroy_qp(other.qp), EBUSY);
	rules_close(&r);
	check_eq(vb_steer_action_destroy(array), 0);
	check_eq(vb_steer_action_destroy(miss), 0);
	check_eq(vb_steer_action_destroy(tag), 0);
	check_eq(vb_steer_action_destroy(dest), 0);
	vb_flow_release_qp(card_of(&other));
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&other);
}

/* A TIR hears its own transport domain only where it is made so. */
static void transport_domains(void)
{
	uint32_t own = card_of(&tx)->init.transport_domain;

	check(own);
	for (uint8_t loopback = 0; loopback < 4; loopback++) {
		struct vb_tir_attr attr = { .rq = card_of(&rx),
					    .transport_domain = own,
					    .loopback = loopback };
		struct vb_steer_action *dest;
		struct vb_tir *tir, *held;
		struct rules r;
		uint8_t f[LEN];

		check_eq(vb_tir_create(dev_of(&rx), &attr, &tir), 0);
		held = vb_tir_get(dev_of(&rx), vb_tir_number(tir));
		check(held == tir);
		check(!vb_tir_get(dev_of(&far), vb_tir_number(tir)));
		dest = to_dest(VB_FLOW_TIR, tir, 0);
		rules_open(&r, vb_flow_domain(dev_of(&rx), VB_STEER_NIC_RX), 0);
		rules_add(&r, here, &dest, 1);
		rules_add(&r, group, &dest, 1);
		send_frame(here, f);
		if (loopback & VB_TIR_UNICAST)
			station_expect(&rx, f, LEN);
		send_frame(group, f);
		if (loopback & VB_TIR_MULTICAST)
			station_expect(&rx, f, LEN);
		station_quiet(&rx);
		/* From another port it is no loopback. */
		station_send(&far, f, LEN, 0);
		station_expect(&rx, f, LEN);
		check_eq(vb_tir_destroy(tir), -EBUSY);
		rules_close(&r);
		check_eq(vb_steer_action_destroy(dest), 0);
		vb_tir_put(held);
		check_eq(vb_tir_destroy(tir), 0);
	}
}

static void bad_tirs(void)
{
	struct vb_tir_attr attr = { 0 };
	struct vb_rss rss = { .count = 3 };
	struct vb_tir *tir;

	check_eq(vb_tir_create(dev_of(&rx), &attr, &tir), -EINVAL);
	attr.rq = card_of(&far);
	check_eq(vb_tir_create(dev_of(&rx), &attr, &tir), -EINVAL); /* of another device */
	attr.rq = NULL;
	attr.rss = &rss;
	check_eq(vb_tir_create(dev_of(&rx), &attr, &tir), -EINVAL);
	attr = (struct vb_tir_attr){ .rq = card_of(&rx), .loopback = 4 };
	check_eq(vb_tir_create(dev_of(&rx), &attr, &tir), -EINVAL);
}

/* --- sending ------------------------------------------------------------------------------------------ */

static void send_rules(void)
{
	static const uint8_t set_dmac[8] = { 0x10 | 0, 5, 0, 16, 0, 0, 0xab, 0xcd };
	struct ibv_flow *flow = flow_all(rx.qp), *far_flow = flow_all(far.qp);
	struct vb_steer_action *drop, *modify;
	struct rules r;
	uint8_t f[LEN];

	drop = action(&(struct vb_steer_action_attr){ .what = VB_STEER_DO_DROP });
	modify = action(&(struct vb_steer_action_attr){ .what = VB_STEER_DO_MODIFY,
							.modify = { set_dmac, 1 } });
	rules_open(&r, vb_flow_domain(dev_of(&tx), VB_STEER_NIC_TX), 0);
	rules_add(&r, here, &drop, 1);
	rules_add(&r, group, &modify, 1);
	send_frame(here, f);
	station_quiet(&rx);
	station_quiet(&far);
	send_frame(group, f);
	put16(f + 4, 0xabcd);
	station_expect(&rx, f, LEN);
	station_expect(&far, f, LEN);
	rules_close(&r);
	check_eq(vb_steer_action_destroy(modify), 0);
	check_eq(vb_steer_action_destroy(drop), 0);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_flow(far_flow), 0);
}

/* A rule makes a frame shorter than Ethernet allows: it is padded again on its way out, with zeros. */
static void shortened(void)
{
	enum { SHORTEST = 60, TAG = 4 };
	struct ibv_flow *flow = flow_all(rx.qp), *far_flow = flow_all(far.qp);
	struct vb_steer_action *pop =
		action(&(struct vb_steer_action_attr){ .what = VB_STEER_DO_POP_VLAN });
	struct rules r;
	uint8_t f[SHORTEST];

	rules_open(&r, vb_flow_domain(dev_of(&tx), VB_STEER_FDB), 0);
	rules_add(&r, group, &pop, 1);
	memset(f, 0xee, sizeof(f));
	put_eth(f, 0, group, there, 0x8100);
	put16(f + 14, 5);
	put16(f + 16, 0x88b5);
	station_send(&tx, f, sizeof(f), 0);
	memmove(f + 12, f + 12 + TAG, sizeof(f) - 12 - TAG);
	memset(f + sizeof(f) - TAG, 0, TAG);
	station_expect(&rx, f, sizeof(f));
	station_expect(&far, f, sizeof(f));
	rules_close(&r);
	check_eq(vb_steer_action_destroy(pop), 0);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_flow(far_flow), 0);
}

/* As public programs do it: root to a table, the table to the wire. And to the manager, and a miss. */
static void switch_rules(void)
{
	struct ibv_flow *flow = flow_all(rx.qp), *far_flow = flow_all(far.qp);
	struct vb_steer *fdb = vb_flow_domain(dev_of(&tx), VB_STEER_FDB);
	struct vb_steer_action *down, *wire, *manager;
	struct rules root, deep;
	uint8_t f[LEN];

	rules_open(&root, fdb, 0);
	rules_open(&deep, fdb, 1);
	down = action(
		&(struct vb_steer_action_attr){ .what = VB_STEER_DO_TABLE, .table = deep.table });
	wire = to_dest(VB_FLOW_VPORT, NULL, VB_VPORT_WIRE);
	manager = to_dest(VB_FLOW_VPORT, NULL, VB_VPORT_MANAGER);
	rules_add(&root, here, &down, 1);
	rules_add(&root, group, &down, 1);
	rules_add(&root, there, &manager, 1);
	rules_add(&deep, here, &wire, 1);
	send_frame(here, f);
	station_quiet(&rx);
	station_expect(&far, f, LEN);
	send_frame(there, f); /* the manager is this port */
	station_expect(&rx, f, LEN);
	station_quiet(&far);
	send_frame(group, f); /* misses in the table below: the manager */
	station_expect(&rx, f, LEN);
	station_quiet(&far);
	send_frame(here + 9,
		   f); /* misses in the root, as without rules: another's address is on the wire */
	station_quiet(&rx);
	station_expect(&far, f, LEN);
	send_frame(group + 9, f);
	station_expect(&rx, f, LEN);
	station_expect(&far, f, LEN);
	rules_close(&root);
	check_eq(vb_steer_action_destroy(down), 0);
	rules_close(&deep);
	check_eq(vb_steer_action_destroy(wire), 0);
	check_eq(vb_steer_action_destroy(manager), 0);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_flow(far_flow), 0);
}

/* --- rules that change under traffic -------------------------------------------------------------------- */

static atomic_bool ending;

static void *change_rules(void *arg)
{
	while (!atomic_load(&ending)) {
		struct vb_steer_action *dest;
		struct rules r;

		check_eq(vb_flow_hold_qp(card_of(&rx)), 0);
		dest = to_dest(VB_FLOW_QP, card_of(&rx), 0);
		rules_open(&r, vb_flow_domain(dev_of(&rx), VB_STEER_NIC_RX), 0);
		for (int i = 0; i < 20; i++) {
			rules_add(&r, here, &dest, 1);
			vb_steer_rule_destroy(r.rule[--r.count]);
		}
		rules_close(&r);
		check_eq(vb_steer_action_destroy(dest), 0);
		vb_flow_release_qp(card_of(&rx));
	}
	return arg;
}

static void under_traffic(void)
{
	pthread_t thread;
	uint8_t f[LEN];
	struct got got;

	atomic_store(&ending, false);
	check_eq(pthread_create(&thread, NULL, change_rules, NULL), 0);
	for (int i = 0; i < 20000; i++) {
		send_frame(here, f);
		if (station_poll(&rx, &got))
			check(got.status == IBV_WC_SUCCESS && !memcmp(got.data, f, LEN));
	}
	atomic_store(&ending, true);
	check_eq(pthread_join(thread, NULL), 0);
	while (station_poll(&rx, &got))
		;
	send_frame(here, f);
	station_quiet(&rx);
}

/* --- the cable ----------------------------------------------------------------------------------------- */

struct taken {
	atomic_uint sent, received;
	uint32_t len;
};

static void take(void *arg, const struct vb_frame *frame, bool sent, uint64_t ns)
{
	struct taken *taken = arg;

	atomic_fetch_add(sent ? &taken->sent : &taken->received, 1);
	taken->len = frame->len;
	check(ns);
}

static void cable(void)
{
	struct taken here_taken = { 0 }, far_taken = { 0 };
	struct vb_capture_sink sink = { take, &here_taken }, far_sink = { take, &far_taken };
	struct ibv_flow *flow = flow_all(rx.qp), *far_flow = flow_all(far.qp);
	uint8_t f[9217] = { 0 };

	check_eq(vb_capture_open(dev_of(&rx), &sink), 0);
	check_eq(vb_capture_open(dev_of(&rx), &sink), -EBUSY);
	check_eq(vb_capture_open(dev_of(&far), &far_sink), 0);
	send_frame(group, f);
	station_expect(&rx, f, LEN);
	station_expect(&far, f, LEN);
	check_eq(atomic_load(&here_taken.sent), 1);
	check_eq(atomic_load(&here_taken.received), 0);
	check_eq(atomic_load(&far_taken.received), 1);
	/* Put on the cable: arrives at this port alone. */
	check_eq(vb_cable_inject(dev_of(&rx), f, 14), 0);
	memset(f + 14, 0, 46);
	station_expect(&rx, f, 60);
	station_quiet(&far);
	check_eq(atomic_load(&here_taken.received), 1);
	check_eq(here_taken.len, 60);
	check_eq(vb_cable_inject(dev_of(&rx), f, 13), -EINVAL);
	check_eq(vb_cable_inject(dev_of(&rx), f, 9217), -EINVAL);
	vb_capture_close(dev_of(&rx));
	vb_capture_close(dev_of(&far));
	send_frame(group, f);
	station_expect(&rx, f, LEN);
	station_expect(&far, f, LEN);
	check_eq(atomic_load(&here_taken.sent), 1);
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_flow(far_flow), 0);
}

/* Rules of equal value multiply a frame in two domains one behind the other: it has so many copies, and no more. */
static void multiplied(void)
{
	static struct vb_steer_counter arrived;
	struct vb_steer_action *miss =
		action(&(struct vb_steer_action_attr){ .what = VB_STEER_DO_MISS });
	struct vb_steer_action *count = action(
		&(struct vb_steer_action_attr){ .what = VB_STEER_DO_COUNT, .counter = &arrived });
	struct rules sent, switched, received;
	uint8_t f[LEN];

	rules_open(&sent, vb_flow_domain(dev_of(&tx), VB_STEER_NIC_TX), 0);
	rules_open(&switched, vb_flow_domain(dev_of(&tx), VB_STEER_FDB), 0);
	rules_open(&received, vb_flow_domain(dev_of(&tx), VB_STEER_NIC_RX), 0);
	for (int i = 0; i < 64; i++) {
		rules_add(&sent, here, &miss, 1);
		rules_add(&switched, here, &miss, 1);
	}
	rules_add(&received, here, &count, 1);
	send_frame(here, f);
	check_eq(atomic_load_explicit(&arrived.packets, memory_order_relaxed),
		 VB_STEER_MAX_BRANCHES);
	send_frame(here, f);
	check_eq(atomic_load_explicit(&arrived.packets, memory_order_relaxed),
		 2 * VB_STEER_MAX_BRANCHES);
	rules_close(&received);
	rules_close(&switched);
	rules_close(&sent);
	check_eq(vb_steer_action_destroy(count), 0);
	check_eq(vb_steer_action_destroy(miss), 0);
}

struct counted {
	pthread_t thread;
	bool posting;
	unsigned int frames;
};

static void count_own(void *arg, const struct vb_frame *frame, bool sent, uint64_t ns)
{
	struct counted *c = arg;

	(void)frame;
	(void)ns;
	if (pthread_equal(pthread_self(), c->thread))
		c->frames += c->posting && sent;
}

/* Work requests that make many small frames: the doorbell returns before all are sent, as with large messages. */
static void many_segments(void)
{
	enum { REQUESTS = 16, MSS = 16, FRAMES = REQUESTS * (STATION_LARGE / MSS) };
	struct counted counted = { .thread = pthread_self() };
	struct vb_capture_sink sink = { count_own, &counted };
	struct ibv_send_wr wr[REQUESTS], *bad;
	struct station s;
	struct ibv_sge sge;
	uint8_t header[54] = { 0 };
	struct ibv_wc wc;
	uint32_t at;

	station_open_with(&s, "mlx5_0", 0, sizeof(header));
	at = put_ip4(header, put_eth(header, 0, here, there, 0x0800), 6, 1, 2, 20);
	put_tcp(header, at, 1, 2, 0x10);
	sge = (struct ibv_sge){ (uintptr_t)s.buf + (size_t)STATION_SLOTS * STATION_SLOT,
				STATION_LARGE, s.mr->lkey };
	for (int i = 0; i < REQUESTS; i++)
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < REQUESTS ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_TSO,
			.send_flags = i + 1 < REQUESTS ? 0 : IBV_SEND_SIGNALED,
			.tso = { .hdr = header, .hdr_sz = sizeof(header), .mss = MSS },
		};
	check_eq(vb_capture_open(dev_of(&s), &sink), 0);
	counted.posting = true;
	check_eq(ibv_post_send(s.qp, wr, &bad), 0);
	counted.posting = false;
	check(counted.frames && counted.frames < FRAMES, "%u frames in one call", counted.frames);
	check(cq_wait(s.send_cq, &wc, PATIENCE_MS));
	check_eq(wc.status, IBV_WC_SUCCESS);
	vb_capture_close(dev_of(&s));
	station_close(&s);
}

int main(void)
{
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	station_open(&tx, "mlx5_0");
	station_open(&rx, "mlx5_0");
	station_open(&far, "mlx5_1");
	receive_rules();
	transport_domains();
	bad_tirs();
	send_rules();
	shortened();
	switch_rules();
	multiplied();
	many_segments();
	under_traffic();
	cable();
	station_close(&far);
	station_close(&rx);
	station_close(&tx);
	return 0;
}
