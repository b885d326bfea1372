// SPDX-License-Identifier: MIT
/*
 * Owns what a debugger does to a process: holding and resuming its threads, steps, breakpoints,
 * watchpoints, and traps that are kept back until it has seen them.
 *
 *	             cpu.stop in every thread            the last one is out
 *	  running ---------------------------> stopping ---------------------> stopped (fd is readable)
 *	     ^                                     |                              |
 *	     '------- resume, detach: threads that were held go to EUs again -----'
 *
 * A thread that comes out of the processor while it is held leaves its EU and is in no queue
 * (THREAD_HELD), so that host threads are free for other processes; one on a lent host thread waits
 * there. A thread that begins while the process is held finds cpu.stop set: the paths that start
 * threads do not look whether there is a debugger.
 *
 * Who still executes is counted: `awaited`, in the thread and in the process. Callbacks count as
 * executing; whoever is stopped, blocked or idle does not. A lent thread ends without dpa.lock, and
 * looks for waiters afterwards: an awaited thread has one (see wait_idle() in thread.c).
 *
 * Locks: `debuggers` before all others. It keeps a process from being destroyed under its debugger.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fork.h"

struct watch {
	uint64_t addr, len;
	unsigned int watch;
};

/* Does not change: threads look at it without a lock. */
struct watches {
	struct watches *next_old;
	unsigned int n;
	struct watch w[];
};

/* Of a process, from its first debugger to its end. Under dpa.lock but where said. */
struct debugged {
	struct vb_dpa_debug *owner; /* NULL: there is none now */
	unsigned int awaited;       /* threads that execute, and are to stop */
	struct vb_dpa_stopped why;
	uint64_t held_ns;    /* without the time since ... */
	uint64_t held_since; /* while process.held */
	uint64_t *breaks;
	unsigned int nbreaks;
	_Atomic(struct watches *) watches; /* NULL: none */
	struct watches *old;               /* a thread may still look at these */
	struct observe_ops observe[2];     /* without and with accesses */
};

struct vb_dpa_debug {
	struct vb_dpa_process *process; /* NULL: it is gone; under `debuggers` */
	/* A pipe, which has something in it while the process is stopped. */
	struct vb_file full, fill;
};

static pthread_mutex_t debuggers = PTHREAD_MUTEX_INITIALIZER;

static void debuggers_forked(void)
{
	pthread_mutex_init(&debuggers, NULL);
}

VB_STAGE(DEBUGGERS, .child = debuggers_forked);

static struct debugged *debugged_of(const struct vb_dpa_process *process)
{
	/* Acquire: what attach made. */
	return atomic_load_explicit(&process->debugged, memory_order_acquire);
}

static void lock_all(struct vb_dpa_process *process)
{
	pthread_mutex_lock(&process->cpus_lock);
	pthread_mutex_lock(&process->dpa->lock);
}

static void unlock_all(struct vb_dpa_process *process)
{
	pthread_mutex_unlock(&process->dpa->lock);
	pthread_mutex_unlock(&process->cpus_lock);
}

/* ---- stopping, under cpus_lock and dpa.lock ---- */

static void set_readable(struct vb_dpa_debug *debug, bool readable)
{
	const struct vb_file *file = readable ? &debug->fill : &debug->full;
	char bytes[16] = { 0 };

	/* A descriptor that the program has closed is its own loss; the number may be its file by now. */
	if (!vb_file_is_open(file) ||
	    (readable ? write(file->fd, bytes, 1) < 0 : read(file->fd, bytes, sizeof(bytes)) < 0))
		return;
}

/* Needs dpa.lock only. */
void vb_debug_count_out(struct vb_dpa_thread *thread)
{
	struct debugged *d = debugged_of(thread->process);

	thread->awaited = false;
	atomic_fetch_sub(&thread->waiters, 1);
	if (!--d->awaited && d->owner)
		set_readable(d->owner, true);
}

