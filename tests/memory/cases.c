// SPDX-License-Identifier: MIT
/*
 * What programs do with memory that is born shared, one case after the other; each in a process of
 * its own, with the allocator in LD_PRELOAD.
 *
 * usage: cases NAME
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "start.h"

extern char **environ;

/* Content of the file that peers see there. */
static bool in_file(const char *p, char value, size_t len)
{
	char *text = mmap(NULL, len, PROT_READ, MAP_SHARED, memory_test_fd(),
			  (off_t)memory_test_offset(p));
	bool is = text != MAP_FAILED && are(text, value, len);

	CHECK(text == MAP_FAILED || !munmap(text, len));
	return is;
}

static long blocks_of_file(void)
{
	struct stat st;

	CHECK(!fstat(memory_test_fd(), &st));
	return (long)st.st_blocks * 512;
}

/* --- before main() ---------------------------------------------------------------------------- */

extern int memory_test_early;

static void early(void)
{
	CHECK(memory_test_early); /* early.c has done it all */
}

/* --- what is born there ----------------------------------------------------------------------- */

static void born(void)
{
	char *p[10] = { malloc(65536), calloc(1, LARGE), realloc(NULL, LARGE) };

	CHECK(!posix_memalign((void **)&p[3], PAGE, 1));
	p[4] = aligned_alloc(2 << 20, LARGE);
	p[5] = memalign(PAGE, 100);
	p[6] = valloc(100);
	p[7] = pvalloc(100);
	p[8] = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p[9] = realloc(malloc(100), LARGE);
	CHECK(!((uintptr_t)p[4] % (2 << 20)));
	for (int i = 0; i < 10; i++) {
		CHECK(memory_test_is_shown(p[i], 1) && !((uintptr_t)p[i] % PAGE));
		p[i][0] = (char)(i + 1);
		CHECK(in_file(p[i], (char)(i + 1), 1));
	}
	for (int i = 0; i < 10; i++) {
		if (i == 8)
			CHECK(!munmap(p[i], LARGE));
		else
			free(p[i]);
	}
	malloc_trim(0); /* some were kept */
	for (int i = 0; i < 10; i++)
		CHECK(memory_test_is_hidden(p[i], 1));
}

static void not_born(void)
{
	int plain = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
	void *p[] = {
		malloc(65535),
		calloc(8, 1000),
		memalign(64, 1000),
		mmap(NULL, LARGE, PROT_NONE, plain, -1, 0),
		mmap(NULL, LARGE, PROT_READ, plain, -1, 0),
		mmap(NULL, LARGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
		mmap(NULL, LARGE, rw, plain | MAP_STACK, -1, 0),
		mmap(NULL, LARGE, rw, plain | MAP_NORESERVE, -1, 0),
		mmap((void *)0x200000000000, LARGE, rw, plain, -1, 0),
	};

	for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++) {
		CHECK(p[i] && p[i] != MAP_FAILED);
		CHECK(memory_test_is_hidden(p[i], 1));
	}
}

/* Freed memory is the system's again. */
static void freed(void)
{
	char *p[64];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 64; i++) {
			p[i] = malloc((size_t)(i + 1) * 65536);
			memset(p[i], 1, (size_t)(i + 1) * 65536);
		}
		CHECK(blocks_of_file() >= 130 << 20);
		for (int i = 0; i < 64; i++)
			free(p[i]);
		CHECK(blocks_of_file() <= 32 << 20); /* what it may keep */
	}
	CHECK(malloc_trim(0));
	CHECK(!blocks_of_file());
}

/* Beyond its limit there is libc. */
static void limit(void)
{
	volatile size_t many = (size_t)1 << 40;
	char *p[64];
	int shared = 0;

	for (int i = 0; i < 64; i++) {
		p[i] = malloc(1 << 20);
		CHECK(p[i]);
		memset(p[i], i, 1 << 20);
		shared += memory_test_is_shown(p[i], 1 << 20);
	}
	CHECK(shared == 8);
	for (int i = 0; i < 64; i++) {
		CHECK(are(p[i], (char)i, 1 << 20));
		p[i] = realloc(p[i], 3 << 20);
		CHECK(p[i] && are(p[i], (char)i, 1 << 20));
	}
	errno = 0;
	CHECK(!malloc((size_t)1 << 62) && errno == ENOMEM);
	CHECK(!calloc(many, many) && errno == ENOMEM);
	CHECK(mmap(NULL, (size_t)1 << 62, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		   0) == MAP_FAILED &&
	      errno == ENOMEM);
	for (int i = 0; i < 64; i++)
		free(p[i]);
}

