// SPDX-License-Identifier: MIT
/*
 * Owns event handlers: device threads that run when something triggers them.
 *
 *	           run()                trigger                     return, reschedule
 *	CREATED ---------> WAITING <------------> RUNNING --. <- pending trigger, retrigger: again at once
 *	                                          |  ^      '----> FINISHED (finish)
 *	                               yield      v  | trigger
 *	                                         YIELDED            (continuable handlers)
 *
 * A trigger in CREATED and FINISHED is lost, as documented; in RUNNING one is kept. The event of a CQ
 * is kept in CREATED, too, for run(): the CQ has none until device code arms it again. States change
 * under the lock of the handler's entry. Between the ecall that ends a run and vb_handler_done()
 * the state still is RUNNING, so a trigger that comes then is kept, too: none is lost.
 *
 * Entries are never freed before the process: a thread that has an activation id locks the entry
 * first and then checks whether it has a handler.
 */
#include "api/flexio/crash.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/flexio/process.h"
#include "object.h"

enum handler_state {
	HANDLER_CREATED,
	HANDLER_WAITING,
	HANDLER_RUNNING, /* or queued for an EU */
	HANDLER_YIELDED,
	HANDLER_FINISHED,
};

/*
 * What a trigger needs lies on one cache line, so that only this line moves from the thread that
 * ran the handler to the one that triggers it.
 */
struct handler_entry {
	_Alignas(64) pthread_mutex_t lock;
	struct flexio_event_handler *handler; /* NULL: none */
	enum handler_state state;             /* of that handler */
	bool pending;
};

_Static_assert(sizeof(struct handler_entry) == 64 || sizeof(pthread_mutex_t) > 48, "one line");

struct flexio_thread {
	struct flexio_event_handler *handler;
};

struct flexio_event_handler {
	struct guest guest; /* first */

	/* Read by triggers: on other lines than what the thread writes. */
	_Alignas(64) struct flexio_process *process;
	struct handler_entry *entry;
	uint32_t activation_id;
	uint32_t obj_id;
	struct vb_dpa_thread *dpa_thread;
	struct flexio_thread thread;
	struct mlx5dv_devx_obj object; /* the thread, lent to libmlx5 */
	unsigned int users;            /* CQs whose events go here; under process.mutex */
	unsigned int eu_group;         /* that the thread runs in; 0: none */
	uint64_t pc, arg;
};

static _Atomic uint32_t next_obj_id = 1;

static struct flexio_event_handler *to_handler(struct guest *guest)
{
	return (struct flexio_event_handler *)guest;
}

/* ---- running, under entry->lock ---- */

/*
 * Sets the registers for the next run. Done where the last run ended, not by the trigger: there
 * they are in the cache.
 */
static void event_handler_prepare(struct flexio_event_handler *h)
{
	h->guest.end = END_NONE;
	vb_event_note(&h->guest.events, vb_dpa_thread_state(h->dpa_thread)->instret, EVENT_HANDLER,
		      0, (uint64_t[EVENT_ARGS]){ h->pc, h->arg });
	vb_dpa_thread_set_call(h->dpa_thread, h->pc, &h->arg, 1); /* an idle thread: cannot fail */
}

static void event_handler_start(struct flexio_event_handler *h)
{
	int err;

	h->entry->state = HANDLER_RUNNING;
	err = vb_dpa_thread_start(h->dpa_thread);
	if (err) {
		log_some(FLEXIO_LOG_LVL_ERR, "event handler %u cannot run: %s", h->guest.thread_id,
			 strerror(-err));
		h->entry->state = HANDLER_WAITING;
	}
}

static void event_handler_trigger(struct flexio_process *process, struct handler_entry *entry)
{
	if (process_dead(process))
		return;
	switch (entry->state) {
	case HANDLER_WAITING:
		event_handler_start(entry->handler);
		break;
	case HANDLER_RUNNING:
		entry->pending = true;
		break;
	case HANDLER_YIELDED:
		entry->state = HANDLER_RUNNING;
		vb_dpa_thread_wake(entry->handler->dpa_thread);
		break;
	default: /* lost */
		break;
	}
}

/* ---- from other files ---- */

static struct handler_entry *event_handler_find_entry(struct flexio_process *process, uint64_t id)
{
	struct handler_entry *chunk;

