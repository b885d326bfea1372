// SPDX-License-Identifier: MIT
/*
 * The command line. Every option is taken with one or two dashes, with = or a space before its
 * value, and lists have commas or spaces: that is what build scripts for the vendor's SDK write.
 */
#include "dpacc.h"

#include <argp.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	KEY_APP_NAME = 256,
	KEY_MCPU,
	KEY_HOSTCC,
	KEY_HOSTCC_OPTIONS,
	KEY_DEVICECC_OPTIONS,
	KEY_DEVICELINK_OPTIONS,
	KEY_DEVICE_LIBS,
	KEY_LTO,
	KEY_GEN_LIBS,
	KEY_KEEP,
	KEY_KEEP_DIR,
	KEY_DRYRUN,
	KEY_OPTIONS_FILE,
	KEY_SHARED,
	KEY_ATTRIBUTES,
	KEY_IGNORED,
	KEY_COMPILER,
	MAX_NESTED_FILES = 16,
};

#define DEFAULT_APP_NAME "__dpa_a_out"

static const struct argp_option table[] = {
	{ 0, 0, 0, 0, "Output:", 1 },
	{ "output-file", 'o', "FILE", 0, "Write FILE; only -c has a default, SOURCE.dpa.o", 0 },
	{ "o", 'o', "FILE", OPTION_HIDDEN, 0, 0 },
	{ "compile", 'c', 0, 0, "Compile only: leave an object for a later dpacc", 0 },
	{ "c", 'c', 0, OPTION_HIDDEN, 0, 0 },
	{ "gen-libs", KEY_GEN_LIBS, 0, 0, "Make the libraries FILE_device.a and FILE_host.a", 0 },
	{ "shared", KEY_SHARED, 0, 0, "Make a shared library for the host instead of an archive",
	  0 },
	{ "app-name", KEY_APP_NAME, "NAME", 0,
	  "Name of the application and of its struct flexio_app * (default: " DEFAULT_APP_NAME ")",
	  0 },
	{ "mcpu", KEY_MCPU, "CPU,...", 0,
	  "Compile for nv-dpa-bf3 (default), nv-dpa-cx7, -cx8, -cx9", 0 },
	{ 0, 0, 0, 0, "Device code:", 2 },
	{ "devicecc-options", KEY_DEVICECC_OPTIONS, "LIST", 0, "Options for the device compiler",
	  0 },
	{ "devicelink-options", KEY_DEVICELINK_OPTIONS, "LIST", 0, "Options for the device linker",
	  0 },
	{ "device-libs", KEY_DEVICE_LIBS, "LIST", 0, "Device libraries: -LFOLDER, -lNAME, files",
	  0 },
	{ "common-include-path", 'I', "FOLDER", 0, "Look for headers in FOLDER too", 0 },
	{ "define", 'D', "NAME[=VALUE]", 0, "Define a macro", 0 },
	{ "library", 'l', "NAME", 0, "Link the device library libNAME.a or libNAME_device.a", 0 },
	{ "library-path", 'L', "FOLDER", 0, "Look for device libraries in FOLDER too", 0 },
	{ "flto", KEY_LTO, 0, 0, "Optimize when linking", 0 },
	{ "disable-asm-checks", KEY_IGNORED, 0, 0, "Accepted: inline assembly is not checked", 0 },
	{ "disable-asm-checks-nowarn", KEY_IGNORED, 0, OPTION_ALIAS, 0, 0 },
	{ "dpa-proc-attr", KEY_ATTRIBUTES, "BLOB", 0,
	  "Put the attributes made by dpa-app-attributes2blob into the program", 0 },
	{ 0, 0, 0, 0, "Host code:", 3 },
	{ "hostcc", KEY_HOSTCC, "PROGRAM", 0, "Host compiler (default: gcc)", 0 },
	{ "hostcc-options", KEY_HOSTCC_OPTIONS, "LIST", 0, "Options for the host compiler", 0 },
	{ 0, 0, 0, 0, "What happens:", 4 },
	{ "verbose", 'v', 0, 0, "Show the commands", 0 },
	{ "v", 'v', 0, OPTION_HIDDEN, 0, 0 },
	{ "dryrun", KEY_DRYRUN, 0, 0, "Show the commands, do nothing", 0 },
	{ "keep", KEY_KEEP, 0, 0, "Keep the intermediate files, in this folder", 0 },
	{ "keep-dir", KEY_KEEP_DIR, "FOLDER", 0, "Keep the intermediate files in FOLDER", 0 },
	{ "options-file", KEY_OPTIONS_FILE, "FILE", 0,
	  "Take more of the command line from FILE; so does @FILE", 0 },
	{ "optf", KEY_OPTIONS_FILE, "FILE", OPTION_ALIAS, 0, 0 },
	{ 0, 'h', 0, OPTION_HIDDEN, 0, 0 },
	/* what a compiler takes must not pass for -gen-libs, -flto, -shared in short */
	{ "g", KEY_COMPILER, 0, OPTION_HIDDEN, 0, 0 },
	{ "f", KEY_COMPILER, 0, OPTION_HIDDEN, 0, 0 },
	{ "s", KEY_COMPILER, 0, OPTION_HIDDEN, 0, 0 },
	/*
	 * -O2, -Wall, -std=c11, -march=, -fno-common, ...: users who try it are told where they
	 * belong
	 */
	{ 0, 'O', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0, 'W', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0, 'f', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0, 'g', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0, 'i', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0, 'm', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0, 's', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0, 'U', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0, 'x', "", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, 0, 0 },
	{ 0 },
};

