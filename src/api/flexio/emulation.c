// SPDX-License-Identifier: MIT
/*
 * Owns maps from doorbells of emulated functions to CQs, as handles. All else is the card's
 * (card/emulation/emulation.h); device code arms them through its outbox.
 */
#include "queue.h"
#include "card/emulation/emulation.h"

#include <stdlib.h>

struct flexio_emu_db_to_cq_ctx {
	struct ibv_context *ctx; /* held */
	struct vb_emu_map *card;
} __attribute__((aligned(16)));

/* Of arguments that are what they should be. */
static flexio_status flexio_emulation_map(struct ibv_context *ctx, uint32_t vhca_id,
					  uint32_t queue_id, uint32_t cqn,
					  struct flexio_emu_db_to_cq_ctx **out)
{
	struct flexio_emu_db_to_cq_ctx *emu = aligned_alloc(16, sizeof(*emu));
	int err;

	CARD_WORDS(words);
	if (!emu)
		return fail("no memory for the map");
	emu->ctx = ctx;
	err = vb_emu_map(vb_verbs_dev(ctx), vhca_id, queue_id, cqn, &emu->card);
	if (err) {
		fail("%s refuses to map queue %u of function 0x%x: %s", ctx->device->name, queue_id,
		     vhca_id, card_reason(&words, err));
		goto free_emu;
	}
	if (!vb_handle_add(HANDLE_EMU, emu)) {
		fail("no memory for the map");
		goto unmap;
	}
	vb_verbs_hold(ctx, NULL);
	*out = emu;
	return FLEXIO_STATUS_SUCCESS;

unmap:
	vb_emu_unmap(emu->card);
free_emu:
	free(emu);
	return failed();
}

flexio_status flexio_emu_db_to_cq_map(struct ibv_context *ibv_ctx, uint32_t vhca_id,
				      uint32_t queue_id, struct flexio_cq *cq,
				      struct flexio_emu_db_to_cq_ctx **emu_db_to_cq_ctx)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_CQ, cq);
	struct queue *queue = (struct queue *)cq;

	API_CALL();
	if (!ibv_ctx || !emu_db_to_cq_ctx)
		return fail("%s is NULL", !ibv_ctx ? "ibv_ctx" : "emu_db_to_cq_ctx");
	if (!pin)
		return bad_handle(cq, "CQ");
	if (!vb_accel_adapter(ibv_ctx))
		return fail("%s has no emulated functions; adapters of the format mlx5 have them",
			    ibv_ctx->device->name);
	if (queue->ctx != ibv_ctx)
		return fail("the CQ is of another device context, of %s", queue->ctx->device->name);
	return flexio_emulation_map(ibv_ctx, vhca_id, queue_id, vb_flexio_cq_number(cq),
				    emu_db_to_cq_ctx);
}

flexio_status flexio_emu_db_to_cq_unmap(struct flexio_emu_db_to_cq_ctx *emu_db_to_cq_ctx)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_EMU, emu_db_to_cq_ctx);

	API_CALL();
	if (!emu_db_to_cq_ctx)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_handle_end(&pin))
		return bad_handle(emu_db_to_cq_ctx, "map of a doorbell");
	vb_emu_unmap(emu_db_to_cq_ctx->card);
	vb_verbs_release(emu_db_to_cq_ctx->ctx, NULL);
	free(emu_db_to_cq_ctx);
	return FLEXIO_STATUS_SUCCESS;
}

uint32_t flexio_emu_db_to_cq_ctx_get_id(struct flexio_emu_db_to_cq_ctx *emu_db_to_cq_ctx)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_EMU, emu_db_to_cq_ctx);

	API_CALL();
	if (!pin) {
		bad_handle(emu_db_to_cq_ctx, "map of a doorbell");
		return UINT32_MAX;
	}
	return vb_emu_map_id(emu_db_to_cq_ctx->card);
}
