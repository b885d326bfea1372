// SPDX-License-Identifier: MIT
/*
 * Random sequences of allocations, mappings and forks. Prints what each call returned, and errno also
 * where it succeeded, so that two runs can be compared, one with the allocator of `verbatim run` and one
 * with plain libc; addresses are not printed. What memory holds is compared with what was written there,
 * all the time. Debuggers store, too: through /proc/self/mem, and with ptrace().
 *
 * usage: sequence SEED STEPS THREADS
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "start.h"

extern pid_t _Fork(void);

enum { QUIET = 99 }; /* errno before each call, and after those that succeed */

enum { PAGE = 4096, THINGS = 24, MOST = 96 * PAGE, PAGES = MOST / PAGE, LOG = 1 << 21 };

enum kind { NOTHING, BLOCK, MAPPING };

struct thing {
	enum kind kind;
	unsigned char *at;
	size_t len;
	unsigned char *copy;       /* what it holds, of MOST bytes */
	unsigned char prot[PAGES]; /* of mappings */
	unsigned char gone[PAGES]; /* unmapped since */
	unsigned char nofork[PAGES];
	unsigned short marks[PAGES]; /* advice that the kernel keeps with the mapping */
	bool moved;                  /* the kernel joins it with no other memory */
	bool mixed;                  /* ... and may never again take it for one mapping */
};

struct run {
	uint64_t random;
	int steps;
	struct thing things[THINGS];
	char *log;
	size_t used;
	int pipe[2];
	bool alone; /* the only thread */
	int mem;    /* /proc/self/mem */
};

/* Stores in the first process, as debuggers do: asked for by one pipe, and answered by the other. */
static struct {
	pid_t of;
	int ask[2], answer[2];
} tracer;

static uint64_t next(struct run *run, uint64_t below)
{
	run->random ^= run->random << 13;
	run->random ^= run->random >> 7;
	run->random ^= run->random << 17;
	return (run->random >> 11) % below;
}

__attribute__((format(printf, 2, 3))) static void note(struct run *run, const char *form, ...)
{
	va_list args;

	va_start(args, form);
	run->used += (size_t)vsnprintf(run->log + run->used, LOG - run->used, form, args);
	va_end(args);
	if (run->used >= LOG - 256)
		run->used = LOG - 256;
}

static void die(const char *what, const struct thing *thing, size_t at)
{
	fprintf(stderr, "sequence: %s, byte %zu of %zu: %#x, should be %#x\n", what, at, thing->len,
		thing->at[at], thing->copy[at]);
	_exit(98);
}

static size_t pages_of(const struct thing *thing)
{
	return (thing->len + PAGE - 1) / PAGE;
}

/* Bytes of page i that belong to it, from *from on. */
static size_t span(const struct thing *thing, size_t i)
{
	size_t left = thing->len - i * PAGE;

	return left < PAGE ? left : PAGE;
}

static void check(const struct thing *thing, const char *when)
{
	for (size_t i = 0; i < pages_of(thing); i++) {
		if (thing->gone[i] || !(thing->prot[i] & PROT_READ))
			continue;
		for (size_t b = i * PAGE; b < i * PAGE + span(thing, i); b++)
			if (thing->at[b] != thing->copy[b])
				die(when, thing, b);
	}
}

static void fill(struct run *run, struct thing *thing)
{
	for (size_t i = 0; i < pages_of(thing); i++) {
		if (thing->gone[i] || !(thing->prot[i] & PROT_WRITE))
			continue;
		for (size_t b = i * PAGE; b < i * PAGE + span(thing, i); b += 1 + next(run, 512))
			thing->at[b] = thing->copy[b] = (unsigned char)next(run, 256);
	}
}

static size_t some_size(struct run *run)
{
	switch (next(run, 4)) {
	case 0:
		return 1 + next(run, 3 * PAGE);
	case 1:
		return 60000 + next(run, 12000);
	default:
		return 1 + next(run, MOST);
	}
}

