// SPDX-License-Identifier: MIT
/*
 * verbatim ps: the processes of this user that have the card open, from the registry.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/registry.h"
#include "tools/cmd.h"

/* What /proc says it runs; the kernel cuts it at 15 characters. */
static void read_command(pid_t pid, char *name, size_t size)
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

static void print_process(void *arg, const struct vb_slot_info *info)
{
	char command[32];

	read_command(info->pid, command, sizeof(command));
	printf("%8d %5" PRIu32 "  %s\n", (int)info->pid, info->slot, command);
}

int cmd_ps(int argc, char **argv)
{
	static const struct argp argp = {
		.doc = "List your processes that use the card on this host.",
	};
	int ret;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	printf("%8s %5s  %s\n", "PID", "SLOT", "COMMAND");
	ret = vb_registry_list(print_process, NULL);
	if (ret < 0) {
		fprintf(stderr, "verbatim ps: %s\n", strerror(-ret));
		return 1;
	}
	return 0;
}
