// SPDX-License-Identifier: MIT
/*
 * Owns queue pairs: RC, UC and UD queues of the card over device memory (or a umem).
 *
 *	buffer: | receive ring                   | send ring                        |
 *	          2^log_rq_depth WQEs of 16 bytes  2^log_sq_depth blocks of 64 bytes
 *	record: | receive | send |
 *
 * Two attributes of verbs have no counterpart in FlexIO: timeout is ACK_TIMEOUT, and rnr_retry is
 * the same as retry_cnt.
 */
#include "queue.h"

#include "card/queue/cq.h"
#include "card/queue/qp.h"

enum { MAX_LOG_DEPTH = 15, RECV_SHIFT = 4, ACK_TIMEOUT = 14, MAX_LOG_RD = 4 };

struct flexio_qp {
	struct queue queue; /* first */
	struct vb_qp *card;
	struct flexio_rmp *rmp; /* or NULL */
	enum ibv_qp_type type;
	int access; /* as given at creation */
};

static const enum ibv_qp_type transports[] = {
	[FLEXIO_QPC_ST_RC] = IBV_QPT_RC,
	[FLEXIO_QPC_ST_UC] = IBV_QPT_UC,
	[FLEXIO_QPC_ST_UD] = IBV_QPT_UD,
};

static const int known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static void flexio_qp_event(void *cookie, enum ibv_event_type type)
{
	struct flexio_qp *qp = cookie;

	vb_queue_log_event("QP", vb_qp_number(qp->card), type);
}

/* ---- create ---- */

static bool has_ring(const struct flexio_qp_attr *attr)
{
	return attr->rq_type == FLEXIO_QP_QPC_RQ_TYPE_REGULAR;
}

/* The vendor's other transports, as the header names them. */
static const char *transport_name(unsigned int type)
{
	static const char *const names[] = {
		[FLEXIO_QPC_ST_XRC] = "XRC",         [FLEXIO_QPC_ST_IBL2] = "IBL2",
		[FLEXIO_QPC_ST_DCI] = "DCI",         [FLEXIO_QPC_ST_QP0] = "QP0",
		[FLEXIO_QPC_ST_QP1] = "QP1",         [FLEXIO_QPC_ST_RAW_DATAGRAM] = "RAW_DATAGRAM",
		[FLEXIO_QPC_ST_REG_UMR] = "REG_UMR", [FLEXIO_QPC_ST_DC_CNAK] = "DC_CNAK",
	};

	return type < ARRAY_SIZE(names) ? names[type] : NULL;
}

static flexio_status check_transport(unsigned int type)
{
	if (type < ARRAY_SIZE(transports))
		return FLEXIO_STATUS_SUCCESS;
	if (transport_name(type))
		return fail("transport_type %s is not supported; allowed: RC, UC and UD",
			    transport_name(type));
	return fail("%u is not a transport_type; allowed: RC, UC and UD", type);
}

static flexio_status flexio_qp_check(const struct flexio_qp_attr *attr)
{
	if (check_transport(attr->transport_type) != FLEXIO_STATUS_SUCCESS)
		return failed();
	if (!attr->no_sq && (attr->log_sq_depth < 0 || attr->log_sq_depth > MAX_LOG_DEPTH))
		return fail("log_sq_depth is %d; allowed: 0 to %d", attr->log_sq_depth,
			    MAX_LOG_DEPTH);
	switch (attr->rq_type) {
	case FLEXIO_QP_QPC_RQ_TYPE_REGULAR:
		if (attr->log_rq_depth < 0 || attr->log_rq_depth > MAX_LOG_DEPTH)
			return fail("log_rq_depth is %d; allowed: 0 to %d", attr->log_rq_depth,
				    MAX_LOG_DEPTH);
		break;
	case FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ:
		break;
	case FLEXIO_QP_QPC_RQ_TYPE_ZERO_SIZE_RQ:
		if (attr->no_sq)
			return fail(
				"no_sq and a rq_type of ZERO_SIZE_RQ: neither a send nor a receive queue");
		break;
	default:
		return fail("%d is not a rq_type; allowed: 0, 1 and 3", attr->rq_type);
	}
	if (attr->user_index > 0xffffff)
		return fail("user_index 0x%x has more than 24 bits", attr->user_index);
	if (attr->qp_access_mask & ~known_access)
		return fail("qp_access_mask is 0x%x; allowed: bits of 0x%x",
			    (unsigned int)attr->qp_access_mask, (unsigned int)known_access);
	return FLEXIO_STATUS_SUCCESS;
}

