/* SPDX-License-Identifier: MIT */
/*
 * What device code and the card's run-time system say to each other: the calls (ecall), the thread
 * context and the argument buffer of an RPC. Included by both sides (src/device, compiled for
 * RISC-V, and src/api/flexio), so it holds numbers and layouts only. Described in docs/rtos-abi.md.
 *
 * A call puts its number into a7 and its arguments into a0 to a5; the result is in a0. All other
 * registers are kept. Everything that arrives here from device code is untrusted: a bad address or
 * number is a recoverable error (-1) or ends the device process, as the table says; it never harms
 * the host.
 */
#pragma once

#include <stdint.h>

enum vb_rtos_call {
	/* () -> address of the caller's struct vb_rtos_thread */
	VB_RTOS_THREAD_CTX = 1,
	/*
	 * (stream, level, text, length) -> length, or -1: bad address. The text needs no
	 * terminating NUL.
	 */
	VB_RTOS_MSG = 2,
	/*
	 * (increment) -> the break before, or -1: no memory. Device malloc's own pages, beside the
	 * heap of the host.
	 */
	VB_RTOS_SBRK = 3,
	/*
	 * (tracer, messages, buffer, full) -> 0 or -1: so many messages are in this buffer of the
	 * tracer stream; full: device code goes on with the next one.
	 */
	VB_RTOS_TRACES = 5,
	/* () -> 0. Somebody holds a lock that the caller wants: let others of the EU run. */
	VB_RTOS_RELAX = 4,

	/* Thread ends; none returns. In an RPC the first three end the call with result 0. */
	VB_RTOS_RESCHEDULE =
		8,          /* () wait for the next trigger, then begin at the handler's start */
	VB_RTOS_FINISH = 9, /* () as above, but no trigger counts any more */
	VB_RTOS_RETRIGGER = 10, /* () begin at the handler's start at once */
	/* (retrigger) -> 0 when the next trigger came (at once if retrigger is 1); no effect, and back at once, unless
	 * the handler is continuable */
	VB_RTOS_YIELD = 11,
	VB_RTOS_PROCESS_FINISH = 12, /* () end the process, status 0x40 */
	/* (code) end the process with a user error, 0x80 to 0xff; other codes give 0x42 */
	VB_RTOS_ERROR = 13,
	/* (activation id) -> 0, or -1: no such handler in this process */
	VB_RTOS_ACTIVATE = 14,

	/* Windows, outbox, counters. */
	VB_RTOS_WINDOW_CONFIG = 32,   /* (entity, window id, mkey) -> 0 or -1 */
	VB_RTOS_WINDOW_MKEY = 33,     /* (entity, mkey) -> 0 or -1 */
	VB_RTOS_WINDOW_PTR = 34,      /* (entity, host address) -> device address, or 0 */
	VB_RTOS_WINDOW_READ = 35,     /* (entity, to device, from host, length) -> 0 or -1 */
	VB_RTOS_WINDOW_WRITE = 36,    /* (entity, to host, from device, length) -> 0 or -1 */
	VB_RTOS_OUTBOX_CONFIG = 37,   /* (outbox id) -> 0 or -1 */
	VB_RTOS_OUTBOX_EXTEND = 38,   /* (extended device id) -> 0 or -1 */
	VB_RTOS_CROSS_DB = 39,        /* (extended device id, qpn, producer index) -> 0 or -1 */
	VB_RTOS_COUNTERS_CONFIG = 40, /* (values, ids, number) -> 0; bad ones end the process */
	VB_RTOS_COUNTERS_SAMPLE = 41, /* () -> 0; ends the process if never configured */
	VB_RTOS_PCC_TABLE = 42,       /* (vhca id) -> address, or 0 */
};

/* dpa_process_status values below the user's range (0x80 to 0xff); 0 is "no error". */
enum vb_rtos_status {
	VB_RTOS_STATUS_FAULT =
		0x01, /* 1 to 63: the run-time system's; a trap is 1 + its cause, but: */
	VB_RTOS_STATUS_STACK = 0x20,    /* an access to the page below the thread's stack */
	VB_RTOS_STATUS_WATCHDOG = 0x21, /* the error handler took too long */
	VB_RTOS_STATUS_FINISHED = 0x40, /* flexio_dev_process_finish */
	VB_RTOS_STATUS_ILLEGAL_ERR =
		0x42, /* flexio_dev_error with a code outside of the user's range */
};

