// SPDX-License-Identifier: MIT
/*
 * Owns guest threads: their memory, their states, and what their ecalls and traps lead to.
 *
 *          start               an EU takes it            return, exit, trap, stop
 *   IDLE -------> HANDED, READY --------------> RUNNING -------------------------> IDLE
 *    |                 ^  ^---- slice over, yield --'  |                             ^
 *    |                 `---------- wake ---------- BLOCKED  (ecall answered BLOCK)   |
 *    `--- run, call: RUNNING on the caller's host thread ----------------------------'
 *
 * While a debugger holds a thread (debug.c), HELD stands in the place of READY, or of RUNNING on a
 * caller's host thread.
 *
 * States change under dpa.lock, with two exceptions that keep the lock away from the fast paths:
 * the one controlling caller takes a thread out of IDLE, and a lent one back to it. While RUNNING,
 * the cpu belongs to the host thread that runs it.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/record/timeline.h"

/*
 * Acquire: pairs with the release of vb_thread_idle and lent_idle, so that what ran has been seen.
 */
static bool is_idle(const struct vb_dpa_thread *thread)
{
	return atomic_load_explicit(&thread->state, memory_order_acquire) == THREAD_IDLE;
}

/* ---- memory of a thread ---- */

/* RISC-V uses TLS variant I without a header: tp points to the thread's copy of the TLS segment. */
static int make_tls(struct vb_dpa_thread *thread)
{
	const struct elf_program *program = &thread->process->program;
	struct space *space = &thread->process->space;
	int err;

	if (!program->tls_memsz)
		return 0;
	err = vb_space_map(space, &thread->tls_addr, program->tls_memsz + program->tls_align,
			   VB_DPA_READ | VB_DPA_WRITE, 0);
	if (err)
		return err;
	thread->tls_len = program->tls_memsz + program->tls_align;
	thread->tp = (thread->tls_addr + program->tls_align - 1) & ~(program->tls_align - 1);
	/* On error thread_free gives the memory back. */
	return vb_space_read(space, program->tls_addr, space->base + thread->tp,
			     program->tls_filesz);
}

/* size 0: as the process has it. */
static int make_stack(struct vb_dpa_thread *thread, uint64_t size)
{
	const struct vb_dpa_process *process = thread->process;
	struct space *space = &thread->process->space;

	thread->stack_spare = size ? 0 : process->stack_spare;
	thread->stack_size = size ? size : process->stack_size;
	if (thread->stack_size > space->limit)
		return -EINVAL;
	thread->stack_size = (thread->stack_size + space->page - 1) & ~(space->page - 1);
	return vb_space_map(space, &thread->stack_addr, thread->stack_size,
			    VB_DPA_READ | VB_DPA_WRITE, thread->stack_spare / space->page + 1);
}

/*
 * The first use of what lies below the stack: from here on that is a part of it. False: the address
 * is not there.
 */
static bool goes_beyond(struct vb_dpa_thread *thread, uint64_t addr)
{
	uint64_t spare = thread->stack_spare, size = thread->stack_size;
	const struct vb_dpa_ops *ops = thread->process->ops;

	if (thread->stack_addr - addr - 1 >= spare ||
	    vb_space_open(&thread->process->space, thread->stack_addr - spare, spare))
		return false;
	thread->stack_spare = 0;
	thread->stack_addr -= spare;
	thread->stack_size += spare;
	if (ops && ops->beyond)
		ops->beyond(thread, size, thread->process->ops_arg);
	return true;
}

/* A trap that is such a use: the instruction is made again. */
static bool trap_goes_beyond(struct vb_dpa_thread *thread)
{
	struct vb_dpa_state *s = &thread->cpu.s;

	if ((s->cause != VB_DPA_CAUSE_LOAD && s->cause != VB_DPA_CAUSE_STORE) ||
	    !goes_beyond(thread, s->tval))
		return false;
	s->cause = 0;
	s->tval = 0;
	return true;
}

static int copy_group(struct vb_dpa_thread *thread, const struct vb_dpa_thread_attr *attr)
{
	unsigned int neus = thread->process->dpa->neus;
	const unsigned int *group =
		attr->affinity == VB_DPA_AFFINITY_STRICT ? &attr->eu : attr->group;
	unsigned int n = attr->affinity == VB_DPA_AFFINITY_STRICT ? 1 : attr->group_size;

	thread->affinity = attr->affinity;
	if (attr->affinity == VB_DPA_AFFINITY_NONE)
		return 0;
	if (attr->affinity > VB_DPA_AFFINITY_GROUP || !group || !n || n > neus)
		return -EINVAL;
	for (unsigned int i = 0; i < n; i++)
		if (group[i] >= neus)
			return -EINVAL;
	thread->group = malloc(n * sizeof(*group));
	if (!thread->group)
		return -ENOMEM;
	memcpy(thread->group, group, n * sizeof(*group));
	thread->group_size = n;
	return 0;
}