static int flexio_qp_get_memory(struct flexio_qp *qp, const struct queue_place *place,
				const struct flexio_qp_attr *attr, struct vb_qp_attr *card)
{
	struct queue *queue = &qp->queue;
	uint64_t recv = has_ring(attr) ? 1ull << (attr->log_rq_depth + RECV_SHIFT) : 0;
	uint64_t send = attr->no_sq ? 0 : 64ull << attr->log_sq_depth;
	int err = 0;

	if (recv + send)
		err = vb_qmem_get(queue->process, place->dev, &attr->qp_wq_buff_qmem, recv + send,
				  "the QP's buffer", &queue->ring);
	if (!err)
		err = vb_qmem_get(queue->process, place->dev, &attr->qp_wq_dbr_qmem, 8,
				  "the QP's doorbell record", &queue->dbr);
	if (err)
		return err;
	if (recv) {
		card->rq_buf = queue->ring.addr;
		card->rq_cnt = 1u << attr->log_rq_depth;
		card->rq_shift = RECV_SHIFT;
	}
	if (send) {
		card->sq_buf = (char *)queue->ring.addr + recv;
		card->sq_cnt = 1u << attr->log_sq_depth;
	}
	card->dbr = queue->dbr.addr;
	return 0;
}

/*
 * Finds the CQs by number. A queue that does not exist gets the CQ of the other one and never
 * completes anything there.
 */
static int hold_cqs(const struct queue_place *place, const struct flexio_qp_attr *attr,
		    struct vb_qp_attr *card)
{
	bool shared = attr->rq_type == FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ;
	bool recv = has_ring(attr) || (shared && (attr->rq_cqn || attr->no_sq));

	if (!attr->no_sq) {
		card->send_cq = vb_cq_get(place->dev, attr->sq_cqn);
		if (!card->send_cq) {
			fail("sq_cqn: CQ 0x%x does not exist on %s", attr->sq_cqn,
			     place->adapter->config->name);
			return -EINVAL;
		}
	}
	if (recv) {
		card->recv_cq = vb_cq_get(place->dev, attr->rq_cqn);
		if (!card->recv_cq) {
			fail("rq_cqn: CQ 0x%x does not exist on %s", attr->rq_cqn,
			     place->adapter->config->name);
			return -EINVAL;
		}
	}
	return 0;
}

static void put_cqs(const struct vb_qp_attr *card)
{
	if (card->send_cq)
		vb_cq_put(card->send_cq);
	if (card->recv_cq)
		vb_cq_put(card->recv_cq);
}

static int hold_rmp(struct flexio_qp *qp, const struct queue_place *place,
		    const struct flexio_qp_attr *attr, struct vb_qp_attr *card)
{
	if (attr->rq_type != FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ)
		return 0;
	qp->rmp = vb_rmp_hold(qp->queue.process, place, attr->rmpqn);
	if (!qp->rmp) {
		fail("rmpqn: process %s has no RMP 0x%x on %s", qp->queue.process->name,
		     attr->rmpqn, place->adapter->config->name);
		return -EINVAL;
	}
	card->srq = vb_rmp_card(qp->rmp);
	return 0;
}

static int flexio_qp_make_card(struct flexio_qp *qp, const struct queue_place *place,
			       const struct flexio_qp_attr *attr)
{
	struct vb_qp_attr card = {
		.type = qp->type,
		.cookie = qp,
		.event = flexio_qp_event,
		.uidx = attr->user_index,
		.owner = vb_flexio_uar_owner(qp->queue.process, place->adapter),
	};
	struct vb_qp_attr full;
	int err;

	CARD_WORDS(words);
	card.pd = vb_queue_pd(qp->queue.process, place, attr->pd);
	if (!card.pd)
		return -EINVAL;
	err = flexio_qp_get_memory(qp, place, attr, &card);
	if (!err)
		err = hold_rmp(qp, place, attr, &card);
	if (!err)
		err = hold_cqs(place, attr, &card);
	if (!err) {
		full = card;
		full.send_cq = card.send_cq ? card.send_cq : card.recv_cq;
		full.recv_cq = card.recv_cq ? card.recv_cq : card.send_cq;
		err = vb_qp_create(place->dev, &full, &qp->card);
		if (err)
			vb_queue_refused("QP", place, &words, err);
	}
	put_cqs(&card); /* the card's QP holds them itself */
	return err;
}

