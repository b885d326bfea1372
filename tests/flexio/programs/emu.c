// SPDX-License-Identifier: MIT
/*
 * Emulated functions, with driver and device in one process: arming, coalescing, values, interrupts,
 * commands, refusals.
 */
#include "emu_kit.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>

extern struct flexio_app *emudev, *emuold;
extern flexio_func_t on_doorbell, old_on_doorbell, emu_arm, emu_trigger, emu_value, emu_msix,
	old_emu_arm, old_emu_trigger;

static struct ibv_context *ctx;
static struct flexio_process *process;
static struct verbatim_function_info info;
static struct verbatim_function *function;
static volatile uint32_t *doorbell;

static uint64_t call2(flexio_func_t *func, uint32_t a, uint32_t b)
{
	uint64_t got = ~0ull;

	OK(flexio_process_call(process, func, &got, a, b));
	return got;
}

static uint64_t call1(flexio_func_t *func, uint32_t a)
{
	uint64_t got = ~0ull;

	OK(flexio_process_call(process, func, &got, a));
	return got;
}

static uint64_t arm(const struct emu_queue *q)
{
	return call2(emu_arm, q->state.cq.number, q->state.emu_id);
}

/* Something that came after whatever was under way: the handler has run for all that there was. */
static void settle(struct emu_queue *q, uint64_t cqes)
{
	for (int i = 0; i < 20; i++)
		usleep(1000);
	CHECK(emu_cqes(q) == cqes);
}

/* ---- doorbells ---- */

static void arming(void)
{
	struct emu_queue q;

	emu_queue_open(&q, ctx, process, on_doorbell, &info, 3, 0, (struct emu_state){ 0 });
	/* nobody asked */
	doorbell[3] = 1;
	settle(&q, 0);
	/* what came before is not lost, */
	CHECK(arm(&q) == 0);
	emu_await(&q, 1);
	/* and was delivered once */
	CHECK(arm(&q) == 0);
	settle(&q, 1);
	/* one completion for each arming */
	doorbell[3] = 2;
	emu_await(&q, 2);
	for (uint32_t i = 0; i < 100; i++)
		doorbell[3] = 100 + i;
	settle(&q, 2);
	CHECK(call1(emu_value, q.state.emu_id) == 199);
	CHECK(arm(&q) == 0);
	emu_await(&q, 3);
	settle(&q, 3);
	/* arming twice is arming */
	CHECK(arm(&q) == 0 && arm(&q) == 0);
	CHECK(verbatim_function_ring(function, 3, 7) == 0);
	emu_await(&q, 4);
	settle(&q, 4);
	CHECK(call1(emu_value, q.state.emu_id) == 7);
	/* other queues are other queues */
	CHECK(arm(&q) == 0);
	doorbell[2] = 1;
	doorbell[4] = 1;
	settle(&q, 4);
	emu_queue_close(&q);
}

/* Stores of other widths: a word for each queue. */
static void widths(void)
{
	volatile uint8_t *bytes = (volatile uint8_t *)doorbell;
	struct emu_queue a, b;

	emu_queue_open(&a, ctx, process, on_doorbell, &info, 8, 0, (struct emu_state){ 0 });
	emu_queue_open(&b, ctx, process, on_doorbell, &info, 9, 0, (struct emu_state){ 0 });
	CHECK(arm(&a) == 0 && arm(&b) == 0);
	*(volatile uint16_t *)&doorbell[8] = 0xbeef;
	emu_await(&a, 1);
	CHECK(call1(emu_value, a.state.emu_id) == 0xbeef);
	bytes[9 * 4 + 1] = 0x12;
	emu_await(&b, 1);
	CHECK(call1(emu_value, b.state.emu_id) == 0x1200);
	CHECK(arm(&a) == 0 && arm(&b) == 0);
	*(volatile uint64_t *)&doorbell[8] = 0x1111111122222222;
	emu_await(&a, 2);
	emu_await(&b, 2);
	CHECK(call1(emu_value, a.state.emu_id) == 0x22222222);
	CHECK(call1(emu_value, b.state.emu_id) == 0x11111111);
	CHECK(doorbell[8] == 0);
	emu_queue_close(&a);
	emu_queue_close(&b);
}

