// SPDX-License-Identifier: MIT
/*
 * Owns the state machine of queue pairs: which transitions exist, what each requires and allows,
 * and what a transition does.
 *
 *	RESET -> INIT -> RTR -> RTS <-> SQD        any -> RESET, any but RESET -> ERR
 *	                         ^  SQE (UC, UD: a send failed; back to RTS by the program)
 *
 * The table is that of IBTA 11.2.5.3, as ib_core enforces it for every driver.
 */
#include "card/fault/fault.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/rcu.h"
#include "card/queue/objects.h"
#include "card/queue/qp.h"
#include "card/shown.h"
#include "card/transport/requester.h"
#include "card/transport/transport.h"

enum { RC, UC, UD, RAW, TYPES };

struct transition {
	bool valid;
	int required[TYPES];
	int optional[TYPES];
};

#define CONNECTED_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define DATAGRAM_INIT  (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define UC_RTR         (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define CONNECTED_OPT \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)
#define SQD_RTS_RC (CONNECTED_OPT | IBV_QP_MIN_RNR_TIMER)
#define SQD_RC                                                                            \
	(IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |          \
	 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE)

static const struct transition transitions[IBV_QPS_ERR + 1][IBV_QPS_ERR + 1] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_INIT] = {
			.valid = true,
			.required = { CONNECTED_INIT, CONNECTED_INIT, DATAGRAM_INIT, IBV_QP_PORT },
		},
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_INIT] = {
			.valid = true,
			.optional = { CONNECTED_INIT, CONNECTED_INIT, DATAGRAM_INIT, IBV_QP_PORT },
		},
		[IBV_QPS_RTR] = {
			.valid = true,
			.required = { UC_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, UC_RTR, 0 },
			.optional = {
				IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
				IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
				IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
			},
		},
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_RTS] = {
			.valid = true,
			.required = {
				IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					IBV_QP_MAX_QP_RD_ATOMIC,
				IBV_QP_SQ_PSN,
				IBV_QP_SQ_PSN,
			},
			.optional = { SQD_RTS_RC, CONNECTED_OPT, IBV_QP_CUR_STATE | IBV_QP_QKEY,
				      IBV_QP_CUR_STATE },
		},
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_RTS] = {
			.valid = true,
			.optional = { SQD_RTS_RC, CONNECTED_OPT, IBV_QP_CUR_STATE | IBV_QP_QKEY,
				      IBV_QP_CUR_STATE },
		},
		[IBV_QPS_SQD] = {
			.valid = true,
			.optional = { IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY,
				      IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY },
		},
	},
	[IBV_QPS_SQD] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_RTS] = {
			.valid = true,
			.optional = { SQD_RTS_RC, CONNECTED_OPT, IBV_QP_CUR_STATE | IBV_QP_QKEY,
				      IBV_QP_CUR_STATE },
		},
		[IBV_QPS_SQD] = {
			.valid = true,
			.optional = {
				SQD_RC,
				IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
					IBV_QP_PATH_MIG_STATE,
				IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
			},
		},
	},
	[IBV_QPS_SQE] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_RTS] = {
			.valid = true,
			.optional = { 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, IBV_QP_CUR_STATE | IBV_QP_QKEY,
				      IBV_QP_CUR_STATE },
		},
	},
	[IBV_QPS_ERR] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
	},
};

static int type_index(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC ? RC : type == IBV_QPT_UC ? UC : type == IBV_QPT_UD ? UD : RAW;
}

static const char *qp_state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return (unsigned int)state <= IBV_QPS_ERR ? names[state] : "no state";
}

/* The names of attribute bits, for the log. */
static const char *attr_names(int mask, char *out, size_t size)
{
	static const char *const names[] = {
		"STATE",
		"CUR_STATE",
		"EN_SQD_ASYNC_NOTIFY",
		"ACCESS_FLAGS",
		"PKEY_INDEX",
		"PORT",
		"QKEY",
		"AV",
		"PATH_MTU",
		"TIMEOUT",
		"RETRY_CNT",
		"RNR_RETRY",
		"RQ_PSN",
		"MAX_QP_RD_ATOMIC",
		"ALT_PATH",
		"MIN_RNR_TIMER",
		"SQ_PSN",
		"MAX_DEST_RD_ATOMIC",
		"PATH_MIG_STATE",
		"CAP",
		"DEST_QPN",
	};
	const int count = (int)(sizeof(names) / sizeof(names[0]));
	size_t n = 0;

	out[0] = '\0';
	for (int i = 0; i < count; i++)
		if ((mask & 1 << i) && n < size)
			n += (size_t)snprintf(out + n, size - n, "%sIBV_QP_%s", n ? ", " : "",
					      names[i]);
	if ((mask & ~((1 << count) - 1)) && n < size)
		snprintf(out + n, size - n, "%sbits 0x%x", n ? ", " : "",
			 mask & ~((1 << count) - 1));
	return out;
}

