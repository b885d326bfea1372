// SPDX-License-Identifier: MIT
/* Cards of several hosts in one process: adapters, numbers, tables, work and time of one are not those of another. */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "bare.h"
#include "base/rcu.h"
#include "base/util.h"
#include "card/alarm.h"
#include "card/burst.h"
#include "card/deferred.h"
#include "card/ether/ether.h"
#include "card/ether/flow.h"
#include "card/fault/fault.h"
#include "card/open.h"
#include "card/queue/doorbell.h"
#include "card/queue/objects.h"
#include "control/ask/ask.h"
#include "control/ask/client.h"

static const char left_text[] =
	"[adapter mlx5_0]\naddress = 10.77.0.1\n[adapter mlx4_0]\naddress = 10.77.0.2\n";
static const char right_text[] = "[adapter mlx5_0]\naddress = 10.78.0.1\nmax_qp = 100\n";

static struct vb_card *left, *right;

static int open_both(void **state)
{
	char words[256] = "";

	(void)state;
	assert_int_equal(vb_card_open(left_text, &left, words, sizeof(words)), 0);
	assert_int_equal(vb_card_open(right_text, &right, words, sizeof(words)), 0);
	return 0;
}

static int close_both(void **state)
{
	(void)state;
	assert_int_equal(vb_card_close(left), 0);
	assert_int_equal(vb_card_close(right), 0);
	return 0;
}

static struct vb_adapter *adapter_of(struct vb_card *card, unsigned int index)
{
	struct vb_adapter *const *list;
	unsigned int count;

	assert_int_equal(vb_card_adapters(card, &list, &count), 0);
	assert_true(index < count);
	return list[index];
}

static void test_adapters(void **state)
{
	struct vb_adapter *const *list;
	unsigned int count;

	(void)state;
	assert_int_equal(vb_card_adapters(left, &list, &count), 0);
	assert_int_equal(count, 2);
	for (unsigned int i = 0; i < count; i++)
		assert_ptr_equal(list[i]->card, left);
	assert_int_equal(vb_card_adapters(right, &list, &count), 0);
	assert_int_equal(count, 1);
	assert_ptr_equal(list[0]->card, right);
	assert_int_equal(list[0]->max_qp, 100);
	/* One name, two adapters. */
	assert_string_equal(list[0]->config->name, adapter_of(left, 0)->config->name);
	assert_ptr_not_equal(adapter_of(vb_card_program(), 0)->card, left);
}

static void test_gids(void **state)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 2 } };

	(void)state;
	assert_true(vb_card_gid_is_local(left, &gid));
	assert_false(vb_card_gid_is_local(right, &gid));
	gid.raw[13] = 78;
	gid.raw[15] = 1;
	assert_false(vb_card_gid_is_local(left, &gid));
	assert_true(vb_card_gid_is_local(right, &gid));
}

static void test_numbers(void **state)
{
	(void)state;
	assert_int_equal(vb_uar_number_take(left), 1);
	assert_int_equal(vb_uar_number_take(left), 2);
	assert_int_equal(vb_uar_number_take(right), 1);
	assert_int_equal(vb_transport_domain_take(left), 1);
	assert_int_equal(vb_transport_domain_take(right), 1);
	vb_transport_domain_give(left, 1);
	vb_transport_domain_give(right, 1);
	vb_uar_number_give(left, 1);
	vb_uar_number_give(left, 2);
	vb_uar_number_give(right, 1);
}

/* A queue is found by its number on its own card alone. */
static void test_tables(void **state)
{
	struct vb_cq cq = { .number = 7 };
	struct vb_qp qp = { .number = 70 };

	(void)state;
	vb_read_lock();
	atomic_store(&left->tables.cq[7], &cq);
	atomic_store(&left->tables.qp[70], &qp);
	assert_ptr_equal(vb_cq_find(left, 7), &cq);
	assert_ptr_equal(vb_qp_find(left, 70), &qp);
	assert_null(vb_cq_find(right, 7));
	assert_null(vb_qp_find(right, 70));
	assert_null(vb_qp_find(vb_card_program(), 70));
	atomic_store(&left->tables.cq[7], NULL);
	atomic_store(&left->tables.qp[70], NULL);
	vb_read_unlock();
}

/* A port of a cable is one of the card: adapters with one GUID do not meet. */
static void test_ports(void **state)
{
	struct vb_adapter *own = adapter_of(left, 0);

	(void)state;
	assert_ptr_equal(vb_cable_port(left, own->guid), own);
	assert_ptr_not_equal(vb_cable_port(right, own->guid), own);
}

