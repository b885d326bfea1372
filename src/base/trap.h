/* SPDX-License-Identifier: MIT */
/*
 * Pages whose stores are seen: doorbells that programs ring with a plain store.
 *
 * The page reads as zero and is never opened for writing. A store to it faults; the instruction is
 * decoded (base/store.h), the callback gets the bytes, and the thread goes on behind the
 * instruction. So no store is lost, whoever stores what at the same time: nothing is coalesced,
 * nothing is single-stepped. x86-64 only: elsewhere no page can be had.
 *
 * An instruction that trapped some times is replaced by a call (base/patch.h), and everything below
 * holds for it as well.
 *
 * The callback runs in the thread that stored, inside the signal handler but on the thread's own
 * stack; handlers of asynchronous signals wait until it is done. The store was made by the program, so locks of
 * ours are free, unless the program did it in a handler of an asynchronous signal that met us at
 * work in a call: a callback that takes locks must know that by its own means
 * (vb_card_is_inside()). It must not unmap its own page.
 */
#pragma once

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
