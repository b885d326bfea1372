// SPDX-License-Identifier: MIT
/* Owns the card's state as it begins; see state.h. */
#include "card/state.h"

struct vb_card vb_card = {
	.adapters = { .once = PTHREAD_ONCE_INIT, .interfaces_once = PTHREAD_ONCE_INIT },
	.numbers = {
		.pd = VB_IDS_INIT(1, VB_PD_MAX),
		/*
		 * Keys below 0x1000 mean things in the queue formats (mlx5 and mlx4 end a list with
		 * 0x100).
		 */
		.mr = VB_IDS_INIT(16, VB_SEG_MR_CHUNK * VB_SEG_MR_CHUNKS - 16),
		.cq = VB_IDS_INIT(1, VB_CQ_MAX),
		.eq = VB_IDS_INIT(1, VB_EQ_MAX),
		.srq = VB_IDS_INIT(1, VB_SRQ_MAX),
		.qp = VB_IDS_INIT(VB_QP_FIRST_INDEX, VB_QP_MAX_INDEX - VB_QP_FIRST_INDEX),
		.umem = VB_IDS_INIT(1, VB_UMEM_MAX),
		.uar = VB_IDS_INIT(1, VB_UAR_MAX),
		.tir = VB_IDS_INIT(1, VB_TIR_MAX),
		.transport_domain = VB_IDS_INIT(1, VB_TIR_MAX),
		.emu_map = VB_IDS_INIT(1, VB_EMU_MAPS),
		.emu_eq = VB_IDS_INIT(1, VB_EMU_EQS),
	},
	.mr = { .lock = PTHREAD_MUTEX_INITIALIZER, .called = PTHREAD_COND_INITIALIZER },
	.flow = { .lock = PTHREAD_MUTEX_INITIALIZER },
	.tir = { .lock = PTHREAD_MUTEX_INITIALIZER },
	.wire = { .lock = PTHREAD_MUTEX_INITIALIZER },
	.emulation = { .lock = PTHREAD_MUTEX_INITIALIZER },
	.umem_lock = PTHREAD_MUTEX_INITIALIZER,
	.alarms = { .next = UINT64_MAX },
	.inject = { .lock = PTHREAD_MUTEX_INITIALIZER,
		    .script_lock = PTHREAD_MUTEX_INITIALIZER,
		    .listener = { .fd = -1 } },
	.hbl = { .lock = PTHREAD_MUTEX_INITIALIZER },
};

struct vb_card_tables vb_card_tables;
