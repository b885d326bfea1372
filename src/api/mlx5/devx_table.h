/* SPDX-License-Identifier: MIT */
/*
 * Commands of the programmer's reference manual (DEVX): the table of them, and how a family of
 * objects adds its rows.
 *
 *	mlx5dv_devx_general_cmd()   --+
 *	mlx5dv_devx_obj_create()    --+    devx_run()        a family's handler
 *	mlx5dv_devx_obj_modify()    --+--> row of the  ----> devx_flow.c, devx_queues.c, ...
 *	mlx5dv_devx_obj_query()     --+    opcode            0, or -errno with a status
 *	mlx5dv_devx_obj_destroy()   --+
 *
 * A family is an array of rows that ends with an empty one; devx_table.c lists the families.
 *
 * A refusal of the kernel (a call that cannot carry the command, a number that is not the object's,
 * less than 16 bytes) is EINVAL and leaves the answer alone. A refusal of the firmware is EREMOTEIO,
 * with status and syndrome in the answer and zeros behind them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "api/devx.h"

struct ibv_context;
struct vb_dev;

/* Of an answer, bits 0 to 7. */
enum devx_status {
	DEVX_OK = 0x0,
	DEVX_INTERNAL_ERR = 0x1,
	DEVX_BAD_OP = 0x2,
	DEVX_BAD_PARAM = 0x3,
	DEVX_BAD_SYS_STATE = 0x4,
	DEVX_BAD_RES = 0x5, /* a number that names no object */
	DEVX_RES_BUSY = 0x6,
	DEVX_EXCEED_LIM = 0x8,
	DEVX_BAD_RES_STATE = 0x9, /* of an object, or it is in use */
	DEVX_BAD_INDEX = 0xa,
	DEVX_NO_RES = 0xf,
	DEVX_BAD_QP_STATE = 0x10,       /* a transition that there is not */
	DEVX_BAD_SIZE_OUTS_CQES = 0x40, /* more CQEs wait than the new ring holds */
	DEVX_BAD_INP_LEN = 0x50,
	DEVX_BAD_OUTP_LEN = 0x51,
};

/* Which call may carry a command. */
enum devx_call { DEVX_GENERAL = 1, DEVX_CREATE, DEVX_MODIFY, DEVX_QUERY, DEVX_DESTROY };

/* Bits of all commands and answers. */
enum { DEVX_OPCODE = 0x0, DEVX_OP_MOD = 0x30, DEVX_STATUS = 0x0, DEVX_SYNDROME = 0x20 };

/*
 * Where commands and answers have the object's number: up to the end of that word. One command
 * makes general objects of many types, and names them by all 32 bits.
 */
enum { DEVX_NUMBER = 0x48, DEVX_NUMBER_8 = 0x58, DEVX_OBJECT_TYPE = 0x30, DEVX_OBJECT_ID = 0x40 };
enum { DEVX_NO_NUMBER = 0 };

enum { DEVX_LEAST = 16, DEVX_MOST = 65535 }; /* bytes of a command or an answer */

struct devx_row;

struct devx_cmd {
	const struct devx_row *row;
	struct ibv_context *context;
	struct vb_dev *dev;
	/* create: the new one, for the handler to fill; general: NULL; else the one that was given */
	struct mlx5dv_devx_obj *obj;
	const uint8_t *in; /* at least row->in bytes; destroy: NULL */
	size_t inlen;
	uint8_t *out; /* at least row->out bytes, all zeros; destroy: NULL */
	size_t outlen;
	enum devx_status status; /* of the refusal; DEVX_OK: the one that its errno stands for */
	uint32_t syndrome;
};

struct devx_row {
	const char *name; /* of the manual */
	uint16_t opcode;
	uint16_t type; /* of a general object; 0: it is none */
	enum devx_call call;
	enum vb_devx_kind kind; /* of the object; VB_DEVX_NONE: a general command */
	uint16_t in, out;       /* shortest command and answer, in bytes */
	/*
	 * create: bit of the answer that gets obj->number; modify, query: bit of the command that
	 * must have it. DEVX_NO_NUMBER: neither.
	 */
	uint16_t number;
	/*
	 * 0, or -errno where nothing has changed. create fills obj->number and obj->data. destroy
	 * gives all of it back, or is refused.
	 */
	int (*run)(struct devx_cmd *cmd);
};

