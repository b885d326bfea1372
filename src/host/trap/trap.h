/* SPDX-License-Identifier: MIT */
/*
 * Pages whose stores are seen: doorbells that programs ring with a plain store. And pages whose loads
 * and stores are operations on memory that is elsewhere.
 *
 * The page reads as zero and is never opened for writing. A store to it faults; the instruction is
 * decoded (host/patch/store.h), the callback gets the bytes, and the thread goes on behind the
 * instruction. So no store is lost, whoever stores what at the same time: nothing is coalesced,
 * nothing is single-stepped. x86-64 only: elsewhere no page can be had.
 *
 * An instruction that trapped some times is replaced by a call (host/patch/patch.h), and everything below
 * holds for it as well.
 *
 * The callback runs in the thread that stored, inside the signal handler but on the thread's own
 * stack; handlers of asynchronous signals wait until it is done. The store was made by the program, so locks of
 * ours are free, unless the program did it in a handler of an asynchronous signal that met us at
 * work in a call: a callback that takes locks must know that by its own means
 * (vb_card_is_inside()). It must not unmap its own page.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/public.h"

/*
 * One call per store, in the order of the thread's program; size is 1 to 64 bytes. Bytes of a
 * repeated string store come in pieces of up to 64, ascending; those of a masked store in
 * stretches.
 */
typedef void vb_trap_store(void *arg, size_t offset, const void *data, size_t size);

/* A region of size bytes, rounded up to pages; NULL with errno (ENOTSUP: not on this machine). */
VB_PUBLIC void *vb_trap_map(size_t size, vb_trap_store *store, void *arg);

/*
 * Waits for callbacks that run in other threads. A later store is a fault of the program's own.
 * NULL is allowed.
 */
VB_PUBLIC void vb_trap_unmap(void *page);

/* Whether there are pages whose accesses are operations. */
#if defined(__x86_64__)
enum { VB_TRAP_OPS = 1 };
#else
enum { VB_TRAP_OPS = 0 };
#endif

/*
 * One call per load or store, of 1, 2, 4 or 8 bytes at a multiple of its size; *value is what is
 * stored, or what the register gets. False: there is no such operation, and the access is a fault of
 * the program's own. It may do no more than touch memory.
 */
typedef bool vb_trap_op(void *arg, size_t offset, bool load, uint64_t *value, size_t size);

/*
 * A region of operations: as vb_trap_map(), but nobody can read or write it, and no instruction is
 * replaced for it. The program unmaps it, whenever it likes and without telling: whether a page is
 * still the region's is looked up at each access, and what other memory at this address does is none
 * of ours. In a forked child an access is a fault.
 */
VB_PUBLIC void *vb_trap_map_op(size_t size, vb_trap_op *op, void *arg);

/*
 * No region of operations with this arg has any from now on. Waits for those that run in other
 * threads. The pages stay where they are, for the program to unmap.
 */
VB_PUBLIC void vb_trap_end(const void *arg);