static void thread_free(struct vb_dpa_thread *thread)
{
	struct space *space = &thread->process->space;

	if (thread->stack_addr)
		vb_check_forget(thread->process, thread->stack_addr, thread->stack_size);
	if (thread->stack_addr) /* with the guard page, so that both can be used again */
		vb_space_unmap(space, thread->stack_addr - thread->stack_spare - space->page,
			       thread->stack_size + thread->stack_spare + space->page);
	if (thread->tls_addr)
		vb_space_unmap(space, thread->tls_addr, thread->tls_len);
	pthread_cond_destroy(&thread->changed);
	free(thread->group);
	free(thread);
}

static void reset_registers(struct vb_dpa_thread *thread)
{
	struct vb_dpa_state *s = &thread->cpu.s;

	memset(s->x, 0, sizeof(s->x));
	s->x[1] = VB_CPU_RETURN_PC;
	s->x[2] = thread->stack_addr + thread->stack_size;
	s->x[3] = thread->process->global_pointer;
	s->x[4] = thread->tp;
	thread->cpu.reserved_addr = ~0ULL;
}

int vb_dpa_thread_create(struct vb_dpa_process *process, const struct vb_dpa_thread_attr *attr,
			 struct vb_dpa_thread **thread)
{
	static const struct vb_dpa_thread_attr defaults;
	struct vb_dpa_thread *t;
	int err;

	attr = attr ? attr : &defaults;
	/* aligned_alloc: the windows' table and the counters start on a cache line of their own */
	t = aligned_alloc(64, (sizeof(*t) + 63) & ~63UL);
	if (!t)
		return -ENOMEM;
	memset(t, 0, sizeof(*t));
	t->process = process;
	vb_cpu_init(&t->cpu, &process->text, process->space.base, process->space.limit);
	t->cpu.thread = t;
	t->check.why = VB_DPA_WHY_TRAP;
	t->cpu.source = (struct vb_access_source){ vb_window_find, process };
	t->cpu.deterministic = process->dpa->deterministic;
	t->user = attr->user;
	t->shown = attr->shown;
	vb_shown_counting_begin(&t->counting, t->shown);
	snprintf(t->name, sizeof(t->name), "%s", attr->name ? attr->name : "");
	pthread_cond_init(&t->changed, NULL);
	err = copy_group(t, attr);
	if (!err)
		err = make_stack(t, attr->stack_size);
	if (!err)
		err = make_tls(t);
	if (err) {
		thread_free(t);
		return err;
	}
	reset_registers(t);
	pthread_mutex_lock(&process->cpus_lock);
	t->number = ++process->last_number;
	t->link = process->cpus_end;
	*t->link = &t->cpu;
	process->cpus_end = &t->cpu.next;
	atomic_store_explicit(&t->cpu.stop, process->held, memory_order_relaxed);
	pthread_mutex_unlock(&process->cpus_lock);
	*thread = t;
	return 0;
}

/* Windows that only this thread saw go with it. */
static void destroy_windows(struct vb_dpa_thread *thread)
{
	struct vb_dpa_process *process = thread->process;
	struct vb_dpa_window *w;

	do {
		pthread_mutex_lock(&process->lock);
		for (w = process->windows; w && w->thread != thread; w = w->next)
			;
		pthread_mutex_unlock(&process->lock);
		if (w)
			vb_dpa_window_destroy(w);
	} while (w);
}

/*
 * Under dpa.lock, which a thread that is cancelled here would keep: it goes on. until: in the
 * card's time.
 */
static int wait_changed(struct vb_dpa_thread *thread, uint64_t until)
{
	pthread_mutex_t *lock = &thread->process->dpa->lock;
	int err, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	err = vb_cond_wait_until(vb_time_card(), &thread->changed, lock, until);
	pthread_setcancelstate(cancel, NULL);
	return err;
}

int vb_dpa_thread_destroy(struct vb_dpa_thread *thread)
{
	struct vb_dpa_process *process = thread->process;
	bool idle;

	pthread_mutex_lock(&process->dpa->lock);
	while (is_idle(thread) && thread->finishing)
		wait_changed(thread, VB_NEVER);
	idle = is_idle(thread);
	pthread_mutex_unlock(&process->dpa->lock);
	if (!idle)
		return -EBUSY;
	destroy_windows(thread);
	pthread_mutex_lock(&process->cpus_lock);
	*thread->link = thread->cpu.next;
	if (thread->cpu.next)
		thread->cpu.next->thread->link = thread->link;
	else
		process->cpus_end = thread->link;
	pthread_mutex_unlock(&process->cpus_lock);
	thread_free(thread);
	return 0;
}

