/* SPDX-License-Identifier: MIT */
/*
 * The file in which a program shows the tools of its user what it is doing: SLOT-GENERATION.show,
 * beside its segment in the registry's directory.
 *
 *	0      header: who it is, and the table of sections           owner writes, others read
 *	4096   requests: words by which others ask for something      others write, the owner reads
 *	8192   chunks: of the sections, and whatever they point to    owner writes, others read
 *
 * A section is a growing table of entries of one kind. Its first chunk has `base` entries and each
 * further one twice as many as the one before, so that a program with one of a kind shows little
 * and one with thousands has few chunks. The file grows at its end, by memory that is reserved
 * before it is used: a full /dev/shm is an error that the owner sees, never a SIGBUS.
 *
 * Whatever can change while it is read begins with a sequence number (struct vb_monitor_seq). It is
 * odd while the owner writes. A reader copies number, content, number, and takes the copy where both
 * are the same even number. Neither waits for the other, so a killed owner or reader leaves nothing
 * locked. An entry whose `used` is 0 is free; each use of it has other numbers.
 *
 * Compatibility: kinds and fields are only ever added, fields at the end of an entry. A reader copies
 * as much of an entry as both sides know, and finds zeros in what it knows better. What cannot be
 * done so is a new kind, or a new VB_MONITOR_MAGIC.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define VB_MONITOR_MAGIC 0x31306e6f6d626576ull /* "vebmon01" */

enum {
	VB_MONITOR_PAGE = 4096,
	VB_MONITOR_SECTIONS = 16,
	VB_MONITOR_CHUNKS = 13,
	VB_MONITOR_ENTRY_MAX = 1024, /* bytes of an entry */
	VB_MONITOR_NAME = 64,
	VB_MONITOR_REQUESTS = 240, /* DPA processes that a program shows at a time */
	VB_MONITOR_MAX_SIZE = 64 << 20,
};

/* What the entries of a section are. A number is never used again. */
enum vb_monitor_kind {
	VB_MONITOR_NONE,
	VB_MONITOR_DPA_PROCESS, /* struct vb_monitor_process */
	VB_MONITOR_DPA_THREAD,  /* struct vb_monitor_thread */
	VB_MONITOR_ADAPTER,     /* struct vb_monitor_adapter */
	VB_MONITOR_QP,          /* struct vb_monitor_qp */
	VB_MONITOR_ACCELERATOR, /* struct vb_monitor_accelerator */
	VB_MONITOR_KINDS,
};

struct vb_monitor_section {
	_Atomic uint32_t kind;  /* written last; 0: there is none here */
	uint32_t entry_size;    /* a multiple of 64 */
	uint32_t base;          /* entries of the first chunk; chunk k has base << k */
	_Atomic uint32_t count; /* entries that were ever used; a loop ends there */
	uint64_t reserved;
	_Atomic uint64_t chunk[VB_MONITOR_CHUNKS]; /* offset in the file; 0: not yet */
};

struct vb_monitor_header {
	_Atomic uint64_t magic; /* written last */
	uint32_t slot, generation, pid;
	uint32_t reserved;
	/* One moment in two clocks: ticks of the processor, and ns of CLOCK_MONOTONIC. */
	uint64_t base_ticks, base_ns;
	_Atomic uint64_t size; /* bytes of the file in use */
	uint64_t reserved1[2];
	struct vb_monitor_section section[VB_MONITOR_SECTIONS];
};

_Static_assert(sizeof(struct vb_monitor_section) == 128, "layout");
_Static_assert(sizeof(struct vb_monitor_header) <= VB_MONITOR_PAGE, "layout");

struct vb_monitor_seq {
	_Atomic uint32_t number;
	uint32_t used; /* of an entry */
};

/* ---- requests ---- */

/*
 * What others want of a DPA process, in the place of its entry. `state` is what is in effect, as of
 * the next slice of each thread; there is no answer to wait for.
 */
struct vb_monitor_request {
	/* Bit 0: active. Bit 1: tracer. From bit 8 on: how often it was changed. */
	_Atomic uint64_t state;
	/* How often counters (lower half) and samples (upper half) were reset. */
	_Atomic uint64_t resets;
};

enum { VB_MONITOR_ACTIVE = 1, VB_MONITOR_TRACER = 2, VB_MONITOR_CHANGE = 1 << 8 };

struct vb_monitor_requests {
	struct vb_monitor_request process[VB_MONITOR_REQUESTS];
	/*
	 * Cycles of the accelerator's clock per tick of the processor, times 2^32; 0: nobody has
	 * asked yet. By the first reader that can tell, so that all of them say the same.
	 */
	_Atomic uint64_t rate;
	_Atomic uint64_t others[31]; /* for requests of other kinds */
};

_Static_assert(sizeof(struct vb_monitor_requests) == VB_MONITOR_PAGE, "layout");

/* ---- the accelerator ---- */

/* Where ticks are shown, they are of the processor, or cycles of a deterministic accelerator. */
enum { VB_MONITOR_DETERMINISTIC = 1 };

