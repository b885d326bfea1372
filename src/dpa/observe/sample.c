// SPDX-License-Identifier: MIT
/*
 * Owns profiles of device code: where threads are each time they have retired so many instructions.
 *
 *	thread's instructions   0 ........|.........|.........|....      a sample at period/2, then every period:
 *	                                  pc, callers --> table          the same program has the same samples
 *
 * A thread is stopped exactly there by the budget that it runs on anyway, so that it runs translated
 * in between, and a process without a profile pays for the look at one pointer each slice.
 *
 * VERBATIM_DPA_PROFILE names a folder. Each process leaves two files there: PID-N.elf, the program, and
 * PID-N.samples, written at the end of the process or of the host program, and every other second
 * before, so that what is killed leaves something, too:
 *
 *	verbatim-profile 1
 *	period N
 *	lost N                     samples for which there was no memory
 *	COUNT PC CALLER...         addresses as in the file, callers as return addresses, the innermost first
 *	end                        of a process that has ended; missing where the program was killed
 *
 * N is the first number for which there is no file yet: the process may have run another program before.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mask.h"

#define PERIOD_DEFAULT 100003 /* a prime: loops seldom have a multiple of it */
#define PERIOD_MAX     1000000000000ULL
#define WRITE_NS       2000000000ULL
#define CALLERS        64

struct place {
	uint64_t count; /* 0: empty */
	unsigned int n; /* addresses: pc and callers */
	uint64_t *addrs;
};

struct samples {
	struct samples *next; /* of all; under all_lock */
	struct vb_dpa_process *process;
	uint64_t period;
	char path[PATH_MAX]; /* without the ending */
	bool inherited; /* by a fork: the child has nothing to write, and its locks are nobody's */
	void *elf;
	pthread_mutex_t lock; /* of all below */
	struct vb_unwinder *unwinder;
	struct place *table;
	size_t room, used; /* room: a power of two */
	uint64_t lost, written_at;
	bool ended; /* all that follows is the same */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct samples *all;
static unsigned int numbers;

/* No handler of the program runs in a thread that has one of the two: exit() takes them, too. */
static void sample_lock(pthread_mutex_t *lock, sigset_t *before)
{
	vb_signal_block(before);
	pthread_mutex_lock(lock);
}

static void sample_unlock(pthread_mutex_t *lock, const sigset_t *before)
{
	pthread_mutex_unlock(lock);
	vb_signal_unblock(before);
}

/* ---- the table, under lock ---- */

static size_t sample_slot_of(const struct samples *s, const uint64_t *addrs, unsigned int n)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (unsigned int i = 0; i < n; i++)
		hash = (hash ^ addrs[i]) * 0x100000001b3ULL;
	return (hash ^ hash >> 32) & (s->room - 1);
}

/* The place of these addresses, or the empty one where it belongs. */
static struct place *sample_find(const struct samples *s, const uint64_t *addrs, unsigned int n)
{
	size_t i = sample_slot_of(s, addrs, n);

	while (s->table[i].count &&
	       (s->table[i].n != n || memcmp(s->table[i].addrs, addrs, n * sizeof(*addrs)) != 0))
		i = (i + 1) & (s->room - 1);
	return &s->table[i];
}

static int sample_grow(struct samples *s)
{
	struct place *old = s->table;
	size_t room = s->room;

	s->table = calloc(room * 2, sizeof(*s->table));
	if (!s->table) {
		s->table = old;
		return -ENOMEM;
	}
	s->room = room * 2;
	for (size_t i = 0; i < room; i++)
		if (old[i].count)
			*sample_find(s, old[i].addrs, old[i].n) = old[i];
	free(old);
	return 0;
}

static void sample_add(struct samples *s, const uint64_t *addrs, unsigned int n)
{
	struct place *place = sample_find(s, addrs, n);

	if (!place->count) {
		if (s->used * 2 >= s->room && !sample_grow(s))
			place = sample_find(s, addrs, n);
		if (s->used + 1 < s->room)
			place->addrs = malloc(n * sizeof(*addrs));
		if (!place->addrs) {
			s->lost++;
			return;
		}
		memcpy(place->addrs, addrs, n * sizeof(*addrs));
		place->n = n;
		s->used++;
	}
	place->count++;
}

/* ---- files ---- */

static void write_places(const struct samples *s, FILE *f)
{
	fprintf(f, "verbatim-profile 1\nperiod %" PRIu64 "\nlost %" PRIu64 "\n", s->period,
		s->lost);
	for (size_t i = 0; i < s->room; i++) {
		const struct place *place = &s->table[i];

		if (!place->count)
			continue;
		fprintf(f, "%" PRIu64, place->count);
		for (unsigned int k = 0; k < place->n; k++)
			fprintf(f, " %" PRIx64, place->addrs[k]);
		fputc('\n', f);
	}
	if (s->ended)
		fputs("end\n", f);
}

