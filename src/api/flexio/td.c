// SPDX-License-Identifier: MIT
/*
 * Owns transport domains and TISes: what ties raw queues to each other and to steering. Nothing is steered yet, so they
 * only know their device and who uses them.
 */
#include "queue.h"

struct flexio_transport_domain {
	struct queue queue; /* first */
	struct ibv_context *ctx;
	_Atomic unsigned int users;
};

struct flexio_sq_tis {
	struct queue queue; /* first */
	struct flexio_transport_domain *td;
	_Atomic unsigned int users;
};

void vb_td_use(struct flexio_transport_domain *td, int change)
{
	atomic_fetch_add(&td->users, (unsigned int)change);
}

void vb_tis_use(struct flexio_sq_tis *tis, int change)
{
	atomic_fetch_add(&tis->users, (unsigned int)change);
}

bool vb_td_fits(struct flexio_transport_domain *td, const struct queue_place *place)
{
	return vb_queue_valid(QUEUE_TD, td) && td->ctx == place->ctx;
}

bool vb_tis_fits(struct flexio_sq_tis *tis, const struct queue_place *place)
{
	return vb_queue_valid(QUEUE_TIS, tis) && tis->td->ctx == place->ctx;
}

/* ---- transport domains ---- */

flexio_status flexio_transport_domain_create(struct ibv_context *ibv_ctx,
					     struct flexio_transport_domain **td)
{
	struct flexio_transport_domain *t;

	if (!td || !vb_accel_adapter(ibv_ctx))
		return fail("no mlx5 device, or nowhere to put the transport domain");
	t = vb_queue_new(QUEUE_TD, NULL, sizeof(*t));
	if (!t)
		return FLEXIO_STATUS_FAILED;
	t->ctx = ibv_ctx;
	if (!vb_queue_publish(&t->queue)) {
		vb_queue_free(&t->queue);
		return FLEXIO_STATUS_FAILED;
	}
	*td = t;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_transport_domain_destroy(struct flexio_transport_domain *td)
{
	if (!td)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_TD, td))
		return fail("not a transport domain");
	if (atomic_load(&td->users)) {
		vb_queue_revive(&td->queue);
		return fail("queues still use the transport domain");
	}
	vb_queue_free(&td->queue);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- TISes ---- */

flexio_status flexio_sq_tis_create(struct ibv_context *ibv_ctx, struct flexio_transport_domain *td,
				   struct flexio_sq_tis **tis)
{
	struct flexio_sq_tis *t;

	if (!vb_queue_valid(QUEUE_TD, td))
		return fail("not a transport domain");
	if (!ibv_ctx || !tis || td->ctx != ibv_ctx)
		return fail(
			"no device, nowhere to put the TIS, or a transport domain of another device");
	t = vb_queue_new(QUEUE_TIS, NULL, sizeof(*t));
	if (!t)
		return FLEXIO_STATUS_FAILED;
	t->td = td;
	if (!vb_queue_publish(&t->queue)) {
		vb_queue_free(&t->queue);
		return FLEXIO_STATUS_FAILED;
	}
	vb_td_use(td, 1);
	*tis = t;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_sq_tis_destroy(struct flexio_sq_tis *tis)
{
	if (!tis)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_queue_end(QUEUE_TIS, tis))
		return fail("not a TIS");
	if (atomic_load(&tis->users)) {
		vb_queue_revive(&tis->queue);
		return fail("send queues still use the TIS");
	}
	vb_td_use(tis->td, -1);
	vb_queue_free(&tis->queue);
	return FLEXIO_STATUS_SUCCESS;
}