/* What is new holds whatever is there, or zeros. */
static void begin(struct run *run, struct thing *thing, enum kind kind, void *at, size_t len,
		  bool zero)
{
	note(run, " %s\n", at && at != MAP_FAILED ? "ok" : "none");
	if (!at || at == MAP_FAILED)
		return;
	thing->kind = kind;
	thing->at = at;
	thing->len = len;
	memset(thing->prot, PROT_READ | PROT_WRITE, sizeof(thing->prot));
	memset(thing->gone, 0, sizeof(thing->gone));
	memset(thing->nofork, 0, sizeof(thing->nofork));
	memset(thing->marks, 0, sizeof(thing->marks));
	thing->moved = thing->mixed = false;
	if (zero)
		memset(thing->copy, 0, len);
	else
		memcpy(thing->copy, at, len);
	check(thing, "new memory");
	fill(run, thing);
}

static void allocate(struct run *run, struct thing *thing)
{
	size_t size = some_size(run), align = (size_t)PAGE << next(run, 7);
	uint64_t which = next(run, 9);
	void *p = NULL;
	int ret = 0;

	note(run, "allocate %llu %zu %zu", (unsigned long long)which, size, align);
	errno = QUIET;
	switch (which) {
	case 0:
		p = malloc(size);
		align = 16;
		break;
	case 1:
		p = calloc(size / 8 + 1, 8);
		size = (size / 8 + 1) * 8 > MOST ? MOST : (size / 8 + 1) * 8;
		align = 16;
		break;
	case 2:
		ret = posix_memalign(&p, align, size);
		break;
	case 3:
		p = aligned_alloc(align, size);
		break;
	case 4:
		p = memalign(align, size);
		break;
	case 5:
		p = valloc(size);
		align = PAGE;
		break;
	case 6:
		p = pvalloc(size);
		align = PAGE;
		size = malloc_usable_size(p) >= pages_of(&(struct thing){ .len = size }) * PAGE
			       ? size
			       : 0;
		break;
	case 7:
		ret = posix_memalign(&p, 64, size);
		align = 64;
		break;
	case 8:
		p = reallocarray(NULL, size, 1);
		align = 16;
		break;
	}
	note(run, " %d %d aligned %d usable %d", ret, errno, !((uintptr_t)p % align),
	     malloc_usable_size(p) >= size);
	begin(run, thing, BLOCK, p, size, which == 1);
}

static void map(struct run *run, struct thing *thing)
{
	size_t size = some_size(run);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (next(run, 4) ? 0 : MAP_POPULATE);

	void *p;

	errno = QUIET;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
	note(run, "mmap %zu %d: %d", size, flags, errno);
	begin(run, thing, MAPPING, p, pages_of(&(struct thing){ .len = size }) * PAGE, true);
}

/* --- what blocks can do ----------------------------------------------------------------------- */

static void resize(struct run *run, struct thing *thing)
{
	size_t size = some_size(run), before = thing->len;
	unsigned char *p;

	errno = QUIET;
	p = realloc(thing->at, size);
	note(run, "realloc %zu %zu %s %d usable %d\n", before, size, p ? "ok" : "none", errno,
	     malloc_usable_size(p) >= size);
	if (!p)
		return;
	thing->at = p;
	thing->len = before < size ? before : size;
	check(thing, "after realloc");
	thing->len = size;
	if (size > before)
		memcpy(thing->copy + before, p + before, size - before);
	fill(run, thing);
}

static void end(struct run *run, struct thing *thing)
{
	size_t from = 0;

	check(thing, "before the end");
	errno = QUIET;
	if (thing->kind == BLOCK)
		free(thing->at);
	else
		for (size_t i = 0; i <= pages_of(thing); i++)
			if (i == pages_of(thing) || thing->gone[i]) {
				if (i > from && munmap(thing->at + from * PAGE, (i - from) * PAGE))
					note(run, "munmap: %d\n", errno);
				from = i + 1;
			}
	note(run, "end %d %d\n", thing->kind, errno);
	thing->kind = NOTHING;
}

/* --- what mappings can do --------------------------------------------------------------------- */

/* Pages of it without a hole among them. */
static size_t choose(struct run *run, const struct thing *thing, size_t *count)
{
	size_t first = next(run, pages_of(thing));

	*count = 0;
	while (first + *count < pages_of(thing) && !thing->gone[first + *count] && next(run, 12))
		++*count;
	return first;
}

