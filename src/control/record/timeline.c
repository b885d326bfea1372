// SPDX-License-Identifier: MIT
/*
 * Owns the recording of the timeline: this process's file, the pieces that its threads write into,
 * and names.
 *
 *	file:  [ head, names | piece of thread 1 | piece of thread 2 | piece of thread 1 | ... ]
 *
 * The file is made at the first note and mapped, as large as it may ever be. Its space on the disk is
 * reserved in steps, each before the former is used up: a program may have many processes that note
 * little, and a note must not be what finds the disk full. A thread takes a piece by one atomic addition. Inside of its piece it counts for
 * itself, in one word that names the piece, too: a note of a signal handler that interrupts one takes
 * the next place, of this piece or of another.
 *
 * Other processes of the user can write to the file. So this process only writes to it, and keeps
 * what it depends on in memory of its own.
 */
#include "control/record/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/env.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/refusal.h"
#include "base/time.h"

enum { DEFAULT_MIB = 64, MOST_MIB = 16384, TRIES = 1000 };

/* Pieces that are reserved at a time, and how many of them are left when the next are. */
enum { STEP = (1 << 20) / VB_TIMELINE_PIECE, MARGIN = STEP / 2 };

enum state { NONE, MAKING, READY, FAILED };

bool vb_timeline_on;

/*
 * enum state; on a page that is NONE again in a child, also in one of _Fork() or clone() that no handler
 * of pthread_atfork() hears of.
 */
static _Atomic int *state;

static struct {
	bool failed;                      /* here, or in a parent: no other try */
	struct vb_timeline_head *head;    /* of this process, or of a parent */
	struct vb_timeline_piece *pieces; /* the first ones are the head */
	const char *dir;
	size_t bytes;
	struct vb_file file;
	int number;                /* of the file, in its name */
	_Atomic uint32_t taken;    /* pieces */
	_Atomic uint32_t reserved; /* pieces */
	_Atomic bool growing;      /* a thread reserves some, or failed to */
	_Atomic uint64_t lost;     /* notes that the file does not count yet */
} timeline;

/*
 * Where this thread writes: the number of its piece << 32 | notes of it that are taken. 0: none yet.
 * Initial exec: a handler may be the first to touch it, and must not allocate.
 */
static _Thread_local _Atomic uint64_t own __attribute__((tls_model("initial-exec")));

uint64_t vb_timeline_now(void)
{
	return vb_now_ns();
}

/* --- the file --------------------------------------------------------------------------------- */

/* A descriptor or -errno. */
static int timeline_open_file(int number, int flags)
{
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s/%d.%d.notes", timeline.dir, (int)getpid(), number);
	int fd;

	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
	return fd < 0 ? -errno : fd;
}

/* A process that executes another program keeps its number: the next one is free. */
static int timeline_make_file(void)
{
	int fd = -EEXIST;

	for (timeline.number = 0; timeline.number < TRIES && fd == -EEXIST; timeline.number++)
		fd = timeline_open_file(timeline.number, O_CREAT | O_EXCL);
	timeline.number--;
	if (fd < 0)
		return fd;
	fd = vb_file_above_stdio(fd);
	return fd < 0 ? -errno : vb_file_keep(&timeline.file, fd);
}

