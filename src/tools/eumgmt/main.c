// SPDX-License-Identifier: MIT
/*
 * dpaeumgmt: manages the execution units (EUs) of an accelerator, with the vendor's subcommands and
 * options. Finds the subcommand, locks the registry for it, and prints what --json wants.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/eumgmt/eumgmt.h"

static const struct subcommand {
	const char *command, *name, *summary;
	unsigned int needs, one_of, may; /* enum option_bit */
	bool changes;
	int (*run)(struct work *work);
} subcommands[] = {
	{ "eu_group", "info", "limits of EU groups", OPT_DEVICE, 0, 0, false, group_info },
	{ "eu_group", "create", "make a group of EUs", OPT_DEVICE | OPT_NAME_GROUP | OPT_RANGE, 0,
	  0, true, group_create },
	{ "eu_group", "query", "print all groups, or one", OPT_DEVICE, 0,
	  OPT_ID_GROUP | OPT_NAME_GROUP, false, group_query },
	{ "eu_group", "destroy", "remove a group", OPT_DEVICE, OPT_ID_GROUP | OPT_NAME_GROUP, 0,
	  true, group_destroy },
	{ "eu_group", "apply", "replace all groups by those of a file", OPT_DEVICE | OPT_FILE, 0, 0,
	  true, group_apply },
	{ "partition", "info", "limits of EU partitions", OPT_DEVICE, 0, 0, false, partition_info },
	{ "partition", "create", "give EUs to other VHCAs",
	  OPT_DEVICE | OPT_VHCAS | OPT_RANGE | OPT_MAX_GROUPS, 0, 0, true, partition_create },
	{ "partition", "query", "print all partitions, or one", OPT_DEVICE, 0, OPT_ID_PARTITION,
	  false, partition_query },
	{ "partition", "destroy", "take the EUs of a partition back", OPT_DEVICE | OPT_ID_PARTITION,
	  0, 0, true, partition_destroy },
	{ "info", "chip", "what the accelerator is", OPT_DEVICE, 0, 0, false, info_chip },
	{ "info", "status", "what is on it now", OPT_DEVICE, 0, 0, false, info_status },
	{ "info", "vhca", "the numbers of the adapters", OPT_DEVICE, 0, 0, false, info_vhca },
};

enum {
	NUM_SUBCOMMANDS = sizeof(subcommands) / sizeof(subcommands[0]),
	KEY_JSON = 256,
	OUTPUT_MAX = 1 << 20, /* more than a subcommand prints */
};

static const struct argp_option options[] = {
	{ "dpa_device", 'd', "DEVICE", 0, "The adapter, such as mlx5_0", 0 },
	{ "range_eus", 'r', "EUS", 0, "Execution units, such as 0-7,12", 0 },
	{ "id_group", 'g', "ID", 0, "A group by its number", 0 },
	{ "name_group", 'n', "NAME", 0, "A group by its name, at most 15 characters", 0 },
	{ "file_groups", 'f', "FILE", 0, "Groups as JSON; - is standard input", 0 },
	{ "id_partition", 'p', "ID", 0, "A partition by its number", 0 },
	{ "vhca_list", 'v', "VHCAS", 0, "Adapters by number, such as 1,3", 0 },
	{ "max_num_eu_group", 'm', "NUMBER", 0, "Groups that a partition reserves", 0 },
	{ "json", KEY_JSON, NULL, 0, "Print JSON", 0 },
	{ NULL, 'h', NULL, 0, "Print this help", -1 },
	{ "version", 'V', NULL, 0, "Print the version", -1 },
	{ 0 },
};

static const struct {
	int key;
	enum option_bit bit;
} option_bits[] = {
	{ 'd', OPT_DEVICE },     { 'r', OPT_RANGE },      { 'g', OPT_ID_GROUP },
	{ 'n', OPT_NAME_GROUP }, { 'f', OPT_FILE },       { 'p', OPT_ID_PARTITION },
	{ 'v', OPT_VHCAS },      { 'm', OPT_MAX_GROUPS },
};

enum { NUM_BITS = sizeof(option_bits) / sizeof(option_bits[0]) };

int refuse(const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "dpaeumgmt: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\n");
	return 1;
}

/* ---- the command line ---- */

static unsigned int eumgmt_parse_number(struct argp_state *state, const char *text,
					const char *what)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9' || value > 65535)
		argp_error(state, "'%s' is not %s", text, what);
	return (unsigned int)value;
}

