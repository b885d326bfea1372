// SPDX-License-Identifier: MIT
/*
 * verbatim ps: the processes of this user that have the card open, from the registry, and with -v
 * what became of their doorbells by store.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/patch.h"
#include "base/registry.h"
#include "tools/cmd.h"

void tools_command_of(pid_t pid, char *name, size_t size)
{
	char path[64];
	FILE *f;

	snprintf(name, size, "?");
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(name, (int)size, f))
		name[strcspn(name, "\n")] = '\0';
	fclose(f);
}

/* Nothing where no doorbell was ever rung by a store. */
static void print_doorbells(const struct vb_slot_doorbells *bells)
{
	uint64_t traps = atomic_load_explicit(&bells->traps, memory_order_relaxed);
	unsigned int kept = 0;

	if (!traps)
		return;
	printf("%15s doorbells: %u sites patched, %" PRIu64 " traps", "",
	       atomic_load_explicit(&bells->patched, memory_order_relaxed), traps);
	for (int i = 0; i < VB_SITE_REASONS; i++) {
		unsigned int n = atomic_load_explicit(&bells->kept[i], memory_order_relaxed);

		if (n)
			printf("%s%s %u", kept++ ? ", " : "; sites that trap: ",
			       vb_site_reason_name((enum vb_site_reason)i), n);
	}
	printf("\n");
}

static void print_process(void *arg, const struct vb_slot_info *info)
{
	char command[32];

	tools_command_of(info->pid, command, sizeof(command));
	printf("%8d %5" PRIu32 "  %s\n", (int)info->pid, info->slot, command);
	if (*(bool *)arg)
		print_doorbells(info->doorbells);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	if (key != 'v')
		return ARGP_ERR_UNKNOWN;
	*(bool *)state->input = true;
	return 0;
}

int cmd_ps(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "verbose", 'v', NULL, 0, "Also their doorbells by store", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "List your processes that use the card on this host.",
	};
	bool verbose = false;
	int ret;

	argp_parse(&argp, argc, argv, 0, NULL, &verbose);
	printf("%8s %5s  %s\n", "PID", "SLOT", "COMMAND");
	ret = vb_registry_list(print_process, &verbose);
	if (ret < 0) {
		fprintf(stderr, "verbatim ps: %s\n", strerror(-ret));
		return 1;
	}
	return 0;
}
