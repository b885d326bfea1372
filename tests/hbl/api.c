// SPDX-License-Identifier: MIT
/* Every function of hbl direct verbs at its edges: what is refused, with which error, and that nothing changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct dev dev;

static int open_one(void **state)
{
	dev_open(&dev, 0);
	return 0;
}

static int close_one(void **state)
{
	dev_close(&dev);
	return 0;
}

static struct ibv_context *other_context(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list[i] && !context; i++)
		if (!hbldv_is_supported(list[i]))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(context);
	return context;
}

/* --- devices ---------------------------------------------------------------------------------------------------- */

static void supported(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int hbl = 0;

	assert_false(hbldv_is_supported(NULL));
	for (int i = 0; list[i]; i++) {
		bool expected = !strncmp(list[i]->name, "hbl_", 4);

		assert_int_equal(hbldv_is_supported(list[i]), expected);
		hbl += expected;
	}
	assert_int_equal(hbl, 2);
	ibv_free_device_list(list);
}

static void open_refuses(void **state)
{
	struct hbldv_ucontext_attr attr = { .core_fd = -1 };
	struct ibv_device *device = find_device(0);
	struct ibv_context *mlx5 = other_context();
	int file = open("/dev/null", O_RDONLY), other, accel;

	assert_null(hbldv_open_device(NULL, &attr));
	assert_int_equal(errno, EINVAL);
	assert_null(hbldv_open_device(device, &attr));
	assert_int_equal(errno, EBADF);
	attr.core_fd = 987;
	assert_null(hbldv_open_device(device, &attr));
	assert_int_equal(errno, EBADF);
	attr.core_fd = file;
	assert_null(hbldv_open_device(device, &attr));
	assert_int_equal(errno, ENODEV);
	assert_null(hbldv_open_device(mlx5->device, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	other = open("/dev/accel/accel1", O_RDWR);
	assert_true(other >= 0);
	attr.core_fd = other;
	assert_null(hbldv_open_device(device, &attr)); /* of another device */
	assert_int_equal(errno, EINVAL);
	accel = open("/dev/accel/accel0", O_RDWR);
	assert_true(accel >= 0);
	attr = (struct hbldv_ucontext_attr){ .core_fd = accel, .ports_mask = 1 };
	assert_null(hbldv_open_device(device, &attr)); /* ports count from 1 */
	assert_int_equal(errno, EINVAL);
	attr.ports_mask = 1ull << 30;
	assert_null(hbldv_open_device(device, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(open("/dev/accel/accel7", O_RDWR), -1);
	assert_int_equal(errno, ENOENT);
	close(accel);
	close(other);
	close(file);
	ibv_close_device(mlx5);
}

static void one_context(void **state)
{
	struct hbldv_ucontext_attr attr = { .core_fd = dev.accel };

	assert_null(hbldv_open_device(find_device(0), &attr));
	assert_int_equal(errno, EBUSY);
	assert_null(ibv_open_device(find_device(0)));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(open("/dev/accel/accel0", O_RDWR), -1);
	assert_int_equal(errno, EBUSY);
}

static void ports_mask(void **state)
{
	struct hbldv_query_port_attr port;
	struct hbldv_device_attr attr;
	struct dev two;

	assert_int_equal(try_open(&two, 1, 1 << 2 | 1 << 3), 0);
	assert_int_equal(hbldv_query_device(two.context, &attr), 0);
	assert_int_equal(attr.ports_mask, 1 << 2 | 1 << 3);
	assert_int_equal(attr.caps, HBLDV_DEVICE_ATTR_CAP_CC);
	assert_int_equal(hbldv_query_port(two.context, 1, &port), EINVAL);
	assert_int_equal(hbldv_query_port(two.context, 2, &port), 0);
	assert_int_equal(try_set_port(&two, 1, 0, false), EINVAL);
	assert_int_equal(try_set_port(&two, 3, 0, false), 0);
	dev_close(&two);
}

static void query_device(void **state)
{
	struct ibv_device_attr verbs;
	struct hbldv_device_attr attr;

	assert_int_equal(hbldv_query_device(dev.context, NULL), EINVAL);
	assert_int_equal(hbldv_query_device(NULL, &attr), EINVAL);
	assert_int_equal(hbldv_query_device(dev.context, &attr), 0);
	assert_int_equal(ibv_query_device(dev.context, &verbs), 0);
	assert_int_equal(verbs.vendor_id, 0x1da3);
	assert_true(verbs.vendor_part_id == 0x1020 || verbs.vendor_part_id == 0x1060);
	assert_int_equal(attr.ports_mask, (2ull << verbs.phys_port_cnt) - 2);
}

static void foreign_context(void **state)
{
	struct hbldv_port_ex_attr port = { 0 };
	struct hbldv_query_port_attr query;
	struct hbldv_device_attr device;
	struct hbldv_usr_fifo_attr fifo = { .port_num = 1 };
	struct hbldv_encap_attr encap = { .port_num = 1 };
	struct hbldv_cq_attr cq = { .port_num = 1 };
	struct hbldv_query_cq_attr cq_query;
	struct ibv_context *mlx5 = other_context();
	struct ibv_cq *ibcq = ibv_create_cq(mlx5, 4, NULL, NULL, 0);

	assert_int_equal(hbldv_query_device(mlx5, &device), EOPNOTSUPP);
	assert_int_equal(hbldv_set_port_ex(mlx5, &port), EOPNOTSUPP);
	assert_int_equal(hbldv_query_port(mlx5, 1, &query), EOPNOTSUPP);
	assert_null(hbldv_create_cq(mlx5, 4, NULL, 0, &cq));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(hbldv_create_usr_fifo(mlx5, &fifo));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(hbldv_create_encap(mlx5, &encap));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(hbldv_query_cq(ibcq, &cq_query), EOPNOTSUPP);
	ibv_destroy_cq(ibcq);
	ibv_close_device(mlx5);
}

/* --- ports ------------------------------------------------------------------------------------------------------ */

static void order_of_calls(void **state)
{
	struct hbldv_usr_fifo_attr fifo = { .port_num = 1 };
	struct hbldv_encap_attr encap = { .port_num = 1, .ipv4_addr = 1 };
	struct hbldv_cq_attr cq = { .port_num = 1 };

	assert_null(hbldv_create_cq(dev.context, 4, NULL, 0, &cq));
	assert_int_equal(errno, EPERM);
	assert_null(hbldv_create_usr_fifo(dev.context, &fifo));
	assert_int_equal(errno, EPERM);
	assert_null(hbldv_create_encap(dev.context, &encap));
	assert_int_equal(errno, EPERM);
	cq.cq_type = HBLDV_CQ_TYPE_CC;
	assert_null(hbldv_create_cq(dev.context, 4, NULL, 0, &cq));
	assert_int_equal(errno, EPERM);
	set_port(&dev, 1);
	assert_int_equal(try_set_port(&dev, 1, HBLDV_PORT_CAP_ADVANCED, true), EPERM);
	set_port(&dev, 2); /* the other ports are their own */
}

static int set_wqs(uint32_t wqs, uint32_t wqes, uint32_t mem, uint32_t gran, uint64_t caps,
		   uint32_t bp)
{
	struct hbldv_port_ex_attr attr = { .port_num = 1, .caps = caps };

	attr.wq_arr_attr[0] = (struct hbldv_wq_array_attr){
		.max_num_of_wqs = wqs,
		.max_num_of_wqes_in_wq = wqes,
		.mem_id = (enum hbldv_mem_id)mem,
		.swq_granularity = (enum hbldv_swq_granularity)gran,
	};
	attr.qp_wq_bp_offs[15] = bp;
	return hbldv_set_port_ex(dev.context, &attr);
}

static void set_port_refuses(void **state)
{
	struct hbldv_query_port_attr port;

	assert_int_equal(hbldv_set_port_ex(dev.context, NULL), EINVAL);
	assert_int_equal(set_wqs(1, 64, HBLDV_MEM_HOST, 0, 0, 0), EINVAL);
	assert_int_equal(set_wqs(8192, 64, HBLDV_MEM_HOST, 0, 0, 0), EINVAL);
	assert_int_equal(set_wqs(8, 8, HBLDV_MEM_HOST, 0, 0, 0), EINVAL);
	assert_int_equal(set_wqs(8, 65536, HBLDV_MEM_HOST, 0, 0, 0), EINVAL);
	assert_int_equal(set_wqs(8, 100, HBLDV_MEM_HOST, 0, 0, 0), EINVAL);
	assert_int_equal(set_wqs(8, 64, 0, 0, 0, 0), EINVAL);
	assert_int_equal(set_wqs(8, 64, 3, 0, 0, 0), EINVAL);
	assert_int_equal(set_wqs(8, 64, HBLDV_MEM_HOST, 2, 0, 0), EINVAL);
	assert_int_equal(set_wqs(8, 64, HBLDV_MEM_HOST, 0, 4, 0), EINVAL);
	assert_int_equal(set_wqs(8, 64, HBLDV_MEM_HOST, 0, 0, 64), EINVAL); /* needs ADVANCED */
	assert_int_equal(try_set_port(&dev, 0, 0, false), EINVAL);
	assert_int_equal(try_set_port(&dev, 25, 0, false), EINVAL);
	/* None of them counted. */
	assert_int_equal(hbldv_query_port(dev.context, 1, &port), 0);
	assert_int_equal(port.max_num_of_qps, 0);
	assert_int_equal(set_wqs(8, 64, HBLDV_MEM_DEVICE, 1, HBLDV_PORT_CAP_ADVANCED, 64), 0);
	assert_int_equal(hbldv_query_port(dev.context, 1, &port), 0);
	assert_int_equal(port.max_num_of_qps, 8);
	assert_int_equal(port.advanced, 1);
}

static void query_port(void **state)
{
	struct hbldv_query_port_attr port;
	struct end end, second;

	set_port(&dev, 2);
	assert_int_equal(hbldv_query_port(dev.context, 2, NULL), EINVAL);
	assert_int_equal(hbldv_query_port(dev.context, 0, &port), EINVAL);
	assert_int_equal(hbldv_query_port(dev.context, 25, &port), EINVAL);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 2 });
	assert_int_equal(hbldv_query_port(dev.context, 2, &port), 0);
	assert_int_equal(port.max_num_of_qps, 600);
	assert_int_equal(port.num_allocated_qps, 1);
	assert_int_equal(port.max_allocated_qp_num, end.q.qp_num);
	assert_int_equal(port.max_cq_size, 8192 * 16); /* bytes, as cq_size of a CQ */
	assert_int_equal(port.max_num_of_cqs, 14);
	assert_int_equal(port.max_num_of_usr_fifos, 30);
	assert_int_equal(port.max_num_of_encaps, 1);
	assert_int_equal(port.nic_phys_port_idx, 1);
	assert_int_equal(port.advanced, 1);
	/* The highest number is that of QPs which are there. */
	hbl_end_create(&second, &dev, &(struct end_attr){ .port = 2 });
	assert_int_equal(hbldv_query_port(dev.context, 2, &port), 0);
	assert_int_equal(port.max_allocated_qp_num, second.q.qp_num);
	hbl_end_destroy(&second);
	assert_int_equal(hbldv_query_port(dev.context, 2, &port), 0);
	assert_int_equal(port.max_allocated_qp_num, end.q.qp_num);
	hbl_end_destroy(&end);
	assert_int_equal(hbldv_query_port(dev.context, 2, &port), 0);
	assert_int_equal(port.num_allocated_qps, 0);
	assert_int_equal(port.max_allocated_qp_num, 0);
}

/* --- completion queues ------------------------------------------------------------------------------------------ */

static struct ibv_cq *new_cq(int cqe, uint8_t port, int type)
{
	struct hbldv_cq_attr attr = { .port_num = port, .cq_type = (enum hbldv_cq_type)type };

	errno = 0;
	return hbldv_create_cq(dev.context, cqe, NULL, 0, &attr);
}

static void cq_limits(void **state)
{
	struct ibv_cq *cq[14];
	struct hbldv_query_cq_attr q;

	set_port(&dev, 1);
	assert_null(hbldv_create_cq(dev.context, 4, NULL, 0, NULL));
	assert_int_equal(errno, EINVAL);
	assert_null(new_cq(0, 1, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(new_cq(8193, 1, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(new_cq(4, 0, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(new_cq(4, 9, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(new_cq(4, 1, 2));
	assert_int_equal(errno, EINVAL);
	assert_null(new_cq(4, 2, 0)); /* not set up */
	assert_int_equal(errno, EPERM);
	for (int i = 0; i < 14; i++) {
		cq[i] = new_cq(i ? 5 : 1, 1, 0);
		assert_non_null(cq[i]);
		assert_int_equal(cq[i]->cqe, i ? 8 : 4); /* power of two, at least 4 */
		assert_int_equal(hbldv_query_cq(cq[i], &q), 0);
		assert_int_equal(q.cq_num, i + 2);
		assert_int_equal(q.cq_size, 4096);
		assert_int_equal(q.regs_offset, q.cq_num % 2 ? 0x180 : 0x100);
		assert_int_equal(q.cq_type, HBLDV_CQ_TYPE_QP);
		assert_ptr_equal(q.ibvcq, cq[i]);
		assert_int_equal(*(uint32_t *)q.pi_cpu_addr, 0);
	}
	assert_null(new_cq(4, 1, 0));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(ibv_destroy_cq(cq[5]), 0);
	cq[5] = new_cq(8192, 1, 0);
	assert_int_equal(hbldv_query_cq(cq[5], &q), 0);
	assert_int_equal(q.cq_num, 7);
	assert_int_equal(q.cq_size, 8192 * 16);
	for (int i = 0; i < 14; i++)
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	assert_int_equal(hbldv_query_cq(NULL, &q), EINVAL);
}

static void cc_cq(void **state)
{
	struct hbldv_query_cq_attr q;
	struct ibv_cq *cq;

	set_port(&dev, 1);
	assert_int_equal(try_set_port(&dev, 2, 0, false), 0);
	assert_null(new_cq(16, 2, HBLDV_CQ_TYPE_CC)); /* needs ADVANCED */
	assert_int_equal(errno, EINVAL);
	cq = new_cq(16, 1, HBLDV_CQ_TYPE_CC);
	assert_non_null(cq);
	assert_null(new_cq(16, 1, HBLDV_CQ_TYPE_CC)); /* one */
	assert_int_equal(errno, EBUSY);
	assert_int_equal(hbldv_query_cq(cq, &q), 0);
	assert_int_equal(q.cq_type, HBLDV_CQ_TYPE_CC);
	assert_int_equal(hbldv_query_cq(cq, NULL), EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	cq = new_cq(16, 1, HBLDV_CQ_TYPE_CC);
	assert_non_null(cq);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* --- plain verbs ------------------------------------------------------------------------------------------------ */

static void verbs_without_data_path(void **state)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr ah = { .port_num = 1 };
	struct ibv_port_attr port;
	union ibv_gid gid[2];
	struct end end;
	struct ibv_wc wc;
	char byte;

	set_port(&dev, 1);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	assert_null(ibv_alloc_pd(dev.context)); /* one */
	assert_int_equal(errno, ESRCH);
	assert_null(ibv_reg_mr(dev.pd, &byte, 1, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_create_srq(dev.pd, &srq));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_create_ah(dev.pd, &ah));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_post_send(end.qp, NULL, NULL), EOPNOTSUPP);
	assert_int_equal(ibv_post_recv(end.qp, NULL, NULL), EOPNOTSUPP);
	assert_true(ibv_poll_cq(end.req.ibv, 1, &wc) < 0);
	assert_int_equal(ibv_req_notify_cq(end.req.ibv, 0), EOPNOTSUPP);
	assert_int_equal(ibv_resize_cq(end.req.ibv, 8), EOPNOTSUPP);
	assert_int_equal(ibv_query_port(dev.context, 4, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(ibv_query_gid(dev.context, 1, 0, &gid[0]), 0);
	assert_int_equal(ibv_query_gid(dev.context, 4, 0, &gid[1]), 0);
	assert_memory_not_equal(&gid[0], &gid[1], sizeof(gid[0]));
	assert_int_equal(ibv_dealloc_pd(dev.pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(end.req.ibv), EBUSY);
	hbl_end_destroy(&end);
	/* Given back, it can be had again. */
	assert_int_equal(ibv_dealloc_pd(dev.pd), 0);
	dev.pd = ibv_alloc_pd(dev.context);
	assert_non_null(dev.pd);
}

static void plain_open(void **state)
{
	struct ibv_context *context = ibv_open_device(find_device(1));
	struct hbldv_query_port_attr port;
	struct ibv_cq *cq;

	assert_non_null(context);
	assert_int_equal(hbldv_query_port(context, 3, &port), 0);
	assert_int_equal(port.max_num_of_qps, 128); /* the driver set the ports up */
	cq = ibv_create_cq(context, 10, NULL, NULL, 0);
	assert_non_null(cq);
	assert_int_equal(cq->cqe, 16);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* The structs stay: the program may still look at them, and a leak checker finds them here. */
static struct {
	struct dev dev;
	struct end end;
	struct fifo fifo;
} left;

static void close_cleans_up(void **state)
{
	struct dev two;
	struct end end;

	dev_open(&left.dev, 1);
	set_port(&left.dev, 1);
	hbl_end_create(&left.end, &left.dev, &(struct end_attr){ .port = 1 });
	fifo_create(&left.fifo, &left.dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	assert_int_equal(ibv_close_device(left.dev.context), 0);
	assert_int_equal(close(left.dev.accel), 0);
	dev_open(&two, 1);
	set_port(&two, 1);
	hbl_end_create(&end, &two, &(struct end_attr){ .port = 1 });
	assert_int_equal(end.q.qp_num, 1);
	hbl_end_destroy(&end);
	dev_close(&two);
}

/* --- queue pairs ------------------------------------------------------------------------------------------------ */

enum {
	INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
};

static struct ibv_qp *new_qp(struct cq *cq, uint32_t max_wr)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = cq->ibv,
					 .recv_cq = cq->ibv,
					 .cap.max_send_wr = max_wr };

	errno = 0;
	return ibv_create_qp(dev.pd, &attr);
}

static void create_qp_refuses(void **state)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD, .cap.max_send_wr = 16 };
	struct ibv_cq *cc;
	struct cq cq;

	set_port(&dev, 1);
	hbl_cq_create(&cq, &dev, 1, 16);
	cc = new_cq(16, 1, HBLDV_CQ_TYPE_CC);
	attr.send_cq = attr.recv_cq = cq.ibv;
	assert_null(ibv_create_qp(dev.pd, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	attr.qp_type = IBV_QPT_RC;
	attr.recv_cq = cc;
	assert_null(ibv_create_qp(dev.pd, &attr));
	assert_int_equal(errno, EINVAL);
	attr.recv_cq = NULL;
	assert_null(ibv_create_qp(dev.pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_null(new_qp(&cq, 32769));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_cq(cc), 0);
	assert_int_equal(ibv_destroy_cq(cq.ibv), 0);
}

static void init_refuses(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct hbldv_qp_attr hbl = { .wq_type = HBLDV_WQ_WRITE };
	struct hbldv_query_qp_attr q;
	struct ibv_qp *qp, *big;
	struct cq cq;

	assert_int_equal(try_set_port(&dev, 1, 0, false), 0);
	assert_int_equal(try_set_port(&dev, 2, 0, false), 0);
	hbl_cq_create(&cq, &dev, 1, 16);
	qp = new_qp(&cq, 16);
	big = new_qp(&cq, 8192); /* more than the port's work queues have */
	assert_int_equal(hbldv_modify_qp(NULL, &attr, INIT, &hbl), EINVAL);
	assert_int_equal(hbldv_modify_qp(qp, NULL, INIT, &hbl), EINVAL);
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT & ~IBV_QP_PORT, &hbl), EINVAL);
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT | IBV_QP_AV, &hbl), EINVAL);
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT & ~IBV_QP_STATE, &hbl), EINVAL);
	assert_int_equal(hbldv_modify_qp(big, &attr, INIT, &hbl), EINVAL);
	hbl.wq_granularity = HBLDV_SWQE_GRAN_64B; /* the port has 32 bytes */
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, &hbl), EINVAL);
	hbl.wq_granularity = HBLDV_SWQE_GRAN_32B;
	attr.port_num = 2; /* the CQ is on port 1 */
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, &hbl), EINVAL);
	attr.port_num = 0;
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, &hbl), EINVAL);
	attr.port_num = 3; /* not set up */
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, &hbl), EPERM);
	attr.port_num = 1;
	attr.pkey_index = 1;
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, &hbl), EINVAL);
	attr.pkey_index = 0;
	assert_int_equal(hbldv_query_qp(qp, &q), 0);
	assert_int_equal(q.qp_num, 0);
	assert_int_equal(hbldv_query_qp(qp, NULL), EINVAL);
	assert_int_equal(hbldv_query_qp(NULL, &q), EINVAL);
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, &hbl), 0);
	assert_int_equal(hbldv_modify_qp(qp, &attr, INIT, &hbl), EINVAL); /* again */
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_qp(big), 0);
	assert_int_equal(ibv_destroy_cq(cq.ibv), 0);
}

