// SPDX-License-Identifier: MIT
/* Device code on one adapter that rings queues of another. */
#include "frames_host.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

extern struct flexio_app *crossdev;
extern flexio_func_t run_cross, watch;

enum { LOG = 4, SIZE = 64, DIRECT = 2, EXTENDED = 1, PLAIN = 0 };

static struct ibv_context *here, *there;
static struct flexio_process *process; /* here */
static struct flexio_uar *extended;
static struct work work;
static flexio_uintptr_t daddr;

/* What the queues there need: a domain and memory of that adapter. */
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint64_t *host;

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	here = open_device();
	for (int i = 0; list && list[i] && !there; i++)
		if (i && mlx5dv_is_supported(list[i]))
			there = ibv_open_device(list[i]);
	CHECK(there);
	ibv_free_device_list(list);
	OK(flexio_process_create(here, crossdev, NULL, &process));
	daddr = dev_alloc(process, sizeof(work));
	host = aligned_alloc(64, 2 * SIZE);
	pd = ibv_alloc_pd(there);
	mr = ibv_reg_mr(pd, host, 2 * SIZE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(pd && mr);
}

static void close_all(void)
{
	CHECK(flexio_process_destroy(process) == FLEXIO_STATUS_FAILED);
	OK(flexio_uar_destroy(extended));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(there) && !ibv_close_device(here));
	free(host);
}

/* Without the right to ring there, there are no queues there. */
static void extend(void)
{
	struct flexio_uar *own = flexio_process_get_uar(process), *twice;
	struct flexio_cq_attr attr = cq_attr(process, LOG);
	struct flexio_cq *cq;

	CHECK(flexio_cq_create(process, there, &attr, &cq) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_uar_extend(own, here, &extended) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_uar_extend(NULL, there, &extended) == FLEXIO_STATUS_FAILED);
	OK(flexio_uar_extend(own, there, &extended));
	CHECK(flexio_uar_extend(own, there, &twice) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_uar_get_extended_id(extended) != UINT32_MAX);
	CHECK(flexio_uar_get_extended_id(NULL) == UINT32_MAX);
	CHECK(flexio_uar_get_extended_id(flexio_process_get_uar(process)) == UINT32_MAX);
}

static void make_pair(const struct kit_cq *cq, struct kit_qp *a, struct kit_qp *b)
{
	struct flexio_qp_attr attr = qp_attr(process, LOG, LOG, cq->work.number, cq->work.number);

	CHECK(flexio_qp_create(process, there, &attr, &a->qp) == FLEXIO_STATUS_FAILED); /* no pd */
	attr.pd = pd;
	qp_make(process, there, &attr, a); /* the process's UAR means its extension there */
	attr = qp_attr(process, LOG, LOG, cq->work.number, cq->work.number);
	attr.pd = pd;
	attr.uar_id = flexio_uar_get_id(extended);
	qp_make(process, there, &attr, b);
	qp_pair(a, b);
	CHECK(flexio_uar_destroy(extended) == FLEXIO_STATUS_FAILED);
}

static uint64_t ring(uint32_t how, uint32_t device_id, uint32_t expect)
{
	uint64_t result;

	work.nops = work.qp.sq ? 1 : 0;
	work.expect = expect;
	dev_write(process, daddr, &work, sizeof(work));
	OK(flexio_process_call(process, run_cross, &result, daddr, how, device_id));
	dev_get(process, &work, daddr, sizeof(work));
	return result;
}

static void rings(const struct kit_cq *cq, const struct kit_qp *qp)
{
	uint32_t id = flexio_uar_get_extended_id(extended);

	work = (struct work){ .cq = cq->work, .qp = qp->work };
	work.ops[0] = (struct work_op){ .type = SEG_WRITE,
					.ce = CE_ALWAYS,
					.lkey = mr->lkey,
					.rkey = mr->rkey,
					.laddr = (uintptr_t)host,
					.raddr = (uintptr_t)host + SIZE,
					.len = SIZE };
	memset(host, 0x5a, SIZE);
	memset(host + SIZE / 8, 0, SIZE);
	/* the outbox is the process's: a number of the other adapter means nothing to it */
	CHECK(ring(PLAIN, 0, 0) == 0 && work.os_errno == EINVAL);
	CHECK(ring(EXTENDED, 4242, 0) == UINT64_MAX && work.os_errno == EINVAL);
	CHECK(ring(DIRECT, 4242, 0) == UINT64_MAX);
	CHECK(host[SIZE / 8] == 0);
	/* the WQEs that were written so far go with the next doorbell */
	CHECK(ring(DIRECT, id, 4) == 4);
	CHECK(!memcmp(host, host + SIZE / 8, SIZE));
	work.arm = 1;
	CHECK(ring(EXTENDED, id, 1) == 1 && work.os_errno == 0);
}

