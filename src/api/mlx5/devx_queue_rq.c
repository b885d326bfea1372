// SPDX-License-Identifier: MIT
/*
 * Receive queues of raw frames by command (DEVX), and RMPs: receives that several RQs or QPs share.
 *
 *	TIR --> RQ --+--> its own ring
 *	             +--> RMP <-- QPs
 *
 * To the card an RQ is a receive work queue, and an RMP a shared receive queue. Where the WQEs of
 * an RQ are linked, its ring is a shared receive queue that nobody shares. WQEs of an RQ, not of an
 * RMP, may have strides.
 */
#include "devx_queue.h"

#include "card/memory/mr.h"
#include "card/queue/cq.h"
#include "card/queue/qp.h"
#include "card/queue/srq.h"

/* --- receive queues --------------------------------------------------------------------------- */

static const struct devx_field fields[] = {
	{ 0x0, 1, DEVX_ABSENT, "rlky" },
	{ 0x1, 1, DEVX_ABSENT, "delay_drop_en" },
	{ 0x2, 1, DEVX_KEPT, "scatter_fcs" },
	{ 0x3, 1, DEVX_KEPT, "vsd" },
	{ 0x4, 4, DEVX_KEPT, "mem_rq_type" },
	{ 0x8, 4, DEVX_SHOWN, "state" },
	{ 0xd, 1, DEVX_KEPT, "flush_in_error_en" },
	{ 0xe, 1, DEVX_ABSENT, "hairpin" },
	{ 0x15, 3, DEVX_ABSENT, "hairpin_data_buffer_type" },
	{ 0x1a, 2, DEVX_KEPT, "ts_format" },
	{ 0x28, 24, DEVX_KEPT, "user_index" },
	{ 0x48, 24, DEVX_KEPT, "cqn" },
	{ 0x60, 8, DEVX_SHOWN, "counter_set_id" },
	{ 0x88, 24, DEVX_KEPT, "rmpn" },
	{ 0xa8, 24, DEVX_ABSENT, "hairpin_peer_sq" },
	{ 0xd0, 16, DEVX_ABSENT, "hairpin_peer_vhca" },
};

enum mem_rq_type { INLINE = 0, RMP = 1 };

static int devx_queue_rq_check(struct devx_cmd *cmd, const uint8_t *rqc)
{
	uint32_t type = get(rqc, 0x4, 4);
	int err = devx_check_wq(cmd, rqc, DEVX_FIELDS(fields));

	if (err)
		return err;
	if (get(rqc, 0x8, 4) != DEVX_RST)
		return vb_refuse_value("state", get(rqc, 0x8, 4));
	if (type != INLINE && type != RMP)
		return vb_refuse_unsupported_value("mem_rq_type", type);
	return devx_check_ts_format(cmd, get(rqc, 0x1a, 2));
}

/* Its receives: a ring, a list of its own, or an RMP, which is held in attr->srq. */
static int make_receives(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *rqc,
			 struct vb_qp_attr *attr)
{
	struct vb_srq_attr ring = { .pd = attr->pd, .anonymous = true, .single = true };
	uint32_t rmpn = get(rqc, 0x88, 24);
	int err;

	if (get(rqc, 0x4, 4) == RMP) {
		attr->srq = vb_srq_get(cmd->dev, rmpn);
		if (!attr->srq)
			return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("rmpn", rmpn));
		attr->dbr = queue->no_record; /* the RMP has its own */
		return 0;
	}
	err = devx_wq_receives(cmd, queue, rqc + DEVX_WQ / 8, &ring, &attr->striding);
	if (err)
		return err;
	attr->dbr = queue->dbr;
	if (ring.cyclic) {
		attr->rq_buf = ring.buf;
		attr->rq_cnt = ring.wqe_cnt;
		attr->rq_shift = ring.wqe_shift;
		return 0;
	}
	err = vb_srq_create(cmd->dev, &ring, &queue->list);
	attr->srq = queue->list;
	return err ? devx_card_refused(cmd, err) : 0;
}

static int devx_queue_rq_make(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *rqc)
{
	struct vb_qp_attr attr = {
		.type = IBV_QPT_RAW_PACKET,
		.wq = true,
		.uidx = get(rqc, 0x28, 24),
		.scatter_fcs = get(rqc, 0x2, 1),
		.vlan_strip = !get(rqc, 0x3, 1),
		.real_time = get(rqc, 0x1a, 2) == DEVX_REAL_TIME,
		.keeps_posted = !get(rqc, 0xd, 1),
		.cookie = queue,
		.event = devx_queue_event,
	};
	int err = -EINVAL;

	attr.pd = devx_pd(cmd, get(rqc, DEVX_WQ + 0x48, 24));
	attr.recv_cq = attr.pd ? devx_cq(cmd, "cqn", get(rqc, 0x48, 24)) : NULL;
	attr.send_cq = attr.recv_cq;
	if (attr.recv_cq) {
		err = make_receives(cmd, queue, rqc, &attr);
		if (!err) {
			err = vb_qp_create(cmd->dev, &attr, &queue->qp);
			if (err)
				devx_card_refused(cmd, err);
		}
		vb_cq_put(attr.recv_cq);
	}
	if (attr.srq && attr.srq != queue->list)
		vb_srq_put(attr.srq);
	if (attr.pd)
		vb_pd_put(attr.pd);
	return err;
}

