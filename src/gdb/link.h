/* SPDX-License-Identifier: MIT */
/*
 * The way between a debugger's tool and the host program: an abstract unix socket of the program,
 *
 *	@verbatim-dpa/UID/PID/HOST       HOST: eight hex digits, the upper half of the program's tokens
 *
 * on which a tool says what it wants and gets one answer; after an accepted VB_GDB_ATTACH the remote
 * serial protocol follows. Each side refuses a peer of another user: the kernel says who it is. The
 * name can be seen by all users, and the lower half of a token is drawn at random for each device
 * process.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#define VB_GDB_MAGIC   0x67626476U /* "vdbg" */
#define VB_GDB_VERSION 1

enum vb_gdb_request {
	VB_GDB_LIST = 1, /* entries of all device processes */
	VB_GDB_ELF,      /* the entry of one, then its ELF file */
	VB_GDB_ATTACH,   /* the entry of one, then the remote serial protocol */
};

struct vb_gdb_hello {
	uint32_t magic, version, request, unused;
	uint64_t token; /* ELF, ATTACH; 0: the only device process there is */
};

/* Followed by count entries. */
struct vb_gdb_answer {
	uint32_t magic, version;
	int32_t status; /* -errno: ENOENT no such token, ENOTUNIQ several processes, EBUSY debugged */
	uint32_t count;
};

struct vb_gdb_entry {
	uint64_t token, elf_len;
	uint32_t id;       /* of the device process */
	uint32_t attached; /* a debugger is there */
	uint32_t waits;    /* it executes nothing before one has been there */
	uint32_t unused;
	char process[128], app[128], adapter[64];
};

/* ---- link.c: the tool's side ---- */

/* A program that listens. */
struct vb_gdb_host {
	char name[sizeof(
		((struct sockaddr_un *)0)->sun_path)]; /* without the first byte, which is 0 */
};

/* Own programs that listen, for free(); the number of them, or -errno. */
int vb_gdb_hosts(struct vb_gdb_host **hosts);
/*
 * A connection, and the program's pid (may be NULL): the descriptor or -errno; -EPERM: not ours. Calls on
 * it wait for some seconds only.
 */
int vb_gdb_connect(const struct vb_gdb_host *host, pid_t *pid);
/* The same, of the program that a token names. -ENOENT. */
int vb_gdb_connect_token(uint64_t token, pid_t *pid);
/*
 * Send the request and get the answer. Entries are for free(); their number or -errno. -ETIMEDOUT: the
 * program does not answer.
 */
int vb_gdb_ask(int fd, enum vb_gdb_request request, uint64_t token, struct vb_gdb_entry **entries);

/* All of it, over short counts and signals. False: errno. */
bool vb_gdb_write_all(int fd, const void *from, size_t len);
bool vb_gdb_read_all(int fd, void *to, size_t len);