static void hold_thread(struct debugged *d, struct vb_dpa_thread *thread)
{
	enum thread_state state;

	if (thread->dying)
		return;
	/* In one total order with claim() and lent_idle() of thread.c. */
	atomic_store(&thread->cpu.stop, true);
	atomic_fetch_add(&thread->waiters, 1);
	state = atomic_load(&thread->state);
	if (state == THREAD_RUNNING) {
		thread->awaited = true;
		d->awaited++;
		return;
	}
	atomic_fetch_sub(&thread->waiters, 1);
	if (state == THREAD_READY) {
		vb_sched_remove(thread);
		atomic_store_explicit(&thread->state, THREAD_HELD, memory_order_relaxed);
	}
}

static void hold_process(struct vb_dpa_process *process, const struct vb_dpa_stopped *why)
{
	struct debugged *d = debugged_of(process);

	d->why = *why;
	process->held = true;
	d->held_since = vb_now_ns();
	for (struct vb_cpu *cpu = process->cpus; cpu; cpu = cpu->next)
		hold_thread(d, cpu->thread);
	if (!d->awaited)
		set_readable(d->owner, true);
}

/* Whether a debugger wants to know what a thread met; if so, with the locks taken. */
static struct debugged *begin_report(struct vb_dpa_thread *thread)
{
	struct vb_dpa_process *process = thread->process;
	struct debugged *d = debugged_of(process);

	if (!d)
		return NULL;
	lock_all(process);
	if (d->owner && !thread->dying)
		return d;
	unlock_all(process);
	return NULL;
}

/* False: the process is stopping for another reason. */
static bool observe_debug_report(struct vb_dpa_thread *thread, enum vb_dpa_stop why)
{
	if (thread->process->held)
		return false;
	hold_process(thread->process,
		     &(struct vb_dpa_stopped){ .why = why, .thread = thread->number });
	return true;
}

/* ---- what threads meet; on the host thread that runs them ---- */

static void set_ordered(struct vb_dpa_thread *thread)
{
	atomic_store_explicit(&thread->ordered, thread->debug.step || thread->debug.trap,
			      memory_order_relaxed);
}

void vb_debug_forget(struct vb_dpa_thread *thread)
{
	thread->debug.step = false;
	thread->debug.trap = TRAP_NONE;
	thread->debug.met = 0;
	set_ordered(thread);
}

static bool has_break(const struct debugged *d, uint64_t pc)
{
	for (unsigned int i = 0; i < d->nbreaks; i++)
		if (d->breaks[i] == pc)
			return true;
	return false;
}

/* An instruction is passed once: afterwards instret is another. */
static void pass_break(struct vb_dpa_thread *thread)
{
	thread->debug.pass_pc = thread->cpu.s.pc;
	thread->debug.pass_instret = thread->cpu.s.instret;
}

/* Without a lock, as the next one: what they use changes while no thread executes. */
static enum vb_seen observe_debug_on_mark(struct vb_dpa_thread *thread, void *arg)
{
	thread->debug.hit = 0;
	if (thread->dying || (thread->debug.pass_pc == thread->cpu.s.pc &&
			      thread->debug.pass_instret == thread->cpu.s.instret))
		return VB_SEEN_GO;
	return VB_SEEN_STOP;
}

static enum vb_seen observe_debug_on_access(struct vb_dpa_thread *thread, uint64_t addr,
					    unsigned int size, unsigned int kind, void *arg)
{
	struct debugged *d = debugged_of(arg);
	/* Acquire: what is in the list. */
	const struct watches *list =
		thread->dying ? NULL : atomic_load_explicit(&d->watches, memory_order_acquire);

	for (unsigned int i = 0; list && i < list->n; i++) {
		const struct watch *w = &list->w[i];

		if (!(w->watch & kind) || (addr - w->addr >= w->len && w->addr - addr >= size))
			continue;
		thread->debug.hit = w->watch;
		/* The first byte that is watched: debuggers look for it in their list. */
		thread->debug.hit_addr = addr - w->addr < w->len ? addr : w->addr;
		return VB_SEEN_STOP_BEHIND;
	}
	return VB_SEEN_GO;
}

