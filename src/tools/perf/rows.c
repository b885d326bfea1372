// SPDX-License-Identifier: MIT
/* Owns what rows.h promises. */
#include "tools/perf/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *memory)
{
	if (memory)
		return memory;
	fprintf(stderr, "verbatim perf: no memory\n");
	exit(125);
}

void rows_add(struct rows *rows, const char *text, uint64_t count)
{
	if (rows->n == rows->room) {
		rows->room = rows->room ? 2 * rows->room : 64;
		rows->list = need(realloc(rows->list, rows->room * sizeof(*rows->list)));
	}
	rows->list[rows->n++] = (struct row){ need(strdup(text)), count };
}

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct row *)a)->text, ((const struct row *)b)->text);
}

static int by_count(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->count > y->count ? -1 : x->count < y->count ? 1 : strcmp(x->text, y->text);
}

void rows_merge(struct rows *rows)
{
	size_t n = 0;

	if (!rows->n)
		return;
	qsort(rows->list, rows->n, sizeof(*rows->list), by_text);
	for (size_t i = 1; i < rows->n; i++) {
		if (!strcmp(rows->list[n].text, rows->list[i].text)) {
			rows->list[n].count += rows->list[i].count;
			free(rows->list[i].text);
		} else {
			rows->list[++n] = rows->list[i];
		}
	}
	rows->n = n + 1;
	qsort(rows->list, rows->n, sizeof(*rows->list), by_count);
}

uint64_t rows_find(const struct rows *rows, const char *text)
{
	for (size_t i = 0; i < rows->n; i++)
		if (!strcmp(rows->list[i].text, text))
			return rows->list[i].count;
	return 0;
}

void rows_free(struct rows *rows)
{
	for (size_t i = 0; i < rows->n; i++)
		free(rows->list[i].text);
	free(rows->list);
	*rows = (struct rows){ 0 };
}
