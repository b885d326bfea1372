// SPDX-License-Identifier: MIT
/* How much memory is left in control groups (src/host/memory/room.h): files as the kernel has them, in a folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/memory/room.h"

#define MIB ((size_t)1 << 20)

static char root[] = "/tmp/memory-room-XXXXXX";

static void put(const char *path, const char *text)
{
	char name[256];
	FILE *file;

	snprintf(name, sizeof(name), "%s/%s", root, path);
	for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(name, 0700);
		*at = '/';
	}
	file = fopen(name, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static int begin(void **unused)
{
	(void)unused;
	strcpy(root + strlen(root) - 6, "XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int end(void **unused)
{
	char command[64];

	(void)unused;
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static void nothing_known(void **unused)
{
	(void)unused;
	assert_true(room_in_groups(root, "", 0) == SIZE_MAX);
	assert_true(room_in_groups(root, "0::/\n", 0) == SIZE_MAX);
	assert_true(room_in_groups(root, "4:memory:/a/b\n0::/a", 0) == SIZE_MAX);
	assert_true(room_in_groups(root, "nonsense\n:\n::\n:::\n5:memory:", 0) == SIZE_MAX);
}

/* The group has room, the one above it has less; what is cached of files counts as free. */
static void second(void **unused)
{
	(void)unused;
	put("a/b/memory.max", "max\n");
	put("a/b/memory.current", "1000\n");
	assert_true(room_in_groups(root, "0::/a/b\n", 0) == SIZE_MAX);
	put("a/memory.max", "104857600\n");
	put("a/memory.current", "94371840\n");
	assert_int_equal(room_in_groups(root, "0::/a/b\n", 0), 10 * MIB);
	put("a/memory.stat",
	    "anon 1\nfile 99\nactive_anon 5\ninactive_file 1048576\nactive_file 2097152\n");
	assert_int_equal(room_in_groups(root, "0::/a/b\n", 0), 13 * MIB);
	assert_int_equal(room_in_groups(root, "1:cpu:/x\n0::/a/b", MIB), 14 * MIB);
	put("a/b/memory.max", "3145728");
	put("a/b/memory.current", "4194304"); /* it was lowered */
	assert_int_equal(room_in_groups(root, "0::/a/b\n", 0), 0);
}

/* A container that sees its own group as the root. */
static void as_root(void **unused)
{
	(void)unused;
	put("memory.max", "5242880\n");
	put("memory.current", "1048576\n");
	assert_int_equal(room_in_groups(root, "0::/../../elsewhere\n", 0), 4 * MIB);
}

static void first(void **unused)
{
	(void)unused;
	put("memory/a/memory.limit_in_bytes", "9223372036854771712\n");
	put("memory/a/memory.usage_in_bytes", "1000\n");
	assert_true(room_in_groups(root, "3:cpu:/a\n4:memory:/a\n0::/\n", 0) == SIZE_MAX);
	put("memory/a/memory.limit_in_bytes", "20971520\n");
	put("memory/a/memory.usage_in_bytes", "10485760\n");
	put("memory/a/memory.stat",
	    "cache 1\ninactive_file 7\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
	assert_int_equal(room_in_groups(root, "3:cpu:/a\n4:memory:/a\n0::/\n", 0), 11 * MIB);
}

/* This one: something is left. */
static void here(void **unused)
{
	(void)unused;
	assert_true(room_left() > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_known, begin, end),
		cmocka_unit_test_setup_teardown(second, begin, end),
		cmocka_unit_test_setup_teardown(as_root, begin, end),
		cmocka_unit_test_setup_teardown(first, begin, end),
		cmocka_unit_test(here),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
