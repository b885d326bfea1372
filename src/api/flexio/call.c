// SPDX-License-Identifier: MIT
/*
 * Owns RPCs: a pool of guest threads, each with an argument buffer, and the steps of one call.
 *
 *	take a slot -> pack arguments -> run the guest thread -> result, messages -> free the slot
 *
 * The calling host thread runs the guest thread itself, in slices, so that it can look at the clock
 * and at the process's state in between; no other thread has to wake up. Only where every EU has
 * something to do (or in deterministic mode) the call queues up for one like any other thread.
 *
 * Taking a slot is one atomic exchange. A host thread begins its search where it found one the last
 * time, so threads that call at the same time settle on slots of their own. Slots are made on first
 * use.
 *
 * A slot that is busy keeps its process: destroying it takes all slots first, or is refused. Before
 * it has a slot, a call may look at a process that is just being destroyed. So the memory of slots,
 * and of the part of a process that leads to them, is never freed, only used again; a slot that is
 * in no process stays busy, and one that has gone to another process is given back.
 */
#include "api/flexio/crash.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "api/flexio/process.h"
#include "api/flexio/stream.h"
#include "base/lock.h"
#include "dpa/observe/debug.h"

/* The clock starts after the first slice: most calls end in it and never ask for the time. */
#define FIRST_SLICE 20000
#define SLICE       500000
/* Instructions that a timed-out call may still run, to release a lock of the C library. */
#define GRACE 1000000
/* The shortest sleep until a deadline that a debugger has moved. */
#define SLEEP_MIN 10000000
#define MANY_EUS  64

/* Time limits count this clock, which stands still while a debugger holds the process. */
static uint64_t running_ns(const struct flexio_process *process)
{
	uint64_t now = vb_now_ns(); /* first: the difference may be too small, but not too large */

	return now - vb_dpa_process_held_ns(process->dpa);
}

bool vb_call_late(struct guest *guest)
{
	uint64_t now = running_ns(guest->process);

	if (!guest->deadline)
		guest->deadline = now + guest->process->accel->timeout_ns;
	return now >= guest->deadline;
}

bool vb_call_worked(struct guest *guest, uint64_t units)
{
	guest->worked += units;
	if (likely(guest->worked < WORK_LOOK))
		return false;
	guest->worked = 0;
	if ((guest->kind != GUEST_CALL && !guest->fault) || !vb_call_late(guest))
		return false;
	guest->end = END_TIMEOUT;
	return true;
}

static void call_wait_written(struct flexio_process *process)
{
	if (unlikely(atomic_load_explicit(&process->unwritten, memory_order_acquire)))
		vb_streams_wait_written(process);
}

/* ---- slots ---- */

static int slot_make_thread(struct call_slot *slot)
{
	struct vb_dpa_thread_attr attr = { .user = &slot->guest,
					   .name = "RPC",
					   .shown = &slot->guest.shown };
	struct vb_dpa_thread *thread;
	int err = vb_accel_check_pool(slot->guest.process->accel);

	if (err)
		return err;
	err = vb_dpa_thread_create(slot->guest.process->dpa, &attr, &thread);
	if (err) {
		fail("process %s: no device thread to call %s: %s", slot->guest.process->name,
		     slot->what, strerror(-err));
		return err;
	}
	vb_lock(&slot->lock);
	slot->thread = thread;
	vb_unlock(&slot->lock);
	return 0;
}

/*
 * Destroys the thread, and with it what a call left behind: stack, registers, thread-local storage.
 */
static void slot_drop_thread(struct call_slot *slot)
{
	struct vb_dpa_thread *thread = slot->thread;

	vb_lock(&slot->lock);
	slot->thread = NULL;
	vb_unlock(&slot->lock);
	if (!thread)
		return;
	vb_dpa_thread_stop(thread);
	vb_windows_release(&slot->guest);
	vb_dpa_thread_destroy(thread);
}

static struct vb_lock spare_lock;
static struct call_slot *spare_slots; /* all busy */