static int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int count = 0, c;

	CHECK(maps);
	while ((c = getc(maps)) != EOF)
		count += c == '\n';
	fclose(maps);
	return count;
}

static void *nothing(void *arg)
{
	return arg;
}

/* Free pages between blocks are mappings to the kernel, of which a process has few. */
static void fragments(void)
{
	enum { BLOCKS = 80000 };
	static char *p[BLOCKS];
	pthread_t thread;
	int shared = 0;
	pid_t pid;

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < BLOCKS; i++) {
			CHECK(!posix_memalign((void **)&p[i], PAGE, PAGE));
			p[i][0] = (char)i;
			shared += memory_test_is_shown(p[i], PAGE);
		}
		CHECK(shared >= 4096 * (round + 1)); /* of the second round, too */
		for (int i = 0; i < BLOCKS; i += 2)
			free(p[i]);
		CHECK(count_mappings() < 20000);
		CHECK(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			for (int i = 1; i < BLOCKS; i += 2)
				CHECK(p[i][0] == (char)i);
			CHECK(!pthread_create(&thread, NULL, nothing, NULL));
			_exit(0);
		}
		CHECK(!wait_for(pid));
		for (int i = 1; i < BLOCKS; i += 2)
			free(p[i]);
	}
	/* Every second page of mappings, and blocks at other addresses: none is counted twice. */
	for (int i = 0; i < 10000; i++) {
		char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(map != MAP_FAILED && memory_test_is_shown(map, 4 * PAGE));
		CHECK(!munmap(map + PAGE, PAGE) && !munmap(map + 3 * PAGE, PAGE));
		CHECK(mmap(map, PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map);
		CHECK(mremap(map + 2 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED ||
		      errno == ENOMEM);
		CHECK(!munmap(map, 4 * PAGE));
	}
}

static void bad_free(void)
{
	pid_t pid;

	for (int i = 0; i < 3; i++) {
		fflush(NULL);
		pid = fork();
		if (!pid) {
			struct rlimit none = { 0, 0 };
			char *volatile p, *volatile large;

			CHECK(memory_test_start(0) && !setrlimit(RLIMIT_CORE, &none));
			p = malloc(LARGE);
			large = malloc(32 << 20);
			CHECK(dup2(open("/dev/null", O_WRONLY), 2) == 2);
			if (i == 0)
				p += PAGE;
			free(p);
			if (i == 1)
				free(p);
			free(large);
			if (i == 2)
				free(large);
			_exit(0);
		}
		CHECK(pid > 0 && WIFSIGNALED(wait_for(pid)));
	}
}

/* --- forks ------------------------------------------------------------------------------------ */

static pid_t call_fork(void)
{
	return fork();
}

static pid_t call_syscall(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static pid_t call_clone3(void)
{
	uint64_t args[8] = { 0, 0, 0, 0, SIGCHLD };

	return (pid_t)syscall(SYS_clone3, args, sizeof(args));
}

extern pid_t _Fork(void);

static pid_t call_Fork(void)
{
	return _Fork();
}

struct fork_test {
	char *block, *map, *readonly, *none, *sparse;
	int to_child[2], to_parent[2];
};

static void say(int fd)
{
	CHECK(write(fd, "x", 1) == 1);
}

static void hear(int fd)
{
	char c;

	CHECK(read(fd, &c, 1) == 1);
}

static void check_child(struct fork_test *t)
{
	const char *why;
	char *p;

	CHECK(fcntl(memory_test_fd(), F_GETFD) < 0 && errno == EBADF);
	hear(t->to_child[0]); /* the parent has written since */
	CHECK(are(t->block, 1, LARGE) && are(t->map, 2, LARGE) && are(t->readonly, 3, LARGE));
	CHECK(are(t->sparse, 0, 1 << 20) && t->sparse[8 << 20] == 5);
	memset(t->block, 11, LARGE);
	memset(t->map, 12, LARGE);
	CHECK(write(t->to_parent[1], t->none, 1) < 0 && errno == EFAULT);
	CHECK(read(open("/dev/zero", O_RDONLY), t->readonly, 1) < 0 && errno == EFAULT);
	CHECK(!mprotect(t->none, LARGE, PROT_READ) && are(t->none, 4, LARGE));
	free(t->block);
	p = malloc(LARGE);
	CHECK(p && memory_test_is_hidden(p, LARGE));
	CHECK(!memory_test_try(64 << 20, &why)); /* it opens a card of its own */
	p = malloc(2 * LARGE);
	CHECK(p && memory_test_is_shown(p, 2 * LARGE));
	memset(p, 9, 2 * LARGE);
	CHECK(in_file(p, 9, 2 * LARGE) && are(t->map, 12, LARGE));
	CHECK(!munmap(t->map, LARGE));
	free(p);
}

static void forks_by(pid_t (*call)(void))
{
	struct fork_test t;
	pid_t pid;

	CHECK(!pipe(t.to_child) && !pipe(t.to_parent));
	t.block = malloc(LARGE);
	t.sparse = calloc(1, 16 << 20);
	t.map = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	t.readonly = valloc(LARGE);
	t.none = valloc(LARGE);
	memset(t.block, 1, LARGE);
	memset(t.map, 2, LARGE);
	memset(t.readonly, 3, LARGE);
	memset(t.none, 4, LARGE);
	t.sparse[8 << 20] = 5;
	CHECK(!mprotect(t.readonly, LARGE, PROT_READ) && !mprotect(t.none, LARGE, PROT_NONE));
	CHECK(memory_test_is_hidden(t.readonly, LARGE) && memory_test_is_shown(t.block, LARGE));
	for (int i = 0; i < 2; i++) {
		memset(t.block, 1, LARGE);
		memset(t.map, 2, LARGE);
		pid = call();
		CHECK(pid >= 0);
		if (!pid) {
			check_child(&t);
			pid = call(); /* and again, from a child with a range of its own */
			CHECK(pid >= 0);
			_exit(pid ? wait_for(pid) : 0);
		}
		memset(t.block, 21, LARGE);
		memset(t.map, 22, LARGE);
		say(t.to_child[1]);
		CHECK(!wait_for(pid));
		CHECK(are(t.block, 21, LARGE) && are(t.map, 22, LARGE));
		CHECK(in_file(t.block, 21, LARGE) && memory_test_is_shown(t.map, LARGE));
	}
}

static void forks(void)
{
	forks_by(call_fork);
}

static void forks_unhandled(void)
{
	forks_by(call_Fork);
}

static void forks_raw(void)
{
	forks_by(call_syscall);
	forks_by(call_clone3);
}

/* What libc forks inside itself. */
static void forks_inside(void)
{
	int done[2];
	char *p = malloc(LARGE), c = 0;
	pid_t pid;

	CHECK(!pipe(done));
	memset(p, 1, LARGE);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		const char *why;
		char *q;

		CHECK(!memory_test_try(0, &why));
		q = malloc(LARGE);
		memset(q, 2, LARGE);
		CHECK(memory_test_is_shown(q, LARGE));
		CHECK(!daemon(1, 1));
		CHECK(are(p, 1, LARGE) && are(q, 2, LARGE) && memory_test_is_hidden(q, LARGE));
		say(done[1]);
		_exit(0);
	}
	wait_for(pid);
	close(done[1]);
	CHECK(read(done[0], &c, 1) == 1 && c == 'x');
}

static int clone_grandchild(void *arg)
{
	return *(char *)arg == 2 ? 43 : 1;
}

/* Has a child of its own, and returns afterwards. */
static int clone_child(void *arg)
{
	char *p = arg, *stack = malloc(LARGE);
	int pid;

	CHECK(are(p, 1, LARGE));
	memset(p, 2, LARGE);
	pid = clone(clone_grandchild, stack + LARGE, SIGCHLD, p);
	CHECK(pid > 0 && WEXITSTATUS(wait_for(pid)) == 43);
	return 42;
}

static void forks_by_clone(void)
{
	char *p = malloc(LARGE), *stack = malloc(LARGE);
	int status, pid;

	memset(p, 1, LARGE);
	for (int i = 0; i < 3; i++) {
		pid = clone(clone_child, stack + LARGE, SIGCHLD, p);
		CHECK(pid > 0);
		status = wait_for(pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
		CHECK(are(p, 1, LARGE));
	}
	pid = clone(clone_child, stack + LARGE, SIGCHLD | CLONE_VM | CLONE_VFORK, p);
	CHECK(pid > 0);
	status = wait_for(pid);
	CHECK(WEXITSTATUS(status) == 42 && are(p, 2, LARGE)); /* that is what CLONE_VM means */
}

/* The program executes others. */
static void executes(void)
{
	char *const argv[] = { (char *)"sh", (char *)"-c", (char *)"exit 3", NULL };
	char *p = malloc(LARGE), line[8];
	FILE *out;
	pid_t pid;

	memset(p, 1, LARGE);
	CHECK(!posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ));
	CHECK(WEXITSTATUS(wait_for(pid)) == 3);
	pid = vfork();
	if (!pid) {
		execv("/bin/sh", argv);
		_exit(1);
	}
	CHECK(WEXITSTATUS(wait_for(pid)) == 3);
	CHECK(WEXITSTATUS(system("exit 4")) == 4);
	out = popen("echo hello", "r");
	CHECK(out && fgets(line, sizeof(line), out) && !strcmp(line, "hello\n") && !pclose(out));
	CHECK(are(p, 1, LARGE) && memory_test_is_shown(p, LARGE));
}

static char *volatile handler_block;
static volatile sig_atomic_t forked;

static void fork_in_handler(int sig)
{
	int err = errno;
	pid_t pid = fork();

	(void)sig;
	if (!pid)
		_exit(are(handler_block, 7, LARGE) ? 0 : 1);
	CHECK(pid > 0 && !wait_for(pid));
	forked++;
	errno = err;
}

static void forks_in_handler(void)
{
	struct itimerval often = { { 0, 3000 }, { 0, 3000 } }, never = { 0 };
	char *p = NULL;

	handler_block = malloc(LARGE);
	memset(handler_block, 7, LARGE);
	signal(SIGALRM, fork_in_handler);
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	for (size_t i = 0; forked < 60; i++) {
		char *q = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);

		CHECK(q != MAP_FAILED);
		p = realloc(p, 65536 + i % 64 * PAGE);
		p[0] = q[0] = 1;
		CHECK(!mprotect(q, PAGE, PROT_READ) && !madvise(q, LARGE, MADV_DONTNEED));
		CHECK(!munmap(q, LARGE));
	}
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
}