struct work {
	struct vb_deferred deferred;
	unsigned int runs;
};

static void run(struct vb_deferred *item, uint32_t due)
{
	struct work *work = container_of(item, struct work, deferred);

	(void)due;
	work->runs++;
}

static void test_deferred(void **state)
{
	struct work work = { .runs = 0 };

	(void)state;
	vb_deferred_init(&work.deferred, left, run);
	vb_read_lock();
	vb_defer(&work.deferred, 1);
	assert_int_equal(vb_deferred_pending(right, true), VB_PENDING_NONE);
	vb_deferred_run(right, true);
	assert_int_equal(work.runs, 0);
	assert_int_equal(vb_deferred_pending(left, true), VB_PENDING_RUNNABLE);
	vb_deferred_run(left, true);
	assert_int_equal(work.runs, 1);
	vb_read_unlock();
	vb_deferred_remove(&work.deferred);
}

static unsigned int looks;

static bool look(struct vb_alarm *alarm, uint64_t now, uint64_t *next)
{
	(void)alarm;
	(void)now;
	(void)next;
	looks++;
	return false;
}

static void look_at(struct vb_card *card)
{
	vb_burst_begin(card);
	vb_alarm_run(card);
	vb_burst_end();
}

static void test_alarms(void **state)
{
	struct vb_lock lock = { 0 };
	struct vb_alarm alarm = { .card = right, .lock = &lock, .look = look };

	(void)state;
	looks = 0;
	assert_true(vb_alarm_next(right) == UINT64_MAX);
	vb_read_lock();
	vb_burst_begin(right);
	vb_lock(&lock);
	vb_alarm_set(&alarm, 1);
	vb_unlock(&lock);
	vb_burst_end();
	assert_int_equal(vb_alarm_next(right), 1);
	assert_true(vb_alarm_next(left) == UINT64_MAX);
	look_at(left);
	assert_int_equal(looks, 0);
	look_at(right);
	assert_int_equal(looks, 1);
	vb_read_unlock();
	assert_true(vb_alarm_next(right) == UINT64_MAX);
}

/* Both on 127.0.0.1, which is local to each: what they send goes from slot to slot. */
static void test_talk(void **state)
{
	static const char text[] = "[adapter mlx5_0]\naddress = 127.0.0.1\n";
	struct vb_card *card[2];
	struct mlx5_wqe_data_seg *data;
	struct mlx5_cqe64 *cqe;
	struct bare bare[2];
	char words[256];

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(vb_card_open(text, &card[i], words, sizeof(words)), 0);
		assert_int_equal(bare_open_on(&bare[i], card[i], IBV_QPT_RC), 0);
		assert_int_equal(vb_card_close(card[i]), -EBUSY);
	}
	assert_int_not_equal(vb_qp_number(bare[0].qp), vb_qp_number(bare[1].qp));
	for (int i = 0; i < 2; i++)
		assert_int_equal(bare_connect_to(&bare[i], vb_qp_number(bare[1 - i].qp)), 0);
	bare_post_recv(&bare[1], (uintptr_t)bare[1].memory, 64);
	memcpy(bare[0].memory, "from host to host", 18);
	bare_ctrl(&bare[0], MLX5_OPCODE_SEND, 2, MLX5_WQE_CTRL_CQ_UPDATE);
	data = (void *)((struct mlx5_wqe_ctrl_seg *)bare_block(&bare[0]) + 1);
	data->byte_count = htobe32(18);
	data->lkey = htobe32(vb_mr_key(bare[0].mr));
	data->addr = htobe64((uintptr_t)bare[0].memory);
	bare_ring(&bare[0], 1);
	cqe = bare_wait(&bare[1]);
	assert_non_null(cqe);
	assert_int_equal(cqe->op_own >> 4, MLX5_CQE_RESP_SEND);
	assert_string_equal(bare[1].memory, "from host to host");
	cqe = bare_wait(&bare[0]);
	assert_non_null(cqe);
	assert_int_equal(cqe->op_own >> 4, MLX5_CQE_REQ);
	for (int i = 0; i < 2; i++) {
		bare_close(&bare[i]);
		assert_int_equal(vb_card_close(card[i]), 0);
	}
}

enum { LOCKS = 10 };

static void locks_of(struct vb_card *card, pthread_mutex_t *locks[LOCKS])
{
	pthread_mutex_t *all[LOCKS] = { &card->adapters.interfaces_lock,
					&card->mr.lock,
					&card->flow.lock,
					&card->tir.lock,
					&card->tap.lock,
					&card->emulation.lock,
					&card->umem_lock,
					&card->inject.lock,
					&card->inject.script_lock,
					&card->hbl.lock };

	memcpy(locks, all, sizeof(all));
}