static void connect_refuses(void **state)
{
	const struct conn_attr bad_caps = { .caps = HBLDV_QP_CAP_RESERVED0 };
	const struct conn_attr cc = { .caps = HBLDV_QP_CAP_CONG_CTRL };
	const struct conn_attr encap = { .caps = HBLDV_QP_CAP_ENCAP, .encap = 1 };
	const struct conn_attr window = { .window = (1 << 23) + 1 };
	const struct conn_attr mtu = { .mtu = 7 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct hbldv_qp_attr hbl = { 0 };
	struct address peer, bad;
	struct ibv_qp_init_attr init;
	struct end end;

	assert_int_equal(try_set_port(&dev, 1, 0, false), 0); /* without ADVANCED */
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	hbl_end_address(&end, &peer);
	assert_int_equal(try_connect(&end, &peer, &bad_caps), EINVAL);
	assert_int_equal(try_connect(&end, &peer, &cc), EINVAL);
	assert_int_equal(try_connect(&end, &peer, &encap), EINVAL);
	assert_int_equal(try_connect(&end, &peer, &mtu), EINVAL);
	bad = peer;
	bad.qpn = 0;
	assert_int_equal(try_connect(&end, &bad, NULL), EINVAL);
	bad.qpn = 8192;
	assert_int_equal(try_connect(&end, &bad, NULL), EINVAL);
	bad = peer;
	bad.gid.raw[3] = 0x55; /* nobody's */
	assert_int_equal(try_connect(&end, &bad, NULL), EHOSTUNREACH);
	assert_int_equal(try_connect(&end, &peer, &window), EINVAL); /* at RTS */
	assert_null(end.q.swq_cpu_addr);
	assert_int_equal(ibv_query_qp(end.qp, &attr, 0, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTR);
	/* Back to the start: another number, and all of it again. */
	attr.qp_state = IBV_QPS_RESET;
	assert_int_equal(hbldv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PORT, &hbl), EINVAL);
	assert_int_equal(hbldv_modify_qp(end.qp, &attr, IBV_QP_STATE, &hbl), 0);
	assert_int_equal(hbldv_query_qp(end.qp, &end.q), 0);
	assert_int_equal(end.q.qp_num, 0);
	attr.qp_state = IBV_QPS_ERR;
	assert_int_equal(hbldv_modify_qp(end.qp, &attr, IBV_QP_STATE, &hbl), EINVAL);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	assert_int_equal(ibv_modify_qp(end.qp, &attr, INIT), 0);
	assert_int_equal(hbldv_query_qp(end.qp, &end.q), 0);
	assert_int_equal(end.q.qp_num, 2);
	attr.qp_state = IBV_QPS_ERR;
	assert_int_equal(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(try_connect(&end, &peer, NULL), EINVAL);
	hbl_end_destroy(&end);
}

static void rendezvous_needs_size(void **state)
{
	struct address peer;
	struct end end;

	set_port(&dev, 1);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1, .type = HBLDV_WQ_RECV_RDV });
	hbl_end_address(&end, &peer);
	assert_int_equal(try_connect(&end, &peer, NULL), EINVAL);
	hbl_end_destroy(&end);
}

