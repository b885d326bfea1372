// SPDX-License-Identifier: MIT
/*
 * Owns command queues: tasks that device threads, the workers, do in the background.
 *
 *	task_add --> tasks: [ f3 a ][ f4 b ][ f5 c ] --> workers:  W1 f1   W4 f2     running
 *	             in the order of their coming                 W2, W3            idle
 *
 *	          RUNNING, and there is a task                 the task is done
 *	worker: IDLE --------------------------> does a task -------------------> next task, or IDLE
 *	                                             ^------------------' batch_size tasks at most
 *
 * One invocation of a worker does up to batch_size tasks, each to its end, and each on a fresh
 * stack. Then the worker goes behind the others that are idle. Every worker is a guest thread of
 * its own, so the scheduler of the accelerator is fair to all of them, whichever queue they are of.
 *
 * Everything here is on the host and under the queue's lock: device code cannot reach it. A worker
 * is busy until vb_worker_done() has seen the end of its task, which then is not counted any more.
 * So a queue is empty only when the last task has ended.
 */
#include "api/flexio/crash.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "api/flexio/process.h"
#include "host/fault.h"

#define WORKERS_MAX (HANDLER_CHUNK * HANDLER_CHUNKS) /* threads that a process can have */
#define TASKS_FIRST 64

struct task {
	uint64_t pc, arg;
};

struct worker {
	struct guest guest; /* first */
	struct flexio_cmdq *cmdq;
	struct vb_dpa_thread *thread;
	bool busy;           /* with a task; this and below under the lock */
	unsigned int left;   /* tasks that this invocation may still begin */
	struct worker *next; /* of the idle ones */
};

struct flexio_cmdq {
	struct flexio_process *process;
	uint32_t id;
	unsigned int batch, num_workers;
	struct worker *workers;
	struct flexio_cmdq *next; /* of the process; under cmdqs_lock */
	_Atomic size_t left;      /* tasks that are not done; written under the lock */

	pthread_mutex_t lock; /* of everything below */
	bool running;         /* the state; it never goes back to pending */
	bool ended;           /* no task begins any more */
	bool told;            /* that the process has died */
	unsigned int active;  /* workers that are not idle */
	struct worker *idle, **idle_end;
	struct task *tasks; /* a ring */
	size_t size;        /* of the ring: a power of two */
	size_t first, count;
};

static _Atomic uint32_t next_id;

/* ---- tasks, under the lock ---- */

static struct task *task_at(struct flexio_cmdq *q, size_t index)
{
	return &q->tasks[(q->first + index) & (q->size - 1)];
}

static bool tasks_grow(struct flexio_cmdq *q)
{
	size_t size = q->size ? 2 * q->size : TASKS_FIRST;
	struct task *tasks =
		size <= SIZE_MAX / sizeof(*tasks) ? malloc(size * sizeof(*tasks)) : NULL;

	if (!tasks)
		return false;
	for (size_t i = 0; i < q->count; i++)
		tasks[i] = *task_at(q, i);
	free(q->tasks);
	q->tasks = tasks;
	q->size = size;
	q->first = 0;
	return true;
}

/* ---- workers, under the lock ---- */

static void idle_push(struct flexio_cmdq *q, struct worker *w)
{
	w->next = NULL;
	*q->idle_end = w;
	q->idle_end = &w->next;
}

static struct worker *idle_pop(struct flexio_cmdq *q)
{
	struct worker *w = q->idle;

	q->idle = w->next;
	if (!q->idle)
		q->idle_end = &q->idle;
	return w;
}

/* The first task of the queue, on a thread that is idle. A task begins as an RPC does. */
static int task_begin(struct worker *w)
{
	struct flexio_cmdq *q = w->cmdq;
	struct task *task = task_at(q, 0);
	int err;

	w->guest.end = END_NONE;
	ctx_put(&w->guest, os_errno, 0);
	vb_outbox_reset(&w->guest);
	vb_event_note(&w->guest.events, vb_dpa_thread_state(w->thread)->instret, EVENT_TASK, 0,
		      (uint64_t[EVENT_ARGS]){ task->pc, task->arg });
	err = vb_dpa_thread_set_call(w->thread, task->pc, &task->arg, 1);
	if (!err)
		err = vb_dpa_thread_start(w->thread);
	if (err)
		return err;
	q->first++;
	q->count--;
	w->left--;
	w->busy = true;
	return 0;
}