static void tell_watch(struct vb_dpa_stopped *why, unsigned int watch, uint64_t addr)
{
	why->watch = (enum vb_dpa_watch)watch;
	why->addr = addr;
}

bool vb_debug_seen(struct vb_dpa_thread *thread)
{
	struct debugged *d = begin_report(thread);
	bool stops;

	if (!d)
		return false;
	stops = thread->debug.hit || has_break(d, thread->cpu.s.pc);
	if (thread->debug.hit) {
		if (observe_debug_report(thread, VB_DPA_STOP_WATCH)) {
			tell_watch(&d->why, thread->debug.hit, thread->debug.hit_addr);
		} else {
			thread->debug.met = thread->debug.hit;
			thread->debug.met_addr = thread->debug.hit_addr;
		}
		thread->debug.hit = 0;
	} else if (stops && observe_debug_report(thread, VB_DPA_STOP_BREAK)) {
		/* Otherwise it meets the breakpoint again. */
		pass_break(thread);
	}
	unlock_all(thread->process);
	return stops;
}

static enum vb_dpa_stop trap_stop(const struct vb_dpa_thread *thread)
{
	return thread->cpu.s.cause == VB_DPA_CAUSE_BREAKPOINT ? VB_DPA_STOP_BREAK
							      : VB_DPA_STOP_TRAP;
}

bool vb_debug_trap(struct vb_dpa_thread *thread)
{
	struct debugged *d = begin_report(thread);

	if (!d)
		return false;
	thread->debug.trap =
		observe_debug_report(thread, trap_stop(thread)) ? TRAP_TOLD : TRAP_KEPT;
	thread->debug.trap_pc = thread->cpu.s.pc;
	set_ordered(thread);
	unlock_all(thread->process);
	return true;
}

/* If the process is stopping anyway the steps are forgotten: the next resume says what counts. */
static void step_done(struct vb_dpa_thread *thread)
{
	struct debugged *d = begin_report(thread);

	if (!d)
		return;
	if (thread->debug.step)
		observe_debug_report(thread, VB_DPA_STOP_STEP);
	thread->debug.step = false;
	set_ordered(thread);
	unlock_all(thread->process);
}

/* ---- executing what was ordered ---- */

struct order {
	bool hold; /* nothing now */
	bool deliver, step;
	uint64_t from, to;
};

static struct order take_order(struct vb_dpa_thread *thread)
{
	pthread_mutex_t *lock = &thread->process->dpa->lock;
	struct order order = { 0 };

	pthread_mutex_lock(lock);
	order.hold =
		vb_debug_holds(thread) || atomic_load_explicit(&thread->stop, memory_order_relaxed);
	if (!order.hold) {
		order.deliver = thread->debug.trap && thread->debug.trap_pc == thread->cpu.s.pc;
		thread->debug.trap = TRAP_NONE;
		if (thread->dying) /* it has no debugger */
			thread->debug.step = false;
		order.step = thread->debug.step;
		order.from = thread->debug.from;
		order.to = thread->debug.to;
		set_ordered(thread);
	}
	pthread_mutex_unlock(lock);
	return order;
}

#define STEPS_POLL 256

static enum vb_dpa_why observe_debug_step(struct vb_dpa_thread *thread, const struct order *order,
					  uint64_t max, bool *yielded)
{
	const struct vb_dpa *dpa = thread->process->dpa;
	enum vb_dpa_why why = VB_DPA_WHY_BUDGET;

	for (uint64_t n = 0; n < max; n++) {
		if (dpa->poll && n % STEPS_POLL == 0)
			dpa->poll(dpa->poll_arg);
		why = vb_thread_pass(thread, 1, true, yielded);
		if (why == VB_DPA_WHY_STOP || why == VB_DPA_WHY_TRAP)
			return why;
		if ((why != VB_DPA_WHY_BUDGET && why != VB_DPA_WHY_BLOCK) ||
		    thread->cpu.s.pc < order->from || thread->cpu.s.pc >= order->to) {
			step_done(thread);
			return why;
		}
		if (why == VB_DPA_WHY_BLOCK || *yielded)
			return why;
	}
	return why;
}

