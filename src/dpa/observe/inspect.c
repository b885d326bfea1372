// SPDX-License-Identifier: MIT
/*
 * Owns what a debugger sees of a process that it has stopped: threads, their registers, and memory
 * as a thread sees it.
 */
#include "dpa/internal.h"
#include "host/fault.h"

#include <errno.h>
#include <string.h>

/* ---- looking at threads ---- */

static struct vb_dpa_thread *find_thread(struct vb_dpa_process *process, uint32_t number)
{
	struct vb_cpu *cpu = process->cpus;

	while (cpu && cpu->thread->number != number)
		cpu = cpu->next;
	return cpu ? cpu->thread : NULL;
}

/* Between two runs of a call that is not over it has something to do, too. */
static bool has_work(const struct vb_dpa_thread *thread)
{
	/* Acquire: why. */
	return atomic_load_explicit(&thread->state, memory_order_acquire) != THREAD_IDLE ||
	       thread->why == VB_DPA_WHY_BUDGET || thread->why == VB_DPA_WHY_STOP ||
	       thread->why == VB_DPA_WHY_BLOCK;
}

unsigned int vb_dpa_debug_threads(struct vb_dpa_debug *debug, uint32_t *numbers, unsigned int max)
{
	struct vb_dpa_process *process = vb_debug_enter(debug);
	unsigned int n = 0;

	if (!process)
		return 0;
	for (struct vb_cpu *cpu = process->cpus; cpu; cpu = cpu->next) {
		if (n < max)
			numbers[n] = cpu->thread->number;
		n++;
	}
	vb_debug_leave(process);
	return n;
}

int vb_dpa_debug_info(struct vb_dpa_debug *debug, uint32_t thread, struct vb_dpa_thread_info *out)
{
	struct vb_dpa_process *process = vb_debug_enter(debug);
	struct vb_dpa_thread *t;

	if (!process)
		return -EINVAL;
	t = find_thread(process, thread);
	if (t) {
		*out = (struct vb_dpa_thread_info){ .idle = !has_work(t), .eu = t->eu };
		memcpy(out->name, t->name, sizeof(out->name));
	}
	vb_debug_leave(process);
	return t ? 0 : -ESRCH;
}

/* Of a thread that is idle the host program may be changing them. */
VB_GUEST_ACCESS static void copy_state(struct vb_dpa_state *to, const struct vb_dpa_state *from)
{
	const volatile struct vb_dpa_state *s = from;

	to->x[0] = to->sink = 0;
	for (unsigned int i = 1; i < 32; i++)
		to->x[i] = s->x[i];
	to->pc = s->pc;
	to->cause = s->cause;
	to->tval = s->tval;
	to->instret = s->instret;
}

int vb_dpa_debug_state(struct vb_dpa_debug *debug, uint32_t thread, struct vb_dpa_state *out)
{
	struct vb_dpa_process *process = vb_debug_enter(debug);
	struct vb_dpa_thread *t;

	if (!process)
		return -EINVAL;
	t = find_thread(process, thread);
	if (t)
		copy_state(out, &t->cpu.s);
	vb_debug_leave(process);
	return t ? 0 : -ESRCH;
}

int vb_dpa_debug_set_state(struct vb_dpa_debug *debug, uint32_t thread,
			   const struct vb_dpa_state *state)
{
	struct vb_dpa_process *process = vb_debug_enter(debug);
	struct vb_dpa_thread *t;
	int err = 0;

	if (!process)
		return -EINVAL;
	t = find_thread(process, thread);
	if (!t) {
		err = -ESRCH;
	} else if (!has_work(t) ||
		   atomic_load_explicit(&t->state, memory_order_relaxed) == THREAD_RUNNING) {
		err = -EINVAL; /* RUNNING: it stands inside of an instruction; see lent_hold() */
	} else {
		memcpy(&t->cpu.s.x[1], &state->x[1], 31 * sizeof(state->x[0]));
		t->cpu.s.pc = state->pc;
	}
	vb_debug_leave(process);
	return err;
}

/* ---- memory ---- */

/* Bytes of an access that reach up to the end of addr's page, or to the limit. */
static uint64_t piece_of(const struct space *space, uint64_t addr, uint64_t len)
{
	uint64_t room = space->page - addr % space->page;

	return len < room ? len : room;
}

/* Under cpus_lock. As much as one window holds; 0: none, or its memory is gone. */
static uint64_t copy_window(struct vb_dpa_thread *thread, uint64_t addr, void *to, const void *from,
			    uint64_t len)
{
	struct vb_dpa_process *process = thread->process;
	const struct vb_dpa_window *w;
	uint64_t n = 0;

	/* The lock is kept over the copy: nobody takes the window away meanwhile. */
	pthread_mutex_lock(&process->lock);
	for (w = process->windows; w; w = w->next)
		if (addr - w->addr < w->len && (!w->thread || w->thread == thread))
			break;
	if (w && w->host && (to || w->rights & VB_DPA_WRITE)) {
		uint8_t *host = w->host + (addr - w->addr);

		/* Not across pages of the host, so that what was copied is known. */
		n = w->len - (addr - w->addr) < len ? w->len - (addr - w->addr) : len;
		n = piece_of(&process->space, (uint64_t)(uintptr_t)host, n);
		if (to ? vb_fault_copy(to, host, n) : vb_fault_copy(host, from, n))
			n = 0;
	}
	pthread_mutex_unlock(&process->lock);
	return n;
}

/* One of to and from is NULL. */
static uint64_t inspect_copy_piece(struct vb_dpa_thread *thread, uint64_t addr, void *to,
				   const void *from, uint64_t len)
{
	struct vb_dpa_process *process = thread->process;
	uint64_t n = piece_of(&process->space, addr, len);

	if (addr >= VB_DPA_WINDOW_BASE)
		return copy_window(thread, addr, to, from, len);
	if (to ? vb_dpa_mem_read(process, addr, to, n) : vb_dpa_mem_write(process, addr, from, n))
		return 0;
	return n;
}

static int copy(struct vb_dpa_debug *debug, uint32_t thread, uint64_t addr, void *to,
		const void *from, uint64_t len, uint64_t *done)
{
	struct vb_dpa_process *process = vb_debug_enter(debug);
	struct vb_dpa_thread *t;
	uint64_t n = 1, copied = 0;

	if (!process)
		return -EINVAL;
	t = find_thread(process, thread);
	/* The other locks keep the thread from going away. */
	pthread_mutex_unlock(&process->dpa->lock);
	while (t && copied < len && n) {
		n = inspect_copy_piece(t, addr + copied, to ? (uint8_t *)to + copied : NULL,
				       from ? (const uint8_t *)from + copied : NULL, len - copied);
		copied += n;
	}
	pthread_mutex_lock(&process->dpa->lock);
	vb_debug_leave(process);
	if (done && t)
		*done = copied;
	return !t ? -ESRCH : copied < len ? -EFAULT : 0;
}

int vb_dpa_debug_read(struct vb_dpa_debug *debug, uint32_t thread, uint64_t addr, void *to,
		      uint64_t len, uint64_t *done)
{
	return copy(debug, thread, addr, to, NULL, len, done);
}

int vb_dpa_debug_write(struct vb_dpa_debug *debug, uint32_t thread, uint64_t addr, const void *from,
		       uint64_t len, uint64_t *done)
{
	return copy(debug, thread, addr, NULL, from, len, done);
}
