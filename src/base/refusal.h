/* SPDX-License-Identifier: MIT */
/*
 * A refusal says why: each call that fails, and each error completion that the card makes, leaves
 * one line at level info, for example
 *
 *	ibv_modify_qp: QP 0x1040 to RTR: path_mtu 4096 to another host, port 1 of mlx5_0 has 1024 (mtu = in the configuration)
 *
 * A public function opens a call (VB_CALL). Whoever refuses, in whatever folder below, writes
 *
 *	return vb_refuse_path_mtu(4096, 1, "mlx5_0", 1024);        which is -EINVAL; reasons.h has all of them
 *
 * and the line gets the name and the object of the call. What fails without a reason is caught at
 * the edge by vb_call_failed(). Nothing here costs where all goes well but two stores to
 * thread-local memory per call; calls of the data path are opened only after they have failed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/public.h"
#include "base/reasons.h"

enum vb_reason {
#define X(name, ...) VB_REASON_##name,
	VB_REASONS(X)
#undef X
		VB_REASON_COUNT,
};

/* What a line begins with. Lives on the stack of the outermost public function. */
struct vb_call {
	const char *function; /* public name, or the kind of a work request */
	const char *kind;     /* of the object: "QP", the name of an adapter, ...; NULL: none */
	uint32_t number;      /* of the object; 0: it has none */
	const char *detail;   /* "to RTR"; NULL: nothing */
	bool nested;          /* names its lines itself, whatever call is open around it */
	char *words; /* where the reason goes instead of the log: libflexio has its own lines */
	uint32_t words_size;
	bool said;      /* a line for this call is out */
	uint64_t start; /* for the timeline; 0: not recorded */
	struct vb_call *outer;
};

/*
 * Opens the call. Where one is open in this thread, that one goes on naming the lines, unless this
 * one is nested.
 */
VB_PUBLIC void vb_call_begin(struct vb_call *call);
VB_PUBLIC void vb_call_end(struct vb_call *call);

/*
 * At start, for the life of the process: told of calls of programs. begin sets call->start where end
 * is to be called.
 */
struct vb_call_watch {
	void (*begin)(struct vb_call *call);
	void (*end)(const struct vb_call *call);
};

void vb_call_watch(const struct vb_call_watch *watcher);

/* At the edge: the open call (or, if there is none, fallback) fails with err, a positive errno. */
VB_PUBLIC void vb_call_failed(const char *fallback, int err);

/* Opens the call of a function until the end of its scope: VB_CALL(.kind = "QP", .number = qpn). */
#define VB_CALL(...) VB_CALL_AS(__func__, __VA_ARGS__)
/* The same under the public name of a function that programs reach through a table. */
#define VB_CALL_AS(name, ...)                                                                \
	struct vb_call vb_call_                                                              \
		__attribute__((cleanup(vb_call_end))) = { .function = (name), __VA_ARGS__ }; \
	vb_call_begin(&vb_call_)

/* Leave the line; rate-limited by reason. Returns -err. */
VB_PUBLIC int vb_refuse(enum vb_reason reason, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

#define X(name, err, hint, params, ...)                                         \
	static inline __attribute__((cold, unused)) int vb_refuse_##name params \
	{                                                                       \
		return vb_refuse(VB_REASON_##name, err, __VA_ARGS__);           \
	}
VB_REASONS(X)
#undef X

/* For tests, which walk all reasons. */
VB_PUBLIC const char *vb_reason_name(enum vb_reason reason);
