// SPDX-License-Identifier: MIT
/*
 * Send queues of raw frames by command (DEVX), and TISes, which say whose frames they are.
 *
 *	SQ --tis_num_0--> TIS --> transport domain: TIRs of the same one do not take the frames
 *	 `--cqn--> CQ
 */
#include "devx_queue.h"

#include "card/memory/mr.h"
#include "card/queue/cq.h"
#include "card/queue/qp.h"
#include "card/transport/pace.h"

enum { BLOCK_LOG = 6 };

/* --- transport interface send ----------------------------------------------------------------- */

static const struct devx_field tis_fields[] = {
	{ 0x0, 1, DEVX_ABSENT, "strict_lag_tx_port_affinity" },
	{ 0x1, 1, DEVX_ABSENT, "tls_en" },
	{ 0x4, 4, DEVX_ABSENT, "lag_tx_port_affinity" },
	{ 0xc, 4, DEVX_KEPT, "prio" },
	{ 0x128, 24, DEVX_KEPT, "transport_domain" },
	{ 0x148, 24, DEVX_ABSENT, "underlay_qpn" },
	{ 0x168, 24, DEVX_KEPT, "pd" },
};

static int create_tis(struct devx_cmd *cmd)
{
	static _Atomic uint32_t next;
	const uint8_t *tisc = cmd->in + DEVX_CONTEXT / 8;
	uint32_t domain = get(tisc, 0x128, 24);
	int err = devx_check_fields(cmd, tisc, DEVX_FIELDS(tis_fields));
	struct devx_tis *tis;

	if (err)
		return err;
	tis = calloc(1, sizeof(*tis));
	if (!tis)
		return vb_refuse_memory("the TIS");
	err = devx_get_domain(cmd, domain, &tis->domain);
	if (err) {
		free(tis);
		return err;
	}
	tis->number = domain;
	devx_keep_fields(tis->kept, tisc, DEVX_FIELDS(tis_fields));
	cmd->obj->data = tis;
	cmd->obj->number = devx_new_number(cmd, &next);
	return 0;
}

static int destroy_tis(struct devx_cmd *cmd)
{
	struct devx_tis *tis = cmd->obj->data;

	if (tis->domain)
		devx_put(tis->domain);
	free(tis);
	return 0;
}

/* The priority is not in a frame without a tag, and one with a tag has its own. */
static int modify_tis(struct devx_cmd *cmd)
{
	enum { PRIO = 1 << 0 };
	const uint8_t *tisc = cmd->in + DEVX_CONTEXT / 8;
	uint64_t bits = get64(cmd->in, DEVX_BITMASK);
	struct devx_tis *tis = cmd->obj->data;

	if (bits & ~(uint64_t)PRIO)
		return vb_refuse_unsupported_value("bitmask", bits & ~(uint64_t)PRIO);
	if (bits) {
		vb_lock(&tis->lock);
		put(tis->kept, 0xc, 4, get(tisc, 0xc, 4));
		vb_unlock(&tis->lock);
	}
	return 0;
}

static int devx_queue_sq_query_tis(struct devx_cmd *cmd)
{
	enum { ANSWER = 0x80 };
	struct devx_tis *tis = cmd->obj->data;

	vb_lock(&tis->lock);
	memcpy(cmd->out + ANSWER / 8, tis->kept, sizeof(tis->kept));
	vb_unlock(&tis->lock);
	return 0;
}

/* --- send queues ------------------------------------------------------------------------------ */

static const struct devx_field fields[] = {
	{ 0x0, 1, DEVX_ABSENT, "rlky" },
	{ 0x1, 1, DEVX_ABSENT, "cd_master" },
	{ 0x2, 1, DEVX_KEPT, "fre" },
	{ 0x3, 1, DEVX_KEPT, "flush_in_error_en" },
	{ 0x4, 1, DEVX_KEPT, "allow_multi_pkt_send_wqe" },
	{ 0x5, 3, DEVX_KEPT, "min_wqe_inline_mode" },
	{ 0x8, 4, DEVX_SHOWN, "state" },
	{ 0xc, 1, DEVX_KEPT, "reg_umr" },
	{ 0xd, 1, DEVX_KEPT, "allow_swp" },
	{ 0xe, 1, DEVX_ABSENT, "hairpin" },
	{ 0xf, 1, DEVX_ABSENT, "non_wire" },
	{ 0x1a, 2, DEVX_KEPT, "ts_format" },
	{ 0x28, 24, DEVX_KEPT, "user_index" },
	{ 0x48, 24, DEVX_KEPT, "cqn" },
	{ 0xf0, 16, DEVX_KEPT, "packet_pacing_rate_limit_index" },
	{ 0x100, 16, DEVX_KEPT, "tis_lst_sz" },
	{ 0x110, 16, DEVX_ABSENT, "qos_queue_group_id" },
	{ 0x168, 24, DEVX_KEPT, "tis_num_0" },
};

