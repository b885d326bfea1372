// SPDX-License-Identifier: MIT
/*
 * Completion queues by command (DEVX).
 *
 *	CQE --> card --armed?--> notify() --+--> an entry of the event queue c_eqn
 *	                                    +--> event channels that subscribed to the CQ
 */
#include "devx_queue.h"

enum { MAX_LOG_SIZE = 22, CREATE_CTX = 0x80, OVERFLOWN = 9 };

static const struct devx_field fields[] = {
	{ 0x0, 4, DEVX_SHOWN, "status" },
	{ 0x4, 1, DEVX_KEPT, "as_notify" },
	{ 0x5, 1, DEVX_ABSENT, "initiator_src_dct" },
	{ 0x6, 1, DEVX_KEPT, "dbr_umem_valid" },
	{ 0x7, 1, DEVX_ABSENT, "ext_element" },
	{ 0x8, 3, DEVX_KEPT, "cqe_sz" },
	{ 0xb, 1, DEVX_KEPT, "cc" },
	{ 0xd, 1, DEVX_KEPT, "scqe_break_moderation_en" },
	{ 0xe, 1, DEVX_KEPT, "oi" },
	{ 0xf, 2, DEVX_KEPT, "cq_period_mode" },
	{ 0x11, 1, DEVX_KEPT, "cqe_comp_en" },
	{ 0x12, 2, DEVX_KEPT, "mini_cqe_res_format" },
	{ 0x14, 4, DEVX_SHOWN, "st" },
	{ 0x18, 1, DEVX_KEPT, "always_armed_cq" },
	{ 0x19, 3, DEVX_ABSENT, "ext_element_type" },
	{ 0x1e, 2, DEVX_KEPT, "cqe_comp_layout" },
	{ 0x20, 32, DEVX_KEPT, "dbr_umem_id" },
	{ 0x54, 6, DEVX_KEPT, "page_offset" },
	{ 0x5c, 2, DEVX_KEPT, "mini_cqe_res_format_ext" },
	{ 0x5e, 2, DEVX_KEPT, "cq_timestamp_format" },
	{ 0x63, 5, DEVX_KEPT, "log_cq_size" },
	{ 0x68, 24, DEVX_KEPT, "uar_page" },
	{ 0x84, 12, DEVX_KEPT, "cq_period" },
	{ 0x90, 16, DEVX_KEPT, "cq_max_count" },
	{ 0xb8, 8, DEVX_KEPT, "c_eqn" },
	{ 0xc3, 5, DEVX_KEPT, "log_page_size" },
	{ 0x1c0, 32, DEVX_KEPT, "dbr_addr" },
	{ 0x1e0, 32, DEVX_KEPT, "dbr_addr" },
};

/* From any thread, with no lock of the card held. */
static void notify(void *cookie)
{
	struct devx_queue *queue = cookie;

	if (queue->eq)
		vb_eq_completion(queue->eq, vb_cq_number(queue->cq));
	vb_listeners_complete(&queue->obj->listeners, queue->obj->number);
}

/* --- create ----------------------------------------------------------------------------------- */

