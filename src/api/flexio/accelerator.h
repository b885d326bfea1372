/* SPDX-License-Identifier: MIT */
/* The accelerator of an adapter, and which of its execution units a thread may have. */
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

#include "control/show/monitor.h"
#include "dpa/dpa.h"
#include "meet/eus.h"

/* ---- accelerator.c: the accelerator of an adapter -------------------------------------------- */

struct accel {
	struct accel *next; /* of the list of all, under its lock */
	const struct vb_adapter *adapter;
	char name[VB_NAME_MAX]; /* of the adapter */
	struct vb_dpa *dpa;
	unsigned int users;        /* processes; under the list's lock */
	uint64_t timeout_ns;       /* of an RPC */
	uint64_t heap_size;        /* of a process, in bytes */
	uint64_t stack_size;       /* of a device thread; behind it there is more, with a warning */
	uint32_t check;            /* enum vb_check */
	atomic_bool lend;          /* calling threads may run device code themselves */
	_Atomic unsigned int lent; /* host threads that lend themselves to a call now */
	struct vb_monitor_place shown;
	_Atomic uint64_t *busy; /* what is shown of its EUs, or NULL */
	uint64_t busy_offset;

	struct vb_eus_user *eus;  /* groups and partitions of its execution units */
	bool in_partition;        /* of another adapter: its EU numbers are virtual */
	_Atomic bool pool_empty;  /* no EU is left for threads without affinity */
	pthread_mutex_t eus_lock; /* of looking at the groups, and of */
	struct vb_eu_set usable;  /* EUs that strict affinity may name */
};

/* The mlx5 adapter behind a context, or NULL. */
const struct vb_adapter *vb_accel_adapter(struct ibv_context *ctx);
int vb_accel_get(struct ibv_context *ctx, struct accel **accel);
void vb_accel_put(struct accel *accel);

/* ---- affinity.c: which execution units a thread may have ------------------------------------- */

/* The pool and the EUs that a view has. 0, or -errno after a log line. */
int vb_accel_use_view(struct accel *accel, const struct vb_eu_view *view);
/* Look whether dpaeumgmt has changed something, and take it over. */
void vb_accel_refresh(struct accel *accel);
/* 0, or -EBUSY after a log line where there is no EU for a thread without affinity. */
int vb_accel_check_pool(struct accel *accel);
/*
 * Check an affinity against the accelerator and translate it. GROUP: attr->group is the caller's to
 * free, and the group is in use until vb_accel_affinity_end().
 */
int vb_accel_affinity(struct accel *accel, const struct flexio_affinity *affinity,
		      struct vb_dpa_thread_attr *attr);
/* group 0: there was none. */
void vb_accel_affinity_end(struct accel *accel, unsigned int group);

/* ---- version.c ------------------------------------------------------------------------------- */

/* NA: no adapter with an accelerator. */
enum flexio_hw_model_id vb_hw_model(struct ibv_context *ctx);
const char *vb_hw_model_name(enum flexio_hw_model_id model);