static int create_rq(struct devx_cmd *cmd)
{
	const uint8_t *rqc = cmd->in + DEVX_CONTEXT / 8;
	struct devx_queue *queue;
	int err = devx_queue_rq_check(cmd, rqc);

	if (err)
		return err;
	queue = devx_queue_new(cmd);
	if (!queue)
		return -ENOMEM;
	devx_keep_wq(queue, rqc, DEVX_FIELDS(fields));
	err = devx_queue_rq_make(cmd, queue, rqc);
	if (err) {
		devx_queue_free(queue);
		return err;
	}
	err = devx_count_in(cmd, queue->qp, get(rqc, 0x60, 8));
	if (err) {
		vb_qp_destroy(queue->qp);
		devx_queue_free(queue);
		return err;
	}
	vb_qp_set_direct(queue->qp);
	cmd->obj->number = vb_qp_number(queue->qp);
	cmd->obj->data = queue;
	return 0;
}

static int destroy_rq(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	int err = vb_qp_destroy(queue->qp);

	if (err)
		return vb_refuse_busy("TIRs, tables of queues or rules");
	devx_queue_free(queue);
	return 0;
}

/* --- modify and query ------------------------------------------------------------------------- */

enum rq_field { VSD = 1 << 1, COUNTER_SET = 1 << 3 };

void devx_rq_stop(struct mlx5dv_devx_obj *obj)
{
	vb_wq_modify(devx_queue_of(obj)->qp, IBV_WQS_RESET);
}

static int modify_rq(struct devx_cmd *cmd)
{
	enum { KNOWN = VSD | COUNTER_SET };
	const uint8_t *rqc = cmd->in + DEVX_CONTEXT / 8;
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	enum devx_wq_state is = devx_wq_state_of(queue), to;
	uint32_t counted = vb_qp_counter_set(queue->qp);
	uint64_t bits = get64(cmd->in, DEVX_BITMASK);
	int err;

	if (bits & ~(uint64_t)KNOWN)
		return vb_refuse_unsupported_value("modify_bitmask", bits & ~(uint64_t)KNOWN);
	err = devx_read_states(cmd, is, &to);
	if (!err && (bits & COUNTER_SET))
		err = devx_count_in(cmd, queue->qp, get(rqc, 0x60, 8));
	if (!err && (to != is || to == DEVX_RST)) {
		err = vb_wq_modify(queue->qp, to == DEVX_RDY   ? IBV_WQS_RDY
					      : to == DEVX_ERR ? IBV_WQS_ERR
							       : IBV_WQS_RESET);
		if (err) {
			vb_qp_set_counters(queue->qp, counted);
			devx_refuse(cmd, DEVX_BAD_RES_STATE, err);
		}
	}
	if (err)
		return err;
	if (bits & VSD)
		vb_wq_strip_vlan(queue->qp, !get(rqc, 0x3, 1));
	vb_lock(&queue->lock);
	if (bits & VSD)
		put(queue->kept, 0x3, 1, get(rqc, 0x3, 1));
	vb_unlock(&queue->lock);
	return 0;
}

static int query_rq(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	struct vb_qp_counters counters;

	vb_qp_counters(queue->qp, &counters);
	if (queue->list)
		vb_srq_counters(queue->list, &counters.taken, &counters.posted);
	devx_show_wq(cmd, devx_wq_state_of(queue), counters.taken, counters.posted);
	put(cmd->out, DEVX_CONTEXT + 0x60, 8, vb_qp_counter_set(queue->qp));
	return 0;
}

/* --- receives that are shared ----------------------------------------------------------------- */

static const struct devx_field rmp_fields[] = {
	{ 0x8, 4, DEVX_SHOWN, "state" },
	{ 0x20, 1, DEVX_KEPT, "basic_cyclic_rcv_wqe" },
};

