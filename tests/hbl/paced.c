// SPDX-License-Identifier: MIT
/*
 * Writes that are paced by the arrival of their data, and by nothing else: no completion is asked for or looked at. More
 * threads than cores do so, each on a queue pair of its own, and none gives its core away; so the thread that is at the
 * acknowledgement of another one's write loses its core now and then, and acknowledgements come late.
 */
#include "hbl.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS = 4, ENTRIES = 128, MESSAGES = 20000, LIMIT_S = 40 };

static struct {
	struct dev dev[2];
	struct mem mem[2];
	struct end end[THREADS][2];
	struct fifo fifo[THREADS];
	pthread_t thread[THREADS];
} s;

/* Each has a line of its own. */
static volatile uint64_t *word(int device, long i)
{
	return (uint64_t *)((char *)s.mem[device].host + i * 64);
}

static void wait_for(long i, uint64_t value)
{
	uint64_t start = now_ns();

	for (uint32_t polls = 1; *word(1, i) != value; polls++) {
		if (polls % 65536)
			continue;
		CHECK(no_event(&s.dev[0]));
		CHECK(now_ns() - start < LIMIT_S * 1000000000ull);
	}
}

static void *run(void *arg)
{
	long i = (long)arg;
	struct end *end = &s.end[i][0];

	for (uint64_t value = 1; value <= MESSAGES; value++) {
		*word(0, i) = value;
		hbl_end_post(end,
			     &(struct wqe){ .opcode = LINEAR,
					    .size = sizeof(value),
					    .local = s.mem[0].va + (uint64_t)i * 64,
					    .remote = s.mem[1].va + (uint64_t)i * 64 },
			     false);
		fifo_ring(&s.fifo[i], end->q.qp_num, hbl_end_pi(end));
		wait_for(i, value);
	}
	return NULL;
}

int main(void)
{
	for (int d = 0; d < 2; d++) {
		dev_open(&s.dev[d], d);
		mem_device(&s.mem[d], &s.dev[d], 65536);
		for (uint32_t i = 0; i < THREADS; i++) {
			set_port(&s.dev[d], i + 1);
			hbl_end_create(&s.end[i][d], &s.dev[d],
				       &(struct end_attr){ .port = i + 1, .wqes = ENTRIES });
		}
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		ends_connect(&s.end[i][0], &s.end[i][1], NULL);
		fifo_create(&s.fifo[i], &s.dev[0], i + 1, HBLDV_USR_FIFO_TYPE_DB);
	}
	for (long i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&s.thread[i], NULL, run, (void *)i));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(s.thread[i], NULL));
	for (int d = 0; d < 2; d++)
		CHECK(no_event(&s.dev[d]));
	for (int i = 0; i < THREADS; i++) {
		CHECK(!hbldv_destroy_usr_fifo(s.fifo[i].usr));
		for (int d = 0; d < 2; d++)
			hbl_end_destroy(&s.end[i][d]);
	}
	for (int d = 0; d < 2; d++) {
		mem_free(&s.mem[d]);
		dev_close(&s.dev[d]);
	}
	return 0;
}