static int devx_queue_sq_check(struct devx_cmd *cmd, const uint8_t *sqc)
{
	uint32_t stride = get(sqc, DEVX_WQ + 0x10c, 4);
	int err = devx_check_wq(cmd, sqc, DEVX_FIELDS(fields));

	if (!err)
		err = devx_check_not_striding(cmd, sqc + DEVX_WQ / 8);
	if (err)
		return err;
	if (get(sqc, 0x8, 4) != DEVX_RST)
		return vb_refuse_value("state", get(sqc, 0x8, 4));
	if (get(sqc, 0x100, 16) > 1)
		return vb_refuse_range("tis_lst_sz", get(sqc, 0x100, 16), 0, 1);
	if (stride != BLOCK_LOG)
		return vb_refuse_range("log_wq_stride", stride, BLOCK_LOG, BLOCK_LOG);
	err = devx_check_ts_format(cmd, get(sqc, 0x1a, 2));
	return err ? err : devx_check_uar(cmd, get(sqc, DEVX_WQ + 0x68, 24));
}

static int devx_queue_sq_hold_tis(struct devx_cmd *cmd, struct devx_queue *queue,
				  const uint8_t *sqc, uint32_t *domain)
{
	uint32_t number = get(sqc, 0x168, 24);

	*domain = 0;
	if (!get(sqc, 0x100, 16))
		return 0;
	queue->tis = devx_get(cmd->context, VB_DEVX_TIS, number);
	if (!queue->tis)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("tis_num_0", number));
	*domain = ((struct devx_tis *)queue->tis->data)->number;
	return 0;
}

/* A rate of mlx5dv_pp_alloc(), as it is now; 0: none. */
struct rate {
	uint32_t kbps, burst;
};

static int devx_queue_sq_find_rate(struct devx_cmd *cmd, uint32_t index, struct rate *rate)
{
	if (!vb_pace_find(cmd->dev, (uint16_t)index, &rate->kbps, &rate->burst))
		return 0;
	return devx_refuse(cmd, DEVX_BAD_RES,
			   vb_refuse_no_object("packet_pacing_rate_limit_index", index));
}

static int devx_queue_sq_make(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *sqc)
{
	const uint8_t *wq = sqc + DEVX_WQ / 8;
	struct vb_qp_attr attr = {
		.type = IBV_QPT_RAW_PACKET,
		.sq_cnt = 1u << get(wq, 0x11b, 5),
		.uidx = get(sqc, 0x28, 24),
		.single_frames = !get(sqc, 0x4, 1),
		.frames_umr = get(sqc, 0xc, 1),
		.real_time = get(sqc, 0x1a, 2) == DEVX_REAL_TIME,
		.keeps_posted = !get(sqc, 0x3, 1),
		.cookie = queue,
		.event = devx_queue_event,
	};
	struct rate rate;
	int err = devx_queue_sq_find_rate(cmd, get(sqc, 0xf0, 16), &rate);

	if (!err)
		err = devx_wq_place(cmd, queue, wq, BLOCK_LOG, &attr.sq_buf);
	if (!err)
		err = devx_queue_sq_hold_tis(cmd, queue, sqc, &attr.transport_domain);
	if (err)
		return err;
	attr.dbr = queue->dbr;
	attr.pd = devx_pd(cmd, get(wq, 0x48, 24));
	attr.send_cq = attr.pd ? devx_cq(cmd, "cqn", get(sqc, 0x48, 24)) : NULL;
	attr.recv_cq = attr.send_cq;
	err = -EINVAL;
	if (attr.send_cq) {
		err = vb_qp_create(cmd->dev, &attr, &queue->qp);
		if (err)
			devx_card_refused(cmd, err);
		else if (rate.kbps)
			vb_qp_set_rate(queue->qp, rate.kbps, rate.burst);
		vb_cq_put(attr.send_cq);
	}
	if (attr.pd)
		vb_pd_put(attr.pd);
	return err;
}

