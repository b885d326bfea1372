// SPDX-License-Identifier: MIT
/*
 * Queue pairs by command (DEVX), initiators of DC among them: create, destroy, query.
 * devx_queue_qp_state.c has the transitions.
 *
 *	umem:   | receive ring                                  | send ring                     |
 *	          2^log_rq_size WQEs of 16 << log_rq_stride       2^log_sq_size blocks of 64
 *	record: | receive | send |
 */
#include "devx_queue_qp.h"

#include "card/memory/mr.h"
#include "card/queue/cq.h"
#include "card/queue/qp.h"
#include "card/queue/srq.h"

enum { BLOCK_LOG = 6, MAX_LOG_SIZE = 15, CREATE_QPC = DEVX_QPC };

const struct devx_field devx_qp_fields[] = {
	{ 0x0, 4, DEVX_SHOWN, "state" },
	{ 0x4, 4, DEVX_ABSENT, "lag_tx_port_affinity" },
	{ 0x8, 8, DEVX_KEPT, "st" },
	{ 0x12, 1, DEVX_ABSENT, "isolate_vl_tc" },
	{ 0x13, 2, DEVX_KEPT, "pm_state" },
	{ 0x16, 2, DEVX_KEPT, "req_e2e_credit_mode" },
	{ 0x18, 4, DEVX_ABSENT, "offload_type" },
	{ 0x1c, 2, DEVX_KEPT, "end_padding_mode" },
	{ 0x20, 1, DEVX_ABSENT, "wq_signature" },
	{ 0x21, 1, DEVX_KEPT, "block_lb_mc" },
	{ 0x22, 1, DEVX_ABSENT, "atomic_like_write_en" },
	{ 0x23, 1, DEVX_KEPT, "latency_sensitive" },
	{ 0x25, 1, DEVX_KEPT, "drain_sigerr" },
	{ 0x28, 24, DEVX_KEPT, "pd" },
	{ 0x40, 3, DEVX_KEPT, "mtu" },
	{ 0x43, 5, DEVX_KEPT, "log_msg_max" },
	{ 0x49, 4, DEVX_KEPT, "log_rq_size" },
	{ 0x4d, 3, DEVX_KEPT, "log_rq_stride" },
	{ 0x50, 1, DEVX_KEPT, "no_sq" },
	{ 0x51, 4, DEVX_KEPT, "log_sq_size" },
	{ 0x58, 2, DEVX_KEPT, "ts_format" },
	{ 0x5a, 1, DEVX_KEPT, "data_in_order" },
	{ 0x5b, 1, DEVX_ABSENT, "rlky" },
	{ 0x5c, 4, DEVX_KEPT, "ulp_stateless_offload_mode" },
	{ 0x60, 8, DEVX_SHOWN, "counter_set_id" },
	{ 0x68, 24, DEVX_KEPT, "uar_page" },
	{ 0x88, 24, DEVX_KEPT, "user_index" },
	{ 0xa3, 5, DEVX_KEPT, "log_page_size" },
	{ 0x3e8, 24, DEVX_KEPT, "cqn_snd" },
	{ 0x48c, 4, DEVX_KEPT, "atomic_mode" },
	{ 0x494, 6, DEVX_KEPT, "page_offset" },
	{ 0x49d, 1, DEVX_ABSENT, "cd_slave_receive" },
	{ 0x49e, 1, DEVX_ABSENT, "cd_slave_send" },
	{ 0x49f, 1, DEVX_ABSENT, "cd_master" },
	{ 0x4c8, 24, DEVX_ABSENT, "xrcd" },
	{ 0x4e8, 24, DEVX_KEPT, "cqn_rcv" },
	{ 0x500, 32, DEVX_KEPT, "dbr_addr" },
	{ 0x520, 32, DEVX_KEPT, "dbr_addr" },
	{ 0x540, 32, DEVX_KEPT, "q_key" },
	{ 0x565, 3, DEVX_KEPT, "rq_type" },
	{ 0x568, 24, DEVX_KEPT, "srqn_rmpn_xrqn" },
	{ 0x62f, 1, DEVX_ABSENT, "cgs" },
	{ 0x630, 8, DEVX_KEPT, "cs_req" },
	{ 0x638, 8, DEVX_KEPT, "cs_res" },
	{ 0x640, 32, DEVX_ABSENT, "dc_access_key" },
	{ 0x660, 32, DEVX_ABSENT, "dc_access_key" },
	{ 0x683, 1, DEVX_KEPT, "dbr_umem_valid" },
	{ 0x720, 32, DEVX_KEPT, "dbr_umem_id" },
};
const size_t devx_qp_field_count = sizeof(devx_qp_fields) / sizeof(devx_qp_fields[0]);

