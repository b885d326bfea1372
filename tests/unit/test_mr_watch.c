// SPDX-License-Identifier: MIT
/*
 * Who keeps what a key means is told in time: before the deregistration returns, once, and never after unwatching.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "card/device.h"
#include "card/memory/keys.h"
#include "card/memory/mr.h"

static struct vb_dev *dev;
static struct vb_pd *pd, *other_pd;
static char memory[8192];

static void no_event(void *arg, const struct vb_event *event)
{
	(void)arg, (void)event;
}

static int set_up(void **state)
{
	struct vb_adapter *const *list;
	unsigned int count;

	(void)state;
	assert_int_equal(vb_card_adapters(vb_card_program(), &list, &count), 0);
	assert_int_equal(vb_dev_open(list[0], no_event, NULL, &dev), 0);
	assert_int_equal(vb_pd_alloc(dev, &pd), 0);
	assert_int_equal(vb_pd_alloc(dev, &other_pd), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(vb_pd_dealloc(pd), 0);
	assert_int_equal(vb_pd_dealloc(other_pd), 0);
	return vb_dev_close(dev);
}

static struct vb_mr *reg(void)
{
	struct vb_mr *mr;

	assert_int_equal(vb_mr_reg(pd, memory, sizeof(memory), 0x1000, IBV_ACCESS_LOCAL_WRITE, &mr),
			 0);
	return mr;
}

struct counted {
	struct vb_mr_watch watch; /* first */
	atomic_int gone, changed;
	struct vb_mr_info info;
};

static void on_changed(struct vb_mr_watch *watch, const struct vb_mr_info *info)
{
	struct counted *c = (struct counted *)watch;

	c->info = *info;
	atomic_fetch_add(&c->changed, 1);
}

static void on_gone(struct vb_mr_watch *watch)
{
	atomic_fetch_add(&((struct counted *)watch)->gone, 1);
}

static void test_info_and_refusals(void **state)
{
	struct counted c = { .watch.gone = on_gone };
	struct vb_mr_info info = { 0 };
	struct vb_mr *mr = reg();
	uint32_t key = vb_mr_key(mr);

	(void)state;
	assert_int_equal(vb_mr_watch(other_pd, key, &c.watch, &info), -EINVAL);
	assert_int_equal(vb_mr_watch(pd, key ^ 1, &c.watch, &info), -EINVAL);
	assert_int_equal(vb_mr_watch(pd, 0, &c.watch, &info), -EINVAL);
	assert_int_equal(vb_mr_watch(pd, UINT32_MAX, &c.watch, &info), -EINVAL);
	assert_null(info.addr);
	assert_int_equal(vb_mr_watch(pd, key, &c.watch, &info), 0);
	assert_ptr_equal(info.addr, memory);
	assert_int_equal(info.iova, 0x1000);
	assert_int_equal(info.length, sizeof(memory));
	assert_int_equal(info.access, IBV_ACCESS_LOCAL_WRITE);
	assert_true(vb_mr_unwatch(&c.watch));
	assert_int_equal(vb_mr_dereg(mr), 0);
	assert_int_equal(atomic_load(&c.gone), 0);
	assert_int_equal(vb_mr_watch(pd, key, &c.watch, &info), -EINVAL);
}

static void test_told_once(void **state)
{
	struct counted c[3] = { { .watch.gone = on_gone },
				{ .watch.gone = on_gone },
				{ .watch.gone = on_gone } };
	struct vb_mr *mr = reg(), *stays = reg();
	struct vb_mr_info info;

	(void)state;
	assert_int_equal(vb_mr_watch(pd, vb_mr_key(mr), &c[0].watch, &info), 0);
	assert_int_equal(vb_mr_watch(pd, vb_mr_key(stays), &c[1].watch, &info), 0);
	assert_int_equal(vb_mr_watch(pd, vb_mr_key(mr), &c[2].watch, &info), 0);
	assert_int_equal(vb_mr_dereg(mr), 0);
	assert_int_equal(atomic_load(&c[0].gone), 1);
	assert_int_equal(atomic_load(&c[1].gone), 0);
	assert_int_equal(atomic_load(&c[2].gone), 1);
	assert_false(vb_mr_unwatch(&c[0].watch));
	/* One that cannot be told of a change is told of an end. */
	assert_int_equal(vb_mr_rereg(stays, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0, 0), 0);
	assert_int_equal(atomic_load(&c[1].gone), 1);
	assert_int_equal(vb_mr_dereg(stays), 0);
	assert_int_equal(atomic_load(&c[1].gone), 1);
}

