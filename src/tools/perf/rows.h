/* SPDX-License-Identifier: MIT */
/* Texts that were counted. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct row {
	char *text;
	uint64_t count;
};

struct rows {
	struct row *list;
	size_t n, room;
};

/* So many of this text more; ends the program where there is no memory. */
void rows_add(struct rows *rows, const char *text, uint64_t count);
/* Each text once, the most frequent first, then by text. */
void rows_merge(struct rows *rows);
/* Of merged rows; 0: it is not among them. */
uint64_t rows_find(const struct rows *rows, const char *text);
void rows_free(struct rows *rows);