static void triggers(void)
{
	struct emu_queue q;

	emu_queue_open(&q, ctx, process, on_doorbell, &info, 0, 0, (struct emu_state){ 0 });
	CHECK(arm(&q) == 0);
	CHECK(call2(emu_trigger, q.state.cq.number, q.state.emu_id) == 0);
	emu_await(&q, 1);
	/* as a doorbell: remembered */
	CHECK(call2(emu_trigger, q.state.cq.number, q.state.emu_id) == 0);
	settle(&q, 1);
	CHECK(arm(&q) == 0);
	emu_await(&q, 2);
	emu_queue_close(&q);
}

static void stale_doorbell(void)
{
	struct emu_queue q;

	/* rung while nobody had the queue: for the next who does */
	doorbell[5] = 1;
	emu_queue_open(&q, ctx, process, on_doorbell, &info, 5, 0, (struct emu_state){ 0 });
	CHECK(arm(&q) == 0);
	emu_await(&q, 1);
	emu_queue_close(&q);
	/* one that a driver before left is not the next driver's */
	doorbell[5] = 1;
	CHECK(!verbatim_function_close(function));
	function = verbatim_function_open(info.vhca_id);
	CHECK(function && (doorbell = verbatim_function_doorbells(function)));
	emu_queue_open(&q, ctx, process, on_doorbell, &info, 5, 0, (struct emu_state){ 0 });
	CHECK(arm(&q) == 0);
	settle(&q, 0);
	emu_queue_close(&q);
}

static void old_forms(void)
{
	struct flexio_process *first = process;
	struct emu_queue q;

	OK(flexio_process_create(ctx, emuold, NULL, &process));
	emu_queue_open(&q, ctx, process, old_on_doorbell, &info, 1, 0, (struct emu_state){ 0 });
	CHECK(call2(old_emu_arm, q.state.cq.number, q.state.emu_id) == 0);
	doorbell[1] = 1;
	emu_await(&q, 1);
	CHECK(call2(old_emu_arm, q.state.cq.number, q.state.emu_id) == 0);
	CHECK(call2(old_emu_trigger, q.state.cq.number, q.state.emu_id) == 0);
	emu_await(&q, 2);
	emu_queue_close(&q);
	OK(flexio_process_destroy(process));
	process = first;
}

/* ---- interrupts ---- */

static void msix(void)
{
	struct emu_queue q;
	uint64_t count;
	int fd, other;

	emu_queue_open(&q, ctx, process, on_doorbell, &info, 0, 5, (struct emu_state){ 0 });
	/* raised before anybody listened */
	CHECK(call1(emu_msix, q.msix.work.number) == 0);
	fd = verbatim_function_eventfd(function, 5);
	other = verbatim_function_eventfd(function, 6);
	CHECK(fd >= 0 && other >= 0 && fd == verbatim_function_eventfd(function, 5));
	CHECK(interrupts(fd) == 1);
	/* more of them than the CQ has room for, and nobody reads it */
	for (int i = 0; i < 100; i++) {
		CHECK(call1(emu_msix, q.msix.work.number) == 0);
		CHECK(interrupts(fd) == 1);
	}
	CHECK(read(other, &count, sizeof(count)) == -1 && errno == EAGAIN);
	emu_queue_close(&q);
}

