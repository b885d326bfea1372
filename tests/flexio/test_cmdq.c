// SPDX-License-Identifier: MIT
/* Command queues: tasks in order and in batches, workers side by side, states, faults, destruction in the middle of it. */
#include "bed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/device/rtos.h"

/* As in bare/device.c. */
struct job {
	uint64_t tally, number, turns;
};

struct tally {
	uint64_t done, inside, most, log, next;
};

struct shared {
	uint64_t runs, arg, seen_tls, id, how, next, hops, hold, in, continued;
};

#define AT(base, type, field) ((base) + offsetof(struct type, field))

static struct flexio_cmdq *create(struct flexio_process *process, int workers, int batch,
				  enum flexio_cmdq_state state)
{
	struct flexio_cmdq_attr attr = { workers, batch, state, NULL };
	struct flexio_cmdq *q = NULL;

	assert_ok(flexio_cmdq_create(process, &attr, &q));
	assert_non_null(q);
	return q;
}

static void await_empty(struct flexio_cmdq *q)
{
	for (unsigned int i = 0; i < 40000; i++) {
		if (flexio_cmdq_is_empty(q))
			return;
		usleep(500);
	}
	fail_msg("the queue does not become empty");
}

/* Jobs first to first + n - 1 of one tally, in device memory. */
static flexio_uintptr_t make_jobs(struct flexio_process *process, flexio_uintptr_t tally,
				  unsigned int first, unsigned int n, uint64_t turns)
{
	struct job *jobs = calloc(n, sizeof(*jobs));
	flexio_uintptr_t addr;

	assert_non_null(jobs);
	for (unsigned int i = 0; i < n; i++)
		jobs[i] = (struct job){ tally, first + i, turns };
	assert_ok(flexio_copy_from_host(process, jobs, n * sizeof(*jobs), &addr));
	free(jobs);
	return addr;
}

static void add_jobs(struct flexio_cmdq *q, flexio_uintptr_t jobs, unsigned int n)
{
	flexio_func_t *func = bed_func("job");

	for (unsigned int i = 0; i < n; i++)
		assert_ok(flexio_cmdq_task_add(q, func, jobs + i * sizeof(struct job)));
}

static flexio_uintptr_t make_tally(struct flexio_process *process, unsigned int log)
{
	flexio_uintptr_t tally = bed_alloc(process, sizeof(struct tally));

	if (log)
		bed_write(process, AT(tally, tally, log), bed_alloc(process, log * 8));
	return tally;
}

/* ---- order, batches, workers ---- */

