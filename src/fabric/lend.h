/* SPDX-License-Identifier: MIT */
/*
 * Queues of a process that peers may deliver into themselves, for cards whose programs look at
 * memory only: a peer writes data, completion and producer index, and moves the state of the queue,
 * which lies in the segment of its owner. No thread of the owner runs.
 *
 *	owner's segment                               peer, with its own send queue's lock
 *	vb_window of a device                         vb_window_deliver():
 *	  map[]    device address --> memory            busy := who; open? all as expected?
 *	  queue[]  open  self peer key  where the CQ is   data, CQE, its valid word, index
 *	           busy  psn  produced                  psn, produced; busy := 0
 *
 * Memory that the owner shares (host/shared/shared.h) is written by stores, in that order. Where the CQ is
 * shared and the data is not, the kernel copies the data first; where the CQ is not, one
 * process_vm_writev does all.
 *
 * A queue is lent to one peer, the one that it is connected to, and the CQ to one queue. So there is
 * one writer: the peer, while it delivers, and otherwise the owner, who writes for the packets of that
 * same peer. The peer delivers only when nothing of its own is in flight, so the two never meet, and
 * need no lock.
 *
 * The owner takes a queue back by open := 0, a fence, and waiting until it is not busy, or until the
 * process that made it so is gone (segment.h has the same protocol for pins). The same wait follows a
 * change of the maps, and comes before shared pages mean anything else: being busy is to a peer what
 * a pin is elsewhere. What a peer left there is looked at and not trusted: it can spoil no more than
 * what it sends itself. What an owner shows is not trusted either: it is read once, and addresses are
 * addresses of that process, for the kernel or for reach.h, which find its memory there or none.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct vb_fabric;
struct vb_path;

enum {
	VB_WINDOWS = 64,        /* devices */
	VB_WINDOW_QUEUES = 256, /* of a device; a queue beyond these is reached by packets */
	VB_WINDOW_MAPS = 64,    /* the same for mappings */
	VB_WINDOW_CQE = 16,     /* bytes of a CQE; the valid bit is in the first four */
};

/* What a peer may do by itself through a queue. */
enum vb_window_op {
	VB_WINDOW_WRITE = 1 << 0,
	VB_WINDOW_READ = 1 << 1,
	VB_WINDOW_ADD = 1 << 2, /* to a word of eight bytes, atomically */
};

struct vb_window_queue {
	/* the owner writes */
	_Atomic uint32_t open; /* another number each time it is lent; 0: not lent */
	uint32_t self, peer;   /* addresses of the two queues */
	uint32_t key;
	uint64_t cq, index, taken; /* where entries, producer index, and the program's index are */
	uint32_t entries;          /* a power of two */
	uint32_t taken_shift;      /* the index is in the bits from here on of eight bytes */
	uint32_t takes;            /* enum vb_window_op */
	uint8_t pad[4];
	/* who delivers writes; the owner, when it is not lent or a packet was taken */
	_Alignas(64) _Atomic uint64_t busy; /* a pin (segment.h): slot and generation; 0: nobody */
	_Atomic uint32_t psn;               /* expected next, 24 bits */
	_Atomic uint32_t produced;          /* CQEs, free running */
	_Atomic uint32_t seen;              /* the program's index as it was last looked up */
	_Atomic uint64_t messages, bytes;   /* delivered since it was lent */
	uint8_t pad1[24];
};

_Static_assert(sizeof(struct vb_window_queue) == 128, "a line for each writer");

struct vb_window_map {
	_Atomic uint64_t va, size, memory;
};

struct vb_window {
	_Atomic uint32_t version; /* of the maps; odd while they change */
	_Atomic uint32_t count;
	_Alignas(64) struct vb_window_map map[VB_WINDOW_MAPS];
	_Alignas(64) struct vb_window_queue queue[VB_WINDOW_QUEUES];
};

/* --- the owner -------------------------------------------------------------------------------- */

/* The own window of a device, made with the first call; NULL where shared memory is full. */
struct vb_window *vb_window_own(struct vb_fabric *fabric, uint32_t device);

/* Where a queue with this address is shown, if it is. */
static inline uint32_t vb_window_place(uint32_t address)
{
	return address % VB_WINDOW_QUEUES;
}

/* Show mappings that are in order and no more than VB_WINDOW_MAPS; set each, then end. */
void vb_window_begin_maps(struct vb_window *window);
void vb_window_end_maps(struct vb_window *window, uint32_t count);
/* Wait until nobody uses what was there before. No lock of a queue, no read section. */
void vb_window_wait(struct vb_fabric *fabric, struct vb_window *window);
/*
 * The same for all windows, as far as somebody may use one of these pages: they are not shared any
 * more. Any locks.
 */
void vb_window_wait_range(struct vb_fabric *fabric, uintptr_t base, size_t len);
/* Take one back; the same. True where a process ended while it delivered. */
bool vb_window_close(struct vb_fabric *fabric, struct vb_window_queue *queue);

/* --- a peer ----------------------------------------------------------------------------------- */

struct vb_delivery {
	uint32_t device;   /* of the target */
	uint32_t to, from; /* addresses of the two queues */
	uint32_t key, psn;
	uint32_t psns;        /* that it takes */
	enum vb_window_op op; /* one */
	/* Local memory that is written from or read to, up to VB_DIRECT_MAX_IOV; none for an ADD. */
	const struct iovec *iov;
	uint32_t iov_cnt, len;
	uint64_t va;
	uint64_t add, old; /* old: what was there */
	bool stores_only;  /* system calls are not worth it */
	bool completes;
	_Alignas(16) uint8_t cqe[VB_WINDOW_CQE];
};

enum vb_delivered {
	/* That cannot be done here and now, for whatever reason: nothing counts, and packets have the
	 * target decide. */
	VB_DELIVERED_NOT,
	VB_DELIVERED_STORED, /* by loads and stores alone */
	VB_DELIVERED_COPIED, /* the kernel did all or a part */
};

/* Deliver a message to a queue of the path's peer, or take from there what it asks for. */
enum vb_delivered vb_window_deliver(struct vb_path *path, struct vb_delivery *d);