/* Refuse with this status: returns err. */
static inline int devx_refuse(struct devx_cmd *cmd, enum devx_status status, int err)
{
	cmd->status = status;
	return err;
}

/*
 * The object's events (struct vb_listeners in api/devx.h): who makes a queue tells its listeners in
 * the card's callbacks, with vb_listeners_complete() and vb_listeners_tell().
 */

/* -errno: NULL, or no object. */
int devx_check(const struct mlx5dv_devx_obj *obj);
/* Listeners to events of the context's port; NULL: no memory. */
struct vb_listeners *devx_port_listeners(struct ibv_context *context);
/* As mlx5dv_devx_obj_query(), also of what libflexio lent. */
int devx_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen);
/* The name of the command for the log; NULL: it has none. */
const char *devx_name(const void *in, size_t inlen);
/* 0 or a positive errno, as public functions have it. */
int devx_run(enum devx_call call, struct ibv_context *context, struct mlx5dv_devx_obj *obj,
	     const void *in, size_t inlen, void *out, size_t outlen);

/*
 * The object of this context with this number, which cannot be destroyed until devx_put(); NULL:
 * there is none. Both leave objects that libflexio lent alone.
 */
struct mlx5dv_devx_obj *devx_get(struct ibv_context *context, enum vb_devx_kind kind,
				 uint32_t number);
void devx_put(struct mlx5dv_devx_obj *obj);
/* The same for objects that have several numbers, count(obj) from the first on. */
struct mlx5dv_devx_obj *devx_get_in(struct ibv_context *context, enum vb_devx_kind kind,
				    uint32_t number,
				    uint32_t (*count)(const struct mlx5dv_devx_obj *obj));

/* The list of a context's objects; they are destroyed with the context, the youngest first. */
int devx_list_add(struct mlx5dv_devx_obj *obj);
/* -EBUSY: somebody holds it. */
int devx_list_remove(struct mlx5dv_devx_obj *obj);

/* Whether some command has the opcode; whether general objects of the type can be made. */
bool devx_has(uint16_t opcode);
bool devx_has_type(uint16_t type);

/* Limits that the capabilities name. */
enum {
	DEVX_LOG_COUNTERS_QUERIED = 11, /* by one command; an answer has 64 KiB */
	DEVX_LOG_FLOW_TABLE = 24,       /* entries of a table */
	DEVX_LOG_FLOW_TABLES = 16,
	DEVX_LOG_FLOW_CONTEXTS = 16,    /* of each kind: modify header, reformat */
	DEVX_LOG_FLOW_DESTINATIONS = 6, /* of an entry */
	DEVX_FLOW_LEVELS = 64,
};

/*
 * What else a program has from a context: umems, doorbell pages, event queues, steering. end()
 * gives it back to the card when the context closes; the program's struct stays. -errno: something
 * uses it, and it is asked again when that is gone.
 */
struct devx_left {
	struct devx_left *next; /* made before this one */
	int (*end)(struct devx_left *left);
	struct ibv_context *context; /* NULL: closed */
};

/* False: no memory. */
bool devx_left_add(struct ibv_context *context, struct devx_left *left);
/* It is being given back by the program; true: it was given back when the context was closed. */
bool devx_left_remove(struct devx_left *left);

extern const struct devx_row devx_alloc_rows[];
extern const struct devx_row devx_cap_rows[];
extern const struct devx_row devx_counter_rows[];
extern const struct devx_row devx_cq_rows[];
extern const struct devx_row devx_dct_rows[];
extern const struct devx_row devx_emulation_rows[];
extern const struct devx_row devx_flow_action_rows[];
extern const struct devx_row devx_flow_entry_rows[];
extern const struct devx_row devx_flow_rows[];
extern const struct devx_row devx_general_rows[];
extern const struct devx_row devx_mkey_rows[];
extern const struct devx_row devx_q_counter_rows[];
extern const struct devx_row devx_rqt_rows[];
extern const struct devx_row devx_qp_rows[];
extern const struct devx_row devx_rq_rows[];
extern const struct devx_row devx_sq_rows[];
extern const struct devx_row devx_tir_rows[];
