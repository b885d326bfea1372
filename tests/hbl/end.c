// SPDX-License-Identifier: MIT
/* Queues as a program drives them: work queue entries and completions in memory, doorbells in a FIFO. */
#include "hbl.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 20 };

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void fill(void *data, size_t len, uint32_t seed)
{
	uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 11);
}

bool is_filled(const void *data, size_t len, uint32_t seed)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)((i * 2654435761u + seed * 40503u) >> 11))
			return false;
	return true;
}

/* --- completion queues ------------------------------------------------------------------------------------------ */

void hbl_cq_create(struct cq *cq, struct dev *dev, uint32_t port, int cqes)
{
	struct hbldv_cq_attr attr = { .port_num = (uint8_t)port, .cq_type = HBLDV_CQ_TYPE_QP };

	*cq = (struct cq){ .gaudi3 = dev->gaudi3 };
	cq->ibv = hbldv_create_cq(dev->context, cqes, NULL, 0, &attr);
	CHECK(cq->ibv);
	CHECK(!hbldv_query_cq(cq->ibv, &cq->q));
	cq->mask = (uint32_t)cq->ibv->cqe - 1;
}

bool hbl_cq_poll(struct cq *cq, struct cqe *cqe)
{
	_Atomic uint32_t *pi = cq->q.pi_cpu_addr;
	volatile uint32_t *e = (uint32_t *)cq->q.mem_cpu_addr + 4 * (cq->ci & cq->mask);
	volatile uint64_t *regs = (uint64_t *)((char *)cq->q.regs_cpu_addr + cq->q.regs_offset);

	if (atomic_load_explicit(pi, memory_order_acquire) == cq->ci)
		return false;
	CHECK(e[0] >> 31);
	*cqe = (struct cqe){ .qpn = e[0] & 0xffffff,
			     .requester = e[0] >> 24 & 1,
			     .index = e[1],
			     .tag = e[2],
			     .size = e[3] };
	e[0] = 0;
	cq->ci++;
	*regs = cq->gaudi3 ? cq->ci : (uint64_t)cq->ci << 32 | cq->q.cq_num;
	return true;
}

void hbl_cq_wait(struct cq *cq, struct cqe *cqe)
{
	uint64_t start = now_ns();

	while (!hbl_cq_poll(cq, cqe)) {
		CHECK(now_ns() - start < LIMIT_S * 1000000000ull);
		sched_yield();
	}
}

/* --- FIFOs ------------------------------------------------------------------------------------------------------ */

void fifo_create(struct fifo *fifo, struct dev *dev, uint32_t port, enum hbldv_usr_fifo_type type)
{
	struct hbldv_usr_fifo_attr attr = { .port_num = port, .usr_fifo_type = type };

	*fifo = (struct fifo){ .gaudi3 = dev->gaudi3 };
	fifo->usr = hbldv_create_usr_fifo(dev->context, &attr);
	CHECK(fifo->usr);
}

/* Gaudi2 counts doorbells modulo 64, Gaudi3 half doorbells in 11 bits. */
uint32_t fifo_free(const struct fifo *fifo)
{
	uint32_t ci = atomic_load_explicit((_Atomic uint32_t *)fifo->usr->ci_cpu_addr,
					   memory_order_acquire);

	if (fifo->gaudi3)
		return (fifo->usr->size - ((fifo->pi * 2 - ci) & 0x7ff)) / 2;
	return 64 - ((64 + fifo->pi - ci) & 63);
}

void fifo_wait(struct fifo *fifo)
{
	uint64_t start;

	if (fifo_free(fifo) > 2)
		return; /* without a look at the clock, which bench/verbs would measure */
	start = now_ns();
	while (fifo_free(fifo) <= 2) {
		CHECK(now_ns() - start < LIMIT_S * 1000000000ull);
		sched_yield();
	}
}

static void *registers(struct fifo *fifo)
{
	return (char *)fifo->usr->regs_cpu_addr + fifo->usr->regs_offset;
}

