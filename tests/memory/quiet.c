// SPDX-License-Identifier: MIT
/*
 * What private memory does, and what memory that is born shared has to do as well: marks that last,
 * pages that are unmapped, stores of debuggers, growth, errno. Each case in a process of its own,
 * with the allocator in LD_PRELOAD.
 *
 * usage: quiet NAME
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "start.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

#define RW (PROT_READ | PROT_WRITE)

static char *map(size_t len)
{
	char *p = mmap(NULL, len, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && memory_test_is_shown(p, len));
	return p;
}

/* --- marks ------------------------------------------------------------------------------------ */

/* Whether the kernel's word about a mapping, as "dd", stands with the page; false where nothing is mapped. */
static bool has_flag(const char *p, const char *flag)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	bool here = false, found = false;
	char line[512], word[8];

	snprintf(word, sizeof(word), " %s", flag);
	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, word);
	}
	fclose(maps);
	return found;
}

struct mark {
	const char *flag;
	int advice;     /* or -1: mlock() */
	bool inherited; /* by children */
};

static const struct mark marks[] = {
	{ "dd", MADV_DONTDUMP, true },  { "nh", MADV_NOHUGEPAGE, true },
	{ "dc", MADV_DONTFORK, false }, { "sr", MADV_SEQUENTIAL, true },
	{ "rr", MADV_RANDOM, true },    { "lo", -1, false },
};

/* Pages become private. Where the first is then. */
static char *by_wiping(char *p)
{
	CHECK(!madvise(p, 8 * PAGE, MADV_WIPEONFORK));
	return p;
}

static char *by_moving(char *p)
{
	char *to = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	to = mremap(p, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	CHECK(to != MAP_FAILED);
	return to;
}

static char *by_protecting(char *p)
{
	CHECK(!mprotect(p, 8 * PAGE, PROT_READ));
	return p;
}

static char *by_stack(char *p)
{
	pthread_attr_t attr;

	CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstack(&attr, p, 8 * PAGE));
	return p;
}

static void marked(const struct mark *mark, char *(*leave)(char *))
{
	char *p = map(16 * PAGE) + 4 * PAGE;
	pid_t pid;

	memset(p, 7, 8 * PAGE);
	CHECK(mark->advice < 0 ? !mlock(p, 8 * PAGE) : !madvise(p, 8 * PAGE, mark->advice));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		if (has_flag(p, mark->flag) != mark->inherited)
			fprintf(stderr, "in a child: %s\n", mark->flag);
		_exit(has_flag(p, mark->flag) != mark->inherited);
	}
	CHECK(!wait_for(pid));
	p = leave(p);
	if (!has_flag(p, mark->flag) || !has_flag(p + 7 * PAGE, mark->flag)) {
		fprintf(stderr, "lost: %s\n", mark->flag);
		_exit(1);
	}
	CHECK(!has_flag(p - PAGE, mark->flag) && are(p, 7, 8 * PAGE));
}

/* Nobody finds in a core dump, or on a disk, what was to stay out of it. */
static void marks_last(void)
{
	char *(*const ways[])(char *) = { by_wiping, by_moving, by_protecting, by_stack };

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++)
			marked(&marks[i], ways[k]);
}

/* The next user of the pages does not have them. */
static void marks_end(void)
{
	char *p = map(8 * PAGE);

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		CHECK(marks[i].advice < 0 ? !mlock(p, 8 * PAGE)
					  : !madvise(p, 8 * PAGE, marks[i].advice));
	CHECK(!munmap(p, 8 * PAGE));
	CHECK(map(8 * PAGE) == p);
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		CHECK(!has_flag(p, marks[i].flag));
	CHECK(!madvise(p, 8 * PAGE, MADV_DONTDUMP) && !madvise(p, 8 * PAGE, MADV_DODUMP));
	CHECK(!mlock(p, 8 * PAGE) && !munlock(p, 8 * PAGE));
	CHECK(!madvise(p, 8 * PAGE, MADV_WIPEONFORK));
	CHECK(!has_flag(p, "dd") && !has_flag(p, "lo"));
}

