/* SPDX-License-Identifier: MIT */
/*
 * What a process shows to the tools of its user. layout.h has the file itself; this header and
 * dpa.h are how others write and read it.
 *
 * To show something new: a number in enum vb_monitor_kind, a struct in layout.h that begins with
 * struct vb_monitor_seq and has a multiple of 64 bytes, a row in page.c, then vb_monitor_add() by the
 * owner and vb_monitor_each() with vb_monitor_read() by the tool.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/public.h"
#include "control/show/layout.h"

/* ---- the owner: entries of this process ---- */

struct vb_monitor_page;
struct vb_registry; /* meet/registry.h */
struct vb_slot_info;

/* An entry of this process's file. All zero: none; the functions below do nothing with it then. */
struct vb_monitor_place {
	struct vb_monitor_page *page;
	enum vb_monitor_kind kind;
	uint32_t index;
	void *entry;
};

/*
 * An entry, zeroed but for its sequence number; nobody sees it before vb_monitor_show(). The file is
 * made by the first one. 0, or -errno, after a log line where that is worth one: what cannot be shown
 * works all the same, so callers go on. Not for the data path.
 */
VB_PUBLIC int vb_monitor_add(enum vb_monitor_kind kind, struct vb_monitor_place *place);
VB_PUBLIC void vb_monitor_show(struct vb_monitor_place *place);
/* Nobody sees it any more: before memory that it points to is given back. */
VB_PUBLIC void vb_monitor_hide(struct vb_monitor_place *place);
/* Nobody writes to it any more. Leaves *place empty. */
VB_PUBLIC void vb_monitor_remove(struct vb_monitor_place *place);
/* More of the file, zeroed, for what an entry points to. NULL: no room. And its way back. */
VB_PUBLIC void *vb_monitor_alloc(struct vb_monitor_place *place, size_t bytes, uint64_t *offset);
VB_PUBLIC void vb_monitor_give(struct vb_monitor_place *place, void *at, size_t bytes,
			       uint64_t offset);
/* The words in which others ask for something; of the file of this entry. */
VB_PUBLIC struct vb_monitor_requests *vb_monitor_requests(const struct vb_monitor_place *place);
/* The slot of the process, which makes its ids unique. */
VB_PUBLIC uint32_t vb_monitor_slot(const struct vb_monitor_place *place);

/*
 * Around changes of what is shown already, by one thread at a time. Fields in between are written
 * with atomic stores, relaxed, where readers of this process's own memory exist; others see whole
 * copies in any case.
 */
static inline void vb_monitor_write_begin(struct vb_monitor_seq *seq)
{
	uint32_t number = atomic_load_explicit(&seq->number, memory_order_relaxed);

	atomic_store_explicit(&seq->number, number | 1, memory_order_relaxed);
	/* The odd number is seen before anything that follows: pairs with the second fence of a copy. */
	atomic_thread_fence(memory_order_release);
}

static inline void vb_monitor_write_end(struct vb_monitor_seq *seq)
{
	uint32_t number = atomic_load_explicit(&seq->number, memory_order_relaxed);

	/* Pairs with the first fence of a copy. */
	atomic_store_explicit(&seq->number, (number | 1) + 1, memory_order_release);
}

/*
 * From the fabric: a host of this process is in the registry now, or leaves it. What is shown is the process's:
 * beside the slot of the host that came first, until that one leaves.
 */
void vb_monitor_start(struct vb_registry *registry, const struct vb_slot_info *self);
void vb_monitor_stop(const struct vb_registry *registry);

/* ---- readers: files of all processes of the user ---- */

/* One process's file, mapped. Nothing in it is trusted. */
struct vb_monitor_view;

/*
 * Visit the processes that show something, without joining the registry; a result other than 0 ends
 * it and is returned. 0, or -errno. A process that ends meanwhile can be read to the end.
 */
VB_PUBLIC int vb_monitor_each(int (*visit)(struct vb_monitor_view *view, void *arg), void *arg);
VB_PUBLIC int32_t vb_monitor_pid(const struct vb_monitor_view *view);
VB_PUBLIC uint32_t vb_monitor_view_slot(const struct vb_monitor_view *view);
/* How many entries of a kind a process shows at most. */
uint32_t vb_monitor_most(enum vb_monitor_kind kind);
/* How many entries of a kind there may be: a bound for the index. */
VB_PUBLIC uint32_t vb_monitor_count(struct vb_monitor_view *view, enum vb_monitor_kind kind);
/*
 * Copy a part of an entry, `size` bytes from `offset`, which begins with a sequence number: offset 0
 * for the entry itself. What the owner does not know is zero. 0; -ENOENT: free, or not there;
 * -EFAULT: the file is damaged; -EAGAIN: it changed too often.
 */
VB_PUBLIC int vb_monitor_read(struct vb_monitor_view *view, enum vb_monitor_kind kind,
			      uint32_t index, size_t offset, void *to, size_t size);
/* The same for memory that an entry points to; never -ENOENT. */
VB_PUBLIC int vb_monitor_read_at(struct vb_monitor_view *view, uint64_t offset, void *to,
				 size_t size);
/* The same for words that have no sequence number, each by itself. */
VB_PUBLIC int vb_monitor_copy(struct vb_monitor_view *view, uint64_t offset, uint64_t *to,
			      size_t size);
/* A word of the requests, by its place among them (offsetof): load, and compare and swap. */
VB_PUBLIC int vb_monitor_load(struct vb_monitor_view *view, size_t offset, uint64_t *value);
VB_PUBLIC int vb_monitor_swap(struct vb_monitor_view *view, size_t offset, uint64_t *expected,
			      uint64_t value);
/* The clock that base_ticks of the header counts, and that base. */
VB_PUBLIC void vb_monitor_base(const struct vb_monitor_view *view, uint64_t *ticks, uint64_t *ns);

/* A view of an open file, which stays the caller's, as each() makes it: 0 or -errno. */
VB_PUBLIC int vb_monitor_view_open(int fd, struct vb_monitor_view **view);
VB_PUBLIC void vb_monitor_view_close(struct vb_monitor_view *view);
