// SPDX-License-Identifier: MIT
/*
 * Owns handles: the card that one stands for, and the last error of it. A handle holds nothing open;
 * each call looks at the programs that there are then.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/config.h"
#include "base/log.h"

dpa_stats_handler_t *dpa_stats_open(const char *dpa_device)
{
	const struct vb_config *config = dpa_device ? vb_config_get() : NULL;
	dpa_stats_handler_t *h;

	if (!config) {
		if (!dpa_device)
			vb_info("dpa_stats_open: dpa_device is NULL");
		return NULL;
	}
	for (unsigned int i = 0; i < config->num_adapters; i++) {
		const struct vb_config_adapter *adapter = &config->adapter[i];

		if (strcmp(adapter->name, dpa_device))
			continue;
		h = calloc(1, sizeof(*h));
		if (!h)
			return NULL;
		snprintf(h->adapter, sizeof(h->adapter), "%s", adapter->name);
		h->has_dpa = adapter->format == VB_FORMAT_MLX5;
		return h;
	}
	vb_info("dpa_stats_open: there is no card %s; `verbatim devices` lists them", dpa_device);
	return NULL;
}

void dpa_stats_close(dpa_stats_handler_t *dpa_handler)
{
	free(dpa_handler);
}

/* ---- errors ---- */

void vb_stats_begin(dpa_stats_handler_t *h)
{
	h->error = DPA_STATS_STATUS_OK;
	h->message[0] = 0;
	h->location[0] = 0;
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
	return dpa_handler ? dpa_handler->error : DPA_STATS_STATUS_NULL_POINTER;
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
	return dpa_handler ? dpa_handler->message : no_text();
}

char *dpa_stats_get_error_location(dpa_stats_handler_t *dpa_handler)
{
	return dpa_handler ? dpa_handler->location : no_text();
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
