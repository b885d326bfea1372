// SPDX-License-Identifier: MIT
/*
 * Owns what the event tracer sees of a slice: a sample in front of it and one behind it. Counting is
 * cheaper, and part of vb_thread_run_slice() itself. control/show/dpa.h has the rules of both.
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
static struct vb_shown_stamp show_stamp(const struct vb_dpa_thread *thread, uint64_t ticks)
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

void vb_show_in(struct vb_dpa_thread *thread, struct show *show, uint64_t state, uint64_t ticks)
{
	struct vb_dpa *dpa = thread->process->dpa;

	show->stamp = show_stamp(thread, ticks);
	show->slice.state = state;
	show->slice.eu = thread->lent ? UINT16_MAX : (uint16_t)thread->eu;
	show->slice.id = thread->lent ? thread->shown->lent++ : dpa->eus[thread->eu].traced++;
	vb_shown_in(thread->shown, &show->slice, &show->stamp);
}

void vb_show_out(struct vb_dpa_thread *thread, struct show *show, uint64_t ticks, uint64_t retired)
{
	show->stamp.time += ticks;
	show->stamp.ticks += ticks;
	show->stamp.instructions += retired;
	vb_shown_out(thread->shown, &show->slice, &show->stamp);
}