enum vb_dpa_why vb_debug_run_slice(struct vb_dpa_thread *thread, uint64_t max, bool exact,
				   bool *yielded)
{
	struct order order = take_order(thread);
	enum vb_dpa_why why;

	if (order.hold)
		return VB_DPA_WHY_STOP;
	if (order.deliver) {
		why = vb_thread_trap(thread);
		if (order.step)
			step_done(thread);
		return why;
	}
	why = order.step ? observe_debug_step(thread, &order, max, yielded)
			 : vb_thread_pass(thread, max, exact, yielded);
	if (why == VB_DPA_WHY_TRAP)
		why = vb_debug_trap(thread) ? VB_DPA_WHY_STOP : vb_thread_trap(thread);
	return why;
}

/* ---- attach, detach ---- */

static int make_debugged(struct vb_dpa_process *process)
{
	struct debugged *d;

	if (debugged_of(process))
		return 0;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->observe[0] = (struct observe_ops){ .mark = observe_debug_on_mark, .arg = process };
	d->observe[1] =
		(struct observe_ops){ observe_debug_on_mark, observe_debug_on_access, process };
	atomic_store_explicit(&process->debugged, d, memory_order_release);
	return 0;
}

static void close_pipe(struct vb_dpa_debug *debug)
{
	vb_file_close(&debug->full);
	vb_file_close(&debug->fill);
}

static int make_pipe(struct vb_dpa_debug *debug)
{
	int fds[2], err, err_in;

	debug->full = debug->fill = VB_NO_FILE;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	err = vb_file_keep(&debug->full, fds[0]);
	err_in = vb_file_keep(&debug->fill, fds[1]);
	if (err || err_in)
		close_pipe(debug);
	return err ? err : err_in;
}

int vb_dpa_debug_attach(struct vb_dpa_process *process, struct vb_dpa_debug **debug)
{
	struct vb_dpa_debug *new = malloc(sizeof(*new));
	int err = new ? 0 : -ENOMEM;

	pthread_mutex_lock(&debuggers);
	if (!err)
		err = make_debugged(process);
	if (!err && debugged_of(process)->owner)
		err = -EBUSY;
	if (!err) {
		new->process = process;
		err = make_pipe(new);
	}
	if (!err) {
		lock_all(process);
		debugged_of(process)->owner = new;
		unlock_all(process);
		*debug = new;
	}
	pthread_mutex_unlock(&debuggers);
	if (err)
		free(new);
	return err;
}

/* Under the locks: threads that need not be held any more go on. */
static void release_threads(struct vb_dpa_process *process)
{
	for (struct vb_cpu *cpu = process->cpus; cpu; cpu = cpu->next) {
		struct vb_dpa_thread *thread = cpu->thread;

		if (atomic_load_explicit(&thread->state, memory_order_relaxed) != THREAD_HELD ||
		    vb_debug_holds(thread))
			continue;
		/* In all other states it stays, and the thread comes out once more in vain. */
		atomic_store_explicit(&cpu->stop,
				      atomic_load_explicit(&thread->stop, memory_order_relaxed),
				      memory_order_relaxed);
		if (thread->lent) {
			atomic_store_explicit(&thread->state, THREAD_RUNNING, memory_order_relaxed);
			pthread_cond_broadcast(&thread->changed);
		} else {
			vb_sched_ready(thread);
		}
	}
}

static void observe_debug_let_go(struct vb_dpa_process *process)
{
	struct debugged *d = debugged_of(process);

	if (process->held) {
		d->held_ns += vb_now_ns() - d->held_since;
		process->held = false;
		set_readable(d->owner, false);
	}
	release_threads(process);
}