void fifo_ring(struct fifo *fifo, uint32_t qpn, uint32_t pi)
{
	fifo_wait(fifo);
	fifo->pi++;
	*(volatile uint64_t *)registers(fifo) = (uint64_t)qpn << 32 | (pi & 0x3fffff);
}

void fifo_ring32(struct fifo *fifo, uint32_t qpn, uint32_t pi)
{
	volatile uint32_t *regs = registers(fifo);

	fifo_wait(fifo);
	fifo->pi++;
	regs[0] = pi & 0x3fffff;
	regs[1] = qpn;
}

/* --- ends ------------------------------------------------------------------------------------------------------- */

static int cq_entries(const struct end_attr *attr, uint32_t own)
{
	return (int)(own ? own : attr->cqes ? attr->cqes : 256);
}

void hbl_end_create(struct end *end, struct dev *dev, const struct end_attr *attr)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = (uint8_t)attr->port };
	struct hbldv_qp_attr hbl = { .wq_type = attr->type ? attr->type : HBLDV_WQ_WRITE,
				     .wq_granularity = attr->wide ? HBLDV_SWQE_GRAN_64B
								  : HBLDV_SWQE_GRAN_32B };
	struct ibv_qp_init_attr qp_attr = { .qp_type = IBV_QPT_RC };

	*end = (struct end){ .dev = dev,
			     .port = attr->port,
			     .wqes = attr->wqes ? attr->wqes : 64,
			     .wide = attr->wide };
	hbl_cq_create(&end->req, dev, attr->port, cq_entries(attr, attr->req_cqes));
	hbl_cq_create(&end->res, dev, attr->port, cq_entries(attr, attr->res_cqes));
	qp_attr.send_cq = end->req.ibv;
	qp_attr.recv_cq = end->res.ibv;
	qp_attr.cap.max_send_wr = end->wqes;
	end->qp = ibv_create_qp(dev->pd, &qp_attr);
	CHECK(end->qp);
	CHECK(!hbldv_modify_qp(end->qp, &init,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			       &hbl));
	CHECK(!hbldv_query_qp(end->qp, &end->q));
	CHECK(end->q.qp_num && !end->q.swq_cpu_addr && !end->q.rwq_cpu_addr);
}

void hbl_end_address(struct end *end, struct address *address)
{
	address->qpn = end->q.qp_num;
	CHECK(!ibv_query_gid(end->dev->context, (uint8_t)end->port, 0, &address->gid));
}

int try_connect(struct end *end, const struct address *peer, const struct conn_attr *attr)
{
	static const struct conn_attr none;
	const struct conn_attr *a = attr ? attr : &none;
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)(a->mtu ? a->mtu : HBL_IB_MTU_8192),
		.dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = (uint8_t)end->port,
			     .grh.dgid = peer->gid },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = a->timeout ? a->timeout : 14,
		.retry_cnt = a->retry ? a->retry : 7,
		.rnr_retry = 7,
		.max_rd_atomic = 16,
	};
	struct hbldv_qp_attr hbl = { .caps = a->caps,
				     .local_key = a->local_key,
				     .remote_key = a->remote_key,
				     .congestion_wnd = a->window,
				     .dest_wq_size = a->dest_wq_size,
				     .encap_num = a->encap };
	int err = hbldv_modify_qp(end->qp, &rtr,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					  IBV_QP_MIN_RNR_TIMER,
				  &hbl);

	if (!err)
		err = hbldv_modify_qp(end->qp, &rts,
				      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					      IBV_QP_MAX_QP_RD_ATOMIC,
				      &hbl);
	if (!err)
		err = hbldv_query_qp(end->qp, &end->q);
	return err;
}

void hbl_end_connect(struct end *end, const struct address *peer, const struct conn_attr *attr)
{
	CHECK(!try_connect(end, peer, attr));
	CHECK(end->q.swq_cpu_addr && end->q.rwq_cpu_addr);
}

