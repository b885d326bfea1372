// SPDX-License-Identifier: MIT
/*
 * Transitions of queue pairs by command (DEVX): each is a row that says from where to where, and
 * which fields of the context count. What a transition requires of a type of queue pair is always
 * taken from the context; the rest where its bit in opt_param_mask is set.
 *
 *	         RST2INIT      INIT2RTR      RTR2RTS       RTS2RTS
 *	   RST ------------> INIT ------> RTR ------> RTS ---+
 *	                    INIT2INIT                 |  ^   |    any: 2RST_QP, any but RST: 2ERR_QP
 *	                                     RTS2SQD  v  | SQD_RTS, SQERR2RTS
 *	                                              SQD, SQER
 *
 * Addresses are those of RoCE: the GID counts, whatever grh, rlid and rmac say.
 */
#include "devx_queue_qp.h"

#include "card/queue/qp.h"

enum opt_param {
	OPT_ALT_PATH = 1 << 0,
	OPT_RRE = 1 << 1,
	OPT_RAE = 1 << 2,
	OPT_RWE = 1 << 3,
	OPT_PKEY_INDEX = 1 << 4,
	OPT_Q_KEY = 1 << 5,
	OPT_RNR_TIMEOUT = 1 << 6,
	OPT_PRIMARY_PATH = 1 << 7,
	OPT_SRA_MAX = 1 << 8,
	OPT_RRA_MAX = 1 << 9,
	OPT_PM_STATE = 1 << 10,
	OPT_RETRY_COUNT = 1 << 12,
	OPT_RNR_RETRY = 1 << 13,
	OPT_ACK_TIMEOUT = 1 << 14,
	OPT_PRI_PORT = 1 << 16,
	OPT_COUNTER_SET_ID = 1 << 25,
	OPT_ACCESS = OPT_RRE | OPT_RAE | OPT_RWE,
};

enum { PATH = 0xc0, MIGRATED = 3 };

/* --- rows ------------------------------------------------------------------------------------- */

/* What a transition requires, in the order of enum column. */
#define CONNECTED_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define DATAGRAM_INIT  (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define UC_RTR         (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RC_RTR         (UC_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RC_RTS                                                                  \
	(IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
	 IBV_QP_MAX_QP_RD_ATOMIC)

#define DCI_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT)

enum { ANY = -1 };
enum column { COLUMN_RC, COLUMN_UC, COLUMN_UD, COLUMN_DCI, COLUMNS };

static const struct transition {
	uint16_t opcode;
	int from; /* enum ibv_qp_state, or ANY */
	enum ibv_qp_state to;
	int required[COLUMNS];
} transitions[] = {
	{ 0x502,
	  IBV_QPS_RESET,
	  IBV_QPS_INIT,
	  { CONNECTED_INIT, CONNECTED_INIT, DATAGRAM_INIT, DCI_INIT } },
	{ 0x503, IBV_QPS_INIT, IBV_QPS_RTR, { RC_RTR, UC_RTR, 0, IBV_QP_PATH_MTU } },
	{ 0x504, IBV_QPS_RTR, IBV_QPS_RTS, { RC_RTS, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, RC_RTS } },
	{ 0x505, IBV_QPS_RTS, IBV_QPS_RTS, { 0 } },
	{ 0x506, IBV_QPS_SQE, IBV_QPS_RTS, { 0 } },
	{ 0x507, ANY, IBV_QPS_ERR, { 0 } },
	{ 0x508, IBV_QPS_RTS, IBV_QPS_SQD, { 0 } },
	{ 0x50a, ANY, IBV_QPS_RESET, { 0 } },
	{ 0x50c, IBV_QPS_SQD, IBV_QPS_RTS, { 0 } },
	{ 0x50e, IBV_QPS_INIT, IBV_QPS_INIT, { 0 } },
};

static const char *devx_queue_qp_state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {
		[IBV_QPS_RESET] = "RST", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR",
		[IBV_QPS_RTS] = "RTS",   [IBV_QPS_SQD] = "SQD",   [IBV_QPS_SQE] = "SQER",
		[IBV_QPS_ERR] = "ERR",
	};

	return names[state];
}

static const struct transition *transition_of(const struct devx_cmd *cmd)
{
	const struct transition *t = transitions;

	while (t->opcode != cmd->row->opcode)
		t++;
	return t;
}

