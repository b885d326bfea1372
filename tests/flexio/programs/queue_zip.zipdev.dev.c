// SPDX-License-Identifier: MIT
/* Sends in bursts, and completions read as a compressed or as a plain CQ wants it. */
#include "queue_dev.h"

#include "queue_zip.h"

static void see(struct zip_cq *z, const struct work_cqe *cqe)
{
	z->cqes[z->seen++ % ZIP_SEEN] = *cqe;
}

static struct flexio_dev_cqe64 *entry(struct zip_cq *z)
{
	uint32_t mask = (1u << z->cq.log_depth) - 1;

	return (struct flexio_dev_cqe64 *)z->cq.ring + (z->cq.ci & mask);
}

static int is_valid(struct zip_cq *z, struct flexio_dev_cqe64 *cqe)
{
	uint32_t turn = z->cq.ci >> z->cq.log_depth;

	if (z->compressed)
		return flexio_dev_comp_cqe_get_validity_byte(cqe) == (uint8_t)turn;
	return flexio_dev_cqe_get_owner(cqe) == (turn & 1);
}

static void see_mini(struct zip_cq *z, uint64_t mini)
{
	struct work_cqe cqe = z->title;

	z->behind++;
	cqe.byte_cnt = be32_to_cpu((uint32_t)(mini >> 32));
	if (cqe.opcode == 0) {
		cqe.wqe_counter = be16_to_cpu((uint16_t)mini);
		cqe.spare = (uint8_t)(mini >> 16);
	} else {
		cqe.wqe_counter = (uint16_t)(cqe.wqe_counter + z->behind);
		if (z->tagged)
			cqe.byte_cnt &= 0xffffff;
	}
	see(z, &cqe);
}

/* One entry; 0: there is none. */
static uint32_t consume(struct zip_cq *z)
{
	struct flexio_dev_cqe64 *cqe = entry(z);
	uint32_t number = 1;

	if (!z->cq.ring || !is_valid(z, cqe))
		return 0;
	if (z->compressed && flexio_dev_comp_cqe_is_comp_cqe_array(cqe)) {
		number = flexio_dev_comp_cqe_get_num_comp_cqes(cqe);
		for (uint32_t i = 0; i < number; i++)
			see_mini(z, flexio_dev_comp_cqe_get_comp_cqe(cqe, (int)i));
		z->arrays++;
	} else {
		read_cqe(cqe, &z->title);
		z->title.owner = z->title.validity = 0;
		z->title.spare = cqe->sop_rdrop;
		z->behind = 0;
		see(z, &z->title);
	}
	z->cq.ci += number;
	flexio_dev_dbr_cq_set_ci((uint32_t *)z->cq.dbr, z->cq.ci);
	return number;
}

static void fill(struct work_qp *qp, uint32_t number, uint64_t buffers, uint32_t size,
		 uint32_t lkey)
{
	uint32_t mask = (1u << qp->log_rq) - 1;

	for (uint32_t i = 0; i < number; i++)
		post_recv(qp, buffers + (uint64_t)(qp->recv_pi & mask) * size, size, lkey);
}

__dpa_rpc__ uint64_t burst(struct zip_burst *z)
{
	uint64_t sends = z->send.seen + z->sends, receives = z->recv.seen + z->receives;

	fill(&z->to, z->receives, z->buffers, z->size, z->lkey);
	for (uint32_t i = 0; i < z->nops; i++)
		post_send(&z->from, &z->ops[i]);
	RING(z->from.pi, z->from.number);
	while (z->send.seen < sends)
		consume(&z->send);
	while (z->recv.seen < receives)
		consume(&z->recv);
	/* and nothing else looks valid */
	return !consume(&z->send) && !consume(&z->recv) && z->send.seen == sends &&
	       z->recv.seen == receives;
}

__dpa_rpc__ uint64_t prepare(struct zip_handler *h)
{
	fill(&h->qp, 1u << h->qp.log_rq, h->buffers, h->size, h->lkey);
	return 0;
}

__dpa_global__ void react(uint64_t arg)
{
	struct zip_handler *h = (struct zip_handler *)arg;
	uint32_t number;

	while ((number = consume(&h->recv))) {
		for (uint64_t i = h->recv.seen - number; i < h->recv.seen; i++)
			h->bytes += h->recv.cqes[i % ZIP_SEEN].byte_cnt;
		fill(&h->qp, number, h->buffers, h->size, h->lkey);
		h->handled += number;
	}
	ARM(h->recv.cq.ci, h->recv.cq.number);
	flexio_dev_thread_reschedule();
}

/* One burst, and all of it is seen. */
__dpa_rpc__ uint64_t pump(struct zip_pump *p, uint32_t number)
{
	volatile uint64_t *done = (volatile uint64_t *)p->done;

	for (uint32_t i = 0; i < number; i++)
		post_send(&p->qp, &p->op);
	RING(p->qp.pi, p->qp.number);
	p->sent += number;
	while (*done < p->sent)
		;
	return p->sent;
}

__dpa_global__ void watch(uint64_t arg)
{
	struct zip_watch *w = (struct zip_watch *)arg;
	uint32_t number;

	while ((number = consume(&w->send))) {
		for (uint64_t i = w->send.seen - number; i < w->send.seen; i++) {
			struct work_cqe *cqe = &w->send.cqes[i % ZIP_SEEN];
			uint32_t who = cqe->qpn == w->qpn[1];

			w->wrong += cqe->opcode || cqe->qpn != w->qpn[who] ||
				    cqe->wqe_counter != (uint16_t)w->done[who];
			w->done[who]++;
		}
	}
	ARM(w->send.cq.ci, w->send.cq.number);
	flexio_dev_thread_reschedule();
}
