// SPDX-License-Identifier: MIT
/*
 * Event queues that a program makes itself, with the command of the programmer's reference manual:
 * only the size of the queue is taken from it. The ring is the card's, the program reads it at
 * vaddr.
 */
#include "mlx5.h"

enum {
	OP_CREATE_EQ = 0x301,
	IN_BYTES = 2176 / 8,
	OUT_BYTES = 128 / 8,
	LOG_SIZE_BYTE = 16 + 0x60 / 8, /* eq_context_entry.log_eq_size: the lower 5 bits */
	NUMBER_BYTE = 0x58 / 8,        /* create_eq_out.eq_number */
};

struct devx_eq {
	struct mlx5dv_devx_eq dv; /* first */
	struct vb_eq *card;
};

VB_PUBLIC struct mlx5dv_devx_eq *mlx5dv_devx_create_eq(struct ibv_context *ibctx, const void *in,
						       size_t inlen, void *out, size_t outlen)
{
	const uint8_t *command = in;
	struct devx_eq *eq;
	int err;

	API_CALL(API_DEVICE(ibctx));
	if (!ibctx || !mlx5dv_is_supported(ibctx->device))
		return api_refuse_null(not_mlx5);
	if (!in || !out || inlen < IN_BYTES || outlen < OUT_BYTES ||
	    (command[0] << 8 | command[1]) != OP_CREATE_EQ)
		return api_refuse_null(combination, "in and out are no CREATE_EQ command");
	eq = calloc(1, sizeof(*eq));
	if (!eq)
		return api_refuse_null(memory, "the event queue");
	err = vb_eq_create(vb_verbs_dev(ibctx), command[LOG_SIZE_BYTE] & 0x1f, &eq->card);
	if (err) {
		free(eq);
		return api_null(-err);
	}
	eq->dv.vaddr = vb_eq_ring(eq->card);
	memset(out, 0, outlen);
	((uint8_t *)out)[NUMBER_BYTE] = (uint8_t)vb_eq_number(eq->card);
	return &eq->dv;
}

VB_PUBLIC int mlx5dv_devx_destroy_eq(struct mlx5dv_devx_eq *eq)
{
	int err;

	API_CALL(.kind = "EQ");
	err = eq ? -vb_eq_destroy(((struct devx_eq *)eq)->card) : -vb_refuse_null("eq");
	if (err)
		return api_fail(err);
	free(eq);
	return 0;
}
