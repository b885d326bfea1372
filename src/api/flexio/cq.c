// SPDX-License-Identifier: MIT
/*
 * Owns completion queues: a CQ of the card over device memory (or a umem), and what its events lead
 * to.
 *
 *	CQE --> card --armed?--> flexio_cq_notify() --> event handler, an entry of an event queue, or an interrupt
 *	                                      of an emulated function
 */
#include "object.h"

#include "card/emulation/emulation.h"
#include "card/queue/cq.h"
#include "card/queue/doorbell.h"
#include "card/queue/eq.h"
#include "card/queue/umem.h"
#include "queue.h"

enum { MAX_LOG_DEPTH = 22 };

struct flexio_cq {
	struct queue queue; /* first */
	struct vb_cq *card;
	struct flexio_event_handler *handler; /* or NULL */
	bool on_eq;                           /* events go to an event queue: */
	struct vb_eq *eq;                     /* this one, or NULL: a completion vector's */
	struct vb_eq_user eq_user;
	struct vb_emu_eq *emu_eq;      /* or NULL */
	struct flexio_cq_attr attr;    /* as it was made */
	struct mlx5dv_devx_obj object; /* lent to libmlx5 */
};

static void flexio_cq_notify(void *cookie)
{
	struct flexio_cq *cq = cookie;

	if (cq->handler)
		vb_handler_event(cq->handler);
	else if (cq->eq)
		vb_eq_completion(cq->eq, vb_cq_number(cq->card));
	else if (cq->emu_eq)
		vb_emu_eq_raise(cq->emu_eq);
	vb_listeners_complete(&cq->object.listeners, vb_cq_number(cq->card));
}

static void flexio_cq_event(void *cookie, enum ibv_event_type type)
{
	struct flexio_cq *cq = cookie;

	vb_queue_log_event("CQ", vb_cq_number(cq->card), type);
	vb_listeners_tell(&cq->object.listeners, type, vb_cq_number(cq->card));
}

/* The context of QUERY_CQ. */
static void flexio_cq_look(const struct mlx5dv_devx_obj *obj, uint8_t *context)
{
	const struct flexio_cq *cq = container_of(obj, struct flexio_cq, object);
	const struct flexio_cq_attr *attr = &cq->attr;
	struct vb_cq_moderation moderation = vb_cq_moderation(cq->card);
	bool lost;
	uint32_t produced = vb_cq_produced(cq->card, &lost);
	enum { OVERFLOWN = 9 };

	vb_object_put(context, 0x0, 4, lost ? OVERFLOWN : 0);
	vb_object_put(context, 0xb, 1, attr->cc);
	vb_object_put(context, 0xe, 1, attr->overrun_ignore);
	vb_object_put(context, 0xf, 2, moderation.from_cqe);
	vb_object_put(context, 0x11, 1, attr->cqe_comp_type == FLEXIO_CQE_COMP_ENABLE);
	vb_object_put(context, 0x12, 2, attr->cqe_comp_format);
	vb_object_put(context, 0x18, 1, attr->always_armed);
	vb_object_put(context, 0x63, 5, attr->log_cq_depth);
	vb_object_put(context, 0x68, 24, attr->uar_id);
	vb_object_put(context, 0x84, 12, moderation.period_us);
	vb_object_put(context, 0x90, 16, moderation.max_count);
	vb_object_put(context, 0xb8, 8, cq->on_eq ? attr->emulated_eqn : 0);
	vb_object_put(context, 0x148, 24, vb_object_record(cq->queue.dbr.addr) & 0xffffff);
	vb_object_put(context, 0x168, 24, produced & 0xffffff);
}

static const struct vb_devx_lender lender = {
	.query = 0x402, .at = 16, .size = 64, .look = flexio_cq_look
};

/* ---- create ---- */

