/* SPDX-License-Identifier: MIT */
/*
 * Tables of receive queues by command (DEVX), for the TIRs that spread frames over them.
 *
 *	TIR --uses--> RQT --> receive queues
 *	 ^------------- its list of TIRs: a change of the table is theirs, too
 */
#pragma once

#include <pthread.h>

#include "card/ether/flow.h"

struct devx_rqt_user {
	struct vb_tir *tir;
	struct devx_rqt_user *next;
};

struct devx_rqt {
	struct vb_rss queues;        /* count and queues of it; the rest is not used */
	uint32_t max_size;           /* as it was made */
	struct devx_rqt_user *users; /* TIRs */
};

/* Guards tables and their users, and changes of TIRs that have one. */
extern pthread_mutex_t devx_rqt_mutex;

/* Under the mutex: the TIR has the table from now on. -ENOMEM. */
int devx_rqt_attach(struct devx_rqt *rqt, struct vb_tir *tir);
void devx_rqt_detach(struct devx_rqt *rqt, const struct vb_tir *tir);