static void add_archs(struct options *opt, const char *value, struct argp_state *state)
{
	struct list names = { 0 };

	if (!words_split(value, true, &names))
		exit(DPACC_USAGE);
	for (int i = 0; i < names.n; i++) {
		const struct arch *arch = arch_find(names.v[i], strlen(names.v[i]));
		int j;

		if (!arch)
			argp_error(state, "unknown -mcpu '%s'; there are %s", names.v[i],
				   arch_names());
		for (j = 0; j < opt->num_archs && opt->archs[j] != arch; j++)
			;
		if (j == opt->num_archs)
			opt->archs[opt->num_archs++] = arch;
	}
}

static void add_words(struct list *list, const char *value)
{
	if (!words_split(value, true, list))
		exit(DPACC_USAGE);
}

bool is_identifier(const char *name)
{
	if (!isalpha((unsigned char)*name) && *name != '_')
		return false;
	while (*name && (isalnum((unsigned char)*name) || *name == '_'))
		name++;
	return !*name;
}

static bool is_keyword(const char *name)
{
	static const char *const keywords[] = {
		"auto",    "break",  "case",     "char",   "const",    "continue", "default",
		"do",      "double", "else",     "enum",   "extern",   "float",    "for",
		"goto",    "if",     "inline",   "int",    "long",     "register", "restrict",
		"return",  "short",  "signed",   "sizeof", "static",   "struct",   "switch",
		"typedef", "union",  "unsigned", "void",   "volatile", "while",    "main",
	};

	for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
		if (!strcmp(name, keywords[i]))
			return true;
	return false;
}

static void check_app_name(const char *name, struct argp_state *state)
{
	if (!is_identifier(name) || is_keyword(name))
		argp_error(
			state,
			"-app-name '%s' is no C identifier; a variable of the host program gets this name",
			name);
	if (strlen(name) > DPACC_MAX_NAME)
		argp_error(state, "-app-name is longer than %d characters", DPACC_MAX_NAME);
}

