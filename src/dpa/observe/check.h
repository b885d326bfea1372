/* SPDX-License-Identifier: MIT */
/*
 * Checked mode, between its files; for this folder only.
 *
 *	check.c         options, shadow memory, the observer: which access is fine
 *	check_blocks.c  blocks of both heaps, quarantine
 *	check_libc.c    malloc and its family, served by the host
 *	check_flow.c    what becomes of a loaded value that nobody wrote
 *	check_report.c  findings in words
 *	check_leaks.c   blocks that nothing leads to any more
 *
 * Shadow memory, a byte for 8 bytes of guest memory each, mapped when it is touched:
 *
 *	reach      of the two heaps: how many of the 8 may be accessed (0 to 8), or why none
 *	unwritten  a bit for each: nobody has written it since it was given out
 *
 * Locks: check.lock, then an arena's. The way of an access that is fine takes none: shadow bytes are
 * single bytes, and an access that races with a free may be seen before or behind it, as in the
 * program.
 */
#pragma once

#include <stdio.h>

#include "host/shared/arena.h"
#include "base/config.h"
#include "dpa/internal.h"

enum {
	REACH_ZONE = 0x81,  /* behind a block */
	REACH_FREED = 0x82, /* in quarantine */
};

#define CHECK_FILL       0xcb /* what unwritten memory holds: others who write are seen by it */
#define CHECK_DEPTH      8    /* frames kept of an allocation and of a free */
#define CHECK_MAX_PLACES 100  /* findings that are shown of a process */

enum { LIBC_FUNCTIONS = 11 };

enum check_owner { OWNER_MALLOC, OWNER_HEAP, OWNERS };

/* Who did something, and where. Guest addresses have 31 bits. */
struct trace {
	uint32_t thread; /* 0: the host */
	uint32_t depth;
	union {
		uint32_t frames[CHECK_DEPTH];
		const char *call; /* of the host */
	};
};

struct block {
	uint64_t addr, size; /* as the program sees it */
	struct trace given, freed;
	enum check_owner owner;
	bool is_freed, reached;
	struct block *next;       /* in its bucket */
	struct block *queue_next; /* in quarantine */
};

/* A heap whose blocks are checked. */
struct check_heap {
	struct vb_arena *arena; /* NULL: there is none */
	uint64_t base, len;
	uint64_t quarantine_max, quarantine; /* bytes */
	struct block *oldest, *youngest;
	uint64_t requested, allocated; /* by blocks in use, without zones */
};

struct place {
	uint64_t pc;
	unsigned int kind;
};

struct check {
	struct vb_dpa_process *process;
	uint32_t checks; /* enum vb_check */
	struct observe_ops ops;
	void *elf; /* for lines */
	size_t elf_len;

	uint64_t limit;
	uint8_t *reach, *unwritten;
	size_t shadow_len;

	struct vb_arena malloc_arena;
	uint64_t
		functions[LIBC_FUNCTIONS]; /* of check_libc.c, by number; 0: the program lacks it */
	uint64_t strlen_from, strlen_to;   /* reads whole words, which may end behind a block */

	pthread_mutex_t lock; /* of what is below */
	struct check_heap heaps[OWNERS];
	struct block **table; /* by address */
	size_t table_size, count;
	struct place places[CHECK_MAX_PLACES]; /* of findings */
	unsigned int nplaces;
};

enum finding_kind {
	FIND_OVERFLOW,
	FIND_FREED,
	FIND_NOBODYS,
	FIND_UNINIT,
	FIND_DOUBLE_FREE,
	FIND_BAD_FREE,
	FIND_WRONG_FREE,
	FIND_KINDS
};

struct finding {
	enum finding_kind kind;
	uint64_t addr, size;
	unsigned int access;          /* enum vb_access_kind; 0: a free */
	struct vb_dpa_thread *thread; /* NULL: the host */
	const char *call;             /* ... its function */
	uint64_t bad;                 /* the first byte that is wrong */
	bool has_block, last;         /* last: no more of them are shown */
	struct block block;           /* a copy of the nearest */
};

/* ---- check_blocks.c ---- */

int vb_blocks_init(struct check *c);
void vb_blocks_free(struct check *c);
/* 0: no room. align: a power of two. */
uint64_t vb_block_give(struct check *c, enum check_owner owner, uint64_t size, uint64_t align,
		       const struct trace *by);
/* What is wrong with freeing it, in f; true: nothing, and it is in quarantine. */
bool vb_block_take(struct check *c, enum check_owner owner, uint64_t addr, const struct trace *by,
		   struct finding *f);
/* Size of a block in use that begins there; false: there is none. */
bool vb_block_size(struct check *c, enum check_owner owner, uint64_t addr, uint64_t *size);
/* Under the lock: the block that addr is in, or nearest to; NULL: none is near. */
struct block *vb_block_near(struct check *c, uint64_t addr);

/* ---- check.c ---- */

void vb_check_trace(struct vb_dpa_thread *thread, struct trace *trace);
/* Shadow and guest memory, which other threads may look at meanwhile. */
void vb_check_fill(uint8_t *to, uint8_t value, uint64_t len);
void vb_check_copy(uint8_t *to, const uint8_t *from, uint64_t len);
/* [addr, addr + len) may be accessed, or not, for that reason. */
void vb_check_set_reach(struct check *c, uint64_t addr, uint64_t len);
void vb_check_clear_reach(struct check *c, uint64_t addr, uint64_t len, uint8_t why);
void vb_check_set_unwritten(struct check *c, uint64_t addr, uint64_t len, bool unwritten);
/* The finding is shown, and the thread traps; or goes on, in that mode. */
enum vb_seen vb_check_found(struct check *c, struct finding *f);
/* So many bytes were worked on for the thread: it may have to come out. */
enum vb_seen vb_check_worked(struct vb_dpa_thread *thread, uint64_t bytes);

/* ---- check_libc.c ---- */

void vb_libc_begin(struct check *c);
enum vb_seen vb_libc_mark(struct vb_dpa_thread *thread, void *arg);

/* ---- check_flow.c ---- */

enum flow {
	FLOW_USED,  /* something depends on it */
	FLOW_OTHER, /* it is copied, or nothing is known */
};

/* The load at pc has put what nobody wrote into rd: note copies of it at the thread. */
enum flow vb_flow_follow(struct vb_dpa_thread *thread);

/* ---- check_report.c ---- */

void vb_report_finding(struct check *c, const struct finding *f);
void vb_report_trace(FILE *out, const struct check *c, const struct trace *trace);
void vb_report_give(const struct check *c, enum vb_dpa_found kind, const char *line,
		    const char *text);
