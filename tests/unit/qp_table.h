/* SPDX-License-Identifier: MIT */
/*
 * Which attributes ibv_modify_qp() must and may have for each transition: InfiniBand Architecture Specification,
 * volume 1, table "QP State Transition Properties" (11.2.4.2), for RC, UC and UD.
 *
 * Written for the tests from the specification, on purpose apart from the card's own table.
 */
#pragma once

#include <stdbool.h>
#include <infiniband/verbs.h>

struct transition {
	enum ibv_qp_state from, to;
	bool valid;
	int required, optional;
};

/* The transition's row; valid is false where there is none. */
struct transition qp_table_find(enum ibv_qp_type type, enum ibv_qp_state from,
				enum ibv_qp_state to);
const char *qp_state_name(enum ibv_qp_state state);
const char *qp_type_name(enum ibv_qp_type type);