/*
 * A file above standard output, which the program may have closed. All of it or -errno: a limit on files
 * (ulimit -f) ends no program. flags: O_TRUNC or O_EXCL.
 */
static int sample_write_file(const char *path, int flags, const void *bytes, size_t len)
{
	int fd = vb_file_above_stdio(
		open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | flags, 0666));
	const char *at = bytes;
	int err = fd < 0 ? -errno : 0;

	if (fd < 0)
		return err;
	while (!err && len) {
		ssize_t n = vb_file_write(fd, at, len);

		if (n < 0 && errno != EINTR)
			err = -errno;
		at += n < 0 ? 0 : n;
		len -= n < 0 ? 0 : (size_t)n;
	}
	if (close(fd) && !err)
		err = -errno;
	if (err)
		unlink(path);
	return err;
}

/* Under lock. A reader finds the file before or after, never half of it. */
static void write_samples(struct samples *s)
{
	char path[PATH_MAX + 16], to[PATH_MAX + 16], *text = NULL;
	size_t len = 0;
	FILE *f;
	int err;

	s->written_at = vb_machine_ns();
	if (s->inherited)
		return;
	snprintf(path, sizeof(path), "%s.new", s->path);
	snprintf(to, sizeof(to), "%s.samples", s->path);
	f = open_memstream(&text, &len);
	if (f)
		write_places(s, f);
	err = !f || fclose(f) ? -ENOMEM : sample_write_file(path, O_TRUNC, text, len);
	free(text);
	if (!err && rename(path, to))
		err = -errno;
	if (err)
		vb_warn("dpa: no profile: %s: %s", to, strerror(-err));
}

/* Under all_lock: the program, in a file of a name that nobody has. */
static int write_elf(struct samples *s, const char *dir, size_t len)
{
	char path[PATH_MAX + 16];
	int err;

	do {
		if (snprintf(s->path, sizeof(s->path), "%s/%d-%u", dir, (int)getpid(), ++numbers) >=
		    (int)sizeof(s->path))
			return -ENAMETOOLONG;
		snprintf(path, sizeof(path), "%s.elf", s->path);
		err = sample_write_file(path, O_EXCL, s->elf, len);
	} while (err == -EEXIST);
	return err;
}

static void sample_at_exit(void)
{
	sigset_t before;

	sample_lock(&all_lock, &before);
	for (struct samples *s = all; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		s->ended = true;
		write_samples(s);
		pthread_mutex_unlock(&s->lock);
	}
	sample_unlock(&all_lock, &before);
}

/* The child may end, or begin processes of its own; threads that had the locks are not there. */
static void samples_forked(void)
{
	for (struct samples *s = all; s; s = s->next)
		s->inherited = true;
	all = NULL;
	pthread_mutex_init(&all_lock, NULL);
}

VB_STAGE(SAMPLES, .child = samples_forked);

/* ---- taking ---- */

static int read_word(void *arg, uint64_t addr, uint64_t *word)
{
	struct vb_dpa_process *process = arg;

	return vb_space_read(&process->space, addr, word, sizeof(*word));
}

/*
 * By the host thread that runs it, which stands before the instruction that the sample is of: where it
 * is, and its callers. How many addresses; 0: a child of fork() has no profile.
 */
static unsigned int sample_look(struct samples *s, struct vb_dpa_thread *thread, uint64_t *addrs)
{
	const struct vb_dpa_state *state = &thread->cpu.s;
	uint64_t bias = s->process->program.bias;
	unsigned int n = 0, found = 0;
	sigset_t before;

	if (s->inherited)
		return 0;
	addrs[0] = state->pc;
	sample_lock(&s->lock, &before);
	if (s->unwinder)
		found = vb_unwinder_walk(s->unwinder, state, read_word, s->process, addrs + 1,
					 CALLERS);
	sample_unlock(&s->lock, &before);
	/* Between the end of a frame and the return compilers describe the frame that was. */
	while (n < found && vb_text_holds(&s->process->text, addrs[1 + n] - 2))
		n++;
	if (!n)
		n = vb_dpa_backtrace(thread, state, addrs + 1, CALLERS);
	for (unsigned int i = 0; i <= n; i++)
		addrs[i] -= bias;
	return n + 1;
}

