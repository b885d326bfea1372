// SPDX-License-Identifier: MIT
/*
 * verbatim inject on hbl cards, as a program sees it: a port that is down loses packets and comes back, queue pairs and the
 * device fail, creations fail; and what such cards do not have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
	struct dev dev[2];
	struct mem mem[2];
	struct end end[2];
	struct fifo fifo[2];
} t;

static int set_up(void **state)
{
	for (int i = 0; i < 2; i++) {
		dev_open(&t.dev[i], i);
		set_port(&t.dev[i], 1);
		set_port(&t.dev[i], 2);
		mem_device(&t.mem[i], &t.dev[i], 65536);
		fifo_create(&t.fifo[i], &t.dev[i], 1, HBLDV_USR_FIFO_TYPE_DB);
	}
	return 0;
}

static int tear_down(void **state)
{
	for (int i = 0; i < 2; i++) {
		hbl_end_destroy(&t.end[i]);
		CHECK(!hbldv_destroy_usr_fifo(t.fifo[i].usr));
		mem_free(&t.mem[i]);
	}
	for (int i = 0; i < 2; i++)
		dev_close(&t.dev[i]);
	return 0;
}

/* The exit code of the tool. */
static int inject(const char *fault)
{
	char command[512];
	int status;

	snprintf(command, sizeof(command), "exec %s inject --pid %d %s >/dev/null 2>&1",
		 getenv("VERBATIM_TEST_TOOL"), (int)getpid(), fault);
	status = system(command);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void connect(const struct conn_attr *attr)
{
	for (int i = 0; i < 2; i++)
		hbl_end_create(&t.end[i], &t.dev[i], &(struct end_attr){ .port = 1 });
	ends_connect(&t.end[0], &t.end[1], attr);
}

static void write_from(int i, uint32_t tag)
{
	hbl_end_write(&t.end[i], &t.fifo[i], t.mem[i].va, t.mem[1 - i].va + 4096, 64, tag);
}

static void arrives(int i, uint32_t tag)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end[i].req, &cqe);
	assert_int_equal(cqe.tag, ~tag);
}

static enum ibv_qp_state state_of(struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

static enum ibv_port_state port_state(int i, uint8_t port)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(t.dev[i].context, port, &attr), 0);
	assert_int_equal(attr.phys_state, attr.state == IBV_PORT_ACTIVE ? 5 : 3);
	return attr.state;
}

static void port_event(int i, enum ibv_event_type type, int port)
{
	struct ibv_async_event event;

	assert_int_equal(ibv_get_async_event(t.dev[i].context, &event), 0);
	assert_int_equal(event.event_type, type);
	assert_int_equal(event.element.port_num, port);
	ibv_ack_async_event(&event);
}

/* What is written while a port is down, on either side, arrives when it is up again. */
static void port_down_and_up(void **state)
{
	static const char *const down[] = { "hbl_0 port 1 down", "hbl_1 port 1 down" };
	static const char *const up[] = { "hbl_0 port 1 up", "hbl_1 port 1 up" };
	struct cqe cqe;

	connect(&(struct conn_attr){ .timeout = 16, .retry = 7 });
	write_from(0, 1);
	arrives(0, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(inject(down[i]), 0);
		port_event(i, IBV_EVENT_PORT_ERR, 1);
		assert_int_equal(port_state(i, 1), IBV_PORT_DOWN);
		assert_int_equal(port_state(i, 2), IBV_PORT_ACTIVE);
		assert_int_equal(port_state(1 - i, 1), IBV_PORT_ACTIVE);
		assert_int_equal(inject(down[i]), 0); /* it is already */
		fill(t.mem[0].host, 64, 100 + i);
		write_from(0, 10 + i);
		usleep(30000);
		assert_false(hbl_cq_poll(&t.end[0].req, &cqe));
		assert_false(is_filled((char *)t.mem[1].host + 4096, 64, 100 + i));
		assert_int_equal(state_of(&t.end[0]), IBV_QPS_RTS);
		assert_int_equal(inject(up[i]), 0);
		port_event(i, IBV_EVENT_PORT_ACTIVE, 1);
		assert_int_equal(port_state(i, 1), IBV_PORT_ACTIVE);
		arrives(0, 10 + i);
		assert_true(is_filled((char *)t.mem[1].host + 4096, 64, 100 + i));
		assert_true(no_event(&t.dev[i]));
	}
	write_from(1, 20);
	arrives(1, 20);
}

/* Too long: the retries are used up. A queue pair that is connected meanwhile finds nobody, too. */
static void port_stays_down(void **state)
{
	const struct conn_attr attr = { .timeout = 8, .retry = 2 };

	connect(&attr);
	write_from(0, 1);
	arrives(0, 1);
	assert_int_equal(inject("hbl_0 port 1 down"), 0);
	expect_event(&t.dev[0], IBV_EVENT_PORT_ERR);
	write_from(0, 2);
	expect_event(&t.dev[0], IBV_EVENT_QP_FATAL);
	assert_int_equal(state_of(&t.end[0]), IBV_QPS_ERR);
	assert_int_equal(state_of(&t.end[1]), IBV_QPS_RTS);
	for (int i = 0; i < 2; i++)
		hbl_end_destroy(&t.end[i]);
	connect(&attr);
	write_from(0, 3);
	expect_event(&t.dev[0], IBV_EVENT_QP_FATAL);
	assert_int_equal(inject("hbl_0 port 1 up"), 0);
	expect_event(&t.dev[0], IBV_EVENT_PORT_ACTIVE);
}

