// SPDX-License-Identifier: MIT
/*
 * Completion queues by command (DEVX).
 *
 *	CQE --> card --armed?--> devx_queue_cq_notify() --+--> an entry of the event queue c_eqn
 *	                                    +--> event channels that subscribed to the CQ
 */
#include "devx_queue.h"

#include <stdatomic.h>

#include "card/queue/cq.h"
#include "card/queue/eq.h"
#include "card/queue/umem.h"

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

/* From any thread, with no lock of the card held, in a read section: vb_eq_destroy() waits for it. */
static void devx_queue_cq_notify(void *cookie)
{
	struct devx_queue *queue = cookie;
	struct vb_eq *eq = atomic_load_explicit(&queue->eq, memory_order_acquire);

	if (eq)
		vb_eq_completion(eq, vb_cq_number(queue->cq));
	vb_listeners_complete(&queue->obj->listeners, queue->obj->number);
}

/* --- create ----------------------------------------------------------------------------------- */

static uint8_t mini_format_of(const uint8_t *cqc)
{
	return (uint8_t)(get(cqc, 0x5c, 2) << 2 | get(cqc, 0x12, 2));
}

static int devx_queue_cq_check_values(struct devx_cmd *cmd, const uint8_t *cqc)
{
	enum { CQE_SIZES = 3, PERIOD_MODES = 2, LAYOUTS = 2, MINI_FORMATS = 5 };
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
	if (get(cqc, 0x11, 1) && mini_format_of(cqc) >= MINI_FORMATS)
		return vb_refuse_unsupported_value("mini_cqe_res_format", mini_format_of(cqc));
	return devx_check_ts_format(cmd, get(cqc, 0x5e, 2));
}

static struct vb_cq_moderation moderation_of(const uint8_t *cqc)
{
	return (struct vb_cq_moderation){ .max_count = (uint16_t)get(cqc, 0x90, 16),
					  .period_us = (uint16_t)get(cqc, 0x84, 12),
					  .from_cqe = get(cqc, 0xf, 2) };
}

/* The umem of a create or a resize, which the card writes to; into *umem where it will do. */
static int place_ring(struct devx_cmd *cmd, uint64_t bytes, struct vb_umem **umem, void **ring)
{
	const uint8_t *in = cmd->in, *cqc = in + CREATE_CTX / 8;
	uint64_t offset = devx_ring_offset(get64(in, 0x280), get(cqc, 0x54, 6), get(cqc, 0xc3, 5));
	struct vb_umem *found;
	int err = devx_place(cmd, "the ring", get(in, 0x2c0, 32), offset, bytes, 64, &found, ring);

	if (err)
		return err;
	if (!vb_umem_writable(found)) {
		vb_umem_put(found);
		return devx_refuse(cmd, DEVX_BAD_PARAM,
				   vb_refuse_combination("the ring's umem is not writable"));
	}
	*umem = found;
	return 0;
}

static int devx_queue_cq_place(struct devx_cmd *cmd, struct devx_queue *queue,
			       struct vb_cq_attr *attr)
{
	const uint8_t *cqc = cmd->in + CREATE_CTX / 8;
	int err =
		place_ring(cmd, (uint64_t)attr->cqe_cnt * attr->cqe_size, &queue->ring, &attr->buf);

	if (!err)
		err = devx_place_record(cmd, queue, get(cqc, 0x20, 32), get64(cqc, 0x1c0));
	attr->dbr = queue->dbr;
	return err;
}

/* An event queue of mlx5dv_devx_create_eq(), or a vector (*eq NULL), whose events go to channels. */
static int find_eq(struct devx_cmd *cmd, uint32_t number, struct vb_eq **eq,
		   struct vb_eq_user **user)
{
	*eq = NULL;
	*user = NULL;
	if (number >= VB_EQ_VECTORS)
		return 0;
	*user = calloc(1, sizeof(**user));
	if (!*user)
		return devx_refuse(cmd, DEVX_NO_RES, vb_refuse_memory("the queue"));
	*eq = vb_eq_get(cmd->dev, number, *user);
	if (*eq)
		return 0;
	free(*user);
	return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("c_eqn", number));
}

