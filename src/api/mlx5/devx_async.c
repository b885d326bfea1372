// SPDX-License-Identifier: MIT
/*
 * Command channels: queries of objects whose answers come through a file descriptor, in the order
 * of the calls. The card answers at once, so an answer is there when the call returns.
 */
#include "mlx5.h"

#include "devx_channel.h"
#include "devx_table.h"

enum { MOST_BYTES = 1 << 20 }; /* of answers that nobody took, as the kernel has it */

struct cmd_comp {
	struct mlx5dv_devx_cmd_comp dv; /* first */
	struct ibv_context *context;
	struct devx_channel channel;
};

VB_PUBLIC struct mlx5dv_devx_cmd_comp *mlx5dv_devx_create_cmd_comp(struct ibv_context *context)
{
	struct cmd_comp *comp;
	int err;

	API_CALL(API_DEVICE(context));
	if (!context || !mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx5);
	comp = calloc(1, sizeof(*comp));
	if (!comp)
		return api_refuse_null(memory, "the command channel");
	err = devx_channel_init(&comp->channel);
	if (err) {
		free(comp);
		return api_null(-err);
	}
	comp->context = context;
	comp->dv.fd = comp->channel.fd;
	return &comp->dv;
}

VB_PUBLIC void mlx5dv_devx_destroy_cmd_comp(struct mlx5dv_devx_cmd_comp *cmd_comp)
{
	struct cmd_comp *comp = (struct cmd_comp *)cmd_comp;

	if (!comp)
		return;
	devx_channel_destroy(&comp->channel);
	free(comp);
}

static int query_async(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, size_t outlen,
		       uint64_t wr_id, struct cmd_comp *comp)
{
	void *out;
	int err = devx_check(obj);

	if (err)
		return -err;
	if (!comp || comp->context != obj->context)
		return -vb_refuse_other_context("cmd_comp");
	if (outlen > DEVX_MOST)
		return -vb_refuse_range("outlen", outlen, DEVX_LEAST, DEVX_MOST);
	out = malloc(outlen ? outlen : 1);
	if (!out)
		return -vb_refuse_memory("the answer");
	err = devx_query(obj, in, inlen, out, outlen);
	/* The firmware's refusal is in the answer. */
	if (!err || err == EREMOTEIO)
		err = -devx_channel_add(&comp->channel, &wr_id, sizeof(wr_id), out, outlen,
					MOST_BYTES);
	free(out);
	return err;
}

VB_PUBLIC int mlx5dv_devx_obj_query_async(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen,
					  size_t outlen, uint64_t wr_id,
					  struct mlx5dv_devx_cmd_comp *cmd_comp)
{
	int err;

	API_CALL(.kind = "DEVX object", .detail = devx_name(in, inlen));
	err = query_async(obj, in, inlen, outlen, wr_id, (struct cmd_comp *)cmd_comp);
	return err ? api_fail(err) : 0;
}

VB_PUBLIC int mlx5dv_devx_get_async_cmd_comp(struct mlx5dv_devx_cmd_comp *cmd_comp,
					     struct mlx5dv_devx_async_cmd_hdr *cmd_resp,
					     size_t cmd_resp_len)
{
	ssize_t got;

	API_CALL();
	if (!cmd_comp || !cmd_resp)
		return api_refuse(null, "cmd_comp or cmd_resp");
	got = devx_channel_take(&((struct cmd_comp *)cmd_comp)->channel, cmd_resp, cmd_resp_len,
				ENOSPC);
	if (got >= 0)
		return 0;
	/* An empty channel is no failure to be logged. */
	return got == -EAGAIN ? (errno = EAGAIN) : api_fail((int)-got);
}