/* Which attributes of the card the bits of opt_param_mask name. */
static const struct {
	uint32_t opt;
	int attr;
} options[] = {
	{ OPT_ACCESS, IBV_QP_ACCESS_FLAGS },
	{ OPT_PKEY_INDEX, IBV_QP_PKEY_INDEX },
	{ OPT_Q_KEY, IBV_QP_QKEY },
	{ OPT_RNR_TIMEOUT, IBV_QP_MIN_RNR_TIMER },
	{ OPT_PRIMARY_PATH, IBV_QP_AV },
	{ OPT_SRA_MAX, IBV_QP_MAX_QP_RD_ATOMIC },
	{ OPT_RRA_MAX, IBV_QP_MAX_DEST_RD_ATOMIC },
	{ OPT_RETRY_COUNT, IBV_QP_RETRY_CNT },
	{ OPT_RNR_RETRY, IBV_QP_RNR_RETRY },
	{ OPT_ACK_TIMEOUT, IBV_QP_TIMEOUT },
	{ OPT_PRI_PORT, IBV_QP_PORT },
	/* Nothing to do, or not the card's attribute: see counter_set(). */
	{ OPT_PM_STATE | OPT_COUNTER_SET_ID, 0 },
};

static enum column column_of(const struct devx_queue *queue)
{
	enum { UC = 1, UD = 2, DCI = 5 };
	uint32_t service = get(queue->kept, 0x8, 8);

	return service == UC    ? COLUMN_UC
	       : service == UD  ? COLUMN_UD
	       : service == DCI ? COLUMN_DCI
				: COLUMN_RC;
}

static int mask_of(struct devx_cmd *cmd, const struct transition *t, enum column column, int *mask)
{
	uint32_t opt = cmd->row->in > DEVX_LEAST ? get(cmd->in, 0x80, 32) : 0, known = 0;

	*mask = IBV_QP_STATE | t->required[column];
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		known |= options[i].opt;
		/* A right that a type does not have may be named all the same. */
		if ((opt & options[i].opt) &&
		    !(column >= COLUMN_UD && options[i].opt == OPT_ACCESS))
			*mask |= options[i].attr;
	}
	if (opt & ~known)
		return vb_refuse_unsupported_value("opt_param_mask", opt & ~known);
	return 0;
}

/* --- values ----------------------------------------------------------------------------------- */