static void protect(struct run *run, struct thing *thing)
{
	static const int prots[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
				     PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC };
	int prot = prots[next(run, 5)], ret;
	size_t count, first = choose(run, thing, &count);

	if (!count)
		return;
	errno = QUIET;
	ret = mprotect(thing->at + first * PAGE, count * PAGE, prot);
	note(run, "mprotect %zu %zu %d: %d %d\n", first, count, prot, ret, errno);
	if (!ret)
		memset(thing->prot + first, prot, count);
}

/* One bit for each advice that the kernel keeps, but those that exclude each other. */
static void mark(struct thing *thing, size_t first, size_t count, int advice)
{
	static const struct {
		int advice, clear, set;
	} rules[] = {
		{ MADV_HUGEPAGE, 2, 1 },   { MADV_NOHUGEPAGE, 1, 2 },  { MADV_SEQUENTIAL, 0, 4 },
		{ MADV_DONTFORK, 0, 8 },   { MADV_DOFORK, 8, 0 },      { MADV_DONTDUMP, 0, 16 },
		{ MADV_MERGEABLE, 0, 32 }, { MADV_WIPEONFORK, 0, 64 },
	};

	for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++)
		for (size_t i = first; rules[r].advice == advice && i < first + count; i++)
			thing->marks[i] = (unsigned short)((thing->marks[i] & ~rules[r].clear) |
							   rules[r].set);
}

static void advise(struct run *run, struct thing *thing)
{
	static const int advices[] = {
		MADV_DONTNEED,  MADV_DONTNEED,   MADV_FREE,     MADV_HUGEPAGE,   MADV_NOHUGEPAGE,
		MADV_WILLNEED,  MADV_SEQUENTIAL, MADV_DONTFORK, MADV_DOFORK,     MADV_DONTDUMP,
		MADV_MERGEABLE, MADV_REMOVE,     MADV_COLD,     MADV_WIPEONFORK, 12345,
	};
	int advice = advices[next(run, sizeof(advices) / sizeof(advices[0]))], ret;
	size_t count, first = choose(run, thing, &count);

	if (!count || (advice == MADV_WIPEONFORK && next(run, 4)))
		return;
	errno = QUIET;
	ret = madvise(thing->at + first * PAGE, count * PAGE, advice);
	note(run, "madvise %zu %zu %d: %d %d\n", first, count, advice, ret, errno);
	if (ret)
		return;
	mark(thing, first, count, advice);
	for (size_t i = first; i < first + count; i++) {
		unsigned char *at = thing->at + i * PAGE, *copy = thing->copy + i * PAGE;

		if (advice == MADV_DONTNEED)
			memset(copy, 0, PAGE);
		if (advice == MADV_FREE && thing->prot[i] & PROT_WRITE) /* old, or zero */
			memset(at, 1, PAGE), memset(copy, 1, PAGE);
		else if (advice == MADV_FREE)
			thing->gone[i] = !munmap(at, PAGE);
		if (advice == MADV_DONTFORK)
			thing->nofork[i] |= 1;
		if (advice == MADV_DOFORK)
			thing->nofork[i] &= 2;
		if (advice == MADV_WIPEONFORK)
			thing->nofork[i] |= 2;
	}
}

static sigjmp_buf fault_back;
static volatile int fault_code, fault_expected;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (!fault_expected) {
		signal(sig, SIG_DFL); /* comes again, and ends us */
		return;
	}
	fault_code = info->si_code;
	siglongjmp(fault_back, sig);
}

/* Of pages that were unmapped just now, and of all around them. Nobody maps anything meanwhile. */
static void ask_of_hole(struct run *run, struct thing *thing, size_t first, size_t count)
{
	unsigned char *at = thing->at + first * PAGE, in[PAGES];
	size_t all = pages_of(thing) * PAGE;
	int how = (int)next(run, 7), ret = 0;

	errno = QUIET;
	switch (how) {
	case 0:
		ret = mincore(at, count * PAGE, in);
		break;
	case 1:
		ret = msync(thing->at, all, MS_ASYNC);
		break;
	case 2:
		ret = mlock(at, PAGE);
		break;
	case 3:
		ret = madvise(thing->at, all, MADV_WILLNEED);
		break;
	case 4:
		ret = mprotect(at, PAGE, PROT_READ);
		break;
	case 5:
		ret = mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED;
		break;
	default:
		fault_expected = 1;
		if (!sigsetjmp(fault_back, 1))
			ret = *(volatile unsigned char *)at;
		fault_expected = 0;
		errno = fault_code;
	}
	note(run, "hole %d: %d %d\n", how, how == 6 ? 0 : ret, errno);
}

