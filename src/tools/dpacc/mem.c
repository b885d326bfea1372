// SPDX-License-Identifier: MIT
/*
 * Memory that lives until the end of the command, and texts and lists of strings made of it. Blocks
 * are chained and given back at exit.
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

static __attribute__((__noreturn__)) void out_of_memory(void)
{
	say("out of memory");
	exit(DPACC_FAILED);
}

void *mem_alloc(size_t size)
{
	struct block *block = calloc(1, sizeof(*block) + size);

	if (!block)
		out_of_memory();
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

char *mem_vprintf(const char *format, va_list ap)
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
	text = mem_vprintf(format, ap);
	va_end(ap);
	return text;
}

FILE *text_open(struct text *text)
{
	text->out = open_memstream(&text->data, &text->size);
	if (!text->out)
		out_of_memory();
	return text->out;
}

char *text_close(struct text *text)
{
	char *copy;

	if (fclose(text->out))
		out_of_memory();
	copy = mem_dup(text->data, text->size);
	free(text->data);
	return copy;
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
	list_add(list, mem_vprintf(format, ap));
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