/* No thread looks at lists that are not in use any more. */
static void free_old(struct debugged *d)
{
	while (d->old) {
		struct watches *next = d->old->next_old;

		free(d->old);
		d->old = next;
	}
}

/* The list changes; `list` may be NULL. */
static void set_watches(struct debugged *d, struct watches *list)
{
	struct watches *old = atomic_exchange_explicit(&d->watches, list, memory_order_acq_rel);

	if (old) {
		old->next_old = d->old;
		d->old = old;
	}
}

/* But a trap that is kept back. */
static void clear_orders(struct vb_dpa_thread *thread)
{
	vb_debug_out(thread);
	thread->stay = false;
	thread->debug.step = false;
	thread->debug.met = 0;
	set_ordered(thread);
}

void vb_dpa_debug_detach(struct vb_dpa_debug *debug)
{
	struct vb_dpa_process *process;

	pthread_mutex_lock(&debuggers);
	process = debug->process;
	if (process) {
		struct debugged *d = debugged_of(process);

		/* Threads may be running; the functions and the lists that they use stay. */
		vb_observe(process, OBSERVE_DEBUG, NULL);
		set_watches(d, NULL);
		lock_all(process);
		free(d->breaks);
		d->breaks = NULL;
		d->nbreaks = 0;
		for (struct vb_cpu *cpu = process->cpus; cpu; cpu = cpu->next)
			clear_orders(cpu->thread);
		observe_debug_let_go(process);
		d->owner = NULL;
		unlock_all(process);
		vb_sched_poke(process->dpa);
	}
	pthread_mutex_unlock(&debuggers);
	close_pipe(debug);
	free(debug);
}

/* There are no threads. A debugger that is still attached finds nothing any more. */
void vb_debug_free(struct vb_dpa_process *process)
{
	struct debugged *d;

	pthread_mutex_lock(&debuggers);
	d = debugged_of(process);
	if (d) {
		if (d->owner)
			d->owner->process = NULL;
		set_watches(d, NULL);
		free_old(d);
		free(d->breaks);
		free(d);
	}
	pthread_mutex_unlock(&debuggers);
}

/* ---- hold, resume ---- */

/* The debugger's process with all locks taken, or NULL with none. */
static struct vb_dpa_process *observe_debug_enter(struct vb_dpa_debug *debug)
{
	struct vb_dpa_process *process;

	pthread_mutex_lock(&debuggers);
	process = debug->process;
	if (process)
		lock_all(process);
	else
		pthread_mutex_unlock(&debuggers);
	return process;
}

void vb_debug_leave(struct vb_dpa_process *process)
{
	unlock_all(process);
	pthread_mutex_unlock(&debuggers);
}

struct vb_dpa_process *vb_debug_enter(struct vb_dpa_debug *debug)
{
	struct vb_dpa_process *process = observe_debug_enter(debug);

	if (!process || (process->held && !debugged_of(process)->awaited))
		return process;
	vb_debug_leave(process);
	return NULL;
}

int vb_dpa_debug_fd(const struct vb_dpa_debug *debug)
{
	return debug->full.fd;
}

void vb_dpa_debug_hold(struct vb_dpa_debug *debug)
{
	struct vb_dpa_process *process = observe_debug_enter(debug);

	if (!process)
		return;
	if (!process->held)
		hold_process(process, &(struct vb_dpa_stopped){ .why = VB_DPA_STOP_ASKED });
	vb_debug_leave(process);
}

bool vb_dpa_debug_stopped(struct vb_dpa_debug *debug, struct vb_dpa_stopped *out)
{
	struct vb_dpa_process *process = vb_debug_enter(debug);

	if (!process)
		return false;
	if (out)
		*out = debugged_of(process)->why;
	vb_debug_leave(process);
	return true;
}

