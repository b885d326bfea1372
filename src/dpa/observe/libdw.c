// SPDX-License-Identifier: MIT
/* Owns the loading of libdw: used when something went wrong, and only then. */
#ifdef HAVE_LIBDW
#include "dpa/observe/libdw.h"

#include <dlfcn.h>

static void *libdw_find(void *lib, const char *name, bool *all)
{
	void *function = lib ? dlsym(lib, name) : NULL;

	*all = *all && function;
	return function;
}

bool vb_libdw_load(struct libdw *dw)
{
	void *lib = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
	bool all = true;

	*dw = (struct libdw){
		.begin_elf = libdw_find(lib, "dwarf_begin_elf", &all),
		.end = libdw_find(lib, "dwarf_end", &all),
		.nextcu = libdw_find(lib, "dwarf_nextcu", &all),
		.offdie = libdw_find(lib, "dwarf_offdie", &all),
		.haspc = libdw_find(lib, "dwarf_haspc", &all),
		.getsrc_die = libdw_find(lib, "dwarf_getsrc_die", &all),
		.linesrc = libdw_find(lib, "dwarf_linesrc", &all),
		.lineno = libdw_find(lib, "dwarf_lineno", &all),
		.getcfi = libdw_find(lib, "dwarf_getcfi", &all),
		.getcfi_elf = libdw_find(lib, "dwarf_getcfi_elf", &all),
		.cfi_end = libdw_find(lib, "dwarf_cfi_end", &all),
		.cfi_addrframe = libdw_find(lib, "dwarf_cfi_addrframe", &all),
		.frame_info = libdw_find(lib, "dwarf_frame_info", &all),
		.frame_cfa = libdw_find(lib, "dwarf_frame_cfa", &all),
		.frame_register = libdw_find(lib, "dwarf_frame_register", &all),
	};
	return all;
}
#endif
