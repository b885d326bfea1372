// SPDX-License-Identifier: MIT
/* Owns the words for what a guest thread did last: its calls, doorbells, and where its runs began. */
#include "api/flexio/process.h"

#include <inttypes.h>

/* Arguments that matter, one letter each: d: a number, x: an address or key. */
struct call_words {
	const char *name, *args;
	bool ends; /* it does not return */
};

static const struct call_words call_words[] = {
	[VB_RTOS_THREAD_CTX] = { "THREAD_CTX", "" },
	[VB_RTOS_MSG] = { "MSG", "ddxd" },
	[VB_RTOS_SBRK] = { "SBRK", "d" },
	[VB_RTOS_TRACES] = { "TRACES", "dddd" },
	[VB_RTOS_RELAX] = { "RELAX", "" },
	[VB_RTOS_RESCHEDULE] = { "RESCHEDULE", "", true },
	[VB_RTOS_FINISH] = { "FINISH", "", true },
	[VB_RTOS_RETRIGGER] = { "RETRIGGER", "", true },
	[VB_RTOS_YIELD] = { "YIELD", "d" },
	[VB_RTOS_PROCESS_FINISH] = { "PROCESS_FINISH", "", true },
	[VB_RTOS_ERROR] = { "ERROR", "x", true },
	[VB_RTOS_ACTIVATE] = { "ACTIVATE", "d" },
	[VB_RTOS_WINDOW_CONFIG] = { "WINDOW_CONFIG", "ddx" },
	[VB_RTOS_WINDOW_MKEY] = { "WINDOW_MKEY", "dx" },
	[VB_RTOS_WINDOW_PTR] = { "WINDOW_PTR", "dx" },
	[VB_RTOS_WINDOW_READ] = { "WINDOW_READ", "dxxd" },
	[VB_RTOS_WINDOW_WRITE] = { "WINDOW_WRITE", "dxxd" },
	[VB_RTOS_OUTBOX_CONFIG] = { "OUTBOX_CONFIG", "d" },
	[VB_RTOS_OUTBOX_EXTEND] = { "OUTBOX_EXTEND", "d" },
	[VB_RTOS_CROSS_DB] = { "CROSS_DB", "dxd" },
	[VB_RTOS_COUNTERS_CONFIG] = { "COUNTERS_CONFIG", "xxd" },
	[VB_RTOS_COUNTERS_SAMPLE] = { "COUNTERS_SAMPLE", "" },
	[VB_RTOS_PCC_TABLE] = { "PCC_TABLE", "d" },
};

static void put_call(FILE *out, const struct event *e)
{
	const struct call_words *w =
		e->number < ARRAY_SIZE(call_words) && call_words[e->number].name
			? &call_words[e->number]
			: NULL;

	if (!w) {
		fprintf(out, "call %u, which is unknown", e->number);
		return;
	}
	fprintf(out, "%s(", w->name);
	for (unsigned int i = 0; w->args[i]; i++)
		fprintf(out, w->args[i] == 'd' ? "%s%" PRId64 : "%s0x%" PRIx64, i ? ", " : "",
			e->args[i]);
	fprintf(out, ")");
	if (w->ends)
		return;
	/* a number or -1; else an address */
	fprintf(out,
		(int64_t)e->result >= -1 && (int64_t)e->result < 65536 ? " = %" PRId64
								       : " = 0x%" PRIx64,
		e->result);
}

static void put_begin(FILE *out, const struct flexio_process *process, const struct event *e,
		      const char *what, unsigned int nargs)
{
	const char *name = vb_dpa_symbol_name(process->dpa, e->args[0], NULL);
	char text[VB_DPA_NAME_TEXT];

	fprintf(out, "%s %s(", what, name ? vb_dpa_printable(name, text) : "?");
	for (unsigned int i = 0; i < nargs && i < EVENT_ARGS - 1; i++)
		fprintf(out, "%s0x%" PRIx64, i ? ", " : "", e->args[1 + i]);
	fprintf(out, "%s) begins", nargs > EVENT_ARGS - 1 ? ", ..." : "");
}

static void put_doorbell(FILE *out, const struct event *e)
{
	fprintf(out, "doorbell 0x%03" PRIx64 ", value 0x%" PRIx64 "%s", e->args[0], e->args[1],
		e->result ? ": refused" : "");
}

static void put_event(FILE *out, const struct flexio_process *process, const struct event *e)
{
	switch (e->kind) {
	case EVENT_CALL:
		put_call(out, e);
		break;
	case EVENT_RPC:
		put_begin(out, process, e, "RPC", e->number);
		break;
	case EVENT_HANDLER:
		put_begin(out, process, e, "event handler", 1);
		break;
	case EVENT_TASK:
		put_begin(out, process, e, "task", 1);
		break;
	case EVENT_DOORBELL:
		put_doorbell(out, e);
		break;
	}
	if (e->times > 1)
		fprintf(out, ", %u times", e->times);
	fprintf(out, "\n");
}

void vb_events_print(FILE *out, const struct flexio_process *process, const struct events *events,
		     uint64_t now)
{
	fprintf(out, "Last events (instructions of the thread before the end):\n");
	for (unsigned int i = 0; i < EVENTS; i++) {
		const struct event *e = &events->list[(events->next + i) % EVENTS];

		if (e->kind == EVENT_NONE)
			continue;
		fprintf(out, "  %12" PRIu64 "  ", now > e->instret ? now - e->instret : 0);
		put_event(out, process, e);
	}
}
