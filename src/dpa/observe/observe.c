// SPDX-License-Identifier: MIT
/*
 * Owns who watches a process: a second copy of its text, for the interpreter that shows accesses and
 * marks (cpu/observed.c), and the order in which the clients are asked.
 *
 *	vb_observe --> process.run_text --> each thread takes it when it enters the processor the next
 *	                                    time; threads that run are called out
 */
#include "dpa/internal.h"

#include <errno.h>
#include <stdlib.h>

struct observation {
	struct vb_observer observer;
	struct vb_text text;
	_Atomic(const struct observe_ops *) clients[OBSERVE_CLIENTS];
	pthread_mutex_t lock; /* of the marks, and of who begins and ends */
	uint8_t *marks;       /* a bit for each client, for every even address */
};

static struct observation *observation_of(const struct vb_cpu *cpu)
{
	return cpu->thread->process->observation;
}

static const struct observe_ops *client_of(struct observation *o, unsigned int client)
{
	/* Acquire: pairs with vb_observe(). */
	return atomic_load_explicit(&o->clients[client], memory_order_acquire);
}

/* ---- what cpus call ---- */

/* A fault in a client is the host's; it must not become a guest's trap. */
static jmp_buf *leave_guest(struct vb_cpu *cpu)
{
	jmp_buf *fault = cpu->fault;

	cpu->fault = NULL;
	return fault;
}

static enum vb_seen observe_on_mark(struct vb_cpu *cpu)
{
	struct observation *o = observation_of(cpu);
	uint64_t pc = cpu->s.pc;
	uint8_t marks = __atomic_load_n(&o->marks[(pc - o->text.lo) / 2], __ATOMIC_RELAXED);
	jmp_buf *fault = leave_guest(cpu);
	enum vb_seen seen = VB_SEEN_GO;

	/* The debugger first: a breakpoint at a function that checked mode does itself is one, too. */
	for (unsigned int i = OBSERVE_CLIENTS; i-- > 0 && seen != VB_SEEN_STOP;) {
		const struct observe_ops *ops = client_of(o, i);
		enum vb_seen says;

		/* Where one has sent the thread elsewhere, the mark is not reached. */
		if (!(marks & 1U << i) || !ops || !ops->mark || cpu->s.pc != pc)
			continue;
		says = ops->mark(cpu->thread, ops->arg);
		if (says != VB_SEEN_GO) {
			seen = says;
			cpu->seen_by = i;
		}
	}
	cpu->fault = fault;
	return seen;
}

static enum vb_seen observe_on_access(struct vb_cpu *cpu, uint64_t addr, unsigned int size,
				      unsigned int kind)
{
	struct observation *o = observation_of(cpu);
	jmp_buf *fault = leave_guest(cpu);
	enum vb_seen seen = VB_SEEN_GO;

	for (unsigned int i = 0; i < OBSERVE_CLIENTS && seen != VB_SEEN_STOP; i++) {
		const struct observe_ops *ops = client_of(o, i);
		enum vb_seen says;

		if (!ops || !ops->access)
			continue;
		says = ops->access(cpu->thread, addr, size, kind, ops->arg);
		if (says != VB_SEEN_GO) {
			seen = says;
			cpu->seen_by = i;
		}
	}
	cpu->fault = fault;
	return seen;
}

/* ---- beginning and ending ---- */

static int observation_make(struct vb_dpa_process *process)
{
	struct observation *o;

	if (process->observation)
		return 0;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->observer.mark = observe_on_mark;
	o->observer.access = observe_on_access;
	o->marks = calloc((process->text.hi - process->text.lo) / 2 + 1, 1);
	if (!o->marks || vb_text_create_observed(&o->text, &process->text, &o->observer)) {
		free(o->marks);
		free(o);
		return -ENOMEM;
	}
	pthread_mutex_init(&o->lock, NULL);
	process->observation = o;
	return 0;
}

/* Threads may be looking at them. */
static void clear_marks(struct observation *o, enum observe_client client)
{
	for (uint64_t i = 0; i < (o->text.hi - o->text.lo) / 2; i++) {
		uint8_t bits = o->marks[i] & (uint8_t) ~(1U << client);

		if (bits == o->marks[i])
			continue;
		__atomic_store_n(&o->marks[i], bits, __ATOMIC_RELAXED);
		if (!bits)
			vb_text_mark(&o->text, o->text.lo + 2 * i, false);
	}
}

/* Threads that run come out of the processor soon, and choose their text again. */
static void call_out(struct vb_dpa_process *process)
{
	pthread_mutex_lock(&process->cpus_lock);
	for (struct vb_cpu *cpu = process->cpus; cpu; cpu = cpu->next)
		vb_dpa_thread_preempt(cpu->thread);
	pthread_mutex_unlock(&process->cpus_lock);
}

int vb_observe(struct vb_dpa_process *process, enum observe_client client,
	       const struct observe_ops *ops)
{
	struct observation *o;
	bool any = false, accesses = false;
	int err;

	if (!ops && !process->observation)
		return 0;
	err = observation_make(process);
	if (err)
		return err;
	o = process->observation;
	pthread_mutex_lock(&o->lock);
	/* Release: what ops point to. Pairs with client_of(). */
	atomic_store_explicit(&o->clients[client], ops, memory_order_release);
	if (!ops)
		clear_marks(o, client);
	for (unsigned int i = 0; i < OBSERVE_CLIENTS; i++) {
		const struct observe_ops *c = client_of(o, i);

		any |= c != NULL;
		accesses |= c && c->access;
	}
	atomic_store_explicit(&o->observer.accesses, accesses, memory_order_relaxed);
	/* Release: the observation. Pairs with execute() in thread.c. */
	atomic_store_explicit(&process->run_text, any ? &o->text : &process->text,
			      memory_order_release);
	pthread_mutex_unlock(&o->lock);
	call_out(process);
	return 0;
}

int vb_observe_mark(struct vb_dpa_process *process, enum observe_client client, uint64_t pc,
		    bool set)
{
	struct observation *o = process->observation;
	uint8_t *mark, bits;
	int err;

	if (!vb_text_holds(&process->text, pc))
		return -EFAULT;
	pthread_mutex_lock(&o->lock);
	mark = &o->marks[(pc - o->text.lo) / 2];
	bits = set ? *mark | 1U << client : *mark & ~(1U << client);
	err = vb_text_mark(&o->text, pc, bits != 0);
	if (!err)
		__atomic_store_n(mark, bits, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&o->lock);
	return err;
}

void vb_observe_free(struct vb_dpa_process *process)
{
	struct observation *o = process->observation;

	if (!o)
		return;
	vb_text_destroy(&o->text);
	pthread_mutex_destroy(&o->lock);
	free(o->marks);
	free(o);
}
