/* SPDX-License-Identifier: MIT */
/*
 * Which memory of this process lies in memfds, so that other processes of the user can map it.
 *
 * Whoever maps such memory says so (the card for device memory, the allocator of `verbatim run` for
 * the program's), and takes it back before the pages mean anything else. The table is itself a
 * memfd that peers map, in the form of page tables, one entry for each page of 4 KiB:
 *
 *	address:  | 17 bits | 10 bits | 9 bits  | 12 bits |
 *	            root -->  middle --> leaf -->  file and page of the file; 0: not shared
 *
 * Each entry changes in one store, so readers take no lock: neither this process nor its peers.
 *
 * What a peer may rely on. It pins a memory key (fabric/segment.h), and while it holds the pin it
 * reads entries of pages that the key covers. What it has found stays true until it clears the pin,
 * because vb_shared_remove() changes the entries first and then waits for all pins whose keys cover
 * one of these pages. No peer remembers an entry beyond its pin.
 *
 * A page that was removed is marked. Peers write to it by packets, which its own process carries
 * out, where other memory that is not shared is reached through the kernel: the kernel holds on to
 * pages while it copies, and could write to one that was unmapped and given to somebody else
 * meanwhile. So when vb_shared_remove() returns, no other process writes to these pages of the file,
 * and none will: they may be unmapped, punched out, given to others or become private. The mark goes
 * with vb_shared_forget() or vb_shared_add().
 *
 * Nothing here allocates by malloc: an allocator calls it.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/public.h"

enum {
	VB_SHARED_PAGE = 4096,
	VB_SHARED_LEAF = 512,         /* pages of a leaf: 2 MiB */
	VB_SHARED_MIDDLE = 1024,      /* leaves of a middle table: 2 GiB */
	VB_SHARED_ROOT = 1 << 17,     /* of 48 bits of address */
	VB_SHARED_TABLE_BYTES = 4096, /* of a leaf or a middle table */
	VB_SHARED_TABLES = 1 << 14,   /* so many can there be: leaves for 32 GiB */
	VB_SHARED_FILES = 256,
	VB_SHARED_FIRST = 1 << 20, /* offset of table 1 */
};

/*
 * A memfd with shared pages. Whoever reads it may read one that is being replaced: what is opened is
 * compared with what was read, so a mixture leads nowhere.
 */
struct vb_shared_file {
	_Atomic uint32_t generation; /* another one with every file in this place; 0: none */
	_Atomic int32_t fd;          /* of the owner, which may have closed it */
	_Atomic uint64_t dev, ino;
};

struct vb_shared_map {
	uint64_t magic;
	uint64_t reserved[7];
	struct vb_shared_file files[VB_SHARED_FILES];
	_Atomic uint32_t root[VB_SHARED_ROOT]; /* number of a middle table; 0: none */
};

#define VB_SHARED_MAGIC 0x3170616d62657672ull

_Static_assert(sizeof(struct vb_shared_map) <= VB_SHARED_FIRST, "tables come behind the head");

/* An entry of a leaf: the page was shared, and is written to by packets only. */
#define VB_SHARED_LEFT 1ull
/* Or: number of the file plus 1, and its page. */
#define VB_SHARED_ENTRY(file, page) ((uint64_t)((file) + 1) << 48 | (uint64_t)(page))

static inline uint32_t vb_shared_entry_file(uint64_t entry)
{
	return (uint32_t)(entry >> 48) - 1;
}

static inline uint64_t vb_shared_entry_page(uint64_t entry)
{
	return entry & ((1ull << 48) - 1);
}

/* What lies at an address. */
struct vb_shared_piece {
	int fd;
	dev_t dev;
	ino_t ino;
	uint64_t offset; /* in the file */
	size_t len;      /* so many bytes of the range lie there one behind the other */
};

/*
 * Whether memory is to be shared at all: not with VERBATIM_SHARE=off or share = off in the
 * configuration, nor where the table cannot be made.
 */
VB_PUBLIC bool vb_shared_wanted(void);

/*
 * [base, base + len) is mapped from this file, readable and writable, MAP_SHARED. Whole pages. The
 * file is a memfd of the user's own (vb_shared_memfd()), sealed against shrinking, and fd stays
 * open. Content of the pages is seen by peers from now on. -EEXIST where a page of it is shared
 * already, -ENOSPC where the table is full, -ENOTSUP where sharing is off, or -errno: the memory
 * stays what it is, only peers go other ways.
 */
VB_PUBLIC int vb_shared_add(void *base, size_t len, int fd, off_t offset);

/*
 * The same with a file that was looked at when it was opened, so that no other file is ever named,
 * whatever the program has done with the descriptor since: peers compare before they open.
 */
struct vb_file;
int vb_shared_add_file(void *base, size_t len, const struct vb_file *file, off_t offset);

/*
 * These pages are about to be unmapped, moved, protected, punched or mapped over: they are not
 * shared any more. Waits for peers that use them; see above. Pages that are not shared cost little,
 * so a caller need not know. The memory itself is not touched.
 */
VB_PUBLIC void vb_shared_remove(void *base, size_t len);

/*
 * The file's pages are not mapped here any more, so that these addresses, whatever is there now, are
 * like any others again. Without this call they stay reachable, but by packets only.
 */
VB_PUBLIC void vb_shared_forget(void *base, size_t len);

/*
 * The first piece of [addr, addr + len): true where it is shared, and out says where; false where
 * it is not, and out->len is how far. Takes no lock.
 */
VB_PUBLIC bool vb_shared_find(const void *addr, size_t len, struct vb_shared_piece *out);

/* Whether all of it is shared. */
VB_PUBLIC bool vb_shared_covers(const void *addr, size_t len);

/*
 * A memfd as it must be: of this user alone, closed at exec, above standard error, of so many bytes
 * (none of them reserved), and it never shrinks. -errno; -EFBIG where ulimit -f forbids the size.
 */
VB_PUBLIC int vb_shared_memfd(const char *name, uint64_t bytes);

/*
 * Memory of the card's own, zeroed, in whole pages: shared where that works, private elsewhere. NULL
 * where there is none. For small blocks: they are reserved at once.
 */
VB_PUBLIC void *vb_shared_alloc(size_t bytes);
VB_PUBLIC void vb_shared_free(void *at, size_t bytes);

/* --- for the fabric ---------------------------------------------------------------------------- */

/* The table's own file, for peers; -ENOENT: nothing was ever shared. */
int vb_shared_table(struct vb_file *file);

struct vb_shared_hooks {
	void (*made)(void);                       /* there is a table now */
	void (*wait)(uintptr_t base, size_t len); /* until no peer uses these pages */
};

/* NULL: none any more, and when this returns none of the old ones runs. */
void vb_shared_set_hooks(const struct vb_shared_hooks *hooks);