static void unmap(struct run *run, struct thing *thing)
{
	size_t count, first = choose(run, thing, &count);
	int ret;

	if (!count)
		return;
	errno = QUIET;
	ret = munmap(thing->at + first * PAGE, count * PAGE);
	note(run, "munmap %zu %zu: %d %d\n", first, count, ret, errno);
	if (ret)
		return;
	memset(thing->gone + first, 1, count);
	if (run->alone)
		ask_of_hole(run, thing, first, count);
}

static void lock(struct run *run, struct thing *thing)
{
	size_t count, first = choose(run, thing, &count);
	int ret, undo;

	if (!count)
		return;
	for (size_t i = first; i < first + count; i++)
		if (!(thing->prot[i] & PROT_READ))
			return;
	errno = QUIET;
	ret = next(run, 2) ? mlock(thing->at + first * PAGE, count * PAGE)
			   : mlock2(thing->at + first * PAGE, count * PAGE, MLOCK_ONFAULT);
	note(run, "mlock %zu %zu: %d %d\n", first, count, ret, errno);
	errno = QUIET;
	undo = madvise(thing->at + first * PAGE, count * PAGE, MADV_DONTNEED);
	note(run, "advice on locked pages: %d %d\n", undo, errno);
	if (!next(run, 3))
		note(run, "msync of locked pages: %d\n",
		     msync(thing->at + first * PAGE, count * PAGE, MS_INVALIDATE) ? errno : 0);
	errno = QUIET;
	if (!undo)
		memset(thing->copy + first * PAGE, 0, count * PAGE);
	ret = munlock(thing->at + first * PAGE, count * PAGE);
	note(run, "munlock: %d %d\n", ret, errno);
}

/* Whether the page is as fresh memory is: the kernel then takes both for one mapping. */
static bool is_fresh(const struct thing *thing, size_t i)
{
	return i < pages_of(thing) && !thing->gone[i] && !thing->marks[i] &&
	       thing->prot[i] == (PROT_READ | PROT_WRITE);
}

/* Other memory at the same place; hole: nothing is there before. */
static void map_over(struct run *run, struct thing *thing)
{
	size_t count, first = choose(run, thing, &count);
	unsigned char *at = thing->at + first * PAGE;
	bool hole = run->alone && next(run, 2);
	void *p;

	if (!count)
		return;
	if (hole)
		note(run, "refill %d ", munmap(at, count * PAGE));
	errno = QUIET;
	p = mmap(at, count * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | (hole && next(run, 2) ? 0 : MAP_FIXED), -1, 0);
	note(run, "over %zu %zu: %d %d\n", first, count, p == at, errno);
	if (p != at)
		_exit(95);
	memset(thing->prot + first, PROT_READ | PROT_WRITE, count);
	memset(thing->nofork + first, 0, count);
	memset(thing->marks + first, 0, count * sizeof(thing->marks[0]));
	memset(thing->copy + first * PAGE, 0, count * PAGE);
	thing->mixed |= count < pages_of(thing) &&
			(thing->moved || (!(first && is_fresh(thing, first - 1)) &&
					  !is_fresh(thing, first + count)));
}

/* Pages of the thing that differ, as far as one mapping cannot. */
static bool is_whole(const struct thing *thing, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++)
		if (thing->gone[i] || thing->prot[i] != thing->prot[first] ||
		    thing->marks[i] != thing->marks[first])
			return false;
	return true;
}

/* All that is known of pages goes with them. */
static void take_along(struct thing *to, const struct thing *from, size_t first, size_t count)
{
	memcpy(to->copy, from->copy + first * PAGE, count * PAGE);
	memcpy(to->prot, from->prot + first, count);
	memcpy(to->nofork, from->nofork + first, count);
	memcpy(to->marks, from->marks + first, count * sizeof(to->marks[0]));
	memset(to->gone, 0, sizeof(to->gone));
}