/* --- descriptors ------------------------------------------------------------------------------ */

/* Everything that needs pages to change, with content to compare. */
static void work(void)
{
	char *p = malloc(LARGE), *q = valloc(8 * PAGE), *m;
	pid_t pid;

	m = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p && q && m != MAP_FAILED);
	memset(p, 1, LARGE);
	memset(q, 2, 8 * PAGE);
	memset(m, 3, LARGE);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(are(p, 1, LARGE) && are(q, 2, 8 * PAGE) && are(m, 3, LARGE) ? 0 : 1);
	CHECK(!wait_for(pid));
	CHECK(!mprotect(m, PAGE, PROT_READ) && !madvise(m, LARGE, MADV_DONTNEED));
	CHECK(are(m, 0, LARGE));
	CHECK(!mprotect(m, LARGE, PROT_READ | PROT_WRITE));
	memset(m, 3, LARGE);
	CHECK(!mlock(m, PAGE) && !munlock(m, PAGE)); /* a locked part would be another mapping */
	m = mremap(m, LARGE, 2 * LARGE, MREMAP_MAYMOVE);
	CHECK(m != MAP_FAILED && are(m, 3, LARGE) && are(m + LARGE, 0, LARGE));
	CHECK(!munmap(m, 2 * LARGE));
	p = realloc(p, 3 * LARGE);
	CHECK(p && are(p, 1, LARGE));
	free(p);
	free(q);
	p = calloc(1, 4 * LARGE);
	CHECK(p && are(p, 0, 4 * LARGE));
	free(p);
}

