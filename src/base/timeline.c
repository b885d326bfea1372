// SPDX-License-Identifier: MIT
/*
 * Owns the recording of the timeline: this process's file, the pieces that its threads write into,
 * and names.
 *
 *	file:  [ head, names | piece of thread 1 | piece of thread 2 | piece of thread 1 | ... ]
 *
 * The file is made at the first note, as large as it will ever be, and mapped; its descriptor is
 * closed again. A thread takes a piece by one atomic addition. Inside of its piece it counts for
 * itself: a note of a signal handler that interrupts one takes the next place.
 */
#include "base/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/env.h"
#include "base/file.h"
#include "base/log.h"

enum { DEFAULT_MIB = 64, MOST_MIB = 16384, TRIES = 1000 };

enum state { NONE, MAKING, READY, FAILED };

bool vb_timeline_on;

static struct {
	_Atomic int state;           /* enum state */
	_Atomic uint32_t generation; /* another one in a forked child */
	struct vb_timeline_head *head;
	struct vb_timeline_piece *pieces; /* [0] is the head */
	const char *dir;
	size_t bytes;
} timeline;

/* Where this thread writes; one of another generation is the parent's. */
static _Thread_local struct {
	struct vb_timeline_piece *piece;
	uint32_t generation;
	_Atomic uint32_t used;
} own;

uint64_t vb_timeline_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- the file --------------------------------------------------------------------------------- */

/* A process that executes another program keeps its number: the next one is free. */
static int make_file(void)
{
	char path[4096];

	for (int i = 0; i < TRIES; i++) {
		int n = snprintf(path, sizeof(path), "%s/%d.%d.notes", timeline.dir, (int)getpid(),
				 i);
		int fd;

		if (n < 0 || (size_t)n >= sizeof(path))
			return -ENAMETOOLONG;
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd >= 0 || errno != EEXIST)
			return fd >= 0 ? fd : -errno;
	}
	return -EEXIST;
}

