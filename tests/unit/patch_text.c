// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "patch_text.h"

static size_t round_up(size_t n)
{
	return (n + 16 + 4095) & ~(size_t)4095;
}

/* The file stays until the process ends: text without a name is taken for generated. */
static char names[64][64];
static unsigned int num_names;
static pid_t owner;

static void remove_files(void)
{
	for (unsigned int i = 0; i < num_names && owner == getpid(); i++)
		unlink(names[i]);
}

void *text_map(void *at, const void *bytes, size_t n)
{
	size_t size = round_up(n);
	uint8_t *copy = malloc(size);
	char *name;
	void *text;
	int fd;

	if (!owner)
		atexit(remove_files);
	if (owner != getpid())
		num_names = 0;
	owner = getpid();
	assert_in_range(num_names, 0, 63);
	name = names[num_names++];
	snprintf(name, sizeof(names[0]), "patch-text-XXXXXX");
	fd = mkstemp(name);
	assert_true(fd >= 0);
	assert_non_null(copy);
	memset(copy, 0xcc, size);
	memcpy(copy, bytes, n);
	assert_int_equal(write(fd, copy, size), size);
	text = mmap(at, size, PROT_READ | PROT_EXEC, MAP_PRIVATE | (at ? MAP_FIXED : 0), fd, 0);
	assert_ptr_not_equal(text, MAP_FAILED);
	close(fd);
	free(copy);
	return text;
}

void text_unmap(void *text, size_t n)
{
	munmap(text, round_up(n));
}

store_function *function_at(void *text)
{
	store_function *store;

	*(void **)&store = text;
	return store;
}

void in_child(void (*act)(void), const char *after)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		setenv("VERBATIM_PATCH", after, 1);
		signal(SIGSEGV, SIG_DFL); /* not cmocka's */
		act();
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}