/* These pages are a thing of their own from now on; what is left has a hole, or zeros. */
static void moved(struct run *run, struct thing *thing, size_t first, size_t count,
		  unsigned char *p, size_t pages, bool left)
{
	static __thread unsigned char spare[MOST];
	struct thing part = { .kind = MAPPING, .at = p, .len = pages * PAGE, .copy = spare };
	struct thing *to = NULL;
	unsigned char *copy;

	take_along(&part, thing, first, count < pages ? count : pages);
	part.mixed = thing->mixed;
	part.moved = true;
	for (size_t i = count; i < pages; i++) {
		part.prot[i] = part.prot[0];
		part.nofork[i] = part.nofork[0];
		part.marks[i] = part.marks[0];
		memset(part.copy + i * PAGE, 0, PAGE);
	}
	check(&part, "after mremap");
	if (left) {
		memset(thing->copy + first * PAGE, 0, count * PAGE);
		thing->mixed = true;
	} else {
		memset(thing->gone + first, 1, count);
	}
	for (int i = 0; i < THINGS && !to; i++)
		to = run->things[i].kind ? NULL : &run->things[i];
	if (!to) {
		note(run, "no place: %d\n", munmap(p, pages * PAGE));
		return;
	}
	note(run, "is %d\n", (int)(to - run->things));
	copy = to->copy;
	memcpy(copy, part.copy, MOST);
	*to = part;
	to->copy = copy;
}

/*
 * All of it or some pages, to another place and another size. Where the kernel has a choice between
 * making it longer and moving it, both are right: what comes of it is a new thing in any case.
 */
static void move(struct run *run, struct thing *thing)
{
	size_t first = 0, count = pages_of(thing), pages;
	bool fixed = next(run, 2), same = !next(run, 3), left;
	unsigned char *p, *to = NULL;

	if (next(run, 2))
		first = choose(run, thing, &count);
	for (size_t i = first; i < first + count; i++)
		if (thing->gone[i])
			return; /* another one may be there now */
	pages = same ? count : 1 + next(run, PAGES - first);
	left = same && fixed && !next(run, 4);
	/* What cannot be one mapping again cannot grow; the kernels differ. */
	if (!count || (thing->mixed && pages != count) ||
	    (!is_whole(thing, first, count) && (pages < count || left)))
		return;
	if (fixed)
		to = mmap(NULL, pages * PAGE, next(run, 2) ? PROT_NONE : PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	errno = QUIET;
	p = mremap(thing->at + first * PAGE, count * PAGE, pages * PAGE,
		   MREMAP_MAYMOVE | (fixed ? MREMAP_FIXED : 0) | (left ? MREMAP_DONTUNMAP : 0), to);
	note(run, "mremap %zu %zu to %zu, %d %d: %s %d\n", first, count, pages, fixed, left,
	     p == MAP_FAILED ? "none" : "ok", errno);
	if (p == MAP_FAILED) {
		if (fixed)
			munmap(to, pages * PAGE);
		return;
	}
	moved(run, thing, first, count, p, pages, left);
	check(thing, "after mremap");
}

/* What a debugger does, whatever the rights are. */
static void poke(struct run *run, struct thing *thing)
{
	size_t i = next(run, pages_of(thing)), b = i * PAGE + next(run, PAGE / 8) * 8;
	long word = (long)next(run, 1u << 30), ask[2] = { (long)(thing->at + b), word };
	int ret = 0, how = (int)next(run, 2);

	if (thing->gone[i])
		return;
	errno = QUIET;
	if (how && run->alone && tracer.of == getpid()) {
		if (write(tracer.ask[1], ask, sizeof(ask)) != sizeof(ask) ||
		    read(tracer.answer[0], &ret, sizeof(ret)) != sizeof(ret))
			_exit(94);
	} else {
		how = 0;
		ret = pwrite(run->mem, &word, sizeof(word), (off_t)ask[0]) == sizeof(word) ? 0
											   : errno;
	}
	note(run, "poke %d %d: %d\n", how, thing->prot[i], ret);
	if (!ret)
		memcpy(thing->copy + b, &word, sizeof(word));
}

/* Whether the kernel knows the pages, and has those that were written. */
static void ask(struct run *run, struct thing *thing)
{
	size_t count, first = choose(run, thing, &count);
	unsigned char in[PAGES], *at = thing->at + first * PAGE;
	int ret;

	if (!count)
		return;
	errno = QUIET;
	ret = mincore(at, count * PAGE, in);
	note(run, "mincore %zu: %d %d\n", count, ret, errno);
	errno = QUIET;
	ret = msync(at, count * PAGE, next(run, 2) ? MS_SYNC : MS_ASYNC | MS_INVALIDATE);
	note(run, "msync %zu: %d %d\n", count, ret, errno);
	errno = QUIET;
	ret = remap_file_pages(at, PAGE, 0, 0, 0);
	note(run, "remap_file_pages: %d %d\n", ret, errno);
}

/* Whether the kernel reads each page, and writes it. */
static void probe(struct run *run, struct thing *thing)
{
	char byte;

	note(run, "pages");
	for (size_t i = 0; i < pages_of(thing); i++) {
		if (thing->gone[i])
			continue;
		bool readable = write(run->pipe[1], thing->at + i * PAGE, 1) == 1;
		bool writable = readable && read(run->pipe[0], thing->at + i * PAGE, 1) == 1;

		if (readable && !writable && read(run->pipe[0], &byte, 1) != 1)
			_exit(97);
		note(run, "%c", writable ? 'w' : readable ? 'r' : '-');
	}
	note(run, "\n");
}

/* --- forks ------------------------------------------------------------------------------------ */

static void step(struct run *run, bool may_fork);

/* All of it is ours alone: as it was, and what we write the parent does not see. */
static int be_child(struct run *run)
{
	close(run->mem); /* the parent's */
	run->mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < THINGS; i++) {
		struct thing *thing = &run->things[i];

		/* Mappings that are apart stay apart here, and new ones, too. */
		thing->moved = true;
		thing->mixed |= thing->kind && !is_whole(thing, 0, pages_of(thing));
		for (size_t p = 0; thing->kind && p < pages_of(thing); p++)
			thing->gone[p] |= thing->nofork[p];
		if (thing->kind)
			check(thing, "in the child");
		if (thing->kind)
			fill(run, thing);
	}
	for (int i = 0; i < 20; i++)
		step(run, i == 10);
	return (int)next(run, 90);
}