/* A ring whose WQEs are not basic has those of an SRQ: a link, then data segments. */
static int create_rmp(struct devx_cmd *cmd)
{
	enum { LINKED_LOG_STRIDE = 5, MAX_LOG_STRIDE = 10 };
	const uint8_t *rmpc = cmd->in + DEVX_CONTEXT / 8;
	struct vb_srq_attr attr = { .anonymous = true,
				    .limit = get(rmpc, DEVX_WQ + 0x30, 16),
				    .event = devx_queue_event };
	struct devx_queue *queue;
	int err = devx_check_wq(cmd, rmpc, DEVX_FIELDS(rmp_fields));

	if (err)
		return err;
	if (get(rmpc, 0x8, 4) > DEVX_RDY)
		return vb_refuse_value("state", get(rmpc, 0x8, 4));
	queue = devx_queue_new(cmd);
	if (!queue)
		return -ENOMEM;
	devx_keep_wq(queue, rmpc, DEVX_FIELDS(rmp_fields));
	attr.cookie = queue;
	err = devx_wq_receives(cmd, queue, rmpc + DEVX_WQ / 8, &attr, NULL);
	attr.idle_link = attr.cyclic && !get(rmpc, 0x20, 1);
	if (!err && attr.idle_link && attr.wqe_shift < LINKED_LOG_STRIDE)
		err = devx_refuse(cmd, DEVX_BAD_PARAM,
				  vb_refuse_range("log_wq_stride", attr.wqe_shift,
						  LINKED_LOG_STRIDE, MAX_LOG_STRIDE));
	if (!err && attr.limit >= attr.wqe_cnt)
		err = vb_refuse_range("lwm", attr.limit, 0, attr.wqe_cnt - 1);
	attr.pd = err ? NULL : devx_pd(cmd, get(rmpc, DEVX_WQ + 0x48, 24));
	if (!err && !attr.pd)
		err = -EINVAL;
	if (!err) {
		err = vb_srq_create(cmd->dev, &attr, &queue->srq);
		if (err)
			devx_card_refused(cmd, err);
	}
	if (attr.pd)
		vb_pd_put(attr.pd);
	if (err) {
		devx_queue_free(queue);
		return err;
	}
	cmd->obj->number = vb_srq_number(queue->srq);
	cmd->obj->data = queue;
	return 0;
}

static int destroy_rmp(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	int err = vb_srq_destroy(queue->srq);

	if (!err)
		devx_queue_free(queue);
	return err;
}

/* Arms the limit; an RMP is ready all its life. */
static int modify_rmp(struct devx_cmd *cmd)
{
	enum { LWM = 1 << 0 };
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	uint32_t limit = get(cmd->in, DEVX_CONTEXT + DEVX_WQ + 0x30, 16);
	uint64_t bits = get64(cmd->in, DEVX_BITMASK);
	enum devx_wq_state to;
	int err;

	if (bits & ~(uint64_t)LWM)
		return vb_refuse_unsupported_value("bitmask", bits & ~(uint64_t)LWM);
	err = devx_read_states(cmd, DEVX_RDY, &to);
	if (!err && to != DEVX_RDY)
		err = devx_refuse(cmd, DEVX_BAD_RES_STATE,
				  vb_refuse_unsupported_value("state", to));
	if (!err && bits)
		err = vb_srq_set_limit(queue->srq, limit);
	if (!err && bits) {
		vb_lock(&queue->lock);
		put(queue->kept, DEVX_WQ + 0x30, 16, limit);
		vb_unlock(&queue->lock);
	}
	return err;
}

static int query_rmp(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	uint16_t taken, posted;

	vb_srq_counters(queue->srq, &taken, &posted);
	devx_show_wq(cmd, DEVX_RDY, taken, posted);
	return 0;
}

const struct devx_row devx_rq_rows[] = {
	{ "CREATE_RQ", 0x908, 0, DEVX_CREATE, VB_DEVX_RQ, 272, 16, DEVX_NUMBER, create_rq },
	{ "MODIFY_RQ", 0x909, 0, DEVX_MODIFY, VB_DEVX_RQ, 272, 16, DEVX_NUMBER, modify_rq },
	{ "DESTROY_RQ", 0x90a, 0, DEVX_DESTROY, VB_DEVX_RQ, 16, 16, DEVX_NUMBER, destroy_rq },
	{ "QUERY_RQ", 0x90b, 0, DEVX_QUERY, VB_DEVX_RQ, 16, 272, DEVX_NUMBER, query_rq },
	{ "CREATE_RMP", 0x90c, 0, DEVX_CREATE, VB_DEVX_RMP, 272, 16, DEVX_NUMBER, create_rmp },
	{ "MODIFY_RMP", 0x90d, 0, DEVX_MODIFY, VB_DEVX_RMP, 272, 16, DEVX_NUMBER, modify_rmp },
	{ "DESTROY_RMP", 0x90e, 0, DEVX_DESTROY, VB_DEVX_RMP, 16, 16, DEVX_NUMBER, destroy_rmp },
	{ "QUERY_RMP", 0x90f, 0, DEVX_QUERY, VB_DEVX_RMP, 16, 272, DEVX_NUMBER, query_rmp },
	{ 0 },
};
