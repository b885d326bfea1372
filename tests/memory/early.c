// SPDX-License-Identifier: MIT
/*
 * A library whose constructor runs before that of the allocator, and does what such constructors do:
 * looks for a function that is not there, leaves the error, allocates, maps and forks.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((visibility("default"))) int memory_test_early;

__attribute__((constructor)) static void begin(void)
{
	char *map, *block;
	int status = 1;
	pid_t pid;

	dlsym(RTLD_DEFAULT, "no_such_function_anywhere");
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	dlsym(RTLD_DEFAULT, "no_such_function_either");
	block = calloc(1, 1 << 20);
	if (map == MAP_FAILED || !block || munmap(map, 4096))
		return;
	memset(block, 1, 1 << 20);
	pid = fork();
	if (!pid)
		_exit(block[4096] != 1);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return;
	free(realloc(block, 2 << 20));
	memory_test_early = 1;
}