enum service { RC = 0, UC = 1, UD = 2, DCI = 5, SERVICES };
enum rq_type { REGULAR = 0, SHARED = 1, ZERO_SIZE = 3 };

/* To the card a DCI is a queue pair of RC; 0: not supported. */
static const enum ibv_qp_type types[SERVICES] = {
	[RC] = IBV_QPT_RC, [UC] = IBV_QPT_UC, [UD] = IBV_QPT_UD, [DCI] = IBV_QPT_RC
};

/* --- create ----------------------------------------------------------------------------------- */

static int devx_queue_qp_check(struct devx_cmd *cmd, const uint8_t *qpc)
{
	uint32_t service = get(qpc, 0x8, 8), rq_type = get(qpc, 0x565, 3);
	bool no_sq = get(qpc, 0x50, 1);
	int err = devx_check_fields(cmd, qpc, devx_qp_fields, devx_qp_field_count);

	if (err)
		return err;
	if (service >= SERVICES || !types[service])
		return vb_refuse_unsupported_value("st", service);
	if (no_sq && service == DCI)
		return vb_refuse_combination("a DCI with no_sq");
	if (rq_type != REGULAR && rq_type != SHARED && rq_type != ZERO_SIZE)
		return vb_refuse_value("rq_type", rq_type);
	if (no_sq && rq_type == ZERO_SIZE)
		return vb_refuse_combination("no_sq, and an RQ of no size: there is no queue");
	err = devx_check_ts_format(cmd, get(qpc, 0x58, 2));
	/* Only send queues are rung by store. */
	return err || no_sq ? err : devx_check_uar(cmd, get(qpc, 0x68, 24));
}

/* A DCI receives nothing, whatever the context says. */
static uint32_t rq_type_of(const uint8_t *qpc)
{
	return get(qpc, 0x8, 8) == DCI ? ZERO_SIZE : get(qpc, 0x565, 3);
}

static int devx_queue_qp_place(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *qpc,
			       struct vb_qp_attr *attr)
{
	uint32_t shift = 4 + get(qpc, 0x4d, 3);
	uint64_t recv = 0, send = 0, offset;
	void *ring = NULL;
	int err = 0;

	if (rq_type_of(qpc) == REGULAR)
		recv = 1ull << (get(qpc, 0x49, 4) + shift);
	if (!get(qpc, 0x50, 1))
		send = 1ull << (get(qpc, 0x51, 4) + BLOCK_LOG);
	attr->sq_cnt = send ? 1u << get(qpc, 0x51, 4) : 0;
	attr->rq_cnt = recv ? 1u << get(qpc, 0x49, 4) : 0;
	attr->rq_shift = shift;
	recv = send ? (recv + 63) & ~63ull : recv; /* send WQEs begin at a block */
	offset = devx_ring_offset(get64(cmd->in, 0x800), get(qpc, 0x494, 6), get(qpc, 0xa3, 5));
	if (recv + send)
		err = devx_place(cmd, "the rings", get(cmd->in, 0x840, 32), offset, recv + send, 64,
				 &queue->ring, &ring);
	if (!err)
		err = devx_place_record(cmd, queue, get(qpc, 0x720, 32), get64(qpc, 0x500));
	if (err)
		return err;
	attr->rq_buf = attr->rq_cnt ? ring : NULL;
	attr->sq_buf = attr->sq_cnt ? (char *)ring + recv : NULL;
	attr->dbr = queue->dbr;
	return 0;
}

/* The objects that the context names; a queue that is not there completes nothing. */
static int devx_queue_qp_hold(struct devx_cmd *cmd, const uint8_t *qpc, struct vb_qp_attr *attr)
{
	uint32_t srqn = get(qpc, 0x568, 24), rq_type = rq_type_of(qpc);

	attr->pd = devx_pd(cmd, get(qpc, 0x28, 24));
	if (!attr->pd)
		return -EINVAL;
	if (attr->sq_cnt) {
		attr->send_cq = devx_cq(cmd, "cqn_snd", get(qpc, 0x3e8, 24));
		if (!attr->send_cq)
			return -EINVAL;
	}
	if (rq_type != ZERO_SIZE) {
		attr->recv_cq = devx_cq(cmd, "cqn_rcv", get(qpc, 0x4e8, 24));
		if (!attr->recv_cq)
			return -EINVAL;
	}
	if (rq_type == SHARED) {
		attr->srq = vb_srq_get(cmd->dev, srqn);
		if (!attr->srq)
			return devx_refuse(cmd, DEVX_BAD_RES,
					   vb_refuse_no_object("srqn_rmpn_xrqn", srqn));
	}
	return 0;
}

