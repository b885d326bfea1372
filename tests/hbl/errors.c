// SPDX-License-Identifier: MIT
/*
 * What a doorbell or a work queue entry can do wrong: the event, the state, that the FIFO's index moves on, and that the
 * other queue pairs of the port do not care. The syndrome is in the log.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <fcntl.h>
#include <misc/habanalabs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
	struct dev dev[2];
	struct mem mem[2];
	struct end end[2], bystander;
	struct fifo fifo[2];
	char log[64];
} t;

static void expect_log(const char *text)
{
	static char buf[65536];
	int fd = open(t.log, O_RDONLY);
	ssize_t n = read(fd, buf, sizeof(buf) - 1);

	close(fd);
	assert_true(n >= 0);
	buf[n] = 0;
	if (!strstr(buf, text))
		fprintf(stderr, "log without '%s':\n%s", text, buf);
	assert_non_null(strstr(buf, text));
}

static void make_ends(enum hbldv_qp_wq_types a, enum hbldv_qp_wq_types b, bool wide,
		      const struct conn_attr *attr)
{
	for (int i = 0; i < 2; i++)
		hbl_end_create(&t.end[i], &t.dev[i],
			       &(struct end_attr){ .port = 1, .type = i ? b : a, .wide = wide });
	ends_connect(&t.end[0], &t.end[1], attr);
}

static int set_up(void **state)
{
	struct address self;

	if (truncate(t.log, 0))
		return 1;
	for (int i = 0; i < 2; i++) {
		dev_open(&t.dev[i], i);
		set_port(&t.dev[i], 1);
		mem_device(&t.mem[i], &t.dev[i], 65536);
		fifo_create(&t.fifo[i], &t.dev[i], 1, HBLDV_USR_FIFO_TYPE_DB);
	}
	hbl_end_create(&t.bystander, &t.dev[0], &(struct end_attr){ .port = 1 });
	hbl_end_address(&t.bystander, &self);
	hbl_end_connect(&t.bystander, &self, NULL);
	return 0;
}

static int tear_down(void **state)
{
	hbl_end_destroy(&t.bystander);
	for (int i = 0; i < 2; i++) {
		hbl_end_destroy(&t.end[i]);
		CHECK(!hbldv_destroy_usr_fifo(t.fifo[i].usr));
		mem_free(&t.mem[i]);
	}
	/* After all ends: both may be on one device. */
	for (int i = 0; i < 2; i++)
		dev_close(&t.dev[i]);
	return 0;
}

static void ring(uint32_t pi)
{
	fifo_ring(&t.fifo[0], t.end[0].q.qp_num, pi);
}

static void post(const struct wqe *wqe)
{
	hbl_end_post(&t.end[0], wqe, true);
	ring(hbl_end_pi(&t.end[0]));
}

