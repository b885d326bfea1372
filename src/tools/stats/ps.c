// SPDX-License-Identifier: MIT
/* dpa-ps: the DPA processes of a card, with -t their threads, with the vendor's options and columns. */
#include "tools/stats/stats.h"

#include "base/public.h"

struct arguments {
	struct stats_common common;
	bool threads;
};

static error_t stats_ps_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 't':
		args->threads = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is no option", arg);
		return 0;
	}
	return stats_parse(key, arg, state, &args->common);
}

/* The threads of a process, from a sorted list; begins at *next. */
static void print_threads(const dpa_stats_thread_list *list, uint32_t *next, uint32_t process)
{
	while (*next < list->threads_num && list->threads[*next].dpa_process_id < process)
		++*next;
	for (; *next < list->threads_num && list->threads[*next].dpa_process_id == process;
	     ++*next) {
		printf("  %-12x ", list->threads[*next].dpa_thread_id);
		stats_print_name(list->threads[*next].thread_name);
		putchar('\n');
	}
}

static void stats_ps_print_table(const struct arguments *args,
				 const dpa_stats_process_list *processes,
				 const dpa_stats_thread_list *threads)
{
	uint32_t next = 0;

	if (!args->common.bare)
		printf("%-12s Process Name\n", "ProcessID");
	if (!args->common.bare && threads)
		printf("  %-12s Thread Name\n", "ThreadID");
	for (uint32_t i = 0; i < processes->process_num; i++) {
		const dpa_stats_process_info *p = &processes->processes[i];

		stats_print_process(p);
		if (threads)
			print_threads(threads, &next, p->dpa_process_id);
	}
}

static void stats_ps_print_json(const char *device, const dpa_stats_process_list *processes,
				const dpa_stats_thread_list *threads)
{
	printf("{\"device\": ");
	stats_print_json(device);
	printf(", \"processes\": [");
	for (uint32_t i = 0, next = 0; i < processes->process_num; i++) {
		const dpa_stats_process_info *p = &processes->processes[i];
		const char *comma = "";

		stats_json_process(p, !i);
		printf(", \"num_of_threads\": %u", p->num_of_threads);
		if (threads)
			printf(", \"threads\": [");
		for (; threads && next < threads->threads_num; next++) {
			const dpa_stats_thread_info *t = &threads->threads[next];

			if (t->dpa_process_id > p->dpa_process_id)
				break;
			if (t->dpa_process_id < p->dpa_process_id)
				continue;
			printf("%s\n    {\"id\": %u, \"name\": ", comma, t->dpa_thread_id);
			stats_print_json(t->thread_name);
			putchar('}');
			comma = ",";
		}
		printf(threads ? "]}" : "}");
	}
	printf("]}\n");
}

static const struct argp_option options[] = {
	STATS_OPTIONS_WHICH,
	{ "threads", 't', NULL, 0, "Also the threads of each process", 0 },
	STATS_OPTIONS_HOW,
	{ 0 },
};

VB_PUBLIC const char *argp_program_version = "dpa-ps (Verbatim) " VERBATIM_VERSION;

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = stats_ps_parse_opt,
		.doc = "List the DPA processes on a card: those of your programs.",
	};
	struct arguments args = { 0 };
	dpa_stats_thread_list *threads = NULL;
	dpa_stats_process_list *processes;
	dpa_stats_handler_t *handle;
	int ret = STATS_OK;

	stats_begin(&argp, argc, argv, &args);
	handle = stats_open(&args.common);
	processes = stats_processes(handle, &args.common.ids, false);
	if (!processes) {
		ret = STATS_FAILED;
	} else if (args.threads &&
		   dpa_stats_read_process_thread_list(handle, DPA_STATS_ALL_PROCESSES,
						      DPA_STATS_ALL_THREADS, &threads)) {
		ret = stats_failed(handle);
	} else {
		dpa_stats_sort_thread_list(threads);
		if (args.common.json)
			stats_ps_print_json(args.common.device, processes, threads);
		else
			stats_ps_print_table(&args, processes, threads);
	}
	dpa_stats_free_thread_list(threads);
	dpa_stats_free_process_list(processes);
	dpa_stats_close(handle);
	return ret;
}
