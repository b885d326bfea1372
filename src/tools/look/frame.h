/* SPDX-License-Identifier: MIT */
/* What `verbatim top` shows, as lines: the difference of two looks. */
#pragma once

#include "tools/look/look.h"

enum frame_style { FRAME_PLAIN, FRAME_TITLE, FRAME_HEAD, FRAME_BAD };

struct frame_line {
	enum frame_style style;
	char text[256];
};

enum frame_list { FRAME_QPS, FRAME_THREADS, FRAME_LISTS };

struct frame_options {
	enum frame_list list;
	unsigned int column; /* that the list is sorted by */
	bool reversed;
	const char *adapter; /* NULL: all */
};

struct frame {
	struct frame_line *line;
	size_t count, room;
	size_t head;          /* lines that stay when the list is scrolled */
	unsigned int columns; /* of the list */
};

/* before may be NULL: then all rates are 0. */
void frame_make(struct frame *frame, const struct look *before, const struct look *now,
		const struct frame_options *options);
void frame_free(struct frame *frame);
