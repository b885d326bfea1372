// SPDX-License-Identifier: MIT
/*
 * Objects from birth to death: what may be created, with which limits, what refuses to go while it is used, and what
 * the query calls say.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "../programs/common.h"

static struct node node;
static struct ibv_device_attr device;

static void fail_case(const char *file, int line)
{
	_fail(file, line);
}

static int open_node(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	(void)state;
	node_open(&node, &attr);
	return ibv_query_device(node.ctx, &device);
}

static int close_node(void **state)
{
	(void)state;
	node_close(&node);
	return 0;
}

static void test_device_list(void **state)
{
	struct ibv_device **list;
	int n = -1;

	(void)state;
	list = ibv_get_device_list(&n);
	check(list && n > 0, "%d devices", n);
	check(list[n] == NULL, "the list does not end with NULL");
	for (int i = 0; i < n; i++) {
		check(ibv_get_device_name(list[i])[0] != 0, "device %d has no name", i);
		check(ibv_get_device_guid(list[i]) != 0, "device %d has no GUID", i);
		for (int k = 0; k < i; k++)
			check(strcmp(ibv_get_device_name(list[i]), ibv_get_device_name(list[k])),
			      "two devices of one name");
		check_eq(list[i]->node_type, IBV_NODE_CA);
		check_eq(list[i]->transport_type, IBV_TRANSPORT_IB);
	}
	ibv_free_device_list(list);
	list = ibv_get_device_list(NULL);
	check(list != NULL, "no count wanted");
	ibv_free_device_list(list);
}

/* A context outlives the list it was opened from, and several live side by side. */
static void test_open_many(void **state)
{
	struct ibv_context *ctx[20];

	(void)state;
	for (int i = 0; i < 20; i++)
		ctx[i] = device_open();
	for (int i = 0; i < 20; i++) {
		check(ctx[i]->async_fd >= 0 && ctx[i]->async_fd != ctx[(i + 1) % 20]->async_fd,
		      "async_fd");
		check_eq(ctx[i]->num_comp_vectors > 0, 1);
	}
	for (int i = 0; i < 20; i++)
		check_eq(ibv_close_device(ctx[i]), 0);
}

static void test_query_device(void **state)
{
	struct ibv_device_attr_ex ex;

	(void)state;
	check(device.max_qp >= 1000, "max_qp %d", device.max_qp);
	check(device.max_sge >= 30, "max_sge %d", device.max_sge);
	check_eq(device.phys_port_cnt, 1);
	check(device.max_qp_wr > 0 && device.max_cqe > 0 && device.max_mr > 0 && device.max_srq > 0,
	      "a limit is 0");
	check(device.atomic_cap != IBV_ATOMIC_NONE, "no atomics");
	check(device.max_qp_rd_atom > 0 && device.max_qp_init_rd_atom > 0, "no READ resources");
	memset(&ex, 0xff, sizeof(ex));
	check_eq(ibv_query_device_ex(node.ctx, NULL, &ex), 0);
	check(!memcmp(&ex.orig_attr, &device, sizeof(device)), "query_device and _ex differ");
	check(ex.hca_core_clock > 0 && ex.completion_timestamp_mask != 0, "no clock");
}

static void test_query_port(void **state)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_gid_entry entry;
	__be16 pkey = 0;

	(void)state;
	check_eq(ibv_query_port(node.ctx, 1, &port), 0);
	check_eq(port.state, IBV_PORT_ACTIVE);
	check_eq(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	check(port.active_mtu >= IBV_MTU_256 && port.active_mtu <= port.max_mtu, "mtu %d of %d",
	      port.active_mtu, port.max_mtu);
	check(port.max_msg_sz >= 1u << 30, "max_msg_sz %u", port.max_msg_sz);
	check(port.gid_tbl_len > 0 && port.pkey_tbl_len > 0, "empty tables");
	check(ibv_query_port(node.ctx, 0, &port) != 0, "port 0");
	check(ibv_query_port(node.ctx, 2, &port) != 0, "port 2");
	check_eq(ibv_query_gid(node.ctx, 1, 0, &gid), 0);
	check(gid.global.interface_id != 0, "GID 0 is empty");
	check(ibv_query_gid(node.ctx, 1, port.gid_tbl_len, &gid) != 0, "GID behind the table");
	check(ibv_query_gid(node.ctx, 2, 0, &gid) != 0, "GID of port 2");
	check_eq(ibv_query_gid_ex(node.ctx, 1, 0, &entry, 0), 0);
	check_eq(entry.gid_type, IBV_GID_TYPE_ROCE_V1);
	check_eq(ibv_query_gid_ex(node.ctx, 1, TEST_GID_INDEX, &entry, 0), 0);
	check_eq(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	check(!memcmp(&entry.gid, &node.gid, sizeof(gid)), "query_gid and _ex differ");
	check_eq(ibv_query_pkey(node.ctx, 1, 0, &pkey), 0);
	check_eq(pkey, 0xffff);
	check(ibv_query_pkey(node.ctx, 1, port.pkey_tbl_len, &pkey) != 0, "pkey behind the table");
}

/* What is used does not go. */
static void test_busy(void **state)
{
	(void)state;
	check_eq(ibv_dealloc_pd(node.pd), EBUSY);
	check_eq(ibv_destroy_cq(node.send_cq), EBUSY);
	check_eq(ibv_destroy_cq(node.recv_cq), EBUSY);
}

static void test_channel_busy(void **state)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(node.ctx);
	struct ibv_cq *cq;

	(void)state;
	check(channel, "%s", strerror(errno));
	cq = ibv_create_cq(node.ctx, 10, NULL, channel, 0);
	check(cq, "%s", strerror(errno));
	check_eq(ibv_destroy_comp_channel(channel), EBUSY);
	check_eq(ibv_destroy_cq(cq), 0);
	check_eq(ibv_destroy_comp_channel(channel), 0);
}

