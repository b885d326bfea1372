// SPDX-License-Identifier: MIT
/*
 * Queue pairs whose queues are rings in memory: creation, state changes, queries, destruction.
 * Posting is the provider's.
 *
 * Both rings lie in one buffer; the provider says in which order. The context's mutex is held from
 * the moment the card gives out (or takes back) a number until the table of QPs says the same, so
 * that CQEs of a destroyed QP are never taken for those of a new QP with the same number.
 */
#include "objects.h"

#include <unistd.h>

#include "card/queue/qp.h"
#include "wqe.h"

enum { DBR_SIZE = 64 };

/* --- the table of QPs; written under the context's mutex -------------------------------------- */

static int verbs_qp_table_add(struct api_context *ctx, struct api_qp *qp)
{
	uint32_t qpn = vb_qp_number(qp->card);
	struct api_qp *_Atomic *leaf =
		atomic_load_explicit(&ctx->qp_table[qpn >> API_QP_LEAF_BITS], memory_order_relaxed);

	if (!leaf) {
		leaf = calloc(API_QP_LEAF, sizeof(*leaf));
		if (!leaf)
			return -ENOMEM;
		/* Pairs with the acquire in api_qp_find(). */
		atomic_store_explicit(&ctx->qp_table[qpn >> API_QP_LEAF_BITS], leaf,
				      memory_order_release);
	}
	atomic_store_explicit(&leaf[qpn & (API_QP_LEAF - 1)], qp, memory_order_release);
	return 0;
}

static void verbs_qp_table_remove(struct api_context *ctx, uint32_t qpn)
{
	struct api_qp *_Atomic *leaf =
		atomic_load_explicit(&ctx->qp_table[qpn >> API_QP_LEAF_BITS], memory_order_relaxed);

	atomic_store_explicit(&leaf[qpn & (API_QP_LEAF - 1)], NULL, memory_order_release);
}

/* --- creation --------------------------------------------------------------------------------- */

static const struct api_ring_ops *verbs_qp_ring_ops(const struct api_qp *qp)
{
	return &provider_of(qp->ibv.context)->ring;
}

/*
 * RSS: an indirection table and a hash configuration come together, and the QP has no queues of its
 * own.
 */
static int check_rss(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_rx_hash_conf *hash = &attr->rx_hash_conf;
	uint64_t unknown;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) ||
	    !(attr->comp_mask & IBV_QP_INIT_ATTR_RX_HASH) || attr->qp_type != IBV_QPT_RAW_PACKET ||
	    !attr->rwq_ind_tbl || attr->rwq_ind_tbl->context != context || attr->srq ||
	    attr->cap.max_send_wr || attr->cap.max_recv_wr)
		return -vb_refuse_combination(
			"receive side scaling needs a RAW_PACKET queue pair with an indirection table "
			"of this context, a hash, and no queues of its own");
	if (hash->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ ||
	    hash->rx_hash_key_len != VB_RSS_KEY || !hash->rx_hash_key)
		return -vb_refuse_combination("the hash must be Toeplitz with a key of 40 bytes");
	unknown = hash->rx_hash_fields_mask & ~provider_of(context)->raw_caps.rx_hash_fields;
	if (unknown)
		return -vb_refuse_unsupported_value("rx_hash_fields_mask", unknown);
	return 0;
}

static int check_type(enum ibv_qp_type type, bool raw, bool direct)
{
	switch ((int)type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		return 0;
	case IBV_QPT_RAW_PACKET:
		return raw ? 0 : -vb_refuse_unsupported("RAW_PACKET queue pairs on this adapter");
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return -vb_refuse_unsupported("XRC");
	case IBV_QPT_DRIVER:
		if (direct)
			return 0; /* the provider says which */
		return -vb_refuse_unsupported("queue pairs of type DRIVER");
	default:
		return -vb_refuse_value("qp_type", (unsigned int)type);
	}
}

/* Options that only RAW_PACKET queue pairs of some adapters have. */
static int check_raw(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	const struct api_provider *provider = provider_of(context);
	bool raw = attr->qp_type == IBV_QPT_RAW_PACKET;
	uint32_t unknown = attr->create_flags & ~(raw ? provider->raw_caps.qp_flags : 0);

	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && unknown)
		return -vb_refuse_unsupported_value("create_flags", unknown);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) || !attr->max_tso_header)
		return 0;
	if (!raw || !provider->raw_caps.max_tso)
		return -vb_refuse_unsupported("TSO");
	if (attr->max_tso_header > API_MAX_TSO_HEADER)
		return -vb_refuse_range("max_tso_header", attr->max_tso_header, 0,
					API_MAX_TSO_HEADER);
	return 0;
}