static int create_sq(struct devx_cmd *cmd)
{
	const uint8_t *sqc = cmd->in + DEVX_CONTEXT / 8;
	struct devx_queue *queue;
	int err = devx_queue_sq_check(cmd, sqc);

	if (err)
		return err;
	queue = devx_queue_new(cmd);
	if (!queue)
		return -ENOMEM;
	devx_keep_wq(queue, sqc, DEVX_FIELDS(fields));
	err = devx_queue_sq_make(cmd, queue, sqc);
	if (err) {
		devx_queue_free(queue);
		return err;
	}
	cmd->obj->number = vb_qp_number(queue->qp);
	cmd->obj->data = queue;
	return 0;
}

static int destroy_sq(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	int err = vb_qp_destroy(queue->qp);

	if (!err)
		devx_queue_free(queue);
	return err;
}

static int devx_queue_sq_set_state(struct vb_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };

	return vb_qp_modify(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0));
}

static int devx_queue_sq_start(struct vb_qp *qp)
{
	int err = devx_queue_sq_set_state(qp, IBV_QPS_INIT);

	if (!err)
		err = devx_queue_sq_set_state(qp, IBV_QPS_RTR);
	if (!err)
		err = devx_queue_sq_set_state(qp, IBV_QPS_RTS);
	if (err)
		devx_queue_sq_set_state(qp, IBV_QPS_RESET);
	return err;
}

static int modify_sq(struct devx_cmd *cmd)
{
	enum { RATE = 1 << 0 };
	uint32_t index = get(cmd->in, DEVX_CONTEXT + 0xf0, 16);
	struct rate rate;
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	enum devx_wq_state is = devx_wq_state_of(queue), to;
	uint64_t bits = get64(cmd->in, DEVX_BITMASK);
	int err;

	if (bits & ~(uint64_t)RATE)
		return vb_refuse_unsupported_value("modify_bitmask", bits & ~(uint64_t)RATE);
	err = bits ? devx_queue_sq_find_rate(cmd, index, &rate) : 0;
	if (!err)
		err = devx_read_states(cmd, is, &to);
	if (err)
		return err;
	if (to != is || to == DEVX_RST)
		err = to == DEVX_RDY   ? devx_queue_sq_start(queue->qp)
		      : to == DEVX_ERR ? devx_queue_sq_set_state(queue->qp, IBV_QPS_ERR)
				       : devx_queue_sq_set_state(queue->qp, IBV_QPS_RESET);
	if (err)
		return devx_refuse(cmd, DEVX_BAD_RES_STATE, err);
	if (bits) {
		vb_qp_set_rate(queue->qp, rate.kbps, rate.burst);
		vb_lock(&queue->lock);
		put(queue->kept, 0xf0, 16, index);
		vb_unlock(&queue->lock);
	}
	return 0;
}

static int query_sq(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	struct vb_qp_counters counters;

	vb_qp_counters(queue->qp, &counters);
	devx_show_wq(cmd, devx_wq_state_of(queue), counters.sent, counters.rung);
	return 0;
}

const struct devx_row devx_sq_rows[] = {
	{ "CREATE_SQ", 0x904, 0, DEVX_CREATE, VB_DEVX_SQ, 272, 16, DEVX_NUMBER, create_sq },
	{ "MODIFY_SQ", 0x905, 0, DEVX_MODIFY, VB_DEVX_SQ, 272, 16, DEVX_NUMBER, modify_sq },
	{ "DESTROY_SQ", 0x906, 0, DEVX_DESTROY, VB_DEVX_SQ, 16, 16, DEVX_NUMBER, destroy_sq },
	{ "QUERY_SQ", 0x907, 0, DEVX_QUERY, VB_DEVX_SQ, 16, 272, DEVX_NUMBER, query_sq },
	{ "CREATE_TIS", 0x912, 0, DEVX_CREATE, VB_DEVX_TIS, 192, 16, DEVX_NUMBER, create_tis },
	{ "MODIFY_TIS", 0x913, 0, DEVX_MODIFY, VB_DEVX_TIS, 192, 16, DEVX_NUMBER, modify_tis },
	{ "DESTROY_TIS", 0x914, 0, DEVX_DESTROY, VB_DEVX_TIS, 16, 16, DEVX_NUMBER, destroy_tis },
	{ "QUERY_TIS", 0x915, 0, DEVX_QUERY, VB_DEVX_TIS, 16, 176, DEVX_NUMBER,
	  devx_queue_sq_query_tis },
	{ 0 },
};
