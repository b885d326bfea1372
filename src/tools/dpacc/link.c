// SPDX-License-Identifier: MIT
/*
 * From device objects to the application's archive: link the device program of each target, read
 * from it which functions it has, generate and compile the application's own host code, and put all
 * host objects into one, so that any reference to the archive brings the constructor along.
 */
#include "dpacc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int device_link(const struct options *opt, const struct unit *units, int n, int index,
		       struct image *image)
{
	const struct arch *arch = opt->archs[index];
	const char *libc = picolibc_dir(), *libgcc = libgcc_file(), *lld = tool_find("ld.lld");
	const char *script = tree_file("lib/flexio/dpa_linker.ld");
	const char *device = tree_file("lib/flexio/libflexio_dev.a");
	const char *ours = tree_file("lib/flexio/libflexio-libc.a");
	struct list argv = { 0 };

	if (!libc || !libgcc || !lld || !script || !device || !ours)
		return -1;
	image->arch = arch;
	image->file = work_path("device_exec.%s", arch->name);
	list_addv(&argv, lld, "-m", "elf64lriscv", "-static", "-nostdlib", "-z", "nognustack", "-z",
		  "norelro", "--wrap=vfprintf", "-T", script, NULL);
	for (int i = 0; i < n; i++)
		list_add(&argv, units[i].join[index]);
	if (library_arguments(opt, arch, &argv))
		return -1;
	list_addv(&argv, device, "--no-whole-archive", "--start-group", ours,
		  mem_printf("%s/lib/rv64imac/lp64/libc.a", libc),
		  mem_printf("%s/lib/rv64imac/lp64/libm.a", libc), libgcc, "--end-group", "-o",
		  image->file, NULL);
	return run_command(&argv);
}

/* The attributes go along with the program; nothing here reads them. */
static int add_attributes(const struct options *opt, const struct image *image)
{
	const char *objcopy = tool_find("llvm-objcopy");
	struct list argv = { 0 };
	const char *data;
	size_t size;

	if (!opt->attributes)
		return 0;
	data = file_read(opt->attributes, &size);
	if (!data || !objcopy)
		return -1;
	if (size < strlen(ATTRIBUTES_MAGIC) ||
	    memcmp(data, ATTRIBUTES_MAGIC, strlen(ATTRIBUTES_MAGIC))) {
		say("%s: these attributes were not made by dpa-app-attributes2blob",
		    opt->attributes);
		return -1;
	}
	list_addv(&argv, objcopy, mem_printf("--add-section=.dpa_attributes=%s", opt->attributes),
		  image->file, NULL);
	return run_command(&argv);
}

/* What the host could not register or link later is an error now. */
static int check_functions(const struct options *opt, const struct image *image,
			   const void *program, size_t size)
{
	int errors = 0;

	for (int i = 0; i < image->functions.n; i++) {
		const struct function *f = &image->functions.v[i];
		const char *what = NULL;

		if (!elf_defines(program, size, function_symbol(f)))
			what = "it has no code; 'inline' needs 'static' or 'extern'";
		else if (!strcmp(f->name, opt->app_name))
			what = "the application has the same name; choose another with -app-name";
		if (!what)
			continue;
		fprintf(stderr, "%s:%u: error: function '%s' called from the host: %s\n", f->file,
			f->line, f->name, what);
		errors++;
	}
	return errors ? -1 : 0;
}

/* Which functions the linked program has. */
static int read_functions(const struct options *opt, struct image *image)
{
	const void *data, *section;
	size_t size, length;
	int found;

	if (opt->dryrun)
		return 0;
	data = file_read(image->file, &size);
	if (!data)
		return -1;
	found = elf_section(data, size, ".dpa_meta", &section, &length);
	if (found < 0) {
		say("%s: the linked device program is damaged", image->file);
		return -1;
	}
	if (found && meta_parse(section, length, image->file, &image->functions))
		return -1;
	return check_functions(opt, image, data, size);
}

/* Before the linker says it less well. */
static int check_names(const struct unit *units, int n)
{
	struct functions all = { 0 };

	for (int i = 0; i < n; i++)
		for (int j = 0; j < units[i].functions.n; j++)
			*functions_add(&all) = units[i].functions.v[j];
	return functions_check_clash(&all);
}

static int make_archive(const struct options *opt, const struct unit *units, int n,
			const char *meta)
{
	const char *stubs = work_path("hostStubs.o");
	const char *archive = work_path("%s.archive.%s", opt->app_name, opt->shared ? "so" : "a");
	const char *lld = tool_find("ld.lld"), *ar = tool_find("llvm-ar");
	struct list join = { 0 }, argv = { 0 };

	if (!lld || !ar)
		return -1;
	list_addv(&join, lld, "-r", meta, NULL);
	for (int i = 0; i < n; i++)
		list_add(&join, units[i].host);
	list_addv(&join, "-o", stubs, NULL);
	if (opt->shared) {
		if (host_compiler(opt, &argv))
			return -1;
		list_append(&argv, &opt->host_options);
		list_addv(&argv, "-shared", stubs, "-o", archive, NULL);
	} else {
		work_remove(archive);
		list_addv(&argv, ar, "rcD", archive, stubs, NULL);
	}
	if (run_command(&join) || run_command(&argv))
		return -1;
	return output_add(archive, opt->output) || output_commit() ? -1 : 0;
}

int link_app(const struct options *opt, struct unit *units, int n)
{
	const char *meta_c = work_path("%s.meta.c", opt->app_name);
	const char *meta_o = work_path("%s.meta.o", opt->app_name);
	struct image images[MAX_ARCHS] = { 0 };
	char *text;

	if (check_names(units, n))
		return -1;
	for (int i = 0; i < opt->num_archs; i++)
		if (device_link(opt, units, n, i, &images[i]) || add_attributes(opt, &images[i]) ||
		    read_functions(opt, &images[i]))
			return -1;
	text = gen_meta(opt->app_name, images, opt->num_archs);
	if (work_write(meta_c, text, strlen(text)) || compile_host(opt, meta_c, meta_o))
		return -1;
	return make_archive(opt, units, n, meta_o);
}
