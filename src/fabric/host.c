// SPDX-License-Identifier: MIT
/*
 * Owns the memory of hosts, and the list of the fabrics that run in this process. The list is for what a
 * process has one of and all hosts share: memory, forks, the end of the process.
 */
#include "fabric/host.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/mask.h"
#include "fabric/running.h"
#include "fabric/state.h"

struct vb_registry vb_registry_program = VB_REGISTRY_INIT;
struct vb_fabric vb_fabric_program = { .registry = &vb_registry_program,
				       .peers.table_lock = PTHREAD_MUTEX_INITIALIZER };

struct made {
	struct vb_host host;
	struct vb_registry registry;
	struct vb_fabric fabric;
};

int vb_host_make(struct vb_host **host)
{
	struct made *made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (made == MAP_FAILED)
		return -ENOMEM;
	vb_registry_init(&made->registry);
	pthread_mutex_init(&made->fabric.peers.table_lock, NULL);
	made->fabric.registry = &made->registry;
	made->host = (struct vb_host){ .meet = &made->registry, .fabric = &made->fabric };
	*host = &made->host;
	return 0;
}

void vb_host_free(struct vb_host *host)
{
	munmap(host, sizeof(struct made));
}

/* --- the fabrics that run --------------------------------------------------------------------- */

static _Atomic(struct vb_fabric *) first; /* changed under the lock of starting */
static _Atomic uint32_t walkers;
static uint32_t forks; /* of the process's ancestors: changed in a child, before it has threads */

/* Of this thread. */
static _Thread_local struct {
	unsigned int depth; /* a handler of a fault may walk in the middle of a walk */
	bool lost;          /* it began in the parent of this process */
	sigset_t mask;      /* before it began */
} walk;

struct vb_fabric *vb_running_begin(void)
{
	sigset_t before;

	vb_signal_block(&before);
	if (!walk.depth++)
		walk.mask = before;
	/* seq_cst: pairs with vb_running_remove(), which sees this thread, or is seen by it. */
	atomic_fetch_add_explicit(&walkers, 1, memory_order_seq_cst);
	return atomic_load_explicit(&first, memory_order_seq_cst);
}

struct vb_fabric *vb_running_next(struct vb_fabric *fabric)
{
	return walk.lost ? NULL : atomic_load_explicit(&fabric->next, memory_order_acquire);
}

void vb_running_end(void)
{
	sigset_t before = walk.mask;

	if (!walk.lost)
		atomic_fetch_sub_explicit(&walkers, 1, memory_order_release);
	if (--walk.depth)
		return;
	walk.lost = false;
	vb_signal_unblock(&before);
}

bool vb_running_let_in(void)
{
	sigset_t before = walk.mask;
	uint32_t was = forks;

	if (walk.depth != 1)
		return !walk.lost;
	walk.depth = 0; /* a handler may walk by itself */
	vb_signal_unblock(&before);
	vb_signal_block(&before);
	walk.depth = 1;
	walk.mask = before;
	walk.lost = was != forks;
	return !walk.lost;
}

bool vb_running_goes_on(void)
{
	return !walk.lost;
}

bool vb_running_any(void)
{
	return atomic_load_explicit(&first, memory_order_relaxed);
}

void vb_running_add(struct vb_fabric *fabric)
{
	atomic_store_explicit(&fabric->next, atomic_load_explicit(&first, memory_order_relaxed),
			      memory_order_relaxed);
	/* Pairs with vb_running_begin(): what was written before is seen. */
	atomic_store_explicit(&first, fabric, memory_order_seq_cst);
}

void vb_running_remove(struct vb_fabric *fabric)
{
	_Atomic(struct vb_fabric *) *link = &first;

	while (atomic_load_explicit(link, memory_order_relaxed) != fabric)
		link = &atomic_load_explicit(link, memory_order_relaxed)->next;
	atomic_store_explicit(link, atomic_load_explicit(&fabric->next, memory_order_relaxed),
			      memory_order_seq_cst);
	while (atomic_load_explicit(&walkers, memory_order_seq_cst))
		sched_yield();
}

void vb_running_forked(void)
{
	atomic_store_explicit(&first, NULL, memory_order_relaxed);
	atomic_store_explicit(&walkers, 0, memory_order_relaxed);
	forks++;
}