/*
 * Invoke idle workers as long as there are tasks. Seeing a process alive here, under the lock,
 * means that vb_cmdqs_halt() comes later and stops what is started now.
 */
static int cmdq_dispatch(struct flexio_cmdq *q)
{
	while (q->running && !q->ended && q->count && q->idle && !process_dead(q->process)) {
		struct worker *w = idle_pop(q);
		int err;

		w->left = q->batch;
		err = task_begin(w);
		if (err) {
			idle_push(q, w);
			return err;
		}
		q->active++;
	}
	return 0;
}

void vb_worker_done(struct guest *guest)
{
	struct worker *w = (struct worker *)guest;
	struct flexio_cmdq *q = w->cmdq;
	bool more;
	int err = 0;

	vb_guest_flush(guest);
	pthread_mutex_lock(&q->lock);
	w->busy = false;
	/* Release: what the task did. Pairs with flexio_cmdq_is_empty(). */
	atomic_fetch_sub_explicit(&q->left, 1, memory_order_release);
	more = w->left && q->count && !q->ended && !process_dead(q->process);
	if (more)
		err = task_begin(w);
	if (!more || err) {
		q->active--;
		idle_push(q, w);
		err = cmdq_dispatch(q);
	}
	pthread_mutex_unlock(&q->lock);
	if (err) /* not after a first start has succeeded */
		log_some(FLEXIO_LOG_LVL_ERR, "command queue %u: a worker cannot run: %s", q->id,
			 strerror(-err));
}