static void eumgmt_print_version(void)
{
	printf("dpaeumgmt (Verbatim) " VERBATIM_VERSION "\n");
	exit(0);
}

static error_t parse_word(char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	if (!args->command && !strcmp(arg, "help"))
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
	if (!args->command && !strcmp(arg, "version"))
		eumgmt_print_version();
	if (!args->command)
		args->command = arg;
	else if (!args->subcommand)
		args->subcommand = arg;
	else
		argp_error(state, "'%s' is one word too many", arg);
	return 0;
}

static error_t parse_value(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'd':
		args->device = arg;
		return 0;
	case 'r':
		args->range = arg;
		return 0;
	case 'g':
		args->id_group = eumgmt_parse_number(state, arg, "the number of a group");
		return 0;
	case 'n':
		args->name = arg;
		return 0;
	case 'f':
		args->file = arg;
		return 0;
	case 'p':
		args->id_partition = eumgmt_parse_number(state, arg, "the number of a partition");
		return 0;
	case 'v':
		args->vhcas = arg;
		return 0;
	case 'm':
		args->max_groups = eumgmt_parse_number(state, arg, "a number of groups");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static error_t eumgmt_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	for (unsigned int i = 0; i < NUM_BITS; i++) {
		if (option_bits[i].key != key)
			continue;
		if (args->given & option_bits[i].bit)
			argp_error(state, "-%c is given twice", key);
		args->given |= option_bits[i].bit;
		return parse_value(key, arg, state);
	}
	switch (key) {
	case KEY_JSON:
		args->json = true;
		return 0;
	case 'h':
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		return 0;
	case 'V':
		eumgmt_print_version();
		return 0;
	case ARGP_KEY_ARG:
		return parse_word(arg, state);
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "what is to be done?");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static char *eumgmt_help_filter(int key, const char *text, void *input)
{
	char *list = NULL;
	size_t size;
	FILE *f;

	if (key != ARGP_KEY_HELP_POST_DOC)
		return (char *)text;
	f = open_memstream(&list, &size);
	if (!f)
		return (char *)text;
	fprintf(f, "Subcommands:\n");
	for (unsigned int i = 0; i < NUM_SUBCOMMANDS; i++)
		fprintf(f, "  %-9s %-8s %s\n", subcommands[i].command, subcommands[i].name,
			subcommands[i].summary);
	fprintf(f, "\nman dpaeumgmt tells more.");
	fclose(f);
	return list;
}

static int usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int usage(const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "dpaeumgmt: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\nTry 'dpaeumgmt --help'.\n");
	return CMD_USAGE;
}

/* The long name of an option. */
static const char *option_name(unsigned int bit)
{
	for (unsigned int i = 0; i < NUM_BITS; i++)
		for (const struct argp_option *o = options; o->name; o++)
			if (option_bits[i].bit == bit && o->key == option_bits[i].key)
				return o->name;
	return "?";
}

/* 0, or the exit code after a message. */
static int check_options(const struct subcommand *s, const struct arguments *args)
{
	for (unsigned int bit = 1; bit <= OPT_MAX_GROUPS; bit <<= 1) {
		if (s->needs & bit && !(args->given & bit))
			return usage("%s %s needs --%s", s->command, s->name, option_name(bit));
		if (args->given & bit && !((s->needs | s->one_of | s->may) & bit))
			return usage("%s %s has no use for --%s", s->command, s->name,
				     option_name(bit));
	}
	if (s->one_of && !(args->given & s->one_of))
		return usage("%s %s needs --id_group or --name_group", s->command, s->name);
	if ((args->given & (OPT_ID_GROUP | OPT_NAME_GROUP)) == (OPT_ID_GROUP | OPT_NAME_GROUP))
		return usage("--id_group and --name_group name one group each; give one of them");
	return 0;
}

static const struct subcommand *find_subcommand(const struct arguments *args, int *code)
{
	bool known = false;

	for (unsigned int i = 0; i < NUM_SUBCOMMANDS; i++) {
		if (strcmp(subcommands[i].command, args->command))
			continue;
		known = true;
		if (args->subcommand && !strcmp(subcommands[i].name, args->subcommand)) {
			*code = check_options(&subcommands[i], args);
			return &subcommands[i];
		}
	}
	if (!known)
		*code = usage("unknown command '%s'", args->command);
	else if (args->subcommand)
		*code = usage("%s has no subcommand '%s'", args->command, args->subcommand);
	else
		*code = usage("%s: which subcommand?", args->command);
	return NULL;
}

