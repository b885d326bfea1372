// SPDX-License-Identifier: MIT
/*
 * Commands on objects that verbs made: queries and changes of queue pairs, CQs, SRQs, WQs and
 * indirection tables. The command names the object's number, which is checked as for objects of
 * commands.
 *
 *	struct ibv_qp --> what a command would have made of it (struct devx_queue) --> devx_run()
 *
 * An SRQ is an RMP to commands, a WQ an RQ, an indirection table an RQT, and a RAW_PACKET queue pair
 * an SQ, an RQ, a TIS and a TIR of one number. Where a queue becomes empty (2RST_QP, an RQ to RST)
 * libibverbs must forget its requests too: such a command goes through ibv_modify_qp() or
 * ibv_modify_wq().
 */
#include "devx_queue.h"

#include "card/memory/mr.h"
#include "card/queue/cq.h"
#include "card/queue/qp.h"
#include "card/queue/srq.h"
#include "devx_rqt.h"

enum {
	OP_2RST_QP = 0x50a,
	OP_QUERY_TIR = 0x903,
	OP_QUERY_SQ = 0x907,
	OP_MODIFY_RQ = 0x909,
	OP_QUERY_RQ = 0x90b,
	OP_QUERY_TIS = 0x915,
	PATH = 0xc0
};

static uint32_t devx_verbs_log_of(uint64_t value)
{
	uint32_t log = 0;

	while (value >>= 1)
		log++;
	return log;
}

struct call {
	enum devx_call call;
	const void *in;
	size_t inlen;
	void *out;
	size_t outlen;
};

/* The command on an object of this kind; 0 or a positive errno. */
static int devx_verbs_run(const struct call *c, struct ibv_context *context, enum vb_devx_kind kind,
			  uint32_t number, struct devx_queue *queue)
{
	struct mlx5dv_devx_obj obj = {
		.mark = VB_DEVX_MARK,
		.kind = kind,
		.number = number,
		.context = context,
		.data = queue,
	};

	queue->obj = &obj;
	queue->dbr = queue->no_record;
	return devx_run(c->call, context, &obj, c->in, c->inlen, c->out, c->outlen);
}

static bool is_opcode(const struct call *c, uint32_t opcode)
{
	return c->in && c->inlen >= DEVX_LEAST && get(c->in, DEVX_OPCODE, 16) == opcode;
}

/* --- queue pairs ------------------------------------------------------------------------------ */

static void keep_path(uint8_t *qpc, const struct ibv_ah_attr *av)
{
	uint8_t *ads = qpc + PATH / 8;

	put(ads, 0x28, 1, av->is_global);
	put(ads, 0x48, 8, av->grh.sgid_index);
	put(ads, 0x54, 4, av->static_rate);
	put(ads, 0x58, 8, av->grh.hop_limit);
	put(ads, 0x64, 8, av->grh.traffic_class);
	put(ads, 0x6c, 20, av->grh.flow_label);
	put(ads, 0x121, 3, av->sl);
	memcpy(ads + 0x80 / 8, av->grh.dgid.raw, sizeof(av->grh.dgid.raw));
}

static void keep_qp(struct ibv_qp *qp, uint8_t *qpc)
{
	struct vb_verbs_qp rings;
	struct ibv_qp_attr attr;

	vb_verbs_rings(qp->context)->qp(qp, &rings);
	vb_qp_query(rings.card, &attr, NULL);
	put(qpc, 0x8, 8, qp->qp_type == IBV_QPT_RC ? 0 : qp->qp_type == IBV_QPT_UC ? 1 : 2);
	put(qpc, 0x28, 24, vb_pd_number(vb_verbs_pd(qp->pd)));
	put(qpc, 0x40, 3, attr.path_mtu);
	put(qpc, 0x43, 5, VB_MAX_MSG_LOG);
	put(qpc, 0x49, 4, devx_verbs_log_of(rings.rq.cnt));
	put(qpc, 0x4d, 3, rings.rq.cnt ? rings.rq.shift - 4 : 0);
	put(qpc, 0x50, 1, !rings.sq.cnt);
	put(qpc, 0x51, 4, devx_verbs_log_of(rings.sq.cnt));
	put(qpc, 0x388, 3, devx_verbs_log_of(attr.max_rd_atomic));
	put(qpc, 0x488, 3, devx_verbs_log_of(attr.max_dest_rd_atomic));
	put(qpc, 0x3e8, 24, qp->send_cq ? qp->send_cq->handle : 0);
	put(qpc, 0x4e8, 24, qp->recv_cq ? qp->recv_cq->handle : 0);
	put(qpc, 0x565, 3, qp->srq ? 1 : rings.rq.cnt ? 0 : 3);
	put(qpc, 0x568, 24, qp->srq ? qp->srq->handle : 0);
	keep_path(qpc, &attr.ah_attr);
}

