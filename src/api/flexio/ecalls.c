// SPDX-License-Identifier: MIT
/*
 * Owns what device code's ecalls do (device/rtos.h), and what traps and the ends of threads lead
 * to. All of it runs on the host thread that executes the guest thread. Arguments are not trusted:
 * an address is checked against the process's memory, a number against its range. A checked address
 * can become invalid at any time, because the memory may be the stack of another thread; so it is
 * accessed through host/fault.h only.
 */
#include "api/flexio/crash.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "api/flexio/process.h"
#include "api/flexio/stream.h"
#include "base/file.h"
#include "base/log.h"

enum { A0 = 10, A1, A2, A3, A7 = 17 };

/* One ecall of a guest thread: state has its registers, and the result goes to a0. */
typedef enum vb_dpa_action (*call_fn)(struct guest *guest, struct vb_dpa_state *state);

static enum vb_dpa_action rtos_answer(struct vb_dpa_state *state, uint64_t value)
{
	state->x[A0] = value;
	return VB_DPA_CONTINUE;
}

static enum vb_dpa_action rtos_end(struct guest *guest, enum thread_end how)
{
	guest->end = how;
	return VB_DPA_EXIT;
}

static enum vb_dpa_action call_ctx(struct guest *guest, struct vb_dpa_state *state)
{
	return rtos_answer(state, guest->ctx_addr);
}

static enum vb_dpa_action call_msg(struct guest *guest, struct vb_dpa_state *state)
{
	uint64_t len = state->x[A3];
	struct vb_dpa_view text = { 0 };

	if (!len)
		return rtos_answer(state, 0);
	if (len <= MESSAGE_MAX)
		text = vb_dpa_mem_host(guest->process->dpa, state->x[A2], len, VB_DPA_READ);
	if (vb_view_is_none(text) ||
	    vb_streams_message(guest, state->x[A0], state->x[A1], text, len))
		return rtos_answer(state, (uint64_t)-1);
	return rtos_answer(state, len);
}

static enum vb_dpa_action call_traces(struct guest *guest, struct vb_dpa_state *state)
{
	int err = vb_streams_traces(guest, state->x[A0], state->x[A1], state->x[A2], state->x[A3]);

	return rtos_answer(state, err ? (uint64_t)-1 : 0);
}

static enum vb_dpa_action call_sbrk(struct guest *guest, struct vb_dpa_state *state)
{
	struct flexio_process *process = guest->process;
	int64_t change = (int64_t)state->x[A0];
	uint64_t before = (uint64_t)-1;

	pthread_mutex_lock(&process->brk_lock);
	if (change >= 0 ? (uint64_t)change <= process->brk_end - process->brk
			: 0 - (uint64_t)change <= process->brk - process->brk_base) {
		before = process->brk;
		process->brk += (uint64_t)change;
	}
	pthread_mutex_unlock(&process->brk_lock);
	return rtos_answer(state, before);
}

static enum vb_dpa_action call_relax(struct guest *guest, struct vb_dpa_state *state)
{
	state->x[A0] = 0;
	if (!guest->lent)
		return guest->fault && vb_call_late(guest) ? rtos_end(guest, END_TIMEOUT)
							   : VB_DPA_YIELD;
	/*
	 * A lent host thread shares no EU with others, so it can only yield its CPU. That may take any time, so the
	 * deadline is checked here, and not only after a number of instructions.
	 */
	sched_yield();
	return vb_call_late(guest) ? rtos_end(guest, END_TIMEOUT) : VB_DPA_YIELD;
}

static enum vb_dpa_action call_reschedule(struct guest *guest, struct vb_dpa_state *state)
{
	return rtos_end(guest, END_RESCHEDULE);
}

static enum vb_dpa_action call_finish(struct guest *guest, struct vb_dpa_state *state)
{
	return rtos_end(guest, END_FINISH);
}

static enum vb_dpa_action call_retrigger(struct guest *guest, struct vb_dpa_state *state)
{
	return rtos_end(guest, END_RETRIGGER);
}

static enum vb_dpa_action call_yield(struct guest *guest, struct vb_dpa_state *state)
{
	bool retrigger = state->x[A0] == 1;

