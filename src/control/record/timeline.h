/* SPDX-License-Identifier: MIT */
/*
 * The timeline: what happens in a program, moment by moment, for `verbatim trace`.
 *
 * Somebody who does a thing worth seeing notes it. Where nobody records, that is the test of one
 * flag. Where somebody does (VERBATIM_TRACE names a directory), each thread writes into pieces of a
 * file of its process that it shares with nobody, so that a note takes no lock, may be made in a
 * signal handler, and is there even if the program is killed. A full file keeps what came first and
 * counts what was lost.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/public.h"

/* What the fields of a note mean; spans have a duration. Numbers stay: they are in files. */
enum vb_note_kind {
	VB_NOTE_NONE,  /* never written, or half */
	VB_NOTE_CALL,  /* span. A function of the API: name; object: its number, or 0 */
	VB_NOTE_RPC,   /* span. Device code for the host: name; code: flexio_status */
	VB_NOTE_SLICE, /* span. A device thread on an EU. object: EU; value: vb_note_run(); name: of the thread; code: number of its process */
	VB_NOTE_READY, /* A device thread is handed to the EUs. name, value, code: as for SLICE */
	VB_NOTE_DOORBELL, /* object: QP; value: the producer index */
	VB_NOTE_WQE, /* A work request begins. object: QP; code: enum vb_wr_op; value: bytes; extra: its index */
	VB_NOTE_HBL_WQE, /* the same; code: enum vb_hbl_op */
	VB_NOTE_CQE,     /* object: CQ; code: status; value: bytes; extra: vb_note_done() */
	VB_NOTE_SENT, /* A packet. object: QP; code: enum vb_pkt_op; value: bytes; extra: PSN << 32 | the other QP */
	VB_NOTE_RECEIVED, /* the same, at the other side */
	VB_NOTE_COPIED, /* A WRITE or READ by a copy in the peer's memory, without a packet. object: QP; code: enum vb_wr_op; value: bytes */
	VB_NOTE_RETRY,  /* Sent again from here on. object: QP; extra: PSN */
	VB_NOTE_LOST, /* A frame or completion found no room. object: QP, CQ or port; name: which */
	VB_NOTE_KINDS,
};

/* Of a slice: who ran, and for how many instructions. */
static inline uint64_t vb_note_run(uint32_t thread, uint64_t instructions)
{
	return (uint64_t)thread << 32 | (instructions > UINT32_MAX ? UINT32_MAX : instructions);
}

/* Of a completion: of which queue pair, of which work request, of which of its queues. */
static inline uint64_t vb_note_done(uint32_t qpn, uint32_t index, bool receive)
{
	return (uint64_t)receive << 63 | (uint64_t)(index & 0x7fffffff) << 32 | qpn;
}

struct vb_note {
	uint64_t time; /* ns of vb_now_ns(): where a span begins */
	union {
		uint64_t duration; /* of a span */
		uint64_t extra;
	};
	uint32_t object;
	uint16_t name; /* number of a string of the file, from 1; 0: none */
	uint8_t code;
	uint8_t kind; /* enum vb_note_kind; written last */
	uint64_t value;
};

/* --- the file --------------------------------------------------------------------------------- */

/*
 * Pieces of one thread each follow the head. They are small, so that a program with many threads that
 * note little has room for all of them.
 */
enum {
	VB_TIMELINE_PIECE = 4096,                                 /* bytes */
	VB_TIMELINE_HEAD = 64 << 10,                              /* bytes: a number of pieces */
	VB_TIMELINE_FIRST = VB_TIMELINE_HEAD / VB_TIMELINE_PIECE, /* piece behind the head */
	VB_TIMELINE_NOTES = VB_TIMELINE_PIECE / sizeof(struct vb_note) - 1,
	VB_TIMELINE_NAMES = 1000,
	VB_TIMELINE_NAME_BYTES = 59,
	VB_TIMELINE_MAGIC = 0x32545642, /* "BVT2" */
};

struct vb_timeline_head {
	uint32_t magic;
	uint32_t pid;
	char command[16];
	_Atomic uint32_t pieces; /* taken, those of the head among them */
	uint32_t most;           /* that the file has */
	_Atomic uint64_t lost;   /* notes */
	uint64_t zeros[3];
	struct {
		_Atomic uint32_t taken;
		_Atomic bool ready;
		char text[VB_TIMELINE_NAME_BYTES]; /* cut, ends with 0 */
	} name[VB_TIMELINE_NAMES];
};

struct vb_timeline_piece {
	uint32_t tid;
	char name[16];
	uint32_t zeros[3];
	struct vb_note note[VB_TIMELINE_NOTES];
};

_Static_assert(sizeof(struct vb_note) == 32, "the file's layout");
_Static_assert(sizeof(struct vb_timeline_piece) == VB_TIMELINE_PIECE, "the file's layout");
_Static_assert(sizeof(struct vb_timeline_head) <= VB_TIMELINE_HEAD, "the file's layout");

/* --- noting ----------------------------------------------------------------------------------- */

VB_PUBLIC extern bool vb_timeline_on; /* set before main() */

#define vb_timeline_is_on() __builtin_expect(vb_timeline_on, 0)

/* The rest only where it is on. */
VB_PUBLIC uint64_t vb_timeline_now(void);
/* text need not stay. 0: there is no room for another. */
VB_PUBLIC uint16_t vb_timeline_name(const char *text);
/* time 0: now. */
VB_PUBLIC void vb_timeline_write(const struct vb_note *note) __attribute__((cold));
/* vb_note(WQE, .object = qpn, ...): a moment. */
#define vb_note(what, ...)                                                                 \
	do {                                                                               \
		if (vb_timeline_is_on())                                                   \
			vb_timeline_write(                                                 \
				&(struct vb_note){ .kind = VB_NOTE_##what, __VA_ARGS__ }); \
	} while (0)