/* A policy of nodes stays, too. */
static void marks_nodes(void)
{
	unsigned long node = 1, found = 0;
	char *p = map(8 * PAGE);
	int policy = -1;

	if (syscall(SYS_mbind, p, 4 * PAGE, 2 /* bind */, &node, 8, 0)) {
		CHECK(errno == ENOSYS || errno == EPERM);
		exit(77);
	}
	CHECK(!madvise(p, 8 * PAGE, MADV_WIPEONFORK));
	CHECK(!syscall(SYS_get_mempolicy, &policy, &found, 64, p + 3 * PAGE, 2) && policy == 2 &&
	      found == 1);
	CHECK(!syscall(SYS_get_mempolicy, &policy, NULL, 0, p + 4 * PAGE, 2) && !policy);
}

/* --- pages that are not there ----------------------------------------------------------------- */

static sigjmp_buf back;
static volatile int code;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	code = info->si_code;
	siglongjmp(back, 1);
}

static int code_of(volatile char *p)
{
	code = 0;
	if (!sigsetjmp(back, 1))
		*p;
	return code;
}

/* Every call that names pages says that there are none. */
static void check_unmapped(char *p)
{
	unsigned char in[2];
	struct iovec here = { p, 1 }, there = { in, 1 };
	int ret;

	CHECK(code_of(p) == SEGV_MAPERR);
	CHECK(msync(p, PAGE, MS_ASYNC) < 0 && errno == ENOMEM);
	CHECK(mincore(p, PAGE, in) < 0 && errno == ENOMEM);
	CHECK(madvise(p, PAGE, MADV_NORMAL) < 0 && errno == ENOMEM);
	CHECK(mprotect(p, PAGE, PROT_READ) < 0 && errno == ENOMEM);
	CHECK(mlock(p, PAGE) < 0 && errno == ENOMEM);
	CHECK(munlock(p, PAGE) < 0 && errno == ENOMEM);
	CHECK(mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	CHECK(process_vm_readv(getpid(), &there, 1, &here, 1, 0) < 0 && errno == EFAULT);
	ret = remap_file_pages(p, PAGE, 0, 0, 0);
	CHECK(ret < 0 && errno == EINVAL);
	CHECK(syscall(SYS_mbind, p, PAGE, 0, NULL, 0, 1 /* strict */) < 0 &&
	      (errno == EFAULT || errno == ENOSYS));
	errno = 0;
	CHECK(!munmap(p, PAGE) && !errno);
}

static void unmapped(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	char *p = map(8 * PAGE), *block;
	unsigned char in[8];
	pid_t pid;

	memset(p, 1, 8 * PAGE);
	CHECK(!sigaction(SIGSEGV, &action, NULL));
	CHECK(!munmap(p + 2 * PAGE, 2 * PAGE));
	check_unmapped(p + 2 * PAGE);
	check_unmapped(p + 64 * PAGE);
	CHECK(mincore(p, 8 * PAGE, in) < 0 && errno == ENOMEM);
	CHECK(msync(p, 8 * PAGE, MS_SYNC) < 0 && errno == ENOMEM);
	block = valloc(64 << 20); /* too large to be kept */
	memset(block, 1, PAGE);
	free(block);
	check_unmapped(block);
	/* the same in a child, which has it all by itself */
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		check_unmapped(p + 2 * PAGE);
		check_unmapped(block);
		CHECK(are(p, 1, 2 * PAGE) && are(p + 4 * PAGE, 1, 4 * PAGE));
		_exit(0);
	}
	CHECK(!wait_for(pid));
	/* somebody wants a mapping just there */
	CHECK(mmap(p + 2 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == p + 2 * PAGE);
	memset(p + 2 * PAGE, 3, PAGE);
	for (int i = 0; i < 1000; i++)
		memset(map(PAGE), 2, PAGE);
	CHECK(are(p + 2 * PAGE, 3, PAGE) && !munmap(p + 2 * PAGE, PAGE));
	check_unmapped(p + 2 * PAGE);
}

/* By the instruction itself, as some run-time systems do. */
static char *map_past_libc(char *at, size_t len)
{
#if defined(__x86_64__)
	register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	register long fd __asm__("r8") = -1;
	register long offset __asm__("r9") = 0;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(SYS_mmap), "D"(at), "S"(len), "d"((long)RW), "r"(flags), "r"(fd),
			   "r"(offset)
			 : "rcx", "r11", "memory");
	return (char *)ret;
#else
	exit(77);
#endif
}