/* An empty queue: the command is checked by a query of the same object first. */
static int reset_qp(const struct call *c, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	if (c->outlen < DEVX_LEAST || c->outlen > DEVX_MOST || !c->out)
		return -vb_refuse_combination("the answer has no 16 bytes to 64 KiB");
	if (get(c->in, DEVX_NUMBER, 24) != qp->qp_num)
		return -vb_refuse_combination("the command names another object");
	memset(c->out, 0, c->outlen);
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* The send queue of a verbs queue pair begins in RTS, other than one of commands. */
static void show_sq_state(const struct call *c, const struct devx_queue *queue)
{
	enum ibv_qp_state state = vb_qp_state(queue->qp);

	if (state == IBV_QPS_INIT || state == IBV_QPS_RTR)
		put(c->out, DEVX_CONTEXT + 0x8, 4, DEVX_RST);
}

static void keep_raw(struct ibv_qp *qp, const struct vb_verbs_ring *ring, bool sq, uint8_t *kept)
{
	put(kept, 0x48, 24, (sq ? qp->send_cq : qp->recv_cq)->handle);
	put(kept, DEVX_WQ + 0x0, 4, 1); /* cyclic */
	put(kept, DEVX_WQ + 0x48, 24, vb_pd_number(vb_verbs_pd(qp->pd)));
	if (!sq && qp->srq) {
		put(kept, 0x4, 4, 1); /* an RMP has its receives */
		put(kept, 0x88, 24, qp->srq->handle);
		return;
	}
	put(kept, DEVX_WQ + 0x10c, 4, ring->shift);
	put(kept, DEVX_WQ + 0x11b, 5, devx_verbs_log_of(ring->cnt));
}

/* The context of its TIS: whose frames it sends. */
static int devx_verbs_query_tis(const struct call *c, struct ibv_qp *qp)
{
	struct devx_tis tis = { 0 };
	struct mlx5dv_devx_obj obj = { .mark = VB_DEVX_MARK, .kind = VB_DEVX_TIS, .data = &tis };

	obj.number = qp->qp_num;
	obj.context = qp->context;
	put(tis.kept, 0x128, 24, vb_verbs_mlx5(qp->context)->transport_domain(qp->context));
	put(tis.kept, 0x168, 24, vb_pd_number(vb_verbs_pd(qp->pd)));
	return devx_run(c->call, qp->context, &obj, c->in, c->inlen, c->out, c->outlen);
}

/* And of its TIR, which leads to the one receive queue. */
static int devx_verbs_query_tir(const struct call *c, struct ibv_qp *qp)
{
	uint8_t tirc[DEVX_TIRC_BYTES] = { 0 };
	struct mlx5dv_devx_obj obj = { .mark = VB_DEVX_MARK, .kind = VB_DEVX_TIR, .kept = tirc };

	obj.number = qp->qp_num;
	obj.context = qp->context;
	put(tirc, 0xe8, 24, qp->qp_num); /* inline_rqn */
	put(tirc, 0x126, 2, vb_verbs_mlx5(qp->context)->loopback(qp));
	put(tirc, 0x128, 24, vb_verbs_mlx5(qp->context)->transport_domain(qp->context));
	return devx_run(c->call, qp->context, &obj, c->in, c->inlen, c->out, c->outlen);
}

/* Its queues have one state here: there are only queries. */
static int on_raw_qp(const struct call *c, struct ibv_qp *qp)
{
	bool sq = is_opcode(c, OP_QUERY_SQ);
	struct devx_queue queue = { 0 };
	struct vb_verbs_qp rings;
	int err;

	if (c->call == DEVX_MODIFY)
		return -vb_refuse_unsupported("changes of one queue of a RAW_PACKET queue pair");
	vb_verbs_rings(qp->context)->qp(qp, &rings);
	if (((sq || is_opcode(c, OP_QUERY_TIS)) && !rings.sq.cnt) ||
	    ((is_opcode(c, OP_QUERY_RQ) || is_opcode(c, OP_QUERY_TIR)) && !rings.rq.cnt &&
	     !qp->srq))
		return -vb_refuse_combination("the queue pair has no such queue");
	if (is_opcode(c, OP_QUERY_TIS))
		return devx_verbs_query_tis(c, qp);
	if (is_opcode(c, OP_QUERY_TIR))
		return devx_verbs_query_tir(c, qp);
	queue.qp = rings.card;
	if (sq || is_opcode(c, OP_QUERY_RQ))
		keep_raw(qp, sq ? &rings.sq : &rings.rq, sq, queue.kept);
	err = devx_verbs_run(c, qp->context, sq ? VB_DEVX_SQ : VB_DEVX_RQ, qp->qp_num, &queue);
	if (!err && sq)
		show_sq_state(c, &queue);
	return err;
}

static int on_qp(const struct call *c, struct ibv_qp *qp)
{
	struct devx_queue queue = { 0 };
	int err;

	if (!qp || !mlx5dv_is_supported(qp->context->device))
		return -vb_refuse_not_mlx5();
	if (qp->qp_type == IBV_QPT_RAW_PACKET)
		return on_raw_qp(c, qp);
	if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_UD)
		return -vb_refuse_unsupported("commands on this type of queue pair");
	if (c->call == DEVX_MODIFY && is_opcode(c, OP_2RST_QP))
		return reset_qp(c, qp);
	queue.qp = vb_verbs_qp(qp);
	keep_qp(qp, queue.kept);
	err = devx_verbs_run(c, qp->context, VB_DEVX_QP, qp->qp_num, &queue);
	if (!err && c->call == DEVX_MODIFY)
		qp->state = vb_qp_state(queue.qp);
	return err;
}

