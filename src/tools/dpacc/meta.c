// SPDX-License-Identifier: MIT
/*
 * Annotated functions as text, one line each, in the section .dpa_meta of device objects and
 * programs:
 *
 *   name rpc|global static|extern types line file
 *
 * The text decides what C is generated, so a line that dpacc would not have written is refused.
 */
#include "dpacc.h"

#include <stdlib.h>
#include <string.h>

struct function *functions_add(struct functions *list)
{
	if (list->n == list->room) {
		struct function *v;

		list->room = list->room ? 2 * list->room : 16;
		v = mem_alloc((size_t)list->room * sizeof(*v));
		if (list->n)
			memcpy(v, list->v, (size_t)list->n * sizeof(*v));
		list->v = v;
	}
	memset(&list->v[list->n], 0, sizeof(*list->v));
	return &list->v[list->n++];
}

const char *function_symbol(const struct function *f)
{
	return f->is_static ? mem_printf("__dpa_static_%s", f->name) : f->name;
}

char *meta_format(const struct functions *list)
{
	struct text text;
	FILE *out = text_open(&text);

	for (int i = 0; i < list->n; i++) {
		const struct function *f = &list->v[i];

		fprintf(out, "%s %s %s %s %u %s\n", f->name, f->rpc ? "rpc" : "global",
			f->is_static ? "static" : "extern", f->types, f->line, f->file);
	}
	return text_close(&text);
}

static bool valid(const struct function *f, const char *kind, const char *linkage)
{
	return is_identifier(f->name) &&
	       strlen(f->name) <= DPACC_MAX_NAME - strlen("__dpa_unpack_") &&
	       (!strcmp(kind, "rpc") || !strcmp(kind, "global")) &&
	       (!strcmp(linkage, "static") || !strcmp(linkage, "extern")) && types_valid(f->types);
}

static int parse_line(char *line, struct functions *out)
{
	char *words[5], *end;
	struct function *f;

	for (int i = 0; i < 5; i++) {
		words[i] = line;
		line = strchr(line, ' ');
		if (!line)
			return -1;
		*line++ = '\0';
	}
	f = functions_add(out);
	f->name = words[0];
	f->rpc = !strcmp(words[1], "rpc");
	f->is_static = !strcmp(words[2], "static");
	f->types = words[3];
	f->line = (unsigned int)strtoul(words[4], &end, 10);
	f->file = line;
	return !*end && valid(f, words[1], words[2]) ? 0 : -1;
}

/* head.h and sub/../head.h; of files that are gone the names decide. */
static bool same_path(const char *a, const char *b)
{
	return !strcmp(a, b) || same_file(a, b);
}

/* The same function from a header that several sources include is one. */
static bool same(const struct function *a, const struct function *b)
{
	return a->line == b->line && !strcmp(a->types, b->types) && same_path(a->file, b->file);
}

static int by_name(const void *a, const void *b)
{
	const struct function *fa = a, *fb = b;
	int order = strcmp(fa->name, fb->name);

	return order ? order : strcmp(fa->file, fb->file);
}

int functions_check_clash(const struct functions *list)
{
	struct function *sorted = mem_alloc((size_t)list->n * sizeof(*sorted) + 1);
	int clashes = 0;

	if (list->n)
		memcpy(sorted, list->v, (size_t)list->n * sizeof(*sorted));
	qsort(sorted, (size_t)list->n, sizeof(*sorted), by_name);
	for (int i = 1; i < list->n; i++) {
		const struct function *a = &sorted[i - 1], *b = &sorted[i];

		if (strcmp(a->name, b->name) || same(a, b))
			continue;
		fprintf(stderr,
			"%s:%u: error: function '%s' called from the host is also defined in %s:%u\n",
			b->file, b->line, b->name, a->file, a->line);
		clashes++;
	}
	return clashes ? -1 : 0;
}

int meta_parse(const char *text, size_t size, const char *where, struct functions *out)
{
	char *line, *rest = mem_dup(text, size);
	struct functions all = { 0 };
	bool damaged = memchr(text, 0, size) != NULL;

	while (!damaged && (line = strsep(&rest, "\n")))
		damaged = *line && parse_line(line, &all);
	if (damaged) {
		say("%s: the list of its functions is damaged", where);
		return -1;
	}
	if (functions_check_clash(&all))
		return -1;
	for (int i = 0; i < all.n; i++) {
		int j;

		for (j = 0; j < out->n && strcmp(out->v[j].name, all.v[i].name); j++)
			;
		if (j == out->n)
			*functions_add(out) = all.v[i];
	}
	return 0;
}
