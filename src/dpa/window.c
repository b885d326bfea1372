// SPDX-License-Identifier: MIT
/*
 * Owns the windows and device pages of a process: a list under the process's lock, from which the
 * tables of the threads (cpu/access.c) are filled on a miss, and to which they never point once
 * vb_dpa_window_destroy returned.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

/* vb_access_source.find. Writes the length last: it is what makes the entry count. */
bool vb_window_find(void *arg, struct vb_dpa_thread *thread, uint64_t addr,
		    struct vb_access_entry *entry)
{
	struct vb_dpa_process *process = arg;
	const struct vb_dpa_window *w;

	pthread_mutex_lock(&process->lock);
	for (w = process->windows; w; w = w->next)
		if (addr - w->addr < w->len && (!w->thread || w->thread == thread))
			break;
	if (w) {
		entry->tag = w->addr;
		entry->host = w->host;
		entry->rights = w->rights;
		__atomic_store_n(&entry->window, (struct vb_dpa_window *)w, __ATOMIC_RELAXED);
		atomic_store_explicit(&entry->len, w->len, memory_order_relaxed);
	}
	pthread_mutex_unlock(&process->lock);
	return w;
}

/* Two threads may see different things at one address; what all see must not meet anything. */
static bool dpa_window_collides(const struct vb_dpa_window *a, const struct vb_dpa_window *b)
{
	return a->addr < b->addr + b->len && b->addr < a->addr + a->len &&
	       (!a->thread || !b->thread || a->thread == b->thread);
}

static bool is_range(uint64_t addr, uint64_t len)
{
	return addr >= VB_DPA_WINDOW_BASE && addr < VB_DPA_WINDOW_END && len &&
	       len <= VB_DPA_WINDOW_END - addr;
}

static bool are_rights(unsigned int rights)
{
	return rights && !(rights & ~(unsigned int)(VB_DPA_READ | VB_DPA_WRITE));
}

static int window_add(struct vb_dpa_process *process, const struct vb_dpa_window *init,
		      struct vb_dpa_window **window)
{
	struct vb_dpa_window *w;
	int err = 0;

	if (!is_range(init->addr, init->len))
		return -EINVAL;
	w = malloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = *init;
	w->process = process;
	pthread_mutex_lock(&process->lock);
	for (const struct vb_dpa_window *o = process->windows; o && !err; o = o->next)
		if (dpa_window_collides(o, w))
			err = -EEXIST;
	if (!err) {
		w->next = process->windows;
		process->windows = w;
	}
	pthread_mutex_unlock(&process->lock);
	if (err)
		free(w);
	else
		*window = w;
	return err;
}

int vb_dpa_window_create(struct vb_dpa_process *process, struct vb_dpa_thread *thread,
			 uint64_t addr, uint64_t len, void *host, unsigned int rights,
			 struct vb_dpa_window **window)
{
	struct vb_dpa_window init = {
		.addr = addr, .len = len, .host = host, .rights = rights, .thread = thread
	};

	if (!host || !are_rights(rights))
		return -EINVAL;
	return window_add(process, &init, window);
}

int vb_dpa_device_create(struct vb_dpa_process *process, struct vb_dpa_thread *thread,
			 uint64_t addr, uint64_t len, const struct vb_dpa_device_ops *ops,
			 void *arg, struct vb_dpa_window **window)
{
	struct vb_dpa_window init = {
		.addr = addr, .len = len, .device = ops, .device_arg = arg, .thread = thread
	};

	return ops ? window_add(process, &init, window) : -EINVAL;
}

/* Not under process.lock: a thread that misses takes it. */
static void dpa_window_forget(struct vb_dpa_process *process, const struct vb_dpa_window *window)
{
	pthread_mutex_lock(&process->cpus_lock);
	vb_access_invalidate(process->cpus, window);
	pthread_mutex_unlock(&process->cpus_lock);
}

int vb_dpa_window_change(struct vb_dpa_window *window, uint64_t addr, uint64_t len, void *host,
			 unsigned int rights)
{
	struct vb_dpa_process *process = window->process;
	struct vb_dpa_window to = *window;
	int err = 0;

	if (window->device || !host || !are_rights(rights) || !is_range(addr, len))
		return -EINVAL;
	to.addr = addr;
	to.len = len;
	pthread_mutex_lock(&process->lock);
	for (const struct vb_dpa_window *o = process->windows; o && !err; o = o->next)
		if (o != window && dpa_window_collides(o, &to))
			err = -EEXIST;
	if (!err) {
		window->addr = addr;
		window->len = len;
		window->host = host;
		window->rights = rights;
	}
	pthread_mutex_unlock(&process->lock);
	if (!err)
		dpa_window_forget(process, window);
	return err;
}

static int window_remove(struct vb_dpa_window *window)
{
	struct vb_dpa_process *process = window->process;
	struct vb_dpa_window **link;

	pthread_mutex_lock(&process->lock);
	for (link = &process->windows; *link && *link != window; link = &(*link)->next)
		;
	if (!*link) {
		pthread_mutex_unlock(&process->lock);
		return -ENOENT;
	}
	*link = window->next;
	pthread_mutex_unlock(&process->lock);
	/* Threads made meanwhile cannot find the window any more. */
	dpa_window_forget(process, window);
	/* Pairs with device_release. */
	while (atomic_load_explicit(&window->users, memory_order_acquire))
		sched_yield();
	free(window);
	return 0;
}

int vb_dpa_window_destroy(struct vb_dpa_window *window)
{
	return window->device && window->device->permanent ? -EINVAL : window_remove(window);
}

void vb_windows_free(struct vb_dpa_process *process)
{
	while (process->windows)
		window_remove(process->windows);
}
