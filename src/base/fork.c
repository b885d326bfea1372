// SPDX-License-Identifier: MIT
/*
 * Owns the table of fork.h, the process's one handler of forks, and the walks over the table.
 *
 *	stage      row of one library   of another
 *	LOCKS    [ libverbatim        |              |   |   ]
 *	...
 *	SPACES   [ libflexio          | a test's own |   |   ]
 *
 * The table has copies of what the rows say, so that no walk reads memory of a library that another
 * thread unloads. A place is taken by an atomic exchange and has its row's calls before it is READY;
 * nothing here waits. Stages above libverbatim may be there more than once, because tools and tests link
 * parts of libflexio as well.
 */
#include "base/fork.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mask.h"

enum { COPIES = 4 };

enum place_state { FREE, TAKEN, READY };

static struct place {
	_Atomic uint32_t state;
	const void *from; /* the row, as a name: not read */
	vb_stage_call *prepare, *parent, *child;
} table[VB_STAGES][COPIES];

/* Of forks that this thread is in the middle of: a handler of a fork may fork itself. */
static _Thread_local struct {
	unsigned int depth;
	bool ready;       /* all is prepared: a handler of the program's may be running */
	bool early;       /* that handler has called us in the child, which is reset already */
	unsigned int out; /* calls of that handler that are under way, one in the other */
	pid_t pid;        /* of the parent */
	sigset_t mask;    /* before it began */
	uint8_t prepared[VB_STAGES]; /* a bit for each place whose prepare was called */
} forking __attribute__((tls_model("initial-exec")));

/* --- forks ------------------------------------------------------------------------------------ */

static bool place_is_ready(const struct place *place)
{
	/* Pairs with place_fill(). */
	return atomic_load_explicit(&((struct place *)place)->state, memory_order_acquire) == READY;
}

static void table_prepare(void)
{
	for (unsigned int stage = VB_STAGES; stage-- > 0;) {
		forking.prepared[stage] = 0;
		for (unsigned int i = 0; i < COPIES; i++) {
			const struct place *place = &table[stage][i];

			if (!place_is_ready(place) || !place->prepare)
				continue;
			forking.prepared[stage] |= (uint8_t)(1 << i);
			place->prepare();
		}
	}
	forking.pid = getpid();
	forking.ready = true;
}

/*
 * What was prepared is ended, also where exit() in another thread has taken the row away meanwhile, and
 * what came meanwhile is not.
 */
static void table_parent(void)
{
	forking.ready = false;
	for (unsigned int stage = 0; stage < VB_STAGES; stage++)
		for (unsigned int i = 0; i < COPIES; i++) {
			const struct place *place = &table[stage][i];

			if (forking.prepared[stage] & 1 << i && place->parent)
				place->parent();
		}
}

static void table_child(void)
{
	forking.ready = false;
	for (unsigned int stage = 0; stage < VB_STAGES; stage++)
		for (unsigned int i = 0; i < COPIES; i++) {
			const struct place *place = &table[stage][i];

			if ((forking.prepared[stage] & 1 << i || place_is_ready(place)) &&
			    place->child)
				place->child();
		}
}

static void fork_prepare(void)
{
	int saved = errno;
	sigset_t before;

	if (forking.depth++)
		return;
	vb_signal_block(&before);
	forking.mask = before;
	table_prepare();
	errno = saved;
}

static void fork_parent(void)
{
	sigset_t before = forking.mask;
	int saved = errno;

	if (--forking.depth)
		return;
	table_parent();
	vb_signal_unblock(&before);
	errno = saved;
}

/* The child of a fork inside of another one goes on in that one, and so needs its locks again. */
static void fork_child(void)
{
	sigset_t before = forking.mask;
	int saved = errno;

	if (!forking.early)
		table_child();
	forking.early = false;
	if (--forking.depth)
		table_prepare();
	else
		vb_signal_unblock(&before);
	errno = saved;
}

void vb_fork_step_out(void)
{
	int saved = errno;

	if (__builtin_expect(!forking.ready && !forking.out, 1))
		return;
	if (forking.out++)
		return;
	if (getpid() == forking.pid) {
		table_parent();
	} else {
		table_child();
		forking.early = true;
	}
	errno = saved;
}

void vb_fork_step_in(void)
{
	int saved = errno;

	if (__builtin_expect(!forking.out, 1) || --forking.out || forking.early)
		return;
	table_prepare();
	errno = saved;
}

static _Atomic bool watched;

/* What pthread_atfork() calls, with the library that the handlers are of. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
		      void *library);

/*
 * With the first row, which is libverbatim's: while this library is loaded, and by one thread.
 *
 * As handlers of no library: those of one leave libc's list at exit(), although another thread may be in the
 * middle of a fork. glibc 2.36 and later then end the process, or leave parent and child with what was prepared.
 * The code stays: libverbatim is never unloaded, nor is a program that has this file in it.
 */
static void forks_watch(void)
{
	static _Atomic bool begun;

	if (!atomic_exchange_explicit(&begun, true, memory_order_relaxed))
		atomic_store_explicit(
			&watched, !__register_atfork(fork_prepare, fork_parent, fork_child, NULL),
			memory_order_relaxed);
}

bool vb_forks_are_watched(void)
{
	return atomic_load_explicit(&watched, memory_order_relaxed);
}

/* --- rows ------------------------------------------------------------------------------------- */

static void place_fill(struct place *place, const struct vb_stage_row *row)
{
	place->from = row;
	place->prepare = row->prepare;
	place->parent = row->parent;
	place->child = row->child;
	atomic_store_explicit(&place->state, READY, memory_order_release);
}

static void row_add(const struct vb_stage_row *row)
{
	for (unsigned int i = 0; i < COPIES; i++) {
		struct place *place = &table[row->stage][i];
		uint32_t expected = FREE;

		if (atomic_compare_exchange_strong_explicit(&place->state, &expected, TAKEN,
							    memory_order_acquire,
							    memory_order_relaxed)) {
			place_fill(place, row);
			return;
		}
	}
	vb_error("more than %d libraries of one kind: a forked child may wait for ever", COPIES);
}

static void row_remove(const struct vb_stage_row *row)
{
	for (unsigned int i = 0; i < COPIES; i++) {
		struct place *place = &table[row->stage][i];

		if (place_is_ready(place) && place->from == row)
			atomic_store_explicit(&place->state, FREE, memory_order_release);
	}
}

void vb_stages_join(const struct vb_stage_row *const *rows, size_t count)
{
	forks_watch();
	for (size_t i = 0; i < count; i++)
		row_add(rows[i]);
	for (unsigned int stage = 0; stage < VB_STAGES; stage++)
		for (size_t i = 0; i < count; i++)
			if (rows[i]->stage == stage && rows[i]->start)
				rows[i]->start();
}

void vb_stages_leave(const struct vb_stage_row *const *rows, size_t count)
{
	for (unsigned int stage = VB_STAGES; stage-- > 0;)
		for (size_t i = 0; i < count; i++)
			if (rows[i]->stage == stage && rows[i]->exit)
				rows[i]->exit();
	/* The table's own library is not unloaded: its rows are for forks of other threads until the end. */
	for (size_t i = 0; i < count; i++)
		if (rows[i]->image != &vb_stage_image)
			row_remove(rows[i]);
}
