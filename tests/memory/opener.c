// SPDX-License-Identifier: MIT
/*
 * In LD_PRELOAD of programs that know nothing of cards: opens one before they begin, so that their
 * memory is born shared. Says so in the file that OPENER_SAYS names.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

static int is_shared(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int found = 0;

	while (maps && fgets(line, sizeof(line), maps))
		found |= strstr(line, "memfd:verbatim-memory") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

__attribute__((constructor)) static void open_card(void)
{
	const char *path = getenv("OPENER_SAYS");
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	const char *text = !context ? "no card\n" : is_shared() ? "shared\n" : "private\n";

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(99);
	close(fd);
}