static void test_cq_limits(void **state)
{
	struct ibv_cq *cq;

	(void)state;
	check(!ibv_create_cq(node.ctx, 0, NULL, NULL, 0) && errno == EINVAL, "0 entries");
	check(!ibv_create_cq(node.ctx, -5, NULL, NULL, 0) && errno == EINVAL, "-5 entries");
	check(!ibv_create_cq(node.ctx, device.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL,
	      "too many entries");
	check(!ibv_create_cq(node.ctx, 10, NULL, NULL, node.ctx->num_comp_vectors),
	      "a wrong vector");
	cq = ibv_create_cq(node.ctx, 1, &node, NULL, node.ctx->num_comp_vectors - 1);
	check(cq, "%s", strerror(errno));
	check(cq->cqe >= 1 && cq->cq_context == &node && cq->context == node.ctx, "fields");
	check_eq(ibv_destroy_cq(cq), 0);
}

static struct ibv_qp *create(struct ibv_qp_init_attr *init)
{
	errno = 0;
	return ibv_create_qp(node.pd, init);
}

static struct ibv_qp_init_attr good_init(void)
{
	struct ibv_qp_init_attr init = { .qp_context = &node,
					 .send_cq = node.send_cq,
					 .recv_cq = node.recv_cq,
					 .cap = { 10, 10, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };

	return init;
}

static void test_qp_limits(void **state)
{
	struct ibv_qp_init_attr init = good_init();

	(void)state;
	init.cap.max_send_wr = (uint32_t)device.max_qp_wr + 1;
	check(!create(&init) && errno == EINVAL, "too many sends: errno %d", errno);
	init = good_init();
	init.cap.max_recv_wr = (uint32_t)device.max_qp_wr + 1;
	check(!create(&init) && errno == EINVAL, "too many receives: errno %d", errno);
	init = good_init();
	init.cap.max_send_sge = (uint32_t)device.max_sge + 1;
	check(!create(&init) && errno == EINVAL, "too many send entries: errno %d", errno);
	init = good_init();
	init.cap.max_recv_sge = (uint32_t)device.max_sge + 1;
	check(!create(&init) && errno == EINVAL, "too many receive entries: errno %d", errno);
	init = good_init();
	init.cap.max_inline_data = 1 << 20;
	check(!create(&init) && errno == EINVAL, "too much inline: errno %d", errno);
	init = good_init();
	init.qp_type = (enum ibv_qp_type)99;
	check(!create(&init) && errno != 0, "QP type 99");
}

/* What was asked for is granted at least, said so, and may be nothing on one side. */
static void test_qp_capacity(void **state)
{
	static const struct ibv_qp_cap caps[] = {
		{ 1, 1, 1, 1, 0 },     { 100, 300, 3, 7, 64 }, { 0, 10, 0, 1, 0 },
		{ 10, 0, 1, 0, 0 },    { 1000, 1, 30, 30, 0 }, { 1, 1, 1, 1, 500 },
		{ 128, 128, 1, 1, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		struct ibv_qp_init_attr init = good_init();
		struct ibv_qp *qp;

		init.cap = caps[i];
		qp = create(&init);
		check(qp, "capacity %zu: %s", i, strerror(errno));
		check(init.cap.max_send_wr >= caps[i].max_send_wr &&
			      init.cap.max_recv_wr >= caps[i].max_recv_wr &&
			      init.cap.max_send_sge >= caps[i].max_send_sge &&
			      init.cap.max_recv_sge >= caps[i].max_recv_sge &&
			      init.cap.max_inline_data >= caps[i].max_inline_data,
		      "capacity %zu: less than asked for", i);
		check(qp->qp_context == &node && qp->pd == node.pd && qp->send_cq == node.send_cq &&
			      qp->recv_cq == node.recv_cq && qp->qp_type == IBV_QPT_RC,
		      "fields");
		check_eq(qp->state, IBV_QPS_RESET);
		check_eq(ibv_destroy_qp(qp), 0);
	}
}

static void test_srq_limits(void **state)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 10, .max_sge = 2 } };
	struct ibv_srq *srq;
	struct ibv_srq_attr attr;

	(void)state;
	init.attr.max_wr = (uint32_t)device.max_srq_wr + 1;
	check(!ibv_create_srq(node.pd, &init) && errno == EINVAL, "too many receives");
	init.attr.max_wr = 10;
	init.attr.max_sge = (uint32_t)device.max_srq_sge + 1;
	check(!ibv_create_srq(node.pd, &init) && errno == EINVAL, "too many entries");
	init.attr.max_sge = 2;
	srq = ibv_create_srq(node.pd, &init);
	check(srq, "%s", strerror(errno));
	check(init.attr.max_wr >= 10 && init.attr.max_sge >= 2, "less than asked for");
	check_eq(ibv_query_srq(srq, &attr), 0);
	check_eq(attr.max_wr, init.attr.max_wr);
	check_eq(ibv_destroy_srq(srq), 0);
}