/* ---- executing ---- */

/* Act on the answer to an ecall. True: the thread goes on. */
static bool after_ecall(struct vb_dpa_thread *thread, enum vb_dpa_action action, uint64_t pc,
			enum vb_dpa_why *why, bool *yielded)
{
	struct vb_dpa_state *s = &thread->cpu.s;

	if (action != VB_DPA_TRAP) {
		s->instret++;
		if (s->pc == pc)
			s->pc += 4;
	}
	switch (action) {
	case VB_DPA_CONTINUE:
		return true;
	case VB_DPA_YIELD:
		*yielded = true;
		*why = VB_DPA_WHY_BUDGET;
		return false;
	case VB_DPA_BLOCK:
		*why = VB_DPA_WHY_BLOCK;
		return false;
	case VB_DPA_EXIT:
		*why = VB_DPA_WHY_EXIT;
		return false;
	default:
		s->cause = VB_DPA_CAUSE_ECALL;
		s->tval = 0;
		*why = VB_DPA_WHY_TRAP;
		return false;
	}
}

static enum vb_dpa_why dpa_thread_run_cpu(struct vb_dpa_thread *thread, uint64_t max, bool exact,
					  bool *yielded)
{
	const struct vb_dpa_ops *ops = thread->process->ops;
	struct vb_dpa_state *s = &thread->cpu.s;
	uint64_t start = s->instret, pc;
	enum vb_dpa_action action;
	enum vb_dpa_why why;

	for (;;) {
		/* Acquire: the observed text. Pairs with vb_observe(). */
		thread->cpu.text =
			atomic_load_explicit(&thread->process->run_text, memory_order_acquire);
		switch (vb_cpu_run(&thread->cpu, max - (s->instret - start), exact)) {
		case VB_CPU_BUDGET:
			return VB_DPA_WHY_BUDGET;
		case VB_CPU_STOPPED:
			return VB_DPA_WHY_STOP;
		case VB_CPU_RETURN:
			return VB_DPA_WHY_RETURN;
		case VB_CPU_TRAP:
			if (!trap_goes_beyond(thread))
				return VB_DPA_WHY_TRAP;
			break;
		case VB_CPU_SEEN:
			if (thread->cpu.seen_by == OBSERVE_CHECK) {
				/* Of a trap, which it is most often, cause and tval are set. */
				why = thread->check.why;
				thread->check.why = VB_DPA_WHY_TRAP;
				return why;
			}
			if (vb_debug_seen(thread))
				return VB_DPA_WHY_STOP;
			break;
		case VB_CPU_ECALL:
			pc = s->pc;
			/* It may name a buffer of a frame that nothing has touched. */
			goes_beyond(thread, s->x[2]);
			if (thread->process->check)
				vb_check_ecall(thread);
			action = ops && ops->ecall ? ops->ecall(thread, s, thread->process->ops_arg)
						   : VB_DPA_TRAP;
			if (!after_ecall(thread, action, pc, &why, yielded))
				return why;
			break;
		}
	}
}

/* Some microseconds of guest code: how long what it polls for may wait to be brought. */
#define POLL_PIECE 10000

static enum vb_dpa_why slice_run_polling(struct vb_dpa_thread *thread, uint64_t max, bool exact,
					 bool *yielded)
{
	const struct vb_dpa *dpa = thread->process->dpa;
	uint64_t start = thread->cpu.s.instret, left;
	enum vb_dpa_why why;

	for (;;) {
		left = max - (thread->cpu.s.instret - start);
		why = left > POLL_PIECE ? dpa_thread_run_cpu(thread, POLL_PIECE, false, yielded)
					: dpa_thread_run_cpu(thread, left, exact, yielded);
		if (why != VB_DPA_WHY_BUDGET || *yielded || left <= POLL_PIECE)
			return why;
		dpa->poll(dpa->poll_arg);
	}
}

static enum vb_dpa_why slice_run_free(struct vb_dpa_thread *thread, uint64_t max, bool exact,
				      bool *yielded)
{
	return thread->process->dpa->poll ? slice_run_polling(thread, max, exact, yielded)
					  : dpa_thread_run_cpu(thread, max, exact, yielded);
}