/* --- DC, as mlx5_ib has it: a DCT is made once, and then only destroyed ----------------------- */

struct dc_rule {
	enum ibv_qp_state from, to;
	int required, optional;
};

static const struct dc_rule dct_rules[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, CONNECTED_INIT, 0 },
	{ IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0 },
	{ 0 },
};

static const struct dc_rule dci_rules[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT },
	{ IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
		  IBV_QP_SQ_PSN,
	  IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_MIN_RNR_TIMER },
	{ 0 },
};

static int check_dc_transition(const struct vb_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
			       int mask)
{
	bool target = qp->init.dc == VB_DC_TARGET;
	const struct dc_rule *rule = target ? dct_rules : dci_rules;
	char names[256];
	int extra;

	while ((rule->from != from || rule->to != to) && (rule->from || rule->to))
		rule++;
	/* The end of the list: to RESET, and from all but RESET to ERR, in the same way. */
	if (!rule->to &&
	    (target || !(to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))))
		return vb_refuse_transition(qp_state_name(from), qp_state_name(to),
					    target ? "DCT" : "DCI");
	if (rule->required & ~mask)
		return vb_refuse_attr_missing(
			attr_names(rule->required & ~mask, names, sizeof(names)));
	extra = mask & ~(IBV_QP_STATE | rule->required | rule->optional);
	return extra ? vb_refuse_attr_extra(attr_names(extra, names, sizeof(names))) : 0;
}

static int check_transition(const struct vb_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
			    int mask)
{
	static const char *const types[] = { [RC] = "RC", [UC] = "UC", [UD] = "UD", [RAW] = "RAW" };
	const struct transition *t;
	int type = type_index(qp->type), extra;
	char names[256];

	if (qp->init.dc)
		return check_dc_transition(qp, from, to, mask);
	if (from > IBV_QPS_ERR || to > IBV_QPS_ERR)
		return vb_refuse_transition(qp_state_name(from), qp_state_name(to), types[type]);
	t = &transitions[from][to];
	/* SQE exists for queues without retries only. */
	if (!t->valid || (from == IBV_QPS_SQE && type == RC))
		return vb_refuse_transition(qp_state_name(from), qp_state_name(to), types[type]);
	if (t->required[type] & ~mask)
		return vb_refuse_attr_missing(
			attr_names(t->required[type] & ~mask, names, sizeof(names)));
	extra = mask & ~(IBV_QP_STATE | t->required[type] | t->optional[type]);
	return extra ? vb_refuse_attr_extra(attr_names(extra, names, sizeof(names))) : 0;
}

static int check_av(const struct vb_qp *qp, const struct ibv_ah_attr *av)
{
	const struct vb_adapter *adapter = qp->dev->adapter;

	/*
	 * On Ethernet every address vector has a global route, from an entry of the GID table that
	 * is in use.
	 */
	if (!av->is_global && !qp->init.dc) /* there it only says which entry is its own */
		return vb_refuse_no_grh();
	if (av->grh.sgid_index >= adapter->num_gids)
		return vb_refuse_sgid_index(av->grh.sgid_index, adapter->num_gids,
					    adapter->config->name);
	if (av->port_num > adapter->config->ports)
		return vb_refuse_port(av->port_num, adapter->config->ports, adapter->config->name);
	return 0;
}