/*
 * The vendor's 64-byte context (struct flexio_os_thread_ctx of libflexio-os has the same layout),
 * then what libflexio keeps behind it. One per guest thread, in guest memory, made by the host
 * before the thread first runs; it stays where it is, so device code may keep the address.
 */
struct vb_rtos_thread {
	uint32_t version;
	uint16_t outbox_config_id;
	uint16_t window_config_id; /* entity 0 */
	uint64_t outbox_base;      /* device page; 0: none yet */
	uint64_t per_app_table_base;
	uint64_t window_config_base;
	uint64_t metadata_parameter; /* address of thread_id below */
	uint32_t os_errno;           /* last recoverable error, kept until reset */
	uint8_t per_app_table_vhca_id_shift;
	uint8_t window_config_log_size;
	uint16_t secondary_window_config_id; /* entity 1 */
	uint8_t window_msbs;
	uint8_t window_log_size;
	uint8_t window_ix_log_size;
	uint8_t reserved[13];

	uint32_t thread_id; /* what messages show */
	uint32_t flags;     /* VB_RTOS_THREAD_* */
	uint64_t tls;       /* thread_local_storage_daddr of the event handler, or 0 */
	char name[32];

	/* Text that the thread's stdout holds back until the line ends: line_len bytes at line. The host prints it (a
	 * message of level 1 to stream 0) and sets line_len to 0 when a run ends in any way. */
	uint64_t line;
	uint32_t line_len;
	/* Locks of the C library that the thread holds. Where it is not 0, ending the thread by force would leave
	 * malloc locked for all others: let it run a little further first (bounded: device code may lie). */
	uint32_t held;
};

#define VB_RTOS_THREAD_CONTINUABLE 1u
#define VB_RTOS_THREAD_RPC         2u

_Static_assert(sizeof(struct vb_rtos_thread) == 128, "two cache lines");

/*
 * Symbols of libflexio_dev that the host looks up in a program. All optional but the first: without
 * it the file was not linked with our device library, which is refused.
 */
#define VB_RTOS_SYM_VERSION "__flexio_dev_abi_version" /* uint64_t, VB_RTOS_ABI_VERSION */
/* uint8_t[256]: level of each message stream, 0 for closed ones; the last one is the highest of all, for broadcasts.
 * Written by the host, so that device code need not format what nobody prints; the host checks again. */
#define VB_RTOS_SYM_LEVELS "__flexio_dev_msg_levels"
/* uint64_t: address of the table of tracer streams, 0 until there is one. Written by the host. */
#define VB_RTOS_SYM_TRACER "g_dev_p_tracer_ctx"
/*
 * void (void): called once on a guest thread when the process is created, before anything else;
 * runs constructors.
 */
#define VB_RTOS_SYM_INIT    "__flexio_dev_init"
#define VB_RTOS_ABI_VERSION 1

/* struct flexio_tracer_msg */
struct vb_rtos_trace {
	uint32_t format_id;
	uint32_t reserved[3];
	uint64_t args[6];
};

/* struct flexio_tracer_streams_data: one for each stream, in the table */
struct vb_rtos_tracer {
	uint8_t valid_lvl; /* 0: no such stream */
	uint8_t transport_mode;
	uint16_t log_num_buf_msgs;
	uint32_t current_ix;
	uint32_t max_entries_per_buf;
	uint32_t writing;
	uint16_t buf_idx;
	uint16_t buf_mask;
	uint64_t current_buffer;
	uint64_t buffer;
};

_Static_assert(sizeof(struct vb_rtos_trace) == 64, "a cache line");
_Static_assert(sizeof(struct vb_rtos_tracer) == 40, "as flexio_dev_tracer.h has it");

/* What the last doorbell of a congestion control queue said; the table has one for each. */
struct vb_rtos_pcc {
	uint32_t rate;
	uint8_t next_act, rtt_req;
	uint16_t reserved;
	uint64_t high; /* upper half of the doorbell */
	uint64_t doorbells;
	uint64_t spare;
};

#define VB_RTOS_PCC_QUEUES 65536

/* Largest argument buffer of an RPC. */
#define VB_RTOS_ARGBUF_SIZE 4096
