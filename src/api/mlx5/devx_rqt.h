/* SPDX-License-Identifier: MIT */
/* Tables of receive queues by command (DEVX), for the TIRs that spread frames over them. */
#pragma once

#include "card/flow.h"

struct devx_rqt {
	uint32_t count; /* power of two */
	struct vb_qp *rq[VB_MAX_RSS];
};