/* ---- frames ---- */

#define MAC_HOST 0x0200fe000001ull /* the station, on the process's adapter */
#define MAC_DEV  0x0200fe000002ull /* queues of device code, on the other one */

enum { FRAME = 60, BUFFER = 2048, ENTRIES = 4 };

/* A CQ of the other adapter whose completions wake a handler of the process. */
struct watched {
	struct flexio_event_handler *handler;
	struct kit_cq cq;
	flexio_uintptr_t daddr;
};

static void watched_open(struct watched *w, uint32_t device_id)
{
	struct flexio_event_handler_attr handler = { .host_stub_func = watch };
	struct flexio_cq_attr attr = cq_attr(process, LOG);
	struct work_watch state;

	OK(flexio_event_handler_create(process, &handler, &w->handler));
	attr.uar_id = flexio_uar_get_id(extended);
	attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
	attr.thread = flexio_event_handler_get_thread(w->handler);
	cq_make(process, there, &attr, &w->cq);
	state = (struct work_watch){ .cq = w->cq.work, .device_id = device_id };
	OK(flexio_copy_from_host(process, &state, sizeof(state), &w->daddr));
	OK(flexio_event_handler_run(w->handler, w->daddr));
}

static struct work_watch watched_await(struct watched *w, uint64_t seen)
{
	struct work_watch state;

	dev_await(process, w->daddr + offsetof(struct work_watch, seen), seen);
	dev_get(process, &state, w->daddr, sizeof(state));
	CHECK(state.seen == seen && state.status == 0);
	return state;
}

static void watched_close(struct watched *w)
{
	OK(flexio_cq_destroy(w->cq.cq));
	OK(flexio_event_handler_destroy(w->handler));
}

/* Frames of a send queue there, whose WQEs device code here writes and rings. */
static void sends(struct station *station)
{
	struct flexio_wq_attr wq = { .log_wq_depth = LOG,
				     .pd = pd,
				     .uar_id = flexio_uar_get_id(extended),
				     .wq_ring_qmem = { .daddr = dev_alloc(process, 64 << LOG) } };
	struct flexio_cq_attr attr = cq_attr(process, LOG);
	uint8_t got[STATION_SLOT], *frame = (uint8_t *)host;
	struct flexio_sq *sq;
	struct kit_cq cq;

	attr.uar_id = flexio_uar_get_id(extended);
	cq_make(process, there, &attr, &cq);
	OK(flexio_sq_create_cross_dev(process, there, cq.work.number, &wq, &sq));
	work = (struct work){ .cq = cq.work,
			      .qp = { .sq = wq.wq_ring_qmem.daddr,
				      .number = flexio_sq_get_wq_num(sq),
				      .log_sq = LOG } };
	work.ops[0] = (struct work_op){ .type = SEG_SEND_EN,
					.ce = CE_ALWAYS,
					.lkey = mr->lkey,
					.laddr = (uintptr_t)frame,
					.len = FRAME };
	for (uint32_t i = 0; i < 20; i++) { /* more than the ring has entries */
		put_eth(frame, MAC_HOST, MAC_DEV, 0x88b5);
		memset(frame + 14, (int)i, FRAME - 14);
		CHECK(ring(i & 1 ? EXTENDED : DIRECT, flexio_uar_get_extended_id(extended), 1) ==
		      1);
		CHECK(!work.os_errno && !work.cqes[0].opcode);
		CHECK(station_take(station, got) == FRAME && !memcmp(got, frame, FRAME));
	}
	CHECK(flexio_cq_destroy(cq.cq) == FLEXIO_STATUS_FAILED); /* its queue is there */
	OK(flexio_sq_destroy(sq));
	OK(flexio_cq_destroy(cq.cq));
}

static struct mlx5dv_dr_rule *steer(struct flexio_rq *rq, struct mlx5dv_dr_domain **domain,
				    struct mlx5dv_dr_table **table,
				    struct mlx5dv_dr_matcher **matcher,
				    struct mlx5dv_dr_action **to_rq)
{
	struct {
		size_t match_sz;
		uint8_t bytes[64];
	} mask = { .match_sz = 64 }, value = { .match_sz = 64 };
	struct mlx5dv_dr_rule *rule;