static enum ibv_qp_state state_of(struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

/* The FIFO took it, and goes on for others. */
static void others_go_on(void)
{
	struct cqe cqe;

	hbl_end_write(&t.bystander, &t.fifo[0], t.mem[0].va, t.mem[0].va + 4096, 64, 77);
	hbl_cq_wait(&t.bystander.req, &cqe);
	assert_int_equal(cqe.tag, ~77u);
	assert_int_equal(fifo_free(&t.fifo[0]), t.dev[0].gaudi3 ? 128 : 64);
	assert_int_equal(state_of(&t.bystander), IBV_QPS_RTS);
}

static void failed(const char *log)
{
	struct cqe cqe;

	expect_event(&t.dev[0], IBV_EVENT_QP_FATAL);
	assert_int_equal(t.end[0].qp->state,
			 IBV_QPS_ERR); /* known from the event, without a query */
	assert_int_equal(state_of(&t.end[0]), IBV_QPS_ERR);
	assert_false(hbl_cq_poll(&t.end[0].req, &cqe));
	expect_log(log);
	others_go_on();
	assert_true(no_event(&t.dev[0]));
}

/* --- doorbells -------------------------------------------------------------------------------------------------- */

static void bad_qpn(void **state)
{
	static const uint32_t wrong[] = { 0, 8000, 8191, 8192, 0xffffff };

	for (int i = 0; i < 5; i++) {
		fifo_ring(&t.fifo[0], wrong[i], 1);
		expect_event(&t.dev[0], IBV_EVENT_PORT_ERR);
	}
	expect_log("syndrome 0x41, QP 16777215");
	others_go_on();
}

static void qp_not_ready(void **state)
{
	hbl_end_create(&t.end[0], &t.dev[0], &(struct end_attr){ .port = 1 });
	ring(1);
	failed("syndrome 0x41");
	/* A second doorbell of a QP in error is no second event. */
	ring(1);
	others_go_on();
	assert_true(no_event(&t.dev[0]));
}

static void bad_pi(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	ring(t.dev[0].gaudi3 ? 65 : 64); /* 64 entries */
	failed("syndrome 0x43");
}

static void pi_overtakes(void **state)
{
	const struct conn_attr attr = { .dest_wq_size = 4 };

	/* Nothing completes, because no buffer is announced. */
	make_ends(HBLDV_WQ_SEND_RDV, HBLDV_WQ_RECV_RDV, false, &attr);
	for (int i = 0; i < 40; i++)
		hbl_end_post(&t.end[0], &(struct wqe){ .opcode = RDV_WRITE, .size = 4 }, true);
	ring(hbl_end_pi(&t.end[0]));
	for (int i = 0; i < 40; i++)
		hbl_end_post(&t.end[0], &(struct wqe){ .opcode = RDV_WRITE, .size = 4 }, true);
	ring(hbl_end_pi(&t.end[0]));
	failed("syndrome 0x43");
}

/* --- entries ---------------------------------------------------------------------------------------------------- */

static void wrong_index(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	hbl_end_post(
		&t.end[0],
		&(struct wqe){
			.opcode = LINEAR, .size = 8, .local = t.mem[0].va, .remote = t.mem[1].va },
		true);
	((uint32_t *)t.end[0].q.swq_cpu_addr)[0] ^= 0x500;
	ring(hbl_end_pi(&t.end[0]));
	if (t.dev[0].gaudi3) { /* has no index in its entries */
		struct cqe cqe;

		hbl_cq_wait(&t.end[0].req, &cqe);
		return;
	}
	failed("syndrome 0x91");
}

static void wrong_receive_index(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	hbl_end_post(&t.end[0], &(struct wqe){ .opcode = NOP }, true);
	((uint32_t *)t.end[0].q.rwq_cpu_addr)[0] ^= 0x500;
	ring(hbl_end_pi(&t.end[0]));
	if (t.dev[0].gaudi3) {
		struct cqe cqe;

		hbl_cq_wait(&t.end[0].req, &cqe);
		return;
	}
	failed("syndrome 0x91");
}

static void bad_opcode(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){ .opcode = 31 });
	failed("syndrome 0x40");
}

/* Reductions are not done, so they are not taken for plain writes either. */
static void reduction(void **state)
{
	struct cqe cqe;

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	memset(t.mem[1].host, 0x55, 8);
	hbl_end_post(
		&t.end[0],
		&(struct wqe){
			.opcode = LINEAR, .size = 8, .local = t.mem[0].va, .remote = t.mem[1].va },
		true);
	((uint32_t *)t.end[0].q.swq_cpu_addr)[0] |= 1u << 16;
	ring(hbl_end_pi(&t.end[0]));
	if (t.dev[0].gaudi3) { /* has other fields there */
		hbl_cq_wait(&t.end[0].req, &cqe);
		return;
	}
	failed("syndrome 0x40");
	assert_int_equal(*(char *)t.mem[1].host, 0x55);
}

static void stride_in_narrow_form(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){ .opcode = STRIDE, .size = 4 });
	failed("syndrome 0x40");
}

static void opcode_of_another_queue(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){ .opcode = RDV_READ, .size = 4 });
	failed("syndrome 0x40");
}

static void strides_do_not_add_up(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, true, NULL);
	post(&(struct wqe){ .opcode = MULTI_STRIDE,
			    .size = 100,
			    .local = t.mem[0].va,
			    .remote = t.mem[1].va,
			    .count = { 65535, 65535, 65535, 65535 },
			    .chunk = 0xffffffff });
	failed("syndrome 0x48");
}

static void inline_too_long(void **state)
{
	char data[16] = { 0 };

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	hbl_end_post(&t.end[0], &(struct wqe){ .opcode = LINEAR, .size = 16, .data = data }, true);
	((uint32_t *)t.end[0].q.swq_cpu_addr)[1] = 17;
	ring(hbl_end_pi(&t.end[0]));
	failed("syndrome 0x48");
}

static void local_address(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){ .opcode = LINEAR,
			    .size = 8,
			    .local = t.mem[0].va + 65532, /* the end is outside */
			    .remote = t.mem[1].va });
	failed("syndrome 0x44");
}

