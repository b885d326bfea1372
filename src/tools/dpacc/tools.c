// SPDX-License-Identifier: MIT
/*
 * Where things are: the tree that dpacc stands in, the programs it calls, the device's C library.
 * What is missing is named with the Debian package that has it.
 */
#include "dpacc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PICOLIBC "/usr/lib/picolibc/riscv64-unknown-elf"

static const struct {
	const char *program, *package;
} packages[] = {
	{ "clang", "clang" },       { "ld.lld", "lld" },
	{ "llvm-ar", "llvm" },      { "llvm-link", "llvm" },
	{ "llvm-nm", "llvm" },      { "llvm-objcopy", "llvm" },
	{ "llvm-objdump", "llvm" }, { "riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf" },
	{ "gcc", "gcc" },           { "cc", "gcc" },
	{ "g++", "g++" },           { "clang++", "clang" },
};

static bool is_program(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

static const char *search_path(const char *name)
{
	const char *dir = getenv("PATH"), *end;

	for (dir = dir ? dir : "/bin:/usr/bin";; dir = end + 1) {
		const char *path;

		end = strchrnul(dir, ':');
		path = end > dir ? mem_printf("%.*s/%s", (int)(end - dir), dir, name)
				 : mem_printf("./%s", name);
		if (is_program(path))
			return path;
		if (!*end)
			return NULL;
	}
}

const char *tool_find(const char *name)
{
	const char *path = NULL;

	if (!strchr(name, '/'))
		path = search_path(name);
	else if (is_program(name))
		path = name;
	if (path)
		return path;
	for (size_t i = 0; i < sizeof(packages) / sizeof(packages[0]); i++) {
		if (strcmp(packages[i].program, name))
			continue;
		say("%s was not found in PATH; it is in the Debian package %s: apt-get install %s",
		    name, packages[i].package, packages[i].package);
		return NULL;
	}
	say("%s: %s", name,
	    strchr(name, '/') ? "no such program" : "not found in PATH; is it installed?");
	return NULL;
}

const char *tree_path(const char *relative)
{
	static char top[PATH_MAX];

	if (!top[0]) {
		ssize_t len = readlink("/proc/self/exe", top, sizeof(top) - 1);

		top[len > 0 ? len : 0] = '\0';
		for (int up = 0; up < 2; up++) { /* off with "/dpacc", off with "/bin" */
			char *slash = strrchr(top, '/');

			if (slash)
				*slash = '\0';
		}
	}
	return mem_printf("%s/%s", top, relative);
}

const char *tree_file(const char *relative)
{
	const char *path = tree_path(relative);

	if (!access(path, R_OK))
		return path;
	say("%s is missing; is the installation complete?", path);
	return NULL;
}

const char *picolibc_dir(void)
{
	const char *dir = getenv("DPACC_PICOLIBC");

	if (!dir || !*dir)
		dir = PICOLIBC;
	if (!access(mem_printf("%s/include/string.h", dir), R_OK) &&
	    !access(mem_printf("%s/lib/rv64imac/lp64/libc.a", dir), R_OK))
		return dir;
	say("there is no C library for the device in %s; it is in the Debian package "
	    "picolibc-riscv64-unknown-elf: apt-get install picolibc-riscv64-unknown-elf",
	    dir);
	return NULL;
}

const char *libgcc_file(void)
{
	static const char *file;
	struct list argv = { 0 };

	if (file)
		return file;
	list_add(&argv, tool_find("riscv64-unknown-elf-gcc"));
	if (!argv.v[0])
		return NULL;
	list_addv(&argv, "-march=rv64imac", "-mabi=lp64", "-print-libgcc-file-name", NULL);
	file = run_question(&argv);
	if (file && !access(file, R_OK))
		return file;
	say("%s has no libgcc for rv64imac/lp64; it is in the Debian package gcc-riscv64-unknown-elf",
	    argv.v[0]);
	file = NULL;
	return NULL;
}
