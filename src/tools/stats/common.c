// SPDX-License-Identifier: MIT
/* What dpa-ps and dpa-statistics share: the card, the processes that are meant, and names. */
#include "tools/stats/stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "tools/cmd.h"

/* Hexadecimal ids, one or several with commas; ends the program where that is something else. */
static void parse_ids(struct argp_state *state, const char *text, struct stats_ids *ids)
{
	const char *p = text;
	char *end;

	do {
		unsigned long id;

		errno = 0;
		id = strtoul(p, &end, 16);
		if (errno || end == p || *p == '-' || *p == '+' || *p == ' ' || id >= UINT32_MAX ||
		    (*end && *end != ','))
			argp_error(
				state,
				"'%s' is not the id of a process: dpa-ps prints them, in hexadecimal digits",
				text);
		if (ids->count == STATS_MAX_IDS)
			argp_error(state, "more than %d processes", STATS_MAX_IDS);
		ids->id[ids->count++] = (uint32_t)id;
		p = end + 1;
	} while (*end);
}

error_t stats_parse(int key, char *arg, struct argp_state *state, struct stats_common *common)
{
	switch (key) {
	case 'd':
		common->device = arg;
		return 0;
	case 'p':
		parse_ids(state, arg, &common->ids);
		return 0;
	case 'i':
		common->bare = true;
		return 0;
	case 'j':
		common->json = true;
		return 0;
	case 'h':
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

void stats_begin(const struct argp *argp, int argc, char **argv, void *args)
{
	tools_guard_stdio();
	argp_err_exit_status = STATS_USAGE;
	argp_parse(argp, argc, argv, 0, NULL, args);
}

dpa_stats_handler_t *stats_open(struct stats_common *common)
{
	const char *device = common->device;
	const struct vb_config *config = vb_config_get();
	dpa_stats_capabilities caps = { 0 };
	dpa_stats_handler_t *handle;

	if (!config)
		exit(STATS_FAILED); /* after a log line */
	for (unsigned int i = 0; i < config->num_adapters && !device; i++)
		if (config->adapter[i].format == VB_FORMAT_MLX5)
			device = config->adapter[i].name;
	handle = device ? dpa_stats_open(device) : NULL;
	if (!handle) {
		fprintf(stderr, "%s: %s%s; `verbatim devices` lists the cards\n",
			program_invocation_short_name,
			device ? "there is no card " : "no card has an accelerator",
			device ? device : "");
		exit(STATS_FAILED);
	}
	dpa_stats_read_caps(handle, &caps);
	if (!caps.dpa_supported) {
		fprintf(stderr, "%s: %s has no accelerator; cards of the format mlx5 have one\n",
			program_invocation_short_name, device);
		exit(STATS_FAILED);
	}
	common->device = device;
	return handle;
}

int stats_failed(dpa_stats_handler_t *handle)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name,
		dpa_stats_get_error_message(handle));
	return STATS_FAILED;
}

static bool stats_common_is_meant(const struct stats_ids *ids, uint32_t id)
{
	for (unsigned int i = 0; i < ids->count; i++)
		if (ids->id[i] == id)
			return true;
	return !ids->count;
}

dpa_stats_process_list *stats_processes(dpa_stats_handler_t *handle, const struct stats_ids *ids,
					bool ended)
{
	dpa_stats_process_list *list = NULL;
	uint32_t kept = 0;
	bool bad = false;

	if (dpa_stats_read_processes_list(handle, DPA_STATS_ALL_PROCESSES, &list)) {
		stats_failed(handle);
		return NULL;
	}
	for (uint32_t i = 0; i < list->process_num; i++)
		if (stats_common_is_meant(ids, list->processes[i].dpa_process_id))
			list->processes[kept++] = list->processes[i];
	list->process_num = kept;
	dpa_stats_sort_process_list(list);
	for (unsigned int i = 0; i < ids->count; i++) {
		dpa_stats_process_info key = { .dpa_process_id = ids->id[i] };

		if (kept && bsearch(&key, list->processes, kept, sizeof(key),
				    dpa_stats_compare_4_processes))
			continue;
		fprintf(stderr,
			ended ? "%s: DPA process %x has ended\n"
			      : "%s: there is no DPA process %x\n",
			program_invocation_short_name, ids->id[i]);
		bad |= !ended || !kept;
	}
	if (!bad)
		return list;
	dpa_stats_free_process_list(list);
	return NULL;
}

/* Programs choose their names, and may choose what a terminal obeys. */
void stats_print_name(const char *name)
{
	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		if (c < 0x20 || c >= 0x7f || c == '\\')
			printf("\\x%02x", c);
		else
			putchar(c);
	}
}

/* Bytes beyond ASCII as characters of that number: what was cut may be no UTF-8. */
void stats_print_json(const char *name)
{
	putchar('"');
	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		if (c < 0x20 || c >= 0x7f || c == '\\' || c == '"')
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

void stats_print_process(const dpa_stats_process_info *process)
{
	printf("%-12x ", process->dpa_process_id);
	stats_print_name(process->process_name);
	putchar('\n');
}

void stats_json_process(const dpa_stats_process_info *process, bool first)
{
	printf("%s\n  {\"id\": %u, \"name\": ", first ? "" : ",", process->dpa_process_id);
	stats_print_json(process->process_name);
}