	if (id >= HANDLER_CHUNK * HANDLER_CHUNKS)
		return NULL;
	/* Pairs with the release in entry_take(). */
	chunk = atomic_load_explicit(&process->handlers[id / HANDLER_CHUNK], memory_order_acquire);
	return chunk ? &chunk[id % HANDLER_CHUNK] : NULL;
}

bool vb_handler_trigger(struct flexio_process *process, uint64_t activation_id)
{
	struct handler_entry *entry = event_handler_find_entry(process, activation_id);
	bool found;

	if (!entry)
		return false;
	pthread_mutex_lock(&entry->lock);
	found = entry->handler;
	if (found)
		event_handler_trigger(process, entry);
	pthread_mutex_unlock(&entry->lock);
	return found;
}

struct flexio_event_handler *vb_handler_hold(struct flexio_process *process,
					     struct flexio_thread *thread)
{
	struct flexio_event_handler *h =
		(struct flexio_event_handler *)((uintptr_t)thread -
						offsetof(struct flexio_event_handler, thread));
	struct handle *pin AUTO_UNPIN = thread ? vb_handle_pin(HANDLE_EVENT_HANDLER, h) : NULL;

	if (!pin || h->guest.process != process)
		return NULL;
	h->users++;
	return h;
}

void vb_handler_release(struct flexio_event_handler *handler)
{
	handler->users--;
}

void vb_handler_event(struct flexio_event_handler *handler)
{
	struct handler_entry *entry = handler->entry;

	pthread_mutex_lock(&entry->lock);
	if (entry->state == HANDLER_CREATED)
		entry->pending = true;
	else
		event_handler_trigger(handler->process, entry);
	pthread_mutex_unlock(&entry->lock);
}

/* Under entry->lock. A handler that was destroyed has left its entry, maybe to another one. */
static bool is_running(const struct flexio_event_handler *h)
{
	return h->entry->handler == h && h->entry->state == HANDLER_RUNNING;
}

void vb_handler_done(struct guest *guest)
{
	struct flexio_event_handler *h = to_handler(guest);
	struct handler_entry *entry = h->entry;
	enum thread_end end = guest->end;

	vb_guest_flush(guest);
	pthread_mutex_lock(&entry->lock);
	if (is_running(h) && !process_dead(guest->process)) {
		event_handler_prepare(h);
		if (end == END_FINISH) {
			entry->state = HANDLER_FINISHED;
		} else if (end == END_RETRIGGER) {
			event_handler_start(h);
		} else if (entry->pending) {
			entry->pending = false;
			event_handler_start(h);
		} else {
			entry->state = HANDLER_WAITING;
		}
	}
	pthread_mutex_unlock(&entry->lock);
}

bool vb_handler_yield(struct guest *guest, bool retrigger)
{
	struct flexio_event_handler *h = to_handler(guest);
	struct handler_entry *entry = h->entry;
	bool wait;

	pthread_mutex_lock(&entry->lock);
	/* A handler that is being destroyed blocks until it is stopped. */
	wait = !is_running(h) || (!retrigger && !entry->pending);
	if (!is_running(h))
		;
	else if (wait)
		entry->state = HANDLER_YIELDED;
	else if (!retrigger)
		entry->pending = false;
	pthread_mutex_unlock(&entry->lock);
	return wait;
}

void vb_handlers_halt(struct flexio_process *process)
{
	for (unsigned int i = 0; i < HANDLER_CHUNK * HANDLER_CHUNKS; i++) {
		struct handler_entry *entry = event_handler_find_entry(process, i);

		if (!entry) {
			i += HANDLER_CHUNK - 1;
			continue;
		}
		pthread_mutex_lock(&entry->lock);
		if (entry->handler)
			vb_dpa_thread_halt(entry->handler->dpa_thread);
		pthread_mutex_unlock(&entry->lock);
	}
}

void vb_handlers_destroy(struct flexio_process *process)
{
	for (unsigned int c = 0; c < HANDLER_CHUNKS; c++) {
		struct handler_entry *chunk =
			atomic_load_explicit(&process->handlers[c], memory_order_relaxed);

		for (unsigned int i = 0; chunk && i < HANDLER_CHUNK; i++)
			pthread_mutex_destroy(&chunk[i].lock);
		free(chunk);
	}
}

/* ---- create ---- */

