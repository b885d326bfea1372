// SPDX-License-Identifier: MIT
/*
 * The edge of the API: NULL and malformed arguments, unknown bits, empty table entries, what comes
 * back rounded, what a parent domain and a thread domain do, and events that nobody fetched.
 */
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

enum { IPV4_V2 = 3 }; /* index of the first IPv4 address in the GID table, as RoCE v2 */

static void null_handles(void **state)
{
	struct device *d = *state;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init = qp_attr(d->cq, IBV_QPT_RC);

	assert_null_errno(ibv_open_device(NULL), EINVAL);
	assert_int_equal(ibv_close_device(NULL), EINVAL);
	assert_null_errno(ibv_alloc_pd(NULL), EINVAL);
	assert_int_equal(ibv_dealloc_pd(NULL), EINVAL);
	assert_null_errno(ibv_reg_mr(NULL, d->buf, 1, 0), EINVAL);
	assert_int_equal(ibv_dereg_mr(NULL), EINVAL);
	assert_null_errno(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
	assert_int_equal(ibv_destroy_cq(NULL), EINVAL);
	assert_null_errno(ibv_create_qp(NULL, &init), EINVAL);
	assert_null_errno(ibv_create_qp(d->pd, NULL), EINVAL);
	assert_int_equal(ibv_destroy_qp(NULL), EINVAL);
	assert_int_equal(ibv_modify_qp(NULL, &attr, 0), EINVAL);
	assert_int_equal(ibv_query_qp(d->qp, NULL, 0, &init), EINVAL);
	assert_null_errno(ibv_create_srq(NULL, NULL), EINVAL);
	assert_int_equal(ibv_destroy_srq(NULL), EINVAL);
	assert_null_errno(ibv_create_ah(NULL, NULL), EINVAL);
	assert_int_equal(ibv_destroy_ah(NULL), EINVAL);
	assert_null_errno(ibv_create_comp_channel(NULL), EINVAL);
	assert_null(ibv_qp_to_qp_ex(NULL));
	assert_null(ibv_qp_to_qp_ex(d->qp));
}

static void query_tables(void **state)
{
	struct device *d = *state;
	struct ibv_gid_entry entry, table[64];
	struct ibv_port_attr port;
	union ibv_gid gid, zero = { 0 };
	__be16 pkey;
	ssize_t count = ibv_query_gid_table(d->context, table, 64, 0);

	assert_int_equal(ibv_query_port(d->context, 1, &port), 0);
	assert_int_equal(ibv_query_port(d->context, 0, &port), EINVAL);
	assert_int_equal(ibv_query_port(d->context, 2, &port), EINVAL);
	assert_in_range(count, 1, port.gid_tbl_len - 1);
	for (int i = 0; i < count; i++) {
		assert_int_equal(ibv_query_gid_ex(d->context, 1, (uint32_t)i, &entry, 0), 0);
		assert_memory_equal(&entry, &table[i], sizeof(entry));
		assert_int_equal(entry.gid_type,
				 i % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1);
		assert_int_equal(ibv_query_gid(d->context, 1, i, &gid), 0);
		assert_memory_equal(&gid, &entry.gid, sizeof(gid));
	}
	assert_int_equal(ibv_query_gid_ex(d->context, 1, (uint32_t)count, &entry, 0), ENODATA);
	assert_int_equal(ibv_query_gid(d->context, 1, (int)count, &gid), 0);
	assert_memory_equal(&gid, &zero, sizeof(gid));
	assert_int_equal(ibv_query_gid_ex(d->context, 1, (uint32_t)port.gid_tbl_len, &entry, 0),
			 EINVAL);
	assert_int_equal(ibv_query_gid(d->context, 1, port.gid_tbl_len, &gid), -1);
	assert_int_equal(ibv_query_gid_ex(d->context, 1, 0, &entry, 1), EINVAL);
	assert_int_equal(ibv_query_gid_table(d->context, table, (size_t)count - 1, 0), -EINVAL);
	assert_int_equal(ibv_query_pkey(d->context, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_query_pkey(d->context, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(d->context, 1, 0xffff), 0);
	assert_int_equal(ibv_get_pkey_index(d->context, 1, 0x1234), -1);
}

static void old_port_query(void **state)
{
	struct device *d = *state;
	struct ibv_port_attr now = { 0 }, old;

	/* A binary from before port_cap_flags2: nothing behind its struct is written. */
	memset(&old, 0xa5, sizeof(old));
	assert_int_equal(ibv_query_port(d->context, 1, &now), 0);
	assert_int_equal(d->context->ops._compat_query_port(d->context, 1,
							    (struct _compat_ibv_port_attr *)&old),
			 0);
	assert_memory_equal(&old, &now, offsetof(struct ibv_port_attr, port_cap_flags2));
	assert_int_equal(old.port_cap_flags2, 0xa5a5);
}

static void memory_regions(void **state)
{
	struct device *d = *state;
	struct ibv_mr *mr;
	uint32_t key;

	assert_null_errno(ibv_reg_mr(d->pd, d->buf, 0, 0), EINVAL);
	assert_null_errno(ibv_reg_mr(d->pd, d->buf, SIZE_MAX, 0), EINVAL);
	assert_null_errno(ibv_reg_mr(d->pd, d->buf, 8, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	assert_null_errno(ibv_reg_mr(d->pd, d->buf, 8, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	assert_null_errno(ibv_reg_mr(d->pd, d->buf, 8, 1 << 15), EINVAL);
	assert_null_errno(ibv_reg_mr_iova(d->pd, d->buf, 8, (uintptr_t)d->buf + 1, 0), EINVAL);
	mr = ibv_reg_mr(d->pd, d->buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	assert_non_null(mr);
	assert_int_equal(mr->lkey, mr->rkey);
	assert_int_equal(ibv_dealloc_pd(d->pd), EBUSY);
	key = mr->lkey;
	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, 1 << 5, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 8, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_REMOTE_WRITE),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(mr->lkey, key);
	assert_ptr_equal(mr->addr, d->buf);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, d->buf + 64, 128, 0), 0);
	assert_ptr_equal(mr->addr, d->buf + 64);
	assert_int_equal(mr->length, 128);
	assert_int_equal(mr->lkey, mr->rkey);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void capabilities(void **state)
{
	struct device *d = *state;
	struct ibv_qp_init_attr attr = qp_attr(d->cq, IBV_QPT_RC), init;
	struct ibv_device_attr device;
	struct ibv_qp_attr qattr;
	struct ibv_qp *qp;

	attr.cap.max_send_wr = 5;
	attr.cap.max_recv_wr = 5;
	qp = ibv_create_qp(d->pd, &attr);
	assert_non_null(qp);
	assert_int_equal(attr.cap.max_send_wr, 8);
	assert_int_equal(attr.cap.max_recv_wr, 8);
	assert_true(attr.cap.max_send_sge >= 2 && attr.cap.max_inline_data >= 32);
	assert_int_equal(ibv_query_qp(qp, &qattr, IBV_QP_CAP, &init), 0);
	assert_memory_equal(&qattr.cap, &attr.cap, sizeof(attr.cap));
	assert_memory_equal(&init.cap, &attr.cap, sizeof(attr.cap));
	assert_ptr_equal(init.send_cq, d->cq);
	assert_int_equal(ibv_destroy_qp(qp), 0);

	assert_int_equal(ibv_query_device(d->context, &device), 0);
	attr = qp_attr(d->cq, IBV_QPT_UD);
	attr.cap.max_send_sge = (uint32_t)device.max_sge + 1;
	assert_null_errno(ibv_create_qp(d->pd, &attr), EINVAL);
	attr = qp_attr(d->cq, IBV_QPT_UD);
	attr.cap.max_send_wr = (uint32_t)device.max_qp_wr + 1;
	assert_null_errno(ibv_create_qp(d->pd, &attr), EINVAL);
	attr = qp_attr(NULL, IBV_QPT_RC);
	assert_null_errno(ibv_create_qp(d->pd, &attr), EINVAL);
	assert_null_errno(ibv_create_cq(d->context, 0, NULL, NULL, 0), EINVAL);
	assert_null_errno(ibv_create_cq(d->context, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	assert_null_errno(ibv_create_cq(d->context, 1, NULL, NULL, d->context->num_comp_vectors),
			  EINVAL);
}

static void posting_too_early(void **state)
{
	struct device *d = *state;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_recv_wr recv = { 0 }, *bad_recv = NULL;

	assert_int_equal(ibv_post_send(d->qp, &send, &bad_send), EINVAL);
	assert_ptr_equal(bad_send, &send);
	assert_int_equal(ibv_post_recv(d->qp, &recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv);
}

/* --- domains ---------------------------------------------------------------------------------- */

static unsigned int allocations;

static void *count_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
			 uint64_t type)
{
	void *ptr;

	assert_ptr_equal(context, &allocations);
	allocations++;
	return posix_memalign(&ptr, alignment, size) ? NULL : ptr;
}

static void count_free(struct ibv_pd *pd, void *context, void *ptr, uint64_t type)
{
	allocations--;
	free(ptr);
}

static void parent_domain(void **state)
{
	struct device *d = *state;
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(d->context, &td_attr);
	struct ibv_parent_domain_init_attr attr = {
		.pd = d->pd,
		.td = td,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = count_alloc,
		.free = count_free,
		.pd_context = &allocations,
	};
	struct ibv_qp_init_attr qp_init = qp_attr(d->cq, IBV_QPT_RC);
	struct ibv_pd *parent = ibv_alloc_parent_domain(d->context, &attr);
	struct ibv_qp *qp;

	assert_non_null(td);
	assert_non_null(parent);
	assert_int_equal(ibv_dealloc_td(td), EBUSY);
	qp = ibv_create_qp(parent, &qp_init);
	assert_non_null(qp);
	assert_ptr_equal(qp->pd, parent);
	assert_int_equal(allocations, 2); /* rings and doorbell record */
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(allocations, 0);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
	attr.td = NULL;
	attr.comp_mask = 1 << 9;
	assert_null_errno(ibv_alloc_parent_domain(d->context, &attr), EINVAL);
	attr = (struct ibv_parent_domain_init_attr){ 0 };
	assert_null_errno(ibv_alloc_parent_domain(d->context, &attr), EINVAL);
	td_attr.comp_mask = 1;
	assert_null_errno(ibv_alloc_td(d->context, &td_attr), EINVAL);
}

/* --- channels and events ---------------------------------------------------------------------- */

static void silent_channel(void **state)
{
	struct device *d = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(d->context);
	struct ibv_async_event event;
	struct ibv_cq *cq, *ready;
	struct pollfd pfd;
	void *context;

	assert_non_null(channel);
	cq = ibv_create_cq(d->context, 4, d, channel, 0);
	assert_non_null(cq);
	assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	pfd = (struct pollfd){ .fd = channel->fd, .events = POLLIN };
	assert_int_equal(poll(&pfd, 1, 0), 0);
	assert_int_equal(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
	assert_int_equal(ibv_get_cq_event(channel, &ready, &context), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);

	assert_int_equal(fcntl(d->context->async_fd, F_SETFL,
			       fcntl(d->context->async_fd, F_GETFL) | O_NONBLOCK),
			 0);
	assert_int_equal(ibv_get_async_event(d->context, &event), -1);
	assert_int_equal(errno, EAGAIN);
}

/* Arming takes no lock that polling holds: a program may ask for the next event while it reads. */
static void arm_while_polling(void **state)
{
	struct device *d = *state;
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(d->context, &cq_init);
	struct ibv_qp_init_attr qp_init = qp_attr(ibv_cq_ex_to_cq(cq), IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(d->pd, &qp_init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr recv = { .wr_id = 77 }, *bad;
	struct ibv_poll_cq_attr poll_attr = { 0 };

	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	attr.qp_state = IBV_QPS_ERR;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(ibv_start_poll(cq, &poll_attr), ENOENT);
	assert_int_equal(ibv_post_recv(qp, &recv, &bad), 0);
	assert_int_equal(ibv_start_poll(cq, &poll_attr), 0);
	assert_int_equal(cq->wr_id, 77);
	assert_int_equal(cq->status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_wc_read_qp_num(cq), qp->qp_num);
	assert_int_equal(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0), 0);
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	poll_attr.comp_mask = 1;
	assert_int_equal(ibv_start_poll(cq, &poll_attr), EINVAL);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void address_handles(void **state)
{
	struct device *d = *state;
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	uint8_t mac[ETHERNET_LL_SIZE];
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(d->context, 1, 0, &attr.grh.dgid), 0);
	ah = ibv_create_ah(d->pd, &attr);
	assert_non_null(ah);
	assert_int_equal(ibv_dealloc_pd(d->pd), EBUSY);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_resolve_eth_l2_from_gid(d->context, &attr, mac, NULL), 0);
	attr.is_global = 0;
	assert_null_errno(ibv_create_ah(d->pd, &attr), EINVAL);
	attr.is_global = 1;
	attr.port_num = 2;
	assert_null_errno(ibv_create_ah(d->pd, &attr), EINVAL);
	attr.port_num = 1;
	attr.grh.sgid_index = 200;
	assert_null_errno(ibv_create_ah(d->pd, &attr), EINVAL);
}

/* A reply to a datagram goes back where it came from; IPv4 lies in the last 20 bytes of the 40. */
static void reply_address(void **state)
{
	struct device *d = *state;
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .sl = 3 };
	struct ibv_ah_attr attr;
	union ibv_gid own;
	union {
		struct ibv_grh grh;
		uint8_t raw[40];
	} head = { 0 };

	/* Without a configuration the first address is IPv4: an interface's, or 127.0.0.1. */
	assert_int_equal(ibv_query_gid(d->context, 1, IPV4_V2, &own), 0);
	if (own.raw[10] != 0xff || own.raw[11] != 0xff) {
		print_message("the first interface has no IPv4 address\n");
		skip();
	}
	head.raw[20] = 0x45;
	head.raw[21] = 0x20; /* tos */
	head.raw[28] = 61;   /* ttl */
	memcpy(head.raw + 32, (uint8_t[]){ 192, 0, 2, 77 }, 4);
	memcpy(head.raw + 36, own.raw + 12, 4);
	assert_int_equal(ibv_init_ah_from_wc(d->context, 1, &wc, &head.grh, &attr), 0);
	assert_true(attr.is_global);
	assert_int_equal(attr.sl, 3);
	assert_int_equal(attr.grh.sgid_index, IPV4_V2);
	assert_int_equal(attr.grh.hop_limit, 61);
	assert_int_equal(attr.grh.traffic_class, 0x20);
	assert_memory_equal(attr.grh.dgid.raw + 10, ((uint8_t[]){ 0xff, 0xff, 192, 0, 2, 77 }), 6);
	head.raw[36] ^= 1; /* not for us */
	assert_int_equal(ibv_init_ah_from_wc(d->context, 1, &wc, &head.grh, &attr), -1);
}

/* IPv6 and RoCE v1 have the same layout: the next header tells which of the two GIDs was meant. */
static void reply_version(void **state)
{
	struct device *d = *state;
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_grh grh = { .version_tclass_flow = htobe32(6u << 28), .hop_limit = 1 };
	struct ibv_ah_attr attr;

	for (int index = 0; index < 4; index++) {
		assert_int_equal(ibv_query_gid(d->context, 1, index, &grh.dgid), 0);
		grh.next_hdr = index % 2 ? IPPROTO_UDP : 0x1b;
		assert_int_equal(ibv_init_ah_from_wc(d->context, 1, &wc, &grh, &attr), 0);
		assert_int_equal(attr.grh.sgid_index, index);
	}
	grh.next_hdr = IPPROTO_TCP;
	assert_int_equal(ibv_init_ah_from_wc(d->context, 1, &wc, &grh, &attr), -1);
}

/* What is left behind stays reachable, so that the leak checker knows it is meant. */
static struct device left;
static struct ibv_mr *volatile left_mr;

/* A program that closes a device without destroying what it made is not stopped by it. */
static void careless_close(void **state)
{
	struct device *d = *state;
	struct ibv_qp_init_attr attr;

	left.context = ibv_open_device(d->context->device);
	assert_non_null(left.context);
	left.pd = ibv_alloc_pd(left.context);
	left.cq = ibv_create_cq(left.context, 4, NULL, NULL, 0);
	left_mr = ibv_reg_mr(left.pd, left.buf, 64, 0);
	assert_non_null(left_mr);
	attr = qp_attr(left.cq, IBV_QPT_RC);
	left.qp = ibv_create_qp(left.pd, &attr);
	assert_non_null(left.qp);
	/* Another device's objects do not fit. */
	assert_null_errno(ibv_create_qp(d->pd, &attr), EINVAL);
	assert_int_equal(ibv_close_device(left.context), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(null_handles),      cmocka_unit_test(query_tables),
		cmocka_unit_test(old_port_query),    cmocka_unit_test(memory_regions),
		cmocka_unit_test(capabilities),      cmocka_unit_test(posting_too_early),
		cmocka_unit_test(parent_domain),     cmocka_unit_test(silent_channel),
		cmocka_unit_test(address_handles),   cmocka_unit_test(reply_address),
		cmocka_unit_test(reply_version),     cmocka_unit_test(careless_close),
		cmocka_unit_test(arm_while_polling),
	};

	return cmocka_run_group_tests(tests, device_open, device_close);
}