/* The same, but at the thread's bound it traps. */
static enum vb_dpa_why slice_run_bounded(struct vb_dpa_thread *thread, uint64_t max, bool exact,
					 bool *yielded)
{
	struct vb_dpa_state *s = &thread->cpu.s;
	enum vb_dpa_why why;

	if (s->instret < thread->bound) {
		if (max > thread->bound - s->instret)
			max = thread->bound - s->instret;
		why = slice_run_free(thread, max, exact, yielded);
		if (why != VB_DPA_WHY_BUDGET || s->instret < thread->bound)
			return why;
	}
	*yielded = false;
	s->cause = VB_DPA_CAUSE_WATCHDOG;
	s->tval = 0;
	return VB_DPA_WHY_TRAP;
}

static enum vb_dpa_why dpa_thread_pass(struct vb_dpa_thread *thread, uint64_t max, bool exact,
				       bool *yielded)
{
	return thread->bound ? slice_run_bounded(thread, max, exact, yielded)
			     : slice_run_free(thread, max, exact, yielded);
}

enum vb_dpa_why vb_thread_pass(struct vb_dpa_thread *thread, uint64_t max, bool exact,
			       bool *yielded)
{
	return __builtin_expect(thread->process->samples != NULL, 0)
		       ? vb_sample_pass(thread, max, exact, yielded, dpa_thread_pass)
		       : dpa_thread_pass(thread, max, exact, yielded);
}

enum vb_dpa_why vb_thread_trap(struct vb_dpa_thread *thread)
{
	const struct vb_dpa_ops *ops = thread->process->ops;

	thread->traps++;
	thread->diverted = false;
	if (ops && ops->trap)
		ops->trap(thread, &thread->cpu.s, thread->process->ops_arg);
	return thread->diverted ? VB_DPA_WHY_BUDGET : VB_DPA_WHY_TRAP;
}

static __attribute__((noinline, cold)) void note_slice(const struct vb_dpa_thread *thread,
						       uint64_t from, uint64_t instructions)
{
	vb_timeline_write(&(struct vb_note){ .kind = VB_NOTE_SLICE,
					     .object = thread->eu,
					     .name = vb_timeline_name(thread->name),
					     .code = thread->process->number,
					     .time = from,
					     .duration = vb_timeline_now() - from,
					     .value = vb_note_run(thread->number, instructions) });
}

/* Of a slice that vb_shown_wanted(). Inline: an empty call is not much longer than its slice. */
static inline void show_begin(struct vb_dpa_thread *thread, struct show *show, uint64_t state,
			      uint64_t ticks)
{
	if (likely(!vb_shown_traces(state)))
		vb_shown_begin(&thread->counting, state);
	else
		vb_show_in(thread, show, state, ticks);
}

static inline void show_end(struct vb_dpa_thread *thread, struct show *show, uint64_t state,
			    uint64_t ticks, uint64_t retired)
{
	if (unlikely(thread->cpu.deterministic))
		ticks = retired;
	if (likely(!vb_shown_traces(state)))
		vb_shown_count(&thread->counting, ticks, retired, !thread->begun);
	else
		vb_show_out(thread, show, ticks, retired);
}

enum vb_dpa_why vb_thread_run_slice(struct vb_dpa_thread *thread, uint64_t max, bool exact,
				    bool *yielded)
{
	uint64_t start = vb_ticks(), instret = thread->cpu.s.instret, ticks;
	uint64_t from = vb_timeline_is_on() ? vb_timeline_now() : 0;
	enum vb_dpa_why why;
	struct show show;
	uint64_t state;
	bool shown = vb_shown_wanted(&thread->counting, &state);

	if (unlikely(shown))
		show_begin(thread, &show, state, start);
	*yielded = false;
	/* seq_cst: behind dpa_thread_claim(), against the store and the load in snapshot.c. */
	if (__builtin_expect(atomic_load_explicit(&thread->snapshot, memory_order_seq_cst) != NULL,
			     0))
		vb_snapshot_answer(thread);
	if (__builtin_expect(atomic_load_explicit(&thread->ordered, memory_order_relaxed), 0)) {
		why = vb_debug_run_slice(thread, max, exact, yielded);
	} else {
		why = vb_thread_pass(thread, max, exact, yielded);
		if (why == VB_DPA_WHY_TRAP)
			why = vb_debug_trap(thread) ? VB_DPA_WHY_STOP : vb_thread_trap(thread);
	}
	thread->slices++;
	ticks = vb_ticks() - start;
	thread->busy_ticks += ticks;
	if (unlikely(shown))
		show_end(thread, &show, state, ticks, thread->cpu.s.instret - instret);
	thread->begun = true;
	if (unlikely(from))
		note_slice(thread, from, thread->cpu.s.instret - instret);
	return why;
}

