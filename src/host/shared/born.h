/* SPDX-License-Identifier: MIT */
/*
 * Memory of programs that is born shared: how libverbatim and the allocator of `verbatim run`
 * (src/memory) meet. The allocator is in front of libc's from the start, and waits; the first card
 * that a process opens lets it begin.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/file.h"

/* What the allocator asks of libverbatim: host/shared/shared.h has the meaning of each. */
struct vb_born_hooks {
	uint64_t limit; /* so many bytes may be in use; 0: an eighth of the machine's memory */
	bool all;       /* large blocks of malloc(), too, not only those at page boundaries */
	int (*memfd)(const char *name, uint64_t bytes);
	int (*add)(void *base, size_t len, const struct vb_file *file, off_t offset);
	void (*remove)(void *base, size_t len);
};

/* The allocator's name for dlsym(): 0, or -errno with a word about what forbids it. */
#define VB_BORN_START "verbatim_memory_start"
typedef int vb_born_start_function(const struct vb_born_hooks *hooks, const char **why);

/* A card was opened: from now on, where that is wanted and possible. Says in the log what was decided. */
void vb_born_start(void);
