// SPDX-License-Identifier: MIT
/* Command queues as programs use them: fill a queue, let it run, poll until it is empty. */
#include "check.h"

#include "cmdq.h"

extern struct flexio_app *jobs;
extern flexio_func_t row, add, churn, get_total, end_early, stumble;

static void drain(struct flexio_cmdq *q)
{
	int left = 60 * 1000;

	while (!flexio_cmdq_is_empty(q)) {
		CHECK(left-- > 0);
		usleep(1000);
	}
}

static uint64_t total(struct flexio_process *process)
{
	uint64_t value;

	OK(flexio_process_call(process, &get_total, &value));
	return value;
}

/* As public programs do: the attributes are on the stack, and one of them is never set. */
static struct flexio_cmdq *make(struct flexio_process *process, int workers, int batch)
{
	struct flexio_cmdq_attr attr;
	struct flexio_cmdq *q;

	memset(&attr, 0xa5, sizeof(attr));
	attr.workers = workers;
	attr.batch_size = batch;
	attr.state = FLEXIO_CMDQ_STATE_PENDING;
	OK(flexio_cmdq_create(process, &attr, &q));
	return q;
}

static void multiply(struct flexio_process *process)
{
	static uint32_t a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
	struct flexio_mem to = { FLEXIO_MEMTYPE_HOST, { .haddr = (uintptr_t)c } };
	struct flexio_mem from = { .mem_type = FLEXIO_MEMTYPE_DPA };
	struct flexio_cmdq *q = make(process, 6, 4);
	flexio_uintptr_t da, db;
	struct row r;

	for (unsigned int i = 0; i < SIDE; i++)
		for (unsigned int j = 0; j < SIDE; j++) {
			a[i][j] = i * 3 + j;
			b[i][j] = i ^ j * 5;
		}
	OK(flexio_copy_from_host(process, a, sizeof(a), &da));
	OK(flexio_copy_from_host(process, b, sizeof(b), &db));
	OK(flexio_buf_dev_alloc(process, sizeof(c), &from.daddr));
	for (unsigned int i = 0; i < SIDE; i++) {
		flexio_uintptr_t arg;

		r = (struct row){ da + i * sizeof(a[0]), db, from.daddr + i * sizeof(c[0]) };
		OK(flexio_copy_from_host(process, &r, sizeof(r), &arg));
		OK(flexio_cmdq_task_add(q, row, arg));
	}
	OK(flexio_cmdq_state_running(q));
	drain(q);
	OK(flexio_memcpy(process, &to, &from, sizeof(c)));
	for (unsigned int i = 0; i < SIDE; i++)
		for (unsigned int j = 0; j < SIDE; j++) {
			uint32_t sum = 0;

			for (unsigned int k = 0; k < SIDE; k++)
				sum += a[i][k] * b[k][j];
			CHECK(c[i][j] == sum);
		}
	OK(flexio_cmdq_destroy(q));
}

static void sums(struct flexio_process *process)
{
	struct flexio_cmdq *q = make(process, 8, 16);
	uint64_t want = total(process);

	OK(flexio_cmdq_state_running(q)); /* with nothing to do */
	for (uint64_t i = 0; i < 20000; i++) {
		OK(flexio_cmdq_task_add(q, i % 3 ? add : end_early, i));
		want += i;
		if (i % 5000 == 0)
			OK(flexio_cmdq_state_running(q));
	}
	drain(q);
	CHECK(total(process) == want);
	OK(flexio_cmdq_destroy(q));
}

/* Workers that are stopped in malloc leave it to others. */
static void stopped_in_malloc(struct flexio_process *process)
{
	flexio_uintptr_t word;

	OK(flexio_buf_dev_alloc(process, 8, &word));
	OK(flexio_buf_dev_memset(process, 0, 8, word));
	for (int i = 0; i < 30; i++) {
		struct flexio_cmdq *q = make(process, 3, 1);

		for (int k = 0; k < 9; k++)
			OK(flexio_cmdq_task_add(q, churn, word));
		OK(flexio_cmdq_state_running(q));
		dev_await(process, word, dev_read(process, word) + 100);
		CHECK(!flexio_cmdq_is_empty(q));
		OK(flexio_cmdq_destroy(q));
		total(process);
	}
}

int main(void)
{
	struct ibv_context *ctx = open_device();
	struct flexio_process *process;
	struct flexio_cmdq *q, *other;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	OK(flexio_process_create(ctx, jobs, NULL, &process));
	multiply(process);
	sums(process);
	stopped_in_malloc(process);

	q = make(process, 4, 2);
	other = make(process, 1, 1);
	for (int i = 0; i < 100; i++)
		OK(flexio_cmdq_task_add(q, i == 50 ? stumble : add, i == 50 ? 8 : 1));
	OK(flexio_cmdq_task_add(other, add, 1)); /* never runs: nobody shall wait for it */
	OK(flexio_cmdq_state_running(q));
	drain(q);
	drain(other);
	CHECK(flexio_err_status_get(process) == 8);
	CHECK(flexio_cmdq_state_running(other) == FLEXIO_STATUS_FATAL_ERR);
	OK(flexio_cmdq_destroy(q));
	OK(flexio_cmdq_destroy(other));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
