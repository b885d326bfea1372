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

/* Hexadecimal ids, one or several with commas; ends the program where that is something else. */
void stats_parse_ids(struct argp_state *state, const char *text, struct stats_ids *ids);
/* The card of -d, or the first one with an accelerator; ends the program where there is none. */
dpa_stats_handler_t *stats_open(const char *device, const char **name);
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