/* It was executed. */
static void sample_keep(struct samples *s, const uint64_t *addrs, unsigned int n)
{
	sigset_t before;

	if (s->inherited)
		return;
	sample_lock(&s->lock, &before);
	sample_add(s, addrs, n);
	if (vb_machine_ns() - s->written_at > WRITE_NS)
		write_samples(s);
	sample_unlock(&s->lock, &before);
}

/*
 * A thread may stand where nothing is executed: behind the return of a call, or before an instruction
 * that traps or waits. The sample is then of what it executes next, wherever that is.
 */
enum vb_dpa_why vb_sample_pass(struct vb_dpa_thread *thread, uint64_t max, bool exact,
			       bool *yielded, vb_sample_run *run)
{
	struct samples *s = thread->process->samples;
	uint64_t start = thread->cpu.s.instret, addrs[1 + CALLERS];
	enum vb_dpa_why why;

	if (!thread->sampled) {
		thread->sampled = true;
		thread->sample_next = start + s->period / 2;
	}
	for (;;) {
		uint64_t at = thread->cpu.s.instret, left = max - (at - start), until;
		bool due = at >= thread->sample_next;
		unsigned int n = due ? sample_look(s, thread, addrs) : 0;

		until = thread->sample_next + (due ? s->period : 0) - at;
		why = until > left ? run(thread, left, exact, yielded)
				   : run(thread, until, true, yielded);
		if (due && thread->cpu.s.instret != at) {
			if (n)
				sample_keep(s, addrs, n);
			thread->sample_next += s->period;
		}
		if (until > left || why != VB_DPA_WHY_BUDGET || *yielded ||
		    thread->cpu.s.instret - start >= max)
			return why;
	}
}

/* ---- begin, end ---- */

static int read_period(uint64_t *period)
{
	const char *text = vb_getenv("VERBATIM_DPA_PROFILE_PERIOD");
	char *end;

	*period = PERIOD_DEFAULT;
	if (!text || !*text)
		return 0;
	errno = 0;
	*period = strtoull(text, &end, 10);
	return errno || *end || *text == '-' || !*period || *period > PERIOD_MAX ? -EINVAL : 0;
}

static struct samples *samples_new(struct vb_dpa_process *process, const void *elf, size_t len)
{
	struct samples *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->process = process;
	s->room = 1024;
	s->table = calloc(s->room, sizeof(*s->table));
	s->elf = malloc(len);
	if (!s->table || !s->elf) {
		free(s->table);
		free(s->elf);
		free(s);
		return NULL;
	}
	memcpy(s->elf, elf, len);
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

int vb_sample_begin(struct vb_dpa_process *process, const void *elf, size_t len,
		    struct vb_dpa_error *error)
{
	const char *dir = vb_getenv("VERBATIM_DPA_PROFILE");
	struct samples *s;
	int err;
	sigset_t before;

	if (!dir || !*dir)
		return 0;
	s = samples_new(process, elf, len);
	if (!s)
		return vb_elf_fail(error, -ENOMEM, "no memory for a profile");
	process->samples = s;
	if (read_period(&s->period))
		return vb_elf_fail(error, -EINVAL,
				   "VERBATIM_DPA_PROFILE_PERIOD=%s is not a number of instructions",
				   vb_getenv("VERBATIM_DPA_PROFILE_PERIOD"));
	sample_lock(&all_lock, &before);
	if (!numbers && (atexit(sample_at_exit) || !vb_forks_are_watched()))
		err = -ENOMEM;
	else
		err = write_elf(s, dir, len);
	if (!err) {
		s->next = all;
		all = s;
	}
	sample_unlock(&all_lock, &before);
	if (err)
		return vb_elf_fail(error, -EINVAL, "VERBATIM_DPA_PROFILE=%s: %s", dir,
				   strerror(-err));
	s->unwinder = vb_unwinder_open(process, s->elf, len);
	s->written_at = vb_machine_ns();
	return 0;
}

void vb_sample_end(struct vb_dpa_process *process)
{
	struct samples *s = process->samples, **link;
	sigset_t before;

	if (!s)
		return;
	sample_lock(&all_lock, &before);
	for (link = &all; *link && *link != s; link = &(*link)->next)
		;
	if (*link) {
		*link = s->next;
		s->ended = true;
		write_samples(s);
	}
	sample_unlock(&all_lock, &before);
	if (s->unwinder)
		vb_unwinder_close(s->unwinder);
	for (size_t i = 0; i < s->room; i++)
		free(s->table[i].addrs);
	pthread_mutex_destroy(&s->lock);
	free(s->table);
	free(s->elf);
	free(s);
	process->samples = NULL;
}
