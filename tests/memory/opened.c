// SPDX-License-Identifier: MIT
/*
 * A program that opens a card and then allocates, as programs do: says where its memory lies, and
 * that it works. Built twice, once with a malloc() of its own.
 *
 * usage: opened
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { SIZE = 1 << 20 };

/* Whether an address lies in the memory that peers can map. */
static int is_shared(const void *p)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512];
	int found = 0;

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)p >= from &&
		    (uintptr_t)p < to)
			found = strstr(line, "memfd:verbatim-memory") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

static int fail(const char *what)
{
	fprintf(stderr, "opened: %s\n", what);
	return 1;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	char *early, *block, *aligned, *map;
	int status;
	pid_t pid;

	early = malloc(SIZE);
	if (!list || !list[0] || is_shared(early))
		return fail("no devices, or memory is shared before one is opened");
	context = ibv_open_device(list[0]);
	if (!context)
		return fail("no card");
	block = malloc(SIZE);
	if (posix_memalign((void **)&aligned, 4096, SIZE))
		return fail("no block");
	map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!block || map == MAP_FAILED)
		return fail("no memory");
	pd = ibv_alloc_pd(context);
	mr = pd ? ibv_reg_mr(pd, block, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
		: NULL;
	if (!mr)
		return fail("no region");
	early = realloc(early, 2 * SIZE);
	memset(early, 1, 2 * SIZE);
	memset(block, 2, SIZE);
	memset(aligned, 3, SIZE);
	memset(map, 4, SIZE);
	printf("%s %s %s %s\n", is_shared(early) ? "shared" : "private",
	       is_shared(block) ? "shared" : "private", is_shared(aligned) ? "shared" : "private",
	       is_shared(map) ? "shared" : "private");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (early[SIZE] != 1 || block[1] != 2 || aligned[1] != 3 || map[1] != 4)
			_exit(1);
		memset(block, 9, SIZE);
		_exit(is_shared(block) || is_shared(map));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return fail("the child does not have a copy of its own");
	if (block[0] != 2 || block[SIZE - 1] != 2)
		return fail("a child changed our memory");
	if (ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || munmap(map, SIZE))
		return fail("cannot give back");
	free(block);
	free(aligned);
	free(early);
	if (ibv_close_device(context))
		return fail("cannot close");
	ibv_free_device_list(list);
	return 0;
}
