// SPDX-License-Identifier: MIT
/*
 * A program that loads the card with dlopen(), rings, and unloads it: what it did to the program's instructions and signals
 * outlives that, so the code that they lead to has to.
 *
 *	usage: test_unloaded LIBRARY
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define need(what)                                                                 \
	do {                                                                       \
		if (!(what)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

enum { RINGS = 100, AT = 32 };

static uint64_t rings;
static sigjmp_buf back;
static uint64_t memory[AT + 1];

static void count(void *arg, size_t offset, const void *data, size_t size)
{
	(void)arg, (void)offset, (void)data, (void)size;
	rings++;
}

__attribute__((noinline)) static void store(volatile uint64_t *to, uint64_t value)
{
	to[AT] = value;
}

static void on_segv(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

static void use_and_unload(const char *name)
{
	void *(*map)(size_t, void (*)(void *, size_t, const void *, size_t), void *);
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL), *bell;
	void (*unmap)(void *);

	need(library);
	*(void **)&map = dlsym(library, "vb_trap_map");
	*(void **)&unmap = dlsym(library, "vb_trap_unmap");
	need(map && unmap);
	rings = 0;
	bell = map(4096, count, NULL);
	need(bell);
	for (uint64_t i = 0; i < RINGS; i++)
		store(bell, i);
	need(rings == RINGS);
	unmap(bell);
	need(!dlclose(library));
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_segv };
	volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile int faults = 0;

	need(argc == 2 && page != MAP_FAILED);
	need(!sigaction(SIGSEGV, &act, NULL));
	for (uint64_t i = 1; i <= 3; i++) {
		use_and_unload(argv[1]);
		store(memory, i);
		need(memory[AT] == i);
		if (!sigsetjmp(back, 1))
			*page = 1;
		else
			faults++;
	}
	need(faults == 3);
	return 0;
}
