/* SPDX-License-Identifier: MIT */
/*
 * From a path that the program names to the file in the tree, and back. Everything here is allowed
 * in signal handlers and leaves errno alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/*
 * No path of the tree is that long. It is on the stack of every function of ours, also on a small
 * one of a handler.
 */
enum { REDIRECT_MAX = 512 };

struct redirect {
	bool ours;        /* a row covers the path */
	const char *path; /* what to give to libc */
	const char *name; /* ours: what the program calls it, absolute */
	char text[REDIRECT_MAX];
};

/* path as openat(dir, path) would understand it. */
void redirect(struct redirect *to, int dir, const char *path);
/* A path of the tree, as the program knows it: changed in place. NULL stays NULL. */
char *redirect_back(char *path);
/*
 * Whether the process has looked at a directory of nodes, or at one: what it reads may be such a
 * directory.
 */
bool redirect_nodes_seen(void);
/* Whether a file is called as nodes are. */
bool redirect_is_node_name(const char *name);
/* Whether a file system is that of the tree. */
bool redirect_is_tree(dev_t dev);