static int verbs_qp_check_attr(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr,
			       bool direct)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
			       IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	const uint32_t rss = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	bool raw = provider_of(context)->raw;
	int err;

	if (attr->comp_mask & ~known)
		return -vb_refuse_bits("comp_mask", attr->comp_mask & ~known);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		return -vb_refuse_unsupported("XRC");
	if ((attr->comp_mask & rss) && !raw)
		return -vb_refuse_unsupported("receive side scaling on this adapter");
	err = check_raw(context, attr);
	if (!err)
		err = check_type(attr->qp_type, raw, direct);
	if (err)
		return err;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return -vb_refuse_other_context("pd");
	if (attr->comp_mask & rss)
		return check_rss(context, attr);
	/* What only receives needs no CQ for sends: the provider of type DRIVER knows. */
	if ((attr->send_cq ? attr->send_cq->context != context : attr->qp_type != IBV_QPT_DRIVER) ||
	    !attr->recv_cq || attr->recv_cq->context != context ||
	    (attr->srq && attr->srq->context != context))
		return -vb_refuse_other_context("send_cq, recv_cq or srq");
	return 0;
}

static void qp_init(struct api_qp *qp, struct ibv_context *context,
		    const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *ibv = &qp->ibv;

	ibv->context = context;
	ibv->qp_context = attr->qp_context;
	ibv->pd = attr->pd;
	ibv->send_cq = attr->send_cq ? attr->send_cq : attr->recv_cq;
	ibv->recv_cq = attr->recv_cq;
	ibv->srq = attr->srq;
	ibv->qp_type = attr->qp_type;
	ibv->state = IBV_QPS_RESET;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	qp->sq.signal_all = attr->sq_sig_all;
	qp->sq.unlocked = qp->rq.unlocked = api_pd_single_threaded(attr->pd);
}

static void qp_set_raw(struct api_qp *qp, const struct ibv_qp_init_attr_ex *attr,
		       const struct api_qp_extra *extra)
{
	uint32_t flags = attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr->create_flags : 0;

	qp->is_wq = extra->wq;
	qp->vlan_strip = extra->vlan_strip || (flags & IBV_QP_CREATE_CVLAN_STRIPPING);
	qp->scatter_fcs = extra->scatter_fcs || (flags & IBV_QP_CREATE_SCATTER_FCS);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER)
		qp->max_tso_header = attr->max_tso_header;
}

static int qp_alloc_rings(struct api_qp *qp, const struct api_qp_layout *layout)
{
	size_t bytes = (size_t)layout->sq_bytes + layout->rq_bytes;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int rc;

	if (bytes) {
		rc = api_buf_alloc(&qp->buf, qp->ibv.context, qp->ibv.pd, bytes, page,
				   qp->is_wq ? API_BUF_RWQ : API_BUF_QP);
		if (rc)
			return rc;
	}
	rc = api_buf_alloc(&qp->dbr_buf, qp->ibv.context, qp->ibv.pd, DBR_SIZE, DBR_SIZE,
			   API_BUF_DBR);
	if (rc)
		return rc;
	qp->dbr = qp->dbr_buf.ptr;
	qp->rq.buf = (char *)qp->buf.ptr + layout->rq_offset;
	qp->sq.buf = (char *)qp->buf.ptr + layout->sq_offset;
	qp->sq.end = qp->sq.buf + layout->sq_bytes;
	qp->sq.slot = calloc(qp->sq.cnt ? qp->sq.cnt : 1, sizeof(*qp->sq.slot));
	qp->rq.wrid = calloc(qp->rq.cnt ? qp->rq.cnt : 1, sizeof(*qp->rq.wrid));
	if (!qp->sq.slot || !qp->rq.wrid)
		return -ENOMEM;
	return verbs_qp_ring_ops(qp)->qp_alloc ? verbs_qp_ring_ops(qp)->qp_alloc(qp) : 0;
}

static void verbs_qp_free(struct api_qp *qp)
{
	api_buf_free(&qp->buf);
	api_buf_free(&qp->dbr_buf);
	free(qp->sq.slot);
	free(qp->rq.wrid);
	if (verbs_qp_ring_ops(qp)->qp_free)
		verbs_qp_ring_ops(qp)->qp_free(qp);
	api_acks_destroy(qp->ibv.context, &qp->ibv.mutex, &qp->ibv.cond);
	free(qp);
}