/* ---- the work ---- */

int save(struct work *work)
{
	return vb_eus_write(&work->registry, work->eus) ? 1 : 0;
}

struct vb_eu_view view_of(const struct work *work)
{
	struct vb_eu_view view;

	vb_eus_view(work->eus, work->adapter->name, work->count, &view);
	return view;
}

/* Who uses an adapter must be known before anything is changed. */
static unsigned int known_users(int users)
{
	if (users < 0)
		exit(1); /* after a log line */
	return (unsigned int)users;
}

pid_t group_user(const struct work *work, unsigned int id)
{
	pid_t one = 0;

	return known_users(vb_eus_group_users(&work->registry, work->adapter->name, id, &one)) ? one
											       : 0;
}

unsigned int processes_on(const struct work *work, const char *card, pid_t *one)
{
	return known_users(vb_eus_processes(&work->registry, card, one));
}

cJSON *eus_json(const struct vb_eu_set *set)
{
	unsigned int list[VB_CONFIG_MAX_EUS], n = vb_eu_set_list(set, list);
	cJSON *array = cJSON_CreateArray();

	for (unsigned int i = 0; i < n; i++)
		cJSON_AddItemToArray(array, cJSON_CreateNumber(list[i]));
	return array;
}

char *eus_text(const struct vb_eu_set *set)
{
	char *text = vb_eu_set_text(set, false);

	if (!text) {
		refuse("no memory");
		exit(1);
	}
	return text;
}

static const struct vb_config_adapter *eumgmt_find_adapter(const struct vb_config *config,
							   const char *name)
{
	for (unsigned int i = 0; i < config->num_adapters; i++) {
		const struct vb_config_adapter *a = &config->adapter[i];

		if (strcmp(a->name, name))
			continue;
		if (a->format == VB_FORMAT_MLX5)
			return a;
		refuse("%s has no accelerator; adapters of the format mlx5 have one", name);
		return NULL;
	}
	refuse("there is no adapter '%s'; `verbatim devices` lists them", name);
	return NULL;
}

static int eumgmt_print_json(const struct work *work)
{
	char *text = cJSON_Print(work->out);

	if (!text)
		return refuse("no memory");
	printf("%s\n", text);
	cJSON_free(text);
	return 0;
}

static int eumgmt_run(const struct subcommand *s, const struct arguments *args)
{
	struct work work = { .args = args,
			     .config = vb_config_get(),
			     .registry = VB_REGISTRY_INIT };
	sigset_t before;
	int code;

	if (!work.config)
		return 1; /* after a log line */
	work.adapter = eumgmt_find_adapter(work.config, args->device);
	if (!work.adapter)
		return 1;
	work.count = work.adapter->dpa_eus ? work.adapter->dpa_eus : VB_EUS_DEFAULT;
	if (args->given & OPT_FILE) {
		work.text = group_file(args->file, &work.text_len);
		if (!work.text)
			return 1;
	}
	if (vb_registry_visit(&work.registry, s->changes, &before)) {
		free(work.text);
		return 1;
	}
	work.out = cJSON_CreateObject();
	code = !work.out ? refuse("no memory") : vb_eus_read(&work.registry, &work.eus) ? 1 : 0;
	if (!code)
		code = s->run(&work);
	vb_registry_quit(&work.registry, &before);
	if (!code && args->json)
		code = eumgmt_print_json(&work);
	cJSON_Delete(work.out);
	vb_eus_free(work.eus);
	free(work.text);
	return code;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = eumgmt_parse_opt,
		.args_doc = "COMMAND SUBCOMMAND",
		.doc = "Manage the execution units of a card's accelerator.\v ",
		.help_filter = eumgmt_help_filter,
	};
	struct arguments args = { 0 };
	const struct subcommand *s;
	int code = 0;

	tools_guard_stdio();
	/* Programs that join wait while the registry is locked: not for a reader of what is printed. */
	setvbuf(stdout, NULL, _IOFBF, OUTPUT_MAX);
	setvbuf(stderr, NULL, _IOFBF, OUTPUT_MAX);
	argp_err_exit_status = CMD_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &args);
	s = find_subcommand(&args, &code);
	return code || !s ? code : eumgmt_run(s, &args);
}
