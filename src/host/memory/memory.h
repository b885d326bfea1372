/* SPDX-License-Identifier: MIT */
/*
 * The range: addresses of which each page is either free, the program's and shared, or the
 * program's and private. Page N of the range is page N of the memfd. README.md has the picture.
 *
 * The functions in front of libc's (malloc.c, mmap.c, fork_copy.c) ask here. Whoever changes the range
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

#include "host/shared/born.h"
#include "host/memory/pages.h"

enum {
	MEMORY_PAGE = 4096,
	MEMORY_LARGE =
		64 << 10, /* from this size on malloc() takes pages of the range, where it does */
};

enum memory_mode {
	MEMORY_NONE,      /* there is no range yet */
	MEMORY_OPEN,      /* new memory comes from it */
	MEMORY_INHERITED, /* by a forked child that has opened no card: all is private, nothing new */
	MEMORY_CLOSED,    /* a limit forbids it: nothing new, and what is freed is unmapped */
};

enum { MEMORY_SHOWN = 8 };

/* Of freed blocks: so many are kept, so many pages of each and in all. */
enum { MEMORY_KEPT = 64, MEMORY_KEPT_EACH = 4096, MEMORY_KEPT_PAGES = 8192 };

/*
 * Blocks and mappings of the program at a time. Each may end up between free pages, which the kernel
 * counts as two mappings; a process has 65530 (vm.max_map_count), and libc's blocks take none.
 */
enum { MEMORY_HEADS = 8192 };

/*
 * Pages that became private by themselves, next to others: the kernel never joins what was mapped elsewhere,
 * so each such run is a mapping. Where there are so many, pages that cannot be written stay shared.
 */
enum { MEMORY_RUNS = 8192 };

struct memory_pages {
	uint32_t first, count;
};

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
	char *mirror;               /* of all of the file (mirror.c); NULL: there is none */
	bool has_policies;          /* mbind() was called with pages of the range */
	atomic_bool watched;        /* there was a userfaultfd: a fork may wait for its reader */
	bool locked_all;            /* mlockall() was called, and is in force */
	bool huge_private;          /* only private memory gets huge pages here */
	uint32_t limit, used, high; /* pages; none from high on was ever used */
	uint32_t heads;             /* of these, so many begin a block or mapping */
	uint32_t runs;              /* and so many a run that became private */
	struct pages pages;
	uint16_t *marks; /* of each page with PAGE_ODD: enum page_mark */
	/* Freed blocks that keep their pages for the next one of about that size. */
	struct {
		uint32_t first, count;
		bool leaving; /* being hidden from peers: nobody takes it */
	} kept[MEMORY_KEPT];
	uint32_t kept_blocks, kept_pages;
	/* Calls that have shown pages again, and the last ones of them. */
	_Atomic uint32_t shows;
	struct memory_pages shown[MEMORY_SHOWN];
};

/*
 * What the program has said of a page, and the kernel keeps with the mapping. It goes with the page when
 * that becomes private; two pages are one mapping to the program if these are the same.
 */
enum page_mark {
	MARK_DONTDUMP = 1,
	MARK_HUGE = 2,
	MARK_NOHUGE = 4,
	MARK_SEQUENTIAL = 8,
	MARK_RANDOM = 16,
	MARK_MERGEABLE = 32,
	MARK_LOCKED = 64,
	MARK_ONFAULT = 128, /* with MARK_LOCKED: pages that are there, and those that come */
	MARK_WIPE = 256,    /* MADV_WIPEONFORK */
	MARK_NODES = 512,   /* mbind() */
	MARK_OTHER = 1024,  /* no anonymous memory, a key, a seal: it is what it is */
	MARK_RUN = 2048,    /* not by the program: a run that became private begins here */
};

/* A freed block that is kept. No other page has this state. */
#define PAGE_KEPT (PAGE_GONE | PAGE_HEAD)

extern struct memory memory;

/* Whether an address is in the range; whether its page is ours, memory.pages says. */
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
/*
 * The same, and take the lock: other threads that change the same pages, and show them when they have done,
 * have not done so since. Two parts; one of them may have no pages.
 */
