/* SPDX-License-Identifier: MIT */
/* Cases of the registry: each is a process of its own, in namespaces of its own, and what it logged is read back. */
#pragma once

#include <sys/types.h>

#include "meet/registry.h"

enum { NO_NAMESPACES = 77, NO_ROOT = 78 };

extern char said[8192]; /* the log of the last case */
extern struct vb_registry registry;

/* Run it in a child with mounts of its own: its exit code, and what it said. */
int in_child(int (*body)(void));
/* One line, with this in it. */
void assert_said(const char *text);

int mount_shm(const char *options, unsigned long flags);
/* 0 or errno. */
int join(void);
/* Where the registry is. */
void find_directory(char *path, size_t len);
/* Processes in the registry. */
int members(void);
/* Directories of registries. */
int directories(void);

/* A process that joins and stays until a byte comes; its pid, or -1 where it could not join. */
pid_t start_member(int *until);
void end_member(pid_t pid, int until);

/* A process that has the file of the registry locked until it is killed, whether or not there was one; its pid, or -1. */
pid_t hold_lock(void);
