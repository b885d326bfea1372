// SPDX-License-Identifier: MIT
/*
 * 256 event handlers on 256 completion queues at full load, one of them on the EU of a thread that never ends: no
 * message is lost and no handler stays behind. Then queues that are destroyed under way.
 */
#include "queue_kit.h"

#include <pthread.h>

#include "queue_flood.h"

extern struct flexio_app *flooddev;
extern flexio_func_t run_flood, fill_recv, receive, spin, wake;

enum { HANDLERS = 256, FLOODS = 2, LOG_RQ = 4, ROUNDS = 60, BATCH = 20 };

static struct flexio_process *process;
static struct kit_mem mem;

struct receiver {
	struct flexio_event_handler *handler;
	struct kit_cq cq;
	struct kit_qp from, to;
	flexio_uintptr_t daddr;
};

static struct receiver receivers[HANDLERS];
static struct kit_cq send_cq[FLOODS];

static void receiver_open(struct receiver *r, uint32_t index)
{
	struct flexio_event_handler_attr handler = { .host_stub_func = receive };
	uint32_t send = send_cq[index % FLOODS].work.number;
	struct flexio_qp_attr attr;
	struct work_handler state;

	if (!index)
		handler.affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_STRICT, 0 };
	OK(flexio_event_handler_create(process, &handler, &r->handler));
	cq_simple(process, LOG_RQ + 1, r->handler, &r->cq);
	attr = qp_attr(process, 6, LOG_RQ, send, send);
	qp_make(process, NULL, &attr, &r->from);
	attr = qp_attr(process, 0, LOG_RQ, r->cq.work.number, r->cq.work.number);
	attr.user_index = index;
	qp_make(process, NULL, &attr, &r->to);
	qp_pair(&r->from, &r->to);
	state = (struct work_handler){ .cq = r->cq.work,
				       .qp = r->to.work,
				       .buffers = mem.addr + 64 + (index << (LOG_RQ + 4)),
				       .size = 16,
				       .lkey = mem.key,
				       .uidx = index };
	r->daddr = dev_alloc(process, sizeof(state));
	dev_write(process, r->daddr, &state, sizeof(state));
	OK(flexio_process_call(process, fill_recv, NULL, r->daddr));
	OK(flexio_event_handler_run(r->handler, r->daddr));
}

static void receiver_close(struct receiver *r)
{
	OK(flexio_qp_destroy(r->from.qp));
	OK(flexio_qp_destroy(r->to.qp));
	OK(flexio_cq_destroy(r->cq.cq));
	OK(flexio_event_handler_destroy(r->handler));
}

/* ---- floods: each a host thread that calls device code ---- */

struct flooder {
	pthread_t thread;
	flexio_uintptr_t daddr;
	struct flood flood;
};

static void *flooder_main(void *arg)
{
	struct flooder *f = arg;
	uint64_t result;

	OK(flexio_process_call(process, run_flood, &result, f->daddr));
	return NULL;
}

static void flooder_start(struct flooder *f, uint32_t index, uint32_t number, uint32_t rounds)
{
	struct work_qp qps[HANDLERS];
	uint32_t n = 0;

	for (uint32_t i = index; i < number; i += FLOODS)
		qps[n++] = receivers[i].from.work;
	f->flood = (struct flood){ .cq = send_cq[index].work,
				   .qps = dev_alloc(process, sizeof(qps)),
				   .number = n,
				   .rounds = rounds,
				   .batch = BATCH,
				   .lkey = mem.key,
				   .buffer = mem.addr };
	dev_write(process, f->flood.qps, qps, sizeof(qps));
	f->daddr = dev_alloc(process, sizeof(f->flood));
	dev_write(process, f->daddr, &f->flood, sizeof(f->flood));
	CHECK(!pthread_create(&f->thread, NULL, flooder_main, f));
}

static void flooder_join(struct flooder *f, uint32_t index)
{
	struct work_qp qps[HANDLERS];
	uint32_t n = 0;

	CHECK(!pthread_join(f->thread, NULL));
	dev_get(process, &f->flood, f->daddr, sizeof(f->flood));
	dev_get(process, qps, f->flood.qps, sizeof(qps));
	for (uint32_t i = index; n < f->flood.number; i += FLOODS)
		receivers[i].from.work = qps[n++];
	send_cq[index].work = f->flood.cq;
}