/* Options that only fill in a word or a switch. */
static error_t parse_simple(struct options *opt, int key, char *arg)
{
	switch (key) {
	case 'o':
		opt->output = arg;
		return 0;
	case 'c':
		opt->compile_only = true;
		return 0;
	case 'v':
		opt->verbose = true;
		return 0;
	case KEY_GEN_LIBS:
		opt->gen_libs = true;
		return 0;
	case KEY_LTO:
		opt->lto = true;
		return 0;
	case KEY_DRYRUN:
		opt->dryrun = true;
		return 0;
	case KEY_KEEP:
		opt->keep_dir = opt->keep_dir ? opt->keep_dir : ".";
		return 0;
	case KEY_KEEP_DIR:
		opt->keep_dir = arg;
		return 0;
	case KEY_HOSTCC:
		opt->hostcc = arg;
		return 0;
	case KEY_SHARED:
		opt->shared = true;
		return 0;
	case KEY_ATTRIBUTES:
		opt->attributes = arg;
		return 0;
	case KEY_IGNORED:
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* Options that add to a list. */
static error_t parse_lists(struct options *opt, int key, char *arg)
{
	switch (key) {
	case 'I':
		list_addf(&opt->device_options, "-I%s", arg);
		list_addf(&opt->host_options, "-I%s", arg);
		return 0;
	case 'D':
		list_addf(&opt->device_options, "-D%s", arg);
		return 0;
	case 'l':
	case 'L':
		list_addf(&opt->device_libs, "-%c%s", key, arg);
		return 0;
	case KEY_HOSTCC_OPTIONS:
		add_words(&opt->host_options, arg);
		return 0;
	case KEY_DEVICECC_OPTIONS:
		add_words(&opt->device_options, arg);
		return 0;
	case KEY_DEVICELINK_OPTIONS:
		add_words(&opt->link_options, arg);
		return 0;
	case KEY_DEVICE_LIBS:
		add_words(&opt->device_libs, arg);
		return 0;
	case ARGP_KEY_ARG:
		list_add(&opt->inputs, arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/*
 * Options of the device compiler that are ours to decide: link-time optimization, because static
 * functions are exported without it, and the vendor's names of targets, which clang does not know.
 */
static void take_back(struct options *opt)
{
	struct list rest = { 0 };

	for (int i = 0; i < opt->device_options.n; i++) {
		const char *word = opt->device_options.v[i];

		if (!strcmp(word, "-flto") || !strncmp(word, "-flto=", 6))
			opt->lto = true;
		else if (!strcmp(word, "-fno-lto"))
			opt->lto = false;
		else if (strncmp(word, "-mcpu=nv-dpa-", 13))
			list_add(&rest, word);
	}
	opt->device_options = rest;
}

/*
 * An archive under a name that nobody chose, for a target and an application that nobody named, is
 * found too late.
 */
static void check_output_named(const struct options *opt, struct argp_state *state)
{
	if (opt->output || opt->compile_only)
		return;
	if (opt->gen_libs)
		argp_error(state, "-gen-libs needs -o FOLDER/libNAME");
	else if (!opt->dryrun)
		argp_error(state, "-o FILE is missing%s%s",
			   opt->num_archs ? "" : "; so is -mcpu, which would be nv-dpa-bf3",
			   opt->app_name ? ""
					 : "; so is -app-name, which would be " DEFAULT_APP_NAME);
}

static void options_check_end(struct options *opt, struct argp_state *state)
{
	take_back(opt);
	if (!opt->inputs.n)
		argp_error(state, "no input file");
	if (opt->compile_only && opt->gen_libs)
		argp_error(state, "-c and -gen-libs exclude each other");
	if (opt->shared && (opt->compile_only || opt->gen_libs))
		argp_error(state, "-shared goes with neither -c nor -gen-libs");
	if (opt->compile_only && opt->output && opt->inputs.n > 1)
		argp_error(state, "-o names one file, and -c makes one for each of the %d inputs",
			   opt->inputs.n);
	if (opt->output && !*opt->output)
		argp_error(state, "-o needs a name");
	if (opt->keep_dir && !*opt->keep_dir)
		argp_error(state, "-keep-dir needs a name");
	check_output_named(opt, state);
	if (!opt->num_archs)
		add_archs(opt, "nv-dpa-bf3", state);
	if (!opt->app_name)
		opt->app_name = DEFAULT_APP_NAME;
	if (!opt->output && !opt->compile_only) /* a dry run writes nothing */
		opt->output = mem_printf("%s.a", opt->app_name);
}

static error_t options_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct options *opt = state->input;

	switch (key) {
	case 'h':
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		return 0;
	case KEY_COMPILER:
	case 'O':
	case 'W':
	case 'f':
	case 'g':
	case 'i':
	case 'm':
	case 's':
	case 'U':
	case 'x':
		argp_error(state, "%s: options of the device compiler go into -devicecc-options",
			   state->argv[state->next - 1]);
		return 0;
	case KEY_MCPU:
		add_archs(opt, arg, state);
		return 0;
	case KEY_APP_NAME:
		check_app_name(arg, state);
		opt->app_name = arg;
		return 0;
	case ARGP_KEY_END:
		options_check_end(opt, state);
		return 0;
	}
	if (!parse_simple(opt, key, arg))
		return 0;
	return parse_lists(opt, key, arg);
}

/* The value of an option that names files of options: NULL where word is none. */
static const char *options_file(const char *word, bool *next)
{
	static const char *const names[] = { "optf", "options-file" };

	*next = false;
	if (word[0] == '@' && word[1])
		return word + 1;
	if (word[0] != '-')
		return NULL;
	word += word[1] == '-' ? 2 : 1;
	for (int i = 0; i < 2; i++) {
		size_t len = strlen(names[i]);

		if (strncmp(word, names[i], len))
			continue;
		if (word[len] == '=')
			return word + len + 1;
		if (!word[len])
			*next = true;
	}
	return NULL;
}

static void options_expand(char **words, int n, int depth, struct list *out);

static void expand_files(const char *names, int depth, struct list *out)
{
	struct list files = { 0 };

	add_words(&files, names);
	for (int i = 0; i < files.n; i++) {
		struct list words = { 0 };
		const void *data;
		size_t size;

		if (depth >= MAX_NESTED_FILES) {
			say("%s: option files name each other", files.v[i]);
			exit(DPACC_USAGE);
		}
		data = file_read(files.v[i], &size);
		if (!data || !words_split(mem_dup(data, size), false, &words))
			exit(DPACC_USAGE);
		options_expand(words.v, words.n, depth + 1, out);
	}
}

/*
 * The command line with option files in their place, and --lNAME, which scripts write, as -lNAME.
 */
static void options_expand(char **words, int n, int depth, struct list *out)
{
	for (int i = 0; i < n; i++) {
		bool next;
		const char *file = options_file(words[i], &next);

		if (next && i + 1 < n)
			file = words[++i];
		if (file)
			expand_files(file, depth, out);
		else if (!strncmp(words[i], "--l", 3) && strncmp(words[i], "--library", 9))
			list_add(out, words[i] + 1);
		else
			list_add(out, words[i]);
	}
}

static void options_print_version(FILE *stream, struct argp_state *state)
{
	fprintf(stream, "dpacc: device compiler of Verbatim, version " DPACC_VERSION "\n");
}

/* argp, in libc, looks for it by name. */
extern void (*argp_program_version_hook)(FILE *stream, struct argp_state *state);

void options_parse(struct options *opt, int argc, char **argv)
{
	static const struct argp argp = {
		.options = table,
		.parser = options_parse_opt,
		.args_doc = "FILE...",
		.doc = "Compile device code and make a host archive of it.\v"
		       "FILE is a C source or an object of an earlier dpacc -c. Options take one or two dashes, "
		       "= or a space; lists have commas or spaces.\n\n"
		       "Example: dpacc device.c -o app.a -mcpu=nv-dpa-bf3 -app-name=app -hostcc=gcc",
	};
	struct list words = { 0 };

	opt->hostcc = "gcc";
	argp_program_version_hook = options_print_version;
	argp_err_exit_status = DPACC_USAGE;
	list_add(&words, argv[0]);
	options_expand(argv + 1, argc - 1, 0, &words);
	argp_parse(&argp, words.n, words.v, ARGP_LONG_ONLY, NULL, opt);
}