static int timeline_map_file(int fd)
{
	int ret = vb_file_allowed(timeline.bytes);
	void *map;

	if (!ret && ftruncate(fd, (off_t)timeline.bytes))
		ret = -errno;
	if (!ret)
		ret = vb_file_reserve(fd, 0, (uint64_t)STEP * VB_TIMELINE_PIECE, timeline.dir);
	if (ret)
		return ret;
	map = mmap(NULL, timeline.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	timeline.head = map;
	timeline.pieces = map;
	return 0;
}

static int timeline_make(void)
{
	VB_NO_CANCEL;
	int saved = errno, ret = timeline_make_file();

	if (!ret)
		ret = timeline_map_file(timeline.file.fd);
	if (!ret) {
		struct vb_timeline_head *head = timeline.head;

		head->pid = (uint32_t)getpid();
		/* Not the name of the thread that happens to be first. */
		snprintf(head->command, sizeof(head->command), "%s", program_invocation_short_name);
		head->most = (uint32_t)(timeline.bytes / VB_TIMELINE_PIECE);
		atomic_store_explicit(&head->pieces, VB_TIMELINE_FIRST, memory_order_relaxed);
		atomic_store_explicit(&timeline.taken, VB_TIMELINE_FIRST, memory_order_relaxed);
		atomic_store_explicit(&timeline.reserved, STEP, memory_order_relaxed);
		head->magic = VB_TIMELINE_MAGIC;
	} else {
		vb_warn("the timeline is not recorded: %s: %s", timeline.dir, strerror(-ret));
		vb_file_close(&timeline.file);
	}
	errno = saved;
	return ret;
}

/* A note, or those that came while the file was made. */
static void timeline_lose(uint64_t notes)
{
	atomic_fetch_add_explicit(&timeline.lost, notes, memory_order_seq_cst);
	/* Either this sees READY, or who makes the file sees the addition. */
	if (atomic_load_explicit(state, memory_order_seq_cst) == READY)
		atomic_fetch_add_explicit(
			&timeline.head->lost,
			atomic_exchange_explicit(&timeline.lost, 0, memory_order_relaxed),
			memory_order_relaxed);
}

/* What a child has of its parent's recording. The mapping stays: a handler that interrupted a note may have forked. */
static void forget_parent(void)
{
	atomic_store_explicit(&own, 0, memory_order_relaxed);
	atomic_store_explicit(&timeline.lost, 0, memory_order_relaxed);
	atomic_store_explicit(&timeline.growing, false, memory_order_relaxed);
}

/* Whether there is a file. While another thread makes it, or the one that was interrupted: not yet. */
static bool is_ready(void)
{
	int now = atomic_load_explicit(state, memory_order_acquire);

	if (__builtin_expect(now == READY, 1))
		return true;
	if (now != NONE || !atomic_compare_exchange_strong_explicit(
				   state, &now, MAKING, memory_order_acquire, memory_order_relaxed))
		return false;
	if (timeline.head) {
		/* The descriptor is left open: such a child may share it with its parent. */
		forget_parent();
		timeline.file = VB_NO_FILE;
	}
	if (!timeline.failed)
		timeline.failed = timeline_make();
	now = timeline.failed ? FAILED : READY;
	/* Pairs with the load above: who sees READY sees the mapping. And see timeline_lose(). */
	atomic_store_explicit(state, now, memory_order_seq_cst);
	timeline_lose(0);
	return now == READY;
}

/* --- notes ------------------------------------------------------------------------------------ */

static int timeline_reserve(uint64_t from, uint64_t to)
{
	bool kept = vb_file_is_open(&timeline.file);
	/* A program that closes what it did not open leaves us the name. */
	int fd = kept ? timeline.file.fd : timeline_open_file(timeline.number, 0), ret;

	if (fd < 0)
		return fd;
	ret = vb_file_reserve(fd, from, to, timeline.dir);
	if (!kept)
		close(fd);
	return ret;
}

/*
 * The next step, by one thread; the others have pieces meanwhile, as has a signal handler. Where that
 * failed there is no other try, and what is noted behind it is lost.
 */
static void timeline_grow(uint32_t reserved)
{
	VB_NO_CANCEL;
	int saved = errno;

	if (atomic_exchange_explicit(&timeline.growing, true, memory_order_acquire))
		return;
	if (atomic_load_explicit(&timeline.reserved, memory_order_relaxed) == reserved) {
		if (timeline_reserve((uint64_t)reserved * VB_TIMELINE_PIECE,
				     (uint64_t)(reserved + STEP) * VB_TIMELINE_PIECE))
			goto out;
		atomic_store_explicit(&timeline.reserved, reserved + STEP, memory_order_relaxed);
	}
	/* Pairs with the exchange above. */
	atomic_store_explicit(&timeline.growing, false, memory_order_release);
out:
	errno = saved;
}

/* How many pieces there are, after some more were reserved where that is due. */
static uint32_t room_behind(uint32_t at)
{
	uint32_t reserved = atomic_load_explicit(&timeline.reserved, memory_order_relaxed);

	if (at + MARGIN < reserved || reserved >= timeline.bytes / VB_TIMELINE_PIECE)
		return reserved;
	timeline_grow(reserved);
	return atomic_load_explicit(&timeline.reserved, memory_order_relaxed);
}

/* The number of a piece for this thread, or 0: there is no room. */
static uint32_t take_piece(void)
{
	uint32_t at = atomic_load_explicit(&timeline.taken, memory_order_relaxed), shown;
	struct vb_timeline_piece *piece;

	do {
		if (at >= room_behind(at))
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(
		&timeline.taken, &at, at + 1, memory_order_relaxed, memory_order_relaxed));
	piece = &timeline.pieces[at];
	prctl(PR_GET_NAME, piece->name);
	piece->tid = (uint32_t)syscall(SYS_gettid);
	/* A thread that took a later piece may have been faster. */
	shown = atomic_load_explicit(&timeline.head->pieces, memory_order_relaxed);
	while (shown <= at &&
	       !atomic_compare_exchange_weak_explicit(&timeline.head->pieces, &shown, at + 1,
						      memory_order_release, memory_order_relaxed))
		;
	return at;
}

static bool has_place(uint64_t word)
{
	return word >> 32 && (uint32_t)word < VB_TIMELINE_NOTES;
}

/*
 * A place for a note, or NULL. A signal handler may note between any two steps; what an addition
 * returns is this note's alone. The word is read first: it never counts far beyond a piece.
 */
static struct vb_note *timeline_place(void)
{
	uint64_t word = atomic_load_explicit(&own, memory_order_relaxed);
	uint32_t piece;

	if (has_place(word))
		word = atomic_fetch_add_explicit(&own, 1, memory_order_relaxed);
	if (has_place(word))
		return &timeline.pieces[word >> 32].note[(uint32_t)word];
	piece = take_piece();
	if (!piece)
		return NULL;
	atomic_store_explicit(&own, (uint64_t)piece << 32 | 1, memory_order_relaxed);
	return &timeline.pieces[piece].note[0];
}

void vb_timeline_write(const struct vb_note *note)
{
	struct vb_note *to = is_ready() ? timeline_place() : NULL;

	if (!to) {
		timeline_lose(1);
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

/* The child has a file of its own, and only this thread. */
static void timeline_forked(void)
{
	if (!state)
		return;
	forget_parent();
	vb_file_close(&timeline.file);
	atomic_store_explicit(state, NONE, memory_order_relaxed);
}

/* Where the kernel does not wipe pages, children of _Fork() write into the file of their parent. */
static void place_state(void)
{
	static _Atomic int kept;
	void *page = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	state = page == MAP_FAILED ? &kept : page;
	if (state != &kept && madvise(page, sizeof(*state), MADV_WIPEONFORK))
		vb_info("the timeline: madvise: %s", strerror(errno));
}

/* --- calls of the program ------------------------------------------------------------------------ */

static void begin_call(struct vb_call *call)
{
	if (vb_timeline_is_on())
		call->start = vb_timeline_now();
}

static void end_call(const struct vb_call *call)
{
	vb_timeline_write(&(struct vb_note){ .kind = VB_NOTE_CALL,
					     .name = vb_timeline_name(call->function),
					     .object = call->number,
					     .time = call->start,
					     .duration = vb_timeline_now() - call->start });
}

static void timeline_start(void)
{
	static const struct vb_call_watch calls = { begin_call, end_call };
	const char *dir = vb_getenv("VERBATIM_TRACE"), *size = vb_getenv("VERBATIM_TRACE_MIB");
	unsigned long mib = size ? strtoul(size, NULL, 10) : DEFAULT_MIB;

	if (!dir || dir[0] != '/')
		return;
	place_state();
	timeline.file = VB_NO_FILE;
	timeline.dir = strdup(dir);
	timeline.bytes = (mib && mib <= MOST_MIB ? mib : DEFAULT_MIB) << 20;
	if (!timeline.dir || !vb_forks_are_watched())
		return;
	vb_timeline_on = true;
	vb_call_watch(&calls);
}

VB_STAGE(TIMELINE, .start = timeline_start, .child = timeline_forked);