/* Of a fork on a coroutine's stack: who does it, and what came of it. */
static __thread struct {
	struct run *run;
	ucontext_t back;
	pid_t pid;
} coroutine;

static void fork_in_coroutine(void)
{
	coroutine.pid = fork();
	if (!coroutine.pid)
		_exit(be_child(coroutine.run));
}

static pid_t fork_on_block(struct run *run)
{
	enum { STACK = 256 << 10 };
	char *stack = malloc(STACK);
	ucontext_t context;

	coroutine.run = run;
	getcontext(&context);
	context.uc_stack.ss_sp = stack;
	context.uc_stack.ss_size = STACK;
	context.uc_link = &coroutine.back;
	makecontext(&context, fork_in_coroutine, 0);
	swapcontext(&coroutine.back, &context);
	free(stack);
	return coroutine.pid;
}

static int be_cloned(void *arg)
{
	return be_child(arg);
}

static pid_t clone_on_block(struct run *run)
{
	enum { STACK = 256 << 10 };
	char *stack = malloc(STACK);
	pid_t pid = clone(be_cloned, stack + STACK, SIGCHLD, run);

	free(stack);
	return pid;
}

/* With other threads, whose locks the child would find taken, only those of which libc takes care. */
static pid_t make_one(struct run *run)
{
	switch (next(run, run->alone ? 6 : 3)) {
	case 0:
		return fork_on_block(run);
	case 3:
		return _Fork();
	case 4:
		return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	case 5:
		return clone_on_block(run);
	default:
		return fork();
	}
}

