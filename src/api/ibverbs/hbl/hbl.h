/* SPDX-License-Identifier: MIT */
/*
 * Objects of the hbl provider: those of the core, followed by the card's hbl object. So events,
 * counts and lists work as for every other device.
 */
#pragma once

#include "api/ibverbs/core/objects.h"

struct hbl_context {
	struct api_context api; /* first */
	struct vb_hbl *card;
	unsigned int opens; /* how often it is open; opens and closes are serialised */
	bool has_pd;        /* its one protection domain is taken; under the context's mutex */
};

struct hbl_cq {
	struct api_cq api; /* first */
	struct vb_hbl_cq *card;
};

struct hbl_qp {
	struct api_qp api; /* first */
	struct vb_hbl_qp *card;
};

static inline struct hbl_context *to_hbl_context(struct ibv_context *context)
{
	return (struct hbl_context *)to_context(context);
}

static inline struct hbl_cq *to_hbl_cq(struct ibv_cq *cq)
{
	return (struct hbl_cq *)cq;
}

static inline struct hbl_qp *to_hbl_qp(struct ibv_qp *qp)
{
	return (struct hbl_qp *)qp;
}

/* cq.c */
struct ibv_cq_ex *hbl_cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_cq *hbl_cq_create(struct ibv_context *context, uint32_t entries,
			     struct ibv_comp_channel *channel, void *cq_context, uint32_t port,
			     bool cc);
int hbl_cq_destroy(struct ibv_cq *cq);

/* qp.c */
struct ibv_qp *hbl_qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int hbl_qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int hbl_qp_modify_ex(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     const struct vb_hbl_qp_attr *hbl);
int hbl_qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init);
int hbl_qp_destroy(struct ibv_qp *qp);