static void flexio_qp_free(struct flexio_qp *qp)
{
	if (qp->rmp)
		vb_rmp_release(qp->rmp);
	vb_queue_free(&qp->queue);
}

flexio_status flexio_qp_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       struct flexio_qp_attr *qp_fattr, struct flexio_qp **qp_ptr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct queue_place place;
	struct flexio_qp *qp;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!qp_fattr || !qp_ptr)
		return fail("%s is NULL", !qp_fattr ? "qp_fattr" : "qp_ptr");
	if (flexio_qp_check(qp_fattr) || vb_queue_place(process, ibv_ctx, &place))
		return failed();
	qp = vb_queue_new(QUEUE_QP, process, place.ctx, sizeof(*qp));
	if (!qp)
		return failed();
	qp->type = transports[qp_fattr->transport_type];
	qp->access = qp_fattr->qp_access_mask;
	qp->queue.uar = vb_flexio_uar_hold(process, qp_fattr->uar_id, place.adapter);
	if (!qp->queue.uar || flexio_qp_make_card(qp, &place, qp_fattr))
		goto free_qp;
	if (!vb_queue_publish(&qp->queue))
		goto destroy_card;
	*qp_ptr = qp;
	return FLEXIO_STATUS_SUCCESS;

destroy_card:
	vb_qp_destroy(qp->card);
free_qp:
	flexio_qp_free(qp);
	return failed();
}

flexio_status flexio_qp_destroy(struct flexio_qp *qp)
{
	API_CALL();
	if (!qp)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_QP, qp))
		return bad_handle(qp, "QP");
	/* Device code may ring until this returns, and then its number means nothing any more. */
	vb_qp_destroy(qp->card);
	flexio_qp_free(qp);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- modify ---- */

static void set_init(struct flexio_qp *qp, const struct flexio_qp_attr *from,
		     struct ibv_qp_attr *to, int *mask)
{
	*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	to->port_num = from->vhca_port_num ? from->vhca_port_num : 1;
	if (qp->type == IBV_QPT_UD) {
		to->qkey = from->q_key;
		*mask |= IBV_QP_QKEY;
		return;
	}
	to->qp_access_flags =
		(unsigned int)(from->qp_access_mask ? from->qp_access_mask : qp->access);
	*mask |= IBV_QP_ACCESS_FLAGS;
}

