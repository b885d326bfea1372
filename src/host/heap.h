/* SPDX-License-Identifier: MIT */
/*
 * Giving memory back to the system. The C library returns only the end of its heap, so that one
 * small block that was allocated late keeps the memory of thousands of queues. Objects of the card
 * say how much they free. A while after the last of many, a thread that may take its time has the C
 * library return the rest.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* So many bytes are being freed. True where that makes a return due which was not before. */
bool vb_heap_freed(size_t bytes);
/* When a return is due (ns, vb_now_ns()); UINT64_MAX: none is. */
uint64_t vb_heap_due(void);
/*
 * Return it now, if any is due, whenever that may be. Other threads that allocate wait meanwhile.
 */
void vb_heap_return(void);
