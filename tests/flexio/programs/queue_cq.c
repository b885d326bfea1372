// SPDX-License-Identifier: MIT
/* Completion queues: every attribute, what is refused, and doorbells that name what is not theirs. */
#include "queue_kit.h"

#include <errno.h>
#include <fcntl.h>

extern struct flexio_app *cqdev;
extern flexio_func_t run_work, fill_recv, receive, try_arm, try_zero, try_ring, try_store, try_eq,
	try_outbox, try_fast;

enum { LOG = 4, SIZE = 64 };

static struct ibv_context *ctx;
static struct flexio_process *process;
static struct kit_mem mem;
static flexio_uintptr_t work_daddr;

/* Two queue pairs: sends of a complete in send, what b receives in recv. */
struct pair {
	struct kit_cq send, recv;
	struct kit_qp a, b;
	struct work work;
};

static void pair_open(struct pair *p, const struct flexio_cq_attr *send,
		      const struct flexio_cq_attr *recv)
{
	struct flexio_qp_attr attr;

	memset(p, 0, sizeof(*p));
	cq_make(process, NULL, send, &p->send);
	cq_make(process, NULL, recv, &p->recv);
	attr = qp_attr(process, LOG, LOG, p->send.work.number, p->send.work.number);
	qp_make(process, NULL, &attr, &p->a);
	attr = qp_attr(process, LOG, LOG, p->recv.work.number, p->recv.work.number);
	qp_make(process, NULL, &attr, &p->b);
	qp_pair(&p->a, &p->b);
	p->work.cq = p->send.work;
	p->work.qp = p->a.work;
}

static void pair_close(struct pair *p)
{
	OK(flexio_qp_destroy(p->a.qp));
	OK(flexio_qp_destroy(p->b.qp));
	OK(flexio_cq_destroy(p->send.cq));
	OK(flexio_cq_destroy(p->recv.cq));
}

/* a writes so often; expect completions are consumed. */
static void writes(struct pair *p, uint32_t number, uint32_t expect)
{
	for (uint32_t i = 0; i < number; i++)
		p->work.ops[i] = (struct work_op){ .type = SEG_WRITE,
						   .ce = CE_ALWAYS,
						   .lkey = mem.key,
						   .rkey = mem.key,
						   .laddr = mem.addr,
						   .raddr = mem.addr + SIZE,
						   .len = 8 };
	p->work.nops = number;
	p->work.expect = expect;
	work_run(process, run_work, work_daddr, &p->work);
}

static void sends(struct pair *p, uint32_t number)
{
	for (uint32_t i = 0; i < number; i++) {
		p->work.ops[0] = (struct work_op){ .type = SEG_SEND,
						   .ce = CE_ALWAYS,
						   .lkey = mem.key,
						   .laddr = mem.addr,
						   .len = 8 };
		p->work.nops = p->work.expect = 1;
		work_run(process, run_work, work_daddr, &p->work);
	}
}

static uint64_t call2(flexio_func_t *func, uint32_t a, uint32_t b)
{
	uint64_t result;

	OK(flexio_process_call(process, func, &result, a, b));
	return result;
}

/* ---- what is refused ---- */

static void refuse(struct flexio_cq_attr attr)
{
	struct flexio_cq *cq = (struct flexio_cq *)&attr;

	CHECK(flexio_cq_create(process, NULL, &attr, &cq) == FLEXIO_STATUS_FAILED);
	CHECK(cq == (struct flexio_cq *)&attr); /* outputs are set on success only */
}

#define REFUSE(change)                          \
	do {                                    \
		struct flexio_cq_attr a = good; \
		change;                         \
		refuse(a);                      \
	} while (0)