static void make_child(struct run *run)
{
	pid_t pid;
	int status;

	errno = QUIET;
	pid = make_one(run);
	note(run, "fork: %d ", errno);
	if (!pid)
		_exit(be_child(run));
	if (pid < 0)
		return;
	for (int i = 0; i < THINGS; i++)
		if (run->things[i].kind && next(run, 2))
			fill(run, &run->things[i]);
	waitpid(pid, &status, 0);
	note(run, "%#x\n", status);
	if (!WIFEXITED(status) || WEXITSTATUS(status) >= 90) {
		fprintf(stderr, "sequence: a child ended with %#x\n", status);
		_exit(96);
	}
	for (int i = 0; i < THINGS; i++)
		if (run->things[i].kind)
			check(&run->things[i], "after the child");
}

static void step(struct run *run, bool may_fork)
{
	static void (*const with_mapping[])(struct run *, struct thing *) = {
		protect, advise, advise, unmap, lock, map_over, move,
		move,    poke,   ask,    probe, end,  fill,
	};
	struct thing *thing = &run->things[next(run, THINGS)];

	if (may_fork && !next(run, 40)) {
		make_child(run);
		return;
	}
	if (thing->kind)
		check(thing, "at any time");
	note(run, "%d: ", (int)(thing - run->things));
	if (!thing->kind)
		next(run, 2) ? allocate(run, thing) : map(run, thing);
	else if (thing->kind == MAPPING)
		with_mapping[next(run, 13)](run, thing);
	else
		next(run, 3) ? resize(run, thing) : end(run, thing);
}

static void *run_all(void *arg)
{
	struct run *run = arg;

	for (int i = 0; i < run->steps; i++)
		step(run, true);
	for (int i = 0; i < THINGS; i++)
		if (run->things[i].kind)
			end(run, &run->things[i]);
	return NULL;
}

/* Memory of the test itself, which is neither ours nor what is tested. */
static void *own_memory(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
}

static int poke_by_tracing(pid_t pid, void *at, long word)
{
	int status, ret = 0;

	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) || waitpid(pid, &status, __WALL) != pid)
		return -errno;
	if (ptrace(PTRACE_POKETEXT, pid, at, (void *)word))
		ret = errno;
	return ptrace(PTRACE_DETACH, pid, NULL, NULL) ? -errno : ret;
}

/* A process that stores in this one when it is asked to, and ends with it. */
static void start_tracer(void)
{
	long ask[2];
	int ret;
	pid_t pid;

	tracer.of = getpid();
	if (pipe2(tracer.ask, O_CLOEXEC) || pipe2(tracer.answer, O_CLOEXEC))
		exit(2);
	pid = fork();
	if (pid < 0)
		exit(2);
	if (pid) {
		prctl(PR_SET_PTRACER, (unsigned long)pid, 0, 0, 0);
		return;
	}
	close(tracer.ask[1]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(tracer.ask[0], ask, sizeof(ask)) == sizeof(ask)) {
		ret = poke_by_tracing(tracer.of, (void *)ask[0], ask[1]);
		if (write(tracer.answer[1], &ret, sizeof(ret)) != sizeof(ret))
			break;
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	int threads = argc > 3 ? atoi(argv[3]) : 1;
	struct run *runs = own_memory(sizeof(*runs) * 16);
	pthread_t id[16];

	if (argc != 4 || threads < 1 || threads > 16)
		return 2;
	sigaction(SIGSEGV, &action, NULL);
	if (threads == 1)
		start_tracer();
	fprintf(stderr, "%s\n", memory_test_start(64 << 20) ? "shared" : "plain");
	for (int i = 0; i < threads; i++) {
		runs[i].random = strtoull(argv[1], NULL, 0) * 1000003 + (uint64_t)i * 7919 + 1;
		runs[i].steps = atoi(argv[2]);
		runs[i].alone = threads == 1;
		runs[i].log = own_memory(LOG);
		runs[i].mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		for (int j = 0; j < THINGS; j++)
			runs[i].things[j].copy = own_memory(MOST);
		if (pipe(runs[i].pipe))
			return 2;
	}
	for (int i = 0; i < threads; i++)
		if (pthread_create(&id[i], NULL, run_all, &runs[i]))
			return 2;
	for (int i = 0; i < threads; i++) {
		pthread_join(id[i], NULL);
		fwrite(runs[i].log, 1, runs[i].used, stdout);
	}
	return fflush(stdout) ? 2 : 0;
}