void ends_connect(struct end *a, struct end *b, const struct conn_attr *attr)
{
	struct address to_a, to_b;

	hbl_end_address(a, &to_a);
	hbl_end_address(b, &to_b);
	hbl_end_connect(a, &to_b, attr);
	hbl_end_connect(b, &to_a, attr);
}

void hbl_end_destroy(struct end *end)
{
	if (!end->dev)
		return;
	if (end->qp)
		CHECK(!ibv_destroy_qp(end->qp));
	CHECK(!ibv_destroy_cq(end->req.ibv));
	CHECK(!ibv_destroy_cq(end->res.ibv));
	*end = (struct end){ 0 };
}

/* --- work queue entries ----------------------------------------------------------------------------------------- */

static void put64(uint32_t *w, uint64_t value)
{
	w[0] = (uint32_t)value;
	w[1] = (uint32_t)(value >> 32);
}

void hbl_end_post(struct end *end, const struct wqe *wqe, bool requester)
{
	uint32_t at = end->pi++ & (end->wqes - 1), words = end->wide ? 16 : 8;
	uint32_t *w = (uint32_t *)end->q.swq_cpu_addr + (size_t)at * words;
	uint32_t *r = (uint32_t *)end->q.rwq_cpu_addr + (size_t)at * 4;

	memset(w, 0, words * 4);
	w[0] = wqe->opcode | (end->dev->gaudi3 ? 0 : (at & 0xff) << 8) | 1u << 31;
	w[1] = wqe->size;
	if (wqe->data) {
		w[0] |= 1u << 30;
		put64(&w[2], wqe->remote);
		memcpy(&w[4], wqe->data, wqe->size);
	} else {
		put64(&w[2], wqe->local);
		put64(&w[4], wqe->remote);
		w[6] = wqe->tag;
		w[7] = wqe->completion << 30;
	}
	if (end->wide && !wqe->data && wqe->chunk) {
		memcpy(&w[8], wqe->stride, sizeof(wqe->stride));
		w[12] = wqe->count[0] | wqe->count[1] << 16;
		w[13] = wqe->count[2] | wqe->count[3] << 16;
		w[14] = wqe->chunk;
	} else if (end->wide && !wqe->data) {
		put64(&w[8], wqe->add);
	}
	r[0] = end->dev->gaudi3 ? 0 : (at & 0xff) << 8;
	r[1] = requester ? (uint32_t)CQ << 30 : 0;
	r[2] = wqe->size;
	r[3] = ~wqe->tag;
	atomic_thread_fence(memory_order_release);
}

uint32_t hbl_end_pi(const struct end *end)
{
	return end->dev->gaudi3 ? end->pi & 0x3fffff : end->pi & (end->wqes - 1);
}

void hbl_end_write(struct end *end, struct fifo *fifo, uint64_t local, uint64_t remote,
		   uint32_t size, uint32_t tag)
{
	hbl_end_post(end,
		     &(struct wqe){ .opcode = LINEAR,
				    .size = size,
				    .tag = tag,
				    .completion = CQ,
				    .local = local,
				    .remote = remote },
		     true);
	fifo_ring(fifo, end->q.qp_num, hbl_end_pi(end));
}

/* --- events ----------------------------------------------------------------------------------------------------- */

static bool event_within(struct dev *dev, int ms, struct ibv_async_event *event)
{
	struct pollfd pfd = { .fd = dev->context->async_fd, .events = POLLIN };

	return poll(&pfd, 1, ms) == 1 && !ibv_get_async_event(dev->context, event);
}

void expect_event(struct dev *dev, enum ibv_event_type type)
{
	struct ibv_async_event event;

	CHECK(event_within(dev, LIMIT_S * 1000, &event));
	if (event.event_type != type)
		fprintf(stderr, "event %s instead of %s\n", ibv_event_type_str(event.event_type),
			ibv_event_type_str(type));
	CHECK(event.event_type == type);
	ibv_ack_async_event(&event);
}

bool no_event(struct dev *dev)
{
	struct ibv_async_event event;

	return !event_within(dev, 0, &event);
}