static void qp_error(void **state)
{
	char fault[64];

	connect(NULL);
	snprintf(fault, sizeof(fault), "hbl_0 qp %u error", t.end[0].q.qp_num);
	assert_int_equal(inject(fault), 0);
	expect_event(&t.dev[0], IBV_EVENT_QP_FATAL);
	assert_int_equal(state_of(&t.end[0]), IBV_QPS_ERR);
	assert_int_equal(state_of(&t.end[1]), IBV_QPS_RTS);
	assert_int_equal(inject(fault), 1); /* it is already */
	assert_true(no_event(&t.dev[0]));
}

/* What was rung before completes; the next entry does not, and no error has a completion here. */
static void next_status(void **state)
{
	static const char *const all[] = {
		"hbl_0 qp all next RETRY_EXC_ERR",   "hbl_0 qp all next REM_ACCESS_ERR",
		"hbl_0 qp all next REM_INV_REQ_ERR", "hbl_0 qp all next LOC_PROT_ERR",
		"hbl_0 qp all next LOC_LEN_ERR",     "hbl_0 qp all next LOC_QP_OP_ERR",
	};
	struct cqe cqe;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		connect(NULL);
		write_from(0, 1);
		assert_int_equal(inject(all[i]), 0);
		arrives(0, 1);
		write_from(0, 2);
		expect_event(&t.dev[0], IBV_EVENT_QP_FATAL);
		assert_int_equal(state_of(&t.end[0]), IBV_QPS_ERR);
		assert_false(hbl_cq_poll(&t.end[0].req, &cqe));
		for (int k = 0; k < 2; k++)
			hbl_end_destroy(&t.end[k]);
	}
	connect(NULL);
	assert_int_equal(inject("hbl_0 qp all next MW_BIND_ERR"), 1);
	assert_int_equal(inject("hbl_0 qp all next recv LOC_LEN_ERR"), 1);
	write_from(0, 3);
	arrives(0, 3);
}

static void device_fatal(void **state)
{
	struct hbldv_usr_fifo_attr fifo = { .port_num = 1 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	connect(NULL);
	assert_int_equal(inject("hbl_0 fatal"), 0);
	expect_event(&t.dev[0], IBV_EVENT_DEVICE_FATAL);
	assert_true(no_event(&t.dev[0]));
	assert_int_equal(state_of(&t.end[0]), IBV_QPS_ERR);
	assert_int_equal(state_of(&t.end[1]), IBV_QPS_RTS);
	errno = 0;
	assert_null(ibv_create_cq(t.dev[0].context, 16, NULL, NULL, 0));
	assert_int_equal(errno, EIO);
	errno = 0;
	assert_null(hbldv_create_usr_fifo(t.dev[0].context, &fifo));
	assert_int_equal(errno, EIO);
	assert_int_equal(ibv_modify_qp(t.end[0].qp, &attr, IBV_QP_STATE), 0);
	/* A new context is of a device that works. */
	tear_down(NULL);
	set_up(NULL);
	connect(NULL);
	write_from(0, 1);
	arrives(0, 1);
}

static void creations(void **state)
{
	struct hbldv_usr_fifo_attr attr = { .port_num = 1 };
	struct hbldv_usr_fifo *fifo;
	struct ibv_cq *cq;

	connect(NULL);
	assert_int_equal(inject("hbl_0 fail cq 1"), 0);
	errno = 0;
	assert_null(ibv_create_cq(t.dev[0].context, 16, NULL, NULL, 0));
	assert_int_equal(errno, ENOMEM);
	cq = ibv_create_cq(t.dev[0].context, 16, NULL, NULL, 0);
	assert_non_null(cq);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(inject("hbl_0 fail any 1"), 0);
	assert_null(hbldv_create_usr_fifo(t.dev[0].context, &attr));
	fifo = hbldv_create_usr_fifo(t.dev[0].context, &attr);
	assert_non_null(fifo);
	assert_int_equal(hbldv_destroy_usr_fifo(fifo), 0);
}

static void refused(void **state)
{
	connect(NULL);
	assert_int_equal(inject("hbl_0 fail mr 1"), 1);
	assert_int_equal(inject("hbl_0 fail srq 1"), 1);
	assert_int_equal(inject("hbl_0 eu 1 stuck"), 1);
	assert_int_equal(inject("hbl_0 port 250 down"), 1);
	assert_int_equal(inject("hbl_0 qp 8000 error"), 1);
	assert_int_equal(inject("hbl_7 port 1 down"), 1);
	assert_true(no_event(&t.dev[0]));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(port_down_and_up), TEST(port_stays_down), TEST(qp_error), TEST(next_status),
		TEST(device_fatal),     TEST(creations),       TEST(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