	state->x[A0] = 0;
	/* An error handler has no trigger to wait for. */
	if (!guest->continuable || guest->fault)
		return VB_DPA_CONTINUE;
	return vb_handler_yield(guest, retrigger) ? VB_DPA_BLOCK : VB_DPA_YIELD;
}

static enum vb_dpa_action call_process_finish(struct guest *guest, struct vb_dpa_state *state)
{
	vb_guest_flush(guest);
	vb_process_fatal(guest->process, VB_RTOS_STATUS_FINISHED);
	return rtos_end(guest, END_PROCESS);
}

/*
 * Logs why the process ends: as the reason of the failing call if it runs on its caller's thread,
 * otherwise as a line of its own.
 */
#define say_end(guest, ...)                   \
	do {                                  \
		if ((guest)->lent)            \
			fail(__VA_ARGS__);    \
		else                          \
			log_err(__VA_ARGS__); \
	} while (0)

static enum vb_dpa_action call_error(struct guest *guest, struct vb_dpa_thread *thread,
				     struct vb_dpa_state *state)
{
	uint64_t code = state->x[A0];
	int status = code >= 0x80 && code <= 0xff ? (int)code : VB_RTOS_STATUS_ILLEGAL_ERR;

	vb_guest_flush(guest);
	vb_crash_keep(guest, thread, state, status);
	vb_crash_publish(guest);
	vb_process_fatal(guest->process, status);
	say_end(guest, "device thread %u ended process %s with error 0x%x", guest->thread_id,
		guest->process->name,
		(unsigned int)atomic_load_explicit(&guest->process->status, memory_order_relaxed));
	return rtos_end(guest, END_PROCESS);
}

static enum vb_dpa_action call_activate(struct guest *guest, struct vb_dpa_state *state)
{
	return rtos_answer(state,
			   vb_handler_trigger(guest->process, state->x[A0]) ? 0 : (uint64_t)-1);
}

static enum vb_dpa_action refusal(struct vb_dpa_state *state, bool done)
{
	return rtos_answer(state, done ? 0 : (uint64_t)-1);
}

static enum vb_dpa_action call_outbox_config(struct guest *guest, struct vb_dpa_state *state)
{
	return refusal(state, vb_outbox_config(guest, state->x[A0]));
}

static enum vb_dpa_action call_outbox_extend(struct guest *guest, struct vb_dpa_state *state)
{
	return refusal(state, vb_outbox_extend(guest, state->x[A0]));
}

/* What is wrong with counters is a trap of the ecall. */
static enum vb_dpa_action call_counters_config(struct guest *guest, struct vb_dpa_state *state)
{
	if (!vb_counters_config(guest, state->x[A0], state->x[A1], state->x[A2]))
		return VB_DPA_TRAP;
	return rtos_answer(state, 0);
}

static enum vb_dpa_action call_counters_sample(struct guest *guest, struct vb_dpa_state *state)
{
	return vb_counters_sample(guest) ? rtos_answer(state, 0) : VB_DPA_TRAP;
}

static enum vb_dpa_action call_cross_db(struct guest *guest, struct vb_dpa_state *state)
{
	bool rung = vb_outbox_cross_db(guest, state->x[A0], state->x[A1], state->x[A2]);

	vb_call_worked(guest, WORK_DOORBELL);
	return refusal(state, rung);
}

static const call_fn calls[] = {
	[VB_RTOS_THREAD_CTX] = call_ctx,
	[VB_RTOS_MSG] = call_msg,
	[VB_RTOS_SBRK] = call_sbrk,
	[VB_RTOS_RELAX] = call_relax,
	[VB_RTOS_TRACES] = call_traces,
	[VB_RTOS_RESCHEDULE] = call_reschedule,
	[VB_RTOS_FINISH] = call_finish,
	[VB_RTOS_RETRIGGER] = call_retrigger,
	[VB_RTOS_YIELD] = call_yield,
	[VB_RTOS_PROCESS_FINISH] = call_process_finish,
	[VB_RTOS_ACTIVATE] = call_activate,
	[VB_RTOS_OUTBOX_CONFIG] = call_outbox_config,
	[VB_RTOS_OUTBOX_EXTEND] = call_outbox_extend,
	[VB_RTOS_CROSS_DB] = call_cross_db,
	[VB_RTOS_COUNTERS_CONFIG] = call_counters_config,
	[VB_RTOS_COUNTERS_SAMPLE] = call_counters_sample,
};

