/* SPDX-License-Identifier: MIT */
/*
 * What the two sides of an emulated function share: the driver, which sees queues with doorbells
 * and interrupt vectors, and the servers, whose accelerators are the device behind them.
 *
 *	driver                        page                       server
 *	value[q] = v, rung[q] = 1 -->                            looks at rung[q] when it arms q,
 *	armed[q]? wake the server     .......................... and when it is woken
 *	woken: takes raised[v]   <--  raised[v] = 1              then wakes the driver
 *
 * A page is a file beside the segments, one per function, made by whoever comes first and all
 * zeros then. There is nothing in it but words of their own: bits that say "look", and who is to be
 * woken. What one side finds there was written by the other and may be anything. A wrong bit costs a
 * look, a wrong owner a wake-up. A process that is killed at any instruction leaves nothing half
 * done but its own doorbell or interrupt, and its claims, which the next one takes over.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "fabric/fabric.h"

enum {
	VB_FUNCTION_QUEUE_WORDS = VB_FUNCTION_QUEUES / 64,
	VB_FUNCTION_VECTOR_WORDS = VB_FUNCTION_VECTORS / 64,
};

struct vb_function_page {
	_Atomic uint64_t driver; /* who has opened it, see vb_function_self(); 0: nobody */
	/* The driver sets bits, a server takes them. */
	_Alignas(64) _Atomic uint64_t rung[VB_FUNCTION_QUEUE_WORDS];
	/* A server sets and clears: a doorbell is awaited. Only a hint, so that others cost nothing. */
	_Alignas(64) _Atomic uint64_t armed[VB_FUNCTION_QUEUE_WORDS];
	/* A server sets bits, the driver takes them. */
	_Alignas(64) _Atomic uint64_t raised[VB_FUNCTION_VECTOR_WORDS];
	_Alignas(64) _Atomic uint64_t server[VB_FUNCTION_QUEUES]; /* who has the queue, as driver */
	_Atomic uint32_t value[VB_FUNCTION_QUEUES];               /* that was stored last */
};

/* The page of function n of an adapter, mapped; 0, or -errno after a log line. */
int vb_function_map_page(struct vb_fabric *fabric, const char *adapter, unsigned int n,
			 struct vb_function_page **page);
void vb_function_unmap_page(struct vb_function_page *page);

/* This process as an owner. */
uint64_t vb_function_self(struct vb_fabric *fabric);
/* 0, or -EBUSY where a process that runs has it, be it this one. */
int vb_function_claim(struct vb_fabric *fabric, _Atomic uint64_t *owner);
/* Gives it back, unless another process has taken it meanwhile. */
void vb_function_release(struct vb_fabric *fabric, _Atomic uint64_t *owner);
/* Whether an owner still runs. A system call (meet/slot_lock.c): not for the data path. */
bool vb_function_alive(struct vb_fabric *fabric, uint64_t owner);
/*
 * Tell a process to look at its functions; one that does not exist is not told. False: it runs, but
 * cannot be reached now, for want of descriptors or memory. Inside a read section.
 */
bool vb_function_wake(struct vb_fabric *fabric, uint64_t owner);
/* Whether this process was told so; and the same, answering once. */
static inline bool vb_function_is_told(const struct vb_fabric *fabric)
{
	const _Atomic uint32_t *told = ((const struct vb_fabric_shown *)fabric)->told;

	return told && atomic_load_explicit(told, memory_order_relaxed);
}
bool vb_function_was_told(struct vb_fabric *fabric);
