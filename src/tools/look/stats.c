// SPDX-License-Identifier: MIT
/*
 * verbatim stats: counters of the cards, as text, JSON or OpenMetrics, once or for whoever asks by HTTP.
 *
 * A counter belongs to what one process did with one adapter, so that it never goes back while the process lives.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/json.h"
#include "tools/look/look.h"
#include "tools/look/serve.h"

enum { KEY_JSON = 'j', KEY_METRICS = 'm', KEY_LISTEN = 'l' };

enum form { TEXT, JSON, METRICS };

struct arguments {
	enum form form;
	const char *adapter, *listen;
};

static bool stats_is_meant(const struct arguments *args, const char *adapter)
{
	return !args->adapter || !strcmp(args->adapter, adapter);
}

static const char *command_of(const struct look *look, pid_t pid)
{
	const struct look_process *p = look_process(look, pid);

	return p ? p->command : "?";
}

/* --- text ------------------------------------------------------------------------------------- */

static void stats_print_text(FILE *out, const struct look *look, const struct arguments *args)
{
	fprintf(out, "%-10s %8s %6s %14s %14s %10s %10s %10s %10s %8s %8s  %s\n", "ADAPTER", "PID",
		"QPS", "SENT", "RECEIVED", "PACKETS", "STORES", "COPIES", "CALLS", "RETRIES",
		"DROPPED", "COMMAND");
	look_each(look_adapter, a, &look->adapters) if (stats_is_meant(args, a->name))
		fprintf(out,
			"%-10s %8d %6u %14" PRIu64 " %14" PRIu64 " %10" PRIu64 " %10" PRIu64
			" %10" PRIu64 " %10" PRIu64 " %8" PRIu64 " %8" PRIu64 "  %s\n",
			a->name, (int)a->pid, a->qps, a->traffic.sent, a->traffic.received,
			a->traffic.packets, a->traffic.stores, a->traffic.copies, a->traffic.calls,
			a->traffic.retries, a->traffic.dropped, command_of(look, a->pid));
	look_each(look_thread, t, &look->threads) if (stats_is_meant(args, t->adapter))
		fprintf(out,
			"%-10s %8d device thread %s of 0x%x %s: %" PRIu64 " instructions, %" PRIu64
			" executions\n",
			t->adapter, (int)t->pid, t->name, t->process_id, t->process,
			t->instructions, t->executions);
}

/* --- OpenMetrics and JSON --------------------------------------------------------------------- */

/* What is counted of an adapter by a process. */
static const struct metric {
	const char *name, *unit, *help, *label;
	size_t offset;
} metrics[] = {
#define METRIC(name, unit, help, label, field)                                \
	{                                                                     \
		name, unit, help, label, offsetof(struct look_traffic, field) \
	}
	METRIC("sent_bytes", "bytes", "Payload and frames that a process sent.", NULL, sent),
	METRIC("received_bytes", "bytes", "Payload and frames that a process received.", NULL,
	       received),
	METRIC("requests", NULL, "Work requests, by the way that they took.", "packet", packets),
	METRIC("requests", NULL, NULL, "store", stores),
	METRIC("requests", NULL, NULL, "copy", copies),
	METRIC("requests", NULL, NULL, "call", calls),
	METRIC("retries", NULL, "Times that packets were sent again.", NULL, retries),
	METRIC("dropped", NULL, "Frames and datagrams that found no buffer.", NULL, dropped),
#undef METRIC
};

enum { NUM_METRICS = sizeof(metrics) / sizeof(metrics[0]) };

static uint64_t stats_value_of(const struct look_adapter *a, const struct metric *m)
{
	return *(const uint64_t *)((const char *)&a->traffic + m->offset);
}

static void put_labels(FILE *out, const struct look *look, const char *adapter, pid_t pid)
{
	fprintf(out, "{adapter=");
	tools_json_string(out, adapter);
	fprintf(out, ",pid=\"%d\",command=", (int)pid);
	tools_json_string(out, command_of(look, pid));
}

static void put_metric(FILE *out, const struct look *look, const struct arguments *args,
		       const struct metric *m)
{
	if (m->help)
		fprintf(out, "# TYPE verbatim_adapter_%s counter\n", m->name);
	if (m->help && m->unit)
		fprintf(out, "# UNIT verbatim_adapter_%s %s\n", m->name, m->unit);
	if (m->help)
		fprintf(out, "# HELP verbatim_adapter_%s %s\n", m->name, m->help);
	look_each(look_adapter, a, &look->adapters)
	{
		if (!stats_is_meant(args, a->name))
			continue;
		fprintf(out, "verbatim_adapter_%s_total", m->name);
		put_labels(out, look, a->name, a->pid);
		if (m->label)
			fprintf(out, ",way=\"%s\"", m->label);
		fprintf(out, "} %" PRIu64 "\n", stats_value_of(a, m));
	}
}