static int check_values(struct devx_cmd *cmd, const uint8_t *cqc)
{
	enum { CQE_SIZES = 3, PERIOD_MODES = 2, LAYOUTS = 2 };
	const struct {
		const char *name;
		uint32_t value, limit;
	} limits[] = {
		{ "log_cq_size", get(cqc, 0x63, 5), MAX_LOG_SIZE },
		{ "cqe_sz", get(cqc, 0x8, 3), CQE_SIZES - 1 },
		{ "cq_period_mode", get(cqc, 0xf, 2), PERIOD_MODES - 1 },
		{ "cqe_comp_layout", get(cqc, 0x1e, 2), LAYOUTS - 1 },
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (limits[i].value > limits[i].limit)
			return vb_refuse_range(limits[i].name, limits[i].value, 0, limits[i].limit);
	return devx_check_ts_format(cmd, get(cqc, 0x5e, 2));
}

static struct vb_cq_moderation moderation_of(const uint8_t *cqc)
{
	return (struct vb_cq_moderation){ .max_count = (uint16_t)get(cqc, 0x90, 16),
					  .period_us = (uint16_t)get(cqc, 0x84, 12),
					  .from_cqe = get(cqc, 0xf, 2) };
}

static int place(struct devx_cmd *cmd, struct devx_queue *queue, struct vb_cq_attr *attr)
{
	const uint8_t *in = cmd->in, *cqc = in + CREATE_CTX / 8;
	uint64_t offset = devx_ring_offset(get64(in, 0x280), get(cqc, 0x54, 6), get(cqc, 0xc3, 5));
	int err =
		devx_place(cmd, "the ring", get(in, 0x2c0, 32), offset,
			   (uint64_t)attr->cqe_cnt * attr->cqe_size, 64, &queue->ring, &attr->buf);

	/* The card writes the ring, and reads the record. */
	if (!err && !vb_umem_writable(queue->ring))
		err = devx_refuse(cmd, DEVX_BAD_PARAM,
				  vb_refuse_combination("the ring's umem is not writable"));
	if (!err)
		err = devx_place_record(cmd, queue, get(cqc, 0x20, 32), get64(cqc, 0x1c0));
	attr->dbr = queue->dbr;
	return err;
}

/* An event queue of mlx5dv_devx_create_eq(), or a vector, whose events go to channels. */
static int hold_eq(struct devx_cmd *cmd, struct devx_queue *queue, uint32_t number)
{
	if (number >= VB_EQ_VECTORS)
		return 0;
	queue->eq = vb_eq_get(cmd->dev, number, &queue->eq_user);
	return queue->eq ? 0 : devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("c_eqn", number));
}

static int make(struct devx_cmd *cmd, struct devx_queue *queue)
{
	enum { ENHANCED = 1 };
	const uint8_t *cqc = cmd->in + CREATE_CTX / 8;
	struct vb_cq_attr attr = {
		.cqe_cnt = 1u << get(cqc, 0x63, 5),
		.cqe_size = get(cqc, 0x8, 3) ? 128 : 64,
		.timestamps = true,
		.ignore_overrun = get(cqc, 0xe, 1),
		.collapsed = get(cqc, 0xb, 1),
		.always_armed = get(cqc, 0x18, 1),
		/* In the older layout it is up to the card how many it compresses: none. */
		.compressed = get(cqc, 0x11, 1) && get(cqc, 0x1e, 2) == ENHANCED,
		.mini_format = (uint8_t)(get(cqc, 0x5c, 2) << 2 | get(cqc, 0x12, 2)),
		.cookie = queue,
		.notify = notify,
		.event = devx_queue_event,
		.moderation = moderation_of(cqc),
	};
	int err = place(cmd, queue, &attr);

	if (err)
		return err;
	err = vb_cq_create(cmd->dev, &attr, &queue->cq);
	return err ? devx_card_refused(cmd, err) : 0;
}

static int create_cq(struct devx_cmd *cmd)
{
	const uint8_t *cqc = cmd->in + CREATE_CTX / 8;
	struct devx_queue *queue;
	int err = devx_check_fields(cmd, cqc, DEVX_FIELDS(fields));

	if (!err)
		err = check_values(cmd, cqc);
	if (!err)
		err = devx_check_uar(cmd, get(cqc, 0x68, 24));
	if (err)
		return err;
	queue = devx_queue_new(cmd);
	if (!queue)
		return -ENOMEM;
	devx_keep_fields(queue->kept, cqc, DEVX_FIELDS(fields));
	err = hold_eq(cmd, queue, get(cqc, 0xb8, 8));
	if (!err)
		err = make(cmd, queue);
	if (err) {
		devx_queue_free(queue);
		return err;
	}
	cmd->obj->number = vb_cq_number(queue->cq);
	cmd->obj->data = queue;
	return 0;
}

