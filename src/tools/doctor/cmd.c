// SPDX-License-Identifier: MIT
/*
 * verbatim doctor: what this machine lets the card do. Owns the list of findings and how it is
 * printed.
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
#include "tools/doctor/doctor.h"
#include "tools/json.h"

enum { USAGE = 64, FINDINGS = 64, WIDTH = 100, INDENT = 32 };

struct finding {
	const char *group, *name, *remedy;
	char *text;
	enum verdict verdict;
};

struct arguments {
	bool json, quiet;
};

static const char *const verdict_names[] = { "ok", "falls back", "fails" };
static const char *const colours[] = { "\033[32m", "\033[33m", "\033[31m" };

static struct finding findings[FINDINGS];
static unsigned int count;
static const char *group;

void doctor_group(const char *name)
{
	group = name;
}

void doctor_say(enum verdict verdict, const char *name, const char *remedy, const char *text, ...)
{
	struct finding *f = &findings[count];
	va_list args;

	if (count == FINDINGS)
		abort(); /* more checks than the table has room for */
	*f = (struct finding){ group, name, remedy ? strdup(remedy) : NULL, NULL, verdict };
	va_start(args, text);
	if (vasprintf(&f->text, text, args) < 0 || (remedy && !f->remedy)) {
		fprintf(stderr, "verbatim doctor: %s\n", strerror(ENOMEM));
		exit(FAILS);
	}
	va_end(args);
	count++;
}

static unsigned int doctor_number_of(enum verdict verdict)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < count; i++)
		n += findings[i].verdict == verdict;
	return n;
}

static enum verdict worst(void)
{
	return doctor_number_of(FAILS) ? FAILS : doctor_number_of(FALLS_BACK) ? FALLS_BACK : WORKS;
}

/* Words in lines, from column INDENT on; the first line has begun. */
static void print_wrapped(const char *text)
{
	int column = INDENT;

	while (*text) {
		int len = (int)strcspn(text, " \n");

		if (column > INDENT && column + 1 + len > WIDTH) {
			printf("\n%*s", INDENT, "");
			column = INDENT;
		} else if (column > INDENT) {
			putchar(' ');
			column++;
		}
		printf("%.*s", len, text);
		column += len;
		text += len;
		text += strspn(text, " \n");
	}
	putchar('\n');
}

static void print_finding(const struct finding *f, bool colour)
{
	printf("  %s%-10s%s  %-16s  ", colour ? colours[f->verdict] : "", verdict_names[f->verdict],
	       colour ? "\033[0m" : "", f->name);
	print_wrapped(f->text);
	if (!f->remedy)
		return;
	printf("%*s", INDENT, "");
	print_wrapped(f->remedy);
}

static void doctor_print_text(bool quiet)
{
	bool colour = isatty(STDOUT_FILENO);
	const char *last = NULL;

	for (unsigned int i = 0; i < count; i++) {
		const struct finding *f = &findings[i];

		if (quiet && f->verdict == WORKS)
			continue;
		if (f->group != last)
			printf("%s%s\n", last ? "\n" : "", f->group);
		last = f->group;
		print_finding(f, colour);
	}
	if (last)
		printf("\n");
	if (worst() == WORKS)
		printf("All %u checks are fine.\n", count);
	else
		printf("%u checks: %u fine, %u fall back, %u fail.\n", count,
		       doctor_number_of(WORKS), doctor_number_of(FALLS_BACK),
		       doctor_number_of(FAILS));
}

static void doctor_print_json(void)
{
	static const char *const words[] = { "ok", "fallback", "fail" };

	printf("{\"version\": ");
	tools_json_string(stdout, VERBATIM_VERSION);
	printf(", \"verdict\": \"%s\", \"checks\": [\n", words[worst()]);
	for (unsigned int i = 0; i < count; i++) {
		const struct finding *f = &findings[i];

		printf("  {\"group\": ");
		tools_json_string(stdout, f->group);
		printf(", \"name\": ");
		tools_json_string(stdout, f->name);
		printf(", \"verdict\": \"%s\", \"text\": ", words[f->verdict]);
		tools_json_string(stdout, f->text);
		printf(", \"remedy\": ");
		if (f->remedy)
			tools_json_string(stdout, f->remedy);
		else
			printf("null");
		printf("}%s\n", i + 1 < count ? "," : "");
	}
	printf("]}\n");
}

static error_t doctor_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'j':
		args->json = true;
		return 0;
	case 'q':
		args->quiet = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int cmd_doctor(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "json", 'j', NULL, 0, "Print the findings as JSON", 0 },
		{ "quiet", 'q', NULL, 0, "Print only what falls back or fails", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = doctor_parse_opt,
		.doc = "Check this machine: what works, what falls back to a slower way, what does not work, and what to do."
		       "\vThe exit code is 0 where everything is fine, 1 where something falls back, 2 where something does "
		       "not work, 64 where the command line is wrong.",
	};
	struct arguments args = { 0 };

	argp_err_exit_status = USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &args);
	signal(SIGCHLD, SIG_DFL); /* who ignores it gets no exit codes */
	doctor_check_tree();
	doctor_check_cpu();
	doctor_check_kernel();
	doctor_check_limits();
	doctor_check_toolchain();
	if (args.json)
		doctor_print_json();
	else
		doctor_print_text(args.quiet);
	return (int)worst();
}