/* ---- states ---- */

void vb_thread_idle(struct vb_dpa_thread *thread, enum vb_dpa_why why)
{
	thread->why = why;
	thread->lent = false;
	atomic_store_explicit(&thread->stop, false, memory_order_relaxed);
	atomic_store_explicit(&thread->cpu.stop, vb_debug_holds(thread), memory_order_relaxed);
	vb_debug_out(thread);
	if (why == VB_DPA_WHY_STOP)
		vb_debug_forget(thread);
	atomic_store_explicit(&thread->state, THREAD_IDLE, memory_order_release);
	pthread_cond_broadcast(&thread->changed);
}

void vb_thread_done(struct vb_dpa_thread *thread, enum vb_dpa_why why)
{
	const struct vb_dpa_ops *ops = thread->process->ops;
	struct vb_dpa *dpa = thread->process->dpa;

	if (ops && ops->done)
		ops->done(thread, why, thread->process->ops_arg);
	pthread_mutex_lock(&dpa->lock);
	thread->finishing--;
	pthread_cond_broadcast(&thread->changed);
	pthread_mutex_unlock(&dpa->lock);
}

/* Out of IDLE, by the controlling caller. */
static int dpa_thread_claim(struct vb_dpa_thread *thread, enum thread_state to)
{
	enum thread_state idle = THREAD_IDLE;

	/* seq_cst: with the load of the snapshot in vb_thread_run_slice(). */
	if (!atomic_compare_exchange_strong_explicit(&thread->state, &idle, to,
						     memory_order_seq_cst, memory_order_relaxed))
		return -EBUSY;
	/*
	 * A debugger sets cpu.stop and looks at the state then: one of us sees the other, and later
	 * looks at cpu.stop see no older value. One that goes to an EU meets it under dpa.lock.
	 */
	if (to == THREAD_RUNNING)
		(void)atomic_load_explicit(&thread->cpu.stop, memory_order_seq_cst);
	thread->starts++;
	thread->check.sp = thread->cpu.s.x[2];
	thread->check.sp_loaded = false;
	return 0;
}

static int set_call(struct vb_dpa_thread *thread, uint64_t pc, const uint64_t *args,
		    unsigned int nargs)
{
	if (nargs > 8 || (nargs && !args))
		return -EINVAL;
	reset_registers(thread);
	for (unsigned int i = 0; i < nargs; i++)
		thread->cpu.s.x[10 + i] = args[i];
	thread->entry = pc;
	thread->cpu.s.pc = pc;
	thread->cpu.s.cause = VB_DPA_CAUSE_NONE;
	thread->cpu.s.tval = 0;
	return 0;
}

int vb_dpa_thread_set_call(struct vb_dpa_thread *thread, uint64_t pc, const uint64_t *args,
			   unsigned int nargs)
{
	int err = is_idle(thread) ? set_call(thread, pc, args, nargs) : -EBUSY;

	if (!err) {
		thread->bound = 0;
		thread->begun = false;
	}
	return err;
}

int vb_dpa_thread_divert(struct vb_dpa_thread *thread, uint64_t pc, const uint64_t *args,
			 unsigned int nargs, uint64_t max)
{
	uint64_t instret = thread->cpu.s.instret;
	int err = set_call(thread, pc, args, nargs);

	if (err)
		return err;
	thread->check.sp = thread->cpu.s.x[2];
	thread->check.sp_loaded = false;
	thread->bound = max < UINT64_MAX - instret ? instret + max : 0;
	thread->diverted = true;
	return 0;
}

void vb_dpa_thread_stack(const struct vb_dpa_thread *thread, struct vb_dpa_stack *out)
{
	*out = (struct vb_dpa_stack){ thread->stack_addr, thread->stack_size,
				      thread->stack_spare + thread->process->space.page };
}

void vb_dpa_thread_tls(const struct vb_dpa_thread *thread, struct vb_dpa_range *out)
{
	*out = (struct vb_dpa_range){ thread->tls_addr, thread->tls_len, 0 };
}

int vb_dpa_thread_start(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;
	unsigned int last = atomic_load_explicit(&thread->last, memory_order_relaxed);
	int err;

	/* The two lines that a start takes from the host thread that ran it last: both at once. */
	__builtin_prefetch(&thread->state, 1);
	__builtin_prefetch(&dpa->workers[last].box, 1);
	err = vb_sched_workers(dpa);
	if (!err)
		err = dpa_thread_claim(thread, THREAD_HANDED);
	if (!err)
		vb_sched_hand(thread);
	return err;
}

