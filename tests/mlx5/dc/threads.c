// SPDX-License-Identifier: MIT
/*
 * Threads that each have a DCI and send to the same targets, while one target after the other is destroyed and made anew. What
 * succeeds has happened, and what fails says why; nobody waits for ever.
 */
#include "dc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { THREADS = 4, TARGETS = 3, ROUNDS = 300 };

static struct dc dc;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of targets */
static struct dc_target targets[TARGETS];
static atomic_int running = THREADS;

static struct dc_target choose(uint32_t which)
{
	struct dc_target target;

	pthread_mutex_lock(&lock);
	target = targets[which % TARGETS];
	pthread_mutex_unlock(&lock);
	return target;
}

/* Adds to a word of its own: as often as it succeeded, and not where it was refused. */
static void *initiate(void *arg)
{
	uint64_t id = (uintptr_t)arg, seed = id + 1, sum = 0, unknown = 0;
	struct dci_attr attr = dci_attr();
	struct dc own = dc;
	struct ibv_ah *ah = dc_ah(&dc, &dc.gid); /* all targets have it */
	struct dc_wr wr = { .wr_id = id,
			    .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			    .offset = 64 * id,
			    .len = 8,
			    .remote = DC_SIZE / 4 + 64 * id,
			    .swap_add = 1 };
	struct ibv_wc wc;
	struct dci dci;

	own.send_cq = ibv_create_cq(dc.ctx, 16, NULL, NULL, 0);
	check(own.send_cq != NULL);
	dci_open(&dci, &own, &attr);
	for (int i = 0; i < ROUNDS; i++) {
		struct dc_target to = choose(next_random(&seed));

		check_eq(dci_post(&dci, ah, &to, &wr), 0);
		check(cq_wait(own.send_cq, &wc, PATIENCE_MS));
		sum += wc.status == IBV_WC_SUCCESS;
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		/* A target that went may have done it. */
		check(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_RETRY_EXC_ERR);
		unknown += wc.status == IBV_WC_RETRY_EXC_ERR;
		check_eq(qp_set_state(dci.qp, IBV_QPS_RESET), 0);
		check_eq(dci_to_init(dci.qp), 0);
		check_eq(dci_to_rtr(dci.qp), 0);
		check_eq(dci_to_rts(dci.qp, &attr), 0);
	}
	check(*(uint64_t *)(dc.buf + wr.remote) - sum <= unknown);
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_cq(own.send_cq), 0);
	check_eq(ibv_destroy_ah(ah), 0);
	atomic_fetch_sub(&running, 1);
	return NULL;
}

int main(void)
{
	struct ibv_qp *dct[TARGETS];
	pthread_t thread[THREADS];
	uint64_t key = DC_KEY;

	dc_open(&dc);
	for (uint32_t i = 0; i < TARGETS; i++) {
		dct[i] = dct_open(&dc, key);
		dct_target(&dc, dct[i], key++, &targets[i]);
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		check_eq(pthread_create(&thread[i], NULL, initiate, (void *)i), 0);
	for (uint32_t i = 0; atomic_load(&running); i = (i + 1) % TARGETS) {
		struct ibv_qp *old = dct[i];

		dct[i] = dct_open(&dc, key);
		pthread_mutex_lock(&lock);
		dct_target(&dc, dct[i], key++, &targets[i]);
		pthread_mutex_unlock(&lock);
		check_eq(ibv_destroy_qp(old), 0);
		sleep_ms(20);
	}
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_join(thread[i], NULL), 0);
	for (int i = 0; i < TARGETS; i++)
		check_eq(ibv_destroy_qp(dct[i]), 0);
	dc_close(&dc);
	return 0;
}