static void local_memory_gone(void **state)
{
	union hl_mem_args map = { .in = { .op = HL_MEM_OP_MAP, .flags = HL_MEM_USERPTR } };
	char *host = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	map.in.map_host.host_virt_addr = (uintptr_t)host;
	map.in.map_host.mem_size = 8192;
	assert_int_equal(ioctl(t.dev[0].accel, HL_IOCTL_MEMORY, &map), 0);
	mprotect(host, 8192, PROT_NONE); /* as unmapped, and nobody else gets the place */
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){ .opcode = LINEAR,
			    .size = 64,
			    .local = map.out.device_virt_addr,
			    .remote = t.mem[1].va });
	failed("syndrome 0x44");
}

static void queue_memory_gone(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	mprotect(t.end[0].q.swq_cpu_addr, 64 * 32, PROT_NONE);
	ring(1);
	failed("syndrome 0x44");
}

/* --- the other side --------------------------------------------------------------------------------------------- */

static void refused(const char *log)
{
	failed(log);
	expect_event(&t.dev[1], IBV_EVENT_QP_REQ_ERR);
	assert_int_equal(t.end[1].qp->state, IBV_QPS_ERR);
	assert_int_equal(state_of(&t.end[1]), IBV_QPS_ERR);
}

static void remote_address(void **state)
{
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){
		.opcode = LINEAR, .size = 8, .local = t.mem[0].va, .remote = t.mem[1].va + 65536 });
	refused("syndrome 0x45");
}

static void remote_key(void **state)
{
	const struct conn_attr attr = { .local_key = 1, .remote_key = 2 };

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, &attr);
	post(&(struct wqe){
		.opcode = LINEAR, .size = 8, .local = t.mem[0].va, .remote = t.mem[1].va });
	refused("syndrome 0x45");
}

static void remote_memory_gone(void **state)
{
	union hl_mem_args map = { .in = { .op = HL_MEM_OP_MAP, .flags = HL_MEM_USERPTR } };
	char *host = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	map.in.map_host.host_virt_addr = (uintptr_t)host;
	map.in.map_host.mem_size = 8192;
	assert_int_equal(ioctl(t.dev[1].accel, HL_IOCTL_MEMORY, &map), 0);
	mprotect(host, 8192, PROT_NONE); /* as unmapped, and nobody else gets the place */
	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){ .opcode = LINEAR,
			    .size = 8,
			    .local = t.mem[0].va,
			    .remote = map.out.device_virt_addr });
	refused("syndrome 0x45");
}

static void request_of_another_queue(void **state)
{
	make_ends(HBLDV_WQ_READ_RDV, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){
		.opcode = RDV_READ, .size = 8, .local = t.mem[0].va, .remote = t.mem[1].va });
	refused("syndrome 0x46");
}

static void announced_too_small(void **state)
{
	const struct conn_attr attr = { .dest_wq_size = 4 };
	struct cqe cqe;

	make_ends(HBLDV_WQ_SEND_RDV, HBLDV_WQ_RECV_RDV, false, &attr);
	hbl_end_post(&t.end[1], &(struct wqe){ .opcode = SEND, .size = 10, .local = t.mem[1].va },
		     true);
	fifo_ring(&t.fifo[1], t.end[1].q.qp_num, hbl_end_pi(&t.end[1]));
	hbl_cq_wait(&t.end[1].req, &cqe);
	post(&(struct wqe){ .opcode = RDV_WRITE, .size = 11, .local = t.mem[0].va });
	failed("syndrome 0x48");
}

/* The peer's QP is not there: the timeout is 2^(10+2) microseconds, twice. */
static void nobody_answers(void **state)
{
	const struct conn_attr attr = { .timeout = 10, .retry = 1 };

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, &attr);
	assert_int_equal(ibv_destroy_qp(t.end[1].qp), 0);
	t.end[1].qp = NULL;
	post(&(struct wqe){
		.opcode = LINEAR, .size = 8, .local = t.mem[0].va, .remote = t.mem[1].va });
	failed("syndrome 0x47");
}

