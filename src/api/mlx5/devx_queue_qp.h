/* SPDX-License-Identifier: MIT */
/* Queue pairs by command: what create, query and the transitions share. */
#pragma once

#include "devx_queue.h"

enum { DEVX_QPC = 0xc0 }; /* bit of the context in all commands and answers of queue pairs */

extern const struct devx_field devx_qp_fields[];
extern const size_t devx_qp_field_count;

/* A transition; the opcode says which. */
int devx_qp_modify(struct devx_cmd *cmd);
/* What the card knows of the queue pair, into a context. */
void devx_qp_show(struct vb_qp *qp, uint8_t *qpc);