static flexio_status flexio_cq_check(const struct flexio_cq_attr *attr)
{
	if (attr->log_cq_depth > MAX_LOG_DEPTH)
		return fail("log_cq_depth is %u; allowed: 0 to %d", attr->log_cq_depth,
			    MAX_LOG_DEPTH);
	switch (attr->element_type) {
	case FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD:
	case FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ:
	case FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ:
	case FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ:
		break;
	default:
		return fail("0x%x is not an element_type", attr->element_type);
	}
	if ((unsigned int)attr->cqe_comp_type > FLEXIO_CQE_COMP_ENABLE)
		return fail("%u is not a cqe_comp_type", (unsigned int)attr->cqe_comp_type);
	if ((unsigned int)attr->cqe_comp_format > FLEXIO_CQE_FORMAT_RESP_L3_L4_INFO)
		return fail("%u is not a cqe_comp_format", (unsigned int)attr->cqe_comp_format);
	if (attr->cq_period_mode != FLEXIO_CQ_PERIOD_MODE_EVENT &&
	    attr->cq_period_mode != FLEXIO_CQ_PERIOD_MODE_CQE)
		return fail("%u is not a cq_period_mode", (unsigned int)attr->cq_period_mode);
	return FLEXIO_STATUS_SUCCESS;
}

/* A CQ that names a page of the host is rung by the host alone. */
static int flexio_cq_hold_uar(struct flexio_cq *cq, const struct queue_place *place,
			      const struct flexio_cq_attr *attr)
{
	if (attr->uar_base_addr && !vb_uar_is(place->dev, attr->uar_id, attr->uar_base_addr)) {
		fail("uar_base_addr: %p is not in a page %u of the host (mlx5dv_devx_alloc_uar); with a UAR of process %s it must be NULL",
		     attr->uar_base_addr, attr->uar_id, cq->queue.process->name);
		return -EINVAL;
	}
	if (attr->uar_base_addr)
		return 0;
	cq->queue.uar = vb_flexio_uar_hold(cq->queue.process, attr->uar_id, place->adapter);
	return cq->queue.uar ? 0 : -EINVAL;
}

static int hold_handler(struct flexio_cq *cq, const struct flexio_cq_attr *attr)
{
	struct flexio_process *process = cq->queue.process;

	if (attr->element_type != FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD)
		return 0;
	pthread_mutex_lock(&process->mutex);
	cq->handler = vb_handler_hold(process, attr->thread);
	pthread_mutex_unlock(&process->mutex);
	if (!cq->handler) {
		fail("%p is not the thread of an event handler of process %s", (void *)attr->thread,
		     process->name);
		return -EINVAL;
	}
	/* Device code is woken, so the background thread brings what arrives. */
	vb_progress_unpolled(vb_verbs_dev(process->ctx));
	return 0;
}

/* A number of mlx5dv_devx_query_eqn(): the driver reads that queue, and channels get its events. */
static bool is_vector(const struct queue_place *place, uint32_t eqn)
{
	return eqn >= VB_EQ_VECTORS && eqn <= UINT8_MAX &&
	       eqn - VB_EQ_VECTORS < (uint32_t)place->ctx->num_comp_vectors;
}

static int flexio_cq_hold_eq(struct flexio_cq *cq, const struct queue_place *place,
			     const struct flexio_cq_attr *attr)
{
	if (attr->element_type != FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ)
		return 0;
	cq->on_eq = true;
	if (is_vector(place, attr->emulated_eqn))
		return 0;
	if (cq->queue.uar)
		cq->eq_user.owner = vb_flexio_uar_owner(cq->queue.process, place->adapter);
	cq->eq = vb_eq_get(place->dev, attr->emulated_eqn, &cq->eq_user);
	if (!cq->eq)
		fail("event queue %u does not exist on %s", attr->emulated_eqn,
		     place->adapter->config->name);
	return cq->eq ? 0 : -EINVAL;
}

