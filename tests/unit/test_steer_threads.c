// SPDX-License-Identifier: MIT
/*
 * Rules come and go under traffic. Readers send frames all the time; what stays must always be
 * found, what comes and goes leads to its own destination or nowhere, and nothing leads to a wrong
 * one.
 */
#include "steer_kit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/rcu.h"

enum { READERS = 3, STAYING = 64, COMING = 3000, ROUNDS = 4 };

static struct vb_steer *steer;
static _Atomic bool stop;
static _Atomic uint64_t wrong, lost, found, gone;

struct look {
	uint64_t key;
	bool seen;
};

static void check(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
		  const struct vb_steer_meta *meta)
{
	struct look *look = arg;

	if (dest->to != VB_STEER_TO_OWNER)
		return;
	look->seen = true;
	if (dest->number != look->key % 16)
		atomic_fetch_add(&wrong, 1);
}

static void *read_on(void *arg)
{
	uint64_t random = (uintptr_t)arg * 0x9e3779b97f4a7c15u + 1;
	static const struct vb_steer_meta meta;
	struct kit kit;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		struct look look;
		struct vb_frame f = { .data = kit.frame, .len = 60 };

		random = random * 6364136223846793005u + 1442695040888963407u;
		look.key = (random >> 33) % (STAYING + COMING);
		look.seen = false;
		kit_udp(&kit, look.key, 9);
		vb_frame_parse(&f);
		vb_read_lock();
		vb_steer_run(steer, &f, &meta, NULL, check, &look);
		vb_read_unlock();
		if (look.key < STAYING && !look.seen)
			atomic_fetch_add(&lost, 1);
		atomic_fetch_add(look.seen ? &found : &gone, 1);
	}
	return NULL;
}

static void rules_change_under_traffic(void **state)
{
	struct vb_steer_rule *staying[STAYING], **coming = calloc(COMING, sizeof(*coming));
	struct vb_steer_action *dest[16], *drop = kit_plain(VB_STEER_DO_DROP);
	struct vb_steer_matcher *matcher, *first;
	struct vb_steer_rule *never;
	pthread_t reader[READERS];
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	steer = kit.steer;
	matcher = kit_matcher(kit.root, 5, BIT_DMAC, 48);
	for (uint64_t i = 0; i < 16; i++)
		dest[i] = kit_dest(i);
	for (uint64_t i = 0; i < STAYING; i++)
		staying[i] = kit_rule(matcher, BIT_DMAC, 48, i, dest[i % 16]);
	for (uintptr_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&reader[i], NULL, read_on, (void *)i), 0);
	for (int round = 0; round < ROUNDS; round++) {
		/* Grows while they look; a matcher before it comes and goes. */
		first = kit_matcher(kit.root, 0, BIT_UDP_DPORT, 16);
		never = kit_rule(first, BIT_UDP_DPORT, 16, 10, drop);
		for (uint64_t i = 0; i < COMING; i++)
			coming[i] = kit_rule(matcher, BIT_DMAC, 48, STAYING + i,
					     dest[(STAYING + i) % 16]);
		vb_steer_rule_destroy(never);
		assert_int_equal(vb_steer_matcher_destroy(first), 0);
		for (uint64_t i = 0; i < COMING; i++)
			vb_steer_rule_destroy(coming[i * 7919 % COMING]);
	}
	while (atomic_load(&found) < 1000 || atomic_load(&gone) < 1000)
		sched_yield();
	atomic_store(&stop, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(reader[i], NULL);
	assert_int_equal(atomic_load(&wrong), 0);
	assert_int_equal(atomic_load(&lost), 0);
	for (int i = 0; i < STAYING; i++)
		vb_steer_rule_destroy(staying[i]);
	assert_int_equal(vb_steer_matcher_destroy(matcher), 0);
	for (int i = 0; i < 16; i++)
		assert_int_equal(vb_steer_action_destroy(dest[i]), 0);
	vb_steer_action_destroy(drop);
	kit_close(&kit);
	free(coming);
}

/* When an action's destroy has returned, nobody brings frames to what it pointed to. */
struct target {
	_Atomic bool freed;
};

static _Atomic uint64_t late;

static void touch(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
		  const struct vb_steer_meta *meta)
{
	struct target *target = dest->object;

	if (dest->to == VB_STEER_TO_OWNER && atomic_load(&target->freed))
		atomic_fetch_add(&late, 1);
	if (dest->to == VB_STEER_TO_OWNER)
		atomic_fetch_add(&found, 1);
}

