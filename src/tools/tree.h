/* SPDX-License-Identifier: MIT */
/*
 * A private directory of small files, links and device nodes, made from a description.
 *
 * The description comes first, as a text of records; the directory is named after it, so that runs
 * that describe the same share one. No process of ours is left that could remove it when the last
 * program is gone: `verbatim run` becomes the program. So the next run removes trees that no process
 * uses any more.
 */
#pragma once

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

struct tree_text {
	FILE *out;
	char *text; /* records: kind, path, NUL, content, NUL */
	size_t len;
	char dir[PATH_MAX / 4]; /* where the next files go */
};

/* 0 or -errno. */
int tree_begin(struct tree_text *text);
/* From here on files go into this directory, which begins with a slash. */
void tree_dir(struct tree_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void tree_file(struct tree_text *text, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void tree_link(struct tree_text *text, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void tree_node(struct tree_text *text, const char *name, dev_t number);
/* Names of trees begin so. */
#define TREE_NAME "verbatim-files-"

/* Make the tree, or find it made: its path. 0 or -errno. The text is freed either way. */
int tree_end(struct tree_text *text, char path[PATH_MAX]);

/* tree_old.c */
void tree_remove(const char *path);
/* Trees of this user that are in use no more, but for this one. */
void tree_remove_old(const char *keep);