/* --- CQs -------------------------------------------------------------------------------------- */

static int on_cq(const struct call *c, struct ibv_cq *cq)
{
	struct devx_queue queue = { 0 };
	struct vb_cq_moderation moderation;
	int err;

	if (!cq || !mlx5dv_is_supported(cq->context->device))
		return -vb_refuse_not_mlx5();
	queue.cq = vb_cq_get(vb_verbs_dev(cq->context), cq->handle);
	if (!queue.cq)
		return -vb_refuse_combination("the CQ is gone");
	moderation = vb_cq_moderation(queue.cq);
	put(queue.kept, 0xf, 2, moderation.from_cqe);
	put(queue.kept, 0x63, 5, devx_verbs_log_of((uint64_t)cq->cqe + 1));
	put(queue.kept, 0x84, 12, moderation.period_us);
	put(queue.kept, 0x90, 16, moderation.max_count);
	err = devx_verbs_run(c, cq->context, VB_DEVX_CQ, cq->handle, &queue);
	vb_cq_put(queue.cq);
	return err;
}

/* --- SRQs and WQs ----------------------------------------------------------------------------- */

static int on_srq(const struct call *c, struct ibv_srq *srq)
{
	struct devx_queue queue = { 0 };
	struct vb_verbs_srq ring;

	if (!srq || !mlx5dv_is_supported(srq->context->device))
		return -vb_refuse_not_mlx5();
	vb_verbs_rings(srq->context)->srq(srq, &ring);
	queue.srq = ring.card;
	put(queue.kept, DEVX_WQ + 0x30, 16, vb_srq_limit(ring.card));
	put(queue.kept, DEVX_WQ + 0x48, 24, vb_pd_number(vb_verbs_pd(srq->pd)));
	put(queue.kept, DEVX_WQ + 0x10c, 4, ring.wqe_shift);
	put(queue.kept, DEVX_WQ + 0x11b, 5, devx_verbs_log_of(ring.wqe_cnt));
	return devx_verbs_run(c, srq->context, VB_DEVX_RMP, vb_srq_number(ring.card), &queue);
}

static int reset_wq(const struct call *c, struct ibv_wq *wq)
{
	static const enum ibv_wq_state states[] = { IBV_WQS_RESET, IBV_WQS_RDY, IBV_WQS_UNKNOWN,
						    IBV_WQS_ERR };
	uint32_t old = get(c->in, DEVX_OLD_STATE, 4);
	struct ibv_wq_attr attr = {
		.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
		.wq_state = IBV_WQS_RESET,
		.curr_wq_state = old < 4 ? states[old] : IBV_WQS_UNKNOWN,
	};

	if (c->outlen < DEVX_LEAST || c->outlen > DEVX_MOST || !c->out)
		return -vb_refuse_combination("the answer has no 16 bytes to 64 KiB");
	if (get(c->in, DEVX_NUMBER, 24) != wq->wq_num)
		return -vb_refuse_combination("the command names another object");
	if (get64(c->in, DEVX_BITMASK))
		return -vb_refuse_unsupported("other changes beside the one to RST");
	memset(c->out, 0, c->outlen);
	return ibv_modify_wq(wq, &attr);
}

