// SPDX-License-Identifier: MIT
/*
 * Random sequences of allocations, mappings and forks. Prints what each call returned, so that two
 * runs can be compared, one with the allocator of `verbatim run` and one with plain libc; addresses
 * are not printed. What memory holds is compared with what was written there, all the time.
 *
 * usage: sequence SEED STEPS THREADS
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "start.h"

extern pid_t _Fork(void);

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
	bool mixed; /* the kernel may have made several mappings of it */
};

struct run {
	uint64_t random;
	int steps;
	struct thing things[THINGS];
	char *log;
	size_t used;
	int pipe[2];
	bool alone; /* the only thread */
};

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
	thing->mixed = false;
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
	note(run, " %d aligned %d usable %d", ret, !((uintptr_t)p % align),
	     malloc_usable_size(p) >= size);
	begin(run, thing, BLOCK, p, size, which == 1);
}

static void map(struct run *run, struct thing *thing)
{
	size_t size = some_size(run);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (next(run, 4) ? 0 : MAP_POPULATE);

	note(run, "mmap %zu %d", size, flags);
	begin(run, thing, MAPPING, mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0),
	      pages_of(&(struct thing){ .len = size }) * PAGE, true);
}

/* --- what blocks can do ----------------------------------------------------------------------- */

static void resize(struct run *run, struct thing *thing)
{
	size_t size = some_size(run), before = thing->len;
	unsigned char *p = realloc(thing->at, size);

	note(run, "realloc %zu %zu %s usable %d\n", before, size, p ? "ok" : "none",
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
	if (thing->kind == BLOCK)
		free(thing->at);
	else
		for (size_t i = 0; i <= pages_of(thing); i++)
			if (i == pages_of(thing) || thing->gone[i]) {
				if (i > from && munmap(thing->at + from * PAGE, (i - from) * PAGE))
					note(run, "munmap: %d\n", errno);
				from = i + 1;
			}
	note(run, "end %d\n", thing->kind);
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
	ret = mprotect(thing->at + first * PAGE, count * PAGE, prot);
	note(run, "mprotect %zu %zu %d: %d %d\n", first, count, prot, ret, ret ? errno : 0);
	if (!ret)
		memset(thing->prot + first, prot, count);
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
	ret = madvise(thing->at + first * PAGE, count * PAGE, advice);
	note(run, "madvise %zu %zu %d: %d %d\n", first, count, advice, ret, ret ? errno : 0);
	thing->mixed |= advice != MADV_DONTNEED && advice != MADV_WILLNEED && advice != MADV_COLD &&
			advice != 12345;
	if (ret)
		return;
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

static void unmap(struct run *run, struct thing *thing)
{
	size_t count, first = choose(run, thing, &count);
	int ret;

	if (!count)
		return;
	ret = munmap(thing->at + first * PAGE, count * PAGE);
	note(run, "munmap %zu %zu: %d\n", first, count, ret);
	if (!ret)
		memset(thing->gone + first, 1, count);
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
	ret = next(run, 2) ? mlock(thing->at + first * PAGE, count * PAGE)
			   : mlock2(thing->at + first * PAGE, count * PAGE, MLOCK_ONFAULT);
	note(run, "mlock %zu %zu: %d %d\n", first, count, ret, ret ? errno : 0);
	undo = madvise(thing->at + first * PAGE, count * PAGE, MADV_DONTNEED);
	note(run, "advice on locked pages: %d %d\n", undo, undo ? errno : 0);
	if (!undo)
		memset(thing->copy + first * PAGE, 0, count * PAGE);
	ret = munlock(thing->at + first * PAGE, count * PAGE);
	note(run, "munlock: %d\n", ret);
}

/* Other memory at the same place. */
static void map_over(struct run *run, struct thing *thing)
{
	size_t count, first = choose(run, thing, &count);
	unsigned char *at = thing->at + first * PAGE;
	void *p;

	if (!count)
		return;
	p = mmap(at, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0);
	note(run, "MAP_FIXED %zu %zu: %d\n", first, count, p == at);
	if (p != at)
		return;
	memset(thing->prot + first, PROT_READ | PROT_WRITE, count);
	memset(thing->nofork + first, 0, count);
	thing->mixed = true;
	memset(thing->copy + first * PAGE, 0, count * PAGE);
}

static bool is_whole(const struct thing *thing)
{
	for (size_t i = 0; i < pages_of(thing); i++)
		if (thing->gone[i] || thing->prot[i] != thing->prot[0] || thing->nofork[i])
			return false;
	return !thing->mixed;
}

static void move(struct run *run, struct thing *thing)
{
	size_t pages = 1 + next(run, PAGES), before = pages_of(thing);
	unsigned char *p;

	if (!is_whole(thing))
		return;
	if (next(run, 2)) {
		/* over memory that is there */
		p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
		if (p != MAP_FAILED)
			p = mremap(thing->at, before * PAGE, pages * PAGE,
				   MREMAP_MAYMOVE | MREMAP_FIXED, p);
	} else {
		p = mremap(thing->at, before * PAGE, pages * PAGE, MREMAP_MAYMOVE);
	}
	note(run, "mremap %zu %zu: %s\n", before, pages, p == MAP_FAILED ? "none" : "ok");
	if (p == MAP_FAILED)
		return;
	thing->at = p;
	thing->len = pages * PAGE;
	if (pages > before) {
		memset(thing->copy + before * PAGE, 0, (pages - before) * PAGE);
		memset(thing->prot + before, thing->prot[0], pages - before);
		memset(thing->gone + before, 0, pages - before);
		memset(thing->nofork + before, 0, pages - before);
	}
	check(thing, "after mremap");
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
	for (int i = 0; i < THINGS; i++) {
		struct thing *thing = &run->things[i];

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
	pid_t pid = make_one(run);
	int status;

	if (!pid)
		_exit(be_child(run));
	if (pid < 0) {
		note(run, "fork: %d\n", errno);
		return;
	}
	for (int i = 0; i < THINGS; i++)
		if (run->things[i].kind && next(run, 2))
			fill(run, &run->things[i]);
	waitpid(pid, &status, 0);
	note(run, "fork: %#x\n", status);
	if (!WIFEXITED(status) || WEXITSTATUS(status) >= 96) {
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
		protect, advise, advise, unmap, lock, map_over, move, probe, end, fill,
	};
	struct thing *thing = &run->things[next(run, THINGS)];

	if (may_fork && !next(run, 40)) {
		make_child(run);
		return;
	}
	if (thing->kind)
		check(thing, "at any time");
	if (!thing->kind)
		next(run, 2) ? allocate(run, thing) : map(run, thing);
	else if (thing->kind == MAPPING)
		with_mapping[next(run, 10)](run, thing);
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

int main(int argc, char **argv)
{
	int threads = argc > 3 ? atoi(argv[3]) : 1;
	struct run *runs = own_memory(sizeof(*runs) * 16);
	pthread_t id[16];

	if (argc != 4 || threads < 1 || threads > 16)
		return 2;
	fprintf(stderr, "%s\n", memory_test_start(64 << 20) ? "shared" : "plain");
	for (int i = 0; i < threads; i++) {
		runs[i].random = strtoull(argv[1], NULL, 0) * 1000003 + (uint64_t)i * 7919 + 1;
		runs[i].steps = atoi(argv[2]);
		runs[i].alone = threads == 1;
		runs[i].log = own_memory(LOG);
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
