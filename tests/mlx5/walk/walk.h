/* SPDX-License-Identifier: MIT */
/*
 * The walk through all commands (DEVX) that the card has: cases.c says what is right for each, walk.c does everything
 * that is wrong with them.
 *
 * A new command needs a case here, or the walk fails: it tries every opcode by every call, and knows those that have none.
 *
 *	general commands:   a line of walk_generals[]
 *	a kind of object:   an entry of enum walk_kind, behind what it is made from, and of walk_kinds[]: how it is created,
 *	                    what its command names, how it is queried and modified
 */
#pragma once

#include "../queues/hand.h"

enum walk_kind {
	WALK_PD,
	WALK_UAR,
	WALK_TRANSPORT_DOMAIN,
	WALK_Q_COUNTER,
	WALK_CQ,
	WALK_MKEY,
	WALK_RMP,
	WALK_DCT,
	WALK_RQ,
	WALK_RQT,
	WALK_TIR,
	WALK_TIS,
	WALK_SQ,
	WALK_QP,
	WALK_FLOW_COUNTER,
	WALK_REFORMAT,
	WALK_MODIFY_HEADER,
	WALK_FLOW_TABLE,
	WALK_FLOW_GROUP,
	WALK_FLOW_ENTRY,
	WALK_DB_CQ_MAP,
	WALK_EMULATED_EQ,
	WALK_KINDS,
	WALK_UMEM = WALK_KINDS, /* not by command: only numbers that are not there are tried */
};

enum { WALK_MOST = 65535, WALK_STEPS = 12, WALK_REFS = 6, WALK_SAME = 6 };

struct walk_object {
	struct mlx5dv_devx_obj *obj;
	uint32_t number;
};

/* One context, with an object of each kind. */
struct world {
	struct hand hand;
	struct walk_object made[WALK_KINDS];
	uint32_t function; /* emulated: one for each, since all processes share their queues */
	uint32_t turn;     /* another one for each command, where two objects cannot be alike */
};

/* Bits of a command that name another object. */
struct walk_ref {
	uint16_t at, bits;
	enum walk_kind kind;
	bool held;      /* the object cannot be destroyed meanwhile */
	uint8_t status; /* of the refusal where there is none; 0: BAD_RES */
};

/* A field of the command, and where a query must show it. */
struct walk_same {
	uint16_t in, out, bits;
};

/* A query or modification. */
struct walk_step {
	uint16_t opcode;
	uint16_t in, out; /* shortest command and answer, in bytes */
	uint16_t
		number; /* bit of the object's number, up to the end of that word; 0: none, or not compared */
	/* The rest of a good command; NULL: zeros. */
	void (*fill)(struct world *w, const struct walk_object *object, uint8_t *in);
	uint8_t status;                   /* it ends so, and not with 0 */
	struct walk_same same[WALK_SAME]; /* modify: what a query must show then */
};

struct walk_case {
	const char *name;
	uint16_t create, type; /* opcode; type of a general object, or 0 */
	uint16_t in;           /* shortest command that is good, in bytes */
	uint16_t head;         /* ... that is not BAD_INP_LEN whatever it says; 0: the same */
	uint16_t number;       /* bit of the answer, up to the end of its word; 0: none */
	bool ordered;          /* modifications are transitions: in this order only */
	void (*build)(struct world *w, uint8_t *in);
	struct walk_ref refs[WALK_REFS];
	struct walk_step query;
	struct walk_same same[WALK_SAME]; /* of the creation, for the query */
	struct walk_step modify[WALK_STEPS];
};

struct walk_general {
	const char *name;
	uint16_t opcode, in, out;
	void (*fill)(uint8_t *in);
};

extern const struct walk_case walk_cases[WALK_KINDS];
extern const struct walk_general walk_generals[];
extern const size_t walk_general_count;