static void full_load(void)
{
	struct flooder flooders[FLOODS];
	struct work_handler state;

	for (uint32_t i = 0; i < FLOODS; i++)
		flooder_start(&flooders[i], i, HANDLERS, ROUNDS);
	/* meanwhile nothing that is in use can be taken away */
	for (uint32_t i = 0; i < HANDLERS; i += 17) {
		CHECK(flexio_cq_destroy(receivers[i].cq.cq) == FLEXIO_STATUS_FAILED);
		CHECK(flexio_event_handler_destroy(receivers[i].handler) == FLEXIO_STATUS_FAILED);
	}
	CHECK(flexio_process_destroy(process) == FLEXIO_STATUS_FAILED);
	for (uint32_t i = 0; i < FLOODS; i++) {
		flooder_join(&flooders[i], i);
		CHECK(flooders[i].flood.completions == (uint64_t)HANDLERS / FLOODS * ROUNDS);
		CHECK(!flooders[i].flood.errors);
	}
	for (uint32_t i = 0; i < HANDLERS; i++) {
		dev_await(process, receivers[i].daddr + offsetof(struct work_handler, handled),
			  ROUNDS);
		dev_get(process, &state, receivers[i].daddr, sizeof(state));
		CHECK(state.handled == ROUNDS && !state.errors);
	}
}

/* Receivers and senders that go while messages are on their way. */
static void under_way(uint32_t first)
{
	struct flooder flooders[FLOODS];
	uint32_t stop = 1;

	for (uint32_t i = 0; i < FLOODS; i++)
		flooder_start(&flooders[i], i, first + 8, 100000);
	usleep(20000);
	for (uint32_t i = first; i < first + 8; i++) {
		if (i % 3)
			OK(flexio_qp_destroy(receivers[i].to.qp));
		if (i % 2)
			OK(flexio_qp_destroy(receivers[i].from.qp));
	}
	usleep(20000);
	for (uint32_t i = 0; i < FLOODS; i++)
		dev_write(process, flooders[i].daddr + offsetof(struct flood, stop), &stop, 4);
	for (uint32_t i = 0; i < FLOODS; i++)
		flooder_join(&flooders[i], i);
	for (uint32_t i = first; i < first + 8; i++) {
		if (!(i % 2))
			OK(flexio_qp_destroy(receivers[i].from.qp));
		if (!(i % 3))
			OK(flexio_qp_destroy(receivers[i].to.qp));
		OK(flexio_cq_destroy(receivers[i].cq.cq));
		OK(flexio_event_handler_destroy(receivers[i].handler));
	}
}

int main(void)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = spin,
						  .affinity = { FLEXIO_AFFINITY_STRICT, 0 } };
	struct flexio_event_handler *spinner;
	struct ibv_context *ctx;
	flexio_uintptr_t words;
	uint64_t one = 1;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	ctx = open_device();
	OK(flexio_process_create(ctx, flooddev, NULL, &process));
	flexio_log_lvl_set(FLEXIO_LOG_LVL_ERR);
	mem_make(process, 64 + (HANDLERS << (LOG_RQ + 4)), &mem);
	for (uint32_t i = 0; i < FLOODS; i++)
		cq_simple(process, 13, NULL, &send_cq[i]);
	words = dev_alloc(process, 16);
	OK(flexio_event_handler_create(process, &attr, &spinner));
	OK(flexio_event_handler_run(spinner, words));
	OK(flexio_process_call(process, wake, NULL,
			       flexio_event_handler_get_activation_id(spinner)));
	dev_await(process, words, 1);
	for (uint32_t i = 0; i < HANDLERS; i++)
		receiver_open(&receivers[i], i);
	full_load();
	under_way(HANDLERS - 8);
	for (uint32_t i = 0; i < HANDLERS - 8; i++)
		receiver_close(&receivers[i]);
	dev_write(process, words + 8, &one, 8);
	OK(flexio_event_handler_destroy(spinner));
	for (uint32_t i = 0; i < FLOODS; i++)
		OK(flexio_cq_destroy(send_cq[i].cq));
	mem_end(&mem);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