static void set_rtr(struct flexio_qp *qp, const struct flexio_qp_attr *from, struct ibv_qp_attr *to,
		    int *mask)
{
	const struct vb_adapter *adapter = qp->queue.uar->adapter;

	if (qp->type == IBV_QPT_UD)
		return;
	to->path_mtu = (enum ibv_mtu)from->path_mtu;
	to->dest_qp_num = from->remote_qp_num;
	to->rq_psn = from->next_rcv_psn;
	to->ah_attr.is_global = 1;
	to->ah_attr.port_num = from->vhca_port_num ? from->vhca_port_num : 1;
	to->ah_attr.grh.sgid_index = from->gid_table_index;
	to->ah_attr.grh.dgid = from->rgid_or_rip;
	/*
	 * Forced loopback: what is sent comes back to this adapter, wherever it was addressed to.
	 */
	if (from->fl && from->gid_table_index < adapter->num_gids)
		to->ah_attr.grh.dgid = adapter->gids[from->gid_table_index].gid;
	*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->type != IBV_QPT_RC)
		return;
	to->max_dest_rd_atomic = (uint8_t)(1u << from->log_rra_max);
	to->min_rnr_timer = (uint8_t)from->min_rnr_nak_timer;
	*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static void set_rts(struct flexio_qp *qp, const struct flexio_qp_attr *from, struct ibv_qp_attr *to,
		    int *mask)
{
	to->sq_psn = from->next_send_psn;
	*mask |= IBV_QP_SQ_PSN;
	if (qp->type != IBV_QPT_RC)
		return;
	to->timeout = ACK_TIMEOUT;
	to->retry_cnt = to->rnr_retry = from->retry_count;
	to->max_rd_atomic = (uint8_t)(1u << from->log_sra_max);
	*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

/* Optional attributes of a transition. */
static void set_optional(struct flexio_qp *qp, const struct flexio_qp_attr *from,
			 const struct flexio_qp_attr_opt_param_mask *named, struct ibv_qp_attr *to,
			 int *mask)
{
	if (!named)
		return;
	if (named->qp_access_mask && qp->type != IBV_QPT_UD) {
		to->qp_access_flags = (unsigned int)from->qp_access_mask;
		*mask |= IBV_QP_ACCESS_FLAGS;
	}
	if (named->min_rnr_nak_timer && qp->type == IBV_QPT_RC) {
		to->min_rnr_timer = (uint8_t)from->min_rnr_nak_timer;
		*mask |= IBV_QP_MIN_RNR_TIMER;
	}
}

/* A connection needs an address: that of the peer, or this adapter's own by forced loopback. */
static flexio_status check_address(struct flexio_qp *qp, const struct flexio_qp_attr *attr)
{
	static const union ibv_gid none;
	const char *name = qp->queue.uar->adapter->config->name;
	uint32_t number = vb_qp_number(qp->card);

	if (attr->next_state != FLEXIO_QP_STATE_RTR || qp->type == IBV_QPT_UD || attr->fl ||
	    memcmp(&attr->rgid_or_rip, &none, sizeof(none)))
		return FLEXIO_STATUS_SUCCESS;
	if (attr->rlid)
		return fail(
			"QP 0x%x: rlid is %u and rgid_or_rip 0; %s is RoCE, where a GID is the address",
			number, attr->rlid, name);
	return fail("QP 0x%x: rgid_or_rip is 0; %s is RoCE, where a GID is the address", number,
		    name);
}

static flexio_status flexio_qp_check_modify(struct flexio_qp *qp, const struct flexio_qp_attr *attr)
{
	uint32_t number = vb_qp_number(qp->card);

	switch (attr->next_state) {
	case FLEXIO_QP_STATE_RST:
	case FLEXIO_QP_STATE_INIT:
	case FLEXIO_QP_STATE_RTR:
	case FLEXIO_QP_STATE_RTS:
	case FLEXIO_QP_STATE_ERR:
		break;
	default:
		return fail("QP 0x%x: next_state %u is not a state", number,
			    (unsigned int)attr->next_state);
	}
	if (check_address(qp, attr) != FLEXIO_STATUS_SUCCESS)
		return failed();
	if (attr->qp_access_mask & ~known_access)
		return fail("QP 0x%x: qp_access_mask is 0x%x; allowed: bits of 0x%x", number,
			    (unsigned int)attr->qp_access_mask, (unsigned int)known_access);
	if (attr->log_rra_max > MAX_LOG_RD || attr->log_sra_max > MAX_LOG_RD)
		return fail("QP 0x%x: log_rra_max is %u, log_sra_max %u; allowed: up to %d", number,
			    attr->log_rra_max, attr->log_sra_max, MAX_LOG_RD);
	if (attr->min_rnr_nak_timer > 31 || attr->retry_count > 7)
		return fail(
			"QP 0x%x: min_rnr_nak_timer is %u, retry_count %u; allowed: up to 31 and 7",
			number, attr->min_rnr_nak_timer, attr->retry_count);
	return FLEXIO_STATUS_SUCCESS;
}

static const enum ibv_qp_state states[] = {
	[FLEXIO_QP_STATE_RST] = IBV_QPS_RESET, [FLEXIO_QP_STATE_INIT] = IBV_QPS_INIT,
	[FLEXIO_QP_STATE_RTR] = IBV_QPS_RTR,   [FLEXIO_QP_STATE_RTS] = IBV_QPS_RTS,
	[FLEXIO_QP_STATE_ERR] = IBV_QPS_ERR,
};

static const char *flexio_qp_state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {
		[IBV_QPS_RESET] = "RST", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR",
		[IBV_QPS_RTS] = "RTS",   [IBV_QPS_SQD] = "SQD",   [IBV_QPS_SQE] = "SQER",
		[IBV_QPS_ERR] = "ERR",
	};

	return (unsigned int)state < ARRAY_SIZE(names) ? names[state] : "?";
}

static bool has_way(enum ibv_qp_state from, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RESET:
		return true;
	case IBV_QPS_ERR:
		return from != IBV_QPS_RESET;
	case IBV_QPS_INIT:
		return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
	case IBV_QPS_RTR:
		return from == IBV_QPS_INIT;
	default:
		return from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQE;
	}
}

