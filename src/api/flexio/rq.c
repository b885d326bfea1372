// SPDX-License-Identifier: MIT
/*
 * Owns receive queues of raw frames, and their TIRs: what rules of libmlx5 steer frames to, made
 * when a program asks for it. Where WQEs are linked, the ring is a shared receive queue of the card
 * that one queue uses.
 */
#include "queue.h"

#include <pthread.h>

#include "card/ether/flow.h"
#include "card/queue/cq.h"
#include "card/queue/qp.h"
#include "card/queue/srq.h"
#include "object.h"

enum { MAX_LOG_DEPTH = 15, MIN_LOG_STRIDE = 4, MAX_LOG_STRIDE = 10, LINKED_MIN_LOG_STRIDE = 5 };

struct flexio_rq {
	struct queue queue; /* first */
	struct vb_qp *card;
	struct vb_srq *links;               /* linked WQEs, or NULL */
	struct flexio_transport_domain *td; /* NULL: none was given */
	pthread_mutex_t lock;               /* of tir */
	struct flexio_wq_attr attr;         /* as it was made, with the stride that counts */
	uint32_t cqn;
	struct mlx5dv_devx_obj tir, object; /* lent to libmlx5; tir is marked when it is there */
};

static void rq_event(void *cookie, enum ibv_event_type type)
{
	struct flexio_rq *rq = cookie;

	vb_queue_log_event("RQ", vb_qp_number(rq->card), type);
	vb_listeners_tell(&rq->object.listeners, type, vb_qp_number(rq->card));
}

/* ---- shared with RMPs and SQs ---- */

static int check_ring(const struct flexio_wq_attr *attr, unsigned int stride, bool linked)
{
	if (attr->rq.wq_type != FLEXIO_WQ_TYPE_LINKED_LIST &&
	    attr->rq.wq_type != FLEXIO_WQ_TYPE_CYCLIC) {
		fail("%u is not a wq_type", (unsigned int)attr->rq.wq_type);
		return -EINVAL;
	}
	if (attr->rq.end_pad_mode != FLEXIO_WQ_END_PAD_NONE &&
	    attr->rq.end_pad_mode != FLEXIO_WQ_END_PAD_ALIGN) {
		fail("%u is not an end_pad_mode", (unsigned int)attr->rq.end_pad_mode);
		return -EINVAL;
	}
	if (attr->log_wq_depth > MAX_LOG_DEPTH || stride > MAX_LOG_STRIDE ||
	    stride < (linked ? (unsigned int)LINKED_MIN_LOG_STRIDE : MIN_LOG_STRIDE)) {
		fail("log_wq_depth is %u, log_wq_stride %u; allowed: 0 to %d, and %d to %d (%s)",
		     attr->log_wq_depth, attr->log_wq_stride, MAX_LOG_DEPTH,
		     linked ? LINKED_MIN_LOG_STRIDE : MIN_LOG_STRIDE, MAX_LOG_STRIDE,
		     linked ? "a linked list" : "0: 4");
		return -EINVAL;
	}
	if (attr->user_index > 0xffffff) {
		fail("user_index 0x%x has more than 24 bits", attr->user_index);
		return -EINVAL;
	}
	return 0;
}

int vb_wq_memory(struct queue *queue, const struct queue_place *place,
		 const struct flexio_wq_attr *attr, struct vb_srq_attr *card)
{
	unsigned int stride = attr->log_wq_stride ? attr->log_wq_stride : MIN_LOG_STRIDE;
	bool linked = attr->rq.wq_type == FLEXIO_WQ_TYPE_LINKED_LIST;
	int err;

	/* A link and a pointer do not fit 16 bytes: programs that leave all of it 0 mean a ring. */
	if (card->single && stride < LINKED_MIN_LOG_STRIDE)
		linked = false;
	err = check_ring(attr, stride, linked);

	if (!err)
		err = vb_qmem_get(queue->process, place->dev, &attr->wq_ring_qmem,
				  1ull << (attr->log_wq_depth + stride), "the receive ring",
				  &queue->ring);
	if (!err)
		err = vb_qmem_get(queue->process, place->dev, &attr->wq_dbr_qmem, 8,
				  "the receive queue's doorbell record", &queue->dbr);
	if (err)
		return err;
	card->buf = queue->ring.addr;
	card->wqe_cnt = 1u << attr->log_wq_depth;
	card->wqe_shift = stride;
	card->dbr = queue->dbr.addr;
	card->cyclic = !linked;
	return 0;
}

