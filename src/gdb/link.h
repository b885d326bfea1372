/* SPDX-License-Identifier: MIT */
/*
 * What tools ask the service "gdb" of a host program for (control/ask/socket.h has the socket), one of
 *
 *	list             entries of all device processes that can be attached to
 *	offer            the same, after each that the program has was made one of them
 *	elf TOKEN        the entry of one, then its ELF file
 *	attach TOKEN     the entry of one, then the remote serial protocol
 *
 * TOKEN in hex digits; 0: the only device process there is. The answer has the number of entries that
 * follow it, or -errno: ENOENT no such token, ENOTUNIQ several processes, EBUSY debugged. The upper half
 * of a token is the program's key, which all users can see; the lower half is drawn at random for each
 * device process.
 */
#pragma once

#include <stdint.h>

#define VB_GDB_SERVICE "gdb"
#define VB_GDB_LIST    "list"
#define VB_GDB_OFFER   "offer"
#define VB_GDB_ELF     "elf"
#define VB_GDB_ATTACH  "attach"

struct vb_gdb_entry {
	uint64_t token, elf_len;
	uint32_t id;       /* of the device process */
	uint32_t attached; /* a debugger is there */
	uint32_t waits;    /* it executes nothing before one has been there */
	uint32_t unused;
	char process[128], app[128], adapter[64];
};