struct vb_monitor_process {
	struct vb_monitor_seq seq;
	uint32_t id;               /* unique among all processes of the user's programs */
	uint32_t flags;            /* VB_MONITOR_DETERMINISTIC */
	_Atomic uint32_t nthreads; /* entries of its threads; not under seq */
	uint32_t samples;          /* places of the buffer of samples */
	_Atomic uint64_t buffer;   /* its offset; 0: none yet. Not under seq. */
	char name[VB_MONITOR_NAME];
	char adapter[32];
	uint64_t reserved[8];
};

/* Written by the host thread that runs the device thread. */
struct vb_monitor_counters {
	struct vb_monitor_seq seq;
	uint64_t resets;               /* of the request, when the values below began at 0 */
	_Atomic uint64_t ticks;        /* on an EU */
	_Atomic uint64_t instructions; /* retired */
	_Atomic uint64_t executions;   /* begun: calls, triggers */
	_Atomic uint64_t reserved[3];
};

struct vb_monitor_thread {
	struct vb_monitor_seq seq;
	uint32_t process;    /* index of the process's entry, */
	uint32_t process_id; /* and its id */
	uint32_t id;         /* in its process */
	uint32_t reserved0;
	char name[VB_MONITOR_NAME];
	uint64_t reserved[5];
	struct vb_monitor_counters counters;
};

/* Of the event tracer. The number is 2 * (1 + resets), or that + 1 while it is written. */
struct vb_monitor_sample {
	struct vb_monitor_seq seq;
	uint32_t thread;       /* id */
	uint16_t eu;           /* UINT16_MAX: an RPC that its caller runs */
	uint16_t id;           /* of both samples of a slice */
	uint32_t type;         /* enum vb_monitor_sample_type */
	uint32_t instructions; /* of the EU so far */
	uint64_t ticks;        /* of the EU so far */
	uint64_t time;         /* in ticks */
	uint64_t reserved[3];
};

enum vb_monitor_sample_type {
	VB_MONITOR_EMPTY = 0,
	VB_MONITOR_IN = 1,
	VB_MONITOR_OUT = 2,
	VB_MONITOR_FULL = 0xff,
};

/* Places of a buffer of samples; the last is for VB_MONITOR_FULL. */
enum { VB_MONITOR_SAMPLES = 4096 };

_Static_assert(sizeof(struct vb_monitor_process) == 192, "layout");
_Static_assert(sizeof(struct vb_monitor_counters) == 64, "layout");
_Static_assert(sizeof(struct vb_monitor_thread) == 192 &&
		       offsetof(struct vb_monitor_thread, counters) == 128,
	       "the counters are alone on their line");
_Static_assert(sizeof(struct vb_monitor_sample) == 64, "layout");

/* Its execution units: at `busy` lie that many words, the ticks that each has run device code. */
struct vb_monitor_accelerator {
	struct vb_monitor_seq seq;
	char adapter[32];
	uint32_t eus;
	uint32_t reserved0;
	uint64_t busy; /* an offset */
	uint64_t reserved;
};

_Static_assert(sizeof(struct vb_monitor_accelerator) == 64, "layout");

/* ---- the card ---- */

/*
 * What queues moved: bytes, and by which way work requests went. Each word by itself, so without a
 * sequence number.
 */
struct vb_monitor_traffic {
	_Atomic uint64_t sent, received; /* bytes */
	_Atomic uint64_t packets;        /* requests in packets; responder: packets that came */
	_Atomic uint64_t copies;  /* requests by a copy in the peer's memory, by the kernel */
	_Atomic uint64_t calls;   /* requests to a queue pair of the same process */
	_Atomic uint64_t retries; /* times that packets were sent again */
	_Atomic uint64_t dropped; /* responder: frames and datagrams that found no buffer */
	_Atomic uint64_t stores;  /* requests by loads and stores in the peer's memory */
};

/*
 * One that the process has open. Its number changes when a queue pair goes and counts as past from
 * then on: a reader that found the same before and after its look at the queue pairs has counted
 * each once.
 */
struct vb_monitor_adapter {
	struct vb_monitor_seq seq;
	char name[32];
	uint64_t reserved[3];
	struct vb_monitor_traffic past; /* of queue pairs that are gone */
};

/*
 * A number that tools show of a queue pair is a field here; the card counts it (card/shown.h, for
 * hbl card/hbl/shown.c), and tools/look/ gathers and prints it. Counters that the program itself asks for are card/queue/counter_set.h.
 */
struct vb_monitor_qp {
	struct vb_monitor_seq seq;
	uint32_t number;
	uint32_t type; /* enum ibv_qp_type; 0x48: of an hbl device */
	uint32_t send_cq, recv_cq;
	char adapter[32];
	_Atomic uint32_t state; /* enum ibv_qp_state; not under seq, as the next */
	_Atomic uint32_t peer;  /* number of its queue pair; 0: none */
	struct vb_monitor_traffic sq, rq;
};

_Static_assert(sizeof(struct vb_monitor_traffic) == 64, "layout");
_Static_assert(sizeof(struct vb_monitor_adapter) == 128, "layout");
_Static_assert(sizeof(struct vb_monitor_qp) == 192, "layout");