void vb_dpa_thread_wake(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;
	bool hand = false;

	pthread_mutex_lock(&dpa->lock);
	if (atomic_load_explicit(&thread->state, memory_order_relaxed) != THREAD_BLOCKED) {
		thread->wake = true;
	} else if (thread->lent) {
		atomic_store_explicit(&thread->state, THREAD_RUNNING, memory_order_relaxed);
		pthread_cond_broadcast(&thread->changed);
	} else {
		atomic_store_explicit(&thread->state, THREAD_HANDED, memory_order_relaxed);
		hand = true;
	}
	pthread_mutex_unlock(&dpa->lock);
	if (hand)
		vb_sched_hand(thread);
}

/* Under dpa.lock. A thread on its way to an EU, or on one, sees the request there. */
static void request_stop(struct vb_dpa_thread *thread)
{
	enum thread_state state = atomic_load_explicit(&thread->state, memory_order_relaxed);

	if (state == THREAD_READY) {
		vb_sched_remove(thread);
		vb_thread_idle(thread, VB_DPA_WHY_STOP);
	} else if ((state == THREAD_BLOCKED || state == THREAD_HELD) && !thread->lent) {
		vb_thread_idle(thread, VB_DPA_WHY_STOP);
	} else if (state != THREAD_IDLE) {
		atomic_store_explicit(&thread->stop, true, memory_order_relaxed);
		atomic_store_explicit(&thread->cpu.stop, true, memory_order_relaxed);
		pthread_cond_broadcast(&thread->changed);
	}
}

/*
 * Until it is idle and its done callback is over. Under dpa.lock; 0 or an error number. A lent
 * thread becomes idle without the lock and looks for waiters afterwards: we count first and look
 * then, in one total order with it, so one of the two sees the other. until: in the card's time.
 *
 * stop: it is asked to stop. Its caller may begin to run it at any time, without the lock, so it is
 * asked again before each wait: a new run would not see the stop request.
 */
static int dpa_thread_wait_idle(struct vb_dpa_thread *thread, bool stop, uint64_t until)
{
	int err = 0;

	atomic_fetch_add(&thread->waiters, 1);
	while (!err && (atomic_load(&thread->state) != THREAD_IDLE || thread->finishing)) {
		if (stop && !atomic_load_explicit(&thread->stop, memory_order_relaxed))
			request_stop(thread);
		if (atomic_load(&thread->state) != THREAD_IDLE || thread->finishing)
			err = wait_changed(thread, until);
	}
	atomic_fetch_sub(&thread->waiters, 1);
	return err;
}

void vb_dpa_thread_halt(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;

	pthread_mutex_lock(&dpa->lock);
	request_stop(thread);
	pthread_mutex_unlock(&dpa->lock);
}

int vb_dpa_thread_stop(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;

	pthread_mutex_lock(&dpa->lock);
	dpa_thread_wait_idle(thread, true, VB_NEVER);
	/* A lent thread may have ended by itself, without having seen the request. */
	if (is_idle(thread)) {
		atomic_store_explicit(&thread->stop, false, memory_order_relaxed);
		atomic_store_explicit(&thread->cpu.stop, vb_debug_holds(thread),
				      memory_order_relaxed);
	}
	pthread_mutex_unlock(&dpa->lock);
	return 0;
}

void vb_dpa_thread_preempt(struct vb_dpa_thread *thread)
{
	atomic_store_explicit(&thread->cpu.stop, true, memory_order_relaxed);
}

int vb_dpa_thread_wait(struct vb_dpa_thread *thread, int64_t timeout_ns, enum vb_dpa_why *why)
{
	struct vb_dpa *dpa = thread->process->dpa;
	uint64_t until = timeout_ns < 0 ? VB_NEVER : vb_now_ns() + (uint64_t)timeout_ns;
	int err;

	pthread_mutex_lock(&dpa->lock);
	err = dpa_thread_wait_idle(thread, false, until);
	if (!err && why)
		*why = thread->why;
	pthread_mutex_unlock(&dpa->lock);
	return -err;
}

/* ---- a lent host thread ---- */