static int devx_queue_cq_hold_eq(struct devx_cmd *cmd, struct devx_queue *queue, uint32_t number)
{
	struct vb_eq *eq;
	int err = find_eq(cmd, number, &eq, &queue->eq_user);

	if (err)
		queue->eq_user = NULL;
	else
		atomic_init(&queue->eq, eq);
	return err;
}

static int devx_queue_cq_make(struct devx_cmd *cmd, struct devx_queue *queue)
{
	enum { BASIC = 0 };
	const uint8_t *cqc = cmd->in + CREATE_CTX / 8;
	struct vb_cq_attr attr = {
		.cqe_cnt = 1u << get(cqc, 0x63, 5),
		.cqe_size = get(cqc, 0x8, 3) ? 128 : 64,
		.timestamps = true,
		.real_time = get(cqc, 0x5e, 2) == DEVX_REAL_TIME,
		.ignore_overrun = get(cqc, 0xe, 1),
		.collapsed = get(cqc, 0xb, 1),
		.always_armed = get(cqc, 0x18, 1),
		.compressed = get(cqc, 0x11, 1),
		.basic_minis = get(cqc, 0x1e, 2) == BASIC,
		.mini_format = mini_format_of(cqc),
		.cookie = queue,
		.notify = devx_queue_cq_notify,
		.event = devx_queue_event,
		.moderation = moderation_of(cqc),
	};
	int err = devx_queue_cq_place(cmd, queue, &attr);

	if (err)
		return err;
	err = vb_cq_create(cmd->dev, &attr, &queue->cq);
	if (err)
		return devx_card_refused(cmd, err);
	vb_progress_unpolled(cmd->dev); /* there is no call that polls it */
	return 0;
}

