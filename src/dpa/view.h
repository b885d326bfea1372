/* SPDX-License-Identifier: MIT */
/*
 * A place in guest memory as the host's code sees it.
 *
 * Device code chooses most of the addresses that the host is asked to follow, and stacks, thread-local
 * storage and contexts of threads can be unmapped between a look at the table of pages and the
 * access. So there is no pointer: what vb_dpa_mem_host() gives cannot be followed, only handed to the
 * functions below, which copy under the protection of host/fault.h. A fault is -EFAULT and never a
 * signal of the program's.
 *
 * Two ways lead past it, both for memory that outlives its use: vb_view_lend(), for the card's queues
 * and keys, and the processor itself (cpu/), whose faults are the guest's traps.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/fault.h"

struct vb_dpa_view {
	uintptr_t host; /* for the functions here only; 0: none */
};

static inline bool vb_view_is_none(struct vb_dpa_view view)
{
	return !view.host;
}

/* So many bytes further on. */
static inline struct vb_dpa_view vb_view_at(struct vb_dpa_view view, uint64_t offset)
{
	return (struct vb_dpa_view){ view.host + offset };
}

/* 0, or -EFAULT with an unknown part of the bytes moved. */
static inline int vb_view_read(struct vb_dpa_view from, void *to, size_t len)
{
	return vb_fault_copy(to, (const void *)from.host, len);
}

static inline int vb_view_write(struct vb_dpa_view to, const void *from, size_t len)
{
	return vb_fault_copy((void *)to.host, from, len);
}

static inline int vb_view_copy(struct vb_dpa_view to, struct vb_dpa_view from, size_t len)
{
	return vb_fault_copy((void *)to.host, (const void *)from.host, len);
}

/* Whether all of it can be read at the moment: to tell which side of a failed copy was at fault. */
static inline bool vb_view_is_readable(struct vb_dpa_view view, size_t len)
{
	return vb_fault_readable((const void *)view.host, len);
}

/* A word of 1, 2, 4 or 8 bytes at a multiple of its size: acquire and release. */
static inline int vb_view_load(struct vb_dpa_view view, uint32_t size, uint64_t *value)
{
	return vb_fault_load((const void *)view.host, size, value);
}

static inline int vb_view_store(struct vb_dpa_view view, uint32_t size, uint64_t value)
{
	return vb_fault_store((void *)view.host, size, value);
}

/*
 * Its address, for the card: memory of a key, which the card touches through host/fault.h alone, or of
 * a queue, which stays mapped until the process ends (vb_process_queue_memory() sees to that).
 */
static inline void *vb_view_lend(struct vb_dpa_view view)
{
	return (void *)view.host;
}

/* A field of a struct that lies there; what cannot be read is 0, what cannot be written is not. */
#define VB_VIEW_FIELD(type, field) offsetof(type, field), sizeof(((type *)NULL)->field)

static inline uint64_t vb_view_get(struct vb_dpa_view view, size_t at, size_t size)
{
	uint64_t value;

	return vb_view_load(vb_view_at(view, at), (uint32_t)size, &value) ? 0 : value;
}

static inline void vb_view_put(struct vb_dpa_view view, size_t at, size_t size, uint64_t value)
{
	(void)vb_view_store(vb_view_at(view, at), (uint32_t)size, value);
}
