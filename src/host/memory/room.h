/* SPDX-License-Identifier: MIT */
/* How much memory the system would still give, as it says itself. */
#pragma once

#include <stddef.h>

/* Bytes that this process can still get; SIZE_MAX: nobody knows. */
size_t room_left(void);
/*
 * The same of the control groups alone: root is where they are mounted, groups what /proc/self/cgroup
 * says. swap: bytes that the machine could swap.
 */
size_t room_in_groups(const char *root, const char *groups, size_t swap);
