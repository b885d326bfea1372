// SPDX-License-Identifier: MIT
/*
 * Owns the walk over what programs show: which processes and threads are meant, and copies of them.
 *
 * Programs come and go during a walk, and so do their processes and threads. An entry that is used by
 * another one when its parts have been copied is looked at again, so that counters never stand beside
 * the name of another thread.
 */
#include "internal.h"

#include "base/time.h"

#define CLOCK_HZ 1800000000ull /* of the accelerator: dpa.h */

enum { LOOKS = 8, ID_BITS = 20, RATE_NS = 50000000 };

void *vb_rows_add(struct rows *rows)
{
	if (rows->count == rows->room) {
		size_t room = rows->room ? rows->room * 2 : 16;
		void *at = realloc(rows->at, room * rows->size);

		if (!at) {
			rows->failed = true;
			return NULL;
		}
		rows->at = at;
		rows->room = room;
	}
	return memset((char *)rows->at + rows->count++ * rows->size, 0, rows->size);
}

/* ---- time ---- */

/* Processors count between 0.1 and 25 GHz. */
static bool is_rate(uint64_t rate)
{
	return rate >> 28 && !(rate >> 38);
}

/*
 * The first reader writes it down, so that all of them get the same cycles. In the first moments of a program nobody can
 * tell yet: the reader waits for as long.
 */
static uint64_t dpa_stats_gather_find_rate(struct vb_monitor_view *view)
{
	size_t word = offsetof(struct vb_monitor_requests, rate);
	uint64_t rate = 0, base_ticks, base_ns, ticks, ns;

	if (vb_monitor_load(view, word, &rate))
		return 0;
	if (is_rate(rate))
		return rate;
	vb_monitor_base(view, &base_ticks, &base_ns);
	/* A signal cuts a pause short. */
	while ((ns = vb_machine_ns() - base_ns) < RATE_NS)
		vb_pause_ns(RATE_NS - ns);
	vb_ticks_moment(&ticks, &ns);
	ns -= base_ns;
	ticks -= base_ticks;
	if (!ticks || (int64_t)ticks < 0 || (int64_t)ns < 0)
		return 0;
	ticks = (uint64_t)((double)ns * ((double)CLOCK_HZ / 1e9) / (double)ticks * 4294967296.0);
	if (vb_monitor_swap(view, word, &rate, ticks) == -EAGAIN && is_rate(rate))
		return rate; /* another reader was faster */
	return ticks;
}

uint64_t vb_stats_cycles(const struct seen *seen, uint64_t ticks)
{
	if (seen->process.flags & VB_MONITOR_DETERMINISTIC)
		return ticks;
	return (uint64_t)((unsigned __int128)ticks * seen->rate >> 32);
}

uint64_t vb_stats_time(const struct seen *seen, uint64_t ticks)
{
	uint64_t base_ticks, base_ns;

	if (seen->process.flags & VB_MONITOR_DETERMINISTIC)
		return ticks / (CLOCK_HZ / 1000000);
	vb_monitor_base(seen->view, &base_ticks, &base_ns);
	return base_ns / 1000 + vb_stats_cycles(seen, ticks - base_ticks) / (CLOCK_HZ / 1000000);
}

/* ---- the walk ---- */

static bool means_process(const struct filter *filter, uint32_t id)
{
	if (!filter->list)
		return filter->process == DPA_STATS_ALL_PROCESSES || filter->process == id;
	for (uint32_t i = 0; i < filter->list->process_num; i++)
		if (filter->list->processes[i].dpa_process_id == id)
			return true;
	return false;
}

/* A thread with its counters, as they were at one moment; false: there is none. */
static bool read_thread(struct vb_monitor_view *view, uint32_t index, struct seen_thread *t)
{
	struct vb_monitor_seq again;

	for (unsigned int look = 0; look < LOOKS; look++) {
		if (vb_monitor_read(view, VB_MONITOR_DPA_THREAD, index, 0, &t->thread,
				    offsetof(struct vb_monitor_thread, counters)) ||
		    vb_monitor_read(view, VB_MONITOR_DPA_THREAD, index,
				    offsetof(struct vb_monitor_thread, counters), &t->counters,
				    sizeof(t->counters)) ||
		    vb_monitor_read(view, VB_MONITOR_DPA_THREAD, index, 0, &again, sizeof(again)))
			return false;
		if (atomic_load_explicit(&again.number, memory_order_relaxed) ==
		    atomic_load_explicit(&t->thread.seq.number, memory_order_relaxed))
			return true;
	}
	return false;
}

