// SPDX-License-Identifier: MIT
/*
 * What a program gets that leaves something out, or asks for it in an unusual way: default contexts, completion queues
 * without a port, queue pairs without sizes or attributes, types of work together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	      IBV_QP_MAX_QP_RD_ATOMIC,
};

static struct dev dev;

static int open_one(void **state)
{
	dev_open(&dev, 0);
	set_port(&dev, 1);
	return 0;
}

static int close_one(void **state)
{
	dev_close(&dev);
	return 0;
}

static struct ibv_qp *new_qp(struct cq *cq, uint32_t max_wr)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = cq->ibv,
					 .recv_cq = cq->ibv,
					 .cap.max_send_wr = max_wr };
	struct ibv_qp *qp = ibv_create_qp(dev.pd, &attr);

	assert_non_null(qp);
	return qp;
}

/* A child has none of its parent's devices, and not their contexts either. */
static void default_context_of_parent(void **state)
{
	struct ibv_device *device = find_device(1);
	struct ibv_context *context = ibv_open_device(device);
	int status;
	pid_t pid;

	assert_non_null(context);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		CHECK(!ibv_open_device(device) && errno == EBUSY);
		CHECK(!ibv_close_device(context));
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_ptr_equal(ibv_open_device(device), context);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* The default context is one: opened again it is the same, and it goes with the last close. */
static void default_context(void **state)
{
	struct ibv_device *device = find_device(1);
	struct ibv_context *context = ibv_open_device(device), *again;
	struct hbldv_ucontext_attr attr = { 0 };
	struct ibv_device_attr query;
	struct dev other;

	assert_non_null(context);
	again = ibv_open_device(device);
	assert_ptr_equal(again, context);
	assert_ptr_equal(hbldv_open_device(device, NULL), context);
	assert_int_equal(open("/dev/accel/accel1", O_RDWR), -1); /* the context's */
	assert_int_equal(errno, EBUSY);
	assert_null(hbldv_open_device(device, &attr)); /* one with attributes is another */
	dev_open(&other, 0);                           /* another device has its own */
	assert_ptr_not_equal(other.context, context);
	dev_close(&other);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(ibv_close_device(again), 0);
	assert_int_equal(ibv_query_device(context, &query), 0);
	assert_int_equal(ibv_close_device(context), 0);
	dev_open(&other, 1);
	/* A context with attributes is nobody else's. */
	assert_null(ibv_open_device(device));
	assert_int_equal(errno, EBUSY);
	assert_null(hbldv_open_device(device, NULL));
	assert_int_equal(errno, EBUSY);
	dev_close(&other);
	/* Without ibv_open_device() before. */
	context = hbldv_open_device(device, NULL);
	assert_non_null(context);
	assert_int_equal(ibv_close_device(context), 0);
}

/* A CQ without a port is there for the QPs of all, and takes a number on each. */
static void cq_of_all_ports(void **state)
{
	struct ibv_context *context = ibv_open_device(find_device(1));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 3 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct hbldv_cq_attr on_port = { .port_num = 4 };
	struct hbldv_query_cq_attr q;
	struct ibv_cq *cq[15];
	struct ibv_qp *qp;
	struct ibv_pd *pd;

	assert_non_null(context);
	pd = ibv_alloc_pd(context);
	cq[14] = hbldv_create_cq(context, 4, NULL, 0, &on_port);
	assert_non_null(cq[14]);
	for (int i = 0; i < 13; i++) {
		cq[i] = ibv_create_cq(context, 4, NULL, NULL, 0);
		assert_non_null(cq[i]);
	}
	assert_null(ibv_create_cq(context, 4, NULL, NULL, 0)); /* none is left on port 4 */
	assert_int_equal(errno, EBUSY);
	on_port.port_num = 3;
	cq[13] = hbldv_create_cq(context, 4, NULL, 0,
				 &on_port); /* and nothing was taken elsewhere */
	assert_non_null(cq[13]);
	assert_null(hbldv_create_cq(context, 4, NULL, 0, &on_port));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(hbldv_query_cq(cq[0], &q), 0);
	assert_int_equal(q.cq_num, 2);
	assert_non_null(q.mem_cpu_addr);
	init.send_cq = init.recv_cq = cq[0];
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	for (int i = 0; i < 15; i++)
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	cq[0] = ibv_create_cq(context, 4, NULL, NULL, 0);
	assert_non_null(cq[0]); /* all numbers came back */
	assert_int_equal(hbldv_query_cq(cq[0], &q), 0);
	assert_int_equal(q.cq_num, 2);
	assert_int_equal(ibv_destroy_cq(cq[0]), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* No entries asked for: as few as there can be. */
static void create_qp_of_no_entries(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp;
	struct cq cq;

	hbl_cq_create(&cq, &dev, 1, 16);
	qp = new_qp(&cq, 0);
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, NULL), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq.ibv), 0);
}

