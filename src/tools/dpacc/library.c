// SPDX-License-Identifier: MIT
/*
 * Device libraries: making them (-gen-libs) and finding them for a link.
 *
 * libX_device.a holds the device objects of all targets, S.ARCH.dpa.join.o; libX_host.a the stubs.
 * For a link, the members of the other targets are left out. Archives of other origin (dpa-ar) have
 * one kind of code and are taken as they are.
 */
#include "dpacc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Part of every link already, or part of our own libraries. */
static bool is_built_in(const char *name)
{
	static const char *const names[] = { "flexio_dev",  "flexio-libc",
					     "flexio_libc", "flexio_os",
					     "c",           "m",
					     "gcc",         "clang_rt.builtins-riscv64" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* -LFOLDER and -L FOLDER of both lists. */
static void find_folders(const struct list *words, struct list *out)
{
	for (int i = 0; i < words->n; i++) {
		if (strncmp(words->v[i], "-L", 2))
			continue;
		if (words->v[i][2])
			list_add(out, words->v[i] + 2);
		else if (i + 1 < words->n)
			list_add(out, words->v[++i]);
	}
}

static const char *find_library(const char *name, const struct list *folders)
{
	for (int i = 0; i < folders->n; i++) {
		for (int j = 0; j < 2; j++) {
			char *path = j ? mem_printf("%s/lib%s_device.a", folders->v[i], name)
				       : mem_printf("%s/lib%s.a", folders->v[i], name);

			if (!access(path, R_OK))
				return path;
		}
	}
	say("the device library %s (lib%s.a or lib%s_device.a) was not found; name its folder with -device-libs=-LFOLDER",
	    name, name, name);
	return NULL;
}

static bool is_for_some(const char *name)
{
	static const char *const cpus[] = { "nv-dpa-bf3", "nv-dpa-cx7", "nv-dpa-cx8",
					    "nv-dpa-cx9" };

	for (int i = 0; i < MAX_ARCHS; i++)
		if (member_is_for(name, arch_find(cpus[i], strlen(cpus[i]))))
			return true;
	return false;
}

/* The archive, or one with only the members of a target. */
static const char *for_target(const char *path, const struct arch *arch)
{
	struct list argv = { 0 };
	struct member *members;
	const void *data;
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *out;
	int n, others = 0, ours = 0;
	size_t size;

	data = file_read(path, &size);
	if (!data)
		return NULL;
	if (size >= 8 && !memcmp(data, "NVDPAFBF", 8)) {
		say("%s: made by another compiler; make it again with this one", path);
		return NULL;
	}
	if (archive_members(data, size, &members, &n)) {
		say("%s: damaged or no archive", path);
		return NULL;
	}
	for (int i = 0; i < n; i++) {
		bool mine = member_is_for(members[i].name, arch);

		ours += mine;
		others += !mine && is_for_some(members[i].name);
	}
	if (!others)
		return path;
	if (!ours) {
		say("%s: no code for %s in it; make it again with -mcpu", path, arch->cpu);
		return NULL;
	}
	list_add(&argv, tool_find("llvm-ar"));
	if (!argv.v[0])
		return NULL;
	out = work_path("%s.%s.a", base, arch->name);
	work_remove(out);
	list_addv(&argv, "rcD", out, NULL);
	for (int i = 0; i < n; i++) {
		const char *file;

		if (is_for_some(members[i].name) && !member_is_for(members[i].name, arch))
			continue;
		file = work_path("%s.%s", base, members[i].name);
		if (work_write(file, members[i].data, members[i].size))
			return NULL;
		list_add(&argv, file);
	}
	return run_command(&argv) ? NULL : out;
}

/* One word of -device-libs or -devicelink-options: 1 taken, 0 not a library, -1 failed. */
static int take_library(const char *word, const char *next, const struct list *folders,
			const struct arch *arch, struct list *out)
{
	const char *path = NULL;

	if (!strncmp(word, "-l", 2)) {
		const char *name = word[2] ? word + 2 : next;

		if (!name) {
			say("-l without a name in a list of device libraries");
			return -1;
		}
		if (is_built_in(name))
			return 1;
		path = find_library(name, folders);
		if (!path)
			return -1;
	} else if (word[0] != '-' && has_suffix(word, ".a")) {
		path = word;
	} else {
		return 0;
	}
	path = for_target(path, arch);
	if (!path)
		return -1;
	list_add(out, path);
	return 1;
}

/* Linker options as the compiler driver takes them, too: -Wl,a,b and -Xlinker a. */
static void add_linker_option(const char *word, struct list *out)
{
	if (!strncmp(word, "-Wl,", 4)) {
		char *copy = mem_dup(word + 4, strlen(word + 4)), *part;

		while ((part = strsep(&copy, ",")))
			list_add(out, part);
	} else if (strcmp(word, "-Xlinker") && strncmp(word, "-fuse-ld", 8) &&
		   strcmp(word, "-nostartfiles")) {
		list_add(out, word);
	}
}

int library_arguments(const struct options *opt, const struct arch *arch, struct list *out)
{
	const struct list *lists[] = { &opt->device_libs, &opt->link_options };
	struct list folders = { 0 }, libraries = { 0 };

	for (int i = 0; i < 2; i++)
		find_folders(lists[i], &folders);
	list_addv(&folders, ".", tree_path("lib/flexio"), tree_path("lib"), NULL);
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < lists[i]->n; j++) {
			const char *word = lists[i]->v[j];
			const char *next = j + 1 < lists[i]->n ? lists[i]->v[j + 1] : NULL;
			int taken = take_library(word, next, &folders, arch, &libraries);

			if (taken < 0)
				return -1;
			if (!taken)
				add_linker_option(word, out);
			else if (!strcmp(word, "-l"))
				j++;
		}
	}
	list_add(out, "--whole-archive");
	list_append(out, &libraries);
	return 0;
}

int make_libraries(const struct options *opt, struct unit *units, int n)
{
	const char *tool = tool_find("llvm-ar");
	const char *kinds[] = { "device", "host" };

	if (!tool)
		return -1;
	for (int kind = 0; kind < 2; kind++) {
		const char *to = mem_printf("%s_%s.a", opt->output, kinds[kind]);
		const char *base = strrchr(to, '/') ? strrchr(to, '/') + 1 : to;
		const char *out = work_path("new-%s", base);
		struct list argv = { 0 };

		work_remove(out);
		list_addv(&argv, tool, "rcD", out, NULL);
		for (int i = 0; i < n; i++) {
			for (int j = 0; !kind && j < opt->num_archs; j++)
				list_add(&argv, units[i].join[j]);
			if (kind)
				list_add(&argv, units[i].host);
		}
		if (run_command(&argv) || output_add(out, to))
			return -1;
	}
	return output_commit();
}