static struct vb_dpa_resume order_of(const struct vb_dpa_thread *thread,
				     const struct vb_dpa_resume *how, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (!how[i].thread || how[i].thread == thread->number)
			return how[i];
	return (struct vb_dpa_resume){ .go = VB_DPA_GO_STAY };
}

static bool is_watched(const struct debugged *d, uint64_t addr, unsigned int watch)
{
	const struct watches *list = atomic_load_explicit(&d->watches, memory_order_relaxed);

	for (unsigned int i = 0; list && i < list->n; i++)
		if (addr - list->w[i].addr < list->w[i].len && list->w[i].watch == watch)
			return true;
	return false;
}

/* A thread that is to go on met something while the process was stopping for another reason. */
static bool tell_met(struct debugged *d, struct vb_dpa_thread *thread)
{
	struct vb_dpa_stopped why = { .thread = thread->number };
	bool told = false;

	if (thread->debug.met && is_watched(d, thread->debug.met_addr, thread->debug.met)) {
		why.why = VB_DPA_STOP_WATCH;
		tell_watch(&why, thread->debug.met, thread->debug.met_addr);
		told = true;
	}
	if (thread->debug.met)
		thread->debug.met = 0;
	if (!told && thread->debug.trap == TRAP_KEPT && thread->debug.trap_pc == thread->cpu.s.pc) {
		thread->debug.trap = TRAP_TOLD;
		why.why = trap_stop(thread);
		told = true;
	}
	if (told)
		d->why = why;
	return told;
}

static void give_order(struct vb_dpa_thread *thread, const struct vb_dpa_resume *order)
{
	enum thread_state state = atomic_load_explicit(&thread->state, memory_order_acquire);

	thread->stay = order->go == VB_DPA_GO_STAY;
	thread->debug.step = order->go == VB_DPA_GO_STEP;
	thread->debug.from = order->from;
	thread->debug.to = order->to;
	/* A step executes an instruction, whatever is there. */
	if (thread->debug.step && state != THREAD_IDLE)
		pass_break(thread);
	set_ordered(thread);
}

int vb_dpa_debug_resume(struct vb_dpa_debug *debug, const struct vb_dpa_resume *how, unsigned int n)
{
	struct vb_dpa_process *process = vb_debug_enter(debug);
	bool told = false;

	if (!process)
		return -EINVAL;
	for (struct vb_cpu *cpu = process->cpus; cpu && !told; cpu = cpu->next)
		if (order_of(cpu->thread, how, n).go != VB_DPA_GO_STAY)
			told = tell_met(debugged_of(process), cpu->thread);
	for (struct vb_cpu *cpu = process->cpus; cpu && !told; cpu = cpu->next) {
		struct vb_dpa_resume order = order_of(cpu->thread, how, n);

		give_order(cpu->thread, &order);
	}
	if (!told)
		observe_debug_let_go(process);
	unlock_all(process);
	if (!told)
		vb_sched_poke(process->dpa);
	pthread_mutex_unlock(&debuggers);
	return 0;
}

uint64_t vb_dpa_process_held_ns(const struct vb_dpa_process *process)
{
	const struct debugged *d = debugged_of(process);
	uint64_t ns;

	if (!d)
		return 0;
	pthread_mutex_lock(&process->dpa->lock);
	ns = d->held_ns + (process->held ? vb_now_ns() - d->held_since : 0);
	pthread_mutex_unlock(&process->dpa->lock);
	return ns;
}

/* ---- breakpoints, watchpoints ---- */

/* `debuggers` alone, of a process that is stopped: observers take the other locks. */
static struct vb_dpa_process *enter_observers(struct vb_dpa_debug *debug)
{
	struct vb_dpa_process *process = vb_debug_enter(debug);

	if (process)
		unlock_all(process);
	return process;
}