static void qps_of_a_port(void **state)
{
	struct hbldv_port_ex_attr port = { .port_num = 1 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp[3];
	struct cq cq;

	port.wq_arr_attr[0] = (struct hbldv_wq_array_attr){ .max_num_of_wqs = 2,
							    .max_num_of_wqes_in_wq = 16,
							    .mem_id = HBLDV_MEM_HOST };
	assert_int_equal(hbldv_set_port_ex(dev.context, &port), 0);
	hbl_cq_create(&cq, &dev, 1, 16);
	for (int i = 0; i < 3; i++) {
		qp[i] = new_qp(&cq, 16);
		assert_int_equal(ibv_modify_qp(qp[i], &attr, INIT), i < 2 ? 0 : ENOMEM);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(cq.ibv), 0);
}

/* --- encapsulation ---------------------------------------------------------------------------------------------- */

static struct hbldv_encap_attr good_encap(void)
{
	static const char header[40] = "a header";

	return (struct hbldv_encap_attr){ .port_num = 1,
					  .tnl_hdr_ptr = (uintptr_t)header,
					  .tnl_hdr_size = 8,
					  .ipv4_addr = 0x0a000001,
					  .udp_dst_port = 4789,
					  .encap_type = HBLDV_ENCAP_TYPE_ENC_OVER_UDP };
}

static void encap_refuses(void **state)
{
	const struct hbldv_encap_attr attr = good_encap();
	struct hbldv_encap_attr bad;

	set_port(&dev, 1);
	assert_null(hbldv_create_encap(dev.context, NULL));
	assert_int_equal(errno, EINVAL);
	for (int i = 0; i < 3; i++) {
		bad = attr;
		if (!i)
			bad.port_num = 0;
		else if (i == 1)
			bad.tnl_hdr_size = 33;
		else
			bad.encap_type = (enum hbldv_encap_type)3;
		assert_null(hbldv_create_encap(dev.context, &bad));
		assert_int_equal(errno, EINVAL);
	}
	for (int i = 0; i < 2; i++) {
		bad = attr;
		bad.tnl_hdr_ptr = i ? 4096 : 0; /* nobody's memory */
		assert_null(hbldv_create_encap(dev.context, &bad));
		assert_int_equal(errno, EFAULT);
	}
}

/* Addresses, ports and protocols are taken as they are; without encapsulation the header is not looked at. */
static void encap_takes_zeros(void **state)
{
	set_port(&dev, 1);
	for (int i = 0; i < 5; i++) {
		struct hbldv_encap_attr attr = good_encap();
		struct hbldv_encap *one;

		switch (i) {
		case 0:
			attr.ipv4_addr = 0;
			break;
		case 1:
			attr.udp_dst_port = 0;
			break;
		case 2:
			attr.encap_type = HBLDV_ENCAP_TYPE_ENC_OVER_IPV4;
			attr.ip_proto = 0;
			break;
		case 3:
			attr.tnl_hdr_ptr = attr.tnl_hdr_size = 0;
			break;
		case 4:
			attr.encap_type = HBLDV_ENCAP_TYPE_NO_ENC;
			attr.tnl_hdr_ptr = 4096;
			attr.tnl_hdr_size = 1000;
			break;
		}
		one = hbldv_create_encap(dev.context, &attr);
		assert_non_null(one);
		assert_int_equal(hbldv_destroy_encap(one), 0);
	}
}

static void encap(void **state)
{
	struct hbldv_encap_attr attr = good_encap();
	const struct conn_attr with = { .caps = HBLDV_QP_CAP_ENCAP, .encap = 1 };
	const struct conn_attr wrong = { .caps = HBLDV_QP_CAP_ENCAP, .encap = 2 };
	struct hbldv_encap *one, *two;
	struct address peer;
	struct end end;

	set_port(&dev, 1);
	set_port(&dev, 2);
	one = hbldv_create_encap(dev.context, &attr);
	assert_non_null(one);
	assert_null(hbldv_create_encap(dev.context, &attr)); /* one per port */
	assert_int_equal(errno, EBUSY);
	attr.port_num = 2;
	two = hbldv_create_encap(dev.context, &attr);
	assert_non_null(two);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	hbl_end_address(&end, &peer);
	assert_int_equal(try_connect(&end, &peer, &wrong), EINVAL);
	assert_int_equal(try_connect(&end, &peer, &with), 0);
	assert_int_equal(hbldv_destroy_encap(one), EBUSY);
	hbl_end_destroy(&end);
	assert_int_equal(hbldv_destroy_encap(one), 0);
	assert_int_equal(hbldv_destroy_encap(two), 0);
	assert_int_equal(hbldv_destroy_encap(NULL), EINVAL);
}

/* --- children ---------------------------------------------------------------------------------------------------- */

/* A child has none of what its parent made: it may give it back, ring it or close it, and the parent goes on. */
static void child(struct end *end, struct fifo *fifo, struct hbldv_encap *one)
{
	CHECK(open("/dev/accel/accel0", O_RDWR) == -1 && errno == EBUSY);
	/* It has queues as they were, and what it does to them is its own. */
	CHECK(((uint32_t *)end->res.q.mem_cpu_addr)[7] == 4711);
	memset(end->req.q.mem_cpu_addr, 0xff, end->req.q.cq_size);
	memset(end->req.q.pi_cpu_addr, 0xff, 64);
	memset(end->req.q.regs_cpu_addr, 0xff, 4096);
	*(volatile uint64_t *)((char *)fifo->usr->regs_cpu_addr + fifo->usr->regs_offset) =
		(uint64_t)end->q.qp_num << 32 | 1;
	CHECK(!hbldv_destroy_usr_fifo(fifo->usr));
	CHECK(!hbldv_destroy_encap(one));
	hbl_end_destroy(end);
	dev_close(&dev);
	dev_open(&dev, 1); /* one of its own */
	set_port(&dev, 1);
	hbl_end_create(end, &dev, &(struct end_attr){ .port = 1 });
	_exit(0);
}

static void forked(void **state)
{
	struct hbldv_encap_attr attr = good_encap();
	struct hbldv_encap *one;
	struct address self;
	struct fifo fifo;
	struct end end;
	struct cqe cqe;
	int status;
	pid_t pid;

	set_port(&dev, 1);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	hbl_end_address(&end, &self);
	hbl_end_connect(&end, &self, NULL);
	fifo_create(&fifo, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	one = hbldv_create_encap(dev.context, &attr);
	assert_non_null(one);
	((uint32_t *)end.res.q.mem_cpu_addr)[7] = 4711;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		child(&end, &fifo, one);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(*(uint32_t *)fifo.usr->ci_cpu_addr, 0);
	hbl_end_post(&end, &(struct wqe){ .opcode = NOP, .tag = 1 }, true);
	fifo_ring(&fifo, end.q.qp_num, hbl_end_pi(&end));
	hbl_cq_wait(&end.req, &cqe);
	assert_int_equal(cqe.tag, ~1u);
	assert_true(no_event(&dev));
	assert_int_equal(hbldv_destroy_encap(one), 0);
	assert_int_equal(hbldv_destroy_usr_fifo(fifo.usr), 0);
	hbl_end_destroy(&end);
}

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_one, close_one)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(supported),
		cmocka_unit_test(open_refuses),
		WITH_DEVICE(one_context),
		cmocka_unit_test(ports_mask),
		WITH_DEVICE(query_device),
		WITH_DEVICE(foreign_context),
		WITH_DEVICE(order_of_calls),
		WITH_DEVICE(set_port_refuses),
		WITH_DEVICE(query_port),
		WITH_DEVICE(cq_limits),
		WITH_DEVICE(cc_cq),
		WITH_DEVICE(verbs_without_data_path),
		cmocka_unit_test(plain_open),
		cmocka_unit_test(close_cleans_up),
		WITH_DEVICE(create_qp_refuses),
		WITH_DEVICE(init_refuses),
		WITH_DEVICE(connect_refuses),
		WITH_DEVICE(rendezvous_needs_size),
		WITH_DEVICE(qps_of_a_port),
		WITH_DEVICE(encap_refuses),
		WITH_DEVICE(encap_takes_zeros),
		WITH_DEVICE(encap),
		WITH_DEVICE(forked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
