// SPDX-License-Identifier: MIT
/*
 * Huge pages that the machine does not have. Programs for cards map them unchecked, and crash where
 * none are free: in a process that has libibverbs such a mapping gets ordinary pages, and the log says
 * so once. Called by mmap.c where the kernel has refused one.
 *
 * A program that names the address (DPDK) counts the pages itself, and hears what the kernel says. So
 * do processes without libibverbs, and all with VERBATIM_HUGE=strict, which `verbatim run` sets where
 * the configuration wants it.
 *
 * What is given is what huge pages would have been to the program: whole ones by size and alignment.
 */
#include "host/memory/huge.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "host/real.h"
#include "host/memory/libc.h"

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#define SIZE_BITS (0x3f << MAP_HUGE_SHIFT)

_Static_assert(SHM_HUGETLB != 0, "a flag of its own");

/* The bytes of a huge page, by the flags of mmap() or shmget(); 0: not known. */
static size_t page_size(int flags)
{
	unsigned int shift = (unsigned int)flags >> MAP_HUGE_SHIFT & 0x3f;
	char text[4096], *line;

	if (shift)
		return shift < 48 ? (size_t)1 << shift : 0;
	libc_read_text("/proc/meminfo", text, sizeof(text));
	line = strstr(text, "\nHugepagesize:");
	return line ? strtoul(line + strlen("\nHugepagesize:"), NULL, 10) << 10 : 0;
}

struct place {
	uintptr_t address;
	bool in_program;
};

/* Looks at the first object alone: the program itself. */
static int look_at_program(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct place *place = arg;

	for (unsigned int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD &&
		    place->address - (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) <
			    info->dlpi_phdr[i].p_memsz)
			place->in_program = true;
	return 1;
}

/*
 * In libverbatim's log, which a process with libibverbs has. A library that asks for huge pages (UCX)
 * tries several kinds of memory and takes what there is: whoever runs it has nothing to mend, and reads
 * of it only who wants to.
 */
static void say_once(const char *what, size_t page, const void *caller)
{
	static atomic_bool said[2];
	struct place place = { .address = (uintptr_t)caller };
	void *library;
	__typeof__(&vb_log) log;

	dl_iterate_phdr(look_at_program, &place);
	if (atomic_exchange_explicit(&said[place.in_program], true, memory_order_relaxed))
		return;
	library = dlopen("libverbatim.so.1", RTLD_LAZY | RTLD_NOLOAD);
	log = library ? (__typeof__(log))dlsym(library, "vb_log") : NULL;
	if (log)
		log(place.in_program ? VB_LOG_WARN : VB_LOG_INFO,
		    "%s: no huge page of %zu KiB is free: this program gets ordinary pages (vm.nr_hugepages of sysctl; VERBATIM_HUGE=strict to let it fail)",
		    what, page >> 10);
	if (library)
		dlclose(library);
}

static bool is_wanted(void)
{
	const char *how = vb_getenv("VERBATIM_HUGE");
	void *library;

	if (how && !strcmp(how, "strict"))
		return false;
	library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (library)
		dlclose(library);
	return library;
}

/* At a multiple of the page: more is mapped, and what is too much goes again. */
static char *map_aligned(size_t len, size_t page, int prot, int flags)
{
	char *p = (char *)RAW(SYS_mmap, NULL, len + page, prot, flags, -1, 0), *from;

	if (p == MAP_FAILED)
		return p;
	from = p + (page - (uintptr_t)p % page) % page;
	if (from > p)
		RAW(SYS_munmap, p, (size_t)(from - p));
	if (from < p + page)
		RAW(SYS_munmap, from + len, (size_t)(p + page - from));
	return from;
}

/* The size in whole huge pages; 0: it cannot be told. */
static size_t memory_huge_whole_pages(size_t len, size_t page)
{
	return page && !(page & (page - 1)) && len <= SIZE_MAX / 4 ? (len + page - 1) & ~(page - 1)
								   : 0;
}

void *huge_map_ordinary(void *base, size_t len, int prot, int flags, int before, const void *caller)
{
	int ordinary = flags & ~(MAP_HUGETLB | SIZE_BITS | MAP_POPULATE);
	size_t page;
	char *p;

	if (errno != ENOMEM || base || !(flags & MAP_ANONYMOUS) || !is_wanted())
		return MAP_FAILED;
	page = page_size(flags);
	len = memory_huge_whole_pages(len, page);
	p = len ? map_aligned(len, page, prot, ordinary) : MAP_FAILED;
	if (p == MAP_FAILED) {
		errno = ENOMEM;
		return p;
	}
	RAW(SYS_madvise, p, len, MADV_HUGEPAGE); /* the kernel may still find some */
#ifdef MADV_POPULATE_WRITE
	if (flags & MAP_POPULATE)
		RAW(SYS_madvise, p, len,
		    prot & PROT_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
	say_once("mmap", page, caller);
	errno = before;
	return p;
}

/* EPERM: the user is not in the group that may have huge pages by shmget(). */
PUBLIC int shmget(key_t key, size_t size, int flags)
{
	int before = errno, id = REAL(shmget)(key, size, flags), err = errno;
	size_t page, whole;

	if (id >= 0 || !(flags & SHM_HUGETLB) || (err != ENOMEM && err != EPERM) || !is_wanted())
		goto out;
	page = page_size(flags);
	whole = memory_huge_whole_pages(size, page);
	if (whole)
		id = REAL(shmget)(key, whole, flags & ~(SHM_HUGETLB | SIZE_BITS));
	if (id >= 0)
		say_once("shmget", page, __builtin_return_address(0));
out:
	errno = id >= 0 ? before : err;
	return id;
}