/* Attributes that are numbers with an upper limit. */
static int check_limits(const struct ibv_qp_attr *attr, int mask)
{
	const struct {
		int bit;
		const char *name;
		uint32_t value, max;
	} limits[] = {
		{ IBV_QP_PKEY_INDEX, "pkey_index", attr->pkey_index, 0 },
		{ IBV_QP_RQ_PSN, "rq_psn", attr->rq_psn, 0xffffff },
		{ IBV_QP_SQ_PSN, "sq_psn", attr->sq_psn, 0xffffff },
		{ IBV_QP_DEST_QPN, "dest_qp_num", attr->dest_qp_num, 0xffffff },
		{ IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr->max_rd_atomic, VB_MAX_RD_ATOMIC },
		{ IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr->max_dest_rd_atomic,
		  VB_MAX_RD_ATOMIC },
		{ IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr->min_rnr_timer, 31 },
		{ IBV_QP_TIMEOUT, "timeout", attr->timeout, 31 },
		{ IBV_QP_RETRY_CNT, "retry_cnt", attr->retry_cnt, 7 },
		{ IBV_QP_RNR_RETRY, "rnr_retry", attr->rnr_retry, 7 },
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if ((mask & limits[i].bit) && limits[i].value > limits[i].max)
			return vb_refuse_range(limits[i].name, limits[i].value, 0, limits[i].max);
	return 0;
}

static int qp_state_check_values(const struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct vb_config_adapter *config = qp->dev->adapter->config;
	int ret;

	if ((mask & IBV_QP_PORT) && (attr->port_num < 1 || attr->port_num > config->ports))
		return vb_refuse_port(attr->port_num, config->ports, config->name);
	ret = check_limits(attr, mask);
	if (!ret && (mask & IBV_QP_AV))
		ret = check_av(qp, &attr->ah_attr);
	if (ret)
		return ret;
	/* Automatic path migration does not exist on Ethernet. */
	if ((mask & IBV_QP_ALT_PATH) ||
	    ((mask & IBV_QP_PATH_MIG_STATE) && attr->path_mig_state != IBV_MIG_MIGRATED))
		return vb_refuse_migration();
	if (!(mask & IBV_QP_PATH_MTU))
		return 0;
	if (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096)
		return vb_refuse_value("path_mtu (an enum ibv_mtu, not bytes)", attr->path_mtu);
	/* Between queues of this host messages are not cut: only a wire has an MTU. */
	if (128u << attr->path_mtu > config->mtu && !qp->init.dc && (mask & IBV_QP_AV) &&
	    !vb_card_gid_is_local(qp->dev->adapter->card, &attr->ah_attr.grh.dgid))
		return vb_refuse_path_mtu(128u << attr->path_mtu,
					  mask & IBV_QP_PORT ? attr->port_num : qp->attr.port_num,
					  config->name, config->mtu);
	return 0;
}

static void take_values(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *cur = &qp->attr;

#define TAKE(bit, field)                          \
	do {                                      \
		if (mask & (bit))                 \
			cur->field = attr->field; \
	} while (0)
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
#undef TAKE
	if (mask & IBV_QP_RETRY_CNT)
		qp->sq.sender.retry_limit = qp->sq.sender.retries = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->sq.sender.rnr_retry_limit = qp->sq.sender.rnr_retries = attr->rnr_retry;
	if (mask & IBV_QP_TIMEOUT)
		qp->sq.sender.timeout = attr->timeout ? 4096ull << attr->timeout : UINT64_MAX;
}

/*
 * What its packets are: a connected queue has one version of RoCE, that of the GID it sends from.
 */
static uint8_t transport_of(const struct vb_qp *qp, const struct ibv_ah_attr *av)
{
	const struct vb_gid *gid = &qp->dev->adapter->gids[av->grh.sgid_index];

	return (uint8_t)(qp->type | (gid->type == IBV_GID_TYPE_ROCE_V1 ? VB_TRANSPORT_V1 : 0));
}

/*
 * A connected queue learns where its peer is. A peer that is not there is like one that does not
 * answer.
 */
static int qp_state_open_path(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask,
			      struct vb_path *path)
{
	uint32_t qpn = mask & IBV_QP_DEST_QPN ? attr->dest_qp_num : qp->attr.dest_qp_num;
	enum ibv_mtu mtu = mask & IBV_QP_PATH_MTU ? attr->path_mtu : qp->attr.path_mtu;
	const struct ibv_global_route *route = &attr->ah_attr.grh;
	const struct vb_adapter *adapter = qp->dev->adapter;
	struct vb_address to = { .dgid = &route->dgid,
				 .sgid = &adapter->gids[route->sgid_index].gid,
				 .adapter = adapter->guid,
				 .flow_label = route->flow_label & 0xfffff,
				 .mtu = 128u << mtu,
				 .traffic_class = route->traffic_class,
				 .hop_limit = route->hop_limit,
				 .transport = transport_of(qp, &attr->ah_attr) };

	return qp->type == IBV_QPT_UD || qp->init.dc
		       ? 0
		       : vb_path_open(qp->card->fabric, path, &to, qpn, qp->number);
}

/*
 * Show initiators on this host what they may do to this QP without asking. Not while they use it:
 * see segment.h.
 */
void vb_qp_publish(struct vb_qp *qp, enum ibv_qp_state state)
{
	struct vb_seg_qp *shared = qp->shared;

	shared->remote_qpn = qp->attr.dest_qp_num;
	shared->access = qp->attr.qp_access_flags;
	/* Without resources to answer them there are no READs or atomics: let the responder say so. */
	if (!qp->attr.max_dest_rd_atomic)
		shared->access &= ~(uint32_t)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	/* What is counted must come by here. */
	if (qp->counters)
		shared->access = 0;
	shared->pdn = qp->init.pd->number;
	vb_show_peer(qp);
	vb_show_state(qp, state);
	shared->transport = qp->transport & (uint8_t)~VB_TRANSPORT_CUT;
	atomic_store_explicit(&shared->ready,
			      qp->type < IBV_QPT_UD && vb_qp_receives(state) && !qp->init.dc &&
				      !(qp->transport & VB_TRANSPORT_CUT),
			      memory_order_seq_cst);
	/*
	 * Pairs with vb_qp_fail(), which changes the state first and takes this back then: one of
	 * the two sees the other.
	 */
	if (atomic_load_explicit(&qp->state, memory_order_seq_cst) == IBV_QPS_ERR) {
		vb_show_state(qp, IBV_QPS_ERR);
		atomic_store_explicit(&shared->ready, 0, memory_order_seq_cst);
	}
}

static void qp_state_enter(struct vb_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
			   const struct ibv_qp_attr *attr, int mask)
{
	if (to == IBV_QPS_RESET) {
		vb_requester_reset(qp, 0, true);
		vb_responder_reset(qp, 0, true);
		memset(&qp->attr, 0, sizeof(qp->attr));
	}
	/* WQEs that were posted before RTR and RTS stay. */
	if (mask & IBV_QP_RQ_PSN)
		vb_responder_reset(qp, attr->rq_psn, false);
	if (mask & IBV_QP_SQ_PSN)
		vb_requester_reset(qp, attr->sq_psn, false);
	take_values(qp, attr, mask);
	if ((mask & IBV_QP_AV) && qp->type < IBV_QPT_UD)
		qp->transport =
			transport_of(qp, &attr->ah_attr) | (qp->transport & VB_TRANSPORT_CUT);
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		atomic_store_explicit(&qp->comm_est, false, memory_order_relaxed);
	if (to == IBV_QPS_SQD && from == IBV_QPS_RTS)
		qp->drained_event =
			(mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && attr->en_sqd_async_notify;
}

/* What follows a transition, with no lock held. */
static void after(struct vb_qp *qp, enum ibv_qp_state to)
{
	vb_read_lock();
	vb_burst_begin(qp->card);
	if (to == IBV_QPS_RTS || to == IBV_QPS_SQD) {
		vb_work_add(qp, to == IBV_QPS_RTS ? VB_WORK_SEND : VB_WORK_DRAINED);
	} else if (to == IBV_QPS_ERR) {
		vb_lock(&qp->sq.lock);
		vb_requester_flush(qp);
		vb_unlock(&qp->sq.lock);
		vb_lock(&qp->rq.lock);
		vb_responder_flush(qp);
		vb_unlock(&qp->rq.lock);
		if (qp->init.srq)
			vb_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
	vb_burst_end();
	vb_read_unlock();
	vb_fabric_progress(qp->card->fabric);
}

/* From qp_state_modify(): the state changed meanwhile, and what is asked for can be had from the new one as well. */
enum { AGAIN = 1 };

static int qp_state_modify(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct vb_path path = vb_path_none, old = vb_path_none;
	enum ibv_qp_state is, from, to;
	uint32_t now;
	int ret;

	if (vb_dev_stale(qp->dev))
		return vb_refuse_forked();
	if (atomic_load_explicit(&qp->dev->fatal, memory_order_relaxed) &&
	    !((mask & IBV_QP_STATE) &&
	      (attr->qp_state == IBV_QPS_RESET || attr->qp_state == IBV_QPS_ERR)))
		return vb_refuse_device_fatal(qp->dev->adapter->config->name);
	if (qp->init.wq)
		return vb_refuse_combination("this is a receive work queue: ibv_modify_wq");
	is = vb_qp_state(qp); /* read once: the data path may change it at any time */
	from = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : is;
	to = mask & IBV_QP_STATE ? attr->qp_state : from;
	if (from != is)
		return vb_refuse_not_in_state(qp_state_name(from), qp_state_name(is));
	ret = check_transition(qp, from, to, mask);
	if (!ret)
		ret = qp_state_check_values(qp, attr, mask);
	if (!ret && (mask & IBV_QP_AV))
		ret = qp_state_open_path(qp, attr, mask, &path);
	if (ret)
		return ret;
	vb_responder_answer(qp); /* acknowledgements that are due go out over the path as it is */
	atomic_store_explicit(&qp->shared->ready, 0, memory_order_seq_cst);
	vb_segment_wait_qp(qp->card->fabric, qp->number & VB_QPN_INDEX_MASK);
	vb_lock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	now = from;
	if (!atomic_compare_exchange_strong_explicit(&qp->state, &now, to, memory_order_seq_cst,
						     memory_order_seq_cst)) {
		/* The data path met an error meanwhile, or another thread modified it. */
		ret = !(mask & IBV_QP_CUR_STATE) && (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
			      ? AGAIN
			      : vb_refuse_failed_meanwhile(qp_state_name(now));
		old = path;
		vb_qp_publish(qp, now);
	} else {
		if ((mask & IBV_QP_AV) || to == IBV_QPS_RESET) {
			old = vb_qp_set_path(qp, &path);
			qp->sport = 0;
		}
		qp_state_enter(qp, from, to, attr, mask);
		vb_qp_publish(qp, to);
	}
	vb_unlock(&qp->rq.lock);
	vb_unlock(&qp->sq.lock);
	if (old.peer)
		vb_read_wait(); /* a sender may still be using the old path */
	vb_path_close(&old);
	if (!ret)
		after(qp, to);
	return ret;
}

int vb_qp_set_sport(struct vb_qp *qp, uint16_t port)
{
	int ret = 0;

	if (qp->type != IBV_QPT_RC && qp->type != IBV_QPT_UC)
		return vb_refuse_unsupported("a UDP source port of this type of queue pair");
	vb_card_enter();
	vb_lock(&qp->sq.lock);
	if (vb_qp_state(qp) != IBV_QPS_RTS)
		ret = vb_refuse_not_in_state("RTS", qp_state_name(vb_qp_state(qp)));
	else if (qp->transport & VB_TRANSPORT_V1)
		ret = vb_refuse_unsupported("a UDP source port of RoCE v1");
	else
		qp->sport = port;
	vb_unlock(&qp->sq.lock);
	vb_card_leave();
	return ret;
}

/* --- errors met on the data path -------------------------------------------------------------- */

/* An error that is found late, of an earlier life of the queue pair, does not count. */
static bool can_fail(uint32_t state)
{
	return state != IBV_QPS_RESET && state != IBV_QPS_INIT && state != IBV_QPS_ERR;
}

void vb_qp_fail(struct vb_qp *qp, enum ibv_event_type event, bool has_event)
{
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_seq_cst);

	do
		if (!can_fail(state))
			return;
	while (!atomic_compare_exchange_weak_explicit(&qp->state, &state, IBV_QPS_ERR,
						      memory_order_seq_cst, memory_order_seq_cst));
	vb_show_state(qp, IBV_QPS_ERR);
	atomic_store_explicit(&qp->shared->ready, 0, memory_order_seq_cst);
	vb_work_add(qp, VB_WORK_FLUSH);
	if (has_event)
		vb_qp_event(qp, event);
}

void vb_qp_fail_sq(struct vb_qp *qp)
{
	uint32_t rts = IBV_QPS_RTS;

	if (atomic_compare_exchange_strong_explicit(&qp->state, &rts, IBV_QPS_SQE,
						    memory_order_seq_cst, memory_order_seq_cst)) {
		vb_show_state(qp, IBV_QPS_SQE);
		vb_work_add(qp, VB_WORK_FLUSH_SQ);
	}
}

void vb_qp_flush(struct vb_qp *qp, uint32_t what)
{
	vb_lock(&qp->sq.lock);
	/* Not if the program has moved the QP on in the meantime. */
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		vb_requester_flush(qp);
	vb_unlock(&qp->sq.lock);
	if (!(what & VB_WORK_FLUSH))
		return;
	vb_lock(&qp->rq.lock);
	if (qp->state == IBV_QPS_ERR)
		vb_responder_flush(qp);
	vb_unlock(&qp->rq.lock);
	if (qp->init.srq)
		vb_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* --- modify ----------------------------------------------------------------------------------- */

int vb_qp_modify(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	int ret;

	vb_card_enter();
	do
		ret = qp_state_modify(qp, attr, mask);
	while (ret == AGAIN);
	vb_card_leave();
	return ret;
}

int vb_qp_unsent(struct vb_qp *qp)
{
	int next = -EINVAL;

	vb_card_enter();
	vb_lock(&qp->sq.lock);
	/* Of a message that was begun in SQD all is sent. */
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_SQD &&
	    vb_sq_is_drained(&qp->sq)) {
		qp->sq.loaded = false; /* it is read again */
		next = qp->sq.next;
	}
	vb_unlock(&qp->sq.lock);
	vb_card_leave();
	return next;
}