static void closed(void)
{
	work();
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	work();
	work();
}

/* Its number is another file now, and that is not touched. */
static void replaced(void)
{
	int fd = memfd_create("other", 0), number = memory_test_fd();
	struct stat before, after;
	char text[LARGE], *p;

	memset(text, 5, sizeof(text));
	for (int i = 0; i < 64; i++)
		CHECK(write(fd, text, sizeof(text)) == sizeof(text));
	p = malloc(LARGE);
	memset(p, 1, LARGE);
	CHECK(dup2(fd, number) == number && !fstat(fd, &before));
	work();
	work();
	CHECK(are(p, 1, LARGE));
	free(p);
	CHECK(!fstat(fd, &after) && !fstat(number, &after));
	CHECK(after.st_size == before.st_size && after.st_blocks == before.st_blocks);
	for (int i = 0; i < 64; i++) {
		CHECK(pread(number, text, sizeof(text), i * LARGE) == sizeof(text));
		CHECK(are(text, 5, sizeof(text)));
	}
}

static atomic_bool over_with;

/* Puts another file at its number, and the memfd back, all the time. */
static void *replace(void *arg)
{
	int number = memory_test_fd(), own = dup(number), *other = arg;

	CHECK(own >= 0);
	while (!atomic_load(&over_with)) {
		CHECK(dup2(*other, number) == number);
		CHECK(dup2(own, number) == number);
	}
	return NULL;
}