/* What is mapped past libc's functions at addresses that are free stays what it is. */
static void past_libc(void)
{
	char *p = map(4 * PAGE), *q;

	CHECK(!munmap(p, 4 * PAGE));
	CHECK(map_past_libc(p, 4 * PAGE) == p);
	memset(p, 5, 4 * PAGE);
	for (int i = 0; i < 100; i++) {
		q = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(q != MAP_FAILED && (q + 2 * PAGE <= p || q >= p + 4 * PAGE));
		memset(q, 6, 2 * PAGE);
	}
	CHECK(are(p, 5, 4 * PAGE));
}

/* remap_file_pages() is for files. */
static void not_a_file(void)
{
	char *p = map(4 * PAGE);

	memset(p, 1, PAGE);
	memset(p + PAGE, 2, PAGE);
	CHECK(remap_file_pages(p, PAGE, 0, 1, 0) < 0 && errno == EINVAL);
	CHECK(syscall(SYS_remap_file_pages, p, PAGE, 0, 1, 0) < 0 && errno == EINVAL);
	CHECK(are(p, 1, PAGE));
}

/* --- stores of debuggers ---------------------------------------------------------------------- */

static const int unwritable[] = { PROT_READ, PROT_READ | PROT_EXEC, PROT_NONE };

static void stores(void)
{
	int fd = open("/proc/self/mem", O_RDWR);
	char *p, c;

	CHECK(fd >= 0);
	for (int i = 0; i < 3; i++) {
		p = map(4 * PAGE);
		memset(p, 1, 4 * PAGE);
		CHECK(!mprotect(p + PAGE, PAGE, unwritable[i]));
		if (pwrite(fd, "\xcc", 1, (off_t)(uintptr_t)(p + PAGE)) != 1) {
			CHECK(errno == EIO || errno == EFAULT);
			/* a kernel may forbid it to all memory */
			c = *(char *)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
					  0);
			(void)c;
			CHECK(!"a store through /proc/self/mem");
		}
		CHECK(!mprotect(p + PAGE, PAGE, RW));
		CHECK(p[PAGE] == (char)0xcc && are(p + PAGE + 1, 1, PAGE - 1) && are(p, 1, PAGE));
	}
	close(fd);
}

/* Another thread's last store before the pages become read-only is not lost. */
static char *volatile shared_page;
static volatile long last;

static void *store_on(void *arg)
{
	(void)arg;
	if (!sigsetjmp(back, 1))
		for (;;) {
			*(volatile long *)shared_page = last + 1;
			last++;
		}
	return NULL;
}

static void last_stores(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	pthread_t thread;

	CHECK(!sigaction(SIGSEGV, &action, NULL));
	for (int i = 0; i < 40; i++) {
		char *p = map(64 * PAGE);

		memset(p, 1, 64 * PAGE);
		shared_page = p + 32 * PAGE;
		last = 0;
		CHECK(!pthread_create(&thread, NULL, store_on, NULL));
		while (last < 100)
			sched_yield();
		CHECK(!mprotect(p, 64 * PAGE, PROT_READ));
		CHECK(!pthread_join(thread, NULL));
		CHECK(*(volatile long *)shared_page == last);
		CHECK(!munmap(p, 64 * PAGE));
	}
}

