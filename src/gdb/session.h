/* SPDX-License-Identifier: MIT */
/*
 * What the files of a session share. One session is one debugger on one device process; one thread
 * runs it, so there are no locks.
 *
 * A packet is $BODY#SS, SS being the sum of the body's bytes. A reply is built in out[] by the put
 * functions, which stop at its end, and sent by vb_gdb_send(). A handler of a packet that answers
 * nothing has answered with the empty reply: "not supported".
 */
#pragma once

#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "gdb/gdb.h"

/* PacketSize as we tell it: the longest body, of packets and of replies. */
#define PACKET_MAX 0x4000
/* Breakpoints and watchpoints of a session. */
#define POINTS_MAX 4096
/* The thread that is shown where there is none: a debugger takes a target without threads for dead. */
#define NO_THREAD 0x7fffffffU

enum session_state {
	SESSION_RUNNING, /* or stopping */
	SESSION_STOPPED,
	SESSION_OVER,
};

/* A Z packet that has been accepted. */
struct point {
	uint64_t addr, len;
	unsigned int types; /* bits of enum point_type; addr and len are the key */
	bool loose;         /* a breakpoint outside of the text: to arrive there is a trap */
};

enum point_type { POINT_SOFT, POINT_HARD, POINT_WRITE, POINT_READ, POINT_ACCESS, POINT_TYPES };

/* Where in a packet the next byte of input belongs. */
enum packet_state { PACKET_NONE, PACKET_BODY, PACKET_SUM1, PACKET_SUM2 };

struct session {
	const struct vb_gdb_target *target;
	struct vb_dpa_debug *debug;
	enum session_state state;
	enum vb_gdb_end end;
	struct vb_dpa_stopped stop; /* the last one */
	bool asked;                 /* by the debugger's interrupt */
	uint32_t thread;            /* of registers and memory (Hg) */
	bool bare;       /* there were no threads at the stop: NO_THREAD stays until the next */
	uint32_t resume; /* of c and s packets (Hc); 0: all */
	struct point *points;
	unsigned int npoints;
	char *doc; /* the document that qXfer reads, from its offset 0 on */
	size_t doc_len;
	uint32_t *list; /* threads for qsThreadInfo */
	unsigned int nlist, listed;
	bool file_open;

	/* packet.c */
	struct vb_file file; /* the socket; the program may close what it does not know */
	int quit;
	bool no_ack;
	bool swbreak, hwbreak; /* the debugger knows these words */
	enum packet_state packet;
	bool overlong;
	uint8_t sum, sent_sum;
	size_t body_len;
	char body[PACKET_MAX + 1];
	size_t out_len;
	bool out_full;
	char out[PACKET_MAX];
	size_t frame_len;
	char frame[PACKET_MAX + 4]; /* the last one sent, for another time */
};

/* ---- packet.c ---- */

/* What a byte of input completes. */
enum packet_event { PACKET_MORE, PACKET_WHOLE, PACKET_BAD, PACKET_INTERRUPT };

enum packet_event vb_gdb_byte(struct session *s, uint8_t byte);
/* Read what there is; the number of bytes, 0 where there is none. The session is over at its end. */
size_t vb_gdb_receive(struct session *s, uint8_t *to, size_t max);
void vb_gdb_send(struct session *s);

void vb_gdb_put(struct session *s, const char *text);
void vb_gdb_printf(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void vb_gdb_put_hex(struct session *s, const void *bytes, size_t len);
/* Binary, escaped; the number of bytes that found room. */
size_t vb_gdb_put_binary(struct session *s, const void *bytes, size_t len);
/* E and a number. err: -errno. */
void vb_gdb_put_error(struct session *s, int err);
/* OK, or the error. */
void vb_gdb_put_result(struct session *s, int err);

/* Numbers at *at, which moves behind them. False: there is none, or it is too large. */
bool vb_gdb_get_number(const char **at, uint64_t *value);
bool vb_gdb_get_char(const char **at, char c);
/* Bytes of two hex digits each, all of them there. */
bool vb_gdb_get_hex(const char **at, void *to, size_t len);
/* Undo the escapes of len bytes, in place; the number of bytes. */
size_t vb_gdb_unescape(char *text, size_t len);

/* ---- threads.c ---- */

/* -1 and 0 mean all, or any: 0. */
bool vb_gdb_get_thread(const char **at, uint32_t *thread);
/* All threads, for free(); NULL: no memory. There is always one. */
uint32_t *vb_gdb_threads(struct session *s, unsigned int *count);
/* It has stopped. What a debugger has seen of a stop does not go away: gdb asserts that. */
void vb_gdb_threads_stopped(struct session *s);
/* The thread to show first: the selected one if it does something, or one that does. */
uint32_t vb_gdb_first_thread(struct session *s);
void vb_gdb_thread_packet(struct session *s, const char *body); /* H, T */
void vb_gdb_thread_query(struct session *s, const char *body);  /* qC, qfThreadInfo, ... */
int vb_gdb_thread_doc(struct session *s);

/* ---- registers.c ---- */

void vb_gdb_read_registers(struct session *s);
void vb_gdb_write_registers(struct session *s, const char *at);
void vb_gdb_read_register(struct session *s, const char *at);
void vb_gdb_write_register(struct session *s, const char *at);
int vb_gdb_features_doc(struct session *s, const char *annex);

/* ---- memory.c ---- */

int vb_gdb_copy(struct session *s, uint64_t addr, char *bytes, uint64_t len, bool write,
		uint64_t *done);
void vb_gdb_read_memory(struct session *s, const char *at);
/* binary: X, whose data has escapes. */
void vb_gdb_write_memory(struct session *s, const char *at, bool binary);

/* ---- points.c ---- */

void vb_gdb_point(struct session *s, const char *at, bool set);
/* The address that the debugger knows a watchpoint by, and the word for its kind. */
const char *vb_gdb_watch_hit(const struct session *s, uint64_t *addr);
/*
 * How a breakpoint was set: "swbreak" or "hwbreak"; NULL: there is none (but an ebreak of the program),
 * or the debugger does not want to know.
 */
const char *vb_gdb_break_hit(const struct session *s, uint64_t addr);
/* Whether there is one where functions that the host has called return to. */
bool vb_gdb_breaks_at_return(const struct session *s);
/* Whether a trap is the arrival at a breakpoint outside of the text. */
bool vb_gdb_is_loose_break(const struct session *s, const struct vb_dpa_state *state);

/* ---- resume.c ---- */

void vb_gdb_vcont(struct session *s, const char *at);
/* c, s, C, S. */
void vb_gdb_go(struct session *s, const char *body);
void vb_gdb_stop_reply(struct session *s);

/* ---- query.c ---- */

void vb_gdb_query(struct session *s, const char *body);
void vb_gdb_set(struct session *s, const char *body); /* Q */

/* ---- file.c ---- */

void vb_gdb_file(struct session *s, const char *at);
