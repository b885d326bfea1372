// SPDX-License-Identifier: MIT
/*
 * Owns the way in which tools read the files of other processes.
 *
 * A file belongs to the same user, and its program may be in the middle of anything: it may have
 * written over the file by mistake, or be another version. So every number is checked against the
 * file before it is used, every access recovers from a file that became shorter (host/fault.h), and
 * no loop depends on the file for its end.
 */
#include "control/show/monitor.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/fault.h"
#include "meet/registry.h"

/*
 * A thread that changes its counters every 100 ns still leaves nine copies of ten whole. An entry of
 * a program that stands still in the middle of a change is never whole, and one that wrote over its
 * file may show thousands of those: what is tried again is limited for the whole view, too.
 */
enum { TRIES = 2000, TRIES_BUSY = 200, TRIES_LEAST = 8, PATIENCE = 8 * TRIES };

struct vb_monitor_view {
	uint8_t *map;
	uint64_t size; /* mapped, which is as much as the file had */
	uint32_t slot; /* as the registry says; a file that was opened by itself: as it says */
	int32_t pid;
	unsigned int patience; /* tries that may fail yet; copies that were whole give some back */
	struct vb_monitor_header header;
};

/* ---- opening ---- */

int vb_monitor_view_open(int fd, struct vb_monitor_view **view)
{
	VB_NO_CANCEL;
	struct vb_monitor_view *v;
	struct stat st;
	int ret;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size < 2 * VB_MONITOR_PAGE)
		return -EUCLEAN;
	ret = vb_fault_arm();
	if (ret)
		return ret;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->size = st.st_size < VB_MONITOR_MAX_SIZE ? (uint64_t)st.st_size : VB_MONITOR_MAX_SIZE;
	v->map = mmap(NULL, v->size, PROT_READ, MAP_SHARED, fd, 0);
	if (v->map == MAP_FAILED) {
		ret = -errno;
		free(v);
		return ret;
	}
	/* Others may write to the page of requests, and by no mistake to anything else. */
	if (mprotect(v->map + VB_MONITOR_PAGE, VB_MONITOR_PAGE, PROT_READ | PROT_WRITE))
		ret = -errno;
	if (!ret)
		ret = vb_fault_copy(&v->header, v->map, sizeof(v->header));
	if (!ret &&
	    atomic_load_explicit(&v->header.magic, memory_order_relaxed) != VB_MONITOR_MAGIC)
		ret = -EUCLEAN; /* or not written yet */
	if (ret) {
		vb_monitor_view_close(v);
		return ret;
	}
	v->patience = PATIENCE;
	v->slot = v->header.slot;
	v->pid = (int32_t)v->header.pid;
	*view = v;
	return 0;
}

void vb_monitor_view_close(struct vb_monitor_view *view)
{
	munmap(view->map, view->size);
	free(view);
}

struct each {
	int (*visit)(struct vb_monitor_view *view, void *arg);
	void *arg;
	int ret;
};

/* What the reader itself lacks: a list without the process would be wrong. */
static bool show_view_is_ours(int err)
{
	return err == -ENOMEM || err == -EMFILE || err == -ENFILE;
}

static void visit_process(void *arg, const struct vb_slot_info *info)
{
	struct each *each = arg;
	struct vb_monitor_view *view;
	int fd, ret;

	if (each->ret)
		return;
	fd = vb_registry_open_shown(info);
	ret = fd < 0 ? fd : vb_monitor_view_open(fd, &view);
	if (fd >= 0)
		close(fd);
	if (show_view_is_ours(ret))
		each->ret = ret;
	if (ret)
		return; /* it shows nothing, or is gone */
	view->slot = info->slot;
	view->pid = (int32_t)info->pid;
	each->ret = each->visit(view, each->arg);
	vb_monitor_view_close(view);
}

int vb_monitor_each(int (*visit)(struct vb_monitor_view *view, void *arg), void *arg)
{
	struct each each = { visit, arg, 0 };
	int ret = vb_registry_list(visit_process, &each);

	return ret < 0 ? ret : each.ret;
}

int32_t vb_monitor_pid(const struct vb_monitor_view *view)
{
	return view->pid;
}

uint32_t vb_monitor_view_slot(const struct vb_monitor_view *view)
{
	return view->slot;
}

void vb_monitor_base(const struct vb_monitor_view *view, uint64_t *ticks, uint64_t *ns)
{
	*ticks = view->header.base_ticks;
	*ns = view->header.base_ns;
}

/* ---- reading ---- */

/*
 * Copy what begins with a sequence number. It is read in front of the rest and behind it; the fences
 * keep it there, and pair with vb_monitor_write_begin() and vb_monitor_write_end().
 */