/* Programs that follow older samples give such a CQ a page of the host. */
static void msix_host_uar(void)
{
	struct flexio_cq_attr attr = cq_attr(process, 2);
	struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	struct mlx5dv_devx_obj *eq;
	struct kit_cq cq;

	CHECK(uar);
	attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ;
	attr.uar_id = uar->page_id;
	attr.uar_base_addr = uar->base_addr;
	eq = eq_make(ctx, info.vhca_id, 1, &attr.emulated_eqn);
	cq_make(process, NULL, &attr, &cq);
	CHECK(call1(emu_msix, cq.work.number) == 0);
	CHECK(interrupts(verbatim_function_eventfd(function, 1)) == 1);
	/* in use */
	CHECK(mlx5dv_devx_obj_destroy(eq) == EBUSY);
	OK(flexio_cq_destroy(cq.cq));
	CHECK(!mlx5dv_devx_obj_destroy(eq));
	mlx5dv_devx_free_uar(uar);
}

/* ---- commands ---- */

enum { BAD_PARAM = 0x3, BAD_RES = 0x5, RES_BUSY = 0x6, BAD_INP_LEN = 0x50, BAD_OUTP_LEN = 0x51 };

/* By the firmware with a status, or (0) by the kernel, which leaves the answer alone. */
static void check_refused(const uint8_t *in, size_t inlen, size_t outlen, uint8_t status)
{
	uint8_t out[COMMAND];

	memset(out, 0xee, sizeof(out));
	errno = 0;
	CHECK(!mlx5dv_devx_obj_create(ctx, in, inlen, out, outlen));
	CHECK(errno == (status ? EREMOTEIO : EINVAL));
	CHECK(out[0] == (status ? status : 0xee));
	for (size_t i = outlen; i < sizeof(out); i++)
		CHECK(out[i] == 0xee);
}

static void commands(void)
{
	uint8_t in[COMMAND], out[COMMAND];
	struct mlx5dv_devx_obj *map, *eq;
	struct kit_cq cq;
	struct kit_log log;
	uint32_t id;

	cq_simple(process, LOG_CQ, NULL, &cq);
	map_command(in, info.vhca_id, 2, cq.work.number);
	check_refused(in, 15, 16, 0);
	check_refused(in, 47, 16, BAD_INP_LEN);
	check_refused(in, sizeof(in), 15, 0);
	map_command(in, 0x99, 2, cq.work.number);
	check_refused(in, sizeof(in), 16, BAD_PARAM);
	map_command(in, info.vhca_id, info.queues, cq.work.number);
	check_refused(in, sizeof(in), 16, BAD_PARAM);
	map_command(in, info.vhca_id, 2, 0xfffff);
	check_refused(in, sizeof(in), 16, BAD_RES);
	object_command(in, 0xa00, 0x7777, 0);
	check_refused(in, sizeof(in), 16, BAD_PARAM);
	map_command(in, info.vhca_id, 2, cq.work.number);
	in[12] = 0x80; /* an alias */
	check_refused(in, sizeof(in), 16, BAD_PARAM);

	map_command(in, info.vhca_id, 2, cq.work.number);
	map = mlx5dv_devx_obj_create(ctx, in, sizeof(in), out, 16);
	CHECK(map && !out[0]);
	id = get_be32(out + 8);
	check_refused(in, sizeof(in), 16, RES_BUSY);
	/* the CQ is used, by whoever asks */
	log_begin(&log);
	CHECK(flexio_cq_destroy(cq.cq) == FLEXIO_STATUS_FAILED);
	CHECK(log_end(&log, "doorbells are mapped to it") == 1);

	object_command(in, 0xa02, MAP_TYPE, id);
	CHECK(!mlx5dv_devx_obj_query(map, in, 16, out, sizeof(out)) && !out[0]);
	CHECK(get_be32(out + 16 + 16) == info.vhca_id && get_be32(out + 16 + 20) == 2 &&
	      get_be32(out + 16 + 24) == cq.work.number && get_be32(out + 16 + 28) == id);
	CHECK(mlx5dv_devx_obj_query(map, in, 16, out, 47) == EREMOTEIO && out[0] == BAD_OUTP_LEN);
	CHECK(mlx5dv_devx_obj_query(map, in, 15, out, sizeof(out)));
	object_command(in, 0xa02, MAP_TYPE, id + 1);
	CHECK(mlx5dv_devx_obj_query(map, in, 16, out, sizeof(out)) == EINVAL);
	object_command(in, 0xa02, EQ_TYPE, id);
	CHECK(mlx5dv_devx_obj_query(map, in, 16, out, sizeof(out)) == EINVAL);
	/* device code names it by the same id */
	CHECK(call2(emu_arm, cq.work.number, id) == 0);
	CHECK(!mlx5dv_devx_obj_destroy(map));
	CHECK(call2(emu_arm, cq.work.number, id) == EINVAL);
	OK(flexio_cq_destroy(cq.cq));

	eq_command(in, info.vhca_id, info.vectors);
	check_refused(in, sizeof(in), 16, BAD_PARAM);
	eq_command(in, 0, 0);
	check_refused(in, sizeof(in), 16, BAD_PARAM);
	check_refused(in, 71, 16, BAD_INP_LEN);
	eq = eq_make(ctx, info.vhca_id, 9, &id);
	object_command(in, 0xa02, EQ_TYPE, id);
	CHECK(!mlx5dv_devx_obj_query(eq, in, 16, out, sizeof(out)) && !out[0]);
	CHECK(get_be32(out + 16 + 12) == info.vhca_id && get_be32(out + 16 + 0x1a0 / 8) == 9);
	CHECK(!mlx5dv_devx_obj_destroy(eq));
}