/* The other file is whole, whenever that happens. */
static void replaced_often(void)
{
	int fd = memfd_create("other", 0);
	char text[LARGE];
	struct stat before, after;
	pthread_t thread;

	memset(text, 5, sizeof(text));
	for (int i = 0; i < 16; i++)
		CHECK(write(fd, text, sizeof(text)) == sizeof(text));
	CHECK(!fstat(fd, &before));
	CHECK(!pthread_create(&thread, NULL, replace, &fd));
	for (int i = 0; i < 200; i++)
		work();
	atomic_store(&over_with, true);
	CHECK(!pthread_join(thread, NULL) && !fstat(fd, &after));
	CHECK(after.st_size == before.st_size && after.st_blocks == before.st_blocks);
	for (int i = 0; i < 16; i++) {
		CHECK(pread(fd, text, sizeof(text), i * LARGE) == sizeof(text));
		CHECK(are(text, 5, sizeof(text)));
	}
}

/* --- limits ----------------------------------------------------------------------------------- */

static size_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	CHECK(f && fscanf(f, "%zu", &pages) == 1);
	fclose(f);
	return pages * PAGE;
}

static volatile sig_atomic_t children;

static void count_child(int sig)
{
	(void)sig;
	children++;
}

static void address_limit(void)
{
	char *p = malloc(32 << 20), *q;
	size_t before, with = address_space();
	struct rlimit limit;
	pid_t pid;

	memset(p, 1, 32 << 20);
	signal(SIGCHLD, count_child);
	CHECK(!getrlimit(RLIMIT_AS, &limit));
	limit.rlim_cur = with;
	CHECK(!setrlimit(RLIMIT_AS, &limit));
	before = address_space();
	CHECK(before < 1u << 30 && before + (64u << 20) < with); /* the range is not held back */
	limit.rlim_cur = before + (8 << 20);
	CHECK(!setrlimit(RLIMIT_AS, &limit));
	errno = 0;
	CHECK(!malloc(16 << 20) && errno == ENOMEM);
	CHECK(mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
		      MAP_FAILED &&
	      errno == ENOMEM);
	q = malloc(2 << 20);
	CHECK(q && memory_test_is_hidden(q, 2 << 20));
	/* No room for the child's copy: fork() says so, and there is none. */
	pid = fork();
	if (!pid)
		_exit(0);
	CHECK(pid == -1 && errno == ENOMEM);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD && !children);
	CHECK(are(p, 1, 32 << 20));
	free(p);
	CHECK(address_space() < before); /* freed addresses can be used by others */
	pid = fork();
	if (!pid)
		_exit(0);
	CHECK(pid > 0 && !wait_for(pid));
	q = malloc(16 << 20);
	CHECK(q && memory_test_is_hidden(q, 16 << 20));
}

static void file_limit(void)
{
	struct rlimit limit = { 4096, 4096 };
	char *p;

	CHECK(!setrlimit(RLIMIT_FSIZE, &limit)); /* SIGXFSZ would end us */
	work();
	p = malloc(8 << 20);
	memset(p, 1, 8 << 20);
	CHECK(memory_test_is_shown(p, 8 << 20));
	free(p);
}

static void locked(void)
{
	char *p = malloc(LARGE), *q;
	int ret;

	memset(p, 1, LARGE);
	ret = mlockall(MCL_CURRENT | MCL_FUTURE);
	CHECK(!ret || errno == ENOMEM || errno == EPERM);
	q = malloc(LARGE);
	CHECK(q && memory_test_is_hidden(q, LARGE));
	CHECK(are(p, 1, LARGE));
	free(p);
	free(q);
	munlockall();
}