/* What the driver does not know of a mask is taken off it. */
static void create_qp_ex_clears_mask(void **state)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC,
					    .cap.max_send_wr = 16,
					    .comp_mask = IBV_QP_INIT_ATTR_PD |
							 IBV_QP_INIT_ATTR_CREATE_FLAGS |
							 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | 1u << 20,
					    .create_flags = 0x55,
					    .pd = dev.pd };
	struct ibv_qp *qp;
	struct cq cq;

	hbl_cq_create(&cq, &dev, 1, 16);
	attr.send_cq = attr.recv_cq = cq.ibv;
	qp = ibv_create_qp_ex(dev.context, &attr);
	assert_non_null(qp);
	assert_int_equal(attr.comp_mask, IBV_QP_INIT_ATTR_PD);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	attr.comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS; /* without the one that is needed */
	assert_null(ibv_create_qp_ex(dev.context, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_cq(cq.ibv), 0);
}

/* Without hbl attributes: those of ibv_modify_qp(). */
static void modify_defaults(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct address self;
	struct fifo fifo;
	struct end end;
	struct cqe cqe;

	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	attr.qp_state = IBV_QPS_RESET;
	assert_int_equal(hbldv_modify_qp(end.qp, &attr, IBV_QP_STATE, NULL), 0);
	attr.qp_state = IBV_QPS_INIT;
	assert_int_equal(hbldv_modify_qp(end.qp, &attr, INIT, NULL), 0);
	assert_int_equal(hbldv_query_qp(end.qp, &end.q), 0);
	hbl_end_address(&end, &self);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_4096,
				     .dest_qp_num = self.qpn,
				     .ah_attr = { .is_global = 1, .grh.dgid = self.gid } };
	assert_int_equal(hbldv_modify_qp(end.qp, &attr, RTR, NULL), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7 };
	assert_int_equal(hbldv_modify_qp(end.qp, &attr, RTS, NULL), 0);
	assert_int_equal(hbldv_query_qp(end.qp, &end.q), 0);
	fifo_create(&fifo, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	hbl_end_post(&end, &(struct wqe){ .opcode = LINEAR, .completion = CQ, .tag = 3 }, true);
	fifo_ring(&fifo, end.q.qp_num, hbl_end_pi(&end));
	hbl_cq_wait(&end.res, &cqe);
	hbl_cq_wait(&end.req, &cqe);
	assert_int_equal(cqe.tag, ~3u);
	assert_int_equal(hbldv_destroy_usr_fifo(fifo.usr), 0);
	hbl_end_destroy(&end);
}

/* Which types of work one queue may be for. */
static void mixed_types(void **state)
{
	enum { WRITE = HBLDV_WQ_WRITE, RECV = HBLDV_WQ_RECV_RDV, READ = HBLDV_WQ_READ_RDV };
	enum { SEND_RDV = HBLDV_WQ_SEND_RDV, ENDP = HBLDV_WQ_READ_RDV_ENDP };
	static const int good[] = { WRITE, RECV, READ, SEND_RDV, ENDP, WRITE | RECV, WRITE | READ };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp;
	struct cq cq;

	hbl_cq_create(&cq, &dev, 1, 16);
	for (int type = 0; type < 64; type++) {
		struct hbldv_qp_attr hbl = { .wq_type = (enum hbldv_qp_wq_types)type };
		int expected = EINVAL;

		for (int i = 0; i < 7; i++)
			if (type == good[i])
				expected = 0;
		qp = new_qp(&cq, 16);
		assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, &hbl), expected);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	assert_int_equal(ibv_destroy_cq(cq.ibv), 0);
}

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_one, close_one)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(default_context),
		cmocka_unit_test(default_context_of_parent),
		cmocka_unit_test(cq_of_all_ports),
		WITH_DEVICE(create_qp_of_no_entries),
		WITH_DEVICE(create_qp_ex_clears_mask),
		WITH_DEVICE(modify_defaults),
		WITH_DEVICE(mixed_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
