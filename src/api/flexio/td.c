// SPDX-License-Identifier: MIT
/*
 * Owns transport domains and TISes. A frame does not come back to receive queues of the domain that
 * its send queue has.
 */
#include "queue.h"

#include "card/ether/flow.h"

struct flexio_transport_domain {
	struct queue queue; /* first */
	struct vb_card *card;
	uint32_t number; /* of the card */
	_Atomic unsigned int users;
};

struct flexio_sq_tis {
	struct queue queue; /* first */
	struct flexio_transport_domain *td;
	_Atomic unsigned int users;
};

bool vb_td_hold(struct flexio_transport_domain *td, const struct queue_place *place)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_TD, td);

	if (!pin || td->queue.ctx != place->ctx)
		return false;
	atomic_fetch_add_explicit(&td->users, 1, memory_order_relaxed);
	return true;
}

void vb_td_release(struct flexio_transport_domain *td)
{
	atomic_fetch_sub_explicit(&td->users, 1, memory_order_release);
}

uint32_t vb_td_number(const struct flexio_transport_domain *td)
{
	return td->number;
}

bool vb_tis_hold(struct flexio_sq_tis *tis, const struct queue_place *place)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_TIS, tis);

	if (!pin || tis->queue.ctx != place->ctx)
		return false;
	atomic_fetch_add_explicit(&tis->users, 1, memory_order_relaxed);
	return true;
}

uint32_t vb_tis_domain(const struct flexio_sq_tis *tis)
{
	return vb_td_number(tis->td);
}

void vb_tis_release(struct flexio_sq_tis *tis)
{
	atomic_fetch_sub_explicit(&tis->users, 1, memory_order_release);
}

/* ---- transport domains ---- */

static void td_free(struct flexio_transport_domain *td)
{
	if (td->number)
		vb_transport_domain_give(td->card, td->number);
	vb_queue_free(&td->queue);
}

flexio_status flexio_transport_domain_create(struct ibv_context *ibv_ctx,
					     struct flexio_transport_domain **td)
{
	struct flexio_transport_domain *t;

	API_CALL();
	if (!td)
		return fail("td is NULL");
	if (!vb_accel_adapter(ibv_ctx))
		return fail("%s is no adapter of the format mlx5",
			    ibv_ctx && ibv_ctx->device ? ibv_ctx->device->name : "ibv_ctx");
	t = vb_queue_new(QUEUE_TD, NULL, ibv_ctx, sizeof(*t));
	if (!t)
		return failed();
	t->card = vb_accel_adapter(ibv_ctx)->card;
	t->number = vb_transport_domain_take(t->card);
	if (!t->number)
		fail("no transport domain is left");
	if (!t->number || !vb_queue_publish(&t->queue)) {
		td_free(t);
		return failed();
	}
	*td = t;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_transport_domain_destroy(struct flexio_transport_domain *td)
{
	API_CALL();
	if (!td)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_TD, td))
		return bad_handle(td, "transport domain");
	/* Pairs with the release in vb_td_release(). */
	if (atomic_load_explicit(&td->users, memory_order_acquire)) {
		vb_queue_revive(&td->queue);
		return fail("RQs or TISes still use transport domain %p; destroy them first",
			    (void *)td);
	}
	td_free(td);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- TISes ---- */

flexio_status flexio_sq_tis_create(struct ibv_context *ibv_ctx, struct flexio_transport_domain *td,
				   struct flexio_sq_tis **tis)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(QUEUE_TD, td);
	struct flexio_sq_tis *t;

	API_CALL();
	if (!pin)
		return bad_handle(td, "transport domain");
	if (!ibv_ctx || !tis)
		return fail("%s is NULL", !ibv_ctx ? "ibv_ctx" : "tis");
	if (td->queue.ctx != ibv_ctx)
		return fail("the transport domain is of another device context than ibv_ctx");
	t = vb_queue_new(QUEUE_TIS, NULL, ibv_ctx, sizeof(*t));
	if (!t)
		return failed();
	t->td = td;
	if (!vb_queue_publish(&t->queue)) {
		vb_queue_free(&t->queue);
		return failed();
	}
	atomic_fetch_add_explicit(&td->users, 1, memory_order_relaxed);
	*tis = t;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_sq_tis_destroy(struct flexio_sq_tis *tis)
{
	API_CALL();
	if (!tis)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_TIS, tis))
		return bad_handle(tis, "TIS");
	/* Pairs with the release in vb_tis_release(). */
	if (atomic_load_explicit(&tis->users, memory_order_acquire)) {
		vb_queue_revive(&tis->queue);
		return fail("SQs still use TIS %p; destroy them first", (void *)tis);
	}
	vb_td_release(tis->td);
	vb_queue_free(&tis->queue);
	return FLEXIO_STATUS_SUCCESS;
}
