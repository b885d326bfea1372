// SPDX-License-Identifier: MIT
/* Owns the asking for counters of device threads: on where they are off, and off again where it was us. */
#include <errno.h>
#include <stdlib.h>

#include "control/show/monitor.h"
#include "tools/look/look.h"

/* Bounded, because a damaged program may write to the word all the time. */
enum { ASKED_MAX = 4096, TRIES = 100 };

/* A device process: another program in the same slot gives its own the same ids, but began later. */
static struct asked {
	uint32_t id;
	uint64_t began; /* its program's file, ns */
} asked[ASKED_MAX];     /* the last ones */
static size_t num_asked;

static struct asked who(const struct vb_monitor_view *view, uint32_t id)
{
	struct asked a = { .id = id };
	uint64_t ticks;

	vb_monitor_base(view, &ticks, &a.began);
	return a;
}

static bool was_asked(struct asked a)
{
	for (size_t i = 0; i < num_asked && i < ASKED_MAX; i++)
		if (asked[i].id == a.id && asked[i].began == a.began)
			return true;
	return false;
}

/* From one state to the other; false: it is in another one. */
static bool count_change(struct vb_monitor_view *view, size_t word, uint64_t from, uint64_t to)
{
	const uint64_t flags = VB_MONITOR_CHANGE - 1;
	uint64_t old;

	if (vb_monitor_load(view, word, &old))
		return false;
	for (int i = 0; i < TRIES; i++) {
		if ((old & flags) != from)
			return false;
		if (!vb_monitor_swap(view, word, &old, ((old + VB_MONITOR_CHANGE) & ~flags) | to))
			return true;
	}
	return false;
}

static int count_ask(struct vb_monitor_view *view, void *arg)
{
	bool on = *(bool *)arg;
	uint32_t count = vb_monitor_count(view, VB_MONITOR_DPA_PROCESS);
	struct vb_monitor_process entry;
	struct asked a;

	for (uint32_t i = 0; i < count && i < VB_MONITOR_REQUESTS; i++) {
		size_t word = i * sizeof(struct vb_monitor_request) +
			      offsetof(struct vb_monitor_request, state);

		if (vb_monitor_read(view, VB_MONITOR_DPA_PROCESS, i, 0, &entry, sizeof(entry)))
			continue;
		a = who(view, entry.id);
		if (!on && was_asked(a))
			count_change(view, word, VB_MONITOR_ACTIVE, 0);
		else if (on && !was_asked(a) && count_change(view, word, 0, VB_MONITOR_ACTIVE))
			asked[num_asked++ % ASKED_MAX] = a;
	}
	return 0;
}

void look_count(bool on)
{
	vb_monitor_each(count_ask, &on);
	if (!on)
		num_asked = 0;
}