/*
 * Translates the indirection table for the card, under the lock of the context. Completions come
 * from the WQs; the QP gets the CQ of the first one, because the card needs one.
 */
static void fill_rss(struct vb_qp_attr *attr, struct vb_rss *rss, const struct api_ind_table *table,
		     const struct ibv_rx_hash_conf *hash)
{
	attr->send_cq = attr->recv_cq = vb_rq_cq(table->queues.wq[0]);
	*rss = table->queues;
	memcpy(rss->key, hash->rx_hash_key, VB_RSS_KEY);
	rss->fields = hash->rx_hash_fields_mask;
}

static int qp_create_on_card(struct api_qp *qp, const struct ibv_rx_hash_conf *hash)
{
	struct ibv_context *context = qp->ibv.context;
	struct vb_rss rss = { 0 };
	struct vb_qp_attr attr = {
		.type = qp->ibv.qp_type,
		.pd = pd_card(qp->ibv.pd),
		.send_cq = qp->rss ? NULL : to_cq(qp->ibv.send_cq)->card,
		.recv_cq = qp->rss ? NULL : to_cq(qp->ibv.recv_cq)->card,
		.srq = qp->ibv.srq ? to_srq(qp->ibv.srq)->card : NULL,
		.sq_buf = qp->sq.buf,
		.sq_cnt = qp->sq.cnt,
		.sq_shift = qp->sq.shift,
		.rq_buf = qp->rq.buf,
		.rq_cnt = qp->rq.cnt,
		.rq_shift = qp->rq.shift,
		.dbr = qp->dbr,
		.cap = qp->cap,
		.sq_sig_all = qp->sq.signal_all,
		.cookie = qp,
		.uidx = 0xffffff, /* CQEs are matched by QP number */
		.wq = qp->is_wq,
		.rss = qp->rss ? &rss : NULL,
		.vlan_strip = qp->vlan_strip,
		.scatter_fcs = qp->scatter_fcs,
	};
	int rc;

	if (verbs_qp_ring_ops(qp)->qp_card_attr)
		verbs_qp_ring_ops(qp)->qp_card_attr(qp, &attr);
	api_context_lock(context);
	if (qp->rss)
		fill_rss(&attr, &rss, qp->rss, hash);
	rc = vb_qp_create(to_context(context)->dev, &attr, &qp->card);
	if (!rc) {
		qp->ibv.handle = vb_qp_number(qp->card);
		qp->ibv.qp_num = qp->late_number ? 0 : qp->ibv.handle;
		rc = verbs_qp_table_add(to_context(context), qp);
		if (rc)
			vb_qp_destroy(qp->card);
	}
	if (!rc && qp->rss) {
		qp->rss_next = qp->rss->qps;
		qp->rss->qps = qp;
	}
	api_context_unlock(context);
	return rc;
}

struct ibv_qp *api_qp_create_extra(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				   const struct api_qp_extra *extra)
{
	const struct api_ring_ops *ring = &provider_of(context)->ring;
	struct api_qp_layout layout = { 0 };
	struct api_qp *qp = NULL;
	int err;

	API_CALL_AS("ibv_create_qp_ex", API_DEVICE(context));
	err = verbs_qp_check_attr(context, attr, extra->direct);
	if (err)
		return api_null(err);
	if (posix_memalign((void **)&qp, _Alignof(struct api_qp), ring->qp_bytes))
		return api_refuse_null(memory, "the queue pair");
	memset(qp, 0, ring->qp_bytes);
	qp_init(qp, context, attr);
	qp_set_raw(qp, attr, extra);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE)
		qp->rss = (struct api_ind_table *)attr->rwq_ind_tbl;
	err = ring->qp_size(qp, attr, extra->direct, &layout);
	if (!err && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		err = ring->qp_set_ex_ops ? ring->qp_set_ex_ops(qp, attr->send_ops_flags)
					  : -vb_refuse_unsupported("ibv_wr_* on this adapter");
	if (!err)
		err = -qp_alloc_rings(qp, &layout);
	if (!err)
		err = -qp_create_on_card(qp, &attr->rx_hash_conf);
	if (err) {
		verbs_qp_free(qp);
		return api_null(err);
	}
	api_pd_get(attr->pd);
	if (qp->rss) {
		atomic_fetch_add_explicit(&qp->rss->users, 1, memory_order_relaxed);
		api_track_first(context, API_KIND_QP, &qp->node);
	} else {
		api_track(context, API_KIND_QP, &qp->node);
	}
	attr->cap = qp->cap;
	return &qp->ibv;
}

