// SPDX-License-Identifier: MIT
/*
 * Owns what tools see of a slice: how long it ran and what it retired, added to the counters of its
 * thread, or a sample in front of it and one behind it. monitor/dpa.h has the rules.
 *
 * Time is that of the processor, in ticks. In deterministic mode it is the number of instructions
 * that all threads have retired, so that a run can be repeated with every sample the same.
 */
#include "dpa/internal.h"

/*
 * Where the EU of the thread stands. An EU runs one thread at a time, so what it has counted does not
 * change meanwhile. A caller that runs the thread itself is no EU: the thread's own counters stand
 * for it.
 */
static struct vb_shown_stamp stamp(const struct vb_dpa_thread *thread, uint64_t ticks)
{
	const struct vb_dpa *dpa = thread->process->dpa;
	const struct eu *eu = thread->lent ? NULL : &dpa->eus[thread->eu];
	struct vb_shown_stamp s = {
		.time = ticks,
		.ticks = eu ? eu->busy_ticks : thread->busy_ticks,
		.instructions = eu ? eu->instructions : thread->cpu.s.instret,
	};

	if (dpa->deterministic) {
		s.time = dpa->retired;
		s.ticks = s.instructions;
	}
	return s;
}

void vb_show_begin(struct vb_dpa_thread *thread, struct show *show, uint64_t ticks)
{
	struct vb_dpa *dpa = thread->process->dpa;

	vb_shown_begin(thread->shown, &show->slice);
	show->instret = thread->cpu.s.instret;
	show->first = !thread->begun;
	if (!vb_shown_traces(&show->slice))
		return;
	show->stamp = stamp(thread, ticks);
	show->slice.eu = thread->lent ? UINT16_MAX : (uint16_t)thread->eu;
	show->slice.id = thread->lent ? thread->shown->lent++ : dpa->eus[thread->eu].traced++;
	vb_shown_in(thread->shown, &show->slice, &show->stamp);
}

void vb_show_end(struct vb_dpa_thread *thread, struct show *show, uint64_t ticks)
{
	uint64_t retired = thread->cpu.s.instret - show->instret;

	if (thread->cpu.deterministic)
		ticks = retired;
	if (!vb_shown_traces(&show->slice)) {
		vb_shown_count(thread->shown, &show->slice, ticks, retired, show->first);
		return;
	}
	show->stamp.time += ticks;
	show->stamp.ticks += ticks;
	show->stamp.instructions += retired;
	vb_shown_out(thread->shown, &show->slice, &show->stamp);
}