static void traced(void)
{
	int ready[2], status;
	char *p[3];
	pid_t pid;

	CHECK(!pipe(ready));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		const char *why;

		CHECK(!memory_test_try(0, &why)); /* a range of its own */
		for (int i = 0; i < 3; i++) {
			p[i] = map(PAGE);
			memset(p[i], 1, PAGE);
			CHECK(!mprotect(p[i], PAGE, unwritable[i]));
		}
		CHECK(write(ready[1], p, sizeof(p)) == sizeof(p));
		pause();
		_exit(0);
	}
	CHECK(read(ready[0], p, sizeof(p)) == sizeof(p));
	CHECK(!ptrace(PTRACE_ATTACH, pid, NULL, NULL));
	CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	for (int i = 0; i < 3; i++) {
		CHECK(!ptrace(PTRACE_POKETEXT, pid, p[i], (void *)0xccul));
		errno = 0;
		CHECK(ptrace(PTRACE_PEEKTEXT, pid, p[i], NULL) == 0xcc && !errno);
	}
	CHECK(!kill(pid, SIGKILL));
	CHECK(waitpid(pid, &status, 0) == pid);
}

/* --- many, and at a time ---------------------------------------------------------------------- */

static int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int c, count = 0;

	CHECK(maps);
	while ((c = getc(maps)) != EOF)
		count += c == '\n';
	fclose(maps);
	return count;
}

/* As a garbage collector: page by page, so that the kernel, if it keeps each by itself, runs out of mappings. */
static void page_by_page(void)
{
	enum { PAGES = 40000 };
	char *p = map((size_t)PAGES * PAGE);
	pid_t pid;

	for (size_t i = 0; i < PAGES; i++)
		p[i * PAGE] = (char)i;
	for (size_t i = 0; i < PAGES; i++)
		CHECK(!mprotect(p + i * PAGE, PAGE, PROT_READ));
	CHECK(count_mappings() < PAGES / 2);
	for (size_t i = 0; i < PAGES; i++)
		CHECK(!mprotect(p + i * PAGE, PAGE, RW) && p[i * PAGE] == (char)i);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(p[0] || p[PAGE] != 1 || p[(size_t)(PAGES - 1) * PAGE] != (char)(PAGES - 1));
	CHECK(!wait_for(pid));
	/* those that are gone do not count */
	CHECK(!munmap(p, (size_t)PAGES * PAGE));
	p = map(2 * PAGE);
	CHECK(!mprotect(p, PAGE, PROT_READ) && !has_flag(p, "sh") && has_flag(p + PAGE, "sh"));
}

static char *changed;

static void advise_changed(void)
{
	CHECK(!madvise(changed, 4 * PAGE, MADV_NORMAL));
}

static void advise_moved(void)
{
	CHECK(!madvise(changed + PAGE, PAGE, MADV_NORMAL));
}