struct ibv_qp *api_qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	return api_qp_create_extra(context, attr, &(struct api_qp_extra){ 0 });
}

struct ibv_qp *api_qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	API_CALL_AS("ibv_create_qp_ex", API_DEVICE(context));
	if (!context || !attr)
		return api_refuse_null(null, "context or attr");
	return provider_of(context)->create_qp(context, attr);
}

VB_PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = { .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	struct ibv_qp *qp;

	API_CALL(API_DEVICE(pd ? pd->context : NULL));
	if (!pd || !attr)
		return api_refuse_null(null, "pd or attr");
	/*
	 * The extended struct starts as the plain one does, but uses the padding at that one's end.
	 */
	memcpy(&ex, attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	qp = api_qp_create_ex(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap;
	return qp;
}

VB_PUBLIC struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return qp && to_qp(qp)->has_ex ? &to_qp(qp)->ex : NULL;
}

/* --- state ------------------------------------------------------------------------------------ */

static void qp_clean_cqs(struct api_qp *qp)
{
	if (qp->rss)
		return; /* all CQEs belong to the WQs */
	api_cq_clean(to_cq(qp->ibv.recv_cq), qp);
	if (qp->ibv.send_cq != qp->ibv.recv_cq)
		api_cq_clean(to_cq(qp->ibv.send_cq), qp);
}

/* What a refused ibv_modify_qp() was about to do. */
static const char *state_detail(const struct ibv_qp_attr *attr, int mask)
{
	static const char *const details[] = { "to RESET", "to INIT", "to RTR", "to RTS",
					       "to SQD",   "to SQE",  "to ERR" };

	if (!attr || !(mask & IBV_QP_STATE))
		return NULL;
	return (unsigned int)attr->qp_state <= IBV_QPS_ERR ? details[attr->qp_state]
							   : "to no state";
}

/*
 * To RESET: both queues start again at 0, on the card and here, and what they completed is
 * forgotten.
 */
static int qp_reset(struct api_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int rc;

	vb_lock(&qp->sq.lock);
	vb_lock(&qp->rq.lock);
	rc = vb_qp_modify(qp->card, attr, mask);
	if (!rc) {
		qp_clean_cqs(qp);
		qp->sq.head = qp->sq.cur_post = 0;
		atomic_store_explicit(&qp->sq.tail, 0, memory_order_relaxed);
		qp->rq.head = 0;
		atomic_store_explicit(&qp->rq.tail, 0, memory_order_relaxed);
		qp->dbr[DBR_RECV] = qp->dbr[DBR_SEND] = 0;
		qp->ibv.state = IBV_QPS_RESET;
	}
	vb_unlock(&qp->rq.lock);
	vb_unlock(&qp->sq.lock);
	return rc;
}

/* --- packet pacing ---------------------------------------------------------------------------- */

/* The most that a queue sends at once after a pause, where the program names no burst. */
enum { DEFAULT_BURST = 16384 };

static int check_rate(struct ibv_qp *qp, uint32_t rate)
{
	uint32_t most = provider_of(qp->context)->raw_caps.max_rate;

	if (qp->qp_type != IBV_QPT_RAW_PACKET || !most || !to_qp(qp)->sq.cnt)
		return api_refuse(unsupported, "a rate limit on this queue pair");
	return rate > most ? api_refuse(range, "rate_limit", rate, 0, most) : 0;
}

static int modify_with_rate(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int err = check_rate(qp, attr->rate_limit);

	mask &= ~IBV_QP_RATE_LIMIT;
	/* The hardware takes it where it begins to send, and from then on. */
	if (!err &&
	    (mask & IBV_QP_STATE ? attr->qp_state : vb_qp_state(to_qp(qp)->card)) != IBV_QPS_RTS)
		return api_refuse(combination, "a rate limit is for a queue pair in RTS");
	if (!err && mask)
		err = api_qp_modify(qp, attr, mask);
	if (!err)
		vb_qp_set_rate(to_qp(qp)->card, attr->rate_limit, DEFAULT_BURST);
	return err;
}

int api_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	int err;

	API_CALL_AS("ibv_modify_qp_rate_limit", API_QP(qp));
	if (!qp || !attr)
		return api_refuse(null, "qp or attr");
	if (attr->comp_mask)
		return api_refuse(bits, "comp_mask", attr->comp_mask);
	err = check_rate(qp, attr->rate_limit);
	if (err)
		return err;
	if (vb_qp_state(to_qp(qp)->card) != IBV_QPS_RTS)
		return api_refuse(combination, "a rate limit is for a queue pair in RTS");
	vb_qp_set_rate(to_qp(qp)->card, attr->rate_limit,
		       attr->max_burst_sz ? attr->max_burst_sz : DEFAULT_BURST);
	return 0;
}