static void put_threads(FILE *out, const struct look *look, const struct arguments *args,
			const char *name, const char *help, size_t offset)
{
	fprintf(out, "# TYPE verbatim_dpa_thread_%s counter\n# HELP verbatim_dpa_thread_%s %s\n",
		name, name, help);
	look_each(look_thread, t, &look->threads)
	{
		if (!stats_is_meant(args, t->adapter))
			continue;
		fprintf(out, "verbatim_dpa_thread_%s_total", name);
		put_labels(out, look, t->adapter, t->pid);
		fprintf(out, ",process=\"0x%x\",thread=\"%u\",name=", t->process_id, t->id);
		tools_json_string(out, t->name);
		fprintf(out, "} %" PRIu64 "\n", *(const uint64_t *)((const char *)t + offset));
	}
}

static void print_metrics(FILE *out, const struct look *look, const struct arguments *args)
{
	fprintf(out,
		"# TYPE verbatim_processes gauge\n# HELP verbatim_processes Processes that have a card open.\n"
		"verbatim_processes %zu\n",
		look->processes.count);
	fprintf(out,
		"# TYPE verbatim_adapter_qps gauge\n# HELP verbatim_adapter_qps Queue pairs.\n");
	look_each(look_adapter, a, &look->adapters)
	{
		if (!stats_is_meant(args, a->name))
			continue;
		fprintf(out, "verbatim_adapter_qps");
		put_labels(out, look, a->name, a->pid);
		fprintf(out, "} %u\n", a->qps);
	}
	for (int i = 0; i < NUM_METRICS; i++)
		put_metric(out, look, args, &metrics[i]);
	put_threads(out, look, args, "instructions",
		    "Instructions of a device thread, while somebody counts them.",
		    offsetof(struct look_thread, instructions));
	put_threads(out, look, args, "executions",
		    "Runs of a device thread, while somebody counts them.",
		    offsetof(struct look_thread, executions));
	fprintf(out, "# EOF\n");
}

static void look_stats_print_json(FILE *out, const struct look *look, const struct arguments *args)
{
	const char *sep = "";

	fprintf(out, "{\"processes\":%zu,\"adapters\":[", look->processes.count);
	look_each(look_adapter, a, &look->adapters)
	{
		if (!stats_is_meant(args, a->name))
			continue;
		fprintf(out, "%s{\"adapter\":", sep);
		tools_json_string(out, a->name);
		fprintf(out, ",\"pid\":%d,\"command\":", (int)a->pid);
		tools_json_string(out, command_of(look, a->pid));
		fprintf(out, ",\"qps\":%u", a->qps);
		for (int i = 0; i < NUM_METRICS; i++)
			fprintf(out, ",\"%s%s%s\":%" PRIu64, metrics[i].name,
				metrics[i].label ? "_" : "",
				metrics[i].label ? metrics[i].label : "",
				stats_value_of(a, &metrics[i]));
		fprintf(out, "}");
		sep = ",";
	}
	fprintf(out, "],\"threads\":[");
	sep = "";
	look_each(look_thread, t, &look->threads)
	{
		if (!stats_is_meant(args, t->adapter))
			continue;
		fprintf(out, "%s{\"adapter\":", sep);
		tools_json_string(out, t->adapter);
		fprintf(out, ",\"pid\":%d,\"process\":%u,\"thread\":%u,\"name\":", (int)t->pid,
			t->process_id, t->id);
		tools_json_string(out, t->name);
		fprintf(out, ",\"instructions\":%" PRIu64 ",\"executions\":%" PRIu64 "}",
			t->instructions, t->executions);
		sep = ",";
	}
	fprintf(out, "]}\n");
}

/* --- the command ------------------------------------------------------------------------------ */

/* 0 or -errno. */
static int stats_print(FILE *out, const struct arguments *args)
{
	struct look look;
	int ret = look_make(&look);

	if (!ret && args->form == TEXT)
		stats_print_text(out, &look, args);
	else if (!ret && args->form == JSON)
		look_stats_print_json(out, &look, args);
	else if (!ret)
		print_metrics(out, &look, args);
	look_free(&look);
	return ret;
}

static int print_page(FILE *out, void *arg)
{
	return stats_print(out, arg);
}

static error_t look_stats_parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'd':
		args->adapter = arg;
		return 0;
	case KEY_JSON:
		args->form = JSON;
		return 0;
	case KEY_METRICS:
		args->form = METRICS;
		return 0;
	case KEY_LISTEN:
		args->listen = arg;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int cmd_stats(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "device", 'd', "ADAPTER", 0, "Only this adapter", 0 },
		{ "json", KEY_JSON, NULL, 0, "As JSON", 0 },
		{ "openmetrics", KEY_METRICS, NULL, 0, "As OpenMetrics, which Prometheus reads",
		  0 },
		{ "listen", KEY_LISTEN, "[ADDRESS:]PORT", 0,
		  "Answer HTTP requests with OpenMetrics, until interrupted (default address: 127.0.0.1)",
		  0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = look_stats_parse,
		.doc = "Print the counters of the cards that your processes use."
		       "\vExit code 1 where they cannot be read, or the address not be used.\n\n"
		       "Example: verbatim stats --listen 9400 & curl http://127.0.0.1:9400/metrics",
	};
	struct arguments args = { 0 };
	int ret;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (args.listen) {
		args.form = METRICS;
		return look_serve("verbatim stats", args.listen, print_page, &args);
	}
	ret = stats_print(stdout, &args);
	if (ret)
		fprintf(stderr, "verbatim stats: %s\n", strerror(-ret));
	return ret ? 1 : 0;
}
