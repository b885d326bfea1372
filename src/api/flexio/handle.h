/* SPDX-License-Identifier: MIT */
/* Which handles are alive: handle.c. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#define FLEXIO_ALLOW_EXPERIMENTAL_API
#include <libflexio/flexio.h>

#include "api/flexio/fail.h"

enum handle_kind {
	HANDLE_APP = 1,
	HANDLE_APP_LIST,
	HANDLE_PROCESS,
	HANDLE_MKEY,
	HANDLE_STREAM,
	HANDLE_EVENT_HANDLER,
	HANDLE_UAR,
	HANDLE_WINDOW,
	HANDLE_QUEUE, /* all of queue.h */
	HANDLE_OUTBOX,
	HANDLE_CMDQ,
	HANDLE_EMU,
	HANDLE_KINDS,
};

/* False: no memory. */
bool vb_handle_add(enum handle_kind kind, const void *handle);
/* Whether the handle is valid now; does not read the object. NULL is not valid. */
bool vb_handle_valid(enum handle_kind kind, const void *handle);

/*
 * Keep an object alive for the time of one call. NULL: the handle is not valid. Every public
 * function that takes a handle begins with
 *
 *	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_MKEY, mkey);
 *
 *	API_CALL();
 *	if (!pin)
 *		return bad_handle(mkey, "mkey");
 *
 * and the pin is released when the function returns. Only flexio_process_call() does without, see
 * call.c.
 */
struct handle *vb_handle_pin(enum handle_kind kind, const void *handle);
void vb_handle_unpin(struct handle **pin);
#define AUTO_UNPIN __attribute__((cleanup(vb_handle_unpin)))
/*
 * End the life of the pinned object: from now on new pins fail; the function releases this pin and
 * waits until all others are released. So the caller must not hold a lock that a pinned function
 * takes. False: another thread ends it, or there is no pin.
 */
bool vb_handle_end(struct handle **pin);
/* Each object of this kind, pinned. */
void vb_handles_visit(enum handle_kind kind, void (*visit)(void *handle, void *arg), void *arg);
