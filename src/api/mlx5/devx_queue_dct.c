// SPDX-License-Identifier: MIT
/*
 * Targets of the DC transport by command (DEVX). Initiators (DCIs) are queue pairs of CREATE_QP.
 *
 * One command makes a target that is ready: to the card it is a queue pair that goes to INIT and RTR
 * at once. It has no rings: what it receives goes to an SRQ or RMP.
 */
#include "devx_queue.h"

#include "card/memory/mr.h"
#include "card/queue/cq.h"
#include "card/queue/qp.h"
#include "card/queue/srq.h"

/* Bits of the commands, bytes of the context. */
enum { DCTC = 0x80, DCTC_BYTES = 64, COMMAND_BYTES = 16 + DCTC_BYTES };

static const struct devx_field fields[] = {
	{ 0x4, 4, DEVX_SHOWN, "state" },
	{ 0x28, 24, DEVX_KEPT, "user_index" },
	{ 0x48, 24, DEVX_KEPT, "cqn" },
	{ 0x60, 8, DEVX_KEPT, "counter_set_id" },
	{ 0x68, 4, DEVX_KEPT, "atomic_mode" },
	{ 0x6c, 1, DEVX_KEPT, "rre" },
	{ 0x6d, 1, DEVX_KEPT, "rwe" },
	{ 0x6e, 1, DEVX_KEPT, "rae" },
	{ 0x6f, 1, DEVX_ABSENT, "atomic_like_write_en" },
	{ 0x70, 1, DEVX_KEPT, "latency_sensitive" },
	{ 0x71, 1, DEVX_ABSENT, "rlky" },
	{ 0x72, 1, DEVX_KEPT, "free_ar" },
	{ 0x88, 8, DEVX_KEPT, "cs_res" },
	{ 0x93, 5, DEVX_KEPT, "min_rnr_nak" },
	{ 0xa8, 24, DEVX_KEPT, "srqn_xrqn" },
	{ 0xc8, 24, DEVX_KEPT, "pd" },
	{ 0xe0, 8, DEVX_KEPT, "tclass" },
	{ 0xec, 20, DEVX_KEPT, "flow_label" },
	{ 0x100, 32, DEVX_KEPT, "dc_access_key" },
	{ 0x120, 32, DEVX_KEPT, "dc_access_key" },
	{ 0x145, 3, DEVX_KEPT, "mtu" },
	{ 0x148, 8, DEVX_KEPT, "port" },
	{ 0x150, 16, DEVX_KEPT, "pkey_index" },
	{ 0x168, 8, DEVX_KEPT, "my_addr_index" },
	{ 0x178, 8, DEVX_KEPT, "hop_limit" },
	{ 0x180, 32, DEVX_SHOWN, "dc_access_key_violation_count" },
	{ 0x1b4, 1, DEVX_KEPT, "dei_cfi" },
	{ 0x1b5, 3, DEVX_KEPT, "eth_prio" },
	{ 0x1b8, 2, DEVX_KEPT, "ecn" },
	{ 0x1ba, 6, DEVX_KEPT, "dscp" },
};

/* --- create ----------------------------------------------------------------------------------- */

static int make_ready(struct devx_cmd *cmd, struct vb_qp *qp, const uint8_t *dctc)
{
	uint8_t port = (uint8_t)(get(dctc, 0x148, 8) ? get(dctc, 0x148, 8) : 1);
	uint32_t mtu = get(dctc, 0x145, 3), tclass = get(dctc, 0xe0, 8);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = (uint16_t)get(dctc, 0x150, 16),
		.port_num = port,
		.qp_access_flags = (get(dctc, 0x6c, 1) ? IBV_ACCESS_REMOTE_READ : 0u) |
				   (get(dctc, 0x6d, 1) ? IBV_ACCESS_REMOTE_WRITE : 0u) |
				   (get(dctc, 0x6e, 1) ? IBV_ACCESS_REMOTE_ATOMIC : 0u),
	};
	int err = vb_qp_modify(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)mtu,
		.min_rnr_timer = (uint8_t)get(dctc, 0x93, 5),
		.ah_attr = {
			.is_global = 1,
			.port_num = port,
			.grh = { .sgid_index = (uint8_t)get(dctc, 0x168, 8),
				 .hop_limit = (uint8_t)get(dctc, 0x178, 8),
				 .flow_label = get(dctc, 0xec, 20),
				 .traffic_class =
					 (uint8_t)(tclass ? tclass : get(dctc, 0x1ba, 6) << 2) },
		},
	};
	if (!err)
		err = vb_qp_modify(qp, &attr,
				   IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV |
					   IBV_QP_MIN_RNR_TIMER);
	return err ? devx_card_refused(cmd, err) : devx_count_in(cmd, qp, get(dctc, 0x60, 8));
}