static void *touch_on(void *arg)
{
	static const struct vb_steer_meta meta;
	struct kit kit;
	struct vb_frame f = { .data = kit.frame, .len = 60 };

	kit_udp(&kit, 1, 9);
	vb_frame_parse(&f);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		vb_read_lock();
		vb_steer_run(steer, &f, &meta, NULL, touch, NULL);
		vb_read_unlock();
	}
	return NULL;
}

static void actions_outlive_their_frames(void **state)
{
	enum { TARGETS = 100 };
	static struct target target[TARGETS];
	struct vb_steer_matcher *matcher;
	pthread_t reader[READERS];
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	steer = kit.steer;
	atomic_store(&stop, false);
	matcher = kit_matcher(kit.root, 0, BIT_DMAC, 48);
	for (uintptr_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&reader[i], NULL, touch_on, NULL), 0);
	for (int i = 0; i < TARGETS; i++) {
		struct vb_steer_action_attr attr = { .what = VB_STEER_DO_DEST,
						     .dest = { .object = &target[i] } };
		struct vb_steer_action *dest = kit_action(&attr);
		struct vb_steer_rule *rule = kit_rule(matcher, BIT_DMAC, 48, 1, dest);
		uint64_t before = atomic_load(&found);

		while (atomic_load(&found) == before)
			sched_yield();
		vb_steer_rule_destroy(rule);
		assert_int_equal(vb_steer_action_destroy(dest), 0);
		atomic_store(&target[i].freed, true);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(reader[i], NULL);
	assert_int_equal(atomic_load(&late), 0);
	vb_steer_matcher_destroy(matcher);
	kit_close(&kit);
}

/* Masks of Geneve fields that are not the option's do not look at what changes it. */
static void *match_vni_on(void *arg)
{
	static const uint8_t geneve[] = { 0, 0, 0x65, 0x58, 0, 0, 5, 0 };
	static const struct vb_steer_meta meta;
	struct kit kit;
	struct vb_frame f = { .data = kit.frame, .len = 60 };
	struct look look = { .key = 5 };

	kit_udp(&kit, 1, 6081);
	memcpy(kit.frame + 42, geneve, sizeof(geneve));
	vb_frame_parse(&f);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		look.seen = false;
		vb_read_lock();
		vb_steer_run(steer, &f, &meta, NULL, check, &look);
		vb_read_unlock();
		atomic_fetch_add(look.seen ? &found : &lost, 1);
	}
	return NULL;
}

static void the_geneve_option_changes_under_traffic(void **state)
{
	enum { BIT_VNI = 0x2c0, BIT_EXIST = 0x2de };
	struct vb_steer_action *dest = kit_dest(5);
	struct vb_steer_matcher *vni, *exist;
	struct vb_steer_rule *rule;
	pthread_t reader;
	struct kit kit;

	kit_open(&kit, VB_STEER_NIC_RX);
	steer = kit.steer;
	atomic_store(&stop, false);
	atomic_store(&found, 0);
	vni = kit_matcher(kit.root, 1, BIT_VNI, 24);
	rule = kit_rule(vni, BIT_VNI, 24, 5, dest);
	assert_int_equal(pthread_create(&reader, NULL, match_vni_on, NULL), 0);
	for (uint16_t i = 0; i < 1000 || atomic_load(&found) < 1000; i++) {
		assert_int_equal(vb_steer_set_geneve_option(steer, i, 1), 0);
		if (i % 100)
			continue;
		/* Readers know this mask for a while. */
		exist = kit_matcher(kit.root, 0, BIT_EXIST, 1);
		vb_steer_rule_destroy(kit_rule(exist, BIT_EXIST, 1, 1, dest));
		assert_int_equal(vb_steer_set_geneve_option(steer, i, 2), -EBUSY);
		assert_int_equal(vb_steer_matcher_destroy(exist), 0);
	}
	atomic_store(&stop, true);
	pthread_join(reader, NULL);
	assert_int_equal(atomic_load(&lost), 0);
	assert_int_equal(atomic_load(&wrong), 0);
	vb_steer_rule_destroy(rule);
	assert_int_equal(vb_steer_matcher_destroy(vni), 0);
	assert_int_equal(vb_steer_action_destroy(dest), 0);
	kit_close(&kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_change_under_traffic),
		cmocka_unit_test(actions_outlive_their_frames),
		cmocka_unit_test(the_geneve_option_changes_under_traffic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