static int create_cq(struct devx_cmd *cmd)
{
	const uint8_t *cqc = cmd->in + CREATE_CTX / 8;
	struct devx_queue *queue;
	int err = devx_check_fields(cmd, cqc, DEVX_FIELDS(fields));

	if (!err)
		err = devx_queue_cq_check_values(cmd, cqc);
	if (!err)
		err = devx_check_uar(cmd, get(cqc, 0x68, 24));
	if (err)
		return err;
	queue = devx_queue_new(cmd);
	if (!queue)
		return -ENOMEM;
	devx_keep_fields(queue->kept, cqc, DEVX_FIELDS(fields));
	err = devx_queue_cq_hold_eq(cmd, queue, get(cqc, 0xb8, 8));
	if (!err)
		err = devx_queue_cq_make(cmd, queue);
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

enum modify_field {
	PERIOD = 1 << 0,
	MAX_COUNT = 1 << 1,
	OVERRUN = 1 << 2,
	EQN = 1 << 3,
	PERIOD_MODE = 1 << 4
};
enum { SELECT = 0x60, OPMOD_MODIFY = 0, OPMOD_RESIZE = 1 };

/*
 * Events go to another event queue. Those of CQEs that came before may still be on their way to the
 * old one, which cannot be destroyed until they are there.
 */
static int move_events(struct devx_cmd *cmd, struct devx_queue *queue, uint32_t number)
{
	struct vb_eq_user *user, *old_user;
	struct vb_eq *eq, *old;
	int err = find_eq(cmd, number, &eq, &user);

	if (err)
		return err;
	vb_lock(&queue->lock);
	old = atomic_exchange_explicit(&queue->eq, eq, memory_order_acq_rel);
	old_user = queue->eq_user;
	queue->eq_user = user;
	put(queue->kept, 0xb8, 8, number);
	vb_unlock(&queue->lock);
	if (old)
		vb_eq_put(old, old_user);
	free(old_user);
	return 0;
}

static void keep_modified(struct devx_queue *queue, const uint8_t *cqc, uint32_t select,
			  struct vb_cq_moderation *moderation)
{
	vb_lock(&queue->lock);
	if (select & PERIOD)
		put(queue->kept, 0x84, 12, get(cqc, 0x84, 12));
	if (select & MAX_COUNT)
		put(queue->kept, 0x90, 16, get(cqc, 0x90, 16));
	if (select & PERIOD_MODE)
		put(queue->kept, 0xf, 2, get(cqc, 0xf, 2));
	if (select & OVERRUN)
		put(queue->kept, 0xe, 1, get(cqc, 0xe, 1));
	*moderation = moderation_of(queue->kept);
	vb_unlock(&queue->lock);
}

static int modify_values(struct devx_cmd *cmd, struct devx_queue *queue, uint32_t select)
{
	enum { MODERATION = PERIOD | MAX_COUNT | PERIOD_MODE };
	const uint8_t *cqc = cmd->in + CREATE_CTX / 8;
	uint32_t unknown = select & ~(uint32_t)(MODERATION | OVERRUN | EQN);
	struct vb_cq_moderation moderation;
	int err;

	if (unknown)
		return vb_refuse_unsupported_value("modify_field_select", unknown);
	if ((select & PERIOD_MODE) && get(cqc, 0xf, 2) > 1)
		return vb_refuse_range("cq_period_mode", get(cqc, 0xf, 2), 0, 1);
	/* Events of CQs of verbs go to their channel. */
	if ((select & EQN) && !queue->ring)
		return vb_refuse_unsupported("another event queue for a CQ of verbs");
	if (select & EQN) {
		err = move_events(cmd, queue, get(cqc, 0xb8, 8));
		if (err)
			return err;
	}
	keep_modified(queue, cqc, select, &moderation);
	if (select & OVERRUN)
		vb_cq_set_ignore_overrun(queue->cq, get(cqc, 0xe, 1));
	if (select & MODERATION)
		vb_cq_set_moderation(queue->cq, &moderation);
	return 0;
}

/*
 * The ring becomes another one, in the umem of the command. What waits in the old one, up to a CQE
 * that says so, is the program's to move.
 */
static int resize(struct devx_cmd *cmd, struct devx_queue *queue, uint32_t select)
{
	enum { LOG_SIZE = 1 << 0, PAGE_OFFSET = 1 << 1, PAGE_SIZE_FIELD = 1 << 2 };
	const uint8_t *cqc = cmd->in + CREATE_CTX / 8;
	uint32_t unknown = select & ~(uint32_t)(LOG_SIZE | PAGE_OFFSET | PAGE_SIZE_FIELD);
	uint32_t log_size = get(cqc, 0x63, 5), bytes;
	struct vb_umem *umem, *old;
	void *ring;
	int err;

	if (unknown || !(select & LOG_SIZE))
		return vb_refuse_unsupported_value("resize_field_select", select);
	if (log_size > MAX_LOG_SIZE)
		return vb_refuse_range("log_cq_size", log_size, 0, MAX_LOG_SIZE);
	if (!queue->ring)
		return vb_refuse_unsupported("another ring for a CQ of verbs");
	bytes = get(queue->kept, 0x8, 3) ? 128 : 64;
	err = place_ring(cmd, (uint64_t)bytes << log_size, &umem, &ring);
	if (err)
		return err;
	vb_lock(&queue->lock);
	err = vb_cq_move(queue->cq, ring, 1u << log_size);
	old = err ? umem : queue->ring;
	if (!err) {
		queue->ring = umem;
		put(queue->kept, 0x54, 6, get(cqc, 0x54, 6));
		put(queue->kept, 0x63, 5, log_size);
		put(queue->kept, 0xc3, 5, get(cqc, 0xc3, 5));
	}
	vb_unlock(&queue->lock);
	vb_umem_put(old);
	if (err == -ENOSPC)
		return devx_refuse(cmd, DEVX_BAD_SIZE_OUTS_CQES,
				   vb_refuse_combination("more CQEs wait than there is room for"));
	return err;
}

static int modify_cq(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	uint32_t select = get(cmd->in, SELECT, 32);

	switch (get(cmd->in, DEVX_OP_MOD, 16)) {
	case OPMOD_MODIFY:
		return modify_values(cmd, queue, select);
	case OPMOD_RESIZE:
		return resize(cmd, queue, select);
	default:
		return vb_refuse_unsupported_value("op_mod", get(cmd->in, DEVX_OP_MOD, 16));
	}
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