static int hold_emulated(struct flexio_cq *cq, const struct queue_place *place,
			 const struct flexio_cq_attr *attr)
{
	if (attr->element_type != FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ)
		return 0;
	cq->emu_eq = vb_emu_eq_get(place->adapter, attr->emulated_eqn);
	if (!cq->emu_eq)
		fail("emulated event queue %u does not exist on %s", attr->emulated_eqn,
		     place->adapter->config->name);
	return cq->emu_eq ? 0 : -EINVAL;
}

static int flexio_cq_get_memory(struct flexio_cq *cq, const struct queue_place *place,
				const struct flexio_cq_attr *attr)
{
	struct flexio_qmem dbr = { .memtype = FLEXIO_MEMTYPE_DPA, .daddr = attr->cq_dbr_daddr };
	struct queue *queue = &cq->queue;
	int err;

	err = vb_qmem_get(queue->process, place->dev, &attr->cq_ring_qmem,
			  64ull << attr->log_cq_depth, "the CQ's ring", &queue->ring);
	if (!err && queue->ring.umem && !vb_umem_writable(queue->ring.umem)) {
		fail("the CQ's ring: umem %u was not registered for writing",
		     attr->cq_ring_qmem.umem_id);
		err = -EINVAL;
	}
	if (!err)
		err = vb_qmem_get(queue->process, place->dev, &dbr, 8, "the CQ's doorbell record",
				  &queue->dbr);
	return err;
}

static int flexio_cq_make_card(struct flexio_cq *cq, const struct queue_place *place,
			       const struct flexio_cq_attr *attr)
{
	struct vb_cq_attr card = {
		.buf = cq->queue.ring.addr,
		.cqe_cnt = 1u << attr->log_cq_depth,
		.cqe_size = 64,
		.dbr = cq->queue.dbr.addr,
		/* Nobody reads what only raises interrupts, or arms it. */
		.ignore_overrun = attr->overrun_ignore || cq->emu_eq,
		.collapsed = attr->cc,
		.always_armed = (attr->always_armed && (cq->handler || cq->on_eq)) || cq->emu_eq,
		/*
		 * The older layout (BASIC) has owner bits; whether its entries are compressed is up
		 * to the card.
		 */
		.compressed = attr->cqe_comp_type == FLEXIO_CQE_COMP_ENABLE,
		.mini_format = (uint8_t)attr->cqe_comp_format,
		.cookie = cq,
		.notify = flexio_cq_notify,
		.event = flexio_cq_event,
		/* Programs give the CQ of an interrupt a page of the host, and device code rings it. */
		.owner = cq->queue.uar || cq->emu_eq
				 ? vb_flexio_uar_owner(cq->queue.process, place->adapter)
				 : 0,
		.moderation = { .max_count = attr->cq_max_count,
				.period_us = attr->cq_period,
				.from_cqe = attr->cq_period_mode == FLEXIO_CQ_PERIOD_MODE_CQE },
	};
	int err;

	CARD_WORDS(words);
	err = vb_cq_create(place->dev, &card, &cq->card);
	return err ? vb_queue_refused("CQ", place, &words, err) : 0;
}

static void flexio_cq_free(struct flexio_cq *cq)
{
	struct flexio_process *process = cq->queue.process;

	if (cq->handler) {
		pthread_mutex_lock(&process->mutex);
		vb_handler_release(cq->handler);
		pthread_mutex_unlock(&process->mutex);
	}
	if (cq->eq)
		vb_eq_put(cq->eq, &cq->eq_user);
	if (cq->emu_eq)
		vb_emu_eq_put(cq->emu_eq);
	vb_object_end(&cq->object);
	vb_queue_free(&cq->queue);
}