static enum vb_dpa_action rtos_execute(struct guest *guest, struct vb_dpa_thread *thread,
				       struct vb_dpa_state *state)
{
	uint64_t number = state->x[A7];

	if (number < ARRAY_SIZE(calls) && calls[number])
		return calls[number](guest, state);
	if (number >= VB_RTOS_WINDOW_CONFIG && number <= VB_RTOS_WINDOW_WRITE)
		return rtos_answer(state, vb_window_call(guest, thread, number, &state->x[A0]));
	if (number == VB_RTOS_ERROR)
		return call_error(guest, thread, state);
	if (number == VB_RTOS_PCC_TABLE)
		return rtos_answer(state, vb_pcc_table(guest->process, state->x[A0]));
	return VB_DPA_TRAP;
}

static enum vb_dpa_action ecall(struct vb_dpa_thread *thread, struct vb_dpa_state *state, void *arg)
{
	struct guest *guest = vb_dpa_thread_user(thread);
	enum vb_dpa_action action;
	struct event *event;

	if (process_dead(guest->process))
		return rtos_end(guest, END_PROCESS);
	event = vb_event_note(&guest->events, state->instret, EVENT_CALL, state->x[A7],
			      &state->x[A0]);
	action = rtos_execute(guest, thread, state);
	event->result = state->x[A0];
	/* What the call did may have used up the time; slices do not see that, they count instructions. */
	if (action == VB_DPA_CONTINUE &&
	    unlikely(vb_call_worked(guest, WORK_CALL) || guest->end == END_TIMEOUT))
		return VB_DPA_EXIT;
	return action;
}

/* ---- faults ----
 *
 *	fault --> error handler, on the same thread, with an empty stack --> reschedule: it is over
 *	      |                                                          `-> any other end: fatal
 *	      `-> there is none, or the fault is its own: fatal
 */

static int fault_status(struct vb_dpa_thread *thread, const struct vb_dpa_state *state)
{
	struct vb_dpa_stack stack;

	vb_dpa_thread_stack(thread, &stack);
	if (state->cause == VB_DPA_CAUSE_WATCHDOG)
		return VB_RTOS_STATUS_WATCHDOG;
	if ((state->cause == VB_DPA_CAUSE_LOAD || state->cause == VB_DPA_CAUSE_STORE) &&
	    state->tval < stack.addr && stack.addr - state->tval <= stack.guard)
		return VB_RTOS_STATUS_STACK;
	return VB_RTOS_STATUS_FAULT + (int)state->cause;
}

struct fault_text {
	char text[256 + FLEXIO_MAX_NAME_LEN + VB_DPA_NAME_TEXT];
};

static const char *rtos_describe(struct fault_text *to, const struct guest *guest, int status,
				 const struct vb_dpa_state *state)
{
	uint64_t offset = 0;
	const char *name = vb_dpa_symbol_name(guest->process->dpa, state->pc, &offset);
	char text[VB_DPA_NAME_TEXT];

	snprintf(to->text, sizeof(to->text),
		 "(0x%x) in device thread %u of process %s: %s at 0x%llx (%s+0x%llx), value 0x%llx",
		 (unsigned int)status, guest->thread_id, guest->process->name,
		 vb_dpa_cause_name((enum vb_dpa_cause)state->cause), (unsigned long long)state->pc,
		 name ? vb_dpa_printable(name, text) : "?", (unsigned long long)offset,
		 (unsigned long long)state->tval);
	return to->text;
}

/* False: there is no handler, or it was running. */
static bool run_error_handler(struct guest *guest, struct vb_dpa_thread *thread, int status)
{
	struct flexio_process *process = guest->process;
	uint64_t pc = atomic_load_explicit(&process->error_handler, memory_order_relaxed);
	uint64_t args[2] = { guest->ctx_addr, (uint64_t)status };

	/* An instruction a nanosecond: a loop ends near the time limit, and the same in a replay. */
	if (!pc || guest->fault || process_dead(process) ||
	    vb_dpa_thread_divert(thread, pc, args, 2, process->accel->timeout_ns))
		return false;
	guest->fault = status;
	ctx_put(guest, os_errno, (uint32_t)status);
	if (guest->kind != GUEST_CALL)
		guest->deadline = 0;
	return true;
}