	put_mac(mask.bytes + 8, ~0ull);
	put_mac(value.bytes + 8, MAC_DEV);
	*domain = mlx5dv_dr_domain_create(there, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	*table = mlx5dv_dr_table_create(*domain, 0);
	*matcher = mlx5dv_dr_matcher_create(*table, 0, 1, (void *)&mask);
	*to_rq = mlx5dv_dr_action_create_dest_devx_tir(flexio_rq_get_tir(rq));
	rule = mlx5dv_dr_rule_create(*matcher, (void *)&value, 1, to_rq);
	CHECK(rule);
	return rule;
}

/* Frames that a rule there leads to a receive queue, whose completions wake device code here. */
static void receives(struct station *station)
{
	struct mlx5_wqe_data_seg ring[ENTRIES];
	__be32 record[2] = { htobe32(ENTRIES), 0 };
	struct flexio_wq_attr wq = { .log_wq_depth = 2,
				     .pd = pd,
				     .uar_id = flexio_uar_get_id(extended),
				     .rq = { .wq_type = FLEXIO_WQ_TYPE_CYCLIC } };
	uint8_t frame[FRAME], *buffers = aligned_alloc(64, ENTRIES * BUFFER);
	struct ibv_mr *keys = ibv_reg_mr(pd, buffers, ENTRIES * BUFFER, IBV_ACCESS_LOCAL_WRITE);
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *to_rq;
	struct mlx5dv_dr_rule *rule;
	struct flexio_rq *rq;
	struct watched w;

	CHECK(keys);
	for (uint32_t i = 0; i < ENTRIES; i++)
		ring[i] = (struct mlx5_wqe_data_seg){ htobe32(BUFFER), htobe32(keys->lkey),
						      htobe64((uintptr_t)buffers + i * BUFFER) };
	OK(flexio_copy_from_host(process, ring, sizeof(ring), &wq.wq_ring_qmem.daddr));
	OK(flexio_copy_from_host(process, record, sizeof(record), &wq.wq_dbr_qmem.daddr));
	watched_open(&w, flexio_uar_get_extended_id(extended));
	OK(flexio_rq_create_cross_dev(process, there, w.cq.work.number, &wq, &rq));
	rule = steer(rq, &domain, &table, &matcher, &to_rq);
	/* A trigger arms the CQ there; then each frame wakes the handler. */
	for (uint32_t i = 0; i < ENTRIES; i++) {
		struct work_watch state;

		put_eth(frame, MAC_DEV, MAC_HOST, 0x88b5);
		memset(frame + 14, 0x40 + (int)i, FRAME - 14);
		station_send(station, frame, FRAME);
		state = watched_await(&w, i + 1);
		CHECK(state.bytes == (i + 1) * FRAME && state.runs >= 1);
		CHECK(!memcmp(buffers + i * BUFFER, frame, FRAME));
	}
	CHECK(flexio_rq_destroy(rq) == FLEXIO_STATUS_FAILED); /* a rule leads to it */
	CHECK(!mlx5dv_dr_rule_destroy(rule) && !mlx5dv_dr_action_destroy(to_rq));
	CHECK(!mlx5dv_dr_matcher_destroy(matcher) && !mlx5dv_dr_table_destroy(table));
	CHECK(!mlx5dv_dr_domain_destroy(domain));
	OK(flexio_rq_destroy(rq));
	watched_close(&w);
	CHECK(!ibv_dereg_mr(keys));
	free(buffers);
}

/* ---- rights ---- */

/* Another process has other extensions; the numbers of this one's mean nothing to it, and the other way round. */
static void strangers(const struct kit_cq *cq, const struct kit_qp *qp)
{
	struct flexio_process *mine = process, *other;
	struct flexio_uar *theirs;
	uint64_t result;

	OK(flexio_process_create(here, crossdev, NULL, &other));
	OK(flexio_uar_extend(flexio_process_get_uar(other), there, &theirs));
	CHECK(flexio_uar_get_extended_id(theirs) != flexio_uar_get_extended_id(extended));
	work = (struct work){ .cq = cq->work, .qp = qp->work };
	process = other;
	dev_alloc(other, 4096); /* its memory is not that of mine */
	OK(flexio_copy_from_host(other, &work, sizeof(work), &result));
	process = mine;
	/* my queue, by its extension: the queue is not its own */
	for (uint32_t how = EXTENDED; how <= DIRECT; how++) {
		uint64_t got;

		work.nops = 0;
		OK(flexio_process_call(other, run_cross, &got, result, how,
				       flexio_uar_get_extended_id(extended)));
		CHECK(got == UINT64_MAX);
		OK(flexio_process_call(other, run_cross, &got, result, how,
				       flexio_uar_get_extended_id(theirs)));
		dev_get(other, &work, result, sizeof(work));
		CHECK(how == DIRECT ? got == UINT64_MAX : work.os_errno == EINVAL);
	}
	CHECK(host[SIZE / 8] == 0);
	/* its number in a queue of mine */
	CHECK(flexio_uar_extend(theirs, here, &extended) == FLEXIO_STATUS_FAILED);
	OK(flexio_uar_destroy(theirs));
	OK(flexio_process_destroy(other));
}

/* An extension that is gone rings nothing, and a new one has another number. */
static void stale(void)
{
	uint32_t id = flexio_uar_get_extended_id(extended);

	OK(flexio_uar_destroy(extended));
	work = (struct work){ 0 };
	CHECK(ring(EXTENDED, id, 0) == UINT64_MAX);
	CHECK(ring(DIRECT, id, 0) == UINT64_MAX);
	OK(flexio_uar_extend(flexio_process_get_uar(process), there, &extended));
}

/* Of threads that extend a UAR to one adapter at the same time, one does. They spin, to be there together. */
enum { RACES = 2000 };

static _Atomic int round_begun, round_done;
static struct flexio_uar *second;

static void try_extend(struct flexio_uar **mine)
{
	*mine = NULL;
	CHECK(!flexio_uar_extend(flexio_process_get_uar(process), there, mine) == !!*mine);
}

static void *extender(void *arg)
{
	for (int i = 1; i <= RACES; i++) {
		while (round_begun != i)
			sched_yield();
		try_extend(&second);
		round_done = i;
	}
	return arg;
}

static void racing(void)
{
	struct flexio_uar *first;
	struct kit_log log;
	pthread_t thread;

	OK(flexio_uar_destroy(extended));
	log_begin(&log);
	CHECK(!pthread_create(&thread, NULL, extender, NULL));
	for (int i = 1; i <= RACES; i++) {
		round_begun = i;
		try_extend(&first);
		while (round_done != i)
			sched_yield();
		CHECK(!first != !second);
		OK(flexio_uar_destroy(first ? first : second));
	}
	CHECK(!pthread_join(thread, NULL));
	CHECK(log_end(&log, "is extended to mlx5_1 already") == RACES);
	OK(flexio_uar_extend(flexio_process_get_uar(process), there, &extended));
}

static void raw_queues(uint32_t cqn)
{
	struct flexio_wq_attr wq = {
		.log_wq_depth = LOG,
		.pd = pd,
		.uar_id = flexio_uar_get_id(extended),
		.wq_ring_qmem = { .daddr = dev_alloc(process, 64 << LOG) },
		.wq_dbr_qmem = { .daddr = dev_alloc(process, 8) },
	};
	struct flexio_sq *sq;
	struct flexio_rq *rq;

	CHECK(flexio_sq_create_cross_dev(process, NULL, cqn, &wq, &sq) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_sq_create_cross_dev(process, here, cqn, &wq, &sq) == FLEXIO_STATUS_FAILED);
	OK(flexio_sq_create_cross_dev(process, there, cqn, &wq, &sq));
	wq.rq = (struct flexio_wq_rq_attr){ .wq_type = FLEXIO_WQ_TYPE_CYCLIC };
	CHECK(flexio_rq_create_cross_dev(process, NULL, cqn, &wq, &rq) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_rq_create_cross_dev(process, here, cqn, &wq, &rq) == FLEXIO_STATUS_FAILED);
	wq.uar_id = 4242; /* no right to ring there */
	CHECK(flexio_rq_create_cross_dev(process, there, cqn, &wq, &rq) == FLEXIO_STATUS_FAILED);
	wq.uar_id = flexio_uar_get_id(extended);
	CHECK(flexio_rq_create_cross_dev(process, there, 0xabcdef, &wq, &rq) ==
	      FLEXIO_STATUS_FAILED);
	wq.pd = NULL; /* that of the process is of another adapter */
	CHECK(flexio_rq_create_cross_dev(process, there, cqn, &wq, &rq) == FLEXIO_STATUS_FAILED);
	wq.pd = pd;
	OK(flexio_rq_create_cross_dev(process, there, cqn, &wq, &rq));
	OK(flexio_rq_destroy(rq));
	OK(flexio_sq_destroy(sq));
}

int main(void)
{
	struct flexio_cq_attr attr;
	struct kit_cq cq;
	struct kit_qp a, b;
	struct station station = { 0 };

	open_all();
	extend();
	attr = cq_attr(process, LOG);
	attr.uar_id = flexio_uar_get_id(extended);
	cq_make(process, there, &attr, &cq);
	make_pair(&cq, &a, &b);
	memset(host, 0, 2 * SIZE);
	strangers(&cq, &a);
	rings(&cq, &a);
	raw_queues(cq.work.number);
	OK(flexio_qp_destroy(a.qp));
	OK(flexio_qp_destroy(b.qp));
	OK(flexio_cq_destroy(cq.cq));
	stale();
	racing();
	station_open(&station, "mlx5_0", MAC_HOST);
	sends(&station);
	receives(&station);
	station_close(&station);
	close_all();
	return 0;
}
