/* SPDX-License-Identifier: MIT */
/*
 * The range: addresses of which each page is either free, the program's and shared, or the
 * program's and private. Page N of the range is page N of the memfd. README.md has the picture.
 *
 * The functions in front of libc's (malloc.c, mmap.c, fork.c) ask here. Whoever changes the range
 * has the lock, and no handler of a signal runs in that thread meanwhile, so that a handler may
 * fork, free and unmap whatever it interrupted.
 */
#pragma once

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/born.h"
#include "memory/pages.h"

enum {
	MEMORY_PAGE = 4096,
	MEMORY_LARGE = 64 << 10, /* from this size on malloc() takes pages of the range, where it does */
};

enum memory_mode {
	MEMORY_NONE,      /* there is no range yet */
	MEMORY_OPEN,      /* new memory comes from it */
	MEMORY_INHERITED, /* by a forked child that has opened no card: all is private, nothing new */
	MEMORY_CLOSED,    /* a limit forbids it: nothing new, and what is freed is unmapped */
};

/* Of freed blocks: so many are kept, so many pages of each and in all. */
enum { MEMORY_KEPT = 16, MEMORY_KEPT_EACH = 4096, MEMORY_KEPT_PAGES = 8192 };

/*
 * Blocks and mappings of the program at a time. Each may end up between free pages, which the kernel
 * counts as two mappings; a process has 65530 (vm.max_map_count), and libc's blocks take none.
 */
enum { MEMORY_HEADS = 8192 };

struct memory {
	/* Written once, size last; 0: no range. */
	_Atomic uintptr_t base;
	_Atomic size_t size;
	_Atomic enum memory_mode mode;
	atomic_bool all; /* large blocks of malloc() are born here, too */
	/* The rest is under the lock. */
	struct vb_born_hooks hooks;
	pid_t pid;                  /* whose range it is */
	struct vb_file file;        /* the memfd; its descriptor may be another file by now */
	bool has_policies;          /* mbind() was called with pages of the range */
	bool huge_private;          /* only private memory gets huge pages here */
	uint32_t limit, used, high; /* pages; none from high on was ever used */
	uint32_t heads;             /* of these, so many begin a block or mapping */
	struct pages pages;
	/* Freed blocks that keep their pages for the next malloc() of that size. */
	struct {
		uint32_t first, count;
		bool leaving; /* being hidden from peers: nobody takes it */
	} kept[MEMORY_KEPT];
	uint32_t kept_blocks, kept_pages;
};

/* A freed block that is kept. No other page has this state. */
#define PAGE_KEPT (PAGE_GONE | PAGE_HEAD)

extern struct memory memory;

/* Whether an address is in the range; then memory_kind() says whether it is ours. */
static inline bool memory_has(const void *p)
{
	/* Pairs with the release in range.c: who sees the size sees the base. */
	size_t size = atomic_load_explicit(&memory.size, memory_order_acquire);

	return (uintptr_t)p - atomic_load_explicit(&memory.base, memory_order_relaxed) < size;
}

static inline bool memory_is_open(void)
{
	return atomic_load_explicit(&memory.mode, memory_order_relaxed) == MEMORY_OPEN;
}

/* All asynchronous signals; before is what was blocked before. */
void memory_block(sigset_t *before);
void memory_unblock(const sigset_t *before);
/* With all of these blocked. */
void memory_lock(sigset_t *before);
void memory_unlock(const sigset_t *before);

/* The part of [base, base + len) that lies in the range; false: none. Whole pages around it. */
bool memory_part(uintptr_t base, size_t len, uint32_t *first, uint32_t *count);
static inline char *memory_page(uint32_t page)
{
	return (char *)atomic_load_explicit(&memory.base, memory_order_relaxed) +
	       (size_t)page * MEMORY_PAGE;
}

/* --- range.c, without the lock ---------------------------------------------------------------- */

/*
 * Pages of the program: NULL where the range is not open, full or at its limit. align: in bytes, a
 * power of two. A block is what free() takes; only one may have old content (*dirty).
 */
void *memory_take(size_t bytes, size_t align, bool block, bool *dirty);
/* A block's size in bytes; 0: no block of ours starts there. */
size_t memory_block_bytes(const void *p);
/* False: no block of ours. */
bool memory_free(void *p);
/* A block gets another size where it is. False: not possible. */
bool memory_resize(void *p, size_t bytes);
/* Give up what free() has kept. */
void memory_drop_kept(void);
/* A limit or lock of the program is about to meet the whole address space: nothing new from here. */
void memory_close(void);
/* Take pages [first, first + count) away from peers; before anything that changes the pages. */
void memory_hide(uint32_t first, uint32_t count);

/* --- range.c, with the lock ------------------------------------------------------------------- */

/* Shared pages among these that can be read and written: peers may use them. */
void memory_show(uint32_t first, uint32_t count);
/* The program has done with them. FREE and GONE ones stay what they are. */
void memory_release(uint32_t first, uint32_t count);
void memory_release_kept(void);
/* The same, where one of the kept blocks has pages there: somebody names them who does not own them. */
void memory_release_kept_in(uint32_t first, uint32_t count);
/* What is shared there becomes private memory with the same content. 0, or -errno. */
int memory_make_private(uint32_t first, uint32_t count);
/* What is free there is unmapped, and not ours any more. */
void memory_unmap_free(uint32_t first, uint32_t count);
/* Not ours any more: others have mapped something there, or moved it away. */
void memory_forget(uint32_t first, uint32_t count);
/* The program has mapped something over these, of which none is shared: its own stay its own. */
void memory_replaced(uint32_t first, uint32_t count);
/* Copy content of shared pages. 0, or -errno. */
int memory_copy(uint32_t first, uint32_t count, char *to);
/* What was written there, of shared pages, is zero again. 0, or -errno. */
int memory_punch(uint32_t first, uint32_t count);
/* Whether our descriptor still is the memfd. */
bool memory_fd_is_ours(void);

/* --- mmap.c ----------------------------------------------------------------------------------- */

/* A system call (its number, and its arguments) with pages of the range; false: it is none. */
bool memory_syscall(const long *arg, long *ret);

/* --- stack.c ---------------------------------------------------------------------------------- */

#if defined(__x86_64__) || defined(__aarch64__)
#define MEMORY_CAN_SWITCH
#endif

/* call(arg) on the stack that ends at top, a multiple of 16. */
long memory_switch_stack(long (*call)(void *arg), void *arg, char *top);
/*
 * call(arg), which forks: on a private stack if this thread's may lie in shared pages. -1 with
 * errno ENOMEM: there is none.
 */
long memory_call_beside(long (*call)(void *arg), void *arg);

/* --- fork.c ----------------------------------------------------------------------------------- */

/* Have our handlers first of all handlers of fork. */
void memory_watch_forks(void);