flexio_status flexio_cq_create(struct flexio_process *process, struct ibv_context *ibv_ctx,
			       const struct flexio_cq_attr *fattr, struct flexio_cq **cq)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct queue_place place;
	struct flexio_cq *c;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!fattr || !cq)
		return fail("%s is NULL", !fattr ? "fattr" : "cq");
	if (flexio_cq_check(fattr) || vb_queue_place(process, ibv_ctx, &place))
		return failed();
	c = vb_queue_new(QUEUE_CQ, process, place.ctx, sizeof(*c));
	if (!c)
		return failed();
	if (flexio_cq_hold_uar(c, &place, fattr) || hold_handler(c, fattr) ||
	    flexio_cq_hold_eq(c, &place, fattr) || hold_emulated(c, &place, fattr) ||
	    flexio_cq_get_memory(c, &place, fattr) || flexio_cq_make_card(c, &place, fattr))
		goto free_cq;
	c->attr = *fattr;
	vb_object_lend(&c->object, place.ctx, VB_DEVX_CQ, vb_cq_number(c->card), &lender);
	if (!vb_queue_publish(&c->queue))
		goto destroy_card;
	if ((c->handler || c->on_eq) && !fattr->no_arm && !fattr->always_armed)
		vb_cq_arm_at(c->card, 0);
	*cq = c;
	return FLEXIO_STATUS_SUCCESS;

destroy_card:
	vb_cq_destroy(c->card);
free_cq:
	flexio_cq_free(c);
	return failed();
}

flexio_status flexio_cq_destroy(struct flexio_cq *cq)
{
	int err;

	CARD_WORDS(words);
	API_CALL();
	if (!cq)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_CQ, cq))
		return bad_handle(cq, "CQ");
	err = vb_cq_destroy(cq->card);
	if (err) {
		vb_queue_revive(&cq->queue);
		return fail(
			"queues still use CQ 0x%x, or doorbells are mapped to it; destroy or unmap them first",
			vb_cq_number(cq->card));
	}
	flexio_cq_free(cq);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- moderation ---- */

flexio_status flexio_cq_modify_moderation(struct flexio_cq *cq, uint16_t max_count, uint16_t period,
					  uint16_t mode)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_CQ, cq);
	struct vb_cq_moderation moderation = {
		.max_count = max_count,
		.period_us = period,
		.from_cqe = mode == FLEXIO_CQ_PERIOD_MODE_CQE,
	};

	API_CALL();
	if (!pin)
		return bad_handle(cq, "CQ");
	if (mode != FLEXIO_CQ_PERIOD_MODE_EVENT && mode != FLEXIO_CQ_PERIOD_MODE_CQE)
		return fail("CQ 0x%x: %u is not a period mode; allowed: 0 and 1",
			    vb_cq_number(cq->card), mode);
	vb_cq_set_moderation(cq->card, &moderation);
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_cq_query_moderation(struct flexio_cq *cq, uint16_t *max_count,
					 uint16_t *period, uint16_t *mode)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_CQ, cq);
	struct vb_cq_moderation moderation;

	API_CALL();
	if (!pin)
		return bad_handle(cq, "CQ");
	if (!max_count || !period || !mode)
		return fail("%s is NULL", !max_count ? "max_count" : !period ? "period" : "mode");
	moderation = vb_cq_moderation(cq->card);
	*max_count = moderation.max_count;
	*period = moderation.period_us;
	*mode = moderation.from_cqe ? FLEXIO_CQ_PERIOD_MODE_CQE : FLEXIO_CQ_PERIOD_MODE_EVENT;
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- what is asked ---- */

uint32_t vb_flexio_cq_number(const struct flexio_cq *cq)
{
	return vb_cq_number(cq->card);
}

uint32_t flexio_cq_get_cq_num(struct flexio_cq *cq)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_CQ, cq);

	API_CALL();
	if (!pin) {
		bad_handle(cq, "CQ");
		return UINT32_MAX;
	}
	return vb_cq_number(cq->card);
}

struct mlx5dv_devx_obj *flexio_cq_get_obj(struct flexio_cq *cq)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_CQ, cq);

	API_CALL();
	if (!pin) {
		bad_handle(cq, "CQ");
		return NULL;
	}
	return &cq->object;
}