int vb_raw_start(struct vb_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int err = vb_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_PORT);

	attr.qp_state = IBV_QPS_RTR;
	if (!err)
		err = vb_qp_modify(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	return err ? err : vb_qp_modify(qp, &attr, IBV_QP_STATE);
}

/* ---- create and destroy ---- */

static int rq_make_ring(struct flexio_rq *rq, const struct queue_place *place,
			const struct flexio_wq_attr *attr, struct vb_qp_attr *card)
{
	struct vb_srq_attr ring = { .pd = card->pd, .anonymous = true, .single = true };
	int err;

	CARD_WORDS(words);
	err = vb_wq_memory(&rq->queue, place, attr, &ring);
	if (err)
		return err;
	card->dbr = ring.dbr;
	if (ring.cyclic) {
		card->rq_buf = ring.buf;
		card->rq_cnt = ring.wqe_cnt;
		card->rq_shift = ring.wqe_shift;
		return 0;
	}
	err = vb_srq_create(place->dev, &ring, &rq->links);
	card->srq = rq->links;
	return err ? vb_queue_refused("RQ's list", place, &words, err) : 0;
}

static int rq_make_card(struct flexio_rq *rq, const struct queue_place *place, uint32_t cq_num,
			const struct flexio_wq_attr *attr)
{
	struct vb_qp_attr card = {
		.type = IBV_QPT_RAW_PACKET,
		.cookie = rq,
		.event = rq_event,
		.uidx = attr->user_index,
		.vlan_strip = !attr->rq.vlan_strip_disable,
		.owner = rq->queue.uar ? vb_flexio_uar_owner(rq->queue.process, place->adapter) : 0,
	};
	int err;

	CARD_WORDS(words);
	card.pd = vb_queue_pd(rq->queue.process, place, attr->pd);
	err = card.pd ? rq_make_ring(rq, place, attr, &card) : -EINVAL;
	if (err)
		return err;
	card.send_cq = card.recv_cq = vb_cq_get(place->dev, cq_num);
	if (!card.recv_cq) {
		fail("cq_num: CQ 0x%x does not exist on %s", cq_num, place->adapter->config->name);
		return -EINVAL;
	}
	err = vb_qp_create(place->dev, &card, &rq->card);
	vb_cq_put(card.recv_cq);
	if (!err)
		err = vb_raw_start(rq->card);
	return err ? vb_queue_refused("RQ", place, &words, err) : 0;
}

/* The context of QUERY_RQ, with that of its work queue in it. */
static void look_rq(const struct mlx5dv_devx_obj *obj, uint8_t *context)
{
	const struct flexio_rq *rq = container_of(obj, struct flexio_rq, object);
	const struct flexio_wq_attr *attr = &rq->attr;
	enum { RDY = 1, ERR = 3, WQ = 0x180, LINKED = 0, CYCLIC = 1 };

	vb_object_put(context, 0x3, 1, attr->rq.vlan_strip_disable);
	vb_object_put(context, 0x8, 4, vb_qp_state(rq->card) == IBV_QPS_ERR ? ERR : RDY);
	vb_object_put(context, 0x28, 24, attr->user_index);
	vb_object_put(context, 0x48, 24, rq->cqn);
	vb_object_put(context, WQ + 0x0, 4, rq->links ? LINKED : CYCLIC);
	vb_object_put(context, WQ + 0x5, 2, attr->rq.end_pad_mode);
	vb_object_put(context, WQ + 0x68, 24, attr->uar_id);
	vb_object_put(context, WQ + 0xe0, 32, vb_object_record(rq->queue.dbr.addr));
	vb_object_put(context, WQ + 0x10c, 4, attr->log_wq_stride);
	vb_object_put(context, WQ + 0x11b, 5, attr->log_wq_depth);
}