/* The slot stays busy, so that no call takes it. */
static void slot_free(struct call_slot *slot)
{
	slot_drop_thread(slot);
	vb_guest_free(&slot->guest);
	vb_lock(&spare_lock);
	slot->next_spare = spare_slots;
	spare_slots = slot;
	vb_unlock(&spare_lock);
}

static struct call_slot *slot_memory(void)
{
	struct call_slot *slot;

	vb_lock(&spare_lock);
	slot = spare_slots;
	if (slot)
		spare_slots = slot->next_spare;
	vb_unlock(&spare_lock);
	if (slot)
		return slot;
	slot = aligned_alloc(64, sizeof(*slot));
	if (slot) {
		memset(slot, 0, sizeof(*slot));
		atomic_init(&slot->busy, true);
	}
	return slot;
}

/* The new slot is busy: it belongs to the caller. */
static struct call_slot *slot_new(struct flexio_process *process)
{
	struct call_slot *slot = slot_memory();

	if (!slot)
		return NULL;
	if (vb_guest_init(&slot->guest, process, GUEST_CALL, "RPC", 0, 0, VB_RTOS_ARGBUF_SIZE)) {
		slot_free(slot);
		return NULL;
	}
	slot->argbuf_addr = slot->guest.ctx_addr + sizeof(struct vb_rtos_thread);
	return slot;
}

/*
 * Fills an empty place of the table with a new slot. NULL: another thread did so; with *failed set:
 * no memory, or the process is being destroyed.
 */
static struct call_slot *slot_fill(struct flexio_process *process, unsigned int index, bool *failed)
{
	struct call_slot *slot = NULL;

	pthread_mutex_lock(&process->mutex);
	if (!process->open) {
		*failed = true;
	} else if (!atomic_load_explicit(&process->slots[index], memory_order_relaxed)) {
		slot = slot_new(process);
		*failed = !slot;
		if (slot)
			atomic_store_explicit(&process->slots[index], slot, memory_order_release);
	}
	pthread_mutex_unlock(&process->mutex);
	return slot;
}

static void slot_give(struct flexio_process *process, struct call_slot *slot)
{
	/* Both seq_cst: pairs with the fence in slot_take(). */
	atomic_store_explicit(&slot->busy, false, memory_order_seq_cst);
	if (likely(!atomic_load_explicit(&process->waiting, memory_order_seq_cst)))
		return;
	pthread_mutex_lock(&process->slot_lock);
	process->slots_given++;
	pthread_cond_broadcast(&process->slot_free);
	pthread_mutex_unlock(&process->slot_lock);
}

/* Take it, if it is free and (still) this process's. */
static bool slot_grab(struct flexio_process *process, struct call_slot *slot)
{
	if (atomic_load_explicit(&slot->busy, memory_order_relaxed) ||
	    atomic_exchange_explicit(&slot->busy, true, memory_order_acquire))
		return false;
	if (likely(slot->guest.process == process))
		return true;
	slot_give(slot->guest.process, slot);
	return false;
}

static struct call_slot *slot_try(struct flexio_process *process, bool *failed)
{
	static _Thread_local unsigned int hint __attribute__((tls_model("initial-exec")));

	for (unsigned int i = 0; i < CALL_SLOTS && !*failed; i++) {
		unsigned int index = (hint + i) % CALL_SLOTS;
		struct call_slot *slot =
			atomic_load_explicit(&process->slots[index], memory_order_acquire);

		if (unlikely(!slot))
			slot = slot_fill(process, index, failed);
		else if (!slot_grab(process, slot))
			slot = NULL;
		if (likely(slot)) {
			hint = index;
			return slot;
		}
	}
	return NULL;
}

static struct call_slot *slot_take(struct flexio_process *process)
{
	bool failed = false;
	struct call_slot *slot = slot_try(process, &failed);
	int cancel;