static int destroy_cq(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	int err = vb_cq_destroy(queue->cq);

	if (!err)
		devx_queue_free(queue);
	return err;
}

/* --- modify and query ------------------------------------------------------------------------- */

enum modify_field { PERIOD = 1 << 0, MAX_COUNT = 1 << 1, OVERRUN = 1 << 2, PERIOD_MODE = 1 << 4 };

static int modify_cq(struct devx_cmd *cmd)
{
	enum { SELECT = 0x60, KNOWN = PERIOD | MAX_COUNT | OVERRUN | PERIOD_MODE };
	const uint8_t *cqc = cmd->in + CREATE_CTX / 8;
	uint32_t select = get(cmd->in, SELECT, 32);
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	struct vb_cq_moderation moderation;

	if (get(cmd->in, DEVX_OP_MOD, 16))
		return vb_refuse_unsupported_value("op_mod", get(cmd->in, DEVX_OP_MOD, 16));
	if (select & ~(uint32_t)KNOWN)
		return vb_refuse_unsupported_value("modify_field_select",
						   select & ~(uint32_t)KNOWN);
	if ((select & PERIOD_MODE) && get(cqc, 0xf, 2) > 1)
		return vb_refuse_range("cq_period_mode", get(cqc, 0xf, 2), 0, 1);
	vb_lock(&queue->lock);
	if (select & PERIOD)
		put(queue->kept, 0x84, 12, get(cqc, 0x84, 12));
	if (select & MAX_COUNT)
		put(queue->kept, 0x90, 16, get(cqc, 0x90, 16));
	if (select & PERIOD_MODE)
		put(queue->kept, 0xf, 2, get(cqc, 0xf, 2));
	if (select & OVERRUN)
		put(queue->kept, 0xe, 1, get(cqc, 0xe, 1));
	moderation = moderation_of(queue->kept);
	vb_unlock(&queue->lock);
	if (select & OVERRUN)
		vb_cq_set_ignore_overrun(queue->cq, get(cqc, 0xe, 1));
	if (select & ~(uint32_t)OVERRUN)
		vb_cq_set_moderation(queue->cq, &moderation);
	return 0;
}

static int query_cq(struct devx_cmd *cmd)
{
	static const uint8_t states[] = {
		[VB_CQ_NOT_ARMED] = 0xa, [VB_CQ_ARMED] = 0x9, [VB_CQ_ARMED_SOLICITED] = 0x6
	};
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	uint8_t *cqc = cmd->out + CREATE_CTX / 8;
	uint32_t produced;
	bool lost;

	vb_lock(&queue->lock);
	memcpy(cqc, queue->kept, DEVX_CQC_BYTES);
	vb_unlock(&queue->lock);
	produced = vb_cq_produced(queue->cq, &lost);
	put(cqc, 0x0, 4, lost ? OVERFLOWN : 0);
	put(cqc, 0x14, 4, states[vb_cq_arming(queue->cq)]);
	put(cqc, 0x148, 24, vb_cq_consumed(queue->cq));
	put(cqc, 0x168, 24, produced & 0xffffff);
	return 0;
}

const struct devx_row devx_cq_rows[] = {
	{ "CREATE_CQ", 0x400, 0, DEVX_CREATE, VB_DEVX_CQ, 272, 16, DEVX_NUMBER, create_cq },
	{ "DESTROY_CQ", 0x401, 0, DEVX_DESTROY, VB_DEVX_CQ, 16, 16, DEVX_NUMBER, destroy_cq },
	{ "QUERY_CQ", 0x402, 0, DEVX_QUERY, VB_DEVX_CQ, 16, 272, DEVX_NUMBER, query_cq },
	{ "MODIFY_CQ", 0x403, 0, DEVX_MODIFY, VB_DEVX_CQ, 272, 16, DEVX_NUMBER, modify_cq },
	{ 0 },
};