/* The card refused the transition: find the attribute at fault and log it under its FlexIO name. */
static flexio_status fail_modify(struct flexio_qp *qp, enum ibv_qp_state from,
				 const struct flexio_qp_attr *attr, const char *reason)
{
	const struct vb_adapter *adapter = qp->queue.uar->adapter;
	const char *device = adapter->config->name;
	enum ibv_qp_state to = states[attr->next_state];
	uint32_t number = vb_qp_number(qp->card);
	unsigned int mtu = 128u << (attr->path_mtu & 7);

	if (!has_way(from, to))
		return fail("QP 0x%x: there is no way from %s to %s", number,
			    flexio_qp_state_name(from), flexio_qp_state_name(to));
	if (attr->vhca_port_num > adapter->config->ports)
		return fail("QP 0x%x: vhca_port_num is %u; %s has ports 1 to %u", number,
			    attr->vhca_port_num, device, adapter->config->ports);
	if (to == IBV_QPS_RTR && attr->gid_table_index >= adapter->num_gids)
		return fail("QP 0x%x: gid_table_index is %u; %s has GIDs 0 to %u", number,
			    attr->gid_table_index, device, adapter->num_gids - 1);
	if (to == IBV_QPS_RTR &&
	    (!attr->path_mtu || attr->path_mtu > 5 || mtu > adapter->config->mtu))
		return fail(
			"QP 0x%x: path_mtu is %u; allowed: 1 (256 bytes) to 5 (4096), and to another host on %s up to %u bytes (mtu of the configuration)",
			number, (unsigned int)attr->path_mtu, device, adapter->config->mtu);
	if ((attr->remote_qp_num | attr->next_rcv_psn | attr->next_send_psn) > 0xffffff)
		return fail(
			"QP 0x%x: remote_qp_num is 0x%x, next_rcv_psn 0x%x, next_send_psn 0x%x; they have 24 bits",
			number, attr->remote_qp_num, attr->next_rcv_psn, attr->next_send_psn);
	return fail("QP 0x%x cannot go from %s to %s: %s", number, flexio_qp_state_name(from),
		    flexio_qp_state_name(to), reason);
}

flexio_status flexio_qp_modify(struct flexio_qp *qp, struct flexio_qp_attr *fattr,
			       struct flexio_qp_attr_opt_param_mask *mask)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_QP, qp);
	struct ibv_qp_attr attr = { 0 };
	enum ibv_qp_state from;
	int bits = IBV_QP_STATE, err;

	CARD_WORDS(words);
	API_CALL();
	if (!pin)
		return bad_handle(qp, "QP");
	if (!fattr)
		return fail("fattr is NULL");
	if (flexio_qp_check_modify(qp, fattr))
		return failed();
	from = vb_qp_state(qp->card);
	attr.qp_state = states[fattr->next_state];
	if (attr.qp_state == IBV_QPS_INIT && from == IBV_QPS_RESET)
		set_init(qp, fattr, &attr, &bits);
	else if (attr.qp_state == IBV_QPS_RTR)
		set_rtr(qp, fattr, &attr, &bits);
	else if (attr.qp_state == IBV_QPS_RTS && from == IBV_QPS_RTR)
		set_rts(qp, fattr, &attr, &bits);
	if (attr.qp_state != IBV_QPS_RESET && attr.qp_state != IBV_QPS_ERR)
		set_optional(qp, fattr, mask, &attr, &bits);
	err = vb_qp_modify(qp->card, &attr, bits);
	if (err)
		return fail_modify(qp, from, fattr, card_reason(&words, err));
	if (attr.qp_state == IBV_QPS_RESET)
		memset(qp->queue.dbr.addr, 0, 8);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- queries ---- */

/* FlexIO has no names for SQD and SQE; the latter is a queue with an error. */
enum flexio_qp_state flexio_qp_state_get(struct flexio_qp *qp)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_QP, qp);

	API_CALL();
	if (!pin) {
		bad_handle(qp, "QP");
		return FLEXIO_QP_STATE_ERR;
	}
	switch (vb_qp_state(qp->card)) {
	case IBV_QPS_RESET:
		return FLEXIO_QP_STATE_RST;
	case IBV_QPS_INIT:
		return FLEXIO_QP_STATE_INIT;
	case IBV_QPS_RTR:
		return FLEXIO_QP_STATE_RTR;
	case IBV_QPS_RTS:
		return FLEXIO_QP_STATE_RTS;
	default:
		return FLEXIO_QP_STATE_ERR;
	}
}

uint32_t flexio_qp_get_qp_num(struct flexio_qp *qp)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_QP, qp);

	API_CALL();
	if (!pin) {
		bad_handle(qp, "QP");
		return UINT32_MAX;
	}
	return vb_qp_number(qp->card);
}
