// SPDX-License-Identifier: MIT
/*
 * Memory that lives until the end of the command, and lists of strings made of it. Blocks are chained and given back
 * at exit.
 */
#include "dpacc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
	struct block *next;
	max_align_t data[];
};

static struct block *blocks;

static void free_all(void)
{
	while (blocks) {
		struct block *next = blocks->next;

		free(blocks);
		blocks = next;
	}
}

void *mem_alloc(size_t size)
{
	struct block *block = calloc(1, sizeof(*block) + size);

	if (!block) {
		fprintf(stderr, "dpacc: out of memory\n");
		exit(DPACC_FAILED);
	}
	if (!blocks)
		atexit(free_all);
	block->next = blocks;
	blocks = block;
	return block->data;
}

char *mem_dup(const char *text, size_t len)
{
	return memcpy(mem_alloc(len + 1), text, len);
}

static char *format_text(const char *format, va_list ap)
{
	va_list again;
	char *text;
	int len;

	va_copy(again, ap);
	len = vsnprintf(NULL, 0, format, again);
	va_end(again);
	text = mem_alloc((size_t)len + 1);
	vsnprintf(text, (size_t)len + 1, format, ap);
	return text;
}

char *mem_printf(const char *format, ...)
{
	va_list ap;
	char *text;

	va_start(ap, format);
	text = format_text(format, ap);
	va_end(ap);
	return text;
}

void list_add(struct list *list, const char *text)
{
	if (list->n + 1 >= list->room) {
		char **v;

		list->room = list->room ? 2 * list->room : 16;
		v = mem_alloc((size_t)list->room * sizeof(*v));
		if (list->n)
			memcpy(v, list->v, (size_t)list->n * sizeof(*v));
		list->v = v;
	}
	list->v[list->n++] = (char *)text;
	list->v[list->n] = NULL;
}

void list_addf(struct list *list, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	list_add(list, format_text(format, ap));
	va_end(ap);
}

void list_append(struct list *to, const struct list *from)
{
	for (int i = 0; i < from->n; i++)
		list_add(to, from->v[i]);
}

void list_addv(struct list *list, ...)
{
	const char *text;
	va_list ap;

	va_start(ap, list);
	while ((text = va_arg(ap, const char *)))
		list_add(list, text);
	va_end(ap);
}
