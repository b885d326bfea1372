// SPDX-License-Identifier: MIT
/*
 * Owns send queues of raw frames. The flags of their Ethernet segments are those of the FlexIO
 * manual.
 */
#include "queue.h"

#include "card/queue/cq.h"
#include "card/queue/qp.h"

enum { MAX_LOG_DEPTH = 15, BLOCK_LOG = 6, DEFAULT_LOG_STRIDE = 4 };

struct flexio_sq {
	struct queue queue; /* first */
	struct vb_qp *card;
	struct flexio_sq_tis *tis; /* NULL: none was given */
	__be32 no_record[2];       /* stands in where the program has none; stays 0 */
};

static void sq_event(void *cookie, enum ibv_event_type type)
{
	struct flexio_sq *sq = cookie;

	vb_queue_log_event("SQ", vb_qp_number(sq->card), type);
}

static flexio_status sq_check(const struct flexio_wq_attr *attr)
{
	if (attr->log_wq_depth > MAX_LOG_DEPTH)
		return fail("log_wq_depth is %u; allowed: 0 to %d", attr->log_wq_depth,
			    MAX_LOG_DEPTH);
	/* The attribute's default may be named: a send queue is counted in blocks all the same. */
	if (attr->log_wq_stride && attr->log_wq_stride != BLOCK_LOG &&
	    attr->log_wq_stride != DEFAULT_LOG_STRIDE)
		return fail("log_wq_stride is %u; a send queue has %d, or 0 or %d for the same",
			    attr->log_wq_stride, BLOCK_LOG, DEFAULT_LOG_STRIDE);
	if (attr->user_index > 0xffffff)
		return fail("user_index 0x%x has more than 24 bits", attr->user_index);
	return FLEXIO_STATUS_SUCCESS;
}

/*
 * Device code rings with the producer index, so most programs name no record; one that is named
 * must be there.
 */
static int sq_get_memory(struct flexio_sq *sq, const struct queue_place *place,
			 const struct flexio_wq_attr *attr)
{
	const struct flexio_qmem *dbr = &attr->wq_dbr_qmem;
	struct queue *queue = &sq->queue;
	int err;

	err = vb_qmem_get(queue->process, place->dev, &attr->wq_ring_qmem,
			  64ull << attr->log_wq_depth, "the SQ's ring", &queue->ring);
	if (!err && (dbr->memtype != FLEXIO_MEMTYPE_DPA || dbr->daddr))
		err = vb_qmem_get(queue->process, place->dev, dbr, 8, "the SQ's doorbell record",
				  &queue->dbr);
	return err;
}

static int sq_make_card(struct flexio_sq *sq, const struct queue_place *place, uint32_t cq_num,
			const struct flexio_wq_attr *attr)
{
	struct queue *queue = &sq->queue;
	struct vb_qp_attr card = {
		.type = IBV_QPT_RAW_PACKET,
		.sq_cnt = 1u << attr->log_wq_depth,
		.cookie = sq,
		.event = sq_event,
		.uidx = attr->user_index,
		.owner = vb_flexio_uar_owner(queue->process, place->adapter),
		.transport_domain = sq->tis ? vb_tis_domain(sq->tis) : 0,
		.flexio_swp = true,
		.single_frames = !attr->sq.allow_multi_pkt_send_wqe,
	};
	int err;

	CARD_WORDS(words);
	card.pd = vb_queue_pd(queue->process, place, attr->pd);
	err = card.pd ? sq_get_memory(sq, place, attr) : -EINVAL;
	if (err)
		return err;
	card.send_cq = card.recv_cq = vb_cq_get(place->dev, cq_num);
	if (!card.send_cq) {
		fail("cq_num: CQ 0x%x does not exist on %s", cq_num, place->adapter->config->name);
		return -EINVAL;
	}
	card.sq_buf = queue->ring.addr;
	card.dbr = queue->dbr.addr ? queue->dbr.addr : sq->no_record;
	err = vb_qp_create(place->dev, &card, &sq->card);
	vb_cq_put(card.send_cq);
	if (!err)
		err = vb_raw_start(sq->card);
	return err ? vb_queue_refused("SQ", place, &words, err) : 0;
}

static void sq_free(struct flexio_sq *sq)
{
	if (sq->card)
		vb_qp_destroy(sq->card);
	if (sq->tis)
		vb_tis_release(sq->tis);
	vb_queue_free(&sq->queue);
}

static bool sq_hold_tis(struct flexio_sq *sq, const struct queue_place *place,
			struct flexio_sq_tis *tis)
{
	if (!tis)
		return true;
	if (!vb_tis_hold(tis, place)) {
		fail("%p is not a TIS of %s", (void *)tis, place->adapter->config->name);
		return false;
	}
	sq->tis = tis;
	return true;
}

/* The process is pinned. */
static flexio_status sq_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       uint32_t cq_num, const struct flexio_wq_attr *fattr,
			       struct flexio_sq **flexio_sq_ptr)
{
	struct queue_place place;
	struct flexio_sq *sq;

	if (!fattr || !flexio_sq_ptr)
		return fail("%s is NULL", !fattr ? "fattr" : "flexio_sq_ptr");
	if (vb_queue_place(process, ibv_ctx, &place) || sq_check(fattr))
		return failed();
	sq = vb_queue_new(QUEUE_SQ, process, place.ctx, sizeof(*sq));
	if (!sq)
		return failed();
	if (sq_hold_tis(sq, &place, fattr->sq.tis))
		sq->queue.uar = vb_flexio_uar_hold(process, fattr->uar_id, place.adapter);
	if (!sq->queue.uar || sq_make_card(sq, &place, cq_num, fattr) ||
	    !vb_queue_publish(&sq->queue)) {
		sq_free(sq);
		return failed();
	}
	*flexio_sq_ptr = sq;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_sq_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       uint32_t cq_num, const struct flexio_wq_attr *fattr,
			       struct flexio_sq **flexio_sq_ptr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	return sq_create(process, ibv_ctx, cq_num, fattr, flexio_sq_ptr);
}

flexio_status flexio_sq_create_cross_dev(struct flexio_process *process,
					 struct ibv_context *ibv_ctx, uint32_t cq_num,
					 const struct flexio_wq_attr *fattr,
					 struct flexio_sq **flexio_sq_ptr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!ibv_ctx || vb_accel_adapter(ibv_ctx) == process->uar.adapter)
		return fail("ibv_ctx must be of another device than process %s, which is on %s",
			    process->name, process->uar.adapter->config->name);
	return sq_create(process, ibv_ctx, cq_num, fattr, flexio_sq_ptr);
}

flexio_status flexio_sq_destroy(struct flexio_sq *flexio_sq)
{
	API_CALL();
	if (!flexio_sq)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_SQ, flexio_sq))
		return bad_handle(flexio_sq, "SQ");
	sq_free(flexio_sq);
	return FLEXIO_STATUS_SUCCESS;
}

uint32_t flexio_sq_get_wq_num(struct flexio_sq *sq)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_SQ, sq);

	API_CALL();
	if (!pin) {
		bad_handle(sq, "SQ");
		return UINT32_MAX;
	}
	return vb_qp_number(sq->card);
}