static void refusals(void)
{
	struct flexio_cq_attr good = cq_attr(process, LOG);
	struct flexio_cq *cq;
	uint16_t value;

	REFUSE(a.log_cq_depth = 23);
	REFUSE(a.element_type = 1);
	REFUSE(a.element_type = FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ; a.emulated_eqn = 0);
	REFUSE(a.element_type = FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ; a.emulated_eqn = 77);
	REFUSE(a.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ; a.emulated_eqn = 3);
	REFUSE(a.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD; a.thread = NULL);
	REFUSE(a.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
	       a.thread = (struct flexio_thread *)&good);
	REFUSE(a.uar_id = 0);
	REFUSE(a.uar_id = 0xfffff);
	REFUSE(a.cqe_comp_type = 3);
	REFUSE(a.cqe_comp_format = 9);
	REFUSE(a.cq_period_mode = 2);
	REFUSE(a.cq_ring_qmem.daddr = 0);
	REFUSE(a.cq_ring_qmem.daddr += 8);
	REFUSE(a.cq_ring_qmem.daddr = 1ull << 33);
	REFUSE(a.cq_ring_qmem.memtype = 7);
	REFUSE(a.cq_ring_qmem.memtype = FLEXIO_MEMTYPE_HOST; a.cq_ring_qmem.umem_id = 1234);
	REFUSE(a.cq_dbr_daddr = 0);
	REFUSE(a.cq_dbr_daddr += 4);
	CHECK(flexio_cq_create(NULL, NULL, &good, &cq) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_cq_create(process, NULL, NULL, &cq) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_cq_create(process, NULL, &good, NULL) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_cq_get_cq_num((struct flexio_cq *)&good) == UINT32_MAX);
	CHECK(flexio_cq_get_obj(NULL) == NULL);
	OK(flexio_cq_destroy(NULL));
	CHECK(flexio_cq_destroy((struct flexio_cq *)process) == FLEXIO_STATUS_FAILED);
	OK(flexio_cq_create(process, ctx, &good, &cq));
	CHECK(flexio_cq_get_obj(cq) != NULL);
	CHECK(flexio_qp_get_qp_num((struct flexio_qp *)cq) == UINT32_MAX); /* another kind */
	CHECK(flexio_cq_query_moderation(cq, &value, NULL, &value) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_cq_modify_moderation(cq, 1, 1, 2) == FLEXIO_STATUS_FAILED);
	OK(flexio_cq_destroy(cq));
	CHECK(flexio_cq_destroy(cq) == FLEXIO_STATUS_FAILED);
}

/* ---- how CQEs are written ---- */

/* Each completion takes the place of the one before: there is nothing to overrun, and no index to be kept. */
static void collapsed(bool ignore)
{
	struct flexio_cq_attr send = cq_attr(process, 2), recv = cq_attr(process, LOG);
	struct mlx5_cqe64 ring[4];
	struct pair p;

	send.cc = true;
	send.overrun_ignore = ignore;
	pair_open(&p, &send, &recv);
	for (int done = 7; done < 40; done += 7) {
		writes(&p, 7, 0);
		dev_get(process, ring, p.send.work.ring, sizeof(ring));
		CHECK(be16toh(ring[0].wqe_counter) == done - 1 &&
		      mlx5dv_get_cqe_opcode(&ring[0]) == 0);
		for (int i = 1; i < 4; i++)
			CHECK(ring[i].op_own == 1 && !ring[i].wqe_counter);
	}
	CHECK(flexio_qp_state_get(p.a.qp) == FLEXIO_QP_STATE_RTS);
	pair_close(&p);
}