static void trap(struct vb_dpa_thread *thread, const struct vb_dpa_state *state, void *arg)
{
	struct guest *guest = vb_dpa_thread_user(thread);
	int status = fault_status(thread, state);
	struct fault_text text;

	rtos_describe(&text, guest, status, state); /* the handler gets other registers */
	vb_crash_keep(guest, thread, state, status);
	if (run_error_handler(guest, thread, status)) {
		log_some(FLEXIO_LOG_LVL_WARN, "Error %s; the error handler runs", text.text);
		return;
	}
	vb_guest_flush(guest); /* the program may exit as soon as it sees the error */
	guest->end = END_PROCESS;
	vb_crash_publish(guest);
	/* Of a handler that faults itself the first fault is the cause. */
	vb_process_fatal(guest->process,
			 guest->fault && status != VB_RTOS_STATUS_WATCHDOG ? guest->fault : status);
	say_end(guest, "Fatal error %s%s", text.text,
		guest->fault ? ", in the error handler of an earlier fault" : "");
}

void vb_guest_ended(struct guest *guest)
{
	int status = guest->fault;

	if (likely(!status))
		return;
	guest->fault = 0;
	if (guest->end == END_RESCHEDULE || process_dead(guest->process)) {
		if (guest->end == END_RESCHEDULE)
			guest->end = END_RECOVERED;
		vb_crash_forget(guest); /* of a dead process: published, or not what ended it */
		return;
	}
	if (guest->end == END_TIMEOUT)
		status = VB_RTOS_STATUS_WATCHDOG;
	say_end(guest, "Fatal error (0x%x) in device thread %u of process %s: the error handler %s",
		(unsigned int)status, guest->thread_id, guest->process->name,
		guest->end == END_TIMEOUT ? "took too long"
					  : "did not end by rescheduling the thread");
	vb_crash_publish(guest);
	vb_process_fatal(guest->process, status);
	guest->end = END_PROCESS;
}

static void rtos_done(struct vb_dpa_thread *thread, enum vb_dpa_why why, void *arg)
{
	struct guest *guest = vb_dpa_thread_user(thread);

	vb_guest_ended(guest);
	switch (guest->kind) {
	case GUEST_CALL:
		vb_call_done(guest, why);
		break;
	case GUEST_HANDLER:
		vb_handler_done(guest);
		break;
	case GUEST_WORKER:
		vb_worker_done(guest);
		break;
	}
}

/* ---- checked mode ---- */

static void found(struct vb_dpa_process *dpa, enum vb_dpa_found kind, const char *line,
		  const char *text, void *arg)
{
	const struct flexio_process *process = arg;

	if (kind == VB_DPA_FOUND_KEPT) {
		log_info("process %s: %s", process->name, line);
		return;
	}
	if (kind == VB_DPA_FOUND_CALL)
		fail("process %s: %s", process->name, line);
	else
		log_err("Check of process %s: %s", process->name, line);
	if (vb_file_write(STDERR_FILENO, text, strlen(text)) < 0) {
		/* nowhere left to say it */
	}
}

static bool worked(struct vb_dpa_thread *thread, uint64_t bytes, void *arg)
{
	return vb_call_worked(vb_dpa_thread_user(thread), bytes >> WORK_BYTES_SHIFT);
}

/* Once for each process: what runs here has to run on a card. */
static void beyond(struct vb_dpa_thread *thread, uint64_t size, void *arg)
{
	struct flexio_process *process = arg;

	if (!atomic_exchange_explicit(&process->beyond, true, memory_order_relaxed))
		vb_warn("process %s: device thread %u needs more than its stack of %llu bytes; on a card this is a stack overflow, here it has %u (dpa_stack of the configuration changes the former)",
			process->name,
			((const struct guest *)vb_dpa_thread_user(thread))->thread_id,
			(unsigned long long)size, STACK_MOST);
}

const struct vb_dpa_ops vb_rtos_ops = { .beyond = beyond,
					.ecall = ecall,
					.trap = trap,
					.done = rtos_done,
					.found = found,
					.worked = worked };