static int map_file(int fd)
{
	void *map;

	if (vb_file_allowed(timeline.bytes))
		return -EFBIG;
	/* Reserved, where the file system can: a note must not be what finds the disk full. */
	if (fallocate(fd, 0, 0, (off_t)timeline.bytes) &&
	    (errno != EOPNOTSUPP || ftruncate(fd, (off_t)timeline.bytes)))
		return -errno;
	map = mmap(NULL, timeline.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	timeline.head = map;
	timeline.pieces = map;
	return 0;
}

static int make(void)
{
	VB_NO_CANCEL;
	int saved = errno, fd = make_file(), ret = fd < 0 ? fd : map_file(fd);

	if (fd >= 0)
		close(fd);
	if (!ret) {
		struct vb_timeline_head *head = timeline.head;

		head->pid = (uint32_t)getpid();
		prctl(PR_GET_NAME, head->command);
		head->most = (uint32_t)(timeline.bytes / VB_TIMELINE_PIECE);
		atomic_store_explicit(&head->pieces, 1, memory_order_relaxed);
		head->magic = VB_TIMELINE_MAGIC;
	} else {
		vb_warn("the timeline is not recorded: %s: %s", timeline.dir, strerror(-ret));
	}
	errno = saved;
	return ret;
}

/* Whether there is a file. While another thread makes it, or the one that was interrupted: not yet. */
static bool is_ready(void)
{
	int state = atomic_load_explicit(&timeline.state, memory_order_acquire);

	if (__builtin_expect(state == READY, 1))
		return true;
	if (state != NONE ||
	    !atomic_compare_exchange_strong_explicit(&timeline.state, &state, MAKING,
						     memory_order_acquire, memory_order_relaxed))
		return false;
	state = make() ? FAILED : READY;
	/* Pairs with the load above: who sees READY sees the mapping. */
	atomic_store_explicit(&timeline.state, state, memory_order_release);
	return state == READY;
}

/* --- notes ------------------------------------------------------------------------------------ */

/* The next piece of this thread, or NULL: the file is full. */
static struct vb_timeline_piece *take_piece(void)
{
	uint32_t at = atomic_load_explicit(&timeline.head->pieces, memory_order_relaxed);
	struct vb_timeline_piece *piece;

	do {
		if (at >= timeline.head->most)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(
		&timeline.head->pieces, &at, at + 1, memory_order_relaxed, memory_order_relaxed));
	piece = &timeline.pieces[at];
	prctl(PR_GET_NAME, piece->name);
	piece->tid = (uint32_t)syscall(SYS_gettid);
	return piece;
}

/* A place for a note, or NULL. */
static struct vb_note *place(void)
{
	uint32_t generation = atomic_load_explicit(&timeline.generation, memory_order_relaxed), at;

	if (own.generation != generation || !own.piece) {
		struct vb_timeline_piece *piece = take_piece();

		/* In this order: a signal handler's note in between takes a piece of its own. */
		atomic_store_explicit(&own.used, 0, memory_order_relaxed);
		own.generation = generation;
		atomic_signal_fence(memory_order_release);
		own.piece = piece;
	}
	if (!own.piece)
		return NULL;
	at = atomic_fetch_add_explicit(&own.used, 1, memory_order_relaxed);
	if (at < VB_TIMELINE_NOTES)
		return &own.piece->note[at];
	own.piece = NULL;
	return place();
}

void vb_timeline_write(const struct vb_note *note)
{
	struct vb_note *to = is_ready() ? place() : NULL;

	if (!to) {
		if (atomic_load_explicit(&timeline.state, memory_order_acquire) == READY)
			atomic_fetch_add_explicit(&timeline.head->lost, 1, memory_order_relaxed);
		return;
	}
	to->time = note->time ? note->time : vb_timeline_now();
	to->extra = note->extra;
	to->object = note->object;
	to->name = note->name;
	to->code = note->code;
	to->value = note->value;
	/* The kind last: a reader, or a killed program's file, has no half notes. */
	atomic_signal_fence(memory_order_release);
	__atomic_store_n(&to->kind, note->kind, __ATOMIC_RELEASE);
}

/* --- names ------------------------------------------------------------------------------------ */

static bool is_name(uint32_t at, const char *text)
{
	return atomic_load_explicit(&timeline.head->name[at].ready, memory_order_acquire) &&
	       !strncmp(timeline.head->name[at].text, text, VB_TIMELINE_NAME_BYTES - 1);
}

/*
 * Names are few, and looked for from a place that their first bytes choose. Two threads may enter
 * one name at the same time: it is there twice then, which does no harm.
 */
uint16_t vb_timeline_name(const char *text)
{
	uint32_t hash = 2166136261u, expected;

	if (!is_ready())
		return 0;
	for (const char *c = text; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 16777619u;
	for (uint32_t i = 0; i < VB_TIMELINE_NAMES; i++) {
		uint32_t at = (hash + i) % VB_TIMELINE_NAMES;

		if (is_name(at, text))
			return (uint16_t)(at + 1);
		expected = 0;
		if (!atomic_compare_exchange_strong_explicit(&timeline.head->name[at].taken,
							     &expected, 1, memory_order_relaxed,
							     memory_order_relaxed))
			continue;
		snprintf(timeline.head->name[at].text, VB_TIMELINE_NAME_BYTES, "%s", text);
		atomic_store_explicit(&timeline.head->name[at].ready, true, memory_order_release);
		return (uint16_t)(at + 1);
	}
	return 0;
}

/* --- start ------------------------------------------------------------------------------------ */

/* The child has a file of its own. The parent's stays mapped: another thread's note may be in it. */
static void after_fork(void)
{
	atomic_fetch_add_explicit(&timeline.generation, 1, memory_order_relaxed);
	if (atomic_load_explicit(&timeline.state, memory_order_relaxed) != FAILED)
		atomic_store_explicit(&timeline.state, NONE, memory_order_relaxed);
}

__attribute__((constructor)) static void start(void)
{
	const char *dir = vb_getenv("VERBATIM_TRACE"), *size = vb_getenv("VERBATIM_TRACE_MIB");
	unsigned long mib = size ? strtoul(size, NULL, 10) : DEFAULT_MIB;

	if (!dir || dir[0] != '/')
		return;
	timeline.dir = strdup(dir);
	timeline.bytes = (mib && mib <= MOST_MIB ? mib : DEFAULT_MIB) << 20;
	if (!timeline.dir || pthread_atfork(NULL, NULL, after_fork))
		return;
	vb_timeline_on = true;
}
