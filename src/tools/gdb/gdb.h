/* SPDX-License-Identifier: MIT */
/* What dpa-gdbserver and `verbatim gdb` share, and the files of the latter. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/ask/client.h"
#include "gdb/link.h"

/* ---- common.c ---- */

/*
 * 0x and hex digits, hex digits, or a decimal number (of a PID, or more than 16 digits); false: none of
 * these.
 */
bool gdb_parse_token(const char *text, uint64_t *token);
/* Why a program refuses a debugger. */
const char *gdb_reason(int err);
/*
 * Ask a program that can be debugged (gdb/link.h). The number of entries, which are for free(), or -errno.
 * fd: the connection; NULL: it is closed.
 */
int gdb_ask(struct vb_ask_process *program, const char *request, uint64_t token,
	    struct vb_gdb_entry **entries, int *fd);
/* Of the program that a token names. */
int gdb_ask_token(const char *request, uint64_t token, struct vb_gdb_entry **entries, int *fd);
/* A connection on which the remote serial protocol follows: the descriptor or -errno. */
int gdb_attach(uint64_t token);
/* What a token names, and the program's pid (may be NULL): 0 or -errno. */
int gdb_look(uint64_t token, struct vb_gdb_entry *entry, pid_t *pid);
/*
 * Copy both ways until one side ends. `in` and `out` are the debugger's, and may be the same; a
 * connection that comes to the socket `listener` (-1: none) meanwhile is closed.
 */
void gdb_relay(int in, int out, int program, int listener);
/* Close a connection that has come. */
void gdb_send_away(int listener);

/* ---- peer.c ---- */

/*
 * Whether the other end of a TCP connection over the loopback belongs to this user, by the table of
 * sockets (a file in the form of /proc/net/tcp).
 */
bool gdb_tcp_peer_is_own(const char *table, uint16_t local, uint16_t peer, uid_t uid);

/* ---- debugger.c: starting gdb ---- */

struct gdb_run {
	uint64_t token;
	const char *gdb; /* NULL: one is looked for */
	char **options;  /* for gdb, as they are */
	unsigned int noptions;
};

/* Which gdb; NULL after a message. For free(). */
char *gdb_find(const char *asked);
/* Read the device ELF into a file. 0, or -errno after a message. */
int gdb_save_elf(uint64_t token, const char *path);
/* Run it until its end; its exit code. */
int gdb_run(const struct gdb_run *run);

/* ---- program.c ---- */

/* Start a program, and gdb on its first device process; the program's exit code. */
int gdb_program(struct gdb_run *run, const char *config, char **program);
