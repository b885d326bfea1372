// SPDX-License-Identifier: MIT
/* Owns the asking for counters of device threads: on where they are off, and off again where it was us. */
#include <errno.h>
#include <stdlib.h>

#include "monitor/monitor.h"
#include "tools/look/look.h"

/* Bounded, because a damaged program may write to the word all the time. */
enum { ASKED_MAX = 4096, TRIES = 100 };

static uint32_t asked[ASKED_MAX]; /* ids of device processes */
static size_t num_asked;

static bool was_asked(uint32_t id)
{
	for (size_t i = 0; i < num_asked; i++)
		if (asked[i] == id)
			return true;
	return false;
}

/* From one state to the other; false: it is in another one. */
static bool change(struct vb_monitor_view *view, size_t word, uint64_t from, uint64_t to)
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

static int ask(struct vb_monitor_view *view, void *arg)
{
	bool on = *(bool *)arg;
	uint32_t count = vb_monitor_count(view, VB_MONITOR_DPA_PROCESS);
	struct vb_monitor_process entry;

	for (uint32_t i = 0; i < count && i < VB_MONITOR_REQUESTS; i++) {
		size_t word = i * sizeof(struct vb_monitor_request) +
			      offsetof(struct vb_monitor_request, state);

		if (vb_monitor_read(view, VB_MONITOR_DPA_PROCESS, i, 0, &entry, sizeof(entry)))
			continue;
		if (!on && was_asked(entry.id))
			change(view, word, VB_MONITOR_ACTIVE, 0);
		else if (on && num_asked < ASKED_MAX && !was_asked(entry.id) &&
			 change(view, word, 0, VB_MONITOR_ACTIVE))
			asked[num_asked++] = entry.id;
	}
	return 0;
}

void look_count(bool on)
{
	vb_monitor_each(ask, &on);
	if (!on)
		num_asked = 0;
}
