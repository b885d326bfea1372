// SPDX-License-Identifier: MIT
/*
 * Buffers of tests, of the kind that VERBATIM_TEST_MEMORY names: private memory as a program has it, memory of the
 * card that other processes can map, or some pages of each. Of the last kind there are two: private pages that were shared
 * before are like any others (mixed), or are written to by packets only (left). Under `verbatim run` plain memory
 * is shared as well (arena). The functions are those that device memory comes from.
 */
#include "common.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, RUN = 3 * PAGE }; /* pages of one kind in a row */

static const char *kind(void)
{
	const char *name = getenv("VERBATIM_TEST_MEMORY");

	return name ? name : "private";
}

/* Memory as a program has it. */
static bool is_plain(void)
{
	return !strcmp(kind(), "private") || !strcmp(kind(), "arena");
}

static void *find(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	check(found, "%s", dlerror());
	return found;
}

/* Every other run of pages becomes private; forgotten: and like any other memory. */
static void mix(char *buf, size_t len, bool forgotten)
{
	void (*remove)(void *, size_t) = (void (*)(void *, size_t))find("vb_shared_remove");
	void (*forget)(void *, size_t) = (void (*)(void *, size_t))find("vb_shared_forget");

	for (size_t at = RUN; at < len; at += 2 * RUN) {
		size_t n = len - at < RUN ? len - at : RUN;

		remove(buf + at, n);
		check(mmap(buf + at, n, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == buf + at,
		      "cannot map");
		if (forgotten)
			forget(buf + at, n);
	}
}

void *kind_map(size_t len, int prot)
{
	void *(*alloc)(size_t);
	void *buf;

	if (is_plain() || prot != (PROT_READ | PROT_WRITE)) {
		int spare = !strcmp(kind(), "arena") ? 0 : MAP_NORESERVE;

		buf = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | spare, -1, 0);
		return buf == MAP_FAILED ? NULL : buf;
	}
	alloc = (void *(*)(size_t))find("vb_shared_alloc");
	buf = alloc(len);
	if (buf && strcmp(kind(), "shared"))
		mix(buf, len, !strcmp(kind(), "mixed"));
	return buf;
}

void kind_unmap(void *buf, size_t len)
{
	void (*release)(void *, size_t);

	if (is_plain()) {
		check_eq(munmap(buf, len), 0);
		return;
	}
	release = (void (*)(void *, size_t))find("vb_shared_free");
	release(buf, len);
}

int kind_protect(void *buf, size_t len, int prot)
{
	if (!is_plain())
		((void (*)(void *, size_t))find("vb_shared_remove"))(buf, len);
	return mprotect(buf, len, prot);
}

bool kind_is_shared(void)
{
	return strcmp(kind(), "private") &&
	       (!getenv("VERBATIM_SHARE") || strcmp(getenv("VERBATIM_SHARE"), "off")) &&
	       (!getenv("VERBATIM_DIRECT") || strcmp(getenv("VERBATIM_DIRECT"), "off"));
}
