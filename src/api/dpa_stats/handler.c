// SPDX-License-Identifier: MIT
/*
 * Owns handles: the card that one stands for, and the last error of it. A handle holds nothing open;
 * each call looks at the programs that there are then. A pointer that is none, or was closed, is told
 * by the list of those that are open, without reading what it points to.
 */
#include "internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/config.h"
#include "base/fork.h"
#include "base/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unused = PTHREAD_COND_INITIALIZER;
static dpa_stats_handler_t *handlers; /* all that are open */

/* In a child of fork(): threads that were in a call are not there. */
static void stats_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&unused, NULL);
	for (dpa_stats_handler_t *h = handlers; h; h = h->next)
		h->users = 0;
}

VB_STAGE(STATS, .child = stats_forked);

/* Under the lock: where it is linked; NULL: it is not open. */
static dpa_stats_handler_t **handler_find(const dpa_stats_handler_t *h)
{
	dpa_stats_handler_t **at = &handlers;

	while (*at && *at != h)
		at = &(*at)->next;
	return *at ? at : NULL;
}

static bool handler_pin(dpa_stats_handler_t *h)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = handler_find(h);
	if (found)
		h->users++;
	pthread_mutex_unlock(&lock);
	return found;
}

static dpa_stats_handler_t *handler_new(const struct vb_config_adapter *adapter)
{
	dpa_stats_handler_t *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	snprintf(h->adapter, sizeof(h->adapter), "%s", adapter->name);
	h->has_dpa = adapter->format == VB_FORMAT_MLX5;
	pthread_mutex_lock(&lock);
	h->next = handlers;
	handlers = h;
	pthread_mutex_unlock(&lock);
	return h;
}

/* There is no handle to ask for the error: the reasons are in the log. */
dpa_stats_handler_t *dpa_stats_open(const char *dpa_device)
{
	const struct vb_config *config = dpa_device ? vb_config_get() : NULL;

	if (!config) {
		if (!dpa_device)
			vb_warn("dpa_stats_open: dpa_device is NULL");
		return NULL;
	}
	for (unsigned int i = 0; i < config->num_adapters; i++)
		if (!strcmp(config->adapter[i].name, dpa_device))
			return handler_new(&config->adapter[i]);
	vb_warn("dpa_stats_open: there is no card \"%s\"; `verbatim devices` lists them",
		dpa_device);
	return NULL;
}

void dpa_stats_close(dpa_stats_handler_t *dpa_handler)
{
	dpa_stats_handler_t **at;
	int cancel;

	if (!dpa_handler)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&lock);
	at = handler_find(dpa_handler);
	if (at)
		*at = dpa_handler->next;
	while (at && dpa_handler->users)
		pthread_cond_wait(&unused, &lock);
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancel, NULL);
	if (at)
		free(dpa_handler);
	else
		vb_warn("dpa_stats_close: %p is no handle, or not any more", (void *)dpa_handler);
}

/* ---- calls, errors ---- */

dpa_stats_status vb_stats_begin(dpa_stats_handler_t *h, const char *function)
{
	if (!h)
		return DPA_STATS_STATUS_NULL_POINTER;
	if (!handler_pin(h)) {
		vb_info("%s: %p is no handle, or not any more", function, (void *)h);
		return DPA_STATS_STATUS_INVALID_PARAMS;
	}
	h->error = DPA_STATS_STATUS_OK;
	h->message[0] = 0;
	h->location[0] = 0;
	return DPA_STATS_STATUS_OK;
}

void vb_stats_end(dpa_stats_handler_t **h)
{
	if (!*h)
		return;
	pthread_mutex_lock(&lock);
	if (!--(*h)->users)
		pthread_cond_broadcast(&unused);
	pthread_mutex_unlock(&lock);
}

dpa_stats_status vb_stats_fail(dpa_stats_handler_t *h, dpa_stats_status status,
			       const char *function, const char *file, int line, const char *fmt,
			       ...)
{
	va_list args;

	h->error = status;
	snprintf(h->location, sizeof(h->location), "%s (%s:%d)", function, file, line);
	va_start(args, fmt);
	vsnprintf(h->message, sizeof(h->message), fmt, args);
	va_end(args);
	vb_info("%s: %s", function, h->message);
	return status;
}

dpa_stats_status dpa_stats_get_error_code(dpa_stats_handler_t *dpa_handler)
{
	dpa_stats_handler_t *kept __attribute__((cleanup(vb_stats_end))) = NULL;

	if (!dpa_handler)
		return DPA_STATS_STATUS_NULL_POINTER;
	if (!handler_pin(dpa_handler))
		return DPA_STATS_STATUS_INVALID_PARAMS;
	kept = dpa_handler;
	return kept->error;
}

/* The manual's type lets callers write to it. */
static char *no_text(void)
{
	static _Thread_local char empty[1];

	empty[0] = 0;
	return empty;
}

char *dpa_stats_get_error_message(dpa_stats_handler_t *dpa_handler)
{
	dpa_stats_handler_t *kept __attribute__((cleanup(vb_stats_end))) =
		handler_pin(dpa_handler) ? dpa_handler : NULL;

	return kept ? kept->message : no_text();
}

char *dpa_stats_get_error_location(dpa_stats_handler_t *dpa_handler)
{
	dpa_stats_handler_t *kept __attribute__((cleanup(vb_stats_end))) =
		handler_pin(dpa_handler) ? dpa_handler : NULL;

	return kept ? kept->location : no_text();
}

dpa_stats_status dpa_stats_read_caps(dpa_stats_handler_t *dpa_handler, dpa_stats_capabilities *caps)
{
	bool has;

	CALL(dpa_handler);
	if (!caps)
		return fail(dpa_handler, NULL_POINTER, "caps is NULL");
	has = dpa_handler->has_dpa;
	*caps = (dpa_stats_capabilities){
		.dpa_supported = has,
		.process_performance_counters = has,
		.performance_sample_type = has ? 1u << DPA_STATS_SAMPLE_TYPE_CUMULATIVE_EVENT |
							   1u << DPA_STATS_SAMPLE_TYPE_EVENT_TRACER
					       : 0,
	};
	return DPA_STATS_STATUS_OK;
}