static void test_changes(void **state)
{
	struct counted c = { .watch.gone = on_gone, .watch.changed = on_changed };
	struct counted second = { .watch.gone = on_gone };
	struct vb_mr *mr = reg(), *other = reg();
	uint32_t key = vb_mr_key(mr);
	struct vb_mr_info info;

	(void)state;
	assert_int_equal(vb_mr_watch(pd, key, &c.watch, &info), 0);
	assert_int_equal(vb_mr_rereg(other, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0, 0), 0);
	assert_int_equal(atomic_load(&c.changed), 0);
	assert_int_equal(vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0, 0), 0);
	assert_int_equal(vb_mr_key(mr), key);
	assert_int_equal(atomic_load(&c.changed), 1);
	assert_int_equal(c.info.access, 0);
	assert_ptr_equal(c.info.addr, memory);
	assert_int_equal(
		vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 16, 32, 0x2000, 0),
		0);
	assert_int_equal(atomic_load(&c.changed), 2);
	assert_ptr_equal(c.info.addr, memory + 16);
	assert_int_equal(c.info.length, 32);
	assert_int_equal(c.info.iova, 0x2000);
	/* What fails changes nothing. */
	assert_int_equal(
		vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)16, 32, 0, 0),
		-EFAULT);
	assert_int_equal(
		vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0, IBV_ACCESS_ON_DEMAND),
		-EOPNOTSUPP);
	assert_int_equal(atomic_load(&c.changed), 2);
	assert_int_equal(vb_mr_watch(pd, key, &second.watch, &info), 0);
	assert_ptr_equal(info.addr, memory + 16);
	assert_int_equal(info.length, 32);
	assert_true(vb_mr_unwatch(&second.watch));
	assert_int_equal(atomic_load(&c.gone), 0);
	/* Another domain is the end, for who watches in this one. */
	assert_int_equal(vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, other_pd, NULL, 0, 0, 0), 0);
	assert_int_equal(vb_mr_key(mr), key);
	assert_int_equal(atomic_load(&c.changed), 2);
	assert_int_equal(atomic_load(&c.gone), 1);
	assert_int_equal(vb_mr_dereg(mr), 0);
	assert_int_equal(vb_mr_dereg(other), 0);
	assert_int_equal(atomic_load(&c.gone), 1);
}

enum { ROUNDS = 300 };
static _Atomic uint32_t shared_key;
static atomic_bool stop;

/* Watches whatever key is there; each watch that was taken is either told or taken back, never both, never neither. */
static void *watcher(void *arg)
{
	struct counted c = { .watch.gone = on_gone, .watch.changed = on_changed };
	struct vb_mr_info info;

	while (!atomic_load(&stop)) {
		uint32_t key = atomic_load(&shared_key);
		bool back;

		atomic_store(&c.gone, 0);
		if (!key || vb_mr_watch(pd, key, &c.watch, &info))
			continue;
		back = vb_mr_unwatch(&c.watch);
		assert_int_equal(atomic_load(&c.gone), !back);
	}
	return arg;
}

static void test_race(void **state)
{
	pthread_t thread[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, watcher, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct vb_mr *mr = reg();

		atomic_store(&shared_key, vb_mr_key(mr));
		if (i % 2)
			assert_int_equal(
				vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0, 0),
				0);
		assert_int_equal(vb_mr_dereg(mr), 0);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_info_and_refusals),
		cmocka_unit_test(test_told_once),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_race),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
