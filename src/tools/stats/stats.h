/* SPDX-License-Identifier: MIT */
/* What dpa-ps and dpa-statistics share. */
#pragma once

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <dpa_stats.h>

enum { STATS_OK = 0, STATS_FAILED = 1, STATS_USAGE = 2 };

/* Which processes: those of -p, or all. */
enum { STATS_MAX_IDS = 256 };
struct stats_ids {
	unsigned int count; /* 0: all */
	uint32_t id[STATS_MAX_IDS];
};

/* What both are told: which card, which processes, and how it is printed. */
struct stats_common {
	const char *device; /* stats_open() sets it */
	struct stats_ids ids;
	bool bare, json;
};

#define STATS_OPTIONS_WHICH                                                                        \
	{ "device", 'd', "CARD", 0, "Which card; default: the first one with an accelerator", 0 }, \
	{                                                                                          \
		"process-id", 'p', "ID[,ID...]", 0, "Only these processes, in hexadecimal digits", \
			0                                                                          \
	}
#define STATS_OPTIONS_HOW                                         \
	{ "suppress-header-info", 'i', NULL, 0, "No header", 0 }, \
		{ "json", 'j', NULL, 0, "As JSON", 0 },           \
	{                                                         \
		NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1          \
	}

/* That part of a parser of options; ends the program where an option is wrong. ARGP_ERR_UNKNOWN: the key is another. */
error_t stats_parse(int key, char *arg, struct argp_state *state, struct stats_common *common);
/* The beginning of main(): streams, options. */
void stats_begin(const struct argp *argp, int argc, char **argv, void *args);
/* The card of -d, or the first one with an accelerator; ends the program where there is none. */
dpa_stats_handler_t *stats_open(struct stats_common *common);
/*
 * Its processes that are meant, sorted; NULL after a message. ended: they were there before, so that one
 * that is missing is only said to have ended, as long as there are others.
 */
dpa_stats_process_list *stats_processes(dpa_stats_handler_t *handle, const struct stats_ids *ids,
					bool ended);
/* Say what the last call with this handle did not do. Returns STATS_FAILED. */
int stats_failed(dpa_stats_handler_t *handle);

/* A name as it may be shown on a terminal; and as a string of JSON, with its quotes. */
void stats_print_name(const char *name);
void stats_print_json(const char *name);
/* The line of a process in a table; and what its object of a list in JSON begins with. */
void stats_print_process(const dpa_stats_process_info *process);
void stats_json_process(const dpa_stats_process_info *process, bool first);
