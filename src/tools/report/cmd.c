// SPDX-License-Identifier: MIT
/*
 * verbatim report: one page of HTML from a timeline of `verbatim trace`.
 *
 * The page is share/verbatim/report.html of the installed tree; the trace takes the place of its
 * mark. In JSON the character '<' stands in strings only, where it can be written as an escape, so
 * that no text of the program can end the element that the trace is in.
 */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"

static const char who[] = "verbatim report", mark[] = "@TRACE@";

struct arguments {
	const char *input, *output;
};

static int report_complain(const char *path, int err)
{
	fprintf(stderr, "%s: %s: %s\n", who, path, strerror(err));
	return 1;
}

/* The whole file, ended by 0; NULL after a message. */
static char *report_read_page(const char *path, size_t *size)
{
	FILE *in = fopen(path, "re");
	char *text = NULL, *more;
	size_t room = 0, got;

	*size = 0;
	if (!in) {
		report_complain(path, errno);
		return NULL;
	}
	do {
		if (room - *size < 2) {
			room = room ? 2 * room : 1 << 20;
			more = realloc(text, room);
			if (!more) {
				report_complain(path, ENOMEM);
				goto fail;
			}
			text = more;
		}
		got = fread(text + *size, 1, room - *size - 1, in);
		*size += got;
	} while (got);
	if (ferror(in)) {
		report_complain(path, errno);
		goto fail;
	}
	fclose(in);
	text[*size] = 0;
	return text;

fail:
	free(text);
	fclose(in);
	return NULL;
}

static bool is_trace(const char *text, size_t size)
{
	return strlen(text) == size && text[strspn(text, " \t\r\n")] == '{' &&
	       strstr(text, "\"traceEvents\"");
}

static void write_escaped(FILE *out, const char *text)
{
	size_t plain;

	for (; *text; text += plain) {
		plain = strcspn(text, "<");
		fwrite(text, 1, plain, out);
		if (text[plain]) {
			fputs("\\u003c", out);
			plain++;
		}
	}
}

static int write_page(const char *output, const char *page, const char *trace)
{
	const char *at = strstr(page, mark);
	FILE *out = fopen(output, "we");

	if (!out)
		return report_complain(output, errno);
	fwrite(page, 1, (size_t)(at - page), out);
	write_escaped(out, trace);
	fputs(at + strlen(mark), out);
	if (ferror(out) | fclose(out))
		return report_complain(output, errno ? errno : EIO);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "%s: %s\n", who, output);
	return 0;
}

static int make_report(const struct arguments *args)
{
	char path[PATH_MAX], *page, *trace;
	size_t size;
	int ret = tools_path(path, "share/verbatim/report.html");

	if (ret) {
		tools_missing(who, path, -ret);
		return 1;
	}
	page = report_read_page(path, &size);
	trace = page ? report_read_page(args->input, &size) : NULL;
	if (!trace) {
		ret = 1;
	} else if (!is_trace(trace, size)) {
		fprintf(stderr, "%s: %s: no timeline; verbatim trace writes one\n", who,
			args->input);
		ret = 1;
	} else if (!strstr(page, mark)) {
		fprintf(stderr, "%s: %s: damaged; install Verbatim again\n", who, path);
		ret = 1;
	} else {
		ret = write_page(args->output, page, trace);
	}
	free(trace);
	free(page);
	return ret;
}

static error_t report_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'o':
		args->output = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (args->input)
			argp_error(state, "one trace at a time");
		args->input = arg;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which trace? verbatim trace writes one");
		return EINVAL;
	}
	return ARGP_ERR_UNKNOWN;
}

int cmd_report(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "output", 'o', "FILE", 0, "Write to FILE (default: report.html)", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = report_parse_opt,
		.args_doc = "TRACE",
		.doc = "Make a page of a timeline that verbatim trace recorded: one file of HTML, which needs no "
		       "network."
		       "\vExit code 1 where the trace cannot be read or the page not be written.\n\n"
		       "Example: verbatim report ping.json -o ping.html",
	};
	struct arguments args = { .output = "report.html" };

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	return make_report(&args);
}