static pthread_barrier_t locked;

/* A thread that is at each place of the card at once. */
static void *hold_locks(void *arg)
{
	pthread_mutex_t *locks[LOCKS];

	locks_of(arg, locks);
	for (unsigned int i = 0; i < LOCKS; i++)
		pthread_mutex_lock(locks[i]);
	pthread_barrier_wait(&locked);
	pthread_barrier_wait(&locked);
	for (unsigned int i = LOCKS; i-- > 0;)
		pthread_mutex_unlock(locks[i]);
	return NULL;
}

/* 0, or which one is locked for ever. */
static unsigned int stuck_lock(struct vb_card *card)
{
	pthread_mutex_t *locks[LOCKS];

	locks_of(card, locks);
	for (unsigned int i = 0; i < LOCKS; i++)
		if (pthread_mutex_trylock(locks[i]))
			return i + 1;
	return 0;
}

/* No device is open. Locks of the parent's other thread are free in a child. */
static void test_forks(void **state)
{
	struct vb_card *card[] = { vb_card_program(), left, right };

	(void)state;
	pthread_barrier_init(&locked, NULL, 2);
	for (unsigned int i = 0; i < ARRAY_SIZE(card); i++) {
		int status = -1;
		pthread_t thread;
		pid_t pid;

		assert_int_equal(pthread_create(&thread, NULL, hold_locks, card[i]), 0);
		pthread_barrier_wait(&locked);
		pid = fork();
		if (!pid)
			_exit((int)stuck_lock(card[i]));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		pthread_barrier_wait(&locked);
		pthread_join(thread, NULL);
		assert_int_equal(status, 0);
	}
	pthread_barrier_destroy(&locked);
}

/* A card that is gone is not looked at. */
static void test_forks_after_close(void **state)
{
	struct vb_card *card;
	char words[256];
	int status = -1;
	pid_t pid;

	(void)state;
	assert_int_equal(vb_card_open(left_text, &card, words, sizeof(words)), 0);
	assert_int_equal(vb_card_close(card), 0);
	pid = fork();
	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* As a tool asks this process: 0 or -errno. */
static int ask_for_fault(const char *line)
{
	struct vb_ask_process process = { .pid = getpid() };
	struct vb_ask_answer answer;
	uint32_t key;
	int fd;

	assert_int_equal(vb_ask_hold(&key), 0);
	fd = vb_ask_open(&process, "inject", line, &answer);
	vb_ask_release();
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* A tool that asks the process for a fault means the adapters that the program lists. */
static void test_faults(void **state)
{
	static const char *const how[] = { "down", "up" };
	struct vb_adapter *shown = adapter_of(vb_card_program(), 0), *other = adapter_of(left, 0);
	struct bare bare[2];
	char line[64];

	(void)state;
	assert_string_equal(shown->config->name, other->config->name);
	assert_int_equal(bare_open_on(&bare[0], left, IBV_QPT_RC), 0); /* the first slot */
	assert_int_equal(bare_open(&bare[1], IBV_QPT_RC), 0);
	for (int i = 0; i < 2; i++) {
		snprintf(line, sizeof(line), "%s port 1 %s", shown->config->name, how[i]);
		assert_int_equal(ask_for_fault(line), 0);
		assert_int_equal(vb_port_is_cut(shown, 1), i == 0);
		assert_false(vb_port_is_cut(other, 1));
	}
	bare_close(&bare[1]);
	/* The program's host listens still, and has no device. */
	assert_int_equal(ask_for_fault(line), -ENODEV);
	bare_close(&bare[0]);
}

static void test_bad_configuration(void **state)
{
	struct vb_card *card = NULL;
	char words[256] = "";

	(void)state;
	assert_int_equal(
		vb_card_open("[adapter mlx5_0]\ncolour = blue\n", &card, words, sizeof(words)),
		-EINVAL);
	assert_null(card);
	assert_non_null(strstr(words, "colour"));
	assert_non_null(strstr(words, "2"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_adapters),
		cmocka_unit_test(test_gids),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_deferred),
		cmocka_unit_test(test_alarms),
		cmocka_unit_test(test_talk),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_forks),
		cmocka_unit_test(test_forks_after_close),
		cmocka_unit_test(test_bad_configuration),
	};

	return cmocka_run_group_tests(tests, open_both, close_both);
}
