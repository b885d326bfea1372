// SPDX-License-Identifier: MIT
/*
 * One input: a source that is compiled for each target, or an object of an earlier `dpacc -c` whose
 * device objects are taken out again.
 *
 * An object of -c is the host object with the stubs; its section .dpa_obj is an ar archive of the
 * device objects, one member *.ARCH.dpa.join.o for each target.
 */
#include "dpacc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool has_suffix(const char *text, const char *suffix)
{
	size_t len = strlen(text), n = strlen(suffix);

	return len > n && !strcmp(text + len - n, suffix);
}

bool member_is_for(const char *name, const struct arch *arch)
{
	return has_suffix(name, mem_printf(".%s" JOIN_SUFFIX, arch->name));
}

/* a/x.c and b/x.c get x and x-2 */
static const char *unique_base(const char *path, const struct unit *before, int n)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	const char *first, *base;

	if (has_suffix(name, ".dpa.o"))
		first = mem_dup(name, strlen(name) - 6);
	else if (strrchr(name, '.') && strrchr(name, '.') > name)
		first = mem_dup(name, (size_t)(strrchr(name, '.') - name));
	else
		first = name;
	base = first;
	for (int i = 0, number = 2; i < n; i++) {
		if (strcmp(before[i].base, base))
			continue;
		base = mem_printf("%s-%d", first, number++);
		i = -1;
	}
	return base;
}

static bool is_other_language(const char *path)
{
	static const char *const suffixes[] = { ".cpp", ".cc", ".cxx", ".C", ".c++", ".S", ".s" };

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (has_suffix(path, suffixes[i]))
			return true;
	return false;
}

int units_make(const struct options *opt, struct unit **units)
{
	struct unit *v = mem_alloc((size_t)opt->inputs.n * sizeof(*v));

	for (int i = 0; i < opt->inputs.n; i++) {
		v[i].path = opt->inputs.v[i];
		v[i].source = has_suffix(v[i].path, ".c");
		v[i].base = unique_base(v[i].path, v, i);
		if (access(v[i].path, R_OK)) {
			perror(mem_printf("dpacc: %s", v[i].path));
			return -1;
		}
		if (is_other_language(v[i].path)) {
			say("%s: device code is C, in files whose names end in .c", v[i].path);
			return -1;
		}
		if (!v[i].source && opt->compile_only) {
			say("%s: -c compiles sources, whose names end in .c", v[i].path);
			return -1;
		}
	}
	*units = v;
	return 0;
}

/* All options of the device compiler for a target but those of one source. */
static int compiler_options(const struct options *opt, const struct arch *arch, struct list *out)
{
	const char *libc = picolibc_dir();

	if (!libc)
		return -1;
	arch_compiler_options(arch, out);
	list_add(out, "-O2"); /* before the user's, who may say another */
	list_append(out, &opt->device_options);
	list_addv(out, "-isystem", tree_path("include/libflexio-libc"), "-isystem",
		  mem_printf("%s/include", libc), "-isystem", tree_path("include"), NULL);
	return 0;
}

static int dpacc_unit_compile(const struct list *options, const struct list *own, bool lto,
			      const char *from, const char *to)
{
	struct list argv = { 0 };
	const char *clang = tool_find("clang");

	if (!clang)
		return -1;
	list_add(&argv, clang);
	list_append(&argv, options);
	if (own)
		list_append(&argv, own);
	if (lto)
		list_add(&argv, "-flto");
	list_addv(&argv, "-Wno-unused-command-line-argument", "-c", from, "-o", to, NULL);
	return run_command(&argv);
}

/* Static functions become visible to the linker, under a name that meets no other. */
static int export_static(const struct functions *functions, const char *object)
{
	struct list argv = { 0 };

	list_add(&argv, tool_find("llvm-objcopy"));
	if (!argv.v[0])
		return -1;
	for (int i = 0; i < functions->n; i++) {
		const struct function *f = &functions->v[i];

		if (!f->is_static)
			continue;
		list_addf(&argv, "--globalize-symbol=%s", f->name);
		list_addf(&argv, "--weaken-symbol=%s", f->name);
		list_addf(&argv, "--redefine-sym=%s=%s", f->name, function_symbol(f));
	}
	list_add(&argv, object);
	return run_command(&argv);
}

static bool any_static(const struct functions *functions)
{
	for (int i = 0; i < functions->n; i++)
		if (functions->v[i].is_static)
			return true;
	return false;
}

static int unit_join(bool lto, const char *a, const char *b, const char *to)
{
	struct list argv = { 0 };

	list_add(&argv, tool_find(lto ? "llvm-link" : "ld.lld"));
	if (!argv.v[0])
		return -1;
	if (!lto)
		list_addv(&argv, "-m", "elf64lriscv", "-r", NULL);
	list_addv(&argv, a, b, "-o", to, NULL);
	return run_command(&argv);
}