static unsigned int devx_queue_qp_state_access_of(const uint8_t *qpc)
{
	return (get(qpc, 0x490, 1) ? IBV_ACCESS_REMOTE_READ : 0u) |
	       (get(qpc, 0x491, 1) ? IBV_ACCESS_REMOTE_WRITE : 0u) |
	       (get(qpc, 0x492, 1) ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

/* Where rights are optional, each has its own bit: the others stay. */
static unsigned int new_access(const struct devx_cmd *cmd, const struct transition *t,
			       const uint8_t *qpc, unsigned int old)
{
	uint32_t opt = get(cmd->in, 0x80, 32);
	unsigned int named = (opt & OPT_RRE ? IBV_ACCESS_REMOTE_READ : 0u) |
			     (opt & OPT_RWE ? IBV_ACCESS_REMOTE_WRITE : 0u) |
			     (opt & OPT_RAE ? IBV_ACCESS_REMOTE_ATOMIC : 0u);

	if (t->required[0] & IBV_QP_ACCESS_FLAGS)
		return devx_queue_qp_state_access_of(qpc);
	return (old & ~named) | (devx_queue_qp_state_access_of(qpc) & named);
}

static void read_path(const struct vb_adapter *adapter, const uint8_t *qpc, struct ibv_ah_attr *av)
{
	const uint8_t *ads = qpc + PATH / 8;

	av->is_global = 1;
	av->port_num = (uint8_t)get(ads, 0x128, 8);
	if (!av->port_num)
		av->port_num = 1;
	av->sl = (uint8_t)get(ads, 0x121, 3);
	av->static_rate = (uint8_t)get(ads, 0x54, 4);
	av->grh.sgid_index = (uint8_t)get(ads, 0x48, 8);
	av->grh.hop_limit = (uint8_t)get(ads, 0x58, 8);
	av->grh.traffic_class =
		(uint8_t)(get(ads, 0x64, 8) ? get(ads, 0x64, 8) : get(ads, 0x10a, 6) << 2);
	av->grh.flow_label = get(ads, 0x6c, 20);
	memcpy(&av->grh.dgid, ads + 0x80 / 8, sizeof(av->grh.dgid));
	/* Forced loopback: to this adapter, wherever it is addressed to. */
	if (get(ads, 0x0, 1) && av->grh.sgid_index < adapter->num_gids)
		av->grh.dgid = adapter->gids[av->grh.sgid_index].gid;
}

/*
 * The firmware takes any MTU that the port can have at most, and leaves it to the program to name
 * one that the network carries; here the port's is the most that a message to another host is cut into.
 */
static enum ibv_mtu mtu_of(const struct vb_adapter *adapter, const uint8_t *qpc,
			   const union ibv_gid *to)
{
	uint32_t mtu = get(qpc, 0x40, 3);

	while (mtu > IBV_MTU_256 && mtu <= IBV_MTU_4096 && 128u << mtu > adapter->config->mtu &&
	       !vb_card_gid_is_local(adapter->card, to))
		mtu--;
	return (enum ibv_mtu)mtu;
}

static void read_values(const struct vb_adapter *adapter, const uint8_t *qpc,
			struct ibv_qp_attr *attr)
{
	const uint8_t *ads = qpc + PATH / 8;

	attr->pkey_index = (uint16_t)get(ads, 0x10, 16);
	attr->port_num = (uint8_t)get(ads, 0x128, 8);
	if (!attr->port_num)
		attr->port_num = 1;
	attr->qkey = get(qpc, 0x540, 32);
	read_path(adapter, qpc, &attr->ah_attr);
	attr->path_mtu = mtu_of(adapter, qpc, &attr->ah_attr.grh.dgid);
	attr->dest_qp_num = get(qpc, 0xa8, 24);
	attr->rq_psn = get(qpc, 0x4a8, 24);
	attr->sq_psn = get(qpc, 0x3c8, 24);
	attr->max_dest_rd_atomic = (uint8_t)(1u << get(qpc, 0x488, 3));
	attr->max_rd_atomic = (uint8_t)(1u << get(qpc, 0x388, 3));
	attr->min_rnr_timer = (uint8_t)get(qpc, 0x4a3, 5);
	attr->timeout = (uint8_t)get(ads, 0x40, 5);
	attr->retry_cnt = (uint8_t)get(qpc, 0x38d, 3);
	attr->rnr_retry = (uint8_t)get(qpc, 0x390, 3);
}

/* --- what is kept ----------------------------------------------------------------------------- */

/* Fields that the card does not give back as they were. */
static const struct {
	int attr;
	uint16_t at, bits;
} kept_fields[] = {
	{ IBV_QP_PATH_MTU, 0x40, 3 },
	{ IBV_QP_PATH_MTU, 0x43, 5 }, /* log_msg_max */
	{ IBV_QP_MAX_DEST_RD_ATOMIC, 0x488, 3 },
	{ IBV_QP_MAX_QP_RD_ATOMIC, 0x388, 3 },
	{ IBV_QP_SQ_PSN, 0x380, 4 }, /* log_ack_req_freq */
};

static void devx_queue_qp_state_keep(struct devx_queue *queue, const uint8_t *qpc,
				     enum ibv_qp_state to, int mask)
{
	vb_lock(&queue->lock);
	if (to == IBV_QPS_RESET)
		memset(queue->kept + PATH / 8, 0, 352 / 8);
	if (mask & IBV_QP_AV)
		memcpy(queue->kept + PATH / 8, qpc + PATH / 8, 352 / 8);
	for (size_t i = 0; i < sizeof(kept_fields) / sizeof(kept_fields[0]); i++)
		if (mask & kept_fields[i].attr)
			put(queue->kept, kept_fields[i].at, kept_fields[i].bits,
			    get(qpc, kept_fields[i].at, kept_fields[i].bits));
	vb_unlock(&queue->lock);
}

void devx_qp_show(struct vb_qp *qp, uint8_t *qpc)
{
	static const uint8_t states[] = {
		[IBV_QPS_RESET] = 0, [IBV_QPS_INIT] = 1, [IBV_QPS_RTR] = 2, [IBV_QPS_RTS] = 3,
		[IBV_QPS_SQE] = 4,   [IBV_QPS_SQD] = 5,  [IBV_QPS_ERR] = 6,
	};
	struct vb_qp_counters counters;
	struct ibv_qp_attr attr;

	vb_qp_query(qp, &attr, NULL);
	vb_qp_counters(qp, &counters);
	put(qpc, 0x0, 4, states[attr.qp_state]);
	put(qpc, 0x13, 2, MIGRATED);
	put(qpc, 0x60, 8, vb_qp_counter_set(qp));
	put(qpc, 0xa8, 24, attr.dest_qp_num);
	put(qpc, PATH + 0x10, 16, attr.pkey_index);
	put(qpc, PATH + 0x40, 5, attr.timeout);
	put(qpc, PATH + 0x128, 8, attr.port_num);
	put(qpc, 0x38d, 3, attr.retry_cnt);
	put(qpc, 0x390, 3, attr.rnr_retry);
	put(qpc, 0x3c8, 24, attr.sq_psn);
	put(qpc, 0x490, 1, !!(attr.qp_access_flags & IBV_ACCESS_REMOTE_READ));
	put(qpc, 0x491, 1, !!(attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE));
	put(qpc, 0x492, 1, !!(attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC));
	put(qpc, 0x4a3, 5, attr.min_rnr_timer);
	put(qpc, 0x4a8, 24, attr.rq_psn);
	put(qpc, 0x540, 32, attr.qkey);
	put(qpc, 0x5a0, 16, counters.sent);
	put(qpc, 0x5b0, 16, counters.rung);
	put(qpc, 0x5c0, 32, counters.taken);
	put(qpc, 0x5e0, 32, counters.posted);
}

/* --- the command ------------------------------------------------------------------------------ */

/*
 * The counter set that the queue pair will have: of the context where the mask says so. RST2INIT
 * needs no mask, and leaves what was said at creation where it names none.
 */
static uint32_t counter_set(const struct devx_cmd *cmd, const struct transition *t,
			    const uint8_t *qpc, uint32_t now)
{
	uint32_t set = get(qpc, 0x60, 8);

	if (cmd->row->in > DEVX_LEAST && (get(cmd->in, 0x80, 32) & OPT_COUNTER_SET_ID))
		return set;
	return t->from == IBV_QPS_RESET && set ? set : now;
}

int devx_qp_modify(struct devx_cmd *cmd)
{
	static const uint8_t none[DEVX_QPC_BYTES];
	const struct transition *t = transition_of(cmd);
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	const uint8_t *qpc = cmd->row->in > DEVX_LEAST ? cmd->in + DEVX_QPC / 8 : none;
	enum ibv_qp_state is = vb_qp_state(queue->qp);
	struct ibv_qp_attr old, attr = { .qp_state = t->to };
	uint32_t counted;
	int mask, err;

	if (t->from == ANY ? t->to == IBV_QPS_ERR && is == IBV_QPS_RESET : (int)is != t->from)
		return devx_refuse(cmd, DEVX_BAD_QP_STATE,
				   vb_refuse_command_state(devx_queue_qp_state_name(is)));
	vb_qp_query(queue->qp, &old, NULL);
	err = mask_of(cmd, t, column_of(queue), &mask);
	if (err)
		return err;
	read_values(vb_dev_adapter(cmd->dev), qpc, &attr);
	attr.qp_access_flags = qpc == none ? 0 : new_access(cmd, t, qpc, old.qp_access_flags);
	if ((mask & IBV_QP_STATE) && t->to == IBV_QPS_SQD) {
		attr.en_sqd_async_notify = 1;
		mask |= IBV_QP_EN_SQD_ASYNC_NOTIFY;
	}
	counted = vb_qp_counter_set(queue->qp);
	err = devx_count_in(cmd, queue->qp, counter_set(cmd, t, qpc, counted));
	if (err)
		return err;
	err = vb_qp_modify(queue->qp, &attr, mask);
	if (err) {
		vb_qp_set_counters(queue->qp, counted);
		return devx_card_refused(cmd, err);
	}
	devx_queue_qp_state_keep(queue, qpc, t->to, mask);
	return 0;
}