/* The thread's ecall said BLOCK: true if it was woken (and may go on) before it was stopped. */
static bool lent_block(struct vb_dpa_thread *thread)
{
	struct vb_dpa *dpa = thread->process->dpa;
	bool woken;

	pthread_mutex_lock(&dpa->lock);
	if (thread->wake)
		thread->wake = false;
	else
		atomic_store_explicit(&thread->state, THREAD_BLOCKED, memory_order_relaxed);
	vb_debug_out(thread);
	while (atomic_load_explicit(&thread->state, memory_order_relaxed) == THREAD_BLOCKED &&
	       !atomic_load_explicit(&thread->stop, memory_order_relaxed))
		vb_cond_wait_until(vb_time_card(), &thread->changed, &dpa->lock, VB_NEVER);
	woken = atomic_load_explicit(&thread->state, memory_order_relaxed) != THREAD_BLOCKED;
	atomic_store_explicit(&thread->state, THREAD_RUNNING, memory_order_relaxed);
	pthread_mutex_unlock(&dpa->lock);
	return woken;
}

/* Back to IDLE on the fast path: the lock only where somebody waits. See wait_idle. */
static void lent_idle(struct vb_dpa_thread *thread, enum vb_dpa_why why)
{
	struct vb_dpa *dpa = thread->process->dpa;

	if (atomic_load_explicit(&thread->stop, memory_order_relaxed)) {
		pthread_mutex_lock(&dpa->lock);
		vb_thread_idle(thread, why);
		pthread_mutex_unlock(&dpa->lock);
		return;
	}
	thread->why = why;
	thread->lent = false;
	atomic_store(&thread->state, THREAD_IDLE);
	if (atomic_load(&thread->waiters)) {
		pthread_mutex_lock(&dpa->lock);
		vb_debug_out(thread);
		pthread_cond_broadcast(&thread->changed);
		pthread_mutex_unlock(&dpa->lock);
	}
}

static enum vb_dpa_why dpa_thread_run_in_turn(struct vb_dpa_thread *thread, uint64_t max)
{
	struct vb_dpa *dpa = thread->process->dpa;
	uint64_t instret = thread->cpu.s.instret;
	enum vb_dpa_why why;
	bool yielded;

	if (dpa->deterministic)
		pthread_mutex_lock(&dpa->turn);
	why = vb_thread_run_slice(thread, max, true, &yielded);
	if (dpa->deterministic) {
		dpa->retired += thread->cpu.s.instret - instret;
		pthread_mutex_unlock(&dpa->turn);
	}
	return why;
}

/*
 * Under dpa.lock: wait while a debugger holds it, unless it is to stop. If a callback or a signal
 * handler of another guest thread made this call, that thread stands still as well; where this one is
 * stopped meanwhile, it executes the rest of its piece before it is held.
 */
static bool lent_hold(struct vb_dpa_thread *thread)
{
	struct vb_cpu *outer = vb_cpu_current;
	bool stop;

	for (;;) {
		vb_debug_out(thread);
		if (outer && outer->thread->process->dpa == thread->process->dpa)
			vb_debug_out(outer->thread);
		stop = atomic_load_explicit(&thread->stop, memory_order_relaxed);
		if (stop || !vb_debug_holds(thread))
			break;
		atomic_store_explicit(&thread->state, THREAD_HELD, memory_order_relaxed);
		wait_changed(thread, VB_NEVER);
	}
	atomic_store_explicit(&thread->state, THREAD_RUNNING, memory_order_relaxed);
	return stop;
}

/* What a preemption left in cpu.stop goes; a stop that is asked for stays. */
static bool lent_stopped(struct vb_dpa_thread *thread)
{
	pthread_mutex_t *lock = &thread->process->dpa->lock;
	bool stop;

	pthread_mutex_lock(lock);
	stop = lent_hold(thread);
	atomic_store_explicit(&thread->cpu.stop, stop, memory_order_relaxed);
	pthread_mutex_unlock(lock);
	return stop;
}

/* Run a claimed thread; wait: sleep through blocks instead of coming back. */
static enum vb_dpa_why dpa_thread_run_lent(struct vb_dpa_thread *thread, uint64_t max, bool wait)
{
	uint64_t start = thread->cpu.s.instret;
	enum vb_dpa_why why;

	thread->lent = true;
	do {
		why = dpa_thread_run_in_turn(thread, max - (thread->cpu.s.instret - start));
		if (why == VB_DPA_WHY_BLOCK && wait)
			why = lent_block(thread) ? VB_DPA_WHY_BUDGET : VB_DPA_WHY_STOP;
		else if (why == VB_DPA_WHY_STOP || why == VB_DPA_WHY_BUDGET)
			why = lent_stopped(thread) ? VB_DPA_WHY_STOP : VB_DPA_WHY_BUDGET;
		/* A trap that a debugger kept back came before the budget was used up. */
	} while (why == VB_DPA_WHY_BUDGET &&
		 (thread->cpu.s.instret - start < max || thread->debug.trap));
	lent_idle(thread, why);
	return why;
}