static int on_wq(const struct call *c, struct ibv_wq *wq)
{
	struct devx_queue queue = { 0 };
	int err;

	if (!wq || !mlx5dv_is_supported(wq->context->device))
		return -vb_refuse_not_mlx5();
	if (c->call == DEVX_MODIFY && is_opcode(c, OP_MODIFY_RQ) && c->inlen >= 272 &&
	    get(c->in, DEVX_CONTEXT + 0x8, 4) == DEVX_RST)
		return reset_wq(c, wq);
	queue.qp = vb_rq_get(vb_verbs_dev(wq->context), wq->wq_num);
	if (!queue.qp)
		return -vb_refuse_combination("the WQ is gone");
	put(queue.kept, 0x48, 24, wq->cq->handle);
	put(queue.kept, DEVX_WQ + 0x0, 4, 1); /* cyclic */
	put(queue.kept, DEVX_WQ + 0x48, 24, vb_pd_number(vb_verbs_pd(wq->pd)));
	err = devx_verbs_run(c, wq->context, VB_DEVX_RQ, wq->wq_num, &queue);
	if (!err && c->call == DEVX_MODIFY)
		wq->state = devx_wq_state_of(&queue) == DEVX_RDY ? IBV_WQS_RDY : IBV_WQS_ERR;
	vb_rq_put(queue.qp);
	return err;
}

/* --- indirection tables ----------------------------------------------------------------------- */

/*
 * The command works on a copy, with holds of its own. Of two that change a table at once the later
 * one stays.
 */
static int on_ind_tbl(const struct call *c, struct ibv_rwq_ind_table *table)
{
	bool changes = c->call == DEVX_MODIFY && c->in && c->inlen >= DEVX_BITMASK / 8 + 8 &&
		       get64(c->in, DEVX_BITMASK);
	struct devx_rqt rqt = { 0 };
	struct mlx5dv_devx_obj obj = { .mark = VB_DEVX_MARK, .kind = VB_DEVX_RQT, .rqt = &rqt };
	int err;

	if (!table || !mlx5dv_is_supported(table->context->device))
		return -vb_refuse_not_mlx5();
	if (vb_dev_stale(vb_verbs_dev(table->context)))
		return -vb_refuse_forked();
	obj.context = table->context;
	obj.number = (uint32_t)table->ind_tbl_num;
	rqt.max_size = vb_verbs_rings(table->context)->ind_table(table, &rqt.queues);
	err = devx_run(c->call, table->context, &obj, c->in, c->inlen, c->out, c->outlen);
	if (!err && changes)
		vb_verbs_rings(table->context)->swap_ind_table(table, &rqt.queues);
	while (rqt.queues.count)
		vb_rq_put(rqt.queues.wq[--rqt.queues.count]);
	return err;
}

/* --- calls ------------------------------------------------------------------------------------ */

#define DEVX_CALLS(name, type, word)                                                              \
	VB_PUBLIC int mlx5dv_devx_##name##_query(struct type *obj, const void *in, size_t inlen,  \
						 void *out, size_t outlen)                        \
	{                                                                                         \
		const struct call call = { DEVX_QUERY, in, inlen, out, outlen };                  \
		int err;                                                                          \
                                                                                                  \
		API_CALL(.kind = word, .detail = devx_name(in, inlen));                           \
		err = on_##name(&call, obj);                                                      \
		return err ? api_fail(err) : 0;                                                   \
	}                                                                                         \
                                                                                                  \
	VB_PUBLIC int mlx5dv_devx_##name##_modify(struct type *obj, const void *in, size_t inlen, \
						  void *out, size_t outlen)                       \
	{                                                                                         \
		const struct call call = { DEVX_MODIFY, in, inlen, out, outlen };                 \
		int err;                                                                          \
                                                                                                  \
		API_CALL(.kind = word, .detail = devx_name(in, inlen));                           \
		err = on_##name(&call, obj);                                                      \
		return err ? api_fail(err) : 0;                                                   \
	}

DEVX_CALLS(qp, ibv_qp, "QP")
DEVX_CALLS(cq, ibv_cq, "CQ")
DEVX_CALLS(srq, ibv_srq, "SRQ")
DEVX_CALLS(wq, ibv_wq, "WQ")
DEVX_CALLS(ind_tbl, ibv_rwq_ind_table, "indirection table")