void vb_cmdqs_halt(struct flexio_process *process)
{
	pthread_mutex_lock(&process->cmdqs_lock);
	for (struct flexio_cmdq *q = process->cmdqs; q; q = q->next) {
		pthread_mutex_lock(&q->lock);
		for (unsigned int i = 0; i < q->num_workers; i++)
			vb_dpa_thread_halt(q->workers[i].thread);
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_unlock(&process->cmdqs_lock);
}

/* ---- create ---- */

static int worker_init(struct flexio_cmdq *q, struct worker *w, uint64_t tls)
{
	struct vb_dpa_thread_attr attr = { .user = &w->guest, .shown = &w->guest.shown };
	char name[32];
	int err;

	snprintf(name, sizeof(name), "CMDQ_%u_%u_%u", q->process->id, q->id,
		 (unsigned int)(w - q->workers));
	attr.name = name;
	err = vb_accel_check_pool(q->process->accel);
	if (!err)
		err = vb_guest_init(&w->guest, q->process, GUEST_WORKER, name, tls, 0, 0);
	if (err)
		return err;
	err = vb_dpa_thread_create(q->process->dpa, &attr, &w->thread);
	if (err) {
		vb_guest_free(&w->guest);
		return err;
	}
	w->cmdq = q;
	idle_push(q, w);
	return 0;
}

/* No thread of it runs. Works on a half-made queue. */
static void cmdq_free(struct flexio_cmdq *q)
{
	for (unsigned int i = 0; i < q->num_workers; i++) {
		struct worker *w = &q->workers[i];

		vb_windows_release(&w->guest);
		vb_dpa_thread_destroy(w->thread);
		vb_guest_free(&w->guest);
	}
	pthread_mutex_destroy(&q->lock);
	free(q->workers);
	free(q->tasks);
	free(q);
}

/*
 * Host memory at any address at all. The kernel reads it, which needs no signal; where a sandbox
 * does not allow that, it is read as other memory of programs is.
 */
static bool read_wild(void *to, const void *from, size_t size)
{
	struct iovec local = { to, size }, remote = { (void *)(uintptr_t)from, size };
	ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

	if (n < 0 && (errno == EPERM || errno == ENOSYS))
		return !vb_fault_copy(to, from, size);
	return n == (ssize_t)size;
}

/*
 * The addresses that the attribute leads to. Programs that were written before the field existed
 * leave it as it is, so it may be any address: one that cannot be read means none, like NULL.
 */
static uint64_t *cmdq_read_tls(const struct flexio_cmdq_attr *attr)
{
	size_t size = (size_t)attr->workers * sizeof(uint64_t);
	uint64_t *tls = calloc((size_t)attr->workers, sizeof(*tls));

	if (tls && attr->workers_tls_daddr && !read_wild(tls, attr->workers_tls_daddr, size))
		memset(tls, 0, size); /* what was read before it failed */
	return tls;
}

static flexio_status make_workers(struct flexio_cmdq *q, const struct flexio_cmdq_attr *attr)
{
	unsigned int wanted = (unsigned int)attr->workers;
	uint64_t *tls = cmdq_read_tls(attr);
	int err = tls ? 0 : -ENOMEM;

	q->workers = calloc(wanted, sizeof(*q->workers));
	if (!q->workers)
		err = -ENOMEM;
	while (!err && q->num_workers < wanted) {
		err = worker_init(q, &q->workers[q->num_workers], tls[q->num_workers]);
		if (!err)
			q->num_workers++;
	}
	free(tls);
	if (err)
		return fail("process %s: no device thread for worker %u of %u: %s",
			    q->process->name, q->num_workers + 1, wanted,
			    err == -ENOMEM ? "memory is full" : strerror(-err));
	return FLEXIO_STATUS_SUCCESS;
}

static flexio_status cmdq_new(struct flexio_process *process, const struct flexio_cmdq_attr *attr,
			      struct flexio_cmdq **out)
{
	struct flexio_cmdq *q = calloc(1, sizeof(*q));

	if (!q)
		return fail("process %s: no memory for a command queue", process->name);
	q->process = process;
	q->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
	q->batch = (unsigned int)attr->batch_size;
	q->running = attr->state == FLEXIO_CMDQ_STATE_RUNNING;
	q->idle_end = &q->idle;
	pthread_mutex_init(&q->lock, NULL);
	if (make_workers(q, attr) != FLEXIO_STATUS_SUCCESS || !vb_handle_add(HANDLE_CMDQ, q)) {
		cmdq_free(q);
		return failed();
	}
	pthread_mutex_lock(&process->mutex);
	process->threaded = true;
	pthread_mutex_unlock(&process->mutex);
	pthread_mutex_lock(&process->cmdqs_lock);
	q->next = process->cmdqs;
	process->cmdqs = q;
	pthread_mutex_unlock(&process->cmdqs_lock);
	*out = q;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_cmdq_create(struct flexio_process *process, struct flexio_cmdq_attr *fattr,
				 struct flexio_cmdq **cmdq)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	flexio_status status;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!fattr || !cmdq)
		return fail("%s is NULL", !fattr ? "fattr" : "cmdq");
	if (fattr->workers < 1 || fattr->workers > WORKERS_MAX)
		return fail("%d workers; there can be 1 to %d", fattr->workers, WORKERS_MAX);
	if (fattr->batch_size < 1)
		return fail("a batch_size of %d; at least one task is done at a time",
			    fattr->batch_size);
	if (fattr->state != FLEXIO_CMDQ_STATE_PENDING && fattr->state != FLEXIO_CMDQ_STATE_RUNNING)
		return fail("%u is not a state of a command queue", (unsigned int)fattr->state);
	if (process_dead(process))
		return vb_process_fail_dead(process);
	if (!vb_process_hold(process, PART_CMDQ))
		return failed();
	status = cmdq_new(process, fattr, cmdq);
	if (status != FLEXIO_STATUS_SUCCESS)
		vb_process_release(process, PART_CMDQ);
	return status;
}

/* ---- destroy ---- */

static void unlink_queue(struct flexio_cmdq *q)
{
	struct flexio_cmdq **link;

	pthread_mutex_lock(&q->process->cmdqs_lock);
	for (link = &q->process->cmdqs; *link != q; link = &(*link)->next)
		;
	*link = q->next;
	pthread_mutex_unlock(&q->process->cmdqs_lock);
}