static void test_ah(void **state)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	(void)state;
	ah_attr_to(&attr, &node.gid);
	ah = ibv_create_ah(node.pd, &attr);
	check(ah, "%s", strerror(errno));
	check_eq(ibv_destroy_ah(ah), 0);
	attr.port_num = 2;
	check(!ibv_create_ah(node.pd, &attr), "port 2");
	attr.port_num = 1;
	attr.is_global = 0;
	check(!ibv_create_ah(node.pd, &attr), "no GRH on Ethernet");
	attr.is_global = 1;
	attr.grh.sgid_index = 250;
	check(!ibv_create_ah(node.pd, &attr), "a source that is not there");
}

static void test_mr_fields(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(node.pd, node.buf + 5, 1000, ACCESS_ALL);

	(void)state;
	check(mr, "%s", strerror(errno));
	check(mr->addr == node.buf + 5 && mr->length == 1000 && mr->pd == node.pd, "fields");
	check(mr->lkey != node.mr->lkey && mr->rkey != node.mr->rkey, "a key twice");
	check_eq(ibv_dereg_mr(mr), 0);
}

/* Names for people. */
static void test_strings(void **state)
{
	(void)state;
	check(!strcmp(ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR), "RNR retry counter exceeded"),
	      "%s", ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR));
	check(!strcmp(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter"), "node type");
	check(!strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active"), "port state");
	check(ibv_event_type_str(IBV_EVENT_QP_FATAL) != NULL, "event");
	check(ibv_wc_status_str((enum ibv_wc_status)999) != NULL, "an unknown status");
}

/* Created and destroyed many times over, nothing runs out. */
static void test_reuse(void **state)
{
	(void)state;
	for (int i = 0; i < 3000; i++) {
		struct ibv_qp_init_attr init = good_init();
		struct ibv_pd *pd = ibv_alloc_pd(node.ctx);
		struct ibv_cq *cq = ibv_create_cq(node.ctx, 10, NULL, NULL, 0);
		struct ibv_mr *mr = ibv_reg_mr(node.pd, node.buf, 4096, ACCESS_ALL);
		struct ibv_qp *qp = create(&init);

		check(pd && cq && mr && qp, "round %d: %s", i, strerror(errno));
		check_eq(ibv_destroy_qp(qp), 0);
		check_eq(ibv_dereg_mr(mr), 0);
		check_eq(ibv_destroy_cq(cq), 0);
		check_eq(ibv_dealloc_pd(pd), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device_list),  cmocka_unit_test(test_open_many),
		cmocka_unit_test(test_query_device), cmocka_unit_test(test_query_port),
		cmocka_unit_test(test_busy),         cmocka_unit_test(test_channel_busy),
		cmocka_unit_test(test_cq_limits),    cmocka_unit_test(test_qp_limits),
		cmocka_unit_test(test_qp_capacity),  cmocka_unit_test(test_srq_limits),
		cmocka_unit_test(test_ah),           cmocka_unit_test(test_mr_fields),
		cmocka_unit_test(test_strings),      cmocka_unit_test(test_reuse),
	};

	test_fail_hook = fail_case;
	return cmocka_run_group_tests_name("objects", tests, open_node, close_node) != 0;
}