int vb_dpa_thread_run(struct vb_dpa_thread *thread, uint64_t max, enum vb_dpa_why *why)
{
	enum vb_dpa_why result;
	int err = dpa_thread_claim(thread, THREAD_RUNNING);

	if (err)
		return err;
	result = dpa_thread_run_lent(thread, max, false);
	if (why)
		*why = result;
	return 0;
}

int vb_dpa_thread_run_dying(struct vb_dpa_thread *thread, uint64_t max, enum vb_dpa_why *why)
{
	pthread_mutex_t *lock = &thread->process->dpa->lock;
	int err;

	if (!is_idle(thread))
		return -EBUSY;
	pthread_mutex_lock(lock);
	thread->dying = true;
	pthread_mutex_unlock(lock);
	err = vb_dpa_thread_run(thread, max, why);
	pthread_mutex_lock(lock);
	thread->dying = false;
	if (vb_debug_holds(thread))
		atomic_store_explicit(&thread->cpu.stop, true, memory_order_relaxed);
	pthread_mutex_unlock(lock);
	return err;
}

/*
 * Deterministic mode: the call waits for its turns like every other thread, and its caller for the
 * end.
 */
static int call_queued(struct vb_dpa_thread *thread, enum vb_dpa_why *why)
{
	struct vb_dpa *dpa = thread->process->dpa;
	int err = vb_sched_workers(dpa);

	if (err)
		return err;
	pthread_mutex_lock(&dpa->lock);
	thread->quiet = true;
	pthread_mutex_unlock(&dpa->lock);
	err = vb_dpa_thread_start(thread);
	if (!err)
		err = vb_dpa_thread_wait(thread, -1, why);
	pthread_mutex_lock(&dpa->lock);
	thread->quiet = false;
	pthread_mutex_unlock(&dpa->lock);
	return err;
}

int vb_dpa_call(struct vb_dpa_thread *thread, uint64_t pc, const uint64_t *args, unsigned int nargs,
		uint64_t *result)
{
	enum vb_dpa_why why;
	int err = vb_dpa_thread_set_call(thread, pc, args, nargs);

	if (err)
		return err;
	if (thread->process->dpa->deterministic) {
		err = call_queued(thread, &why);
		if (err)
			return err;
	} else {
		err = dpa_thread_claim(thread, THREAD_RUNNING);
		if (err)
			return err;
		why = dpa_thread_run_lent(thread, UINT64_MAX, true);
	}
	if (why == VB_DPA_WHY_TRAP)
		return -EFAULT;
	if (why != VB_DPA_WHY_RETURN)
		return -EINTR;
	if (result)
		*result = thread->cpu.s.x[10];
	return 0;
}

/* ---- what others ask ---- */

struct vb_dpa_state *vb_dpa_thread_state(struct vb_dpa_thread *thread)
{
	return &thread->cpu.s;
}

void *vb_dpa_thread_user(const struct vb_dpa_thread *thread)
{
	return thread->user;
}

const char *vb_dpa_thread_name(const struct vb_dpa_thread *thread)
{
	return thread->name;
}

uint32_t vb_dpa_thread_number(const struct vb_dpa_thread *thread)
{
	return thread->number;
}

int vb_dpa_threads_each(struct vb_dpa_process *process,
			int (*visit)(struct vb_dpa_thread *thread, void *arg), void *arg)
{
	int result = 0;

	pthread_mutex_lock(&process->cpus_lock);
	for (struct vb_cpu *cpu = process->cpus; cpu && !result; cpu = cpu->next)
		result = visit(cpu->thread, arg);
	pthread_mutex_unlock(&process->cpus_lock);
	return result;
}

struct vb_dpa_process *vb_dpa_thread_process(const struct vb_dpa_thread *thread)
{
	return thread->process;
}

void vb_dpa_thread_counters(const struct vb_dpa_thread *thread, struct vb_dpa_thread_counters *out)
{
	/* Each value is read whole; together they may be of two moments while the thread runs. */
	*out = (struct vb_dpa_thread_counters){
		.instructions = __atomic_load_n(&thread->cpu.s.instret, __ATOMIC_RELAXED),
		.busy_ns = vb_ticks_to_ns(__atomic_load_n(&thread->busy_ticks, __ATOMIC_RELAXED)),
		.slices = __atomic_load_n(&thread->slices, __ATOMIC_RELAXED),
		.starts = __atomic_load_n(&thread->starts, __ATOMIC_RELAXED),
		.traps = __atomic_load_n(&thread->traps, __ATOMIC_RELAXED),
		.window_misses = __atomic_load_n(&thread->cpu.table_misses, __ATOMIC_RELAXED),
	};
}
