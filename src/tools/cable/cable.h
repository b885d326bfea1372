/* SPDX-License-Identifier: MIT */
/*
 * What the commands of `verbatim cable` share: the port, and the queue of frames that were seen.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "card/ether/flow.h"
#include "tools/cmd.h"

/* argv[0] is "verbatim cable NAME". The return value is the exit code. */
int cable_dump(int argc, char **argv);
int cable_replay(int argc, char **argv);

/*
 * Open the adapter of this name, from the configuration file or NULL: as programs see it. 0, or an exit
 * code after a message that begins with who.
 */
int cable_open_port(const char *who, const char *config, const char *name, struct vb_dev **dev);

/* True once somebody wants the command to end (Ctrl-C, SIGTERM, SIGHUP); a second time it just ends. */
bool cable_stopped(void);
/* wake_fd: an eventfd that is written then, or -1. Calls that wait end with EINTR. */
void cable_catch_signals(int wake_fd);

/* Nanoseconds of the clock on the wall. */
uint64_t cable_wall_ns(void);
/* What that clock showed when vb_now_ns() was so. */
uint64_t cable_wall_at(uint64_t ns);

/* --- queue.c ---------------------------------------------------------------------------------- */

/* A frame in the queue. */
struct queued {
	uint32_t len;      /* of the frame */
	bool sent;         /* by the port; else received */
	bool taken;        /* the taker has it no more */
	uint64_t ns;       /* when it was sent, of vb_now_ns() */
	uint64_t position; /* in the queue */
	uint8_t data[];
};

/*
 * Between those who see frames, which must not wait, and the one who writes them down. A frame that
 * finds no room is lost and counted.
 *
 * Frames come from many processes, each of which may be late; the taker gets them in the order in which
 * they were sent. For that it waits until a frame is QUEUE_HOLD_NS old, unless the queue is half full or
 * it wants all that there is.
 */
enum { QUEUE_HOLD_NS = 300000000 };

struct queue {
	uint8_t *area;
	uint64_t size;       /* a power of two */
	int ready;           /* eventfd: there is something */
	struct vb_lock lock; /* of those who put */
	uint64_t tail;       /* under the lock */
	_Atomic uint64_t published, head;
	_Atomic uint32_t asleep; /* the taker wants to be told */
	_Atomic uint64_t lost;
	/* the taker's */
	uint64_t looked;       /* records before it are in the heap, or taken */
	struct queued **heap;  /* the one that was sent first is at the top */
	size_t held, capacity; /* in the heap */
};

int queue_create(struct queue *q, uint64_t size);
void queue_destroy(struct queue *q);
/* From any thread. */
void queue_put(struct queue *q, const struct vb_frame *frame, bool sent, uint64_t ns);
/* The frame that was sent first, until queue_pop(); NULL: none that need not be held. One thread. */
struct queued *queue_peek(struct queue *q, bool all);
void queue_pop(struct queue *q);
/* Sleep until there may be a frame, or the eventfd is written for another reason. */
void queue_wait(struct queue *q);