/* The context of QUERY_TIR: a direct one. */
static void look_tir(const struct mlx5dv_devx_obj *obj, uint8_t *context)
{
	const struct flexio_rq *rq = container_of(obj, struct flexio_rq, tir);

	vb_object_put(context, 0xe8, 24, vb_qp_number(rq->card));
	vb_object_put(context, 0x128, 24, rq->td ? vb_td_number(rq->td) : 0);
}

static const struct vb_devx_lender rq_lender = {
	.query = 0x90b, .at = 32, .size = 240, .look = look_rq
};
static const struct vb_devx_lender tir_lender = {
	.query = 0x903, .at = 32, .size = 240, .look = look_tir
};

/* It takes frames that others send, none of its own transport domain. */
static int rq_make_tir(struct flexio_rq *rq)
{
	struct vb_tir_attr attr = {
		.rq = rq->card,
		.transport_domain = rq->td ? vb_td_number(rq->td) : 0,
	};
	struct queue_place place;
	struct vb_tir *tir;
	int err = vb_queue_place(rq->queue.process, rq->queue.ctx, &place);

	CARD_WORDS(words);
	if (err)
		return err;
	err = vb_tir_create(place.dev, &attr, &tir);
	if (err)
		return vb_queue_refused("RQ's TIR", &place, &words, err);
	vb_object_lend(&rq->tir, rq->queue.ctx, VB_DEVX_TIR, vb_tir_number(tir), &tir_lender);
	rq->tir.tir = tir;
	return 0;
}

/*
 * -EBUSY: rules of libmlx5 lead to the TIR and nothing has changed, or another TIR has the queue
 * and only its own one is gone.
 */
static int end_card(struct flexio_rq *rq)
{
	int err = rq->tir.tir ? vb_tir_destroy(rq->tir.tir) : 0;

	if (err)
		return err;
	vb_object_end(&rq->tir);
	err = rq->card ? vb_qp_destroy(rq->card) : 0;
	if (!err)
		rq->card = NULL;
	return err;
}

/* What is left behind end_card(). */
static void rq_free(struct flexio_rq *rq)
{
	pthread_mutex_destroy(&rq->lock);
	vb_object_end(&rq->object);
	if (rq->links)
		vb_srq_destroy(rq->links);
	if (rq->td)
		vb_td_release(rq->td);
	vb_queue_free(&rq->queue);
}

static bool hold_td(struct flexio_rq *rq, const struct queue_place *place,
		    struct flexio_transport_domain *td)
{
	if (!td)
		return true;
	if (!vb_td_hold(td, place)) {
		fail("%p is not a transport domain of %s", (void *)td,
		     place->adapter->config->name);
		return false;
	}
	rq->td = td;
	return true;
}

/* Receive queues have no doorbell, so a UAR need not be named. */
static bool rq_hold_uar(struct flexio_rq *rq, const struct queue_place *place, uint32_t id)
{
	if (!id)
		return true;
	rq->queue.uar = vb_flexio_uar_hold(rq->queue.process, id, place->adapter);
	return rq->queue.uar;
}

/* The process is pinned. */
static flexio_status rq_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       uint32_t cq_num, const struct flexio_wq_attr *fattr,
			       struct flexio_rq **flexio_rq_ptr)
{
	struct queue_place place;
	struct flexio_rq *rq;