flexio_status flexio_cmdq_destroy(struct flexio_cmdq *cmdq)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_CMDQ, cmdq);
	struct flexio_process *process;

	API_CALL();
	if (!vb_handle_end(&pin))
		return bad_handle(cmdq, "command queue");
	process = cmdq->process;
	if (vb_process_inherited(process)) {
		vb_process_release(process, PART_CMDQ);
		return FLEXIO_STATUS_SUCCESS;
	}
	unlink_queue(cmdq);
	pthread_mutex_lock(&cmdq->lock);
	cmdq->ended = true; /* from here on no worker begins a task */
	if (cmdq->count || cmdq->active)
		log_info("command queue %u: %zu tasks are dropped, %u are stopped", cmdq->id,
			 cmdq->count, cmdq->active);
	pthread_mutex_unlock(&cmdq->lock);
	for (unsigned int i = 0; i < cmdq->num_workers; i++) {
		struct worker *w = &cmdq->workers[i];

		/* Afterwards its last vb_worker_done() is over, if there is one. */
		vb_dpa_thread_stop(w->thread);
		if (w->busy && !process_dead(process))
			vb_guest_grace(&w->guest, w->thread);
	}
	cmdq_free(cmdq);
	vb_process_release(process, PART_CMDQ);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- use ---- */

flexio_status flexio_cmdq_task_add(struct flexio_cmdq *cmdq, flexio_func_t *host_func, uint64_t arg)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_CMDQ, cmdq);
	const struct func *func;
	size_t count;
	bool room;
	int err = 0;

	API_CALL();
	if (!pin)
		return bad_handle(cmdq, "command queue");
	func = vb_func_find(cmdq->process->app, host_func);
	if (!func)
		return vb_func_fail(cmdq->process->app, host_func);
	if (process_dead(cmdq->process))
		return vb_process_fail_dead(cmdq->process);
	pthread_mutex_lock(&cmdq->lock);
	count = cmdq->count;
	room = count < cmdq->size || tasks_grow(cmdq);
	if (room) {
		*task_at(cmdq, cmdq->count++) = (struct task){ func->addr, arg };
		atomic_fetch_add_explicit(&cmdq->left, 1, memory_order_relaxed);
		err = cmdq_dispatch(cmdq);
		if (err) {
			cmdq->count--;
			atomic_fetch_sub_explicit(&cmdq->left, 1, memory_order_relaxed);
		}
	}
	pthread_mutex_unlock(&cmdq->lock);
	if (!room)
		return fail("command queue %u: no memory for task %zu", cmdq->id, count + 1);
	return err ? fail("command queue %u: %s cannot run: %s", cmdq->id, func->name,
			  strerror(-err))
		   : FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_cmdq_state_running(struct flexio_cmdq *cmdq)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_CMDQ, cmdq);
	bool before;
	int err;

	API_CALL();
	if (!pin)
		return bad_handle(cmdq, "command queue");
	if (process_dead(cmdq->process))
		return vb_process_fail_dead(cmdq->process);
	pthread_mutex_lock(&cmdq->lock);
	before = cmdq->running;
	cmdq->running = true;
	err = cmdq_dispatch(cmdq);
	if (err)
		cmdq->running = before;
	pthread_mutex_unlock(&cmdq->lock);
	return err ? fail("command queue %u: its workers cannot run: %s", cmdq->id, strerror(-err))
		   : FLEXIO_STATUS_SUCCESS;
}

/* The process has died: true, as for all who poll. Says once how many tasks were not done. */
static int empty_dead(struct flexio_cmdq *q, size_t left)
{
	bool say;

	pthread_mutex_lock(&q->lock);
	say = !q->told;
	q->told = true;
	pthread_mutex_unlock(&q->lock);
	if (say)
		fail("process %s has ended, with status 0x%x: %zu tasks of command queue %u were not done",
		     q->process->name,
		     (unsigned int)atomic_load_explicit(&q->process->status, memory_order_relaxed),
		     left, q->id);
	return 1;
}

/* Takes no lock, so that a program that does nothing but ask does not hold the workers up. */
int flexio_cmdq_is_empty(struct flexio_cmdq *cmdq)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_CMDQ, cmdq);
	size_t left;

	API_CALL();
	if (!pin) {
		bad_handle(cmdq, "command queue");
		return 1; /* programs wait until it is true */
	}
	left = atomic_load_explicit(&cmdq->left, memory_order_acquire);
	if (!left)
		return 1;
	return process_dead(cmdq->process) ? empty_dead(cmdq, left) : 0;
}
