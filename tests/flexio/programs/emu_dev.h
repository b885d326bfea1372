/* SPDX-License-Identifier: MIT */
/* Device code of the programs of emulated functions, for either form of the library. */
#pragma once

#include <dpaintrin.h>

#include "queue_dev.h"

#include "emu.h"

#if FLEXIO_DEV_VER_USED >= FLEXIO_DEV_VER(24, 10, 0)
#define EMU_ARM(cqn, id)     flexio_dev_db_ctx_arm(cqn, id)
#define EMU_TRIGGER(cqn, id) flexio_dev_db_ctx_force_trigger(cqn, id)
#define MSIX(cqn)            flexio_dev_msix_send(cqn)
#else
#define EMU_ARM(cqn, id)     flexio_dev_db_ctx_arm(thread_ctx(), cqn, id)
#define EMU_TRIGGER(cqn, id) flexio_dev_db_ctx_force_trigger(thread_ctx(), cqn, id)
#define MSIX(cqn)            flexio_dev_msix_send(thread_ctx(), cqn)
#endif

static inline struct emu_shared *shared_at(const struct emu_state *s)
{
	flexio_uintptr_t at;

#if FLEXIO_DEV_VER_USED >= FLEXIO_DEV_VER(24, 10, 0)
	if (flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, (uint16_t)s->window_id, s->mkey) ||
	    flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, s->shared, &at))
#else
	if (flexio_dev_window_config(thread_ctx(), (uint16_t)s->window_id, s->mkey) ||
	    flexio_dev_window_ptr_acquire(thread_ctx(), s->shared, &at))
#endif
		flexio_dev_error(0x80);
	return (struct emu_shared *)at;
}

/* Whatever is published when it looks, and then once for all of it an interrupt. */
static inline void serve(struct emu_state *s)
{
	struct emu_shared *shared = shared_at(s);
	uint64_t until;

	__dpa_thread_window_read_inv();
	until = *(volatile uint64_t *)&shared->published;
	if (s->served == until)
		return;
	s->served = until;
	*(volatile uint64_t *)&shared->served = until;
	__dpa_thread_window_writeback();
	if (s->msix_cqn)
		MSIX(s->msix_cqn);
}

static inline void do_doorbell(struct emu_state *s)
{
	while (cq_peek(&s->cq)) {
		cq_consume(&s->cq);
		s->cqes++;
	}
	/* Armed before the look: what is published behind it rings again. */
	if (s->rearm)
		EMU_ARM(s->cq.number, s->emu_id);
	ARM(s->cq.ci, s->cq.number);
	if (s->shared)
		serve(s);
	__atomic_add_fetch(&s->runs, 1, __ATOMIC_SEQ_CST);
	flexio_dev_thread_reschedule();
}