/* Without room CQEs are lost, unless the program does not care. */
static void overrun(bool ignore)
{
	struct flexio_cq_attr send = cq_attr(process, 1), recv = cq_attr(process, LOG);
	struct mlx5dv_devx_event_channel *channel = mlx5dv_devx_create_event_channel(ctx, 0);
	uint16_t cq_error = 0x4;
	uint8_t event[8 + 64];
	struct mlx5_cqe64 ring[2];
	struct kit_log log;
	struct pair p;

	CHECK(channel && !fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	send.overrun_ignore = ignore;
	pair_open(&p, &send, &recv);
	CHECK(!mlx5dv_devx_subscribe_devx_event(channel, flexio_cq_get_obj(p.send.cq),
						sizeof(cq_error), &cq_error, 0x1234));
	log_begin(&log);
	writes(&p, 8, 0);
	CHECK(log_end(&log, "CQ error") == (ignore ? 0 : 1)); /* the program is told once */
	/* and whoever subscribed to it */
	CHECK(mlx5dv_devx_get_event(channel, (void *)event, sizeof(event)) ==
	      (ignore ? -1 : (ssize_t)sizeof(event)));
	if (!ignore)
		CHECK(event[0] == 0x34 && event[1] == 0x12 && event[8 + 1] == 0x4 &&
		      (uint32_t)(event[8 + 33] << 16 | event[8 + 34] << 8 | event[8 + 35]) ==
			      p.send.work.number);
	CHECK(mlx5dv_devx_get_event(channel, (void *)event, sizeof(event)) == -1 &&
	      errno == EAGAIN);
	dev_get(process, ring, p.send.work.ring, sizeof(ring));
	CHECK(be16toh(ring[0].wqe_counter) == (ignore ? 6 : 0));
	CHECK(be16toh(ring[1].wqe_counter) == (ignore ? 7 : 1));
	/* The queue that lost a completion has failed, and its peer has not. */
	CHECK(flexio_qp_state_get(p.a.qp) == (ignore ? FLEXIO_QP_STATE_RTS : FLEXIO_QP_STATE_ERR));
	CHECK(flexio_qp_state_get(p.b.qp) == FLEXIO_QP_STATE_RTS);
	pair_close(&p);
	mlx5dv_devx_destroy_event_channel(channel);
}

/* With compression an entry is valid if it carries the number of the turn. One at a time: nothing is compressed. */
static void turns(void)
{
	struct flexio_cq_attr send = cq_attr(process, 2), recv = cq_attr(process, LOG);
	struct pair p;

	send.cqe_comp_type = FLEXIO_CQE_COMP_ENABLE;
	pair_open(&p, &send, &recv);
	for (uint32_t turn = 0; turn < 300; turn++) {
		for (int i = 0; i < 4; i++) {
			writes(&p, 1, 1);
			CHECK(p.work.cqes[0].validity == (turn & 0xff));
		}
	}
	pair_close(&p);
}

/* The layout before 24.10 is read by owner bits. */
static void basic(void)
{
	struct flexio_cq_attr send = cq_attr(process, 2), recv = cq_attr(process, LOG);
	struct pair p;

	send.cqe_comp_type = FLEXIO_CQE_COMP_BASIC;
	pair_open(&p, &send, &recv);
	for (uint32_t turn = 0; turn < 9; turn++) {
		writes(&p, 4, 4);
		for (uint32_t i = 0; i < 4; i++)
			CHECK(p.work.cqes[i].wqe_counter == turn * 4 + i);
	}
	pair_close(&p);
}

/* A ring in host memory: the host sees what device code's queue completes. */
static void host_ring(void)
{
	struct flexio_cq_attr send = cq_attr(process, LOG), recv = cq_attr(process, LOG);
	struct mlx5dv_devx_umem *umem, *readable;
	struct mlx5_cqe64 *ring = aligned_alloc(4096, 4096);
	struct pair p;

	memset(ring, 0, 4096);
	for (int i = 0; i < 4096 / 64; i++)
		mlx5dv_set_cqe_owner(&ring[i], 1);
	umem = mlx5dv_devx_umem_reg(ctx, ring, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(umem);
	send.cq_ring_qmem = (struct flexio_qmem){ .memtype = FLEXIO_MEMTYPE_HOST,
						  .umem_id = umem->umem_id,
						  .humem_offset = 4096 - (64 << LOG) + 64 };
	refuse(send); /* does not fit */
	send.cq_ring_qmem.humem_offset = 1024;
	readable = mlx5dv_devx_umem_reg(ctx, ring, 4096, 0);
	CHECK(readable);
	send.cq_ring_qmem.umem_id = readable->umem_id;
	refuse(send); /* the card may not write it */
	CHECK(!mlx5dv_devx_umem_dereg(readable));
	send.cq_ring_qmem.umem_id = umem->umem_id;
	pair_open(&p, &send, &recv);
	CHECK(mlx5dv_devx_umem_dereg(umem) == EBUSY);
	writes(&p, 3, 0);
	for (int i = 0; i < 3; i++) {
		struct mlx5_cqe64 *cqe = &ring[1024 / 64 + i];

		CHECK(!mlx5dv_get_cqe_owner(cqe) && be16toh(cqe->wqe_counter) == i);
		CHECK((be32toh(cqe->sop_drop_qpn) & 0xffffff) == p.a.work.number);
	}
	pair_close(&p);
	CHECK(!mlx5dv_devx_umem_dereg(umem));
	free(ring);
}

/* A CQ of the host for a queue of device code. */
static void host_cq(void)
{
	struct ibv_cq *host = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct mlx5dv_cq dv;
	struct mlx5dv_obj obj = { .cq = { host, &dv } };
	struct flexio_cq_attr recv = cq_attr(process, LOG);
	struct flexio_qp_attr attr;
	struct mlx5_cqe64 *cqe;
	struct pair p = { 0 };

	CHECK(host && !mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	cq_make(process, NULL, &recv, &p.recv);
	attr = qp_attr(process, LOG, LOG, dv.cqn, dv.cqn);
	qp_make(process, NULL, &attr, &p.a);
	attr = qp_attr(process, LOG, LOG, p.recv.work.number, p.recv.work.number);
	qp_make(process, NULL, &attr, &p.b);
	qp_pair(&p.a, &p.b);
	p.work.qp = p.a.work;
	writes(&p, 1, 0);
	cqe = dv.buf;
	CHECK(!mlx5dv_get_cqe_owner(cqe) && mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_REQ);
	CHECK((be32toh(cqe->sop_drop_qpn) & 0xffffff) == p.a.work.number);
	CHECK(ibv_destroy_cq(host) == EBUSY);
	/* device code may not arm it */
	CHECK(call2(try_arm, 0, dv.cqn) == EINVAL);
	CHECK(call2(try_zero, dv.cqn, 0) == EINVAL);
	OK(flexio_qp_destroy(p.a.qp));
	OK(flexio_qp_destroy(p.b.qp));
	OK(flexio_cq_destroy(p.recv.cq));
	CHECK(!ibv_destroy_cq(host));
}

/* ---- events ---- */

struct woken {
	struct flexio_event_handler *handler;
	struct pair p;
	flexio_uintptr_t daddr;
};

static void woken_open(struct woken *w, struct flexio_cq_attr *recv, bool no_arm)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = receive };
	struct flexio_cq_attr send = cq_attr(process, LOG);
	struct work_handler state;

	OK(flexio_event_handler_create(process, &attr, &w->handler));
	recv->element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
	recv->thread = flexio_event_handler_get_thread(w->handler);
	pair_open(&w->p, &send, recv);
	state = (struct work_handler){ .cq = w->p.recv.work,
				       .qp = w->p.b.work,
				       .buffers = mem.addr + 2 * SIZE,
				       .size = SIZE,
				       .lkey = mem.key,
				       .no_arm = no_arm };
	w->daddr = dev_alloc(process, sizeof(state));
	dev_write(process, w->daddr, &state, sizeof(state));
	OK(flexio_process_call(process, fill_recv, NULL, w->daddr));
	OK(flexio_event_handler_run(w->handler, w->daddr));
}

static void woken_close(struct woken *w)
{
	pair_close(&w->p);
	OK(flexio_event_handler_destroy(w->handler));
}

static void await(struct woken *w, uint64_t handled)
{
	dev_await(process, w->daddr + offsetof(struct work_handler, handled), handled);
}

static uint64_t runs(struct woken *w)
{
	return dev_read(process, w->daddr + offsetof(struct work_handler, runs));
}

/* Long enough for an event that must not come to come. */
static void settle(void)
{
	usleep(20000);
}

static void unarmed(void)
{
	struct flexio_cq_attr recv = cq_attr(process, LOG);
	struct woken w;

	recv.no_arm = true;
	woken_open(&w, &recv, false);
	sends(&w.p, 2);
	settle();
	CHECK(runs(&w) == 0);
	/* Arming behind what is there changes nothing; arming before it makes the event at once. */
	CHECK(call2(try_arm, 2, w.p.recv.work.number) == 0);
	settle();
	CHECK(runs(&w) == 0);
	CHECK(call2(try_arm, 0, w.p.recv.work.number) == 0);
	await(&w, 2);
	woken_close(&w);
}

static void always(void)
{
	struct flexio_cq_attr recv = cq_attr(process, LOG);
	struct woken w;

	recv.always_armed = 1;
	woken_open(&w, &recv, true);
	for (uint32_t i = 1; i <= 20; i++) {
		sends(&w.p, 1);
		await(&w, i);
	}
	CHECK(runs(&w) >= 20);
	woken_close(&w);
}

static void moderated(uint16_t mode)
{
	struct flexio_cq_attr recv = cq_attr(process, LOG);
	uint16_t count, period, got;
	struct woken w;

	recv.cq_max_count = 4;
	recv.cq_period_mode = mode;
	woken_open(&w, &recv, false);
	OK(flexio_cq_query_moderation(w.p.recv.cq, &count, &period, &got));
	CHECK(count == 4 && period == 0 && got == mode);
	sends(&w.p, 3);
	settle();
	CHECK(runs(&w) == 0);
	sends(&w.p, 1);
	await(&w, 4);
	CHECK(runs(&w) == 1);
	/* time makes the event where the count does not */
	OK(flexio_cq_modify_moderation(w.p.recv.cq, 100, 3000, mode));
	OK(flexio_cq_query_moderation(w.p.recv.cq, &count, &period, &got));
	CHECK(count == 100 && period == 3000 && got == mode);
	sends(&w.p, 2);
	await(&w, 6);
	/* what waits is let go when moderation ends */
	OK(flexio_cq_modify_moderation(w.p.recv.cq, 100, 0, mode));
	usleep(2000); /* let the handler arm */
	sends(&w.p, 1);
	settle();
	CHECK(dev_read(process, w.daddr + offsetof(struct work_handler, handled)) == 6);
	OK(flexio_cq_modify_moderation(w.p.recv.cq, 0, 0, mode));
	await(&w, 7);
	sends(&w.p, 1);
	await(&w, 8);
	woken_close(&w);
}

/* A completion made by device code wakes whoever the CQ wakes. */
static void zero(void)
{
	struct flexio_cq_attr recv = cq_attr(process, LOG);
	struct work_handler state;
	struct woken w;

	woken_open(&w, &recv, false);
	CHECK(call2(try_zero, w.p.recv.work.number, 0) == 0);
	await(&w, 1);
	dev_get(process, &state, w.daddr, sizeof(state));
	CHECK(state.errors == 1 && state.handled == 1); /* its opcode is that of a send */
	woken_close(&w);
}

/* ---- event queues ---- */

struct eqe {
	uint8_t reserved0, type, reserved2[55];
	uint8_t cqn[3];
	uint8_t reserved60[3];
	volatile uint8_t owner;
};

/* An event queue of 4 entries, made with the command as programs fill it. */
static struct mlx5dv_devx_eq *eq_create(uint8_t *number)
{
	uint8_t in[272] = { 0x03, 0x01 }, out[16];
	struct mlx5dv_devx_eq *eq;

	CHECK(!mlx5dv_devx_create_eq(ctx, in, 271, out, sizeof(out)) && errno == EINVAL);
	CHECK(!mlx5dv_devx_create_eq(ctx, in, sizeof(in), out, 15) && errno == EINVAL);
	CHECK(!mlx5dv_devx_create_eq(NULL, in, sizeof(in), out, sizeof(out)));
	in[28] = 31; /* log_eq_size */
	CHECK(!mlx5dv_devx_create_eq(ctx, in, sizeof(in), out, sizeof(out)) && errno == EINVAL);
	in[28] = 2;
	eq = mlx5dv_devx_create_eq(ctx, in, sizeof(in), out, sizeof(out));
	CHECK(eq && eq->vaddr && out[0] == 0 && out[11]);
	*number = out[11];
	return eq;
}

static bool has_event(const struct eqe *ring, uint32_t index, uint32_t cqn)
{
	const struct eqe *eqe = &ring[index % 4];
	bool there = (eqe->owner & 1) == ((index / 4) & 1);

	CHECK(!there || (uint32_t)(eqe->cqn[0] << 16 | eqe->cqn[1] << 8 | eqe->cqn[2]) == cqn);
	return there;
}

/* Each completion is an event there; what is read is said by device code, or through a doorbell page. */
static void event_queue(void)
{
	struct flexio_cq_attr send = cq_attr(process, LOG), recv = cq_attr(process, LOG);
	struct mlx5dv_devx_uar *page = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	struct mlx5dv_devx_eq *eq;
	const struct eqe *ring;
	uint8_t number, no_such;
	struct pair p;

	eq = eq_create(&number);
	ring = eq->vaddr;
	no_such = number == 255 ? 1 : number + 1;
	send.element_type = FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ;
	send.emulated_eqn = no_such;
	refuse(send);
	send.emulated_eqn = number;
	send.always_armed = 1;
	pair_open(&p, &send, &recv);
	CHECK(mlx5dv_devx_destroy_eq(eq) == EBUSY);
	CHECK(!has_event(ring, 0, 0));
	writes(&p, 2, 2);
	p.work.ops[0].ce = CE_AND_EQE;
	p.work.nops = p.work.expect = 1;
	work_run(process, run_work, work_daddr, &p.work);
	for (uint32_t i = 0; i < 3; i++)
		CHECK(has_event(ring, i, p.send.work.number));
	CHECK(!has_event(ring, 3, 0));
	CHECK(call2(try_eq, 3, no_such) == EINVAL);
	CHECK(call2(try_eq, 3, number) == 0);
	writes(&p, 6, 6); /* there is room for 4 */
	for (uint32_t i = 3; i < 7; i++)
		CHECK(has_event(ring, i, p.send.work.number));
	CHECK(!has_event(ring, 7, 0));
	if (page) {
		*(volatile uint32_t *)((char *)page->base_addr + 0x48) =
			htobe32((uint32_t)number << 24 | 7);
		writes(&p, 1, 1);
		CHECK(has_event(ring, 7, p.send.work.number));
		mlx5dv_devx_free_uar(page);
	}
	pair_close(&p);
	/* nobody may ring for a queue that is not on it any more, and the number is free */
	CHECK(!mlx5dv_devx_destroy_eq(eq));
	CHECK(call2(try_eq, 3, number) == EINVAL);
}

/* The event queue of a completion vector is the driver's: its events go to channels. */
static void event_vector(void)
{
	struct flexio_cq_attr send = cq_attr(process, LOG), recv = cq_attr(process, LOG);
	struct mlx5dv_devx_event_channel *channel = mlx5dv_devx_create_event_channel(ctx, 0);
	uint16_t completion = 0;
	uint8_t event[8 + 64];
	uint32_t eqn;
	struct pair p;

	CHECK(channel && !fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	send.element_type = FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ;
	CHECK(!mlx5dv_devx_query_eqn(ctx, (uint32_t)ctx->num_comp_vectors - 1, &eqn));
	send.emulated_eqn = eqn + 1; /* there are no more vectors */
	refuse(send);
	send.emulated_eqn = eqn | 0x100;
	refuse(send);
	CHECK(!mlx5dv_devx_query_eqn(ctx, 0, &eqn));
	send.emulated_eqn = eqn;
	send.always_armed = 1;
	pair_open(&p, &send, &recv);
	CHECK(!mlx5dv_devx_subscribe_devx_event(channel, flexio_cq_get_obj(p.send.cq),
						sizeof(completion), &completion, 0x4321));
	writes(&p, 2, 2);
	for (int i = 0; i < 2; i++) {
		CHECK(mlx5dv_devx_get_event(channel, (void *)event, sizeof(event)) ==
		      (ssize_t)sizeof(event));
		CHECK(event[0] == 0x21 && event[1] == 0x43 && event[8 + 1] == 0 &&
		      (uint32_t)(event[8 + 57] << 16 | event[8 + 58] << 8 | event[8 + 59]) ==
			      p.send.work.number);
	}
	CHECK(mlx5dv_devx_get_event(channel, (void *)event, sizeof(event)) == -1);
	/* Device code has nothing to say there. */
	CHECK(call2(try_eq, 1, eqn) == EINVAL);
	pair_close(&p);
	mlx5dv_devx_destroy_event_channel(channel);
}

/* CQs of two processes on one event queue: each may say what was read, as long as it has one there. */
static void shared_event_queue(void)
{
	struct flexio_process *other;
	struct flexio_cq_attr attr;
	struct mlx5dv_devx_eq *eq;
	struct kit_cq mine, theirs;
	uint64_t result;
	uint8_t number;

	eq = eq_create(&number);
	OK(flexio_process_create(ctx, cqdev, NULL, &other));
	attr = cq_attr(process, LOG);
	attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ;
	attr.emulated_eqn = number;
	cq_make(process, NULL, &attr, &mine);
	CHECK(call2(try_eq, 0, number) == 0);
	OK(flexio_process_call(other, try_eq, &result, 0u, (uint32_t)number));
	CHECK(result == EINVAL);
	attr = cq_attr(other, LOG);
	attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ;
	attr.emulated_eqn = number;
	cq_make(other, NULL, &attr, &theirs);
	CHECK(call2(try_eq, 0, number) == 0);
	OK(flexio_process_call(other, try_eq, &result, 0u, (uint32_t)number));
	CHECK(result == 0);
	OK(flexio_cq_destroy(mine.cq));
	CHECK(call2(try_eq, 0, number) == EINVAL);
	OK(flexio_process_call(other, try_eq, &result, 0u, (uint32_t)number));
	CHECK(result == 0);
	OK(flexio_cq_destroy(theirs.cq));
	OK(flexio_process_destroy(other));
	CHECK(!mlx5dv_devx_destroy_eq(eq));
}

/* ---- doorbells ---- */

/* Numbers that are nobody's, or somebody else's. */
static void foreign_numbers(const struct pair *p)
{
	struct flexio_process *other;
	struct flexio_cq_attr attr;
	struct kit_cq foreign;

	CHECK(call2(try_ring, 0, p->a.work.number) == 0);
	CHECK(call2(try_ring, 0, 0) == EINVAL);
	CHECK(call2(try_ring, 0, 0xffffff) == EINVAL);
	CHECK(call2(try_arm, 0, 0xffffff) == EINVAL);
	OK(flexio_process_create(ctx, cqdev, NULL, &other));
	attr = cq_attr(other, LOG);
	cq_make(other, NULL, &attr, &foreign);
	CHECK(call2(try_arm, 0, foreign.work.number) == EINVAL);
	OK(flexio_cq_destroy(foreign.cq));
	OK(flexio_process_destroy(other));
}

/* Stores that mean nothing. */
static void stray_stores(void)
{
	uint64_t result;

	for (uint64_t at = 0; at < 4096; at += 0x40) {
		OK(flexio_process_call(process, try_store, &result, at, ~0ull, 8u));
		CHECK(result == EINVAL);
	}
	OK(flexio_process_call(process, try_store, &result, 0x1c0ull, 0ull, 4u));
	CHECK(result == EINVAL);
}

static void outboxes(const struct pair *p)
{
	struct flexio_outbox_attr attr = { 0 };
	struct flexio_outbox *outbox;
	uint32_t id, qpn = p->a.work.number;
	uint64_t result;

	OK(flexio_outbox_create(process, &attr, &outbox));
	CHECK(flexio_outbox_get_uar(outbox) == flexio_process_get_uar(process));
	id = flexio_outbox_get_id(outbox);
	OK(flexio_process_call(process, try_outbox, &result, id, 0u, qpn));
	CHECK(result == 0);
	OK(flexio_process_call(process, try_fast, &result, id, 0u, qpn));
	CHECK(result == 0);
	OK(flexio_process_call(process, try_outbox, &result, 77u, 0u, qpn));
	CHECK(result == 1ull << 32); /* refused; the outbox before it goes on */
	OK(flexio_outbox_destroy(outbox));
	CHECK(flexio_outbox_get_id(outbox) == UINT32_MAX);
}

/* UARs of the process are as good as its own; in use they stay. A page of the host is the host's. */
static void uars(void)
{
	struct flexio_cq_attr attr = cq_attr(process, LOG);
	struct mlx5dv_devx_uar *page;
	struct flexio_uar *uar;
	struct kit_cq cq;

	OK(flexio_uar_create(process, &uar));
	attr.uar_id = flexio_uar_get_id(uar);
	cq_make(process, NULL, &attr, &cq);
	CHECK(call2(try_arm, 0, cq.work.number) == 0);
	CHECK(flexio_uar_destroy(uar) == FLEXIO_STATUS_FAILED);
	OK(flexio_cq_destroy(cq.cq));
	OK(flexio_uar_destroy(uar));
	CHECK(flexio_uar_destroy(flexio_process_get_uar(process)) == FLEXIO_STATUS_FAILED);
	page = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	CHECK(page);
	attr = cq_attr(process, LOG);
	attr.uar_id = page->page_id;
	attr.uar_base_addr = page->base_addr;
	cq_make(process, NULL, &attr, &cq);
	CHECK(call2(try_arm, 0, cq.work.number) == EINVAL);
	OK(flexio_cq_destroy(cq.cq));
	mlx5dv_devx_free_uar(page);
}

static void doorbells(void)
{
	struct flexio_cq_attr send = cq_attr(process, LOG), recv = cq_attr(process, LOG);
	struct pair p;

	pair_open(&p, &send, &recv);
	foreign_numbers(&p);
	stray_stores();
	outboxes(&p);
	uars();
	pair_close(&p);
}

int main(void)
{
	ctx = open_device();
	OK(flexio_process_create(ctx, cqdev, NULL, &process));
	mem_make(process, SIZE * (2 + (1 << LOG)), &mem);
	work_daddr = dev_alloc(process, sizeof(struct work));
	refusals();
	collapsed(true);
	collapsed(false);
	overrun(false);
	overrun(true);
	turns();
	basic();
	host_ring();
	host_cq();
	unarmed();
	always();
	moderated(FLEXIO_CQ_PERIOD_MODE_EVENT);
	moderated(FLEXIO_CQ_PERIOD_MODE_CQE);
	zero();
	event_queue();
	event_vector();
	shared_event_queue();
	doorbells();
	mem_end(&mem);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