static int copy_whole(struct vb_monitor_view *view, void *to, const void *from, size_t size)
{
	uint32_t before, after;

	for (unsigned int tries = 0; tries < TRIES; tries++) {
		if (tries >= TRIES_LEAST && !view->patience)
			break;
		if (vb_fault_copy(&before, from, sizeof(before)))
			return -EFAULT;
		atomic_thread_fence(memory_order_acquire);
		if (vb_fault_copy(to, from, size))
			return -EFAULT;
		atomic_thread_fence(memory_order_acquire);
		if (vb_fault_copy(&after, from, sizeof(after)))
			return -EFAULT;
		if (!(before & 1) && before == after) {
			memcpy(to, &before, sizeof(before));
			view->patience += view->patience < PATIENCE;
			return 0;
		}
		view->patience -= view->patience > 0;
		if (tries > TRIES_BUSY)
			sched_yield(); /* the owner has lost its processor in the middle */
	}
	return -EAGAIN;
}

static bool show_view_holds(const struct vb_monitor_view *view, uint64_t offset, uint64_t size)
{
	return offset >= 2 * VB_MONITOR_PAGE && offset % 8 == 0 && offset <= view->size &&
	       size <= view->size - offset;
}

int vb_monitor_read_at(struct vb_monitor_view *view, uint64_t offset, void *to, size_t size)
{
	return size >= sizeof(struct vb_monitor_seq) && show_view_holds(view, offset, size)
		       ? copy_whole(view, to, view->map + offset, size)
		       : -EFAULT;
}

int vb_monitor_copy(struct vb_monitor_view *view, uint64_t offset, uint64_t *to, size_t size)
{
	return show_view_holds(view, offset, size) ? vb_fault_copy(to, view->map + offset, size)
						   : -EFAULT;
}

static const struct vb_monitor_section *find_section(const struct vb_monitor_view *view,
						     enum vb_monitor_kind kind)
{
	for (unsigned int i = 0; i < VB_MONITOR_SECTIONS; i++) {
		const struct vb_monitor_section *s = &view->header.section[i];

		if (atomic_load_explicit(&s->kind, memory_order_relaxed) == (uint32_t)kind &&
		    s->entry_size >= sizeof(struct vb_monitor_seq) && s->entry_size % 8 == 0 &&
		    s->entry_size <= VB_MONITOR_ENTRY_MAX && s->base &&
		    s->base <= VB_MONITOR_MAX_SIZE)
			return s;
	}
	return NULL;
}

uint32_t vb_monitor_count(struct vb_monitor_view *view, enum vb_monitor_kind kind)
{
	const struct vb_monitor_section *s = find_section(view, kind);
	uint64_t count = s ? atomic_load_explicit(&s->count, memory_order_relaxed) : 0;

	/* No more than the file has room for, or than anybody shows. */
	if (s && count > view->size / s->entry_size)
		count = view->size / s->entry_size;
	if (count > vb_monitor_most(kind))
		count = vb_monitor_most(kind);
	return (uint32_t)count;
}

/* The offset of an entry in the file; 0: there is none. */
static uint64_t show_view_find_entry(const struct vb_monitor_view *view,
				     const struct vb_monitor_section *s, uint32_t index)
{
	unsigned int k = 31 - (unsigned int)__builtin_clz(index / s->base + 1);
	uint64_t chunk, first = (uint64_t)s->base * ((1ull << k) - 1);

	if (k >= VB_MONITOR_CHUNKS)
		return 0;
	chunk = atomic_load_explicit(&s->chunk[k], memory_order_relaxed);
	if (!chunk || chunk > view->size)
		return 0;
	return chunk + (index - first) * s->entry_size;
}

int vb_monitor_read(struct vb_monitor_view *view, enum vb_monitor_kind kind, uint32_t index,
		    size_t offset, void *to, size_t size)
{
	const struct vb_monitor_section *s = find_section(view, kind);
	size_t known = size;
	uint64_t at;
	int ret;

	if (!s || index >= vb_monitor_count(view, kind) || offset >= s->entry_size ||
	    s->entry_size - offset < sizeof(struct vb_monitor_seq))
		return -ENOENT;
	at = show_view_find_entry(view, s, index);
	if (!at || !show_view_holds(view, at, s->entry_size))
		return -ENOENT; /* the file may have grown since it was mapped */
	if (known > s->entry_size - offset)
		known = s->entry_size - offset;
	ret = vb_monitor_read_at(view, at + offset, to, known);
	if (ret)
		return ret;
	memset((char *)to + known, 0, size - known);
	return !offset && !((struct vb_monitor_seq *)to)->used ? -ENOENT : 0;
}

/* ---- requests ---- */

static uint64_t *request_word(const struct vb_monitor_view *view, size_t offset)
{
	return offset % 8 || offset > VB_MONITOR_PAGE - 8
		       ? NULL
		       : (uint64_t *)(void *)(view->map + VB_MONITOR_PAGE + offset);
}

int vb_monitor_load(struct vb_monitor_view *view, size_t offset, uint64_t *value)
{
	const uint64_t *word = request_word(view, offset);

	return word ? vb_fault_copy(value, word, sizeof(*value)) : -EFAULT;
}

int vb_monitor_swap(struct vb_monitor_view *view, size_t offset, uint64_t *expected, uint64_t value)
{
	uint64_t *word = request_word(view, offset), old;
	int ret = word ? vb_fault_compare_swap(word, *expected, value, &old) : -EFAULT;

	if (ret)
		return ret;
	ret = old == *expected ? 0 : -EAGAIN;
	*expected = old;
	return ret;
}