static void walk_threads(struct gather *g, struct vb_monitor_view *view, const struct seen *seen,
			 uint32_t nprocesses)
{
	uint32_t count = vb_monitor_count(view, VB_MONITOR_DPA_THREAD);
	struct seen_thread t;

	for (uint32_t i = 0; i < count; i++) {
		if (!read_thread(view, i, &t) || t.thread.process >= nprocesses)
			continue;
		t.of = &seen[t.thread.process];
		if (!t.of->process.seq.used || t.of->process.id != t.thread.process_id)
			continue;
		if (g->filter.thread != DPA_STATS_ALL_THREADS && g->filter.thread != t.thread.id)
			continue;
		t.thread.name[sizeof(t.thread.name) - 1] = 0;
		g->threads++;
		g->thread(g, &t);
	}
}

bool vb_stats_is_there(const struct seen *seen)
{
	struct vb_monitor_seq again;

	return !vb_monitor_read(seen->view, VB_MONITOR_DPA_PROCESS, seen->index, 0, &again,
				sizeof(again)) &&
	       atomic_load_explicit(&again.number, memory_order_relaxed) == seen->number;
}

/* Whether a process of the file is one of the card, and meant. */
static bool read_process(struct gather *g, struct vb_monitor_view *view, uint32_t index,
			 struct seen *seen)
{
	struct vb_monitor_process *p = &seen->process;

	seen->view = view;
	seen->index = index;
	if (vb_monitor_read(view, VB_MONITOR_DPA_PROCESS, index, 0, p, sizeof(*p)))
		return false;
	seen->number = atomic_load_explicit(&p->seq.number, memory_order_relaxed);
	p->name[sizeof(p->name) - 1] = 0;
	p->adapter[sizeof(p->adapter) - 1] = 0;
	/* A program speaks for itself only. */
	return p->id >> ID_BITS == vb_monitor_view_slot(view) &&
	       !strcmp(p->adapter, g->handle->adapter) && means_process(&g->filter, p->id);
}

static int dpa_stats_gather_walk(struct vb_monitor_view *view, void *arg)
{
	uint32_t count = vb_monitor_count(view, VB_MONITOR_DPA_PROCESS), found = 0;
	struct gather *g = arg;
	struct seen *seen;
	uint64_t rate;

	if (count > VB_MONITOR_REQUESTS)
		count = VB_MONITOR_REQUESTS;
	seen = calloc(count + 1, sizeof(*seen));
	if (!seen) {
		g->rows.failed = true;
		return 0;
	}
	rate = dpa_stats_gather_find_rate(view);
	for (uint32_t i = 0; i < count; i++) {
		seen[i].rate = rate;
		seen[i].process.seq.used = read_process(g, view, i, &seen[i]);
		if (seen[i].process.seq.used && (!g->process || g->process(g, &seen[i])))
			found++;
	}
	g->processes += found;
	if (found && g->thread)
		walk_threads(g, view, seen, count);
	free(seen);
	return 0;
}

#define fail_as(h, status, ...) \
	vb_stats_fail(h, DPA_STATS_STATUS_##status, function, __FILE_NAME__, __LINE__, __VA_ARGS__)

static dpa_stats_status check_filter(struct gather *g, const char *function)
{
	const struct filter *f = &g->filter;

	if (f->list && f->list->process_num && !f->list->processes)
		return fail_as(g->handle, NULL_POINTER, "process_list->processes is NULL");
	if (!f->list && f->process == DPA_STATS_ALL_PROCESSES && f->thread != DPA_STATS_ALL_THREADS)
		return fail_as(
			g->handle, INVALID_PARAMS,
			"with DPA_STATS_ALL_PROCESSES, thread_id must be DPA_STATS_ALL_THREADS");
	return DPA_STATS_STATUS_OK;
}

dpa_stats_status vb_gather(struct gather *g, const char *function)
{
	const struct filter *f = &g->filter;
	dpa_stats_status status = check_filter(g, function);
	int ret;

	if (status)
		return status;
	ret = vb_monitor_each(dpa_stats_gather_walk, g);
	if (g->rows.failed || ret == -ENOMEM)
		return fail_as(g->handle, ERROR_IN_ALLOC, "no memory");
	if (ret)
		return fail_as(g->handle, ERROR_IN_MFT, "the registry of programs: %s",
			       strerror(-ret));
	if (!f->list && f->process != DPA_STATS_ALL_PROCESSES && !g->processes)
		return fail_as(g->handle, NO_SUCH_PROCESS, "%s has no DPA process 0x%x",
			       g->handle->adapter, f->process);
	if (f->list && f->list->process_num && !g->processes)
		return fail_as(g->handle, NO_SUCH_PROCESS,
			       "none of the %u DPA processes is there any more",
			       f->list->process_num);
	if (g->thread && f->thread != DPA_STATS_ALL_THREADS && !g->threads)
		return fail_as(g->handle, NO_SUCH_THREADS, "DPA process 0x%x has no thread 0x%x",
			       f->process, f->thread);
	return DPA_STATS_STATUS_OK;
}