int api_qp_modify(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct api_qp *qp = to_qp(ibqp);
	enum ibv_qp_state was;
	int rc;

	if (mask & IBV_QP_RATE_LIMIT)
		return modify_with_rate(ibqp, attr, mask);
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		return api_status(qp_reset(qp, attr, mask));
	was = vb_qp_state(qp->card);
	rc = vb_qp_modify(qp->card, attr, mask);
	if (!rc && was == IBV_QPS_RESET && verbs_qp_ring_ops(qp)->qp_init)
		verbs_qp_ring_ops(qp)->qp_init(qp);
	if (!rc && (mask & IBV_QP_STATE))
		ibqp->state = attr->qp_state;
	if (!rc && qp->late_number && ibqp->state == IBV_QPS_RTR)
		ibqp->qp_num = vb_qp_number(qp->card);
	return api_status(rc);
}

VB_PUBLIC int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	API_CALL(API_QP(qp), .detail = state_detail(attr, mask));
	if (!qp || !attr)
		return api_refuse(null, "qp or attr");
	return provider_of(qp->context)->modify_qp(qp, attr, mask);
}

int api_qp_query(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct api_qp *qp = to_qp(ibqp);

	if (qp->late_number && ibqp->state != IBV_QPS_RTR)
		return api_refuse(combination, "a DCT can be queried in RTR");
	vb_qp_query(qp->card, attr, init);
	attr->cap = qp->cap;
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibqp->qp_context,
		.send_cq = ibqp->send_cq,
		.recv_cq = ibqp->recv_cq,
		.srq = ibqp->srq,
		.cap = qp->cap,
		.qp_type = ibqp->qp_type,
		.sq_sig_all = qp->sq.signal_all,
	};
	if (mask & IBV_QP_STATE)
		ibqp->state = attr->qp_state;
	return 0;
}

VB_PUBLIC int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			   struct ibv_qp_init_attr *init)
{
	API_CALL(API_QP(qp));
	if (!qp || !attr || !init)
		return api_refuse(null, "qp, attr or init_attr");
	return provider_of(qp->context)->query_qp(qp, attr, mask, init);
}

/* Data is moved by copies whose order inside a message is not promised. */
VB_PUBLIC int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

/* Under the lock of the context. In a forked child the list may lack it. */
static void leave_table(struct api_qp *qp)
{
	struct api_qp **at = &qp->rss->qps;

	while (*at && *at != qp)
		at = &(*at)->rss_next;
	if (*at)
		*at = qp->rss_next;
}

int api_qp_destroy(struct ibv_qp *ibqp)
{
	struct ibv_context *context = ibqp->context;
	struct api_qp *qp = to_qp(ibqp);
	struct ibv_pd *pd;
	uint32_t qpn = vb_qp_number(qp->card);
	int rc = vb_qp_check_unused(qp->card);

	if (rc)
		return api_status(rc);
	api_async_mute(context, &qp->async, true);
	api_wait_acked(ibqp->context, &ibqp->mutex, &ibqp->cond, &ibqp->events_completed,
		       qp->async.fetched);
	api_context_lock(context);
	rc = vb_qp_destroy(qp->card);
	if (!rc) {
		qp_clean_cqs(qp);
		verbs_qp_table_remove(to_context(context), qpn);
		if (qp->rss)
			leave_table(qp);
	}
	api_context_unlock(context);
	if (rc) { /* used since */
		api_async_mute(context, &qp->async, false);
		return api_status(rc);
	}
	api_untrack(context, &qp->node);
	pd = ibqp->pd;
	if (qp->rss)
		atomic_fetch_sub_explicit(&qp->rss->users, 1, memory_order_release);
	verbs_qp_free(qp);
	api_pd_put(pd);
	return 0;
}

VB_PUBLIC int ibv_destroy_qp(struct ibv_qp *qp)
{
	API_CALL(API_QP(qp));
	if (!qp)
		return api_refuse(null, "qp");
	return provider_of(qp->context)->destroy_qp(qp);
}