	if (likely(slot))
		return slot;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	/*
	 * All are busy. A caller that frees one sees `waiting`, or slot_try() below sees its slot:
	 * the fence pairs with the store and the load in slot_give().
	 */
	atomic_fetch_add_explicit(&process->waiting, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	while (!slot && !failed) {
		unsigned int seen;

		pthread_mutex_lock(&process->slot_lock);
		seen = process->slots_given;
		pthread_mutex_unlock(&process->slot_lock);
		slot = slot_try(process, &failed);
		if (slot || failed)
			break;
		pthread_mutex_lock(&process->slot_lock);
		while (process->slots_given == seen)
			pthread_cond_wait(&process->slot_free, &process->slot_lock);
		pthread_mutex_unlock(&process->slot_lock);
	}
	atomic_fetch_sub_explicit(&process->waiting, 1, memory_order_relaxed);
	pthread_setcancelstate(cancel, NULL);
	if (!slot)
		fail("process %p: no device memory for another call at the same time, or it is gone",
		     (void *)process);
	return slot;
}

enum {
	SLOT_RUNS,
	SLOT_ENDED,
	SLOT_SLEEPS
}; /* call_slot.ended; SLEEPS: it runs, and the caller sleeps */

static void slot_wake(struct call_slot *slot)
{
	/* Release: what the thread left behind. Pairs with slot_wait. */
	if (atomic_exchange_explicit(&slot->ended, SLOT_ENDED, memory_order_acq_rel) == SLOT_SLEEPS)
		vb_futex_wake(&slot->ended, 1, VB_FUTEX_PRIVATE);
}

void vb_call_done(struct guest *guest, enum vb_dpa_why why)
{
	struct call_slot *slot = (struct call_slot *)guest;

	slot->why = why;
	slot_wake(slot);
}

void vb_calls_halt(struct flexio_process *process)
{
	for (unsigned int i = 0; i < CALL_SLOTS; i++) {
		/* seq_cst: after the status, see run_queued(). */
		struct call_slot *slot =
			atomic_load_explicit(&process->slots[i], memory_order_seq_cst);

		if (!slot)
			continue;
		vb_lock(&slot->lock);
		if (slot->thread)
			vb_dpa_thread_halt(slot->thread);
		vb_unlock(&slot->lock);
		slot_wake(slot); /* a thread that is stopped calls nobody back */
	}
}

void vb_calls_name(struct flexio_process *process, uint32_t thread, char *name, size_t size)
{
	for (unsigned int i = 0; i < CALL_SLOTS; i++) {
		struct call_slot *slot =
			atomic_load_explicit(&process->slots[i], memory_order_acquire);
		const char *what;
		bool found;

		if (!slot)
			continue;
		vb_lock(&slot->lock);
		found = slot->thread && vb_dpa_thread_number(slot->thread) == thread &&
			atomic_load_explicit(&slot->busy, memory_order_relaxed);
		what = atomic_load_explicit(&slot->what, memory_order_relaxed);
		vb_unlock(&slot->lock);
		if (found && what) {
			snprintf(name, size, "RPC %s", what);
			return;
		}
	}
}

void vb_calls_open(struct flexio_process *process)
{
	pthread_mutex_lock(&process->mutex);
	process->open = true;
	pthread_mutex_unlock(&process->mutex);
}

/* All slots, or none. Under process.mutex, so that no new ones are made. */
static bool call_take_all(struct flexio_process *process)
{
	unsigned int taken = 0;

	for (; taken < CALL_SLOTS; taken++) {
		struct call_slot *slot =
			atomic_load_explicit(&process->slots[taken], memory_order_relaxed);

		/* Pairs with the store in slot_give(). */
		if (slot && atomic_exchange_explicit(&slot->busy, true, memory_order_acquire))
			break;
	}
	for (unsigned int i = 0; taken < CALL_SLOTS && i < taken; i++) {
		struct call_slot *slot =
			atomic_load_explicit(&process->slots[i], memory_order_relaxed);

		if (slot)
			slot_give(process, slot);
	}
	return taken == CALL_SLOTS;
}

bool vb_calls_destroy(struct flexio_process *process)
{
	bool closed;

	pthread_mutex_lock(&process->mutex);
	closed = process->open && call_take_all(process);
	if (closed)
		process->open = false;
	pthread_mutex_unlock(&process->mutex);
	if (!closed)
		return false;
	for (unsigned int i = 0; i < CALL_SLOTS; i++) {
		struct call_slot *slot =
			atomic_load_explicit(&process->slots[i], memory_order_relaxed);

		atomic_store_explicit(&process->slots[i], NULL, memory_order_relaxed);
		if (slot)
			slot_free(slot);
	}
	/* Wake callers that wait for a slot: they find that the process is closed. */
	pthread_mutex_lock(&process->slot_lock);
	process->slots_given++;
	pthread_cond_broadcast(&process->slot_free);
	pthread_mutex_unlock(&process->slot_lock);
	return true;
}

/* ---- running ---- */

/*
 * Whether the call can run on this host thread: an EU must be free. Busy EUs of groups count as
 * if they were of the pool, which at worst makes a call queue up. Lent threads are counted only
 * where EUs are so few that callers could outnumber them, because all callers write this counter.
 */
static bool lend_begin(struct accel *accel, bool *counted)
{
	unsigned int busy = vb_dpa_eus_busy(accel->dpa), eus = vb_dpa_pool_size(accel->dpa);

	if (!atomic_load_explicit(&accel->lend, memory_order_relaxed) || busy >= eus)
		return false;
	*counted = eus < MANY_EUS;
	if (!*counted)
		return true;
	if (atomic_fetch_add_explicit(&accel->lent, 1, memory_order_relaxed) + busy < eus)
		return true;
	atomic_fetch_sub_explicit(&accel->lent, 1, memory_order_relaxed);
	return false;
}

static void lend_end(struct accel *accel, bool counted)
{
	if (counted)
		atomic_fetch_sub_explicit(&accel->lent, 1, memory_order_relaxed);
}

/* 0, or -ETIMEDOUT. */
static int call_run_lent(struct call_slot *slot, enum vb_dpa_why *why)
{
	struct flexio_process *process = slot->guest.process;
	uint64_t slice = FIRST_SLICE;

	for (;;) {
		int err = vb_dpa_thread_run(slot->thread, slice, why);

		if (unlikely(err))
			return err;
		if (likely(*why != VB_DPA_WHY_BUDGET) || process_dead(process))
			return slot->guest.end == END_TIMEOUT ? -ETIMEDOUT : 0;
		call_wait_written(process);
		if (vb_call_late(&slot->guest))
			return -ETIMEDOUT;
		slice = SLICE;
	}
}

/* ---- on an EU: the caller sleeps until the end, and is woken once ---- */

/* Until the end or for this long. */
static void slot_sleep(struct call_slot *slot, uint64_t ns)
{
	struct vb_time *time = vb_time_card();
	uint64_t until = vb_time_now(time) + ns;

	while (atomic_load_explicit(&slot->ended, memory_order_acquire) != SLOT_ENDED)
		if (vb_futex_wait_until(time, &slot->ended, SLOT_SLEEPS, VB_FUTEX_PRIVATE, until) ==
		    -ETIMEDOUT)
			return;
}

/* False: the time is over. */
static bool slot_wait(struct call_slot *slot)
{
	uint64_t deadline = slot->guest.deadline, now = running_ns(slot->guest.process), least = 0;
	unsigned int runs = SLOT_RUNS;

	atomic_compare_exchange_strong_explicit(&slot->ended, &runs, SLOT_SLEEPS,
						memory_order_relaxed, memory_order_relaxed);
	while (atomic_load_explicit(&slot->ended, memory_order_acquire) != SLOT_ENDED &&
	       now < deadline) {
		slot_sleep(slot, deadline - now > least ? deadline - now : least);
		/* While the process is held the rest does not get less: not in a busy loop. */
		least = SLEEP_MIN;
		now = running_ns(slot->guest.process);
	}
	return atomic_load_explicit(&slot->ended, memory_order_acquire) == SLOT_ENDED;
}

static int run_queued(struct call_slot *slot, enum vb_dpa_why *why)
{
	struct flexio_process *process = slot->guest.process;
	bool ended;
	int err;

	slot->guest.deadline = running_ns(process) + process->accel->timeout_ns;
	atomic_store_explicit(&slot->ended, SLOT_RUNS, memory_order_relaxed);
	err = vb_dpa_thread_start(slot->thread);
	if (err)
		return err;
	/*
	 * A process that died before the start could not halt this thread; one that dies now wakes
	 * us. The fence stands between publishing the slot and reading the status;
	 * vb_process_fatal() writes the status and then reads the slots, so one of the two sees the
	 * other.
	 */
	atomic_thread_fence(memory_order_seq_cst);
	ended = process_dead(process) || slot_wait(slot);
	if (process_dead(process))
		vb_dpa_thread_stop(slot->thread);
	*why = slot->why;
	return ended && slot->guest.end != END_TIMEOUT ? 0 : -ETIMEDOUT;
}

void vb_guest_grace(struct guest *guest, struct vb_dpa_thread *thread)
{
	uint64_t used = 0, step = 1000;
	enum vb_dpa_why why;

	vb_dpa_thread_stop(thread);
	/*
	 * Not for long: the flag is in device memory and not trusted. Whoever destroys a thread
	 * does not wait for a debugger that holds the process.
	 */
	for (; ctx_get(guest, held) && used < GRACE; used += step)
		if (vb_dpa_thread_run_dying(thread, step, &why) || why != VB_DPA_WHY_BUDGET)
			break;
}

/* Runs the prepared call. Returns its status; *result is set on success. */
static flexio_status slot_run(struct call_slot *slot, uint64_t *result)
{
	struct flexio_process *process = slot->guest.process;
	enum vb_dpa_why why = VB_DPA_WHY_STOP;
	bool counted = false;
	int err;

	slot->guest.deadline = slot->guest.worked = 0;
	slot->guest.lent = lend_begin(process->accel, &counted);
	if (likely(slot->guest.lent)) {
		err = call_run_lent(slot, &why);
		lend_end(process->accel, counted);
	} else {
		err = run_queued(slot, &why);
	}
	vb_guest_flush(&slot->guest);
	if (unlikely(err == -ETIMEDOUT)) {
		vb_guest_grace(&slot->guest, slot->thread);
		if (slot->guest.end == END_NONE)
			slot->guest.end = END_TIMEOUT;
	}
	vb_guest_ended(&slot->guest);
	if (unlikely(process_dead(process)))
		return vb_process_fail_dead(process);
	if (err == -ETIMEDOUT) {
		slot_drop_thread(slot);
		fail("process %s: %s took longer than %llu ms (rpc_timeout of the configuration, or VERBATIM_RPC_TIMEOUT_MS)",
		     process->name, slot->what,
		     (unsigned long long)(process->accel->timeout_ns / 1000000));
		return FLEXIO_STATUS_TIMEOUT;
	}
	if (err || (why != VB_DPA_WHY_RETURN && why != VB_DPA_WHY_EXIT)) {
		slot_drop_thread(slot);
		return fail("process %s: the device thread of %s could not run: %s", process->name,
			    slot->what, err ? strerror(-err) : "it was stopped");
	}
	if (slot->guest.end == END_RECOVERED)
		return fail("process %s: %s faulted, and the error handler gave it up",
			    process->name, slot->what);
	/* Ending the thread by hand is ending the call, with result 0. */
	*result = why == VB_DPA_WHY_RETURN ? vb_dpa_thread_state(slot->thread)->x[10] : 0;
	return FLEXIO_STATUS_SUCCESS;
}

static flexio_status slot_call(struct call_slot *slot, uint64_t pc, const uint64_t *args,
			       unsigned int nargs, uint64_t *result)
{
	int err;

	slot->guest.end = END_NONE;
	ctx_put(&slot->guest, os_errno, 0);
	vb_outbox_reset(&slot->guest);
	err = likely(slot->thread) ? 0 : slot_make_thread(slot);
	if (!err)
		err = vb_dpa_thread_set_call(slot->thread, pc, args, nargs);
	if (unlikely(err))
		return fail("process %s: %s cannot be called: %s", slot->guest.process->name,
			    slot->what, strerror(-err));
	return slot_run(slot, result);
}

int vb_call_plain(struct flexio_process *process, uint64_t pc, const char *what)
{
	struct call_slot *slot = slot_take(process);
	flexio_status status = FLEXIO_STATUS_FAILED;
	uint64_t result;

	if (slot) {
		atomic_store_explicit(&slot->what, what, memory_order_relaxed);
		status = slot_call(slot, pc, NULL, 0, &result);
		slot_give(process, slot);
	}
	return status == FLEXIO_STATUS_SUCCESS ? 0 : -EFAULT;
}

/* The function and its first arguments, which have just been packed. */
static void note_call(struct call_slot *slot, uint64_t func, const uint64_t *args, size_t count)
{
	uint64_t words[EVENT_ARGS] = { func };

	for (size_t i = 0; i < count && i < EVENT_ARGS - 1; i++)
		words[1 + i] = args[i];
	vb_event_note(&slot->guest.events,
		      slot->thread ? vb_dpa_thread_state(slot->thread)->instret : 0, EVENT_RPC,
		      count, words);
}

static flexio_status call_func(struct call_slot *slot, const struct func *func, uint64_t *result,
			       va_list ap)
{
	uint64_t args[2] = { slot->argbuf_addr, func->addr };

	if (func->unpack) {
		func->pack(slot->argbuf, ap);
		if (vb_view_write(vb_view_at(slot->guest.ctx, sizeof(struct vb_rtos_thread)),
				  slot->argbuf, func->argbuf_size))
			return fail("the memory of an RPC's arguments is gone");
		note_call(slot, func->addr, slot->argbuf, func->argbuf_size / sizeof(uint64_t));
		return slot_call(slot, func->unpack, args, 2, result);
	}
	args[0] = va_arg(ap, uint64_t);
	note_call(slot, func->addr, args, 1);
	return slot_call(slot, func->addr, args, 1, result);
}

static __attribute__((noinline, cold)) flexio_status
call_recorded(struct call_slot *slot, const struct func *func, uint64_t *result, va_list ap)
{
	struct vb_note note = { .kind = VB_NOTE_RPC,
				.name = vb_timeline_name(func->name),
				.time = vb_timeline_now() };
	flexio_status status = call_func(slot, func, result, ap);

	note.code = (uint8_t)status;
	note.duration = vb_timeline_now() - note.time;
	vb_timeline_write(&note);
	return status;
}

/* The slot keeps process and app alive. */
static flexio_status call_with(struct call_slot *slot, flexio_func_t *host_func, uint64_t *result,
			       va_list ap)
{
	struct flexio_process *process = slot->guest.process;
	const struct func *func = vb_func_find(process->app, host_func);

	if (unlikely(!func))
		return vb_func_fail(process->app, host_func);
	if (unlikely(process_dead(process)))
		return vb_process_fail_dead(process);
	atomic_store_explicit(&slot->what, func->name, memory_order_relaxed);
	if (unlikely(vb_timeline_is_on()))
		return call_recorded(slot, func, result, ap);
	return call_func(slot, func, result, ap);
}

flexio_status flexio_process_call(struct flexio_process *process, flexio_func_t *host_func,
				  uint64_t *func_ret, ...)
{
	struct call_slot *slot;
	flexio_status status;
	uint64_t result;
	va_list ap;

	API_CALL();
	if (unlikely(!vb_handle_valid(HANDLE_PROCESS, process)))
		return bad_handle(process, "process");
	slot = slot_take(process);
	if (unlikely(!slot))
		return failed();
	va_start(ap, func_ret);
	status = call_with(slot, host_func, &result, ap);
	va_end(ap);
	call_wait_written(process);
	slot_give(process, slot);
	if (likely(status == FLEXIO_STATUS_SUCCESS) && func_ret)
		*func_ret = result;
	return status;
}