	if (!fattr || !flexio_rq_ptr)
		return fail("%s is NULL", !fattr ? "fattr" : "flexio_rq_ptr");
	if (vb_queue_place(process, ibv_ctx, &place))
		return failed();
	rq = vb_queue_new(QUEUE_RQ, process, place.ctx, sizeof(*rq));
	if (!rq)
		return failed();
	pthread_mutex_init(&rq->lock, NULL);
	if (!hold_td(rq, &place, fattr->rq.td) || !rq_hold_uar(rq, &place, fattr->uar_id) ||
	    rq_make_card(rq, &place, cq_num, fattr) || !vb_queue_publish(&rq->queue)) {
		end_card(rq);
		rq_free(rq);
		return failed();
	}
	rq->attr = *fattr;
	if (!rq->attr.log_wq_stride)
		rq->attr.log_wq_stride = MIN_LOG_STRIDE;
	rq->cqn = cq_num;
	vb_object_lend(&rq->object, rq->queue.ctx, VB_DEVX_RQ, vb_qp_number(rq->card), &rq_lender);
	*flexio_rq_ptr = rq;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_rq_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       uint32_t cq_num, const struct flexio_wq_attr *fattr,
			       struct flexio_rq **flexio_rq_ptr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	return rq_create(process, ibv_ctx, cq_num, fattr, flexio_rq_ptr);
}

flexio_status flexio_rq_create_cross_dev(struct flexio_process *process,
					 struct ibv_context *ibv_ctx, uint32_t cq_num,
					 const struct flexio_wq_attr *fattr,
					 struct flexio_rq **flexio_rq_ptr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!ibv_ctx || vb_accel_adapter(ibv_ctx) == process->uar.adapter)
		return fail("ibv_ctx must be of another device than process %s, which is on %s",
			    process->name, process->uar.adapter->config->name);
	return rq_create(process, ibv_ctx, cq_num, fattr, flexio_rq_ptr);
}

flexio_status flexio_rq_destroy(struct flexio_rq *flexio_rq)
{
	API_CALL();
	if (!flexio_rq)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_RQ, flexio_rq))
		return bad_handle(flexio_rq, "RQ");
	if (end_card(flexio_rq)) {
		vb_queue_revive(&flexio_rq->queue);
		return fail(
			"flow rules or TIRs of libmlx5 still lead to RQ 0x%x; destroy them first",
			vb_qp_number(flexio_rq->card));
	}
	rq_free(flexio_rq);
	return FLEXIO_STATUS_SUCCESS;
}

/* What was posted completes with a flush error. */
flexio_status flexio_rq_set_err_state(struct flexio_rq *rq)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_RQ, rq);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int err;

	CARD_WORDS(words);
	API_CALL();
	if (!pin)
		return bad_handle(rq, "RQ");
	err = vb_qp_modify(rq->card, &attr, IBV_QP_STATE);
	return err ? fail("RQ 0x%x cannot go to the error state: %s", vb_qp_number(rq->card),
			  card_reason(&words, err))
		   : FLEXIO_STATUS_SUCCESS;
}

/* ---- queries ---- */

uint32_t flexio_rq_get_wq_num(struct flexio_rq *rq)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_RQ, rq);

	API_CALL();
	if (!pin) {
		bad_handle(rq, "RQ");
		return UINT32_MAX;
	}
	return vb_qp_number(rq->card);
}

struct mlx5dv_devx_obj *flexio_rq_get_tir(struct flexio_rq *rq)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_RQ, rq);
	int err;

	API_CALL();
	if (!pin) {
		bad_handle(rq, "RQ");
		return NULL;
	}
	pthread_mutex_lock(&rq->lock);
	err = rq->tir.tir ? 0 : rq_make_tir(rq);
	pthread_mutex_unlock(&rq->lock);
	return err ? NULL : &rq->tir;
}

struct mlx5dv_devx_obj *flexio_rq_get_object(struct flexio_rq *rq)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_RQ, rq);

	API_CALL();
	if (!pin) {
		bad_handle(rq, "RQ");
		return NULL;
	}
	return &rq->object;
}