/* The objects that the context names, into attr. */
static int devx_queue_dct_hold(struct devx_cmd *cmd, const uint8_t *dctc, struct vb_qp_attr *attr)
{
	uint32_t srqn = get(dctc, 0xa8, 24);

	attr->pd = devx_pd(cmd, get(dctc, 0xc8, 24));
	attr->recv_cq = attr->pd ? devx_cq(cmd, "cqn", get(dctc, 0x48, 24)) : NULL;
	if (!attr->recv_cq)
		return -EINVAL;
	attr->send_cq = attr->recv_cq; /* it sends nothing */
	attr->srq = vb_srq_get(cmd->dev, srqn);
	return attr->srq ? 0
			 : devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("srqn_xrqn", srqn));
}

static int devx_queue_dct_make(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *dctc)
{
	struct vb_qp_attr attr = {
		.type = IBV_QPT_RC,
		.dc = VB_DC_TARGET,
		.dc_key = get64(dctc, 0x100),
		.uidx = get(dctc, 0x28, 24),
		.dbr = queue->no_record,
		.cookie = queue,
		.event = devx_queue_event,
	};
	int err = devx_queue_dct_hold(cmd, dctc, &attr);

	if (!err) {
		err = vb_qp_create(cmd->dev, &attr, &queue->qp);
		if (err)
			devx_card_refused(cmd, err);
	}
	if (attr.srq)
		vb_srq_put(attr.srq);
	if (attr.recv_cq)
		vb_cq_put(attr.recv_cq);
	if (attr.pd)
		vb_pd_put(attr.pd);
	if (err)
		return err;
	err = make_ready(cmd, queue->qp, dctc);
	if (err)
		vb_qp_destroy(queue->qp);
	return err;
}

static int create_dct(struct devx_cmd *cmd)
{
	const uint8_t *dctc = cmd->in + DCTC / 8;
	struct devx_queue *queue;
	int err = devx_check_fields(cmd, dctc, DEVX_FIELDS(fields));

	if (err)
		return err;
	queue = devx_queue_new(cmd);
	if (!queue)
		return -ENOMEM;
	devx_keep_fields(queue->kept, dctc, DEVX_FIELDS(fields));
	err = devx_queue_dct_make(cmd, queue, dctc);
	if (err) {
		devx_queue_free(queue);
		return err;
	}
	cmd->obj->number = vb_qp_number(queue->qp);
	cmd->obj->data = queue;
	return 0;
}

static int destroy_dct(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	int err = vb_qp_destroy(queue->qp);

	if (!err)
		devx_queue_free(queue);
	return err;
}

/* It is active, state 0, all its life. */
static int query_dct(struct devx_cmd *cmd)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);

	memcpy(cmd->out + DCTC / 8, queue->kept, DCTC_BYTES);
	return 0;
}

const struct devx_row devx_dct_rows[] = {
	{ "CREATE_DCT", 0x710, 0, DEVX_CREATE, VB_DEVX_DCT, COMMAND_BYTES, 16, DEVX_NUMBER,
	  create_dct },
	{ "DESTROY_DCT", 0x711, 0, DEVX_DESTROY, VB_DEVX_DCT, 16, 16, DEVX_NUMBER, destroy_dct },
	{ "QUERY_DCT", 0x713, 0, DEVX_QUERY, VB_DEVX_DCT, 16, COMMAND_BYTES, DEVX_NUMBER,
	  query_dct },
	{ 0 },
};