static void cq_overrun(void **state)
{
	struct ibv_async_event event;
	struct address self;
	struct end end;

	hbl_end_create(&end, &t.dev[0], &(struct end_attr){ .port = 1, .cqes = 4 });
	hbl_end_address(&end, &self);
	hbl_end_connect(&end, &self, NULL);
	for (int i = 0; i < 5; i++) {
		hbl_end_post(&end, &(struct wqe){ .opcode = NOP }, true);
		fifo_ring(&t.fifo[0], end.q.qp_num, hbl_end_pi(&end));
		if (i < 4)
			assert_true(no_event(&t.dev[0]));
	}
	assert_int_equal(ibv_get_async_event(t.dev[0].context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, end.req.ibv);
	ibv_ack_async_event(&event);
	assert_int_equal(*(uint32_t *)end.req.q.pi_cpu_addr, 4);
	others_go_on();
	hbl_end_destroy(&end);
}

static void *destroy_cq(void *cq)
{
	return (void *)(intptr_t)ibv_destroy_cq(cq);
}

static void *destroy_qp(void *qp)
{
	return (void *)(intptr_t)ibv_destroy_qp(qp);
}

/*
 * A thread may use the object of an event until it has acknowledged it: the destruction by another thread waits. Without
 * that, the queries are of memory that was freed, which ASan sees.
 */
static void destroyed_before_acknowledged(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_async_event event;
	struct ibv_qp_attr attr;
	pthread_t thread;
	void *ret;

	make_ends(HBLDV_WQ_WRITE, HBLDV_WQ_WRITE, false, NULL);
	post(&(struct wqe){ .opcode = 31 });
	assert_int_equal(ibv_get_async_event(t.dev[0].context, &event), 0);
	assert_ptr_equal(event.element.qp, t.end[0].qp);
	assert_int_equal(pthread_create(&thread, NULL, destroy_qp, event.element.qp), 0);
	usleep(50000);
	assert_int_equal(pthread_tryjoin_np(thread, &ret), EBUSY);
	assert_int_equal(ibv_query_qp(event.element.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	ibv_ack_async_event(&event);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_null(ret);
	t.end[0].qp = NULL;
}

static void cq_destroyed_before_acknowledged(void **state)
{
	struct ibv_async_event event;
	struct address self;
	pthread_t thread;
	struct end end;
	void *ret;

	hbl_end_create(&end, &t.dev[0], &(struct end_attr){ .port = 1, .cqes = 4 });
	hbl_end_address(&end, &self);
	hbl_end_connect(&end, &self, NULL);
	for (int i = 0; i < 5; i++) {
		hbl_end_post(&end, &(struct wqe){ .opcode = NOP }, true);
		fifo_ring(&t.fifo[0], end.q.qp_num, hbl_end_pi(&end));
	}
	assert_int_equal(ibv_get_async_event(t.dev[0].context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_int_equal(ibv_destroy_qp(end.qp), 0);
	assert_int_equal(pthread_create(&thread, NULL, destroy_cq, event.element.cq), 0);
	usleep(50000);
	assert_int_equal(pthread_tryjoin_np(thread, &ret), EBUSY);
	assert_int_equal(event.element.cq->cqe >= 4, 1);
	ibv_ack_async_event(&event);
	assert_int_equal(pthread_join(thread, &ret), 0);
	assert_null(ret);
	assert_int_equal(ibv_destroy_cq(end.res.ibv), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bad_qpn),
		TEST(qp_not_ready),
		TEST(bad_pi),
		TEST(pi_overtakes),
		TEST(wrong_index),
		TEST(wrong_receive_index),
		TEST(bad_opcode),
		TEST(reduction),
		TEST(stride_in_narrow_form),
		TEST(opcode_of_another_queue),
		TEST(strides_do_not_add_up),
		TEST(inline_too_long),
		TEST(local_address),
		TEST(local_memory_gone),
		TEST(queue_memory_gone),
		TEST(remote_address),
		TEST(remote_key),
		TEST(remote_memory_gone),
		TEST(request_of_another_queue),
		TEST(announced_too_small),
		TEST(nobody_answers),
		TEST(cq_overrun),
		TEST(destroyed_before_acknowledged),
		TEST(cq_destroyed_before_acknowledged),
	};
	int fd, ret;

	strcpy(t.log, "/tmp/verbatim-test-hbl.XXXXXX");
	fd = mkstemp(t.log);
	CHECK(fd >= 0);
	close(fd);
	/* Read when the library loads: it is a child of this one that has it. */
	if (!getenv("VERBATIM_LOG_FILE")) {
		setenv("VERBATIM_LOG_FILE", t.log, 1);
		execl("/proc/self/exe", "hbl_errors", (char *)NULL);
	}
	unlink(t.log);
	snprintf(t.log, sizeof(t.log), "%s", getenv("VERBATIM_LOG_FILE"));
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(t.log);
	return ret;
}