/* ---- refusals ---- */

#define REFUSED(expr)                                              \
	do {                                                       \
		struct kit_log log_;                               \
		flexio_status status_;                             \
		log_begin(&log_);                                  \
		status_ = (expr);                                  \
		CHECK(log_end(&log_, "flexio_emu_db_to_cq") == 1); \
		CHECK(status_ == FLEXIO_STATUS_FAILED);            \
	} while (0)

static void refusals(void)
{
	struct ibv_context *second = open_device();
	struct flexio_emu_db_to_cq_ctx *map, *other = NULL;
	struct kit_cq cq, foreign;
	struct flexio_cq_attr attr = cq_attr(process, LOG_CQ);
	struct kit_log log;

	cq_simple(process, LOG_CQ, NULL, &cq);
	cq_make(process, second, &attr, &foreign);
	REFUSED(flexio_emu_db_to_cq_map(NULL, info.vhca_id, 0, cq.cq, &other));
	REFUSED(flexio_emu_db_to_cq_map(ctx, info.vhca_id, 0, NULL, &other));
	REFUSED(flexio_emu_db_to_cq_map(ctx, info.vhca_id, 0, cq.cq, NULL));
	REFUSED(flexio_emu_db_to_cq_map(ctx, info.vhca_id, 0, (struct flexio_cq *)process, &other));
	REFUSED(flexio_emu_db_to_cq_map(ctx, 0, 0, cq.cq, &other));
	REFUSED(flexio_emu_db_to_cq_map(ctx, UINT32_MAX, 0, cq.cq, &other));
	REFUSED(flexio_emu_db_to_cq_map(ctx, first_function("mlx5_1").vhca_id, 0, cq.cq, &other));
	REFUSED(flexio_emu_db_to_cq_map(ctx, info.vhca_id, info.queues, cq.cq, &other));
	REFUSED(flexio_emu_db_to_cq_map(ctx, info.vhca_id, UINT32_MAX, cq.cq, &other));
	REFUSED(flexio_emu_db_to_cq_map(ctx, info.vhca_id, 0, foreign.cq, &other));
	OK(flexio_emu_db_to_cq_map(ctx, info.vhca_id, 0, cq.cq, &map));
	REFUSED(flexio_emu_db_to_cq_map(ctx, info.vhca_id, 0, cq.cq, &other));
	REFUSED(flexio_emu_db_to_cq_map(second, info.vhca_id, 0, foreign.cq, &other));
	CHECK(!other);
	log_begin(&log);
	CHECK(flexio_cq_destroy(cq.cq) == FLEXIO_STATUS_FAILED);
	CHECK(log_end(&log, "doorbells are mapped to it") == 1);
	/* of another queue, of nobody, out of range */
	CHECK(call2(emu_arm, foreign.work.number, flexio_emu_db_to_cq_ctx_get_id(map)) == EINVAL);
	CHECK(call2(emu_arm, cq.work.number, 0) == EINVAL);
	CHECK(call2(emu_arm, cq.work.number, 0x3ffffff) == EINVAL);
	CHECK(call2(emu_trigger, cq.work.number, 4000) == EINVAL);
	CHECK(call1(emu_value, 4000) == 0);
	OK(flexio_emu_db_to_cq_unmap(map));
	REFUSED(flexio_emu_db_to_cq_unmap(map));
	log_begin(&log);
	CHECK(flexio_emu_db_to_cq_ctx_get_id(map) == UINT32_MAX);
	CHECK(flexio_emu_db_to_cq_ctx_get_id(NULL) == UINT32_MAX);
	CHECK(log_end(&log, "flexio_emu_db_to_cq_ctx_get_id") == 2);
	OK(flexio_emu_db_to_cq_unmap(NULL));
	OK(flexio_cq_destroy(cq.cq));
	OK(flexio_cq_destroy(foreign.cq));
	CHECK(!ibv_close_device(second));
}

