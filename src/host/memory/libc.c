// SPDX-License-Identifier: MIT
/* Finds libc's own functions, and who else stands in front of them. */
#include "host/memory/libc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

_Atomic(void *) libc_found[LIBC_COUNT];

static const char *const names[] = {
#define LIBC_NAME(name) #name,
	LIBC_FUNCTIONS(LIBC_NAME)
#undef LIBC_NAME
};

/*
 * dlsym() frees the text of an error that nobody asked for, and makes one where it finds nothing:
 * both before we know the functions to do it with. The text is lost, or there is none.
 */
static __thread volatile bool finding; /* volatile: libc's header says that dlsym() calls nobody */

static void *have_nothing(void)
{
	return NULL;
}

void *libc_find(enum libc_function function)
{
	void *found;

	if (finding)
		return (void *)have_nothing;
	finding = true;
	found = dlsym(RTLD_NEXT, names[function]);
	finding = false;
	atomic_store_explicit(&libc_found[function], found, memory_order_relaxed);
	return found;
}

__attribute__((constructor)) static void memory_libc_find_all(void)
{
	for (unsigned int i = 0; i < LIBC_COUNT; i++)
		libc_find((enum libc_function)i);
}

/* The first address of the library that has this one; NULL: none. */
static void *library_of(void *address)
{
	Dl_info info;

	return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

int libc_is_next(const char **which)
{
	/* No other libc has it, and nobody replaces it. */
	void *libc = library_of(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
	void *self = library_of(&libc_found);

	for (unsigned int i = 0; i < LIBC_COUNT; i++) {
		*which = names[i];
		if (!libc || library_of(libc_function((enum libc_function)i)) != libc ||
		    library_of(dlsym(RTLD_DEFAULT, names[i])) != self)
			return 0;
	}
	return 1;
}

void libc_read_text(const char *path, char *text, size_t size)
{
	int fd = (int)RAW(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long n = fd < 0 ? 0 : RAW(SYS_read, fd, text, size - 1);

	text[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		RAW(SYS_close, fd);
}
