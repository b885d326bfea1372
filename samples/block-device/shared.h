/* SPDX-License-Identifier: MIT */
/*
 * What driver, host and device code agree on: a block device as virtio 1.2 has it (OASIS), with one split queue.
 *
 * "Guest memory" is a file that driver and device have mapped. It begins with the registers; addresses in it, those of
 * descriptors too, are offsets from its beginning. All numbers are little-endian.
 */
#pragma once

#include <stdint.h>

enum {
	MEMORY_SIZE = 1 << 20,
	MAX_QUEUE = 128, /* entries, a power of two */
	SECTOR = 512,
	SECTORS = 512, /* of the disk */
	ID_BYTES = 20,
	MAGIC = 0x74726976, /* "virt" */
	BLOCK_DEVICE = 2,   /* device_id */
	QUEUE = 0,          /* whose doorbell is rung */
	VECTOR = 0,         /* which is raised */
};

/* Bits of a status. */
enum {
	STATUS_ACKNOWLEDGE = 1,
	STATUS_DRIVER = 2,
	STATUS_DRIVER_OK = 4,
	STATUS_FEATURES_OK = 8,
	STATUS_NEEDS_RESET = 64,
	STATUS_RUNNING = STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_DRIVER_OK | STATUS_FEATURES_OK,
};

/*
 * As on a bus, the driver writes a status, rings, and waits until the device shows it: 0 resets, and with DRIVER_OK the
 * device takes the queue. The device looks at the fields of the queue only then.
 */
struct registers {
	uint32_t magic, device_id; /* the device's */
	uint64_t capacity;         /* in sectors */
	uint32_t device_status;
	uint32_t driver_status; /* from here on the driver's */
	uint32_t queue_size, zero;
	uint64_t desc, avail, used;
};

/* ---- the split queue ---- */

enum { DESC_NEXT = 1, DESC_WRITE = 2, DESC_INDIRECT = 4 };

struct virtq_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

enum { AVAIL_NO_INTERRUPT = 1 };

struct virtq_avail {
	uint16_t flags, idx;
	uint16_t ring[];
};

struct virtq_used_elem {
	uint32_t id, len;
};

struct virtq_used {
	uint16_t flags, idx;
	struct virtq_used_elem ring[];
};

/* ---- requests: this header, data, and a byte of status ---- */

enum { BLK_IN = 0, BLK_OUT = 1, BLK_FLUSH = 4, BLK_GET_ID = 8 };
enum { BLK_OK = 0, BLK_IOERR = 1, BLK_UNSUPP = 2 };

struct blk_header {
	uint32_t type, zero;
	uint64_t sector;
};

/* What the handler is started with, in device memory. */
struct device {
	/* the host's to fill in */
	uint64_t cq_ring, cq_dbr;
	uint32_t cqn, log_cq; /* of doorbells */
	uint32_t emu_id;      /* the doorbell's context */
	uint32_t msix_cqn;    /* of interrupts */
	uint32_t window_id, mkey;
	uint64_t memory; /* host address of the guest's memory */
	uint64_t disk;   /* device address */
	/* the handler's own */
	uint32_t cq_ci;
	uint32_t size; /* of the queue; 0: none */
	uint64_t desc, avail, used;
	uint16_t next_avail, next_used;
	uint32_t status;
	uint64_t requests, errors;
};
