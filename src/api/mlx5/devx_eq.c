// SPDX-License-Identifier: MIT
/*
 * Event queues that a program makes itself, with the command of the programmer's reference manual:
 * only the size of the queue is taken from it. The ring is the card's, the program reads it at
 * vaddr.
 */
#include "mlx5.h"

#include "base/util.h"
#include "card/queue/eq.h"
#include "devx_bits.h"
#include "devx_table.h"

enum {
	OP_CREATE_EQ = 0x301,
	IN_BYTES = 2176 / 8,
	OUT_BYTES = 128 / 8,
	LOG_SIZE = 0x80 + 0x63,
};

struct devx_eq {
	struct mlx5dv_devx_eq dv; /* first */
	struct vb_eq *card;
	struct devx_left left;
};

static int end_eq(struct devx_left *left)
{
	return vb_eq_destroy(container_of(left, struct devx_eq, left)->card);
}

VB_PUBLIC struct mlx5dv_devx_eq *mlx5dv_devx_create_eq(struct ibv_context *ibctx, const void *in,
						       size_t inlen, void *out, size_t outlen)
{
	struct devx_eq *eq;
	int err;

	API_CALL(API_DEVICE(ibctx));
	if (!ibctx || !mlx5dv_is_supported(ibctx->device))
		return api_refuse_null(not_mlx5);
	if (!in || !out || inlen < IN_BYTES || outlen < OUT_BYTES ||
	    get(in, DEVX_OPCODE, 16) != OP_CREATE_EQ)
		return api_refuse_null(combination, "in and out are no CREATE_EQ command");
	eq = calloc(1, sizeof(*eq));
	if (!eq)
		return api_refuse_null(memory, "the event queue");
	err = vb_eq_create(vb_verbs_dev(ibctx), get(in, LOG_SIZE, 5), &eq->card);
	eq->left.end = end_eq;
	if (!err && !devx_left_add(ibctx, &eq->left)) {
		vb_eq_destroy(eq->card);
		err = vb_refuse_memory("the event queue");
	}
	if (err) {
		free(eq);
		return api_null(-err);
	}
	eq->dv.vaddr = vb_eq_ring(eq->card);
	memset(out, 0, outlen);
	put(out, DEVX_NUMBER_8, 8, vb_eq_number(eq->card));
	return &eq->dv;
}

VB_PUBLIC int mlx5dv_devx_destroy_eq(struct mlx5dv_devx_eq *dv)
{
	struct devx_eq *eq = (struct devx_eq *)dv;
	int err = 0;

	API_CALL(.kind = "EQ");
	if (!eq)
		return api_refuse(null, "eq");
	if (!devx_left_remove(&eq->left))
		err = end_eq(&eq->left);
	if (err) {
		devx_left_add(eq->left.context, &eq->left);
		return api_fail(-err);
	}
	free(eq);
	return 0;
}