static void put_held(const struct vb_qp_attr *attr)
{
	if (attr->pd)
		vb_pd_put(attr->pd);
	if (attr->send_cq)
		vb_cq_put(attr->send_cq);
	if (attr->recv_cq)
		vb_cq_put(attr->recv_cq);
	if (attr->srq)
		vb_srq_put(attr->srq);
}

static int devx_queue_qp_make(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *qpc)
{
	struct vb_qp_attr held = {
		.type = types[get(qpc, 0x8, 8)],
		.dc = get(qpc, 0x8, 8) == DCI ? VB_DC_INITIATOR : VB_DC_NONE,
		.uidx = get(qpc, 0x88, 24),
		.real_time = get(qpc, 0x58, 2) == DEVX_REAL_TIME,
		.cookie = queue,
		.event = devx_queue_event,
	};
	struct vb_qp_attr attr;
	int err = devx_queue_qp_place(cmd, queue, qpc, &held);

	if (err)
		return err;
	err = devx_queue_qp_hold(cmd, qpc, &held);
	if (!err) {
		attr = held;
		attr.send_cq = held.send_cq ? held.send_cq : held.recv_cq;
		attr.recv_cq = held.recv_cq ? held.recv_cq : held.send_cq;
		err = vb_qp_create(cmd->dev, &attr, &queue->qp);
		if (err)
			devx_card_refused(cmd, err);
	}
	put_held(&held); /* the card's QP holds them itself */
	return err;
}

static int devx_queue_qp_create_qp(struct devx_cmd *cmd)
{
	const uint8_t *qpc = cmd->in + CREATE_QPC / 8;
	struct devx_queue *queue;
	int err = devx_queue_qp_check(cmd, qpc);

	if (err)
		return err;
	queue = devx_queue_new(cmd);
	if (!queue)
		return -ENOMEM;
	devx_keep_fields(queue->kept, qpc, devx_qp_fields, devx_qp_field_count);
	err = devx_queue_qp_make(cmd, queue, qpc);
	if (err) {
		devx_queue_free(queue);
		return err;
	}
	err = devx_count_in(cmd, queue->qp, get(qpc, 0x60, 8));
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

static int destroy_qp(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	int err = vb_qp_destroy(queue->qp);

	if (!err)
		devx_queue_free(queue);
	return err;
}

/* --- query ------------------------------------------------------------------------------------ */

static int query_qp(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	uint8_t *qpc = cmd->out + DEVX_QPC / 8;

	vb_lock(&queue->lock);
	memcpy(qpc, queue->kept, DEVX_QPC_BYTES);
	vb_unlock(&queue->lock);
	devx_qp_show(queue->qp, qpc);
	return 0;
}

#define MODIFY_ROW(name, opcode)                                                               \
	{                                                                                      \
		name, opcode, 0, DEVX_MODIFY, VB_DEVX_QP, 272, 16, DEVX_NUMBER, devx_qp_modify \
	}
#define END_ROW(name, opcode)                                                                 \
	{                                                                                     \
		name, opcode, 0, DEVX_MODIFY, VB_DEVX_QP, 16, 16, DEVX_NUMBER, devx_qp_modify \
	}

const struct devx_row devx_qp_rows[] = {
	{ "CREATE_QP", 0x500, 0, DEVX_CREATE, VB_DEVX_QP, 272, 16, DEVX_NUMBER,
	  devx_queue_qp_create_qp },
	{ "DESTROY_QP", 0x501, 0, DEVX_DESTROY, VB_DEVX_QP, 16, 16, DEVX_NUMBER, destroy_qp },
	MODIFY_ROW("RST2INIT_QP", 0x502),
	MODIFY_ROW("INIT2RTR_QP", 0x503),
	MODIFY_ROW("RTR2RTS_QP", 0x504),
	MODIFY_ROW("RTS2RTS_QP", 0x505),
	MODIFY_ROW("SQERR2RTS_QP", 0x506),
	END_ROW("2ERR_QP", 0x507),
	END_ROW("RTS2SQD_QP", 0x508),
	END_ROW("2RST_QP", 0x50a),
	{ "QUERY_QP", 0x50b, 0, DEVX_QUERY, VB_DEVX_QP, 16, 272, DEVX_NUMBER, query_qp },
	MODIFY_ROW("SQD_RTS_QP", 0x50c),
	MODIFY_ROW("INIT2INIT_QP", 0x50e),
	{ 0 },
};