/* A device process rings only what was made for it. */
static void other_process(void)
{
	struct flexio_process *first = process;
	struct emu_queue q;

	emu_queue_open(&q, ctx, first, on_doorbell, &info, 0, 0, (struct emu_state){ 0 });
	OK(flexio_process_create(ctx, emudev, NULL, &process));
	CHECK(arm(&q) == EINVAL);
	CHECK(call2(emu_trigger, q.state.cq.number, q.state.emu_id) == EINVAL);
	CHECK(call1(emu_msix, q.msix.work.number) == EINVAL);
	CHECK(call1(emu_value, q.state.emu_id) == 0);
	OK(flexio_process_destroy(process));
	process = first;
	emu_queue_close(&q);
}

/* A forked child may end what it inherited, in the same order as its parent and in no other. */
static void forked_child(void)
{
	struct emu_queue q;
	int status;

	emu_queue_open(&q, ctx, process, on_doorbell, &info, 0, 0, (struct emu_state){ 0 });
	if (!fork()) {
		CHECK(mlx5dv_devx_obj_destroy(q.eq) == EBUSY);
		CHECK(flexio_cq_destroy(q.cq.cq) != FLEXIO_STATUS_SUCCESS);
		OK(flexio_emu_db_to_cq_unmap(q.map));
		OK(flexio_cq_destroy(q.cq.cq));
		OK(flexio_cq_destroy(q.msix.cq));
		CHECK(!mlx5dv_devx_obj_destroy(q.eq));
		_exit(0);
	}
	CHECK(wait(&status) > 0 && !status);
	emu_queue_close(&q);
}

/* No call is a cancellation point: the thread comes through all of them, and leaves no lock behind. */
static void *cancelled(void *came_through)
{
	struct verbatim_function *other;
	struct mlx5dv_devx_obj *eq;
	struct emu_queue q;
	uint32_t number;

	pthread_cancel(pthread_self());
	other = verbatim_function_open(info.vhca_id + 1); /* whose page nobody has mapped yet */
	CHECK(other && verbatim_function_eventfd(other, 0) >= 0);
	CHECK(!verbatim_function_ring(other, 0, 1));
	CHECK(!verbatim_function_close(other));
	eq = eq_make(ctx, info.vhca_id + 1, 0, &number);
	CHECK(!mlx5dv_devx_obj_destroy(eq));
	emu_queue_open(&q, ctx, process, on_doorbell, &info, 0, 0, (struct emu_state){ 0 });
	emu_queue_close(&q);
	*(bool *)came_through = true;
	pthread_testcancel();
	return NULL;
}

