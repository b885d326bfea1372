// SPDX-License-Identifier: MIT
/*
 * A program with a library that watches its mappings, as Open MPI and UCX do: a jump over the first
 * bytes of mmap() and its relatives leads to functions that allocate, free and make the system call.
 *
 * usage: patched libc|first [aligned]    whose functions are written over: libc's, or those that are found
 * first; blocks of malloc() are libc's own, which then maps them in the range
 */
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "cases.h"

static _Atomic int calls[4];

/* What such a library does when it is told. */
static void be_told(int which)
{
	static __thread int depth;

	calls[which]++;
	if (depth++ == 0)
		free(malloc(LARGE));
	depth--;
}

static void *watch_mmap(void *base, size_t len, int prot, int flags, int fd, off_t offset)
{
	be_told(0);
	return (void *)syscall(SYS_mmap, base, len, prot, flags, fd, offset);
}

static int watch_munmap(void *base, size_t len)
{
	be_told(1);
	return (int)syscall(SYS_munmap, base, len);
}

static int watch_madvise(void *base, size_t len, int advice)
{
	be_told(2);
	return (int)syscall(SYS_madvise, base, len, advice);
}

static void *watch_mremap(void *base, size_t old_len, size_t new_len, int flags, void *to)
{
	be_told(3);
	return (void *)syscall(SYS_mremap, base, old_len, new_len, flags, to);
}

/* movabs $to, %r11; jmp *%r11 */
static void patch(void *at, void *to)
{
	unsigned char jump[13] = { 0x49, 0xbb, [10] = 0x41, 0xff, 0xe3 };
	char *page = (char *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));

	memcpy(jump + 2, &to, 8);
	if (syscall(SYS_mprotect, page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
		_exit(77); /* text cannot be changed here */
	memcpy(at, jump, sizeof(jump));
	CHECK(!syscall(SYS_mprotect, page, 2 * PAGE, PROT_READ | PROT_EXEC));
}

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && are(p, 0, LARGE));
	return p;
}

static void work(int round)
{
	char *p = malloc(LARGE), *m = map(LARGE), *many = map(128 << 20);
	pid_t pid;

	memset(p, 1, LARGE);
	p = realloc(p, 2 * LARGE);
	CHECK(p && are(p, 1, LARGE) && malloc_usable_size(p) >= 2 * LARGE);
	memset(m, 2, LARGE);
	many[0] = 3;
	pid = fork();
	if (!pid)
		_exit(!are(p, 1, LARGE) || !are(m, 2, LARGE) || many[0] != 3);
	CHECK(pid > 0 && !wait_for(pid));
	CHECK(!madvise(m, LARGE, MADV_DONTNEED) && are(m, 0, LARGE));
	CHECK(!madvise(m, LARGE, round % 2 ? MADV_DONTFORK : MADV_SEQUENTIAL));
	CHECK(madvise(m + 1, LARGE, MADV_DONTNEED) < 0 && errno == EINVAL);
	CHECK(munmap(m + 1, LARGE) < 0 && errno == EINVAL);
	CHECK(!munmap(m, PAGE));
	m = mremap(m + PAGE, LARGE - PAGE, 2 * LARGE, MREMAP_MAYMOVE);
	CHECK(m != MAP_FAILED && !munmap(m, 2 * LARGE) && !munmap(many, 128 << 20));
	free(p);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "mmap", "mmap64", "munmap", "madvise", "mremap" };
	void *const watchers[] = { (void *)watch_mmap, (void *)watch_mmap, (void *)watch_munmap,
				   (void *)watch_madvise, (void *)watch_mremap };
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

	if (argc < 2 || !libc)
		return 2;
	memory_test_aligned = argc == 3;
	CHECK(memory_test_start(64 << 20));
	for (int i = 0; i < 5; i++)
		patch(dlsym(strcmp(argv[1], "libc") ? RTLD_DEFAULT : libc, names[i]), watchers[i]);
	for (int round = 0; round < 20; round++)
		work(round);
	CHECK(calls[0] && calls[1]);
	CHECK(memory_test_aligned || memory_test_is_shown(malloc(LARGE), LARGE));
	return 0;
}