static int compile_for(const struct options *opt, struct unit *unit, int index)
{
	const struct arch *arch = opt->archs[index];
	const char *object = work_path("%s.%s.o", unit->base, arch->name);
	const char *wrappers = work_path("%s.%s.dpa.device.o", unit->base, arch->name);
	const char *wrappers_c = work_path("%s.%s.dpa.device.c", unit->base, arch->name);
	struct functions functions = { 0 };
	struct list options = { 0 }, plain = { 0 }, own = { 0 };
	const char *text, *error;
	bool lto;

	if (!tool_find("clang") || compiler_options(opt, arch, &options) ||
	    scan_source(unit->path, &options, &functions, &own, &error))
		return -1;
	/*
	 * a static function is exported in the object, which LTO does not have: that source goes
	 * without
	 */
	lto = opt->lto && !any_static(&functions);
	if (dpacc_unit_compile(&options, &own, lto, unit->path, object) ||
	    (any_static(&functions) && export_static(&functions, object)))
		return -1;
	if (error && !opt->dryrun) { /* then the types that were read are worth nothing */
		say("libclang cannot read what clang compiles; are both of one version? %s", error);
		return -1;
	}
	text = gen_unpack(&functions);
	arch_compiler_options(arch, &plain);
	list_addv(&plain, "-O2", "-w", NULL);
	work_hide(&plain);
	unit->join[index] = work_path("%s.%s" JOIN_SUFFIX, unit->base, arch->name);
	if (work_write(wrappers_c, text, strlen(text)) ||
	    dpacc_unit_compile(&plain, NULL, lto, wrappers_c, wrappers) ||
	    /* the source last: messages of the linker name the last file of an object */
	    unit_join(lto, wrappers, object, unit->join[index]))
		return -1;
	for (int i = 0; i < functions.n; i++) {
		int j;

		for (j = 0; j < unit->functions.n &&
			    strcmp(unit->functions.v[j].name, functions.v[i].name);
		     j++)
			;
		if (j == unit->functions.n)
			*functions_add(&unit->functions) = functions.v[i];
	}
	return 0;
}

int host_compiler(const struct options *opt, struct list *argv)
{
	struct list words = { 0 };
	const char *program;

	/* a name with spaces in it, or a program and its arguments */
	if (strchr(opt->hostcc, ' ') && access(opt->hostcc, X_OK)) {
		if (!words_split(opt->hostcc, false, &words))
			return -1;
	} else if (*opt->hostcc) {
		list_add(&words, opt->hostcc);
	}
	program = words.n ? tool_find(words.v[0]) : NULL;
	if (!words.n)
		say("-hostcc names no program");
	if (!program)
		return -1;
	words.v[0] = (char *)program;
	list_append(argv, &words);
	return 0;
}

int compile_host(const struct options *opt, const char *from, const char *to)
{
	struct list argv = { 0 };

	if (host_compiler(opt, &argv))
		return -1;
	list_append(&argv, &opt->host_options);
	work_hide(&argv);
	list_addv(&argv, "-fPIC", "-fno-lto", "-w", "-x", "c", "-c", from, "-o", to, NULL);
	return run_command(&argv);
}

static int compile_source(const struct options *opt, struct unit *unit)
{
	const char *stubs = work_path("%s.dpa.host.c", unit->base);
	char *text;

	for (int i = 0; i < opt->num_archs; i++)
		if (compile_for(opt, unit, i))
			return -1;
	unit->host = work_path("%s.dpa.o", unit->base);
	text = gen_stubs(&unit->functions);
	if (work_write(stubs, text, strlen(text)))
		return -1;
	return compile_host(opt, stubs, unit->host);
}

/* The device objects of an earlier -c, and its host object without them. */
static int take_apart(const struct options *opt, struct unit *unit)
{
	struct list argv = { 0 };
	struct member *members;
	const void *data, *section;
	size_t size;
	int n, found;

	data = file_read(unit->path, &size);
	if (!data)
		return -1;
	found = elf_section(data, size, ".dpa_obj", &section, &size);
	if (found <= 0) {
		say("%s: %s", unit->path,
		    found < 0
			    ? "not a C source (.c), and damaged or no object"
			    : "no device code in it; dpacc takes sources (.c) and objects of dpacc -c");
		return -1;
	}
	if (archive_members(section, size, &members, &n)) {
		say("%s: its device code is damaged", unit->path);
		return -1;
	}
	for (int i = 0; i < opt->num_archs; i++) {
		int j;

		for (j = 0; j < n && !member_is_for(members[j].name, opt->archs[i]); j++)
			;
		if (j == n) {
			say("%s: no code for %s in it; compile it again with -mcpu", unit->path,
			    opt->archs[i]->cpu);
			return -1;
		}
		unit->join[i] = work_path("%s.%s" JOIN_SUFFIX, unit->base, opt->archs[i]->name);
		if (work_write(unit->join[i], members[j].data, members[j].size))
			return -1;
	}
	unit->host = work_path("%s.host.dpa.o", unit->base); /* .dpa.o may be the input itself */
	list_add(&argv, tool_find("llvm-objcopy"));
	if (!argv.v[0])
		return -1;
	list_addv(&argv, "--remove-section=.dpa_obj", unit->path, unit->host, NULL);
	return run_command(&argv);
}

int unit_compile(const struct options *opt, struct unit *unit)
{
	return unit->source ? compile_source(opt, unit) : take_apart(opt, unit);
}

const char *unit_pack(const struct options *opt, const struct unit *unit)
{
	const char *fat = work_path("%s.fatobj.a", unit->base);
	struct list ar = { 0 }, argv = { 0 };
	const char *tool = tool_find("llvm-ar"), *objcopy = tool_find("llvm-objcopy");

	if (!tool || !objcopy)
		return NULL;
	work_remove(fat);
	list_addv(&ar, tool, "rcSD", fat, NULL);
	for (int i = 0; i < opt->num_archs; i++)
		list_add(&ar, unit->join[i]);
	list_addv(&argv, objcopy, mem_printf("--add-section=.dpa_obj=%s", fat), unit->host, NULL);
	return run_command(&ar) || run_command(&argv) ? NULL : unit->host;
}