/* A free entry, under process.mutex; its number is the activation id. */
static struct handler_entry *entry_take(struct flexio_process *process, uint32_t *id)
{
	for (unsigned int c = 0; c < HANDLER_CHUNKS; c++) {
		struct handler_entry *chunk =
			atomic_load_explicit(&process->handlers[c], memory_order_relaxed);

		if (!chunk) {
			chunk = aligned_alloc(64, HANDLER_CHUNK * sizeof(*chunk));
			if (!chunk)
				return NULL;
			memset(chunk, 0, HANDLER_CHUNK * sizeof(*chunk));
			for (unsigned int i = 0; i < HANDLER_CHUNK; i++)
				pthread_mutex_init(&chunk[i].lock, NULL);
			atomic_store_explicit(&process->handlers[c], chunk, memory_order_release);
		}
		for (unsigned int i = 0; i < HANDLER_CHUNK; i++) {
			if (chunk[i].handler)
				continue;
			*id = c * HANDLER_CHUNK + i;
			return &chunk[i];
		}
	}
	return NULL;
}

static int make_threads(struct flexio_event_handler *h, struct flexio_process *process,
			const struct flexio_event_handler_attr *attr)
{
	struct vb_dpa_thread_attr thread_attr = { .user = &h->guest, .shown = &h->guest.shown };
	char name[FLEXIO_MAX_NAME_LEN + 1];
	int err;

	err = vb_accel_affinity(process->accel, &attr->affinity, &thread_attr);
	if (err)
		return err;
	h->eu_group = thread_attr.group ? attr->affinity.id : 0;
	if (attr->name)
		snprintf(name, sizeof(name), "%s", attr->name);
	else
		snprintf(name, sizeof(name), "EH_%u_%u_%u", process->id, h->activation_id,
			 h->obj_id);
	thread_attr.name = name;
	err = vb_guest_init(&h->guest, process, GUEST_HANDLER, name,
			    attr->thread_local_storage_daddr,
			    attr->continuable ? VB_RTOS_THREAD_CONTINUABLE : 0, 0);
	if (!err)
		err = vb_dpa_thread_create(process->dpa, &thread_attr, &h->dpa_thread);
	free((void *)thread_attr.group);
	if (err)
		fail("process %s: no device thread for event handler %s: %s", process->name, name,
		     err == -ENOMEM ? "guest memory is full" : strerror(-err));
	return err;
}

static void handler_free(struct flexio_event_handler *h)
{
	if (h->dpa_thread) {
		vb_dpa_thread_stop(h->dpa_thread);
		vb_windows_release(&h->guest);
		vb_dpa_thread_destroy(h->dpa_thread);
	}
	vb_accel_affinity_end(h->process->accel, h->eu_group);
	vb_guest_free(&h->guest);
	free(h);
}

/* Under process.mutex. */
static flexio_status event_handler_new(struct flexio_process *process, const struct func *func,
				       const struct flexio_event_handler_attr *attr,
				       struct flexio_event_handler **out)
{
	struct flexio_event_handler *h = aligned_alloc(64, sizeof(*h));

	if (!h)
		return fail("process %s: no memory for an event handler", process->name);
	memset(h, 0, sizeof(*h));
	h->process = process;
	h->entry = entry_take(process, &h->activation_id);
	if (!h->entry) {
		free(h);
		return fail("process %s has %d event handlers; there cannot be more", process->name,
			    HANDLER_CHUNK * HANDLER_CHUNKS);
	}
	h->obj_id = atomic_fetch_add_explicit(&next_obj_id, 1, memory_order_relaxed);
	h->pc = func->addr;
	h->arg = attr->arg;
	h->thread.handler = h;
	vb_object_lend(&h->object, process->ctx, VB_DEVX_THREAD, h->obj_id, NULL);
	if (make_threads(h, process, attr) || !vb_handle_add(HANDLE_EVENT_HANDLER, h)) {
		handler_free(h);
		return failed();
	}
	pthread_mutex_lock(&h->entry->lock);
	h->entry->handler = h;
	h->entry->state = HANDLER_CREATED;
	h->entry->pending = false;
	pthread_mutex_unlock(&h->entry->lock);
	process->threaded = true;
	*out = h;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_event_handler_create(struct flexio_process *process,
					  struct flexio_event_handler_attr *fattr,
					  struct flexio_event_handler **event_handler_ptr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	const struct func *func;
	flexio_status status;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!fattr || !event_handler_ptr)
		return fail("%s is NULL", !fattr ? "fattr" : "event_handler_ptr");
	if (fattr->name && strnlen(fattr->name, FLEXIO_MAX_NAME_LEN + 1) > FLEXIO_MAX_NAME_LEN)
		return fail("the name has more than %d bytes", FLEXIO_MAX_NAME_LEN);
	func = vb_func_find(process->app, fattr->host_stub_func);
	if (!func)
		return vb_func_fail(process->app, fattr->host_stub_func);
	if (process_dead(process))
		return vb_process_fail_dead(process);
	if (!vb_process_hold(process, PART_HANDLER))
		return failed();
	pthread_mutex_lock(&process->mutex);
	status = event_handler_new(process, func, fattr, event_handler_ptr);
	pthread_mutex_unlock(&process->mutex);
	if (status != FLEXIO_STATUS_SUCCESS)
		vb_process_release(process, PART_HANDLER);
	return status;
}

