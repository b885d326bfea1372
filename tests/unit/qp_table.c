// SPDX-License-Identifier: MIT
/*
 * The expected QP state table; see qp_table.h. A transition that is not in a list is refused.
 */
#include "qp_table.h"

#include <stddef.h>

#define CUR   IBV_QP_CUR_STATE
#define ACC   IBV_QP_ACCESS_FLAGS
#define PKEY  IBV_QP_PKEY_INDEX
#define PORT  IBV_QP_PORT
#define QKEY  IBV_QP_QKEY
#define AV    IBV_QP_AV
#define MTU   IBV_QP_PATH_MTU
#define TMO   IBV_QP_TIMEOUT
#define RETRY IBV_QP_RETRY_CNT
#define RNR   IBV_QP_RNR_RETRY
#define RQPSN IBV_QP_RQ_PSN
#define ORD   IBV_QP_MAX_QP_RD_ATOMIC
#define IRD   IBV_QP_MAX_DEST_RD_ATOMIC
#define ALT   IBV_QP_ALT_PATH
#define RNRT  IBV_QP_MIN_RNR_TIMER
#define SQPSN IBV_QP_SQ_PSN
#define MIG   IBV_QP_PATH_MIG_STATE
#define DEST  IBV_QP_DEST_QPN
#define SQDN  IBV_QP_EN_SQD_ASYNC_NOTIFY

#define RESET IBV_QPS_RESET
#define INIT  IBV_QPS_INIT
#define RTR   IBV_QPS_RTR
#define RTS   IBV_QPS_RTS
#define SQD   IBV_QPS_SQD
#define SQE   IBV_QPS_SQE
#define ERR   IBV_QPS_ERR

/* Any state can be left for RESET, and any but RESET for ERR, with no attribute at all. */
#define ALWAYS                                                                                     \
	{ RESET, RESET, true, 0, 0 }, { INIT, RESET, true, 0, 0 }, { RTR, RESET, true, 0, 0 },     \
		{ RTS, RESET, true, 0, 0 }, { SQD, RESET, true, 0, 0 },                            \
		{ SQE, RESET, true, 0, 0 }, { ERR, RESET, true, 0, 0 }, { INIT, ERR, true, 0, 0 }, \
		{ RTR, ERR, true, 0, 0 }, { RTS, ERR, true, 0, 0 }, { SQD, ERR, true, 0, 0 },      \
		{ SQE, ERR, true, 0, 0 },                                                          \
	{                                                                                          \
		ERR, ERR, true, 0, 0                                                               \
	}

/* clang-format off */
static const struct transition rc_table[] = {
	ALWAYS,
	{ RESET, INIT, true, PKEY | PORT | ACC,                      0 },
	{ INIT,  INIT, true, 0,                                      PKEY | PORT | ACC },
	{ INIT,  RTR,  true, AV | MTU | DEST | RQPSN | IRD | RNRT,   ALT | ACC | PKEY },
	{ RTR,   RTS,  true, TMO | RETRY | RNR | SQPSN | ORD,        CUR | ALT | ACC | RNRT | MIG },
	{ RTS,   RTS,  true, 0,                                      CUR | ACC | ALT | MIG | RNRT },
	{ RTS,   SQD,  true, 0,                                      SQDN },
	{ SQD,   RTS,  true, 0,                                      CUR | ALT | ACC | RNRT | MIG },
	{ SQD,   SQD,  true, 0,                                      PORT | AV | TMO | RETRY | RNR | ORD |
								     IRD | ALT | ACC | PKEY | RNRT | MIG },
};

static const struct transition uc_table[] = {
	ALWAYS,
	{ RESET, INIT, true, PKEY | PORT | ACC,                      0 },
	{ INIT,  INIT, true, 0,                                      PKEY | PORT | ACC },
	{ INIT,  RTR,  true, AV | MTU | DEST | RQPSN,                ALT | ACC | PKEY },
	{ RTR,   RTS,  true, SQPSN,                                  CUR | ALT | ACC | MIG },
	{ RTS,   RTS,  true, 0,                                      CUR | ACC | ALT | MIG },
	{ RTS,   SQD,  true, 0,                                      SQDN },
	{ SQD,   RTS,  true, 0,                                      CUR | ALT | ACC | MIG },
	{ SQD,   SQD,  true, 0,                                      AV | ALT | ACC | PKEY | MIG },
	{ SQE,   RTS,  true, 0,                                      CUR | ACC },
};

static const struct transition ud_table[] = {
	ALWAYS,
	{ RESET, INIT, true, PKEY | PORT | QKEY,                     0 },
	{ INIT,  INIT, true, 0,                                      PKEY | PORT | QKEY },
	{ INIT,  RTR,  true, 0,                                      PKEY | QKEY },
	{ RTR,   RTS,  true, SQPSN,                                  CUR | QKEY },
	{ RTS,   RTS,  true, 0,                                      CUR | QKEY },
	{ RTS,   SQD,  true, 0,                                      SQDN },
	{ SQD,   RTS,  true, 0,                                      CUR | QKEY },
	{ SQD,   SQD,  true, 0,                                      PKEY | QKEY },
	{ SQE,   RTS,  true, 0,                                      CUR | QKEY },
};
/* clang-format on */

struct transition qp_table_find(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to)
{
	struct transition none = { from, to, false, 0, 0 };
	const struct transition *table = rc_table;
	size_t count = sizeof(rc_table) / sizeof(rc_table[0]);

	if (type == IBV_QPT_UC) {
		table = uc_table;
		count = sizeof(uc_table) / sizeof(uc_table[0]);
	} else if (type == IBV_QPT_UD) {
		table = ud_table;
		count = sizeof(ud_table) / sizeof(ud_table[0]);
	}
	for (size_t i = 0; i < count; i++) {
		if (table[i].from == from && table[i].to == to)
			return table[i];
	}
	return none;
}

const char *qp_state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return (unsigned int)state < 7 ? names[state] : "?";
}

const char *qp_type_name(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : "UD";
}