/* Another thread names the same pages and has done with them in the middle of the call. */
static void meanwhile(void)
{
	char *moved;

	changed = map(4 * PAGE);
	memory_test_meanwhile = advise_changed;
	CHECK(!mprotect(changed, 2 * PAGE, PROT_READ) && !memory_test_meanwhile);
	CHECK(memory_test_is_hidden(changed, 2 * PAGE));
	CHECK(memory_test_is_shown(changed + 2 * PAGE, 2 * PAGE));
	changed = map(4 * PAGE);
	memory_test_meanwhile = advise_moved;
	moved = mremap(changed, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
	CHECK(moved != MAP_FAILED && !memory_test_meanwhile);
	CHECK(memory_test_is_hidden(changed, 4 * PAGE));
}

/* --- growth ----------------------------------------------------------------------------------- */

static void grows(void)
{
	char *p = map(64 * PAGE), *q, *behind;

	memset(p, 1, 64 * PAGE);
	q = mremap(p, 64 * PAGE, 128 * PAGE, 0);
	CHECK(q == p && are(p, 1, 64 * PAGE) && are(p + 64 * PAGE, 0, 64 * PAGE));
	CHECK(memory_test_is_shown(p, 128 * PAGE));
	memset(p + 64 * PAGE, 2, 64 * PAGE);
	/* with its marks */
	CHECK(!madvise(p, 128 * PAGE, MADV_DONTDUMP));
	q = mremap(p, 128 * PAGE, 192 * PAGE, MREMAP_MAYMOVE);
	CHECK(q == p && has_flag(p + 191 * PAGE, "dd") && memory_test_is_shown(p, 192 * PAGE));
	CHECK(are(p + 64 * PAGE, 2, 64 * PAGE) && are(p + 128 * PAGE, 0, 64 * PAGE));
	CHECK(!madvise(p, 192 * PAGE, MADV_WIPEONFORK) && has_flag(p + 191 * PAGE, "dd"));
	/* not over what is there */
	p = map(4 * PAGE);
	behind = map(4 * PAGE);
	memset(p, 1, 4 * PAGE);
	memset(behind, 2, 4 * PAGE);
	if (behind == p + 4 * PAGE) {
		CHECK(mremap(p, 4 * PAGE, 8 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
		CHECK(memory_test_is_shown(p, 4 * PAGE));
		q = mremap(p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
		CHECK(q != MAP_FAILED && q != p && are(q, 1, 4 * PAGE) &&
		      are(q + 4 * PAGE, 0, 4 * PAGE));
		CHECK(are(behind, 2, 4 * PAGE) && memory_test_is_shown(behind, 4 * PAGE));
		CHECK(!munmap(q, 8 * PAGE));
	}
	/* and what is left is free */
	p = map(8 * PAGE);
	CHECK(mremap(p, 8 * PAGE, 2 * PAGE, 0) == p && memory_test_is_hidden(p + 2 * PAGE, PAGE));
	CHECK(mremap(p, 2 * PAGE, 8 * PAGE, 0) == p && memory_test_is_shown(p, 8 * PAGE));
}

/* One mapping to the program, although a part of it is private. */
static void refilled(void)
{
	for (int hint = 0; hint < 2; hint++) {
		char *p = map(16 * PAGE), *q;

		memset(p, 1, 16 * PAGE);
		CHECK(!munmap(p + 4 * PAGE, 2 * PAGE));
		CHECK(mmap(p + 4 * PAGE, 2 * PAGE, RW,
			   MAP_PRIVATE | MAP_ANONYMOUS | (hint ? 0 : MAP_FIXED), -1,
			   0) == p + 4 * PAGE);
		memset(p + 4 * PAGE, 2, 2 * PAGE);
		CHECK(mmap(p + 16 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			   0) == p + 16 * PAGE); /* no room behind it */
		q = mremap(p, 16 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
		CHECK(q != MAP_FAILED && q != p);
		CHECK(are(q, 1, 4 * PAGE) && are(q + 4 * PAGE, 2, 2 * PAGE));
		CHECK(are(q + 6 * PAGE, 1, 10 * PAGE) && are(q + 16 * PAGE, 0, 16 * PAGE));
		memset(q, 3, 32 * PAGE);
		CHECK(!munmap(q, 32 * PAGE));
	}
}

/* --- seals ------------------------------------------------------------------------------------ */

static void sealed(void)
{
	char *p = map(8 * PAGE), *block = valloc(8 * PAGE);

	memset(p, 1, 8 * PAGE);
	memset(block, 1, 8 * PAGE);
	if (syscall(SYS_mseal, p + 2 * PAGE, PAGE, 0)) {
		CHECK(errno == ENOSYS);
		exit(77);
	}
	CHECK(munmap(p + 2 * PAGE, PAGE) < 0 && errno == EPERM);
	CHECK(munmap(p, 8 * PAGE) < 0 && errno == EPERM);
	CHECK(are(p, 1, 8 * PAGE)); /* all of it or nothing */
	CHECK(mprotect(p + 2 * PAGE, PAGE, PROT_READ) < 0 && errno == EPERM);
	CHECK(mremap(p + 2 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EPERM);
	CHECK(mmap(p + 2 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		      MAP_FAILED &&
	      errno == EPERM);
	CHECK(!madvise(p + 2 * PAGE, PAGE, MADV_WIPEONFORK));
	CHECK(!madvise(p + 2 * PAGE, PAGE, MADV_DONTDUMP));
	CHECK(are(p, 1, 8 * PAGE));
	CHECK(!munmap(p, 2 * PAGE) && !munmap(p + 3 * PAGE, 5 * PAGE) &&
	      are(p + 2 * PAGE, 1, PAGE));
	/* a block that cannot be freed is lost, and not given out again */
	CHECK(!syscall(SYS_mseal, block + PAGE, PAGE, 0));
	free(block);
	CHECK(block[PAGE] == 1);
	for (int i = 0; i < 100; i++) {
		char *q = valloc(8 * PAGE);

		CHECK(q != block);
		memset(q, 2, 8 * PAGE);
	}
	CHECK(are(block + PAGE, 1, PAGE));
}

/* --- errno ------------------------------------------------------------------------------------ */

/* A call that succeeds leaves errno alone. */
#define SILENT(what)                \
	do {                        \
		errno = 77;         \
		CHECK(what);        \
		CHECK(errno == 77); \
	} while (0)

static void silent(void)
{
	static const int advices[] = {
		MADV_NORMAL,        MADV_RANDOM,         MADV_SEQUENTIAL, MADV_WILLNEED,
		MADV_DONTNEED,      MADV_FREE,           MADV_DONTFORK,   MADV_DOFORK,
		MADV_DONTDUMP,      MADV_DODUMP,         MADV_COLD,       MADV_PAGEOUT,
		MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_NOHUGEPAGE, MADV_WIPEONFORK,
		MADV_KEEPONFORK,
	};
	unsigned char in[8];
	char *p, *block;
	pid_t pid;

	close(memory_test_fd()); /* what needs it then goes other ways */
	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		p = map(8 * PAGE);
		memset(p, 1, 8 * PAGE);
		errno = 77;
		if (madvise(p, 8 * PAGE, advices[i]))
			CHECK(errno == EINVAL);
		else
			CHECK(errno == 77);
		if (advices[i] != MADV_WIPEONFORK)
			SILENT(!munmap(p, 8 * PAGE));
	}
	SILENT((p = map(8 * PAGE)) != MAP_FAILED);
	memset(p, 1, 8 * PAGE);
	SILENT(!mlock(p, PAGE));
	SILENT(!mlock2(p, PAGE, 0));
	SILENT(!munlock(p, PAGE));
	SILENT(!msync(p, 8 * PAGE, MS_ASYNC));
	SILENT(!mincore(p, 8 * PAGE, in));
	SILENT(!mprotect(p, PAGE, PROT_NONE));
	SILENT(!mprotect(p + PAGE, PAGE, PROT_READ));
	SILENT(!mprotect(p, 8 * PAGE, RW));
	SILENT(mremap(p, 8 * PAGE, 4 * PAGE, 0) == p);
	SILENT(mremap(p, 4 * PAGE, 16 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
	SILENT(mmap(p, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	SILENT(!munmap(p, 2 * PAGE));
	SILENT(!posix_memalign((void **)&block, PAGE, LARGE));
	SILENT((block = realloc(block, 4 * LARGE)));
	SILENT(malloc_usable_size(block) >= 4 * LARGE);
	errno = 77;
	free(block);
	CHECK(errno == 77);
	SILENT((block = valloc(LARGE)));
	memset(block, 1, LARGE);
	errno = 77;
	pid = fork();
	CHECK(errno == 77 && pid >= 0);
	if (!pid)
		_exit(0);
	CHECK(!wait_for(pid));
}

/* --- a fork that waits ------------------------------------------------------------------------ */

/* Somebody who watches page faults is told of a fork, which waits until he has read that. */
static void waiting_fork(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_EVENT_FORK };
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct timespec while_ = { 0, 200000000 };
	int ready[2], status, fd;
	char *p, c;
	pid_t pid;

	CHECK(!pipe(ready));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		const char *why;

		CHECK(!memory_test_try(0, &why));
		memset(map(LARGE), 1, LARGE);
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
		p = mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		area.range.start = (uintptr_t)p;
		area.range.len = PAGE;
		if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &area))
			_exit(77);
		CHECK(write(ready[1], "x", 1) == 1);
		fork();
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1) {
		status = wait_for(pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 77);
		exit(77);
	}
	/* It sleeps there now, or ends on its way: both are right. */
	nanosleep(&while_, NULL);
	CHECK(!kill(pid, SIGTERM));
	status = wait_for(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

/* --- which blocks ----------------------------------------------------------------------------- */

/* By default blocks of malloc() are libc's, and what is at a page boundary is not. */
static void aligned(void)
{
	char *p[] = { malloc(LARGE),
		      calloc(1, LARGE),
		      realloc(malloc(10), LARGE),
		      reallocarray(NULL, LARGE, 1),
		      memalign(64, LARGE),
		      aligned_alloc(2048, LARGE) };
	char *q[] = { memalign(PAGE, LARGE), aligned_alloc(2 * PAGE, LARGE), valloc(1), pvalloc(1),
		      map(LARGE) };
	pid_t pid;

	for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++) {
		CHECK(p[i] && memory_test_is_hidden(p[i], LARGE));
		memset(p[i], (int)i, LARGE);
	}
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++) {
		CHECK(q[i] && memory_test_is_shown(q[i], 1));
		q[i][0] = (char)i;
	}
	/* one grows where it was born */
	q[0] = realloc(q[0], 8 * LARGE);
	CHECK(q[0] && memory_test_is_shown(q[0], 8 * LARGE) && !q[0][0]);
	q[1] = realloc(q[1], 100);
	CHECK(q[1] && q[1][0] == 1);
	p[0] = realloc(p[0], 8 * LARGE);
	CHECK(p[0] && memory_test_is_hidden(p[0], 8 * LARGE) && are(p[0], 0, LARGE));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		for (size_t i = 1; i < sizeof(p) / sizeof(p[0]); i++)
			CHECK(are(p[i], (char)i, LARGE));
		for (size_t i = 0; i < sizeof(q) / sizeof(q[0]) - 1; i++) {
			CHECK(q[i][0] == (char)i);
			free(i % 2 ? q[i] : realloc(q[i], 3 * LARGE));
		}
		_exit(0);
	}
	CHECK(!wait_for(pid));
	for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++)
		free(p[i]);
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]) - 1; i++)
		free(q[i]);
}

/* --- the program ------------------------------------------------------------------------------ */

static const struct test_case cases[] = {
	{ "marks_last", marks_last, 1 },   { "marks_end", marks_end, 1 },
	{ "marks_nodes", marks_nodes, 1 }, { "unmapped", unmapped, 1 },
	{ "past_libc", past_libc, 1 },     { "not_a_file", not_a_file, 1 },
	{ "stores", stores, 1 },           { "last_stores", last_stores, 1 },
	{ "traced", traced, 1 },           { "grows", grows, 1 },
	{ "refilled", refilled, 1 },       { "sealed", sealed, 1 },
	{ "silent", silent, 1 },           { "waiting_fork", waiting_fork, 1 },
	{ "aligned", aligned, 1 },         { "page_by_page", page_by_page, 1 },
	{ "meanwhile", meanwhile, 1 },
};

int main(int argc, char **argv)
{
	memory_test_aligned = true;
	return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
