// SPDX-License-Identifier: MIT
/*
 * dpa-app-attributes2blob YAML BLOB: packs the attributes of an application for dpacc
 * -dpa-proc-attr. The card knows no such attributes: the text is carried along with the device
 * program, unread.
 */
#include "dpacc.h"

#include <argp.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ATTRIBUTES = 1 << 20 };

void say(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "dpa-app-attributes2blob: ");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static error_t dpacc_attributes_parse_opt(int key, char *arg, struct argp_state *state)
{
	const char **files = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		if (state->arg_num >= 2)
			return ARGP_ERR_UNKNOWN;
		files[state->arg_num] = arg;
		return 0;
	case ARGP_KEY_END:
		if (state->arg_num < 2)
			argp_error(state, "which files?");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static bool dpacc_attributes_write_text(int fd, const void *data, size_t size)
{
	FILE *f = fdopen(fd, "w");
	bool good;

	if (!f) {
		close(fd);
		return false;
	}
	good = fwrite(ATTRIBUTES_MAGIC, strlen(ATTRIBUTES_MAGIC), 1, f) == 1 &&
	       fwrite(data, size, 1, f) == 1;
	return !fclose(f) && good;
}

/*
 * Written beside its place and renamed, so that it is whole or not there; a pipe or a device is
 * written to.
 */
static int write_blob(const char *path, const void *data, size_t size)
{
	const char *name = NULL, *place;
	int fd = file_is_special(path) ? open(path, O_WRONLY | O_CLOEXEC)
				       : file_beside(path, &name, &place);

	if (fd >= 0 && dpacc_attributes_write_text(fd, data, size) &&
	    (!name || !rename(name, place)))
		return 0;
	say("%s: %m", path);
	if (name)
		unlink(name);
	return DPACC_FAILED;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = dpacc_attributes_parse_opt,
		.args_doc = "YAML BLOB",
		.doc = "Pack the attributes of an application for dpacc -dpa-proc-attr.",
	};
	const char *files[2];
	const char *text;
	size_t size;

	argp_err_exit_status = DPACC_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, files);
	text = file_read(files[0], &size);
	if (!text)
		return DPACC_FAILED;
	if (!size || size > MAX_ATTRIBUTES || memchr(text, 0, size)) {
		say("%s: no text, or more than %d bytes", files[0], MAX_ATTRIBUTES);
		return DPACC_FAILED;
	}
	if (same_file(files[0], files[1])) {
		say("%s: the output is the input", files[1]);
		return DPACC_FAILED;
	}
	return write_blob(files[1], text, size);
}
