/* SPDX-License-Identifier: MIT */
/*
 * What a struct mlx5dv_devx_obj is, whichever library made it: libmlx5 by a command of the program,
 * or libflexio inside one of its own objects. mlx5dv.h only declares the name.
 *
 * The mark catches foreign pointers, not dangling ones.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "card/queue/listen.h"

struct ibv_context;
struct vb_tir;
struct vb_emu_map;
struct vb_emu_eq;

enum vb_devx_kind {
	VB_DEVX_NONE,
	VB_DEVX_COUNTERS,
	VB_DEVX_CQ,
	VB_DEVX_DCT,
	VB_DEVX_EQ,
	VB_DEVX_FLOW_ENTRY,
	VB_DEVX_FLOW_GROUP,
	VB_DEVX_FLOW_TABLE,
	VB_DEVX_MKEY,
	VB_DEVX_MODIFY_HEADER,
	VB_DEVX_PD,
	VB_DEVX_QP,
	VB_DEVX_Q_COUNTER,
	VB_DEVX_REFORMAT,
	VB_DEVX_RMP,
	VB_DEVX_RQ,
	VB_DEVX_RQT,
	VB_DEVX_SQ,
	VB_DEVX_SRQ,
	VB_DEVX_THREAD, /* of device code: lent only */
	VB_DEVX_TIR,
	VB_DEVX_TIS,
	VB_DEVX_TRANSPORT_DOMAIN,
	VB_DEVX_UAR,
	VB_DEVX_XRCD,
	/* general objects */
	VB_DEVX_DB_CQ_MAP,
	VB_DEVX_EMULATED_EQ,
};

struct mlx5dv_devx_obj;

/* How the maker of a lent object answers a query of it. */
struct vb_devx_lender {
	uint16_t query;    /* opcode of the command */
	uint16_t at, size; /* of the object's context in the answer, in bytes */
	/* Fill the context, which is all zeros. The object is the caller's to keep meanwhile. */
	void (*look)(const struct mlx5dv_devx_obj *obj, uint8_t *context);
};

enum { VB_DEVX_MARK = 0x64657678, VB_DEVX_CLOSED = 0x636c6f73 };

struct mlx5dv_devx_obj {
	uint32_t mark; /* VB_DEVX_MARK while it lives; VB_DEVX_CLOSED: its context is closed */
	enum vb_devx_kind kind;
	uint32_t number; /* of the card */
	bool lent;       /* its maker destroys it, not mlx5dv_devx_obj_destroy() */
	const struct vb_devx_lender *lender; /* lent: NULL where it cannot be queried */
	struct ibv_context *context;         /* of the device it is on */
	struct vb_listeners listeners;       /* its maker tells them of its events */
	uint8_t *kept;                       /* libmlx5's: the context of a TIR, for queries */
	/* libmlx5's, under the lock of the context's list; see mlx5/devx_table.c */
	struct mlx5dv_devx_obj *next; /* made before this one */
	uint32_t users;               /* who holds it by devx_get() */
	struct mlx5dv_devx_obj *uses; /* held until this one is destroyed; NULL: none */
	union {
		void *data;                     /* of the file that makes this kind */
		struct vb_tir *tir;             /* VB_DEVX_TIR */
		struct devx_counters *counters; /* VB_DEVX_COUNTERS: libmlx5's */
		struct devx_rqt *rqt;           /* VB_DEVX_RQT: libmlx5's */
		struct vb_emu_map *emu_map;     /* VB_DEVX_DB_CQ_MAP */
		struct vb_emu_eq *emu_eq;       /* VB_DEVX_EMULATED_EQ */
	};
};

static inline bool vb_devx_is(const struct mlx5dv_devx_obj *obj, enum vb_devx_kind kind)
{
	return obj && obj->mark == VB_DEVX_MARK && obj->kind == kind;
}