/* Translated code runs while there is nothing to look for. */
static int observe(struct vb_dpa_process *process, bool marks, bool accesses)
{
	struct debugged *d = debugged_of(process);

	return vb_observe(process, OBSERVE_DEBUG,
			  accesses ? &d->observe[1]
			  : marks  ? &d->observe[0]
				   : NULL);
}

static bool has_watches(const struct debugged *d)
{
	return atomic_load_explicit(&d->watches, memory_order_relaxed);
}

static int break_set(struct vb_dpa_process *process, uint64_t addr)
{
	struct debugged *d = debugged_of(process);
	uint64_t *breaks = realloc(d->breaks, (d->nbreaks + 1) * sizeof(*breaks));
	int err;

	if (!breaks)
		return -ENOMEM;
	d->breaks = breaks;
	err = observe(process, true, has_watches(d));
	if (!err)
		err = vb_observe_mark(process, OBSERVE_DEBUG, addr, true);
	if (err)
		observe(process, d->nbreaks, has_watches(d));
	else
		d->breaks[d->nbreaks++] = addr;
	return err;
}

static void break_clear(struct vb_dpa_process *process, uint64_t addr)
{
	struct debugged *d = debugged_of(process);
	unsigned int i = 0;

	while (d->breaks[i] != addr)
		i++;
	d->breaks[i] = d->breaks[--d->nbreaks];
	vb_observe_mark(process, OBSERVE_DEBUG, addr, false);
	observe(process, d->nbreaks, has_watches(d));
}

int vb_dpa_debug_break(struct vb_dpa_debug *debug, uint64_t addr, bool set)
{
	struct vb_dpa_process *process = enter_observers(debug);
	int err = 0;

	if (!process)
		return -EINVAL;
	if (!vb_text_holds(&process->text, addr))
		err = -EFAULT;
	else if (set && !has_break(debugged_of(process), addr))
		err = break_set(process, addr);
	else if (!set && has_break(debugged_of(process), addr))
		break_clear(process, addr);
	pthread_mutex_unlock(&debuggers);
	return err;
}

/* The list with one more, or without those that equal it; *found: how many did. */
static struct watches *copy_watches(const struct watches *from, const struct watch *one, bool add,
				    unsigned int *found)
{
	unsigned int n = from ? from->n : 0;
	struct watches *to = malloc(sizeof(*to) + (n + 1) * sizeof(to->w[0]));

	*found = 0;
	if (!to)
		return NULL;
	to->n = 0;
	for (unsigned int i = 0; i < n; i++) {
		const struct watch *w = &from->w[i];

		if (w->addr == one->addr && w->len == one->len && w->watch == one->watch)
			(*found)++;
		else
			to->w[to->n++] = *w;
	}
	if (add)
		to->w[to->n++] = *one;
	return to;
}

static int watch_change(struct vb_dpa_process *process, const struct watch *one, bool set)
{
	struct debugged *d = debugged_of(process);
	unsigned int found;
	struct watches *list = copy_watches(atomic_load_explicit(&d->watches, memory_order_relaxed),
					    one, set, &found);
	int err = list ? 0 : -ENOMEM;

	if (!err && !set && !found)
		err = -ENOENT;
	if (!err && set)
		err = observe(process, true, true);
	if (err) {
		free(list);
		return err;
	}
	if (!list->n) {
		free(list);
		list = NULL;
	}
	set_watches(d, list);
	free_old(d);
	return set ? 0 : observe(process, d->nbreaks, list);
}

int vb_dpa_debug_watch(struct vb_dpa_debug *debug, uint64_t addr, uint64_t len, unsigned int watch,
		       bool set)
{
	struct watch one = { addr, len, watch };
	struct vb_dpa_process *process;
	int err;

	if (!len || !watch || watch & ~(unsigned int)(VB_DPA_WATCH_READ | VB_DPA_WATCH_WRITE))
		return -EINVAL;
	process = enter_observers(debug);
	if (!process)
		return -EINVAL;
	err = watch_change(process, &one, set);
	pthread_mutex_unlock(&debuggers);
	return err;
}