flexio_status flexio_event_handler_destroy(struct flexio_event_handler *event_handler)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_EVENT_HANDLER, event_handler);
	struct flexio_event_handler *h = event_handler;
	struct flexio_process *process;
	bool used;

	API_CALL();
	if (!vb_handle_end(&pin))
		return bad_handle(h, "event handler");
	process = h->process;
	if (vb_process_inherited(process)) {
		vb_process_release(process, PART_HANDLER);
		return FLEXIO_STATUS_SUCCESS;
	}
	pthread_mutex_lock(&process->mutex);
	used = h->users;
	if (!used) {
		/* Nobody finds it any more, and a run that ends now is the last one. */
		pthread_mutex_lock(&h->entry->lock);
		h->entry->handler = NULL;
		pthread_mutex_unlock(&h->entry->lock);
	}
	pthread_mutex_unlock(&process->mutex);
	if (used) {
		vb_handle_add(HANDLE_EVENT_HANDLER, h);
		return fail("CQs still use event handler %u; destroy them first",
			    h->guest.thread_id);
	}
	handler_free(h);
	vb_process_release(process, PART_HANDLER);
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_event_handler_run(struct flexio_event_handler *event_handler,
				       uint64_t user_arg)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_EVENT_HANDLER, event_handler);
	struct flexio_event_handler *h = event_handler;
	bool created;

	API_CALL();
	if (!pin)
		return bad_handle(h, "event handler");
	if (process_dead(h->guest.process))
		return vb_process_fail_dead(h->guest.process);
	pthread_mutex_lock(&h->entry->lock);
	created = h->entry->state == HANDLER_CREATED;
	if (created) {
		h->arg = user_arg ? user_arg : h->arg;
		event_handler_prepare(h);
		h->entry->state = HANDLER_WAITING;
		if (h->entry->pending)
			event_handler_start(h);
		h->entry->pending = false;
	}
	pthread_mutex_unlock(&h->entry->lock);
	return created ? FLEXIO_STATUS_SUCCESS
		       : fail("event handler %u was run before", h->guest.thread_id);
}

/* ---- queries ---- */

uint32_t flexio_event_handler_get_id(struct flexio_event_handler *event_handler)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_EVENT_HANDLER, event_handler);

	API_CALL();
	if (!pin) {
		bad_handle(event_handler, "event handler");
		return UINT32_MAX;
	}
	return event_handler->guest.thread_id;
}

uint32_t flexio_event_handler_get_obj_id(struct flexio_event_handler *event_handler)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_EVENT_HANDLER, event_handler);

	API_CALL();
	if (!pin) {
		bad_handle(event_handler, "event handler");
		return UINT32_MAX;
	}
	return event_handler->obj_id;
}

uint32_t flexio_event_handler_get_activation_id(struct flexio_event_handler *event_handler)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_EVENT_HANDLER, event_handler);

	API_CALL();
	if (!pin) {
		bad_handle(event_handler, "event handler");
		return UINT32_MAX;
	}
	return event_handler->activation_id;
}

static struct flexio_thread *thread_of(struct flexio_event_handler *event_handler)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_EVENT_HANDLER, event_handler);

	if (!pin) {
		bad_handle(event_handler, "event handler");
		return NULL;
	}
	return &event_handler->thread;
}

struct flexio_thread *flexio_event_handler_get_thread(struct flexio_event_handler *event_handler)
{
	API_CALL();
	return thread_of(event_handler);
}

struct mlx5dv_devx_obj *
flexio_event_handler_get_thread_obj(struct flexio_event_handler *event_handler)
{
	API_CALL();
	return thread_of(event_handler) ? &event_handler->object : NULL;
}
