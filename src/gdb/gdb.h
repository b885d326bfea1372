/* SPDX-License-Identifier: MIT */
/*
 * The debugger of device code: gdb's remote serial protocol, spoken to one debugger about one device
 * process, and the service through which debuggers reach the host program.
 *
 *	gdb -- TCP -- dpa-gdbserver --.
 *	gdb -- pipe -- verbatim gdb --+-- control/ask -- service -- session -- vb_dpa_debug
 *	                                                 listen.c   session.c  dpa/observe/debug.h
 *
 * What a debugger sends is not trusted: packets have a largest size, numbers are checked, and whatever
 * cannot be done is an error that changes nothing.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "dpa/observe/debug.h"

/* What a session debugs. Everything lives as long as the session. */
struct vb_gdb_target {
	struct vb_dpa_process *process;
	const char
		*elf_name; /* the name by which the debugger asks for the device ELF; a full path */
	const void *elf;
	size_t elf_len;
	/* A better name for a thread that does something; may be NULL, and may leave it as it is. */
	void (*name)(void *arg, uint32_t thread, char *name, size_t size);
	/*
	 * The debugger started the program: it is killed with the debugger's session, not detached
	 * from. NULL: it was not, and a kill is a detach.
	 */
	void (*kill)(void *arg);
	void *arg;                   /* of both */
	const atomic_int *exit_code; /* what the debugger is told at the end */
};

enum vb_gdb_end {
	VB_GDB_DETACHED, /* by the debugger, or because it killed the process */
	VB_GDB_LOST,     /* the connection */
	VB_GDB_ENDED,    /* by us: see vb_gdb_serve() */
};

/*
 * Speak to the debugger on the socket `file` until it detaches or hangs up, or until the descriptor quit
 * can be read from (which this does not do): the process or the program ends. The process is held at
 * first. The caller has attached to it, and detaches.
 */
enum vb_gdb_end vb_gdb_serve(const struct vb_gdb_target *target, struct vb_dpa_debug *debug,
			     const struct vb_file *file, int quit);