static void refused(void)
{
	struct rlimit limit = { (rlim_t)4 << 30, RLIM_INFINITY };
	const char *why;

	CHECK(!setrlimit(RLIMIT_AS, &limit));
	CHECK(memory_test_try(0, &why) == -ENOTSUP && why && strstr(why, "ulimit"));
	CHECK(memory_test_is_hidden(malloc(LARGE), LARGE));
	limit.rlim_cur = RLIM_INFINITY;
	CHECK(!setrlimit(RLIMIT_AS, &limit));
	CHECK(!memory_test_try(0, &why));
	CHECK(memory_test_is_shown(malloc(LARGE), LARGE));
}

/* --- over it ---------------------------------------------------------------------------------- */

static void over(void)
{
	int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	char *m = mmap(NULL, 16 * PAGE, rw, anonymous, -1, 0), *f;
	int fd = memfd_create("over", 0), id;

	CHECK(m != MAP_FAILED && memory_test_is_shown(m, 16 * PAGE) && !ftruncate(fd, 4 * PAGE));
	memset(m, 1, 16 * PAGE);
	/* another file in the middle */
	f = mmap(m + 4 * PAGE, 4 * PAGE, rw, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(f == m + 4 * PAGE);
	memset(f, 2, 4 * PAGE);
	CHECK(are(m, 1, 4 * PAGE) && are(m + 8 * PAGE, 1, 8 * PAGE));
	CHECK(memory_test_is_shown(m, 4 * PAGE) && memory_test_is_hidden(f, 4 * PAGE));
	/* one that fails leaves what was there */
	CHECK(mmap(m, PAGE, rw, MAP_SHARED | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EBADF);
	CHECK(are(m, 1, 4 * PAGE));
	/* a segment */
	id = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
	CHECK(id >= 0 && shmat(id, m + 8 * PAGE, SHM_REMAP) == m + 8 * PAGE);
	CHECK(!shmctl(id, IPC_RMID, NULL));
	CHECK(are(m + 8 * PAGE, 0, 2 * PAGE) && are(m + 10 * PAGE, 1, 6 * PAGE));
	CHECK(memory_test_is_hidden(m + 8 * PAGE, 2 * PAGE));
	CHECK(memory_test_is_shown(m + 10 * PAGE, 6 * PAGE));
	/* moved there */
	f = mmap(NULL, 2 * PAGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(f, 3, 2 * PAGE);
	CHECK(mremap(f, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, m + 12 * PAGE) ==
	      m + 12 * PAGE);
	CHECK(are(m + 12 * PAGE, 3, 2 * PAGE) && are(m + 14 * PAGE, 1, 2 * PAGE));
	CHECK(are(m + 10 * PAGE, 1, 2 * PAGE));
	CHECK(!munmap(m, 16 * PAGE));
	/* where it was there is nothing */
	CHECK(write(memory_test_fd(), m, 1) < 0 && errno == EFAULT);
	CHECK(mprotect(m, PAGE, rw) < 0 && errno == ENOMEM);
	CHECK(madvise(m, PAGE, MADV_DONTNEED) < 0 && errno == ENOMEM);
	CHECK(mlock(m, PAGE) < 0 && errno == ENOMEM);
	f = mmap(m, PAGE, rw, anonymous | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(f == m);
	CHECK(mmap(m, PAGE, rw, anonymous | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED &&
	      errno == EEXIST);
	memset(f, 4, PAGE);
	work();
	CHECK(are(f, 4, PAGE) && !munmap(f, PAGE));
}

/* Blocks of malloc() with other mappings in them are blocks all the same. */
static void over_blocks(void)
{
	int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	char *p, *q;

	for (size_t len = PAGE; len <= LARGE; len += LARGE - PAGE) {
		p = valloc(LARGE);
		memset(p, 1, LARGE);
		CHECK(mmap(p, len, rw, anonymous | MAP_FIXED, -1, 0) == p);
		CHECK(memory_test_is_hidden(p, len) && are(p, 0, len));
		memset(p, 1, len);
		CHECK(malloc_usable_size(p) >= LARGE);
		p = realloc(p, 2 * LARGE);
		CHECK(p && are(p, 1, LARGE));
		free(p);
		p = valloc(LARGE);
		CHECK(mmap(p, len, rw, anonymous | MAP_FIXED, -1, 0) == p);
		free(p);
		work();
	}
	/* moved into one */
	p = valloc(LARGE);
	q = mmap(NULL, PAGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
	free(p);
	/* over one that was freed: its pages are not given out again */
	p = valloc(LARGE);
	memset(p, 1, LARGE);
	free(p);
	CHECK(mmap(p, LARGE, rw, anonymous | MAP_FIXED, -1, 0) == p);
	memset(p, 2, LARGE);
	q = valloc(LARGE);
	memset(q, 3, LARGE);
	CHECK(are(p, 2, LARGE));
	free(q);
	CHECK(!munmap(p, LARGE));
	/* what private memory refuses */
	p = mmap(NULL, PAGE, rw, anonymous, -1, 0);
	CHECK(mremap(p, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
}

static void advice(void)
{
	char *p = valloc(16 * PAGE);

	memset(p, 1, 16 * PAGE);
	CHECK(!madvise(p + PAGE, PAGE, MADV_DONTNEED));
	CHECK(are(p, 1, PAGE) && are(p + PAGE, 0, PAGE) && are(p + 2 * PAGE, 1, 14 * PAGE));
	CHECK(memory_test_is_shown(p, 16 * PAGE));
	CHECK(!madvise(p, PAGE, MADV_SEQUENTIAL) && !madvise(p, PAGE, MADV_DONTFORK));
	CHECK(memory_test_is_shown(p, 16 * PAGE));
	CHECK(madvise(p, PAGE, MADV_REMOVE) < 0 && errno == EINVAL);
	CHECK(!madvise(p + 8 * PAGE, PAGE, MADV_WIPEONFORK));
	CHECK(memory_test_is_hidden(p + 8 * PAGE, PAGE) && are(p + 8 * PAGE, 1, PAGE));
	CHECK(memory_test_is_shown(p + 9 * PAGE, 7 * PAGE) && are(p + 9 * PAGE, 1, 7 * PAGE));
	CHECK(!mprotect(p + 12 * PAGE, PAGE, PROT_READ | PROT_EXEC));
	CHECK(memory_test_is_hidden(p + 12 * PAGE, PAGE) && are(p + 12 * PAGE, 1, PAGE));
	CHECK(!mprotect(p + 12 * PAGE, PAGE, PROT_READ | PROT_WRITE));
	free(p);
	p = valloc(16 * PAGE);
	CHECK(are(p, 0, 16 * PAGE) || p);
	memset(p, 2, 16 * PAGE);
	free(p);
}

static bool kernel_has(const char *path, const char *word)
{
	char text[256] = "";
	int fd = open(path, O_RDONLY);

	if (fd >= 0) {
		CHECK(read(fd, text, sizeof(text) - 1) >= 0);
		close(fd);
	}
	return strstr(text, word);
}

/* Whoever asks for huge pages gets what private memory would get. */
static void huge(void)
{
	static const char *const enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
	static const char *const shmem = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	bool private = (kernel_has(enabled, "[always]") || kernel_has(enabled, "[madvise]")) &&
		       (kernel_has(shmem, "[never]") || kernel_has(shmem, "[deny]"));
	char *p = aligned_alloc(2 << 20, 8 << 20);

	memset(p, 1, 8 << 20);
	CHECK(!madvise(p + (2 << 20), 4 << 20, MADV_HUGEPAGE) || errno == EINVAL);
	CHECK(are(p, 1, 8 << 20) && memory_test_is_shown(p, 2 << 20));
	CHECK(memory_test_is_shown(p + (6 << 20), 2 << 20));
	CHECK(private ? memory_test_is_hidden(p + (2 << 20), 4 << 20)
		      : memory_test_is_shown(p + (2 << 20), 4 << 20));
	free(p);
	p = calloc(1, 8 << 20);
	CHECK(are(p, 0, 8 << 20));
	free(p);
}

/* What libraries that watch mappings do in place of libc's functions. */
static void raw_calls(void)
{
	int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	char *m = mmap(NULL, 16 * PAGE, rw, anonymous, -1, 0), *p;

	memset(m, 1, 16 * PAGE);
	CHECK(!syscall(SYS_mprotect, m, PAGE, PROT_READ) && memory_test_is_hidden(m, PAGE));
	CHECK(!syscall(SYS_madvise, m + PAGE, PAGE, MADV_DONTNEED) && are(m + PAGE, 0, PAGE));
	CHECK(!syscall(SYS_munmap, m + 2 * PAGE, PAGE) &&
	      memory_test_is_hidden(m + 2 * PAGE, PAGE));
	CHECK(!syscall(SYS_mlock, m + 3 * PAGE, PAGE));
	p = (char *)syscall(SYS_mmap, m + 4 * PAGE, PAGE, rw, anonymous | MAP_FIXED, -1, 0);
	CHECK(p == m + 4 * PAGE && are(p, 0, PAGE) && memory_test_is_hidden(p, PAGE));
	p = (char *)syscall(SYS_mremap, m + 8 * PAGE, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE, NULL);
	CHECK(p != MAP_FAILED && are(p, 1, 4 * PAGE) && are(p + 4 * PAGE, 0, 4 * PAGE));
	CHECK(memory_test_is_shown(m + 12 * PAGE, 4 * PAGE));
	work();
	CHECK(!syscall(SYS_munmap, p, 8 * PAGE) && !syscall(SYS_munmap, m, 16 * PAGE));
	CHECK(malloc_trim(0) && !blocks_of_file());
	work();
}

/* Which nodes the program wants for a buffer is not what the next one gets. */
static void nodes(void)
{
	unsigned long node = 1;
	int policy = -1;
	char *m = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	if (syscall(SYS_mbind, m, LARGE, 2 /* bind */, &node, 8, 0)) {
		CHECK(errno == ENOSYS || errno == EPERM);
		exit(77);
	}
	memset(m, 1, LARGE);
	CHECK(memory_test_is_shown(m, LARGE));
	CHECK(!syscall(SYS_get_mempolicy, &policy, NULL, 0, m, 2 /* of the address */) &&
	      policy == 2);
	CHECK(!munmap(m, LARGE));
	p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p == m);
	CHECK(!syscall(SYS_get_mempolicy, &policy, NULL, 0, p, 2) && policy == 0);
}

/* Whether an address is left out of core dumps, or is nothing. */
static bool is_not_dumped(const char *p)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	bool here = false, out = true;
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			out = strstr(line, " dd");
	}
	fclose(maps);
	return out;
}

/* Memory of the program is in its core dumps, and what it does not use is not: that would be gigabytes. */
static void dumps(void)
{
	char *p = malloc(LARGE), *q = malloc(32 << 20), *m;

	m = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(!is_not_dumped(p) && !is_not_dumped(q) && !is_not_dumped(m));
	CHECK(is_not_dumped(m + LARGE));
	free(q);
	CHECK(!mlock(m, PAGE) && !munmap(m, LARGE));
	CHECK(is_not_dumped(q) && is_not_dumped(m) && !is_not_dumped(p));
	p = realloc(p, 2 * LARGE);
	CHECK(!is_not_dumped(p + 2 * LARGE - 1));
}

/* --- the program ------------------------------------------------------------------------------ */

static const struct test_case cases[] = {
	{ "early", early, 1 },
	{ "born", born, 1 },
	{ "not_born", not_born, 1 },
	{ "freed", freed, 1 },
	{ "limit", limit, 8 << 20 },
	{ "fragments", fragments, 1 },
	{ "bad_free", bad_free, 1 },
	{ "forks", forks, 1 },
	{ "forks_unhandled", forks_unhandled, 1 },
	{ "forks_raw", forks_raw, 1 },
	{ "forks_inside", forks_inside, 1 },
	{ "forks_by_clone", forks_by_clone, 1 },
	{ "forks_in_handler", forks_in_handler, 1 },
	{ "executes", executes, 1 },
	{ "closed", closed, 1 },
	{ "replaced", replaced, 1 },
	{ "replaced_often", replaced_often, 1 },
	{ "address_limit", address_limit, 1 },
	{ "file_limit", file_limit, 1 },
	{ "locked", locked, 1 },
	{ "refused", refused, 0 },
	{ "over", over, 1 },
	{ "over_blocks", over_blocks, 1 },
	{ "advice", advice, 1 },
	{ "huge", huge, 1 },
	{ "raw_calls", raw_calls, 1 },
	{ "nodes", nodes, 1 },
	{ "dumps", dumps, 1 },
};

int main(int argc, char **argv)
{
	return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