static void cancellation(void)
{
	struct verbatim_function *other;
	bool came_through = false;
	pthread_t thread;
	void *result;

	CHECK(!pthread_create(&thread, NULL, cancelled, &came_through));
	CHECK(!pthread_join(thread, &result));
	CHECK(came_through && result == PTHREAD_CANCELED);
	other = verbatim_function_open(info.vhca_id + 1);
	CHECK(other && !verbatim_function_close(other));
}

static void driver_refusals(void)
{
	struct verbatim_function_info two[2], got;
	int status;

	CHECK(verbatim_function_list(NULL, 0) == verbatim_function_list(two, 2));
	CHECK(verbatim_function_list(NULL, 1) == -EINVAL);
	CHECK(!strcmp(two[0].adapter, "mlx5_0") && two[0].vhca_id == info.vhca_id &&
	      two[1].vhca_id != info.vhca_id);
	CHECK(!verbatim_function_query(function, &got) && !memcmp(&got, &info, sizeof(got)));
	CHECK(verbatim_function_query(function, NULL) == -EINVAL);
	CHECK(verbatim_function_query(NULL, &got) == -EINVAL);
	CHECK(!verbatim_function_open(info.vhca_id) && errno == EBUSY);
	CHECK(!verbatim_function_open(0) && errno == EINVAL);
	CHECK(!verbatim_function_open(0xffff) && errno == EINVAL);
	CHECK(verbatim_function_ring(function, info.queues, 0) == -EINVAL);
	CHECK(verbatim_function_ring(NULL, 0, 0) == -EINVAL);
	CHECK(verbatim_function_eventfd(function, info.vectors) == -EINVAL);
	CHECK(verbatim_function_eventfd(function, UINT32_MAX) == -EINVAL);
	CHECK(verbatim_function_served(function, 0) == 0);
	CHECK(verbatim_function_served(function, info.queues) == -EINVAL);
	CHECK(!verbatim_function_doorbells(NULL) && errno == EINVAL);
	CHECK(!verbatim_function_close(NULL));
	/* a forked child has no part in it */
	if (!fork()) {
		doorbell[0] = 1;
		CHECK(verbatim_function_ring(function, 0, 0) == -EINVAL);
		CHECK(verbatim_function_eventfd(function, 40) == -EINVAL);
		CHECK(verbatim_function_served(function, 0) == -EINVAL);
		CHECK(!verbatim_function_close(function));
		_exit(0);
	}
	CHECK(wait(&status) > 0 && !status);
	/* a descriptor that the program closed is not written to, whatever has its number now */
	{
		int fd = verbatim_function_eventfd(function, 30), file, null;
		struct emu_queue q;
		char c;

		emu_queue_open(&q, ctx, process, on_doorbell, &info, 0, 30,
			       (struct emu_state){ 0 });
		CHECK(verbatim_function_served(function, 0) == 1);
		null = fileno(tmpfile());
		CHECK(null >= 0);
		file = dup2(null, fd);
		CHECK(file == fd);
		CHECK(call1(emu_msix, q.msix.work.number) == 0);
		usleep(10000);
		CHECK(pread(fd, &c, 1, 0) == 0);
		close(null);
		close(fd);
		emu_queue_close(&q);
	}
}

int main(void)
{
	ctx = open_device();
	OK(flexio_process_create(ctx, emudev, NULL, &process));
	info = first_function("mlx5_0");
	function = verbatim_function_open(info.vhca_id);
	CHECK(function);
	doorbell = verbatim_function_doorbells(function);
	CHECK(doorbell);
	arming();
	widths();
	triggers();
	stale_doorbell();
	old_forms();
	msix();
	msix_host_uar();
	commands();
	refusals();
	other_process();
	forked_child();
	cancellation();
	driver_refusals();
	CHECK(!verbatim_function_close(function));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