void memory_hide_and_lock(const struct memory_pages part[2], sigset_t *before);

/* --- range.c, with the lock ------------------------------------------------------------------- */

/* Shared pages among these that can be read and written: peers may use them. */
void memory_show(uint32_t first, uint32_t count);
/* The same after a change of pages that were hidden, where the range has peers. */
void memory_show_again(uint32_t first, uint32_t count);
/* The program has done with a block, or a part of one. */
void memory_release(uint32_t first, uint32_t count);
/* Unmap [base, base + len), of which these pages are a part. 0, or -errno of the kernel: nothing changed. */
int memory_unmap(char *base, size_t len, uint32_t first, uint32_t count);
/*
 * call, which puts something else in the place of these pages, or nothing. What was shared of them then
 * leaves the file; the caller says what they are now. Its return value: 0, or -errno, where nothing changed.
 */
typedef int memory_call(void *arg);
int memory_replace(uint32_t first, uint32_t count, memory_call *call, void *arg);
/* The shared ones of these, which are found at beside, are holes again. */
void memory_punch_shared(uint32_t first, uint32_t count, char *beside);
/* Nothing is mapped there any more: they are free. */
void memory_unmapped(uint32_t first, uint32_t count);
void memory_release_kept(void);
/* The same, where one of the kept blocks has pages there: somebody names them who does not own them. */
void memory_release_kept_in(uint32_t first, uint32_t count);
/* Not ours any more: others have mapped something there. */
void memory_forget(uint32_t first, uint32_t count);
/* The program has mapped something there with these rights: private pages of its own. */
void memory_replaced(uint32_t first, uint32_t count, int prot, uint16_t marks);

/* --- private.c, with the lock ----------------------------------------------------------------- */

/* Marks of pages of the program: the first are taken away, the others given. */
void memory_mark(uint32_t first, uint32_t count, uint16_t clear, uint16_t set);
uint16_t memory_marks(uint32_t page);
/* How many pages, up to end, are as the first is in the bits of mask and in their marks. */
uint32_t memory_alike(uint32_t first, uint32_t end, uint8_t mask);
/* Give private memory the marks of a page, but no locks. 0, or -errno. */
int memory_mark_copy(char *at, size_t len, uint32_t page);
/* What is shared there becomes private memory with the same content and marks. 0, or -errno. */
int memory_make_private(uint32_t first, uint32_t count);

/* --- mirror.c, with the lock ------------------------------------------------------------------ */

/* Map all of the file; NULL: no addresses. */
char *memory_open_mirror(size_t size);
void memory_close_mirror(void);
/* Map free pages at their address. 0; -EEXIST: something is there; or -errno. */
int memory_map_pages(uint32_t first, uint32_t count);
/* These pages at other addresses, where all is allowed. NULL: no room. */
char *memory_begin_beside(uint32_t first, uint32_t count);
void memory_end_beside(char *beside, uint32_t count);
/* Copy content of shared pages. 0, or -errno. */
int memory_copy(uint32_t first, uint32_t count, char *to);
/* What was written there, of shared pages, is zero again. 0, or -errno. */
int memory_punch(uint32_t first, uint32_t count);
/* The same with pages that were found. */
void memory_punch_at(char *beside, uint32_t count);
/* Whether our descriptor still is the memfd. */
bool memory_fd_is_ours(void);

/* --- start.c, without the lock ---------------------------------------------------------------- */

int memory_lock_all(int flags);
int memory_unlock_all(void);

/* --- remap.c, without the lock ---------------------------------------------------------------- */

/* mremap(); false: not with pages of the range, or not with arguments that the kernel takes. */
bool memory_remap(void *base, size_t old_len, size_t new_len, int flags, void *to, void **result);

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
 * errno ENOMEM: there is none. errno stays what it is where the call succeeds.
 */
long memory_call_beside(long (*call)(void *arg), void *arg);

/* --- fork_copy.c ------------------------------------------------------------------------------ */

/* Have our handlers first of all handlers of fork. */
void memory_watch_forks(void);
