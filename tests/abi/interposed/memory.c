// SPDX-License-Identifier: MIT
/*
 * Memory. Sizes are small ones, which stay libc's, and large ones, which lie in the shared range
 * once the program has opened a card.
 */
#include "rows.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

enum { SMALL = 100, LARGE = 1 << 20, PAGE = 4096 };

static const size_t sizes[] = { SMALL, LARGE };
static volatile size_t too_much = PTRDIFF_MAX;

/* Anonymous pages, and an address at which nothing is. */
static char *pages(void)
{
	return mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static char *nothing(void)
{
	char *base =
		mmap(NULL, LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	munmap(base, LARGE);
	return base;
}

/* --- blocks ----------------------------------------------------------------------------------- */

static void say_block(void *p, size_t size, size_t align)
{
	if (!p)
		return;
	memset(p, 1, size);
	say("\taligned %s, usable %s\n", (uintptr_t)p % align ? "no" : "yes",
	    malloc_usable_size(p) >= size ? "yes" : "no");
	CALL(NUMBER, (free(p), 0));
}

static void good_malloc(void)
{
	for (int i = 0; i < 2; i++)
		say_block((void *)CALL(POINTER, malloc(sizes[i])), sizes[i], 16);
	CALL(POINTER, malloc(0));
}

static void bad_malloc(void)
{
	CALL(POINTER, malloc(too_much));
	CALL(POINTER, malloc(too_much + 1));
}

static void good_calloc(void)
{
	for (int i = 0; i < 2; i++) {
		char *p = (char *)CALL(POINTER, calloc(sizes[i], 3));

		say("\t%s\n", p[0] || memcmp(p, p + 1, sizes[i] * 3 - 1) ? "dirty" : "clean");
		say_block(p, sizes[i] * 3, 16);
	}
}

static void bad_calloc(void)
{
	CALL(POINTER, calloc(too_much, 8));
	CALL(POINTER, calloc(too_much, 1));
}

static void good_free(void)
{
	for (int i = 0; i < 2; i++) {
		void *p = malloc(sizes[i]);

		CALL(NUMBER, (free(p), 0));
	}
	CALL(NUMBER, (free(NULL), 0));
}

static void bad_free(void)
{
	for (int i = 0; i < 2; i++) {
		char *volatile p = malloc(sizes[i]);

		memset(p, 0, sizes[i]);
		SAY_END(free(p + 16));
	}
}

static void good_realloc(void)
{
	char *p = (char *)CALL(POINTER, realloc(NULL, SMALL));

	strcpy(p, "content");
	p = (char *)CALL(POINTER, realloc(p, LARGE));
	p = (char *)CALL(POINTER, realloc(p, 3 * LARGE));
	p = (char *)CALL(POINTER, realloc(p, SMALL));
	say("\t%s\n", p);
	CALL(POINTER, realloc(p, 0));
	p = malloc(LARGE);
	CALL(POINTER, realloc(p, 0));
}

static void bad_realloc(void)
{
	for (int i = 0; i < 2; i++) {
		char *p = malloc(sizes[i]);

		CALL(POINTER, realloc(p, too_much));
		say_block(p, sizes[i], 16);
	}
}

static void good_reallocarray(void)
{
	char *p = (char *)CALL(POINTER, reallocarray(NULL, 3, LARGE));

	CALL(POINTER, reallocarray(p, 1, SMALL));
}

static void bad_reallocarray(void)
{
	CALL(POINTER, reallocarray(NULL, too_much, 4));
	CALL(POINTER, reallocarray(malloc(LARGE), too_much, 4));
	CALL(POINTER, reallocarray(malloc(LARGE), too_much, 1));
}

static void good_posix_memalign(void)
{
	for (int i = 0; i < 2; i++) {
		void *p = NULL;

		CALL(NUMBER, posix_memalign(&p, PAGE, sizes[i]));
		say_block(p, sizes[i], PAGE);
	}
}

static void bad_posix_memalign(void)
{
	void *p = &p;

	CALL(NUMBER, posix_memalign(&p, 3, LARGE));
	CALL(NUMBER, posix_memalign(&p, 0, LARGE));
	CALL(NUMBER, posix_memalign(&p, PAGE, too_much));
	say("\t%s\n", p == &p ? "as it was" : "changed");
}

#define ALIGNED(name)                                                                           \
	static void good_##name(void)                                                           \
	{                                                                                       \
		for (int i = 0; i < 2; i++) {                                                   \
			say_block((void *)CALL(POINTER, name(64, sizes[i])), sizes[i], 64);     \
			say_block((void *)CALL(POINTER, name(PAGE, sizes[i])), sizes[i], PAGE); \
		}                                                                               \
	}                                                                                       \
	static void bad_##name(void)                                                            \
	{                                                                                       \
		CALL(POINTER, name(3, LARGE));                                                  \
		CALL(POINTER, name(PAGE, too_much));                                            \
		CALL(POINTER, name(too_much + 1, LARGE));                                       \
		CALL(POINTER, name(too_much + 2, LARGE));                                       \
	}

ALIGNED(aligned_alloc)
ALIGNED(memalign)

#define PAGED(name)                                                                       \
	static void good_##name(void)                                                     \
	{                                                                                 \
		for (int i = 0; i < 2; i++)                                               \
			say_block((void *)CALL(POINTER, name(sizes[i])), sizes[i], PAGE); \
	}                                                                                 \
	static void bad_##name(void)                                                      \
	{                                                                                 \
		CALL(POINTER, name(too_much));                                            \
		CALL(POINTER, name(2 * too_much));                                        \
	}

PAGED(valloc)
PAGED(pvalloc)

static void good_malloc_usable_size(void)
{
	for (int i = 0; i < 2; i++) {
		void *p = malloc(sizes[i]);

		CALL(FLAG, malloc_usable_size(p) >= sizes[i]);
	}
	CALL(NUMBER, malloc_usable_size(NULL));
}

/* What it says depends on all that was freed before. */
static void good_malloc_trim(void)
{
	free(malloc(LARGE));
	CALL(FLAG, malloc_trim(0) <= 1);
}

/* --- mappings --------------------------------------------------------------------------------- */

#define MMAP(name)                                                                             \
	static void good_##name(void)                                                          \
	{                                                                                      \
		char *p = (char *)CALL(POINTER, name(NULL, LARGE, PROT_READ | PROT_WRITE,      \
						     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));     \
                                                                                               \
		CALL(FLAG, name(p + PAGE, PAGE, PROT_READ,                                     \
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + PAGE);  \
		CALL(POINTER, name(NULL, PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)); \
	}                                                                                      \
	static void bad_##name(void)                                                           \
	{                                                                                      \
		char *p = pages();                                                             \
                                                                                               \
		CALL(POINTER, name(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));   \
		CALL(POINTER, name(NULL, LARGE, PROT_READ, MAP_PRIVATE, -1, 0));               \
		CALL(POINTER, name(NULL, LARGE, PROT_READ, MAP_ANONYMOUS, -1, 0));             \
		CALL(POINTER, name(NULL, too_much, PROT_READ | PROT_WRITE,                     \
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));                       \
		CALL(POINTER, name(p + 1, PAGE, PROT_READ,                                     \
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));           \
		CALL(POINTER, name(p, PAGE, PROT_READ,                                         \
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)); \
	}

MMAP(mmap)
MMAP(mmap64)

static void good_munmap(void)
{
	char *p = pages();

	CALL(NUMBER, munmap(p + PAGE, PAGE));
	CALL(NUMBER, munmap(p, LARGE));
	CALL(NUMBER, munmap(p, LARGE));
}

static void bad_munmap(void)
{
	char *p = pages();

	CALL(NUMBER, munmap(p + 1, PAGE));
	CALL(NUMBER, munmap(p, 0));
	CALL(NUMBER, munmap(p, too_much));
}

static void good_mremap(void)
{
	char *p = pages();

	strcpy(p, "content");
	p = (char *)CALL(POINTER, mremap(p, LARGE, 2 * LARGE, MREMAP_MAYMOVE));
	say("\t%s\n", p);
	CALL(FLAG, mremap(p, 2 * LARGE, LARGE, 0) == p);
}

static void bad_mremap(void)
{
	char *p = pages();

	CALL(POINTER, mremap(p + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
	CALL(POINTER, mremap(p, LARGE, 0, MREMAP_MAYMOVE));
	CALL(POINTER, mremap(p, LARGE, LARGE, 64));
	CALL(POINTER, mremap(p, 0, LARGE, MREMAP_MAYMOVE));
	CALL(POINTER, mremap(nothing(), LARGE, 2 * LARGE, MREMAP_MAYMOVE));
}

static void good_mprotect(void)
{
	char *p = pages();

	CALL(NUMBER, mprotect(p, PAGE, PROT_NONE));
	CALL(NUMBER, mprotect(p, LARGE, PROT_READ | PROT_WRITE));
	CALL(NUMBER, mprotect(p, 0, PROT_READ));
}

static void bad_mprotect(void)
{
	char *p = pages();

	CALL(NUMBER, mprotect(p + 1, PAGE, PROT_READ));
	CALL(NUMBER, mprotect(p, PAGE, 1 << 20));
	CALL(NUMBER, mprotect(nothing(), LARGE, PROT_READ));
}

static void good_pkey_mprotect(void)
{
	char *p = pages();

	CALL(NUMBER, pkey_mprotect(p, PAGE, PROT_READ, -1));
}

static void bad_pkey_mprotect(void)
{
	char *p = pages();

	CALL(NUMBER, pkey_mprotect(p + 1, PAGE, PROT_READ, -1));
	CALL(NUMBER, pkey_mprotect(p, PAGE, PROT_READ, 1000));
}

static void good_madvise(void)
{
	static const int advices[] = { MADV_NORMAL,     MADV_WILLNEED,  MADV_DONTNEED,
				       MADV_FREE,       MADV_DONTFORK,  MADV_DOFORK,
				       MADV_DONTDUMP,   MADV_DODUMP,    MADV_SEQUENTIAL,
				       MADV_WIPEONFORK, MADV_KEEPONFORK };
	char *p = pages();

	memset(p, 1, LARGE);
	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		say("\tadvice %d\n", advices[i]);
		CALL(NUMBER, madvise(p, LARGE / 2, advices[i]));
	}
}

static void bad_madvise(void)
{
	char *p = pages();

	CALL(NUMBER, madvise(p + 1, PAGE, MADV_DONTNEED));
	CALL(NUMBER, madvise(p, PAGE, 1234));
	CALL(NUMBER, madvise(p, PAGE, MADV_REMOVE));
	CALL(NUMBER, madvise(nothing(), LARGE, MADV_DONTNEED));
}

static void good_msync(void)
{
	char *p = pages();

	CALL(NUMBER, msync(p, LARGE, MS_SYNC));
	CALL(NUMBER, msync(p, PAGE, MS_ASYNC));
}

static void bad_msync(void)
{
	CALL(NUMBER, msync(pages() + 1, PAGE, MS_SYNC));
	CALL(NUMBER, msync(pages(), PAGE, MS_SYNC | MS_ASYNC));
}

static void good_mincore(void)
{
	unsigned char there[LARGE / PAGE];
	char *p = pages();

	p[0] = 1;
	CALL(NUMBER, mincore(p, LARGE, there));
	say("\t%d\n", there[0] & 1);
}

static void bad_mincore(void)
{
	unsigned char there[LARGE / PAGE];

	CALL(NUMBER, mincore(pages() + 1, PAGE, there));
	CALL(NUMBER, mincore(pages(), PAGE, NULL));
	CALL(NUMBER, mincore(nothing(), LARGE, there));
}

/* A mapping that the kernel would take: shared, and of a file. */
static void good_remap_file_pages(void)
{
	int fd = memfd_create("pages", 0);
	char *p;

	if (ftruncate(fd, 2 * PAGE))
		return;
	p = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	CALL(NUMBER, remap_file_pages(p, PAGE, 0, 1, 0));
}

static void bad_remap_file_pages(void)
{
	CALL(NUMBER, remap_file_pages(pages(), PAGE, 0, 0, 0));
	CALL(NUMBER, remap_file_pages(nothing(), PAGE, 0, 0, 0));
}

/* --- locks ------------------------------------------------------------------------------------ */

static void good_mlock(void)
{
	char *p = pages();

	CALL(NUMBER, mlock(p, PAGE));
	CALL(NUMBER, munlock(p, PAGE));
}

static void bad_mlock(void)
{
	CALL(NUMBER, mlock(nothing(), PAGE));
}

static void good_mlock2(void)
{
	CALL(NUMBER, mlock2(pages(), PAGE, MLOCK_ONFAULT));
}

static void bad_mlock2(void)
{
	CALL(NUMBER, mlock2(pages(), PAGE, 64));
	CALL(NUMBER, mlock2(nothing(), PAGE, 0));
}

static void good_munlock(void)
{
	CALL(NUMBER, munlock(pages(), PAGE));
}

static void bad_munlock(void)
{
	CALL(NUMBER, munlock(nothing(), PAGE));
}

static void good_mlockall(void)
{
	CALL(NUMBER, mlockall(MCL_CURRENT | MCL_ONFAULT));
	CALL(NUMBER, munlockall());
}

static void good_munlockall(void)
{
	mlock(pages(), PAGE);
	CALL(NUMBER, munlockall());
}

static void bad_mlockall(void)
{
	CALL(NUMBER, mlockall(0));
	CALL(NUMBER, mlockall(64));
}

/* --- what else can be at an address ----------------------------------------------------------- */

static void good_shmat(void)
{
	int id = shmget(IPC_PRIVATE, PAGE, 0600);
	char *p = (char *)CALL(POINTER, shmat(id, NULL, 0));

	shmctl(id, IPC_RMID, NULL);
	CALL(NUMBER, shmdt(p));
}

static void bad_shmat(void)
{
	CALL(POINTER, shmat(-1, NULL, 0));
	CALL(POINTER, shmat(-1, pages(), SHM_REMAP));
}

static void good_shmget(void)
{
	int id = -1;

	CALL(FLAG, (id = shmget(IPC_PRIVATE, LARGE, IPC_CREAT | 0600)) >= 0);
	CALL(NUMBER, shmctl(id, IPC_RMID, NULL));
}

static void bad_shmget(void)
{
	CALL(NUMBER, shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600));
	CALL(NUMBER, shmget(IPC_PRIVATE, too_much, IPC_CREAT | 0600));
	CALL(NUMBER, shmget(0x7e57ab1e, PAGE, 0600));
}

static void *run_empty(void *arg)
{
	return arg;
}

static void run_thread(pthread_attr_t *attr)
{
	pthread_t thread;

	if (!CALL(NUMBER, pthread_create(&thread, attr, run_empty, NULL)))
		CALL(NUMBER, pthread_join(thread, NULL));
}

static void good_pthread_attr_setstack(void)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	CALL(NUMBER, pthread_attr_setstack(&attr, pages(), LARGE));
	run_thread(&attr);
}

static void bad_pthread_attr_setstack(void)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	CALL(NUMBER, pthread_attr_setstack(&attr, pages(), 16));
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void good_pthread_attr_setstackaddr(void)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, LARGE / 2);
	CALL(NUMBER, pthread_attr_setstackaddr(&attr, pages() + LARGE));
	run_thread(&attr);
}

static const struct row rows[] = {
	ROW(malloc),
	ROW(calloc),
	ROW(free),
	ROW(realloc),
	ROW(reallocarray),
	ROW(posix_memalign),
	ROW(aligned_alloc),
	ROW(memalign),
	ROW(valloc),
	ROW(pvalloc),
	ROW_GOOD(malloc_usable_size),
	ROW_GOOD(malloc_trim),
	ROW(mmap),
	ROW(mmap64),
	ROW(munmap),
	ROW(mremap),
	ROW(mprotect),
	ROW(pkey_mprotect),
	ROW(madvise),
	ROW(msync),
	ROW(mincore),
	ROW(remap_file_pages),
	ROW_GOOD(munlockall),
	ROW(mlock),
	ROW(mlock2),
	ROW(munlock),
	ROW(mlockall),
	ROW(shmat),
	ROW(shmget),
	ROW(pthread_attr_setstack),
	ROW_GOOD(pthread_attr_setstackaddr),
};
ROWS(memory_rows, rows);