static void test_pending(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t tally = make_tally(process, 0);
	flexio_uintptr_t jobs = make_jobs(process, tally, 1, 100, 10);
	struct flexio_cmdq *q = create(process, 4, 3, FLEXIO_CMDQ_STATE_PENDING);

	assert_true(flexio_cmdq_is_empty(q));
	add_jobs(q, jobs, 100);
	assert_false(flexio_cmdq_is_empty(q));
	usleep(20000);
	assert_int_equal(bed_read(process, AT(tally, tally, done)), 0);
	assert_ok(flexio_cmdq_state_running(q));
	await_empty(q);
	assert_int_equal(bed_read(process, AT(tally, tally, done)), 100);
	/* it stays running: more tasks, the same call again */
	for (unsigned int round = 2; round < 5; round++) {
		add_jobs(q, jobs, 100);
		assert_ok(flexio_cmdq_state_running(q));
		await_empty(q);
		assert_int_equal(bed_read(process, AT(tally, tally, done)), round * 100);
	}
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* One worker does them in the order of their coming. */
static void test_order(void **state)
{
	enum { N = 500 };
	struct flexio_process *process = bed_process();
	flexio_uintptr_t tally = make_tally(process, N);
	flexio_uintptr_t jobs = make_jobs(process, tally, 1, N, 0);
	struct flexio_cmdq *q = create(process, 1, 7, FLEXIO_CMDQ_STATE_RUNNING);
	flexio_uintptr_t log = bed_read(process, AT(tally, tally, log));

	add_jobs(q, jobs, N);
	await_empty(q);
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal((uint32_t)bed_read(process, log + i * 8), i + 1);
	assert_int_equal(bed_read(process, AT(tally, tally, most)), 1);
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* Tasks that wait for each other: as many run at a time as there are workers, and not more. */
static void test_workers(void **state)
{
	enum { WORKERS = 8 };
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_cmdq *q = create(process, WORKERS, 2, FLEXIO_CMDQ_STATE_RUNNING);
	flexio_func_t *task = bed_func("handler");

	bed_write(process, AT(s, shared, hold), 1);
	for (unsigned int i = 0; i < 3 * WORKERS; i++)
		assert_ok(flexio_cmdq_task_add(q, task, s));
	bed_await(process, AT(s, shared, in), WORKERS);
	usleep(20000);
	assert_int_equal(bed_read(process, AT(s, shared, in)), WORKERS);
	assert_false(flexio_cmdq_is_empty(q));
	bed_write(process, AT(s, shared, hold), 0);
	await_empty(q);
	assert_int_equal(bed_read(process, AT(s, shared, runs)), 3 * WORKERS);
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* The queue is not empty while its last task runs, and is right after it. */
static void test_last_task(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_cmdq *q = create(process, 2, 100, FLEXIO_CMDQ_STATE_RUNNING);
	flexio_func_t *task = bed_func("handler");

	for (uint64_t i = 1; i <= 50; i++) {
		bed_write(process, AT(s, shared, hold), 1);
		assert_ok(flexio_cmdq_task_add(q, task, s));
		bed_await(process, AT(s, shared, in), i);
		assert_false(flexio_cmdq_is_empty(q));
		bed_write(process, AT(s, shared, hold), 0);
		await_empty(q);
		assert_int_equal(bed_read(process, AT(s, shared, runs)), i);
	}
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* With a batch the invoked worker goes on; the next invocation is another worker's. */
static void test_batches(void **state)
{
	enum { BATCH = 5, N = 4 * BATCH };
	struct flexio_process *process = bed_process();
	flexio_uintptr_t tally = make_tally(process, N);
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	struct flexio_cmdq *q = create(process, 2, BATCH, FLEXIO_CMDQ_STATE_PENDING);
	flexio_uintptr_t log = bed_read(process, AT(tally, tally, log));
	uint64_t thread = 0;
	unsigned int run = 0;

	/* One worker is kept by a task, so the other one is invoked again and again. */
	bed_write(process, AT(s, shared, hold), 1);
	assert_ok(flexio_cmdq_task_add(q, bed_func("handler"), s));
	add_jobs(q, make_jobs(process, tally, 1, N, 0), N);
	assert_ok(flexio_cmdq_state_running(q));
	bed_await(process, AT(tally, tally, done), N);
	bed_write(process, AT(s, shared, hold), 0);
	await_empty(q);
	for (unsigned int i = 0; i < N; i++) {
		uint64_t entry = bed_read(process, log + i * 8);

		assert_int_equal((uint32_t)entry, i + 1);
		assert_true(!thread || entry >> 32 == thread);
		thread = entry >> 32;
	}
	/* Both are idle: the tasks of a batch are one worker's, then it is the other one's turn. */
	bed_write(process, AT(tally, tally, next), 0);
	for (unsigned int i = 0; i < 6; i++) {
		add_jobs(q, make_jobs(process, tally, 1, 1, 0), 1);
		await_empty(q);
	}
	thread = 0;
	for (unsigned int i = 0; i < 6; i++) {
		uint64_t entry = bed_read(process, log + i * 8);

		run = entry >> 32 == thread ? run + 1 : 1;
		assert_int_equal(run, 1);
		thread = entry >> 32;
	}
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

static void test_many_tasks(void **state)
{
	enum { N = 30000 };
	struct flexio_process *process = bed_process();
	flexio_uintptr_t tally = make_tally(process, 0);
	flexio_uintptr_t job = make_jobs(process, tally, 1, 1, 3);
	struct flexio_cmdq *q = create(process, 16, 64, FLEXIO_CMDQ_STATE_PENDING);
	flexio_func_t *func = bed_func("job");

	for (unsigned int i = 0; i < N; i++) {
		if (i == N / 2)
			assert_ok(flexio_cmdq_state_running(q));
		assert_ok(flexio_cmdq_task_add(q, func, job));
	}
	await_empty(q);
	assert_int_equal(bed_read(process, AT(tally, tally, done)), N);
	assert_true(bed_read(process, AT(tally, tally, most)) <= 16);
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* Each task of test_fairness waits for a turn of every EU, which is long where what interprets it is instrumented. */
#ifdef __SANITIZE_THREAD__
enum { FAIR = 2 };
#else
enum { FAIR = 20 };
#endif

/* Endless work of one queue, with all its workers, does not keep another one from its own. */
static void test_fairness(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 8), tally = make_tally(process, 0);
	struct flexio_cmdq *greedy = create(process, 300, 1000, FLEXIO_CMDQ_STATE_RUNNING);
	struct flexio_cmdq *q = create(process, 1, 1, FLEXIO_CMDQ_STATE_RUNNING);

	for (unsigned int i = 0; i < 300; i++)
		assert_ok(flexio_cmdq_task_add(greedy, bed_func("forever"), word));
	bed_await(process, word, 1000);
	add_jobs(q, make_jobs(process, tally, 1, FAIR, 5), FAIR);
	await_empty(q);
	assert_int_equal(bed_read(process, AT(tally, tally, done)), FAIR);
	assert_false(flexio_cmdq_is_empty(greedy));
	assert_ok(flexio_cmdq_destroy(greedy));
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* ---- how a task ends, and where it begins ---- */

static void test_ends(void **state)
{
	static const uint64_t how[] = { 0, VB_RTOS_RESCHEDULE, VB_RTOS_FINISH, VB_RTOS_RETRIGGER };
	struct flexio_process *process = bed_process();
	struct flexio_cmdq *q = create(process, 1, 4, FLEXIO_CMDQ_STATE_RUNNING);

	for (unsigned int round = 0; round < 3; round++)
		for (unsigned int i = 0; i < 4; i++) {
			flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));

			bed_write(process, AT(s, shared, how), how[i]);
			assert_ok(flexio_cmdq_task_add(q, bed_func("handler"), s));
			await_empty(q);
			assert_int_equal(bed_read(process, AT(s, shared, runs)), 1);
			assert_int_equal(bed_read(process, AT(s, shared, arg)), s);
		}
	assert_int_equal(flexio_err_status_get(process), 0);
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* The attribute of newer SDKs: each worker its own address; NULL and rubbish are none. */
static void test_tls(void **state)
{
	enum { WORKERS = 4 };
	struct flexio_process *process = bed_process();
	flexio_uintptr_t tls[WORKERS], word = bed_alloc(process, 8);
	struct flexio_cmdq_attr attr = { WORKERS, 1, FLEXIO_CMDQ_STATE_RUNNING, tls };
	void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	flexio_uintptr_t *const rubbish[] = { NULL, (void *)1, (void *)UINTPTR_MAX, hole,
					      (void *)0xdeadbeefdeadbeefULL };
	struct flexio_cmdq *q;

	for (unsigned int i = 0; i < WORKERS; i++)
		tls[i] = bed_alloc(process, 8);
	assert_ok(flexio_cmdq_create(process, &attr, &q));
	for (unsigned int i = 0; i < 8 * WORKERS; i++) {
		assert_ok(flexio_cmdq_task_add(q, bed_func("mark_tls"), word));
		await_empty(q);
	}
	assert_int_equal(bed_read(process, word), 8 * WORKERS);
	for (unsigned int i = 0; i < WORKERS; i++)
		assert_int_equal(bed_read(process, tls[i]), 8);
	assert_ok(flexio_cmdq_destroy(q));
	for (unsigned int i = 0; i < sizeof(rubbish) / sizeof(rubbish[0]); i++) {
		bed_write(process, word, 0);
		attr.workers_tls_daddr = rubbish[i];
		assert_ok(flexio_cmdq_create(process, &attr, &q));
		assert_ok(flexio_cmdq_task_add(q, bed_func("mark_tls"), word));
		await_empty(q);
		assert_int_equal(bed_read(process, word), 1ULL << 32);
		assert_ok(flexio_cmdq_destroy(q));
	}
	munmap(hole, 4096);
	bed_process_end(process);
}

/* ---- what is refused ---- */

static void test_refusals(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_cmdq_attr attr = { 1, 1, FLEXIO_CMDQ_STATE_PENDING, NULL }, bad;
	struct flexio_cmdq *q = (void *)16, *other;
	flexio_func_t *func = bed_func("add_one");

	assert_failed(flexio_cmdq_create(NULL, &attr, &q));
	assert_failed(flexio_cmdq_create(process, NULL, &q));
	assert_failed(flexio_cmdq_create(process, &attr, NULL));
	for (unsigned int i = 0; i < 7; i++) {
		bad = attr;
		*(i < 3   ? &bad.workers
		  : i < 5 ? &bad.batch_size
			  : (int *)&bad.state) = (int[]){ 0, -1, 1 << 20, 0, -1, 2, -1 }[i];
		assert_failed(flexio_cmdq_create(process, &bad, &q));
	}
	assert_ptr_equal(q, (void *)16);
	assert_failed(flexio_cmdq_task_add(NULL, func, 0));
	assert_failed(flexio_cmdq_task_add((struct flexio_cmdq *)process, func, 0));
	assert_failed(flexio_cmdq_state_running(NULL));
	assert_true(flexio_cmdq_is_empty(NULL)); /* nobody waits for ever */
	assert_failed(flexio_cmdq_destroy(NULL));
	assert_failed(flexio_cmdq_destroy((struct flexio_cmdq *)process));

	assert_ok(flexio_cmdq_create(process, &attr, &q));
	assert_failed(flexio_cmdq_task_add(q, NULL, 0));
	assert_failed(flexio_cmdq_task_add(q, (flexio_func_t *)test_refusals, 0));
	assert_true(flexio_cmdq_is_empty(q));
	assert_failed(flexio_process_destroy(process)); /* it has a queue */
	assert_ok(flexio_cmdq_create(process, &attr, &other));
	assert_ok(flexio_cmdq_destroy(q));
	assert_failed(flexio_cmdq_destroy(q));
	assert_failed(flexio_cmdq_task_add(q, func, 0));
	assert_failed(flexio_cmdq_state_running(q));
	assert_true(flexio_cmdq_is_empty(q));
	assert_ok(flexio_cmdq_destroy(other));
	bed_process_end(process);
}

/* More workers than device memory has room for: refused, and everything can be had again. */
static void test_exhaustion(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_cmdq_attr attr = { 16384, 1, FLEXIO_CMDQ_STATE_RUNNING, NULL };
	struct flexio_cmdq *q = (void *)16;

	for (unsigned int i = 0; i < 2; i++) {
		assert_failed(flexio_cmdq_create(process, &attr, &q));
		assert_ptr_equal(q, (void *)16);
	}
	q = create(process, 1000, 1, FLEXIO_CMDQ_STATE_RUNNING);
	assert_ok(flexio_cmdq_task_add(q, bed_func("add_one"), 0));
	await_empty(q);
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

static void test_many_queues(void **state)
{
	enum { N = 2000 };
	static struct flexio_cmdq *q[N];
	struct flexio_process *process = bed_process();
	flexio_uintptr_t tally = make_tally(process, 0);
	flexio_uintptr_t job = make_jobs(process, tally, 1, 1, 3);

	for (unsigned int i = 0; i < N; i++)
		q[i] = create(process, 1, 1, (enum flexio_cmdq_state)(i & 1));
	for (unsigned int round = 0; round < 3; round++)
		for (unsigned int i = 0; i < N; i++)
			assert_ok(flexio_cmdq_task_add(q[i], bed_func("job"), job));
	for (unsigned int i = 0; i < N; i++)
		assert_ok(flexio_cmdq_state_running(q[i]));
	for (unsigned int i = 0; i < N; i++)
		await_empty(q[i]);
	assert_int_equal(bed_read(process, AT(tally, tally, done)), 3 * N);
	for (unsigned int i = 0; i < N; i++)
		assert_ok(flexio_cmdq_destroy(q[i]));
	bed_process_end(process);
}

/* ---- ends in the middle ---- */

static void test_destroy_busy(void **state)
{
	static const char *const task[] = { "forever", "job", "handler" };
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 8), tally = make_tally(process, 0);
	flexio_uintptr_t s = bed_alloc(process, sizeof(struct shared));
	uint64_t arg[3] = { word, make_jobs(process, tally, 1, 1, 50), s };

	bed_write(process, AT(s, shared, hold), 1);
	for (unsigned int i = 0; i < 60; i++) {
		struct flexio_cmdq *q = create(process, 1 + (int)i % 5, 1 + (int)i % 3,
					       (enum flexio_cmdq_state)(i & 1));

		for (unsigned int k = 0; k < 30; k++)
			assert_ok(flexio_cmdq_task_add(q, bed_func(task[i % 3]), arg[i % 3]));
		if (i & 2)
			assert_ok(flexio_cmdq_state_running(q));
		usleep(i % 7 * 100);
		assert_ok(flexio_cmdq_destroy(q));
	}
	/* a queue that was destroyed does nothing more */
	tally = bed_read(process, word);
	usleep(20000);
	assert_int_equal(bed_read(process, word), tally);
	assert_int_equal(flexio_err_status_get(process), 0);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

/* A task faults: the process dies, and nobody who waits for a queue waits for ever. */
static void test_fault(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 8);
	struct flexio_cmdq *q = create(process, 2, 1, FLEXIO_CMDQ_STATE_RUNNING);
	struct flexio_cmdq *busy = create(process, 2, 1, FLEXIO_CMDQ_STATE_RUNNING);
	struct flexio_cmdq *pending = create(process, 1, 1, FLEXIO_CMDQ_STATE_PENDING);
	struct flexio_cmdq_attr attr = { 1, 1, FLEXIO_CMDQ_STATE_PENDING, NULL };
	struct flexio_cmdq *none;

	assert_ok(flexio_cmdq_task_add(pending, bed_func("add_one"), 0));
	for (unsigned int i = 0; i < 10; i++)
		assert_ok(flexio_cmdq_task_add(busy, bed_func("forever"), word));
	bed_await(process, word, 1);
	assert_ok(flexio_cmdq_task_add(q, bed_func("fault"), 5));
	await_empty(q);
	await_empty(busy);
	await_empty(pending);
	assert_int_equal(flexio_err_status_get(process), 6);
	assert_int_equal(flexio_cmdq_task_add(q, bed_func("add_one"), 0), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(flexio_cmdq_state_running(pending), FLEXIO_STATUS_FATAL_ERR);
	assert_int_equal(flexio_cmdq_create(process, &attr, &none), FLEXIO_STATUS_FATAL_ERR);
	assert_ok(flexio_cmdq_destroy(q));
	assert_ok(flexio_cmdq_destroy(busy));
	assert_ok(flexio_cmdq_destroy(pending));
	bed_process_end(process);
}

/* The process dies with a thousand queues at work: all of them end, and can be destroyed. */
static void test_fault_of_many(void **state)
{
	enum { N = 1000 };
	static struct flexio_cmdq *q[N];
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 8);

	for (unsigned int i = 0; i < N; i++) {
		q[i] = create(process, 1, 1, FLEXIO_CMDQ_STATE_RUNNING);
		for (unsigned int k = 0; k < 2; k++)
			assert_ok(flexio_cmdq_task_add(q[i], bed_func("forever"), word));
	}
	bed_await(process, word, 1000);
	for (unsigned int i = 0; i < N; i += 2) /* with the first ones gone already */
		if (i < N / 2)
			assert_ok(flexio_cmdq_destroy(q[i]));
	assert_int_equal(bed_call(process, "fault", 2, NULL), FLEXIO_STATUS_FATAL_ERR);
	for (unsigned int i = 0; i < N; i++) {
		if (i < N / 2 && i % 2 == 0)
			continue;
		assert_true(flexio_cmdq_is_empty(q[i]));
		assert_ok(flexio_cmdq_destroy(q[i]));
	}
	bed_process_end(process);
}

/* A program that only asks does not keep the workers from working. */
static void test_busy_poll(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t tally = make_tally(process, 0);
	flexio_uintptr_t job = make_jobs(process, tally, 1, 1, 3);
	struct flexio_cmdq *q = create(process, 3, 2, FLEXIO_CMDQ_STATE_RUNNING);

	for (uint64_t i = 1; i <= 300; i++) {
		assert_ok(flexio_cmdq_task_add(q, bed_func("job"), job));
		while (!flexio_cmdq_is_empty(q))
			;
		assert_int_equal(bed_read(process, AT(tally, tally, done)), i);
	}
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* Device code that overwrites all of its memory ends its process, not the host. */
static void test_scribble(void **state)
{
	struct flexio_process *process = bed_process();
	uint64_t here =
		bed_value(process, "context", 9); /* contexts and stacks lie behind each other */
	flexio_uintptr_t args[3];
	struct flexio_cmdq *q = create(process, 8, 2, FLEXIO_CMDQ_STATE_RUNNING);
	const uint64_t from[3] = { here + 4096, here, here & ~0xfffULL };

	for (unsigned int i = 0; i < 3; i++)
		assert_ok(flexio_copy_from_host(
			process, (uint64_t[]){ from[i], here + (64U << 20) }, 16, &args[i]));
	for (unsigned int i = 0; i < 30; i++)
		if (flexio_cmdq_task_add(q, bed_func("scribble"), args[i % 3]))
			break;
	await_empty(q);
	assert_true(flexio_err_status_get(process) != 0);
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

struct adder {
	pthread_t thread;
	struct flexio_process *process;
	struct flexio_cmdq *q;
	flexio_func_t *func;
	uint64_t arg;
	unsigned int n, added;
	_Atomic int *stop;
};

static void *add_loop(void *arg)
{
	struct adder *a = arg;

	while (a->added < a->n && !(a->stop && *a->stop)) {
		if (flexio_cmdq_task_add(a->q, a->func, a->arg) != FLEXIO_STATUS_SUCCESS)
			break;
		a->added++;
	}
	return NULL;
}

/* Several host threads add to one queue. */
static void test_threads(void **state)
{
	enum { THREADS = 4, N = 2000 };
	struct flexio_process *process = bed_process();
	flexio_uintptr_t tally = make_tally(process, 0);
	flexio_uintptr_t job = make_jobs(process, tally, 1, 1, 1);
	struct flexio_cmdq *q = create(process, 5, 3, FLEXIO_CMDQ_STATE_RUNNING);
	struct adder a[THREADS];

	for (unsigned int i = 0; i < THREADS; i++) {
		a[i] = (struct adder){ .q = q, .func = bed_func("job"), .arg = job, .n = N };
		assert_int_equal(pthread_create(&a[i].thread, NULL, add_loop, &a[i]), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(a[i].thread, NULL);
		assert_int_equal(a[i].added, N);
	}
	await_empty(q);
	assert_int_equal(bed_read(process, AT(tally, tally, done)), THREADS * N);
	assert_ok(flexio_cmdq_destroy(q));
	bed_process_end(process);
}

/* A queue, or the process, ends while other threads add to it and its tasks run. */
static void test_end_in_storm(void **state)
{
	for (unsigned int round = 0; round < 20; round++) {
		struct flexio_process *process = bed_process();
		flexio_uintptr_t tally = make_tally(process, 0);
		flexio_uintptr_t job = make_jobs(process, tally, 1, 1, 20);
		struct flexio_cmdq *q = create(process, 4, 2, FLEXIO_CMDQ_STATE_RUNNING);
		struct adder a[2];
		_Atomic int stop = 0;

		for (unsigned int i = 0; i < 2; i++) {
			a[i] = (struct adder){ .q = q,
					       .func = bed_func("job"),
					       .arg = job,
					       .n = 100000,
					       .stop = &stop };
			assert_int_equal(pthread_create(&a[i].thread, NULL, add_loop, &a[i]), 0);
		}
		bed_await(process, AT(tally, tally, done), 1);
		if (round & 1) {
			assert_int_equal(bed_call(process, "fault", 2, NULL),
					 FLEXIO_STATUS_FATAL_ERR);
			await_empty(q);
		}
		stop = round & 2;
		assert_ok(flexio_cmdq_destroy(q));
		stop = 1;
		for (unsigned int i = 0; i < 2; i++)
			pthread_join(a[i].thread, NULL);
		assert_int_equal(flexio_err_status_get(process), round & 1 ? 3 : 0);
		bed_process_end(process);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pending),       cmocka_unit_test(test_order),
		cmocka_unit_test(test_workers),       cmocka_unit_test(test_last_task),
		cmocka_unit_test(test_batches),       cmocka_unit_test(test_many_tasks),
		cmocka_unit_test(test_fairness),      cmocka_unit_test(test_ends),
		cmocka_unit_test(test_tls),           cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_exhaustion),    cmocka_unit_test(test_many_queues),
		cmocka_unit_test(test_destroy_busy),  cmocka_unit_test(test_fault),
		cmocka_unit_test(test_fault_of_many), cmocka_unit_test(test_busy_poll),
		cmocka_unit_test(test_scribble),      cmocka_unit_test(test_threads),
		cmocka_unit_test(test_end_in_storm),
	};

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
