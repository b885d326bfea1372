/* SPDX-License-Identifier: MIT */
/*
 * What the files of dpaeumgmt share: the command line, and how results are printed.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "meet/eus.h"

/* Options, as bits: which a subcommand needs, which it may have, which were given. */
enum option_bit {
	OPT_DEVICE = 1,
	OPT_RANGE = 2,
	OPT_ID_GROUP = 4,
	OPT_NAME_GROUP = 8,
	OPT_FILE = 16,
	OPT_ID_PARTITION = 32,
	OPT_VHCAS = 64,
	OPT_MAX_GROUPS = 128,
};

struct arguments {
	const char *command, *subcommand;
	unsigned int given; /* enum option_bit */
	bool json;
	const char *device, *range, *name, *file, *vhcas;
	unsigned int id_group, id_partition, max_groups;
};

/* A device, and what the registry remembers of its EUs. */
struct work {
	const struct arguments *args;
	const struct vb_config *config;
	const struct vb_config_adapter *adapter;
	unsigned int count;          /* EUs of the adapter's own accelerator */
	struct vb_registry registry; /* locked */
	struct vb_eus *eus;
	char *text; /* of the file of groups; NULL: none is needed */
	size_t text_len;
	cJSON *out; /* what --json prints */
};

/* A message "dpaeumgmt: ..." on standard error. Returns 1, the exit code. */
int refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Every subcommand: the exit code. The registry is locked: nothing here waits for anything. */
int group_info(struct work *work);
int group_create(struct work *work);
int group_query(struct work *work);
int group_destroy(struct work *work);
int group_apply(struct work *work);
/*
 * The file of groups, with a NUL behind it; NULL after a message. It may come slowly: not while the
 * registry is locked.
 */
char *group_file(const char *path, size_t *len);
int partition_info(struct work *work);
int partition_create(struct work *work);
int partition_query(struct work *work);
int partition_destroy(struct work *work);
int info_chip(struct work *work);
int info_status(struct work *work);
int info_vhca(struct work *work);

/* Write what was changed; the exit code. */
int save(struct work *work);
/* The adapter's accelerator as its programs see it. */
struct vb_eu_view view_of(const struct work *work);
/* A process with threads in the group, 0: none; and the number of device processes on an adapter. */
pid_t group_user(const struct work *work, unsigned int id);
unsigned int processes_on(const struct work *work, const char *card, pid_t *one);

/* An array of numbers, of the EUs in the set. */
cJSON *eus_json(const struct vb_eu_set *set);
/* "6,7,8"; the caller frees it. Ends the program where there is no memory. */
char *eus_text(const struct vb_eu_set *set);

/*
 * A file of groups for `eu_group apply`, read into the store in place of the groups that are there.
 * 0, or -errno with the reason, and the store is then to be thrown away.
 */
int groups_from_json(struct vb_eus *eus, const char *card, unsigned int count, const char *text,
		     size_t len, char *why);
